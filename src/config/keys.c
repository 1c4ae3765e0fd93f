// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Looking keys up: the tables of honoured keys, one behind the other.
#include "config/key_rows.h"
#include <assert.h>
#include <string.h>

enum { TABLES = 2 };

static const key_table *const tables[TABLES] = {&mics_config_own_keys, &mics_config_deepspeed_keys};

int32_t mics_config_key_count(void)
{
    int32_t count = 0;
    for (int i = 0; i < TABLES; i++)
        count += tables[i]->count;
    assert(count <= CONFIG_MAX_KEYS);
    return count;
}

const key *mics_config_key(int32_t index)
{
    int table = 0;
    for (; table + 1 < TABLES && index >= tables[table]->count; table++)
        index -= tables[table]->count;
    return &tables[table]->rows[index];
}

int32_t mics_config_find(const char *path)
{
    const int32_t count = mics_config_key_count();
    for (int32_t i = 0; i < count; i++) {
        if (strcmp(mics_config_key(i)->path, path) == 0)
            return i;
    }
    return -1;
}

const char *mics_config_leaf(const char *path)
{
    const char *dot = strrchr(path, '.');
    return dot != NULL ? dot + 1 : path;
}

bool mics_config_given(const config *run, const char *path)
{
    int32_t index = mics_config_find(path);
    assert(index >= 0);
    return run->states[index] != KEY_ABSENT && run->states[index] != KEY_FROM_CHECKPOINT;
}

bool mics_config_valued(const config *run, const char *path)
{
    int32_t index = mics_config_find(path);
    assert(index >= 0);
    return run->states[index] == KEY_FROM_FILE || run->states[index] == KEY_FROM_SET;
}

void mics_config_set_origin(config *run, const char *path, const char *origin)
{
    int32_t index = mics_config_find(path);
    assert(index >= 0);
    run->origins[index] = origin;
}
