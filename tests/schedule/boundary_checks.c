// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// What a list does once a step: second hops, the norm, updates, and what brings gradients and parameters back.
#include "list_checks.h"
#include "mics/core/ledger.h"
#include "schedule/rules.h"

// After everything that touches the unit's accumulator in the micro-steps.
static void check_after_gradients(const order *o, int32_t unit, int32_t at)
{
    for (int32_t i = 0; i < o->list->count; i++) {
        const mics_step *step = &o->list->steps[i];
        bool touches = (step->kind == MICS_STEP_REDUCE && step->unit == unit) ||
                       (computes(step) && writes(o, step, unit));
        if (touches)
            must_precede(o, i, at, "begins before its gradient is whole");
    }
}

// What the step before updated is synchronised before anybody reads it.
static void check_param_sync(const order *o, int32_t unit, int32_t sync)
{
    for (int32_t i = 0; i < o->list->count; i++) {
        const mics_step *step = &o->list->steps[i];
        const bool gathers = step->unit == unit && step->kind == MICS_STEP_GATHER;
        const bool reads_whole =
            computes(step) && o->schedule->sharding[unit].params == 1 && reads(o, step, unit);
        if (gathers || reads_whole)
            must_precede(o, sync, i, "reads what is not synchronised yet");
    }
}

enum { HOP_STAGES = 2 * MICS_STAGES };

// A chain of stages of the second hop (of the scatter, then of the replica scatter), each `there`
// or not: once each, in order, and all between the last gradient and the norm. Returns the last
// step; -1: none.
static int32_t check_hop(const order *o, int32_t unit, int32_t norm, const bool there[HOP_STAGES])
{
    static const mics_step_stage order_of[] = {MICS_STAGE_WHOLE, MICS_STAGE_INTRA,
                                               MICS_STAGE_INTER};
    int32_t before = -1;
    for (int i = 0; i < HOP_STAGES; i++) {
        int32_t at = -1;
        must_count(o, i < MICS_STAGES ? MICS_STEP_SCATTER : MICS_STEP_REPLICA_SCATTER,
                   order_of[i % MICS_STAGES], unit, -1, there[i], &at);
        if (at < 0)
            continue;
        check_after_gradients(o, unit, at);
        must_precede(o, at, norm, "the norm is of unsummed gradients");
        if (before >= 0)
            must_precede(o, before, at, "the second hop is in the wrong order");
        before = at;
    }
    return before;
}

// A gather of once a list, of a unit, in one stage or two, or not at all: its last step; -1: none.
static int32_t check_once(const order *o, mics_step_kind kind, int32_t unit, bool there,
                          bool stages)
{
    int32_t last = -1, inter = -1;
    must_count(o, kind, MICS_STAGE_WHOLE, unit, -1, there && !stages, &last);
    must_count(o, kind, MICS_STAGE_INTRA, unit, -1, there && stages, &last);
    must_count(o, kind, MICS_STAGE_INTER, unit, -1, there && stages, &inter);
    if (inter >= 0)
        must_precede(o, inter, last, "begins before its first stage has ended");
    return last;
}

// A gradient that comes back early does so behind its sum, and ahead of the end.
static void check_early(const order *o, int32_t summed, int32_t back, int32_t norm)
{
    must_precede(o, summed, back, "brings back what is not summed");
    must_precede(o, back, norm, "ends before all has come back");
}

static int64_t sent_between_nodes(const order *o, mics_step_kind kind)
{
    int64_t sum = 0;
    for (int stage = 0; stage < MICS_STAGES; stage++)
        sum += mics_schedule_kind_bytes(o->schedule, o->phase, kind, (mics_step_stage)stage).inter;
    return sum;
}

