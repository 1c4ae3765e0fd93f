// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Times every CPU kernel at the shapes of one GPT-2 training step, each beside the matrix library
// alone on the same products; and those that only other decoders have, at a Llama's shapes of that
// size.
//
// Shapes: N = B * T rows, C channels, H heads, D = C / H, V vocabulary; see mics/kernels.h.
#include "op_speed.h"
#include "base/clock.h"
#include "base/rng.h"
#include "base/shares.h"
#include "op_calls.h"
#include "ops/attention/def.h"
#include "ops/gemm/def.h"
#include "ops/kernels.h"
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

// ---- the kernels ----

static void embedding_forward(const bench *s)
{
    op_embedding_forward(s->k, &s->at, s->a, s->tokens, s->big[0], s->big[1], s->N, s->T, s->C);
}

static void embedding_backward(const bench *s)
{
    op_embedding_backward(s->k, &s->at, s->big[0], s->big[1], s->a, s->tokens, NULL, s->N, s->T,
                          s->C, s->V, s->T, true, false);
}

static void layernorm_forward(const bench *s)
{
    op_layernorm_forward(s->k, &s->at, s->b, s->stats, s->a, s->big[0], s->big[1], 1e-5F, s->N,
                         s->C);
}

static void layernorm_backward(const bench *s)
{
    op_layernorm_backward(s->k, &s->at, s->c, s->big[1], s->big[2], s->b, s->a, s->stats, s->big[0],
                          s->N, s->C, true, true);
}

static void linear_forward(const bench *s, int64_t I, int64_t O)
{
    op_linear_forward(s->k, &s->at, s->b, s->a, s->big[0], s->big[1], MICS_WEIGHT_IN_OUT, s->N, I,
                      O);
}

static void linear_backward(const bench *s, int64_t I, int64_t O)
{
    op_linear_backward(s->k, &s->at, s->c, s->big[1], s->big[2], s->b, s->a, s->big[0],
                       MICS_WEIGHT_IN_OUT, s->N, I, O, false, true);
}

static void library_forward(const bench *s, int64_t I, int64_t O)
{
    mics_gemm(false, false, s->N, O, I, 1.0F, s->a, I, s->big[0], O, 0.0F, s->b, O);
}

static void library_backward(const bench *s, int64_t I, int64_t O)
{
    mics_gemm(false, true, s->N, I, O, 1.0F, s->b, O, s->big[0], O, 0.0F, s->c, I);
    mics_gemm(true, false, I, O, s->N, 1.0F, s->a, I, s->b, O, 1.0F, s->big[1], O);
}

// The four products of a layer: (I, O) in units of C.
#define LINEAR(name, in, out)                                                                      \
    static void name##_forward(const bench *s)                                                     \
    {                                                                                              \
        linear_forward(s, (in)*s->C, (out)*s->C);                                                  \
    }                                                                                              \
    static void name##_backward(const bench *s)                                                    \
    {                                                                                              \
        linear_backward(s, (in)*s->C, (out)*s->C);                                                 \
    }                                                                                              \
    static void name##_forward_library(const bench *s)                                             \
    {                                                                                              \
        library_forward(s, (in)*s->C, (out)*s->C);                                                 \
    }                                                                                              \
    static void name##_backward_library(const bench *s)                                            \
    {                                                                                              \
        library_backward(s, (in)*s->C, (out)*s->C);                                                \
    }
LINEAR(qkv, 1, 3)
LINEAR(projection, 1, 1)
LINEAR(widen, 1, 4)
LINEAR(narrow, 4, 1)

static void gelu_forward(const bench *s)
{
    op_gelu_forward(s->k, &s->at, s->b, s->a, s->N * 4 * s->C, false);
}

static void gelu_backward(const bench *s)
{
    op_gelu_backward(s->k, &s->at, s->b, s->b, s->a, s->N * 4 * s->C, false, false);
}

static void attention_forward(const bench *s)
{
    op_attention_forward(s->k, &s->at, s->b, s->stats, s->a, s->B, s->T, op_heads(s->H, s->D),
                         (op_sight){0}, (op_dropout){0});
}

static void attention_backward(const bench *s)
{
    op_attention_backward(s->k, &s->at, s->wide, s->c, s->b, s->stats, s->a, s->B, s->T,
                          op_heads(s->H, s->D), (op_sight){0}, (op_dropout){0});
}

