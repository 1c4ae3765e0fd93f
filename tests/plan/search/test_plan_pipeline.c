// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Megatron's parallelism: bubbles as in the paper, sums over the cuts, rings, all-to-alls, memory.
#include "checks.h"
#include "model/from_config.h"
#include "plan/search/baseline.h"
#include "plan/search/megatron.h"
#include "plan/simulate/internal.h"
#include "plans.h"

// Layers of one us forward and two backward; nothing else takes time.
static const stage_times plain = {.layer = {.forward_us = 1, .backward_us = 2}, .layers = 16};

static pipeline_time run(mics_memory *memory, int stages, int chunks, int micro_steps,
                         const stage_times *times)
{
    const cut c = {.p = {.tensor = 1, .stages = stages, .data = 1, .chunks = chunks},
                   .micro_batch = 1,
                   .micro_steps = micro_steps};
    pipeline_time time = {0};
    ASSERT_OK(pipeline_run(memory, &c, times, &time));
    return time;
}

// Narayanan et al., SC21, section 2.2: the bubble is (p - 1) / (v m) of the work.
static void test_bubbles(void **state)
{
    (void)state;
    mics_memory *memory = NULL;
    ASSERT_OK(mics_memory_open(&memory));
    const int cases[][3] = {{1, 1, 4},  {4, 1, 4},  {4, 1, 16}, {8, 1, 24}, {2, 4, 8},
                            {4, 2, 16}, {4, 4, 32}, {4, 4, 4},  {8, 2, 8},  {16, 1, 3}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const int p = cases[i][0], v = cases[i][1], m = cases[i][2];
        const double busy = m * 3.0 * 16 / p;
        const pipeline_time time = run(memory, p, v, m, &plain);
        assert_close(time.compute_us, busy, 1e-12, "work of a stage");
        assert_close(time.us, busy * (1 + (p - 1.0) / (v * m)), 1e-12, "with its bubble");
    }
    assert_int_equal(mics_memory_close(memory), 0);
}

static void test_the_slowest_stage_sets_the_pace(void **state)
{
    (void)state;
    mics_memory *memory = NULL;
    ASSERT_OK(mics_memory_open(&memory));
    stage_times times = plain;
    times.head = (unit_time){.forward_us = 3, .backward_us = 6, .forward_sum_us = 1};
    times.embed.forward_us = 0.5;
    const pipeline_time time = run(memory, 4, 1, 64, &times);
    assert_close(time.compute_us, 64 * (12 + 9), 1e-12, "the last stage's work");
    assert_close(time.sum_us, 64, 1e-12, "its sums");
    assert_true(time.us > 64 * 22 && time.us < 64 * 22 + 60);
    // Sends lie between stages; the first has none forward, the last none backward.
    times = plain;
    times.send_us = 10;
    assert_close(run(memory, 1, 1, 5, &times).us, 5 * 48, 1e-12, "one stage sends nothing");
    assert_true(run(memory, 4, 1, 8, &times).us > run(memory, 4, 1, 8, &plain).us + 8 * 10);
    assert_int_equal(mics_memory_close(memory), 0);
}

static void test_micro_batches_under_way(void **state)
{
    (void)state;
    const cut plain_cut = {.p = {.stages = 4, .chunks = 1}, .micro_steps = 16};
    const cut few = {.p = {.stages = 4, .chunks = 1}, .micro_steps = 2};
    const cut interleaved = {.p = {.stages = 4, .chunks = 2}, .micro_steps = 16};
    // 1F1B holds as many micro-batches as there are stages (SC21, section 2.2.1); 16 layers: 4 a stage.
    assert_close(pipeline_layers_held(&plain_cut, 16, 0), 4 * 4, 0, "1F1B");
    assert_close(pipeline_layers_held(&few, 16, 0), 2 * 4, 0, "no more than there are");
    assert_close(pipeline_layers_held(&interleaved, 16, 0), (6 + 4 + 1) * 2, 0, "interleaved");
}

