# SPDX-FileCopyrightText: The mics authors
# SPDX-License-Identifier: Apache-2.0
# test_bench_cuda.sh MICS [PLUGIN]: mics bench on GPUs. With PLUGIN, the emulated one, which says nothing of speed: that
# every part runs and lands in a cluster file that plans read. Without it on the machine's own.
program=$1
plugin=${2:-}
. "$(dirname "$0")/../cli/lib.sh"
# Buffers are a quarter of a GPU, and each page of one costs time.
if [ -n "$plugin" ]; then export MICS_CUDA_PLUGIN="$plugin" MICS_EMULATED_DEVICES=4 MICS_EMULATED_MEMORY=268435456; else unset MICS_CUDA_PLUGIN; fi
if [ -z "$plugin" ] && "$mics" doctor --json | grep -q '"usable": false'; then
    echo "skipped: $("$mics" doctor | grep '^GPU')"
    exit 77
fi
small="--sequence 16 --batch 2 --seconds 0.5 --force" # an emulated GPU is not steady
value() { # FILE KEY: the first figure behind a key
    sed -n "s/.*\"$2\": \\([^,]*\\),*\$/\\1/p" "$1" | head -n 1
}

# ---- both halves, over NCCL ----
# Word splitting is meant.
# shellcheck disable=SC2086
run 0 gpu "$program" bench compute run.json --set run.device=cuda $small --ranks 4 --nodes 2 --out gpu.json
for text in "each on a GPU" "collectives by NCCL" "inter-node: latency" "all-gather, two stages" "copies to the host" \
    "a step at the end: measured"; do
    contains gpu.out "$text"
done
for key in '"pipelined": true' '"host_gb_per_s": ' '"tflops_bf16": ' '"matmul_efficiency": [[' '"ramp": [[1024, ' \
    '"fan_out": 2' '"network": {'; do
    contains gpu.json "$key"
done
grep -q '"cores"' gpu.json && fail "cores stand where GPUs compute"
[ "$(value gpu.json tflops_bf16)" != "$(value gpu.json tflops_fp32)" ] || fail "fp32 was not measured for itself"
run 0 plan "$program" plan run.json --set run.device=cuda --cluster gpu.json:2 --set train_batch_size=8 --top 1 --json
contains plan.out '"ranks": 4'

# ---- links again, on three nodes, and of ranks that share a GPU ----
[ -z "$plugin" ] || export MICS_EMULATED_MEMORY=805306368
run 0 links "$program" bench comm --device cuda --seconds 0.5 --ranks 4 --nodes 2 --out gpu.json --json
contains links.out '"device": "cuda", "collectives_by": "nccl"'
# shellcheck disable=SC2086
run 0 odd "$program" bench compute --device cuda --config model.json $small --ranks 3 --nodes 3 --out odd.json
contains odd.out "inter-node: latency"
export MICS_EMULATED_DEVICES=1
# shellcheck disable=SC2086
run 0 shared "$program" bench compute --device cuda --config model.json $small --ranks 2 --out shared.json
contains shared.out "collectives through host memory"
contains shared.json '"pipelined": false'

# ---- where there is none ----
export MICS_CUDA_PLUGIN=none
run 2 none "$program" bench comm --device cuda --seconds 0.5 --ranks 2 --out none.json
one_line none.err
contains none.err "the device is to be cuda, but: "
contains none.err "--device cpu measures what there is"
# shellcheck disable=SC2086
run 0 cpu "$program" bench compute --device auto --config model.json $small --ranks 2 --out cpu.json
grep -q "on a GPU" cpu.out && fail "GPUs were measured without any"
exit 0
