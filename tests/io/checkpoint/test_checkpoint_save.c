// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Saving and reading back: other meshes, saving a step again, keeping some, failures of each kind.
#include "base/capture.h"
#include "io/checkpoint/model.h"
#include "io/checkpoint/scratch.h"
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/wait.h>

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

static mics_status world_agree(void *ctx, mics_status mine)
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

static mics_checkpoint_meta meta_of(int64_t step, int64_t salt)
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

static void *save_rank(void *ctx)
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
static mics_status save_world(mics_memory *memory, const char *dir, save_case how)
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
static mics_status save_small(mics_memory *memory, const char *dir, int64_t step, int64_t salt,
                              int32_t keep)
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
static void expect_small(mics_memory *memory, const char *dir, int64_t step, int64_t salt)
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

// ---- tests ----

static void any_mesh_reads_what_any_other_wrote(void **state)
{
    (void)state;
    static const int32_t worlds[] = {1, 2, 3, 4, 8};
    mics_memory *memory = NULL;
    ASSERT_OK(mics_memory_open(&memory));
    for (size_t w = 0; w < sizeof worlds / sizeof *worlds; w++) {
        scratch place;
        scratch_make(&place);
        save_case how = {.ranks = worlds[w], .writers = worlds[w], .step = 3, .salt = 5};
        ASSERT_OK(save_world(memory, place.dir, how));
        mics_checkpoint *checkpoint = NULL;
        ASSERT_OK(mics_checkpoint_open(memory, scratch_path(&place, "step-00000003"), &checkpoint));
        model_check(checkpoint, UNITS, UNIT_COUNT, 5);
        for (int32_t rank = 0; rank < 5; rank++)
            model_check_range(checkpoint, UNITS, 0, 1, UNITS[0].elems * rank / 5,
                              UNITS[0].elems * (rank + 1) / 5, 5);
        // Around the ends of chunks, and nothing at all.
        model_check_range(checkpoint, UNITS, 0, 2, 262143, 262145, 5);
        model_check_range(checkpoint, UNITS, 0, 0, 524288, 524288, 5);
        model_check_range(checkpoint, UNITS, 0, 0, 600000, 600001, 5);
        mics_checkpoint_close(checkpoint);
        scratch_remove(&place);
    }
    assert_int_equal(mics_memory_close(memory), 0);
}

static void ranks_beyond_the_writers_take_part(void **state)
{
    (void)state;
    mics_memory *memory = NULL;
    ASSERT_OK(mics_memory_open(&memory));
    scratch place;
    scratch_make(&place);
    save_case how = {.ranks = 4, .writers = 2, .step = 1, .salt = 2};
    ASSERT_OK(save_world(memory, place.dir, how));
    assert_true(file_exists(scratch_path(&place, "step-00000001/rank-00001.mics")));
    assert_false(file_exists(scratch_path(&place, "step-00000001/rank-00002.mics")));
    mics_checkpoint *checkpoint = NULL;
    ASSERT_OK(mics_checkpoint_open(memory, scratch_path(&place, "step-00000001"), &checkpoint));
    model_check(checkpoint, UNITS, UNIT_COUNT, 2);
    mics_checkpoint_close(checkpoint);
    scratch_remove(&place);
    assert_int_equal(mics_memory_close(memory), 0);
}

static void meta_and_texts_come_back(void **state)
{
    (void)state;
    mics_memory *memory = NULL;
    ASSERT_OK(mics_memory_open(&memory));
    scratch place;
    scratch_make(&place);
    const char *source = scratch_path(&place, "my-tokenizer.json");
    file_write(source, "{\"model\": {}}", 13);

    model_part part = {0};
    model_share(&part, UNITS, UNIT_COUNT, 0, 1, 1);
    mics_checkpoint_writer writer = {.dir = scratch_path(&place, "a/b"), .writers = 1};
    mics_checkpoint_meta meta = meta_of(123456789, 77);
    meta.tokenizer = source;
    ASSERT_OK(mics_checkpoint_save(memory, &writer, &meta, part.shards, part.count));
    unlink(source);

    mics_checkpoint *checkpoint = NULL;
    const char *folder = scratch_path(&place, "a/b/step-123456789");
    ASSERT_OK(mics_checkpoint_open(memory, folder, &checkpoint));
    const mics_checkpoint_meta *back = mics_checkpoint_meta_get(checkpoint);
    assert_int_equal(back->step, 123456789);
    assert_int_equal(back->samples, 77);
    assert_true(back->seed == UINT64_MAX - 1);
    assert_true(back->corpus_hash == 0x8000000000000001u);
    assert_string_equal(back->model_json, meta.model_json);
    assert_string_equal(back->run_json, meta.run_json);
    assert_string_equal(back->precision, meta.precision);
    assert_string_equal(back->optimizer, meta.optimizer);
    assert_memory_equal(&back->sharding, &meta.sharding, sizeof meta.sharding);
    assert_int_equal(back->layered_micro_steps, meta.layered_micro_steps);
    assert_true(back->program[0] >= '0' && back->program[0] <= '9');
    if (meta.scaler.scale > 0)
        assert_memory_equal(&back->scaler, &meta.scaler, sizeof meta.scaler);
    else
        assert_true(back->scaler.scale == 0);
    assert_int_equal(back->recent.count, 4);
    assert_memory_equal(back->recent.list, meta.recent.list, 4 * sizeof meta.recent.list[0]);
    size_t bytes = 0;
    unsigned char *text = file_read(back->tokenizer, &bytes);
    assert_string_equal((char *)text, "{\"model\": {}}");
    free(text);
    text = file_read(scratch_path(&place, "a/b/step-123456789/config.json"), &bytes);
    assert_string_equal((char *)text, meta.model_json);
    free(text);
    mics_checkpoint_close(checkpoint);
    model_free(&part);
    scratch_remove(&place);
    assert_int_equal(mics_memory_close(memory), 0);
}

