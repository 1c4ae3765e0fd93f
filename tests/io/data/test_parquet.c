// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Parquet files of pyarrow's (tools/make_parquet_golden.py) and what is left of them after damage.
#include "io/data/cached.h"
#include "io/data/data.h"
#include "io/data/parquet/parquet.h"
#include <dirent.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <zlib.h>

enum { MAX_BYTES = 16 << 20 }; // of a file's rows, and of its pages

typedef struct rows {
    char *text;
    size_t bytes;
} rows;

// Reads `step` bytes at a time until the end, or more than MAX_BYTES. What was read is freed by the
// caller, and there after an error, too.
static mics_status read_all(mics_parquet *parquet, size_t step, rows *out)
{
    mics_status status = MICS_OK;
    size_t got = step;
    *out = (rows){0};
    while (status == MICS_OK && got == step && out->bytes < MAX_BYTES) {
        out->text = realloc(out->text, out->bytes + step);
        status = mics_parquet_read(parquet, out->text + out->bytes, step, &got);
        out->bytes += status == MICS_OK ? got : 0;
    }
    return status;
}

static mics_status read_file(int file, size_t bytes, const char *const *columns, size_t step,
                             rows *out)
{
    const mics_parquet_source source = {.path = "x.parquet",
                                        .file = file,
                                        .bytes = (int64_t)bytes,
                                        .columns = columns,
                                        .max_bytes = MAX_BYTES};
    mics_parquet *parquet = NULL;
    *out = (rows){0};
    mics_status status = mics_parquet_open(memory, &source, &parquet);
    if (status == MICS_OK)
        status = read_all(parquet, step, out);
    mics_parquet_close(parquet);
    return status;
}

static const char *golden(const char *name)
{
    static char paths[2][512];
    static int turn;
    snprintf(paths[turn ^= 1], sizeof paths[0], "%s/parquet/%s", MICS_TEST_DATA, name);
    return paths[turn];
}

static int open_golden(const char *name, size_t *bytes_out)
{
    const int file = open(golden(name), O_RDONLY);
    assert_true(file >= 0);
    *bytes_out = (size_t)lseek(file, 0, SEEK_END);
    return file;
}

static mics_status read_golden(const char *name, const char *const *columns, size_t step, rows *out)
{
    size_t bytes = 0;
    const int file = open_golden(name, &bytes);
    const mics_status status = read_file(file, bytes, columns, step, out);
    close(file);
    return status;
}

// Calls `visit` with each golden file, and returns how many there are.
static int each(bool refused, void (*visit)(const char *name))
{
    int count = 0;
    DIR *entries = opendir(golden(""));
    assert_non_null(entries);
    for (const struct dirent *entry; (entry = readdir(entries)) != NULL;) {
        const char *end = strstr(entry->d_name, ".parquet");
        if (end == NULL || (strncmp(entry->d_name, "refused", 7) == 0) != refused)
            continue;
        visit(entry->d_name);
        count++;
    }
    closedir(entries);
    return count;
}

// ---- rows ----

static void expect_golden(const char *name)
{
    static const size_t steps[] = {1 << 20, 1000, 7};
    char lines[64];
    rows got;
    size_t bytes = 0;
    snprintf(lines, sizeof lines, "%.*s.jsonl", (int)strcspn(name, "-."), name);
    char *want = files_read(golden(lines), &bytes);
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
        ASSERT_OK(read_golden(name, NULL, steps[i], &got));
        if (got.bytes != bytes || (bytes > 0 && memcmp(got.text, want, bytes) != 0))
            fail_msg("%s: %zu bytes are not the %zu of %s", name, got.bytes, bytes, lines);
        free(got.text);
    }
    free(want);
}

static void test_golden(void **state)
{
    (void)state;
    assert_int_equal(each(false, expect_golden), 21);
    assert_int_equal(seen.errors, 0);
}

static void test_columns(void **state)
{
    (void)state;
    const char *const columns[] = {"u", "other", "tags", NULL};
    size_t bytes = 0;
    const int file = open_golden("mixed-zstd-v2-dictionary.parquet", &bytes);
    const mics_parquet_source source = {
        .path = "x.parquet", .file = file, .bytes = (int64_t)bytes, .columns = columns};
    mics_parquet *parquet = NULL;
    rows first, again;
    ASSERT_OK(mics_parquet_open(memory, &source, &parquet));
    ASSERT_OK(read_all(parquet, 4096, &first));
    assert_int_equal(strncmp(first.text, "{\"u\":", 5), 0);
    assert_non_null(memmem(first.text, first.bytes, ",\"tags\":[", 9));
    assert_null(memmem(first.text, first.bytes, "messages", 8));
    mics_parquet_rewind(parquet);
    ASSERT_OK(read_all(parquet, 100, &again));
    assert_int_equal(first.bytes, again.bytes);
    assert_memory_equal(first.text, again.text, first.bytes);
    free(first.text);
    free(again.text);
    mics_parquet_close(parquet);
    close(file);
}

