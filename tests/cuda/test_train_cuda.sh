# SPDX-FileCopyrightText: The mics authors
# SPDX-License-Identifier: Apache-2.0
# test_train_cuda.sh MICS [PLUGIN]: mics train on GPUs. With PLUGIN, the emulated one, several GPUs and failures are made up;
# without it on the machine's own, all ranks on one of them.
program=$1
plugin=${2:-}
. "$(dirname "$0")/lib.sh"
if [ -n "$plugin" ]; then export MICS_CUDA_PLUGIN="$plugin"; else unset MICS_CUDA_PLUGIN; fi
if [ -z "$plugin" ] && "$mics" doctor --json | grep -q '"usable": false'; then
    echo "skipped: $("$mics" doctor | grep '^GPU')"
    exit 77
fi

mesh='--ranks 4 --nodes 2 --set sharding={"params":2,"grads":2,"optimizer":4}'

# ---- the same numbers as the CPU ----
train 0 cpu --ranks 1 --set sharding=null --set run.device=cpu
contains cpu.out "device    cpu, fp32"
train 0 fp32 --ranks 1 --set sharding=null --set run.device=cuda --set run.precision=fp32
contains fp32.out "device    cuda, fp32; "
near 1e-5 fp32 cpu
exact fp32
train 0 bf16 --ranks 1 --set sharding=null
contains bf16.out "device    cuda, bf16 with fp32 masters"
contains bf16/resolved.json '"precision": "bf16"'
contains bf16/resolved.json '"device": "cuda"'
near 2e-3 bf16 cpu
exact bf16
train 0 fp16 --ranks 1 --set sharding=null --set fp16.enabled=true
near 2e-3 fp16 cpu

# ---- a mixture of experts ----
cat >mixture.json <<'END'
{"model_type": "mixtral", "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 1, "hidden_size": 16,
 "intermediate_size": 24, "num_local_experts": 4, "num_experts_per_tok": 2, "output_router_logits": true,
 "router_aux_loss_coef": 0.02, "max_position_embeddings": 64, "vocab_size": 256, "tie_word_embeddings": true}
END
router() { # OUT: what the routers did in the last step, to 3 digits
    sed -n 's/.*"router_entropy": \([^,]*\), "router_fullest": \([^,]*\), "router_balance": \([^,}]*\).*/\1 \2 \3/p' \
        "$1/metrics.jsonl" | tail -n 1 | awk '{ printf "%.3g %.3g %.3g\n", $1, $2, $3 }'
}
mixture="--set model.config=mixture.json"
# shellcheck disable=SC2086
train 0 experts_cpu $mixture --ranks 1 --set sharding=null --set run.device=cpu
# shellcheck disable=SC2086
train 0 experts $mixture --ranks 1 --set sharding=null --set run.precision=fp32
near 1e-5 experts experts_cpu
exact experts
[ -n "$(router experts)" ] && [ "$(router experts)" = "$(router experts_cpu)" ] ||
    fail "the routers did $(router experts), and on the CPU $(router experts_cpu)"
# shellcheck disable=SC2086
train 0 experts_bf16 $mixture --ranks 2 --nodes 1 --set run.graphs=true
near 5e-3 experts_bf16 experts_cpu
exact experts_bf16
# shellcheck disable=SC2086
train 0 experts_tf32 $mixture --ranks 1 --set sharding=null --set run.precision=tf32
near 1e-3 experts_tf32 experts_cpu
run 0 eval "$program" eval experts_bf16 --data text.txt
# Tokens travel; resumed where they do not, and chosen.
spread='--ranks 4 --nodes 2 --set sharding={"params":4,"experts":2}'
# shellcheck disable=SC2086
train 0 spread $mixture $spread --set run.precision=fp32 --set run.checkpoint_every=2
contains spread.out "E = 2"
near 1e-5 spread experts_cpu
exact spread
cp -r spread gathered
rm -r gathered/checkpoints/step-00000004
# shellcheck disable=SC2086
train 0 gathered $mixture --ranks 2 --set run.precision=fp32 --set sharding=null
near 1e-5 gathered experts_cpu