static void wrong_requests_are_refused(void **state)
{
    (void)state;
    mics_memory *memory = NULL;
    ASSERT_OK(mics_memory_open(&memory));
    scratch place;
    scratch_make(&place);
    ASSERT_OK(save_small(memory, place.dir, 1, 1, 0));
    mics_checkpoint *checkpoint = NULL;
    ASSERT_OK(mics_checkpoint_open(memory, scratch_path(&place, "step-00000001"), &checkpoint));
    float data[4];
    capture seen;
    capture_begin(&seen);
    ASSERT_STATUS(MICS_ERR_INVALID,
                  mics_checkpoint_read(checkpoint, "v", 1000, "param", 0, 4, data));
    ASSERT_SAID(&seen, "no unit v");
    ASSERT_STATUS(MICS_ERR_INVALID,
                  mics_checkpoint_read(checkpoint, "u", 999, "param", 0, 4, data));
    ASSERT_SAID(&seen, "1000 elements in the checkpoint, 999 in the model");
    ASSERT_STATUS(MICS_ERR_INVALID,
                  mics_checkpoint_read(checkpoint, "u", 1000, "param", 998, 1001, data));
    ASSERT_SAID(&seen, "998 to 1001");
    ASSERT_STATUS(MICS_ERR_INVALID,
                  mics_checkpoint_read(checkpoint, "u", 1000, "exp_inf", 0, 4, data));
    ASSERT_SAID(&seen, "has no state exp_inf, only param, exp_avg, exp_avg_sq");
    ASSERT_STATUS(MICS_ERR_IO, mics_checkpoint_open(memory, place.dir, &checkpoint));
    ASSERT_SAID(&seen, "manifest.json");
    capture_end();
    mics_checkpoint_close(checkpoint);
    scratch_remove(&place);
    assert_int_equal(mics_memory_close(memory), 0);
}

// A shard with two states.
static mics_optimizer_shard plain(const char *unit, int64_t unit_elems, int64_t begin, int64_t end)
{
    static const float data[16] = {1, 2, 3};
    return (mics_optimizer_shard){
        .unit = unit,
        .unit_elems = unit_elems,
        .begin = begin,
        .end = end,
        .state_count = 2,
        .states = {{MICS_STATE_PARAM, MICS_DTYPE_FP32, data}, {"sum", MICS_DTYPE_FP32, data}}};
}

// The same with another state in the second's place.
static mics_optimizer_shard with_state(int64_t begin, int64_t end, mics_shard_state state)
{
    mics_optimizer_shard shard = plain("u", 10, begin, end);
    shard.states[1] = state;
    return shard;
}

static mics_optimizer_shard with_count(int32_t state_count)
{
    mics_optimizer_shard shard = plain("u", 10, 0, 10);
    shard.state_count = state_count;
    return shard;
}

// A save of these shards fails so, and leaves nothing.
static void expect_unsaved(mics_memory *memory, const scratch *place,
                           const mics_optimizer_shard *shards, mics_status expected,
                           const char *said)
{
    const int32_t count = shards[1].unit != NULL ? 2 : 1;
    const mics_checkpoint_writer writer = {.dir = place->dir, .writers = 1};
    const mics_checkpoint_meta meta = meta_of(7, 1);
    char *path = NULL;
    capture seen;
    capture_begin(&seen);
    ASSERT_STATUS(expected, mics_checkpoint_save(memory, &writer, &meta, shards, count));
    ASSERT_SAID(&seen, said);
    capture_end();
    ASSERT_OK(mics_checkpoint_latest(memory, place->dir, &path));
    assert_null(path);
    rmdir(scratch_path(place, "step-00000007"));
    assert_false(file_exists(scratch_path(place, "step-00000007")));
}

