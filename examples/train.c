// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// A training in some 40 lines: trains what a run file says, and prints the loss of each step. After
// any end, even by SIGKILL, it resumes from its newest checkpoint, with the same bits.
//
//   train RUN.json [RANKS]      ranks are threads; under mpirun leave RANKS out
#include <mics/run.h>
#include <stdio.h>
#include <stdlib.h>

static void print_step(void *ctx, const mics_metrics *metrics)
{
    (void)ctx;
    printf("step %lld/%lld  loss %.9g\n", (long long)metrics->step, (long long)metrics->steps,
           metrics->loss);
    fflush(stdout);
}

static mics_status train(const mics_job_spec *spec)
{
    mics_job *job = NULL;
    mics_status status = mics_job_open(spec, &job);
    if (status == MICS_OK)
        status = mics_job_train(job, 0);
    mics_status closed = mics_job_close(job);
    return status != MICS_OK ? status : closed;
}

int main(int argc, char **argv)
{
    if (argc < 2 || argc > 3) {
        fprintf(stderr, "usage: train RUN.json [RANKS]\n");
        return 2;
    }
    mics_memory *memory = NULL;
    if (mics_memory_open(&memory) != MICS_OK)
        return 1;
    mics_job_spec spec = {
        .memory = memory,
        .file = argv[1],
        .ranks = argc == 3 ? atoi(argv[2]) : 0,
        .resume = "auto",
        .callbacks = {.step = print_step},
    };
    mics_status status = train(&spec);
    mics_memory_close(memory);
    return status == MICS_OK ? 0 : 1;
}
