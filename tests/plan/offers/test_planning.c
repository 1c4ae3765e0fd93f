// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// mics/planning.h as a program uses it: plans, sweeps, what is refused, and failing allocations.
#include "base/capture.h"
#include "plan/offers/planning.h"
#include "plan/search/baseline.h"
#include "test.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char work[] = "/tmp/mics-planning-XXXXXX";
static capture seen;

static mics_plan *open_plan(mics_memory *memory, const char *cluster, bool any_nodes)
{
    const mics_plan_spec spec = {.file = "run.json", .cluster = cluster, .any_nodes = any_nodes};
    mics_plan *plan = NULL;
    ASSERT_OK(mics_plan_open(memory, &spec, &plan));
    return plan;
}

// ---- plans ----

static void test_best_beside_the_rest(void **state)
{
    mics_memory *memory = *state;
    mics_plan *plan = open_plan(memory, "p4d.24xlarge:2", false);
    mics_plan_found found = {.planner = NULL};
    assert_int_equal(plan->nodes, 2);
    assert_int_equal(plan->length, 16);
    assert_int_equal(plan->rank_batch, 2 * 3);
    assert_int_equal(mics_plan_request_get(plan, 2).global_batch, 16 * 2 * 3);
    ASSERT_OK(mics_plan_find(plan, 2, 3, &found));
    assert_int_equal(found.result->count, 3);
    const mics_plan_entry *best = &found.result->entries[0];
    assert_true(best->fits && best->why[0] != '\0');
    assert_int_equal(best->choice.micro_batch * best->choice.micro_steps, 2 * 3);
    // The run's own choice and mics+ are points of the space; other baselines' collectives are not.
    assert_true(found.has_file && found.file.step_us >= best->step_us);
    assert_int_equal(found.file.choice.sharding.params, 4);
    assert_int_equal(found.file.choice.micro_steps, 3);
    assert_true(found.baselines[MICS_PLAN_MICS_PLUS].step_us >= best->step_us);
    mics_plan_found_close(&found);
    mics_plan_close(plan);
}

// "sharding": "auto" is the run file's own row, as training would choose it; and what keeping every
// state twice costs is found also where the table is too short for it.
static void test_auto_and_twice(void **state)
{
    mics_memory *memory = *state;
    const char *sets[] = {"sharding=\"auto\"", "run.min_replicas=1"};
    mics_plan_spec spec = {
        .file = "run.json", .sets = sets, .set_count = 2, .cluster = "p4d.24xlarge:2"};
    mics_plan *plan = NULL;
    double step_us[2] = {0, 0};
    for (int i = 0; i < 2; i++) {
        mics_plan_found found = {.planner = NULL};
        ASSERT_OK(mics_plan_open(memory, &spec, &plan));
        ASSERT_OK(mics_plan_find(plan, 2, 1, &found));
        assert_true(found.has_file && found.file.fits);
        assert_int_equal(found.file.choice.micro_batch, plan->run->micro_batch);
        ASSERT_OK(mics_plan_find_twice(&found));
        const int32_t optimizer = found.result->entries[0].choice.sharding.optimizer;
        assert_int_equal(found.has_twice, optimizer == 16);
        if (found.has_twice) {
            assert_true(found.twice.choice.sharding.optimizer <= 8 && found.twice.why[0] != '\0');
            assert_true(found.twice.step_us >= found.result->entries[0].step_us);
        }
        if (i == 1)
            assert_true(optimizer <= 8 && found.file.choice.sharding.optimizer <= 8);
        step_us[i] = found.has_twice ? found.twice.step_us : found.result->entries[0].step_us;
        mics_plan_found_close(&found);
        mics_plan_close(plan);
        sets[1] = "run.min_replicas=2";
    }
    assert_true(step_us[0] == step_us[1]); // the price is that of the key
}

// Where memory is too little for anything, it says what would do.
static void test_nothing_fits(void **state)
{
    mics_memory *memory = *state;
    const char *sets[] = {"run.memory_limit=300000"};
    const mics_plan_spec spec = {
        .file = "run.json", .sets = sets, .set_count = 1, .cluster = "p4d.24xlarge:1"};
    mics_plan *plan = NULL;
    mics_plan_found found = {.planner = NULL};
    ASSERT_OK(mics_plan_open(memory, &spec, &plan));
    ASSERT_OK(mics_plan_find(plan, 1, 1, &found));
    assert_int_equal(found.result->count, 0);
    capture_begin(&seen);
    ASSERT_STATUS(MICS_ERR_MEMORY, mics_plan_fail_fit(plan, &found));
    capture_end();
    ASSERT_SAID(&seen, "model.json fits nowhere on 1 node of p4d.24xlarge");
    mics_plan_found_close(&found);
    mics_plan_close(plan);
}

