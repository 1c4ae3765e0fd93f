# SPDX-FileCopyrightText: The mics authors
# SPDX-License-Identifier: Apache-2.0
# run.trace_step under an MPI launcher ($3...): processes, whose times travel to rank 0 ($2 looks at the trace).
. "$(dirname "$0")/lib.sh"
check_trace=$2
shift 2
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
export PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe

# What is fastest is not for this test to find.
sed -i 's/"threads": 1,/"threads": 1, "collectives": "two-stage",/' run.json
across='sharding={"params": 4, "grads": 4, "optimizer": 4}'
entries=$("$mics" explain run.json --ranks 4 --nodes 2 --set "$across" |
    sed -n 's/^schedule of a step: \([0-9]*\) entries.*/\1/p')
run 0 threads "$mics" train run.json --ranks 4 --nodes 2 --set "$across" --out threads
run 0 mpi "$@" "$mics" train run.json --nodes 2 --set "$across" --out mpi \
    --set run.trace_step=3 --set run.trace_steps=3
same_losses threads mpi
contains mpi.out "trace of steps 3 to 5 written to mpi/trace.json"
"$check_trace" mpi/trace.json 4 "$entries" 3 3 || fail "the trace is not as it should be"

# Machines whose clocks began at other times: the second node lives in a time namespace, where one may be had.
cat >ahead.sh <<'SH'
case ${OMPI_COMM_WORLD_RANK:-${PMI_RANK:-0}} in
2 | 3) exec unshare -T -f --monotonic 5000 "$@" ;;
esac
exec "$@"
SH
if unshare -T -f --monotonic 5000 true 2>/dev/null; then
    run 0 ahead "$@" sh ahead.sh "$mics" train run.json --nodes 2 --set "$across" --out ahead \
        --set run.trace_step=3 --set run.trace_steps=3
    "$check_trace" ahead/trace.json 4 "$entries" 3 3 5000 || fail "clocks were not compared"
fi

# A trace that rank 0 cannot write ends all processes, with one line.
mkdir -p blocked/trace.json
"$@" "$mics" train run.json --nodes 2 --out blocked --set run.trace_step=2 >blocked.out \
    2>blocked.err </dev/null && fail "a trace that cannot be written went unnoticed"
[ "$(grep -c '^mics: error' blocked.err)" = 1 ] || fail "one error line is due"
contains blocked.err "cannot rename to blocked/trace.json"
exit 0