// Gradients come back early if parameter syncs are twice as many bytes between nodes. (A ring is a
// little more than two stages, which the rule goes by.)
static void check_if_early(const order *o)
{
    const mics_schedule_spec *spec = &o->schedule->spec;
    const int64_t back = sent_between_nodes(o, MICS_STEP_REPLICA_GATHER),
                  sync = sent_between_nodes(o, MICS_STEP_PARAM_SYNC);
    const bool syncs = spec->mesh.sharding.params <= spec->mesh.ranks_per_node;
    if (back > 0 && spec->boundary == MICS_ALGORITHM_TWO_STAGE)
        assert_int_equal(mics_schedule_early_by_rule(spec), syncs && 2 * back <= sync);
}

// What the step before left of a unit: its gradient comes back, unless it has, then it is updated,
// and then its parameters are sent or read, and its accumulator written.
static void check_deferred(const order *o, int32_t unit, int32_t back, int32_t update, int32_t sync)
{
    if (back >= 0 && !o->schedule->spec.early_gathers)
        must_precede(o, back, update, "updates with what has not come back");
    if (sync >= 0)
        must_precede(o, update, sync, "is synchronised before it is updated");
    for (int32_t i = 0; i < o->list->count; i++) {
        const mics_step *step = &o->list->steps[i];
        const bool gathers = step->kind == MICS_STEP_GATHER && step->unit == unit;
        const bool reduces = step->kind == MICS_STEP_REDUCE && step->unit == unit;
        if (gathers || reduces ||
            (computes(step) && (reads(o, step, unit) || writes(o, step, unit))))
            must_precede(o, update, i, "comes before the update that is due");
    }
}

// Where nobody waits for a unit's update but computation, it is directly before the first pass that
// touches the unit: what is computed before waits for no gradient of it.
static void check_late(const order *o, int32_t unit, int32_t update)
{
    const mics_sharding s = o->schedule->sharding[unit];
    int32_t next = update + 1;
    if (s.optimizer > s.params || (s.params > 1 && !is_shared(o, unit)))
        return;
    while (next < o->list->count && !computes(&o->list->steps[next]))
        next++;
    const mics_step *pass = &o->list->steps[next];
    if (pass->unit != unit && !reads(o, pass, unit) && !writes(o, pass, unit))
        fail_at(o, update, "is earlier than it must be");
}

// One other visit's passes at most are between a unit's update and the first that touches the unit:
// computation waits for no later replica gather. A unit that shares its message with others is
// updated with the first of them.
static void check_not_early(const order *o, int32_t unit, int32_t update)
{
    const mics_step *visit = NULL;
    int32_t visits = 0;
    for (int32_t i = 0; i < o->list->count; i++) {
        if (o->list->steps[i].kind == MICS_STEP_PARAM_SYNC && o->list->steps[i].member_count > 0)
            return;
    }
    for (int32_t i = update + 1; i < o->list->count; i++) {
        const mics_step *step = &o->list->steps[i];
        if (!computes(step))
            continue;
        if (step->unit == unit || reads(o, step, unit) || writes(o, step, unit))
            break;
        visits += visit == NULL || visit->unit != step->unit || visit->kind != step->kind;
        visit = step;
    }
    const mics_schedule_spec *spec = &o->schedule->spec; // early: there is none to wait for
    if (visits > (spec->early_gathers && spec->prefetch > 1 ? spec->prefetch : 1))
        fail_at(o, update, "waits for what a later visit needs");
}

// How many visits come before the first that touches a unit.
static int32_t visits_before(const order *o, int32_t unit)
{
    const mics_step *visit = NULL;
    int32_t visits = -1;
    for (int32_t i = 0; i < o->list->count; i++) {
        const mics_step *step = &o->list->steps[i];
        if (!computes(step))
            continue;
        visits += visit == NULL || visit->unit != step->unit || visit->kind != step->kind;
        visit = step;
        if (step->unit == unit || reads(o, step, unit) || writes(o, step, unit))
            break;
    }
    return visits;
}

enum { MAX_UNITS = 16 }; // of this file's models

