// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Times ops of the CUDA kernels, or of the CPU's, beside their floors: the bytes that a call has to
// move over the bandwidth that a copy kernel reaches (memory), or the FLOPs that it has to do over
// the rate that a large GEMM reaches (arithmetic), whichever is longer. Both rates are measured by
// the same program just before, and stand at the head of what it prints.
//
//   op_speed [--device cuda|cpu] [--channels C] [--rows N] [--length T] [--heads H] [--words V] [--dtype
//   fp32|bf16|fp16] [--attention own|cudnn] [--only NAME,NAME...] [--tiny] [--json]
//
// Shapes: N rows = B * T tokens, C channels, H heads, D = C / H, V words. A line has an op's rows N,
// the width of its input I and of its output O; of elementwise ops a row is a number.
// --only: the entries of these names alone, for a profiler say. --tiny: sizes for an emulated GPU,
// one launch a sample, to see that it runs. Times are medians (measure/timing.c) on random numbers
// (random_data.h). Each subject's buffers are laid out several times and used in turn, so that no
// call finds its data in the chip's cache, unless they are larger than that.
#include "base/rng.h"
#include "mics/log.h"
#include "op_subjects.h"
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// ---- timing ----

// 1000 times what times of events are rounded to (src/device/cuda.c).
static const double SAMPLE_US = 1000;
enum { SAMPLES = 15, MAX_LAUNCHES = 200 };

// Sets of a subject's buffers behind each other, which calls take in turn.
typedef struct timed {
    bench *b;
    const subject *s;
    char *block;
    size_t bytes[2]; // of a set's, read and written
    int sets;
} timed;

static mics_status run_set(const timed *t, int set, bool first)
{
    char *const begin = t->block + (size_t)set * (t->bytes[0] + t->bytes[1]);
    measure_layout layout = {.base = {begin, begin + t->bytes[0]}};
    return subject_run(t->b, t->s, &layout, first);
}

static mics_status launch(void *ctx, int32_t call)
{
    const timed *t = ctx;
    return run_set(t, call % t->sets, false);
}

static mics_status mark(void *ctx, int32_t mark)
{
    const mics_device *device = ((timed *)ctx)->b->device;
    device->ops->record(device->ctx, 0, mark);
    return MICS_OK;
}

static mics_status read_mark(void *ctx, int32_t mark, double *us_out)
{
    const mics_device *device = ((timed *)ctx)->b->device;
    MICS_TRY(device->ops->synchronize(device->ctx, 0));
    *us_out = device->ops->event_us(device->ctx, mark);
    return MICS_OK;
}

// The device's memory is zeros.
static mics_status time_sets(timed *t, measure_timer *timer)
{
    const int64_t set_bytes = (int64_t)(t->bytes[0] + t->bytes[1]);
    for (int set = 0; set < t->sets; ++set) {
        if (t->s->shards == NULL)
            random_source_fill(&t->b->random, RANDOM_DTYPE, t->block + set * set_bytes, set_bytes);
        MICS_TRY(run_set(t, set, true));
    }
    *timer = (measure_timer){.call = launch,
                             .mark = mark,
                             .read = read_mark,
                             .ctx = t,
                             .warm_ups = t->b->tiny ? 0 : 3,
                             .sample_us = SAMPLE_US,
                             .max_repeats = MAX_LAUNCHES,
                             .min_samples = SAMPLES};
    return measure_timer_run(timer);
}

static mics_status time_subject(bench *b, const subject *s, measure_timer *timer)
{
    const size_t enough = (size_t)512 << 20; // ten times the largest cache
    timed t = {.b = b, .s = s, .sets = 1};
    measure_layout sizes = {.bytes = {0}};
    void *block = NULL;
    MICS_TRY(subject_run(b, s, &sizes, false));
    memcpy(t.bytes, sizes.bytes, sizeof t.bytes);
    const size_t set_bytes = t.bytes[0] + t.bytes[1];
    if (!b->tiny && set_bytes < enough)
        t.sets = enough / set_bytes < 64 ? (int)(enough / set_bytes) + 1 : 64;
    MICS_TRY(b->device->ops->alloc(b->device->ctx, set_bytes * (size_t)t.sets, &block));
    t.block = block;
    const mics_status status = time_sets(&t, timer);
    b->device->ops->free(b->device->ctx, block);
    return status;
}