// ---- what is not read ----

static void expect_refused(const char *name)
{
    static const char *const said[][2] = {
        {"binary", "column \"x\" is binary data, and not marked as strings, which is not read"},
        {"brotli", "is compressed with BROTLI; write it again with compression \"zstd\""},
        {"date", "column \"x\" is a DATE, which is not read; write it again as strings"},
        {"decimal", "column \"x\" is a DECIMAL"},
        {"delta", "column \"x\", row group 1: has encoding DELTA_BYTE_ARRAY"},
        {"fixed", "column \"x\" is binary data of a fixed length"},
        {"half", "column \"x\" is a FLOAT16"},
        {"int96", "column \"x\" is an INT96"},
        {"lz4", "is compressed with LZ4_RAW"},
        {"long", "column \"x.list.element\", row group 1: row 1 has more than 16 MiB of text"},
        {"map", "column \"x\" is a MAP of another shape"},
        {"nested", "column \"x.list.element.at\" is a TIMESTAMP"},
        {"timestamp", "column \"x\" is a TIMESTAMP"}};
    static const char *const text[] = {"text", NULL};
    const char *kind = strchr(name, '-') + 1;
    const bool packed = strstr(name, "brotli") != NULL || strstr(name, "lz4") != NULL;
    rows got;
    size_t at = 0;
    while (strncmp(said[at][0], kind, strcspn(kind, ".")) != 0)
        at++;
    ASSERT_STATUS(MICS_ERR_UNSUPPORTED, read_golden(name, NULL, 4096, &got));
    ASSERT_SAID(&seen, said[at][1]);
    assert_non_null(strstr(seen.line, "x.parquet: column \""));
    free(got.text);
    if (packed)
        return;
    ASSERT_OK(read_golden(name, text, 4096, &got)); // what nobody asks for may be anything
    assert_int_equal(got.bytes, strlen("{\"text\":\"text\"}\n"));
    assert_memory_equal(got.text, "{\"text\":\"text\"}\n", got.bytes);
    free(got.text);
}

static void test_refused(void **state)
{
    (void)state;
    static const char *const none[] = {"body", NULL};
    rows got;
    assert_int_equal(each(true, expect_refused), 13);
    ASSERT_STATUS(MICS_ERR_INVALID, read_golden("text.parquet", none, 4096, &got));
    ASSERT_SAID(&seen,
                "x.parquet: has no column \"body\"; it has \"id\" (integer), \"text\" (string); "
                "name the column that holds the text");
    ASSERT_STATUS(MICS_ERR_INVALID,
                  read_golden("mixed-zstd-v2-dictionary.parquet", none, 4096, &got));
    ASSERT_SAID(&seen, "\"real\" (number), \"single\" (number), \"flag\" (bool), \"tags\" (list), "
                       "\"messages\" (list), \"deep\" (list), \"place\" (struct), \"map\" (map)");
}

// ---- damage ----

// A copy of a golden file that tests change.
typedef struct copy {
    char *data;
    size_t bytes;
    int file;
} copy;

static copy copy_of(const char *name)
{
    copy made = {.file = memfd_create("parquet", MFD_CLOEXEC)};
    made.data = files_read(golden(name), &made.bytes);
    assert_true(made.file >= 0);
    assert_int_equal(pwrite(made.file, made.data, made.bytes, 0), made.bytes);
    return made;
}

static void drop(copy *of)
{
    close(of->file);
    free(of->data);
}

// Rows, or one error line.
static void expect_outcome(const copy *of, size_t bytes)
{
    rows got;
    seen.errors = 0;
    const mics_status status = read_file(of->file, bytes, NULL, 1 << 16, &got);
    assert_int_equal(seen.errors, status != MICS_OK);
    free(got.text);
}

static void truncate_golden(const char *name)
{
    copy of = copy_of(name);
    for (size_t bytes = 0; bytes < of.bytes; bytes++) {
        rows got;
        seen.errors = 0;
        assert_true(read_file(of.file, bytes, NULL, 4096, &got) != MICS_OK);
        assert_int_equal(seen.errors, 1);
    }
    drop(&of);
}

