// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Any decoder by its shapes, for plans: the sizes that its config.json gives under whichever names,
// and the ops that cost most.
//
// Latent attention (DeepSeek-V2, 2024, arXiv:2405.04434) has queries, keys and values made from two
// narrow vectors. Here one chain of two GEMMs has the parameters of both, and heads are as wide as
// its values.
#include "model/builders.h"
#include <stdio.h>
#include <string.h>

enum { MAX_ALIASES = 6, MODULE_BYTES = 2 * MICS_NAME_BYTES };

typedef struct shapes {
    int64_t layers, hidden, vocab, positions, inner;
    mics_heads heads;
    bool gated, tied;
    int64_t experts, chosen, expert_inner, shared_inner, dense_layers;
    int64_t query_rank, pair_rank, rotary_dim, plain_dim, value_dim; // latent attention; 0: none
} shapes;

// ---- configuration ----

typedef const char *aliases[MAX_ALIASES];

static const mics_json_value *find(const mics_json *config, const char *key)
{
    const mics_json_value *root = mics_json_root(config);
    const mics_json_value *value = mics_json_get(root, key);
    return value != NULL ? value : mics_json_get(mics_json_get(root, "text_config"), key);
}

// The first of the names that holds a whole number; `fallback` < 0: one must.
// Products of two of them and some small numbers are far from overflow.
static mics_status read_size(const mics_json *config, const aliases names, int64_t fallback,
                             int64_t *size_out)
{
    static const int64_t max_size = (int64_t)1 << 26;
    for (int i = 0; i < MAX_ALIASES && names[i] != NULL; i++) {
        const mics_json_value *value = find(config, names[i]);
        if (mics_json_type_of(value) != MICS_JSON_INT)
            continue;
        *size_out = mics_json_int(value);
        if (*size_out >= 0 && *size_out <= max_size && (*size_out > 0 || fallback >= 0))
            return MICS_OK;
        return mics_json_fail(config, names[i], MICS_ERR_INVALID, "must be 1 to %lld, not %lld",
                              (long long)max_size, (long long)*size_out);
    }
    *size_out = fallback;
    if (fallback >= 0)
        return MICS_OK;
    return mics_json_fail(config, names[0], MICS_ERR_INVALID,
                          "missing: a model is planned by its sizes");
}

// Absent, or what all layers alike have.
static bool is_neutral(const mics_json_value *value)
{
    switch (mics_json_type_of(value)) {
    case MICS_JSON_NULL:
        return true;
    case MICS_JSON_BOOL:
        return !mics_json_bool(value);
    case MICS_JSON_INT:
        return mics_json_int(value) == 1;
    case MICS_JSON_ARRAY:
        return mics_json_count(value) == 0;
    default:
        return false;
    }
}

static bool is_one_of(const char *name, const char *const *names, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (strcmp(name, names[i]) == 0)
            return true;
    }
    return false;
}

// What gives some layers another shape than the rest, or a model of another kind.
static mics_status refuse_others(const mics_json *config)
{
    static const char *const keys[] = {
        "is_encoder_decoder",  "attn_layer_period", "expert_layer_period",
        "decoder_sparse_step", "moe_layer_freq",    "interleave_moe_layer_step",
        "mlp_only_layers",     "attn_config",       "ffn_config"};
    static const char *const types[] = {"t5", "mt5", "umt5", "jamba", "dbrx"};
    const char *type = mics_json_string(find(config, "model_type"));
    if (type != NULL && is_one_of(type, types, sizeof types / sizeof *types))
        return mics_json_fail(config, "model_type", MICS_ERR_UNSUPPORTED,
                              "%s is no decoder of equal layers, which is all that is planned",
                              type);
    // MPT's two objects hold no sizes.
    const size_t count = sizeof keys / sizeof *keys;
    const size_t checked = type != NULL && strcmp(type, "mpt") == 0 ? count - 2 : count;
    for (size_t i = 0; i < checked; i++) {
        if (!is_neutral(find(config, keys[i])))
            return mics_json_fail(config, keys[i], MICS_ERR_UNSUPPORTED,
                                  "cannot be honoured: planned are decoders of equal layers");
    }
    return MICS_OK;
}

// Families whose LM head is the embedding where the key is missing: Hugging Face's default.
static bool is_tied(const mics_json *config)
{
    static const char *const tied[] = {
        "bert",        "bloom",   "cohere", "cohere2", "distilbert", "falcon",     "electra",
        "gpt_bigcode", "gpt_neo", "mpt",    "opt",     "roberta",    "starcoder2", "xlm-roberta"};
    const mics_json_value *said = find(config, "tie_word_embeddings");
    const char *type = mics_json_string(find(config, "model_type"));
    if (said != NULL || type == NULL)
        return mics_json_bool(said);
    return strncmp(type, "gemma", 5) == 0 || is_one_of(type, tied, sizeof tied / sizeof *tied);
}

