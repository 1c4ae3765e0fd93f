// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Activations in host memory: the same bits as in the arena, for every number of units. In every
// step fixture.h checks bytes and memory.
#include "fixture.h"
#include "later.h"
#include "mics/builder.h"

static const char gpt2[] =
    "{\"model_type\": \"gpt2\", \"n_layer\": 7, \"n_head\": 3, \"n_embd\": 12, "
    "\"n_positions\": 19, \"vocab_size\": 29, \"tie_word_embeddings\": %s, \"embd_pdrop\": 0.1, "
    "\"attn_pdrop\": 0.2, \"resid_pdrop\": 0.15}";
// Layers with experts and without them keep different numbers.
static const char mixture[] =
    "{\"model_type\": \"mixtral\", \"num_hidden_layers\": 6, \"num_attention_heads\": 2, "
    "\"num_key_value_heads\": 1, \"hidden_size\": 12, \"intermediate_size\": 10, "
    "\"num_local_experts\": 4, \"num_experts_per_tok\": 2, \"output_router_logits\": true, "
    "\"max_position_embeddings\": 19, \"vocab_size\": 29, \"tie_word_embeddings\": %s}";
// Norms end each layer, and its backward reads what they made.
static const char post_norm[] =
    "{\"model_type\": \"bert\", \"num_hidden_layers\": 6, \"num_attention_heads\": 3, "
    "\"hidden_size\": 12, \"intermediate_size\": 20, \"max_position_embeddings\": 19, "
    "\"vocab_size\": 29, \"type_vocab_size\": 2, \"tie_word_embeddings\": %s}";

static const mics_lora_spec lora = {.rank = 3, .alpha = 6};

enum { PARAMS = 40000 };
static float params[2][PARAMS];

static void go(fixture_run *run, fixture_case want, int32_t units, float *params_out)
{
    *run = (fixture_run){.want = want, .params = params_out};
    run->want.offload_units = units;
    memset(params_out, 0, sizeof params[0]);
    fixture_go(run);
}

// The most units that may be in host memory.
static int32_t count_units(fixture_case want)
{
    mics_memory *memory = NULL;
    fixture_run run = {.want = want};
    ASSERT_OK(mics_memory_open(&memory));
    fixture_open(memory, &run);
    const int32_t most = run.schedule->offload_max;
    int64_t elems = 0;
    for (int32_t u = 0; u < run.model->unit_count; u++)
        elems += run.model->units[u].elems;
    assert_true(elems <= PARAMS);
    fixture_close(&run);
    assert_int_equal(mics_memory_close(memory), 0);
    return most;
}

// With some units in host memory, of all that may be there.
static void check_case(fixture_case want)
{
    fixture_run kept, moved;
    want.steps = FIXTURE_STEPS_RUN < 3 ? FIXTURE_STEPS_RUN : 3;
    want.prefetch = want.ranks % 3;
    want.clip = 0.5f;
    const int32_t most = count_units(want);
    assert_true(most >= 1);
    go(&kept, want, 0, params[0]);
    for (int32_t units = 1; units <= most; units += most > 2 ? most - 1 : 1) {
        go(&moved, want, units, params[1]);
        assert_memory_equal(kept.losses, moved.losses, sizeof kept.losses);
        assert_memory_equal(kept.norms, moved.norms, sizeof kept.norms);
        assert_memory_equal(params[0], params[1], sizeof params[0]);
        assert_true(kept.eval_loss == moved.eval_loss);
        assert_true(moved.results[0].copied_bytes > 0 && kept.results[0].copied_bytes == 0);
    }
}

static const struct {
    int32_t ranks, nodes;
    mics_sharding sharding;
} meshes[] = {{1, 1, {1, 1, 1}}, {2, 1, {2, 2, 2}}, {2, 2, {1, 1, 2}}, {4, 2, {2, 2, 4}}};

static void check_meshes(fixture_case want)
{
    for (size_t i = 0; i < sizeof meshes / sizeof meshes[0]; i++) {
        want.ranks = meshes[i].ranks;
        want.nodes = meshes[i].nodes;
        want.sharding = meshes[i].sharding;
        want.sequences = 24;
        want.micro_steps = 3;
        want.recompute = i % 2 == 1;
        check_case(want);
        want.recompute = !want.recompute;
        want.layered_micro_steps = 2;
        check_case(want);
        want.layered_micro_steps = 0;
    }
}

