// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Checkpoints of runs that trained a part of their model: the rest is in the folder that they began with.
#include "import.h"
#include "mics/log.h"
#include "saved.h"
#include <errno.h>
#include <string.h>
#include <unistd.h>

// Dropout is training's alone.
mics_status run_saved_add_adapter(mics_saved *saved)
{
    saved->peft.spec.dropout = 0;
    MICS_TRY(mics_model_add_lora(saved->model, &saved->peft.spec));
    return mics_model_freeze(saved->model, NULL, -1);
}

// What the run froze is in the folder that it began with.
static mics_status open_base(mics_saved *saved, const char *stored)
{
    const char *base = saved->base != NULL ? saved->base : stored;
    if (base == NULL || strcmp(base, "random") == 0)
        return mics_fail(MICS_ERR_UNSUPPORTED,
                         "%s: holds what was trained alone, and the rest began at random: no "
                         "folder has it",
                         saved->path);
    if (access(base, F_OK) != 0)
        return mics_fail(mics_status_of_errno(errno),
                         "%s: holds what was trained alone, and its base %s: %s; --base FOLDER "
                         "says where that is now",
                         saved->path, base, strerror(errno));
    if (saved->base == NULL)
        MICS_TRY(mics_strdup(saved->memory, base, &saved->base));
    return run_import_open(saved->memory, saved->model, saved->base, &saved->weights);
}

static mics_status freeze(mics_saved *saved, const mics_json *run)
{
    const char **patterns = NULL;
    int32_t count = 0;
    MICS_TRY(mics_peft_modules(saved->memory, run, "model.trainable", &patterns, &count));
    const mics_status status = mics_model_freeze(saved->model, patterns, count);
    mics_free(saved->memory, patterns);
    return status;
}

mics_status run_saved_open_base(mics_saved *saved, const mics_json *run)
{
    const mics_json_value *adapter = mics_json_at(run, "adapter");
    const bool adapts = mics_json_type_of(adapter) == MICS_JSON_OBJECT,
               freezes = mics_json_count(mics_json_at(run, "model.trainable")) > 0;
    if (adapts) {
        MICS_TRY(mics_peft_init_stored(saved->memory, saved->path, adapter, &saved->peft));
        MICS_TRY(run_saved_add_adapter(saved));
    } else if (freezes) {
        MICS_TRY(freeze(saved, run));
    } else if (saved->base != NULL) {
        return mics_fail(MICS_ERR_INVALID,
                         "%s: holds the whole model, and no adapter that would need a base",
                         saved->path);
    }
    return adapts || freezes ? open_base(saved, mics_json_string(mics_json_at(run, "model.init")))
                             : MICS_OK;
}
