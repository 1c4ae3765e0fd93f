// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Runs of a model that the program builds: what is kept of its description, builders that are wrong, and one
// during whose work another run saves.
#include "base/capture.h"
#include "base/json.h"
#include "mics/builder.h"
#include "run/jobs.h"

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
    mics_job_spec spec = spec_of(&values);
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
    mics_job_spec spec = spec_of(&values);
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_own_model),
        cmocka_unit_test(test_own_model_wrong),
        cmocka_unit_test(test_saved_beside),
    };
    return cmocka_run_group_tests(tests, begin, end);
}
