// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Errors of a build without MPI, in place of the MPI transport.
#include "comm/internal.h"
#include "mics/core/comm.h"
#include "mics/core/transport.h"
#include "mics/log.h"

void mics_comm_mpi_keep_apart(mics_comm *comm, int32_t node_ranks)
{
    (void)comm;
    (void)node_ranks;
}

const char *mics_comm_mpi_version(void)
{
    return NULL;
}

mics_status mics_comm_mpi_open(mics_memory *memory, double timeout_s, mics_comm **comm_out)
{
    (void)memory;
    (void)timeout_s;
    (void)comm_out;
    // Processes that know nothing of each other: the first one speaks.
    if (mics_comm_mpi_announced_rank() > 0)
        return MICS_ERR_UNSUPPORTED;
    return mics_fail(MICS_ERR_UNSUPPORTED,
                     "this build has no MPI, and an MPI launcher started it: start a program that "
                     "was built with MPI (-DMICS_MPI=ON) by `mpirun -n N mics train RUN`, or "
                     "this one without a launcher, as `mics train RUN --ranks N`");
}
