// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Tokenizers: the tokens that Hugging Face's library gives (golden files made by
// tools/make_tokenizer_golden.py), round trips of any bytes, and texts in parts.
#include "base/rng.h"
#include "base/utf8.h"
#include "base/watched.h"
#include "io/data/scratch.h"
#include "io/data/tokenizer/bpe.h"
#include <pthread.h>
#include <time.h>

static const char *const names[] = {"gpt2", "prefix", "llama3", "digits"};
enum { NAMES = 4 };

static mics_tokenizer *open_golden(const char *name)
{
    char path[512];
    mics_tokenizer *tokenizer = NULL;
    snprintf(path, sizeof path, "%s/tokenizer/%s.json", MICS_TEST_DATA, name);
    ASSERT_OK(mics_tokenizer_open(memory, path, &tokenizer));
    return tokenizer;
}

static size_t from_hex(const char *hex, char *out)
{
    size_t bytes = strlen(hex) / 2;
    for (size_t i = 0; i < bytes; i++) {
        unsigned value = 0;
        assert_int_equal(sscanf(hex + 2 * i, "%2x", &value), 1);
        out[i] = (char)(unsigned char)value;
    }
    return bytes;
}

static void check_case(const mics_tokenizer *tokenizer, const char *name, int32_t number,
                       const mics_json_value *item)
{
    char text[4096], *back = NULL;
    size_t bytes = from_hex(mics_json_string(mics_json_get(item, "hex")), text), back_bytes = 0;
    const mics_json_value *ids = mics_json_get(item, "ids");
    int32_t *tokens = NULL;
    int64_t count = 0;
    ASSERT_OK(mics_tokenizer_encode(tokenizer, text, bytes, 1, &tokens, &count));
    if (count != mics_json_count(ids))
        fail_msg("%s case %d: %d tokens, expected %d", name, (int)number, (int)count,
                 (int)mics_json_count(ids));
    for (int32_t i = 0; i < count; i++) {
        int64_t expected = mics_json_int(mics_json_element(ids, i));
        if (tokens[i] != expected)
            fail_msg("%s case %d token %d: %d, expected %d", name, (int)number, (int)i,
                     (int)tokens[i], (int)expected);
    }
    ASSERT_OK(mics_tokenizer_decode(tokenizer, tokens, count, &back, &back_bytes));
    if (strcmp(name, "prefix") != 0) { // which adds spaces
        assert_int_equal(back_bytes, bytes);
        assert_memory_equal(back, text, bytes);
    }
    mics_free(memory, tokens);
    mics_free(memory, back);
}

static void test_golden(void **state)
{
    (void)state;
    for (int n = 0; n < NAMES; n++) {
        char path[512];
        mics_json *cases = NULL;
        snprintf(path, sizeof path, "%s/tokenizer/%s.cases.json", MICS_TEST_DATA, names[n]);
        ASSERT_OK(mics_json_load(memory, path, 1 << 20, &cases));
        mics_tokenizer *tokenizer = open_golden(names[n]);
        int32_t count = mics_json_count(mics_json_root(cases));
        assert_true(count > 150);
        for (int32_t i = 0; i < count; i++)
            check_case(tokenizer, names[n], i, mics_json_element(mics_json_root(cases), i));
        assert_int_equal(mics_tokenizer_separator(tokenizer), 0);
        mics_tokenizer_close(tokenizer);
        mics_json_close(cases);
    }
}

static void test_vocab(void **state)
{
    (void)state;
    static const int32_t vocabs[NAMES] = {700, 503, 600, 450};
    for (int n = 0; n < NAMES; n++) {
        mics_tokenizer *tokenizer = open_golden(names[n]);
        assert_int_equal(mics_tokenizer_vocab(tokenizer), vocabs[n]);
        mics_tokenizer_close(tokenizer);
    }
}

