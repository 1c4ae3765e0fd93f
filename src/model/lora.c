// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Adapters of low rank: an op and two parameters behind each linear that has one of the modules that
// are asked for. q, k and v, or gate and up, are one linear here and several modules there: those
// that get an adapter are its slices.
#include "base/size.h"
#include "base/text.h"
#include "mics/builder.h"
#include "mics/log.h"
#include "model/internal.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

#define PEFT_PREFIX "base_model.model."

typedef struct adding {
    mics_model *model;
    const mics_lora_spec *spec;
    bool *used; // targets, then modules that train whole: matched
    float scale;
} adding;

// ---- names ----

// Bytes of a tensor's name without its last part, which is "weight" or "bias".
static int module_bytes(const char *tensor)
{
    const char *end = strrchr(tensor, '.');
    return end == NULL ? 0 : (int)(end - tensor);
}

static bool ends_with(const char *module, int bytes, const char *name)
{
    const int length = (int)strlen(name);
    return bytes >= length && strncmp(module + bytes - length, name, (size_t)length) == 0;
}

// Whether a tensor is of a module that trains whole, or of one inside it. PEFT takes all modules whose
// names end so, "norm" for "q_norm" too.
static bool is_saved(void *ctx, const char *tensor)
{
    const adding *a = ctx;
    bool is = false;
    for (int32_t i = 0; i < a->spec->saved_count; i++) {
        for (int bytes = module_bytes(tensor); bytes > 0; bytes--) {
            if (tensor[bytes] == '.' && ends_with(tensor, bytes, a->spec->saved[i]))
                is = a->used[a->spec->target_count + i] = true;
        }
    }
    return is;
}

// Whether a tensor's module is called as a target, or ends so behind a dot.
static bool is_target(adding *a, const char *tensor)
{
    bool is = a->spec->target_count == 0;
    const int bytes = module_bytes(tensor);
    if (is_saved(a, tensor))
        return false; // it trains itself
    for (int32_t i = 0; i < a->spec->target_count; i++) {
        const int before = bytes - (int)strlen(a->spec->targets[i]);
        if (ends_with(tensor, bytes, a->spec->targets[i]) &&
            (before == 0 || tensor[before - 1] == '.'))
            is = a->used[i] = true;
    }
    return is;
}

// ---- parameters ----

// "base_model.model.MODULE.lora_A.weight" of a tensor of the module.
static mics_status name_tensor(const char *tensor, const char *which,
                               char name_out[MICS_NAME_BYTES])
{
    const int used = snprintf(name_out, MICS_NAME_BYTES, "%s%.*s.lora_%s.weight", PEFT_PREFIX,
                              module_bytes(tensor), tensor, which);
    return used < MICS_NAME_BYTES
               ? MICS_OK
               : mics_fail(MICS_ERR_INVALID, "adapter: the name of %s is too long", tensor);
}

static mics_status add_param(mics_model *model, int32_t u, const char *of, const char *which,
                             int64_t rows, int64_t columns)
{
    const bool down = which[0] == 'A'; // of the deviation of PEFT's uniform numbers; B is 0
    const mics_param_spec spec = {.dims = 2,
                                  .shape = {rows, columns},
                                  .init = down ? MICS_INIT_NORMAL : MICS_INIT_ZEROS,
                                  .init_std = down ? 1 / sqrt(3 * (double)columns) : 0,
                                  .decay = true};
    char name[MICS_NAME_BYTES];
    MICS_TRY(name_tensor(of, which, name));
    const int32_t index = model_append_param(model, &model->units[u], name, &spec);
    MICS_TRY(model->status);
    model->units[u].params[index].hidden = model->units[u].params[index].adapter = true;
    return MICS_OK;
}

static mics_status add_part(mics_model *model, mics_param *param, const char *tensor,
                            const char *which, mics_param_part part)
{
    MICS_TRY(name_tensor(tensor, which, part.name));
    model_append_part(model, param, &part);
    return model->status;
}

// ---- slices ----

// Outputs of a linear that one tensor of its weight makes.
static mics_status slice_of(const mics_param *weight, bool out_in, const mics_param_tensor *tensor,
                            int64_t *first_out, int64_t *count_out)
{
    int64_t first = INT64_MAX, end = 0;
    for (int32_t i = tensor->part; i < tensor->part + tensor->part_count; i++) {
        const mics_param_part *part = &weight->parts[i];
        first = part->row < first ? part->row : first;
        end = part->row + part->rows > end ? part->row + part->rows : end;
    }
    *first_out = out_in ? first : 0;
    *count_out = out_in ? end - first : weight->shape[1];
    return end - first == tensor->shape[0]
               ? MICS_OK
               : mics_fail(MICS_ERR_UNSUPPORTED,
                           "adapter: the outputs of %s lie between others; name all modules that "
                           "are one with it",
                           tensor->name);
}

