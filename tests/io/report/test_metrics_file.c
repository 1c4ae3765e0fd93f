// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// metrics.jsonl: what is written, what a resume keeps, and what is refused.
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

static char folder[] = "/tmp/mics-metrics-XXXXXX";
static char shown[65536];

static const char *read_whole(const char *path)
{
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    shown[fread(shown, 1, sizeof shown - 1, file)] = '\0';
    fclose(file);
    return shown;
}

static void write_whole(const char *path, const char *text, size_t bytes)
{
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_int_equal(fwrite(text, 1, bytes, file), bytes);
    assert_int_equal(fclose(file), 0);
}

static mics_metrics metrics_of(int64_t step)
{
    return (mics_metrics){.step = step,
                          .slowest_rank = -1,
                          .steps = 10,
                          .loss = 1.0 / 3.0,
                          .lr = 3e-4,
                          .grad_norm = 0.5,
                          .tokens = step * 2048,
                          .tokens_per_s = 1234.5,
                          .step_ms = 20.25,
                          .mfu = NAN,
                          .memory_peak_bytes = INT64_C(1) << 40,
                          .sent_intra_bytes = 77,
                          .sent_inter_bytes = 0,
                          .exposed_comm_ms = 0.125,
                          .exposed_gather_ms = 0.0625,
                          .exposed_reduce_ms = 0.03125,
                          .exposed_second_hop_ms = 0,
                          .exposed_agree_ms = 0.03125};
}

// Appends steps [first, last] after a resume at `resume`.
static void write_steps(const char *path, int64_t resume, int64_t first, int64_t last)
{
    mics_metrics_file *file = NULL;
    ASSERT_OK(mics_metrics_open(memory, path, resume, &file));
    for (int64_t step = first; step <= last; step++) {
        mics_metrics metrics = metrics_of(step);
        ASSERT_OK(mics_metrics_write(file, &metrics));
    }
    ASSERT_OK(mics_metrics_close(file));
}

// The steps of the lines, as "1 2 3 ".
static const char *steps_in(const char *path)
{
    static char steps[1024];
    size_t used = 0;
    steps[0] = '\0';
    read_whole(path);
    for (char *line = strtok(shown, "\n"); line != NULL; line = strtok(NULL, "\n")) {
        mics_json *json = NULL;
        ASSERT_OK(mics_json_parse(memory, path, line, strlen(line), &json));
        used += (size_t)snprintf(steps + used, sizeof steps - used, "%d ",
                                 (int)mics_json_int(mics_json_at(json, "step")));
        mics_json_close(json);
    }
    return steps;
}

static void test_one_object_a_step(void **state)
{
    (void)state;
    mics_metrics_file *file = NULL;
    mics_metrics metrics = metrics_of(1);
    ASSERT_OK(mics_metrics_open(memory, "m.jsonl", 0, &file));
    ASSERT_OK(mics_metrics_write_validation(file, 0, 5.5, &(mics_preference_metrics){0}));
    ASSERT_OK(mics_metrics_write(file, &metrics));
    // Both are there before the file is closed.
    assert_string_equal(
        read_whole("m.jsonl"),
        "{\"step\": 0, \"validation_loss\": 5.5}\n"
        "{\"step\": 1, \"loss\": 0.3333333333333333, \"lr\": 0.0003, \"grad_norm\": 0.5, "
        "\"tokens\": 2048, \"tokens_per_s\": 1234.5, \"step_ms\": 20.25, \"mfu\": null, "
        "\"memory_peak_bytes\": 1099511627776, \"sent_intra_bytes\": 77, \"sent_inter_bytes\": 0, "
        "\"exposed_comm_ms\": 0.125, \"exposed_gather_ms\": 0.0625, \"exposed_reduce_ms\": "
        "0.03125, "
        "\"exposed_second_hop_ms\": 0, \"exposed_agree_ms\": 0.03125, \"exposed_copy_ms\": 0, "
        "\"save_ms\": 0, \"slowest_rank\": null, \"slowest_wait_ms\": null}\n");
    metrics.loss = INFINITY;
    ASSERT_OK(mics_metrics_write(file, &metrics));
    assert_non_null(strstr(read_whole("m.jsonl"), "\"loss\": null"));
    assert_null(strstr(read_whole("m.jsonl"), "router"));
    metrics.slowest_rank = 5;
    metrics.slowest_wait_ms = 2.5;
    metrics.router = (mics_router_metrics){
        .any = true, .entropy = 1.5, .fullest = 2.25, .balance = 2, .dropped = 0.125};
    ASSERT_OK(mics_metrics_write(file, &metrics));
    assert_non_null(strstr(read_whole("m.jsonl"),
                           "\"slowest_rank\": 5, \"slowest_wait_ms\": 2.5, "
                           "\"router_entropy\": 1.5, \"router_fullest\": 2.25, "
                           "\"router_balance\": 2, \"router_dropped\": 0.125}\n"));
    assert_null(strstr(read_whole("m.jsonl"), "islands"));
    metrics.islands = (mics_island_metrics){.islands = 4,
                                            .updated = 3,
                                            .meeting_intra_bytes = 5,
                                            .meeting_inter_bytes = 7,
                                            .exposed_meeting_ms = 0.5};
    ASSERT_OK(mics_metrics_write(file, &metrics));
    assert_non_null(strstr(read_whole("m.jsonl"),
                           "\"router_dropped\": 0.125, \"islands_updated\": 3, "
                           "\"meeting_intra_bytes\": 5, \"meeting_inter_bytes\": 7, "
                           "\"exposed_meeting_ms\": 0.5}\n"));
    ASSERT_OK(mics_metrics_close(file));
}