static void bad_shards_are_not_saved(void **state)
{
    (void)state;
    static const float data[16] = {0};
    const struct {
        mics_optimizer_shard shards[2];
        mics_status status;
        const char *said;
    } cases[] = {
        {{plain("u", 10, 0, 9)}, MICS_ERR_FORMAT, "ends at element 9"},
        {{plain("u", 10, 1, 10)}, MICS_ERR_FORMAT, "0 is the first"},
        {{plain("u", 10, 0, 6), plain("u", 10, 5, 10)}, MICS_ERR_FORMAT, "another shard too"},
        {{plain("u", 10, 0, 5), plain("u", 9, 5, 9)}, MICS_ERR_FORMAT, "10 in"},
        {{plain("u", 10, 4, 4)}, MICS_ERR_FORMAT, "empty in every file"},
        {{plain("u", 10, 0, 11)}, MICS_ERR_INVALID, "elements 0 to 11"},
        {{plain("", 10, 0, 10)}, MICS_ERR_INVALID, "no unit name"},
        {{plain("\xff", 10, 0, 10)}, MICS_ERR_FORMAT, "manifest.json"},
        {{with_count(0)}, MICS_ERR_INVALID, "has 0 states; 1 to 8"},
        {{with_count(9)}, MICS_ERR_INVALID, "has 9 states; 1 to 8"},
        {{with_state(0, 10, (mics_shard_state){"sum", MICS_DTYPE_FP32, NULL})},
         MICS_ERR_INVALID,
         "state sum of unit u has no data"},
        {{with_state(0, 10, (mics_shard_state){NULL, MICS_DTYPE_FP32, data})},
         MICS_ERR_INVALID,
         "state 1 of unit u has no name"},
        {{with_state(0, 10, (mics_shard_state){MICS_STATE_PARAM, MICS_DTYPE_FP32, data})},
         MICS_ERR_INVALID,
         "two states called param"},
        {{with_state(0, 10, (mics_shard_state){"sum", MICS_DTYPE_BF16, data})},
         MICS_ERR_UNSUPPORTED,
         "state sum of unit u is bf16"},
        {{plain("u", 10, 0, 5),
          with_state(5, 10, (mics_shard_state){"mean", MICS_DTYPE_FP32, data})},
         MICS_ERR_FORMAT,
         "unit u has other states here"},
    };
    mics_memory *memory = NULL;
    scratch place;
    ASSERT_OK(mics_memory_open(&memory));
    scratch_make(&place);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        expect_unsaved(memory, &place, cases[i].shards, cases[i].status, cases[i].said);
    scratch_remove(&place);
    assert_int_equal(mics_memory_close(memory), 0);
}

// Optimizers differ in how much they keep: one with nothing beside the parameters, one with three.
static void units_have_states_of_their_own(void **state)
{
    (void)state;
    static const float data[4][6] = {{1, 2, 3, 4, 5, 6}, {-1}, {7, 8}, {0.5f, 0, 9}};
    const mics_optimizer_shard shards[] = {
        {"bare", 6, 0, 6, 1, {{MICS_STATE_PARAM, MICS_DTYPE_FP32, data[2]}}},
        {"rich",
         6,
         0,
         6,
         4,
         {{"z", MICS_DTYPE_FP32, data[3]},
          {MICS_STATE_PARAM, MICS_DTYPE_FP32, data[0]},
          {"momentum_buffer", MICS_DTYPE_FP32, data[1]},
          {"\xc3\xa9 \"odd\"", MICS_DTYPE_FP32, data[2]}}},
    };
    mics_memory *memory = NULL;
    mics_checkpoint *checkpoint = NULL;
    scratch place;
    float found[6];
    capture seen;
    ASSERT_OK(mics_memory_open(&memory));
    scratch_make(&place);
    const mics_checkpoint_writer writer = {.dir = place.dir, .writers = 1};
    const mics_checkpoint_meta meta = meta_of(1, 1);
    ASSERT_OK(mics_checkpoint_save(memory, &writer, &meta, shards, 2));
    ASSERT_OK(mics_checkpoint_open(memory, scratch_path(&place, "step-00000001"), &checkpoint));
    for (int unit = 0; unit < 2; unit++) {
        for (int32_t s = 0; s < shards[unit].state_count; s++) {
            ASSERT_OK(mics_checkpoint_read(checkpoint, shards[unit].unit, 6,
                                           shards[unit].states[s].name, 0, 6, found));
            assert_memory_equal(found, shards[unit].states[s].data, sizeof found);
        }
    }
    capture_begin(&seen);
    ASSERT_STATUS(MICS_ERR_INVALID,
                  mics_checkpoint_read(checkpoint, "bare", 6, "exp_avg", 0, 6, found));
    ASSERT_SAID(&seen, "unit bare has no state exp_avg, only param;");
    capture_end();
    mics_checkpoint_close(checkpoint);
    scratch_remove(&place);
    assert_int_equal(mics_memory_close(memory), 0);
}

