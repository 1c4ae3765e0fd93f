// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Sentences about entries: what limits the winner, where others lose time to it, what does not fit.
#include "mics/size.h"
#include "plan/internal.h"
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

MICS_PRINTF(2, 3) static void add(mics_plan_entry *entry, const char *format, ...)
{
    const size_t used = strlen(entry->why);
    va_list args;
    va_start(args, format);
    vsnprintf(entry->why + used, sizeof entry->why - used, format, args);
    va_end(args);
}

// ---- what does not fit ----

// The kind of memory that takes the most.
static mics_memory_tag largest_tag(const mics_memory_ledger *memory)
{
    int largest = 0;
    for (int tag = 1; tag < MICS_MEM_TAGS; tag++) {
        if (memory->bytes[tag] > memory->bytes[largest])
            largest = tag;
    }
    return (mics_memory_tag)largest;
}

static void explain_missing(mics_plan_entry *entry)
{
    char missing[32], most[32];
    const mics_memory_tag tag = largest_tag(&entry->memory);
    add(entry, "does not fit: lacks %s a rank; the most is for %s, %s",
        mics_size_text(-entry->spare_bytes, missing, sizeof missing), mics_memory_tag_text(tag),
        mics_size_text((double)entry->memory.bytes[tag], most, sizeof most));
}

// ---- what limits ----

static const char *tier_text(const mics_planner *planner, int32_t tier)
{
    const mics_cluster *cluster = &planner->request.cluster;
    return tier >= 0 && tier < cluster->tier_count ? cluster->tiers[tier].name : "?";
}

// Where time goes in a pipeline.
static void explain_pipeline(mics_plan_entry *entry)
{
    const mics_plan_pipeline *p = &entry->pipeline;
    add(entry, "the bubble takes %.1f %% of the step, sends and tensor-parallel sums %.1f %%",
        100 * p->bubble_us / entry->step_us,
        100 * (entry->exposed_other_us - p->bubble_us) / entry->step_us);
}

static void explain_limit(const mics_planner *planner, mics_plan_entry *entry)
{
    const double share = 100 * entry->limit_us / entry->step_us;
    if (entry->limit == MICS_STEP_BACKWARD || entry->limit == MICS_STEP_FORWARD)
        add(entry, "limited by computation (%.0f %% of the step)", share);
    else if (entry->limit_tier < 0)
        add(entry, "limited by %s (%.0f %%)", mics_step_kind_text(entry->limit), share);
    else
        add(entry, "limited by %s over the links of %s, by %s (%.0f %% of the step)",
            mics_step_kind_text(entry->limit), tier_text(planner, entry->limit_tier),
            mics_cost_limit_text(entry->limit_by), share);
}

// How far parameters travel.
static void explain_reach(const mics_planner *planner, mics_plan_entry *entry)
{
    const mics_plan_choice *c = &entry->choice;
    const int32_t per_node = planner->ranks_per_node;
    if (c->sharding.params == 1)
        add(entry, "every rank holds all parameters, so none are gathered; ");
    else if (c->sharding.params <= per_node)
        add(entry, "parameters are gathered inside nodes alone; ");
    else
        add(entry, "parameters are gathered over %d nodes%s; ",
            (int)(c->sharding.params / per_node), c->gather_two_stage ? " in two stages" : "");
    if (planner->request.nodes > 1 && c->sharding.grads <= per_node && c->sharding.grads > 1 &&
        c->micro_steps > 1)
        add(entry, "gradients leave the node once in %d micro-steps; ", (int)c->micro_steps);
}

static void explain_winner(const mics_planner *planner, mics_plan_entry *entry)
{
    char spare[32];
    explain_reach(planner, entry);
    explain_limit(planner, entry);
    add(entry, "; computation waits for %.1f %% of the step",
        100 * entry->exposed_us / entry->step_us);
    add(entry, "; %s a rank to spare", mics_size_text(entry->spare_bytes, spare, sizeof spare));
}

// ---- where time is lost ----

typedef struct part {
    const char *name;
    double us; // more than the best
} part;

static const char *time_text(double us, char text[32])
{
    if (us < 1e6)
        snprintf(text, 32, "%.3g ms", us * 1e-3);
    else
        snprintf(text, 32, "%.3g s", us * 1e-6);
    return text;
}

static void explain_loss(const mics_planner *planner, const mics_plan_entry *best,
                         mics_plan_entry *entry)
{
    part parts[] = {
        {"computation", entry->compute_us - best->compute_us},
        {"update", entry->update_us - best->update_us},
        {"exposed publication", entry->exposed_publish_us - best->exposed_publish_us},
        {"exposed gathers", entry->exposed_gather_us - best->exposed_gather_us},
        {"exposed reductions", entry->exposed_reduce_us - best->exposed_reduce_us},
        {"exposed second hop", entry->exposed_second_hop_us - best->exposed_second_hop_us},
        {entry->pipeline.stages > 0 ? "bubble, sends and tensor-parallel sums" : "agreement",
         entry->exposed_other_us - best->exposed_other_us},
    };
    const int count = sizeof parts / sizeof parts[0];
    const double more_us = entry->step_us - best->step_us;
    add(entry, "%.2f %% %s: ", 100 * fabs(more_us) / best->step_us,
        more_us < 0 ? "faster" : "slower");
    int said = 0;
    char text[32];
    for (; said < 2; said++) {
        int most = 0;
        for (int i = 1; i < count; i++) {
            if (parts[i].us > parts[most].us)
                most = i;
        }
        if (parts[most].us <= 0 || (said > 0 && parts[most].us < 0.1 * fabs(more_us)))
            break;
        add(entry, "%s+%s %s", said > 0 ? ", " : "", time_text(parts[most].us, text),
            parts[most].name);
        parts[most].us = 0;
    }
    if (said == 0)
        add(entry, "nothing takes longer");
    add(entry, "; ");
    if (entry->pipeline.stages > 0)
        explain_pipeline(entry);
    else
        explain_limit(planner, entry);
}

void mics_plan_explain(const mics_planner *planner, const mics_plan_entry *best,
                       mics_plan_entry *entry)
{
    entry->why[0] = '\0';
    if (!entry->fits)
        explain_missing(entry);
    else if (best == NULL || best == entry)
        explain_winner(planner, entry);
    else
        explain_loss(planner, best, entry);
}
