// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Llama and its relatives as data: Touvron et al., LLaMA, 2023, arXiv:2302.13971, with Hugging
// Face's configuration keys and tensor names. Weights are (outputs, inputs). One parameter holds
// the rows of q, k and v, one those of gate and up.
#include "model/decoder.h"
#include "mics/builder.h"
#include <stdio.h>
#include <string.h>

enum { MODULE_BYTES = 2 * MICS_NAME_BYTES };

typedef struct decoder {
    const decoder_family *family;
    int64_t vocab, hidden, inner, layers, positions;
    mics_heads heads;
    int64_t window, window_from; // tokens, 0: none; first layer that has it
    double eps, init_std;
    float dropout; // of attention's probabilities; these families have no other
    bool tied, qkv_bias, o_bias, mlp_bias;
    model_rope rope;
    mixture mixture; // where the family has one
} decoder;

// ---- configuration ----

static void read_heads(config_reader *reader, decoder *self)
{
    static const char pairs[] = "num_key_value_heads";
    const decoder_family *family = self->family;
    mics_heads *heads = &self->heads;
    heads->query = config_int(reader, "num_attention_heads", 1, 100000, family->heads);
    // Null means one for each query head, in every family.
    const bool own = family->key_value_heads > 0 && !config_has(reader, pairs);
    heads->key_value =
        config_int(reader, pairs, 1, 100000, own ? family->key_value_heads : heads->query);
    const bool own_dim = family->head_dim > 0 || config_is_said(reader, "head_dim");
    if (reader->status == MICS_OK && (family->heads_divide || !own_dim) &&
        self->hidden % heads->query != 0)
        reader->status = mics_json_fail(reader->json, "num_attention_heads", MICS_ERR_INVALID,
                                        "%lld heads do not divide hidden_size = %lld; give a "
                                        "number that does%s",
                                        (long long)heads->query, (long long)self->hidden,
                                        family->heads_divide ? "" : ", or head_dim");
    const int64_t dim = family->head_dim > 0 ? family->head_dim : self->hidden / heads->query;
    heads->dim = config_int(reader, "head_dim", 1, CONFIG_MAX_HEAD_DIM, dim);
    config_check_heads(reader, *heads);
}

static void read_biases(config_reader *reader, decoder *self)
{
    const decoder_family *family = self->family;
    const bool bias = config_bool(reader, "attention_bias", false);
    self->qkv_bias = family->qkv_bias || (family->bias_keys && bias) ||
                     (family->qkv_bias_key && config_bool(reader, "qkv_bias", true));
    self->o_bias = family->bias_keys && bias;
    const bool mlp_bias = config_bool(reader, "mlp_bias", false);
    self->mlp_bias = family->mlp_bias_key && mlp_bias;
    // transformers passes over keys that the family's class does not have.
    const char *ignored = bias && !family->bias_keys          ? "attention_bias"
                          : mlp_bias && !family->mlp_bias_key ? "mlp_bias"
                                                              : NULL;
    if (reader->status == MICS_OK && ignored != NULL)
        reader->status =
            mics_json_fail(reader->json, ignored, MICS_ERR_UNSUPPORTED,
                           "only false can be honoured: %s has no such key", family->architecture);
}

static void read_window(config_reader *reader, decoder *self)
{
    static const char key[] = "sliding_window", use[] = "use_sliding_window";
    const decoder_family *family = self->family;
    const int64_t limit = (int64_t)1 << 31;
    if (family->no_window && config_bool(reader, use, false) && reader->status == MICS_OK)
        reader->status =
            mics_json_fail(reader->json, use, MICS_ERR_UNSUPPORTED, "only false can be honoured");
    if (!family->window && !family->layer_types)
        return;
    const int64_t window = config_int(reader, key, 1, limit, 4096);
    const bool used = family->window || config_bool(reader, use, false);
    // Where it is absent, Mistral has one and Mixtral has none.
    const bool null =
        (config_has(reader, key) || family->experts != NULL) && !config_is_said(reader, key);
    self->window = used && !null ? window : 0;
    if (family->layer_types)
        self->window_from = config_int(reader, "max_window_layers", 0, limit, 28);
}

// Whether layer `index` sees a window only, where layer_types says so.
static bool is_sliding(const config_reader *reader, const decoder *self, int64_t index)
{
    const mics_json_value *types = mics_json_at(reader->json, "layer_types");
    if (mics_json_type_of(types) != MICS_JSON_ARRAY)
        return self->window > 0 && index >= self->window_from;
    return strcmp(mics_json_string(mics_json_element(types, (int32_t)index)),
                  "sliding_attention") == 0;
}