// A limit counts where it is less than a GPU has.
static void test_memory_limit(void **state)
{
    mics_memory *memory = *state;
    const char *sets[] = {"run.memory_limit=\"1GiB\"", "run.memory_limit=\"900GiB\""};
    for (int i = 0; i < 2; i++) {
        const mics_plan_spec spec = {
            .file = "run.json", .sets = &sets[i], .set_count = 1, .cluster = "p4d.24xlarge:1"};
        mics_plan *plan = NULL;
        ASSERT_OK(mics_plan_open(memory, &spec, &plan));
        const mics_accelerator *chip = &plan->cluster.accelerator;
        const double expected = i == 0 ? 1 << 30 : chip->memory_bytes - chip->reserve_bytes;
        assert_true(plan->accelerator && plan->run->memory_limit_bytes > 0);
        assert_true(mics_plan_request_get(plan, 1).memory_bytes == expected);
        mics_plan_close(plan);
    }
}

// ---- sweeps ----

static void test_sweeps(void **state)
{
    mics_memory *memory = *state;
    mics_plan *plan = open_plan(memory, "p4d.24xlarge", true);
    mics_plan_sweep *sweep = NULL;
    ASSERT_OK(mics_plan_sweep_open(plan, "nodes=1..3", &sweep));
    assert_int_equal(sweep->point_count, 3); // 1, 2, and the last
    assert_int_equal(sweep->points[2].ranks, 24);
    assert_string_equal(sweep->names[0], "best");
    for (int32_t i = 0; i < sweep->point_count; i++) {
        const mics_plan_point *point = &sweep->points[i];
        assert_true(point->has[0] && point->has[1 + MICS_PLAN_MICS_PLUS]);
        assert_true(point->curves[1 + MICS_PLAN_MICS_PLUS].step_us >= point->curves[0].step_us);
    }
    mics_plan_sweep_close(sweep);
    mics_plan_close(plan);
    plan = open_plan(memory, "p4d.24xlarge:1", false);
    ASSERT_OK(mics_plan_sweep_open(plan, "P", &sweep));
    assert_true(sweep->over_params);
    assert_int_equal(sweep->point_count, 4); // 1, 2, 4, 8
    assert_int_equal(sweep->points[3].curves[1].choice.sharding.params, 8);
    mics_plan_sweep_close(sweep);
    mics_plan_close(plan);
}

// ---- a config.json alone ----

static void test_bare_config(void **state)
{
    mics_memory *memory = *state;
    const char *sets[] = {"train_batch_size=48", "data.sequence_length=8"};
    mics_plan_spec spec = {.file = "model.json", .cluster = "p4d.24xlarge:1"};
    mics_plan *plan = NULL;
    mics_plan_found found = {.planner = NULL};
    ASSERT_OK(mics_plan_open(memory, &spec, &plan));
    assert_true(plan->bare);
    assert_int_equal(plan->length, 32); // all positions; 4096 at most
    assert_int_equal(mics_plan_request_get(plan, 1).global_batch, (1 << 22) / 32);
    // As many sequences as the ranks can share: 131072 over 24 ranks.
    assert_int_equal(mics_plan_request_get(plan, 3).global_batch, 131088);
    mics_plan_close(plan);
    spec.sets = sets;
    spec.set_count = 2;
    ASSERT_OK(mics_plan_open(memory, &spec, &plan));
    assert_int_equal(plan->length, 8);
    assert_int_equal(mics_plan_request_get(plan, 1).global_batch, 48);
    ASSERT_OK(mics_plan_find(plan, 1, 1, &found));
    assert_false(found.has_file);
    mics_plan_found_close(&found);
    mics_plan_close(plan);
}

