// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// The shards of a checkpoint, put in order and checked for holes and overlaps.
#include "io/checkpoint/catalog.h"
#include "base/file.h"
#include "base/free.h"
#include "mics/log.h"
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

static mics_status load_files(mics_memory *memory, const char *folder,
                              const mics_manifest *manifest, int64_t step, mics_catalog *catalog)
{
    const int32_t count = manifest->file_count;
    MICS_TRY(MICS_NEW(memory, count, &catalog->files));
    for (int32_t i = 0; i < count; i++) {
        mics_rank_file *file = &catalog->files[i];
        char *path = NULL;
        MICS_TRY(mics_file_join(memory, folder, manifest->files[i].name, &path));
        const mics_status status = mics_rank_file_load(memory, path, file);
        mics_free(memory, path);
        MICS_TRY(status);
        catalog->file_count = i + 1;
        MICS_TRY(mics_rank_file_check_id(file, (mics_rank_file_id){step, i, count}));
    }
    return MICS_OK;
}

static const char *path_of(const mics_catalog *catalog, const mics_catalog_shard *at)
{
    return catalog->files[at->file].path;
}

static int compare_shards(const void *left, const void *right)
{
    const mics_rank_shard *a = ((const mics_catalog_shard *)left)->shard;
    const mics_rank_shard *b = ((const mics_catalog_shard *)right)->shard;
    int names = strcmp(a->unit, b->unit);
    if (names != 0)
        return names;
    return a->begin < b->begin ? -1 : a->begin > b->begin;
}

// Collects the shards that are not empty, in order. `count_out` is how many.
static mics_status sort_shards(mics_memory *memory, mics_catalog *catalog, int64_t *count_out)
{
    size_t count = 0;
    for (int32_t i = 0; i < catalog->file_count; i++)
        count += (size_t)catalog->files[i].count;
    MICS_TRY(MICS_NEW(memory, count, &catalog->shards));
    count = 0;
    for (int32_t i = 0; i < catalog->file_count; i++) {
        for (int32_t k = 0; k < catalog->files[i].count; k++) {
            const mics_rank_shard *shard = &catalog->files[i].shards[k];
            if (shard->begin < shard->end)
                catalog->shards[count++] = (mics_catalog_shard){.shard = shard, .file = i};
        }
    }
    qsort(catalog->shards, count, sizeof *catalog->shards, compare_shards);
    *count_out = (int64_t)count;
    return MICS_OK;
}

// Says that [done, ...) of a unit is held by no shard or by two.
static mics_status not_tiled(const mics_catalog *catalog, const mics_catalog_shard *at,
                             int64_t done)
{
    const mics_rank_shard *shard = at->shard;
    return mics_fail(MICS_ERR_FORMAT,
                     "%s: holds elements %lld to %lld of %lld of unit %s, where %lld %s",
                     path_of(catalog, at), (long long)shard->begin, (long long)shard->end,
                     (long long)shard->unit_elems, shard->unit, (long long)done,
                     shard->begin < done ? "and those before are in another shard too"
                                         : "is the first that is in no shard");
}

static bool same_states(const mics_rank_shard *a, const mics_rank_shard *b)
{
    bool same = a->state_count == b->state_count;
    for (int32_t i = 0; same && i < a->state_count; i++)
        same = strcmp(a->states[i].name, b->states[i].name) == 0;
    return same;
}

// What the shards of a unit must have in common.
static mics_status check_alike(const mics_catalog *catalog, const mics_catalog_shard *head,
                               const mics_catalog_shard *at)
{
    if (at->shard->unit_elems != head->shard->unit_elems)
        return mics_fail(MICS_ERR_FORMAT, "%s: unit %s has %lld elements here, %lld in %s",
                         path_of(catalog, at), head->shard->unit, (long long)at->shard->unit_elems,
                         (long long)head->shard->unit_elems, path_of(catalog, head));
    if (!same_states(head->shard, at->shard))
        return mics_fail(MICS_ERR_FORMAT, "%s: unit %s has other states here than in %s",
                         path_of(catalog, at), head->shard->unit, path_of(catalog, head));
    return MICS_OK;
}

// Takes the shards of one unit from `first` on; unit_out->count is how many they are.
static mics_status tile_unit(const mics_catalog *catalog, int64_t first, int64_t total,
                             mics_catalog_unit *unit_out)
{
    const mics_rank_shard *head = catalog->shards[first].shard;
    int64_t done = 0;
    int64_t next = first;
    for (; next < total; next++) {
        const mics_catalog_shard *at = &catalog->shards[next];
        if (strcmp(at->shard->unit, head->unit) != 0)
            break;
        MICS_TRY(check_alike(catalog, &catalog->shards[first], at));
        if (at->shard->begin != done)
            return not_tiled(catalog, at, done);
        done = at->shard->end;
    }
    if (done != head->unit_elems)
        return mics_fail(MICS_ERR_FORMAT, "%s: unit %s ends at element %lld in all files, of %lld",
                         path_of(catalog, &catalog->shards[next - 1]), head->unit, (long long)done,
                         (long long)head->unit_elems);
    *unit_out = (mics_catalog_unit){
        .name = head->unit, .elems = head->unit_elems, .first = first, .count = next - first};
    return MICS_OK;
}

