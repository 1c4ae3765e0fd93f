# SPDX-FileCopyrightText: The mics authors
# SPDX-License-Identifier: Apache-2.0
# test_train_cudnn.sh MICS PLUGIN [LAUNCHER...]: run.attention, with the emulated plugin's cuDNN: near our own kernels' losses and
# the same bits in each run, memory as predicted; what it cannot compute, its absence, and other versions.
program=$1
plugin=$2
. "$(dirname "$0")/lib.sh"
shift 2
export MICS_CUDA_PLUGIN="$plugin"

# Heads of 8, of which our kernels and cuDNN both take any number.
sed -i "s/\"n_head\": [0-9]*/\"n_head\": 4/" model.json
one="--ranks 1 --set sharding=null"
four='--ranks 4 --nodes 2 --set sharding={"params":2,"grads":2,"optimizer":4}'
with() { # VARIABLE VALUE COMMAND...: a function's own environment
    export "$1=$2"
    variable=$1
    shift 2
    "$@"
    if [ "$variable" = MICS_CUDA_PLUGIN ]; then export MICS_CUDA_PLUGIN="$plugin"; else unset "$variable"; fi
}

# shellcheck disable=SC2086
{
with MICS_EMULATED_CUDNN -1 train 0 own $one # nobody looks for cuDNN then
contains own/resolved.json '"attention": "own"'
train 0 cudnn $one --set run.attention=cudnn
no_line cudnn.err
exact cudnn
near 2e-3 cudnn own
losses own >left.txt
losses cudnn >right.txt
cmp -s left.txt right.txt && fail "cuDNN's losses are our own kernels' to the last digit: did it compute them?"
contains cudnn/resolved.json '"attention": "cudnn"'
contains cudnn/resolved.json '"cudnn_version": "9.19.0"'
train 0 again $one --set run.attention=auto --set run.graphs=true
same_losses again cudnn
contains again/resolved.json '"attention": "cudnn"'
train 0 spread $four --set run.attention=cudnn --set run.checkpoint_every=2
exact spread
near 2e-3 spread own

# ---- resumed: by the same kernels the same bits, by others with a line ----
cp -r spread on
rm -r on/checkpoints/step-00000004
train 0 on $four --set run.checkpoint_every=2
contains on.out "resumed from"
same_losses on spread
same_weights on/checkpoints/step-00000004 spread/checkpoints/step-00000004
rm -r on/checkpoints/step-00000004
train 0 on $four --set run.attention=own
contains on.err "run.attention: own from here on, and cudnn before: losses differ in their last digits"
cp -r spread other
rm -r other/checkpoints/step-00000004
with MICS_EMULATED_CUDNN 92000 train 0 other $four
contains other.err "run.attention: by cuDNN 9.20.0 from here on, and 9.19.0 before"

# ---- memory is the same number where there is no GPU ----
# Predicted from the run file alone; of so many sequences attention takes more than GEMMs do.
many="--set train_batch_size=2048"
run 0 here "$program" explain run.json $one $short $many --set run.device=cuda --set run.attention=cudnn
with MICS_CUDA_PLUGIN none run 0 there "$program" explain run.json $one $short $many --set run.device=cuda --set run.attention=cudnn
grep -i 'workspace' here.out >left.txt
grep -i 'workspace' there.out >right.txt
[ -s left.txt ] && cmp left.txt right.txt || fail "explain says other figures without a GPU"
run 0 ours "$program" explain run.json $one $short $many --set run.device=cuda
grep -i 'workspace' ours.out >right.txt
cmp -s left.txt right.txt && fail "cuDNN takes no more workspace than our own kernels"

# ---- what cuDNN does not compute ----
refused() { # WORDS ARGUMENTS...: an error with "cudnn", a line with "auto", both before a step
    words=$1
    shift
    rm -rf refused taken
    train 2 refused $one --set run.attention=cudnn "$@"
    one_line refused.err
    contains refused.err "$words"
    [ ! -e refused/metrics.jsonl ] || fail "a step was trained"
    train 0 taken $one --set run.attention=auto "$@"
    contains taken.err "run.attention: our own kernels"
    contains taken.err "$words"
    exact taken
}
refused "attention computes in fp32, which cuDNN's does not; run.precision bf16 or fp16 works" --set run.precision=fp32
sed 's/"attn_pdrop": [0-9.]*/"attn_pdrop": 0.1/' model.json >dropout.json
refused "attention has dropout, which cuDNN draws by other masks; 0 works" --set model.config=dropout.json
sed 's/"n_head": 4/"n_head": 8/' model.json >narrow.json
refused "heads of at most 128 numbers, in multiples of 8" --set model.config=narrow.json
run 2 sized "$program" explain run.json $one $short --set run.device=cuda --set run.attention=cudnn --set run.precision=fp32
contains sized.err "attention computes in fp32"
train 2 cpu $one --set run.device=cpu --set run.attention=cudnn
contains cpu.err 'run.attention: "cudnn": it is for GPUs; "own" works'

# ---- plans that are not to be had ----
with MICS_EMULATED_CUDNN_PLANS 0 refused "cuDNN has no deterministic plan of this shape"
with MICS_EMULATED_CUDNN_WORKSPACE 100000000 refused "cuDNN asks for a workspace of 100000000 bytes, of which there are "
same_losses taken own

# ---- another library, or none ----
with MICS_EMULATED_CUDNN 0 refused "not found (libcudnn.so.9)"
same_losses taken own
with MICS_EMULATED_CUDNN 91501 refused "it is of version 9.15.1, and 9.16 or newer is needed"
train 2 wanted $one --set run.attention=cudnn --set run.cudnn_version=9.20.0
contains wanted.err "run.cudnn_version: 9.20.0 is not what was found, 9.19.0"
run 0 doctor "$program" doctor
contains doctor.out "cuDNN     9.19.0"
}
[ $# -gt 0 ] || exit 0

# ---- machines with other versions ----
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
export PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe
cat >odd.sh <<'SH'
[ "${OMPI_COMM_WORLD_RANK:-${PMI_RANK:-0}}" = 0 ] || export MICS_EMULATED_CUDNN=92000
exec "$@"
SH
run_name=versions
# shellcheck disable=SC2086
"$@" sh odd.sh "$program" train run.json --out versions --steps 1 $short --set run.attention=cudnn >versions.out 2>versions.err </dev/null &&
    fail "ranks with two versions of cuDNN trained"
[ "$(grep -c '^mics: error' versions.err)" = 1 ] || fail "one error line is due: $(cat versions.err)"
contains versions.err "the machines of this run have several versions of it"
