// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// mics doctor: what this build and this machine can do, with advice where something is off.
#include "args.h"
#include "base/text.h"
#include "cli.h"
#include "doctor.h"
#include "mics/clock.h"
#include "mics/comm.h"
#include "mics/device.h"
#include "mics/kernels.h"
#include "mics/size.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char about[] =
    "Prints what this build and this machine can do, measures a matrix product for half a second,\n"
    "and says what could be better.";

enum {
    GEMM_SIZE = 768,         // GPT-2's width
    GEMM_BUDGET_US = 500000, // of measuring
    GEMM_MOST = 64
};

typedef struct findings {
    mics_machine machine;
    const mics_kernels *kernels;
    const char *gemm_library, *mpi;
    bool launched;
    double gflops_one, gflops_all; // one thread, all cores
} findings;

static cli_parsed parse(mics_memory *memory, int argc, char **argv, bool *json, cli_list *arguments)
{
    const cli_option table[] = {
        {"json", CLI_FLAG, NULL, "print one JSON object", json, 0, 0},
    };
    const cli_spec spec = {
        .verb = "doctor",
        .arguments = "",
        .about = about,
        .options = table,
        .option_count = sizeof table / sizeof table[0],
    };
    return cli_parse(memory, &spec, argc, argv, arguments);
}

// ---- measuring ----

// The best of some runs, so that a neighbour on the machine counts little.
static double best_gflops(const float *a, const float *b, float *c, int32_t threads)
{
    const double flops = 2.0 * GEMM_SIZE * GEMM_SIZE * GEMM_SIZE;
    double best_us = 0, end_us = mics_clock_us() + GEMM_BUDGET_US / 2.0;
    mics_op_set_threads(threads);
    for (int run = 0; run < GEMM_MOST && (run < 3 || mics_clock_us() < end_us); run++) {
        double begin_us = mics_clock_us();
        mics_gemm(false, false, GEMM_SIZE, GEMM_SIZE, GEMM_SIZE, 1, a, GEMM_SIZE, b, GEMM_SIZE, 0,
                  c, GEMM_SIZE);
        double us = mics_clock_us() - begin_us;
        if (run == 1 || (run > 1 && us < best_us)) // the first run warms up
            best_us = us;
    }
    return best_us > 0 ? flops / best_us / 1e3 : 0;
}

static mics_status measure(mics_memory *memory, findings *found)
{
    const size_t elems = (size_t)GEMM_SIZE * GEMM_SIZE;
    void *block = NULL;
    MICS_TRY(mics_alloc(memory, MICS_MEM_WORKSPACE, 3 * elems * sizeof(float), &block));
    float *a = block, *b = a + elems, *c = b + elems;
    for (size_t i = 0; i < elems; i++) {
        a[i] = (float)(i % 7) - 3;
        b[i] = (float)(i % 5) - 2;
    }
    found->gflops_one = best_gflops(a, b, c, 1);
    found->gflops_all = best_gflops(a, b, c, found->machine.cores);
    mics_free(memory, block);
    return MICS_OK;
}

static mics_status examine(mics_memory *memory, findings *found)
{
    MICS_TRY(mics_machine_read(&found->machine));
    found->kernels = mics_kernels_get(NULL);
    found->gemm_library = mics_gemm_library();
    found->mpi = mics_comm_mpi_version();
    found->launched = mics_comm_mpi_launched() != 0;
    return measure(memory, found);
}

// ---- advice ----

typedef void (*advise)(const char *line, void *ctx);

static void give_advice(const findings *found, advise tell, void *ctx)
{
    char line[256];
    const char *threads = getenv("OMP_NUM_THREADS");
    if (threads != NULL) {
        snprintf(line, sizeof line,
                 "OMP_NUM_THREADS=%s is not used: a rank's threads are run.threads, or its "
                 "share of the node's cores",
                 threads);
        tell(line, ctx);
    }
    if (strcmp(found->kernels->name, "generic") == 0)
        tell("no vector kernels for this processor: training runs several times slower than on one "
             "with AVX2 or AVX-512",
             ctx);
    if (found->mpi == NULL)
        tell("built without MPI: ranks are threads of one process; install an MPI library and "
             "build again to use several machines",
             ctx);
    if (found->launched && found->mpi == NULL)
        tell("an MPI launcher started this process, but this build has no MPI", ctx);
    if (found->machine.memory_available_bytes < (size_t)1 << 30)
        tell("less than 1 GiB of memory is available", ctx);
    if (found->gflops_one > 0 && found->machine.cores > 1 &&
        found->gflops_all < 0.6 * found->gflops_one * found->machine.cores) {
        snprintf(line, sizeof line,
                 "%d cores give %.1f times the speed of one: other programs compete for them, or "
                 "they are hardware threads of fewer cores",
                 (int)found->machine.cores, found->gflops_all / found->gflops_one);
        tell(line, ctx);
    }
}

