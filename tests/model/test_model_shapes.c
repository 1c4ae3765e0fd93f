// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Models of other families by their shapes: as many parameters, and FLOPs, as published.
#include "base/capture.h"
#include "base/json.h"
#include "mics/model.h"
#include "model/from_config.h"
#include "test.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

static mics_memory *memory;
static capture seen;

static mics_status build(const char *text, mics_model **model_out)
{
    mics_json *json = NULL;
    ASSERT_OK(mics_json_parse(memory, "config.json", text, strlen(text), &json));
    const mics_status status = mics_model_from_shapes(memory, json, model_out);
    mics_json_close(json);
    return status;
}

// Sizes as the families' config.json on Hugging Face give them; billions of parameters as the model
// cards have them, all, and those that a token meets. Of latent attention one in a hundred differs.
static const struct {
    const char *text;
    double billions, active;
} published[] = {
    {"{\"model_type\": \"mixtral\", \"hidden_size\": 4096, \"intermediate_size\": 14336, "
     "\"num_attention_heads\": 32, \"num_key_value_heads\": 8, \"num_hidden_layers\": 32, "
     "\"num_local_experts\": 8, \"num_experts_per_tok\": 2, \"vocab_size\": 32000}",
     46.7, 12.9},
    {"{\"model_type\": \"deepseek_v3\", \"hidden_size\": 7168, \"intermediate_size\": 18432, "
     "\"moe_intermediate_size\": 2048, \"num_attention_heads\": 128, \"num_hidden_layers\": 61, "
     "\"n_routed_experts\": 256, \"num_experts_per_tok\": 8, \"n_shared_experts\": 1, "
     "\"first_k_dense_replace\": 3, \"q_lora_rank\": 1536, \"kv_lora_rank\": 512, "
     "\"qk_nope_head_dim\": 128, \"qk_rope_head_dim\": 64, \"v_head_dim\": 128, "
     "\"vocab_size\": 129280}",
     671, 37.5},
    {"{\"model_type\": \"qwen3_moe\", \"hidden_size\": 2048, \"intermediate_size\": 6144, "
     "\"moe_intermediate_size\": 768, \"num_attention_heads\": 32, \"num_key_value_heads\": 4, "
     "\"head_dim\": 128, \"num_hidden_layers\": 48, \"num_experts\": 128, "
     "\"num_experts_per_tok\": 8, \"vocab_size\": 151936}",
     30.5, 3.3},
    {"{\"model_type\": \"gemma2\", \"hidden_size\": 3584, \"intermediate_size\": 14336, "
     "\"num_attention_heads\": 16, \"num_key_value_heads\": 8, \"head_dim\": 256, "
     "\"num_hidden_layers\": 42, \"vocab_size\": 256000}",
     9.24, 9.24},
    {"{\"model_type\": \"falcon\", \"hidden_size\": 4544, \"num_attention_heads\": 71, "
     "\"multi_query\": true, \"num_hidden_layers\": 32, \"vocab_size\": 65024}",
     6.92, 6.92},
    {"{\"model_type\": \"falcon\", \"hidden_size\": 4544, \"num_attention_heads\": 71, "
     "\"multi_query\": true, \"num_kv_heads\": 71, \"new_decoder_architecture\": false, "
     "\"num_hidden_layers\": 32, \"vocab_size\": 65024}",
     6.92, 6.92},
    {"{\"model_type\": \"qwen\", \"hidden_size\": 4096, \"intermediate_size\": 22016, "
     "\"num_attention_heads\": 32, \"num_hidden_layers\": 32, \"vocab_size\": 151936, "
     "\"tie_word_embeddings\": false}",
     7.72, 7.72},
    {"{\"model_type\": \"bloom\", \"hidden_size\": 4096, \"n_head\": 32, \"n_layer\": 30, "
     "\"vocab_size\": 250880}",
     7.07, 7.07},
    {"{\"model_type\": \"mpt\", \"d_model\": 4096, \"n_heads\": 32, \"n_layers\": 32, "
     "\"attn_config\": {\"alibi\": true}, \"vocab_size\": 50432}",
     6.65, 6.65},
    {"{\"model_type\": \"grok-1\", \"hidden_size\": 6144, \"intermediate_size\": 32768, "
     "\"num_attention_heads\": 48, \"num_key_value_heads\": 8, \"num_hidden_layers\": 64, "
     "\"num_experts\": 8, \"num_selected_experts\": 2, \"vocab_size\": 131072, "
     "\"tie_word_embeddings\": true}",
     314, 84.6},
    // Scout's language model: the card's 109 billion have a vision encoder.
    {"{\"model_type\": \"llama4\", \"text_config\": {\"hidden_size\": 5120, "
     "\"intermediate_size\": 8192, \"num_attention_heads\": 40, \"num_key_value_heads\": 8, "
     "\"head_dim\": 128, \"num_hidden_layers\": 48, \"num_local_experts\": 16, "
     "\"num_experts_per_tok\": 1, \"interleave_moe_layer_step\": 1, \"vocab_size\": 202048}}",
     107.8, 17.2},
    {"{\"model_type\": \"bert\", \"hidden_size\": 768, \"intermediate_size\": 3072, "
     "\"num_attention_heads\": 12, \"num_hidden_layers\": 12, \"max_position_embeddings\": 512, "
     "\"vocab_size\": 30522}",
     0.1095, 0.1095},
    {"{\"model_type\": \"hunyuan_v1_moe\", \"hidden_size\": 4096, \"intermediate_size\": 3072, "
     "\"num_attention_heads\": 32, \"num_key_value_heads\": 8, \"head_dim\": 128, "
     "\"num_hidden_layers\": 32, \"num_experts\": 64, \"moe_topk\": [8, 8], "
     "\"moe_intermediate_size\": [3072, 3072], \"num_shared_expert\": [1, 1], "
     "\"use_mixed_mlp_moe\": true, \"tie_word_embeddings\": true, \"vocab_size\": 128167}",
     80.4, 13},
    {"{\"model_type\": \"xglm\", \"activation_function\": \"gelu\", \"attention_heads\": 16, "
     "\"d_model\": 1024, \"ffn_dim\": 4096, \"num_layers\": 24, \"vocab_size\": 256008}",
     0.5645, 0.5645},
};

