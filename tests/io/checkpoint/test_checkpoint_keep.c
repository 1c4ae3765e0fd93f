// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Which checkpoints stay: a few, a step saved again, one withdrawn, and saves of which a rank fails.
#include "base/capture.h"
#include "io/checkpoint/saves.h"

static void only_the_newest_are_kept_and_strangers_stay(void **state)
{
    saves *at = *state;
    mkdir(scratch_path(&at->place, "step-7"), 0777); // not our kind of name
    mkdir(scratch_path(&at->place, "step-00000050"),
          0777); // ours by name, but with a stranger in it
    file_write(scratch_path(&at->place, "step-00000050/notes.txt"), "x", 1);
    mkdir(scratch_path(&at->place, "step-00000060"), 0777); // a left-over of a failed save
    file_write(scratch_path(&at->place, "step-00000060/rank-00000.safetensors"), "x", 1);
    file_write(scratch_path(&at->place, "step-00000060/manifest.json.0123456789abcdef.tmp"), "x",
               1);
    mkdir(scratch_path(&at->place, "elsewhere"), 0777);
    file_write(scratch_path(&at->place, "elsewhere/rank-00000.safetensors"), "x", 1);
    assert_int_equal(symlink("elsewhere", scratch_path(&at->place, "step-00000070")), 0);

    for (int64_t step = 1; step <= 4; step++)
        ASSERT_OK(save_small(at->memory, at->place.dir, step, step, 2));
    assert_false(file_exists(scratch_path(&at->place, "step-00000001")));
    assert_false(file_exists(scratch_path(&at->place, "step-00000002")));
    assert_true(file_exists(scratch_path(&at->place, "step-00000003/manifest.json")));
    assert_true(file_exists(scratch_path(&at->place, "step-00000004/manifest.json")));
    assert_true(file_exists(scratch_path(&at->place, "step-7")));
    assert_true(file_exists(scratch_path(&at->place, "step-00000050/notes.txt")));
    assert_false(file_exists(scratch_path(&at->place, "step-00000060")));
    assert_true(file_exists(scratch_path(&at->place, "elsewhere/rank-00000.safetensors")));

    // A run that went back to step 2 keeps what it saved last, not the highest steps.
    ASSERT_OK(save_small(at->memory, at->place.dir, 2, 20, 2));
    expect_small(at->memory, at->place.dir, 2, 20);
    assert_false(file_exists(scratch_path(&at->place, "step-00000003")));
    ASSERT_OK(save_small(at->memory, at->place.dir, 3, 30, 1));
    assert_false(file_exists(scratch_path(&at->place, "step-00000002")));
    assert_false(file_exists(scratch_path(&at->place, "step-00000004")));
    expect_small(at->memory, at->place.dir, 3, 30);
}

static void one_that_is_withdrawn_does_not_count(void **state)
{
    saves *at = *state;
    capture seen;
    ASSERT_OK(save_small(at->memory, at->place.dir, 1, 11, 0));
    ASSERT_OK(save_small(at->memory, at->place.dir, 2, 12, 0));
    ASSERT_OK(mics_checkpoint_withdraw(at->memory, at->place.dir, 2));
    expect_small(at->memory, at->place.dir, 1, 11);
    ASSERT_OK(mics_checkpoint_withdraw(at->memory, at->place.dir, 2)); // it is gone
    ASSERT_OK(mics_checkpoint_withdraw(at->memory, at->place.dir, 3)); // there never was one
    mkdir(scratch_path(&at->place, "step-00000004"), 0777);
    mkdir(scratch_path(&at->place, "step-00000004/manifest.json"), 0777);
    capture_begin(&seen);
    ASSERT_STATUS(MICS_ERR_IO, mics_checkpoint_withdraw(at->memory, at->place.dir, 4));
    ASSERT_SAID(&seen, "step-00000004/manifest.json: cannot remove: ");
    capture_end();
    ASSERT_OK(mics_checkpoint_clean(at->memory, at->place.dir));
    assert_false(file_exists(scratch_path(&at->place, "step-00000002")));
}

