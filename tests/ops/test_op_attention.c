// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Attention, causal and both ways, with shared keys, windows and segments, against the plain one
// with all T x T scores.
#include "op_harness.h"
#include "op_shared.h"
#include "ops/attention/def.h"
#include "ops/common/cases_masks.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct attention {
    float *y, *new_lse, *dqkv, *workspace;
    const float *qkv, *dy, *old_y, *lse;
    int64_t B, T;
    mics_heads heads;
    op_sight sight;
    op_dropout dropout;
} attention;

// Floats a thread.
static int64_t workspace_of(const attention *a)
{
    const mics_heads heads = a->heads;
    return op_bf16() ? mics_attention_workspace_bf16(a->T, heads.query / heads.key_value, heads.dim)
                     : mics_attention_workspace(heads.dim);
}

static void run_forward(const mics_kernels *k, int32_t threads, const void *args)
{
    const attention *a = args;
    const mics_exec at = op_exec(threads, a->workspace);
    op_attention_forward(k, &at, a->y, a->new_lse, a->qkv, a->B, a->T, a->heads, a->sight,
                         a->dropout);
}

static void run_backward(const mics_kernels *k, int32_t threads, const void *args)
{
    const attention *a = args;
    const mics_exec at = op_exec(threads, a->workspace);
    op_attention_backward(k, &at, a->dqkv, a->dy, a->old_y, a->lse, a->qkv, a->B, a->T, a->heads,
                          a->sight, a->dropout);
}

// All in fp64. `doubt`: absolute terms of the largest score of a query, in which the error of its
// exponentials is measured.
typedef struct attention_wide {
    double *qkv, *y, *y_sum, *lse, *lse_sum, *p, *doubt, *dy;
    int64_t B, T, H, D;
    mics_heads heads;
    op_sight sight;
    op_dropout dropout;
} attention_wide;

// Row of one query head: part 0 query, 1 key, 2 value that it reads.
static double *part(const attention_wide *w, double *qkv, int64_t b, int64_t t, int64_t h,
                    int which)
{
    const int64_t K = w->heads.key_value, kv = h / (w->H / K);
    const int64_t head = which == 0 ? h : w->H + (which - 1) * K + kv;
    return qkv + (b * w->T + t) * mics_heads_width(w->heads) + head * w->D;
}

// Whether token t sees token i.
static bool sees(const attention_wide *w, int64_t b, int64_t t, int64_t i)
{
    const op_sight *sight = &w->sight;
    const int32_t *segments = sight->segments == NULL ? NULL : sight->segments + b * w->T;
    if (segments != NULL && segments[t] != segments[i])
        return false;
    if (sight->both_ways)
        return sight->window == 0 || llabs(t - i) <= sight->window / 2;
    return i <= t && (sight->window == 0 || i > t - sight->window);
}

static double *probabilities(const attention_wide *w, int64_t b, int64_t h, int64_t t)
{
    return w->p + ((b * w->H + h) * w->T + t) * w->T;
}

// What dropout multiplies the probability of key s by.
static double kept(const attention_wide *w, int64_t b, int64_t h, int64_t t, int64_t s)
{
    return mask_factor(w->dropout.draw, w->dropout.probability, w->dropout.mask + (uint32_t)h, b, t,
                       s);
}

