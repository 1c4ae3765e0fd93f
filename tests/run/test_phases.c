// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Phases: on every mesh and across stops the losses of one rank, the samples that their batches say,
// whether the run file gives them or --set begins them.
#include "base/capture.h"
#include "mics/run.h"
#include "run/settings.h"
#include "test.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { STEPS = 12, MAX_SETS = 8 };

static const char llama[] =
    "{\"model_type\": \"llama\", \"num_hidden_layers\": 2, \"num_attention_heads\": 2, "
    "\"num_key_value_heads\": 1, \"hidden_size\": 12, \"intermediate_size\": 10, "
    "\"max_position_embeddings\": 16, \"vocab_size\": 256}";

// Three steps of 8 sequences, three of 12, then another text, then longer sequences and a rate of
// their own, with another seed.
static const char list[] =
    "phases=[{\"steps\": 3}, {\"steps\": 3, \"train_batch_size\": 12}, "
    "{\"steps\": 2, \"data\": {\"train\": [\"other.txt\"]}}, "
    "{\"steps\": 4, \"data\": {\"train\": [\"text.txt\"], \"sequence_length\": 16}, "
    "\"run\": {\"seed\": 8}, \"train_batch_size\": 10, "
    "\"scheduler\": {\"type\": \"linear\", \"params\": {\"warmup_num_steps\": 1}}}]";

typedef struct phase_run {
    const char *out;
    int32_t ranks, nodes;
    int64_t begin, steps;       // that run.steps says, 0: nothing
    const char *sets[MAX_SETS]; // besides the usual
    const char *resume;
    mics_metrics metrics[STEPS + 1];
    int64_t start_step;
    char lines[CAPTURE_LINES];
} phase_run;

static void on_step(void *ctx, const mics_metrics *metrics)
{
    ((phase_run *)ctx)->metrics[metrics->step] = *metrics;
}

static mics_status open_job(mics_memory *memory, phase_run *run, mics_job **job_out)
{
    static const char *const texts[] = {"text.txt"};
    const char *sets[MAX_SETS + 4] = {"run.threads=1", "run.device=cpu", "run.comm_timeout_s=60",
                                      "run.validation_batches=2"};
    int32_t count = 4;
    for (int i = 0; i < MAX_SETS && run->sets[i] != NULL; i++)
        sets[count++] = run->sets[i];
    const mics_run_values values = {.model_config = "llama.json",
                                    .train = texts,
                                    .train_count = 1,
                                    .sequence_length = 8,
                                    .steps = run->steps,
                                    .seed = 3,
                                    .out = run->out,
                                    .learning_rate = 1e-2};
    const mics_job_spec spec = {.memory = memory,
                                .values = &values,
                                .sets = sets,
                                .set_count = count,
                                .ranks = run->ranks > 0 ? run->ranks : 1,
                                .nodes = run->nodes > 0 ? run->nodes : 1,
                                .resume = run->resume,
                                .callbacks = {.ctx = run, .step = on_step}};
    mics_log_set_sink(capture_lines, run->lines);
    return mics_job_open(&spec, job_out);
}

// Each phase's peak is what its own schedule says, to the byte.
static void check_memory(const mics_job *job)
{
    const mics_job_facts facts = mics_job_facts_get(job);
    const mics_memory_ledger *ledger = &mics_job_schedule(job)->ledger;
    for (int tag = 0; tag < MICS_MEM_HOST; tag++)
        assert_int_equal(facts.peak_bytes[tag], ledger->bytes[tag]);
}

// In one job, in calls of so many steps each; 0: in one call.
static void go(phase_run *run, int64_t each, int64_t until)
{
    mics_memory *memory = NULL;
    mics_job *job = NULL;
    ASSERT_OK(mics_memory_open(&memory));
    if (open_job(memory, run, &job) != MICS_OK)
        fail_msg("%s", run->lines);
    run->start_step = mics_job_facts_get(job).start_step;
    do {
        if (mics_job_train(job, each) != MICS_OK)
            fail_msg("%s", run->lines);
        check_memory(job);
    } while (each > 0 && mics_job_facts_get(job).step < until);
    if (until > 0)
        ASSERT_OK(mics_job_save(job));
    ASSERT_OK(mics_job_close(job));
    mics_log_set_sink(NULL, NULL);
    assert_int_equal(mics_memory_close(memory), 0);
}

