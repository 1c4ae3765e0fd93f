// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Traces: what a viewer needs is there, whatever the names; and what is there when writing fails.
#include "base/json.h"
#include "base/watched.h"
#include "mics/report.h"
#include "test.h"
#include <glob.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MOST_BYTES = 1 << 26 };

static char folder[] = "/tmp/mics-trace-XXXXXX";

// ---- reading ----

static const mics_json_value *events_of(const mics_json *json)
{
    return mics_json_at(json, "traceEvents");
}

static const char *text_of(const mics_json_value *event, const char *key)
{
    const char *text = mics_json_string(mics_json_get(event, key));
    return text != NULL ? text : "";
}

static double real_of(const mics_json_value *event, const char *key)
{
    return mics_json_real(mics_json_get(event, key));
}

static bool is_phase(const mics_json_value *event, const char *phase)
{
    return strcmp(text_of(event, "ph"), phase) == 0;
}

static int32_t count_phase(const mics_json *json, const char *phase)
{
    int32_t count = 0;
    for (int32_t i = 0; i < mics_json_count(events_of(json)); i++)
        count += is_phase(mics_json_element(events_of(json), i), phase) ? 1 : 0;
    return count;
}

// The event of a phase and a name; `nth` from 0.
static const mics_json_value *find(const mics_json *json, const char *phase, const char *name,
                                   int32_t nth)
{
    for (int32_t i = 0; i < mics_json_count(events_of(json)); i++) {
        const mics_json_value *event = mics_json_element(events_of(json), i);
        if (is_phase(event, phase) && strcmp(text_of(event, "name"), name) == 0 && nth-- == 0)
            return event;
    }
    fail_msg("no event %s of phase %s", name, phase);
    return NULL;
}

static mics_json *load(const char *path)
{
    mics_json *json = NULL;
    ASSERT_OK(mics_json_load(memory, path, MOST_BYTES, &json));
    return json;
}

// ---- writing ----

static mics_trace_event event_of(int32_t process, int32_t track, const char *name, double begin_us,
                                 double end_us)
{
    return (mics_trace_event){.process = process,
                              .track = track,
                              .name = name,
                              .category = "test",
                              .begin_us = begin_us,
                              .end_us = end_us};
}

static mics_trace *open_trace(const char *path)
{
    mics_trace *trace = NULL;
    ASSERT_OK(mics_trace_open(memory, path, &trace));
    return trace;
}

static void finish(mics_trace *trace)
{
    ASSERT_OK(mics_trace_finish(trace));
    mics_trace_close(trace);
}

// Two processes of two tracks with `count` events each. Failures stick in the trace.
static void write_some(mics_trace *trace, int32_t count)
{
    for (int32_t process = 0; process < 2; process++) {
        mics_trace_name_process(trace, process, process == 0 ? "rank 0" : "rank 1");
        for (int32_t track = 0; track < 2; track++) {
            mics_trace_name_track(trace, process, track, track == 0 ? "compute" : "near");
            for (int32_t i = 0; i < count; i++) {
                mics_trace_event event = event_of(process, track, "forward h.3", i, i + 0.75);
                mics_trace_write(trace, &event);
            }
        }
    }
    mics_trace_note_real(trace, "count", count);
}

// ---- tests ----

static void test_what_viewers_need(void **state)
{
    (void)state;
    mics_trace *trace = open_trace("t.json");
    const mics_trace_arg args[] = {{"bytes", NULL, 12345678901.0},
                                   {"group", "partition group", 0},
                                   {"share", NULL, 0.125},
                                   {"unknown", NULL, NAN}};
    mics_trace_event gather = event_of(3, 1, "gather h.3", 1.5, 4.25);
    gather.args = args;
    gather.arg_count = 4;
    mics_trace_event forward = event_of(3, 0, "forward h.3", 5000000.0004, 5000000.0016);
    mics_trace_name_process(trace, 3, "rank 3, node 1");
    mics_trace_name_track(trace, 3, 1, "near");
    mics_trace_write(trace, &gather);
    mics_trace_write(trace, &forward);
    mics_trace_arrow(trace, &gather, &forward);
    finish(trace);
    assert_int_not_equal(glob("t.json.*.tmp", 0, NULL, &(glob_t){0}), 0);

    mics_json *json = load("t.json");
    assert_int_equal(mics_json_count(events_of(json)), 8);
    const mics_json_value *name = find(json, "M", "process_name", 0);
    assert_int_equal(mics_json_int(mics_json_get(name, "pid")), 3);
    assert_string_equal(text_of(mics_json_get(name, "args"), "name"), "rank 3, node 1");
    const mics_json_value *order = find(json, "M", "thread_sort_index", 0);
    assert_int_equal(mics_json_int(mics_json_get(mics_json_get(order, "args"), "sort_index")), 1);

    const mics_json_value *x = find(json, "X", "gather h.3", 0);
    assert_true(real_of(x, "ts") == 1.5 && real_of(x, "dur") == 2.75);
    assert_int_equal(mics_json_int(mics_json_get(x, "tid")),
                     mics_json_int(mics_json_get(order, "tid")));
    const mics_json_value *a = mics_json_get(x, "args");
    assert_int_equal(mics_json_type_of(mics_json_get(a, "bytes")), MICS_JSON_INT);
    assert_true(mics_json_int(mics_json_get(a, "bytes")) == 12345678901);
    assert_string_equal(text_of(a, "group"), "partition group");
    assert_true(real_of(a, "share") == 0.125);
    assert_int_equal(mics_json_type_of(mics_json_get(a, "unknown")), MICS_JSON_NULL);
    x = find(json, "X", "forward h.3", 0);
    assert_true(real_of(x, "ts") == 5000000.0 && real_of(x, "dur") == 0.002);

    // An arrow leaves while its event lasts, and arrives as the other begins.
    const mics_json_value *from = find(json, "s", "waits", 0), *to = find(json, "f", "waits", 0);
    assert_true(real_of(from, "ts") < 4.25 && real_of(from, "ts") > 4.2);
    assert_true(real_of(to, "ts") == 5000000.0);
    assert_int_equal(mics_json_int(mics_json_get(from, "id")),
                     mics_json_int(mics_json_get(to, "id")));
    mics_json_close(json);
}

