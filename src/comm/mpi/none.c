// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Errors of a build without MPI, in place of the MPI transport.
#include "mics/core/comm.h"
#include "mics/log.h"

const char *mics_comm_mpi_version(void)
{
    return NULL;
}

mics_status mics_comm_mpi_open(mics_memory *memory, double timeout_s, mics_comm **comm_out)
{
    (void)memory;
    (void)timeout_s;
    (void)comm_out;
    return mics_fail(MICS_ERR_UNSUPPORTED,
                     "this build has no MPI: build with -DMICS_MPI=ON, or start one process");
}
