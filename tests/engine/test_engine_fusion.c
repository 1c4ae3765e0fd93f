// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Which ops run as one call: a linear and the sum with its residual, unless somebody else reads what
// lies between, or the sum lies where the linear still reads.
#include "../schedule/models.h"
#include "engine/fusion.h"
#include "later.h"
#include "mics/builder.h"

// Where the sum lies, moved there, a linear may still read its input.
static void check_moved(const mics_engine *engine, int32_t unit, int32_t op, int64_t by, bool fuses)
{
    const mics_op *ops = &engine->schedule->spec.model->units[unit].ops[op];
    int64_t *at = engine->schedule->units[unit].tensor_at;
    const int64_t before = at[ops[1].out];
    at[ops[1].out] = at[ops[0].in[0]] + by;
    assert_int_equal(fused_forward(engine, unit, op) != NULL, fuses);
    at[ops[1].out] = before;
}

// The sums behind a linear in all units of a model, and how many of them are fused.
static void count(const mics_model *model, bool evaluates, int *sums_out, int *fused_out)
{
    mics_schedule *schedule = NULL;
    mics_schedule_spec spec = {.model = model,
                               .batch = {.sequences = 1, .length = 8, .threads = 1},
                               .micro_steps = 1,
                               .accelerator = true,
                               .evaluation_only = evaluates};
    mics_memory *memory = NULL;
    ASSERT_OK(mics_memory_open(&memory));
    ASSERT_OK(mics_mesh_init(1, 1, (mics_sharding){1, 1, 1}, &spec.mesh));
    ASSERT_OK(mics_schedule_open(memory, &spec, &schedule));
    const mics_engine engine = {.schedule = schedule, .ops = &later_table};
    *sums_out = *fused_out = 0;
    for (int32_t u = 0; u < model->unit_count; u++) {
        const mics_unit *unit = &model->units[u];
        for (int32_t o = 0; o + 1 < unit->op_count; o++) {
            const mics_op *op = &unit->ops[o], *sum = &unit->ops[o + 1];
            if (op->kind != MICS_OP_LINEAR || sum->kind != MICS_OP_ADD)
                continue;
            const mics_op_pair *pair = fused_forward(&engine, u, o);
            const int64_t in = 8 * unit->tensors[op->in[0]].width;
            *sums_out += 1;
            *fused_out += pair != NULL;
            check_moved(&engine, u, o, 0, false);
            check_moved(&engine, u, o, in - 1, false);
            check_moved(&engine, u, o, in, pair != NULL);
        }
    }
    mics_schedule_close(schedule);
    assert_int_equal(mics_memory_close(memory), 0);
}

static void test_residuals_are_fused(void **state)
{
    (void)state;
    int sums = 0, fused = 0;
    mics_memory *memory = NULL;
    ASSERT_OK(mics_memory_open(&memory));
    mics_model *model = model_gpt2(memory, 2, true);
    count(model, false, &sums, &fused);
    assert_int_equal(sums, 4);
    assert_int_equal(fused, 4);
    count(model, true, &sums, &fused);
    assert_int_equal(fused, 4);
    mics_model_close(model);
    assert_int_equal(mics_memory_close(memory), 0);
}

// y = W x; its sum with x, or with itself; and, with `twice`, another reader of y.
static mics_model *linear_and_sum(mics_memory *memory, bool with_itself, bool twice)
{
    mics_model *model = NULL;
    const mics_model_spec spec = {"sums", MODEL_VOCAB, MODEL_POSITIONS, MODEL_WIDTH};
    ASSERT_OK(mics_model_open(memory, &spec, &model));
    mics_model_unit(model, "embed", 0);
    const mics_param_ref tokens = model_param(model, "tokens", MODEL_VOCAB, MODEL_WIDTH);
    const mics_param_ref positions = model_param(model, "positions", MODEL_POSITIONS, MODEL_WIDTH);
    mics_model_unit_end(model, mics_op_embedding(model, tokens, positions));
    mics_model_unit(model, "middle", MODEL_WIDTH);
    const int32_t y = mics_op_linear(model, 0, model_param(model, "w", MODEL_WIDTH, MODEL_WIDTH),
                                     mics_param_none(), false);
    int32_t sum = mics_op_add(model, with_itself ? y : 0, y);
    if (twice)
        sum = mics_op_add(model, sum, y);
    mics_model_unit_end(model, sum);
    mics_model_unit(model, "head", MODEL_WIDTH);
    mics_op_lm_head(model, 0, tokens);
    mics_model_unit_end(model, -1);
    ASSERT_OK(mics_model_finish(model));
    return model;
}

static void test_others_are_not(void **state)
{
    (void)state;
    mics_memory *memory = NULL;
    ASSERT_OK(mics_memory_open(&memory));
    for (int of = 0; of < 3; of++) {
        int sums = 0, fused = 0;
        mics_model *model = linear_and_sum(memory, of == 1, of == 2);
        count(model, false, &sums, &fused);
        assert_int_equal(sums, 1);
        assert_int_equal(fused, of == 0);
        mics_model_close(model);
    }
    assert_int_equal(mics_memory_close(memory), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_residuals_are_fused),
                                       cmocka_unit_test(test_others_are_not)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
