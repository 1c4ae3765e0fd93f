// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Status, log, sizes, clock, hash and counted memory.
#include "base/capture.h"
#include "base/clock.h"
#include "base/hash.h"
#include "base/size.h"
#include "mics/core/mesh.h"
#include "mics/memory.h"
#include "test.h"
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

// Sanitizers would rather end the process than refuse an allocation; this makes them refuse.
const char *__asan_default_options(void);
const char *__asan_default_options(void)
{
    return "allocator_may_return_null=1";
}
const char *__tsan_default_options(void);
const char *__tsan_default_options(void)
{
    return "allocator_may_return_null=1";
}

// ---- status ----

static void test_status_texts(void **state)
{
    (void)state;
    assert_string_equal(mics_status_name(MICS_ERR_IO), "MICS_ERR_IO");
    assert_string_equal(mics_status_text(MICS_OK), "ok");
    assert_string_equal(mics_status_name(MICS_STATUS_COUNT), "unknown");
    assert_string_equal(mics_status_text((mics_status)-1), "unknown status");
    for (int i = 0; i < MICS_STATUS_COUNT; i++) {
        assert_true(strncmp(mics_status_name((mics_status)i), "MICS_", 5) == 0);
        assert_true(strlen(mics_status_text((mics_status)i)) > 1);
    }
    assert_int_equal(MICS_OK, 0);
}

static mics_status try_then_pass(mics_status first)
{
    MICS_TRY(first);
    return MICS_ERR_FORMAT;
}

static mics_status try_out(mics_status first, int *cleaned)
{
    mics_status status = MICS_OK;
    MICS_TRY_OUT(first);
    MICS_TRY_OUT(MICS_ERR_NUMERIC);
out:
    (*cleaned)++;
    return status;
}

static void test_status_macros(void **state)
{
    (void)state;
    int cleaned = 0;
    ASSERT_STATUS(MICS_ERR_IO, try_then_pass(MICS_ERR_IO));
    ASSERT_STATUS(MICS_ERR_FORMAT, try_then_pass(MICS_OK));
    ASSERT_STATUS(MICS_ERR_IO, try_out(MICS_ERR_IO, &cleaned));
    ASSERT_STATUS(MICS_ERR_NUMERIC, try_out(MICS_OK, &cleaned));
    assert_int_equal(cleaned, 2);
}

// ---- log ----

typedef struct line_seen {
    mics_log_level level;
    int32_t rank;
    int lines;
    char text[4096];
} line_seen;

static void see_line(void *ctx, mics_log_level level, int32_t rank, const char *line)
{
    line_seen *seen = ctx;
    seen->level = level;
    seen->rank = rank;
    seen->lines++;
    snprintf(seen->text, sizeof seen->text, "%s", line);
}

static void *log_from_thread(void *ctx)
{
    (void)ctx;
    mics_log(MICS_LOG_INFO, "from another thread");
    return NULL;
}

static void test_log(void **state)
{
    (void)state;
    line_seen seen = {0};
    mics_log_set_sink(see_line, &seen);
    ASSERT_STATUS(MICS_ERR_IO, mics_fail(MICS_ERR_IO, "%s: line\none of %d", "x", 2));
    assert_string_equal(seen.text, "x: line one of 2");
    assert_int_equal(seen.level, MICS_LOG_ERROR);
    assert_int_equal(seen.rank, -1);
    mics_log_set_rank(7);
    mics_log(MICS_LOG_WARNING, "w");
    assert_int_equal(seen.level, MICS_LOG_WARNING);
    assert_int_equal(seen.rank, 7);
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, log_from_thread, NULL), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(seen.rank, -1); // each thread has its own
    mics_log_set_rank(-1);
    char long_text[3000];
    memset(long_text, 'a', sizeof long_text - 1);
    long_text[sizeof long_text - 1] = '\0';
    mics_log(MICS_LOG_INFO, "%s", long_text);
    assert_int_equal(strlen(seen.text), 2047);
    assert_int_equal(seen.lines, 4);
    mics_log_set_sink(NULL, NULL);
}

static void *fail_from_thread(void *ctx)
{
    (void)ctx;
    (void)mics_fail(MICS_ERR_IO, "from another thread");
    return NULL;
}

