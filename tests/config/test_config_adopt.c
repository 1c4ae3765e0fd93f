// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Files of DeepSpeed, Hugging Face's Trainer, accelerate and torchtitan: what their values become.
#include "config/keys.h"
#include "config/run_file.h"

// A file without a section of ours that says how it is trained.
#define FOREIGN(more)                                                                              \
    "{\"model\": {\"config\": \"model.json\"}, \"data\": {\"train\": [\"a.txt\"]},\n" more "}"

static void check_value(const char *text, const char *path, const char *value)
{
    mics_run *run = load_good(text);
    const mics_run_row row = find_row(run, path);
    if (row.key == NULL || strcmp(row.value, value) != 0)
        fail_msg("%s: %s is %s, expected %s", text, path, row.key != NULL ? row.value : "absent",
                 value);
    mics_run_close(run);
}

// ---- the same in two places ----

static void test_says_the_same_twice(void **state)
{
    (void)state;
    check_value(FOREIGN("\"learning_rate\": 1e-4, \"max_steps\": 9,"
                        "\"deepspeed\": {\"optimizer\": {\"params\": {\"lr\": 0.0001}}}"),
                "optimizer.params.lr", "0.0001");
    check_value(FOREIGN("\"bf16\": true, \"max_steps\": 9,"
                        "\"deepspeed\": {\"bf16\": {\"enabled\": true}}"),
                "bf16.enabled", "true");
    check_value(FOREIGN("\"max_grad_norm\": 1, \"max_steps\": 9,"
                        "\"deepspeed\": {\"gradient_clipping\": 1.0}"),
                "gradient_clipping", "1");
    check_value(FOREIGN("\"gradient_accumulation_steps\": 4, \"max_steps\": 9,"
                        "\"deepspeed\": {\"gradient_accumulation_steps\": 4}"),
                "run.seed", "42");
}

static void test_contradicts(void **state)
{
    (void)state;
    check_refused(FOREIGN("\"learning_rate\": 1e-4, \"max_steps\": 9,"
                          "\"deepspeed\": {\"optimizer\": {\"params\": {\"lr\": 2e-4}}}"),
                  MICS_ERR_INVALID, "contradicts");
    check_refused(FOREIGN("\"bf16\": true, \"max_steps\": 9,"
                          "\"deepspeed\": {\"bf16\": {\"enabled\": false}}"),
                  MICS_ERR_INVALID, "deepspeed.bf16.enabled: false contradicts bf16");
    check_refused(FOREIGN("\"gradient_accumulation_steps\": 4, \"max_steps\": 9,"
                          "\"deepspeed\": {\"gradient_accumulation_steps\": 2}"),
                  MICS_ERR_INVALID, "contradicts gradient_accumulation_steps 4; leave one out");
}

// ---- OneCycle ----

#define ONE_CYCLE(more)                                                                            \
    RUN_WITH("\"scheduler\": {\"type\": \"OneCycle\", \"params\": {\"cycle_min_lr\": 1e-4, "       \
             "\"cycle_max_lr\": 1e-3" more "}}")

static void test_one_cycle(void **state)
{
    (void)state;
    check_refused(ONE_CYCLE(""), MICS_ERR_UNSUPPORTED, "is true in DeepSpeed unless");
    check_refused(ONE_CYCLE(", \"cycle_momentum\": \"auto\""), MICS_ERR_UNSUPPORTED,
                  "write \"cycle_momentum\": false");
    check_refused(ONE_CYCLE(", \"cycle_momentum\": false, \"cycle_first_stair_count\": 500"),
                  MICS_ERR_UNSUPPORTED, "cycle_first_stair_count: cannot be honoured");
    check_refused(ONE_CYCLE(", \"cycle_momentum\": false, \"cycle_second_stair_count\": 500"),
                  MICS_ERR_UNSUPPORTED, "cycle_second_stair_count: cannot be honoured");
    check_value(ONE_CYCLE(", \"cycle_momentum\": false, \"cycle_first_stair_count\": 0"),
                "scheduler.type", "\"OneCycle\"");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_says_the_same_twice, setup, teardown),
        cmocka_unit_test_setup_teardown(test_contradicts, setup, teardown),
        cmocka_unit_test_setup_teardown(test_one_cycle, setup, teardown),
    };
    return cmocka_run_group_tests(tests, group_setup, group_teardown);
}
