// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// How fast whole training steps are, as ratios within one run:
//   1. one rank against the matrix library alone on the same products (the share of the library's
//   rate that training keeps);
//   2. N ranks as threads against one rank with the same global batch on the same cores;
//   3. with --bf16 in place of both, one rank in bf16 against one in fp32;
//   4. with --against FILE in place of both, one rank of that model against one of --config.
// The sides take turns, round by round, and medians of the rounds' ratios are reported: machines
// drift.
#include "base/clock.h"
#include "base/json.h"
#include "base/rng.h"
#include "mics/core/device.h"
#include "mics/core/engine.h"
#include "mics/core/transport.h"
#include "model/from_config.h"
#include "ops/kernels.h"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct options {
    const char *config, *against;
    int64_t sequences, length; // of a micro-batch
    int32_t threads, ranks, micro_steps, rounds;
    mics_sharding sharding;
    bool profile, bf16;
} options;

// ---- a world of ranks that train on demand ----

typedef struct world world;
typedef struct rank_state {
    world *world;
    int32_t rank;
    pthread_t thread;
    mics_memory *memory;
    mics_comm *comm;
    mics_engine *engine;
    mics_step_result result;
    mics_status status;
} rank_state;

struct world {
    const mics_model *model;
    mics_memory *memory;
    mics_schedule *schedule;
    mics_thread_world *transport;
    int32_t ranks;
    rank_state *states;
    int64_t step;
};

static mics_status random_tokens(void *ctx, int32_t micro_step, int32_t *inputs_out,
                                 int32_t *targets_out)
{
    const rank_state *state = ctx;
    const mics_schedule_spec *spec = &state->world->schedule->spec;
    const int64_t tokens = spec->batch.sequences * spec->batch.length;
    for (int64_t i = 0; i < tokens; i++) {
        uint64_t bits = mics_rng_bits((uint64_t)(micro_step * state->world->ranks + state->rank), 3,
                                      (uint64_t)i);
        inputs_out[i] = (int32_t)(bits % (uint64_t)spec->model->vocab);
        targets_out[i] = (int32_t)((bits >> 32) % (uint64_t)spec->model->vocab);
    }
    return MICS_OK;
}

static void check(mics_status status)
{
    if (status != MICS_OK)
        exit(1);
}

static void open_world(world *w, mics_memory *memory, const mics_model *model,
                       const mics_schedule_spec *spec)
{
    *w = (world){.model = model, .memory = memory, .ranks = spec->mesh.ranks};
    check(mics_schedule_open(memory, spec, &w->schedule));
    check(mics_thread_world_open(memory, w->ranks, 300, &w->transport));
    w->states = calloc((size_t)w->ranks, sizeof *w->states);
    for (int32_t r = 0; r < w->ranks; r++) {
        rank_state *s = &w->states[r];
        *s = (rank_state){.world = w, .rank = r};
        check(mics_memory_open(&s->memory));
        check(mics_comm_thread_open(s->memory, w->transport, r, &s->comm));
        check(mics_comm_count_open_take(s->memory, s->comm, spec->mesh.ranks_per_node, &s->comm));
        const mics_engine_spec engine = {
            .memory = s->memory,
            .schedule = w->schedule,
            .comm = s->comm,
            .dtype = spec->precision == MICS_PRECISION_MIXED ? MICS_DTYPE_BF16 : MICS_DTYPE_FP32,
            .optimizer = {MICS_OPTIMIZER_ADAMW, {0.9, 0.95, 1e-8}, 0.1},
            .clip = 1};
        check(mics_engine_open(&engine, &s->engine));
        mics_engine_init_random(s->engine, 1);
    }
}

static void close_world(world *w)
{
    for (int32_t r = 0; r < w->ranks; r++) {
        mics_engine_close(w->states[r].engine);
        mics_comm_close(w->states[r].comm);
        mics_memory_close(w->states[r].memory);
    }
    mics_thread_world_close(w->transport);
    mics_schedule_close(w->schedule);
    free(w->states);
}

static void *train_rank(void *arg)
{
    rank_state *s = arg;
    const mics_batch_source source = {.read = random_tokens, .ctx = s};
    s->status = mics_engine_step(s->engine, s->world->step, 1e-4f, &source, &s->result);
    if (s->status != MICS_OK)
        mics_comm_abort(s->comm, NULL);
    return NULL;
}

