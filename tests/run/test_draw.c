// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Drawing against a plain one that sorts, and against the shares of a softmax.
#include "base/rng.h"
#include "run/text/draw.h"
#include "test.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { VOCAB = 300, DRAWS = 20000 };

static int32_t draw_once(const mics_sampling *sampling, const float *logits, int32_t vocab,
                         uint64_t seed, int64_t index)
{
    mics_memory *memory = NULL;
    run_drawer drawer;
    ASSERT_OK(mics_memory_open(&memory));
    ASSERT_OK(run_drawer_init(&drawer, memory, sampling, vocab));
    const int32_t token = run_draw(&drawer, logits, NULL, seed, index);
    run_drawer_fini(&drawer, memory);
    assert_int_equal(mics_memory_close(memory), 0);
    return token;
}

// Logits with many equal ones.
static void make_logits(float *logits, int32_t vocab, uint64_t stream)
{
    for (int32_t v = 0; v < vocab; v++)
        logits[v] = 0.5F * (float)(mics_rng_bits(7, stream, (uint64_t)v) % 17);
}

static const float *sorted_by;

static int by_logit(const void *a, const void *b)
{
    const int32_t left = *(const int32_t *)a, right = *(const int32_t *)b;
    if (sorted_by[left] != sorted_by[right])
        return sorted_by[left] > sorted_by[right] ? -1 : 1;
    return left - right;
}

// The definition: sort all, keep top_k, of these top_p, of these min_p, walk.
static int32_t plain_draw(const mics_sampling *sampling, const float *logits, int32_t vocab,
                          uint64_t seed, int64_t index)
{
    int32_t order[VOCAB];
    double weights[VOCAB], all = 0, sum = 0;
    const int64_t top_k = sampling->top_k > 0 && sampling->top_k < vocab ? sampling->top_k : vocab;
    int64_t count = 0;
    for (int32_t v = 0; v < vocab; v++)
        order[v] = v;
    sorted_by = logits;
    qsort(order, (size_t)vocab, sizeof *order, by_logit);
    for (int64_t i = 0; i < top_k; i++) {
        weights[i] =
            exp(((double)logits[order[i]] - (double)logits[order[0]]) / sampling->temperature);
        all += weights[i];
    }
    const double share = sampling->top_p > 0 ? sampling->top_p : 1;
    for (double left = share * all; count < top_k && left > 0; count++)
        left -= weights[count];
    while (count > 1 && weights[count - 1] < sampling->min_p)
        count--;
    for (int64_t i = 0; i < count; i++)
        sum += weights[i];
    double left = sum * mics_rng_uniform(seed, 0x67656e, (uint64_t)index);
    for (int64_t i = 0; i < count; i++) {
        left -= weights[i];
        if (left < 0)
            return order[i];
    }
    return order[0];
}

static void test_top_k_is_what_a_sort_gives(void **state)
{
    (void)state;
    static const int32_t vocabs[] = {2, 3, 17, VOCAB};
    float logits[VOCAB];
    for (int i = 0; i < 400; i++) {
        const int32_t vocab = vocabs[i % 4];
        const mics_sampling sampling = {
            .temperature = 0.3 + i % 5,
            .top_k = 1 + (int64_t)(mics_rng_bits(1, 2, (uint64_t)i) % (uint64_t)(vocab - 1))};
        make_logits(logits, vocab, (uint64_t)i);
        assert_int_equal(draw_once(&sampling, logits, vocab, 5, i),
                         plain_draw(&sampling, logits, vocab, 5, i));
    }
}

// top_p of all tokens and of the top_k, with and without min_p; a temperature at which more tokens
// are kept than are looked at first.
static void test_top_p_is_what_a_sort_gives(void **state)
{
    (void)state;
    static const int32_t vocabs[] = {2, 3, 17, VOCAB};
    static const double shares[] = {1e-9, 0.3, 0.9, 0.9999};
    float logits[VOCAB];
    for (int i = 0; i < 800; i++) {
        const int32_t vocab = vocabs[i % 4];
        const mics_sampling sampling = {.temperature = i % 7 == 0 ? 100 : 0.3 + i % 5,
                                        .top_k = i % 3 == 0 ? 1 + i % vocab : 0,
                                        .top_p = shares[i / 4 % 4],
                                        .min_p = i % 5 == 0 ? 0.05 : 0};
        make_logits(logits, vocab, (uint64_t)i);
        assert_int_equal(draw_once(&sampling, logits, vocab, 5, i),
                         plain_draw(&sampling, logits, vocab, 5, i));
    }
}

