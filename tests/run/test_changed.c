// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// No start goes on otherwise than was meant without a word: each key of a run file is changed between two starts. The second
// one is refused, says the change, or ends with the bits of a run in which nothing changed.
#include "base/capture.h"
#include "config/keys.h"
#include "run/jobs.h"
#include "run/ranks/precision.h"
#include <stdarg.h>

// SAID_ELSE: of the key that the changed one is another word for. PHASE: a phase begins with it.
typedef enum expected { REFUSED, SAID, SAID_ELSE, SAME, PHASE } expected;

// What both starts of a row have beside the usual.
typedef enum usual_sets {
    PLAIN,
    COSINE,
    DECAY,
    WSD,
    CYCLE,
    WAVE_MIN,
    POLYNOMIAL,
    INVERSE_ROOT,
    STABLE,
    MUON,
    SGD,
    CHATS,
    PAIRS,
    ADAPTER,
    OUTER,
    WORDS,
    FSDP,
    TITAN,
    SAGEMAKER,
    EPOCHS,
    USUALS
} usual_sets;

enum { USUAL_SETS = 6 };

static const char *const of_usual[USUALS][USUAL_SETS] = {
    [COSINE] = {"scheduler.type=WarmupCosineLR", "scheduler.params.warmup_num_steps=2",
                "scheduler.params.total_num_steps=8"},
    [DECAY] = {"scheduler.type=WarmupDecayLR", "scheduler.params.warmup_num_steps=2",
               "scheduler.params.total_num_steps=8"},
    [WSD] = {"scheduler.type=WSD", "scheduler.params.warmup_num_steps=1",
             "scheduler.params.decay_num_steps=2"},
    [CYCLE] = {"scheduler.type=OneCycle", "scheduler.params.cycle_min_lr=0.0001",
               "scheduler.params.cycle_max_lr=0.001", "scheduler.params.cycle_first_step_size=2",
               "scheduler.params.cycle_second_step_size=1",
               "scheduler.params.cycle_momentum=false"},
    [WAVE_MIN] = {"scheduler.type=cosine_with_min_lr", "scheduler.params.min_lr=0.0001"},
    [POLYNOMIAL] = {"scheduler.type=polynomial"},
    [INVERSE_ROOT] = {"scheduler.type=inverse_sqrt", "scheduler.params.warmup_num_steps=1"},
    [STABLE] = {"scheduler.type=warmup_stable_decay", "scheduler.params.warmup_num_steps=1",
                "scheduler.params.stable_num_steps=2", "scheduler.params.decay_num_steps=1"},
    [MUON] = {"optimizer.type=Muon"},
    [SGD] = {"optimizer.type=SGD"},
    [CHATS] = {"data.train=chats.jsonl", "data.chat_template=chat.jinja"},
    [PAIRS] = {"data.train=pairs.jsonl", "objective.type=dpo"},
    [ADAPTER] = {"adapter.r=2", "adapter.lora_alpha=4", "adapter.target_modules=[\"c_attn\"]",
                 "model.init=weights"},
    [OUTER] = {"outer.every=2", "outer.ranks=1", "sharding.params=1", "sharding.grads=1",
               "sharding.optimizer=1"},
    [WORDS] = {"zero_optimization.stage=3", "zero_optimization.mics_shard_size=2"},
    [FSDP] = {"fsdp_sharding_strategy=full_shard"},
    [TITAN] = {"data_parallel_shard_degree=2"},
    [SAGEMAKER] = {"sharded_data_parallel_degree=2"},
    [EPOCHS] = {"num_train_epochs=1"},
};

typedef struct change_row {
    const char *key, *value;
    expected outcome;
    usual_sets usual;
    const char *also; // set with it, in the second start; NULL: nothing
} change_row;

