// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// What of a model trains. Parameters are marked; units that have both kinds become two; and tensors
// that no trained parameter leads to have no gradient.
#include "base/size.h"
#include "mics/builder.h"
#include "mics/log.h"
#include "model/internal.h"
#include <fnmatch.h>
#include <stdio.h>
#include <string.h>

// ---- which parameters ----

static mics_status mark_param(mics_param *param, const model_choice *choice)
{
    mics_param_tensor tensor;
    const char *in = NULL, *out = NULL;
    for (int32_t part = 0; mics_param_next_tensor(param, &part, &tensor);) {
        if (choice->takes(choice->ctx, tensor.name))
            in = tensor.name;
        else
            out = tensor.name;
    }
    param->frozen = in == NULL;
    if (in == NULL || out == NULL)
        return MICS_OK;
    return mics_fail(MICS_ERR_INVALID,
                     "%s: %s would train and %s would not, but they are one parameter here; name "
                     "both, or neither",
                     choice->key, in, out);
}

mics_status model_mark_frozen(mics_model *model, const model_choice *choice)
{
    for (int32_t u = 0; u < model->unit_count; u++) {
        for (int32_t p = 0; p < model->units[u].param_count; p++) {
            if (!model->units[u].params[p].adapter)
                MICS_TRY(mark_param(&model->units[u].params[p], choice));
        }
    }
    return MICS_OK;
}

// ---- units of one kind ----

static int32_t count_frozen(const mics_unit *unit)
{
    int32_t count = 0;
    for (int32_t p = 0; p < unit->param_count; p++)
        count += unit->params[p].frozen;
    return count;
}

// Where a parameter is among those of its unit that are frozen, or that are not.
static int32_t place_in_kind(const mics_unit *unit, int32_t param)
{
    int32_t place = 0;
    for (int32_t p = 0; p < param; p++)
        place += unit->params[p].frozen == unit->params[param].frozen;
    return place;
}

// Makes ops name parameters where they are once unit `u` is two. Other units behind it move on.
static void move_refs(mics_model *model, int32_t u, int32_t trained, int32_t companion)
{
    const mics_unit *split = &model->units[u];
    for (int32_t i = 0; i < model->unit_count; i++) {
        const mics_unit *unit = &model->units[i];
        for (int32_t r = 0; r < unit->op_count * MICS_OP_PARAMS; r++) {
            mics_param_ref *ref = &unit->ops[r / MICS_OP_PARAMS].params[r % MICS_OP_PARAMS];
            if (ref->unit > u)
                ref->unit++;
            else if (ref->unit == u)
                *ref = (mics_param_ref){split->params[ref->param].frozen ? companion : trained,
                                        place_in_kind(split, ref->param)};
        }
    }
}

// Takes those of `params` that are of the unit's kind; they may be its own.
static void take_params(mics_unit *unit, const mics_param *params, int32_t count, bool frozen)
{
    unit->elems = unit->param_count = 0;
    for (int32_t p = 0; p < count; p++) {
        if (params[p].frozen != frozen)
            continue;
        mics_param *to = &unit->params[unit->param_count++];
        *to = params[p];
        to->offset = unit->elems;
        unit->elems = mics_size_round_up(to->offset + to->elems, MODEL_PARAM_ALIGNMENT);
    }
}

// A companion is behind its unit; that of the last one is before it, which stays the last.
static mics_status split_unit(mics_model *model, int32_t u)
{
    const bool last = u == model->unit_count - 1;
    const int32_t trained = u + last, companion = u + !last;
    mics_unit from = model->units[u], frozen = {.out = -1};
    void *array = model->units;
    frozen.frozen = frozen.companion = true;
    if (snprintf(frozen.name, sizeof frozen.name, "%s.frozen", from.name) >=
        (int)sizeof frozen.name)
        return mics_fail(MICS_ERR_INVALID, "unit %s: its name is too long", from.name);
    if (from.experts > 0)
        return mics_fail(MICS_ERR_INVALID,
                         "model.trainable: of the experts of %s all parameters train, or none",
                         from.name);
    model_append(model, &array, &model->unit_count, sizeof *model->units);
    model->units = array;
    MICS_TRY(model->status);
    MICS_TRY(MICS_NEW(model->memory, from.param_count, &frozen.params));
    move_refs(model, u, trained, companion);
    memmove(&model->units[u + 2], &model->units[u + 1],
            (size_t)(model->unit_count - u - 2) * sizeof from);
    take_params(&frozen, from.params, from.param_count, true);
    take_params(&from, from.params, from.param_count, false);
    model->units[trained] = from;
    model->units[companion] = frozen;
    return MICS_OK;
}

