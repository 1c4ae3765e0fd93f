// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// metrics.jsonl thinned out: no value is lost in means, a spike stays seen, damage is counted and
// nothing else; figures over steps as pictures, and the page that has them.
#include "base/watched.h"
#include "io/report/draw.h"
#include "io/report/page.h"
#include "test.h"
#include <math.h>
#include <stdlib.h>
#include <unistd.h>

static char folder[] = "/tmp/mics-history-XXXXXX";
static const char path[] = "metrics.jsonl";

static void write_bytes(const char *text, size_t bytes)
{
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_int_equal(fwrite(text, 1, bytes, file), bytes);
    assert_int_equal(fclose(file), 0);
}

static void write_text(const char *text)
{
    write_bytes(text, strlen(text));
}

static history *open_it(int32_t buckets, int64_t tail_bytes)
{
    history *of = NULL;
    ASSERT_OK(history_open(memory, path, buckets, tail_bytes, &of));
    return of;
}

static void test_each_step(void **state)
{
    (void)state;
    write_text("{\"step\": 0, \"validation_loss\": 5.5}\n"
               "{\"step\": 1, \"loss\": 0.30000000000000004, \"mfu\": null, \"tokens\": 2048}\n"
               "{\"step\": 2, \"loss\": null, \"tokens\": 4096, \"rewards/chosen\": -1e-3}\n");
    history *of = open_it(8, 0);
    assert_int_equal(of->first, 0);
    assert_int_equal(of->last, 2);
    assert_int_equal(of->width, 1);
    assert_int_equal(of->lines, 3);
    assert_int_equal(of->damaged, 0);
    const history_figure *loss = history_find(of, "loss");
    assert_non_null(loss);
    assert_true(loss->newest == 0.30000000000000004);
    assert_int_equal(loss->nulls, 1);
    assert_int_equal(loss->buckets[1].count, 1);
    assert_int_equal(loss->buckets[2].count, 0);
    assert_true(history_find(of, "rewards/chosen")->newest == -1e-3);
    assert_true(history_find(of, "validation_loss")->buckets[0].sum == 5.5);
    assert_null(history_find(of, "mfu")); // it has no value
    assert_null(history_find(of, "los"));
    history_close(of);
}

// 1000 steps of 1, but for one of 100, in 16 buckets of 64 steps.
static void test_spike(void **state)
{
    (void)state;
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    for (int step = 1; step <= 1000; step++)
        fprintf(file, "{\"step\": %d, \"loss\": %d}\n", step, step == 700 ? 100 : 1);
    assert_int_equal(fclose(file), 0);
    history *of = open_it(16, 0);
    const history_figure *loss = history_find(of, "loss");
    int64_t count = 0, spikes = 0;
    double sum = 0;
    assert_int_equal(of->width, 64);
    for (int32_t i = 0; i < 16; i++) {
        count += loss->buckets[i].count;
        sum += loss->buckets[i].sum;
        spikes += loss->buckets[i].max == 100;
        assert_true(loss->buckets[i].min == 1);
    }
    assert_int_equal(count, 1000);
    assert_true(sum == 1099);
    assert_int_equal(spikes, 1);
    assert_true(loss->buckets[(700 - 1) / 64].max == 100);
    assert_true(history_step(of, 0) == 32.5); // steps 1 to 64
    history_close(of);
    // A run that was resumed in another folder begins late.
    write_text("{\"step\": 900001, \"loss\": 1}\n{\"step\": 900002, \"loss\": 2}\n");
    of = open_it(16, 0);
    assert_int_equal(of->width, 1);
    assert_true(history_find(of, "loss")->buckets[1].sum == 2);
    history_close(of);
}

static void test_damage(void **state)
{
    (void)state;
    static const char text[] = "{\"step\": 1, \"loss\": 1}\n"
                               "{\"step\": 2, \"loss\": \0\0\0\0}\n"
                               "{\"step\": 3, \"loss\": 3\n"
                               "{\"step\": 4, \"loss\": inf}\n"
                               "\n"
                               "{\"step\": 5, \"loss\": 5}\n"
                               "{\"step\": 6, \"loss\": 6"; // still being written
    write_bytes(text, sizeof text - 1);
    history *of = open_it(8, 0);
    assert_int_equal(of->lines, 6);
    assert_int_equal(of->damaged, 4);
    assert_int_equal(of->last, 5);
    assert_true(history_find(of, "loss")->newest == 5);
    history_close(of);
    // A line longer than ours is one.
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fprintf(file,
            "{\"step\": 1, \"loss\": 1}\n{\"step\": 2, \"a\": \"%05000d\"}\n"
            "{\"step\": 3, \"loss\": 3}\n",
            0);
    assert_int_equal(fclose(file), 0);
    of = open_it(8, 0);
    assert_int_equal(of->lines, 3);
    assert_int_equal(of->damaged, 1);
    assert_int_equal(of->last, 3);
    history_close(of);
}