static void test_cutting_products(void **state)
{
    (void)state;
    fixture f;
    open_plans(&f, 2, 4, 16);
    ASSERT_OK(mics_planner_open(f.memory, &f.request, &f.planner));
    const cut whole = {
        .p = {.tensor = 1, .context = 1, .stages = 1, .data = 8, .chunks = 1, .expert = 1},
        .micro_batch = 2};
    cut quarter = {.p = {.tensor = 4,
                         .context = 1,
                         .stages = 1,
                         .data = 2,
                         .chunks = 1,
                         .expert = 1,
                         .era = MICS_MEGATRON_2021},
                   .micro_batch = 2};
    const unit_time a = tensor_unit(f.planner, 1, &whole), b = tensor_unit(f.planner, 1, &quarter);
    assert_true(b.forward_us < a.forward_us && b.forward_us > a.forward_us / 4);
    assert_close(a.forward_sum_us, 0, 0, "sums of one rank");
    assert_true(b.forward_sum_us > 0 && b.backward_sum_us == b.forward_sum_us);
    assert_close(a.flops_forward, b.flops_forward, 1e-12, "FLOPs of the whole unit");
    // Norms' inputs and what the first products read stay whole: 4 widths of 128 tokens, 2 bytes each.
    const double width = 2.0 * 64 * 128 * 2;
    assert_close(a.saved_bytes - b.saved_bytes, 0.75 * (a.saved_bytes - 4 * width), 1e-12, "cut");
    assert_close(b.input_bytes, width, 0, "input");
    // Sequence parallelism cuts these too, and waits for no more than without.
    quarter.p.era = MICS_MEGATRON_2023;
    const unit_time s = tensor_unit(f.planner, 1, &quarter);
    assert_close(s.saved_bytes, a.saved_bytes / 4, 1e-12, "all of it");
    assert_close(s.input_bytes, width / 4, 0, "input");
    assert_close(s.whole_bytes, width, 0, "gathered");
    assert_close(s.forward_sum_us, b.forward_sum_us, 1e-12, "as many bytes");
    // Beside GEMMs at least one of four chunks is waited for.
    quarter.p.era = MICS_MEGATRON_NOW;
    const unit_time n = tensor_unit(f.planner, 1, &quarter);
    assert_true(n.forward_sum_us >= s.forward_sum_us / 4 && n.forward_sum_us < s.forward_sum_us);
    assert_true(n.forward_us >= s.forward_us);
    // As many FLOPs as the ledger of schedules counts.
    double forward = 0;
    for (int32_t o = 0; o < f.model->units[1].op_count; o++)
        forward += mics_op_cost_get(f.model, &f.model->units[1], &f.model->units[1].ops[o],
                                    (mics_batch){.sequences = 2, .length = 64, .threads = 1})
                       .flops_forward;
    assert_close(a.flops_forward, forward, 1e-12, "forward FLOPs");
    close_plans(&f);
}

// 5 layers on 2 stages: the second has one more, and none is lost.
static void test_uneven_stages(void **state)
{
    (void)state;
    const int cases[][3] = {{61, 16, 1}, {61, 16, 2}, {5, 2, 1}, {5, 2, 2}, {16, 4, 2}, {7, 7, 1}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const int layers = cases[i][0];
        const cut c = {.p = {.stages = cases[i][1], .chunks = cases[i][2]}};
        int sum = 0, least = layers, most = 0;
        for (int stage = 0; stage < c.p.stages; stage++) {
            sum += stage_layers(&c, layers, stage);
            for (int chunk = 0; chunk < c.p.chunks; chunk++) {
                const int own = chunk_layers(&c, layers, stage, chunk);
                least = own < least ? own : least;
                most = own > most ? own : most;
            }
        }
        assert_int_equal(sum, layers);
        assert_true(least >= 1 && most - least <= 1);
        assert_int_equal(chunk_layers(&c, layers, 0, 0), least);
    }
}

