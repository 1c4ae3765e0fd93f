// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// The workspace that a schedule for accelerators has, by the ops' descriptors, is the one that the
// GPU's kernels ask for.
#include "gpu.h"
#include "mics/device.h"
#include "mics/engine.h"
#include "mics/json.h"
#include "mics/kernels.h"
#include "test.h"
#include <stdio.h>
#include <string.h>

typedef struct model_case {
    int64_t layers, heads, width, vocab;
} model_case;

static mics_model *open_model(mics_memory *memory, const model_case *c)
{
    char text[256];
    mics_json *json = NULL;
    mics_model *model = NULL;
    snprintf(text, sizeof text,
             "{\"model_type\": \"gpt2\", \"n_layer\": %d, \"n_head\": %d, \"n_embd\": %d, "
             "\"n_positions\": 4096, \"vocab_size\": %d}",
             (int)c->layers, (int)c->heads, (int)c->width, (int)c->vocab);
    ASSERT_OK(mics_json_parse(memory, "model", text, strlen(text), &json));
    ASSERT_OK(mics_model_from_config(memory, json, false, &model));
    mics_json_close(json);
    return model;
}

// Bytes, less the losses behind it.
static size_t scheduled(mics_memory *memory, const mics_model *model, mics_batch batch,
                        mics_dtype dtype, mics_batch *batch_out)
{
    mics_schedule *schedule = NULL;
    mics_schedule_spec spec = {.model = model, .batch = batch, .micro_steps = 1};
    spec.accelerator = true;
    spec.precision = dtype == MICS_DTYPE_FP32 ? MICS_PRECISION_FP32 : MICS_PRECISION_MIXED;
    ASSERT_OK(mics_mesh_init(1, 1, (mics_sharding){1, 1, 1}, &spec.mesh));
    ASSERT_OK(mics_schedule_open(memory, &spec, &schedule));
    const size_t bytes = (size_t)schedule->workspace_losses * sizeof(float);
    *batch_out = schedule->spec.batch;
    mics_schedule_close(schedule);
    return bytes;
}

static void test_agree(void **state)
{
    (void)state;
    static const model_case models[] = {{1, 1, 3, 5},
                                        {2, 3, 12, 29},
                                        {12, 12, 768, 50257},
                                        {1, 25, 1600, 50257},
                                        {1, 32, 4096, 128256}};
    static const mics_batch batches[] = {{.sequences = 1, .length = 1, .threads = 1},
                                         {.sequences = 3, .length = 77, .threads = 5},
                                         {.sequences = 8, .length = 1024, .threads = 1},
                                         {.sequences = 16, .length = 4096, .threads = 2}};
    const mics_kernels *ops = mics_kernels_cuda();
    mics_memory *memory = NULL;
    assert_non_null(ops);
    ASSERT_OK(mics_memory_open(&memory));
    for (size_t m = 0; m < sizeof models / sizeof models[0]; m++) {
        mics_model *model = open_model(memory, &models[m]);
        for (size_t b = 0; b < sizeof batches / sizeof batches[0]; b++) {
            for (int dtype = 0; dtype < MICS_DTYPES; dtype++) {
                mics_batch batch;
                const size_t there =
                    scheduled(memory, model, batches[b], (mics_dtype)dtype, &batch);
                assert_int_equal(batch.accelerator_bytes, mics_dtype_bytes((mics_dtype)dtype));
                const size_t needed = mics_engine_workspace(ops, (mics_dtype)dtype, model, batch);
                if (there != needed)
                    fail_msg("width %d, vocabulary %d, batch %d, %s: the schedule has %zu bytes, "
                             "the kernels ask for %zu",
                             (int)models[m].width, (int)models[m].vocab, (int)b,
                             mics_dtype_text((mics_dtype)dtype), there, needed);
            }
        }
        mics_model_close(model);
    }
    assert_int_equal(mics_memory_close(memory), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_agree)};
    const int missing = gpu_missing();
    return missing != 0 ? missing : cmocka_run_group_tests(tests, NULL, NULL);
}
