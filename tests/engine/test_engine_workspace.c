// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// The op table's workspaces are those that the kernels' header asks for: two modules that may not include each other agree.
#include "mics/model.h"
#include "mics/op.h"
#include "mics/size.h"
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
    ASSERT_OK(mics_model_open(memory, "test", &model));
    model->vocab = 7;
    model->positions = 7;
    mics_model_unit(model, "embed", 0);
    mics_param_ref tokens = mics_model_add_param(model, "tokens", &tables);
    mics_model_unit_end(model, mics_op_embedding(model, tokens, mics_param_none()));
    mics_model_unit(model, "head", width);
    int32_t x = mics_op_layernorm(model, 0, mics_model_add_param(model, "w", &vector),
                                  mics_model_add_param(model, "b", &vector), 1e-5f);
    x = mics_op_linear(model, x, mics_model_add_param(model, "qkv", &wide), mics_param_none(),
                       false);
    x = mics_op_attention(model, x, heads);
    mics_op_classifier(model, x, tokens);
    mics_model_unit_end(model, -1);
    ASSERT_OK(mics_model_finish(model));

    const mics_unit *unit = &model->units[1];
    const mics_batch batch = {.sequences = 3, .length = 7, .threads = threads};
    mics_op_cost cost = mics_op_cost_get(model, unit, find(unit, MICS_OP_ATTENTION), batch);
    assert_int_equal(cost.workspace_forward, threads * mics_attention_workspace(head_dim));
    assert_int_equal(cost.workspace_backward, threads * mics_attention_workspace(head_dim));
    cost = mics_op_cost_get(model, unit, find(unit, MICS_OP_LAYERNORM), batch);
    assert_int_equal(cost.workspace_backward, 2 * width * MICS_LAYERNORM_BLOCKS);
    cost = mics_op_cost_get(model, unit, find(unit, MICS_OP_LINEAR), batch);
    assert_int_equal(cost.workspace_backward, 3 * width * MICS_LINEAR_BLOCKS);
    cost = mics_op_cost_get(model, unit, find(unit, MICS_OP_CLASSIFIER), batch);
    assert_true(cost.classifier_rows >= 1 && cost.classifier_rows < 21);
    assert_int_equal(cost.workspace_backward, cost.classifier_rows * model->vocab);
    mics_model_close(model);
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
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_workspaces)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
