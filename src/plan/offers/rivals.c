// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Baselines that need words of their own: Megatron's with fixed degrees, batches that only it can
// run, and the paper's sharding where ZeRO-3 beats it.
#include "rivals.h"
#include "base/size.h"
#include "mics/log.h"
#include "plan/search/baseline.h"
#include <stdio.h>
#include <string.h>

mics_status offers_find_megatron(const mics_plan *plan, mics_plan_found *found)
{
    const mics_plan_space space = {.pipeline = plan->pipeline};
    return mics_planner_baseline(found->rivals, &space, MICS_PLAN_MEGATRON,
                                 &found->baselines[MICS_PLAN_MEGATRON]);
}

static void write_rival(const mics_plan_entry *entry, char *text, size_t bytes)
{
    text[0] = '\0';
    if (entry->fits && entry->choice.micro_batch > 0)
        snprintf(text, bytes, "; %s would take %.3g s a step; mics cannot run it", entry->name,
                 entry->step_us * 1e-6);
}

void offers_rival_text(const mics_plan *plan, const mics_plan_found *found, char *text,
                       size_t bytes)
{
    const mics_plan_space space = {.pipeline = plan->pipeline};
    mics_plan_entry entry = {.fits = false};
    (void)mics_planner_baseline(found->rivals, &space, MICS_PLAN_MEGATRON, &entry);
    write_rival(&entry, text, bytes);
}

mics_status offers_note_nothing(const mics_plan *plan, mics_plan_found *found, char *text,
                                size_t bytes)
{
    const mics_plan_entry *nearest = &found->result->nearest;
    char missing[32], rival[128];
    MICS_TRY(offers_find_megatron(plan, found));
    write_rival(&found->baselines[MICS_PLAN_MEGATRON], rival, sizeof rival);
    snprintf(text, bytes, "nothing fits: %s lacks the least, %s a rank%s", nearest->name,
             mics_size_text(-nearest->spare_bytes, missing, sizeof missing), rival);
    return MICS_OK;
}

// ---- why ----

bool offers_fixes_degrees(const mics_plan_pipeline *p)
{
    return p->tensor > 0 || p->stages > 0 || p->chunks > 0 || p->context > 0 || p->expert > 0;
}

static bool has_no_cut(const mics_plan *plan, const mics_plan_found *found)
{
    return offers_fixes_degrees(&plan->pipeline) && found->planner != NULL &&
           found->baselines[MICS_PLAN_MEGATRON].choice.micro_batch == 0;
}

// Degrees that the ranks have, but whose replicas cannot share the batch, or whose micro-batches
// are no multiple of the stages.
static void explain_no_cut(const mics_plan *plan, mics_plan_found *found)
{
    char *why = found->baselines[MICS_PLAN_MEGATRON].why;
    if (!has_no_cut(plan, found))
        return;
    mics_planner_no_cut(found->planner, &plan->pipeline, why, MICS_PLAN_WHY_BYTES);
    if (why[0] == '\0')
        snprintf(
            why, MICS_PLAN_WHY_BYTES,
            "no cut with these degrees: the replicas share the batch evenly, and micro-steps are "
            "a multiple of p where v > 1");
}

mics_status mics_plan_check_degrees(const mics_plan *plan, const mics_plan_found *found)
{
    const mics_plan_entry *megatron = &found->baselines[MICS_PLAN_MEGATRON];
    char why[MICS_PLAN_WHY_BYTES] = "";
    if (!has_no_cut(plan, found))
        return MICS_OK;
    if (found->result->count == 0) // megatron was not looked for then
        mics_planner_no_cut(found->planner, &plan->pipeline, why, sizeof why);
    else
        snprintf(why, sizeof why, "%s", megatron->why);
    if (why[0] == '\0')
        return MICS_OK;
    return mics_fail(MICS_ERR_INVALID, "megatron on %d ranks: %s",
                     (int)mics_planner_ranks(found->planner), why);
}

static double state_bytes(const mics_plan_entry *entry)
{
    const size_t *bytes = entry->memory.bytes;
    return (double)(bytes[MICS_MEM_PARAMS] + bytes[MICS_MEM_GRADS] + bytes[MICS_MEM_OPTIMIZER]);
}

// Shards of the paper's size hold more than ZeRO-3's. What that takes from activations costs
// gathers: smaller micro-batches are more micro-steps, and each gathers again.
static void explain_mics(const mics_plan_found *found, mics_plan_entry *mics)
{
    const mics_plan_entry *zero3 = &found->baselines[MICS_PLAN_ZERO3];
    const mics_plan_choice *own = &mics->choice, *other = &zero3->choice;
    const size_t used = strlen(mics->why);
    char more[32], less[32], so[96] = "";
    if (!mics->fits || !zero3->fits || mics->step_us <= 1.01 * zero3->step_us ||
        state_bytes(mics) <= state_bytes(zero3)) // no group is smaller than all ranks
        return;
    if (own->micro_batch < other->micro_batch)
        snprintf(so, sizeof so, "micro-batch %lld x %d, not %lld x %d", (long long)own->micro_batch,
                 (int)own->micro_steps, (long long)other->micro_batch, (int)other->micro_steps);
    else if (mics_recomputes(own->recompute) && !mics_recomputes(other->recompute))
        snprintf(so, sizeof so, "recomputation");
    else
        return;
    snprintf(mics->why + used, sizeof mics->why - used,
             "; slower than zero3, as its states take %s a rank, not %s: memory is left for %s",
             mics_size_text(state_bytes(mics), more, sizeof more),
             mics_size_text(state_bytes(zero3), less, sizeof less), so);
}

void offers_explain_rivals(const mics_plan *plan, mics_plan_found *found)
{
    explain_no_cut(plan, found);
    explain_mics(found, &found->baselines[MICS_PLAN_MICS]);
}
