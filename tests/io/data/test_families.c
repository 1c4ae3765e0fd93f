// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// A tokenizer in each family's pipeline gives the ids of Hugging Face's library on 1 MB of hostile
// texts (golden files made by tools/make_tokenizer_families.py), whole and in parts, and gives them
// back.
#include "base/utf8.h"
#include "base/watched.h"
#include "hostile.h"
#include "io/data/bpe.h"
#include "io/data/pattern.h"
#include "io/data/split_known.h"
#include "test.h"
#include <stdlib.h>

static const char *const names[] = {"gpt2",   "qwen2",   "llama3",    "neox",
                                    "llama2", "mistral", "metaspace", "flags"};
enum { NAMES = 8 };

static mics_tokenizer *open_family(const char *name)
{
    char path[512];
    mics_tokenizer *tokenizer = NULL;
    snprintf(path, sizeof path, "%s/tokenizers/%s.json", MICS_TEST_DATA, name);
    ASSERT_OK(mics_tokenizer_open(memory, path, &tokenizer));
    return tokenizer;
}

static uint32_t hash_of(const int32_t *tokens, int64_t count)
{
    uint32_t hash = 0x811C9DC5u;
    for (int64_t i = 0; i < 4 * count; i++) {
        const uint32_t byte = (uint32_t)tokens[i / 4] >> 8 * (i % 4) & 0xFF;
        hash = (hash ^ byte) * 0x01000193u;
    }
    return hash;
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
        if (hash_of(tokens, count) != (uint32_t)strtoul(line, NULL, 16)) {
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

// ---- single steps ----

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

// ---- what a run may ask for ----

static void test_frame(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        int32_t first; // -1: nothing is put before a text
    } cases[] = {{"llama2", 1}, {"llama3", -2}, {"gpt2", -1}, {"qwen2", -1}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        mics_token_frame frame;
        mics_tokenizer *tokenizer = open_family(cases[i].name);
        ASSERT_OK(mics_tokenizer_frame(tokenizer, &frame));
        assert_int_equal(frame.before_count, cases[i].first != -1 ? 1 : 0);
        assert_int_equal(frame.after_count, 0);
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
        cmocka_unit_test_setup_teardown(test_splits, setup, teardown),
        cmocka_unit_test_setup_teardown(test_normals, setup, teardown),
        cmocka_unit_test_setup_teardown(test_many_marks, setup, teardown),
        cmocka_unit_test_setup_teardown(test_known_patterns, setup, teardown),
        cmocka_unit_test_setup_teardown(test_long_text, setup, teardown),
        cmocka_unit_test_setup_teardown(test_reach, setup, teardown),
        cmocka_unit_test_setup_teardown(test_frame, setup, teardown),
        cmocka_unit_test_setup_teardown(test_text_as_it_is_made, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
