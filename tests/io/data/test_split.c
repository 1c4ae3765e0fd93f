// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Single steps of tokenizers: pre-tokenizers and normalizers as Hugging Face's library has them
// (golden files made by tools/make_tokenizer_families.py), and patterns by Oniguruma as by hand.
#include "base/utf8.h"
#include "base/watched.h"
#include "hostile.h"
#include "io/data/tokenizer/bpe.h"
#include "io/data/tokenizer/pattern.h"
#include "io/data/tokenizer/split_known.h"
#include "test.h"
#include <stdlib.h>

// ---- splits and normalizers ----

typedef struct pieces {
    const mics_json_value *expected;
    int32_t count;
} pieces;

static mics_status check_piece(void *ctx, const char *text, size_t bytes)
{
    pieces *p = ctx;
    const char *expected = mics_json_string(mics_json_element(p->expected, p->count));
    if (expected == NULL || strlen(expected) != bytes || memcmp(expected, text, bytes) != 0)
        return mics_fail(MICS_ERR_INVALID, "piece %d is \"%.*s\", not \"%s\"", (int)p->count,
                         (int)bytes, text, expected != NULL ? expected : "(none)");
    p->count++;
    return MICS_OK;
}

static mics_split_behavior behavior_of(const char *name)
{
    static const char *const behaviors[] = {"Isolated", "Removed", "Contiguous",
                                            "MergedWithPrevious", "MergedWithNext"};
    for (int i = 0; i < 5; i++) {
        if (strcmp(name, behaviors[i]) == 0)
            return (mics_split_behavior)i;
    }
    return MICS_SPLIT_ISOLATED;
}

static mics_status add_step(mics_split *split, const mics_json_value *item)
{
    const char *kind = mics_json_string(mics_json_element(item, 0));
    const char *pattern = mics_json_string(mics_json_element(item, 1));
    const mics_split_behavior behavior = behavior_of(mics_json_string(mics_json_element(item, 2)));
    const bool invert = mics_json_bool(mics_json_element(item, 3));
    if (strcmp(kind, "Regex") == 0)
        return mics_split_add_pattern(split, "test", pattern, behavior, invert);
    if (strcmp(kind, "String") == 0)
        return mics_split_add_text(split, "test", pattern, behavior, invert);
    if (strcmp(kind, "Whitespace") == 0)
        return mics_split_add_words(split, "test");
    if (strcmp(kind, "WhitespaceSplit") == 0)
        return mics_split_add_chars(split, "test", MICS_CHAR_SPACE, MICS_SPLIT_REMOVED);
    if (strcmp(kind, "Punctuation") == 0)
        return mics_split_add_chars(split, "test", MICS_CHAR_PUNCTUATION, behavior);
    return mics_split_add_chars(split, "test", MICS_CHAR_NUMBER,
                                strcmp(kind, "Digits") == 0 ? MICS_SPLIT_CONTIGUOUS
                                                            : MICS_SPLIT_ISOLATED);
}

// `part` bytes at a time; 0: at once.
static mics_status run_split(const mics_split *split, const char *text, size_t part,
                             pieces *pieces_out)
{
    mics_split_work *work = NULL;
    const size_t bytes = strlen(text);
    const mics_split_sink sink = {.piece = check_piece, .ctx = pieces_out};
    mics_status status = mics_split_work_open(split, &work);
    for (size_t at = 0; status == MICS_OK && (at < bytes || at == 0);) {
        size_t end = part == 0 || bytes - at < part ? bytes : at + part;
        while (end < bytes && ((unsigned char)text[end] & 0xC0) == 0x80)
            end++;
        const mics_split_part now = {.text = text + at,
                                     .bytes = end - at,
                                     .head = at == 0,
                                     .first = at == 0,
                                     .more = end < bytes};
        status = mics_split_feed(work, &now, sink);
        at = end > at ? end : 1;
    }
    mics_split_work_close(work);
    return status;
}

static mics_json *load(const char *name)
{
    char path[512];
    mics_json *json = NULL;
    snprintf(path, sizeof path, "%s/tokenizers/%s", MICS_TEST_DATA, name);
    ASSERT_OK(mics_json_load(memory, path, 1 << 20, &json));
    return json;
}

