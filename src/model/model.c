// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// The builder that models are made with, and its checks.
#include "mics/model.h"
#include "base/free.h"
#include "base/size.h"
#include "mics/builder.h"
#include "mics/log.h"
#include "model/internal.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

static mics_status check_spec(const mics_model_spec *spec)
{
    const size_t bytes = strlen(spec->architecture);
    if (bytes < 1 || bytes >= MICS_NAME_BYTES)
        return mics_fail(MICS_ERR_INVALID,
                         "mics_model_spec: the architecture's name has %zu bytes; 1 to %d work",
                         bytes, MICS_NAME_BYTES - 1);
    if (spec->vocab < 2 || spec->vocab > INT32_MAX || spec->positions < 1 || spec->hidden < 1)
        return mics_fail(
            MICS_ERR_INVALID,
            "mics_model_spec: %s has vocab %lld, positions %lld and hidden %lld; vocab "
            "must be 2 to %d, the others at least 1",
            spec->architecture, (long long)spec->vocab, (long long)spec->positions,
            (long long)spec->hidden, INT32_MAX);
    return MICS_OK;
}

mics_status mics_model_open(mics_memory *memory, const mics_model_spec *spec,
                            mics_model **model_out)
{
    void *block = NULL;
    MICS_TRY(check_spec(spec));
    MICS_TRY(mics_alloc(memory, MICS_MEM_HOST, sizeof(mics_model), &block));
    mics_model *model = block;
    model->memory = memory;
    snprintf(model->architecture, sizeof model->architecture, "%s", spec->architecture);
    model->vocab = spec->vocab;
    model->positions = spec->positions;
    model->hidden = spec->hidden;
    *model_out = model;
    return MICS_OK;
}

// Of a model that another one is the base of.
static void close_spread(mics_model *model)
{
    for (int32_t u = 0; model->units != NULL && u < model->unit_count; u++) {
        const mics_unit *unit = &model->units[u], *base = &model->base->units[u];
        if (unit->tensors != base->tensors)
            mics_free(model->memory, unit->tensors);
        if (unit->ops != base->ops)
            mics_free(model->memory, unit->ops);
    }
    mics_free(model->memory, model->units);
    mics_free(model->memory, model);
}

void mics_model_close(mics_model *model)
{
    if (model == NULL)
        return;
    if (model->base != NULL) {
        close_spread(model);
        return;
    }
    for (int32_t u = 0; u < model->unit_count; u++) {
        for (int32_t p = 0; p < model->units[u].param_count; p++)
            mics_free(model->memory, model->units[u].params[p].parts);
        MICS_FREE_ALL(model->memory, model->units[u].params, model->units[u].tensors,
                      model->units[u].ops);
    }
    mics_free(model->memory, model->units);
    for (int32_t r = 0; r < model->rotary_count; r++)
        mics_free(model->memory, (void *)model->rotaries[r].frequencies);
    mics_free(model->memory, model->rotaries);
    mics_free(model->memory, model);
}

static int32_t add_tensor(mics_model *model, const char *name, int64_t width)
{
    mics_unit *unit = model_newest(model);
    if (unit == NULL)
        return -1;
    void *array = unit->tensors;
    mics_tensor *tensor = model_append(model, &array, &unit->tensor_count, sizeof *tensor);
    unit->tensors = array;
    if (tensor == NULL)
        return -1;
    *tensor = (mics_tensor){.name = name, .width = width};
    return unit->tensor_count - 1;
}

int32_t mics_model_unit(mics_model *model, const char *name, int64_t input_width)
{
    model->adds_experts = false;
    if (model_append_unit(model, name) == NULL)
        return -1;
    add_tensor(model, "in", input_width);
    return model->unit_count - 1;
}

int32_t model_append_param(mics_model *model, mics_unit *unit, const char *name,
                           const mics_param_spec *spec)
{
    if (spec->dims < 1 || spec->dims > 2 || strlen(name) >= MICS_NAME_BYTES) {
        model->status = mics_fail(MICS_ERR_INVALID,
                                  "parameter %s has %d dimensions and a name of %zu bytes; 1 or 2 "
                                  "dimensions and at most %d bytes are possible",
                                  name, (int)spec->dims, strlen(name), MICS_NAME_BYTES - 1);
        return -1;
    }
    mics_param param = {
        .dims = spec->dims, .init = spec->init, .init_std = spec->init_std, .decay = spec->decay};
    snprintf(param.name, sizeof param.name, "%s", name);
    param.elems = 1;
    for (int32_t d = 0; d < spec->dims && model->status == MICS_OK; d++) {
        param.shape[d] = spec->shape[d];
        model->status = mics_size_mul(param.elems, spec->shape[d], &param.elems);
    }
    if (model->status == MICS_OK && (param.elems < 1 || param.elems > INT64_MAX / 64 - unit->elems))
        model->status = mics_fail(MICS_ERR_INVALID, "parameter %s: %lld elements", name,
                                  (long long)param.elems);
    param.offset = unit->elems;
    void *array = unit->params;
    mics_param *slot = model_append(model, &array, &unit->param_count, sizeof *slot);
    unit->params = array;
    if (slot == NULL)
        return -1;
    *slot = param;
    unit->elems = mics_size_round_up(param.offset + param.elems, MODEL_PARAM_ALIGNMENT);
    return unit->param_count - 1;
}