// Version 2 says how the run was resolved, so a save without that is refused.
static void a_save_says_how_the_run_was_resolved(void **state)
{
    (void)state;
    mics_memory *memory = NULL;
    scratch place;
    capture seen;
    const mics_optimizer_shard shard = plain("u", 10, 0, 10);
    ASSERT_OK(mics_memory_open(&memory));
    scratch_make(&place);
    const mics_checkpoint_writer writer = {.dir = place.dir, .writers = 1};
    mics_checkpoint_meta metas[4];
    for (int i = 0; i < 4; i++)
        metas[i] = meta_of(1, 1);
    metas[0].precision = NULL;
    metas[1].optimizer = NULL;
    metas[2].sharding.grads = 0;
    metas[3].layered_micro_steps = 0;
    capture_begin(&seen);
    for (int i = 0; i < 4; i++) {
        ASSERT_STATUS(MICS_ERR_INVALID,
                      mics_checkpoint_save(memory, &writer, &metas[i], &shard, 1));
        ASSERT_SAID(&seen, "needs precision, optimizer, sharding");
    }
    capture_end();
    scratch_remove(&place);
    assert_int_equal(mics_memory_close(memory), 0);
}

static void only_the_newest_are_kept_and_strangers_stay(void **state)
{
    (void)state;
    mics_memory *memory = NULL;
    ASSERT_OK(mics_memory_open(&memory));
    scratch place;
    scratch_make(&place);
    mkdir(scratch_path(&place, "step-7"), 0777);        // not our kind of name
    mkdir(scratch_path(&place, "step-00000050"), 0777); // ours by name, but with a stranger in it
    file_write(scratch_path(&place, "step-00000050/notes.txt"), "x", 1);
    mkdir(scratch_path(&place, "step-00000060"), 0777); // a left-over of a failed save
    file_write(scratch_path(&place, "step-00000060/rank-00000.mics"), "x", 1);
    file_write(scratch_path(&place, "step-00000060/manifest.json.tmp"), "x", 1);
    mkdir(scratch_path(&place, "elsewhere"), 0777);
    file_write(scratch_path(&place, "elsewhere/rank-00000.mics"), "x", 1);
    assert_int_equal(symlink("elsewhere", scratch_path(&place, "step-00000070")), 0);

    for (int64_t step = 1; step <= 4; step++)
        ASSERT_OK(save_small(memory, place.dir, step, step, 2));
    assert_false(file_exists(scratch_path(&place, "step-00000001")));
    assert_false(file_exists(scratch_path(&place, "step-00000002")));
    assert_true(file_exists(scratch_path(&place, "step-00000003/manifest.json")));
    assert_true(file_exists(scratch_path(&place, "step-00000004/manifest.json")));
    assert_true(file_exists(scratch_path(&place, "step-7")));
    assert_true(file_exists(scratch_path(&place, "step-00000050/notes.txt")));
    assert_false(file_exists(scratch_path(&place, "step-00000060")));
    assert_true(file_exists(scratch_path(&place, "elsewhere/rank-00000.mics")));

    // A run that went back to step 2 keeps what it saved last, not the highest steps.
    ASSERT_OK(save_small(memory, place.dir, 2, 20, 2));
    expect_small(memory, place.dir, 2, 20);
    assert_false(file_exists(scratch_path(&place, "step-00000003")));
    ASSERT_OK(save_small(memory, place.dir, 3, 30, 1));
    assert_false(file_exists(scratch_path(&place, "step-00000002")));
    assert_false(file_exists(scratch_path(&place, "step-00000004")));
    expect_small(memory, place.dir, 3, 30);
    scratch_remove(&place);
    assert_int_equal(mics_memory_close(memory), 0);
}

static void one_that_is_withdrawn_does_not_count(void **state)
{
    (void)state;
    mics_memory *memory = NULL;
    capture seen;
    ASSERT_OK(mics_memory_open(&memory));
    scratch place;
    scratch_make(&place);
    ASSERT_OK(save_small(memory, place.dir, 1, 11, 0));
    ASSERT_OK(save_small(memory, place.dir, 2, 12, 0));
    ASSERT_OK(mics_checkpoint_withdraw(memory, place.dir, 2));
    expect_small(memory, place.dir, 1, 11);
    ASSERT_OK(mics_checkpoint_withdraw(memory, place.dir, 2)); // it is gone
    ASSERT_OK(mics_checkpoint_withdraw(memory, place.dir, 3)); // there never was one
    mkdir(scratch_path(&place, "step-00000004"), 0777);
    mkdir(scratch_path(&place, "step-00000004/manifest.json"), 0777);
    capture_begin(&seen);
    ASSERT_STATUS(MICS_ERR_IO, mics_checkpoint_withdraw(memory, place.dir, 4));
    ASSERT_SAID(&seen, "step-00000004/manifest.json: cannot remove: ");
    capture_end();
    ASSERT_OK(mics_checkpoint_clean(memory, place.dir));
    assert_false(file_exists(scratch_path(&place, "step-00000002")));
    scratch_remove(&place);
    assert_int_equal(mics_memory_close(memory), 0);
}

