// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Folders with BERT's vocab.txt: the ids of transformers (tools/make_vocab_txt_golden.py), and what
// is refused.
#include "base/watched.h"
#include "hostile.h"
#include "io/data/tokenizer/tokenizer.h"
#include "io/data/tokenizer/vocab_txt.h"
#include "test.h"
#include <stdlib.h>

static mics_tokenizer *open_golden(const char *name)
{
    char path[512];
    mics_tokenizer *tokenizer = NULL;
    snprintf(path, sizeof path, MICS_TEST_DATA "/vocab_txt/%s/vocab.txt", name);
    ASSERT_OK(mics_tokenizer_open(memory, path, &tokenizer));
    return tokenizer;
}

static void check_ids(const char *name)
{
    char path[512], text[HOSTILE_BYTES], line[32];
    snprintf(path, sizeof path, MICS_TEST_DATA "/vocab_txt/%s/hashes", name);
    FILE *hashes = fopen(path, "r");
    assert_non_null(hashes);
    mics_tokenizer *tokenizer = open_golden(name);
    for (int index = 0; index < HOSTILE_TEXTS; index++) {
        int32_t *tokens = NULL;
        int64_t count = 0;
        const size_t bytes = hostile_text((uint64_t)index, text);
        assert_non_null(fgets(line, sizeof line, hashes));
        ASSERT_OK(mics_tokenizer_encode(tokenizer, text, bytes, 1, &tokens, &count));
        if (hostile_hash(tokens, count) != (uint32_t)strtoul(line, NULL, 16))
            fail_msg("%s: text %d has other ids", name, index);
        mics_free(memory, tokens);
    }
    fclose(hashes);
    mics_tokenizer_close(tokenizer);
}

static void test_ids(void **state)
{
    (void)state;
    check_ids("plain");
    check_ids("cased");
}

// What is made of it is a tokenizer.json with the same tokens around a text.
static void test_frame(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        int32_t before, after, mask;
    } golden[] = {{"plain", 2, 3, 4}, {"cased", 558, 3, -1}}; // masks are known by name
    for (size_t i = 0; i < 2; i++) {
        mics_tokenizer *tokenizer = open_golden(golden[i].name);
        mics_token_frame frame;
        mics_json *json = NULL;
        size_t bytes = 0;
        ASSERT_OK(mics_tokenizer_frame(tokenizer, &frame));
        assert_true(frame.before_count == 1 && frame.before[0] == golden[i].before);
        assert_true(frame.after_count == 1 && frame.after[0] == golden[i].after);
        assert_int_equal(tokenizer->mask, golden[i].mask);
        assert_int_equal(mics_tokenizer_vocab(tokenizer), 1500);
        const char *text = mics_tokenizer_text(tokenizer, &bytes);
        ASSERT_OK(mics_json_parse(memory, "made", text, bytes, &json));
        assert_string_equal(mics_json_string(mics_json_at(json, "model.type")), "WordPiece");
        mics_json_close(json);
        mics_tokenizer_close(tokenizer);
    }
}

#define LINES "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\n"

typedef struct refused {
    const char *lines, *settings;
    mics_status status;
    const char *said, *specials;
} refused;

static const refused cases[] = {
    {"", NULL, MICS_ERR_FORMAT, "v: no line is [PAD], the pad_token", NULL},
    {"[PAD]\n[UNK]\n[CLS]\n[SEP]\n", NULL, MICS_ERR_FORMAT, "no line is [MASK], the mask_token",
     NULL},
    {LINES "a\nb\na\n", NULL, MICS_ERR_FORMAT, "v:8:", NULL},
    {LINES "a\x80\n", NULL, MICS_ERR_FORMAT, "v:6: is no text in UTF-8", NULL},
    {LINES, "[]", MICS_ERR_FORMAT, "must be an object", NULL},
    {LINES, "{\"do_lower_case\": 1}", MICS_ERR_INVALID, "do_lower_case: must be true or false",
     NULL},
    {LINES, "{\"strip_accents\": \"x\"}", MICS_ERR_INVALID, "strip_accents: must be true", NULL},
    {LINES, "{\"mask_token\": {\"text\": \"x\"}}", MICS_ERR_INVALID, "mask_token: must be a token",
     NULL},
    {LINES, "{\"cls_token\": \"\"}", MICS_ERR_INVALID, "cls_token: must be a token", NULL},
    {LINES, "{\"sep_token\": \"</s>\"}", MICS_ERR_FORMAT, "no line is </s>, the sep_token", NULL},
    {LINES, "{\"tokenizer_class\": \"BertJapaneseTokenizer\"}", MICS_ERR_UNSUPPORTED,
     "tokenizer_class: a vocab.txt is read for BertTokenizer alone", NULL},
    {LINES, "{\"tokenizer_class\": 5}", MICS_ERR_UNSUPPORTED, "tokenizer_class: a vocab.txt", NULL},
    {LINES,
     "{\"added_tokens_decoder\": {\"4\": {\"content\": \"[MASK]\"}, \"5\": {\"content\": \"x\"}}}",
     MICS_ERR_UNSUPPORTED, "added_tokens_decoder: has more than the special tokens", NULL},
    {LINES, "{\"added_tokens_decoder\": \"x\"}", MICS_ERR_UNSUPPORTED,
     "added_tokens_decoder: has more", NULL},
    {LINES, "{\"additional_special_tokens\": [\"[MASK]\", \"[E1]\"]}", MICS_ERR_UNSUPPORTED,
     "additional_special_tokens: has more", NULL},
    {LINES, "{\"extra_special_tokens\": {\"e\": \"[E1]\"}}", MICS_ERR_UNSUPPORTED,
     "extra_special_tokens: has more", NULL},
    {LINES, NULL, MICS_ERR_FORMAT, "m: must be an object", "[]"},
    {LINES, "{}", MICS_ERR_INVALID, "m:1: mask_token: must be a token", "{\"mask_token\": 5}"},
    {LINES, "{\"sep_token\": \"[SEP]\"}", MICS_ERR_FORMAT, "no line is </s>, the sep_token",
     "{\"sep_token\": \"</s>\"}"},
    {LINES, NULL, MICS_ERR_UNSUPPORTED, "m:1: additional_special_tokens: has more",
     "{\"additional_special_tokens\": [\"[E1]\"]}"},
};

