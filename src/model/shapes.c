// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Any decoder by its shapes, for plans: the sizes that its config.json gives under whichever names,
// and the ops that cost most.
//
// Latent attention (DeepSeek-V2, 2024, arXiv:2405.04434) has queries, keys and values made from two
// narrow vectors. Here one chain of three GEMMs has the parameters of all, and heads are as wide as
// its values.
#include "model/shapes.h"
#include "mics/builder.h"
#include "model/from_config.h"
#include <stdio.h>

enum { MODULE_BYTES = 2 * MICS_NAME_BYTES };

static int32_t linear(mics_model *model, const char *layer, const char *name, int32_t in,
                      int64_t inputs, int64_t outputs)
{
    const model_linear_spec spec = {inputs, outputs, 0.02, false, true};
    return model_linear(model, layer, name, in, &spec);
}

static int32_t norm(mics_model *model, const char *layer, const char *name, int32_t in,
                    int64_t hidden)
{
    char module[MODULE_BYTES];
    snprintf(module, sizeof module, "%s.%s", layer, name);
    return mics_op_rmsnorm(model, in, model_vector(model, module, "weight", hidden, MICS_INIT_ONES),
                           1e-6F);
}

static int32_t activation(mics_model *model, const shapes *s, int32_t in)
{
    return s->gated ? mics_op_swiglu(model, in) : mics_op_gelu(model, in, false);
}

// Elements of the narrow vectors. Without a rank of their own queries are made at once.
static int64_t narrow_elems(const shapes *s)
{
    const int64_t queries =
        s->query_rank > 0 ? s->query_rank : s->heads.query * (s->plain_dim + s->rotary_dim);
    return queries + s->pair_rank + s->rotary_dim;
}

// Width between two GEMMs that have the parameters of both that follow the narrow vectors.
static int64_t latent_width(const shapes *s)
{
    const int64_t queries = s->query_rank * (s->plain_dim + s->rotary_dim);
    const int64_t pairs = s->pair_rank * (s->plain_dim + s->value_dim);
    const int64_t elems = s->heads.query * (queries + pairs);
    const int64_t width = elems / (narrow_elems(s) + mics_heads_width(s->heads));
    return width > 0 ? width : 1;
}

static int32_t heads_of(mics_model *model, const shapes *s, const char *layer, int32_t x)
{
    const int64_t width = mics_heads_width(s->heads);
    if (s->pair_rank == 0)
        return linear(model, layer, "attention.qkv", x, s->hidden, width);
    const int64_t down = narrow_elems(s), narrow = latent_width(s);
    x = linear(model, layer, "attention.down", x, s->hidden, down);
    x = linear(model, layer, "attention.latent", x, down, narrow);
    return linear(model, layer, "attention.up", x, narrow, width);
}

static int32_t attention(mics_model *model, const shapes *s, const char *layer, int64_t window,
                         int32_t x)
{
    mics_op op = mics_op_of(MICS_OP_ATTENTION, heads_of(model, s, layer, x), mics_param_none(),
                            mics_param_none());
    op.heads = s->heads;
    op.window = window;
    op.both_ways = s->both_ways;
    x = mics_model_add_op(model, op);
    return linear(model, layer, "attention.out", x, s->heads.query * s->heads.dim, s->hidden);
}

static int32_t mlp(mics_model *model, const shapes *s, const char *layer, const char *name,
                   int32_t in, int64_t inner)
{
    char module[MODULE_BYTES];
    snprintf(module, sizeof module, "%s.%s", layer, name);
    int32_t x = linear(model, module, "up", in, s->hidden, (s->gated ? 2 : 1) * inner);
    x = activation(model, s, x);
    return linear(model, module, "down", x, inner, s->hidden);
}

// The router's weight; transformers and others call it so, or "router".
static int32_t router(mics_model *model, const shapes *s, const char *layer, int32_t in,
                      mics_experts of)
{
    char module[MODULE_BYTES];
    snprintf(module, sizeof module, "%s.gate", layer);
    const mics_param_ref weight = model_matrix(model, module, s->experts, s->hidden, 0.02);
    return mics_op_router(model, in, weight, of, (mics_router_spec){.normalised = true});
}

// A unit of all experts of a layer, with the first one's weights.
static void expert_weights(mics_model *model, const shapes *s, const char *layer, int64_t outputs,
                           mics_param_ref *up_out, mics_param_ref *down_out)
{
    char module[MODULE_BYTES];
    snprintf(module, sizeof module, "%s.experts", layer);
    mics_model_experts(model, module, (int32_t)s->experts);
    for (int64_t e = 0; e < s->experts; e++) {
        snprintf(module, sizeof module, "%s.experts.%lld.up", layer, (long long)e);
        const mics_param_ref up = model_matrix(model, module, outputs, s->hidden, 0.02);
        snprintf(module, sizeof module, "%s.experts.%lld.down", layer, (long long)e);
        const mics_param_ref down = model_matrix(model, module, s->hidden, s->expert_inner, 0.02);
        *up_out = e == 0 ? up : *up_out;
        *down_out = e == 0 ? down : *down_out;
    }
    mics_model_experts_end(model);
}