static void a_step_can_be_saved_again(void **state)
{
    (void)state;
    mics_memory *memory = NULL;
    ASSERT_OK(mics_memory_open(&memory));
    scratch place;
    scratch_make(&place);
    for (int64_t salt = 1; salt <= 4; salt++) {
        ASSERT_OK(save_small(memory, place.dir, 9, salt, 3));
        expect_small(memory, place.dir, 9, salt);
    }
    assert_false(file_exists(scratch_path(&place, "step-00000009/rank-00000.mics")));
    assert_true(file_exists(scratch_path(&place, "step-00000009/rank-00000-g3.mics")));
    // By fewer ranks than before, and after a save by more that failed.
    save_case failing = {
        .ranks = 4, .writers = 4, .step = 9, .salt = 5, .fail_rank = 2, .fail_call = 2};
    ASSERT_STATUS(MICS_ERR_COMM, save_world(memory, place.dir, failing));
    expect_small(memory, place.dir, 9, 4);
    assert_false(file_exists(scratch_path(&place, "step-00000009/rank-00003-g4.mics")));
    scratch_remove(&place);
    assert_int_equal(mics_memory_close(memory), 0);
}

// Two ranks save by themselves; a file that an earlier save left does not pass for one of theirs.
static void ranks_save_without_a_word(void **state)
{
    (void)state;
    static const model_unit units[] = {{"u", 1000}};
    mics_memory *memory = NULL;
    mics_checkpoint_saving *savings[2] = {NULL, NULL};
    const mics_checkpoint_meta meta = meta_of(7, 5);
    scratch place;
    ASSERT_OK(mics_memory_open(&memory));
    scratch_make(&place);
    ASSERT_OK(mics_checkpoint_clean(memory, scratch_path(&place, "none")));
    ASSERT_OK(save_small(memory, place.dir, 6, 4, 0));
    ASSERT_OK(save_small(memory, place.dir, 7, 4, 0));
    static const char *const left[] = {"step-00000007/rank-00001-g1.mics",
                                       "step-00000007/rank-00000-g1.part.mics"};
    for (int i = 0; i < 2; i++)
        file_write(scratch_path(&place, left[i]), "left", 4);
    ASSERT_OK(mics_checkpoint_clean(memory, place.dir));
    for (int i = 0; i < 2; i++)
        assert_false(file_exists(scratch_path(&place, left[i])));
    for (int32_t rank = 0; rank < 2; rank++) {
        const mics_checkpoint_writer writer = {.dir = place.dir, .rank = rank, .writers = 2};
        model_part part = {0};
        model_share(&part, units, 1, rank, 2, 5);
        ASSERT_OK(mics_checkpoint_save_open(memory, &writer, &meta, &savings[rank]));
        assert_false(mics_checkpoint_save_is_written(savings[0]));
        ASSERT_OK(mics_checkpoint_save_write(savings[rank], part.shards, part.count));
        model_free(&part);
    }
    assert_true(mics_checkpoint_save_is_written(savings[0]));
    expect_small(memory, place.dir, 7, 4); // until it is committed
    assert_false(mics_checkpoint_save_is_committed(savings[1]));
    ASSERT_OK(mics_checkpoint_save_commit(savings[0]));
    assert_true(mics_checkpoint_save_is_committed(savings[1]));
    expect_small(memory, place.dir, 7, 5);
    for (int32_t rank = 0; rank < 2; rank++)
        mics_checkpoint_save_close(savings[rank], false);
    ASSERT_OK(mics_checkpoint_prune(memory, place.dir, 1, 7));
    assert_false(file_exists(scratch_path(&place, "step-00000006/manifest.json")));
    expect_small(memory, place.dir, 7, 5);
    // What was saved since stays, and one that is not there removes nothing.
    ASSERT_OK(save_small(memory, place.dir, 8, 6, 0));
    ASSERT_OK(mics_checkpoint_prune(memory, place.dir, 1, 7));
    ASSERT_OK(mics_checkpoint_prune(memory, place.dir, 1, 9));
    assert_true(file_exists(scratch_path(&place, "step-00000007/manifest.json")));
    expect_small(memory, place.dir, 8, 6);
    scratch_remove(&place);
    assert_int_equal(mics_memory_close(memory), 0);
}

// When another rank has failed, each removes its own file.
static void a_save_in_parts_that_fails_leaves_nothing(void **state)
{
    (void)state;
    static const model_unit units[] = {{"u", 1000}};
    mics_memory *memory = NULL;
    mics_checkpoint_saving *saving = NULL;
    const mics_checkpoint_meta meta = meta_of(8, 5);
    scratch place;
    ASSERT_OK(mics_memory_open(&memory));
    scratch_make(&place);
    for (int32_t rank = 1; rank >= 0; rank--) {
        const mics_checkpoint_writer writer = {.dir = place.dir, .rank = rank, .writers = 3};
        model_part part = {0};
        model_share(&part, units, 1, rank, 3, 5);
        ASSERT_OK(mics_checkpoint_save_open(memory, &writer, &meta, &saving));
        ASSERT_OK(mics_checkpoint_save_write(saving, part.shards, part.count));
        assert_false(mics_checkpoint_save_is_written(saving));
        mics_checkpoint_save_close(saving, true);
        model_free(&part);
    }
    assert_false(file_exists(scratch_path(&place, "step-00000008")));
    scratch_remove(&place);
    assert_int_equal(mics_memory_close(memory), 0);
}

