// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// What the program of a job is told by more than one file.
#include "base/text.h"
#include "run/job.h"
#include <stdarg.h>

void run_job_note(const mics_job *job, const char *format, ...)
{
    char line[1024];
    va_list args;
    if (job->callbacks.note == NULL)
        return;
    va_start(args, format);
    mics_text_vformat(line, sizeof line, format, args);
    va_end(args);
    job->callbacks.note(job->callbacks.ctx, line);
}
