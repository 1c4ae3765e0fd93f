// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Training under every choice of algorithms: the fixture checks after each step that replicas have
// the same bits, and that bytes, exchanges and memory are the ledger's. How parameters are gathered
// has no say in the numbers; the order in which gradients are summed has.
#include "fixture.h"
#include "mics/measure.h"
#include <math.h>

static const struct {
    int32_t ranks, nodes;
    mics_sharding sharding;
} meshes[] = {
    {4, 2, {4, 4, 4}},
    {8, 4, {4, 8, 8}},
    {4, 1, {4, 4, 4}},
    {4, 2, {2, 4, 4}},
};

static fixture_run trained(size_t mesh, mics_comm_dtype wire, const mics_collective_choice *choices,
                           int32_t count)
{
    fixture_run run = {.want = {.ranks = meshes[mesh].ranks,
                                .nodes = meshes[mesh].nodes,
                                .sharding = meshes[mesh].sharding,
                                .sequences = 16,
                                .micro_steps = 2,
                                .steps = 3,
                                .prefetch = 1,
                                .clip = 1,
                                .params_dtype = {wire, wire},
                                .grads_dtype = {wire, wire},
                                .library = true,
                                .choice_count = count}};
    memcpy(run.want.choices, choices, (size_t)count * sizeof *choices);
    fixture_go(&run);
    return run;
}

static bool same_losses(const fixture_run *a, const fixture_run *b)
{
    return memcmp(a->losses, b->losses, sizeof a->losses) == 0 &&
           memcmp(a->norms, b->norms, sizeof a->norms) == 0 && a->eval_loss == b->eval_loss;
}

// What "auto" makes of a table: gathers by it, reductions in two stages.
static fixture_run trained_by(size_t mesh, mics_comm_dtype wire, const mics_timings *timings)
{
    mics_collective_choice choices[MICS_CHOICES];
    const int32_t count = mics_measure_choose(timings, false, choices);
    return trained(mesh, wire, choices, count);
}

// Two sizes, with the given algorithms the fastest.
static mics_timings table(mics_algorithm small, mics_algorithm large)
{
    mics_timings timings = {.row_count = 2};
    const mics_algorithm fastest[] = {small, large};
    for (int i = 0; i < 2; i++) {
        mics_timing_row *row = &timings.rows[i];
        row->max_bytes = i == 0 ? 4096 : 1 << 20;
        for (int op = 0; op < MICS_MEASURE_OPS; op++) {
            row->of[op].bytes = row->max_bytes;
            for (int a = 0; a < MICS_ALGORITHMS; a++)
                row->of[op].us[a] = a == (int)fastest[i] ? 10 : 20;
        }
    }
    return timings;
}

static void test_gathers_by_any_table_give_the_same_bits(void **state)
{
    (void)state;
    static const mics_algorithm pairs[][2] = {
        {MICS_ALGORITHM_RING, MICS_ALGORITHM_RING},
        {MICS_ALGORITHM_LIBRARY, MICS_ALGORITHM_LIBRARY},
        {MICS_ALGORITHM_LIBRARY, MICS_ALGORITHM_TWO_STAGE},
        {MICS_ALGORITHM_TWO_STAGE, MICS_ALGORITHM_RING},
    };
    static const mics_comm_dtype wires[] = {MICS_COMM_FP32, MICS_COMM_BF16};
    for (size_t mesh = 0; mesh < sizeof meshes / sizeof meshes[0]; mesh++) {
        for (int w = 0; w < 2; w++) {
            const mics_timings usual = table(MICS_ALGORITHM_TWO_STAGE, MICS_ALGORITHM_TWO_STAGE);
            const fixture_run reference = trained_by(mesh, wires[w], &usual);
            for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++) {
                const mics_timings other = table(pairs[i][0], pairs[i][1]);
                const fixture_run run = trained_by(mesh, wires[w], &other);
                if (!same_losses(&run, &reference))
                    fail_msg("mesh %d, wire %s, small by %s, large by %s: losses differ", (int)mesh,
                             mics_comm_dtype_text(wires[w]), mics_algorithm_text(pairs[i][0]),
                             mics_algorithm_text(pairs[i][1]));
            }
        }
    }
}

// The order of sums is another, and so are the last bits; nothing more.
static void test_reductions_by_another_algorithm(void **state)
{
    (void)state;
    static const mics_collective_choice choices[][2] = {
        {{4096, MICS_ALGORITHM_TWO_STAGE, MICS_ALGORITHM_TWO_STAGE},
         {SIZE_MAX, MICS_ALGORITHM_TWO_STAGE, MICS_ALGORITHM_TWO_STAGE}},
        {{4096, MICS_ALGORITHM_TWO_STAGE, MICS_ALGORITHM_RING},
         {SIZE_MAX, MICS_ALGORITHM_RING, MICS_ALGORITHM_TWO_STAGE}},
        {{4096, MICS_ALGORITHM_LIBRARY, MICS_ALGORITHM_TWO_STAGE},
         {SIZE_MAX, MICS_ALGORITHM_TWO_STAGE, MICS_ALGORITHM_RING}},
        {{4096, MICS_ALGORITHM_RING, MICS_ALGORITHM_RING},
         {SIZE_MAX, MICS_ALGORITHM_RING, MICS_ALGORITHM_RING}},
    };
    for (size_t mesh = 0; mesh < sizeof meshes / sizeof meshes[0]; mesh++) {
        const fixture_run reference = trained(mesh, MICS_COMM_FP32, choices[0], 2);
        for (size_t i = 1; i < sizeof choices / sizeof choices[0]; i++) {
            const fixture_run run = trained(mesh, MICS_COMM_FP32, choices[i], 2);
            for (int step = 0; step < run.want.steps; step++)
                assert_true(fabs(run.losses[step] - reference.losses[step]) <=
                            1e-5 * reference.losses[step]);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gathers_by_any_table_give_the_same_bits),
        cmocka_unit_test(test_reductions_by_another_algorithm),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
