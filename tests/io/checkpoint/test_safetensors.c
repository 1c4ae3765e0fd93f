// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// safetensors: files of the reference implementation, and our own.
#include "base/capture.h"
#include "io/checkpoint/scratch.h"
#include "mics/core/checkpoint.h"
#include <glob.h>
#include <math.h>
#include <sys/resource.h>

#define GOLDEN MICS_TEST_DATA "/safetensors"

// Element `at` of every tensor that tools/make_safetensors_golden.py makes, and of ours.
static float golden(int64_t at)
{
    return (float)at / 4.0f - 3.0f;
}

static void expect_tensor(const mics_safetensors *reader, const char *name, const char *dtype,
                          int64_t elems)
{
    const mics_tensor_info *info = mics_safetensors_find(reader, name);
    assert_non_null(info);
    assert_string_equal(info->name, name);
    assert_string_equal(info->dtype, dtype);
    assert_int_equal(info->elems, elems);
    float *data = malloc((size_t)elems * 4 + 4);
    assert_non_null(data);
    ASSERT_OK(mics_safetensors_read(reader, name, 0, elems, data));
    for (int64_t i = 0; i < elems; i++)
        assert_true(data[i] == golden(i));
    for (int64_t i = 0; i + 2 <= elems; i++) {
        ASSERT_OK(mics_safetensors_read(reader, name, i, 2, data));
        assert_true(data[0] == golden(i) && data[1] == golden(i + 1));
    }
    free(data);
}

// ---- reading what others wrote ----

static void every_dtype_of_the_reference(void **state)
{
    (void)state;
    mics_memory *memory = NULL;
    mics_safetensors *reader = NULL;
    ASSERT_OK(mics_memory_open(&memory));
    ASSERT_OK(mics_safetensors_open(memory, GOLDEN "/dtypes.safetensors", &reader));
    assert_int_equal(mics_safetensors_count(reader), 9);
    expect_tensor(reader, "single", "F32", 15);
    expect_tensor(reader, "half", "F16", 7);
    expect_tensor(reader, "brain", "BF16", 6);
    expect_tensor(reader, "double", "F64", 8);
    expect_tensor(reader, "scalar", "F32", 1);
    expect_tensor(reader, "empty", "F32", 0);
    const mics_tensor_info *info = mics_safetensors_find(reader, "double");
    assert_int_equal(info->dims, 3);
    assert_int_equal(info->shape[2], 2);
    assert_int_equal(mics_safetensors_find(reader, "scalar")->dims, 0);
    assert_null(mics_safetensors_find(reader, "absent"));
    assert_null(mics_safetensors_at(reader, 9));

    float edges[9];
    ASSERT_OK(mics_safetensors_read(reader, "half.edges", 0, 9, edges));
    assert_true(edges[0] == 0 && !signbit(edges[0]) && edges[1] == 0 && signbit(edges[1]));
    assert_true(edges[2] == 0x1p-24f && edges[3] == -0x1.ff8p-15f && edges[4] == 0x1p-14f);
    assert_true(edges[5] == 1.0f && edges[6] == 65504.0f);
    assert_true(isinf(edges[7]) && edges[7] > 0 && isinf(edges[8]) && edges[8] < 0);

    capture seen;
    capture_begin(&seen);
    ASSERT_STATUS(MICS_ERR_UNSUPPORTED, mics_safetensors_read(reader, "integers", 0, 4, edges));
    ASSERT_SAID(&seen, "I64");
    ASSERT_STATUS(MICS_ERR_INVALID, mics_safetensors_read(reader, "absent", 0, 1, edges));
    ASSERT_SAID(&seen, "no tensor \"absent\"");
    ASSERT_STATUS(MICS_ERR_INVALID, mics_safetensors_read(reader, "half", 6, 2, edges));
    ASSERT_SAID(&seen, "which has 7");
    ASSERT_STATUS(MICS_ERR_INVALID, mics_safetensors_read(reader, "half", -1, 1, edges));
    ASSERT_SAID(&seen, "which has 7");
    ASSERT_STATUS(MICS_ERR_INVALID, mics_safetensors_read(reader, "half", 1, INT64_MAX, edges));
    ASSERT_SAID(&seen, "which has 7");
    capture_end();
    mics_safetensors_close(reader);
    assert_int_equal(mics_memory_close(memory), 0);
}

