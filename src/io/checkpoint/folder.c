// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Finding and removing checkpoints in a run's folder.
#include "io/checkpoint/folder.h"
#include "base/file.h"
#include "base/free.h"
#include "base/text.h"
#include "io/checkpoint/store.h"
#include "mics/log.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define STEP_PREFIX "step-"
enum { STEP_DIGITS = 8 };

// ---- names ----

mics_ckpt_name mics_ckpt_step_name(int64_t step)
{
    mics_ckpt_name name;
    snprintf(name.text, sizeof name.text, STEP_PREFIX "%0*lld", STEP_DIGITS, (long long)step);
    return name;
}

mics_ckpt_name mics_ckpt_rank_name(int32_t rank, int64_t generation)
{
    mics_ckpt_name name;
    char suffix[32] = "";
    if (generation > 0)
        snprintf(suffix, sizeof suffix, "-g%lld", (long long)generation);
    snprintf(name.text, sizeof name.text, "rank-%05d%s" MICS_RANK_FILE_SUFFIX, (int)rank, suffix);
    return name;
}

mics_ckpt_name mics_ckpt_tokenizer_name(int64_t generation)
{
    mics_ckpt_name name;
    if (generation == 0)
        snprintf(name.text, sizeof name.text, "tokenizer.json");
    else
        snprintf(name.text, sizeof name.text, "tokenizer-g%lld.json", (long long)generation);
    return name;
}

// True when `name` is exactly what mics_ckpt_step_name gives for some step.
static bool parse_step_name(const char *name, int64_t *step_out)
{
    size_t digits = strlen(name);
    if (strncmp(name, STEP_PREFIX, strlen(STEP_PREFIX)) != 0)
        return false;
    name += strlen(STEP_PREFIX);
    digits -= strlen(STEP_PREFIX);
    if (digits < STEP_DIGITS || digits > 18 || strspn(name, "0123456789") != digits)
        return false;
    if (digits > STEP_DIGITS && name[0] == '0')
        return false;
    *step_out = strtoll(name, NULL, 10);
    return true;
}

static bool ends_in_json(const char *name, size_t length)
{
    return length >= 5 && memcmp(name + length - 5, ".json", 5) == 0;
}

// True for the names that rename gives what a save has written whole; the first `length` bytes.
static bool placed_by_save(const char *name, size_t length)
{
    static const char *const exact[] = {MICS_MANIFEST_NAME, "config.json", MICS_PASSED_OVER_NAME,
                                        "tokenizer.json"};
    for (size_t i = 0; i < sizeof exact / sizeof *exact; i++) {
        if (strlen(exact[i]) == length && memcmp(name, exact[i], length) == 0)
            return true;
    }
    return length > 11 && memcmp(name, "tokenizer-g", 11) == 0 && ends_in_json(name, length);
}

// True for the names of files that a save writes into a step's folder.
static bool written_by_save(const char *name)
{
    const size_t length = strlen(name), stem = mics_file_aside_stem(name);
    if (strncmp(name, "rank-", 5) == 0)
        return mics_text_ends(name, MICS_RANK_FILE_SUFFIX);
    return placed_by_save(name, stem > 0 ? stem : length);
}

// ---- folders ----

// A step's folder that is a link is somebody else's.
static bool is_link(const char *path)
{
    struct stat facts;
    return lstat(path, &facts) == 0 && S_ISLNK(facts.st_mode);
}

// Lists the steps of `dir`; none when it does not exist. The caller frees *steps_out.
static mics_status list_steps(mics_memory *memory, const char *dir, int64_t **steps_out,
                              int *count_out)
{
    mics_store_names names;
    MICS_TRY(mics_store_list(memory, dir, &names));
    const mics_status status = MICS_NEW(memory, names.count, steps_out);
    *count_out = 0;
    for (int32_t i = 0; status == MICS_OK && i < names.count; i++)
        *count_out += parse_step_name(names.list[i], &(*steps_out)[*count_out]);
    mics_store_names_fini(memory, &names);
    return status;
}

