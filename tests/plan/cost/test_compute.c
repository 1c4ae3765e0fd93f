// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// The roofline: each ceiling by itself, and what limits.
#include "clusters.h"
#include <math.h>

static mics_cluster flat(void)
{
    return parse_good(
        "{\"accelerator\": {\"memory_gib\": 16, \"tflops_fp32\": 10, \"tflops_bf16\": "
        "100, \"memory_gb_per_s\": 1000, \"memory_efficiency\": 0.5, "
        "\"update_gb_per_s\": 250, \"launch_us\": 2, \"matmul_efficiency\": [[64, "
        "0.1], [1024, 0.5], [4096, 0.8]], \"attention_efficiency\": [[512, 0.2], "
        "[2048, 0.4]]}, " TIERS "}");
}

static void test_gemms(void **state)
{
    (void)state;
    mics_cluster c = flat();
    mics_cost_limit limit = MICS_COST_BY_LINK;
    mics_cost_op op = mics_cost_matmul(8192, 4096, 4096, 2, MICS_MATH_BF16);
    assert_close(op.flops, 2.0 * 8192 * 4096 * 4096, 1e-12);
    assert_close(op.bytes, 2.0 * (8192.0 * 4096 + 4096.0 * 4096 + 8192.0 * 4096), 1e-12);
    assert_close(mics_cost_op_us(&c, &op, &limit), op.flops / (0.8 * 100e12) * 1e6, 1e-12);
    assert_int_equal(limit, MICS_COST_BY_FLOPS);
    // The smallest dimension counts, whichever it is.
    const int64_t shapes[][3] = {{64, 8192, 8192}, {8192, 64, 8192}, {8192, 8192, 64}};
    for (int i = 0; i < 3; i++) {
        op = mics_cost_matmul(shapes[i][0], shapes[i][1], shapes[i][2], 2, MICS_MATH_BF16);
        op.bytes = 0;
        assert_close(mics_cost_op_us(&c, &op, &limit), op.flops / (0.1 * 100e12) * 1e6, 1e-12);
    }
    op = mics_cost_matmul(1, 16384, 16384, 2, MICS_MATH_BF16);
    assert_close(mics_cost_op_us(&c, &op, &limit), op.bytes / 500e9 * 1e6, 1e-12);
    assert_int_equal(limit, MICS_COST_BY_MEMORY);
    op = mics_cost_matmul(16, 16, 16, 4, MICS_MATH_FP32);
    op.kernels = 3;
    assert_close(mics_cost_op_us(&c, &op, &limit), 6.0, 1e-12);
    assert_int_equal(limit, MICS_COST_BY_LAUNCH);
    op = mics_cost_matmul(4096, 4096, 4096, 4, MICS_MATH_FP32);
    assert_close(mics_cost_op_us(&c, &op, NULL), op.flops / 8e12 * 1e6, 1e-12);
}

// What lies in a cache moves at its rate; the optimizer's states never do.
static void test_cache(void **state)
{
    (void)state;
    mics_cluster c = flat();
    mics_cost_op op = {.kind = MICS_COST_ELEMENTWISE, .math = MICS_MATH_FP32, .bytes = 8e6};
    c.accelerator.cache_bytes = 8e6;
    assert_float_equal(mics_cost_op_us(&c, &op, NULL), 16.0, 1e-9); // of no known rate
    c.accelerator.cache_bytes_per_s = 2000e9;
    assert_float_equal(mics_cost_op_us(&c, &op, NULL), 4.0, 1e-9);
    op.kind = MICS_COST_UPDATE;
    assert_float_equal(mics_cost_op_us(&c, &op, NULL), 32.0, 1e-9);
    op = (mics_cost_op){.kind = MICS_COST_ELEMENTWISE, .math = MICS_MATH_FP32, .bytes = 8e6 + 1};
    assert_true(mics_cost_op_us(&c, &op, NULL) > 16.0);
}

