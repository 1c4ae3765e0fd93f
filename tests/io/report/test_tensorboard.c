// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Event files for TensorBoard, read back record by record and field by field; Prometheus' file.
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

static char folder[] = "/tmp/mics-events-XXXXXX";

static mics_metrics metrics_of(int64_t step)
{
    return (mics_metrics){.step = step,
                          .steps = 10,
                          .loss = 1.0 / 3.0,
                          .lr = 3e-4,
                          .grad_norm = INFINITY,
                          .tokens = step * 2048,
                          .tokens_per_s = 1234.5,
                          .step_ms = 20.25,
                          .mfu = NAN,
                          .memory_peak_bytes = INT64_C(1) << 40,
                          .sent_intra_bytes = 77,
                          .exposed_comm_ms = 0.125};
}

// ---- a reader ----

typedef struct bytes {
    const unsigned char *at;
    size_t count;
} bytes;

static bytes take(bytes *from, size_t count)
{
    assert_true(count <= from->count);
    const bytes taken = {from->at, count};
    from->at += count;
    from->count -= count;
    return taken;
}

static uint64_t take_little(bytes *from, size_t count)
{
    const bytes taken = take(from, count);
    uint64_t value = 0;
    for (size_t i = count; i-- > 0;)
        value = value << 8 | taken.at[i];
    return value;
}

static uint64_t take_varint(bytes *from)
{
    uint64_t value = 0;
    for (unsigned shift = 0;; shift += 7) {
        const uint64_t byte = take_little(from, 1);
        value |= (byte & 0x7f) << shift;
        if (byte < 0x80)
            return value;
    }
}

// By polynomial division of the reversed message, another way than the writer's.
static uint32_t masked_crc(bytes of)
{
    uint64_t crc = 0xffffffff;
    for (size_t i = 0; i < of.count; i++) {
        for (unsigned bit = 0; bit < 8; bit++) {
            const uint64_t carry = (crc ^ of.at[i] >> bit) & 1;
            crc = carry != 0 ? crc >> 1 ^ 0x82f63b78 : crc >> 1;
        }
    }
    const uint32_t whole = (uint32_t)(crc ^ 0xffffffff);
    return (whole >> 15 | whole << 17) + 0xa282ead8;
}

static void test_crc(void **state)
{
    (void)state;
    const uint32_t masked = masked_crc((bytes){(const unsigned char *)"123456789", 9});
    assert_int_equal(masked, (0xe3069283U >> 15 | 0xe3069283U << 17) + 0xa282ead8U); // RFC 3720
}

static bytes next_record(bytes *file)
{
    const bytes head = {file->at, 8};
    const uint64_t count = take_little(file, 8);
    assert_int_equal(take_little(file, 4), masked_crc(head));
    const bytes data = take(file, count);
    assert_int_equal(take_little(file, 4), masked_crc(data));
    return data;
}

typedef struct event {
    double wall;
    int64_t step;
    bytes version, summary;
    bool start;
} event;

static event read_event(bytes data)
{
    event e = {.step = -1};
    while (data.count > 0) {
        const uint64_t key = take_varint(&data);
        bytes session;
        uint64_t wall;
        switch (key) {
        case 1 << 3 | 1:
            wall = take_little(&data, 8);
            memcpy(&e.wall, &wall, sizeof e.wall);
            break;
        case 2 << 3:
            e.step = (int64_t)take_varint(&data);
            break;
        case 3 << 3 | 2:
            e.version = take(&data, take_varint(&data));
            break;
        case 5 << 3 | 2:
            e.summary = take(&data, take_varint(&data));
            break;
        case 7 << 3 | 2:
            session = take(&data, take_varint(&data));
            assert_int_equal(take_varint(&session), 1 << 3);
            e.start = take_varint(&session) == 1;
            break;
        default:
            fail_msg("key %llu", (unsigned long long)key);
        }
    }
    assert_true(e.wall > 1.7e9);
    return e;
}