mics_param_ref mics_model_add_param(mics_model *model, const char *name,
                                    const mics_param_spec *spec)
{
    mics_unit *unit = model_newest_params(model);
    const int32_t param = unit != NULL ? model_append_param(model, unit, name, spec) : -1;
    return param < 0 ? mics_param_none()
                     : (mics_param_ref){.unit = (int32_t)(unit - model->units), .param = param};
}

// ---- ops ----

// Adds the op together with the tensors it makes; returns its output.
static int32_t add_op(mics_model *model, mics_op op, int64_t out_width, int64_t stats_width)
{
    const char *name = mics_op_def_get(op.kind)->name;
    if (out_width > 0)
        op.out = add_tensor(model, name, out_width);
    if (stats_width > 0)
        op.stats = add_tensor(model, "stats", stats_width);
    mics_unit *unit = model_newest(model);
    if (unit == NULL)
        return -1;
    void *array = unit->ops;
    mics_op *slot = model_append(model, &array, &unit->op_count, sizeof *slot);
    unit->ops = array;
    if (slot == NULL)
        return -1;
    *slot = op;
    return op.out;
}

// Width of a tensor of the newest unit; -1 with model->status set when there is no such tensor.
static int64_t width_of(mics_model *model, int32_t tensor)
{
    mics_unit *unit = model_newest(model);
    if (unit == NULL)
        return -1;
    if (tensor < 0 || tensor >= unit->tensor_count) {
        model->status =
            mics_fail(MICS_ERR_INVALID, "unit %s: no tensor %d", unit->name, (int)tensor);
        return -1;
    }
    return unit->tensors[tensor].width;
}

static bool is_param(const mics_model *model, mics_param_ref ref)
{
    return ref.unit >= 0 && ref.unit < model->unit_count && ref.param >= 0 &&
           ref.param < model->units[ref.unit].param_count;
}

// Whether the op names the parameters that its kind has, of so many dimensions, and each once.
static mics_status check_params(const mics_model *model, const mics_op_def *def, const mics_op *op)
{
    for (int32_t p = 0; p < def->params; p++) {
        const mics_param_ref ref = op->params[p], first = op->params[0];
        if (ref.unit < 0 && p >= def->params_needed)
            continue;
        if (!is_param(model, ref))
            return mics_fail(MICS_ERR_INVALID, "%s: a parameter is missing", def->name);
        const mics_param *param = mics_model_param(model, ref);
        if (param->dims != def->param_dims[p])
            return mics_fail(MICS_ERR_INVALID, "%s: %s has %d dimensions, not %d", def->name,
                             param->name, (int)param->dims, (int)def->param_dims[p]);
        if (p > 0 && ref.unit == first.unit && ref.param == first.param)
            return mics_fail(MICS_ERR_INVALID,
                             "%s: %s is named twice; where a parameter is absent say "
                             "mics_param_none()",
                             def->name, param->name);
        MICS_TRY(model_check_expert(model, def, op, ref));
    }
    return MICS_OK;
}

// Of an op with dropout a mask for each query head, or slice, or one; of a router one for each use.
static int64_t masks_of(const mics_op *op)
{
    enum { ROUTER_MASKS = 2 };
    if (op->router.jitter > 0 || op->router.random_second)
        return ROUTER_MASKS;
    if (op->dropout <= 0)
        return 0;
    if (op->lora.slices > 0)
        return op->lora.slices;
    return op->heads.query > 0 ? op->heads.query : 1;
}

static void number_masks(mics_model *model, mics_op *op)
{
    const int64_t masks = masks_of(op);
    op->mask = model->masks;
    if (model->status != MICS_OK)
        return;
    if (masks > (int64_t)UINT32_MAX - model->masks)
        model->status = mics_fail(MICS_ERR_INVALID, "the model has more than %lld dropout masks",
                                  (long long)UINT32_MAX);
    else
        model->masks += (uint32_t)masks;
}

