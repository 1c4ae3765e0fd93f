// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// What of a model trains. Parameters are marked; units that have both kinds become two; and tensors
// that no trained parameter leads to have no gradient.
#include "base/free.h"
#include "base/size.h"
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

static bool is_mixed(const mics_unit *unit)
{
    const int32_t frozen = count_frozen(unit);
    return frozen > 0 && frozen < unit->param_count;
}

// Two units of one, whose companion has room for all of its parameters.
static mics_status open_split(mics_model *model, const mics_unit *from, mics_unit *trained,
                              mics_unit *frozen)
{
    *trained = *from;
    *frozen = (mics_unit){.out = -1, .companion = true};
    if (snprintf(frozen->name, sizeof frozen->name, "%s.frozen", from->name) >=
        (int)sizeof frozen->name)
        return mics_fail(MICS_ERR_INVALID, "unit %s: its name is too long", from->name);
    return MICS_NEW(model->memory, from->param_count, &frozen->params);
}

// A companion is behind its unit; that of the last one is before it, which stays the last. `at`, by
// old unit, says where it is now.
static mics_status open_units(mics_model *model, mics_unit *units, int32_t *at)
{
    int32_t count = 0;
    for (int32_t u = 0; u < model->unit_count; u++) {
        const mics_unit *unit = &model->units[u];
        const bool last = u == model->unit_count - 1, mixed = is_mixed(unit);
        at[u] = count + (mixed && last);
        if (mixed)
            MICS_TRY(open_split(model, unit, &units[at[u]], &units[count + !last]));
        else
            units[count] = *unit;
        count += 1 + mixed;
    }
    return MICS_OK;
}

// Moves a unit's frozen parameters to its companion.
static void move_params(mics_unit *units, int32_t at, int32_t companion, mics_param_ref *moved)
{
    mics_unit *unit = &units[at];
    const int32_t count = unit->param_count;
    if (companion >= 0)
        unit->elems = unit->param_count = 0;
    for (int32_t p = 0; p < count; p++) {
        mics_param param = unit->params[p];
        const int32_t to_at = param.frozen && companion >= 0 ? companion : at;
        mics_unit *to = &units[to_at];
        moved[p] = (mics_param_ref){to_at, companion >= 0 ? to->param_count++ : p};
        if (companion < 0)
            continue;
        param.offset = to->elems;
        to->elems = mics_size_round_up(param.offset + param.elems, MODEL_PARAM_ALIGNMENT);
        to->params[moved[p].param] = param;
    }
}

static void move_refs(mics_model *model, mics_param_ref *const *moved)
{
    for (int32_t u = 0; u < model->unit_count; u++) {
        for (int32_t i = 0; i < model->units[u].op_count * MICS_OP_PARAMS; i++) {
            mics_param_ref *ref =
                &model->units[u].ops[i / MICS_OP_PARAMS].params[i % MICS_OP_PARAMS];
            if (ref->unit >= 0)
                *ref = moved[ref->unit][ref->param];
        }
    }
}

static mics_status check_mixed(const mics_model *model, int32_t *mixed_out)
{
    for (int32_t u = 0; u < model->unit_count; u++) {
        const bool mixed = is_mixed(&model->units[u]);
        if (mixed && model->units[u].experts > 0)
            return mics_fail(MICS_ERR_INVALID,
                             "model.trainable: of the experts of %s all parameters train, or none",
                             model->units[u].name);
        *mixed_out += mixed;
    }
    return MICS_OK;
}

// Cannot fail.
static void move_all(mics_model *model, mics_unit *units, const int32_t *at,
                     mics_param_ref *const *moved)
{
    const int32_t count = model->unit_count;
    for (int32_t u = 0; u < count; u++) {
        const int32_t beside = at[u] + (u == count - 1 ? -1 : 1);
        move_params(units, at[u], is_mixed(&model->units[u]) ? beside : -1, moved[u]);
    }
    mics_free(model->memory, model->units);
    model->units = units;
}

static mics_status split(mics_model *model)
{
    mics_unit *units = NULL;
    mics_param_ref **moved = NULL;
    int32_t mixed = 0, *at = NULL;
    mics_status status = MICS_OK;
    const int32_t count = model->unit_count;
    MICS_TRY(check_mixed(model, &mixed));
    if (mixed == 0)
        return MICS_OK;
    MICS_TRY_OUT(MICS_NEW(model->memory, count, &at));
    MICS_TRY_OUT(MICS_NEW(model->memory, count, &moved));
    for (int32_t u = 0; u < count; u++)
        MICS_TRY_OUT(MICS_NEW(model->memory, model->units[u].param_count + 1, &moved[u]));
    MICS_TRY_OUT(MICS_NEW(model->memory, count + mixed, &units));
    MICS_TRY_OUT(open_units(model, units, at));
    move_all(model, units, at, moved);
    units = NULL;
    model->unit_count = count + mixed;
    move_refs(model, moved);
out:
    for (int32_t i = 0; units != NULL && i < count + mixed; i++) {
        if (units[i].companion)
            mics_free(model->memory, units[i].params);
    }
    for (int32_t u = 0; moved != NULL && u < count; u++)
        mics_free(model->memory, moved[u]);
    MICS_FREE_ALL(model->memory, moved, at, units);
    return status;
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
    MICS_TRY(split(model));
    for (int32_t u = 0; u < model->unit_count; u++) {
        mics_unit *unit = &model->units[u];
        unit->frozen = unit->param_count > 0 && count_frozen(unit) == unit->param_count;
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
