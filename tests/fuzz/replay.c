// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Runs a fuzz target over files, without libFuzzer: what its corpus holds must go through.
//
//   replay_NAME FILE|FOLDER...
//
// Names each file before it is run, so that the last line says which one ended the process. An
// input that takes more than TIME_MAX_S of CPU time is a failure, as is an empty corpus.
#include "fuzz.h"
#include <dirent.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
static const double TIME_MAX_S = 60; // sanitizers slow some parsers down by ten
#else
static const double TIME_MAX_S = 20; // the pattern of a tokenizer may take one on a short text
#endif

static uint8_t *read_file(const char *path, size_t bytes)
{
    FILE *file = fopen(path, "re");
    uint8_t *data = malloc(bytes > 0 ? bytes : 1); // of its own size, so that a sanitizer sees ends
    if (file == NULL || data == NULL || fread(data, 1, bytes, file) != bytes) {
        fprintf(stderr, "%s: cannot read\n", path);
        exit(1);
    }
    fclose(file);
    return data;
}

static bool run_file(const char *path, size_t bytes)
{
    uint8_t *data = read_file(path, bytes);
    printf("%s\n", path);
    fflush(stdout);
    const clock_t start = clock();
    LLVMFuzzerTestOneInput(data, bytes);
    const double took_s = (double)(clock() - start) / CLOCKS_PER_SEC;
    free(data);
    if (took_s <= TIME_MAX_S)
        return true;
    fprintf(stderr, "%s: took %.1f s\n", path, took_s);
    return false;
}

// Returns how many inputs ran, or -1 after a failure.
static int32_t run_path(const char *path)
{
    struct stat info;
    if (stat(path, &info) != 0) {
        fprintf(stderr, "%s: no such file or folder\n", path);
        return -1;
    }
    if (!S_ISDIR(info.st_mode))
        return run_file(path, (size_t)info.st_size) ? 1 : -1;
    struct dirent **entries = NULL;
    const int found = scandir(path, &entries, NULL, alphasort);
    int32_t ran = found < 0 ? -1 : 0;
    for (int i = 0; i < found; i++) {
        char inside[PATH_MAX];
        const bool hidden = entries[i]->d_name[0] == '.';
        const int length = snprintf(inside, sizeof inside, "%s/%s", path, entries[i]->d_name);
        free(entries[i]);
        if (hidden || ran < 0)
            continue;
        const int32_t more = length < (int)sizeof inside ? run_path(inside) : -1;
        ran = more < 0 ? -1 : ran + more;
    }
    free(entries);
    return ran;
}

int main(int argc, char **argv)
{
    int32_t ran = 0;
    for (int i = 1; i < argc; i++) {
        const int32_t more = run_path(argv[i]);
        if (more < 0)
            return 1;
        ran += more;
    }
    printf("%d inputs\n", (int)ran);
    return ran > 0 ? 0 : 1;
}
