// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Ops in generation whose weights may be of bf16: linear, the LM head, the embedding. Against fp64;
// rows of one token each against the same rows alone.
#include "op_harness.h"
#include "op_shared.h"
#include "ops/linear/def.h"
#include "ops/lora/def.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { PANEL_FLOATS = MICS_LINEAR_PANEL * MICS_LINEAR_PANEL_INPUTS };

// A weight as kernels read it, and its values.
typedef struct weight {
    void *data;
    double *wide;
} weight;

static weight make_weight(op_case *c, int64_t elems, mics_dtype dtype)
{
    float *values = op_input(c, "weight", elems, 1.0);
    if (dtype == MICS_DTYPE_FP32)
        return (weight){values, op_widen(c, values)};
    // Its own block, which ends where it ends: prefetching past it is harmless, reading is not.
    float *halves = op_input(c, "halves", (elems + 1) / 2, 0.0);
    const mics_kernels *k = mics_kernels_get(NULL);
    uint16_t *packed = (uint16_t *)halves + elems % 2;
    k->pack_bf16(packed, values, elems);
    op_input_changed(c, halves);
    k->unpack_bf16(values, packed, elems);
    op_input_changed(c, values);
    return (weight){packed, op_widen(c, values)};
}

// ---- linear and the LM head ----

typedef struct linear {
    mics_op op;
    float *y, *workspace;
    const float *x, *bias;
    const void *weight;
    mics_dtype dtype;
    int64_t B, T, I, O;
} linear;

static void run_linear(const mics_kernels *k, int32_t threads, const void *args)
{
    const linear *l = args;
    mics_op_call call = {.shape = {.op = &l->op,
                                   .B = l->B,
                                   .T = l->T,
                                   .N = l->B * l->T,
                                   .in = {l->I},
                                   .out = l->O,
                                   .params = {{l->O, l->I}}},
                         .in = {l->x},
                         .params = {l->weight, l->bias},
                         .weights = l->dtype};
    if (l->op.kind == MICS_OP_LM_HEAD)
        call.token_logits = l->y;
    else
        call.out = l->y;
    op_decode_shared(k, call, threads, l->workspace, PANEL_FLOATS);
}

static void reference(const linear *l, const double *x_I, const double *w, const double *bias,
                      double *y_O, double *sum_O)
{
    for (int64_t o = 0; o < l->O; ++o) {
        y_O[o] = bias ? bias[o] : 0;
        sum_O[o] = fabs(y_O[o]);
        for (int64_t i = 0; i < l->I; ++i) {
            const double term = x_I[i] * w[l->op.weight_out_in ? o * l->I + i : i * l->O + o];
            y_O[o] += term;
            sum_O[o] += fabs(term);
        }
    }
}

// The same with one row at a time: to the bit.
static void check_rows_alone(const linear *l)
{
    for (int32_t t = 0; t < mics_kernels_count(); ++t) {
        const mics_kernels *k = mics_kernels_at(t);
        if (k == NULL)
            continue;
        run_linear(k, 1, l);
        float *alone = calloc((size_t)l->O, sizeof *alone);
        assert_non_null(alone);
        for (int64_t b = 0; b < l->B; ++b) {
            linear one = *l;
            one.B = 1;
            one.x = l->x + b * l->I;
            one.y = alone;
            run_linear(k, 1, &one);
            assert_memory_equal(alone, l->y + b * l->O, (size_t)l->O * sizeof *alone);
        }
        free(alone);
    }
}

static void linear_case(linear l, bool has_bias)
{
    const bool head = l.op.kind == MICS_OP_LM_HEAD;
    const int64_t N = l.B * l.T, out_rows = head ? l.B : N;
    op_case c;
    op_begin(&c, "%s B=%d T=%d I=%d O=%d %s %s", head ? "lm_head" : "linear", (int)l.B, (int)l.T,
             (int)l.I, (int)l.O, mics_dtype_text(l.dtype), l.op.weight_out_in ? "OI" : "IO");
    float *x = op_input(&c, "x", N * l.I, 1.0);
    const weight w = make_weight(&c, l.I * l.O, l.dtype);
    float *bias = has_bias ? op_input(&c, "bias", l.O, 1.0) : NULL;
    l.x = x;
    l.weight = w.data;
    l.bias = bias;
    l.y = op_output(&c, "y", out_rows * l.O, false);
    l.workspace = op_space(&c, "workspace", OP_MAX_THREADS * PANEL_FLOATS);
    double *want = op_doubles(&c, out_rows * l.O), *sum = op_doubles(&c, out_rows * l.O);
    const double *wide_x = op_widen(&c, x), *wide_bias = bias ? op_widen(&c, bias) : NULL;
    for (int64_t row = 0; row < out_rows; ++row)
        reference(&l, wide_x + (head ? row * l.T + l.T - 1 : row) * l.I, w.wide, wide_bias,
                  want + row * l.O, sum + row * l.O);
    op_expect(&c, l.y, want, sum, 2 * OP_TOLERANCE);
    op_run(&c, run_linear, &l);
    if (l.T == 1)
        check_rows_alone(&l);
    op_end(&c);
}

