// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Files written aside: names that nobody can foresee, links that are not followed, and nothing left
// when a signal ends the process.
#include "base/capture.h"
#include "base/file.h"
#include "test.h"
#include <fcntl.h>
#include <glob.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static char work[] = "/tmp/mics-file-XXXXXX";
static mics_memory *memory;

static int begin(void **state)
{
    (void)state;
    return mkdtemp(work) != NULL && chdir(work) == 0 && mics_memory_open(&memory) == MICS_OK ? 0
                                                                                             : 1;
}

static int end(void **state)
{
    char command[64];
    (void)state;
    snprintf(command, sizeof command, "rm -rf %s", work);
    return system(command) == 0 && mics_memory_close(memory) == 0 ? 0 : 1;
}

static int count_of(const char *pattern)
{
    glob_t found = {0};
    const int count = glob(pattern, 0, NULL, &found) == 0 ? (int)found.gl_pathc : 0;
    globfree(&found);
    return count;
}

static void touch(const char *path)
{
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs("kept", file);
    assert_int_equal(fclose(file), 0);
}

// What cannot be looked at may be there.
static void test_is_there(void **state)
{
    (void)state;
    touch("there");
    assert_true(mics_file_is_there("there"));
    assert_false(mics_file_is_there("gone"));
    assert_false(mics_file_is_there("there/below"));
    assert_int_equal(symlink("itself", "itself"), 0);
    assert_true(mics_file_is_there("itself/below"));
    assert_int_equal(unlink("itself") | unlink("there"), 0);
}

static void test_stem(void **state)
{
    (void)state;
    assert_int_equal(mics_file_aside_stem("a.json.0123456789abcdef.tmp"), 6);
    static const char *const others[] = {"a.json",
                                         "a.json.tmp",
                                         ".0123456789abcdef.tmp",
                                         "a.0123456789abcdeF.tmp",
                                         "a.0123456789abcde.tmp",
                                         "a-0123456789abcdef.tmp",
                                         "a.0123456789abcdef.tmp2",
                                         ".tmp",
                                         ""};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        assert_int_equal(mics_file_aside_stem(others[i]), 0);
}

static void test_aside(void **state)
{
    (void)state;
    mics_file_aside first = {0}, second = {0};
    int fds[2];
    ASSERT_OK(mics_file_begin_aside(memory, "a.txt", 0, &first, &fds[0]));
    ASSERT_OK(mics_file_begin_aside(memory, "a.txt", 0, &second, &fds[1]));
    assert_string_not_equal(first.path, second.path);
    assert_int_equal(mics_file_aside_stem(first.path), 5);
    ASSERT_OK(mics_file_write_at(fds[0], first.path, "one", 3, 0));
    ASSERT_OK(mics_file_close_written(fds[0], first.path, MICS_OK));
    ASSERT_OK(mics_file_place(memory, &first, "a.txt"));
    assert_null(first.path);
    assert_int_equal(close(fds[1]), 0);
    mics_file_drop(memory, &second);
    mics_file_drop(memory, &second); // none by now
    assert_int_equal(count_of("a.txt*"), 1);
    capture seen;
    capture_begin(&seen);
    ASSERT_STATUS(MICS_ERR_IO, mics_file_begin_aside(memory, "nowhere/a", 0, &first, &fds[0]));
    ASSERT_SAID(&seen, "nowhere/a.");
    assert_null(first.path);
    assert_int_equal(mkdir("folder", 0700), 0);
    touch("folder/x");
    ASSERT_OK(mics_file_begin_aside(memory, "b.txt", 0, &first, &fds[0]));
    assert_int_equal(close(fds[0]), 0);
    ASSERT_STATUS(MICS_ERR_IO, mics_file_place(memory, &first, "folder"));
    ASSERT_SAID(&seen, "cannot rename to folder");
    capture_end();
    assert_int_equal(count_of("b.txt*"), 0);
}

static void test_links(void **state)
{
    (void)state;
    int fd = -1;
    touch("target");
    assert_int_equal(symlink("target", "link"), 0);
    ASSERT_OK(mics_file_create_new("link", 0, &fd));
    ASSERT_OK(mics_file_write_at(fd, "link", "new", 3, 0));
    ASSERT_OK(mics_file_close_written(fd, "link", MICS_OK));
    struct stat info;
    assert_int_equal(lstat("link", &info), 0);
    assert_true(S_ISREG(info.st_mode));
    assert_int_equal(stat("target", &info), 0);
    assert_int_equal(info.st_size, 4);
    // A file of an earlier save goes, and who has it open reads on.
    assert_int_equal(link("target", "again"), 0);
    ASSERT_OK(mics_file_create_new("again", 0, &fd));
    assert_int_equal(close(fd), 0);
    assert_int_equal(stat("target", &info), 0);
    assert_int_equal(info.st_size, 4);
}

static void test_sweep(void **state)
{
    (void)state;
    static const char *const kept[] = {"s.json", "s.json.tmp", "t.json.0123456789abcdef.tmp",
                                       "s.json.0123456789abcdeg.tmp"};
    for (size_t i = 0; i < sizeof kept / sizeof *kept; i++)
        touch(kept[i]);
    touch("s.json.0123456789abcdef.tmp");
    touch("s.json.fedcba9876543210.tmp");
    mics_file_sweep(".", "s.json");
    mics_file_sweep("nowhere", "s.json");
    for (size_t i = 0; i < sizeof kept / sizeof *kept; i++)
        assert_int_equal(access(kept[i], F_OK), 0);
    assert_int_equal(count_of("s.json*"), 3);
}