// Families whose feed-forward layers have two matrices, not three.
static bool is_gated(const mics_json *config)
{
    static const char *const plain[] = {
        "bert", "bloom",    "codegen", "falcon",  "gpt_bigcode", "gpt_neo",    "gptj",
        "mpt",  "nemotron", "opt",     "phi",     "persimmon",   "roberta",    "starcoder2",
        "gpt2", "gpt_neox", "xlnet",   "electra", "deberta-v2",  "distilbert", "stablelm_epoch"};
    const char *type = mics_json_string(find(config, "model_type"));
    return type == NULL || !is_one_of(type, plain, sizeof plain / sizeof *plain);
}

static mics_status read_heads(const mics_json *config, shapes *s)
{
    static const aliases query = {"num_attention_heads", "n_head", "n_heads", "num_heads"};
    static const aliases pairs = {"num_key_value_heads", "num_kv_heads", "n_head_kv", "n_kv_heads"};
    static const aliases dims = {"head_dim"}, ranks[] = {{"q_lora_rank"}, {"kv_lora_rank"}};
    static const aliases parts[] = {{"qk_rope_head_dim"}, {"qk_nope_head_dim"}, {"v_head_dim"}};
    const bool one = mics_json_bool(find(config, "multi_query"));
    MICS_TRY(read_size(config, query, -1, &s->heads.query));
    MICS_TRY(read_size(config, pairs, one ? 1 : s->heads.query, &s->heads.key_value));
    MICS_TRY(read_size(config, dims, s->hidden / s->heads.query, &s->heads.dim));
    MICS_TRY(read_size(config, ranks[0], 0, &s->query_rank));
    MICS_TRY(read_size(config, ranks[1], 0, &s->pair_rank));
    MICS_TRY(read_size(config, parts[0], 0, &s->rotary_dim));
    MICS_TRY(read_size(config, parts[1], 0, &s->plain_dim));
    MICS_TRY(read_size(config, parts[2], 0, &s->value_dim));
    if (s->heads.key_value < 1 || s->heads.query % s->heads.key_value != 0 || s->heads.dim < 1 ||
        s->heads.dim > CONFIG_MAX_HEAD_DIM)
        return mics_json_fail(config, query[0], MICS_ERR_INVALID,
                              "%lld query heads and %lld of keys and values of %lld elements are "
                              "no attention",
                              (long long)s->heads.query, (long long)s->heads.key_value,
                              (long long)s->heads.dim);
    if (s->pair_rank > 0 && s->value_dim > 0) {
        s->heads.key_value = s->heads.query;
        s->heads.dim = s->value_dim;
    }
    return MICS_OK;
}

static mics_status read_experts(const mics_json *config, shapes *s)
{
    static const aliases experts = {"num_local_experts", "n_routed_experts", "num_experts",
                                    "moe_num_experts"};
    static const aliases chosen = {"num_experts_per_tok",   "moe_top_k",
                                   "num_experts_per_token", "moe_topk",
                                   "top_k_experts",         "num_selected_experts"};
    static const aliases inner = {"moe_intermediate_size"}, dense = {"first_k_dense_replace"};
    static const aliases shared = {"n_shared_experts"};
    static const aliases width = {"shared_expert_intermediate_size"};
    // Llama 4 always has one, and no key for it.
    const char *type = mics_json_string(find(config, "model_type"));
    int64_t shared_experts = type != NULL && strncmp(type, "llama4", 6) == 0 ? 1 : 0;
    MICS_TRY(read_size(config, experts, 0, &s->experts));
    MICS_TRY(read_size(config, chosen, s->experts > 0 ? -1 : 0, &s->chosen));
    MICS_TRY(read_size(config, inner, s->inner, &s->expert_inner));
    MICS_TRY(read_size(config, dense, 0, &s->dense_layers));
    MICS_TRY(read_size(config, shared, shared_experts, &shared_experts));
    MICS_TRY(read_size(config, width, shared_experts * s->expert_inner, &s->shared_inner));
    if (s->chosen > s->experts || s->experts > 1 << 16)
        return mics_json_fail(config, experts[0], MICS_ERR_INVALID,
                              "a token cannot go to %lld of %lld experts", (long long)s->chosen,
                              (long long)s->experts);
    return MICS_OK;
}

static mics_status read_shapes(const mics_json *config, shapes *s)
{
    static const aliases layers = {"num_hidden_layers", "n_layer", "num_layers", "n_layers"};
    static const aliases hidden = {"hidden_size", "n_embd", "d_model"}, vocab = {"vocab_size"};
    static const aliases inner = {"intermediate_size", "n_inner", "ffn_dim", "ffn_hidden_size",
                                  "d_ff"};
    static const aliases positions = {"max_position_embeddings", "n_positions", "max_seq_len",
                                      "seq_length"};
    MICS_TRY(refuse_others(config));
    MICS_TRY(read_size(config, layers, -1, &s->layers));
    MICS_TRY(read_size(config, hidden, -1, &s->hidden));
    MICS_TRY(read_size(config, vocab, -1, &s->vocab));
    MICS_TRY(read_size(config, positions, 4096, &s->positions));
    MICS_TRY(read_size(config, inner, 4 * s->hidden, &s->inner));
    s->gated = is_gated(config);
    s->tied = is_tied(config);
    if (s->layers > CONFIG_MAX_LAYERS)
        return mics_json_fail(config, layers[0], MICS_ERR_INVALID, "%lld layers; at most %d work",
                              (long long)s->layers, CONFIG_MAX_LAYERS);
    MICS_TRY(read_heads(config, s));
    return read_experts(config, s);
}