#define BATCH "train_batch_size=8"
#define STILL "optimizer.params.lr=0"
#define MICRO(n) "train_micro_batch_size_per_gpu=" #n
#define SHARDED(p, g, o) "sharding={\"params\": " #p ", \"grads\": " #g ", \"optimizer\": " #o "}"

static void check_step(const phase_run *run, const phase_run *one, int step)
{
    const mics_metrics *got = &run->metrics[step], *wanted = &one->metrics[step];
    if (!(fabs(got->loss - wanted->loss) <= 1e-5 * wanted->loss) || got->lr != wanted->lr ||
        got->tokens != wanted->tokens || got->phase != wanted->phase)
        fail_msg("%s on %d ranks (%s), step %d: loss %.9g, lr %g, %lld tokens, phase %d; one rank "
                 "has %.9g, %g, %lld, %d",
                 run->out, (int)run->ranks, run->sets[2] != NULL ? run->sets[2] : "", step,
                 got->loss, got->lr, (long long)got->tokens, (int)got->phase, wanted->loss,
                 wanted->lr, (long long)wanted->tokens, (int)wanted->phase);
}

static void check_same_bits(const phase_run *a, const phase_run *b, int from, int to)
{
    for (int step = from; step <= to; step++)
        if (a->metrics[step].loss != b->metrics[step].loss ||
            a->metrics[step].lr != b->metrics[step].lr)
            fail_msg("%s and %s, step %d: losses %.17g and %.17g, rates %g and %g", a->out, b->out,
                     step, a->metrics[step].loss, b->metrics[step].loss, a->metrics[step].lr,
                     b->metrics[step].lr);
}

static phase_run one_rank(void)
{
    static phase_run one;
    if (one.out == NULL) {
        one = (phase_run){.out = "one", .sets = {BATCH, list}};
        go(&one, 0, 0);
    }
    return one;
}

static void test_what_phases_say(void **state)
{
    (void)state;
    static const int phases[STEPS] = {1, 1, 1, 2, 2, 2, 3, 3, 4, 4, 4, 4};
    static const int sequences[STEPS] = {8, 8, 8, 12, 12, 12, 12, 12, 10, 10, 10, 10};
    static const double rates[STEPS] = {1e-2, 1e-2, 1e-2, 1e-2, 1e-2,     1e-2,
                                        1e-2, 1e-2, 0,    1e-2, 2e-2 / 3, 1e-2 / 3};
    const phase_run one = one_rank();
    int64_t tokens = 0;
    for (int step = 1; step <= STEPS; step++) {
        const mics_metrics *metrics = &one.metrics[step];
        tokens += sequences[step - 1] * (phases[step - 1] == 4 ? 16 : 8);
        assert_int_equal(metrics->phase, phases[step - 1]);
        assert_int_equal(metrics->tokens, tokens);
        assert_int_equal(metrics->steps, STEPS);
        assert_true(fabs(metrics->lr - rates[step - 1]) < 1e-12);
    }
    assert_non_null(strstr(one.lines, "phase 2 of 4 begins behind step 3: train_batch_size 8 -> "
                                      "12, "));
    assert_non_null(strstr(one.lines, "the order of samples goes on at sample 24"));
    assert_non_null(strstr(one.lines, "phase 3 of 4 begins behind step 6: data.train "));
    assert_non_null(strstr(one.lines, "phase 4 of 4 begins behind step 8: "));
    assert_non_null(strstr(one.lines, "its own order begins at sample 0"));
}

