// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// A router in fp64: choices, capacity, chance and noise, its gradients and metrics.
#pragma once

#include "ops/common/cases.h"
#include "ops/common/cases_masks.h"

enum { ROUTER_MASK = 5, ROUTER_MAX_EXPERTS = 2048 };

typedef struct router_shape {
    int64_t B, T, C;
    mics_experts experts;
    mics_router_spec spec;
    bool masked;     // every third token counts in no loss, of several sequences none of the last
    int64_t padding; // so many of a sequence's last tokens are of no segment
    bool pairs;      // the losses are of pairs of sequences
} router_shape;

typedef struct router_values {
    const router_shape *s;
    mics_dropout_draw draw;
    double loss_scale;
    const double *x, *w, *dy;                  // (N, C), (E, C), (N, k)
    double *p, *terms, *lse, *entropy, *gates; // (N, E), (N), (N), (N), (N, k)
    double *count, *mean, *full;               // (B, E), (B, E), (B): choices of full experts
    int32_t *chosen, *rows;                    // (N, k); chosen below 0: dropped
} router_values;

static inline bool router_is_nothing(const router_shape *s, int64_t n)
{
    return n % s->T >= s->T - s->padding;
}

static inline double router_tokens(const router_shape *s)
{
    return (double)(s->T - s->padding);
}

static inline int32_t router_target(const router_shape *s, int64_t n)
{
    const bool last = s->B > 1 && n / s->T == s->B - 1;
    return router_is_nothing(s, n) || (s->masked && (last || n % 3 == 1)) ? -1 : 0;
}

// Scale of the losses of a token's sequence: by its share of tokens that count, or half a pair's.
static inline double router_scale(const router_values *r, int64_t n)
{
    const router_shape *s = r->s;
    double counted = 0;
    for (int64_t i = n / s->T * s->T; i < (n / s->T + 1) * s->T; i++)
        counted += router_target(s, i) >= 0;
    counted = s->pairs && counted > 0 ? 0.5 : counted;
    return r->loss_scale * counted / router_tokens(s);
}

static inline double router_noise(const router_values *r, int64_t n, int64_t c)
{
    const router_shape *s = r->s;
    if (s->spec.jitter == 0)
        return 1;
    const double bits = mask_bits(&r->draw, ROUTER_MASK, n / s->T, n % s->T, c);
    return 1 + (double)s->spec.jitter * ((bits + 0.5) / 32768 - 1);
}

// Probabilities of a token, and the largest sum of absolute terms of a score.
static inline void router_score(const router_values *r, int64_t n)
{
    const int64_t E = r->s->experts.count, C = r->s->C;
    double *p = r->p + n * E, sum = 0;
    memset(p, 0, (size_t)E * sizeof *p);
    r->terms[n] = 0;
    for (int64_t e = 0; e < E; e++) {
        double terms = 1;
        for (int64_t c = 0; c < C; c++) {
            const double term = r->x[n * C + c] * router_noise(r, n, c) * r->w[e * C + c];
            p[e] += term;
            terms += fabs(term);
        }
        p[e] = exp(p[e]);
        sum += p[e];
        r->terms[n] = fmax(r->terms[n], terms);
    }
    r->lse[n] = log(sum);
    r->entropy[n] = 0;
    for (int64_t e = 0; e < E; e++) {
        p[e] /= sum;
        r->entropy[n] -= p[e] > 0 ? p[e] * log(p[e]) : 0;
    }
}

static inline void router_choose(const router_values *r, int64_t n)
{
    const int32_t E = r->s->experts.count, k = r->s->experts.chosen;
    const double *p = r->p + n * E;
    for (int32_t j = 0; j < k; j++) {
        int32_t best = -1;
        for (int32_t e = 0; e < E; e++) {
            bool taken = false;
            for (int32_t i = 0; i < j; i++)
                taken = taken || r->chosen[n * k + i] == e;
            if (!taken && (best < 0 || p[e] > p[best]))
                best = e;
        }
        r->chosen[n * k + j] = best;
        r->count[n / r->s->T * E + best] += router_is_nothing(r->s, n) ? 0 : 1;
    }
}

