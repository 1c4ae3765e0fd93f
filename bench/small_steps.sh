#!/usr/bin/env bash
# SPDX-FileCopyrightText: The mics authors
# SPDX-License-Identifier: Apache-2.0
#
# usage: bench/small_steps.sh MICS     what small steps cost beside their kernels, and the start of a run, by phase
#
# Steps: those of examples/demo.json, RANKS ranks as threads. `kernels` is the CPU time of a step of one rank alone with one
# thread, which has neither messages nor threads to wait for, times RANKS. What else the ranks used, and what stood idle, is
# `overhead`. A run counts for SECONDS_EACH, from its 20th step on, and is then ended. Both run in turn; medians of ROUNDS.
# Where other processes compute, cores are not idle: look at user and system then.
#
# Start: seconds from the command to its first word (libraries loaded), to the line about the model (files read, schedule made),
# and to the end of the first step; the last column is that step alone. LARGE=1: also of GPT-2 124M, which takes 3 GiB.
#
#   ROUNDS=5   SECONDS_EACH=4   RANKS=4   NODES=2   LARGE=
set -eu
mics=$(realpath "$1")
rounds=${ROUNDS:-5} seconds=${SECONDS_EACH:-4} ranks=${RANKS:-4} nodes=${NODES:-2}
cd "$(dirname "$0")/.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
common=(train examples/demo.json --set run.validation_batches=0 --set run.checkpoint_every=0 --set run.threads=1)
alone=(--set zero_optimization.stage=0 --set zero_optimization.mics_shard_size=-1)

median() { sort -n | awk '{ x[NR] = $1 } END { printf "%.2f", x[int((NR + 1) / 2)] }'; }
used() { # PID: ticks of user and system time, switches, steps; ticks of all cores, and of those idle
    # shellcheck disable=SC2046 # words
    set -- "$1" $(sed 's/.*) //' "/proc/$1/stat")
    echo "${13} ${14} $(cat "/proc/$1/task/"*/status | awk '/ctxt_switches/ { n += $2 } END { print n }')" \
        "$(grep -c '"loss"' "$work/out/metrics.jsonl")" \
        "$(awk '/^cpu / { for (i = 2; i <= 9; i++) all += $i; print all, $5 + $6 }' /proc/stat)"
}
steps() { # NAME ARGUMENT...: of a step, ms of user, system and idle time and of all cores; switches; appended to $work/NAME
    local name=$1 pid before
    shift
    rm -rf "$work/out"
    "$mics" "${common[@]}" --out "$work/out" --steps 1000000 "$@" >"$work/printed" 2>&1 &
    pid=$!
    until [ -e "$work/out/metrics.jsonl" ] && [ "$(grep -c '"loss"' "$work/out/metrics.jsonl")" -ge 20 ]; do
        kill -0 $pid 2>/dev/null || { cat "$work/printed"; exit 1; }
        sleep 0.1
    done
    before=$(used $pid)
    sleep "$seconds"
    echo "$before $(used $pid) $(getconf CLK_TCK)" |
        awk '{ n = $10 - $4; ms = 1000 / $13 / n; print ($7 - $1) * ms, ($8 - $2) * ms, ($12 - $6) * ms, ($11 - $5) * ms, ($9 - $3) / n }' \
            >>"$work/$name"
    kill -KILL $pid
    wait $pid 2>/dev/null || true
}
for ((round = 0; round < rounds; round++)); do
    steps alone "${alone[@]}"
    steps all --ranks "$ranks" --nodes "$nodes"
done
column() { awk -v c="$2" '{ print $c }' "$work/$1" | median; }
sed -n 's/^model name.*: /CPU: /p;' /proc/cpuinfo | head -n 1
awk -v cores="$(nproc)" -v ranks="$ranks" -v user="$(column all 1)" -v sys="$(column all 2)" -v idle="$(column all 3)" \
    -v all="$(column all 4)" -v switches="$(column all 5)" -v one="$(awk '{ print $1 + $2 }' "$work/alone" | median)" 'BEGIN {
    kernels = one * ranks; overhead = user + sys + idle - kernels
    printf "a step of %d ranks on %d cores: %.2f ms, %.0f switches between threads\n", ranks, cores, all / cores, switches
    printf "time of the cores, ms: user %.2f, system %.2f, idle %.2f, other processes %.2f\n", user, sys, idle, all - user - sys - idle
    printf "kernels %.2f, overhead %.2f (%.0f %% of the kernels)\n", kernels, overhead, 100 * overhead / kernels }'

start() { # NAME ARGUMENT...
    local name=$1 pid began line first=- model=- ms=- loaded
    shift
    rm -rf "$work/out"
    began=$EPOCHREALTIME
    "$mics" --version >"$work/printed"
    loaded=$(awk -v a="$began" -v b="$EPOCHREALTIME" 'BEGIN { printf "%.3f", b - a }')
    rm -f "$work/lines"
    mkfifo "$work/lines"
    began=$EPOCHREALTIME
    "$mics" "$@" --out "$work/out" --steps 100 --set run.validation_batches=0 >"$work/lines" 2>&1 &
    pid=$!
    while read -r line; do
        case $line in
        model*) model=$EPOCHREALTIME ;;
        step\ 1/*) first=$EPOCHREALTIME ms=${line%% ms/step*} ms=${ms##* } && break ;;
        esac
    done <"$work/lines"
    kill -KILL $pid
    wait $pid 2>/dev/null || true
    awk -v name="$name" -v l="$loaded" -v a="$began" -v m="$model" -v f="$first" -v ms="$ms" \
        'BEGIN { printf "%-24s %10s %10.3f %10.3f %12.3f\n", name, l, m - a, f - a, ms / 1000 }'
}
printf '\n%-24s %10s %10s %10s %12s\n' 'start, s' loaded model 'first step' 'of it, step'
start 'demo, 1 rank' "${common[@]}" "${alone[@]}"
start "demo, $ranks ranks" "${common[@]}" --ranks "$ranks" --nodes "$nodes"
if [ -n "${LARGE:-}" ]; then
    start 'GPT-2 124M, 1 rank' train examples/demo.json "${alone[@]}" --set model.config=configs/gpt2.json
fi
