// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Batches that ranks and micro-batches do not divide: rows beyond the batch count nothing, in losses,
// gradients and figures of routers, so every mesh trains as one rank does.
#include "base/capture.h"
#include "exact.h"
#include "mics/run.h"
#include "run/settings.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { STEPS = 4, MAX_SETS = 8, BATCH = 16 };

static const char llama[] =
    "{\"model_type\": \"llama\", \"num_hidden_layers\": 2, \"num_attention_heads\": 2, "
    "\"num_key_value_heads\": 1, \"hidden_size\": 12, \"intermediate_size\": 10, "
    "\"max_position_embeddings\": 16, \"vocab_size\": 256}";
// Losses of routers, and experts so small that rows which count nothing could fill them.
static const char mixtral[] =
    "{\"model_type\": \"mixtral\", \"num_hidden_layers\": 2, \"num_attention_heads\": 2, "
    "\"num_key_value_heads\": 1, \"hidden_size\": 12, \"intermediate_size\": 10, "
    "\"num_local_experts\": 4, \"num_experts_per_tok\": 2, \"router_aux_loss_coef\": 0.2, "
    "\"output_router_logits\": true, \"router_z_loss_coef\": 0.1, \"router_jitter_noise\": 0.1, "
    "\"expert_capacity_factor\": 1.0, \"max_position_embeddings\": 16, \"vocab_size\": 256}";

typedef struct uneven_run {
    const char *model, *out;
    int32_t ranks, nodes;
    const char *sets[MAX_SETS];
    int64_t batch, until; // steps; 0: to the end
    mics_metrics steps[STEPS + 1];
    double validation[STEPS + 1];
    char lines[CAPTURE_LINES];
} uneven_run;

static void on_step(void *ctx, const mics_metrics *metrics)
{
    uneven_run *run = ctx;
    run->steps[metrics->step] = *metrics;
}

static void on_validation(void *ctx, int64_t step, double loss)
{
    uneven_run *run = ctx;
    run->validation[step] = loss;
}

static mics_status open_job(mics_memory *memory, uneven_run *run, mics_job **job_out)
{
    static const char *const texts[] = {"text.txt"};
    char batch[40];
    const char *sets[MAX_SETS + 5] = {"run.threads=1", "run.device=cpu", "run.comm_timeout_s=60",
                                      "run.validation_batches=2", batch};
    int32_t count = 5;
    snprintf(batch, sizeof batch, "train_batch_size=%d", (int)run->batch);
    for (int i = 0; i < MAX_SETS && run->sets[i] != NULL; i++)
        sets[count++] = run->sets[i];
    const mics_run_values values = {.model_config = run->model,
                                    .train = texts,
                                    .train_count = 1,
                                    .sequence_length = 8,
                                    .steps = STEPS,
                                    .seed = 3,
                                    .out = run->out,
                                    .learning_rate = 1e-2};
    const mics_job_spec spec = {
        .memory = memory,
        .values = &values,
        .sets = sets,
        .set_count = count,
        .ranks = run->ranks,
        .nodes = run->nodes,
        .callbacks = {.ctx = run, .step = on_step, .validation = on_validation}};
    return open_told(&spec, run->lines, job_out);
}

// Memory is checked against what the schedule says to the byte, and each step what it sends.
static void go(uneven_run *run)
{
    mics_memory *memory = NULL;
    mics_job *job = NULL;
    run->batch = run->batch > 0 ? run->batch : BATCH;
    ASSERT_OK(mics_memory_open(&memory));
    if (open_job(memory, run, &job) != MICS_OK)
        fail_msg("%s", run->lines);
    train_exactly(job, run->until);
    assert_int_equal(mics_memory_close(memory), 0);
}

static void check_close(const uneven_run *run, int step, const char *what, double got,
                        double wanted)
{
    if (!(fabs(got - wanted) <= 1e-5 * fmax(1, fabs(wanted))))
        fail_msg("%s on %d ranks (%s): step %d: %s %.9g, one rank has %.9g", run->model,
                 (int)run->ranks, run->sets[0], step, what, got, wanted);
}

