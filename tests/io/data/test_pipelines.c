// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// What added tokens, normalizers and decoders do together, in small tokenizer.json files that are
// made here: ids as Hugging Face's library gives them (tokenizers 0.23.3), whole and in parts, and
// soon.
#include "base/watched.h"
#include "io/data/scratch.h"
#include "io/data/tokenizer/tokenizer.h"
#include <stdlib.h>
#include <time.h>

// Much above what is needed, for slow machines and sanitizers.
static const double TIME_MAX_S = 60;

// The members of a file besides the model, where there are any.
typedef struct parts_of_file {
    const char *added, *normalizer, *pre_tokenizer, *decoder;
} parts_of_file;

static mics_status open_file(const parts_of_file *file, mics_tokenizer **tokenizer_out)
{
    static const char form[] =
        "{\"added_tokens\": [%s], \"normalizer\": %s, \"pre_tokenizer\": %s, \"decoder\": %s, "
        "\"model\": {\"type\": \"BPE\", \"unk_token\": \"?\", \"vocab\": {\"?\": 0, \"a\": 1, "
        "\"b\": 2, \" \": 3, \"\u2581\": 4, \"\\n\": 5, \"<\": 6, \">\": 7, \"x\": 8, \"e\": 9, "
        "\"\u0301\": 10, \"\u00e9\": 11}, \"merges\": []}}";
    const char *added = file->added != NULL ? file->added : "";
    const size_t capacity = sizeof form + strlen(added) + 4096;
    char *text = malloc(capacity);
    assert_non_null(text);
    const int bytes =
        snprintf(text, capacity, form, added, file->normalizer != NULL ? file->normalizer : "null",
                 file->pre_tokenizer != NULL ? file->pre_tokenizer : "null",
                 file->decoder != NULL ? file->decoder : "null");
    assert_true(bytes > 0 && (size_t)bytes < capacity);
    files_write(files_path("small.json"), text, (size_t)bytes);
    free(text);
    return mics_tokenizer_open(memory, files_path("small.json"), tokenizer_out);
}

#define TOKEN(id, content, flags) "{\"id\": " #id ", \"content\": \"" content "\"" flags "}"
#define RAW ", \"normalized\": false"
#define NORMALIZED ", \"normalized\": true"
#define LSTRIP ", \"lstrip\": true"
#define RSTRIP ", \"rstrip\": true"
#define SPECIAL ", \"special\": true"
#define PREPEND "{\"type\": \"Prepend\", \"prepend\": \"\u2581\"}"
#define REPLACE(text, content)                                                                     \
    "{\"type\": \"Replace\", \"pattern\": {\"String\": \"" text "\"}, \"content\": \"" content "\"}"
#define STRIP "{\"type\": \"Strip\", \"strip_left\": true, \"strip_right\": true}"
#define BOTH(a, b) "{\"type\": \"Sequence\", \"normalizers\": [" a ", " b "]}"
#define METASPACE "{\"type\": \"Metaspace\", \"replacement\": \"\u2581\"}"

// ---- ids ----

static void check_ids(const char *text, size_t cut, const mics_token_list *list,
                      const int32_t *expected)
{
    int64_t count = 0;
    while (expected[count] >= 0)
        count++;
    bool same = list->count == count;
    for (int64_t i = 0; same && i < count; i++)
        same = list->tokens[i] == expected[i];
    if (!same) {
        for (int64_t i = 0; i < list->count; i++)
            print_message(" %d", (int)list->tokens[i]);
        fail_msg("\"%s\" cut at %zu: other ids", text, cut);
    }
}

// In two parts.
static void encode_cut(const mics_tokenizer *tokenizer, const char *text, size_t cut,
                       mics_token_list *list)
{
    const size_t bytes = strlen(text);
    mics_encoder encoder = {0};
    size_t consumed = 0, more = 0;
    ASSERT_OK(mics_encoder_open(tokenizer, true, &encoder));
    ASSERT_OK(mics_encoder_feed(&encoder, text, cut, cut < bytes, list, &consumed));
    if (cut < bytes)
        ASSERT_OK(
            mics_encoder_feed(&encoder, text + consumed, bytes - consumed, false, list, &more));
    assert_int_equal(consumed + more, bytes);
    mics_encoder_fini(&encoder);
}

