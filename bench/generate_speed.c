// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// How fast text is generated, beside how fast memory could give the weights: in each round a test
// that only reads, then a prompt and tokens by the decoder. Medians over rounds, of the ratios too:
// machines drift.
#include "base/clock.h"
#include "base/json.h"
#include "base/rng.h"
#include "engine/team.h"
#include "mics/core/engine.h"
#include "model/from_config.h"
#include "ops/kernels.h"
#include "run/text/draw.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_ROUNDS = 99 };

typedef struct options {
    const char *config;
    int64_t prompt, tokens, sequences;
    int32_t threads, rounds;
} options;

typedef struct subject {
    mics_memory *memory;
    mics_model *model;
    mics_dtype dtype;
    void **params;
    double bytes_a_token; // of all weights that a token reads
} subject;

typedef struct figures {
    double limit, tokens, share, prompt; // bytes/s; tokens/s; of the limit; tokens/s
} figures;

static void check(mics_status status)
{
    if (status != MICS_OK)
        exit(1);
}

// ---- the model ----

static void fill(float *values, int64_t elems)
{
    for (int64_t i = 0; i < elems; i++)
        values[i] = (float)((i * 2654435761LL) % 2003 - 1001) * 3e-5F;
}

static void open_unit(subject *s, int32_t u)
{
    const mics_unit *unit = &s->model->units[u];
    const mics_kernels *kernels = mics_kernels_get(NULL);
    check(mics_alloc(s->memory, MICS_MEM_PARAMS,
                     mics_decoder_place(unit, unit->param_count, s->dtype), &s->params[u]));
    for (int32_t p = 0; p < unit->param_count; p++) {
        const mics_param *param = &unit->params[p];
        void *at = (char *)s->params[u] + mics_decoder_place(unit, p, s->dtype);
        float *values = malloc((size_t)param->elems * sizeof *values);
        fill(values, param->elems);
        if (param->dims > 1 && s->dtype == MICS_DTYPE_BF16)
            kernels->pack_bf16(at, values, param->elems);
        else
            memcpy(at, values, (size_t)param->elems * sizeof *values);
        free(values);
    }
}

// Of tables that are looked up a token reads one row, which is left out.
static double bytes_a_token(const subject *s)
{
    double bytes = 0;
    for (int32_t u = 0; u < s->model->unit_count; u++) {
        const mics_unit *unit = &s->model->units[u];
        for (int32_t o = 0; o < unit->op_count; o++) {
            for (int p = 0; p < MICS_OP_PARAMS; p++) {
                const mics_param_ref ref = unit->ops[o].params[p];
                if (ref.unit < 0 || unit->ops[o].kind == MICS_OP_EMBEDDING)
                    continue;
                const mics_param *param = mics_model_param(s->model, ref);
                bytes += (double)param->elems *
                         (double)mics_dtype_bytes(param->dims > 1 ? s->dtype : MICS_DTYPE_FP32);
            }
        }
    }
    return bytes;
}

static void open_subject(subject *s, mics_memory *memory, const char *config, mics_dtype dtype)
{
    mics_json *json = NULL;
    *s = (subject){.memory = memory, .dtype = dtype};
    check(mics_json_load(memory, config, 1 << 20, &json));
    check(mics_model_from_config(memory, json, true, &s->model));
    mics_json_close(json);
    check(MICS_NEW(memory, s->model->unit_count, &s->params));
    for (int32_t u = 0; u < s->model->unit_count; u++)
        open_unit(s, u);
    s->bytes_a_token = bytes_a_token(s);
}

static void close_subject(subject *s)
{
    for (int32_t u = 0; u < s->model->unit_count; u++)
        mics_free(s->memory, s->params[u]);
    mics_free(s->memory, s->params);
    mics_model_close(s->model);
}

// ---- the limit ----

// Compiled for the vectors that this CPU has.
#ifdef __x86_64__
#define CLONES __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define CLONES
#endif

typedef uint64_t words __attribute__((vector_size(64), may_alias));

typedef struct reading {
    const subject *of;
    int32_t threads;
    bool fetches; // ahead, which is faster on some CPUs
    uint64_t seen[64];
} reading;

