// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Settles run.layered_micro_steps "auto". The number decides the order of sums, so it follows from
// model, run file and mesh (mics_layered_auto); memory that is not there is the one exception, and
// is told.
#include "base/size.h"
#include "mics/log.h"
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

// The next smaller number that may fit, in even groups.
static int32_t fewer(const mics_schedule *schedule, size_t each_bytes, size_t limit_bytes)
{
    const int32_t number = schedule->spec.layered_micro_steps;
    const size_t missing =
        (schedule->ledger.total - limit_bytes) / (each_bytes > 0 ? each_bytes : 1);
    const int32_t most = missing + 1 < (size_t)number ? number - (int32_t)missing - 1 : 1;
    return mics_schedule_layered_micro_steps(schedule->spec.micro_steps, most);
}

// The number of the rule, or the largest below it that fits.
static mics_status fit(mics_memory *memory, mics_run *run, const mics_model *model,
                       const run_budget *budget, size_t each_bytes, int32_t wanted,
                       mics_schedule **schedule)
{
    MICS_TRY(reopen(memory, run, model, budget, wanted, schedule));
    while ((*schedule)->ledger.total > budget->limit_bytes && run->layered_micro_steps > 1)
        MICS_TRY(reopen(memory, run, model, budget,
                        fewer(*schedule, each_bytes, budget->limit_bytes), schedule));
    return MICS_OK;
}

mics_status run_layered_choose(mics_memory *memory, mics_run *run, const mics_model *model,
                               const run_budget *budget, mics_schedule **schedule,
                               mics_layered_choice *choice_out)
{
    mics_layered_choice choice = {.automatic = true};
    const mics_layered_need need = mics_schedule_layered_need(*schedule);
    const size_t total = (*schedule)->ledger.total;
    choice.wanted = mics_layered_auto(&need, &choice.why);
    choice.inter_bytes_of_one = inter_bytes(*schedule);
    if (choice.wanted > 1)
        MICS_TRY(fit(memory, run, model, budget, need.each_bytes, choice.wanted, schedule));
    choice.number = run->layered_micro_steps = (*schedule)->spec.layered_micro_steps;
    choice.inter_bytes = inter_bytes(*schedule);
    choice.more_bytes = (*schedule)->ledger.total - total;
    choice.each_bytes = need.each_bytes;
    choice.state_bytes = need.state_bytes;
    if (choice.number < choice.wanted)
        choice.why = "auto: as many as fit the memory";
    *choice_out = choice;
    return MICS_OK;
}

void run_layered_warn(const mics_layered_choice *choice, const mics_schedule *schedule,
                      const run_budget *budget)
{
    char limit[32];
    if (choice->number >= choice->wanted || schedule->ledger.total > budget->limit_bytes)
        return;
    mics_log(
        MICS_LOG_WARNING,
        "run.layered_micro_steps \"auto\": %d, as %d do not fit into %s a rank; where they do, "
        "sums have another order, and losses other last digits: %d in the run file gives the "
        "same everywhere, and checkpoints keep it",
        (int)choice->number, (int)choice->wanted,
        mics_size_text((double)budget->limit_bytes, limit, sizeof limit), (int)choice->number);
}
