// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Published throughput of ZeRO-3 and of Megatron-LM on Selene (SC21) beside what the planner says, as a table. Fails
// where one is not within 15 %.
#include "clusters.h"
#include "plan/search/baseline.h"
#include "study.h"
#include <math.h>
#include <stdio.h>

// TFLOP/s a GPU as published: Narayanan et al., SC21, arXiv:2104.04473, table 2.
typedef struct published {
    const char *config;
    bool megatron;
    int32_t gpus;
    int64_t batch;
    double tflops;
    int32_t tensor, stages; // MEGATRON
} published;

static const published rows[] = {
    {"bench/plan/configs/gpt-175b.json", false, 384, 1536, 144, 0, 0},
    {"bench/plan/configs/gpt-175b.json", false, 768, 1536, 88, 0, 0},
    {"bench/plan/configs/gpt-175b.json", false, 1536, 1536, 44, 0, 0},
    {"bench/plan/configs/gpt-530b.json", false, 640, 2560, 138, 0, 0},
    {"bench/plan/configs/gpt-530b.json", false, 1120, 2240, 98, 0, 0},
    {"bench/plan/configs/gpt-530b.json", false, 2240, 2240, 48, 0, 0},
    {"bench/plan/configs/gpt-175b.json", true, 384, 1536, 153, 8, 12},
    {"bench/plan/configs/gpt-175b.json", true, 768, 1536, 149, 8, 12},
    {"bench/plan/configs/gpt-175b.json", true, 1536, 1536, 141, 8, 12},
    {"bench/plan/configs/gpt-530b.json", true, 560, 2240, 171, 8, 35},
    {"bench/plan/configs/gpt-530b.json", true, 1120, 2240, 167, 8, 35},
    {"bench/plan/configs/gpt-530b.json", true, 2240, 2240, 159, 8, 35},
};

static double tflops(const study *s, const published *row, double step_us)
{
    return study_flops(s, (double)row->batch) / row->gpus / step_us * 1e-6;
}

// All of a rank's sequences at once, as those runs had it.
static mics_status predict_zero3_then(const published *row, double *out)
{
    study s;
    double step_us = 0;
    mics_status status = study_open(&s, row->config, 2048, SELENE_2021_ONE_CARD, NULL);
    if (status == MICS_OK)
        status = study_zero3(&s, row->gpus / 8, row->batch / row->gpus, 1, &step_us);
    if (status == MICS_OK)
        *out = tflops(&s, row, step_us);
    study_close(&s);
    return status;
}

static mics_status predict_zero3_now(const published *row, double *out)
{
    study s;
    mics_planner *planner = NULL;
    mics_plan_entry entry;
    mics_status status = study_open(&s, row->config, 2048, NULL, "selene");
    const mics_plan_request request = study_request(&s, row->gpus / 8, row->batch);
    if (status == MICS_OK)
        status = mics_planner_open(s.memory, &request, &planner);
    if (status == MICS_OK)
        status = mics_planner_baseline(planner, NULL, MICS_PLAN_ZERO3, &entry);
    if (status == MICS_OK)
        *out = tflops(&s, row, entry.step_us);
    mics_planner_close(planner);
    study_close(&s);
    return status;
}

// Micro-batch 1 and recomputation; 1F1B, or the best number of chunks.
static mics_status predict_megatron(const published *row, const char *cluster, int32_t chunks,
                                    double *out)
{
    const mics_plan_space space = {.micro_batch = 1,
                                   .layered_micro_steps = 1,
                                   .recompute_given = true,
                                   .recompute = {.units = MICS_RECOMPUTE_ALL},
                                   .pipeline = {.tensor = row->tensor,
                                                .context = 1,
                                                .stages = row->stages,
                                                .chunks = chunks,
                                                .expert = 1,
                                                .era = MICS_MEGATRON_2021}};
    study s;
    mics_planner *planner = NULL;
    mics_plan_entry entry;
    mics_status status = study_open(&s, row->config, 2048, cluster, "selene");
    const mics_plan_request request = study_request(&s, row->gpus / 8, row->batch);
    if (status == MICS_OK)
        status = mics_planner_open(s.memory, &request, &planner);
    if (status == MICS_OK)
        status = mics_planner_baseline(planner, &space, MICS_PLAN_MEGATRON, &entry);
    if (status == MICS_OK)
        *out = tflops(&s, row, entry.step_us);
    mics_planner_close(planner);
    study_close(&s);
    return status;
}

static mics_status print_row(const published *row, double *worst)
{
    double then = 0, now = 0;
    if (row->megatron) {
        MICS_TRY(predict_megatron(row, SELENE_2021, 1, &then));
        MICS_TRY(predict_megatron(row, NULL, 1, &now));
    } else {
        MICS_TRY(predict_zero3_then(row, &then));
        MICS_TRY(predict_zero3_now(row, &now));
    }
    const double error = 100 * (then / row->tflops - 1);
    *worst = fmax(*worst, fabs(error));
    printf("| %s | %s | %d | %lld | %.0f | %.0f | %+.0f %% | %.0f |\n",
           row->megatron ? "Megatron-LM" : "ZeRO-3", row->config + 8, (int)row->gpus,
           (long long)row->batch, row->tflops, then, error, now);
    return MICS_OK;
}

int main(void)
{
    double worst = 0;
    printf("| system | model | GPUs | batch | published | predicted | error | with today's kernels "
           "and "
           "all cards |\n|---|---|---|---|---|---|---|---|\n");
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        if (print_row(&rows[i], &worst) != MICS_OK)
            return 1;
    }
    printf("\nLargest error: %.0f %%.\n", worst);
    return worst <= 15 ? 0 : 1;
}
