// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Rewrites the files of others: first what is nested or in another file, then key by key, then
// defaults.
#include "base/text.h"
#include "config/adopt_adapter.h"
#include "config/adopt_launch.h"
#include "config/adopt_program.h"
#include "config/adopt_saves.h"
#include "config/adopt_script.h"
#include "config/adopt_trainer.h"
#include "config/adopt_work.h"
#include "config/value.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { TEXT_BYTES = 4096, MAX_FILE_BYTES = 1 << 20, MAX_NESTED = 8 };

static const char deepspeed_key[] = "deepspeed";

// ---- what is nested ----

// Gives the document's root what `object` has, which stands at `source`, leaf by leaf.
static mics_status lift(config *run, const mics_json_value *object, const char *target,
                        const char *source, int32_t depth)
{
    const char *name = NULL;
    const mics_json_value *value = NULL;
    char to[CONFIG_PATH_BYTES], from[CONFIG_PATH_BYTES], text[TEXT_BYTES];
    while ((value = mics_json_next(object, &name)) != NULL) {
        mics_text_format(to, sizeof to, "%s%s%s", target, *target != '\0' ? "." : "", name);
        mics_text_format(from, sizeof from, "%s.%s", source, name);
        if (depth == 0 && strcmp(to, "optimizer") == 0)
            run->deepspeed_optimizer = true;
        const bool nested =
            mics_json_type_of(value) == MICS_JSON_OBJECT && mics_json_count(value) > 0;
        if (*name == '\0' || strchr(name, '.') != NULL ||
            strlen(target) + 1 + strlen(name) >= sizeof to)
            return mics_json_fail(run->run.json, source, MICS_ERR_INVALID,
                                  "has a key that is empty, holds a dot or is longer than any "
                                  "known key");
        if (nested && depth < MAX_NESTED) {
            MICS_TRY(lift(run, value, to, from, depth + 1)); // at most MAX_NESTED levels
            continue;
        }
        if (!mics_config_value_whole(value, text, sizeof text))
            return mics_json_fail(run->run.json, from, MICS_ERR_INVALID,
                                  "is longer than %d bytes, as no known value is", TEXT_BYTES);
        MICS_TRY(mics_adopt_put(run, to, text, from, NULL));
    }
    return MICS_OK;
}

// Another file, whose values errors speak of at the line that names it.
static mics_status lift_file(config *run, const char *path, const char *target, const char *source)
{
    mics_json *json = NULL;
    if (access(path, R_OK) != 0)
        return mics_json_fail(run->run.json, source, mics_status_of_errno(errno), "%s: %s%s", path,
                              strerror(errno),
                              *path != '/' ? "; paths are relative to the working directory" : "");
    MICS_TRY(mics_json_load(run->memory, path, MAX_FILE_BYTES, &json));
    mics_status status = MICS_OK;
    if (mics_json_type_of(mics_json_root(json)) == MICS_JSON_OBJECT)
        status = lift(run, mics_json_root(json), target, source, 0);
    else
        status =
            mics_json_fail(run->run.json, source, MICS_ERR_FORMAT, "%s must hold an object", path);
    mics_json_close(json);
    return status;
}

// An object that may also be the path of a file with it.
static mics_status lift_in_place(config *run, const char *path)
{
    const char *file = mics_json_string(mics_adopt_at(run, path));
    char name[TEXT_BYTES];
    if (file == NULL || *file == '\0')
        return MICS_OK;
    if (mics_text_format(name, sizeof name, "%s", file) >= (int)sizeof name)
        return mics_json_fail(run->run.json, path, MICS_ERR_INVALID, "is longer than any path");
    MICS_TRY(mics_json_set_from(run->run.json, path, "{}", path)); // `file` is gone then
    return lift_file(run, name, path, path);
}

static mics_status lift_at(config *run, const char *path)
{
    const mics_json_value *value = mics_adopt_at(run, path);
    if (mics_json_type_of(value) == MICS_JSON_OBJECT)
        return lift(run, value, "", path, 0);
    if (mics_json_string(value) != NULL)
        return lift_file(run, mics_json_string(value), "", path);
    return value == NULL || mics_json_type_of(value) == MICS_JSON_NULL
               ? MICS_OK
               : mics_json_fail(run->run.json, path, MICS_ERR_FORMAT,
                                "must be DeepSpeed's configuration, or the path of its file");
}

// ---- key by key ----

// Whether DeepSpeed's configuration leaves out what the argument says, which then changes nothing
// in the Trainer.
static bool is_without_effect(const config *run, const adopted_key *row)
{
    static const char of_optimizer[] = "optimizer.";
    const bool optimizer = strncmp(row->target, of_optimizer, sizeof of_optimizer - 1) == 0;
    return row->deepspeed != NULL && mics_adopt_has_deepspeed(run) &&
           !mics_adopt_has(run, row->target) && (!optimizer || run->deepspeed_optimizer);
}

