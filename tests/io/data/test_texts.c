// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Files of several texts (JSON Lines) and packed files as corpora: the tokens are those of the texts
// alone, whatever the file is called and however it was packed.
#include "base/rng.h"
#include "io/data/cached.h"
#include "io/data/data.h"
#include <stdbool.h>
#include <zlib.h>
#include <zstd.h>

static mics_tokenizer *tokenizer;

static int setup_bytes(void **state)
{
    return setup_cached(state) == 0 && mics_tokenizer_open(memory, "bytes", &tokenizer) == MICS_OK
               ? 0
               : 1;
}

static int teardown_bytes(void **state)
{
    mics_tokenizer_close(tokenizer);
    return teardown(state);
}

static mics_status open_field(const char *name, const char *field, mics_corpus **corpus_out)
{
    const char *path = files_path(name);
    const mics_corpus_spec spec = {.patterns = &path,
                                   .pattern_count = 1,
                                   .vocab = 256,
                                   .tokenizer = tokenizer,
                                   .cache_dir = cache,
                                   .text_field = field};
    return mics_corpus_open(memory, &spec, corpus_out);
}

// Each byte is a token, and each text stands behind a NUL: so a corpus is a text itself.
static void expect_corpus(const char *name, const char *field, const char *want, size_t bytes)
{
    mics_corpus *corpus = NULL;
    ASSERT_OK(open_field(name, field, &corpus));
    assert_int_equal(mics_corpus_tokens(corpus), bytes);
    int32_t *tokens = malloc(bytes * sizeof *tokens);
    assert_non_null(tokens);
    ASSERT_OK(mics_corpus_read(corpus, 0, (int64_t)bytes, tokens));
    for (size_t i = 0; i < bytes; i++)
        assert_int_equal(tokens[i], (unsigned char)want[i]);
    free(tokens);
    mics_corpus_close(corpus);
}

static void expect_error(const char *name, mics_status status, const char *said)
{
    mics_corpus *corpus = NULL;
    ASSERT_STATUS(status, open_field(name, NULL, &corpus));
    ASSERT_SAID(&seen, said);
    assert_null(corpus);
}

static void write_file(const char *name, const void *data, size_t bytes)
{
    files_write(files_path(name), data, bytes);
}

#define WRITE_TEXT(name, text) write_file(name, text, sizeof(text) - 1)
#define EXPECT_TEXT(name, field, text) expect_corpus(name, field, text, sizeof(text) - 1)

static void write_gzip(const char *name, const char *mode, const void *data, size_t bytes)
{
    gzFile file = gzopen(files_path(name), mode); // "a": one more member
    assert_non_null(file);
    assert_int_equal(gzwrite(file, data, (unsigned)bytes), bytes);
    assert_int_equal(gzclose(file), Z_OK);
}

static void *pack_zstd(const void *data, size_t bytes, size_t *packed_out)
{
    const size_t most = ZSTD_compressBound(bytes);
    void *packed = malloc(most);
    assert_non_null(packed);
    *packed_out = ZSTD_compress(packed, most, data, bytes, 3);
    assert_false(ZSTD_isError(*packed_out));
    return packed;
}

// ---- JSON Lines ----

static void test_lines(void **state)
{
    (void)state;
    WRITE_TEXT("a.jsonl", "{\"text\": \"one\", \"id\": 1}\n"
                          "\n \t\r\n"
                          "{\"id\": 2, \"text\": \"two \\u00e9\\n\"}\r\n"
                          "{\"text\": \"\", \"body\": \"third\"}\n"
                          "{\"text\": \"last\"}"); // without a newline
    EXPECT_TEXT("a.jsonl", NULL, "\0one\0two \xc3\xa9\n\0last");
    EXPECT_TEXT("a.jsonl", "text", "\0one\0two \xc3\xa9\n\0last");
    WRITE_TEXT("b.ndjson", "{\"body\": \"x\", \"text\": \"y\"}\n");
    EXPECT_TEXT("b.ndjson", NULL, "\0y");
    EXPECT_TEXT("b.ndjson", "body", "\0x"); // not what the cache has of the other field
}

