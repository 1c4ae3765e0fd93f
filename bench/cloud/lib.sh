# SPDX-FileCopyrightText: The mics authors
# SPDX-License-Identifier: Apache-2.0
# What the benches on the emulated cloud share. Sourced; needs root, for tools/cloud.
# shellcheck disable=SC2034,SC2154
#
#   BUILD=build-dir     where the program is (build)
#   KEEP=1              leaves the runs' folders behind
#   PER_NODE=2          ranks of a node
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
cloud=$PWD/tools/cloud
mics=$PWD/${BUILD:-build}/mics
case ${BUILD:-} in /*) mics=$BUILD/mics ;; esac
export CLOUD=${CLOUD:-bench$$}
per_node=${PER_NODE:-2}

[ -x "$mics" ] || { echo "no program at $mics; build first: make" >&2; exit 1; }
"$cloud" check >/dev/null
work=$(mktemp -d)
trap '"$cloud" down; [ -n "${KEEP:-}" ] || rm -rf "$work"' EXIT

# The cloud of the next runs; one that stands and is the same stays.
up() { # NODES RATE
    [ "${standing:-}" = "$*" ] && return
    "$cloud" down
    "$cloud" up "$1" "$2"
    nodes=$1 ranks=$(($1 * per_node)) standing="$*"
}

# Shardings are called as in docs/architecture.md; "NAME:4" has four micro-batches in flight (run.layered_micro_steps).

# P, G and O of a member of the family on the standing cloud, as settings of a run file.
sharding() { # NAME
    local degrees
    case $1 in
    ddp) degrees="1 1 1" ;;
    zero1) degrees="1 1 $ranks" ;;
    zero2) degrees="1 $ranks $ranks" ;;
    zero3 | zero3-two-stage) degrees="$ranks $ranks $ranks" ;;
    'mics('*) degrees=${1#mics(} && degrees=${degrees%)} && degrees="$degrees $degrees $degrees" ;;
    'mics+('*) degrees=${1#mics+(} && degrees=${degrees%)} && degrees="$degrees $degrees $ranks" ;;
    'hpz('*) degrees=${1#hpz(} && degrees="${degrees%)} $ranks $ranks" ;;
    *) echo "unknown sharding $1" >&2 && return 2 ;;
    esac
    # shellcheck disable=SC2086
    set -- $degrees
    echo "--set sharding.params=$1 --set sharding.grads=$2 --set sharding.optimizer=$3"
}

layered_of() { # NAME
    case $1 in
    *:*) echo "${1##*:}" ;;
    *) echo 1 ;;
    esac
}

# Leaves in `command` what trains.
command_for() { # NAME SHARDING MICRO_STEPS [SETTING...]: settings are key=value
    local setting
    rm -rf "${work:?}/$1"
    # shellcheck disable=SC2207
    command=("$mics" train bench/cloud/run.json --out "$work/$1" --resume none $(sharding "${2%:*}")
        --set gradient_accumulation_steps="$3" --set run.checkpoint_every=0 --set run.layered_micro_steps="$(layered_of "$2")")
    # Rings over all ranks are what ZeRO-3 has elsewhere; two stages are ours.
    command+=(--set run.collectives="$([ "${2%:*}" = zero3 ] && echo ring || echo two-stage)")
    for setting in "${@:4}"; do
        command+=(--set "$setting")
    done
}

# Trains on the standing cloud. Leaves metrics.jsonl in $work/NAME, and the bytes over all links in
# $work/NAME/links.
train() { # NAME SHARDING MICRO_STEPS [SETTING...]
    command_for "$@"
    "$cloud" reset
    "$cloud" run -r $per_node "${command[@]}" >"$work/$1.log" 2>&1 || { tail -n 5 "$work/$1.log" >&2 && return 1; }
    "$cloud" stats --json | sed 's/.*"sent_bytes": \([0-9]*\)}$/\1/' >"$work/$1/links"
}

# Trains on nodes that have nothing to do with each other, all at once, each a cloud of its own. Leaves metrics.jsonl in
# $work/NAME0, $work/NAME1 ... Jobs of a script do not hear an interrupt from the terminal; tools/cloud does end on TERM.
train_apart() { # NODES NAME SHARDING MICRO_STEPS [SETTING...]
    local node jobs=() status=0
    trap 'kill -TERM "${jobs[@]}" 2>/dev/null || true; wait; exit 130' INT TERM
    for ((node = 0; node < $1; node++)); do
        command_for "$2$node" "${@:3}"
        CLOUD=${CLOUD:0:12}n${node}n "$cloud" with 1 none -r $per_node "${command[@]}" >"$work/$2$node.log" 2>&1 &
        jobs+=($!)
    done
    for ((node = 0; node < $1; node++)); do
        wait "${jobs[node]}" || { status=1 && tail -n 5 "$work/$2$node.log" >&2; }
    done
    trap - INT TERM
    return $status
}

# A figure of trace.json's otherData.
traced() { # NAME FIELD
    grep -o "\"$2\": [-0-9.e+]*" "$work/$1/trace.json" | head -n 1 | sed 's/.*: //'
}

# Of numbers, a line each: their median, the least and the most.
spread() {
    sort -g | awk '{ value[NR] = $1 } END {
            if (NR)
                print (value[int((NR + 1) / 2)] + value[int(NR / 2) + 1]) / 2, value[1], value[NR]
        }'
}

# The median of a field of metrics.jsonl over all steps but the first.
median() { # NAME FIELD
    awk -v field="\"$2\": " '/"step_ms"/ && NR > 1 {
            at = index($0, field)
            if (at) { split(substr($0, at + length(field)), rest, /[,}]/); print rest[1] }
        }' "$work/$1/metrics.jsonl" | spread | cut -d' ' -f1
}

# The sum of a field over all steps.
total() { # NAME FIELD
    awk -v field="\"$2\": " '/"step_ms"/ {
            at = index($0, field)
            if (at) { split(substr($0, at + length(field)), rest, /[,}]/); sum += rest[1] }
        } END { printf "%.0f\n", sum }' "$work/$1/metrics.jsonl"
}

# What a micro-step of a traced run computes and gathers: two figures in ms, each entry of the schedule as short as it
# ever was on any rank, so that ranks which share cores do not count each other's work.
micro_step_ms() { # NAME MICRO_STEPS
    awk -v micro="$2" '/"ph": "X"/ {
            match($0, /"name": "[^"]*"/)
            name = substr($0, RSTART + 9, RLENGTH - 10)
            match($0, /"cat": "[^"]*"/)
            kind = substr($0, RSTART + 8, RLENGTH - 9)
            match($0, /"dur": [0-9.]*/)
            us = substr($0, RSTART + 7, RLENGTH - 7) + 0
            match($0, /"pid": [0-9]*/)
            ranks[substr($0, RSTART, RLENGTH)] = 1
            match($0, /"step": [0-9]*/)
            steps[substr($0, RSTART, RLENGTH)] = 1
            if (kind != "forward" && kind != "backward" && kind != "gather")
                next
            if (!(name in least) || us < least[name])
                least[name] = us
            count[name]++
            of[name] = (kind == "gather") ? "gather" : "compute"
        } END {
            n = m = 0
            for (rank in ranks) n++
            for (step in steps) m++
            for (name in least)
                sum[of[name]] += least[name] * count[name] / (n * m * micro)
            printf "%.2f %.2f\n", sum["compute"] / 1e3, sum["gather"] / 1e3
        }' "$work/$1/trace.json"
}

