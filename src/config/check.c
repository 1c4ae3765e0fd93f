// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Walks a run file beside the tables of keys: every key is known, and is taken or refused.
#include "base/assert.h"
#include "base/text.h"
#include "config/adopt.h"
#include "config/value.h"
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

enum { LIST_BYTES = 400, KEY_SHOWN_BYTES = 64 };

// True when the row at `path` lies directly in the section `parent` ("" is the file itself).
static bool is_child(const char *path, const char *parent)
{
    size_t bytes = strlen(parent);
    if (bytes == 0)
        return strchr(path, '.') == NULL;
    return strncmp(path, parent, bytes) == 0 && path[bytes] == '.' &&
           strchr(path + bytes + 1, '.') == NULL;
}

// A known path by its number: honoured keys first, then foreign ones; NULL past the end.
static const char *known_path(int32_t index)
{
    const int32_t own = mics_config_key_count();
    return index < own ? mics_config_key(index)->path : mics_config_foreign(index - own).path;
}

// The known key whose name is nearest to that of an unknown one, or NULL; `within`: of the same section.
static const char *nearest_path(const char *parent, const char *name, bool within)
{
    const char *names[CONFIG_MAX_KEYS + CONFIG_MAX_FOREIGN];
    const char *paths[CONFIG_MAX_KEYS + CONFIG_MAX_FOREIGN];
    int32_t listed = 0;
    const char *path = NULL;
    for (int32_t i = 0; (path = known_path(i)) != NULL; i++) {
        if (within && !is_child(path, parent))
            continue;
        names[listed] = mics_config_leaf(path);
        paths[listed++] = path;
    }
    const char *nearest = mics_json_nearest(name, names, listed);
    for (int32_t i = 0; nearest != NULL && i < listed; i++) {
        if (names[i] == nearest)
            return paths[i];
    }
    return NULL;
}

static void list_children(const char *parent, char *list, size_t capacity)
{
    size_t used = 0;
    list[0] = '\0';
    for (int32_t i = 0; i < mics_config_key_count(); i++) {
        const char *path = mics_config_key(i)->path;
        if (!is_child(path, parent))
            continue;
        int written = snprintf(list + used, capacity - used, "%s%s", used == 0 ? "" : ", ",
                               mics_config_leaf(path));
        if (written < 0 || (size_t)written >= capacity - used) {
            snprintf(list + used, capacity - used, ", ...");
            return;
        }
        used += (size_t)written;
    }
}

static mics_status refuse_unknown(config *run, const char *parent, const char *path,
                                  const char *name)
{
    // Of the same section, else what another program's key of that name means, else anywhere.
    const char *nearest = nearest_path(parent, name, true);
    const mics_run_flag other = mics_run_flag_of(name);
    if (nearest == NULL && other.says != NULL)
        return mics_config_refuse(run, path, MICS_ERR_INVALID, "unknown key; %s", other.says);
    if (nearest == NULL)
        nearest = other.key != NULL ? other.key : nearest_path(parent, name, false);
    if (nearest != NULL)
        return mics_config_refuse(run, path, MICS_ERR_INVALID, "unknown key; did you mean %s?",
                                  nearest);
    if (run->refused.count > 0)
        return mics_config_refuse(run, path, MICS_ERR_INVALID, "unknown key");
    char list[LIST_BYTES]; // once is enough
    list_children(parent, list, sizeof list);
    return mics_config_refuse(run, path, MICS_ERR_INVALID, "unknown key; known here: %s", list);
}

// Names that no key has, and that would make a mess of an error line.
static bool is_odd(const char *name)
{
    size_t bytes = strlen(name);
    if (bytes == 0 || bytes > KEY_SHOWN_BYTES)
        return true;
    for (size_t i = 0; i < bytes; i++) {
        if (name[i] <= ' ' || name[i] > '~' || name[i] == '.')
            return true;
    }
    return false;
}

