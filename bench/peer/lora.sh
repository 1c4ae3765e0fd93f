#!/bin/sh
# SPDX-FileCopyrightText: The mics authors
# SPDX-License-Identifier: Apache-2.0
# A training step of an adapter by `mics train --lora` beside PEFT's (peft_train.py), in bf16 on the CPU, in turns: tokens/s
# and peak memory of each. PEFT runs as it is and compiled, on a base in bf16 and in fp32; the fastest of its ways counts for
# speed, the bf16 base for memory, without what its imports take.
#
# usage: lora.sh MICS [CONFIG.json]      PYTHON (with torch, transformers, peft), ROUNDS, STEPS, SEQUENCES, LENGTH, THREADS,
#        RANK, COMPILE=0 (leaves compiling out) and SETS (more of mics' --set, "KEY=VALUE ...") are read from the environment.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
mics=$(realpath "${1:?usage: lora.sh MICS [CONFIG.json]}")
config=$(realpath "${2:-$here/../../configs/llama-120m.json}")
python=${PYTHON:-python3} rounds=${ROUNDS:-3} steps=${STEPS:-6} sequences=${SEQUENCES:-4} length=${LENGTH:-256}
threads=${THREADS:-2} rank=${RANK:-16}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cat "$here"/../../examples/corpus/*.txt >"$work/text.txt"
cat >"$work/run.json" <<JSON
{
  "model": {"config": "$config", "init": "random"},
  "data": {"train": ["$work/text.txt"], "tokenizer": "bytes", "sequence_length": $length},
  "run": {"steps": $((steps + 2)), "threads": $threads, "device": "cpu", "precision": "bf16", "validation_batches": 0,
          "checkpoint_every": 0, "out": "$work/out"},
  "train_micro_batch_size_per_gpu": $sequences,
  "gradient_clipping": 1.0,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}
}
JSON

# Milliseconds of a step, the first two left out, and MiB at the peak until the last step's save. Behind that the program
# reads the checkpoint back, in fp32, for a sample of text.
mics_step() {
    rm -rf "$work/out"
    set --
    for key in ${SETS:-}; do
        set -- "$@" --set "$key"
    done
    "$python" -c 'import subprocess, sys, time
peak = "0"
program = subprocess.Popen(sys.argv[2:], stdout=open(sys.argv[1], "w"), stderr=subprocess.STDOUT)
while program.poll() is None and "\nsaving step" not in open(sys.argv[1]).read():
    status = open(f"/proc/{program.pid}/status").read()
    peak = status.split("VmHWM:")[1].split()[0] if "VmHWM:" in status else peak
    time.sleep(0.02)
print("%.0f" % (int(peak) / 1024))
sys.exit(program.wait())' "$work/log" "$mics" train "$work/run.json" --lora "$rank" "$@" >"$work/peak" ||
        { cat "$work/log" >&2; exit 1; }
    sed -n 's/.*"step_ms": \([0-9.]*\).*/\1/p' "$work/out/metrics.jsonl" | tail -n +3 | sort -n |
        awk -v p="$(cat "$work/peak")" '{ v[NR] = $1 } END { print NR % 2 ? v[(NR + 1) / 2] : (v[NR / 2] + v[NR / 2 + 1]) / 2, p }'
}

peft_step() {
    "$python" "$here/peft_train.py" "$config" --rank "$rank" --sequences "$sequences" --length "$length" --steps "$steps" \
        --threads "$threads" "$@" 2>"$work/peft.log" || { cat "$work/peft.log" >&2; exit 1; }
}

grep -m 1 'model name' /proc/cpuinfo
echo "$config, r $rank, $sequences x $length tokens, $threads threads; torch $("$python" -c 'import peft, torch, transformers
print(torch.__version__, "transformers", transformers.__version__, "peft", peft.__version__)')"
tokens=$((sequences * length))
for round in $(seq "$rounds"); do
    ours=$(mics_step)
    plain=$(peft_step --base bf16)
    best=$plain
    for way in "--base fp32" "--base bf16 --compile" "--base fp32 --compile"; do
        [ "${COMPILE:-1}" = 0 ] && case $way in *compile) continue ;; esac
        # shellcheck disable=SC2086
        other=$(peft_step $way)
        best=$(echo "$best $other" | awk '{ print $1 <= $4 ? $1 " " $2 " " $3 : $4 " " $5 " " $6 }')
    done
    echo "$ours $plain $best" | tee -a "$work/rounds" | awk -v n="$tokens" -v r="$round" '{
        printf "round %d: mics %.1f tokens/s, %d MiB; PEFT at best %.1f tokens/s, on bf16 %.1f tokens/s, %d MiB behind imports; " \
               "ratio %.2f, memory %.2f\n", r, n / $1 * 1e3, $2, n / $6 * 1e3, n / $3 * 1e3, $4 - $5, $6 / $1, $2 / ($4 - $5) }'
done
median() {
    sort -n | awk '{ v[NR] = $1 } END { printf "%.2f", NR % 2 ? v[(NR + 1) / 2] : (v[NR / 2] + v[NR / 2 + 1]) / 2 }'
}
echo "median ratio $(awk '{ print $6 / $1 }' "$work/rounds" | median), of memory $(
    awk '{ print $2 / ($4 - $5) }' "$work/rounds" | median)"
