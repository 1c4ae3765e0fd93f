// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// What descriptors say of ops with heads of two kinds and windows: costs, caches, cuts.
#include "mics/op.h"
#include "ops/attention/def.h"
#include "test.h"
#include <math.h>
#include <string.h>

enum { B = 2, T = 11 };

static mics_op_shape shape_of(const mics_op *op, int64_t width)
{
    mics_op_shape shape = {.op = op,
                           .unit = "unit",
                           .B = B,
                           .T = T,
                           .N = B * T,
                           .in = {width},
                           .heads = op->heads,
                           .threads = 1};
    int64_t stats = 0;
    ASSERT_OK(mics_op_def_get(op->kind)->make(&shape, &shape.out, &stats));
    return shape;
}

// Scores that are computed, one by one.
static double scores(int64_t window)
{
    double count = 0;
    for (int64_t i = 0; i < T; i++)
        for (int64_t j = 0; j <= i; j++)
            count += window == 0 || j > i - window;
    return count;
}

static void test_attention(void **state)
{
    (void)state;
    static const int64_t windows[] = {0, 1, 3, T - 1, T, T + 1};
    for (size_t i = 0; i < sizeof windows / sizeof *windows; i++) {
        const mics_op op = {.kind = MICS_OP_ATTENTION, .heads = {6, 2, 40}, .window = windows[i]};
        const mics_op_def *def = mics_op_def_get(op.kind);
        const mics_op_shape shape = shape_of(&op, mics_heads_width(op.heads));
        const mics_op_cost cost = def->cost(&shape);
        assert_int_equal(shape.out, 240);
        const double product = 2.0 * B * scores(windows[i]) * 240; // of all heads
        assert_true(fabs(cost.flops_forward - 2 * product) < 1e-6);
        assert_true(fabs(cost.flops_backward - 5 * product) < 1e-6);
        assert_true(cost.bytes_forward == 4.0 * B * T * (400 + 240));
        assert_true(cost.bytes_backward == 2 * cost.bytes_forward);
        assert_true(def->model_flops(&shape) <= 6.0 * T * 240);
        const bool whole = windows[i] == 0 || windows[i] >= T;
        assert_true((def->model_flops(&shape) == 6.0 * T * 240) == whole);
        const mics_op_decode decode = def->decode(&shape, 9);
        assert_int_equal(decode.cache, 2 * 2 * 40 * 9);
        assert_int_equal(decode.workspace, MICS_ATTENTION_PROMPT_ROWS * 9);
    }
}

// What cuDNN 9.19 asks for backward of compute capability 9.0 (tests/cuda/test_cudnn_real.c asks it),
// and how much of it is computed at once: chunks have a bound, and divide sequences and heads.
static void test_cudnn(void **state)
{
    (void)state;
    static const struct {
        int64_t B, T;
        mics_heads heads;
        mics_cudnn_chunk chunk;
        int64_t asked; // of the chunk
    } cases[] = {
        {8, 1024, {25, 25, 64}, {8, 25}, 419430656},  {8, 1024, {16, 16, 128}, {8, 16}, 268435712},
        {16, 1024, {25, 25, 64}, {8, 25}, 419430656}, {1, 8192, {32, 8, 128}, {1, 1}, 553648384},
        {2, 1032, {4, 1, 128}, {2, 1}, 24281344},     {3, 130, {5, 1, 72}, {3, 1}, 2036480},
        {1, 65536, {4, 4, 64}, {1, 1}, 8589934848},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const int64_t b = cases[i].B, t = cases[i].T;
        const mics_heads heads = cases[i].heads;
        const mics_cudnn_chunk chunk = mics_cudnn_chunk_of(b, t, heads);
        assert_int_equal(chunk.sequences, cases[i].chunk.sequences);
        assert_int_equal(chunk.heads, cases[i].chunk.heads);
        assert_in_range(mics_cudnn_bytes(t, heads, chunk), cases[i].asked,
                        cases[i].asked + cases[i].asked / 4 + 4096);
        const mics_op op = {.kind = MICS_OP_ATTENTION, .heads = heads};
        mics_op_shape shape = {.op = &op,
                               .B = b,
                               .T = t,
                               .N = b * t,
                               .heads = heads,
                               .threads = 1,
                               .accelerator_bytes = 2};
        const mics_op_def *def = mics_op_def_get(op.kind);
        assert_int_equal(def->cost(&shape).workspace_backward, b * t * heads.query);
        shape.library = true;
        assert_true(def->cost(&shape).workspace_backward * 4 >=
                    mics_cudnn_bytes(t, heads, chunk) + mics_cudnn_sums_bytes(t, heads, chunk));
        assert_true(def->cost(&shape).workspace_backward >= b * t * heads.query);
        assert_int_equal(def->cost(&shape).workspace_forward * 4, MICS_CUDNN_SMALL_BYTES);
    }
}

