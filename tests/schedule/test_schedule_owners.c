// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Who makes which matrix orthogonal, over meshes of 1 to 64 ranks: each matrix once in its optimizer
// group, by owners that are as busy as can be, for bytes and FLOPs that follow from the model.
#include "mics/core/ledger.h"
#include "mics/core/schedule.h"
#include "model/from_config.h"
#include "models.h"
#include <math.h>

static const mics_batch one_token = {.sequences = 1, .length = 1, .threads = 1};

static mics_schedule *open_schedule(mics_memory *memory, const mics_model *model, int32_t ranks,
                                    mics_sharding sharding, int32_t experts,
                                    mics_optimizer_kind optimizer)
{
    mics_schedule *schedule = NULL;
    mics_schedule_spec spec = {.model = model,
                               .batch = one_token,
                               .micro_steps = 1,
                               .prefetch = 1,
                               .optimizer = optimizer};
    ASSERT_OK(mics_mesh_init(ranks, ranks % 4 == 0 ? ranks / 4 : 1, sharding, &spec.mesh));
    if (experts > 1)
        ASSERT_OK(mics_mesh_spread_experts(&spec.mesh, experts));
    ASSERT_OK(mics_schedule_open(memory, &spec, &schedule));
    ASSERT_OK(mics_schedule_validate(schedule));
    return schedule;
}

// Of 5 iterations: two GEMMs of side x side x longer, one of side x side x side.
static double flops_of(double rows, double columns)
{
    const double side = fmin(rows, columns), longer = fmax(rows, columns);
    return 5 * 2 * (2 * side * side * longer + side * side * side);
}

// ---- matrices ----

// Of the whole unit, whoever keeps which of its experts.
static double unit_flops(const mics_unit *unit, int64_t *elems_out)
{
    double flops = 0;
    *elems_out = 0;
    for (int32_t p = 0; p < unit->param_count; p++) {
        int64_t row = 0, rows = 0;
        for (int32_t part = 0; unit->params[p].hidden &&
                               mics_param_next_matrix(&unit->params[p], &part, &row, &rows);) {
            flops += flops_of((double)rows, (double)unit->params[p].shape[1]);
            *elems_out += rows * unit->params[p].shape[1];
        }
    }
    return flops;
}

// All of the unit's matrices are there, each in a place of its own.
static void check_matrices(const mics_schedule *s, int32_t unit)
{
    int64_t elems = 0, want = 0;
    double flops = 0;
    const double all = unit_flops(&s->spec.model->units[unit], &want);
    for (int32_t m = s->matrix_at[unit]; m < s->matrix_at[unit + 1]; m++) {
        const mics_matrix *one = &s->matrices[m];
        elems += one->rows * one->columns;
        flops += one->flops;
        assert_true(one->first >= 0 &&
                    one->first + one->rows * one->columns <= s->padded_elems[unit]);
        for (int32_t other = s->matrix_at[unit]; other < m; other++)
            assert_true(s->matrices[other].first +
                                s->matrices[other].rows * s->matrices[other].columns <=
                            one->first ||
                        one->first + one->rows * one->columns <= s->matrices[other].first);
    }
    assert_int_equal(elems * s->experts[unit], want);
    assert_true(fabs(flops * s->experts[unit] - all) <= 1e-9 * all);
}

// ---- rounds ----

// The busiest owner's FLOPs; together all owners' are those of the round's units.
static double busiest_of(const mics_schedule *s, int32_t unit)
{
    const mics_round round = s->rounds[unit];
    double loads[64] = {0}, all = 0, sum = 0, most = 0;
    for (int32_t i = 0; i < round.count; i++) {
        const int32_t of = s->members[round.at + i];
        int64_t elems = 0;
        all += unit_flops(&s->spec.model->units[of], &elems) / s->experts[of];
        for (int32_t m = s->matrix_at[of]; m < s->matrix_at[of + 1]; m++)
            loads[s->matrices[m].owner] += s->matrices[m].flops;
    }
    for (int32_t owner = 0; owner < s->sharding[unit].optimizer; owner++) {
        sum += loads[owner];
        most = fmax(most, loads[owner]);
    }
    assert_true(fabs(sum - all) <= 1e-9 * all);
    return most;
}

