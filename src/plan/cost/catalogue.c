// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Finding entries of the catalogue, and what to say of names that are not there.
#include "plan/cost/catalogue.h"
#include <stdio.h>
#include <string.h>
#include <strings.h>

enum { MAX_NAMES = 128, MAX_NAMES_SAID = 3 };

static const catalogue_file *files_of(bool accelerators, int32_t *count_out)
{
    *count_out = accelerators ? catalogue_accelerator_count : catalogue_machine_count;
    return accelerators ? catalogue_accelerators : catalogue_machines;
}

const catalogue_file *catalogue_find(bool accelerators, const char *name)
{
    int32_t count = 0;
    const catalogue_file *files = files_of(accelerators, &count);
    for (int32_t i = 0; i < count; i++) {
        for (int32_t n = 0; n < CATALOGUE_NAMES && files[i].names[n] != NULL; n++) {
            if (strcasecmp(files[i].names[n], name) == 0)
                return &files[i];
        }
    }
    return NULL;
}

// ---- names that are not there ----

static int32_t list_names(bool accelerators, const char **names)
{
    int32_t count = 0, listed = 0;
    const catalogue_file *files = files_of(accelerators, &count);
    for (int32_t i = 0; i < count; i++) {
        for (int32_t n = 0; n < CATALOGUE_NAMES && files[i].names[n] != NULL; n++) {
            if (listed < MAX_NAMES)
                names[listed++] = files[i].names[n];
        }
    }
    return listed;
}

static void remove_name(const char **names, int32_t *count, const char *name)
{
    int32_t kept = 0;
    for (int32_t i = 0; i < *count; i++) {
        if (names[i] != name)
            names[kept++] = names[i];
    }
    *count = kept;
}

// The first name that begins like `name`, else the nearest.
static const char *take_near(const char *name, const char **names, int32_t *count)
{
    const char *near = NULL;
    for (int32_t i = 0; near == NULL && strlen(name) >= 2 && i < *count; i++) {
        if (strncasecmp(names[i], name, strlen(name)) == 0)
            near = names[i];
    }
    if (near == NULL)
        near = mics_json_nearest(name, names, *count);
    remove_name(names, count, near);
    return near;
}

char *catalogue_suggest(bool accelerators, const char *name, char *text, size_t capacity)
{
    const char *names[MAX_NAMES];
    int32_t count = list_names(accelerators, names), said = 0;
    size_t used = (size_t)snprintf(text, capacity, "\"%.64s\"", name);
    for (; said < MAX_NAMES_SAID && used < capacity; said++) {
        const char *near = take_near(name, names, &count);
        if (near == NULL)
            break;
        used += (size_t)snprintf(text + used, capacity - used, "%s%s",
                                 said == 0 ? "; did you mean " : " or ", near);
    }
    if (said > 0 && used < capacity)
        snprintf(text + used, capacity - used, "?");
    for (int32_t i = 0; said == 0 && i < count && used < capacity; i++)
        used += (size_t)snprintf(text + used, capacity - used, "%s%s",
                                 i == 0 ? "; the catalogue has " : ", ", names[i]);
    return text;
}

// ---- listing ----

int32_t mics_catalogue_count(void)
{
    return catalogue_machine_count;
}

const char *mics_catalogue_name(int32_t entry)
{
    return catalogue_machines[entry].names[0];
}

const char *mics_catalogue_text(int32_t entry)
{
    return (const char *)catalogue_machines[entry].text;
}