static void test_tail(void **state)
{
    (void)state;
    write_text("{\"step\": 1, \"loss\": 1}\n{\"step\": 2, \"loss\": 2}\n"
               "{\"step\": 3, \"loss\": 3}\n");
    history *of = open_it(8, 30); // a line has 23 bytes
    assert_int_equal(of->lines, 1);
    assert_int_equal(of->first, 3);
    history_close(of);
    of = open_it(8, 4096);
    assert_int_equal(of->lines, 3);
    history_close(of);
}

static void test_foreign(void **state)
{
    (void)state;
    history *of = NULL;
    write_text("step,loss\n1,2\n");
    assert_int_equal(history_open(memory, path, 8, 0, &of), MICS_ERR_FORMAT);
    ASSERT_SAID(&seen, "no line is of a run's metrics");
    assert_int_equal(history_open(memory, "none.jsonl", 8, 0, &of), MICS_ERR_IO);
    ASSERT_SAID(&seen, "none.jsonl: cannot open");
    assert_null(of);
    write_text("");
    of = open_it(8, 0);
    assert_int_equal(of->last, -1);
    history_close(of);
}

// ---- pictures ----

static void test_curves(void **state)
{
    (void)state;
    mics_text page = {.memory = memory};
    write_text(
        "{\"step\": 1, \"loss\": 0.1}\n{\"step\": 2, \"lr\": 7}\n{\"step\": 3, \"loss\": 4}\n");
    history *of = open_it(8, 0);
    const curve one = {.run = of,
                       .figure = history_find(of, "loss"),
                       .name = "a\"><script>x</script>&",
                       .colour = 2};
    draw_curves(&page, "<b>\"loss\"", &one, 1);
    ASSERT_OK(mics_text_status(&page));
    assert_non_null(strstr(page.bytes, "aria-label=\"&lt;b&gt;&quot;loss&quot;\""));
    assert_non_null(
        strstr(page.bytes, "data-name=\"a&quot;&gt;&lt;script&gt;x&lt;/script&gt;&amp;\""));
    assert_null(strstr(page.bytes, "<script>"));
    // From the lower left to the upper right, over the step without a loss.
    assert_non_null(strstr(page.bytes, "class=\"line c2 d0\" d=\"M58.0 197.2L548.0 "));
    assert_non_null(strstr(page.bytes, "data-first=\"1\" data-width=\"1\""));
    assert_non_null(strstr(page.bytes, "data-mean=\"0.1 - 4\""));
    assert_null(strstr(page.bytes, "class=\"band")); // a bucket is a step
    assert_null(strstr(page.bytes, "nan"));
    history_close(of);
    // Of several steps a bucket: the mean, and what it hides.
    page.used = 0;
    of = open_it(2, 0);
    draw_curves(&page, "loss", &(curve){.run = of, .figure = history_find(of, "loss")}, 1);
    assert_non_null(strstr(page.bytes, "class=\"band"));
    assert_non_null(
        strstr(page.bytes, "data-min=\"0.1 4\" data-mean=\"0.1 4\" data-max=\"0.1 4\""));
    history_close(of);
    mics_text_fini(&page);
}

// ---- the page ----