static void test_splits(void **state)
{
    (void)state;
    mics_chars chars = {0};
    mics_json *json = load("splits.json");
    ASSERT_OK(mics_chars_init(memory, &chars));
    const int32_t count = mics_json_count(mics_json_root(json));
    assert_true(count > 1000);
    for (int32_t i = 0; i < count; i++) {
        const mics_json_value *item = mics_json_element(mics_json_root(json), i);
        const char *text = mics_json_string(mics_json_element(item, 4));
        mics_split *split = NULL;
        ASSERT_OK(mics_split_open(memory, &chars, &split));
        ASSERT_OK(add_step(split, item));
        for (size_t part = 0; part <= 2; part++) {
            pieces p = {.expected = mics_json_element(item, 5)};
            const mics_status status = run_split(split, text, part, &p);
            if (status != MICS_OK || p.count != mics_json_count(p.expected))
                fail_msg("%s \"%s\" %s%s of \"%s\", %d bytes a part: %d pieces, %s",
                         mics_json_string(mics_json_element(item, 0)),
                         mics_json_string(mics_json_element(item, 1)),
                         mics_json_string(mics_json_element(item, 2)),
                         mics_json_bool(mics_json_element(item, 3)) ? " inverted" : "", text,
                         (int)part, (int)p.count, seen.line);
        }
        mics_split_close(split);
    }
    mics_chars_fini(&chars);
    mics_json_close(json);
}

static size_t from_hex(const char *hex, char *out)
{
    const size_t bytes = strlen(hex) / 2;
    for (size_t i = 0; i < bytes; i++) {
        const char pair[] = {hex[2 * i], hex[2 * i + 1], '\0'};
        out[i] = (char)(unsigned char)strtoul(pair, NULL, 16);
    }
    return bytes;
}

static void add_normal(mics_normal *normal, const char *name)
{
    static const struct {
        const char *name;
        mics_normal_kind kind;
        const char *text, *content;
    } kinds[] = {
        {"NFC", MICS_NORMAL_NFC, NULL, NULL},
        {"NFD", MICS_NORMAL_NFD, NULL, NULL},
        {"NFKC", MICS_NORMAL_NFKC, NULL, NULL},
        {"NFKD", MICS_NORMAL_NFKD, NULL, NULL},
        {"Lowercase", MICS_NORMAL_LOWERCASE, NULL, NULL},
        {"StripAccents", MICS_NORMAL_STRIP_ACCENTS, NULL, NULL},
        {"Strip", MICS_NORMAL_STRIP_LEFT, NULL, NULL},
        {"Strip", MICS_NORMAL_STRIP_RIGHT, NULL, NULL},
        {"StripLeft", MICS_NORMAL_STRIP_LEFT, NULL, NULL},
        {"StripRight", MICS_NORMAL_STRIP_RIGHT, NULL, NULL},
        {"Prepend", MICS_NORMAL_PREPEND, NULL, "> "},
        {"ReplaceText", MICS_NORMAL_REPLACE_TEXT, "  ", "\xe2\x96\x81"},
        {"ReplacePattern", MICS_NORMAL_REPLACE_PATTERN, "\\s*\\d*", "#"},
    };
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        if (strcmp(kinds[i].name, name) == 0)
            ASSERT_OK(
                mics_normal_add(normal, "test", kinds[i].kind, kinds[i].text, kinds[i].content));
    }
    assert_false(mics_normal_is_empty(normal));
}

static void run_normal(const mics_normal *normal, const char *text, size_t bytes, size_t part,
                       mics_buffer *out)
{
    mics_normal_work *work = NULL;
    ASSERT_OK(mics_normal_work_open(normal, &work));
    for (size_t at = 0, turn = 0; at < bytes || turn == 0; turn++) {
        size_t end = part == 0 || bytes - at < part ? bytes : at + part;
        while (end < bytes && ((unsigned char)text[end] & 0xC0) == 0x80)
            end++;
        ASSERT_OK(mics_normal_feed(work, text + at, end - at, at == 0, end < bytes, out));
        at = end;
    }
    mics_normal_work_close(work);
}

static void test_normals(void **state)
{
    (void)state;
    mics_chars chars = {0};
    mics_json *json = load("normals.json");
    ASSERT_OK(mics_chars_init(memory, &chars));
    const int32_t count = mics_json_count(mics_json_root(json));
    assert_true(count > 100);
    for (int32_t i = 0; i < count; i++) {
        const mics_json_value *item = mics_json_element(mics_json_root(json), i);
        const char *name = mics_json_string(mics_json_element(item, 0));
        char text[2048], expected[8192];
        const size_t bytes = from_hex(mics_json_string(mics_json_element(item, 1)), text);
        const size_t wanted = from_hex(mics_json_string(mics_json_element(item, 2)), expected);
        mics_normal *normal = NULL;
        ASSERT_OK(mics_normal_open(memory, &chars, &normal));
        add_normal(normal, name);
        for (size_t part = 0; part <= 3; part++) {
            mics_buffer out = {.memory = memory};
            run_normal(normal, text, bytes, part, &out);
            if (out.bytes != wanted || (wanted > 0 && memcmp(out.data, expected, wanted) != 0))
                fail_msg("%s, case %d, %d bytes a part: another text of %d bytes, not %d", name,
                         (int)i, (int)part, (int)out.bytes, (int)wanted);
            mics_buffer_fini(&out);
        }
        mics_normal_close(normal);
    }
    mics_chars_fini(&chars);
    mics_json_close(json);
}

