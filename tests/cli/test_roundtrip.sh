# SPDX-FileCopyrightText: The mics authors
# SPDX-License-Identifier: Apache-2.0
# From a run to text, to loss, to safetensors and back; token shards.
. "$(dirname "$0")/lib.sh"

run 0 train "$mics" train run.json --ranks 2 --steps 30
run 0 text "$mics" generate out --prompt "the lark" --tokens 40 --seed 5
contains text.out "the lark"
[ "$(wc -c <text.out)" = 49 ] || fail "8 + 40 bytes and a newline are due"
run 0 again "$mics" generate out/checkpoints/step-00000030 --prompt "the lark" --tokens=40 --seed 5
cmp text.out again.out || fail "the same seed should give the same text"
run 0 other "$mics" generate out/checkpoints --prompt "the lark" --tokens 40 --seed 6
cmp -s text.out other.out && fail "another seed should give another text"
# Prompts beyond the 32 positions, none at all, and the most likely token.
run 0 long "$mics" generate out --prompt "$(head -c 300 text.txt)" --tokens 5 --temperature 0
run 0 empty "$mics" generate out --tokens 3 --top-k 2

loss() { sed -n 's/.*"loss": \([^,]*\),.*/\1/p' "$1"; }
run 0 eval "$mics" eval out --data text.txt --json
contains eval.out '"bits_per_byte"'
# The separator behind the text counts, and the first byte is not predicted.
contains eval.out "\"tokens\": $(($(wc -c <text.txt) + 0)),"
run 0 people "$mics" eval out --data text.txt
contains people.out "perplexity"
# Other windows predict as many tokens.
run 0 odd "$mics" eval out --data text.txt --json --sequence 31
contains odd.out "\"tokens\": $(($(wc -c <text.txt) + 0)),"

run 0 convert "$mics" convert out exported
contains exported/config.json '"torch_dtype": "float32"'
contains exported/config.json '"n_embd": 32'
contains exported/tokenizer_config.json '"PreTrainedTokenizerFast"'
contains exported/generation_config.json '{'
run 2 twice "$mics" convert out exported
one_line twice.err
contains twice.err "not overwritten"
run 0 sharded "$mics" convert out sharded --max-shard-bytes 20000
[ -f sharded/model.safetensors.index.json ] || fail "no index"

# One step with a learning rate of nothing keeps the imported weights as they are.
for folder in exported sharded; do
    run 0 import "$mics" train run.json --ranks 4 --steps 1 --out "from-$folder" \
        --set model.init=$folder --set optimizer.params.lr=1e-30
    contains import.out "weights of $folder"
    run 0 evaluated "$mics" eval "from-$folder" --data text.txt --json
    [ "$(loss evaluated.out)" = "$(loss eval.out)" ] || fail "the imported model's loss differs"
done
sed 's/"n_embd": 32/"n_embd": 64/' model.json >wide.json
run 2 shapes "$mics" train run.json --ranks 2 --out wide --set model.init=exported \
    --set model.config=wide.json
one_line shapes.err
contains shapes.err "wte.weight"

run 0 tokenize "$mics" tokenize text.txt --out text.bin
run 0 shard "$mics" train run.json --ranks 2 --steps 2 --out shard --set 'data.train=["text.bin"]'
run 0 plain "$mics" train run.json --ranks 2 --steps 2 --out plain
same_losses shard plain
run 2 exists "$mics" tokenize text.txt --out text.bin
one_line exists.err
exit 0
