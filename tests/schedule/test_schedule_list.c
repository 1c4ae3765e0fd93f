// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Checks the list of steps under every interleaving that its waits allow: what a step reads has
// been written, nothing is written while another step may still read it, and every gradient is
// reduced and every parameter updated as often as it must be.
//
// Step a is done before step b begins when both are on one stream and a is listed first, or when b,
// or a step before b on its stream, waits for a, for one after a on a's stream, or for a step that
// a precedes: vector clocks, one entry a stream.
#include "mics/schedule.h"
#include "models.h"
#include <stdlib.h>
#include <string.h>

// ---- the order ----

typedef struct order {
    const mics_schedule *schedule;
    const mics_step_list *list;
    mics_phase phase;
    int32_t (
        *known)[MICS_STREAMS]; // by step and stream: newest step that is done when it begins; -1
} order;

static void fail_at(const order *o, int32_t step, const char *why)
{
    const mics_step *s = &o->list->steps[step];
    char name[64];
    fail_msg("%s, %d micro-steps, %d side by side, prefetch %d, %s: step %d (%s of unit %d, "
             "micro-step %d): %s",
             mics_mesh_name(&o->schedule->spec.mesh, name, sizeof name),
             (int)o->schedule->spec.micro_steps, (int)o->schedule->spec.layered_micro_steps,
             (int)o->schedule->spec.prefetch,
             o->phase == MICS_PHASE_TRAIN ? "training" : "evaluation", (int)step,
             mics_step_text(s->kind, s->stage), (int)s->unit, (int)s->micro_step, why);
}

// Takes in that a step is done, and all that it knew.
static void learn(const order *o, int32_t knows[MICS_STREAMS], int32_t waited)
{
    for (int stream = 0; waited >= 0 && stream < MICS_STREAMS; stream++) {
        if (o->known[waited][stream] > knows[stream])
            knows[stream] = o->known[waited][stream];
    }
    if (waited >= 0 && waited > knows[o->list->steps[waited].stream])
        knows[o->list->steps[waited].stream] = waited;
}

static void order_open(order *o, const mics_schedule *schedule, mics_phase phase)
{
    *o = (order){.schedule = schedule, .list = &schedule->lists[phase], .phase = phase};
    int32_t newest[MICS_STREAMS][MICS_STREAMS]; // by stream: what its newest step knows
    for (int stream = 0; stream < MICS_STREAMS; stream++) {
        for (int other = 0; other < MICS_STREAMS; other++)
            newest[stream][other] = -1;
    }
    o->known = calloc((size_t)o->list->count, sizeof *o->known);
    assert_non_null(o->known);
    for (int32_t i = 0; i < o->list->count; i++) {
        const mics_step *step = &o->list->steps[i];
        int32_t *knows = newest[step->stream];
        for (int stream = 0; stream < MICS_STREAMS; stream++) {
            const int32_t waited = step->wait[stream];
            if (waited >= i)
                fail_at(o, i, "waits for a later step: the streams could stop for ever");
            if (waited >= 0 && (int)o->list->steps[waited].stream != stream)
                fail_at(o, i, "waits for a step of another stream than it says");
            if (waited >= 0 && stream == (int)step->stream)
                fail_at(o, i, "waits for its own stream, which is in order");
            learn(o, knows, waited);
        }
        memcpy(o->known[i], knows, sizeof o->known[i]);
        knows[step->stream] = i;
    }
}

static bool precedes(const order *o, int32_t a, int32_t b)
{
    return o->known[b][o->list->steps[a].stream] >= a;
}

static void must_precede(const order *o, int32_t a, int32_t b, const char *why)
{
    if (!precedes(o, a, b))
        fail_at(o, b, why);
}

// ---- what the model asks for, from its ops alone ----

static bool computes(const mics_step *step)
{
    return step->kind == MICS_STEP_FORWARD || step->kind == MICS_STEP_BACKWARD;
}

static bool mentions(const mics_op *op, int32_t unit)
{
    return op->params[0].unit == unit || op->params[1].unit == unit;
}

// Weights that a unit's gradient is made with: products with them, and layernorm's gain.
static bool is_needed_backward(mics_op_kind kind)
{
    return kind == MICS_OP_LINEAR || kind == MICS_OP_LAYERNORM || kind == MICS_OP_RMSNORM ||
           kind == MICS_OP_HEAD_NORM || kind == MICS_OP_LM_HEAD;
}