static void test_specials_only_on_demand(void **state)
{
    (void)state;
    static const char text[] = "a<|endoftext|>";
    mics_tokenizer *tokenizer = open_golden("gpt2");
    int32_t *tokens = NULL;
    int64_t count = 0;
    ASSERT_OK(mics_tokenizer_encode(tokenizer, text, sizeof text - 1, 1, &tokens, &count));
    assert_int_equal(count, 2);
    assert_int_equal(tokens[1], 0);
    mics_free(memory, tokens);
    ASSERT_OK(mics_tokenizer_encode(tokenizer, text, sizeof text - 1, 0, &tokens, &count));
    assert_true(count > 2);
    for (int64_t i = 0; i < count; i++)
        assert_int_not_equal(tokens[i], 0);
    mics_free(memory, tokens);
    mics_tokenizer_close(tokenizer);
}

static void test_bytes(void **state)
{
    (void)state;
    mics_tokenizer *tokenizer = NULL;
    ASSERT_OK(mics_tokenizer_open(memory, "bytes", &tokenizer));
    assert_int_equal(mics_tokenizer_vocab(tokenizer), 256);
    assert_int_equal(mics_tokenizer_separator(tokenizer), 0);
    char text[5000], *back = NULL;
    for (size_t i = 0; i < sizeof text; i++)
        text[i] = (char)(unsigned char)(i * 7 % 256);
    int32_t *tokens = NULL;
    int64_t count = 0;
    size_t bytes = 0;
    ASSERT_OK(mics_tokenizer_encode(tokenizer, text, sizeof text, 0, &tokens, &count));
    assert_int_equal(count, sizeof text);
    for (size_t i = 0; i < sizeof text; i++)
        assert_int_equal(tokens[i], i * 7 % 256);
    ASSERT_OK(mics_tokenizer_decode(tokenizer, tokens, count, &back, &bytes));
    assert_int_equal(bytes, sizeof text);
    assert_memory_equal(back, text, sizeof text);
    mics_free(memory, tokens);
    mics_free(memory, back);
    ASSERT_OK(mics_tokenizer_encode(tokenizer, NULL, 0, 0, &tokens, &count));
    assert_int_equal(count, 0);
    mics_free(memory, tokens);
    const int32_t wild[] = {0, 256};
    ASSERT_STATUS(MICS_ERR_INVALID, mics_tokenizer_decode(tokenizer, wild, 2, &back, &bytes));
    ASSERT_SAID(&seen, "token 256 at index 1");
    mics_tokenizer_close(tokenizer);
}

// Bytes that are now and then letters, spaces, characters of several bytes, or nothing valid.
static size_t random_text(uint64_t seed, char *text, size_t limit)
{
    static const char *const parts[] = {"the",
                                        " ",
                                        "  ",
                                        "\n",
                                        "\xe4\xbd\xa0",
                                        "\xf0\x9f\x98",
                                        "\x80",
                                        "0",
                                        "'s",
                                        "\xff",
                                        "\xc3\xa9",
                                        "\xc3",
                                        "word",
                                        "\r\n",
                                        "\xe2\x80\xa8",
                                        "!?",
                                        "\xed\xa0\x80",
                                        "ing",
                                        "<|endoftext|>",
                                        "\xf4\x90\x80\x80"};
    size_t bytes = 0;
    for (uint64_t i = 0;; i++) {
        const char *part = parts[mics_rng_bits(seed, 1, i) % (sizeof parts / sizeof *parts)];
        if (bytes + strlen(part) > limit)
            return bytes;
        memcpy(text + bytes, part, strlen(part));
        bytes += strlen(part);
    }
}

static void test_any_bytes_come_back(void **state)
{
    (void)state;
    static const int exact[] = {0, 2, 3}; // "prefix" adds spaces
    for (uint64_t seed = 0; seed < 150; seed++) {
        mics_tokenizer *tokenizer = open_golden(names[exact[seed % 3]]);
        char text[300], *back = NULL;
        size_t bytes = random_text(seed, text, sizeof text), back_bytes = 0;
        int32_t *tokens = NULL;
        int64_t count = 0;
        ASSERT_OK(mics_tokenizer_encode(tokenizer, text, bytes, (int)(seed % 2), &tokens, &count));
        ASSERT_OK(mics_tokenizer_decode(tokenizer, tokens, count, &back, &back_bytes));
        assert_int_equal(back_bytes, bytes);
        assert_memory_equal(back, text, bytes);
        mics_free(memory, tokens);
        mics_free(memory, back);
        mics_tokenizer_close(tokenizer);
    }
}