// One step of all ranks; seconds.
static double train(world *w)
{
    w->step++;
    double begin_us = mics_clock_us();
    for (int32_t r = 1; r < w->ranks; r++)
        pthread_create(&w->states[r].thread, NULL, train_rank, &w->states[r]);
    train_rank(&w->states[0]);
    for (int32_t r = 1; r < w->ranks; r++)
        pthread_join(w->states[r].thread, NULL);
    for (int32_t r = 0; r < w->ranks; r++)
        check(w->states[r].status);
    return (mics_clock_us() - begin_us) * 1e-6;
}

// ---- the matrix library alone ----

typedef struct products {
    float *a, *b, *c;
    double flops;
} products;

static void product(products *p, bool ta, bool tb, int64_t m, int64_t n, int64_t k, float beta)
{
    mics_gemm(ta, tb, m, n, k, 1, p->a, ta ? m : k, p->b, tb ? k : n, beta, p->c, n);
    p->flops += 2.0 * (double)m * (double)n * (double)k;
}

// Forward, gradient of the input, gradient of the weight. The last accumulates where training does.
static void three_products(products *p, int64_t rows, int64_t inputs, int64_t outputs, bool out_in,
                           float beta)
{
    product(p, false, out_in, rows, outputs, inputs, 0);
    product(p, false, !out_in, rows, inputs, outputs, 0);
    if (out_in)
        product(p, true, false, outputs, inputs, rows, beta);
    else
        product(p, true, false, inputs, outputs, rows, beta);
}

// All matrix products of one micro-step; attention's are not among them.
static double multiply(products *p, const mics_model *model, mics_batch batch)
{
    const int64_t tokens = batch.sequences * batch.length;
    double begin_us = mics_clock_us();
    p->flops = 0;
    for (int32_t u = 0; u < model->unit_count; u++) {
        for (int32_t o = 0; o < model->units[u].op_count; o++) {
            const mics_op *op = &model->units[u].ops[o];
            if (op->kind != MICS_OP_LINEAR && op->kind != MICS_OP_LM_HEAD)
                continue;
            const mics_param *w = mics_model_param(model, op->params[0]);
            int64_t rows = mics_op_cost_get(model, &model->units[u], op, batch).chunk_rows;
            if (rows == 0)
                rows = tokens;
            bool out_in = op->weight_out_in || op->kind == MICS_OP_LM_HEAD;
            for (int64_t begin = 0; begin < tokens; begin += rows)
                three_products(p, begin + rows < tokens ? rows : tokens - begin,
                               w->shape[out_in ? 1 : 0], w->shape[out_in ? 0 : 1], out_in,
                               begin > 0 ? 1 : 0);
        }
    }
    return (mics_clock_us() - begin_us) * 1e-6;
}

static void open_products(products *p, const mics_model *model, int64_t tokens)
{
    int64_t most = tokens;
    for (int32_t u = 0; u < model->unit_count; u++) {
        for (int32_t i = 0; i < model->units[u].param_count; i++) {
            const mics_param *w = &model->units[u].params[i];
            for (int32_t d = 0; d < w->dims; d++)
                most = w->shape[d] * 4096 > most ? w->shape[d] * 4096 : most;
        }
    }
    float **const buffers[] = {&p->a, &p->b, &p->c};
    for (int i = 0; i < 3; i++) {
        *buffers[i] = aligned_alloc(64, (size_t)most * sizeof(float));
        for (int64_t e = 0; e < most; e++)
            (*buffers[i])[e] = (float)mics_rng_uniform(1, (uint64_t)i, (uint64_t)e) - 0.5f;
    }
}

// ---- reports ----

static int compare(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *values, int32_t count)
{
    qsort(values, (size_t)count, sizeof *values, compare);
    return count % 2 == 1 ? values[count / 2] : (values[count / 2 - 1] + values[count / 2]) / 2;
}

static void print_profile(const world *w)
{
    const mics_step_list *list = &w->schedule->lists[MICS_PHASE_TRAIN];
    double sums[MICS_STEP_KINDS] = {0};
    const mics_step_time *times = mics_engine_times(w->states[0].engine);
    for (int32_t i = 0; i < list->count; i++)
        sums[list->steps[i].kind] += times[i].end_us - times[i].begin_us;
    printf("  rank 0, newest step, ms:");
    for (int kind = 0; kind < MICS_STEP_KINDS; kind++) {
        if (sums[kind] > 0)
            printf(" %s %.0f", mics_step_text((mics_step_kind)kind, MICS_STAGE_WHOLE),
                   sums[kind] / 1e3);
    }
    printf("; exposed communication %.0f\n", w->states[0].result.exposed_comm_us / 1e3);
}

