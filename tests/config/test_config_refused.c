// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Run files that are refused, and with which words: keys that are unknown or cannot be honoured, and hostile ones.
#include "config/example.h"
#include "config/keys.h"
#include "config/run_file.h"

typedef struct refusal {
    const char *more; // members of the run file
    mics_status status;
    const char *part;
} refusal;

static void check_refusals(const refusal *cases, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        char text[1024];
        snprintf(text, sizeof text, "{%s,\n\"train_micro_batch_size_per_gpu\": 4,\n%s}", RUN_BASE,
                 cases[i].more);
        check_refused(text, cases[i].status, cases[i].part);
    }
}
#define CHECK(cases) check_refusals(cases, sizeof(cases) / sizeof *(cases))

static void test_unknown_keys(void **state)
{
    (void)state;
    static const refusal cases[] = {
        {"\"optimzer\": {}", MICS_ERR_INVALID,
         "run.json:4: optimzer: unknown key; did you mean "
         "optimizer?"},
        {"\"zero_optimization\": {\n\"mics_shardsize\": 2}", MICS_ERR_INVALID,
         "run.json:5: zero_optimization.mics_shardsize: unknown key; did you mean "
         "zero_optimization.mics_shard_size?"},
        {"\"lr\": 2", MICS_ERR_INVALID, "did you mean optimizer.params.lr?"},
        {"\"sharding\": {\"something\": 2}", MICS_ERR_INVALID,
         "unknown key; known here: params, grads, optimizer"},
        {"\"optimizer\": {\"params\": {\"lr\": {\"x\": 1}}}", MICS_ERR_FORMAT,
         "optimizer.params.lr: must be a number, not an object"},
        {"\"\": 1", MICS_ERR_INVALID, "a key that is empty"},
        {"\"run.seed\": 1", MICS_ERR_INVALID, "holds a dot"},
        {"\"a\\u001b[31m\": 1", MICS_ERR_INVALID, "no known key does"},
        {"\"aaaaaaaaaabbbbbbbbbbaaaaaaaaaabbbbbbbbbbaaaaaaaaaabbbbbbbbbbaaaaaaaaaabb\": 1",
         MICS_ERR_INVALID, "longer than 64"},
    };
    CHECK(cases);
}

static void test_cannot_be_honoured(void **state)
{
    (void)state;
    static const refusal cases[] = {
        {"\"fp16\": {\"fp16_master_weights_and_grads\": true}", MICS_ERR_UNSUPPORTED,
         "fp16.fp16_master_weights_and_grads: cannot be honoured: master weights are fp32"},
        {"\"optimizer\": {\"type\": \"Lamb\"}", MICS_ERR_UNSUPPORTED,
         "or \"DeepSpeedCPUAdam\" or \"SGD\" or \"Lion\" or \"FusedLion\" or "
         "\"DeepSpeedCPULion\" or \"Muon\", not \"Lamb\"; no others are built"},
        {"\"optimizer\": {\"type\": \"SGD\", \"params\": {\"dampening\": 0.1}}",
         MICS_ERR_UNSUPPORTED, "dampening: cannot be honoured"},
        {"\"scheduler\": {\"type\": \"LRRangeTest\"}", MICS_ERR_UNSUPPORTED, "no others are built"},
        {"\"optimizer\": {\"params\": {\"adam_w_mode\": false, \"weight_decay\": 0.1}}",
         MICS_ERR_UNSUPPORTED, "use true, or weight_decay 0"},
        {"\"zero_optimization\": {\"zero_quantized_weights\": true}", MICS_ERR_UNSUPPORTED,
         "{\"comm_dtype\": {\"params\": \"bf16\"}} instead"},
        {"\"zero_optimization\": true", MICS_ERR_FORMAT, "must be an object, not true or false"},
        {"\"loss_type\": \"dft\"", MICS_ERR_UNSUPPORTED,
         "loss_type: must be \"nll\", which is cross-entropy, or of pairs"},
        {"\"fp16\": {\"loss_scale\": \"auto\"}", MICS_ERR_INVALID, "cannot be \"auto\""},
        {"\"zero_optimization\": {\"stage\": \"auto\"}", MICS_ERR_INVALID, "give an integer"},
        {"\"steps_per_print\": 5, \"zero_optimization\": {\"stage\": 4}", MICS_ERR_INVALID,
         "must be 0 to 3, not 4"},
    };
    CHECK(cases);
    check_refused("{\"model\": {\"config\": \"model.json\", \"dropout\": 0.1}, \"data\": "
                  "{\"train\": \"a\"}, \"run\": {\"steps\": 1}, \"train_batch_size\": 1}",
                  MICS_ERR_UNSUPPORTED,
                  "model.dropout: must be 0, not 0.1; dropouts are those of the model's config");
    check_refused("{\"model\": {\"config\": \"model.json\"}, \"data\": {\"train\": \"a\"}, "
                  "\"run\": {\"steps\": 1, \"device\": \"tpu\"}, \"train_batch_size\": 1}",
                  MICS_ERR_UNSUPPORTED,
                  "run.device: must be \"auto\" or \"cpu\" or \"cuda\", not \"tpu\"");
    check_refused("{\"model\": {\"config\": \"model.json\"}, \"data\": {\"train\": \"a\"}, "
                  "\"run\": {\"steps\": 1, \"precision\": \"fp8\"}, \"train_batch_size\": 1}",
                  MICS_ERR_UNSUPPORTED, "no other precision is built");
}

