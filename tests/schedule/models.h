// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Models for tests of what is computed from them: a small GPT-2 from a configuration, and others
// made with the public builder, whose units make gradients meet in every way.
#pragma once

#include "base/json.h"
#include "mics/builder.h"
#include "mics/model.h"
#include "model/from_config.h"
#include "test.h"
#include <stdio.h>
#include <string.h>

enum { MODEL_VOCAB = 29, MODEL_POSITIONS = 19, MODEL_WIDTH = 12, MODEL_HEADS = 3 };

static inline mics_model *model_gpt2(mics_memory *memory, int layers, bool tied)
{
    char text[256];
    mics_json *json = NULL;
    mics_model *model = NULL;
    int length = snprintf(text, sizeof text,
                          "{\"model_type\": \"gpt2\", \"n_layer\": %d, \"n_head\": %d, "
                          "\"n_embd\": %d, \"n_positions\": %d, \"vocab_size\": %d, "
                          "\"tie_word_embeddings\": %s}",
                          layers, MODEL_HEADS, MODEL_WIDTH, MODEL_POSITIONS, MODEL_VOCAB,
                          tied ? "true" : "false");
    ASSERT_OK(mics_json_parse(memory, "model", text, (size_t)length, &json));
    ASSERT_OK(mics_model_from_config(memory, json, false, &model));
    mics_json_close(json);
    return model;
}

// ---- with the builder ----

static inline mics_param_ref model_param_drawn(mics_model *model, const char *name, int64_t rows,
                                               int64_t cols, double std)
{
    char full[MICS_NAME_BYTES];
    snprintf(full, sizeof full, "u%d.%.60s", (int)model->unit_count - 1, name);
    const bool vector = cols == 0;
    return mics_model_add_param(model, full,
                                &(mics_param_spec){.dims = vector ? 1 : 2,
                                                   .shape = {rows, cols},
                                                   .init = MICS_INIT_NORMAL,
                                                   .init_std = std,
                                                   .decay = !vector});
}

static inline mics_param_ref model_param(mics_model *model, const char *name, int64_t rows,
                                         int64_t cols)
{
    return model_param_drawn(model, name, rows, cols, 0.2);
}

static inline int32_t model_norm(mics_model *model, const char *name, int32_t in)
{
    char gain[MICS_NAME_BYTES], shift[MICS_NAME_BYTES];
    snprintf(gain, sizeof gain, "%s.weight", name);
    snprintf(shift, sizeof shift, "%s.bias", name);
    mics_param_ref weight = model_param(model, gain, MODEL_WIDTH, 0);
    mics_param_ref bias = model_param(model, shift, MODEL_WIDTH, 0);
    return mics_op_layernorm(model, in, weight, bias, 1e-5f);
}

// With a bias when the weight is (I, O), without one when it is (O, I).
static inline int32_t model_linear(mics_model *model, const char *name, int32_t in, int64_t inputs,
                                   int64_t outputs, bool out_in)
{
    char bias[MICS_NAME_BYTES];
    snprintf(bias, sizeof bias, "%s.bias", name);
    mics_param_ref weight =
        model_param(model, name, out_in ? outputs : inputs, out_in ? inputs : outputs);
    return mics_op_linear(model, in, weight,
                          out_in ? mics_param_none() : model_param(model, bias, outputs, 0),
                          out_in);
}

static inline int32_t model_attention(mics_model *model, int32_t in, bool out_in)
{
    int32_t x = model_linear(model, "qkv", in, MODEL_WIDTH, 3 * MODEL_WIDTH, out_in);
    x = mics_op_attention(model, x,
                          (mics_heads){MODEL_HEADS, MODEL_HEADS, MODEL_WIDTH / MODEL_HEADS}, 0, 0);
    return model_linear(model, "proj", x, MODEL_WIDTH, MODEL_WIDTH, out_in);
}

static inline int32_t model_mlp(mics_model *model, int32_t in, bool out_in)
{
    int32_t x = model_linear(model, "up", in, MODEL_WIDTH, 2 * MODEL_WIDTH + 1, out_in);
    x = mics_op_gelu(model, x, false);
    return model_linear(model, "down", x, 2 * MODEL_WIDTH + 1, MODEL_WIDTH, out_in);
}

// A layer: from tensor 0 to the unit's output.
typedef int32_t (*model_layer)(mics_model *model);

