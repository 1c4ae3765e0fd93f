// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Reading parameters by range into the engine.
#include "import.h"
#include "base/text.h"
#include "mics/log.h"
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

// Older exports of GPT-2 keep causal masks as tensors, and some the tied table twice.
static bool is_no_parameter(const mics_model *model, const char *name)
{
    return mics_text_ends(name, ".attn.bias") || mics_text_ends(name, ".attn.masked_bias") ||
           (model->tied && strcmp(name, "lm_head.weight") == 0);
}

// The tensor of a parameter, whether the file uses the whole name or the hub's short one.
static const mics_tensor_info *find_tensor(const mics_safetensors *reader, const mics_param *param)
{
    static const char prefix[] = "transformer.";
    const mics_tensor_info *info = mics_safetensors_find(reader, param->name);
    if (info == NULL && strncmp(param->name, prefix, sizeof prefix - 1) == 0)
        info = mics_safetensors_find(reader, param->name + sizeof prefix - 1);
    return info;
}

static void shape_text(int32_t dims, const int64_t *shape, char *text, size_t capacity)
{
    size_t used = (size_t)snprintf(text, capacity, "[");
    for (int32_t i = 0; i < dims && used < capacity; i++)
        used += (size_t)snprintf(text + used, capacity - used, "%s%lld", i > 0 ? ", " : "",
                                 (long long)shape[i]);
    if (used < capacity)
        snprintf(text + used, capacity - used, "]");
}

static mics_status check_param(const mics_param *param, const mics_safetensors *reader,
                               const char *path)
{
    const mics_tensor_info *info = find_tensor(reader, param);
    if (info == NULL)
        return mics_fail(MICS_ERR_INVALID, "%s: tensor \"%s\" is missing; is it the same model?",
                         path, param->name);
    bool same = info->dims == param->dims;
    for (int32_t i = 0; same && i < info->dims; i++)
        same = info->shape[i] == param->shape[i];
    if (same)
        return MICS_OK;
    char theirs[96], ours[96];
    shape_text(info->dims, info->shape, theirs, sizeof theirs);
    shape_text(param->dims, param->shape, ours, sizeof ours);
    return mics_fail(MICS_ERR_INVALID, "%s: tensor \"%s\" is %s, but the model's config says %s",
                     path, info->name, theirs, ours);
}

mics_status run_import_check(const mics_model *model, const mics_safetensors *reader,
                             const char *path)
{
    for (int32_t i = 0; i < mics_safetensors_count(reader); i++) {
        const char *name = mics_safetensors_at(reader, i)->name;
        if (mics_model_find_param(model, name).unit < 0 && !is_no_parameter(model, name))
            return mics_fail(MICS_ERR_INVALID,
                             "%s: tensor \"%s\" belongs to no parameter of this model", path, name);
    }
    for (int32_t unit = 0; unit < model->unit_count; unit++) {
        for (int32_t i = 0; i < model->units[unit].param_count; i++)
            MICS_TRY(check_param(&model->units[unit].params[i], reader, path));
    }
    return MICS_OK;
}

// Elements of one parameter that lie in the shard; what lies between parameters stays zero.
static mics_status fill_param(const mics_param *param, const mics_safetensors *reader,
                              const mics_engine_optimizer_shard *owned)
{
    int64_t begin = param->offset, end = param->offset + param->elems;
    if (begin < owned->shard.begin)
        begin = owned->shard.begin;
    if (end > owned->shard.end)
        end = owned->shard.end;
    if (begin >= end)
        return MICS_OK;
    return mics_safetensors_read(reader, find_tensor(reader, param)->name, begin - param->offset,
                                 end - begin, owned->shard_params + (begin - owned->shard.begin));
}

mics_status run_import_fill(const mics_model *model, const mics_safetensors *reader,
                            mics_engine *engine)
{
    for (int32_t unit = 0; unit < model->unit_count; unit++) {
        mics_engine_optimizer_shard owned = mics_engine_optimizer_shard_get(engine, unit);
        for (int32_t i = 0; i < model->units[unit].param_count; i++)
            MICS_TRY(fill_param(&model->units[unit].params[i], reader, &owned));
    }
    return mics_engine_upload(engine);
}

static mics_status fill_state(const mics_unit *unit, const char *state,
                              const mics_checkpoint *checkpoint, mics_range range, float *data_out)
{
    MICS_TRY(mics_checkpoint_read(checkpoint, unit->name, unit->elems, state, range.begin,
                                  range.end, data_out));
    return mics_checkpoint_check_finite(checkpoint, unit->name, state, range.begin, range.end,
                                        data_out);
}

static mics_status fill_states(const mics_unit *unit, const mics_optimizer_def *def,
                               const mics_checkpoint *checkpoint,
                               const mics_engine_optimizer_shard *owned)
{
    const mics_range range = owned->range;
    if (range.begin == range.end)
        return MICS_OK;
    MICS_TRY(fill_state(unit, MICS_STATE_PARAM, checkpoint, range, owned->params));
    for (int32_t state = 0; state < def->states; state++)
        MICS_TRY(
            fill_state(unit, def->state_names[state], checkpoint, range, owned->states[state]));
    return MICS_OK;
}

mics_status run_resume_fill(const mics_model *model, const mics_optimizer *optimizer,
                            const mics_checkpoint *checkpoint, mics_engine *engine)
{
    const mics_optimizer_def *def = mics_optimizer_def_get(optimizer->kind);
    for (int32_t unit = 0; unit < model->unit_count; unit++) {
        const mics_engine_optimizer_shard owned = mics_engine_optimizer_shard_get(engine, unit);
        MICS_TRY(fill_states(&model->units[unit], def, checkpoint, &owned));
    }
    return mics_engine_upload(engine);
}

mics_status run_params_fill(const mics_model *model, const mics_checkpoint *checkpoint,
                            mics_engine *engine)
{
    for (int32_t unit = 0; unit < model->unit_count; unit++) {
        const mics_unit *of = &model->units[unit];
        mics_engine_optimizer_shard owned = mics_engine_optimizer_shard_get(engine, unit);
        int64_t end = owned.shard.end < of->elems ? owned.shard.end : of->elems;
        if (owned.shard.begin < end)
            MICS_TRY(mics_checkpoint_read(checkpoint, of->name, of->elems, MICS_STATE_PARAM,
                                          owned.shard.begin, end, owned.shard_params));
    }
    return mics_engine_upload(engine);
}
