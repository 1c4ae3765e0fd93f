// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Decoders with experts in plain fp64, op by op: what the engine is compared with. Rows of experts
// stand where their tokens do (row n * k + j), so nothing is sorted.
//
// Shapes: N = B * T tokens, C channels, I inputs, O outputs, E experts, k chosen.
#pragma once

#include "mics/model.h"
#include "ops/common/cases_masks.h"
#include "test.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { WIDE_MAX_TENSORS = 64, WIDE_MAX_UNITS = 8, WIDE_MAX_CHOSEN = 4 };

typedef struct wide_model {
    const mics_model *model;
    int64_t sequences, length;
    double *params[WIDE_MAX_UNITS]; // by unit, as its flat buffer
    double *all[WIDE_MAX_UNITS][WIDE_MAX_TENSORS];
    double **tensors; // of the unit that runs
    double *weights;  // (N, k) of the newest router; 0: dropped
    int32_t *chosen;  // (N, k) of it, as they were scored
    double *logits;   // (N, vocab)
    double dropped;   // share of choices that full experts did not take, mean over routers
    int32_t routers;  // that the model has
    double router_loss[WIDE_MAX_UNITS]; // of each unit
    double *router_loss_at;             // of the unit that runs
    mics_dropout_draw draw;             // of training
    bool training;
} wide_model;

static inline double *wide_doubles(int64_t elems)
{
    double *all = (double *)calloc((size_t)elems, sizeof *all);
    assert_non_null(all);
    return all;
}

static inline int64_t wide_tokens(const wide_model *w)
{
    return w->sequences * w->length;
}

static inline double *wide_param(const wide_model *w, const mics_op *op, int p)
{
    const mics_param_ref ref = op->params[p];
    return ref.unit < 0 ? NULL
                        : w->params[ref.unit] + w->model->units[ref.unit].params[ref.param].offset;
}

static inline double wide_dot(const double *a, const double *b, int64_t elems)
{
    double sum = 0;
    for (int64_t i = 0; i < elems; i++)
        sum += a[i] * b[i];
    return sum;
}

// y (N, O) = x (N, I) W^T + bias, W (O, I).
static inline void wide_linear(const wide_model *w, const mics_op *op, double *y, const double *x,
                               int64_t I, int64_t O)
{
    const double *weight = wide_param(w, op, 0), *bias = wide_param(w, op, 1);
    assert_true(op->weight_out_in || op->kind != MICS_OP_LINEAR);
    for (int64_t n = 0; n < wide_tokens(w); n++)
        for (int64_t o = 0; o < O; o++)
            y[n * O + o] = wide_dot(x + n * I, weight + o * I, I) + (bias != NULL ? bias[o] : 0);
}

static inline void wide_norm_row(double *y, const double *x, const double *weight, int64_t C,
                                 double eps)
{
    const double by = 1 / sqrt(wide_dot(x, x, C) / (double)C + eps);
    for (int64_t c = 0; c < C; c++)
        y[c] = x[c] * by * weight[c];
}

static inline void wide_head_norm(const wide_model *w, const mics_op *op, double *y,
                                  const double *x)
{
    const mics_heads h = op->heads;
    const int64_t heads = h.query + 2 * h.key_value;
    memcpy(y, x, (size_t)(wide_tokens(w) * heads * h.dim) * sizeof *y);
    for (int64_t n = 0; n < wide_tokens(w); n++)
        for (int64_t i = 0; i < h.query + h.key_value; i++)
            wide_norm_row(y + (n * heads + i) * h.dim, x + (n * heads + i) * h.dim,
                          wide_param(w, op, i < h.query ? 0 : 1), h.dim, (double)op->eps);
}

static inline void wide_rotary(const wide_model *w, const mics_op *op, double *y, const double *x)
{
    const mics_heads h = op->heads;
    const int64_t heads = h.query + 2 * h.key_value;
    const mics_rotary_spec *spec = &w->model->rotaries[op->rotary];
    const int64_t half = spec->dims / 2;
    memcpy(y, x, (size_t)(wide_tokens(w) * heads * h.dim) * sizeof *y);
    for (int64_t n = 0; n < wide_tokens(w); n++)
        for (int64_t i = 0; i < (h.query + h.key_value) * half; i++) {
            const double angle = (double)(n % w->length) * (double)spec->frequencies[i % half];
            const double c = cos(angle) * (double)spec->scale, s = sin(angle) * (double)spec->scale;
            const int64_t at = (n * heads + i / half) * h.dim + i % half;
            y[at] = x[at] * c - x[at + half] * s;
            y[at + half] = x[at + half] * c + x[at] * s;
        }
}

