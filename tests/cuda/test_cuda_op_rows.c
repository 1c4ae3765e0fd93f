// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Softmax with cross-entropy, and the table of kernels. Shapes: see mics/kernels.h.
#include "cuda_op.h"
#include <math.h>
#include <string.h>

static const mics_kernels *table(void)
{
    cu_device();
    const mics_kernels *found = mics_kernels_cuda();
    if (!found)
        fail_msg("the plugin has no kernels");
    return found;
}

// ---- the table ----

// C++ fills the structures by position: each entry must be the one of its name.
static void entries_are_where_they_belong(void **state)
{
    (void)state;
    const mics_kernels *t = table();
    assert_string_equal(t->name, "cuda");
#define ASSERT_ENTRY(entry)                                                                        \
    do {                                                                                           \
        void (*function)(void), (*in_table)(void);                                                 \
        cu_symbol("mics_cuda_" #entry, &function);                                                 \
        memcpy(&in_table, &t->entry, sizeof in_table);                                             \
        if (function != in_table)                                                                  \
            fail_msg("the table has another function as " #entry);                                 \
    } while (0)
    ASSERT_ENTRY(accumulate);
    ASSERT_ENTRY(sum_losses);
    ASSERT_ENTRY(preference);
    ASSERT_ENTRY(sum_squares);
    ASSERT_ENTRY(sum_squares_rounded);
    ASSERT_ENTRY(pack_state);
    ASSERT_ENTRY(unpack_state);
    ASSERT_ENTRY(sum_blocks);
    ASSERT_ENTRY(sum_blocks_rounded);
    ASSERT_ENTRY(round);
    ASSERT_ENTRY(widen);
#undef ASSERT_ENTRY
#define ASSERT_OP(NAME, op)                                                                        \
    assert_ptr_equal(t->ops[MICS_OP_##NAME], mics_plugin_symbol("mics_cuda_" #op "_kernels"));
    MICS_OPS(ASSERT_OP)
#undef ASSERT_OP
    void (*adamw)(const mics_exec *, const mics_optimizer_update *);
    cu_symbol("mics_cuda_adamw_update", &adamw);
    assert_true(t->update[MICS_OPTIMIZER_ADAMW] == adamw);
    for (int kind = 0; kind < MICS_OP_KINDS; kind++) {
        const bool none = mics_op_def_get((mics_op_kind)kind)->travels;
        assert_true((t->ops[kind]->forward == NULL) == none);
        assert_true((t->ops[kind]->backward == NULL) ==
                    (none || mics_op_def_get((mics_op_kind)kind)->backward_passes));
    }
}

static void tokens_are_sorted(void **state)
{
    (void)state;
    const int32_t tokens[] = {3, 0, 3, 6, 0, 3, 1};
    const int32_t want[] = {1, 4, 6, 0, 2, 5, 3};
    int32_t order[7], counts[8];
    mics_op_sort_tokens(order, tokens, 7, 7, counts);
    assert_memory_equal(order, want, sizeof want);
    mics_op_sort_tokens(order, tokens + 1, 1, 1, counts);
    assert_int_equal(order[0], 0);
}

// ---- softmax and cross-entropy ----

static void (*cross_entropy)(const mics_exec *at, const mics_cuda_logits *logits);

static void run_cross_entropy(const mics_exec *at, const void *args)
{
    cross_entropy(at, args);
}

enum { LOSS_ALONE, IN_PLACE, APART };

// What a row's losses and gradients must be.
typedef struct entropy_wide {
    double *loss, *loss_sum, *slopes, *slopes_sum;
} entropy_wide;

static void entropy_row(const entropy_wide *w, const double *logits, int64_t target, double scale,
                        int64_t r, int64_t V)
{
    double highest = -(double)INFINITY, sum = 0;
    for (int64_t v = 0; v < V; ++v)
        highest = fmax(highest, logits[v]);
    for (int64_t v = 0; v < V; ++v)
        sum += exp(logits[v] - highest);
    w->loss[r] = log(sum) - (logits[target] - highest);
    w->loss_sum[r] = log(sum) + fabs(logits[target]) + fabs(highest) + 1;
    for (int64_t v = 0; v < V; ++v) {
        const double below = fmin(highest - logits[v], 1e4), share = exp(-below) / sum;
        w->slopes[v] = scale * (share - (v == target));
        w->slopes_sum[v] = fabs(scale) * (share * (1 + below) + (v == target));
    }
}

static void entropy_case(mics_dtype dtype, mics_dtype logits_dtype, int64_t R, int64_t V,
                         int64_t stride, int kind, double spread)
{
    CU_ENTRY(cross_entropy);
    cu_case c;
    cu_begin(&c, dtype, 0, "cross_entropy of %s R=%d V=%d stride %d kind %d spread %g",
             mics_dtype_text(logits_dtype), (int)R, (int)V, (int)stride, kind, spread);
    const double scale = 0.37;
    cu_buffer *targets = cu_ints(&c, "targets", R, V);
    cu_buffer *logits = cu_input(&c, "logits", (int)logits_dtype, R * stride, 0, spread);
    if (spread > 100 && V > 2) { // a row that is certain, and one that excludes a word
        targets->values[0] = 1;
        cu_changed(targets);
        logits->values[1] = 30000;
        logits->values[(R - 1) * stride] = -(double)INFINITY;
        cu_changed(logits);
    }
    cu_buffer *loss = cu_output(&c, "loss", MICS_DTYPE_FP32, R, 0);
    cu_buffer *slopes = kind == APART      ? cu_output(&c, "slopes", (int)dtype, R * stride, 0)
                        : kind == IN_PLACE ? logits
                                           : NULL;
    logits->role = kind == IN_PLACE ? CU_INOUT : CU_INPUT;
    entropy_wide w = {cu_doubles(&c, R), cu_doubles(&c, R), cu_doubles(&c, R * stride),
                      cu_doubles(&c, R * stride)};
    for (int64_t i = 0; i < R * stride; ++i)
        w.slopes[i] = (double)NAN; // behind V, nothing is written
    for (int64_t r = 0; r < R; ++r) {
        const entropy_wide row = {w.loss, w.loss_sum, w.slopes + r * stride,
                                  w.slopes_sum + r * stride};
        entropy_row(&row, logits->values + r * stride, (int64_t)targets->values[r],
                    (double)(float)scale, r, V);
    }
    const double quick = logits_dtype == MICS_DTYPE_FP32 ? CU_TOLERANCE : CU_QUICK;
    cu_expect(loss, w.loss, w.loss_sum, quick);
    if (slopes)
        cu_expect(slopes, w.slopes, w.slopes_sum, quick);
    const mics_cuda_logits args = {.logits = logits->data,
                                   .logits_dtype = logits_dtype,
                                   .gradients = slopes ? slopes->data : NULL,
                                   .targets = targets->data,
                                   .loss = loss->data,
                                   .scale = (float)scale,
                                   .R = R,
                                   .V = V,
                                   .stride = stride};
    cu_run(&c, run_cross_entropy, &args);
    cu_end(&c);
}

static void losses_and_gradients(void **state)
{
    (void)state;
    static const int64_t words[] = {1, 2, 7, 8, 50, 256, 257, 1000, 1024, 1025, 1032, 5003};
    for (size_t i = 0; i < sizeof words / sizeof *words; ++i)
        for (int dtype = 0; dtype < MICS_DTYPES; ++dtype) {
            const int64_t V = words[i], R = V > 1000 ? 3 : 1 + (int64_t)i * 3 % 20;
            const int64_t padded = (V + 7) / 8 * 8, stride = i % 3 == 2 ? V : padded + 8;
            const mics_dtype type = (mics_dtype)dtype;
            for (int kind = LOSS_ALONE; kind <= APART; ++kind)
                entropy_case(type, type, R, V, stride, kind, 3.0);
            if (type != MICS_DTYPE_FP32)
                entropy_case(type, MICS_DTYPE_FP32, R, V, stride, APART, 3.0);
            entropy_case(type, type, R, V, stride, IN_PLACE, 1000.0);
        }
    entropy_case(MICS_DTYPE_BF16, MICS_DTYPE_BF16, 2, 50257, 50304, IN_PLACE, 3.0);
    entropy_case(MICS_DTYPE_FP32, MICS_DTYPE_FP32, 1, 50257, 50257, IN_PLACE, 10.0);
    entropy_case(MICS_DTYPE_BF16, MICS_DTYPE_BF16, 70, 24, 24, IN_PLACE, 1.0);
}

// A logit that is no number must not pass for a loss.
static void losses_of_no_number(void **state)
{
    (void)state;
    CU_ENTRY(cross_entropy);
    static const int64_t words[] = {40, 4000};
    for (int i = 0; i < 4; ++i) {
        const int64_t V = words[i / 2];
        cu_case c;
        cu_begin(&c, MICS_DTYPE_BF16, 0, "cross_entropy of no number V=%d", (int)V);
        cu_buffer *targets = cu_ints(&c, "targets", 1, V);
        cu_buffer *logits = cu_input(&c, "logits", MICS_DTYPE_BF16, V, 0, 1.0);
        logits->values[V - 3] = i % 2 ? (double)NAN : (double)INFINITY;
        cu_changed(logits);
        cu_buffer *loss = cu_output(&c, "loss", MICS_DTYPE_FP32, 1, 0);
        const mics_cuda_logits args = {.logits = logits->data,
                                       .logits_dtype = MICS_DTYPE_BF16,
                                       .targets = targets->data,
                                       .loss = loss->data,
                                       .R = 1,
                                       .V = V,
                                       .stride = V};
        cu_run(&c, run_cross_entropy, &args);
        assert_true(!isfinite(loss->values[0]));
        cu_end(&c);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(entries_are_where_they_belong),
        cmocka_unit_test(tokens_are_sorted),
        cmocka_unit_test(losses_and_gradients),
        cmocka_unit_test(losses_of_no_number),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
