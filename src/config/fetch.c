// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Remote paths of the run file become those of what is downloaded.
#include "config/keys.h"
#include "io/remote/remote.h"
#include <string.h>

enum { URL_BYTES = 8192 };

// Appends JSON with local paths in place of strings that are URLs.
static mics_status write_local(mics_memory *memory, const char *json, mics_remote_want want,
                               mics_text *out)
{
    for (const char *end = json; *json != '\0'; json = end) {
        char url[URL_BYTES], *local = NULL;
        end = json + strcspn(json, "\"");
        mics_text_append(out, json, (size_t)(end - json));
        if (*end == '\0')
            break;
        for (json = end++; *end != '"'; end++)
            end += *end == '\\';
        end++;
        const int bytes = (int)(end - json);
        snprintf(url, sizeof url, "%.*s", bytes - 2, json + 1);
        if (bytes >= URL_BYTES || !mics_remote_is(url)) {
            mics_text_append(out, json, (size_t)bytes);
            continue;
        }
        MICS_TRY(mics_remote_fetch(memory, url, want, &local));
        mics_text_quoted(out, local);
        mics_free(memory, local);
    }
    return MICS_OK;
}

// `want` NULL: URLs stay, without what is secret.
static mics_status replace(config *run, const char *path, const mics_remote_want *want)
{
    char source[CONFIG_PATH_BYTES];
    mics_text before = {.memory = run->memory}, after = {.memory = run->memory};
    mics_json *json = run->run.json;
    mics_json_write(&before, mics_json_at(json, path));
    mics_status status = mics_text_status(&before);
    if (status == MICS_OK && want != NULL)
        status = write_local(run->memory, before.bytes, *want, &after);
    else if (status == MICS_OK)
        mics_text_append(&after, before.bytes, before.used);
    if (status == MICS_OK)
        status = mics_text_status(&after);
    if (status == MICS_OK && want == NULL)
        mics_text_hide_secrets(after.bytes);
    if (status == MICS_OK && after.bytes != NULL && strcmp(before.bytes, after.bytes) != 0)
        status = mics_json_set_from(json, path, after.bytes,
                                    mics_json_source(json, path, source, sizeof source));
    mics_text_fini(&before);
    mics_text_fini(&after);
    return status;
}

// Whether there is a member number `index`.
static bool name_member(const mics_json *json, int32_t index, char name[CONFIG_PATH_BYTES])
{
    const char *next = NULL;
    while (index >= 0 && mics_json_next(mics_json_root(json), &next) != NULL)
        index--;
    mics_text_format(name, CONFIG_PATH_BYTES, "%s", next != NULL ? next : "");
    return next != NULL;
}

mics_status mics_config_fetch(config *run, bool adopted)
{
    static const char *const written[] = {"run.out", "run.tensorboard", "run.prometheus",
                                          "run.csv"};
    static const struct {
        const char *path;
        mics_remote_want want;
    } read[] = {{"model.config", MICS_REMOTE_CONFIG},
                {"model.init", MICS_REMOTE_CONFIG},
                {"adapter.init", MICS_REMOTE_CONFIG},
                {"data.tokenizer", MICS_REMOTE_CONFIG},
                {"data.train", MICS_REMOTE_NAMES},
                {"data.validation", MICS_REMOTE_NAMES},
                {"data.chat_template", MICS_REMOTE_FILES},
                {"run.cluster", MICS_REMOTE_FILES},
                {"phases", MICS_REMOTE_NAMES}};
    const char *bucket = mics_json_string(mics_json_at(run->run.json, "run.checkpoint_dir"));
    if (bucket != NULL && strcmp(bucket, "none") != 0 &&
        (!mics_remote_is_bucket(bucket) || strlen(bucket) < sizeof "s3://b/p" - 1 ||
         strchr(bucket + strlen("s3://"), '/') == NULL || mics_text_ends(bucket, "/") ||
         strpbrk(bucket, "&<>\"'") != NULL))
        return mics_json_fail(run->run.json, "run.checkpoint_dir", MICS_ERR_INVALID,
                              "must be as s3://BUCKET/PREFIX, without & < > and quotes; a local "
                              "folder of checkpoints is that of run.out");
    char name[CONFIG_PATH_BYTES];
    for (size_t i = 0; i < sizeof written / sizeof *written; i++) {
        const char *path = mics_json_string(mics_json_at(run->run.json, written[i]));
        if (path != NULL && mics_remote_is(path))
            return mics_json_fail(run->run.json, written[i], MICS_ERR_UNSUPPORTED,
                                  "is remote, and only what is read may be; name a local folder "
                                  "(run.checkpoint_dir puts checkpoints into a bucket)");
    }
    for (size_t i = 0; i < sizeof read / sizeof *read; i++)
        if (mics_json_at(run->run.json, read[i].path) != NULL)
            MICS_TRY(replace(run, read[i].path, &read[i].want));
    for (int32_t i = 0; adopted && name_member(run->run.json, i, name); i++)
        MICS_TRY(replace(run, name, NULL));
    return MICS_OK;
}