// What sends a unit after its update waits on its stream for replica gathers of one visit more than
// its own, not for those of all that is gathered ahead.
static void check_back_in_turn(const order *o)
{
    bool sent[MAX_UNITS] = {false};
    assert_in_range(o->schedule->spec.model->unit_count, 1, MAX_UNITS);
    if (o->schedule->spec.coalesce_below > 0 || o->schedule->spec.early_gathers)
        return;
    for (int32_t i = 0; i < o->list->count; i++) {
        const mics_step *send = &o->list->steps[i];
        const bool sends = send->kind == MICS_STEP_GATHER || send->kind == MICS_STEP_PARAM_SYNC;
        if (!sends || send->stream != MICS_STREAM_INTER || sent[send->unit])
            continue;
        const int32_t visits = visits_before(o, send->unit);
        sent[send->unit] = true;
        for (int32_t back = 0; back < i; back++) {
            const mics_step *step = &o->list->steps[back];
            if (step->kind == MICS_STEP_REPLICA_GATHER && step->stream == MICS_STREAM_INTER &&
                visits_before(o, step->unit) > visits + 1)
                fail_at(o, i, "is behind a replica gather that a later visit needs");
        }
    }
}

// Second hop and parameter sync (of units with parameters) and update of one unit: once each, in
// order.
static void check_boundary_unit(const order *o, int32_t unit, int32_t norm, int32_t agree)
{
    const mics_mesh *mesh = &o->schedule->spec.mesh;
    const mics_sharding s = o->schedule->sharding[unit];
    const int32_t k = mesh->ranks_per_node;
    const bool stages = o->schedule->spec.boundary == MICS_ALGORITHM_TWO_STAGE;
    const bool summed = has_params(o, unit), reduces = summed && mesh->ranks > s.optimizer;
    const bool scatters = summed && s.optimizer > s.grads;
    const bool two = stages && s.grads < k && k < s.optimizer;
    const bool replicas_two = stages && s.optimizer < k && k < mesh->ranks;
    const bool hop[HOP_STAGES] = {scatters && !two,        scatters && two,
                                  scatters && two,         reduces && !replicas_two,
                                  reduces && replicas_two, reduces && replicas_two};
    const int32_t back = check_once(o, MICS_STEP_REPLICA_GATHER, unit, reduces, replicas_two);
    const int32_t sync = check_once(o, MICS_STEP_PARAM_SYNC, unit, summed && s.optimizer > s.params,
                                    stages && s.params < k && k < s.optimizer);
    int32_t update = -1;
    must_count(o, MICS_STEP_UPDATE, MICS_STAGE_WHOLE, unit, -1, 1, &update);
    check_after_gradients(o, unit, norm);
    const int32_t last = check_hop(o, unit, norm, hop);
    if (back >= 0 && o->schedule->spec.early_gathers)
        check_early(o, last, back, norm);
    if (sync >= 0)
        check_param_sync(o, unit, sync);
    if (mesh->ranks > s.optimizer) {
        check_deferred(o, unit, back, update, sync);
        check_late(o, unit, update);
        check_not_early(o, unit, update);
        return;
    }
    must_precede(o, agree, update, "updates before all ranks agree");
    if (sync >= 0)
        must_precede(o, sync, update, "is synchronised while it changes");
}

void check_boundary(const order *o)
{
    const int32_t norm = only_step(o, MICS_STEP_NORM), agree = only_step(o, MICS_STEP_AGREE);
    must_precede(o, norm, agree, "agrees on no norm");
    for (int32_t u = 0; u < o->schedule->spec.model->unit_count; u++)
        check_boundary_unit(o, u, norm, agree);
    check_back_in_turn(o);
    check_if_early(o);
    for (int32_t i = 0; i < o->list->count; i++) {
        const mics_step *step = &o->list->steps[i];
        if (step->kind == MICS_STEP_GATHER || computes(step))
            must_precede(o, i, agree, "parameters change while they are read");
    }
}
