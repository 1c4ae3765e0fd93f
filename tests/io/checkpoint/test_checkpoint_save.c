// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Saving and reading back: other meshes, texts, states, and what is no save.
#include "base/capture.h"
#include "io/checkpoint/saves.h"

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
    saves *at = *state;
    save_case how = {.ranks = 4, .writers = 2, .step = 1, .salt = 2};
    ASSERT_OK(save_world(at->memory, at->place.dir, how));
    assert_true(file_exists(scratch_path(&at->place, "step-00000001/rank-00001.safetensors")));
    assert_false(file_exists(scratch_path(&at->place, "step-00000001/rank-00002.safetensors")));
    mics_checkpoint *checkpoint = NULL;
    ASSERT_OK(
        mics_checkpoint_open(at->memory, scratch_path(&at->place, "step-00000001"), &checkpoint));
    model_check(checkpoint, UNITS, UNIT_COUNT, 2);
    mics_checkpoint_close(checkpoint);
}

static void meta_and_texts_come_back(void **state)
{
    saves *at = *state;
    const char *source = scratch_path(&at->place, "my-tokenizer.json");
    file_write(source, "{\"model\": {}}", 13);

    model_part part = {0};
    model_share(&part, UNITS, UNIT_COUNT, 0, 1, 1);
    mics_checkpoint_writer writer = {.dir = scratch_path(&at->place, "a/b"), .writers = 1};
    mics_checkpoint_meta meta = meta_of(123456789, 77);
    meta.tokenizer = source;
    ASSERT_OK(mics_checkpoint_save(at->memory, &writer, &meta, part.shards, part.count));
    unlink(source);

    mics_checkpoint *checkpoint = NULL;
    const char *folder = scratch_path(&at->place, "a/b/step-123456789");
    ASSERT_OK(mics_checkpoint_open(at->memory, folder, &checkpoint));
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
    text = file_read(scratch_path(&at->place, "a/b/step-123456789/config.json"), &bytes);
    assert_string_equal((char *)text, meta.model_json);
    free(text);
    mics_checkpoint_close(checkpoint);
    model_free(&part);
}

static void wrong_requests_are_refused(void **state)
{
    saves *at = *state;
    ASSERT_OK(save_small(at->memory, at->place.dir, 1, 1, 0));
    mics_checkpoint *checkpoint = NULL;
    ASSERT_OK(
        mics_checkpoint_open(at->memory, scratch_path(&at->place, "step-00000001"), &checkpoint));
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
    ASSERT_STATUS(MICS_ERR_IO, mics_checkpoint_open(at->memory, at->place.dir, &checkpoint));
    ASSERT_SAID(&seen, "manifest.json");
    capture_end();
    mics_checkpoint_close(checkpoint);
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
    saves *at = *state;
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
        {{with_state(0, 10, (mics_shard_state){.name = "a.b", .data = data})},
         MICS_ERR_INVALID,
         "state a.b of unit u has a dot in its name"},
        {{plain("\xff", 10, 0, 10)}, MICS_ERR_FORMAT, "rank-00000.safetensors:1:"},
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
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        expect_unsaved(at->memory, &at->place, cases[i].shards, cases[i].status, cases[i].said);
}

// Optimizers differ in how much they keep: one with nothing beside the parameters, one with three.
static void units_have_states_of_their_own(void **state)
{
    saves *at = *state;
    static const float data[4][6] = {{1, 2, 3, 4, 5, 6}, {-1}, {7, 8}, {0.5f, 0, 9}};
    const mics_optimizer_shard shards[] = {
        {.unit = "bare",
         .unit_elems = 6,
         .end = 6,
         .state_count = 1,
         .states = {{MICS_STATE_PARAM, MICS_DTYPE_FP32, data[2]}}},
        {.unit = "rich",
         .unit_elems = 6,
         .end = 6,
         .state_count = 4,
         .states = {{"z", MICS_DTYPE_FP32, data[3]},
                    {MICS_STATE_PARAM, MICS_DTYPE_FP32, data[0]},
                    {"momentum_buffer", MICS_DTYPE_FP32, data[1]},
                    {"\xc3\xa9 \"odd\"", MICS_DTYPE_FP32, data[2]}}},
    };
    mics_checkpoint *checkpoint = NULL;
    float found[6];
    capture seen;
    const mics_checkpoint_writer writer = {.dir = at->place.dir, .writers = 1};
    const mics_checkpoint_meta meta = meta_of(1, 1);
    ASSERT_OK(mics_checkpoint_save(at->memory, &writer, &meta, shards, 2));
    ASSERT_OK(
        mics_checkpoint_open(at->memory, scratch_path(&at->place, "step-00000001"), &checkpoint));
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
}

// Version 2 says how the run was resolved, so a save without that is refused.
static void a_save_says_how_the_run_was_resolved(void **state)
{
    saves *at = *state;
    capture seen;
    const mics_optimizer_shard shard = plain("u", 10, 0, 10);
    const mics_checkpoint_writer writer = {.dir = at->place.dir, .writers = 1};
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
                      mics_checkpoint_save(at->memory, &writer, &metas[i], &shard, 1));
        ASSERT_SAID(&seen, "needs precision, optimizer, sharding");
    }
    capture_end();
}

// The tokenizer is saved as it was read, though its file has gone.
static void a_tokenizer_is_saved_from_its_text(void **state)
{
    saves *at = *state;
    static const char text[] = "{\"a\": 1}";
    static const model_unit units[] = {{"u", 10}};
    model_part part = {0};
    model_add(&part, units, 0, 0, 10, 1);
    mics_checkpoint_writer writer = {.dir = at->place.dir, .writers = 1};
    mics_checkpoint_meta meta = meta_of(1, 1);
    meta.tokenizer = "/nowhere/tokenizer.json";
    meta.tokenizer_text = text;
    meta.tokenizer_bytes = sizeof text - 1;
    ASSERT_OK(mics_checkpoint_save(at->memory, &writer, &meta, part.shards, part.count));
    size_t bytes = 0;
    unsigned char *saved =
        file_read(scratch_path(&at->place, "step-00000001/tokenizer.json"), &bytes);
    assert_int_equal(bytes, sizeof text - 1);
    assert_memory_equal(saved, text, bytes);
    free(saved);
    model_free(&part);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_mesh_reads_what_any_other_wrote),
        SAVES_TEST(ranks_beyond_the_writers_take_part),
        SAVES_TEST(meta_and_texts_come_back),
        SAVES_TEST(wrong_requests_are_refused),
        SAVES_TEST(bad_shards_are_not_saved),
        SAVES_TEST(units_have_states_of_their_own),
        SAVES_TEST(a_save_says_how_the_run_was_resolved),
        SAVES_TEST(a_tokenizer_is_saved_from_its_text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
