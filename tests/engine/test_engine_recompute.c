// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Recomputation changes no bit, however much of it there is: each family with each form of it has
// the losses, norms and parameters of the run that keeps everything. fixture.h checks memory.
#include "fixture.h"
#include "mics/builder.h"

static const mics_recompute forms[] = {
    {0, false, true, false},  {0, false, false, true}, {0, false, true, true},
    {1, false, false, false}, {1, true, false, false}, {1, false, true, false},
    {1, true, true, true},    {2, true, false, false}, {MICS_RECOMPUTE_ALL, false, false, false}};
enum { FORMS = sizeof forms / sizeof *forms, PARAMS = 40000 };

typedef struct mesh {
    int32_t ranks, nodes;
    mics_sharding sharding;
    int32_t layered_micro_steps, prefetch;
} mesh;

static void go(const fixture_case *kind, const mesh *on, mics_recompute form, fixture_run *run)
{
    fixture_case want = *kind;
    want.ranks = on->ranks;
    want.nodes = on->nodes;
    want.sharding = on->sharding;
    want.layered_micro_steps = on->layered_micro_steps;
    want.prefetch = on->prefetch;
    want.sequences = 32;
    want.micro_steps = 2;
    want.steps = 2;
    want.clip = 0.5F;
    want.parts = form;
    *run = (fixture_run){.want = want, .params = run->params};
    fixture_go(run);
}

static void check_family(fixture_case kind)
{
    static const mesh meshes[] = {{1, 1, {1, 1, 1}, 0, 1},
                                  {2, 1, {1, 2, 2}, 0, 1},
                                  {2, 1, {2, 2, 2}, 2, 0},
                                  {4, 2, {2, 2, 4}, 2, 1},
                                  {8, 2, {4, 4, 8}, 0, 2}};
    static float kept[PARAMS], made[PARAMS];
    for (size_t i = 0; i < sizeof meshes / sizeof *meshes; i++) {
        const mesh *on = &meshes[i];
        fixture_run plain = {.params = kept};
        if (kind.experts > 1 && on->sharding.params % kind.experts != 0)
            continue;
        go(&kind, on, mics_recompute_all(false), &plain);
        for (size_t f = i % 2; f < FORMS; f += on->ranks < 8 ? 1 : 4) {
            fixture_run run = {.params = made};
            go(&kind, on, forms[f], &run);
            assert_memory_equal(run.losses, plain.losses, sizeof plain.losses);
            assert_memory_equal(run.norms, plain.norms, sizeof plain.norms);
            assert_true(run.eval_loss == plain.eval_loss);
            assert_memory_equal(kept, made, sizeof kept);
        }
    }
}

#define SHAPE                                                                                      \
    "\"num_hidden_layers\": 3, \"num_attention_heads\": 4, \"hidden_size\": 16, "                  \
    "\"intermediate_size\": 20, \"max_position_embeddings\": 19, \"vocab_size\": 29, "
#define TIED "\"tie_word_embeddings\": %s}"
#define GROUPED SHAPE "\"num_key_value_heads\": 2, "

static const char llama[] =
    "{\"model_type\": \"llama\", " GROUPED "\"attention_dropout\": 0.2, " TIED;
static const char neox[] =
    "{\"model_type\": \"gpt_neox\", " SHAPE
    "\"attention_dropout\": 0.1, \"hidden_dropout\": 0.15, \"rotary_pct\": 0.5, " TIED;
static const char qwen3[] = "{\"model_type\": \"qwen3\", " GROUPED "\"head_dim\": 4, " TIED;
static const char bert[] =
    "{\"model_type\": \"bert\", \"architectures\": [\"BertForMaskedLM\"], " SHAPE
    "\"hidden_dropout_prob\": 0.1, \"attention_probs_dropout_prob\": 0.1}";
static const char mixtral[] =
    "{\"model_type\": \"mixtral\", " GROUPED
    "\"num_local_experts\": 4, \"num_experts_per_tok\": 2, \"output_router_logits\": true, "
    "\"router_jitter_noise\": 0.1, " TIED;
static const char qwen2_moe[] =
    "{\"model_type\": \"qwen2_moe\", " GROUPED
    "\"num_experts\": 4, \"num_experts_per_tok\": 2, \"moe_intermediate_size\": 6, "
    "\"shared_expert_intermediate_size\": 10, \"output_router_logits\": true, " TIED;

static void test_families(void **state)
{
    (void)state;
    const char *const configs[] = {llama, neox, qwen3, mixtral, qwen2_moe, fixture_decoder};
    check_family((fixture_case){.config = fixture_gpt2_dropout, .threads = 2});
    check_family((fixture_case){.config = bert, .masked = true});
    for (size_t i = 0; i < sizeof configs / sizeof *configs; i++)
        check_family((fixture_case){.config = configs[i], .untied = i % 2 == 0});
}

static void test_experts(void **state)
{
    (void)state;
    check_family((fixture_case){.config = mixtral, .experts = 2});
    check_family((fixture_case){.config = qwen2_moe, .experts = 2, .dtype = MICS_DTYPE_BF16});
}

static void test_bf16(void **state)
{
    (void)state;
    const char *const configs[] = {fixture_gpt2_dropout, llama, qwen2_moe};
    for (int i = 0; i < 6; i++)
        check_family((fixture_case){
            .config = configs[i % 3], .dtype = MICS_DTYPE_BF16, .wide_residual = i >= 3});
}

static void test_frozen(void **state)
{
    (void)state;
    static const char *const targets[] = {"q_proj", "v_proj", "down_proj"};
    const mics_lora_spec lora = {
        .rank = 2, .alpha = 4, .dropout = 0.1, .targets = targets, .target_count = 3};
    check_family((fixture_case){.config = llama, .lora = &lora});
    check_family((fixture_case){.config = llama, .lora = &lora, .dtype = MICS_DTYPE_BF16});
    check_family((fixture_case){.config = llama, .trainable = "*layers.1.*"});
    check_family((fixture_case){.config = mixtral, .trainable = "*.gate.*"});
}

static void test_pairs(void **state)
{
    (void)state;
    check_family(
        (fixture_case){.config = llama, .preference = {.kind = MICS_PREFERENCE_DPO, .beta = 0.1}});
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_families), cmocka_unit_test(test_experts),
        cmocka_unit_test(test_bf16),     cmocka_unit_test(test_frozen),
        cmocka_unit_test(test_pairs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
