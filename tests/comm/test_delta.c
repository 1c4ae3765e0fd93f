// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// The coder of changes of bf16 numbers: all bits come back, blocks keep to their bound and near the
// entropy, and what does not decode is refused without a read outside of it.
#include "base/rng.h"
#include "comm/delta/delta.h"
#include "comm/delta/entropy.h"
#include "test.h"
#include <stdlib.h>
#include <string.h>

enum { ALL = 1 << 16, CHUNK = 1 << 17 };

typedef struct numbers {
    int64_t elems;
    uint16_t *old, *now, *values;
    uint8_t *coded;
    size_t bytes;
} numbers;

// As many as there are, so that a sanitizer sees one too far.
static void *memory_of(size_t bytes)
{
    void *memory = malloc(bytes > 0 ? bytes : 1);
    assert_non_null(memory);
    return memory;
}

static numbers numbers_of(int64_t elems)
{
    const size_t bytes = (size_t)elems * sizeof(uint16_t);
    return (numbers){.elems = elems,
                     .old = memory_of(bytes),
                     .now = memory_of(bytes),
                     .values = memory_of(bytes),
                     .coded = memory_of(mics_delta_bound(elems))};
}

static void numbers_free(numbers *n)
{
    free(n->old);
    free(n->now);
    free(n->values);
    free(n->coded);
}

static uint64_t draw(uint64_t stream, int64_t i)
{
    return mics_rng_bits(11, stream, (uint64_t)i);
}

static uint16_t bf16_of(double number)
{
    const float rounded = (float)number;
    uint32_t bits;
    memcpy(&bits, &rounded, sizeof bits);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

// Weights before and after a step of Adam or so.
static void step_of(numbers *n, double lr)
{
    for (int64_t i = 0; i < n->elems; i++) {
        const double weight = 0.02 * mics_rng_normal(11, 1, (uint64_t)i);
        n->old[i] = bf16_of(weight);
        n->now[i] = bf16_of(weight - 0.7 * lr * mics_rng_normal(11, 2, (uint64_t)i));
    }
}

static void there_and_back(numbers *n)
{
    const size_t bytes = (size_t)n->elems * sizeof(uint16_t), bound = mics_delta_bound(n->elems);
    assert_true(bound % 8 == 0);
    memset(n->coded, 0xa5, bound);
    n->bytes = mics_delta_encode(n->old, n->now, n->elems, n->coded);
    assert_true(n->bytes <= bound && n->bytes % 8 == 0);
    uint8_t *copy = memcpy(memory_of(n->bytes), n->coded, n->bytes);
    memcpy(n->values, n->old, bytes);
    assert_true(mics_delta_decode(n->values, n->elems, copy, n->bytes));
    assert_memory_equal(n->values, n->now, bytes);
    memset(n->coded, 0x5a, bound); // the same bytes, whatever lay there
    assert_int_equal(mics_delta_encode(n->old, n->now, n->elems, n->coded), n->bytes);
    assert_memory_equal(n->coded, copy, n->bytes);
    free(copy);
}

// Every number becomes each of these, and numbers far and near.
static void test_all_numbers(void **state)
{
    (void)state;
    static const uint16_t to[] = {0,      0x8000, 1,      0x8001, 0x7f,   0x80,  0x3f80,
                                  0x7f80, 0xff80, 0x7f81, 0x7fc0, 0xffff, 0x7fff};
    numbers n = numbers_of(ALL);
    for (int64_t i = 0; i < ALL; i++)
        n.old[i] = (uint16_t)i;
    for (size_t k = 0; k < sizeof to / sizeof to[0]; k++) {
        for (int64_t i = 0; i < ALL; i++)
            n.now[i] = to[k];
        there_and_back(&n);
    }
    for (int32_t change = -260; change <= 260; change++) {
        for (int64_t i = 0; i < ALL; i++)
            n.now[i] = (uint16_t)(i + change);
        there_and_back(&n);
    }
    numbers_free(&n);
}

// Mixtures of changes of all sizes, which are coded, and of numbers from anywhere.
static void test_mixtures(void **state)
{
    (void)state;
    numbers n = numbers_of(ALL);
    for (uint32_t bits = 0; bits <= 16; bits++) {
        for (int64_t i = 0; i < ALL; i++) {
            const uint64_t r = draw(bits, i);
            const uint16_t change = (uint16_t)((r & 0xffff) >> (16 - bits));
            n.old[i] = (uint16_t)(r >> 16);
            n.now[i] = (uint16_t)(r >> 59 & 1 ? n.old[i] - change : n.old[i] + change);
            if (r >> 60 == 0)
                n.now[i] = (uint16_t)(r >> 32);
        }
        there_and_back(&n);
        assert_true(bits > 9 || n.bytes < mics_delta_bound(ALL));
    }
    numbers_free(&n);
}

static void test_sizes(void **state)
{
    (void)state;
    static const int64_t more[] = {1000,  1023,      1024,      4097,          16384,
                                   16385, CHUNK - 1, CHUNK + 1, 2 * CHUNK - 7, 2 * CHUNK + 3};
    assert_int_equal(mics_delta_bound(0), 0);
    assert_true(mics_delta_decode(NULL, 0, NULL, 0));
    for (int64_t i = 1; i <= 300 + (int64_t)(sizeof more / sizeof more[0]); i++) {
        numbers n = numbers_of(i <= 300 ? i : more[i - 301]);
        step_of(&n, 3e-4);
        there_and_back(&n);
        memcpy(n.now, n.old, (size_t)n.elems * sizeof *n.now);
        there_and_back(&n);
        assert_int_equal(n.bytes, 8 * ((n.elems + CHUNK - 1) / CHUNK));
        for (int64_t k = 0; k < n.elems; k++)
            n.now[k] = (uint16_t)draw(3, k);
        there_and_back(&n);
        numbers_free(&n);
    }
}

static void test_entropy(void **state)
{
    (void)state;
    static const double lrs[] = {2e-6, 2e-5, 3e-4, 1e-3};
    for (size_t i = 0; i < sizeof lrs / sizeof lrs[0]; i++) {
        numbers n = numbers_of(4 * CHUNK);
        step_of(&n, lrs[i]);
        there_and_back(&n);
        const double bits = 8.0 * (double)n.bytes / (double)n.elems,
                     least = delta_entropy(n.old, n.now, n.elems);
        if (!(bits <= least + 0.25))
            fail_msg("lr %g: %.3f bits a number, entropy %.3f", lrs[i], bits, least);
        numbers_free(&n);
    }
}

// ---- what does not decode ----

// Of memory that ends with them.
static bool decodes(numbers *n, const uint8_t *coded, size_t bytes)
{
    uint8_t *copy = memory_of(bytes);
    memcpy(copy, coded, bytes);
    memcpy(n->values, n->old, (size_t)n->elems * sizeof *n->values);
    const bool good = mics_delta_decode(n->values, n->elems, copy, bytes);
    free(copy);
    return good;
}

static void check_damage(numbers *n)
{
    there_and_back(n);
    uint8_t *longer = memory_of(n->bytes + 16);
    memcpy(longer, n->coded, n->bytes);
    memset(longer + n->bytes, 0, 16);
    for (size_t bytes = 0; bytes < n->bytes; bytes++)
        assert_false(decodes(n, n->coded, bytes));
    assert_false(decodes(n, longer, n->bytes + 1));
    assert_false(decodes(n, longer, n->bytes + 8));
    for (size_t i = 0; i < n->bytes; i++)
        for (int32_t bit = 0; bit < 8; bit++) {
            n->coded[i] ^= (uint8_t)(1 << bit);
            const bool good = decodes(n, n->coded, n->bytes);
            assert_false(good && i < 4); // its length
            n->coded[i] ^= (uint8_t)(1 << bit);
        }
    free(longer);
}

static void test_damage(void **state)
{
    (void)state;
    static const int64_t sizes[] = {3, 64, 300, 1000, 2050};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        numbers n = numbers_of(sizes[i]);
        step_of(&n, 3e-4);
        check_damage(&n);
        memcpy(n.now, n.old, (size_t)n.elems * sizeof *n.now);
        check_damage(&n);
        for (int64_t k = 0; k < n.elems; k++)
            n.now[k] = (uint16_t)draw(3, k);
        check_damage(&n);
        numbers_free(&n);
    }
}