// A rate of 0 leaves the weights: a step's loss is the mean of those of its samples.
static void test_samples_of_a_ramp(void **state)
{
    (void)state;
    phase_run plain = {.out = "plain", .steps = STEPS, .sets = {"train_batch_size=4", STILL}};
    phase_run ramp = {.out = "ramp",
                      .sets = {"train_batch_size=4", STILL,
                               "phases=[{\"steps\": 2}, {\"steps\": 2, \"train_batch_size\": 8}, "
                               "{\"steps\": 1, \"train_batch_size\": 24}]"}};
    go(&plain, 0, 0);
    go(&ramp, 0, 0);
    static const int first[] = {1, 2, 3, 5, 7}, last[] = {1, 2, 4, 6, 12};
    for (int step = 1; step <= 5; step++) {
        double sum = 0;
        for (int of = first[step - 1]; of <= last[step - 1]; of++)
            sum += plain.metrics[of].loss;
        sum /= last[step - 1] - first[step - 1] + 1;
        if (!(fabs(ramp.metrics[step].loss - sum) <= 1e-6 * sum))
            fail_msg("step %d: loss %.9g, its samples have %.9g", step, ramp.metrics[step].loss,
                     sum);
    }
    // New data, or another length or seed, begins with the first samples of a run of its own.
    static const char *const own[][2] = {{"data.train=[\"other.txt\"]", "\"data\": {\"train\": "
                                                                        "[\"other.txt\"]}"},
                                         {"data.sequence_length=12", "\"data\": "
                                                                     "{\"sequence_length\": 12}"}};
    for (int i = 0; i < 2; i++) {
        char phases[160], outs[2][16];
        snprintf(phases, sizeof phases, "phases=[{\"steps\": 2}, {\"steps\": 2, %s}]", own[i][1]);
        snprintf(outs[0], sizeof outs[0], "fresh-%d", i);
        snprintf(outs[1], sizeof outs[1], "begun-%d", i);
        phase_run fresh = {.out = outs[0], .steps = 2, .sets = {BATCH, STILL, own[i][0]}};
        phase_run begun = {.out = outs[1], .sets = {BATCH, STILL, phases}};
        go(&fresh, 0, 0);
        go(&begun, 0, 0);
        assert_true(begun.metrics[3].loss == fresh.metrics[1].loss &&
                    begun.metrics[4].loss == fresh.metrics[2].loss);
    }
}

// Phases in which nothing changes are the run without them: the optimizer's state is kept.
static void test_same_phases(void **state)
{
    (void)state;
    phase_run plain = {.out = "whole", .ranks = 2, .steps = 6, .sets = {BATCH, SHARDED(2, 2, 2)}};
    phase_run parts = {.out = "same",
                       .ranks = 2,
                       .sets = {BATCH, SHARDED(2, 2, 2),
                                "phases=[{\"steps\": 2}, {\"steps\": 3, \"train_batch_size\": 8}, "
                                "{\"steps\": 1}]"}};
    go(&plain, 0, 0);
    go(&parts, 0, 0);
    check_same_bits(&plain, &parts, 1, 6);
    phase_run shrinks = {.out = "shrinks", // and a smaller phase has a peak of its own
                         .sets = {"train_batch_size=24", "phases=[{\"steps\": 1}, {\"steps\": 1, "
                                                         "\"train_batch_size\": 4}]"}};
    go(&shrinks, 0, 0);
}

static const struct {
    int32_t ranks, nodes;
    const char *sets[3];
} meshes[] = {
    {2, 1, {MICRO(1), SHARDED(2, 2, 2), NULL}}, // accumulation 4
    {2, 2, {MICRO(4), SHARDED(1, 2, 2), NULL}}, // and 1
    {3, 1, {MICRO(1), SHARDED(3, 3, 3), NULL}}, {4, 2, {MICRO(2), SHARDED(2, 2, 4), NULL}},
    {6, 3, {MICRO(1), SHARDED(2, 2, 6), NULL}}, {8, 2, {MICRO(1), SHARDED(4, 4, 8), NULL}},
    {4, 1, {"run.recompute=true", NULL, NULL}},
};
enum { MESHES = sizeof meshes / sizeof *meshes };

