// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Muon over ranks: every sharding gives one rank's losses, with all that fixture.h checks, and each
// matrix is made orthogonal once a step in each optimizer group.
#include "fixture.h"
#include "mics/core/schedule.h"
#include "ops/kernels.h"
#include <stdatomic.h>

enum { STEPS = FIXTURE_STEPS_RUN < 4 ? FIXTURE_STEPS_RUN : 4 };

// One layer has fewer matrices than there are ranks; five are more units than most have.
static const char one_layer[] =
    "{\"model_type\": \"gpt2\", \"n_layer\": 1, \"n_head\": 3, \"n_embd\": 12, "
    "\"n_positions\": 19, \"vocab_size\": 29, \"tie_word_embeddings\": %s}";
static const char five_layers[] =
    "{\"model_type\": \"llama\", \"num_hidden_layers\": 5, \"num_attention_heads\": 4, "
    "\"num_key_value_heads\": 2, \"hidden_size\": 16, \"intermediate_size\": 20, "
    "\"max_position_embeddings\": 19, \"vocab_size\": 29, \"tie_word_embeddings\": %s}";

// ---- kernels that count ----

static atomic_llong matrices, matrix_elems;
static mics_kernels counting;

static void count_update(const mics_exec *at, const mics_optimizer_update *update)
{
    if (update->phase == MICS_UPDATE_ORTHOGONALISE) {
        atomic_fetch_add(&matrices, 1);
        atomic_fetch_add(&matrix_elems, update->rows * update->columns);
    }
    mics_kernels_get(NULL)->update[MICS_OPTIMIZER_MUON](at, update);
}

static void count_model(const fixture_run *run, int64_t *count_out, int64_t *elems_out)
{
    *count_out = *elems_out = 0;
    for (int32_t u = 0; u < run->model->unit_count; u++) {
        for (int32_t p = 0; p < run->model->units[u].param_count; p++) {
            const mics_param *param = &run->model->units[u].params[p];
            int64_t row = 0, rows = 0;
            for (int32_t part = 0;
                 param->hidden && mics_param_next_matrix(param, &part, &row, &rows);) {
                ++*count_out;
                *elems_out += rows * param->shape[1];
            }
        }
    }
}

// ---- runs ----

static fixture_run one_rank(const char *config)
{
    fixture_run run = {.want = {.config = config,
                                .ranks = 1,
                                .nodes = 1,
                                .sharding = {1, 1, 1},
                                .sequences = 24,
                                .micro_steps = 1,
                                .steps = STEPS,
                                .prefetch = 1,
                                .kernels = &counting,
                                .optimizer = fixture_optimizers[MICS_OPTIMIZER_MUON],
                                .clip = 0.5f}};
    fixture_go(&run);
    return run;
}

static void check_losses(const fixture_run *run, const fixture_run *reference)
{
    for (int32_t step = 0; step < STEPS; step++) {
        const double loss = run->losses[step], expected = reference->losses[step];
        if (!(fabs(loss - expected) <= 1e-4 * expected))
            fail_msg("%d ranks, %d nodes, %d|%d|%d: step %d: loss %.9g, one rank has %.9g",
                     (int)run->want.ranks, (int)run->want.nodes, (int)run->want.sharding.params,
                     (int)run->want.sharding.grads, (int)run->want.sharding.optimizer,
                     (int)step + 1, loss, expected);
    }
}

static void check_run(fixture_run *run, const fixture_run *reference)
{
    mics_memory *memory = NULL;
    int64_t count = 0, elems = 0;
    ASSERT_OK(mics_memory_open(&memory));
    fixture_open(memory, run);
    count_model(run, &count, &elems);
    fixture_close(run);
    assert_int_equal(mics_memory_close(memory), 0);
    atomic_store(&matrices, 0);
    atomic_store(&matrix_elems, 0);
    fixture_go(run);
    const int64_t times = (int64_t)STEPS * (run->want.ranks / run->want.sharding.optimizer);
    assert_true(count > 0);
    assert_int_equal(atomic_load(&matrices), times * count);
    assert_int_equal(atomic_load(&matrix_elems), times * elems);
    check_losses(run, reference);
}

static int check_family(const char *config, int32_t ranks, const fixture_run *reference)
{
    int cases = 0;
    for (int32_t p = 1; p <= ranks; p++) {
        for (int32_t g = p; g <= ranks; g += p) {
            for (int32_t o = g; o <= ranks; o += g) {
                if (ranks % o != 0)
                    continue;
                fixture_run run = {.want = reference->want};
                run.want.config = config;
                run.want.ranks = ranks;
                run.want.nodes = cases % 2 == 0 && ranks % 4 == 0 ? ranks / 2 : 1;
                run.want.sharding = (mics_sharding){p, g, o};
                run.want.prefetch = cases % 3;
                run.want.hierarchical = cases % 3 != 2;
                run.want.coalesce_below = cases % 4 == 3 ? 1 << 20 : 0;
                check_run(&run, reference);
                cases++;
            }
        }
    }
    return cases;
}

// 24 sequences are a whole number a rank but for 5 and 7, which have 35.
static void check_model(const char *config)
{
    counting = *mics_kernels_get(NULL);
    counting.update[MICS_OPTIMIZER_MUON] = count_update;
    fixture_run reference = one_rank(config);
    int cases = 0;
    for (int32_t ranks = 1; ranks <= 8; ranks++) {
        if (24 % ranks == 0)
            cases += check_family(config, ranks, &reference);
    }
    reference.want.sequences = 35;
    fixture_go(&reference);
    cases += check_family(config, 5, &reference) + check_family(config, 7, &reference);
    assert_true(cases > 40);
}

static void test_more_ranks_than_matrices(void **state)
{
    (void)state;
    check_model(one_layer);
}

static void test_more_units_than_ranks(void **state)
{
    (void)state;
    check_model(five_layers);
}

// The same file, seed and mesh: the same bits.
static void test_bits_repeat(void **state)
{
    (void)state;
    counting = *mics_kernels_get(NULL);
    fixture_run first = one_rank(five_layers);
    first.want.ranks = 4;
    first.want.nodes = 2;
    first.want.sharding = (mics_sharding){2, 2, 4};
    fixture_run again = {.want = first.want};
    fixture_go(&first);
    fixture_go(&again);
    for (int32_t step = 0; step < STEPS; step++)
        assert_true(first.losses[step] == again.losses[step] &&
                    first.norms[step] == again.norms[step]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_more_ranks_than_matrices),
        cmocka_unit_test(test_more_units_than_ranks),
        cmocka_unit_test(test_bits_repeat),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