// Post-norm: LN(x + f(x)), as the first transformers had it.
static inline int32_t layer_post_norm(mics_model *model)
{
    int32_t x = model_norm(model, "ln_1", mics_op_add(model, 0, model_attention(model, 0, false)));
    return model_norm(model, "ln_2", mics_op_add(model, x, model_mlp(model, x, true)));
}

// Attention and MLP side by side from one norm, as in GPT-J.
static inline int32_t layer_parallel(mics_model *model)
{
    int32_t x = model_norm(model, "ln", 0);
    int32_t sum = mics_op_add(model, model_attention(model, x, true), model_mlp(model, x, false));
    return mics_op_add(model, sum, 0);
}

// One tensor twice in a sum, a sum that is read several times, an input read last.
static inline int32_t layer_knot(mics_model *model)
{
    int32_t twice = mics_op_add(model, 0, 0);
    int32_t norm = model_norm(model, "ln", twice);
    int32_t sum = mics_op_add(model, norm, twice);
    int32_t bent = mics_op_gelu(model, sum, false);
    int32_t both = mics_op_add(model, bent, sum);
    return mics_op_add(model, mics_op_add(model, both, both), mics_op_gelu(model, 0, false));
}

// Nothing but sums: the gradient passes through without an op. A unit without parameters.
static inline int32_t layer_sums(mics_model *model)
{
    int32_t x = mics_op_add(model, 0, 0);
    return mics_op_add(model, x, 0);
}

static inline int32_t layer_gelu(mics_model *model)
{
    return mics_op_gelu(model, 0, false);
}

// Output that is read inside the unit too.
static inline int32_t layer_read_out(mics_model *model)
{
    int32_t out =
        mics_op_add(model, 0, model_linear(model, "a", 0, MODEL_WIDTH, MODEL_WIDTH, true));
    int32_t later = mics_op_gelu(model, out, false);
    return mics_op_add(model, later, mics_op_add(model, out, later));
}

// Ops that may work in place where the output's gradient is still to be read by another op.
static inline int32_t layer_beside(mics_model *model)
{
    int32_t a = model_linear(model, "a", 0, MODEL_WIDTH, MODEL_WIDTH, false);
    int32_t b = model_linear(model, "b", 0, MODEL_WIDTH, MODEL_WIDTH, true);
    int32_t c = mics_op_add(model, a, mics_op_gelu(model, b, false));
    return mics_op_add(model, model_norm(model, "ln", c), mics_op_gelu(model, c, false));
}

// One weight for two ops with a bias each, and one gain for two norms.
static inline int32_t layer_shared(mics_model *model)
{
    mics_param_ref weight = model_param(model, "weight", MODEL_WIDTH, MODEL_WIDTH);
    mics_param_ref gain = model_param(model, "gain", MODEL_WIDTH, 0);
    mics_param_ref biases[4];
    static const char *const names[] = {"a", "b", "c", "d"};
    for (int i = 0; i < 4; i++)
        biases[i] = model_param(model, names[i], MODEL_WIDTH, 0);
    int32_t x = mics_op_linear(model, 0, weight, biases[0], false);
    x = mics_op_layernorm(model, mics_op_gelu(model, x, false), gain, biases[1], 1e-5f);
    x = mics_op_linear(model, x, weight, biases[2], false);
    return mics_op_layernorm(model, mics_op_add(model, x, 0), gain, biases[3], 1e-5f);
}

static inline int32_t model_rmsnorm(mics_model *model, const char *name, int32_t in)
{
    return mics_op_rmsnorm(model, in, model_param(model, name, MODEL_WIDTH, 0), 1e-5f);
}

// Heads of 6 numbers, of which `dims` turn.
static inline int32_t model_rotary(mics_model *model, int32_t in, mics_heads heads, int64_t dims)
{
    static const float frequencies[] = {1.0f, 0.3f, 0.1f};
    const mics_rotary_spec spec = {dims, frequencies, 1.1f};
    return mics_op_rotary(model, in, heads, &spec);
}

static inline int32_t model_swiglu(mics_model *model, int32_t in)
{
    int32_t x = model_linear(model, "gate_up", in, MODEL_WIDTH, 2 * 7, true);
    return model_linear(model, "down", mics_op_swiglu(model, x), 7, MODEL_WIDTH, true);
}

