# SPDX-FileCopyrightText: The mics authors
# SPDX-License-Identifier: Apache-2.0
# JSON Lines and packed texts in train, eval and tokenize: the same tokens as of plain texts.
. "$(dirname "$0")/lib.sh"

text=$(ls ./*.txt | head -n 1)
sed 's/\\/\\\\/g; s/"/\\"/g; s/.*/{"id": 1, "body": "&"}/' "$text" >lines.jsonl
gzip -k lines.jsonl
train() { # STATUS NAME FLAGS...
    status=$1 name=$2
    shift 2
    run "$status" "$name" "$mics" train run.json --ranks 2 --steps 2 --out "$name" "$@"
}
train 0 plain --set data.train=lines.jsonl --set data.text_field=body
train 0 packed --set data.train=lines.jsonl.gz --set data.text_field=body
losses() {
    sed 's/.*"loss": \([^,]*\),.*/\1/' "$1/metrics.jsonl" | head -n 2
}
[ "$(losses plain)" = "$(losses packed)" ] || fail "packed lines trained otherwise"
cp lines.jsonl.gz c4.00000.json.gz
train 0 called --set data.train=c4.00000.json.gz --set data.text_field=body
[ "$(losses plain)" = "$(losses called)" ] || fail "lines of a .json trained otherwise"
train 2 field --set data.train=lines.jsonl
contains field.err 'texts are in "body"'
contains field.err 'lines.jsonl, line 1: has no "text"'

# A text that has changed is not taken from the cache, though its size and time are the same; a run that is resumed
# says so.
cp "$text" own.txt
train 0 own --set data.train=own.txt
tr a-m n-z <"$text" >own.txt
touch -r "$text" own.txt
train 2 own --set data.train=own.txt
contains own.err 'was made with other training text'
rm -r own/checkpoints
train 0 own --set data.train=own.txt
[ "$(ls own/cache | wc -l)" = 2 ] || fail "a changed text was taken from the cache"

# What has no effect is said: nothing is learned, no step is left, no row is a chat.
train 0 rate --set optimizer.params.lr=0 --set data.train="$text" --set data.loss_on=all --set data.too_long=drop
contains rate.err 'warning: optimizer.params.lr is 0, so nothing is learned'
contains rate.err 'not used, as data.train has no chats: data.loss_on, data.too_long'
grep -q 'set twice' rate.err && fail "nothing is set twice"
train 0 twice --set run.seed=null --set run.seed=4 --set data.train="$text" --set run.log_every=1 --set run.log_every=2
contains twice.err 'warning: run.log_every is set twice: to 1, and then to 2, which counts'
run 0 again "$mics" explain run.json --ranks 2 --ranks 4
contains again.err 'warning: --ranks is given twice; its last value counts'
contains again.out "4 ranks"
grep -q 'run.seed is set' twice.err && fail "null unsets what the file says"
train 2 rate --data own.txt
contains rate.err 'run.steps: is 2, and the run has 2 steps already, behind which what was changed would hold'

# eval takes the field of the training; a flag is another one.
run 0 eval "$mics" eval plain --data lines.jsonl.gz
run 0 same "$mics" eval plain --data lines.jsonl --text-field body
cmp -s eval.out same.out || fail "eval does not take the field of the training"
run 2 other "$mics" eval plain --data lines.jsonl --text-field id
contains other.err 'line 1: "id" is no string'

run 0 tokenize "$mics" tokenize lines.jsonl.gz --text-field body --out lines.bin
run 0 shard "$mics" eval plain --data lines.bin
cmp -s eval.out shard.out || fail "tokenize writes other tokens than eval reads"

# A model that knows nothing writes bytes of any kind: what is printed of them is UTF-8.
cat >tiny.json <<'END'
{"model_type": "gpt2", "n_layer": 1, "n_head": 1, "n_embd": 8, "n_positions": 32, "vocab_size": 256}
END
seed=1
while [ $seed -le 12 ]; do
    rm -rf odd
    train 0 odd --set model.config=tiny.json --set data.train="$text" --set run.seed=$seed
    contains odd.out "  | "
    iconv -f UTF-8 -t UTF-8 odd.out >/dev/null || fail "seed $seed: what is printed is not UTF-8"
    seed=$((seed + 1))
done