static void a_rank_that_fails_fails_the_save(void **state)
{
    (void)state;
    mics_memory *memory = NULL;
    ASSERT_OK(mics_memory_open(&memory));
    scratch place;
    scratch_make(&place);
    ASSERT_OK(save_small(memory, place.dir, 1, 11, 1));
    for (int32_t rank = 0; rank < 3; rank++) {
        for (int32_t call = 1; call <= 2; call++) {
            save_case how = {.ranks = 3,
                             .writers = 3,
                             .keep = 1,
                             .step = 2,
                             .salt = 1,
                             .fail_rank = rank,
                             .fail_call = call};
            ASSERT_STATUS(MICS_ERR_COMM, save_world(memory, place.dir, how));
            expect_small(memory, place.dir, 1, 11);
            if (call == 2)
                assert_false(file_exists(scratch_path(&place, "step-00000002")));
        }
    }
    scratch_remove(&place);
    assert_int_equal(mics_memory_close(memory), 0);
}

static void latest_may_be_lost(void **state)
{
    (void)state;
    mics_memory *memory = NULL;
    ASSERT_OK(mics_memory_open(&memory));
    scratch place;
    scratch_make(&place);
    char *path = NULL;
    ASSERT_OK(mics_checkpoint_latest(memory, scratch_path(&place, "none"), &path));
    assert_null(path);
    ASSERT_OK(mics_checkpoint_latest(memory, place.dir, &path));
    assert_null(path);
    for (int64_t step = 1; step <= 3; step++)
        ASSERT_OK(save_small(memory, place.dir, step, step, 0));

    static const char *const bad[] = {"step-00000099\n", "../elsewhere\n", "", "step-00000003/..",
                                      "step-999999999999999999999\n"};
    unlink(scratch_path(&place, "latest"));
    expect_small(memory, place.dir, 3, 3);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        file_write(scratch_path(&place, "latest"), bad[i], strlen(bad[i]));
        expect_small(memory, place.dir, 3, 3);
    }
    // The newest has lost a file, the one before its manifest.
    file_write(scratch_path(&place, "latest"), "step-00000003\n", 14);
    unlink(scratch_path(&place, "step-00000003/rank-00000.mics"));
    expect_small(memory, place.dir, 2, 2);
    file_write(scratch_path(&place, "step-00000002/manifest.json"), "{}", 2);
    capture seen;
    capture_begin(&seen);
    expect_small(memory, place.dir, 1, 1);
    capture_end();
    // A save goes on from there.
    ASSERT_OK(save_small(memory, place.dir, 2, 22, 0));
    expect_small(memory, place.dir, 2, 22);
    scratch_remove(&place);
    assert_int_equal(mics_memory_close(memory), 0);
}

// A run whose checkpoints have all lost something must not look like a new one.
static void a_folder_without_a_complete_one_is_an_error(void **state)
{
    (void)state;
    mics_memory *memory = NULL;
    ASSERT_OK(mics_memory_open(&memory));
    scratch place;
    scratch_make(&place);
    ASSERT_OK(save_small(memory, place.dir, 1, 1, 0));
    ASSERT_OK(save_small(memory, place.dir, 2, 2, 0));
    unlink(scratch_path(&place, "step-00000002/rank-00000.mics"));
    file_write(scratch_path(&place, "step-00000001/manifest.json"), "{}", 2);
    char *path = NULL;
    capture seen;
    capture_begin(&seen);
    ASSERT_STATUS(MICS_ERR_FORMAT, mics_checkpoint_latest(memory, place.dir, &path));
    ASSERT_SAID(&seen, "none of its checkpoints (2, the newest is step-00000002) is complete");
    assert_null(path);
    unlink(scratch_path(&place, "latest"));
    ASSERT_STATUS(MICS_ERR_FORMAT, mics_checkpoint_latest(memory, place.dir, &path));
    ASSERT_SAID(&seen, "is complete");
    // Only a save that never got so far as a manifest counts for nothing.
    unlink(scratch_path(&place, "step-00000001/manifest.json"));
    unlink(scratch_path(&place, "step-00000002/manifest.json"));
    ASSERT_OK(mics_checkpoint_latest(memory, place.dir, &path));
    assert_null(path);
    capture_end();
    scratch_remove(&place);
    assert_int_equal(mics_memory_close(memory), 0);
}

