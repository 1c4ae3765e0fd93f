// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// The rows of `mics explain`: every key that has a say in this run, its value and its origin.
#include "base/text.h"
#include "config/keys.h"
#include "config/value.h"
#include <ctype.h>
#include <stdio.h>
#include <string.h>

static bool starts_with(const char *text, const char *start)
{
    return strncmp(text, start, strlen(start)) == 0;
}

static bool is_degree(const key *row)
{
    return starts_with(row->path, "sharding.");
}

// Said beside the sharding, in whatever words.
static bool is_sequence(const key *row)
{
    return strcmp(row->path, "sharding.sequence") == 0;
}

// Keys that say nothing in this run: sections, what another scheduler takes, ways of saying the
// sharding that were not chosen, hints that were not given.
static bool has_row(const config *run, int32_t index)
{
    const key *row = mics_config_key(index);
    if (row->type == KEY_SECTION || !mics_config_is_of_optimizer(run, row))
        return false;
    if (starts_with(row->path, "adapter.") || strcmp(row->path, "model.trainable") == 0)
        return starts_with(row->path, "adapter.") ? run->run.lora.rank > 0
                                                  : run->trainable.count > 0;
    if (starts_with(row->path, "outer.") && run->states[index] == KEY_ABSENT)
        return run->run.outer.every > 0;
    if (strcmp(row->path, "scheduler.params.warmup_num_steps") == 0 && run->warmup_ratio > 0.0 &&
        run->run.steps == MICS_STEPS_UNKNOWN)
        return false; // warmup_ratio says it, and the steps are not counted yet
    if (run->states[index] != KEY_ABSENT || is_degree(row))
        return true;
    if (row->bytes == 0 || (row->flags & KEY_OTHERS) != 0 ||
        strcmp(row->path, "scheduler.type") == 0 || strcmp(row->path, "steps_per_print") == 0 ||
        strcmp(row->path, "model.dropout") == 0 ||
        strcmp(row->path, "communication_data_type") == 0 || starts_with(row->path, "bf16.") ||
        strcmp(row->path, "fp16.enabled") == 0)
        return false;
    if (starts_with(row->path, "fp16."))
        return run->run.precision == MICS_RUN_PRECISION_FP16;
    if ((row->flags & KEY_SCHEDULERS) != 0)
        return (row->flags & (1 << (8 + run->run.lr.kind))) != 0;
    return !starts_with(row->path, "zero_optimization.") && !starts_with(row->path, "sdp_") &&
           strcmp(row->path, "sharded_data_parallel_degree") != 0 &&
           strcmp(row->path, "hybrid_shard_degree") != 0;
}

static void number_text(const key *row, const void *field, size_t bytes, char *text,
                        size_t capacity)
{
    if (row->type == KEY_SWITCH)
        snprintf(text, capacity, "%s", *(const bool *)field ? "true" : "false");
    else if (row->type == KEY_REAL)
        mics_text_real(*(const double *)field, text, capacity);
    else
        snprintf(text, capacity, "%lld",
                 bytes == sizeof(int32_t) ? (long long)*(const int32_t *)field
                                          : (long long)*(const int64_t *)field);
}

// The value of a key without a field, as it stands in the file: always whole JSON, because resolved
// runs are read again. Only an object of another engine can be too long; null says the same there.
static void unstored_text(const config *run, const char *path, char *text, size_t capacity)
{
    if (!mics_config_value_whole(mics_json_at(run->run.json, path), text, capacity))
        snprintf(text, capacity, "null");
}

static void settings_text(const config *run, const key *row, char *text, size_t capacity)
{
    const int32_t first = mics_config_setting(run, row), count = row->count;
    const double *settings = run->run.optimizer.settings + first;
    char pair[2][40];
    if (mics_optimizer_def_get(run->run.optimizer.kind)->setting[first].is_switch)
        snprintf(text, capacity, "%s", settings[0] != 0 ? "true" : "false");
    else if (count == 1)
        mics_text_real(settings[0], text, capacity);
    else
        snprintf(text, capacity, "[%s, %s]", mics_text_real(settings[0], pair[0], sizeof pair[0]),
                 mics_text_real(settings[1], pair[1], sizeof pair[1]));
}

void mics_config_field_text(const config *run, const key *row, char *text, size_t capacity)
{
    const void *field = (const char *)run + (row->show_bytes != 0 ? row->show_at : row->at);
    size_t bytes = row->show_bytes != 0 ? row->show_bytes : row->bytes;
    char words[MICS_RECOMPUTE_BYTES];
    switch (row->type) {
    case KEY_TEXT:
    case KEY_CHOICE:
        mics_config_string_text(*(const char *const *)field, text, capacity);
        break;
    case KEY_TEXTS:
        mics_config_strings_text(((const text_list *)field)->texts,
                                 ((const text_list *)field)->count, text, capacity);
        break;
    case KEY_SOURCES:
        mics_config_sources_text(((const text_list *)field)->texts,
                                 ((const text_list *)field)->weights,
                                 ((const text_list *)field)->count, text, capacity);
        break;
    case KEY_RECOMPUTE:
        mics_recompute_text(run->run.recompute, run->run.recompute_open, words);
        if (strcmp(words, "true") == 0 || strcmp(words, "false") == 0 ||
            isdigit((unsigned char)words[0]))
            snprintf(text, capacity, "%s", words);
        else
            mics_config_string_text(words, text, capacity);
        break;
    case KEY_SETTINGS:
        settings_text(run, row, text, capacity);
        break;
    default:
        number_text(row, field, bytes, text, capacity);
        break;
    }
}