// Whether computing the step reads the parameters of `unit`. That backward runs enough ops forward
// again is checked by test_schedule_activations.c.
static bool reads(const order *o, const mics_step *step, int32_t unit)
{
    const mics_model *model = o->schedule->spec.model;
    const mics_unit *computed = &model->units[step->unit];
    const int32_t forward_ops = step->kind == MICS_STEP_FORWARD
                                    ? computed->op_count
                                    : o->schedule->units[step->unit].forward_again;
    for (int32_t i = 0; i < computed->op_count; i++) {
        if ((i < forward_ops || is_needed_backward(computed->ops[i].kind)) &&
            mentions(&computed->ops[i], unit))
            return true;
    }
    return false;
}

// Whether computing the step adds to the gradient of `unit`.
static bool writes(const order *o, const mics_step *step, int32_t unit)
{
    const mics_unit *computed = &o->schedule->spec.model->units[step->unit];
    for (int32_t i = 0; step->kind == MICS_STEP_BACKWARD && i < computed->op_count; i++) {
        if (mentions(&computed->ops[i], unit))
            return true;
    }
    return false;
}

static const mics_step_use *use_of(const mics_step *step, int32_t unit)
{
    for (int32_t i = 0; i < step->use_count; i++) {
        if (step->uses[i].unit == unit)
            return &step->uses[i];
    }
    return NULL;
}

// ---- parameter slots ----

// The newest gather into a slot before a step is of the unit it reads, is done, and no other gather
// may be writing the slot meanwhile.
static void check_param_read(const order *o, int32_t reader, int32_t unit)
{
    const mics_step *step = &o->list->steps[reader];
    const mics_step_use *use = use_of(step, unit);
    if (use == NULL || use->param_slot < 0 || use->param_slot >= o->schedule->param_slot_count) {
        fail_at(o, reader, "reads a unit that has no slot");
        return;
    }
    int32_t filled = -1;
    for (int32_t i = 0; i < o->list->count; i++) {
        const mics_step *gather = &o->list->steps[i];
        const bool fills = gather->stage != MICS_STAGE_INTER;
        if (gather->kind != MICS_STEP_GATHER || gather->uses[0].param_slot != use->param_slot)
            continue;
        if (!fills && precedes(o, i, reader)) {
            must_precede(o, i, i + 1, "the second stage begins before the first has ended");
            continue; // its second one counts
        }
        if (precedes(o, i, reader))
            filled = i;
        else
            must_precede(o, reader, i, "may be read while it is overwritten");
    }
    if (filled < 0 || o->list->steps[filled].unit != unit)
        fail_at(o, reader, "its slot holds another unit");
    if (o->schedule->param_slots[use->param_slot] < o->schedule->padded_elems[unit])
        fail_at(o, reader, "its slot is too small");
}

// Members that see each other's shards have one barrier a list, before the first of them reads.
static void check_shared_read(const order *o, int32_t reader, int32_t unit)
{
    int32_t barrier = -1, barriers = 0;
    for (int32_t i = 0; i < o->list->count; i++) {
        const mics_step *step = &o->list->steps[i];
        if (step->kind != MICS_STEP_GATHER || step->unit != unit)
            continue;
        barrier = i;
        barriers++;
        if (step->block_bytes != 0 || step->algorithm != MICS_ALGORITHM_SHARED)
            fail_at(o, i, "moves what is shared");
    }
    if (barriers != 1)
        fail_at(o, reader, "its unit's members have no barrier, or several");
    must_precede(o, barrier, reader, "reads what other members may not have updated yet");
    if (use_of(&o->list->steps[reader], unit) == NULL ||
        use_of(&o->list->steps[reader], unit)->param_slot >= 0)
        fail_at(o, reader, "reads a shared unit, but does not say so");
}

static bool is_shared(const order *o, int32_t unit)
{
    const mics_mesh *mesh = &o->schedule->spec.mesh;
    return o->schedule->spec.share_params && o->schedule->sharding[unit].params > 1 &&
           mesh->sharding.params <= mesh->ranks_per_node;
}