static void reference_row(const attention_wide *w, int64_t b, int64_t h, int64_t t)
{
    const int64_t row = (b * w->T + t) * w->H + h;
    const double *q = part(w, w->qkv, b, t, h, 0), scale = 1 / sqrt((double)w->D);
    double *p = probabilities(w, b, h, t), highest = -INFINITY, sum = 0;
    w->doubt[row] = 0;
    for (int64_t s = 0; s < w->T; ++s) {
        if (!sees(w, b, t, s))
            continue;
        const double *k = part(w, w->qkv, b, s, h, 1);
        double terms = 0;
        for (int64_t d = 0; d < w->D; ++d)
            terms += fabs(q[d] * k[d]) * scale;
        p[s] = op_dot(q, k, w->D) * scale;
        highest = fmax(highest, p[s]);
        w->doubt[row] = fmax(w->doubt[row], terms);
    }
    for (int64_t s = 0; s < w->T; ++s)
        sum += sees(w, b, t, s) ? exp(p[s] - highest) : 0;
    w->lse[row] = highest + log(sum);
    w->lse_sum[row] = 1 + 2 * w->doubt[row] + log(sum);
    for (int64_t d = 0; d < w->D; ++d)
        w->y[row * w->D + d] = w->y_sum[row * w->D + d] = 0;
    for (int64_t s = 0; s < w->T; ++s) {
        if (!sees(w, b, t, s))
            continue;
        const double *v = part(w, w->qkv, b, s, h, 2);
        p[s] = exp(p[s] - w->lse[row]);
        const double seen = p[s] * kept(w, b, h, t, s);
        for (int64_t d = 0; d < w->D; ++d) {
            w->y[row * w->D + d] += seen * v[d];
            w->y_sum[row * w->D + d] += seen * fabs(v[d]) * (1 + 2 * w->doubt[row]);
        }
    }
}

static void reference(const attention_wide *w)
{
    for (int64_t b = 0; b < w->B; ++b)
        for (int64_t h = 0; h < w->H; ++h)
            for (int64_t t = 0; t < w->T; ++t)
                reference_row(w, b, h, t);
}

static double objective(const void *ctx)
{
    const attention_wide *w = ctx;
    reference(w);
    return op_dot(w->y, w->dy, w->B * w->T * w->H * w->D);
}

// With f what dropout multiplies by: dv += p f dy; ds = p (f dy . v - dy . y) scale; dq += ds k; dk
// += ds q. `sum` takes absolute terms.
static void gradients_row(const attention_wide *w, double *grad, double *sum, int64_t b, int64_t h,
                          int64_t t)
{
    const int64_t row = (b * w->T + t) * w->H + h, D = w->D;
    const double *dy = w->dy + row * D, *p = probabilities(w, b, h, t);
    const double *q = part(w, w->qkv, b, t, h, 0), scale = 1 / sqrt((double)D);
    const double doubt = 2 + 2 * w->doubt[row], delta = op_dot(dy, w->y + row * D, D);
    double delta_sum = 0;
    for (int64_t d = 0; d < D; ++d)
        delta_sum += fabs(dy[d]) * w->y_sum[row * D + d];
    for (int64_t s = 0; s < w->T; ++s) {
        if (!sees(w, b, t, s))
            continue;
        const double *k = part(w, w->qkv, b, s, h, 1), *v = part(w, w->qkv, b, s, h, 2);
        const double f = kept(w, b, h, t, s);
        double dp_sum = delta_sum;
        for (int64_t d = 0; d < D; ++d)
            dp_sum += f * fabs(dy[d] * v[d]);
        const double ds = p[s] * (f * op_dot(dy, v, D) - delta) * scale;
        const double ds_sum = p[s] * dp_sum * scale * doubt;
        for (int64_t d = 0; d < D; ++d) {
            part(w, grad, b, t, h, 0)[d] += ds * k[d];
            part(w, sum, b, t, h, 0)[d] += ds_sum * fabs(k[d]);
            part(w, grad, b, s, h, 1)[d] += ds * q[d];
            part(w, sum, b, s, h, 1)[d] += ds_sum * fabs(q[d]);
            part(w, grad, b, s, h, 2)[d] += p[s] * f * dy[d];
            part(w, sum, b, s, h, 2)[d] += p[s] * f * fabs(dy[d]) * doubt;
        }
    }
}

static attention_wide widen(op_case *c, const attention *a)
{
    const int64_t rows = a->B * a->T * a->heads.query;
    attention_wide w = {.B = a->B,
                        .T = a->T,
                        .H = a->heads.query,
                        .D = a->heads.dim,
                        .heads = a->heads,
                        .sight = a->sight,
                        .dropout = a->dropout};
    w.qkv = op_widen(c, a->qkv);
    w.y = op_doubles(c, rows * a->heads.dim);
    w.y_sum = op_doubles(c, rows * a->heads.dim);
    w.lse = op_doubles(c, rows);
    w.lse_sum = op_doubles(c, rows);
    w.doubt = op_doubles(c, rows);
    w.p = op_doubles(c, rows * a->T);
    return w;
}