// A program that hands figures on has the file's line.
static void test_as_text(void **state)
{
    (void)state;
    char text[MICS_METRICS_TEXT_BYTES];
    mics_metrics metrics = metrics_of(7);
    metrics.phase = 2;
    mics_metrics_file *file = NULL;
    ASSERT_OK(mics_metrics_open(memory, "m.jsonl", 0, &file));
    ASSERT_OK(mics_metrics_write(file, &metrics));
    ASSERT_OK(mics_metrics_close(file));
    ASSERT_OK(mics_metrics_text(&metrics, text, sizeof text));
    const char *line = read_whole("m.jsonl");
    assert_int_equal(strlen(text) + 1, strlen(line));
    assert_memory_equal(text, line, strlen(text));
    ASSERT_STATUS(MICS_ERR_INVALID, mics_metrics_text(&metrics, text, strlen(text)));
    ASSERT_OK(mics_metrics_text(&metrics, text, strlen(line)));
    assert_memory_equal(text, line, strlen(text));
}

static void test_resume(void **state)
{
    (void)state;
    write_steps("r.jsonl", 0, 1, 5);
    assert_string_equal(steps_in("r.jsonl"), "1 2 3 4 5 ");
    write_steps("r.jsonl", 3, 4, 6);
    assert_string_equal(steps_in("r.jsonl"), "1 2 3 4 5 6 ");
    write_steps("r.jsonl", 100, 7, 7); // nothing to drop
    assert_string_equal(steps_in("r.jsonl"), "1 2 3 4 5 6 7 ");
    write_steps("r.jsonl", 0, 1, 2); // a new run
    assert_string_equal(steps_in("r.jsonl"), "1 2 ");
    write_steps("absent.jsonl", 9, 10, 10);
    assert_string_equal(steps_in("absent.jsonl"), "10 ");
    assert_int_not_equal(glob("r.jsonl.*.tmp", 0, NULL, &(glob_t){0}), 0);
}

// Wherever a crash ended, a resume keeps the whole lines.
static void test_torn_tail(void **state)
{
    (void)state;
    write_steps("t.jsonl", 0, 1, 2);
    read_whole("t.jsonl");
    char whole[2048];
    size_t bytes = strlen(shown), first = strcspn(shown, "\n") + 1;
    assert_true(bytes < sizeof whole);
    memcpy(whole, shown, bytes + 1);
    const size_t cuts[] = {0,         1,         first / 2, first - 2,
                           first - 1, first,     first + 1, (first + bytes) / 2,
                           bytes - 2, bytes - 1, bytes};
    for (size_t i = 0; i < sizeof cuts / sizeof *cuts; i++) {
        size_t cut = cuts[i];
        write_whole("t.jsonl", whole, cut);
        write_steps("t.jsonl", 2, 1, 0);
        assert_string_equal(steps_in("t.jsonl"), cut < first ? "" : cut < bytes ? "1 " : "1 2 ");
    }
    write_whole("t.jsonl", "{\"step\": 1}\n{\"st\0\0\0", 19);
    write_steps("t.jsonl", 2, 1, 0);
    assert_string_equal(steps_in("t.jsonl"), "1 ");
}

// Damage in a file of ours is left out, wherever it lies, and never keeps a run from going on.
static void test_damaged_lines(void **state)
{
    (void)state;
    static char text[20000];
    size_t bytes =
        (size_t)sprintf(text, "{\"step\": 1}\n{\"step\": 2, \"lo\n{\"step\": 3}\n") + 8192;
    write_whole("d.jsonl", text, bytes); // ends in two pages of zeros
    write_steps("d.jsonl", 9, 1, 0);
    assert_string_equal(steps_in("d.jsonl"), "1 3 ");
    bytes += (size_t)sprintf(text + bytes, "{\"step\": 4}\n{\"step\": 5}\n");
    write_whole("d.jsonl", text, bytes);
    write_steps("d.jsonl", 9, 1, 0);
    assert_string_equal(steps_in("d.jsonl"), "1 3 5 ");
    memset(text, 0, sizeof text);
    write_whole("d.jsonl", text, sizeof text);
    write_steps("d.jsonl", 9, 1, 1);
    assert_string_equal(steps_in("d.jsonl"), "1 ");
    assert_int_equal(seen.errors, 0);
    assert_true(seen.warnings >= 3);
}

