// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Llama and its relatives from configurations: sizes as published, parts and names as in files,
// rotary embeddings as transformers computes them, and what is refused.
#include "base/capture.h"
#include "engine/golden.h"
#include "model/from_config.h"
#include <math.h>

static mics_status build(mics_memory *memory, const char *text, mics_model **model_out)
{
    mics_json *json = NULL;
    ASSERT_OK(mics_json_parse(memory, "config.json", text, strlen(text), &json));
    mics_status status = mics_model_from_config(memory, json, false, model_out);
    mics_json_close(json);
    return status;
}

// ---- sizes ----

// As transformers counts the parameters of these shapes. The shortest are all defaults.
static void test_published_sizes(void **state)
{
    (void)state;
    static const struct {
        int64_t params;
        const char *config;
    } cases[] = {
        {6738415616, "{\"model_type\": \"llama\"}"},
        {8030261248, "{\"model_type\": \"llama\", \"vocab_size\": 128256, "
                     "\"intermediate_size\": 14336, \"num_key_value_heads\": 8}"},
        {1235814400, "{\"model_type\": \"llama\", \"vocab_size\": 128256, \"hidden_size\": 2048, "
                     "\"intermediate_size\": 8192, \"num_hidden_layers\": 16, "
                     "\"num_key_value_heads\": 8, \"tie_word_embeddings\": true}"},
        {7241732096, "{\"model_type\": \"mistral\"}"},
        {12247782400, "{\"model_type\": \"mistral\", \"vocab_size\": 131072, \"hidden_size\": "
                      "5120, \"num_hidden_layers\": 40, \"head_dim\": 128}"},
        {12049846272, "{\"model_type\": \"qwen2\"}"},
        {494032768, "{\"model_type\": \"qwen2\", \"hidden_size\": 896, \"intermediate_size\": "
                    "4864, \"num_hidden_layers\": 24, \"num_attention_heads\": 14, "
                    "\"num_key_value_heads\": 2, \"tie_word_embeddings\": true}"},
        {12049461248, "{\"model_type\": \"qwen3\"}"},
        {596049920, "{\"model_type\": \"qwen3\", \"hidden_size\": 1024, \"intermediate_size\": "
                    "3072, \"num_hidden_layers\": 28, \"num_attention_heads\": 16, "
                    "\"num_key_value_heads\": 8, \"tie_word_embeddings\": true}"},
        {20554567680, "{\"model_type\": \"gpt_neox\"}"},
        {70426624, "{\"model_type\": \"gpt_neox\", \"vocab_size\": 50304, \"hidden_size\": 512, "
                   "\"intermediate_size\": 2048, \"num_hidden_layers\": 6, "
                   "\"num_attention_heads\": 8}"},
    };
    mics_memory *memory = NULL;
    ASSERT_OK(mics_memory_open(&memory));
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        mics_model *model = NULL;
        ASSERT_OK(build(memory, cases[i].config, &model));
        assert_int_equal(mics_model_param_count(model), cases[i].params);
        mics_model_close(model);
    }
    assert_int_equal(mics_memory_close(memory), 0);
}

// The window of each layer, from attention's attribute.
static int64_t window_of(const mics_model *model, int32_t layer)
{
    const mics_unit *unit = &model->units[1 + layer];
    for (int32_t o = 0; o < unit->op_count; o++) {
        if (unit->ops[o].kind == MICS_OP_ATTENTION)
            return unit->ops[o].window;
    }
    fail_msg("%s has no attention", unit->name);
    return -1;
}

#define SMALL                                                                                      \
    "\"hidden_size\": 12, \"intermediate_size\": 20, \"num_hidden_layers\": 3, "                   \
    "\"num_attention_heads\": 6, \"num_key_value_heads\": 2, \"head_dim\": 4, "                    \
    "\"vocab_size\": 29, \"max_position_embeddings\": 5000"