// Of all tokens, which are walked by id: none below the share is ever drawn, all others are.
static void test_min_p(void **state)
{
    (void)state;
    static const float logits[] = {0, -1, -2.2F, -2.4F, -9};
    const mics_sampling sampling = {.temperature = 1, .min_p = 0.1}; // log 0.1 = -2.303
    int counts[5] = {0};
    for (int i = 0; i < 2000; i++)
        counts[draw_once(&sampling, logits, 5, 3, i)]++;
    assert_true(counts[0] > 0 && counts[1] > 0 && counts[2] > 0);
    assert_int_equal(counts[3] + counts[4], 0);
}

static void test_penalty(void **state)
{
    (void)state;
    static const float logits[] = {4, 3, -1, -1.5F};
    bool seen[] = {true, false, true, false};
    mics_memory *memory = NULL;
    ASSERT_OK(mics_memory_open(&memory));
    static const struct {
        double penalty, temperature;
        int32_t token;
    } cases[] = {{0, 0, 0}, {1, 0, 0}, {1.3, 0, 0}, {1.4, 0, 1}, {0.5, 0, 0}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const mics_sampling sampling = {.repetition_penalty = cases[i].penalty};
        run_drawer drawer;
        ASSERT_OK(run_drawer_init(&drawer, memory, &sampling, 4));
        assert_int_equal(run_draw(&drawer, logits, seen, 1, 0), cases[i].token);
        assert_int_equal(run_draw(&drawer, logits, NULL, 1, 0), 0);
        run_drawer_fini(&drawer, memory);
    }
    // A negative logit is multiplied: -1 becomes -2, below -1.5.
    const float low[] = {-9, -9, -1, -1.5F};
    const mics_sampling sampling = {.repetition_penalty = 2};
    run_drawer drawer;
    ASSERT_OK(run_drawer_init(&drawer, memory, &sampling, 4));
    assert_int_equal(run_draw(&drawer, low, seen, 1, 0), 3);
    run_drawer_fini(&drawer, memory);
    assert_int_equal(mics_memory_close(memory), 0);
}

static void test_the_likeliest(void **state)
{
    (void)state;
    const mics_sampling sampling = {.temperature = 0};
    float logits[] = {-3, 2, 9, 2, 9, -1};
    assert_int_equal(draw_once(&sampling, logits, 6, 1, 0), 2);
    logits[0] = 10;
    assert_int_equal(draw_once(&sampling, logits, 6, 1, 0), 0);
}

// Shares of tokens in many draws: five standard deviations, with and without a top_k of all.
static void test_shares(void **state)
{
    (void)state;
    static const float logits[] = {1, -2, 3, 3, 0};
    for (int64_t top_k = 0; top_k < 8; top_k += 5) {
        const mics_sampling sampling = {.temperature = 1.5, .top_k = top_k};
        int counts[5] = {0};
        double sum = 0;
        for (int v = 0; v < 5; v++)
            sum += exp((double)logits[v] / 1.5);
        for (int i = 0; i < DRAWS; i++)
            counts[draw_once(&sampling, logits, 5, 3, i)]++;
        for (int v = 0; v < 5; v++) {
            const double share = exp((double)logits[v] / 1.5) / sum;
            const double spread = sqrt(share * (1 - share) * DRAWS);
            assert_true(fabs(counts[v] - share * DRAWS) <= 5 * spread);
        }
    }
}

// Another seed or index is another draw; the same is the same.
static void test_pure(void **state)
{
    (void)state;
    const mics_sampling sampling = {.temperature = 1};
    float logits[VOCAB];
    int same = 0;
    memset(logits, 0, sizeof logits);
    for (int i = 0; i < 100; i++) {
        const int32_t token = draw_once(&sampling, logits, VOCAB, 1, i);
        assert_int_equal(draw_once(&sampling, logits, VOCAB, 1, i), token);
        same += draw_once(&sampling, logits, VOCAB, 2, i) == token;
        same += draw_once(&sampling, logits, VOCAB, 1, i + 1) == token;
    }
    assert_true(same < 8);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_top_k_is_what_a_sort_gives),
        cmocka_unit_test(test_top_p_is_what_a_sort_gives),
        cmocka_unit_test(test_min_p),
        cmocka_unit_test(test_penalty),
        cmocka_unit_test(test_the_likeliest),
        cmocka_unit_test(test_shares),
        cmocka_unit_test(test_pure),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