static bool same_experts(const mics_experts *a, const mics_experts *b)
{
    return a->count == b->count && a->chosen == b->chosen && a->capacity == b->capacity &&
           a->eval_capacity == b->eval_capacity && a->min_capacity == b->min_capacity;
}

// The stats of the router whose output is the op's second input; -1: it has none.
static int32_t routes_of(const mics_unit *unit, const mics_op *op)
{
    for (int32_t o = 0; o < unit->op_count; o++) {
        const mics_op *maker = &unit->ops[o];
        if (op->experts.count > 0 && op->in[1] > 0 && maker->out == op->in[1] &&
            same_experts(&maker->experts, &op->experts))
            return maker->stats;
    }
    return -1;
}

int32_t mics_model_add_op(mics_model *model, mics_op op)
{
    const mics_op_def *def = mics_op_def_get(op.kind);
    const mics_batch none = {.threads = 1};
    int64_t out = 0, stats = 0;
    op.out = op.stats = -1;
    op.segments = op.segments && def->reads_segments;
    for (int32_t i = 0; i < MICS_OP_INPUTS; i++)
        op.in[i] = i < def->inputs ? op.in[i] : -1;
    for (int32_t i = 0; i < def->inputs; i++)
        width_of(model, op.in[i]);
    for (int32_t p = def->params; p < MICS_OP_PARAMS; p++)
        op.params[p] = mics_param_none();
    const mics_unit *unit = model_newest(model);
    if (unit == NULL)
        return -1;
    model->status = check_params(model, def, &op);
    if (model->status != MICS_OK)
        return -1;
    op.routes = routes_of(unit, &op);
    const mics_op_shape shape = mics_op_shape_get(model, unit, &op, none);
    model->status = def->make(&shape, &out, &stats);
    number_masks(model, &op);
    return add_op(model, op, out, stats);
}

// ---- rotary tables ----

static mics_status check_rotary(const mics_rotary_spec *spec, int64_t dim)
{
    if (spec->dims < 2 || spec->dims % 2 != 0 || spec->dims > dim)
        return mics_fail(MICS_ERR_INVALID,
                         "mics_rotary_spec: %lld of %lld numbers of a head turn; an even number, 2 "
                         "to all of them, works",
                         (long long)spec->dims, (long long)dim);
    bool finite = isfinite(spec->scale);
    for (int64_t i = 0; i < spec->dims / 2; i++)
        finite = finite && isfinite(spec->frequencies[i]);
    return finite ? MICS_OK
                  : mics_fail(MICS_ERR_INVALID,
                              "mics_rotary_spec: a frequency or the scale is not finite");
}

static int32_t find_rotary(const mics_model *model, const mics_rotary_spec *spec)
{
    const size_t bytes = (size_t)spec->dims / 2 * sizeof *spec->frequencies;
    for (int32_t r = 0; r < model->rotary_count; r++) {
        const mics_rotary_spec *have = &model->rotaries[r];
        if (have->dims == spec->dims && have->scale == spec->scale &&
            memcmp(have->frequencies, spec->frequencies, bytes) == 0)
            return r;
    }
    return -1;
}

static mics_status copy_frequencies(mics_model *model, const mics_rotary_spec *spec,
                                    float **copy_out)
{
    float *copy = NULL;
    MICS_TRY(MICS_NEW(model->memory, spec->dims / 2, &copy));
    memcpy(copy, spec->frequencies, (size_t)spec->dims / 2 * sizeof *copy);
    *copy_out = copy;
    return MICS_OK;
}

// The number of this table, which is added unless the model has it; -1 after a failure.
static int32_t rotary_of(mics_model *model, const mics_rotary_spec *spec)
{
    const int32_t found = find_rotary(model, spec);
    if (found >= 0)
        return found;
    float *frequencies = NULL;
    model->status = copy_frequencies(model, spec, &frequencies);
    void *array = model->rotaries;
    mics_rotary_spec *slot = model_append(model, &array, &model->rotary_count, sizeof *slot);
    model->rotaries = array;
    if (slot == NULL) {
        mics_free(model->memory, frequencies);
        return -1;
    }
    *slot =
        (mics_rotary_spec){.dims = spec->dims, .frequencies = frequencies, .scale = spec->scale};
    return model->rotary_count - 1;
}

int32_t mics_op_rotary(mics_model *model, int32_t in, mics_heads heads,
                       const mics_rotary_spec *spec)
{
    if (model_newest(model) == NULL)
        return -1;
    model->status = check_rotary(spec, heads.dim);
    if (model->status != MICS_OK)
        return -1;
    mics_op op = mics_op_of(MICS_OP_ROTARY, in, mics_param_none(), mics_param_none());
    op.heads = heads;
    op.rotary = rotary_of(model, spec);
    return mics_model_add_op(model, op);
}