# Prints how computation compares with gathers inside a node, on one node; nothing else runs beside either. Gathers that
# copy, as between the GPUs of a node: ranks on processors share their parameters, and copy nothing.
show_shape() { # TOKENS SETTING...
    local ms
    up 1 1gbit
    train shape 'mics(2)' 2 run.steps=11 run.trace_step=2 run.trace_steps=10 run.prefetch=0 \
        run.share_params=false "data.sequence_length=$1" "${@:2}" || return 1
    read -ra ms <<<"$(micro_step_ms shape 2)"
    echo "shape: with $1 tokens a micro-step computes for ${ms[0]} ms and gathers for ${ms[1]} ms inside a node"
}

# Rows of cases that were measured before, in the file RESULTS if that is set: a line for the settings, and
# "KEY|ROW" for each case. Other settings are refused.
results=${RESULTS:-}
open_results() { # SETTINGS
    [ -n "$results" ] || return 0
    [ -s "$results" ] || echo "# $1" >"$results"
    [ "$(head -n 1 "$results")" = "# $1" ] ||
        { echo "$results is of other settings: $(head -n 1 "$results"); remove it" >&2 && return 1; }
}

# Prints the row that RESULTS has for a case, if there is one.
kept_row() { # KEY
    local row
    [ -n "$results" ] || return 1
    row=$(awk -v key="$1|" 'index($0, key) == 1 { print; exit }' "$results")
    [ -n "$row" ] && echo "${row#*|}"
}

# Prints a case's row: from RESULTS, or what the command prints, which is then kept.
case_row() { # KEY COMMAND...
    local row
    kept_row "$1" && return
    row=$("${@:2}") || return 1
    [ -z "$results" ] || echo "$1|$row" >>"$results"
    echo "$row"
}