static void attention_decode(const bench *s)
{
    const mics_heads heads = op_heads(s->H, s->D);
    const mics_op op = {.kind = MICS_OP_ATTENTION, .heads = heads};
    mics_shares shares = {0};
    const mics_op_call call = {.at = &s->at,
                               .shape = {.op = &op, .B = 1, .T = 1, .out = s->C, .heads = heads},
                               .in = {s->c},
                               .out = s->b,
                               .cache = s->wide, // its first half
                               .shares = &shares,
                               .position = s->N - 1,
                               .capacity = s->N};
    s->k->ops[op.kind]->decode(&call);
}

// ---- dropout ----

static const mics_dropout_draw draw = {.key = {1, 2}};
static const op_dropout tenth = {0.1F, 0, &draw};

static void dropped_attention_forward(const bench *s)
{
    op_attention_forward(s->k, &s->at, s->b, s->stats, s->a, s->B, s->T, op_heads(s->H, s->D),
                         (op_sight){0}, tenth);
}

static void dropped_attention_backward(const bench *s)
{
    op_attention_backward(s->k, &s->at, s->wide, s->c, s->b, s->stats, s->a, s->B, s->T,
                          op_heads(s->H, s->D), (op_sight){0}, tenth);
}

static void dropout_forward(const bench *s)
{
    op_dropout_forward(s->k, &s->at, s->b, s->a, s->B, s->T, s->C, tenth);
}

static void dropout_backward(const bench *s)
{
    op_dropout_backward(s->k, &s->at, s->b, s->b, s->B, s->T, s->C, tenth, false);
}

// ---- of other decoders ----

// A third of the key-value heads; gate and up as wide together as GPT-2's inner.
static mics_heads shared_heads(const bench *s)
{
    const int64_t K = s->H % 3 == 0 ? s->H / 3 : s->H;
    return (mics_heads){s->H, K, s->D};
}

static void shared_attention_forward(const bench *s)
{
    op_attention_forward(s->k, &s->at, s->b, s->stats, s->a, s->B, s->T, shared_heads(s),
                         (op_sight){0}, (op_dropout){0});
}

static void shared_attention_backward(const bench *s)
{
    op_attention_backward(s->k, &s->at, s->wide, s->c, s->b, s->stats, s->a, s->B, s->T,
                          shared_heads(s), (op_sight){0}, (op_dropout){0});
}

static void window_attention_forward(const bench *s)
{
    op_attention_forward(s->k, &s->at, s->b, s->stats, s->a, s->B, s->T, shared_heads(s),
                         (op_sight){.window = s->T / 4}, (op_dropout){0});
}

static void window_attention_backward(const bench *s)
{
    op_attention_backward(s->k, &s->at, s->wide, s->c, s->b, s->stats, s->a, s->B, s->T,
                          shared_heads(s), (op_sight){.window = s->T / 4}, (op_dropout){0});
}

static void rotary_forward(const bench *s)
{
    const mics_rotary_spec spec = {.dims = s->D / 2 * 2, .frequencies = s->big[0], .scale = 1};
    op_rotary_forward(s->k, &s->at, s->b, s->a, s->B, s->T, shared_heads(s), &spec);
}

static void rotary_backward(const bench *s)
{
    const mics_rotary_spec spec = {.dims = s->D / 2 * 2, .frequencies = s->big[0], .scale = 1};
    op_rotary_backward(s->k, &s->at, s->b, s->b, s->B, s->T, shared_heads(s), &spec, false);
}

static void head_norm_forward(const bench *s)
{
    op_head_norm_forward(s->k, &s->at, s->b, s->stats, s->a, s->big[0], s->big[0], 1e-6F, s->N,
                         shared_heads(s));
}

static void head_norm_backward(const bench *s)
{
    void *const dweights[] = {s->big[1], s->big[2]};
    const void *const weights[] = {s->big[0], s->big[0]};
    op_head_norm_backward(s->k, &s->at, s->b, dweights, s->b, s->a, s->stats, weights, s->N,
                          shared_heads(s), false, true);
}

static void rmsnorm_forward(const bench *s)
{
    op_rmsnorm_forward(s->k, &s->at, s->b, s->stats, s->a, s->big[0], 1e-6F, s->N, s->C);
}