// Each thing that cuDNN does not compute has its reason, and costs what our own kernels do.
static void test_cudnn_lacks(void **state)
{
    (void)state;
    static const struct {
        mics_op op;
        int32_t bytes;
        const char *lacks; // NULL: nothing
    } cases[] = {
        {{.heads = {4, 2, 64}}, 2, NULL},
        {{.heads = {4, 2, 128}, .both_ways = true}, 2, NULL},
        {{.heads = {4, 2, 64}, .window = T}, 2, NULL},
        {{.heads = {4, 2, 64}, .window = T - 1}, 2, "has a window"},
        {{.heads = {4, 2, 64}, .dropout = 0.1F}, 2, "has dropout"},
        {{.heads = {4, 2, 64}, .segments = true}, 2, "within documents"},
        {{.heads = {4, 2, 64}}, 4, "in fp32"},
        {{.heads = {4, 2, 136}}, 2, "heads of at most 128"},
        {{.heads = {4, 2, 60}}, 2, "multiples of 8"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        mics_op op = cases[i].op;
        op.kind = MICS_OP_ATTENTION;
        const mics_op_def *def = mics_op_def_get(op.kind);
        mics_op_shape shape = {.op = &op,
                               .B = B,
                               .T = T,
                               .N = B * T,
                               .heads = op.heads,
                               .threads = 1,
                               .accelerator_bytes = cases[i].bytes,
                               .library = true};
        const char *lacks = def->library_lacks(&shape);
        assert_int_equal(lacks == NULL, cases[i].lacks == NULL);
        const int64_t own = shape.N * op.heads.query;
        assert_int_equal(def->cost(&shape).workspace_backward == own, lacks != NULL);
        if (lacks != NULL)
            assert_non_null(strstr(lacks, cases[i].lacks));
    }
}

static void test_cut(void **state)
{
    (void)state;
    const mics_op op = {.kind = MICS_OP_ATTENTION, .heads = {6, 2, 40}};
    const mics_op_shape shape = shape_of(&op, 400);
    const mics_op_shape half = mics_op_shape_cut(&shape, 2, true);
    assert_int_equal(half.heads.query, 3);
    assert_int_equal(half.heads.key_value, 1);
    assert_int_equal(half.heads.dim, 40);
    assert_int_equal(half.in[0], 200);
    assert_int_equal(half.out, 120);
}

// A mask costs the same in both passes, and dropout keeps nothing for backward.
static void test_dropout(void **state)
{
    (void)state;
    mics_op op = {.kind = MICS_OP_ATTENTION, .heads = {6, 2, 40}};
    const mics_op_shape plain = shape_of(&op, 400);
    const mics_op_cost without = mics_op_def_get(op.kind)->cost(&plain);
    op.dropout = 0.1F;
    const mics_op_shape dropped = shape_of(&op, 400);
    const mics_op_cost with = mics_op_def_get(op.kind)->cost(&dropped);
    const double masked = 15 * B * scores(0) * 6;
    assert_true(fabs(with.flops_forward - without.flops_forward - masked) < 1e-6);
    assert_true(fabs(with.flops_backward - without.flops_backward - masked) < 1e-6);
    assert_int_equal(with.workspace_backward, without.workspace_backward);
    const mics_op alone = {.kind = MICS_OP_DROPOUT, .dropout = 0.5F};
    const mics_op_def *def = mics_op_def_get(alone.kind);
    const mics_op_shape shape = shape_of(&alone, 64);
    const mics_op_cost cost = def->cost(&shape);
    assert_int_equal(shape.out, 64);
    assert_false(def->backward_reads_in[0] || def->backward_reads_out);
    assert_true(cost.bytes_forward == 4.0 * B * T * 128 && cost.bytes_backward == 512.0 * B * T);
    assert_true(cost.flops_forward == 16.0 * B * T * 64);
}

static void test_bad_dropouts(void **state)
{
    (void)state;
    static const float bad[] = {-0.1F, 1, 2, NAN, INFINITY};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        const mics_op ops[] = {{.kind = MICS_OP_DROPOUT, .dropout = bad[i]},
                               {.kind = MICS_OP_ATTENTION, .heads = {2, 2, 4}, .dropout = bad[i]}};
        for (int o = 0; o < 2; o++) {
            const mics_op_shape shape = {.op = &ops[o], .unit = "unit", .in = {24}};
            int64_t out = 0, stats = 0;
            assert_int_equal(mics_op_def_get(ops[o].kind)->make(&shape, &out, &stats),
                             MICS_ERR_INVALID);
        }
    }
}