static void test_windows(void **state)
{
    (void)state;
    static const struct {
        int64_t windows[3];
        const char *config;
    } cases[] = {
        {{0, 0, 0}, "{\"model_type\": \"llama\", \"sliding_window\": 9, " SMALL "}"},
        {{4096, 4096, 4096}, "{\"model_type\": \"mistral\", " SMALL "}"},
        {{0, 0, 0}, "{\"model_type\": \"mistral\", \"sliding_window\": null, " SMALL "}"},
        {{0, 0, 0}, "{\"model_type\": \"mistral\", \"sliding_window\": 5000, " SMALL "}"},
        {{9, 9, 9}, "{\"model_type\": \"mistral\", \"sliding_window\": 9, " SMALL "}"},
        {{0, 0, 0}, "{\"model_type\": \"qwen2\", \"sliding_window\": 9, " SMALL "}"},
        {{0, 0, 0},
         "{\"model_type\": \"qwen3\", \"use_sliding_window\": true, "
         "\"sliding_window\": 9, " SMALL "}"}, // max_window_layers is 28
        {{0, 9, 9},
         "{\"model_type\": \"qwen3\", \"use_sliding_window\": true, "
         "\"sliding_window\": 9, \"max_window_layers\": 1, " SMALL "}"},
        {{9, 0, 9},
         "{\"model_type\": \"qwen2\", \"use_sliding_window\": true, \"sliding_window\": 9, "
         "\"layer_types\": [\"sliding_attention\", \"full_attention\", "
         "\"sliding_attention\"], " SMALL "}"},
    };
    mics_memory *memory = NULL;
    ASSERT_OK(mics_memory_open(&memory));
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        mics_model *model = NULL;
        ASSERT_OK(build(memory, cases[i].config, &model));
        for (int32_t layer = 0; layer < 3; layer++)
            assert_int_equal(window_of(model, layer), cases[i].windows[layer]);
        mics_model_close(model);
    }
    assert_int_equal(mics_memory_close(memory), 0);
}

// ---- tensors ----

// The files of transformers have the model's tensors, no more and no fewer, in the same shapes.
static void test_names_and_shapes(void **state)
{
    (void)state;
    static const char *const folders[] = {
        "llama_grouped", "llama_single",      "mistral_full",    "qwen2_layers",    "qwen3_single",
        "qwen3_grouped", "gpt_neox_parallel", "gpt_neox_serial", "qwen2_moe_shared"};
    for (size_t f = 0; f < sizeof folders / sizeof folders[0]; f++) {
        golden g;
        int32_t count = 0;
        golden_open(&g, folders[f]);
        for (int32_t u = 0; u < g.model->unit_count; u++) {
            for (int32_t p = 0; p < g.model->units[u].param_count; p++) {
                mics_param_tensor tensor;
                for (int32_t part = 0;
                     mics_param_next_tensor(&g.model->units[u].params[p], &part, &tensor);) {
                    const mics_tensor_info *info = mics_safetensors_find(g.weights, tensor.name);
                    if (info == NULL)
                        fail_msg("%s has no %s", folders[f], tensor.name);
                    assert_int_equal(info->dims, tensor.dims);
                    assert_int_equal(info->shape[0], tensor.shape[0]);
                    if (tensor.dims == 2)
                        assert_int_equal(info->shape[1], tensor.shape[1]);
                    assert_int_equal(mics_model_find_param(g.model, tensor.name).unit, u);
                    count++;
                }
            }
        }
        assert_int_equal(count, mics_safetensors_count(g.weights));
        golden_close(&g);
    }
}

// q, k and v of head 1 of 2, as GPT-NeoX's file has them and as the model does.
static void test_parts_of_gpt_neox(void **state)
{
    (void)state;
    static const char config[] = "{\"model_type\": \"gpt_neox\", \"hidden_size\": 16, "
                                 "\"num_attention_heads\": 2, \"num_hidden_layers\": 1}";
    mics_memory *memory = NULL;
    mics_model *model = NULL;
    ASSERT_OK(mics_memory_open(&memory));
    ASSERT_OK(build(memory, config, &model));
    const mics_param *param = mics_model_param(
        model, mics_model_find_param(model, "gpt_neox.layers.0.attention.query_key_value.weight"));
    assert_int_equal(param->part_count, 6);
    for (int32_t third = 0; third < 3; third++) {
        assert_int_equal(param->parts[3 + third].tensor_row, 24 + 8 * third);
        assert_int_equal(param->parts[3 + third].row, 16 * third + 8);
        assert_int_equal(param->parts[3 + third].rows, 8);
    }
    assert_int_equal(mics_model_find_param(model, "layers.0.attention.dense.bias").unit, 1);
    assert_int_equal(mics_model_find_param(model, "lm_head.weight").unit, 2);
    mics_model_close(model);
    assert_int_equal(mics_memory_close(memory), 0);
}

// ---- rotary embeddings ----