static void a_step_can_be_saved_again(void **state)
{
    saves *at = *state;
    for (int64_t salt = 1; salt <= 4; salt++) {
        ASSERT_OK(save_small(at->memory, at->place.dir, 9, salt, 3));
        expect_small(at->memory, at->place.dir, 9, salt);
    }
    assert_false(file_exists(scratch_path(&at->place, "step-00000009/rank-00000.safetensors")));
    assert_true(file_exists(scratch_path(&at->place, "step-00000009/rank-00000-g3.safetensors")));
    // By fewer ranks than before, and after a save by more that failed.
    save_case failing = {
        .ranks = 4, .writers = 4, .step = 9, .salt = 5, .fail_rank = 2, .fail_call = 2};
    ASSERT_STATUS(MICS_ERR_COMM, save_world(at->memory, at->place.dir, failing));
    expect_small(at->memory, at->place.dir, 9, 4);
    assert_false(file_exists(scratch_path(&at->place, "step-00000009/rank-00003-g4.safetensors")));
}

// Two ranks save by themselves; a file that an earlier save left does not pass for one of theirs.
static void ranks_save_without_a_word(void **state)
{
    saves *at = *state;
    static const model_unit units[] = {{"u", 1000}};
    mics_checkpoint_saving *savings[2] = {NULL, NULL};
    const mics_checkpoint_meta meta = meta_of(7, 5);
    ASSERT_OK(mics_checkpoint_clean(at->memory, scratch_path(&at->place, "none")));
    ASSERT_OK(save_small(at->memory, at->place.dir, 6, 4, 0));
    ASSERT_OK(save_small(at->memory, at->place.dir, 7, 4, 0));
    static const char *const left[] = {"step-00000007/rank-00001-g1.safetensors",
                                       "step-00000007/rank-00000-g1.part.safetensors"};
    for (int i = 0; i < 2; i++)
        file_write(scratch_path(&at->place, left[i]), "left", 4);
    ASSERT_OK(mics_checkpoint_clean(at->memory, at->place.dir));
    for (int i = 0; i < 2; i++)
        assert_false(file_exists(scratch_path(&at->place, left[i])));
    for (int32_t rank = 0; rank < 2; rank++) {
        const mics_checkpoint_writer writer = {.dir = at->place.dir, .rank = rank, .writers = 2};
        model_part part = {0};
        model_share(&part, units, 1, rank, 2, 5);
        ASSERT_OK(mics_checkpoint_save_open(at->memory, &writer, &meta, &savings[rank]));
        assert_false(mics_checkpoint_save_is_written(savings[0]));
        ASSERT_OK(mics_checkpoint_save_write(savings[rank], part.shards, part.count));
        model_free(&part);
    }
    assert_true(mics_checkpoint_save_is_written(savings[0]));
    expect_small(at->memory, at->place.dir, 7, 4); // until it is committed
    assert_false(mics_checkpoint_save_is_committed(savings[1]));
    ASSERT_OK(mics_checkpoint_save_commit(savings[0]));
    assert_true(mics_checkpoint_save_is_committed(savings[1]));
    expect_small(at->memory, at->place.dir, 7, 5);
    for (int32_t rank = 0; rank < 2; rank++)
        mics_checkpoint_save_close(savings[rank], false);
    ASSERT_OK(mics_checkpoint_prune(at->memory, at->place.dir, 1, 7));
    assert_false(file_exists(scratch_path(&at->place, "step-00000006/manifest.json")));
    expect_small(at->memory, at->place.dir, 7, 5);
    // A run that goes back to step 6 comes to step 7 again: ranks may be saving it by now.
    ASSERT_OK(save_small(at->memory, at->place.dir, 6, 7, 0));
    ASSERT_OK(mics_checkpoint_prune(at->memory, at->place.dir, 1, 6));
    assert_true(file_exists(scratch_path(&at->place, "step-00000007/manifest.json")));
    ASSERT_OK(save_small(at->memory, at->place.dir, 7, 5, 0));
    ASSERT_OK(mics_checkpoint_prune(at->memory, at->place.dir, 1, 7));
    assert_false(file_exists(scratch_path(&at->place, "step-00000006/manifest.json")));
    // What was saved since stays, and one that is not there removes nothing.
    ASSERT_OK(save_small(at->memory, at->place.dir, 8, 6, 0));
    ASSERT_OK(mics_checkpoint_prune(at->memory, at->place.dir, 1, 7));
    ASSERT_OK(mics_checkpoint_prune(at->memory, at->place.dir, 1, 9));
    assert_true(file_exists(scratch_path(&at->place, "step-00000007/manifest.json")));
    expect_small(at->memory, at->place.dir, 8, 6);
}