// True when a file is there with this length; MICS_ERR_IO when that cannot be told.
static mics_status has_length(mics_memory *memory, const char *folder,
                              const mics_manifest_file *file, bool *so_out)
{
    char *path = NULL;
    int64_t bytes = -1;
    MICS_TRY(mics_file_join(memory, folder, file->name, &path));
    const mics_status status = mics_store_length(path, &bytes);
    *so_out = bytes == file->bytes;
    if (status == MICS_OK && !*so_out)
        mics_log(MICS_LOG_WARNING, "%s: missing, or not of %lld bytes as its manifest says", path,
                 (long long)file->bytes);
    mics_free(memory, path);
    return status;
}

// What a step's folder holds.
typedef struct step_state {
    int64_t step;
    bool listed;   // it has a manifest, whatever that says
    bool complete; // listed, valid, and its files are there
    bool passed_over;
    int64_t serial;
} step_state;

static mics_status check_files(mics_memory *memory, const char *folder,
                               const mics_manifest *manifest, bool *complete_out)
{
    bool complete = true;
    if (manifest->tokenizer.name != NULL)
        MICS_TRY(has_length(memory, folder, &manifest->tokenizer, &complete));
    for (int32_t i = 0; complete && i < manifest->file_count; i++)
        MICS_TRY(has_length(memory, folder, &manifest->files[i], &complete));
    *complete_out = complete;
    return MICS_OK;
}

static mics_status inspect_manifest(mics_memory *memory, const char *folder, const char *path,
                                    step_state *state)
{
    if (!mics_store_is_there(path))
        return MICS_OK;
    mics_manifest manifest = {0};
    state->listed = true;
    mics_status status = mics_manifest_try_load(memory, path, &manifest);
    if (status == MICS_ERR_FORMAT)
        return MICS_OK; // damaged: said, and not complete
    MICS_TRY(status);
    state->serial = manifest.serial;
    if (manifest.meta.step == state->step)
        status = check_files(memory, folder, &manifest, &state->complete);
    else
        mics_log(MICS_LOG_WARNING, "%s: is of step %lld", path, (long long)manifest.meta.step);
    mics_manifest_fini(memory, &manifest);
    return status;
}

// Looks at the folder of a step.
static mics_status inspect_step(mics_memory *memory, const char *dir, int64_t step,
                                step_state *state_out)
{
    char *folder = NULL, *path = NULL, *mark = NULL;
    mics_status status = MICS_OK;
    *state_out = (step_state){.step = step};
    MICS_TRY_OUT(mics_file_join(memory, dir, mics_ckpt_step_name(step).text, &folder));
    MICS_TRY_OUT(mics_file_join(memory, folder, MICS_MANIFEST_NAME, &path));
    MICS_TRY_OUT(inspect_manifest(memory, folder, path, state_out));
    MICS_TRY_OUT(mics_file_join(memory, folder, MICS_PASSED_OVER_NAME, &mark));
    state_out->passed_over = state_out->listed && mics_store_is_there(mark);
out:
    MICS_FREE_ALL(memory, mark, path, folder);
    return status;
}

// Complete ones first, then newest first.
static int compare_states(const void *left, const void *right)
{
    const step_state *a = left;
    const step_state *b = right;
    if (a->complete != b->complete)
        return a->complete ? -1 : 1;
    if (a->serial != b->serial)
        return a->serial > b->serial ? -1 : 1;
    return a->step > b->step ? -1 : a->step < b->step;
}