// What moves memory: all of it, and no more.
static void test_moved(void **state)
{
    (void)state;
    const mics_rotary_spec rotary = {.dims = 10, .scale = 1};
    const mics_op ops[] = {{.kind = MICS_OP_ROTARY, .heads = {6, 2, 40}},
                           {.kind = MICS_OP_HEAD_NORM, .heads = {6, 2, 40}},
                           {.kind = MICS_OP_SWIGLU}};
    static const int64_t out[] = {400, 400, 200}, backward[] = {800, 1600, 1000};
    for (int i = 0; i < 3; i++) {
        const mics_op_def *def = mics_op_def_get(ops[i].kind);
        mics_op_shape shape = {.op = &ops[i],
                               .unit = "unit",
                               .B = B,
                               .T = T,
                               .N = B * T,
                               .in = {400},
                               .params = {{40}, {40}},
                               .heads = ops[i].heads,
                               .rotary = &rotary,
                               .threads = 1};
        int64_t stats = 0;
        ASSERT_OK(def->make(&shape, &shape.out, &stats));
        assert_int_equal(shape.out, out[i]);
        assert_int_equal(stats, i == 1 ? 8 : 0);
        const mics_op_cost cost = def->cost(&shape);
        assert_true(cost.bytes_forward == 4.0 * B * T * (double)(400 + out[i]));
        assert_true(cost.bytes_backward == 4.0 * B * T * (double)backward[i]);
        mics_op_work works[MICS_OP_WORKS];
        const mics_op_pass pass = {.elem_bytes = 2};
        assert_int_equal(mics_op_works(&shape, &pass, works), 1);
        assert_int_equal(works[0].kind, MICS_WORK_MEMORY);
        assert_true(works[0].bytes == cost.bytes_forward / 2);
    }
}

// PyTorch's kernels of an op that is one kernel here, in bf16: bytes that each reads and writes of
// every number that the op writes, or of a logit.
enum { HALF = 2, FULL = 4, KERNELS = 9 };
static const struct {
    const char *label;
    mics_op_kind kind;
    bool backward;
    int bytes[KERNELS];
} separate[] = {
    // to fp32, square, mean, times the root, back, times the weight
    {"norm",
     MICS_OP_RMSNORM,
     false,
     {HALF + FULL, FULL + FULL, FULL, FULL + FULL, FULL + HALF, HALF + HALF}},
    {"norm of heads",
     MICS_OP_HEAD_NORM,
     false,
     {HALF + FULL, FULL + FULL, FULL, FULL + FULL, FULL + HALF, HALF + HALF}},
    // times the weight, the weight's gradient; to fp32; times the root, the root's gradient and its
    // sum; of the square; both together; back
    {"norm, backward",
     MICS_OP_RMSNORM,
     true,
     {HALF + HALF, HALF + HALF, HALF + FULL, FULL + FULL, 3 * FULL, FULL, FULL + FULL, 3 * FULL,
      FULL + HALF}},
    {"norm of heads, backward",
     MICS_OP_HEAD_NORM,
     true,
     {HALF + HALF, HALF + HALF, HALF + FULL, FULL + FULL, 3 * FULL, FULL, FULL + FULL, 3 * FULL,
      FULL + HALF}},
    // to fp32, times a complex number, back
    {"rotary", MICS_OP_ROTARY, false, {HALF + FULL, FULL + FULL, FULL + HALF}},
    {"rotary, backward", MICS_OP_ROTARY, true, {HALF + FULL, FULL + FULL, FULL + HALF}},
    // SiLU, product; the product's two gradients, SiLU's
    {"gated", MICS_OP_SWIGLU, false, {HALF + HALF, 3 * HALF}},
    {"gated, backward", MICS_OP_SWIGLU, true, {3 * HALF, 3 * HALF, 3 * HALF}},
    // to fp32, log_softmax; its gradient of zeros, one number set, softmax's; back
    {"loss", MICS_OP_LM_HEAD, true, {HALF + FULL, FULL + FULL, FULL, 3 * FULL, FULL + HALF}},
};

