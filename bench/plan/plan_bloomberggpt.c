// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// BloombergGPT's training beside what plans say of it, by micro-batch, collectives and attention kernel. 50.6 billion
// parameters on 512 A100 of 40 GB (64 p4d.24xlarge), MiCS with P = 128, 2048 sequences of 2048 tokens a step,
// activations recomputed: 32.5 s a step, 102 TFLOP/s a GPU. Its micro-batch is not published.
// Wu et al., 2023, arXiv:2303.17564, section 3.3 and table 4.
#include "study.h"
#include <stdio.h>

enum { NODES = 64, RANKS = 512, LENGTH = 2048, BATCH = 2048, DEGREE = 128 };

static const double published_s = 32.5;

typedef struct software {
    const char *name, *cluster;
} software;

static const software kinds[] = {
    {"scores in memory, one card",
     "{\"base\": \"p4d.24xlarge\", \"rings\": 1, \"accelerator\": {\"attention\": \"unfused\"}}"},
    {"scores in memory",
     "{\"base\": \"p4d.24xlarge\", \"accelerator\": {\"attention\": \"unfused\"}}"},
    {"FlashAttention-2", "{\"base\": \"p4d.24xlarge\"}"},
};

static mics_status print_row(const study *s, mics_planner *planner, const char *name,
                             int64_t micro_batch, bool two_stage)
{
    const mics_plan_choice choice = {.sharding = {DEGREE, DEGREE, DEGREE},
                                     .micro_batch = micro_batch,
                                     .micro_steps = (int32_t)(BATCH / RANKS / micro_batch),
                                     .prefetch = 1,
                                     .recompute = {.units = MICS_RECOMPUTE_ALL},
                                     .gather_two_stage = two_stage,
                                     .reduce_two_stage = two_stage,
                                     .sums_by_ring = true,
                                     .all_reduces = true,
                                     .boundary_two_stage = true};
    mics_plan_entry e;
    MICS_TRY(mics_planner_evaluate(planner, &choice, &e));
    const double step_s = e.step_us * 1e-6;
    printf("| %s | %lld x %d | %s | %.1f | %+.0f %% | %.0f | %.1f | %.1f | %.1f |\n", name,
           (long long)micro_batch, (int)choice.micro_steps, two_stage ? "two stages" : "rings",
           step_s, 100 * (step_s / published_s - 1),
           study_flops(s, BATCH) / RANKS / e.step_us * 1e-6, e.compute_us * 1e-6,
           (e.exposed_gather_us + e.exposed_reduce_us) * 1e-6, e.spare_bytes / (1 << 30));
    return MICS_OK;
}

static mics_status print_software(const software *kind)
{
    study s;
    mics_planner *planner = NULL;
    mics_status status =
        study_open(&s, "bench/plan/configs/bloomberggpt-50b.json", LENGTH, kind->cluster, NULL);
    mics_plan_request request = study_request(&s, NODES, BATCH);
    request.math = MICS_MATH_BF16;
    if (status == MICS_OK)
        status = mics_planner_open(s.memory, &request, &planner);
    for (int64_t micro_batch = 1; micro_batch <= 4; micro_batch *= 2) {
        for (int two_stage = 0; status == MICS_OK && two_stage < 2; two_stage++)
            status = print_row(&s, planner, kind->name, micro_batch, two_stage);
    }
    mics_planner_close(planner);
    study_close(&s);
    return status;
}

int main(void)
{
    printf("| attention, network | micro-batches | collectives | step, s | to 32.5 s | TFLOP/s | "
           "computation, s | exposed gathers and reductions, s | GiB to spare |\n"
           "|---|---|---|---|---|---|---|---|---|\n");
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        if (print_software(&kinds[i]) != MICS_OK)
            return 1;
    }
    return 0;
}
