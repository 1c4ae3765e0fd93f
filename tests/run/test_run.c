// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Whole trainings through mics/run.h: calls in any order, with the bits of one call; runs filled in C; what
// stops them; errors, each said once; and checkpoints as one process reads them.
#include "base/capture.h"
#include "run/jobs.h"
#include "run/settings.h"
#include <math.h>

enum { MAX_STEPS = 32 };

// What was heard of a job.
typedef struct heard {
    const mics_job *job;
    double loss[MAX_STEPS + 1]; // by step
    int steps, validations, savings, checkpoints, starts;
    int64_t stop_after; // step; 0: never
    int64_t step;
} heard;

static void on_start(void *ctx, const mics_job *job)
{
    ((heard *)ctx)->job = job;
    ((heard *)ctx)->starts++;
}

static void on_step(void *ctx, const mics_metrics *metrics)
{
    heard *self = ctx;
    self->loss[metrics->step] = metrics->loss;
    self->step = metrics->step;
    self->steps++;
}

static void on_validation(void *ctx, int64_t step, double loss)
{
    (void)step;
    (void)loss;
    ((heard *)ctx)->validations++;
}

static void on_saving(void *ctx, int64_t step)
{
    (void)step;
    ((heard *)ctx)->savings++;
}

static void on_checkpoint(void *ctx, int64_t step, const char *path)
{
    char manifest[4096];
    (void)step;
    snprintf(manifest, sizeof manifest, "%s/manifest.json", path);
    ((heard *)ctx)->checkpoints += access(manifest, F_OK) == 0;
}

static bool stop(void *ctx)
{
    const heard *self = ctx;
    return self->stop_after > 0 && self->step >= self->stop_after;
}

static mics_job_spec heard_spec(const mics_run_values *values, heard *ears)
{
    mics_job_spec spec = spec_of(values);
    spec.callbacks = (mics_job_callbacks){.ctx = ears,
                                          .start = on_start,
                                          .step = on_step,
                                          .validation = on_validation,
                                          .saving = on_saving,
                                          .checkpoint = on_checkpoint,
                                          .should_stop = stop};
    return spec;
}

static mics_job *open_good(const char *out, heard *ears, const char *resume)
{
    const mics_run_values values = values_of(out);
    mics_job_spec spec = heard_spec(&values, ears);
    mics_job *job = NULL;
    spec.resume = resume;
    ASSERT_OK(mics_job_open(&spec, &job));
    return job;
}

// The run in one call, once for all tests.
static const heard *whole(void)
{
    static heard ears;
    if (ears.steps == 0) {
        mics_job *job = open_good("whole", &ears, NULL);
        ASSERT_OK(mics_job_train(job, 0));
        assert_true(mics_job_facts_get(job).finished);
        ASSERT_OK(mics_job_close(job));
        assert_int_equal(ears.steps, STEPS);
    }
    return &ears;
}

static void assert_same_losses(const heard *ears, int64_t from)
{
    for (int64_t step = from; step <= STEPS; step++)
        assert_memory_equal(&ears->loss[step], &whole()->loss[step], sizeof(double));
}

static void assert_same_weights(const char *out)
{
    char command[256];
    snprintf(command, sizeof command,
             "for f in whole/checkpoints/step-00000008/rank-*; do "
             "cmp \"$f\" \"%s/checkpoints/step-00000008/${f##*/}\" || exit 1; done",
             out);
    assert_int_equal(system(command), 0);
}

// ---- calls in turn ----

static void check_facts(const mics_job *job, int64_t step, int64_t saved)
{
    const mics_job_facts facts = mics_job_facts_get(job);
    assert_int_equal(facts.step, step);
    assert_int_equal(facts.saved_step, saved);
    assert_int_equal(facts.ranks, RANKS);
    assert_false(facts.mpi);
    assert_string_equal(facts.device, "cpu");
    assert_true(facts.train_tokens > 0 && facts.held_out_windows > 0);
    assert_int_equal(facts.peak_bytes[MICS_MEM_PARAMS],
                     (int64_t)mics_job_schedule(job)->ledger.bytes[MICS_MEM_PARAMS]);
}

