// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Attention on a GPU against an fp64 reference of the rounded inputs, in all types, at shapes
// around the borders of tiles, with shared keys, windows and segments, causal and both ways.
// CMakeLists.txt runs it as on a GPU that grants a block 227 KiB of shared memory, 99 (compute
// capability 8.6, 8.9, 12.x: other tiles) and 48 (none: refused).
#include "gpu_case.h"
#include "mics/log.h"
#include "ops/common/cases_masks.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// Under a sanitizer bf16 alone takes every shape; other types, masks and segments take every third of
// theirs. It sees where kernels read and write: the same in a second run, and nothing of the reference.
#ifdef __SANITIZE_ADDRESS__
enum { FEWER = 3, RUNS = 1 };
#else
enum { FEWER = 1, RUNS = 2 };
#endif

// In fp64. The *_sum are sums of absolute terms, in which errors are measured; `doubt` makes them
// larger where scores are, since an error of a score is a relative one of its exponential.
typedef struct reference {
    int64_t B, T, H, D;
    mics_heads heads;
    op_sight sight;     // with the host's segments
    op_dropout dropout; // with the host's draw
    double *qkv, *dy, *y, *y_sum, *lse, *lse_sum, *p, *dqkv, *dqkv_sum, *doubt;
} reference;

// Row of one query head: part 0 query, 1 key, 2 value that it reads.
static double *part(const reference *r, double *qkv, int64_t row, int64_t h, int which)
{
    const int64_t K = r->heads.key_value, kv = h / (r->H / K);
    const int64_t head = which == 0 ? h : r->H + (which - 1) * K + kv;
    return qkv + row * mics_heads_width(r->heads) + head * r->D;
}

// Whether token t sees token i.
static bool sees(const reference *r, int64_t b, int64_t t, int64_t i)
{
    const op_sight *sight = &r->sight;
    const int32_t *segments = sight->segments ? sight->segments + b * r->T : NULL;
    if (segments && segments[t] != segments[i])
        return false;
    if (sight->both_ways)
        return sight->window == 0 || llabs(t - i) <= sight->window / 2;
    return i <= t && (sight->window == 0 || i > t - sight->window);
}

// What dropout multiplies the probability of key s by.
static double kept(const reference *r, int64_t b, int64_t h, int64_t t, int64_t s)
{
    return mask_factor(r->dropout.draw, r->dropout.probability, r->dropout.mask + (uint32_t)h, b, t,
                       s);
}

static double dot(const double *a, const double *b, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; ++i)
        sum += a[i] * b[i];
    return sum;
}

static double dot_of_magnitudes(const double *a, const double *b, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; ++i)
        sum += fabs(a[i] * b[i]);
    return sum;
}

static void forward_row(const reference *r, int64_t b, int64_t h, int64_t t)
{
    const int64_t row = b * r->T + t, at = row * r->H + h, D = r->D;
    const double scale = 1 / sqrt((double)D), *q = part(r, r->qkv, row, h, 0);
    double *p = r->p + at * r->T, highest = -INFINITY, sum = 0, doubt = 1;
    for (int64_t s = 0; s < r->T; ++s) {
        if (!sees(r, b, t, s))
            continue;
        const double *k = part(r, r->qkv, b * r->T + s, h, 1);
        p[s] = dot(q, k, D) * scale;
        highest = fmax(highest, p[s]);
        doubt = fmax(doubt, 1 + dot_of_magnitudes(q, k, D) * scale);
    }
    for (int64_t s = 0; s < r->T; ++s)
        sum += sees(r, b, t, s) ? exp(p[s] - highest) : 0;
    r->lse[at] = highest + log(sum);
    r->lse_sum[at] = r->doubt[at] = doubt;
    for (int64_t d = 0; d < D; ++d)
        r->y[at * D + d] = r->y_sum[at * D + d] = 0;
    for (int64_t s = 0; s < r->T; ++s) {
        if (!sees(r, b, t, s))
            continue;
        const double *v = part(r, r->qkv, b * r->T + s, h, 2);
        p[s] = exp(p[s] - r->lse[at]);
        const double seen = p[s] * kept(r, b, h, t, s);
        for (int64_t d = 0; d < D; ++d) {
            r->y[at * D + d] += seen * v[d];
            r->y_sum[at * D + d] += seen * fabs(v[d]);
        }
    }
}

static void forward_all(const reference *r)
{
    for (int64_t i = 0; i < r->B * r->T * r->H; ++i)
        forward_row(r, i / r->H / r->T, i % r->H, i / r->H % r->T);
}

