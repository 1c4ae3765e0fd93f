// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// metrics.jsonl of a run that is resumed: what is kept of it is read again as it is, and lines of
// later steps are gone.
#include "fuzz.h"
#include "mics/report.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { RESUME_STEP = 5, MAX_TOLD = 20 };

// Opens it for a resume and closes it; returns its length then, -1 if it was refused.
static int64_t cut(mics_memory *memory, const char *path)
{
    struct stat info;
    mics_metrics_file *file = NULL;
    if (!fuzz_good(mics_metrics_open(memory, path, RESUME_STEP, &file)))
        return -1;
    fuzz_check(fuzz_good(mics_metrics_close(file)), "closing");
    fuzz_check(stat(path, &info) == 0, "the file is gone");
    return info.st_size;
}

static void on_problem(void *ctx, const char *line)
{
    for (const char *c = line; *c != '\0'; c++)
        fuzz_check((unsigned char)*c >= ' ', "a control character in a problem's line");
    ++*(int64_t *)ctx;
}

// Returns how many problems there are.
static int64_t verify(mics_memory *memory, const char *path)
{
    int64_t problems = 0, lines = 0;
    fuzz_check(fuzz_good(mics_metrics_verify(memory, path, on_problem, &problems, &lines)),
               "verifying");
    fuzz_check(problems <= MAX_TOLD + 1, "too many are told");
    return problems;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    mics_memory *memory = fuzz_begin();
    fuzz_write("metrics.jsonl", data, bytes);
    const char *path = fuzz_path("metrics.jsonl");
    const int64_t problems = verify(memory, path), kept = cut(memory, path);
    fuzz_check(problems > 0 || bytes == 0 || kept >= 0, "nothing is wrong, and it is refused");
    fuzz_check(kept <= (int64_t)bytes, "it grew");
    if (kept > 0)
        fuzz_check(cut(memory, path) == kept, "what was kept is not kept again");
    fuzz_end(memory);
    return 0;
}
