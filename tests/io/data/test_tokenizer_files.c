// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Files that are no tokenizer, or not one that is known: one line that names the file and what.
#include "base/watched.h"
#include "io/data/scratch.h"
#include "io/data/tokenizer/bpe.h"

// Opens a golden tokenizer.json with the value at `path` replaced by `value`.
static mics_status open_changed(const char *name, const char *path, const char *value)
{
    char file[512];
    mics_json *json = NULL;
    mics_bpe *bpe = NULL;
    snprintf(file, sizeof file, "%s/tokenizer/%s.json", MICS_TEST_DATA, name);
    ASSERT_OK(mics_json_load(memory, file, 1 << 20, &json));
    ASSERT_OK(mics_json_set(json, path, value));
    mics_status status = mics_bpe_load(memory, json, &bpe);
    mics_bpe_close(bpe);
    mics_json_close(json);
    return status;
}

static void test_refuses_other_kinds(void **state)
{
    (void)state;
    static const struct {
        const char *path, *value;
        mics_status status;
        const char *said;
    } cases[] = {
        {"model.type", "WordLevel", MICS_ERR_UNSUPPORTED, "\"WordLevel\""},
        {"model", "3", MICS_ERR_FORMAT, "no tokenizer.json"},
        {"model.dropout", "0.1", MICS_ERR_UNSUPPORTED, "dropout"},
        {"model.end_of_word_suffix", "</w>", MICS_ERR_UNSUPPORTED, "</w>"},
        {"model.ignore_merges", "1", MICS_ERR_FORMAT, "ignore_merges"},
        {"model.ignore_merges", "\"x\"", MICS_ERR_FORMAT, "is a string, expected true or false"},
        {"model.dropout", "\"x\"", MICS_ERR_FORMAT, "expected a number"},
        {"model.unk_token", "7", MICS_ERR_FORMAT, "expected a string"},
        {"normalizer", "{\"type\": \"Precompiled\"}", MICS_ERR_UNSUPPORTED,
         "a normalizer \"Precompiled\" is not supported; known: BertNormalizer"},
        {"normalizer", "[]", MICS_ERR_FORMAT, "is an array, expected an object"},
        {"normalizer", "{\"type\": 3}", MICS_ERR_FORMAT, "\"type\" is an integer"},
        {"normalizer", "{\"type\": \"Sequence\"}", MICS_ERR_FORMAT, "\"normalizers\" is missing"},
        {"normalizer", "{\"type\": \"Prepend\"}", MICS_ERR_FORMAT, "\"prepend\" is missing"},
        {"normalizer", "{\"type\": \"Replace\", \"pattern\": \"x\"}", MICS_ERR_FORMAT,
         "\"pattern\" is neither"},
        {"normalizer", "{\"type\": \"Strip\", \"strip_left\": 1}", MICS_ERR_FORMAT, "strip_left"},
        {"normalizer",
         "{\"type\": \"Replace\", \"pattern\": {\"Regex\": \"[\"}, \"content\": \"\"}",
         MICS_ERR_FORMAT, "bad pattern \"[\""},
        {"decoder", "{\"type\": \"WordPiece\"}", MICS_ERR_UNSUPPORTED, "\"WordPiece\""},
        {"pre_tokenizer", "null", MICS_ERR_UNSUPPORTED, "decoder \"ByteLevel\""},
        {"pre_tokenizer", "true", MICS_ERR_FORMAT, "expected an object"},
        {"pre_tokenizer.type", "Metaspace", MICS_ERR_FORMAT, "\"replacement\" is missing"},
        {"pre_tokenizer.type", "OtherPreTokenizer", MICS_ERR_UNSUPPORTED,
         "known: BertPreTokenizer"},
        {"pre_tokenizer", "{\"type\": \"Sequence\", \"pretokenizers\": {}}", MICS_ERR_FORMAT,
         "\"pretokenizers\" is an object"},
        {"pre_tokenizer",
         "{\"type\": \"Sequence\", \"pretokenizers\": [{\"type\": \"ByteLevel\"}, {\"type\": "
         "\"Digits\"}]}",
         MICS_ERR_UNSUPPORTED, "\"Digits\" behind ByteLevel"},
        {"pre_tokenizer", "{\"type\": \"Metaspace\", \"replacement\": \"ab\"}", MICS_ERR_FORMAT,
         "expected one character"},
        {"pre_tokenizer",
         "{\"type\": \"Metaspace\", \"replacement\": \"_\", \"prepend_scheme\": \"last\"}",
         MICS_ERR_UNSUPPORTED, "\"last\"; known: always, first, never"},
        {"pre_tokenizer",
         "{\"type\": \"Sequence\", \"pretokenizers\": [{\"type\": \"Split\", \"pattern\": "
         "{\"Regex\": \"(\"}, \"behavior\": \"Isolated\"}, {\"type\": \"ByteLevel\", "
         "\"add_prefix_space\": false}]}",
         MICS_ERR_FORMAT, "bad pattern"},
        {"pre_tokenizer",
         "{\"type\": \"Sequence\", \"pretokenizers\": [{\"type\": \"Split\", \"pattern\": "
         "{\"Regex\": \"(?<=a)b\"}, \"behavior\": \"Isolated\"}, {\"type\": \"ByteLevel\", "
         "\"add_prefix_space\": false}]}",
         MICS_ERR_UNSUPPORTED, "looks behind"},
        // Perl's single byte would end matches inside a character; Oniguruma has none.
        {"pre_tokenizer",
         "{\"type\": \"Sequence\", \"pretokenizers\": [{\"type\": \"Split\", \"pattern\": "
         "{\"Regex\": \"(?=\\u00e9)\\\\C|(?=)\"}, \"behavior\": \"Isolated\"}, {\"type\": "
         "\"ByteLevel\", \"add_prefix_space\": false}]}",
         MICS_ERR_FORMAT, "bad pattern"},
        {"pre_tokenizer",
         "{\"type\": \"Sequence\", \"pretokenizers\": [{\"type\": \"Split\", \"pattern\": "
         "{\"Regex\": \"b\"}, \"behavior\": \"Sideways\"}, {\"type\": \"ByteLevel\"}]}",
         MICS_ERR_UNSUPPORTED, "\"Sideways\"; known: Isolated"},
        {"model.vocab", "{\"a\": 1, \"b\": 1}", MICS_ERR_FORMAT, "two tokens"},
        {"model.vocab", "{\"a\": -1}", MICS_ERR_FORMAT, "the id of \"a\""},
        {"model.vocab", "{\"a\": 2147483647}", MICS_ERR_FORMAT, "the id of \"a\""},
        {"model.vocab", "{\"a\": 1.5}", MICS_ERR_FORMAT, "the id of \"a\""},
        {"model.vocab", "[]", MICS_ERR_FORMAT, "model.vocab"},
        {"model.vocab", "{}", MICS_ERR_UNSUPPORTED, "the byte 0x00"},
        {"model.merges", "null", MICS_ERR_FORMAT, "model.merges"},
        {"model.merges", "[\"a b c\"]", MICS_ERR_FORMAT, "merge 0"},
        {"model.merges", "[\"ab\"]", MICS_ERR_FORMAT, "merge 0"},
        {"model.merges", "[[\"a\"]]", MICS_ERR_FORMAT, "merge 0"},
        {"model.merges", "[\"a \"]", MICS_ERR_FORMAT, "merge 0"},
        {"model.merges", "[\"q q\"]", MICS_ERR_FORMAT, "merge 0"},
        {"model.merges", "[7]", MICS_ERR_FORMAT, "merge 0"},
        {"added_tokens", "{}", MICS_ERR_FORMAT, "added_tokens"},
        {"added_tokens", "[{\"id\": 900}]", MICS_ERR_FORMAT, "entry 0"},
        {"added_tokens", "[{\"id\": 900, \"content\": \"\"}]", MICS_ERR_FORMAT, "entry 0"},
        {"added_tokens", "[{\"id\": \"x\", \"content\": \"y\"}]", MICS_ERR_FORMAT, "the id of"},
        {"added_tokens", "[{\"id\": 5, \"content\": \"<x>\"}]", MICS_ERR_FORMAT,
         "gives it 700: the next free one"},
        {"added_tokens", "[{\"id\": 900, \"content\": \"a\"}]", MICS_ERR_FORMAT,
         "that of model.vocab"},
        {"added_tokens", "[{\"id\": 900, \"content\": \"<x>\", \"lstrip\": 1}]", MICS_ERR_FORMAT,
         "\"lstrip\" is an integer"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        mics_status status = open_changed("gpt2", cases[i].path, cases[i].value);
        if (status != cases[i].status)
            fail_msg("%s = %s gave %s: %s", cases[i].path, cases[i].value, mics_status_name(status),
                     seen.line);
        ASSERT_SAID(&seen, cases[i].said);
    }
}

// Files of BPE by characters.
static void test_refuses_what_has_no_bytes(void **state)
{
    (void)state;
    static const struct {
        const char *path, *value;
        mics_status status;
        const char *said;
    } cases[] = {
        {"model.unk_token", "nobody", MICS_ERR_FORMAT, "\"nobody\" is no token"},
        {"model.vocab", "{\"<unk>\": 0, \"<s>\": 1, \"</s>\": 2, \"<0x00>\": 3}",
         MICS_ERR_UNSUPPORTED, "only 1 of the tokens <0x00> to <0xFF>"},
        {"model.byte_fallback", "1", MICS_ERR_FORMAT, "byte_fallback"},
        {"decoder", "{\"type\": \"CTC\"}", MICS_ERR_UNSUPPORTED, "\"CTC\""},
        {"decoder", "{\"type\": \"Strip\", \"content\": \" \", \"start\": 1, \"stop\": 0}",
         MICS_ERR_UNSUPPORTED, "of every token"},
        {"decoder",
         "{\"type\": \"Sequence\", \"decoders\": [{\"type\": \"Fuse\"}, {\"type\": \"Strip\", "
         "\"content\": \" \", \"start\": -1, \"stop\": 0}]}",
         MICS_ERR_FORMAT, "\"start\" is no number"},
        {"decoder",
         "{\"type\": \"Sequence\", \"decoders\": [{\"type\": \"Fuse\"}, {\"type\": "
         "\"ByteFallback\"}]}",
         MICS_ERR_UNSUPPORTED, "behind Fuse"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        mics_status status = open_changed("../tokenizers/llama2", cases[i].path, cases[i].value);
        if (status != cases[i].status)
            fail_msg("%s = %s gave %s: %s", cases[i].path, cases[i].value, mics_status_name(status),
                     seen.line);
        ASSERT_SAID(&seen, cases[i].said);
    }
}

// Its unknown token would be that of no byte.
static void test_refuses_bytes_of_wordpiece(void **state)
{
    (void)state;
    ASSERT_STATUS(MICS_ERR_UNSUPPORTED,
                  open_changed("../tokenizers/bert", "pre_tokenizer", "{\"type\": \"ByteLevel\"}"));
    ASSERT_SAID(&seen, "ByteLevel before a model of type \"WordPiece\"");
}

// Files cut anywhere: an error that names the file, or at its very end the whole.
static void test_truncated(void **state)
{
    (void)state;
    size_t bytes = 0;
    char path[512];
    snprintf(path, sizeof path, "%s/tokenizers/llama2.json", MICS_TEST_DATA);
    char *file = files_read(path, &bytes);
    for (size_t cut = 0; cut < bytes; cut += 1 + cut / 16) {
        mics_tokenizer *tokenizer = NULL;
        files_write(files_path("cut.json"), file, cut);
        ASSERT_STATUS(MICS_ERR_FORMAT,
                      mics_tokenizer_open(memory, files_path("cut.json"), &tokenizer));
        ASSERT_SAID(&seen, "cut.json");
    }
    free(file);
}

static void test_missing_file(void **state)
{
    (void)state;
    mics_tokenizer *tokenizer = NULL;
    ASSERT_STATUS(MICS_ERR_IO, mics_tokenizer_open(memory, "/nowhere/x.json", &tokenizer));
    ASSERT_SAID(&seen, "/nowhere/x.json");
    assert_null(tokenizer);
}

static mics_status everything(const char *path)
{
    mics_tokenizer *tokenizer = NULL;
    int32_t *tokens = NULL;
    char *back = NULL;
    int64_t count = 0;
    size_t bytes = 0;
    static const char text[] = "The words<|endoftext|> it's \xe4\xbd\xa0\xff";
    mics_status status = MICS_OK;
    MICS_TRY_OUT(mics_tokenizer_open(memory, path, &tokenizer));
    MICS_TRY_OUT(mics_tokenizer_encode(tokenizer, text, sizeof text, 1, &tokens, &count));
    MICS_TRY_OUT(mics_tokenizer_decode(tokenizer, tokens, count, &back, &bytes));
out:
    mics_free(memory, back);
    mics_free(memory, tokens);
    mics_tokenizer_close(tokenizer);
    return status;
}

static int64_t allocations(void)
{
    mics_memory_stats stats;
    mics_memory_stats_get(memory, &stats);
    assert_int_equal(stats.live_blocks, 0);
    return stats.allocations;
}

static void test_allocation_failures(void **state)
{
    (void)state;
    static const char *const all[] = {"gpt2",
                                      "prefix",
                                      "llama3",
                                      "digits",
                                      "../tokenizers/llama2",
                                      "../tokenizers/flags",
                                      "../tokenizers/metaspace"};
    for (size_t n = 0; n < sizeof all / sizeof *all; n++) {
        char path[512];
        snprintf(path, sizeof path, "%s/tokenizer/%s.json", MICS_TEST_DATA, all[n]);
        int64_t before = allocations();
        ASSERT_OK(everything(path));
        int64_t count = allocations() - before;
        assert_true(count >= 20);
        for (int64_t i = 1; i <= count; i++) {
            seen.errors = 0;
            mics_memory_fail_after(memory, i);
            mics_status status = everything(path);
            allocations();
            assert_int_equal(seen.errors, 1);
            assert_int_equal(status, MICS_ERR_MEMORY);
        }
        mics_memory_fail_after(memory, 0);
        assert_true(count >= 25);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_refuses_other_kinds, setup, teardown),
        cmocka_unit_test_setup_teardown(test_refuses_what_has_no_bytes, setup, teardown),
        cmocka_unit_test_setup_teardown(test_refuses_bytes_of_wordpiece, setup, teardown),
        cmocka_unit_test_setup_teardown(test_truncated, setup, teardown),
        cmocka_unit_test_setup_teardown(test_missing_file, setup, teardown),
        cmocka_unit_test_setup_teardown(test_allocation_failures, setup, teardown),
    };
    if (files_open() != 0)
        return 1;
    int failures = cmocka_run_group_tests(tests, NULL, NULL);
    files_close();
    return failures;
}
