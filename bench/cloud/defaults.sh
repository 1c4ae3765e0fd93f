#!/usr/bin/env bash
# SPDX-FileCopyrightText: The mics authors
# SPDX-License-Identifier: Apache-2.0
#
# usage: bench/cloud/defaults.sh     MiCS with everything at its default beside ZeRO-3 at its best; needs root
#
# ROUNDS rounds, each of which runs every case once, in turns; then tables of medians over rounds with their ranges, of
# ratios within a round, and bytes.sh. Names of shardings are lib.sh's: mics(2) has its degrees and defaults, auto
# defaults alone, zero3-ring is ZeRO-3 as other systems run it. Parts:
#
#   steps    4 nodes x 2 ranks, 1 Gbit/s, 13 million parameters, micro-batches of 4 tokens, 4 micro-steps
#   small    the same with links of 250 Mbit/s, which 4 nodes on the cores of one should have (dilation; see weak.sh);
#            zero3-ring with the prefetch that is its best in `steps`
#   large    as small, with micro-batches of 192 tokens
#   weak4, weak16   8 nodes x 2, 125 Mbit/s, 3 million parameters, 4 and 16 micro-steps; the micro-batch leaves
#            zero3-ring SHARE percent. In weak16 that takes a minute, so it is in every second
#            round alone. `apart`: 8 nodes that train at once, each for itself, without a network
#   bytes    the links' counters beside the ledger, in every mode
#
# The hop's bound is max(0, LINK - COMPUTE) + UNIT: the time on a node's link of what a step sends between nodes beside
# gathers, less all computation of that step, and the time on the link of the largest unit (ledger_of and hop_of of
# lib.sh). For mics(2) that is the second hop; where gradients are reduced between nodes or a parameter sync follows the
# update, these are part of it, so one bound holds for whatever auto takes. Where parameters are gathered between nodes
# too, as zero3 does, the table has no figures ("-"). "exposed" is of the rank that waits least: ranks which share cores
# end their computation at different times, and the others wait for the last as well; "rank 0" is an example.
#
# All takes some 40 minutes. No case begins after SECONDS_MAX seconds; the tables are of what there is. With RESULTS a
# next call goes on.
#
#   PARTS="steps small large weak4 weak16 bytes"   ROUNDS=5   SECONDS_MAX=2400   SHARE=37
#   STEPS_SHARDINGS="..."   of steps; HOP_SHARDINGS="..." of small and large; WEAK_SHARDINGS="..." of weak4 and weak16
#   SETTINGS="key=value ..."   of the run file, for all runs
#   RESULTS=FILE               keeps figures, and takes those that it has
. "$(dirname "$0")/lib.sh"
read -ra parts <<<"${PARTS:-steps small large weak4 weak16 bytes}"
read -ra settings <<<"${SETTINGS:-}"
read -ra of_steps <<<"${STEPS_SHARDINGS:-zero3-ring@1 zero3-ring@2 zero3-ring@4 zero3 mics(2) auto}"
read -ra of_hop <<<"${HOP_SHARDINGS:-zero3-ring@4 mics(2) auto}"
read -ra of_weak <<<"${WEAK_SHARDINGS:-apart zero3-ring mics(2) auto}"
open_results "per_node $per_node share ${SHARE:-37}, hops of the rank that waits least ${settings[*]-}"

# Leaves what a part runs on in nodes_of, mbit, micro_steps and shape, and its shardings in `cases`.
take_part() { # PART
    shape=(data.sequence_length=4) nodes_of=4 mbit=250 micro_steps=4 cases=("${of_hop[@]}")
    case $1 in
    steps) mbit=1000 cases=("${of_steps[@]}") ;;
    small) ;;
    large) shape=(data.sequence_length=64 train_micro_batch_size_per_gpu=3) ;;
    weak*)
        nodes_of=8 mbit=125 micro_steps=${1#weak} cases=("${of_weak[@]}")
        shape=("${weak_shape[@]}")
        ;;
    esac
}

