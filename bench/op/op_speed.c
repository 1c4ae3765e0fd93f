// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Times every entry of the CUDA kernels, or of the CPU's, beside its floor: the bytes that it has to move over the
// bandwidth that a copy kernel reaches (memory), or the FLOPs that it has to do over the rate that
// a large GEMM reaches (arithmetic), whichever is longer. Both rates are measured by the same
// program just before, and stand at the head of what it prints.
//
//   op_speed [--device cuda|cpu] [--channels C] [--rows N] [--length T] [--heads H] [--words V] [--dtype
//   fp32|bf16|fp16] [--attention own|cudnn] [--only NAME,NAME...] [--tiny] [--json]
//
// Shapes: N rows = B * T tokens, C channels, H heads, D = C / H, V words; see mics/kernels.h.
// --only: the entries of these names alone, for a profiler say. --tiny: sizes for an emulated GPU,
// one launch a sample, to see that it runs. Times are medians (samples.h) on random numbers
// (random_data.h). Each subject's buffers are laid out several times and used in turn, so that no
// call finds its data in the chip's cache, unless they are larger than that.
#include "base/rng.h"
#include "mics/log.h"
#include "op_calls.h"
#include "op_subjects.h"
#include "samples.h"
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// ---- timing ----

// Sets of a subject's buffers behind each other, which calls take in turn.
typedef struct layout {
    const bench *b;
    const subject *s;
    char *block;
    int64_t set_bytes;
    int sets;
} layout;

static int64_t buffer_bytes(const subject *s, int buffer)
{
    return (s->buffer[buffer] + 255) / 256 * 256;
}

static void buffers_of(const layout *l, int set, void *p[BUFFERS])
{
    char *next = l->block + set * l->set_bytes;
    for (int i = 0; i < BUFFERS; ++i) {
        p[i] = next;
        next += buffer_bytes(l->s, i);
    }
}

static void launch(void *ctx, int call)
{
    const layout *l = ctx;
    void *p[BUFFERS];
    buffers_of(l, call % l->sets, p);
    l->s->run(l->b, l->s, p);
}

// The device's memory is zeros.
static void fill_set(bench *b, const layout *l, const subject_content *content, int set)
{
    void *p[BUFFERS];
    buffers_of(l, set, p);
    for (int i = 0; i < BUFFERS && l->s->buffer[i] > 0; ++i) {
        const char what = i < (int)strlen(content->holds) ? content->holds[i] : 'x';
        const random_kind kind = what == 'f'   ? RANDOM_FP32
                                 : what == '+' ? RANDOM_POSITIVE
                                               : RANDOM_DTYPE;
        if (what != '0')
            random_source_fill(&b->random, kind, p[i], l->s->buffer[i]);
    }
    if (content->prepare)
        content->prepare(b, l->s, p);
}

static mics_status time_subject(bench *b, const subject *s, samples *samples_out)
{
    const int64_t enough = 512LL << 20; // ten times the largest cache
    layout l = {.b = b, .s = s, .sets = 1};
    void *block = NULL;
    for (int i = 0; i < BUFFERS; ++i)
        l.set_bytes += buffer_bytes(s, i);
    if (!b->tiny && l.set_bytes < enough)
        l.sets = enough / l.set_bytes < 64 ? (int)(enough / l.set_bytes) + 1 : 64;
    MICS_TRY(b->device->ops->alloc(b->device->ctx, (size_t)(l.set_bytes * l.sets), &block));
    l.block = block;
    const subject_content content = subject_content_of(s);
    for (int set = 0; set < l.sets; ++set)
        fill_set(b, &l, &content, set);
    const mics_status status = samples_take(b->device, launch, &l, b->tiny, samples_out);
    b->device->ops->free(b->device->ctx, block);
    return status;
}

static mics_status show(bench *b, const subject *s)
{
    samples found;
    MICS_TRY(time_subject(b, s, &found));
    const double of_bytes = 1e6 * s->bytes / b->bytes_per_s;
    const double of_flops = 1e6 * s->flops / b->flops_per_s;
    const double floor_us = of_bytes > of_flops ? of_bytes : of_flops;
    const char *limit = of_bytes > of_flops ? "memory" : "arithmetic";
    if (b->json)
        printf("{\"op\": \"%s\", \"dtype\": \"%s\", \"N\": %lld, \"I\": %lld, \"O\": %lld, "
               "\"us\": %.2f, \"least_us\": %.2f, \"most_us\": %.2f, \"launches\": %d, \"floor\": "
               "\"%s\", \"floor_us\": %.2f, \"ratio\": %.3f, \"bytes\": %.0f, \"flops\": %.0f}\n",
               s->name, mics_dtype_text(s->dtype), (long long)s->N, (long long)s->I,
               (long long)s->O, found.median_us, found.least_us, found.most_us, found.launches,
               limit, floor_us, found.median_us / floor_us, s->bytes, s->flops);
    else
        printf("%-21s %5s %10lld %6lld %6lld %10.2f %10.2f %10.2f %10.2f %-10s %6.2f\n", s->name,
               mics_dtype_text(s->dtype), (long long)s->N, (long long)s->I, (long long)s->O,
               found.median_us, found.least_us, found.most_us, floor_us, limit,
               found.median_us / floor_us);
    fflush(stdout);
    return MICS_OK;
}