static void test_meshes(void **state)
{
    (void)state;
    const phase_run one = one_rank();
    for (int i = 0; i < MESHES; i++) {
        char out[16];
        phase_run run = {.out = out, .ranks = meshes[i].ranks, .nodes = meshes[i].nodes};
        snprintf(out, sizeof out, "mesh-%d", i);
        run.sets[0] = BATCH;
        run.sets[1] = list;
        memcpy(run.sets + 2, meshes[i].sets, sizeof meshes[i].sets);
        go(&run, i % 3, STEPS); // in one call, or by steps
        for (int step = 1; step <= STEPS; step++)
            check_step(&run, &one, step);
    }
}

// Stopped behind each step, in mid-phase and between two, and resumed on another mesh.
static void test_stops(void **state)
{
    (void)state;
    const phase_run one = one_rank();
    for (int step = 1; step <= STEPS; step++) {
        phase_run run = {.out = "parts",
                         .ranks = meshes[step % MESHES].ranks,
                         .nodes = meshes[step % MESHES].nodes};
        run.sets[0] = BATCH;
        run.sets[1] = list;
        memcpy(run.sets + 2, meshes[step % MESHES].sets, sizeof meshes[0].sets);
        go(&run, 1, step);
        assert_int_equal(run.start_step, step - 1);
        check_step(&run, &one, step);
    }
}

// Stopped behind each step, and resumed with other layers and parts recomputed: not a bit differs.
static void test_recompute_on_resumes(void **state)
{
    (void)state;
    static const char *const forms[] = {"run.recompute=1", "run.recompute=attention",
                                        "run.recompute=false", "run.recompute=mlp+last 1",
                                        "run.recompute=true"};
    const phase_run one = one_rank();
    for (int step = 1; step <= STEPS; step++) {
        phase_run run = {.out = "remade", .sets = {BATCH, list, forms[step % 5]}};
        go(&run, 1, step);
        assert_int_equal(run.start_step, step - 1);
        check_same_bits(&one, &run, step, step);
    }
}

// By hand: the same phases, begun by --set on resumes, and kept on those that set nothing.
static void test_set_on_a_resume(void **state)
{
    (void)state;
    static const char *const sets[][5] = {
        {"train_batch_size=12"},
        {"data.train=[\"other.txt\"]"},
        {"data.train=[\"text.txt\"]", "data.sequence_length=16", "run.seed=8",
         "train_batch_size=10",
         "scheduler={\"type\": \"linear\", \"params\": {\"warmup_num_steps\": 1}}"},
    };
    static const int begins[] = {3, 6, 8};
    const phase_run one = one_rank();
    for (int step = 1; step <= STEPS; step++) {
        phase_run run = {.out = "by-hand", .steps = STEPS, .ranks = step % 2 + 1};
        run.sets[0] = step <= 3 ? BATCH : MICRO(2);
        for (int i = 0; i < 3; i++)
            if (begins[i] == step - 1)
                memcpy(run.sets + 1, sets[i], sizeof sets[i]);
        go(&run, 1, step);
        if (run.metrics[step].phase == 0) // nothing knows of phases yet
            run.metrics[step].phase = 1;
        check_step(&run, &one, step);
        if ((strstr(run.lines, " begins behind step ") != NULL) !=
            (step == 4 || step == 7 || step == 9))
            fail_msg("step %d: %s", step, run.lines);
    }
}