static void test_published(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof published / sizeof *published; i++) {
        mics_model *model = NULL;
        ASSERT_OK(build(published[i].text, &model));
        const double billions = (double)mics_model_param_count(model) * 1e-9;
        if (fabs(billions / published[i].billions - 1) > 0.01)
            fail_msg("%s: %.4g billion parameters, not %.4g", model->architecture, billions,
                     published[i].billions);
        // Of one token alone attention costs next to nothing: 6 FLOPs a parameter that it meets,
        // without the table that is looked up, which a tied head meets again.
        const double met = mics_model_flops_per_token(model, 1) / 6 * 1e-9;
        const double table = model->tied ? 0 : (double)model->vocab * (double)model->hidden * 1e-9;
        if (fabs((met + table) / published[i].active - 1) > 0.025)
            fail_msg("%s: a token meets %.4g billion, not %.4g", model->architecture, met + table,
                     published[i].active);
        mics_model_close(model);
    }
}

// As many parameters as transformers' own models have (tools/make_shapes_golden.py), within 0.15 %:
// biases and norms' gains of some families are left out.
static void test_counted(void **state)
{
    (void)state;
    static const char *const names[] = {
        "apertus-8b",       "arcee-4b",        "bert-large",
        "bloom-7b1",        "command-r",       "dbrx",
        "deepseek-v2-lite", "deepseek-v3",     "distilbert",
        "falcon-40b",       "falcon-7b",       "gemma-2-9b",
        "gemma-3-1b",       "gemma-3-27b",     "glm-4.5-air",
        "gpt-oss-120b",     "gpt-oss-20b",     "kimi-k2",
        "llama-4-maverick", "llama-4-scout",   "minicpm3-4b",
        "mixtral-8x7b",     "modernbert-base", "olmo-2-7b",
        "opt-6.7b",         "phi-2",           "phi-3-mini",
        "qwen3-30b-a3b",    "starcoder2-7b",   "xlm-roberta-large",
    };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char path[256];
        mics_json *json = NULL;
        mics_model *model = NULL;
        snprintf(path, sizeof path, "%s/shapes/%s.json", MICS_TEST_DATA, names[i]);
        ASSERT_OK(mics_json_load(memory, path, 4096, &json));
        const double counted = (double)mics_json_int(mics_json_at(json, "counted"));
        ASSERT_OK(mics_model_from_shapes(memory, json, &model));
        const double params = (double)mics_model_param_count(model);
        if (counted < 1 || fabs(params / counted - 1) > 0.0015)
            fail_msg("%s: %.6g parameters, not %.6g", names[i], params, counted);
        mics_model_close(model);
        mics_json_close(json);
    }
}