// What a file for another engine has is told in one line, not in one error after the other.
static void test_all_refusals_in_one_line(void **state)
{
    (void)state;
    check_refused(RUN_WITH("\"amp\": {\"enabled\": true},\n"
                           "\"zero_optimization\": {\"stage\": 3,\n"
                           "  \"zero_quantized_weights\": true},\n"
                           "\"fp16\": {\"loss_scale\": \"auto\"}, \"sharding\": \"x\""),
                  MICS_ERR_FORMAT, "sharding: must be an object, as in");
    check_refused(RUN_WITH("\"amp\": {\"enabled\": true},\n"
                           "\"zero_optimization\": {\"stage\": 3,\n"
                           "  \"zero_quantized_weights\": true},\n"
                           "\"fp16\": {\"loss_scale\": \"auto\"}"),
                  MICS_ERR_UNSUPPORTED,
                  "run.json: 3 keys cannot be honoured: (1) line 4, amp: "
                  "write bf16.enabled or fp16.enabled instead; (2) line 6, "
                  "zero_optimization.zero_quantized_weights: parameters travel as fp32 or bf16; "
                  "write \"run\": {\"comm_dtype\": {\"params\": \"bf16\"}} instead; (3) line 7, "
                  "fp16.loss_scale: cannot be \"auto\": nothing here could say what it should be; "
                  "give a number");
    check_refused(RUN_WITH("\"zero_optimization\": \"auto\", \"optimizer\": \"auto\""),
                  MICS_ERR_INVALID, "2 keys cannot be honoured");
    // more than the line holds
    static char text[32768];
    size_t used = (size_t)snprintf(text, sizeof text, "{" RUN_BASE);
    foreign_key row = mics_config_foreign(0);
    for (int32_t i = 0; row.path != NULL; row = mics_config_foreign(++i)) {
        if (row.only != NULL && strchr(row.path, '.') == NULL)
            used += (size_t)snprintf(text + used, sizeof text - used, ", \"%s\": [%d]", row.path,
                                     (int)i + 1);
    }
    snprintf(text + used, sizeof text - used, "}");
    check_refused(text, MICS_ERR_UNSUPPORTED, "keys cannot be honoured: (1) line 2, ");
}

static void test_scheduler_refusals(void **state)
{
    (void)state;
    static const refusal cases[] = {
        {"\"scheduler\": {}", MICS_ERR_INVALID, "scheduler.type: is missing"},
        {"\"scheduler\": {\"params\": {\"warmup_num_steps\": 5}}", MICS_ERR_INVALID,
         "scheduler.type: is missing"},
        {"\"scheduler\": {\"type\": \"WarmupLR\", \"params\": {\"cos_min_ratio\": 0.1}}",
         MICS_ERR_INVALID, "WarmupLR has no cos_min_ratio"},
        {"\"scheduler\": {\"type\": \"WarmupLR\", \"params\": {\"warmup_num_steps\": 0}}",
         MICS_ERR_INVALID, "must be at least 1 for WarmupLR"},
        {"\"scheduler\": {\"type\": \"WSD\"}", MICS_ERR_INVALID,
         "1000 + decay_num_steps 10 are more than total_num_steps 100"},
        {"\"scheduler\": {\"type\": \"WarmupLR\", \"params\": {\"warmup_min_lr\": 1}}",
         MICS_ERR_INVALID, "1 is above the learning rate after the warm-up, 0.001"},
        {"\"scheduler\": {\"type\": \"WarmupLR\", \"params\": {\"warmup_type\": \"cubic\"}}",
         MICS_ERR_UNSUPPORTED,
         "must be \"log\" or \"linear\" or \"cosine\" or \"1-sqrt\", not \"cubic\""},
        {"\"scheduler\": {\"type\": \"WarmupLR\", \"params\": {\"last_batch_iteration\": 5}}",
         MICS_ERR_UNSUPPORTED, "must be -1, not 5"},
    };
    CHECK(cases);
}

