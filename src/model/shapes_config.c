// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// The sizes that a config.json gives, under the names that families have for them, and what of it
// cannot be planned.
#include "base/text.h"
#include "model/shapes.h"
#include <string.h>

enum { MAX_ALIASES = 8, MAX_RATIO = 64 };

typedef const char *aliases[MAX_ALIASES];

// What a list has for each layer: one number, if that is the same for all.
static mics_status read_list(const mics_json *config, const char *name, const mics_json_value *list,
                             const mics_json_value **value_out)
{
    const mics_json_value *first = mics_json_element(list, 0);
    for (int32_t i = 0; i < mics_json_count(list); i++) {
        const mics_json_value *other = mics_json_element(list, i);
        if (mics_json_type_of(other) != MICS_JSON_INT ||
            mics_json_int(other) != mics_json_int(first))
            return mics_json_fail(config, name, MICS_ERR_UNSUPPORTED,
                                  "cannot be honoured: planned are layers of one size");
    }
    *value_out = first;
    return MICS_OK;
}

// The name that the file has, for errors.
static const char *name_said(const mics_json *config, const aliases names)
{
    for (int i = 0; i < MAX_ALIASES && names[i] != NULL; i++) {
        if (mics_json_type_of(shapes_find(config, names[i])) != MICS_JSON_NULL)
            return names[i];
    }
    return names[0];
}

