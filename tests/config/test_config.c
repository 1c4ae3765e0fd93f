// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Run files: what is read, what it means, and what explain shows.
#include "config/example.h"
#include "config/keys.h"
#include "config/run_file.h"
#include <sys/stat.h>

// ---- reading ----

static void test_reads_the_example(void **state)
{
    (void)state;
    mics_run *run = load_good(example);
    assert_string_equal(run->model_config, "model.json");
    assert_string_equal(run->model_init, "random");
    assert_true(run->ignore_dropout);
    assert_int_equal(run->train_count, 2);
    assert_string_equal(run->train[1], "b.bin");
    assert_int_equal(run->validation_count, 1);
    assert_string_equal(run->validation[0], "v.txt");
    assert_string_equal(run->tokenizer, "bytes");
    assert_int_equal(run->sequence_length, 256);
    assert_int_equal(run->steps, 200);
    assert_int_equal(run->seed, 7);
    assert_string_equal(run->out, "runs/x");
    assert_int_equal(run->checkpoint_every, 100);
    assert_int_equal(run->memory_limit_bytes, INT64_C(2) << 30);
    assert_true(mics_recomputes(run->recompute));
    assert_int_equal(run->threads, 2);
    assert_true(run->optimizer.settings[0] == 0.9 && run->optimizer.settings[1] == 0.95 &&
                run->optimizer.settings[2] == 1e-8);
    assert_true(run->optimizer.weight_decay == 0.1 && run->clip == 1.0);
    assert_int_equal(run->lr.kind, MICS_LR_WARMUP_COSINE);
    assert_int_equal(run->lr.warmup, MICS_WARMUP_LOG);
    assert_true(run->lr.peak == 3e-4 && run->lr.end_ratio == 1e-4);
    assert_int_equal(run->lr.warmup_steps, 20);
    assert_int_equal(run->lr.total_steps, 200);
    ASSERT_OK(mics_run_resolve(run, 4, 2));
    assert_int_equal(run->sharding.params, 2);
    mics_run_close(run);
}

static void test_defaults(void **state)
{
    (void)state;
    mics_run *run = load_good(RUN_PLAIN);
    assert_string_equal(run->model_init, "random");
    assert_false(run->ignore_dropout);
    assert_int_equal(run->validation_count, 0);
    assert_string_equal(run->tokenizer, "bytes");
    assert_int_equal(run->sequence_length, 0);
    assert_int_equal(run->seed, 1);
    assert_string_equal(run->out, "runs/run");
    assert_int_equal(run->checkpoint_every, 0);
    assert_int_equal(run->keep_checkpoints, 2);
    assert_int_equal(run->validate_every, 0);
    assert_int_equal(run->validation_batches, 8);
    assert_int_equal(run->log_every, 0);
    assert_int_equal(run->trace_step, 0);
    assert_int_equal(run->trace_steps, 1);
    assert_true(run->comm_timeout_s == 300.0);
    assert_int_equal(run->memory_limit_bytes, 0);
    assert_int_equal(run->threads, 0);
    assert_int_equal(run->prefetch, 1);
    assert_true(run->prefetch_auto);
    assert_false(mics_recomputes(run->recompute));
    assert_true(run->optimizer.settings[0] == 0.9 && run->optimizer.settings[1] == 0.999 &&
                run->optimizer.settings[2] == 1e-8);
    assert_true(run->optimizer.weight_decay == 0.0 && run->clip == 0.0);
    assert_int_equal(run->lr.kind, MICS_LR_CONSTANT);
    assert_true(run->lr.peak == 1e-3);
    mics_run_close(run);
}

