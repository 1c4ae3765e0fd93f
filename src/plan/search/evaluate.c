// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// What one choice takes: its schedule's ledger, and its schedule on clocks.
//
// Note 1: extension. A list of t layered groups, each of as many micro-steps, repeats
// itself between the first layered group and the last. Where in a simulated list of PERIOD_GROUPS
// layered groups the second and the third consist of the same steps with the same waits and find
// the same slots, and all their times differ by one constant, everything that was under way when
// they began was the same; so a further layered group between them would take that constant, and so
// would every other. Then the step of t layered groups takes t - PERIOD_GROUPS constants more.
// Otherwise twice as many are simulated; and all of them where layered groups differ.
#include "plan/search/evaluate.h"
#include "mics/core/schedule.h"
#include "mics/log.h"
#include "plan/search/choice.h"
#include "plan/search/planner.h"
#include "plan/search/probe.h"
#include "plan/simulate/simulate.h"
#include "schedule/layered.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { PERIOD_GROUPS = 4, MAX_SLOTS = 64 };

// ---- periods ----

// Begin of a micro-step's part of the list: gathers ahead of it belong to it.
static int32_t first_of(const mics_step_list *list, int32_t micro_step)
{
    int32_t at = 0;
    while (at < list->count && list->steps[at].micro_step != micro_step)
        at++;
    return at;
}

static bool steps_repeat(const mics_step_list *list, int32_t at, int32_t period,
                         int32_t layered_micro_steps)
{
    const mics_step *a = &list->steps[at], *b = &list->steps[at + period];
    if (a->kind != b->kind || a->stage != b->stage || a->unit != b->unit ||
        a->stream != b->stream || a->block_bytes != b->block_bytes ||
        a->micro_step + layered_micro_steps != b->micro_step)
        return false;
    for (int stream = 0; stream < MICS_STREAMS; stream++) {
        // What was waited for before and is not repeated (parameter sync) is done long since.
        if (b->wait[stream] != a->wait[stream] && b->wait[stream] != a->wait[stream] + period)
            return false;
    }
    return true;
}

// A slot as who comes to want one sees it: its size, and how long before that each stream has used
// it.
typedef struct slot_age {
    int64_t elems;
    int32_t steps[MICS_STREAMS]; // one more than `period`: before the group
    bool matched;
} slot_age;

static bool uses_slot(const mics_step *step, int32_t slot, bool grads)
{
    const mics_step_kind fills = grads ? MICS_STEP_REDUCE : MICS_STEP_GATHER;
    const bool moves = mics_step_is_comm(step) && step->kind == fills;
    for (int32_t u = 0; u < (moves ? 1 : step->use_count); u++) {
        if ((grads ? step->uses[u].grad_slot : step->uses[u].param_slot) == slot)
            return true;
    }
    return false;
}

static slot_age age_of(const mics_schedule *schedule, int32_t slot, bool grads, int32_t at,
                       int32_t period)
{
    const mics_step *steps = schedule->lists[MICS_PHASE_TRAIN].steps;
    slot_age age = {.elems = (grads ? schedule->grad_slots : schedule->param_slots)[slot]};
    for (int stream = 0; stream < MICS_STREAMS; stream++)
        age.steps[stream] = period + 1;
    for (int32_t back = 1; back <= period && back <= at; back++) {
        const mics_step *step = &steps[at - back];
        if (age.steps[step->stream] > back && uses_slot(step, slot, grads))
            age.steps[step->stream] = back;
    }
    return age;
}

// Whether a layered group that begins at `next` finds the slots that the one before it found at
// `begin`, in whatever order.
static bool slots_repeat(const mics_schedule *schedule, bool grads, int32_t begin, int32_t next)
{
    const int32_t count = grads ? schedule->grad_slot_count : schedule->param_slot_count;
    slot_age before[MAX_SLOTS];
    if (count > MAX_SLOTS)
        return false;
    for (int32_t slot = 0; slot < count; slot++)
        before[slot] = age_of(schedule, slot, grads, begin, next - begin);
    for (int32_t slot = 0; slot < count; slot++) {
        const slot_age age = age_of(schedule, slot, grads, next, next - begin);
        int32_t like = 0;
        while (like < count && (before[like].matched || before[like].elems != age.elems ||
                                memcmp(before[like].steps, age.steps, sizeof age.steps) != 0))
            like++;
        if (like == count)
            return false;
        before[like].matched = true;
    }
    return true;
}

