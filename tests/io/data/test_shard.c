// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Token shards and corpora: what is written is read, in both widths and over several files; every
// way a shard can be wrong is one clear error.
#include "base/rng.h"
#include "base/watched.h"
#include "io/data/data.h"
#include "io/data/scratch.h"
#include "io/data/shard.h"
#include <fcntl.h>
#include <stdbool.h>
#include <sys/stat.h>
#include <time.h>

static mics_status open_one(const char *path, int32_t vocab, mics_corpus **corpus_out)
{
    const mics_corpus_spec spec = {.patterns = &path, .pattern_count = 1, .vocab = vocab};
    return mics_corpus_open(memory, &spec, corpus_out);
}

static int32_t token_at(int64_t index, int32_t vocab)
{
    return (int32_t)(mics_rng_bits(11, 0, (uint64_t)index) % (uint64_t)vocab);
}

static void write_random(const char *path, int64_t begin, int64_t count, int32_t vocab)
{
    int32_t *tokens = calloc((size_t)count, sizeof *tokens);
    assert_non_null(tokens);
    for (int64_t i = 0; i < count; i++)
        tokens[i] = token_at(begin + i, vocab);
    ASSERT_OK(mics_shard_write(path, tokens, count, vocab));
    free(tokens);
}

static void check_stream(const mics_corpus *corpus, int64_t count, int32_t vocab)
{
    assert_int_equal(mics_corpus_tokens(corpus), count);
    int32_t tokens[700];
    for (int64_t begin = 0; begin < count; begin += 613) {
        int64_t take = count - begin < 700 ? count - begin : 700;
        ASSERT_OK(mics_corpus_read(corpus, begin, take, tokens));
        for (int64_t i = 0; i < take; i++)
            assert_int_equal(tokens[i], token_at(begin + i, vocab));
    }
}

static void test_round_trip(void **state)
{
    (void)state;
    static const int64_t counts[] = {1, 2, 1000, 40000};
    static const int32_t vocabs[] = {1, 256, 65536, 65537, 200000};
    for (int v = 0; v < 5; v++) {
        for (int c = 0; c < 4; c++) {
            const char *path = files_path("a.bin");
            write_random(path, 0, counts[c], vocabs[v]);
            size_t bytes = 0;
            char *file = files_read(path, &bytes);
            int32_t head[4];
            memcpy(head, file, sizeof head);
            bool wide = vocabs[v] > 65536;
            assert_int_equal(head[0], wide ? 20240801 : 20240520);
            assert_int_equal(head[1], wide ? 7 : 1);
            assert_int_equal(head[2], counts[c]);
            assert_int_equal(bytes, 1024 + counts[c] * (wide ? 4 : 2));
            free(file);
            mics_corpus *corpus = NULL;
            ASSERT_OK(open_one(path, vocabs[v], &corpus));
            check_stream(corpus, counts[c], vocabs[v]);
            mics_corpus_close(corpus);
        }
    }
}

static void test_several_files(void **state)
{
    (void)state;
    const int32_t vocab = 60000;
    mics_corpus *whole = NULL, *parts = NULL, *other = NULL;
    write_random(files_path("whole.bin"), 0, 5000, vocab);
    write_random(files_path("p2.bin"), 1, 2000, vocab);
    write_random(files_path("p10.bin"), 0, 1, vocab);
    int32_t tail[2999];
    for (int64_t i = 0; i < 2999; i++)
        tail[i] = token_at(2001 + i, vocab);
    ASSERT_OK(mics_shard_write(files_path("q.bin"), tail, 2999, 70000)); // as uint32
    char glob[300];
    snprintf(glob, sizeof glob, "%s/p*.bin", files_folder); // p10 sorts before p2
    const char *const patterns[] = {glob, files_path("q.bin")};
    const mics_corpus_spec spec = {.patterns = patterns, .pattern_count = 2, .vocab = vocab};
    ASSERT_OK(mics_corpus_open(memory, &spec, &parts));
    ASSERT_OK(open_one(files_path("whole.bin"), vocab, &whole));
    check_stream(parts, 5000, vocab);
    assert_true(mics_corpus_hash(parts) == mics_corpus_hash(whole));
    ASSERT_OK(open_one(files_path("q.bin"), vocab, &other));
    assert_true(mics_corpus_hash(other) != mics_corpus_hash(whole));
    mics_corpus_close(whole);
    mics_corpus_close(parts);
    mics_corpus_close(other);
}

