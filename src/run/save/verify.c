// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Verifying what a run has stored.
#include "base/file.h"
#include "base/json.h"
#include "io/checkpoint/store.h"
#include "mics/log.h"
#include "mics/report.h"
#include "mics/run.h"
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { LINE_BYTES = 2048, MAX_LATEST = 64, MAX_RESOLVED = 1 << 20 };

typedef struct verification {
    mics_memory *memory;
    const mics_verify_listener *listener;
    void (*verified)(void *ctx, const mics_verified *what);
    mics_verification found;
    int64_t problems;                // of what is looked at now
    mics_checkpoint_largest largest; // of the run's newest good checkpoint so far
} verification;

static void recv_problem(void *ctx, const char *line)
{
    verification *v = ctx;
    v->problems++;
    v->listener->problem(v->listener->ctx, line);
}

static void recv_progress(void *ctx, const char *path, int64_t done, int64_t bytes)
{
    const verification *v = ctx;
    if (v->listener->progress != NULL)
        v->listener->progress(v->listener->ctx, path, done, bytes);
}

static void problem(verification *v, const char *format, ...) MICS_PRINTF(2, 3);
static void problem(verification *v, const char *format, ...)
{
    char line[LINE_BYTES];
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    recv_problem(v, line);
}

// Hands over what was found since the last call.
static void finish(verification *v, mics_verified what)
{
    what.problems = v->problems;
    v->found.problems += v->problems;
    v->problems = 0;
    if (v->verified != NULL)
        v->verified(v->listener->ctx, &what);
}

// ---- checkpoints ----

static mics_status verify_checkpoint(verification *v, const char *path)
{
    const mics_verify_listener listener = {recv_problem, recv_progress, v};
    mics_checkpoint_verified found = {0};
    MICS_TRY(mics_checkpoint_verify(v->memory, path, &listener, &v->largest, &found));
    v->found.checkpoints++;
    v->found.good += found.problems == 0 ? 1 : 0;
    v->found.bytes += found.bytes;
    finish(v, (mics_verified){
                  .path = path, .step = found.step, .files = found.files, .bytes = found.bytes});
    return MICS_OK;
}

static int by_step(const void *a, const void *b)
{
    const int64_t left = *(const int64_t *)a, right = *(const int64_t *)b;
    return left < right ? -1 : left > right;
}

static mics_status verify_steps(verification *v, const char *dir, const int64_t *steps,
                                int32_t count)
{
    for (int32_t i = 0; i < count; i++) {
        char name[32], *path = NULL;
        snprintf(name, sizeof name, "step-%08lld", (long long)steps[i]);
        MICS_TRY(mics_file_join(v->memory, dir, name, &path));
        const mics_status status = verify_checkpoint(v, path);
        mics_free(v->memory, path);
        MICS_TRY(status);
    }
    return MICS_OK;
}

// A run can do without `latest`; what it says must be true all the same.
static mics_status verify_latest(verification *v, const char *dir, const int64_t *steps,
                                 int32_t count)
{
    char *path = NULL, *text = NULL, name[32];
    size_t bytes = 0;
    MICS_TRY(mics_file_join(v->memory, dir, "latest", &path));
    if (!mics_store_is_there(path)) {
        mics_free(v->memory, path);
        return MICS_OK;
    }
    const bool before = mics_log_mute(true);
    const mics_status status = mics_store_read_whole(v->memory, path, MAX_LATEST, &text, &bytes);
    mics_log_mute(before);
    bool names = false;
    for (int32_t i = 0; status == MICS_OK && i < count; i++) {
        const int length = snprintf(name, sizeof name, "step-%08lld\n", (long long)steps[i]);
        names = names || ((size_t)length == bytes && memcmp(name, text, bytes) == 0);
    }
    if (!names)
        problem(v, "%s: does not name one of the %d checkpoints there", path, (int)count);
    finish(v, (mics_verified){.path = path, .step = -1, .files = 1});
    mics_free(v->memory, text);
    mics_free(v->memory, path);
    return status == MICS_ERR_MEMORY ? status : MICS_OK;
}

static mics_status verify_checkpoints(verification *v, const char *dir)
{
    int64_t *steps = NULL;
    int32_t count = 0;
    mics_status status = MICS_OK;
    MICS_TRY_OUT(mics_checkpoint_steps(v->memory, dir, &steps, &count));
    qsort(steps, (size_t)count, sizeof *steps, by_step);
    MICS_TRY_OUT(verify_steps(v, dir, steps, count));
    MICS_TRY_OUT(verify_latest(v, dir, steps, count));
out:
    mics_free(v->memory, steps);
    return status;
}

