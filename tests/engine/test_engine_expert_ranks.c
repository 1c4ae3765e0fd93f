// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Ranks that keep different experts: every sharding with every number of them has the losses of one
// rank, and in every step all that fixture.h checks.
#include "fixture.h"
#include <math.h>

// Of fp32's losses: two experts in each other's place change them by 3e-5.
static const double TOLERANCE = 2e-6;

// 4 experts, 2 for each token, in both layers, and losses of the router.
static const char config[] =
    "{\"model_type\": \"mixtral\", \"num_hidden_layers\": 2, \"num_attention_heads\": 2, "
    "\"num_key_value_heads\": 1, \"hidden_size\": 12, \"intermediate_size\": 10, "
    "\"num_local_experts\": 4, \"num_experts_per_tok\": 2, \"output_router_logits\": true, "
    "\"max_position_embeddings\": 19, \"vocab_size\": 29, \"tie_word_embeddings\": %s}";

static fixture_run one_rank(const char *of, mics_optimizer optimizer, mics_dtype dtype)
{
    fixture_run run = {.want = {.config = of,
                                .ranks = 1,
                                .nodes = 1,
                                .sharding = {1, 1, 1},
                                .sequences = 48,
                                .micro_steps = 2,
                                .steps = FIXTURE_STEPS_RUN < 8 ? FIXTURE_STEPS_RUN : 8,
                                .prefetch = 1,
                                .optimizer = optimizer,
                                .dtype = dtype,
                                .clip = 0.5f}};
    fixture_go(&run);
    return run;
}

// `tolerance` of the losses.
static void check_curve(const fixture_run *run, const fixture_run *reference, double tolerance)
{
    const fixture_case *want = &run->want;
    for (int32_t step = 0; step < want->steps; step++) {
        const double loss = run->losses[step], expected = reference->losses[step];
        if (!(fabs(loss - expected) <= tolerance * expected))
            fail_msg("%d ranks, %d nodes, E = %d, %d|%d|%d, %d micro-steps: step %d: loss %.9g, "
                     "one rank has %.9g",
                     (int)want->ranks, (int)want->nodes, (int)want->experts,
                     (int)want->sharding.params, (int)want->sharding.grads,
                     (int)want->sharding.optimizer, (int)want->micro_steps, (int)step + 1, loss,
                     expected);
    }
}

// What routers did is summed over all ranks' sequences, so it depends on no sharding.
static void check_routers(const fixture_run *run, const fixture_run *reference, double tolerance)
{
    for (int sum = 0; sum < MICS_ROUTER_SUMS; sum++) {
        const double got = run->results[0].router_sums[sum],
                     expected = reference->results[0].router_sums[sum];
        if (!(fabs(got - expected) <= tolerance * expected))
            fail_msg("%d ranks, E = %d: sum %d of the routers is %.9g, one rank has %.9g",
                     (int)run->want.ranks, (int)run->want.experts, sum, got, expected);
    }
}

// A sharding with every E that divides P and the 4 experts, each on some number of nodes.
static int32_t check_sharding(const fixture_case *like, const fixture_run *reference, int32_t cases)
{
    for (int32_t e = 1; e <= 4; e *= 2) {
        if (like->sharding.params % e != 0)
            continue;
        fixture_run run = {.want = *like};
        run.want.experts = e;
        run.want.nodes = cases % 2 == 0 && like->ranks % 2 == 0 ? like->ranks / 2 : 1;
        run.want.prefetch = cases % 3;
        run.want.recompute = cases % 4 == 1;
        run.want.hierarchical = cases % 3 != 2;
        run.want.share_params = cases % 5 == 1;
        run.want.param_persistence_threshold = cases % 7 == 3 ? 1 << 20 : 0;
        run.want.coalesce_below = cases % 7 == 4 ? 1 << 20 : 0;
        run.want.layered_micro_steps = cases % 3 == 0 ? 2 : 0;
        fixture_go(&run);
        const bool bf16 = run.want.dtype == MICS_DTYPE_BF16;
        check_curve(&run, reference, bf16 ? 2e-3 : TOLERANCE);
        check_routers(&run, reference, bf16 ? 2e-2 : TOLERANCE); // close calls of tokens flip
        cases++;
    }
    return cases;
}

static int32_t check_family(int32_t ranks, int32_t micro_steps, const fixture_run *reference,
                            int32_t cases)
{
    for (int32_t p = 1; p <= ranks; p++) {
        for (int32_t g = p; g <= ranks; g += p) {
            for (int32_t o = g; o <= ranks; o += g) {
                if (ranks % o != 0 || o % g != 0)
                    continue;
                fixture_case want = reference->want;
                want.ranks = ranks;
                want.micro_steps = micro_steps;
                want.sharding = (mics_sharding){p, g, o};
                cases = check_sharding(&want, reference, cases);
            }
        }
    }
    return cases;
}

