// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// ZeRO-3 with activation checkpointing as DeepSpeed 0.4 to 0.6 ran it, on clocks. What differs from zero3 here:
//
//   1. Parameters are gathered module by module, not layer by layer, and one module ahead: the prefetch bucket
//      (5e7 elements) holds less than one of these models' matrices, and the search for what to prefetch ends with the
//      parameter that fills it. (runtime/zero/stage3.py, PrefetchCoordinator.get_params_to_prefetch.)
//   2. A checkpointed layer is run forward again as a whole before its backward begins, and its modules release what they
//      gathered; backward gathers again: three gathers a layer. Here both happen under one gather, and the
//      last product, of which backward reads nothing, is not run again.
//   3. Gathers and reductions go through the same rings over all ranks.
//
// A layer is cut into four units, each with one matrix; the passes are listed by hand, from the steps of a
// schedule of that model.
#include "mics/builder.h"
#include "mics/log.h"
#include "study.h"
#include <stdio.h>
#include <string.h>

enum { PARTS = 4 }; // units of a layer

// ---- the model, module by module ----

static mics_param_ref add_param(mics_model *model, const char *name, int64_t rows, int64_t cols)
{
    char full[MICS_NAME_BYTES];
    snprintf(full, sizeof full, "u%d.%s", (int)model->unit_count - 1, name);
    return mics_model_add_param(
        model, full, &(mics_param_spec){.dims = cols > 0 ? 2 : 1, .shape = {rows, cols}});
}

static int32_t norm(mics_model *model, int64_t width)
{
    const mics_param_ref weight = add_param(model, "norm.weight", width, 0);
    return mics_op_layernorm(model, 0, weight, add_param(model, "norm.bias", width, 0), 1e-5F);
}

static int32_t linear(mics_model *model, int32_t in, int64_t inputs, int64_t outputs)
{
    const mics_param_ref weight = add_param(model, "weight", inputs, outputs);
    return mics_op_linear(model, in, weight, add_param(model, "bias", outputs, 0), false);
}

static void add_layer(mics_model *model, int64_t width, int64_t inner, const mics_op *like)
{
    mics_model_unit(model, "attention", width);
    mics_op attention = *like; // both ways in an encoder
    attention.in[0] = linear(model, norm(model, width), width, 3 * width);
    mics_model_unit_end(model, mics_model_add_op(model, attention));
    mics_model_unit(model, "projection", width);
    mics_model_unit_end(model, mics_op_add(model, 0, linear(model, 0, width, width)));
    mics_model_unit(model, "widen", width);
    mics_model_unit_end(
        model, mics_op_gelu(model, linear(model, norm(model, width), width, inner), false));
    mics_model_unit(model, "narrow", inner);
    mics_model_unit_end(model, linear(model, 0, inner, width));
}

static mics_status open_parts(const study *s, mics_model **model_out)
{
    const int64_t width = s->model->hidden, vocab = s->model->vocab;
    const mics_unit *layer = &s->model->units[1];
    const mics_op *attention = NULL;
    int64_t inner = 0;
    mics_model *model = NULL;
    for (int32_t o = 0; o < layer->op_count; o++) {
        if (layer->ops[o].kind == MICS_OP_ATTENTION)
            attention = &layer->ops[o];
        if (layer->ops[o].kind == MICS_OP_GELU)
            inner = layer->tensors[layer->ops[o].out].width;
    }
    MICS_TRY(mics_model_open(s->memory,
                             &(mics_model_spec){.architecture = "modules",
                                                .vocab = vocab,
                                                .positions = s->model->positions,
                                                .hidden = width},
                             &model));
    mics_model_unit(model, "embed", 0);
    const mics_param_ref tokens = add_param(model, "tokens", vocab, width);
    mics_model_unit_end(
        model,
        mics_op_embedding(model, tokens, add_param(model, "positions", model->positions, width)));
    for (int32_t i = 0; i < (int32_t)s->layers; i++)
        add_layer(model, width, inner, attention);
    mics_model_unit(model, "head", width);
    mics_op_lm_head(model, norm(model, width), tokens);
    mics_model_unit_end(model, -1);
    const mics_status status = mics_model_finish(model);
    if (status != MICS_OK)
        mics_model_close(model);
    else
        *model_out = model;
    return status;
}

// ---- the passes ----

typedef struct listing {
    const mics_step_list *from; // of the model's schedule: what steps are copied from
    mics_step *steps;
    int32_t count;
    int32_t units;
    int32_t *of[MICS_STEP_KINDS]; // by unit: a step of that kind in `from`; -1: none
    int32_t gathered;             // step that made the next pass' unit readable
    int32_t before[2];            // the last two passes; -1: none
} listing;

static int32_t add_copy(listing *l, mics_step_kind kind, int32_t unit, int32_t waits)
{
    mics_step step = l->from->steps[l->of[kind][unit < 0 ? 0 : unit]];
    for (int stream = 0; stream < MICS_STREAMS; stream++)
        step.wait[stream] = -1;
    if (waits >= 0 && l->steps[waits].stream != step.stream)
        step.wait[l->steps[waits].stream] = waits;
    l->steps[l->count] = step;
    return l->count++;
}

// One pass, behind which the next one's gather is listed already: it may begin once the pass before this one is done.
static void add_pass(listing *l, mics_step_kind kind, int32_t unit, int32_t next_unit)
{
    const int32_t mine = l->gathered;
    if (next_unit >= 0 && l->of[MICS_STEP_GATHER][next_unit] >= 0)
        l->gathered = add_copy(l, MICS_STEP_GATHER, next_unit, l->before[0]);
    const int32_t pass = add_copy(l, kind, unit, mine);
    l->before[1] = l->before[0];
    l->before[0] = pass;
    if (kind == MICS_STEP_BACKWARD && l->of[MICS_STEP_REDUCE][unit] >= 0)
        add_copy(l, MICS_STEP_REDUCE, unit, pass);
}