// The first of the names that holds a whole number; `fallback` < 0: one must.
// Products of two of them and some small numbers are far from overflow.
static mics_status read_size(const mics_json *config, const aliases names, int64_t fallback,
                             int64_t *size_out)
{
    static const int64_t max_size = (int64_t)1 << 26;
    for (int i = 0; i < MAX_ALIASES && names[i] != NULL; i++) {
        const mics_json_value *value = shapes_find(config, names[i]);
        if (mics_json_type_of(value) == MICS_JSON_ARRAY)
            MICS_TRY(read_list(config, names[i], value, &value));
        if (mics_json_type_of(value) == MICS_JSON_NULL)
            continue;
        if (mics_json_type_of(value) != MICS_JSON_INT)
            return mics_json_fail(config, names[i], MICS_ERR_INVALID,
                                  "must be a whole number, not %s",
                                  mics_json_type_text(mics_json_type_of(value)));
        *size_out = mics_json_int(value);
        if (*size_out >= 0 && *size_out <= max_size && (*size_out > 0 || fallback >= 0))
            return MICS_OK;
        return mics_json_fail(config, names[i], MICS_ERR_INVALID, "must be 1 to %lld, not %lld",
                              (long long)max_size, (long long)*size_out);
    }
    *size_out = shapes_default(config, names[0], fallback);
    if (*size_out >= 0)
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

static bool is_mpt(const mics_json *config)
{
    return shapes_is(config, "mpt");
}

// What gives some layers another shape than the rest, or a model of another kind.
static mics_status refuse_others(const mics_json *config)
{
    static const char *const keys[] = {
        "is_encoder_decoder",      "attn_layer_period", "expert_layer_period",
        "full_attention_interval", "use_cla",           "hidden_size_per_layer_input",
        "mlp_only_layers",         "attn_config",       "ffn_config"};
    const char *type = shapes_type(config);
    if (shapes_is_other(config))
        return mics_json_fail(
            config, "model_type", MICS_ERR_UNSUPPORTED,
            "%s cannot be planned: planned are encoders and decoders whose layers "
            "all have softmax attention and parameters of their own",
            type);
    const size_t count = sizeof keys / sizeof *keys;
    // MPT's and DBRX's two objects are read.
    const size_t checked = is_mpt(config) || shapes_is(config, "dbrx") ? count - 2 : count;
    for (size_t i = 0; i < checked; i++) {
        if (!is_neutral(shapes_find(config, keys[i])))
            return mics_json_fail(config, keys[i], MICS_ERR_UNSUPPORTED,
                                  "cannot be honoured: planned are encoders and decoders whose "
                                  "layers differ in windows and experts alone");
    }
    return MICS_OK;
}

// 1 in each place of the list is softmax attention, 0 lightning attention (MiniMax, 2025,
// arXiv:2501.08313).
static mics_status refuse_lightning(const mics_json *config)
{
    static const char key[] = "attn_type_list";
    const mics_json_value *list = shapes_find(config, key);
    for (int32_t i = 0; i < mics_json_count(list); i++) {
        if (mics_json_int(mics_json_element(list, i)) != 1)
            return mics_json_fail(config, key, MICS_ERR_UNSUPPORTED,
                                  "layer %d has no softmax attention, which alone is planned",
                                  (int)i);
    }
    return MICS_OK;
}

// ---- windows ----

static bool is_full(const char *type)
{
    return mics_text_is_among(type, "full_attention|attention|global");
}

static bool is_windowed(const char *type)
{
    return mics_text_is_among(type, "sliding_attention|chunked_attention|local");
}

static mics_status check_layer_types(const mics_json *config, const char *key, const shapes *s)
{
    const int32_t count = mics_json_count(s->layer_types);
    bool windowed = false;
    if (count != s->layers)
        return mics_json_fail(config, key, MICS_ERR_INVALID, "has %d layers, and the model %lld",
                              (int)count, (long long)s->layers);
    for (int32_t i = 0; i < count; i++) {
        const char *type = mics_json_string(mics_json_element(s->layer_types, i));
        if (type == NULL || (!is_full(type) && !is_windowed(type)))
            return mics_json_fail(config, key, MICS_ERR_UNSUPPORTED,
                                  "layer %d has %.40s, which is not planned; full, sliding and "
                                  "chunked attention are",
                                  (int)i, type != NULL ? type : "no name");
        windowed = windowed || is_windowed(type);
    }
    if (windowed && s->window == 0)
        return mics_json_fail(config, key, MICS_ERR_INVALID,
                              "some layers have a window, and nothing says how large it is");
    return MICS_OK;
}

// Where a family's key has another meaning, or other layers without a list of them.
static void read_pattern(const mics_json *config, shapes *s)
{
    const char *type = shapes_type(config);
    const mics_json_value *pattern = shapes_find(config, "sliding_window_pattern");
    const mics_json_value *modern = shapes_find(config, "global_attn_every_n_layers");
    const mics_json_value *used = shapes_find(config, "use_sliding_window");
    const bool qwen = type != NULL && strncmp(type, "qwen", 4) == 0;
    if ((used != NULL || qwen) && !mics_json_bool(used))
        s->window = 0;
    s->full_every = shapes_is(config, "gemma2") || shapes_is(config, "gpt_oss") ? 2 : 0;
    if (mics_json_type_of(pattern) == MICS_JSON_INT)
        s->full_every = mics_json_int(pattern);
    s->first_full = s->full_every - 1;
    if (mics_json_type_of(modern) == MICS_JSON_INT) {
        s->full_every = mics_json_int(modern);
        s->first_full = 0;
    }
}

static mics_status read_windows(const mics_json *config, shapes *s)
{
    static const aliases windows = {"sliding_window", "local_attention", "window_size"};
    static const aliases chunk = {"attention_chunk_size"};
    const char *key = "layer_types";
    int64_t chunk_size = 0;
    MICS_TRY(read_size(config, windows, 0, &s->window));
    MICS_TRY(read_size(config, chunk, 0, &chunk_size));
    s->layer_types = shapes_find(config, key);
    if (mics_json_type_of(s->layer_types) != MICS_JSON_ARRAY) {
        key = "attention_layers"; // GPT-Neo's
        s->layer_types = shapes_find(config, key);
    }
    const bool listed = mics_json_type_of(s->layer_types) == MICS_JSON_ARRAY;
    // A token sees half of its chunk on the average.
    if (listed && s->window == 0)
        s->window = (chunk_size + 1) / 2;
    if (listed)
        return check_layer_types(config, key, s);
    s->layer_types = NULL;
    read_pattern(config, s);
    if (s->full_every < 0 || s->full_every > CONFIG_MAX_LAYERS)
        return mics_json_fail(config, windows[0], MICS_ERR_INVALID,
                              "its pattern is no number of layers");
    return MICS_OK;
}

int64_t shapes_window(const shapes *s, int64_t layer)
{
    if (s->layer_types != NULL) {
        const char *type = mics_json_string(mics_json_element(s->layer_types, (int32_t)layer));
        return is_windowed(type) ? s->window : 0;
    }
    return s->full_every > 0 && layer % s->full_every == s->first_full ? 0 : s->window;
}

// ---- heads ----

// MPT's object of attention.
static const char *mpt_attention(const mics_json *config)
{
    return is_mpt(config)
               ? mics_json_string(mics_json_get(shapes_find(config, "attn_config"), "attn_type"))
               : NULL;
}

static bool is_multi_query(const mics_json *config)
{
    const char *type = mpt_attention(config);
    return type != NULL && strcmp(type, "multiquery_attention") == 0;
}

static mics_status read_mpt_heads(const mics_json *config, shapes *s)
{
    const char *type = mpt_attention(config);
    const mics_json_value *pairs = mics_json_get(shapes_find(config, "attn_config"), "kv_n_heads");
    const mics_json_value *ffn = mics_json_get(shapes_find(config, "ffn_config"), "ffn_type");
    const char *name = mics_json_string(ffn);
    if (name != NULL && strcmp(name, "mptmlp") != 0)
        return mics_json_fail(config, "ffn_config", MICS_ERR_UNSUPPORTED,
                              "%.40s is not planned; mptmlp is", name);
    if (mics_json_type_of(pairs) == MICS_JSON_INT)
        s->heads.key_value = mics_json_int(pairs);
    else if (type != NULL && strcmp(type, "grouped_query_attention") == 0)
        return mics_json_fail(config, "attn_config", MICS_ERR_INVALID,
                              "its kv_n_heads is missing: heads of keys and values");
    return MICS_OK;
}

// Falcon's first architecture has one pair of keys and values whatever num_kv_heads says.
static bool is_old_falcon(const mics_json *config)
{
    return shapes_is(config, "falcon") && mics_json_bool(shapes_find(config, "multi_query")) &&
           !mics_json_bool(shapes_find(config, "new_decoder_architecture"));
}

static mics_status read_heads(const mics_json *config, shapes *s)
{
    static const aliases query = {"num_attention_heads", "n_head", "n_heads", "num_heads",
                                  "attention_heads"};
    static const aliases pairs = {"num_key_value_heads", "num_kv_heads", "n_head_kv",
                                  "n_kv_heads",          "kv_n_heads",   "multi_query_group_num"};
    static const aliases dims = {"head_dim", "kv_channels"},
                         ranks[] = {{"q_lora_rank"}, {"kv_lora_rank"}};
    static const aliases parts[] = {{"qk_rope_head_dim"}, {"qk_nope_head_dim"}, {"v_head_dim"}};
    const bool one = mics_json_bool(shapes_find(config, "multi_query")) || is_multi_query(config);
    MICS_TRY(read_size(config, query, -1, &s->heads.query));
    MICS_TRY(read_size(config, pairs, one ? 1 : s->heads.query, &s->heads.key_value));
    if (is_old_falcon(config))
        s->heads.key_value = 1;
    if (is_mpt(config))
        MICS_TRY(read_mpt_heads(config, s));
    MICS_TRY(read_size(config, dims, s->hidden / s->heads.query, &s->heads.dim));
    MICS_TRY(read_size(config, ranks[0], 0, &s->query_rank));
    MICS_TRY(read_size(config, ranks[1], 0, &s->pair_rank));
    MICS_TRY(read_size(config, parts[0], 0, &s->rotary_dim));
    MICS_TRY(read_size(config, parts[1], 0, &s->plain_dim));
    MICS_TRY(read_size(config, parts[2], s->pair_rank > 0 ? s->heads.dim : 0, &s->value_dim));
    if (s->heads.key_value < 1 || s->heads.query % s->heads.key_value != 0 || s->heads.dim < 1 ||
        s->heads.dim > CONFIG_MAX_HEAD_DIM)
        return mics_json_fail(config, name_said(config, query), MICS_ERR_INVALID,
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

// A token goes to some of how many?
static mics_status refuse_chosen(const mics_json *config, const aliases names)
{
    int64_t chosen = 0;
    MICS_TRY(read_size(config, names, 0, &chosen));
    if (chosen <= 1)
        return MICS_OK;
    return mics_json_fail(config, name_said(config, names), MICS_ERR_INVALID,
                          "a token cannot go to %lld of no experts", (long long)chosen);
}

// A list of which layers have experts: 0 and 1, or names.
static mics_status read_expert_list(const mics_json *config, shapes *s)
{
    static const char *const keys[] = {"mlp_layer_types", "moe_layer_freq"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        const mics_json_value *list = shapes_find(config, keys[i]);
        if (mics_json_type_of(list) != MICS_JSON_ARRAY)
            continue;
        s->expert_list = list;
        if (mics_json_count(list) != s->layers)
            return mics_json_fail(config, keys[i], MICS_ERR_INVALID,
                                  "has %d layers, and the model %lld", (int)mics_json_count(list),
                                  (long long)s->layers);
    }
    return MICS_OK;
}

static bool is_listed(const mics_json_value *list, int64_t layer)
{
    const mics_json_value *value = mics_json_element(list, (int32_t)layer);
    const char *name = mics_json_string(value);
    return name != NULL ? strcmp(name, "dense") != 0 : mics_json_int(value) != 0;
}

// Which layers have experts, and how wide the others are.
static mics_status read_dense_layers(const mics_json *config, shapes *s)
{
    static const aliases first = {"first_k_dense_replace", "moe_layer_num_skipped",
                                  "moe_layer_start_index", "num_dense_layers"};
    // Every so many-th layer has them, counted from the one after as many; DeepSeek's from the first.
    static const aliases every = {"interleave_moe_layer_step", "decoder_sparse_step",
                                  "moe_layer_interval"};
    static const aliases from_first = {"moe_layer_freq"}, inner = {"intermediate_size_mlp"};
    int64_t from = 1;
    MICS_TRY(read_expert_list(config, s));
    MICS_TRY(read_size(config, first, 0, &s->dense_layers));
    MICS_TRY(read_size(config, every, 1, &s->experts_every));
    if (s->expert_list == NULL)
        MICS_TRY(read_size(config, from_first, 1, &from));
    MICS_TRY(read_size(config, inner, s->inner, &s->inner));
    if (s->experts_every < 1 || from < 1)
        return mics_json_fail(config, from < 1 ? from_first[0] : every[0], MICS_ERR_INVALID,
                              "must be at least 1");
    s->first_experts = s->experts_every - 1;
    if (from > 1) {
        s->experts_every = from;
        s->first_experts = 0;
    }
    return MICS_OK;
}

bool shapes_has_experts(const shapes *s, int64_t layer)
{
    if (s->experts == 0 || s->expert_list != NULL)
        return s->experts > 0 && is_listed(s->expert_list, layer);
    return layer >= s->dense_layers && layer % s->experts_every == s->first_experts;
}

static mics_status read_experts(const mics_json *config, shapes *s)
{
    static const aliases experts = {"num_local_experts", "n_routed_experts", "num_experts",
                                    "moe_num_experts"};
    static const aliases chosen = {
        "num_experts_per_tok",  "moe_top_k", "num_experts_per_token", "moe_topk", "top_k_experts",
        "num_selected_experts", "moe_k"};
    static const aliases inner = {"moe_intermediate_size"};
    static const aliases shared = {"n_shared_experts", "num_shared_expert", "num_shared_experts",
                                   "moe_num_shared_experts"};
    static const aliases width = {"shared_expert_intermediate_size", "shared_intermediate_size"};
    const mics_json_value *mixed = shapes_find(config, "use_mixed_mlp_moe"); // HunYuan's
    // Llama 4 always has one, and no key for it.
    const bool llama4 = shapes_is(config, "llama4") || shapes_is(config, "llama4_text");
    int64_t shared_experts = llama4 ? 1 : 0;
    MICS_TRY(read_size(config, experts, 0, &s->experts));
    if (s->experts == 1) // dense models of families that have experts
        s->experts = 0;
    if (s->experts == 0)
        return refuse_chosen(config, chosen);
    MICS_TRY(read_size(config, chosen, -1, &s->chosen));
    MICS_TRY(read_size(config, inner, s->inner, &s->expert_inner));
    MICS_TRY(read_dense_layers(config, s));
    MICS_TRY(read_size(config, shared, shared_experts, &shared_experts));
    if (mixed != NULL && !mics_json_bool(mixed))
        shared_experts = 0;
    MICS_TRY(read_size(config, width, shared_experts * s->expert_inner, &s->shared_inner));
    if (s->chosen > s->experts || s->experts > 1 << 16)
        return mics_json_fail(config, name_said(config, experts), MICS_ERR_INVALID,
                              "a token cannot go to %lld of %lld experts", (long long)s->chosen,
                              (long long)s->experts);
    return MICS_OK;
}

// ELECTRA and OPT may have embeddings of another width, with a projection.
static mics_status refuse_factors(const mics_json *config, const shapes *s)
{
    static const char *const keys[] = {"embedding_size", "word_embed_proj_dim"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        const mics_json_value *value = shapes_find(config, keys[i]);
        if (mics_json_type_of(value) == MICS_JSON_INT && mics_json_int(value) != s->hidden)
            return mics_json_fail(config, keys[i], MICS_ERR_UNSUPPORTED,
                                  "embeddings of another width than hidden_size are not planned");
    }
    return MICS_OK;
}

// RoBERTa's positions begin behind the row of its padding token.
static mics_status read_padding(const mics_json *config, shapes *s)
{
    static const aliases padding = {"pad_token_id"};
    int64_t row = 0;
    if (!shapes_pads_positions(config))
        return MICS_OK;
    MICS_TRY(read_size(config, padding, 1, &row));
    s->first_position = row + 1;
    s->positions -= s->first_position;
    if (s->positions > 0)
        return MICS_OK;
    return mics_json_fail(config, padding[0], MICS_ERR_INVALID,
                          "%lld leaves no positions behind its row", (long long)row);
}

mics_status shapes_read(const mics_json *config, shapes *s)
{
    static const aliases layers = {"num_hidden_layers", "n_layer", "num_layers", "n_layers"};
    static const aliases hidden = {"hidden_size", "n_embd", "d_model", "dim"},
                         vocab = {"vocab_size", "padded_vocab_size"};
    static const aliases inner = {"intermediate_size", "n_inner", "ffn_dim",
                                  "ffn_hidden_size",   "d_ff",    "hidden_dim"};
    static const aliases positions = {"max_position_embeddings", "n_positions", "max_seq_len",
                                      "seq_length"};
    MICS_TRY(refuse_others(config));
    MICS_TRY(read_size(config, layers, -1, &s->layers));
    MICS_TRY(read_size(config, hidden, -1, &s->hidden));
    MICS_TRY(read_size(config, vocab, -1, &s->vocab));
    MICS_TRY(read_size(config, positions, 4096, &s->positions));
    MICS_TRY(read_padding(config, s));
    static const aliases ratio = {"expansion_ratio"}; // MPT's
    int64_t inners = 4;
    MICS_TRY(refuse_lightning(config));
    MICS_TRY(read_size(config, ratio, inners, &inners));
    MICS_TRY(read_size(config, inner, 0, &s->inner));
    if (s->inner == 0)
        s->inner = inners * s->hidden;
    if (inners > MAX_RATIO)
        return mics_json_fail(config, ratio[0], MICS_ERR_INVALID, "must be 1 to %d", MAX_RATIO);
    s->gated = shapes_is_gated(config);
    if (shapes_is(config, "qwen")) // its first version counts both of the gated MLP's matrices
        s->inner /= 2;
    s->tied = shapes_is_tied(config);
    s->both_ways = shapes_is_encoder(config);
    s->learned_positions = shapes_has_positions(config);
    MICS_TRY(refuse_factors(config, s));
    MICS_TRY(read_windows(config, s));
    if (s->layers > CONFIG_MAX_LAYERS)
        return mics_json_fail(config, layers[0], MICS_ERR_INVALID, "%lld layers; at most %d work",
                              (long long)s->layers, CONFIG_MAX_LAYERS);
    MICS_TRY(read_heads(config, s));
    return read_experts(config, s);
}