// Steps together, then by islands, then together again. Where islands take plain steps and meet behind
// each, their mean is the step of all; and stops between any two steps leave the bits.
static void test_islands(void **state)
{
    (void)state;
    static const char every_step[] =
        "phases=[{\"steps\": 3}, {\"steps\": 5, \"outer\": {\"every\": 1, \"ranks\": 2, \"lr\": 1, "
        "\"momentum\": 0}}, {\"steps\": 4, \"outer\": {\"every\": 0}}]";
    static const char every_second[] =
        "phases=[{\"steps\": 3}, {\"steps\": 5, \"outer\": {\"every\": 2, \"ranks\": 2, "
        "\"fragments\": 2, \"overlap_steps\": 1}}, {\"steps\": 4, \"outer\": {\"every\": 0}}]";
    static const char sgd[] = "optimizer.type=\"SGD\"", plain[] = "gradient_clipping=0";
    phase_run together = {.out = "together", .steps = STEPS, .sets = {BATCH, sgd, plain}};
    phase_run mean = {.out = "mean",
                      .ranks = 4,
                      .nodes = 2,
                      .sets = {BATCH, sgd, plain, every_step, SHARDED(2, 2, 2)}};
    go(&together, 0, 0);
    go(&mean, 0, STEPS);
    for (int step = 1; step <= STEPS; step++) {
        together.metrics[step].phase = step <= 3 ? 1 : step <= 8 ? 2 : 3;
        check_step(&mean, &together, step);
    }
    assert_non_null(
        strstr(mean.lines, "phase 2 of 3 begins behind step 3: outer.every none -> 1, "));
    assert_non_null(strstr(mean.lines, "phase 3 of 3 begins behind step 8: outer.every 1 -> 0, "));
    phase_run whole = {.out = "whole-islands",
                       .ranks = 4,
                       .nodes = 2,
                       .sets = {BATCH, every_second, SHARDED(1, 1, 2)}};
    go(&whole, 0, STEPS);
    for (int step = 1; step <= STEPS; step++) {
        phase_run parts = whole;
        parts.out = "parts-islands";
        go(&parts, 1, step);
        assert_int_equal(parts.start_step, step - 1);
        check_same_bits(&whole, &parts, step, step);
    }
    phase_run none = {.out = "no-islands", .ranks = 4, .nodes = 2, .steps = STEPS};
    memcpy(none.sets, (const char *const[]){BATCH, SHARDED(1, 1, 2)}, 2 * sizeof *none.sets);
    go(&none, 0, STEPS);
    check_same_bits(&none, &whole, 1, 3);
    assert_true(none.metrics[6].loss != whole.metrics[6].loss);
}

// What a phase says of "outer" stands in place of what was before, in the file or in a phase.
static void test_outer_as_a_whole(void **state)
{
    (void)state;
    static const char base[] = "outer={\"every\": 2, \"ranks\": 1, \"lr\": 1, \"momentum\": 0}";
    phase_run run = {.out = "outer",
                     .ranks = 4,
                     .nodes = 2,
                     .sets = {BATCH, SHARDED(1, 1, 1), base,
                              "phases=[{\"steps\": 2}, {\"steps\": 2, \"train_batch_size\": 16}]"}};
    go(&run, 0, 4);
    assert_null(strstr(run.lines, "outer."));
    phase_run ends = {.out = "outer-ends",
                      .ranks = 4,
                      .nodes = 2,
                      .sets = {BATCH, SHARDED(1, 1, 1),
                               "phases=[{\"steps\": 2, \"outer\": {\"every\": 2, \"ranks\": 1, "
                               "\"lr\": 1, \"momentum\": 0}}, {\"steps\": 2, \"outer\": "
                               "{\"every\": 2}}, {\"steps\": 2, \"outer\": null}]"}};
    go(&ends, 0, 6);
    assert_non_null(strstr(ends.lines, "phase 2 of 3 begins behind step 2: outer.ranks 1 -> "));
    assert_non_null(strstr(ends.lines, "outer.lr 1 -> 0.7, outer.momentum 0 -> 0.9, "));
    assert_non_null(strstr(ends.lines, "phase 3 of 3 begins behind step 4: outer.every 2 -> none"));
    assert_null(strstr(ends.lines, "kept from"));
    // By --set on a resume: a phase, which later starts stay in.
    phase_run by_hand = {.out = "outer-ends",
                         .ranks = 4,
                         .nodes = 2,
                         .steps = 9,
                         .sets = {MICRO(2), "outer.every=3", "outer.ranks=1"}};
    go(&by_hand, 1, 7);
    assert_non_null(
        strstr(by_hand.lines, "phase 4 of 4 begins behind step 6: outer.every none -> 3"));
    phase_run later = {.out = "outer-ends", .ranks = 4, .nodes = 2, .steps = 9, .sets = {MICRO(2)}};
    go(&later, 1, 8);
    assert_int_equal(later.metrics[8].phase, 4);
    assert_null(strstr(later.lines, "outer."));
}

