# SPDX-FileCopyrightText: The mics authors
# SPDX-License-Identifier: Apache-2.0
# A folder with weights means its weights, with the defaults of fine-tuning; and what its files say of
# its tokens comes back, byte by byte, in exports of what was tuned, whatever became of the folder.
. "$(dirname "$0")/lib.sh"

awk 'BEGIN {
    printf "{\"version\": \"1.0\", \"added_tokens\": [{\"id\": 1, \"content\": \"<s>\", \"special\": true},"
    printf " {\"id\": 2, \"content\": \"</s>\", \"special\": true}], \"normalizer\": null,"
    printf " \"pre_tokenizer\": null, \"post_processor\": {\"type\": \"TemplateProcessing\","
    printf " \"single\": [{\"SpecialToken\": {\"id\": \"<s>\", \"type_id\": 0}},"
    printf " {\"Sequence\": {\"id\": \"A\", \"type_id\": 0}}], \"pair\": [], \"special_tokens\":"
    printf " {\"<s>\": {\"id\": \"<s>\", \"ids\": [1], \"tokens\": [\"<s>\"]}}}, \"decoder\": null,"
    printf " \"model\": {\"type\": \"BPE\", \"unk_token\": \"<unk>\", \"merges\": [], \"vocab\":"
    printf " {\"<unk>\": 0, \"<s>\": 1, \"</s>\": 2"
    for (i = 0; i < 26; i++)
        printf ", \"%c\": %d", 97 + i, i + 3
    printf ", \" \": 29, \"\\n\": 30}}}"
}' >letters.json
run 0 made "$mics" train run.json --ranks 2 --set data.tokenizer=letters.json
run 0 folder "$mics" convert out folder
cat >folder/tokenizer_config.json <<'JSON'
{"tokenizer_class":   "PreTrainedTokenizerFast", "model_max_length": 1000000000000000019884624838656,
 "bos_token": "<s>", "eos_token": {"content": "</s>", "lstrip": false}, "pad_token": "<unk>"}
JSON
printf '{%% for m in messages %%}<s>{{ m["content"] }}\r\n\342\200\224 "\\n"{%% endfor %%}' >folder/chat_template.jinja
mkdir folder/additional_chat_templates
echo '{{ tools }}' >folder/additional_chat_templates/tools.jinja
echo '{"pad_token": "<unk>"}' >folder/special_tokens_map.json
printf '{"eos_token_id": [2, 30],\n    "temperature": 0.60, "top_p": 0.9}' >folder/generation_config.json
printf '#version: 0.2\n' >folder/merges.txt
cp -r folder kept

# ---- where a run starts ----

starts() { # NAME TEXT
    grep '^start ' "$1.out" >"$1.start"
    contains "$1.start" "$2"
}

# By itself a folder is fine-tuned, whether it stands before --data or behind --model.
run 0 alone "$mics" train --model folder --data text.txt
starts alone "weights of folder"
contains alone.err "folder is fine-tuned"
contains alone.err "TRL's SFTConfig: lr 2e-5, a scheduler that falls linearly, 3 epochs, 8 sequences a rank, gradient"
contains alone.out "lr 2.00e-05"
# Of the defaults that line names those that hold.
run 0 said "$mics" train folder --data text.txt --out said --steps 2 --set optimizer.params.lr=1e-4 \
    --set train_micro_batch_size_per_gpu=4 --set data.sequence_length=16
contains said.err "SFTConfig: a scheduler that falls linearly, gradient_clipping 1"
grep -Eq '2e-5|3 epochs|8 sequences|1024' said.err && fail "defaults that flags replace: $(cat said.err)"
contains alone.out "step 84/84"
contains runs/folder/resolved.json '"add_special_tokens": true'
contains runs/folder/resolved.json '"type": "linear"'
run 0 first "$mics" train folder --data text.txt --out first
same_losses runs/folder first
# In a run file too, and the rate that it does not say is said.
run 0 file "$mics" train run.json --ranks 2 --steps 1 --model folder --out file
starts file "weights of folder"
sed 's/"lr": 3e-3, //' run.json >bare.json
run 0 bare "$mics" train bare.json --ranks 2 --steps 1 --model folder --out bare
contains bare.err "says no optimizer.params.lr: 2e-05 is taken"
contains bare/resolved.json '"lr": 2e-05'
echo '{"model_name_or_path": "folder", "train_file": "text.txt", "per_device_train_batch_size": 8}' >trainer.json
run 0 trainer "$mics" train trainer.json --steps 1
starts trainer "weights of folder"