static void test_recompute(void **state)
{
    (void)state;
    static const struct {
        const char *set, *shown;
        mics_recompute is;
        bool open;
    } cases[] = {
        {"true", "true", {MICS_RECOMPUTE_ALL, false, false, false}, false},
        {"false", "false", {0, false, false, false}, false},
        {"12", "12", {12, false, false, false}, true},
        {"first 12", "\"first 12\"", {12, false, false, false}, false},
        {"last 3", "\"last 3\"", {3, true, false, false}, false},
        {"attention", "\"attention\"", {0, false, true, false}, false},
        {"mlp+7", "\"mlp+7\"", {7, false, false, true}, true},
        {"attention+mlp+last 7", "\"attention+mlp+last 7\"", {7, true, true, true}, false},
    };
    static const char *const wrong[] = {"foo",     "mlp+attention", "last", "12 layers", "-1",
                                        "2.5",     "first 0",       "mlp+", "1e30",      "[1]",
                                        "first+3", "last 3+mlp",    "0"};
    char set[64];
    const char *const sets[] = {set};
    mics_run *run = NULL;
    write_file("run.json", RUN_PLAIN);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        snprintf(set, sizeof set, "run.recompute=%s", cases[i].set);
        ASSERT_OK(mics_run_load(memory, "run.json", sets, 1, &run));
        assert_true(mics_recompute_is(run->recompute, cases[i].is));
        assert_int_equal(run->recompute_open, cases[i].open);
        check_row(run, "run.recompute", cases[i].shown, "--set");
        mics_run_close(run);
    }
    snprintf(set, sizeof set, "run.recompute=auto");
    ASSERT_OK(mics_run_load(memory, "run.json", sets, 1, &run));
    ASSERT_OK(mics_run_resolve(run, 4, 1));
    assert_true(run->recompute_auto && !run->batch_auto);
    check_row(run, "run.recompute", "false", "auto: the fastest that fits");
    mics_run_close(run);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        snprintf(set, sizeof set, "run.recompute=%s", wrong[i]);
        ASSERT_STATUS(MICS_ERR_INVALID, mics_run_load(memory, "run.json", sets, 1, &run));
    }
}

static void test_sets(void **state)
{
    (void)state;
    static const char *const sets[] = {"run.steps=7",
                                       "run.out=2024",
                                       "optimizer.params.lr=1e-2",
                                       "data.train=[\"x.txt\", \"y.txt\"]",
                                       "data.tokenizer=a \"b\" \\c.json",
                                       "run.recompute=true",
                                       "sharding={\"params\": 2}"};
    mics_run *run = NULL;
    write_file("run.json", RUN_PLAIN);
    ASSERT_OK(mics_run_load(memory, "run.json", sets, 7, &run));
    ASSERT_OK(mics_run_resolve(run, 4, 1));
    assert_int_equal(run->steps, 7);
    assert_string_equal(run->out, "2024");
    assert_true(run->lr.peak == 1e-2);
    assert_int_equal(run->train_count, 2);
    assert_string_equal(run->tokenizer, "a \"b\" \\c.json");
    assert_true(mics_recomputes(run->recompute));
    check_row(run, "run.steps", "7", "--set");
    check_row(run, "run.out", "\"2024\"", "--set");
    check_row(run, "data.train", "[\"x.txt\", \"y.txt\"]", "--set");
    check_row(run, "sharding.params", "2", "--set");
    check_row(run, "train_micro_batch_size_per_gpu", "4", "file");
    mics_run_close(run);
}

// null takes a key away, whether the file or --set says it.
static void test_null_is_absent(void **state)
{
    (void)state;
    static const char *const sets[] = {"zero_optimization=null", "scheduler=null",
                                       "train_batch_size=null",
                                       "sharding={\"params\": 4, \"grads\": null}"};
    mics_run *run = NULL;
    write_file("run.json",
               RUN_WITH("\"zero_optimization\": {\"stage\": 3}, \"train_batch_size\": 64,\n"
                        "\"scheduler\": {\"type\": \"WarmupLR\"}, \"optimizer\": null"));
    ASSERT_OK(mics_run_load(memory, "run.json", sets, 4, &run));
    ASSERT_OK(mics_run_resolve(run, 4, 1));
    assert_int_equal(run->lr.kind, MICS_LR_CONSTANT);
    assert_int_equal(run->global_batch, 16);
    check_row(run, "sharding.params", "4", "--set");
    check_row(run, "sharding.grads", "4", "auto: as sharding.params");
    assert_null(find_row(run, "zero_optimization.stage").key);
    mics_run_close(run);
    ASSERT_STATUS(MICS_ERR_INVALID, mics_run_load(memory, "run.json", &sets[3], 1, &run));
    ASSERT_SAID(&seen, "leave one out, as with --set zero_optimization=null");
    check_refused(RUN_WITH("\"nonsense\": null"), MICS_ERR_INVALID, "unknown key");
    static const char *const missing[] = {"run.steps=null"};
    write_file("run.json", RUN_PLAIN);
    ASSERT_STATUS(MICS_ERR_INVALID, mics_run_load(memory, "run.json", missing, 1, &run));
    ASSERT_SAID(&seen, "run.steps: is missing");
}

