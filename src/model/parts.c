// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// The tensors of Hugging Face files that parameters are made of: the rows of each, and their names.
#include "mics/builder.h"
#include "mics/log.h"
#include "mics/model.h"
#include "model/internal.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void model_append_part(mics_model *model, mics_param *param, const mics_param_part *part)
{
    void *array = param->parts;
    mics_param_part *slot = model_append(model, &array, &param->part_count, sizeof *slot);
    param->parts = array;
    if (slot != NULL)
        *slot = *part;
}

void mics_model_add_part(mics_model *model, const char *tensor, int64_t row, int64_t rows)
{
    mics_unit *unit = model_newest_params(model);
    if (unit == NULL)
        return;
    mics_param *param = unit->param_count > 0 ? &unit->params[unit->param_count - 1] : NULL;
    if (param == NULL || strlen(tensor) >= MICS_NAME_BYTES || row < 0 || rows < 1 ||
        row > param->shape[0] || rows > param->shape[0] - row) {
        model->status =
            mics_fail(MICS_ERR_INVALID, "unit %s: rows %lld to %lld cannot be those of tensor %.*s",
                      unit->name, (long long)row, (long long)row + rows, MICS_NAME_BYTES, tensor);
        return;
    }
    mics_param_part part = {.row = row, .rows = rows};
    snprintf(part.name, sizeof part.name, "%s", tensor);
    const mics_param_part *last =
        param->part_count > 0 ? &param->parts[param->part_count - 1] : NULL;
    if (last != NULL && strcmp(last->name, tensor) == 0)
        part.tensor_row = last->tensor_row + last->rows;
    model_append_part(model, param, &part);
}

void mics_model_add_stack(mics_model *model, const char *tensor, int32_t index, int32_t count)
{
    mics_unit *unit = model_newest_params(model);
    if (unit == NULL)
        return;
    mics_param *param = unit->param_count > 0 ? &unit->params[unit->param_count - 1] : NULL;
    if (param == NULL || param->dims != 2 || strlen(tensor) >= MICS_NAME_BYTES || index < 0 ||
        index >= count) {
        model->status =
            mics_fail(MICS_ERR_INVALID, "unit %s: no parameter can be slice %d of %d of %.*s",
                      unit->name, (int)index, (int)count, MICS_NAME_BYTES, tensor);
        return;
    }
    snprintf(param->stack, sizeof param->stack, "%s", tensor);
    param->stack_index = index;
    param->stack_count = count;
}

bool mics_param_next_tensor(const mics_param *param, int32_t *part_in_out,
                            mics_param_tensor *tensor_out)
{
    const int32_t first = *part_in_out;
    int32_t part = first;
    if (first >= param->part_count)
        return false;
    int64_t rows = 0;
    while (part < param->part_count && (part == first || param->parts[part].tensor_row > 0))
        rows += param->parts[part++].rows;
    *part_in_out = part;
    *tensor_out = (mics_param_tensor){.name = param->parts[first].name,
                                      .dims = param->dims,
                                      .shape = {rows, param->shape[1]},
                                      .part = first,
                                      .part_count = part - first};
    return true;
}

bool mics_param_next_matrix(const mics_param *param, int32_t *part_in_out, int64_t *row_out,
                            int64_t *rows_out)
{
    mics_param_tensor tensor;
    if (!mics_param_next_tensor(param, part_in_out, &tensor))
        return false;
    int64_t row = param->parts[tensor.part].row;
    for (int32_t i = 1; i < tensor.part_count; i++) {
        const int64_t other = param->parts[tensor.part + i].row;
        row = other < row ? other : row;
    }
    *row_out = row;
    *rows_out = tensor.shape[0];
    return true;
}

bool model_has_whole_tensors(const mics_param *param)
{
    mics_param_tensor tensor;
    for (int32_t part = 0; mics_param_next_tensor(param, &part, &tensor);) {
        int64_t first = INT64_MAX, end = 0;
        for (int32_t i = tensor.part; i < tensor.part + tensor.part_count; i++) {
            const mics_param_part *of = &param->parts[i];
            first = of->row < first ? of->row : first;
            end = of->row + of->rows > end ? of->row + of->rows : end;
        }
        if (end - first != tensor.shape[0])
            return false;
    }
    return true;
}

static int compare_ranges(const void *left, const void *right)
{
    const int64_t a = *(const int64_t *)left, b = *(const int64_t *)right;
    return (a > b) - (a < b);
}

// That each row of the parameter is one of a tensor's, and that none is two. `ranges`: (parts), of
// first row and rows.
static mics_status check_ranges(const mics_param *param, int64_t (*ranges)[2])
{
    int64_t row = 0;
    for (int32_t i = 0; i < param->part_count; i++) {
        ranges[i][0] = param->parts[i].row;
        ranges[i][1] = param->parts[i].rows;
    }
    qsort(ranges, (size_t)param->part_count, sizeof *ranges, compare_ranges);
    int32_t part = 0;
    while (part < param->part_count && ranges[part][0] == row)
        row += ranges[part++][1];
    if (part == param->part_count && row == param->shape[0])
        return MICS_OK;
    const bool twice = part < param->part_count && ranges[part][0] < row;
    return mics_fail(MICS_ERR_INVALID, "parameter %s: row %lld of %lld is of %s", param->name,
                     (long long)(twice ? ranges[part][0] : row), (long long)param->shape[0],
                     twice ? "two tensors" : "no tensor");
}

