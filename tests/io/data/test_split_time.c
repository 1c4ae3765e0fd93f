// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Patterns that need more time or memory than a text is worth are errors, soon; those of known
// tokenizers, and ones that seldom match, are not.
#include "base/watched.h"
#include "io/data/tokenizer/split.h"
#include "io/data/tokenizer/split_known.h"
#include "test.h"
#include <stdlib.h>
#include <time.h>

// Much above what is allowed (src/io/data/tokenizer/pattern.c), for slow machines and sanitizers.
static const double TIME_MAX_S = 60;

#define AS "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
#define SPACES "                                                  "
#define THOUSAND_SPACES                                                                            \
    SPACES SPACES SPACES SPACES SPACES SPACES SPACES SPACES SPACES SPACES SPACES SPACES SPACES     \
        SPACES SPACES SPACES SPACES SPACES SPACES SPACES
#define AS_THEN_C AS AS AS AS "c"

// Counts pieces and their bytes.
typedef struct counts {
    size_t pieces, bytes;
} counts;

static mics_status count_piece(void *ctx, const char *text, size_t bytes)
{
    counts *seen_counts = ctx;
    assert_true(bytes > 0 && text[0] != '\0');
    seen_counts->pieces++;
    seen_counts->bytes += bytes;
    return MICS_OK;
}

// `count` times `unit`.
static char *repeat(const char *unit, size_t count)
{
    const size_t bytes = strlen(unit);
    char *text = malloc(bytes * count + 1);
    assert_non_null(text);
    for (size_t i = 0; i < count; i++)
        memcpy(text + i * bytes, unit, bytes);
    text[bytes * count] = '\0';
    return text;
}

// Splits, giving pieces to `sink`.
static mics_status split_to(mics_split_sink sink, const char *pattern, const char *text)
{
    mics_split *splitter = NULL;
    mics_split_work *work = NULL;
    mics_chars chars = {0};
    const mics_split_part part = {.text = text, .bytes = strlen(text), .head = true, .first = true};
    ASSERT_OK(mics_chars_init(memory, &chars));
    ASSERT_OK(mics_split_open(memory, &chars, &splitter));
    ASSERT_OK(
        mics_split_add_pattern(splitter, "tokenizer.json", pattern, MICS_SPLIT_ISOLATED, false));
    ASSERT_OK(mics_split_work_open(splitter, &work));
    const clock_t begun = clock();
    const mics_status status = mics_split_feed(work, &part, sink);
    assert_true((double)(clock() - begun) / CLOCKS_PER_SEC < TIME_MAX_S);
    mics_split_work_close(work);
    mics_split_close(splitter);
    mics_chars_fini(&chars);
    return status;
}

// The pieces must be the text again if it can be split.
static mics_status split(const char *pattern, const char *text, counts *counts_out)
{
    const mics_split_sink sink = {.piece = count_piece, .ctx = counts_out};
    *counts_out = (counts){0};
    const mics_status status = split_to(sink, pattern, text);
    if (status == MICS_OK)
        assert_int_equal(counts_out->bytes, strlen(text));
    return status;
}

static void test_too_long(void **state)
{
    (void)state;
    static const struct {
        const char *pattern, *unit;
        size_t count;
    } cases[] = {
        {"(?:a|aa)+[bd]", "a", 2000},        // 1.6^2000 ways
        {"a*a*a*[bd]", "a", 3000},           // 3000^3 / 6 steps from the first place
        {"(?=\\p{L}a*+[bd])a", "a", 300000}, // no step is counted, 300000 characters a place
        {"(?=.*[xw])(?=.*[yw])a", "ab ", 100000},
        {"(?=a)a*a*a*[bd]", AS_THEN_C, 1000}, // 300000 steps, from each of 200000 places
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        counts pieces;
        char *text = repeat(cases[i].unit, cases[i].count);
        if (split(cases[i].pattern, text, &pieces) != MICS_ERR_FORMAT)
            fail_msg("%s went through", cases[i].pattern);
        assert_non_null(strstr(seen.line, cases[i].pattern));
        ASSERT_SAID(&seen, "tokenizer.json: its pattern \"");
        free(text);
    }
}

