// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Texts as corpora: tokenized once, in parts that give the tokens of the whole, kept in the cache,
// by one process or by several at once.
#include "base/rng.h"
#include "io/data/cached.h"
#include "io/data/data.h"
#include <fcntl.h>
#include <stdbool.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>

static mics_tokenizer *open_tokenizer(const char *name)
{
    char path[512];
    mics_tokenizer *tokenizer = NULL;
    snprintf(path, sizeof path, "%s/tokenizer/%s.json", MICS_TEST_DATA, name);
    ASSERT_OK(mics_tokenizer_open(memory, name[0] == 'b' ? name : path, &tokenizer));
    return tokenizer;
}

static mics_status open_text(const char *path, const mics_tokenizer *tokenizer,
                             mics_corpus **corpus_out)
{
    const mics_corpus_spec spec = {.patterns = &path,
                                   .pattern_count = 1,
                                   .vocab = mics_tokenizer_vocab(tokenizer),
                                   .tokenizer = tokenizer,
                                   .cache_dir = cache};
    return mics_corpus_open(memory, &spec, corpus_out);
}

// Words of 1 to 12 letters with spaces, newlines, digits and characters of two bytes.
static char *random_words(uint64_t seed, size_t bytes)
{
    char *text = malloc(bytes);
    assert_non_null(text);
    for (size_t i = 0; i < bytes; i++) {
        uint64_t bits = mics_rng_bits(seed, 0, i);
        char letter = (char)('a' + bits % 23);
        text[i] = bits >> 32 & 7 ? letter : "  \n\t1,\xc3\xc3"[bits >> 40 & 7];
        if (text[i] == '\xc3' && i + 1 < bytes)
            text[++i] = '\xa9';
    }
    text[bytes - 1] = '.';
    return text;
}

static void check_corpus(const mics_corpus *corpus, const mics_tokenizer *tokenizer,
                         const char *text, size_t bytes)
{
    int32_t *tokens = NULL;
    int64_t count = 0;
    ASSERT_OK(mics_tokenizer_encode(tokenizer, text, bytes, 0, &tokens, &count));
    assert_int_equal(mics_corpus_tokens(corpus), count + 1);
    int32_t *read = malloc((size_t)(count + 1) * sizeof *read);
    assert_non_null(read);
    ASSERT_OK(mics_corpus_read(corpus, 0, count + 1, read));
    assert_int_equal(read[0], mics_tokenizer_separator(tokenizer));
    assert_memory_equal(read + 1, tokens, (size_t)count * sizeof *tokens);
    free(read);
    mics_free(memory, tokens);
}

static void test_long_text_as_the_whole(void **state)
{
    (void)state;
    static const char *const names[] = {"bytes", "gpt2", "prefix", "llama3"};
    const size_t bytes = 1500000; // more than one window
    char *text = random_words(1, bytes);
    files_write(files_path("long.txt"), text, bytes);
    for (int n = 0; n < 4; n++) {
        mics_tokenizer *tokenizer = open_tokenizer(names[n]);
        mics_corpus *corpus = NULL;
        ASSERT_OK(open_text(files_path("long.txt"), tokenizer, &corpus));
        check_corpus(corpus, tokenizer, text, bytes);
        mics_corpus_close(corpus);
        mics_tokenizer_close(tokenizer);
    }
    free(text);
}