// With f what dropout multiplies by: dv += p f dy; ds = p (f dy . v - dy . y) scale; dq += ds k; dk
// += ds q.
static void backward_row(const reference *r, int64_t b, int64_t h, int64_t t)
{
    const int64_t row = b * r->T + t, at = row * r->H + h, D = r->D;
    const double *dy = r->dy + at * D, *q = part(r, r->qkv, row, h, 0), *p = r->p + at * r->T;
    const double scale = 1 / sqrt((double)D), delta = dot(dy, r->y + at * D, D);
    const double delta_sum = dot_of_magnitudes(dy, r->y_sum + at * D, D);
    for (int64_t s = 0; s < r->T; ++s) {
        if (!sees(r, b, t, s))
            continue;
        const int64_t key = b * r->T + s;
        const double *k = part(r, r->qkv, key, h, 1), *v = part(r, r->qkv, key, h, 2);
        const double f = kept(r, b, h, t, s);
        const double ds = p[s] * (f * dot(dy, v, D) - delta) * scale;
        const double ds_sum = p[s] * (f * dot_of_magnitudes(dy, v, D) + delta_sum) * scale;
        for (int64_t d = 0; d < D; ++d) {
            part(r, r->dqkv, row, h, 0)[d] += ds * k[d];
            part(r, r->dqkv_sum, row, h, 0)[d] += ds_sum * fabs(k[d]);
            part(r, r->dqkv, key, h, 1)[d] += ds * q[d];
            part(r, r->dqkv_sum, key, h, 1)[d] += ds_sum * fabs(q[d]);
            part(r, r->dqkv, key, h, 2)[d] += p[s] * f * dy[d];
            part(r, r->dqkv_sum, key, h, 2)[d] += p[s] * f * fabs(dy[d]);
        }
    }
}

// Derivatives of sum(dy * y) along a few coordinates, by differences, are those of the reference.
static void check_reference(gpu_case *c, const reference *r, int64_t elems)
{
    const int64_t outputs = r->B * r->T * r->H * r->D;
    for (int64_t n = 0; n < 9 && n < elems; ++n) {
        const int64_t i = n * (elems - 1) / 8 % elems;
        const double kept = r->qkv[i], step = 1e-5;
        r->qkv[i] = kept + step;
        forward_all(r);
        const double above = dot(r->dy, r->y, outputs);
        r->qkv[i] = kept - step;
        forward_all(r);
        const double slope = (above - dot(r->dy, r->y, outputs)) / (2 * step);
        r->qkv[i] = kept;
        if (fabs(slope - r->dqkv[i]) > 1e-6 * (1 + r->dqkv_sum[i]))
            fail_msg("%s: the reference's dqkv[%lld] is %.9g, by differences %.9g", c->title,
                     (long long)i, r->dqkv[i], slope);
    }
    forward_all(r);
}

typedef struct shape {
    int64_t B, T;
    mics_heads heads;
    op_sight sight;     // with the host's segments
    op_dropout dropout; // with the host's draw
} shape;

#define NO_DROPOUT                                                                                 \
    {                                                                                              \
        0, 0, NULL                                                                                 \
    }

static reference reference_of(gpu_case *c, const shape *s, double spread, bool differences)
{
    const int64_t T = s->T, H = s->heads.query, D = s->heads.dim, rows = s->B * T * H;
    const int64_t elems = s->B * T * mics_heads_width(s->heads);
    reference r = {.B = s->B,
                   .T = T,
                   .H = H,
                   .D = D,
                   .heads = s->heads,
                   .sight = s->sight,
                   .dropout = s->dropout};
    r.qkv = gpu_random(c, elems, spread);
    r.dy = gpu_random(c, rows * D, 1.0);
    r.y = gpu_doubles(c, rows * D);
    r.y_sum = gpu_doubles(c, rows * D);
    r.lse = gpu_doubles(c, rows);
    r.lse_sum = gpu_doubles(c, rows);
    r.doubt = gpu_doubles(c, rows);
    r.p = gpu_doubles(c, rows * T);
    r.dqkv = gpu_doubles(c, elems);
    r.dqkv_sum = gpu_doubles(c, elems);
    forward_all(&r);
    for (int64_t i = 0; i < rows; ++i)
        backward_row(&r, i / H / T, i % H, i / H % T);
    if (differences)
        check_reference(c, &r, elems);
    return r;
}