static void test_foreign_files(void **state)
{
    (void)state;
    static char large[20000];
    memset(large, 'x', sizeof large - 1);
    static const struct {
        const char *text, *part;
    } cases[] = {
        {"not json\n{\"step\": 2}\n", "f.jsonl, line 1, column 3: "},
        {"{\"step\": -1}\n", "line 1: no \"step\" that counts"},
        {"{\"step\": 1.5}\n", "no \"step\""},
        {"{\"loss\": 1}\n", "no \"step\""},
        {"[1]\n", "no \"step\""},
        {"\n", "line 1"},
        {large, "more than 4096 bytes"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        mics_metrics_file *file = NULL;
        write_whole("f.jsonl", cases[i].text, strlen(cases[i].text));
        ASSERT_STATUS(MICS_ERR_FORMAT, mics_metrics_open(memory, "f.jsonl", 1, &file));
        ASSERT_SAID(&seen, cases[i].part);
        assert_null(file);
        assert_string_equal(read_whole("f.jsonl"), cases[i].text);
        assert_int_not_equal(glob("f.jsonl.*.tmp", 0, NULL, &(glob_t){0}), 0);
    }
}

static void test_bad_paths(void **state)
{
    (void)state;
    mics_metrics_file *file = NULL;
    ASSERT_STATUS(MICS_ERR_IO, mics_metrics_open(memory, "no/such/m.jsonl", 0, &file));
    ASSERT_SAID(&seen, "no/such/m.jsonl");
    ASSERT_STATUS(MICS_ERR_IO, mics_metrics_open(memory, ".", 0, &file));
    ASSERT_SAID(&seen, "not a regular file");
    assert_null(file);
}

// The files of this process may not grow beyond `bytes`: writing fails as on a full disk.
static void limit_files(rlim_t bytes)
{
    struct rlimit limit;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
    limit.rlim_cur = bytes;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
}

static void test_full_disk(void **state)
{
    (void)state;
    struct rlimit before;
    mics_metrics_file *file = NULL;
    mics_metrics metrics = metrics_of(1);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    signal(SIGXFSZ, SIG_IGN);
    ASSERT_OK(mics_metrics_open(memory, "full.jsonl", 0, &file));
    ASSERT_OK(mics_metrics_write(file, &metrics));
    limit_files(600); // inside the second line
    metrics.step = 2;
    ASSERT_STATUS(MICS_ERR_IO, mics_metrics_write(file, &metrics));
    ASSERT_SAID(&seen, "full.jsonl: cannot write: File too large");
    seen.errors = 0;
    assert_string_equal(steps_in("full.jsonl"), "1 "); // and no part of the second
    limit_files(before.rlim_cur);
    metrics.step = 3;
    ASSERT_OK(mics_metrics_write(file, &metrics));
    ASSERT_OK(mics_metrics_close(file));
    assert_string_equal(steps_in("full.jsonl"), "1 3 ");
    // A rewrite that fails leaves the file as it was.
    limit_files(100);
    ASSERT_STATUS(MICS_ERR_IO, mics_metrics_open(memory, "full.jsonl", 1, &file));
    ASSERT_SAID(&seen, "cannot write");
    limit_files(before.rlim_cur);
    write_steps("full.jsonl", 1, 2, 2);
    assert_string_equal(steps_in("full.jsonl"), "1 2 ");
}

static void test_allocations_fail(void **state)
{
    (void)state;
    mics_metrics_file *file = NULL;
    mics_status status = MICS_ERR_MEMORY;
    write_steps("a.jsonl", 0, 1, 3);
    for (int64_t n = 1; status != MICS_OK; n++) {
        assert_true(n < 50);
        mics_memory_fail_after(memory, n);
        status = mics_metrics_open(memory, "a.jsonl", 2, &file);
        mics_memory_fail_after(memory, 0);
        if (status == MICS_OK)
            break;
        assert_int_equal(status, MICS_ERR_MEMORY);
        assert_null(file);
        mics_memory_stats stats;
        mics_memory_stats_get(memory, &stats);
        assert_int_equal(stats.live_blocks, 0);
        assert_string_equal(steps_in("a.jsonl"), "1 2 3 ");
    }
    ASSERT_OK(mics_metrics_close(file));
    ASSERT_OK(mics_metrics_close(NULL));
    assert_string_equal(steps_in("a.jsonl"), "1 2 ");
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
        cmocka_unit_test_setup_teardown(test_one_object_a_step, setup, teardown),
        cmocka_unit_test_setup_teardown(test_as_text, setup, teardown),
        cmocka_unit_test_setup_teardown(test_resume, setup, teardown),
        cmocka_unit_test_setup_teardown(test_torn_tail, setup, teardown),
        cmocka_unit_test_setup_teardown(test_damaged_lines, setup, teardown),
        cmocka_unit_test_setup_teardown(test_foreign_files, setup, teardown),
        cmocka_unit_test_setup_teardown(test_bad_paths, setup, teardown),
        cmocka_unit_test_setup_teardown(test_full_disk, setup, teardown),
        cmocka_unit_test_setup_teardown(test_allocations_fail, setup, teardown),
    };
    return cmocka_run_group_tests(tests, group_setup, group_teardown);
}