// ---- ops ----

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

// Inputs of a GEMM that has the parameters of both that follow the narrow vectors.
static int64_t latent_width(const shapes *s)
{
    const int64_t queries = s->query_rank * (s->plain_dim + s->rotary_dim);
    const int64_t pairs = s->pair_rank * (s->plain_dim + s->value_dim);
    const int64_t width = (queries + pairs) / (3 * s->heads.dim);
    return width > 0 ? width : 1;
}

static int32_t heads_of(mics_model *model, const shapes *s, const char *layer, int32_t x)
{
    const int64_t width = mics_heads_width(s->heads), narrow = latent_width(s);
    if (s->pair_rank == 0)
        return linear(model, layer, "attention.qkv", x, s->hidden, width);
    // Without a rank of their own queries are made at once.
    const int64_t queries =
        s->query_rank > 0 ? s->query_rank : s->heads.query * (s->plain_dim + s->rotary_dim);
    const int64_t down = queries + s->pair_rank + s->rotary_dim;
    x = linear(model, layer, "attention.down", x, s->hidden, down);
    x = linear(model, layer, "attention.latent", x, down, narrow);
    return linear(model, layer, "attention.up", x, narrow, width);
}

static int32_t attention(mics_model *model, const shapes *s, const char *layer, int32_t x)
{
    x = heads_of(model, s, layer, x);
    x = mics_op_attention(model, x, s->heads, 0, 0);
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

static int32_t expert_linear(mics_model *model, const shapes *s, const char *layer,
                             const char *name, int32_t in, int64_t inputs, int64_t outputs,
                             bool joins)
{
    char module[MODULE_BYTES];
    snprintf(module, sizeof module, "%s.experts.%s", layer, name);
    const mics_param_ref weight = model_matrix(model, module, s->experts * outputs, inputs, 0.02);
    mics_op op = mics_op_of(MICS_OP_LINEAR, in, weight, mics_param_none());
    op.weight_out_in = true;
    op.experts = (mics_experts){(int32_t)s->experts, (int32_t)s->chosen, joins};
    return mics_model_add_op(model, op);
}

static int32_t experts(mics_model *model, const shapes *s, const char *layer, int32_t in)
{
    const int64_t up = (s->gated ? 2 : 1) * s->expert_inner;
    int32_t x = expert_linear(model, s, layer, "up", in, s->hidden, up, false);
    x = activation(model, s, x);
    x = expert_linear(model, s, layer, "down", x, s->expert_inner, s->hidden, true);
    if (s->shared_inner > 0)
        x = mics_op_add(model, x, mlp(model, s, layer, "shared", in, s->shared_inner));
    return x;
}

static void build_layer(mics_model *model, const shapes *s, int64_t index)
{
    char layer[MICS_NAME_BYTES];
    snprintf(layer, sizeof layer, "layers.%lld", (long long)index);
    mics_model_unit(model, layer, s->hidden);
    int32_t x = attention(model, s, layer, norm(model, layer, "attention_norm", 0, s->hidden));
    const int32_t middle = mics_op_add(model, 0, x);
    x = norm(model, layer, "mlp_norm", middle, s->hidden);
    const bool dense = s->experts == 0 || index < s->dense_layers;
    x = dense ? mlp(model, s, layer, "mlp", x, s->inner) : experts(model, s, layer, x);
    mics_model_unit_end(model, mics_op_add(model, middle, x));
}

static void build(mics_model *model, const shapes *s)
{
    mics_model_unit(model, "embed", 0);
    const mics_param_ref tokens = model_matrix(model, "tokens", s->vocab, s->hidden, 0.02);
    mics_model_unit_end(model, mics_op_embedding(model, tokens, mics_param_none()));
    for (int64_t layer = 0; layer < s->layers; layer++)
        build_layer(model, s, layer);
    mics_model_unit(model, "head", s->hidden);
    const int32_t x = norm(model, "head", "norm", 0, s->hidden);
    mics_op_lm_head(model, x,
                    s->tied ? tokens : model_matrix(model, "lm_head", s->vocab, s->hidden, 0.02));
    mics_model_unit_end(model, -1);
}

mics_status mics_model_from_shapes(mics_memory *memory, const mics_json *config,
                                   mics_model **model_out)
{
    const char *type = mics_json_string(find(config, "model_type"));
    shapes s = {.layers = 0};
    mics_model *model = NULL;
    MICS_TRY(read_shapes(config, &s));
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