// All folders of `dir` that have a manifest, in the order of compare_states. What is wrong with that
// of step `told` was said before. The caller frees *states_out.
static mics_status list_states(mics_memory *memory, const char *dir, int64_t told,
                               step_state **states_out, size_t *count_out)
{
    int64_t *steps = NULL;
    step_state *states = NULL;
    int step_count = 0;
    mics_status status = MICS_OK;
    MICS_TRY_OUT(list_steps(memory, dir, &steps, &step_count));
    MICS_TRY_OUT(MICS_NEW(memory, step_count, &states));
    size_t count = 0;
    for (int i = 0; i < step_count; i++) {
        const bool before = mics_log_mute(true);
        mics_log_mute(before || steps[i] == told);
        status = inspect_step(memory, dir, steps[i], &states[count]);
        mics_log_mute(before);
        MICS_TRY_OUT(status);
        count += states[count].listed ? 1 : 0;
    }
    qsort(states, count, sizeof *states, compare_states);
    *states_out = states;
    *count_out = count;
    states = NULL;
out:
    mics_free(memory, states);
    mics_free(memory, steps);
    return status;
}

// ---- the newest ----

// The step that `latest` or `best` names, or -1 when that is missing or names none.
static mics_status read_name(mics_memory *memory, const char *dir, const char *name,
                             int64_t *step_out)
{
    *step_out = -1;
    char *path = NULL;
    MICS_TRY(mics_file_join(memory, dir, name, &path));
    char *text = NULL;
    size_t bytes = 0;
    mics_status status = MICS_OK;
    if (mics_store_is_there(path))
        status = mics_store_read_whole(memory, path, MICS_FILE_MAX_WHOLE, &text, &bytes);
    if (text != NULL)
        text[strcspn(text, "\n")] = '\0';
    if (text != NULL && !parse_step_name(text, step_out))
        mics_log(MICS_LOG_WARNING, "%s: does not name a step's folder", path);
    mics_free(memory, text);
    mics_free(memory, path);
    return status;
}

// Looks through all folders, when `latest` does not lead to a complete one.
static mics_status search_newest(mics_memory *memory, const char *dir, int64_t latest,
                                 mics_ckpt_newest_found *found)
{
    step_state *states = NULL;
    size_t count = 0;
    MICS_TRY(list_states(memory, dir, latest, &states, &count));
    if (count > 0 && states[0].complete) {
        found->name = mics_ckpt_step_name(states[0].step);
        found->serial = states[0].serial;
    } else if (count > 0) {
        found->damaged = mics_ckpt_step_name(states[0].step);
        found->damaged_count = (int32_t)count;
    }
    mics_free(memory, states);
    if (latest >= 0 && found->serial >= 0)
        mics_log(MICS_LOG_WARNING,
                 "%s/%s names %s, which is not complete; the newest complete checkpoint is %s", dir,
                 MICS_LATEST_NAME, mics_ckpt_step_name(latest).text, found->name.text);
    return MICS_OK;
}

mics_status mics_ckpt_newest(mics_memory *memory, const char *dir,
                             mics_ckpt_newest_found *found_out)
{
    int64_t latest = -1;
    step_state state = {0};
    *found_out = (mics_ckpt_newest_found){.serial = -1};
    MICS_TRY(read_name(memory, dir, MICS_LATEST_NAME, &latest));
    if (latest >= 0)
        MICS_TRY(inspect_step(memory, dir, latest, &state));
    if (!state.complete)
        return search_newest(memory, dir, latest, found_out);
    found_out->name = mics_ckpt_step_name(state.step);
    found_out->serial = state.serial;
    return MICS_OK;
}

// The same for a caller who is told elsewhere what is wrong with them.
static mics_status list_quietly(mics_memory *memory, const char *dir, step_state **states_out,
                                size_t *count_out)
{
    const bool before = mics_log_mute(true);
    const mics_status status = list_states(memory, dir, -1, states_out, count_out);
    mics_log_mute(before);
    if (status != MICS_OK) // its line was dropped
        return mics_fail(status, "%s: cannot list the checkpoints: %s", dir,
                         mics_status_text(status));
    return MICS_OK;
}

