// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Finding entries of the catalogue and making clusters of them.
#include "plan/cost/catalogue.h"
#include <assert.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

enum { MOST_NAMES = 128, NAMES_SAID = 3, TEXT_BYTES = 512 };

static int32_t row_count(const catalogue_row *rows)
{
    int32_t count = 0;
    while (count < CATALOGUE_FIGURES && rows[count].key != NULL)
        count++;
    return count;
}

static const catalogue_accelerator *find_accelerator(const char *name)
{
    int32_t count = 0;
    const catalogue_accelerator *all = catalogue_accelerators(&count);
    for (int32_t i = 0; i < count; i++) {
        if (strcasecmp(all[i].name, name) == 0)
            return &all[i];
    }
    return NULL;
}

static const catalogue_machine *find_machine(const char *name)
{
    int32_t count = 0;
    const catalogue_machine *all = catalogue_machines(&count);
    for (int32_t i = 0; i < count; i++) {
        for (int32_t n = 0; n < CATALOGUE_NAMES && all[i].names[n] != NULL; n++) {
            if (strcasecmp(all[i].names[n], name) == 0)
                return &all[i];
        }
    }
    return NULL;
}

// ---- figures into structures ----

// Section and structure that a dotted key means, and the key's name in it.
static const cost_key *resolve(mics_cluster *cluster, const char *path, void **object_out)
{
    const char *leaf = strrchr(path, '.');
    leaf = leaf != NULL ? leaf + 1 : path;
    if (strncmp(path, "accelerator.", 12) == 0) {
        *object_out = &cluster->accelerator;
        return cost_key_find(COST_ACCELERATOR, leaf);
    }
    if (strncmp(path, "tiers.", 6) != 0) {
        *object_out = cluster;
        return cost_key_find(COST_TOP, leaf);
    }
    char name[MICS_CLUSTER_NAME_BYTES];
    snprintf(name, sizeof name, "%.*s", (int)(leaf - path - 7), path + 6);
    int32_t t = 0;
    while (t < cluster->tier_count && strcmp(cluster->tiers[t].name, name) != 0)
        t++;
    assert(t < MICS_CLUSTER_TIERS);
    if (t == cluster->tier_count) {
        memcpy(cluster->tiers[t].name, name, sizeof name);
        cluster->tier_count++;
    }
    *object_out = &cluster->tiers[t];
    return cost_key_find(COST_TIER, leaf);
}

static void apply(mics_cluster *cluster, const catalogue_row *row)
{
    void *object = NULL;
    const cost_key *key = resolve(cluster, row->key, &object);
    assert(key != NULL && key->type != COST_TEXT);
    void *field = (char *)object + key->at;
    if (row->curve != NULL)
        *(mics_curve *)field = *row->curve;
    else if (key->type == COST_COUNT)
        *(int32_t *)field = (int32_t)row->value;
    else if (key->type == COST_SWITCH)
        *(bool *)field = row->value != 0.0;
    else
        *(double *)field = row->value * key->unit;
}

static void apply_accelerator(const catalogue_accelerator *entry, mics_cluster *cluster)
{
    for (int32_t i = 0; i < row_count(entry->rows); i++)
        apply(cluster, &entry->rows[i]);
    snprintf(cluster->accelerator.name, sizeof cluster->accelerator.name, "%s", entry->name);
}

bool catalogue_accelerator_get(const char *name, mics_accelerator *accelerator_out)
{
    const catalogue_accelerator *entry = find_accelerator(name);
    if (entry == NULL)
        return false;
    mics_cluster cluster;
    mics_cluster_init(&cluster);
    apply_accelerator(entry, &cluster);
    *accelerator_out = cluster.accelerator;
    return true;
}

bool catalogue_cluster(const char *name, mics_cluster *cluster_out)
{
    const catalogue_machine *entry = find_machine(name);
    if (entry == NULL)
        return false;
    mics_cluster cluster;
    mics_cluster_init(&cluster);
    const catalogue_accelerator *accelerator = find_accelerator(entry->accelerator);
    if (accelerator == NULL) // the tables do not agree; a test looks for that
        return false;
    apply_accelerator(accelerator, &cluster);
    for (int32_t i = 0; i < row_count(entry->rows); i++)
        apply(&cluster, &entry->rows[i]);
    snprintf(cluster.name, sizeof cluster.name, "%s", entry->names[0]);
    snprintf(cluster.note, sizeof cluster.note, "catalogue");
    *cluster_out = cluster;
    return true;
}

// ---- names that are not there ----

static int32_t list_names(bool accelerators, const char **names)
{
    int32_t count = 0, listed = 0;
    if (accelerators) {
        const catalogue_accelerator *all = catalogue_accelerators(&count);
        for (int32_t i = 0; i < count && listed < MOST_NAMES; i++)
            names[listed++] = all[i].name;
        return listed;
    }
    const catalogue_machine *all = catalogue_machines(&count);
    for (int32_t i = 0; i < count; i++) {
        for (int32_t n = 0; n < CATALOGUE_NAMES && all[i].names[n] != NULL; n++) {
            if (listed < MOST_NAMES)
                names[listed++] = all[i].names[n];
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
    const char *names[MOST_NAMES];
    int32_t count = list_names(accelerators, names), said = 0;
    size_t used = (size_t)snprintf(text, capacity, "\"%.64s\"", name);
    for (; said < NAMES_SAID && used < capacity; said++) {
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
    if (!catalogue_cluster(name, &cluster))
        return mics_fail(MICS_ERR_INVALID, "unknown cluster %s",
                         catalogue_suggest(false, name, text, sizeof text));
    MICS_TRY(mics_cluster_finish(&cluster));
    *cluster_out = cluster;
    return MICS_OK;
}

mics_status mics_accelerator_find(const char *name, mics_accelerator *accelerator_out)
{
    char text[TEXT_BYTES];
    if (catalogue_accelerator_get(name, accelerator_out))
        return MICS_OK;
    return mics_fail(MICS_ERR_INVALID, "unknown accelerator %s",
                     catalogue_suggest(true, name, text, sizeof text));
}

// ---- listing ----

// An entry's rows: its accelerator's, then its own.
static const catalogue_row *row_at(int32_t entry, int32_t index, int32_t *total_out)
{
    int32_t count = 0;
    const catalogue_machine *machine = &catalogue_machines(&count)[entry];
    const catalogue_accelerator *accelerator = find_accelerator(machine->accelerator);
    const int32_t before = accelerator != NULL ? row_count(accelerator->rows) : 0;
    *total_out = before + row_count(machine->rows);
    return index < before ? &accelerator->rows[index] : &machine->rows[index - before];
}

int32_t mics_catalogue_count(void)
{
    int32_t count = 0;
    catalogue_machines(&count);
    return count;
}

const char *mics_catalogue_name(int32_t entry)
{
    int32_t count = 0;
    return catalogue_machines(&count)[entry].names[0];
}

int32_t mics_catalogue_figure_count(int32_t entry)
{
    int32_t total = 0;
    row_at(entry, 0, &total);
    return total;
}

mics_catalogue_figure mics_catalogue_figure_at(int32_t entry, int32_t index)
{
    int32_t total = 0;
    const catalogue_row *row = row_at(entry, index, &total);
    return (mics_catalogue_figure){.key = row->key,
                                   .value = row->value,
                                   .curve = row->curve,
                                   .source = row->source->text,
                                   .date = row->source->date,
                                   .assumed = row->source->assumed};
}
