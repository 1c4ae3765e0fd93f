// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// A model that one node cannot train is measured by fewer layers, tokens and rows of its vocabulary; and what
// the parts of a measurement may take is less than the whole.
#include "base/file.h"
#include "base/json.h"
#include "measure/internal.h"
#include "mics/core/ledger.h"
#include "test.h"
#include <stdio.h>

static mics_memory *memory;

static int open_memory(void **state)
{
    (void)state;
    return mics_memory_open(&memory);
}

static int close_memory(void **state)
{
    (void)state;
    mics_memory_close(memory);
    return 0;
}

// 80 layers of 15 million parameters.
static const char *write_model(mics_temp_dir *dir)
{
    static char path[512];
    assert_int_equal(mics_temp_dir_init(dir), MICS_OK);
    snprintf(path, sizeof path, "%s/config.json", dir->path);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs("{\"model_type\": \"llama\", \"vocab_size\": 32000, \"hidden_size\": 1024, "
          "\"intermediate_size\": 4096, \"num_hidden_layers\": 80, \"num_attention_heads\": 16, "
          "\"num_key_value_heads\": 8, \"max_position_embeddings\": 8192, "
          "\"tie_word_embeddings\": false}",
          file);
    assert_int_equal(fclose(file), 0);
    return path;
}

static double pass_flops(const measure_subject *subject)
{
    mics_schedule *schedule = NULL;
    ASSERT_OK(measure_schedule_open(memory, subject, MICS_DTYPE_FP32, 1, &schedule));
    const double flops = mics_schedule_flops(schedule, MICS_PHASE_TRAIN);
    mics_schedule_close(schedule);
    return flops;
}

static void test_is_cut(void **state)
{
    (void)state;
    mics_temp_dir dir;
    const run_world world = {.ranks = 1, .nodes = 1, .ranks_here = 1};
    measure_spec spec = {.run = write_model(&dir), .batch = 4};
    measure_subject few = {.model = NULL}, many = {.model = NULL};
    spec.seconds = 1000;
    ASSERT_OK(measure_subject_open(memory, &spec, &world, false, &many));
    spec.seconds = 100;
    ASSERT_OK(measure_subject_open(memory, &spec, &world, false, &few));
    assert_int_equal(mics_json_int(mics_json_at(few.config, "num_hidden_layers")), 1);
    assert_true(few.batch.sequences * few.batch.length < many.batch.sequences * many.batch.length);
    assert_true(many.batch.sequences * many.batch.length < 4 * 4096);
    // What a second counts for, or the fewest tokens.
    assert_true(pass_flops(&many) <= 2e9 * 1000 || many.batch.length <= 32);
    assert_true(pass_flops(&few) <= 2e9 * 100 || few.batch.length <= 32);
    measure_subject_close(&few);
    measure_subject_close(&many);
    mics_temp_dir_fini(&dir);
}

// So many ranks on a machine that one layer is too much for each.
static void test_does_not_fit(void **state)
{
    (void)state;
    mics_temp_dir dir;
    const run_world world = {.ranks = 1 << 20, .nodes = 1, .ranks_here = 1 << 20};
    const measure_spec spec = {.run = write_model(&dir), .seconds = 60};
    measure_subject subject = {.model = NULL};
    assert_int_equal(measure_subject_open(memory, &spec, &world, false, &subject), MICS_ERR_MEMORY);
    assert_true(subject.model->vocab < 2048); // and a smaller vocabulary was tried
    measure_subject_close(&subject);
    mics_temp_dir_fini(&dir);
}

static void test_parts(void **state)
{
    (void)state;
    for (int bits = 0; bits < 16; bits++) {
        const measure_spec spec = {
            .compute = bits & 1, .links = bits & 2 || !(bits & 1), .seconds = 60};
        const bool lacks = bits & 4;
        const int32_t ranks = bits & 8 ? 1 : 4;
        const measure_parts parts = measure_share_out(&spec, ranks, lacks);
        assert_true(parts.compute_s + parts.links_s + parts.check_s < spec.seconds);
        const bool computes = spec.compute || lacks;
        assert_int_equal(parts.compute_s > 0, computes);
        assert_int_equal(parts.check_s > 0, computes);
        assert_int_equal(parts.links_s > 0, ranks > 1 && (spec.links || lacks));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_is_cut),
        cmocka_unit_test(test_does_not_fit),
        cmocka_unit_test(test_parts),
    };
    return cmocka_run_group_tests(tests, open_memory, close_memory);
}