static bool is_among(int64_t step, const int64_t *steps, int32_t count)
{
    for (int32_t i = 0; i < count; i++) {
        if (steps[i] == step)
            return true;
    }
    return false;
}

mics_status mics_checkpoint_other(mics_memory *memory, const char *dir, const int64_t *but,
                                  int32_t but_count, char **path_out)
{
    step_state *states = NULL;
    size_t count = 0;
    *path_out = NULL;
    mics_status status = list_quietly(memory, dir, &states, &count);
    for (size_t i = 0; status == MICS_OK && i < count && *path_out == NULL; i++) {
        if (states[i].complete && !is_among(states[i].step, but, but_count))
            status =
                mics_file_join(memory, dir, mics_ckpt_step_name(states[i].step).text, path_out);
    }
    mics_free(memory, states);
    return status;
}

mics_status mics_checkpoint_steps(mics_memory *memory, const char *dir, int64_t **steps_out,
                                  int32_t *count_out)
{
    step_state *states = NULL;
    size_t count = 0;
    mics_status status = MICS_OK;
    MICS_TRY(list_quietly(memory, dir, &states, &count));
    MICS_TRY_OUT(MICS_NEW(memory, count, steps_out));
    for (size_t i = 0; i < count; i++)
        (*steps_out)[i] = states[i].step;
    *count_out = (int32_t)count;
out:
    mics_free(memory, states);
    return status;
}

mics_status mics_checkpoint_latest(mics_memory *memory, const char *dir, char **path_out)
{
    mics_ckpt_newest_found found;
    char *path = NULL;
    MICS_TRY(mics_ckpt_newest(memory, dir, &found));
    if (found.damaged_count > 0)
        return mics_fail(MICS_ERR_FORMAT,
                         "%s: none of its checkpoints (%d, the newest is %s) is complete, as the "
                         "warnings say; restore the files, or begin anew in another folder",
                         dir, (int)found.damaged_count, found.damaged.text);
    if (found.name.text[0] != '\0')
        MICS_TRY(mics_file_join(memory, dir, found.name.text, &path));
    *path_out = path;
    return MICS_OK;
}

// ---- marks ----

mics_status mics_checkpoint_mark(mics_memory *memory, const char *path, const char *why)
{
    char *mark = NULL;
    mics_status status = MICS_OK;
    if (why != NULL)
        status = mics_store_replace(memory, path, MICS_PASSED_OVER_NAME, why, strlen(why));
    else if ((status = mics_file_join(memory, path, MICS_PASSED_OVER_NAME, &mark)) == MICS_OK)
        status = mics_store_remove(mark);
    mics_free(memory, mark);
    return status;
}

// ---- removing ----

mics_status mics_checkpoint_withdraw(mics_memory *memory, const char *dir, int64_t step)
{
    char *folder = NULL, *manifest = NULL;
    mics_status status = MICS_OK;
    MICS_TRY_OUT(mics_file_join(memory, dir, mics_ckpt_step_name(step).text, &folder));
    MICS_TRY_OUT(mics_file_join(memory, folder, MICS_MANIFEST_NAME, &manifest));
    MICS_TRY_OUT(mics_store_remove(manifest));
    if (mics_store_is_there(folder))
        status = mics_store_sync_dir(folder);
out:
    mics_free(memory, manifest);
    mics_free(memory, folder);
    return status;
}

// What cannot be removed is a warning.
static bool remove_file(mics_memory *memory, const char *folder, const char *name)
{
    char *path = NULL;
    const bool before = mics_log_demote(true);
    mics_status status = mics_file_join(memory, folder, name, &path);
    if (status == MICS_OK)
        status = mics_store_remove(path);
    mics_log_demote(before);
    mics_free(memory, path);
    return status == MICS_OK;
}

