// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// A program is told by two keys that are unknown here, so no file is refused that was read.
//
// Source: the sample files of torchtitan, llm-foundry, OLMo, torchtune, LitGPT, NeMo, verl, GPT-NeoX,
// nanotron, nanoGPT and Lightning.
#include "config/unread.h"
#include "base/file.h"
#include "base/text.h"
#include "mics/log.h"
#include <string.h>

enum { MAX_KEYS = 8, ENOUGH = 2, MAX_SCRIPT_BYTES = 1 << 20 };

#define OF_TITAN                                                                                   \
    "\"parallelism\" fits a run file; docs/migrating.md, \"torchtitan and FSDP2\", has the rest"
#define OTHERS "docs/migrating.md, \"Other programs\", says what to write"

static const struct {
    const char *name, *advice;
    const char *const keys[MAX_KEYS];
} programs[] = {
    {"torchtitan",
     OF_TITAN,
     {"job", "training", "metrics", "profiling", "activation_checkpoint", "comm"}},
    {"OLMo",
     OTHERS,
     {"save_interval_unsharded", "save_interval_ephemeral", "remote_save_folder",
      "save_num_checkpoints_to_keep", "no_pre_train_checkpoint"}},
    {"llm-foundry (Composer)",
     OTHERS,
     {"max_duration", "train_loader", "eval_loader", "global_train_batch_size",
      "device_train_microbatch_size", "device_eval_batch_size", "eval_interval", "max_seq_len"}},
    {"torchtune",
     OTHERS,
     {"checkpointer", "metric_logger", "max_steps_per_epoch", "enable_activation_checkpointing",
      "enable_activation_offloading", "clip_grad_norm"}},
    {"verl", OTHERS, {"actor_rollout_ref", "reward_model", "algorithm", "critic"}},
    {"NeMo", OTHERS, {"exp_manager", "trainer", "restore_from_path"}},
    {"GPT-NeoX",
     OTHERS,
     {"pipe_parallel_size", "pipe-parallel-size", "model_parallel_size", "model-parallel-size",
      "train_iters", "train-iters", "num_layers", "num-layers"}},
    {"nanotron", OTHERS, {"general", "tokens", "data_stages", "checkpoints", "s3_upload"}},
    {"LitGPT",
     OTHERS,
     {"out_dir", "initial_checkpoint_dir", "tokenizer_dir", "logger_name", "lora_query",
      "devices"}},
    {"nanoGPT",
     OTHERS,
     {"max_iters", "eval_iters", "warmup_iters", "lr_decay_iters", "always_save_checkpoint",
      "wandb_log"}},
    {"Lightning", OTHERS, {"trainer", "seed_everything", "ckpt_path"}},
};

enum { PROGRAMS = sizeof programs / sizeof *programs };

mics_status mics_config_check_program(const mics_json *json)
{
    for (int i = 0; i < PROGRAMS; i++) {
        const char *first = NULL, *second = NULL;
        for (int k = 0; k < MAX_KEYS && programs[i].keys[k] != NULL && second == NULL; k++) {
            const char *key = programs[i].keys[k];
            if (mics_json_at(json, key) == NULL || mics_json_line(json, key) == 0)
                continue;
            second = first != NULL ? key : NULL;
            first = first != NULL ? first : key;
        }
        if (second != NULL)
            return mics_json_fail(json, first, MICS_ERR_FORMAT,
                                  "this key and %s tell a file of %s; such files are not read; %s",
                                  second, programs[i].name, programs[i].advice);
    }
    return MICS_OK;
}

// ---- by the name ----

static const struct {
    const char *end, *kind;
    const char *name, *const words[MAX_KEYS]; // of a program whose files have two of these words
    const char *advice;
} scripts[] = {
    {".py",
     "Python",
     "nanoGPT",
     {"max_iters", "eval_iters", "warmup_iters", "always_save_checkpoint", "wandb_log",
      "block_size", "n_layer"},
     OTHERS},
    {".sh",
     "a shell script",
     "Megatron-LM",
     {"--tensor-model-parallel-size", "--pipeline-model-parallel-size", "--num-layers",
      "--hidden-size", "pretrain_gpt", "--micro-batch-size"},
     "docs/migrating.md, \"Megatron-LM\", has its flags"},
};

static bool has_words(const char *text, const char *const *words)
{
    int found = 0;
    for (int i = 0; i < MAX_KEYS && words[i] != NULL; i++)
        found += strstr(text, words[i]) != NULL;
    return found >= ENOUGH;
}

static mics_status check_words(mics_memory *memory, const char *path, size_t i)
{
    char *text = NULL;
    size_t bytes = 0;
    MICS_TRY(mics_file_read_whole(memory, path, MAX_SCRIPT_BYTES, &text, &bytes));
    const bool known = has_words(text, scripts[i].words);
    mics_free(memory, text);
    return known
               ? mics_fail(MICS_ERR_FORMAT, "%s: is a file of %s; such files are not read; %s",
                           path, scripts[i].name, scripts[i].advice)
               : mics_fail(MICS_ERR_FORMAT,
                           "%s: is %s, and a run file is JSON or YAML; docs/migrating.md says what "
                           "to write for other programs' files",
                           path, scripts[i].kind);
}

mics_status mics_config_check_script(mics_memory *memory, const char *path)
{
    if (mics_text_ends(path, ".toml"))
        return mics_fail(MICS_ERR_FORMAT,
                         "%s: TOML is not read; torchtitan's degrees go as they are into a run "
                         "file in JSON or YAML, as \"parallelism\": {...}; docs/migrating.md, "
                         "\"torchtitan and FSDP2\", has the other keys",
                         path);
    for (size_t i = 0; i < sizeof scripts / sizeof *scripts; i++) {
        if (mics_text_ends(path, scripts[i].end))
            return check_words(memory, path, i);
    }
    return MICS_OK;
}