static void several_files_are_one_model(void **state)
{
    (void)state;
    static const char *const paths[] = {GOLDEN "/sharded",
                                        GOLDEN "/sharded/model.safetensors.index.json"};
    mics_memory *memory = NULL;
    ASSERT_OK(mics_memory_open(&memory));
    for (int i = 0; i < 2; i++) {
        mics_safetensors *reader = NULL;
        ASSERT_OK(mics_safetensors_open(memory, paths[i], &reader));
        assert_int_equal(mics_safetensors_count(reader), 3);
        expect_tensor(reader, "a", "F32", 12);
        expect_tensor(reader, "b", "F32", 12);
        expect_tensor(reader, "c", "F32", 12);
        mics_safetensors_close(reader);
    }
    assert_int_equal(mics_memory_close(memory), 0);
}

// ---- writing ----

static const mics_safetensors_entry ENTRIES[] = {
    {.name = "wte.weight", .dims = 2, .shape = {700, 1000}},
    {.name = "nothing", .dims = 2, .shape = {0, 5}},
    {.name = "odd \"name\"\\", .dims = 1, .shape = {3}},
    {.name = "scalar", .dims = 0, .shape = {0}},
    {.name = "big", .dims = 1, .shape = {400000}},
    {.name = "last", .dims = 3, .shape = {2, 3, 4}},
    {.name = "end", .dims = 1, .shape = {0}},
};
enum { ENTRY_COUNT = 7 };

static int64_t entry_elems(int index)
{
    int64_t elems = 1;
    for (int32_t i = 0; i < ENTRIES[index].dims; i++)
        elems *= ENTRIES[index].shape[i];
    return elems;
}

// Appends one tensor in steps of at most `step` elements.
static mics_status append_tensor(mics_safetensors_writer *writer, int64_t elems, int64_t step)
{
    float *data = malloc((size_t)step * 4);
    assert_non_null(data);
    mics_status status = MICS_OK;
    for (int64_t at = 0; status == MICS_OK && at < elems; at += step) {
        int64_t count = elems - at < step ? elems - at : step;
        for (int64_t i = 0; i < count; i++)
            data[i] = golden(at + i);
        status = mics_safetensors_append(writer, data, count);
    }
    free(data);
    return status;
}

static mics_status write_model(mics_memory *memory, const char *dir, int64_t max_bytes,
                               int64_t step)
{
    mics_safetensors_writer *writer = NULL;
    MICS_TRY(mics_safetensors_create(memory, dir, ENTRIES, ENTRY_COUNT, max_bytes, &writer));
    mics_status status = MICS_OK;
    for (int i = 0; status == MICS_OK && i < ENTRY_COUNT; i++)
        status = append_tensor(writer, entry_elems(i), step);
    return mics_safetensors_finish(writer, status);
}