static void test_other_ops(void **state)
{
    (void)state;
    mics_cluster c = flat();
    mics_cost_limit limit = MICS_COST_BY_LINK;
    mics_cost_op op = {
        .kind = MICS_COST_ATTENTION, .math = MICS_MATH_BF16, .flops = 1e12, .m = 2048};
    assert_close(mics_cost_op_us(&c, &op, &limit), 1e12 / 40e12 * 1e6, 1e-12);
    op.m = 1024;
    assert_close(mics_cost_op_us(&c, &op, &limit), 1e12 / 30e12 * 1e6, 1e-12);
    op = (mics_cost_op){.kind = MICS_COST_ELEMENTWISE, .flops = 1e6, .bytes = 1e9};
    assert_close(mics_cost_op_us(&c, &op, &limit), 2000.0, 1e-12);
    assert_int_equal(limit, MICS_COST_BY_MEMORY);
    op.kind = MICS_COST_UPDATE;
    assert_close(mics_cost_op_us(&c, &op, &limit), 4000.0, 1e-12);
    op = (mics_cost_op){.kind = MICS_COST_ELEMENTWISE, .flops = 1e12, .bytes = 1e9};
    assert_close(mics_cost_op_us(&c, &op, &limit), 1e5, 1e-12);
    assert_int_equal(limit, MICS_COST_BY_FLOPS);
    assert_string_equal(mics_cost_limit_text(MICS_COST_BY_MEMORY), "memory");
    assert_string_equal(mics_math_text(MICS_MATH_BF16), "bf16");
}

// Shares of rates that trainings keep, and what the slowest of several nodes leaves of them.
static void test_kept(void **state)
{
    (void)state;
    mics_cluster c = flat();
    const mics_cost_op gemm = mics_cost_matmul(8192, 4096, 4096, 2, MICS_MATH_BF16);
    const mics_cost_op attention = {
        .kind = MICS_COST_ATTENTION, .math = MICS_MATH_BF16, .flops = 1e12, .m = 2048};
    const mics_cost_op addition = {.kind = MICS_COST_ELEMENTWISE, .bytes = 1e9};
    const mics_cost_op update = {.kind = MICS_COST_UPDATE, .bytes = 1e9};
    const double alone = mics_cost_op_us(&c, &gemm, NULL);
    c.accelerator.matmul_kept = 0.8;
    c.accelerator.attention_kept = 0.5;
    c.accelerator.memory_kept = 0.4;
    assert_close(mics_cost_op_us(&c, &gemm, NULL), alone / 0.8, 1e-12);
    assert_close(mics_cost_op_us(&c, &attention, NULL), 1e12 / 20e12 * 1e6, 1e-12);
    assert_close(mics_cost_op_us(&c, &addition, NULL), 5000.0, 1e-12);
    assert_close(mics_cost_op_us(&c, &update, NULL), 4000.0, 1e-12); // its own rate
    c = flat();
    c.jitter = 0.1;
    mics_cluster late = mics_cluster_on_nodes(&c, 1);
    assert_close(mics_cost_op_us(&late, &gemm, NULL), alone, 1e-12);
    late = mics_cluster_on_nodes(&c, 64);
    assert_close(mics_cost_op_us(&late, &gemm, NULL), alone * (1 + 0.1 * sqrt(2 * log(64))), 1e-12);
    late = mics_cluster_on_nodes(&late, 64); // planners of other choices are opened from one
    assert_close(mics_cost_op_us(&late, &gemm, NULL), alone * (1 + 0.1 * sqrt(2 * log(64))), 1e-12);
}

// GEMMs in fp8 pay for the casts of their operands; what is no GEMM computes in bf16.
static void test_fp8(void **state)
{
    (void)state;
    mics_cluster c;
    ASSERT_OK(mics_cluster_find("dgx-h100", &c));
    mics_cost_op op = mics_cost_matmul(8192, 8192, 8192, 2, MICS_MATH_BF16);
    const double bf16 = mics_cost_op_us(&c, &op, NULL);
    op.math = MICS_MATH_FP8;
    const double fp8 = mics_cost_op_us(&c, &op, NULL);
    if (fp8 < bf16 / 2 || fp8 > bf16 / 1.5)
        fail_msg("a GEMM of 8192 takes %g us in bf16, %g in fp8", bf16, fp8);
    // Of a small one the casts are more than the multiplication saves.
    op = mics_cost_matmul(8192, 512, 512, 2, MICS_MATH_BF16);
    const double small = mics_cost_op_us(&c, &op, NULL);
    op.math = MICS_MATH_FP8;
    assert_true(mics_cost_op_us(&c, &op, NULL) > small);
    const mics_op_work work = {.kind = MICS_WORK_ATTENTION, .m = 2048, .flops = 1e12, .times = 1};
    assert_int_equal(mics_cost_of_work(&work, 2, MICS_MATH_FP8).math, MICS_MATH_BF16);
    assert_string_equal(mics_math_text(MICS_MATH_FP8), "fp8");
}

