// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Local steps of whole jobs: rows of metrics are of all islands and come once each, in order; bytes and
// memory are what the schedule says; what islands agreed on is evaluated; a stop acts on all ranks at
// the same step.
#include "exact.h"
#include "mics/core/ledger.h"
#include "small_gpt2.h"
#include <math.h>
#include <stdlib.h>
#include <unistd.h>

enum { STEPS = 9, RANKS = 4, NODES = 2, MAX_SETS = 16, BATCH = 8 };

static char work[] = "/tmp/mics-outer-XXXXXX";

typedef struct outer_run {
    const char *out;
    const char *sets[MAX_SETS];
    int64_t until;       // steps; 0: to the end
    int64_t stop_after;  // the row behind which the run is asked to stop; 0: none
    mics_job *job;       // that it is of
    mics_status status;  // of its training
    bool fails;          // what it does
    bool in_order;       // are its rows
    int32_t rows, notes; // heard of
    int64_t saved;       // newest checkpoint
    mics_metrics steps[STEPS + 1];
    double validation[STEPS + 1];
    char lines[CAPTURE_LINES], note[256];
} outer_run;

static void on_step(void *ctx, const mics_metrics *metrics)
{
    outer_run *run = ctx;
    run->in_order = run->in_order && metrics->step == ++run->rows; // each once
    run->steps[metrics->step] = *metrics;
    if (metrics->step == run->stop_after)
        mics_job_stop(run->job);
}

static void on_validation(void *ctx, int64_t step, double loss)
{
    outer_run *run = ctx;
    run->validation[step] = loss;
}

static void on_checkpoint(void *ctx, int64_t step, const char *path)
{
    outer_run *run = ctx;
    (void)path;
    run->saved = step;
}

static void on_note(void *ctx, const char *line)
{
    outer_run *run = ctx;
    run->notes++;
    snprintf(run->note, sizeof run->note, "%s", line);
}

// ---- one run ----

static void open_job(mics_memory *memory, outer_run *run)
{
    static const char *const train[] = {"text.txt"};
    const char *sets[MAX_SETS + 4] = {"run.threads=1", "run.device=cpu", "run.comm_timeout_s=60",
                                      "run.validation_batches=2"};
    int32_t count = 4;
    for (int i = 0; i < MAX_SETS && run->sets[i] != NULL; i++)
        sets[count++] = run->sets[i];
    const mics_run_values values = {.model_config = "gpt2.json",
                                    .train = train,
                                    .train_count = 1,
                                    .sequence_length = 16,
                                    .steps = STEPS,
                                    .seed = 3,
                                    .out = run->out,
                                    .micro_batch = 1,
                                    .micro_steps = BATCH / RANKS,
                                    .learning_rate = 3e-3};
    const mics_job_spec spec = {.memory = memory,
                                .values = &values,
                                .sets = sets,
                                .set_count = count,
                                .ranks = RANKS,
                                .nodes = NODES,
                                .callbacks = {.ctx = run,
                                              .step = on_step,
                                              .validation = on_validation,
                                              .checkpoint = on_checkpoint,
                                              .note = on_note}};
    if (open_told(&spec, run->lines, &run->job) != MICS_OK)
        fail_msg("%s: %s", run->out, run->lines);
}

// All bytes of meetings, and of a step without.
typedef struct outer_bytes {
    mics_bytes meetings, step;
    int32_t period;
} outer_bytes;

// Memory is exact.
static outer_bytes go(outer_run *run)
{
    mics_memory *memory = NULL;
    ASSERT_OK(mics_memory_open(&memory));
    run->in_order = true;
    open_job(memory, run);
    const mics_schedule *schedule = mics_job_schedule(run->job);
    const outer_bytes bytes = {.meetings = mics_schedule_meeting_bytes(schedule),
                               .step = mics_schedule_all_bytes(schedule, MICS_PHASE_TRAIN),
                               .period = mics_schedule_period(schedule)};
    if (run->stop_after > 0 || run->fails) {
        mics_log_set_sink(capture_lines, run->lines);
        run->status = mics_job_train(run->job, 0);
        mics_log_set_sink(NULL, NULL);
        (void)mics_job_close(run->job);
    } else {
        train_exactly(run->job, run->until);
    }
    assert_int_equal(mics_memory_close(memory), 0);
    assert_true(run->in_order);
    return bytes;
}

