// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Attention on a GPU against an fp64 reference of the rounded inputs, in all types, at shapes
// around the borders of tiles, with shared keys, windows and segments, causal and both ways.
// CMakeLists.txt runs it as on a GPU that grants a block 227 KiB of shared memory, 99 (compute
// capability 8.6, 8.9, 12.x: other tiles) and 48 (none: refused).
#include "gpu_case.h"
#include "mics/log.h"
#include "ops/attention/cases.h"
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

static mics_case_values values_of(gpu_case *c, const mics_op_case *of, double spread)
{
    const int64_t N = of->shape.N, elems = N * of->shape.in[0], outs = N * of->shape.out;
    const int64_t heads = N * of->op.heads.query;
    mics_case_values v = {.of = of, .dtype = c->at.dtype, .gpu = true};
    v.in[0] = (mics_case_numbers){.at = gpu_random(c, elems, spread), .elems = elems};
    v.dout = (mics_case_numbers){.at = gpu_random(c, outs, 1.0), .elems = outs};
    v.out = (mics_case_numbers){gpu_doubles(c, outs), gpu_doubles(c, outs), 0, outs};
    v.stats = (mics_case_numbers){gpu_doubles(c, heads), gpu_doubles(c, heads), 0, heads};
    v.din[0] = (mics_case_numbers){gpu_doubles(c, elems), gpu_doubles(c, elems), 0, elems};
    attention_forward(&v);
    attention_backward(&v);
    return v;
}

// Whether cases run by cuDNN. It keeps (B, H, T) of the reference's (B, T, H) log-sum-exps.
static bool by_library;

