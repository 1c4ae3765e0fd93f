# SPDX-FileCopyrightText: The mics authors
# SPDX-License-Identifier: Apache-2.0
# What the benches on the emulated cloud share. Sourced; needs root, for tools/cloud.
# shellcheck shell=bash disable=SC2034,SC2154
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

# Shardings are called as in docs/architecture.md, and "auto" is the one that the program chooses. A name alone sets the
# degrees and leaves all else at its default. "NAME:4" has four micro-batches in flight (run.layered_micro_steps), and
# "NAME@2" gathers two units ahead (run.prefetch). "zero3-ring" is ZeRO-3 as other systems run it: rings over all ranks,
# one micro-batch after the other. "outer(30,int8)" are local steps of 30 between meetings, whose changes are int8 (left
# out: fp32); each node is an island of mics(PER_NODE), and its units meet one after the other all through the period.

# P, G and O of a member of the family on the standing cloud, as settings of a run file; none of "auto".
sharding() { # NAME
    local degrees
    case $1 in
    auto) return ;;
    ddp) degrees="1 1 1" ;;
    zero1) degrees="1 1 $ranks" ;;
    zero2) degrees="1 $ranks $ranks" ;;
    zero3 | zero3-ring) degrees="$ranks $ranks $ranks" ;;
    'mics('*) degrees=${1#mics(} && degrees=${degrees%)} && degrees="$degrees $degrees $degrees" ;;
    'mics+('*) degrees=${1#mics+(} && degrees=${degrees%)} && degrees="$degrees $degrees $ranks" ;;
    'hpz('*) degrees=${1#hpz(} && degrees="${degrees%)} $ranks $ranks" ;;
    'outer('*) degrees="$per_node $per_node $per_node" ;;
    *) echo "unknown sharding $1" >&2 && return 2 ;;
    esac
    # shellcheck disable=SC2086
    set -- $degrees
    echo "--set sharding.params=$1 --set sharding.grads=$2 --set sharding.optimizer=$3"
}

# outer(EVERY[,DTYPE]) as a setting of a run file.
outer_of() { # NAME
    local name=${1#outer(}
    name=${name%)}
    local every=${name%%,*} dtype=fp32
    case $name in *,*) dtype=${name#*,} ;; esac
    printf '{"every":%d,"ranks":%d,"dtype":"%s","fragments":2,"overlap_steps":%d}' "$every" "$per_node" "$dtype" \
        $((every / 2))
}

# All settings that a name stands for.
settings_of() { # NAME[:MICRO_STEPS][@UNITS]
    local kind=${1%%[:@]*} name=$1
    sharding "$kind" || return
    case $name in *@*) echo "--set run.prefetch=${name##*@}" ;; esac
    name=${name%@*}
    [ "$kind" != zero3-ring ] || name=zero3-ring:1
    case $name in *:*) echo "--set run.layered_micro_steps=${name##*:}" ;; esac
    [ "$kind" != zero3-ring ] || echo "--set run.collectives=ring"
    case $kind in 'outer('*) echo "--set outer=$(outer_of "$kind")" ;; esac
}

# Leaves in `command` what trains.
command_for() { # NAME SHARDING MICRO_STEPS [SETTING...]: settings are key=value
    local setting words
    rm -rf "${work:?}/$1"
    words=$(settings_of "$2") || return
    # shellcheck disable=SC2206
    command=("$mics" train bench/cloud/run.json --out "$work/$1" --resume none $words
        --set gradient_accumulation_steps="$3" --set run.checkpoint_every=0)
    for setting in "${@:4}"; do
        command+=(--set "$setting")
    done
}

# Trains on the standing cloud. Leaves metrics.jsonl in $work/NAME, the bytes over all links in $work/NAME/links, and
# those without the headers of Ethernet, IP and TCP with its time stamp, 66 bytes of each packet, in $work/NAME/payload.
train() { # NAME SHARDING MICRO_STEPS [SETTING...]
    command_for "$@" || return
    "$cloud" reset
    "$cloud" run -r "$per_node" "${command[@]}" >"$work/$1.log" 2>&1 || { tail -n 5 "$work/$1.log" >&2 && return 1; }
    "$cloud" stats --json | sed 's/.*"sent_packets": \([0-9]*\), "sent_bytes": \([0-9]*\)}$/\2 \1/' |
        tee >(awk '{ printf "%.0f\n", $1 - 66 * $2 }' >"$work/$1/payload") | cut -d' ' -f1 >"$work/$1/links"
}

