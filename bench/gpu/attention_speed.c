// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Times causal attention on our kernels and on cuDNN's, forward and backward, over head dimensions
// and lengths, and says how far the results of the two lie apart. It is what the choice between
// them is to be made by (mics_cuda_attention_choose).
//
//   gpu_attention_speed [--dtype bf16|fp16] [--tiny]
//
// One line a shape: the median of microseconds with the least and the most (samples.h), and TFLOP/s of
// the causal half (forward 2 B H T^2 D, backward 5 B H T^2 D), on random numbers. It is arithmetic that
// limits all of them. --tiny: sizes for an emulated GPU, to see that it runs.
#include "mics/kernels.h"
#include "op_calls.h"
#include "ops/attention/attention_cuda.h"
#include "random_data.h"
#include "samples.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef void (*choose_fn)(mics_device *device, mics_cuda_attention_way way);
typedef const char *(*why_not_fn)(const mics_op_place *at, const mics_cuda_attention *a);

typedef struct bench {
    mics_device *device;
    const mics_kernels *table;
    choose_fn choose;
    why_not_fn why_not;
    mics_op_place at;
    random_source random;
    bool tiny;
} bench;

// Buffers of one shape on the device.
typedef struct shape {
    int64_t B, T, H, D;
    void *qkv, *y, *dy, *dqkv;
    float *lse;
    void *all[5];
} shape;

typedef struct result {
    samples forward, backward;
    uint16_t *dqkv; // on the host
} result;

// ---- buffers ----

static bool device_block(const bench *b, size_t bytes, void **block_out)
{
    return b->device->ops->alloc(b->device->ctx, bytes, block_out) == MICS_OK;
}

static bool shape_open(bench *b, shape *s)
{
    const int64_t rows = s->B * s->T * s->H;
    const size_t y_bytes = (size_t)(rows * s->D) * 2;
    const size_t bytes[5] = {3 * y_bytes, y_bytes, y_bytes, 3 * y_bytes,
                             (size_t)rows * sizeof(float)};
    memset(s->all, 0, sizeof s->all);
    for (int i = 0; i < 5; ++i)
        if (!device_block(b, bytes[i], &s->all[i]))
            return false;
    s->qkv = s->all[0];
    s->y = s->all[1];
    s->dy = s->all[2];
    s->dqkv = s->all[3];
    s->lse = s->all[4];
    random_source_fill(&b->random, RANDOM_DTYPE, s->qkv, (int64_t)bytes[0]);
    random_source_fill(&b->random, RANDOM_DTYPE, s->dy, (int64_t)bytes[2]);
    return true;
}

static void shape_close(const bench *b, const shape *s)
{
    for (int i = 0; i < 5; ++i)
        b->device->ops->free(b->device->ctx, s->all[i]);
}

// ---- times ----

// What is launched, for samples_take.
typedef struct timed {
    const bench *b;
    const shape *s;
} timed;

static void launch_forward(void *ctx, int call)
{
    const timed *t = ctx;
    const shape *s = t->s;
    (void)call;
    op_attention_forward(t->b->table, &t->b->at, s->y, s->lse, s->qkv, s->B, s->T, s->H, s->D);
}

static void launch_backward(void *ctx, int call)
{
    const timed *t = ctx;
    const shape *s = t->s;
    (void)call;
    op_attention_backward(t->b->table, &t->b->at, s->dqkv, s->dy, s->y, s->lse, s->qkv, s->B, s->T,
                          s->H, s->D);
}

static bool result_of(const bench *b, const shape *s, result *r)
{
    const size_t bytes = (size_t)(s->B * s->T * s->H * s->D) * 6;
    timed t = {b, s};
    r->dqkv = malloc(bytes);
    if (!r->dqkv || samples_take(b->device, launch_forward, &t, b->tiny, &r->forward) != MICS_OK ||
        samples_take(b->device, launch_backward, &t, b->tiny, &r->backward) != MICS_OK)
        return false;
    b->device->ops->copy(b->device->ctx, 0, r->dqkv, s->dqkv, bytes);
    return b->device->ops->synchronize(b->device->ctx, 0) == MICS_OK;
}

static double value_of(uint16_t bits, mics_dtype dtype)
{
    if (dtype == MICS_DTYPE_BF16) {
        const uint32_t wide = (uint32_t)bits << 16;
        float value;
        memcpy(&value, &wide, sizeof value);
        return (double)value;
    }
    const int exponent = bits >> 10 & 31, fraction = bits & 1023;
    const double magnitude =
        exponent ? ldexp(1024 + fraction, exponent - 25) : ldexp(fraction, -24);
    return bits & 0x8000 ? -magnitude : magnitude;
}

