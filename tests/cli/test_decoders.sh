# SPDX-FileCopyrightText: The mics authors
# SPDX-License-Identifier: Apache-2.0
# A decoder that is not GPT-2 through every command: grouped heads, a window, scaled rotary
# embeddings; and its export in place of a checkpoint.
. "$(dirname "$0")/lib.sh"

cat >model.json <<'JSON'
{"model_type": "qwen3", "hidden_size": 24, "intermediate_size": 40, "num_hidden_layers": 4,
 "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 10, "vocab_size": 256,
 "max_position_embeddings": 48, "use_sliding_window": true, "sliding_window": 9,
 "layer_types": ["full_attention", "sliding_attention", "full_attention", "sliding_attention"],
 "tie_word_embeddings": true, "eos_token_id": 10,
 "rope_scaling": {"rope_type": "yarn", "factor": 2.0, "original_max_position_embeddings": 24}}
JSON
run 0 train "$mics" train run.json --ranks 4 --nodes 2 --steps 30
contains train.out "qwen3"
run 0 one "$mics" train run.json --ranks 1 --steps 30 --out one --set 'sharding={"params": 1}'
# Another mesh after each stop: two ranks begin, eight of two nodes go on, and one ends.
run 0 two "$mics" train run.json --ranks 2 --steps 11 --out moved
run 0 eight "$mics" train run.json --ranks 8 --nodes 2 --steps 19 --out moved \
    --set 'sharding={"params": 2, "grads": 4, "optimizer": 8}'
run 0 last "$mics" train run.json --ranks 1 --steps 30 --out moved --set 'sharding={"params": 1}'
contains last.out "resumed from moved/checkpoints/step-00000019"
for other in out moved; do
    losses one >one.losses
    losses $other >$other.losses
    awk 'NR == FNR { loss[$1] = $2; next }
         { d = ($2 - loss[$1]) / $2; if (!($1 in loss) || d > 1e-4 || d < -1e-4) exit 1 }
         END { exit FNR != 30 }' one.losses $other.losses ||
        fail "the losses of $other are not those of one rank"
done

loss() { sed -n 's/.*"loss": \([^,]*\),.*/\1/p' "$1"; }
run 0 text "$mics" generate out --prompt "the lark" --tokens 60 --seed 5
run 0 eval "$mics" eval out --data text.txt --json --sequence 32

# The export has the byte tokenizer too, and says the same.
run 0 convert "$mics" convert out exported --max-shard-bytes 20000
contains exported/config.json '"rope_type": "yarn"'
contains exported/config.json '"Qwen3ForCausalLM"'
contains exported/generation_config.json '"eos_token_id": 10'
contains exported/model.safetensors.index.json "model.layers.3.self_attn.k_proj.weight"
run 0 same "$mics" generate exported --prompt "the lark" --tokens 20 --temperature 0
run 0 best "$mics" generate out --prompt "the lark" --tokens 20 --temperature 0
cmp same.out best.out || fail "the export continues the text in another way"
run 0 evaluated "$mics" eval exported --data text.txt --json --sequence 32
[ "$(loss evaluated.out)" = "$(loss eval.out)" ] || fail "the export's loss differs"
run 0 again "$mics" convert exported twice --max-shard-bytes 20000
for file in exported/*; do
    cmp "$file" "twice/${file##*/}" || fail "$file is not the same in twice"
done

# bf16 is half as large, and about as good.
run 0 half "$mics" convert exported half --dtype bf16
run 0 rounded "$mics" eval half --data text.txt --json --sequence 32
awk -v a="$(loss eval.out)" -v b="$(loss rounded.out)" \
    'BEGIN { exit !(a != b && a - b < 0.02 && b - a < 0.02) }' || fail "bf16's loss is far off"
run 2 dtype "$mics" convert exported quarter --dtype int4
one_line dtype.err
contains dtype.err "fp32, bf16 and fp16"

# One step with a learning rate of nothing keeps the imported weights as they are.
run 0 import "$mics" train run.json --ranks 3 --steps 1 --out imported --set model.init=exported \
    --set optimizer.params.lr=1e-30 --set train_batch_size=12 --set 'sharding={"params": 3}'
run 0 kept "$mics" eval imported --data text.txt --json --sequence 32
[ "$(loss kept.out)" = "$(loss eval.out)" ] || fail "the imported model's loss differs"

# Another stretch of the rotary embeddings is another model.
sed 's/"factor": 2.0/"factor": 4.0/' model.json >other.json
run 2 resume "$mics" train run.json --ranks 4 --steps 40 --set model.config=other.json
one_line resume.err
contains resume.err '"rope_scaling"'

# Without weights that can be read.
mkdir pickled
touch pickled/pytorch_model.bin
run 2 pickled "$mics" train run.json --ranks 2 --out pickle --set model.init=pickled
one_line pickled.err
contains pickled.err "save_pretrained"

run 0 explain "$mics" explain run.json --ranks 4 --nodes 2
contains explain.out "qwen3"
run 0 plan "$mics" plan run.json --cluster p4d.24xlarge:2
run 0 bench "$mics" bench compute --config model.json --seconds 1 --force --json
exit 0
