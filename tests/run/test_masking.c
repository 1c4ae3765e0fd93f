// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Samples of masked language modelling: how many tokens are hidden, which, how, and that nothing
// else decides it than the seed and the sample's number.
#include "base/watched.h"
#include "run/masking.h"
#include "test.h"
#include <string.h>

enum { LENGTH = 128, SAMPLES = 400, CLS = 2, SEP = 3, MASK = 4, FIRST_WORD = 5 };

static mics_tokenizer *tokenizer;
static run_masking masking;

static int setup_masking(void **state)
{
    char path[512];
    const int status = setup(state);
    snprintf(path, sizeof path, "%s/tokenizers/bert.json", MICS_TEST_DATA);
    ASSERT_OK(mics_tokenizer_open(memory, path, &tokenizer));
    ASSERT_OK(run_masking_init(memory, tokenizer, "data.tokenizer", &masking));
    return status;
}

static int teardown_masking(void **state)
{
    run_masking_fini(&masking);
    mics_tokenizer_close(tokenizer);
    return teardown(state);
}

// Words, with a separator here and there.
static void fill(int64_t sample, int32_t *text)
{
    for (int32_t t = 0; t < LENGTH; t++)
        text[t] = t % 31 == 7 ? SEP : FIRST_WORD + (int32_t)((sample * 13 + t * 7) % 900);
}

static void make(uint64_t seed, int64_t sample, int32_t *inputs, int32_t *targets)
{
    fill(sample, inputs);
    run_masking_apply(&masking, seed, sample, LENGTH, inputs, targets);
}

static void test_frame_and_counts(void **state)
{
    (void)state;
    int64_t hidden = 0, masked = 0, kept = 0;
    for (int64_t sample = 0; sample < SAMPLES; sample++) {
        int32_t inputs[LENGTH], targets[LENGTH], text[LENGTH], words = 0, here = 0;
        fill(sample, text);
        make(7, sample, inputs, targets);
        assert_int_equal(inputs[0], CLS);
        assert_int_equal(inputs[LENGTH - 1], SEP);
        assert_int_equal(targets[0], -1);
        assert_int_equal(targets[LENGTH - 1], -1);
        for (int32_t t = 1; t < LENGTH - 1; t++) {
            words += text[t] != SEP;
            if (targets[t] < 0) {
                assert_int_equal(inputs[t], text[t]);
                continue;
            }
            assert_int_not_equal(text[t], SEP); // special tokens are never hidden
            assert_int_equal(targets[t], text[t]);
            here++;
            masked += inputs[t] == MASK;
            kept += inputs[t] == text[t];
        }
        assert_int_equal(here, (words * 15 + 50) / 100);
        hidden += here;
    }
    // Of some 7000 the shares are within 2 %.
    assert_true(masked > hidden * 78 / 100 && masked < hidden * 82 / 100);
    assert_true(kept > hidden * 8 / 100 && kept < hidden * 12 / 100);
}

// Every place is hidden about as often.
static void test_places(void **state)
{
    (void)state;
    int32_t often[LENGTH] = {0};
    for (int64_t sample = 0; sample < SAMPLES; sample++) {
        int32_t inputs[LENGTH], targets[LENGTH];
        make(3, sample, inputs, targets);
        for (int32_t t = 0; t < LENGTH; t++)
            often[t] += targets[t] >= 0;
    }
    for (int32_t t = 1; t < LENGTH - 1; t++)
        assert_true(t % 31 == 7 || (often[t] > SAMPLES / 15 && often[t] < SAMPLES / 4));
}

static void test_what_decides(void **state)
{
    (void)state;
    int32_t inputs[LENGTH], targets[LENGTH], again[LENGTH], other[LENGTH];
    make(7, 11, inputs, targets);
    make(7, 11, again, other);
    assert_memory_equal(inputs, again, sizeof inputs);
    assert_memory_equal(targets, other, sizeof targets);
    fill(11, again); // the same text as another sample: its next epoch
    run_masking_apply(&masking, 7, 12, LENGTH, again, other);
    assert_memory_not_equal(targets, other, sizeof targets);
    make(8, 11, again, other);
    assert_memory_not_equal(targets, other, sizeof targets);
}

static void test_short_samples(void **state)
{
    (void)state;
    int32_t inputs[3] = {0, FIRST_WORD, 0}, targets[3];
    run_masking_apply(&masking, 1, 0, 3, inputs, targets);
    assert_int_equal(targets[1], FIRST_WORD); // at least one
    inputs[1] = SEP;
    run_masking_apply(&masking, 1, 0, 3, inputs, targets);
    assert_int_equal(targets[1], -1); // nothing may be hidden
    assert_int_equal(inputs[1], SEP);
}

static void test_other_tokenizers(void **state)
{
    (void)state;
    static const struct {
        const char *name, *error;
    } cases[] = {{"bytes", "has no token for them"}, {"gpt2", "has no token for them"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char path[512];
        mics_tokenizer *of = NULL;
        run_masking made = {0};
        snprintf(path, sizeof path, "%s/tokenizers/%s.json", MICS_TEST_DATA, cases[i].name);
        ASSERT_OK(mics_tokenizer_open(memory, i == 0 ? "bytes" : path, &of));
        assert_int_equal(run_masking_init(memory, of, "data.tokenizer", &made), MICS_ERR_INVALID);
        assert_non_null(strstr(seen.line, cases[i].error));
        mics_tokenizer_close(of);
    }
    run_masking made = {0};
    assert_int_equal(run_masking_init(memory, NULL, "data.tokenizer", &made), MICS_ERR_INVALID);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_frame_and_counts, setup_masking, teardown_masking),
        cmocka_unit_test_setup_teardown(test_places, setup_masking, teardown_masking),
        cmocka_unit_test_setup_teardown(test_what_decides, setup_masking, teardown_masking),
        cmocka_unit_test_setup_teardown(test_short_samples, setup_masking, teardown_masking),
        cmocka_unit_test_setup_teardown(test_other_tokenizers, setup_masking, teardown_masking),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
