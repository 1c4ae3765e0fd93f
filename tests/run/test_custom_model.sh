#!/bin/sh
# SPDX-FileCopyrightText: The mics authors
# SPDX-License-Identifier: Apache-2.0
# test_custom_model.sh EXAMPLE MICS CORPUS: examples/custom_model.c learns, writes text, exports, resumes with the same
# bits, and refuses a folder that another model trained. The program says why it cannot go on with such a run.
. "$(dirname "$0")/../cli/lib.sh"
program=$2
corpus=$3

run 0 whole "$mics" whole whole.hf "$corpus"/sonnets-001-035.txt
[ "$(grep -c '^step ' whole.out)" = 60 ] || fail "whole.out: not a line a step"
loss_of() { # FILE STEP
    sed -n "s#^step $2/60  loss ##p" "$1"
}
awk -v first="$(loss_of whole.out 1)" -v last="$(loss_of whole.out 60)" \
    'BEGIN { exit !(first > 5.3 && last < 3.6) }' || fail "it did not learn"
[ "$(grep -v '^step ' whole.out | wc -c)" -gt 100 ] || fail "no text was written"
[ -s whole.hf/model.safetensors ] || fail "nothing was exported"
contains whole.hf/config.json rms-decoder
contains whole/resolved.json "the program's model"

# The state after step 40 goes on with the same bits.
mkdir -p killed/checkpoints
cp -r whole/checkpoints/step-00000040 killed/checkpoints/
run 0 killed "$mics" killed killed.hf "$corpus"/sonnets-001-035.txt
[ "$(grep -c '^step ' killed.out)" = 20 ] || fail "it did not go on after step 40"
same_weights whole/checkpoints/step-00000060 killed/checkpoints/step-00000060
cmp whole.hf/model.safetensors killed.hf/model.safetensors || fail "another export"

# Done is done, and an export is not overwritten.
run 1 done "$mics" whole whole.hf "$corpus"/sonnets-001-035.txt
contains done.err "is not overwritten"
grep '^step ' done.out && fail "a finished run was trained further"

run 2 without "$program" train whole/resolved.json --ranks 4 --nodes 2 --out other
contains without.err "only that program can train it"
run 2 generate "$program" generate whole --prompt "Shall I"
contains generate.err "rms-decoder"
run 2 usage "$mics"