// No thread has the number of a process, which viewers would show first, nor that of another thread.
static void test_thread_numbers(void **state)
{
    (void)state;
    mics_trace *trace = open_trace("n.json");
    for (int32_t process = 0; process < 70; process++) {
        mics_trace_name_track(trace, process, 0, "first");
        mics_trace_name_track(trace, process, MICS_TRACE_TRACKS - 1, "last");
    }
    finish(trace);
    mics_json *json = load("n.json");
    int64_t before = 70;
    for (int32_t i = 0; i < mics_json_count(events_of(json)); i += 2) {
        const int64_t tid =
            mics_json_int(mics_json_get(mics_json_element(events_of(json), i), "tid"));
        assert_true(tid > before);
        before = tid;
    }
    mics_json_close(json);
}

// What meets in the simulator does not overlap by a rounding.
static void test_rounding(void **state)
{
    (void)state;
    mics_trace *trace = open_trace("r.json");
    double at = 1234567890123.0;
    for (int i = 0; i < 1000; i++) {
        mics_trace_event event = event_of(0, 0, "e", at, at + 0.0007 * i);
        mics_trace_write(trace, &event);
        at = event.end_us;
    }
    finish(trace);
    mics_json *json = load("r.json");
    int64_t end = 0;
    for (int32_t i = 0; i < 1000; i++) {
        const mics_json_value *event = mics_json_element(events_of(json), i);
        const int64_t begin = llround((real_of(event, "ts") - 1234567890000.0) * 1e3);
        assert_true(i == 0 || begin == end);
        end = begin + llround(real_of(event, "dur") * 1e3);
    }
    mics_json_close(json);
    // Before the clock's zero.
    trace = open_trace("r.json");
    mics_trace_event event = event_of(0, 0, "e", -1.25, -0.125);
    mics_trace_write(trace, &event);
    finish(trace);
    json = load("r.json");
    const mics_json_value *x = find(json, "X", "e", 0);
    assert_true(real_of(x, "ts") == -1.25 && real_of(x, "dur") == 1.125);
    mics_json_close(json);
}

static void test_hostile_names(void **state)
{
    (void)state;
    static char large[3000];
    memset(large, 'x', sizeof large - 1);
    memcpy(large + 254, "\xc3\xa9", 2); // the cut would go through it
    static const struct {
        const char *name, *read;
    } cases[] = {
        {"", ""},
        {"\"}]}, \\u0000 \\", "\"}]}, \\u0000 \\"},
        {"a\nb\tc\x01\x7f", "a\nb\tc\x01\x7f"},
        {"%s%n%d", "%s%n%d"},
        {"\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80", "\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80"},
        {"\xff\xfe \x80", "?? ?"},
        {"\xc3", "?"},
        {"\xe2\x82", "??"},
        {"\xc0\xaf \xe0\x80\xaf \xf0\x80\x80\xaf", "?? ??? ????"}, // overlong
        {"\xed\xa0\x80 \xf4\x90\x80\x80", "??? ????"},             // a surrogate; beyond the last
    };
    const int32_t count = sizeof cases / sizeof *cases;
    mics_trace *trace = open_trace("h.json");
    for (int32_t i = 0; i < count; i++) {
        const mics_trace_arg arg = {"text", cases[i].name, 0};
        mics_trace_event event = event_of(0, 0, cases[i].name, i, i + 0.5);
        event.category = cases[i].name;
        event.args = &arg;
        event.arg_count = 1;
        mics_trace_write(trace, &event);
    }
    mics_trace_event event = event_of(0, 0, large, 100, 101);
    mics_trace_write(trace, &event);
    mics_trace_note_text(trace, "\"\xff\n", "\\\xff");
    finish(trace);

    mics_json *json = load("h.json");
    for (int32_t i = 0; i < count; i++) {
        const mics_json_value *read = mics_json_element(events_of(json), i);
        assert_string_equal(text_of(read, "name"), cases[i].read);
        assert_string_equal(text_of(read, "cat"), cases[i].read);
        assert_string_equal(text_of(mics_json_get(read, "args"), "text"), cases[i].read);
    }
    const char *cut = text_of(mics_json_element(events_of(json), count), "name");
    assert_int_equal(strlen(cut), 254);
    assert_string_equal(text_of(mics_json_at(json, "otherData"), "\"?\n"), "\\?");
    mics_json_close(json);
}

