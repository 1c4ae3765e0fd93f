// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Every choice of a planner against its schedule: memory, bounds, extended steps.
#pragma once

#include "mics/core/ledger.h"
#include "plan/search/estimate.h"
#include "plans.h"
#include "schedule/layered.h"

// ---- every choice of a planner ----

typedef void (*visitor)(fixture *f, const mics_plan_choice *choice);

static inline bool is_degree(int degree, int ranks, int per_node)
{
    return ranks % degree == 0 && (per_node % degree == 0 || degree % per_node == 0);
}

// The form of recomputation of case number `index`; of models with few layers some are alike.
static inline mics_recompute form_of(const mics_model *model, int index)
{
    static const mics_recompute forms[] = {
        {0, false, false, false}, {1, false, false, false}, {0, false, true, false},
        {2, true, false, false},  {0, false, false, true},  {1, true, true, true},
        {0, false, true, true},   {2, false, true, false},  {3, false, false, true}};
    const int32_t layers = mics_model_computing_units(model) - 2;
    mics_recompute form = index % 10 == 9 ? mics_recompute_all(true) : forms[index % 10];
    if (index % 10 < 9 && form.units > layers)
        form.units = layers;
    return form;
}

static inline void visit_batches(fixture *f, mics_plan_choice choice, visitor visit)
{
    static const int32_t breadths[] = {0, 2, 1, 4, 3, 100};
    const int32_t sequence = f->sequence > 0 ? f->sequence : 1;
    const int64_t share = f->request.global_batch / (mics_planner_ranks(f->planner) / sequence);
    choice.sequence = sequence;
    for (int64_t micro = 1; micro <= share; micro++) {
        if (share % micro != 0)
            continue;
        choice.micro_batch = micro;
        choice.micro_steps = (int32_t)(share / micro);
        for (int way = 0; way < 8; way++) {
            choice.gather_two_stage = way & 2;
            choice.reduce_two_stage = way & 4;
            for (int ahead = 0; ahead <= MICS_PLAN_MAX_PREFETCH; ahead++) {
                choice.recompute = form_of(f->request.model, 3 * way + ahead + (int)micro);
                choice.prefetch = ahead == MICS_PLAN_MAX_PREFETCH && way % 2 == 1 ? 6 : ahead;
                choice.boundary_two_stage = (way / 2 + ahead) % 2 == 0;
                choice.sums_by_ring = ahead == 2; // of accelerators
                choice.all_reduces = ahead == 1;
                choice.early_gathers = (way / 4 + ahead) % 2 == 0 &&
                                       mics_planner_gathers_early(f->planner, &choice, false);
                choice.offload_units = (way / 2 + ahead + (int)micro) % (f->offload + 1);
                choice.layered_micro_steps = breadths[(way + ahead + (int)micro) % 6];
                visit(f, &choice);
            }
        }
    }
}

static inline void visit_all(fixture *f, visitor visit)
{
    const int ranks = mics_planner_ranks(f->planner);
    const int per_node = ranks / f->request.nodes;
    for (int p = 1; p <= ranks; p++) {
        for (int g = p; g <= ranks; g += p) {
            for (int o = g; o <= ranks; o += g) {
                for (int e = f->experts > 0 ? 1 : p; e <= p; e++) {
                    const mics_plan_choice choice = {.sharding = {p, g, o},
                                                     .experts = f->experts > 0 ? e : 0};
                    if (is_degree(p, ranks, per_node) && is_degree(g, ranks, per_node) &&
                        is_degree(o, ranks, per_node) && is_degree(e, ranks, per_node) &&
                        p % e == 0 && (f->experts == 0 || f->experts % e == 0))
                        visit_batches(f, choice, visit);
                }
            }
        }
    }
}

