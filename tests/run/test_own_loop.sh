#!/bin/sh
# SPDX-FileCopyrightText: The mics authors
# SPDX-License-Identifier: Apache-2.0
# test_own_loop.sh EXAMPLE ROOT: examples/own_loop.c ended by SIGKILL, and started again, gives the bits of a run that
# was not disturbed.
. "$(dirname "$0")/../cli/lib.sh"

root=$2
text=$root/examples/corpus/sonnets-001-035.txt
train() { # NAME OUT
    run 0 "$1" "$mics" "$root/configs/llama-tiny.json" "$text" "$2" 60
}

train whole out
[ "$(grep -c '^step ' whole.out)" = 60 ] || fail "whole.out: not a line a step"
[ "$(ls out)" = "latest
step-00000040
step-00000060" ] || fail "not two checkpoints are kept"

# Killed as soon as a checkpoint counts; it may be over before.
"$mics" "$root/configs/llama-tiny.json" "$text" killed 60 >killed.out 2>killed.err </dev/null &
process=$!
while [ ! -e killed/latest ] && kill -0 "$process" 2>/dev/null; do
    sleep 0.01
done
kill -9 "$process" 2>/dev/null || true
wait "$process" || true
[ -e killed/latest ] || fail "it ended without a checkpoint: $(cat killed.err)"
train again killed
! grep -q '^step 1 ' again.out || fail "it began anew"
same_weights out/step-00000060 killed/step-00000060

run 1 wrong "$mics" nowhere.json "$text" wrong 3
one_line wrong.err
run 2 usage "$mics" nowhere.json