static const double *turned(gpu_case *c, const mics_op_case *of, const double *values_BTH)
{
    const int64_t H = of->op.heads.query, T = of->shape.T;
    if (!by_library)
        return values_BTH;
    double *out = gpu_doubles(c, of->shape.N * H);
    for (int64_t i = 0; i < of->shape.N * H; ++i)
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

static void expect(gpu_case *c, const char *name, const void *block,
                   const mics_case_numbers *numbers)
{
    gpu_expect(c, name, block, c->at.dtype, numbers->elems, numbers->at, numbers->sum, 1.01,
               numbers->tolerance);
}

// The call of a case, its draw and segments on the device.
static mics_op_call call_of(gpu_case *c, const mics_case_values *v)
{
    const mics_op_case *of = v->of;
    int32_t draw[sizeof of->draw / sizeof(int32_t)];
    memcpy(draw, &of->draw, sizeof draw);
    mics_op_call call = {.in = {gpu_numbers(c, v->in[0].at, v->in[0].elems)}};
    if (of->draws)
        call.draw = (const void *)gpu_integers(c, draw, sizeof draw / sizeof *draw);
    if (of->segments)
        call.segments = gpu_integers(c, of->segments, of->shape.N);
    call.out = gpu_poisoned(c, gpu_size(c, v->out.elems));
    call.stats = gpu_poisoned(c, (size_t)v->stats.elems * sizeof(float));
    return call;
}

static void check_case(mics_dtype dtype, const mics_op_case *of, double spread)
{
    gpu_case c;
    mics_op_shape sizes = of->shape;
    sizes.library = by_library;
    gpu_begin(&c, dtype, op_workspace_of(dtype, of->op, sizes),
              "attention B=%d T=%d heads=%d/%d D=%d window=%d%s%s spread %g p=%g", (int)sizes.B,
              (int)sizes.T, (int)sizes.heads.query, (int)sizes.heads.key_value,
              (int)sizes.heads.dim, (int)of->op.window, of->op.both_ways ? " both ways" : "",
              of->segments ? " segments" : "", spread, (double)of->op.dropout);
    const mics_case_values v = values_of(&c, of, spread);
    const size_t y_bytes = gpu_size(&c, v.out.elems), dqkv_bytes = gpu_size(&c, v.din[0].elems);
    void *dy = gpu_numbers(&c, v.dout.at, v.dout.elems), *dqkv = gpu_poisoned(&c, dqkv_bytes);
    void *first_y = NULL, *first_dqkv = NULL;
    mics_op_call call = call_of(&c, &v);
    for (int run = 0; run < RUNS; ++run) {
        call.din = NULL;
        run_pass(&c.at, of->op, sizes, call);
        call.dout = dy;
        call.din = dqkv;
        run_pass(&c.at, of->op, sizes, call);
        expect(&c, "y", call.out, &v.out);
        gpu_expect(&c, "lse", call.stats, MICS_DTYPE_FP32, v.stats.elems,
                   turned(&c, of, v.stats.at), turned(&c, of, v.stats.sum), 2, v.stats.tolerance);
        expect(&c, "dqkv", dqkv, &v.din[0]);
        void *y_now = gpu_bytes(&c, call.out, y_bytes), *dqkv_now = gpu_bytes(&c, dqkv, dqkv_bytes);
        if (run > 0) {
            assert_memory_equal(y_now, first_y, y_bytes);
            assert_memory_equal(dqkv_now, first_dqkv, dqkv_bytes);
        }
        first_y = y_now;
        first_dqkv = dqkv_now;
        gpu_poison(&c, call.out, y_bytes);
        gpu_poison(&c, dqkv, dqkv_bytes);
        gpu_poison(&c, c.at.workspace, c.at.workspace_bytes);
    }
    gpu_end(&c);
}

typedef enum dropped { NO_DROPOUT, TENTH, HALF, EVALUATION } dropped;

static void check_shape(mics_dtype dtype, const attention_shape *s, dropped how, double spread)
{
    mics_op_case c = attention_case(s);
    if (how != NO_DROPOUT)
        c = how == HALF ? attention_dropped(c, 0.5F, 3) : attention_dropped(c, 0.1F, 21);
    c.draws = how == TENTH || how == HALF;
    check_case(dtype, &c, spread);
}

// Each head dimension that kernels are made for, what is padded to them, and each T around borders
// of tiles; then keys that several query heads read, and windows: inside a tile, of a whole one,
// across borders, as long as a sequence and longer.
static const attention_shape SHAPES[] = {
    {1, 1, {1, 1, 1}, 0, false, NULL},      {2, 5, {3, 3, 8}, 0, false, NULL},
    {1, 64, {2, 2, 40}, 0, false, NULL},    {1, 65, {1, 1, 64}, 0, false, NULL},
    {2, 33, {2, 2, 17}, 0, false, NULL},    {1, 200, {1, 1, 64}, 0, false, NULL},
    {1, 65, {1, 1, 80}, 0, false, NULL},    {1, 130, {1, 1, 96}, 0, false, NULL},
    {1, 70, {2, 2, 128}, 0, false, NULL},   {1, 66, {1, 1, 200}, 0, false, NULL},
    {1, 129, {1, 1, 8}, 0, false, NULL},    {1, 65, {1, 1, 256}, 0, false, NULL},
    {1, 200, {1, 1, 100}, 0, false, NULL},  {1, 97, {1, 1, 112}, 0, false, NULL},
    {1, 99, {1, 1, 160}, 0, false, NULL},   {1, 50, {2, 2, 192}, 0, false, NULL},
    {1, 97, {1, 1, 128}, 0, false, NULL},   {1, 49, {1, 1, 97}, 0, false, NULL},
    {1, 98, {1, 1, 256}, 0, false, NULL},   {1, 1, {6, 2, 40}, 3, false, NULL},
    {2, 70, {6, 2, 40}, 3, false, NULL},    {2, 9, {5, 1, 40}, 0, false, NULL},
    {1, 66, {6, 2, 40}, 0, false, NULL},    {1, 150, {2, 1, 64}, 65, false, NULL},
    {1, 200, {2, 1, 8}, 128, false, NULL},  {1, 66, {6, 3, 17}, 1, false, NULL},
    {1, 200, {1, 1, 16}, 64, false, NULL},  {1, 140, {2, 2, 80}, 70, false, NULL},
    {1, 100, {2, 1, 128}, 50, false, NULL}, {1, 65, {2, 1, 200}, 65, false, NULL},
    {1, 65, {2, 1, 8}, 1000, false, NULL},  {1, 70, {2, 1, 256}, 33, false, NULL},
};
enum { SHAPE_COUNT = sizeof SHAPES / sizeof *SHAPES, PLAIN_COUNT = 19 };

// No tensor core kernel is made for the first; in the others maxima move between tiles.
static const attention_shape WIDE = {1, 70, {2, 1, 320}, 20, false, NULL};
static const attention_shape LONG = {1, 130, {1, 1, 16}, 0, false, NULL};
static const attention_shape WINDOWED[] = {{1, 130, {2, 1, 16}, 40, false, NULL},
                                           {2, 130, {2, 1, 16}, 40, false, NULL}};

// Every `step`-th shape of both kinds.
static void shapes(mics_dtype dtype, int step)
{
    for (int i = 0; i < PLAIN_COUNT; i += step)
        check_shape(dtype, &SHAPES[i], NO_DROPOUT, 1.0);
    for (int i = PLAIN_COUNT; i < SHAPE_COUNT; i += step)
        check_shape(dtype, &SHAPES[i], NO_DROPOUT, 1.0);
    check_shape(dtype, &WIDE, NO_DROPOUT, 1.0);
    check_shape(dtype, &LONG, NO_DROPOUT, 6.0);
    check_shape(dtype, &WINDOWED[0], NO_DROPOUT, 6.0);
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
    for (int i = 0; i < PLAIN_COUNT; i += FEWER) {
        attention_shape s = SHAPES[i];
        if (s.heads.dim % 8 != 0 || s.heads.dim > 128)
            continue;
        check_shape(i % 3 == 2 ? MICS_DTYPE_FP16 : MICS_DTYPE_BF16, &s, NO_DROPOUT, 1.0);
        s.both_ways = true;
        check_shape(i % 3 == 1 ? MICS_DTYPE_FP16 : MICS_DTYPE_BF16, &s, NO_DROPOUT, 1.0);
    }
    const attention_shape shared[] = {{2, 9, {5, 1, 40}, 0, false, NULL},
                                      {2, 66, {6, 2, 40}, 0, false, NULL},
                                      {3, 65, {4, 2, 8}, 1000, false, NULL}};
    for (size_t i = 0; i < sizeof shared / sizeof *shared; ++i)
        check_shape(MICS_DTYPE_BF16, &shared[i], NO_DROPOUT, 1.0);
    by_library = false;
}

// The masks of every kernel that there is for a type.
static void dropped_shapes(mics_dtype dtype, int step)
{
    for (int i = 0; i < SHAPE_COUNT; i += step) {
        check_shape(dtype, &SHAPES[i], i % 3 == 2 ? HALF : TENTH, 1.0);
        if (i % 7 == 0)
            check_shape(dtype, &SHAPES[i], EVALUATION, 1.0);
    }
    check_shape(dtype, &WIDE, TENTH, 1.0);
    check_shape(dtype, &WINDOWED[1], TENTH, 6.0);
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
    int32_t segments[2 * 210];
    for (int i = 0; i < SHAPE_COUNT; i += step) {
        attention_shape s = SHAPES[i];
        const dropped how = i % 3 == 1 ? TENTH : NO_DROPOUT;
        assert_true(s.B * s.T <= 2 * 210);
        arrange(i % 4 == 0, s.B, s.T, segments);
        s.both_ways = true;
        check_shape(dtype, &s, how, 1.0);
        s.segments = segments;
        s.both_ways = i % 2 == 0;
        check_shape(dtype, &s, how, 1.0);
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