CLONES static uint64_t read_words(const char *at, size_t bytes, bool fetches)
{
    words sum[8] = {0};
    for (size_t i = 0; i + 512 <= bytes; i += 512) {
        for (int j = 0; j < 8; j++) {
            if (fetches)
                __builtin_prefetch(at + i + 64 * j + 512);
            sum[j] ^= *(const words *)(at + i + 64 * j);
        }
    }
    for (int j = 1; j < 8; j++)
        sum[0] ^= sum[j];
    return sum[0][0] ^ sum[0][7];
}

static void read_all(void *ctx, int32_t thread)
{
    reading *r = ctx;
    for (int32_t u = 0; u < r->of->model->unit_count; u++) {
        const mics_unit *unit = &r->of->model->units[u];
        const size_t bytes = mics_decoder_place(unit, unit->param_count, r->of->dtype);
        const size_t share = bytes / (size_t)r->threads / 64 * 64;
        r->seen[thread % 64] ^=
            read_words((const char *)r->of->params[u] + (size_t)thread * share, share, r->fetches);
    }
}

// Bytes/s at which all parameters are read, the faster of two ways.
static double read_speed(const subject *s, int32_t threads)
{
    enum { PASSES = 4 };
    double bytes = 0, best = 0;
    mics_team *team = NULL;
    check(mics_team_open(s->memory, threads, &team));
    for (int32_t u = 0; u < s->model->unit_count; u++) {
        const mics_unit *unit = &s->model->units[u];
        bytes += (double)mics_decoder_place(unit, unit->param_count, s->dtype);
    }
    for (int fetches = 0; fetches < 2; fetches++) {
        reading r = {.of = s, .threads = threads, .fetches = fetches};
        const double begin = mics_clock_us();
        for (int pass = 0; pass < PASSES; pass++)
            mics_team_run(team, read_all, &r);
        const double speed = PASSES * bytes / (mics_clock_us() - begin) * 1e6;
        best = speed > best ? speed : best;
    }
    mics_team_close(team);
    return best;
}

// ---- generation ----

static void generate(const subject *s, const options *o, int32_t threads, figures *out)
{
    const mics_sampling sampling = {.temperature = 0.8, .top_k = 40, .seed = 1};
    const mics_decoder_spec spec = {.model = s->model,
                                    .params = (const void *const *)s->params,
                                    .dtype = s->dtype,
                                    .sequences = o->sequences,
                                    .capacity = o->prompt + o->tokens,
                                    .threads = threads};
    const int64_t vocab = s->model->vocab;
    mics_decoder *decoder = NULL;
    run_drawer drawer;
    const float *logits = NULL;
    int32_t *tokens = calloc((size_t)(o->prompt + o->sequences), sizeof *tokens);
    check(mics_decoder_open(s->memory, &spec, &decoder));
    check(run_drawer_init(&drawer, s->memory, &sampling, (int32_t)vocab));
    for (int64_t i = 0; i < o->prompt; i++)
        tokens[i] = (int32_t)(mics_rng_bits(1, 1, (uint64_t)i) % (uint64_t)vocab);
    const double begin = mics_clock_us();
    check(
        mics_decoder_feed(decoder, &(mics_decoder_feed_spec){tokens, 0, 1, o->prompt, 0}, &logits));
    mics_decoder_spread(decoder, o->prompt);
    const double prompt_end = mics_clock_us();
    for (int64_t i = 0; i < o->tokens; i++) {
        for (int64_t t = 0; t < o->sequences; t++)
            tokens[t] = run_draw(&drawer, logits + (i > 0 ? t * vocab : 0), NULL, (uint64_t)t, i);
        check(mics_decoder_feed(
            decoder, &(mics_decoder_feed_spec){tokens, 0, o->sequences, 1, o->prompt + i},
            &logits));
    }
    const double steps = (double)o->tokens / (mics_clock_us() - prompt_end) * 1e6;
    out->prompt = (double)o->prompt / (prompt_end - begin) * 1e6;
    out->tokens = steps * (double)o->sequences;
    out->share = steps * s->bytes_a_token / out->limit;
    run_drawer_fini(&drawer, s->memory);
    mics_decoder_close(decoder);
    free(tokens);
}