static inline mics_schedule *schedule_of(fixture *f, const mics_plan_choice *choice)
{
    const mics_plan_request *r = &f->request;
    const bool pairs = r->preference.kind != MICS_PREFERENCE_NONE;
    mics_schedule *schedule = NULL;
    mics_schedule_spec spec = {
        .model = r->model,
        .batch = {choice->micro_batch * (pairs ? 2 : 1),
                  (r->length - 1) / (choice->sequence > 1 ? choice->sequence : 1) + 1,
                  r->threads > 0 ? r->threads : 1},
        .preference = r->preference,
        .micro_steps = choice->micro_steps,
        .prefetch = choice->prefetch,
        .layered_micro_steps = choice->layered_micro_steps,
        .recompute = choice->recompute,
        .offload_units = choice->offload_units,
        .gather = choice->gather_two_stage ? MICS_ALGORITHM_TWO_STAGE : MICS_ALGORITHM_RING,
        .reduce = choice->reduce_two_stage ? MICS_ALGORITHM_TWO_STAGE : MICS_ALGORITHM_RING,
        .boundary = choice->boundary_two_stage ? MICS_ALGORITHM_TWO_STAGE : MICS_ALGORITHM_RING,
        .param_persistence_threshold = r->param_persistence_threshold,
        .coalesce_below = r->coalesce_below,
        .share_params = r->share_params,
        .precision = r->precision,
        .accelerator = r->accelerator,
        .sums_by_ring = choice->sums_by_ring,
        .all_reduces = choice->all_reduces,
        .early_gathers = choice->early_gathers,
        .params_dtype = r->params_dtype,
        .grads_dtype = r->grads_dtype,
        .boundary_dtype = r->boundary_dtype,
        .comm_staging_bytes = r->staging_bytes,
        .node_memory = r->node_memory,
        .optimizer = r->optimizer,
        .rounded_sums = r->rounded_sums,
        .state_dtype = r->state_dtype,
    };
    ASSERT_OK(
        mics_mesh_init(mics_planner_ranks(f->planner), r->nodes, choice->sharding, &spec.mesh));
    if (choice->experts > 1)
        ASSERT_OK(mics_mesh_spread_experts(&spec.mesh, choice->experts));
    ASSERT_OK(mics_mesh_cut_sequences(&spec.mesh, choice->sequence > 1 ? choice->sequence : 1));
    ASSERT_OK(mics_schedule_open(f->memory, &spec, &schedule));
    return schedule;
}

// ---- memory ----

static inline void check_memory(fixture *f, const mics_plan_choice *choice)
{
    mics_schedule *schedule = schedule_of(f, choice);
    double bytes = 0;
    ASSERT_OK(mics_planner_memory(f->planner, choice, &bytes));
    // What is sent directly is counted, and momentum; messages that units share are not.
    const double packed = f->request.accelerator || f->request.precision == MICS_PRECISION_MIXED ||
                                  f->request.optimizer == MICS_OPTIMIZER_MUON
                              ? 0
                              : (double)schedule->ledger.bytes[MICS_MEM_MESSAGES];
    const double expected = (double)schedule->ledger.total - packed;
    if (bytes != expected)
        fail_msg("P|G|O = %d|%d|%d, E = %d, %lld x %d, recompute %d, prefetch %d, "
                 "layered_micro_steps %d: "
                 "%.0f bytes, the "
                 "ledger %.0f",
                 (int)choice->sharding.params, (int)choice->sharding.grads,
                 (int)choice->sharding.optimizer, (int)choice->experts,
                 (long long)choice->micro_batch, (int)choice->micro_steps,
                 (int)choice->recompute.units, (int)choice->prefetch,
                 (int)choice->layered_micro_steps, bytes, expected);
    mics_schedule_close(schedule);
}

// What is left open becomes what a run of that choice would make of it.
static inline void check_layered(fixture *f, const mics_plan_choice *choice)
{
    mics_schedule *schedule = schedule_of(f, choice);
    const mics_layered_need need = mics_schedule_layered_need(schedule);
    const char *why = NULL;
    int32_t number = 0;
    ASSERT_OK(mics_planner_layered(f->planner, choice, &number));
    if (number != mics_layered_auto(&need, &why))
        fail_msg("P|G|O = %d|%d|%d, E = %d, %lld x %d: %d in flight, a run has %d (%s)",
                 (int)choice->sharding.params, (int)choice->sharding.grads,
                 (int)choice->sharding.optimizer, (int)choice->experts,
                 (long long)choice->micro_batch, (int)choice->micro_steps, (int)number,
                 (int)mics_layered_auto(&need, &why), why);
    mics_schedule_close(schedule);
}