// Any byte is one to "bytes"; to others a text is UTF-8, and the error says where it is not.
static void test_no_utf8(void **state)
{
    (void)state;
    static const struct {
        const char *name, *text, *said;
    } cases[] = {
        {"latin.txt", "one\ntwo caf\xe9 au lait\n",
         "latin.txt, line 2: offset 11 of the file, 0xe9, is no UTF-8; convert it"},
        {"cut.txt", "\xef\xbb\xbfone \xe4\xbd", "cut.txt, line 1: offset 7 of the file, 0xe4"},
        {"latin.csv", "text\none\ncaf\xe9\n", "latin.csv, line 3: byte 4 of its text, 0xe9"},
        {"latin.jsonl", "{\"text\": \"one\"}\n{\"text\": \"caf\xe9\"}\n",
         "latin.jsonl, line 2, column 13: unable to decode byte 0xe9"},
    };
    mics_tokenizer *tokenizer = open_tokenizer("gpt2"), *any = open_tokenizer("bytes");
    mics_corpus *corpus = NULL;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *path = files_path(cases[i].name);
        files_write(path, cases[i].text, strlen(cases[i].text));
        ASSERT_STATUS(MICS_ERR_FORMAT, open_text(path, tokenizer, &corpus));
        ASSERT_SAID(&seen, cases[i].said);
        if (i == 3)
            continue;
        ASSERT_OK(open_text(path, any, &corpus));
        mics_corpus_close(corpus);
    }
    const size_t bytes = 1500000;
    char *text = random_words(2, bytes);
    text[bytes - 8] = '\xff'; // in the second window
    files_write(files_path("far.txt"), text, bytes);
    ASSERT_STATUS(MICS_ERR_FORMAT, open_text(files_path("far.txt"), tokenizer, &corpus));
    ASSERT_SAID(&seen, ": offset 1499992 of the file, 0xff");
    free(text);
    mics_tokenizer_close(tokenizer);
    mics_tokenizer_close(any);
}

// The window grows for a piece that is longer.
static void test_long_piece(void **state)
{
    (void)state;
    const size_t bytes = 1200000; // the window is 1 MiB
    char *text = malloc(bytes);
    assert_non_null(text);
    memset(text, ' ', bytes);
    text[bytes - 1] = 'x';
    files_write(files_path("spaces.txt"), text, bytes);
    mics_tokenizer *tokenizer = open_tokenizer("gpt2");
    mics_corpus *corpus = NULL;
    ASSERT_OK(open_text(files_path("spaces.txt"), tokenizer, &corpus));
    check_corpus(corpus, tokenizer, text, bytes);
    mics_corpus_close(corpus);
    mics_tokenizer_close(tokenizer);
    free(text);
}

static void test_memory_is_bounded(void **state)
{
    (void)state;
    const size_t bytes = 11 << 20;
    char *text = malloc(bytes);
    assert_non_null(text);
    memset(text, 'a', bytes);
    files_write(files_path("big.txt"), text, bytes);
    free(text);
    mics_tokenizer *tokenizer = open_tokenizer("bytes");
    mics_corpus *corpus = NULL;
    ASSERT_OK(open_text(files_path("big.txt"), tokenizer, &corpus));
    mics_memory_stats stats;
    mics_memory_stats_get(memory, &stats);
    assert_true(stats.peak[MICS_MEM_HOST] < 10 << 20);
    mics_corpus_close(corpus);
    mics_tokenizer_close(tokenizer);
}

static ino_t shard_inode(int32_t *count_out)
{
    char list[400], line[400];
    struct stat facts = {0};
    snprintf(list, sizeof list, "ls -1 %s/*", cache);
    FILE *names = popen(list, "r");
    assert_non_null(names);
    for (*count_out = 0; fgets(line, sizeof line, names) != NULL; (*count_out)++) {
        line[strcspn(line, "\n")] = '\0';
        assert_int_equal(stat(line, &facts), 0);
    }
    pclose(names);
    return facts.st_ino;
}

static void test_cache(void **state)
{
    (void)state;
    mics_tokenizer *bytes = open_tokenizer("bytes"), *gpt2 = open_tokenizer("gpt2");
    mics_corpus *corpus = NULL;
    int32_t count = 0;
    files_write(files_path("t.txt"), "some text", 9);
    ASSERT_OK(open_text(files_path("t.txt"), bytes, &corpus));
    uint64_t hash = mics_corpus_hash(corpus);
    mics_corpus_close(corpus);
    ino_t inode = shard_inode(&count);
    assert_int_equal(count, 1); // neither a lock nor a partial file is left
    files_write(files_path("same.txt"), "some text", 9);
    ASSERT_OK(open_text(files_path("same.txt"), bytes, &corpus)); // the contents count
    assert_true(mics_corpus_hash(corpus) == hash);
    mics_corpus_close(corpus);
    assert_true(shard_inode(&count) == inode);
    assert_int_equal(count, 1);
    ASSERT_OK(open_text(files_path("t.txt"), gpt2, &corpus)); // so does the tokenizer
    mics_corpus_close(corpus);
    shard_inode(&count);
    assert_int_equal(count, 2);
    files_write(files_path("t.txt"), "some tent", 9);
    ASSERT_OK(open_text(files_path("t.txt"), bytes, &corpus));
    assert_true(mics_corpus_hash(corpus) != hash);
    mics_corpus_close(corpus);
    shard_inode(&count);
    assert_int_equal(count, 3);
    mics_tokenizer_close(bytes);
    mics_tokenizer_close(gpt2);
}