static const char *wrong_type(const decoder *self, const mics_json_value *type, int64_t index)
{
    const char *text = mics_json_string(type);
    const bool sliding = text != NULL && strcmp(text, "sliding_attention") == 0;
    if (text == NULL || (!sliding && strcmp(text, "full_attention") != 0))
        return "is neither \"full_attention\" nor \"sliding_attention\"";
    if (sliding && self->window == 0)
        return "slides, but sliding_window and use_sliding_window say no window";
    const bool rule = self->window > 0 && index >= self->window_from;
    if (!self->family->layer_types && sliding != rule)
        return "is another than this family gives all of its layers";
    return NULL;
}

static void check_layer_types(config_reader *reader, const decoder *self)
{
    static const char key[] = "layer_types";
    const mics_json_value *types = mics_json_at(reader->json, key);
    if (reader->status != MICS_OK || mics_json_type_of(types) == MICS_JSON_NULL)
        return;
    if (mics_json_type_of(types) != MICS_JSON_ARRAY || mics_json_count(types) != self->layers) {
        reader->status = mics_json_fail(reader->json, key, MICS_ERR_INVALID,
                                        "must be an array with one text for each of %lld layers",
                                        (long long)self->layers);
        return;
    }
    for (int64_t i = 0; i < self->layers && reader->status == MICS_OK; i++) {
        const char *wrong = wrong_type(self, mics_json_element(types, (int32_t)i), i);
        if (wrong != NULL)
            reader->status = mics_json_fail(reader->json, key, MICS_ERR_UNSUPPORTED,
                                            "that of layer %lld %s", (long long)i, wrong);
    }
}

static mics_status read_config(config_reader *reader, bool ignore_dropout, decoder *self)
{
    const decoder_family *family = self->family;
    const rope_keys keys = {.theta = "rope_theta", .default_theta = family->theta};
    const int64_t limit = (int64_t)1 << 31;
    self->vocab = config_int(reader, "vocab_size", 2, limit - 1, family->vocab);
    self->hidden = config_int(reader, "hidden_size", 1, 1 << 24, family->hidden);
    self->inner = config_int(reader, "intermediate_size", 1, 1 << 26, family->inner);
    self->layers = config_int(reader, "num_hidden_layers", 1, CONFIG_MAX_LAYERS, family->layers);
    self->positions = config_int(reader, "max_position_embeddings", 1, limit, family->positions);
    self->eps = config_real(reader, "rms_norm_eps", 0, 1, family->eps > 0 ? family->eps : 1e-6);
    self->init_std = config_real(reader, "initializer_range", 0, 100, 0.02);
    self->tied = config_bool(reader, "tie_word_embeddings", false);
    config_require(reader, "hidden_act", "silu|swish");
    self->dropout = config_dropout(reader, "attention_dropout", ignore_dropout);
    read_heads(reader, self);
    read_biases(reader, self);
    read_window(reader, self);
    check_layer_types(reader, self);
    if (family->experts != NULL)
        mixture_read(reader, family->experts, self->layers, &self->mixture);
    config_rope(reader, &keys, self->heads.dim, self->positions, &self->rope);
    return reader->status;
}

// ---- layers ----

// Linear layers of one input, side by side as one.
typedef struct fused {
    const char *name; // as one
    int32_t count;
    const char *modules[3];
    int64_t outputs[3];
    bool bias;
} fused;

// Says that the newest parameter is the rows of these modules of a layer, one after the other.
static void made_of(mics_model *model, const char *layer, const fused *of, const char *kind)
{
    char name[MODULE_BYTES];
    int64_t row = 0;
    for (int32_t i = 0; i < of->count; i++) {
        snprintf(name, sizeof name, "%s.%s.%s", layer, of->modules[i], kind);
        mics_model_add_part(model, name, row, of->outputs[i]);
        row += of->outputs[i];
    }
}

static int32_t fused_linear(mics_model *model, const decoder *self, const char *layer,
                            const fused *of, int32_t in)
{
    char module[MODULE_BYTES];
    int64_t outputs = 0;
    for (int32_t i = 0; i < of->count; i++)
        outputs += of->outputs[i];
    snprintf(module, sizeof module, "%s.%s", layer, of->name);
    const mics_param_ref weight =
        model_matrix(model, module, outputs, self->hidden, self->init_std);
    made_of(model, layer, of, "weight");
    mics_param_ref bias = mics_param_none();
    if (of->bias) {
        bias = model_vector(model, module, "bias", outputs, MICS_INIT_ZEROS);
        made_of(model, layer, of, "bias");
    }
    return mics_op_linear(model, in, weight, bias, true);
}

static int32_t rmsnorm(mics_model *model, const decoder *self, const char *layer, const char *name,
                       int32_t in)
{
    char module[MODULE_BYTES];
    snprintf(module, sizeof module, "%s.%s", layer, name);
    const mics_param_ref weight =
        model_vector(model, module, "weight", self->hidden, MICS_INIT_ONES);
    return mics_op_rmsnorm(model, in, weight, (float)self->eps);
}