static void check_same(const uneven_run *run, const uneven_run *one, int from, int to)
{
    for (int step = from; step <= to; step++) {
        const mics_metrics *got = &run->steps[step], *wanted = &one->steps[step];
        check_close(run, step, "loss", got->loss, wanted->loss);
        check_close(run, step, "norm", got->grad_norm, wanted->grad_norm);
        check_close(run, step, "tokens", (double)got->tokens, (double)wanted->tokens);
        assert_int_equal(got->router.any, wanted->router.any);
        check_close(run, step, "entropy", got->router.entropy, wanted->router.entropy);
        check_close(run, step, "fullest", got->router.fullest, wanted->router.fullest);
        check_close(run, step, "balance", got->router.balance, wanted->router.balance);
        check_close(run, step, "dropped", got->router.dropped, wanted->router.dropped);
    }
    if (to == STEPS)
        check_close(run, to, "validation", run->validation[to], one->validation[to]);
}

#define MICRO(n) "train_micro_batch_size_per_gpu=" #n
#define STEP(n) "gradient_accumulation_steps=" #n
#define SHARDED(p, g, o) "sharding={\"params\": " #p ", \"grads\": " #g ", \"optimizer\": " #o "}"

typedef struct uneven_case {
    int32_t ranks, nodes, filler, rows;
    const char *sets[MAX_SETS];
} uneven_case;

static const uneven_case cases[] = {
    {1, 1, 2, 18, {MICRO(6)}},
    {2, 1, 2, 18, {MICRO(3), SHARDED(2, 2, 2)}},
    {3, 1, 2, 18, {STEP(1), SHARDED(1, 3, 3)}},
    {1, 1, 4, 20, {MICRO(5)}}, // four micro-steps
    {3, 1, 2, 18, {MICRO(2), SHARDED(3, 3, 3), "run.recompute=true"}},
    {4, 2, 8, 24, {MICRO(3), SHARDED(2, 2, 4)}},
    {6, 2, 2, 18, {MICRO(1), SHARDED(3, 3, 6), "run.layered_micro_steps=2"}},
    {6, 3, 2, 18, {STEP(3), SHARDED(2, 2, 2), "run.layered_micro_steps=3"}},
    {6, 2, 2, 18, {"run.memory_limit=1GiB"}}, // all else is open
    {8, 2, 8, 24, {MICRO(3), SHARDED(4, 4, 8)}},
    {8, 2, 0, 0, {MICRO(2), SHARDED(8, 8, 8)}},
};

static void check_meshes(const char *model)
{
    char line[128], out[64];
    uneven_run one = {.model = model, .out = out, .ranks = 1, .nodes = 1, .sets = {MICRO(4)}};
    snprintf(out, sizeof out, "%s-one", model);
    go(&one);
    assert_null(strstr(one.lines, "count nothing"));
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        uneven_run run = {
            .model = model, .out = out, .ranks = cases[i].ranks, .nodes = cases[i].nodes};
        snprintf(out, sizeof out, "%s-mesh-%zu", model, i);
        memcpy(run.sets, cases[i].sets, sizeof run.sets);
        go(&run);
        check_same(&run, &one, 1, STEPS);
        snprintf(line, sizeof line,
                 "%d of %d rows of a step count nothing: 16 sequences on %d ranks",
                 (int)cases[i].filler, (int)cases[i].rows, (int)cases[i].ranks);
        if ((strstr(run.lines, line) != NULL) != (cases[i].filler > 0))
            fail_msg("case %zu: \"%s\" and %s", i, line, run.lines);
    }
}

static void test_llama(void **state)
{
    (void)state;
    check_meshes("llama.json");
}

static void test_mixtral(void **state)
{
    (void)state;
    check_meshes("mixtral.json");
}

