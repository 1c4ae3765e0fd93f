// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// The entries that op_speed calls, the bytes and FLOPs of each, and its buffers.
#include "op_subjects.h"
#include "op_calls.h"
#include <string.h>

// ---- entries ----

void run_copy(const bench *b, const subject *s, void *const *p)
{
    b->table->widen(&b->at, p[0], p[1], s->N); // of fp32: a copy
}

static void run_embedding_forward(const bench *b, const subject *s, void *const *p)
{
    op_embedding_forward(b->table, &b->at, p[0], b->tokens, p[1], p[2], s->N, b->T, s->I);
}

static void run_embedding_backward(const bench *b, const subject *s, void *const *p)
{
    op_embedding_backward(b->table, &b->at, p[1], p[2], p[0], b->tokens, b->order, s->N, b->T, s->I,
                          b->V, b->T, true, false);
}

static void run_layernorm_forward(const bench *b, const subject *s, void *const *p)
{
    op_layernorm_forward(b->table, &b->at, p[0], p[2], p[1], p[3], p[4], 1e-5F, s->N, s->I);
}

static void run_layernorm_backward(const bench *b, const subject *s, void *const *p)
{
    op_layernorm_backward(b->table, &b->at, p[0], p[5], p[6], p[1], p[2], p[3], p[4], s->N, s->I,
                          true, false);
}

static void run_rmsnorm_forward(const bench *b, const subject *s, void *const *p)
{
    op_rmsnorm_forward(b->table, &b->at, p[0], p[2], p[1], p[3], 1e-5F, s->N, s->I);
}

static void run_rmsnorm_backward(const bench *b, const subject *s, void *const *p)
{
    op_rmsnorm_backward(b->table, &b->at, p[0], p[5], p[1], p[2], p[3], p[4], s->N, s->I, true);
}

static void run_gelu_forward(const bench *b, const subject *s, void *const *p)
{
    op_gelu_forward(b->table, &b->at, p[0], p[1], s->N, false);
}

static void run_gelu_backward(const bench *b, const subject *s, void *const *p)
{
    op_gelu_backward(b->table, &b->at, p[0], p[1], p[2], s->N, false, false);
}

static void run_exact_gelu_forward(const bench *b, const subject *s, void *const *p)
{
    op_gelu_forward(b->table, &b->at, p[0], p[1], s->N, true);
}

static void run_exact_gelu_backward(const bench *b, const subject *s, void *const *p)
{
    op_gelu_backward(b->table, &b->at, p[0], p[1], p[2], s->N, true, false);
}

static void run_swiglu_forward(const bench *b, const subject *s, void *const *p)
{
    op_swiglu_forward(b->table, &b->at, p[0], p[1], s->N, s->I);
}

static void run_swiglu_backward(const bench *b, const subject *s, void *const *p)
{
    op_swiglu_backward(b->table, &b->at, p[0], p[1], p[2], s->N, s->I, false);
}

// A pair of a head turns as fast as any other.
static mics_rotary_spec rotary_of(const mics_heads heads)
{
    static const float frequencies[128] = {1};
    const int64_t most = 2 * (int64_t)(sizeof frequencies / sizeof *frequencies);
    const int64_t dims = heads.dim < most ? heads.dim / 2 * 2 : most;
    return (mics_rotary_spec){.dims = dims, .frequencies = frequencies, .scale = 1};
}

static void run_rotary_forward(const bench *b, const subject *s, void *const *p)
{
    const mics_heads heads = op_heads(b->H, s->I / b->H);
    const mics_rotary_spec spec = rotary_of(heads);
    op_rotary_forward(b->table, &b->at, p[0], p[1], s->N / b->T, b->T, heads, &spec);
}

static void run_rotary_backward(const bench *b, const subject *s, void *const *p)
{
    const mics_heads heads = op_heads(b->H, s->I / b->H);
    const mics_rotary_spec spec = rotary_of(heads);
    op_rotary_backward(b->table, &b->at, p[0], p[1], s->N / b->T, b->T, heads, &spec, false);
}