static void test_calls_in_turn(void **state)
{
    (void)state;
    heard ears = {0};
    double loss = 0, again = 0;
    char *text = NULL;
    size_t bytes = 0;
    const mics_sampling sampling = {.tokens = 5, .temperature = 1, .seed = 1};
    mics_job *job = open_good("turns", &ears, NULL);
    assert_int_equal(ears.starts, 1);
    ASSERT_OK(mics_job_train(job, 3));
    check_facts(job, 3, 0);
    ASSERT_OK(mics_job_evaluate(job, &loss));
    ASSERT_OK(mics_job_evaluate(job, &again));
    assert_true(isfinite(loss) && loss < mics_job_facts_get(job).validation_first);
    assert_memory_equal(&loss, &again, sizeof loss);
    ASSERT_OK(mics_job_train(job, 2));
    ASSERT_OK(mics_job_save(job));
    check_facts(job, 5, 5);
    ASSERT_OK(mics_job_save(job)); // is saved
    assert_int_equal(ears.checkpoints, 1);
    FILE *out = open_memstream(&text, &bytes);
    assert_non_null(out);
    ASSERT_OK(mics_job_generate(job, "the", &sampling, out));
    fclose(out);
    assert_true(bytes >= 5);
    free(text);
    ASSERT_OK(mics_job_train(job, 1));
    ASSERT_OK(mics_job_export(job, "exported", NULL)); // saves step 6
    assert_int_equal(ears.checkpoints, 2);
    assert_int_equal(access("exported/model.safetensors", F_OK), 0);
    ASSERT_OK(mics_job_train(job, 100)); // to the end
    check_facts(job, STEPS, STEPS);
    ASSERT_OK(mics_job_train(job, 0)); // nothing is left
    assert_int_equal(ears.steps, STEPS);
    assert_int_equal(ears.savings, ears.checkpoints);
    assert_int_equal(ears.validations, 2); // before and after, as the run says
    ASSERT_OK(mics_job_close(job));
    assert_same_losses(&ears, 1);
    assert_same_weights("turns");
}

static void test_resume(void **state)
{
    (void)state;
    heard ears = {0};
    mics_job *job = open_good("resumed", &ears, "none");
    ASSERT_OK(mics_job_train(job, 3));
    ASSERT_OK(mics_job_save(job));
    ASSERT_OK(mics_job_train(job, 2)); // lost
    ASSERT_OK(mics_job_close(job));
    ears = (heard){0};
    job = open_good("resumed", &ears, "auto");
    assert_int_equal(mics_job_facts_get(job).start_step, 3);
    assert_non_null(strstr(mics_job_facts_get(job).checkpoint, "step-00000003"));
    ASSERT_OK(mics_job_train(job, 0));
    ASSERT_OK(mics_job_close(job));
    assert_int_equal(ears.steps, STEPS - 3);
    assert_same_losses(&ears, 4);
    assert_same_weights("resumed");
    // A run that is finished loads nothing until it is asked for something.
    double loss = 0;
    ears = (heard){0};
    job = open_good("resumed", &ears, NULL);
    assert_true(mics_job_facts_get(job).finished);
    ASSERT_OK(mics_job_train(job, 0));
    assert_int_equal(ears.starts, 0);
    ASSERT_OK(mics_job_evaluate(job, &loss));
    assert_int_equal(ears.starts, 1);
    assert_true(isfinite(loss));
    ASSERT_OK(mics_job_close(job));
}

// What is written is of the step that the job goes on from, whatever is newer.
static void test_older_step(void **state)
{
    (void)state;
    heard ears = {0};
    mics_job *job = open_good("older", &ears, "none");
    ASSERT_OK(mics_job_train(job, 3));
    ASSERT_OK(mics_job_export(job, "third", NULL));
    ASSERT_OK(mics_job_train(job, 1));
    ASSERT_OK(mics_job_save(job));
    ASSERT_OK(mics_job_close(job));
    job = open_good("older", &ears, "older/checkpoints/step-00000003");
    ASSERT_OK(mics_job_export(job, "third_again", NULL));
    ASSERT_OK(mics_job_close(job));
    assert_int_equal(system("cmp third/model.safetensors third_again/model.safetensors"), 0);
}