// Feeds a text in parts of random sizes; whatever is not consumed comes again with more behind it.
static void encode_in_parts(const mics_tokenizer *tokenizer, const char *text, size_t bytes,
                            uint64_t seed, bool specials, mics_token_list *list)
{
    mics_encoder encoder = {0};
    ASSERT_OK(mics_encoder_open(tokenizer, specials, &encoder));
    size_t begin = 0, end = 0;
    for (uint64_t i = 0; begin < bytes || i == 0; i++) {
        end += (size_t)(mics_rng_bits(seed, 2, i) % 40);
        end = end < bytes ? end : bytes;
        char *known = malloc(end - begin + 1); // so that a sanitizer sees a step too far
        assert_non_null(known);
        memcpy(known, text + begin, end - begin);
        size_t consumed = 0;
        ASSERT_OK(mics_encoder_feed(&encoder, known, end - begin, end < bytes, list, &consumed));
        assert_true(consumed <= end - begin);
        free(known);
        begin += consumed;
    }
    mics_encoder_fini(&encoder);
}

static void test_parts_give_the_whole(void **state)
{
    (void)state;
    for (int n = 0; n < NAMES; n++) {
        mics_tokenizer *tokenizer = open_golden(names[n]);
        for (uint64_t seed = 0; seed < 100; seed++) {
            char text[1000];
            size_t bytes = random_text(seed, text, sizeof text);
            bool specials = seed % 2 != 0;
            int32_t *tokens = NULL;
            int64_t count = 0;
            mics_token_list list = {.memory = memory};
            ASSERT_OK(mics_tokenizer_encode(tokenizer, text, bytes, specials, &tokens, &count));
            encode_in_parts(tokenizer, text, bytes, seed, specials, &list);
            if (list.count != count ||
                memcmp(list.tokens, tokens, (size_t)count * sizeof *tokens) != 0)
                fail_msg("%s, text %d: in parts %d tokens, whole %d", names[n], (int)seed,
                         (int)list.count, (int)count);
            mics_free(memory, tokens);
            mics_token_list_fini(&list);
        }
        mics_tokenizer_close(tokenizer);
    }
}

// The definition of BPE, in O(n^2): merge the leftmost pair of the lowest rank until there is none.
static int64_t merge_plainly(const mics_bpe *bpe, const char *piece, size_t bytes, int32_t *tokens)
{
    int64_t count = (int64_t)bytes;
    for (int64_t i = 0; i < count; i++)
        tokens[i] = bpe->byte_token[(unsigned char)piece[i]];
    for (;;) {
        const mics_bpe_pair *best = NULL;
        int64_t where = 0;
        for (int64_t i = 0; i + 1 < count; i++) {
            const mics_bpe_pair *pair = mics_bpe_find_pair(bpe, tokens[i], tokens[i + 1]);
            if (pair != NULL && (best == NULL || pair->rank < best->rank)) {
                best = pair;
                where = i;
            }
        }
        if (best == NULL)
            return count;
        tokens[where] = best->merged;
        memmove(tokens + where + 1, tokens + where + 2,
                (size_t)(count - where - 2) * sizeof *tokens);
        count--;
    }
}

static void test_merging_equals_its_definition(void **state)
{
    (void)state;
    mics_tokenizer *tokenizer = open_golden("gpt2");
    const mics_bpe *bpe = tokenizer->ctx;
    mics_bpe_merger *merger = NULL;
    ASSERT_OK(mics_bpe_merger_open(bpe, &merger));
    for (uint64_t seed = 0; seed < 300; seed++) {
        char piece[400];
        int32_t expected[400];
        size_t bytes = random_text(seed, piece, 1 + seed % sizeof piece);
        mics_token_list list = {.memory = memory};
        ASSERT_OK(mics_bpe_merge(merger, piece, bytes, &list));
        int64_t count = merge_plainly(bpe, piece, bytes, expected);
        assert_int_equal(list.count, count);
        if (count > 0)
            assert_memory_equal(list.tokens, expected, (size_t)count * sizeof *expected);
        mics_token_list_fini(&list);
    }
    mics_bpe_merger_close(merger);
    mics_tokenizer_close(tokenizer);
}