static void begin(op_case *c, const char *pass, const attention *a, double spread)
{
    op_begin(c, "attention_%s B=%d T=%d heads=%d/%d D=%d window=%d%s%s spread %g p=%g", pass,
             (int)a->B, (int)a->T, (int)a->heads.query, (int)a->heads.key_value, (int)a->heads.dim,
             (int)a->sight.window, a->sight.both_ways ? " both ways" : "",
             a->sight.segments != NULL ? " segments" : "", spread, (double)a->dropout.probability);
}

static void forward_case(attention a, double spread)
{
    const int64_t rows = a.B * a.T * a.heads.query, D = a.heads.dim;
    op_case c;
    begin(&c, "forward", &a, spread);
    a.qkv = op_input(&c, "qkv", a.B * a.T * mics_heads_width(a.heads), spread);
    a.y = op_output(&c, "y", rows * D, false);
    a.new_lse = op_fp32(&c, op_output(&c, "lse", rows, false));
    a.workspace = op_space(&c, "workspace", OP_MAX_THREADS * workspace_of(&a));
    const attention_wide w = widen(&c, &a);
    reference(&w);
    op_expect(&c, a.y, w.y, w.y_sum, OP_TOLERANCE);
    op_expect(&c, a.new_lse, w.lse, w.lse_sum, OP_TOLERANCE);
    op_run(&c, run_forward, &a);
    op_end(&c);
}

static void narrow(op_case *c, float *to, const double *from, int64_t elems)
{
    for (int64_t i = 0; i < elems; ++i)
        to[i] = (float)from[i];
    op_input_changed(c, to);
}

static void backward_case(attention a, double spread)
{
    const int64_t H = a.heads.query, T = a.T, D = a.heads.dim, rows = a.B * T * H;
    const int64_t elems = a.B * T * mics_heads_width(a.heads);
    op_case c;
    begin(&c, "backward", &a, spread);
    a.qkv = op_input(&c, "qkv", elems, spread);
    a.dy = op_input(&c, "dy", rows * D, 1.0);
    float *old_y = op_input(&c, "y", rows * D, 1.0),
          *lse = op_fp32(&c, op_input(&c, "lse", rows, 1.0));
    a.old_y = old_y;
    a.lse = lse;
    a.dqkv = op_output(&c, "dqkv", elems, false);
    a.workspace = op_space(&c, "workspace", OP_MAX_THREADS * workspace_of(&a));
    attention_wide w = widen(&c, &a);
    w.dy = op_widen(&c, a.dy);
    reference(&w);
    narrow(&c, old_y, w.y, rows * D);
    narrow(&c, lse, w.lse, rows);
    double *grad = op_doubles(&c, elems), *sum = op_doubles(&c, elems);
    for (int64_t i = 0; i < rows; ++i)
        gradients_row(&w, grad, sum, i / H / T, i % H, i / H % T);
    if (spread < 3) // the derivatives of sharper scores are too large for differences
        op_check_gradient(&c, "qkv", objective, &w, w.qkv, elems, grad, 12);
    // In bf16 the output that delta is made of was rounded.
    op_expect(&c, a.dqkv, grad, sum, OP_TOLERANCE + op_bf16_roundings(1));
    op_run(&c, run_backward, &a);
    op_end(&c);
}

// B, T, H, D: each head dimension and each T around the borders of tiles and vectors.
static const int64_t SHAPES[][4] = {
    {1, 1, 1, 1},    {2, 1, 3, 8},    {1, 2, 2, 3},   {3, 3, 1, 1},    {2, 5, 3, 40},
    {1, 17, 2, 64},  {1, 63, 1, 3},   {2, 64, 2, 8},  {1, 65, 3, 1},   {1, 127, 2, 40},
    {2, 128, 1, 17}, {1, 130, 2, 80}, {1, 66, 1, 64}, {1, 70, 1, 128}, {1, 200, 2, 64},
    {1, 257, 1, 5},  {3, 33, 2, 16}};
