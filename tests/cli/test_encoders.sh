# SPDX-FileCopyrightText: The mics authors
# SPDX-License-Identifier: Apache-2.0
# A BERT through every command: hidden tokens, meshes, resumes, masked loss, words filled in, and its
# export in place of a checkpoint; weights under the names of the first published files; what an
# encoder refuses.
. "$(dirname "$0")/lib.sh"

cp "$golden/tokenizers/bert.json" tokenizer.json
# A folder stands for its tokenizer.json or vocab.txt.
mkdir folder
cp tokenizer.json folder/
run 0 by_file "$mics" tokenize text.txt --tokenizer tokenizer.json --out file.bin
run 0 by_folder "$mics" tokenize text.txt --tokenizer folder --out folder.bin
cmp file.bin folder.bin || fail "a folder's tokenizer gives other tokens"
mv folder/tokenizer.json folder/other.json
run 2 no_tokenizer "$mics" tokenize text.txt --tokenizer folder --out none.bin
contains no_tokenizer.err "folder/tokenizer.json"
cp "$golden/vocab_txt/plain/vocab.txt" folder/
run 0 by_vocab "$mics" tokenize text.txt --tokenizer folder --out vocab.bin
cmp file.bin vocab.bin || fail "a folder's vocab.txt gives other tokens"
cat >model.json <<'JSON'
{"model_type": "bert", "vocab_size": 1500, "hidden_size": 24, "num_hidden_layers": 2,
 "num_attention_heads": 3, "intermediate_size": 40, "max_position_embeddings": 40,
 "hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1, "pad_token_id": 0}
JSON
with="--set data.tokenizer=tokenizer.json"
run 0 train "$mics" train run.json --ranks 4 --nodes 2 --steps 20 $with
contains train.out "bert"
grep -q "what the model writes" train.out && fail "an encoder writes no text"
run 0 one "$mics" train run.json --ranks 1 --steps 20 --out one --set 'sharding={"params": 1}' $with
# Another mesh after each stop.
run 0 two "$mics" train run.json --ranks 2 --steps 7 --out moved $with
run 0 eight "$mics" train run.json --ranks 8 --nodes 2 --steps 13 --out moved $with \
    --set 'sharding={"params": 2, "grads": 4, "optimizer": 8}'
run 0 last "$mics" train run.json --ranks 1 --steps 20 --out moved --set 'sharding={"params": 1}' $with
for other in out moved; do
    losses one >one.losses
    losses $other >$other.losses
    awk 'NR == FNR { loss[$1] = $2; next }
         { d = ($2 - loss[$1]) / $2; if (!($1 in loss) || d > 1e-4 || d < -1e-4) exit 1 }
         END { exit FNR != 20 }' one.losses $other.losses ||
        fail "the losses of $other are not those of one rank"
done

# The export says the same, and comes back with the same bits.
run 0 eval "$mics" eval out --data text.txt --json --sequence 32
run 0 people "$mics" eval out --data text.txt
contains people.out "hidden tokens"
run 0 fill "$mics" generate out --fill "the [MASK] of a [MASK]" --json
run 0 words "$mics" generate out --fill "the [MASK] of a [MASK]"
contains words.out "mask 2"
run 0 convert "$mics" convert out exported
contains exported/config.json '"BertForMaskedLM"'
contains exported/tokenizer_config.json '"mask_token": "[MASK]"'
run 0 evaluated "$mics" eval exported --data text.txt --json --sequence 32
loss() { sed -n 's/.*"loss": \([^,]*\),.*/\1/p' "$1"; }
[ "$(loss evaluated.out)" = "$(loss eval.out)" ] || fail "the export's masked loss differs"
run 0 filled "$mics" generate exported --fill "the [MASK] of a [MASK]" --json
cmp filled.out fill.out || fail "the export fills other words in"
run 0 again "$mics" convert exported twice
for file in exported/*; do
    cmp "$file" "twice/${file##*/}" || fail "$file is not the same in twice"
done
run 0 import "$mics" train run.json --ranks 2 --steps 1 --out imported $with --set model.init=exported

# The tokenizer_config.json of transformers, whose number for no maximum is beyond int64; and a damaged one, which is
# known before weights are written.
cp -r exported huge
sed 's/"model_max_length": [0-9]*/"model_max_length": 1000000000000000019884624838656/' exported/tokenizer_config.json \
    >huge/tokenizer_config.json