static const change_row changes[] = {
    {"model.config", "other.json", REFUSED, PLAIN, NULL},
    {"model.init", "weights", SAID, PLAIN, NULL},
    {"model.dropout", "0", SAID, PLAIN, NULL},
    {"model.trainable", "[\"*.c_attn.*\"]", REFUSED, PLAIN, NULL},
    {"adapter.r", "3", REFUSED, ADAPTER, NULL},
    {"adapter.lora_alpha", "9", REFUSED, ADAPTER, NULL},
    {"adapter.lora_dropout", "0.1", SAID, ADAPTER, NULL},
    {"adapter.target_modules", "[\"c_proj\"]", REFUSED, ADAPTER, NULL},
    {"adapter.use_rslora", "true", REFUSED, ADAPTER, NULL},
    {"adapter.modules_to_save", "[\"ln_f\"]", REFUSED, ADAPTER, NULL},
    {"adapter.init", "peft", SAID, ADAPTER, NULL},
    {"data.train", "[\"other.txt\"]", PHASE, PLAIN, NULL},
    {"data.validation", "[\"text.txt\"]", PHASE, PLAIN, NULL},
    {"data.tokenizer", "tokenizer.json", REFUSED, PLAIN, NULL},
    {"data.text_field", "other", SAME, PLAIN, NULL}, // of JSON Lines, which the corpus' hash is of
    {"data.fields", "{\"text\": \"other\"}", SAME, PLAIN, NULL},
    {"data.fields.text", "other", SAME, PLAIN, NULL},
    {"data.fields.content", "other", REFUSED, CHATS, NULL},
    {"data.chat_template", "other.jinja", PHASE, CHATS, NULL},
    {"data.template_variables", "{\"shouts\": true}", PHASE, CHATS, NULL},
    {"data.template_date", "2026-01-02", PHASE, CHATS, NULL},
    {"data.loss_on", "all", PHASE, CHATS, NULL},
    {"data.packing", "false", PHASE, CHATS, NULL},
    {"data.too_long", "drop", PHASE, CHATS, NULL},
    {"data.skip_bad_lines", "5", SAID, PLAIN, NULL},
    {"data.special_tokens", "parse", SAME, PLAIN, NULL}, // that no text names: likewise
    {"data.dtype", "uint16", SAME, PLAIN, NULL},         // of .bin files without a header: likewise
    {"data.add_special_tokens", "true", REFUSED, PLAIN, NULL},
    {"data.document_mask", "true", SAID, PLAIN, NULL},
    {"data.sequence_length", "8", PHASE, PLAIN, NULL},
    {"objective.type", "ipo", REFUSED, PAIRS, NULL},
    {"objective.beta", "0.2", SAID, PAIRS, NULL},
    {"objective.label_smoothing", "0.1", SAID, PAIRS, NULL},
    {"run.steps", "5", SAID, PLAIN, NULL},
    {"run.seed", "4", PHASE, PLAIN, NULL},
    {"run.out", "elsewhere", SAME, PLAIN, NULL}, // a run of its own: see below
    {"run.checkpoint_dir", "elsewhere", REFUSED, PLAIN, "must be as s3://BUCKET/PREFIX"},
    {"run.checkpoint_every", "1", SAME, PLAIN, NULL},
    {"run.keep_checkpoints", "1", SAME, PLAIN, NULL},
    {"run.memory_checkpoint_every", "1", SAME, PLAIN, NULL},
    {"run.grace_s", "5", SAME, PLAIN, NULL},
    {"run.max_hours", "5", SAME, PLAIN, NULL},
    {"run.check_replicas_every", "1", SAME, PLAIN, NULL},
    {"run.scrub_every", "1", SAME, PLAIN, NULL},
    {"run.on_divergence", "stop", SAME, PLAIN, NULL},
    {"run.spike_zscore", "9", SAID, PLAIN, NULL},
    {"run.on_spike", "skip", SAID, PLAIN, NULL},
    {"run.recheck", "true", SAME, PLAIN, NULL},
    {"run.straggler_warn", "0.5", SAME, PLAIN, NULL},
    {"run.validate_every", "1", SAID, PLAIN, NULL},
    {"run.keep_best", "true", SAID, PLAIN, "run.validate_every=1"},
    {"run.stop_after_no_improvement", "50", SAID, PLAIN, "run.validate_every=1"},
    {"run.validation_batches", "3", SAID, PLAIN, NULL},
    {"run.log_every", "1", SAME, PLAIN, NULL},
    {"run.sample_every", "2", SAME, PLAIN, NULL},
    {"run.sample_prompt", "lark", SAME, PLAIN, NULL},
    {"run.cluster", "ethernet-10g", SAME, PLAIN, NULL},
    {"run.min_replicas", "1", SAME, PLAIN, NULL},
    {"run.tensorboard", "board", SAME, PLAIN, NULL},
    {"run.prometheus", "node.prom", SAME, PLAIN, NULL},
    {"run.csv", "table.csv", SAME, PLAIN, NULL},
    {"run.trace_step", "4", SAME, PLAIN, NULL},
    {"run.trace_steps", "2", SAME, PLAIN, NULL},
    {"run.peak_tflops", "5", SAME, PLAIN, NULL},
    {"run.precision", "bf16", SAID, PLAIN, NULL},
    {"run.residual_dtype", "fp32", SAID, PLAIN, NULL},
    {"run.device", "auto", SAME, PLAIN, NULL},
    {"run.gemm_autotune", "true", REFUSED, PLAIN, NULL}, // for GPUs
    {"run.attention", "auto", SAME, PLAIN, NULL},
    {"run.cudnn_version", "9.19.0", SAME, PLAIN, NULL},
    {"run.graphs", "true", REFUSED, PLAIN, NULL},
    {"run.threads", "2", SAME, PLAIN, NULL},
    {"run.memory_limit", "1GiB", SAME, PLAIN, NULL},
    {"run.prefetch", "2", SAME, PLAIN, NULL},
    {"run.early_gathers", "true", SAME, PLAIN, NULL},
    {"run.layered_micro_steps", "2", SAID, PLAIN, NULL},
    {"run.collectives", "two-stage", SAID, PLAIN, NULL},
    {"run.param_persistence_threshold", "0", SAID, PLAIN, NULL},
    {"run.coalesce_below", "0", SAID, PLAIN, NULL},
    {"run.comm_dtype.params", "bf16", REFUSED, PLAIN, NULL}, // there is one node
    {"run.comm_dtype.params", "delta", REFUSED, PLAIN, NULL},
    {"run.comm_dtype.grads", "bf16", REFUSED, PLAIN, NULL},
    {"run.comm_dtype.boundary", "bf16", REFUSED, PLAIN, NULL},
    {"run.comm_dtype.bf16_intra_node", "true", SAID, PLAIN, NULL},
    {"run.recompute", "true", SAID, PLAIN, NULL},
    {"run.offload_activations", "1", REFUSED, PLAIN, NULL}, // for GPUs
    {"run.share_params", "false", SAME, PLAIN, NULL},
    {"run.comm_timeout_s", "70", SAME, PLAIN, NULL},
    {"sharding.params", "1", SAID, PLAIN, NULL},
    {"sharding.grads", "1", REFUSED, PLAIN, NULL}, // parameters would be sharded further
    {"sharding.optimizer", "1", REFUSED, PLAIN, NULL},
    {"sharding.experts", "1", SAME, PLAIN, NULL},
    {"sharding.sequence", "2", SAID, PLAIN, NULL},
    {"train_batch_size", "16", PHASE, PLAIN, "gradient_accumulation_steps=4"},
    {"train_micro_batch_size_per_gpu", "1", SAID, PLAIN, "gradient_accumulation_steps=4"},
    {"gradient_accumulation_steps", "1", SAID, PLAIN, "train_micro_batch_size_per_gpu=4"},
    {"phases", "[{\"steps\": 2}, {\"steps\": 2, \"run\": {\"seed\": 4}}]", PHASE, PLAIN, NULL},
    {"data_types.grad_accum_dtype", "fp32", SAME, PLAIN, NULL},
    {"gradient_clipping", "0.5", SAID, PLAIN, NULL},
    {"optimizer.type", "Lion", REFUSED, PLAIN, NULL},
    {"optimizer.params.lr", "0.001", SAID, PLAIN, NULL},
    {"optimizer.params.betas", "[0.8, 0.9]", SAID, PLAIN, NULL},
    {"optimizer.params.eps", "1e-6", SAID, PLAIN, NULL},
    {"optimizer.params.momentum", "0.5", SAID, SGD, NULL},
    {"optimizer.params.nesterov", "true", SAID, SGD, "optimizer.params.momentum=0.5"},
    {"optimizer.params.ns_steps", "4", SAID, MUON, NULL},
    {"optimizer.params.adjust_lr_fn", "match_rms_adamw", SAID, MUON, NULL},
    {"optimizer.params.adam_lr", "0.002", SAID, MUON, NULL},
    {"optimizer.params.state_dtype", "bf16", SAID, PLAIN, NULL},
    {"optimizer.params.weight_decay", "0.1", SAID, PLAIN, NULL},
    {"optimizer.params.adam_w_mode", "false", SAID, PLAIN, NULL},
    {"scheduler.type", "linear", PHASE, PLAIN, NULL},
    {"scheduler.params.warmup_min_lr", "0.0001", PHASE, DECAY, NULL},
    {"scheduler.params.warmup_max_lr", "0.002", PHASE, DECAY, NULL},
    {"scheduler.params.warmup_num_steps", "3", PHASE, COSINE, NULL},
    {"scheduler.params.warmup_ratio", "0.75", SAME, INVERSE_ROOT,
     NULL}, // warmup_num_steps is given
    {"scheduler.params.warmup_type", "linear", PHASE, COSINE, NULL},
    {"scheduler.params.total_num_steps", "9", PHASE, COSINE, NULL},
    {"scheduler.params.warmup_min_ratio", "0.1", PHASE, COSINE, NULL},
    {"scheduler.params.cos_min_ratio", "0.1", PHASE, COSINE, NULL},
    {"scheduler.params.decay_num_steps", "1", PHASE, WSD, NULL},
    {"scheduler.params.stable_num_steps", "1", PHASE, STABLE, NULL},
    {"scheduler.params.decay_type", "linear", PHASE, STABLE, NULL},
    {"scheduler.params.min_ratio", "0.1", PHASE, WSD, "scheduler.params.decay_num_steps=1"},
    {"scheduler.params.min_lr", "0.0002", PHASE, WAVE_MIN, NULL},
    {"scheduler.params.num_cycles", "0.4", PHASE, WAVE_MIN, NULL},
    {"scheduler.params.lr_end", "1e-4", PHASE, POLYNOMIAL, NULL},
    {"scheduler.params.power", "2", PHASE, POLYNOMIAL, NULL},
    {"scheduler.params.timescale", "3", PHASE, INVERSE_ROOT, NULL},
    {"scheduler.params.cycle_min_lr", "0.0002", PHASE, CYCLE, NULL},
    {"scheduler.params.cycle_max_lr", "0.002", PHASE, CYCLE, NULL},
    {"scheduler.params.cycle_first_step_size", "3", PHASE, CYCLE, NULL},
    {"scheduler.params.cycle_second_step_size", "2", PHASE, CYCLE, NULL},
    {"scheduler.params.decay_step_size", "1", PHASE, CYCLE, "scheduler.params.decay_lr_rate=0.5"},
    {"scheduler.params.decay_lr_rate", "0.5", PHASE, CYCLE, "scheduler.params.decay_step_size=1"},
    {"outer.every", "4", PHASE, OUTER, NULL},   // where all has met
    {"outer.ranks", "2", REFUSED, OUTER, NULL}, // all ranks
    {"outer.type", "nesterov", SAME, OUTER, NULL},
    {"outer.lr", "0.5", PHASE, OUTER, NULL},
    {"outer.momentum", "0.5", PHASE, OUTER, NULL},
    {"outer.fragments", "2", PHASE, OUTER, NULL},
    {"outer.overlap_steps", "1", PHASE, OUTER, NULL},
    {"outer.dtype", "int8", PHASE, OUTER, NULL},
    {"outer.moments_every", "2", PHASE, OUTER, NULL},
    {"zero_optimization.stage", "2", SAID, WORDS, "zero_optimization.mics_shard_size=-1"},
    {"zero_optimization.mics_shard_size", "1", SAID, WORDS, NULL},
    {"zero_optimization.mics_hierarchical_params_gather", "true", SAID_ELSE, WORDS, NULL},
    {"zero_optimization.zero_hpz_partition_size", "2", SAID, WORDS,
     "zero_optimization.mics_shard_size=-1"},
    {"zero_optimization.overlap_comm", "false", SAME, WORDS, NULL},
    {"zero_optimization.stage3_param_persistence_threshold", "0", SAID_ELSE, WORDS, NULL},
    {"sharded_data_parallel_degree", "1", SAID, SAGEMAKER, NULL},
    {"sdp_hierarchical_allgather", "true", SAID_ELSE, SAGEMAKER, NULL},
    {"hybrid_shard_degree", "2", SAID, TITAN, "data_parallel_shard_degree=null"},
    {"sdp_param_persistence_threshold", "0", SAID_ELSE, SAGEMAKER, NULL},
    {"fsdp_sharding_strategy", "no_shard", SAID, FSDP, NULL},
    {"data_parallel_shard_degree", "1", SAID, TITAN, "data_parallel_replicate_degree=2"},
    {"data_parallel_replicate_degree", "2", SAID, TITAN, "data_parallel_shard_degree=1"},
    {"bf16.enabled", "true", SAID_ELSE, PLAIN, NULL},
    {"fp16.enabled", "false", SAME, PLAIN, NULL},
    {"fp16.loss_scale", "8", SAID, PLAIN, NULL},
    {"fp16.initial_scale_power", "8", SAID, PLAIN, NULL},
    {"fp16.loss_scale_window", "8", SAID, PLAIN, NULL},
    {"fp16.hysteresis", "8", SAID, PLAIN, NULL},
    {"fp16.min_loss_scale", "2", SAID, PLAIN, NULL},
    {"fp16.consecutive_hysteresis", "true", SAID, PLAIN, NULL},
    {"num_train_epochs", "2", SAID_ELSE, EPOCHS, NULL},
    {"steps_per_print", "2", SAME, PLAIN, NULL},
    {"communication_data_type", "bf16", SAID_ELSE, PLAIN, NULL},
};

