// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// What a resumed run keeps of a stored one: no later default changes it.
#include "config/keys.h"
#include "config/run_file.h"
#include "config/value.h"

static char *read_golden(void)
{
    static char text[8192];
    FILE *file = fopen(MICS_TEST_GOLDEN "/run/stored.json", "r");
    assert_non_null(file);
    size_t bytes = fread(text, 1, sizeof text - 1, file);
    assert_int_equal(ferror(file), 0);
    fclose(file);
    text[bytes] = '\0';
    return text;
}

static mics_run *load_kept(const char *file, const char *stored)
{
    mics_run *run = load_good(file);
    if (mics_run_keep(run, "stored", stored) != MICS_OK)
        fail_msg("%s was not kept: %s", stored, seen.line);
    return run;
}

static void test_a_real_one(void **state)
{
    (void)state;
    mics_run *run = load_kept(RUN_PLAIN, read_golden());
    assert_string_equal(mics_run_kept_text(run),
                        "run.seed 3, run.validation_batches 2, "
                        "run.param_persistence_threshold 1000, run.coalesce_below 4096, "
                        "run.comm_dtype.params \"bf16\", run.comm_dtype.grads \"bf16\", "
                        "run.comm_dtype.boundary \"int8\", gradient_clipping 1, "
                        "optimizer.params.lr 0.003, optimizer.params.weight_decay 0.1");
    check_row(run, "run.layered_micro_steps", "2", "checkpoint");
    check_row(run, "run.comm_dtype.boundary", "\"int8\"", "checkpoint");
    check_row(run, "run.comm_dtype.bf16_intra_node", "false", "checkpoint");
    check_row(run, "run.precision", "\"fp32\"", "checkpoint");
    check_row(run, "optimizer.params.lr", "0.003", "checkpoint");
    assert_true(run->lr.peak == 0.003);
    assert_int_equal(run->params_dtype.inter, MICS_COMM_BF16);
    assert_int_equal(run->params_dtype.intra, MICS_COMM_FP32);
    // Neither what the file says, nor what belongs to a machine.
    check_row(run, "run.steps", "100", "file");
    check_row(run, "run.out", "\"runs/run\"", "auto: runs/ and the run file's name");
    check_row(run, "run.checkpoint_every", "0", "default");
    check_row(run, "run.comm_timeout_s", "300", "default");
    check_row(run, "run.device", "\"auto\"", "default");
    // The scheduler is another one: it was taken away.
    assert_int_equal(run->lr.kind, MICS_LR_CONSTANT);
    // The sharding, for as many ranks.
    ASSERT_OK(mics_run_resolve(run, 8, 4));
    assert_false(run->sharding_auto);
    check_row(run, "sharding.params", "4", "checkpoint");
    ASSERT_OK(mics_run_resolve(run, 4, 2));
    assert_true(run->sharding_auto);
    assert_int_equal(run->kept_ranks, 8);
    assert_int_equal(run->kept_sharding.params, 4);
    ASSERT_OK(mics_run_resolve(run, 8, 1));
    assert_false(run->sharding_auto);
    mics_run_close(run);
}

// With a sharding that was chosen its E; one of before E, or one that does not divide P, has none.
static void test_experts(void **state)
{
    static const struct {
        const char *experts;
        int32_t kept; // 0: chosen anew
    } cases[] = {{", \"experts\": 2", 2}, {", \"experts\": 3", 0}, {"", 1}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char stored[512];
        snprintf(stored, sizeof stored,
                 "{\"model\": {\"config\": \"m\"}, \"data\": {\"train\": [\"t\"]}, \"run\": "
                 "{\"steps\": 1}, \"train_batch_size\": 8, \"gradient_accumulation_steps\": 1, "
                 "\"train_micro_batch_size_per_gpu\": 1, \"sharding\": {\"params\": 4, \"grads\": "
                 "4, \"optimizer\": 8%s}}",
                 cases[i].experts);
        mics_run *run = load_kept(RUN_PLAIN, stored);
        ASSERT_OK(mics_run_resolve(run, 8, 2));
        assert_int_equal(run->sharding_auto, cases[i].kept == 0);
        assert_int_equal(run->experts, cases[i].kept > 0 ? cases[i].kept : 1);
        mics_run_close(run);
    }
}

