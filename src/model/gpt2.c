// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// GPT-2 as data: Radford et al., Language models are unsupervised multitask learners, 2019, with
// Hugging Face's configuration keys, tensor names and weight layout (Conv1D: inputs by outputs).
//
// Dropout is where transformers' modeling_gpt2.py has it: embd_pdrop of the sum of both embeddings
// (GPT2Model.drop), attn_pdrop of the probabilities (attn_dropout), resid_pdrop of what each c_proj
// gives, before it is added (GPT2Attention.resid_dropout, GPT2MLP.dropout).
#include "mics/builder.h"
#include "model/builders.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

// By its names in transformers' ACT2FN.
typedef struct activation {
    const char *name;
    mics_op_kind kind;
    bool exact;               // of a GELU
    mics_activation function; // of the others
} activation;

static const activation activations[] = {
    {.name = "gelu_new", .kind = MICS_OP_GELU}, // the default
    {.name = "gelu_pytorch_tanh", .kind = MICS_OP_GELU},
    {.name = "gelu", .kind = MICS_OP_GELU, .exact = true},
    {.name = "relu", .kind = MICS_OP_ACTIVATION, .function = MICS_ACTIVATION_RELU},
    {.name = "silu", .kind = MICS_OP_ACTIVATION, .function = MICS_ACTIVATION_SILU},
    {.name = "swish", .kind = MICS_OP_ACTIVATION, .function = MICS_ACTIVATION_SILU},
};

typedef struct shape {
    int64_t layers, heads, hidden, inner, positions, vocab;
    double eps, init_std;
    float attention_dropout, embedding_dropout, residual_dropout;
    const activation *activation;
    bool tied;
} shape;

static const activation *read_activation(config_reader *reader)
{
    static const char key[] = "activation_function";
    config_require(reader, key, "gelu_new|gelu_pytorch_tanh|gelu|relu|silu|swish");
    const mics_json_value *value = mics_json_at(reader->json, key);
    const char *name = value != NULL ? mics_json_string(value) : NULL;
    for (size_t i = 0; name != NULL && i < sizeof activations / sizeof *activations; i++) {
        if (strcmp(activations[i].name, name) == 0)
            return &activations[i];
    }
    return &activations[0];
}

static mics_status read_shape(config_reader *reader, bool ignore_dropout, shape *shape_out)
{
    const int64_t limit = (int64_t)1 << 31;
    // With the aliases of GPT2Config.attribute_map, transformers 5.23.
    static const char *const layers[] = {"n_layer", "num_hidden_layers"};
    static const char *const heads[] = {"n_head", "num_attention_heads"};
    static const char *const hidden[] = {"n_embd", "hidden_size"};
    static const char *const positions[] = {"n_positions", "max_position_embeddings"};
    shape s = {
        .layers = config_int_of(reader, layers, 1, CONFIG_MAX_LAYERS),
        .heads = config_int_of(reader, heads, 1, 100000),
        .hidden = config_int_of(reader, hidden, 1, 1 << 24),
        .positions = config_int_of(reader, positions, 1, limit),
        .vocab = config_int(reader, "vocab_size", 2, limit - 1, -1),
        .eps = config_real(reader, "layer_norm_epsilon", 0, 1, 1e-5),
        .init_std = config_real(reader, "initializer_range", 0, 100, 0.02),
        .tied = config_bool(reader, "tie_word_embeddings", true),
    };
    s.inner = config_int(reader, "n_inner", 1, 1 << 26, 4 * s.hidden);
    s.activation = read_activation(reader);
    s.attention_dropout = config_dropout(reader, "attn_pdrop", ignore_dropout);
    s.embedding_dropout = config_dropout(reader, "embd_pdrop", ignore_dropout);
    s.residual_dropout = config_dropout(reader, "resid_pdrop", ignore_dropout);
    if (!config_bool(reader, "scale_attn_weights", true))
        reader->status = mics_json_fail(reader->json, "scale_attn_weights", MICS_ERR_UNSUPPORTED,
                                        "only true can be honoured");
    if (config_bool(reader, "scale_attn_by_inverse_layer_idx", false))
        reader->status = mics_json_fail(reader->json, "scale_attn_by_inverse_layer_idx",
                                        MICS_ERR_UNSUPPORTED, "only false can be honoured");
    if (config_bool(reader, "add_cross_attention", false))
        reader->status = mics_json_fail(reader->json, "add_cross_attention", MICS_ERR_UNSUPPORTED,
                                        "only false can be honoured");
    if (reader->status == MICS_OK && s.hidden % s.heads != 0)
        reader->status = mics_json_fail(reader->json, "n_head", MICS_ERR_INVALID,
                                        "%lld heads do not divide n_embd = %lld",
                                        (long long)s.heads, (long long)s.hidden);
    *shape_out = s;
    return reader->status;
}