static void test_family(void **state)
{
    (void)state;
    const fixture_run reference = one_rank(config, (mics_optimizer){0}, MICS_DTYPE_FP32);
    int32_t cases = 0;
    for (int32_t ranks = 1; ranks <= 4; ranks++)
        cases = check_family(ranks, 2, &reference, cases);
    cases = check_family(8, 3, &reference, cases);
    assert_true(cases > 40);
}

// Matrices of experts are taken whole, each by those that keep it.
static void test_muon(void **state)
{
    (void)state;
    const fixture_run reference =
        one_rank(config, fixture_optimizers[MICS_OPTIMIZER_MUON], MICS_DTYPE_FP32);
    int32_t cases = check_family(2, 2, &reference, 0);
    cases = check_family(4, 2, &reference, cases);
    assert_true(cases > 10);
}

// Rows and tags in bf16.
static void test_bf16(void **state)
{
    (void)state;
    const fixture_run reference = one_rank(config, (mics_optimizer){0}, MICS_DTYPE_BF16);
    int32_t cases = check_family(2, 2, &reference, 0);
    cases = check_family(4, 2, &reference, cases);
    assert_true(cases > 10);
}

// More experts for a token than a rank keeps: a block has fewer rows than the token has experts.
static void test_many_chosen(void **state)
{
    (void)state;
    static const char chosen[] =
        "{\"model_type\": \"qwen3_moe\", \"num_hidden_layers\": 2, "
        "\"num_attention_heads\": 2, \"num_key_value_heads\": 1, \"hidden_size\": 12, "
        "\"head_dim\": 4, \"moe_intermediate_size\": 6, \"num_experts\": 8, "
        "\"num_experts_per_tok\": 5, \"decoder_sparse_step\": 2, "
        "\"max_position_embeddings\": 19, \"vocab_size\": 29, \"tie_word_embeddings\": %s}";
    const fixture_run reference = one_rank(chosen, (mics_optimizer){0}, MICS_DTYPE_FP32);
    const int32_t cases = check_family(4, 2, &reference, 0);
    assert_true(cases > 5);
}

// GShard's recipe: rows of full experts do not travel, and chance is the same on any rank.
static void test_gshard(void **state)
{
    (void)state;
    static const char gshard[] =
        "{\"model_type\": \"qwen3_moe\", \"num_hidden_layers\": 4, "
        "\"num_attention_heads\": 2, \"num_key_value_heads\": 1, \"hidden_size\": 12, "
        "\"head_dim\": 4, \"moe_intermediate_size\": 6, \"intermediate_size\": 10, "
        "\"num_experts\": 4, \"num_experts_per_tok\": 2, \"norm_topk_prob\": true, "
        "\"decoder_sparse_step\": 2, \"expert_capacity_factor\": 0.8, "
        "\"second_expert_policy\": \"random\", \"router_jitter_noise\": 0.1, "
        "\"output_router_logits\": true, \"max_position_embeddings\": 19, "
        "\"vocab_size\": 29, \"tie_word_embeddings\": %s}";
    const fixture_run reference = one_rank(gshard, (mics_optimizer){0}, MICS_DTYPE_FP32);
    assert_true(reference.results[0].router_sums[MICS_ROUTER_DROPPED] > 0);
    const int32_t cases = check_family(4, 2, &reference, 0);
    assert_true(cases > 5);
}

// Shared experts are of the layer, and their tokens stay.
static void test_shared(void **state)
{
    (void)state;
    static const char shared[] =
        "{\"model_type\": \"qwen2_moe\", \"num_hidden_layers\": 2, "
        "\"num_attention_heads\": 2, \"num_key_value_heads\": 1, \"hidden_size\": 12, "
        "\"moe_intermediate_size\": 6, \"shared_expert_intermediate_size\": 10, "
        "\"num_experts\": 4, \"num_experts_per_tok\": 3, \"expert_capacity_factor\": 0.9, "
        "\"max_position_embeddings\": 19, \"vocab_size\": 29, \"tie_word_embeddings\": %s}";
    const fixture_run reference = one_rank(shared, (mics_optimizer){0}, MICS_DTYPE_FP32);
    assert_true(reference.results[0].router_sums[MICS_ROUTER_DROPPED] > 0);
    const int32_t cases = check_family(4, 2, &reference, 0);
    assert_true(cases > 5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_family), cmocka_unit_test(test_muon),
        cmocka_unit_test(test_bf16),   cmocka_unit_test(test_many_chosen),
        cmocka_unit_test(test_gshard), cmocka_unit_test(test_shared)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