// A thread's first error is kept until it is known who speaks, with what is added to it; others write at once.
static void test_log_held(void **state)
{
    (void)state;
    line_seen seen = {0};
    mics_log_set_sink(see_line, &seen);
    mics_log_hold(true);
    mics_log_add("nothing to add this to");
    mics_log(MICS_LOG_WARNING, "quiet");
    (void)mics_fail(MICS_ERR_IO, "first");
    (void)mics_fail(MICS_ERR_IO, "second");
    mics_log_add("advice");
    assert_int_equal(seen.lines, 0);
    mics_log_set_quiet(false);
    mics_log(MICS_LOG_WARNING, "heard");
    assert_int_equal(seen.lines, 1);
    assert_true(mics_log_release(true, 3));
    assert_int_equal(seen.lines, 2);
    assert_int_equal(seen.rank, 3);
    assert_string_equal(seen.text, "first; advice");
    assert_false(mics_log_release(true, 3)); // it is gone
    char taken[32];
    mics_log_hold(true);
    assert_false(mics_log_take(taken, sizeof taken));
    assert_string_equal(taken, "");
    (void)mics_fail(MICS_ERR_IO, "made good");
    assert_true(mics_log_take(taken, sizeof taken));
    assert_string_equal(taken, "made good");
    (void)mics_fail(MICS_ERR_IO, "the next"); // is kept back too
    assert_true(mics_log_take(taken, 4));
    assert_string_equal(taken, "the");
    assert_false(mics_log_release(true, 3));
    mics_log_hold(false);
    (void)mics_fail(MICS_ERR_IO, "another rank says so");
    assert_true(mics_log_release(false, -1));
    assert_false(mics_log_mute(true));
    (void)mics_fail(MICS_ERR_IO, "a trial");
    assert_true(mics_log_mute(false));
    assert_int_equal(seen.lines, 2);
    (void)mics_fail(MICS_ERR_IO, "at once");
    assert_int_equal(seen.lines, 3);
    mics_log_set_sink(NULL, NULL);
}

static void test_log_demoted(void **state)
{
    (void)state;
    line_seen seen = {0};
    mics_log_set_sink(see_line, &seen);
    assert_false(mics_log_demote(true));
    assert_true(mics_log_demote(true)); // nests
    ASSERT_STATUS(MICS_ERR_IO, mics_fail(MICS_ERR_IO, "made good"));
    assert_int_equal(seen.level, MICS_LOG_WARNING);
    mics_log(MICS_LOG_INFO, "as ever");
    assert_int_equal(seen.level, MICS_LOG_INFO);
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, fail_from_thread, NULL), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(seen.level, MICS_LOG_ERROR); // each thread has its own
    assert_true(mics_log_demote(false));
    ASSERT_STATUS(MICS_ERR_IO, mics_fail(MICS_ERR_IO, "not made good"));
    assert_int_equal(seen.level, MICS_LOG_ERROR);
    mics_log_set_sink(NULL, NULL);
}

static void test_status_of_errno(void **state)
{
    (void)state;
    static const int disk[] = {EROFS, EIO}, full[] = {ENOSPC, EDQUOT},
                     asked[] = {ENOENT, EACCES, EISDIR, 0};
    for (int i = 0; i < 2; i++) {
        ASSERT_STATUS(MICS_ERR_DISK, mics_status_of_errno(disk[i]));
        ASSERT_STATUS(MICS_ERR_FULL, mics_status_of_errno(full[i]));
    }
    for (int i = 0; i < 4; i++)
        ASSERT_STATUS(MICS_ERR_IO, mics_status_of_errno(asked[i]));
    for (int i = 0; i < MICS_STATUS_COUNT; i++)
        assert_int_equal(mics_status_is_io((mics_status)i),
                         i == MICS_ERR_IO || i == MICS_ERR_DISK || i == MICS_ERR_FULL);
    // What the log says does not decide it.
    ASSERT_STATUS(MICS_ERR_INVALID, mics_fail(MICS_ERR_INVALID, "%s", strerror(ENOSPC)));
}

// ---- sizes ----