static void test_bad_sets(void **state)
{
    (void)state;
    static const struct {
        const char *set, *part;
    } cases[] = {
        {"run.steps", "--set run.steps: must be KEY=VALUE"},
        {"=3", "must be KEY=VALUE"},
        {"run.steps=many", "--set run.steps: must be an integer, not a string"},
        {"run.stops=3", "--set run.stops: unknown key; did you mean run.steps?"},
        {"run=3", "run: must be an object, not an integer"},
        {"run.steps.more=3", "would lie in an integer"},
        {"run..steps=3", "the path needs 1 to 64 keys"},
    };
    write_file("run.json", RUN_PLAIN);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        mics_run *run = NULL;
        if (mics_run_load(memory, "run.json", &cases[i].set, 1, &run) == MICS_OK)
            fail_msg("%s was taken", cases[i].set);
        ASSERT_SAID(&seen, cases[i].part);
    }
}

// ---- meaning ----

static void test_schedulers(void **state)
{
    (void)state;
    mics_run *run =
        load_good(RUN_WITH("\"optimizer\": {\"params\": {\"lr\": 0.5}}, \"scheduler\": {\"type\": "
                           "\"WarmupLR\", \"params\": {\"warmup_num_steps\": 10, "
                           "\"warmup_type\": \"linear\", \"warmup_min_lr\": 0.1}}"));
    assert_int_equal(run->lr.kind, MICS_LR_WARMUP);
    assert_int_equal(run->lr.warmup, MICS_WARMUP_LINEAR);
    assert_true(run->lr.start == 0.1 && run->lr.peak == 0.5);
    mics_run_close(run);
    run =
        load_good(RUN_WITH("\"optimizer\": {\"params\": {\"lr\": 0.5}}, \"scheduler\": {\"type\": "
                           "\"warmupdecaylr\", \"params\": {\"warmup_max_lr\": 0.25, "
                           "\"total_num_steps\": \"auto\"}}"));
    assert_int_equal(run->lr.kind, MICS_LR_WARMUP_DECAY);
    assert_int_equal(run->lr.warmup_steps, 1000);
    assert_int_equal(run->lr.total_steps, 100); // run.steps
    assert_true(run->lr.peak == 0.25);
    mics_run_close(run);
    run = load_good(RUN_WITH("\"scheduler\": {\"type\": \"WarmupDecayLR\"}"));
    assert_true(run->lr.peak == 1e-3);
    mics_run_close(run);
    // DeepSpeed's default, whatever the optimizer's rate; "auto" is that rate.
    run =
        load_good(RUN_WITH("\"optimizer\": {\"params\": {\"lr\": 0.5}}, \"scheduler\": {\"type\": "
                           "\"WarmupDecayLR\"}"));
    assert_true(run->lr.peak == 1e-3);
    check_row(run, "scheduler.params.warmup_max_lr", "0.001", "default");
    mics_run_close(run);
    run =
        load_good(RUN_WITH("\"optimizer\": {\"params\": {\"lr\": 0.5}}, \"scheduler\": {\"type\": "
                           "\"WarmupDecayLR\", \"params\": {\"warmup_max_lr\": \"auto\"}}"));
    assert_true(run->lr.peak == 0.5);
    mics_run_close(run);
    run =
        load_good(RUN_WITH("\"scheduler\": {\"type\": \"WSD\", \"params\": {\"warmup_num_steps\": "
                           "10, \"min_ratio\": 0.1}}"));
    assert_int_equal(run->lr.kind, MICS_LR_WSD);
    assert_int_equal(run->lr.decay_steps, 10); // a tenth of run.steps
    assert_true(run->lr.end_ratio == 0.1);
    mics_run_close(run);
}

