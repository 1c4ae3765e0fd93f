// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Hostile safetensors: headers and indexes that lie, any number of entries, bytes changed at random.
#include "base/capture.h"
#include "io/checkpoint/scratch.h"
#include "mics/core/checkpoint.h"

// Writes a file with this header and `data_bytes` zeros.
static void write_file(const char *path, const char *header, size_t data_bytes)
{
    size_t header_bytes = strlen(header);
    unsigned char *file = calloc(1, 8 + header_bytes + data_bytes);
    if (file == NULL)
        fail();
    memcpy(file, &header_bytes, 8);
    memcpy(file + 8, header, header_bytes);
    file_write(path, file, 8 + header_bytes + data_bytes);
    free(file);
}

#define T(shape, begin, end)                                                                       \
    "{\"dtype\":\"F32\",\"shape\":" shape ",\"data_offsets\":[" #begin "," #end "]}"

static void hostile_headers(void **state)
{
    (void)state;
    static const struct {
        const char *header;
        size_t data_bytes;
        const char *said;
    } cases[] = {
        {"", 0, "file.safetensors"},
        {"[]", 0, "is no object"},
        {"{\"a\":" T("[2]", 0, 8), 8, "file.safetensors"},
        {"{\"a\":3}", 0, "tensor \"a\": is no object"},
        {"{\"__metadata__\":{\"a\":1}}", 0, "__metadata__"},
        {"{\"a\":" T("[2]", 0, 8) ",\"a\":" T("[2]", 8, 16) "}", 16, "file.safetensors"},
        {"{\"a\":" T("[2]", 0, 8) ",\"b\":" T("[2]", 4, 12) "}", 12, "another tensor overlaps"},
        {"{\"a\":" T("[2]", 0, 8) ",\"b\":" T("[2]", 0, 8) "}", 8, "another tensor overlaps"},
        {"{\"a\":" T("[2]", 0, 8) ",\"b\":" T("[2]", 12, 20) "}", 20, "a hole before"},
        {"{\"a\":" T("[2]", 4, 12) "}", 12, "a hole before"},
        {"{\"a\":" T("[2]", 0, 8) "}", 9, "1 bytes after the last"},
        {"{}", 4, "4 bytes after the last"},
        {"{\"a\":" T("[2]", 0, 8) "}", 7, "of 7 bytes of data"},
        {"{\"a\":" T("[2]", -8, 0) "}", 8, "lies at -8"},
        {"{\"a\":" T("[2]", 8, 0) "}", 8, "lies at 8 to 0"},
        {"{\"a\":" T("[2]", 0, 9223372036854775807) "}", 8, "of 8 bytes of data"},
        {"{\"a\":" T("[2]", 0, 8.0) "}", 8, "two whole numbers"},
        {"{\"a\":" T("[3]", 0, 8) "}", 8, "3 elements of F32"},
        {"{\"a\":" T("[-1]", 0, 8) "}", 8, "dimension"},
        {"{\"a\":" T("[2.5]", 0, 8) "}", 8, "dimension"},
        {"{\"a\":" T("8", 0, 8) "}", 8, "\"shape\""},
        {"{\"a\":" T("[4294967296,4294967296]", 0, 8) "}", 8, "63 bits"},
        {"{\"a\":" T("[4611686018427387904]", 0, 8) "}", 8, "elements of F32"},
        {"{\"a\":" T("[1,1,1,1,1,1,1,1,2]", 0, 8) "}", 8, "9 dimensions"},
        {"{\"a\":{\"dtype\":\"F99\",\"shape\":[1],\"data_offsets\":[0,4]}}", 4, "\"dtype\""},
        {"{\"a\":{\"shape\":[1],\"data_offsets\":[0,4]}}", 4, "\"dtype\""},
        {"{\"a\":{\"dtype\":\"F4\",\"shape\":[3],\"data_offsets\":[0,2]}}", 2, "3 elements of F4"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0]}}", 4, "two whole numbers"},
    };
    mics_memory *memory = NULL;
    ASSERT_OK(mics_memory_open(&memory));
    scratch place;
    scratch_make_fast(&place);
    const char *path = scratch_path(&place, "file.safetensors");
    mics_safetensors *reader = NULL;
    capture seen;
    capture_begin(&seen);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        write_file(path, cases[i].header, cases[i].data_bytes);
        mics_status status = mics_safetensors_open(memory, path, &reader);
        if (status != MICS_ERR_FORMAT)
            fail_msg("%s gave %s", cases[i].header, mics_status_name(status));
        ASSERT_SAID(&seen, cases[i].said);
        assert_non_null(strstr(seen.line, "file.safetensors"));
    }
    static const uint64_t lengths[] = {1, 100000001, UINT64_MAX, (uint64_t)1 << 63};
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        file_write(path, &lengths[i], 8);
        ASSERT_STATUS(MICS_ERR_FORMAT, mics_safetensors_open(memory, path, &reader));
        ASSERT_SAID(&seen, "offset 0: a header of");
    }
    file_write(path, "1234567", 7);
    ASSERT_STATUS(MICS_ERR_FORMAT, mics_safetensors_open(memory, path, &reader));
    ASSERT_SAID(&seen, "offset 7");
    ASSERT_STATUS(MICS_ERR_IO, mics_safetensors_open(memory, place.dir, &reader));
    ASSERT_SAID(&seen, "holds neither");
    ASSERT_STATUS(MICS_ERR_IO,
                  mics_safetensors_open(memory, scratch_path(&place, "none"), &reader));
    ASSERT_SAID(&seen, "none");
    capture_end();
    scratch_remove(&place);
    assert_int_equal(mics_memory_close(memory), 0);
}