enum { FIRST_STEPS = 2, MAX_SETS = 24 };

// ---- starting ----

static void write_run(const char *path, const char *steps, const char *sharding)
{
    char text[1024];
    snprintf(
        text, sizeof text,
        "{\"model\": {\"config\": \"model.json\"}, \"data\": {\"train\": [\"text.txt\"], "
        "\"sequence_length\": 16},\n"
        "\"run\": {%s\"seed\": 3, \"validation_batches\": 2, \"threads\": 1, \"device\": \"cpu\", "
        "\"comm_timeout_s\": 60},\n"
        "%s\"train_micro_batch_size_per_gpu\": 2, \"gradient_accumulation_steps\": 2,\n"
        "\"optimizer\": {\"params\": {\"lr\": 0.003}}}\n",
        steps, sharding);
    write_file(path, text);
}

static const char *file_of(usual_sets usual)
{
    return usual == EPOCHS ? "epochs.json" : usual >= WORDS ? "words.json" : "run.json";
}

static const char *name_of(usual_sets usual)
{
    static char name[16];
    snprintf(name, sizeof name, "base-%d", (int)usual);
    return name;
}

// A start in `out` with what the base sets, and up to three sets more; it is opened, or only sized.
static mics_status start(usual_sets usual, const char *out, const char *const *more, bool sizes,
                         mics_job **job_out)
{
    const char *all[MAX_SETS];
    char out_set[64];
    int32_t count = 0;
    snprintf(out_set, sizeof out_set, "run.out=%s", out);
    all[count++] = out_set;
    for (int i = 0; i < USUAL_SETS && of_usual[usual][i] != NULL; i++)
        all[count++] = of_usual[usual][i];
    for (int i = 0; i < 3 && more[i] != NULL; i++)
        all[count++] = more[i];
    const mics_job_spec spec = {.memory = memory,
                                .file = file_of(usual),
                                .sets = all,
                                .set_count = count,
                                .ranks = RANKS,
                                .nodes = 1};
    return sizes ? mics_job_size(&spec, job_out) : mics_job_open(&spec, job_out);
}