static void test_ids(void **state)
{
    (void)state;
    static const struct {
        parts_of_file file;
        const char *text;
        int32_t ids[24]; // to -1
    } cases[] = {
        // Behind a token of the normalized text the section goes on: nothing is prepended.
        {{.added = TOKEN(12, "[P]", NORMALIZED),
          .normalizer = BOTH(PREPEND, REPLACE(" ", "\u2581"))},
         "a [P]b a [P] a b a b a b a b",
         {4, 1, 12, 2, 4, 1, 12, 4, 1, 4, 2, 4, 1, 4, 2, 4, 1, 4, 2, 4, 1, 4, 2, -1}},
        // White space that a token took is not left for the next.
        {{.added = TOKEN(6, "<", RSTRIP) ", " TOKEN(5, "\\n", LSTRIP RSTRIP)},
         "<\n\na",
         {6, 1, -1}},
        {{.added = TOKEN(6, "<", RSTRIP) ", " TOKEN(5, "\\n", LSTRIP RSTRIP)},
         "a \n b",
         {1, 5, 2, -1}},
        {{.added = TOKEN(6, "<", RSTRIP) ", " TOKEN(5, "\\n", "")}, "<\n\na", {6, 5, 5, 1, -1}},
        {{.added = TOKEN(12, "\\n\\n", RSTRIP)}, "\n\n\n\n\na", {12, 12, 1, -1}},
        // The longest counts.
        {{.added = TOKEN(6, "<", "") ", " TOKEN(12, "<ab", "") ", " TOKEN(13, "<b", "") ", " //
          TOKEN(14, "<a", "") ", " TOKEN(15, "<abba", "")},
         "<abb<a<<b<x",
         {12, 2, 14, 6, 13, 6, 8, -1}},
        // What the file says once more is the same.
        {{.added = TOKEN(12, "<q>", "") ", " TOKEN(12, "<q>", "") ", " TOKEN(13, "<r>", "")},
         "<q><r>",
         {12, 13, -1}},
        // What a text was cut before is not there any more.
        {{.normalizer = BOTH(REPLACE("a", " "), STRIP)}, "b aaaaaa", {2, -1}},
        {{.normalizer = BOTH(REPLACE("x", ""), "{\"type\": \"NFC\"}")},
         "exx\u0301 a",
         {11, 3, 1, -1}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        mics_tokenizer *tokenizer = NULL;
        ASSERT_OK(open_file(&cases[i].file, &tokenizer));
        for (size_t cut = 0; cut <= strlen(cases[i].text); cut++) {
            mics_token_list list = {.memory = memory};
            encode_cut(tokenizer, cases[i].text, cut, &list);
            check_ids(cases[i].text, cut, &list, cases[i].ids);
            mics_token_list_fini(&list);
        }
        mics_tokenizer_close(tokenizer);
    }
}

// ---- what is refused ----

static void test_refused(void **state)
{
    (void)state;
    static const char first[] = "{\"type\": \"Metaspace\", \"replacement\": \"\u2581\", "
                                "\"prepend_scheme\": \"first\"}";
    static const struct {
        parts_of_file file;
        mics_status status;
        const char *said;
    } cases[] = {
        {{.added = TOKEN(13, "<q>", "")}, MICS_ERR_FORMAT, "gives it 12: the next free one"},
        {{.added = TOKEN(13, "<q>", "") ", " TOKEN(12, "<r>", "")},
         MICS_ERR_FORMAT,
         "\"<q>\" has the id 13"},
        {{.added = TOKEN(12, "a", "")}, MICS_ERR_FORMAT, "gives it 1: that of model.vocab"},
        {{.added = TOKEN(12, "<q>", "") ", " TOKEN(13, "<q>", "")},
         MICS_ERR_FORMAT,
         "is there twice"},
        {{.added = TOKEN(12, "<q>", "") ", " TOKEN(12, "<q>", LSTRIP)},
         MICS_ERR_FORMAT,
         "\"<q>\" is there twice, with another id or other flags"},
        {{.added = TOKEN(12, "<q>", NORMALIZED), .normalizer = REPLACE("<q>", "")},
         MICS_ERR_UNSUPPORTED,
         "\"<q>\" is normalized to nothing"},
        {{.added = TOKEN(12, "<A>", NORMALIZED) ", " TOKEN(13, "<a>", NORMALIZED),
          .normalizer = "{\"type\": \"Lowercase\"}"},
         MICS_ERR_FORMAT,
         "the tokens 12 and 13 are the same when they are normalized"},
        {{.normalizer = "{\"type\": \"Prepend\", \"prepend\": \"\"}"},
         MICS_ERR_UNSUPPORTED,
         "Prepend of nothing"},
        {{.normalizer =
              "{\"type\": \"Replace\", \"pattern\": {\"Regex\": \"x*\"}, \"content\": \"b\"}"},
         MICS_ERR_UNSUPPORTED,
         "matches the empty text"},
        {{.normalizer = STRIP, .pre_tokenizer = first}, MICS_ERR_UNSUPPORTED, "take away"},
        {{.normalizer = "{\"type\": \"StripAccents\"}", .pre_tokenizer = first},
         MICS_ERR_UNSUPPORTED,
         "\"first\""},
        {{.normalizer = REPLACE("a", ""), .pre_tokenizer = first},
         MICS_ERR_UNSUPPORTED,
         "a Replace by nothing"},
        {{.pre_tokenizer =
              "{\"type\": \"Split\", \"pattern\": {\"Regex\": \"[[:punct:]]\"}, \"behavior\": "
              "\"Isolated\"}"},
         MICS_ERR_UNSUPPORTED,
         "[:punct:]"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        mics_tokenizer *tokenizer = NULL;
        const mics_status status = open_file(&cases[i].file, &tokenizer);
        if (status != cases[i].status)
            fail_msg("case %zu gave %s: %s", i, mics_status_name(status), seen.line);
        ASSERT_SAID(&seen, cases[i].said);
    }
    mics_tokenizer *tokenizer = NULL;
    ASSERT_OK(
        open_file(&(parts_of_file){.normalizer = REPLACE(" ", "\u2581"), .pre_tokenizer = first},
                  &tokenizer));
    mics_tokenizer_close(tokenizer);
}

// ---- bounds ----

static mics_status encode_soon(const mics_tokenizer *tokenizer, const char *text, size_t bytes,
                               int64_t *count_out)
{
    int32_t *tokens = NULL;
    const clock_t begun = clock();
    const mics_status status = mics_tokenizer_encode(tokenizer, text, bytes, 1, &tokens, count_out);
    assert_true((double)(clock() - begun) / CLOCKS_PER_SEC < TIME_MAX_S);
    if (status == MICS_OK)
        mics_free(memory, tokens);
    return status;
}

#define AS                                                                                         \
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"

// Steps that make a text longer and longer are an error while it is still short.
static void test_growth(void **state)
{
    (void)state;
    enum { BYTES = 100000 };
    static const char *const normalizers[] = {
        BOTH(REPLACE("a", AS), REPLACE("a", AS)),
        BOTH(REPLACE("a", AS), "{\"type\": \"Replace\", \"pattern\": {\"Regex\": \"a\"}, "
                               "\"content\": \"" AS "\"}"),
    };
    char *text = malloc(BYTES);
    assert_non_null(text);
    memset(text, 'a', BYTES);
    for (size_t i = 0; i < sizeof normalizers / sizeof *normalizers; i++) {
        int64_t count = 0;
        mics_tokenizer *tokenizer = NULL;
        ASSERT_OK(open_file(&(parts_of_file){.normalizer = normalizers[i]}, &tokenizer));
        ASSERT_OK(encode_soon(tokenizer, text, 20, &count));
        assert_int_equal(count, 20 * (sizeof AS - 1) * (sizeof AS - 1));
        ASSERT_STATUS(MICS_ERR_FORMAT, encode_soon(tokenizer, text, BYTES, &count));
        ASSERT_SAID(&seen, "small.json: its Replace makes more than 64 bytes for each");
        mics_memory_stats stats;
        mics_memory_stats_get(memory, &stats);
        assert_true(stats.total_peak < 64 << 20);
        mics_tokenizer_close(tokenizer);
    }
    free(text);
}

// Tokens that are white space themselves, in white space that one takes along.
static void test_many_spaces(void **state)
{
    (void)state;
    enum { LINES = 1000000 };
    int64_t count = 0;
    char *text = malloc(LINES);
    mics_tokenizer *tokenizer = NULL;
    assert_non_null(text);
    memset(text, '\n', LINES);
    ASSERT_OK(open_file(&(parts_of_file){.added = TOKEN(12, "\\n\\n", RSTRIP)}, &tokenizer));
    ASSERT_OK(encode_soon(tokenizer, text, LINES, &count));
    assert_int_equal(count, LINES / 2);
    mics_tokenizer_close(tokenizer);
    free(text);
}

// Thousands of tokens begin alike, and none is there.
static void test_many_alike(void **state)
{
    (void)state;
    enum { TOKENS = 20000, BYTES = 1000000, LENGTH = 64 };
    int64_t count = 0;
    char *added = malloc((size_t)TOKENS * LENGTH), *text = malloc(BYTES + 1);
    mics_tokenizer *tokenizer = NULL;
    assert_non_null(added);
    assert_non_null(text);
    size_t used = 0;
    for (int i = 0; i < TOKENS; i++)
        used += (size_t)snprintf(added + used, LENGTH, "%s{\"id\": %d, \"content\": \"<u%d>\"}",
                                 i > 0 ? ", " : "", 12 + i, i);
    memset(text, '<', BYTES);
    snprintf(text + BYTES - 5, 6, "<u77>");
    ASSERT_OK(open_file(&(parts_of_file){.added = added}, &tokenizer));
    ASSERT_OK(encode_soon(tokenizer, text, BYTES, &count));
    assert_int_equal(count, BYTES - 4);
    mics_tokenizer_close(tokenizer);
    free(added);
    free(text);
}

// ---- decoding ----

// At the head of a text Metaspace drops what stands for spaces, and no others.
static void test_decoded_head(void **state)
{
    (void)state;
    static const struct {
        int32_t tokens[2];
        const char *text;
    } cases[] = {{{12, 12}, "a b a b"}, {{3, 1}, " a"}, {{4, 1}, "a"}, {{1, 4}, "a "}};
    mics_tokenizer *tokenizer = NULL;
    const parts_of_file file = {.added = TOKEN(12, "\u2581a b", ""), .decoder = METASPACE};
    ASSERT_OK(open_file(&file, &tokenizer));
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *text = NULL;
        size_t bytes = 0;
        ASSERT_OK(mics_tokenizer_decode(tokenizer, cases[i].tokens, 2, &text, &bytes));
        assert_string_equal(text, cases[i].text);
        mics_free(memory, text);
    }
    mics_tokenizer_close(tokenizer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_ids, setup, teardown),
        cmocka_unit_test_setup_teardown(test_refused, setup, teardown),
        cmocka_unit_test_setup_teardown(test_growth, setup, teardown),
        cmocka_unit_test_setup_teardown(test_many_spaces, setup, teardown),
        cmocka_unit_test_setup_teardown(test_many_alike, setup, teardown),
        cmocka_unit_test_setup_teardown(test_decoded_head, setup, teardown),
    };
    if (files_open() != 0)
        return 1;
    int failures = cmocka_run_group_tests(tests, NULL, NULL);
    files_close();
    return failures;
}
