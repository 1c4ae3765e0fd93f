# SPDX-FileCopyrightText: The mics authors
# SPDX-License-Identifier: Apache-2.0
# Files are what their contents say, wherever they are named: texts, tables, pointers, tokenizers and
# weights. Each part is a case that went wrong without a word once.
. "$(dirname "$0")/lib.sh"

tokens() { # SHARD: its tokens, in one line
    od -A n -t u2 -v -j 1024 "$1" | tr -s ' \n' '  ' | sed 's/^ //; s/ $//'
}

expect() { # SHARD TOKENS
    [ "$(tokens "$1")" = "$2" ] || fail "$1 has the tokens $(tokens "$1"), expected $2"
}

# ---- texts ----

printf '\357\273\277Fi' >notepad.txt
run 0 mark "$mics" tokenize notepad.txt --out mark.bin
expect mark.bin "0 70 105"
printf '[\n {\n  "text": "a"\n },\n {\n  "text": "b"\n }\n]\n' >data.json
run 0 array "$mics" tokenize data.json --out array.bin
expect array.bin "0 97 0 98"
printf 'id,text\n1,"a, b"\n' >train.csv
run 0 table "$mics" tokenize train.csv --out table.bin
expect table.bin "0 97 44 32 98"
awk 'BEGIN { print "id,body"; for (i = 0; i < 90; i++) printf "%d,\"row %d, and a comma\"\n", i, i }' >rows.csv
run 2 column "$mics" train run.json --ranks 2 --data rows.csv --out table
contains column.err 'rows.csv: has no column "text"; its first row names "id", "body"'
run 0 fields "$mics" train run.json --ranks 2 --steps 1 --data rows.csv --out table --set data.fields.text=body
grep -q '"text_field": "body"' table/resolved.json || fail "data.fields is not data.text_field"
run 2 twice "$mics" explain run.json --ranks 2 --data rows.csv --set data.fields.text=body --text-field id
contains twice.err 'contradicts data.text_field id'
mkdir folder
cp train.csv folder
cp text.txt folder
printf 'version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 734003200\n' >pointer
cp pointer folder/part1.txt
run 2 pointer "$mics" tokenize folder --out pointer.bin
contains pointer.err 'folder/part1.txt: is a pointer of git-lfs, and not the file, which has 734003200 bytes'
for file in config.json model.safetensors tokenizer.json; do
    mkdir -p lfs
    cp pointer lfs/$file
done
run 2 lfs "$mics" eval lfs --data text.txt
contains lfs.err 'lfs/config.json: is a pointer of git-lfs'
cp model.json lfs/config.json
run 2 lfs "$mics" eval lfs --data text.txt
contains lfs.err 'lfs/model.safetensors: is a pointer of git-lfs'
run 2 lfs "$mics" tokenize text.txt --tokenizer lfs --out lfs.bin
contains lfs.err 'lfs/tokenizer.json: is a pointer of git-lfs'
run 2 lfs "$mics" train pointer
contains lfs.err 'pointer: is a pointer of git-lfs'
run 2 program "$mics" tokenize "$mics" --out program.bin
contains program.err 'is a program (ELF), and no text'

printf '{"text": "a"}\nbad\n{"text": "b"}\n' >bad.jsonl
run 2 bad "$mics" tokenize bad.jsonl --out bad.bin
run 0 bad "$mics" tokenize bad.jsonl --out bad.bin --skip-bad-lines 1
expect bad.bin "0 97 0 98"
contains bad.err 'bad.jsonl, line 2'
contains bad.err 'bad.jsonl: 1 bad lines are passed over'

# ---- weights ----

run 0 first "$mics" train run.json --ranks 2 --steps 1 --out first
run 0 second "$mics" train run.json --ranks 2 --steps 8 --out second
run 0 single "$mics" convert first both
run 0 several "$mics" convert second several --max-shard-bytes 40000
run 0 loss "$mics" eval both --data text.txt
cp several/model-* several/model.safetensors.index.json both
run 0 twosets "$mics" eval both --data text.txt
cmp loss.out twosets.out || fail "model.safetensors does not come first"
contains twosets.err 'both: holds model.safetensors and model.safetensors.index.json; the first is read'
rm both/model-*
run 0 gone "$mics" eval both --data text.txt
cmp loss.out gone.out || fail "an index without its files counts"
rm both/model.safetensors.index.json

# ---- tokenizers ----