# ---- several ranks on one GPU ----
# shellcheck disable=SC2086
train 0 staged $mesh
near 2e-3 staged cpu
exact staged
contains staged.out "shared by 4 ranks"

# ---- checkpoints ----
# shellcheck disable=SC2086
train 0 again $mesh --set run.checkpoint_every=2
cp -r again first
rm -r first/checkpoints/step-00000004
# shellcheck disable=SC2086
train 0 first $mesh --set run.checkpoint_every=2
contains first.out "resumed from"
same_losses first staged
same_weights first/checkpoints/step-00000004 staged/checkpoints/step-00000004
run 0 eval "$program" eval staged --data text.txt
# On the CPU from the GPU's step 2, and the other way about.
cp -r again mixed
rm -r mixed/checkpoints/step-00000004
train 0 mixed --ranks 2 --set run.device=cpu
near 2e-3 mixed cpu
train 2 refused --ranks 1 --set sharding=null --set run.precision=fp8

# ---- GEMMs by the fastest algorithm, kept for who goes on ----
timed="$mesh --set run.gemm_autotune=true --set run.checkpoint_every=2"
# shellcheck disable=SC2086
train 0 timed $timed
grep -qE '^mics: rank 0: ([1-9][0-9]*) of \1 GEMMs timed in .* s, kept in timed/products.bin$' timed.err || fail "what was timed is not said"
near 2e-3 timed cpu
exact timed
cp -r timed on
rm -r on/checkpoints/step-00000004
# shellcheck disable=SC2086
train 0 on $timed
contains on.out "resumed from"
grep -q "timed" on.err && fail "a run that goes on times nothing"
cmp on/products.bin timed/products.bin || fail "the choices have changed"
same_losses on timed
same_weights on/checkpoints/step-00000004 timed/checkpoints/step-00000004
rm -r on/checkpoints/step-00000004
printf 'of another chip' >on/products.bin
# shellcheck disable=SC2086
train 0 on $timed
contains on.err "kept in on/products.bin"
train 2 on_cpu --ranks 1 --set sharding=null --set run.device=cpu --set run.gemm_autotune=true
one_line on_cpu.err
contains on_cpu.err "run.gemm_autotune: is for GPUs"

# ---- graphs: the same bits, resumed too ----
graphs="$mesh --set run.graphs=true --set run.checkpoint_every=2"
# shellcheck disable=SC2086
train 0 graphs $graphs
same_losses graphs staged
same_weights graphs/checkpoints/step-00000004 staged/checkpoints/step-00000004
exact graphs
rm -r graphs/checkpoints/step-00000004
# shellcheck disable=SC2086
train 0 graphs $graphs
contains graphs.out "resumed from"
same_losses graphs staged
same_weights graphs/checkpoints/step-00000004 staged/checkpoints/step-00000004
train 2 on_cpu --ranks 1 --set sharding=null --set run.device=cpu --set run.graphs=true
one_line on_cpu.err
contains on_cpu.err "run.graphs: is for GPUs"
# ---- activations in host memory: the same bits, resumed with another number, and found ----
sed "s/\"n_layer\": [0-9]*/\"n_layer\": 4/" model.json >deep.json
deep="$mesh --set model.config=deep.json --set run.checkpoint_every=2"
# shellcheck disable=SC2086
train 0 kept $deep
# shellcheck disable=SC2086
train 0 offload $deep --set run.offload_activations=2
same_losses offload kept
same_weights offload/checkpoints/step-00000004 kept/checkpoints/step-00000004
exact offload
contains offload.out "offloaded activations"
rm -r offload/checkpoints/step-00000004
# shellcheck disable=SC2086
train 0 offload $deep --set run.offload_activations=1
contains offload.out "resumed from"
same_losses offload kept
same_weights offload/checkpoints/step-00000004 kept/checkpoints/step-00000004
# shellcheck disable=SC2086
train 2 many $deep --set run.offload_activations=5
contains many.err "take at most 2"
train 2 on_cpu --ranks 1 --set sharding=null --set run.device=cpu --set run.offload_activations=1
one_line on_cpu.err
contains on_cpu.err "run.offload_activations: is 1, but these ranks compute on CPUs"
[ -n "$plugin" ] || { echo "skipped the parts that only the emulation has"; exit 0; }