static double moved_bytes(const mics_op_shape *shape, bool backward, bool apart)
{
    mics_op_work works[MICS_OP_WORKS];
    const mics_op_pass pass = {.backward = backward, .separate = apart, .elem_bytes = HALF};
    const int32_t count = mics_op_works(shape, &pass, works);
    double bytes = 0;
    for (int32_t i = 0; i < count; i++)
        bytes += works[i].kind == MICS_WORK_MEMORY ? works[i].bytes * (double)works[i].times : 0;
    return bytes;
}

// What a plan with accelerator.kernels "separate" moves is what those kernels move, one by one.
static void test_separate(void **state)
{
    (void)state;
    enum { VOCAB = 100 };
    const mics_rotary_spec rotary = {.dims = 40, .scale = 1};
    for (size_t i = 0; i < sizeof separate / sizeof *separate; i++) {
        const bool loss = separate[i].kind == MICS_OP_LM_HEAD;
        const mics_op op = {.kind = separate[i].kind, .heads = {6, 2, 40}};
        mics_op_shape shape = {.op = &op,
                               .unit = "unit",
                               .B = B,
                               .T = T,
                               .N = B * T,
                               .in = {400},
                               .vocab = VOCAB,
                               .heads = op.heads,
                               .rotary = &rotary,
                               .accelerator_bytes = HALF,
                               .threads = 1};
        shape.params[0][0] = loss ? VOCAB : (op.kind == MICS_OP_RMSNORM ? 400 : 40);
        shape.params[0][1] = loss ? 400 : 0;
        shape.params[1][0] = op.kind == MICS_OP_HEAD_NORM ? 40 : 0;
        int64_t stats = 0;
        ASSERT_OK(mics_op_def_get(op.kind)->make(&shape, &shape.out, &stats));
        const double numbers = (double)(B * T) * (double)(loss ? VOCAB : shape.out);
        double bytes = 0;
        for (int k = 0; k < KERNELS; k++)
            bytes += separate[i].bytes[k] * numbers;
        const double one = moved_bytes(&shape, separate[i].backward, false);
        const double apart = moved_bytes(&shape, separate[i].backward, true);
        if (fabs(apart - bytes) > 1e-9 * bytes || one >= apart)
            fail_msg("%s: %g bytes in separate kernels, and they move %g; %g in one",
                     separate[i].label, apart, bytes, one);
    }
}

// ---- gradients that are not wanted ----

// A linear, a router and two ops of experts, whose backward has two GEMMs of one size.
static mics_op_shape weighed(const mics_op *op, int64_t rows)
{
    mics_op_shape shape = {.op = op,
                           .unit = "unit",
                           .B = B,
                           .T = T,
                           .N = B * T,
                           .in = {40, op->experts.chosen},
                           .params = {{rows, 40}},
                           .expert_elems = 40 * rows,
                           .cpu_bf16 = true,
                           .threads = 1};
    int64_t stats = 0;
    if (op->kind == MICS_OP_EXPERTS_OUT)
        shape.params[0][1] /= op->experts.chosen;
    ASSERT_OK(mics_op_def_get(op->kind)->make(&shape, &shape.out, &stats));
    return shape;
}

static int32_t gemms_of(const mics_op_shape *shape, double *flops_out)
{
    mics_op_work works[MICS_OP_WORKS];
    const mics_op_pass pass = {
        .backward = true, .input_gradient = !shape->in_fixed[0], .elem_bytes = 4};
    const int32_t count = mics_op_works(shape, &pass, works);
    int32_t gemms = 0;
    *flops_out = 0;
    for (int32_t i = 0; i < count; i++) {
        gemms += works[i].kind == MICS_WORK_GEMM;
        *flops_out += 2.0 * (double)(works[i].m * works[i].n * works[i].k * works[i].times);
    }
    return gemms;
}

