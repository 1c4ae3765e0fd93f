// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Decoding of attention; its other cases are in ops/attention/cases.h.
#include "op_harness.h"
#include "op_shared.h"
#include "ops/attention/cases.h"
#include "ops/attention/def.h"
#include <string.h>

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
    const attention_shape shape = {.B = d.B, .T = length, .heads = heads, .window = window};
    const mics_op_case of = attention_case(&shape);
    mics_case_values v = {.of = &of};
    v.in[0].at = op_widen(&c, qkv);
    v.out.at = op_doubles(&c, d.B * length * C), v.out.sum = op_doubles(&c, d.B * length * C);
    double *want = op_doubles(&c, d.B * T * C), *sum = op_doubles(&c, d.B * T * C);
    for (int64_t row = 0; row < d.B * T; ++row) {
        const int64_t b = row / T, t = d.before + row % T, from = (b * length + t) * C;
        for (int64_t h = 0; h < heads.query; ++h) {
            attention_scores scores;
            attention_score(&v, (attention_at){b, h, t}, &scores);
            attention_out(&v, (attention_at){b, h, t}, &scores);
        }
        memcpy(want + row * C, v.out.at + from, (size_t)C * sizeof *want);
        memcpy(sum + row * C, v.out.sum + from, (size_t)C * sizeof *sum);
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
    const struct CMUnitTest tests[] = {cmocka_unit_test(decode_matches_reference)};
    return op_run_tests(tests);
}
