# SPDX-FileCopyrightText: The mics authors
# SPDX-License-Identifier: Apache-2.0
# Times of collectives on an emulated cloud ($2) of 2 nodes x 2 ranks: a run that goes on takes those that it
# finds, but not where links are faster than they were, nor on other hosts.
. "$(dirname "$0")/../cli/lib.sh"
cloud=$2
export CLOUD="c$$"
trap '"$cloud" down; [ -n "${KEEP:-}" ] || rm -rf "$work"' EXIT

"$cloud" check >check.out 2>check.err
case $? in
0) ;;
3) cat check.err && exit 77 ;;
*) fail "cloud check: $(cat check.err)" ;;
esac

# Layers of 0.8 MB, which take 34 ms in two stages at 100 Mbit/s.
sed -i 's/"n_embd": 32/"n_embd": 128/' model.json
steps=0
train() { # NAME
    steps=$((steps + 1))
    run 0 "$1" "$cloud" run "$mics" train "$work/run.json" --out "$work/out" --steps $steps \
        --set run.validation_batches=0 --set sharding.params=4 --set sharding.grads=4 --set sharding.optimizer=4
    grep -aq "^collectives, us a unit on the slowest rank; $2" "$1.out" || fail "$1: not: $2"
    # At 2/3 of a ring's bytes; embeddings are too small to tell.
    grep -a '^  gather' "$1.out" | tail -n 1 | grep -q ' two-stage  measured$' ||
        fail "$1: the layers' gathers should run in two stages"
}
run 0 up "$cloud" up 2 100mbit
train first 'measured in [0-9.]* s$'
train again 'from '
run 0 down "$cloud" down
run 0 up "$cloud" up 2 1gbit
train faster 'measured again in [0-9.]* s, as collectives.json is of other links '
train faster-again 'from '
run 0 down "$cloud" down
before=$CLOUD
export CLOUD="d$$"
run 0 up "$cloud" up 2 1gbit
train elsewhere "measured again in [0-9.]* s, as collectives.json is of other hosts (${before}0 ... ${before}1, not ${CLOUD}0 ... ${CLOUD}1)\$"
exit 0
