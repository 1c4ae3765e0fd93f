// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Checkpoints of version 1, which this program reads and does not write. tests/golden/before holds
// real ones, of a training by 4 ranks that kept the optimizer's state in quarters.
#include "base/capture.h"
#include "io/checkpoint/rank_file.h"
#include "io/checkpoint/scratch.h"
#include "mics/checkpoint.h"
#include <math.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#define BEFORE MICS_TEST_DATA "/before/out/checkpoints"

enum { UNITS = 4, PREFIX = 24, FIRST_SHARD = PREFIX + 40, SHARD_BYTES = 56 };

static const struct {
    const char *name;
    int64_t elems;
} units[UNITS] = {{"embed", 2720}, {"h.0", 1392}, {"h.1", 1392}, {"head", 32}};

static double sum_of_squares(const mics_checkpoint *checkpoint, int unit, const char *state)
{
    float data[2720];
    double sum = 0;
    ASSERT_OK(mics_checkpoint_read(checkpoint, units[unit].name, units[unit].elems, state, 0,
                                   units[unit].elems, data));
    for (int64_t i = 0; i < units[unit].elems; i++) {
        assert_true(isfinite(data[i]));
        sum += (double)data[i] * (double)data[i];
    }
    return sum;
}

static void version_1_is_read(void **state)
{
    (void)state;
    mics_memory *memory = NULL;
    mics_checkpoint *checkpoint = NULL;
    char *path = NULL;
    float data[4];
    capture seen;
    ASSERT_OK(mics_memory_open(&memory));
    ASSERT_OK(mics_checkpoint_latest(memory, BEFORE, &path));
    assert_non_null(path);
    ASSERT_OK(mics_checkpoint_open(memory, path, &checkpoint));
    const mics_checkpoint_meta *meta = mics_checkpoint_meta_get(checkpoint);
    assert_int_equal(meta->step, 8);
    assert_int_equal(meta->samples, 8 * 32);
    assert_non_null(strstr(meta->run_json, "\"whole_below\": 500"));
    // What only version 2 says.
    assert_null(meta->precision);
    assert_null(meta->optimizer);
    assert_null(meta->program);
    assert_int_equal(meta->sharding.params, 0);
    assert_int_equal(meta->layered_micro_steps, 0);
    for (int unit = 0; unit < UNITS; unit++) {
        const double params = sum_of_squares(checkpoint, unit, MICS_STATE_PARAM);
        const double first = sum_of_squares(checkpoint, unit, "exp_avg");
        const double second = sum_of_squares(checkpoint, unit, "exp_avg_sq");
        assert_true(params > first && first > second && second > 0);
    }
    capture_begin(&seen);
    ASSERT_STATUS(MICS_ERR_INVALID,
                  mics_checkpoint_read(checkpoint, "head", 32, "momentum_buffer", 0, 4, data));
    ASSERT_SAID(&seen, "no state momentum_buffer, only param, exp_avg, exp_avg_sq");
    capture_end();
    mics_checkpoint_close(checkpoint);
    mics_free(memory, path);
    assert_int_equal(mics_memory_close(memory), 0);
}

// ---- hostile files ----

// A rank file of version 1, and where a forged one is put.
typedef struct victim {
    scratch place;
    mics_memory *memory;
    unsigned char *bytes, *kept;
    size_t count, header_bytes;
} victim;

static void victim_make(victim *it)
{
    *it = (victim){0};
    scratch_make_fast(&it->place);
    ASSERT_OK(mics_memory_open(&it->memory));
    it->kept = file_read(BEFORE "/step-00000008/rank-00001.mics", &it->count);
    it->bytes = file_read(BEFORE "/step-00000008/rank-00001.mics", &it->count);
    it->header_bytes = (size_t)it->kept[8] + ((size_t)it->kept[9] << 8);
}