#define SHARDS(p, o) "sharding={\"params\": " #p ", \"optimizer\": " #o "}"

static void check_close(const char *what, int step, double got, double wanted, double tolerance)
{
    if (!(fabs(got - wanted) <= tolerance * fmax(1, fabs(wanted))))
        fail_msg("step %d: %s %.9g, expected %.9g", step, what, got, wanted);
}

// ---- rows ----

static const struct {
    const char *name, *shards, *outer;
} kinds[] = {
    {"whole", SHARDS(2, 2), "outer={\"every\": 3}"},
    {"single", SHARDS(1, 1), "outer={\"every\": 3, \"ranks\": 1}"},
    {"replicas", SHARDS(1, 1), "outer={\"every\": 2}"},
    {"zero1", SHARDS(1, 2), "outer={\"every\": 4, \"fragments\": 2}"},
    {"beside", SHARDS(2, 2), "outer={\"every\": 4, \"fragments\": 2, \"overlap_steps\": 1}"},
    {"spread", SHARDS(1, 1), "outer={\"every\": 4, \"overlap_steps\": 3, \"dtype\": \"bf16\"}"},
    {"int8", SHARDS(1, 2), "outer={\"every\": 3, \"dtype\": \"int8\"}"},
    {"int4", SHARDS(2, 2), "outer={\"every\": 3, \"overlap_steps\": 2, \"dtype\": \"int4\"}"},
    {"moments", SHARDS(2, 2), "outer={\"every\": 2, \"moments_every\": 2}"},
};

// What a step sends beside meetings is the same in each, but for what is completed behind one.
static void check_rows(const outer_run *run, const outer_bytes *bytes)
{
    mics_bytes sum = {0, 0};
    assert_int_equal(run->rows, STEPS);
    for (int step = 1; step <= STEPS; step++) {
        const mics_metrics *row = &run->steps[step];
        assert_int_equal(row->islands.islands, 2 + 2 * (strcmp(run->out, "single") == 0));
        assert_int_equal(row->islands.updated, row->islands.islands);
        assert_true(isfinite(row->loss) && row->grad_norm > 0);
        assert_int_equal(row->tokens, (int64_t)step * BATCH * 16);
        if (step > 1 && step <= 1 + bytes->period) {
            sum.intra += row->islands.meeting_intra_bytes;
            sum.inter += row->islands.meeting_inter_bytes;
        }
        if (step < STEPS &&
            step > 1) // the first has no update to take over, the last completes one
            assert_true(row->sent_inter_bytes - row->islands.meeting_inter_bytes ==
                        bytes->step.inter);
    }
    assert_int_equal(sum.intra, bytes->meetings.intra);
    assert_int_equal(sum.inter, bytes->meetings.inter);
}

static void test_rows(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        outer_run run = {.out = kinds[i].name, .sets = {kinds[i].shards, kinds[i].outer}};
        outer_run same = {.out = "without", .sets = {kinds[i].shards}};
        const outer_bytes bytes = go(&run);
        check_rows(&run, &bytes);
        if (i == 0)
            (void)go(&same);
        if (i == 0) // the same sequences, of which each island has its part
            check_close("loss", 1, run.steps[1].loss, same.steps[1].loss, 1e-6);
    }
}

// The mean of parameters after each step of SGD is a step by the mean gradient.
static void test_means(void **state)
{
    (void)state;
    static const char each[] = "outer={\"every\": 1, \"lr\": 1, \"momentum\": 0}";
    outer_run one = {.out = "sgd", .sets = {SHARDS(2, 2), "optimizer.type=SGD"}};
    outer_run islands = {.out = "sgd-2", .sets = {SHARDS(2, 2), "optimizer.type=SGD", each}};
    outer_run ranks = {.out = "sgd-1",
                       .sets = {SHARDS(1, 1), "optimizer.type=SGD", each, "outer.ranks=1"}};
    (void)go(&one);
    (void)go(&islands);
    (void)go(&ranks);
    for (int step = 1; step <= STEPS; step++) {
        check_close("loss of 2 islands", step, islands.steps[step].loss, one.steps[step].loss,
                    1e-6);
        check_close("loss of 4 islands", step, ranks.steps[step].loss, one.steps[step].loss, 1e-6);
    }
    check_close("validation", STEPS, islands.validation[STEPS], one.validation[STEPS], 1e-6);
    check_close("validation", STEPS, ranks.validation[STEPS], one.validation[STEPS], 1e-6);
}