static void test_several_texts(void **state)
{
    (void)state;
    mics_tokenizer *tokenizer = open_tokenizer("bytes");
    mics_corpus *corpus = NULL;
    files_write(files_path("doc1.txt"), "ab", 2);
    files_write(files_path("doc2.txt"), "", 0);
    files_write(files_path("doc3.txt"), "c", 1);
    const char *pattern = files_path("doc*.txt");
    ASSERT_OK(open_text(pattern, tokenizer, &corpus));
    int32_t tokens[5];
    assert_int_equal(mics_corpus_tokens(corpus), 5);
    ASSERT_OK(mics_corpus_read(corpus, 0, 5, tokens));
    static const int32_t expected[] = {0, 'a', 'b', 0, 'c'};
    assert_memory_equal(tokens, expected, sizeof expected);
    mics_corpus_close(corpus);
    corpus = NULL;
    ASSERT_STATUS(MICS_ERR_INVALID, open_text(files_path("doc2.txt"), tokenizer, &corpus));
    ASSERT_SAID(&seen, "no tokens in");
    const mics_corpus_spec small = {.patterns = &pattern,
                                    .pattern_count = 1,
                                    .vocab = 98,
                                    .tokenizer = tokenizer,
                                    .cache_dir = cache};
    ASSERT_STATUS(MICS_ERR_INVALID, mics_corpus_open(memory, &small, &corpus));
    ASSERT_SAID(&seen, "doc1.txt: token 98 at index 2");
    assert_null(corpus);
    mics_tokenizer_close(tokenizer);
}

#define SPECIAL(name, id)                                                                          \
    "\"" name "\": {\"id\": \"" name "\", \"ids\": [" #id "], \"tokens\": [\"" name "\"]}"
#define ADDED(name, id) "{\"id\": " #id ", \"content\": \"" name "\", \"special\": true}"

// Texts in a tokenizer's frame: no separator, and another shard in the cache.
static void test_framed(void **state)
{
    (void)state;
    static const char json[] = "{\"added_tokens\": [" ADDED("<s>", 1) ", " ADDED(
        "</s>", 2) "], \"normalizer\": null, "
                   "\"pre_tokenizer\": null, \"decoder\": null, \"post_processor\": {\"type\": "
                   "\"TemplateProcessing\", \"single\": [{\"SpecialToken\": {\"id\": \"<s>\"}}, "
                   "{\"Sequence\": "
                   "{\"id\": \"A\"}}, {\"SpecialToken\": {\"id\": \"</s>\"}}], \"special_tokens\": "
                   "{" SPECIAL("<s>", 1) ", " SPECIAL(
                       "</s>", 2) "}}, \"model\": {\"type\": \"BPE\", "
                                  "\"unk_token\": \"<unk>\", \"merges\": [], \"vocab\": "
                                  "{\"<unk>\": 0, \"<s>\": 1, \"</s>\": "
                                  "2, \"a\": 3, \"b\": 4}}}";
    static const int32_t plain[] = {2, 3, 4, 2, 4}, framed[] = {1, 3, 4, 2, 1, 4, 2};
    mics_corpus *corpus = NULL;
    mics_tokenizer *tokenizer = NULL, *bytes = open_tokenizer("bytes");
    int32_t tokens[7];
    files_write(files_path("frame.json"), json, sizeof json - 1);
    files_write(files_path("frame1.txt"), "ab", 2);
    files_write(files_path("frame2.txt"), "b", 1);
    ASSERT_OK(mics_tokenizer_open(memory, files_path("frame.json"), &tokenizer));
    ASSERT_OK(open_text(files_path("frame*.txt"), tokenizer, &corpus));
    assert_int_equal(mics_corpus_tokens(corpus), 5);
    ASSERT_OK(mics_corpus_read(corpus, 0, 5, tokens));
    assert_memory_equal(tokens, plain, sizeof plain);
    mics_corpus_close(corpus);
    for (int again = 0; again < 2; again++) {
        ASSERT_OK(mics_tokenizer_frame_texts(tokenizer, "the test"));
        ASSERT_OK(open_text(files_path("frame*.txt"), tokenizer, &corpus));
        assert_int_equal(mics_corpus_tokens(corpus), 7);
        ASSERT_OK(mics_corpus_read(corpus, 0, 7, tokens));
        assert_memory_equal(tokens, framed, sizeof framed);
        mics_corpus_close(corpus);
    }
    ASSERT_STATUS(MICS_ERR_INVALID, mics_tokenizer_frame_texts(bytes, "the test"));
    ASSERT_SAID(&seen, "the test: this tokenizer puts no special tokens around a text");
    mics_tokenizer_close(tokenizer);
    mics_tokenizer_close(bytes);
}