// Rows of B that a tensor's slice is, as the weight has its outputs, so many rows further on.
static mics_status add_parts(mics_model *model, mics_param *b, const mics_param *weight,
                             const mics_param_tensor *tensor, int64_t further, bool out_in)
{
    if (!out_in)
        return add_part(model, b, tensor->name, "B", (mics_param_part){.rows = weight->shape[1]});
    for (int32_t i = tensor->part; i < tensor->part + tensor->part_count; i++) {
        mics_param_part part = weight->parts[i];
        part.row += further;
        MICS_TRY(add_part(model, b, tensor->name, "B", part));
    }
    return MICS_OK;
}

// The slices of a linear that get an adapter, ascending, and their tensors.
static mics_status find_slices(adding *a, const mics_param *weight, bool out_in, mics_lora *lora,
                               mics_param_tensor tensors_out[MICS_LORA_SLICES])
{
    mics_param_tensor tensor;
    for (int32_t part = 0; mics_param_next_tensor(weight, &part, &tensor);) {
        if (!is_target(a, tensor.name))
            continue;
        if (lora->slices == MICS_LORA_SLICES)
            return mics_fail(MICS_ERR_UNSUPPORTED,
                             "adapter: %s is one of more than %d modules in "
                             "one parameter",
                             tensor.name, MICS_LORA_SLICES);
        const int32_t i = lora->slices++;
        tensors_out[i] = tensor;
        MICS_TRY(slice_of(weight, out_in, &tensor, &lora->first[i], &lora->count[i]));
    }
    return MICS_OK;
}

// ---- ops ----

// Puts the adapter behind op `o` of a unit, and makes what that one makes.
static mics_status add_op(mics_model *model, mics_unit *unit, int32_t o, mics_op op)
{
    void *array = unit->tensors;
    const mics_tensor made = unit->tensors[unit->ops[o].out];
    mics_tensor *tensor = model_append(model, &array, &unit->tensor_count, sizeof *tensor);
    unit->tensors = array;
    MICS_TRY(model->status);
    *tensor = made;
    array = unit->ops;
    (void)model_append(model, &array, &unit->op_count, sizeof(mics_op));
    unit->ops = array;
    MICS_TRY(model->status);
    mics_op *linear = &unit->ops[o];
    op.in[0] = unit->tensor_count - 1;
    op.in[1] = linear->in[0];
    op.out = linear->out;
    linear->out = op.in[0];
    memmove(linear + 2, linear + 1, (size_t)(unit->op_count - o - 2) * sizeof *linear);
    linear[1] = op;
    return MICS_OK;
}

// Gives a linear its adapter, if it gets one.
static mics_status add_adapter(adding *a, int32_t u, int32_t o)
{
    mics_model *model = a->model;
    mics_unit *unit = &model->units[u];
    const mics_param weight = *mics_model_param(model, unit->ops[o].params[0]);
    const bool out_in = unit->ops[o].weight_out_in;
    const int32_t at = unit->param_count;
    mics_op op = mics_op_of(MICS_OP_LORA, -1, (mics_param_ref){u, at}, (mics_param_ref){u, at + 1});
    mics_lora *lora = &op.lora;
    mics_param_tensor tensors[MICS_LORA_SLICES];
    int64_t rows = 0, row = 0;
    *lora = (mics_lora){.rank = a->spec->rank, .scale = a->scale};
    MICS_TRY(find_slices(a, &weight, out_in, lora, tensors));
    if (lora->slices == 0)
        return MICS_OK;
    for (int32_t i = 0; i < lora->slices; i++)
        rows += lora->count[i];
    MICS_TRY(
        add_param(model, u, weight.name, "A", lora->slices * lora->rank, weight.shape[out_in]));
    MICS_TRY(add_param(model, u, weight.name, "B", rows, lora->rank));
    for (int32_t i = 0; i < lora->slices; row += lora->count[i++]) {
        const mics_param_part part = {.row = i * lora->rank, .rows = lora->rank};
        MICS_TRY(add_part(model, &unit->params[at], tensors[i].name, "A", part));
        MICS_TRY(add_parts(model, &unit->params[at + 1], &weight, &tensors[i], row - lora->first[i],
                           out_in));
    }
    op.dropout = (float)a->spec->dropout;
    op.mask = model->masks;
    model->masks += op.dropout > 0 ? (uint32_t)lora->slices : 0;
    return add_op(model, unit, o, op);
}

static mics_status add_adapters(adding *a)
{
    for (int32_t u = 0; u < a->model->unit_count; u++) {
        for (int32_t o = 0; o < a->model->units[u].op_count; o++) {
            if (a->model->units[u].ops[o].kind == MICS_OP_LINEAR)
                MICS_TRY(add_adapter(a, u, o));
        }
    }
    return MICS_OK;
}

// ---- what trains ----

