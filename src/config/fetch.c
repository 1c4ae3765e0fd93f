// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Paths of the run file that are remote become those of what is downloaded.
#include "config/keys.h"
#include "io/remote/remote.h"

typedef struct fetcher {
    mics_memory *memory;
    mics_remote_want want;
    mics_text out; // the value with local paths
    bool any;
} fetcher;

// A path, a list of them, or one of {"path", "weight"}.
static mics_status write_local(fetcher *self, const mics_json_value *value)
{
    const mics_json_type type = mics_json_type_of(value);
    const mics_json_value *path = mics_json_get(value, "path");
    char *local = NULL;
    if (type == MICS_JSON_ARRAY) {
        mics_text_printf(&self->out, "[");
        for (int32_t i = 0; i < mics_json_count(value); i++) {
            mics_text_printf(&self->out, i > 0 ? ", " : "");
            MICS_TRY(write_local(self, mics_json_element(value, i)));
        }
        mics_text_printf(&self->out, "]");
    } else if (path != NULL) {
        mics_text_printf(&self->out, "{\"path\": ");
        MICS_TRY(write_local(self, path));
        mics_text_printf(&self->out, ", \"weight\": ");
        mics_json_write(&self->out, mics_json_get(value, "weight"));
        mics_text_printf(&self->out, "}");
    } else if (type == MICS_JSON_STRING && mics_remote_is(mics_json_string(value))) {
        self->any = true;
        MICS_TRY(mics_remote_fetch(self->memory, mics_json_string(value), self->want, &local));
        mics_text_quoted(&self->out, local);
        mics_free(self->memory, local);
    } else {
        mics_json_write(&self->out, value);
    }
    return MICS_OK;
}

static mics_status fetch(config *run, const char *path, mics_remote_want want)
{
    char source[CONFIG_PATH_BYTES];
    fetcher self = {.memory = run->memory, .want = want, .out = {.memory = run->memory}};
    mics_status status = write_local(&self, mics_json_at(run->run.json, path));
    if (status == MICS_OK)
        status = mics_text_status(&self.out);
    if (status == MICS_OK && self.any)
        status = mics_json_set_from(run->run.json, path, self.out.bytes,
                                    mics_json_source(run->run.json, path, source, sizeof source));
    mics_text_fini(&self.out);
    return status;
}

mics_status mics_config_fetch(config *run)
{
    static const char *const written[] = {"run.out", "run.tensorboard", "run.prometheus",
                                          "run.csv"};
    static const char *const read[] = {"data.train", "data.validation", "data.chat_template",
                                       "run.cluster"};
    const bool starts = mics_json_at(run->run.json, "model.init") == NULL;
    for (size_t i = 0; i < sizeof written / sizeof *written; i++) {
        const char *path = mics_json_string(mics_json_at(run->run.json, written[i]));
        if (path != NULL && mics_remote_is(path))
            return mics_json_fail(run->run.json, written[i], MICS_ERR_UNSUPPORTED,
                                  "is remote, and only what is read may be; name a local folder");
    }
    MICS_TRY(fetch(run, "model.config", starts ? MICS_REMOTE_WEIGHTS : MICS_REMOTE_CONFIG));
    MICS_TRY(fetch(run, "model.init", MICS_REMOTE_WEIGHTS));
    MICS_TRY(fetch(run, "adapter.init", MICS_REMOTE_WEIGHTS));
    MICS_TRY(fetch(run, "data.tokenizer", MICS_REMOTE_CONFIG));
    for (size_t i = 0; i < sizeof read / sizeof *read; i++)
        MICS_TRY(fetch(run, read[i], MICS_REMOTE_FILES));
    return MICS_OK;
}