// A run file whose own micro-batch cannot give its batch there: planned without it, and in silence.
static void test_odd_micro_batch(void **state)
{
    mics_memory *memory = *state;
    const char *sets[] = {"train_batch_size=16", "gradient_accumulation_steps=null"};
    const mics_plan_spec spec = {
        .file = "run.json", .sets = sets, .set_count = 2, .cluster = "p4d.24xlarge:2"};
    mics_plan *plan = NULL;
    mics_plan_found found = {.planner = NULL};
    ASSERT_OK(mics_plan_open(memory, &spec, &plan));
    capture_begin(&seen);
    ASSERT_OK(mics_plan_find(plan, 2, 1, &found));
    capture_end();
    assert_int_equal(seen.errors, 0);
    assert_false(found.has_file);
    mics_plan_found_close(&found);
    mics_plan_close(plan);
}

// ---- what a buyer asks ----

static void assert_close(double value, double expected, double tolerance)
{
    if (fabs(value - expected) > tolerance)
        fail_msg("%.12g is not %.12g", value, expected);
}

static void test_offer(void **state)
{
    mics_memory *memory = *state;
    mics_plan *plan = open_plan(memory, "p4d.24xlarge:2", false);
    const mics_accelerator *chip = &plan->cluster.accelerator;
    mics_plan_entry entry = {.step_us = 2e6, .tokens = 1e6, .tokens_per_s = 5e5};
    const double usd_per_day = 24 * 2 * plan->cluster.usd_per_node_hour;
    const mics_plan_losses none = {.failures_per_node_day = -1};
    // 8.64e10 tokens are 86400 steps of 2 s: two days.
    mics_plan_goal goal = {.tokens = 8.64e10, .days = 2.1, .losses = none};
    mics_plan_offer offer = mics_plan_offer_get(plan, 2, &entry, &goal);
    assert_int_equal(offer.ranks, 16);
    assert_close(offer.step_s.typical, 2, 1e-9);
    assert_close(offer.step_s.low, 2 * chip->step_low, 1e-9);
    assert_close(offer.step_s.high, 2 * chip->step_high, 1e-9);
    assert_true(chip->step_low < 1 && chip->step_high > 1);
    assert_true(offer.unpublished == NULL && offer.published_rows > 50);
    assert_string_equal(offer.kind->name, "A100 bf16 data");
    assert_close(offer.days.typical, 2, 1e-9);
    assert_close(offer.usd.typical, 2 * usd_per_day, 1e-6);
    assert_close(offer.usd.high, 2 * usd_per_day * chip->step_high, 1e-6);
    assert_true(offer.tokens.low == 8.64e10 && offer.tokens.high == 8.64e10);
    assert_true(offer.meets);
    goal.usd = 1.9 * usd_per_day;
    offer = mics_plan_offer_get(plan, 2, &entry, &goal);
    assert_true(offer.meets_days && !offer.meets_usd && !offer.meets);
    goal = (mics_plan_goal){.tokens = 8.64e10, .days = 1.9, .losses = none};
    assert_false(mics_plan_offer_get(plan, 2, &entry, &goal).meets);
    // Without tokens: what a day's money, or a day, is enough for, whichever is less.
    goal = (mics_plan_goal){.usd = usd_per_day, .losses = none};
    offer = mics_plan_offer_get(plan, 2, &entry, &goal);
    assert_close(offer.tokens.typical, 4.32e10, 1);
    assert_close(offer.tokens.low, 4.32e10 / chip->step_high, 1);
    assert_close(offer.tokens.high, 4.32e10 / chip->step_low, 1);
    assert_close(offer.usd.low, usd_per_day, 1e-6);
    assert_close(offer.usd.high, usd_per_day, 1e-6);
    assert_true(offer.meets);
    goal.days = 0.5;
    offer = mics_plan_offer_get(plan, 2, &entry, &goal);
    assert_close(offer.tokens.typical, 2.16e10, 1);
    assert_true(offer.days.low == offer.days.high);
    // Nothing published is like it: a wider range.
    plan->math = MICS_MATH_TF32;
    offer = mics_plan_offer_get(plan, 2, &entry, &goal);
    assert_string_equal(offer.unpublished, "in tf32");
    assert_int_equal(offer.published_rows, 0);
    assert_true(offer.step_s.low < 2 * chip->step_low && offer.step_s.high > 2 * chip->step_high);
    // Nor in fp8 on this chip: the nearest is of another one.
    plan->math = MICS_MATH_FP8;
    offer = mics_plan_offer_get(plan, 2, &entry, &goal);
    assert_null(offer.unpublished);
    assert_int_equal(offer.published_rows, 0);
    assert_string_equal(offer.kind->name, "H100 fp8 data");
    assert_true(offer.step_s.low < 2 * chip->step_low && offer.step_s.high > 2 * chip->step_high);
    // A price that is not known is within no budget.
    plan->cluster.usd_per_node_hour = 0;
    goal = (mics_plan_goal){.tokens = 8.64e10, .usd = 1e9};
    assert_false(mics_plan_offer_get(plan, 2, &entry, &goal).meets);
    mics_plan_close(plan);
}

