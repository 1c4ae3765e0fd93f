// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Runs whose ranks keep different experts: stopped, and resumed on another mesh with another number
// of them, they go on as one rank does that never stopped.
#include "base/capture.h"
#include "mics/run.h"
#include "run/settings.h"
#include "test.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { STEPS = 6, MAX_SETS = 8, SAMPLES = 8 };

static const char model[] =
    "{\"model_type\": \"mixtral\", \"num_hidden_layers\": 2, \"num_attention_heads\": 2, "
    "\"num_key_value_heads\": 1, \"hidden_size\": 12, \"intermediate_size\": 10, "
    "\"num_local_experts\": 4, \"num_experts_per_tok\": 2, "
    "\"max_position_embeddings\": 19, \"vocab_size\": 256}";
// Links so slow that parameters of experts should not be gathered.
static const char links[] =
    "{\"name\": \"links\", \"pipelined\": false, \"rings\": 1, \"accelerator\": "
    "{\"memory_gib\": 4, \"tflops_fp32\": 0.1, \"memory_gb_per_s\": 20}, \"tiers\": "
    "{\"node\": {\"fan_out\": 2, \"gb_per_s\": 0.01}, \"network\": {\"gb_per_s\": 0.001}}}";
static const char dense[] =
    "{\"model_type\": \"gpt2\", \"n_layer\": 1, \"n_head\": 3, \"n_embd\": 12, "
    "\"n_positions\": 19, \"vocab_size\": 256}";

typedef struct spread_run {
    const char *out, *resume, *config, *experts;
    int32_t ranks, nodes;
    mics_sharding sharding;
    bool open_batch;
    double losses[STEPS + 1]; // by step
} spread_run;

static void on_step(void *ctx, const mics_metrics *metrics)
{
    spread_run *run = ctx;
    run->losses[metrics->step] = metrics->loss;
}

static mics_status open_job(mics_memory *memory, spread_run *run, mics_job **job_out)
{
    static const char *const texts[] = {"text.txt"};
    const char *const sets[] = {"run.threads=1",         "run.device=cpu",
                                "run.comm_timeout_s=60", "run.validate_every=0",
                                "train_batch_size=8",    run->experts};
    const mics_run_values values = {.model_config = run->config,
                                    .train = texts,
                                    .train_count = 1,
                                    .sequence_length = 8,
                                    .steps = STEPS,
                                    .seed = 3,
                                    .out = run->out,
                                    .micro_batch = run->open_batch ? 0 : SAMPLES / 2 / run->ranks,
                                    .micro_steps = run->open_batch ? 0 : 2,
                                    .learning_rate = 3e-3,
                                    .sharding = run->sharding};
    const mics_job_spec spec = {.memory = memory,
                                .values = &values,
                                .sets = sets,
                                .set_count = 6,
                                .ranks = run->ranks,
                                .nodes = run->nodes,
                                .resume = run->resume,
                                .callbacks = {.ctx = run, .step = on_step}};
    return mics_job_open(&spec, job_out);
}

static void go(spread_run *run, int64_t steps)
{
    mics_memory *memory = NULL;
    mics_job *job = NULL;
    ASSERT_OK(mics_memory_open(&memory));
    ASSERT_OK(open_job(memory, run, &job));
    ASSERT_OK(mics_job_train(job, steps));
    if (steps > 0)
        ASSERT_OK(mics_job_save(job));
    ASSERT_OK(mics_job_close(job));
    assert_int_equal(mics_memory_close(memory), 0);
}

static int32_t experts_of(spread_run *run)
{
    mics_memory *memory = NULL;
    mics_job *job = NULL;
    ASSERT_OK(mics_memory_open(&memory));
    ASSERT_OK(open_job(memory, run, &job));
    const int32_t experts = mics_job_run(job)->experts;
    ASSERT_OK(mics_job_close(job));
    assert_int_equal(mics_memory_close(memory), 0);
    return experts;
}

static void check_losses(const spread_run *run, const spread_run *reference, int from, int to)
{
    for (int step = from; step <= to; step++) {
        if (!(fabs(run->losses[step] - reference->losses[step]) <= 2e-6 * reference->losses[step]))
            fail_msg("%s, %s: step %d: loss %.9g, one rank has %.9g", run->out, run->experts, step,
                     run->losses[step], reference->losses[step]);
    }
}