static void write_file(const char *name, const char *text)
{
    FILE *file = fopen(name, "w");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

static mics_status make_page(mics_text *page)
{
    report_run run = {0};
    *page = (mics_text){.memory = memory};
    MICS_TRY(report_run_open(memory, ".", 8, 0, &run));
    const mics_status status = report_page(page, &run, 1);
    report_run_close(&run);
    return status;
}

// A page is whole, or there is none: whichever allocation fails.
static void test_page(void **state)
{
    (void)state;
    mics_text page;
    mics_memory_stats stats;
    mics_status status = MICS_ERR_MEMORY;
    write_text("{\"step\": 1, \"loss\": 2, \"a<b\": 1, \"memory_peak_bytes\": 1000000}\n"
               "{\"step\": 2, \"loss\": 1, \"a<b\": null, \"memory_peak_bytes\": 1000000}\n"
               "damage\n");
    write_file("resolved.json", "{\n  \"run\": {\"steps\": 4}\n}\n");
    write_file("about.json", "{\"predicted\": {\"memory_peak_bytes\": 1000000}}");
    write_file("samples.jsonl", "{\"step\": 2, \"prompt\": \"a\", \"text\": \"<i>\"}\n");
    write_file(
        "trace.json",
        "{\"displayTimeUnit\": \"ms\", \"traceEvents\": [\n"
        "{\"ph\": \"M\", \"pid\": 0, \"tid\": 64, \"name\": \"thread_name\", \"args\": {\"name\": "
        "\"compute\"}},\n"
        "{\"ph\": \"M\", \"pid\": 0, \"tid\": 65, \"name\": \"thread_name\", \"args\": {\"name\": "
        "\"intra\"}},\n"
        "{\"ph\": \"X\", \"pid\": 0, \"tid\": 65, \"ts\": 100.500, \"dur\": 20.000, \"name\": "
        "\"gather h.0\", \"cat\": \"gather\", \"args\": {\"step\": 5, \"entry\": 0}},\n"
        "{\"ph\": \"X\", \"pid\": 0, \"tid\": 64, \"ts\": 98.500, \"dur\": 4.000, \"name\": "
        "\"forward h.0\", \"cat\": \"forward\", \"args\": {\"step\": 5, \"entry\": 1}},\n"
        "{\"ph\": \"X\", \"pid\": 0, \"tid\": 64, \"ts\": 900.500, \"dur\": 4.000, \"name\": "
        "\"forward h.0\", \"cat\": \"forward\", \"args\": {\"step\": 6, \"entry\": 1}},\n"
        "{\"ph\": \"X\", \"pid\": 1, \"tid\": 128, \"ts\": 1.500, \"dur\": 4.000, \"name\": "
        "\"forward h.0\", \"cat\": \"forward\", \"args\": {\"step\": 5, \"entry\": 1}}\n],\n"
        "\"otherData\": {\n\"exposed_us_by_rank\": [300.5, 1200, 30.25],\n}}\n");
    for (int64_t n = 1; status != MICS_OK; n++) {
        assert_true(n < 200);
        mics_memory_fail_after(memory, n);
        status = make_page(&page);
        mics_memory_fail_after(memory, 0);
        if (status == MICS_OK)
            break;
        assert_int_equal(status, MICS_ERR_MEMORY);
        mics_text_fini(&page);
        mics_memory_stats_get(memory, &stats);
        assert_int_equal(stats.live_blocks, 0);
    }
    static const char *const parts[] = {
        "<td>2 of 4",
        "<td>1000000, as predicted",
        ">a&lt;b</figcaption>",
        "&lt;i&gt;</pre>",
        "1 of 3 lines of metrics.jsonl cannot be read",
        "Not finite in 1 lines: a&lt;b",
        "Step 5 of rank 0 by its streams, 0.02 ms",
        "<rect class=\"gather\" x=\"0.0\" y=\"34\" width=\"20.0\"",
        "<rect class=\"forward\" x=\"-2.0\" y=\"0\" width=\"4.0\"",
        "viewBox=\"-2.0 0 22.0 68\"",
        "Of 3 ranks, number 2 waits least for collectives (0.030 ms"};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        if (strstr(page.bytes, parts[i]) == NULL)
            fail_msg("the page lacks %s", parts[i]);
    }
    const char *second = strstr(page.bytes, "class=\"forward\"");
    assert_null(strstr(second + 1, "class=\"forward\"")); // of another rank, or step
    mics_text_fini(&page);
}

static int group_setup(void **state)
{
    (void)state;
    return mkdtemp(folder) != NULL && chdir(folder) == 0 ? 0 : 1;
}

static int group_teardown(void **state)
{
    (void)state;
    static const char *const names[] = {path, "resolved.json", "about.json", "samples.jsonl",
                                        "trace.json"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        (void)unlink(names[i]);
    return chdir("/") == 0 && rmdir(folder) == 0 ? 0 : 1;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_each_step, setup, teardown),
        cmocka_unit_test_setup_teardown(test_spike, setup, teardown),
        cmocka_unit_test_setup_teardown(test_damage, setup, teardown),
        cmocka_unit_test_setup_teardown(test_tail, setup, teardown),
        cmocka_unit_test_setup_teardown(test_foreign, setup, teardown),
        cmocka_unit_test_setup_teardown(test_curves, setup, teardown),
        cmocka_unit_test_setup_teardown(test_page, setup, teardown),
    };
    return cmocka_run_group_tests(tests, group_setup, group_teardown);
}