// A rank that has failed after its file had its name, as by its sync of the folder, leaves the file there: rank 0 may have found
// it, and lists it.
static void a_file_that_was_found_stays(void **state)
{
    saves *at = *state;
    static const model_unit units[] = {{"u", 1000}};
    mics_checkpoint_saving *savings[2] = {NULL, NULL};
    const mics_checkpoint_meta meta = meta_of(8, 5);
    for (int32_t rank = 0; rank < 2; rank++) {
        const mics_checkpoint_writer writer = {.dir = at->place.dir, .rank = rank, .writers = 2};
        model_part part = {0};
        model_share(&part, units, 1, rank, 2, 5);
        ASSERT_OK(mics_checkpoint_save_open(at->memory, &writer, &meta, &savings[rank]));
        ASSERT_OK(mics_checkpoint_save_write(savings[rank], part.shards, part.count));
        model_free(&part);
    }
    assert_true(mics_checkpoint_save_is_written(savings[0]));
    mics_checkpoint_save_close(savings[1], true);
    ASSERT_OK(mics_checkpoint_save_commit(savings[0]));
    mics_checkpoint_save_close(savings[0], true);
    expect_small(at->memory, at->place.dir, 8, 5);
}

// When another rank has failed, rank 0 removes the files.
static void a_save_in_parts_that_fails_leaves_nothing(void **state)
{
    saves *at = *state;
    static const model_unit units[] = {{"u", 1000}};
    mics_checkpoint_saving *saving = NULL;
    const mics_checkpoint_meta meta = meta_of(8, 5);
    for (int32_t rank = 1; rank >= 0; rank--) {
        const mics_checkpoint_writer writer = {.dir = at->place.dir, .rank = rank, .writers = 3};
        model_part part = {0};
        model_share(&part, units, 1, rank, 3, 5);
        ASSERT_OK(mics_checkpoint_save_open(at->memory, &writer, &meta, &saving));
        ASSERT_OK(mics_checkpoint_save_write(saving, part.shards, part.count));
        assert_false(mics_checkpoint_save_is_written(saving));
        mics_checkpoint_save_close(saving, true);
        model_free(&part);
    }
    assert_false(file_exists(scratch_path(&at->place, "step-00000008")));
}

static void a_rank_that_fails_fails_the_save(void **state)
{
    saves *at = *state;
    ASSERT_OK(save_small(at->memory, at->place.dir, 1, 11, 1));
    for (int32_t rank = 0; rank < 3; rank++) {
        for (int32_t call = 1; call <= 2; call++) {
            save_case how = {.ranks = 3,
                             .writers = 3,
                             .keep = 1,
                             .step = 2,
                             .salt = 1,
                             .fail_rank = rank,
                             .fail_call = call};
            ASSERT_STATUS(MICS_ERR_COMM, save_world(at->memory, at->place.dir, how));
            expect_small(at->memory, at->place.dir, 1, 11);
            if (call == 2)
                assert_false(file_exists(scratch_path(&at->place, "step-00000002")));
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        SAVES_TEST(only_the_newest_are_kept_and_strangers_stay),
        SAVES_TEST(one_that_is_withdrawn_does_not_count),
        SAVES_TEST(a_step_can_be_saved_again),
        SAVES_TEST(ranks_save_without_a_word),
        SAVES_TEST(a_file_that_was_found_stays),
        SAVES_TEST(a_save_in_parts_that_fails_leaves_nothing),
        SAVES_TEST(a_rank_that_fails_fails_the_save),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