static void test_hostile_values(void **state)
{
    (void)state;
    static const refusal cases[] = {
        {"\"gradient_clipping\": -1", MICS_ERR_INVALID, "must be 0 or more, not -1"},
        {"\"gradient_clipping\": 1e999", MICS_ERR_FORMAT, "run.json:4:"},
        {"\"gradient_clipping\": NaN", MICS_ERR_FORMAT,
         "run.json:4: gradient_clipping: must be a number"},
        {"\"gradient_clipping\": Infinity", MICS_ERR_FORMAT,
         "run.json:4: gradient_clipping: must be a number"},
        {"\"gradient_accumulation_steps\": 99999999999999999999", MICS_ERR_INVALID, "run.json:4:"},
        {"\"gradient_accumulation_steps\": 1.5", MICS_ERR_INVALID,
         "must be a whole number, not "
         "1.5"},
        {"\"gradient_accumulation_steps\": 0", MICS_ERR_INVALID, "must be 1 to 1048576, not 0"},
        {"\"gradient_accumulation_steps\": 1e300", MICS_ERR_INVALID, "must be a whole number"},
        {"\"gradient_accumulation_steps\": 9223372036854775807", MICS_ERR_INVALID, "must be 1 to"},
        {"\"gradient_accumulation_steps\": 2, \"gradient_accumulation_steps\": 3", MICS_ERR_FORMAT,
         "duplicate"},
        {"\"optimizer\": []", MICS_ERR_FORMAT, "optimizer: must be an object, not an array"},
        {"\"optimizer\": {\"params\": {\"betas\": [0.9]}}", MICS_ERR_FORMAT, "two numbers"},
        {"\"optimizer\": {\"params\": {\"betas\": [0.9, \"x\"]}}", MICS_ERR_FORMAT, "two numbers"},
        {"\"optimizer\": {\"params\": {\"betas\": [0.9, 1.0]}}", MICS_ERR_INVALID,
         "two numbers from 0 to 0.9999999, not [0.9, 1]"},
        {"\"optimizer\": {\"params\": {\"betas\": {\"a\": 1, \"b\": 2}}}", MICS_ERR_FORMAT,
         "two numbers"},
        {"\"optimizer\": {\"params\": {\"eps\": 0}}", MICS_ERR_INVALID, "eps: must be 1e-30 to 1"},
        {"\"optimizer\": {\"type\": 3}", MICS_ERR_FORMAT, "must be a string, not an integer"},
        {"\"optimizer\": {\"type\": \"\"}", MICS_ERR_UNSUPPORTED, "must be \"Adam\""},
        {"\"sharding\": {\"params\": -2}", MICS_ERR_INVALID, "must be 1 to 1048576, not -2"},
        {"\"bf16\": {\"enabled\": 0}", MICS_ERR_FORMAT, "must be true or false, not an integer"},
    };
    CHECK(cases);
}