static void test_write_refuses(void **state)
{
    (void)state;
    const int32_t high[] = {1, 300}, low[] = {-1};
    const char *path = files_path("refused.bin");
    ASSERT_STATUS(MICS_ERR_INVALID, mics_shard_write(path, high, 2, 300));
    ASSERT_SAID(&seen, "token 300 at index 1 is not in [0, 300)");
    ASSERT_STATUS(MICS_ERR_INVALID, mics_shard_write(path, low, 1, 300));
    ASSERT_SAID(&seen, "token -1 at index 0");
    ASSERT_STATUS(MICS_ERR_INVALID, mics_shard_write(path, high, 0, 300));
    ASSERT_SAID(&seen, "at least one token");
    assert_int_not_equal(access(path, F_OK), 0);
    ASSERT_STATUS(MICS_ERR_IO, mics_shard_write("/nowhere/x.bin", high, 1, 300));
    ASSERT_SAID(&seen, "/nowhere/x.bin");
    char left[300];
    snprintf(left, sizeof left, "%s/*.partial", files_folder);
    mics_corpus *corpus = NULL;
    ASSERT_STATUS(MICS_ERR_IO, open_one(left, 300, &corpus));
    ASSERT_SAID(&seen, "no file matches");
}

// ---- bad shards ----

static void expect(const void *file, size_t bytes, mics_status status, const char *said)
{
    mics_corpus *corpus = NULL;
    files_write(files_path("bad.bin"), file, bytes);
    ASSERT_STATUS(status, open_one(files_path("bad.bin"), 256, &corpus));
    ASSERT_SAID(&seen, said);
    assert_null(corpus);
}