// A token of no segment goes to no expert, and has no probabilities.
static inline void router_clear(const router_values *r, int64_t n)
{
    const int32_t E = r->s->experts.count, k = r->s->experts.chosen;
    if (!router_is_nothing(r->s, n))
        return;
    for (int32_t j = 0; j < k; j++)
        r->chosen[n * k + j] = ~r->chosen[n * k + j];
    memset(r->p + n * E, 0, (size_t)E * sizeof *r->p);
    r->lse[n] = r->entropy[n] = 0;
}

static inline int32_t router_expert(const router_values *r, int64_t at)
{
    return r->chosen[at] < 0 ? ~r->chosen[at] : r->chosen[at];
}

static inline double router_sum_chosen(const router_values *r, int64_t n)
{
    const int64_t E = r->s->experts.count, k = r->s->experts.chosen;
    double sum = 0;
    for (int64_t j = 0; j < k; j++)
        sum += r->p[n * E + router_expert(r, n * k + j)];
    return sum;
}

static inline void router_weigh(const router_values *r, int64_t n)
{
    const int64_t E = r->s->experts.count, k = r->s->experts.chosen;
    const double sum = r->s->spec.normalised ? router_sum_chosen(r, n) : 1;
    for (int64_t at = n * k; at < (n + 1) * k; at++)
        r->gates[at] = r->chosen[at] < 0 ? 0 : r->p[n * E + r->chosen[at]] / sum;
}

// By chance, then by capacity: first choices of a sequence's tokens, then second ones.
static inline void router_drop(const router_values *r, int64_t b)
{
    const router_shape *s = r->s;
    const int64_t E = s->experts.count, k = s->experts.chosen, T = s->T;
    const double exact = s->experts.capacity * (double)(T * k) / (double)E;
    double capacity = s->experts.capacity > 0 ? ceil(exact - 1e-9) : (double)T;
    double taken[ROUTER_MAX_EXPERTS] = {0};
    capacity = capacity < s->experts.min_capacity ? s->experts.min_capacity : capacity;
    for (int64_t j = 0; j < k; j++)
        for (int64_t t = 0; t < T; t++) {
            const int64_t n = b * T + t, at = n * k + j;
            if (router_is_nothing(s, n))
                continue;
            const double share = r->p[n * E + router_expert(r, at)] / router_sum_chosen(r, n);
            const double bits = mask_bits(&r->draw, ROUTER_MASK + 1, b, t, 0);
            if (s->spec.random_second && j == 1 && bits >= 65536 * 2 * share)
                r->chosen[at] = ~r->chosen[at];
            else if (taken[r->chosen[at]]++ >= capacity)
                r->chosen[at] = ~r->chosen[at], r->full[b] += 1;
        }
}

// Rows by expert, then by token; those that are dropped behind.
static inline void router_place(const router_values *r)
{
    const int64_t choices = r->s->B * r->s->T * r->s->experts.chosen, E = r->s->experts.count;
    int32_t row = 0;
    for (int64_t e = 0; e <= E; e++)
        for (int64_t at = 0; at < choices; at++)
            if (e < E ? r->chosen[at] == e : r->chosen[at] < 0)
                r->rows[at] = row++;
}

static inline void router_forward(const router_values *r)
{
    const int64_t T = r->s->T, N = r->s->B * T, E = r->s->experts.count;
    for (int64_t n = 0; n < N; n++) {
        router_score(r, n);
        router_choose(r, n);
        router_clear(r, n);
        for (int64_t e = 0; e < E; e++)
            r->mean[n / T * E + e] += r->p[n * E + e] / router_tokens(r->s);
    }
    for (int64_t b = 0; b < r->s->B; b++)
        router_drop(r, b);
    for (int64_t n = 0; n < N; n++)
        router_weigh(r, n);
    router_place(r);
}

// Sum of the weights times dy and of T times the losses, with the experts that were chosen before.
static inline double router_objective(const void *ctx)
{
    const router_values *r = (const router_values *)ctx;
    const mics_router_spec *spec = &r->s->spec;
    const int64_t T = r->s->T, E = r->s->experts.count, k = r->s->experts.chosen;
    double sum = 0;
    for (int64_t n = 0; n < r->s->B * T; n++) {
        const double scale = router_scale(r, n);
        if (router_is_nothing(r->s, n))
            continue;
        router_score(r, n);
        router_weigh(r, n);
        for (int64_t at = n * k; at < (n + 1) * k; at++)
            sum += r->gates[at] * r->dy[at];
        sum += scale * (double)spec->z * r->lse[n] * r->lse[n];
        for (int64_t e = 0; e < E; e++)
            sum += scale * (double)spec->balance * (double)E * r->count[n / T * E + e] /
                   router_tokens(r->s) * r->p[n * E + e];
    }
    return sum;
}