static mics_status check_without_effect(config *run, const adopted_key *row,
                                        const mics_json_value *value)
{
    char text[TEXT_BYTES];
    mics_config_value_text(value, text, sizeof text);
    if (strcmp(text, row->deepspeed) == 0 ||
        (row->trainer != NULL && strtod(text, NULL) == strtod(row->trainer, NULL)))
        return MICS_OK;
    return mics_config_refuse(run, row->path, MICS_ERR_INVALID,
                              "has no effect in the Trainer, as DeepSpeed's configuration has no "
                              "%s; write it there, as \"auto\", or leave this out",
                              row->target);
}

static mics_status put_null(config *run, const adopted_key *row)
{
    return row->null != NULL && mics_json_line(run->run.json, row->path) > 0
               ? mics_adopt_put(run, row->target, row->null, row->path, row->origin)
               : MICS_OK;
}

static mics_status put_row(config *run, const adopted_key *row)
{
    const mics_json_value *value = mics_adopt_at(run, row->path);
    char text[TEXT_BYTES];
    if (mics_json_type_of(value) == MICS_JSON_NULL)
        return put_null(run, row);
    if (is_without_effect(run, row))
        return check_without_effect(run, row, value);
    if (row->by != NULL)
        return row->by(run, row, value);
    if (!mics_config_value_whole(value, text, sizeof text))
        return mics_json_fail(run->run.json, row->path, MICS_ERR_INVALID,
                              "is longer than %d bytes, as no known value is", TEXT_BYTES);
    return mics_adopt_put(run, row->target, text, row->path, row->origin);
}

// In the order in which they are put.
enum { TABLES = 8 };
static const adopted_keys *const tables[TABLES] = {
    &mics_adopt_programs, &mics_adopt_chats, &mics_adopt_script,   &mics_adopt_launch,
    &mics_adopt_trainer,  &mics_adopt_pairs, &mics_adopt_adapters, &mics_adopt_work};

const adopted_key *mics_config_adopted(const char *path)
{
    for (int t = 0; t < TABLES; t++) {
        for (size_t i = 0; i < tables[t]->count; i++) {
            if (strcmp(tables[t]->rows[i].path, path) == 0)
                return &tables[t]->rows[i];
        }
    }
    return NULL;
}

bool mics_config_is_adopted(const char *path)
{
    return strcmp(path, deepspeed_key) == 0 || mics_config_adopted(path) != NULL;
}

// DeepSpeed's file as it is, for the Trainer, which fills in what says "auto".
static bool is_for_trainer(const config *run)
{
    static const char *const keys[] = {"train_batch_size",
                                       "train_micro_batch_size_per_gpu",
                                       "gradient_accumulation_steps",
                                       "gradient_clipping",
                                       "optimizer.params.lr",
                                       "scheduler.params.warmup_num_steps"};
    bool found = false;
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        found = found || mics_adopt_is_auto(mics_adopt_at(run, keys[i]));
    return found && mics_json_line(run->run.json, "run") == 0;
}

static bool stands(const config *run, const char *path)
{
    return mics_adopt_has(run, path) && mics_json_line(run->run.json, path) > 0;
}

// Once DeepSpeed's configuration was lifted, and before arguments are put beside its values.
static void note_deepspeed(config *run, bool trainer)
{
    run->deepspeed_optimizer = run->deepspeed_optimizer || stands(run, "optimizer");
    run->by_deepspeed = !trainer || mics_adopt_has_deepspeed(run) || stands(run, "optimizer") ||
                        stands(run, "scheduler") || stands(run, "zero_optimization");
}

mics_status mics_config_adopt(config *run)
{
    const mics_json_value *root = mics_json_root(run->run.json);
    if (mics_json_type_of(root) != MICS_JSON_OBJECT)
        return MICS_OK; // mics_config_check says it better
    const bool trainer = mics_adopt_names_trainer(run->run.json),
               only_auto = !trainer && !is_for_trainer(run);
    MICS_TRY(mics_adopt_reform(run));
    MICS_TRY(mics_adopt_adapter_begin(run));
    MICS_TRY(mics_adopt_precision(run));
    MICS_TRY(lift_in_place(run, "fsdp_config"));
    MICS_TRY(lift_in_place(run, "accelerator_config"));
    MICS_TRY(lift_at(run, deepspeed_key));
    MICS_TRY(lift_at(run, "deepspeed_config.deepspeed_config_file"));
    MICS_TRY(mics_adopt_lifted_precision(run));
    note_deepspeed(run, trainer);
    for (int t = 0; t < TABLES; t++) {
        for (size_t i = 0; i < tables[t]->count; i++)
            MICS_TRY(put_row(run, &tables[t]->rows[i]));
    }
    MICS_TRY(mics_adopt_adapter_defaults(run));
    MICS_TRY(mics_adopt_program_defaults(run, trainer));
    MICS_TRY(mics_adopt_folder_defaults(run));
    MICS_TRY(mics_adopt_schedule(run, trainer));
    MICS_TRY(mics_adopt_saves(run, trainer));
    return mics_adopt_trainer_defaults(run, only_auto);
}
