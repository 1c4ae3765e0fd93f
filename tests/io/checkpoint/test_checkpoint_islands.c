// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Checkpoints of islands: what they agreed on is read as the parameters, each island's state by its name;
// a state that is missing, or one too many, is told, and so is damage in any byte.
#include "base/capture.h"
#include "io/checkpoint/saves.h"

enum { ISLANDS = 2, ELEMS = 40, PARTS = 2, WINDOWS = 2 };

static const char *const own_states[] = {MICS_STATE_PARAM, "exp_avg"},
                         *const agreed_states[] = {MICS_STATE_PARAM, MICS_STATE_OUTER_MOMENTUM};

// Of island `of` - 1, or what all agreed on (0).
static float value_of(int32_t of, int state, int64_t at)
{
    return (float)(at + 100 * state + 1000 * of);
}

static mics_optimizer_shard shard_of(int32_t of, int32_t part, float *data)
{
    const int64_t begin = ELEMS * part / PARTS, end = ELEMS * (part + 1) / PARTS;
    mics_optimizer_shard shard = {.unit = "h.0",
                                  .of_island = of,
                                  .unit_elems = ELEMS,
                                  .begin = begin,
                                  .end = end,
                                  .state_count = 2};
    for (int state = 0; state < 2; state++) {
        float *to = data + state * (end - begin);
        for (int64_t at = begin; at < end; at++)
            to[at - begin] = value_of(of, state, at);
        shard.states[state] =
            (mics_shard_state){.name = (of > 0 ? own_states : agreed_states)[state], .data = to};
    }
    return shard;
}

static mics_checkpoint_meta meta_with(int32_t islands, const int64_t *counted)
{
    mics_checkpoint_meta meta = meta_of(7, 2);
    meta.outer = (mics_checkpoint_outer){.islands = islands,
                                         .every = 4,
                                         .fragments = 2,
                                         .overlap_steps = 1,
                                         .met = 8,
                                         .counted = counted,
                                         .windows = WINDOWS};
    return meta;
}

// By one rank, without the state `but` (-1: with all), of islands 1 to `islands`.
static mics_status save(saves *at, int32_t islands, int32_t but, const mics_checkpoint_meta *meta)
{
    enum { MAX_SHARDS = 16 };
    static float data[MAX_SHARDS][2 * ELEMS];
    mics_optimizer_shard shards[MAX_SHARDS];
    int32_t count = 0;
    for (int32_t of = 0; of <= islands; of++) {
        for (int32_t part = 0; of != but && part < PARTS; part++, count++)
            shards[count] = shard_of(of, part, data[count]);
    }
    const mics_checkpoint_writer writer = {.dir = at->place.dir, .writers = 1};
    return mics_checkpoint_save(at->memory, &writer, meta, shards, count);
}

static void expect_state(const mics_checkpoint *checkpoint, const char *unit, int32_t of, int state)
{
    float data[ELEMS];
    ASSERT_OK(mics_checkpoint_read(
        checkpoint, unit, ELEMS, (of > 0 ? own_states : agreed_states)[state], 3, ELEMS - 5, data));
    for (int64_t at = 3; at < ELEMS - 5; at++)
        assert_true(data[at - 3] == value_of(of, state, at));
}

static void comes_back(void **state)
{
    saves *at = *state;
    static const int64_t counted[WINDOWS * ISLANDS] = {512, 0, 0, (int64_t)1 << 60};
    const mics_checkpoint_meta meta = meta_with(ISLANDS, counted);
    mics_checkpoint *checkpoint = NULL;
    ASSERT_OK(save(at, ISLANDS, -1, &meta));
    ASSERT_OK(
        mics_checkpoint_open(at->memory, scratch_path(&at->place, "step-00000007"), &checkpoint));
    const mics_checkpoint_outer *outer = &mics_checkpoint_meta_get(checkpoint)->outer;
    assert_int_equal(outer->islands, ISLANDS);
    assert_int_equal(outer->every, 4);
    assert_int_equal(outer->fragments, 2);
    assert_int_equal(outer->overlap_steps, 1);
    assert_int_equal(outer->met, 8);
    assert_int_equal(outer->windows, WINDOWS);
    assert_memory_equal(outer->counted, counted, sizeof counted);
    assert_false(mics_checkpoint_is_agreed(outer));
    for (int s = 0; s < 2; s++) {
        expect_state(checkpoint, "h.0", 0, s);
        for (int32_t island = 0; island < ISLANDS; island++) {
            char *name = NULL;
            ASSERT_OK(mics_checkpoint_island_unit(at->memory, "h.0", island, &name));
            expect_state(checkpoint, name, 1 + island, s);
            mics_free(at->memory, name);
        }
    }
    mics_checkpoint_close(checkpoint);
}