static void against_library(const options *o, world *one)
{
    products p = {0};
    double ratios[64], train_s[64], multiply_s[64];
    const mics_batch batch = one->schedule->spec.batch;
    const int64_t tokens = batch.sequences * batch.length;
    open_products(&p, one->model, tokens);
    mics_op_set_threads(batch.threads);
    train(one);
    multiply(&p, one->model, batch);
    for (int32_t round = 0; round < o->rounds; round++) {
        train_s[round] = train(one);
        multiply_s[round] = 0;
        for (int32_t m = 0; m < o->micro_steps; m++)
            multiply_s[round] += multiply(&p, one->model, batch);
        ratios[round] = multiply_s[round] / train_s[round];
    }
    const double step_s = median(train_s, o->rounds), gemm_s = median(multiply_s, o->rounds);
    const double flops = p.flops * o->micro_steps;
    printf("one rank, %d threads, %d x %d tokens x %d micro-steps: %.0f ms a step, %.0f tokens/s\n",
           (int)batch.threads, (int)batch.sequences, (int)batch.length, (int)o->micro_steps,
           step_s * 1e3, (double)(tokens * o->micro_steps) / step_s);
    printf("  matrix products alone (%s): %.0f ms, %.1f GFLOP/s\n", mics_gemm_library(),
           gemm_s * 1e3, flops / gemm_s * 1e-9);
    printf("  training keeps %.1f %% of the library's rate (target 75 %%); %.1f %% of the step is "
           "outside matrix products\n",
           100 * median(ratios, o->rounds), 100 * (1 - median(ratios, o->rounds)));
    if (o->profile)
        print_profile(one);
    free(p.a);
    free(p.b);
    free(p.c);
}

static void against_one_rank(const options *o, world *one, world *many)
{
    double ratios[64], one_s[64], many_s[64];
    char name[64];
    train(one);
    train(many);
    for (int32_t round = 0; round < o->rounds; round++) {
        one_s[round] = train(one);
        many_s[round] = train(many);
        ratios[round] = one_s[round] / many_s[round];
    }
    printf("%d ranks as threads, %s, %d threads each, %d micro-steps: %.0f ms a step; one rank "
           "%.0f ms\n",
           (int)many->ranks, mics_mesh_name(&many->schedule->spec.mesh, name, sizeof name),
           (int)many->schedule->spec.batch.threads, (int)many->schedule->spec.micro_steps,
           median(many_s, o->rounds) * 1e3, median(one_s, o->rounds) * 1e3);
    printf("  %.1f %% of one rank's tokens/s (target 90 %%)\n", 100 * median(ratios, o->rounds));
    if (o->profile)
        print_profile(many);
}

// One rank each of two models, or of one in two precisions.
typedef struct sides {
    const char *base_name, *other_name;
    world *base, *other;
    const char *target;
} sides;

static void against_each_other(const options *o, const sides *s)
{
    double ratios[64], base_s[64], other_s[64];
    const mics_batch batch = s->base->schedule->spec.batch;
    const double tokens = (double)(batch.sequences * batch.length * o->micro_steps);
    train(s->base);
    train(s->other);
    for (int32_t round = 0; round < o->rounds; round++) {
        base_s[round] = train(s->base);
        other_s[round] = train(s->other);
        ratios[round] = base_s[round] / other_s[round];
    }
    const double slow_s = median(base_s, o->rounds), fast_s = median(other_s, o->rounds);
    printf("one rank, %d threads, %d x %d tokens x %d micro-steps: %s %.0f ms a step, %.0f "
           "tokens/s; %s %.0f ms, %.0f tokens/s\n",
           (int)batch.threads, (int)batch.sequences, (int)batch.length, (int)o->micro_steps,
           s->base_name, slow_s * 1e3, tokens / slow_s, s->other_name, fast_s * 1e3,
           tokens / fast_s);
    printf("  %s has %.2f times the tokens/s of %s (target %s)\n", s->other_name,
           median(ratios, o->rounds), s->base_name, s->target);
    if (o->profile) {
        print_profile(s->base);
        print_profile(s->other);
    }
}

static int usage(int status)
{
    puts("usage: train_speed [--config FILE] [--batch B] [--length T] [--threads N] [--ranks N] "
         "[--sharding P G O]\n"
         "                   [--micro-steps S] [--rounds R] [--profile] [--bf16] [--against FILE]\n"
         "Measures training steps against the matrix library, and N ranks (0: skip) against one, S "
         "micro-steps of one rank\n"
         "and S / N of N; with --bf16 one rank in bf16 against fp32, with --against one of that "
         "model\nagainst --config's. Defaults: configs/gpt2.json, "
         "4 x 256 tokens, 2 threads, 4 ranks, 2 2 2, "
         "4 micro-steps, 5 rounds.");
    return status;
}

