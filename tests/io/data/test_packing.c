// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Rows of samples: each epoch has every sample once, no row is too long, and a row is known by its
// number alone.
#include "base/rng.h"
#include "io/data/packing.h"
#include "test.h"
#include <stdlib.h>
#include <string.h>

enum { SAMPLES = 9000, LENGTH = 100 };

typedef struct rows {
    mics_memory *memory;
    mics_packing *packing;
    int64_t begins[SAMPLES + 1];
    int64_t items[LENGTH], count;
    int32_t seen[SAMPLES];
} rows;

static void open_rows(rows *r, int64_t count, int64_t longest, bool packs, bool drops)
{
    for (int64_t i = 0; i < count; i++)
        r->begins[i + 1] =
            r->begins[i] + 1 + (int64_t)(mics_rng_bits(1, 2, (uint64_t)i) % (uint64_t)longest);
    const mics_packing_spec spec = {.begins = r->begins,
                                    .count = count,
                                    .sequence = LENGTH,
                                    .seed = 7,
                                    .packs = packs,
                                    .drops_long = drops};
    ASSERT_OK(mics_packing_open(r->memory, &spec, &r->packing));
}

static int begin_rows(void **state)
{
    rows *r = calloc(1, sizeof *r);
    *state = r;
    return r == NULL || mics_memory_open(&r->memory) != MICS_OK;
}

static int end_rows(void **state)
{
    rows *r = *state;
    mics_packing_close(r->packing);
    const int64_t leaks = mics_memory_close(r->memory);
    free(r);
    return leaks != 0;
}

static int64_t length_of(const rows *r, int64_t sample)
{
    const int64_t tokens = r->begins[sample + 1] - r->begins[sample];
    return tokens < LENGTH ? tokens : LENGTH;
}

// Reads rows from `row` on until every one of `samples` was seen once; returns the row behind them.
static int64_t read_epoch(rows *r, int64_t row, int64_t samples)
{
    int64_t met = 0;
    memset(r->seen, 0, sizeof r->seen);
    for (; met < samples; row++) {
        int64_t tokens = 0;
        ASSERT_OK(mics_packing_row(r->packing, row, r->items, &r->count));
        assert_in_range(r->count, 1, LENGTH);
        for (int64_t i = 0; i < r->count; i++, met++) {
            assert_int_equal(r->seen[r->items[i]]++, 0);
            tokens += length_of(r, r->items[i]);
        }
        assert_in_range(tokens, 1, LENGTH);
    }
    assert_int_equal(met, samples);
    return row;
}

static void test_epochs(void **state)
{
    rows *r = *state;
    open_rows(r, SAMPLES, 60, true, false);
    const mics_packing_facts facts = mics_packing_facts_get(r->packing);
    assert_int_equal(facts.samples, SAMPLES);
    assert_int_equal(facts.tokens, r->begins[SAMPLES]);
    assert_int_equal(read_epoch(r, 0, SAMPLES), facts.rows);
    int64_t row = facts.rows;
    for (int epoch = 1; epoch < 4; epoch++)
        row = read_epoch(r, row, SAMPLES);
    // Short samples leave little space.
    assert_true((double)facts.tokens > 0.98 * (double)(facts.rows * LENGTH));
}

// Out of order, and of another packing that was asked for nothing before.
static void test_any_row(void **state)
{
    rows *r = *state;
    open_rows(r, SAMPLES, 150, true, false);
    static const int64_t numbers[] = {20000, 3, 19999, 20001, 0, 12345, 20000, 7000};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        const mics_packing_spec spec = {
            .begins = r->begins, .count = SAMPLES, .sequence = LENGTH, .seed = 7, .packs = true};
        mics_packing *other = NULL;
        int64_t items[LENGTH], count = 0;
        ASSERT_OK(mics_packing_open(r->memory, &spec, &other));
        ASSERT_OK(mics_packing_row(other, numbers[i], items, &count));
        mics_packing_close(other);
        ASSERT_OK(mics_packing_row(r->packing, numbers[i], r->items, &r->count));
        assert_int_equal(r->count, count);
        assert_memory_equal(r->items, items, (size_t)count * sizeof *items);
    }
}

static void test_unpacked(void **state)
{
    rows *r = *state;
    open_rows(r, 500, 150, false, false);
    const mics_packing_facts facts = mics_packing_facts_get(r->packing);
    assert_int_equal(facts.rows, 500);
    assert_true(facts.cut > 0 && facts.left_out == 0);
    assert_int_equal(read_epoch(r, 0, 500), 500);
    assert_int_equal(read_epoch(r, 500, 500), 1000);
}

static void test_dropped(void **state)
{
    rows *r = *state;
    open_rows(r, 500, 150, true, true);
    const mics_packing_facts facts = mics_packing_facts_get(r->packing);
    assert_true(facts.left_out > 0 && facts.cut == 0);
    assert_int_equal(facts.samples, 500 - facts.left_out);
    const int64_t rows_read = read_epoch(r, 0, facts.samples);
    assert_int_equal(rows_read, facts.rows);
    for (int64_t i = 0; i < 500; i++)
        assert_int_equal(r->seen[i], r->begins[i + 1] - r->begins[i] <= LENGTH);
}

// The longest first, each where it leaves the least: 60 + 40, 50 + 50, 30 + 30 + 30 + 10.
static void test_best_fit(void **state)
{
    static const int64_t lengths[] = {10, 60, 30, 50, 30, 40, 30, 50};
    rows *r = *state;
    const int count = sizeof lengths / sizeof *lengths;
    for (int i = 0; i < count; i++)
        r->begins[i + 1] = r->begins[i] + lengths[i];
    const mics_packing_spec spec = {
        .begins = r->begins, .count = count, .sequence = LENGTH, .packs = true};
    ASSERT_OK(mics_packing_open(r->memory, &spec, &r->packing));
    assert_int_equal(mics_packing_facts_get(r->packing).rows, 3);
    assert_int_equal(read_epoch(r, 0, count), 3);
}

static void test_all_too_long(void **state)
{
    rows *r = *state;
    r->begins[1] = LENGTH + 1;
    const mics_packing_spec spec = {
        .begins = r->begins, .count = 1, .sequence = LENGTH, .packs = true, .drops_long = true};
    assert_int_equal(mics_packing_open(r->memory, &spec, &r->packing), MICS_ERR_INVALID);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_epochs, begin_rows, end_rows),
        cmocka_unit_test_setup_teardown(test_any_row, begin_rows, end_rows),
        cmocka_unit_test_setup_teardown(test_unpacked, begin_rows, end_rows),
        cmocka_unit_test_setup_teardown(test_dropped, begin_rows, end_rows),
        cmocka_unit_test_setup_teardown(test_best_fit, begin_rows, end_rows),
        cmocka_unit_test_setup_teardown(test_all_too_long, begin_rows, end_rows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