static void run_head_norm_forward(const bench *b, const subject *s, void *const *p)
{
    op_head_norm_forward(b->table, &b->at, p[0], p[2], p[1], p[3], p[3], 1e-6F, s->N,
                         op_heads(b->H, s->I / b->H));
}

static void run_head_norm_backward(const bench *b, const subject *s, void *const *p)
{
    void *const dweights[] = {p[5], p[6]};
    const void *const weights[] = {p[4], p[4]};
    op_head_norm_backward(b->table, &b->at, p[0], dweights, p[1], p[2], p[3], weights, s->N,
                          op_heads(b->H, s->I / b->H), false, false);
}

static void run_add(const bench *b, const subject *s, void *const *p)
{
    op_add(b->table, &b->at, p[0], p[1], p[2], s->N);
}

static void run_accumulate(const bench *b, const subject *s, void *const *p)
{
    b->table->accumulate(&b->at, p[0], p[1], s->N);
}

void run_linear_forward(const bench *b, const subject *s, void *const *p)
{
    op_linear_forward(b->table, &b->at, p[0], p[1], p[2], p[3], MICS_WEIGHT_IN_OUT, s->N, s->I,
                      s->O);
}

static void run_linear_backward(const bench *b, const subject *s, void *const *p)
{
    op_linear_backward(b->table, &b->at, p[1], p[4], p[5], p[0], p[2], p[3], MICS_WEIGHT_IN_OUT,
                       s->N, s->I, s->O, false, false);
}

static void run_linear_gelu_forward(const bench *b, const subject *s, void *const *p)
{
    op_linear_gelu_forward(b->table, &b->at, p[0], p[4], p[1], p[2], p[3], MICS_WEIGHT_IN_OUT, s->N,
                           s->I, s->O, false);
}

static void run_linear_gelu_backward(const bench *b, const subject *s, void *const *p)
{
    op_linear_gelu_backward(b->table, &b->at, p[1], p[4], p[5], p[0], p[2], p[6], p[3],
                            MICS_WEIGHT_IN_OUT, s->N, s->I, s->O, false, false);
}

static mics_op_call attention_call(const bench *b, const subject *s, void *const *p)
{
    mics_op_call call = {.at = &b->at,
                         .shape =
                             op_attention_shape(s->N / b->T, b->T, op_heads(b->H, s->I / b->H)),
                         .in = {p[2]},
                         .out = p[0],
                         .stats = p[1]};
    call.shape.library = b->library;
    return call;
}

static void run_attention_forward(const bench *b, const subject *s, void *const *p)
{
    const mics_op_call call = attention_call(b, s, p);
    op_forward(b->table, op_attention_of(call.shape.heads, (op_sight){0}, (op_dropout){0}), call);
}

static void run_attention_backward(const bench *b, const subject *s, void *const *p)
{
    mics_op_call call = attention_call(b, s, p);
    call.dout = p[4];
    call.din = p[3];
    op_backward(b->table, op_attention_of(call.shape.heads, (op_sight){0}, (op_dropout){0}), call);
}

static void run_lm_head_backward(const bench *b, const subject *s, void *const *p)
{
    op_lm_head_backward(b->table, &b->at, p[3], p[0], p[1], p[2], p[4], b->tokens, 1e-4F, s->N,
                        s->I, s->O, false, b->chunk_rows);
}

static void run_sum_losses(const bench *b, const subject *s, void *const *p)
{
    b->table->sum_losses(&b->at, p[1], p[0], s->N);
}

static void run_sum_squares(const bench *b, const subject *s, void *const *p)
{
    b->table->sum_squares(&b->at, p[1], p[0], s->N);
}

static void run_adamw(const bench *b, const subject *s, void *const *p)
{
    const op_adamw by = {1e-4F, 0.9F, 0.95F, 1e-8F, 0.1F, 1, 1.0F};
    op_adamw_update(b->table, &b->at, p[0], p[1], p[2], p[3], p[4], s->N, &by);
}