enum { SHAPE_COUNT = sizeof SHAPES / sizeof *SHAPES };

static attention shape_of(const int64_t shape[4])
{
    return (attention){.B = shape[0], .T = shape[1], .heads = op_heads(shape[2], shape[3])};
}

// Keys that several query heads read, and windows: inside a tile, of a whole one, across borders,
// as long as a sequence and longer.
static const attention SHARED[] = {
    {.B = 1, .T = 1, .heads = {6, 2, 40}, .sight = {.window = 3}},
    {.B = 2, .T = 9, .heads = {5, 1, 40}},
    {.B = 2, .T = 70, .heads = {6, 2, 40}},
    {.B = 1, .T = 130, .heads = {4, 2, 8}},
    {.B = 1, .T = 66, .heads = {6, 3, 17}, .sight = {.window = 1}},
    {.B = 2, .T = 70, .heads = {6, 2, 40}, .sight = {.window = 3}},
    {.B = 1, .T = 200, .heads = {1, 1, 5}, .sight = {.window = 64}},
    {.B = 1, .T = 200, .heads = {2, 1, 64}, .sight = {.window = 65}},
    {.B = 1, .T = 257, .heads = {2, 2, 8}, .sight = {.window = 130}},
    {.B = 1, .T = 193, .heads = {3, 3, 16}, .sight = {.window = 63}},
    {.B = 1, .T = 65, .heads = {2, 1, 3}, .sight = {.window = 65}},
    {.B = 1, .T = 65, .heads = {2, 1, 3}, .sight = {.window = 1000}},
};
enum { SHARED_COUNT = sizeof SHARED / sizeof *SHARED };

static void forward_matches_reference(void **state)
{
    (void)state;
    for (int i = 0; i < SHAPE_COUNT; ++i)
        forward_case(shape_of(SHAPES[i]), 1.0);
    for (int i = 0; i < SHARED_COUNT; ++i)
        forward_case(SHARED[i], 1.0);
    // scores in the hundreds: maxima move between tiles
    forward_case((attention){.B = 1, .T = 130, .heads = {1, 1, 16}}, 20.0);
    forward_case((attention){.B = 1, .T = 130, .heads = {2, 1, 16}, .sight = {.window = 40}}, 20.0);
}

static void backward_matches_reference(void **state)
{
    (void)state;
    for (int i = 0; i < SHAPE_COUNT; ++i)
        backward_case(shape_of(SHAPES[i]), 1.0);
    for (int i = 0; i < SHARED_COUNT; ++i)
        backward_case(SHARED[i], 1.0);
    backward_case((attention){.B = 1, .T = 130, .heads = {1, 1, 16}}, 5.0);
    backward_case((attention){.B = 1, .T = 130, .heads = {2, 1, 16}, .sight = {.window = 40}}, 5.0);
}

// Every length of a sequence around what a tile and a vector hold.
static void every_length_matches_reference(void **state)
{
    (void)state;
    for (int64_t T = 1; T <= 70; ++T) {
        const attention a = {
            .B = 1, .T = T, .heads = {3, T % 2 ? 1 : 3, 8}, .sight = {.window = T % 3 ? T / 2 : 0}};
        forward_case(a, 1.0);
        backward_case(a, 1.0);
    }
}

static void dropout_matches_reference(void **state)
{
    (void)state;
    const mics_dropout_draw draw = mask_draw(mics_rng_bits(9, 9, 9), 1000);
    const op_dropout tenth = {0.1F, 21, &draw}, most = {0.9F, 3, &draw}, eval = {0.1F, 21, NULL};
    for (int i = 0; i < SHAPE_COUNT + SHARED_COUNT; ++i) {
        attention a = i < SHAPE_COUNT ? shape_of(SHAPES[i]) : SHARED[i - SHAPE_COUNT];
        a.dropout = i % 3 == 2 ? most : tenth;
        forward_case(a, 1.0);
        backward_case(a, 1.0);
        a.dropout = eval;
        if (i % 5 == 0)
            forward_case(a, 1.0);
    }
    for (int64_t T = 1; T <= 70; ++T) {
        const attention a = {.B = 2,
                             .T = T,
                             .heads = {2, T % 2 ? 1 : 2, 4},
                             .sight = {.window = T % 3 ? T / 2 : 0},
                             .dropout = tenth};
        forward_case(a, 1.0);
        backward_case(a, 1.0);
    }
}

