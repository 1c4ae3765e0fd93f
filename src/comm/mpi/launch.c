// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// The MPI launcher's environment variables, read without MPI, and the constants of that transport
// that a planner needs. Every build has this file: one without MPI must refuse to run under
// `mpirun` rather than train one copy a process.
#include "comm/internal.h"
#include "mics/core/transport.h"
#include "mics/log.h"
#include <stdbool.h>
#include <stdlib.h>

// The number in an environment variable; 0 when it is absent or is no number that ranks can have.
static int32_t number_of(const char *variable)
{
    const char *text = getenv(variable);
    if (text == NULL || *text < '0' || *text > '9')
        return 0;
    char *end = NULL;
    long value = strtol(text, &end, 10);
    return *end == '\0' && value > 0 && value <= INT32_MAX ? (int32_t)value : 0;
}

// Tasks that `srun` started together with this process. A batch script, and a shell in an
// allocation, see SLURM_NTASKS and SLURM_PROCID too, though they are one process; only a job step
// has SLURM_STEP_NUM_TASKS.
static int32_t slurm_step_tasks(void)
{
    return getenv("SLURM_PROCID") != NULL ? number_of("SLURM_STEP_NUM_TASKS") : 0;
}

// `srun` without an MPI plugin starts n processes that MPI_Init would each take for a world of its
// own. They count as launched, so that opening compares the two numbers and refuses.
int mics_comm_mpi_launched(void)
{
    static const char *const marks[] = {
        "OMPI_COMM_WORLD_SIZE", // Open MPI
        "PMI_RANK",
        "PMI_SIZE",            // MPICH, Intel MPI, srun --mpi=pmi2
        "PMIX_RANK",           // Open MPI 5 (prrte), srun --mpi=pmix
        "MPI_LOCALRANKID",     // MPICH's and Intel MPI's hydra
        "MV2_COMM_WORLD_SIZE", // MVAPICH
        "PALS_RANKID",         // HPE Cray
    };
    for (size_t i = 0; i < sizeof marks / sizeof marks[0]; i++) {
        if (getenv(marks[i]) != NULL)
            return true;
    }
    return slurm_step_tasks() > 1;
}

mics_status mics_comm_check_launcher(void)
{
    const int32_t ranks = number_of("WORLD_SIZE");
    if (ranks <= 1 || getenv("RANK") == NULL || mics_comm_mpi_launched())
        return MICS_OK;
    if (number_of("LOCAL_RANK") > 0)
        return MICS_ERR_INVALID;
    return mics_fail(MICS_ERR_INVALID,
                     "this is process %d of %d by RANK and WORLD_SIZE, as torchrun sets them, and "
                     "no MPI launcher started it, so each would train alone; start it with mpirun "
                     "or srun, or unset the two to train in one process",
                     (int)number_of("RANK"), (int)ranks);
}

// Slurm comes last: under Open MPI's mpirun a job step's tasks are daemons, not ranks.
int32_t mics_comm_mpi_announced_ranks(void)
{
    static const char *const sizes[] = {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MV2_COMM_WORLD_SIZE"};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        int32_t ranks = number_of(sizes[i]);
        if (ranks > 0)
            return ranks;
    }
    return slurm_step_tasks();
}

int32_t mics_comm_mpi_announced_rank(void)
{
    static const char *const ranks[] = {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK",
                                        "MV2_COMM_WORLD_RANK", "SLURM_PROCID"};
    for (size_t i = 0; i < sizeof ranks / sizeof ranks[0]; i++) {
        if (getenv(ranks[i]) != NULL)
            return number_of(ranks[i]);
    }
    return 0;
}

size_t mics_comm_mpi_staging_bytes(void)
{
    return COMM_STAGING_BYTES;
}
