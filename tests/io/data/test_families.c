// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// A tokenizer in each family's pipeline gives the ids of Hugging Face's library on 1 MB of hostile
// texts (golden files made by tools/make_tokenizer_families.py), whole and in parts, and gives them
// back.
#include "base/watched.h"
#include "hostile.h"
#include "io/data/tokenizer/bpe.h"
#include "test.h"
#include <stdlib.h>

static const char *const names[] = {"gpt2",       "qwen2",   "llama3",    "neox",
                                    "llama2",     "mistral", "metaspace", "bert",
                                    "bert_cased", "roberta", "flags"};
enum { NAMES = 11 };

static mics_tokenizer *open_family(const char *name)
{
    char path[512];
    mics_tokenizer *tokenizer = NULL;
    snprintf(path, sizeof path, "%s/tokenizers/%s.json", MICS_TEST_DATA, name);
    ASSERT_OK(mics_tokenizer_open(memory, path, &tokenizer));
    return tokenizer;
}

static void show(const char *name, int index, const char *text, size_t bytes, const int32_t *tokens,
                 int64_t count)
{
    print_message("%s, text %d:", name, index);
    for (size_t i = 0; i < bytes; i++)
        print_message(" %02x", (unsigned)(unsigned char)text[i]);
    print_message("\nids:");
    for (int64_t i = 0; i < count; i++)
        print_message(" %d", (int)tokens[i]);
    print_message("\n");
}

static void check_family(const char *name)
{
    char path[512], text[HOSTILE_BYTES];
    snprintf(path, sizeof path, "%s/tokenizers/%s.hashes", MICS_TEST_DATA, name);
    FILE *hashes = fopen(path, "r");
    assert_non_null(hashes);
    mics_tokenizer *tokenizer = open_family(name);
    size_t total = 0;
    for (int index = 0; index < HOSTILE_TEXTS; index++) {
        char line[32];
        int32_t *tokens = NULL;
        int64_t count = 0;
        const size_t bytes = hostile_text((uint64_t)index, text);
        assert_non_null(fgets(line, sizeof line, hashes));
        ASSERT_OK(mics_tokenizer_encode(tokenizer, text, bytes, 1, &tokens, &count));
        if (hostile_hash(tokens, count) != (uint32_t)strtoul(line, NULL, 16)) {
            show(name, index, text, bytes, tokens, count);
            fail_msg("%s: text %d has other ids", name, index);
        }
        mics_free(memory, tokens);
        total += bytes;
    }
    assert_true(total > 1000000);
    fclose(hashes);
    mics_tokenizer_close(tokenizer);
}

static void test_ids(void **state)
{
    (void)state;
    for (int n = 0; n < NAMES; n++)
        check_family(names[n]);
}

// Takes out spaces, and U+2581, which stands for them.
static size_t without_spaces(char *text, size_t bytes)
{
    size_t kept = 0;
    for (size_t i = 0; i < bytes; i++) {
        if (bytes - i >= 3 && memcmp(text + i, "\xe2\x96\x81", 3) == 0)
            i += 2;
        else if (text[i] != ' ')
            text[kept++] = text[i];
    }
    return kept;
}

static void check_back(const mics_tokenizer *tokenizer, int index, bool spaces)
{
    char text[HOSTILE_BYTES], *back = NULL;
    int32_t *tokens = NULL;
    int64_t count = 0;
    size_t back_bytes = 0, bytes = hostile_text((uint64_t)index, text);
    ASSERT_OK(mics_tokenizer_encode(tokenizer, text, bytes, 1, &tokens, &count));
    ASSERT_OK(mics_tokenizer_decode(tokenizer, tokens, count, &back, &back_bytes));
    if (!spaces) {
        bytes = without_spaces(text, bytes);
        back_bytes = without_spaces(back, back_bytes);
    }
    assert_int_equal(back_bytes, bytes);
    assert_memory_equal(back, text, bytes);
    mics_free(memory, tokens);
    mics_free(memory, back);
}

// What is decoded is the text, where no normalizer changes it; a space that is prepended behind an
// added token stays.
static void test_text_comes_back(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        bool spaces; // come back as well
    } cases[] = {{"gpt2", true},
                 {"llama3", true},
                 {"mistral", false},
                 {"llama2", false},
                 {"metaspace", false}};
    for (size_t n = 0; n < sizeof cases / sizeof *cases; n++) {
        mics_tokenizer *tokenizer = open_family(cases[n].name);
        for (int index = 0; index < HOSTILE_TEXTS; index += 3)
            check_back(tokenizer, index, cases[n].spaces);
        mics_tokenizer_close(tokenizer);
    }
}

