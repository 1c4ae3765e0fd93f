// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Resuming past damage: every kind of it in the newest checkpoint leads to the newest that is good,
// with the losses of a run that was never damaged, and a line that says what is wrong where.
#include "mics/core/checkpoint.h"
#include "mics/log.h"
#include "mics/run.h"
#include "test.h"
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { STEPS = 10, SAVED = 8, RANKS = 2 }; // saved at 2, 4, 6, 8

static char work[] = "/tmp/mics-restore-XXXXXX";
static mics_memory *memory;

// ---- what is said ----

static char said[16384]; // all warnings and errors of a case
static int errors;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

static void listen(void *ctx, mics_log_level level, int32_t rank, const char *line)
{
    (void)ctx;
    (void)rank;
    pthread_mutex_lock(&mutex);
    const size_t used = strlen(said);
    if (level != MICS_LOG_INFO)
        snprintf(said + used, sizeof said - used, "%s\n", line);
    errors += level == MICS_LOG_ERROR;
    pthread_mutex_unlock(&mutex);
}

static void expect_said(const char *part)
{
    if (strstr(said, part) == NULL)
        fail_msg("nobody said \"%s\", but: %s", part, said);
}

// ---- runs ----

static double whole_loss[STEPS + 1]; // of a run that is not disturbed

static void on_step(void *ctx, const mics_metrics *metrics)
{
    ((double *)ctx)[metrics->step] = metrics->loss;
}

static const char *const texts[] = {"text.txt"};
static const char *const sets[] = {"run.validation_batches=0", "run.threads=1", "run.device=cpu",
                                   "run.comm_timeout_s=60", "run.checkpoint_every=2"};

static mics_status open_run(const char *out, int64_t steps, int64_t keep, double *losses,
                            mics_job **job_out)
{
    const mics_run_values values = {.model_config = "model.json",
                                    .train = texts,
                                    .train_count = 1,
                                    .sequence_length = 16,
                                    .steps = steps,
                                    .seed = 3,
                                    .out = out,
                                    .micro_batch = 2,
                                    .micro_steps = 2,
                                    .learning_rate = 3e-3,
                                    .sharding = {1, 1, 2}};
    char keeps[64];
    snprintf(keeps, sizeof keeps, "run.keep_checkpoints=%lld", (long long)keep);
    const char *all[6];
    memcpy(all, sets, sizeof sets);
    all[5] = keeps;
    const mics_job_spec spec = {.memory = memory,
                                .values = &values,
                                .sets = all,
                                .set_count = 6,
                                .ranks = RANKS,
                                .nodes = 1,
                                .callbacks = {.ctx = losses, .step = on_step}};
    said[0] = '\0';
    errors = 0;
    return mics_job_open(&spec, job_out);
}

static void run_command(const char *format, const char *a, const char *b)
{
    char command[512];
    snprintf(command, sizeof command, format, a, b);
    assert_int_equal(system(command), 0);
}

// Resumes what `damage` left of a copy of the run, and compares it from there on.
static void expect_from(int64_t step, const char *damage, const char *said_part)
{
    double losses[STEPS + 1] = {0};
    mics_job *job = NULL;
    run_command("rm -rf hurt && cp -r good hurt && cd hurt/checkpoints && { %s; }%s", damage, "");
    ASSERT_OK(open_run("hurt", STEPS, 0, losses, &job));
    assert_int_equal(errors, 0);
    expect_said(said_part);
    if (mics_job_facts_get(job).step != step)
        fail_msg("resumed from step %d, not %d: %s", (int)mics_job_facts_get(job).step, (int)step,
                 damage);
    ASSERT_OK(mics_job_train(job, 0));
    ASSERT_OK(mics_job_close(job));
    for (int64_t i = 1; i <= STEPS; i++) {
        const double expected = i > step ? whole_loss[i] : 0;
        if (memcmp(&losses[i], &expected, sizeof expected) != 0)
            fail_msg("%s: step %d has loss %.17g, not %.17g", damage, (int)i, losses[i], expected);
    }
    run_command("for f in whole/checkpoints/step-00000010/rank-*; do "
                "cmp \"$f\" \"hurt/checkpoints/step-00000010/${f##*/}\" || exit 1; done%s%s",
                "", "");
    // Steps that are saved anew are good again, and the marks of what they replace gone.
    run_command("! ls hurt/checkpoints/*/passed-over >/dev/null 2>&1%s%s", "", "");
}