static void test_sizes(void **state)
{
    (void)state;
    capture seen;
    capture_begin(&seen);
    int64_t product = -5;
    size_t bytes = 5;
    ASSERT_OK(mics_size_mul(3037000499, 3037000499, &product));
    assert_true(product == 9223372030926249001);
    ASSERT_OK(mics_size_mul(0, INT64_MAX, &product));
    assert_int_equal(product, 0);
    ASSERT_OK(mics_size_mul(INT64_MAX, 1, &product));
    assert_true(product == INT64_MAX);
    static const int64_t bad[][2] = {
        {3037000500, 3037000500}, {INT64_MAX, 2}, {2, INT64_MAX}, {-1, 1}, {1, -1}, {-1, 0},
    };
    product = 7;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        ASSERT_STATUS(MICS_ERR_INVALID, mics_size_mul(bad[i][0], bad[i][1], &product));
        ASSERT_SAID(&seen, "63 bits");
        assert_int_equal(product, 7);
    }
    ASSERT_OK(mics_size_bytes(10, 4, &bytes));
    assert_int_equal(bytes, 40);
    ASSERT_STATUS(MICS_ERR_INVALID, mics_size_bytes(INT64_MAX / 4 + 1, 4, &bytes));
    ASSERT_SAID(&seen, "63 bits");
    ASSERT_STATUS(MICS_ERR_INVALID, mics_size_bytes(-1, 4, &bytes));
    ASSERT_SAID(&seen, "63 bits");
    assert_int_equal(bytes, 40);
    assert_int_equal(mics_size_round_up(0, 8), 0);
    assert_int_equal(mics_size_round_up(1, 8), 8);
    assert_int_equal(mics_size_round_up(8, 8), 8);
    assert_int_equal(mics_size_round_up(9, 7), 14);
    capture_end();
}

static void test_size_texts(void **state)
{
    (void)state;
    static const struct {
        double bytes;
        const char *text;
    } cases[] = {
        {0, "0 B"},
        {640, "640 B"},
        {1023, "1023 B"},
        {1024, "1.00 KiB"},
        {1536, "1.50 KiB"},
        {12 << 20, "12.0 MiB"},
        {1 << 30, "1.00 GiB"},
        {0x1p57, "128 PiB"},
        {0x1p70, "1048576 PiB"},
    };
    char text[32];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_string_equal(mics_size_text(cases[i].bytes, text, sizeof text), cases[i].text);
    assert_string_equal(mics_size_text(1536, text, 4), "1.5");
}

// ---- clock and groups ----

static void test_clock(void **state)
{
    (void)state;
    double last = mics_clock_us();
    for (int i = 0; i < 1000; i++) {
        double now = mics_clock_us();
        assert_true(now >= last);
        last = now;
    }
}

// Waits that nobody ends. With a condition of another clock each would end at once.
static void test_condition_wait(void **state)
{
    (void)state;
    static const double waits_us[] = {0, 20e3, 1.02e6};
    pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    pthread_cond_t condition;
    assert_int_equal(mics_condition_init(&condition), MICS_OK);
    pthread_mutex_lock(&mutex);
    for (size_t i = 0; i < sizeof waits_us / sizeof *waits_us; i++) {
        const double begin_us = mics_clock_us();
        double passed_us = 0;
        int early = 0;
        mics_condition_wait(&condition, &mutex, waits_us[i]);
        for (; (passed_us = mics_clock_us() - begin_us) < waits_us[i]; early++)
            mics_condition_wait(&condition, &mutex, waits_us[i] - passed_us);
        assert_true(early < 10);
        assert_true(passed_us < waits_us[i] + 60e6); // the machine may stand still
    }
    pthread_mutex_unlock(&mutex);
    pthread_cond_destroy(&condition);
}

// Source: draft-eastlake-fnv, appendix C: 64-bit FNV-1a of texts without their NUL.
static void test_fnv1a_known_answers(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        uint64_t hash;
    } cases[] = {
        {"", 0xcbf29ce484222325}, {"a", 0xaf63dc4c8601ec8c}, {"foobar", 0x85944171f73967e8}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_true(mics_fnv1a(MICS_FNV1A_BEGIN, cases[i].text, strlen(cases[i].text)) ==
                    cases[i].hash);
    const uint64_t first = mics_fnv1a(MICS_FNV1A_BEGIN, "foo", 3);
    assert_true(mics_fnv1a(first, "bar", 3) == cases[2].hash);
}

static void test_group(void **state)
{
    (void)state;
    mics_group column = {.first = 3, .stride = 4, .size = 5, .index = 1};
    assert_int_equal(mics_group_rank(column, 0), 3);
    assert_int_equal(mics_group_rank(column, 4), 19);
}

// ---- memory ----

static mics_memory_stats stats_of(const mics_memory *memory)
{
    mics_memory_stats stats;
    mics_memory_stats_get(memory, &stats);
    return stats;
}

