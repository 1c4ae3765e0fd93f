# SPDX-FileCopyrightText: The mics authors
# SPDX-License-Identifier: Apache-2.0
# What the program tells MPI and NCCL in the environment ($2 is preloaded, and writes it down), and that a user's own
# settings stay.
. "$(dirname "$0")/lib.sh"
settings_are() { # EXPECTED SETTINGS...
    expected=$1
    shift
    run 0 version env "$@" MICS_TEST_SETTINGS="$work/settings" LD_PRELOAD="$teller" "$mics" --version
    [ "$(cat settings)" = "$expected " ] || fail "$*: $(cat settings)"
}
teller=$2
unset OMPI_MCA_mpi_yield_when_idle OMPI_MCA_opal_event_include NCCL_LAUNCH_ORDER_IMPLICIT GOMP_SPINCOUNT OMP_WAIT_POLICY
settings_are "0 epoll 1"
settings_are "0 epoll 1" GOMP_SPINCOUNT=7
settings_are "1 poll 0" OMPI_MCA_mpi_yield_when_idle=1 OMPI_MCA_opal_event_include=poll NCCL_LAUNCH_ORDER_IMPLICIT=0