// One that had met is, and one that trains in one island.
static void knows_agreement(void **state)
{
    saves *at = *state;
    static const int64_t none[WINDOWS * ISLANDS] = {0};
    const mics_checkpoint_meta meta = meta_with(ISLANDS, none), one = meta_of(7, 2);
    mics_checkpoint *checkpoint = NULL;
    ASSERT_OK(save(at, ISLANDS, -1, &meta));
    ASSERT_OK(
        mics_checkpoint_open(at->memory, scratch_path(&at->place, "step-00000007"), &checkpoint));
    assert_true(mics_checkpoint_is_agreed(&mics_checkpoint_meta_get(checkpoint)->outer));
    assert_true(mics_checkpoint_is_agreed(&one.outer));
    mics_checkpoint_close(checkpoint);
}

static void expect_unsaved(saves *at, int32_t islands, int32_t but,
                           const mics_checkpoint_meta *meta, mics_status status, const char *said)
{
    capture seen;
    capture_begin(&seen);
    ASSERT_STATUS(status, save(at, islands, but, meta));
    capture_end();
    if (strstr(seen.line, said) == NULL)
        fail_msg("\"%s\" instead of \"%s\"", seen.line, said);
    assert_false(file_exists(scratch_path(&at->place, "step-00000007/manifest.json")));
}

static void refuses_others(void **state)
{
    saves *at = *state;
    static const int64_t counted[3 * WINDOWS] = {1, 2, 3, 4, 5, 6};
    const mics_checkpoint_meta two = meta_with(2, counted), three = meta_with(3, counted);
    mics_checkpoint_meta lacks = two;
    lacks.outer.counted = NULL;
    expect_unsaved(at, 2, -1, &three, MICS_ERR_FORMAT, "unit h.0 of island 2");
    expect_unsaved(at, 2, 1, &two, MICS_ERR_FORMAT, "unit h.0 of island 0");
    expect_unsaved(at, 3, -1, &two, MICS_ERR_FORMAT, "more states of islands");
    expect_unsaved(at, 2, 0, &two, MICS_ERR_FORMAT, "more states of islands");
    expect_unsaved(at, 2, -1, &lacks, MICS_ERR_INVALID, "what counted in it");
}

// ---- damage ----

static void count_problem(void *ctx, const char *line)
{
    (void)line;
    ++*(int64_t *)ctx;
}

static int64_t problems_of(saves *at, const char *folder)
{
    int64_t count = 0;
    mics_checkpoint_verified found;
    const mics_verify_listener listener = {.problem = count_problem, .ctx = &count};
    ASSERT_OK(mics_checkpoint_verify(at->memory, folder, &listener, NULL, &found));
    return count;
}

static void tells_every_byte(void **state)
{
    static const char *const names[] = {"manifest.json", "rank-00000.safetensors"};
    static const int64_t counted[WINDOWS * ISLANDS] = {1, 2, 3, 4};
    saves *at = *state;
    const mics_checkpoint_meta meta = meta_with(ISLANDS, counted);
    char folder[2 * SCRATCH_PATH], path[3 * SCRATCH_PATH];
    capture seen;
    ASSERT_OK(save(at, ISLANDS, -1, &meta));
    snprintf(folder, sizeof folder, "%s", scratch_path(&at->place, "step-00000007"));
    assert_int_equal(problems_of(at, folder), 0);
    capture_begin(&seen);
    for (int i = 0; i < 2; i++) {
        size_t bytes = 0;
        snprintf(path, sizeof path, "%s/%s", folder, names[i]);
        unsigned char *good = file_read(path, &bytes);
        for (size_t byte = 0; byte < bytes; byte++) {
            good[byte] ^= (unsigned char)(1u << byte % 8);
            file_write(path, good, bytes);
            if (problems_of(at, folder) == 0)
                fail_msg("byte %zu of %s is another one, and nobody noticed", byte, names[i]);
            good[byte] ^= (unsigned char)(1u << byte % 8);
        }
        for (size_t kept = 0; kept < bytes; kept += 1 + bytes / 50) {
            file_write(path, good, kept);
            assert_true(problems_of(at, folder) > 0);
        }
        file_write(path, good, bytes);
        free(good);
    }
    capture_end();
    assert_int_equal(problems_of(at, folder), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {SAVES_TEST(comes_back), SAVES_TEST(knows_agreement),
                                       SAVES_TEST(refuses_others), SAVES_TEST(tells_every_byte)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