// Feeds texts behind each other, in parts of random sizes.
static void test_parts_give_the_whole(void **state)
{
    (void)state;
    enum { TEXTS = 40 };
    for (int n = 0; n < NAMES; n++) {
        mics_tokenizer *tokenizer = open_family(names[n]);
        for (uint64_t round = 0; round < 12; round++) {
            char *text = malloc((size_t)TEXTS * HOSTILE_BYTES);
            size_t bytes = 0, begin = 0, end = 0;
            assert_non_null(text);
            for (uint64_t i = 0; i < TEXTS; i++)
                bytes += hostile_text(round * TEXTS + i, text + bytes);
            int32_t *tokens = NULL;
            int64_t count = 0;
            uint64_t random = round;
            mics_encoder encoder = {0};
            mics_token_list list = {.memory = memory};
            const bool specials = round % 2 != 0;
            ASSERT_OK(mics_tokenizer_encode(tokenizer, text, bytes, specials, &tokens, &count));
            ASSERT_OK(mics_encoder_open(tokenizer, specials, &encoder));
            while (begin < bytes) {
                end += (size_t)hostile_below(&random, round % 3 == 0 ? 40 : 2000);
                end = end < bytes ? end : bytes;
                size_t consumed = 0;
                char *known = malloc(end - begin + 1); // so that a sanitizer sees a step too far
                assert_non_null(known);
                memcpy(known, text + begin, end - begin);
                ASSERT_OK(
                    mics_encoder_feed(&encoder, known, end - begin, end < bytes, &list, &consumed));
                free(known);
                begin += consumed;
            }
            if (list.count != count ||
                memcmp(list.tokens, tokens, (size_t)count * sizeof *tokens) != 0)
                fail_msg("%s, round %d: in parts %d tokens, whole %d", names[n], (int)round,
                         (int)list.count, (int)count);
            mics_encoder_fini(&encoder);
            mics_token_list_fini(&list);
            mics_free(memory, tokens);
            free(text);
        }
        mics_tokenizer_close(tokenizer);
    }
}

// ---- what a run may ask for ----

static void test_frame(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        int32_t first; // -1: nothing is put before a text
        int32_t last;  // -1: nor behind it
    } cases[] = {{"llama2", 1, -1}, {"llama3", -2, -1},   {"gpt2", -1, -1}, {"qwen2", -1, -1},
                 {"bert", 2, 3},    {"bert_cased", 2, 3}, {"roberta", 0, 2}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        mics_token_frame frame;
        mics_tokenizer *tokenizer = open_family(cases[i].name);
        ASSERT_OK(mics_tokenizer_frame(tokenizer, &frame));
        assert_int_equal(frame.before_count, cases[i].first != -1 ? 1 : 0);
        assert_int_equal(frame.after_count, cases[i].last != -1 ? 1 : 0);
        if (cases[i].last >= 0)
            assert_int_equal(frame.after[0], cases[i].last);
        if (cases[i].first >= 0)
            assert_int_equal(frame.before[0], cases[i].first);
        mics_tokenizer_close(tokenizer);
    }
}

// Tokens one by one give the text that they give together, but for its beginning.
static void test_text_as_it_is_made(void **state)
{
    (void)state;
    static const char text[] = "the words of the day";
    for (int n = 0; n < NAMES - 1; n++) {
        char made[256] = "", *back = NULL;
        int32_t *tokens = NULL;
        int64_t count = 0;
        size_t bytes = 0, used = 0;
        mics_tokenizer *tokenizer = open_family(names[n]);
        ASSERT_OK(mics_tokenizer_encode(tokenizer, text, sizeof text - 1, 1, &tokens, &count));
        for (int64_t i = 0; i < count; i++) {
            ASSERT_OK(mics_tokenizer_decode_more(tokenizer, &tokens[i], 1, &back, &bytes));
            memcpy(made + used, back, bytes);
            used += bytes;
            mics_free(memory, back);
        }
        made[used] = '\0';
        assert_string_equal(made + (made[0] == ' '), text);
        ASSERT_OK(mics_tokenizer_decode(tokenizer, tokens, count, &back, &bytes));
        assert_string_equal(back, text);
        mics_free(memory, back);
        mics_free(memory, tokens);
        mics_tokenizer_close(tokenizer);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_ids, setup, teardown),
        cmocka_unit_test_setup_teardown(test_text_comes_back, setup, teardown),
        cmocka_unit_test_setup_teardown(test_parts_give_the_whole, setup, teardown),
        cmocka_unit_test_setup_teardown(test_frame, setup, teardown),
        cmocka_unit_test_setup_teardown(test_text_as_it_is_made, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