// ---- what is agreed on ----

// Between meetings nothing that is evaluated changes, and evaluations change nothing.
static void test_validation(void **state)
{
    (void)state;
    for (int beside = 0; beside < 2; beside++) {
        const char *outer =
            beside ? "outer={\"every\": 4, \"overlap_steps\": 1}" : "outer={\"every\": 4}";
        outer_run often = {.out = beside ? "often-1" : "often-0",
                           .sets = {SHARDS(1, 1), outer, "run.validate_every=1"}};
        outer_run never = {.out = beside ? "never-1" : "never-0", .sets = {SHARDS(1, 1), outer}};
        (void)go(&often);
        (void)go(&never);
        for (int step = 1; step < STEPS;
             step++) { // the state after 4 steps meets, and that after 8
            const bool met = step == 4 + beside || step == 8 + beside;
            const bool changes = often.validation[step] != often.validation[step - 1];
            if (changes != met)
                fail_msg("step %d: %.9g after %.9g", step, often.validation[step],
                         often.validation[step - 1]);
        }
        for (int step = 1; step <= STEPS; step++)
            check_close("loss", step, often.steps[step].loss, never.steps[step].loss, 0);
        check_close("validation", STEPS, often.validation[STEPS], never.validation[STEPS], 0);
    }
}

// ---- a step that an island leaves out ----

static void test_left_out(void **state)
{
    (void)state; // the second island's sequences are beyond the batch
    outer_run run = {.out = "left-out",
                     .sets = {SHARDS(2, 2), "outer={\"every\": 3}", "train_batch_size=2",
                              "train_micro_batch_size_per_gpu=null",
                              "gradient_accumulation_steps=1"}};
    (void)go(&run);
    for (int step = 1; step <= STEPS; step++) {
        assert_int_equal(run.steps[step].islands.updated, 1);
        assert_true(isfinite(run.steps[step].loss));
    }
    assert_true(run.notes >= STEPS);
    assert_non_null(strstr(run.note, "is left out in 1 of 2 islands"));
}

// ---- stops ----

// The row of step 2 comes with step 3. What is asked then holds step 4 on all ranks.
static void test_stop(void **state)
{
    (void)state;
    outer_run run = {
        .out = "stops", .sets = {SHARDS(2, 2), "outer={\"every\": 4}"}, .stop_after = 2};
    (void)go(&run);
    ASSERT_STATUS(MICS_ERR_INTERRUPTED, run.status);
    assert_int_equal(run.saved, 3);
    assert_int_equal(run.rows, 3); // up to what is saved, and no other
}

// ---- numbers that are none ----

// The other islands may not know yet, and are ended.
static void test_gives_up(void **state)
{
    (void)state;
    outer_run run = {.out = "gives-up",
                     .sets = {SHARDS(2, 2), "outer={\"every\": 4}", "optimizer.type=SGD",
                              "optimizer.params.lr=1e6"},
                     .fails = true};
    (void)go(&run);
    assert_true(run.status == MICS_ERR_NUMERIC || run.status == MICS_ERR_ABORTED);
    if (strstr(run.lines, "an island cannot go back by itself: --resume auto resumes from the "
                          "newest checkpoint") == NULL)
        fail_msg("%s", run.lines);
}

static int begin(void **state)
{
    (void)state;
    if (mkdtemp(work) == NULL || chdir(work) != 0)
        return 1;
    return write_small_gpt2();
}

static int end(void **state)
{
    char command[64];
    (void)state;
    snprintf(command, sizeof command, "rm -r %s", work);
    return chdir("/") == 0 && system(command) == 0 ? 0 : 1;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows),       cmocka_unit_test(test_means),
        cmocka_unit_test(test_validation), cmocka_unit_test(test_left_out),
        cmocka_unit_test(test_stop),       cmocka_unit_test(test_gives_up),
    };
    return cmocka_run_group_tests(tests, begin, end);
}