// ---- damage ----

#define FLIP(file, offset)                                                                         \
    "printf '\\252' | dd of=" file " bs=1 seek=" #offset " conv=notrunc 2>/dev/null"

static void test_damage(void **state)
{
    (void)state;
    static const struct {
        const char *damage, *said;
        int64_t from;
    } cases[] = {
        {FLIP("step-00000008/rank-00000.safetensors", 2001),
         "step-00000008/rank-00000.safetensors: offset", 6},
        {FLIP("step-00000008/rank-00001.safetensors", 9001), "differ from their checksum", 6},
        {FLIP("step-00000008/rank-00001.safetensors", 100), "the header differs from its checksum",
         6},
        {"dd if=/dev/zero of=step-00000008/rank-00001.safetensors bs=4096 seek=1 count=1 "
         "conv=notrunc "
         "2>/dev/null",
         "rank-00001.safetensors: offset", 6},
        {"truncate -s -1 step-00000008/rank-00001.safetensors", "not of", 6},
        {"truncate -s 0 step-00000008/rank-00000.safetensors", "not of", 6},
        {"rm step-00000008/rank-00001.safetensors", "missing", 6},
        {"cp step-00000006/rank-00001.safetensors step-00000008/rank-00001.safetensors",
         "written by rank 1 of 2 at step 6", 6},
        {"cp step-00000008/rank-00001.safetensors step-00000008/rank-00000.safetensors", "not of",
         6},
        {"truncate -s 300 step-00000008/manifest.json", "step-00000008/manifest.json", 6},
        {FLIP("step-00000008/manifest.json", 500), "step-00000008/manifest.json", 6},
        {"cp step-00000006/manifest.json step-00000008/manifest.json", "is of step 6", 6},
        {"echo nonsense >latest && truncate -s 0 step-00000008/rank-00000.safetensors",
         "latest: does not name a step's folder", 6},
        {"rm latest; rm step-00000008/rank-00001.safetensors", "missing", 6},
        {"echo step-00000099 >latest; echo >step-00000008/rank-00000.safetensors", "not complete",
         6},
        // Several, of different kinds.
        {FLIP("step-00000008/rank-00000.safetensors",
              2001) "; " FLIP("step-00000006/rank-00001.safetensors", 100),
         "resumes from hurt/checkpoints/step-00000004 instead of step 8", 4},
        {"rm step-00000008/rank-00001.safetensors; " FLIP(
             "step-00000006/rank-00001.safetensors",
             3000) "; " FLIP("step-00000004/rank-00000.safetensors", 3000),
         "resumes from hurt/checkpoints/step-00000002 instead of step 6", 2},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        expect_from(cases[i].from, cases[i].damage, cases[i].said);
}

static void test_no_way_back(void **state)
{
    (void)state;
    double losses[STEPS + 1] = {0};
    mics_job *job = NULL;
    run_command("rm -rf hurt && cp -r good hurt && cd hurt/checkpoints && for s in */; do %s; done"
                "; rm -rf ../cache; cp -r .. ../../before%s",
                FLIP("$s/rank-00001.safetensors", 3000), "");
    ASSERT_STATUS(MICS_ERR_INVALID, open_run("hurt", STEPS, 0, losses, &job));
    assert_null(job);
    assert_int_equal(errors, 1);
    expect_said("step 2 is passed over");
    expect_said("none of its checkpoints can be resumed from");
    run_command("rm -rf hurt/cache; diff -r -x resolved.json -x lock -x run-id hurt before%s%s", "",
                "");
}

// ---- numbers that are none ----

typedef struct poison {
    const char *unit, *state;
    int64_t element;
    float value;
} poison;

// Saves the newest step once more, with one number changed and its checksums right.
static void save_poisoned(const char *out, const poison *with)
{
    static const char *const states[] = {MICS_STATE_PARAM, "exp_avg", "exp_avg_sq"};
    char path[320], dir[256];
    mics_saved *saved = NULL;
    mics_checkpoint *checkpoint = NULL;
    mics_optimizer_shard shards[8] = {0};
    snprintf(dir, sizeof dir, "%s/checkpoints", out);
    snprintf(path, sizeof path, "%s/step-%08d", dir, SAVED);
    ASSERT_OK(mics_saved_open(memory, path, NULL, &saved));
    ASSERT_OK(mics_checkpoint_open(memory, path, &checkpoint));
    const mics_model *model = mics_saved_facts_get(saved).model;
    for (int32_t u = 0; u < model->unit_count; u++) {
        const mics_unit *unit = &model->units[u];
        shards[u] = (mics_optimizer_shard){
            .unit = unit->name, .unit_elems = unit->elems, .end = unit->elems, .state_count = 3};
        for (int s = 0; s < 3; s++) {
            float *data = calloc((size_t)unit->elems, sizeof *data);
            assert_non_null(data);
            ASSERT_OK(mics_checkpoint_read(checkpoint, unit->name, unit->elems, states[s], 0,
                                           unit->elems, data));
            if (strcmp(unit->name, with->unit) == 0 && strcmp(states[s], with->state) == 0)
                data[with->element] = with->value;
            shards[u].states[s] = (mics_shard_state){states[s], MICS_DTYPE_FP32, data};
        }
    }
    const mics_checkpoint_writer writer = {.dir = dir, .writers = 1};
    ASSERT_OK(mics_checkpoint_save(memory, &writer, mics_checkpoint_meta_get(checkpoint), shards,
                                   model->unit_count));
    for (int32_t u = 0; u < model->unit_count; u++) {
        for (int s = 0; s < 3; s++)
            free((void *)shards[u].states[s].data);
    }
    mics_checkpoint_close(checkpoint);
    mics_saved_close(saved);
}

static void test_numbers_that_cannot_be(void **state)
{
    (void)state;
    static const poison cases[] = {
        {"embed", MICS_STATE_PARAM, 3, NAN}, {"h.1", "exp_avg", 1700, -INFINITY},
        {"h.0", "exp_avg_sq", 0, INFINITY},  {"h.1", MICS_STATE_PARAM, 1700, -2e6F},
        {"h.0", "exp_avg_sq", 0, 1e13F},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        double losses[STEPS + 1] = {0};
        mics_job *job = NULL;
        char part[128];
        run_command("rm -rf hurt && cp -r good hurt%s%s", "", "");
        save_poisoned("hurt", &cases[i]);
        ASSERT_OK(open_run("hurt", STEPS, 0, losses, &job));
        snprintf(part, sizeof part, "element %d of unit %s, state %s, is", (int)cases[i].element,
                 cases[i].unit, cases[i].state);
        expect_said(part);
        expect_said("hurt/checkpoints/step-00000008/rank-00000-g1.safetensors: offset");
        assert_int_equal(mics_job_facts_get(job).step, 6);
        assert_int_equal(mics_job_facts_get(job).saved_step, 6);
        ASSERT_OK(mics_job_train(job, 0));
        ASSERT_OK(mics_job_close(job));
        assert_memory_equal(&losses[7], &whole_loss[7], (STEPS - 6) * sizeof(double));
    }
}

// ---- what is passed over is no way back ----

static void test_pruning(void **state)
{
    (void)state;
    double losses[STEPS + 1] = {0};
    mics_job *job = NULL;
    run_command("rm -rf hurt && cp -r good hurt && cd hurt/checkpoints && %s%s",
                FLIP("step-00000008/rank-00001.safetensors", 3000), "");
    ASSERT_OK(open_run("hurt", STEPS, 3, losses, &job));
    run_command("grep -q checksum hurt/checkpoints/step-00000008/passed-over%s%s", "", "");
    ASSERT_OK(mics_job_train(job, 1));
    ASSERT_OK(mics_job_save(job)); // step 7; nothing goes before a good step has followed
    run_command("test \"$(ls hurt/checkpoints | tr '\\n' ' ')\" = 'latest step-00000002 "
                "step-00000004 step-00000006 step-00000007 step-00000008 '%s%s",
                "", "");
    ASSERT_OK(mics_job_train(job, 0)); // saves step 8 anew, and at the end three are kept
    ASSERT_OK(mics_job_close(job));
    run_command("test \"$(ls hurt/checkpoints | tr '\\n' ' ')\" = 'latest step-00000007 "
                "step-00000008 step-00000010 '%s%s",
                "", "");
    run_command("test ! -e hurt/checkpoints/step-00000008/passed-over%s%s", "", "");
}

// Somebody restores what was passed over: it is resumed from like any other.
static void test_restored(void **state)
{
    (void)state;
    double losses[STEPS + 1] = {0};
    mics_job *job = NULL;
    run_command("rm -rf hurt && cp -r good hurt && cd hurt/checkpoints && %s%s",
                FLIP("step-00000008/rank-00001.safetensors", 3000), "");
    ASSERT_OK(open_run("hurt", STEPS, 0, losses, &job));
    ASSERT_OK(mics_job_close(job));
    run_command(
        "cp good/checkpoints/step-00000008/rank-00001.safetensors hurt/checkpoints/step-00000008%s"
        "%s",
        "", "");
    ASSERT_OK(open_run("hurt", STEPS, 0, losses, &job));
    assert_string_equal(said, "");
    assert_int_equal(mics_job_facts_get(job).step, 8);
    run_command("test ! -e hurt/checkpoints/step-00000008/passed-over%s%s", "", "");
    ASSERT_OK(mics_job_close(job));
}

// An allocation that fails on the way, on any rank, is an error on all: no hang, and no new run.
static void test_allocations(void **state)
{
    (void)state;
    bool passed = false;
    run_command("rm -rf hurt && cp -r good hurt && cd hurt/checkpoints && %s%s",
                FLIP("step-00000008/rank-00001.safetensors", 3000), "");
    for (int64_t n = 1; !passed; n += n < 400 ? 7 : 1 + n / 5) {
        double losses[STEPS + 1] = {0};
        mics_job *job = NULL;
        mics_memory_fail_after(memory, n);
        const mics_status status = open_run("hurt", STEPS, 0, losses, &job);
        mics_memory_fail_after(memory, 0);
        passed = status == MICS_OK;
        if (passed)
            assert_int_equal(mics_job_facts_get(job).step, 6);
        else
            ASSERT_STATUS(MICS_ERR_MEMORY, status);
        ASSERT_OK(mics_job_close(job));
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
    char text[4096] = "";
    mics_job *job = NULL;
    (void)state;
    for (size_t i = 0; i + 32 < sizeof text; i += 26)
        snprintf(text + i, sizeof text - i, "the lark at break of day%c\n", (char)('a' + i % 26));
    if (mkdtemp(work) == NULL || chdir(work) != 0 || mics_memory_open(&memory) != MICS_OK)
        return 1;
    mics_log_set_sink(listen, NULL);
    write_file("text.txt", text);
    write_file("model.json",
               "{\"model_type\": \"gpt2\", \"activation_function\": \"gelu_new\", \"n_embd\": 16, "
               "\"n_head\": 2, \"n_layer\": 2, \"n_positions\": 32, \"vocab_size\": 256, "
               "\"attn_pdrop\": 0.0, \"embd_pdrop\": 0.0, \"resid_pdrop\": 0.0}");
    ASSERT_OK(open_run("whole", STEPS, 0, whole_loss, &job));
    ASSERT_OK(mics_job_train(job, 0));
    ASSERT_OK(mics_job_close(job));
    double losses[STEPS + 1];
    ASSERT_OK(open_run("good", STEPS, 0, losses, &job));
    ASSERT_OK(mics_job_train(job, SAVED));
    ASSERT_OK(mics_job_close(job));
    return 0;
}

static int end(void **state)
{
    char command[64];
    (void)state;
    mics_log_set_sink(NULL, NULL);
    const int64_t leaks = mics_memory_close(memory);
    snprintf(command, sizeof command, "rm -rf %s", work);
    return system(command) == 0 && leaks == 0 ? 0 : 1;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_damage),
        cmocka_unit_test(test_no_way_back),
        cmocka_unit_test(test_numbers_that_cannot_be),
        cmocka_unit_test(test_pruning),
        cmocka_unit_test(test_restored),
        cmocka_unit_test(test_allocations),
    };
    return cmocka_run_group_tests(tests, begin, end);
}