// Removes a folder's files of ours, and the folder when nothing else is in it. Its manifest goes
// first, and is gone from the disk before the rest: what is left is never taken for complete.
static void remove_folder(mics_memory *memory, const char *path)
{
    mics_store_names names = {.count = 0};
    const bool before = mics_log_demote(true);
    const bool listed = !is_link(path) && remove_file(memory, path, MICS_MANIFEST_NAME) &&
                        mics_store_sync_dir(path) == MICS_OK &&
                        mics_store_list(memory, path, &names) == MICS_OK;
    mics_log_demote(before);
    if (!listed) {
        mics_log(MICS_LOG_WARNING, "%s: cannot remove it", path);
        return;
    }
    for (int32_t i = 0; i < names.count; i++)
        if (written_by_save(names.list[i]))
            (void)remove_file(memory, path, names.list[i]);
    mics_store_names_fini(memory, &names);
    if (rmdir(path) != 0 && errno != ENOENT)
        mics_log(MICS_LOG_INFO, "%s: kept: it holds other files too", path);
}

// Whether a folder has no manifest and nothing that a save does not write. One that cannot be listed is
// somebody else's.
static mics_status is_leftover(mics_memory *memory, const char *path, bool *so_out)
{
    mics_store_names names = {.count = 0};
    const bool muted = mics_log_mute(true);
    const mics_status status = is_link(path) ? MICS_ERR_IO : mics_store_list(memory, path, &names);
    mics_log_mute(muted);
    *so_out = status == MICS_OK;
    for (int32_t i = 0; *so_out && i < names.count; i++)
        *so_out = written_by_save(names.list[i]) && strcmp(names.list[i], MICS_MANIFEST_NAME) != 0;
    mics_store_names_fini(memory, &names);
    return status == MICS_ERR_MEMORY
               ? mics_fail(status, "%s: no memory for the names of its files", path)
               : MICS_OK;
}

mics_status mics_ckpt_remove_leftovers(mics_memory *memory, const char *dir, int64_t step)
{
    int64_t *steps = NULL;
    int count = 0;
    mics_file_sweep(dir, MICS_LATEST_NAME); // nothing in a bucket
    mics_file_sweep(dir, MICS_BEST_NAME);
    mics_status status = list_steps(memory, dir, &steps, &count);
    for (int i = 0; status == MICS_OK && i < count; i++) {
        if (steps[i] == step)
            continue;
        char *path = NULL;
        status = mics_file_join(memory, dir, mics_ckpt_step_name(steps[i]).text, &path);
        bool leftover = false;
        if (status == MICS_OK)
            status = is_leftover(memory, path, &leftover);
        if (leftover)
            remove_folder(memory, path);
        mics_free(memory, path);
    }
    mics_free(memory, steps);
    return status;
}

static bool is_listed(const mics_manifest *manifest, const char *name)
{
    if (strcmp(name, MICS_MANIFEST_NAME) == 0 || strcmp(name, "config.json") == 0)
        return true;
    if (manifest->tokenizer.name != NULL && strcmp(name, manifest->tokenizer.name) == 0)
        return true;
    for (int32_t i = 0; i < manifest->file_count; i++) {
        if (strcmp(name, manifest->files[i].name) == 0)
            return true;
    }
    return false;
}

void mics_ckpt_remove_unlisted(mics_memory *memory, const char *folder,
                               const mics_manifest *manifest, bool mark_too)
{
    mics_store_names names = {.count = 0};
    const bool before = mics_log_demote(true);
    if (!is_link(folder))
        (void)mics_store_list(memory, folder, &names);
    mics_log_demote(before);
    for (int32_t i = 0; i < names.count; i++) {
        const char *name = names.list[i];
        if (written_by_save(name) && !is_listed(manifest, name) &&
            (mark_too || strcmp(name, MICS_PASSED_OVER_NAME) != 0))
            (void)remove_file(memory, folder, name);
    }
    mics_store_names_fini(memory, &names);
}

