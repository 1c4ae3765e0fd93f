// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// A model of three units, any of which a test of the builder replaces by one with a mistake.
#pragma once

#include "base/capture.h"
#include "mics/builder.h"
#include "mics/model.h"
#include "test.h"

enum { WIDTH = 8, VOCAB = 5, POSITIONS = 4 };

static inline mics_param_ref matrix(mics_model *model, const char *name, int64_t rows, int64_t cols)
{
    return mics_model_add_param(model, name, &(mics_param_spec){.dims = 2, .shape = {rows, cols}});
}

// What may go wrong where; NULL entries are as they should be.
typedef struct parts {
    void (*embed)(mics_model *model);
    void (*layer)(mics_model *model);
    void (*head)(mics_model *model);
} parts;

static inline void good_embed(mics_model *model)
{
    mics_model_unit(model, "embed", 0);
    mics_param_ref tokens = matrix(model, "tokens", VOCAB, WIDTH);
    mics_model_unit_end(model, mics_op_embedding(model, tokens, mics_param_none()));
}

static inline void good_layer(mics_model *model)
{
    mics_model_unit(model, "layer", WIDTH);
    mics_param_ref weight = matrix(model, "weight", WIDTH, WIDTH);
    mics_model_unit_end(model, mics_op_linear(model, 0, weight, mics_param_none(), false));
}

static inline void good_head(mics_model *model)
{
    mics_model_unit(model, "head", WIDTH);
    mics_op_lm_head(model, 0, matrix(model, "head", VOCAB, WIDTH));
    mics_model_unit_end(model, -1);
}

static const mics_model_spec good_spec = {"test", VOCAB, POSITIONS, WIDTH};

static inline mics_status build(mics_memory *memory, parts wrong)
{
    mics_model *model = NULL;
    ASSERT_OK(mics_model_open(memory, &good_spec, &model));
    (wrong.embed != NULL ? wrong.embed : good_embed)(model);
    (wrong.layer != NULL ? wrong.layer : good_layer)(model);
    (wrong.head != NULL ? wrong.head : good_head)(model);
    mics_status status = mics_model_finish(model);
    mics_model_close(model);
    return status;
}

// ---- mistakes ----

typedef struct mistake {
    parts wrong;
    const char *said;
} mistake;

static inline void check_mistakes(mics_memory *memory, const mistake *mistakes, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        capture seen;
        capture_begin(&seen);
        mics_status status = build(memory, mistakes[i].wrong);
        capture_end();
        if (status == MICS_OK)
            fail_msg("mistake %d passes: %s", (int)i, mistakes[i].said);
        ASSERT_STATUS(MICS_ERR_INVALID, status);
        ASSERT_SAID(&seen, mistakes[i].said);
    }
}
