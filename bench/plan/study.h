// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// What the tables of plans share: models, clusters, and ZeRO-3 as it ran then.
#pragma once

#include "plan/search/plan.h"

typedef struct study {
    mics_memory *memory;
    mics_model *model;
    mics_cluster cluster;
    int64_t length;
    double layers, width, vocab; // of the model, for published FLOP formulas
} study;

/* Opens a model (a config.json) and a cluster (a cluster file's text, or NULL and a name). Close with study_close. */
mics_status study_open(study *s, const char *config, int64_t length, const char *cluster,
                       const char *name);
void study_close(study *s);

/* FLOPs of a step as both papers count them: 96 B s l h^2 (1 + s / 6h + V / 16 l h), recomputation included.
 * Source: Narayanan et al., SC21, arXiv:2104.04473, equation 3. */
double study_flops(const study *s, double sequences);

/* A request in 16 bits. */
mics_plan_request study_request(const study *s, int32_t nodes, int64_t global_batch);

/* A step of ZeRO-3 as DeepSpeed ran it then (zero3_then.c), micro_batch x micro_steps sequences a rank. */
mics_status study_zero3(const study *s, int32_t nodes, int64_t micro_batch, int32_t micro_steps,
                        double *step_us_out);

/* The smallest P of a family that fits with a unit gathered ahead (else without), at a micro-batch and recomputed (0: at its
 * best); its best entry. fits false: none. */
mics_status study_smallest(const study *s, int32_t nodes, int64_t global_batch, int64_t micro_batch,
                           mics_plan_family family, bool paper, mics_plan_entry *entry_out);
