#!/usr/bin/env bash
# SPDX-FileCopyrightText: The mics authors
# SPDX-License-Identifier: Apache-2.0
# Calls that fail at random (failing_calls.c), one kind a run: of reads, writes, names, locks, memory,
# threads. A training that ends well has the undisturbed one's weights. Any other says why in a line of
# an error, with status 1 or 2. The same command without failures then comes to the undisturbed weights,
# from the step at least that was reported as saved. Other verbs that end well have made the same files,
# and printed the same words. Prints what was tried and what came of it.
#
#   failing_calls.sh MICS LIBRARY DISK [--seeds N] [--from SEED] [--way WAY] [--show]
#
# --show prints a line a seed. KEEP=1 leaves the folder of runs behind, and what a seed left in it that did not hold.
set -uo pipefail
source_dir=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
mics=$(readlink -f "${1:?"usage: failing_calls.sh MICS LIBRARY DISK [--seeds N] [--from SEED] [--way WAY] [--show]"}")
library=$(readlink -f "$2")
disk=$(readlink -f "$3") # slow_disk of tests/cli
shift 3
seeds=12 from=1 show=no only=
while [ $# -gt 0 ]; do
    case $1 in
    --seeds) seeds=$2 && shift ;;
    --from) from=$2 && shift ;;
    --way) only=$2 && shift ;;
    --show) show=yes ;;
    *) echo "failing_calls.sh: unknown option $1" >&2 && exit 2 ;;
    esac
    shift
done
set -- "$mics"
# shellcheck source=../cli/lib.sh
. "$source_dir/../cli/lib.sh"
mkdir shm texts
head -n 90 text.txt >texts/first.txt
tail -n +91 text.txt >texts/second.txt
sed -i -e 's|"text.txt"|"texts"|' -e 's|"seed": 3,|"seed": 3, "csv": "rows.csv", "tensorboard": "events",|' run.json
export MICS_SHM_DIR="$work/shm"

# One rank alone; two, with copies in node memory; two that begin with a model's folder, and read JSON Lines and a table. From
# the start; from a checkpoint, and to the same step. Then other verbs.
command_of() { # WAY OUT
    case $1 in
    one*) echo train run.json --ranks 1 --set sharding.params=1 --set sharding.grads=1 --set sharding.optimizer=1 --out "$2" ;;
    two*) echo train run.json --ranks 2 --nodes 2 --set run.memory_checkpoint_every=2 --out "$2" ;;
    tuned) echo train run.json --ranks 2 --model tuned --set model.init=tuned --data mixed/* --out "$2" ;;
    tokenize) echo tokenize mixed/* --out "$2/made.bin" ;;
    convert) echo convert straight-one "$2/made" ;;
    generate) echo generate straight-one --prompt lark --tokens 8 --seed 1 ;;
    eval) echo eval straight-one --data mixed/lines.jsonl ;;
    verify) echo verify straight-one ;;
    esac
}
ways=(one two one-resumed two-resumed tuned tokenize convert generate eval verify)
[ -z "$only" ] || ways=("$only")
go() { # WAY OUT
    # shellcheck disable=SC2046
    "$mics" $(command_of "$1" "$2") </dev/null
}

without_times() { # FILE
    sed 's/[0-9.]* \(s\|ms\|[a-z]*\/s\)\b//g' "$1"
}

# A folder that was copied is another run than its copies in node memory, so `out` itself stays.
put() { # WAY: what is there before a training
    rm -rf shm/* rows.csv* events
    find out -mindepth 1 -delete
    [ ! -d "half-$1" ] || cp -a "half-$1/out" "half-$1/shm" .
}

mkdir out mixed
sed 's/.*/{"text": "&"}/' texts/first.txt >mixed/lines.jsonl
sed -e '1i text' -e 's/.*/"&"/' texts/second.txt >mixed/table.csv
sed 's/"vocab_size": 256/"vocab_size": 450/' model.json >wide.json
"$mics" train run.json --ranks 2 --steps 1 --out wide --model wide.json --tokenizer "$golden/tokenizer/digits.json" \
    >newest.out 2>newest.err && "$mics" convert wide tuned >newest.out 2>newest.err || fail "a model's folder: $(cat newest.err)"
for way in one two tuned; do
    go $way straight-$way >newest.out 2>newest.err || fail "the undisturbed training fails: $(cat newest.err)"
    [ $way != tuned ] || continue
    put none
    # Killed as step 8 is to be saved, with step 4 on disk and step 6 in node memory.
    LD_PRELOAD=$disk MICS_TEST_KILLS=1 MICS_TEST_FILE=step-00000008/manifest.json go $way out >newest.out 2>newest.err &&
        fail "it was not killed"
    mkdir half-$way-resumed
    cp -a out shm half-$way-resumed