// A stored S tells how many ranks there were; the run file says what it is now.
static void test_sequence(void **state)
{
    static const char stored[] =
        "{\"model\": {\"config\": \"m\"}, \"data\": {\"train\": [\"t\"]}, \"run\": {\"steps\": 1}, "
        "\"train_batch_size\": 8, \"gradient_accumulation_steps\": 2, "
        "\"train_micro_batch_size_per_gpu\": 2, \"sharding\": {\"params\": 4, \"grads\": 4, "
        "\"optimizer\": 4, \"sequence\": 4}}";
    static const struct {
        const char *file;
        int32_t ranks;
        bool sharding_kept;
        int64_t micro, steps;
    } cases[] = {
        {"{" RUN_BASE "}", 8, true, 1, 1}, // S = 1: 8 data ranks
        {"{" RUN_BASE ", \"sharding\": {\"sequence\": 4}}", 8, true, 2, 2},
        {"{" RUN_BASE ", \"sharding\": {\"sequence\": 2}}", 8, true, 2, 1},
        {"{" RUN_BASE ", \"sharding\": {\"sequence\": 4}}", 4, false, 2, 4},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char file[1024];
        snprintf(file, sizeof file, "%.*s, \"train_batch_size\": 8}",
                 (int)strlen(cases[i].file) - 1, cases[i].file);
        mics_run *run = load_kept(file, stored);
        assert_int_equal(run->kept_ranks, 0);
        ASSERT_OK(mics_run_resolve(run, cases[i].ranks, 1));
        assert_int_equal(run->kept_ranks, 8);
        assert_int_equal(run->sharding_auto, !cases[i].sharding_kept);
        assert_int_equal(run->global_batch, 8);
        assert_int_equal(run->micro_batch, cases[i].micro);
        assert_int_equal(run->micro_steps, cases[i].steps);
        mics_run_close(run);
    }
}

// A value that the key's default is not.
static void other_value(const key *row, char *text, size_t capacity)
{
    double number = row->value != row->low ? row->low : row->low + 1.0;
    if (row->type == KEY_SWITCH)
        snprintf(text, capacity, "%s", row->value != 0.0 ? "false" : "true");
    else if (row->type == KEY_RECOMPUTE)
        snprintf(text, capacity, "\"mlp+last 3\"");
    else if (row->type == KEY_TEXT)
        snprintf(text, capacity, "\"2026-01-02\"");
    else if (row->type == KEY_CHOICE)
        snprintf(text, capacity, "\"%s\"",
                 row->choices[row->text != NULL && strcmp(row->choices[0], row->text) == 0]);
    else if (strcmp(row->path, "optimizer.params.nesterov") == 0)
        snprintf(text, capacity, "true");
    else if (strcmp(row->path, "optimizer.params.ns_steps") == 0)
        snprintf(text, capacity, "7");
    else if (row->type == KEY_SETTINGS)
        snprintf(text, capacity, "%s", row->count == 1 ? "0.5" : "[0.5, 0.25]");
    else
        snprintf(text, capacity, "%.15g", number > row->high ? row->high : number);
}

// The optimizer that takes a key which AdamW does not; else NULL.
static const char *optimizer_of(const char *path)
{
    static const char *const keys[][2] = {{"momentum", "SGD"},
                                          {"nesterov", "SGD"},
                                          {"ns_steps", "Muon"},
                                          {"adjust_lr_fn", "Muon"},
                                          {"adam_lr", "Muon"}};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        if (strcmp(mics_config_leaf(path), keys[i][0]) == 0)
            return keys[i][1];
    }
    return NULL;
}

// A stored run of one key, and of the scheduler or optimizer that takes it.
static void make_stored(const char *path, const char *value, const char *scheduler, char *text,
                        size_t capacity)
{
    mics_json *json = NULL;
    ASSERT_OK(mics_json_parse(memory, "made", "{}", 2, &json));
    if (scheduler != NULL)
        ASSERT_OK(mics_json_set(json, "scheduler.type", scheduler));
    if (optimizer_of(path) != NULL) {
        ASSERT_OK(mics_json_set(json, "optimizer.type", optimizer_of(path)));
        ASSERT_OK(mics_json_set(json, "optimizer.params.momentum", "0.9"));
    }
    ASSERT_OK(mics_json_set(json, path, value));
    assert_true(mics_config_value_whole(mics_json_root(json), text, capacity));
    mics_json_close(json);
}

static const char *scheduler_of(const key *row)
{
    return (row->flags & KEY_WSD) != 0            ? "WSD"
           : (row->flags & KEY_COSINE) != 0       ? "WarmupCosineLR"
           : (row->flags & KEY_DECAY) != 0        ? "WarmupDecayLR"
           : (row->flags & KEY_ONE_CYCLE) != 0    ? "OneCycle"
           : (row->flags & KEY_POLYNOMIAL) != 0   ? "polynomial"
           : (row->flags & KEY_STABLE_DECAY) != 0 ? "warmup_stable_decay"
                                                  : NULL;
}

