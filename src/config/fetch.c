// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Paths of the run file that are remote become those of what is downloaded.
#include "config/keys.h"
#include "io/remote/remote.h"
#include "mics/log.h"

static bool is_remote(const mics_json_value *value)
{
    return mics_json_type_of(value) == MICS_JSON_STRING && mics_remote_is(mics_json_string(value));
}

static mics_status write_local(const config *run, const mics_json_value *value,
                               mics_remote_want want, mics_text *out)
{
    char *local = NULL;
    if (!is_remote(value)) {
        mics_json_write(out, value);
        return MICS_OK;
    }
    MICS_TRY(mics_remote_fetch(run->memory, mics_json_string(value), want, &local));
    mics_text_quoted(out, local);
    mics_free(run->memory, local);
    return MICS_OK;
}

// A path, a list of them, or one of {"path", "weight"}.
static mics_status write_all(const config *run, const mics_json_value *value, mics_remote_want want,
                             mics_text *out)
{
    if (mics_json_type_of(value) != MICS_JSON_ARRAY)
        return write_local(run, value, want, out);
    for (int32_t i = 0; i < mics_json_count(value); i++) {
        const mics_json_value *element = mics_json_element(value, i);
        const mics_json_value *path = mics_json_get(element, "path");
        mics_text_printf(out, i > 0 ? ", " : "[");
        if (!is_remote(path)) {
            MICS_TRY(write_local(run, element, want, out));
            continue;
        }
        mics_text_printf(out, "{\"path\": ");
        MICS_TRY(write_local(run, path, want, out));
        mics_text_printf(out, ", \"weight\": ");
        mics_json_write(out, mics_json_get(element, "weight"));
        mics_text_printf(out, "}");
    }
    mics_text_printf(out, mics_json_count(value) > 0 ? "]" : "[]");
    return MICS_OK;
}

static bool any_remote(const mics_json_value *value)
{
    bool any = is_remote(value);
    for (int32_t i = 0; i < mics_json_count(value) && !any; i++) {
        const mics_json_value *element = mics_json_element(value, i);
        any = is_remote(element) || is_remote(mics_json_get(element, "path"));
    }
    return any;
}

static mics_status fetch(config *run, const char *path, mics_remote_want want)
{
    char source[CONFIG_PATH_BYTES];
    const mics_json_value *value = mics_json_at(run->run.json, path);
    mics_text out = {.memory = run->memory};
    if (!any_remote(value))
        return MICS_OK;
    mics_status status = write_all(run, value, want, &out);
    if (status == MICS_OK)
        status = mics_text_status(&out);
    if (status == MICS_OK)
        status = mics_json_set_from(run->run.json, path, out.bytes,
                                    mics_json_source(run->run.json, path, source, sizeof source));
    mics_text_fini(&out);
    return status;
}

mics_status mics_config_fetch(config *run)
{
    static const struct {
        const char *path;
        mics_remote_want want;
    } paths[] = {{"model.init", MICS_REMOTE_WEIGHTS},    {"adapter.init", MICS_REMOTE_WEIGHTS},
                 {"data.tokenizer", MICS_REMOTE_CONFIG}, {"data.train", MICS_REMOTE_FILES},
                 {"data.validation", MICS_REMOTE_FILES}, {"data.chat_template", MICS_REMOTE_FILES},
                 {"run.cluster", MICS_REMOTE_FILES}};
    static const char *const written[] = {"run.out", "run.tensorboard", "run.prometheus",
                                          "run.csv"};
    for (size_t i = 0; i < sizeof written / sizeof *written; i++) {
        if (is_remote(mics_json_at(run->run.json, written[i])))
            return mics_json_fail(run->run.json, written[i], MICS_ERR_UNSUPPORTED,
                                  "is remote, and only what is read may be; name a local folder");
    }
    const bool starts = mics_json_at(run->run.json, "model.init") == NULL;
    MICS_TRY(fetch(run, "model.config", starts ? MICS_REMOTE_WEIGHTS : MICS_REMOTE_CONFIG));
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++)
        MICS_TRY(fetch(run, paths[i].path, paths[i].want));
    return MICS_OK;
}
