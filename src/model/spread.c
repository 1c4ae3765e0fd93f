// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// A model for ranks that keep different experts. In each mixture
//
//   experts_in, swiglu, experts_out    become
//   dispatch, all_to_all, experts_rows, swiglu, experts_rows, all_to_all, combine
//
// Tensors keep their numbers, and those of the rows get the width of rows that travel
// (ops/experts/def.h); new ones come behind.
#include "mics/log.h"
#include "mics/memory.h"
#include "model/internal.h"
#include <stdio.h>
#include <string.h>

// A mixture has at most so many ops and tensors more than before.
enum { MORE_OPS = 4, MORE_TENSORS = 4 };

typedef struct spreading {
    mics_model *model;
    mics_unit *unit;  // that is made
    int32_t experts;  // ranks
    int64_t length;   // of a sequence
    int32_t rows;     // that travel of a token, in the mixture under way
    int32_t came;     // tensor of the rows that came, in the mixture under way; -1: none is
    int32_t mixtures; // of the unit so far
} spreading;

static bool has_experts(const mics_unit *unit)
{
    for (int32_t o = 0; o < unit->op_count; o++) {
        if (unit->ops[o].routes >= 0)
            return true;
    }
    return false;
}

static int32_t count_mixtures(const mics_unit *unit)
{
    int32_t count = 0;
    for (int32_t o = 0; o < unit->op_count; o++)
        count += unit->ops[o].kind == MICS_OP_EXPERTS_IN;
    return count;
}

bool mics_model_can_spread(const mics_model *model, int32_t experts)
{
    bool any = false;
    for (int32_t u = 0; u < model->unit_count; u++) {
        const mics_unit *unit = &model->units[u];
        any = any || unit->experts > 0;
        if (count_mixtures(unit) > 1 || unit->experts % experts != 0)
            return false;
    }
    return any;
}

static mics_status check_experts(const mics_unit *unit, int32_t experts)
{
    if (unit->experts % experts == 0)
        return MICS_OK;
    char sizes[128] = "1";
    size_t used = 1;
    for (int32_t e = 2; e <= unit->experts && used < sizeof sizes - 16; e++) {
        if (unit->experts % e == 0)
            used += (size_t)snprintf(sizes + used, sizeof sizes - used, ", %d", (int)e);
    }
    return mics_fail(MICS_ERR_INVALID,
                     "sharding.experts = %d does not divide the %d experts of %s; these would "
                     "work: %s",
                     (int)experts, (int)unit->experts, unit->name, sizes);
}

static mics_status check_model(const mics_model *model, int32_t experts)
{
    bool any = false;
    for (int32_t u = 0; u < model->unit_count; u++) {
        if (model->units[u].experts == 0)
            continue;
        any = true;
        MICS_TRY(check_experts(&model->units[u], experts));
    }
    return any ? MICS_OK
               : mics_fail(MICS_ERR_INVALID,
                           "sharding.experts = %d: the model has no experts; only 1 would work",
                           (int)experts);
}

static int32_t add_tensor(const spreading *s, const char *name, int64_t width)
{
    s->unit->tensors[s->unit->tensor_count] = (mics_tensor){.name = name, .width = width};
    return s->unit->tensor_count++;
}

// Adds an op that makes tensor `out`; -1: a new one. Its width is what its kind says.
static mics_status add_op(const spreading *s, mics_op op, int32_t out, int32_t *out_out)
{
    const mics_op_def *def = mics_op_def_get(op.kind);
    const mics_batch none = {.threads = 1};
    int64_t width = 0, stats = 0;
    op.out = op.stats = -1;
    op.expert_ranks = s->experts;
    op.travel_rows = s->rows;
    const mics_op_shape shape = mics_op_shape_get(s->model, s->unit, &op, none);
    MICS_TRY(def->make(&shape, &width, &stats));
    if (out < 0)
        out = add_tensor(s, def->name, width);
    s->unit->tensors[out].width = width;
    op.out = out;
    s->unit->ops[s->unit->op_count++] = op;
    *out_out = out;
    return MICS_OK;
}

static mics_op op_like(const mics_op *of, mics_op_kind kind, int32_t in, int32_t routes)
{
    mics_op op = mics_op_of(kind, in, mics_param_none(), mics_param_none());
    op.experts = of->experts;
    op.routes = routes;
    return op;
}