// What stands below text_config counts where nothing stands above.
static void test_nested(void **state)
{
    (void)state;
    mics_model *model = NULL;
    ASSERT_OK(build("{\"model_type\": \"two\", \"text_config\": {\"hidden_size\": 64, "
                    "\"num_attention_heads\": 4, \"num_hidden_layers\": 2, \"vocab_size\": 100}}",
                    &model));
    assert_string_equal(model->architecture, "two");
    assert_int_equal(model->unit_count, 4);
    assert_int_equal(model->hidden, 64);
    mics_model_close(model);
}

#define SMALL                                                                                      \
    "\"hidden_size\": 64, \"num_attention_heads\": 4, \"num_hidden_layers\": 2, \"vocab_size\": 9"

// A family that is not known is said to be taken for a decoder; within text_config it may be known.
static void test_guess(void **state)
{
    (void)state;
    static const struct {
        const char *text, *taken;
    } cases[] = {
        {"{\"model_type\": \"novel\", " SMALL "}",
         "gated feed-forward layers of 256, and an LM head"},
        {"{\"model_type\": \"novel\", " SMALL ", \"hidden_act\": \"gelu\", \"num_experts\": 4, "
         "\"num_experts_per_tok\": 2, \"tie_word_embeddings\": true}",
         "plain feed-forward layers of 256 or 4 experts, and the embedding as its LM head"},
        {"{\"model_type\": \"novel\", \"text_config\": {\"model_type\": \"qwen3\", " SMALL "}}",
         NULL},
        {"{\"model_type\": \"deepseek_v3\", " SMALL "}", NULL},
        {"{\"model_type\": \"modernbert\", " SMALL "}", NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        mics_json *json = NULL;
        char text[256];
        ASSERT_OK(
            mics_json_parse(memory, "config.json", cases[i].text, strlen(cases[i].text), &json));
        assert_true(mics_model_is_guess(json, text, sizeof text) == (cases[i].taken != NULL));
        if (cases[i].taken != NULL)
            assert_non_null(strstr(text, cases[i].taken));
        else
            assert_string_equal(text, "");
        mics_json_close(json);
    }
}

static void test_refused(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "{}",
        "{\"hidden_size\": 64}",
        "{\"hidden_size\": 64, \"num_attention_heads\": 0, \"num_hidden_layers\": 2}",
        "{" SMALL ", \"num_key_value_heads\": 3}",
        "{" SMALL ", \"head_dim\": 1000000}",
        "{" SMALL ", \"num_experts\": 4, \"num_experts_per_tok\": 5}",
        "{" SMALL ", \"num_experts\": 4}",
        "{" SMALL ", \"num_experts\": 4, \"experts_of_a_token\": 2}",
        "{" SMALL ", \"num_experts_per_tok\": 2}",
        "{" SMALL ", \"intermediate_size\": 99999999999}",
        "{" SMALL ", \"intermediate_size\": -1}",
        "{" SMALL ", \"num_key_value_heads\": \"2\"}",
        "{" SMALL ", \"layer_types\": [\"full_attention\"]}",
        "{" SMALL ", \"layer_types\": [\"full_attention\", \"sliding_attention\"]}",
        "{" SMALL ", \"expansion_ratio\": 100}",
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        mics_model *model = NULL;
        ASSERT_STATUS(MICS_ERR_INVALID, build(bad[i], &model));
        assert_null(model);
    }
}

