// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// What a resumed run computes otherwise than the one that its checkpoint is of: values of keys, and
// the learning rate that follows from several.
#include "base/text.h"
#include "config/keys.h"
#include "config/value.h"
#include "mics/log.h"
#include <math.h>
#include <string.h>

enum { PHASE_BYTES = 1024 };

static bool is_null(const mics_json_value *value)
{
    return mics_json_type_of(value) == MICS_JSON_NULL;
}

// Numbers of a scheduler or optimizer that the run does not have, and keys that an earlier version
// did not know and the run file does not give, say nothing that another line does not.
static bool is_telling(const config *run, int32_t index, const mics_json_value *before,
                       const mics_json_value *after)
{
    const key *row = mics_config_key(index);
    if (strncmp(row->path, "sharding.", 9) == 0)
        return !is_null(before) && !is_null(after); // else other words have a line
    if ((row->flags & KEY_SCHEDULERS) != 0 || strncmp(row->path, "optimizer.params.", 17) == 0)
        return !is_null(after) && (!is_null(before) || run->states[index] != KEY_ABSENT);
    return !is_null(before) || run->states[index] != KEY_ABSENT;
}

// Keys of the phase that begins there are added to `phase`, for a line of its own.
static void log_key(const config *run, int32_t index, const mics_json *stored, const mics_json *own,
                    char *phase)
{
    const key *row = mics_config_key(index);
    const mics_json_value *before = mics_json_at(stored, row->path);
    const mics_json_value *after = mics_json_at(own, row->path);
    const bool of_phase = phase != NULL && mics_run_phase_gives(&run->run, row->path);
    const size_t used = of_phase ? strlen(phase) : 0;
    char texts[2][VALUE_TEXT_BYTES] = {"none", "none"};
    if ((row->flags & (KEY_KEPT | KEY_TOLD | KEY_FIXED)) == 0 ||
        ((row->flags & KEY_FIXED) != 0 && !of_phase) || mics_json_is_same(before, after) ||
        !is_telling(run, index, before, after))
        return;
    if (!is_null(before))
        mics_config_value_text(before, texts[0], sizeof texts[0]);
    if (!is_null(after))
        mics_config_value_text(after, texts[1], sizeof texts[1]);
    if (of_phase)
        mics_text_format(phase + used, PHASE_BYTES - used, "%s %s -> %s, ", row->path, texts[0],
                         texts[1]);
    else
        mics_log(MICS_LOG_INFO, "changed: %s %s -> %s%s", row->path, texts[0], texts[1],
                 mics_text_ends(row->path, ".init") ? "; weights are the checkpoint's" : "");
}

static void log_phase(const mics_run *run, const char *keys)
{
    mics_log(MICS_LOG_INFO,
             "phase %d of %d begins behind step %lld: %soptimizer state kept; %s sample %lld",
             (int)run->phase + 1, (int)run->phase_count, (long long)run->phase_begin, keys,
             run->phase_orders ? "its own order begins at" : "the order of samples goes on at",
             (long long)run->phase_sample);
}

// Takes a resolved run as a run of its own; NULL: it names files that are gone.
static mics_run *run_of(const config *run, const mics_json *resolved)
{
    mics_run *taken = NULL;
    char model[4096];
    mics_text_format(model, sizeof model, "model.config=%s", run->run.model_config);
    const char *const sets[] = {model};
    const bool muted = mics_log_mute(true);
    if (mics_run_parse(run->memory, mics_json_name(resolved), mics_json_text(resolved), sets, 1,
                       &taken) != MICS_OK)
        taken = NULL;
    if (taken != NULL) { // of the phase that it had come to
        mics_run_enter(taken, run->step);
        if (mics_run_keep(taken, mics_json_name(resolved), "{}") != MICS_OK) {
            mics_run_close(taken);
            taken = NULL;
        }
    }
    mics_log_mute(muted);
    return taken;
}

static void log_rate(const config *run, const mics_json *stored, int64_t step)
{
    static const double LEAST = 1e-4;
    mics_run *before = run_of(run, stored);
    if (before == NULL)
        return;
    const double was = mics_run_lr_at(before, step), is = mics_run_lr_at(&run->run, step);
    mics_run_close(before);
    if (fabs(is - was) > LEAST * fmax(was, is))
        mics_log(MICS_LOG_INFO, "changed: learning rate of step %lld: %.3g -> %.3g",
                 (long long)step, was, is);
}

mics_status mics_run_log_changes(const mics_run *public_run, const char *name,
                                 const char *stored_text, const char *own_text, int64_t step)
{
    const config *run = (const config *)public_run; // invariant 1 of keys.h
    mics_json *stored = NULL, *own = NULL;
    mics_status status = MICS_OK;
    MICS_TRY_OUT(mics_json_parse(run->memory, name, stored_text, strlen(stored_text), &stored));
    MICS_TRY_OUT(mics_json_parse(run->memory, name, own_text, strlen(own_text), &own));
    const bool begins = run->run.phase > 0 && run->run.phase_begin == step - 1;
    char phase[PHASE_BYTES] = "";
    for (int32_t i = 0; i < mics_config_key_count(); i++)
        log_key(run, i, stored, own, begins ? phase : NULL);
    if (begins)
        log_phase(&run->run, phase);
    if (!begins || !mics_run_phase_gives(&run->run, "scheduler"))
        log_rate(run, stored, step);
out:
    mics_json_close(own);
    mics_json_close(stored);
    return status;
}
