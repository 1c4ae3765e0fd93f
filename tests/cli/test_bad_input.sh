# SPDX-FileCopyrightText: The mics authors
# SPDX-License-Identifier: Apache-2.0
# Every wrong input: its exit status, one line that names the matter, and nothing written over.
. "$(dirname "$0")/lib.sh"

# The run's own folder, out, holds a run too: none of the mistakes below may change it.
run 0 train "$mics" train run.json --ranks 2 --steps 2
cp -r out good
cp -r out kept

# wrong STATUS TEXT ARGUMENTS...: of the program. Texts that were read are kept as tokens.
wrong() {
    wrong_status=$1
    wrong_text=$2
    shift 2
    run "$wrong_status" wrong "$mics" "$@"
    one_line wrong.err
    grep -q '^mics: error: ' wrong.err || fail "no error line: $*"
    contains wrong.err "$wrong_text"
    diff -r good kept || fail "changed: $*"
    diff -r -x cache out kept || fail "changed: $*"
}

# ---- usage ----
wrong 2 "no verb given"
wrong 2 'did you mean "train"' trainn run.json
wrong 2 'did you mean "train"' trian run.json
wrong 2 "did you mean --temperature" generate good --temp 3
wrong 2 "did you mean --ranks" train run.json --rank 2
wrong 2 "missing: RUN.json" train
wrong 2 "one argument too many" train run.json other.json
wrong 2 "whole number" train run.json --ranks two
wrong 2 "at least 1" train run.json --ranks 0
wrong 2 "mics generate: --temperature -1: needs a number of at least 0" generate good --temperature -1
grep -q 'of at least 0$' wrong.err || fail "a temperature has no upper bound"
wrong 2 "of at least 0 and at most 9223372036854775807" generate good --seed 9223372036854775808
wrong 2 "a value is missing" train run.json --ranks
wrong 2 "missing: RUN.json" explain
wrong 2 "takes no value" explain run.json --json=yes
wrong 2 "--tokens 300G: needs a number of at least 1 and at most 1000000000000000000; K, M, B or T may stand behind it" \
    plan run.json --cluster p4d.24xlarge:1 --tokens 300G
wrong 2 "two dashes" train run.json -x 4
# Flags of other programs: what to write.
wrong 2 "no flag --lr; write --set optimizer.params.lr=3e-4" train run.json --lr 3e-4
wrong 2 "write --set optimizer.params.lr=1e-3" train run.json --learning_rate=1e-3
wrong 2 "write --set train_batch_size=VALUE" explain run.json --batch-size
wrong 2 "write --set num_train_epochs=3" train run.json --epochs 3
wrong 2 "write --set data.sequence_length=64" train run.json --sequence 64
wrong 2 "write --steps 7" train run.json --max_steps 7
wrong 2 "write --out DIR" train run.json --output_dir x
wrong 2 "write --set run.precision=bf16" train run.json --bf16
wrong 2 "mpirun -n 16 --hostfile FILE mics train" train run.json --hostfile hosts
wrong 2 "mpirun -n 16 --hostfile FILE mics train" train run.json -n 4
wrong 2 "mics train: no flag -n; " train run.json -n 4
wrong 2 "no flag --wandb_project; metrics.jsonl" train run.json --wandb_project p
wrong 2 "no flag --lr; see mics generate --help" generate good --lr 1
wrong 2 "no flag --frobnicate; see mics train --help" train run.json --frobnicate
wrong 2 "error: -: cannot open" train - # an argument, no flag
wrong 2 "error: --json: cannot open" explain -- --json
wrong 2 "do not divide" train run.json --ranks 4 --nodes 3
wrong 2 "do not divide" explain run.json --ranks 4 --nodes 3
wrong 2 "of which 1024 are the most" train run.json --ranks 3000 --set train_batch_size=6000
wrong 2 "--data FILES is missing" eval good

if [ -w /dev/full ]; then
    "$mics" explain run.json --ranks 2 >/dev/full 2>full.err && fail "a full disk went unnoticed"
    contains full.err "standard output: No space left on device"
    "$mics" watch good --once >/dev/full 2>full.err && fail "a full disk went unnoticed"
    contains full.err "standard output: not all could be written"