static mics_status show(bench *b, const subject *s)
{
    measure_timer found;
    MICS_TRY(time_subject(b, s, &found));
    const double of_bytes = 1e6 * s->bytes / b->bytes_per_s;
    const double of_flops = 1e6 * s->flops / b->flops_per_s;
    const double floor_us = of_bytes > of_flops ? of_bytes : of_flops;
    const char *limit = of_bytes > of_flops ? "memory" : "arithmetic";
    if (b->json)
        printf("{\"op\": \"%s\", \"dtype\": \"%s\", \"N\": %lld, \"I\": %lld, \"O\": %lld, "
               "\"us\": %.2f, \"least_us\": %.2f, \"most_us\": %.2f, \"launches\": %d, \"floor\": "
               "\"%s\", \"floor_us\": %.2f, \"ratio\": %.3f, \"bytes\": %.0f, \"flops\": %.0f}\n",
               s->name, mics_dtype_text(b->dtype), (long long)s->N, (long long)s->I,
               (long long)s->O, found.median_us, found.least_us, found.most_us, found.repeats,
               limit, floor_us, found.median_us / floor_us, s->bytes, s->flops);
    else
        printf("%-21s %5s %10lld %6lld %6lld %10.2f %10.2f %10.2f %10.2f %-10s %6.2f\n", s->name,
               mics_dtype_text(b->dtype), (long long)s->N, (long long)s->I, (long long)s->O,
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

static int64_t square_side(const bench *b)
{
    return b->tiny ? 64 : b->on_cpu ? 1024 : 8192;
}

// Bandwidth of a copy, and the rate of a large square GEMM in the dtype.
static mics_status measure_rates_of(bench *b)
{
    const int64_t elems = b->tiny ? 1000 : b->on_cpu ? 32LL << 20 : 256LL << 20;
    const int64_t side = square_side(b);
    measure_timer found;
    b->at.dtype = MICS_DTYPE_FP32;
    const subject copy = subject_copy(b, elems);
    MICS_TRY(time_subject(b, &copy, &found));
    b->bytes_per_s = 1e6 * copy.bytes / found.median_us;
    b->at.dtype = b->dtype;
    const subject gemm = subject_gemm(b, side);
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

// As much as any op of the list asks for, or the GEMM of the head.
static size_t workspace_of(const subject *list, int subjects)
{
    int64_t floats = 0;
    for (int i = 0; i < subjects; ++i) {
        mics_op_shape shape = list[i].of.shape;
        if (list[i].shards != NULL)
            continue;
        shape.op = &list[i].of.op;
        const mics_op_cost cost = mics_op_def_get(shape.op->kind)->cost(&shape);
        floats = cost.workspace_forward > floats ? cost.workspace_forward : floats;
        floats = cost.workspace_backward > floats ? cost.workspace_backward : floats;
    }
    return (size_t)floats * sizeof(float);
}

// Kernels of cuDNN, for the ops that it has some for.
static mics_status prepare_library(const bench *b, const subject *list, int subjects)
{
    const char *why_not = NULL;
    for (int i = 0; i < subjects && why_not == NULL; ++i) {
        mics_op_shape shape = list[i].of.shape;
        const mics_op_def *def = mics_op_def_get(list[i].of.op.kind);
        if (list[i].shards != NULL || def->library_lacks == NULL)
            continue;
        shape.op = &list[i].of.op;
        why_not = def->library_lacks(&shape);
        if (why_not == NULL)
            why_not = b->table->ops[shape.op->kind]->prepare(&b->at, &shape);
    }
    return why_not == NULL ? MICS_OK
                           : mics_fail(MICS_ERR_UNSUPPORTED, "--attention cudnn: %s", why_not);
}

static mics_status make_tokens(bench *b)
{
    const mics_device_ops *ops = b->device->ops;
    const size_t bytes = (size_t)b->N * sizeof(int32_t);
    void *ctx = b->device->ctx, *tokens = NULL, *order = NULL;
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
    return status;
}

static mics_status open_device(bench *b)
{
    mics_machine machine = {.cores = 1};
    MICS_TRY(b->on_cpu ? mics_device_cpu_open(SAMPLES + 1, &b->device)
                       : mics_device_cuda_open(0, SAMPLES + 1, &b->device));
    if (b->on_cpu)
        MICS_TRY(mics_machine_read(&machine));
    b->table = b->on_cpu ? mics_kernels_get(NULL) : mics_kernels_cuda();
    if (b->on_cpu && b->dtype == MICS_DTYPE_BF16)
        b->table = b->table->bf16;
    if (!b->table || (b->on_cpu && b->dtype == MICS_DTYPE_FP16))
        return mics_fail(MICS_ERR_UNSUPPORTED, "there are no kernels for %s",
                         mics_dtype_text(b->dtype));
    b->at = (mics_exec){.device = b->device, .dtype = b->dtype, .threads = machine.cores};
    mics_op_set_threads(machine.cores);
    return MICS_OK;
}

// A pair of a head turns as fast as any other.
static mics_status set_up(bench *b, subject *list, int *subjects_out)
{
    static const float frequencies[128] = {1};
    const int64_t pairs = b->C / b->H / 2;
    b->rotary = (mics_rotary_spec){
        .dims = 2 * (pairs < 128 ? pairs : 128), .frequencies = frequencies, .scale = 1};
    MICS_TRY(open_device(b));
    MICS_TRY(make_tokens(b));
    MICS_TRY(random_source_open(b->device, b->table, b->dtype, b->tiny ? 4093 : RANDOM_ELEMS,
                                &b->random));
    const int subjects = *subjects_out = subjects_list(b, list);
    list[subjects] = subject_gemm(b, square_side(b));
    b->at.workspace_bytes = workspace_of(list, subjects + 1);
    if (b->library)
        MICS_TRY(prepare_library(b, list, subjects));
    MICS_TRY(b->device->ops->alloc(b->device->ctx, b->at.workspace_bytes, &b->at.workspace));
    return subject_routes(b);
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
    int subjects = 0;
    MICS_TRY(set_up(b, list, &subjects));
    if (b->only)
        MICS_TRY(choose(b->only, list, &subjects));
    MICS_TRY(measure_rates_of(b));
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