// Backward of a frozen weight costs its input's gradient alone, and without that nothing.
static void test_fixed_weights(void **state)
{
    (void)state;
    const mics_experts experts = {.count = 4, .chosen = 2};
    const mics_op ops[] = {
        {.kind = MICS_OP_LINEAR, .weight_out_in = true},
        {.kind = MICS_OP_ROUTER, .experts = experts},
        {.kind = MICS_OP_EXPERTS_IN, .experts = experts},
        {.kind = MICS_OP_EXPERTS_OUT, .experts = experts},
    };
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++) {
        const mics_op_def *def = mics_op_def_get(ops[i].kind);
        const mics_op_shape whole = weighed(&ops[i], i == 1 ? 4 : 24);
        const double gemm = def->cost(&whole).flops_forward, model = def->model_flops(&whole) / 3;
        for (int fixed = 0; fixed < 4; fixed++) {
            mics_op_shape s = whole;
            s.params_fixed[0] = fixed & 1;
            s.in_fixed[0] = s.in_fixed[1] = fixed & 2;
            const mics_op_cost cost = def->cost(&s);
            const int gradients = 2 - (fixed & 1) - fixed / 2;
            double flops = 0;
            assert_true(cost.flops_forward == gemm && cost.flops_backward == gradients * gemm);
            assert_true(def->model_flops(&s) == (1 + gradients) * model);
            assert_true(cost.workspace_backward <= def->cost(&whole).workspace_backward);
            if (def->work != NULL) {
                assert_int_equal(gemms_of(&s, &flops), gradients);
                assert_true(flops == cost.flops_backward);
            }
            const bool reads_for_weight = ops[i].kind != MICS_OP_EXPERTS_OUT;
            assert_int_equal(mics_op_keeps_in(&s, 0), !reads_for_weight || !(fixed & 1));
        }
    }
}

// The gradient of a router's weights takes a GEMM of the experts, though no input's is wanted.
static void test_fixed_experts(void **state)
{
    (void)state;
    const mics_op op = {.kind = MICS_OP_EXPERTS_OUT, .experts = {.count = 4, .chosen = 2}};
    mics_op_shape shape = weighed(&op, 24);
    shape.in_fixed[0] = shape.params_fixed[0] = true;
    double flops = 0;
    assert_int_equal(gemms_of(&shape, &flops), 1);
    const mics_op_cost cost = mics_op_def_get(op.kind)->cost(&shape);
    assert_true(flops == cost.flops_backward && cost.flops_backward == cost.flops_forward);
}

// Norms of fixed parameters take no workspace for sums, and fewer FLOPs.
static void test_fixed_norms(void **state)
{
    (void)state;
    static const mics_op_kind kinds[] = {MICS_OP_LAYERNORM, MICS_OP_RMSNORM, MICS_OP_HEAD_NORM};
    static const double all[] = {14, 10, 10}, fixed[] = {10, 7, 7};
    for (int i = 0; i < 3; i++) {
        const mics_op op = {.kind = kinds[i], .heads = {6, 2, 40}};
        const mics_op_def *def = mics_op_def_get(op.kind);
        const int64_t elems = i == 2 ? 40 : 400;
        mics_op_shape s = {.op = &op,
                           .N = B * T,
                           .in = {400},
                           .out = 400,
                           .heads = op.heads,
                           .params = {{elems}, {i == 1 ? 0 : elems}}};
        const double numbers = B * T * (i == 2 ? 320.0 : 400.0);
        assert_true(def->cost(&s).flops_backward == all[i] * numbers);
        assert_true(def->cost(&s).workspace_backward > 0);
        s.params_fixed[0] = s.params_fixed[1] = true;
        assert_true(def->cost(&s).flops_backward == fixed[i] * numbers);
        assert_int_equal(def->cost(&s).workspace_backward, 0);
        assert_true(mics_op_keeps_in(&s, 0)); // the input's gradient reads it
    }
}

// ---- adapters ----

static mics_op_shape adapted(const mics_op *op)
{
    const mics_lora *of = &op->lora;
    return (mics_op_shape){.op = op,
                           .unit = "unit",
                           .B = B,
                           .T = T,
                           .N = B * T,
                           .in = {100, 64},
                           .out = 100,
                           .params = {{of->slices * of->rank, 64}, {70, of->rank}},
                           .threads = 1};
}