// Whether the two layered groups before the last one repeat themselves, and how long one takes.
static bool find_period(const mics_schedule *schedule, const mics_simulation *simulation,
                        double *us_out)
{
    const mics_step_list *list = &schedule->lists[MICS_PHASE_TRAIN];
    const mics_step_time *times = simulation->times;
    const int32_t steps = schedule->spec.micro_steps,
                  layered_micro_steps = schedule->spec.layered_micro_steps;
    const int32_t begin = first_of(list, steps - 3 * layered_micro_steps);
    const int32_t next = first_of(list, steps - 2 * layered_micro_steps);
    const int32_t period = next - begin;
    if (next + period > list->count || !slots_repeat(schedule, false, begin, next) ||
        !slots_repeat(schedule, true, begin, next))
        return false;
    const double us = times[next].begin_us - times[begin].begin_us;
    const double close_us = 1e-9 * simulation->step_us;
    for (int32_t i = begin; i < next; i++) {
        const mics_step_time *a = &times[i], *b = &times[i + period];
        if (!steps_repeat(list, i, period, layered_micro_steps) ||
            fabs(b->begin_us - a->begin_us - us) > close_us ||
            fabs(b->end_us - a->end_us - us) > close_us)
            return false;
    }
    *us_out = us;
    return true;
}

// ---- runs ----

// One simulated list, and how to go on from it.
typedef struct simulated {
    mics_schedule *schedule;
    mics_simulation *simulation;
    double period_us; // of a further group
    int32_t further;  // groups that are not simulated
} simulated;

static void close_simulated(simulated *run)
{
    mics_simulation_close(run->simulation);
    mics_schedule_close(run->schedule);
    *run = (simulated){0};
}

static mics_status simulate_steps(mics_planner *planner, const mics_plan_choice *choice,
                                  int32_t micro_steps, simulated *run)
{
    mics_simulate_options options = planner->simulate;
    mics_plan_choice even = *choice;
    const batch_probe *known = find_batch(planner, choice->micro_batch, choice->recompute);
    if (known != NULL)
        options.pass_us = known->pass_us[choice->sharding.grads > planner->experts];
    even.layered_micro_steps =
        mics_schedule_layered_micro_steps(choice->micro_steps, choice->layered_micro_steps);
    MICS_TRY(open_schedule(planner, &even, micro_steps, false, &run->schedule));
    return mics_simulate(planner->memory, run->schedule, &planner->request.cluster, &options,
                         &run->simulation);
}

// Simulates as many layered groups as it takes (note 1). On failure too the run is closed with
// close_simulated.
static mics_status simulate_choice(mics_planner *planner, const mics_plan_choice *choice,
                                   simulated *run)
{
    const int32_t layered_micro_steps =
        mics_schedule_layered_micro_steps(choice->micro_steps, choice->layered_micro_steps);
    const int32_t all = choice_groups(choice);
    for (int32_t groups = PERIOD_GROUPS;
         groups < all && choice->micro_steps % layered_micro_steps == 0 &&
         planner->request.outer.overlap_steps == 0; // else meetings lie among the passes
         groups *= 2) {
        MICS_TRY(simulate_steps(planner, choice, groups * layered_micro_steps, run));
        run->further = all - groups;
        if (find_period(run->schedule, run->simulation, &run->period_us))
            return MICS_OK;
        close_simulated(run);
        if (groups > all / 2)
            break;
    }
    return simulate_steps(planner, choice, choice->micro_steps, run);
}

mics_status time_choice(mics_planner *planner, const mics_plan_choice *choice, double *step_us_out,
                        double *inter_bytes_out, mics_memory_ledger *ledger_out)
{
    simulated run = {0};
    const mics_status status = simulate_choice(planner, choice, &run);
    if (status == MICS_OK) {
        *step_us_out = run.simulation->step_us + run.further * run.period_us;
        *inter_bytes_out = run.further > 0 ? -1 : (double)run.simulation->sent.inter;
        *ledger_out = run.schedule->ledger;
    }
    close_simulated(&run);
    return status;
}

// ---- entries ----

// That a step may send, as in a schedule.
static const double max_bytes = 9e18;

