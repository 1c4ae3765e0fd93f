// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Checkpoints of runs that trained a part of their model: the rest is in the folder that they began with, or
// was drawn.
#include "base.h"
#include "import.h"
#include "mics/builder.h"
#include "mics/log.h"
#include "saved.h"
#include <errno.h>
#include <string.h>
#include <unistd.h>

enum { WINDOW_ELEMS = 1 << 20 };

// Dropout is training's alone.
mics_status run_saved_add_adapter(mics_saved *saved)
{
    mics_lora_spec spec = saved->peft.spec;
    spec.dropout = 0;
    return mics_model_add_lora(saved->model, &spec);
}

static mics_status hash_unit(const mics_saved *saved, const mics_unit *unit, float *window,
                             uint64_t *hash)
{
    for (int64_t at = 0; at < unit->elems; at += WINDOW_ELEMS) {
        const int64_t end = at + WINDOW_ELEMS < unit->elems ? at + WINDOW_ELEMS : unit->elems;
        const mics_range range = {at, end};
        memset(window, 0, (size_t)(end - at) * sizeof *window); // gaps between parameters
        MICS_TRY(run_import_read(unit, saved->weights, false, range, window));
        *hash += run_import_hash(unit, range, window);
    }
    return MICS_OK;
}

// The weights that the run trained on are those that are there.
static mics_status check_base(const mics_saved *saved)
{
    const uint64_t before = saved->meta->base_hash;
    float *window = NULL;
    uint64_t hash = 0;
    mics_status status = MICS_OK;
    MICS_TRY(MICS_NEW(saved->memory, WINDOW_ELEMS, &window));
    for (int32_t u = 0; u < saved->model->unit_count && before != 0 && status == MICS_OK; u++) {
        if (saved->model->units[u].frozen)
            status = hash_unit(saved, &saved->model->units[u], window, &hash);
    }
    mics_free(saved->memory, window);
    if (status != MICS_OK || hash == before)
        return status;
    return run_base_differs(saved->path, before, saved->base, hash);
}

// What the run froze is in the folder that it began with.
static mics_status open_base(mics_saved *saved, const char *stored)
{
    const bool drawn = stored == NULL || strcmp(stored, "random") == 0;
    if (drawn && saved->base != NULL)
        return mics_fail(
            MICS_ERR_INVALID,
            "%s: was trained on random weights, which are in no folder; they are drawn "
            "again: give it alone, without a base",
            saved->path);
    if (drawn)
        return MICS_OK;
    if (saved->base == NULL)
        MICS_TRY(mics_strdup(saved->memory, stored, &saved->base));
    if (saved->alone)
        return MICS_OK;
    if (access(saved->base, F_OK) != 0)
        return mics_fail(mics_status_of_errno(errno),
                         "%s: holds what was trained alone, and its base %s: %s; --base FOLDER "
                         "says where that is now",
                         saved->path, saved->base, strerror(errno));
    MICS_TRY(run_import_open(saved->memory, saved->model, saved->base, &saved->weights));
    return check_base(saved);
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
