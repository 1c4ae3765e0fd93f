// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Checkpoints that lost something, and saves without memory, room or a file that may be so large.
#include "base/capture.h"
#include "io/checkpoint/saves.h"
#include <sched.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/wait.h>

static void latest_may_be_lost(void **state)
{
    saves *at = *state;
    char *path = NULL;
    ASSERT_OK(mics_checkpoint_latest(at->memory, scratch_path(&at->place, "none"), &path));
    assert_null(path);
    ASSERT_OK(mics_checkpoint_latest(at->memory, at->place.dir, &path));
    assert_null(path);
    for (int64_t step = 1; step <= 3; step++)
        ASSERT_OK(save_small(at->memory, at->place.dir, step, step, 0));

    static const char *const bad[] = {"step-00000099\n", "../elsewhere\n", "", "step-00000003/..",
                                      "step-999999999999999999999\n"};
    unlink(scratch_path(&at->place, "latest"));
    expect_small(at->memory, at->place.dir, 3, 3);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        file_write(scratch_path(&at->place, "latest"), bad[i], strlen(bad[i]));
        expect_small(at->memory, at->place.dir, 3, 3);
    }
    // The newest has lost a file, the one before its manifest.
    file_write(scratch_path(&at->place, "latest"), "step-00000003\n", 14);
    unlink(scratch_path(&at->place, "step-00000003/rank-00000.safetensors"));
    expect_small(at->memory, at->place.dir, 2, 2);
    file_write(scratch_path(&at->place, "step-00000002/manifest.json"), "{}", 2);
    capture seen;
    capture_begin(&seen);
    expect_small(at->memory, at->place.dir, 1, 1);
    capture_end();
    // A save goes on from there.
    ASSERT_OK(save_small(at->memory, at->place.dir, 2, 22, 0));
    expect_small(at->memory, at->place.dir, 2, 22);
}

// A run whose checkpoints have all lost something must not look like a new one.
static void a_folder_without_a_complete_one_is_an_error(void **state)
{
    saves *at = *state;
    ASSERT_OK(save_small(at->memory, at->place.dir, 1, 1, 0));
    ASSERT_OK(save_small(at->memory, at->place.dir, 2, 2, 0));
    unlink(scratch_path(&at->place, "step-00000002/rank-00000.safetensors"));
    file_write(scratch_path(&at->place, "step-00000001/manifest.json"), "{}", 2);
    char *path = NULL;
    capture seen;
    capture_begin(&seen);
    ASSERT_STATUS(MICS_ERR_FORMAT, mics_checkpoint_latest(at->memory, at->place.dir, &path));
    ASSERT_SAID(&seen, "none of its checkpoints (2, the newest is step-00000002) is complete");
    assert_null(path);
    unlink(scratch_path(&at->place, "latest"));
    ASSERT_STATUS(MICS_ERR_FORMAT, mics_checkpoint_latest(at->memory, at->place.dir, &path));
    ASSERT_SAID(&seen, "is complete");
    // Only a save that never got so far as a manifest counts for nothing.
    unlink(scratch_path(&at->place, "step-00000001/manifest.json"));
    unlink(scratch_path(&at->place, "step-00000002/manifest.json"));
    ASSERT_OK(mics_checkpoint_latest(at->memory, at->place.dir, &path));
    assert_null(path);
    capture_end();
}

// What a save makes good is no error: who keeps the first error line of a run keeps the true one.
static void a_damaged_neighbour_is_a_warning(void **state)
{
    saves *at = *state;
    ASSERT_OK(save_small(at->memory, at->place.dir, 1, 1, 0));
    file_write(scratch_path(&at->place, "step-00000001/manifest.json"), "{}", 2);
    capture seen;
    capture_begin(&seen);
    ASSERT_OK(save_small(at->memory, at->place.dir, 2, 2, 1));
    ASSERT_OK(save_small(at->memory, at->place.dir, 1, 3, 0)); // in its place
    assert_int_equal(seen.errors, 0);
    assert_true(seen.warnings >= 2);
    capture_end();
    expect_small(at->memory, at->place.dir, 1, 3);
}