// What a save makes good is no error: who keeps the first error line of a run keeps the true one.
static void a_damaged_neighbour_is_a_warning(void **state)
{
    (void)state;
    mics_memory *memory = NULL;
    ASSERT_OK(mics_memory_open(&memory));
    scratch place;
    scratch_make(&place);
    ASSERT_OK(save_small(memory, place.dir, 1, 1, 0));
    file_write(scratch_path(&place, "step-00000001/manifest.json"), "{}", 2);
    capture seen;
    capture_begin(&seen);
    ASSERT_OK(save_small(memory, place.dir, 2, 2, 1));
    ASSERT_OK(save_small(memory, place.dir, 1, 3, 0)); // in its place
    assert_int_equal(seen.errors, 0);
    assert_true(seen.warnings >= 2);
    capture_end();
    expect_small(memory, place.dir, 1, 3);
    scratch_remove(&place);
    assert_int_equal(mics_memory_close(memory), 0);
}

// A manifest that cannot be looked at is not one that is not there: its files stay untouched.
static void a_manifest_out_of_sight_is_not_overwritten(void **state)
{
    (void)state;
    mics_memory *memory = NULL;
    ASSERT_OK(mics_memory_open(&memory));
    scratch place;
    scratch_make(&place);
    ASSERT_OK(save_small(memory, place.dir, 1, 1, 0));
    const char *manifest = scratch_path(&place, "step-00000001/manifest.json");
    const char *hidden = scratch_path(&place, "step-00000001/hidden");
    assert_int_equal(rename(manifest, hidden), 0);
    assert_int_equal(symlink("manifest.json", manifest), 0); // ELOOP
    capture seen;
    capture_begin(&seen);
    ASSERT_STATUS(MICS_ERR_IO, save_small(memory, place.dir, 1, 2, 0));
    ASSERT_SAID(&seen, "manifest.json: cannot look at it");
    capture_end();
    assert_int_equal(rename(hidden, manifest), 0);
    expect_small(memory, place.dir, 1, 1);
    scratch_remove(&place);
    assert_int_equal(mics_memory_close(memory), 0);
}

// The tokenizer is saved as it was read, though its file has gone.
static void a_tokenizer_is_saved_from_its_text(void **state)
{
    (void)state;
    static const char text[] = "{\"a\": 1}";
    static const model_unit units[] = {{"u", 10}};
    mics_memory *memory = NULL;
    ASSERT_OK(mics_memory_open(&memory));
    scratch place;
    scratch_make(&place);
    model_part part = {0};
    model_add(&part, units, 0, 0, 10, 1);
    mics_checkpoint_writer writer = {.dir = place.dir, .writers = 1};
    mics_checkpoint_meta meta = meta_of(1, 1);
    meta.tokenizer = "/nowhere/tokenizer.json";
    meta.tokenizer_text = text;
    meta.tokenizer_bytes = sizeof text - 1;
    ASSERT_OK(mics_checkpoint_save(memory, &writer, &meta, part.shards, part.count));
    size_t bytes = 0;
    unsigned char *saved = file_read(scratch_path(&place, "step-00000001/tokenizer.json"), &bytes);
    assert_int_equal(bytes, sizeof text - 1);
    assert_memory_equal(saved, text, bytes);
    free(saved);
    model_free(&part);
    scratch_remove(&place);
    assert_int_equal(mics_memory_close(memory), 0);
}

static void an_allocation_that_fails_leaks_nothing(void **state)
{
    (void)state;
    scratch place;
    scratch_make(&place);
    capture seen;
    capture_begin(&seen);
    mics_memory *memory = NULL;
    ASSERT_OK(mics_memory_open(&memory));
    ASSERT_OK(save_small(memory, place.dir, 1, 1, 2));
    mics_status status = MICS_ERR_MEMORY;
    int64_t nth = 1;
    for (; status != MICS_OK && nth < 1000; nth++) {
        mics_memory_fail_after(memory, nth);
        status = save_small(memory, place.dir, 2, 2, 2);
        mics_memory_fail_after(memory, 0);
        if (status != MICS_OK)
            assert_int_equal(status, MICS_ERR_MEMORY);
        mics_memory_stats stats;
        mics_memory_stats_get(memory, &stats);
        assert_int_equal(stats.live_blocks, 0);
        expect_small(memory, place.dir, status == MICS_OK ? 2 : 1, status == MICS_OK ? 2 : 1);
        // Pruning may fail once all is on disk; a save that failed after publishing does not exist.
    }
    assert_in_range(nth, 10, 999);

    status = MICS_ERR_MEMORY;
    for (nth = 1; status != MICS_OK && nth < 1000; nth++) {
        char *path = NULL;
        mics_checkpoint *checkpoint = NULL;
        float data[10];
        mics_memory_fail_after(memory, nth);
        status = mics_checkpoint_latest(memory, place.dir, &path);
        if (status == MICS_OK)
            status = mics_checkpoint_open(memory, path, &checkpoint);
        if (status == MICS_OK)
            status = mics_checkpoint_read(checkpoint, "u", 1000, MICS_STATE_PARAM, 5, 15, data);
        mics_memory_fail_after(memory, 0);
        mics_checkpoint_close(checkpoint);
        mics_free(memory, path);
        mics_memory_stats stats;
        mics_memory_stats_get(memory, &stats);
        assert_int_equal(stats.live_blocks, 0);
    }
    assert_in_range(nth, 10, 999);
    capture_end();
    scratch_remove(&place);
    assert_int_equal(mics_memory_close(memory), 0);
}