static void check_params(const order *o)
{
    for (int32_t i = 0; i < o->list->count; i++) {
        const mics_step *step = &o->list->steps[i];
        for (int32_t u = 0; computes(step) && u < o->schedule->spec.model->unit_count; u++) {
            if (!reads(o, step, u))
                continue;
            if (is_shared(o, u))
                check_shared_read(o, i, u);
            else if (o->schedule->sharding[u].params > 1)
                check_param_read(o, i, u);
            else if (use_of(step, u) == NULL || use_of(step, u)->param_slot >= 0)
                fail_at(o, i, "reads a unit's persistent buffer, but does not say so");
        }
        if (step->kind == MICS_STEP_GATHER && o->schedule->sharding[step->unit].params == 1)
            fail_at(o, i, "there is nothing to gather");
    }
}

// ---- gradients ----

// Whether a step is about a unit, alone or with others.
static bool is_of(const order *o, const mics_step *step, int32_t unit)
{
    int32_t count = 0;
    const int32_t *units = mics_schedule_members(o->schedule, step, &count);
    for (int32_t i = 0; i < count; i++) {
        if (units[i] == unit)
            return true;
    }
    return unit < 0 && step->unit < 0;
}

// Steps of one kind, stage, unit and micro-step: their number, and the last one in *at_out.
static int32_t count_stages(const order *o, mics_step_kind kind, mics_step_stage stage,
                            int32_t unit, int32_t micro_step, int32_t *at_out)
{
    int32_t count = 0;
    for (int32_t i = 0; i < o->list->count; i++) {
        const mics_step *step = &o->list->steps[i];
        if (step->kind == kind && step->stage == stage && is_of(o, step, unit) &&
            step->micro_step == micro_step) {
            *at_out = i;
            count++;
        }
    }
    return count;
}

static void must_count(const order *o, mics_step_kind kind, mics_step_stage stage, int32_t unit,
                       int32_t micro_step, int32_t expected, int32_t *at_out)
{
    int32_t count = count_stages(o, kind, stage, unit, micro_step, at_out);
    if (count != expected)
        fail_msg("%s of unit %d, micro-step %d: %d times, not %d", mics_step_text(kind, stage),
                 (int)unit, (int)micro_step, (int)count, (int)expected);
}

static bool has_params(const order *o, int32_t unit)
{
    return o->schedule->spec.model->units[unit].param_count > 0;
}

static bool uses_grad_slot(const mics_step *step, int32_t slot)
{
    for (int32_t i = 0; i < step->use_count; i++) {
        if ((step->kind == MICS_STEP_BACKWARD || step->kind == MICS_STEP_REDUCE) &&
            step->uses[i].grad_slot == slot)
            return true;
    }
    return false;
}

// From its first writer to its reduction a slot is this unit's alone.
static void check_grad_slot(const order *o, int32_t slot, int32_t unit, int32_t first,
                            int32_t reduced)
{
    if (slot < 0 || slot >= o->schedule->grad_slot_count ||
        o->schedule->grad_slots[slot] < o->schedule->padded_elems[unit])
        fail_at(o, reduced, "its slot is none, or too small");
    for (int32_t i = 0; i < o->list->count; i++) {
        const mics_step *step = &o->list->steps[i];
        if (!uses_grad_slot(step, slot) || precedes(o, i, first) || precedes(o, reduced, i))
            continue;
        const mics_step_use *use = use_of(step, unit);
        if (use == NULL || use->grad_slot != slot)
            fail_at(o, i, "may use a gradient slot that another unit still needs");
    }
}

// Which of its layered group a micro-step is.
static int32_t in_flight_of(const order *o, int32_t micro_step)
{
    for (int32_t i = 0; i < o->list->count; i++) {
        if (computes(&o->list->steps[i]) && o->list->steps[i].micro_step == micro_step)
            return o->list->steps[i].in_flight;
    }
    return 0; // there is none: a group ends before it
}

// A backward into a slot: the first of the layered group overwrites it.
static void check_slot_write(const order *o, int32_t writer, int32_t unit, int32_t slot)
{
    const mics_step_use *use = use_of(&o->list->steps[writer], unit);
    if (use == NULL || use->grad_slot != slot)
        fail_at(o, writer, "writes its gradient elsewhere than it is reduced");
    if (use != NULL && use->accumulate != (o->list->steps[writer].in_flight > 0))
        fail_at(o, writer, "the first micro-batch in flight overwrites, later ones add");
}

