// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Keys by the names that they had once: errors in a run file, which say what to write.
#include "config/keys.h"
#include "config/run_file.h"

#define RUN_OF(keys)                                                                               \
    "{\"model\": {\"config\": \"model.json\"}, \"data\": {\"train\": \"a\"},\n"                    \
    "\"train_batch_size\": 1, \"run\": {\"steps\": 1,\n" keys "}}"

// Old names are no keys, and new ones are; both ways of giving them.
static void test_every_name(void **state)
{
    (void)state;
#define INTRA_KEY "run.comm_dtype.bf16_intra_node"
    static const struct {
        const char *old_path, *new_path, *value;
    } cases[] = {
        {"run.breadth", "run.layered_micro_steps", "\"bf16\""},
        {"run.whole_below", "run.param_persistence_threshold", "\"bf16\""},
        {"run.join_below", "run.coalesce_below", "\"bf16\""},
        {"run.time_products", "run.gemm_autotune", "\"bf16\""},
        {"run.files_timeout_s", NULL, NULL},
        {"run.wire.gather", "run.comm_dtype.params", "\"bf16\""},
        {"run.wire.reduce", "run.comm_dtype.grads", "\"bf16\""},
        {"run.wire.second_hop", "run.comm_dtype.boundary", "\"bf16\""},
        {"run.wire.gather_inside", INTRA_KEY, "true"},
        {"run.wire.reduce_inside", INTRA_KEY, "true"},
        {"run.wire.second_hop_inside", INTRA_KEY, "true"},
    };
    write_file("run.json", RUN_PLAIN);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *old_path = cases[i].old_path, *new_path = cases[i].new_path;
        char set[CONFIG_PATH_BYTES + 16], part[2 * CONFIG_PATH_BYTES];
        const char *const sets[] = {set};
        mics_run *run = NULL;
        assert_int_equal(mics_config_find(old_path), -1);
        snprintf(set, sizeof set, "%s=\"bf16\"", old_path);
        ASSERT_STATUS(MICS_ERR_INVALID, mics_run_load(memory, "run.json", sets, 1, &run));
        if (new_path == NULL) {
            snprintf(part, sizeof part, "%s: is no key any more; leave it out", old_path);
        } else {
            assert_true(mics_config_find(new_path) >= 0);
            snprintf(part, sizeof part, "run.json, --set %s: is %s now: write --set %s=%s",
                     old_path, new_path, new_path, cases[i].value);
        }
        ASSERT_SAID(&seen, part);
        snprintf(set, sizeof set, "%s=null", old_path);
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
                  "{\"comm_dtype\": {\"params\": \"bf16\"}}; it is for inter-node links; "
                  "intra-node: run.comm_dtype.bf16_intra_node");
    check_refused(RUN_OF("\"wire\": {\"gather_inside\": \"bf16\"}"), MICS_ERR_INVALID,
                  "run.wire.gather_inside: is run.comm_dtype.bf16_intra_node now: write \"run\": "
                  "{\"comm_dtype\": {\"bf16_intra_node\": true}}");
    check_refused(RUN_OF("\"wire\": {\"gather_inside\": \"fp32\"}"), MICS_ERR_INVALID,
                  "run.wire.gather_inside: is no key any more; leave it out; intra-node");
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
        cmocka_unit_test_setup_teardown(test_every_name, setup, teardown),
        cmocka_unit_test_setup_teardown(test_lines, setup, teardown),
    };
    return cmocka_run_group_tests(tests, group_setup, group_teardown);
}