// A run file that loses its phases stays in the one that it was in.
static void test_phases_taken_out(void **state)
{
    (void)state;
    phase_run with = {.out = "lost",
                      .sets = {BATCH, "phases=[{\"steps\": 2}, {\"steps\": 2, "
                                      "\"train_batch_size\": 12}, {\"steps\": 2, \"run\": "
                                      "{\"seed\": 4}}]"}};
    phase_run without = {.out = "lost", .steps = 9, .sets = {MICRO(4)}};
    go(&with, 3, 3);
    go(&without, 0, 0);
    for (int step = 4; step <= 9; step++) {
        assert_int_equal(without.metrics[step].phase, 2);
        assert_int_equal(without.metrics[step].tokens, 2 * 8 * 8 + (step - 2) * 12 * 8);
    }
}

// A resolved run is a run file, whatever phase wrote it.
static void test_resolved(void **state)
{
    (void)state;
    mics_memory *memory = NULL;
    mics_job *job = NULL;
    const phase_run one = one_rank();
    phase_run again = {.out = "again"};
    const char *sets[] = {"run.out=again"};
    const mics_job_spec spec = {.memory = memory,
                                .file = "one/resolved.json",
                                .sets = sets,
                                .set_count = 1,
                                .ranks = 1,
                                .nodes = 1,
                                .callbacks = {.ctx = &again, .step = on_step}};
    ASSERT_OK(mics_memory_open(&memory));
    mics_job_spec with = spec;
    with.memory = memory;
    ASSERT_OK(mics_job_open(&with, &job));
    ASSERT_OK(mics_job_train(job, 0));
    ASSERT_OK(mics_job_close(job));
    assert_int_equal(mics_memory_close(memory), 0);
    check_same_bits(&again, &one, 1, STEPS);
}

// A run file's phases and --set say two things.
static void test_set_beside_a_file(void **state)
{
    (void)state;
    mics_memory *memory = NULL;
    mics_job *job = NULL;
    capture seen;
    const char *sets[] = {"run.seed=5"};
    mics_job_spec spec = {
        .file = "file.json", .sets = sets, .set_count = 1, .ranks = 1, .nodes = 1};
    ASSERT_OK(mics_memory_open(&memory));
    spec.memory = memory;
    capture_begin(&seen);
    assert_int_equal(mics_job_open(&spec, &job), MICS_ERR_INVALID);
    capture_end();
    ASSERT_SAID(&seen, "file.json:3: phases: phase 2: run.seed: is set for the whole run, too");
    assert_int_equal(mics_memory_close(memory), 0);
}

// ---- what is refused, before anything is trained ----

static void check_refused(int64_t steps, const char *phases, const char *set, const char *with)
{
    mics_memory *memory = NULL;
    mics_job *job = NULL;
    phase_run run = {.out = "refused", .steps = steps, .sets = {BATCH, phases, set}};
    ASSERT_OK(mics_memory_open(&memory));
    const mics_status status = open_job(memory, &run, &job);
    mics_log_set_sink(NULL, NULL);
    if (status == MICS_OK || strstr(run.lines, with) == NULL)
        fail_msg("%s: %s", phases, run.lines);
    assert_int_equal(access("refused/metrics.jsonl", F_OK), -1);
    assert_int_equal(mics_memory_close(memory), 0);
}