static void check_rotary(const mics_rotary_spec *have, const mics_json_value *want)
{
    const mics_json_value *frequencies = mics_json_get(want, "frequencies");
    const double scale = mics_json_real(mics_json_get(want, "scale"));
    assert_int_equal(2 * mics_json_count(frequencies), have->dims);
    assert_true(fabs((double)have->scale - scale) <= 1e-6);
    for (int32_t i = 0; i < have->dims / 2; i++) {
        const double value = mics_json_real(mics_json_element(frequencies, i));
        // A unit in the last place is 6e-8 to 1.2e-7; powers are off by one or two.
        if (!(fabs((double)have->frequencies[i] - value) <= 5e-7 * value))
            fail_msg("frequency %d of %d is %.9g, not %.9g", (int)i, (int)have->dims / 2,
                     (double)have->frequencies[i], value);
    }
}

// The configuration of each case stands in the file as JSON; the second spelling is made from it.
static void test_rotary(void **state)
{
    (void)state;
    mics_memory *memory = NULL;
    mics_json *cases = NULL;
    ASSERT_OK(mics_memory_open(&memory));
    ASSERT_OK(mics_json_load(memory, MICS_TEST_DATA "/rope.json", 1 << 20, &cases));
    const mics_json_value *list = mics_json_root(cases);
    const char *text = mics_json_text(cases);
    assert_true(mics_json_count(list) >= 9);
    for (int32_t i = 0; i < mics_json_count(list); i++) {
        mics_model *model = NULL;
        char config[1024];
        text = strstr(text, "{\"config\": ") + strlen("{\"config\": ");
        const char *end = strstr(text, "}, \"scale\"") + 1;
        snprintf(config, sizeof config, "%.*s", (int)(end - text), text);
        ASSERT_OK(build(memory, config, &model));
        assert_int_equal(model->rotary_count, 1);
        check_rotary(&model->rotaries[0], mics_json_element(list, i));
        mics_model_close(model);
        model = NULL;
        memcpy(strstr(config, "\"rope_parameters\""), "   \"rope_scaling\"", 17);
        ASSERT_OK(build(memory, config, &model));
        check_rotary(&model->rotaries[0], mics_json_element(list, i));
        mics_model_close(model);
    }
    mics_json_close(cases);
    assert_int_equal(mics_memory_close(memory), 0);
}

// ---- what is refused ----

typedef struct refusal {
    const char *type, *fields; // of a small configuration
    const char *key, *said;    // what the line names, and says
} refusal;

#define ROPE(text) "\"rope_scaling\": {" text "}"