// Plans of rivals with software of their own: theirs alone change.
static void test_software(void **state)
{
    mics_memory *memory = *state;
    mics_plan_spec spec = {.file = "model.json", .cluster = "p5.48xlarge:1"};
    mics_plan_found found = {.planner = NULL}, rivals = {.planner = NULL};
    mics_plan *plan = NULL, *theirs = NULL;
    ASSERT_OK(mics_plan_open(memory, &spec, &plan));
    ASSERT_OK(mics_plan_find(plan, 1, 0, &found));
    spec.software = "hf-2023";
    ASSERT_OK(mics_plan_open(memory, &spec, &theirs));
    ASSERT_OK(mics_plan_find(theirs, 1, 0, &rivals));
    assert_true(rivals.result->entries[0].step_us == found.result->entries[0].step_us);
    assert_true(rivals.baselines[MICS_PLAN_MICS].step_us ==
                found.baselines[MICS_PLAN_MICS].step_us);
    // Kernels in several parts.
    assert_true(rivals.baselines[MICS_PLAN_ZERO3].step_us >
                found.baselines[MICS_PLAN_ZERO3].step_us);
    mics_plan_found_close(&rivals);
    mics_plan_found_close(&found);
    mics_plan_close(theirs);
    mics_plan_close(plan);
}

static void test_several_clusters(void **state)
{
    mics_memory *memory = *state;
    const char *sets[] = {"train_batch_size=1024"};
    const char *const clusters[] = {"p4d.24xlarge:2", "dgx-h100:1", "p5.48xlarge"};
    const mics_plan_spec spec = {.file = "model.json", .sets = sets, .set_count = 1};
    const mics_plan_goal goal = {.tokens = 1e12};
    mics_plan_offers *offers = NULL;
    ASSERT_OK(mics_plan_offers_open(memory, &spec, clusters, 3, &goal, &offers));
    assert_int_equal(offers->count, 2 + 7); // p5.48xlarge: 1, 2, 4 ... 64 nodes
    bool front = false;
    for (int32_t i = 0; i < offers->count; i++) {
        const mics_plan_offer *offer = &offers->items[i];
        const bool priced = strcmp(offer->cluster, "dgx-h100") != 0;
        assert_string_equal(offer->note, "");
        assert_true(offer->meets && (offer->usd.typical > 0) == priced);
        assert_true(priced || !offer->front);
        front = front || offer->front;
        if (i > 0 && priced)
            assert_true(offers->items[i - 1].usd.typical <= offer->usd.typical);
        // The front is of those that no cheaper one outruns: they come in the order of price.
        for (int32_t j = 0; j < i && offer->front; j++)
            assert_true(offers->items[j].entry.tokens_per_s <= offer->entry.tokens_per_s);
    }
    assert_true(front && offers->items[0].front);
    mics_plan_offers_close(offers);
    // 1024 sequences do not go round on 3 nodes: 43 of a rank, of which 8 of all count nothing.
    const char *const odd[] = {"p4d.24xlarge:3", "p4d.24xlarge:1"};
    ASSERT_OK(mics_plan_offers_open(memory, &spec, odd, 2, &goal, &offers));
    for (int32_t i = 0; i < 2; i++) {
        const mics_plan_offer *offer = &offers->items[i];
        const mics_plan_choice *choice = &offer->entry.choice;
        assert_string_equal(offer->note, "");
        assert_int_equal(choice->micro_batch * choice->micro_steps, offer->ranks == 24 ? 43 : 128);
        assert_true(offer->entry.tokens == offers->items[0].entry.tokens);
    }
    mics_plan_offers_close(offers);
}

// ---- what a caller may fix ----