static void rmsnorm_backward(const bench *s)
{
    op_rmsnorm_backward(s->k, &s->at, s->c, s->big[1], s->b, s->a, s->stats, s->big[0], s->N, s->C,
                        true);
}

static void swiglu_forward(const bench *s)
{
    op_swiglu_forward(s->k, &s->at, s->b, s->a, s->N, 2 * s->C);
}

static void swiglu_backward(const bench *s)
{
    op_swiglu_backward(s->k, &s->at, s->b, s->c, s->a, s->N, 2 * s->C, false);
}

static void exact_gelu_forward(const bench *s)
{
    op_gelu_forward(s->k, &s->at, s->b, s->a, s->N * 4 * s->C, true);
}

static void exact_gelu_backward(const bench *s)
{
    op_gelu_backward(s->k, &s->at, s->b, s->b, s->a, s->N * 4 * s->C, true, false);
}

// ---- of all ----

static void residual(const bench *s)
{
    op_add(s->k, &s->at, s->c, s->a, s->b, s->N * s->C);
}

static void lm_head_forward(const bench *s)
{
    op_lm_head_forward(s->k, &s->at, s->loss, s->a, s->big[0], s->tokens, s->N, s->C, s->V,
                       s->rows);
}

static void lm_head_backward(const bench *s)
{
    op_lm_head_backward(s->k, &s->at, s->loss, s->c, s->big[1], s->a, s->big[0], s->tokens, 1e-3F,
                        s->N, s->C, s->V, true, s->rows);
}

static void logits_library(const bench *s)
{
    for (int64_t n = 0; n < s->N; n += s->rows) {
        int64_t R = s->N - n < s->rows ? s->N - n : s->rows;
        mics_gemm(false, true, R, s->V, s->C, 1.0F, s->a, s->C, s->big[0], s->C, 0.0F, s->workspace,
                  s->V);
    }
}

static void lm_head_library(const bench *s)
{
    for (int64_t n = 0; n < s->N; n += s->rows) {
        int64_t R = s->N - n < s->rows ? s->N - n : s->rows;
        mics_gemm(false, true, R, s->V, s->C, 1.0F, s->a, s->C, s->big[0], s->C, 0.0F, s->workspace,
                  s->V);
        mics_gemm(false, false, R, s->C, s->V, 1.0F, s->workspace, s->V, s->big[0], s->C, 0.0F,
                  s->c, s->C);
        mics_gemm(true, false, s->V, s->C, R, 1.0F, s->workspace, s->V, s->a, s->C, 1.0F, s->big[1],
                  s->C);
    }
}

static void adamw(const bench *s)
{
    const op_adamw settings = {
        .lr = 1e-9F, .beta1 = 0.9F, .beta2 = 0.95F, .eps = 1e-8F, .step = 1, .grad_scale = 1.0F};
    op_adamw_update(s->k, &s->at, s->bf16 ? s->packed : NULL, s->big[0], s->big[1], s->big[2],
                    s->big[3], s->V * s->C, &settings);
}

static void sum_squares(const bench *s)
{
    double sum = 0;
    s->k->sum_squares(&s->at, &sum, s->big[0], s->V * s->C);
    s->loss[0] = (float)sum;
}

static void accumulate(const bench *s)
{
    s->k->accumulate(&s->at, s->big[1], s->big[0], s->V * s->C);
}

static void copy(const bench *s)
{
    const int64_t C = s->C;
#pragma omp parallel for
    for (int64_t v = 0; v < s->V; ++v)
        memcpy(s->big[1] + v * C, s->big[0] + v * C, (size_t)C * sizeof(float));
}

// ---- measuring ----

// Microseconds of processor time of this thread.
static double processor_us(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec * 1e6 + (double)now.tv_nsec * 1e-3;
}

// Fastest of the runs that fit into the time, in milliseconds: others share the machine.
static double time_ms(const bench *s, bench_fn run)
{
    double (*const clock_us)(void) = s->processor ? processor_us : mics_clock_us;
    double best = 1e30, start = clock_us();
    run(s);
    do {
        const double before = clock_us();
        run(s);
        const double took = clock_us() - before;
        best = took < best ? took : best;
    } while (clock_us() - start < s->seconds * 1e6);
    return best * 1e-3;
}