static void run_shell(const char *command)
{
    if (system(command) != 0)
        fail_msg("%s", command);
}

static const char *const nothing[3];
static int wrongs;

// All rows are tried, whatever one of them shows.
static void wrong(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    (void)vfprintf(stderr, format, arguments);
    va_end(arguments);
    (void)fputc('\n', stderr);
    wrongs++;
}

// The first start of a base, and one in a copy of its folder that goes on without a change: once.
static void make_base(usual_sets usual)
{
    char command[256];
    mics_job *job = NULL;
    if (access(name_of(usual), F_OK) == 0)
        return;
    ASSERT_OK(start(usual, name_of(usual), nothing, false, &job));
    ASSERT_OK(mics_job_train(job, FIRST_STEPS));
    ASSERT_OK(mics_job_save(job));
    if (access("weights", F_OK) != 0)
        ASSERT_OK(mics_job_export(job, "weights", NULL));
    if (usual == ADAPTER)
        ASSERT_OK(mics_job_export(job, "peft", NULL));
    ASSERT_OK(mics_job_close(job));
    snprintf(command, sizeof command, "cp -r %s same-%d", name_of(usual), (int)usual);
    run_shell(command);
    snprintf(command, sizeof command, "same-%d", (int)usual);
    ASSERT_OK(start(usual, command, nothing, false, &job));
    ASSERT_OK(mics_job_train(job, 0));
    ASSERT_OK(mics_job_close(job));
}