// Masters and moments are shared out over the replicas; sums and gathers hide beside the passes.
static void test_eras(void **state)
{
    (void)state;
    fixture f;
    mics_plan_entry then, now;
    open_plans(&f, 2, 4, 16);
    ASSERT_OK(mics_planner_open(f.memory, &f.request, &f.planner));
    mics_plan_space space = {.micro_batch = 1,
                             .recompute_given = true,
                             .pipeline = {.tensor = 2, .stages = 1, .era = MICS_MEGATRON_2021}};
    ASSERT_OK(mics_planner_baseline(f.planner, &space, MICS_PLAN_MEGATRON, &then));
    space.pipeline.era = MICS_MEGATRON_NOW;
    ASSERT_OK(mics_planner_baseline(f.planner, &space, MICS_PLAN_MEGATRON, &now));
    assert_close((double)now.memory.bytes[MICS_MEM_OPTIMIZER],
                 (double)then.memory.bytes[MICS_MEM_OPTIMIZER] / 4, 1e-4, "of 4 replicas");
    assert_int_equal(now.memory.bytes[MICS_MEM_PARAMS], then.memory.bytes[MICS_MEM_PARAMS]);
    assert_true(now.memory.bytes[MICS_MEM_ACTIVATIONS] < then.memory.bytes[MICS_MEM_ACTIVATIONS]);
    assert_true(now.update_us < then.update_us);
    assert_true(now.step_us < then.step_us);
    close_plans(&f);
}

// Where all activations do not fit, as few layers as fit are made again, which takes less time than
// all of them.
static void test_some_layers(void **state)
{
    (void)state;
    fixture f;
    mics_plan_entry none, all, some;
    open_plans(&f, 2, 4, 16);
    ASSERT_OK(mics_planner_open(f.memory, &f.request, &f.planner));
    mics_plan_space space = {
        .micro_batch = 4, .recompute_given = true, .pipeline = {.tensor = 2, .stages = 1}};
    ASSERT_OK(mics_planner_baseline(f.planner, &space, MICS_PLAN_MEGATRON, &none));
    space.recompute = mics_recompute_all(true);
    ASSERT_OK(mics_planner_baseline(f.planner, &space, MICS_PLAN_MEGATRON, &all));
    mics_planner_close(f.planner);
    f.planner = NULL;
    f.request.memory_bytes = ((double)none.memory.total + (double)all.memory.total) / 2;
    ASSERT_OK(mics_planner_open(f.memory, &f.request, &f.planner));
    space.recompute_given = false;
    ASSERT_OK(mics_planner_baseline(f.planner, &space, MICS_PLAN_MEGATRON, &some));
    assert_true(some.fits && some.choice.recompute.units > 0);
    assert_true(some.choice.recompute.units < MICS_RECOMPUTE_ALL);
    assert_true(some.memory.total < none.memory.total && some.memory.total >= all.memory.total);
    assert_true(some.step_us > none.step_us && some.step_us < all.step_us);
    close_plans(&f);
}

// Ranks that each have a whole model are the same thing, whatever the row is called.
static void test_whole_models(void **state)
{
    (void)state;
    static const struct {
        mics_megatron_era era;
        mics_plan_baseline same;
    } eras[] = {{MICS_MEGATRON_NOW, MICS_PLAN_ZERO1}, {MICS_MEGATRON_2021, MICS_PLAN_DDP}};
    fixture f;
    open_plans(&f, 2, 4, 32);
    ASSERT_OK(mics_planner_open(f.memory, &f.request, &f.planner));
    for (int64_t micro = 0; micro <= 4; micro += 2) { // 0: the best
        for (int i = 0; i < 4; i++) {
            mics_plan_entry a, b;
            mics_plan_space space = {
                .micro_batch = micro,
                .recompute_given = micro > 0,
                .recompute = mics_recompute_all(i / 2 > 0),
                .pipeline = {.tensor = 1, .stages = 1, .era = eras[i % 2].era}};
            ASSERT_OK(mics_planner_baseline(f.planner, &space, MICS_PLAN_MEGATRON, &a));
            ASSERT_OK(mics_planner_baseline(f.planner, &space, eras[i % 2].same, &b));
            assert_string_equal(a.name, "megatron t1 p1 d8 v1");
            assert_close(a.step_us, b.step_us, 0, "step");
            assert_int_equal(a.memory.total, b.memory.total);
            assert_int_equal(a.choice.micro_batch, b.choice.micro_batch);
            assert_true(mics_recompute_is(a.choice.recompute, b.choice.recompute));
        }
    }
    close_plans(&f);
}