// Llama: three query heads on one key-value head, wider than the hidden size.
static inline int32_t layer_llama(mics_model *model)
{
    const mics_heads heads = {3, 1, 6};
    int32_t x = model_rmsnorm(model, "norm_1", 0);
    x = model_linear(model, "qkv", x, MODEL_WIDTH, mics_heads_width(heads), true);
    x = mics_op_attention(model, model_rotary(model, x, heads, 6), heads, 0, 0);
    x = mics_op_add(model, 0, model_linear(model, "proj", x, 18, MODEL_WIDTH, true));
    return mics_op_add(model, x, model_swiglu(model, model_rmsnorm(model, "norm_2", x)));
}

// The gain of a norm of heads: small ones would make scores equal, and so their gradients nothing.
static inline mics_param_ref model_head_gain(mics_model *model, const char *name)
{
    return model_param_drawn(model, name, 6, 0, 1.0);
}

// Norms of heads, as Qwen3, and a window, as Mistral.
static inline int32_t layer_qwen(mics_model *model)
{
    const mics_heads heads = {4, 2, 6};
    int32_t x = model_rmsnorm(model, "norm_1", 0);
    x = model_linear(model, "qkv", x, MODEL_WIDTH, mics_heads_width(heads), false);
    x = mics_op_head_norm(model, x, heads, model_head_gain(model, "q_norm"),
                          model_head_gain(model, "k_norm"), 1e-5f);
    x = mics_op_attention(model, model_rotary(model, x, heads, 6), heads, 3, 0);
    x = mics_op_add(model, 0, model_linear(model, "proj", x, 24, MODEL_WIDTH, true));
    return mics_op_add(model, x, model_swiglu(model, model_rmsnorm(model, "norm_2", x)));
}

// GPT-NeoX: attention and MLP side by side, heads that turn in part, GELU by erf.
static inline int32_t layer_neox(mics_model *model)
{
    const mics_heads heads = {2, 2, 6};
    int32_t x = model_norm(model, "ln_1", 0), y = model_norm(model, "ln_2", 0);
    x = model_linear(model, "qkv", x, MODEL_WIDTH, mics_heads_width(heads), false);
    x = mics_op_attention(model, model_rotary(model, x, heads, 2), heads, 0, 0);
    x = model_linear(model, "proj", x, 12, MODEL_WIDTH, false);
    y = mics_op_gelu(model, model_linear(model, "up", y, MODEL_WIDTH, 20, false), true);
    y = model_linear(model, "down", y, 20, MODEL_WIDTH, false);
    return mics_op_add(model, mics_op_add(model, x, y), 0);
}

typedef struct model_kind {
    const char *name;
    model_layer layers[2];
} model_kind;

static const model_kind model_kinds[] = {
    {"post-norm", {layer_post_norm, layer_post_norm}},
    {"parallel", {layer_parallel, layer_parallel}},
    {"knot", {layer_knot, layer_parallel}},
    {"sums", {layer_post_norm, layer_sums}},
    {"gelu", {layer_sums, layer_gelu}},
    {"shared", {layer_shared, layer_shared}},
    {"beside", {layer_beside, layer_beside}},
    {"read out", {layer_read_out, layer_knot}},
    {"llama", {layer_llama, layer_llama}},
    {"qwen", {layer_qwen, layer_llama}},
    {"neox", {layer_neox, layer_neox}},
};
enum { MODEL_KINDS = sizeof model_kinds / sizeof model_kinds[0] };

static inline mics_model *model_build(mics_memory *memory, const model_kind *kind, bool tied)
{
    mics_model *model = NULL;
    const mics_model_spec spec = {"test", MODEL_VOCAB, MODEL_POSITIONS, MODEL_WIDTH};
    ASSERT_OK(mics_model_open(memory, &spec, &model));
    mics_model_unit(model, "embed", 0);
    mics_param_ref table = model_param(model, "wte", MODEL_VOCAB, MODEL_WIDTH);
    mics_param_ref places =
        tied ? model_param(model, "wpe", MODEL_POSITIONS, MODEL_WIDTH) : mics_param_none();
    mics_model_unit_end(model, mics_op_embedding(model, table, places));
    for (int layer = 0; layer < 2; layer++) {
        char name[24];
        snprintf(name, sizeof name, "layer.%d", layer);
        mics_model_unit(model, name, MODEL_WIDTH);
        mics_model_unit_end(model, kind->layers[layer](model));
    }
    mics_model_unit(model, "head", MODEL_WIDTH);
    mics_param_ref head = tied ? table : model_param(model, "head", MODEL_VOCAB, MODEL_WIDTH);
    mics_op_lm_head(model, 0, head);
    mics_model_unit_end(model, -1);
    ASSERT_OK(mics_model_finish(model));
    assert_int_equal(model->tied, tied);
    return model;
}