static void test_notes(void **state)
{
    (void)state;
    const double values[] = {1, 0.5, INFINITY, -3e20};
    mics_trace *trace = open_trace("o.json");
    mics_trace_note_real(trace, "ratio", 1.0625);
    mics_trace_note_real(trace, "none", NAN);
    mics_trace_note_text(trace, "what", "a step");
    mics_trace_note_reals(trace, "by_rank", values, 4);
    mics_trace_note_reals(trace, "empty", values, 0);
    finish(trace);
    mics_json *json = load("o.json");
    const mics_json_value *other = mics_json_at(json, "otherData");
    assert_int_equal(mics_json_count(events_of(json)), 0);
    assert_true(real_of(other, "ratio") == 1.0625);
    assert_int_equal(mics_json_type_of(mics_json_get(other, "none")), MICS_JSON_NULL);
    assert_string_equal(text_of(other, "what"), "a step");
    const mics_json_value *by_rank = mics_json_get(other, "by_rank");
    assert_int_equal(mics_json_count(by_rank), 4);
    assert_int_equal(mics_json_type_of(mics_json_element(by_rank, 0)), MICS_JSON_INT);
    assert_int_equal(mics_json_type_of(mics_json_element(by_rank, 2)), MICS_JSON_NULL);
    assert_true(mics_json_real(mics_json_element(by_rank, 3)) == -3e20);
    assert_int_equal(mics_json_count(mics_json_get(other, "empty")), 0);
    mics_json_close(json);
    // A trace of nothing is one too.
    finish(open_trace("o.json"));
    json = load("o.json");
    assert_int_equal(mics_json_count(mics_json_at(json, "otherData")), 0);
    mics_json_close(json);
}

static void test_bad_events(void **state)
{
    (void)state;
    const mics_trace_event bad[] = {
        event_of(0, 0, "e", 2, 1),        event_of(0, 0, "e", NAN, 1),
        event_of(0, 0, "e", 0, INFINITY), event_of(0, 0, "e", 0, 1e300),
        event_of(-1, 0, "e", 0, 1),       event_of(1 << 24, 0, "e", 0, 1),
        event_of(0, -2, "e", 0, 1),       event_of(0, MICS_TRACE_TRACKS, "e", 0, 1),
    };
    finish(open_trace("b.json"));
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        mics_trace *trace = open_trace("b.json");
        seen.errors = 0;
        write_some(trace, 1);
        mics_trace_write(trace, &bad[i]);
        assert_int_equal(seen.errors, 1);
        mics_trace_write(trace, &bad[i]); // said once
        write_some(trace, 1);
        ASSERT_STATUS(MICS_ERR_INVALID, mics_trace_finish(trace));
        assert_int_equal(seen.errors, 1);
        mics_trace_close(trace);
        mics_json *json = load("b.json");
        assert_int_equal(mics_json_count(events_of(json)), 0);
        mics_json_close(json);
        assert_int_not_equal(glob("b.json.*.tmp", 0, NULL, &(glob_t){0}), 0);
    }
}

static void test_paths(void **state)
{
    (void)state;
    mics_trace *trace = NULL;
    ASSERT_STATUS(MICS_ERR_IO, mics_trace_open(memory, "no/such/t.json", &trace));
    ASSERT_SAID(&seen, "no/such/t.json");
    assert_null(trace);
    // What cannot be renamed over stays.
    assert_int_equal(mkdir("folder", 0777), 0);
    trace = open_trace("folder");
    ASSERT_STATUS(MICS_ERR_IO, mics_trace_finish(trace));
    ASSERT_SAID(&seen, "cannot rename to folder");
    mics_trace_close(trace);
    assert_int_not_equal(glob("folder.*.tmp", 0, NULL, &(glob_t){0}), 0);
    // One that is given up leaves nothing, and what was there stays.
    trace = open_trace("p.json");
    write_some(trace, 1);
    finish(trace);
    trace = open_trace("p.json");
    write_some(trace, 5000);
    mics_trace_close(trace);
    assert_int_not_equal(glob("p.json.*.tmp", 0, NULL, &(glob_t){0}), 0);
    mics_json *json = load("p.json");
    assert_int_equal(count_phase(json, "X"), 4);
    mics_json_close(json);
    mics_trace_close(NULL);
}