// Uncut, a layer takes as long as in schedules.
static void test_layer_is_the_schedules(void **state)
{
    (void)state;
    fixture f;
    open_plans(&f, 1, 4, 16);
    ASSERT_OK(mics_planner_open(f.memory, &f.request, &f.planner));
    const mics_plan_choice choice = {.sharding = {1, 1, 1}, .micro_batch = 2, .micro_steps = 2};
    const cut whole = {
        .p = {.tensor = 1, .context = 1, .stages = 1, .data = 4, .chunks = 1, .expert = 1},
        .micro_batch = 2};
    mics_schedule *schedule = schedule_of(&f, &choice);
    const mics_cluster *cluster = &f.planner->request.cluster;
    const unit_time time = tensor_unit(f.planner, 1, &whole);
    assert_close(time.forward_us, unit_forward_us(schedule, cluster, f.request.math, 1, NULL), 1e-9,
                 "forward");
    assert_close(time.backward_us, unit_backward_us(schedule, cluster, f.request.math, 1, NULL),
                 1e-9, "backward");
    mics_schedule_close(schedule);
    close_plans(&f);
}

static void test_best_cut(void **state)
{
    (void)state;
    fixture f;
    mics_plan_entry best, entry;
    open_plans(&f, 2, 4, 16);
    ASSERT_OK(mics_planner_open(f.memory, &f.request, &f.planner));
    ASSERT_OK(mics_planner_baseline(f.planner, NULL, MICS_PLAN_MEGATRON, &best));
    assert_int_equal(best.pipeline.tensor * best.pipeline.stages * best.pipeline.data, 8);
    assert_close(best.compute_us + best.update_us + best.exposed_us + best.overhead_us,
                 best.step_us, 1e-9, "parts of a step");
    assert_true(best.fits);
    const mics_sharding own = best.choice.sharding; // each rank its own part of the model
    assert_true(own.params == 1 && own.grads == 1 && own.optimizer == 1);
    // No cut that is asked for by name is faster: 4 heads, 5 layers.
    for (int t = 1; t <= 4; t *= 2) {
        mics_plan_space space = {.pipeline = {.tensor = t, .stages = 1}};
        ASSERT_OK(mics_planner_baseline(f.planner, &space, MICS_PLAN_MEGATRON, &entry));
        assert_int_equal(entry.pipeline.tensor, t);
        assert_true(entry.step_us >= best.step_us);
    }
    close_plans(&f);
}

// ---- context and expert degrees ----

// A mixture of 8 experts, 2 for each token, in 4 layers.
static mics_model *mixture(mics_memory *memory, int dense_layers)
{
    char text[512];
    mics_json *json = NULL;
    mics_model *model = NULL;
    const int length = snprintf(
        text, sizeof text,
        "{\"model_type\": \"deepseek_v3\", \"hidden_size\": 128, \"num_hidden_layers\": 4, "
        "\"num_attention_heads\": 8, \"num_key_value_heads\": 8, \"head_dim\": 16, "
        "\"intermediate_size\": 512, \"n_routed_experts\": 8, \"num_experts_per_tok\": 2, "
        "\"moe_intermediate_size\": 64, \"first_k_dense_replace\": %d, \"vocab_size\": 1000, "
        "\"max_position_embeddings\": 16384, \"tie_word_embeddings\": false}",
        dense_layers);
    ASSERT_OK(mics_json_parse(memory, "mixture", text, (size_t)length, &json));
    ASSERT_OK(mics_model_from_shapes(memory, json, &model));
    mics_json_close(json);
    return model;
}

static void open_mixture(fixture *f, int nodes, int per_node, int64_t batch, int dense_layers)
{
    open_plans(f, nodes, per_node, batch);
    mics_model_close(f->model);
    f->model = mixture(f->memory, dense_layers);
    f->request.model = f->model;
    f->request.length = 4096;
    ASSERT_OK(mics_planner_open(f->memory, &f->request, &f->planner));
}

static cut cut_into(int tensor, int context, int expert, const fixture *f)
{
    const int ranks = mics_planner_ranks(f->planner);
    return (cut){.p = {.tensor = tensor,
                       .context = context,
                       .stages = 1,
                       .data = ranks / (tensor * context),
                       .chunks = 1,
                       .expert = expert},
                 .micro_batch = 1,
                 .micro_steps = 1};
}