fi

# ---- run files ----
echo '{"model": {"config": "model.json"' >cut.json
echo '{"model": {"config": "model.json"}, "data": {"train": ["text.txt"]}, "run": {"steps": 1}, "optimiser": {}}' >key.json
wrong 2 "nowhere.json" train nowhere.json
wrong 2 "cut.json:" train cut.json
wrong 2 "optimizer" train key.json
# A name of other programs' in a section where it is unknown is known by what it means.
wrong 2 "objective.loss_type: unknown key; did you mean objective.type?" train run.json --set objective.loss_type=sigmoid
wrong 2 "objective.max_length: unknown key; did you mean data.sequence_length?" train run.json --set objective.max_length=8
wrong 2 "objective.reference_free: unknown key; the reference is" train run.json --set objective.reference_free=true
wrong 2 "epochs: unknown key; did you mean num_train_epochs?" train run.json --set epochs=3
wrong 2 "batch_size: unknown key; did you mean train_batch_size?" train run.json --set batch_size=3
wrong 2 "run.steps" train run.json --ranks 2 --set run.steps=-1
wrong 2 "sharding" train run.json --ranks 2 --set sharding.params=4
wrong 2 "1, 2, 4" train run.json --ranks 4 --set sharding.params=3
wrong 2 "1, 2, 4" explain run.json --ranks 4 --set sharding.params=3
wrong 2 "run.hierarchical" train run.json --set run.hierarchical=true
wrong 2 'must be "auto" or' train run.json --set run.collectives=tree
wrong 2 "run.param_persistence_threshold: must be 0 or more" train run.json --set run.param_persistence_threshold=-1
wrong 2 "run.comm_dtype.params: must be" train run.json --set run.comm_dtype.params=int8
mkfifo pipe
mkdir folder
printf '\377\000{' >noise.json
awk 'BEGIN { for (i = 0; i < 200000; i++) printf "["; }' >deep.json
: >nothing.json
for file in folder pipe noise.json deep.json nothing.json; do
    wrong 2 "$file" train $file
    wrong 2 "$file" train run.json --ranks 2 --set model.config=$file
    wrong 2 "$file" train run.json --ranks 2 --set data.tokenizer=$file
done
wrong 2 "data.sequence_length" train run.json --ranks 2 --set data.sequence_length=64
wrong 2 "a rank needs" train run.json --ranks 2 --set run.memory_limit=100000
sed 's/"n_embd": 32/"n_embd": 65536/; s/"n_layer": 2/"n_layer": 200/' model.json >giant.json
wrong 2 "a rank needs" train run.json --ranks 2 --set model.config=giant.json
wrong 2 "what fits: raise run.memory_limit to " train run.json --ranks 2 --set run.memory_limit=100000
# What fits beside layers that are recomputed in part is more of them.
parts="--ranks 2 --set run.prefetch=0 --set run.recompute"
limit=$("$mics" explain run.json $parts="mlp+first 2" --json | sed -n 's/.*"total": \([0-9]*\).*/\1/p' | head -n 1)
wrong 2 'or run.recompute "mlp+first 2"' train run.json $parts=mlp --set run.memory_limit="$limit"
# And activations in host memory, which tests allow on CPUs, too.
sed 's/"n_layer": 2/"n_layer": 8/' model.json >layers.json
deep="--ranks 2 --set model.config=layers.json --set run.prefetch=0"
export MICS_OFFLOAD_ON_CPU=1
limit=$("$mics" explain run.json $deep --set run.offload_activations=3 --json |
    sed -n 's/.*"total": \([0-9]*\).*/\1/p' | head -n 1)
