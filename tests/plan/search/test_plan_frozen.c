// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Plans of models that train in part: memory is the ledger's, bounds are below simulated times,
// extended steps equal simulated ones, and frozen weights cost what they are gathered for.
#include "checks.h"
#include "mics/builder.h"
#include "plan/search/baseline.h"
#include "schedule/ledger.h"

#define ATTENTION "q_proj", "k_proj", "v_proj", "o_proj"

enum { MAX_NAMES = 4 };

// What trains: an adapter of `rank`, or what matches patterns.
typedef struct subject {
    const char *name;
    int experts; // of a layer; 0: llama
    int64_t rank;
    const char *names[MAX_NAMES]; // targets of the adapter, or patterns
    const char *saved;
} subject;

static const subject subjects[] = {
    {"lora, all linears", 0, 8, {NULL}, NULL},
    {"lora and the head", 0, 4, {"q_proj", "down_proj"}, "lm_head"},
    {"the last layer", 0, 0, {"model.layers.2.*", "lm_head.weight"}, NULL},
    {"norms", 0, 0, {"*norm.weight"}, NULL},
    {"the table", 0, 0, {"model.embed_tokens.weight"}, NULL},
    {"lora beside experts", 4, 4, {ATTENTION}, NULL},
    {"experts", 4, 0, {"*.1.*.experts.*", "*.2.*.experts.*"}, NULL},
    {"routers", 4, 0, {"*.gate.weight"}, NULL},
};
enum { SUBJECTS = sizeof subjects / sizeof subjects[0], FIRST_MIXTURE = 5 };

static void take_llama(fixture *f, const char *sizes)
{
    char text[512];
    mics_json *json = NULL;
    const int length = snprintf(text, sizeof text,
                                "{\"model_type\": \"llama\", \"rms_norm_eps\": 1e-5, %s}", sizes);
    mics_model_close(f->model);
    ASSERT_OK(mics_json_parse(f->memory, "model", text, (size_t)length, &json));
    ASSERT_OK(mics_model_from_config(f->memory, json, false, &f->model));
    mics_json_close(json);
    f->request.model = f->model;
}

static void freeze(fixture *f, const subject *s)
{
    int32_t count = 0;
    while (count < MAX_NAMES && s->names[count] != NULL)
        count++;
    const mics_lora_spec lora = {.rank = s->rank,
                                 .alpha = 16,
                                 .targets = s->names,
                                 .target_count = count,
                                 .saved = &s->saved,
                                 .saved_count = s->saved != NULL};
    if (s->rank > 0)
        ASSERT_OK(mics_model_add_lora(f->model, &lora));
    else
        ASSERT_OK(mics_model_freeze(f->model, s->names, count));
    assert_true(mics_model_trained_count(f->model) < mics_model_param_count(f->model));
}

typedef struct machine {
    int nodes, per_node, batch;
    const char *more;
} machine;

static void open_subject(fixture *f, const machine *on, bool bf16, const subject *s)
{
    open_plans(f, on->nodes, on->per_node, on->batch);
    if (s->experts > 0)
        take_mixture(f, s->experts);
    else
        take_llama(f,
                   "\"hidden_size\": 64, \"num_hidden_layers\": 3, \"num_attention_heads\": 4, "
                   "\"num_key_value_heads\": 2, \"intermediate_size\": 160, \"vocab_size\": 700, "
                   "\"max_position_embeddings\": 64");
    freeze(f, s);
    f->request.length = 16;
    f->request.cluster = plan_cluster(f->memory, on->per_node, on->more);
    if (!bf16) {
        f->request.precision = MICS_PRECISION_FP32;
        f->request.math = MICS_MATH_FP32;
    }
}

static void visit_subjects(const machine *on, int first, int count, visitor visit)
{
    for (int i = first; i < first + count; i++) {
        for (int variant = 0; variant < 4; variant++) {
            fixture f;
            open_subject(&f, on, variant % 2 == 1, &subjects[i]);
            f.request.share_params = variant == 0;
            f.request.accelerator = variant == 3;
            f.request.node_memory = variant < 2;
            f.request.optimizer =
                variant == 2 && i % 2 == 0 ? MICS_OPTIMIZER_MUON : MICS_OPTIMIZER_ADAMW;
            // Adapters whole, and the smaller units of frozen weights; or all is sharded.
            f.request.param_persistence_threshold = variant == 2 ? 30000 : 0;
            ASSERT_OK(mics_planner_open(f.memory, &f.request, &f.planner));
            visit_all(&f, visit);
            close_plans(&f);
        }
    }
}