run 0 huge "$mics" convert huge huge_again
cmp huge/tokenizer_config.json huge_again/tokenizer_config.json || fail "a folder's tokenizer_config.json was changed"
echo "{" >huge/tokenizer_config.json
run 2 damaged "$mics" convert huge damaged
contains damaged.err "huge/tokenizer_config.json:2:"
[ -e damaged/model.safetensors ] && fail "weights were written beside a tokenizer_config.json that cannot be read"

# vocab.txt in place of the tokenizer.json: the same losses and words, and a tokenizer.json in what is made of it.
cp -r exported older
rm older/tokenizer.json older/tokenizer_config.json
cp "$golden/vocab_txt/plain/vocab.txt" older/
run 0 older_eval "$mics" eval older --data text.txt --json --sequence 32
[ "$(loss older_eval.out)" = "$(loss eval.out)" ] || fail "the masked loss with vocab.txt differs"
run 0 older_fill "$mics" generate older --fill "the [MASK] of a [MASK]" --json
cmp older_fill.out fill.out || fail "with vocab.txt other words are filled in"
run 0 older_convert "$mics" convert older newer
contains newer/tokenizer.json '"WordPiece"'
run 0 older_run "$mics" train run.json --ranks 2 --steps 1 --out from_older --set data.tokenizer=older
contains from_older/checkpoints/step-00000001/tokenizer.json '"WordPiece"'
echo "the" >>older/vocab.txt
run 2 twice_said "$mics" eval older --data text.txt
contains twice_said.err "older/vocab.txt:1501:"
one_line twice_said.err

# The first published files: gamma and beta, a pooler, the other task's head, tied tensors twice.
run 0 old "$mics" convert "$golden/bert_tanh" old
grep -q "pooler\|gamma\|seq_relationship" old/model.safetensors && fail "an old name was written"
contains old/model.safetensors "LayerNorm.weight"

# Saved without its LM head.
cp -r "$golden/bert_tanh" headless
LC_ALL=C sed 's/"bert\.\([a-z]*\.\)/     "\1/g' "$golden/bert_tanh/model.safetensors" >headless/model.safetensors
run 2 headless "$mics" convert headless headed
contains headless.err "save it as BertForMaskedLM"
one_line headless.err

refused() { # TEXT OPTION...
    text=$1
    shift
    run 2 refused "$mics" train run.json --ranks 2 --out refused "$@"
    one_line refused.err
    contains refused.err "$text"
}
refused "no token for them"
refused "add_special_tokens" $with --set data.add_special_tokens=true
refused "run.sample_every" $with --set run.sample_every=5
refused "data.document_mask" $with --set data.document_mask=true
run 2 plan "$mics" plan run.json --cluster p4d.24xlarge:2 $with --set data.document_mask=true
contains plan.err "data.document_mask"
contains plan.err "is an encoder"
refused "sequence_length" $with --set data.sequence_length=2
# Nothing to hide, and a tokenizer with a token that the model has not.
awk 'BEGIN { for (i = 0; i < 500; i++) print "漢" }' >nothing.txt # [UNK]
run 1 nothing "$mics" eval out --data nothing.txt --json
contains nothing.err "no token counts"
one_line nothing.err
run 1 validation "$mics" train run.json --ranks 2 --steps 1 --out validated $with \
    --set data.validation=nothing.txt --set run.validation_batches=1
contains validation.err "data.validation: no token counts"
one_line validation.err
sed 's/"##ies":1499/"##ies":1499,"another":1500/' tokenizer.json >exported/tokenizer.json
run 2 foreign "$mics" eval exported --data text.txt
contains foreign.err "its tokenizer has 1501 tokens, but the model's vocab_size is 1500"
one_line foreign.err
run 2 prompt "$mics" generate out --prompt "the lark"
contains prompt.err "is an encoder, which continues no text"
run 2 latin "$mics" generate out --fill "$(printf 'the [MASK] caf\351')"
contains latin.err "--fill: byte 15 of its text, 0xe9, is no UTF-8"
run 2 none "$mics" generate out --fill "the lark"
contains none.err "no mask token"
run 2 long "$mics" generate out --fill "[MASK] $(head -c 400 text.txt)"
contains long.err "shorten it"
run 2 both "$mics" generate out --fill "[MASK]" --prompt "the lark"
one_line both.err
for option in "--prompt x" "--precision fp32" --stats "--seed 1" "--stop x" "--tokens 5"; do
    run 2 ignored "$mics" generate out --fill "the [MASK]" $option
    contains ignored.err "${option%% *} means nothing with --fill"
done
run 0 threads "$mics" generate out --fill "the [MASK] of a [MASK]" --json --threads 1
exit 0
