// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// A model whose residual stream is fp32 in every precision. The stream is what passes from unit to
// unit, and each sum that it is a term of. Casts stand where the stream meets other ops:
//
//   x ------------------------------ add -> x
//   x -> cast -> norm -> ... -> cast --^
//
// Each cast of a tensor is made once, before the first op that reads it.
#include "base/free.h"
#include "mics/builder.h"
#include "mics/log.h"
#include "mics/memory.h"
#include "model/internal.h"

typedef struct widening {
    mics_unit *unit;    // as it becomes: with the old one's tensors and ops, and casts
    int32_t *tensor_of; // by old tensor: the one that it is now
    int32_t *cast_of;   // by old tensor: its cast; -1: none yet
} widening;

static int32_t add_tensor(const widening *w, const mics_tensor *like, const char *name, bool wide)
{
    w->unit->tensors[w->unit->tensor_count] =
        (mics_tensor){.name = name, .width = like->width, .wide = wide};
    return w->unit->tensor_count++;
}

// An old tensor in fp32, or in the precision; -1 for -1.
static int32_t read_as(const widening *w, int32_t old, bool wide)
{
    if (old < 0)
        return -1;
    const int32_t tensor = w->tensor_of[old];
    if (w->unit->tensors[tensor].wide == wide)
        return tensor;
    if (w->cast_of[old] < 0) {
        mics_op op = mics_op_of(MICS_OP_CAST, tensor, mics_param_none(), mics_param_none());
        op.wide = wide;
        op.out = w->cast_of[old] = add_tensor(w, &w->unit->tensors[tensor], "cast", wide);
        w->unit->ops[w->unit->op_count++] = op;
    }
    return w->cast_of[old];
}

static bool is_wide(const widening *w, int32_t old)
{
    return old >= 0 && w->unit->tensors[w->tensor_of[old]].wide;
}

static int32_t make_tensor(const widening *w, const mics_unit *from, int32_t old, bool wide)
{
    if (old < 0)
        return -1;
    const mics_tensor *like = &from->tensors[old];
    return w->tensor_of[old] = add_tensor(w, like, like->name, wide);
}

static void widen_op(const widening *w, const mics_unit *from, const mics_op *of)
{
    mics_op op = *of;
    op.wide = mics_op_def_get(of->kind)->backward_passes &&
              (is_wide(w, of->in[0]) || is_wide(w, of->in[1]));
    for (int32_t i = 0; i < MICS_OP_INPUTS; i++)
        op.in[i] = read_as(w, of->in[i], op.wide);
    op.routes = of->routes >= 0 ? w->tensor_of[of->routes] : -1;
    op.out = make_tensor(w, from, of->out, op.wide);
    op.stats = make_tensor(w, from, of->stats, false);
    w->unit->ops[w->unit->op_count++] = op;
}

// A unit behind the first one must end with the stream, and not with a norm of it, say.
static mics_status end_unit(const widening *w, const mics_unit *from)
{
    if (from->out < 0)
        return MICS_OK;
    if (from->tensors[0].width > 0 && !is_wide(w, from->out))
        return mics_fail(MICS_ERR_UNSUPPORTED,
                         "run.residual_dtype fp32: unit %s ends with %s, not with a residual sum; "
                         "models that normalise before each block work, or \"same\"",
                         from->name, from->tensors[from->out].name);
    w->unit->out = read_as(w, from->out, true);
    return MICS_OK;
}

static mics_status widen_unit(mics_memory *memory, mics_unit *unit)
{
    const mics_unit from = *unit;
    widening w = {.unit = unit};
    mics_tensor *tensors = NULL;
    mics_op *ops = NULL;
    mics_status status = MICS_OK;
    MICS_TRY_OUT(MICS_NEW(memory, 2 * from.tensor_count, &tensors));
    MICS_TRY_OUT(MICS_NEW(memory, from.op_count + from.tensor_count, &ops));
    MICS_TRY_OUT(MICS_NEW(memory, from.tensor_count, &w.tensor_of));
    MICS_TRY_OUT(MICS_NEW(memory, from.tensor_count, &w.cast_of));
    unit->tensors = tensors;
    unit->ops = ops;
    unit->tensor_count = unit->op_count = 0;
    for (int32_t t = 0; t < from.tensor_count; t++)
        w.cast_of[t] = -1;
    make_tensor(&w, &from, 0, from.tensors[0].width > 0);
    for (int32_t o = 0; o < from.op_count; o++)
        widen_op(&w, &from, &from.ops[o]);
    MICS_TRY_OUT(end_unit(&w, &from));
    tensors = from.tensors;
    ops = from.ops;
out:
    if (status != MICS_OK)
        *unit = from;
    MICS_FREE_ALL(memory, tensors, ops, w.tensor_of, w.cast_of);
    return status;
}

mics_status mics_model_widen_residual(mics_model *model)
{
    for (int32_t u = 0; u < model->unit_count; u++) {
        if (mics_unit_computes(&model->units[u]))
            MICS_TRY(widen_unit(model->memory, &model->units[u]));
    }
    model_mark_fixed(model);
    return MICS_OK;
}