static void test_precisions(void **state)
{
    (void)state;
    check_meshes((fixture_case){.config = gpt2});
    check_meshes((fixture_case){.config = gpt2, .untied = true, .dtype = MICS_DTYPE_BF16});
    check_meshes((fixture_case){.config = post_norm, .masked = true, .both_ways = true});
}

static void test_frozen(void **state)
{
    (void)state;
    check_meshes((fixture_case){.config = gpt2, .lora = &lora});
    check_meshes((fixture_case){.config = gpt2, .untied = true, .trainable = "*.h.[2-6].*"});
}

static void test_experts(void **state)
{
    (void)state;
    for (int32_t experts = 1; experts <= 2; experts++) {
        fixture_case want = {.config = mixture,
                             .ranks = 4,
                             .nodes = 2,
                             .sharding = {2, 2, 4},
                             .sequences = 16,
                             .micro_steps = 2,
                             .experts = experts};
        check_case(want);
        want.recompute = true;
        want.layered_micro_steps = 2;
        check_case(want);
    }
}

static const char llama[] =
    "{\"model_type\": \"llama\", \"num_hidden_layers\": 6, \"num_attention_heads\": 4, "
    "\"num_key_value_heads\": 2, \"hidden_size\": 16, \"intermediate_size\": 20, "
    "\"max_position_embeddings\": 19, \"vocab_size\": 29, \"attention_dropout\": 0.2, "
    "\"tie_word_embeddings\": %s}";

// Beside layers that are recomputed whole, others in part, and sequences that ranks share.
static void test_beside_others(void **state)
{
    (void)state;
    static const mics_recompute forms[] = {
        {2, false, false, true}, {3, true, true, false}, {0, false, true, true}};
    for (int i = 0; i < 6; i++) {
        check_case((fixture_case){.config = i % 2 == 0 ? llama : gpt2,
                                  .ranks = 4,
                                  .nodes = 2,
                                  .sharding = {2, 4, 4},
                                  .sequence = i % 2 == 0 ? 2 : 1,
                                  .sequences = 16,
                                  .micro_steps = 2,
                                  .layered_micro_steps = 1 + i % 3,
                                  .parts = forms[i / 2]});
    }
}

static mics_status open_later(ranks_self *self, const mics_schedule *schedule,
                              mics_device **device_out)
{
    (void)self;
    return later_open(mics_engine_events(schedule), device_out);
}

static void test_device(void **state)
{
    (void)state;
    static const mics_dtype dtypes[] = {MICS_DTYPE_FP32, MICS_DTYPE_BF16};
    for (int i = 0; i < 2; i++)
        check_meshes((fixture_case){.config = gpt2,
                                    .open_device = open_later,
                                    .kernels = &later_table,
                                    .dtype = dtypes[i]});
}

// More than can be there are refused.
static void test_too_many(void **state)
{
    (void)state;
    mics_memory *memory = NULL;
    mics_schedule *schedule = NULL;
    fixture_run run = {.want = {.config = gpt2,
                                .ranks = 1,
                                .nodes = 1,
                                .sharding = {1, 1, 1},
                                .sequences = 2,
                                .micro_steps = 1}};
    ASSERT_OK(mics_memory_open(&memory));
    fixture_open(memory, &run);
    mics_schedule_spec spec = run.schedule->spec;
    spec.offload_units = run.schedule->offload_max + 1;
    assert_int_equal(mics_schedule_open(memory, &spec, &schedule), MICS_ERR_INVALID);
    spec.offload_units = -1;
    assert_int_equal(mics_schedule_open(memory, &spec, &schedule), MICS_ERR_INVALID);
    fixture_close(&run);
    assert_int_equal(mics_memory_close(memory), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_precisions), cmocka_unit_test(test_frozen),
        cmocka_unit_test(test_experts),    cmocka_unit_test(test_beside_others),
        cmocka_unit_test(test_device),     cmocka_unit_test(test_too_many),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
