#!/usr/bin/env bash
# SPDX-FileCopyrightText: The mics authors
# SPDX-License-Identifier: Apache-2.0
#
# usage: bench/cloud/sequence.sh     sequences over ranks: how long they may be, how fast they train, what they send; needs root
#
# Length: 4 ranks of one node, threads of one process, P = 4, a micro-batch of 1. The budget (run.memory_limit) is what S = 1 takes
# for LENGTH tokens a sequence, so that is its longest; the longest with S = 4 is found by `mics explain`. Both then train on
# the longer one with 4 sequences a step: S = 4 in the budget, S = 1 without one. Tokens/s are medians of ROUNDS in turn.
#
# Bytes: 2 nodes of 4 ranks on the emulated cloud, P = 4, S = 1 and 4, as many micro-steps; what a step sends, by the runs'
# counters, and what crossed the links.
#
#   LENGTH=1024  STEPS=3  ROUNDS=3  RATE_MBIT=4000  CLOUD_LENGTH=512  PARTS="length bytes"
#   RESULTS=FILE    keeps measured rows there, and takes those that are there
export PER_NODE=4
. "$(dirname "$0")/lib.sh"
length=${LENGTH:-1024} steps=${STEPS:-3} rounds=${ROUNDS:-3} rate=${RATE_MBIT:-4000} parts=${PARTS:-length bytes}
open_results "length $length steps $steps rate $rate cloud_length ${CLOUD_LENGTH:=512}"
grep -m 1 'model name' /proc/cpuinfo

settings() { # S TOKENS MICRO_STEPS
    echo "model.config=bench/cloud/llama-long.json run.recompute=${RECOMPUTE:-false} sharding.params=4 sharding.sequence=$1" \
        "data.sequence_length=$2 gradient_accumulation_steps=$3 run.steps=$steps"
}

memory_of() { # S TOKENS MICRO_STEPS: bytes of a rank
    local setting words=()
    for setting in $(settings "$@"); do
        words+=(--set "$setting")
    done
    "$mics" explain bench/cloud/run.json --ranks 4 "${words[@]}" --json 2>/dev/null |
        sed -n '/"memory_bytes"/,/}/s/.*"total": \([0-9]*\).*/\1/p'
}

longest() { # S BYTES MICRO_STEPS: tokens, a multiple of 4; a sequence of 4 x LENGTH is too long
    local fits=$((length / 4)) over=$((length + 1)) middle
    while [ $((over - fits)) -gt 1 ]; do
        middle=$(((fits + over) / 2))
        if [ "$(memory_of "$1" $((4 * middle)) "$3")" -le "$2" ]; then fits=$middle; else over=$middle; fi
    done
    echo $((4 * fits))
}

speed() { # S TOKENS MICRO_STEPS SETTING...: prints tokens/s
    local setting words=()
    for setting in $(settings "$1" "$2" "$3") "${@:4}"; do
        words+=(--set "$setting")
    done
    rm -rf "$work/run"
    "$mics" train bench/cloud/run.json --ranks 4 --out "$work/run" --resume none "${words[@]}" >"$work/run.log" 2>&1 ||
        { tail -n 5 "$work/run.log" >&2 && return 1; }
    median run tokens_per_s
}

sent() { # S: prints "INTRA INTER LINKS", bytes of a step
    local words
    read -ra words <<<"$(settings "$1" "$CLOUD_LENGTH" 1)"
    train run 'mics(4)' 1 "${words[@]}" || return 1
    echo "$(median run sent_intra_bytes) $(median run sent_inter_bytes) $(($(cat "$work/run/payload") / steps))"
}

case $parts in *length*)
    limit=$(memory_of 1 "$length" 1)
    long=$(case_row longest longest 4 "$limit" 4)
    : >"$work/1" && : >"$work/4"
    for round in $(seq "$rounds"); do
        case_row "speed 1 $round" speed 1 "$long" 1 >>"$work/1"
        case_row "speed 4 $round" speed 4 "$long" 4 "run.memory_limit=$limit" >>"$work/4"
    done
    awk -v limit="$limit" -v short="$length" -v long="$long" -v of_one="$(memory_of 1 "$long" 1)" \
        -v one="$(spread <"$work/1")" -v four="$(spread <"$work/4")" 'BEGIN {
            split(one, a, " ")
            split(four, b, " ")
            printf "budget of a rank %.1f MiB: S = 1 takes %d tokens a sequence, S = 4 %d: %.2f times\n", limit / 1048576,
                short, long, long / short
            printf "%d tokens a sequence, 4 a step: S = 1 (%.1f MiB) %.0f tokens/s (%.0f to %.0f), S = 4 %.0f (%.0f to %.0f): %.1f %%\n",
                long, of_one / 1048576, a[1], a[2], a[3], b[1], b[2], b[3], 100 * b[1] / a[1] }'
    ;;
esac
case $parts in *bytes*)
    up 2 "${rate}mbit"
    printf '%-2s %18s %18s %18s\n' S "intra-node bytes" "inter-node bytes" "bytes over links"
    for s in 1 4; do
        # shellcheck disable=SC2046,SC2183
        printf '%-2s %18.0f %18.0f %18.0f\n' "$s" $(case_row "sent $s" sent "$s")
    done
    ;;
esac