static void test_resume_on_another_mesh(void **state)
{
    (void)state;
    static const struct {
        int32_t ranks, nodes;
        mics_sharding sharding;
        const char *experts;
    } parts[] = {
        {4, 2, {4, 4, 4}, "sharding.experts=2"}, {2, 1, {2, 2, 2}, "sharding.experts=1"},
        {4, 1, {4, 4, 4}, "sharding.experts=4"}, {4, 2, {2, 2, 4}, "sharding.experts=2"},
        {2, 2, {2, 2, 2}, "sharding.experts=2"}, {1, 1, {1, 1, 1}, "sharding.experts=1"},
    };
    spread_run one = {.out = "one",
                      .resume = "none",
                      .config = "mixture.json",
                      .experts = "sharding.experts=1",
                      .ranks = 1,
                      .nodes = 1,
                      .sharding = {1, 1, 1}};
    go(&one, 0);
    for (int step = 1; step <= STEPS; step++) {
        spread_run part = {.out = "parts",
                           .resume = step == 1 ? "none" : "auto",
                           .config = "mixture.json",
                           .experts = parts[step - 1].experts,
                           .ranks = parts[step - 1].ranks,
                           .nodes = parts[step - 1].nodes,
                           .sharding = parts[step - 1].sharding};
        go(&part, 1);
        check_losses(&part, &one, step, step);
    }
}

static void check_refused(spread_run run, const char *with)
{
    mics_memory *memory = NULL;
    mics_job *job = NULL;
    capture caught = {0};
    ASSERT_OK(mics_memory_open(&memory));
    capture_begin(&caught);
    const mics_status status = open_job(memory, &run, &job);
    capture_end();
    assert_int_not_equal(status, MICS_OK);
    ASSERT_SAID(&caught, with);
    assert_int_equal(mics_memory_close(memory), 0);
}

static void test_refused(void **state)
{
    (void)state;
    spread_run run = {.out = "refused",
                      .resume = "none",
                      .config = "mixture.json",
                      .ranks = 4,
                      .nodes = 1,
                      .sharding = {2, 2, 4}};
    run.experts = "sharding.experts=4";
    check_refused(run, "these would work: 1, 2");
    run.sharding = (mics_sharding){4, 4, 4};
    run.experts = "sharding.experts=3";
    check_refused(run, "these would work: 1, 2, 4");
    run.experts = "sharding.experts=2";
    run.config = "dense.json";
    check_refused(run, "the model has no experts; only 1 would work");
}

static void on_anew(void *ctx, mics_log_level level, int32_t rank, const char *line)
{
    (void)level;
    (void)rank;
    if (strstr(line, "chosen anew") != NULL)
        snprintf(ctx, 512, "%s", line);
}

// What "auto" leaves open is chosen for the E that is given; and E with the sharding, which stays in
// checkpoints.
static void test_chosen(void **state)
{
    (void)state;
    spread_run open = {.out = "open",
                       .resume = "none",
                       .config = "mixture.json",
                       .experts = "sharding.experts=2",
                       .ranks = 4,
                       .nodes = 2,
                       .sharding = {2, 2, 2},
                       .open_batch = true};
    assert_int_equal(experts_of(&open), 2);
    spread_run chosen = {.out = "chosen",
                         .resume = "none",
                         .config = "mixture.json",
                         .experts = "run.cluster=links.json",
                         .ranks = 4,
                         .nodes = 2};
    spread_run one = chosen;
    one.out = "alone";
    one.ranks = one.nodes = 1;
    one.experts = "run.min_replicas=1";
    go(&one, 3);
    const int32_t experts = experts_of(&chosen);
    assert_true(experts > 1);
    go(&chosen, 2);
    chosen.resume = "auto";
    chosen.experts = "run.cluster=none"; // what was chosen stays
    assert_int_equal(experts_of(&chosen), experts);
    go(&chosen, 1);
    check_losses(&chosen, &one, 1, 3);
    // On fewer ranks another one, and the old one is named.
    char said[512] = "", kept[16];
    chosen.ranks = 2;
    chosen.nodes = 1;
    mics_log_set_sink(on_anew, said);
    experts_of(&chosen);
    mics_log_set_sink(NULL, NULL);
    snprintf(kept, sizeof kept, ", E = %d, is of", (int)experts);
    if (strstr(said, kept) == NULL)
        fail_msg("said \"%s\", without \"%s\"", said, kept);
}

static void write_text(const char *path, const char *text)
{
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

static int setup(void **state)
{
    static char folder[] = "/tmp/mics-experts-XXXXXX";
    (void)state;
    if (mkdtemp(folder) == NULL || chdir(folder) != 0)
        return -1;
    write_text("mixture.json", model);
    write_text("dense.json", dense);
    write_text("links.json", links);
    FILE *file = fopen("text.txt", "w");
    for (int i = 0; file != NULL && i < 400; i++)
        fprintf(file, "the %d. line of %d. ", i, i * i % 97);
    if (file != NULL)
        fclose(file);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_resume_on_another_mesh),
                                       cmocka_unit_test(test_chosen),
                                       cmocka_unit_test(test_refused)};
    return cmocka_run_group_tests(tests, setup, NULL);
}