static void test_context(void **state)
{
    (void)state;
    fixture f;
    open_mixture(&f, 2, 4, 8, 0);
    const cut one = cut_into(1, 1, 1, &f), four = cut_into(1, 4, 1, &f);
    const unit_time a = tensor_unit(f.planner, 1, &one), b = tensor_unit(f.planner, 1, &four);
    // Each rank has a quarter of the tokens: of activations, too, and of all work a little more.
    assert_close(cut_tokens(f.planner, &four), 1024, 0, "tokens of a rank");
    assert_close(b.saved_bytes, a.saved_bytes / 4, 1e-12, "saved");
    assert_close(b.flops_forward, a.flops_forward, 1e-12, "FLOPs of the whole unit");
    assert_true(b.forward_us >= 0.99 * a.forward_us / 4 && b.forward_us < 0.6 * a.forward_us);
    assert_close(a.forward_sum_us, 0, 0, "nothing to send");
    // Keys and values of 8 heads of 16 numbers: a step of the ring, forward; backward gradients too.
    const double block = 2.0 * 8 * 16 * 1024 * 2;
    const double step_us = exchange_ring_us(f.planner, &four, block);
    assert_true(step_us > 4 + block / 20e9 * 1e6 * 0.99);
    assert_true(exchange_ring_us(f.planner, &four, 2 * block) > step_us);
    assert_true(b.forward_sum_us <= 3 * step_us);
    // Beyond a node the ring is slower.
    const cut eight = cut_into(1, 8, 1, &f);
    assert_true(exchange_ring_us(f.planner, &eight, block) > 2 * step_us);
    close_plans(&f);
}

// What attention does not hide is waited for: with links a thousand times as slow, all steps.
static void test_ring_hides_behind_attention(void **state)
{
    (void)state;
    fixture f;
    open_mixture(&f, 2, 4, 8, 0);
    const cut four = cut_into(1, 4, 1, &f);
    const double block = 2.0 * 8 * 16 * 1024 * 2;
    f.planner->request.cluster.tiers[0].bytes_per_s *= 1000;
    f.planner->request.cluster.tiers[0].rank_bytes_per_s *= 1000;
    f.planner->request.cluster.tiers[0].latency_us = 0.01;
    assert_close(tensor_unit(f.planner, 1, &four).forward_sum_us, 0, 0, "hidden");
    f.planner->request.cluster.tiers[0].bytes_per_s /= 1e6;
    f.planner->request.cluster.tiers[0].rank_bytes_per_s /= 1e6;
    const double waits_us = tensor_unit(f.planner, 1, &four).forward_sum_us;
    const double steps_us = 3 * exchange_ring_us(f.planner, &four, block);
    assert_true(waits_us > 0.8 * steps_us && waits_us < steps_us);
    close_plans(&f);
}

static void test_experts(void **state)
{
    (void)state;
    fixture f;
    open_mixture(&f, 2, 4, 8, 0);
    const cut whole = cut_into(1, 1, 1, &f), spread = cut_into(1, 1, 4, &f);
    const unit_time a = tensor_unit(f.planner, 1, &whole), b = tensor_unit(f.planner, 1, &spread);
    // Two all-to-alls each way: 2 x 4096 vectors of 128 numbers, a quarter of them to each rank.
    const double us = exchange_experts_us(f.planner, &spread, 2);
    assert_close(b.forward_sum_us, 2 * us, 1e-12, "forward");
    assert_close(b.backward_sum_us, 2 * us, 1e-12, "backward");
    assert_close(us, 3 * (4 + 2.0 * 4096 * 128 * 2 / 4 / 20e9 * 1e6), 0.1, "three messages");
    // As many tokens for a quarter of the experts: as many FLOPs, in fewer and larger GEMMs.
    assert_close(a.flops_forward, b.flops_forward, 1e-12, "FLOPs");
    assert_true(b.forward_us <= a.forward_us);
    assert_true(b.saved_bytes > a.saved_bytes);
    const cut far = cut_into(1, 1, 8, &f);
    assert_true(exchange_experts_us(f.planner, &far, 2) > 2 * us);
    // With tensor parallelism each rank sends its half of the tokens.
    const cut both = cut_into(2, 1, 4, &f);
    assert_true(exchange_experts_us(f.planner, &both, 2) < us);
    close_plans(&f);
}