// The key was set, or stands in something that was set; `state`: of an earlier walk.
static bool was_set(const config *run, const char *path, uint8_t state)
{
    if (state == KEY_FROM_SET || state == KEY_FROM_SET_AUTO)
        return true;
    for (int32_t i = 0; i < run->set_count; i++) {
        size_t bytes = strcspn(run->sets[i], "=");
        if (strncmp(run->sets[i], path, bytes) == 0 && (path[bytes] == '\0' || path[bytes] == '.'))
            return true;
    }
    return false;
}

static bool is_auto_text(const mics_json_value *value)
{
    return mics_json_type_of(value) == MICS_JSON_STRING &&
           strcmp(mics_json_string(value), "auto") == 0;
}

static uint8_t state_of(bool set, bool is_auto)
{
    if (is_auto)
        return set ? KEY_FROM_SET_AUTO : KEY_FROM_FILE_AUTO;
    return set ? KEY_FROM_SET : KEY_FROM_FILE;
}

// Checks and stores one key; a section only as far as that it is one.
static mics_status check_key(config *run, int32_t index, const mics_json_value *value)
{
    const key *row = mics_config_key(index);
    const bool is_auto = is_auto_text(value) && row->automatic != NULL && row->type != KEY_TEXT &&
                         row->type != KEY_CHOICE;
    run->states[index] = state_of(was_set(run, row->path, run->states[index]), is_auto);
    const bool nested = row->type == KEY_SECTION || row->type == KEY_OBJECT;
    if (is_auto || (nested && mics_json_type_of(value) == MICS_JSON_OBJECT))
        return MICS_OK;
    return mics_config_take(run, row, value);
}

static mics_status check_foreign(config *run, int32_t index, const mics_json_value *value)
{
    const foreign_key row = mics_config_foreign(index);
    const bool is_auto = is_auto_text(value);
    char text[LIST_BYTES / 4];
    run->foreign_states[index] =
        state_of(was_set(run, row.path, run->foreign_states[index]), is_auto);
    if (is_auto)
        return MICS_OK;
    if (mics_config_foreign_allows(index, value))
        return MICS_OK;
    if (mics_text_is_among(row.only, FOREIGN_ONE "|" FOREIGN_OFF "|" FOREIGN_EMPTY))
        return mics_config_refuse(run, row.path, MICS_ERR_UNSUPPORTED, "cannot be honoured: %s",
                                  row.why);
    mics_config_value_text(value, text, sizeof text);
    return mics_config_refuse(run, row.path, MICS_ERR_UNSUPPORTED, "must be %s, not %s; %s",
                              row.only, text, row.why);
}

static mics_status check_section(config *run, const char *parent, const mics_json_value *object);

static mics_status check_member(config *run, const char *parent, const char *name,
                                const mics_json_value *value)
{
    char path[CONFIG_PATH_BYTES];
    snprintf(path, sizeof path, "%s%s%s", parent, *parent != '\0' ? "." : "", name);
    const int32_t index = mics_config_find(path), foreign = mics_config_find_foreign(path);
    if (index < 0 && foreign < 0 && mics_config_is_adopted(path))
        return MICS_OK;
    if (index < 0 && foreign < 0)
        return refuse_unknown(run, parent, path, name);
    if (mics_json_type_of(value) == MICS_JSON_NULL)
        return MICS_OK; // as if it were absent
    if (index < 0)
        return check_foreign(run, foreign, value);
    MICS_TRY(check_key(run, index, value));
    if (mics_config_key(index)->type != KEY_SECTION || mics_json_type_of(value) != MICS_JSON_OBJECT)
        return MICS_OK;
    return check_section(run, path, value); // one level down; the tables have three
}