static void a_file_size_limit_is_an_error_not_a_signal(void **state)
{
    (void)state;
    mics_memory *memory = NULL;
    ASSERT_OK(mics_memory_open(&memory));
    scratch place;
    scratch_make(&place);
    ASSERT_OK(save_small(memory, place.dir, 1, 1, 1));
    struct rlimit before;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    struct rlimit limit = {.rlim_cur = 4096, .rlim_max = before.rlim_max};
    capture seen;
    capture_begin(&seen);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    mics_status status = save_small(memory, place.dir, 2, 2, 1);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    capture_end();
    assert_int_equal(status, MICS_ERR_IO);
    ASSERT_SAID(&seen, "step-00000002/rank-00000.part.mics: cannot write 12352 bytes");
    assert_false(file_exists(scratch_path(&place, "step-00000002")));
    expect_small(memory, place.dir, 1, 1);
    scratch_remove(&place);
    assert_int_equal(mics_memory_close(memory), 0);
}

enum { CHILD_SKIPS = 77 };

// In a file system of so many bytes: saves until one fails, then checks what is left. Own process,
// so that the mount ends with it.
static int fill_disk(const char *dir, const char *size)
{
    if (unshare(CLONE_NEWNS) != 0 || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
        mount("none", dir, "tmpfs", 0, size) != 0)
        return CHILD_SKIPS;
    mics_memory *memory = NULL;
    if (mics_memory_open(&memory) != MICS_OK)
        return 1;
    capture seen;
    capture_begin(&seen);
    int64_t step = 1;
    while (step < 50 && save_small(memory, dir, step, step, 0) == MICS_OK)
        step++;
    if (step < 2 || step == 50 || seen.errors != 1 || strstr(seen.line, "No space left") == NULL ||
        strstr(seen.line, "bytes") == NULL || strstr(seen.line, dir) == NULL) {
        fprintf(stderr, "step %d: %d errors: %s\n", (int)step, seen.errors, seen.line);
        return 2;
    }
    // What is left of the failed save is nothing, or, when only `latest` did not fit, all of it.
    char folder[SCRATCH_PATH * 2];
    char manifest[SCRATCH_PATH * 2];
    snprintf(folder, sizeof folder, "%s/step-%08d", dir, (int)step);
    snprintf(manifest, sizeof manifest, "%s/step-%08d/manifest.json", dir, (int)step);
    if (file_exists(folder) && !file_exists(manifest))
        return 3;
    expect_small(memory, dir, step - 1, step - 1);
    capture_end();
    return mics_memory_close(memory) == 0 ? 0 : 4;
}

static void a_full_disk_leaves_the_checkpoint_before(void **state)
{
    (void)state;
    // So that it is full at one file or another.
    static const char *const sizes[] = {"size=64k", "size=68k", "size=72k", "size=76k", "size=80k"};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        scratch place;
        scratch_make(&place);
        fflush(NULL);
        pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0)
            _exit(fill_disk(place.dir, sizes[i]));
        int code = 0;
        assert_int_equal(waitpid(child, &code, 0), child);
        scratch_remove(&place);
        if (WIFEXITED(code) && WEXITSTATUS(code) == CHILD_SKIPS)
            skip(); // may not mount here
        assert_true(WIFEXITED(code));
        assert_int_equal(WEXITSTATUS(code), 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_mesh_reads_what_any_other_wrote),
        cmocka_unit_test(ranks_beyond_the_writers_take_part),
        cmocka_unit_test(meta_and_texts_come_back),
        cmocka_unit_test(wrong_requests_are_refused),
        cmocka_unit_test(bad_shards_are_not_saved),
        cmocka_unit_test(units_have_states_of_their_own),
        cmocka_unit_test(a_save_says_how_the_run_was_resolved),
        cmocka_unit_test(only_the_newest_are_kept_and_strangers_stay),
        cmocka_unit_test(one_that_is_withdrawn_does_not_count),
        cmocka_unit_test(a_step_can_be_saved_again),
        cmocka_unit_test(a_rank_that_fails_fails_the_save),
        cmocka_unit_test(ranks_save_without_a_word),
        cmocka_unit_test(a_save_in_parts_that_fails_leaves_nothing),
        cmocka_unit_test(latest_may_be_lost),
        cmocka_unit_test(a_folder_without_a_complete_one_is_an_error),
        cmocka_unit_test(a_damaged_neighbour_is_a_warning),
        cmocka_unit_test(a_manifest_out_of_sight_is_not_overwritten),
        cmocka_unit_test(a_tokenizer_is_saved_from_its_text),
        cmocka_unit_test(an_allocation_that_fails_leaks_nothing),
        cmocka_unit_test(a_file_size_limit_is_an_error_not_a_signal),
        cmocka_unit_test(a_full_disk_leaves_the_checkpoint_before),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
