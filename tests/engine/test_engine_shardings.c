// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Every sharding of the family against one rank: the same loss curve, and in every step all that
// fixture.h checks.
#include "fixture.h"
#include <math.h>

static const float clip = 0.5f; // acts in some steps of these runs and not in others

// A mesh does the same in each step, so that a few tell a wrong one: the first, one behind an update,
// and those behind updates that were deferred and moments that are not zero. Some train for longer,
// test_long_curves. Under sanitizers 8 ranks train GPT-2 alone.
enum {
    FEW_STEPS = FIXTURE_STEPS_RUN < 4 ? FIXTURE_STEPS_RUN : 4,
    EIGHT_OF_OTHERS = FIXTURE_STEPS_RUN == FIXTURE_STEPS,
};

static fixture_run one_rank(int32_t sequences, int32_t micro_steps, bool untied, int32_t steps)
{
    fixture_run run = {.want = {.ranks = 1,
                                .nodes = 1,
                                .sharding = {1, 1, 1},
                                .sequences = sequences,
                                .micro_steps = micro_steps,
                                .steps = steps,
                                .prefetch = 1,
                                .untied = untied,
                                .clip = clip}};
    fixture_go(&run);
    return run;
}

static void check_curve(const fixture_run *run, const fixture_run *reference)
{
    for (int32_t step = 0; step < run->want.steps; step++) {
        double loss = run->losses[step], expected = reference->losses[step];
        if (!(fabs(loss - expected) <= 1e-4 * expected))
            fail_msg("%d ranks, %d nodes, %d|%d|%d, %d micro-steps: step %d: loss %.9g, one rank "
                     "has %.9g",
                     (int)run->want.ranks, (int)run->want.nodes, (int)run->want.sharding.params,
                     (int)run->want.sharding.grads, (int)run->want.sharding.optimizer,
                     (int)run->want.micro_steps, (int)step + 1, loss, expected);
    }
    if (FIXTURE_STEPS_RUN < FIXTURE_STEPS)
        return;
    if (run->want.steps == FIXTURE_STEPS)
        assert_true(run->losses[run->want.steps - 1] < 0.9 * run->losses[0]);
    if (run->want.micro_steps ==
        reference->want.micro_steps) // the evaluation is of one micro-step's samples
        assert_true(fabs(run->eval_loss - reference->eval_loss) <= 1e-4 * reference->eval_loss);
}

// Where the members of a partition group see each other's shards: nothing that they send or hold to
// gather, and the same bits.
static void check_shared(const fixture_run *run)
{
    fixture_run shared = {.want = run->want};
    if (run->want.sharding.params == 1 ||
        run->want.sharding.params > run->want.ranks / run->want.nodes)
        return;
    shared.want.share_params = true;
    fixture_go(&shared);
    for (int32_t step = 0; step < run->want.steps; step++) {
        if (shared.losses[step] != run->losses[step] || shared.norms[step] != run->norms[step])
            fail_msg("%d ranks, %d nodes, %d|%d|%d: step %d: loss %.17g shared, %.17g gathered",
                     (int)run->want.ranks, (int)run->want.nodes, (int)run->want.sharding.params,
                     (int)run->want.sharding.grads, (int)run->want.sharding.optimizer,
                     (int)step + 1, shared.losses[step], run->losses[step]);
    }
    assert_true(shared.eval_loss == run->eval_loss);
}

// Every P | G | O of `ranks`, each on every number of nodes that it fits.
static void check_family(int32_t ranks, int32_t sequences, int32_t micro_steps,
                         const fixture_run *reference)
{
    int32_t cases = 0;
    for (int32_t p = 1; p <= ranks; p++) {
        for (int32_t g = p; g <= ranks; g += p) {
            for (int32_t o = g; o <= ranks; o += g) {
                if (ranks % o != 0 || o % g != 0 || g % p != 0)
                    continue;
                fixture_run run = {.want = reference->want};
                run.want.ranks = ranks;
                run.want.nodes = cases % 2 == 0 && ranks % 2 == 0 ? ranks / 2 : 1;
                run.want.sharding = (mics_sharding){p, g, o};
                run.want.sequences = sequences;
                run.want.micro_steps = micro_steps;
                run.want.prefetch = cases % 3;
                run.want.recompute = cases % 4 == 1;
                run.want.hierarchical = cases % 3 != 2;
                fixture_go(&run);
                check_curve(&run, reference);
                check_shared(&run);
                cases++;
            }
        }
    }
    assert_true(cases >= 1);
}

