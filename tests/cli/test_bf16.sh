# SPDX-FileCopyrightText: The mics authors
# SPDX-License-Identifier: Apache-2.0
# A run in bf16 on CPUs, as its user sees it: half the bytes, the same bits after a resume and over
# MPI, a checkpoint that says what it is; and what CPUs without bf16 units make of it. A launcher of
# 4 processes may follow the program.
. "$(dirname "$0")/lib.sh"
shift
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1

train() { # OUT FLAGS...
    out=$1
    shift
    "$mics" train run.json --ranks 4 --nodes 2 --out "$out" --set run.layered_micro_steps=1 "$@"
}
has_precision() { # OUT TEXT
    grep -q "\"precision\": \"$2\"" "$1/resolved.json" || fail "$1 should be in $2"
}
bytes() { # OUT HOP
    sed -n "s/^{\"step\": 8,.*\"sent_$2_bytes\": \([0-9]*\).*/\1/p" "$1/metrics.jsonl"
}
# All but the agreement: each rank sends 128 bytes to the other node, and then those of two ranks in its own.
halves() { # OUT OUT
    for hop in intra inter; do
        [ $hop = intra ] && agreement=$((4 * 2 * 128)) || agreement=$((4 * 128))
        [ $((2 * $(bytes "$1" $hop))) = $(($(bytes "$2" $hop) + agreement)) ] ||
            fail "$1 sends $(bytes "$1" $hop) bytes $hop, $2 $(bytes "$2" $hop)"
    done
}

# ---- CPUs without bf16 units: fp32, and one line says so ----

run 0 plain env MICS_ISA=generic "$mics" train run.json --ranks 4 --nodes 2 --out plain
run 0 fell env MICS_ISA=generic "$mics" train run.json --ranks 4 --nodes 2 --out fell --set bf16.enabled=true
one_line fell.err
contains fell.err "run.precision is bf16, but MICS_ISA leaves out AVX512_BF16 and AMX"
contains fell.err "the run goes on in fp32"
has_precision fell fp32
same_losses plain fell
run 0 again env MICS_ISA=generic "$mics" train run.json --ranks 4 --nodes 2 --out fell --set bf16.enabled=true --steps 9
contains again.err "the run goes on in fp32"

run 0 limited env ONEDNN_MAX_CPU_ISA=AVX2 "$mics" train run.json --ranks 4 --nodes 2 --out limited --steps 1 --set run.precision=bf16
contains limited.err "ONEDNN_MAX_CPU_ISA leaves out AVX512_BF16 and AMX"

# ---- CPUs with them ----

run 0 half train half --set run.precision=bf16 --set run.share_params=false
grep -q "goes on in fp32" half.err && exit 77
contains half.out "device    cpu, bf16 with fp32 masters"
run 0 whole train whole --set run.share_params=false
contains whole.out 'run.precision "bf16" is up to'
has_precision half bf16
grep -q '"boundary": "bf16"' half/resolved.json || fail "the second hop should be in bf16"
for name in half whole; do
    grep -c 'exact$' $name.out >exact.txt
    grep -q 'differ' $name.out && fail "$name: predicted and measured differ"
done
halves half whole
losses half >left.txt
losses whole >right.txt
paste left.txt right.txt | awk '{ d = $2 - $4; if (d < 0) d = -d
    same += d == 0; if (d > 0.01 * $4) exit 1 } END { if (same == NR) exit 1 }' ||
    fail "losses should be fp32's within 1 %, and not the same"

# DeepSpeed's words, and memory that the ranks of a node share, change no bit.
run 0 words train words --set bf16.enabled=true
same_losses half words
run 0 parts train parts --set run.precision=bf16 --steps 4
run 0 parts train parts --set run.precision=bf16
same_losses half parts
same_weights half/checkpoints/step-00000008 parts/checkpoints/step-00000008

# What the file leaves open is the checkpoint's, here and where it is slow; the file's word is heard.
run 0 kept train parts --steps 9
has_precision parts bf16
run 0 slow env MICS_ISA=generic "$mics" train run.json --ranks 4 --nodes 2 --out parts --steps 10
contains slow.err "the run stays in bf16, as its checkpoint is, and is slower so"
contains slow.err "--set run.precision=fp32"
has_precision parts bf16
run 0 heard train parts --steps 11 --set run.precision=fp32
contains heard.err "the checkpoint is of a run in bf16, and goes on in fp32, as run.precision says"
grep -q '"boundary": "fp32"' parts/resolved.json || fail "the second hop should follow to fp32"
run 0 back train parts --steps 12 --set run.precision=bf16
contains back.err "the checkpoint is of a run in fp32, and goes on in bf16, as run.precision says"
grep -q '"boundary": "bf16"' parts/resolved.json || fail "the second hop should follow to bf16"

# A checkpoint is any mesh's, and is evaluated, written and exported from its fp32 masters.
run 0 mesh "$mics" train run.json --ranks 2 --out half --steps 9 --set sharding.params=1
has_precision half bf16
run 0 eval "$mics" eval whole --data text.txt
run 0 eval_half "$mics" eval half --data text.txt
run 0 text "$mics" generate half --prompt "the lark" --tokens 8
run 0 export "$mics" convert half exported
run 0 exported "$mics" eval exported --data text.txt
run 0 verify "$mics" verify half

# Refused still.
run 2 refused train refused --set run.precision=fp16
contains refused.err "fp16 is for GPUs; on the cpu device fp32 and bf16 work"

[ $# = 0 ] && exit 0

# ---- over MPI ----

run 0 mpi "$@" "$mics" train run.json --nodes 2 --out mpi --set run.layered_micro_steps=1 --set run.precision=bf16
same_losses words mpi
same_weights words/checkpoints/step-00000008 mpi/checkpoints/step-00000008
