// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// A model for ranks that keep different experts, or share sequences. For the first, in each mixture
//
//   experts_in, swiglu, experts_out    become
//   dispatch, all_to_all, experts_rows, swiglu, experts_rows, all_to_all, combine
//
// and for the second (Jacobs et al., DeepSpeed Ulysses, 2023, arXiv:2309.14509)
//
//   attention    becomes    sequence_blocks, all_to_all, attention, all_to_all, sequence_blocks
//   router                  router, all_to_all of its sums
//
// with sequence_blocks on both sides of attention where a batch has several sequences. Tensors keep
// their numbers, and those of the rows get the width of rows that travel (ops/experts/def.h); new ones
// come behind.
#include "mics/builder.h"
#include "mics/log.h"
#include "mics/memory.h"
#include "model/internal.h"
#include <stdio.h>
#include <string.h>

// An op becomes at most so many more ops, of so many more tensors.
enum { MORE = 6 };

typedef struct spreading {
    mics_model *model;
    mics_unit *unit;           // that is made
    int32_t experts, sequence; // ranks
    mics_batch batch;
    int32_t rows; // that travel of a token, in the mixture under way
    int32_t came; // tensor of the rows that came, in the mixture under way; -1: none is
} spreading;

static int32_t count_ops(const mics_unit *unit, mics_op_kind kind)
{
    int32_t count = 0;
    for (int32_t o = 0; o < unit->op_count; o++)
        count += unit->ops[o].kind == kind;
    return count;
}

