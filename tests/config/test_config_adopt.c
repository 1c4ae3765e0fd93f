// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Files of DeepSpeed, Hugging Face's Trainer, accelerate and torchtitan: what their values become.
#include "config/keys.h"
#include "config/run_file.h"
#include <math.h>

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
    // Of two --set neither goes before the other; before the file both do.
    const char *const sets[] = {"max_length=32", "data.sequence_length=64"};
    const char file[] = FOREIGN("\"max_steps\": 9, \"max_length\": 16");
    mics_run *run = NULL;
    ASSERT_STATUS(MICS_ERR_INVALID, mics_run_parse(memory, "run.json", file, sets, 2, &run));
    ASSERT_OK(mics_run_parse(memory, "run.json", file, sets + 1, 1, &run));
    assert_int_equal(run->sequence_length, 64);
    mics_run_close(run);
}

// ---- optimizers ----

#define OPTIMIZER(type, params)                                                                    \
    RUN_WITH("\"optimizer\": {\"type\": " type ", \"params\": {" params "}}")

static void test_optimizers(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        mics_optimizer_kind kind;
        double first, second;
    } cases[] = {
        {OPTIMIZER("\"FusedAdam\"", ""), MICS_OPTIMIZER_ADAMW, 0.9, 0.999},
        {OPTIMIZER("\"sgd\"", ""), MICS_OPTIMIZER_SGD, 0, 0},
        {RUN_WITH("\"optimizer\": {\"params\": {\"momentum\": 0.9, \"nesterov\": true}, "
                  "\"type\": \"SGD\"}"),
         MICS_OPTIMIZER_SGD, 0.9, 1},
        {OPTIMIZER("\"Lion\"", ""), MICS_OPTIMIZER_LION, 0.9, 0.99},
        {OPTIMIZER("\"FusedLion\"", "\"betas\": [0.95, 0.98]"), MICS_OPTIMIZER_LION, 0.95, 0.98},
        // The Trainer's betas and eps are AdamW's; it gives Lion its betas too, as transformers do.
        {FOREIGN("\"max_steps\": 9, \"optim\": \"sgd\", \"adam_beta1\": 0.8, "
                 "\"adam_epsilon\": 1e-6"),
         MICS_OPTIMIZER_SGD, 0, 0},
        {FOREIGN("\"max_steps\": 9, \"adam_epsilon\": 1e-6, \"optim\": \"lion_32bit\""),
         MICS_OPTIMIZER_LION, 0.9, 0.999},
        {FOREIGN("\"adam_beta1\": 0.8, \"max_steps\": 9, \"optim\": \"lion\""), MICS_OPTIMIZER_LION,
         0.8, 0.999},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        mics_run *run = load_good(cases[i].text);
        assert_int_equal(run->optimizer.kind, cases[i].kind);
        if (run->optimizer.settings[0] != cases[i].first ||
            run->optimizer.settings[1] != cases[i].second)
            fail_msg("%s: settings are %g and %g", cases[i].text, run->optimizer.settings[0],
                     run->optimizer.settings[1]);
        mics_run_close(run);
    }
    check_value(OPTIMIZER("\"SGD\"", "\"nesterov\": true, \"momentum\": 0.5"),
                "optimizer.params.nesterov", "true");
    check_value(OPTIMIZER("\"Lion\"", ""), "optimizer.params.betas", "[0.9, 0.99]");
    check_value(OPTIMIZER("\"Muon\"", ""), "optimizer.params.momentum", "0.95");
    check_value(OPTIMIZER("\"Muon\"", ""), "optimizer.params.nesterov", "true");
    check_value(OPTIMIZER("\"Muon\"", "\"adjust_lr_fn\": \"match_rms_adamw\""),
                "optimizer.params.adjust_lr_fn", "\"match_rms_adamw\"");
    static const struct {
        const char *params;
        double rate;
    } rates[] = {{"\"lr\": 0.02", 0},
                 {"\"lr\": 0.02, \"adam_lr\": 0.005", 0.25},
                 {"\"lr\": 0.02, \"adam_lr\": 0", 0},
                 {"\"adam_lr\": 0.002", 2}};
    for (size_t i = 0; i < sizeof rates / sizeof *rates; i++) {
        char text[512];
        snprintf(text, sizeof text, OPTIMIZER("\"Muon\"", "%s"), rates[i].params);
        mics_run *run = load_good(text);
        if (fabs(run->other_rate - rates[i].rate) > 1e-12)
            fail_msg("%s: other_rate is %g", rates[i].params, run->other_rate);
        mics_run_close(run);
    }
}