// The parameters of an optimizer or scheduler that is refused say nothing about what is built.
static bool is_of_refused(const config *run, const char *parent)
{
    static const char end[] = ".params";
    char path[CONFIG_PATH_BYTES];
    if (!mics_text_ends(parent, end))
        return false;
    snprintf(path, sizeof path, "%.*s.type", (int)(strlen(parent) - (sizeof end - 1)), parent);
    const int32_t index = mics_config_find(path);
    const char *type = mics_json_string(mics_json_at(run->run.json, path));
    if (index < 0 || mics_config_key(index)->choices == NULL || type == NULL ||
        mics_adopt_is_auto(mics_json_at(run->run.json, path)))
        return false;
    const char *const *choices = mics_config_key(index)->choices;
    while (*choices != NULL && strcasecmp(*choices, type) != 0)
        choices++;
    return *choices == NULL;
}

static mics_status check_section(config *run, const char *parent, const mics_json_value *object)
{
    const char *name = NULL;
    const mics_json_value *value = NULL;
    if (is_of_refused(run, parent))
        return MICS_OK;
    while ((value = mics_json_next(object, &name)) != NULL) {
        if (is_odd(name))
            return mics_json_fail(run->run.json, parent, MICS_ERR_INVALID,
                                  "has a key that is empty, longer than %d bytes, or holds a dot, "
                                  "a space or other letters than a-z; no known key does",
                                  KEY_SHOWN_BYTES);
        MICS_TRY(check_member(run, parent, name, value));
    }
    return MICS_OK;
}

static mics_status check_required(const config *run)
{
    for (int32_t i = 0; i < mics_config_key_count(); i++) {
        const key *row = mics_config_key(i);
        if ((row->flags & KEY_REQUIRED) != 0 && row->type != KEY_SECTION &&
            run->states[i] == KEY_ABSENT)
            return mics_json_fail(run->run.json, row->path, MICS_ERR_INVALID,
                                  "is missing: %s; %s gives it", row->help, row->flag);
    }
    return MICS_OK;
}

// The document that decides a key: the file, or where that leaves it open the stored run.
static const mics_json *said_or_kept(const config *run, const char *path)
{
    const bool said = mics_json_type_of(mics_json_at(run->run.json, path)) != MICS_JSON_NULL;
    return said || run->kept == NULL ? run->run.json : run->kept;
}

static bool is_consistent(const config *run)
{
    _Static_assert(offsetof(config, run) == 0, "a mics_run that was handed out is its config");
    for (int32_t i = 0; i < CONFIG_MAX_KEYS; i++) {
        const bool known = i < mics_config_key_count();
        if (run->states[i] > (known ? KEY_FROM_CHECKPOINT : KEY_ABSENT) ||
            (!known && run->origins[i] != NULL))
            return false;
    }
    for (int32_t i = 0; i < CONFIG_MAX_FOREIGN; i++) {
        const bool known = mics_config_foreign(i).path != NULL;
        if (run->foreign_states[i] > (known ? KEY_FROM_SET_AUTO : KEY_ABSENT))
            return false;
    }
    return mics_config_foreign(CONFIG_MAX_FOREIGN).path == NULL;
}

mics_status mics_config_check(config *run)
{
    run->run.optimizer =
        (mics_optimizer){.kind = mics_config_optimizer_of(said_or_kept(run, "optimizer.type"))};
    for (int32_t i = 0; i < mics_config_key_count(); i++)
        mics_config_store_default(run, mics_config_key(i));
    const mics_json_value *root = mics_json_root(run->run.json);
    if (mics_json_type_of(root) != MICS_JSON_OBJECT)
        return mics_json_fail(run->run.json, NULL, MICS_ERR_FORMAT,
                              "a run file must be an object, not %s",
                              mics_json_type_text(mics_json_type_of(root)));
    MICS_TRY(check_section(run, "", root));
    MICS_TRY(mics_config_fail_refused(run));
    MICS_TRY(mics_config_keep(run));
    MICS_ASSERT(is_consistent(run));
    return check_required(run);
}