static void linear_matches_reference(void **state)
{
    (void)state;
    static const int64_t sizes[][2] = {{1, 1},    {3, 2},     {8, 16},    {17, 33},  {40, 130},
                                       {33, 257}, {768, 200}, {100, 391}, {523, 65}, {64, 4100}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; ++i)
        for (int kind = 0; kind < 8; ++kind) {
            linear l = {.op = {.kind = MICS_OP_LINEAR, .weight_out_in = kind & 1},
                        .dtype = kind & 2 ? MICS_DTYPE_BF16 : MICS_DTYPE_FP32,
                        .B = kind & 4 ? 1 + (int64_t)i % 5 : 1,
                        .T = kind & 4 ? 1 : 2 + (int64_t)i,
                        .I = sizes[i][0],
                        .O = sizes[i][1]};
            linear_case(l, (i + (size_t)kind) % 3 > 0);
        }
}

static void lm_head_matches_reference(void **state)
{
    (void)state;
    for (int kind = 0; kind < 8; ++kind) {
        const linear l = {.op = {.kind = MICS_OP_LM_HEAD, .weight_out_in = true},
                          .dtype = kind & 2 ? MICS_DTYPE_BF16 : MICS_DTYPE_FP32,
                          .B = kind & 4 ? 3 : 1,
                          .T = kind & 4 ? 1 : 1 + 4 * (kind & 1),
                          .I = kind & 1 ? 45 : 64,
                          .O = 1003};
        linear_case(l, false);
    }
}

// ---- embedding ----

typedef struct embedding {
    float *y;
    const void *wte, *wpe;
    const int32_t *tokens;
    mics_dtype dtype;
    int64_t B, T, C, position;
} embedding;

static void run_embedding(const mics_kernels *k, int32_t threads, const void *args)
{
    const embedding *e = args;
    const mics_exec at = op_exec(threads, NULL);
    const mics_op op = {.kind = MICS_OP_EMBEDDING};
    const mics_op_call call = {
        .at = &at,
        .shape = {.op = &op, .B = e->B, .T = e->T, .N = e->B * e->T, .out = e->C},
        .out = e->y,
        .params = {e->wte, e->wpe},
        .tokens = e->tokens,
        .weights = e->dtype,
        .position = e->position};
    assert_false(k->ops[op.kind]->decode_divides);
    k->ops[op.kind]->decode(&call);
}

static void embedding_case(embedding e, bool positions)
{
    enum { VOCAB = 11, POSITIONS = 9 };
    const int64_t N = e.B * e.T, C = e.C;
    op_case c;
    op_begin(&c, "embedding B=%d T=%d C=%d %s", (int)e.B, (int)e.T, (int)C,
             mics_dtype_text(e.dtype));
    const weight wte = make_weight(&c, VOCAB * C, e.dtype);
    const weight wpe = make_weight(&c, POSITIONS * C, e.dtype);
    const int32_t *tokens = op_random_ints(&c, N, VOCAB);
    double *want = op_doubles(&c, N * C), *sum = op_doubles(&c, N * C);
    for (int64_t i = 0; i < N * C; ++i) {
        const int64_t n = i / C;
        const double token = wte.wide[tokens[n] * C + i % C];
        const double place = wpe.wide[(e.position + n % e.T) * C + i % C];
        want[i] = positions ? token + place : token;
        sum[i] = fabs(token) + fabs(place);
    }
    e.wte = wte.data;
    e.wpe = positions ? wpe.data : NULL;
    e.tokens = tokens;
    e.y = op_output(&c, "y", N * C, false);
    op_expect(&c, e.y, want, sum, OP_TOLERANCE);
    op_run(&c, run_embedding, &e);
    op_end(&c);
}

static void embedding_matches_reference(void **state)
{
    (void)state;
    for (int kind = 0; kind < 8; ++kind) {
        const embedding e = {.dtype = kind & 1 ? MICS_DTYPE_BF16 : MICS_DTYPE_FP32,
                             .B = kind & 2 ? 3 : 1,
                             .T = kind & 2 ? 1 : 5,
                             .C = kind & 1 ? 37 : 16,
                             .position = 4};
        embedding_case(e, kind & 4);
    }
}

// ---- adapters ----

typedef struct adapter {
    mics_op op;
    float *y, *workspace;
    const float *from, *x;
    const void *a, *b;
    mics_dtype dtype;
    int64_t N, T, I, O;
} adapter;