# Trains on nodes that have nothing to do with each other, all at once, each a cloud of its own. Leaves
# metrics.jsonl in $work/NAME0, $work/NAME1 ... Jobs of a script do not hear an interrupt from the terminal;
# tools/cloud does end on TERM.
train_apart() { # NODES NAME SHARDING MICRO_STEPS [SETTING...]
    local node jobs=() status=0
    trap 'kill -TERM "${jobs[@]}" 2>/dev/null || true; wait; exit 130' INT TERM
    for ((node = 0; node < $1; node++)); do
        command_for "$2$node" "${@:3}" || return
        CLOUD=${CLOUD:0:12}n${node}n "$cloud" with 1 none -r "$per_node" "${command[@]}" >"$work/$2$node.log" 2>&1 &
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

# The median of a field of metrics.jsonl over the steps that are like any other of a long run. Where n > O, the first has
# no replica gathers; the second has the first updates, for which the system first finds the memory of the moments, which
# takes as long as a step or more; and the last has replica gathers of the step before and its own. So of four steps or
# more the first two and the last are left out, of three the first and the last, of two the first.
median() { # NAME FIELD
    awk -v field="\"$2\": " '/"step_ms"/ {
            at = index($0, field)
            if (at) { split(substr($0, at + length(field)), rest, /[,}]/); value[++steps] = rest[1] }
        } END { for (i = steps > 3 ? 3 : 2; i <= (steps > 2 ? steps - 1 : steps); i++) print value[i] }' \
        "$work/$1/metrics.jsonl" | spread | cut -d' ' -f1
}

# The most memory that a rank held, MiB.
mib_of() { # NAME
    awk -v bytes="$(median "$1" memory_peak_bytes)" 'BEGIN { printf "%.1f\n", bytes / 1048576 }'
}

# The sum of a field over all steps.
total() { # NAME FIELD
    awk -v field="\"$2\": " '/"step_ms"/ {
            at = index($0, field)
            if (at) { split(substr($0, at + length(field)), rest, /[,}]/); sum += rest[1] }
        } END { printf "%.0f\n", sum }' "$work/$1/metrics.jsonl"
}

# What the schedule of a run that ended sends between nodes in a step: "BYTES HOP UNIT". HOP are the bytes of all but
# gathers, all-to-alls and the agreement: gradients on their way to the optimizer shards, and what comes back of them.
# UNIT are those of HOP that the largest unit sends last: its way there in the last layered group, and its way back.
# Ranks are the standing cloud's.
ledger_of() { # NAME
    "$mics" explain "$work/$1/resolved.json" --ranks "$ranks" --nodes "$nodes" --json 2>/dev/null | awk '
        # Of a line: the value behind a key, from a place on.
        function behind(key, from,    at) {
            at = index(substr($0, from), "\"" key "\": ")
            return at ? substr($0, from + at + length(key) + 3) + 0 : 0
        }
        # Of a line: what the kinds of a name, in all their stages, send between nodes.
        function sent(kinds,    rest, sum) {
            rest = $0
            while (match(rest, "\"(" kinds ")( intra| inter)?\": \\{\"intra\": [0-9]*, \"inter\": ")) {
                rest = substr(rest, RSTART + RLENGTH)
                sum += rest + 0
            }
            return sum + 0
        }
        /^ *"parameters": [0-9]/ { elems = behind("parameters", 1) }
        /"max_elems"/ { most = behind("max_elems", 1) > most ? behind("max_elems", 1) : most }
        /^ *"layered": / {
            groups = int((behind("of", 1) + behind("micro_steps", 1) - 1) / behind("micro_steps", 1))
        }
        /"sent_bytes"/ {
            all = sent("all")
            hop = all - sent("gather|all-to-all|agree")
            reduced = sent("reduce")
        }
        END {
            last = hop - (groups > 1 ? reduced * (1 - 1 / groups) : 0)
            printf "%.0f %.0f %.0f\n", all, hop, elems ? last * most / elems : 0
        }'
}

# Settings with which a run of so many steps traces those that median() counts.
tracing() { # STEPS
    local first=$(($1 > 3 ? 3 : $1 > 1 ? 2 : 1)) last=$(($1 > 2 ? $1 - 1 : $1))
    echo "run.trace_step=$first run.trace_steps=$((last - first + 1))"
}