bool mics_model_can_spread(const mics_model *model, int32_t experts)
{
    bool any = false;
    for (int32_t u = 0; u < model->unit_count; u++) {
        const mics_unit *unit = &model->units[u];
        any = any || unit->experts > 0;
        if (count_ops(unit, MICS_OP_EXPERTS_IN) > 1 || unit->experts % experts != 0)
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

static mics_status check_mixtures(const mics_model *model, int32_t experts)
{
    bool any = experts == 1;
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

// What keeps so many ranks from sharing sequences in a unit; NULL: nothing.
static const char *cut_lacks(const mics_unit *unit, int32_t sequence)
{
    if (count_ops(unit, MICS_OP_ATTENTION) > 1 || count_ops(unit, MICS_OP_ROUTER) > 1)
        return "has several attentions or routers, of which a unit must have one";
    for (int32_t o = 0; o < unit->op_count; o++) {
        const mics_op *op = &unit->ops[o];
        if (op->experts.capacity > 0 || op->experts.eval_capacity > 0)
            return "has experts with a capacity, which counts rows of whole sequences";
        if (op->kind == MICS_OP_ATTENTION && op->heads.query % sequence != 0)
            return "has query heads that this does not divide";
    }
    return NULL;
}

bool mics_model_can_cut_sequences(const mics_model *model, int32_t sequence)
{
    for (int32_t u = 0; sequence > 1 && u < model->unit_count; u++) {
        if (cut_lacks(&model->units[u], sequence) != NULL)
            return false;
    }
    return true;
}

static mics_status check_sequence(const mics_model *model, int32_t sequence)
{
    enum { MAX_LISTED = 256 };
    const mics_unit *unit = model->units;
    char sizes[128] = "1";
    size_t used = 1;
    if (mics_model_can_cut_sequences(model, sequence))
        return MICS_OK;
    while (cut_lacks(unit, sequence) == NULL)
        unit++;
    for (int32_t s = 2; s <= MAX_LISTED && used < sizeof sizes - 16; s++) {
        if (mics_model_can_cut_sequences(model, s))
            used += (size_t)snprintf(sizes + used, sizeof sizes - used, ", %d", (int)s);
    }
    return mics_fail(MICS_ERR_INVALID, "sharding.sequence = %d: unit %s %s; these would work: %s",
                     (int)sequence, unit->name, cut_lacks(unit, sequence), sizes);
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
    int64_t width = 0, stats = 0;
    op.out = -1;
    const mics_op_shape shape = mics_op_shape_get(s->model, s->unit, &op, s->batch);
    MICS_TRY(def->make(&shape, &width, &stats));
    width *= def->whole_sequences ? s->sequence : 1;
    if (out < 0)
        out = add_tensor(s, def->name, width);
    s->unit->tensors[out].width = width;
    op.out = out;
    s->unit->ops[s->unit->op_count++] = op;
    *out_out = out;
    return MICS_OK;
}

static mics_op op_like(const spreading *s, const mics_op *of, mics_op_kind kind, int32_t in,
                       int32_t routes)
{
    mics_op op = mics_op_of(kind, in, mics_param_none(), mics_param_none());
    op.experts = of->experts;
    op.routes = routes;
    op.expert_ranks = s->experts;
    op.travel_rows = s->rows;
    return op;
}

// Tokens to the experts, and through their first weights.
static mics_status spread_in(spreading *s, const mics_op *of)
{
    int32_t x = -1;
    if (count_ops(s->unit, MICS_OP_DISPATCH) > 0)
        return mics_fail(MICS_ERR_UNSUPPORTED,
                         "unit %s: tokens travel to the experts of one mixture a unit; make "
                         "sharding.experts 1, or two units",
                         s->unit->name);
    s->rows = mics_experts_travel_rows(of->experts, s->experts, s->batch.length);
    mics_op dispatch = op_like(s, of, MICS_OP_DISPATCH, of->in[0], of->routes);
    dispatch.in[1] = of->in[1];
    MICS_TRY(add_op(s, dispatch, -1, &x));
    MICS_TRY(add_op(s, op_like(s, of, MICS_OP_ALL_TO_ALL, x, -1), -1, &s->came));
    mics_op rows = op_like(s, of, MICS_OP_EXPERTS_ROWS, s->came, s->came);
    rows.params[0] = of->params[0];
    return add_op(s, rows, of->out, &x);
}

// Through their last weights, and back.
static mics_status spread_out(spreading *s, const mics_op *of)
{
    int32_t x = -1;
    mics_op rows = op_like(s, of, MICS_OP_EXPERTS_ROWS, of->in[0], s->came);
    rows.params[0] = of->params[0];
    MICS_TRY(add_op(s, rows, -1, &x));
    MICS_TRY(add_op(s, op_like(s, of, MICS_OP_ALL_TO_ALL, x, -1), -1, &x));
    mics_op combine = op_like(s, of, MICS_OP_COMBINE, x, of->routes);
    combine.in[1] = of->in[1];
    return add_op(s, combine, of->out, &x);
}

// An op between the two, on rows.
static mics_status spread_rows(spreading *s, const mics_op *of)
{
    int32_t x = -1;
    mics_op op = *of;
    op.routes = s->came;
    op.expert_ranks = s->experts;
    op.travel_rows = s->rows;
    return add_op(s, op, of->out, &x);
}

// Of sequences that ranks share: an op in front of attention (heads of q, k and v), or behind it.
static mics_status exchange(spreading *s, mics_heads heads, mics_op_kind kind, bool from_blocks,
                            int32_t out, int32_t *x_io)
{
    mics_op op = mics_op_of(kind, *x_io, mics_param_none(), mics_param_none());
    op.heads = heads;
    op.sequence_ranks = s->sequence;
    op.from_blocks = from_blocks;
    return add_op(s, op, out, x_io);
}

// Whole sequences of a batch of one are their blocks.
static mics_status cut_attention(spreading *s, const mics_op *of)
{
    const mics_heads none = {0}, outputs = {of->heads.query, 0, of->heads.dim};
    const bool several = s->batch.sequences > 1;
    mics_op attention = *of;
    int32_t *x = &attention.in[0];
    attention.heads = mics_sequence_heads(of->heads, s->sequence);
    attention.sequence_ranks = s->sequence;
    MICS_TRY(exchange(s, of->heads, MICS_OP_SEQUENCE_BLOCKS, false, -1, x));
    MICS_TRY(exchange(s, none, MICS_OP_ALL_TO_ALL, false, -1, x));
    if (several)
        MICS_TRY(exchange(s, none, MICS_OP_SEQUENCE_BLOCKS, true, -1, x));
    MICS_TRY(add_op(s, attention, -1, x));
    if (several)
        MICS_TRY(exchange(s, none, MICS_OP_SEQUENCE_BLOCKS, false, -1, x));
    MICS_TRY(exchange(s, none, MICS_OP_ALL_TO_ALL, false, -1, x));
    return exchange(s, outputs, MICS_OP_SEQUENCE_BLOCKS, true, of->out, x);
}

// What a router adds up over its tokens lies behind its stats, and comes from all ranks.
static mics_status cut_router(spreading *s, const mics_op *of)
{
    mics_op sums = mics_op_of(MICS_OP_ALL_TO_ALL, of->stats, mics_param_none(), mics_param_none());
    mics_op router = *of;
    int32_t x = -1;
    sums.experts = of->experts;
    sums.sequence_ranks = router.sequence_ranks = s->sequence;
    router.routes = s->unit->tensor_count; // what comes
    MICS_TRY(add_op(s, router, of->out, &x));
    MICS_TRY(add_op(s, sums, -1, &x));
    s->unit->tensors[of->stats].width += s->unit->tensors[x].width;
    s->unit->tensors[of->stats].wide = s->unit->tensors[x].wide = true;
    return MICS_OK;
}

static mics_status spread_op(spreading *s, const mics_op *of)
{
    if (of->kind == MICS_OP_ATTENTION && s->sequence > 1)
        return cut_attention(s, of);
    if (of->kind == MICS_OP_ROUTER && s->sequence > 1)
        return cut_router(s, of);
    if (of->kind == MICS_OP_EXPERTS_IN && s->experts > 1)
        return spread_in(s, of);
    if (of->kind == MICS_OP_EXPERTS_OUT && s->experts > 1) {
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
    const size_t ops_before = (size_t)from->op_count, tensors_before = (size_t)from->tensor_count;
    MICS_TRY(MICS_NEW(memory, tensors_before + MORE * ops_before, &tensors));
    memcpy(tensors, from->tensors, (size_t)from->tensor_count * sizeof *tensors);
    s->unit->tensors = tensors;
    MICS_TRY(MICS_NEW(memory, (1 + MORE) * ops_before, &ops));
    s->unit->ops = ops;
    s->unit->op_count = 0;
    s->came = -1;
    for (int32_t o = 0; o < from->op_count; o++)
        MICS_TRY(spread_op(s, &from->ops[o]));
    return MICS_OK;
}

mics_status mics_model_spread(const mics_model *model, int32_t experts, int32_t sequence,
                              mics_batch batch, mics_model **model_out)
{
    MICS_TRY(check_mixtures(model, experts));
    MICS_TRY(check_sequence(model, sequence));
    mics_model *made = NULL;
    mics_status status = MICS_OK;
    MICS_TRY(MICS_NEW(model->memory, 1, &made));
    *made = *model;
    made->base = model;
    made->units = NULL;
    MICS_TRY_OUT(MICS_NEW(model->memory, model->unit_count, &made->units));
    memcpy(made->units, model->units, (size_t)model->unit_count * sizeof *made->units);
    for (int32_t u = 0; u < model->unit_count; u++) {
        spreading s = {.model = made,
                       .unit = &made->units[u],
                       .experts = experts,
                       .sequence = sequence,
                       .batch = batch};
        if (mics_unit_computes(&model->units[u]))
            MICS_TRY_OUT(spread_unit(&s, &model->units[u]));
    }
    model_mark_fixed(made);
    *model_out = made;
    return MICS_OK;
out:
    mics_model_close(made);
    return status;
}
