// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Finding entries of the catalogue and making clusters of them.
#include "plan/cost/catalogue.h"
#include <stdio.h>
#include <string.h>
#include <strings.h>

enum { MAX_NAMES = 128, MAX_NAMES_SAID = 3, TEXT_BYTES = 512 };

static const catalogue_file *files_of(bool accelerators, int32_t *count_out)
{
    *count_out = accelerators ? catalogue_accelerator_count : catalogue_machine_count;
    return accelerators ? catalogue_accelerators : catalogue_machines;
}

static const catalogue_file *find_file(bool accelerators, const char *name)
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

// Reads an entry into `cluster`: a machine, or its accelerator alone.
static mics_status read_entry(const catalogue_file *file, bool accelerator, mics_cluster *cluster)
{
    mics_memory *memory = NULL;
    mics_json *json = NULL;
    MICS_TRY(mics_memory_open(&memory));
    mics_status status =
        mics_json_parse(memory, file->names[0], (const char *)file->text, file->bytes, &json);
    if (status == MICS_OK && accelerator)
        status = cost_read_accelerator(json, &cluster->accelerator);
    else if (status == MICS_OK)
        status = cost_read_cluster(json, cluster);
    mics_json_close(json);
    mics_memory_close(memory);
    return status;
}

mics_status catalogue_accelerator(const char *name, mics_accelerator *accelerator_out)
{
    const catalogue_file *file = find_file(true, name);
    mics_cluster cluster;
    if (file == NULL)
        return MICS_ERR_INVALID;
    mics_cluster_init(&cluster);
    MICS_TRY(read_entry(file, true, &cluster));
    *accelerator_out = cluster.accelerator;
    return MICS_OK;
}

mics_status catalogue_cluster(const char *name, mics_cluster *cluster_out)
{
    const catalogue_file *file = find_file(false, name);
    mics_cluster cluster;
    if (file == NULL)
        return MICS_ERR_INVALID;
    MICS_TRY(read_entry(file, false, &cluster));
    snprintf(cluster.note, sizeof cluster.note, "catalogue");
    *cluster_out = cluster;
    return MICS_OK;
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

mics_status mics_cluster_find(const char *name, mics_cluster *cluster_out)
{
    mics_cluster cluster;
    char text[TEXT_BYTES];
    if (find_file(false, name) == NULL)
        return mics_fail(MICS_ERR_INVALID, "unknown cluster %s",
                         catalogue_suggest(false, name, text, sizeof text));
    MICS_TRY(catalogue_cluster(name, &cluster));
    MICS_TRY(mics_cluster_finish(&cluster));
    *cluster_out = cluster;
    return MICS_OK;
}

mics_status mics_accelerator_find(const char *name, mics_accelerator *accelerator_out)
{
    char text[TEXT_BYTES];
    if (find_file(true, name) == NULL)
        return mics_fail(MICS_ERR_INVALID, "unknown accelerator %s",
                         catalogue_suggest(true, name, text, sizeof text));
    return catalogue_accelerator(name, accelerator_out);
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