static void show_head(const bench *b, double copy_bytes, int64_t side)
{
    mics_device_info info;
    b->device->ops->info(b->device->ctx, &info);
    if (b->json) {
        printf("{\"%s\": \"%s\", \"copy_bytes_per_s\": %.4g, \"gemm_flops_per_s\": %.4g, "
               "\"samples\": %d}\n",
               b->on_cpu ? "cpu" : "gpu", info.name, b->bytes_per_s, b->flops_per_s, SAMPLES);
        return;
    }
    printf("%s (%s)\n", info.name, info.detail);
    printf("memory floor:     bytes / %.1f GB/s, what a copy in fp32 that reads and writes %.3g GB "
           "moved just now\n",
           1e-9 * b->bytes_per_s, 1e-9 * copy_bytes);
    printf("arithmetic floor: FLOPs / %.1f TFLOP/s, what a GEMM of %lld x %lld x %lld in %s did "
           "just now\n",
           1e-12 * b->flops_per_s, (long long)side, (long long)side, (long long)side,
           mics_dtype_text(b->dtype));
    printf("microseconds a launch, on random numbers: median, least and most of %d samples; ratio: "
           "median / floor\n",
           SAMPLES);
    printf("%-21s %5s %10s %6s %6s %10s %10s %10s %10s %-10s %6s\n", "op", "dtype", "N", "I", "O",
           "median", "least", "most", "floor", "of", "ratio");
}

// Bandwidth of a copy, and the rate of a large square GEMM in the dtype.
static mics_status measure_machine(bench *b)
{
    const int64_t elems = b->tiny ? 1000 : b->on_cpu ? 32LL << 20 : 256LL << 20;
    const int64_t side = b->tiny ? 64 : b->on_cpu ? 1024 : 8192;
    const mics_dtype dtype = b->dtype;
    const int64_t square = side * side * (int64_t)mics_dtype_bytes(dtype);
    const subject copy = {.name = "copy",
                          .dtype = MICS_DTYPE_FP32,
                          .bytes = 8.0 * (double)elems,
                          .buffer = {4 * elems, 4 * elems},
                          .N = elems,
                          .run = run_copy};
    const subject gemm = {.name = "gemm",
                          .dtype = dtype,
                          .flops = 2.0 * (double)(side * side) * (double)side,
                          .buffer = {square, square, square, square},
                          .N = side,
                          .I = side,
                          .O = side,
                          .run = run_linear_forward};
    samples found;
    b->at.dtype = MICS_DTYPE_FP32;
    MICS_TRY(time_subject(b, &copy, &found));
    b->bytes_per_s = 1e6 * copy.bytes / found.median_us;
    b->at.dtype = dtype;
    MICS_TRY(time_subject(b, &gemm, &found));
    b->flops_per_s = 1e6 * gemm.flops / found.median_us;
    show_head(b, copy.bytes, side);
    return MICS_OK;
}

// ---- setting up ----

// A training step of GPT-2 124M.
static void use_cpu(bench *b)
{
    b->N = 2048;
    b->T = 512;
    b->C = 768;
    b->H = 12;
    b->shard = 4 << 20;
    b->dtype = MICS_DTYPE_FP32;
}