static int32_t experts(mics_model *model, const shapes *s, const char *layer, int32_t in)
{
    const mics_experts of = {.count = (int32_t)s->experts, .chosen = (int32_t)s->chosen};
    const int64_t outputs = (s->gated ? 2 : 1) * s->expert_inner;
    const int32_t routes = router(model, s, layer, in, of);
    mics_param_ref up = mics_param_none(), down = mics_param_none();
    expert_weights(model, s, layer, outputs, &up, &down);
    int32_t x = mics_op_experts(model, MICS_OP_EXPERTS_IN, in, routes, up, of);
    x = s->gated ? mics_op_experts_swiglu(model, x, of) : mics_op_gelu(model, x, true);
    x = mics_op_experts(model, MICS_OP_EXPERTS_OUT, x, routes, down, of);
    if (s->shared_inner > 0)
        x = mics_op_add(model, x, mlp(model, s, layer, "shared", in, s->shared_inner));
    return x;
}

static void build_layer(mics_model *model, const shapes *s, int64_t index)
{
    char layer[MICS_NAME_BYTES];
    snprintf(layer, sizeof layer, "layers.%lld", (long long)index);
    mics_model_unit(model, layer, s->hidden);
    int32_t x = norm(model, layer, "attention_norm", 0, s->hidden);
    x = attention(model, s, layer, shapes_window(s, index), x);
    const int32_t middle = mics_op_add(model, 0, x);
    x = norm(model, layer, "mlp_norm", middle, s->hidden);
    x = shapes_has_experts(s, index) ? experts(model, s, layer, x)
                                     : mlp(model, s, layer, "mlp", x, s->inner);
    mics_model_unit_end(model, mics_op_add(model, middle, x));
}

static void build(mics_model *model, const shapes *s)
{
    mics_model_unit(model, "embed", 0);
    const mics_param_ref tokens = model_matrix(model, "tokens", s->vocab, s->hidden, 0.02);
    mics_op op = mics_op_of(MICS_OP_EMBEDDING, -1, tokens, mics_param_none());
    if (s->learned_positions)
        op.params[1] =
            model_matrix(model, "positions", s->first_position + s->positions, s->hidden, 0.02);
    op.first_position = s->first_position;
    mics_model_unit_end(model, mics_model_add_op(model, op));
    for (int64_t layer = 0; layer < s->layers; layer++)
        build_layer(model, s, layer);
    mics_model_unit(model, "head", s->hidden);
    int32_t x = norm(model, "head", "norm", 0, s->hidden);
    if (s->both_ways) // the transform of masked language models
        x = mics_op_gelu(model, linear(model, "head", "transform", x, s->hidden, s->hidden), true);
    mics_op_lm_head(model, x,
                    s->tied ? tokens : model_matrix(model, "lm_head", s->vocab, s->hidden, 0.02));
    mics_model_unit_end(model, -1);
}

bool mics_model_is_guess(const mics_json *config, char *text, size_t capacity)
{
    shapes s = {.layers = 0};
    char experts[64] = "";
    text[0] = '\0';
    if (shapes_is_known(config) || shapes_read(config, &s) != MICS_OK)
        return false;
    if (s.experts > 0)
        snprintf(experts, sizeof experts, " or %lld experts", (long long)s.experts);
    snprintf(text, capacity,
             "a decoder with causal attention, no learned positions, %s feed-forward layers of "
             "%lld%s, and %s",
             s.gated ? "gated" : "plain", (long long)s.inner, experts,
             s.tied ? "the embedding as its LM head" : "an LM head of its own");
    return true;
}

mics_status mics_model_from_shapes(mics_memory *memory, const mics_json *config,
                                   mics_model **model_out)
{
    const char *type = shapes_type(config);
    shapes s = {.layers = 0};
    mics_model *model = NULL;
    MICS_TRY(shapes_read(config, &s));
    MICS_TRY(mics_model_open(memory,
                             &(mics_model_spec){.architecture = type != NULL ? type : "decoder",
                                                .vocab = s.vocab,
                                                .positions = s.positions,
                                                .hidden = s.hidden},
                             &model));
    build(model, &s);
    const mics_status status = mics_model_finish(model);
    if (status == MICS_OK)
        *model_out = model;
    else
        mics_model_close(model);
    return status;
}