// A table of tokens that is the LM head too is two in PEFT, of which one would train.
static mics_status check_tied(const mics_model *model)
{
    const mics_unit *last = &model->units[model->unit_count - 1];
    const mics_param *head = mics_model_param(model, last->ops[last->op_count - 1].params[0]);
    return !model->tied || head->frozen
               ? MICS_OK
               : mics_fail(MICS_ERR_INVALID,
                           "adapter.modules_to_save: the LM head of this model is its table of "
                           "tokens, %s; a copy of one alone would train in PEFT; leave it out",
                           head->name);
}

// The names of modules that have linears, each once, for an error.
static void list_linears(const mics_model *model, char *text, size_t capacity)
{
    size_t used = 0;
    mics_param_tensor tensor;
    text[0] = '\0';
    for (int32_t u = 0; u < model->unit_count; u++) {
        for (int32_t o = 0; o < model->units[u].op_count; o++) {
            const mics_op *op = &model->units[u].ops[o];
            for (int32_t part = 0;
                 op->kind == MICS_OP_LINEAR &&
                 mics_param_next_tensor(mics_model_param(model, op->params[0]), &part, &tensor);) {
                char name[MICS_NAME_BYTES];
                snprintf(name, sizeof name, "%.*s", module_bytes(tensor.name), tensor.name);
                const char *last = strrchr(name, '.') == NULL ? name : strrchr(name, '.') + 1;
                if (strstr(text, last) == NULL && used + strlen(last) + 3 < capacity)
                    used += (size_t)snprintf(text + used, capacity - used, "%s%s",
                                             used > 0 ? ", " : "", last);
            }
        }
    }
}

static mics_status check_used(const adding *a)
{
    const int32_t targets = a->spec->target_count;
    char linears[256];
    list_linears(a->model, linears, sizeof linears);
    for (int32_t i = 0; i < targets + a->spec->saved_count; i++) {
        if (a->used[i])
            continue;
        if (i < targets)
            return mics_fail(MICS_ERR_INVALID,
                             "adapter.target_modules: \"%s\" is no linear of %s that can have an "
                             "adapter; these can: %s",
                             a->spec->targets[i], a->model->architecture, linears);
        return mics_fail(MICS_ERR_INVALID, "adapter.modules_to_save: %s has no module \"%s\"",
                         a->model->architecture, a->spec->saved[i - targets]);
    }
    return MICS_OK;
}

// PEFT gives experts adapters that are no modules' own.
static mics_status check_experts(adding *a)
{
    for (int32_t u = 0; u < a->model->unit_count; u++) {
        const mics_unit *unit = &a->model->units[u];
        mics_param_tensor tensor;
        for (int32_t p = 0; unit->experts > 0 && p < unit->param_count; p++) {
            for (int32_t part = 0; mics_param_next_tensor(&unit->params[p], &part, &tensor);)
                if (is_target(a, tensor.name))
                    return mics_fail(
                        MICS_ERR_UNSUPPORTED,
                        "adapter.target_modules: %s is an expert's, and experts can have "
                        "no adapter; name others, as [\"q_proj\", \"k_proj\", "
                        "\"v_proj\", \"o_proj\"]",
                        tensor.name);
        }
    }
    return MICS_OK;
}

static mics_status check_spec(const mics_lora_spec *spec)
{
    if (spec->rank < 1 || spec->rank > INT32_MAX || !isfinite(spec->alpha) || spec->alpha <= 0)
        return mics_fail(
            MICS_ERR_INVALID,
            "adapter: r is %lld and lora_alpha %g; r from 1 on and an alpha above 0 work",
            (long long)spec->rank, spec->alpha);
    if (!(spec->dropout >= 0 && spec->dropout < 1))
        return mics_fail(MICS_ERR_INVALID,
                         "adapter.lora_dropout is %g; a probability from 0 to below 1 works",
                         spec->dropout);
    return MICS_OK;
}

mics_status mics_model_add_lora(mics_model *model, const mics_lora_spec *spec)
{
    MICS_TRY(check_spec(spec));
    const double rank = (double)spec->rank;
    adding a = {.model = model,
                .spec = spec,
                .scale = (float)(spec->alpha / (spec->rank_stabilized ? sqrt(rank) : rank))};
    MICS_TRY(MICS_NEW(model->memory, spec->target_count + spec->saved_count + 1, &a.used));
    mics_status status = check_experts(&a);
    if (status == MICS_OK)
        status = add_adapters(&a);
    if (status == MICS_OK)
        status = model_mark_frozen(model, &(model_choice){"adapter.modules_to_save", is_saved, &a});
    if (status == MICS_OK)
        status = check_used(&a);
    mics_free(model->memory, a.used);
    MICS_TRY(status);
    MICS_TRY(check_tied(model));
    MICS_TRY(model_check_tensors(model));
    return model_settle_frozen(model);
}