static void test_choices(void **state)
{
    mics_memory *memory = *state;
    mics_plan_spec spec = {.file = "model.json",
                           .cluster = "p5.48xlarge:1",
                           .attention = "flash3",
                           .has_reserve = true,
                           .reserve_bytes = 1 << 30,
                           .pipeline = {.tensor = 2}};
    mics_plan *plan = NULL, *own = NULL;
    mics_plan_found found = {.planner = NULL};
    ASSERT_OK(mics_plan_open(memory, &spec, &plan));
    const mics_accelerator *chip = &plan->cluster.accelerator;
    const mics_curve *third = &chip->attention_kernels[MICS_ATTENTION_FLASH3];
    assert_string_equal(plan->attention, "flash3");
    assert_true(mics_curve_at(&chip->attention_efficiency, 2048, 0) ==
                mics_curve_at(third, 2048, 0));
    ASSERT_OK(mics_plan_find(plan, 1, 1, &found));
    assert_int_equal(found.baselines[MICS_PLAN_MEGATRON].pipeline.tensor, 2);
    mics_plan_found_close(&found);
    spec.attention = NULL;
    spec.has_reserve = false;
    ASSERT_OK(mics_plan_open(memory, &spec, &own));
    const double reserve = own->cluster.accelerator.reserve_bytes;
    assert_string_equal(own->attention, "flash2");
    assert_true(own->reserve_bytes > 0);
    assert_true(fabs(chip->reserve_bytes - (1 << 30) - (reserve - own->reserve_bytes)) < 1);
    mics_plan_close(own);
    mics_plan_close(plan);
}

// Fewer sequences than ranks: plans in which some ranks compute rows that count nothing.
static void test_uneven_batch(void **state)
{
    mics_memory *memory = *state;
    const char *sets[] = {"train_batch_size=4"};
    mics_plan_spec spec = {
        .file = "model.json", .sets = sets, .set_count = 1, .cluster = "p4d.24xlarge:1"};
    mics_plan *plan = NULL;
    mics_plan_found found = {.planner = NULL};
    ASSERT_OK(mics_plan_open(memory, &spec, &plan));
    ASSERT_OK(mics_plan_find(plan, 1, 1, &found));
    const mics_plan_entry *best = &found.result->entries[0];
    assert_int_equal(found.result->count, 1);
    assert_int_equal(best->choice.micro_batch * best->choice.micro_steps, 1);
    assert_true(best->tokens == 4.0 * (double)plan->length);
    mics_plan_found_close(&found);
    mics_plan_close(plan);
}

// ---- what is refused ----

static void test_refused(void **state)
{
    static const struct {
        mics_plan_spec spec;
        const char *said;
    } bad[] = {
        {{.file = "nowhere.json", .cluster = "p4d.24xlarge:1"}, "nowhere.json"},
        {{.file = "run.json", .cluster = "p4d"}, "did you mean p4d.24xlarge"},
        {{.file = "run.json", .cluster = "p4d.24xlarge"}, "does not say how many nodes"},
        {{.file = "run.json", .cluster = "p4d.24xlarge:1", .precision = "fp6"}, "fp6 is not known"},
        {{.file = "run.json", .cluster = "p4d.24xlarge:1", .attention = "flash3"},
         "of unfused, flash1, flash2 and cudnn"},
        {{.file = "run.json", .cluster = "p4d.24xlarge:1", .software = "megatron"},
         "--software megatron is not known; mics, torchtitan-2024, "},
        {{.file = "run.json",
          .cluster = "p4d.24xlarge:1",
          .has_reserve = true,
          .reserve_bytes = 1e12},
         "leave some of it"},
    };
    static const char *const points[] = {"nodes=", "nodes=4..2", "nodes=2,1", "nodes=0", "ranks=2"};
    mics_memory *memory = *state;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        mics_plan *plan = NULL;
        capture_begin(&seen);
        assert_int_not_equal(mics_plan_open(memory, &bad[i].spec, &plan), MICS_OK);
        capture_end();
        assert_null(plan);
        ASSERT_SAID(&seen, bad[i].said);
    }
    mics_plan *plan = open_plan(memory, "p4d.24xlarge", true);
    for (size_t i = 0; i < sizeof points / sizeof points[0]; i++) {
        mics_plan_sweep *sweep = NULL;
        capture_begin(&seen);
        ASSERT_STATUS(MICS_ERR_INVALID, mics_plan_sweep_open(plan, points[i], &sweep));
        capture_end();
        assert_null(sweep);
        ASSERT_SAID(&seen, points[i]);
    }
    mics_plan_close(plan);
}