void row(const bench *s, totals *t, const char *name, double calls, bench_fn run, bench_fn library,
         double flops, double bytes)
{
    const double ms = time_ms(s, run), library_ms = library ? time_ms(s, library) : 0;
    printf("%-20s %6.1f %10.3f %10.1f", name, calls, ms, ms * calls);
    if (flops > 0)
        printf(" %9.0f", flops / ms * 1e-6);
    else
        printf(" %9s", "");
    printf(" %8.1f", bytes / ms * 1e-6);
    if (library)
        printf(" %11.3f %8.0f%%", library_ms, 100 * library_ms / ms);
    printf("\n");
    fflush(stdout);
    t->kernels_ms += ms * calls;
    t->products_ms += library ? ms * calls : 0;
    t->library_ms += library_ms * calls;
}

static void linear_rows(const bench *s, totals *t, const char *name, int64_t I, int64_t O,
                        const bench_fn run[4])
{
    char text[64];
    const double N = (double)s->N, in = (double)I, out = (double)O, L = (double)s->layers;
    const double flops = 2 * N * in * out, bytes = 4 * (N * in + N * out + in * out);
    snprintf(text, sizeof text, "%s forward", name);
    row(s, t, text, L, run[0], run[1], flops, bytes);
    snprintf(text, sizeof text, "%s backward", name);
    row(s, t, text, L, run[2], run[3], 2 * flops, 2 * bytes);
}

static void layer_rows(const bench *s, totals *t)
{
    const double L = (double)s->layers, NC = (double)(s->N * s->C);
    const double row_bytes = (s->bf16 ? 2 : 4) * NC;
    const int64_t C = s->C;
    // Products of the scores at or below the diagonal: two forward, five backward.
    const double product = NC * (double)(s->T + 1);
    row(s, t, "layernorm forward", 2 * L + 1, layernorm_forward, NULL, 0, 2 * row_bytes);
    row(s, t, "layernorm backward", 2 * L + 1, layernorm_backward, NULL, 0, 4 * row_bytes);
    linear_rows(s, t, "qkv", C, 3 * C,
                (bench_fn[]){qkv_forward, qkv_forward_library, qkv_backward, qkv_backward_library});
    row(s, t, "attention forward", L, attention_forward, NULL, 2 * product, 4 * row_bytes);
    row(s, t, "attention backward", L, attention_backward, NULL, 5 * product, 8 * row_bytes);
    row(s, t, "attn. dropout forward", 0, dropped_attention_forward, NULL, 2 * product,
        4 * row_bytes);
    row(s, t, "attn. dropout backward", 0, dropped_attention_backward, NULL, 5 * product,
        8 * row_bytes);
    row(s, t, "dropout forward", 0, dropout_forward, NULL, 0, 2 * row_bytes);
    row(s, t, "dropout backward", 0, dropout_backward, NULL, 0, 2 * row_bytes);
    if (!s->bf16)
        row(s, t, "attention decode", 0, attention_decode, NULL, 0, 2 * row_bytes);
    linear_rows(s, t, "projection", C, C,
                (bench_fn[]){projection_forward, projection_forward_library, projection_backward,
                             projection_backward_library});
    row(s, t, "residual", 2 * L, residual, NULL, 0, 3 * row_bytes);
    linear_rows(
        s, t, "widen", C, 4 * C,
        (bench_fn[]){widen_forward, widen_forward_library, widen_backward, widen_backward_library});
    row(s, t, "gelu forward", L, gelu_forward, NULL, 0, 8 * row_bytes);
    row(s, t, "gelu backward", L, gelu_backward, NULL, 0, 12 * row_bytes);
    linear_rows(s, t, "narrow", 4 * C, C,
                (bench_fn[]){narrow_forward, narrow_forward_library, narrow_backward,
                             narrow_backward_library});
}

