#!/usr/bin/env bash
# SPDX-FileCopyrightText: The mics authors
# SPDX-License-Identifier: Apache-2.0
#
# usage: bench/cloud/delta.sh [NODES...]     parameter sync as changes beside numbers; needs root
#
# mics+(2) in bf16 with fp32 gradients at the accumulation boundary and one micro-step, on NODES (2 4) of 2 ranks: a step
# sends half as many bytes of parameters as of gradients, and with run.comm_dtype.params "delta" a fraction of that.
# Both are measured in turns, ROUNDS times; each round has its ratio, and the table at the end has medians and ranges.
# Losses have to be the same, to the last digit. The first sync sends numbers, and is no step that counts.
#
#   steps/s      of steps like any other (median of lib.sh)
#   bits         that a parameter takes in a sync: what was sent, less what the schedule says of all else
#   counted      inter-node, of all ranks in all steps, as metrics.jsonl has it
#   links        bytes on the links over that, without the headers of packets; the first step's start-up is on them too
#
#   RATE_MBIT=300   of a link        ROUNDS=5   STEPS=14   LR=3e-4   LENGTH=64   SEQUENCES=1: of a micro-batch
#   MODEL=bench/cloud/gpt2-13m.json      SETTINGS="key=value ..."   of the run file, for all runs
#   RESULTS=FILE    keeps figures, and takes those that it has
. "$(dirname "$0")/lib.sh"
read -ra settings <<<"${SETTINGS:-}"
settings+=("model.config=${MODEL:-bench/cloud/gpt2-13m.json}" "run.steps=${STEPS:-14}" run.precision=bf16
    run.comm_dtype.boundary=fp32 "optimizer.params.lr=${LR:-3e-4}" "data.sequence_length=${LENGTH:-64}"
    "train_micro_batch_size_per_gpu=${SEQUENCES:-1}")
mbit=${RATE_MBIT:-300}
declare -A names=([fp32]=numbers [delta]=changes)
[ $# -gt 0 ] || set -- 2 4
open_results "rate $mbit per_node $per_node ${settings[*]}"

# Of a run's schedule: inter-node bytes of all steps of a list, and of parameter sync, which may be at most.
synced_of() { # NAME
    "$mics" explain "$work/$1/resolved.json" --ranks "$ranks" --nodes "$nodes" --json 2>/dev/null | awk '
        function inter(kind) {
            return match($0, "\"" kind "\": \\{\"intra\": [0-9]*, \"inter\": [0-9]*") ? \
                substr($0, RSTART, RLENGTH) : ""
        }
        function last(text) { sub(/.* /, "", text); return text + 0 }
        /"sent_bytes"/ { printf "%.0f %.0f\n", last(inter("all")), last(inter("param sync")) + last(inter("param sync inter")) }'
}

# Figures of a run: steps/s, ms that are exposed, bits, counted, links over counted, and a sum of all losses' text.
measure() { # NODES DTYPE
    local bytes
    up "$1" "${mbit}mbit"
    train run 'mics+(2)' 1 "${settings[@]}" "run.comm_dtype.params=$2" || return 1
    read -ra bytes <<<"$(synced_of run)"
    echo "$(median run step_ms) $(median run exposed_comm_ms) $(median run sent_inter_bytes) ${bytes[*]}" \
        "$(total run sent_inter_bytes) $(cat "$work/run/payload")" \
        "$(grep -o '"loss": [-0-9.e]*' "$work/run/metrics.jsonl" | cksum | cut -d' ' -f1)" |
        awk '{ printf "%.4f %.1f %.3f %.0f %.4f %s\n", 1000 / $1, $2, 16 * ($3 - $4 + $5) / $5, $6, $7 / $6, $8 }'
}

printf '%-6s %5s %-8s %10s %11s %6s %14s %8s\n' nodes round params steps/s exposed_ms bits counted links
for n in "$@"; do
    for round in $(seq "${ROUNDS:-5}"); do
        for dtype in fp32 delta; do
            row=$(case_row "$n $dtype $round" measure "$n" "$dtype")
            echo "$n $dtype $round $row" >>"$work/rows"
            read -ra figures <<<"$row"
            printf '%-6s %5s %-8s %10s %11s %6s %14s %8s\n' "$n" "$round" "${names[$dtype]}" "${figures[@]::5}"
        done
    done
done
printf '\n%-6s %18s %18s %24s %6s\n' nodes 'numbers, steps/s' 'changes, steps/s' ratio bits
for n in "$@"; do
    for at in "fp32 4" "delta 4" "delta 6"; do
        awk -v nodes="$n" -v dtype="${at% *}" -v field="${at#* }" '$1 == nodes && $2 == dtype { print $field }' \
            "$work/rows" | spread
    done >"$work/spreads"
    awk -v nodes="$n" '$1 == nodes && $2 == "fp32" { numbers[$3] = $4; losses[$3] = $9 }
        $1 == nodes && $2 == "delta" {
            print $4 / numbers[$3]
            if ($9 != losses[$3]) print "losses differ in round " $3 >"/dev/stderr"
        }' "$work/rows" | spread | cat - "$work/spreads" | paste -sd' ' | awk -v nodes="$n" '{
            printf "%-6s %18.3f %18.3f %8.3f (%.3f to %.3f) %6.2f\n", nodes, $4, $7, $1, $2, $3, $10 }'
done