// Those of the dead go; one that a process holds stays, also between its writing and its name.
static void test_sweep_dead(void **state)
{
    (void)state;
    mics_file_aside alive = {0};
    int fd = -1;
    assert_int_equal(mkdir("held", 0777), 0);
    ASSERT_OK(mics_file_begin_aside(memory, "held/h.json", 0, &alive, &fd));
    assert_int_equal(close(fd), 0);
    touch("held/h.json.0123456789abcdef.tmp");
    touch("held/i.json.0123456789abcdef.tmp");
    mics_file_sweep_dead_of("held/h.json");
    mics_file_sweep_dead_of("nowhere/h.json");
    assert_int_equal(count_of("held/*"), 2);
    ASSERT_OK(mics_file_place(memory, &alive, "held/h.json"));
    assert_int_equal(access("held/h.json", F_OK), 0);
    assert_int_equal(access("held/i.json.0123456789abcdef.tmp", F_OK), 0);
}

// Without a descriptor to spare a file is written all the same, and without any nothing is closed.
static void test_few_descriptors(void **state)
{
    (void)state;
    mics_file_aside aside = {0};
    struct rlimit before, few;
    int fd = -1;
    const int lowest = dup(0);
    assert_int_equal(close(lowest), 0);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    few = before;
    few.rlim_cur = (rlim_t)lowest + 1;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
    const mics_status one = mics_file_begin_aside(memory, "few.txt", 0, &aside, &fd);
    few.rlim_cur = (rlim_t)lowest;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
    mics_file_aside other = {0};
    int none = -1;
    capture seen;
    capture_begin(&seen);
    const mics_status two = mics_file_begin_aside(memory, "few.txt", 0, &other, &none);
    capture_end();
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    ASSERT_OK(one);
    assert_true(two != MICS_OK && none == -1);
    ASSERT_SAID(&seen, "few.txt");
    assert_int_equal(close(fd), 0);
    ASSERT_OK(mics_file_place(memory, &aside, "few.txt"));
    assert_int_equal(count_of("few.txt*"), 1);
}

static void *begin_another(void *ctx)
{
    mics_file_aside aside;
    int fd = -1;
    (void)ctx;
    (void)mics_file_begin_aside(memory, "late.txt", 0, &aside, &fd);
    return NULL;
}

// What a process does that a signal ends.
static void end_like_a_signal(void)
{
    mics_file_aside first = {0}, second = {0}, whole = {0};
    mics_temp_dir dir = {0};
    char path[300];
    int fd = -1;
    pthread_t thread;
    setenv("TMPDIR", work, 1);
    if (mics_file_begin_aside(memory, "c.txt", 100, &first, &fd) != MICS_OK ||
        mics_file_begin_aside(memory, "d.txt", 0, &second, &fd) != MICS_OK ||
        mics_file_begin_aside(memory, "whole.txt", 0, &whole, &fd) != MICS_OK ||
        mics_file_place(memory, &whole, "whole.txt") != MICS_OK ||
        mics_temp_dir_init(&dir) != MICS_OK)
        _exit(2);
    snprintf(path, sizeof path, "%s/x", dir.path);
    touch(path);
    mics_file_abandon_all();
    if (pthread_create(&thread, NULL, begin_another, NULL) != 0)
        _exit(3);
    usleep(100000); // it waits, for ever
    _exit(0);
}

static int32_t made_of(const char *path)
{
    int32_t made = -1;
    ASSERT_OK(mics_file_make_dirs(memory, path, &made));
    return made;
}

// What was made is removed again, and nothing else.
static void test_folders(void **state)
{
    (void)state;
    assert_int_equal(made_of("one//two/three/"), 3);
    assert_int_equal(made_of("one/two/three"), 0);
    assert_int_equal(made_of("one/two/four/five"), 2);
    mics_file_remove_dirs(memory, "one/two/three", 0);
    assert_int_equal(count_of("one/two/three"), 1);
    mics_file_remove_dirs(memory, "one/two/four/five", 2);
    assert_int_equal(count_of("one/two/four"), 0);
    assert_int_equal(count_of("one/two"), 1);
    assert_int_equal(made_of("one/two/four/five"), 2);
    touch("one/two/four/theirs");
    mics_file_remove_dirs(memory, "one/two/four/five/", 2);
    assert_int_equal(count_of("one/two/four/five"), 0);
    assert_int_equal(count_of("one/two/four/theirs"), 1);
    assert_int_equal(unlink("one/two/four/theirs"), 0);
    assert_int_equal(rmdir("one/two/four"), 0);
    mics_file_remove_dirs(memory, "one//two/three/none/", 3);
    assert_int_equal(count_of("one"), 0);
}

static void test_signal(void **state)
{
    (void)state;
    int result = -1;
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0)
        end_like_a_signal();
    assert_int_equal(waitpid(child, &result, 0), child);
    assert_int_equal(result, 0);
    assert_int_equal(count_of("c.txt*") + count_of("d.txt*") + count_of("late.txt*"), 0);
    assert_int_equal(count_of("whole.txt*"), 1);
    assert_int_equal(count_of("mics-*"), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_is_there),        cmocka_unit_test(test_stem),
        cmocka_unit_test(test_aside),           cmocka_unit_test(test_links),
        cmocka_unit_test(test_sweep),           cmocka_unit_test(test_sweep_dead),
        cmocka_unit_test(test_few_descriptors), cmocka_unit_test(test_folders),
        cmocka_unit_test(test_signal),
    };
    return cmocka_run_group_tests(tests, begin, end);
}
