// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Frozen parameters and adapters: under every sharding the same losses as on one rank, and all that
// fixture.h checks of bytes, memory and replicas. What is frozen stays, and what trains has the
// gradients that it has where all train.
#include "fixture.h"
#include "mics/builder.h"
#include <fnmatch.h>

enum { STEPS = FIXTURE_STEPS_RUN < 5 ? FIXTURE_STEPS_RUN : 5 };

static const char *const qv[] = {"q_proj", "v_proj"};
static const char *const qkvo[] = {"q_proj", "k_proj", "v_proj", "o_proj"};
static const char *const head[] = {"lm_head"};
static const mics_lora_spec all_linear = {.rank = 3, .alpha = 6};
static const mics_lora_spec some = {.rank = 2,
                                    .alpha = 4,
                                    .rank_stabilized = true,
                                    .targets = qv,
                                    .target_count = 2,
                                    .saved = head,
                                    .saved_count = 1};
static const mics_lora_spec attention = {.rank = 3, .alpha = 6, .targets = qkvo, .target_count = 4};
static const mics_lora_spec dropped = {.rank = 2, .alpha = 4, .dropout = 0.2};

static const char mixture[] =
    "{\"model_type\": \"mixtral\", \"num_hidden_layers\": 2, \"num_attention_heads\": 4, "
    "\"num_key_value_heads\": 2, \"hidden_size\": 16, \"intermediate_size\": 32, "
    "\"num_local_experts\": 4, \"num_experts_per_tok\": 2, \"max_position_embeddings\": 19, "
    "\"vocab_size\": 29, \"router_aux_loss_coef\": 0.02, \"tie_word_embeddings\": %s}";

static fixture_run run_of(const fixture_case *kind, int32_t ranks, int32_t nodes,
                          mics_sharding sharding, int32_t micro_steps)
{
    fixture_run run = {.want = *kind};
    run.want.ranks = ranks;
    run.want.nodes = nodes;
    run.want.sharding = sharding;
    run.want.sequences = 48;
    run.want.micro_steps = micro_steps;
    run.want.steps = STEPS;
    run.want.prefetch = 1;
    run.want.clip = 0.5F;
    fixture_go(&run);
    return run;
}

static void check_like(const fixture_run *run, const fixture_run *reference)
{
    for (int32_t step = 0; step < STEPS; step++) {
        if (!(fabs(run->losses[step] - reference->losses[step]) <= 1e-5 * reference->losses[step]))
            fail_msg("%d ranks, %d|%d|%d: step %d: loss %.9g, one rank has %.9g",
                     (int)run->want.ranks, (int)run->want.sharding.params,
                     (int)run->want.sharding.grads, (int)run->want.sharding.optimizer,
                     (int)step + 1, run->losses[step], reference->losses[step]);
    }
}

static void check_family(const fixture_case *kind)
{
    static const struct {
        int32_t ranks, nodes;
        mics_sharding sharding;
        int32_t micro_steps;
    } cases[] = {
        {2, 1, {1, 1, 1}, 2}, {2, 1, {1, 2, 2}, 1}, {2, 2, {2, 2, 2}, 2}, {3, 1, {3, 3, 3}, 2},
        {4, 2, {2, 2, 2}, 2}, {4, 2, {2, 2, 4}, 3}, {4, 2, {1, 1, 2}, 1}, {4, 2, {4, 4, 4}, 2},
        {4, 2, {1, 4, 4}, 2}, {8, 4, {2, 4, 8}, 3}, {8, 2, {4, 4, 4}, 1},
    };
    const fixture_run reference = run_of(kind, 1, 1, (mics_sharding){1, 1, 1}, 2);
    // Two steps, under sanitizers, may not show it.
    assert_true(STEPS < 5 || reference.losses[STEPS - 1] < reference.losses[0]);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        fixture_case want = *kind;
        want.hierarchical = i % 2 == 0;
        want.recompute = i % 3 == 1;
        want.coalesce_below = i % 4 == 2 ? 1 << 20 : 0;
        want.layered_micro_steps = i % 3 == 2 ? 2 : 0;
        want.share_params = i % 5 == 4;
        const fixture_run run =
            run_of(&want, cases[i].ranks, cases[i].nodes, cases[i].sharding, cases[i].micro_steps);
        check_like(&run, &reference);
    }
}

static void test_patterns(void **state)
{
    (void)state;
    check_family(&(fixture_case){.trainable = "*.h.1.*"});
    check_family(&(fixture_case){.trainable = "*wte*"}); // the head too, which is tied
    check_family(&(fixture_case){.trainable = "[!w]*"});
    check_family(&(fixture_case){.trainable = "*.bias"});
    check_family(
        &(fixture_case){.config = fixture_decoder, .untied = true, .trainable = "model.norm*"});
}

static void test_adapters(void **state)
{
    (void)state;
    check_family(&(fixture_case){.lora = &all_linear});
    check_family(&(fixture_case){.config = fixture_decoder, .untied = true, .lora = &some});
    check_family(&(fixture_case){.config = fixture_decoder, .lora = &dropped});
}