// Tokens to the experts, and through their first weights.
static mics_status spread_in(spreading *s, const mics_op *of)
{
    int32_t x = -1;
    if (s->mixtures++ > 0)
        return mics_fail(MICS_ERR_UNSUPPORTED,
                         "unit %s: tokens travel to the experts of one mixture a unit; make "
                         "sharding.experts 1, or two units",
                         s->unit->name);
    s->rows = mics_experts_travel_rows(of->experts, s->experts, s->length);
    mics_op dispatch = op_like(of, MICS_OP_DISPATCH, of->in[0], of->routes);
    dispatch.in[1] = of->in[1];
    MICS_TRY(add_op(s, dispatch, -1, &x));
    MICS_TRY(add_op(s, op_like(of, MICS_OP_ALL_TO_ALL, x, -1), -1, &s->came));
    mics_op rows = op_like(of, MICS_OP_EXPERTS_ROWS, s->came, s->came);
    rows.params[0] = of->params[0];
    return add_op(s, rows, of->out, &x);
}

// Through their last weights, and back.
static mics_status spread_out(spreading *s, const mics_op *of)
{
    int32_t x = -1;
    mics_op rows = op_like(of, MICS_OP_EXPERTS_ROWS, of->in[0], s->came);
    rows.params[0] = of->params[0];
    MICS_TRY(add_op(s, rows, -1, &x));
    MICS_TRY(add_op(s, op_like(of, MICS_OP_ALL_TO_ALL, x, -1), -1, &x));
    mics_op combine = op_like(of, MICS_OP_COMBINE, x, of->routes);
    combine.in[1] = of->in[1];
    return add_op(s, combine, of->out, &x);
}

// An op between the two, on rows.
static mics_status spread_rows(spreading *s, const mics_op *of)
{
    int32_t x = -1;
    mics_op op = *of;
    op.routes = s->came;
    return add_op(s, op, of->out, &x);
}

static mics_status spread_op(spreading *s, const mics_op *of)
{
    if (of->kind == MICS_OP_EXPERTS_IN)
        return spread_in(s, of);
    if (of->kind == MICS_OP_EXPERTS_OUT) {
        MICS_TRY(spread_out(s, of));
        s->came = -1;
        return MICS_OK;
    }
    if (s->came >= 0 && of->in[1] < 0 && of->experts.count > 0)
        return spread_rows(s, of);
    s->unit->ops[s->unit->op_count++] = *of;
    return MICS_OK;
}

static mics_status spread_unit(spreading *s, const mics_unit *from)
{
    mics_memory *memory = s->model->memory;
    mics_tensor *tensors = NULL;
    mics_op *ops = NULL;
    const int32_t mixtures = from->op_count; // or fewer
    MICS_TRY(MICS_NEW(memory, from->tensor_count + MORE_TENSORS * mixtures, &tensors));
    memcpy(tensors, from->tensors, (size_t)from->tensor_count * sizeof *tensors);
    s->unit->tensors = tensors;
    MICS_TRY(MICS_NEW(memory, from->op_count + MORE_OPS * mixtures, &ops));
    s->unit->ops = ops;
    s->unit->op_count = 0;
    s->came = -1;
    for (int32_t o = 0; o < from->op_count; o++)
        MICS_TRY(spread_op(s, &from->ops[o]));
    return MICS_OK;
}

mics_status mics_model_spread(const mics_model *model, int32_t experts, int64_t length,
                              mics_model **model_out)
{
    MICS_TRY(check_model(model, experts));
    mics_model *made = NULL;
    mics_status status = MICS_OK;
    MICS_TRY(MICS_NEW(model->memory, 1, &made));
    *made = *model;
    made->base = model;
    made->units = NULL;
    MICS_TRY_OUT(MICS_NEW(model->memory, model->unit_count, &made->units));
    memcpy(made->units, model->units, (size_t)model->unit_count * sizeof *made->units);
    for (int32_t u = 0; u < model->unit_count; u++) {
        spreading s = {
            .model = made, .unit = &made->units[u], .experts = experts, .length = length};
        if (has_experts(&model->units[u]))
            MICS_TRY_OUT(spread_unit(&s, &model->units[u]));
    }
    model_mark_fixed(made);
    *model_out = made;
    return MICS_OK;
out:
    mics_model_close(made);
    return status;
}