wrong 2 'or run.offload_activations 3 (' train run.json $deep --set run.memory_limit="$limit"
unset MICS_OFFLOAD_ON_CPU
wrong 2 "what fits: " train run.json $deep --set run.memory_limit="$limit"
grep -q offload wrong.err && fail "what CPUs have no use for is advised: $(cat wrong.err)"
large="--set train_micro_batch_size_per_gpu=100000 --set gradient_accumulation_steps=1"
wrong 2 "a rank needs" train run.json --ranks 2 --set train_batch_size=200000 $large \
    --set run.memory_limit=1GiB
contains wrong.err "gradient_accumulation_steps"
grep -q 'per_gpu 1 ' wrong.err && fail "a larger micro-batch fits: $(cat wrong.err)"
wrong 2 "17 is not" train run.json --ranks 2 --set train_batch_size=17 --set train_micro_batch_size_per_gpu=4

# ---- models ----
echo '{"model_type": "bert"}' >bert.json
head -c 100 model.json >model_cut.json
wrong 2 "none.json" train run.json --ranks 2 --set model.config=none.json
wrong 2 "bert" train run.json --ranks 2 --set model.config=bert.json
wrong 2 "model_cut.json" train run.json --ranks 2 --set model.config=model_cut.json
mkdir empty
run 0 convert "$mics" convert good exported
head -c 60000 exported/model.safetensors >cut.safetensors
head -c 5 exported/model.safetensors >stub.safetensors
{ printf '\377\377\377\377\377\377\377\177'; cat exported/model.safetensors; } >huge.safetensors
sed 's/"F32"/"F99"/' exported/model.safetensors >type.safetensors
run 0 convert "$mics" convert good lacking --max-shard-bytes 20000
rm lacking/model-00002-of-*
cp -r exported torn && echo '{"weight_map": {' >torn/model.safetensors.index.json
rm torn/model.safetensors
for init in empty cut.safetensors stub.safetensors huge.safetensors type.safetensors lacking torn pipe; do
    wrong 2 "$init" train run.json --ranks 2 --out begun --set model.init=$init
done
[ -f begun/resolved.json ] && fail "a run without weights was begun"

# ---- launchers that are not MPI's ----
export WORLD_SIZE=2 RANK=0 LOCAL_RANK=0
wrong 2 "this is process 0 of 2 by RANK and WORLD_SIZE" train run.json --ranks 2 --out alone
wrong 2 "start it with mpirun or srun" bench comm --ranks 2 --out alone.json
RANK=1 LOCAL_RANK=1 run 2 torchrun "$mics" train run.json --ranks 2 --out alone
[ -s torchrun.err ] && fail "one process of a machine says it"
[ -e alone ] && fail "a run without its other ranks was begun"
WORLD_SIZE=1 run 0 single "$mics" train run.json --ranks 2 --steps 1 --out single
unset WORLD_SIZE RANK LOCAL_RANK

# ---- data ----
printf 'short' >short.txt
printf 'not a shard' >false.bin
run 0 tokenize "$mics" tokenize text.txt --out whole.bin
head -c 2000 whole.bin >half.bin
if [ "$(id -u)" != 0 ]; then # whom no file is closed to
    cp text.txt closed.txt && cp run.json closed.json && chmod 0 closed.txt closed.json
    wrong 2 "closed.txt" train run.json --ranks 2 --set 'data.train=["closed.txt"]'
    wrong 2 "closed.json" train closed.json
fi
head -c 100 whole.bin >stub.bin
{ cat whole.bin; printf x; } >longer.bin
for file in stub.bin longer.bin folder pipe; do
    wrong 2 "$file" train run.json --ranks 2 --set "data.train=[\"$file\"]"
    wrong 2 "$file" eval good --data $file