static void test_keys_of_other_optimizers(void **state)
{
    (void)state;
    check_refused(OPTIMIZER("\"SGD\"", "\"betas\": [0.9, 0.99]"), MICS_ERR_INVALID,
                  "optimizer.params.betas: SGD has no betas; leave it out");
    check_refused(OPTIMIZER("\"Lion\"", "\"eps\": 1e-8"), MICS_ERR_INVALID, "Lion has no eps");
    check_refused(OPTIMIZER("\"AdamW\"", "\"momentum\": 0.9"), MICS_ERR_INVALID,
                  "AdamW has no momentum");
    check_refused(OPTIMIZER("\"SGD\"", "\"adam_w_mode\": false"), MICS_ERR_INVALID,
                  "SGD has no adam_w_mode");
    check_refused(OPTIMIZER("\"SGD\"", "\"nesterov\": true"), MICS_ERR_INVALID,
                  "nesterov: needs a momentum above 0");
    check_refused(OPTIMIZER("\"Muon\"", "\"ns_steps\": 2.5"), MICS_ERR_INVALID,
                  "ns_steps: must be a whole number, not 2.5");
    check_refused(OPTIMIZER("\"Muon\"", "\"ns_coefficients\": [1, 2, 3]"), MICS_ERR_UNSUPPORTED,
                  "ns_coefficients: must be [3.4445, -4.775, 2.0315]");
    check_refused(OPTIMIZER("\"Lion\"", "\"adjust_lr_fn\": \"original\""), MICS_ERR_INVALID,
                  "Lion has no adjust_lr_fn");
    check_refused(OPTIMIZER("\"AdamW\"", "\"adam_lr\": 0.1"), MICS_ERR_INVALID,
                  "AdamW has no adam_lr");
    check_refused(OPTIMIZER("\"Muon\"", "\"lr\": 0, \"adam_lr\": 0.1"), MICS_ERR_INVALID,
                  "adam_lr: changes as lr does, which is 0; give lr too");
    check_refused(OPTIMIZER("\"SGD\"", "\"nesterov\": 1"), MICS_ERR_FORMAT, "true or false");
    check_refused(OPTIMIZER("\"SGD\"", "\"momentum\": 1"), MICS_ERR_INVALID,
                  "momentum: must be 0 to 0.9999999");
    check_refused(FOREIGN("\"max_steps\": 9, \"optim\": \"adafactor\""), MICS_ERR_UNSUPPORTED,
                  "optim: \"adafactor\" is not built");
    check_refused(OPTIMIZER("\"Muon\"", "\"state_dtype\": \"8bit\""), MICS_ERR_UNSUPPORTED,
                  "state_dtype: Muon takes its states as fp32");
    check_refused(OPTIMIZER("\"AdamW\"", "\"state_dtype\": \"int8\""), MICS_ERR_UNSUPPORTED,
                  "state_dtype: must be \"fp32\" or \"bf16\" or \"8bit\"");
    mics_run *run = load_good(OPTIMIZER("\"AdamW\"", "\"state_dtype\": \"bf16\""));
    assert_int_equal(run->state_dtype, MICS_STATE_BF16);
    mics_run_close(run);
    run = load_good(OPTIMIZER("\"SGD\"", ""));
    assert_int_equal(run->state_dtype, MICS_STATE_FP32);
    assert_null(find_row(run, "optimizer.params.betas").key);
    assert_null(find_row(run, "optimizer.params.adam_w_mode").key);
    mics_run_close(run);
}