// What other fields hold is nobody's business here, as far as it is JSON.
static void test_strange_lines(void **state)
{
    (void)state;
    WRITE_TEXT("strange.jsonl", "\xef\xbb\xbf{\"id\": 18446744073709551615, \"text\": \"one\"}\n"
                                "{\"text\": \"a\\u0000b\", \"id\": -99999999999999999999}\n");
    EXPECT_TEXT("strange.jsonl", NULL, "\0one\0a\0b");
}

// Files without text are left out, with one warning for all.
static void test_empty(void **state)
{
    (void)state;
    const char *const patterns[] = {files_path("full.txt"), files_path("none.gz"),
                                    files_path("none.jsonl"), files_path("none.txt")};
    const mics_corpus_spec spec = {.patterns = patterns,
                                   .pattern_count = 4,
                                   .vocab = 256,
                                   .tokenizer = tokenizer,
                                   .cache_dir = cache};
    mics_corpus *corpus = NULL;
    WRITE_TEXT("full.txt", "text");
    write_gzip("none.gz", "wb", "", 0);
    WRITE_TEXT("none.jsonl", " \n{\"text\": \"\"}\n");
    WRITE_TEXT("none.txt", "");
    ASSERT_OK(mics_corpus_open(memory, &spec, &corpus));
    assert_int_equal(mics_corpus_tokens(corpus), 5);
    assert_int_equal(seen.warnings, 1);
    mics_corpus_close(corpus);
}

// A name decides what is unpacked; the same bytes under another name are refused.
static void test_names_decide(void **state)
{
    (void)state;
    write_gzip("packed.txt.gz", "wb", "text", 4);
    FILE *file = fopen(files_path("packed.txt.gz"), "rb");
    char bytes[64] = {0};
    assert_non_null(file);
    const size_t count = fread(bytes + 1, 1, sizeof bytes - 1, file);
    fclose(file);
    files_write(files_path("packed.data"), bytes + 1, count);
    expect_error("packed.data", MICS_ERR_INVALID,
                 "packed.data: is packed with gzip, and no text; let its name end in .gz");
    EXPECT_TEXT("packed.txt.gz", NULL, "\0text");
}

static void test_wrong_lines(void **state)
{
    (void)state;
    mics_corpus *corpus = NULL;
    WRITE_TEXT("other.jsonl", "{\"text\": \"a\"}\n{\"content\": \"b\"}\n");
    expect_error("other.jsonl", MICS_ERR_INVALID, "other.jsonl, line 2: has no \"text\"");
    WRITE_TEXT("broken.jsonl", "{\"text\": \"a\"}\n\n{\"text\": \"b\n");
    expect_error("broken.jsonl", MICS_ERR_FORMAT, "broken.jsonl, line 3, column ");
    WRITE_TEXT("number.jsonl", "{\"text\": 7}\n");
    expect_error("number.jsonl", MICS_ERR_INVALID, "line 1: \"text\" is no string");
    WRITE_TEXT("array.jsonl", "[\"text\"]\n");
    expect_error("array.jsonl", MICS_ERR_FORMAT, "line 1: is no JSON object");
    WRITE_TEXT("blank.jsonl", "\n{\"text\": \"\"}\n");
    expect_error("blank.jsonl", MICS_ERR_INVALID, "no tokens in");
    WRITE_TEXT("good.jsonl", "{\"text\": \"a\"}\n");
    ASSERT_STATUS(MICS_ERR_INVALID, open_field("good.jsonl", "body", &corpus));
    ASSERT_SAID(&seen, "has no \"body\"");
}