// Steps of the round of a unit, which is its first.
static double check_round(const mics_schedule *s, int32_t unit)
{
    const mics_step_list *list = &s->lists[MICS_PHASE_TRAIN];
    const int64_t owners = s->sharding[unit].optimizer;
    const double most = busiest_of(s, unit);
    int32_t computed = 0, sent = 0;
    for (int32_t i = 0; i < list->count; i++) {
        const mics_step *step = &list->steps[i];
        if (step->unit != unit)
            continue;
        if (step->kind == MICS_STEP_ORTHOGONALISE) {
            computed++;
            assert_true(fabs(step->flops - most) <= 1e-9 * most);
        }
        if (step->kind == MICS_STEP_MOMENTUM_TO_OWNERS || step->kind == MICS_STEP_MOMENTUM_BACK) {
            const mics_bytes bytes = mics_schedule_step_bytes(s, step, 0);
            sent++;
            assert_int_equal(bytes.intra + bytes.inter,
                             (owners - 1) * (s->padded_elems[unit] / owners) * 4);
        }
    }
    assert_int_equal(computed, 1);
    assert_int_equal(sent, owners > 1 ? 2 : 0);
    return most;
}

static void check(mics_memory *memory, const mics_model *model, int32_t ranks,
                  mics_sharding sharding, int32_t experts)
{
    mics_schedule *s = open_schedule(memory, model, ranks, sharding, experts, MICS_OPTIMIZER_MUON);
    mics_schedule *plain =
        open_schedule(memory, model, ranks, sharding, experts, MICS_OPTIMIZER_ADAMW);
    double flops = mics_schedule_flops(plain, MICS_PHASE_TRAIN);
    int64_t elems = 0;
    for (int32_t u = 0; u < s->spec.model->unit_count; u++) {
        check_matrices(s, u);
        if (s->rounds[u].count > 0 && s->rounds[u].index == 0)
            flops += check_round(s, u);
        const int64_t buffers = s->sharding[u].optimizer > 1 ? 2 : 1;
        if (s->rounds[u].count > 0 && buffers * s->padded_elems[u] > elems)
            elems = buffers * s->padded_elems[u];
    }
    assert_true(fabs(mics_schedule_flops(s, MICS_PHASE_TRAIN) - flops) <= 1e-9 * flops);
    assert_true(elems > 0 && s->momentum_elems == elems);
    mics_schedule_close(plain);
    mics_schedule_close(s);
}

// Every P | G | O; `experts`: every E too.
static int check_shardings(mics_memory *memory, const mics_model *model, int32_t ranks,
                           int32_t experts)
{
    int cases = 0;
    for (int32_t p = 1; p <= ranks; p++)
        for (int32_t g = p; g <= ranks; g += p)
            for (int32_t o = g; o <= ranks; o += g)
                for (int32_t e = 1; e <= experts; e *= 2) {
                    if (ranks % o != 0 || p % e != 0)
                        continue;
                    check(memory, model, ranks, (mics_sharding){p, g, o}, e);
                    cases++;
                }
    return cases;
}

// Fewer layers than ranks, as many, and more, which divide or do not.
static void test_every_matrix_once(void **state)
{
    (void)state;
    static const int layers[] = {1, 2, 3, 8, 11};
    mics_memory *memory = NULL;
    int cases = 0;
    ASSERT_OK(mics_memory_open(&memory));
    for (size_t i = 0; i < sizeof layers / sizeof layers[0]; i++) {
        mics_model *model = model_gpt2(memory, layers[i], true);
        for (int32_t ranks = 1; ranks <= 8; ranks++)
            cases += check_shardings(memory, model, ranks, 1);
        check(memory, model, 64, (mics_sharding){8, 8, 64}, 1);
        check(memory, model, 64, (mics_sharding){2, 4, 16}, 1);
        mics_model_close(model);
    }
    assert_true(cases > 200);
    assert_int_equal(mics_memory_close(memory), 0);
}

static void test_experts(void **state)
{
    (void)state;
    static const char mixture[] =
        "{\"model_type\": \"mixtral\", \"num_hidden_layers\": 3, \"num_attention_heads\": 2, "
        "\"num_key_value_heads\": 1, \"hidden_size\": 8, \"intermediate_size\": 6, "
        "\"num_local_experts\": 4, \"num_experts_per_tok\": 2, "
        "\"max_position_embeddings\": 16, \"vocab_size\": 23}";
    mics_memory *memory = NULL;
    mics_json *json = NULL;
    mics_model *model = NULL;
    int cases = 0;
    ASSERT_OK(mics_memory_open(&memory));
    ASSERT_OK(mics_json_parse(memory, "mixture", mixture, strlen(mixture), &json));
    ASSERT_OK(mics_model_from_config(memory, json, false, &model));
    mics_json_close(json);
    for (int32_t ranks = 1; ranks <= 8; ranks *= 2)
        cases += check_shardings(memory, model, ranks, 4);
    assert_true(cases > 40);
    mics_model_close(model);
    assert_int_equal(mics_memory_close(memory), 0);
}