static void take_times(const mics_simulation *s, double sign, mics_plan_entry *entry)
{
    const mics_simulated_kind(*kinds)[MICS_STAGES] = s->kinds;
    entry->step_us += sign * s->step_us;
    entry->compute_us += sign * (kinds[MICS_STEP_FORWARD][MICS_STAGE_WHOLE].busy_us +
                                 kinds[MICS_STEP_BACKWARD][MICS_STAGE_WHOLE].busy_us);
    entry->update_us += sign * (kinds[MICS_STEP_NORM][MICS_STAGE_WHOLE].busy_us +
                                kinds[MICS_STEP_MOMENTUM][MICS_STAGE_WHOLE].busy_us +
                                kinds[MICS_STEP_ORTHOGONALISE][MICS_STAGE_WHOLE].busy_us +
                                kinds[MICS_STEP_UPDATE][MICS_STAGE_WHOLE].busy_us +
                                kinds[MICS_STEP_MEET_CHANGE][MICS_STAGE_WHOLE].busy_us +
                                kinds[MICS_STEP_MEET_UPDATE][MICS_STAGE_WHOLE].busy_us +
                                kinds[MICS_STEP_MEET_ADOPT][MICS_STAGE_WHOLE].busy_us);
    for (int i = 0; i < MICS_STEP_KINDS * MICS_STAGES; i++) {
        const mics_part part = mics_part_of((mics_step_kind)(i / MICS_STAGES));
        const double exposed_us = sign * kinds[i / MICS_STAGES][i % MICS_STAGES].exposed_us;
        if (part == MICS_PART_PARAM_SYNC)
            entry->exposed_param_sync_us += exposed_us;
        if (part == MICS_PART_GATHER)
            entry->exposed_gather_us += exposed_us;
        if (part == MICS_PART_REDUCE)
            entry->exposed_reduce_us += exposed_us;
        if (part == MICS_PART_SECOND_HOP)
            entry->exposed_second_hop_us += exposed_us;
        if (part == MICS_PART_COPY)
            entry->exposed_copy_us += exposed_us;
        if (part == MICS_PART_ALL_TO_ALL)
            entry->exposed_all_to_all_us += exposed_us;
        if (part == MICS_PART_MEETING)
            entry->exposed_other_us += exposed_us;
    }
    entry->exposed_other_us += sign * kinds[MICS_STEP_AGREE][MICS_STAGE_WHOLE].exposed_us;
    entry->exposed_us += sign * s->exposed_us;
    entry->hardware_flops += sign * s->flops;
}

// The mean step of a period in place of one in which nothing meets.
static mics_status add_meetings(const mics_planner *planner, const simulated *run,
                                mics_plan_entry *entry)
{
    mics_simulation *mean = NULL;
    if (planner->request.outer.every == 0)
        return MICS_OK;
    MICS_TRY(mics_simulate_period(planner->memory, run->schedule, &planner->request.cluster,
                                  &planner->simulate, &mean));
    take_times(mean, 1, entry);
    take_times(run->simulation, -1, entry);
    entry->outer = planner->request.outer;
    entry->outer_ranks = planner->ranks;
    entry->meeting_us = mean->step_us - run->simulation->step_us;
    entry->met = mean->met;
    mics_simulation_close(mean);
    return MICS_OK;
}

// What is sent in a step with `further` layered groups more than `s` has, where `t` has one more.
static mics_status take_bytes(const mics_simulation *s, const mics_simulation *t, int32_t further,
                              mics_plan_entry *entry)
{
    const mics_bytes each = {t->sent.intra - s->sent.intra, t->sent.inter - s->sent.inter};
    const double all = (double)s->sent.intra + (double)s->sent.inter +
                       further * ((double)each.intra + (double)each.inter);
    if (all >= max_bytes)
        return mics_fail(MICS_ERR_INVALID,
                         "a step of %d micro-steps sends more than %.0e bytes, which are not "
                         "counted; take a smaller global batch",
                         (int)entry->choice.micro_steps, max_bytes);
    entry->sent =
        (mics_bytes){s->sent.intra + further * each.intra, s->sent.inter + further * each.inter};
    return MICS_OK;
}

// A kind's part of the chain of a step with `further` layered groups more than `s` has, where `t`
// has one more.
static double chain_us(const mics_simulation *s, const mics_simulation *t, double further, int kind,
                       int stage)
{
    const double us = s->kinds[kind][stage].critical_us;
    return us + further * (t->kinds[kind][stage].critical_us - us);
}

