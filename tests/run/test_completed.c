// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Whoever reads the state in the middle of a run, through mics/run.h: losses are those of a run that nobody read, and the
// bytes of metrics are those of the schedule, with what a reader had to complete first.
#include "mics/core/ledger.h"
#include "mics/run.h"
#include "run/job.h"
#include "test.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { STEPS = 6, RANKS = 4, MAX_SETS = 12 };

static char work[] = "/dev/shm/mics-completed-XXXXXX";

typedef enum reader {
    NOBODY,
    STOPS,     // training returns after each step, and goes on
    SAVES,     // so it does, and the state is saved
    EVALUATES, // or evaluated
    VALIDATES, // by the run file: after every second step
    CHECKPOINTS,
    COPIES, // in node memory
    COMPARES,
    READERS
} reader;

typedef struct read_run {
    reader reader;
    mics_sharding sharding;
    mics_job *job;
    double losses[STEPS + 1]; // by step
    double end;               // of the evaluation behind all
    mics_bytes sent;          // by all ranks, of all steps together
} read_run;

static void on_step(void *ctx, const mics_metrics *metrics)
{
    read_run *run = ctx;
    run->losses[metrics->step] = metrics->loss;
    run->sent.intra += metrics->sent_intra_bytes;
    run->sent.inter += metrics->sent_inter_bytes;
}

static const char *const SETTING[READERS] = {[VALIDATES] = "run.validate_every=2",
                                             [CHECKPOINTS] = "run.checkpoint_every=2",
                                             [COPIES] = "run.memory_checkpoint_every=2",
                                             [COMPARES] = "run.check_replicas_every=2"};

static void open_job(mics_memory *memory, read_run *run)
{
    static const char *const texts[] = {"text.txt"};
    const char *sets[MAX_SETS] = {"run.validation_batches=1",
                                  "run.threads=1",
                                  "run.device=cpu",
                                  "run.comm_timeout_s=60",
                                  "run.checkpoint_every=0",
                                  "run.validate_every=0",
                                  "run.check_replicas_every=0",
                                  "run.memory_checkpoint_every=0"};
    int32_t count = 8;
    for (int i = 0; i < count && SETTING[run->reader] != NULL; i++) {
        if (strncmp(sets[i], SETTING[run->reader], strcspn(sets[i], "=") + 1) == 0)
            sets[i] = SETTING[run->reader];
    }
    const mics_run_values values = {.model_config = "model.json",
                                    .train = texts,
                                    .train_count = 1,
                                    .sequence_length = 8,
                                    .steps = STEPS,
                                    .seed = 3,
                                    .out = "out",
                                    .micro_batch = 1,
                                    .micro_steps = 2,
                                    .learning_rate = 3e-3,
                                    .sharding = run->sharding};
    const mics_job_spec spec = {.memory = memory,
                                .values = &values,
                                .sets = sets,
                                .set_count = count,
                                .ranks = RANKS,
                                .nodes = 2,
                                .resume = "none",
                                .callbacks = {.ctx = run, .step = on_step}};
    ASSERT_OK(mics_job_open(&spec, &run->job));
}

static void train(read_run *run)
{
    double loss = 0;
    for (int64_t step = 1; run->reader >= STOPS && run->reader <= EVALUATES && step < STEPS;
         step++) {
        ASSERT_OK(mics_job_train(run->job, 1));
        if (run->reader == SAVES)
            ASSERT_OK(mics_job_save(run->job));
        if (run->reader == EVALUATES)
            ASSERT_OK(mics_job_evaluate(run->job, &loss));
    }
    ASSERT_OK(mics_job_train(run->job, 0));
    ASSERT_OK(mics_job_evaluate(run->job, &run->end));
}

// Readers complete a step, and with it comes a parameter sync that the next step has again.
static int64_t completions_of(reader who)
{
    switch (who) {
    case SAVES:
    case EVALUATES:
        return STEPS;
    case VALIDATES:
    case CHECKPOINTS:
    case COPIES:
    case COMPARES:
        return STEPS / 2;
    default: // the state at the end is saved
        return 1;
    }
}

static void check_bytes(const read_run *run)
{
    const mics_schedule *schedule = mics_job_schedule(run->job);
    const mics_bytes list = mics_schedule_all_bytes(schedule, MICS_PHASE_TRAIN);
    const int64_t completions = completions_of(run->reader);
    mics_bytes sent = {STEPS * list.intra, STEPS * list.inter};
    for (int stage = 0; stage < MICS_STAGES; stage++) {
        const mics_bytes sync = mics_schedule_kind_bytes(
            schedule, MICS_PHASE_TRAIN, MICS_STEP_PARAM_SYNC, (mics_step_stage)stage);
        sent.intra += completions * sync.intra;
        sent.inter += completions * sync.inter;
    }
    assert_int_equal(run->sent.intra, sent.intra);
    assert_int_equal(run->sent.inter, sent.inter);
}

static void go(read_run *run)
{
    mics_memory *memory = NULL;
    ASSERT_OK(mics_memory_open(&memory));
    open_job(memory, run);
    train(run);
    check_bytes(run);
    ASSERT_OK(mics_job_close(run->job));
    assert_int_equal(mics_memory_close(memory), 0);
    assert_int_equal(system("rm -r out"), 0);
}

static void test_reading_changes_nothing(void **state)
{
    static const mics_sharding shardings[] = {{1, 1, 1}, {2, 2, 2}, {1, 1, 2},
                                              {1, 2, 2}, {2, 2, 4}, {4, 4, 4}};
    (void)state;
    for (size_t i = 0; i < sizeof shardings / sizeof shardings[0]; i++) {
        read_run plain = {.sharding = shardings[i]};
        go(&plain);
        for (int who = STOPS; who < READERS; who++) {
            read_run read = {.sharding = shardings[i], .reader = (reader)who};
            go(&read);
            assert_memory_equal(read.losses, plain.losses, sizeof plain.losses);
            assert_memory_equal(&read.end, &plain.end, sizeof plain.end);
        }
    }
}

static void write_file(const char *name, const char *text, int times)
{
    FILE *file = fopen(name, "w");
    assert_non_null(file);
    for (int i = 0; i < times; i++)
        fputs(text, file);
    fclose(file);
}

static int begin(void **state)
{
    (void)state;
    if (mkdtemp(work) == NULL || chdir(work) != 0 || mkdir("shm", 0700) != 0 ||
        setenv("MICS_SHM_DIR", "shm", 1) != 0)
        return 1;
    write_file("text.txt", "the lark at break of day arising\n", 100);
    write_file("model.json",
               "{\"model_type\": \"gpt2\", \"n_embd\": 16, \"n_head\": 2, \"n_layer\": 2, "
               "\"n_positions\": 16, \"vocab_size\": 256, \"attn_pdrop\": 0, \"embd_pdrop\": 0, "
               "\"resid_pdrop\": 0}",
               1);
    return 0;
}

static int end(void **state)
{
    char command[64];
    (void)state;
    snprintf(command, sizeof command, "rm -rf %s", work);
    return system(command) == 0 ? 0 : 1;
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_reading_changes_nothing)};
    return cmocka_run_group_tests(tests, begin, end);
}
