// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// The folders of tests/golden: another implementation's model, batches and results
// (tests/golden/README.md).
#pragma once

#include "base/json.h"
#include "mics/core/checkpoint.h"
#include "mics/core/engine.h"
#include "mics/model.h"
#include "model/from_config.h"
#include "test.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { GOLDEN_STEPS = 20 };

typedef struct golden {
    mics_memory *memory;
    mics_model *model;
    mics_safetensors *weights, *expected;
    int64_t sequences, length; // B, T
    int32_t *inputs, *targets; // (GOLDEN_STEPS, B, T)
    float lr, beta1, beta2, eps, weight_decay, clip;
    float losses[GOLDEN_STEPS], norms[GOLDEN_STEPS];
} golden;

// A whole tensor; the caller frees it.
static inline float *golden_read(const mics_safetensors *file, const char *name)
{
    const mics_tensor_info *info = mics_safetensors_find(file, name);
    if (info == NULL)
        fail_msg("no tensor %s", name);
    float *data = (float *)calloc((size_t)info->elems, sizeof *data);
    assert_non_null(data);
    ASSERT_OK(mics_safetensors_read(file, name, 0, info->elems, data));
    return data;
}

// A parameter, put together from the tensors that hold its parts, as `prefix` and their names. The
// caller frees it.
static inline float *golden_param(const mics_safetensors *file, const char *prefix,
                                  const mics_param *param)
{
    const int64_t row_elems = mics_param_row_elems(param);
    float *data = (float *)calloc((size_t)param->elems, sizeof *data);
    assert_non_null(data);
    for (int32_t i = 0; i < param->part_count; i++) {
        const mics_param_part *part = &param->parts[i];
        char name[2 * MICS_NAME_BYTES];
        snprintf(name, sizeof name, "%s%s", prefix, part->name);
        char other[MICS_NAME_BYTES];
        const bool there =
            mics_safetensors_find(file, name) != NULL || !mics_tensor_other_name(name, 0, other);
        ASSERT_OK(mics_safetensors_read(file, there ? name : other, part->tensor_row * row_elems,
                                        part->rows * row_elems, data + part->row * row_elems));
    }
    return data;
}

// What was computed of a parameter: "grad." or "final." and its name. The caller frees it.
static inline float *golden_of(const golden *g, const char *prefix, const mics_param *param)
{
    return golden_param(g->expected, prefix, param);
}

// A parameter of the model's file; the hub's files leave out "transformer.". The caller frees it.
static inline float *golden_weights(const golden *g, const mics_param *param)
{
    return golden_param(g->weights, "", param);
}

static inline int32_t *golden_tokens(const golden *g, const char *name)
{
    const int64_t count = GOLDEN_STEPS * g->sequences * g->length;
    float *numbers = golden_read(g->expected, name);
    int32_t *tokens = (int32_t *)calloc((size_t)count, sizeof *tokens);
    assert_non_null(tokens);
    for (int64_t i = 0; i < count; i++)
        tokens[i] = (int32_t)numbers[i];
    free(numbers);
    return tokens;
}

static inline void golden_open_model(golden *g, const char *folder)
{
    char path[512];
    mics_json *config = NULL;
    snprintf(path, sizeof path, "%s/%s/config.json", MICS_TEST_DATA, folder);
    ASSERT_OK(mics_json_load(g->memory, path, 1 << 16, &config));
    ASSERT_OK(mics_model_from_config(g->memory, config, false, &g->model));
    mics_json_close(config);
    snprintf(path, sizeof path, "%s/%s/model.safetensors", MICS_TEST_DATA, folder);
    ASSERT_OK(mics_safetensors_open(g->memory, path, &g->weights));
    snprintf(path, sizeof path, "%s/%s/golden.safetensors", MICS_TEST_DATA, folder);
    ASSERT_OK(mics_safetensors_open(g->memory, path, &g->expected));
}

static inline void golden_open(golden *g, const char *folder)
{
    *g = (golden){0};
    ASSERT_OK(mics_memory_open(&g->memory));
    golden_open_model(g, folder);
    const mics_tensor_info *inputs = mics_safetensors_find(g->expected, "inputs");
    assert_non_null(inputs);
    assert_int_equal(inputs->shape[0], GOLDEN_STEPS);
    g->sequences = inputs->shape[1];
    g->length = inputs->shape[2];
    g->inputs = golden_tokens(g, "inputs");
    g->targets = golden_tokens(g, "targets");
    float *hyper = golden_read(g->expected, "hyper");
    g->lr = hyper[0];
    g->beta1 = hyper[1];
    g->beta2 = hyper[2];
    g->eps = hyper[3];
    g->weight_decay = hyper[4];
    g->clip = hyper[5];
    free(hyper);
    ASSERT_OK(mics_safetensors_read(g->expected, "losses", 0, GOLDEN_STEPS, g->losses));
    ASSERT_OK(mics_safetensors_read(g->expected, "grad_norms", 0, GOLDEN_STEPS, g->norms));
}

// Fills a rank's parameter shard from the model's file.
static inline mics_status golden_load(const golden *g, mics_engine *engine)
{
    for (int32_t u = 0; u < g->model->unit_count; u++) {
        const mics_engine_optimizer_shard held = mics_engine_optimizer_shard_get(engine, u);
        for (int32_t p = 0; p < g->model->units[u].param_count; p++) {
            const mics_param *param = &g->model->units[u].params[p];
            const int64_t ends = param->offset + param->elems;
            const int64_t begin =
                param->offset > held.shard.begin ? param->offset : held.shard.begin;
            const int64_t end = ends < held.shard.end ? ends : held.shard.end;
            if (begin >= end)
                continue;
            float *weights = golden_weights(g, param);
            memcpy(held.shard_params + (begin - held.shard.begin),
                   weights + (begin - param->offset), (size_t)(end - begin) * sizeof(float));
            free(weights);
        }
    }
    return MICS_OK;
}

static inline void golden_close(golden *g)
{
    free(g->inputs);
    free(g->targets);
    mics_safetensors_close(g->weights);
    mics_safetensors_close(g->expected);
    mics_model_close(g->model);
    assert_int_equal(mics_memory_close(g->memory), 0);
}
