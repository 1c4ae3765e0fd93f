#!/bin/sh
# SPDX-FileCopyrightText: The mics authors
# SPDX-License-Identifier: Apache-2.0
# test_example.sh EXAMPLE: examples/train.c ended by SIGKILL in the midst of its run, and started again, gives the bits of a
# run that was not disturbed.
. "$(dirname "$0")/../cli/lib.sh"

steps=60
edit() { # OUT
    sed "s/\"steps\": 8/\"steps\": $steps/; s/\"out\": \"out\"/\"out\": \"$1\"/; s/\"checkpoint_every\": 4/\"checkpoint_every\": 5/" run.json >"$1.json"
}
edit whole
edit killed

run 0 whole "$mics" whole.json 2
[ "$(grep -c '^step ' whole.out)" = "$steps" ] || fail "whole.out: not a line a step"

# Tried again where it was over before this script came to kill it.
for _ in 1 2 3 4 5 6 7 8 9 10; do
    rm -rf killed killed.out
    "$mics" killed.json 2 >killed.out 2>killed.err </dev/null &
    process=$!
    waited=0
    # Whoever trains step 11 has saved step 5, and saves step 10.
    until grep -qs '^step 11/' killed.out; do
        sleep 0.01
        waited=$((waited + 1))
        [ "$waited" -lt 30000 ] || fail "no step 11 in five minutes"
    done
    kill -9 "$process"
    wait "$process" && continue
    [ -d killed/checkpoints/step-000000$steps ] || break
done
[ ! -d killed/checkpoints/step-000000$steps ] || fail "the run was over before it was killed, ten times"

run 0 again "$mics" killed.json 2
first=$(sed -n '1s/^step \([0-9]*\).*/\1/p' again.out)
[ "$first" -gt 5 ] || fail "it began with step $first, though step 5 was saved"
same_losses whole killed
same_weights "whole/checkpoints/step-000000$steps" "killed/checkpoints/step-000000$steps"
tail -n 1 whole.out >left.txt
tail -n 1 again.out >right.txt
cmp left.txt right.txt || fail "the last loss is another"

# Done is done.
run 0 done "$mics" killed.json 2
[ ! -s done.out ] || fail "a finished run was trained further"
run 1 wrong "$mics" nowhere.json
one_line wrong.err
run 2 usage "$mics"