// ---- the other files of a run ----

static mics_status verify_metrics(verification *v, const char *path)
{
    int64_t lines = 0;
    mics_log_hold(false);
    const mics_status status = mics_metrics_verify(v->memory, path, recv_problem, v, &lines);
    if (mics_status_is_io(status))
        problem(v, "%s: cannot be read", path);
    finish(v, (mics_verified){.path = path, .step = -1, .files = 1, .lines = lines});
    return mics_status_is_io(status) ? MICS_OK : status;
}

static mics_status verify_resolved(verification *v, const char *path)
{
    mics_json *json = NULL;
    char line[LINE_BYTES];
    mics_log_hold(false);
    const mics_status status = mics_json_load(v->memory, path, MAX_RESOLVED, &json);
    mics_json_close(json);
    if (status != MICS_OK && status != MICS_ERR_MEMORY && mics_log_take(line, sizeof line))
        recv_problem(v, line);
    mics_log_release(status == MICS_ERR_MEMORY, -1);
    finish(v, (mics_verified){.path = path, .step = -1, .files = 1});
    return status == MICS_ERR_MEMORY ? status : MICS_OK;
}

// A file that need not be there.
static mics_status verify_file(verification *v, const char *dir, const char *name,
                               mics_status (*verify)(verification *v, const char *path))
{
    char *path = NULL;
    MICS_TRY(mics_file_join(v->memory, dir, name, &path));
    const mics_status status = mics_file_is_there(path) ? verify(v, path) : MICS_OK;
    mics_free(v->memory, path);
    return status;
}

static mics_status verify_run(verification *v, const char *out)
{
    MICS_TRY(verify_file(v, out, "checkpoints", verify_checkpoints));
    MICS_TRY(verify_file(v, out, "metrics.jsonl", verify_metrics));
    MICS_TRY(verify_file(v, out, "resolved.json", verify_resolved));
    return verify_file(v, out, "run.json", verify_resolved);
}

// ---- which it is ----

static bool holds(const char *dir, const char *name)
{
    char path[4096];
    return snprintf(path, sizeof path, "%s/%s", dir, name) < (int)sizeof path &&
           mics_store_is_there(path);
}

static mics_status verify_path(verification *v, const char *path)
{
    const char *slash = strrchr(path, '/'), *name = slash != NULL ? slash + 1 : path;
    struct stat info;
    const bool bucket = mics_remote_is_bucket(path);
    if (!bucket && stat(path, &info) != 0)
        return mics_fail(mics_status_of_errno(errno), "%s: %s", path, strerror(errno));
    if (!bucket && !S_ISDIR(info.st_mode))
        return mics_fail(MICS_ERR_INVALID,
                         "%s: is no folder; give that of a run, or a step's in its checkpoints/",
                         path);
    if (!bucket && holds(path, "checkpoints"))
        return verify_run(v, path);
    if (holds(path, "manifest.json") || strncmp(name, "step-", 5) == 0)
        return verify_checkpoint(v, path);
    if (!bucket && holds(path, "metrics.jsonl"))
        return verify_run(v, path);
    MICS_TRY(verify_checkpoints(v, path));
    if (v->found.checkpoints > 0)
        return MICS_OK;
    return mics_fail(MICS_ERR_INVALID,
                     "%s: holds no checkpoint; give the folder of a run, or a step's in its "
                     "checkpoints/",
                     path);
}

// "a/b/" is "a/b".
static mics_status copy_path(mics_memory *memory, const char *path, char **copy_out)
{
    MICS_TRY(mics_strdup(memory, path, copy_out));
    size_t length = strlen(path);
    while (length > 1 && path[length - 1] == '/')
        (*copy_out)[--length] = '\0';
    return MICS_OK;
}

mics_status mics_verify(mics_memory *memory, const char *path, const mics_verify_listener *listener,
                        void (*verified)(void *ctx, const mics_verified *what),
                        mics_verification *found_out)
{
    verification v = {.memory = memory, .listener = listener, .verified = verified};
    char *copy = NULL;
    MICS_TRY(copy_path(memory, path, &copy));
    const mics_status status = verify_path(&v, copy);
    mics_free(memory, copy);
    if (status == MICS_OK)
        *found_out = v.found;
    return status;
}