// The inter-node stage of a reduction follows its intra-node stage. Gathers ahead go first: they
// run while the intra-node stage does.
static void check_first_stage(const order *o, int32_t reduced)
{
    const mics_step *step = &o->list->steps[reduced];
    int32_t first = -1;
    must_count(o, MICS_STEP_REDUCE, MICS_STAGE_INTRA, step->unit, step->micro_step, 1, &first);
    if (o->list->steps[first].uses[0].grad_slot != step->uses[0].grad_slot)
        fail_at(o, reduced, "its stages are of two slots");
    must_precede(o, first, reduced, "begins before its first stage has ended");
    for (int32_t i = reduced + 1; o->schedule->spec.prefetch > 0 && i < o->list->count; i++) {
        if (o->list->steps[i].kind == MICS_STEP_GATHER)
            fail_at(o, reduced, "holds up a gather ahead");
        if (computes(&o->list->steps[i]))
            break;
    }
}

// Gradients of one unit in the layered group that ends with a micro-step, G > 1.
static void check_reduction(const order *o, int32_t unit, int32_t micro_step)
{
    int32_t reduced = -1, first = -1;
    const int32_t begin = micro_step - in_flight_of(o, micro_step);
    if (!has_params(o, unit))
        return;
    const mics_mesh *mesh = &o->schedule->spec.mesh;
    const bool two_stages = o->schedule->spec.reduce == MICS_ALGORITHM_TWO_STAGE &&
                            mesh->sharding.grads > mesh->ranks_per_node;
    const mics_step_stage last = two_stages ? MICS_STAGE_INTER : MICS_STAGE_WHOLE;
    if (in_flight_of(o, micro_step + 1) > 0) { // another one of the group follows
        must_count(o, MICS_STEP_REDUCE, last, unit, micro_step, 0, &reduced);
        return;
    }
    must_count(o, MICS_STEP_REDUCE, last, unit, micro_step, 1, &reduced);
    const mics_step *reduce = &o->list->steps[reduced];
    const int32_t slot = reduce->uses[0].grad_slot;
    for (int32_t i = 0; i < o->list->count; i++) {
        const mics_step *step = &o->list->steps[i];
        if (!computes(step) || step->micro_step < begin || step->micro_step > micro_step ||
            !writes(o, step, unit))
            continue;
        first = first < 0 ? i : first;
        check_slot_write(o, i, unit, slot);
        must_precede(o, i, reduced, "begins before all of its gradient is there");
    }
    if (reduce->uses[0].accumulate != (begin > 0))
        fail_at(o, reduced, "the first layered group overwrites, later ones add");
    if (two_stages)
        check_first_stage(o, reduced);
    if (reduce->axis != MICS_AXIS_GRADIENT)
        fail_at(o, reduced, "is over another group");
    check_grad_slot(o, slot, unit, first, reduced);
}

// G = 1: backward works on the accumulator.
static void check_accumulation(const order *o, int32_t unit, int32_t micro_step)
{
    int32_t reduced = -1;
    must_count(o, MICS_STEP_REDUCE, MICS_STAGE_WHOLE, unit, micro_step, 0, &reduced);
    must_count(o, MICS_STEP_REDUCE, MICS_STAGE_INTER, unit, micro_step, 0, &reduced);
    for (int32_t i = 0; i < o->list->count; i++) {
        const mics_step *step = &o->list->steps[i];
        if (!computes(step) || step->micro_step != micro_step || !writes(o, step, unit))
            continue;
        if (use_of(step, unit) == NULL || use_of(step, unit)->grad_slot >= 0)
            fail_at(o, i, "its gradient belongs into the accumulator");
        if (use_of(step, unit) != NULL && use_of(step, unit)->accumulate != (micro_step > 0))
            fail_at(o, i, "the first micro-step overwrites, later ones add");
    }
}

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

// ---- the boundary ----

static int32_t only_step(const order *o, mics_step_kind kind)
{
    int32_t at = -1;
    must_count(o, kind, MICS_STAGE_WHOLE, -1, -1, 1, &at);
    return at;
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
        assert_int_equal(mics_schedule_gathers_early(spec), syncs && 2 * back <= sync);
}

