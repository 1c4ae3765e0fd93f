// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// GPT-NeoX and Pythia as data: Black et al., GPT-NeoX-20B, 2022, arXiv:2204.06745, with Hugging
// Face's configuration keys and tensor names. Attention and MLP may read the same input (parallel
// residual), and a part of each head turns.
//
// Dropout is where transformers' modeling_gpt_neox.py has it: hidden_dropout of the embeddings
// (emb_dropout), of what attention's dense gives (post_attention_dropout) and of what the MLP gives
// (post_mlp_dropout), before they are added; attention_dropout of the probabilities.
#include "mics/builder.h"
#include "model/builders.h"
#include <stdio.h>
#include <string.h>

enum { MODULE_BYTES = 2 * MICS_NAME_BYTES };
// The largest published model has 64 in each of 44 layers. Each has entries of its own (parts).
enum { MAX_HEADS = 4096, MAX_HEADS_IN_ALL = 100000 };

typedef struct shape {
    int64_t vocab, hidden, inner, layers, positions;
    mics_heads heads;
    double eps, init_std;
    float attention_dropout, hidden_dropout;
    bool tied, attention_bias, parallel, exact_gelu;
    model_rope rope;
} shape;

static void read_activation(config_reader *reader, shape *s)
{
    static const char key[] = "hidden_act";
    const mics_json_value *value = mics_json_at(reader->json, key);
    config_require(reader, key, "gelu|gelu_python|gelu_new|gelu_fast|gelu_pytorch_tanh");
    const char *name = value != NULL ? mics_json_string(value) : "gelu";
    s->exact_gelu = name != NULL && (strcmp(name, "gelu") == 0 || strcmp(name, "gelu_python") == 0);
}

static mics_status read_shape(config_reader *reader, bool ignore_dropout, shape *s)
{
    static const rope_keys keys = {"rotary_emb_base", "rotary_pct", 0.25, 0};
    const int64_t limit = (int64_t)1 << 31;
    s->vocab = config_int(reader, "vocab_size", 2, limit - 1, 50432);
    s->hidden = config_int(reader, "hidden_size", 1, 1 << 24, 6144);
    s->inner = config_int(reader, "intermediate_size", 1, 1 << 26, 24576);
    s->layers = config_int(reader, "num_hidden_layers", 1, CONFIG_MAX_LAYERS, 44);
    s->positions = config_int(reader, "max_position_embeddings", 1, limit, 2048);
    s->eps = config_real(reader, "layer_norm_eps", 0, 1, 1e-5);
    s->init_std = config_real(reader, "initializer_range", 0, 100, 0.02);
    s->tied = config_bool(reader, "tie_word_embeddings", false);
    s->attention_bias = config_bool(reader, "attention_bias", true);
    s->parallel = config_bool(reader, "use_parallel_residual", true);
    read_activation(reader, s);
    s->attention_dropout = config_dropout(reader, "attention_dropout", ignore_dropout);
    s->hidden_dropout = config_dropout(reader, "hidden_dropout", ignore_dropout);
    const int64_t heads = config_int(reader, "num_attention_heads", 1, MAX_HEADS, 64);
    s->heads = (mics_heads){heads, heads, s->hidden / heads};
    if (reader->status == MICS_OK && heads * s->layers > MAX_HEADS_IN_ALL)
        reader->status = mics_json_fail(reader->json, "num_attention_heads", MICS_ERR_INVALID,
                                        "%lld heads in each of %lld layers are more than %d in all",
                                        (long long)heads, (long long)s->layers, MAX_HEADS_IN_ALL);
    if (reader->status == MICS_OK && s->hidden % heads != 0)
        reader->status = mics_json_fail(reader->json, "num_attention_heads", MICS_ERR_INVALID,
                                        "%lld heads do not divide hidden_size = %lld",
                                        (long long)heads, (long long)s->hidden);
    // transformers takes it for the rotary embeddings, but cuts heads without it.
    const int64_t dim = config_int(reader, "head_dim", 1, limit, s->heads.dim);
    if (reader->status == MICS_OK && dim != s->heads.dim)
        reader->status = mics_json_fail(reader->json, "head_dim", MICS_ERR_UNSUPPORTED,
                                        "only hidden_size / num_attention_heads = %lld can be "
                                        "honoured in this family, not %lld",
                                        (long long)s->heads.dim, (long long)dim);
    config_check_heads(reader, s->heads);
    config_rope(reader, &keys, s->heads.dim, s->positions, &s->rope);
    return reader->status;
}