// A file such as Hugging Face's documentation gives for ZeRO-3.
static void test_takes_deepspeed_files(void **state)
{
    (void)state;
    mics_run *run = load_good(RUN_WITH(
        "\"fp16\": {\"enabled\": \"auto\", \"loss_scale\": 0, \"loss_scale_window\": 1000,\n"
        "  \"initial_scale_power\": 16, \"hysteresis\": 2, \"min_loss_scale\": 1},\n"
        "\"bf16\": {\"enabled\": \"auto\"},\n"
        "\"optimizer\": {\"type\": \"FusedAdam\", \"params\": {\"lr\": 3e-5, \"weight_decay\": "
        "3e-7}},\n"
        "\"zero_optimization\": {\"stage\": 3,\n"
        "  \"offload_optimizer\": {\"device\": \"none\", \"pin_memory\": true},\n"
        "  \"offload_param\": {\"device\": \"none\"}, \"overlap_comm\": false,\n"
        "  \"contiguous_gradients\": true, \"sub_group_size\": 1e9,\n"
        "  \"reduce_bucket_size\": \"auto\", \"stage3_prefetch_bucket_size\": 5e8,\n"
        "  \"stage3_max_live_parameters\": 1e9, \"stage3_max_reuse_distance\": 1e9,\n"
        "  \"stage3_gather_16bit_weights_on_model_save\": true},\n"
        "\"steps_per_print\": 50, \"wall_clock_breakdown\": true, \"dump_state\": true,\n"
        "\"flops_profiler\": {\"enabled\": false, \"profile_step\": 1},\n"
        "\"zero_allow_untested_optimizer\": true"));
    ASSERT_OK(mics_run_resolve(run, 4, 1));
    assert_int_equal(run->prefetch, 0);
    assert_false(run->prefetch_auto);
    assert_int_equal(run->log_every, 50);
    check_row(run, "run.prefetch", "0", "auto: zero_optimization.overlap_comm is false");
    check_row(run, "run.log_every", "50", "auto: steps_per_print");
    check_row(run, "fp16.enabled", "false", "auto: as run.precision");
    check_row(run, "bf16.enabled", "false", "auto: as run.precision");
    check_row(run, "zero_optimization.stage3_prefetch_bucket_size", "5e+08", "file");
    check_row(run, "zero_optimization.reduce_bucket_size", "\"auto\"", "auto: its default");
    assert_true(find_row(run, "zero_optimization.sub_group_size").hint);
    assert_false(find_row(run, "bf16.enabled").hint);
    check_row(run, "sharding.params", "4", "auto: zero_optimization.stage");
    mics_run_close(run);
}

static void test_traced_steps(void **state)
{
    (void)state;
    static const char base[] = "{\"model\": {\"config\": \"model.json\"}, \"data\": {\"train\": "
                               "\"a\"}, \"train_batch_size\": 1, \"run\": {\"steps\": 9, %s}}";
    char text[512];
    snprintf(text, sizeof text, base, "\"trace_step\": 7, \"trace_steps\": 3");
    mics_run *run = load_good(text);
    assert_int_equal(run->trace_step, 7);
    assert_int_equal(run->trace_steps, 3);
    mics_run_close(run);
    snprintf(text, sizeof text, base, "\"trace_step\": 8, \"trace_steps\": 3");
    check_refused(text, MICS_ERR_INVALID,
                  "run.trace_step: traces steps 8 to 10, but the run ends after step 9");
    snprintf(text, sizeof text, base, "\"trace_step\": 10");
    check_refused(text, MICS_ERR_INVALID, "traces steps 10 to 10, but");
}

// ---- files ----

