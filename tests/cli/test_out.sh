# SPDX-FileCopyrightText: The mics authors
# SPDX-License-Identifier: Apache-2.0
# A run's folder: one run at a time, nothing overwritten that no run wrote, and any name.
. "$(dirname "$0")/lib.sh"

train() { # STATUS NAME FLAGS...
    status=$1 name=$2
    shift 2
    run "$status" "$name" "$mics" train run.json --ranks 2 --set run.steps=4 "$@"
}

# Two wait in vain for one that goes on, the second after its lock file was removed. A third waits
# for one that is killed.
start() { # OUT: a run in the background, until it has a step
    "$mics" train run.json --ranks 2 --steps 1000000 --out "$1" --set run.log_every=1 \
        --set run.validation_batches=0 --set run.checkpoint_every=0 >"$1.log" 2>&1 </dev/null &
    begun=$!
    (await $begun "$1: a step" [ -s "$1/metrics.jsonl" ]) || fail "the run did not begin: $(cat "$1.log")"
}
start busy
first=$begun
kill -STOP "$first" # a folder is held as well by a run that takes no time of the CPU
trap 'kill -9 $first 2>/dev/null; [ -n "${KEEP:-}" ] || rm -rf "$work"' EXIT
rm busy/lock
"$mics" train run.json --ranks 2 --steps 4 --out busy >second.out 2>second.err </dev/null &
second=$!
# Tried again where the machine stood still for those 10 s.
for _ in 1 2 3 4 5; do
    rm -rf ended third.err
    start ended
    "$mics" train run.json --ranks 2 --steps 4 --out ended >third.out 2>third.err </dev/null &
    third=$!
    await $third "it waits" grep -qs 'waits' third.err
    contains third.err "ended: another run writes there; waits up to 10 s for its end"
    kill -9 $begun
    wait $third
    status=$?
    grep -q 'another run writes there now' third.err || break
done
[ $status = 0 ] || fail "the run behind a killed one did not begin: $(cat third.err)"

# The user's own files, one of them with the name of the run file.
cp run.json own.json
train 0 here --out .
cmp run.json own.json || fail "the run file was overwritten"
contains resolved.json '"seed": 3'
contains here.out "stored in .: metrics.jsonl, resolved.json"
run 0 further "$mics" train run.json --ranks 2 --steps 5 --out .
contains further.out "resumed from ./checkpoints/step-00000004"
# An earlier version's folder: the run as run.json, no lock that says whose.
mkdir before
cp -r checkpoints metrics.jsonl before
cp resolved.json before/run.json
cp resolved.json kept.json
train 0 before --steps 6 --out before
rm -r before/checkpoints before/lock before/resolved.json
train 0 metrics --steps 5 --out before
cmp kept.json before/run.json || fail "an earlier version's run.json was overwritten"

for file in resolved.json metrics.jsonl trace.json products.bin checkpoints/latest; do
    mkdir -p "$(dirname "theirs/$file")"
    echo mine >"theirs/$file"
    train 2 theirs --out theirs
    [ "$(grep -c "^mics: error" theirs.err)" = 1 ] || fail "one error line is due"
    contains theirs.err "theirs/$file: the run would overwrite it, and no run has written into that"
    [ "$(cat "theirs/$file")" = mine ] || fail "$file was overwritten"
    train 2 again --out theirs
    rm -r theirs
done
mkdir theirs
echo "a lock of something else" >theirs/lock
train 2 lock --out theirs
contains lock.err "theirs/lock: was not written by a run"
contains theirs/lock "a lock of something else"

# Standard files that are closed: what is printed reaches no file of the run.
"$mics" train run.json --ranks 2 --steps 4 --out closed --set run.log_every=1 <&- >&- 2>&- ||
    fail "it needs standard files"
"$mics" train run.json --ranks 2 --steps 4 --out open --set run.log_every=1 >open.out 2>&1 ||
    fail "a plain run"
same_losses closed open
same_weights closed/checkpoints/step-00000004 open/checkpoints/step-00000004
grep -q "parameters over" -r closed --exclude-dir=checkpoints && fail "a file of the run holds what was printed"

# Names that JSON would write otherwise, or read as something else.
for out in "$(printf 'a\tb')" '"quoted"' 'a\b' 12 null '{}'; do
    train 0 odd --out "$out"
    [ -d "$out/checkpoints" ] || fail "the folder is not called $out: $(ls -Q)"
done
train 2 latin --out "$(printf 'caf\351')"
contains latin.err "run.out: the value is not UTF-8"
sed 's/.*/{"1": "&"}/' text.txt >fields.jsonl
train 0 field --out field --data fields.jsonl --text-field 1

# A pipe would wait for a reader that never comes.
mkdir pipes && mkfifo pipes/metrics.jsonl
train 2 pipes --out pipes
contains pipes.err "is a pipe, which would wait for a reader, not a regular file; move it away"

# What is printed can be copied into a shell.
train 0 spaced --out 'my run'
contains spaced.out "generate 'my run/checkpoints/step-00000004' --prompt TEXT"

# A run that resumes behind a validation has its line already.
train 0 spaced_on --out 'my run' --steps 6
[ "$(grep -c '"step": 4, "validation_loss"' 'my run/metrics.jsonl')" = 1 ] || fail "step 4 has two lines of validation"

# Names that are patterns to a shell.
train 0 pattern --out 'a[1]*?\b'
train 0 plain --out plain
# A killed process left a part of a token shard here, and one in a folder that the name matches is alive.
host=$(uname -n)
shard=$(cd 'a[1]*?\b/cache' && echo *.bin)
mkdir -p 'a1x?b/cache'
touch "a[1]*?\\b/cache/$shard.$host-1-1-0.partial" "a1x?b/cache/$shard.$host-1-1-0.partial"
rm "a[1]*?\\b/cache/$shard"
same_losses plain 'a[1]*?\b'
run 0 onward "$mics" train run.json --ranks 2 --steps 6 --out 'a[1]*?\b'
contains onward.out "step 4, resumed from"
[ ! -e "a[1]*?\\b/cache/$shard.$host-1-1-0.partial" ] || fail "a part of a shard was left"
[ -e "a1x?b/cache/$shard.$host-1-1-0.partial" ] || fail "a file of another folder was removed"
run 0 eval "$mics" eval 'a[1]*?\b' --data text.txt

wait $second && fail "two runs wrote into one folder"
contains second.err "busy: another run writes there now; use another --out"
