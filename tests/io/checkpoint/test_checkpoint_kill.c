// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// A process that saves is killed: at every system call of a save in turn, and at random moments of
// a long run. What was reported as saved must be there afterwards, or something newer, complete.
#include "io/checkpoint/model.h"
#include "io/checkpoint/scratch.h"
#include <errno.h>
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/wait.h>

static const model_unit UNITS[] = {{"embed", 3001}, {"h.0", 100}};
enum { UNIT_COUNT = 2 };

// Save number `number`; numbers 2k and 2k + 1 are of the same step, so every other one replaces.
static mics_status save_number(mics_memory *memory, const char *dir, int64_t number)
{
    model_part part = {0};
    model_share(&part, UNITS, UNIT_COUNT, 0, 1, number);
    mics_checkpoint_writer writer = {.dir = dir, .writers = 1, .keep = 2};
    mics_checkpoint_meta meta = model_meta((mics_checkpoint_meta){
        .step = number / 2, .samples = number, .model_json = "{}", .tokenizer = "bytes"});
    mics_status status = mics_checkpoint_save(memory, &writer, &meta, part.shards, part.count);
    model_free(&part);
    return status;
}

// Checks that the newest checkpoint is complete and not older than save number `reported`, and
// returns its number.
static int64_t check_newest(const char *dir, int64_t reported)
{
    mics_memory *memory = NULL;
    char *path = NULL;
    mics_checkpoint *checkpoint = NULL;
    ASSERT_OK(mics_memory_open(&memory));
    ASSERT_OK(mics_checkpoint_latest(memory, dir, &path));
    assert_non_null(path);
    ASSERT_OK(mics_checkpoint_open(memory, path, &checkpoint));
    int64_t number = mics_checkpoint_meta_get(checkpoint)->samples;
    assert_int_equal(mics_checkpoint_meta_get(checkpoint)->step, number / 2);
    model_check(checkpoint, UNITS, UNIT_COUNT, number);
    assert_true(number >= reported);
    mics_checkpoint_close(checkpoint);
    mics_free(memory, path);
    assert_int_equal(mics_memory_close(memory), 0);
    return number;
}

// ---- at every system call ----

enum { CHILD_SKIPS = 77, STOPS_MAX = 2000, KILLS = 50 };

// Lets the child go to its stop number `stops` (two for each system call: before and after), and
// kills it there. Returns whether it came so far; *skipped_out when it may not be traced.
static bool kill_at_stop(pid_t child, int stops, bool *skipped_out)
{
    int code = 0;
    assert_int_equal(waitpid(child, &code, 0), child);
    *skipped_out = WIFEXITED(code) && WEXITSTATUS(code) == CHILD_SKIPS;
    if (*skipped_out)
        return false;
    for (int i = 0; i < stops; i++) {
        if (ptrace(PTRACE_SYSCALL, child, NULL, NULL) != 0)
            fail_msg("cannot go on with the child: %s", strerror(errno));
        assert_int_equal(waitpid(child, &code, 0), child);
        if (WIFEXITED(code)) {
            assert_int_equal(WEXITSTATUS(code), 0);
            return false;
        }
        assert_true(WIFSTOPPED(code));
    }
    kill(child, SIGKILL);
    assert_int_equal(waitpid(child, &code, 0), child);
    return true;
}

// A child that waits for its tracer, then makes save number `number` and ends with 0.
static pid_t start_traced(const char *dir, int64_t number)
{
    fflush(NULL);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child != 0)
        return child;
    mics_memory *memory = NULL;
    if (mics_memory_open(&memory) != MICS_OK || ptrace(PTRACE_TRACEME, 0, NULL, NULL) != 0)
        _exit(CHILD_SKIPS);
    raise(SIGSTOP);
    _exit(save_number(memory, dir, number) == MICS_OK ? 0 : 1);
}

// Makes save `number`, then kills save `number + 1` at its first stop; goes on with the next two
// numbers and the next stop, until a save comes to its end. Returns false when tracing is
// forbidden.
static bool sweep(const char *dir, int64_t number)
{
    mics_memory *memory = NULL;
    ASSERT_OK(mics_memory_open(&memory));
    bool killed = true;
    bool skipped = false;
    int stops = 0;
    for (; killed && stops < STOPS_MAX; number += 2) {
        ASSERT_OK(save_number(memory, dir, number));
        killed = kill_at_stop(start_traced(dir, number + 1), ++stops, &skipped);
        if (skipped)
            break;
        int64_t newest = check_newest(dir, killed ? number : number + 1);
        assert_true(newest <= number + 1);
    }
    assert_int_equal(mics_memory_close(memory), 0);
    if (!skipped)
        assert_in_range(stops, 50, STOPS_MAX - 1);
    return !skipped;
}

static void killed_at_every_system_call(void **state)
{
    (void)state;
    scratch place;
    scratch_make_fast(&place);
    bool traced = sweep(place.dir, 3) &&  // 4 is of a new step
                  sweep(place.dir, 5000); // 5001 replaces 5000
    scratch_remove(&place);
    if (!traced)
        skip();
}

// ---- at random moments ----

// Saves without end and tells the number of each save that was reported as done.
static void save_for_ever(const char *dir, int64_t number, int pipe_fd)
{
    mics_memory *memory = NULL;
    if (mics_memory_open(&memory) != MICS_OK)
        _exit(1);
    for (;; number++) {
        if (save_number(memory, dir, number) != MICS_OK ||
            write(pipe_fd, &number, sizeof number) != (ssize_t)sizeof number)
            _exit(1);
    }
}

static void killed_at_random_moments(void **state)
{
    (void)state;
    scratch place;
    scratch_make_fast(&place);
    mics_memory *memory = NULL;
    ASSERT_OK(mics_memory_open(&memory));
    ASSERT_OK(save_number(memory, place.dir, 1));
    assert_int_equal(mics_memory_close(memory), 0);
    int64_t number = 1;
    uint64_t random = 20260101;
    for (int i = 0; i < KILLS; i++) {
        int ends[2];
        assert_int_equal(pipe(ends), 0);
        fflush(NULL);
        pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0)
            save_for_ever(place.dir, number + 1, ends[1]);
        close(ends[1]);
        usleep((useconds_t)(next_random(&random) % 30000));
        kill(child, SIGKILL);
        int code = 0;
        assert_int_equal(waitpid(child, &code, 0), child);
        assert_true(WIFSIGNALED(code));
        int64_t reported = number;
        int64_t next;
        while (read(ends[0], &next, sizeof next) == (ssize_t)sizeof next)
            reported = next;
        close(ends[0]);
        number = check_newest(place.dir, reported);
    }
    scratch_remove(&place);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(killed_at_every_system_call),
        cmocka_unit_test(killed_at_random_moments),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
