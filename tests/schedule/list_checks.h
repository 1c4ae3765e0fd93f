// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// What checks of a list of steps share: which step is done before which, and what the model asks of them.
//
// Step a is done before step b begins when both are on one stream and a is listed first, or when b,
// or a step before b on its stream, waits for a, for one after a on a's stream, or for a step that
// a precedes: vector clocks, one entry a stream.
#pragma once

#include "mics/core/schedule.h"
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

static inline void fail_at(const order *o, int32_t step, const char *why)
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
static inline void learn(const order *o, int32_t knows[MICS_STREAMS], int32_t waited)
{
    for (int stream = 0; waited >= 0 && stream < MICS_STREAMS; stream++) {
        if (o->known[waited][stream] > knows[stream])
            knows[stream] = o->known[waited][stream];
    }
    if (waited >= 0 && waited > knows[o->list->steps[waited].stream])
        knows[o->list->steps[waited].stream] = waited;
}

static inline void order_open(order *o, const mics_schedule *schedule, mics_phase phase)
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

static inline bool precedes(const order *o, int32_t a, int32_t b)
{
    return o->known[b][o->list->steps[a].stream] >= a;
}

static inline void must_precede(const order *o, int32_t a, int32_t b, const char *why)
{
    if (!precedes(o, a, b))
        fail_at(o, b, why);
}

// ---- what the model asks for, from its ops alone ----

static inline bool computes(const mics_step *step)
{
    return step->kind == MICS_STEP_FORWARD || step->kind == MICS_STEP_BACKWARD;
}

static inline bool mentions(const mics_op *op, int32_t unit)
{
    return op->params[0].unit == unit || op->params[1].unit == unit;
}

// Weights that a unit's gradient is made with: products with them, and layernorm's gain.
static inline bool is_needed_backward(mics_op_kind kind)
{
    return kind == MICS_OP_LINEAR || kind == MICS_OP_LAYERNORM || kind == MICS_OP_RMSNORM ||
           kind == MICS_OP_HEAD_NORM || kind == MICS_OP_LM_HEAD;
}

// Whether computing the step reads the parameters of `unit`. That backward runs enough ops forward
// again is checked by test_schedule_activations.c.
static inline bool reads(const order *o, const mics_step *step, int32_t unit)
{
    const mics_model *model = o->schedule->spec.model;
    const mics_unit *computed = &model->units[step->unit];
    const bool *again = o->schedule->units[step->unit].again;
    for (int32_t i = 0; i < computed->op_count; i++) {
        if ((step->kind == MICS_STEP_FORWARD || again[i] ||
             is_needed_backward(computed->ops[i].kind)) &&
            mentions(&computed->ops[i], unit))
            return true;
    }
    return false;
}

// Whether computing the step adds to the gradient of `unit`.
static inline bool writes(const order *o, const mics_step *step, int32_t unit)
{
    const mics_unit *computed = &o->schedule->spec.model->units[step->unit];
    for (int32_t i = 0; step->kind == MICS_STEP_BACKWARD && i < computed->op_count; i++) {
        if (mentions(&computed->ops[i], unit))
            return true;
    }
    return false;
}

static inline const mics_step_use *use_of(const mics_step *step, int32_t unit)
{
    for (int32_t i = 0; i < step->use_count; i++) {
        if (step->uses[i].unit == unit)
            return &step->uses[i];
    }
    return NULL;
}

// ---- steps by unit, kind and stage ----

static inline bool is_shared(const order *o, int32_t unit)
{
    const mics_mesh *mesh = &o->schedule->spec.mesh;
    return o->schedule->spec.share_params && o->schedule->sharding[unit].params > 1 &&
           mesh->sharding.params <= mesh->ranks_per_node;
}

// Whether a step is about a unit, alone or with others.
static inline bool is_of(const order *o, const mics_step *step, int32_t unit)
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
static inline int32_t count_stages(const order *o, mics_step_kind kind, mics_step_stage stage,
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

static inline void must_count(const order *o, mics_step_kind kind, mics_step_stage stage,
                              int32_t unit, int32_t micro_step, int32_t expected, int32_t *at_out)
{
    int32_t count = count_stages(o, kind, stage, unit, micro_step, at_out);
    if (count != expected)
        fail_msg("%s of unit %d, micro-step %d: %d times, not %d", mics_step_text(kind, stage),
                 (int)unit, (int)micro_step, (int)count, (int)expected);
}

static inline bool has_params(const order *o, int32_t unit)
{
    return o->schedule->spec.model->units[unit].param_count > 0;
}

static inline int32_t only_step(const order *o, mics_step_kind kind)
{
    int32_t at = -1;
    must_count(o, kind, MICS_STAGE_WHOLE, -1, -1, 1, &at);
    return at;
}

/* boundary_checks.c: second hop, parameter sync and update of each unit, once each and in order. */
void check_boundary(const order *o);