// What remains of exponentials, products and their rounding to the type between two products.
static double tolerance_of(mics_dtype dtype, double doubt)
{
    return dtype == MICS_DTYPE_FP32 ? 1e-6 * doubt : 2 * gpu_unit(dtype) + 1e-6 * doubt;
}

static double largest(const double *values, int64_t count)
{
    double most = 0;
    for (int64_t i = 0; i < count; ++i)
        most = fmax(most, values[i]);
    return most;
}

// Whether cases run by cuDNN. It keeps (B, H, T) of the reference's (B, T, H) log-sum-exps.
static bool by_library;

static const double *turned(gpu_case *c, const shape *s, const double *values_BTH)
{
    const int64_t H = s->heads.query, T = s->T;
    double *out = gpu_doubles(c, s->B * T * H);
    for (int64_t i = 0; i < s->B * T * H; ++i)
        out[(i / H / T * H + i % H) * T + i / H % T] = values_BTH[i];
    return out;
}

// Forward, or with `dqkv` backward.
static void run_pass(const mics_exec *at, mics_op op, mics_op_shape sizes, mics_op_call call)
{
    sizes.op = &op;
    sizes.library = by_library;
    sizes.accelerator_bytes = (int32_t)mics_dtype_bytes(at->dtype);
    call.at = at;
    call.shape = sizes;
    const mics_op_kernels *kernels = mics_kernels_cuda()->ops[op.kind];
    if (by_library && call.din == NULL) {
        const char *why_not = kernels->prepare(at, &sizes);
        if (why_not != NULL)
            fail_msg("no plan: %s", why_not);
    }
    if (call.din != NULL)
        kernels->backward(&call);
    else
        kernels->forward(&call);
}

static void attention_case(mics_dtype dtype, const shape *s, double spread)
{
    const int64_t B = s->B, T = s->T, D = s->heads.dim, rows = B * T * s->heads.query;
    const int64_t elems = B * T * mics_heads_width(s->heads);
    gpu_case c;
    mics_op_shape sizes = op_attention_shape(B, T, s->heads);
    sizes.library = by_library;
    gpu_begin(&c, dtype,
              op_workspace_of(dtype, op_attention_of(s->heads, s->sight, s->dropout), sizes),
              "attention B=%d T=%d heads=%d/%d D=%d window=%d%s%s spread %g p=%g", (int)B, (int)T,
              (int)s->heads.query, (int)s->heads.key_value, (int)D, (int)s->sight.window,
              s->sight.both_ways ? " both ways" : "", s->sight.segments ? " segments" : "", spread,
              (double)s->dropout.probability);
    const reference r = reference_of(&c, s, spread, RUNS > 1 && dtype == MICS_DTYPE_FP32 && T < 70);
    const double tolerance = tolerance_of(dtype, largest(r.doubt, rows));
    const size_t y_bytes = gpu_size(&c, rows * D), dqkv_bytes = gpu_size(&c, elems);
    void *qkv = gpu_numbers(&c, r.qkv, elems), *dy = gpu_numbers(&c, r.dy, rows * D);
    void *y = gpu_poisoned(&c, y_bytes), *dqkv = gpu_poisoned(&c, dqkv_bytes);
    float *lse = gpu_poisoned(&c, (size_t)rows * sizeof(float));
    void *first_y = NULL, *first_dqkv = NULL;
    op_dropout dropout = s->dropout; // with the device's draw
    int32_t draw[sizeof *dropout.draw / sizeof(int32_t)];
    if (dropout.draw) {
        memcpy(draw, dropout.draw, sizeof draw);
        dropout.draw = (const void *)gpu_integers(&c, draw, sizeof draw / sizeof *draw);
    }
    op_sight sight = s->sight; // with the device's segments
    if (sight.segments)
        sight.segments = gpu_integers(&c, sight.segments, B * T);
    const mics_op op = op_attention_of(s->heads, sight, dropout);
    mics_op_call call = {
        .in = {qkv}, .out = y, .stats = lse, .segments = sight.segments, .draw = dropout.draw};
    for (int run = 0; run < RUNS; ++run) {
        call.din = NULL;
        run_pass(&c.at, op, sizes, call);
        call.dout = dy;
        call.din = dqkv;
        run_pass(&c.at, op, sizes, call);
        gpu_expect(&c, "y", y, dtype, rows * D, r.y, r.y_sum, 1.01, tolerance);
        gpu_expect(&c, "lse", lse, MICS_DTYPE_FP32, rows, by_library ? turned(&c, s, r.lse) : r.lse,
                   by_library ? turned(&c, s, r.lse_sum) : r.lse_sum, 2, 2e-6);
        gpu_expect(&c, "dqkv", dqkv, dtype, elems, r.dqkv, r.dqkv_sum, 1.01, 2 * tolerance);
        void *y_now = gpu_bytes(&c, y, y_bytes), *dqkv_now = gpu_bytes(&c, dqkv, dqkv_bytes);
        if (run > 0) {
            assert_memory_equal(y_now, first_y, y_bytes);
            assert_memory_equal(dqkv_now, first_dqkv, dqkv_bytes);
        }
        first_y = y_now;
        first_dqkv = dqkv_now;
        gpu_poison(&c, y, y_bytes);
        gpu_poison(&c, dqkv, dqkv_bytes);
        gpu_poison(&c, c.at.workspace, c.at.workspace_bytes);
    }
    gpu_end(&c);
}

