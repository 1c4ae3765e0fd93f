# SPDX-FileCopyrightText: The mics authors
# SPDX-License-Identifier: Apache-2.0
# Runs and folders in place of each other: what stands around texts, where exports may go, and what
# a fine-tuned model keeps of the folder that it began with.
. "$(dirname "$0")/lib.sh"

# tokenizer POST_PROCESSOR: letters, and <s> and </s> for those who ask.
tokenizer() {
    awk -v post="$1" 'BEGIN {
        printf "{\"version\": \"1.0\", \"added_tokens\": [{\"id\": 1, \"content\": \"<s>\", "
        printf "\"special\": true}, {\"id\": 2, \"content\": \"</s>\", \"special\": true}], "
        printf "\"normalizer\": null, \"pre_tokenizer\": null, \"post_processor\": %s, ", post
        printf "\"decoder\": null, \"model\": {\"type\": \"BPE\", \"unk_token\": \"<unk>\", "
        printf "\"merges\": [], \"vocab\": {\"<unk>\": 0, \"<s>\": 1, \"</s>\": 2"
        for (i = 0; i < 26; i++)
            printf ", \"%c\": %d", 97 + i, i + 3
        printf ", \" \": 29, \"\\n\": 30}}}"
    }' >letters.json
}
begins='{"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}},
 {"Sequence": {"id": "A", "type_id": 0}}], "pair": [], "special_tokens": {"<s>": {"id": "<s>",
 "ids": [1], "tokens": ["<s>"]}}}'
roberta='{"type": "OtherProcessing", "sep": ["</s>", 2], "cls": ["<s>", 1]}'
loss() { sed -n 's/.*"loss": \([^,]*\),.*/\1/p' "$1"; }

# A post-processor that nobody asked for does not matter, not even when a sample is written at the end.
tokenizer "$roberta"
run 0 roberta "$mics" train run.json --ranks 2 --out roberta --set data.tokenizer=letters.json
contains roberta.out "what the model writes"
run 0 read "$mics" generate roberta --prompt "the lark" --tokens 5
run 2 latin "$mics" generate roberta --prompt "$(printf 'caf\351')"
contains latin.err "the prompt: its byte 4, 0xe9, is no UTF-8"
[ -s latin.out ] && fail "a refused prompt is written"
# Where it is asked for, nothing begins.
run 2 asked "$mics" train run.json --ranks 2 --out asked --set data.tokenizer=letters.json \
    --set data.add_special_tokens=true
one_line asked.err
contains asked.err "OtherProcessing"
[ ! -e asked/metrics.jsonl ] || fail "a step was done"

# Text is written and evaluated as the run was trained: without <s>, or with it.
tokenizer "$begins"
run 0 plain "$mics" train run.json --ranks 2 --steps 60 --out plain --set data.tokenizer=letters.json
run 0 with "$mics" train run.json --ranks 2 --steps 60 --out with --set data.tokenizer=letters.json \
    --set data.add_special_tokens=true
for out in plain with; do
    run 0 "$out.text" "$mics" generate $out --prompt "the " --tokens 20 --seed 3
    run 0 "$out.eval" "$mics" eval $out --data text.txt --json
done
tokenizer null
run 0 never "$mics" train run.json --ranks 2 --steps 60 --out never --set data.tokenizer=letters.json
same_losses plain never
run 0 text "$mics" generate never --prompt "the " --tokens 20 --seed 3
cmp plain.text.out text.out || fail "a run without special tokens writes text behind them"
run 0 eval "$mics" eval never --data text.txt --json
[ "$(loss plain.eval.out)" = "$(loss eval.out)" ] || fail "its text stands behind them"
# The same weights behind a tokenizer without post-processor: <s> has to be written.
run 0 bare "$mics" convert with bare
tr '\n' ' ' <bare/tokenizer.json |
    sed 's/"post_processor": .*"decoder"/"post_processor": null, "decoder"/' >some.json
mv some.json bare/tokenizer.json
run 0 bare "$mics" generate bare --prompt "the " --tokens 20 --seed 3
run 0 written "$mics" generate bare --prompt "<s>the " --tokens 20 --seed 3 --special-tokens
sed 's/^<s>//' written.out >rest.out
cmp -s rest.out bare.out && fail "<s> does not matter; take another seed"
cmp rest.out with.text.out || fail "a run with special tokens writes text without them"

# A downloaded folder has its tokenizer's, for both.
run 0 convert "$mics" convert plain exported
run 0 framed "$mics" generate exported --prompt "the " --tokens 20 --seed 3
run 0 framed.eval "$mics" eval exported --data text.txt --json --sequence 32
cmp -s framed.out text.out && fail "a folder's special tokens are left out"
[ "$(loss framed.eval.out)" != "$(loss plain.eval.out)" ] || fail "eval leaves them out"

# Nothing is exported into a run, a step or checkpoints; what is there stays a run.
cp -r plain kept
for dir in plain plain/checkpoints plain/checkpoints/step-00000060 with; do
    run 2 into "$mics" convert plain $dir
    one_line into.err
    contains into.err "is a run's"
done
diff -r plain kept || fail "the run was changed"
cp exported/* kept/
run 0 kept "$mics" generate kept --prompt "the " --tokens 20 --seed 3
cmp kept.out text.out || fail "a run with a model beside it is taken for a folder"

# A fine-tuned model ends its texts as the folder's generation_config.json says.
echo '{"eos_token_id": [2, 29], "temperature": 0.6}' >exported/generation_config.json
fine="run.json --ranks 2 --steps 1 --set data.tokenizer=letters.json --set model.init=exported"
# shellcheck disable=SC2086 # words
run 0 fine "$mics" train $fine --out fine
run 0 fine.convert "$mics" convert fine ended
contains ended/generation_config.json '"temperature": 0.6'
contains ended/generation_config.json '[2, 29]'
echo '[2]' >exported/generation_config.json
# shellcheck disable=SC2086
run 2 list "$mics" train $fine --out list
one_line list.err
contains list.err "generation_config.json: must be an object"
rm exported/generation_config.json

# Weights that are not finite train nothing.
size=$(wc -c <exported/model.safetensors)
printf '\377\377\377\177' |
    dd of=exported/model.safetensors bs=1 seek=$((size - 4)) conv=notrunc 2>dd.err
# shellcheck disable=SC2086
run 1 nan "$mics" train $fine --out nan
contains nan.err "model.init: element 31 of tensor \"transformer.ln_f.bias\" is nan"

# Where nothing stands between texts, a line says so; DeepSeek's token is one that does.
tokenizer null
sed 's/<\/s>/<end>/g' letters.json >apart.json
sed 's/<\/s>/<｜end▁of▁sentence｜>/g' letters.json >deepseek.json
run 0 apart "$mics" train run.json --ranks 2 --steps 1 --out apart --set data.tokenizer=apart.json
one_line apart.err
contains apart.err "apart.json has no token that stands between texts"
run 0 deepseek "$mics" train run.json --ranks 2 --steps 1 --out deepseek --set data.tokenizer=deepseek.json
no_line deepseek.err # a separator is known
exit 0
