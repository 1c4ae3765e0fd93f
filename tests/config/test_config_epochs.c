// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Epochs and shares of steps in files of the Trainer: what they become once the data is read.
#include "config/keys.h"
#include "config/run_file.h"
#include <math.h>

static int64_t steps_of(const char *text, int64_t sequences)
{
    mics_run *run = load_good(text);
    ASSERT_OK(mics_run_resolve(run, 1, 1));
    ASSERT_OK(mics_run_resolve_epochs(run, sequences));
    const int64_t steps = run->steps;
    mics_run_close(run);
    return steps;
}

static void test_epochs(void **state)
{
    (void)state;
#define EPOCHS "\"num_train_epochs\": 2, \"per_device_train_batch_size\": 4"
    assert_int_equal(steps_of(FOREIGN(EPOCHS), 10), 6); // 3 batches
    assert_int_equal(steps_of(FOREIGN(EPOCHS ", \"dataloader_drop_last\": true"), 10), 4);
    assert_int_equal(steps_of(FOREIGN(EPOCHS ", \"dataloader_drop_last\": true, "
                                             "\"gradient_accumulation_steps\": 2"),
                              14),
                     4); // 3 whole micro-batches are 2 steps
}

// When it saves and validates, and what it keeps.
static void test_strategies(void **state)
{
    (void)state;
    static const char save_key[] = "run.checkpoint_every", eval_key[] = "run.validate_every";
#define TRAINED "\"max_steps\": 2000, "
    check_value(FOREIGN("\"max_steps\": 2000"), save_key, "500");
    check_value(FOREIGN("\"max_steps\": 2000"), eval_key, "0");
    check_value(FOREIGN("\"max_steps\": 2000"), "run.keep_checkpoints", "0");
    check_value(FOREIGN(TRAINED "\"save_total_limit\": null"), "run.keep_checkpoints", "0");
    check_value(FOREIGN(TRAINED "\"save_strategy\": \"no\", \"save_steps\": 500"), save_key, "0");
    check_value(FOREIGN(TRAINED "\"save_strategy\": \"epoch\", \"save_steps\": 500"), save_key,
                "\"auto\"");
    check_value(FOREIGN(TRAINED "\"save_strategy\": \"best\", \"eval_strategy\": \"steps\""),
                "run.keep_best", "true");
    check_value(FOREIGN(TRAINED "\"eval_strategy\": \"steps\""), eval_key, "500");
    check_value(FOREIGN(TRAINED "\"eval_strategy\": \"steps\", \"logging_steps\": 20"), eval_key,
                "20");
    check_value(FOREIGN(TRAINED "\"evaluation_strategy\": \"steps\", \"eval_steps\": 0.1"),
                eval_key, "200");
    check_value(FOREIGN(TRAINED "\"eval_strategy\": \"no\", \"eval_steps\": 10"), eval_key, "0");
    check_value(FOREIGN(TRAINED "\"load_best_model_at_end\": true, \"eval_strategy\": \"steps\", "
                                "\"metric_for_best_model\": \"loss\""),
                "run.keep_best", "true");
    check_value(FOREIGN(TRAINED "\"early_stopping_patience\": 3"), "run.stop_after_no_improvement",
                "3");
    check_refused(FOREIGN(TRAINED "\"save_strategy\": \"often\""), MICS_ERR_INVALID,
                  "\"epoch\" or \"steps\"");
    check_refused(FOREIGN(TRAINED "\"load_best_model_at_end\": true, "
                                  "\"metric_for_best_model\": \"accuracy\""),
                  MICS_ERR_UNSUPPORTED, "eval_loss");
    check_refused(FOREIGN(TRAINED "\"save_strategy\": \"epoch\", \"run\": "
                                  "{\"checkpoint_every\": 100}"),
                  MICS_ERR_INVALID, "\"epoch\" contradicts run.checkpoint_every 100");
    check_value(FOREIGN(TRAINED "\"train_micro_batch_size_per_gpu\": 8, \"run\": "
                                "{\"checkpoint_every\": 1000000000000}"),
                save_key,
                "1000000000000"); // a number as others
    mics_run *run = load_good(FOREIGN("\"num_train_epochs\": 2, \"save_strategy\": \"epoch\", "
                                      "\"eval_strategy\": \"epoch\""));
    ASSERT_OK(mics_run_resolve(run, 1, 1));
    ASSERT_OK(mics_run_resolve_epochs(run, 80)); // 10 batches of 8
    assert_int_equal(run->checkpoint_every, 10);
    assert_int_equal(run->validate_every, 10);
    mics_run_close(run);
}

// What follows from a number of steps that is not known is not shown as one.
static void test_rows_of_unknown_steps(void **state)
{
    (void)state;
    static const char total[] = "scheduler.params.total_num_steps";
    static const char text[] = FOREIGN("\"num_train_epochs\": 2, \"warmup_ratio\": 0.1");
    check_value(text, total, "\"auto\"");
    mics_run *run = load_good(text);
    assert_null(find_row(run, "scheduler.params.warmup_num_steps").key);
    ASSERT_OK(mics_run_resolve(run, 1, 1));
    ASSERT_OK(mics_run_resolve_epochs(run, 80)); // 10 batches of 8
    assert_string_equal(find_row(run, total).value, "20");
    assert_string_equal(find_row(run, "scheduler.params.warmup_num_steps").value, "2");
    mics_run_close(run);
}

// A resumed run keeps no number of steps that its file says as a share.
static void test_resume_with_a_share(void **state)
{
    (void)state;
    mics_run *run = load_good(FOREIGN("\"max_steps\": 20, \"warmup_ratio\": 0.1"));
    ASSERT_OK(mics_run_keep(run, "stored",
                            "{\"scheduler\": {\"type\": \"linear\", \"params\": "
                            "{\"warmup_num_steps\": 2, \"warmup_ratio\": 0.1}}}"));
    assert_null(strstr(mics_run_kept_text(run), "warmup_num_steps"));
    assert_int_equal(run->lr.warmup_steps, 2);
    mics_run_close(run);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_epochs, setup, teardown),
        cmocka_unit_test_setup_teardown(test_strategies, setup, teardown),
        cmocka_unit_test_setup_teardown(test_rows_of_unknown_steps, setup, teardown),
        cmocka_unit_test_setup_teardown(test_resume_with_a_share, setup, teardown),
    };
    return cmocka_run_group_tests(tests, group_setup, group_teardown);
}
