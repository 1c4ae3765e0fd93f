// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
#include "fuzz.h"
#include "mics/log.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { FOLDERS = 8, PATHS = 4 };

static int32_t errors;     // lines since fuzz_good
static bool loud;          // MICS_FUZZ_LOG is set
static char top[PATH_MAX]; // the temporary folder; empty: not made yet
static char folders[FOLDERS][PATH_MAX];
static int32_t folder_count;

void fuzz_check(bool holds, const char *what)
{
    if (holds)
        return;
    fprintf(stderr, "fuzz: %s\n", what);
    abort();
}

static void sink(void *ctx, mics_log_level level, int32_t rank, const char *line)
{
    (void)ctx;
    (void)rank;
    if (loud)
        fprintf(stderr, "%d %s\n", (int)level, line);
    errors += level == MICS_LOG_ERROR ? 1 : 0;
    fuzz_check(line[0] != '\0', "an empty line was logged");
    for (const unsigned char *c = (const unsigned char *)line; *c != '\0'; c++)
        fuzz_check(*c >= ' ' && *c != 0x7f && !(*c == 0xc2 && c[1] >= 0x80 && c[1] < 0xa0),
                   "a control character was logged");
}

mics_memory *fuzz_begin(void)
{
    mics_memory *memory = NULL;
    loud = getenv("MICS_FUZZ_LOG") != NULL;
    fuzz_check(setenv("HF_HUB_OFFLINE", "1", 1) == 0,
               "an environment"); // whatever URLs are made up
    mics_log_set_sink(sink, NULL);
    errors = 0;
    fuzz_check(mics_memory_open(&memory) == MICS_OK, "no allocator");
    return memory;
}

void fuzz_end(mics_memory *memory)
{
    mics_memory_stats stats;
    size_t peak = 0;
    mics_memory_stats_get(memory, &stats);
    for (int tag = 0; tag < MICS_MEM_TAGS; tag++)
        peak += stats.peak[tag];
    fuzz_check(peak <= FUZZ_MEMORY_MAX, "more memory than FUZZ_MEMORY_MAX");
    fuzz_check(mics_memory_close(memory) == 0, "memory was not given back");
}

bool fuzz_good(mics_status status)
{
    const int32_t said = errors;
    errors = 0;
    fuzz_check(status != MICS_OK || said == 0, "an error line, and MICS_OK");
    fuzz_check(status == MICS_OK || said > 0, "a failure without an error line");
    fuzz_check(said <= 1, "several error lines for one failure");
    return status == MICS_OK;
}

// ---- inputs ----

fuzz_part fuzz_take(const uint8_t **data, size_t *bytes)
{
    const uint8_t *end = *bytes > 0 ? memchr(*data, 0, *bytes) : NULL;
    fuzz_part part = {.bytes = end != NULL ? (size_t)(end - *data) : *bytes};
    part.text = malloc(part.bytes + 1);
    fuzz_check(part.text != NULL, "no memory for a part");
    if (part.bytes > 0)
        memcpy(part.text, *data, part.bytes);
    part.text[part.bytes] = '\0';
    const size_t taken = part.bytes + (end != NULL ? 1 : 0);
    *bytes -= taken;
    *data = *bytes > 0 ? *data + taken : *data;
    return part;
}

static void write_all(int file, const void *data, size_t bytes)
{
    const char *from = data;
    while (bytes > 0) {
        const ssize_t written = write(file, from, bytes);
        fuzz_check(written > 0, "an input cannot be written");
        from += written;
        bytes -= (size_t)written;
    }
}

const char *fuzz_memory_file(const void *data, size_t bytes)
{
    static char path[64];
    static int file = -1;
    if (file < 0) {
        file = memfd_create("input", MFD_CLOEXEC);
        fuzz_check(file >= 0, "no file in memory");
        snprintf(path, sizeof path, "/proc/self/fd/%d", file);
    }
    fuzz_check(ftruncate(file, 0) == 0 && lseek(file, 0, SEEK_SET) == 0, "a file in memory");
    write_all(file, data, bytes);
    return path;
}

// ---- the temporary folder ----

static void remove_all(void)
{
    for (int32_t i = folder_count - 1; i >= 0; i--) {
        fuzz_clear(folders[i]);
        rmdir(fuzz_path(folders[i]));
    }
    fuzz_clear(NULL);
    rmdir(top);
}

// In memory where the system has such a folder, for speed.
static void make_top(void)
{
    const char *parent = getenv("TMPDIR");
    if (parent == NULL || parent[0] == '\0')
        parent = access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp";
    snprintf(top, sizeof top, "%s/mics-fuzz-XXXXXX", parent);
    fuzz_check(mkdtemp(top) != NULL, "no temporary folder");
    fuzz_check(atexit(remove_all) == 0, "no atexit");
}

const char *fuzz_path(const char *name)
{
    static char paths[PATHS][PATH_MAX];
    static uint32_t turn;
    char *path = paths[turn++ % PATHS];
    if (top[0] == '\0')
        make_top();
    const int length = name != NULL ? snprintf(path, PATH_MAX, "%s/%s", top, name)
                                    : snprintf(path, PATH_MAX, "%s", top);
    fuzz_check(length > 0 && length < PATH_MAX, "a path is too long");
    return path;
}

void fuzz_make_dir(const char *name)
{
    if (mkdir(fuzz_path(name), 0700) != 0) {
        fuzz_check(errno == EEXIST, "a folder cannot be made");
        return;
    }
    fuzz_check(folder_count < FOLDERS, "too many folders");
    snprintf(folders[folder_count++], PATH_MAX, "%s", name);
}

void fuzz_write(const char *name, const void *data, size_t bytes)
{
    const int file = open(fuzz_path(name), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    fuzz_check(file >= 0, "an input's file cannot be made");
    write_all(file, data, bytes);
    close(file);
}

void fuzz_clear(const char *name)
{
    DIR *entries = opendir(fuzz_path(name));
    const struct dirent *entry;
    while (entries != NULL && (entry = readdir(entries)) != NULL)
        (void)unlinkat(dirfd(entries), entry->d_name, 0); // "." and ".." and folders stay
    if (entries != NULL)
        closedir(entries);
}

fuzz_part fuzz_data(const char *name)
{
    char path[PATH_MAX];
    struct stat info;
    fuzz_part part = {0};
    snprintf(path, sizeof path, "%s/%s", MICS_TEST_DATA, name);
    const int file = open(path, O_RDONLY | O_CLOEXEC);
    fuzz_check(file >= 0 && fstat(file, &info) == 0, "a file of the tests' data is missing");
    part.bytes = (size_t)info.st_size;
    part.text = calloc(1, part.bytes + 1);
    fuzz_check(part.text != NULL, "no memory for a file of the tests' data");
    fuzz_check(read(file, part.text, part.bytes) == (ssize_t)part.bytes, "a short read");
    close(file);
    return part;
}