// ---- a second start ----

static bool has_same_weights(usual_sets usual)
{
    char command[512];
    snprintf(command, sizeof command,
             "newest=$(ls -d same-%d/checkpoints/step-* | tail -n 1)\n"
             "for f in $newest/rank-*; do cmp -s \"$f\" \"try/checkpoints/${newest##*/}/${f##*/}\" "
             "|| exit 1; done",
             (int)usual);
    return system(command) == 0;
}

// The value is one that a run may have; else a refusal would say nothing.
static void check_value(const change_row *change, const char *const *more)
{
    mics_job *job = NULL;
    if (start(change->usual, "sized", more, true, &job) != MICS_OK)
        wrong("%s: %s is no value of a run", change->key, change->value);
    if (job != NULL)
        ASSERT_OK(mics_job_close(job));
}

static expected outcome_of(const change_row *change, const char *const *more, capture *seen)
{
    static const char phase[] = "phase 2 of 2 begins behind step 2: ";
    char command[64], line[160], begins[64];
    mics_job *job = NULL;
    snprintf(command, sizeof command, "rm -rf try elsewhere && cp -r %s try",
             name_of(change->usual));
    run_shell(command);
    capture_begin(seen);
    mics_status status = start(change->usual, "try", more, false, &job);
    if (status == MICS_OK)
        ASSERT_OK(mics_job_train(job, 0));
    if (job != NULL)
        ASSERT_OK(mics_job_close(job));
    capture_end();
    snprintf(line, sizeof line, "changed: %s ", change->key);
    if (status != MICS_OK)
        return REFUSED;
    snprintf(begins, sizeof begins, "%s ",
             strcmp(change->key, "phases") == 0 ? "run.seed" : change->key);
    const char *begun = strstr(seen->info, phase);
    if (begun != NULL && strstr(begun, begins) != NULL)
        return PHASE;
    return strstr(seen->info, line) != NULL          ? SAID
           : strstr(seen->info, "changed: ") != NULL ? SAID_ELSE
                                                     : SAME;
}

