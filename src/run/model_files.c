// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
#include "model_files.h"
#include "base/file.h"
#include "base/text.h"
#include "base/utf8.h"
#include "mics/log.h"
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_BYTES = 16 << 20, NAME_BYTES = 320 };

static const char generation[] = "generation_config.json", vocabulary_name[] = "tokenizer.json",
                  chat_template[] = "chat_template.jinja";
static const char *const of_tokens[] = {"tokenizer_config.json",
                                        "special_tokens_map.json",
                                        "added_tokens.json",
                                        chat_template,
                                        "chat_template.json",
                                        "vocab.json",
                                        "vocab.txt",
                                        "merges.txt",
                                        "tokenizer.model",
                                        "spiece.model",
                                        "tekken.json"};
enum { OF_TOKENS = sizeof of_tokens / sizeof *of_tokens };

typedef struct packer {
    mics_memory *memory;
    mics_text text;
    bool tells;
    char names[400]; // of those that were packed; cut when longer
} packer;

static mics_status add(packer *self, const char *name, const char *text)
{
    const size_t used = strlen(self->names);
    mics_text_printf(&self->text, self->text.used > 0 ? ", " : "{");
    mics_text_quoted(&self->text, name);
    mics_text_printf(&self->text, ": ");
    mics_text_quoted(&self->text, text);
    snprintf(self->names + used, sizeof self->names - used, "%s%s", used > 0 ? ", " : "", name);
    return mics_text_status(&self->text);
}

// Text; and where it is to be read again, at the end of a run, also JSON.
static bool is_good(const packer *self, const char *name, const char *text, size_t bytes)
{
    mics_json *json = NULL;
    bool good = strlen(text) == bytes && mics_utf8_valid(text, bytes) == bytes;
    if (!good || !self->tells || !mics_text_ends(name, ".json"))
        return good;
    const bool before = mics_log_demote(true);
    good = mics_json_parse(self->memory, name, text, bytes, &json) == MICS_OK &&
           mics_json_type_of(mics_json_root(json)) == MICS_JSON_OBJECT;
    mics_log_demote(before);
    mics_json_close(json);
    return good;
}

// What cannot be kept is missing in exports alone: the run goes on.
static mics_status pack(packer *self, const char *folder, const char *name)
{
    char *path = NULL, *text = NULL;
    size_t bytes = 0;
    const size_t left = self->text.used < MAX_BYTES ? MAX_BYTES - self->text.used : 0;
    MICS_TRY(mics_file_join(self->memory, folder, name, &path));
    mics_status status = MICS_OK;
    if (mics_file_is_there(path)) {
        const bool before = mics_log_demote(true);
        status = mics_file_read_whole(self->memory, path, left, &text, &bytes);
        mics_log_demote(before);
        if (status == MICS_OK && is_good(self, name, text, bytes))
            status = add(self, name, text);
        else if (status != MICS_ERR_MEMORY)
            mics_log(MICS_LOG_WARNING, "%s: is not kept%s; copy it beside exports by hand", path,
                     status == MICS_OK ? ", as it is no text or no object" : "");
    }
    mics_free(self->memory, text);
    mics_free(self->memory, path);
    return status == MICS_ERR_MEMORY ? status : MICS_OK;
}

static bool is_name(const char *name)
{
    static const char templates[] = RUN_MODEL_TEMPLATES "/";
    const size_t begin = sizeof templates - 1;
    bool is = strcmp(name, generation) == 0 || strcmp(name, vocabulary_name) == 0;
    for (int i = 0; i < OF_TOKENS; i++)
        is = is || strcmp(name, of_tokens[i]) == 0;
    return is || (strncmp(name, templates, begin) == 0 && mics_file_plain_name(name + begin) &&
                  mics_text_ends(name, ".jinja"));
}

