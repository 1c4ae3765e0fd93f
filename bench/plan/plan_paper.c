// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// The evaluation of the MiCS paper as the planner predicts it: MiCS against ZeRO-3, strong scaling; weak scaling of a
// model of 100 billion parameters; and mics+ against MiCS, each with the smallest group that fits.
// Zhang et al., PVLDB 16(1), 2022, arXiv:2205.00119.
#include "clusters.h"
#include "plan/search/baseline.h"
#include "study.h"
#include <stdio.h>
#include <string.h>

enum { LENGTH = 512, MICRO_BATCH = 8, GLOBAL_BATCH = 8192 };

static const char *const models[] = {
    "bench/plan/configs/bert-10b.json", "bench/plan/configs/bert-15b.json",
    "bench/plan/configs/bert-20b.json", "bench/plan/configs/bert-50b.json"};

typedef struct machine {
    const char *name, *text;
    int32_t nodes[4];
    int32_t count;
} machine;

static const machine machines[] = {
    {"p3dn.24xlarge", P3DN_2022, {2, 4, 8, 16}, 4},
    {"p4d.24xlarge", P4D_2022, {2, 4, 8}, 3},
};

static double tflops(const study *s, int64_t batch, int32_t gpus, double step_us)
{
    return study_flops(s, (double)batch) / gpus / step_us * 1e-6;
}

// ZeRO-3 as it ran then, in TFLOP/s a GPU.
static mics_status zero3_then(const char *config, const char *cluster, int32_t nodes,
                              double *tflops_out)
{
    study s;
    double us = 0;
    mics_status status = study_open(&s, config, LENGTH, cluster, NULL);
    if (status == MICS_OK)
        status = study_zero3(&s, nodes, MICRO_BATCH, GLOBAL_BATCH / (nodes * 8) / MICRO_BATCH, &us);
    if (status == MICS_OK)
        *tflops_out = tflops(&s, GLOBAL_BATCH, nodes * 8, us);
    study_close(&s);
    return status;
}

// ZeRO-3 with everything that MiCS has here: prefetch, one gather for recomputation and backward.
static mics_status zero3_here(const study *s, int32_t nodes, double *tflops_out)
{
    const mics_plan_space space = {.micro_batch = MICRO_BATCH,
                                   .layered_micro_steps = 1,
                                   .recompute_given = true,
                                   .recompute = {.units = MICS_RECOMPUTE_ALL}};
    const mics_plan_request request = study_request(s, nodes, GLOBAL_BATCH);
    mics_planner *planner = NULL;
    mics_plan_entry entry;
    MICS_TRY(mics_planner_open(s->memory, &request, &planner));
    const mics_status status = mics_planner_baseline(planner, &space, MICS_PLAN_ZERO3, &entry);
    mics_planner_close(planner);
    *tflops_out =
        status == MICS_OK && entry.fits ? tflops(s, GLOBAL_BATCH, nodes * 8, entry.step_us) : 0;
    return status;
}

// What the paper puts first of its results, as it comes out here.
typedef struct headlines {
    double speedup[2]; // the largest of MiCS over ZeRO-3 of then, by machine
    int32_t p[2], gpus[2];
    const char *model[2];
    double kept, peak; // of 100 billion parameters on 512 GPUs: speed of 128's, share of the peak
} headlines;

static void note_speedup(headlines *h, int which, double speedup, const char *model, int32_t p,
                         int32_t gpus)
{
    if (speedup <= h->speedup[which])
        return;
    h->speedup[which] = speedup;
    h->model[which] = model;
    h->p[which] = p;
    h->gpus[which] = gpus;
}

static void print_speedup(double value, double base)
{
    if (base > 0)
        printf(" %.1f | %.2fx |", base, value / base);
    else
        printf(" does not fit | |");
}

static mics_status print_point(int which, const char *config, int32_t nodes, headlines *h)
{
    const machine *m = &machines[which];
    study s;
    mics_plan_entry mics, plus;
    double then = 0, here = 0;
    mics_status status = study_open(&s, config, LENGTH, m->text, NULL);
    if (status == MICS_OK)
        status = study_smallest(&s, nodes, GLOBAL_BATCH, MICRO_BATCH, MICS_PLAN_FAMILY_MICS, true,
                                &mics);
    if (status == MICS_OK)
        status = study_smallest(&s, nodes, GLOBAL_BATCH, MICRO_BATCH, MICS_PLAN_FAMILY_MICS_PLUS,
                                false, &plus);
    if (status == MICS_OK)
        status = zero3_here(&s, nodes, &here);
    if (status == MICS_OK)
        status = zero3_then(config, m->text, nodes, &then);
    if (status == MICS_OK && mics.fits) {
        const double value = tflops(&s, GLOBAL_BATCH, nodes * 8, mics.step_us);
        printf("| %.*s | %d | %d | %.1f |", (int)strcspn(config + 8, "."), config + 8,
               (int)nodes * 8, (int)mics.choice.sharding.params, value);
        print_speedup(value, here);
        print_speedup(value, then);
        if (then > 0)
            note_speedup(h, which, value / then, config, mics.choice.sharding.params, nodes * 8);
        if (plus.fits)
            printf(" %d | %.1f | %.2fx |\n", (int)plus.choice.sharding.params,
                   tflops(&s, GLOBAL_BATCH, nodes * 8, plus.step_us), mics.step_us / plus.step_us);
        else
            printf(" | | |\n");
    } else if (status == MICS_OK) {
        printf("| %.*s | %d | does not fit, by %.1f GiB | | | | | | | | |\n",
               (int)strcspn(config + 8, "."), config + 8, (int)nodes * 8,
               -mics.spare_bytes / (1 << 30));
    }
    study_close(&s);
    return status;
}

