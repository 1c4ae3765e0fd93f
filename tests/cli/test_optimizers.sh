#!/bin/sh
# SPDX-FileCopyrightText: The mics authors
# SPDX-License-Identifier: Apache-2.0
# Optimizers beside AdamW: memory as explain says, a stop and a resume on another mesh, and what
# is refused.
# usage: test_optimizers.sh MICS
. "$(dirname "$0")/lib.sh"

# Of the optimizer's state, in bytes.
state_bytes() { # COMMAND...
    "$@" 2>/dev/null | sed -n 's/^  optimizer state .* \([0-9]*\) B$/\1/p'
}

# near A B: two runs' losses after the same steps.
near() {
    losses "$1" >left.txt
    losses "$2" >right.txt
    paste -d ' ' left.txt right.txt | awk '
        $1 != $3 || ($2 - $4) ^ 2 > (1e-4 * $2) ^ 2 { print; bad = 1 } END { exit bad || NR < 8 }' ||
        fail "losses of $1 and $2 differ"
}

adamw=$(state_bytes "$mics" explain run.json --ranks 4)
[ "$adamw" -gt 0 ] || fail "explain names no optimizer state"
for type in SGD Lion Muon; do
    case $type in
    SGD) more='"momentum": 0.9, ' ;;
    Muon) more='"adjust_lr_fn": "match_rms_adamw", "adam_lr": 1e-3, ' ;;
    *) more= ;;
    esac
    optimizer="optimizer={\"type\": \"$type\", \"params\": {$more\"lr\": 2e-3}}"
    own=$(state_bytes "$mics" explain run.json --ranks 4 --set "$optimizer")
    [ $type = Muon ] || [ $((2 * own)) -le $((adamw + 128)) ] || fail "$type keeps $own bytes, AdamW $adamw"

    run 0 whole "$mics" train run.json --ranks 4 --nodes 2 --out whole$type --set "$optimizer"
    run 0 first "$mics" train run.json --ranks 4 --nodes 2 --out again$type --set "$optimizer" --steps 4
    run 0 second "$mics" train run.json --ranks 2 --out again$type --set "$optimizer" \
        --set 'sharding={"params": 1, "optimizer": 2}'
    near whole$type again$type
    run 0 verify "$mics" verify again$type

    # The rule is kept where the file says nothing of it, and cannot be another one.
    run 0 kept "$mics" train run.json --ranks 4 --out again$type --steps 9 --set optimizer=null
    contains kept.err "optimizer.type \"$type\""
    run 2 other "$mics" train run.json --ranks 4 --out again$type --steps 10
    contains other.err 'optimizer.type'
done
# What Muon leaves to AdamW has a rate of its own.
run 0 one_rate "$mics" train run.json --ranks 4 --nodes 2 --out one_rate --set "$optimizer" --set optimizer.params.adam_lr=0
losses one_rate >left.txt
losses wholeMuon >right.txt
cmp -s left.txt right.txt && fail "adam_lr changes nothing"

"$mics" explain run.json --ranks 4 --set "$optimizer" >explained.txt || fail "explain of $type"
for step in "momentum to owners" orthogonalise "momentum back"; do contains explained.txt "$step"; done
echo "optimizers: ok"
