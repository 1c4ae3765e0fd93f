// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Units of experts: the builder's checks of them, and of slices of stacked tensors.
#include "mics/builder.h"
#include "small_model.h"
#include <stdio.h>

// A unit of experts with a weight (3, columns) each; the first one's.
static mics_param_ref experts_of(mics_model *model, int32_t count, int64_t columns)
{
    mics_param_ref first = mics_param_none();
    mics_model_experts(model, "experts", count);
    for (int32_t i = 0; i < count; i++) {
        char name[32];
        snprintf(name, sizeof name, "experts.%d", (int)i);
        const mics_param_ref made = matrix(model, name, 3, columns);
        first = i == 0 ? made : first;
    }
    mics_model_experts_end(model);
    return first;
}

static void layer_other_router(mics_model *model)
{
    const mics_experts few = {.count = 4, .chosen = 2}, many = {.count = 8, .chosen = 2};
    mics_model_unit(model, "layer", WIDTH);
    const int32_t routes =
        mics_op_router(model, 0, matrix(model, "gate", 4, WIDTH), few, (mics_router_spec){0});
    const mics_param_ref weight = experts_of(model, 8, WIDTH);
    mics_model_unit_end(model, mics_op_experts(model, MICS_OP_EXPERTS_IN, 0, routes, weight, many));
}

static int32_t router_of(mics_model *model, mics_experts experts)
{
    mics_model_unit(model, "layer", WIDTH);
    return mics_op_router(model, 0, matrix(model, "gate", experts.count, WIDTH), experts,
                          (mics_router_spec){0});
}

static void layer_plain_experts(mics_model *model)
{
    const mics_experts all = {.count = 4, .chosen = 2};
    const int32_t routes = router_of(model, all);
    const mics_param_ref weight = matrix(model, "weight", 4 * 3, WIDTH);
    mics_model_unit_end(model, mics_op_experts(model, MICS_OP_EXPERTS_IN, 0, routes, weight, all));
}

static void layer_fewer_experts(mics_model *model)
{
    const mics_experts all = {.count = 4, .chosen = 2};
    const int32_t routes = router_of(model, all);
    const mics_param_ref weight = experts_of(model, 2, WIDTH);
    mics_model_unit_end(model, mics_op_experts(model, MICS_OP_EXPERTS_IN, 0, routes, weight, all));
}

static void layer_no_experts(mics_model *model)
{
    mics_model_unit(model, "layer", WIDTH);
    mics_model_experts(model, "experts", 0);
    mics_model_unit_end(model, 0);
}

static void layer_uneven_experts(mics_model *model)
{
    mics_model_unit(model, "layer", WIDTH);
    mics_model_experts(model, "experts", 2);
    matrix(model, "one", 3, WIDTH);
    matrix(model, "two", 4, WIDTH);
    mics_model_experts_end(model);
    const mics_param_ref weight = matrix(model, "weight", WIDTH, WIDTH);
    mics_model_unit_end(model, mics_op_linear(model, 0, weight, mics_param_none(), true));
}

static void layer_unused_experts(mics_model *model)
{
    mics_model_unit(model, "layer", WIDTH);
    experts_of(model, 2, WIDTH);
    const mics_param_ref weight = matrix(model, "weight", WIDTH, WIDTH);
    mics_model_unit_end(model, mics_op_linear(model, 0, weight, mics_param_none(), true));
}

static void layer_of_slice(mics_model *model, int32_t index, int32_t count)
{
    mics_model_unit(model, "layer", WIDTH);
    const mics_param_ref weight = matrix(model, "weight", WIDTH, WIDTH);
    mics_model_add_stack(model, "stack", index, count);
    mics_model_unit_end(model, mics_op_linear(model, 0, weight, mics_param_none(), true));
}

static void layer_slice(mics_model *model)
{
    layer_of_slice(model, 1, 2);
}

static void layer_slice_beyond(mics_model *model)
{
    layer_of_slice(model, 2, 2);
}

static void layer_slice_before(mics_model *model)
{
    layer_of_slice(model, -1, 2);
}

static const mistake mistakes[] = {
    {{.layer = layer_other_router}, "must be made by a router of 8 experts"},
    {{.layer = layer_plain_experts}, "must be of a unit of 4 experts"},
    {{.layer = layer_fewer_experts}, "is no parameter of the first of 4 experts"},
    {{.layer = layer_no_experts}, "unit experts: 0 experts"},
    {{.layer = layer_uneven_experts}, "its 2 experts have other parameters than each other"},
    {{.layer = layer_unused_experts}, "parameter experts.0 is not used by any op"},
    {{.layer = layer_slice_beyond}, "no parameter can be slice 2 of 2 of stack"},
    {{.layer = layer_slice_before}, "no parameter can be slice -1 of 2 of stack"},
};

static void test_mistakes(void **state)
{
    (void)state;
    mics_memory *memory = NULL;
    ASSERT_OK(mics_memory_open(&memory));
    ASSERT_OK(build(memory, (parts){.layer = layer_slice}));
    check_mistakes(memory, mistakes, sizeof mistakes / sizeof mistakes[0]);
    assert_int_equal(mics_memory_close(memory), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_mistakes)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