// Where this CPU has no bf16, a run goes on in fp32, with a warning.
static expected outcome_here(const change_row *change)
{
    const bool bf16 =
        strcmp(change->key, "bf16.enabled") == 0 ||
        (strcmp(change->key, "run.precision") == 0 && strcmp(change->value, "bf16") == 0);
    return bf16 && run_precision_no_bf16() != NULL ? SAME : change->outcome;
}

static void check(const change_row *change)
{
    static const char *const names[] = {"refused", "said", "said in other words", "passed over",
                                        "a phase"};
    char set[256];
    capture seen;
    snprintf(set, sizeof set, "%s=%s", change->key, change->value);
    const char *const more[] = {set, change->also, NULL};
    make_base(change->usual);
    if (change->outcome != REFUSED)
        check_value(change, more);
    const expected found = outcome_of(change, more, &seen), wanted = outcome_here(change);
    if (found != wanted)
        wrong("%s: a change is %s: %s%s", set, names[found], seen.info, seen.line);
    if (found == SAME && strcmp(change->key, "run.out") != 0 && !has_same_weights(change->usual))
        wrong("%s: another result, and no word of it", set);
}

static void test_each_key(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof changes / sizeof *changes; i++)
        check(&changes[i]);
    assert_int_equal(wrongs, 0);
}