static void test_bad_texts(void **state)
{
    (void)state;
    mics_tokenizer *tokenizer = open_tokenizer("bytes");
    mics_corpus *corpus = NULL;
    snprintf(cache, sizeof cache, "%s/empty", files_folder);
    assert_int_equal(mkdir(cache, 0700), 0);
    ASSERT_STATUS(MICS_ERR_INVALID, open_text(cache, tokenizer, &corpus));
    ASSERT_SAID(&seen, "this folder has no file");
    files_write(files_path("u.txt"), "x", 1);
    snprintf(cache, sizeof cache, "%s/u.txt/cache", files_folder);
    ASSERT_STATUS(MICS_ERR_IO, open_text(files_path("u.txt"), tokenizer, &corpus));
    ASSERT_SAID(&seen, "cannot make the folder");
    assert_null(corpus);
    mics_tokenizer_close(tokenizer);
}

// A shard in the cache that was cut short is found out.
static void test_damaged_cache(void **state)
{
    (void)state;
    mics_tokenizer *tokenizer = open_tokenizer("bytes");
    mics_corpus *corpus = NULL;
    files_write(files_path("t.txt"), "some text", 9);
    ASSERT_OK(open_text(files_path("t.txt"), tokenizer, &corpus));
    mics_corpus_close(corpus);
    corpus = NULL;
    char command[400];
    snprintf(command, sizeof command, "truncate -s 1030 %s/*.bin", cache);
    assert_int_equal(system(command), 0);
    ASSERT_STATUS(MICS_ERR_FORMAT, open_text(files_path("t.txt"), tokenizer, &corpus));
    ASSERT_SAID(&seen, "count at offset 8");
    mics_tokenizer_close(tokenizer);
}

static void sleep_ms(long ms)
{
    nanosleep(&(struct timespec){.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000}, NULL);
}

static void hold_lock(const char *path, int *file_out)
{
    *file_out = open(path, O_RDWR | O_CREAT, 0666);
    assert_true(*file_out >= 0);
    assert_int_equal(flock(*file_out, LOCK_EX), 0);
}

// Who waited for a lock that was removed meanwhile waits for the one that stands there now.
static void test_lock_that_was_removed(void **state)
{
    (void)state;
    mics_tokenizer *tokenizer = open_tokenizer("bytes");
    mics_corpus *corpus = NULL;
    files_write(files_path("t.txt"), "some text", 9);
    ASSERT_OK(open_text(files_path("t.txt"), tokenizer, &corpus));
    mics_corpus_close(corpus);
    char shard[400], lock_path[440], partial[440], command[400];
    snprintf(command, sizeof command, "ls %s/*.bin", cache);
    FILE *names = popen(command, "r");
    assert_non_null(names);
    assert_non_null(fgets(shard, sizeof shard, names));
    pclose(names);
    shard[strcspn(shard, "\n")] = '\0';
    unlink(shard);
    // What another machine has begun is its own affair.
    snprintf(partial, sizeof partial, "%s.another-1-1-0.partial", shard);
    files_write(partial, "x", 1);
    snprintf(lock_path, sizeof lock_path, "%s.lock", shard);
    int first = -1, second = -1;
    hold_lock(lock_path, &first);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        close(first);
        _exit(open_text(files_path("t.txt"), tokenizer, &corpus) == MICS_OK ? 0 : 1);
    }
    sleep_ms(300); // the child waits for the first lock
    unlink(lock_path);
    hold_lock(lock_path, &second);
    close(first);
    sleep_ms(300);
    assert_int_not_equal(access(shard, F_OK), 0);
    close(second);
    int result = -1;
    assert_int_equal(waitpid(child, &result, 0), child);
    assert_int_equal(result, 0);
    assert_int_equal(access(shard, F_OK), 0);
    assert_int_equal(access(partial, F_OK), 0);
    mics_tokenizer_close(tokenizer);
}

