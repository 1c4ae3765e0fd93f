// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// BERT and RoBERTa from configurations: sizes, names and shapes as published, and what is refused.
#include "base/watched.h"
#include "engine/golden.h"
#include "mics/builder.h"
#include "model/from_config.h"

#define LAYERS                                                                                     \
    "\"hidden_size\": 768, \"num_hidden_layers\": 12, \"num_attention_heads\": 12, "               \
    "\"intermediate_size\": 3072, \"hidden_act\": \"gelu\", \"hidden_dropout_prob\": 0.1, "        \
    "\"attention_probs_dropout_prob\": 0.1, \"initializer_range\": 0.02, "

// As the published bert-base-uncased's and roberta-base's config.json have them.
static const char bert_base[] =
    "{\"model_type\": \"bert\", \"vocab_size\": 30522, \"max_position_embeddings\": 512, " LAYERS
    "\"type_vocab_size\": 2, \"layer_norm_eps\": 1e-12, \"pad_token_id\": 0}";
static const char roberta_base[] =
    "{\"model_type\": \"roberta\", \"vocab_size\": 50265, \"max_position_embeddings\": 514, " LAYERS
    "\"type_vocab_size\": 1, \"layer_norm_eps\": 1e-05, \"pad_token_id\": 1}";

static mics_status build(const char *text, mics_model **model_out)
{
    mics_json *json = NULL;
    ASSERT_OK(mics_json_parse(memory, "config.json", text, strlen(text), &json));
    mics_status status = mics_model_from_config(memory, json, false, model_out);
    mics_json_close(json);
    return status;
}

static void test_published(void **state)
{
    (void)state;
    // What transformers counts in BertForMaskedLM and RobertaForMaskedLM, tied tables once.
    static const struct {
        const char *config;
        int64_t params, positions, first_position;
    } cases[] = {{bert_base, 109514298, 512, 0}, {roberta_base, 124697433, 512, 2}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        mics_model *model = NULL;
        ASSERT_OK(build(cases[i].config, &model));
        assert_int_equal(mics_model_param_count(model), cases[i].params);
        assert_int_equal(model->positions, cases[i].positions);
        assert_int_equal(model->units[0].ops[0].first_position, cases[i].first_position);
        assert_true(model->masked);
        assert_true(model->tied);
        mics_model_close(model);
    }
}

static void test_tensors(void **state)
{
    (void)state;
    static const char *const folders[] = {"bert_small", "roberta_small"};
    for (size_t f = 0; f < sizeof folders / sizeof *folders; f++) {
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
                    assert_int_equal(info->shape[0], tensor.shape[0]);
                    count++;
                }
            }
        }
        assert_int_equal(count, mics_safetensors_count(g.weights));
        golden_close(&g);
    }
}

static void test_other_names(void **state)
{
    (void)state;
    mics_model *model = NULL;
    ASSERT_OK(build(bert_base, &model));
    assert_int_equal(mics_model_find_param(model, "bert.embeddings.LayerNorm.gamma").unit, 0);
    assert_int_equal(
        mics_model_find_param(model, "bert.encoder.layer.3.attention.output.LayerNorm.beta").unit,
        4);
    assert_int_equal(mics_model_find_param(model, "bert.pooler.dense.weight").unit, -1);
    mics_model_close(model);
}

// A norm behind each sum is no residual stream that could be wider.
static void test_no_wide_residual(void **state)
{
    (void)state;
    mics_model *model = NULL;
    capture said;
    ASSERT_OK(build(bert_base, &model));
    capture_begin(&said);
    const mics_status status = mics_model_widen_residual(model);
    capture_end();
    ASSERT_STATUS(MICS_ERR_UNSUPPORTED, status);
    ASSERT_SAID(&said, "run.residual_dtype fp32: unit layer.0 ends with layernorm, not with");
    mics_model_close(model);
}

static void test_refused(void **state)
{
    (void)state;
    static const struct {
        const char *keys, *error;
    } cases[] = {
        {"\"is_decoder\": true", "only false can be honoured"},
        {"\"add_cross_attention\": true", "only false can be honoured"},
        {"\"tie_word_embeddings\": false", "only true can be honoured"},
        {"\"position_embedding_type\": \"relative_key\"", "only \"absolute\" can be honoured"},
        {"\"hidden_act\": \"relu\"", "can be honoured"},
        {"\"num_attention_heads\": 7", "7 heads do not divide hidden_size = 768"},
        {"\"type_vocab_size\": 0", "type_vocab_size"},
        {"\"hidden_dropout_prob\": 1.0", "a dropout of 1 drops everything"},
        {"\"max_position_embeddings\": 2", "positions begin behind row 1"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[512];
        mics_model *model = NULL;
        snprintf(text, sizeof text, "{\"model_type\": \"roberta\", \"vocab_size\": 99, %s}",
                 cases[i].keys);
        assert_int_not_equal(build(text, &model), MICS_OK);
        assert_null(model);
        if (strstr(seen.line, cases[i].error) == NULL)
            fail_msg("\"%s\" does not say \"%s\"", seen.line, cases[i].error);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_published, setup, teardown),
        cmocka_unit_test_setup_teardown(test_tensors, setup, teardown),
        cmocka_unit_test_setup_teardown(test_other_names, setup, teardown),
        cmocka_unit_test_setup_teardown(test_no_wide_residual, setup, teardown),
        cmocka_unit_test_setup_teardown(test_refused, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