// The Trainer's names of bitsandbytes' optimizers.
static void test_8bit_names(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        mics_optimizer_kind kind;
    } cases[] = {
        {FOREIGN("\"max_steps\": 9, \"optim\": \"adamw_8bit\""), MICS_OPTIMIZER_ADAMW},
        {FOREIGN("\"max_steps\": 9, \"optim\": \"adamw_bnb_8bit\""), MICS_OPTIMIZER_ADAMW},
        {FOREIGN("\"max_steps\": 9, \"optim\": \"paged_adamw_8bit\""), MICS_OPTIMIZER_ADAMW},
        {FOREIGN("\"max_steps\": 9, \"optim\": \"lion_8bit\""), MICS_OPTIMIZER_LION},
        {FOREIGN("\"max_steps\": 9, \"optim\": \"paged_lion_8bit\""), MICS_OPTIMIZER_LION},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        mics_run *run = load_good(cases[i].text);
        assert_int_equal(run->optimizer.kind, cases[i].kind);
        assert_int_equal(run->state_dtype, MICS_STATE_8BIT);
        mics_run_close(run);
    }
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
    check_refused(BESIDE(", \"adam_beta1\": 0.9, \"adam_beta2\": 0.95",
                         "\"optimizer\": {\"type\": \"AdamW\"}"),
                  MICS_ERR_INVALID, "adam_beta2: has no effect in the Trainer");
    check_value(BESIDE(", \"learning_rate\": 1e-3, \"adam_epsilon\": 1e-8",
                       "\"optimizer\": {\"type\": \"AdamW\"}"),
                "optimizer.params.lr", "0.001");
    check_value(BESIDE(", \"max_grad_norm\": 1.0", "\"zero_optimization\": {\"stage\": 2}"),
                "gradient_clipping", "0"); // as each dumped file has it
    check_value(BESIDE(", \"max_grad_norm\": 2", ""), "gradient_clipping", "2"); // none
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

// ---- values ----

