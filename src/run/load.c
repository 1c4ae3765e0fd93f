// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Opening a checkpoint in one process.
#include "load.h"
#include "files.h"
#include "job.h"
#include "mics/device.h"
#include "mics/log.h"
#include "mics/size.h"
#include <string.h>

// Neither what was trained on nor what was validated on is a text.
static bool only_shards(const mics_json *run)
{
    const mics_json_value *const lists[] = {mics_json_at(run, "data.train"),
                                            mics_json_at(run, "data.validation")};
    bool shards = mics_json_count(lists[0]) > 0;
    for (int list = 0; list < 2; list++) {
        for (int32_t i = 0; i < mics_json_count(lists[list]); i++) {
            const char *path = mics_json_string(mics_json_element(lists[list], i));
            shards = shards && path != NULL && run_is_shard(path);
        }
    }
    return shards;
}

// What the run says: its data, and its sequences, which may use fewer positions than the model has.
static mics_status read_run(run_saved *saved)
{
    mics_json *run = NULL;
    const char *text = saved->meta->run_json;
    saved->sequence = saved->model->positions;
    if (text == NULL)
        return MICS_OK;
    MICS_TRY(mics_json_parse(saved->memory, saved->path, text, strlen(text), &run));
    int64_t trained = mics_json_int(mics_json_at(run, "data.sequence_length"));
    saved->only_shards = only_shards(run);
    mics_json_close(run);
    if (trained > 0 && trained < saved->sequence)
        saved->sequence = trained;
    return MICS_OK;
}

mics_status run_saved_init(mics_memory *memory, const char *path, run_saved *saved_out)
{
    *saved_out = (run_saved){.memory = memory};
    MICS_TRY(run_checkpoint_find(memory, path, &saved_out->path));
    MICS_TRY(mics_checkpoint_open(memory, saved_out->path, &saved_out->checkpoint));
    saved_out->meta = mics_checkpoint_meta_get(saved_out->checkpoint);
    const char *config = saved_out->meta->model_json;
    MICS_TRY(mics_json_parse(memory, saved_out->path, config, strlen(config), &saved_out->config));
    // Only training has dropout.
    MICS_TRY(mics_model_from_config(memory, saved_out->config, true, &saved_out->model));
    MICS_TRY(read_run(saved_out));
    if (run_tokens_unknown(saved_out->meta->tokenizer, saved_out->only_shards,
                           saved_out->model->vocab))
        return MICS_OK;
    return mics_tokenizer_open(memory, saved_out->meta->tokenizer, &saved_out->tokenizer);
}

void run_saved_fini(run_saved *saved)
{
    if (saved->params != NULL) {
        for (int32_t unit = 0; unit < saved->model->unit_count; unit++)
            mics_free(saved->memory, saved->params[unit]);
    }
    mics_free(saved->memory, saved->params);
    mics_tokenizer_close(saved->tokenizer);
    mics_model_close(saved->model);
    mics_json_close(saved->config);
    mics_checkpoint_close(saved->checkpoint);
    mics_free(saved->memory, saved->path);
    *saved = (run_saved){0};
}

mics_status run_saved_speak(mics_status status)
{
    if (status == MICS_ERR_FORMAT)
        mics_log_add("restore it, or give another step's folder (RUN/checkpoints/step-N)");
    mics_log_release(status != MICS_OK, -1);
    return status;
}

static mics_status check_fits(const run_saved *saved)
{
    mics_machine machine;
    double bytes = 0;
    char needed[32], there[32];
    MICS_TRY(mics_machine_read(&machine));
    for (int32_t unit = 0; unit < saved->model->unit_count; unit++)
        bytes += (double)saved->model->units[unit].elems * (double)sizeof(float);
    if (bytes <= (double)machine.memory_available_bytes)
        return MICS_OK;
    return mics_fail(MICS_ERR_MEMORY, "%s: the model needs %s of memory, %s are available",
                     saved->path, mics_size_text(bytes, needed, sizeof needed),
                     mics_size_text((double)machine.memory_available_bytes, there, sizeof there));
}

mics_status run_saved_read_params(run_saved *saved)
{
    const mics_model *model = saved->model;
    void *block = NULL;
    MICS_TRY(check_fits(saved));
    MICS_TRY(mics_alloc(saved->memory, MICS_MEM_HOST,
                        (size_t)model->unit_count * sizeof *saved->params, &block));
    saved->params = block;
    for (int32_t unit = 0; unit < model->unit_count; unit++) {
        const mics_unit *of = &model->units[unit];
        void *params = NULL;
        size_t bytes = 0;
        MICS_TRY(mics_size_bytes(of->elems, sizeof(float), &bytes));
        MICS_TRY(mics_alloc(saved->memory, MICS_MEM_PARAMS, bytes, &params));
        saved->params[unit] = params;
        MICS_TRY(mics_checkpoint_read(saved->checkpoint, of->name, of->elems, MICS_STATE_PARAMS, 0,
                                      of->elems, params));
    }
    return MICS_OK;
}
