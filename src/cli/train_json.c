// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// What came of `mics train`, as one JSON object.
#include "base/text.h"
#include "train.h"
#include <math.h>
#include <stdio.h>

static void print_text(const char *key, const char *text)
{
    printf(", \"%s\": ", key);
    if (text == NULL)
        printf("null");
    else
        mics_text_write_quoted(stdout, text);
}

static void print_loss(const char *key, double loss)
{
    char text[32];
    printf(", \"%s\": %s", key, isfinite(loss) ? mics_text_real(loss, text, sizeof text) : "null");
}

static void print_checkpoint(const mics_job_facts *facts)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/step-%08lld", facts->checkpoints_dir,
             (long long)facts->saved_step);
    print_text("checkpoint", facts->saved_step > 0 ? path : NULL);
}

void cli_print_end_json(const mics_job *job, const char *stopped)
{
    const mics_job_facts facts = mics_job_facts_get(job);
    const mics_run *run = mics_job_run(job);
    printf("{\"step\": %lld, \"steps\": %lld, \"start_step\": %lld, \"ranks\": %d, \"nodes\": %d",
           (long long)facts.step, (long long)run->steps, (long long)facts.start_step,
           (int)facts.ranks, (int)facts.nodes);
    print_text("out", run->out);
    print_checkpoint(&facts);
    print_text("resumed_from", facts.checkpoint);
    print_text("stopped_by", stopped);
    printf(", \"ended_early\": %s", facts.no_improvement ? "true" : "false");
    print_loss("validation_loss_before", facts.validation_first);
    print_loss("validation_loss", facts.validation_last);
    printf(", \"best_step\": ");
    if (facts.best_step > 0)
        printf("%lld", (long long)facts.best_step);
    else
        printf("null");
    print_loss("best_validation_loss", facts.best_step > 0 ? facts.best_loss : NAN);
    printf(", \"memory_peak_bytes\": %lld}\n", (long long)facts.peak_bytes[MICS_MEM_TAGS]);
}