static void tell_line(const char *line, void *ctx)
{
    (void)ctx;
    printf("advice    %s\n", line);
}

static void tell_json(const char *line, void *ctx)
{
    bool *any = ctx;
    printf("%s", *any ? ", " : "");
    mics_text_write_quoted(stdout, line);
    *any = true;
}

// ---- printing ----

#if defined(__clang__)
#define COMPILER "clang " __clang_version__
#else
#define COMPILER "gcc " __VERSION__
#endif

#if defined(_OPENMP)
#define OPENMP "OpenMP"
#else
#define OPENMP "no OpenMP"
#endif

static void print_text(const findings *found)
{
    const mics_machine *machine = &found->machine;
    char total[32], available[32];
    printf("mics      %s, %s, %s\n", MICS_VERSION, COMPILER, OPENMP);
    printf("processor %s, %d core%s for this process; %s\n", machine->cpu_name, (int)machine->cores,
           machine->cores == 1 ? "" : "s", machine->isa);
    printf("memory    %s, %s available\n",
           mics_size_text((double)machine->memory_total_bytes, total, sizeof total),
           mics_size_text((double)machine->memory_available_bytes, available, sizeof available));
    printf("kernels   %s", found->kernels->name);
    const char *before = " (also: ";
    for (int32_t i = 0; i < mics_kernels_count(); i++) {
        const mics_kernels *other = mics_kernels_at(i);
        if (other == NULL || other == found->kernels)
            continue;
        printf("%s%s", before, other->name);
        before = ", ";
    }
    printf("%s\nmatrices  %s: %.0f GFLOP/s on one thread, %.0f on %d (fp32, %d x %d x %d)\n",
           before[0] == ',' ? ")" : "", found->gemm_library, found->gflops_one, found->gflops_all,
           (int)machine->cores, GEMM_SIZE, GEMM_SIZE, GEMM_SIZE);
    printf("          (OpenBLAS up to 0.3.21 takes newer Xeons for old ones and runs at a fifth of "
           "their speed;\n           this program does not use OpenBLAS)\n");
    printf("MPI       %s, %s\n", found->mpi != NULL ? found->mpi : "not in this build",
           found->launched ? "under its launcher" : "not under a launcher: ranks are threads");
    cli_doctor_gpus_text();
    give_advice(found, tell_line, NULL);
}

static void print_json(const findings *found)
{
    const mics_machine *machine = &found->machine;
    bool any = false;
    printf("{\"version\": \"%s\", \"compiler\": ", MICS_VERSION);
    mics_text_write_quoted(stdout, COMPILER);
    printf(", \"openmp\": %s, \"cpu\": ", OPENMP[0] == 'O' ? "true" : "false");
    mics_text_write_quoted(stdout, machine->cpu_name);
    printf(", \"isa\": ");
    mics_text_write_quoted(stdout, machine->isa);
    printf(", \"cores\": %d, \"memory_total_bytes\": %zu, \"memory_available_bytes\": %zu, "
           "\"kernels\": \"%s\", \"matrix_library\": ",
           (int)machine->cores, machine->memory_total_bytes, machine->memory_available_bytes,
           found->kernels->name);
    mics_text_write_quoted(stdout, found->gemm_library);
    printf(", \"gemm_gflops_one_thread\": %.1f, \"gemm_gflops_all_cores\": %.1f, \"mpi\": ",
           found->gflops_one, found->gflops_all);
    if (found->mpi != NULL)
        mics_text_write_quoted(stdout, found->mpi);
    else
        printf("null");
    printf(", \"mpi_launched\": %s, \"gpu\": ", found->launched ? "true" : "false");
    cli_doctor_gpus_json();
    printf(", \"advice\": [");
    give_advice(found, tell_json, &any);
    printf("]}\n");
}

int cmd_doctor(int argc, char **argv)
{
    mics_memory *memory = NULL;
    cli_list arguments = {0};
    findings found = {0};
    bool json = false;
    if (mics_memory_open(&memory) != MICS_OK)
        return CLI_EXIT_FAILED;
    cli_parsed parsed = parse(memory, argc, argv, &json, &arguments);
    mics_status status = parsed == CLI_PARSED_WRONG ? MICS_ERR_INVALID : MICS_OK;
    if (parsed == CLI_PARSED_RUN)
        status = examine(memory, &found);
    if (parsed == CLI_PARSED_RUN && status == MICS_OK)
        (json ? print_json : print_text)(&found);
    mics_free(memory, arguments.items);
    mics_memory_close(memory);
    return cli_exit_status(status, parsed == CLI_PARSED_RUN);
}
