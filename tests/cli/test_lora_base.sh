# SPDX-FileCopyrightText: The mics authors
# SPDX-License-Identifier: Apache-2.0
# The base of a run that trains an adapter, under an MPI launcher ($2...) too: what is saved, resumed on
# another mesh, from a node that has lost the base's folder, or with other weights in its place.
. "$(dirname "$0")/lib.sh"
shift
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
export PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe

i=0
while [ $i -lt 60 ]; do
    echo "$i times that a lark sings at break of day"
    i=$((i + 1))
done >text.txt
cat >config.json <<'JSON'
{"model_type": "llama", "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2,
 "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 256,
 "max_position_embeddings": 64, "tie_word_embeddings": false}
JSON
cat >begin.json <<'JSON'
{"model": {"config": "config.json", "init": "random"},
 "data": {"train": ["text.txt"], "tokenizer": "bytes", "sequence_length": 16},
 "run": {"steps": 1, "seed": 2, "validation_batches": 0, "device": "cpu", "threads": 1},
 "train_micro_batch_size_per_gpu": 1}
JSON
run 0 begin "$mics" train begin.json --out begin
run 0 base "$mics" convert begin base
cat >run.json <<'JSON'
{"model": {"config": "config.json", "init": "base"},
 "adapter": {"r": 4, "target_modules": ["q_proj", "v_proj", "down_proj"]},
 "data": {"train": ["text.txt"], "tokenizer": "bytes", "sequence_length": 16},
 "run": {"steps": 6, "seed": 1, "checkpoint_every": 3, "validation_batches": 0, "device": "cpu", "threads": 1,
         "param_persistence_threshold": 0},
 "train_batch_size": 8, "sharding": {"params": 2, "grads": 2, "optimizer": 2},
 "optimizer": {"type": "AdamW", "params": {"lr": 1e-3}}}
JSON

sed -e 's/"checkpoint_every": 3/&, "keep_checkpoints": 0/' -e '$s/}$/,\n "phases": [{"steps": 4}, {"steps": 2, "data.sequence_length": 8}]}/' run.json >phases.json
run 0 whole "$mics" train run.json --ranks 4 --nodes 2 --out whole
run 0 mpi "$@" "$mics" train run.json --nodes 2 --out mpi
same_losses whole mpi
run 0 phases "$@" "$mics" train phases.json --nodes 2 --out phases
cmp -s whole/checkpoints/step-00000006/rank-00001.safetensors mpi/checkpoints/step-00000006/rank-00001.safetensors ||
    fail "MPI's processes save another adapter than threads"
[ "$(du -k base | cut -f 1)" -gt "$(du -k whole/checkpoints/step-00000006 | cut -f 1)" ] ||
    fail "a checkpoint is as large as the base"

# ---- other meshes ----

cp -r whole other
rm -r other/checkpoints/step-00000006
echo step-00000003 >other/checkpoints/latest
run 0 other "$mics" train run.json --ranks 1 --out other \
    --set sharding.params=1 --set sharding.grads=1 --set sharding.optimizer=1
losses whole | tail -n 3 >left.txt
losses other | tail -n 3 >right.txt
paste left.txt right.txt | awk '{ d = $2 - $4; if (d < 0) d = -d; if (d > 1e-5 * $2) exit 1; n++ } END { exit n != 3 }' ||
    fail "another mesh goes on elsewhere: $(paste left.txt right.txt)"

# ---- a node without the base ----

mkdir node0 node1
for node in 0 1; do
    cp run.json phases.json config.json text.txt "node$node"
done
mv base node0
# Two ranks a node.
cat >here.sh <<'END'
cd "node$((${OMPI_COMM_WORLD_RANK:-${PMI_RANK:-0}} / 2))" && exec "$@"
END
cp -r mpi lost
rm -r lost/checkpoints/step-00000006
echo step-00000003 >lost/checkpoints/latest
cp -r lost none
cp -r lost first
run 0 lost "$@" sh here.sh "$mics" train run.json --nodes 2 --out "$work/lost"
contains lost.err "base: is not there on 2 of 4 ranks; their frozen weights come from others"
losses mpi >left.txt
losses lost >right.txt
diff left.txt right.txt || fail "frozen weights of other ranks are others"
for rank in 0 1 2 3; do
    cmp -s "mpi/checkpoints/step-00000006/rank-0000$rank.safetensors" \
        "lost/checkpoints/step-00000006/rank-0000$rank.safetensors" || fail "rank $rank ends with another adapter"
done
# Nor does a phase that follows.
rm -r phases/checkpoints/step-0000000[46]
echo step-00000003 >phases/checkpoints/latest
losses phases >left.txt
run 0 phases "$@" sh here.sh "$mics" train phases.json --nodes 2 --out "$work/phases"
losses phases >right.txt
diff left.txt right.txt || fail "phases without the base are others"
# Nor does the node of rank 0, which writes the adapter.
mv node0/base node1
rm -r first/adapter-00000006
run 0 first "$@" sh here.sh "$mics" train run.json --nodes 2 --out "$work/first"
contains first.out "no sample of text: base is not there"
cmp first/adapter-00000006/adapter_model.safetensors mpi/adapter-00000006/adapter_model.safetensors ||
    fail "without the base another adapter is written"
mv node1/base .
run 2 none "$@" sh here.sh "$mics" train run.json --nodes 2 --out "$work/none"
contains none.err "base: is not there on rank 0, and no other rank holds the same"
# A new run cannot begin like that.
run 2 fresh "$@" sh here.sh "$mics" train run.json --nodes 2 --out "$work/fresh"
contains fresh.err "base"

# ---- other weights in its place ----

cp -r base changed
printf '\001' | dd of=changed/model.safetensors bs=1 seek=$(($(wc -c <base/model.safetensors) - 6)) conv=notrunc 2>dd.err
cmp -s base/model.safetensors changed/model.safetensors && fail "nothing was changed"
# PEFT's folder has no hash of it, but its name.
run 0 put "$mics" generate base --adapter whole/adapter-00000006 --tokens 2
grep -q "is put on" put.err && fail "the adapter's own model is another"
run 0 put "$mics" generate changed --adapter whole/adapter-00000006 --tokens 2
contains put.err "names base as its model, and is put on changed"
mv base kept
mv changed base
run 2 changed "$mics" train run.json --ranks 4 --nodes 2 --out whole --steps 9
contains changed.err "was trained on other frozen weights"
run 2 changed "$@" "$mics" train run.json --nodes 2 --out whole --steps 9
contains changed.err "was trained on other frozen weights"
[ "$(grep -c 'other frozen weights' changed.err)" = 1 ] || fail "several ranks say it"
for command in "eval whole --data text.txt" "generate whole --prompt a" "convert whole out --merge"; do
    # shellcheck disable=SC2086
    run 2 changed "$mics" $command
    contains changed.err "was trained on other frozen weights"
    # shellcheck disable=SC2086
    run 0 moved "$mics" $command --base kept
done
rm -r base
run 2 gone "$mics" eval whole --data text.txt
contains gone.err "--base FOLDER says where that is now"