// Shown, not counted.
static void decoder_rows(const bench *s, totals *t)
{
    const mics_heads heads = shared_heads(s);
    const double N = (double)s->N, NC = N * (double)s->C, T = (double)s->T;
    const double W = 4 * N * (double)mics_heads_width(heads);
    const double product = NC * (T + 1), window = (double)(s->T / 4);
    const double within = NC * window * (2 * T - window + 1) / T;
    row(s, t, "grouped forward", 0, shared_attention_forward, NULL, 2 * product, W + 4 * NC);
    row(s, t, "grouped backward", 0, shared_attention_backward, NULL, 5 * product, 2 * W + 8 * NC);
    row(s, t, "window forward", 0, window_attention_forward, NULL, 2 * within, W + 4 * NC);
    row(s, t, "window backward", 0, window_attention_backward, NULL, 5 * within, 2 * W + 8 * NC);
    row(s, t, "rotary forward", 0, rotary_forward, NULL, 0, 2 * W);
    row(s, t, "rotary backward", 0, rotary_backward, NULL, 0, 2 * W);
    row(s, t, "head norm forward", 0, head_norm_forward, NULL, 0, 2 * W);
    row(s, t, "head norm backward", 0, head_norm_backward, NULL, 0, 3 * W);
    row(s, t, "rmsnorm forward", 0, rmsnorm_forward, NULL, 0, 8 * NC);
    row(s, t, "rmsnorm backward", 0, rmsnorm_backward, NULL, 0, 16 * NC);
    row(s, t, "swiglu forward", 0, swiglu_forward, NULL, 0, 24 * NC);
    row(s, t, "swiglu backward", 0, swiglu_backward, NULL, 0, 40 * NC);
    row(s, t, "exact gelu forward", 0, exact_gelu_forward, NULL, 0, 32 * NC);
    row(s, t, "exact gelu backward", 0, exact_gelu_backward, NULL, 0, 48 * NC);
}

static void all_rows(const bench *s, totals *t)
{
    const double VC = (double)(s->V * s->C), NC = (double)(s->N * s->C);
    const double params = VC + (double)s->layers * 12 * (double)(s->C * s->C);
    const double flops = 2 * NC * (double)s->V, chunks = (double)(s->N / s->rows);
    row(s, t, "copy (memory)", 0, copy, NULL, 0, 8 * VC);
    row(s, t, "embedding forward", 1, embedding_forward, NULL, 0, 8 * NC);
    row(s, t, "embedding backward", 1, embedding_backward, NULL, 0, 12 * NC);
    layer_rows(s, t);
    row(s, t, "lm_head forward", 0, lm_head_forward, logits_library, flops, 4 * VC * chunks);
    row(s, t, "lm_head backward", 1, lm_head_backward, lm_head_library, 3 * flops,
        16 * VC * chunks);
    row(s, t, "adamw", params / VC, adamw, NULL, 0, 28 * VC);
    row(s, t, "sum of squares", params / VC, sum_squares, NULL, 0, 4 * VC);
    row(s, t, "accumulate", 0, accumulate, NULL, 0, 12 * VC);
    decoder_rows(s, t);
    comm_dtype_rows(s, t);
}

// ---- program ----

static void *block(int64_t elems)
{
    void *memory = aligned_alloc(64, ((size_t)elems * sizeof(float) + 63) / 64 * 64);
    if (!memory) {
        fprintf(stderr, "op_speed: not enough memory\n");
        exit(1);
    }
    return memory;
}

// Two bf16 numbers are read as one fp32 number by what stays fp32, which is of much the same size.
static float *random_block(const bench *s, int64_t elems, double scale)
{
    enum { PERIOD = 65537 }; // one period of random numbers is random enough here
    float *data = block(elems);
    for (int64_t i = 0; i < elems; ++i)
        data[i] =
            i < PERIOD ? (float)(scale * mics_rng_normal(1, 2, (uint64_t)i)) : data[i % PERIOD];
    if (s->bf16)
        s->k->round(&s->at, data, data, elems);
    if (s->bf16)
        memcpy((uint16_t *)(void *)data + elems, data, (size_t)elems * sizeof(uint16_t));
    return data;
}

static void prepare(bench *s)
{
    s->N = s->B * s->T;
    s->D = s->C / s->H;
    for (int i = 0; i < 4; ++i)
        s->big[i] = random_block(s, s->V * s->C, i == 2 ? 0.0 : 0.02);
    s->a = random_block(s, s->N * 4 * s->C, 1.0);
    s->b = random_block(s, s->N * 4 * s->C, 1.0);
    s->c = random_block(s, s->N * 4 * s->C, 1.0);
    s->wide = random_block(s, s->N * 4 * s->C, 1.0);
    s->packed = block((s->V * s->C + 1) / 2);
    memset(s->packed, 0, (size_t)(s->V * s->C) * sizeof(uint16_t));
    s->stats = random_block(s, s->N * (2 * s->H + 2), 1.0);
    s->loss = block(s->N);
    int64_t space = s->rows * (s->V + 32), other = mics_attention_workspace_bf16(s->T, 1, s->D);
    if (s->bf16)
        space += (s->rows < s->N ? s->V * s->C : 0) + mics_gemm_floats_bf16(s->V, s->V, s->V);
    space = space > s->threads * other ? space : s->threads * other;
    other = s->H * s->N > 64 * s->C ? s->H * s->N : 64 * s->C;
    s->workspace = block(space > other ? space : other);
    s->at = op_exec(s->threads, s->workspace);
    s->tokens = block(s->N);
    for (int64_t n = 0; n < s->N; ++n)
        s->tokens[n] = (int32_t)(mics_rng_bits(3, 4, (uint64_t)n) % (uint64_t)s->V);
    mics_op_set_threads(s->threads);
}