// Each byte of the head, and garbage behind a head that is good.
static void test_garbage(void **state)
{
    (void)state;
    numbers n = numbers_of(5000);
    step_of(&n, 3e-4);
    there_and_back(&n);
    assert_true(n.bytes < 5000);
    uint8_t *bad = memory_of(n.bytes);
    int32_t refused = 0;
    for (int32_t round = 0; round < 2000; round++) {
        const size_t from = round % 2 == 0 ? 8 : 16 + 116 * (size_t)n.coded[4];
        memcpy(bad, n.coded, n.bytes);
        for (size_t i = from; i < n.bytes; i++)
            bad[i] = (uint8_t)draw(4 + (uint64_t)round, (int64_t)i);
        refused += decodes(&n, bad, n.bytes) ? 0 : 1;
    }
    assert_int_equal(refused, 2000);
    for (int32_t classes = 0; classes < 256; classes++) {
        memcpy(bad, n.coded, n.bytes);
        bad[4] = (uint8_t)classes;
        assert_true(decodes(&n, bad, n.bytes) == (classes == n.coded[4]));
    }
    for (int32_t zeros = 0; zeros < 256; zeros++) {
        memcpy(bad, n.coded, n.bytes);
        bad[5] = (uint8_t)zeros;
        assert_true(decodes(&n, bad, n.bytes) == (zeros == n.coded[5]));
    }
    bad[0] = 8; // no numbers, but classes
    bad[1] = 0;
    bad[4] = 1;
    assert_false(decodes(&n, bad, 8));
    free(bad);
    numbers_free(&n);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_numbers), cmocka_unit_test(test_mixtures),
        cmocka_unit_test(test_sizes),       cmocka_unit_test(test_entropy),
        cmocka_unit_test(test_damage),      cmocka_unit_test(test_garbage),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