// Adapters; and experts that train above others that are frozen, or only something above all.
static void test_experts(void **state)
{
    (void)state;
    const fixture_case kinds[] = {
        {.config = mixture, .untied = true, .lora = &attention},
        {.config = mixture, .untied = true, .trainable = "*.layers.1.*"},
        {.config = mixture, .untied = true, .trainable = "*.layers.0.self_attn.*"},
        {.config = mixture, .untied = true, .trainable = "*.gate.*"},
        {.config = mixture, .untied = true, .trainable = "lm_head*"},
    };
    check_family(&kinds[0]);
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        const fixture_run reference = run_of(&kinds[i], 1, 1, (mics_sharding){1, 1, 1}, 2);
        fixture_case spread = kinds[i];
        spread.experts = 2;
        const fixture_run run = run_of(&spread, 4, 2, (mics_sharding){2, 2, 4}, 2);
        check_like(&run, &reference);
    }
}

static void test_mixed_precision(void **state)
{
    (void)state;
    const fixture_case kind = {
        .config = fixture_decoder, .untied = true, .lora = &all_linear, .dtype = MICS_DTYPE_BF16};
    const fixture_run one = run_of(&kind, 1, 1, (mics_sharding){1, 1, 1}, 2);
    const fixture_run four = run_of(&kind, 4, 2, (mics_sharding){2, 2, 4}, 2);
    for (int32_t step = 0; step < STEPS; step++)
        assert_true(fabs(four.losses[step] - one.losses[step]) < 2e-2 * one.losses[step]);
    // What is frozen computes the same: its statistics are fp32, whoever reads them.
    const fixture_case all = {.config = mixture, .dtype = MICS_DTYPE_BF16};
    fixture_case last = all;
    last.trainable = "*.layers.1.*";
    const fixture_run all_train = run_of(&all, 1, 1, (mics_sharding){1, 1, 1}, 2);
    const fixture_run last_trains = run_of(&last, 1, 1, (mics_sharding){1, 1, 1}, 2);
    assert_memory_equal(&last_trains.losses[0], &all_train.losses[0], sizeof(double));
}

// ---- against a run in which all train ----

typedef struct values {
    fixture_run run;
    float *params;
} values;

static values values_after(const char *trainable, int32_t steps)
{
    values v = {.run = {.want = {.ranks = 1,
                                 .nodes = 1,
                                 .sharding = {1, 1, 1},
                                 .sequences = 12,
                                 .micro_steps = 2,
                                 .steps = steps,
                                 .prefetch = 1,
                                 .trainable = trainable}}};
    v.params = calloc(1 << 16, sizeof *v.params);
    assert_non_null(v.params);
    v.run.params = v.params;
    return v;
}

// Where a parameter lies in what fixture_collect has, elements; its own count in *elems_out.
static int64_t place_of(const mics_model *model, const char *name, int64_t *elems_out)
{
    int64_t at = 0;
    for (int32_t u = 0; u < model->unit_count; u++) {
        for (int32_t p = 0; p < model->units[u].param_count; p++) {
            const mics_param *param = &model->units[u].params[p];
            *elems_out = param->elems;
            if (strcmp(param->name, name) == 0)
                return at + param->offset;
        }
        at += model->units[u].elems;
    }
    fail_msg("no parameter %s", name);
    return -1;
}

static void go(mics_memory *memory, values *v)
{
    fixture_open(memory, &v->run);
    ranks_run_ok(1, fixture_rank, &v->run);
}

// AdamW moves each number by its own gradient alone, so after one step from the same weights what
// trains is where it is if all train, to the bit; after several steps what is frozen is where it was.
static void test_gradients_and_rest(void **state)
{
    (void)state;
    static const char pattern[] = "*h.1.mlp.c_fc.*";
    mics_memory *memory = NULL;
    ASSERT_OK(mics_memory_open(&memory));
    values all = values_after(NULL, 1), some_train = values_after(pattern, 1),
           first = values_after(pattern, 0), later = values_after(pattern, 3);
    values *const runs[] = {&all, &some_train, &first, &later};
    for (int i = 0; i < 4; i++)
        go(memory, runs[i]);
    int64_t trained = 0, elems = 0;
    for (int32_t u = 0; u < all.run.model->unit_count; u++) {
        for (int32_t p = 0; p < all.run.model->units[u].param_count; p++) {
            const char *name = all.run.model->units[u].params[p].name;
            const int64_t at = place_of(all.run.model, name, &elems);
            const int64_t there = place_of(some_train.run.model, name, &elems);
            const size_t bytes = (size_t)elems * sizeof(float);
            const bool trains = fnmatch(pattern, name, 0) == 0;
            const bool moved = memcmp(first.params + there, later.params + there, bytes) != 0;
            if (moved != trains)
                fail_msg("%s %s", name, trains ? "does not train" : "is frozen, and changed");
            if (trains && memcmp(all.params + at, some_train.params + there, bytes) != 0)
                fail_msg("%s has another gradient than where all train", name);
            trained += trains ? elems : 0;
        }
    }
    assert_true(trained > 0 && trained == mics_model_trained_count(later.run.model));
    for (int i = 0; i < 4; i++) {
        fixture_close(&runs[i]->run);
        free(runs[i]->params);
    }
    assert_int_equal(mics_memory_close(memory), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gradients_and_rest), cmocka_unit_test(test_patterns),
        cmocka_unit_test(test_adapters),           cmocka_unit_test(test_experts),
        cmocka_unit_test(test_mixed_precision),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