static const refusal refusals[] = {
    {"llama", "\"hidden_act\": \"gelu\"", "hidden_act", "only \"silu\" or \"swish\""},
    {"llama", "\"hidden_act\": 3", "hidden_act", "silu"},
    {"llama", "\"hidden_size\": \"12\"", "hidden_size", "must be an integer"},
    {"llama", "\"num_attention_heads\": 5", "num_attention_heads",
     "5 heads do not divide hidden_size = 12"},
    {"llama", "\"num_attention_heads\": 100", "num_attention_heads",
     "100 heads do not divide hidden_size = 12"},
    {"llama", "\"num_key_value_heads\": 4", "num_key_value_heads",
     "4 key-value heads do not divide num_attention_heads = 6"},
    {"llama", "\"num_key_value_heads\": 0", "num_key_value_heads", "from 1"},
    {"llama", "\"head_dim\": 5", "head_dim", "even number"},
    {"llama", "\"num_attention_heads\": 4", "num_attention_heads", "a head has 3 elements"},
    {"llama", "\"head_dim\": 2048", "head_dim", "from 1 to 1024"},
    {"llama", "\"attention_dropout\": 1", "attention_dropout", "below 1"},
    {"llama", "\"attention_dropout\": \"0.1\"", "attention_dropout", "must be a number"},
    {"llama", "\"attention_bias\": 1", "attention_bias", "true or false"},
    {"llama", "\"rms_norm_eps\": -1", "rms_norm_eps", "number"},
    {"llama", "\"eos_token_id\": \"</s>\"", "eos_token_id", "neither a token's id nor a list"},
    {"llama", "\"eos_token_id\": [1, null]", "eos_token_id", "neither a token's id nor a list"},
    {"llama", "\"quantization_config\": {\"bits\": 4}", "quantization_config", "quantised"},
    {"llama", "\"layer_types\": [\"full_attention\", \"sliding_attention\"]", "layer_types",
     "layer 1 slides"},
    {"llama", "\"partial_rotary_factor\": 0.5", "partial_rotary_factor", "only 1"},
    {"mixtral", "\"num_experts\": 4, \"num_local_experts\": 8", "num_local_experts",
     "is 8, but num_experts, another name of it, is 4"},
    {"qwen3_moe", "\"mlp_only_layers\": [-1]", "mlp_only_layers", "numbers of layers"},
    {"deepseek_v3", "\"kv_lora_rank\": 512, \"n_shared_experts\": 1, \"n_routed_experts\": null",
     "model_type",
     "it needs latent attention (kv_lora_rank), DeepSeek's shared experts (n_shared_experts); mics "
     "plan takes other models by their shapes"},
    {"mixtral", "\"expert_capacity_factor\": -1", "expert_capacity_factor", "number"},
    {"mixtral", "\"expert_capacity_factor\": true", "expert_capacity_factor", "number"},
    {"mixtral", "\"expert_eval_capacity_factor\": \"2\"", "expert_eval_capacity_factor", "number"},
    {"mixtral", "\"expert_min_capacity\": 0", "expert_min_capacity", "from 1"},
    {"mixtral", "\"router_jitter_noise\": 1", "router_jitter_noise", "number"},
    {"mixtral", "\"second_expert_policy\": \"sampling\"", "second_expert_policy",
     "\"all\" or \"random\""},
    {"mixtral", "\"expert_capacity_facto\": 1", "expert_capacity_facto",
     "unknown key; did you mean expert_capacity_factor?"},
    {"qwen3_moe", "\"capacity_factor\": 1", "capacity_factor", "mean expert_capacity_factor?"},
    {"mixtral", "\"router_z_loss\": 0.1", "router_z_loss", "mean router_z_loss_coef?"},
    {"qwen3_moe", "\"second_expert_policy\": \"random\", \"num_experts_per_tok\": 3",
     "second_expert_policy", "is for num_experts_per_tok = 2, not 3"},
    {"qwen2_moe", "\"shared_expert_intermediate_size\": 0", "shared_expert_intermediate_size",
     "from 1"},
    {"qwen2_moe", "\"use_sliding_window\": true", "use_sliding_window", "only false"},
    {"llama", "\"is_causal\": false", "is_causal", "only true can be honoured"},
    {"qwen3", "\"is_causal\": null", "is_causal", "only true can be honoured"},
    {"gpt_neox", "\"is_causal\": 0", "is_causal", "only true can be honoured"},
    {"mistral", "\"per_layer_config\": {\"0\": {\"hidden_size\": 24}}", "per_layer_config",
     "all layers have one shape"},
    {"llama", "\"head_dim\": 4, \"num_attention_heads\": 5", "num_attention_heads",
     "5 heads do not divide hidden_size = 12; give a number that does"},
    {"mistral", "\"attention_bias\": true", "attention_bias", "mistral has no such key"},
    {"mistral", "\"sliding_window\": 0", "sliding_window", "from 1"},
    {"mistral", "\"layer_types\": [\"full_attention\", \"full_attention\"]", "layer_types",
     "another than this family"},
    {"qwen2", "\"mlp_bias\": true", "mlp_bias", "qwen2 has no such key"},
    {"qwen2", "\"layer_types\": [\"full_attention\"]", "layer_types", "for each of 2 layers"},
    {"qwen2", "\"layer_types\": \"full_attention\"", "layer_types", "must be an array"},
    {"qwen2", "\"layer_types\": [\"full_attention\", \"linear_attention\"]", "layer_types",
     "layer 1 is neither"},
    {"qwen3", "\"layer_types\": [\"full_attention\", \"sliding_attention\"]", "layer_types",
     "say no window"},
    {"qwen3", "\"use_sliding_window\": \"yes\"", "use_sliding_window", "true or false"},
    {"gpt_neox", "\"hidden_act\": \"relu\"", "hidden_act", "gelu_fast"},
    {"gpt_neox", "\"hidden_dropout\": -0.1", "hidden_dropout", "from 0 to 1"},
    {"gpt_neox", "\"attention_dropout\": 1.0", "attention_dropout", "below 1"},
    {"gpt_neox", "\"rotary_pct\": 0.1", "rotary_pct", "even number"},
    {"gpt_neox", "\"rotary_pct\": 2", "rotary_pct", "from 0 to 1"},
    {"gpt_neox", "\"rope_theta\": 500", "rope_theta", "only 10000 can be honoured"},
    {"gpt_neox", "\"num_attention_heads\": 5", "num_attention_heads", "do not divide"},
    {"gpt_neox", "\"head_dim\": 4", "head_dim", "= 2 can be honoured in this family, not 4"},
    {"llama", "\"rope_scaling\": 2", "rope_scaling", "must be an object"},
    {"llama", "\"rope_theta\": \"10000\"", "rope_theta", "must be a number"},
    {"llama", "\"rope_theta\": 5000, \"rope_parameters\": {\"rope_theta\": 500}", "rope_theta",
     "which holds"},
    {"llama", "\"rope_parameters\": {}, " ROPE(""), "rope_scaling", "keep one of them"},
    {"llama", ROPE("\"rope_type\": \"longrope\", \"factor\": 2"), "rope_scaling.rope_type",
     "\"linear\""},
    {"llama", ROPE("\"type\": \"su\""), "rope_scaling.type", "\"llama3\""},
    {"llama", ROPE("\"type\": \"linear\""), "rope_scaling.factor", "missing"},
    {"llama", ROPE("\"type\": \"linear\", \"factor\": 0.5"), "rope_scaling.factor", "from 1"},
    {"llama", ROPE("\"type\": \"dynamic\", \"factor\": \"2\""), "rope_scaling.factor", "number"},
    {"llama", ROPE("\"type\": \"default\", \"mrope_section\": [1, 2]"),
     "rope_scaling.mrope_section", "cannot be honoured"},
    {"llama", ROPE("\"rope_type\": \"llama3\", \"factor\": 8, \"high_freq_factor\": 4"),
     "rope_scaling.low_freq_factor", "missing"},
    {"llama",
     ROPE("\"rope_type\": \"llama3\", \"factor\": 8, \"low_freq_factor\": 4, "
          "\"high_freq_factor\": 4"),
     "rope_scaling.high_freq_factor", "larger than"},
    {"llama", ROPE("\"rope_type\": \"yarn\", \"factor\": 4, \"truncate\": 1"),
     "rope_scaling.truncate", "true or false"},
    {"llama", "\"rope_theta\": 1, " ROPE("\"rope_type\": \"yarn\", \"factor\": 4"),
     "rope_scaling.rope_theta", "larger than 1 for yarn"},
    {"llama",
     ROPE("\"rope_type\": \"yarn\", \"factor\": 4, \"original_max_position_embeddings\": 8192.5"),
     "rope_scaling.original_max_position_embeddings", "whole number"},
    {"llama", ROPE("\"partial_rotary_factor\": 0.5"), "rope_scaling.partial_rotary_factor",
     "only 1"},
};