static void test_family_up_to_4_ranks(void **state)
{
    (void)state;
    const fixture_run reference = one_rank(48, 2, false, FEW_STEPS);
    for (int32_t ranks = 1; ranks <= 4; ranks++) {
        check_family(ranks, 48, 1, &reference);
        check_family(ranks, 48, 2, &reference);
    }
}

static void test_family_of_8_ranks(void **state)
{
    (void)state;
    const fixture_run reference = one_rank(48, 2, false, FEW_STEPS);
    check_family(8, 48, 3, &reference);
}

// They learn, so the curves say something.
static void test_long_curves(void **state)
{
    (void)state;
    const fixture_run reference = one_rank(48, 2, false, FIXTURE_STEPS_RUN);
    static const struct {
        int32_t ranks, nodes;
        mics_sharding sharding;
    } cases[] = {{1, 1, {1, 1, 1}}, {3, 1, {1, 3, 3}}, {4, 2, {2, 2, 4}}, {8, 4, {4, 8, 8}}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        fixture_run run = {.want = reference.want};
        run.want.ranks = cases[i].ranks;
        run.want.nodes = cases[i].nodes;
        run.want.sharding = cases[i].sharding;
        run.want.hierarchical = true;
        fixture_go(&run);
        check_curve(&run, &reference);
        check_shared(&run);
    }
}