static const machine machines[] = {
    {2, 2, 8, ""}, {4, 1, 8, "\"cores\": 3"}, {3, 2, 6, "\"rings\": 1"}};

static void test_memory(void **state)
{
    (void)state;
    visit_subjects(&machines[0], 0, SUBJECTS, check_memory);
    visit_subjects(&machines[0], 0, SUBJECTS, check_layered);
    visit_subjects(&machines[1], 0, FIRST_MIXTURE, check_memory);
}

// Tables smaller and larger than layers, so the order of gathers says which slots there are: frozen
// weights are gathered as they are, adapters behind their update.
static void test_memory_over_nodes(void **state)
{
    (void)state;
    const subject some[] = {{"lora", 0, 8, {NULL}, NULL},
                            {"large adapters", 0, 96, {"gate_proj", "o_proj"}, NULL},
                            {"the last layers", 0, 0, {"model.layers.[12].*"}, NULL},
                            {"norms and head", 0, 0, {"*norm.weight", "lm_head.weight"}, NULL}};
    for (int vocab = 300; vocab <= 1500; vocab += 300) {
        for (int i = 0; i < 4; i++) {
            char sizes[256];
            fixture f;
            open_plans(&f, 4, 2, 16);
            snprintf(sizes, sizeof sizes,
                     "\"hidden_size\": 64, \"num_hidden_layers\": 3, \"num_attention_heads\": 4, "
                     "\"num_key_value_heads\": 2, \"intermediate_size\": 160, \"vocab_size\": %d, "
                     "\"max_position_embeddings\": 64",
                     vocab);
            take_llama(&f, sizes);
            freeze(&f, &some[i]);
            f.request.precision = MICS_PRECISION_FP32;
            f.request.param_persistence_threshold = 0;
            ASSERT_OK(mics_planner_open(f.memory, &f.request, &f.planner));
            visit_all(&f, check_memory);
            close_plans(&f);
        }
    }
}

static void test_bounds(void **state)
{
    (void)state;
    tightest = sum_of_bounds = 0;
    bounds = 0;
    visit_subjects(&machines[0], 0, SUBJECTS, check_bound);
    visit_subjects(&machines[1], 0, 3, check_bound);
    visit_subjects(&machines[2], 0, 2, check_bound);
    if (tightest < 0.95)
        fail_msg("the tightest bound is %.3f of its time", tightest);
    if (sum_of_bounds < 0.7 * (double)bounds)
        fail_msg("bounds are %.4f of their times on average", sum_of_bounds / (double)bounds);
}

// Updates of adapters run while the frozen table is still being gathered. Where computation is slow,
// hardly anything else is waited for.
static void test_bounds_of_updates_beside_gathers(void **state)
{
    (void)state;
    const subject large = {"large adapters", 0, 64, {NULL}, NULL};
    for (int variant = 0; variant < 2; variant++) {
        fixture f;
        open_subject(&f, &machines[0], variant == 1, &large);
        mics_accelerator *chip = &f.request.cluster.accelerator;
        f.request.cluster.tiers[0].bytes_per_s /= 40;
        f.request.cluster.tiers[0].rank_bytes_per_s /= 40;
        f.request.cluster.tiers[0].slowdown = f.request.cluster.tiers[1].slowdown = 0;
        chip->update_bytes_per_s = 3e9;
        for (int math = 0; math < MICS_MATHS; math++)
            chip->flops_per_s[math] /= 100;
        ASSERT_OK(mics_planner_open(f.memory, &f.request, &f.planner));
        visit_all(&f, check_bound);
        close_plans(&f);
    }
}

static void test_extensions(void **state)
{
    (void)state;
    const machine on = {2, 2, 4 * 9, ""};
    visit_subjects(&on, 0, 1, check_extension);
    visit_subjects(&on, 2, 1, check_extension);
    visit_subjects(&on, FIRST_MIXTURE, 1, check_extension);
}

static void test_search(void **state)
{
    (void)state;
    const mics_plan_space every = {.exhaustive = true};
    for (int i = 0; i < SUBJECTS; i += 5) {
        mics_plan_result *pruned = NULL, *all = NULL;
        fixture f;
        open_subject(&f, &machines[0], true, &subjects[i]);
        ASSERT_OK(mics_planner_open(f.memory, &f.request, &f.planner));
        ASSERT_OK(mics_planner_search(f.planner, NULL, 6, &pruned));
        ASSERT_OK(mics_planner_search(f.planner, &every, 6, &all));
        assert_same_entries(pruned, all);
        mics_plan_result_close(pruned);
        mics_plan_result_close(all);
        close_plans(&f);
    }
}

