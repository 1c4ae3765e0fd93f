# SPDX-FileCopyrightText: The mics authors
# SPDX-License-Identifier: Apache-2.0
# A rank that is killed under an MPI launcher ($2...): the launcher tells the others to end, and gives them
# time (odls_base_sigkill_timeout). They keep the step that was done last in node memory, and the run goes on
# from it with the losses of one that never stopped.
. "$(dirname "$0")/lib.sh"
shift
case $("$1" --version 2>&1) in
*"Open MPI"* | *OpenRTE* | *PRRTE*) ;;
*)
    echo "not Open MPI: its launcher kills all ranks at once" >&2
    exit 77
    ;;
esac
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
export PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe
export MICS_SHM_DIR=$work/shm
mkdir shm
mpiexec=$1
shift
ranks=$*
cat >rank.sh <<'SH'
echo $$ >"pids/${OMPI_COMM_WORLD_RANK:-0}"
exec "$@"
SH

start() { # OUT NODES STEPS COMMAND...
    out=$1 nodes=$2 steps=$3
    shift 3
    rm -rf pids && mkdir pids
    "$@" --mca odls_base_sigkill_timeout 8 sh rank.sh "$mics" train run.json --nodes "$nodes" --steps "$steps" \
        --out "$out" --set run.grace_s=5 --set run.checkpoint_every=0 --set train_batch_size=320 \
        --set gradient_accumulation_steps=40 >"$out.out" 2>"$out.err" </dev/null &
    launcher=$!
    run_name=$out
}
done_steps() { # OUT
    wc -l <"$1/metrics.jsonl"
}
has_done() { # OUT STEPS
    [ -s "$1/metrics.jsonl" ] && [ "$(done_steps "$1")" -ge "$2" ]
}

# Kills a rank in some step; whether the others kept that. They cannot where it was killed while it updated
# its part of the state: so steps have many micro-steps, and are tried again.
lose() { # OUT NODES VICTIM
    start "$1" "$2" 100000 "$mpiexec" $ranks
    await $launcher "some steps of $1" has_done "$1" 5
    kill -9 "$(cat "pids/$3")"
    wait $launcher && fail "a run that has lost a rank should fail"
    last=$(sed -n 's/.*step \([0-9]*\) is in node memory: [12] of 4.*/\1/p' "$1.err")
    # The lost rank may be the one that writes metrics.
    [ "${last:-0}" -ge "$(($(done_steps "$1") - 1))" ]
}

# On two nodes another one has what the lost rank held; on one its neighbours write that too.
for victim in 0 3; do
    nodes=$((victim / 3 + 1))
    try=1
    until lose lost-$nodes-$victim-$try $nodes $victim; do
        [ $try -lt 4 ] || fail "step ${last:-none} is kept of $(done_steps $out), in $try tries"
        try=$((try + 1))
    done
    end=$((last + 4))
    start $out $nodes $end "$mpiexec" $ranks
    wait $launcher || fail "the next start should go on"
    contains $out.out "start     step $last, resumed from node memory"
done

start straight 1 $end "$mpiexec" $ranks
wait $launcher || fail "a run that nobody stops"
losses straight >straight.txt
losses $out >again.txt
cmp -s straight.txt again.txt || fail "other losses: $(diff straight.txt again.txt)"
