// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Whole trainings through mics/run.h: calls in any order, with the bits of one call; runs filled in C; what
// stops them; errors, each said once; and checkpoints as one process reads them.
#include "base/capture.h"
#include "mics/run.h"
#include "test.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { STEPS = 8, RANKS = 2, MOST_STEPS = 32 };

static char work[] = "/tmp/mics-run-XXXXXX";
static mics_memory *memory;

// What was heard of a job.
typedef struct heard {
    const mics_job *job;
    double loss[MOST_STEPS + 1]; // by step
    int steps, validations, savings, checkpoints, starts;
    int64_t stop_after; // step; 0: never
    int64_t step;
} heard;

static void hear_start(void *ctx, const mics_job *job)
{
    ((heard *)ctx)->job = job;
    ((heard *)ctx)->starts++;
}

static void hear_step(void *ctx, const mics_metrics *metrics)
{
    heard *self = ctx;
    self->loss[metrics->step] = metrics->loss;
    self->step = metrics->step;
    self->steps++;
}

static void hear_validation(void *ctx, int64_t step, double loss)
{
    (void)step;
    (void)loss;
    ((heard *)ctx)->validations++;
}

static void hear_saving(void *ctx, int64_t step)
{
    (void)step;
    ((heard *)ctx)->savings++;
}

static void hear_checkpoint(void *ctx, int64_t step, const char *path)
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

static const char *const texts[] = {"text.txt"};

// Two ranks share a small model's state; the run is the same in each test but for `out`.
static mics_run_values values_of(const char *out)
{
    return (mics_run_values){.model_config = "model.json",
                             .train = texts,
                             .train_count = 1,
                             .sequence_length = 16,
                             .steps = STEPS,
                             .seed = 3,
                             .out = out,
                             .micro_batch = 2,
                             .micro_steps = 2,
                             .learning_rate = 3e-3,
                             .sharding = {2, 2, 2}};
}

static const char *const sets[] = {"run.validation_batches=2", "run.threads=1", "run.device=cpu",
                                   "run.comm_timeout_s=60"};

static mics_job_spec spec_of(const mics_run_values *values, heard *ears)
{
    return (mics_job_spec){.memory = memory,
                           .values = values,
                           .sets = sets,
                           .set_count = sizeof sets / sizeof sets[0],
                           .ranks = RANKS,
                           .nodes = 1,
                           .callbacks = {ears, hear_start, hear_step, hear_validation, hear_saving,
                                         hear_checkpoint, NULL, stop}};
}