// What the step before left of a unit: its gradient comes back, unless it has, then it is updated,
// and then its parameters are sent or read, and its accumulator written.
static void check_deferred(const order *o, int32_t unit, int32_t back, int32_t update, int32_t sync)
{
    if (back >= 0 && !mics_schedule_gathers_early(&o->schedule->spec))
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
    if (visits > 1)
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
    if (o->schedule->spec.coalesce_below > 0 || mics_schedule_gathers_early(&o->schedule->spec))
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
    if (back >= 0 && mics_schedule_gathers_early(&o->schedule->spec))
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

static void check_boundary(const order *o)
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

// ---- the whole ----

static int32_t next_pass(const order *o, int32_t at)
{
    while (at < o->list->count && !computes(&o->list->steps[at]))
        at++;
    return at;
}

// How many are in flight in the layered group that begins with the pass at `at`.
static int32_t count_in_flight(const order *o, int32_t at)
{
    int32_t in_flight_count = 0;
    for (; at < o->list->count && o->list->steps[at].in_flight == in_flight_count;
         at = next_pass(o, at + 1))
        in_flight_count++;
    return in_flight_count;
}

// Each layered group: all units but the loss forward in order, then all backward in reverse, each
// for all in flight. Groups are as even as can be.
static void check_passes(const order *o)
{
    const mics_schedule_spec *spec = &o->schedule->spec;
    const int32_t units = spec->model->unit_count;
    const bool training = o->phase == MICS_PHASE_TRAIN;
    const int32_t micro_steps = training ? spec->micro_steps : 1;
    const int32_t places = training ? 2 * units - 1 : units;
    int32_t at = next_pass(o, 0), micro_step = 0, fewest = micro_steps, most = 0;
    while (at < o->list->count) {
        const int32_t in_flight_count = count_in_flight(o, at);
        for (int32_t pass = 0; pass < places * in_flight_count; pass++, at = next_pass(o, at + 1)) {
            const mics_step *step = &o->list->steps[at];
            const int32_t place = pass / in_flight_count, in_flight = pass % in_flight_count;
            const bool backward = training && place >= units - 1;
            const int32_t unit = backward ? 2 * units - 2 - place : place;
            assert_in_range(at, 0, o->list->count - 1);
            if (step->unit != unit || step->in_flight != in_flight ||
                step->micro_step != micro_step + in_flight ||
                (step->kind == MICS_STEP_BACKWARD) != backward)
                fail_at(o, at, "is out of order");
        }
        micro_step += in_flight_count;
        fewest = in_flight_count < fewest ? in_flight_count : fewest;
        most = in_flight_count > most ? in_flight_count : most;
    }
    assert_int_equal(micro_step, micro_steps);
    assert_true(most - fewest <= 1);
    assert_int_equal(most, training ? spec->layered_micro_steps : 1);
}

// Of shared units whose updates are deferred, the barrier is behind an update that is late.
static bool is_behind_update(const order *o, int32_t unit)
{
    return o->phase == MICS_PHASE_TRAIN && mics_schedule_defers(o->schedule) &&
           is_shared(o, unit) &&
           o->schedule->sharding[unit].optimizer == o->schedule->sharding[unit].params;
}

// With prefetch, a pass and the collectives listed around it run side by side: no gather but a
// list's first ones is for the very next pass, and no backward waits for the reduction before it.
static void check_overlap(const order *o)
{
    int32_t reduced = -1, passes = 0;
    for (int32_t i = 0; i < o->list->count; i++) {
        const mics_step *step = &o->list->steps[i];
        if (computes(step)) {
            if (step->kind == MICS_STEP_BACKWARD && reduced >= 0 && precedes(o, reduced, i))
                fail_at(o, i, "waits for the reduction before it");
            passes++;
            reduced = -1;
        }
        if (step->kind == MICS_STEP_REDUCE)
            reduced = i;
        int32_t next = i + 1;
        while (next < o->list->count && !computes(&o->list->steps[next]))
            next++;
        if (step->kind == MICS_STEP_GATHER && passes > 0 && !is_behind_update(o, step->unit) &&
            reads(o, &o->list->steps[next], step->unit))
            fail_at(o, i, "is listed too late to overlap");
    }
}

static void check_list(const mics_schedule *schedule, mics_phase phase)
{
    order o;
    order_open(&o, schedule, phase);
    check_passes(&o);
    check_params(&o);
    if (schedule->spec.prefetch > 0)
        check_overlap(&o);
    if (phase == MICS_PHASE_TRAIN) {
        for (int32_t micro = 0; micro < schedule->spec.micro_steps; micro++) {
            for (int32_t u = 0; u < schedule->spec.model->unit_count; u++) {
                if (schedule->sharding[u].grads > 1)
                    check_reduction(&o, u, micro);
                else
                    check_accumulation(&o, u, micro);
            }
        }
        check_boundary(&o);
    } else {
        must_precede(&o, o.list->count - 2, only_step(&o, MICS_STEP_AGREE), "agrees on no loss");
    }
    free(o.known);
}

static void check_schedule(mics_memory *memory, const mics_schedule_spec *spec)
{
    mics_schedule *schedule = NULL;
    ASSERT_OK(mics_schedule_open(memory, spec, &schedule));
    check_list(schedule, MICS_PHASE_TRAIN);
    check_list(schedule, MICS_PHASE_EVAL);
    mics_schedule_close(schedule);
}

// One mesh, for several numbers of micro-steps and units gathered ahead.
static void check_mesh(mics_memory *memory, const mics_model *model, const mics_mesh *mesh)
{
    mics_schedule_spec spec = {
        .model = model, .mesh = *mesh, .batch = {.sequences = 1, .length = 3, .threads = 1}};
    for (int variant = 0; variant < 64; variant++) {
        spec.micro_steps = variant % 2 == 0 ? 1 : 5;
        spec.prefetch = variant % 8 / 2;
        spec.recompute = variant % 8 >= 4;
        spec.gather = spec.reduce = spec.boundary =
            variant % 16 >= 8 ? MICS_ALGORITHM_TWO_STAGE : MICS_ALGORITHM_RING;
        // Some units stay whole: the last ones of most models are the smallest.
        spec.param_persistence_threshold = variant % 32 >= 16 ? model->units[0].elems : 0;
        // Some share messages, and not all of these one.
        spec.coalesce_below = variant >= 32 ? 3 * model->units[0].elems : 0;
        spec.share_params = variant % 3 == 0;
        spec.layered_micro_steps = variant % 5;
        check_schedule(memory, &spec);
    }
}

// Every sharding of 8 ranks on 2 nodes; on 4 nodes those whose replicas and optimizer shards are
// both on several.
static void check_model(mics_memory *memory, const mics_model *model)
{
    mics_mesh mesh;
    for (int32_t p = 1; p <= 8; p *= 2) {
        for (int32_t g = p; g <= 8; g *= 2) {
            for (int32_t o = g; o <= 8; o *= 2) {
                for (int32_t nodes = 2; nodes <= (o == 4 ? 4 : 2); nodes *= 2) {
                    ASSERT_OK(mics_mesh_init(8, nodes, (mics_sharding){p, g, o}, &mesh));
                    check_mesh(memory, model, &mesh);
                }
            }
        }
    }
}

static void test_gpt2(void **state)
{
    (void)state;
    static const int layers[] = {1, 2, 5};
    mics_memory *memory = NULL;
    ASSERT_OK(mics_memory_open(&memory));
    for (int i = 0; i < 6; i++) {
        mics_model *model = model_gpt2(memory, layers[i / 2], i % 2 == 0);
        check_model(memory, model);
        mics_model_close(model);
    }
    assert_int_equal(mics_memory_close(memory), 0);
}

static void test_other_models(void **state)
{
    (void)state;
    mics_memory *memory = NULL;
    ASSERT_OK(mics_memory_open(&memory));
    for (int i = 0; i < 2 * MODEL_KINDS; i++) {
        mics_model *model = model_build(memory, &model_kinds[i / 2], i % 2 == 0);
        check_model(memory, model);
        mics_model_close(model);
    }
    assert_int_equal(mics_memory_close(memory), 0);
}

// ---- early replica gathers ----

static void test_which_gathers_are_early(void **state)
{
    (void)state;
    static const mics_comm_dtypes bf16_inter = {MICS_COMM_FP32, MICS_COMM_BF16};
    static const struct {
        const char *why_not;
        int32_t ranks, nodes;
        mics_sharding sharding;
        bool early;
    } cases[] = {
        {"", 16, 8, {1, 1, 8}, true},
        {"", 16, 8, {2, 2, 8}, true},
        {"", 16, 8, {2, 8, 8}, true},
        {"", 64, 8, {8, 8, 32}, true},
        {"", 8, 4, {1, 1, 4}, true},
        {"", 4, 4, {1, 1, 2}, true},
        {"", 128, 64, {1, 1, 8}, true},
        {"more than half of a parameter sync comes back", 16, 8, {1, 1, 4}, false},
        {"the same", 128, 64, {1, 1, 4}, false},
        {"nothing comes back", 16, 8, {1, 1, 16}, false},
        {"what is updated stays in the node", 16, 8, {2, 2, 2}, false},
        {"the same", 16, 8, {1, 1, 1}, false},
        {"parameters are gathered between nodes", 16, 8, {4, 4, 8}, false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        mics_schedule_spec spec = {.micro_steps = 1};
        ASSERT_OK(mics_mesh_init(cases[i].ranks, cases[i].nodes, cases[i].sharding, &spec.mesh));
        if (mics_schedule_gathers_early(&spec) != cases[i].early)
            fail_msg("case %d: %s", (int)i, cases[i].early ? "not early" : cases[i].why_not);
        mics_schedule_spec others[] = {spec, spec, spec, spec};
        others[0].precision = MICS_PRECISION_MIXED; // sums are twice the bytes of parameters
        others[1].boundary_dtype = bf16_inter;      // the norm is of numbers that are not rounded
        others[2].params_dtype = bf16_inter;
        others[3].all_reduces = true;
        for (int other = 0; other < 4; other++)
            assert_false(mics_schedule_gathers_early(&others[other]));
    }
}

// ---- arguments ----

static void test_arguments(void **state)
{
    (void)state;
    mics_memory *memory = NULL;
    mics_schedule *schedule = NULL;
    ASSERT_OK(mics_memory_open(&memory));
    mics_model *model = model_gpt2(memory, 1, true);
    mics_schedule_spec good = {.model = model,
                               .batch = {.sequences = 1, .length = MODEL_POSITIONS, .threads = 1},
                               .micro_steps = 1};
    ASSERT_OK(mics_mesh_init(1, 1, (mics_sharding){1, 1, 1}, &good.mesh));
    mics_schedule_spec bad[9];
    for (int i = 0; i < 9; i++)
        bad[i] = good;
    bad[0].batch.sequences = 0;
    bad[1].batch.length = 0;
    bad[2].batch.threads = 0;
    bad[3].micro_steps = 0;
    bad[4].prefetch = -1;
    bad[5].batch.length = MODEL_POSITIONS + 1;
    bad[6].batch.sequences = INT64_MAX / 2;
    // 8 of a node's ranks would each send their gradients to 8 of the other's; one a node is fine.
    ASSERT_OK(mics_mesh_init(16, 2, (mics_sharding){1, 1, 1}, &bad[7].mesh));
    bad[7].boundary_dtype = mics_comm_dtypes_both(MICS_COMM_BF16);
    bad[8].layered_micro_steps = -1;
    for (int i = 0; i < 9; i++) {
        ASSERT_STATUS(MICS_ERR_INVALID, mics_schedule_open(memory, &bad[i], &schedule));
        assert_null(schedule);
    }
    ASSERT_OK(mics_schedule_open(memory, &good, &schedule));
    mics_schedule_close(schedule);
    ASSERT_OK(mics_mesh_init(16, 2, (mics_sharding){8, 8, 8}, &bad[7].mesh));
    ASSERT_OK(mics_schedule_open(memory, &bad[7], &schedule));
    mics_schedule_close(schedule);
    mics_schedule_close(NULL);
    mics_model_close(model);
    assert_int_equal(mics_memory_close(memory), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gpt2),
        cmocka_unit_test(test_other_models),
        cmocka_unit_test(test_which_gathers_are_early),
        cmocka_unit_test(test_arguments),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
