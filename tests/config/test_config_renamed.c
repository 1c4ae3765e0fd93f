// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Keys by the names that they had once: errors in a run file, which say what to write.
#include "config/keys.h"
#include "config/renamed.h"
#include "config/run_file.h"

#define RUN_OF(keys)                                                                               \
    "{\"model\": {\"config\": \"model.json\"}, \"data\": {\"train\": \"a\"},\n"                    \
    "\"train_batch_size\": 1, \"run\": {\"steps\": 1,\n" keys "}}"

// Each row of the list: the old name is no key, the new one is; and both ways of giving it.
static void test_every_row(void **state)
{
    (void)state;
    int32_t count = 0;
    const renamed_key *rows = mics_config_renamed(&count);
    write_file("run.json", RUN_PLAIN);
    for (int32_t i = 0; i < count; i++) {
        char set[CONFIG_PATH_BYTES + 16], part[2 * CONFIG_PATH_BYTES];
        const char *const sets[] = {set};
        mics_run *run = NULL;
        const bool gone = rows[i].form == RENAMED_GONE;
        assert_int_equal(mics_config_find(rows[i].old_path), -1);
        assert_int_equal(rows[i].new_path == NULL, gone);
        if (!gone)
            assert_true(mics_config_find(rows[i].new_path) >= 0);
        if (rows[i].form == RENAMED_SECTION)
            continue;
        snprintf(set, sizeof set, "%s=\"bf16\"", rows[i].old_path);
        ASSERT_STATUS(MICS_ERR_INVALID, mics_run_load(memory, "run.json", sets, 1, &run));
        if (gone)
            snprintf(part, sizeof part, "%s: is no key any more; leave it out", rows[i].old_path);
        else
            snprintf(part, sizeof part, "run.json, --set %s: is %s now: write --set %s=%s",
                     rows[i].old_path, rows[i].new_path, rows[i].new_path,
                     rows[i].form == RENAMED_BF16_SWITCH ? "true" : "\"bf16\"");
        ASSERT_SAID(&seen, part);
        snprintf(set, sizeof set, "%s=null", rows[i].old_path);
        ASSERT_OK(mics_run_load(memory, "run.json", sets, 1, &run));
        mics_run_close(run);
    }
}

static void test_lines(void **state)
{
    (void)state;
    check_refused(RUN_OF("\"seed\": 2,\n\"breadth\": 3"), MICS_ERR_INVALID,
                  "run.json:4: run.breadth: is run.layered_micro_steps now: write \"run\": "
                  "{\"layered_micro_steps\": 3}");
    check_refused(RUN_OF("\"wire\": {\"gather\": \"bf16\"}"), MICS_ERR_INVALID,
                  "run.json:3: run.wire.gather: is run.comm_dtype.params now: write \"run\": "
                  "{\"comm_dtype\": {\"params\": \"bf16\"}}; it is for links between nodes; inside "
                  "nodes: run.comm_dtype.bf16_intra_node");
    check_refused(RUN_OF("\"wire\": {\"gather_inside\": \"bf16\"}"), MICS_ERR_INVALID,
                  "run.wire.gather_inside: is run.comm_dtype.bf16_intra_node now: write \"run\": "
                  "{\"comm_dtype\": {\"bf16_intra_node\": true}}");
    check_refused(RUN_OF("\"wire\": {\"gather_inside\": \"fp32\"}"), MICS_ERR_INVALID,
                  "run.wire.gather_inside: is no key any more; leave it out; inside nodes");
    check_refused(RUN_OF("\"wire\": {}"), MICS_ERR_INVALID,
                  "run.wire: is run.comm_dtype now, and has other keys");
    check_refused(RUN_OF("\"wire\": 3"), MICS_ERR_INVALID, "run.wire: is run.comm_dtype now");
    check_refused(RUN_OF("\"wire\": {\"gather\": \"bf16\",\n\"reduce\": \"fp32\"},\n"
                         "\"whole_below\": 0, \"files_timeout_s\": 60"),
                  MICS_ERR_INVALID,
                  "run.json: 4 keys cannot be honoured: (1) line 3, run.wire.gather: is "
                  "run.comm_dtype.params now");
    assert_non_null(strstr(seen.line, "(2) line 4, run.wire.reduce: is run.comm_dtype.grads now"));
    assert_non_null(strstr(seen.line, "(3) line 5, run.whole_below: is "
                                      "run.param_persistence_threshold now: write \"run\": "
                                      "{\"param_persistence_threshold\": 0}"));
    assert_non_null(strstr(seen.line, "(4) line 5, run.files_timeout_s: is no key any more; "
                                      "leave it out; ranks"));
    // Other unknown keys still get the nearest name.
    check_refused(RUN_OF("\"layered_micro_step\": 3"), MICS_ERR_INVALID,
                  "unknown key; did you mean run.layered_micro_steps?");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_every_row, setup, teardown),
        cmocka_unit_test_setup_teardown(test_lines, setup, teardown),
    };
    return cmocka_run_group_tests(tests, group_setup, group_teardown);
}