// A rank with one expert gets as many rows as it sends, two a token: where only FLOPs count, no
// number of experts a rank makes a layer faster.
static void test_rows_of_few_experts(void **state)
{
    (void)state;
    fixture f;
    open_mixture(&f, 2, 4, 8, 0);
    f.planner->request.cluster.accelerator.launch_us = 0;
    f.planner->request.cluster.accelerator.memory_bytes_per_s = 1e18;
    const cut whole = cut_into(1, 1, 1, &f);
    const unit_time a = tensor_unit(f.planner, 1, &whole);
    for (int expert = 2; expert <= 8; expert *= 2) {
        const cut spread = cut_into(1, 1, expert, &f);
        const unit_time b = tensor_unit(f.planner, 1, &spread);
        assert_close(b.forward_us, a.forward_us, 1e-9, "forward");
        assert_close(b.backward_us, a.backward_us, 1e-9, "backward");
    }
    close_plans(&f);
}

static mics_plan_entry plan_of(const fixture *f, mics_plan_pipeline degrees)
{
    mics_plan_entry entry;
    const mics_plan_space space = {.pipeline = degrees};
    ASSERT_OK(mics_planner_baseline(f->planner, &space, MICS_PLAN_MEGATRON, &entry));
    return entry;
}

static void test_degrees_are_searched(void **state)
{
    (void)state;
    fixture f;
    open_mixture(&f, 2, 4, 8, 1);
    const mics_plan_entry best = plan_of(&f, (mics_plan_pipeline){0});
    assert_int_equal(best.pipeline.tensor * best.pipeline.context * best.pipeline.stages *
                         best.pipeline.data,
                     8);
    for (int context = 1; context <= 4; context *= 2) {
        for (int expert = 1; expert <= 8; expert *= 2) {
            const mics_plan_entry entry =
                plan_of(&f, (mics_plan_pipeline){.context = context, .expert = expert});
            assert_int_equal(entry.pipeline.context, context);
            assert_int_equal(entry.pipeline.expert, expert);
            assert_true(entry.step_us >= best.step_us);
        }
    }
    assert_string_equal(
        plan_of(&f, (mics_plan_pipeline){.tensor = 2, .context = 2, .stages = 1, .expert = 4}).name,
        "megatron t2c2 p1 d2e4");
    // Whole experts: of 2 ranks each has 4 of 8, of 8 ranks 1; all else is the same.
    const mics_plan_pipeline two = {.tensor = 1, .context = 1, .stages = 1, .expert = 2};
    mics_plan_pipeline eight = two;
    eight.expert = 8;
    const double experts = 3.0 * 8 * 3 * 128 * 64; // layers, experts, matrices
    const mics_plan_entry a = plan_of(&f, two), b = plan_of(&f, eight);
    assert_close((double)(a.memory.bytes[MICS_MEM_PARAMS] - b.memory.bytes[MICS_MEM_PARAMS]),
                 2 * experts * 3 / 8, 1e-6, "parameters");
    close_plans(&f);
}

// Rivals' software: parameters of FSDP are in shards; sums of half
// precision take half; all-to-alls that are hidden are not waited for.
static void test_software(void **state)
{
    (void)state;
    static const mics_software fsdp = {.shards_params = true, .imbalance = 1},
                               half = {.half_grads = true, .imbalance = 1},
                               hides = {.exchange_hidden = 1, .imbalance = 1},
                               uneven = {.routing_us = 100, .imbalance = 1.5};
    static const mics_software *const all[] = {NULL, &fsdp, &half, &hides, &uneven};
    mics_plan_entry entries[5];
    for (int i = 0; i < 5; i++) {
        fixture f;
        open_mixture(&f, 2, 4, 8, 0);
        mics_planner_close(f.planner);
        f.request.software = all[i];
        ASSERT_OK(mics_planner_open(f.memory, &f.request, &f.planner));
        entries[i] = plan_of(&f, (mics_plan_pipeline){.tensor = 1, .stages = 1, .expert = 4});
        close_plans(&f);
    }
    assert_true(entries[1].memory.bytes[MICS_MEM_PARAMS] <
                entries[0].memory.bytes[MICS_MEM_PARAMS]);
    assert_int_equal(2 * entries[2].memory.bytes[MICS_MEM_GRADS],
                     entries[0].memory.bytes[MICS_MEM_GRADS]);
    assert_true(entries[3].step_us < entries[0].step_us);
    assert_true(entries[4].step_us > entries[0].step_us);
}