// The case's fields, then those of a good configuration that it does not have.
static void write_config(const refusal *r, char *text, size_t capacity)
{
    static const char *const keys[] = {"hidden_size",         "intermediate_size",
                                       "num_hidden_layers",   "num_attention_heads",
                                       "num_key_value_heads", "vocab_size"};
    static const int values[] = {12, 20, 2, 6, 6, 29};
    size_t used =
        (size_t)snprintf(text, capacity, "{\n\"model_type\": \"%s\",\n%s", r->type, r->fields);
    // A case of query heads has as many key-value heads.
    const bool heads = strstr(r->fields, "num_attention_heads") != NULL;
    for (int i = 0; i < 6; i++) {
        char quoted[64];
        snprintf(quoted, sizeof quoted, "\"%s\"", keys[i]);
        if (strstr(r->fields, quoted) == NULL && !(heads && i == 4))
            used += (size_t)snprintf(text + used, capacity - used, ",\n%s: %d", quoted, values[i]);
    }
    snprintf(text + used, capacity - used, "\n}");
}

static void test_refusals(void **state)
{
    (void)state;
    mics_memory *memory = NULL;
    ASSERT_OK(mics_memory_open(&memory));
    for (size_t i = 0; i < sizeof refusals / sizeof refusals[0]; i++) {
        char text[1024];
        mics_model *model = NULL;
        capture seen;
        write_config(&refusals[i], text, sizeof text);
        capture_begin(&seen);
        const mics_status status = build(memory, text, &model);
        capture_end();
        if (status != MICS_ERR_INVALID && status != MICS_ERR_UNSUPPORTED)
            fail_msg("%s: %s", text, mics_status_name(status));
        assert_null(model);
        ASSERT_SAID(&seen, refusals[i].said);
        if (strstr(seen.line, refusals[i].key) == NULL || strstr(seen.line, "config.json:") == NULL)
            fail_msg("\"%s\" names no file and line, or not the key %s", seen.line,
                     refusals[i].key);
    }
    assert_int_equal(mics_memory_close(memory), 0);
}

