// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// A model's folder with weights stands for them; and what a start from weights has other defaults of.
#include "base/file.h"
#include "base/text.h"
#include "config/keys.h"
#include "io/remote/remote.h"
#include <string.h>
#include <sys/stat.h>

// The usual rate of random weights spoils others in the first steps. Source: TRL 1.16, SFTConfig.
#define LR_OF_WEIGHTS 2e-5
// Of matrices that begin at 0. Source: Hu et al., LoRA, 2021, arXiv:2106.09685, table 11 (GPT-2, GPT-3).
#define LR_OF_ADAPTER 2e-4
// Of pairs of answers; of an adapter's ten times that. Source: TRL 1.16, DPOConfig.
#define LR_OF_PAIRS 1e-6

mics_status mics_run_find_weights(mics_memory *memory, const char *folder, const char **name_out)
{
    static const char *const names[] = {"model.safetensors", "model.safetensors.index.json",
                                        "pytorch_model.bin", "pytorch_model.bin.index.json",
                                        MICS_STEP_MANIFEST};
    *name_out = NULL;
    for (size_t i = 0; i < sizeof names / sizeof *names && *name_out == NULL; i++) {
        char *file = NULL;
        MICS_TRY(mics_file_join(memory, folder, names[i], &file));
        const bool is = mics_file_is_there(file) || mics_remote_awaits(memory, folder, names[i]);
        mics_free(memory, file);
        *name_out = is ? names[i] : NULL;
    }
    return MICS_OK;
}

void mics_run_folder_of(const char *path, char folder[MICS_FOLDER_BYTES])
{
    struct stat found;
    const char *slash = strrchr(path, '/');
    const bool is = stat(path, &found) == 0 && S_ISDIR(found.st_mode);
    const int bytes = is                              ? MICS_FOLDER_BYTES
                      : slash != NULL && slash > path ? (int)(slash - path)
                                                      : 1;
    mics_text_format(folder, MICS_FOLDER_BYTES, "%.*s", bytes, is || slash != NULL ? path : ".");
}

static bool is_absent(const config *run, const char *path)
{
    return run->states[mics_config_find(path)] == KEY_ABSENT;
}

// A resumed run has its texts as they were: those of older versions without what stands around them,
// those whose folder has lost its weights with it.
static void open_special_tokens(config *run)
{
    static const char path[] = "data.add_special_tokens";
    const mics_json_value *stored = run->kept != NULL ? mics_json_at(run->kept, path) : NULL;
    if (!is_absent(run, path))
        return;
    run->run.add_special_tokens = stored == NULL || mics_json_bool(stored);
    run->run.special_tokens_open = run->run.add_special_tokens;
    if (run->run.add_special_tokens)
        mics_config_set_origin(run, path, "auto: where the tokenizer puts something around a text");
}

static void open_lr(config *run)
{
    static const char path[] = "optimizer.params.lr";
    if (!is_absent(run, path))
        return;
    const bool adapts = run->run.lora.rank > 0, pairs = strcmp(run->objective, "lm") != 0;
    run->lr = adapts ? LR_OF_ADAPTER : LR_OF_WEIGHTS;
    if (pairs)
        run->lr = adapts ? 10 * LR_OF_PAIRS : LR_OF_PAIRS;
    mics_config_set_origin(run, path,
                           pairs    ? "auto: of pairs of answers"
                           : adapts ? "auto: of an adapter"
                                    : "auto: of a start from weights");
    mics_text_format(run->weights_text, sizeof run->weights_text,
                     "starts from weights and says no optimizer.params.lr: %g is taken%s%s",
                     run->lr, pairs ? ", as of pairs" : "",
                     adapts  ? ", as it is an adapter's"
                     : pairs ? ""
                             : ", and 1e-3 for random ones");
}

// Also where model.config names the file.
static mics_status find_beside(config *run, const char *model)
{
    char folder[MICS_FOLDER_BYTES];
    const char *name = NULL;
    mics_run_folder_of(model, folder);
    if (strcmp(model, MICS_MODEL_OF_PROGRAM) != 0)
        MICS_TRY(mics_run_find_weights(run->memory, folder, &name));
    run->run.weights_beside = name != NULL;
    return MICS_OK;
}

mics_status mics_config_take_weights(config *run, const char *model)
{
    run->run.init_open = is_absent(run, "model.init");
    run->run.model_folder = run->config_path != NULL;
    run->weights_text[0] = '\0';
    MICS_TRY(find_beside(run, model));
    if (run->run.init_open && run->run.model_folder && run->run.weights_beside) {
        run->run.model_init = model;
        mics_config_set_origin(run, "model.init", "auto: the weights in model.config's folder");
    }
    if (strcmp(run->run.model_init, "random") == 0 && run->kept == NULL)
        return MICS_OK;
    open_special_tokens(run);
    open_lr(run);
    return MICS_OK;
}
