// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Tokenizing on several threads: the tokens of one thread, the error of the first bad line, and a
// process that is killed leaves what it has done to the next one.
#include "base/rng.h"
#include "io/data/cached.h"
#include "io/data/data.h"
#include <glob.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/wait.h>
#include <time.h>

static mics_tokenizer *tokenizer;

// Under sanitizers, where 100 MB take more than a minute, two of them: test_families has each on one
// thread.
static const char *const names[] = {
    "tokenizer/gpt2", "tokenizers/llama2",
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    "bytes",          "tokenizer/llama3",  "tokenizers/flags",
#endif
};

static void open_tokenizer(const char *name)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s.json", MICS_TEST_DATA, name);
    ASSERT_OK(mics_tokenizer_open(memory, strcmp(name, "bytes") == 0 ? name : path, &tokenizer));
}

// Lines of words, each with a number of its own; a text where `json` is not set.
static void write_lines(const char *name, int lines, bool json, int bad_line)
{
    FILE *file = fopen(files_path(name), "wb");
    assert_non_null(file);
    for (int line = 1; line <= lines; line++) {
        const uint64_t bits = mics_rng_bits(3, 0, (uint64_t)line);
        fprintf(file, "%s", json ? "{\"text\": \"" : "");
        for (uint64_t word = 0; word < 4 + bits % 40; word++)
            fprintf(file, "%.*s%d ", 1 + (int)(bits >> word % 50 & 7), "theword<s>", line % 997);
        fprintf(file, "%s\n", line == bad_line ? "oops" : json ? "\"}" : "");
    }
    assert_int_equal(fclose(file), 0);
}

static mics_status open_corpus(const char *name, const char *folder, int32_t threads,
                               mics_corpus **corpus_out)
{
    const char *path = files_path(name);
    char dir[400];
    snprintf(dir, sizeof dir, "%s/%s", cache, folder);
    const mics_corpus_spec spec = {.patterns = &path,
                                   .pattern_count = 1,
                                   .vocab = mics_tokenizer_vocab(tokenizer),
                                   .tokenizer = tokenizer,
                                   .cache_dir = dir,
                                   .threads = threads};
    return mics_corpus_open(memory, &spec, corpus_out);
}

static uint64_t hash_of(const char *name, const char *folder, int32_t threads)
{
    mics_corpus *corpus = NULL;
    ASSERT_OK(open_corpus(name, folder, threads, &corpus));
    const uint64_t hash = mics_corpus_hash(corpus);
    mics_corpus_close(corpus);
    return hash;
}

static void test_any_number(void **state)
{
    (void)state;
    write_lines("many.jsonl", 30000, true, 0);
    write_lines("many.txt", 30000, false, 0);
    for (size_t n = 0; n < sizeof names / sizeof *names; n++) {
        char folder[32];
        open_tokenizer(names[n]);
        snprintf(folder, sizeof folder, "%zu", n);
        const uint64_t lines = hash_of("many.jsonl", folder, 1),
                       text = hash_of("many.txt", folder, 1);
        for (int32_t threads = 2; threads <= 5; threads += 3) {
            snprintf(folder, sizeof folder, "%zu-%d", n, (int)threads);
            assert_true(hash_of("many.jsonl", folder, threads) == lines);
            assert_true(hash_of("many.txt", folder, threads) == text);
        }
        mics_tokenizer_close(tokenizer);
    }
}

static void test_first_error(void **state)
{
    (void)state;
    mics_corpus *corpus = NULL;
    open_tokenizer("tokenizer/gpt2");
    write_lines("bad.jsonl", 60000, true, 20011);
    for (int32_t threads = 1; threads <= 4; threads++) {
        ASSERT_STATUS(MICS_ERR_FORMAT, open_corpus("bad.jsonl", "bad", threads, &corpus));
        ASSERT_SAID(&seen, "bad.jsonl, line 20011");
        assert_null(corpus);
    }
    mics_tokenizer_close(tokenizer);
}

