# SPDX-FileCopyrightText: The mics authors
# SPDX-License-Identifier: Apache-2.0
# A rank that is stopped, a rank that is killed, and a cable that is pulled, in the middle of training on an emulated
# cloud ($2) of 2 nodes x 2 ranks: the run ends with an error on every rank, and one line says which collective is
# late, who has not entered it, and what that rank was last seen doing.
. "$(dirname "$0")/lib.sh"
run 0 up "$cloud" up 2 1gbit

of_cloud() { # PID: whether this cloud's training runs there; not as a zombie, which has no environment
    tr '\0' '\n' <"/proc/$1/environ" 2>/dev/null | grep -qx "CLOUD=$CLOUD"
}
training() {
    for one in $(pgrep -x mics); do
        of_cloud "$one" && echo "$one"
    done
}
process_of() { # RANK: of this cloud's training
    for one in $(training); do
        tr '\0' '\n' <"/proc/$one/environ" 2>/dev/null | grep -qx "OMPI_COMM_WORLD_RANK=$1" && echo "$one"
    done
}
signal_rank() { # SIGNAL RANK
    kill "-$1" $(process_of "$2")
}

# Trains until step 2 is done, does what is asked, and waits until the run says something, and for its end.
disturb_once() { # NAME SHARDING COMMAND...: leaves the run's status, and when what was asked was done
    name=$1 degree=$2
    shift 2
    "$cloud" run "$mics" train "$work/run.json" --out "$work/$name" --steps 100000 --set run.comm_timeout_s=5 \
        --set run.collectives=two-stage --set run.validation_batches=0 --set run.checkpoint_every=0 \
        --set sharding.params="$degree" --set sharding.grads="$degree" --set sharding.optimizer="$degree" \
        >"$name.out" 2>"$name.err" </dev/null &
    pid=$!
    run_name=$name
    await $pid "$name: step 2" grep -qs '"step": 2,' "$name/metrics.jsonl"
    [ "$(training | wc -l)" = 4 ] || fail "$name: 4 processes are due: $(training)"
    "$@"
    done_at=$(date +%s)
    for _ in $(seq 3000); do
        grep -q 'mics: error' "$name.err" && break
        is_gone $pid && break
        sleep 0.1
    done
    # mpirun gives up a node behind a dead link only after half a minute: it is told to end.
    [ "$name" != cable ] || { sleep 1 && kill -TERM $pid; }
    wait $pid
    status=$?
    [ $status != 0 ] || fail "$name: the run should fail"
}

# Likewise, and again where another rank than $speaker was the first to speak: those that know less wait some seconds for the
# one that knows most, which pass where the machine stands still.
disturb() {
    for _ in 1 2 3; do
        # What the time before left, behind a dead link.
        "$cloud" link 1 up
        for one in $(training); do
            kill -9 "$one"
        done
        rm -rf "$1"
        disturb_once "$@"
        [ -n "$speaker" ] || return 0
        grep 'mics: error' "$name.err" | head -n 1 | grep -q "is late: rank $speaker waited" && return 0
    done
}

told() { # NAME PATTERN...: in the first error line
    name=$1
    shift
    grep 'mics: error' "$name.err" | head -n 1 >"$name.line"
    for pattern in "$@"; do
        grep -q "$pattern" "$name.line" || fail "$name: no '$pattern' in: $(cat "$name.line") $(cat "$name.err")"
    done
}

speaker=0
for degree in 2 4; do
    disturb "stopped-$degree" $degree signal_rank STOP 3
    [ $status = 1 ] || fail "stopped-$degree: exit status $status, not 1"
    told "stopped-$degree" 'is late: rank 0 waited 5' ' of .* (step [0-9]*' 'rank 3 (last seen \([4-9]\|[1-9][0-9]\)\.[0-9] s ago, '
done
speaker=3
disturb first 2 signal_rank STOP 0
told first 'is late: rank 3 waited 5' 'rank 0 (last seen \([4-9]\|[1-9][0-9]\)\.[0-9] s ago, '
speaker=
disturb killed 2 signal_rank KILL 2
[ $status = 137 ] || fail "killed: exit status $status, not 137"
while [ -n "$(training)" ]; do
    [ $(($(date +%s) - done_at)) -le 120 ] || fail "killed: processes are left: $(training)"
    sleep 0.1
done
[ $(($(date +%s) - done_at)) -le 120 ] || fail "killed: the run ended only after $(($(date +%s) - done_at)) s"
speaker=0
disturb cable 2 "$cloud" link 1 down
[ $status = 143 ] || fail "cable: exit status $status after SIGTERM, not 143"
told cable 'is late: rank 0 waited 5' 'no sign of life from rank 2 (last seen '
exit 0