static void test_paths(void **state)
{
    (void)state;
    mics_run *run = NULL;
    assert_int_equal(mkdir("sub", 0700), 0);
    write_file("sub/m.json", "{}");
    write_file("sub/run.json",
               "{\n\"model\": {\"config\": \"m.json\"}, \"data\": {\"train\": \"a\"},"
               "\"run\": {\"steps\": 1}, \"train_batch_size\": 1}");
    ASSERT_STATUS(MICS_ERR_IO, mics_run_load(memory, "sub/run.json", NULL, 0, &run));
    ASSERT_SAID(&seen, "sub/run.json:2: model.config: m.json: No such file or directory; paths are "
                       "relative to the working directory, and there is sub/m.json: write that");
    static const char *const sets[] = {"model.config=sub/m.json",
                                       "data.train=[\"*.txt\", \"b.txt\"]"};
    ASSERT_OK(mics_run_load(memory, "sub/run.json", sets, 2, &run));
    ASSERT_STATUS(MICS_ERR_IO, mics_run_check_files(run, false));
    ASSERT_SAID(&seen, "data.train: b.txt: No such file");
    write_file("b.txt", "x");
    ASSERT_OK(mics_run_check_files(run, false));
    mics_run_close(run);
    static const char *const other[] = {"model.config=/absent/m.json"};
    ASSERT_STATUS(MICS_ERR_IO, mics_run_load(memory, "sub/run.json", other, 1, &run));
    ASSERT_SAID(&seen, "/absent/m.json: No such file or directory");
    static const char *const files[][2] = {{"model.config=model.json", "data.tokenizer=t.json"},
                                           {"model.config=model.json", "model.init=weights"}};
    for (size_t i = 0; i < 2; i++) {
        ASSERT_OK(mics_run_load(memory, "sub/run.json", files[i], 2, &run));
        ASSERT_STATUS(MICS_ERR_IO, mics_run_check_files(run, false));
        ASSERT_SAID(&seen, i == 0 ? "data.tokenizer: t.json" : "model.init: weights");
        mics_run_close(run);
    }
}

// ---- explain and the table ----

static void test_rows(void **state)
{
    (void)state;
    mics_run *run = load_good(example);
    ASSERT_OK(mics_run_resolve(run, 4, 2));
    check_row(run, "model.config", "\"model.json\"", "file");
    check_row(run, "run.keep_checkpoints", "2", "default");
    check_row(run, "run.threads", "2", "file");
    check_row(run, "optimizer.params.lr", "0.0003", "file");
    check_row(run, "optimizer.params.betas", "[0.9, 0.95]", "file");
    check_row(run, "train_batch_size", "32", "auto: micro-batch x micro-steps x data ranks");
    check_row(run, "scheduler.params.cos_min_ratio", "0.0001", "default");
    check_row(run, "scheduler.params.warmup_type", "\"log\"", "default");
    check_row(run, "sharding.optimizer", "2", "auto: zero_optimization.mics_shard_size");
    check_row(run, "zero_optimization.stage", "3", "file");
    check_row(run, "run.memory_limit", "2147483648", "file");
    assert_null(find_row(run, "scheduler.params.warmup_max_lr").key);
    assert_null(find_row(run, "zero_optimization.reduce_bucket_size").key);
    assert_null(find_row(run, "wandb").key);
    assert_null(find_row(run, "model").key);
    run->sharding = (mics_sharding){4, 4, 4}; // what a caller stored shows
    check_row(run, "sharding.params", "4", "auto: zero_optimization.mics_shard_size");
    assert_string_equal(mics_run_row_at(run, mics_run_row_count(run)).key, "");
    mics_run_close(run);
}

// What a key stands in is a section.
static void check_holder(const char *path)
{
    char section[CONFIG_PATH_BYTES];
    snprintf(section, sizeof section, "%s", path);
    char *dot = strrchr(section, '.');
    if (dot == NULL)
        return;
    *dot = '\0';
    const int32_t holder = mics_config_find(section);
    assert_true(holder >= 0);
    assert_int_equal(mics_config_key(holder)->type, KEY_SECTION);
}

