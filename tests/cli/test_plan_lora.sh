# SPDX-FileCopyrightText: The mics authors
# SPDX-License-Identifier: Apache-2.0
# mics plan and explain of models that train in part: what they say, and memory that both agree on.
. "$(dirname "$0")/lib.sh"

cat >llama3.json <<'END'
{"model_type": "llama", "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8,
 "intermediate_size": 14336, "vocab_size": 128256, "max_position_embeddings": 8192, "rms_norm_eps": 1e-5}
END

# ---- an adapter on a config.json alone ----
run 0 text "$mics" plan llama3.json --lora 16 --cluster p4d.24xlarge:4 --set train_batch_size=256 --top 2
for words in "8.072 billion parameters, trains 41.94 million" "Sent inter-node, a step and node: " "zero3 (FSDP full shard) " \
    "not modelled with frozen parameters" "Of frozen parameters MFU counts 4 FLOPs"; do
    tr '\n' ' ' <text.out | grep -qF -- "$words" || fail "the plan does not say: $words"
done
tail -n +2 text.out | awk 'length($0) > 120 { print; exit 1 }' || fail "a line of more than 120 columns"
run 0 json "$mics" plan llama3.json --lora 16 --cluster p4d.24xlarge:4 --set train_batch_size=256 --top 1 --json
contains json.out '"trained_parameters": 41943040'
contains json.out '"megatron": null'
run 0 all "$mics" plan llama3.json --cluster p4d.24xlarge:4 --set train_batch_size=256 --top 1
grep -qE 'trains|Sent inter-node|Of frozen' all.out && fail "a plan of a whole training speaks of frozen parameters"
run 2 refused "$mics" plan llama3.json --lora 16 --cluster p4d.24xlarge:4 --tensor 2
one_line refused.err
contains refused.err "not modelled with frozen parameters"
run 2 refused "$mics" plan llama3.json --cluster p4d.24xlarge:4 --set 'model.trainable=["no.such.*"]'
one_line refused.err

# ---- memory of plans is that of runs, to the byte ----
cat >run.json <<'END'
{"model": {"config": "llama3.json"}, "data": {"train": ["nowhere.bin"], "sequence_length": 512}, "run": {"steps": 1, "prefetch": 1},
 "train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 4, "adapter": {"r": 16}}
END
agree() { # FLAGS...
    run 0 explained "$mics" explain run.json --ranks 16 --nodes 2 --json --set run.memory_limit=40802189312 "$@"
    bytes=$(sed -n 's/.*"memory_bytes": {.*"total": \([0-9]*\)}.*/\1/p' explained.out)
    [ -n "$bytes" ] || fail "no memory is explained"
    run 0 planned "$mics" plan run.json --cluster p4d.24xlarge:2 --json --top 1 "$@"
    grep '"run_file"' planned.out >planned_file.txt
    contains planned_file.txt "\"memory_bytes\": $bytes,"
}
for degrees in 8,8,8 16,16,16 4,8,16; do
    sharding="sharding={\"params\": ${degrees%%,*}, \"grads\": $(echo $degrees | cut -d, -f2), \"optimizer\": ${degrees##*,}}"
    agree --set "$sharding" --set run.device=cuda --set run.precision=bf16
done
agree --set "$sharding" --set run.device=cpu --set run.threads=1
agree --set "$sharding" --set run.device=cuda --set 'adapter=null' --set 'model.trainable=["model.layers.3?.*"]'

# ---- what explain says ----
run 0 said "$mics" explain run.json --ranks 16 --nodes 2 --set run.device=cuda --set run.memory_limit=40802189312 \
    --set 'sharding="auto"'
contains said.out "8072204288 parameters in 66 units"
contains said.out "trains 41943040 of them; the others are frozen"
contains said.err '"sharding": "auto"'
contains explained.out '"trained_parameters": '
