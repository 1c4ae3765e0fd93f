# SPDX-FileCopyrightText: The mics authors
# SPDX-License-Identifier: Apache-2.0
# Threads of ranks that an MPI launcher ($3...) binds to cores. $2 makes up the cores, as this machine may have few.
. "$(dirname "$0")/lib.sh"
bound=$2
shift 2
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
export PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe

# A quota of this control group would say how many threads there are.
run 0 quota env MICS_TEST_CORES="16 1" LD_PRELOAD="$bound" "$mics" doctor --json
if ! grep -q '"cores": 16,' quota.out; then
    echo "skipped: processor time is limited here: $(grep -o '"cores": [0-9]*' quota.out)"
    exit 77
fi

threads_are() { # THREADS "CORES SHARERS" FLAGS...
    due=$1 cores=$2
    shift 2
    rm -rf out
    run 0 bound env MICS_TEST_CORES="$cores" $launcher env LD_PRELOAD="$bound" "$mics" train run.json --nodes 2 \
        --steps 1 --set run.validation_batches=0 "$@"
    grep -q "MPI processes, $due threads* each$" bound.out || fail "$cores: $(grep ^ranks bound.out)"
}
launcher=$*
threads_are 2 "2 1" --set run.threads=auto
threads_are 2 "4 2" --set run.threads=0
threads_are 1 "1 2" --set run.threads=0
threads_are 1 "3 1" # run.json says 1
# Four ranks with two cores each leave most of 17 idle, but not of 16; four threads are more than two cores.
export MICS_TEST_ONLINE=17
threads_are 4 "2 1" --set run.threads=4
grep -q "leaves the ranks of this machine 8 of its 17 cores; more: mpirun --bind-to none, or --map-by ppr:4:node:PE=4;" \
    bound.err || fail "cores that are idle are not named: $(cat bound.err)"
grep -q "run.threads 4 is more than the 2 of a rank's cores" bound.err || fail "too many threads: $(cat bound.err)"
export MICS_TEST_ONLINE=16
threads_are 2 "2 1" --set run.threads=auto
! grep -qE "leaves the ranks|is more than" bound.err || fail "all is as it should be: $(cat bound.err)"