static void victim_end(victim *it)
{
    free(it->bytes);
    free(it->kept);
    scratch_remove(&it->place);
    assert_int_equal(mics_memory_close(it->memory), 0);
}

static mics_status load(victim *it, size_t bytes)
{
    mics_rank_file file = {0};
    const char *path = scratch_path(&it->place, "rank-00001.mics");
    file_write(path, it->bytes, bytes);
    const mics_status status = mics_rank_file_load(it->memory, path, &file);
    mics_rank_file_fini(it->memory, &file);
    return status;
}

// Loads the changed file, with a checksum that is right.
static mics_status load_forged(victim *it)
{
    const uint64_t hash = XXH3_64bits(it->bytes + PREFIX, it->header_bytes);
    memcpy(it->bytes + 16, &hash, 8);
    return load(it, it->count);
}

static void hostile_headers(void **state)
{
    (void)state;
    static const uint64_t far = UINT64_MAX;
    const struct {
        size_t at;
        uint64_t value;
        const char *said;
    } cases[] = {
        {0, 0x33504b435343494d, "not of version 1 or 2"},
        {0, 0x32504b435343494d, "outside the names"}, // taken for one of version 2
        {8, far, "a header of 18446744073709551615 bytes"},
        {PREFIX + 16, (uint64_t)2 << 32 | 1 << 20, "not 3 states"},
        {PREFIX + 32, (uint64_t)0x7fffffff, "do not fit"},
        {FIRST_SHARD, 0, "of a unit of 0"},
        {FIRST_SHARD + 8, far, "elements 18446744073709551615"},
        {FIRST_SHARD + 24, 64, "does not lie"},
        {FIRST_SHARD + 40, far - 63, "does not lie"},
        {FIRST_SHARD + 48, (uint64_t)5 << 32 | 0xffffff00u, "outside the names"},
        {FIRST_SHARD + 48, (uint64_t)4 << 32, "does not end"},
        {FIRST_SHARD + SHARD_BYTES + 16, 0, "elements"},
    };
    victim it;
    capture seen;
    victim_make(&it);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        memcpy(it.bytes, it.kept, it.count);
        memcpy(it.bytes + cases[i].at, &cases[i].value, 8);
        capture_begin(&seen);
        ASSERT_STATUS(MICS_ERR_FORMAT, load_forged(&it));
        ASSERT_SAID(&seen, cases[i].said);
        capture_end();
    }
    victim_end(&it);
}

static void cut_anywhere(void **state)
{
    (void)state;
    victim it;
    capture seen;
    victim_make(&it);
    ASSERT_OK(load(&it, it.count));
    capture_begin(&seen);
    for (size_t bytes = 0; bytes < it.count; bytes += bytes < 1000 ? 1 : 997)
        ASSERT_STATUS(MICS_ERR_FORMAT, load(&it, bytes));
    capture_end();
    victim_end(&it);
}

static void random_headers_never_crash(void **state)
{
    (void)state;
    victim it;
    capture seen;
    uint64_t random = 11;
    victim_make(&it);
    capture_begin(&seen);
    for (int round = 0; round < 2000; round++) {
        memcpy(it.bytes, it.kept, it.count);
        if (round % 2 == 0)
            it.bytes[7] = '2'; // records of version 1 read as those of version 2
        for (uint64_t i = next_random(&random) % 4; i < 4; i++)
            it.bytes[PREFIX + next_random(&random) % it.header_bytes] =
                (unsigned char)(next_random(&random) % 3 == 0 ? 0xff : next_random(&random));
        seen.errors = 0;
        const mics_status status = load_forged(&it);
        assert_true(status == MICS_OK || status == MICS_ERR_FORMAT);
        assert_int_equal(seen.errors, status == MICS_OK ? 0 : 1);
    }
    capture_end();
    victim_end(&it);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(version_1_is_read),
        cmocka_unit_test(hostile_headers),
        cmocka_unit_test(cut_anywhere),
        cmocka_unit_test(random_headers_never_crash),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