// Segments of B sequences as tests have them.
typedef enum arrangement {
    DOCUMENTS, // one behind the other, of 1 token and more
    PADDING,   // one and what is behind it
    SHUFFLED,  // as chance has it
    ARRANGEMENTS
} arrangement;

static void arrange(arrangement how, int64_t B, int64_t T, int32_t *segments)
{
    for (int64_t b = 0; b < B; ++b) {
        int32_t document = 0;
        for (int64_t t = 0; t < T; ++t) {
            const uint64_t bits = mics_rng_bits(7, (uint64_t)(b * 100 + how), (uint64_t)t);
            document += t > 0 && bits % 37 == 0;
            segments[b * T + t] = how == DOCUMENTS ? document
                                  : how == PADDING ? (t < T * (b + 1) / (B + 1) ? 0 : -1)
                                                   : (int32_t)(bits % 3);
        }
    }
}

static void sight_case(attention a, arrangement how)
{
    int32_t segments[2 * 260];
    assert_true(a.B * a.T <= 2 * 260);
    arrange(how, a.B, a.T, segments);
    a.sight.segments = segments;
    forward_case(a, 1.0);
    backward_case(a, 1.0);
}

// Both ways, with and without a window, and all with segments.
static void sight_matches_reference(void **state)
{
    (void)state;
    const mics_dropout_draw draw = mask_draw(mics_rng_bits(9, 9, 9), 1000);
    const op_dropout tenth = {0.1F, 21, &draw}, none = {0};
    for (int i = 0; i < SHAPE_COUNT + SHARED_COUNT; ++i) {
        attention a = i < SHAPE_COUNT ? shape_of(SHAPES[i]) : SHARED[i - SHAPE_COUNT];
        sight_case(a, (arrangement)(i % ARRANGEMENTS));
        a.sight.both_ways = true;
        a.dropout = i % 2 ? tenth : none;
        forward_case(a, 1.0);
        backward_case(a, 1.0);
        sight_case(a, (arrangement)((i + 1) % ARRANGEMENTS));
    }
    static const int64_t windows[] = {0, 1, 2, 3, 64, 65, 127, 128, 129, 400};
    for (int i = 0; i < 10; ++i)
        for (int how = 0; how < ARRANGEMENTS; ++how) {
            attention a = {.B = 2, .T = 200, .heads = {2, 1, 4}};
            a.sight = (op_sight){.window = windows[i], .both_ways = how != SHUFFLED};
            sight_case(a, (arrangement)how);
        }
}

typedef struct decode {
    float *y, *workspaces, *cache;
    const float *rows;
    int64_t before, B, T; // tokens in the cache; sequences, and new tokens of each
    mics_heads heads;
    int64_t window;
} decode;

static int64_t decode_floats(const decode *d)
{
    const int64_t shared = d->heads.query / d->heads.key_value;
    return (d->before + d->T) *
           (shared > MICS_ATTENTION_PROMPT_ROWS ? shared : MICS_ATTENTION_PROMPT_ROWS);
}

static void run_decode(const mics_kernels *k, int32_t threads, const void *args)
{
    const decode *d = args;
    const mics_op op = {.kind = MICS_OP_ATTENTION, .heads = d->heads, .window = d->window};
    mics_op_call call = {.shape = op_attention_shape(d->B, d->T, d->heads),
                         .in = {d->rows},
                         .out = d->y,
                         .cache = d->cache,
                         .position = d->before,
                         .capacity = d->before + d->T};
    call.shape.op = &op;
    op_decode_shared(k, call, threads, d->workspaces, decode_floats(d));
}

