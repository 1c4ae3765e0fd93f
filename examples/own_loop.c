// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// A training loop of one's own, on the groups, collectives, schedule, engine and checkpoints of
// mics/core. Four ranks, threads treated as two nodes, train under mics(2) on the bytes of a text.
// Started again it resumes from its newest checkpoint, with the same bits.
//
//   own_loop CONFIG.json TEXT OUT STEPS     CONFIG.json: of a Hugging Face decoder, at least 256 tokens
#include "mics/core/transport.h"
#include <mics/core/checkpoint.h>
#include <mics/core/engine.h>
#include <mics/core/transport.h>
#include <mics/mics.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RANKS = 4, NODES = 2, LENGTH = 64, SEQUENCES = 2, MICRO_STEPS = 2, SAVE_EVERY = 20 };

// What ranks share and nobody changes.
typedef struct loop {
    const char *out;
    char *config, *text; // of the files
    size_t text_bytes;
    int64_t steps;
    mics_model *model;
    mics_schedule *schedule;
    mics_thread_world *world;
} loop;

typedef struct rank {
    const loop *shared;
    int32_t index;
    int64_t step; // that is trained
    mics_memory *memory;
    mics_comm *comm;
    mics_engine *engine;
    mics_optimizer_shard *shards; // by unit
    mics_status status;
    pthread_t thread;
} rank;

// ---- data: windows of the text, drawn by step, rank and row ----

