// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// A job from opening to its end, whose memory is what the schedule says, to the byte.
#pragma once

#include "base/capture.h"
#include "mics/log.h"
#include "mics/run.h"
#include "test.h"

// What it tells goes to `lines`.
static mics_status open_told(const mics_job_spec *spec, char *lines, mics_job **job_out)
{
    mics_log_set_sink(capture_lines, lines);
    const mics_status status = mics_job_open(spec, job_out);
    mics_log_set_sink(NULL, NULL);
    return status;
}

// Trains and closes; until > 0: to that step, which is saved.
static mics_job_facts train_exactly(mics_job *job, int64_t until)
{
    ASSERT_OK(mics_job_train(job, until));
    const mics_job_facts facts = mics_job_facts_get(job);
    const mics_memory_ledger *ledger = &mics_job_schedule(job)->ledger;
    for (int tag = 0; tag < MICS_MEM_HOST; tag++)
        assert_int_equal(facts.peak_bytes[tag], ledger->bytes[tag]);
    if (until > 0)
        ASSERT_OK(mics_job_save(job));
    ASSERT_OK(mics_job_close(job));
    return facts;
}