# How much a traced run waited for what ledger_of calls HOP, beside the least that can be had: "EXPOSED LINK COMPUTE UNIT
# MEMBER FIRST", in ms, where MEMBER is P|G|O. A node's link is busy for LINK with it, a step computes for COMPUTE, and
# UNIT of LINK is the largest unit's; so at least max(0, LINK - COMPUTE) is exposed, and what the last unit sends.
# EXPOSED is the wait for the second hop; for reductions, where gradients are reduced between nodes; and for parameters,
# where a parameter sync brings them. EXPOSED and COMPUTE are of the rank that waits least in all: it computes longest,
# so nobody keeps it waiting, and links alone do. The others wait for it too, since ranks that share cores never end
# together; FIRST is what rank 0 waits, which metrics.jsonl has. Where parameters are gathered between nodes, gathers are
# on the link too, and waits for them cannot be told from the others': there the figures are "-".
hop_of() { # NAME MBIT
    local bytes field fields=(exposed exposed_second_hop exposed_reduce exposed_gather compute_busy)
    read -ra bytes <<<"$(ledger_of "$1")"
    for field in "${fields[@]}"; do
        sed -n "s/^\"${field}_us_by_rank\": \[\(.*\)\],*$/\1/p" "$work/$1/trace.json" | tr -d ,
    done | awk -v hop="${bytes[1]}" -v unit="${bytes[2]}" -v nodes="$nodes" -v mbit="$2" -v mesh="$(mesh_of "$1")" \
        -v per_node="$per_node" '
        { for (rank = 1; rank <= NF; rank++) us[NR, rank] = $rank }
        END {
            split(mesh, degrees, " ")
            member = degrees[1] "|" degrees[2] "|" degrees[3]
            if (degrees[1] > per_node) {
                print "- - - -", member, "-"
                exit
            }
            for (rank = least = 1; rank <= NF; rank++) {
                if (us[1, rank] < us[1, least]) least = rank
                waited[rank] = us[2, rank] + (degrees[2] > per_node ? us[3, rank] : 0) + \
                    (degrees[3] > degrees[1] ? us[4, rank] : 0)
            }
            ms = 8 / nodes / mbit / 1000
            printf "%.1f %.1f %.1f %.1f %s %.1f\n", waited[least] / 1e3, hop * ms, us[5, least] / 1e3, unit * ms, member,
                waited[1] / 1e3
        }'
}

# P, G and O of a run that ended.
mesh_of() { # NAME
    "$mics" explain "$work/$1/resolved.json" --ranks "$ranks" --nodes "$nodes" --json 2>/dev/null |
        sed -n 's/.*"mesh": {.*"params": \([0-9]*\), "grads": \([0-9]*\), "optimizer": \([0-9]*\),.*/\1 \2 \3/p'
}

# The shape of a micro-batch with which zero3-ring over so many nodes keeps SHARE percent of the tokens/s of one, by
# short runs: "SEQUENCES LENGTH UNITS". Its links, which computation does not slow, take as long whatever the shape is.
# UNITS is the run.prefetch of 1, 2 and 4 that was the fastest. What else the machine does only slows a run down, so the
# faster of two runs on one node counts.
shape_of_share() { # NODES SHARE MBIT LENGTH SETTING...
    local shape=("data.sequence_length=$4" train_micro_batch_size_per_gpu=6 "${@:5}") alone units ms best=
    up 1 "${3}mbit"
    alone=$(for _ in 1 2; do
        train run "mics($per_node)" 4 run.steps=8 "${shape[@]}" || exit 1
        median run tokens_per_s
    done | sort -g | tail -n 1)
    up "$1" "$(($3 / $1))mbit"
    for units in 1 2 4; do
        train run "zero3-ring@$units" 2 run.steps=3 "${shape[@]}" || return 1
        ms=$(median run step_ms)
        best=$(printf '%s\n' "$ms $units" "$best" | grep . | sort -g | head -n 1)
    done
    awk -v share="$2" -v alone="$alone" -v best="$best" -v ranks=$((per_node * $1)) -v most="$4" 'BEGIN {
        split(best, b, " ")
        tokens = share / 100 * alone * b[1] / 1000 / 2 / ranks
        sequences = int((tokens + most - 1) / most)
        if (sequences < 1) sequences = 1
        print sequences, int(tokens / sequences), b[2]
    }'
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
    train shape 'mics(2):1' 2 run.steps=11 run.trace_step=2 run.trace_steps=10 run.prefetch=0 \
        run.share_params=false "data.sequence_length=$1" "${@:2}" || return 1
    read -ra ms <<<"$(micro_step_ms shape 2)"
    echo "shape: with $1 tokens a micro-step computes for ${ms[0]} ms and gathers for ${ms[1]} ms inside a node"
}

# Rows of cases that were measured before, in the file RESULTS if that is set: a line for the settings, and
# "KEY|ROW" for each case. Other settings are refused.
results=${RESULTS:-}
open_results() { # SETTINGS...
    set -- "$*"
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