// What a job began with can be saved, exported and sampled, and is resumed like any other step.
static void test_step_zero(void **state)
{
    (void)state;
    heard ears = {0};
    char text[16];
    const mics_sampling sampling = {.tokens = 5, .temperature = 1, .seed = 1};
    mics_job *job = open_good("zero", &ears, "none");
    ASSERT_OK(mics_job_save(job));
    assert_int_equal(access("zero/checkpoints/step-00000000/manifest.json", F_OK), 0);
    ASSERT_OK(mics_job_export(job, "zeroth", NULL));
    assert_int_equal(access("zeroth/model.safetensors", F_OK), 0);
    FILE *out = fmemopen(text, sizeof text, "w");
    assert_non_null(out);
    ASSERT_OK(mics_job_generate(job, "the", &sampling, out));
    assert_true(ftell(out) >= 5);
    fclose(out);
    assert_int_equal(ears.checkpoints, 1); // once for all three
    ASSERT_OK(mics_job_close(job));
    job = open_good("zero", &ears, "auto");
    assert_non_null(mics_job_facts_get(job).checkpoint);
    ASSERT_OK(mics_job_save(job)); // is saved
    ASSERT_OK(mics_job_train(job, 0));
    ASSERT_OK(mics_job_close(job));
    assert_int_equal(ears.checkpoints, 2);
    assert_same_losses(&ears, 1);
    assert_same_weights("zero");
}

static mics_job *open_large(const char *out, const char *init, heard *ears)
{
    mics_run_values values = values_of(out);
    mics_job *job = NULL;
    values.model_config = "large.json";
    values.model_init = init;
    values.sharding = (mics_sharding){1, 1, 1};
    mics_job_spec spec = heard_spec(&values, ears);
    spec.ranks = 1;
    ASSERT_OK(mics_job_open(&spec, &job));
    return job;
}

// Exports read a tensor by parts, imports too: its table of embeddings has 1.2 times the elements
// of a part.
static void test_large_tensor(void **state)
{
    (void)state;
    heard ears = {0};
    mics_job *job = open_large("large", "random", &ears);
    ASSERT_OK(mics_job_export(job, "large_once", NULL));
    ASSERT_OK(mics_job_close(job));
    job = open_large("large_again", "large_once", &ears);
    assert_true(mics_job_facts_get(job).imported);
    ASSERT_OK(mics_job_export(job, "large_twice", NULL));
    ASSERT_OK(mics_job_close(job));
    assert_int_equal(system("cmp large_once/model.safetensors large_twice/model.safetensors"), 0);
}

// ---- stopping ----

static void test_stop(void **state)
{
    (void)state;
    capture seen;
    heard ears = {.stop_after = 2};
    mics_job *job = open_good("stopped", &ears, NULL);
    capture_begin(&seen);
    ASSERT_STATUS(MICS_ERR_INTERRUPTED, mics_job_train(job, 0));
    capture_end();
    assert_int_equal(seen.errors, 0); // nobody's error
    check_facts(job, 3, 3);
    assert_int_equal(ears.checkpoints, 1);
    ears.stop_after = 0;
    ASSERT_OK(mics_job_train(job, 0));
    ASSERT_OK(mics_job_close(job));
    assert_same_losses(&ears, 1);
    assert_same_weights("stopped");
}

// ---- errors ----

static void expect_failure(const mics_job_spec *spec, mics_status expected, const char *words)
{
    capture seen;
    mics_job *job = NULL;
    capture_begin(&seen);
    const mics_status status = mics_job_open(spec, &job);
    capture_end();
    ASSERT_STATUS(expected, status);
    assert_null(job);
    if (seen.errors != 1 || strstr(seen.line, words) == NULL)
        fail_msg("%d errors, the last is: %s; expected one of %s", seen.errors, seen.line, words);
}