// ---- time ----

static inline double simulated_us(fixture *f, const mics_plan_choice *choice)
{
    const mics_simulate_options options = {.math = f->request.math,
                                           .trees = f->request.cluster.pipelined};
    mics_schedule *schedule = schedule_of(f, choice);
    mics_simulation *simulation = NULL;
    ASSERT_OK(mics_simulate(f->memory, schedule, &f->request.cluster, &options, &simulation));
    const double us = simulation->step_us;
    mics_simulation_close(simulation);
    mics_schedule_close(schedule);
    return us;
}

// Shares of its time that a bound was: the largest, the sum and the count of all checked.
static double tightest, sum_of_bounds;
static int64_t bounds;

static inline void check_bound(fixture *f, const mics_plan_choice *choice)
{
    double bound = 0;
    const double us = simulated_us(f, choice);
    ASSERT_OK(mics_planner_bound(f->planner, choice, &bound));
    if (!(bound <= us * (1 + 1e-9)) || !(bound > 0))
        fail_msg("P|G|O = %d|%d|%d, E = %d, %lld x %d, recompute %d, prefetch %d, "
                 "layered_micro_steps %d: "
                 "bound %.6f us, "
                 "simulated %.6f us",
                 (int)choice->sharding.params, (int)choice->sharding.grads,
                 (int)choice->sharding.optimizer, (int)choice->experts,
                 (long long)choice->micro_batch, (int)choice->micro_steps,
                 (int)choice->recompute.units, (int)choice->prefetch,
                 (int)choice->layered_micro_steps, bound, us);
    tightest = bound / us > tightest ? bound / us : tightest;
    sum_of_bounds += bound / us;
    bounds++;
}

static inline void check_extension(fixture *f, const mics_plan_choice *choice)
{
    mics_plan_entry entry;
    if (choice->micro_steps <= 4)
        return;
    const double us = simulated_us(f, choice);
    ASSERT_OK(mics_planner_evaluate(f->planner, choice, &entry));
    assert_close(entry.step_us, us, 1e-9, "an extended step");
    assert_close(entry.compute_us + entry.update_us + entry.exposed_us + entry.overhead_us, us,
                 1e-9, "the sum of its parts");
    mics_schedule *schedule = schedule_of(f, choice);
    assert_int_equal(entry.memory.total, schedule->ledger.total);
    assert_close((double)entry.sent.inter,
                 (double)mics_schedule_all_bytes(schedule, MICS_PHASE_TRAIN).inter, 0, "sent");
    assert_close(entry.hardware_flops, mics_schedule_flops(schedule, MICS_PHASE_TRAIN), 1e-12,
                 "FLOPs");
    mics_schedule_close(schedule);
}

// ---- search ----

static inline void assert_same_entries(const mics_plan_result *a, const mics_plan_result *b)
{
    assert_int_equal(a->count, b->count);
    for (int32_t i = 0; i < a->count; i++) {
        const mics_plan_choice *x = &a->entries[i].choice, *y = &b->entries[i].choice;
        if (x->sharding.params != y->sharding.params || x->sharding.grads != y->sharding.grads ||
            x->sharding.optimizer != y->sharding.optimizer || x->experts != y->experts ||
            x->micro_batch != y->micro_batch || x->micro_steps != y->micro_steps ||
            x->prefetch != y->prefetch || x->layered_micro_steps != y->layered_micro_steps ||
            !mics_recompute_is(x->recompute, y->recompute) ||
            x->gather_two_stage != y->gather_two_stage ||
            x->reduce_two_stage != y->reduce_two_stage)
            fail_msg(
                "entry %d: %s %lld x %d f%d r%d (%.3f us) against %s %lld x %d f%d r%d (%.3f us)",
                (int)i, a->entries[i].name, (long long)x->micro_batch, (int)x->micro_steps,
                (int)x->prefetch, (int)x->recompute.units, a->entries[i].step_us,
                b->entries[i].name, (long long)y->micro_batch, (int)y->micro_steps,
                (int)y->prefetch, (int)y->recompute.units, b->entries[i].step_us);
    }
}