// A text can have any number of marks behind a letter.
static void test_many_marks(void **state)
{
    (void)state;
    enum { MARKS = 200000 };
    mics_buffer text = {.memory = memory}, out = {.memory = memory}, codes = {.memory = memory};
    ASSERT_OK(mics_buffer_append(&text, "a", 1));
    for (int i = 0; i < MARKS; i++) // of class 230, then of class 220
        ASSERT_OK(mics_buffer_append(&text, i % 2 == 0 ? "\xcc\x87" : "\xcc\xa3", 2));
    ASSERT_OK(mics_normal_form(MICS_NORMAL_NFD, text.data, text.bytes, &codes, &out));
    assert_int_equal(out.bytes, text.bytes);
    for (size_t i = 0; i < MARKS; i++)
        assert_memory_equal(out.data + 1 + 2 * i, i < MARKS / 2 ? "\xcc\xa3" : "\xcc\x87", 2);
    mics_buffer_fini(&text);
    mics_buffer_fini(&out);
    mics_buffer_fini(&codes);
}

// ---- patterns that are matched by hand ----

static void test_known_patterns(void **state)
{
    (void)state;
    static const char *const patterns[] = {MICS_SPLIT_GPT2, MICS_SPLIT_LLAMA3, MICS_SPLIT_QWEN2};
    mics_chars chars = {0};
    mics_matcher *matcher = NULL;
    ASSERT_OK(mics_chars_init(memory, &chars));
    ASSERT_OK(mics_matcher_open(memory, &matcher));
    for (int n = 0; n < 3; n++) {
        mics_pattern *pattern = NULL;
        mics_split_known *known = mics_split_known_find(patterns[n]);
        assert_non_null(known);
        ASSERT_OK(mics_pattern_open(memory, "test", patterns[n], &pattern));
        for (uint64_t index = 0; index < 2000; index += index % 4 == 2 ? 2 : 1) {
            char text[HOSTILE_BYTES];
            const size_t bytes = hostile_text(index, text);
            mics_pattern_window window;
            mics_matcher_start(matcher, bytes);
            mics_pattern_window_init(pattern, text, bytes, false, &window);
            for (size_t at = 0, begin = 0, end = 0; at < bytes; at = end) {
                bool found = false, open = false;
                ASSERT_OK(mics_matcher_find(matcher, pattern, &window, text, bytes, at, &found,
                                            &begin, &end));
                assert_true(found && begin == at);
                const size_t length = known(chars.classes, text + at, bytes - at, &open);
                if (length != end - at)
                    fail_msg("pattern %d, text %d, byte %d: %d bytes, Oniguruma %d", n, (int)index,
                             (int)at, (int)length, (int)(end - at));
                // Of a shorter text the same comes out, or it says that its end counted.
                for (size_t shorter = 1; shorter < bytes - at && shorter <= length + 8; shorter++) {
                    if (mics_utf8_valid(text + at, shorter) == shorter)
                        assert_true(known(chars.classes, text + at, shorter, &open) == length ||
                                    open);
                }
            }
        }
        mics_pattern_close(pattern);
    }
    mics_matcher_close(matcher);
    mics_chars_fini(&chars);
}

typedef struct cuts {
    uint64_t hash;
    int64_t pieces;
} cuts;

static mics_status note_piece(void *ctx, const char *text, size_t bytes)
{
    cuts *seen_cuts = ctx;
    (void)text;
    seen_cuts->hash = (seen_cuts->hash ^ bytes) * 0x100000001B3u;
    seen_cuts->pieces++;
    return MICS_OK;
}

