// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Sentences about entries: what limits the winner, where others lose time to it, what does not fit.
#include "base/size.h"
#include "base/text.h"
#include "plan/search/baseline.h"
#include "plan/search/planner.h"
#include "schedule/layered.h"
#include <math.h>
#include <stdarg.h>
#include <string.h>

MICS_PRINTF(2, 3) static void add(mics_plan_entry *entry, const char *format, ...)
{
    const size_t used = strlen(entry->why);
    va_list args;
    va_start(args, format);
    mics_text_vformat(entry->why + used, sizeof entry->why - used, format, args);
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
    add(entry,
        "the bubble takes %.1f %% of the step, collectives and sends between computations %.1f %%",
        100 * p->bubble_us / entry->step_us,
        100 * (entry->exposed_other_us - p->bubble_us) / entry->step_us);
}

// What steps of a kind do, as the tables call it.
static const char *work_text(mics_step_kind kind)
{
    static const char *const texts[MICS_STEP_KINDS] = {
        [MICS_STEP_FORWARD] = "computation",
        [MICS_STEP_BACKWARD] = "computation",
        [MICS_STEP_GATHER] = "gathers",
        [MICS_STEP_REDUCE] = "reductions",
        [MICS_STEP_SCATTER] = "the second hop",
        [MICS_STEP_REPLICA_SCATTER] = "the second hop",
        [MICS_STEP_REPLICA_GATHER] = "the second hop",
        [MICS_STEP_ALL_TO_ALL] = "all-to-alls",
        [MICS_STEP_SIZES] = "parameter sync",
        [MICS_STEP_PARAM_SYNC] = "parameter sync",
        [MICS_STEP_NORM] = "the gradient's norm",
        [MICS_STEP_AGREE] = "agreement",
        [MICS_STEP_MOMENTUM] = "the update",
        [MICS_STEP_MOMENTUM_TO_OWNERS] = "momentum to owners",
        [MICS_STEP_ORTHOGONALISE] = "the update",
        [MICS_STEP_MOMENTUM_BACK] = "momentum from owners",
        [MICS_STEP_UPDATE] = "the update",
        [MICS_STEP_STORE] = "copies to host memory",
        [MICS_STEP_FETCH] = "copies from host memory",
        [MICS_STEP_AGREE_WORLD] = "what islands tell each other",
    };
    return (unsigned)kind < MICS_STEP_KINDS ? texts[kind] : "?";
}

static const char *stage_text(mics_step_stage stage)
{
    return stage == MICS_STAGE_WHOLE   ? ""
           : stage == MICS_STAGE_INTER ? ", inter-node"
                                       : ", intra-node";
}

// What of a tier's links sets the pace.
static const char *pace_text(mics_cost_limit limit)
{
    switch (limit) {
    case MICS_COST_BY_LINK:
        return "full links";
    case MICS_COST_BY_RANK:
        return "one rank's rate";
    default:
        return mics_cost_limit_text(limit);
    }
}

static void explain_limit(const mics_planner *planner, mics_plan_entry *entry)
{
    char host[32];
    if (entry->choice.offload_units > 0)
        add(entry, "host memory holds activations of %d unit%s, %s a rank; ",
            (int)entry->choice.offload_units, entry->choice.offload_units == 1 ? "" : "s",
            mics_size_text((double)entry->memory.bytes[MICS_MEM_OFFLOAD], host, sizeof host));
    add(entry, "limited by %s%s (%.0f %% of the step", work_text(entry->limit),
        stage_text(entry->limit_stage), 100 * entry->limit_us / entry->step_us);
    if (entry->limit_tier >= 0)
        add(entry, "; %s in tier %s", pace_text(entry->limit_by),
            tier_text(planner, entry->limit_tier));
    add(entry, ")");
}

