// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Files of programs around the Trainer: which one a file is for, and the defaults that it has there.
#include "base/capture.h"
#include "config/keys.h"
#include "config/run_file.h"

#define TRL(keys) FOREIGN("\"max_steps\": 9, \"packing\": true, " keys)
#define CLM(keys) FOREIGN("\"max_steps\": 9, \"block_size\": 32, " keys)

static void test_trl(void **state)
{
    (void)state;
    check_value(TRL("\"max_length\": 32"), "optimizer.params.lr", "2e-05");
    check_value(TRL("\"max_length\": 32"), "run.log_every", "10");
    check_value(TRL("\"max_length\": 32"), "bf16.enabled", "true");
    check_value(TRL("\"max_length\": 32"), "run.recompute", "true");
    check_value(TRL("\"max_length\": 32"), "data.add_special_tokens", "true");
    // What the file says goes before.
    check_value(TRL("\"learning_rate\": 1e-4"), "optimizer.params.lr", "0.0001");
    check_value(TRL("\"logging_steps\": 3"), "run.log_every", "3");
    check_value(TRL("\"bf16\": false"), "bf16.enabled", "false");
    check_value(TRL("\"gradient_checkpointing\": false"), "run.recompute", "false");
}

static void test_run_clm(void **state)
{
    (void)state;
    check_value(CLM("\"seed\": 1"), "optimizer.params.lr", "5e-05");
    check_value(CLM("\"seed\": 1"), "bf16.enabled", "false");
    check_value(CLM("\"seed\": 1"), "run.recompute", "false");
    check_value(CLM("\"seed\": 1"), "data.add_special_tokens", "true");
    // TRL's key stands beside it.
    check_value(CLM("\"packing\": true"), "optimizer.params.lr", "2e-05");
}

static void test_trainer(void **state)
{
    (void)state;
    check_value(FOREIGN("\"max_steps\": 9"), "optimizer.params.lr", "5e-05");
    check_value(FOREIGN("\"max_steps\": 9"), "data.add_special_tokens", "false");
    // An encoder's script has a key that TRL's used to have.
    check_value(FOREIGN("\"max_steps\": 9, \"max_seq_length\": 32, \"mlm_probability\": 0.15"),
                "optimizer.params.lr", "5e-05");
    check_value(FOREIGN("\"max_steps\": 9, \"max_seq_length\": 32"), "optimizer.params.lr",
                "5e-05");
}

static void test_axolotl(void **state)
{
    (void)state;
    check_value(
        FOREIGN("\"sequence_len\": 64, \"optimizer\": \"adamw_8bit\", \"learning_rate\": 1e-4"),
        "optimizer.params.state_dtype", "\"8bit\"");
    check_value(FOREIGN("\"sequence_len\": 64, \"learning_rate\": 1e-4"), "data.sequence_length",
                "64");
    check_value(FOREIGN("\"num_epochs\": 2, \"learning_rate\": 1e-4"), "num_train_epochs", "2");
    check_value(FOREIGN("\"sequence_len\": 64, \"learning_rate\": 1e-4"), "num_train_epochs", "1");
    check_value(FOREIGN("\"sequence_len\": 64, \"max_steps\": 9"), "scheduler.type", "\"cosine\"");
    check_value(FOREIGN("\"sequence_len\": 64, \"max_steps\": 9, \"lr_scheduler\": \"linear\""),
                "scheduler.type", "\"linear\"");
    check_value(FOREIGN("\"val_set_size\": 0, \"max_steps\": 9"), "run.validation_batches", "0");
    check_refused(FOREIGN("\"val_set_size\": 0.1, \"max_steps\": 9"), MICS_ERR_UNSUPPORTED,
                  "must be 0.05");
    check_refused(FOREIGN("\"sequence_len\": 64, \"max_steps\": 9, \"adapter\": \"lora\""),
                  MICS_ERR_UNSUPPORTED, "all parameters are trained");
    check_refused(FOREIGN("\"sequence_len\": 64, \"max_steps\": 9, \"sample_packing\": false"),
                  MICS_ERR_UNSUPPORTED, "samples are cut from one stream of tokens");
}

static void test_llama_factory(void **state)
{
    (void)state;
    check_value(FOREIGN("\"stage\": \"pt\", \"cutoff_len\": 64, \"max_steps\": 9"),
                "data.sequence_length", "64");
    check_refused(FOREIGN("\"stage\": \"sft\", \"max_steps\": 9"), MICS_ERR_UNSUPPORTED,
                  "use \"pt\"");
    check_refused(FOREIGN("\"finetuning_type\": \"lora\", \"max_steps\": 9"), MICS_ERR_UNSUPPORTED,
                  "use \"full\"");
}

static void check_text(const char *text, const char *part)
{
    mics_run *run = load_good(text);
    if (strstr(mics_run_program_text(run), part) == NULL)
        fail_msg("\"%s\" is not said, but \"%s\"", part, mics_run_program_text(run));
    mics_run_close(run);
}

static void test_says_which(void **state)
{
    (void)state;
    check_text(TRL("\"seed\": 1"), "is taken as a file of TRL's SFTConfig, which has packing: ");
    check_text(TRL("\"block_size\": 32"), "which has packing (though not block_size): ");
    check_text(FOREIGN("\"max_steps\": 9, \"max_length\": 32"), "but for packing");
    check_text(FOREIGN("\"max_steps\": 9, \"sequence_len\": 32"), "but for sample_packing");
    check_text(CLM("\"seed\": 1"), "is taken as a file of run_clm.py, which has block_size");
    check_text(FOREIGN("\"max_steps\": 9"),
               "leaves learning_rate and bf16 to the program that it is for");
    check_text(FOREIGN("\"max_steps\": 9, \"learning_rate\": 1e-4"), "leaves bf16 to the program");
    mics_run *run = load_good(FOREIGN("\"max_steps\": 9, \"learning_rate\": 1e-4, \"bf16\": true"));
    assert_string_equal(mics_run_program_text(run), "");
    mics_run_close(run);
}

// What a program takes at most, for a model with more positions and for one with fewer.
static void test_length(void **state)
{
    (void)state;
    mics_run *run = load_good(FOREIGN("\"max_steps\": 9, \"packing\": true"));
    assert_int_equal(mics_run_length(run, 131072), 1024);
    assert_int_equal(mics_run_length(run, 64), 64);
    mics_run_close(run);
    run = load_good(FOREIGN("\"max_steps\": 9, \"packing\": true, \"max_length\": null"));
    assert_int_equal(mics_run_length(run, 131072), 131072);
    mics_run_close(run);
    run = load_good(FOREIGN("\"max_steps\": 9, \"packing\": true, \"max_length\": 32"));
    assert_int_equal(mics_run_length(run, 131072), 32);
    mics_run_close(run);
    run = load_good(FOREIGN("\"max_steps\": 9"));
    assert_int_equal(mics_run_length(run, 131072), 131072);
    mics_run_close(run);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_trl, setup, teardown),
        cmocka_unit_test_setup_teardown(test_run_clm, setup, teardown),
        cmocka_unit_test_setup_teardown(test_trainer, setup, teardown),
        cmocka_unit_test_setup_teardown(test_axolotl, setup, teardown),
        cmocka_unit_test_setup_teardown(test_llama_factory, setup, teardown),
        cmocka_unit_test_setup_teardown(test_says_which, setup, teardown),
        cmocka_unit_test_setup_teardown(test_length, setup, teardown),
    };
    return cmocka_run_group_tests(tests, group_setup, group_teardown);
}