static void run_sum_blocks(const bench *b, const subject *s, void *const *p)
{
    b->table->sum_blocks(&b->at, p[0], p[1], p[2], (int32_t)s->O, s->N, s->N, true);
}

static void run_sum_blocks_rounded(const bench *b, const subject *s, void *const *p)
{
    b->table->sum_blocks_rounded(&b->at, p[0], p[1], p[2], (int32_t)s->O, s->N, s->N);
}

static void run_round(const bench *b, const subject *s, void *const *p)
{
    b->table->round(&b->at, p[0], p[1], s->N);
}

// ---- subjects ----

// What moves memory: a row's tensors, and shards.
static int list_movers(const bench *b, subject *out)
{
    const int64_t N = b->N, C = b->C, T = b->T, V = b->V, S = b->shard;
    const int64_t s = (int64_t)mics_dtype_bytes(b->dtype), NC = N * C * s, wide = 4 * NC;
    const int64_t rows = N < V ? N : V; // of the table, at most, that tokens name
    const subject list[] = {
        {"embedding_forward",
         b->dtype,
         (double)(NC + rows * C * s + T * C * s),
         0,
         {NC, V * C * s, T * C * s},
         N,
         C,
         0,
         run_embedding_forward},
        {"embedding_backward",
         b->dtype,
         (double)(2 * NC + 2 * rows * C * s + T * C * s),
         0,
         {NC, V * C * s, T * C * s},
         N,
         C,
         0,
         run_embedding_backward},
        {"layernorm_forward",
         b->dtype,
         (double)(2 * NC + 8 * N),
         0,
         {NC, NC, 8 * N, C * s, C * s},
         N,
         C,
         0,
         run_layernorm_forward},
        {"layernorm_backward",
         b->dtype,
         (double)(4 * NC + 8 * N),
         0,
         {NC, NC, NC, 8 * N, C * s, C * s, C * s},
         N,
         C,
         0,
         run_layernorm_backward},
        {"rmsnorm_forward",
         b->dtype,
         (double)(2 * NC + 4 * N),
         0,
         {NC, NC, 4 * N, C * s},
         N,
         C,
         0,
         run_rmsnorm_forward},
        {"rmsnorm_backward",
         b->dtype,
         (double)(4 * NC + 4 * N),
         0,
         {NC, NC, NC, 4 * N, C * s, C * s},
         N,
         C,
         0,
         run_rmsnorm_backward},
        {"gelu_forward",
         b->dtype,
         (double)(2 * wide),
         0,
         {wide, wide},
         4 * N * C,
         0,
         0,
         run_gelu_forward},
        {"gelu_backward",
         b->dtype,
         (double)(3 * wide),
         0,
         {wide, wide, wide},
         4 * N * C,
         0,
         0,
         run_gelu_backward},
        {"add", b->dtype, (double)(3 * NC), 0, {NC, NC, NC}, N * C, 0, 0, run_add},
        {"accumulate", b->dtype, (double)(3 * NC), 0, {NC, NC}, N * C, 0, 0, run_accumulate},
        {"sum_losses", b->dtype, (double)(4 * N), 0, {4 * N, 8}, N, 0, 0, run_sum_losses},
        {"sum_squares", b->dtype, (double)(4 * S), 0, {4 * S, 8}, S, 0, 0, run_sum_squares},
        {"adamw_update",
         b->dtype,
         (double)((28 + s) * S),
         0,
         {s * S, 4 * S, 4 * S, 4 * S, 4 * S},
         S,
         0,
         0,
         run_adamw},
        {"sum_blocks",
         b->dtype,
         (double)((8 + 4 * s) * S),
         0,
         {4 * S, s * S, 3 * s * S},
         S,
         0,
         3,
         run_sum_blocks},
        {"sum_blocks_rounded",
         b->dtype,
         (double)(5 * s * S),
         0,
         {s * S, s * S, 3 * s * S},
         S,
         0,
         3,
         run_sum_blocks_rounded},
        {"round", b->dtype, (double)((4 + s) * S), 0, {s * S, 4 * S}, S, 0, 0, run_round},
        {"widen", b->dtype, (double)((4 + s) * S), 0, {4 * S, s * S}, S, 0, 0, run_copy},
    };
    memcpy(out, list, sizeof list);
    return (int)(sizeof list / sizeof *list);
}