static void what_is_written_is_read(void **state)
{
    (void)state;
    static const int64_t limits[] = {0, 3000000, 1};
    static const int64_t steps[] = {1000000, 997};
    mics_memory *memory = NULL;
    ASSERT_OK(mics_memory_open(&memory));
    for (int i = 0; i < 6; i++) {
        scratch place;
        scratch_make_fast(&place);
        const char *dir = scratch_path(&place, "deep/model");
        ASSERT_OK(write_model(memory, dir, limits[i % 3], steps[i / 3]));
        mics_safetensors *reader = NULL;
        ASSERT_OK(mics_safetensors_open(memory, dir, &reader));
        assert_int_equal(mics_safetensors_count(reader), ENTRY_COUNT);
        for (int t = 0; t < ENTRY_COUNT; t++) {
            const mics_tensor_info *info = mics_safetensors_find(reader, ENTRIES[t].name);
            assert_non_null(info);
            assert_int_equal(info->dims, ENTRIES[t].dims);
            float *data = malloc((size_t)info->elems * 4 + 4);
            assert_non_null(data);
            ASSERT_OK(mics_safetensors_read(reader, ENTRIES[t].name, 0, info->elems, data));
            for (int64_t at = 0; at < info->elems; at++)
                assert_true(data[at] == golden(at));
            free(data);
        }
        mics_safetensors_close(reader);
        bool single = limits[i % 3] == 0;
        assert_int_equal(file_exists(scratch_path(&place, "deep/model/model.safetensors")), single);
        assert_int_equal(
            file_exists(scratch_path(&place, "deep/model/model.safetensors.index.json")), !single);
        scratch_remove(&place);
    }
    assert_int_equal(mics_memory_close(memory), 0);
}

// Of a power of two's neighbours: what is halfway goes to the even one.
static void halves_are_rounded_to_nearest(void **state)
{
    (void)state;
    static const float data[] = {1,           1.00390625f, 1.01171875f, -0.00048828125f, 65504,
                                 65519,       0x1p-24f,    0x1p-25f,    0x1.8p-25f,      -0.0f,
                                 0x1.002p+0f, 0x1.006p+0f, 0x1.ffep-15f};
    static const float bf16[] = {1,     1,        1.015625f, -0.00048828125f, 65536,
                                 65536, 0x1p-24f, 0x1p-25f,  0x1.8p-25f,      -0.0f,
                                 1,     1,        0x1p-14f};
    static const float fp16[] = {1,       1.00390625f, 1.01171875f, -0.00048828125f, 65504,
                                 65504,   0x1p-24f,    0,           0x1p-24f,        -0.0f,
                                 0x1p+0f, 0x1.008p+0f, 0x1p-14f};
    enum { COUNT = sizeof data / sizeof data[0] };
    static const mics_safetensors_entry entries[] = {
        {.name = "brain", .dims = 1, .shape = {COUNT}, .dtype = MICS_DTYPE_BF16},
        {.name = "half", .dims = 1, .shape = {COUNT}, .dtype = MICS_DTYPE_FP16},
        {.name = "whole", .dims = 1, .shape = {COUNT}}};
    mics_memory *memory = NULL;
    mics_safetensors_writer *writer = NULL;
    mics_safetensors *reader = NULL;
    scratch place;
    float back[COUNT];
    ASSERT_OK(mics_memory_open(&memory));
    scratch_make_fast(&place);
    const char *dir = scratch_path(&place, "m");
    ASSERT_OK(mics_safetensors_create(memory, dir, entries, 3, 0, &writer));
    for (int i = 0; i < 3; i++)
        ASSERT_OK(mics_safetensors_append(writer, data, COUNT));
    ASSERT_OK(mics_safetensors_finish(writer, MICS_OK));
    ASSERT_OK(mics_safetensors_open(memory, dir, &reader));
    assert_string_equal(mics_safetensors_find(reader, "brain")->dtype, "BF16");
    assert_string_equal(mics_safetensors_find(reader, "half")->dtype, "F16");
    ASSERT_OK(mics_safetensors_read(reader, "brain", 0, COUNT, back));
    assert_memory_equal(back, bf16, sizeof back);
    ASSERT_OK(mics_safetensors_read(reader, "half", 0, COUNT, back));
    assert_memory_equal(back, fp16, sizeof back);
    ASSERT_OK(mics_safetensors_read(reader, "whole", 0, COUNT, back));
    assert_memory_equal(back, data, sizeof back);
    mics_safetensors_close(reader);
    scratch_remove(&place);
    assert_int_equal(mics_memory_close(memory), 0);
}