// ---- whose folder it is ----

static mics_status train_file(const char *file, const char *out_set, int64_t steps)
{
    const char *const out_sets[] = {out_set};
    const mics_job_spec spec = {.memory = memory,
                                .file = file,
                                .sets = out_sets,
                                .set_count = out_set != NULL,
                                .ranks = RANKS,
                                .nodes = 1};
    mics_job *job = NULL;
    mics_status status = mics_job_open(&spec, &job);
    if (status == MICS_OK)
        status = mics_job_train(job, steps);
    if (status == MICS_OK && steps > 0)
        status = mics_job_save(job);
    if (job != NULL)
        ASSERT_OK(mics_job_close(job));
    return status;
}

// The usual folder has the run file's name alone, and two experiments may call theirs alike.
static void test_another_file_of_the_name(void **state)
{
    capture seen;
    (void)state;
    run_shell("mkdir one two && cp run.json one && cp run.json two");
    capture_begin(&seen);
    ASSERT_OK(train_file("one/run.json", NULL, FIRST_STEPS));
    assert_int_equal(train_file("two/run.json", NULL, 0), MICS_ERR_INVALID);
    ASSERT_SAID(&seen, "runs/run: is named after two/run.json, but another run file trained there "
                       "(../../one/run.json");
    ASSERT_OK(train_file("two/run.json", "run.out=runs/run", 3)); // that was meant
    // Moved as a whole, it is the same.
    run_shell("mkdir moved && mv one two runs moved && cp text.txt model.json moved && cd moved && "
              "mv two two.old");
    assert_int_equal(chdir("moved"), 0);
    assert_int_equal(train_file("one/run.json", NULL, 0), MICS_ERR_INVALID);
    run_shell("mv two.old two");
    ASSERT_OK(train_file("two/run.json", NULL, 0));
    capture_end();
    assert_int_equal(chdir(".."), 0);
}

// Its losses would be compared with those of another text.
static void test_other_validation_text(void **state)
{
    static const char *const validates[] = {"data.validation=[\"held.txt\"]", NULL};
    mics_job *job = NULL;
    capture seen;
    (void)state;
    run_shell("cp text.txt held.txt");
    ASSERT_OK(start(PLAIN, "held", validates, false, &job));
    ASSERT_OK(mics_job_train(job, 1));
    ASSERT_OK(mics_job_save(job));
    ASSERT_OK(mics_job_close(job));
    run_shell("tr a-m A-M <text.txt >held.txt");
    capture_begin(&seen);
    ASSERT_OK(start(PLAIN, "held", validates, false, &job));
    capture_end();
    ASSERT_OK(mics_job_close(job));
    assert_non_null(strstr(seen.info, "changed: data.validation has another text"));
}

static void count_copies(const char *of, bool there)
{
    char command[256];
    snprintf(command, sizeof command,
             "test %s -d \"$MICS_SHM_DIR/mics-$(id -u)-$(head -n 1 %s/run-id)\"", there ? "" : "!",
             of);
    run_shell(command);
}

