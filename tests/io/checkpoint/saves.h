// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Saves for tests: of four units by a world of threads, of one unit by one rank, and a folder for them.
#pragma once

#include "io/checkpoint/model.h"
#include "io/checkpoint/scratch.h"
#include <pthread.h>

static const model_unit UNITS[] = {
    {"embed", 600001}, // chunks of 262144 elements, the last one short
    {"h.0", 262144},   // exactly one
    {"h.1 \"odd\" \xc3\xa9", 7},
    {"head", 1},
};
enum { UNIT_COUNT = 4, RANKS_MAX = 8 };

// ---- a world of threads ----

typedef struct world {
    pthread_barrier_t barrier;
    int32_t ranks;
    mics_status said[RANKS_MAX];
    int32_t fail_rank; // this rank says MICS_ERR_COMM in its agreement number fail_call
    int32_t fail_call; // from 1; 0: never
} world;

typedef struct world_rank {
    world *world;
    int32_t rank;
    int32_t calls;
    mics_memory *memory;
    const char *dir;
    int64_t step, salt;
    int32_t writers, keep;
    mics_status result;
} world_rank;

static inline mics_status world_agree(void *ctx, mics_status mine)
{
    world_rank *me = ctx;
    world *all = me->world;
    me->calls++;
    if (me->rank == all->fail_rank && me->calls == all->fail_call && mine == MICS_OK)
        mine = MICS_ERR_COMM;
    all->said[me->rank] = mine;
    pthread_barrier_wait(&all->barrier);
    mics_status worst = MICS_OK;
    for (int32_t i = 0; i < all->ranks; i++)
        worst = all->said[i] > worst ? all->said[i] : worst;
    pthread_barrier_wait(&all->barrier);
    return worst;
}

static inline mics_checkpoint_meta meta_of(int64_t step, int64_t salt)
{
    return model_meta((mics_checkpoint_meta){
        .step = step,
        .samples = salt,
        .seed = UINT64_MAX - 1,
        .corpus_hash = 0x8000000000000001u,
        .model_json = "{\"n_layer\": 2, \"t\": \"\\u00e9 \xc3\xa9\\n\"}\n",
        .tokenizer = "bytes",
        .run_json = "tab\t quote\" back\\slash\r\n \x01\x7f",
        .scaler = {.scale = salt % 2 == 0 ? 0 : 0.375,
                   .steps = salt,
                   .since_overflow = 3,
                   .skipped = 2,
                   .hysteresis = 1},
        .recent = {salt % 2 == 0 ? 0 : 4, {0.1, 3, -2.5e-310, 1.7976931348623157e308}}});
}

static inline void *save_rank(void *ctx)
{
    world_rank *me = ctx;
    model_part part = {0};
    if (me->rank < me->writers)
        model_share(&part, UNITS, UNIT_COUNT, me->rank, me->writers, me->salt);
    mics_checkpoint_writer writer = {.dir = me->dir,
                                     .rank = me->rank,
                                     .writers = me->writers,
                                     .keep = me->keep,
                                     .agree = world_agree,
                                     .agree_ctx = me};
    mics_checkpoint_meta meta = meta_of(me->step, me->salt);
    me->result = mics_checkpoint_save(me->memory, &writer, &meta, part.shards, part.count);
    model_free(&part);
    return NULL;
}

typedef struct save_case {
    int32_t ranks, writers, keep;
    int64_t step, salt;
    int32_t fail_rank, fail_call;
} save_case;

// Saves from threads; returns what rank 0 got, which all ranks must agree on.
static inline mics_status save_world(mics_memory *memory, const char *dir, save_case how)
{
    world all = {.ranks = how.ranks, .fail_rank = how.fail_rank, .fail_call = how.fail_call};
    world_rank ranks[RANKS_MAX];
    pthread_t threads[RANKS_MAX];
    assert_int_equal(pthread_barrier_init(&all.barrier, NULL, (unsigned)how.ranks), 0);
    for (int32_t i = 0; i < how.ranks; i++) {
        ranks[i] = (world_rank){.world = &all,
                                .rank = i,
                                .memory = memory,
                                .dir = dir,
                                .step = how.step,
                                .salt = how.salt,
                                .writers = how.writers,
                                .keep = how.keep};
        assert_int_equal(pthread_create(&threads[i], NULL, save_rank, &ranks[i]), 0);
    }
    for (int32_t i = 0; i < how.ranks; i++)
        pthread_join(threads[i], NULL);
    pthread_barrier_destroy(&all.barrier);
    for (int32_t i = 1; i < how.ranks; i++)
        assert_int_equal(ranks[i].result, ranks[0].result);
    return ranks[0].result;
}

// Saves a part of one unit by one rank alone.
static inline mics_status save_small(mics_memory *memory, const char *dir, int64_t step,
                                     int64_t salt, int32_t keep)
{
    static const model_unit units[] = {{"u", 1000}};
    model_part part = {0};
    model_add(&part, units, 0, 0, 1000, salt);
    mics_checkpoint_writer writer = {.dir = dir, .writers = 1, .keep = keep};
    mics_checkpoint_meta meta = meta_of(step, salt);
    mics_status status = mics_checkpoint_save(memory, &writer, &meta, part.shards, part.count);
    model_free(&part);
    return status;
}

// The newest checkpoint must be of this step and salt, and be complete.
static inline void expect_small(mics_memory *memory, const char *dir, int64_t step, int64_t salt)
{
    static const model_unit units[] = {{"u", 1000}};
    char *path = NULL;
    mics_checkpoint *checkpoint = NULL;
    ASSERT_OK(mics_checkpoint_latest(memory, dir, &path));
    assert_non_null(path);
    ASSERT_OK(mics_checkpoint_open(memory, path, &checkpoint));
    assert_int_equal(mics_checkpoint_meta_get(checkpoint)->step, step);
    assert_int_equal(mics_checkpoint_meta_get(checkpoint)->samples, salt);
    model_check(checkpoint, units, 1, salt);
    mics_checkpoint_close(checkpoint);
    mics_free(memory, path);
}

// ---- what a test has: cmocka_unit_test_setup_teardown(NAME, saves_open, saves_close) ----

typedef struct saves {
    mics_memory *memory; // nothing of it may be left at the end
    scratch place;
} saves;

static inline int saves_open(void **state)
{
    saves *at = calloc(1, sizeof *at);
    assert_non_null(at);
    ASSERT_OK(mics_memory_open(&at->memory));
    scratch_make(&at->place);
    *state = at;
    return 0;
}

static inline int saves_close(void **state)
{
    saves *at = *state;
    scratch_remove(&at->place);
    assert_int_equal(mics_memory_close(at->memory), 0);
    free(at);
    return 0;
}

#define SAVES_TEST(name) cmocka_unit_test_setup_teardown(name, saves_open, saves_close)