// Lines longer than the window, and many short ones: what comes out is what went in.
static void test_long_lines(void **state)
{
    (void)state;
    static const size_t lengths[] = {1, 3 << 20, 100, (1 << 20) - 12, 1 << 20, 7};
    enum { LONG = 6, SHORT = 40000 };
    const size_t most = 8 << 20;
    char *file = malloc(most), *want = malloc(most);
    size_t bytes = 0, count = 0;
    assert_non_null(file);
    assert_non_null(want);
    for (size_t line = 0; line < LONG + SHORT; line++) {
        const size_t length = line < LONG ? lengths[line] : 1 + mics_rng_bits(1, 0, line) % 20;
        bytes += (size_t)sprintf(file + bytes, "{\"text\": \"");
        want[count++] = '\0';
        for (size_t i = 0; i < length; i++)
            file[bytes++] = want[count++] = (char)('a' + (line + i) % 26);
        bytes += (size_t)sprintf(file + bytes, "\"}\n");
    }
    write_file("long.jsonl", file, bytes);
    expect_corpus("long.jsonl", NULL, want, count);
    free(file);
    free(want);
}

// ---- packed files ----

static void file_append(const char *name, const void *data, size_t bytes)
{
    FILE *file = fopen(files_path(name), "ab");
    assert_non_null(file);
    assert_int_equal(fwrite(data, 1, bytes, file), bytes);
    assert_int_equal(fclose(file), 0);
}

static void write_zstd(const char *name, const void *data, size_t bytes)
{
    size_t packed_bytes = 0;
    void *packed = pack_zstd(data, bytes, &packed_bytes);
    write_file(name, packed, packed_bytes);
    free(packed);
}

// Bytes that are used at most for a line of `LONG` bytes and so many short ones behind it.
static size_t peak_of_long_line(const char *name, int32_t count)
{
    enum { LONG = 6 << 20 };
    const char *path = files_path(name);
    const mics_corpus_spec spec = {.patterns = &path,
                                   .pattern_count = 1,
                                   .vocab = 256,
                                   .tokenizer = tokenizer,
                                   .cache_dir = cache,
                                   .threads = 4};
    mics_memory *counted = NULL;
    mics_corpus *corpus = NULL;
    mics_memory_stats stats;
    char *file = malloc(LONG + 32 + 1100 * (size_t)count);
    assert_non_null(file);
    size_t bytes = (size_t)sprintf(file, "{\"text\": \"%0*d\"}\n", LONG, 7);
    for (int32_t line = 0; line < count; line++)
        bytes += (size_t)sprintf(file + bytes, "{\"text\": \"%01000d\"}\n", line);
    write_file(name, file, bytes);
    free(file);
    ASSERT_OK(mics_memory_open(&counted));
    ASSERT_OK(mics_corpus_open(counted, &spec, &corpus));
    assert_int_equal(mics_corpus_tokens(corpus), LONG + 1 + 1001 * (int64_t)count);
    mics_memory_stats_get(counted, &stats);
    mics_corpus_close(corpus);
    assert_int_equal(mics_memory_close(counted), 0);
    return stats.peak[MICS_MEM_HOST];
}

// Of nine batches that are in work each takes what its lines do.
static void test_memory_behind_a_long_line(void **state)
{
    (void)state;
    enum { SHORT = 30000, BATCHES = 9, OF_BATCH = 11 << 20 };
    const size_t alone = peak_of_long_line("alone.jsonl", 0);
    const size_t first = peak_of_long_line("first.jsonl", SHORT);
    assert_true(alone > 0);
    assert_in_range(first, 1, alone + BATCHES * OF_BATCH);
}

static void test_packed(void **state)
{
    (void)state;
    static const char lines[] = "{\"text\": \"one\"}\n{\"text\": \"two\"}\n";
    write_gzip("a.txt.gz", "wb", "some ", 5);
    write_gzip("a.txt.gz", "ab", "text", 4);
    EXPECT_TEXT("a.txt.gz", NULL, "\0some text");
    write_zstd("a.txt.zst", "some text", 9);
    EXPECT_TEXT("a.txt.zst", NULL, "\0some text");
    write_gzip("a.jsonl.gz", "wb", lines, sizeof lines - 1);
    EXPECT_TEXT("a.jsonl.gz", NULL, "\0one\0two");
    write_zstd("a.jsonl.zst", lines, sizeof lines - 1);
    EXPECT_TEXT("a.jsonl.zst", NULL, "\0one\0two");
    file_append("a.txt.gz", "\0\0\0\0", 4); // padded, as on tapes
    EXPECT_TEXT("a.txt.gz", NULL, "\0some text");
    write_zstd("frames.zst", "some ", 5);
    size_t packed_bytes = 0;
    void *packed = pack_zstd("text", 4, &packed_bytes);
    file_append("frames.zst", packed, packed_bytes);
    free(packed);
    EXPECT_TEXT("frames.zst", NULL, "\0some text");
}