// Experts on different ranks, where tokens travel: rows that count nothing travel too.
static void test_experts(void **state)
{
    (void)state;
    uneven_run one = {
        .model = "mixtral.json", .out = "alone", .ranks = 1, .nodes = 1, .sets = {MICRO(4)}};
    uneven_run run = {.model = "mixtral.json",
                      .out = "spread",
                      .ranks = 6,
                      .nodes = 3,
                      .sets = {MICRO(2), "sharding={\"params\": 2, \"experts\": 2}"}};
    go(&one);
    go(&run);
    check_same(&run, &one, 1, STEPS);
}

// 8 ranks that become 6, then 3, then 4, and the run file stays what it is.
static void test_fewer_ranks(void **state)
{
    (void)state;
    static const int32_t ranks[STEPS] = {8, 6, 3, 4};
    static const char *const models[] = {"llama.json", "mixtral.json"};
    static const char *const batches[] = {MICRO(2), "run.recompute=false"};
    for (int i = 0; i < 4; i++) {
        char out[2][32];
        snprintf(out[0], sizeof out[0], "whole-%d", i);
        snprintf(out[1], sizeof out[1], "parts-%d", i);
        uneven_run one = {
            .model = models[i / 2], .out = out[0], .ranks = 1, .nodes = 1, .sets = {MICRO(4)}};
        go(&one);
        for (int step = 1; step <= STEPS; step++) {
            uneven_run part = {.model = models[i / 2],
                               .out = out[1],
                               .ranks = ranks[step - 1],
                               .nodes = 1,
                               .sets = {batches[i % 2]},
                               .until = step < STEPS};
            go(&part);
            check_same(&part, &one, step, step);
        }
    }
}

// Fewer sequences than ranks.
static void test_small_batch(void **state)
{
    (void)state;
    uneven_run one = {
        .model = "mixtral.json", .out = "few", .ranks = 1, .nodes = 1, .sets = {MICRO(3)}};
    uneven_run run = {.model = "mixtral.json", .out = "many", .ranks = 4, .nodes = 2};
    one.batch = run.batch = 3;
    go(&one);
    go(&run);
    check_same(&run, &one, 1, STEPS);
    assert_non_null(
        strstr(run.lines, "1 of 4 rows of a step count nothing: 3 sequences on 4 ranks"));
}

static void check_refused(const char *micro, const char *steps, const char *with)
{
    mics_memory *memory = NULL;
    mics_job *job = NULL;
    uneven_run run = {.model = "llama.json",
                      .out = "refused",
                      .ranks = 6,
                      .nodes = 1,
                      .batch = BATCH,
                      .sets = {steps, micro}};
    ASSERT_OK(mics_memory_open(&memory));
    assert_int_equal(open_job(memory, &run, &job), MICS_ERR_INVALID);
    if (strstr(run.lines, with) == NULL)
        fail_msg("%s", run.lines);
    assert_int_equal(mics_memory_close(memory), 0);
}

static void test_refused(void **state)
{
    (void)state;
    check_refused(NULL, STEP(4),
                  "4 micro-steps of 6 ranks are more than train_batch_size 16 has "
                  "sequences for; at most 3 would work");
    check_refused(MICRO(1), STEP(3), "leave one of the three out");
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
    static char folder[] = "/tmp/mics-uneven-XXXXXX";
    char text[2048];
    (void)state;
    if (mkdtemp(folder) == NULL || chdir(folder) != 0)
        return -1;
    write_text("llama.json", llama);
    write_text("mixtral.json", mixtral);
    for (size_t i = 0; i < sizeof text - 1; i++)
        text[i] = (char)('a' + (i * i + i / 7) % 26);
    text[sizeof text - 1] = '\0';
    write_text("text.txt", text);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_llama),       cmocka_unit_test(test_mixtral),
        cmocka_unit_test(test_experts),     cmocka_unit_test(test_fewer_ranks),
        cmocka_unit_test(test_small_batch), cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, setup, NULL);
}