// What counts epochs and follows from them, before the data is known.
static bool is_of_unknown_steps(const config *run, const char *path)
{
    if (strcmp(path, "run.checkpoint_every") == 0)
        return run->run.checkpoint_every == MICS_STEPS_UNKNOWN;
    if (strcmp(path, "run.validate_every") == 0)
        return run->run.validate_every == MICS_STEPS_UNKNOWN;
    static const char *const paths[] = {"scheduler.params.total_num_steps",
                                        "scheduler.params.decay_num_steps",
                                        "scheduler.params.stable_num_steps"};
    bool found = false;
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++)
        found = found || strcmp(path, paths[i]) == 0;
    return found && run->run.steps == MICS_STEPS_UNKNOWN && !mics_config_valued(run, path);
}

static void value_text(const config *run, const key *row, char *text, size_t capacity)
{
    if (row->show_bytes == 0 && row->bytes == 0)
        unstored_text(run, row->path, text, capacity);
    else
        mics_config_field_text(run, row, text, capacity);
    if (row->type == KEY_PHASES) // cut where it is long: run_json.c has the whole
        mics_config_value_text(mics_json_at(run->run.json, row->path), text, capacity);
    if (strcmp(row->path, "run.steps") == 0 && run->run.steps == MICS_STEPS_UNKNOWN)
        snprintf(text, capacity, "\"auto\""); // not settled yet
    if (is_of_unknown_steps(run, row->path))
        snprintf(text, capacity, "\"auto\""); // nor this
    if (strcmp(row->path, "run.layered_micro_steps") == 0 && run->run.layered_micro_steps == 0)
        snprintf(text, capacity, "\"auto\""); // not settled yet
}

static const char *origin_text(const config *run, int32_t index)
{
    const key *row = mics_config_key(index);
    if (is_degree(row) && !is_sequence(row) && run->sharding_origin != NULL)
        return run->sharding_origin;
    if (run->origins[index] != NULL)
        return run->origins[index];
    switch ((key_state)run->states[index]) {
    case KEY_FROM_FILE:
        return "file";
    case KEY_FROM_SET:
        return "--set";
    case KEY_FROM_FILE_AUTO:
    case KEY_FROM_SET_AUTO:
        return row->automatic != NULL ? row->automatic : "auto: its default";
    case KEY_FROM_CHECKPOINT:
        return "checkpoint";
    case KEY_ABSENT:
        break;
    }
    return row->automatic != NULL ? row->automatic : "default";
}

static mics_run_row own_row(const config *run, int32_t index)
{
    const key *row = mics_config_key(index);
    mics_run_row shown = {.key = row->path, .origin = origin_text(run, index), .help = row->help};
    value_text(run, row, shown.value, sizeof shown.value);
    return shown;
}

static const char *foreign_origin(key_state state)
{
    return state == KEY_FROM_FILE ? "file" : state == KEY_FROM_SET ? "--set" : "auto: its default";
}

static mics_run_row foreign_row(const config *run, int32_t index)
{
    const foreign_key row = mics_config_foreign(index);
    mics_run_row shown = {.key = row.path,
                          .origin = foreign_origin((key_state)run->foreign_states[index]),
                          .help = row.why,
                          .hint = row.only == NULL};
    unstored_text(run, row.path, shown.value, sizeof shown.value);
    return shown;
}

int32_t mics_run_row_count(const mics_run *public_run)
{
    const config *run = (const config *)public_run; // invariant 1 of keys.h
    int32_t rows = 0;
    for (int32_t i = 0; i < mics_config_key_count(); i++)
        rows += has_row(run, i) ? 1 : 0;
    for (int32_t i = 0; i < CONFIG_MAX_FOREIGN; i++)
        rows += run->foreign_states[i] != KEY_ABSENT ? 1 : 0;
    return rows;
}

mics_run_row mics_run_row_at(const mics_run *public_run, int32_t index)
{
    const config *run = (const config *)public_run; // invariant 1 of keys.h
    for (int32_t i = 0; i < mics_config_key_count(); i++) {
        if (has_row(run, i) && index-- == 0)
            return own_row(run, i);
    }
    for (int32_t i = 0; i < CONFIG_MAX_FOREIGN; i++) {
        if (run->foreign_states[i] != KEY_ABSENT && index-- == 0)
            return foreign_row(run, i);
    }
    return (mics_run_row){.key = "", .origin = "", .help = ""};
}