static void hostile_indexes(void **state)
{
    (void)state;
    static const struct {
        const char *index;
        mics_status status;
        const char *said;
    } cases[] = {
        {"[]", MICS_ERR_FORMAT, "weight_map"},
        {"{\"weight_map\": 3}", MICS_ERR_FORMAT, "weight_map"},
        {"{\"weight_map\": {\"a\": 3}}", MICS_ERR_FORMAT, "plain file name"},
        {"{\"weight_map\": {\"a\": \"\"}}", MICS_ERR_FORMAT, "plain file name"},
        {"{\"weight_map\": {\"a\": \"../file.safetensors\"}}", MICS_ERR_FORMAT, "plain file name"},
        {"{\"weight_map\": {\"a\": \"/etc/passwd\"}}", MICS_ERR_FORMAT, "plain file name"},
        {"{\"weight_map\": {\"a\": \"..\"}}", MICS_ERR_FORMAT, "plain file name"},
        {"{\"weight_map\": {\"a\": \"absent.safetensors\"}}", MICS_ERR_IO, "absent.safetensors"},
        {"{\"weight_map\": {\"z\": \"file.safetensors\"}}", MICS_ERR_FORMAT, "lacks tensor \"z\""},
        {"{\"weight_map\": {\"a\": \"file.safetensors\", \"A\": \"file.safetensors\"}}",
         MICS_ERR_FORMAT, "lacks tensor \"A\""},
        {"{\"weight_map\": {\"a\": \"file.safetensors\", \"b\": \"model.safetensors.index.json\"}}",
         MICS_ERR_FORMAT, "index.json"},
    };
    mics_memory *memory = NULL;
    ASSERT_OK(mics_memory_open(&memory));
    scratch place;
    scratch_make_fast(&place);
    write_file(scratch_path(&place, "file.safetensors"), "{\"a\":" T("[2]", 0, 8) "}", 8);
    const char *path = scratch_path(&place, "model.safetensors.index.json");
    mics_safetensors *reader = NULL;
    capture seen;
    capture_begin(&seen);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        file_write(path, cases[i].index, strlen(cases[i].index));
        mics_status status = mics_safetensors_open(memory, place.dir, &reader);
        if (status != cases[i].status)
            fail_msg("%s gave %s", cases[i].index, mics_status_name(status));
        ASSERT_SAID(&seen, cases[i].said);
    }
    capture_end();
    scratch_remove(&place);
    assert_int_equal(mics_memory_close(memory), 0);
}