// The same of ops that only other decoders have: heads of q, k and v, gate and up.
static int list_decoder_movers(const bench *b, subject *out)
{
    const int64_t N = b->N, C = b->C, D = C / b->H, s = (int64_t)mics_dtype_bytes(b->dtype);
    const int64_t qkv = 3 * N * C * s, wide = 4 * N * C * s, scales = 2 * N * b->H * 4;
    const subject list[] = {
        {"exact_gelu_forward",
         b->dtype,
         (double)(2 * wide),
         0,
         {wide, wide},
         4 * N * C,
         0,
         0,
         run_exact_gelu_forward},
        {"exact_gelu_backward",
         b->dtype,
         (double)(3 * wide),
         0,
         {wide, wide, wide},
         4 * N * C,
         0,
         0,
         run_exact_gelu_backward},
        {"swiglu_forward",
         b->dtype,
         1.5 * (double)wide,
         0,
         {wide / 2, wide},
         N,
         2 * C,
         0,
         run_swiglu_forward},
        {"swiglu_backward",
         b->dtype,
         2.5 * (double)wide,
         0,
         {wide, wide / 2, wide},
         N,
         2 * C,
         0,
         run_swiglu_backward},
        {"rotary_forward", b->dtype, (double)(2 * qkv), 0, {qkv, qkv}, N, C, 0, run_rotary_forward},
        {"rotary_backward",
         b->dtype,
         (double)(2 * qkv),
         0,
         {qkv, qkv},
         N,
         C,
         0,
         run_rotary_backward},
        {"head_norm_forward",
         b->dtype,
         (double)(2 * qkv + scales),
         0,
         {qkv, qkv, scales, D * s},
         N,
         C,
         0,
         run_head_norm_forward},
        {"head_norm_backward",
         b->dtype,
         (double)(3 * qkv + scales),
         0,
         {qkv, qkv, qkv, scales, D * s, D * s, D * s},
         N,
         C,
         0,
         run_head_norm_backward},
    };
    memcpy(out, list, sizeof list);
    return (int)(sizeof list / sizeof *list);
}

// A GEMM of N rows, I to O, forward and backward; bytes are each tensor once.
static int list_linear(const bench *b, int64_t I, int64_t O, subject *out)
{
    const int64_t N = b->N, s = (int64_t)mics_dtype_bytes(b->dtype);
    const int64_t x = N * I * s, y = N * O * s, w = I * O * s, bias = O * s;
    const double flops = 2.0 * (double)N * (double)I * (double)O;
    const subject list[] = {
        {"linear_forward",
         b->dtype,
         (double)(x + y + w),
         flops,
         {y, x, w, bias},
         N,
         I,
         O,
         run_linear_forward},
        {"linear_backward",
         b->dtype,
         (double)(2 * x + y + 2 * w),
         2 * flops,
         {y, x, x, w, w, bias},
         N,
         I,
         O,
         run_linear_backward},
    };
    memcpy(out, list, sizeof list);
    return (int)(sizeof list / sizeof *list);
}