typedef struct job {
    const mics_tokenizer *tokenizer;
    char text[4000];
    size_t bytes;
    int32_t *tokens;
    int64_t count;
    mics_status status;
} job;

static void *encode_often(void *ctx)
{
    job *mine = ctx;
    for (int i = 0; i < 20; i++) {
        mics_free(memory, mine->tokens);
        mine->tokens = NULL;
        mine->status = mics_tokenizer_encode(mine->tokenizer, mine->text, mine->bytes, 1,
                                             &mine->tokens, &mine->count);
        if (mine->status != MICS_OK)
            break;
    }
    return NULL;
}

static void test_threads_share_a_tokenizer(void **state)
{
    (void)state;
    enum { THREADS = 4 };
    static job jobs[THREADS];
    pthread_t threads[THREADS];
    mics_tokenizer *tokenizer = open_golden("llama3");
    for (int i = 0; i < THREADS; i++) {
        jobs[i].tokenizer = tokenizer;
        jobs[i].bytes = random_text((uint64_t)i, jobs[i].text, sizeof jobs[i].text);
        assert_int_equal(pthread_create(&threads[i], NULL, encode_often, &jobs[i]), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        int32_t *tokens = NULL;
        int64_t count = 0;
        assert_int_equal(pthread_join(threads[i], NULL), 0);
        ASSERT_OK(jobs[i].status);
        ASSERT_OK(
            mics_tokenizer_encode(tokenizer, jobs[i].text, jobs[i].bytes, 1, &tokens, &count));
        assert_int_equal(jobs[i].count, count);
        assert_memory_equal(jobs[i].tokens, tokens, (size_t)count * sizeof *tokens);
        mics_free(memory, tokens);
        mics_free(memory, jobs[i].tokens);
    }
    mics_tokenizer_close(tokenizer);
}

static void test_long_word(void **state)
{
    (void)state;
    const size_t bytes = 1 << 20;
    char *word = malloc(bytes);
    assert_non_null(word);
    for (size_t i = 0; i < bytes; i++)
        word[i] = (char)('a' + mics_rng_bits(3, 3, i) % 26);
    mics_tokenizer *tokenizer = open_golden("gpt2");
    int32_t *tokens = NULL;
    int64_t count = 0;
    const clock_t start = clock(); // of this process: a machine may stand still
    ASSERT_OK(mics_tokenizer_encode(tokenizer, word, bytes, 0, &tokens, &count));
    const double took_s = (double)(clock() - start) / CLOCKS_PER_SEC;
    if (took_s > 60)
        fail_msg("a word of 1 MiB took %.1f s", took_s);
    assert_true(count > 1000);
    mics_free(memory, tokens);
    memset(word, ' ', bytes);
    ASSERT_OK(mics_tokenizer_encode(tokenizer, word, bytes, 0, &tokens, &count));
    mics_free(memory, tokens);
    mics_tokenizer_close(tokenizer);
    free(word);
}

static void test_utf8(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int32_t length;
    } cases[] = {
        {"a", 1},        {"\xc2\x80", 2},     {"\xe0\xa0\x80", 3},  {"\xf0\x90\x80\x80", 4},
        {"\xc1\xbf", 0}, {"\xe0\x9f\xbf", 0}, {"\xed\xa0\x80", 0},  {"\xf0\x8f\xbf\xbf", 0},
        {"\x80", 0},     {"\xf4\x90\x80", 0}, {"\xf5", 0},          {"\xf4\x8f\xbf\xbf", 4},
        {"\xc2", -1},    {"\xe2\x82", -1},    {"\xf0\x9f\x98", -1}, {"\xe2\x41", 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_int_equal(mics_utf8_char(cases[i].text, strlen(cases[i].text)), cases[i].length);
    assert_int_equal(mics_utf8_code("\xf4\x8f\xbf\xbf", 4), 0x10FFFF);
    assert_int_equal(mics_utf8_code("\xe4\xbd\xa0", 3), 0x4F60);
}

static void test_text_is_the_file(void **state)
{
    (void)state;
    char path[512];
    size_t bytes = 0;
    snprintf(path, sizeof path, "%s/tokenizer/gpt2.json", MICS_TEST_DATA);
    mics_json *json = NULL;
    ASSERT_OK(mics_json_load(memory, path, 1 << 20, &json));
    mics_tokenizer *tokenizer = open_golden("gpt2");
    const char *text = mics_tokenizer_text(tokenizer, &bytes);
    assert_non_null(text);
    assert_string_equal(text, mics_json_text(json));
    assert_int_equal(bytes, strlen(text));
    mics_tokenizer_close(tokenizer);
    mics_json_close(json);
    ASSERT_OK(mics_tokenizer_open(memory, "bytes", &tokenizer));
    assert_null(mics_tokenizer_text(tokenizer, &bytes));
    assert_int_equal(bytes, 0);
    mics_tokenizer_close(tokenizer);
}

// A file cut or changed anywhere opens or does not; when it opens, it encodes what it decodes to.
static void test_random_files(void **state)
{
    (void)state;
    size_t bytes = 0;
    char path[512], text[200], *back = NULL;
    for (uint64_t round = 0; round < 200; round++) {
        snprintf(path, sizeof path, "%s/tokenizer/%s.json", MICS_TEST_DATA, names[round % NAMES]);
        char *file = files_read(path, &bytes);
        if (round % 4 == 0)
            bytes = (size_t)(mics_rng_bits(5, round, 0) % bytes);
        for (uint64_t i = 1; i <= 1 + round % 3; i++) {
            static const char changes[] = "0123456789aG\"[]{},: \\";
            // Half of the changes hit the short part before the vocabulary.
            uint64_t span = i % 2 != 0 && bytes > 600 ? 600 : bytes;
            if (span > 0)
                file[mics_rng_bits(5, round, 2 * i) % span] =
                    changes[mics_rng_bits(5, round, 2 * i + 1) % (sizeof changes - 1)];
        }
        files_write(files_path("random.json"), file, bytes);
        free(file);
        mics_tokenizer *tokenizer = NULL;
        if (mics_tokenizer_open(memory, files_path("random.json"), &tokenizer) != MICS_OK)
            continue;
        int32_t *tokens = NULL;
        int64_t count = 0;
        size_t length = random_text(round, text, sizeof text), back_bytes = 0;
        if (mics_tokenizer_encode(tokenizer, text, length, 1, &tokens, &count) == MICS_OK) {
            ASSERT_OK(mics_tokenizer_decode(tokenizer, tokens, count, &back, &back_bytes));
            mics_free(memory, back);
            mics_free(memory, tokens);
        }
        mics_tokenizer_close(tokenizer);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_golden, setup, teardown),
        cmocka_unit_test_setup_teardown(test_vocab, setup, teardown),
        cmocka_unit_test_setup_teardown(test_specials_only_on_demand, setup, teardown),
        cmocka_unit_test_setup_teardown(test_bytes, setup, teardown),
        cmocka_unit_test_setup_teardown(test_any_bytes_come_back, setup, teardown),
        cmocka_unit_test_setup_teardown(test_parts_give_the_whole, setup, teardown),
        cmocka_unit_test_setup_teardown(test_merging_equals_its_definition, setup, teardown),
        cmocka_unit_test_setup_teardown(test_threads_share_a_tokenizer, setup, teardown),
        cmocka_unit_test_setup_teardown(test_long_word, setup, teardown),
        cmocka_unit_test_setup_teardown(test_utf8, setup, teardown),
        cmocka_unit_test_setup_teardown(test_text_is_the_file, setup, teardown),
        cmocka_unit_test_setup_teardown(test_random_files, setup, teardown),
    };
    if (files_open() != 0)
        return 1;
    int failures = cmocka_run_group_tests(tests, NULL, NULL);
    files_close();
    return failures;
}