static void what_fp16_cannot_hold_is_refused(void **state)
{
    (void)state;
    static const mics_safetensors_entry entry = {
        .name = "layer.w", .dims = 1, .shape = {2}, .dtype = MICS_DTYPE_FP16};
    static const float data[] = {1, 65520};
    mics_memory *memory = NULL;
    mics_safetensors_writer *writer = NULL;
    scratch place;
    capture seen;
    ASSERT_OK(mics_memory_open(&memory));
    scratch_make_fast(&place);
    const char *dir = scratch_path(&place, "m");
    ASSERT_OK(mics_safetensors_create(memory, dir, &entry, 1, 0, &writer));
    capture_begin(&seen);
    ASSERT_STATUS(MICS_ERR_INVALID, mics_safetensors_append(writer, data, 2));
    ASSERT_SAID(&seen, "tensor \"layer.w\" is too large for F16; write bf16 or fp32");
    ASSERT_STATUS(MICS_ERR_INVALID, mics_safetensors_finish(writer, MICS_OK));
    capture_end();
    assert_false(file_exists(dir));
    scratch_remove(&place);
    assert_int_equal(mics_memory_close(memory), 0);
}

static void misuse_is_refused_and_leaves_nothing(void **state)
{
    (void)state;
    mics_memory *memory = NULL;
    ASSERT_OK(mics_memory_open(&memory));
    scratch place;
    scratch_make_fast(&place);
    const char *dir = scratch_path(&place, "m");
    mics_safetensors_writer *writer = NULL;
    static const mics_safetensors_entry two[] = {{.name = "a", .dims = 1, .shape = {3}},
                                                 {.name = "b", .dims = 1, .shape = {2}}};
    static const mics_safetensors_entry same[] = {{.name = "a", .dims = 1, .shape = {3}},
                                                  {.name = "b", .dims = 1, .shape = {2}},
                                                  {.name = "a", .dims = 1, .shape = {1}}};
    static const mics_safetensors_entry huge[] = {
        {.name = "a", .dims = 2, .shape = {INT64_MAX, 2}}};
    static const mics_safetensors_entry negative[] = {{.name = "a", .dims = 1, .shape = {-1}}};
    float data[4] = {golden(0), golden(1), golden(2), golden(3)};
    capture seen;
    capture_begin(&seen);
    ASSERT_STATUS(MICS_ERR_INVALID, mics_safetensors_create(memory, dir, same, 3, 0, &writer));
    ASSERT_SAID(&seen, "two tensors are called a");
    ASSERT_STATUS(MICS_ERR_INVALID, mics_safetensors_create(memory, dir, huge, 1, 0, &writer));
    ASSERT_SAID(&seen, "shape of tensor a");
    ASSERT_STATUS(MICS_ERR_INVALID, mics_safetensors_create(memory, dir, negative, 1, 0, &writer));
    ASSERT_SAID(&seen, "shape of tensor a");

    ASSERT_OK(mics_safetensors_create(memory, dir, two, 2, 8, &writer));
    ASSERT_STATUS(MICS_ERR_INVALID, mics_safetensors_append(writer, data, 4));
    ASSERT_SAID(&seen, "lacks 3");
    ASSERT_OK(mics_safetensors_append(writer, data, 3));
    ASSERT_STATUS(MICS_ERR_INVALID, mics_safetensors_finish(writer, MICS_OK));
    ASSERT_SAID(&seen, "lacks 2");
    assert_false(file_exists(dir));
    ASSERT_OK(mics_safetensors_create(memory, dir, two, 2, 8, &writer));
    ASSERT_OK(mics_safetensors_append(writer, data, 3));
    ASSERT_OK(mics_safetensors_append(writer, data, 2));
    ASSERT_STATUS(MICS_ERR_INVALID, mics_safetensors_append(writer, data, 1));
    ASSERT_SAID(&seen, "lacks 0");
    ASSERT_STATUS(MICS_ERR_PEER, mics_safetensors_finish(writer, MICS_ERR_PEER));
    assert_false(file_exists(dir));

    // A folder that holds a model is not touched.
    mkdir(dir, 0777);
    file_write(scratch_path(&place, "m/model-00001-of-00009.safetensors"), "x", 1);
    ASSERT_STATUS(MICS_ERR_INVALID, mics_safetensors_create(memory, dir, two, 2, 0, &writer));
    ASSERT_SAID(&seen, "exists already");
    capture_end();
    assert_true(file_exists(scratch_path(&place, "m/model-00001-of-00009.safetensors")));
    assert_int_not_equal(glob(scratch_path(&place, "m/*.tmp"), 0, NULL, &(glob_t){0}), 0);
    scratch_remove(&place);
    assert_int_equal(mics_memory_close(memory), 0);
}

