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
# Threads do not change a text, and several texts are what each is alone; also past the positions.
run 0 one "$mics" generate out --prompt "the lark" --tokens 90 --seed 5 --threads 1
run 0 three "$mics" generate out --prompt "the lark" --tokens 90 --seed 5 --threads 3 --stats
cmp one.out three.out || fail "threads change the text"
contains three.err "prompt of 8 tokens; first token after"
contains three.err "tokens/s"
[ -s one.err ] && fail "statistics that nobody asked for"
run 0 many "$mics" generate out --prompt "the lark" --tokens 90 --seed 5 --samples 3
for seed in 5 6 7; do
    run 0 alone "$mics" generate out --prompt "the lark" --tokens 90 --seed $seed
    { [ $seed = 5 ] || echo; echo "---- seed $seed ----"; cat alone.out; } >>expected.out
done
cmp many.out expected.out || fail "texts written together are not those of their seeds"
run 2 none "$mics" generate out --samples 0
one_line none.err

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
# Files of bf16 are held so, which changes nothing.
run 0 half "$mics" convert out half --dtype bf16
for precision in fp32 bf16; do
    run 0 $precision "$mics" generate half --prompt "the lark" --tokens 20 --temperature 0 \
        --precision $precision
    run 0 stored "$mics" generate half --prompt "the lark" --tokens 20 --temperature 0
    cmp stored.out $precision.out || fail "$precision changes the text of a file of bf16"
done
run 0 rounded "$mics" generate out --tokens 20 --temperature 0 --prompt "the lark" --precision bf16
cmp rounded.out stored.out || fail "rounding here and in the export should be the same"
# A NaN in the weights is an error, not a text.
cp -r exported broken
printf '\0\0\300\177' | dd of=broken/model.safetensors bs=1 conv=notrunc status=none \
    seek=$(($(wc -c <broken/model.safetensors) - 4))
run 1 broken "$mics" generate broken --prompt "the lark" --tokens 5
contains broken.err "logits are not finite"
run 2 fp16 "$mics" generate half --precision fp16
one_line fp16.err
contains fp16.err "fp32 and bf16 are known"
mkdir begun && cp out/run-id begun/ # a run before its first checkpoint
run 2 begun "$mics" convert out begun
contains begun.err "begun/run-id: is a run's, and no model is exported beside it"
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
