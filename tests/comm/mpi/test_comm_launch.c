// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// What the environment tells of a launcher.
#include "comm/internal.h"
#include "mics/core/comm.h"
#include "mics/core/transport.h"
#include "test.h"
#include <stdlib.h>

static const char *const variables[] = {
    "OMPI_COMM_WORLD_SIZE",
    "OMPI_COMM_WORLD_RANK",
    "PMI_RANK",
    "PMI_SIZE",
    "PMIX_RANK",
    "MPI_LOCALRANKID",
    "PALS_RANKID",
    "MV2_COMM_WORLD_SIZE",
    "MV2_COMM_WORLD_RANK",
    "SLURM_PROCID",
    "SLURM_NTASKS",
    "SLURM_STEP_NUM_TASKS",
};

static int clean(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof variables / sizeof variables[0]; i++)
        unsetenv(variables[i]);
    return 0;
}

static void assert_told(int launched, int32_t ranks, int32_t rank)
{
    assert_int_equal(mics_comm_mpi_launched(), launched);
    assert_int_equal(mics_comm_mpi_announced_ranks(), ranks);
    assert_int_equal(mics_comm_mpi_announced_rank(), rank);
}

static void test_no_launcher(void **state)
{
    (void)state;
    assert_told(0, 0, 0);
}

static void test_open_mpi(void **state)
{
    (void)state;
    setenv("OMPI_COMM_WORLD_SIZE", "4", 1);
    setenv("OMPI_COMM_WORLD_RANK", "3", 1);
    setenv("PMIX_RANK", "3", 1);
    // Its launcher runs inside a job step of two daemons.
    setenv("SLURM_PROCID", "1", 1);
    setenv("SLURM_STEP_NUM_TASKS", "2", 1);
    assert_told(1, 4, 3);
}

static void test_mpich(void **state)
{
    (void)state;
    setenv("PMI_SIZE", "8", 1);
    setenv("PMI_RANK", "7", 1);
    setenv("MPI_LOCALRANKID", "7", 1);
    assert_told(1, 8, 7);
}

static void test_slurm(void **state)
{
    (void)state;
    // A batch script is one process, whatever the job asked for.
    setenv("SLURM_PROCID", "0", 1);
    setenv("SLURM_NTASKS", "8", 1);
    assert_told(0, 0, 0);
    // srun without PMI: eight copies that must not each train.
    setenv("SLURM_STEP_NUM_TASKS", "8", 1);
    setenv("SLURM_PROCID", "5", 1);
    assert_told(1, 8, 5);
    setenv("SLURM_STEP_NUM_TASKS", "1", 1);
    assert_told(0, 1, 5);
}

static void test_nonsense_numbers(void **state)
{
    (void)state;
    static const char *const nonsense[] = {"", "x", "-3", "4x", "99999999999999999999", "0"};
    for (size_t i = 0; i < sizeof nonsense / sizeof nonsense[0]; i++) {
        setenv("OMPI_COMM_WORLD_SIZE", nonsense[i], 1);
        assert_told(1, 0, 0);
    }
}

static void test_constants(void **state)
{
    (void)state;
    // The ledger counts whole blocks.
    assert_int_equal(mics_comm_mpi_staging_bytes(),
                     mics_memory_block_bytes(mics_comm_mpi_staging_bytes()));
    const char *version = mics_comm_mpi_version();
    assert_true(version == NULL || version[0] != '\0');
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_no_launcher, clean),
        cmocka_unit_test_setup(test_open_mpi, clean),
        cmocka_unit_test_setup(test_mpich, clean),
        cmocka_unit_test_setup(test_slurm, clean),
        cmocka_unit_test_setup(test_nonsense_numbers, clean),
        cmocka_unit_test_setup(test_constants, clean),
    };
    return cmocka_run_group_tests_name("comm launch", tests, NULL, NULL);
}