static void test_bad_headers(void **state)
{
    (void)state;
    write_random(files_path("good.bin"), 0, 100, 256);
    size_t bytes = 0;
    char *file = files_read(files_path("good.bin"), &bytes);
    static const struct {
        int word;
        int32_t value;
        const char *said;
    } cases[] = {
        {0, 0, "magic at offset 0"},         {0, 20240801, "version at offset 4"},
        {0, -1, "magic at offset 0"},        {1, 2, "version at offset 4"},
        {1, 7, "version at offset 4"},       {2, 99, "count at offset 8"},
        {2, 101, "count at offset 8"},       {2, -1, "count at offset 8"},
        {2, 0, "count at offset 8"},         {2, INT32_MAX, "count at offset 8"},
        {3, 1, "count at offset 8"},         {3, -1, "count at offset 8"},
        {3, INT32_MAX, "count at offset 8"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int32_t kept;
        memcpy(&kept, file + 4 * cases[i].word, sizeof kept);
        memcpy(file + 4 * cases[i].word, &cases[i].value, sizeof kept);
        expect(file, bytes, MICS_ERR_FORMAT, cases[i].said);
        memcpy(file + 4 * cases[i].word, &kept, sizeof kept);
    }
    expect(file, bytes - 1, MICS_ERR_FORMAT, "count at offset 8");
    expect(file, bytes - 2, MICS_ERR_FORMAT, "count at offset 8");
    char *longer = calloc(bytes + 1, 1);
    assert_non_null(longer);
    memcpy(longer, file, bytes);
    expect(longer, bytes + 1, MICS_ERR_FORMAT, "count at offset 8");
    free(longer);
    mics_corpus *corpus = NULL;
    for (off_t cut = 1023; cut >= 0; cut--) {
        assert_int_equal(truncate(files_path("good.bin"), cut), 0);
        ASSERT_STATUS(MICS_ERR_FORMAT, open_one(files_path("good.bin"), 256, &corpus));
        ASSERT_SAID(&seen, "inside the header");
    }
    expect(file, 1024, MICS_ERR_FORMAT, "count at offset 8");
    int32_t none = 0;
    memcpy(file + 8, &none, sizeof none);
    expect(file, 1024, MICS_ERR_FORMAT, "there are no tokens");
    free(file);
}

static void test_token_out_of_range(void **state)
{
    (void)state;
    const int32_t tokens[] = {1, 2, 300, 4};
    mics_corpus *corpus = NULL;
    ASSERT_OK(mics_shard_write(files_path("high.bin"), tokens, 4, 301));
    ASSERT_STATUS(MICS_ERR_INVALID, open_one(files_path("high.bin"), 300, &corpus));
    ASSERT_SAID(&seen, "high.bin: token 300 at index 2 (offset 1028");
    ASSERT_OK(mics_shard_write(files_path("wide.bin"), tokens, 4, 70000));
    size_t bytes = 0;
    char *file = files_read(files_path("wide.bin"), &bytes);
    memset(file + 1024, 0xFF, 4); // 2^32 - 1
    expect(file, bytes, MICS_ERR_INVALID, "token 4294967295 at index 0 (offset 1024");
    free(file);
}

// ---- shards that change while they are read ----

enum { CHANGED_TOKENS = 300 };

static mics_corpus *open_changing(void)
{
    mics_corpus *corpus = NULL;
    int32_t tokens[CHANGED_TOKENS];
    write_random(files_path("changing.bin"), 0, CHANGED_TOKENS, 256);
    ASSERT_OK(open_one(files_path("changing.bin"), 256, &corpus));
    ASSERT_OK(mics_corpus_read(corpus, 0, CHANGED_TOKENS, tokens));
    return corpus;
}

static void expect_changed(mics_corpus *corpus, int64_t begin, int64_t count, const char *said)
{
    int32_t tokens[CHANGED_TOKENS];
    ASSERT_STATUS(MICS_ERR_IO, mics_corpus_read(corpus, begin, count, tokens));
    ASSERT_SAID(&seen, said);
    mics_corpus_close(corpus);
}

static void put_at(const char *path, long offset, const void *data, size_t bytes)
{
    FILE *file = fopen(path, "r+b");
    assert_non_null(file);
    assert_int_equal(fseek(file, offset, SEEK_SET), 0);
    assert_int_equal(fwrite(data, 1, bytes, file), bytes);
    assert_int_equal(fclose(file), 0);
}

// Files have times as fine as the system's clock ticks.
static void let_clock_tick(void)
{
    nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
}

static void test_cut_under_a_reader(void **state)
{
    (void)state;
    mics_corpus *corpus = open_changing();
    assert_int_equal(truncate(files_path("changing.bin"), 1024 + 2 * 100), 0);
    expect_changed(corpus, 50, 200,
                   "changing.bin: was changed after it was opened: it had 1624 bytes and has 1224");
    corpus = open_changing();
    assert_int_equal(truncate(files_path("changing.bin"), 1024 + 2 * 100), 0);
    expect_changed(
        corpus, 0, 10,
        "changing.bin: was changed after it was opened: it had 1624 bytes and has 1224"); // which are there still
    corpus = open_changing();
    assert_int_equal(truncate(files_path("changing.bin"), 5000), 0);
    expect_changed(corpus, 0, 10, "and has 5000");
}

static void test_written_under_a_reader(void **state)
{
    (void)state;
    struct stat before;
    const unsigned char token[2] = {0, 0}, foreign[2] = {0xff, 0xff};
    mics_corpus *corpus = open_changing();
    let_clock_tick();
    put_at(files_path("changing.bin"), 1024, token, sizeof token);
    expect_changed(corpus, 200, 10, "other tokens, written later");
    // The time put back, as some copying programs do.
    corpus = open_changing();
    assert_int_equal(stat(files_path("changing.bin"), &before), 0);
    put_at(files_path("changing.bin"), 1024 + 2 * 7, foreign, sizeof foreign);
    const struct timespec times[2] = {before.st_atim, before.st_mtim};
    assert_int_equal(utimensat(AT_FDCWD, files_path("changing.bin"), times, 0), 0);
    expect_changed(corpus, 0, 7, "changing.bin: was changed after it was opened: it has other");
    // Replaced by rename it stays what it was for who has it open.
    corpus = open_changing();
    write_random(files_path("changing.bin"), 9, CHANGED_TOKENS, 256);
    check_stream(corpus, CHANGED_TOKENS, 256);
    mics_corpus_close(corpus);
}

// Other times and the same tokens: by touch, by chmod, by a program that writes what is there.
static void test_touched_under_a_reader(void **state)
{
    (void)state;
    unsigned char token[2];
    mics_corpus *corpus = open_changing();
    for (int turn = 0; turn < 3; turn++) {
        let_clock_tick();
        if (turn == 0) {
            assert_int_equal(utimensat(AT_FDCWD, files_path("changing.bin"), NULL, 0), 0);
        } else if (turn == 1) {
            assert_int_equal(chmod(files_path("changing.bin"), 0600), 0);
        } else {
            FILE *file = fopen(files_path("changing.bin"), "rb");
            assert_int_equal(fseek(file, 1024, SEEK_SET), 0);
            assert_int_equal(fread(token, 1, sizeof token, file), sizeof token);
            assert_int_equal(fclose(file), 0);
            put_at(files_path("changing.bin"), 1024, token, sizeof token);
        }
        check_stream(corpus, CHANGED_TOKENS, 256);
    }
    mics_corpus_close(corpus);
}

// More shards than a process should keep open; each is read, and a replaced one noticed.
static void test_many_files(void **state)
{
    (void)state;
    enum { FILES = 140, EACH = 5 };
    mics_corpus *corpus = NULL;
    char pattern[300], name[32];
    int32_t tokens[3 * EACH];
    for (int i = 0; i < FILES; i++) {
        snprintf(name, sizeof name, "many-%03d.bin", i);
        write_random(files_path(name), (int64_t)i * EACH, EACH, 256);
    }
    snprintf(pattern, sizeof pattern, "%s/many-*.bin", files_folder);
    ASSERT_OK(open_one(pattern, 256, &corpus));
    check_stream(corpus, (int64_t)FILES * EACH, 256);
    let_clock_tick();
    write_random(files_path("many-135.bin"), 0, EACH, 256);
    ASSERT_OK(mics_corpus_read(corpus, 133 * EACH, 2 * EACH, tokens));
    ASSERT_STATUS(MICS_ERR_IO, mics_corpus_read(corpus, 134 * EACH, 2 * EACH, tokens));
    ASSERT_SAID(&seen, "many-135.bin: was changed after it was opened");
    mics_corpus_close(corpus);
}

// One bit of a shard of ours; one of llm.c's says nothing of its tokens.
static void test_checksum(void **state)
{
    (void)state;
    size_t bytes = 0;
    mics_corpus *corpus = NULL;
    write_random(files_path("sum.bin"), 0, 5000, 256);
    char *file = files_read(files_path("sum.bin"), &bytes);
    for (size_t at = 1024; at < bytes; at += 1234) {
        file[at & ~(size_t)1] ^= 2; // low bytes: still a token
        expect(file, bytes, MICS_ERR_FORMAT, "bad.bin: its tokens differ from the checksum");
        file[at & ~(size_t)1] ^= 2;
    }
    file[20] ^= 1;
    expect(file, bytes, MICS_ERR_FORMAT, "checksum at offset 16");
    memset(file + 16, 0, 12);
    file[1024] ^= 2;
    files_write(files_path("bad.bin"), file, bytes);
    ASSERT_OK(open_one(files_path("bad.bin"), 256, &corpus));
    mics_corpus_close(corpus);
    free(file);
}

static void test_no_file(void **state)
{
    (void)state;
    mics_corpus *corpus = NULL;
    ASSERT_STATUS(MICS_ERR_IO, open_one("/nowhere/*.bin", 10, &corpus));
    ASSERT_SAID(&seen, "/nowhere/*.bin");
    ASSERT_STATUS(MICS_ERR_IO, open_one("/nowhere/x.bin", 10, &corpus));
    ASSERT_SAID(&seen, "/nowhere/x.bin");
    assert_int_equal(mkdir(files_path("folder.bin"), 0700), 0);
    ASSERT_STATUS(MICS_ERR_INVALID, open_one(files_path("folder.bin"), 10, &corpus));
    ASSERT_SAID(&seen, "this folder has no file");
    assert_int_equal(mkfifo(files_path("fifo.bin"), 0600), 0);
    ASSERT_STATUS(MICS_ERR_IO, open_one(files_path("fifo.bin"), 10, &corpus));
    ASSERT_SAID(&seen, "not a regular file");
    ASSERT_STATUS(MICS_ERR_INVALID,
                  mics_corpus_open(memory, &(mics_corpus_spec){.vocab = 10}, &corpus));
    ASSERT_SAID(&seen, "no tokens");
    files_write(files_path("a.txt"), "x", 1);
    ASSERT_STATUS(MICS_ERR_INVALID, open_one(files_path("a.txt"), 10, &corpus));
    ASSERT_SAID(&seen, "needs a tokenizer");
    assert_null(corpus);
}

static void test_random_shards(void **state)
{
    (void)state;
    write_random(files_path("good.bin"), 0, 300, 256);
    size_t whole = 0;
    char *good = files_read(files_path("good.bin"), &whole), *file = malloc(whole);
    assert_non_null(file);
    for (uint64_t round = 0; round < 300; round++) {
        memcpy(file, good, whole);
        size_t bytes = round % 3 == 0 ? mics_rng_bits(4, round, 0) % whole : whole;
        for (uint64_t i = 1; i <= round % 4; i++) {
            uint64_t span = i % 2 == 0 ? whole : 16;
            file[mics_rng_bits(4, round, 2 * i) % span] = (char)mics_rng_bits(4, round, 2 * i + 1);
        }
        files_write(files_path("random.bin"), file, bytes);
        mics_corpus *corpus = NULL;
        seen.errors = 0;
        mics_status status = open_one(files_path("random.bin"), 256, &corpus);
        assert_int_equal(seen.errors, status == MICS_OK ? 0 : 1);
        mics_corpus_close(corpus);
    }
    free(file);
    free(good);
}

static void test_allocation_failures(void **state)
{
    (void)state;
    write_random(files_path("good.bin"), 0, 300, 256);
    for (int64_t n = 1;; n++) {
        mics_corpus *corpus = NULL;
        mics_memory_fail_after(memory, n);
        mics_status status = open_one(files_path("good.bin"), 256, &corpus);
        mics_memory_fail_after(memory, 0);
        mics_corpus_close(corpus);
        if (status == MICS_OK) {
            assert_true(n > 2);
            return;
        }
        assert_int_equal(status, MICS_ERR_MEMORY);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_round_trip, setup, teardown),
        cmocka_unit_test_setup_teardown(test_several_files, setup, teardown),
        cmocka_unit_test_setup_teardown(test_write_refuses, setup, teardown),
        cmocka_unit_test_setup_teardown(test_bad_headers, setup, teardown),
        cmocka_unit_test_setup_teardown(test_token_out_of_range, setup, teardown),
        cmocka_unit_test_setup_teardown(test_cut_under_a_reader, setup, teardown),
        cmocka_unit_test_setup_teardown(test_written_under_a_reader, setup, teardown),
        cmocka_unit_test_setup_teardown(test_touched_under_a_reader, setup, teardown),
        cmocka_unit_test_setup_teardown(test_many_files, setup, teardown),
        cmocka_unit_test_setup_teardown(test_checksum, setup, teardown),
        cmocka_unit_test_setup_teardown(test_no_file, setup, teardown),
        cmocka_unit_test_setup_teardown(test_random_shards, setup, teardown),
        cmocka_unit_test_setup_teardown(test_allocation_failures, setup, teardown),
    };
    if (files_open() != 0)
        return 1;
    int failures = cmocka_run_group_tests(tests, NULL, NULL);
    files_close();
    return failures;
}
