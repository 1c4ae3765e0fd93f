// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Keys by the names that they had once: in a run file they are errors that say what to write, in
// stored text they are translated.
#include "config/renamed.h"
#include "config/keys.h"
#include "config/value.h"
#include <stdio.h>
#include <string.h>
#include <strings.h>

enum { VALUE_BYTES = 64 };

#define INTRA_KEY "run.comm_dtype.bf16_intra_node"
#define INTER_NOTE "it is for links between nodes; inside nodes: " INTRA_KEY
#define INTRA_NOTE "inside nodes " INTRA_KEY " is for parameters and gradients alike"

static const renamed_key rows[] = {
    {"run.breadth", "run.layered_micro_steps", RENAMED_AS_IT_IS, NULL},
    {"run.whole_below", "run.param_persistence_threshold", RENAMED_AS_IT_IS, NULL},
    {"run.join_below", "run.coalesce_below", RENAMED_AS_IT_IS, NULL},
    {"run.time_products", "run.gemm_autotune", RENAMED_AS_IT_IS, NULL},
    {"run.files_timeout_s", NULL, RENAMED_GONE,
     "ranks wait for files for an hour, or for 12 times run.comm_timeout_s where that is longer"},
    {"run.wire", "run.comm_dtype", RENAMED_SECTION, NULL},
    {"run.wire.gather", "run.comm_dtype.params", RENAMED_AS_IT_IS, INTER_NOTE},
    {"run.wire.reduce", "run.comm_dtype.grads", RENAMED_AS_IT_IS, INTER_NOTE},
    {"run.wire.second_hop", "run.comm_dtype.boundary", RENAMED_AS_IT_IS, INTER_NOTE},
    {"run.wire.gather_inside", INTRA_KEY, RENAMED_BF16_SWITCH, INTRA_NOTE},
    {"run.wire.reduce_inside", INTRA_KEY, RENAMED_BF16_SWITCH, INTRA_NOTE},
    {"run.wire.second_hop_inside", INTRA_KEY, RENAMED_BF16_SWITCH, INTRA_NOTE},
};

// Texts that a key took once, and what says it now: gathers by a timing, or by the MPI library.
static const struct {
    const char *path, *old_text, *new_text;
} texts[] = {
    {"run.collectives", "measured", "auto"},
    {"run.collectives", "library", "two-stage"},
};

const char *mics_config_renamed_text(const char *path, const char *text)
{
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        if (strcmp(texts[i].path, path) == 0 && strcasecmp(texts[i].old_text, text) == 0)
            return texts[i].new_text;
    }
    return NULL;
}

const renamed_key *mics_config_renamed(int32_t *count_out)
{
    *count_out = sizeof rows / sizeof *rows;
    return rows;
}

// ---- in a run file ----

// "run": {"comm_dtype": {"params": "bf16"}}, or for what was set run.comm_dtype.params="bf16".
static void write_form(const char *path, const char *value, bool was_set, char *text,
                       size_t capacity)
{
    size_t used = 0, depth = 0;
    if (was_set) {
        snprintf(text, capacity, "--set %s=%s", path, value);
        return;
    }
    for (const char *dot = NULL; used < capacity && (dot = strchr(path, '.')) != NULL; depth++) {
        used +=
            (size_t)snprintf(text + used, capacity - used, "\"%.*s\": {", (int)(dot - path), path);
        path = dot + 1;
    }
    if (used < capacity)
        used += (size_t)snprintf(text + used, capacity - used, "\"%s\": %s", path, value);
    for (; used < capacity && depth > 0; depth--)
        used += (size_t)snprintf(text + used, capacity - used, "}");
}

// The value to write under the new name; false: it needs none.
static bool new_value(const renamed_key *row, const mics_json_value *value, char *text,
                      size_t capacity)
{
    mics_config_value_text(value, text, capacity);
    if (row->form != RENAMED_BF16_SWITCH)
        return row->form == RENAMED_AS_IT_IS;
    const bool on = strcmp(text, "\"bf16\"") == 0;
    snprintf(text, capacity, "true");
    return on;
}