# <s> stands before texts where the tokenizer.json puts it there, and a line says where it alone does not.
cp -r kept unframed
tr '\n' ' ' <kept/tokenizer.json | sed 's/"post_processor": .*"model"/"post_processor": null, "model"/' \
    >unframed/tokenizer.json
echo '{"add_bos_token": true}' >unframed/tokenizer_config.json
run 0 unframed "$mics" train --model unframed --data text.txt --steps 1
contains unframed.err "add_bos_token is true, but the tokenizer.json puts no token before a text"
contains runs/unframed/resolved.json '"add_special_tokens": false'

# At random it starts where that is said, or there is nothing else; and says why.
run 0 asked "$mics" train --model folder --data text.txt --steps 1 --out asked --set model.init=random
starts asked 'model.init is "random", so not those in folder'
contains asked.out "lr 1.00e-03"
run 0 config "$mics" train run.json --ranks 2 --steps 1 --model folder/config.json --out config \
    --tokenizer folder
starts config "model.config names a file: --model folder starts from the weights beside it"
mkdir empty
cp folder/*.json empty/
run 0 empty "$mics" train --model empty --data text.txt --steps 1
starts empty "empty has no model.safetensors"
run 0 model "$mics" train run.json --ranks 2 --steps 1 --out model
grep -q '^start     random weights, seed 3$' model.out || fail "more is said of a model's file"

# Weights that cannot be read are no reason to start at random.
run 2 step "$mics" train --model out/checkpoints/step-00000008 --data text.txt --out step
one_line step.err
contains step.err "is a step of a run"
cp -r empty pickle
: >pickle/pytorch_model.bin
run 2 pickle "$mics" train --model pickle --data text.txt
contains pickle.err "only safetensors are read"
(cd folder && run 2 ../dot "$mics" train . --data ../text.txt) || exit 1
contains dot.err ".: has no name that the run's folder could have; give --out"
run 2 nothing "$mics" train --data text.txt
contains nothing.err "missing: RUN.json|FOLDER"

# ---- what comes back ----

comes_back() { # EXPORT
    for file in tokenizer_config.json chat_template.jinja additional_chat_templates/tools.jinja \
        special_tokens_map.json generation_config.json merges.txt tokenizer.json; do
        cmp "kept/$file" "$1/$file" || fail "$file is another one in $1"
    done
}

# At a rate of nothing the weights come back, too; the folder is gone, and the step lies elsewhere.
printf 'a\0b' >folder/tokenizer.model
run 0 still "$mics" train --model folder --data text.txt --steps 2 --out still \
    --set optimizer.params.lr=0
contains still.err "of folder, checkpoints and exports keep tokenizer_config.json, special_tokens_map.json"
contains still.err "folder/tokenizer.model: is not kept, as it is no text"
mv folder gone
mv still/checkpoints/step-00000002 elsewhere
run 0 tuned "$mics" convert elsewhere tuned
comes_back tuned
cmp tuned/model.safetensors kept/model.safetensors || fail "a rate of 0 changes weights"
run 0 again "$mics" convert kept again
comes_back again
# A resumed run needs the model's config and tokenizer alone, and its own save keeps the same.
mkdir folder
cp kept/config.json kept/tokenizer.json folder/
run 0 on "$mics" train bare.json --ranks 2 --steps 2 --model folder --out bare
starts on "resumed from"
contains bare/resolved.json '"lr": 2e-05'
run 0 on.convert "$mics" convert bare on
comes_back on
# Nothing of it is written over, nor left where an export fails.
mkdir over
cp kept/special_tokens_map.json over/
run 2 over "$mics" convert elsewhere over
one_line over.err
contains over.err "over/special_tokens_map.json: exists"
# Code of a folder's own does not come along, and a line says so.
cp -r kept coded
echo '{"auto_map": {"AutoTokenizer": ["a.B", null]}, "pad_token": "<unk>"}' >coded/tokenizer_config.json
run 0 coded "$mics" convert coded decoded
contains coded.err "auto_map names code that is not exported"
contains decoded/tokenizer_config.json '"pad_token": "<unk>"'
contains decoded/tokenizer_config.json '"PreTrainedTokenizerFast"'
exit 0