static void test_memory_counts(void **state)
{
    (void)state;
    mics_memory *memory = NULL;
    void *a = NULL, *b = NULL, *c = NULL;
    ASSERT_OK(mics_memory_open(&memory));
    ASSERT_OK(mics_alloc(memory, MICS_MEM_GRADS, 100, &a));
    assert_int_equal((uintptr_t)a % MICS_ALIGNMENT, 0);
    for (int i = 0; i < 100; i++)
        assert_int_equal(((char *)a)[i], 0);
    ASSERT_OK(mics_alloc(memory, MICS_MEM_PARAMS, 64, &b));
    ASSERT_OK(mics_alloc(memory, MICS_MEM_HOST, 1, &c));
    mics_memory_stats stats = stats_of(memory);
    assert_int_equal(stats.now[MICS_MEM_GRADS], 128);
    assert_int_equal(stats.now[MICS_MEM_PARAMS], 64);
    assert_int_equal(stats.now[MICS_MEM_HOST], 64);
    assert_int_equal(stats.total_now, 192); // the host's is not planned
    assert_int_equal(stats.allocations, 3);
    assert_int_equal(stats.live_blocks, 3);
    mics_free(memory, a);
    mics_free(memory, NULL);
    stats = stats_of(memory);
    assert_int_equal(stats.now[MICS_MEM_GRADS], 0);
    assert_int_equal(stats.peak[MICS_MEM_GRADS], 128);
    assert_int_equal(stats.total_now, 64);
    assert_int_equal(stats.total_peak, 192);
    mics_free(memory, b);
    mics_free(memory, c);
    assert_int_equal(mics_memory_close(memory), 0);
    assert_int_equal(mics_memory_close(NULL), 0);
}

static void test_memory_block_bytes(void **state)
{
    (void)state;
    assert_int_equal(mics_memory_block_bytes(0), 64);
    assert_int_equal(mics_memory_block_bytes(1), 64);
    assert_int_equal(mics_memory_block_bytes(64), 64);
    assert_int_equal(mics_memory_block_bytes(65), 128);
    assert_string_equal(mics_memory_tag_text(MICS_MEM_GATHER), "gather slots");
    assert_string_equal(mics_memory_tag_text(MICS_MEM_TAGS), "unknown");
}

static void test_memory_failures(void **state)
{
    (void)state;
    capture seen;
    mics_memory *memory = NULL;
    void *block = NULL, *other = NULL;
    capture_begin(&seen);
    ASSERT_OK(mics_memory_open(&memory));
    mics_memory_fail_after(memory, 2);
    ASSERT_OK(mics_alloc(memory, MICS_MEM_COMM, 10, &block));
    ASSERT_STATUS(MICS_ERR_MEMORY, mics_alloc(memory, MICS_MEM_COMM, 10, &other));
    ASSERT_SAID(&seen, "10 bytes of communication buffers");
    assert_null(other);
    ASSERT_OK(mics_alloc(memory, MICS_MEM_COMM, 10, &other)); // once
    mics_free(memory, other);
    mics_memory_fail_after(memory, 1);
    mics_memory_fail_after(memory, 0);
    ASSERT_OK(mics_alloc(memory, MICS_MEM_COMM, 0, &other)); // off
    mics_free(memory, other);
    static const size_t huge[] = {SIZE_MAX, SIZE_MAX - 63, SIZE_MAX - 128, SIZE_MAX / 2};
    for (size_t i = 0; i < sizeof huge / sizeof *huge; i++) {
        other = NULL;
        ASSERT_STATUS(MICS_ERR_MEMORY, mics_alloc(memory, MICS_MEM_COMM, huge[i], &other));
        ASSERT_SAID(&seen, "cannot allocate");
        assert_null(other);
    }
    assert_int_equal(stats_of(memory).live_blocks, 1);
    assert_int_equal(stats_of(memory).total_now, 64);
    mics_free(memory, block);
    assert_int_equal(mics_memory_close(memory), 0);
    capture_end();
}

static void test_memory_new(void **state)
{
    (void)state;
    capture seen;
    mics_memory *memory = NULL;
    int64_t *list = NULL, *none = NULL;
    capture_begin(&seen);
    ASSERT_OK(mics_memory_open(&memory));
    ASSERT_OK(MICS_NEW(memory, 9, &list));
    assert_int_equal(stats_of(memory).now[MICS_MEM_HOST], 128); // 72 bytes
    for (int i = 0; i < 9; i++)
        assert_int_equal(list[i], 0);
    ASSERT_STATUS(MICS_ERR_MEMORY, MICS_NEW(memory, -1, &none));
    ASSERT_SAID(&seen, "times 8 bytes");
    ASSERT_STATUS(MICS_ERR_MEMORY, MICS_NEW(memory, SIZE_MAX / 8, &none));
    ASSERT_SAID(&seen, "cannot allocate");
    assert_null(none);
    mics_free(memory, list);
    assert_int_equal(mics_memory_close(memory), 0);
    capture_end();
}

