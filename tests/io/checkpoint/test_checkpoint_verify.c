// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Verification: a changed bit in any byte of a checkpoint is told, a good one has no problem, and
// what is wrong in one file does not hide what is wrong in the next.
#include "base/capture.h"
#include "io/checkpoint/model.h"
#include "io/checkpoint/scratch.h"
#include <math.h>

static const model_unit UNITS[] = {{"embed", 131}, {"h.0", 50}};
enum { UNIT_COUNT = 2, RANKS = 2, FILES = 5 };

static const char *const names[FILES] = {"manifest.json", "config.json", "tokenizer.json",
                                         "rank-00000.safetensors", "rank-00001.safetensors"};

typedef struct told {
    int64_t problems, steps;
    char lines[8192];
} told;

static void on_problem(void *ctx, const char *line)
{
    told *self = ctx;
    const size_t used = strlen(self->lines);
    self->problems++;
    snprintf(self->lines + used, sizeof self->lines - used, "%s\n", line);
}

static void on_progress(void *ctx, const char *path, int64_t done, int64_t bytes)
{
    assert_non_null(path);
    assert_true(done > 0 && done <= bytes);
    ((told *)ctx)->steps++;
}

static scratch place;
static mics_memory *memory;
static char folder[SCRATCH_PATH * 2];

// Saves step 5, rank 1's file first, as rank 0 commits; with `value` as one element of rank 1's.
static void save_with(float value)
{
    const char *tokenizer = scratch_path(&place, "tokenizer.json");
    const mics_checkpoint_meta meta = model_meta((mics_checkpoint_meta){
        .step = 5, .samples = 4, .model_json = "{\"n\": 1}", .tokenizer = tokenizer});
    file_write(tokenizer, "{\"a\": 1}", 8);
    for (int32_t rank = RANKS - 1; rank >= 0; rank--) {
        model_part part = {0};
        model_share(&part, UNITS, UNIT_COUNT, rank, RANKS, 4);
        if (rank == 1)
            ((float *)(uintptr_t)part.shards[0].states[1].data)[2] = value;
        const mics_checkpoint_writer writer = {.dir = place.dir, .rank = rank, .writers = RANKS};
        ASSERT_OK(mics_checkpoint_save(memory, &writer, &meta, part.shards, part.count));
        model_free(&part);
    }
}

static int begin(void **state)
{
    (void)state;
    scratch_make_fast(&place);
    ASSERT_OK(mics_memory_open(&memory));
    snprintf(folder, sizeof folder, "%s", scratch_path(&place, "step-00000005"));
    assert_int_equal(mkdir(folder, 0700), 0);
    return 0;
}

static int end(void **state)
{
    (void)state;
    scratch_remove(&place);
    return mics_memory_close(memory) == 0 ? 0 : 1;
}

static told verify(mics_checkpoint_verified *found_out)
{
    told heard = {0};
    const mics_verify_listener listener = {on_problem, on_progress, &heard};
    *found_out = (mics_checkpoint_verified){0};
    ASSERT_OK(mics_checkpoint_verify(memory, folder, &listener, NULL, found_out));
    assert_int_equal(found_out->problems, heard.problems);
    return heard;
}

static void expect_told(const told *heard, const char *part)
{
    if (strstr(heard->lines, part) == NULL)
        fail_msg("nobody told \"%s\", but: %s", part, heard->lines);
}