static int32_t layernorm(mics_model *model, const char *layer, const char *name, int32_t in,
                         const shape *s)
{
    return model_layernorm(model, layer, name, in, s->hidden, s->eps);
}

static int32_t linear(mics_model *model, const char *layer, const char *name, int32_t in,
                      int64_t inputs, int64_t outputs, double std)
{
    const model_linear_spec spec = {inputs, outputs, std, .bias = true};
    return model_linear(model, layer, name, in, &spec);
}

static int32_t activate(mics_model *model, int32_t in, const activation *of)
{
    return of->kind == MICS_OP_GELU ? mics_op_gelu(model, in, of->exact)
                                    : mics_op_activation(model, in, of->function);
}

static void build_layer(mics_model *model, const shape *s, int64_t index)
{
    const double std = s->init_std, residual_std = std / sqrt(2.0 * (double)s->layers);
    const int64_t hidden = s->hidden;
    char layer[MICS_NAME_BYTES];
    snprintf(layer, sizeof layer, "h.%lld", (long long)index);
    mics_model_unit(model, layer, hidden);
    snprintf(layer, sizeof layer, "transformer.h.%lld", (long long)index);
    int32_t x = layernorm(model, layer, "ln_1", 0, s);
    x = linear(model, layer, "attn.c_attn", x, hidden, 3 * hidden, std);
    const mics_heads heads = {s->heads, s->heads, hidden / s->heads};
    x = mics_op_attention(model, x, heads, 0, s->attention_dropout);
    x = linear(model, layer, "attn.c_proj", x, hidden, hidden, residual_std);
    x = model_dropout(model, x, s->residual_dropout);
    const int32_t middle = mics_op_add(model, 0, x);
    x = layernorm(model, layer, "ln_2", middle, s);
    x = linear(model, layer, "mlp.c_fc", x, hidden, s->inner, std);
    x = activate(model, x, s->activation);
    x = linear(model, layer, "mlp.c_proj", x, s->inner, hidden, residual_std);
    x = model_dropout(model, x, s->residual_dropout);
    mics_model_unit_end(model, mics_op_add(model, middle, x));
}

static void build(mics_model *model, const shape *s)
{
    mics_model_unit(model, "embed", 0);
    mics_param_ref tokens =
        model_matrix(model, "transformer.wte", s->vocab, s->hidden, s->init_std);
    mics_param_ref positions =
        model_matrix(model, "transformer.wpe", s->positions, s->hidden, s->init_std);
    const int32_t embedded = mics_op_embedding(model, tokens, positions);
    mics_model_unit_end(model, model_dropout(model, embedded, s->embedding_dropout));

    for (int64_t layer = 0; layer < s->layers; layer++)
        build_layer(model, s, layer);

    mics_model_unit(model, "head", s->hidden);
    int32_t x = layernorm(model, "transformer", "ln_f", 0, s);
    mics_param_ref head =
        s->tied ? tokens : model_matrix(model, "lm_head", s->vocab, s->hidden, s->init_std);
    mics_op_lm_head(model, x, head);
    mics_model_unit_end(model, -1);
}

mics_status build_gpt2(mics_memory *memory, config_reader *reader, bool ignore_dropout,
                       mics_model **model_out)
{
    shape s;
    MICS_TRY(read_shape(reader, ignore_dropout, &s));
    MICS_TRY(mics_model_open(
        memory,
        &(mics_model_spec){
            .architecture = "gpt2", .vocab = s.vocab, .positions = s.positions, .hidden = s.hidden},
        model_out));
    build(*model_out, &s);
    return MICS_OK;
}