// As many entries as one likes are read in one walk.
static void many_entries_are_no_hang(void **state)
{
    (void)state;
    enum { MANY = 400000, ENTRY_BYTES = 48 };
    mics_memory *memory = NULL;
    ASSERT_OK(mics_memory_open(&memory));
    scratch place;
    scratch_make_fast(&place);
    char *header = malloc((size_t)MANY * ENTRY_BYTES + 100);
    if (header == NULL)
        fail();
    char *at = header + sprintf(header, "{\"__metadata__\":{");
    for (int i = 0; i < MANY; i++)
        at += sprintf(at, "%s\"%d\":\"\"", i > 0 ? "," : "", i);
    sprintf(at, "}}");
    const char *path = scratch_path(&place, "file.safetensors");
    write_file(path, header, 0);
    mics_safetensors *reader = NULL;
    ASSERT_OK(mics_safetensors_open(memory, path, &reader));
    mics_safetensors_close(reader);
    at = header + sprintf(header, "{\"weight_map\":{");
    for (int i = 0; i < MANY; i++)
        at += sprintf(at, "%s\"%d\":\"file.safetensors\"", i > 0 ? "," : "", i);
    sprintf(at, "}}");
    path = scratch_path(&place, "model.safetensors.index.json");
    file_write(path, header, strlen(header));
    capture seen;
    capture_begin(&seen);
    ASSERT_STATUS(MICS_ERR_FORMAT, mics_safetensors_open(memory, path, &reader));
    ASSERT_SAID(&seen, "lacks tensor \"0\"");
    capture_end();
    free(header);
    scratch_remove(&place);
    assert_int_equal(mics_memory_close(memory), 0);
}

static void random_changes_never_crash(void **state)
{
    (void)state;
    mics_memory *memory = NULL;
    ASSERT_OK(mics_memory_open(&memory));
    scratch place;
    scratch_make_fast(&place);
    const char *path = scratch_path(&place, "file.safetensors");
    size_t bytes = 0;
    unsigned char *good = file_read(MICS_TEST_DATA "/safetensors/dtypes.safetensors", &bytes);
    unsigned char *bad = malloc(bytes);
    if (bad == NULL)
        fail();
    uint64_t random = 11;
    capture seen;
    capture_begin(&seen);
    for (int round = 0; round < 3000; round++) {
        memcpy(bad, good, bytes);
        for (uint64_t i = next_random(&random) % 3; i < 3; i++) {
            size_t at = next_random(&random) % (bytes - 200);
            bad[at] = next_random(&random) % 2 == 0
                          ? (unsigned char)('0' + next_random(&random) % 10)
                          : (unsigned char)next_random(&random);
        }
        size_t cut = next_random(&random) % 8 == 0 ? next_random(&random) % bytes : bytes;
        file_write(path, bad, cut);
        mics_safetensors *reader = NULL;
        seen.errors = 0;
        mics_status status = mics_safetensors_open(memory, path, &reader);
        assert_int_equal(seen.errors, status == MICS_OK ? 0 : 1);
        if (status != MICS_OK) {
            assert_int_equal(status, MICS_ERR_FORMAT);
            continue;
        }
        for (int32_t i = 0; i < mics_safetensors_count(reader); i++) {
            const mics_tensor_info *info = mics_safetensors_at(reader, i);
            float data[64];
            assert_true(info->elems <= 207 * 2);
            status = mics_safetensors_read(reader, info->name, 0,
                                           info->elems < 64 ? info->elems : 64, data);
            assert_true(status == MICS_OK || status == MICS_ERR_UNSUPPORTED);
        }
        mics_safetensors_close(reader);
    }
    capture_end();
    free(good);
    free(bad);
    scratch_remove(&place);
    assert_int_equal(mics_memory_close(memory), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hostile_headers),
        cmocka_unit_test(hostile_indexes),
        cmocka_unit_test(many_entries_are_no_hang),
        cmocka_unit_test(random_changes_never_crash),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
