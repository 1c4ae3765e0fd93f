// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// mics doctor: this build and this machine, how fast its GEMMs are, and advice where something is
// off.
#include "base/clock.h"
#include "measure/measure.h"
#include "mics/core/comm.h"
#include "mics/core/transport.h"
#include "ops/kernels.h"
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { GEMM_SIZE = 768, MAX_RUNS = 64 }; // GPT-2's hidden size

// Below this share of the cores the machine is busy with something else.
static const double BUSY_SHARE = 0.85;
static const double GEMM_BUDGET_US = 250000; // of each number of threads

// ---- GEMMs ----

// Time that the system gave to threads of this process.
static double cpu_us(void)
{
    struct timespec time;
    return clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time) == 0
               ? (double)time.tv_sec * 1e6 + (double)time.tv_nsec / 1e3
               : 0;
}

// The best of some runs, so that a neighbour on the machine counts little. `cores_out`: how many cores
// the threads had on average.
static double best_gflops(const float *a, const float *b, float *c, int32_t threads,
                          double *cores_out)
{
    const double flops = 2.0 * GEMM_SIZE * GEMM_SIZE * GEMM_SIZE;
    const double begun_us = mics_clock_us(), end_us = begun_us + GEMM_BUDGET_US;
    const double computed_us = cpu_us();
    double best_us = 0;
    mics_op_set_threads(threads);
    for (int run = 0; run < MAX_RUNS && (run < 3 || mics_clock_us() < end_us); run++) {
        double begin_us = mics_clock_us();
        mics_gemm(false, false, GEMM_SIZE, GEMM_SIZE, GEMM_SIZE, 1, a, GEMM_SIZE, b, GEMM_SIZE, 0,
                  c, GEMM_SIZE);
        double us = mics_clock_us() - begin_us;
        if (run == 1 || (run > 1 && us < best_us)) // the first run warms up
            best_us = us;
    }
    *cores_out = (cpu_us() - computed_us) / (mics_clock_us() - begun_us);
    return best_us > 0 ? flops / best_us / 1e3 : 0;
}

static mics_status time_gemms(mics_memory *memory, measure_machine *found)
{
    const size_t elems = (size_t)GEMM_SIZE * GEMM_SIZE;
    void *block = NULL;
    MICS_TRY(mics_alloc(memory, MICS_MEM_WORKSPACE, 3 * elems * sizeof(float), &block));
    float *a = block, *b = a + elems, *c = b + elems;
    for (size_t i = 0; i < elems; i++) {
        a[i] = (float)(i % 7) - 3;
        b[i] = (float)(i % 5) - 2;
    }
    found->gemm_size = GEMM_SIZE;
    double cores = 0;
    found->gflops_one = best_gflops(a, b, c, 1, &cores);
    found->gflops_all = best_gflops(a, b, c, found->machine.cores, &found->cores_had);
    mics_free(memory, block);
    return MICS_OK;
}

// ---- GPUs ----

static void count_gpu_links(measure_machine *found)
{
    for (int32_t a = 0; a < found->cuda->devices; a++) {
        for (int32_t b = a + 1; b < found->cuda->devices; b++) {
            const mics_cuda_link_kind to = mics_cuda_link(a, b), from = mics_cuda_link(b, a);
            found->gpu_pairs[to < from ? to : from]++;
        }
    }
}

mics_device_info measure_gpu_info(int32_t gpu)
{
    mics_device_info info;
    if (mics_cuda_device_info(gpu, &info) == MICS_OK)
        return info;
    return (mics_device_info){.name = "unknown"};
}

mics_cuda_link_kind measure_gpu_link(int32_t from, int32_t to)
{
    return mics_cuda_link(from, to);
}

// ---- advice ----

MICS_PRINTF(2, 3) static void advise(measure_machine *found, const char *format, ...)
{
    va_list args;
    if (found->advice_count == MEASURE_MAX_ADVICE)
        return;
    va_start(args, format);
    vsnprintf(found->advice[found->advice_count++], MEASURE_ADVICE_BYTES, format, args);
    va_end(args);
}

static void give_advice(measure_machine *found)
{
    const char *threads = getenv("OMP_NUM_THREADS");
    const int32_t cores = found->machine.cores;
    if (threads != NULL)
        advise(found,
               "OMP_NUM_THREADS=%s is not used: a rank's threads are run.threads, or its "
               "share of the node's cores",
               threads);
    if (strcmp(found->kernels, "generic") == 0)
        advise(found, "no vector kernels for this CPU: training runs several times slower than on "
                      "one with AVX2 or AVX-512");
    if (found->mpi == NULL)
        advise(found, "built without MPI: ranks are threads of one process; install an MPI library "
                      "and build again to use several machines");
    if (found->mpi_launched && found->mpi == NULL)
        advise(found, "an MPI launcher started this process, but this build has no MPI");
    if (found->machine.memory_available_bytes < (size_t)1 << 30)
        advise(found, "less than 1 GiB of memory is available");
    // Threads that wait for others spin, so they have their core unless somebody else has it.
    if (found->cores_had < BUSY_SHARE * cores)
        advise(found,
               "the machine is busy: other programs, or a quota, had %.1f of its %d cores "
               "meanwhile, so "
               "the figures above are too low",
               cores - found->cores_had, (int)cores);
    else if (found->gflops_one > 0 && cores > 1 &&
             found->gflops_all < 0.6 * found->gflops_one * cores)
        advise(
            found,
            "%d cores give %.1f times the speed of one: they are hardware threads of fewer cores, "
            "or share the memory's bandwidth",
            (int)cores, found->gflops_all / found->gflops_one);
}

// ---- the whole ----

mics_status measure_machine_read(mics_memory *memory, measure_machine *machine_out)
{
    const mics_kernels *kernels = mics_kernels_get(NULL);
    measure_machine found = {.kernels = kernels->name,
                             .gemm_library = mics_gemm_library(),
                             .mpi = mics_comm_mpi_version(),
                             .mpi_launched = mics_comm_mpi_launched() != 0,
                             .cuda = mics_cuda_find()};
    MICS_TRY(mics_machine_read(&found.machine));
    for (int32_t i = 0; i < mics_kernels_count(); i++) {
        const mics_kernels *other = mics_kernels_at(i);
        if (other != NULL && other != kernels && found.other_kernel_count < MEASURE_MAX_KERNELS)
            found.other_kernels[found.other_kernel_count++] = other->name;
    }
    count_gpu_links(&found);
    MICS_TRY(time_gemms(memory, &found));
    give_advice(&found);
    *machine_out = found;
    return MICS_OK;
}