// Errors have the name that the file has.
static void test_names_in_errors(void **state)
{
    (void)state;
    static const struct {
        const char *text, *said;
    } named[] = {
        {"{" SMALL ", \"n_routed_experts\": 4, \"moe_top_k\": 5}",
         "n_routed_experts: a token cannot go to 5 of 4 experts"},
        {"{" SMALL ", \"moe_top_k\": 5}", "moe_top_k: a token cannot go to 5 of no experts"},
    };
    for (size_t i = 0; i < sizeof named / sizeof *named; i++) {
        mics_model *model = NULL;
        capture_begin(&seen);
        const mics_status status = build(named[i].text, &model);
        capture_end();
        assert_int_equal(status, MICS_ERR_INVALID);
        ASSERT_SAID(&seen, named[i].said);
    }
}

// What is not read and gives another model is refused, by its name; neutral values are not.
static void test_other_models(void **state)
{
    (void)state;
    static const struct {
        const char *key, *refused, *neutral;
    } others[] = {
        {"is_encoder_decoder", "true", "false"},
        {"attn_layer_period", "8", "null"},
        {"expert_layer_period", "2", "1"},
        {"hidden_size_per_layer_input", "256", "null"},
        {"mlp_only_layers", "[0]", "[]"},
        {"attn_config", "{\"kv_n_heads\": 8}", "null"},
        {"ffn_config", "{\"moe_num_experts\": 16}", "null"},
        {"model_type", "\"t5\"", "\"opt\""},
        {"model_type", "\"jamba\"", "\"gemma\""},
        {"model_type", "\"minimax\"", "\"minimax_m2\""},
        {"model_type", "\"albert\"", "\"roberta\""},
        {"attn_type_list", "[1, 0]", "[1, 1]"},
        {"layer_types", "[\"full_attention\", \"linear_attention\"]",
         "[\"full_attention\", \"full_attention\"]"},
        {"full_attention_interval", "4", "1"},
        {"use_cla", "true", "false"},
        {"num_key_value_heads", "[4, 2]", "[2, 2]"},
        {"intermediate_size", "[128, 256]", "[128, 128]"},
        {"embedding_size", "32", "64"},
    };
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        char text[256], said[64];
        mics_model *model = NULL;
        snprintf(text, sizeof text, "{" SMALL ", \"%s\": %s}", others[i].key, others[i].refused);
        snprintf(said, sizeof said, "config.json:1: %s: ", others[i].key);
        capture_begin(&seen);
        ASSERT_STATUS(MICS_ERR_UNSUPPORTED, build(text, &model));
        capture_end();
        assert_null(model);
        ASSERT_SAID(&seen, said);
        snprintf(text, sizeof text, "{" SMALL ", \"%s\": %s}", others[i].key, others[i].neutral);
        ASSERT_OK(build(text, &model));
        mics_model_close(model);
    }
}

// FLOPs of a token in sequences of so many, of SMALL with more keys.
static double flops_of(const char *more, int64_t length)
{
    char text[512];
    mics_model *model = NULL;
    snprintf(text, sizeof text, "{" SMALL "%s}", more);
    ASSERT_OK(build(text, &model));
    const double flops = mics_model_flops_per_token(model, length);
    mics_model_close(model);
    return flops;
}