static mics_status refuse(config *run, const renamed_key *row, const mics_json_value *value)
{
    char text[VALUE_BYTES], form[2 * CONFIG_PATH_BYTES];
    const char *between = row->note != NULL ? "; " : "", *note = row->note != NULL ? row->note : "";
    if (!new_value(row, value, text, sizeof text))
        return mics_config_refuse(run, row->old_path, MICS_ERR_INVALID,
                                  "is no key any more; leave it out%s%s", between, note);
    write_form(row->new_path, text, mics_json_line(run->run.json, row->old_path) == 0, form,
               sizeof form);
    return mics_config_refuse(run, row->old_path, MICS_ERR_INVALID, "is %s now: write %s%s%s",
                              row->new_path, form, between, note);
}

static const renamed_key *find(const char *path)
{
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (strcmp(rows[i].old_path, path) == 0)
            return &rows[i];
    }
    return NULL;
}

bool mics_config_refuse_renamed(config *run, const char *path, const mics_json_value *value)
{
    const renamed_key *row = find(path);
    if (row == NULL)
        return false;
    if (mics_json_type_of(value) == MICS_JSON_NULL)
        return true; // as if it were absent
    if (row->form != RENAMED_SECTION) {
        refuse(run, row, value);
        return true;
    }
    const char *name = NULL;
    const mics_json_value *member = NULL;
    bool told = false;
    while ((member = mics_json_next(value, &name)) != NULL) {
        char below[CONFIG_PATH_BYTES];
        snprintf(below, sizeof below, "%s.%s", path, name);
        const renamed_key *child = find(below);
        if (child != NULL && mics_json_type_of(member) != MICS_JSON_NULL)
            refuse(run, child, member);
        told = told || child != NULL;
    }
    if (!told)
        mics_config_refuse(run, path, MICS_ERR_INVALID, "is %s now, and has other keys",
                           row->new_path);
    return true;
}

// ---- in stored text ----

// Whether one kind of numbers was rounded to bf16 inside nodes.
static bool was_bf16_inside(const mics_json *json, const char *between, const char *inside)
{
    const char *text = mics_json_string(mics_json_at(json, inside));
    if (text == NULL || strcmp(text, "auto") == 0)
        text = mics_json_string(mics_json_at(json, between));
    return text != NULL && strcmp(text, "bf16") == 0;
}

// Three keys became one switch.
static mics_status translate_intra(mics_json *json, bool *mixed_out)
{
    const bool params = was_bf16_inside(json, "run.wire.gather", "run.wire.gather_inside");
    const bool grads = was_bf16_inside(json, "run.wire.reduce", "run.wire.reduce_inside");
    const bool boundary =
        was_bf16_inside(json, "run.wire.second_hop", "run.wire.second_hop_inside");
    // With communication_data_type, which says it of gradients, the switch is left to parameters.
    const bool typed = mics_json_string(mics_json_at(json, "communication_data_type")) != NULL;
    *mixed_out = !typed && (params != grads || params != boundary);
    return *mixed_out ? MICS_OK : mics_json_set(json, INTRA_KEY, params ? "true" : "false");
}

static mics_status translate_texts(mics_json *json)
{
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        const char *path = texts[i].path, *stored = mics_json_string(mics_json_at(json, path));
        const char *now = stored != NULL ? mics_config_renamed_text(path, stored) : NULL;
        char text[VALUE_BYTES];
        snprintf(text, sizeof text, "\"%s\"", now != NULL ? now : "");
        if (now != NULL)
            MICS_TRY(mics_json_set(json, path, text));
    }
    return MICS_OK;
}

mics_status mics_config_translate(mics_json *json, bool *mixed_out)
{
    *mixed_out = false;
    MICS_TRY(translate_texts(json));
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const mics_json_value *value = mics_json_at(json, rows[i].old_path);
        char text[VALUE_BYTES];
        if (value != NULL && rows[i].form == RENAMED_AS_IT_IS &&
            mics_config_value_whole(value, text, sizeof text))
            MICS_TRY(mics_json_set(json, rows[i].new_path, text));
    }
    return mics_json_at(json, "run.wire") != NULL ? translate_intra(json, mixed_out) : MICS_OK;
}