// More than any buffer, packed well and packed badly.
static void test_large_packed(void **state)
{
    (void)state;
    const size_t bytes = 5 << 20;
    char *text = malloc(bytes + 1);
    assert_non_null(text);
    text[0] = '\0';
    for (size_t i = 0; i < bytes; i++)
        text[1 + i] = i < bytes / 2 ? 'x' : (char)mics_rng_bits(5, 0, i);
    write_gzip("large.gz", "wb", text + 1, bytes);
    expect_corpus("large.gz", NULL, text, bytes + 1);
    write_zstd("large.zst", text + 1, bytes);
    expect_corpus("large.zst", NULL, text, bytes + 1);
    free(text);
}

static void test_damaged(void **state)
{
    (void)state;
    static const char text[] = "a text that is long enough to be cut, and cut again";
    size_t bytes = 0;
    unsigned char *packed = pack_zstd(text, sizeof text, &bytes);
    write_file("cut.zst", packed, bytes - 5);
    expect_error("cut.zst", MICS_ERR_FORMAT, "cut.zst: is cut short");
    packed[1] ^= 1;
    write_file("wrong.zst", packed, bytes);
    expect_error("wrong.zst", MICS_ERR_FORMAT, "wrong.zst: damaged near offset");
    free(packed);
    write_gzip("good.gz", "wb", text, sizeof text);
    FILE *file = fopen(files_path("good.gz"), "rb");
    unsigned char data[256];
    bytes = fread(data, 1, sizeof data, file);
    fclose(file);
    write_file("cut.gz", data, bytes - 9);
    expect_error("cut.gz", MICS_ERR_FORMAT, "cut.gz: is cut short");
    data[bytes - 6] ^= 1; // its checksum
    write_file("flip.gz", data, bytes);
    expect_error("flip.gz", MICS_ERR_FORMAT, "flip.gz: damaged near offset");
    WRITE_TEXT("text.gz", "this is text");
    expect_error("text.gz", MICS_ERR_FORMAT, "text.gz: damaged near offset");
}

// A frame's first bytes ask for a window of 2 GiB, which so short a file cannot need.
static void test_window_of_a_short_file(void **state)
{
    static const unsigned char frame[] = {0x28, 0xb5, 0x2f, 0xfd, 0x00, 0xa8, 0x01, 0x00, 0x00};
    (void)state;
    write_file("window.zst", frame, sizeof frame);
    expect_error("window.zst", MICS_ERR_FORMAT,
                 "window.zst: damaged near offset 0: Frame requires too much memory");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_lines, setup_bytes, teardown_bytes),
        cmocka_unit_test_setup_teardown(test_strange_lines, setup_bytes, teardown_bytes),
        cmocka_unit_test_setup_teardown(test_empty, setup_bytes, teardown_bytes),
        cmocka_unit_test_setup_teardown(test_names_decide, setup_bytes, teardown_bytes),
        cmocka_unit_test_setup_teardown(test_wrong_lines, setup_bytes, teardown_bytes),
        cmocka_unit_test_setup_teardown(test_long_lines, setup_bytes, teardown_bytes),
        cmocka_unit_test_setup_teardown(test_memory_behind_a_long_line, setup_bytes,
                                        teardown_bytes),
        cmocka_unit_test_setup_teardown(test_packed, setup_bytes, teardown_bytes),
        cmocka_unit_test_setup_teardown(test_large_packed, setup_bytes, teardown_bytes),
        cmocka_unit_test_setup_teardown(test_damaged, setup_bytes, teardown_bytes),
        cmocka_unit_test_setup_teardown(test_window_of_a_short_file, setup_bytes, teardown_bytes),
    };
    if (files_open() != 0)
        return 1;
    int failures = cmocka_run_group_tests(tests, NULL, NULL);
    files_close();
    return failures;
}