# ---- what only the emulation has ----
export MICS_EMULATED_DEVICES=4
# shellcheck disable=SC2086
train 0 nccl $mesh
contains nccl.out "4 GPUs on this machine"
same_losses nccl staged
exact nccl
[ -s nccl.err ] && fail "a run whose buffers NCCL takes says something"
# Gathers over both nodes are timed on the GPUs before the engines are opened. Whatever is chosen, the numbers are those of
# two stages, and whoever goes on keeps it.
over_nodes='--ranks 4 --nodes 2 --set sharding={"params":4,"grads":4,"optimizer":4}'
# shellcheck disable=SC2086
train 0 stages $over_nodes --set run.collectives=two-stage
# shellcheck disable=SC2086
train 0 chosen $over_nodes
one_line chosen.err
contains chosen.err "run.collectives: gathers in "
grep -q '"collectives": "\(two-stage\|ring-gathers\)"' chosen/resolved.json || fail "resolved.json does not say what was chosen"
same_losses chosen stages
exact chosen
# shellcheck disable=SC2086
train 0 rings $over_nodes --set run.collectives=ring-gathers
same_losses rings stages
exact rings
# One rank's NCCL registers none: said once, and nothing else changes.
export MICS_EMULATED_NCCL_REGISTER=one
# shellcheck disable=SC2086
train 0 unregistered $mesh
unset MICS_EMULATED_NCCL_REGISTER
one_line unregistered.err
contains unregistered.err "NCCL registers no buffers ("
same_losses unregistered staged
# Nothing runs before somebody waits for it: a wait that is missing would show.
export MICS_EMULATED_ORDER=lazy
# shellcheck disable=SC2086
train 0 lazy $mesh
same_losses lazy staged
export MICS_EMULATED_ORDER=eager
train 0 eager --ranks 1 --set sharding=null
same_losses eager bf16
unset MICS_EMULATED_ORDER MICS_EMULATED_DEVICES
# All ranks on one GPU, by an NCCL that lets them.
export MICS_EMULATED_NCCL=23000 NCCL_MULTI_RANK_GPU_ENABLE=1
# shellcheck disable=SC2086
train 0 shared $mesh
contains shared.out "shared by 4 ranks"
grep -q "host's memory" shared.out && fail "ranks that share a GPU by NCCL are said to use the host's memory"
same_losses shared staged
exact shared
[ -s shared.err ] && fail "a run whose ranks share a GPU by NCCL says something"
unset MICS_EMULATED_NCCL NCCL_MULTI_RANK_GPU_ENABLE

# A kernel that fails ends the run, on all ranks, in one line.
export MICS_EMULATED_FAIL=200
train 1 failing --ranks 2
one_line failing.err
contains failing.err "GPU 0: "
contains failing.err "illegal memory access"
# Later, when kernels are in graphs; with one layer a step has some 150 of them, with two 220.
export MICS_EMULATED_FAIL=450
train 1 failing_graph --ranks 2 --set run.graphs=true
one_line failing_graph.err
contains failing_graph.err "illegal memory access"
unset MICS_EMULATED_FAIL
# Memory ends before anything begins.
export MICS_EMULATED_MEMORY=8000000
train 2 small --ranks 1 --set sharding=null
one_line small.err
contains small.err "the machine's GPUs have"
exit 0