// What its file must say.
static const char *params_of(const char *scheduler)
{
    return strcmp(scheduler, "OneCycle") == 0 ? "\"cycle_min_lr\": 1e-4, \"cycle_max_lr\": 1e-3, "
                                                "\"cycle_momentum\": false"
           : strcmp(scheduler, "warmup_stable_decay") == 0 ? "\"decay_num_steps\": 5"
                                                           : "\"warmup_num_steps\": 1";
}

// A default of today that the stored run did not have: it keeps its own, whatever the key.
static void check_key_kept(const key *row)
{
    const bool warmup = strcmp(row->path, "scheduler.params.warmup_num_steps") == 0;
    const char *scheduler = warmup ? "WarmupCosineLR" : scheduler_of(row);
    char value[64] = "7", stored[512], file[512], more[128] = "";
    if (scheduler != NULL)
        snprintf(more, sizeof more, ", \"scheduler\": {\"type\": \"%s\", \"params\": {%s}}",
                 scheduler, warmup ? "" : params_of(scheduler));
    snprintf(file, sizeof file, "{%s, \"train_micro_batch_size_per_gpu\": 4%s}", RUN_BASE, more);
    if (!warmup)
        other_value(row, value, sizeof value);
    make_stored(row->path, value, scheduler, stored, sizeof stored);
    mics_run *run = load_kept(file, stored);
    check_row(run, row->path, value, "checkpoint");
    const bool named = strstr(mics_run_kept_text(run), row->path) != NULL;
    const bool open = strcmp(row->path, "run.precision") == 0 ||
                      strcmp(row->path, "run.layered_micro_steps") == 0 ||
                      strcmp(row->path, "data.packing") == 0 ||
                      strcmp(row->path, "data.template_date") == 0 ||
                      strcmp(row->path, "run.comm_dtype.boundary") == 0;
    if (named == open)
        fail_msg("%s: kept is %s", row->path, mics_run_kept_text(run));
    mics_run_close(run);
}

static void check_key_not_kept(const key *row)
{
    char value[64] = "\"x\"", stored[512];
    if (row->type != KEY_TEXT && row->type != KEY_TEXTS)
        other_value(row, value, sizeof value);
    make_stored(row->path, value, NULL, stored, sizeof stored);
    mics_run *run = load_kept(RUN_PLAIN, stored);
    if (strcmp(find_row(run, row->path).origin, "checkpoint") == 0)
        fail_msg("%s was kept", row->path);
    assert_string_equal(mics_run_kept_text(run), "");
    mics_run_close(run);
}

static void test_every_key(void **state)
{
    (void)state;
    int32_t kept = 0;
    for (int32_t i = 0; i < mics_config_key_count(); i++) {
        const key *row = mics_config_key(i);
        const bool keeps = (row->flags & KEY_KEPT) != 0 && strcmp(row->path, "optimizer.type") != 0;
        kept += keeps ? 1 : 0;
        if (keeps)
            check_key_kept(row);
        else if (row->type != KEY_SECTION && strcmp(row->path, "optimizer.type") != 0)
            check_key_not_kept(row);
    }
    assert_true(kept >= 30);
}

