# SPDX-FileCopyrightText: The mics authors
# SPDX-License-Identifier: Apache-2.0
# A mixture with weights: what is printed of it, the same samples whatever the sharding, the same bits after a stop in the
# middle of an epoch, and what is refused. Shards of others beside texts.
. "$(dirname "$0")/lib.sh"

head -c 3000 text.txt | tr a-z b-za >other.txt
mkdir folder
cp other.txt folder/a.txt
tail -c 2000 text.txt >folder/b.md
touch folder/readme.pdf
mixture='data.train=[{"path": "text.txt", "weight": 3}, {"path": "folder", "weight": 1}]'
train() { # OUT SHARDS FLAGS...
    out=$1 shards=$2
    shift 2
    "$mics" train run.json --ranks 4 --out "$out" --set "$mixture" --set "sharding.params=$shards" \
        --set "sharding.grads=$shards" --set "sharding.optimizer=4" "$@"
}

for shards in 1 2; do
    run 0 whole$shards train whole$shards $shards
    run 0 first train parts$shards $shards --steps 3
    run 0 second train parts$shards $shards
    contains second.out "resumed from parts$shards/checkpoints/step-00000003"
    same_losses whole$shards parts$shards
    same_weights whole$shards/checkpoints/step-00000008 parts$shards/checkpoints/step-00000008
done
contains whole1.out "75.00 % of text.txt: "
contains whole1.out "25.00 % of folder: 5002 tokens"
contains whole1.err "folder: 2 files, in the order of their paths; 1 others are passed over, as readme.pdf"
losses whole1 >left.txt
losses whole2 >right.txt
paste left.txt right.txt | awk '{ d = $2 - $4; if (d > 1e-4 || d < -1e-4 || $1 != $3) exit 1 }' ||
    fail "other shardings have other samples"

# Other weights are another order, and so a phase. The resolved file says the mixture as it was given.
mixture='data.train=[{"path": "text.txt", "weight": 2}, {"path": "folder", "weight": 1}]'
run 0 other train parts1 1 --steps 12
contains other.err 'phase 2 of 2 begins behind step 8: data.train [{"path": "text.txt", "weight": 3}, '
contains other.err "its own order begins at sample 0"
grep -q '{"path": "folder", "weight": 1}' parts1/resolved.json || fail "resolved.json lacks the weights"
run 0 epochs "$mics" train run.json --out epochs --steps 300 --set run.steps=300 --set train_batch_size=16 --ranks 1 \
    --set sharding.params=1 --set sharding.grads=1 --set sharding.optimizer=1 --set "$mixture" --set run.checkpoint_every=0
grep -q 'of text.txt: .* epochs of it' epochs.out || fail "epochs are not said"

refused() { # TEXT VALUE
    run 2 refused "$mics" train run.json --out refused --set "data.train=$2"
    contains refused.err "$1"
}
refused 'number 2 has no weight, and others do' '[{"path": "text.txt", "weight": 1}, "other.txt"]'
refused 'number 1 has no "weight" that is a number' '[{"path": "text.txt", "weight": "much"}]'
refused 'number 1 has a weight that is not from' '[{"path": "text.txt", "weight": 0}]'
refused 'number 1 has other keys' '[{"path": "text.txt", "weight": 1, "wieght": 2}]'
refused 'number 1 has no "path"' '[{"weight": 1}]'
refused 'number 2 is an object' '["text.txt", {"path": "other.txt", "weight": 1}]'

# A Megatron data set by its prefix, and nanoGPT's with its type. The tokens are below the vocabulary.
cp "$golden"/shards/megatron-int32.* "$golden"/shards/nanogpt.bin .
one() { # FLAGS...
    "$mics" train run.json --ranks 1 --set sharding.params=1 --set sharding.grads=1 --set sharding.optimizer=1 --steps 1 \
        --set train_batch_size=2 --set data.sequence_length=4 --set run.validation_batches=0 --set model.config=model.json "$@"
}
run 0 megatron one --out megatron --set 'data.train=["megatron-int32"]'
contains megatron.out "8 tokens"
run 0 nanogpt one --out nanogpt --set 'data.train=["nanogpt.bin"]' --set data.dtype=uint16
contains nanogpt.out "8 tokens"
run 2 bare one --out bare --set 'data.train=["nanogpt.bin"]'
contains bare.err 'set data.dtype to "uint16"'

# Stopped, the same command goes on.
awk 'BEGIN { for (i = 0; i < 700000; i++) printf "%d words of a line\n", i * 7919 }' >long.txt
"$mics" tokenize long.txt --out long.bin --tokenizer "$golden/tokenizer/gpt2.json" >stopped.out 2>stopped.err &
pid=$!
marked() {
    ls long.bin.parts/*.begun.at >/dev/null 2>&1
}
await $pid "a mark" marked
kill -INT $pid
wait $pid
[ ! -e long.bin ] || fail "a stopped command left its shard"
run 0 goes_on "$mics" tokenize long.txt --out long.bin --tokenizer "$golden/tokenizer/gpt2.json"
contains goes_on.err "resumes after"
[ ! -e long.bin.parts ] || fail "the parts were left"
run 0 alone "$mics" tokenize long.txt --out alone.bin --tokenizer "$golden/tokenizer/gpt2.json" --threads 1
cmp long.bin alone.bin || fail "other tokens after a stop"

# A file that a name and a glob find, one that validates what it trains, and batches beyond what there is, are said.
cp text.txt copy.txt
said() { # OUT KEY=VALUE...
    out=$1 set=
    shift
    for pair; do set="$set --set $pair"; done
    # shellcheck disable=SC2086
    run 0 "$out" "$mics" train run.json --ranks 2 --out "$out" --steps 3 $set
}
said twice 'data.train=["text.txt","folder/*.txt","copy.txt"]'
contains twice.err "data.train has the same text more than once, which then counts more: text.txt and copy.txt; what"
said trained 'data.train=["other.txt"]' 'data.validation=["folder"]'
contains trained.err "data.validation has a text of data.train, folder/a.txt, so its loss"
said many 'data.train=["text.txt"]' run.validation_batches=100
contains many.err "run.validation_batches 100 reads the "
said apart 'data.train=["text.txt","folder/*.txt"]'
[ ! -s apart.err ] || fail "a line that is not due: $(cat apart.err)"

# A schedule that is not as long as the run is said.
said short scheduler.params.total_num_steps=2
contains short.err "the scheduler ends with step 2 of 3: the last step has a learning rate of "
said warm scheduler.params.warmup_num_steps=50
contains warm.err "the warm-up of 50 steps does not end within the 3 of the run: the learning rate ends at "
