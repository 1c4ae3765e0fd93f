// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Folders in run files: a model's, with its tokenizer, and one in the run file's own place.
#include "config/run_file.h"
#include <sys/stat.h>

// A model's folder brings its tokenizer along, and may stand for the run file.
static void test_model_folder(void **state)
{
    (void)state;
    static const char text[] =
        "{\"model\": {\"config\": \"hf\"}, \"data\": {\"train\": [\"a.txt\"]%s},"
        "\"run\": {\"steps\": 9}, \"train_micro_batch_size_per_gpu\": 1}";
    const char *const sets[] = {"data.train=[\"a.txt\"]", "run.steps=9"};
    char file[256];
    assert_int_equal(mkdir("hf", 0777), 0);
    write_file("hf/config.json", "{\"model_type\": \"gpt2\"}");
    snprintf(file, sizeof file, text, "");
    mics_run *run = load_good(file);
    check_row(run, "data.tokenizer", "\"bytes\"", "default");
    mics_run_close(run);
    write_file("hf/tokenizer.json", "{}");
    run = load_good(file);
    check_row(run, "data.tokenizer", "\"hf/tokenizer.json\"",
              "auto: that of model.config's folder");
    mics_run_close(run);
    snprintf(file, sizeof file, text, ", \"tokenizer\": \"bytes\"");
    run = load_good(file);
    check_row(run, "data.tokenizer", "\"bytes\"", "file");
    mics_run_close(run);
    ASSERT_OK(mics_run_load(memory, "hf/", sets, 2, &run));
    assert_string_equal(run->model_config, "hf/config.json");
    assert_string_equal(run->tokenizer, "hf/tokenizer.json");
    assert_string_equal(run->out, "runs/hf");
    assert_int_equal(mics_run_length(run, 512), 512);
    assert_int_equal(mics_run_length(run, 40960), 1024);
    mics_run_close(run);
    const char *const long_sets[] = {sets[0], sets[1], "data.sequence_length=4096"};
    ASSERT_OK(mics_run_load(memory, "hf", long_sets, 3, &run));
    assert_int_equal(mics_run_length(run, 40960), 4096);
    mics_run_close(run);
    snprintf(file, sizeof file, text, "");
    run = load_good(file); // a run file says what it means
    assert_int_equal(mics_run_length(run, 40960), 40960);
    mics_run_close(run);
    run = NULL;
    ASSERT_STATUS(MICS_ERR_FORMAT, mics_run_load(memory, "hf", NULL, 0, &run));
    ASSERT_SAID(&seen, "this is a model's configuration and no run file");
    unlink("hf/config.json");
    ASSERT_STATUS(MICS_ERR_INVALID, mics_run_load(memory, "hf", sets, 2, &run));
    ASSERT_SAID(&seen, "hf: is a folder without a config.json");
    unlink("hf/tokenizer.json");
    rmdir("hf");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_model_folder, setup, teardown),
    };
    return cmocka_run_group_tests(tests, group_setup, group_teardown);
}