// ---- balance ----

static double most_of_all(mics_memory *memory, int layers, int32_t ranks, double *layer_out,
                          double *largest_out)
{
    mics_model *model = model_gpt2(memory, layers, true);
    const mics_sharding sharding = {1, 1, ranks};
    mics_schedule *s = open_schedule(memory, model, ranks, sharding, 1, MICS_OPTIMIZER_MUON);
    double most = 0;
    int64_t elems = 0;
    for (int32_t u = 0; u < model->unit_count; u++) {
        if (s->rounds[u].count > 0 && s->rounds[u].index == 0)
            most += busiest_of(s, u);
    }
    *layer_out = unit_flops(&model->units[1], &elems);
    *largest_out = s->matrices[s->matrix_at[1]].flops;
    mics_schedule_close(s);
    mics_model_close(model);
    return most;
}

// 8 layers on 8 ranks are one each. With 2 layers 4 ranks share each: no less than its largest matrix.
// 11 layers on 8 ranks are two rounds.
static void test_owners_are_as_busy(void **state)
{
    (void)state;
    mics_memory *memory = NULL;
    double layer = 0, largest = 0;
    ASSERT_OK(mics_memory_open(&memory));
    assert_true(most_of_all(memory, 16, 8, &layer, &largest) == 2 * layer);
    assert_true(most_of_all(memory, 16, 1, &layer, &largest) == 16 * layer);
    assert_true(most_of_all(memory, 2, 8, &layer, &largest) == largest);
    assert_true(most_of_all(memory, 1, 8, &layer, &largest) == largest);
    assert_true(most_of_all(memory, 11, 8, &layer, &largest) == 2 * layer);
    const double two = most_of_all(memory, 1, 2, &layer, &largest);
    assert_true(two >= layer / 2 && two <= layer / 2 + largest);
    assert_int_equal(mics_memory_close(memory), 0);
}

// Owners follow from O alone, so all ranks and both halves of a resume have the same ones.
static void test_owners_know_no_other_degree(void **state)
{
    (void)state;
    mics_memory *memory = NULL;
    ASSERT_OK(mics_memory_open(&memory));
    mics_model *model = model_gpt2(memory, 5, true);
    mics_schedule *a =
        open_schedule(memory, model, 8, (mics_sharding){1, 1, 4}, 1, MICS_OPTIMIZER_MUON);
    mics_schedule *b =
        open_schedule(memory, model, 8, (mics_sharding){2, 4, 4}, 1, MICS_OPTIMIZER_MUON);
    const int32_t count = a->matrix_at[model->unit_count];
    assert_true(count > 0 && count == b->matrix_at[model->unit_count]);
    for (int32_t m = 0; m < count; m++)
        assert_true(a->matrices[m].first == b->matrices[m].first &&
                    a->matrices[m].owner == b->matrices[m].owner);
    mics_schedule_close(a);
    mics_schedule_close(b);
    mics_model_close(model);
    assert_int_equal(mics_memory_close(memory), 0);
}

static void test_failing_allocations(void **state)
{
    (void)state;
    mics_memory *memory = NULL;
    mics_schedule *schedule = NULL;
    mics_status status = MICS_ERR_MEMORY;
    int64_t n = 0;
    ASSERT_OK(mics_memory_open(&memory));
    mics_model *model = model_gpt2(memory, 3, true);
    mics_schedule_spec spec = {
        .model = model, .batch = one_token, .micro_steps = 1, .optimizer = MICS_OPTIMIZER_MUON};
    ASSERT_OK(mics_mesh_init(4, 1, (mics_sharding){2, 2, 4}, &spec.mesh));
    while (status != MICS_OK) {
        mics_memory_fail_after(memory, ++n);
        status = mics_schedule_open(memory, &spec, &schedule);
        mics_memory_fail_after(memory, 0);
        assert_true(status == MICS_OK || status == MICS_ERR_MEMORY);
    }
    assert_true(n > 20);
    mics_schedule_close(schedule);
    mics_model_close(model);
    assert_int_equal(mics_memory_close(memory), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_matrix_once),
        cmocka_unit_test(test_experts),
        cmocka_unit_test(test_owners_are_as_busy),
        cmocka_unit_test(test_owners_know_no_other_degree),
        cmocka_unit_test(test_failing_allocations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
