// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Keys that cannot be honoured: the walk goes on after each, so that all are told in one line.
#include "base/text.h"
#include "config/keys.h"
#include "mics/log.h"
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

mics_status mics_config_refuse(config *run, const char *path, mics_status status,
                               const char *format, ...)
{
    refusals *refused = &run->refused;
    char what[sizeof refused->what], line[32] = "";
    va_list args;
    va_start(args, format);
    mics_text_vformat(what, sizeof what, format, args);
    va_end(args);
    char source[CONFIG_PATH_BYTES];
    int32_t number = mics_json_line(run->run.json, path);
    path = mics_json_source(run->run.json, path, source, sizeof source);
    if (refused->count++ == 0) {
        snprintf(refused->path, sizeof refused->path, "%s", path);
        refused->status = status;
        memcpy(refused->what, what, sizeof what);
    }
    if (number > 0)
        snprintf(line, sizeof line, "line %d, ", (int)number);
    static const char said[] = "cannot be honoured: "; // by the line's beginning
    size_t skip = strncmp(what, said, sizeof said - 1) == 0 ? sizeof said - 1 : 0;
    size_t used = strlen(refused->all);
    snprintf(refused->all + used, sizeof refused->all - used, "%s(%d) %s%s: %s",
             used != 0 ? "; " : "", (int)refused->count, line, path, what + skip);
    return MICS_OK;
}

mics_status mics_config_fail_refused(const config *run)
{
    const refusals *refused = &run->refused;
    if (refused->count == 0)
        return MICS_OK;
    if (refused->count == 1)
        return mics_json_fail(run->run.json, refused->path, refused->status, "%s", refused->what);
    bool cut = strlen(refused->all) + 1 == sizeof refused->all;
    return mics_fail(refused->status, "%s: %d keys cannot be honoured: %s%s",
                     mics_json_name(run->run.json), (int)refused->count, refused->all,
                     cut ? "..." : "");
}