// One query head of one token.
static inline void wide_attend(double *y, const double *x, int64_t t, int64_t width,
                               const double *query, int64_t key_at, int64_t value_at, int64_t dim)
{
    double p[64], largest = -INFINITY, sum = 0;
    for (int64_t s = 0; s <= t; s++) {
        p[s] = wide_dot(query, x + s * width + key_at, dim) / sqrt((double)dim);
        largest = fmax(largest, p[s]);
    }
    for (int64_t s = 0; s <= t; s++)
        sum += p[s] = exp(p[s] - largest);
    for (int64_t d = 0; d < dim; d++) {
        y[d] = 0;
        for (int64_t s = 0; s <= t; s++)
            y[d] += p[s] / sum * x[s * width + value_at + d];
    }
}

static inline void wide_attention(const wide_model *w, const mics_op *op, double *y,
                                  const double *x)
{
    const mics_heads h = op->heads;
    const int64_t width = mics_heads_width(h), T = w->length;
    assert_true(T <= 64 && op->window == 0 && !op->both_ways);
    for (int64_t n = 0; n < wide_tokens(w); n++)
        for (int64_t q = 0; q < h.query; q++) {
            const int64_t pair = q / (h.query / h.key_value);
            wide_attend(y + (n * h.query + q) * h.dim, x + n / T * T * width, n % T, width,
                        x + n * width + q * h.dim, (h.query + pair) * h.dim,
                        (h.query + h.key_value + pair) * h.dim, h.dim);
        }
}

static inline void wide_swiglu(double *y, const double *x, int64_t rows, int64_t I)
{
    for (int64_t r = 0; r < rows; r++)
        for (int64_t i = 0; i < I; i++) {
            const double gate = x[r * 2 * I + i];
            y[r * I + i] = gate / (1 + exp(-gate)) * x[r * 2 * I + I + i];
        }
}

// ---- experts ----

// Probabilities p (E) of a token; returns the log of the sum of e^score.
static inline double wide_scores(const wide_model *w, const mics_op *op, const double *x, int64_t n,
                                 int64_t C, double *p)
{
    const double *weight = wide_param(w, op, 0);
    double sum = 0, noisy[64];
    assert_true(C <= 64);
    memcpy(noisy, x + n * C, (size_t)C * sizeof *noisy);
    for (int64_t c = 0; c < C && w->training && op->router.jitter > 0; c++) {
        const double bits = mask_bits(&w->draw, op->mask, n / w->length, n % w->length, c);
        noisy[c] *= 1 + (double)op->router.jitter * ((bits + 0.5) / 32768 - 1);
    }
    for (int32_t e = 0; e < op->experts.count; e++)
        sum += p[e] = exp(wide_dot(noisy, weight + e * C, C));
    for (int32_t e = 0; e < op->experts.count; e++)
        p[e] /= sum;
    return log(sum);
}

static inline void wide_choose(const mics_op *op, const double *p, int32_t *chosen)
{
    for (int32_t j = 0; j < op->experts.chosen; j++) {
        int32_t best = -1;
        for (int32_t e = 0; e < op->experts.count; e++) {
            bool taken = false;
            for (int32_t i = 0; i < j; i++)
                taken = taken || chosen[i] == e;
            if (!taken && (best < 0 || p[e] > p[best]))
                best = e;
        }
        chosen[j] = best;
    }
}

// GShard's algorithm 1: first choices take places before second ones do; chance comes first.
static inline void wide_drop(wide_model *w, const mics_op *op, int64_t b, const double *p_TE)
{
    const mics_experts e = op->experts;
    const int64_t T = w->length, k = e.chosen;
    const double factor = w->training ? e.capacity : e.eval_capacity;
    double capacity = ceil(factor * (double)(T * k) / e.count - 1e-6), taken[64] = {0};
    capacity = factor > 0 ? fmax(capacity, e.min_capacity) : (double)T;
    for (int64_t j = 0; j < k; j++)
        for (int64_t t = 0; t < T; t++) {
            const int64_t at = (b * T + t) * k;
            double sum = 0;
            for (int64_t i = 0; i < k; i++)
                sum += p_TE[t * e.count + w->chosen[at + i]];
            const double own = p_TE[t * e.count + w->chosen[at + j]];
            const bool left_out =
                w->training && op->router.random_second && j == 1 &&
                mask_bits(&w->draw, op->mask + 1, b, t, 0) >= 65536 * 2 * own / sum;
            const bool full = !left_out && taken[w->chosen[at + j]]++ >= capacity;
            w->weights[at + j] = left_out || full ? 0 : own / (op->router.normalised ? sum : 1);
            w->dropped += full ? 1 / (double)(wide_tokens(w) * k * w->routers) : 0;
        }
}