// Ways that are left to try take memory, and a text's time in the end.
static void test_too_deep(void **state)
{
    (void)state;
    counts pieces;
    char *text = repeat("a", 300000);
    assert_int_equal(split("(?:a|b)*c", text, &pieces), MICS_ERR_FORMAT);
    ASSERT_SAID(&seen, "tokenizer.json: its pattern \"(?:a|b)*c\" fails on a text");
    free(text);
}

static mics_status work_long(void *ctx, const char *text, size_t bytes)
{
    (void)text;
    (void)bytes;
    const clock_t begun = clock();
    while ((double)(clock() - begun) / CLOCKS_PER_SEC < 0.25)
        continue;
    ++*(int *)ctx;
    return MICS_OK;
}

// More than twice the time of a text goes to what is done with its pieces.
static void test_slow_sink(void **state)
{
    (void)state;
    int pieces = 0;
    ASSERT_OK(
        split_to((mics_split_sink){.piece = work_long, .ctx = &pieces}, "[a-z]+|x", "a b c d e f"));
    assert_int_equal(pieces, 11);
}

static void test_long_enough(void **state)
{
    (void)state;
    // By hand, and by Oniguruma.
    static const char llama3[] = MICS_SPLIT_LLAMA3, slow_llama3[] = MICS_SPLIT_LLAMA3 "|x";
    // Of Mistral Nemo, GPT-4o and DeepSeek V3 (its last).
    static const char tekken[] =
        "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]*[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]+|"
        "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]+[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]*|"
        "\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";
    static const char o200k[] =
        "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]*[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]+"
        "(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
        "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]+[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]*"
        "(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
        "\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";
    static const char deepseek[] =
        "[!\"#$%&'()*+,\\-./"
        ":;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+|"
        " ?[\\p{P}\\p{S}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";
    static const struct {
        const char *pattern, *unit;
        size_t count, pieces;
    } cases[] = {
        {MICS_SPLIT_GPT2, " word", 400000, 400000},
        {MICS_SPLIT_GPT2, " ", 2000000, 1},
        {llama3, " ", 2000000, 1}, // backtracks 2 million times, once
        {llama3, "          word", 100000, 200000},
        {slow_llama3, " ", 1000000, 1},
        {tekken, "A", 20000, 1},
        {tekken, "ACGT", 20000, 1},
        {tekken, " ", 1000000, 1},
        {tekken, THOUSAND_SPACES "x", 1000, 2000},
        {o200k, "A", 20000, 1},
        {o200k, "ACGT", 250000, 1},
        {o200k, " ", 1000000, 1},
        {deepseek, "A", 1000000, 1},
        {deepseek, "ACGT", 20000, 1},
        {deepseek, " ", 1000000, 1},
        {deepseek, THOUSAND_SPACES "x", 1000, 2000},
        {slow_llama3, "w", 2000000, 1},
        {slow_llama3, "          word", 100000, 200000},
        {slow_llama3, " word", 400000, 400000},
        {"\\p{N}", "a", 4000000, 1},           // no place in 4 million
        {"\\p{N}", "\xe6\xbc\xa2", 100000, 1}, // windows end inside characters
        {"\\p{N}",
         "\xe6\xbc\xa2\xe6\xbc\xa2"
         "7",
         5000, 10000},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        counts pieces;
        char *text = repeat(cases[i].unit, cases[i].count);
        ASSERT_OK(split(cases[i].pattern, text, &pieces));
        assert_int_equal(pieces.pieces, cases[i].pieces);
        free(text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_too_long, setup, teardown),
        cmocka_unit_test_setup_teardown(test_too_deep, setup, teardown),
        cmocka_unit_test_setup_teardown(test_slow_sink, setup, teardown),
        cmocka_unit_test_setup_teardown(test_long_enough, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