// GEMMs with A and B: forward one each, backward three and two, of which those go that nobody wants;
// backward's own x A^T is none of the model's.
static void test_adapters(void **state)
{
    (void)state;
    const mics_op op = {.kind = MICS_OP_LORA, .lora = {4, 2, 2, {0, 60}, {50, 20}}};
    const mics_op_def *def = mics_op_def_get(op.kind);
    const mics_op_shape all = adapted(&op);
    const double a = 2.0 * 8 * 64, b = 2.0 * 70 * 4; // FLOPs of a token
    static const struct {
        bool a_fixed, b_fixed, x_fixed;
        double of_a, of_b, model_a, model_b; // GEMMs of backward, and of them the model's
    } cases[] = {
        {false, false, false, 3, 2, 2, 2}, {false, false, true, 2, 2, 1, 2},
        {true, false, false, 2, 2, 1, 2},  {false, true, false, 2, 1, 2, 1},
        {true, true, false, 1, 1, 1, 1},   {true, false, true, 1, 1, 0, 1},
    };
    int64_t out = 0, stats = 0;
    ASSERT_OK(def->make(&all, &out, &stats));
    assert_true(out == 100 && stats == 0);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        mics_op_shape s = all;
        s.params_fixed[0] = cases[i].a_fixed;
        s.params_fixed[1] = cases[i].b_fixed;
        s.in_fixed[1] = cases[i].x_fixed;
        const mics_op_cost cost = def->cost(&s);
        double flops = 0;
        gemms_of(&s, &flops);
        assert_true(cost.flops_forward == B * T * (a + b));
        assert_true(cost.flops_backward == B * T * (cases[i].of_a * a + cases[i].of_b * b));
        assert_true(flops == cost.flops_backward);
        assert_true(def->model_flops(&s) ==
                    (1 + cases[i].model_a) * a + (1 + cases[i].model_b) * b);
        assert_int_equal(mics_op_keeps_in(&s, 1), !(cases[i].a_fixed && cases[i].b_fixed));
        assert_false(mics_op_keeps_in(&s, 0));
    }
}

static void test_bad_adapters(void **state)
{
    (void)state;
    static const mics_lora bad[] = {
        {0, 2, 2, {0, 60}, {50, 20}},        {4, 0, 2, {0, 60}, {50, 20}},
        {4, NAN, 2, {0, 60}, {50, 20}},      {4, 2, 0, {0, 60}, {50, 20}},
        {4, 2, 4, {0, 60}, {50, 20}},        {4, 2, 2, {0, 49}, {50, 20}},
        {4, 2, 2, {0, 81}, {50, 20}},        {4, 2, 2, {-1, 60}, {50, 20}},
        {4, 2, 2, {0, 60}, {50, INT64_MAX}}, {4, 2, 2, {0, 60}, {70, 0}},
        {4, 2, 2, {0, 60}, {51, 20}},        {4, 2, 1, {0}, {70}},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        const mics_op op = {.kind = MICS_OP_LORA, .lora = bad[i]};
        mics_op_shape s = adapted(&op);
        int64_t out = 0, stats = 0;
        s.params[0][0] = 8; // of two slices
        assert_int_equal(mics_op_def_get(op.kind)->make(&s, &out, &stats), MICS_ERR_INVALID);
    }
}

static void test_capacity(void **state)
{
    (void)state;
    static const struct {
        mics_experts experts;
        int64_t length, training, evaluation;
    } cases[] = {
        {{8, 2, 0, 0, 4}, 64, 64, 64},       // none
        {{8, 2, 1, 2, 1}, 64, 16, 32},       // 64 * 2 / 8
        {{8, 2, 1.25, 1, 1}, 63, 20, 16},    // 19.7, 15.75
        {{10, 1, 1.1, 1.1, 1}, 100, 11, 11}, // 11.000000000000002 in fp64
        {{8, 2, 0.1, 4, 4}, 64, 4, 64},      // the least, and all tokens
        {{64, 1, 1, 1, 4}, 3, 3, 3},         // no more than there are
        {{4, 2, 1e300, 1, 1}, 1 << 20, 1 << 20, 1 << 19},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const mics_experts e = cases[i].experts;
        assert_int_equal(mics_experts_capacity(e, cases[i].length, true), cases[i].training);
        assert_int_equal(mics_experts_capacity(e, cases[i].length, false), cases[i].evaluation);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_attention),     cmocka_unit_test(test_dropout),
        cmocka_unit_test(test_bad_dropouts),  cmocka_unit_test(test_cut),
        cmocka_unit_test(test_moved),         cmocka_unit_test(test_separate),
        cmocka_unit_test(test_capacity),      cmocka_unit_test(test_cudnn),
        cmocka_unit_test(test_cudnn_lacks),   cmocka_unit_test(test_fixed_weights),
        cmocka_unit_test(test_fixed_experts), cmocka_unit_test(test_fixed_norms),
        cmocka_unit_test(test_adapters),      cmocka_unit_test(test_bad_adapters),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