// Root of the mean square of what two gradients differ by, over that of one.
static double difference(const result *a, const result *b, int64_t elems, mics_dtype dtype)
{
    double apart = 0, size = 0;
    for (int64_t i = 0; i < elems; ++i) {
        const double x = value_of(a->dqkv[i], dtype), y = value_of(b->dqkv[i], dtype);
        apart += (x - y) * (x - y);
        size += x * x;
    }
    return sqrt(apart / size);
}

static void print_part(const char *part, const samples *found, double flops)
{
    printf("   %s %9.1f us (%.1f to %.1f) %6.1f TFLOP/s", part, found->median_us, found->least_us,
           found->most_us, flops / found->median_us * 1e-6);
}

static void print(const char *name, const shape *s, const result *r)
{
    const double flops = (double)(s->B * s->H) * (double)(s->T * s->T) * (double)s->D;
    printf("  %-5s", name);
    print_part("forward", &r->forward, 2 * flops);
    print_part("backward", &r->backward, 5 * flops);
    printf("\n");
}

static bool compare(bench *b, shape *s)
{
    const mics_cuda_attention a = {s->B, s->T, s->H, s->D, s->qkv, s->y, s->lse, s->dy, s->dqkv};
    result ours = {0}, cudnn = {0};
    bool good = shape_open(b, s);
    printf("B %lld T %lld H %lld D %lld %s\n", (long long)s->B, (long long)s->T, (long long)s->H,
           (long long)s->D, mics_dtype_text(b->at.dtype));
    b->choose(b->device, MICS_CUDA_ATTENTION_OURS);
    good = good && result_of(b, s, &ours);
    if (good)
        print("ours", s, &ours);
    b->choose(b->device, MICS_CUDA_ATTENTION_CUDNN);
    const char *why_not = good ? b->why_not(&b->at, &a) : "";
    if (good && why_not[0] != '\0')
        printf("  cudnn not: %s\n", why_not);
    else if (good && (good = result_of(b, s, &cudnn))) {
        print("cudnn", s, &cudnn);
        printf("  dqkv lie %.2e apart, relatively\n",
               difference(&ours, &cudnn, s->B * s->T * s->H * s->D * 3, b->at.dtype));
    }
    free(ours.dqkv);
    free(cudnn.dqkv);
    shape_close(b, s);
    return good;
}

static bool bench_open(bench *b)
{
    if (mics_device_cuda_open(0, SAMPLE_EVENTS, &b->device) != MICS_OK)
        return false;
    b->table = mics_kernels_cuda();
    b->choose = (choose_fn)(uintptr_t)mics_plugin_symbol("mics_cuda_attention_choose");
    b->why_not = (why_not_fn)(uintptr_t)mics_plugin_symbol("mics_cuda_attention_why_not_cudnn");
    b->at.device = b->device;
    return b->table && b->choose && b->why_not &&
           device_block(b, b->at.workspace_bytes, &b->at.workspace) &&
           random_source_open(b->device, b->table, b->at.dtype, b->tiny ? 4093 : RANDOM_ELEMS,
                              &b->random) == MICS_OK;
}

int main(int argc, char **argv)
{
    // B, T, H, D: GPT-2 124M, 1.5B, a Llama-3-8B layer, at two lengths.
    static const int64_t SHAPES[][4] = {{16, 1024, 12, 64}, {8, 1024, 25, 64},  {4, 1024, 32, 128},
                                        {4, 4096, 12, 64},  {1, 4096, 32, 128}, {1, 4096, 16, 256}};
    bench b = {.device = NULL};
    b.at.dtype = MICS_DTYPE_BF16;
    b.at.workspace_bytes = (size_t)1 << 30;
    for (int i = 1; i < argc; ++i) {
        if (strcmp(argv[i], "--tiny") == 0) {
            b.tiny = true;
        } else if (strcmp(argv[i], "--dtype") == 0 && i + 1 < argc) {
            b.at.dtype = strcmp(argv[++i], "fp16") == 0 ? MICS_DTYPE_FP16 : MICS_DTYPE_BF16;
        } else {
            fprintf(stderr, "usage: %s [--dtype bf16|fp16] [--tiny]\n", argv[0]);
            return 2;
        }
    }
    if (b.tiny)
        b.at.workspace_bytes = 1 << 20;
    bool good = bench_open(&b);
    for (size_t i = 0; good && i < (b.tiny ? 1 : sizeof SHAPES / sizeof *SHAPES); ++i) {
        shape s = {.B = SHAPES[i][0], .T = SHAPES[i][1], .H = SHAPES[i][2], .D = SHAPES[i][3]};
        if (b.tiny)
            s = (shape){.B = 1, .T = 48, .H = 2, .D = 64};
        good = compare(&b, &s);
    }
    random_source_close(&b.random);
    if (b.device && b.at.workspace)
        b.device->ops->free(b.device->ctx, b.at.workspace);
    mics_device_close(b.device);
    return good ? 0 : 1;
}