// The figure of a tag; NaN: there is none.
static float figure_of(bytes summary, const char *tag)
{
    while (summary.count > 0) {
        assert_int_equal(take_varint(&summary), 1 << 3 | 2);
        bytes value = take(&summary, take_varint(&summary));
        assert_int_equal(take_varint(&value), 1 << 3 | 2);
        const bytes name = take(&value, take_varint(&value));
        assert_int_equal(take_varint(&value), 2 << 3 | 5);
        const uint32_t raw = (uint32_t)take_little(&value, 4);
        float real;
        memcpy(&real, &raw, sizeof real);
        assert_int_equal(value.count, 0);
        if (name.count == strlen(tag) && memcmp(name.at, tag, name.count) == 0)
            return real;
    }
    return NAN;
}

static unsigned char content[1 << 16];

static bytes read_file(const char *path)
{
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    const bytes all = {content, fread(content, 1, sizeof content, file)};
    fclose(file);
    return all;
}

// The files below a folder, in TensorBoard's order.
static glob_t files_of(const char *name)
{
    char pattern[128];
    glob_t found;
    snprintf(pattern, sizeof pattern, "%s/%s/events.out.tfevents.*", folder, name);
    assert_int_equal(glob(pattern, 0, NULL, &found), 0);
    return found;
}

static mics_tensorboard *open_in(const char *name, int64_t step)
{
    char path[128];
    mics_tensorboard *file = NULL;
    snprintf(path, sizeof path, "%s/%s", folder, name);
    ASSERT_OK(mics_tensorboard_open(memory, path, step, &file));
    return file;
}

// ---- tests ----

static void test_records(void **state)
{
    (void)state;
    mics_tensorboard *file = open_in("new/deep", 0);
    const mics_metrics first = metrics_of(1), second = metrics_of(300);
    ASSERT_OK(mics_tensorboard_write(file, &first));
    ASSERT_OK(mics_tensorboard_write_validation(file, 1, 2.5));
    ASSERT_OK(mics_tensorboard_write(file, &second));
    ASSERT_OK(mics_tensorboard_close(file));
    glob_t found = files_of("new/deep");
    assert_int_equal(found.gl_pathc, 1);
    bytes all = read_file(found.gl_pathv[0]);
    globfree(&found);
    event e = read_event(next_record(&all));
    assert_int_equal(e.version.count, 13);
    assert_memory_equal(e.version.at, "brain.Event:2", 13);
    e = read_event(next_record(&all));
    assert_true(e.start);
    assert_int_equal(e.step, 1);
    e = read_event(next_record(&all));
    assert_int_equal(e.step, 1);
    assert_true(figure_of(e.summary, "train/loss") == (float)(1.0 / 3.0));
    assert_true(figure_of(e.summary, "train/learning_rate") == 3e-4F);
    assert_true(isinf(figure_of(e.summary, "train/grad_norm")));
    assert_true(figure_of(e.summary, "train/tokens") == 2048);
    assert_true(figure_of(e.summary, "memory/peak_bytes") == 0x1p40F);
    assert_true(figure_of(e.summary, "communication/exposed_ms") == 0.125F);
    assert_true(isnan(figure_of(e.summary, "speed/mfu")));
    e = read_event(next_record(&all));
    assert_int_equal(e.step, 1);
    assert_true(figure_of(e.summary, "validation/loss") == 2.5F);
    e = read_event(next_record(&all));
    assert_int_equal(e.step, 300);
    assert_true(figure_of(e.summary, "train/tokens") == 300 * 2048);
    assert_int_equal(all.count, 0);
}

// A run that goes on has a file of its own, behind the older one, that begins at its step.
static void test_resume(void **state)
{
    (void)state;
    for (int64_t step = 0; step < 30; step += 10) // within a second: names differ in the end
        ASSERT_OK(mics_tensorboard_close(open_in("resumed", step)));
    glob_t found = files_of("resumed");
    assert_int_equal(found.gl_pathc, 3);
    for (size_t i = 0; i < 3; i++) {
        bytes all = read_file(found.gl_pathv[i]);
        next_record(&all);
        const event e = read_event(next_record(&all));
        assert_true(e.start);
        assert_int_equal(e.step, 10 * (int64_t)i + 1);
    }
    globfree(&found);
}