// Without bytes of the middle, but with the footer.
static void shorten_golden(const char *name)
{
    copy of = copy_of(name);
    for (size_t cut = 1; cut + 8 < of.bytes; cut += 1 + of.bytes / 300) {
        const size_t left = of.bytes - cut;
        assert_int_equal(pwrite(of.file, of.data + cut, left, 0), left);
        assert_int_equal(pwrite(of.file, "PAR1", 4, 0), 4);
        expect_outcome(&of, left);
    }
    drop(&of);
}

static void flip_golden(const char *name)
{
    enum { FLIPS = 600 };
    copy of = copy_of(name);
    uint64_t state = of.bytes;
    for (int i = 0; i < FLIPS; i++) {
        size_t at[2];
        for (int k = 0; k < 2; k++) {
            state = state * 6364136223846793005u + 1442695040888963407u;
            // Every second one in the footer.
            const size_t space = i % 2 == 0 || of.bytes < 4000 ? of.bytes : 4000;
            at[k] = of.bytes - 1 - (size_t)(state >> 33) % space;
            const char other = (char)(of.data[at[k]] ^ (char)(1 + (state >> 20) % 255));
            assert_int_equal(pwrite(of.file, &other, 1, (off_t)at[k]), 1);
        }
        expect_outcome(&of, of.bytes);
        for (int k = 0; k < 2; k++)
            assert_int_equal(pwrite(of.file, of.data + at[k], 1, (off_t)at[k]), 1);
    }
    expect_outcome(&of, of.bytes);
    assert_int_equal(seen.errors, 0);
    drop(&of);
}

static void test_truncated(void **state)
{
    (void)state;
    (void)each(false, truncate_golden);
    (void)each(false, shorten_golden);
}

static void test_flipped(void **state)
{
    (void)state;
    (void)each(false, flip_golden);
}

// Pages without a checksum would give other texts in silence.
static void test_checksum(void **state)
{
    (void)state;
    copy of = copy_of("mixed-none-v1-plain.parquet");
    char *text = memmem(of.data, of.bytes, "plain words", 11);
    assert_non_null(text);
    assert_int_equal(pwrite(of.file, "P", 1, text - of.data), 1);
    rows got;
    ASSERT_STATUS(MICS_ERR_FORMAT, read_file(of.file, of.bytes, NULL, 4096, &got));
    ASSERT_SAID(&seen, "has another checksum");
    free(got.text);
    drop(&of);
}

static void test_limit(void **state)
{
    (void)state;
    copy of = copy_of("mixed-none-v1-dictionary.parquet");
    mics_parquet_source source = {
        .path = "x.parquet", .file = of.file, .bytes = (int64_t)of.bytes, .max_bytes = 14000};
    mics_parquet *parquet = NULL;
    rows got;
    ASSERT_OK(mics_parquet_open(memory, &source, &parquet)); // all pages have more
    ASSERT_OK(read_all(parquet, 4096, &got));
    free(got.text);
    mics_parquet_close(parquet);
    source.max_bytes = 3000;
    ASSERT_OK(mics_parquet_open(memory, &source, &parquet));
    ASSERT_STATUS(MICS_ERR_UNSUPPORTED, read_all(parquet, 4096, &got));
    ASSERT_SAID(&seen, "write it again with smaller pages");
    free(got.text);
    mics_parquet_close(parquet);
    drop(&of);
}

static void test_rows(void **state)
{
    (void)state;
    copy of = copy_of("required.parquet");
    char *count = memmem(of.data, of.bytes, "\x16\x04\x19", 3);
    assert_non_null(count);
    assert_int_equal(pwrite(of.file, "\x06", 1, count + 1 - of.data), 1);
    rows got;
    ASSERT_STATUS(MICS_ERR_FORMAT, read_file(of.file, of.bytes, NULL, 4096, &got));
    ASSERT_SAID(&seen, "its row groups have 2 rows, but its footer says 3");
    free(got.text);
    drop(&of);
}

static void test_memory(void **state)
{
    (void)state;
    mics_status status = MICS_ERR_MEMORY;
    for (int64_t n = 1; status != MICS_OK; n++) {
        rows got;
        seen.errors = 0;
        mics_memory_fail_after(memory, n);
        status = read_golden("mixed-snappy-v1-dictionary.parquet", NULL, 4096, &got);
        mics_memory_fail_after(memory, 0);
        assert_true(status == MICS_OK || status == MICS_ERR_MEMORY);
        assert_int_equal(seen.errors, status != MICS_OK);
        free(got.text);
    }
}

// ---- as data ----

static mics_tokenizer *tokenizer;