mkdir bare
cp both/config.json both/model.safetensors bare
echo '{}' >bare/tekken.json
for source in "model.init=bare" "model.config=bare model.init=bare"; do
    sets=
    for set in $source; do sets="$sets --set $set"; done
    # shellcheck disable=SC2086 # several flags
    run 2 bare "$mics" train run.json --ranks 2 --out bare-out $sets
    contains bare.err 'bare has weights but no tokenizer.json (it has tekken.json)'
    contains bare.err "T.from_pretrained('bare').save_pretrained('OUT')"
    # shellcheck disable=SC2086
    run 0 asked "$mics" train run.json --ranks 2 --steps 1 --out bare-out $sets --tokenizer bytes
    rm -r bare-out
done
sed 's/"vocab_size": 256/"vocab_size": 300/' bare/config.json >wide.json
mkdir wide
mv wide.json wide/config.json
cp bare/model.safetensors wide
run 2 random "$mics" train run.json --ranks 2 --out wide-out --model wide
contains random.err 'wide has weights but no tokenizer.json'

# A tokenizer with two special tokens, and a merge that would make a third.
mkdir chat
sed 's/"added_tokens": \[\]/"added_tokens": [{"id": 256, "content": "<|im_start|>", "special": true}, {"id": 257, "content": "<|im_end|>", "special": true}, {"id": 258, "content": "{|", "special": true}]/
     s/"merges": \[\]/"merges": ["{ |"]/; s/"model": {/&/; s/"vocab": {/"vocab": {"{|": 258, "<|im_start|>": 256, "<|im_end|>": 257, /' both/tokenizer.json >chat/tokenizer.json
sed 's/"vocab_size": 256/"vocab_size": 260/; s/^{/{"rope_theta": 10000,/' model.json >chat/config.json
printf '{"text": "<|im_start|>a{|<|im_end|>"}\n' >chat.jsonl
run 0 plain "$mics" tokenize chat.jsonl --tokenizer chat --out plain.bin
expect plain.bin "60 124 105 109 95 115 116 97 114 116 124 62 97 123 124 60 124 105 109 95 101 110 100 124 62"
contains plain.err 'name special tokens 3 times, which are split like plain text: <|im_start|> (1 times), {| (1 times), <|im_end|> (1 times)'
run 0 parse "$mics" tokenize chat.jsonl --tokenizer chat --out parse.bin --special-tokens
expect parse.bin "256 97 258 257"
no_line parse.err
awk 'BEGIN { for (i = 0; i < 60; i++) print "{\"text\": \"<|im_start|>user the lark " i " sings<|im_end|>\"}" }' >chats.jsonl
chat() { # NAME FLAGS...
    name=$1
    shift
    run 0 "$name" "$mics" train run.json --ranks 2 --steps 1 --model chat --data chats.jsonl "$@"
}
chat split --out chats
contains split.err '<|im_start|> (60 times), <|im_end|> (60 times)'
chat cached --out chats # of the cache, and said again
contains cached.err '<|im_start|> (60 times), <|im_end|> (60 times)'
chat taken --out parsed --special-tokens
[ "$(grep -c 'special tokens' taken.err)" = 0 ] || fail "taken as tokens, and said to be split"
run 0 eval "$mics" eval parsed --data chats.jsonl --json
run 0 evalshard "$mics" tokenize chats.jsonl --tokenizer chat --special-tokens --out chats.bin
run 0 evalshard "$mics" eval parsed --data chats.bin --json
cmp eval.out evalshard.out || fail "eval does not take special tokens as training did"
run 0 flag "$mics" eval chats --data chats.jsonl --special-tokens
[ "$(grep -c 'special tokens' flag.err)" = 0 ] || fail "eval does not know --special-tokens"

# It comes along where all data are shards.
chat shards --out shards --data chats.bin
run 0 convert "$mics" convert shards shards-hf
cmp chat/tokenizer.json shards-hf/tokenizer.json || fail "the tokenizer did not come along"
run 0 generate "$mics" generate shards --prompt "the lark" --tokens 2

# ---- config.json ----

grep -q '"rope_theta": 10000.0,' shards-hf/config.json || fail "an integer stands where a real must"
sed 's/"rope_theta": 10000/"router_aux_loss_coef": "0.01"/' chat/config.json >text.json
run 2 real "$mics" train run.json --ranks 2 --model text.json --out real
contains real.err 'text.json: "router_aux_loss_coef" is a string, but must be a number'