static void test_odd_values(void **state)
{
    (void)state;
    static const struct {
        const char *more, *part;
    } cases[] = {
        {"\"max_steps\": 9, \"warmup_steps\": \"2\"", "warmup_steps: must be a number"},
        {"\"max_steps\": 9, \"warmup_ratio\": \"0.1\"", "warmup_ratio: must be a number"},
        {"\"max_steps\": 0.5", "max_steps: must be 1 or more steps"},
        {"\"num_train_epochs\": 2, \"save_steps\": 0.1", "save_steps: is a share of all steps"},
        {"\"num_train_epochs\": 2, \"logging_steps\": 0.1", "logging_steps: is a share"},
        {"\"max_steps\": 9, \"gradient_checkpointing\": \"true\"",
         "gradient_checkpointing: must be true or false"},
        {"\"max_steps\": 9, \"use_cpu\": \"true\"", "use_cpu: must be true or false"},
        {"\"max_steps\": 9, \"tf32\": \"true\"", "tf32: must be true or false"},
        {"\"max_steps\": 9, \"bf16\": \"true\"", "bf16: must be true or false"},
        {"\"max_steps\": 9, \"activation_checkpointing\": \"true\"",
         "activation_checkpointing: must be true or false"},
        {"\"max_steps\": 9, \"fsdp\": 1", "fsdp: must be true, false"},
        {"\"max_steps\": 9, \"fsdp\": [1]", "fsdp: must be true, false"},
        {"\"max_steps\": 9, \"fsdp_config\": {\"activation_checkpointing\": \"true\"}",
         "fsdp_config.activation_checkpointing: must be true or false"},
        {"\"max_steps\": 9, \"accelerator_config\": {\"split_batches\": true}",
         "accelerator_config.split_batches: must be false"},
        {"\"max_steps\": 9, \"accelerator_config\": {\"gradient_accumulation_kwargs\": "
         "{\"num_steps\": 4}}",
         "write gradient_accumulation_steps"},
        {"\"max_steps\": 9, \"accelerator_config\": {\"split\": true}",
         "is no key of accelerate's"},
        {"\"max_steps\": 9, \"accelerator_config\": \"a.json\"", "a.json: No such file"},
        {"\"max_steps\": 9, \"fsdp_config\": \"a.json\"", "a.json: No such file"},
        {"\"max_steps\": 9, \"fsdp_config\": 3", "must be an object"},
        {"\"max_steps\": 9, \"dtype\": 1, \"packing\": 1", "packing: must be true or false"},
        {"\"max_steps\": 9, \"use_peft\": 1", "use_peft: must be true or false"},
        {"\"max_steps\": 9, \"lora_r\": 8", "lora_r: has no effect"},
        {"\"max_steps\": 9, \"use_peft\": true, \"use_dora\": true",
         "use_dora: cannot be honoured"},
        {"\"max_steps\": 9, \"adapter\": \"qlora\"", "must be \"lora\" or an object"},
        {"\"max_steps\": 9, \"finetuning_type\": \"freeze\"", "must be \"full\" or \"lora\""},
        {"\"max_steps\": 9, \"validation_split_percentage\": 10", "must be 5, not 10"},
        {"\"max_steps\": 9, \"parallelism_config\": \"a.json\"", "must be an object"},
        {"\"max_steps\": 9, \"parallelism_config\": 8", "must be an object"},
        {"\"max_steps\": 9, \"parallelism_config\": []", "must be an object"},
        {"\"max_steps\": 9, \"parallelism\": {\"tensor_degree\": 2}",
         "parallelism.tensor_degree: is no key of torchtitan's"},
        {"\"max_steps\": 9, \"parallelism\": {\"fsdp_reshard_after_forward\": \"sometimes\"}",
         "must be \"default\" or \"always\""},
        {"\"max_steps\": 9, \"optimizer\": {\"params\": {\"torch_adam\": true, \"lr\": 1e-3}}",
         "optimizer.params.torch_adam: is torch's AdamW"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[512];
        mics_run *run = NULL;
        snprintf(text, sizeof text, FOREIGN("%s"), cases[i].more);
        assert_int_not_equal(load(text, &run), MICS_OK);
        ASSERT_SAID(&seen, cases[i].part);
    }
}

// Model and data as training scripts name them; what --model and --data say goes before.
static void test_scripts(void **state)
{
    (void)state;
    static const char script[] = "{\"config_name\": \"model.json\", \"train_file\": \"a.txt\", "
                                 "\"block_size\": 16, \"max_steps\": 9}";
    static const char hub[] = "{\"model_name_or_path\": \"openai/gpt2\", \"max_steps\": 9,\n"
                              "\"dataset_name\": \"wikitext\", \"dataset_text_field\": \"body\"}";
    static const char both[] = "{\"config_name\": \"model.json\", \"model_name_or_path\": \"old\", "
                               "\"train_file\": \"a.txt\", \"block_size\": 16, \"max_steps\": 9}";
    check_value(script, "model.config", "\"model.json\"");
    check_value(script, "model.init", "\"random\"");
    check_value(both, "model.config", "\"model.json\"");
    check_value(both, "model.init", "\"old\"");
    check_value(script, "data.train", "[\"a.txt\"]");
    check_value(script, "data.sequence_length", "16");
    check_value(script, "run.seed", "42");
    check_refused(hub, MICS_ERR_UNSUPPORTED, "run.json:2: dataset_name: data sets are not");
    const char *const sets[] = {"model.config=model.json", "data.train=[\"a.txt\"]"};
    mics_run *run = NULL;
    ASSERT_OK(mics_run_parse(memory, "run.json", hub, sets, 2, &run));
    assert_string_equal(run->model_config, "model.json");
    assert_string_equal(run->model_init, "random");
    assert_string_equal(run->text_field, "body");
    mics_run_close(run);
    run = NULL;
    ASSERT_STATUS(MICS_ERR_IO, mics_run_parse(memory, "run.json", hub, sets + 1, 1, &run));
    ASSERT_SAID(&seen, "run.json:1: model_name_or_path: openai/gpt2: No such file");
}

// A configuration alone brings no weights, and an argument model_type makes no configuration.
static void test_models_of_scripts(void **state)
{
    (void)state;
    static const char named[] = "{\"model_name_or_path\": \"model.json\", \"train_file\": "
                                "\"a.txt\", \"block_size\": 16, \"max_steps\": 9}";
    static const char typed[] = "{\"model_type\": \"gpt2\", \"config_name\": \"model.json\", "
                                "\"train_file\": \"a.txt\", \"block_size\": 16, \"max_steps\": 9}";
    check_value(named, "model.config", "\"model.json\"");
    check_value(named, "model.init", "\"random\"");
    check_value(typed, "run.steps", "9");
    const char *const sets[] = {"data.train=[\"a.txt\"]"};
    mics_run *run = NULL;
    write_file("typed.json", typed);
    ASSERT_OK(mics_run_load(memory, "typed.json", sets, 1, &run));
    assert_int_equal(run->steps, 9);
    mics_run_close(run);
}

#define MUON(params) OPTIMIZER("\"Muon\"", params)

// Muon's rate goes before lr, which the rest keeps.
static void test_rates_of_muon(void **state)
{
    (void)state;
    check_value(MUON("\"lr\": 0.001, \"muon_lr\": 0.02"), "optimizer.params.lr", "0.02");
    check_value(MUON("\"lr\": 0.001, \"muon_lr\": 0.02"), "optimizer.params.adam_lr", "0.001");
    check_value(MUON("\"lr\": 0.001, \"muon_lr\": 0.02, \"adam_lr\": 0.003"),
                "optimizer.params.adam_lr", "0.003");
    check_value(MUON("\"muon_lr\": 0.02"), "optimizer.params.lr", "0.02");
    check_refused(OPTIMIZER("\"AdamW\"", "\"muon_lr\": 0.02"), MICS_ERR_INVALID,
                  "is for optimizer.type \"Muon\" alone");
    check_refused(MUON("\"muon_lr\": true"), MICS_ERR_INVALID, "must be a number");
}

// What is said of an optimizer that is not built is one thing, not one a parameter.
static void test_parameters_of_a_refused_optimizer(void **state)
{
    (void)state;
    check_refused(OPTIMIZER("\"OneBitAdam\"", "\"lr\": 1, \"freeze_step\": 400, \"cuda_aware\": 1"),
                  MICS_ERR_UNSUPPORTED, "optimizer.type: must be \"Adam\"");
    check_refused(OPTIMIZER("\"AdamW\"", "\"freeze_step\": 400"), MICS_ERR_INVALID,
                  "freeze_step: unknown key");
    check_refused(RUN_WITH("\"optim\": \"rmsprop_bnb_8bit\""), MICS_ERR_UNSUPPORTED,
                  "optim: \"rmsprop_bnb_8bit\" is not built; adamw_torch");
}

// Degrees of 1 are what is built.
static void test_degrees(void **state)
{
    (void)state;
    check_value(RUN_WITH("\"tensor_parallel\": {\"autotp_size\": 1}"), "run.seed", "1");
    check_value(RUN_WITH("\"tensor_parallel_degree\": 1, \"partitions\": 1"), "run.seed", "1");
    check_value(RUN_WITH("\"pipeline\": {\"seed_layers\": true, \"stages\": 1}"), "run.seed", "1");
    check_refused(RUN_WITH("\"tensor_parallel\": {\"autotp_size\": 4}"), MICS_ERR_UNSUPPORTED,
                  "tensor parallelism is not built");
    check_refused(RUN_WITH("\"tensor_parallel_degree\": 2"), MICS_ERR_UNSUPPORTED,
                  "only data parallelism is built; use 1");
    check_refused(RUN_WITH("\"pipeline\": {\"stages\": 2}"), MICS_ERR_UNSUPPORTED,
                  "pipelines are not built");
}

// A section that is the path of a file, also one in YAML.
static void test_files_of_sections(void **state)
{
    (void)state;
    write_file("fsdp.json", "{\"fsdp_sharding_strategy\": \"SHARD_GRAD_OP\", "
                            "\"activation_checkpointing\": true}");
    write_file("ds.yaml", "gradient_clipping: 0.5\nzero_optimization:\n  stage: 2\n");
    write_file("bad.yaml", "gradient_clipping: [\n");
    check_value(FOREIGN("\"max_steps\": 9, \"fsdp\": true, \"fsdp_config\": \"fsdp.json\""),
                "run.recompute", "true");
    check_value(FOREIGN("\"max_steps\": 9, \"fsdp_config\": \"fsdp.json\""),
                "fsdp_sharding_strategy", "\"shard_grad_op\"");
    check_value(FOREIGN("\"max_steps\": 9, \"deepspeed\": \"ds.yaml\""), "gradient_clipping",
                "0.5");
    check_refused(FOREIGN("\"max_steps\": 9, \"deepspeed\": \"bad.yaml\""), MICS_ERR_FORMAT,
                  "bad.yaml:2:1: did not find");
    check_refused(FOREIGN("\"max_steps\": 9,\n\"deepspeed\": \"none.json\""), MICS_ERR_IO,
                  "run.json:3: deepspeed: none.json: No such file or directory; paths are");
    check_refused(FOREIGN("\"max_steps\": 9, \"fsdp_config\": \"ds.yaml\""), MICS_ERR_INVALID,
                  "fsdp_config.gradient_clipping: is no key of FSDP's");
}

static void test_values_that_are_taken(void **state)
{
    (void)state;
    check_value(FOREIGN("\"max_steps\": 25, \"save_steps\": 0.1"), "run.checkpoint_every", "3");
    check_value(FOREIGN("\"max_steps\": 25, \"save_steps\": 5"), "run.checkpoint_every", "5");
    check_value(FOREIGN("\"max_steps\": 9, \"save_total_limit\": -1"), "run.keep_checkpoints", "0");
    check_value(FOREIGN("\"max_steps\": 9, \"save_total_limit\": 3"), "run.keep_checkpoints", "3");
    check_value(FOREIGN("\"max_steps\": 9, \"amp\": {\"enabled\": \"auto\"}"), "run.steps", "9");
    check_value(FOREIGN("\"max_steps\": 9, \"accelerator_config\": {\"split_batches\": false, "
                        "\"even_batches\": true, \"gradient_accumulation_kwargs\": null}"),
                "run.steps", "9");
    check_value(FOREIGN("\"max_steps\": 9, \"parallelism\": {\"data_parallel_shard_degree\": 1, "
                        "\"fsdp_reshard_after_forward\": \"always\", "
                        "\"pipeline_parallel_schedule\": \"1F1B\"}"),
                "run.steps", "9");
    check_value(FOREIGN("\"max_steps\": 9, \"optimizer\": {\"params\": {\"torch_adam\": true, "
                        "\"lr\": 1e-3, \"weight_decay\": 0.01}}"),
                "optimizer.params.weight_decay", "0.01");
}

// Paths are held whole, or refused.
static void test_long_paths(void **state)
{
    (void)state;
    enum { HELD = 600, REFUSED = 1100 };
    char folder_name[REFUSED + 1], text[2 * REFUSED];
    memset(folder_name, 'a', REFUSED);
    folder_name[HELD] = '\0';
    snprintf(text, sizeof text,
             FOREIGN("\"max_steps\": 9, \"report_to\": \"tensorboard\", \"logging_dir\": \"%s\""),
             folder_name);
    mics_run *run = load_good(text);
    assert_string_equal(run->tensorboard, folder_name);
    mics_run_close(run);
    folder_name[HELD] = 'a';
    folder_name[REFUSED] = '\0';
    snprintf(text, sizeof text,
             FOREIGN("\"max_steps\": 9, \"report_to\": \"tensorboard\", \"logging_dir\": \"%s\""),
             folder_name);
    check_refused(text, MICS_ERR_INVALID, "gives a path of more than 1024 bytes");
}

// What report_to names and nobody sends to is among the keys without effect.
static void test_reports(void **state)
{
    (void)state;
    static const char *const values[] = {"\"none\"", "\"tensorboard\"", "\"wandb\"",
                                         "[\"tensorboard\", \"wandb\"]", "\"mlflow\""};
    char text[256];
    for (int i = 0; i < 5; i++) {
        bool named = false;
        snprintf(text, sizeof text, FOREIGN("\"max_steps\": 9, \"report_to\": %s"), values[i]);
        mics_run *run = load_good(text);
        for (int32_t r = 0; r < mics_run_row_count(run); r++) {
            const mics_run_row row = mics_run_row_at(run, r);
            named = named || (row.hint && strcmp(row.key, i < 4 ? "wandb" : "mlflow") == 0);
        }
        assert_int_equal(named, i >= 2);
        mics_run_close(run);
    }
}

// ---- names ----

// accelerate's sizes, and DeepSpeed's names without stage3_ and of old.
static void test_other_names(void **state)
{
    (void)state;
    check_value(
        FOREIGN(
            "\"max_steps\": 2000, \"parallelism_config\": {\"dp_shard_size\": 8, \"tp_size\": 1}"),
        "data_parallel_shard_degree", "8");
    check_value(FOREIGN("\"max_steps\": 2000, \"parallelism_config\": {\"dp_replicate_size\": 4}"),
                "data_parallel_shard_degree", "1");
    check_value(
        FOREIGN(
            "\"max_steps\": 2000, \"parallelism_config\": {\"dp_shard_size\": 1, \"cp_size\": 1}"),
        "run.steps", "2000");
    check_value(
        FOREIGN(
            "\"max_steps\": 2000, \"parallelism_config\": {\"dp_shard_size\": 2, \"sp_size\": 4}"),
        "sharding.sequence", "4");
    check_value(FOREIGN("\"max_steps\": 2000, \"context_parallel_size\": 2"), "sharding.sequence",
                "2");
    check_refused(FOREIGN("\"max_steps\": 2000, \"parallelism_config\": {\"tp_size\": 2}"),
                  MICS_ERR_UNSUPPORTED, "must be 1");
    check_value(
        FOREIGN("\"max_steps\": 2000, \"zero_optimization\": {\"param_persistence_threshold\": 7}"),
        "run.param_persistence_threshold", "7");
    check_refused(
        FOREIGN("\"max_steps\": 2000, \"gradient_allreduce_op\": \"sum\", \"no_such_key\": 1"),
        MICS_ERR_UNSUPPORTED, "2 keys cannot be honoured");
}

// DeepSpeed's old name of bf16, where it may stand; and tf32 beside 16 bits.
static void test_old_precision(void **state)
{
    (void)state;
    check_value(FOREIGN("\"max_steps\": 2000, \"bfloat16\": {\"enabled\": true}"), "bf16.enabled",
                "true");
    check_value(FOREIGN("\"max_steps\": 2000, \"deepspeed\": {\"bfloat16\": {\"enabled\": true}}"),
                "bf16.enabled", "true");
    check_value(FOREIGN("\"max_steps\": 2000, \"bf16\": true, "
                        "\"deepspeed\": {\"bfloat16\": {\"enabled\": \"auto\"}}"),
                "bf16.enabled", "true");
    write_file("own.json", "{\"bfloat16\": {\"enabled\": true}}");
    check_value(FOREIGN("\"max_steps\": 2000, \"deepspeed\": \"own.json\""), "bf16.enabled",
                "true");
    remove("own.json");
    check_refused(FOREIGN("\"max_steps\": 2000, \"bfloat16\": {\"enabled\": \"true\"}"),
                  MICS_ERR_FORMAT, "bfloat16.enabled: must be true or false");
    check_refused(
        FOREIGN("\"max_steps\": 2000, \"deepspeed\": {\"bfloat16\": {\"enabled\": \"true\"}}"),
        MICS_ERR_FORMAT, "bfloat16.enabled: must be true or false");
    check_refused(FOREIGN("\"max_steps\": 2000, \"bfloat16\": true"), MICS_ERR_FORMAT,
                  "must be an object");
    check_refused(
        FOREIGN("\"max_steps\": 2000, \"bfloat16\": {\"enabled\": true, \"no_such_key\": 1}"),
        MICS_ERR_INVALID, "no_such_key");
    check_value(
        FOREIGN(
            "\"max_steps\": 2000, \"tf32\": true, \"deepspeed\": {\"bf16\": {\"enabled\": true}}"),
        "bf16.enabled", "true");
    check_value(FOREIGN("\"max_steps\": 2000, \"tf32\": true"), "run.precision", "\"tf32\"");
}

static void check_resume(const char *text, const char *resume)
{
    mics_run *run = load_good(text);
    assert_string_equal(run->resume != NULL ? run->resume : "(NULL)", resume);
    mics_run_close(run);
}

// What would change what is computed.
static void test_work(void **state)
{
    (void)state;
    static const char dump[] =
        FOREIGN("\"max_steps\": 9, \"do_train\": false, \"do_eval\": false, \"do_predict\": "
                "false, \"ignore_data_skip\": false, \"eval_delay\": 0, \"data_seed\": null, "
                "\"resume_from_checkpoint\": null, \"train_sampling_strategy\": \"random\"");
    check_value(dump, "run.validation_batches", "8");
    check_resume(dump, "(NULL)");
    check_value(FOREIGN("\"max_steps\": 9, \"do_eval\": true"), "run.validation_batches", "8");
    check_value(FOREIGN("\"max_steps\": 9, \"do_eval\": false"), "run.validation_batches", "0");
    check_value(FOREIGN("\"max_steps\": 9, \"do_eval\": false, \"eval_strategy\": \"no\""),
                "run.validation_batches", "0");
    check_value(FOREIGN("\"max_steps\": 9, \"do_eval\": false, \"eval_strategy\": \"epoch\""),
                "run.validation_batches", "8");
    check_value(FOREIGN("\"max_steps\": 9, \"data_seed\": 42"), "run.seed", "42");
    check_value(FOREIGN("\"max_steps\": 9, \"data_seed\": 3, \"seed\": 3"), "run.seed", "3");
    check_resume(FOREIGN("\"max_steps\": 9, \"resume_from_checkpoint\": true"), "auto");
    check_resume(FOREIGN("\"max_steps\": 9, \"resume_from_checkpoint\": false"), "none");
    check_resume(FOREIGN("\"max_steps\": 9, \"resume_from_checkpoint\": \"old\""), "old");
    static const char *const bad[][2] = {
        {"\"do_train\": false", "do_train: must be true"},
        {"\"do_predict\": true", "mics generate writes texts"},
        {"\"data_seed\": 3", "data_seed: must be as seed, 42"},
        {"\"data_seed\": 42, \"seed\": 3", "data_seed: must be as seed, 3"},
        {"\"ignore_data_skip\": true", "use false"},
        {"\"group_by_length\": true", "samples are drawn whatever their length"},
        {"\"train_sampling_strategy\": \"sequential\"", "must be \"random\", not \"sequential\""},
        {"\"eval_delay\": 5", "validations begin before"},
        {"\"max_eval_samples\": 5", "run.validation_batches says how much"},
        {"\"model_revision\": \"v2\"", "hf://ORG/NAME@REVISION"},
        {"\"keep_linebreaks\": false", "texts keep their line breaks"},
        {"\"is_encoder_decoder\": true", "are not built"},
        {"\"fsdp_config\": {\"mixed_precision_policy\": \"bf16\"}", "write mixed_precision"},
    };
    char text[512];
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        snprintf(text, sizeof text, FOREIGN("\"max_steps\": 9, %s"), bad[i][0]);
        check_refused(text, MICS_ERR_UNSUPPORTED, bad[i][1]);
    }
    check_refused(FOREIGN("\"max_steps\": 9, \"resume_from_checkpoint\": 3"), MICS_ERR_FORMAT,
                  "must be true, false or");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_says_the_same_twice, setup, teardown),
        cmocka_unit_test_setup_teardown(test_contradicts, setup, teardown),
        cmocka_unit_test_setup_teardown(test_optimizers, setup, teardown),
        cmocka_unit_test_setup_teardown(test_keys_of_other_optimizers, setup, teardown),
        cmocka_unit_test_setup_teardown(test_8bit_names, setup, teardown),
        cmocka_unit_test_setup_teardown(test_one_cycle, setup, teardown),
        cmocka_unit_test_setup_teardown(test_defaults_beside_deepspeed, setup, teardown),
        cmocka_unit_test_setup_teardown(test_without_effect_in_the_trainer, setup, teardown),
        cmocka_unit_test_setup_teardown(test_null_norm_is_no_clipping, setup, teardown),
        cmocka_unit_test_setup_teardown(test_own_file_with_arguments, setup, teardown),
        cmocka_unit_test_setup_teardown(test_set_arguments, setup, teardown),
        cmocka_unit_test_setup_teardown(test_warmup_beside_deepspeed, setup, teardown),
        cmocka_unit_test_setup_teardown(test_odd_values, setup, teardown),
        cmocka_unit_test_setup_teardown(test_scripts, setup, teardown),
        cmocka_unit_test_setup_teardown(test_models_of_scripts, setup, teardown),
        cmocka_unit_test_setup_teardown(test_rates_of_muon, setup, teardown),
        cmocka_unit_test_setup_teardown(test_parameters_of_a_refused_optimizer, setup, teardown),
        cmocka_unit_test_setup_teardown(test_degrees, setup, teardown),
        cmocka_unit_test_setup_teardown(test_files_of_sections, setup, teardown),
        cmocka_unit_test_setup_teardown(test_values_that_are_taken, setup, teardown),
        cmocka_unit_test_setup_teardown(test_long_paths, setup, teardown),
        cmocka_unit_test_setup_teardown(test_reports, setup, teardown),
        cmocka_unit_test_setup_teardown(test_other_names, setup, teardown),
        cmocka_unit_test_setup_teardown(test_old_precision, setup, teardown),
        cmocka_unit_test_setup_teardown(test_work, setup, teardown),
    };
    return cmocka_run_group_tests(tests, group_setup, group_teardown);
}