// Each row of the tables is whole, and no path stands there twice.
static void test_tables(void **state)
{
    (void)state;
    for (int32_t i = 0; i < mics_config_key_count(); i++) {
        const key *row = mics_config_key(i);
        assert_non_null(row->help);
        assert_int_equal(mics_config_find(row->path), i);
        assert_int_equal(mics_config_find_foreign(row->path), -1);
        if (row->type == KEY_CHOICE)
            assert_non_null(row->choices);
        check_holder(row->path);
    }
    foreign_key row = mics_config_foreign(0);
    for (int32_t i = 0; row.path != NULL; row = mics_config_foreign(++i)) {
        assert_in_range(i, 0, CONFIG_MAX_FOREIGN - 1);
        assert_non_null(row.why);
        assert_int_equal(mics_config_find_foreign(row.path), i);
        check_holder(row.path);
    }
}

// What cannot change results is taken, whatever it says; what would is taken only where it is off.
static void test_foreign_keys(void **state)
{
    (void)state;
    write_file("run.json", RUN_WITH("\"scheduler\": {\"type\": \"WarmupLR\"}"));
    foreign_key row = mics_config_foreign(0);
    for (int32_t i = 0; row.path != NULL; row = mics_config_foreign(++i)) {
        char set[256];
        const char *const sets[] = {set};
        const char *only = row.only;
        const bool empty = only != NULL && strcmp(only, FOREIGN_EMPTY) == 0;
        const bool off =
            empty ||
            (only != NULL && (strcmp(only, FOREIGN_OFF) == 0 || strcmp(only, FOREIGN_ONE) == 0));
        mics_run *run = NULL;
        snprintf(set, sizeof set, "%s={\"enabled\": true}", row.path);
        mics_status status = mics_run_load(memory, "run.json", sets, 1, &run);
        if (status != (only == NULL ? MICS_OK : MICS_ERR_UNSUPPORTED))
            fail_msg("%s gave %s", set, mics_status_name(status));
        if (status == MICS_OK)
            assert_true(find_row(run, row.path).hint);
        mics_run_close(run);
        snprintf(set, sizeof set, "%s=%s", row.path, off || only == NULL ? "false" : only);
        ASSERT_OK(mics_run_load(memory, "run.json", sets, 1, &run));
        mics_run_close(run);
        snprintf(set, sizeof set, "%s=[0]", row.path);
        if (empty)
            ASSERT_STATUS(MICS_ERR_UNSUPPORTED, mics_run_load(memory, "run.json", sets, 1, &run));
    }
}

// "A key that could be found out is not a key."
static void test_own_keys_are_few(void **state)
{
    (void)state;
    int32_t keys = 0;
    for (int32_t i = 0; i < mics_config_find("train_batch_size"); i++)
        keys += mics_config_key(i)->type != KEY_SECTION ? 1 : 0;
    assert_in_range(keys, 1, 84);
}

static void check_docs_row(const char *text, const char *path, const char *help)
{
    char start[200];
    snprintf(start, sizeof start, "| `%s` |", path);
    bool found = false; // a key of a model may have the same name
    for (const char *line = text; !found && (line = strstr(line, start)) != NULL; line++) {
        const char *said = strstr(line, help);
        found = said != NULL && said < strchr(line, '\n');
    }
    if (!found)
        fail_msg("docs/config.md has no row for %s that says \"%s\"", path, help);
}

// docs/config.md has a line "| `key` | ... | help" for each key.
static void test_docs_have_every_key(void **state)
{
    (void)state;
    static char text[200000];
    FILE *file = fopen(MICS_TEST_DOCS "/config.md", "r");
    assert_non_null(file);
    size_t bytes = fread(text, 1, sizeof text - 1, file);
    assert_int_equal(ferror(file), 0);
    fclose(file);
    text[bytes] = '\0';
    for (int32_t i = 0; i < mics_config_key_count(); i++)
        check_docs_row(text, mics_config_key(i)->path, mics_config_key(i)->help);
}