static bool parse(bench *b, int count, char **words)
{
    enum { TINY = 1, JSON, CHANNELS, ROWS, LENGTH, HEADS, WORDS, DTYPE, ONLY, ATTENTION, DEVICE };
    static const struct option options[] = {{"tiny", no_argument, NULL, TINY},
                                            {"json", no_argument, NULL, JSON},
                                            {"channels", required_argument, NULL, CHANNELS},
                                            {"rows", required_argument, NULL, ROWS},
                                            {"length", required_argument, NULL, LENGTH},
                                            {"heads", required_argument, NULL, HEADS},
                                            {"words", required_argument, NULL, WORDS},
                                            {"dtype", required_argument, NULL, DTYPE},
                                            {"only", required_argument, NULL, ONLY},
                                            {"attention", required_argument, NULL, ATTENTION},
                                            {"device", required_argument, NULL, DEVICE},
                                            {NULL, 0, NULL, 0}};
    int option;
    while ((option = getopt_long(count, words, "", options, NULL)) != -1) {
        const int64_t number = optarg ? strtoll(optarg, NULL, 10) : 0;
        if (option == TINY) {
            *b = (bench){.N = 32,
                         .T = 16,
                         .C = 64,
                         .H = 2,
                         .V = 100,
                         .shard = 1003,
                         .tiny = true,
                         .json = b->json,
                         .dtype = b->dtype,
                         .library = b->library,
                         .on_cpu = b->on_cpu,
                         .only = b->only};
        } else if (option == JSON) {
            b->json = true;
        } else if (option == ONLY) {
            b->only = optarg;
        } else if (option == DTYPE) {
            int dtype = 0;
            while (dtype < MICS_DTYPES && strcmp(optarg, mics_dtype_text((mics_dtype)dtype)) != 0)
                ++dtype;
            if (dtype == MICS_DTYPES)
                return false;
            b->dtype = (mics_dtype)dtype;
        } else if (option == DEVICE) {
            b->on_cpu = strcmp(optarg, "cpu") == 0;
            if (!b->on_cpu && strcmp(optarg, "cuda") != 0)
                return false;
            if (b->on_cpu && !b->tiny)
                use_cpu(b);
        } else if (option == ATTENTION) {
            b->library = strcmp(optarg, "cudnn") == 0;
            if (!b->library && strcmp(optarg, "own") != 0)
                return false;
        } else if (option == '?' || number < 1) {
            return false;
        } else {
            int64_t *const to[] = {&b->C, &b->N, &b->T, &b->H, &b->V};
            *to[option - CHANNELS] = number;
        }
    }
    return optind == count && b->N % b->T == 0 && b->C % b->H == 0;
}

static size_t workspace_of(const bench *b, mics_op op, mics_op_shape shape)
{
    if (!b->on_cpu)
        return op_workspace_of(b->dtype, op, shape);
    shape.op = &op;
    shape.threads = b->at.threads;
    const mics_op_cost cost = mics_op_def_get(op.kind)->cost(&shape);
    const int64_t floats = cost.workspace_backward > cost.workspace_forward
                               ? cost.workspace_backward
                               : cost.workspace_forward;
    return (size_t)floats * sizeof(float);
}

// As much as any op asks for, of 4 C columns at most.
static void set_workspace(bench *b)
{
    const mics_op head = {.kind = MICS_OP_LM_HEAD};
    const mics_rotary_spec rotary = {.dims = b->C / b->H};
    const mics_op_shape shape = {.op = &head,
                                 .B = b->N / b->T,
                                 .T = b->T,
                                 .N = b->N,
                                 .in = {4 * b->C},
                                 .out = 4 * b->C,
                                 .params = {{b->V, b->C}},
                                 .heads = op_heads(b->H, b->C / b->H),
                                 .rotary = &rotary,
                                 .vocab = b->V,
                                 .cpu_bf16 = b->on_cpu && b->dtype == MICS_DTYPE_BF16,
                                 .accelerator_bytes =
                                     b->on_cpu ? 0 : (int32_t)mics_dtype_bytes(b->dtype),
                                 .library = b->library};
    b->chunk_rows = mics_op_def_get(head.kind)->cost(&shape).chunk_rows;
    for (int kind = 0; kind < MICS_OP_KINDS; kind++) {
        if (b->table->ops[kind]->forward == NULL || kind == MICS_OP_LORA) // no subject
            continue;
        const mics_op op = {.kind = (mics_op_kind)kind, .experts = BENCH_EXPERTS};
        const size_t bytes = workspace_of(b, op, shape);
        b->at.workspace_bytes = bytes > b->at.workspace_bytes ? bytes : b->at.workspace_bytes;
    }
}

static mics_status prepare_library(const bench *b)
{
    const mics_op op = {.kind = MICS_OP_ATTENTION, .heads = op_heads(b->H, b->C / b->H)};
    mics_op_shape shape = op_attention_shape(b->N / b->T, b->T, op.heads);
    shape.op = &op;
    shape.library = true;
    shape.accelerator_bytes = (int32_t)mics_dtype_bytes(b->dtype);
    const char *why_not = mics_op_def_get(op.kind)->library_lacks(&shape);
    if (why_not == NULL)
        why_not = b->table->ops[op.kind]->prepare(&b->at, &shape);
    return why_not == NULL ? MICS_OK
                           : mics_fail(MICS_ERR_UNSUPPORTED, "--attention cudnn: %s", why_not);
}

