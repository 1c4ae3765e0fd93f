// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Token shards that others made (tools/make_shards_golden.py), whole and damaged; and what folders
// and paths without endings name.
#include "base/watched.h"
#include "io/data/data.h"
#include "io/data/scratch.h"
#include <sys/stat.h>
#include <unistd.h>

static mics_status open_one(const char *path, const char *dtype, int32_t vocab,
                            mics_corpus **corpus_out)
{
    const mics_corpus_spec spec = {
        .patterns = &path, .pattern_count = 1, .vocab = vocab, .dtype = dtype};
    return mics_corpus_open(memory, &spec, corpus_out);
}

// The tokens are 10, 11 ... as often as there are files.
static void expect_tokens(const char *path, const char *dtype, int64_t files)
{
    mics_corpus *corpus = NULL;
    int32_t tokens[64];
    ASSERT_OK(open_one(path, dtype, 18, &corpus));
    assert_int_equal(mics_corpus_tokens(corpus), 8 * files);
    ASSERT_OK(mics_corpus_read(corpus, 0, 8 * files, tokens));
    for (int64_t i = 0; i < 8 * files; i++)
        assert_int_equal(tokens[i], 10 + i % 8);
    ASSERT_OK(mics_corpus_read(corpus, 3, 2, tokens));
    assert_int_equal(tokens[0], 13);
    mics_corpus_close(corpus);
}

static const char *golden(const char *name)
{
    static char path[600];
    snprintf(path, sizeof path, "%s/shards/%s", MICS_TEST_DATA, name);
    return path;
}

static void test_megatron(void **state)
{
    (void)state;
    static const char *const types[] = {"uint8", "int8", "int16", "int32", "int64", "uint16"};
    for (int t = 0; t < 6; t++) {
        char name[64];
        snprintf(name, sizeof name, "megatron-%s.bin", types[t]);
        expect_tokens(golden(name), NULL, 1);
        expect_tokens(golden(name), "uint8", 1); // the index knows better
        snprintf(name, sizeof name, "megatron-%s", types[t]);
        expect_tokens(golden(name), NULL, 1);
    }
}

static void test_bare(void **state)
{
    (void)state;
    mics_corpus *corpus = NULL;
    expect_tokens(golden("nanogpt.bin"), "uint16", 1);
    ASSERT_STATUS(MICS_ERR_FORMAT, open_one(golden("nanogpt.bin"), NULL, 18, &corpus));
    ASSERT_SAID(&seen, "set data.dtype to \"uint16\"");
    ASSERT_STATUS(MICS_ERR_INVALID, open_one(golden("nanogpt.bin"), "uint32", 18, &corpus));
    ASSERT_SAID(&seen, "is not below the model's vocabulary");
    ASSERT_STATUS(MICS_ERR_INVALID, open_one(golden("nanogpt.bin"), "uint16", 17, &corpus));
    ASSERT_SAID(&seen, "token 17 at index 7 (offset 14 of the shard)");
    ASSERT_STATUS(MICS_ERR_INVALID, open_one(golden("nanogpt.bin"), "float32", 18, &corpus));
    ASSERT_SAID(&seen, "tokens cannot be \"float32\"");
    files_write(files_path("odd.bin"), "123", 3);
    ASSERT_STATUS(MICS_ERR_FORMAT, open_one(files_path("odd.bin"), "uint16", 18, &corpus));
    ASSERT_SAID(&seen, "its 3 bytes are no whole number of uint16 tokens");
    files_write(files_path("low.bin"), "\1\xff", 2);
    ASSERT_STATUS(MICS_ERR_INVALID, open_one(files_path("low.bin"), "int8", 18, &corpus));
}

// A shard of ours is one, whatever data.dtype says of others.
static void test_header_first(void **state)
{
    (void)state;
    static const int32_t tokens[] = {10, 11, 12, 13, 14, 15, 16, 17};
    ASSERT_OK(mics_shard_write(files_path("ours.bin"), tokens, 8, 18));
    expect_tokens(files_path("ours.bin"), "int32", 1);
}

// Copies a golden pair, with a byte of the index changed or its end cut off.
static void expect_damaged(size_t at, unsigned char byte, size_t cut, mics_status status,
                           const char *said)
{
    size_t bytes = 0, index_bytes = 0;
    mics_corpus *corpus = NULL;
    char *tokens = files_read(golden("megatron-int32.bin"), &bytes);
    char *index = files_read(golden("megatron-int32.idx"), &index_bytes);
    index[at] = (char)byte;
    files_write(files_path("bad.bin"), tokens, bytes);
    files_write(files_path("bad.idx"), index, index_bytes - cut);
    free(tokens);
    free(index);
    ASSERT_STATUS(status, open_one(files_path("bad.bin"), NULL, 18, &corpus));
    ASSERT_SAID(&seen, said);
    assert_null(corpus);
}