// B, T, H, D. Each head dimension that kernels are made for, what is padded to them, and each T
// around borders of tiles.
static const int64_t SHAPES[][4] = {
    {1, 1, 1, 1},    {2, 5, 3, 8},    {1, 64, 2, 40},   {1, 65, 1, 64},  {2, 33, 2, 17},
    {1, 200, 1, 64}, {1, 65, 1, 80},  {1, 130, 1, 96},  {1, 70, 2, 128}, {1, 66, 1, 200},
    {1, 129, 1, 8},  {1, 65, 1, 256}, {1, 200, 1, 100}, {1, 97, 1, 112}, {1, 99, 1, 160},
    {1, 50, 2, 192}, {1, 97, 1, 128}, {1, 49, 1, 97},   {1, 98, 1, 256}};
enum { SHAPE_COUNT = sizeof SHAPES / sizeof *SHAPES };

// Keys that several query heads read, and windows: inside a tile, of a whole one, across borders,
// as long as a sequence and longer.
static const shape SHARED[] = {{1, 1, {6, 2, 40}, {3, false, NULL}, NO_DROPOUT},
                               {2, 70, {6, 2, 40}, {3, false, NULL}, NO_DROPOUT},
                               {2, 9, {5, 1, 40}, {0, false, NULL}, NO_DROPOUT},
                               {1, 66, {6, 2, 40}, {0, false, NULL}, NO_DROPOUT},
                               {1, 150, {2, 1, 64}, {65, false, NULL}, NO_DROPOUT},
                               {1, 200, {2, 1, 8}, {128, false, NULL}, NO_DROPOUT},
                               {1, 66, {6, 3, 17}, {1, false, NULL}, NO_DROPOUT},
                               {1, 200, {1, 1, 16}, {64, false, NULL}, NO_DROPOUT},
                               {1, 140, {2, 2, 80}, {70, false, NULL}, NO_DROPOUT},
                               {1, 100, {2, 1, 128}, {50, false, NULL}, NO_DROPOUT},
                               {1, 65, {2, 1, 200}, {65, false, NULL}, NO_DROPOUT},
                               {1, 65, {2, 1, 8}, {1000, false, NULL}, NO_DROPOUT},
                               {1, 70, {2, 1, 256}, {33, false, NULL}, NO_DROPOUT}};
enum { SHARED_COUNT = sizeof SHARED / sizeof *SHARED };

// Every `step`-th shape.
static void shapes(mics_dtype dtype, int step)
{
    for (int i = 0; i < SHAPE_COUNT; i += step) {
        const shape s = {
            SHAPES[i][0], SHAPES[i][1], op_heads(SHAPES[i][2], SHAPES[i][3]), {0}, NO_DROPOUT};
        attention_case(dtype, &s, 1.0);
    }
    for (int i = 0; i < SHARED_COUNT; i += step)
        attention_case(dtype, &SHARED[i], 1.0);
    const shape wide = {
        1, 70, {2, 1, 320}, {.window = 20}, NO_DROPOUT}; // no tensor core kernel is made for it
    const shape long_one = {1, 130, {1, 1, 16}, {0}, NO_DROPOUT},
                windowed = {1, 130, {2, 1, 16}, {.window = 40}, NO_DROPOUT};
    attention_case(dtype, &wide, 1.0);
    attention_case(dtype, &long_one, 6.0); // maxima move between tiles
    attention_case(dtype, &windowed, 6.0);
}