static void test_refused(void **state)
{
    (void)state;
    check_refused(0, "phases=[]", NULL, "must be an array of 1 to 64 objects");
    check_refused(0, "phases={\"steps\": 3}", NULL, "must be an array of 1 to 64 objects");
    check_refused(0, "phases=[3]", NULL, "phase 1: must be an object");
    check_refused(0, "phases=[{\"steps\": 0}]", NULL, "phase 1: steps: must be a number from 1 to");
    check_refused(4, "phases=[{}, {\"steps\": 2}]", NULL, "phase 1: steps: must be a number");
    check_refused(4, "phases=[{\"steps\": 2}, {\"steps\": 3}]", NULL,
                  "run.steps: is 4, but phases have 5 steps together");
    check_refused(2, "phases=[{\"steps\": 2}, {}]", NULL, "run.steps: must be more than 2");
    check_refused(0, "phases=[{\"steps\": 2}, {\"steps\": 2, \"gradient_clipping\": 1}]", NULL,
                  "phase 2: gradient_clipping: is no key that a phase changes");
    check_refused(0, "phases=[{\"steps\": 2}, {\"steps\": 2, \"run\": {\"out\": \"x\"}}]", NULL,
                  "phase 2: run.out: is no key that a phase changes");
    check_refused(0, "phases=[{\"steps\": 2, \"run.seed\": 1, \"run\": {\"seed\": 2}}]", NULL,
                  "a phase says a key twice");
    check_refused(0, "phases=[{\"steps\": 2}, {\"steps\": 2, \"train_batch_size\": 0}]", NULL,
                  "phases.2.train_batch_size: must be 1 to ");
    check_refused(0,
                  "phases=[{\"steps\": 2}, {\"steps\": 2}, {\"steps\": 1, \"data\": "
                  "{\"sequence_length\": 17}}]",
                  NULL, "phases.3.data.sequence_length: is 17, but llama.json has 16 positions");
    check_refused(0, "phases=[{\"steps\": 2}, {\"steps\": 2, \"data\": {\"train\": [\"no.txt\"]}}]",
                  NULL, "phases.2.data.train: no.txt: No such file");
    check_refused(0, "phases=[{\"steps\": 2}, {\"steps\": 2, \"outer\": {\"ranks\": 1}}]", NULL,
                  "phases.2.outer.every: is missing");
    check_refused(0,
                  "phases=[{\"steps\": 2}, {\"steps\": 2, \"outer\": {\"every\": 2, "
                  "\"fragments\": 3}}]",
                  NULL, "phases.2.outer.fragments: is 3, and outer.every 2");
    check_refused(0, "phases=[{\"steps\": 2}, {\"steps\": 2, \"outer\": {\"every\": 2}}]", NULL,
                  "is one island that meets nobody");
    check_refused(0,
                  "phases=[{\"steps\": 2}, {\"steps\": 2, \"train_batch_size\": 4096, "
                  "\"train_micro_batch_size_per_gpu\": 4096}]",
                  "run.memory_limit=1MiB", "in phase 2");
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
    static char folder[] = "/tmp/mics-phases-XXXXXX";
    static const char *const paths[] = {"text.txt", "other.txt"};
    char text[4096];
    (void)state;
    if (mkdtemp(folder) == NULL || chdir(folder) != 0)
        return -1;
    write_text("llama.json", llama);
    write_text("file.json", "{\"model\": {\"config\": \"llama.json\"}, \"data\": {\"train\": "
                            "[\"text.txt\"]}, \"run\": {},\n\"train_batch_size\": 4,\n"
                            "\"phases\": [{\"steps\": 2}, {\"steps\": 1, \"run.seed\": 2}]}");
    for (size_t file = 0; file < 2; file++) {
        for (size_t i = 0; i < sizeof text - 1; i++)
            text[i] = (char)('a' + (i * (i + file) + i / 7) % 26);
        text[sizeof text - 1] = '\0';
        write_text(paths[file], text);
    }
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_phases_say),
        cmocka_unit_test(test_samples_of_a_ramp),
        cmocka_unit_test(test_same_phases),
        cmocka_unit_test(test_meshes),
        cmocka_unit_test(test_stops),
        cmocka_unit_test(test_recompute_on_resumes),
        cmocka_unit_test(test_set_on_a_resume),
        cmocka_unit_test(test_islands),
        cmocka_unit_test(test_outer_as_a_whole),
        cmocka_unit_test(test_phases_taken_out),
        cmocka_unit_test(test_resolved),
        cmocka_unit_test(test_set_beside_a_file),
        cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, setup, NULL);
}