# Steps of a run, the first two and the last of which are left out (median): few where one takes long. Of ZeRO-3, whose
# second and last step are like the others, two do.
steps_of() { # PART SHARDING
    case $1/$2 in
    */zero3-ring*) echo 2 ;;
    weak16/*) echo 4 ;;
    steps/*) echo 7 ;;
    *) echo 5 ;;
    esac
}

# A row: tokens/s, step_ms, exposed ms, MiB of a rank, and of the hop: exposed, LINK, COMPUTE, UNIT, MEMBER, rank 0's.
measure() { # PART SHARDING
    local kind=$2 node steps
    steps=$(steps_of "$1" "$2")
    take_part "$1"
    local all=("run.steps=$steps" "${shape[@]}" ${settings[@]+"${settings[@]}"})
    if [ "$kind" = apart ]; then
        "$cloud" down && standing=
        train_apart "$nodes_of" run "mics($per_node)" "$micro_steps" "${all[@]}" || return 1
        for ((node = 0; node < nodes_of; node++)); do
            echo "$(median "run$node" tokens_per_s) $(median "run$node" step_ms) $(median "run$node" exposed_comm_ms)"
        done | awk -v mib="$(mib_of run0)" '{ rate += $1; step += $2; waited += $3 }
            END { print rate, step / NR, waited / NR, mib, "- - - - - -" }'
        return
    fi
    [ "$kind" != zero3-ring ] || kind=zero3-ring@$units
    up "$nodes_of" "${mbit}mbit"
    # shellcheck disable=SC2046
    train run "$kind" "$micro_steps" "${all[@]}" $(tracing "$steps") || return 1
    echo "$(median run tokens_per_s) $(median run step_ms) $(median run exposed_comm_ms) $(mib_of run)" \
        "$(hop_of run "$mbit")"
}

# Leaves the weak parts' settings in weak_shape, and what zero3-ring gathers ahead there in `units`.
take_weak_shape() {
    local model=model.config=bench/cloud/gpt2-3m.json found
    found=$(case_row shape shape_of_share 8 "${SHARE:-37}" 1000 64 "$model" ${settings[@]+"${settings[@]}"})
    read -ra found <<<"$found"
    weak_shape=("$model" "train_micro_batch_size_per_gpu=${found[0]}" "data.sequence_length=${found[1]}")
    units=${found[2]}
    echo "weak4, weak16: micro-batches of ${found[0]} x ${found[1]} tokens; zero3-ring gathers $units units ahead"
}

time_is_left() {
    [ "$SECONDS" -lt "${SECONDS_MAX:-2400}" ]
}

run_rounds() { # PART...: rows "PART SHARDING ROUND FIGURES" in $work/rows
    local round part kind row
    for round in $(seq "${ROUNDS:-5}"); do
        for part in "$@"; do
            take_part "$part"
            for kind in "${cases[@]}"; do
                [ "$part/$kind" != weak16/zero3-ring ] || [ $((round % 2)) = 1 ] || continue
                row=$(kept_row "$part $kind $round") || {
                    time_is_left || continue
                    row=$(measure "$part" "$kind") || { echo "$part $kind: failed, left out" >&2 && continue; }
                    [ -z "$results" ] || echo "$part $kind $round|$row" >>"$results"
                }
                echo "$part $kind $round $row" | tee -a "$work/rows" >&2
            done
        done
    done
}

grep -m 1 'model name' /proc/cpuinfo
weak_shape=() units=2
case " ${parts[*]}" in *" weak"*) take_weak_shape ;; esac
: >"$work/rows"
timed=()
for part in "${parts[@]}"; do
    [ "$part" = bytes ] || timed+=("$part")
done
run_rounds ${timed[@]+"${timed[@]}"}
awk -f bench/cloud/defaults.awk "$work/rows"
time_is_left || echo "the time of SECONDS_MAX is over; with RESULTS a next call measures what is missing" >&2
case " ${parts[*]} " in *" bytes "*) ! time_is_left || "$(dirname "$0")/bytes.sh" ;; esac