static mics_status pack_templates(packer *self, const char *folder)
{
    struct dirent **entries = NULL;
    char *path = NULL, name[NAME_BYTES];
    MICS_TRY(mics_file_join(self->memory, folder, RUN_MODEL_TEMPLATES, &path));
    const int count = scandir(path, &entries, NULL, alphasort);
    mics_status status = MICS_OK;
    for (int i = 0; i < count; i++) {
        snprintf(name, sizeof name, RUN_MODEL_TEMPLATES "/%s", entries[i]->d_name);
        if (status == MICS_OK && is_name(name))
            status = pack(self, folder, name);
        free(entries[i]);
    }
    free(entries);
    mics_free(self->memory, path);
    return status;
}

static mics_status pack_all(packer *self, const run_model_folders *from)
{
    if (from->chat_template != NULL)
        MICS_TRY(add(self, chat_template, from->chat_template));
    for (int i = 0; from->tokens != NULL && i < OF_TOKENS; i++) {
        if (from->chat_template == NULL || strcmp(of_tokens[i], chat_template) != 0)
            MICS_TRY(pack(self, from->tokens, of_tokens[i]));
    }
    if (from->tokens != NULL && from->vocabulary)
        MICS_TRY(pack(self, from->tokens, vocabulary_name));
    if (from->tokens != NULL)
        MICS_TRY(pack_templates(self, from->tokens));
    if (from->weights != NULL)
        MICS_TRY(pack(self, from->weights, generation));
    if (self->text.used > 0)
        mics_text_printf(&self->text, "}");
    return mics_text_status(&self->text);
}

mics_status run_model_files_read(mics_memory *memory, const run_model_folders *from, bool tells,
                                 char **text_out)
{
    packer self = {.memory = memory, .text = {.memory = memory}, .tells = tells};
    const char *folder = from->tokens != NULL ? from->tokens : from->weights;
    const mics_status status = pack_all(&self, from);
    if (status != MICS_OK)
        mics_text_fini(&self.text);
    else if (tells && self.text.used > 0)
        mics_log(MICS_LOG_INFO, "%s%s%scheckpoints and exports keep %s",
                 folder != NULL ? "of " : "", folder != NULL ? folder : "",
                 folder != NULL ? ", " : "", self.names);
    *text_out = self.text.bytes;
    return status;
}

mics_status run_model_files_parse(mics_memory *memory, const char *name, const char *text,
                                  mics_json **files_out)
{
    mics_json *files = NULL;
    const char *of = NULL;
    const mics_json_value *file;
    text = text != NULL ? text : "{}";
    MICS_TRY(mics_json_parse(memory, name, text, strlen(text), &files));
    bool good = mics_json_type_of(mics_json_root(files)) == MICS_JSON_OBJECT;
    while ((file = mics_json_next(mics_json_root(files), &of)) != NULL)
        good = good && is_name(of) && mics_json_string(file) != NULL;
    if (good)
        *files_out = files;
    else
        mics_json_close(files);
    return good ? MICS_OK
                : mics_fail(MICS_ERR_FORMAT, "%s: keeps other things than a model's files", name);
}

const char *run_model_files_find(const mics_json *files, const char *name)
{
    return mics_json_string(mics_json_get(mics_json_root(files), name));
}

mics_status run_model_files_change(mics_memory *memory, const char *name, const char *text,
                                   const char *jinja, char **text_out)
{
    packer self = {.memory = memory, .text = {.memory = memory}};
    mics_json *files = NULL;
    const char *of = NULL;
    const mics_json_value *file = NULL;
    MICS_TRY(run_model_files_parse(memory, name, text, &files));
    mics_status status = add(&self, chat_template, jinja);
    while (status == MICS_OK && (file = mics_json_next(mics_json_root(files), &of)) != NULL) {
        if (strcmp(of, chat_template) != 0)
            status = add(&self, of, mics_json_string(file));
    }
    mics_text_printf(&self.text, "}");
    if (status == MICS_OK)
        status = mics_text_status(&self.text);
    if (status == MICS_OK)
        *text_out = self.text.bytes;
    else
        mics_text_fini(&self.text);
    mics_json_close(files);
    return status;
}