static void usage(FILE *to)
{
    fprintf(to,
            "usage: op_speed [--isa NAME] [--threads N] [--batch B] [--sequence T] [--rows R]\n"
            "                [--seconds S] [--bf16] [--processor-time]\n"
            "Times every CPU kernel at the shapes of a training step of GPT-2 124M.\n"
            "  --isa       avx512, avx2 or generic (default: the best that runs here)\n"
            "  --threads   threads of a kernel (default 2)\n"
            "  --batch, --sequence   tokens of a step (default 4 x 256)\n"
            "  --rows      rows of logits at a time (default 256, in bf16 all)\n"
            "  --seconds   time for each kernel (default 0.3)\n"
            "  --bf16      kernels in bf16, beside the matrix library's products in fp32\n"
            "  --processor-time   one thread, its processor time: for a machine that is busy\n");
}

static bool parse(int argc, char **argv, bench *s)
{
    static const struct option options[] = {
        {"isa", required_argument, NULL, 'i'},   {"threads", required_argument, NULL, 't'},
        {"batch", required_argument, NULL, 'b'}, {"sequence", required_argument, NULL, 's'},
        {"rows", required_argument, NULL, 'r'},  {"seconds", required_argument, NULL, 'd'},
        {"bf16", no_argument, NULL, 'f'},        {"processor-time", no_argument, NULL, 'p'},
        {"help", no_argument, NULL, 'h'},        {NULL, 0, NULL, 0}};
    const char *isa = NULL;
    for (int option; (option = getopt_long(argc, argv, "", options, NULL)) != -1;) {
        const char *value = optarg ? optarg : "";
        switch (option) {
        case 'i':
            isa = value;
            break;
        case 't':
            s->threads = atoi(value);
            break;
        case 'b':
            s->B = atoi(value);
            break;
        case 's':
            s->T = atoi(value);
            break;
        case 'r':
            s->rows = atoi(value);
            break;
        case 'd':
            s->seconds = atof(value);
            break;
        case 'f':
            s->bf16 = true;
            break;
        case 'p':
            s->processor = true;
            break;
        case 'h':
            usage(stdout);
            exit(0);
        default:
            return false;
        }
    }
    s->threads = s->processor ? 1 : s->threads;
    s->k = mics_kernels_get(isa);
    if (s->k && s->bf16)
        s->k = s->k->bf16;
    if (s->rows == 0)
        s->rows = s->bf16 ? s->B * s->T : 256;
    return s->k && s->threads >= 1 && s->B >= 1 && s->T >= 1 && s->rows >= 1 && optind == argc;
}

int main(int argc, char **argv)
{
    bench s = {.B = 4, .T = 256, .C = 768, .H = 12, .V = 50257, .layers = 12};
    s.threads = 2;
    s.seconds = 0.3;
    if (!parse(argc, argv, &s)) {
        usage(stderr);
        return 2;
    }
    prepare(&s);
    printf("kernels %s, %s, %d threads, batch %d x %d\n", s.k->name, mics_gemm_library(),
           (int)s.threads, (int)s.B, (int)s.T);
    printf("%-20s %6s %10s %10s %9s %8s %11s %9s\n", "kernel", "a step", "ms a call", "ms a step",
           "GFLOP/s", "GB/s", "library ms", "of kernel");
    totals t = {0, 0, 0};
    all_rows(&s, &t);
    printf(
        "a step: kernels %.0f ms, of it %.0f ms outside products; library alone %.0f ms, %.1f %% "
        "of all\n",
        t.kernels_ms, t.kernels_ms - t.products_ms, t.library_ms,
        100 * t.library_ms / t.kernels_ms);
    return 0;
}