// A chip that may draw less for its FLOPs keeps less of them.
static void test_watts(void **state)
{
    (void)state;
    mics_cluster a, h, cool;
    ASSERT_OK(mics_cluster_find("dgx-a100", &a));
    ASSERT_OK(mics_cluster_find("dgx-h100", &h));
    assert_true(a.accelerator.matmul_kept < 1 &&
                h.accelerator.matmul_kept < a.accelerator.matmul_kept);
    cool = parse_good("{\"base\": \"dgx-h100\", \"accelerator\": {\"watts\": 350}}");
    assert_close(h.accelerator.matmul_kept / cool.accelerator.matmul_kept, cbrt(2), 1e-12);
    assert_close(cool.accelerator.attention_kept, cool.accelerator.matmul_kept, 1e-12);
    cool = parse_good("{\"base\": \"dgx-h100\", \"accelerator\": {\"watts\": 1e5}}");
    assert_close(cool.accelerator.matmul_kept, 1.0, 1e-12);
    cool = parse_good("{\"base\": \"dgx-h100\", \"accelerator\": {\"matmul_kept\": 0.5}}");
    assert_close(cool.accelerator.matmul_kept, 0.5, 1e-12);
}

// Attention by the kernel that is named, or by what was measured.
static void test_attention_kernels(void **state)
{
    (void)state;
    const char *const names[] = {"unfused", "flash1", "flash2", "flash3", "cudnn"};
    for (int i = 0; i < MICS_ATTENTION_KERNELS; i++)
        assert_string_equal(mics_attention_kernel_text((mics_attention_kernel)i), names[i]);
    mics_cluster c =
        parse_good("{\"base\": \"dgx-h100\", \"accelerator\": {\"attention\": \"flash3\"}}");
    assert_close(mics_curve_at(&c.accelerator.attention_efficiency, 8192, 0),
                 mics_curve_at(&c.accelerator.attention_kernels[MICS_ATTENTION_FLASH3], 8192, 0),
                 1e-12);
    c = parse_good("{\"base\": \"dgx-h100\", \"accelerator\": {\"attention\": \"flash3\", "
                   "\"attention_efficiency\": 0.1}}");
    assert_close(mics_curve_at(&c.accelerator.attention_efficiency, 8192, 0), 0.1, 1e-12);
}

// Where it is said what kernels move, memory keeps its rate; other words are refused.
static void test_kernels(void **state)
{
    (void)state;
    const mics_cost_op op = {.kind = MICS_COST_ELEMENTWISE, .math = MICS_MATH_FP32, .bytes = 1e9};
    mics_cluster typical, fused, wrong;
    ASSERT_OK(mics_cluster_find("dgx-h100", &typical));
    fused = parse_good("{\"base\": \"dgx-h100\", \"accelerator\": {\"kernels\": \"fused\"}}");
    assert_true(mics_kernels_are(&fused.accelerator, "fused"));
    assert_close(mics_cost_op_us(&fused, &op, NULL) / mics_cost_op_us(&typical, &op, NULL),
                 typical.accelerator.memory_kept, 1e-12);
    wrong = fused;
    snprintf(wrong.accelerator.kernels, sizeof wrong.accelerator.kernels, "quick");
    ASSERT_STATUS(MICS_ERR_INVALID, mics_cluster_finish(&wrong));
}

// More work never takes less time.
static void test_monotonic(void **state)
{
    (void)state;
    for (int32_t i = 0; i < mics_catalogue_count(); i++) {
        mics_cluster c;
        ASSERT_OK(mics_cluster_find(mics_catalogue_name(i), &c));
        double before = 0.0;
        for (int64_t n = 1; n <= 65536; n += n / 8 + 1) {
            mics_cost_op op = mics_cost_matmul(n, n, n, 2, MICS_MATH_FP16);
            double us = mics_cost_op_us(&c, &op, NULL);
            if (us < before)
                fail_msg("%s: a product of %d takes %g us, a smaller one %g", c.name, (int)n, us,
                         before);
            before = us;
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_gemms, setup, teardown),
        cmocka_unit_test_setup_teardown(test_cache, setup, teardown),
        cmocka_unit_test_setup_teardown(test_other_ops, setup, teardown),
        cmocka_unit_test_setup_teardown(test_kept, setup, teardown),
        cmocka_unit_test_setup_teardown(test_fp8, setup, teardown),
        cmocka_unit_test_setup_teardown(test_watts, setup, teardown),
        cmocka_unit_test_setup_teardown(test_attention_kernels, setup, teardown),
        cmocka_unit_test_setup_teardown(test_kernels, setup, teardown),
        cmocka_unit_test_setup_teardown(test_monotonic, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
