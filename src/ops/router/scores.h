// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// From a token's scores to its experts and their weights.
#pragma once

#include "ops/experts/def.h"
#include <math.h>

static inline int32_t *router_chosen(float *row, mics_experts e)
{
    return (int32_t *)(void *)(row + e.count + 2);
}

static inline bool router_has(const int32_t *chosen, int32_t count, int32_t expert)
{
    for (int32_t j = 0; j < count; ++j)
        if (chosen[j] == expert)
            return true;
    return false;
}

/* Chooses by the scores that a row of a router's stats (ops/experts/def.h) begins with, and makes
 * them probabilities. NaN is chosen like any score, so that rows are always those of some experts. */
static inline void router_choose(float *row, mics_experts e)
{
    int32_t *chosen = router_chosen(row, e);
    for (int32_t j = 0; j < e.chosen; ++j) {
        int32_t best = -1;
        for (int32_t i = 0; i < e.count; ++i)
            if ((best < 0 || row[i] > row[best]) && !router_has(chosen, j, i))
                best = i;
        chosen[j] = best;
    }
    const float largest = row[chosen[0]];
    float sum = 0, weighed = 0;
    for (int32_t i = 0; i < e.count; ++i) {
        const float below = row[i] - largest;
        row[i] = expf(below);
        sum += row[i];
        weighed += row[i] * below;
    }
    const float log_sum = sum > 0 ? logf(sum) : 0; // the largest alone gives 1
    for (int32_t i = 0; i < e.count; ++i)
        row[i] /= sum;
    row[e.count] = largest + log_sum;
    row[e.count + 1] = log_sum - weighed / sum;
}

/* The probability of a token's choice of number j, and the sum of those of all its choices. */
static inline float router_probability(const float *row, mics_experts e, int32_t j)
{
    return row[mics_route_expert(mics_route_chosen(row, e, 0)[j])];
}

static inline float router_sum(const float *row, mics_experts e)
{
    float sum = 0;
    for (int32_t j = 0; j < e.chosen; ++j)
        sum += router_probability(row, e, j);
    return sum;
}

/* The weight of a token's expert of number j, were it not dropped. */
static inline float router_weight(const float *row, const mics_op *op, int32_t j)
{
    const float probability = router_probability(row, op->experts, j);
    return op->router.normalised ? probability / router_sum(row, op->experts) : probability;
}