static mics_job *open_good(const char *out, heard *ears, const char *resume)
{
    const mics_run_values values = values_of(out);
    mics_job_spec spec = spec_of(&values, ears);
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
    mics_job_spec spec = spec_of(&values, ears);
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
    mics_job_spec spec = spec_of(&values, NULL);
    spec.callbacks = (mics_job_callbacks){0};
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
    mics_job_spec spec = spec_of(&values, NULL);
    mics_job *job = NULL;
    spec.callbacks = (mics_job_callbacks){0}; // nobody listens
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
        mics_job_spec spec = spec_of(&values, NULL);
        spec.callbacks = (mics_job_callbacks){0};
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
    mics_job_spec spec = spec_of(&values, NULL);
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

// ---- a model of the program's own ----

typedef struct own_model {
    bool fails, forgets,
        breaks;            // the builder says so; gives no model; one with an unused parameter
    int64_t built, layers; // times; as described, the last time
    const char *out;       // NULL: "own"
} own_model;

static mics_param_ref own_matrix(mics_model *model, const char *name, int64_t rows, int64_t cols)
{
    const mics_param_spec spec = {2, {rows, cols}, MICS_INIT_NORMAL, 0.02, true};
    return mics_model_add_param(model, name, &spec);
}

static mics_status build_own(void *ctx, mics_memory *builder_memory, const mics_json *description,
                             mics_model **model_out)
{
    own_model *self = ctx;
    const mics_model_spec spec = {"own", 256, 16, 32};
    const mics_param_spec ones = {1, {32}, MICS_INIT_ONES, 0, false};
    self->built++;
    self->layers = mics_json_int(mics_json_at(description, "layers"));
    if (self->fails)
        return MICS_ERR_UNSUPPORTED;
    if (self->forgets)
        return MICS_OK;
    ASSERT_OK(mics_model_open(builder_memory, &spec, model_out));
    mics_model *model = *model_out;
    mics_model_unit(model, "embed", 0);
    const mics_param_ref tokens = own_matrix(model, "tokens", 256, 32);
    mics_model_unit_end(model, mics_op_embedding(model, tokens, mics_param_none()));
    mics_model_unit(model, "head", 32);
    if (self->breaks)
        own_matrix(model, "unused", 2, 2);
    const int32_t x = mics_op_rmsnorm(model, 0, mics_model_add_param(model, "norm", &ones), 1e-5f);
    mics_op_lm_head(model, x, own_matrix(model, "head", 256, 32));
    mics_model_unit_end(model, -1);
    return MICS_OK;
}

static mics_status open_own(own_model *self, const char *description, mics_job **job_out)
{
    mics_run_values values = values_of(self->out != NULL ? self->out : "own");
    values.model_config = NULL;
    mics_job_spec spec = spec_of(&values, NULL);
    spec.callbacks = (mics_job_callbacks){0};
    spec.builder = (mics_model_builder){self, build_own};
    spec.description = description;
    return mics_job_open(&spec, job_out);
}

static void test_own_model(void **state)
{
    (void)state;
    static const char description[] = "{\"layers\": 7}";
    own_model own = {0};
    mics_job *job = NULL;
    mics_saved *saved = NULL;
    capture seen;
    ASSERT_OK(open_own(&own, description, &job));
    assert_int_equal(own.built, 1);
    assert_false(mics_job_model(job)->tied);
    ASSERT_OK(mics_job_train(job, 0));
    ASSERT_OK(mics_job_close(job));
    ASSERT_OK(mics_saved_open(memory, "own", &(mics_model_builder){&own, build_own}, &saved));
    assert_int_equal(own.layers, 7); // from the checkpoint
    assert_string_equal(mics_saved_facts_get(saved).model->architecture, "own");
    ASSERT_OK(mics_saved_load(saved, MICS_DTYPE_FP32));
    mics_saved_close(saved);
    saved = NULL;
    capture_begin(&seen);
    ASSERT_STATUS(MICS_ERR_UNSUPPORTED, mics_saved_open(memory, "own", NULL, &saved));
    ASSERT_SAID(&seen, "model_type");
    capture_begin(&seen);
    ASSERT_STATUS(MICS_ERR_INVALID, open_own(&own, "{\"layers\": 8}", &job));
    ASSERT_SAID(&seen, "another \"layers\" in the model's config than the program's model has");
    capture_end();
    // The same description in another layout is the same model.
    ASSERT_OK(open_own(&own, "{ \"layers\" : 7 }", &job));
    assert_true(mics_job_facts_get(job).finished);
    ASSERT_OK(mics_job_close(job));
}

// A builder during whose work another run saves in the same folder, and ends.
static mics_status build_beside(void *ctx, mics_memory *builder_memory,
                                const mics_json *description, mics_model **model_out)
{
    own_model *self = ctx;
    if (self->built == 0) {
        own_model other = {.out = self->out};
        mics_job *job = NULL;
        ASSERT_OK(open_own(&other, "{}", &job));
        ASSERT_OK(mics_job_train(job, 1));
        ASSERT_OK(mics_job_save(job));
        ASSERT_OK(mics_job_close(job));
    }
    return build_own(ctx, builder_memory, description, model_out);
}

static void test_saved_beside(void **state)
{
    (void)state;
    own_model own = {0};
    mics_run_values values = values_of("own");
    values.model_config = NULL;
    mics_job_spec spec = spec_of(&values, NULL);
    spec.callbacks = (mics_job_callbacks){0};
    spec.builder = (mics_model_builder){&own, build_beside};
    spec.description = "{}";
    mics_job *job = NULL;
    capture seen;
    static const char *const ways[] = {"auto", "none"};
    for (int i = 0; i < 2; i++) {
        own = (own_model){.out = i == 0 ? "beside-auto" : "beside-none"};
        values.out = own.out;
        spec.resume = ways[i];
        capture_begin(&seen);
        ASSERT_STATUS(MICS_ERR_INVALID, mics_job_open(&spec, &job));
        ASSERT_SAID(&seen, "another run saved there while this one started");
        capture_end();
    }
    spec.resume = "auto"; // now it is there from the start
    ASSERT_OK(mics_job_open(&spec, &job));
    assert_int_equal(mics_job_facts_get(job).step, 1);
    ASSERT_OK(mics_job_close(job));
}

static void test_own_model_wrong(void **state)
{
    (void)state;
    static const struct {
        own_model own;
        const char *description;
        mics_status status;
        const char *said;
    } cases[] = {
        {{0}, NULL, MICS_ERR_INVALID, "mics_job_spec.description: missing"},
        {{0}, "[]", MICS_ERR_INVALID, "must be an object"},
        {{0}, "{", MICS_ERR_FORMAT, "mics_job_spec.description:1"},
        {{.forgets = true}, "{}", MICS_ERR_INVALID, "returned MICS_OK and no model"},
        {{.breaks = true}, "{}", MICS_ERR_INVALID, "parameter unused is not used by any op"},
        {{.fails = true}, "{}", MICS_ERR_UNSUPPORTED, NULL}, // the builder has logged why
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        own_model own = cases[i].own;
        mics_job *job = NULL;
        capture seen;
        capture_begin(&seen);
        ASSERT_STATUS(cases[i].status, open_own(&own, cases[i].description, &job));
        if (cases[i].said != NULL)
            ASSERT_SAID(&seen, cases[i].said);
        else
            assert_int_equal(seen.errors, 0);
        capture_end();
        assert_null(job);
    }
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

// ---- the tests ----

static void write_file(const char *path, const char *text)
{
    FILE *out = fopen(path, "w");
    assert_non_null(out);
    fputs(text, out);
    assert_int_equal(fclose(out), 0);
}

static void write_model(const char *path, int vocab)
{
    char text[512];
    snprintf(text, sizeof text,
             "{\"model_type\": \"gpt2\", \"activation_function\": \"gelu_new\", \"n_embd\": 16, "
             "\"n_head\": 2, \"n_layer\": 2, \"n_positions\": 32, \"vocab_size\": %d, "
             "\"attn_pdrop\": 0.0, \"embd_pdrop\": 0.0, \"resid_pdrop\": 0.0}",
             vocab);
    write_file(path, text);
}

static int begin(void **state)
{
    char text[4096] = "";
    (void)state;
    for (size_t i = 0; i + 32 < sizeof text; i += 26)
        snprintf(text + i, sizeof text - i, "the lark at break of day%c\n", (char)('a' + i % 26));
    if (mkdtemp(work) == NULL || chdir(work) != 0 || mics_memory_open(&memory) != MICS_OK)
        return 1;
    write_file("text.txt", text);
    write_file("short.txt", "");
    write_model("model.json", 256);
    write_model("large.json", 80000);
    return 0;
}

static int end(void **state)
{
    char command[64];
    (void)state;
    const int64_t leaks = mics_memory_close(memory);
    snprintf(command, sizeof command, "rm -rf %s", work);
    return system(command) == 0 && leaks == 0 ? 0 : 1;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_calls_in_turn), cmocka_unit_test(test_resume),
        cmocka_unit_test(test_older_step),    cmocka_unit_test(test_step_zero),
        cmocka_unit_test(test_large_tensor),  cmocka_unit_test(test_stop),
        cmocka_unit_test(test_errors),        cmocka_unit_test(test_wrong_calls),
        cmocka_unit_test(test_allocations),   cmocka_unit_test(test_size),
        cmocka_unit_test(test_own_model),     cmocka_unit_test(test_own_model_wrong),
        cmocka_unit_test(test_saved_beside),  cmocka_unit_test(test_saved),
    };
    return cmocka_run_group_tests(tests, begin, end);
}