static mics_status set_up(bench *b)
{
    mics_machine machine = {.cores = 1};
    MICS_TRY(b->on_cpu ? mics_device_cpu_open(SAMPLE_EVENTS, &b->device)
                       : mics_device_cuda_open(0, SAMPLE_EVENTS, &b->device));
    if (b->on_cpu)
        MICS_TRY(mics_machine_read(&machine));
    const mics_device_ops *ops = b->device->ops;
    void *ctx = b->device->ctx;
    b->table = b->on_cpu ? mics_kernels_get(NULL) : mics_kernels_cuda();
    if (b->on_cpu && b->dtype == MICS_DTYPE_BF16)
        b->table = b->table->bf16;
    if (!b->table || (b->on_cpu && b->dtype == MICS_DTYPE_FP16))
        return mics_fail(MICS_ERR_UNSUPPORTED, "there are no kernels for %s",
                         mics_dtype_text(b->dtype));
    b->at = (mics_exec){.device = b->device, .dtype = b->dtype, .threads = machine.cores};
    mics_op_set_threads(machine.cores);
    set_workspace(b);
    if (b->library)
        MICS_TRY(prepare_library(b));
    MICS_TRY(ops->alloc(ctx, b->at.workspace_bytes, &b->at.workspace));
    const size_t bytes = (size_t)b->N * sizeof(int32_t);
    void *tokens, *order;
    MICS_TRY(ops->alloc(ctx, bytes, &tokens));
    MICS_TRY(ops->alloc(ctx, bytes, &order));
    b->tokens = tokens;
    b->order = order;
    int32_t *host = calloc((size_t)(2 * b->N + b->V + 1), sizeof *host);
    if (!host)
        return mics_fail(MICS_ERR_MEMORY, "no memory for %lld tokens", (long long)b->N);
    for (int64_t n = 0; n < b->N; ++n)
        host[n] = (int32_t)(mics_rng_bits(1, 0, (uint64_t)n) % (uint64_t)b->V);
    mics_op_sort_tokens(host + b->N, host, b->N, b->V, host + 2 * b->N);
    ops->copy(ctx, 0, b->tokens, host, bytes);
    ops->copy(ctx, 0, b->order, host + b->N, bytes);
    const mics_status status = ops->synchronize(ctx, 0);
    free(host);
    MICS_TRY(status);
    return random_source_open(b->device, b->table, b->dtype, b->tiny ? 4093 : RANDOM_ELEMS,
                              &b->random);
}

static bool is_name(const char *name, const char *word, size_t length)
{
    return strlen(name) == length && strncmp(name, word, length) == 0;
}

// Keeps the subjects that --only names, and counts them down.
static mics_status choose(const char *only, subject *list, int *subjects)
{
    bool chosen[SUBJECTS] = {false};
    int kept = 0;
    for (const char *word = only; word; word = strchr(word, ',') ? strchr(word, ',') + 1 : NULL) {
        const size_t length = strcspn(word, ",");
        bool known = false;
        for (int i = 0; i < *subjects; ++i) {
            if (is_name(list[i].name, word, length))
                chosen[i] = known = true;
        }
        if (!known)
            return mics_fail(MICS_ERR_INVALID,
                             "--only: nothing is called \"%.*s\"; a run without it shows all names",
                             (int)length, word);
    }
    for (int i = 0; i < *subjects; ++i) {
        if (chosen[i])
            list[kept++] = list[i];
    }
    *subjects = kept;
    return MICS_OK;
}

static mics_status run_all(bench *b)
{
    subject list[SUBJECTS];
    MICS_TRY(set_up(b));
    int subjects = subjects_list(b, list);
    if (b->only)
        MICS_TRY(choose(b->only, list, &subjects));
    MICS_TRY(measure_machine(b));
    for (int i = 0; i < subjects; ++i)
        MICS_TRY(show(b, &list[i]));
    return MICS_OK;
}

int main(int count, char **words)
{
    bench b = {.N = 16384,
               .T = 1024,
               .C = 1600,
               .H = 25,
               .V = 50257,
               .shard = 124439808,
               .dtype = MICS_DTYPE_BF16};
    if (!parse(&b, count, words)) {
        fprintf(stderr, "usage: op_speed [--device cuda|cpu] [--channels C] [--rows N] [--length "
                        "T] [--heads H] "
                        "[--words V] [--dtype fp32|bf16|fp16] [--attention own|cudnn] "
                        "[--only NAME,NAME...] [--tiny] [--json]\n"
                        "       (N in whole sequences of T, C in whole heads; --device, then "
                        "--tiny come first)\n");
        return 2;
    }
    const mics_status status = run_all(&b); // logged
    random_source_close(&b.random);
    mics_device_close(b.device);
    return status == MICS_OK ? 0 : 1;
}