static mics_status print_strong(headlines *h)
{
    for (int i = 0; i < 2; i++) {
        const machine *m = &machines[i];
        printf("\n### %s\n\n| model | GPUs | p | MiCS | ZeRO-3 here | | ZeRO-3 of then | | P of "
               "mics+ | "
               "mics+ | to MiCS |\n|---|---|---|---|---|---|---|---|---|---|---|\n",
               m->name);
        for (size_t c = 0; c < sizeof models / sizeof models[0]; c++) {
            for (int32_t n = 0; n < m->count; n++)
                MICS_TRY(print_point(i, models[c], m->nodes[n], h));
        }
    }
    return MICS_OK;
}

// So many sequences a GPU, whatever their number.
static mics_status print_weak(const char *cluster, int64_t per_gpu, int64_t length, headlines *h)
{
    double first = 0;
    for (int32_t nodes = 16; nodes <= 64; nodes *= 2) {
        study s;
        mics_plan_entry e;
        mics_status status =
            study_open(&s, "bench/plan/configs/gpt-100b.json", length, cluster, NULL);
        if (status == MICS_OK)
            status =
                study_smallest(&s, nodes, per_gpu * nodes * 8, 0, MICS_PLAN_FAMILY_MICS, true, &e);
        if (status == MICS_OK) {
            const double value = tflops(&s, per_gpu * nodes * 8, nodes * 8, e.step_us);
            if (nodes == 16)
                first = value;
            h->kept = value / first;
            h->peak = value * 1e12 / s.cluster.accelerator.flops_per_s[MICS_MATH_FP16];
            printf("| %lld x %lld | %d | %d | %lld x %d%s | %.1f | %.1f %% | %.1f %% |\n",
                   (long long)per_gpu, (long long)length, (int)nodes * 8,
                   (int)e.choice.sharding.params, (long long)e.choice.micro_batch,
                   (int)e.choice.micro_steps,
                   mics_recomputes(e.choice.recompute) ? ", recomputed" : "", value,
                   100 * value / first,
                   100 * value * 1e12 / s.cluster.accelerator.flops_per_s[MICS_MATH_FP16]);
        }
        study_close(&s);
        MICS_TRY(status);
    }
    return MICS_OK;
}

static mics_status print_weak_tables(headlines *h)
{
    static const char head[] = "\n### %s\n\n| sequences x tokens a GPU | GPUs | p | micro-batches "
                               "| TFLOP/s | of 128 GPUs | of "
                               "the peak |\n|---|---|---|---|---|---|---|\n";
    printf(head, "100 billion parameters on p4d.24xlarge, kernels of 2022");
    headlines unused;
    MICS_TRY(print_weak(P4D_2022, 16, 512, h));
    MICS_TRY(print_weak(P4D_2022, 64, 512, &unused));
    MICS_TRY(print_weak(P4D_2022, 64, 1024, &unused));
    printf(head, "the same, today's kernels");
    return print_weak("{\"base\": \"p4d.24xlarge\"}", 64, 512, &unused);
}

static void print_headlines(const headlines *h)
{
    static const char *const claims[] = {"2.82", "2.21"}; // BERT on p3dn; on p4d
    printf("\n### Headline figures\n\n| | paper | predicted | of |\n|---|---|---|---|\n");
    for (int i = 0; i < 2; i++)
        printf("| MiCS over ZeRO-3 of then, %s | up to %s | up to %.2f | %.*s, %d GPUs, p = %d |\n",
               machines[i].name, claims[i], h->speedup[i], (int)strcspn(h->model[i] + 8, "."),
               h->model[i] + 8, (int)h->gpus[i], (int)h->p[i]);
    printf("| speed kept from 128 to 512 A100 | 99.4 %% | %.1f %% | 100B, 16 x 512 tokens |\n",
           100 * h->kept);
    printf("| share of the A100's peak | over 54.5 %% | %.1f %% | the same, 512 GPUs |\n",
           100 * h->peak);
}

int main(void)
{
    headlines h = {.kept = 0};
    if (print_strong(&h) != MICS_OK || print_weak_tables(&h) != MICS_OK)
        return 1;
    print_headlines(&h);
    return 0;
}