static void attention_in_bf16(void **state)
{
    (void)state;
    shapes(MICS_DTYPE_BF16, 1);
}

static void attention_in_fp16(void **state)
{
    (void)state;
    shapes(MICS_DTYPE_FP16, 4 * FEWER); // the same kernels as bf16's
}

static void attention_in_fp32(void **state)
{
    (void)state;
    shapes(MICS_DTYPE_FP32, 2 * FEWER);
}

// By cuDNN: causal and both ways, at the borders of its tiles, with keys that are shared, and (in
// the emulated plugin, whose bound is low) in pieces of sequences and of heads.
static void attention_by_cudnn(void **state)
{
    (void)state;
    const char *why_not = NULL;
    mics_cuda_find_cudnn(&why_not);
    if (why_not != NULL) {
        print_message("skipped: cuDNN %s\n", why_not);
        skip();
    }
    by_library = true;
    for (int i = 0; i < SHAPE_COUNT; i += FEWER) {
        const int64_t *of = SHAPES[i];
        shape s = {of[0], of[1], op_heads(of[2], of[3]), {0}, NO_DROPOUT};
        if (s.heads.dim % 8 != 0 || s.heads.dim > 128)
            continue;
        attention_case(i % 3 == 2 ? MICS_DTYPE_FP16 : MICS_DTYPE_BF16, &s, 1.0);
        s.sight.both_ways = true;
        attention_case(i % 3 == 1 ? MICS_DTYPE_FP16 : MICS_DTYPE_BF16, &s, 1.0);
    }
    const shape shared[] = {{2, 9, {5, 1, 40}, {0, false, NULL}, NO_DROPOUT},
                            {2, 66, {6, 2, 40}, {0, false, NULL}, NO_DROPOUT},
                            {3, 65, {4, 2, 8}, {1000, false, NULL}, NO_DROPOUT}};
    for (size_t i = 0; i < sizeof shared / sizeof *shared; ++i)
        attention_case(MICS_DTYPE_BF16, &shared[i], 1.0);
    by_library = false;
}

// The masks of every kernel that there is for a type.
static void dropped_shapes(mics_dtype dtype, int step)
{
    const mics_dropout_draw draw = mask_draw(mics_rng_bits(9, 9, 9), 1000);
    const op_dropout tenth = {0.1F, 21, &draw}, half = {0.5F, 3, &draw}, eval = {0.1F, 21, NULL};
    for (int i = 0; i < SHAPE_COUNT + SHARED_COUNT; i += step) {
        const int64_t *of = SHAPES[i < SHAPE_COUNT ? i : 0];
        shape s = {of[0], of[1], op_heads(of[2], of[3]), {0}, NO_DROPOUT};
        if (i >= SHAPE_COUNT)
            s = SHARED[i - SHAPE_COUNT];
        s.dropout = i % 3 == 2 ? half : tenth;
        attention_case(dtype, &s, 1.0);
        s.dropout = eval;
        if (i % 7 == 0)
            attention_case(dtype, &s, 1.0);
    }
    const shape wide = {1, 70, {2, 1, 320}, {.window = 20}, tenth},
                windowed = {2, 130, {2, 1, 16}, {.window = 40}, tenth};
    attention_case(dtype, &wide, 1.0);
    attention_case(dtype, &windowed, 6.0);
}

static void attention_with_dropout(void **state)
{
    (void)state;
    dropped_shapes(MICS_DTYPE_BF16, 2 * FEWER);
    dropped_shapes(MICS_DTYPE_FP16, 9 * FEWER);
    dropped_shapes(MICS_DTYPE_FP32, 4 * FEWER);
}

// Documents one behind the other; what is behind two thirds is padding, where `padded`.
static void arrange(bool padded, int64_t B, int64_t T, int32_t *segments)
{
    for (int64_t b = 0; b < B; ++b) {
        int32_t document = 0;
        for (int64_t t = 0; t < T; ++t) {
            const uint64_t bits = mics_rng_bits(7, (uint64_t)b, (uint64_t)t);
            document += t > 0 && bits % 37 == 0;
            segments[b * T + t] = padded ? (t < 2 * T / 3 ? 0 : -1) : document;
        }
    }
}