// Batches count pairs of sequences; Megatron's row is left out.
static void test_preference_pairs(void **state)
{
    (void)state;
    for (int variant = 0; variant < 2; variant++) {
        fixture f;
        mics_plan_entry entry;
        open_subject(&f, &machines[0], variant == 1, &subjects[0]);
        f.request.preference = (mics_preference){.kind = MICS_PREFERENCE_DPO, .beta = 0.1};
        ASSERT_OK(mics_planner_open(f.memory, &f.request, &f.planner));
        visit_all(&f, check_memory);
        visit_all(&f, check_layered);
        visit_all(&f, check_bound);
        ASSERT_OK(mics_planner_baseline(f.planner, NULL, MICS_PLAN_ZERO3, &entry));
        assert_true(entry.tokens == 2.0 * machines[0].batch * 16);
        ASSERT_OK(mics_planner_baseline(f.planner, NULL, MICS_PLAN_MEGATRON, &entry));
        mics_plan_explain(f.planner, NULL, &entry);
        assert_non_null(strstr(entry.why, "not modelled with preference pairs"));
        close_plans(&f);
    }
}

// ---- a fine-tune over slow links ----

static void take_llama3(fixture *f)
{
    take_llama(f,
               "\"hidden_size\": 4096, \"num_hidden_layers\": 32, \"num_attention_heads\": 32, "
               "\"num_key_value_heads\": 8, \"intermediate_size\": 14336, \"vocab_size\": 128256, "
               "\"max_position_embeddings\": 8192");
}

// Llama-3-8B on 4 nodes of 8, 8 micro-steps, adapters of rank 16 beside all linears.
static void open_llama3(fixture *f)
{
    const subject lora = {"lora", 0, 16, {NULL}, NULL};
    open_plans(f, 4, 8, 8 * 32);
    take_llama3(f);
    freeze(f, &lora);
    assert_int_equal(mics_model_trained_count(f->model), 41943040);
    assert_int_equal(mics_model_param_count(f->model), 8030261248 + 41943040);
    f->request.accelerator = true;
    f->request.param_persistence_threshold = 0;
}

static double node_gb(fixture *f, int32_t degree)
{
    const mics_plan_choice choice = {.sharding = {degree, degree, degree},
                                     .micro_batch = 1,
                                     .micro_steps = 8,
                                     .sums_by_ring = true,
                                     .boundary_two_stage = true};
    mics_plan_entry entry;
    ASSERT_OK(mics_planner_evaluate(f->planner, &choice, &entry));
    return (double)entry.sent.inter / f->request.nodes * 1e-9;
}

// ZeRO-3 gathers all weights in each forward, and in each backward those of the layers: the table
// has none, and the head is there still. A ring of 32 ranks crosses out of a node 31 times in 32.
// In mics(8) nothing but the adapters' gradients leaves a node, beside the agreement.
static void test_frozen_weights_stay_inside_nodes(void **state)
{
    (void)state;
    fixture f;
    open_llama3(&f);
    ASSERT_OK(mics_planner_open(f.memory, &f.request, &f.planner));
    const double base = 8030261248.0, table = 128256.0 * 4096, adapters = 41943040;
    const double gathered = 2 * (base - table) + 2 * adapters, reduced = adapters;
    assert_close(node_gb(&f, 32), 8 * 2 * (gathered + reduced) * 31 / 32 * 1e-9, 0.001, "zero3");
    assert_close(node_gb(&f, 8), 2 * 3.0 / 4 * sizeof(float) * adapters * 1e-9, 1e-4, "mics(8)");
    close_plans(&f);
}

// Of the base: forward, and the gradient that passes through, which q, k and v of the first layer
// and their adapters' A lack. Adapters count thrice.
static void test_model_flops(void **state)
{
    (void)state;
    fixture f;
    open_llama3(&f);
    const double length = 2048, qkv = 4096.0 * 4096 + 2 * 1024.0 * 4096;
    const double layer = qkv + 4096.0 * 4096 + 3.0 * 4096 * 14336;
    const double expected = 4 * (32 * layer + 128256.0 * 4096) - 2 * qkv + 6.0 * 41943040 -
                            2 * 3 * 16.0 * 4096 + 32 * 6 * length * 4096;
    assert_close(mics_model_flops_per_token(f.model, (int64_t)length), expected, 1e-12,
                 "model FLOPs of an adapter");
    close_plans(&f);
}