// Where the first file of a folder lies whose name ends so; false: there is none yet.
static bool find_mark(const char *folder, const char *ending, char *path, size_t capacity)
{
    char pattern[500];
    glob_t marks = {0};
    snprintf(pattern, sizeof pattern, "%s/%s/*%s", cache, folder, ending);
    const bool found = glob(pattern, GLOB_NOSORT, NULL, &marks) == 0;
    if (found)
        snprintf(path, capacity, "%s", marks.gl_pathv[0]);
    globfree(&marks);
    return found;
}

// Returns whether the process was killed before it was done.
static bool is_killed_while_it_tokenizes(const char *name, const char *folder)
{
    const struct timespec awhile = {.tv_nsec = 1000000};
    char mark[600];
    int code = 0;
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        mics_corpus *corpus = NULL;
        _exit(open_corpus(name, folder, 1, &corpus) == MICS_OK ? 0 : 1);
    }
    while (!find_mark(folder, ".begun.at", mark, sizeof mark)) {
        if (waitpid(child, &code, WNOHANG) == child)
            return false;
        nanosleep(&awhile, NULL);
    }
    kill(child, SIGKILL);
    assert_int_equal(waitpid(child, &code, 0), child);
    return WIFSIGNALED(code);
}

static void kill_while_it_tokenizes(const char *name, const char *folder)
{
    char command[500];
    snprintf(command, sizeof command, "rm -rf %s/%s", cache, folder);
    int times = 0;
    while (!is_killed_while_it_tokenizes(name, folder)) {
        assert_true(++times < 20);
        assert_int_equal(system(command), 0);
    }
}

static void test_goes_on(void **state)
{
    (void)state;
    static const char *const files[] = {"long.jsonl", "long.txt"};
    char begun[600];
    open_tokenizer("tokenizer/gpt2");
    for (int f = 0; f < 2; f++) {
        write_lines(files[f], 100000, f == 0, 0);
        const uint64_t whole = hash_of(files[f], "whole", 1);
        kill_while_it_tokenizes(files[f], files[f]);
        assert_true(find_mark(files[f], ".begun", begun, sizeof begun));
        seen.info[0] = '\0';
        assert_true(hash_of(files[f], files[f], 2) == whole);
        assert_non_null(strstr(seen.info, "resumes after"));
        assert_false(find_mark(files[f], ".begun.at", begun, sizeof begun)); // nothing is left
    }
    mics_tokenizer_close(tokenizer);
}

// What lies before the mark was lost, by a power failure.
static void test_begins_anew(void **state)
{
    (void)state;
    char begun[600];
    open_tokenizer("tokenizer/gpt2");
    write_lines("lost.jsonl", 100000, true, 0);
    const uint64_t whole = hash_of("lost.jsonl", "whole", 1);
    kill_while_it_tokenizes("lost.jsonl", "lost");
    assert_true(find_mark("lost", ".begun", begun, sizeof begun));
    FILE *file = fopen(begun, "r+b");
    assert_non_null(file);
    assert_int_equal(fseek(file, 5000, SEEK_SET), 0);
    assert_true(fputc(0xFF, file) >= 0);
    assert_int_equal(fclose(file), 0);
    seen.info[0] = '\0';
    assert_true(hash_of("lost.jsonl", "lost", 2) == whole);
    assert_null(strstr(seen.info, "resumes after"));
    mics_tokenizer_close(tokenizer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_any_number, setup_cached, teardown),
        cmocka_unit_test_setup_teardown(test_first_error, setup_cached, teardown),
        cmocka_unit_test_setup_teardown(test_goes_on, setup_cached, teardown),
        cmocka_unit_test_setup_teardown(test_begins_anew, setup_cached, teardown),
    };
    if (files_open() != 0)
        return 1;
    int failures = cmocka_run_group_tests(tests, NULL, NULL);
    files_close();
    return failures;
}
