// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Makes a run's schedule, and answers whether it fits before anything is allocated.
#pragma once

#include "config/config.h"
#include "mics/core/schedule.h"
#include "mics/model.h"
#include "mics/run.h"
#include "mics/status.h"
#include "ops/kernels.h"
#include "plan/cost/cluster.h"
#include "plan/search/plan.h"

// What ranks on GPUs compute with.
typedef struct run_accelerator {
    bool used; // else the ranks compute on CPUs
    const mics_kernels
        *kernels;    // NULL where this machine has no GPU, for what is sized and not run
    int32_t devices; // GPUs of this machine, which its ranks take in turn; 0: none
} run_accelerator;

// What the schedule must fit in.
typedef struct run_budget {
    int32_t ranks, nodes;
    int32_t ranks_here; // that share this machine's memory and cores
    size_t staging_bytes;
    size_t host_bytes;  // of the machine's memory, for one rank
    size_t limit_bytes; // for one rank; SIZE_MAX where nobody knows: no GPU here, and nothing set
    // What "auto" may give away to a rank: less than there is by a reserve, and the same whatever
    // else takes memory at the moment; SIZE_MAX as above.
    size_t auto_bytes;
    size_t available_bytes;
    bool limit_is_set;           // by run.memory_limit
    int32_t threads;             // of one rank
    bool shares;                 // ranks of a node can share memory
    run_accelerator accelerator; // whose memory `limit_bytes` is then
    mics_dtype dtype;            // of parameters and activations
} run_budget;

/* Looks at the machine, whose ranks are taken to share memory. Memory of a rank is
 * run.memory_limit, or an equal share of what is available, of the machine or of the GPUs (nobody
 * knows that of GPUs which are not here); threads are run.threads, or an equal share of the cores.
 *
 * Returns: MICS_OK; MICS_ERR_IO.
 */
mics_status run_budget_read(const mics_run *run, int32_t ranks, int32_t nodes, int32_t ranks_here,
                            const run_accelerator *accelerator, run_budget *budget_out);

/* What prefetch and layered micro-steps may fill: neither the reserve, nor what is not there. */
static inline size_t run_budget_auto_bytes(const run_budget *budget)
{
    return budget->auto_bytes < budget->limit_bytes ? budget->auto_bytes : budget->limit_bytes;
}

/* How a schedule calls budget->dtype. */
static inline mics_precision run_budget_precision(const run_budget *budget)
{
    return budget->dtype == MICS_DTYPE_FP32 ? MICS_PRECISION_FP32 : MICS_PRECISION_MIXED;
}

/* Makes the schedule of a resolved run; with "sharding": "auto" what auto.c chooses, which is
 * stored in run->sharding, and then, with run.prefetch "auto", the deepest prefetch that fits, in
 * run->prefetch (0 when none fits). Before that, with run.layered_micro_steps "auto", what layered.c chooses, in
 * run->layered_micro_steps and *layered_out.
 *
 * Returns: MICS_OK; MICS_ERR_INVALID, MICS_ERR_MEMORY, logged.
 * Owns:    the caller closes *schedule_out.
 */
mics_status run_schedule_open(mics_memory *memory, mics_run *run, const mics_model *model,
                              const run_budget *budget, mics_schedule **schedule_out,
                              mics_layered_choice *layered_out);

/* Whether the schedule fits; if not, one error line: what is needed for what, what there is, and
 * which changes would fit (found by making their schedules). */
mics_status run_check_memory(mics_memory *memory, const mics_run *run,
                             const mics_schedule *schedule, const run_budget *budget);

/* Whether a rank has memory for a copy of its part of the state beside the schedule (on GPUs, beside
 * the host copies), so that saves need not stop training. Pure. */
bool run_fits_save_copy(const mics_schedule *schedule, const run_budget *budget, size_t copy_bytes);
