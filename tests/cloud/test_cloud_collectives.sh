# SPDX-FileCopyrightText: The mics authors
# SPDX-License-Identifier: Apache-2.0
# run.collectives "auto" on an emulated cloud ($2) of 2 nodes x 2 ranks: what the links do decides, and a
# resumed run keeps the choice, also where links are faster or hosts are others, until it is told to time again.
. "$(dirname "$0")/lib.sh"

# Layers of 0.8 MB, which take some 160 ms in two stages at 20 Mbit/s, and in one ring half as long again: far more than a busy
# machine makes of them at 1 Gbit/s.
sed -i 's/"n_embd": 32/"n_embd": 128/' model.json
steps=0
train() { # NAME FLAGS...
    name=$1
    shift
    steps=$((steps + 1))
    run 0 "$name" "$cloud" run "$mics" train "$work/run.json" --out "$work/out" --steps $steps \
        --set run.validation_batches=0 --set sharding.params=4 --set sharding.grads=4 --set sharding.optimizer=4 "$@"
    grep -q '"collectives": "two-stage"' out/resolved.json || [ "$name" = timed ] || fail "$name: resolved.json has another choice"
}
# Milliseconds of a gather in one ring, as the line has it.
ring_ms() { # NAME
    sed -n 's/.*run.collectives: gathers in .* take \([0-9.]*\) ms in one ring, .*/\1/p' "$1.err"
}
run 0 up "$cloud" up 2 20mbit
train first
contains first.err "run.collectives: gathers in two stages: "
slow=$(ring_ms first)
[ -n "$slow" ] || fail "no time is said"
train again
! grep -q "gathers in" again.err || fail "a run that was resumed timed again"
run 0 down "$cloud" down
export CLOUD="d$$"
run 0 up "$cloud" up 2 1gbit
train elsewhere
! grep -q "gathers in" elsewhere.err || fail "a run that was resumed elsewhere timed again"
train timed --set run.collectives=auto
awk -v slow="$slow" -v fast="$(ring_ms timed)" 'BEGIN { exit !(fast > 0 && fast < slow / 2) }' ||
    fail "fifty times the link's rate: $slow ms became $(ring_ms timed) ms"
exit 0