// More than is kept before it is written.
static void test_many(void **state)
{
    (void)state;
    mics_trace *trace = open_trace("m.json");
    write_some(trace, 5000);
    mics_memory_stats stats;
    mics_memory_stats_get(memory, &stats);
    assert_true(stats.now[MICS_MEM_HOST] < 1 << 18);
    finish(trace);
    mics_json *json = load("m.json");
    assert_int_equal(count_phase(json, "X"), 20000);
    assert_true(real_of(mics_json_at(json, "otherData"), "count") == 5000);
    mics_json_close(json);
}

static void limit_files(rlim_t bytes)
{
    struct rlimit limit;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
    limit.rlim_cur = bytes;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
}

// Wherever the disk is full: one line, and the trace of before.
static void test_full_disk(void **state)
{
    (void)state;
    struct rlimit before;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    signal(SIGXFSZ, SIG_IGN);
    mics_trace *trace = open_trace("full.json");
    write_some(trace, 1);
    finish(trace);
    static const rlim_t limits[] = {0, 1000, 65536, 200000};
    for (size_t i = 0; i < sizeof limits / sizeof *limits; i++) {
        seen.errors = 0;
        trace = open_trace("full.json");
        limit_files(limits[i]);
        write_some(trace, 1000);
        ASSERT_STATUS(MICS_ERR_IO, mics_trace_finish(trace));
        limit_files(before.rlim_cur);
        mics_trace_close(trace);
        assert_int_equal(seen.errors, 1);
        ASSERT_SAID(&seen, ".tmp: cannot write");
        assert_int_not_equal(glob("full.json.*.tmp", 0, NULL, &(glob_t){0}), 0);
        mics_json *json = load("full.json");
        assert_int_equal(count_phase(json, "X"), 4);
        mics_json_close(json);
    }
}

static void test_allocations_fail(void **state)
{
    (void)state;
    mics_status status = MICS_ERR_MEMORY;
    for (int64_t n = 1; status != MICS_OK; n++) {
        assert_true(n < 50);
        mics_trace *trace = NULL;
        mics_memory_fail_after(memory, n);
        status = mics_trace_open(memory, "a.json", &trace);
        if (status == MICS_OK) {
            write_some(trace, 400);
            status = mics_trace_finish(trace);
        }
        mics_trace_close(trace);
        mics_memory_fail_after(memory, 0);
        mics_memory_stats stats;
        mics_memory_stats_get(memory, &stats);
        assert_int_equal(stats.live_blocks, 0);
        assert_int_not_equal(glob("a.json.*.tmp", 0, NULL, &(glob_t){0}), 0);
        if (status != MICS_OK) {
            assert_int_equal(status, MICS_ERR_MEMORY);
            assert_int_not_equal(access("a.json", F_OK), 0);
        }
    }
    mics_json *json = load("a.json");
    assert_int_equal(count_phase(json, "X"), 1600);
    mics_json_close(json);
}

static int group_setup(void **state)
{
    (void)state;
    return mkdtemp(folder) != NULL && chdir(folder) == 0 ? 0 : 1;
}

static int group_teardown(void **state)
{
    (void)state;
    char command[64];
    snprintf(command, sizeof command, "rm -r %s", folder);
    return chdir("/") == 0 && system(command) == 0 ? 0 : 1;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_what_viewers_need, setup, teardown),
        cmocka_unit_test_setup_teardown(test_thread_numbers, setup, teardown),
        cmocka_unit_test_setup_teardown(test_rounding, setup, teardown),
        cmocka_unit_test_setup_teardown(test_hostile_names, setup, teardown),
        cmocka_unit_test_setup_teardown(test_notes, setup, teardown),
        cmocka_unit_test_setup_teardown(test_bad_events, setup, teardown),
        cmocka_unit_test_setup_teardown(test_paths, setup, teardown),
        cmocka_unit_test_setup_teardown(test_many, setup, teardown),
        cmocka_unit_test_setup_teardown(test_full_disk, setup, teardown),
        cmocka_unit_test_setup_teardown(test_allocations_fail, setup, teardown),
    };
    return cmocka_run_group_tests(tests, group_setup, group_teardown);
}