static void test_processes_race(void **state)
{
    (void)state;
    enum { PROCESSES = 6 };
    const size_t bytes = 400000;
    char *text = random_words(3, bytes);
    files_write(files_path("race.txt"), text, bytes);
    mics_tokenizer *tokenizer = open_tokenizer("gpt2");
    pid_t children[PROCESSES];
    for (int i = 0; i < PROCESSES; i++) {
        children[i] = fork();
        assert_true(children[i] >= 0);
        if (children[i] == 0) {
            mics_corpus *corpus = NULL;
            mics_status status = open_text(files_path("race.txt"), tokenizer, &corpus);
            _exit(status == MICS_OK && mics_corpus_tokens(corpus) > 1000 ? 0 : 1);
        }
    }
    for (int i = 0; i < PROCESSES; i++) {
        int result = -1;
        assert_int_equal(waitpid(children[i], &result, 0), children[i]);
        assert_int_equal(result, 0);
    }
    mics_corpus *corpus = NULL;
    ASSERT_OK(open_text(files_path("race.txt"), tokenizer, &corpus));
    check_corpus(corpus, tokenizer, text, bytes);
    int32_t count = 0;
    shard_inode(&count);
    assert_in_range(count, 1, 2); // a lock may stay behind: who waited made it anew
    mics_corpus_close(corpus);
    mics_tokenizer_close(tokenizer);
    free(text);
}

static void test_allocation_failures(void **state)
{
    (void)state;
    files_write(files_path("t.txt"), "it's some  text\n", 16);
    mics_tokenizer *tokenizer = open_tokenizer("prefix");
    mics_memory_stats before, after;
    mics_memory_stats_get(memory, &before);
    for (int64_t n = 1;; n++) {
        mics_corpus *corpus = NULL;
        mics_memory_fail_after(memory, n);
        mics_status status = open_text(files_path("t.txt"), tokenizer, &corpus);
        mics_memory_fail_after(memory, 0);
        mics_corpus_close(corpus);
        mics_memory_stats_get(memory, &after);
        assert_int_equal(after.live_blocks, before.live_blocks);
        if (status == MICS_OK) {
            assert_true(n > 10);
            break;
        }
        assert_int_equal(status, MICS_ERR_MEMORY);
    }
    mics_tokenizer_close(tokenizer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_no_utf8, setup_cached, teardown),
        cmocka_unit_test_setup_teardown(test_long_text_as_the_whole, setup_cached, teardown),
        cmocka_unit_test_setup_teardown(test_long_piece, setup_cached, teardown),
        cmocka_unit_test_setup_teardown(test_memory_is_bounded, setup_cached, teardown),
        cmocka_unit_test_setup_teardown(test_cache, setup_cached, teardown),
        cmocka_unit_test_setup_teardown(test_several_texts, setup_cached, teardown),
        cmocka_unit_test_setup_teardown(test_framed, setup_cached, teardown),
        cmocka_unit_test_setup_teardown(test_bad_texts, setup_cached, teardown),
        cmocka_unit_test_setup_teardown(test_damaged_cache, setup_cached, teardown),
        cmocka_unit_test_setup_teardown(test_lock_that_was_removed, setup_cached, teardown),
        cmocka_unit_test_setup_teardown(test_processes_race, setup_cached, teardown),
        cmocka_unit_test_setup_teardown(test_allocation_failures, setup_cached, teardown),
    };
    if (files_open() != 0)
        return 1;
    int failures = cmocka_run_group_tests(tests, NULL, NULL);
    files_close();
    return failures;
}