// Splits a text, `part` bytes at a time; 0: at once.
static cuts cut_text(const mics_chars *chars, const char *pattern, const char *text, size_t bytes,
                     size_t part)
{
    cuts found = {0};
    mics_split *split = NULL;
    mics_split_work *work = NULL;
    const mics_split_sink sink = {.piece = note_piece, .ctx = &found};
    ASSERT_OK(mics_split_open(memory, chars, &split));
    ASSERT_OK(mics_split_add_pattern(split, "test", pattern, MICS_SPLIT_ISOLATED, false));
    ASSERT_OK(mics_split_work_open(split, &work));
    for (size_t at = 0; at < bytes;) {
        size_t end = part == 0 || bytes - at < part ? bytes : at + part;
        while (end < bytes && ((unsigned char)text[end] & 0xC0) == 0x80)
            end++;
        const mics_split_part now = {.text = text + at,
                                     .bytes = end - at,
                                     .head = at == 0,
                                     .first = at == 0,
                                     .more = end < bytes};
        ASSERT_OK(mics_split_feed(work, &now, sink));
        at = end;
    }
    mics_split_work_close(work);
    mics_split_close(split);
    return found;
}

// By Oniguruma, through windows and in parts, as by hand and at once.
static void test_long_text(void **state)
{
    (void)state;
    enum { TEXTS = 1500, RUN = 50000 };
    mics_chars chars = {0};
    char *text = malloc((size_t)(TEXTS + 1) * HOSTILE_BYTES + RUN);
    size_t bytes = 0;
    assert_non_null(text);
    ASSERT_OK(mics_chars_init(memory, &chars));
    for (uint64_t index = 0; index < TEXTS; index += index % 4 == 2 ? 2 : 1) {
        bytes += hostile_text(index, text + bytes);
        if (index == TEXTS / 2) { // longer than a window
            memset(text + bytes, 'a', RUN);
            bytes += RUN;
        }
    }
    const cuts whole = cut_text(&chars, MICS_SPLIT_LLAMA3, text, bytes, 0);
    assert_true(whole.pieces > 50000);
    static const size_t parts[] = {0, 1000, 70001};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        const cuts slow = cut_text(&chars, MICS_SPLIT_LLAMA3 "|x", text, bytes, parts[i]);
        const cuts fast = cut_text(&chars, MICS_SPLIT_LLAMA3, text, bytes, parts[i]);
        assert_int_equal(slow.pieces, whole.pieces);
        assert_true(slow.hash == whole.hash);
        assert_true(fast.pieces == whole.pieces && fast.hash == whole.hash);
    }
    free(text);
    mics_chars_fini(&chars);
}

// How far a pattern looks ahead: in "ab1234   x" from the first place, or not known.
static void test_reach(void **state)
{
    (void)state;
    static const char text[] = "ab1234   x";
    static const struct {
        const char *pattern;
        bool behind, far;
        size_t end;
    } cases[] = {
        {"a", false, false, 1},
        {"ab", false, false, 2},
        {"a{2,3}", false, false, 3},
        {"a{,4}", false, false, 4},
        {"{", false, false, 1},
        {"\\p{L}+", false, false, 2},
        {"\\p{L}+\\p{N}+", false, false, 6},
        {"\\p{L}+|\\p{N}+", false, false, 6},
        {"[a-z&&[^x]]*+(?!\\d)", false, false, 3},
        {"(?:ab|1)?2", false, false, 4},
        {"(?i:a)", false, false, 3},
        {"a{1,3}+", false, false, 1},
        {".", false, false, 1},
        {".+", false, false, 10},
        {"\\S+", false, false, 6},
        {"a\\Z", false, false, 2},
        {"a\\z", false, false, 1},
        {"(?:ab)+", false, true, 0},
        {"(a)\\1", false, true, 0},
        {"(?~ab)", false, true, 0},
        {"[]a]", false, true, 0},
        {"(?<=a)b", true, false, 0},
        {"(?<!a)b", true, false, 0},
        {"^a", true, false, 0},
        {"a\\b", true, false, 0},
        {"(?:a|(?:b)+|(?<=c)d)", true, true, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        mics_pattern_reach reach;
        ASSERT_OK(mics_pattern_reach_init(memory, cases[i].pattern, &reach));
        if (reach.behind != cases[i].behind || reach.far != cases[i].far)
            fail_msg("%s: looks behind %d, far %d", cases[i].pattern, reach.behind, reach.far);
        if (!reach.far && !reach.behind)
            assert_int_equal(mics_pattern_reach_end(&reach, text, sizeof text - 1, 0),
                             cases[i].end);
        mics_pattern_reach_fini(memory, &reach);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_splits, setup, teardown),
        cmocka_unit_test_setup_teardown(test_normals, setup, teardown),
        cmocka_unit_test_setup_teardown(test_many_marks, setup, teardown),
        cmocka_unit_test_setup_teardown(test_known_patterns, setup, teardown),
        cmocka_unit_test_setup_teardown(test_long_text, setup, teardown),
        cmocka_unit_test_setup_teardown(test_reach, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