static void test_damaged_index(void **state)
{
    (void)state;
    expect_damaged(0, 'X', 0, MICS_ERR_FORMAT, "no Megatron index");
    expect_damaged(9, 2, 0, MICS_ERR_UNSUPPORTED, "the version at offset 9 is 2");
    expect_damaged(17, 7, 0, MICS_ERR_UNSUPPORTED, "floating-point");
    expect_damaged(17, 9, 0, MICS_ERR_FORMAT, "offset 17 is 9");
    expect_damaged(17, 8, 0, MICS_ERR_FORMAT, "offset 54: sequence 1 begins at byte 8");
    expect_damaged(18, 4, 0, MICS_ERR_FORMAT, "says 4 sequences");
    expect_damaged(25, 0x80, 0, MICS_ERR_FORMAT, "sequences (offset 18)");
    expect_damaged(0, 'M', 1, MICS_ERR_FORMAT, "bytes follow it");
    expect_damaged(0, 'M', 80, MICS_ERR_FORMAT, "inside the header");
    expect_damaged(37, 0x80, 0, MICS_ERR_FORMAT, "offset 34: a sequence of");
    expect_damaged(42, 4, 0, MICS_ERR_FORMAT, "but its index");
    expect_damaged(78, 3, 0, MICS_ERR_FORMAT, "offset 86: document 2");
    expect_damaged(94, 9, 0, MICS_ERR_FORMAT, "offset 94: document 3 begins with sequence 9");
}

static void copy_to(const char *from, const char *to)
{
    size_t bytes = 0;
    char *data = files_read(from, &bytes);
    files_write(to, data, bytes);
    free(data);
}

static void test_folder(void **state)
{
    (void)state;
    assert_int_equal(mkdir(files_path("set"), 0700), 0);
    assert_int_equal(mkdir(files_path("set/b"), 0700), 0);
    copy_to(golden("megatron-int32.bin"), files_path("set/b/two.bin"));
    copy_to(golden("megatron-int32.idx"), files_path("set/b/two.idx"));
    copy_to(golden("nanogpt.bin"), files_path("set/a.bin"));
    copy_to(golden("nanogpt.bin"), files_path("set/.hidden.bin"));
    copy_to(golden("nanogpt.bin"), files_path("set/c.data"));
    expect_tokens(files_path("set"), "uint16", 2);
    assert_non_null(strstr(seen.info, "2 files, in the order of their paths; 1 others "
                                      "are passed over, as c.data"));
    files_write(files_path("set/b/ReadMe.md"), "about", 5); // a data set's card is no data
    files_write(files_path("set/license.txt"), "may", 3);
    expect_tokens(files_path("set"), "uint16", 2);
    assert_non_null(strstr(seen.info, "2 files, in the order of their paths; 3 others"));
    assert_int_equal(symlink(".", files_path("set/b/loop")), 0);
    mics_corpus *corpus = NULL;
    ASSERT_STATUS(MICS_ERR_INVALID, open_one(files_path("set"), "uint16", 18, &corpus));
    ASSERT_SAID(&seen, "folders deep");
}

// A folder that a pattern leads into, and that cannot be listed: its files would be left out.
static void test_unlisted_folder(void **state)
{
    (void)state;
    mics_corpus *corpus = NULL;
    const uid_t user = geteuid();
    assert_int_equal(chmod(files_folder, 0755) | mkdir(files_path("part1"), 0755), 0);
    copy_to(golden("nanogpt.bin"), files_path("part1/a.bin"));
    expect_tokens(files_path("part*/a*.bin"), "uint16", 1);
    assert_int_equal(mkdir(files_path("part2"), 0), 0);
    assert_int_equal(user == 0 ? seteuid(65534) : 0, 0); // root may list everything
    const mics_status status = open_one(files_path("part*/a*.bin"), "uint16", 18, &corpus);
    assert_int_equal(user == 0 ? seteuid(0) : 0, 0);
    ASSERT_STATUS(MICS_ERR_IO, status);
    ASSERT_SAID(&seen, "part2: cannot list the folder: ");
    assert_int_equal(rmdir(files_path("part2")), 0);
}

// Where the files of each pattern lie in the stream.
static void test_sources(void **state)
{
    (void)state;
    char first[300], second[300];
    snprintf(first, sizeof first, "%s/two/*.bin", files_folder);
    snprintf(second, sizeof second, "%s/one.bin", files_folder);
    const char *const patterns[] = {first, second, second};
    const mics_corpus_spec spec = {
        .patterns = patterns, .pattern_count = 3, .vocab = 18, .dtype = "uint16"};
    assert_int_equal(mkdir(files_path("two"), 0700), 0);
    copy_to(golden("nanogpt.bin"), files_path("two/a.bin"));
    copy_to(golden("nanogpt.bin"), files_path("two/b.bin"));
    copy_to(golden("nanogpt.bin"), second);
    mics_corpus *corpus = NULL;
    ASSERT_OK(mics_corpus_open(memory, &spec, &corpus));
    static const int64_t begins[] = {0, 16, 24}, counts[] = {16, 8, 8};
    for (int32_t i = 0; i < 3; i++) {
        int64_t begin = -1, tokens = -1;
        mics_corpus_source(corpus, i, &begin, &tokens);
        assert_int_equal(begin, begins[i]);
        assert_int_equal(tokens, counts[i]);
    }
    assert_int_equal(mics_corpus_texts(corpus), 0);
    mics_corpus_close(corpus);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_megatron, setup, teardown),
        cmocka_unit_test_setup_teardown(test_bare, setup, teardown),
        cmocka_unit_test_setup_teardown(test_header_first, setup, teardown),
        cmocka_unit_test_setup_teardown(test_damaged_index, setup, teardown),
        cmocka_unit_test_setup_teardown(test_folder, setup, teardown),
        cmocka_unit_test_setup_teardown(test_unlisted_folder, setup, teardown),
        cmocka_unit_test_setup_teardown(test_sources, setup, teardown),
    };
    if (files_open() != 0)
        return 1;
    int failures = cmocka_run_group_tests(tests, NULL, NULL);
    files_close();
    return failures;
}