static const char *path_of(const char *name)
{
    static char path[SCRATCH_PATH * 3];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static void test_every_byte(void **state)
{
    (void)state;
    mics_checkpoint_verified found;
    capture seen;
    int64_t all = 0;
    save_with(1);
    told heard = verify(&found);
    assert_string_equal(heard.lines, "");
    assert_true(heard.steps > 0);
    assert_int_equal(found.step, 5);
    assert_int_equal(found.files, FILES);
    capture_begin(&seen);
    for (int i = 0; i < FILES; i++) {
        size_t bytes = 0;
        unsigned char *good = file_read(path_of(names[i]), &bytes);
        all += (int64_t)bytes;
        for (size_t at = 0; at < bytes; at++) {
            good[at] ^= (unsigned char)(1u << at % 8);
            file_write(path_of(names[i]), good, bytes);
            heard = verify(&found);
            if (heard.problems == 0)
                fail_msg("byte %zu of %s is another one, and nobody noticed", at, names[i]);
            good[at] ^= (unsigned char)(1u << at % 8);
        }
        for (size_t kept = 0; kept < bytes; kept += 1 + bytes / 50) {
            file_write(path_of(names[i]), good, kept);
            heard = verify(&found);
            expect_told(&heard, names[i]);
        }
        file_write(path_of(names[i]), good, bytes);
        free(good);
    }
    capture_end();
    assert_int_equal(seen.errors + seen.warnings, 0); // all of it was told to the listener
    heard = verify(&found);
    assert_int_equal(heard.problems, 0);
    assert_int_equal(found.bytes, all);
}

// Each file is looked at, whatever is wrong with those before it.
static void test_several(void **state)
{
    (void)state;
    mics_checkpoint_verified found;
    save_with(1);
    size_t bytes = 0;
    unsigned char *first = file_read(path_of(names[3]), &bytes);
    first[bytes - 4] ^= 1;
    file_write(path_of(names[3]), first, bytes);
    file_write(path_of(names[4]), first, bytes);
    file_write(path_of("config.json"), "{}", 2);
    remove(path_of("tokenizer.json"));
    free(first);
    const told heard = verify(&found);
    assert_int_equal(heard.problems, 4);
    expect_told(&heard, "tokenizer.json: cannot open");
    expect_told(&heard, "config.json: 2 bytes that are not the 8 that the manifest says");
    expect_told(&heard, "rank-00000.safetensors: offset");
    expect_told(&heard,
                "rank-00001.safetensors: offset 8: written by rank 0 of 2 at step 5; expected "
                "rank 1");
}

static void test_not_finite(void **state)
{
    (void)state;
    static const float values[] = {NAN, INFINITY, -INFINITY, 1e13F};
    mics_checkpoint_verified found;
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        save_with(values[i]);
        const told heard = verify(&found);
        assert_int_equal(heard.problems, 1);
        expect_told(&heard, "of unit embed, state exp_avg, is");
        expect_told(&heard, "rank-00001");
    }
}

// Of a state that is a thousand times as large as the one before it, no number by itself says so.
static void test_grown(void **state)
{
    (void)state;
    mics_checkpoint_largest largest = {.units = 0};
    mics_checkpoint_verified found;
    told heard = {0};
    const mics_verify_listener listener = {on_problem, on_progress, &heard};
    save_with(1);
    ASSERT_OK(mics_checkpoint_verify(memory, folder, &listener, &largest, &found));
    assert_int_equal(found.problems, 0);
    assert_int_equal(largest.units, UNIT_COUNT);
    ASSERT_OK(mics_checkpoint_verify(memory, folder, &listener, &largest, &found));
    assert_int_equal(found.problems, 0);
    for (int unit = 0; unit < UNIT_COUNT; unit++) {
        assert_true(largest.of[unit] > 1000);
        largest.of[unit] /= 1001;
    }
    ASSERT_OK(mics_checkpoint_verify(memory, folder, &listener, &largest, &found));
    assert_true(found.problems >= UNIT_COUNT);
    expect_told(&heard, "state param, is");
    expect_told(&heard, "larger than it can be");
}

static void test_allocations(void **state)
{
    (void)state;
    const capture quiet = {0};
    capture seen = quiet;
    save_with(1);
    capture_begin(&seen);
    for (int64_t n = 1;; n++) {
        told heard = {0};
        const mics_verify_listener listener = {on_problem, NULL, &heard};
        mics_checkpoint_verified found;
        mics_memory_fail_after(memory, n);
        const mics_status status = mics_checkpoint_verify(memory, folder, &listener, NULL, &found);
        mics_memory_fail_after(memory, 0);
        assert_int_equal(heard.problems, 0);
        if (status == MICS_OK)
            break;
        assert_int_equal(status, MICS_ERR_MEMORY);
        assert_int_equal(seen.errors, n);
    }
    capture_end();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_every_byte, begin, end),
        cmocka_unit_test_setup_teardown(test_several, begin, end),
        cmocka_unit_test_setup_teardown(test_not_finite, begin, end),
        cmocka_unit_test_setup_teardown(test_grown, begin, end),
        cmocka_unit_test_setup_teardown(test_allocations, begin, end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
