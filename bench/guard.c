// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// What comparing replicas costs beside the steps of the same run:
//
//   guard MODEL.json TEXT RANKS P G O STEPS
//
// Trains STEPS steps of 4 sequences of 256 tokens a rank, ranks as threads, then compares as often,
// and prints the medians and their ratio at run.check_replicas_every 100.
#include "base/clock.h"
#include "mics/core/engine.h"
#include "mics/run.h"
#include "run/job.h"
#include "run/trainer.h"
#include <stdio.h>
#include <stdlib.h>

enum { MAX_STEPS = 64, EVERY = 100 };

typedef struct times {
    double ms[MAX_STEPS];
    int32_t count;
} times;

static void on_step(void *ctx, const mics_metrics *metrics)
{
    times *steps = ctx;
    if (steps->count < MAX_STEPS)
        steps->ms[steps->count++] = metrics->step_ms;
}

static mics_status compare(void *ctx, run_rank *rank)
{
    const mics_job *job = ctx;
    mics_divergence found;
    mics_engine *engine = job->trainers[rank->comm->rank].context.engine;
    MICS_TRY(mics_engine_compare(engine, &found));
    return found.found ? mics_fail(MICS_ERR_NUMERIC, "replicas differ") : MICS_OK;
}

static int ascending(const void *a, const void *b)
{
    const double left = *(const double *)a, right = *(const double *)b;
    return (left > right) - (left < right);
}

static double median(times *of)
{
    qsort(of->ms, (size_t)of->count, sizeof of->ms[0], ascending);
    return of->count > 0 ? of->ms[of->count / 2] : 0;
}

static mics_status measure(mics_job *job, int32_t steps, times *compared)
{
    MICS_TRY(mics_job_train(job, steps));
    for (int32_t i = 0; i < steps; i++) {
        const double begin_us = mics_clock_us();
        MICS_TRY(run_world_run(job->world, compare, job));
        compared->ms[compared->count++] = (mics_clock_us() - begin_us) / 1e3;
    }
    return MICS_OK;
}

int main(int argc, char **argv)
{
    times trained = {.count = 0}, compared = {.count = 0};
    mics_memory *memory = NULL;
    mics_job *job = NULL;
    if (argc != 8 || atoi(argv[7]) < 1 || atoi(argv[7]) > MAX_STEPS) {
        fprintf(stderr, "usage: guard MODEL.json TEXT RANKS P G O STEPS (1 to %d)\n", MAX_STEPS);
        return 2;
    }
    const char *const texts[] = {argv[2]};
    const char *const sets[] = {"run.validation_batches=0", "run.device=cpu"};
    const mics_run_values values = {.model_config = argv[1],
                                    .train = texts,
                                    .train_count = 1,
                                    .sequence_length = 256,
                                    .steps = MAX_STEPS + 1, // no save is due
                                    .seed = 1,
                                    .out = "out",
                                    .micro_batch = 4,
                                    .micro_steps = 1,
                                    .learning_rate = 1e-4,
                                    .sharding = {atoi(argv[4]), atoi(argv[5]), atoi(argv[6])}};
    const mics_job_callbacks callbacks = {.ctx = &trained, .step = on_step};
    mics_status status = mics_memory_open(&memory);
    const mics_job_spec spec = {.memory = memory,
                                .values = &values,
                                .sets = sets,
                                .set_count = 2,
                                .ranks = atoi(argv[3]),
                                .resume = "none",
                                .callbacks = callbacks};
    if (status == MICS_OK)
        status = mics_job_open(&spec, &job);
    if (status == MICS_OK)
        status = measure(job, atoi(argv[7]), &compared);
    if (status == MICS_OK) {
        const double step_ms = median(&trained), compare_ms = median(&compared);
        printf("%s ranks, %s|%s|%s: a step %.0f ms, a comparison %.1f ms: %.4f %% of run time at "
               "one every %d steps\n",
               argv[3], argv[4], argv[5], argv[6], step_ms, compare_ms,
               100 * compare_ms / (EVERY * step_ms), EVERY);
    }
    (void)mics_job_close(job);
    (void)mics_memory_close(memory);
    return status != MICS_OK;
}