static void test_memory_realloc(void **state)
{
    (void)state;
    capture seen;
    mics_memory *memory = NULL;
    void *block = NULL;
    capture_begin(&seen);
    ASSERT_OK(mics_memory_open(&memory));
    ASSERT_OK(mics_realloc(memory, MICS_MEM_DATA, 10, &block));
    memset(block, 'x', 10);
    ASSERT_OK(mics_realloc(memory, MICS_MEM_DATA, 1000, &block));
    for (int i = 0; i < 1000; i++)
        assert_int_equal(((char *)block)[i], i < 10 ? 'x' : 0);
    mics_memory_fail_after(memory, 1);
    void *before = block;
    ASSERT_STATUS(MICS_ERR_MEMORY, mics_realloc(memory, MICS_MEM_DATA, 2000, &block));
    assert_ptr_equal(block, before);
    assert_int_equal(((char *)block)[9], 'x');
    ASSERT_OK(mics_realloc(memory, MICS_MEM_DATA, 5, &block));
    assert_int_equal(((char *)block)[4], 'x');
    mics_memory_stats stats = stats_of(memory);
    assert_int_equal(stats.live_blocks, 1);
    assert_int_equal(stats.now[MICS_MEM_DATA], 64);
    mics_free(memory, block);
    char *copy = NULL;
    ASSERT_OK(mics_strdup(memory, "text", &copy));
    assert_string_equal(copy, "text");
    mics_free(memory, copy);
    assert_int_equal(mics_memory_close(memory), 0);
    capture_end();
}

static void test_memory_tells_of_leaks(void **state)
{
    (void)state;
    capture seen;
    mics_memory *memory = NULL;
    void *block = NULL;
    capture_begin(&seen);
    ASSERT_OK(mics_memory_open(&memory));
    ASSERT_OK(mics_alloc(memory, MICS_MEM_GRADS, 1, &block));
    assert_int_equal(mics_memory_close(memory), 1);
    ASSERT_SAID(&seen, "64 bytes of gradients were never freed");
    // What the allocator took from calloc stands first in the header.
    free(*(void **)(void *)((char *)block - MICS_ALIGNMENT));
    capture_end();
}

static void *churn(void *ctx)
{
    mics_memory *memory = ctx;
    for (int i = 0; i < 2000; i++) {
        void *block = NULL;
        if (mics_alloc(memory, MICS_MEM_WORKSPACE, (size_t)i, &block) != MICS_OK)
            return ctx;
        mics_free(memory, block);
    }
    return NULL;
}

static void test_memory_in_threads(void **state)
{
    (void)state;
    enum { THREADS = 4 };
    mics_memory *memory = NULL;
    pthread_t threads[THREADS];
    ASSERT_OK(mics_memory_open(&memory));
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, churn, memory), 0);
    for (int i = 0; i < THREADS; i++) {
        void *failed = NULL;
        assert_int_equal(pthread_join(threads[i], &failed), 0);
        assert_null(failed);
    }
    mics_memory_stats stats = stats_of(memory);
    assert_int_equal(stats.allocations, 2000 * THREADS);
    assert_int_equal(stats.total_now, 0);
    assert_true(stats.total_peak >= 2048 && stats.total_peak <= 2048 * THREADS);
    assert_int_equal(mics_memory_close(memory), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_status_texts),
        cmocka_unit_test(test_status_of_errno),
        cmocka_unit_test(test_status_macros),
        cmocka_unit_test(test_log),
        cmocka_unit_test(test_log_held),
        cmocka_unit_test(test_log_demoted),
        cmocka_unit_test(test_sizes),
        cmocka_unit_test(test_size_texts),
        cmocka_unit_test(test_clock),
        cmocka_unit_test(test_condition_wait),
        cmocka_unit_test(test_fnv1a_known_answers),
        cmocka_unit_test(test_group),
        cmocka_unit_test(test_memory_counts),
        cmocka_unit_test(test_memory_block_bytes),
        cmocka_unit_test(test_memory_failures),
        cmocka_unit_test(test_memory_new),
        cmocka_unit_test(test_memory_realloc),
        cmocka_unit_test(test_memory_tells_of_leaks),
        cmocka_unit_test(test_memory_in_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
