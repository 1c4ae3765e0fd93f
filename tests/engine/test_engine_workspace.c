// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// The descriptors' workspaces are those that the kernels ask for.
#include "base/json.h"
#include "base/size.h"
#include "mics/builder.h"
#include "mics/model.h"
#include "model/from_config.h"
#include "ops/attention/def.h"
#include "ops/common/def.h"
#include "ops/linear/def.h"
#include "test.h"

static const mics_op *find(const mics_unit *unit, mics_op_kind kind)
{
    for (int32_t o = 0; o < unit->op_count; o++) {
        if (unit->ops[o].kind == kind)
            return &unit->ops[o];
    }
    fail_msg("no op of kind %d", (int)kind);
    return NULL;
}

static void check_shape(mics_memory *memory, int64_t heads, int64_t head_dim, int32_t threads)
{
    mics_model *model = NULL;
    const int64_t width = heads * head_dim;
    const mics_param_spec vector = {.dims = 1, .shape = {width}};
    const mics_param_spec tables = {.dims = 2, .shape = {7, width}},
                          wide = {.dims = 2, .shape = {width, 3 * width}};
    const mics_model_spec spec = {"test", 7, 7, width};
    ASSERT_OK(mics_model_open(memory, &spec, &model));
    mics_model_unit(model, "embed", 0);
    mics_param_ref tokens = mics_model_add_param(model, "tokens", &tables);
    mics_model_unit_end(model, mics_op_embedding(model, tokens, mics_param_none()));
    mics_model_unit(model, "head", width);
    int32_t x = mics_op_layernorm(model, 0, mics_model_add_param(model, "w", &vector),
                                  mics_model_add_param(model, "b", &vector), 1e-5f);
    x = mics_op_linear(model, x, mics_model_add_param(model, "qkv", &wide), mics_param_none(),
                       false);
    x = mics_op_attention(model, x, (mics_heads){heads, heads, head_dim}, 0, 0);
    mics_op_lm_head(model, x, tokens);
    mics_model_unit_end(model, -1);
    ASSERT_OK(mics_model_finish(model));

    const mics_unit *unit = &model->units[1];
    const mics_batch batch = {.sequences = 3, .length = 7, .threads = threads};
    mics_op_cost cost = mics_op_cost_get(model, unit, find(unit, MICS_OP_ATTENTION), batch);
    assert_int_equal(cost.workspace_forward, threads * mics_attention_workspace(head_dim));
    assert_int_equal(cost.workspace_backward, threads * mics_attention_workspace(head_dim));
    cost = mics_op_cost_get(model, unit, find(unit, MICS_OP_LAYERNORM), batch);
    assert_int_equal(cost.workspace_backward, 2 * width * MICS_NORM_BLOCKS);
    cost = mics_op_cost_get(model, unit, find(unit, MICS_OP_LINEAR), batch);
    assert_int_equal(cost.workspace_backward, 3 * width * MICS_LINEAR_BLOCKS);
    cost = mics_op_cost_get(model, unit, find(unit, MICS_OP_LM_HEAD), batch);
    assert_true(cost.chunk_rows >= 1 && cost.chunk_rows < 21);
    assert_int_equal(cost.workspace_backward, cost.chunk_rows * model->vocab);
    mics_model_close(model);
}

// Rows of logits that an accelerator holds, of a GPT-2 of 124 million parameters.
static mics_op_cost logits_of(mics_memory *memory, int64_t tokens, int32_t bytes)
{
    static const char text[] = "{\"model_type\": \"gpt2\", \"n_layer\": 1, \"n_head\": 12, "
                               "\"n_embd\": 768, \"n_positions\": 1024, \"vocab_size\": 50257}";
    mics_json *json = NULL;
    mics_model *model = NULL;
    ASSERT_OK(mics_json_parse(memory, "model", text, sizeof text - 1, &json));
    ASSERT_OK(mics_model_from_config(memory, json, false, &model));
    mics_json_close(json);
    const mics_unit *unit = &model->units[model->unit_count - 1];
    const mics_batch batch = {
        .sequences = tokens, .length = 1, .threads = 1, .accelerator_bytes = bytes};
    const mics_op_cost cost = mics_op_cost_get(model, unit, find(unit, MICS_OP_LM_HEAD), batch);
    mics_model_close(model);
    return cost;
}

static void test_accelerator_rows(void **state)
{
    (void)state;
    enum { ROW = 50264, SUM = 50257 * 768, PRODUCTS = 8 << 20 }; // numbers, floats
    static const struct {
        int64_t tokens, rows_of_2, rows_of_4;
    } cases[] = {
        {1, 1, 1},          {1000, 1000, 1000},   {4096, 4096, 4096},
        {4097, 4097, 2176}, {5632, 5632, 2816},   {5633, 2816 + 128, 2816 + 128},
        {8192, 4096, 4096}, {100000, 4096, 4096},
    };
    mics_memory *memory = NULL;
    ASSERT_OK(mics_memory_open(&memory));
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const mics_op_cost two = logits_of(memory, cases[i].tokens, 2),
                           four = logits_of(memory, cases[i].tokens, 4);
        assert_int_equal(two.chunk_rows, cases[i].rows_of_2);
        assert_int_equal(four.chunk_rows, cases[i].rows_of_4);
        // In 2 bytes with an fp32 sum of the gradient where there are several chunks.
        const int64_t logits = (ROW * two.chunk_rows / 2 + 63) / 64 * 64;
        const bool summed = two.chunk_rows < cases[i].tokens;
        assert_int_equal(two.workspace_forward, logits + PRODUCTS);
        assert_int_equal(two.workspace_backward,
                         logits + PRODUCTS + (summed ? (SUM + 63) / 64 * 64 : 0));
        assert_int_equal(four.workspace_backward, four.workspace_forward);
    }
    assert_int_equal(mics_memory_close(memory), 0);
}

static void test_workspaces(void **state)
{
    (void)state;
    mics_memory *memory = NULL;
    ASSERT_OK(mics_memory_open(&memory));
    static const int64_t head_dims[] = {1, 3, 16, 17, 64, 80, 200};
    for (size_t i = 0; i < sizeof head_dims / sizeof head_dims[0]; i++) {
        check_shape(memory, 1 + (int64_t)i, head_dims[i], 1);
        check_shape(memory, 2, head_dims[i], 5);
    }
    assert_int_equal(mics_memory_close(memory), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_workspaces),
                                       cmocka_unit_test(test_accelerator_rows)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