static mics_status open_corpus(const char *path, mics_corpus **out)
{
    const mics_corpus_spec spec = {.patterns = &path,
                                   .pattern_count = 1,
                                   .vocab = mics_tokenizer_vocab(tokenizer),
                                   .tokenizer = tokenizer,
                                   .cache_dir = cache};
    return mics_corpus_open(memory, &spec, out);
}

static void expect_corpus_error(const char *path, const char *said)
{
    mics_corpus *corpus = NULL;
    assert_true(open_corpus(path, &corpus) != MICS_OK);
    ASSERT_SAID(&seen, said);
}

static int32_t *read_tokens(mics_corpus *corpus)
{
    const size_t count = (size_t)mics_corpus_tokens(corpus);
    int32_t *tokens = malloc(count * sizeof *tokens);
    ASSERT_OK(mics_corpus_read(corpus, 0, (int64_t)count, tokens));
    return tokens;
}

// A corpus of a Parquet file has the tokens of one of JSON Lines with the same rows, and their hash.
static void test_corpus(void **state)
{
    (void)state;
    mics_corpus *table = NULL, *lines = NULL;
    ASSERT_OK(mics_tokenizer_open(memory, "bytes", &tokenizer));
    ASSERT_OK(open_corpus(golden("text.parquet"), &table));
    ASSERT_OK(open_corpus(golden("text.jsonl"), &lines));
    const int64_t count = mics_corpus_tokens(lines);
    assert_true(count > 10000);
    assert_int_equal(mics_corpus_tokens(table), count);
    int32_t *some = read_tokens(table), *others = read_tokens(lines);
    assert_memory_equal(some, others, (size_t)count * sizeof *some);
    free(some);
    free(others);
    assert_true(mics_corpus_hash(table) == mics_corpus_hash(lines));
    mics_corpus_close(table);
    mics_corpus_close(lines);
    size_t bytes = 0;
    char *file = files_read(golden("text.parquet"), &bytes);
    assert_int_equal(mkdir(files_path("folder"), 0700), 0);
    files_write(files_path("folder/a.parquet"), file, bytes);
    files_write(files_path("folder/README.md"), "about it", 8);
    ASSERT_OK(open_corpus(files_path("folder"), &table));
    assert_int_equal(mics_corpus_tokens(table), count);
    mics_corpus_close(table);
    gzFile packed = gzopen(files_path("a.parquet.gz"), "wb");
    assert_true(gzwrite(packed, file, (unsigned)bytes) > 0 && gzclose(packed) == Z_OK);
    expect_corpus_error(files_path("a.parquet.gz"), "is a Parquet file in a packed one; unpack it");
    free(file);
    expect_corpus_error(golden("mixed-gzip-v1-plain.parquet"), ".parquet, row "); // a null
    assert_non_null(strstr(seen.line, "\"text\" is no string"));
    files_write(files_path("page.parquet"), "<html>not found", 15);
    expect_corpus_error(files_path("page.parquet"), "is no Parquet file: it does not begin with");
    files_write(files_path("short.parquet"), "PAR1\x15\0\0\0\0\0\0\0\0", 13);
    expect_corpus_error(files_path("short.parquet"), "is cut short: a Parquet file ends with");
    files_write(files_path("other.txt"), "PAR1\x15\0\0\0\0\0\0\0\0", 13);
    expect_corpus_error(files_path("other.txt"), "is cut short: a Parquet file ends with");
    files_write(files_path("secret.parquet"), "PARE\0\0\0\0\0\0\0\0PARE", 16);
    expect_corpus_error(files_path("secret.parquet"), "is encrypted");
    mics_tokenizer_close(tokenizer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_golden, setup, teardown),
        cmocka_unit_test_setup_teardown(test_columns, setup, teardown),
        cmocka_unit_test_setup_teardown(test_refused, setup, teardown),
        cmocka_unit_test_setup_teardown(test_truncated, setup, teardown),
        cmocka_unit_test_setup_teardown(test_flipped, setup, teardown),
        cmocka_unit_test_setup_teardown(test_checksum, setup, teardown),
        cmocka_unit_test_setup_teardown(test_limit, setup, teardown),
        cmocka_unit_test_setup_teardown(test_rows, setup, teardown),
        cmocka_unit_test_setup_teardown(test_memory, setup, teardown),
        cmocka_unit_test_setup_teardown(test_corpus, setup_cached, teardown),
    };
    if (files_open() != 0)
        return 1;
    const int failures = cmocka_run_group_tests(tests, NULL, NULL);
    files_close();
    return failures;
}
