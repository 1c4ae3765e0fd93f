// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Settling the instruction set. Tables of kernels are numbered best first, in every process alike.
#include "isa.h"
#include "base/text.h"
#include "mics/log.h"
#include "run/job.h"
#include <stdlib.h>
#include <string.h>

// Of the first table that this machine runs.
static int32_t best_here(void)
{
    int32_t index = 0;
    while (index + 1 < mics_kernels_count() && mics_kernels_at(index) == NULL)
        index++;
    return index;
}

static mics_status refuse(mics_memory *memory, const char *asked)
{
    mics_text names = {.memory = memory};
    for (int32_t i = 0; i < mics_kernels_count(); i++) {
        if (mics_kernels_at(i) != NULL)
            mics_text_printf(&names, "%s%s", names.used > 0 ? ", " : "", mics_kernels_at(i)->name);
    }
    mics_status status = mics_text_status(&names);
    if (status == MICS_OK)
        status = mics_fail(MICS_ERR_INVALID,
                           "MICS_ISA is %s, which this machine has no kernels for; it has %s",
                           asked, names.bytes);
    mics_text_fini(&names);
    return status;
}

// What this process may use.
static mics_status find_own(mics_memory *memory, int64_t *index_out)
{
    const char *asked = getenv("MICS_ISA");
    *index_out = best_here();
    if (asked == NULL || *asked == '\0')
        return MICS_OK;
    for (int32_t i = 0; i < mics_kernels_count(); i++) {
        if (mics_kernels_at(i) != NULL && strcmp(mics_kernels_at(i)->name, asked) == 0) {
            *index_out = i;
            return MICS_OK;
        }
    }
    return refuse(memory, asked);
}

static void say(const mics_job *job, const int64_t *all, int64_t common)
{
    int32_t more = 0, first = -1;
    for (int32_t rank = 0; rank < job->world->ranks; rank++) {
        more += all[rank] < common;
        if (first < 0 && all[rank] == common)
            first = rank;
    }
    if (more > 0 && job->world->first == 0)
        mics_log(MICS_LOG_INFO,
                 "all ranks compute with %s, as rank %d has no more; %d of %d ranks have",
                 job->kernels->name, (int)first, (int)more, (int)job->world->ranks);
}

static mics_status take_common(mics_job *job, const int64_t *all)
{
    int64_t common = 0;
    for (int32_t rank = 0; rank < job->world->ranks; rank++)
        common = all[rank] > common ? all[rank] : common;
    job->kernels = mics_kernels_at((int32_t)common);
    if (job->kernels == NULL)
        return mics_fail(MICS_ERR_UNSUPPORTED,
                         "the machines of this run have no instruction set in common");
    say(job, all, common);
    return common > best_here() ? mics_gemm_limit(job->kernels) : MICS_OK;
}

mics_status run_isa_settle(mics_job *job)
{
    int64_t *all = NULL, mine = 0;
    mics_status status = find_own(job->memory, &mine);
    if (status == MICS_OK)
        status = MICS_NEW(job->memory, job->world->ranks, &all);
    status = run_world_agree(job->world, status);
    if (status != MICS_OK || all == NULL) { // one process' failure is that of all
        mics_free(job->memory, all);
        return status;
    }
    status = run_world_gather(job->world, &mine, sizeof mine, all);
    for (int32_t rank = 0; status == MICS_OK && !job->world->mpi && rank < job->world->ranks;
         rank++)
        all[rank] = mine;
    if (status == MICS_OK)
        status = run_world_agree(job->world, take_common(job, all));
    mics_free(job->memory, all);
    return status;
}