// ---- rounds ----

static int compare(const void *a, const void *b)
{
    const double left = *(const double *)a, right = *(const double *)b;
    return left < right ? -1 : left > right;
}

static double median(const figures *rounds, int32_t count, size_t field)
{
    double values[MAX_ROUNDS];
    for (int32_t i = 0; i < count; i++)
        memcpy(&values[i], (const char *)&rounds[i] + field, sizeof values[i]);
    qsort(values, (size_t)count, sizeof *values, compare);
    return (values[(count - 1) / 2] + values[count / 2]) / 2;
}

static void measure(const subject subjects[2], const options *o, int32_t threads)
{
    figures rounds[2][MAX_ROUNDS] = {0};
    for (int32_t r = 0; r < o->rounds; r++) {
        for (int i = 0; i < 2; i++) {
            // Before and after, for the limit drifts too.
            const double before = read_speed(&subjects[i], threads);
            rounds[i][r].limit = before;
            generate(&subjects[i], o, threads, &rounds[i][r]);
            const double after = read_speed(&subjects[i], threads);
            rounds[i][r].limit = (before + after) / 2;
            rounds[i][r].share *= before / rounds[i][r].limit;
        }
    }
    for (int i = 0; i < 2; i++)
        printf("%7d  %-5s  %10.1f  %10.1f  %10.0f %%  %12.0f\n", (int)threads,
               mics_dtype_text(subjects[i].dtype),
               median(rounds[i], o->rounds, offsetof(figures, limit)) * 1e-9,
               median(rounds[i], o->rounds, offsetof(figures, tokens)),
               100 * median(rounds[i], o->rounds, offsetof(figures, share)),
               median(rounds[i], o->rounds, offsetof(figures, prompt)));
    fflush(stdout);
}

static void parse(int argc, char **argv, options *o)
{
    for (int i = 1; i < argc; i++) {
        const bool value = i + 1 < argc;
        if (value && strcmp(argv[i], "--prompt") == 0)
            o->prompt = atoll(argv[++i]);
        else if (value && strcmp(argv[i], "--tokens") == 0)
            o->tokens = atoll(argv[++i]);
        else if (value && strcmp(argv[i], "--samples") == 0)
            o->sequences = atoll(argv[++i]);
        else if (value && strcmp(argv[i], "--threads") == 0)
            o->threads = atoi(argv[++i]);
        else if (value && strcmp(argv[i], "--rounds") == 0)
            o->rounds = atoi(argv[++i]);
        else
            o->config = argv[i];
    }
    if (o->config == NULL || o->rounds < 1 || o->rounds > MAX_ROUNDS || o->threads < 1) {
        fprintf(stderr, "usage: generate_speed CONFIG.json [--prompt 64] [--tokens 128] "
                        "[--samples 1] [--threads 2] [--rounds 5]\n");
        exit(2);
    }
}

int main(int argc, char **argv)
{
    options o = {.prompt = 64, .tokens = 128, .sequences = 1, .threads = 2, .rounds = 5};
    mics_memory *memory = NULL;
    mics_machine machine;
    subject subjects[2];
    parse(argc, argv, &o);
    check(mics_memory_open(&memory));
    check(mics_machine_read(&machine));
    for (int i = 0; i < 2; i++)
        open_subject(&subjects[i], memory, o.config, i == 0 ? MICS_DTYPE_FP32 : MICS_DTYPE_BF16);
    printf("%s; %s kernels\n%s: prompt of %d tokens, then %d of each of %d samples, %d rounds\n",
           machine.cpu_name, mics_kernels_get(NULL)->name, o.config, (int)o.prompt, (int)o.tokens,
           (int)o.sequences, (int)o.rounds);
    printf("threads  dtype  read, GB/s  tokens/s    of the limit  prompt tokens/s\n");
    for (int32_t threads = 1; threads <= o.threads; threads *= 2)
        measure(subjects, &o, threads);
    for (int i = 0; i < 2; i++)
        close_subject(&subjects[i]);
    return mics_memory_close(memory) == 0 ? 0 : 1;
}
