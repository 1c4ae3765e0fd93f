// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
#include "run/identity.h"
#include "base/file.h"
#include "base/text.h"
#include "config/config.h"
#include "mics/log.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define ID_FILE "run-id"

enum { ID_FILE_BYTES = 1 << 16 };

// ---- reading ----

static uint64_t inode_of(const char *path)
{
    struct stat found;
    return stat(path, &found) == 0 ? (uint64_t)found.st_ino : 0;
}

static void take_line(const char *line, run_identity *identity)
{
    if (strncmp(line, "folder ", 7) == 0)
        identity->folder = strtoull(line + 7, NULL, 10);
    else if (strncmp(line, "file ", 5) == 0)
        snprintf(identity->file, sizeof identity->file, "%s", line + 5);
    else if (strncmp(line, "before ", 7) == 0 && mics_node_is_id(line + 7) &&
             identity->before_count < RUN_IDS_BEFORE)
        memcpy(identity->before[identity->before_count++], line + 7, MICS_NODE_ID_BYTES);
}

static void take_lines(const char *path, char *text, run_identity *identity)
{
    char *rest = text, *line = strsep(&rest, "\n");
    if (!mics_node_is_id(line)) {
        mics_log(MICS_LOG_WARNING, "%s: holds no ID, so copies in node memory are not looked for",
                 path);
        return;
    }
    memcpy(identity->id, line, MICS_NODE_ID_BYTES);
    while ((line = strsep(&rest, "\n")) != NULL)
        take_line(line, identity);
}

mics_status run_identity_read(mics_memory *memory, const char *out, run_identity **identity_out)
{
    run_identity *identity = NULL;
    char *path = NULL, *text = NULL;
    size_t bytes = 0;
    mics_status status = MICS_OK;
    MICS_TRY(MICS_NEW(memory, 1, &identity));
    MICS_TRY_OUT(mics_file_join(memory, out, ID_FILE, &path));
    if (mics_file_is_there(path)) {
        MICS_TRY_OUT(mics_file_read_whole(memory, path, ID_FILE_BYTES, &text, &bytes));
        take_lines(path, text, identity);
    }
    *identity_out = identity;
    identity = NULL;
out:
    mics_free(memory, identity);
    mics_free(memory, text);
    mics_free(memory, path);
    return status;
}

bool run_identity_is_copied(const run_identity *identity, const char *out)
{
    return identity->folder != 0 && identity->folder != inode_of(out);
}

bool run_identity_has(const run_identity *identity, const char *id)
{
    bool found = *id == '\0' || strcmp(id, identity->id) == 0;
    for (int32_t i = 0; i < identity->before_count; i++)
        found = found || strcmp(id, identity->before[i]) == 0;
    return found;
}

// ---- the run file, from the folder ----

// The folders of `from` that are not of `file` are left by "..". Both are whole paths.
static void write_relative(mics_text *text, const char *from, const char *file)
{
    size_t same = 0;
    for (size_t i = 0; from[i] == file[i] && from[i] != '\0'; i++) {
        if (from[i] == '/')
            same = i + 1;
    }
    const size_t from_bytes = strlen(from);
    if (strncmp(from, file, from_bytes) == 0 && file[from_bytes] == '/')
        same = from_bytes + 1;
    for (const char *at = same > from_bytes ? "" : from + same; *at != '\0'; at++) {
        if (at == from + same || at[-1] == '/')
            mics_text_printf(text, "../");
    }
    mics_text_printf(text, "%s", file + same);
}

// *path_out: NULL where the run is not of a file.
static mics_status relative_file(mics_memory *memory, const mics_run *run, char **path_out)
{
    mics_text text = {.memory = memory};
    char *file = realpath(mics_json_name(run->json), NULL), *from = realpath(run->out, NULL);
    mics_status status = MICS_OK;
    if (file != NULL && from != NULL && strchr(file, '\n') == NULL) {
        write_relative(&text, from, file);
        status = mics_text_status(&text);
    }
    free(from);
    free(file);
    if (status == MICS_OK)
        *path_out = text.bytes;
    else
        mics_text_fini(&text);
    return status;
}

mics_status run_identity_check_file(mics_memory *memory, const mics_run *run)
{
    run_identity *identity = NULL;
    char *file = NULL;
    mics_status status = MICS_OK;
    if (!run->out_of_name)
        return MICS_OK;
    MICS_TRY(run_identity_read(memory, run->out, &identity));
    MICS_TRY_OUT(relative_file(memory, run, &file));
    if (file != NULL && identity->file[0] != '\0' && strcmp(file, identity->file) != 0)
        status = mics_fail(MICS_ERR_INVALID,
                           "%s: is named after %s, but another run file trained there (%s, from "
                           "that folder); give --out another folder, or this one to go on with "
                           "that run's weights",
                           run->out, mics_json_name(run->json), identity->file);
out:
    mics_free(memory, file);
    mics_free(memory, identity);
    return status;
}

// ---- writing ----

mics_status run_identity_renew(mics_memory *memory, const mics_run *run, const char *from,
                               char id_out[MICS_NODE_ID_BYTES])
{
    run_identity *old = NULL;
    mics_text text = {.memory = memory};
    char *file = NULL;
    mics_status status = MICS_OK;
    MICS_TRY(mics_node_draw_id(id_out));
    const bool muted = mics_log_mute(true); // what is wrong with it was said when it was read
    status = run_identity_read(memory, run->out, &old);
    mics_log_mute(muted);
    if (status != MICS_OK && status != MICS_ERR_MEMORY)
        status = MICS_NEW(memory, 1, &old);
    MICS_TRY(status);
    MICS_TRY_OUT(relative_file(memory, run, &file));
    mics_text_printf(&text, "%s\nfolder %llu\n", id_out, (unsigned long long)inode_of(run->out));
    if (file != NULL)
        mics_text_printf(&text, "file %s\n", file);
    if (from != NULL && mics_node_is_id(from) && !run_identity_has(old, from))
        mics_text_printf(&text, "before %s\n", from);
    if (old->id[0] != '\0')
        mics_text_printf(&text, "before %s\n", old->id);
    for (int32_t i = 0; i < old->before_count; i++)
        mics_text_printf(&text, "before %s\n", old->before[i]);
    MICS_TRY_OUT(mics_text_status(&text));
    MICS_TRY_OUT(mics_file_replace(memory, run->out, ID_FILE, text.bytes, text.used));
    status = mics_file_sync_dir(run->out);
out:
    mics_text_fini(&text);
    mics_free(memory, file);
    mics_free(memory, old);
    return status;
}