// ---- tensors without a gradient ----

// Whether nothing trained leads to what an op makes.
static bool is_fixed(const mics_model *model, const mics_unit *unit, const mics_op *op)
{
    for (int i = 0; i < MICS_OP_INPUTS; i++) {
        if (op->in[i] >= 0 && !unit->tensors[op->in[i]].fixed)
            return false;
    }
    for (int p = 0; p < MICS_OP_PARAMS; p++) {
        if (op->params[p].unit >= 0 && !mics_model_param(model, op->params[p])->frozen)
            return false;
    }
    return true;
}

void model_mark_fixed(mics_model *model)
{
    bool fixed = true; // what passes from unit to unit
    for (int32_t u = 0; u < model->unit_count; u++) {
        mics_unit *unit = &model->units[u];
        if (!mics_unit_computes(unit))
            continue;
        unit->tensors[0].fixed = fixed;
        for (int32_t o = 0; o < unit->op_count; o++) {
            const mics_op *op = &unit->ops[o];
            if (op->out >= 0)
                unit->tensors[op->out].fixed = is_fixed(model, unit, op);
            if (op->stats >= 0)
                unit->tensors[op->stats].fixed = is_fixed(model, unit, op);
        }
        fixed = unit->out >= 0 && unit->tensors[unit->out].fixed;
    }
}

mics_status model_settle_frozen(mics_model *model)
{
    for (int32_t u = 0; u < model->unit_count; u++) {
        const int32_t frozen = count_frozen(&model->units[u]);
        model->units[u].frozen = frozen > 0 && frozen == model->units[u].param_count;
        if (frozen > 0 && !model->units[u].frozen)
            MICS_TRY(split_unit(model, u));
    }
    model_mark_fixed(model);
    return mics_model_trained_count(model) > 0
               ? MICS_OK
               : mics_fail(MICS_ERR_INVALID, "no parameter of %s trains", model->architecture);
}

typedef struct patterns {
    const char *const *list;
    int32_t count;
    bool *used;
} patterns;

static bool matches(void *ctx, const char *tensor)
{
    const patterns *of = ctx;
    bool any = false;
    for (int32_t i = 0; i < of->count; i++) {
        if (fnmatch(of->list[i], tensor, 0) == 0)
            any = of->used[i] = true;
    }
    return any;
}

mics_status mics_model_freeze(mics_model *model, const char *const *names, int32_t count)
{
    patterns of = {.list = names, .count = count};
    MICS_TRY(MICS_NEW(model->memory, count, &of.used));
    mics_status status = model_mark_frozen(model, &(model_choice){"model.trainable", matches, &of});
    for (int32_t i = 0; i < count && status == MICS_OK; i++) {
        if (!of.used[i])
            status = mics_fail(MICS_ERR_INVALID,
                               "model.trainable: \"%s\" matches no tensor; they are called as "
                               "\"%s\" is",
                               names[i], model->units[0].params[0].parts[0].name);
    }
    mics_free(model->memory, of.used);
    return status == MICS_OK ? model_settle_frozen(model) : status;
}

int64_t mics_model_trained_count(const mics_model *model)
{
    int64_t elems = 0;
    for (int32_t u = 0; u < model->unit_count; u++) {
        for (int32_t p = 0; p < model->units[u].param_count; p++)
            elems += model->units[u].params[p].frozen ? 0 : model->units[u].params[p].elems;
    }
    return elems;
}