done
head -c 4000 "$golden/tokenizer/gpt2.json" >cut_tokenizer.json
wrong 2 "cut_tokenizer.json" train run.json --ranks 2 --set data.tokenizer=cut_tokenizer.json
wrong 2 "cut_tokenizer.json" tokenize text.txt --tokenizer cut_tokenizer.json --out never.bin
wrong 2 "never: token shards are known by names in .bin" tokenize text.txt --out never
[ -f never.bin ] && fail "a shard was made without a tokenizer"
wrong 2 "none.txt" train run.json --ranks 2 --set 'data.train=["none.txt"]'
: >empty.txt
wrong 2 "no tokens in empty.txt" train run.json --ranks 2 --set 'data.train=["empty.txt"]'
wrong 2 "no file matches" train run.json --ranks 2 --set 'data.train=["none*.txt"]'
wrong 2 "too few" train run.json --ranks 2 --set 'data.train=["short.txt"]'
wrong 2 "data.validation" train run.json --ranks 2 --set 'data.validation=["short.txt"]'
wrong 2 "false.bin" train run.json --ranks 2 --set 'data.train=["false.bin"]'
wrong 2 "half.bin" train run.json --ranks 2 --set 'data.train=["half.bin"]'
# What is no text, whatever it is called.
printf 'PAR1\025\004\025\000' >table.parquet
printf '\377\377\377\377\020\000' >stream.arrow
printf 'PK\003\004\024' >texts.zip
printf '\037\213\010\000' >packed.txt
printf '\377\376T\000e\000' >wide.txt
mkdir texts && cp text.txt texts && tar -czf texts.tar.gz texts
for file in table.parquet:Parquet stream.arrow:Arrow texts.zip:ZIP packed.txt:.gz wide.txt:UTF-16 texts.tar.gz:tar; do
    wrong 2 "${file%%:*}: is " train run.json --ranks 2 --set "data.train=[\"${file%%:*}\"]"
    contains wrong.err "${file##*:}"
    wrong 2 "${file%%:*}: is " eval good --data "${file%%:*}"
    wrong 2 "${file%%:*}: is " tokenize "${file%%:*}" --out never.bin
done
[ -e never.bin.parts ] && fail "a folder for tokens of no text stayed"
sed 's/"vocab_size": 256/"vocab_size": 100/' model.json >few.json
wrong 2 "vocab_size" train run.json --ranks 2 --set model.config=few.json
wrong 2 "none" train run.json --ranks 2 --set data.tokenizer=none.json
echo x >file
wrong 2 "file" train run.json --ranks 2 --out file/out

# ---- checkpoints ----
wrong 2 "nowhere" generate nowhere
echo text >afile
wrong 2 "is a file; give a folder" generate afile
wrong 2 "no complete checkpoint" generate empty
cp -r good/checkpoints/step-00000002 broken
rm broken/manifest.json
wrong 2 "no complete checkpoint" eval broken --data text.txt
cp -r good/checkpoints/step-00000002 short
for file in short/rank-*; do
    head -c 5000 "$file" >part && mv part "$file"
done
wrong 2 "short" generate short
wrong 2 "short" train run.json --ranks 2 --steps 4 --out fresh --resume short
cp -r good/checkpoints/step-00000002 flipped
printf 'XXXX' | dd of=flipped/rank-00000.safetensors bs=1 seek=5000 conv=notrunc 2>/dev/null
cp -r good/checkpoints/step-00000002 manifest
head -c 200 good/checkpoints/step-00000002/manifest.json >manifest/manifest.json
cp -r good/checkpoints/step-00000002 edited
sed -i 's/"step": 2/"step": 3/' edited/manifest.json
for folder in manifest edited; do
    wrong 2 "$folder" generate $folder
    wrong 2 "$folder" eval $folder --data text.txt
    wrong 2 "$folder" convert $folder never
    wrong 2 "$folder" train run.json --ranks 2 --steps 4 --out begun --resume $folder
done
[ -d never ] && fail "a damaged checkpoint was exported"
wrong 2 "flipped" generate flipped
contains wrong.err "give another step's folder"
wrong 2 "flipped" convert flipped flipped_out
[ -f flipped_out/model.safetensors ] && fail "a damaged checkpoint was exported"
wrong 2 "flipped" train run.json --ranks 4 --steps 4 --out other --resume flipped
[ -d begun/checkpoints ] && fail "a run was begun from a damaged checkpoint"
wrong 2 "not overwritten" train run.json --ranks 2 --resume none --out good
wrong 2 "optimizer.type" train run.json --ranks 2 --steps 4 --out good --set optimizer.type=Lion
exit 0