static mics_status check_parts(const mics_model *model, const mics_param *param)
{
    int64_t(*ranges)[2] = NULL;
    MICS_TRY(MICS_NEW(model->memory, param->part_count, &ranges));
    const mics_status status = check_ranges(param, ranges);
    mics_free(model->memory, ranges);
    return status;
}

mics_status model_finish_parts(mics_model *model, mics_param *param)
{
    mics_param_part whole = {.rows = param->shape[0]};
    snprintf(whole.name, sizeof whole.name, "%s", param->name);
    if (param->part_count == 0)
        model_append_part(model, param, &whole);
    MICS_TRY(model->status);
    return check_parts(model, param);
}

static int32_t list_tensors(const mics_model *model, const char **names_out)
{
    mics_param_tensor tensor;
    int32_t count = 0;
    for (int32_t u = 0; u < model->unit_count; u++) {
        for (int32_t p = 0; p < model->units[u].param_count; p++) {
            for (int32_t part = 0;
                 mics_param_next_tensor(&model->units[u].params[p], &part, &tensor); count++) {
                if (names_out != NULL)
                    names_out[count] = tensor.name;
            }
        }
    }
    return count;
}

static int compare_names(const void *left, const void *right)
{
    return strcmp(*(const char *const *)left, *(const char *const *)right);
}

mics_status model_check_tensors(const mics_model *model)
{
    const char **names = NULL;
    MICS_TRY(MICS_NEW(model->memory, list_tensors(model, NULL), &names));
    const int32_t count = list_tensors(model, names);
    mics_status status = MICS_OK;
    qsort(names, (size_t)count, sizeof *names, compare_names);
    for (int32_t i = 1; i < count && status == MICS_OK; i++) {
        if (strcmp(names[i - 1], names[i]) == 0)
            status = mics_fail(MICS_ERR_INVALID,
                               "tensor %s is given twice; give its rows one after the other, in "
                               "one parameter",
                               names[i]);
    }
    mics_free(model->memory, names);
    return status;
}

// Without the prefix of a base model that was saved alone.
static bool without_prefix(const char *name, char other_out[MICS_NAME_BYTES])
{
    static const char *const prefixes[] = {"transformer.", "model.", "gpt_neox."};
    for (size_t i = 0; i < sizeof prefixes / sizeof prefixes[0]; i++) {
        const size_t bytes = strlen(prefixes[i]);
        if (strncmp(name, prefixes[i], bytes) == 0) {
            snprintf(other_out, MICS_NAME_BYTES, "%s", name + bytes);
            return true;
        }
    }
    return false;
}

// As other versions and programs spell it.
static bool respelt(const char *name, char other_out[MICS_NAME_BYTES])
{
    static const char *const ways[][2] = {{"LayerNorm.weight", "LayerNorm.gamma"},
                                          {"LayerNorm.bias", "LayerNorm.beta"},
                                          {".block_sparse_moe.gate.weight", ".mlp.gate.weight"}};
    const size_t length = strlen(name);
    for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++) {
        const size_t bytes = strlen(ways[i][0]);
        if (length < bytes || strcmp(name + length - bytes, ways[i][0]) != 0)
            continue;
        snprintf(other_out, MICS_NAME_BYTES, "%.*s%s", (int)(length - bytes), name, ways[i][1]);
        return true;
    }
    if (strcmp(name, "embed_out.weight") != 0)
        return false;
    snprintf(other_out, MICS_NAME_BYTES, "lm_head.weight");
    return true;
}

bool mics_tensor_other_name(const char *name, int32_t index, char other_out[MICS_NAME_BYTES])
{
    char spelt[MICS_NAME_BYTES];
    const bool shorter = without_prefix(name, other_out);
    if (shorter && index == 0)
        return true;
    index -= shorter;
    if (!respelt(name, spelt))
        return false;
    if (index > 0)
        return index == 1 && without_prefix(spelt, other_out);
    memcpy(other_out, spelt, sizeof spelt);
    return true;
}

static bool is_named(const char *own, const char *name)
{
    char other[MICS_NAME_BYTES];
    bool is = strcmp(own, name) == 0;
    for (int32_t i = 0; !is && mics_tensor_other_name(own, i, other); i++)
        is = strcmp(other, name) == 0;
    return is;
}

static bool holds_tensor(const mics_param *param, const char *name)
{
    mics_param_tensor tensor;
    for (int32_t part = 0; mics_param_next_tensor(param, &part, &tensor);) {
        if (is_named(tensor.name, name))
            return true;
    }
    return false;
}

mics_param_ref mics_model_find_param(const mics_model *model, const char *name)
{
    for (int32_t u = 0; u < model->unit_count; u++) {
        for (int32_t p = 0; p < model->units[u].param_count; p++) {
            if (holds_tensor(&model->units[u].params[p], name))
                return (mics_param_ref){u, p};
        }
    }
    return mics_param_none();
}
