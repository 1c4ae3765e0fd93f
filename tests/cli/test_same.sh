# SPDX-FileCopyrightText: The mics authors
# SPDX-License-Identifier: Apache-2.0
# Ranks under an MPI launcher ($2...) that were not given the same job do not train: the error names
# the key, the ranks and both values. Machines of several instruction sets compute with the common one.
. "$(dirname "$0")/lib.sh"
shift
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
export PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe

# The last two ranks get other flags, files, folder or environment.
cat >odd.sh <<'SH'
if [ "${OMPI_COMM_WORLD_RANK:-${PMI_RANK:-0}}" -ge 2 ]; then
    [ -z "${ODD_DIR:-}" ] || cd "$ODD_DIR" || exit 1
    [ -z "${ODD_ISA:-}" ] || export MICS_ISA=$ODD_ISA
    [ -z "${ODD_FLAGS:-}" ] || set -- "$@" $ODD_FLAGS
fi
exec "$@"
SH
refused() { # WORDS...: with ODD_* as set
    rm -rf out
    run_name=same
    "$@" >same.out 2>same.err </dev/null && fail "ranks of two jobs trained"
    [ ! -e out/metrics.jsonl ] || fail "a step was trained"
    [ ! -e out/resolved.json ] || fail "the run was written before it was compared"
    [ "$(grep -c '^mics: error' same.err)" = 1 ] || fail "one error line is due: $(cat same.err)"
}
flags() { # KEY VALUE OTHER FLAGS: the error when the last two ranks get FLAGS
    export ODD_FLAGS="$4"
    refused $start
    unset ODD_FLAGS
    contains same.err "$1 is $2 on ranks 0-1, $3 on ranks 2-3"
}
start="$* sh odd.sh $mics train run.json --set run.steps=2"

flags optimizer.params.lr 0.003 0.001 "--set optimizer.params.lr=1e-3"
flags run.seed 3 4 "--set run.seed=4"
flags gradient_clipping 1 2 "--set gradient_clipping=2"
flags optimizer.params.weight_decay 0.1 0.2 "--set optimizer.params.weight_decay=0.2"
flags optimizer.params.betas "[0.9, 0.999]" "[0.9, 0.95]" "--set optimizer.params.betas=[0.9,0.95]"
flags scheduler.params.warmup_num_steps 2 3 "--set scheduler.params.warmup_num_steps=3"
flags data.sequence_length 32 16 "--set data.sequence_length=16"
flags gradient_accumulation_steps 2 1 "--set gradient_accumulation_steps=1"
flags run.steps 2 3 "--set run.steps=3"
flags run.checkpoint_every 4 1 "--set run.checkpoint_every=1"
flags sharding.grads 2 4 "--set sharding.grads=4 --set sharding.optimizer=4"
flags --nodes 1 2 "--nodes 2"
flags run.out '"out"' '"other"' "--out other"
rm -rf other

# Files of the same names that hold something else.
mkdir odd
other() { # KEY: ranks 2 and 3 run in ./odd
    export ODD_DIR=odd
    refused $start --out "$work/out"
    unset ODD_DIR
    contains same.err "$1 is "
    contains same.err " on ranks 0-1, "
    contains same.err " on ranks 2-3; "
    cp run.json model.json text.txt odd
}
cp run.json model.json text.txt odd
sed 's/"layer_norm_epsilon": 1e-05/"layer_norm_epsilon": 1e-06/' model.json >odd/model.json
other 'model.config: "layer_norm_epsilon"'
sed 's/sings/songs/' text.txt >odd/text.txt
other data.train
sed 's/3e-3/4e-3/; s/"seed": 3/"seed": 4/; s/0.1}/0.2}/; s/"warmup_num_steps": 2/"warmup_num_steps": 3/' \
    run.json >odd/run.json
other run.seed
contains same.err "; and 1 more; give all nodes"

# The same tokens from another tokenizer.json, and other weights to begin with.
cp "$golden/tokenizer/gpt2.json" tokenizer.json
sed 's/"vocab_size": 256/"vocab_size": 1024/' model.json >large.json
sed 's/model.json/large.json/; s/"text.txt"\]/"text.txt"], "tokenizer": "tokenizer.json"/' run.json >tokens.json
cp tokens.json large.json odd
{ cat tokenizer.json; echo; } >odd/tokenizer.json
start="$* sh odd.sh $mics train tokens.json --steps 2"
other data.tokenizer
start="$* sh odd.sh $mics train run.json --steps 2 --set model.init=weights"
run 0 first "$mics" train run.json --ranks 2 --steps 1 --out first
run 0 second "$mics" train run.json --ranks 2 --steps 1 --out second --set run.seed=9
run 0 convert "$mics" convert first/checkpoints/step-00000001 weights
run 0 convert "$mics" convert second/checkpoints/step-00000001 odd/weights
other model.init

# A lock of the same name in another folder.
start="$* sh odd.sh $mics train run.json --set run.steps=2"
mkdir odd/out
echo "mics run 00000000deadbeef" >odd/out/lock
export ODD_DIR=odd
refused $start
contains same.err "run.out (the lock in it) is "
contains same.err "00000000deadbeef on ranks 2-3"
rm -rf odd/out
refused $start
contains same.err "out/lock: No such file or directory; run.out must be one folder that all ranks see"
unset ODD_DIR

# Where kernels for fewer instructions are, all ranks take those: their bits are those of a run that
# has no others.
MICS_ISA=none run 2 none "$mics" train run.json --ranks 2
sets=$(sed -n 's/.*no kernels for; it has //p' none.err)
[ -n "$sets" ] || fail "MICS_ISA=none was accepted"
case $sets in
*,*)
    few=${sets##*, }
    export MICS_ISA=$few
    run 0 few "$@" "$mics" train run.json --out few
    unset MICS_ISA
    export ODD_ISA=$few
    run 0 mixed "$@" sh odd.sh "$mics" train run.json --out mixed
    unset ODD_ISA
    contains mixed.err "all ranks compute with $few, as rank 2 has no more; 2 of 4 ranks have"
    same_weights few/checkpoints/step-00000008 mixed/checkpoints/step-00000008
    ;;
*) echo "one instruction set: $sets" ;;
esac
