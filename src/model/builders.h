// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// One builder a family; from_config.c chooses by model_type. Private to this module.
#pragma once

#include "base/json.h"
#include "mics/model.h"

// What every builder reads from a Hugging Face configuration; errors name file, line and key.
typedef struct config_reader {
    const mics_json *json;
    mics_status status; // first failure; later reads do nothing
} config_reader;

/* An integer within [min, max]; `fallback` when absent, or an error when fallback < min. */
int64_t config_int(config_reader *reader, const char *key, int64_t min, int64_t max,
                   int64_t fallback);
double config_real(config_reader *reader, const char *key, double min, double max, double fallback);
bool config_bool(config_reader *reader, const char *key, bool fallback);
/* The same under either of two names, of which the second is an alias; where both are there they
 * must be the same. */
int64_t config_int_of(config_reader *reader, const char *const keys[2], int64_t min, int64_t max);
/* Fails unless the key is absent or holds one of the texts, which are separated by '|'. */
void config_require(config_reader *reader, const char *key, const char *texts);

/* Whether the key is there, as null or anything else; and whether it is not null. */
bool config_has(config_reader *reader, const char *key);
bool config_is_said(config_reader *reader, const char *key);
/* A probability of dropout, from 0 to below 1; 0 where the caller trains without it. */
float config_dropout(config_reader *reader, const char *key, bool ignore_dropout);

// ---- heads and rotary embeddings ----

// Far beyond any model; a schedule is planned unit by unit.
enum { CONFIG_MAX_HEAD_DIM = 1024, CONFIG_MAX_LAYERS = 10000 };

// Keys that families spell differently, or that some do not have.
typedef struct rope_keys {
    const char *theta;    // of the base, beside the object
    const char *fraction; // of a head that turns, beside the object; NULL: all of it turns
    double default_fraction;
    double default_theta; // 0: 10000
} rope_keys;

typedef struct model_rope {
    int64_t dims; // of a head that turn
    float frequencies[CONFIG_MAX_HEAD_DIM / 2], scale;
} model_rope;

/* Rotary embeddings, from rope_parameters (transformers 5) or rope_scaling and the keys beside it
 * (4): types default, linear, dynamic, yarn and llama3, computed in fp32 as transformers does.
 *
 * Needs:   2 <= head_dim <= CONFIG_MAX_HEAD_DIM; positions >= 1.
 */
void config_rope(config_reader *reader, const rope_keys *keys, int64_t head_dim, int64_t positions,
                 model_rope *rope_out);

/* Fails unless the key-value heads divide the query heads, and a head has an even number of
 * elements.
 */
void config_check_heads(config_reader *reader, mics_heads heads);

// ---- modules of models ----

/* Adds "MODULE.NAME", a vector that does not decay. */
mics_param_ref model_vector(mics_model *model, const char *module, const char *name, int64_t elems,
                            mics_init_kind init);
/* Adds "MODULE.weight", a matrix of normal random numbers that decays. */
mics_param_ref model_matrix(mics_model *model, const char *module, int64_t rows, int64_t cols,
                            double std);
/* Adds a LayerNorm "LAYER.NAME" with weight and bias. */
int32_t model_layernorm(mics_model *model, const char *layer, const char *name, int32_t in,
                        int64_t width, double eps);

/* Adds dropout where it is not 0; else gives `in`. */
int32_t model_dropout(mics_model *model, int32_t in, float dropout);

// A linear layer "LAYER.NAME".
typedef struct model_linear_spec {
    int64_t inputs, outputs;
    double std;
    bool bias, weight_out_in;
} model_linear_spec;

int32_t model_linear(mics_model *model, const char *layer, const char *name, int32_t in,
                     const model_linear_spec *spec);

// The families, X(model_type, class in transformers, key of the number of layers):
// build_<model_type> is the builder.
#define MODEL_FAMILIES(X)                                                                          \
    X(gpt2, "GPT2LMHeadModel", "n_layer")                                                          \
    X(llama, "LlamaForCausalLM", "num_hidden_layers")                                              \
    X(mistral, "MistralForCausalLM", "num_hidden_layers")                                          \
    X(qwen2, "Qwen2ForCausalLM", "num_hidden_layers")                                              \
    X(qwen3, "Qwen3ForCausalLM", "num_hidden_layers")                                              \
    X(mixtral, "MixtralForCausalLM", "num_hidden_layers")                                          \
    X(qwen2_moe, "Qwen2MoeForCausalLM", "num_hidden_layers")                                       \
    X(qwen3_moe, "Qwen3MoeForCausalLM", "num_hidden_layers")                                       \
    X(gpt_neox, "GPTNeoXForCausalLM", "num_hidden_layers")                                         \
    X(bert, "BertForMaskedLM", "num_hidden_layers")                                                \
    X(roberta, "RobertaForMaskedLM", "num_hidden_layers")

/* Each builds a model, not finished yet. Owns: *model_out is the caller's, also after a failure;
 * NULL where it was not opened.
 */
#define MODEL_DECLARE_(type, class_name, layers_key)                                               \
    mics_status build_##type(mics_memory *memory, config_reader *reader, bool ignore_dropout,      \
                             mics_model **model_out);
MODEL_FAMILIES(MODEL_DECLARE_)
#undef MODEL_DECLARE_