static void test_errors(void **state)
{
    (void)state;
    static const char *const missing[] = {"nowhere.txt"};
    static const char *const small[] = {"run.memory_limit=\"10KiB\""};
    static const char *const unknown[] = {"run.stepz=3"};
    mics_run_values values = values_of("errors");
    mics_job_spec spec = spec_of(&values);
    values.sharding = (mics_sharding){3, 3, 3};
    expect_failure(&spec, MICS_ERR_INVALID, "sharding");
    values = values_of("errors");
    values.train = missing;
    expect_failure(&spec, MICS_ERR_IO, "nowhere.txt");
    values = values_of("errors");
    values.model_config = "nowhere.json";
    expect_failure(&spec, MICS_ERR_IO, "nowhere.json");
    values = values_of("errors");
    spec.sets = small;
    spec.set_count = 1;
    expect_failure(&spec, MICS_ERR_MEMORY, "what fits");
    spec.sets = unknown;
    expect_failure(&spec, MICS_ERR_INVALID, "run.steps");
    spec.set_count = 0;
    spec.nodes = 3;
    expect_failure(&spec, MICS_ERR_INVALID, "3 nodes do not divide 2 ranks");
    spec.nodes = 1;
    spec.resume = "nowhere";
    expect_failure(&spec, MICS_ERR_IO, "nowhere");
    spec.resume = NULL;
    spec.values = NULL;
    expect_failure(&spec, MICS_ERR_INVALID, "neither a file nor values");
    spec.file = "nowhere.json";
    expect_failure(&spec, MICS_ERR_IO, "nowhere.json");
}

static void test_wrong_calls(void **state)
{
    (void)state;
    static const char *const nothing_held[] = {"run.validation_batches=0", "run.threads=1"};
    capture seen;
    double loss = -1;
    const mics_run_values values = values_of("wrong");
    mics_job_spec spec = spec_of(&values);
    mics_job *job = NULL;
    spec.sets = nothing_held;
    spec.set_count = 2;
    ASSERT_OK(mics_job_open(&spec, &job));
    capture_begin(&seen);
    ASSERT_STATUS(MICS_ERR_INVALID, mics_job_train(job, -1));
    ASSERT_STATUS(MICS_ERR_INVALID, mics_job_evaluate(job, &loss));
    assert_int_equal(seen.errors, 2);
    assert_true(loss < 0);
    capture_end();
    ASSERT_OK(mics_job_train(job, 1)); // neither spoiled the job
    // What rank 0 cannot write fails on all, and is said once; then nothing works any more.
    capture_begin(&seen);
    ASSERT_STATUS(MICS_ERR_IO, mics_job_export(job, "text.txt/out", NULL));
    assert_int_equal(seen.errors, 1);
    ASSERT_STATUS(MICS_ERR_IO, mics_job_train(job, 1));
    assert_int_equal(seen.errors, 1);
    capture_end();
    ASSERT_OK(mics_job_close(job));
    ASSERT_OK(mics_job_close(NULL));
}

// Each allocation of the process fails once: no leak, no hang, no job.
static void test_allocations(void **state)
{
    (void)state;
    const mics_run_values values = values_of("allocations");
    mics_job *job = NULL;
    int64_t failed = 0;
    for (int64_t n = 1; job == NULL; n++) {
        capture seen;
        mics_memory *scarce = NULL;
        ASSERT_OK(mics_memory_open(&scarce));
        mics_job_spec spec = spec_of(&values);
        spec.memory = scarce;
        mics_memory_fail_after(scarce, n);
        capture_begin(&seen);
        const mics_status status = mics_job_open(&spec, &job);
        capture_end();
        if (status != MICS_OK) {
            ASSERT_STATUS(MICS_ERR_MEMORY, status);
            assert_null(job);
            failed++;
        } else {
            mics_memory_fail_after(scarce, 0);
            ASSERT_OK(mics_job_close(job));
        }
        assert_int_equal(mics_memory_close(scarce), 0);
    }
    assert_true(failed > 20);
}

// ---- sizes ----