// The losses of one sequence.
static inline double wide_balance(const wide_model *w, const mics_op *op, int64_t b,
                                  const double *p_TE)
{
    const mics_experts e = op->experts;
    const int64_t T = w->length;
    double loss = 0;
    for (int32_t i = 0; i < e.count; i++) {
        double fraction = 0, mean = 0;
        for (int64_t t = 0; t < T; t++) {
            mean += p_TE[t * e.count + i] / (double)T;
            for (int32_t j = 0; j < e.chosen; j++)
                fraction += w->chosen[(b * T + t) * e.chosen + j] == i ? 1 / (double)T : 0;
        }
        loss += e.count * fraction * mean;
    }
    return loss;
}

static inline void wide_router(wide_model *w, const mics_op *op, const double *x, int64_t C)
{
    const mics_experts e = op->experts;
    const int64_t T = w->length;
    double *p = wide_doubles(T * e.count);
    assert_true(e.chosen <= WIDE_MAX_CHOSEN);
    for (int64_t b = 0; b < w->sequences; b++) {
        double squares = 0;
        for (int64_t t = 0; t < T; t++) {
            const double lse = wide_scores(w, op, x, b * T + t, C, p + t * e.count);
            squares += lse * lse / (double)T;
            wide_choose(op, p + t * e.count, w->chosen + (b * T + t) * e.chosen);
        }
        wide_drop(w, op, b, p);
        *w->router_loss_at += ((double)op->router.balance * wide_balance(w, op, b, p) +
                               (double)op->router.z * squares) /
                              (double)w->sequences;
    }
    free(p);
}

static inline void wide_experts(const wide_model *w, const mics_op *op, double *y, const double *x,
                                int64_t in, int64_t out)
{
    const int64_t k = op->experts.chosen;
    const bool sums = op->kind == MICS_OP_EXPERTS_OUT;
    const int64_t I = sums ? in / k : in, O = sums ? out : out / k;
    const double *weight = wide_param(w, op, 0);
    const int64_t apart = mics_unit_expert_elems(&w->model->units[op->params[0].unit]);
    memset(y, 0, (size_t)(wide_tokens(w) * out) * sizeof *y);
    for (int64_t at = 0; at < wide_tokens(w) * k; at++)
        for (int64_t o = 0; o < O && w->weights[at] != 0; o++)
            y[(sums ? at / k : at) * O + o] +=
                (sums ? w->weights[at] : 1) *
                wide_dot(x + (sums ? at : at / k) * I, weight + w->chosen[at] * apart + o * I, I);
}

// ---- the whole ----

static inline void wide_op(wide_model *w, const mics_unit *unit, const mics_op *op,
                           const int32_t *tokens)
{
    const int64_t N = wide_tokens(w), in = op->in[0] >= 0 ? unit->tensors[op->in[0]].width : 0;
    const int64_t out = op->out >= 0 ? unit->tensors[op->out].width : 0;
    const double *x = op->in[0] >= 0 ? w->tensors[op->in[0]] : NULL;
    double *y = op->out >= 0 ? w->tensors[op->out] : w->logits;
    switch (op->kind) {
    case MICS_OP_EMBEDDING:
        for (int64_t n = 0; n < N; n++)
            memcpy(y + n * out, wide_param(w, op, 0) + tokens[n] * out, (size_t)out * sizeof *y);
        break;
    case MICS_OP_RMSNORM:
        for (int64_t n = 0; n < N; n++)
            wide_norm_row(y + n * in, x + n * in, wide_param(w, op, 0), in, (double)op->eps);
        break;
    case MICS_OP_LINEAR:
        wide_linear(w, op, y, x, in, out);
        break;
    case MICS_OP_LM_HEAD:
        wide_linear(w, op, y, x, in, w->model->vocab);
        break;
    case MICS_OP_HEAD_NORM:
        wide_head_norm(w, op, y, x);
        break;
    case MICS_OP_ROTARY:
        wide_rotary(w, op, y, x);
        break;
    case MICS_OP_ATTENTION:
        wide_attention(w, op, y, x);
        break;
    case MICS_OP_SWIGLU: {
        const int64_t rows = op->experts.count > 0 ? op->experts.chosen : 1;
        wide_swiglu(y, x, N * rows, out / rows);
        break;
    }
    case MICS_OP_ADD:
        for (int64_t i = 0; i < N * out; i++)
            y[i] = x[i] + w->tensors[op->in[1]][i];
        break;
    case MICS_OP_SIGMOID_GATE:
        for (int64_t i = 0; i < N * out; i++)
            y[i] = x[i] / (1 + exp(-w->tensors[op->in[1]][i / out]));
        break;
    case MICS_OP_ROUTER:
        wide_router(w, op, x, in);
        break;
    case MICS_OP_EXPERTS_IN:
    case MICS_OP_EXPERTS_OUT:
        wide_experts(w, op, y, x, in, out);
        break;
    default:
        fail_msg("%s is not known here", mics_op_def_get(op->kind)->name);
    }
}