static uint64_t draw(uint64_t x)
{
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

static mics_status read_batch(void *ctx, int32_t micro_step, int32_t *inputs, int32_t *targets)
{
    const rank *self = ctx;
    const loop *shared = self->shared;
    for (int32_t row = 0; row < SEQUENCES; row++) {
        const int64_t sequence =
            ((self->step * MICRO_STEPS + micro_step) * RANKS + self->index) * SEQUENCES + row;
        const char *window =
            shared->text + draw((uint64_t)sequence) % (shared->text_bytes - LENGTH);
        for (int32_t i = 0; i < LENGTH; i++) {
            inputs[row * LENGTH + i] = (unsigned char)window[i];
            targets[row * LENGTH + i] = (unsigned char)window[i + 1];
        }
    }
    return MICS_OK;
}

// ---- checkpoints ----

static void add_state(mics_optimizer_shard *shard, const char *name, const float *data)
{
    shard->states[shard->state_count++] = (mics_shard_state){name, MICS_DTYPE_FP32, data};
}

// What this rank owns of each unit, where the engine has it.
static void find_shards(const rank *self)
{
    const loop *shared = self->shared;
    const mics_optimizer_def *optimizer = mics_optimizer_def_get(shared->schedule->spec.optimizer);
    for (int32_t u = 0; u < shared->model->unit_count; u++) {
        const mics_engine_optimizer_shard own = mics_engine_optimizer_shard_get(self->engine, u);
        mics_optimizer_shard *shard = &self->shards[u];
        *shard = (mics_optimizer_shard){.unit = shared->model->units[u].name,
                                        .unit_elems = shared->model->units[u].elems,
                                        .begin = own.range.begin,
                                        .end = own.range.end};
        add_state(shard, MICS_STATE_PARAM, own.params);
        for (int32_t s = 0; s < MICS_OPTIMIZER_STATES && own.states[s] != NULL; s++)
            add_state(shard, optimizer->state_names[s], own.states[s]);
    }
}

static mics_status agree(void *ctx, mics_status mine)
{
    return mics_engine_agree(ctx, mine);
}

// Ranks from O on hold what the first O hold, and write nothing.
static mics_status save(const rank *self)
{
    const loop *shared = self->shared;
    const mics_sharding sharding = shared->schedule->spec.mesh.sharding;
    const mics_checkpoint_writer writer = {.dir = shared->out,
                                           .rank = self->index,
                                           .writers = sharding.optimizer,
                                           .keep = 2,
                                           .agree = agree,
                                           .agree_ctx = self->engine};
    const mics_checkpoint_meta meta = {
        .step = self->step,
        .samples = self->step * MICRO_STEPS * RANKS * SEQUENCES,
        .seed = 1,
        .model_json = shared->config,
        .tokenizer = "bytes",
        .precision = "fp32",
        .optimizer = "AdamW",
        .sharding = {sharding.params, sharding.grads, sharding.optimizer},
        .layered_micro_steps = 1};
    MICS_TRY(mics_engine_complete(self->engine)); // what the step left for the next one
    MICS_TRY(mics_engine_download(self->engine));
    find_shards(self);
    return mics_checkpoint_save(self->memory, &writer, &meta, self->shards,
                                self->index < sharding.optimizer ? shared->model->unit_count : 0);
}

static mics_status read_shards(const rank *self, const mics_checkpoint *checkpoint)
{
    find_shards(self);
    for (int32_t u = 0; u < self->shared->model->unit_count; u++) {
        const mics_optimizer_shard *shard = &self->shards[u];
        for (int32_t s = 0; s < shard->state_count; s++) {
            float *data = (float *)(uintptr_t)shard->states[s].data; // the engine's, to be written
            MICS_TRY(mics_checkpoint_read(checkpoint, shard->unit, shard->unit_elems,
                                          shard->states[s].name, shard->begin, shard->end, data));
        }
    }
    MICS_TRY(mics_engine_upload(self->engine));
    return mics_engine_complete(self->engine); // shards of parameters from those of masters
}

static mics_status begin(rank *self)
{
    char *path = NULL;
    mics_checkpoint *checkpoint = NULL;
    MICS_TRY(mics_checkpoint_latest(self->memory, self->shared->out, &path));
    if (path == NULL)
        return mics_engine_init_random(self->engine, 1);
    mics_status status = mics_checkpoint_open(self->memory, path, &checkpoint);
    mics_free(self->memory, path);
    if (status != MICS_OK)
        return status;
    self->step = mics_checkpoint_meta_get(checkpoint)->step;
    status = read_shards(self, checkpoint);
    mics_checkpoint_close(checkpoint);
    return status;
}

// ---- the loop ----

// Linear warm-up over a tenth of the steps, then linear decay.
static float rate(int64_t step, int64_t steps)
{
    const int64_t warmup = steps / 10, left = steps - step + 1;
    return 2e-3F *
           (step <= warmup ? (float)step / (float)warmup : (float)left / (float)(steps - warmup));
}

static mics_status train(rank *self)
{
    const mics_batch_source source = {.read = read_batch, .ctx = self};
    mics_step_result result;
    while (self->step < self->shared->steps) {
        self->step++;
        MICS_TRY(mics_engine_step(self->engine, self->step, rate(self->step, self->shared->steps),
                                  &source, &result));
        if (self->index == 0)
            printf("step %lld  loss %.6f  to other nodes %lld bytes\n", (long long)self->step,
                   result.loss, (long long)result.sent.inter);
        if (self->step % SAVE_EVERY == 0 || self->step == self->shared->steps)
            MICS_TRY(save(self));
    }
    return MICS_OK;
}

// A collective of our own, over all ranks: the text must be the same on each.
static mics_status compare_texts(const rank *self)
{
    const mics_comm_group world = {.group = mics_mesh_group(&self->shared->schedule->spec.mesh,
                                                            MICS_AXIS_WORLD, MICS_SCOPE_WHOLE,
                                                            self->index),
                                   .what = "hashes of the text"};
    uint64_t hashes[RANKS] = {0}, *own = &hashes[self->index];
    for (size_t i = 0; i < self->shared->text_bytes; i++)
        *own = draw(*own ^ (unsigned char)self->shared->text[i]);
    MICS_TRY(mics_comm_all_gather(self->comm, &world, hashes, sizeof *hashes));
    for (int32_t other = 0; other < RANKS; other++) {
        if (hashes[other] != hashes[0])
            return mics_fail(MICS_ERR_INVALID, "rank %d has another text than rank 0", (int)other);
    }
    return MICS_OK;
}

static mics_status run(rank *self)
{
    const loop *shared = self->shared;
    mics_comm *thread = NULL;
    MICS_TRY(mics_comm_thread_open(self->memory, shared->world, self->index, &thread));
    self->comm = thread;
    MICS_TRY(mics_comm_count_open_take(self->memory, thread, RANKS / NODES, &self->comm));
    MICS_TRY(compare_texts(self));
    MICS_TRY(MICS_NEW(self->memory, shared->model->unit_count, &self->shards));
    const mics_engine_spec spec = {.memory = self->memory,
                                   .schedule = shared->schedule,
                                   .comm = self->comm,
                                   .optimizer = mics_optimizer_standard(MICS_OPTIMIZER_ADAMW),
                                   .clip = 1.0F};
    MICS_TRY(mics_engine_open(&spec, &self->engine));
    MICS_TRY(begin(self));
    return train(self);
}

static void *rank_main(void *ctx)
{
    rank *self = ctx;
    mics_log_set_rank(self->index);
    self->status = mics_memory_open(&self->memory);
    if (self->status == MICS_OK)
        self->status = run(self);
    if (self->status != MICS_OK && self->comm != NULL)
        mics_comm_abort(self->comm, NULL); // nobody waits for this rank any longer
    mics_engine_close(self->engine);
    mics_comm_close(self->comm);
    mics_free(self->memory, self->shards);
    mics_memory_close(self->memory);
    return NULL;
}

static mics_status run_ranks(const loop *shared)
{
    rank ranks[RANKS] = {{0}};
    mics_status status = MICS_OK;
    for (int32_t i = 0; i < RANKS; i++) {
        ranks[i] = (rank){.shared = shared, .index = i};
        if (pthread_create(&ranks[i].thread, NULL, rank_main, &ranks[i]) != 0) {
            fprintf(stderr, "own_loop: no thread for rank %d\n", (int)i);
            exit(1);
        }
    }
    for (int32_t i = 0; i < RANKS; i++) {
        pthread_join(ranks[i].thread, NULL);
        if (status == MICS_OK)
            status = ranks[i].status;
    }
    return status;
}

// ---- what is shared ----

static mics_status read_file(const char *path, char **text_out, size_t *bytes_out)
{
    FILE *file = fopen(path, "rb");
    char *text = NULL;
    size_t bytes = 0, capacity = 0;
    if (file == NULL)
        return mics_fail(MICS_ERR_IO, "%s cannot be opened; check the path", path);
    do {
        capacity = 2 * capacity + 4096;
        char *longer = realloc(text, capacity + 1);
        if (longer == NULL)
            break;
        text = longer;
        bytes += fread(text + bytes, 1, capacity - bytes, file);
    } while (bytes == capacity);
    const bool failed = ferror(file) != 0 || text == NULL || bytes == capacity;
    fclose(file);
    *text_out = text;
    if (failed)
        return mics_fail(MICS_ERR_IO, "%s cannot be read", path);
    text[bytes] = '\0';
    *bytes_out = bytes;
    return MICS_OK;
}

static mics_status open_shared(mics_memory *memory, char **argv, loop *shared)
{
    const mics_sharding mics_2 = {.params = 2, .grads = 2, .optimizer = 2};
    mics_schedule_spec spec = {.batch = {.sequences = SEQUENCES, .length = LENGTH, .threads = 1},
                               .micro_steps = MICRO_STEPS,
                               .prefetch = 1,
                               .optimizer = MICS_OPTIMIZER_ADAMW};
    size_t config_bytes = 0;
    MICS_TRY(read_file(argv[1], &shared->config, &config_bytes));
    MICS_TRY(read_file(argv[2], &shared->text, &shared->text_bytes));
    if (shared->text_bytes <= LENGTH)
        return mics_fail(MICS_ERR_INVALID, "%s: %zu bytes; more than %d are needed", argv[2],
                         shared->text_bytes, LENGTH);
    MICS_TRY(mics_model_load(memory, argv[1], &shared->model));
    if (shared->model->vocab < 256 || shared->model->positions < LENGTH)
        return mics_fail(MICS_ERR_INVALID, "%s: 256 tokens and %d positions are needed", argv[1],
                         LENGTH);
    MICS_TRY(mics_mesh_init(RANKS, NODES, mics_2, &spec.mesh));
    spec.model = shared->model;
    MICS_TRY(mics_schedule_open(memory, &spec, &shared->schedule));
    return mics_thread_world_open(memory, RANKS, 60, &shared->world);
}

int main(int argc, char **argv)
{
    mics_memory *memory = NULL;
    loop shared = {0};
    if (argc != 5 || (shared.steps = strtoll(argv[4], NULL, 10)) < 1) {
        fprintf(stderr, "usage: own_loop CONFIG.json TEXT OUT STEPS\n");
        return 2;
    }
    shared.out = argv[3];
    if (mics_memory_open(&memory) != MICS_OK)
        return 1;
    mics_status status = open_shared(memory, argv, &shared);
    if (status == MICS_OK)
        status = run_ranks(&shared);
    mics_thread_world_close(shared.world);
    mics_schedule_close(shared.schedule);
    mics_model_close(shared.model);
    mics_memory_close(memory);
    free(shared.config);
    free(shared.text);
    return status == MICS_OK ? 0 : 1;
}
