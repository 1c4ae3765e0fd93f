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

// ---- defaults ----

#define BESIDE(arguments, deepspeed)                                                               \
    FOREIGN("\"per_device_train_batch_size\": 4, \"max_steps\": 9" arguments                       \
            ", \"deepspeed\": {" deepspeed "}")

// Of what DeepSpeed's configuration may say, the Trainer fills in "auto" alone.
static void test_defaults_beside_deepspeed(void **state)
{
    (void)state;
    static const char clip[] = "gradient_clipping", lr[] = "optimizer.params.lr";
    check_value(BESIDE("", "\"zero_optimization\": {\"stage\": 2}"), clip, "0");
    check_value(BESIDE("", "\"gradient_clipping\": \"auto\""), clip, "1");
    check_value(BESIDE(", \"max_grad_norm\": 2", "\"gradient_clipping\": \"auto\""), clip, "2");
    check_value(BESIDE("", "\"zero_optimization\": {\"stage\": 2}"), lr, "5e-05");
    check_value(BESIDE("", "\"optimizer\": {\"type\": \"AdamW\"}"), lr, "0.001");
    check_value(BESIDE("", "\"optimizer\": {\"params\": {\"lr\": \"auto\"}}"), lr, "5e-05");
    check_value(BESIDE(", \"learning_rate\": 1e-4", "\"zero_optimization\": {\"stage\": 2}"), lr,
                "0.0001");
    check_value(FOREIGN("\"max_steps\": 9"), clip, "1");
    check_value(FOREIGN("\"train_batch_size\": \"auto\", \"train_micro_batch_size_per_gpu\": "
                        "\"auto\", \"max_steps\": 9, \"zero_optimization\": {\"stage\": 2}"),
                clip, "0");
    check_value(FOREIGN("\"distributed_type\": \"DEEPSPEED\", \"max_steps\": 9, "
                        "\"deepspeed_config\": {\"zero_stage\": 2}"),
                clip, "0");
    check_value(FOREIGN("\"max_grad_norm\": 1, \"max_steps\": 9, "
                        "\"deepspeed_config\": {\"gradient_clipping\": 1}"),
                clip, "1");
}

static void test_without_effect_in_the_trainer(void **state)
{
    (void)state;
    check_refused(BESIDE(", \"max_grad_norm\": 2", "\"zero_optimization\": {\"stage\": 2}"),
                  MICS_ERR_INVALID,
                  "max_grad_norm: has no effect in the Trainer, as DeepSpeed's configuration has "
                  "no gradient_clipping");
    check_refused(BESIDE(", \"learning_rate\": 1e-4", "\"optimizer\": {\"type\": \"AdamW\"}"),
                  MICS_ERR_INVALID, "learning_rate: has no effect in the Trainer");
    check_value(BESIDE(", \"weight_decay\": 0.0", "\"optimizer\": {\"type\": \"AdamW\"}"),
                "optimizer.params.weight_decay", "0");
    check_refused(
        BESIDE(", \"warmup_steps\": 3", "\"scheduler\": {\"type\": \"WarmupLR\", \"params\": {}}"),
        MICS_ERR_INVALID, "warmup_steps: has no effect in the Trainer");
}

static void test_null_norm_is_no_clipping(void **state)
{
    (void)state;
    static const char clip[] = "gradient_clipping";
    check_value(FOREIGN("\"max_steps\": 9, \"max_grad_norm\": null"), clip, "0");
    check_value(BESIDE(", \"max_grad_norm\": null", "\"gradient_clipping\": \"auto\""), clip, "0");
    check_refused(BESIDE(", \"max_grad_norm\": null", "\"gradient_clipping\": 1"), MICS_ERR_INVALID,
                  "max_grad_norm: 0 contradicts deepspeed.gradient_clipping 1");
}

// A run file of our own takes no defaults of the Trainer's, but what it says in its words.
static void test_own_file_with_arguments(void **state)
{
    (void)state;
    static const char own[] =
        FOREIGN("\"run\": {\"out\": \"x\"}, \"train_micro_batch_size_per_gpu\": 4, "
                "\"num_train_epochs\": 2, \"lr_scheduler_type\": \"cosine\", \"warmup_ratio\": "
                "0.1");
    check_value(own, "gradient_clipping", "0");
    check_value(own, "optimizer.params.lr", "0.001");
    check_value(own, "run.seed", "1");
    check_value(own, "scheduler.type", "\"cosine\"");
    check_value(own, "scheduler.params.warmup_ratio", "0.1");
    mics_run *run = load_good(FOREIGN("\"run\": {\"out\": \"x\"}, \"num_train_epochs\": 2, "
                                      "\"train_micro_batch_size_per_gpu\": 4"));
    assert_int_equal(run->lr.kind, MICS_LR_CONSTANT);
    mics_run_close(run);
}

// Arguments that are set are no sign of a Trainer's file.
static void test_set_arguments(void **state)
{
    (void)state;
    static const char *const sets[] = {"max_steps=9"};
    mics_run *run = NULL;
    write_file("run.json", FOREIGN("\"train_micro_batch_size_per_gpu\": 4, "
                                   "\"zero_optimization\": {\"stage\": 2}"));
    ASSERT_OK(mics_run_load(memory, "run.json", sets, 1, &run));
    assert_int_equal(run->steps, 9);
    assert_string_equal(find_row(run, "optimizer.params.lr").value, "0.001");
    assert_string_equal(find_row(run, "run.seed").value, "1");
    assert_int_equal(run->lr.kind, MICS_LR_CONSTANT);
    mics_run_close(run);
}

#define WARMUP(type, params) "\"scheduler\": {\"type\": \"" type "\", \"params\": {" params "}}"

static void test_warmup_beside_deepspeed(void **state)
{
    (void)state;
    static const char steps[] = "scheduler.params.warmup_num_steps";
    check_value(BESIDE("", WARMUP("WarmupLR", "\"warmup_max_lr\": 1e-3")), steps, "1000");
    check_value(BESIDE(", \"warmup_steps\": 3", WARMUP("WarmupLR", "\"warmup_num_steps\": "
                                                                   "\"auto\"")),
                steps, "3");
    check_value(BESIDE(", \"warmup_ratio\": 0.5", WARMUP("WarmupLR", "\"warmup_num_steps\": "
                                                                     "\"auto\"")),
                steps, "5");
    check_value(BESIDE("", WARMUP("OneCycle", "\"cycle_min_lr\": 1e-4, \"cycle_max_lr\": 1e-3, "
                                              "\"cycle_momentum\": false")),
                "scheduler.type", "\"OneCycle\"");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_says_the_same_twice, setup, teardown),
        cmocka_unit_test_setup_teardown(test_contradicts, setup, teardown),
        cmocka_unit_test_setup_teardown(test_one_cycle, setup, teardown),
        cmocka_unit_test_setup_teardown(test_defaults_beside_deepspeed, setup, teardown),
        cmocka_unit_test_setup_teardown(test_without_effect_in_the_trainer, setup, teardown),
        cmocka_unit_test_setup_teardown(test_null_norm_is_no_clipping, setup, teardown),
        cmocka_unit_test_setup_teardown(test_own_file_with_arguments, setup, teardown),
        cmocka_unit_test_setup_teardown(test_set_arguments, setup, teardown),
        cmocka_unit_test_setup_teardown(test_warmup_beside_deepspeed, setup, teardown),
    };
    return cmocka_run_group_tests(tests, group_setup, group_teardown);
}
