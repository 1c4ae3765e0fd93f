// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Codes bf16 numbers as changes (comm/delta) and prints, for one core: bits a number, beside their
// entropy given the old exponent; GB/s of bf16 each way, by CPU time, the best of several rounds.
//
//   delta_speed [--elems N]        weights and a step of Adam or so, at several learning rates
//   delta_speed OLD NOW            of two safetensors files of one layout: fp32 is rounded, bf16 is
//                                  taken as it is
//
// Weights are drawn from N(0, 0.02), a step moves each by lr * N(0, 0.7), and both are rounded.
#include "base/rng.h"
#include "comm/delta/delta.h"
#include "comm/delta/entropy.h"
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { ROUNDS = 15 };

typedef struct numbers {
    int64_t elems;
    uint16_t *old, *now;
} numbers;

static void *memory_of(size_t bytes)
{
    void *memory = calloc(1, bytes + 1);
    if (memory == NULL) {
        fprintf(stderr, "delta_speed: no memory for %zu bytes\n", bytes);
        exit(1);
    }
    return memory;
}

static numbers numbers_of(int64_t elems)
{
    const size_t bytes = (size_t)elems * sizeof(uint16_t);
    return (numbers){.elems = elems, .old = memory_of(bytes), .now = memory_of(bytes)};
}

static uint16_t bf16_of(float number)
{
    uint32_t bits;
    memcpy(&bits, &number, sizeof bits);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

// ---- measuring ----

static double cpu_s(void)
{
    struct timespec time;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

static void show(const char *name, const numbers *n)
{
    const size_t bytes = (size_t)n->elems * sizeof *n->now;
    uint8_t *coded = memory_of(mics_delta_bound(n->elems));
    uint16_t *values = memory_of(bytes);
    double encode_s = INFINITY, decode_s = INFINITY;
    size_t used = 0;
    for (int round = 0; round < ROUNDS; round++) {
        memcpy(values, n->old, bytes);
        const double start = cpu_s();
        used = mics_delta_encode(n->old, n->now, n->elems, coded);
        const double middle = cpu_s();
        const bool good = mics_delta_decode(values, n->elems, coded, used);
        const double end = cpu_s();
        if (!good || memcmp(values, n->now, bytes) != 0) {
            fprintf(stderr, "delta_speed: %s: other numbers came back\n", name);
            exit(1);
        }
        encode_s = fmin(encode_s, middle - start);
        decode_s = fmin(decode_s, end - middle);
    }
    printf("%-12s %12" PRId64 " %8.3f %8.3f %8.2f %8.3f %8.3f\n", name, n->elems,
           delta_entropy(n->old, n->now, n->elems), 8.0 * (double)used / (double)n->elems,
           (double)bytes / (double)used, 1e-9 * (double)bytes / encode_s,
           1e-9 * (double)bytes / decode_s);
    free(values);
    free(coded);
}

// ---- numbers ----

static void show_drawn(int64_t elems)
{
    static const double lrs[] = {0, 2e-6, 2e-5, 3e-4, 1e-3};
    numbers n = numbers_of(elems);
    for (size_t k = 0; k < sizeof lrs / sizeof lrs[0]; k++) {
        char name[32];
        for (int64_t i = 0; i < elems; i++) {
            const double weight = 0.02 * mics_rng_normal(1, 0, (uint64_t)i);
            n.old[i] = bf16_of((float)weight);
            n.now[i] = bf16_of((float)(weight - 0.7 * lrs[k] * mics_rng_normal(1, 1, (uint64_t)i)));
        }
        snprintf(name, sizeof name, "lr %g", lrs[k]);
        show(name, &n);
    }
    free(n.old);
    free(n.now);
}

// Numbers of a file behind its header. Returns how many.
static int64_t read_file(const char *path, uint16_t **to)
{
    FILE *file = fopen(path, "rb");
    uint64_t header = 0;
    if (file == NULL || fread(&header, sizeof header, 1, file) != 1 || header > 1U << 30) {
        fprintf(stderr, "delta_speed: %s: no safetensors file\n", path);
        exit(1);
    }
    char *text = memory_of(header);
    const bool read = fread(text, 1, header, file) == header;
    const bool wide = strstr(text, "\"F32\"") != NULL;
    fseek(file, 0, SEEK_END);
    const size_t all = (size_t)ftell(file), begin = sizeof header + (read ? header : 0);
    const size_t bytes = all - begin;
    const int64_t elems = (int64_t)(bytes / (wide ? sizeof(float) : sizeof(uint16_t)));
    char *data = memory_of(bytes);
    fseek(file, (long)begin, SEEK_SET);
    if (!read || fread(data, 1, bytes, file) != bytes ||
        (!wide && strstr(text, "\"BF16\"") == NULL)) {
        fprintf(stderr, "delta_speed: %s: not all of it, or neither fp32 nor bf16\n", path);
        exit(1);
    }
    fclose(file);
    *to = memory_of((size_t)elems * sizeof **to);
    for (int64_t i = 0; i < elems; i++) {
        float number;
        memcpy(wide ? (void *)&number : (void *)&(*to)[i],
               data + (size_t)i * (wide ? sizeof number : sizeof **to),
               wide ? sizeof number : sizeof **to);
        if (wide)
            (*to)[i] = bf16_of(number);
    }
    free(text);
    free(data);
    return elems;
}

int main(int argc, char **argv)
{
    const bool drawn = argc == 1 || (argc == 3 && strcmp(argv[1], "--elems") == 0);
    const int64_t elems = argc == 3 ? strtoll(argv[2], NULL, 10) : 16 << 20;
    if (drawn ? elems <= 0 : argc != 3) {
        fprintf(stderr, "usage: delta_speed [--elems N | OLD NOW]\n");
        return 2;
    }
    printf("%-12s %12s %8s %8s %8s %8s %8s\n", "numbers", "elems", "entropy", "bits", "ratio",
           "encode", "decode");
    if (drawn) {
        show_drawn(elems);
        return 0;
    }
    numbers n = {0};
    n.elems = read_file(argv[1], &n.old);
    const bool same = n.elems == read_file(argv[2], &n.now);
    if (same)
        show("files", &n);
    else
        fprintf(stderr, "delta_speed: %s and %s have other layouts\n", argv[1], argv[2]);
    free(n.old);
    free(n.now);
    return same ? 0 : 1;
}