// The file has q, k and v of each head side by side, the model all heads of q, then of k, then of
// v.
static void made_of_heads(mics_model *model, const char *tensor, mics_heads heads)
{
    for (int64_t head = 0; head < heads.query; head++) {
        for (int64_t third = 0; third < 3; third++)
            mics_model_add_part(model, tensor, (third * heads.query + head) * heads.dim, heads.dim);
    }
}

static int32_t query_key_value(mics_model *model, const shape *s, const char *layer, int32_t in)
{
    char module[MODULE_BYTES], name[MODULE_BYTES + 8];
    snprintf(module, sizeof module, "%s.attention.query_key_value", layer);
    mics_param_ref bias = mics_param_none();
    const mics_param_ref weight =
        model_matrix(model, module, 3 * s->hidden, s->hidden, s->init_std);
    snprintf(name, sizeof name, "%s.weight", module);
    made_of_heads(model, name, s->heads);
    if (s->attention_bias) {
        bias = model_vector(model, module, "bias", 3 * s->hidden, MICS_INIT_ZEROS);
        snprintf(name, sizeof name, "%s.bias", module);
        made_of_heads(model, name, s->heads);
    }
    return mics_op_linear(model, in, weight, bias, true);
}

static int32_t attention(mics_model *model, const shape *s, const char *layer, int32_t in)
{
    const mics_rotary_spec rotary = {s->rope.dims, s->rope.frequencies, s->rope.scale};
    int32_t x = query_key_value(model, s, layer, in);
    x = mics_op_rotary(model, x, s->heads, &rotary);
    x = mics_op_attention(model, x, s->heads, 0, s->attention_dropout);
    const model_linear_spec dense = {s->hidden, s->hidden, s->init_std, s->attention_bias, true};
    x = model_linear(model, layer, "attention.dense", x, &dense);
    return model_dropout(model, x, s->hidden_dropout);
}

static int32_t mlp(mics_model *model, const shape *s, const char *layer, int32_t in)
{
    const model_linear_spec up = {s->hidden, s->inner, s->init_std, true, true};
    const model_linear_spec down = {s->inner, s->hidden, s->init_std, true, true};
    int32_t x = model_linear(model, layer, "mlp.dense_h_to_4h", in, &up);
    x = mics_op_gelu(model, x, s->exact_gelu);
    x = model_linear(model, layer, "mlp.dense_4h_to_h", x, &down);
    return model_dropout(model, x, s->hidden_dropout);
}

static void build_layer(mics_model *model, const shape *s, int64_t index)
{
    char layer[MICS_NAME_BYTES];
    snprintf(layer, sizeof layer, "layers.%lld", (long long)index);
    mics_model_unit(model, layer, s->hidden);
    snprintf(layer, sizeof layer, "gpt_neox.layers.%lld", (long long)index);
    int32_t x = model_layernorm(model, layer, "input_layernorm", 0, s->hidden, s->eps);
    const int32_t attended = attention(model, s, layer, x);
    const int32_t middle = s->parallel ? 0 : mics_op_add(model, 0, attended);
    x = model_layernorm(model, layer, "post_attention_layernorm", middle, s->hidden, s->eps);
    x = mlp(model, s, layer, x);
    if (s->parallel)
        x = mics_op_add(model, x, attended);
    mics_model_unit_end(model, mics_op_add(model, middle, x));
}

static void build(mics_model *model, const shape *s)
{
    mics_model_unit(model, "embed", 0);
    const mics_param_ref tokens =
        model_matrix(model, "gpt_neox.embed_in", s->vocab, s->hidden, s->init_std);
    const int32_t embedded = mics_op_embedding(model, tokens, mics_param_none());
    mics_model_unit_end(model, model_dropout(model, embedded, s->hidden_dropout));

    for (int64_t layer = 0; layer < s->layers; layer++)
        build_layer(model, s, layer);

    mics_model_unit(model, "head", s->hidden);
    const int32_t x = model_layernorm(model, "gpt_neox", "final_layer_norm", 0, s->hidden, s->eps);
    const mics_param_ref head =
        s->tied ? tokens : model_matrix(model, "embed_out", s->vocab, s->hidden, s->init_std);
    mics_op_lm_head(model, x, head);
    mics_model_unit_end(model, -1);
}

mics_status build_gpt_neox(mics_memory *memory, config_reader *reader, bool ignore_dropout,
                           mics_model **model_out)
{
    shape s = {.tied = false};
    MICS_TRY(read_shape(reader, ignore_dropout, &s));
    MICS_TRY(mics_model_open(memory,
                             &(mics_model_spec){.architecture = "gpt_neox",
                                                .vocab = s.vocab,
                                                .positions = s.positions,
                                                .hidden = s.hidden},
                             model_out));
    build(*model_out, &s);
    return MICS_OK;
}