// Gradients of a token's scores, and sums of the absolute terms behind them.
static inline void router_slopes(const router_values *r, int64_t n, double *d, double *sum)
{
    const router_shape *s = r->s;
    const int64_t E = s->experts.count, k = s->experts.chosen;
    const double *p = r->p + n * E, scale = router_scale(r, n);
    const double chosen = s->spec.normalised ? router_sum_chosen(r, n) : 1;
    double mean = 0, dot = 0, dot_sum = 0;
    for (int64_t e = 0; e < E; e++)
        d[e] = sum[e] = 0;
    if (router_is_nothing(s, n))
        return;
    for (int64_t at = n * k; at < (n + 1) * k; at++)
        mean += s->spec.normalised ? r->dy[at] * r->gates[at] : 0;
    for (int64_t e = 0; e < E; e++) {
        d[e] = scale * (double)s->spec.balance * (double)E * r->count[n / s->T * E + e] /
               router_tokens(s);
        sum[e] = fabs(d[e]);
    }
    for (int64_t at = n * k; at < (n + 1) * k; at++) {
        const double dy = r->chosen[at] < 0 ? 0 : r->dy[at];
        d[router_expert(r, at)] += (dy - mean) / chosen;
        sum[router_expert(r, at)] += (fabs(dy) + fabs(mean)) / chosen;
    }
    for (int64_t e = 0; e < E; e++) {
        dot += d[e] * p[e];
        dot_sum += sum[e] * p[e];
    }
    for (int64_t e = 0; e < E; e++) {
        const double z = 2 * scale * (double)s->spec.z * r->lse[n];
        d[e] = p[e] * (d[e] - dot + z);
        sum[e] = 4 * p[e] * (sum[e] + dot_sum + fabs(z));
    }
}

// Adds to dx (N, C) and dw (E, C), and absolute terms to the arrays behind.
static inline void router_backward(const router_values *r, double *const dx[2], double *const dw[2])
{
    const int64_t E = r->s->experts.count, C = r->s->C;
    double d[ROUTER_MAX_EXPERTS], sum[ROUTER_MAX_EXPERTS];
    for (int64_t n = 0; n < r->s->B * r->s->T; n++) {
        router_slopes(r, n, d, sum);
        for (int64_t e = 0; e < E; e++)
            for (int64_t c = 0; c < C; c++) {
                const double noise = router_noise(r, n, c);
                dx[0][n * C + c] += d[e] * r->w[e * C + c] * noise;
                dx[1][n * C + c] += sum[e] * fabs(r->w[e * C + c] * noise);
                dw[0][e * C + c] += d[e] * r->x[n * C + c] * noise;
                dw[1][e * C + c] += sum[e] * fabs(r->x[n * C + c] * noise);
            }
    }
}

static inline void router_metrics(const router_values *r, double sums[MICS_ROUTER_SUMS])
{
    const router_shape *s = r->s;
    const int64_t E = s->experts.count, k = s->experts.chosen;
    for (int64_t b = 0; b < s->B; b++) {
        double fullest = 0;
        if (router_scale(r, b * s->T) == 0)
            continue;
        for (int64_t n = b * s->T; n < (b + 1) * s->T; n++)
            sums[MICS_ROUTER_ENTROPY] += r->entropy[n] / router_tokens(s);
        for (int64_t e = 0; e < E; e++) {
            const double fraction = r->count[b * E + e] / router_tokens(s);
            fullest = fmax(fullest, fraction);
            sums[MICS_ROUTER_BALANCE] += (double)E * fraction * r->mean[b * E + e];
        }
        sums[MICS_ROUTER_FULLEST] += fullest * (double)E / (double)k;
        sums[MICS_ROUTER_DROPPED] += r->full[b] / (router_tokens(s) * (double)k);
        sums[MICS_ROUTER_SEQUENCES] += 1;
    }
}