// What a flag of another program is named as there is, and what is no key is a sentence.
static void test_flags(void **state)
{
    (void)state;
    static const char *const keyed[][2] = {
        {"lr", "optimizer.params.lr"},
        {"learning-rate", "optimizer.params.lr"},
        {"batch_size", "train_batch_size"},
        {"per-device-train-batch-size", "train_micro_batch_size_per_gpu"},
        {"epochs", "num_train_epochs"},
        {"max-seq-len", "data.sequence_length"},
        {"seed", "run.seed"},
        {"bf16", "run.precision=bf16"},
        {"checkpoint_every", "run.checkpoint_every"},
        {"lora-rank", "adapter.r"},
    };
    static const char *const said[] = {"hostfile", "nproc-per-node", "num_gpus", "deepspeed",
                                       "tp",       "hub_token",      "wandb",    "load-in-4bit"};
    for (size_t i = 0; i < sizeof keyed / sizeof *keyed; i++)
        assert_string_equal(mics_run_flag_of(keyed[i][0]).key, keyed[i][1]);
    for (size_t i = 0; i < sizeof said / sizeof *said; i++) {
        assert_null(mics_run_flag_of(said[i]).key);
        assert_non_null(mics_run_flag_of(said[i]).says);
    }
    assert_null(mics_run_flag_of("frobnicate").key);
    assert_null(mics_run_flag_of("frobnicate").says);
    // Every row leads to a key that there is.
    mics_run_flag row = mics_run_flag_row(0);
    for (size_t i = 0; row.key != NULL || row.says != NULL; row = mics_run_flag_row(++i)) {
        char path[CONFIG_PATH_BYTES] = "";
        if (row.key != NULL)
            snprintf(path, sizeof path, "%.*s", (int)strcspn(row.key, "="), row.key);
        if (row.key != NULL && mics_config_find(path) < 0)
            fail_msg("there is no key %s", path);
    }
}

// ---- faults ----

static void test_allocations_fail(void **state)
{
    (void)state;
    static const char *const sets[] = {"data.tokenizer=t.json", "run.steps=3"};
    write_file("run.json", RUN_PLAIN);
    mics_run *run = NULL;
    mics_status status = MICS_ERR_MEMORY;
    for (int64_t n = 1; status != MICS_OK; n++) {
        assert_true(n < 100);
        mics_memory_fail_after(memory, n);
        status = mics_run_load(memory, "run.json", sets, 2, &run);
        mics_memory_fail_after(memory, 0);
        if (status != MICS_OK) {
            assert_int_equal(status, MICS_ERR_MEMORY);
            assert_null(run);
            mics_memory_stats stats;
            mics_memory_stats_get(memory, &stats);
            assert_int_equal(stats.live_blocks, 0);
        }
    }
    mics_run_close(run);
    mics_run_close(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_reads_the_example, setup, teardown),
        cmocka_unit_test_setup_teardown(test_defaults, setup, teardown),
        cmocka_unit_test_setup_teardown(test_recompute, setup, teardown),
        cmocka_unit_test_setup_teardown(test_sets, setup, teardown),
        cmocka_unit_test_setup_teardown(test_null_is_absent, setup, teardown),
        cmocka_unit_test_setup_teardown(test_bad_sets, setup, teardown),
        cmocka_unit_test_setup_teardown(test_schedulers, setup, teardown),
        cmocka_unit_test_setup_teardown(test_takes_deepspeed_files, setup, teardown),
        cmocka_unit_test_setup_teardown(test_traced_steps, setup, teardown),
        cmocka_unit_test_setup_teardown(test_paths, setup, teardown),
        cmocka_unit_test_setup_teardown(test_rows, setup, teardown),
        cmocka_unit_test_setup_teardown(test_tables, setup, teardown),
        cmocka_unit_test_setup_teardown(test_own_keys_are_few, setup, teardown),
        cmocka_unit_test_setup_teardown(test_flags, setup, teardown),
        cmocka_unit_test_setup_teardown(test_foreign_keys, setup, teardown),
        cmocka_unit_test_setup_teardown(test_docs_have_every_key, setup, teardown),
        cmocka_unit_test_setup_teardown(test_allocations_fail, setup, teardown),
    };
    return cmocka_run_group_tests(tests, group_setup, group_teardown);
}
