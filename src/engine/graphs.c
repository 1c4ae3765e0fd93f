// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// The kernels of a step as one graph, where the spec asks for it and the device has graphs.
//
// A graph holds what one FORWARD or BACKWARD enqueues on the computing stream; tokens, events and
// waits for other streams stay outside, so nothing else about a list changes. Steps of one
// micro-batch in flight that differ in their micro-step alone enqueue the same calls, and have one
// graph. The first of them to come runs as it is: GEMMs are planned then, which a capture may not
// do. The second is captured. The unit of the loss has none: how many rows its GEMMs see follows from
// how many tokens count.
//
// A graph's pointers stay as long as the engine does (arenas, host_sums); of its arguments the loss
// scale alone changes, and that captures anew.
//
// Invariant, checked by is_shared_backwards: step i uses the graph of step graphs[phase][i].shared
// <= i, which has its own; -1: none.
#include "engine/graphs.h"
#include "base/assert.h"

static bool has_graph(const mics_schedule *schedule, const mics_step *step)
{
    const bool computes = step->kind == MICS_STEP_FORWARD || step->kind == MICS_STEP_BACKWARD;
    return computes && !schedule->units[step->unit].loss;
}

static bool same_use(const mics_step_use *a, const mics_step_use *b)
{
    return a->unit == b->unit && a->param_slot == b->param_slot && a->grad_slot == b->grad_slot &&
           a->accumulate == b->accumulate && a->fold == b->fold;
}

static bool same_part(const mics_step *a, const mics_step *b)
{
    return a->part.op == b->part.op && a->part.op_end == b->part.op_end &&
           a->part.call == b->part.call && a->part.call_end == b->part.call_end;
}

static bool same_calls(const mics_step *a, const mics_step *b)
{
    if (a->kind != b->kind || a->unit != b->unit || a->in_flight != b->in_flight ||
        a->use_count != b->use_count || !same_part(a, b))
        return false;
    for (int32_t i = 0; i < a->use_count; i++) {
        if (!same_use(&a->uses[i], &b->uses[i]))
            return false;
    }
    return true;
}

static int32_t first_alike(const mics_schedule *schedule, const mics_step_list *list, int32_t index)
{
    if (!has_graph(schedule, &list->steps[index]))
        return -1;
    for (int32_t i = 0; i < index; i++) {
        if (same_calls(&list->steps[i], &list->steps[index]))
            return i;
    }
    return index;
}

static bool is_shared_backwards(const step_graph *graphs, int32_t index)
{
    const int32_t shared = graphs[index].shared;
    return shared == -1 || (shared >= 0 && shared <= index && graphs[shared].shared == shared);
}

mics_status graphs_open(mics_engine *engine)
{
    if (!engine->spec.graphs)
        return MICS_OK;
    for (int phase = 0; phase < MICS_PHASES; phase++) {
        const mics_step_list *list = &engine->schedule->lists[phase];
        if (list->count == 0)
            continue;
        MICS_TRY(MICS_NEW(engine->spec.memory, list->count, &engine->graphs[phase]));
        for (int32_t i = 0; i < list->count; i++) {
            engine->graphs[phase][i].shared = first_alike(engine->schedule, list, i);
            MICS_ASSERT(is_shared_backwards(engine->graphs[phase], i));
        }
    }
    return MICS_OK;
}

void graphs_close(mics_engine *engine)
{
    const mics_device *device = engine->device;
    for (int phase = 0; phase < MICS_PHASES; phase++) {
        const mics_step_list *list = &engine->schedule->lists[phase];
        for (int32_t i = 0; engine->graphs[phase] != NULL && i < list->count; i++)
            device->ops->graph_close(device->ctx, engine->graphs[phase][i].graph);
        mics_free(engine->spec.memory, engine->graphs[phase]);
    }
}

static void capture(mics_engine *engine, const mics_step *step, step_graph *own, step_calls *calls)
{
    const mics_device *device = engine->device;
    device->ops->graph_close(device->ctx, own->graph);
    device->ops->graph_begin(device->ctx, MICS_STREAM_COMPUTE);
    calls(engine, step);
    own->graph = device->ops->graph_end(device->ctx, MICS_STREAM_COMPUTE);
    own->loss_scale = engine->loss_scale;
}

void graphs_run(mics_engine *engine, const mics_step *step, step_calls *calls)
{
    const mics_device *device = engine->device;
    step_graph *all = engine->graphs[engine->phase];
    const int32_t shared = all[step - engine->list->steps].shared;
    step_graph *own = shared >= 0 ? &all[shared] : NULL;
    if (own == NULL || !own->ran) {
        if (own != NULL)
            own->ran = true;
        calls(engine, step);
        return;
    }
    if (own->graph == NULL || own->loss_scale != engine->loss_scale)
        capture(engine, step, own, calls);
    if (own->graph != NULL) // else the device has failed, and says so
        device->ops->graph_launch(device->ctx, MICS_STREAM_COMPUTE, own->graph);
}