// A copy of the folder has its ID, and must not resume from what the first one left in node memory.
static void test_copied_folder(void **state)
{
    static const char *const copies[] = {"run.memory_checkpoint_every=1", NULL};
    mics_job *job = NULL;
    capture seen;
    (void)state;
    run_shell("mkdir shm");
    assert_int_equal(setenv("MICS_SHM_DIR", "shm", 1), 0);
    ASSERT_OK(start(PLAIN, "first", copies, false, &job));
    ASSERT_OK(mics_job_train(job, 1));
    ASSERT_OK(mics_job_save(job));
    ASSERT_OK(mics_job_train(job, 2));
    run_shell("cp -r first second && cp -r shm kept"); // as if it were killed now
    ASSERT_OK(mics_job_close(job));
    run_shell("rm -rf shm && mv kept shm");
    count_copies("first", true);
    capture_begin(&seen);
    ASSERT_OK(start(PLAIN, "second", copies, false, &job));
    assert_int_equal(mics_job_facts_get(job).step, 1);
    ASSERT_OK(mics_job_close(job));
    assert_int_equal(seen.warnings, 1);
    count_copies("first", true);
    // The first one has not lost them.
    ASSERT_OK(start(PLAIN, "first", copies, false, &job));
    assert_int_equal(mics_job_facts_get(job).step, 3);
    run_shell("rm -rf kept && cp -r shm kept");
    ASSERT_OK(mics_job_close(job));
    // Unless its newest checkpoint is another run's.
    run_shell("rm -rf shm && mv kept shm && rm -rf first/checkpoints && cp -r base-0/checkpoints "
              "first/checkpoints");
    ASSERT_OK(start(PLAIN, "first", copies, false, &job));
    assert_int_equal(mics_job_facts_get(job).step, FIRST_STEPS);
    ASSERT_OK(mics_job_close(job));
    assert_int_equal(seen.warnings, 2);
    capture_end();
}

// ---- the table ----

// Who adds a key says here what a resumed run does about it.
static void test_table_has_every_key(void **state)
{
    (void)state;
    for (int32_t i = 0; i < mics_config_key_count(); i++) {
        const key *row = mics_config_key(i);
        bool found = row->type == KEY_SECTION;
        for (size_t c = 0; c < sizeof changes / sizeof *changes; c++)
            found = found || strcmp(changes[c].key, row->path) == 0;
        if (!found)
            fail_msg("%s has no row", row->path);
    }
}

// Some are longer than a sequence.
static void write_chats(void)
{
    static const char head[] = "{%- for m in messages -%}{%- if m.role == 'assistant' -%}"
                               "{%- generation -%}{{- m.content ~ ";
    static const char tail[] = " -}}{%- endgeneration -%}{%- else -%}{{- m.content ~ '|' -}}"
                               "{%- endif -%}{%- endfor -%}";
    char text[2048];
    int used = 0;
    for (int i = 0; i < 12; i++)
        used += snprintf(text + used, sizeof text - (size_t)used,
                         "{\"messages\": [{\"role\": \"user\", \"content\": \"%.*s\"}, "
                         "{\"role\": \"assistant\", \"content\": \"%.*s\"}]}\n",
                         2 + i % 3, "lark", 14 - i, "sings at heaven's gate");
    write_file("chats.jsonl", text);
    for (int i = used = 0; i < 12; i++)
        used += snprintf(text + used, sizeof text - (size_t)used,
                         "{\"prompt\": \"%.*s\", \"chosen\": \"%c\", \"rejected\": \"no\"}\n",
                         2 + i % 3, "lark", 'a' + i);
    write_file("pairs.jsonl", text);
    snprintf(text, sizeof text, "%s(strftime_now('%%d') if shouts else '') ~ strftime_now('%%d')%s",
             head, tail);
    write_file("chat.jinja", text);
    snprintf(text, sizeof text, "%s'.'%s", head, tail);
    write_file("other.jinja", text);
}

static int begin_changes(void **state)
{
    const int status = begin(state);
    write_run("run.json", "\"steps\": 4, ",
              "\"sharding\": {\"params\": 2, \"grads\": 2, \"optimizer\": 2},\n");
    write_run("words.json", "\"steps\": 4, ", "");
    write_run("epochs.json", "", "");
    write_model("other.json", 300);
    write_file("other.txt", "another text than the one that the first start read, long enough for "
                            "some windows of it\n");
    write_chats();
    return status;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_key),
        cmocka_unit_test(test_another_file_of_the_name),
        cmocka_unit_test(test_other_validation_text),
        cmocka_unit_test(test_copied_folder),
        cmocka_unit_test(test_table_has_every_key),
    };
    return cmocka_run_group_tests(tests, begin_changes, end);
}
