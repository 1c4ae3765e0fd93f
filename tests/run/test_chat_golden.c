// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Chats as TRL trains them: its tokens, which of them count, and its losses, of seven families
// (tools/make_chat_golden.py).
#include "base/json.h"
#include "mics/run.h"
#include "test.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { STEPS = 20, LENGTH = 128 };

static const char *const families[] = {"llama", "qwen2",    "qwen3",  "mistral",
                                       "gpt2",  "gpt_neox", "mixtral"};

static char chats[1024];
static const char *const train[] = {chats};
static mics_memory *memory;

static mics_json *load(const char *family, const char *name)
{
    char path[2048];
    mics_json *json = NULL;
    snprintf(path, sizeof path, "%s/chat/%s/%s", MICS_TEST_DATA, family, name);
    ASSERT_OK(mics_json_load(memory, path, 1 << 24, &json));
    return json;
}

static mics_job_spec spec_of(const char *family, mics_run_values *values, char *model,
                             size_t capacity)
{
    static const char *const sets[] = {"run.validation_batches=0", "run.device=cpu",
                                       "run.precision=fp32",       "run.threads=1",
                                       "data.packing=false",       "gradient_clipping=1.0"};
    snprintf(model, capacity, "%s/chat/%s", MICS_TEST_DATA, family);
    *values = (mics_run_values){.model_config = model,
                                .train = train,
                                .train_count = 1,
                                .sequence_length = LENGTH,
                                .steps = STEPS,
                                .seed = 11,
                                .out = family,
                                .micro_batch = 2,
                                .micro_steps = 2,
                                .learning_rate = 1e-3,
                                .sharding = {2, 2, 2}};
    return (mics_job_spec){.memory = memory,
                           .values = values,
                           .sets = sets,
                           .set_count = sizeof sets / sizeof *sets,
                           .ranks = 2,
                           .nodes = 1};
}

// ---- tokens ----

typedef struct looking {
    const mics_json *wanted;
    int32_t row;
} looking;

// The file has as many tokens as a sequence has, ids and a digit of each.
static void check_sample(void *ctx, const mics_job_sample *sample)
{
    looking *at = ctx;
    const mics_json_value *row = mics_json_element(mics_json_root(at->wanted), at->row++);
    const mics_json_value *ids = mics_json_get(row, "ids");
    const char *counts = mics_json_string(mics_json_get(row, "assistant"));
    assert_int_equal(sample->count < LENGTH ? sample->count : LENGTH, mics_json_count(ids));
    for (int32_t i = 0; i < mics_json_count(ids); i++) {
        assert_int_equal(sample->tokens[i], mics_json_int(mics_json_element(ids, i)));
        assert_int_equal(sample->counts[i], counts[i] == '1');
    }
}

static void test_tokens(void **state)
{
    (void)state;
    for (size_t f = 0; f < sizeof families / sizeof *families; f++) {
        mics_run_values values;
        mics_job *job = NULL;
        char model[1024];
        const mics_job_spec spec = spec_of(families[f], &values, model, sizeof model);
        mics_json *wanted = load(families[f], "samples.json");
        looking at = {.wanted = wanted};
        ASSERT_OK(mics_job_size(&spec, &job));
        ASSERT_OK(mics_job_samples(job, 1000, check_sample, &at));
        assert_int_equal(at.row, mics_json_count(mics_json_root(wanted)));
        ASSERT_OK(mics_job_close(job));
        mics_json_close(wanted);
    }
}

// ---- losses ----

static void on_step(void *ctx, const mics_metrics *metrics)
{
    ((double *)ctx)[metrics->step] = metrics->loss;
}

static void test_losses(void **state)
{
    (void)state;
    for (size_t f = 0; f < sizeof families / sizeof *families; f++) {
        mics_run_values values;
        mics_job *job = NULL;
        char model[1024];
        double losses[STEPS + 1];
        mics_job_spec spec = spec_of(families[f], &values, model, sizeof model);
        mics_json *wanted = load(families[f], "losses.json");
        spec.callbacks = (mics_job_callbacks){.ctx = losses, .step = on_step};
        ASSERT_OK(mics_job_open(&spec, &job));
        assert_true(mics_job_facts_get(job).imported);
        ASSERT_OK(mics_job_train(job, 0));
        ASSERT_OK(mics_job_close(job));
        for (int32_t i = 0; i < STEPS; i++) {
            const double loss = mics_json_real(mics_json_element(mics_json_root(wanted), i));
            if (!(fabs(losses[i + 1] - loss) <= 1e-5))
                fail_msg("%s: step %d: loss %.9g, TRL has %.9g", families[f], (int)i + 1,
                         losses[i + 1], loss);
        }
        mics_json_close(wanted);
    }
}

static int setup(void **state)
{
    static char folder[] = "/tmp/mics-chat-XXXXXX";
    (void)state;
    snprintf(chats, sizeof chats, "%s/chat/chats.jsonl", MICS_TEST_DATA);
    return mkdtemp(folder) == NULL || chdir(folder) != 0 || mics_memory_open(&memory) != MICS_OK;
}

static int teardown(void **state)
{
    (void)state;
    return mics_memory_close(memory) != 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_tokens),
                                       cmocka_unit_test(test_losses)};
    return cmocka_run_group_tests(tests, setup, teardown);
}