static void test_no_room(void **state)
{
    (void)state;
    mics_tensorboard *file = open_in("full", 0);
    const mics_metrics metrics = metrics_of(1);
    glob_t found = files_of("full");
    const bytes before = read_file(found.gl_pathv[0]);
    struct rlimit limit, old;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
    limit = (struct rlimit){.rlim_cur = before.count + 100, .rlim_max = old.rlim_max};
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    assert_int_equal(mics_tensorboard_write(file, &metrics), MICS_ERR_IO);
    ASSERT_SAID(&seen, "events.out.tfevents");
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
    assert_int_equal(read_file(found.gl_pathv[0]).count, before.count);
    ASSERT_OK(mics_tensorboard_write(file, &metrics)); // there is room again
    bytes all = read_file(found.gl_pathv[0]);
    next_record(&all);
    next_record(&all);
    assert_int_equal(read_event(next_record(&all)).step, 1);
    assert_int_equal(all.count, 0);
    globfree(&found);
    ASSERT_OK(mics_tensorboard_close(file));
}

static void test_no_folder(void **state)
{
    (void)state;
    mics_tensorboard *file = NULL;
    assert_int_equal(mics_tensorboard_open(memory, "/proc/none", 0, &file), MICS_ERR_IO);
    assert_null(file);
    ASSERT_SAID(&seen, "/proc/none");
}

static void test_allocations_fail(void **state)
{
    (void)state;
    char path[128];
    mics_tensorboard *file = NULL;
    snprintf(path, sizeof path, "%s/scarce", folder);
    for (int64_t n = 1; file == NULL; n++) {
        mics_memory_stats stats;
        assert_true(n < 50);
        mics_memory_fail_after(memory, n);
        const mics_status status = mics_tensorboard_open(memory, path, 2, &file);
        mics_memory_fail_after(memory, 0);
        assert_int_equal(status, file != NULL ? MICS_OK : MICS_ERR_MEMORY);
        mics_memory_stats_get(memory, &stats);
        assert_true(file != NULL || stats.live_blocks == 0);
    }
    ASSERT_OK(mics_tensorboard_close(file));
    ASSERT_OK(mics_tensorboard_close(NULL));
}

static void test_prometheus(void **state)
{
    (void)state;
    char path[128];
    mics_metrics metrics = metrics_of(7);
    snprintf(path, sizeof path, "%s/mics.prom", folder);
    ASSERT_OK(mics_prometheus_write(memory, path, "a", &metrics));
    metrics.loss = 0.1;
    ASSERT_OK(mics_prometheus_write(memory, path, "b\\\"\n\x01", &metrics));
    const bytes all = read_file(path);
    content[all.count] = '\0';
    const char *text = (const char *)content;
    assert_non_null(strstr(text, "# TYPE mics_loss gauge\nmics_loss{run=\"b\\\\\\\"\\n?\"} 0.1\n"));
    assert_non_null(strstr(text, "mics_step{run=\"b\\\\\\\"\\n?\"} 7\n"));
    assert_non_null(strstr(text, "} 1099511627776\n"));
    assert_non_null(strstr(text, "\nmics_grad_norm{run=\"b\\\\\\\"\\n?\"} +Inf\n"));
    assert_non_null(strstr(text, "\nmics_mfu{run=\"b\\\\\\\"\\n?\"} NaN\n"));
    assert_null(strstr(text, "\"a\""));
    assert_int_equal(mics_prometheus_write(memory, "/proc/none/x.prom", "a", &metrics),
                     MICS_ERR_IO);
    ASSERT_SAID(&seen, "/proc/none");
}

static int group_setup(void **state)
{
    (void)state;
    return mkdtemp(folder) != NULL ? 0 : 1;
}

static int group_teardown(void **state)
{
    (void)state;
    char command[64];
    snprintf(command, sizeof command, "rm -r %s", folder);
    return system(command) == 0 ? 0 : 1;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_crc),
        cmocka_unit_test_setup_teardown(test_records, setup, teardown),
        cmocka_unit_test_setup_teardown(test_resume, setup, teardown),
        cmocka_unit_test_setup_teardown(test_no_room, setup, teardown),
        cmocka_unit_test_setup_teardown(test_no_folder, setup, teardown),
        cmocka_unit_test_setup_teardown(test_allocations_fail, setup, teardown),
        cmocka_unit_test_setup_teardown(test_prometheus, setup, teardown),
    };
    return cmocka_run_group_tests(tests, group_setup, group_teardown);
}