// Groups over several nodes, in two stages: a partition group over nodes, and gradient groups that
// hold partition groups which are smaller than a node, as large, and larger.
static void test_two_stages(void **state)
{
    (void)state;
    const fixture_run reference = one_rank(48, 2, false, FEW_STEPS);
    static const struct {
        int32_t ranks, nodes;
        mics_sharding sharding;
    } cases[] = {
        {4, 2, {4, 4, 4}}, {4, 2, {1, 4, 4}}, {4, 2, {2, 4, 4}},
        {8, 2, {8, 8, 8}}, {8, 4, {8, 8, 8}}, {8, 4, {4, 4, 8}},
        {8, 2, {2, 8, 8}}, {8, 4, {4, 8, 8}}, {8, 4, {4, 4, 4}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        fixture_run run = {.want = reference.want};
        run.want.ranks = cases[i].ranks;
        run.want.nodes = cases[i].nodes;
        run.want.sharding = cases[i].sharding;
        run.want.micro_steps = cases[i].ranks == 8 ? 3 : 2;
        run.want.hierarchical = true;
        fixture_go(&run);
        check_curve(&run, &reference);
    }
}

static void test_untied_head(void **state)
{
    (void)state;
    const fixture_run reference = one_rank(48, 2, true, FEW_STEPS);
    check_family(2, 48, 2, &reference);
    check_family(4, 48, 2, &reference);
}

static void test_decoder(void **state)
{
    (void)state;
    fixture_run reference = {.want = {.config = fixture_decoder,
                                      .ranks = 1,
                                      .nodes = 1,
                                      .sharding = {1, 1, 1},
                                      .sequences = 48,
                                      .micro_steps = 2,
                                      .steps = FEW_STEPS,
                                      .prefetch = 1,
                                      .untied = true,
                                      .clip = clip}};
    fixture_go(&reference);
    for (int32_t ranks = 1; ranks <= 4; ranks++)
        check_family(ranks, 48, 2, &reference);
    if (EIGHT_OF_OTHERS)
        check_family(8, 48, 3, &reference);
}

// Masks belong to the step's sequences, wherever and in whatever micro-batches these are computed.
static void test_dropout(void **state)
{
    (void)state;
    fixture_run reference = {.want = {.config = fixture_llama_dropout,
                                      .ranks = 1,
                                      .nodes = 1,
                                      .sharding = {1, 1, 1},
                                      .sequences = 48,
                                      .micro_steps = 2,
                                      .steps = FEW_STEPS,
                                      .prefetch = 1,
                                      .clip = clip}};
    fixture_go(&reference);
    for (int32_t ranks = 1; ranks <= 4; ranks++)
        check_family(ranks, 48, 2, &reference);
    if (EIGHT_OF_OTHERS)
        check_family(8, 48, 3, &reference);
    reference.want.config = fixture_gpt2_dropout;
    fixture_go(&reference);
    check_family(1, 48, 1, &reference);
    check_family(4, 48, 3, &reference);
}

// Rules that are not AdamW's; its own is that of all other cases. What a rank keeps is counted as
// everywhere.
static void test_optimizers(void **state)
{
    (void)state;
    for (int kind = 0; kind < MICS_OPTIMIZER_KINDS; kind++) {
        if (kind == MICS_OPTIMIZER_ADAMW)
            continue;
        fixture_run reference = {.want = {.ranks = 1,
                                          .nodes = 1,
                                          .sharding = {1, 1, 1},
                                          .sequences = 48,
                                          .micro_steps = 2,
                                          .steps = FEW_STEPS,
                                          .prefetch = 1,
                                          .optimizer = fixture_optimizers[kind],
                                          .clip = clip}};
        fixture_go(&reference);
        for (int32_t ranks = 1; ranks <= 4; ranks *= 2)
            check_family(ranks, 48, 2, &reference);
        if (EIGHT_OF_OTHERS)
            check_family(8, 48, 3, &reference);
    }
}

// States in fewer bits, as in fixture.h wherever and however many: bits of replicas, ledger, bytes.
// Blocks of 8 bits lie elsewhere on every mesh, and both round, so losses are near those of fp32, at
// rates that make the most of 20 steps.
static void test_packed_states(void **state)
{
    (void)state;
    static const struct {
        int32_t ranks, nodes;
        mics_sharding sharding;
        mics_dtype dtype;
        bool shared;
    } cases[] = {
        {1, 1, {1, 1, 1}, MICS_DTYPE_FP32, false}, {2, 1, {1, 1, 2}, MICS_DTYPE_BF16, false},
        {4, 2, {2, 2, 4}, MICS_DTYPE_FP32, true},  {4, 2, {2, 2, 2}, MICS_DTYPE_BF16, false},
        {4, 1, {1, 1, 1}, MICS_DTYPE_FP32, false},
    };
    for (int kind = 0; kind < MICS_OPTIMIZER_KINDS; kind++) {
        fixture_run reference = one_rank(48, 2, false, FIXTURE_STEPS_RUN);
        reference.want.optimizer = fixture_optimizers[kind];
        if (mics_optimizer_def_get(reference.want.optimizer.kind)->matrix_workspace != NULL)
            continue;
        fixture_go(&reference);
        for (int i = 0; i < 2 * (int)(sizeof cases / sizeof *cases); i++) {
            fixture_run run = {.want = reference.want};
            run.want.state_dtype = i % 2 == 0 ? MICS_STATE_8BIT : MICS_STATE_BF16;
            run.want.ranks = cases[i / 2].ranks;
            run.want.nodes = cases[i / 2].nodes;
            run.want.sharding = cases[i / 2].sharding;
            run.want.dtype = cases[i / 2].dtype;
            run.want.share_params = cases[i / 2].shared;
            fixture_go(&run);
            for (int32_t step = 0; step < run.want.steps; step++)
                if (!(fabs(run.losses[step] - reference.losses[step]) <=
                      0.05 * reference.losses[step]))
                    fail_msg("%s as %s, case %d, step %d: loss %.9g, %.9g in fp32",
                             mics_optimizer_def_get(run.want.optimizer.kind)->name,
                             mics_state_dtype_text(run.want.state_dtype), i / 2, (int)step + 1,
                             run.losses[step], reference.losses[step]);
        }
    }
}

static void test_64_ranks(void **state)
{
    (void)state;
    const fixture_run reference = one_rank(64, 1, false, FEW_STEPS);
    static const mics_sharding shardings[] = {
        {8, 8, 8}, {1, 1, 1}, {2, 2, 64}, {8, 64, 64}, {64, 64, 64}};
    for (size_t i = 0; i < sizeof shardings / sizeof shardings[0]; i++) {
        fixture_run run = {.want = reference.want};
        run.want.ranks = 64;
        run.want.nodes = 8;
        run.want.sharding = shardings[i];
        fixture_go(&run);
        check_curve(&run, &reference);
    }
}

// Layered accumulation against none: all that fixture.h checks, and the same losses but for the
// order of sums. The order is the same where no sum over ranks comes between (G = 1), nor a tied
// table's gradients of another op: then the bits are.
static void check_breadth(const fixture_run *one, int32_t layered_micro_steps)
{
    fixture_run run = {.want = one->want};
    run.want.layered_micro_steps = layered_micro_steps;
    fixture_go(&run);
    const bool same = one->want.sharding.grads == 1 && one->want.untied;
    for (int32_t step = 0; step < run.want.steps; step++) {
        const double loss = run.losses[step], expected = one->losses[step];
        if (same ? loss != expected || run.norms[step] != one->norms[step]
                 : !(fabs(loss - expected) <= 1e-5 * expected))
            fail_msg("%d|%d|%d, %d of %d micro-steps side by side: step %d: loss %.17g, one after "
                     "the other %.17g",
                     (int)run.want.sharding.params, (int)run.want.sharding.grads,
                     (int)run.want.sharding.optimizer, (int)layered_micro_steps,
                     (int)run.want.micro_steps, (int)step + 1, loss, expected);
    }
    if (same) // an evaluation has one in flight
        assert_true(run.eval_loss == one->eval_loss);
    assert_true(fabs(run.eval_loss - one->eval_loss) <= 1e-5 * one->eval_loss);
}

static void test_breadth(void **state)
{
    (void)state;
    static const mics_sharding shardings[] = {{1, 1, 1}, {1, 1, 4}, {1, 2, 2}, {2, 2, 2},
                                              {2, 2, 4}, {2, 4, 4}, {4, 4, 4}};
    static const int32_t breadths[] = {2, 3, 9}; // of 5: turns of 1, 2, 2, of 2, 3, of 5
    for (int32_t i = 0; i < 7; i++) {
        fixture_run one = {.want = {.ranks = 4,
                                    .nodes = i % 3 == 2 ? 1 : 2,
                                    .sharding = shardings[i],
                                    .sequences = 40,
                                    .micro_steps = 5,
                                    .steps = FIXTURE_STEPS_RUN < 4 ? FIXTURE_STEPS_RUN : 4,
                                    .prefetch = i % 3,
                                    .recompute = i % 5 < 2,
                                    .untied = i % 4 == 1,
                                    .config = i % 2 == 1 ? fixture_gpt2_dropout : NULL,
                                    .hierarchical = i % 4 < 2,
                                    .share_params = i % 3 == 1,
                                    .clip = clip}};
        fixture_go(&one);
        for (int b = 0; b < 3; b++)
            check_breadth(&one, breadths[b]);
    }
}

// One layered group of all micro-steps sums them on each rank before ranks are summed, as G = 1
// does with its accumulators: so shardings that then sum over all ranks at once have the same bits.
static void test_layered_sums_ranks_last(void **state)
{
    (void)state;
    static const mics_sharding shardings[] = {{1, 1, 4}, {1, 4, 4}, {2, 4, 4}, {4, 4, 4}};
    fixture_run runs[4];
    for (int32_t i = 0; i < 8; i++) {
        fixture_run *run = &runs[i % 4];
        *run = (fixture_run){.want = {.ranks = 4,
                                      .nodes = 2,
                                      .sharding = shardings[i % 4],
                                      .sequences = 48,
                                      .micro_steps = 3,
                                      .layered_micro_steps = 3,
                                      .steps = FIXTURE_STEPS_RUN < 4 ? FIXTURE_STEPS_RUN : 4,
                                      .prefetch = 1,
                                      .untied = i / 4 == 1}};
        fixture_go(run);
        for (int32_t step = 0; step < run->want.steps; step++)
            assert_true(run->losses[step] == runs[0].losses[step]);
    }
}

// Peak memory is exact under recomputation and without prefetch as well, and both take less.
static void test_memory_choices(void **state)
{
    (void)state;
    mics_memory *memory = NULL;
    ASSERT_OK(mics_memory_open(&memory));
    size_t totals[3];
    for (int i = 0; i < 3; i++) {
        fixture_run run = {.want = {.ranks = 4,
                                    .nodes = 2,
                                    .sharding = {4, 4, 4},
                                    .sequences = 64,
                                    .micro_steps = 1,
                                    .prefetch = i == 1 ? 0 : 1,
                                    .recompute = i == 2}};
        fixture_open(memory, &run);
        totals[i] = run.schedule->ledger.total;
        fixture_close(&run);
    }
    assert_true(totals[1] < totals[0]);
    assert_true(totals[2] < totals[0]);
    assert_int_equal(mics_memory_close(memory), 0);
}

typedef struct eval_case {
    fixture_run run;
    double loss;
} eval_case;

static mics_status evaluate(ranks_self *self)
{
    eval_case *one = (eval_case *)self->arg;
    fixture_source source = {.run = &one->run, .rank = 0, .step = 1};
    const mics_batch_source read = {.read = fixture_read, .ctx = &source};
    mics_engine *engine = NULL;
    mics_step_result result;
    mics_status status = MICS_OK;
    MICS_TRY(fixture_count(self, &one->run));
    MICS_TRY(fixture_open_engine(self, &one->run, &engine));
    mics_engine_init_random(engine, 1);
    MICS_TRY_OUT(mics_engine_eval(engine, &read, &result));
    one->loss = result.loss;
    if (one->run.schedule->spec.evaluation_only) {
        MICS_TRY_OUT(fixture_check_memory(self, &one->run));
        if (mics_engine_step(engine, 1, 1e-3f, &read, &result) != MICS_ERR_INVALID ||
            mics_engine_complete(engine) != MICS_ERR_INVALID ||
            mics_engine_optimizer_shard_get(engine, 0).states[0] != NULL)
            status = mics_fail(MICS_ERR_COMM, "an engine for evaluation trains");
    }
out:
    mics_engine_close(engine);
    return status;
}

// Without gradients and optimizer state the loss has the same bits, and memory is what the ledger
// says.
static void test_evaluation_only(void **state)
{
    (void)state;
    mics_memory *memory = NULL;
    ASSERT_OK(mics_memory_open(&memory));
    double losses[2];
    for (int only = 0; only < 2; only++) {
        eval_case one = {.run = {.want = {.ranks = 1,
                                          .nodes = 1,
                                          .sharding = {1, 1, 1},
                                          .sequences = 8,
                                          .micro_steps = 1}}};
        fixture_open(memory, &one.run);
        mics_schedule_spec spec = one.run.schedule->spec;
        mics_schedule_close(one.run.schedule);
        spec.evaluation_only = only == 1;
        spec.recompute = mics_recompute_all(only == 1);
        ASSERT_OK(mics_schedule_open(memory, &spec, &one.run.schedule));
        assert_int_equal(one.run.schedule->ledger.bytes[MICS_MEM_OPTIMIZER] == 0, only == 1);
        assert_int_equal(one.run.schedule->ledger.bytes[MICS_MEM_GRADS] == 0, only == 1);
        ranks_run_ok(1, evaluate, &one);
        losses[only] = one.loss;
        fixture_close(&one.run);
    }
    assert_memory_equal(&losses[0], &losses[1], sizeof(double));
    assert_int_equal(mics_memory_close(memory), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_family_up_to_4_ranks),
        cmocka_unit_test(test_family_of_8_ranks),
        cmocka_unit_test(test_long_curves),
        cmocka_unit_test(test_optimizers),
        cmocka_unit_test(test_packed_states),
        cmocka_unit_test(test_two_stages),
        cmocka_unit_test(test_untied_head),
        cmocka_unit_test(test_breadth),
        cmocka_unit_test(test_layered_sums_ranks_last),
        cmocka_unit_test(test_decoder),
        cmocka_unit_test(test_dropout),
        cmocka_unit_test(test_64_ranks),
        cmocka_unit_test(test_memory_choices),
        cmocka_unit_test(test_evaluation_only),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