static void test_hostile_files(void **state)
{
    (void)state;
    char *deep = malloc(200001);
    assert_non_null(deep);
    memset(deep, '[', 200000);
    deep[200000] = '\0';
    check_refused(deep, MICS_ERR_FORMAT, "nested deeper than 64");
    for (size_t i = 0; i < 200000; i++)
        deep[i] = ' ';
    check_refused(deep, MICS_ERR_FORMAT, "run.json:1:");
    free(deep);
    check_refused("", MICS_ERR_FORMAT, "run.json:1:");
    check_refused("[1, 2]", MICS_ERR_FORMAT, "a run file must be an object, not an array");
    check_refused("{}", MICS_ERR_INVALID, "run.json: model.config: is missing: a Hugging Face");
    check_refused("{\"model\": {\"config\": \"\"}}", MICS_ERR_INVALID,
                  "model.config: must be a text");
    check_refused("{\"data\": {\"train\": []}}", MICS_ERR_INVALID, "must name 1 to 65536 files");
    check_refused("{\"data\": {\"train\": [\"a\", 3]}}", MICS_ERR_FORMAT, "number 2 is an integer");
    check_refused("{\"data\": {\"train\": [\"\"]}}", MICS_ERR_FORMAT,
                  "number 1 is an empty string");
    check_refused("{\"run\": {\"memory_limit\": \"lots\"}}", MICS_ERR_INVALID,
                  "must be a number of bytes or as \"8GiB\", not \"lots\"");
    check_refused("{\"run\": {\"comm_timeout_s\": 0}}", MICS_ERR_INVALID, "must be 0.1 to 1000000");
    check_refused("{\"run\": {\"validation_batches\": -1}}", MICS_ERR_INVALID, "must be 0 to");
    check_refused("{\"run\": {\"trace_steps\": 0}}", MICS_ERR_INVALID, "must be 1 to 1000");
    check_refused("{\"run\": {\"seed\": -1}}", MICS_ERR_INVALID, "must be 0 or more, not -1");
    mics_run *run = NULL;
    ASSERT_STATUS(MICS_ERR_IO, mics_run_load(memory, "absent.json", NULL, 0, &run));
    ASSERT_SAID(&seen, "absent.json");
    ASSERT_STATUS(MICS_ERR_INVALID, mics_run_load(memory, ".", NULL, 0, &run));
    ASSERT_SAID(&seen, "is a folder");
}

// A file that ends early at any byte is one clear line.
static void test_truncated(void **state)
{
    (void)state;
    char text[sizeof example];
    for (size_t bytes = 0; bytes + 3 < sizeof example; bytes++) { // the last two are "}" and "\n"
        mics_run *run = NULL;
        memcpy(text, example, bytes);
        text[bytes] = '\0';
        ASSERT_STATUS(MICS_ERR_FORMAT, load(text, &run));
        ASSERT_SAID(&seen, "run.json:");
    }
}

// Every key, honoured or not; NULL past the end.
static const char *path_at(int32_t index)
{
    const int32_t own = mics_config_key_count();
    return index < own ? mics_config_key(index)->path : mics_config_foreign(index - own).path;
}

// Every key given a value of every JSON type: one clear line or a good run, never a crash.
static void test_every_key_with_every_type(void **state)
{
    (void)state;
    static const char *const values[] = {
        "null", "true",  "false",      "-1",       "0",
        "1e17", "0.5",   "\"\"",       "\"auto\"", "\"x\"",
        "[]",   "[[1]]", "[0.1, 0.2]", "{}",       "{\"enabled\": true}"};
    write_file("run.json", RUN_PLAIN);
    const char *path = NULL;
    for (int32_t i = 0; (path = path_at(i)) != NULL; i++) {
        for (size_t j = 0; j < sizeof values / sizeof *values; j++) {
            char set[256];
            const char *sets[] = {set};
            mics_run *run = NULL;
            snprintf(set, sizeof set, "%s=%s", path, values[j]);
            seen.errors = 0;
            mics_status status = mics_run_load(memory, "run.json", sets, 1, &run);
            if (status == MICS_OK)
                status = mics_run_resolve(run, 4, 2);
            if (seen.errors != (status == MICS_OK ? 0 : 1))
                fail_msg("%s: %d error lines, last %s", set, seen.errors, seen.line);
            mics_run_close(run);
        }
    }
    seen.errors = 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_unknown_keys, setup, teardown),
        cmocka_unit_test_setup_teardown(test_cannot_be_honoured, setup, teardown),
        cmocka_unit_test_setup_teardown(test_all_refusals_in_one_line, setup, teardown),
        cmocka_unit_test_setup_teardown(test_scheduler_refusals, setup, teardown),
        cmocka_unit_test_setup_teardown(test_hostile_values, setup, teardown),
        cmocka_unit_test_setup_teardown(test_hostile_files, setup, teardown),
        cmocka_unit_test_setup_teardown(test_truncated, setup, teardown),
        cmocka_unit_test_setup_teardown(test_every_key_with_every_type, setup, teardown),
    };
    return cmocka_run_group_tests(tests, group_setup, group_teardown);
}