// The two GEMMs about a gelu.
static int list_gelu_products(const bench *b, subject *out)
{
    const mics_op_pair *pair = b->table->ops[MICS_OP_LINEAR]->pairs;
    while (pair != NULL && pair->forward != NULL && pair->next != MICS_OP_GELU)
        pair++;
    const bool has_gelu_pair = pair != NULL && pair->forward != NULL;
    const int64_t N = b->N, C = b->C, s = (int64_t)mics_dtype_bytes(b->dtype);
    const int64_t x = N * C * s, wide = 4 * x, w = 4 * C * C * s, bias = 4 * C * s;
    const double flops = 8.0 * (double)N * (double)C * (double)C;
    int count = 0;
    if (has_gelu_pair)
        out[count++] = (subject){"linear_gelu_forward",
                                 b->dtype,
                                 (double)(x + 2 * wide + w),
                                 flops,
                                 {wide, x, w, bias, wide},
                                 N,
                                 C,
                                 4 * C,
                                 run_linear_gelu_forward};
    if (has_gelu_pair)
        out[count++] = (subject){"linear_gelu_backward",
                                 b->dtype,
                                 (double)(x + 3 * wide + 2 * w),
                                 2 * flops,
                                 {x, wide, wide, w, w, bias, wide},
                                 N,
                                 4 * C,
                                 C,
                                 run_linear_gelu_backward};
    return count;
}

// What multiplies: GEMMs, attention (half of the T x T scores: it is causal), the LM head.
static int list_multipliers(const bench *b, subject *out)
{
    const int64_t N = b->N, C = b->C, V = b->V, s = (int64_t)mics_dtype_bytes(b->dtype);
    const int64_t x = N * C * s, lse = N * b->H * 4;
    const double scores = 2.0 * (double)N * (double)b->T * (double)C; // two products, causal
    const double words = 2.0 * (double)N * (double)C * (double)V;
    const subject list[] = {
        {"attention_forward",
         b->dtype,
         (double)(4 * x + lse),
         scores,
         {x, lse, 3 * x},
         N,
         C,
         0,
         run_attention_forward},
        {"attention_backward",
         b->dtype,
         (double)(8 * x + lse),
         2.5 * scores,
         {x, lse, 3 * x, 3 * x, x},
         N,
         C,
         0,
         run_attention_backward},
        {"lm_head_backward",
         b->dtype,
         (double)(2 * x + 2 * V * C * s + 4 * N * V * s),
         3 * words,
         {x, V * C * s, x, 4 * N, V * C * s},
         N,
         C,
         V,
         run_lm_head_backward},
    };
    memcpy(out, list, sizeof list);
    int count = (int)(sizeof list / sizeof *list);
    count += list_linear(b, C, 3 * C, out + count);
    count += list_linear(b, C, C, out + count);
    count += list_linear(b, C, 4 * C, out + count);
    count += list_linear(b, 4 * C, C, out + count);
    return count + list_gelu_products(b, out + count);
}

int subjects_list(const bench *b, subject *subjects_out)
{
    int count = list_movers(b, subjects_out);
    count += list_decoder_movers(b, subjects_out + count);
    count += list_multipliers(b, subjects_out + count);
    return count + subjects_list_experts(b, subjects_out + count);
}

// ---- what buffers hold before ----

static const subject_content contents[] = {
    {run_layernorm_forward, "xxfxx", NULL},
    {run_layernorm_backward, "xxx+xxx", NULL},
    {run_rmsnorm_forward, "xxfx", NULL},
    {run_rmsnorm_backward, "xxx+xx", NULL},
    {run_head_norm_forward, "xxfx", NULL},
    {run_head_norm_backward, "xxx+xxx", NULL},
    {run_sum_losses, "f0", NULL},
    {run_sum_squares, "f0", NULL},
    {run_adamw, "xff+f", NULL},
    {run_sum_blocks, "fxx", NULL},
    {run_round, "xf", NULL},
    {run_attention_forward, "xfx", NULL},
    // exp(score - lse) of a random lse would be no probability.
    {run_attention_backward, "xfxxx", run_attention_forward},
    {run_lm_head_backward, "xxxfx", NULL},
};

subject_content subject_content_of(const subject *s)
{
    for (size_t i = 0; i < sizeof contents / sizeof *contents; ++i)
        if (contents[i].run == s->run)
            return contents[i];
    return subject_content_of_experts(s);
}
