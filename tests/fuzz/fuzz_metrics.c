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

enum { RESUME_STEP = 5 };

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

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    mics_memory *memory = fuzz_begin();
    fuzz_write("metrics.jsonl", data, bytes);
    const char *path = fuzz_path("metrics.jsonl");
    const int64_t kept = cut(memory, path);
    fuzz_check(kept <= (int64_t)bytes, "it grew");
    if (kept > 0)
        fuzz_check(cut(memory, path) == kept, "what was kept is not kept again");
    fuzz_end(memory);
    return 0;
}