done
for way in "${ways[@]}"; do
    put "$way"
    LD_PRELOAD=$library MICS_TEST_CALLS_COUNTED=$work/$way.counts go "$way" out >newest.out 2>newest.err ||
        fail "$way, whose calls are counted, fails: $(cat newest.err)"
    [ "$way" != two-resumed ] || grep -q "^start .* step 6, .*node memory" newest.out ||
        fail "$way does not start from node memory"
    if [ -d out/checkpoints ]; then
        same_weights out/checkpoints/step-00000008 straight-${way%-resumed}/checkpoints/step-00000008
    else
        cp -r out "good-$way"
        without_times newest.out >"good-$way.out"
    fi
done

# The last step that the training said was written, or copied.
reported() { # FILE
    sed -n -e 's/^checkpoint step \([0-9]*\) written to .*/\1/p' "$1" | sort -n | tail -n 1
}

# The step that a training resumed from, by its own words; 0: from none.
resumed() { # FILE
    local step
    step=$(sed -n -e 's/^start  *step \([0-9]*\),.*/\1/p' -e 's/^out holds the finished run: step \([0-9]*\) .*/\1/p' "$1")
    echo "${step:-0}"
}

# The files that a step's manifest names: a file of an older try may lie beside them.
weights() { # OUT
    local at=$1/checkpoints/step-00000008 file
    for file in $(grep -o '"rank-[^"]*"' "$at/manifest.json" | tr -d '"' | sort -u); do
        cat "$at/$file"
    done
}

# What is wrong with what came of it; nothing is said where all is as it should be.
judge() { # WAY STATUS
    case $2 in
    0) ;;
    1 | 2) grep -q '^mics: error: ' failing.err || echo "status $2 without a line of an error" ;;
    124 | 137) echo "it hangs" ;;
    *) echo "status $2" ;;
    esac
    if [ -d "good-$1" ]; then
        # What could not be removed may lie beside them.
        [ "$2" != 0 ] || diff -rq out "good-$1" | grep -v '^Only in out' | sed 's/^/it ended well, and /'
        [ "$2" != 0 ] || without_times failing.out | cmp -s - "good-$1.out" || echo "it ended well with other words"
    else
        judge_training "$1" "$2"
    fi
}

judge_training() { # WAY STATUS
    local straight=straight-${1%-resumed} saved
    [ "$2" != 0 ] || cmp -s <(weights out) <(weights "$straight") || echo "it ended well with other weights"
    losses out 2>/dev/null | grep -vxFf <(losses "$straight") | head -n 1 | sed 's/^/another loss: /'
    saved=$(reported failing.out)
    go "$1" out >again.out 2>again.err || echo "the next start fails: $(tail -n 1 again.err)"
    [ "$(resumed again.out)" -ge "${saved:-0}" ] || echo "step $saved was reported, and step $(resumed again.out) is resumed"
    cmp -s <(weights out) <(weights "$straight") || echo "the next start comes to other weights"
    "$mics" verify out >verified.out 2>&1 || echo "not all is good: $(grep -v ': good' verified.out | head -n 1)"
}

declare -A tried
broken=0
for ((seed = from; seed < from + seeds; seed++)); do
    way=${ways[seed % ${#ways[@]}]}
    : >failing.log
    put "$way"
    # shellcheck disable=SC2046
    timeout -s KILL 120 env LD_PRELOAD="$library" MICS_TEST_CALLS_SEED=$seed MICS_TEST_CALLS_COUNTS="$work/$way.counts" \
        MICS_TEST_CALLS_LOG="$work/failing.log" "$mics" $(command_of "$way" out) \
        >failing.out 2>failing.err </dev/null
    status=$?
    wrong=$(judge "$way" $status)
    failed=$(head -n 1 failing.log)
    came="status $status"
    [ $status != 0 ] || { grep -q '^mics: warning: ' failing.err && came="a warning" || came="nothing"; }
    [ -n "$failed" ] || came="not called"
    tried[$came]=$((${tried[$came]:-0} + 1))
    [ $show = no ] || echo "$seed $way: $failed x$(wc -l <failing.log): $came: $(grep -e ': warning: ' -e ': error: ' failing.err | head -n 1)"
    [ -n "$wrong" ] || continue
    broken=$((broken + 1))
    printf 'failing_calls.sh: seed %s, %s, %s:\n%s\n' "$seed" "$way" "$failed" "$wrong" >&2
    head -n 5 failing.err >&2
    [ -z "${KEEP:-}" ] || cp -r out "out-$seed"
done
for came in "${!tried[@]}"; do
    echo "$came: ${tried[$came]}"
done | sort
echo "$seeds seeds, $broken of them wrong"
[ $broken = 0 ]
