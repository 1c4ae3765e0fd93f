// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// A run that stops behind a step whose validation is due, before that validation or in it: when it goes on, in this process
// or in another one, it finds the same best step, and ends where one ends that never stopped.
#include "run/job.h"
#include "run/jobs.h"

enum { MAX_STEPS = 12 };

typedef struct heard {
    mics_job *job;
    int64_t stop_at;     // 0: never
    int64_t validate_at; // the run is asked to stop as the validation of this step begins; 0: never
    int64_t step;        // newest
    bool stopped;
    int32_t validations[MAX_STEPS + 1]; // by step
} heard;

static void on_step(void *ctx, const mics_metrics *metrics)
{
    heard *self = ctx;
    self->step = metrics->step;
    if (metrics->step == self->validate_at)
        run_stop_ask(&self->job->stop, RUN_STOP_FILE);
}

static void on_validation(void *ctx, int64_t step, double loss)
{
    (void)loss;
    ((heard *)ctx)->validations[step]++;
}

// Asked before a step.
static bool should_stop(void *ctx)
{
    heard *self = ctx;
    const bool stops = !self->stopped && self->step + 1 == self->stop_at;
    self->stopped = self->stopped || stops;
    return stops;
}

// Training on one letter makes the loss on another one rise: step 2 is the best.
static mics_job *open_job(const char *out, const char *resume, heard *ears)
{
    // Long enough for ranks to begin to save meanwhile, and no grace in which a step could end.
    const bool slow = ears->validate_at > 0;
    static const char *const letters[] = {"a.txt"};
    const char *const own[] = {"data.validation=b.txt",
                               slow ? "run.validation_batches=500" : "run.validation_batches=1",
                               slow ? "run.grace_s=0" : "run.grace_s=25",
                               "run.validate_every=2",
                               "run.keep_best=true",
                               "run.stop_after_no_improvement=3",
                               "run.threads=1",
                               "run.device=cpu",
                               "run.comm_timeout_s=60"};
    mics_run_values values = values_of(out);
    values.train = letters;
    values.steps = MAX_STEPS;
    values.micro_steps = 1;
    values.learning_rate = 1e-2;
    mics_job_spec spec = spec_of(&values);
    spec.sets = own;
    spec.set_count = sizeof own / sizeof own[0];
    spec.resume = resume;
    spec.callbacks = (mics_job_callbacks){
        .ctx = ears, .step = on_step, .validation = on_validation, .should_stop = should_stop};
    ASSERT_OK(mics_job_open(&spec, &ears->job));
    return ears->job;
}

static void check_end(mics_job *job, const char *out)
{
    char path[128], text[64] = "";
    const mics_job_facts facts = mics_job_facts_get(job);
    assert_int_equal(facts.best_step, 2);
    assert_int_equal(facts.step, 8);
    ASSERT_OK(mics_job_close(job));
    snprintf(path, sizeof path, "%s/checkpoints/best", out);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    assert_true(fread(text, 1, sizeof text - 1, file) > 0);
    fclose(file);
    assert_non_null(strstr(text, "step-00000002"));
}

static void a_run_that_never_stops(void **state)
{
    (void)state;
    heard ears = {0};
    mics_job *job = open_job("whole", NULL, &ears);
    ASSERT_OK(mics_job_train(job, 0));
    check_end(job, "whole");
}

static void one_that_goes_on_in_the_same_process(void **state)
{
    (void)state;
    heard ears = {.stop_at = 2};
    mics_job *job = open_job("same", NULL, &ears);
    ASSERT_STATUS(MICS_ERR_INTERRUPTED, mics_job_train(job, 0));
    assert_int_equal(ears.validations[2], 0);
    ASSERT_OK(mics_job_train(job, 0));
    assert_int_equal(ears.validations[2], 1);
    check_end(job, "same");
}

static void stop_and_resume(const char *out, int64_t stop_at)
{
    heard ears = {.stop_at = stop_at};
    mics_job *job = open_job(out, NULL, &ears);
    ASSERT_STATUS(MICS_ERR_INTERRUPTED, mics_job_train(job, 0));
    ASSERT_OK(mics_job_close(job));
    job = open_job(out, "auto", &ears);
    ASSERT_OK(mics_job_train(job, 0));
    assert_int_equal(ears.validations[stop_at], 1);
    check_end(job, out);
}

// The best one itself, one on the way, and the one that ends the run.
static void one_that_resumes(void **state)
{
    (void)state;
    stop_and_resume("best", 2);
    stop_and_resume("later", 6);
    stop_and_resume("last", 8);
}

// The step that is validated is saved by ranks that are to stop, and as the best: once.
static void one_that_is_to_stop_while_it_validates(void **state)
{
    (void)state;
    heard ears = {.validate_at = 2};
    mics_job *job = open_job("during", NULL, &ears);
    ASSERT_STATUS(MICS_ERR_INTERRUPTED, mics_job_train(job, 0));
    assert_int_equal(mics_job_facts_get(job).step, 2);
    assert_int_equal(mics_job_facts_get(job).saved_step, 2);
    ASSERT_OK(mics_job_train(job, 0));
    assert_int_equal(ears.validations[2], 1);
    assert_int_equal(mics_job_facts_get(job).saved_step, 8);
    assert_int_equal(access("during/checkpoints/step-00000008/manifest.json", F_OK), 0);
    check_end(job, "during");
}

static int begin_with_letters(void **state)
{
    char text[4096] = "";
    if (begin(state) != 0)
        return 1;
    memset(text, 'a', sizeof text - 1);
    write_file("a.txt", text);
    memset(text, 'b', sizeof text - 1);
    write_file("b.txt", text);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_run_that_never_stops),
        cmocka_unit_test(one_that_goes_on_in_the_same_process),
        cmocka_unit_test(one_that_resumes),
        cmocka_unit_test(one_that_is_to_stop_while_it_validates),
    };
    return cmocka_run_group_tests(tests, begin_with_letters, end);
}