// How far parameters travel.
static void explain_reach(const mics_planner *planner, mics_plan_entry *entry)
{
    const mics_plan_choice *c = &entry->choice;
    const int32_t per_node = planner->ranks_per_node;
    if (c->sharding.params == 1)
        add(entry, "every rank holds all parameters, so none are gathered; ");
    else if (c->sharding.params <= per_node)
        add(entry, "parameters are gathered intra-node alone; ");
    else
        add(entry, "parameters are gathered over %d nodes%s; ",
            (int)(c->sharding.params / per_node), c->gather_two_stage ? " in two stages" : "");
    if (c->sequence > 1)
        add(entry, "%d ranks share each sequence; ", (int)c->sequence);
    if (c->experts > 1)
        add(entry, "tokens travel to experts on %d ranks%s; ", (int)c->experts,
            c->experts > per_node ? " of several nodes" : "");
    if (planner->request.nodes > 1 && c->sharding.grads <= per_node && c->sharding.grads > 1 &&
        c->micro_steps > 1 && entry->outer.every == 0)
        add(entry, "gradients leave the node once in %d micro-steps; ", (int)c->micro_steps);
    if (c->layered_micro_steps > 1)
        add(entry, "%d micro-steps are layered; ",
            (int)mics_schedule_layered_micro_steps(c->micro_steps, c->layered_micro_steps));
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

// Steps that differ by less take the same.
static const double SAME_US = 1e-3;

typedef struct part {
    const char *name;
    double us; // more than the best
} part;

static const char *time_text(double us, char text[32])
{
    if (us < 1e6)
        mics_text_format(text, 32, "%.3g ms", us * 1e-3);
    else
        mics_text_format(text, 32, "%.3g s", us * 1e-6);
    return text;
}

// The one or two parts that make most of a difference.
static void explain_parts(const mics_plan_entry *best, double more_us, mics_plan_entry *entry)
{
    const double sign = more_us < 0 ? -1 : 1;
    part parts[] = {
        {"computation", entry->compute_us - best->compute_us},
        {"update", entry->update_us - best->update_us},
        {"exposed parameter sync", entry->exposed_param_sync_us - best->exposed_param_sync_us},
        {"exposed gathers", entry->exposed_gather_us - best->exposed_gather_us},
        {"exposed reductions", entry->exposed_reduce_us - best->exposed_reduce_us},
        {"exposed second hop", entry->exposed_second_hop_us - best->exposed_second_hop_us},
        {"exposed copies", entry->exposed_copy_us - best->exposed_copy_us},
        {"exposed all-to-alls", entry->exposed_all_to_all_us - best->exposed_all_to_all_us},
        {entry->pipeline.stages > 0 ? "bubble, collectives and sends" : "agreement",
         entry->exposed_other_us - best->exposed_other_us},
    };
    const int count = sizeof parts / sizeof parts[0];
    char text[32];
    for (int said = 0; said < 2; said++) {
        int most = 0;
        for (int i = 1; i < count; i++) {
            if (sign * parts[i].us > sign * parts[most].us)
                most = i;
        }
        const double us = sign * parts[most].us;
        if (us <= 0 || (said > 0 && us < 0.1 * fabs(more_us)))
            break;
        add(entry, "%s%c%s %s", said > 0 ? ", " : ": ", more_us < 0 ? '-' : '+',
            time_text(us, text), parts[most].name);
        parts[most].us = 0;
    }
}

static void explain_loss(const mics_planner *planner, const mics_plan_entry *best,
                         mics_plan_entry *entry)
{
    const double more_us = entry->step_us - best->step_us;
    if (fabs(more_us) < SAME_US)
        add(entry, "as fast as the best plan");
    else {
        add(entry, "%.2f %% %s", 100 * fabs(more_us) / best->step_us,
            more_us < 0 ? "faster" : "slower");
        explain_parts(best, more_us, entry);
        if (more_us < 0 && entry->choice.sums_by_ring &&
            planner->request.precision == MICS_PRECISION_MIXED)
            add(entry, "; its rings round sums to 2 bytes at every rank, which mics does not");
    }
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
    if (entry->choice.micro_batch == 0)
        add(entry, "%s",
            not_modelled_text(planner) != NULL ? not_modelled_text(planner)
                                               : "there is no cut of this model and batch");
    else if (!entry->fits)
        explain_missing(entry);
    else if (best == NULL || best == entry || entry->outer.every > 0)
        explain_winner(planner, entry);
    else
        explain_loss(planner, best, entry);
}