static int parse(int argc, char **argv, options *o)
{
    for (int i = 1; i < argc; i++) {
        const char *flag = argv[i];
        if (strcmp(flag, "--profile") == 0) {
            o->profile = true;
            continue;
        }
        if (strcmp(flag, "--bf16") == 0) {
            o->bf16 = true;
            continue;
        }
        if (strcmp(flag, "--sharding") == 0 && i + 3 < argc) {
            o->sharding = (mics_sharding){atoi(argv[i + 1]), atoi(argv[i + 2]), atoi(argv[i + 3])};
            i += 3;
            continue;
        }
        if (i + 1 >= argc)
            return 2;
        const char *value = argv[++i];
        if (strcmp(flag, "--config") == 0)
            o->config = value;
        else if (strcmp(flag, "--against") == 0)
            o->against = value;
        else if (strcmp(flag, "--batch") == 0)
            o->sequences = atoll(value);
        else if (strcmp(flag, "--length") == 0)
            o->length = atoll(value);
        else if (strcmp(flag, "--threads") == 0)
            o->threads = atoi(value);
        else if (strcmp(flag, "--ranks") == 0)
            o->ranks = atoi(value);
        else if (strcmp(flag, "--micro-steps") == 0)
            o->micro_steps = atoi(value);
        else if (strcmp(flag, "--rounds") == 0)
            o->rounds = atoi(value);
        else
            return 2;
    }
    return o->rounds >= 1 && o->rounds <= 64 ? 0 : 2;
}

static void open_model(mics_memory *memory, const char *path, mics_json **json, mics_model **model)
{
    check(mics_json_load(memory, path, 1 << 20, json));
    check(mics_model_from_config(memory, *json, true, model));
}

static void measure_bf16(const options *o, mics_memory *memory, mics_schedule_spec spec, world *one)
{
    world half;
    spec.precision = MICS_PRECISION_MIXED;
    open_world(&half, memory, spec.model, &spec);
    against_each_other(o, &(sides){"fp32", "bf16", one, &half, "1.6"});
    close_world(&half);
}

static void measure_model(const options *o, mics_memory *memory, mics_schedule_spec spec,
                          world *one)
{
    world other;
    mics_json *json = NULL;
    mics_model *model = NULL;
    open_model(memory, o->against, &json, &model);
    spec.model = model;
    open_world(&other, memory, model, &spec);
    against_each_other(o, &(sides){o->config, o->against, one, &other, "0.70"});
    close_world(&other);
    mics_model_close(model);
    mics_json_close(json);
}

static void measure_ranks(const options *o, mics_memory *memory, mics_schedule_spec spec,
                          world *one)
{
    world many;
    spec.micro_steps = o->micro_steps / o->ranks;
    spec.batch.threads = o->threads / o->ranks > 0 ? o->threads / o->ranks : 1;
    check(mics_mesh_init(o->ranks, 1, o->sharding, &spec.mesh));
    open_world(&many, memory, spec.model, &spec);
    against_one_rank(o, one, &many);
    close_world(&many);
}

int main(int argc, char **argv)
{
    setvbuf(stdout, NULL, _IOLBF, 0); // a long measurement into a file is seen as it goes
    options o = {.config = "configs/gpt2.json",
                 .sequences = 4,
                 .length = 256,
                 .threads = 2,
                 .ranks = 4,
                 .micro_steps = 4,
                 .rounds = 5,
                 .sharding = {2, 2, 2}};
    if (argc == 2 && strcmp(argv[1], "--help") == 0)
        return usage(0);
    if (parse(argc, argv, &o) != 0)
        return usage(2);
    mics_memory *memory = NULL;
    mics_json *json = NULL;
    mics_model *model = NULL;
    world one;
    check(mics_memory_open(&memory));
    open_model(memory, o.config, &json, &model);
    mics_schedule_spec spec = {.model = model,
                               .batch = {o.sequences, o.length, o.threads},
                               .micro_steps = o.micro_steps,
                               .prefetch = 1};
    check(mics_mesh_init(1, 1, (mics_sharding){1, 1, 1}, &spec.mesh));
    open_world(&one, memory, model, &spec);
    if (o.bf16)
        measure_bf16(&o, memory, spec, &one);
    else if (o.against != NULL)
        measure_model(&o, memory, spec, &one);
    else
        against_library(&o, &one);
    if (!o.bf16 && o.against == NULL && o.ranks > 1)
        measure_ranks(&o, memory, spec, &one);
    close_world(&one);
    mics_model_close(model);
    mics_json_close(json);
    mics_memory_close(memory);
    return 0;
}