// Of causal attention 6 T C a layer, C = 64, two layers; a window of W sees W (2 T - W) / T.
static void test_windows(void **state)
{
    (void)state;
    static const double T = 1000, W = 100, C = 64;
    const double all = 6 * T * C, part = 6 * C * W * (2 * T - W) / T;
    const double full = flops_of("", (int64_t)T), rest = full - 2 * all;
    static const struct {
        const char *more;
        int windowed; // of the two layers
    } cases[] = {
        {", \"model_type\": \"mixtral\", \"sliding_window\": 100", 2},
        {", \"model_type\": \"gemma2\", \"sliding_window\": 100, \"head_dim\": 16, "
         "\"hidden_act\": \"silu\", \"tie_word_embeddings\": false",
         1},
        {", \"sliding_window\": 100, \"sliding_window_pattern\": 6", 2},
        {", \"sliding_window\": 100, \"use_sliding_window\": false", 0},
        {", \"model_type\": \"qwen2_moe\", \"sliding_window\": 100", 0},
        {", \"sliding_window\": 100, \"layer_types\": [\"full_attention\", \"sliding_attention\"]",
         1},
        {", \"attention_chunk_size\": 199, \"layer_types\": [\"chunked_attention\", "
         "\"full_attention\"]",
         1},
        {", \"window_size\": 100, \"attention_layers\": [\"global\", \"local\"]", 1},
        {", \"sliding_window\": 2000", 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const int windowed = cases[i].windowed;
        const double expected = rest + windowed * part + (2 - windowed) * all;
        if (fabs(flops_of(cases[i].more, (int64_t)T) / expected - 1) > 1e-9)
            fail_msg("%s: not %d of 2 layers have a window", cases[i].more, windowed);
    }
}

// An encoder's tokens see all: twice as many as a decoder's. As a decoder it is causal, and its head
// has no transform.
static void test_encoders(void **state)
{
    (void)state;
    const char *decoder = ", \"model_type\": \"bert\", \"is_decoder\": true";
    const double more = flops_of(", \"model_type\": \"bert\"", 1000) - flops_of(decoder, 1000);
    assert_true(fabs(more / (2 * 6.0 * 1000 * 64 + 6.0 * 64 * 64) - 1) < 1e-9);
}

static int64_t params_of(const char *text)
{
    mics_model *model = NULL;
    ASSERT_OK(build(text, &model));
    const int64_t count = mics_model_param_count(model);
    mics_model_close(model);
    return count;
}

#define MPT                                                                                        \
    "{\"model_type\": \"mpt\", \"d_model\": 64, \"n_heads\": 4, \"n_layers\": 2, \"vocab_size\": " \
    "9"

// Heads and inner size of MPT stand in objects of their own; each head of keys and values less is
// 2 x 64 x 16 parameters of a layer less.
static void test_mpt(void **state)
{
    (void)state;
    const int64_t all = params_of(MPT "}");
    mics_model *model = NULL;
    assert_int_equal(all - params_of(MPT ", \"attn_config\": {\"attn_type\": "
                                         "\"grouped_query_attention\", \"kv_n_heads\": 2}}"),
                     2 * 2 * 2 * 64 * 16);
    assert_int_equal(
        all - params_of(MPT ", \"attn_config\": {\"attn_type\": \"multiquery_attention\"}}"),
        2 * 3 * 2 * 64 * 16);
    assert_int_equal(params_of(MPT ", \"expansion_ratio\": 6}") - all, 2 * 2 * 2 * 64 * 64);
    ASSERT_STATUS(
        MICS_ERR_INVALID,
        build(MPT ", \"attn_config\": {\"attn_type\": \"grouped_query_attention\"}}", &model));
    ASSERT_STATUS(MICS_ERR_UNSUPPORTED,
                  build(MPT ", \"ffn_config\": {\"ffn_type\": \"mptglu\"}}", &model));
    assert_null(model);
}

// Shared experts of a size of their own; none where the family's switch is off.
static void test_shared_experts(void **state)
{
    (void)state;
#define ROUTED                                                                                     \
    "{" SMALL ", \"intermediate_size\": 32, \"num_local_experts\": 4, \"num_experts_per_tok\": 2"
    const int64_t none = params_of(ROUTED "}");
    assert_int_equal(params_of(ROUTED ", \"shared_intermediate_size\": 48}") - none,
                     2 * 3 * 64 * 48);
    assert_int_equal(params_of(ROUTED ", \"num_shared_expert\": 2}") - none, 2 * 3 * 64 * 2 * 32);
    assert_int_equal(params_of(ROUTED ", \"num_shared_expert\": 2, \"use_mixed_mlp_moe\": false}"),
                     none);
#undef ROUTED
}

// Layers without experts are plain ones, of a width of their own; which they are is said in several
// ways.
static void test_dense_layers(void **state)
{
    (void)state;
#define MIXED                                                                                      \
    "{\"hidden_size\": 64, \"num_attention_heads\": 4, \"num_hidden_layers\": 4, \"vocab_size\": " \
    "9, "                                                                                          \
    "\"intermediate_size\": 32, \"num_local_experts\": 4, \"num_experts_per_tok\": 2"
    static const struct {
        const char *more;
        int dense;
    } cases[] = {
        {", \"first_k_dense_replace\": 1", 1},
        {", \"interleave_moe_layer_step\": 2", 2},
        {", \"decoder_sparse_step\": 3", 3},
        {", \"moe_layer_freq\": 3", 2},
        {", \"moe_layer_freq\": [0, 1, 1, 1]", 1},
        {", \"mlp_layer_types\": [\"dense\", \"dense\", \"sparse\", \"dense\"]", 3},
    };
    const int64_t all = params_of(MIXED "}");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[512];
        snprintf(text, sizeof text, MIXED "%s}", cases[i].more);
        assert_int_equal(all - params_of(text), cases[i].dense * (3 * 3 * 64 * 32 + 4 * 64));
        snprintf(text, sizeof text, MIXED "%s, \"intermediate_size_mlp\": 48}", cases[i].more);
        assert_int_equal(all - params_of(text), cases[i].dense * ((4 * 32 - 48) * 3 * 64 + 4 * 64));
    }
    mics_model *model = NULL;
    ASSERT_STATUS(MICS_ERR_INVALID, build(MIXED ", \"mlp_layer_types\": [\"dense\"]}", &model));
    assert_null(model);
#undef MIXED
}

