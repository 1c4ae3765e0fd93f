#!/usr/bin/env bash
# SPDX-FileCopyrightText: The mics authors
# SPDX-License-Identifier: Apache-2.0
#
# usage: bench/cloud/experts.sh [NODES...]     tokens to experts, or experts to tokens, on an emulated cloud; needs root
#
# On NODES (2 4) x 2 ranks, mics(2): two mixtures, with E = 1, where each rank gathers all experts, and E = 2, where tokens
# travel to them inside the node. "large" has 16 large experts a layer and few tokens, "small" has 4 small ones and many.
# `mics bench` writes a cluster file for each first. Prints the measured step and what `mics plan` says of it, the bytes that were
# sent beside the plan's, and which E each puts first. ROUNDS are alternated; steps are medians. Some 4 minutes.
#
#   RATE_MBIT=4000  MICRO_STEPS=4  STEPS=8  ROUNDS=2
#   SECONDS_EACH=10     of each of four benches
#   RESULTS=FILE        keeps measured steps there, and cluster files in FILE.MIXTURE.json, and takes those that are there
. "$(dirname "$0")/lib.sh"
[ $# -gt 0 ] || set -- 2 4
rate=${RATE_MBIT:-4000} micro_steps=${MICRO_STEPS:-4} steps=${STEPS:-8} rounds=${ROUNDS:-2} seconds=${SECONDS_EACH:-10}
open_results "per_node $per_node rate $rate micro_steps $micro_steps steps $steps seconds $seconds"
grep -m 1 'model name' /proc/cpuinfo

settings_of_mixture() { # MIXTURE E
    local length=256
    [ "$1" = small ] || length=16
    echo "model.config=bench/cloud/mixture-$1.json data.sequence_length=$length sharding.experts=$2 run.prefetch=1"
}

cluster_of() { # MIXTURE
    echo "${results:-$work/cluster}.$1.json"
}

bench() { # KIND NODES ARGUMENTS...
    up "$2" "${rate}mbit"
    "$cloud" run -r "$per_node" "$mics" bench "$1" "${@:3}" --threads 1 --seconds "$seconds" >"$work/bench.log" 2>&1 ||
        { tail -n 5 "$work/bench.log" >&2 && return 1; }
}

calibrate() { # MIXTURE NODES: its cluster file, unless it is there
    local file word words=()
    file=$(cluster_of "$1")
    kept_row "cluster $1 $2" >/dev/null && [ -s "$file" ] && return 0
    rm -f "$file"
    for word in $(settings_of_mixture "$1" 1); do
        words+=(--set "$word")
    done
    bench compute 2 bench/cloud/run.json "${words[@]}" --out "$file" || return 1
    bench comm "$2" --out "$file" || return 1
    case_row "cluster $1 $2" echo "$file" >/dev/null
}

measure() { # MIXTURE E: prints "STEP_MS INTRA INTER", bytes of a step
    local words
    read -ra words <<<"$(settings_of_mixture "$1" "$2")"
    train run 'mics(2)' "$micro_steps" "run.steps=$steps" "${words[@]}" || return 1
    echo "$(median run step_ms) $(median run sent_intra_bytes) $(median run sent_inter_bytes)"
}

planned() { # MIXTURE E: the same of the run file's own plan
    local word words=()
    for word in $(settings_of_mixture "$1" "$2"); do
        words+=(--set "$word")
    done
    # shellcheck disable=SC2046
    "$mics" plan bench/cloud/run.json --cluster "$(cluster_of "$1"):$nodes" --precision fp32 --json $(settings_of 'mics(2)') \
        "${words[@]}" --set gradient_accumulation_steps="$micro_steps" 2>/dev/null | grep '^ *"run_file"' |
        sed 's/.*"step_ms": \([0-9.]*\),.*"sent_intra_bytes": \([0-9]*\), "sent_inter_bytes": \([0-9]*\),.*/\1 \2 \3/'
}

most=$(printf '%s\n' "$@" | sort -n | tail -n 1)
for mixture in large small; do
    calibrate "$mixture" "$most"
done
printf '%-6s %-6s %-2s %12s %12s %8s %28s %28s\n' nodes experts E "measured ms" "planned ms" error \
    "intra-node bytes, plan" "inter-node bytes, plan"
for n in "$@"; do
    up "$n" "${rate}mbit"
    for mixture in large small; do
        : >"$work/1" && : >"$work/2"
        for round in $(seq "$rounds"); do
            for e in 1 2; do
                case_row "$n $mixture $e $round" measure "$mixture" "$e" >>"$work/$e"
            done
        done
        for e in 1 2; do
            ms=$(cut -d' ' -f1 "$work/$e" | spread | cut -d' ' -f1)
            echo "$n $mixture $e $ms $(tail -n 1 "$work/$e" | cut -d' ' -f2-) $(planned "$mixture" "$e")"
        done | tee "$work/rows" | awk '{
            printf "%-6s %-6s %-2s %12.1f %12.1f %7.1f%% %13.0f, %13.0f %13.0f, %13.0f\n", $1, $2, $3, $4, $7,
                100 * ($7 - $4) / $4, $5, $8, $6, $9 }'
        awk '{ measured[$3] = $4; planned[$3] = $7 } END {
            printf "       E = 2 takes %.2f times the step of E = 1, planned %.2f: %s\n", measured[2] / measured[1],
                planned[2] / planned[1],
                (measured[2] < measured[1]) == (planned[2] < planned[1]) ? "the same E is first" : "another E is first" }' \
            "$work/rows"
    done
done