static mics_status tile_units(mics_memory *memory, int64_t total, mics_catalog *catalog)
{
    if (total > INT32_MAX)
        return mics_fail(MICS_ERR_FORMAT, "%s: too many shards", catalog->files[0].path);
    MICS_TRY(MICS_NEW(memory, total, &catalog->units)); // or fewer
    for (int64_t first = 0; first < total;) {
        mics_catalog_unit *unit = &catalog->units[catalog->unit_count];
        MICS_TRY(tile_unit(catalog, first, total, unit));
        catalog->unit_count++;
        first += unit->count;
    }
    return MICS_OK;
}

// A unit of which every file holds an empty shard would vanish from the catalog in silence.
static mics_status check_empty_shards(const mics_catalog *catalog)
{
    for (int32_t i = 0; i < catalog->file_count; i++) {
        for (int32_t k = 0; k < catalog->files[i].count; k++) {
            const mics_rank_shard *shard = &catalog->files[i].shards[k];
            if (shard->begin == shard->end && mics_catalog_find(catalog, shard->unit) == NULL)
                return mics_fail(MICS_ERR_FORMAT, "%s: unit %s is empty in every file",
                                 catalog->files[i].path, shard->unit);
        }
    }
    return MICS_OK;
}

// ---- islands ----

mics_status mics_checkpoint_island_unit(mics_memory *memory, const char *unit, int32_t island,
                                        char **name_out)
{
    mics_text text = {.memory = memory};
    mics_rank_file_put_unit(&text, unit, 1 + island);
    mics_status status = mics_text_status(&text);
    if (status == MICS_OK)
        status = mics_strdup(memory, text.bytes, name_out);
    mics_text_fini(&text);
    return status;
}

int32_t mics_checkpoint_unit_island(const char *name)
{
    enum { MAX_DIGITS = 9 };
    const char *mark = strrchr(name, '@');
    const size_t digits = mark != NULL ? strspn(mark + 1, "0123456789") : 0;
    return digits > 0 && digits <= MAX_DIGITS && mark[1 + digits] == '\0'
               ? (int32_t)strtol(mark + 1, NULL, 10)
               : -1;
}

static mics_status check_island(mics_memory *memory, const mics_catalog *catalog,
                                const mics_catalog_unit *unit, int32_t island)
{
    char *name = NULL;
    MICS_TRY(mics_checkpoint_island_unit(memory, unit->name, island, &name));
    const mics_catalog_unit *own = mics_catalog_find(catalog, name);
    mics_free(memory, name);
    if (own != NULL && own->elems == unit->elems)
        return MICS_OK;
    return mics_fail(MICS_ERR_FORMAT,
                     "%s: no file holds unit %s of island %d, of %lld elements; use an older "
                     "checkpoint",
                     catalog->files[0].path, unit->name, (int)island, (long long)unit->elems);
}

// Every unit has what all agreed on, and the state of each island.
static mics_status check_islands(mics_memory *memory, const mics_catalog *catalog, int32_t islands)
{
    int32_t units = 0;
    for (int32_t u = 0; islands > 1 && u < catalog->unit_count; u++) {
        const mics_catalog_unit *unit = &catalog->units[u];
        const bool of_all = mics_checkpoint_unit_island(unit->name) < 0;
        units += of_all;
        for (int32_t island = 0; of_all && island < islands; island++)
            MICS_TRY(check_island(memory, catalog, unit, island));
    }
    if (islands < 2 || catalog->unit_count == units * (1 + islands))
        return MICS_OK;
    return mics_fail(MICS_ERR_FORMAT,
                     "%s: holds more states of islands than %d units of %d islands have; use an "
                     "older checkpoint",
                     catalog->files[0].path, (int)units, (int)islands);
}

mics_status mics_catalog_load(mics_memory *memory, const char *folder,
                              const mics_manifest *manifest, int64_t step,
                              mics_catalog *catalog_out)
{
    mics_catalog catalog = {0};
    int64_t total = 0;
    mics_status status = MICS_OK;
    MICS_TRY_OUT(load_files(memory, folder, manifest, step, &catalog));
    MICS_TRY_OUT(sort_shards(memory, &catalog, &total));
    MICS_TRY_OUT(tile_units(memory, total, &catalog));
    MICS_TRY_OUT(check_empty_shards(&catalog));
    MICS_TRY_OUT(check_islands(memory, &catalog, manifest->meta.outer.islands));
    *catalog_out = catalog;
    return MICS_OK;
out:
    mics_catalog_fini(memory, &catalog);
    return status;
}

void mics_catalog_fini(mics_memory *memory, mics_catalog *catalog)
{
    for (int32_t i = 0; i < catalog->file_count; i++)
        mics_rank_file_fini(memory, &catalog->files[i]);
    MICS_FREE_ALL(memory, catalog->files, catalog->shards, catalog->units);
    *catalog = (mics_catalog){0};
}

static int compare_name(const void *key, const void *unit)
{
    return strcmp(key, ((const mics_catalog_unit *)unit)->name);
}

const mics_catalog_unit *mics_catalog_find(const mics_catalog *catalog, const char *name)
{
    return catalog->unit_count == 0 ? NULL
                                    : bsearch(name, catalog->units, (size_t)catalog->unit_count,
                                              sizeof *catalog->units, compare_name);
}