static void take_limit(const mics_simulation *s, const mics_simulation *t, double further,
                       mics_plan_entry *entry)
{
    entry->limit = MICS_STEP_BACKWARD;
    entry->limit_stage = MICS_STAGE_WHOLE;
    entry->limit_us = 0;
    for (int i = 0; i < MICS_STEP_KINDS * MICS_STAGES; i++) {
        const int kind = i / MICS_STAGES, stage = i % MICS_STAGES;
        double us = chain_us(s, t, further, kind, stage);
        if (kind == MICS_STEP_FORWARD) // counts as backward
            continue;
        if (kind == MICS_STEP_BACKWARD)
            us += chain_us(s, t, further, MICS_STEP_FORWARD, stage);
        if (us > entry->limit_us) {
            entry->limit = (mics_step_kind)kind;
            entry->limit_stage = (mics_step_stage)stage;
            entry->limit_us = us;
        }
    }
    entry->limit_tier = s->kinds[entry->limit][entry->limit_stage].tier;
    entry->limit_by = s->kinds[entry->limit][entry->limit_stage].limit;
}

void fill_rates(const mics_planner *planner, mics_plan_entry *entry)
{
    const mics_plan_request *request = &planner->request;
    const mics_accelerator *device = &request->cluster.accelerator;
    const double ranks = planner->world, step_s = entry->step_us * 1e-6;
    entry->tokens = (double)(request->global_batch * sequences_each(planner) * request->length);
    entry->model_flops =
        mics_model_flops_per_token(request->model, request->length) * entry->tokens / ranks;
    entry->tokens_per_s = entry->tokens / step_s;
    entry->tflops_per_gpu = entry->model_flops / step_s * 1e-12;
    entry->hardware_tflops_per_gpu = entry->hardware_flops / step_s * 1e-12;
    entry->mfu = entry->model_flops / step_s / device->flops_per_s[request->math];
    entry->usd_per_gtoken =
        request->cluster.usd_per_node_hour * request->nodes / 3600 / entry->tokens_per_s * 1e9;
    entry->reserve_bytes = request->memory_bytes > 0 ? 0 : device->reserve_bytes;
    entry->spare_bytes = planner->available_bytes - (double)entry->memory.total;
    entry->fits = entry->spare_bytes >= 0;
    entry->tight = entry->fits && entry->spare_bytes < request->margin_bytes;
}

static void name_choice(const mics_planner *planner, const mics_sharding *sharding, char *text,
                        size_t capacity)
{
    mics_mesh mesh;
    if (choice_mesh(planner, *sharding, &mesh) == MICS_OK)
        mics_mesh_name(&mesh, text, capacity);
    else
        snprintf(text, capacity, "?");
}

mics_status mics_planner_evaluate(mics_planner *planner, const mics_plan_choice *choice,
                                  mics_plan_entry *entry_out)
{
    simulated run = {0}, more = {0};
    mics_status status = MICS_OK;
    mics_plan_entry entry = {.choice = *choice};
    MICS_TRY(planner_of(planner, choice->experts, choice->sequence, &planner));
    MICS_TRY(check_choice(planner, choice));
    MICS_TRY_OUT(simulate_choice(planner, choice, &run));
    take_times(run.simulation, 1, &entry);
    take_limit(run.simulation, run.simulation, 0, &entry);
    entry.sent = run.simulation->sent;
    if (run.further > 0) { // one more group tells what each adds
        const mics_schedule_spec *spec = &run.schedule->spec;
        const double further = run.further;
        MICS_TRY_OUT(
            simulate_steps(planner, choice, spec->micro_steps + spec->layered_micro_steps, &more));
        take_times(more.simulation, further, &entry);
        take_times(run.simulation, -further, &entry);
        take_limit(run.simulation, more.simulation, further, &entry);
        MICS_TRY_OUT(take_bytes(run.simulation, more.simulation, run.further, &entry));
    }
    entry.step_us = run.simulation->step_us + run.further * run.period_us;
    entry.overhead_us = run.simulation->overhead_us;
    MICS_TRY_OUT(add_meetings(planner, &run, &entry));
    entry.memory = run.schedule->ledger;
    entry.runs =
        choice_runs(planner, choice) &&
        (int64_t)planner->request.min_replicas * choice->sharding.optimizer <= planner->ranks;
    name_choice(planner, &choice->sharding, entry.name, sizeof entry.name);
    fill_rates(planner, &entry);
    *entry_out = entry;
out:
    close_simulated(&run);
    close_simulated(&more);
    return status;
}