typedef struct visit {
    mics_step_kind kind;
    int32_t unit;
} visit;

// All passes of a micro-step in order; returns how many.
static int32_t list_visits(int32_t units, visit *visits)
{
    int32_t count = 0;
    for (int32_t u = 0; u < units - 1; u++)
        visits[count++] = (visit){MICS_STEP_FORWARD, u};
    visits[count++] = (visit){MICS_STEP_BACKWARD, units - 1};
    for (int32_t first = units - 1 - PARTS; first >= 1; first -= PARTS) {
        for (int32_t part = 0; part < PARTS; part++) // the layer again
            visits[count++] = (visit){MICS_STEP_FORWARD, first + part};
        for (int32_t part = PARTS - 1; part >= 0; part--)
            visits[count++] = (visit){MICS_STEP_BACKWARD, first + part};
    }
    visits[count++] = (visit){MICS_STEP_BACKWARD, 0};
    return count;
}

static void list_all(listing *l, const visit *visits, int32_t count, int32_t micro_steps)
{
    l->before[0] = l->before[1] = -1;
    l->gathered = add_copy(l, MICS_STEP_GATHER, visits[0].unit, -1);
    for (int32_t i = 0; i < count * micro_steps; i++) {
        const visit *v = &visits[i % count];
        const bool last = i + 1 == count * micro_steps;
        add_pass(l, v->kind, v->unit, last ? -1 : visits[(i + 1) % count].unit);
    }
    const int32_t norm_step = add_copy(l, MICS_STEP_NORM, -1, l->count - 1);
    const int32_t agree = add_copy(l, MICS_STEP_AGREE, -1, norm_step);
    for (int32_t u = 0; u < l->units; u++)
        add_copy(l, MICS_STEP_UPDATE, u, agree);
}

static void index_steps(listing *l, int32_t *index)
{
    for (int kind = 0; kind < MICS_STEP_KINDS; kind++)
        l->of[kind] = index + (int64_t)kind * l->units;
    for (int32_t i = 0; i < MICS_STEP_KINDS * l->units; i++)
        index[i] = -1;
    for (int32_t i = l->from->count - 1; i >= 0; i--) {
        const mics_step *step = &l->from->steps[i];
        l->of[step->kind][step->unit < 0 ? 0 : step->unit] = i;
    }
}

// Puts the passes in the place of the schedule's training list.
static mics_status replace_list(mics_schedule *schedule, int32_t micro_steps)
{
    mics_memory *memory = schedule->memory;
    mics_step_list *list = &schedule->lists[MICS_PHASE_TRAIN];
    const int32_t units = schedule->spec.model->unit_count;
    const size_t visits_most = 4 * (size_t)units;
    listing l = {.from = list, .units = units};
    void *index = NULL, *visits = NULL, *steps = NULL;
    mics_status status = MICS_OK;
    MICS_TRY_OUT(mics_alloc(memory, MICS_MEM_HOST,
                            MICS_STEP_KINDS * (size_t)units * sizeof(int32_t), &index));
    MICS_TRY_OUT(mics_alloc(memory, MICS_MEM_HOST, visits_most * sizeof(visit), &visits));
    MICS_TRY_OUT(mics_alloc(
        memory, MICS_MEM_HOST,
        (3 * visits_most * (size_t)micro_steps + visits_most) * sizeof(mics_step), &steps));
    l.steps = steps;
    index_steps(&l, index);
    list_all(&l, visits, list_visits(units, visits), micro_steps);
    mics_free(memory, list->steps);
    *list = (mics_step_list){.steps = l.steps, .count = l.count};
    steps = NULL;
out:
    mics_free(memory, index);
    mics_free(memory, visits);
    mics_free(memory, steps);
    return status;
}

static mics_status open_then(const study *s, const mics_model *parts, int32_t nodes,
                             int64_t micro_batch, mics_schedule **schedule_out)
{
    int32_t ranks = 0;
    MICS_TRY(mics_cluster_ranks(&s->cluster, nodes, &ranks));
    mics_schedule_spec spec = {.model = parts,
                               .batch = {micro_batch, s->length, 1},
                               .micro_steps = 2, // so that reductions add up
                               .prefetch = 1,
                               .param_persistence_threshold = 16384,
                               .precision = MICS_PRECISION_MIXED,
                               .accelerator = true,
                               .sums_by_ring = true};
    MICS_TRY(mics_mesh_init(ranks, nodes, (mics_sharding){ranks, ranks, ranks}, &spec.mesh));
    return mics_schedule_open(s->memory, &spec, schedule_out);
}

mics_status study_zero3(const study *s, int32_t nodes, int64_t micro_batch, int32_t micro_steps,
                        double *step_us_out)
{
    const mics_simulate_options options = {.math = MICS_MATH_FP16, .trees = true};
    mics_model *parts = NULL;
    mics_schedule *schedule = NULL;
    mics_simulation *simulation = NULL;
    const mics_cluster cluster = mics_cluster_on_nodes(&s->cluster, nodes);
    MICS_TRY(open_parts(s, &parts));
    mics_status status = open_then(s, parts, nodes, micro_batch, &schedule);
    if (status == MICS_OK)
        status = replace_list(schedule, micro_steps);
    if (status == MICS_OK)
        status = mics_simulate(s->memory, schedule, &cluster, &options, &simulation);
    if (status == MICS_OK)
        *step_us_out = simulation->step_us;
    mics_simulation_close(simulation);
    mics_schedule_close(schedule);
    mics_model_close(parts);
    return status;
}
