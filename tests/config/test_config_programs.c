// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Files of programs around the Trainer: which one a file is for, and the defaults that it has there.
#include "base/capture.h"
#include "config/keys.h"
#include "config/run_file.h"

#define TRL(keys) FOREIGN("\"max_steps\": 9, \"packing\": true, " keys)
#define AXO(keys) FOREIGN("\"sequence_len\": 64, \"max_steps\": 9, " keys)
#define SETS(sets) AXO("\"datasets\": [" sets "]")
#define CHATS "\"path\": \"a.txt\", \"type\": \"chat_template\""
#define LF(keys) FOREIGN("\"stage\": \"sft\", \"max_steps\": 9, " keys)
#define DPO(keys) FOREIGN("\"max_steps\": 9, \"beta\": 0.2, " keys)
#define CLM(keys) FOREIGN("\"max_steps\": 9, \"block_size\": 32, " keys)

static void check_field(const char *text, const char *path, const char *name)
{
    mics_run *run = load_good(text);
    assert_string_equal(mics_json_string(mics_json_at(run->json, path)), name);
    mics_run_close(run);
}

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

static void test_trl_pairs(void **state)
{
    (void)state;
    static const char *const usual[][2] = {
        {"objective.type", "\"dpo\""}, {"objective.beta", "0.2"}, {"optimizer.params.lr", "1e-06"},
        {"run.log_every", "10"},       {"bf16.enabled", "true"},  {"run.recompute", "true"},
        {"model.dropout", "0"}};
    for (size_t i = 0; i < sizeof usual / sizeof *usual; i++)
        check_value(DPO("\"label_smoothing\": 0.0"), usual[i][0], usual[i][1]);
    check_value(DPO("\"loss_type\": \"sigmoid\""), "objective.type", "\"dpo\"");
    check_value(DPO("\"loss_type\": [\"ipo\"]"), "objective.type", "\"ipo\"");
    check_value(DPO("\"max_length\": 64"), "data.sequence_length", "64");
    check_value(DPO("\"disable_dropout\": true"), "model.dropout", "0");
    check_value(DPO("\"use_peft\": true"), "adapter.lora_dropout", "0");
    check_value(DPO("\"use_peft\": true, \"lora_dropout\": 0.3"), "adapter.lora_dropout", "0");
    check_value(DPO("\"use_peft\": true, \"lora_dropout\": 0.3, \"disable_dropout\": false"),
                "adapter.lora_dropout", "0.3");
    // SFTConfig has these keys, too.
    check_value(FOREIGN("\"max_steps\": 9, \"max_length\": 64, \"loss_type\": \"ipo\""),
                "optimizer.params.lr", "1e-06");
    // A choice may be written in any case.
    check_value(FOREIGN("\"max_steps\": 9, \"objective\": {\"type\": \"DPO\"}"), "run.log_every",
                "10");
    static const char *const bad[][2] = {
        {DPO("\"loss_type\": \"hinge\""), "loss_type: must be"},
        {DPO("\"loss_type\": [\"sigmoid\", \"sft\"]"), "loss_type: must be"},
        {DPO("\"label_smoothing\": 0.1"), "label_smoothing: has no effect"},
        {DPO("\"max_prompt_length\": 64"), "prompt and answer are cut together"},
        {DPO("\"sync_ref_model\": true"), "the reference is what training begins with"},
        {DPO("\"f_divergence_type\": \"js_divergence\""), "use \"reverse_kl\""},
        {DPO("\"truncation_mode\": \"keep_end\""), "use \"keep_start\""},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        check_refused(bad[i][0], MICS_ERR_UNSUPPORTED, bad[i][1]);
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
    check_value(AXO("\"adapter\": \"lora\", \"lora_r\": 4, \"lora_target_linear\": true"),
                "adapter.r", "4");
    check_value(AXO("\"adapter\": \"lora\", \"lora_target_modules\": [\"q_proj\"]"),
                "adapter.target_modules", "[\"q_proj\"]");
    check_refused(AXO("\"adapter\": \"qlora\""), MICS_ERR_UNSUPPORTED, "weights are not quantised");
    check_value(AXO("\"learning_rate\": 1e-4"), "data.packing", "false");
    check_value(AXO("\"sample_packing\": true"), "data.packing", "true");
    check_value(AXO("\"seed\": 1"), "data.too_long", "\"drop\"");
    check_refused(AXO("\"excess_length_strategy\": \"truncate\""), MICS_ERR_UNSUPPORTED,
                  "write \"data\": {\"too_long\"");
    check_value(AXO("\"special_tokens\": {\"pad_token\": \"x\"}"), "data.packing", "false");
    check_refused(AXO("\"special_tokens\": {\"pad_token\": \"x\", \"eos_token\": \"y\"}"),
                  MICS_ERR_UNSUPPORTED, "others than pad_token are the tokenizer's own");
    check_refused(AXO("\"train_on_inputs\": true"), MICS_ERR_UNSUPPORTED, "leave it out");
    check_value(AXO("\"chat_template\": \"chatml\""), "data.chat_template", "\"chatml\"");
    check_value(AXO("\"chat_template\": \"tokenizer_default\""), "data.chat_template", "\"auto\"");
    check_refused(AXO("\"chat_template\": \"alpaca\""), MICS_ERR_UNSUPPORTED, "not \"alpaca\"");
    check_value(AXO("\"chat_template\": \"jinja\", \"chat_template_jinja\": \"model.json\""),
                "data.chat_template", "\"model.json\"");
    check_value(AXO("\"chat_template_jinja\": \"model.json\""), "data.chat_template",
                "\"model.json\"");
    check_refused(AXO("\"chat_template_jinja\": \"{{ messages }}\""), MICS_ERR_UNSUPPORTED,
                  "a file as chat_template_jinja");
}

static void test_axolotl_datasets(void **state)
{
    (void)state;
    check_value(SETS("{" CHATS "}"), "data.chat_template", "\"auto\"");
    check_value(SETS("{" CHATS ", \"chat_template\": \"llama3\"}"), "data.chat_template",
                "\"llama3\"");
    check_value(AXO("\"datasets\": [{" CHATS "}], \"chat_template\": \"chatml\""),
                "data.chat_template", "\"chatml\"");
    // The name of a data set goes before that of the file.
    check_value(AXO("\"datasets\": [{" CHATS ", \"chat_template\": \"tokenizer_default\"}], "
                    "\"chat_template\": \"chatml\""),
                "data.chat_template", "\"auto\"");
    check_value(SETS("{\"path\": \"a.txt\", \"type\": \"completion\", \"field\": \"body\"}"),
                "data.text_field", "\"body\"");
    check_field(SETS("{" CHATS ", \"field_messages\": \"talk\"}"), "data.fields.messages", "talk");
    check_field(SETS("{" CHATS ", \"message_property_mappings\": {\"role\": \"from\"}}"),
                "data.fields.role", "from");
    check_field(SETS("{" CHATS ", \"message_field_content\": \"value\"}"), "data.fields.content",
                "value");
    check_value(SETS("{" CHATS ", \"roles_to_train\": [\"assistant\"], \"train_on_eos\": \"turn\", "
                     "\"split\": \"train\"}"),
                "data.loss_on", "\"assistant\"");
    static const char *const bad[][2] = {
        {SETS("{\"path\": \"a.txt\", \"type\": \"alpaca\"}"), "for Alpaca's words"},
        {SETS("{\"type\": \"chat_template\"}"), "each must have a \"path\""},
        {SETS("3"), "each must have a \"path\""},
        {SETS("{" CHATS ", \"roles_to_train\": [\"user\"]}"), "roles_to_train: cannot be"},
        {SETS("{" CHATS ", \"train_on_eos\": \"all\"}"), "train_on_eos: cannot be"},
        {SETS("{" CHATS ", \"split\": \"train[:1%]\"}"), "split: cannot be"},
        {SETS("{" CHATS ", \"shards\": 2}"), "shards: cannot be"},
        {SETS("{" CHATS ", \"chat_template\": \"mistral_v1\"}"), "not \"mistral_v1\""},
        {SETS("{" CHATS ", \"message_property_mappings\": {\"tool\": \"x\"}}"), "leave them out"},
        {SETS("{" CHATS "}, {" CHATS ", \"field_messages\": \"talk\"}"),
         "field_messages: cannot be"},
        {SETS("{" CHATS ", \"field_messages\": \"a\"}, {" CHATS ", \"field_messages\": \"b\"}"),
         "field_messages: cannot be"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        check_refused(bad[i][0], MICS_ERR_UNSUPPORTED, bad[i][1]);
}

static void test_trl_chats(void **state)
{
    (void)state;
    check_value(TRL("\"seed\": 1"), "data.loss_on", "\"completion\"");
    check_value(TRL("\"completion_only_loss\": true"), "data.loss_on", "\"completion\"");
    check_value(TRL("\"completion_only_loss\": null"), "data.loss_on", "\"completion\"");
    check_value(TRL("\"completion_only_loss\": false"), "data.loss_on", "\"all\"");
    check_value(TRL("\"assistant_only_loss\": false"), "data.loss_on", "\"completion\"");
    check_value(TRL("\"assistant_only_loss\": true"), "data.loss_on", "\"assistant\"");
    check_refused(TRL("\"assistant_only_loss\": 1"), MICS_ERR_FORMAT, "must be true or false");
    check_value(TRL("\"chat_template_path\": \"a.jinja\""), "data.chat_template", "\"a.jinja\"");
    check_value(TRL("\"seed\": 1"), "data.packing", "true");
    check_value(FOREIGN("\"max_steps\": 9, \"max_length\": 32"), "data.packing", "false");
    check_value(FOREIGN("\"max_steps\": 9, \"packing\": false"), "data.packing", "false");
    check_refused(TRL("\"truncation_mode\": \"keep_end\""), MICS_ERR_UNSUPPORTED, "keep_start");
    check_refused(TRL("\"eos_token\": \"x\""), MICS_ERR_UNSUPPORTED, "tokenizer_config.json");
}

static void test_llama_factory(void **state)
{
    (void)state;
    check_value(FOREIGN("\"stage\": \"pt\", \"cutoff_len\": 64, \"max_steps\": 9"),
                "data.sequence_length", "64");
    check_refused(FOREIGN("\"stage\": \"dpo\", \"max_steps\": 9"), MICS_ERR_UNSUPPORTED,
                  "must be \"pt\", for texts, or \"sft\", for chats");
    check_value(LF("\"seed\": 1"), "data.loss_on", "\"assistant\"");
    check_value(LF("\"train_on_prompt\": true"), "data.loss_on", "\"all\"");
    check_value(LF("\"mask_history\": true"), "data.loss_on", "\"last\"");
    check_value(LF("\"neat_packing\": true"), "data.packing", "true");
    check_value(LF("\"neat_packing\": true, \"packing\": true"), "data.packing", "true");
    check_value(LF("\"packing\": false"), "data.packing", "false");
    check_value(LF("\"seed\": 1"), "data.packing", "false");
    check_refused(LF("\"packing\": true"), MICS_ERR_UNSUPPORTED, "chats would see each other");
    check_refused(LF("\"template\": \"qwen\""), MICS_ERR_UNSUPPORTED, "templates are its own");
    check_value(FOREIGN("\"stage\": \"pt\", \"packing\": true, \"max_steps\": 9"), "data.packing",
                "false");
    check_value(LF("\"finetuning_type\": \"lora\", \"lora_rank\": 4"), "adapter.lora_alpha", "8");
    check_value(LF("\"finetuning_type\": \"lora\", \"lora_target\": \"q_proj,v_proj\""),
                "adapter.target_modules", "[\"q_proj\", \"v_proj\"]");
    check_refused(LF("\"finetuning_type\": \"oft\""), MICS_ERR_UNSUPPORTED, "must be \"full\"");
}

// TRL's ModelConfig.
static void test_adapters_of_trl(void **state)
{
    (void)state;
    check_value(FOREIGN("\"max_length\": 8, \"max_steps\": 9, \"use_peft\": true"), "adapter.r",
                "16");
    check_value(FOREIGN("\"max_length\": 8, \"max_steps\": 9, \"use_peft\": true"),
                "adapter.lora_alpha", "32");
    check_value(
        FOREIGN("\"max_length\": 8, \"max_steps\": 9, \"use_peft\": true, \"lora_dropout\": 0"),
        "adapter.lora_dropout", "0");
    check_refused(FOREIGN("\"max_length\": 8, \"max_steps\": 9, \"lora_alpha\": 8"),
                  MICS_ERR_INVALID, "nothing says that an adapter is trained");
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

// Files of programs that are not read are named.
static void test_unread(void **state)
{
    (void)state;
    static const char *const files[][2] = {
        {"{\"job\": {}, \"model\": {\"name\": \"llama3\"}, \"training\": {}}",
         "tell a file of torchtitan"},
        {"{\"max_duration\": \"1ep\", \"model\": {}, \"train_loader\": {}}",
         "llm-foundry (Composer)"},
        {"{\"max_duration\": 1, \"save_interval_unsharded\": 1, \"remote_save_folder\": null}",
         "OLMo"},
        {"{\"checkpointer\": {}, \"output_dir\": \"o\", \"metric_logger\": {}}", "torchtune"},
        {"{\"trainer\": {}, \"exp_manager\": {}, \"model\": {}}", "NeMo"},
        {"{\"trainer\": {}, \"actor_rollout_ref\": {}, \"algorithm\": {}}", "verl"},
        {"{\"pipe-parallel-size\": 1, \"num-layers\": 12}", "GPT-NeoX"},
        {"{\"general\": {}, \"tokens\": {}, \"parallelism\": {}}", "nanotron"},
        {"{\"out_dir\": \"o\", \"tokenizer_dir\": \"t\", \"train\": {}}", "LitGPT"},
        {"{\"max_iters\": 5, \"n_layer\": 2, \"warmup_iters\": 1}", "nanoGPT"},
        {"{\"trainer\": {}, \"seed_everything\": 1, \"model\": {}}", "Lightning"},
    };
    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        check_refused(files[i][0], MICS_ERR_FORMAT, files[i][1]);
    // One key alone is an unknown key, as it is beside a section of ours.
    check_refused(FOREIGN("\"max_steps\": 9, \"train_loader\": {}"), MICS_ERR_INVALID,
                  "train_loader: unknown key");
    check_refused(RUN_WITH("\"job\": {}, \"training\": {}"), MICS_ERR_INVALID, "unknown key");
    static const char *const scripts[][3] = {
        {"train.py", "max_iters = 5000\nblock_size = 64\n", "train.py: is a file of nanoGPT"},
        {"other.py", "print(1)\n", "other.py: is Python, and a run file is JSON or YAML"},
        {"gpt.sh", "torchrun pretrain_gpt.py --num-layers 12\n", "is a file of Megatron-LM"},
        {"any.sh", "exit 0\n", "any.sh: is a shell script"},
    };
    for (size_t i = 0; i < sizeof scripts / sizeof *scripts; i++) {
        mics_run *run = NULL;
        write_file(scripts[i][0], scripts[i][1]);
        ASSERT_STATUS(MICS_ERR_FORMAT, mics_run_load(memory, scripts[i][0], NULL, 0, &run));
        ASSERT_SAID(&seen, scripts[i][2]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_trl, setup, teardown),
        cmocka_unit_test_setup_teardown(test_trl_pairs, setup, teardown),
        cmocka_unit_test_setup_teardown(test_run_clm, setup, teardown),
        cmocka_unit_test_setup_teardown(test_trainer, setup, teardown),
        cmocka_unit_test_setup_teardown(test_axolotl, setup, teardown),
        cmocka_unit_test_setup_teardown(test_axolotl_datasets, setup, teardown),
        cmocka_unit_test_setup_teardown(test_trl_chats, setup, teardown),
        cmocka_unit_test_setup_teardown(test_llama_factory, setup, teardown),
        cmocka_unit_test_setup_teardown(test_adapters_of_trl, setup, teardown),
        cmocka_unit_test_setup_teardown(test_says_which, setup, teardown),
        cmocka_unit_test_setup_teardown(test_length, setup, teardown),
        cmocka_unit_test_setup_teardown(test_unread, setup, teardown),
    };
    return cmocka_run_group_tests(tests, group_setup, group_teardown);
}