// Keys that say what holds anyway, and other families that need no divisor.
static void test_taken(void **state)
{
    (void)state;
    static const refusal taken[] = {
        {"llama", "\"is_causal\": true", NULL, NULL},
        {"llama", "\"per_layer_config\": null", NULL, NULL},
        {"llama", ROPE("\"type\": \"linear\", \"factor\": 2") ", \"rope_theta\": 1", NULL, NULL},
        {"mistral", "\"head_dim\": 4, \"num_attention_heads\": 5, \"num_key_value_heads\": 5", NULL,
         NULL},
        {"qwen2", "\"head_dim\": 4, \"num_attention_heads\": 5, \"num_key_value_heads\": 5", NULL,
         NULL},
        {"gpt_neox", "\"head_dim\": 6, \"num_attention_heads\": 2, \"rotary_pct\": 1", NULL, NULL},
        {"mixtral", "\"num_experts\": null, \"num_local_experts\": 4", NULL, NULL},
        {"mixtral", "\"num_experts\": 4, \"num_local_experts\": null", NULL, NULL},
        {"qwen2_moe", "\"qkv_bias\": false", NULL, NULL},
        {"mixtral", "\"expert_capacity_factor\": null, \"second_expert_policy\": \"all\"", NULL,
         NULL},
        {"mixtral", "\"router_jitter_noise\": 0, \"router_aux_loss_coef\": 0.1", NULL, NULL},
        {"llama", "\"capacity_factor\": 1", NULL, NULL},
        {"qwen3_moe", "\"mlp_only_layers\": [0, 40]", NULL, NULL}, // of more layers than are left
    };
    mics_memory *memory = NULL;
    ASSERT_OK(mics_memory_open(&memory));
    for (size_t i = 0; i < sizeof taken / sizeof taken[0]; i++) {
        char text[1024];
        mics_model *model = NULL;
        write_config(&taken[i], text, sizeof text);
        ASSERT_OK(build(memory, text, &model));
        mics_model_close(model);
    }
    assert_int_equal(mics_memory_close(memory), 0);
}

static void test_families(void **state)
{
    (void)state;
    mics_family family = {.class_name = "untouched"};
    assert_false(mics_model_family(NULL, &family));
    assert_false(mics_model_family("t5", &family));
    assert_string_equal(family.class_name, "untouched");
    assert_true(mics_model_family("gpt_neox", &family));
    assert_string_equal(family.class_name, "GPTNeoXForCausalLM");
    assert_string_equal(family.layers_key, "num_hidden_layers");
    assert_true(mics_model_family("gpt2", &family));
    assert_string_equal(family.model_type, "gpt2");
    assert_string_equal(family.layers_key, "n_layer");
}

// Every allocation may fail: nothing is left.
static void test_allocations(void **state)
{
    (void)state;
    static const char *const configs[] = {
        "{\"model_type\": \"qwen3\", " SMALL "}",
        "{\"model_type\": \"gpt_neox\", \"hidden_size\": 16, \"num_attention_heads\": 2, "
        "\"num_hidden_layers\": 1}"};
    for (int c = 0; c < 2; c++) {
        mics_status status = MICS_ERR_MEMORY;
        for (int64_t n = 1; status != MICS_OK; n++) {
            mics_memory *memory = NULL;
            mics_json *json = NULL;
            mics_model *model = NULL;
            capture seen;
            ASSERT_OK(mics_memory_open(&memory));
            ASSERT_OK(
                mics_json_parse(memory, "config.json", configs[c], strlen(configs[c]), &json));
            mics_memory_fail_after(memory, n);
            capture_begin(&seen);
            status = mics_model_from_config(memory, json, false, &model);
            capture_end();
            mics_memory_fail_after(memory, 0);
            mics_model_close(model);
            mics_json_close(json);
            assert_int_equal(mics_memory_close(memory), 0);
            assert_true(status == MICS_OK || status == MICS_ERR_MEMORY);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_published_sizes),
        cmocka_unit_test(test_windows),
        cmocka_unit_test(test_names_and_shapes),
        cmocka_unit_test(test_parts_of_gpt_neox),
        cmocka_unit_test(test_rotary),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_taken),
        cmocka_unit_test(test_families),
        cmocka_unit_test(test_allocations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