// A manifest that cannot be looked at is not one that is not there: its files stay untouched.
static void a_manifest_out_of_sight_is_not_overwritten(void **state)
{
    saves *at = *state;
    ASSERT_OK(save_small(at->memory, at->place.dir, 1, 1, 0));
    const char *manifest = scratch_path(&at->place, "step-00000001/manifest.json");
    const char *hidden = scratch_path(&at->place, "step-00000001/hidden");
    assert_int_equal(rename(manifest, hidden), 0);
    assert_int_equal(symlink("manifest.json", manifest), 0); // ELOOP
    capture seen;
    capture_begin(&seen);
    ASSERT_STATUS(MICS_ERR_IO, save_small(at->memory, at->place.dir, 1, 2, 0));
    ASSERT_SAID(&seen, "manifest.json: cannot look at it");
    capture_end();
    assert_int_equal(rename(hidden, manifest), 0);
    expect_small(at->memory, at->place.dir, 1, 1);
}

static void an_allocation_that_fails_leaks_nothing(void **state)
{
    saves *at = *state;
    capture seen;
    capture_begin(&seen);
    ASSERT_OK(save_small(at->memory, at->place.dir, 1, 1, 2));
    mics_status status = MICS_ERR_MEMORY;
    int64_t nth = 1;
    for (; status != MICS_OK && nth < 1000; nth++) {
        mics_memory_fail_after(at->memory, nth);
        status = save_small(at->memory, at->place.dir, 2, 2, 2);
        mics_memory_fail_after(at->memory, 0);
        if (status != MICS_OK)
            assert_int_equal(status, MICS_ERR_MEMORY);
        mics_memory_stats stats;
        mics_memory_stats_get(at->memory, &stats);
        assert_int_equal(stats.live_blocks, 0);
        expect_small(at->memory, at->place.dir, status == MICS_OK ? 2 : 1,
                     status == MICS_OK ? 2 : 1);
        // Pruning may fail once all is on disk; a save that failed after publishing does not exist.
    }
    assert_in_range(nth, 10, 999);

    status = MICS_ERR_MEMORY;
    for (nth = 1; status != MICS_OK && nth < 1000; nth++) {
        char *path = NULL;
        mics_checkpoint *checkpoint = NULL;
        float data[10];
        mics_memory_fail_after(at->memory, nth);
        status = mics_checkpoint_latest(at->memory, at->place.dir, &path);
        if (status == MICS_OK)
            status = mics_checkpoint_open(at->memory, path, &checkpoint);
        if (status == MICS_OK)
            status = mics_checkpoint_read(checkpoint, "u", 1000, MICS_STATE_PARAM, 5, 15, data);
        mics_memory_fail_after(at->memory, 0);
        mics_checkpoint_close(checkpoint);
        mics_free(at->memory, path);
        mics_memory_stats stats;
        mics_memory_stats_get(at->memory, &stats);
        assert_int_equal(stats.live_blocks, 0);
    }
    assert_in_range(nth, 10, 999);
    capture_end();
}

static void a_file_size_limit_is_an_error_not_a_signal(void **state)
{
    saves *at = *state;
    ASSERT_OK(save_small(at->memory, at->place.dir, 1, 1, 1));
    struct rlimit before;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    struct rlimit limit = {.rlim_cur = 4096, .rlim_max = before.rlim_max};
    capture seen;
    capture_begin(&seen);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    mics_status status = save_small(at->memory, at->place.dir, 2, 2, 1);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    capture_end();
    assert_int_equal(status, MICS_ERR_IO);
    ASSERT_SAID(&seen, "step-00000002/rank-00000.part.safetensors: cannot write 12576 bytes");
    assert_false(file_exists(scratch_path(&at->place, "step-00000002")));
    expect_small(at->memory, at->place.dir, 1, 1);
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
        SAVES_TEST(latest_may_be_lost),
        SAVES_TEST(a_folder_without_a_complete_one_is_an_error),
        SAVES_TEST(a_damaged_neighbour_is_a_warning),
        SAVES_TEST(a_manifest_out_of_sight_is_not_overwritten),
        SAVES_TEST(an_allocation_that_fails_leaks_nothing),
        SAVES_TEST(a_file_size_limit_is_an_error_not_a_signal),
        cmocka_unit_test(a_full_disk_leaves_the_checkpoint_before),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