void mics_model_unit_end(mics_model *model, int32_t out)
{
    mics_unit *unit = model_newest(model);
    if (unit != NULL && out < unit->tensor_count)
        unit->out = out;
}

static bool is_read(const mics_unit *unit, int32_t tensor)
{
    for (int32_t o = 0; o < unit->op_count; o++) {
        if (unit->ops[o].in[0] == tensor || unit->ops[o].in[1] == tensor)
            return true;
    }
    return false;
}

// Every op leads to the unit's output, or is the loss: else backward would leave gradients
// unwritten.
static mics_status check_ops(const mics_model *model, int32_t u)
{
    const mics_unit *unit = &model->units[u];
    for (int32_t o = 0; o < unit->op_count; o++) {
        const mics_op *op = &unit->ops[o];
        const mics_op_def *def = mics_op_def_get(op->kind);
        if (def->loss != (u == model->unit_count - 1 && o == unit->op_count - 1))
            return mics_fail(MICS_ERR_INVALID,
                             "unit %s: op %d (%s): a loss, such as lm_head, must be the last op of "
                             "the last unit, and no other op may",
                             unit->name, (int)o, def->name);
        bool leads =
            def->loss || (op->out >= 0 && (op->out == unit->out || is_read(unit, op->out)));
        if (!leads)
            return mics_fail(MICS_ERR_INVALID, "unit %s: nothing reads the output of op %d (%s)",
                             unit->name, (int)o, def->name);
    }
    return MICS_OK;
}

// The next unit that computes; NULL: `u` is the last one.
static const mics_unit *next_of(const mics_model *model, int32_t u)
{
    while (++u < model->unit_count) {
        if (mics_unit_computes(&model->units[u]))
            return &model->units[u];
    }
    return NULL;
}

static mics_status check_unit(const mics_model *model, int32_t u)
{
    const mics_unit *unit = &model->units[u], *next = next_of(model, u);
    if (!mics_unit_computes(unit))
        return model_check_experts(model, unit);
    const int64_t input_width = unit->tensors[0].width;
    if (unit->op_count == 0)
        return mics_fail(MICS_ERR_INVALID, "unit %s has no ops", unit->name);
    MICS_TRY(check_ops(model, u));
    if (u == 0 ? input_width != 0 : input_width < 1 || !is_read(unit, 0))
        return mics_fail(MICS_ERR_INVALID,
                         u == 0 ? "unit %s: the input of the first unit is tokens, of width 0"
                                : "unit %s: nothing reads its input",
                         unit->name);
    if (next != NULL && (unit->out < 1 || unit->tensors[unit->out].width != next->tensors[0].width))
        return mics_fail(MICS_ERR_INVALID, "unit %s: its output does not fit the input of %s",
                         unit->name, next->name);
    if (next == NULL && unit->out != -1)
        return mics_fail(MICS_ERR_INVALID, "unit %s: the last unit has no output", unit->name);
    return MICS_OK;
}

// Ops may use parameters of their own unit and of those before, and of experts directly behind it.
// They name those of the first expert.
static bool is_used(const mics_model *model, mics_param_ref param)
{
    const mics_unit *unit = &model->units[param.unit];
    int32_t first = param.unit;
    if (!mics_unit_computes(unit))
        param.param %= mics_unit_expert_params(unit);
    while (!mics_unit_computes(&model->units[first]))
        first--;
    for (int32_t u = first; u < model->unit_count; u++) {
        for (int32_t i = 0; i < model->units[u].op_count * MICS_OP_PARAMS; i++) {
            const mics_param_ref ref =
                model->units[u].ops[i / MICS_OP_PARAMS].params[i % MICS_OP_PARAMS];
            if (ref.unit == param.unit && ref.param == param.param)
                return true;
        }
    }
    return false;
}

static mics_status check_used(const mics_model *model, int32_t u)
{
    for (int32_t p = 0; p < model->units[u].param_count; p++) {
        if (!is_used(model, (mics_param_ref){u, p}))
            return mics_fail(MICS_ERR_INVALID, "parameter %s is not used by any op",
                             model->units[u].params[p].name);
    }
    return MICS_OK;
}