static void a_file_size_limit_is_an_error(void **state)
{
    (void)state;
    mics_memory *memory = NULL;
    ASSERT_OK(mics_memory_open(&memory));
    scratch place;
    scratch_make_fast(&place);
    struct rlimit before;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    struct rlimit limit = {.rlim_cur = 1000000, .rlim_max = before.rlim_max};
    capture seen;
    capture_begin(&seen);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    mics_status status = write_model(memory, scratch_path(&place, "m"), 0, 1000);
    mics_status later = write_model(memory, scratch_path(&place, "n"), 1, 1000);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    capture_end();
    assert_int_equal(status, MICS_ERR_IO);
    assert_int_equal(later, MICS_ERR_IO);
    assert_non_null(strstr(seen.line, "cannot write"));
    assert_false(file_exists(scratch_path(&place, "m")));
    assert_false(file_exists(scratch_path(&place, "n")));
    scratch_remove(&place);
    assert_int_equal(mics_memory_close(memory), 0);
}

// ---- faults ----

static void an_allocation_that_fails_leaks_nothing(void **state)
{
    (void)state;
    mics_memory *memory = NULL;
    ASSERT_OK(mics_memory_open(&memory));
    scratch place;
    scratch_make_fast(&place);
    capture seen;
    capture_begin(&seen);
    mics_status status = MICS_ERR_MEMORY;
    int64_t nth = 1;
    const char *dir = scratch_path(&place, "m");
    for (; status != MICS_OK && nth < 1000; nth++) {
        mics_memory_fail_after(memory, nth);
        status = write_model(memory, dir, 1, 1000000);
        mics_memory_fail_after(memory, 0);
        assert_true(status == MICS_OK || status == MICS_ERR_MEMORY);
        mics_memory_stats stats;
        mics_memory_stats_get(memory, &stats);
        assert_int_equal(stats.live_blocks, 0);
        assert_int_equal(file_exists(dir), status == MICS_OK);
    }
    assert_in_range(nth, 10, 999);
    status = MICS_ERR_MEMORY;
    for (nth = 1; status != MICS_OK && nth < 1000; nth++) {
        mics_safetensors *reader = NULL;
        mics_memory_fail_after(memory, nth);
        status = mics_safetensors_open(memory, dir, &reader);
        mics_memory_fail_after(memory, 0);
        assert_true(status == MICS_OK || status == MICS_ERR_MEMORY);
        mics_safetensors_close(reader);
        mics_memory_stats stats;
        mics_memory_stats_get(memory, &stats);
        assert_int_equal(stats.live_blocks, 0);
    }
    assert_in_range(nth, 10, 999);
    capture_end();
    scratch_remove(&place);
    assert_int_equal(mics_memory_close(memory), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_dtype_of_the_reference),
        cmocka_unit_test(several_files_are_one_model),
        cmocka_unit_test(what_is_written_is_read),
        cmocka_unit_test(halves_are_rounded_to_nearest),
        cmocka_unit_test(what_fp16_cannot_hold_is_refused),
        cmocka_unit_test(misuse_is_refused_and_leaves_nothing),
        cmocka_unit_test(a_file_size_limit_is_an_error),
        cmocka_unit_test(an_allocation_that_fails_leaks_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