// ---- memory ----

static mics_status open_and_close(mics_memory *memory, const char *file)
{
    const mics_plan_spec spec = {.file = file, .cluster = "p4d.24xlarge:1"};
    mics_plan *plan = NULL;
    const mics_status status = mics_plan_open(memory, &spec, &plan);
    mics_plan_close(plan);
    return status;
}

static mics_status compare_and_close(mics_memory *memory, const char *file)
{
    const char *const clusters[] = {"p4d.24xlarge:1"};
    const char *sets[] = {"train_batch_size=8"};
    const mics_plan_spec spec = {.file = file, .sets = sets, .set_count = 1};
    const mics_plan_goal goal = {0};
    mics_plan_offers *offers = NULL;
    const mics_status status = mics_plan_offers_open(memory, &spec, clusters, 1, &goal, &offers);
    mics_plan_offers_close(offers);
    return status;
}

static void test_failing_allocations(void **state)
{
    static const struct {
        mics_status (*call)(mics_memory *memory, const char *file);
        const char *file;
    } calls[] = {{open_and_close, "run.json"},
                 {open_and_close, "model.json"},
                 {compare_and_close, "model.json"}};
    mics_memory *memory = *state;
    for (size_t i = 0; i < sizeof calls / sizeof calls[0]; i++) {
        mics_status status = MICS_ERR_MEMORY;
        int64_t failures = 0;
        capture_begin(&seen);
        while (status != MICS_OK) {
            // A comparison has thousands, most of them a planner's, whose tests fail each one.
            failures += 1 + failures / 64;
            mics_memory_fail_after(memory, failures);
            status = calls[i].call(memory, calls[i].file);
        }
        mics_memory_fail_after(memory, 0);
        capture_end();
        assert_true(failures > 5);
    }
}

// ---- the tests ----

static void write_file(const char *path, const char *text)
{
    FILE *out = fopen(path, "w");
    assert_non_null(out);
    fputs(text, out);
    assert_int_equal(fclose(out), 0);
}

static int begin(void **state)
{
    mics_memory *memory = NULL;
    if (mkdtemp(work) == NULL || chdir(work) != 0 || mics_memory_open(&memory) != MICS_OK)
        return 1;
    write_file("model.json",
               "{\"model_type\": \"gpt2\", \"activation_function\": \"gelu_new\", \"n_embd\": 16, "
               "\"n_head\": 2, \"n_layer\": 2, \"n_positions\": 32, \"vocab_size\": 256, "
               "\"attn_pdrop\": 0.0, \"embd_pdrop\": 0.0, \"resid_pdrop\": 0.0}");
    write_file("run.json",
               "{\"model\": {\"config\": \"model.json\"}, \"data\": {\"train\": [\"text.txt\"], "
               "\"sequence_length\": 16}, \"run\": {\"steps\": 1, \"out\": \"out\"}, "
               "\"train_micro_batch_size_per_gpu\": 2, \"gradient_accumulation_steps\": 3, "
               "\"sharding\": {\"params\": 4, \"grads\": 4, \"optimizer\": 4}}");
    *state = memory;
    return 0;
}

// Nothing is left of what was allocated.
static int end(void **state)
{
    char command[64];
    const int64_t leaks = mics_memory_close(*state);
    snprintf(command, sizeof command, "rm -rf %s", work);
    return system(command) == 0 && leaks == 0 ? 0 : 1;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_best_beside_the_rest),
        cmocka_unit_test(test_auto_and_twice),
        cmocka_unit_test(test_nothing_fits),
        cmocka_unit_test(test_memory_limit),
        cmocka_unit_test(test_sweeps),
        cmocka_unit_test(test_bare_config),
        cmocka_unit_test(test_odd_micro_batch),
        cmocka_unit_test(test_offer),
        cmocka_unit_test(test_software),
        cmocka_unit_test(test_several_clusters),
        cmocka_unit_test(test_choices),
        cmocka_unit_test(test_uneven_batch),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_failing_allocations),
    };
    return cmocka_run_group_tests(tests, begin, end);
}