// Whatever counts elements or bytes of all units may add them up.
static mics_status check_size(const mics_model *model)
{
    int64_t left = INT64_MAX / 64;
    for (int32_t u = 0; u < model->unit_count; u++) {
        if (model->units[u].elems > left)
            return mics_fail(MICS_ERR_INVALID, "%s: more than %lld elements in its first %d units",
                             model->architecture, (long long)(INT64_MAX / 64), (int)u + 1);
        left -= model->units[u].elems;
    }
    return MICS_OK;
}

// Matrices that only GEMMs of hidden layers read.
static void mark_hidden(mics_model *model)
{
    for (int32_t u = 0; u < model->unit_count; u++) {
        for (int32_t p = 0; p < model->units[u].param_count; p++) {
            mics_param *param = &model->units[u].params[p];
            param->hidden = param->dims > 1 && model_has_whole_tensors(param);
        }
    }
    for (int32_t u = 0; u < model->unit_count; u++) {
        for (int32_t o = 0; o < model->units[u].op_count; o++) {
            const mics_op *op = &model->units[u].ops[o];
            const mics_op_def *def = mics_op_def_get(op->kind);
            for (int32_t i = 0; i < MICS_OP_PARAMS && (!def->multiplies || def->loss); i++) {
                if (op->params[i].unit >= 0)
                    model->units[op->params[i].unit].params[op->params[i].param].hidden = false;
            }
        }
    }
}

static bool sees_both_ways(const mics_model *model)
{
    for (int32_t u = 0; u < model->unit_count; u++) {
        for (int32_t o = 0; o < model->units[u].op_count; o++) {
            if (model->units[u].ops[o].both_ways)
                return true;
        }
    }
    return false;
}

mics_status mics_model_finish(mics_model *model)
{
    MICS_TRY(model->status);
    if (mics_model_computing_units(model) < 2)
        return mics_fail(MICS_ERR_INVALID, "a model needs at least two units");
    MICS_TRY(check_size(model));
    for (int32_t u = 0; u < model->unit_count; u++)
        MICS_TRY(check_unit(model, u));
    const int32_t last = model->unit_count - 1;
    const mics_op *loss = &model->units[last].ops[model->units[last].op_count - 1];
    model->tied = loss->params[0].unit != last;
    model->masked = sees_both_ways(model);
    for (int32_t u = 0; u < model->unit_count; u++) {
        MICS_TRY(check_used(model, u));
        for (int32_t p = 0; p < model->units[u].param_count; p++)
            MICS_TRY(model_finish_parts(model, &model->units[u].params[p]));
    }
    mark_hidden(model);
    return model_check_tensors(model);
}

int32_t mics_model_computing_units(const mics_model *model)
{
    int32_t count = 0;
    for (int32_t u = 0; u < model->unit_count; u++)
        count += mics_unit_computes(&model->units[u]);
    return count;
}

int64_t mics_model_param_count(const mics_model *model)
{
    int64_t elems = 0;
    for (int32_t u = 0; u < model->unit_count; u++) {
        for (int32_t p = 0; p < model->units[u].param_count; p++)
            elems += model->units[u].params[p].elems;
    }
    return elems;
}

double mics_model_flops_per_token(const mics_model *model, int64_t length)
{
    const mics_batch batch = {.sequences = 1, .length = length, .threads = 1};
    double flops = 0;
    for (int32_t u = 0; u < model->unit_count; u++) {
        for (int32_t o = 0; o < model->units[u].op_count; o++) {
            const mics_op *op = &model->units[u].ops[o];
            const mics_op_def *def = mics_op_def_get(op->kind);
            const mics_op_shape shape = mics_op_shape_get(model, &model->units[u], op, batch);
            flops += def->model_flops != NULL ? def->model_flops(&shape) : 0;
        }
    }
    return flops;
}

// ---- segments ----

void mics_model_set_segments(mics_model *model)
{
    for (int32_t u = 0; u < model->unit_count; u++) {
        mics_op *ops = model->units[u].ops;
        for (int32_t o = 0; o < model->units[u].op_count; o++)
            ops[o].segments = mics_op_def_get(ops[o].kind)->reads_segments;
    }
}

void mics_model_restart_positions(mics_model *model)
{
    for (int32_t u = 0; u < model->unit_count; u++) {
        mics_op *ops = model->units[u].ops;
        for (int32_t o = 0; o < model->units[u].op_count; o++)
            ops[o].segments |=
                mics_op_def_get(ops[o].kind)->restarts_positions && ops[o].params[1].unit >= 0;
    }
}

bool mics_model_reads_segments(const mics_model *model)
{
    for (int32_t u = 0; u < model->unit_count; u++) {
        for (int32_t o = 0; o < model->units[u].op_count; o++) {
            if (model->units[u].ops[o].segments)
                return true;
        }
    }
    return false;
}