/* Mean cross-entropy of a batch, and w->logits. Units before `first` are as in the call before,
 * whose batch must be the same. */
static inline double wide_loss(wide_model *w, int32_t first, const int32_t *tokens,
                               const int32_t *targets)
{
    const int64_t N = wide_tokens(w), V = w->model->vocab;
    double loss = 0;
    w->dropped = 0;
    for (int32_t u = first; u < w->model->unit_count; u++) {
        const mics_unit *unit = &w->model->units[u];
        w->tensors = w->all[u];
        w->router_loss_at = &w->router_loss[u];
        w->router_loss[u] = 0;
        for (int32_t o = 0; o < unit->op_count; o++)
            wide_op(w, unit, &unit->ops[o], tokens);
    }
    for (int64_t n = 0; n < N; n++) {
        double sum = 0;
        for (int64_t v = 0; v < V; v++)
            sum += exp(w->logits[n * V + v]);
        loss += (log(sum) - w->logits[n * V + targets[n]]) / (double)N;
    }
    return loss;
}

/* What training minimises: the loss, and those of the routers. */
static inline double wide_objective(wide_model *w, int32_t first, const int32_t *tokens,
                                    const int32_t *targets)
{
    double sum = wide_loss(w, first, tokens, targets);
    for (int32_t u = 0; u < w->model->unit_count; u++)
        sum += w->router_loss[u];
    return sum;
}

/* The unit whose ops use the parameters of unit `u`: itself, or of experts the one before. */
static inline int32_t wide_user(const mics_model *model, int32_t u)
{
    while (!mics_unit_computes(&model->units[u]))
        u--;
    return u;
}

/* The gradient of the objective by central differences, which leave every choice as it is. grads:
 * by unit, as its flat buffer. Returns: the loss. */
static inline double wide_gradients(wide_model *w, const int32_t *tokens, const int32_t *targets,
                                    double *const *grads)
{
    static const double STEP = 1e-6;
    const double loss = wide_loss(w, 0, tokens, targets);
    for (int32_t u = w->model->unit_count; --u >= 0;) {
        const int32_t from = wide_user(w->model, u);
        for (int64_t i = 0; i < w->model->units[u].elems; i++) {
            const double saved = w->params[u][i];
            w->params[u][i] = saved + STEP;
            const double ahead = wide_objective(w, from, tokens, targets);
            w->params[u][i] = saved - STEP;
            grads[u][i] = (ahead - wide_objective(w, from, tokens, targets)) / (2 * STEP);
            w->params[u][i] = saved;
        }
        wide_loss(w, from, tokens, targets); // what units behind read
    }
    return loss;
}

static inline void wide_open(wide_model *w, const mics_model *model, int64_t sequences,
                             int64_t length)
{
    const int64_t N = sequences * length;
    *w = (wide_model){.model = model, .sequences = sequences, .length = length};
    w->logits = wide_doubles(N * model->vocab);
    w->weights = wide_doubles(N * WIDE_MAX_CHOSEN);
    w->chosen = (int32_t *)calloc((size_t)(N * WIDE_MAX_CHOSEN), sizeof *w->chosen);
    assert_non_null(w->chosen);
    assert_true(model->unit_count <= WIDE_MAX_UNITS && !model->tied);
    for (int32_t u = 0; u < model->unit_count; u++) {
        const mics_unit *unit = &model->units[u];
        w->params[u] = wide_doubles(unit->elems);
        assert_true(unit->tensor_count <= WIDE_MAX_TENSORS);
        for (int32_t t = 1; t < unit->tensor_count; t++)
            w->all[u][t] = wide_doubles(N * unit->tensors[t].width);
        if (u > 0)
            w->all[u][0] =
                w->all[wide_user(model, u - 1)][model->units[wide_user(model, u - 1)].out];
        for (int32_t o = 0; o < unit->op_count; o++)
            w->routers += unit->ops[o].kind == MICS_OP_ROUTER;
    }
}

static inline void wide_close(wide_model *w)
{
    for (int32_t u = 0; u < w->model->unit_count; u++) {
        for (int32_t t = 1; t < WIDE_MAX_TENSORS; t++)
            free(w->all[u][t]);
        free(w->params[u]);
    }
    free(w->weights);
    free(w->chosen);
    free(w->logits);
}