static mics_op_shape adapter_shape(const adapter *l)
{
    const mics_lora *of = &l->op.lora;
    return (mics_op_shape){
        .op = &l->op,
        .T = l->T,
        .N = l->N,
        .in = {l->O, l->I},
        .out = l->O,
        .params = {{mics_lora_rank(of), l->I}, {mics_lora_columns(of, of->slices), of->rank}}};
}

static void run_adapter(const mics_kernels *k, int32_t threads, const void *args)
{
    const adapter *l = args;
    const mics_exec at = op_exec(threads, l->workspace);
    const mics_op_call call = {.at = &at,
                               .shape = adapter_shape(l),
                               .in = {l->from, l->x},
                               .out = l->y,
                               .params = {l->a, l->b},
                               .weights = l->dtype};
    assert_false(k->ops[MICS_OP_LORA]->decode_divides); // the decoder hands out rows
    k->ops[MICS_OP_LORA]->decode(&call);
}

static void adapter_reference(const adapter *l, const double *x, const double *a, const double *b,
                              double *y, double *sum)
{
    const mics_lora *of = &l->op.lora;
    for (int64_t at = 0; at < l->N * of->slices * of->rank; ++at) {
        const int64_t n = at / (of->slices * of->rank), row = at % (of->slices * of->rank);
        const int32_t slice = (int32_t)(row / of->rank);
        double low = 0, terms = 0;
        for (int64_t i = 0; i < l->I; ++i) {
            low += x[n * l->I + i] * a[row * l->I + i];
            terms += fabs(x[n * l->I + i] * a[row * l->I + i]);
        }
        for (int64_t o = 0; o < of->count[slice]; ++o) {
            const int64_t to = n * l->O + of->first[slice] + o;
            const double by = (double)of->scale *
                              b[(mics_lora_columns(of, slice) + o) * of->rank + row % of->rank];
            y[to] += low * by;
            sum[to] += terms * fabs(by);
        }
    }
}

static void adapter_case(mics_lora lora, mics_dtype dtype, int64_t N, int64_t T, int64_t I,
                         int64_t O)
{
    op_case c;
    op_begin(&c, "lora N=%d T=%d I=%d O=%d slices %d %s", (int)N, (int)T, (int)I, (int)O,
             (int)lora.slices, mics_dtype_text(dtype));
    adapter l = {.op = {.kind = MICS_OP_LORA, .lora = lora}, .N = N, .T = T, .I = I, .O = O};
    const weight a = make_weight(&c, mics_lora_rank(&lora) * I, dtype);
    const weight b = make_weight(&c, mics_lora_columns(&lora, lora.slices) * lora.rank, dtype);
    l.dtype = dtype;
    l.a = a.data;
    l.b = b.data;
    l.from = op_input(&c, "linear", N * O, 1.0);
    l.x = op_input(&c, "x", N * I, 1.0);
    l.y = op_output(&c, "y", N * O, false);
    const mics_op_shape shape = adapter_shape(&l);
    const int64_t floats = mics_op_def_get(MICS_OP_LORA)->decode(&shape, 1).workspace;
    l.workspace = op_space(&c, "workspace", floats);
    double *y = op_widen(&c, l.from), *sum = op_widen(&c, l.from);
    for (int64_t i = 0; i < N * O; ++i)
        sum[i] = fabs(sum[i]);
    adapter_reference(&l, op_widen(&c, l.x), a.wide, b.wide, y, sum);
    op_expect(&c, l.y, y, sum, 2 * OP_TOLERANCE);
    op_run(&c, run_adapter, &l);
    op_end(&c);
}

// One token of several sequences, and rows of a prompt: more than are computed at a time.
static void adapters_match_reference(void **state)
{
    (void)state;
    static const mics_lora loras[] = {{3, 0.5F, 1, {0}, {70}},
                                      {8, 2, 2, {10, 50}, {20, 5}},
                                      {16, -1, 3, {0, 30, 50}, {30, 20, 20}}};
    for (int i = 0; i < 3; ++i)
        for (int bf16 = 0; bf16 < 2; ++bf16) {
            const mics_dtype dtype = bf16 ? MICS_DTYPE_BF16 : MICS_DTYPE_FP32;
            adapter_case(loras[i], dtype, 1, 1, 33, 70);
            adapter_case(loras[i], dtype, 5, 1, 64, 70);
            adapter_case(loras[i], dtype, 2 * MICS_LORA_DECODE_ROWS + 3, 35, 40, 70);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(linear_matches_reference),
        cmocka_unit_test(lm_head_matches_reference),
        cmocka_unit_test(embedding_matches_reference),
        cmocka_unit_test(adapters_match_reference),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
