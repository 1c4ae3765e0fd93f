// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Settles run.layered_micro_steps "auto". The number decides the order of sums, so it follows from
// model, run file and mesh (mics_layered_auto); memory that is not there is the one exception, and
// is told. What a checkpoint has stays as long as it fits.
#include "schedule/layered.h"
#include "base/size.h"
#include "mics/core/ledger.h"
#include "mics/log.h"
#include "run/layered.h"
#include "run/run_schedule.h"
#include "sizing.h"
#include <stdio.h>

static int64_t inter_bytes(const mics_schedule *schedule)
{
    return mics_schedule_all_bytes(schedule, MICS_PHASE_TRAIN).inter;
}

// The schedule with so many, in place of *schedule.
static mics_status reopen(mics_memory *memory, mics_run *run, const mics_model *model,
                          const run_budget *budget, int32_t number, mics_schedule **schedule)
{
    mics_schedule_close(*schedule);
    *schedule = NULL;
    run->layered_micro_steps = number;
    return run_schedule_make(memory, run, model, budget, schedule);
}

// The most micro-batches in flight, at most `wanted`, that fit; the ledger grows with them.
static mics_status fit(mics_memory *memory, mics_run *run, const mics_model *model,
                       const run_budget *budget, size_t limit_bytes, int32_t wanted,
                       mics_schedule **schedule)
{
    int32_t number = wanted, low = 1, high = wanted + 1; // low is one that fits, high is none
    while (high - low > 1) {
        const int32_t even = mics_schedule_layered_micro_steps(run->micro_steps, number);
        MICS_TRY(reopen(memory, run, model, budget, even, schedule));
        if ((*schedule)->ledger.total <= limit_bytes)
            low = number;
        else
            high = even;
        number = low + (high - low) / 2;
    }
    low = mics_schedule_layered_micro_steps(run->micro_steps, low);
    if ((*schedule)->spec.layered_micro_steps == low)
        return MICS_OK;
    return reopen(memory, run, model, budget, low, schedule);
}

// What the checkpoint's run had, at the least prefetch: the number decides sums, prefetch none.
static mics_status keep(mics_memory *memory, mics_run *run, const mics_model *model,
                        const run_budget *budget, mics_schedule **schedule,
                        mics_layered_choice *choice)
{
    const int32_t kept = run->layered_kept, prefetch = run->prefetch;
    choice->wanted = mics_schedule_layered_micro_steps(run->micro_steps, kept);
    if (run->prefetch_auto)
        run->prefetch = 0;
    if (choice->wanted > 1)
        MICS_TRY(fit(memory, run, model, budget, budget->limit_bytes, choice->wanted, schedule));
    run->prefetch = prefetch;
    choice->number = (*schedule)->spec.layered_micro_steps;
    return reopen(memory, run, model, budget,
                  choice->number == choice->wanted ? kept : choice->number, schedule);
}

mics_status run_layered_choose(mics_memory *memory, mics_run *run, const mics_model *model,
                               const run_budget *budget, mics_schedule **schedule,
                               mics_layered_choice *choice_out)
{
    mics_layered_choice choice = {.automatic = true};
    const mics_layered_need need = mics_schedule_layered_need(*schedule);
    const size_t total = (*schedule)->ledger.total;
    choice.inter_bytes_of_one = inter_bytes(*schedule);
    if (run->layered_kept > 0) {
        MICS_TRY(keep(memory, run, model, budget, schedule, &choice));
    } else {
        choice.wanted = mics_layered_auto(&need, &choice.why);
        choice.save_copy_bytes = run_save_copy_room(run, *schedule, budget);
        if (choice.wanted > 1)
            MICS_TRY(fit(memory, run, model, budget,
                         run_budget_auto_bytes(budget) - choice.save_copy_bytes, choice.wanted,
                         schedule));
        choice.number = run->layered_micro_steps = (*schedule)->spec.layered_micro_steps;
    }
    choice.inter_bytes = inter_bytes(*schedule);
    choice.more_bytes = (*schedule)->ledger.total - total;
    choice.each_bytes = need.each_bytes;
    choice.state_bytes = need.state_bytes;
    if (choice.number < choice.wanted)
        choice.why = "auto: as many as fit the memory";
    else if (run->layered_kept > 0)
        choice = (mics_layered_choice){.automatic = false};
    *choice_out = choice;
    return MICS_OK;
}

void run_layered_warn(const mics_run *run, const mics_layered_choice *choice,
                      const mics_schedule *schedule, const run_budget *budget)
{
    char limit[32], copy[32], beside[96] = "";
    if (choice->number >= choice->wanted || schedule->ledger.total > budget->limit_bytes)
        return;
    mics_size_text((double)budget->limit_bytes, limit, sizeof limit);
    if (run->layered_kept > 0) {
        mics_log(MICS_LOG_WARNING,
                 "run.layered_micro_steps: %d, as %d, which the checkpoint has, do not fit into %s "
                 "a rank; sums have another order from here on, and losses other last digits",
                 (int)choice->number, (int)choice->wanted, limit);
        return;
    }
    if (choice->save_copy_bytes > 0)
        snprintf(beside, sizeof beside, ", %s of it for saves while training goes on",
                 mics_size_text((double)choice->save_copy_bytes, copy, sizeof copy));
    mics_log(
        MICS_LOG_WARNING,
        "run.layered_micro_steps \"auto\": %d, as %d do not fit into %s a rank%s; where they do, "
        "sums have another order, and losses other last digits: %d in the run file gives the "
        "same everywhere, and checkpoints keep it",
        (int)choice->number, (int)choice->wanted, limit, beside, (int)choice->number);
}