static void test_size(void **state)
{
    (void)state;
    const mics_run_values values = values_of("sized");
    mics_job_spec spec = spec_of(&values);
    mics_job *job = NULL;
    spec.ranks = 8;
    spec.nodes = 4;
    ASSERT_OK(mics_job_size(&spec, &job));
    assert_int_equal(mics_job_schedule(job)->spec.mesh.ranks_per_node, 2);
    assert_int_equal(mics_job_run(job)->global_batch, 8 * 2 * 2);
    assert_string_equal(mics_job_model(job)->architecture, "gpt2");
    assert_int_equal(mics_job_facts_get(job).nodes, 4);
    assert_non_null(strstr(mics_job_facts_get(job).device_why, "run.device"));
    ASSERT_OK(mics_job_close(job));
    assert_int_not_equal(access("sized", F_OK), 0); // nothing was written
}

// ---- what was saved ----

static void count_work(void *ctx, const char *what, int64_t done, int64_t total)
{
    int64_t *told = ctx;
    assert_non_null(what);
    assert_true(done >= 0 && done <= total);
    told[0]++;
    told[1] = done;
    told[2] = total;
}

static void test_saved(void **state)
{
    (void)state;
    static const char *const shortest[] = {"short.txt"};
    capture seen;
    mics_saved *saved = NULL;
    mics_evaluation all, again;
    bool large = true, begun = false;
    const mics_evaluation_spec spec = {.files = texts, .file_count = 1};
    const mics_evaluation_spec too_long = {.files = texts, .file_count = 1, .sequence = 64};
    const mics_evaluation_spec too_short = {.files = shortest, .file_count = 1};
    int64_t told[] = {0, 0, 0};
    (void)whole();
    ASSERT_OK(mics_saved_open(memory, "whole", NULL, &saved));
    mics_saved_listen(saved, &(mics_work_listener){told, count_work});
    assert_int_equal(mics_saved_facts_get(saved).step, STEPS);
    assert_int_equal(mics_saved_facts_get(saved).sequence, 16);
    assert_string_equal(mics_saved_facts_get(saved).tokenizer, "bytes");
    ASSERT_OK(mics_saved_is_large(saved, &large));
    assert_false(large);
    ASSERT_OK(mics_saved_evaluate(saved, &spec, &begun, &all));
    assert_true(begun);
    assert_int_equal(all.sequence, 16);
    assert_true(all.first && all.ranks == 1);
    assert_true(told[0] > 1); // the last call says that all is done
    assert_int_equal(told[1], all.tokens);
    assert_int_equal(told[2], all.tokens);
    ASSERT_OK(mics_saved_evaluate(saved, &spec, NULL, &again));
    assert_memory_equal(&all.loss, &again.loss, sizeof all.loss);
    assert_true(isfinite(all.loss) && all.tokens > 1000);
    capture_begin(&seen);
    ASSERT_STATUS(MICS_ERR_INVALID, mics_saved_evaluate(saved, &too_long, NULL, &again));
    ASSERT_STATUS(MICS_ERR_INVALID, mics_saved_evaluate(saved, &too_short, NULL, &again));
    ASSERT_OK(mics_saved_export(saved, "twice", &(mics_export_spec){.max_file_bytes = 20000}));
    ASSERT_STATUS(MICS_ERR_INVALID, mics_saved_export(saved, "twice", NULL));
    assert_int_equal(seen.errors, 3);
    mics_saved_close(saved);
    saved = NULL;
    ASSERT_STATUS(MICS_ERR_IO, mics_saved_open(memory, "nowhere", NULL, &saved));
    assert_null(saved);
    assert_int_equal(seen.errors, 4);
    capture_end();
    mics_saved_close(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_calls_in_turn), cmocka_unit_test(test_resume),
        cmocka_unit_test(test_older_step),    cmocka_unit_test(test_step_zero),
        cmocka_unit_test(test_large_tensor),  cmocka_unit_test(test_stop),
        cmocka_unit_test(test_errors),        cmocka_unit_test(test_wrong_calls),
        cmocka_unit_test(test_allocations),   cmocka_unit_test(test_size),
        cmocka_unit_test(test_saved),
    };
    return cmocka_run_group_tests(tests, begin, end);
}