// What the file says goes before, in whatever words.
static void test_the_file_goes_before(void **state)
{
    (void)state;
    static const struct {
        const char *more, *stored, *path, *value, *origin;
    } cases[] = {
        {"\"gradient_clipping\": 0", "\"gradient_clipping\": 2", "gradient_clipping", "0", "file"},
        {"\"bf16\": {\"enabled\": false}", "\"run\": {\"precision\": \"bf16\"}", "run.precision",
         "\"auto\"", "default"},
        {"\"gradient_clipping\": 1", "\"run\": {\"precision\": \"fp32\"}", "run.precision",
         "\"fp32\"", "checkpoint"},
        {"\"fp16\": {\"enabled\": true}", "\"run\": {\"precision\": \"fp32\"}", "run.precision",
         "\"fp16\"", "auto: fp16.enabled"},
        {"\"sdp_param_persistence_threshold\": 5", "\"run\": {\"param_persistence_threshold\": 7}",
         "run.param_persistence_threshold", "5", "auto: sdp_param_persistence_threshold"},
        {"\"communication_data_type\": \"bf16\"",
         "\"run\": {\"comm_dtype\": {\"boundary\": \"int8\"}}", "run.comm_dtype.boundary",
         "\"bf16\"", "auto: communication_data_type"},
        {"\"zero_optimization\": {\"mics_hierarchical_params_gather\": false}",
         "\"run\": {\"collectives\": \"two-stage\"}", "run.collectives", "\"ring\"",
         "auto: zero_optimization.mics_hierarchical_params_gather"},
        {"\"scheduler\": {\"type\": \"WarmupLR\"}",
         "\"scheduler\": {\"type\": \"WSD\", \"params\": {\"warmup_num_steps\": 7}}",
         "scheduler.params.warmup_num_steps", "1000", "default"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char file[512], stored[512];
        snprintf(file, sizeof file, "{%s, \"train_micro_batch_size_per_gpu\": 4, %s}", RUN_BASE,
                 cases[i].more);
        snprintf(stored, sizeof stored, "{%s}", cases[i].stored);
        mics_run *run = load_kept(file, stored);
        check_row(run, cases[i].path, cases[i].value, cases[i].origin);
        mics_run_close(run);
    }
    // The CPU goes on in bf16, fast or slow, but not in fp16.
    static const char *const cpu[] = {"run.device=cpu"};
    static const char bf16[] = "{\"run\": {\"precision\": \"bf16\"}}",
                      fp16[] = "{\"run\": {\"precision\": \"fp16\"}}";
    static const char slow[] = "no AVX512_BF16";
    mics_run *run = NULL;
    for (int i = 0; i < 2; i++) {
        write_file("run.json", RUN_PLAIN);
        ASSERT_OK(mics_run_load(memory, "run.json", cpu, 1, &run));
        ASSERT_OK(mics_run_keep(run, "stored", i == 0 ? bf16 : fp16));
        ASSERT_OK(mics_run_resolve_device(run, "none is here", slow));
        assert_false(run->fell_back);
        check_row(run, "run.precision", i == 0 ? "\"bf16\"" : "\"fp32\"",
                  i == 0 ? "checkpoint" : "auto: fp32 on cpu");
        mics_run_close(run);
    }
    run = load_kept(RUN_PLAIN, fp16);
    ASSERT_STATUS(MICS_ERR_UNSUPPORTED, mics_run_resolve_device(run, "none is here", NULL));
    ASSERT_SAID(&seen, "fp16 is for GPUs; on the cpu device fp32 and bf16 work");
    mics_run_close(run);
    // Said by the file, bf16 stays slow where the checkpoint is of it, and falls back where not.
    static const char *const said[] = {"run.precision=bf16"};
    for (int i = 0; i < 2; i++) {
        write_file("run.json", RUN_PLAIN);
        ASSERT_OK(mics_run_load(memory, "run.json", said, 1, &run));
        ASSERT_OK(
            mics_run_keep(run, "stored", i == 0 ? bf16 : "{\"run\": {\"precision\": \"fp32\"}}"));
        ASSERT_OK(mics_run_resolve_device(run, "none is here", slow));
        assert_int_equal(run->kept_precision,
                         i == 0 ? MICS_RUN_PRECISION_BF16 : MICS_RUN_PRECISION_FP32);
        assert_int_equal(run->fell_back, i == 1);
        mics_run_close(run);
    }
    // What the second hop was resolved to.
    static const char *const boundaries[] = {"fp32", "bf16"};
    for (int i = 0; i < 2; i++) {
        char stored[128], value[16];
        snprintf(stored, sizeof stored,
                 "{\"run\": {\"precision\": \"bf16\", \"comm_dtype\": {\"boundary\": \"%s\"}}}",
                 boundaries[i]);
        snprintf(value, sizeof value, "\"%s\"", boundaries[i]);
        run = load_kept(RUN_PLAIN, stored);
        ASSERT_OK(mics_run_resolve_device(run, "none is here", NULL));
        ASSERT_OK(mics_run_resolve(run, 4, 2));
        check_row(run, "run.comm_dtype.boundary", value, "checkpoint");
        mics_run_close(run);
    }
    // --set is still --set, and what was "auto" is settled.
    static const char *const sets[] = {"gradient_clipping=3", "run.precision=auto",
                                       "wall_clock_breakdown=true"};
    write_file("run.json", RUN_PLAIN);
    ASSERT_OK(mics_run_load(memory, "run.json", sets, 3, &run));
    ASSERT_OK(mics_run_keep(run, "stored", "{\"run\": {\"precision\": \"fp32\"}}"));
    ASSERT_OK(mics_run_resolve_device(run, NULL, NULL)); // a GPU, where bf16 would be the default
    check_row(run, "gradient_clipping", "3", "--set");
    check_row(run, "wall_clock_breakdown", "true", "--set");
    check_row(run, "run.precision", "\"fp32\"", "checkpoint");
    mics_run_close(run);
}

// "auto" is settled once: a run that goes on keeps the number.
static void test_layered(void **state)
{
    (void)state;
    static const struct {
        const char *file, *stored, *value, *origin;
    } rows[] = {
        {"", "{\"run\": {\"layered_micro_steps\": 4}}", "4", "checkpoint"},
        {", \"layered_micro_steps\": \"auto\"", "{\"run\": {\"layered_micro_steps\": 4}}", "4",
         "checkpoint"},
        {", \"layered_micro_steps\": 2", "{\"run\": {\"layered_micro_steps\": 4}}", "2", "file"},
        {", \"layered_micro_steps\": 2", "{}", "2", "file"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char file[512];
        snprintf(file, sizeof file,
                 "{\"model\": {\"config\": \"model.json\"}, \"data\": {\"train\": [\"a.txt\"]}, "
                 "\"run\": {\"steps\": 100%s}, \"train_micro_batch_size_per_gpu\": 4}",
                 rows[i].file);
        mics_run *run = load_kept(file, rows[i].stored);
        ASSERT_OK(mics_run_resolve(run, 4, 2));
        check_row(run, "run.layered_micro_steps", rows[i].value, rows[i].origin);
        const bool kept = strcmp(rows[i].origin, "checkpoint") == 0; // as long as it fits
        assert_int_equal(run->layered_auto, kept);
        assert_int_equal(run->layered_kept, kept ? strtol(rows[i].value, NULL, 10) : 0);
        mics_run_close(run);
    }
}

// What was found for one mesh is found anew for another.
static void test_layered_is_settled(void **state)
{
    (void)state;
    mics_run *run = load_good(RUN_PLAIN);
    ASSERT_OK(mics_run_resolve(run, 4, 2));
    assert_true(run->layered_auto);
    check_row(run, "run.layered_micro_steps", "\"auto\"",
              "auto: 1 on one node, else as many as at most double the state and a micro-batch");
    mics_run_resolve_layered(run, 3, "auto: why");
    check_row(run, "run.layered_micro_steps", "3", "auto: why");
    ASSERT_OK(mics_run_resolve(run, 8, 2));
    assert_true(run->layered_auto && run->layered_micro_steps == 0);
    mics_run_close(run);
}

static void test_bad_text(void **state)
{
    (void)state;
    static const struct {
        const char *stored;
        mics_status status;
        const char *part;
    } cases[] = {
        {"{", MICS_ERR_FORMAT, "stored:1:"},
        {"{\"gradient_clipping\": -1}", MICS_ERR_INVALID,
         "stored:1: gradient_clipping: must be 0 or more, not -1"},
        {"{\"run\": {\"collectives\": \"tree\"}}", MICS_ERR_UNSUPPORTED,
         "stored:1: run.collectives: must be"},
        {"{\"run\": {\"layered_micro_steps\": 0}}", MICS_ERR_INVALID,
         "run.layered_micro_steps: must be 1 to"},
        {"{\"train_batch_size\": 9223372036854775807, \"train_micro_batch_size_per_gpu\": -1}",
         MICS_OK, NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        mics_run *run = load_good(RUN_PLAIN);
        ASSERT_STATUS(cases[i].status, mics_run_keep(run, "stored", cases[i].stored));
        if (cases[i].part != NULL)
            ASSERT_SAID(&seen, cases[i].part);
        mics_run_close(run);
    }
}

static void test_allocations_fail(void **state)
{
    (void)state;
    char *stored = read_golden();
    mics_status status = MICS_ERR_MEMORY;
    for (int64_t n = 1; status != MICS_OK; n++) {
        mics_run *run = load_good(RUN_PLAIN);
        assert_true(n < 100);
        mics_memory_fail_after(memory, n);
        status = mics_run_keep(run, "stored", stored);
        mics_memory_fail_after(memory, 0);
        assert_true(status == MICS_OK || status == MICS_ERR_MEMORY);
        mics_run_close(run);
        mics_memory_stats stats;
        mics_memory_stats_get(memory, &stats);
        assert_int_equal(stats.live_blocks, 0);
    }
}

// A stored run of 4 ranks, on `ranks`: 32 sequences as 4 x 2 micro-steps.
static void check_batch(const char *more, int32_t ranks, int64_t micro, int32_t steps, bool keeps)
{
    char file[512];
    snprintf(file, sizeof file, "{" RUN_BASE ", %s}", more);
    mics_run *run =
        load_kept(file, "{\"train_batch_size\": 32, \"train_micro_batch_size_per_gpu\": "
                        "4, \"gradient_accumulation_steps\": 2}");
    ASSERT_OK(mics_run_resolve(run, ranks, 1));
    assert_int_equal(run->global_batch, 32);
    assert_int_equal(run->micro_batch, micro);
    assert_int_equal(run->micro_steps, steps);
    assert_int_equal(mics_run_keeps_batch(run), keeps);
    check_row(run, "train_batch_size", "32",
              keeps ? "checkpoint"
              : strstr(more, "train_batch") != NULL
                  ? "file"
                  : "auto: micro-batch x micro-steps x data ranks");
    mics_run_close(run);
}

static void test_global_batch(void **state)
{
    (void)state;
    static const char micro[] = "\"train_micro_batch_size_per_gpu\": 4";
    static const char both[] =
        "\"train_micro_batch_size_per_gpu\": 4, \"gradient_accumulation_steps\": 2";
    static const char all[] = "\"train_batch_size\": 32, \"train_micro_batch_size_per_gpu\": 4, "
                              "\"gradient_accumulation_steps\": 2";
    static const char train[] = "\"train_batch_size\": 32, \"gradient_accumulation_steps\": 2";
    check_batch(both, 4, 4, 2, false);
    check_batch(both, 2, 4, 4, true);
    check_batch(both, 8, 4, 1, true);
    check_batch(both, 16, 2, 1, true);
    check_batch(both, 1, 4, 8, true);
    check_batch(all, 2, 4, 4, true);
    check_batch(all, 8, 4, 1, true);
    check_batch(micro, 4, 4, 2, true);
    check_batch(micro, 8, 4, 1, false);
    check_batch(train, 2, 8, 2, false);
    check_batch(train, 32, 1, 1, true);
    check_batch("\"train_batch_size\": 32", 2, 4, 4, true);
    check_batch("\"train_batch_size\": 32", 4, 4, 2, true); // as an earlier start chose it

    // No share for each rank, and a mesh that such a batch was stored of.
    check_batch(micro, 3, 4, 3, true); // 36 rows: an eighth more than 33 at most
    check_batch(both, 5, 1, 7, true);
    mics_run *run = load_kept("{" RUN_BASE ", \"train_batch_size\": 32}",
                              "{\"train_batch_size\": 32, \"train_micro_batch_size_per_gpu\": 1, "
                              "\"gradient_accumulation_steps\": 6, \"sharding\": {\"params\": 1, "
                              "\"grads\": 1, \"optimizer\": 2}}");
    ASSERT_OK(mics_run_resolve(run, 6, 1));
    assert_int_equal(run->kept_ranks, 6);
    assert_int_equal(run->micro_steps, 6);
    assert_int_equal(run->sharding.optimizer, 2);
    mics_run_close(run);
    // A batch that the file asks for.
    run = load_kept("{" RUN_BASE ", \"train_batch_size\": 64}",
                    "{\"train_batch_size\": 32, \"train_micro_batch_size_per_gpu\": 4, "
                    "\"gradient_accumulation_steps\": 2}");
    ASSERT_OK(mics_run_resolve(run, 2, 1));
    assert_int_equal(run->global_batch, 64);
    assert_false(mics_run_keeps_batch(run));
    mics_run_close(run);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_a_real_one, setup, teardown),
        cmocka_unit_test_setup_teardown(test_sequence, setup, teardown),
        cmocka_unit_test_setup_teardown(test_experts, setup, teardown),
        cmocka_unit_test_setup_teardown(test_every_key, setup, teardown),
        cmocka_unit_test_setup_teardown(test_the_file_goes_before, setup, teardown),
        cmocka_unit_test_setup_teardown(test_layered, setup, teardown),
        cmocka_unit_test_setup_teardown(test_layered_is_settled, setup, teardown),
        cmocka_unit_test_setup_teardown(test_global_batch, setup, teardown),
        cmocka_unit_test_setup_teardown(test_bad_text, setup, teardown),
        cmocka_unit_test_setup_teardown(test_allocations_fail, setup, teardown),
    };
    return cmocka_run_group_tests(tests, group_setup, group_teardown);
}