static int32_t head_norm(mics_model *model, const decoder *self, const char *layer, int32_t in)
{
    char module[MODULE_BYTES];
    const int64_t dim = self->heads.dim;
    snprintf(module, sizeof module, "%s.self_attn", layer);
    mics_param_ref query = model_vector(model, module, "q_norm.weight", dim, MICS_INIT_ONES);
    mics_param_ref key = model_vector(model, module, "k_norm.weight", dim, MICS_INIT_ONES);
    return mics_op_head_norm(model, in, self->heads, query, key, (float)self->eps);
}

static int32_t attention(mics_model *model, const decoder *self, const char *layer, int32_t in,
                         int64_t window)
{
    const int64_t width = self->heads.query * self->heads.dim;
    const int64_t pairs = self->heads.key_value * self->heads.dim;
    const fused qkv = {"self_attn.qkv_proj",
                       3,
                       {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"},
                       {width, pairs, pairs},
                       self->qkv_bias};
    const mics_rotary_spec rotary = {self->rope.dims, self->rope.frequencies, self->rope.scale};
    int32_t x = fused_linear(model, self, layer, &qkv, in);
    if (self->family->head_norm)
        x = head_norm(model, self, layer, x);
    x = mics_op_rotary(model, x, self->heads, &rotary);
    x = mics_op_attention(model, x, self->heads, window, self->dropout);
    const model_linear_spec out = {width, self->hidden, self->init_std, self->o_bias, true};
    return model_linear(model, layer, "self_attn.o_proj", x, &out);
}

static int32_t mlp(mics_model *model, const decoder *self, const char *layer, int32_t in)
{
    const fused gate_up = {"mlp.gate_up_proj",
                           2,
                           {"mlp.gate_proj", "mlp.up_proj"},
                           {self->inner, self->inner},
                           self->mlp_bias};
    int32_t x = fused_linear(model, self, layer, &gate_up, in);
    x = mics_op_swiglu(model, x);
    const model_linear_spec down = {self->inner, self->hidden, self->init_std, self->mlp_bias,
                                    true};
    return model_linear(model, layer, "mlp.down_proj", x, &down);
}

static void build_layer(mics_model *model, const config_reader *reader, const decoder *self,
                        int64_t index)
{
    char layer[MICS_NAME_BYTES];
    const bool narrower = is_sliding(reader, self, index) && self->window < self->positions;
    const bool experts =
        self->family->experts != NULL && mixture_has_layer(reader, &self->mixture, index);
    snprintf(layer, sizeof layer, "layers.%lld", (long long)index);
    mics_model_unit(model, layer, self->hidden);
    snprintf(layer, sizeof layer, "model.layers.%lld", (long long)index);
    int32_t x = rmsnorm(model, self, layer, "input_layernorm", 0);
    x = attention(model, self, layer, x, narrower ? self->window : 0);
    const int32_t middle = mics_op_add(model, 0, x);
    x = rmsnorm(model, self, layer, "post_attention_layernorm", middle);
    x = experts ? mixture_add(model, &self->mixture, layer, x, self->hidden, self->init_std)
                : mlp(model, self, layer, x);
    mics_model_unit_end(model, mics_op_add(model, middle, x));
}

static void build(mics_model *model, const config_reader *reader, const decoder *self)
{
    mics_model_unit(model, "embed", 0);
    const mics_param_ref tokens =
        model_matrix(model, "model.embed_tokens", self->vocab, self->hidden, self->init_std);
    mics_model_unit_end(model, mics_op_embedding(model, tokens, mics_param_none()));

    for (int64_t layer = 0; layer < self->layers; layer++)
        build_layer(model, reader, self, layer);

    mics_model_unit(model, "head", self->hidden);
    const int32_t x = rmsnorm(model, self, "model", "norm", 0);
    const mics_param_ref head =
        self->tied ? tokens
                   : model_matrix(model, "lm_head", self->vocab, self->hidden, self->init_std);
    mics_op_lm_head(model, x, head);
    mics_model_unit_end(model, -1);
}

mics_status decoder_build(mics_memory *memory, config_reader *reader, const decoder_family *family,
                          bool ignore_dropout, mics_model **model_out)
{
    decoder self = {.family = family};
    MICS_TRY(read_config(reader, ignore_dropout, &self));
    MICS_TRY(mics_model_open(memory,
                             &(mics_model_spec){.architecture = family->architecture,
                                                .vocab = self.vocab,
                                                .positions = self.positions,
                                                .hidden = self.hidden},
                             model_out));
    build(*model_out, reader, &self);
    return MICS_OK;
}