static void assert_no_cut(const fixture *f, mics_plan_pipeline degrees, const char *expected)
{
    char text[MICS_PLAN_WHY_BYTES];
    mics_planner_no_cut(f->planner, &degrees, text, sizeof text);
    if (strstr(text, expected) == NULL || (*expected == '\0' && *text != '\0'))
        fail_msg("\"%s\" is not in \"%s\"", expected, text);
    if (*expected != '\0')
        assert_int_equal(plan_of(f, degrees).choice.micro_batch, 0);
    else
        assert_true(plan_of(f, degrees).choice.micro_batch > 0);
}

static void test_impossible_degrees(void **state)
{
    (void)state;
    fixture f;
    open_mixture(&f, 2, 4, 8, 0);
    assert_no_cut(&f, (mics_plan_pipeline){0}, "");
    assert_no_cut(&f, (mics_plan_pipeline){.tensor = 2, .context = 2, .expert = 8}, "");
    assert_no_cut(&f, (mics_plan_pipeline){.tensor = 3},
                  "no cut into 3 tensor-parallel ranks: they divide a node's ranks, and the "
                  "key-value heads; 1, 2 or 4 would work");
    assert_no_cut(&f, (mics_plan_pipeline){.stages = 3}, "1, 2 or 4 would work");
    assert_no_cut(&f, (mics_plan_pipeline){.chunks = 4}, "1, 2 or 3 would work");
    assert_no_cut(&f, (mics_plan_pipeline){.stages = 1, .chunks = 2}, "beside the other degrees");
    assert_no_cut(&f, (mics_plan_pipeline){.context = 3}, "1, 2, 4 or 8 would work");
    assert_no_cut(&f, (mics_plan_pipeline){.expert = 16}, "1, 2, 4 or 8 would work");
    assert_no_cut(&f, (mics_plan_pipeline){.tensor = 4, .context = 4},
                  "no cut into 4 context-parallel ranks beside the other degrees");
    assert_no_cut(&f, (mics_plan_pipeline){.tensor = 4, .context = 4}, "1 or 2 would work");
    close_plans(&f);
    open_plans(&f, 2, 4, 16);
    ASSERT_OK(mics_planner_open(f.memory, &f.request, &f.planner));
    assert_no_cut(&f, (mics_plan_pipeline){.expert = 2}, "; 1 would work");
    close_plans(&f);
    // As many stages as there are ranks.
    open_plans(&f, 2, 1, 16);
    ASSERT_OK(mics_planner_open(f.memory, &f.request, &f.planner));
    assert_no_cut(&f, (mics_plan_pipeline){.chunks = 2}, "");
    close_plans(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bubbles),
        cmocka_unit_test(test_the_slowest_stage_sets_the_pace),
        cmocka_unit_test(test_micro_batches_under_way),
        cmocka_unit_test(test_cutting_products),
        cmocka_unit_test(test_uneven_stages),
        cmocka_unit_test(test_eras),
        cmocka_unit_test(test_some_layers),
        cmocka_unit_test(test_software),
        cmocka_unit_test(test_whole_models),
        cmocka_unit_test(test_layer_is_the_schedules),
        cmocka_unit_test(test_best_cut),
        cmocka_unit_test(test_context),
        cmocka_unit_test(test_ring_hides_behind_attention),
        cmocka_unit_test(test_experts),
        cmocka_unit_test(test_rows_of_few_experts),
        cmocka_unit_test(test_degrees_are_searched),
        cmocka_unit_test(test_impossible_degrees),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