static mics_status parse_all(const char *lines, const char *settings, const char *specials,
                             mics_json **json_out)
{
    char text[256];
    mics_json *of = NULL, *map = NULL;
    mics_status status = MICS_OK;
    if (settings != NULL)
        MICS_TRY_OUT(mics_json_parse(memory, "s", settings, strlen(settings), &of));
    if (specials != NULL)
        MICS_TRY_OUT(mics_json_parse(memory, "m", specials, strlen(specials), &map));
    snprintf(text, sizeof text, "%s", lines);
    status = mics_vocab_txt_parse(memory, "v", text, strlen(text),
                                  &(mics_vocab_txt_beside){of, map}, json_out);
out:
    mics_json_close(map);
    mics_json_close(of);
    return status;
}

static mics_status parse(const char *lines, const char *settings, mics_json **json_out)
{
    return parse_all(lines, settings, NULL, json_out);
}

// The map's tokens count, unless the settings say which tokens were added.
static void test_specials(void **state)
{
    (void)state;
    static const struct {
        const char *settings, *specials, *mask;
    } maps[] = {
        {NULL, "{\"mask_token\": \"<m>\"}", "<m>"},
        {"{\"mask_token\": \"[MASK]\"}", "{\"mask_token\": {\"content\": \"<m>\"}}", "<m>"},
        {"{\"mask_token\": \"<m>\"}", "{\"mask_token\": null, \"bos_token\": \"x\"}", "<m>"},
        {"{\"added_tokens_decoder\": {}}", "{\"mask_token\": \"<m>\"}", "[MASK]"},
        {"{\"added_tokens_decoder\": null}", "{\"mask_token\": 5}", "[MASK]"},
    };
    for (size_t i = 0; i < sizeof maps / sizeof *maps; i++) {
        mics_json *json = NULL;
        ASSERT_OK(parse_all(LINES "<m>\n", maps[i].settings, maps[i].specials, &json));
        const mics_json_value *added = mics_json_at(json, "added_tokens");
        const mics_json_value *last = mics_json_element(added, mics_json_count(added) - 1);
        assert_string_equal(mics_json_string(mics_json_get(last, "content")), maps[i].mask);
        mics_json_close(json);
    }
}

static void test_refusals(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        mics_json *json = NULL;
        capture_begin(&seen);
        const mics_status status =
            parse_all(cases[i].lines, cases[i].settings, cases[i].specials, &json);
        capture_end();
        ASSERT_STATUS(cases[i].status, status);
        ASSERT_SAID(&seen, cases[i].said);
        assert_null(json);
    }
}

static void test_taken(void **state)
{
    (void)state;
    static const char *const taken[][2] = {
        {LINES "a", NULL},
        {"[PAD]\r\n[UNK]\r\n[CLS]\r\n[SEP]\r\n[MASK]\r\n", "{}"},
        {LINES, "{\"tokenizer_class\": null, \"do_lower_case\": null, \"mask_token\": null}"},
        {LINES, "{\"added_tokens_decoder\": {\"4\": {\"content\": \"[MASK]\"}}}"},
        {"a\"\\\n" LINES, "{\"pad_token\": \"[UNK]\", \"sep_token\": \"[CLS]\"}"},
    };
    for (size_t i = 0; i < sizeof taken / sizeof *taken; i++) {
        mics_json *json = NULL;
        ASSERT_OK(parse(taken[i][0], taken[i][1], &json));
        mics_json_close(json);
    }
}

static void test_allocations(void **state)
{
    (void)state;
    for (int64_t at = 0;; at++) {
        mics_json *json = NULL;
        mics_memory_fail_after(memory, at);
        capture_begin(&seen);
        const mics_status status =
            parse_all(LINES, "{\"do_lower_case\": false}", "{\"cls_token\": \"[CLS]\"}", &json);
        capture_end();
        mics_memory_fail_after(memory, -1);
        mics_json_close(json);
        if (status == MICS_OK)
            break;
        ASSERT_STATUS(MICS_ERR_MEMORY, status);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_ids, setup, teardown),
        cmocka_unit_test_setup_teardown(test_frame, setup, teardown),
        cmocka_unit_test_setup_teardown(test_refusals, setup, teardown),
        cmocka_unit_test_setup_teardown(test_specials, setup, teardown),
        cmocka_unit_test_setup_teardown(test_taken, setup, teardown),
        cmocka_unit_test_setup_teardown(test_allocations, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