// Removes files that a whole manifest does not list; one that is damaged says nothing.
static void clean_folder(mics_memory *memory, const char *folder)
{
    mics_manifest manifest = {0};
    char *path = NULL;
    const bool muted = mics_log_mute(true);
    if (mics_file_join(memory, folder, MICS_MANIFEST_NAME, &path) == MICS_OK &&
        mics_manifest_try_load(memory, path, &manifest) == MICS_OK) {
        mics_log_mute(muted);
        mics_ckpt_remove_unlisted(memory, folder, &manifest, false);
        mics_manifest_fini(memory, &manifest);
    }
    mics_log_mute(muted);
    mics_free(memory, path);
}

mics_status mics_ckpt_clean(mics_memory *memory, const char *dir)
{
    int64_t *steps = NULL;
    int count = 0;
    MICS_TRY(mics_ckpt_remove_leftovers(memory, dir, -1));
    const bool before = mics_log_demote(true); // some servers have no such list
    if (mics_remote_is_bucket(dir))
        (void)remote_s3_give_up_uploads(memory, dir);
    mics_log_demote(before);
    mics_status status = list_steps(memory, dir, &steps, &count);
    for (int i = 0; status == MICS_OK && i < count; i++) {
        char *path = NULL;
        status = mics_file_join(memory, dir, mics_ckpt_step_name(steps[i]).text, &path);
        if (status == MICS_OK)
            clean_folder(memory, path);
        mics_free(memory, path);
    }
    mics_free(memory, steps);
    return status;
}

mics_status mics_checkpoint_best(mics_memory *memory, const char *dir, int64_t *step_out)
{
    return read_name(memory, dir, MICS_BEST_NAME, step_out);
}

// The oldest that is complete, older than `good`, and not the best.
mics_status mics_checkpoint_remove_oldest(mics_memory *memory, const char *dir, int64_t good,
                                          int64_t *step_out)
{
    step_state *states = NULL;
    size_t count = 0, oldest = 0;
    int64_t best = -1;
    char *path = NULL;
    MICS_TRY(read_name(memory, dir, MICS_BEST_NAME, &best));
    MICS_TRY(list_quietly(memory, dir, &states, &count));
    for (size_t i = 1; i < count && states[i].complete; i++) {
        if (states[i].step < good && states[i].step != best)
            oldest = i;
    }
    mics_status status = MICS_OK;
    if (oldest > 0)
        status = mics_file_join(memory, dir, mics_ckpt_step_name(states[oldest].step).text, &path);
    if (status == MICS_OK && oldest > 0) {
        remove_folder(memory, path);
        *step_out = states[oldest].step;
    }
    mics_free(memory, path);
    mics_free(memory, states);
    return status;
}

// What was passed over is no way back: it does not count among those that are kept, and goes when
// there are enough newer ones. What was saved after `step` stays: no good step came after it yet.
mics_status mics_ckpt_prune(mics_memory *memory, const char *dir, int32_t keep, int64_t step,
                            int64_t last)
{
    step_state *states = NULL;
    size_t count = 0;
    int64_t best = -1;
    MICS_TRY(read_name(memory, dir, MICS_BEST_NAME, &best));
    mics_status status = list_states(memory, dir, -1, &states, &count);
    size_t first = 0;
    while (first < count && states[first].complete && states[first].step != step)
        first++;
    int32_t kept = 1; // that of `step`
    for (size_t i = first + 1; status == MICS_OK && i < count && states[i].complete; i++) {
        if (states[i].step > last)
            continue;
        const bool fits = kept < keep;
        kept += states[i].passed_over ? 0 : 1;
        if (fits || states[i].step == best)
            continue;
        char *path = NULL;
        status = mics_file_join(memory, dir, mics_ckpt_step_name(states[i].step).text, &path);
        if (status == MICS_OK)
            remove_folder(memory, path);
        mics_free(memory, path);
    }
    mics_free(memory, states);
    return status;
}