// Two GEMMs of three are left, and attention.
static void test_gradients_of_frozen_weights_take_no_time(void **state)
{
    (void)state;
    const mics_plan_choice choice = {.sharding = {8, 8, 8}, .micro_batch = 1, .micro_steps = 8};
    mics_plan_entry whole, lora;
    fixture f;
    open_llama3(&f);
    f.request.length = 2048;
    ASSERT_OK(mics_planner_open(f.memory, &f.request, &f.planner));
    ASSERT_OK(mics_planner_evaluate(f.planner, &choice, &lora));
    mics_planner_close(f.planner);
    take_llama3(&f);
    ASSERT_OK(mics_planner_open(f.memory, &f.request, &f.planner));
    ASSERT_OK(mics_planner_evaluate(f.planner, &choice, &whole));
    const double us = lora.compute_us / whole.compute_us;
    const double flops = lora.hardware_flops / whole.hardware_flops;
    assert_true(us > 0.66 && us < 0.72 && flops > 0.66 && flops < 0.72);
    assert_true(lora.update_us < 0.02 * whole.update_us);
    close_plans(&f);
}

// Below the first parameter that trains nothing is computed but the forward.
static void test_model_flops_of_the_last_layer(void **state)
{
    (void)state;
    const subject last = {"the last layer", 0, 0, {"model.layers.2.*"}, NULL};
    fixture f;
    open_subject(&f, &machines[0], true, &last);
    const double length = 16, attention = length * 64;
    const double layer = 2 * 64.0 * 64 + 2 * 32.0 * 64 + 3 * 160.0 * 64 + attention;
    const double expected = 2 * 2 * layer + 6 * layer + 4 * 700.0 * 64;
    assert_close(mics_model_flops_per_token(f.model, (int64_t)length), expected, 1e-12,
                 "model FLOPs of the last layer");
    close_plans(&f);
}

// Other systems' rows: what they send once a step is the adapters' alone; Megatron has none.
static void test_baselines(void **state)
{
    (void)state;
    fixture f;
    mics_plan_entry entry;
    char why[MICS_PLAN_WHY_BYTES];
    const mics_plan_pipeline two = {.tensor = 2};
    open_subject(&f, &machines[0], true, &subjects[0]);
    ASSERT_OK(mics_planner_open(f.memory, &f.request, &f.planner));
    ASSERT_OK(mics_planner_baseline(f.planner, NULL, MICS_PLAN_DDP, &entry));
    // A ring of 4 leaves each of two nodes once: there and back it sends 3 quarters.
    assert_close((double)entry.sent.inter,
                 2 * 2 * 3.0 / 4 * sizeof(float) * (double)mics_model_trained_count(f.model), 0.01,
                 "ddp");
    ASSERT_OK(mics_planner_baseline(f.planner, NULL, MICS_PLAN_MEGATRON, &entry));
    assert_int_equal(entry.choice.micro_batch, 0);
    mics_plan_explain(f.planner, NULL, &entry);
    assert_non_null(strstr(entry.why, "not modelled with frozen parameters"));
    mics_planner_no_cut(f.planner, &two, why, sizeof why);
    assert_non_null(strstr(why, "not modelled with frozen parameters"));
    close_plans(&f);
}

// Adapters are so small that systems send many layers' in one message, as they do of small layers.
static void test_buckets(void **state)
{
    (void)state;
    fixture f;
    mics_plan_entry row, alone;
    open_llama3(&f);
    f.request.memory_bytes = 80e9;
    f.request.cluster.tiers[1].latency_us = 1e5; // rings that are all latency
    ASSERT_OK(mics_planner_open(f.memory, &f.request, &f.planner));
    ASSERT_OK(mics_planner_baseline(f.planner, NULL, MICS_PLAN_DDP, &row));
    ASSERT_OK(mics_planner_evaluate(f.planner, &row.choice, &alone)); // a message a layer
    if (!(row.step_us < 0.5 * alone.step_us))
        fail_msg("%.0f us, a message a layer %.0f us", row.step_us, alone.step_us);
    close_plans(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_memory),
        cmocka_unit_test(test_memory_over_nodes),
        cmocka_unit_test(test_bounds),
        cmocka_unit_test(test_bounds_of_updates_beside_gathers),
        cmocka_unit_test(test_extensions),
        cmocka_unit_test(test_search),
        cmocka_unit_test(test_frozen_weights_stay_inside_nodes),
        cmocka_unit_test(test_model_flops),
        cmocka_unit_test(test_model_flops_of_the_last_layer),
        cmocka_unit_test(test_gradients_of_frozen_weights_take_no_time),
        cmocka_unit_test(test_baselines),
        cmocka_unit_test(test_buckets),
        cmocka_unit_test(test_preference_pairs),
    };
    mics_log_set_sink(drop_line, NULL);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