// Tokens of all sequences as forward gets them, from what the cache has and the new rows.
static void join(const decode *d, float *qkv)
{
    const int64_t K = d->heads.key_value, D = d->heads.dim, C = d->heads.query * D;
    const int64_t W = mics_heads_width(d->heads), length = d->before + d->T;
    for (int64_t b = 0; b < d->B; ++b)
        for (int64_t t = 0; t < length; ++t) {
            float *to = qkv + (b * length + t) * W;
            if (t >= d->before)
                memcpy(to, d->rows + (b * d->T + t - d->before) * W, (size_t)W * sizeof *to);
            // keys, then values: 2 K tables of (capacity, D)
            for (int64_t head = 0; t < d->before && head < 2 * K; ++head)
                memcpy(to + C + head * D, d->cache + ((b * 2 * K + head) * length + t) * D,
                       (size_t)D * sizeof *to);
        }
}

// Decoding gives the last rows of the plain attention.
static void decode_case(int64_t length, int64_t T, mics_heads heads, int64_t window, double spread)
{
    if (op_bf16()) // which the tables have in fp32 alone
        return;
    op_case c;
    decode d = {.before = length - T, .B = T > 1 ? 1 : 2, .T = T, .heads = heads, .window = window};
    op_begin(&c, "attention_decode length=%d T=%d heads=%d/%d D=%d window=%d", (int)length, (int)T,
             (int)heads.query, (int)heads.key_value, (int)heads.dim, (int)window);
    const int64_t C = heads.query * heads.dim, W = mics_heads_width(heads);
    d.rows = op_input(&c, "rows", d.B * T * W, spread);
    d.cache = op_inout(&c, "cache", d.B * 2 * heads.key_value * heads.dim * length, spread);
    d.y = op_output(&c, "y", d.B * T * C, false);
    d.workspaces = op_space(&c, "workspaces", OP_MAX_THREADS * decode_floats(&d));
    float *qkv = op_input(&c, "qkv", d.B * length * W, 1.0);
    join(&d, qkv);
    op_input_changed(&c, qkv);
    const attention a = {
        .qkv = qkv, .B = d.B, .T = length, .heads = heads, .sight = {.window = window}};
    const attention_wide w = widen(&c, &a);
    double *want = op_doubles(&c, d.B * T * C), *sum = op_doubles(&c, d.B * T * C);
    for (int64_t row = 0; row < d.B * T; ++row) {
        const int64_t b = row / T, t = d.before + row % T, from = (b * length + t) * C;
        for (int64_t h = 0; h < heads.query; ++h)
            reference_row(&w, b, h, t);
        memcpy(want + row * C, w.y + from, (size_t)C * sizeof *want);
        memcpy(sum + row * C, w.y_sum + from, (size_t)C * sizeof *sum);
    }
    op_expect(&c, d.y, want, sum, 2 * OP_TOLERANCE);
    op_run(&c, run_decode, &d);
    op_end(&c);
}

static void decode_matches_reference(void **state)
{
    (void)state;
    static const int64_t lengths[] = {1, 2, 3, 17, 64, 65, 130, 300};
    static const int64_t dims[] = {1, 3, 8, 40, 64, 80, 128};
    for (int i = 0; i < 8; ++i)
        for (int j = 0; j < 7; ++j) {
            const int64_t length = lengths[i], T = (length + j % 3) / (1 + j % 3); // all, or a part
            const mics_heads shared = {6, 1 + j % 3, dims[j]};
            decode_case(length, 1, op_heads(1 + (i + j) % 3, dims[j]), 0, 1.0);
            decode_case(length, 1, shared, i % 2 ? 0 : 1 + 20 * j, 1.0);
            decode_case(length, T, shared, i % 2 ? 0 : 1 + 20 * j, 1.0);
        }
    decode_case(65, 1, op_heads(2, 16), 0, 20.0);
    decode_case(65, 40, op_heads(2, 16), 0, 20.0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(forward_matches_reference),
        cmocka_unit_test(backward_matches_reference),
        cmocka_unit_test(every_length_matches_reference),
        cmocka_unit_test(dropout_matches_reference),
        cmocka_unit_test(sight_matches_reference),
        cmocka_unit_test(decode_matches_reference),
    };
    return op_run_tests(tests);
}
