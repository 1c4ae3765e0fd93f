// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Remote paths of the run file become those of what is downloaded.
#include "config/keys.h"
#include "io/remote/remote.h"
#include <string.h>

typedef struct fetcher {
    mics_memory *memory;
    bool hides; // URLs stay, without what is secret
    bool any;
    mics_remote_want want;
    mics_text out; // the value as it becomes
} fetcher;

static mics_status write_string(fetcher *self, const char *text)
{
    char *other = NULL;
    if (self->hides)
        MICS_TRY(mics_strdup(self->memory, text, &other));
    else
        MICS_TRY(mics_remote_fetch(self->memory, text, self->want, &other));
    if (self->hides)
        mics_text_hide_secrets(other);
    self->any = self->any || strcmp(text, other) != 0;
    mics_text_quoted(&self->out, other);
    mics_free(self->memory, other);
    return MICS_OK;
}

static mics_status write_value(fetcher *self, const mics_json_value *value)
{
    const mics_json_type type = mics_json_type_of(value);
    const mics_json_value *member = NULL;
    const char *name = NULL, *comma = "";
    if (type == MICS_JSON_STRING && mics_remote_is(mics_json_string(value)))
        return write_string(self, mics_json_string(value));
    if (type == MICS_JSON_ARRAY) {
        for (int32_t i = 0; i < mics_json_count(value); i++) {
            mics_text_printf(&self->out, i > 0 ? ", " : "[");
            MICS_TRY(write_value(self, mics_json_element(value, i)));
        }
        mics_text_printf(&self->out, mics_json_count(value) > 0 ? "]" : "[]");
    } else if (type == MICS_JSON_OBJECT) {
        mics_text_printf(&self->out, "{");
        while ((member = mics_json_next(value, &name)) != NULL) {
            mics_text_printf(&self->out, "%s", comma);
            mics_text_quoted(&self->out, name);
            mics_text_printf(&self->out, ": ");
            MICS_TRY(write_value(self, member));
            comma = ", ";
        }
        mics_text_printf(&self->out, "}");
    } else {
        mics_json_write(&self->out, value);
    }
    return MICS_OK;
}

static mics_status replace(config *run, const char *path, fetcher self, bool *any_out)
{
    char source[CONFIG_PATH_BYTES];
    self.memory = self.out.memory = run->memory;
    mics_status status = write_value(&self, mics_json_at(run->run.json, path));
    if (status == MICS_OK)
        status = mics_text_status(&self.out);
    if (status == MICS_OK && self.any)
        status = mics_json_set_from(run->run.json, path, self.out.bytes,
                                    mics_json_source(run->run.json, path, source, sizeof source));
    mics_text_fini(&self.out);
    *any_out = self.any;
    return status;
}

static mics_status hide_secrets(config *run)
{
    const char *name = NULL;
    while (mics_json_next(mics_json_root(run->run.json), &name) != NULL) {
        char path[CONFIG_PATH_BYTES];
        bool any = false;
        mics_text_format(path, sizeof path, "%s", name);
        MICS_TRY(replace(run, path, (fetcher){.hides = true}, &any));
        name = any ? NULL : name; // the document is another
    }
    return MICS_OK;
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
                {"data.train", MICS_REMOTE_FILES},
                {"data.validation", MICS_REMOTE_FILES},
                {"data.chat_template", MICS_REMOTE_FILES},
                {"run.cluster", MICS_REMOTE_FILES},
                {"phases", MICS_REMOTE_FILES}};
    bool any = false;
    const char *bucket = mics_json_string(mics_json_at(run->run.json, "run.checkpoint_dir"));
    if (bucket != NULL && strcmp(bucket, "none") != 0 &&
        (!mics_remote_is_bucket(bucket) || strlen(bucket) < sizeof "s3://b/p" - 1 ||
         strchr(bucket + strlen("s3://"), '/') == NULL || mics_text_ends(bucket, "/")))
        return mics_json_fail(run->run.json, "run.checkpoint_dir", MICS_ERR_INVALID,
                              "must be as s3://BUCKET/PREFIX; a local folder of checkpoints is "
                              "that of run.out");
    for (size_t i = 0; i < sizeof written / sizeof *written; i++) {
        const char *path = mics_json_string(mics_json_at(run->run.json, written[i]));
        if (path != NULL && mics_remote_is(path))
            return mics_json_fail(run->run.json, written[i], MICS_ERR_UNSUPPORTED,
                                  "is remote, and only what is read may be; name a local folder "
                                  "(run.checkpoint_dir puts checkpoints into a bucket)");
    }
    for (size_t i = 0; i < sizeof read / sizeof *read; i++)
        MICS_TRY(replace(run, read[i].path, (fetcher){.want = read[i].want}, &any));
    return adopted ? hide_secrets(run) : MICS_OK;
}