// Every `step`-th shape with segments, and both ways without, with and without a window.
static void sights(mics_dtype dtype, int step)
{
    const mics_dropout_draw draw = mask_draw(mics_rng_bits(9, 9, 9), 1000);
    const op_dropout tenth = {0.1F, 21, &draw}, none = {0};
    int32_t segments[2 * 210];
    for (int i = 0; i < SHAPE_COUNT + SHARED_COUNT; i += step) {
        const int64_t *of = SHAPES[i < SHAPE_COUNT ? i : 0];
        shape s = {of[0], of[1], op_heads(of[2], of[3]), {0}, NO_DROPOUT};
        if (i >= SHAPE_COUNT)
            s = SHARED[i - SHAPE_COUNT];
        assert_true(s.B * s.T <= 2 * 210);
        arrange(i % 4 == 0, s.B, s.T, segments);
        s.dropout = i % 3 == 1 ? tenth : none;
        s.sight.both_ways = true;
        attention_case(dtype, &s, 1.0);
        s.sight.segments = segments;
        s.sight.both_ways = i % 2 == 0;
        attention_case(dtype, &s, 1.0);
    }
}

static void attention_both_ways_and_in_segments(void **state)
{
    (void)state;
    sights(MICS_DTYPE_BF16, 2 * FEWER - 1);
    sights(MICS_DTYPE_FP16, 5 * FEWER);
    sights(MICS_DTYPE_FP32, 3 * FEWER);
}

static void keep_line(void *ctx, mics_log_level level, int32_t rank, const char *line)
{
    (void)level;
    (void)rank;
    snprintf(ctx, 400, "%s", line);
}

// One forward or backward of 64 numbers a head, on poisoned memory.
static mics_status try_attention(mics_dtype dtype, bool backward)
{
    const mics_kernels *kernels = mics_kernels_cuda();
    const size_t bytes = 3 * 8 * 64 * sizeof(float);
    mics_device *device = NULL;
    ASSERT_OK(mics_device_cuda_open(0, 8, &device));
    void *block = NULL;
    ASSERT_OK(device->ops->alloc(device->ctx, 6 * bytes, &block));
    void *at_block[6];
    for (int i = 0; i < 6; ++i)
        at_block[i] = (char *)block + (size_t)i * bytes;
    const mics_exec at = {
        .device = device, .dtype = dtype, .workspace = at_block[5], .workspace_bytes = bytes};
    if (backward)
        op_attention_backward(kernels, &at, at_block[0], at_block[1], at_block[2], at_block[3],
                              at_block[4], 1, 8, op_heads(1, 64), (op_sight){0}, (op_dropout){0});
    else
        op_attention_forward(kernels, &at, at_block[0], at_block[3], at_block[4], 1, 8,
                             op_heads(1, 64), (op_sight){0}, (op_dropout){0});
    const mics_status status = device->ops->synchronize(device->ctx, at.stream);
    device->ops->free(device->ctx, block);
    mics_device_close(device);
    return status;
}

// A GPU that has too little for any tiles says so, with what it has and what would work.
static void tiles_that_do_not_fit_are_refused(void **state)
{
    (void)state;
    for (int backward = 0; backward < 2; ++backward) {
        char line[400] = "";
        mics_log_set_sink(keep_line, line);
        const mics_status status = try_attention(MICS_DTYPE_BF16, backward);
        mics_log_set_sink(NULL, NULL);
        assert_int_equal(status, MICS_ERR_DEVICE);
        const char *const parts[] = {"attention in bf16 with head dimension 64", "49152",
                                     backward ? "55808" : "55296", "run.precision"};
        for (size_t i = 0; i < sizeof parts / sizeof *parts; ++i)
            if (!strstr(line, parts[i]))
                fail_msg("\"%s\" lacks \"%s\"", line, parts[i]);
        ASSERT_OK(try_attention(MICS_DTYPE_FP32, backward));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(attention_in_bf16),
        cmocka_unit_test(attention_in_fp16),
        cmocka_unit_test(attention_in_fp32),
        cmocka_unit_test(attention_by_cudnn),
        cmocka_unit_test(attention_with_dropout),
        cmocka_unit_test(attention_both_ways_and_in_segments),
    };
    const struct CMUnitTest refusals[] = {
        cmocka_unit_test(tiles_that_do_not_fit_are_refused),
    };
    const int missing = gpu_missing();
    if (missing)
        return missing;
    const char *shared_kib = getenv("MICS_EMULATED_SHARED_KIB");
    if (shared_kib && atoi(shared_kib) < 64)
        return cmocka_run_group_tests(refusals, NULL, NULL);
    return cmocka_run_group_tests(tests, gpu_open, gpu_close);
}