// Positions of RoBERTa begin behind the padding token's row.
static void test_padded_positions(void **state)
{
    (void)state;
    mics_model *model = NULL;
    ASSERT_OK(build("{" SMALL ", \"model_type\": \"xlm-roberta\", \"max_position_embeddings\": 34}",
                    &model));
    assert_int_equal(model->positions, 32);
    mics_model_close(model);
    model = NULL;
    ASSERT_STATUS(MICS_ERR_INVALID,
                  build("{" SMALL
                        ", \"model_type\": \"camembert\", \"max_position_embeddings\": 2}",
                        &model));
    assert_null(model);
}

// Which families have three matrices: said by the activation, where there is one.
static void test_gates(void **state)
{
    (void)state;
    static const struct {
        const char *type, *act;
        bool gated;
    } cases[] = {{"llama", "silu", true},        {"unheard", "silu", true},
                 {"unheard", "relu2", false},    {"unheard", "gelu", false},
                 {"gemma", "gelu", true},        {"bloom", "silu", false},
                 {"unheard", "geglu_new", true}, {"arcee", "relu2", false}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[512];
        snprintf(text, sizeof text,
                 "{" SMALL ", \"model_type\": \"%s\", \"hidden_act\": \"%s\", \"head_dim\": 16, "
                 "\"tie_word_embeddings\": false, \"intermediate_size\": 128}",
                 cases[i].type, cases[i].act);
        const int64_t both = 2 * 9 * 64 + 2 * (4 * 64 * 64 + 2 * 64) + 64;
        const int64_t matrices = (params_of(text) - both) / (2 * 64 * 128);
        if (matrices != (cases[i].gated ? 3 : 2))
            fail_msg("%s with %s: %d matrices", cases[i].type, cases[i].act, (int)matrices);
    }
}

static void test_failing_allocations(void **state)
{
    (void)state;
    mics_json *json = NULL;
    const char *text = published[0].text;
    mics_status status = MICS_ERR_MEMORY;
    ASSERT_OK(mics_json_parse(memory, "config.json", text, strlen(text), &json));
    for (int64_t failing = 1; status != MICS_OK; failing++) {
        mics_model *model = NULL;
        mics_memory_fail_after(memory, failing);
        status = mics_model_from_shapes(memory, json, &model);
        mics_model_close(model);
    }
    mics_memory_fail_after(memory, 0);
    mics_json_close(json);
}

static int begin(void **state)
{
    (void)state;
    return mics_memory_open(&memory) == MICS_OK ? 0 : 1;
}

static int end(void **state)
{
    (void)state;
    return mics_memory_close(memory) == 0 ? 0 : 1;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_published),       cmocka_unit_test(test_counted),
        cmocka_unit_test(test_nested),          cmocka_unit_test(test_guess),
        cmocka_unit_test(test_names_in_errors), cmocka_unit_test(test_refused),
        cmocka_unit_test(test_other_models),    cmocka_unit_test(test_windows),
        cmocka_unit_test(test_encoders),        cmocka_unit_test(test_mpt),
        cmocka_unit_test(test_shared_experts),  cmocka_unit_test(test_failing_allocations),
        cmocka_unit_test(test_dense_layers),    cmocka_unit_test(test_padded_positions),
        cmocka_unit_test(test_gates),
    };
    return cmocka_run_group_tests(tests, begin, end);
}
