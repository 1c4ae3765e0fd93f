// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Copies of a run's state in a node's memory, found again after a restart, and put together as a
// checkpoint folder. Nothing found is trusted: manifests and headers are parsed as those of any
// checkpoint are, and a file counts once all its data has been hashed.
#include "base/file.h"
#include "io/checkpoint/folder.h"
#include "io/checkpoint/node.h"
#include "io/checkpoint/rank_file.h"
#include "mics/log.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

enum { CHECK_ELEMS = 16 * MICS_RANK_FILE_CHUNK / 4 }; // that are read and hashed at a time

static int order(int64_t a, int64_t b)
{
    return a > b ? -1 : a < b;
}

int mics_node_compare(const mics_node_key *a, const mics_node_key *b)
{
    const int by[] = {order(a->serial, b->serial), order(a->step, b->step),
                      a->hash > b->hash ? -1 : a->hash < b->hash, order(a->slot, b->slot),
                      order(a->files, b->files)};
    for (size_t i = 0; i < sizeof by / sizeof by[0]; i++) {
        if (by[i] != 0)
            return by[i];
    }
    return 0;
}

// ---- slots that count ----

static int compare_copies(const void *left, const void *right)
{
    const mics_node_copy *a = left, *b = right;
    const int keys = mics_node_compare(&a->key, &b->key);
    return keys != 0 ? keys : strcmp(a->folder, b->folder);
}

// Our own copies number rank files from 0 on, under their plain names.
static mics_status check_manifest(const char *path, const mics_manifest *manifest)
{
    bool good = manifest->file_count <= MICS_NODE_MAX_FILES && manifest->generation >= 0 &&
                manifest->generation < MICS_NODE_SLOTS;
    for (int32_t i = 0; good && i < manifest->file_count; i++)
        good = strcmp(manifest->files[i].name, mics_ckpt_rank_name(i, 0).text) == 0;
    return good ? MICS_OK
                : mics_fail(MICS_ERR_FORMAT, "%s: is no manifest of a copy in node memory", path);
}

static mics_status load_slot(mics_memory *memory, const char *path, mics_node_copy *copy)
{
    MICS_TRY(mics_manifest_load(memory, path, &copy->manifest));
    MICS_TRY(check_manifest(path, &copy->manifest));
    const char *text = mics_json_text(copy->manifest.json);
    copy->key = (mics_node_key){.serial = copy->manifest.serial,
                                .step = copy->manifest.meta.step,
                                .hash = XXH3_64bits(text, strlen(text)),
                                .slot = (int32_t)copy->manifest.generation,
                                .files = copy->manifest.file_count};
    return MICS_OK;
}

// Adds the slot in `folder`, which it takes, if it counts.
static mics_status add_slot_take(mics_memory *memory, char *folder, mics_node_copies *copies)
{
    char *path = NULL;
    mics_node_copy copy = {.folder = folder};
    mics_status status = mics_file_join(memory, folder, MICS_MANIFEST_NAME, &path);
    const bool counts = status == MICS_OK && mics_file_is_there(path);
    void *list = copies->list;
    if (counts)
        status = mics_realloc(memory, MICS_MEM_HOST,
                              (size_t)(copies->count + 1) * sizeof *copies->list, &list);
    copies->list = list;
    const bool before = mics_log_demote(true);
    if (counts && status == MICS_OK && load_slot(memory, path, &copy) == MICS_OK) {
        copies->list[copies->count++] = copy;
        copy = (mics_node_copy){0};
    }
    mics_log_demote(before);
    mics_manifest_fini(memory, &copy.manifest);
    mics_free(memory, copy.folder);
    mics_free(memory, path);
    return status;
}

static int names_node(const struct dirent *entry)
{
    return strncmp(entry->d_name, "node-", 5) == 0;
}

static mics_status add_node(mics_memory *memory, const char *root, const char *name,
                            mics_node_copies *copies)
{
    mics_status status = MICS_OK;
    for (int32_t slot = 0; status == MICS_OK && slot < MICS_NODE_SLOTS; slot++) {
        char below[300];
        char *folder = NULL;
        snprintf(below, sizeof below, "%s/slot-%d", name, (int)slot);
        status = mics_file_join(memory, root, below, &folder);
        if (status == MICS_OK)
            status = add_slot_take(memory, folder, copies);
    }
    return status;
}

mics_status mics_node_scan(mics_memory *memory, const char *root, mics_node_copies *copies_out)
{
    struct dirent **entries = NULL;
    mics_node_copies copies = {0};
    bool there = false;
    mics_status status = MICS_OK;
    MICS_TRY(mics_node_check_root(root, &there));
    *copies_out = copies;
    const int count = there ? scandir(root, &entries, names_node, alphasort) : 0;
    if (count < 0)
        return mics_fail(mics_status_of_errno(errno), "%s: cannot list the folder: %s", root,
                         strerror(errno));
    for (int i = 0; i < count; i++) {
        if (status == MICS_OK)
            status = add_node(memory, root, entries[i]->d_name, &copies);
        free(entries[i]);
    }
    free(entries);
    if (copies.count > 0)
        qsort(copies.list, (size_t)copies.count, sizeof *copies.list, compare_copies);
    if (status == MICS_OK)
        *copies_out = copies;
    else
        mics_node_copies_fini(memory, &copies);
    return status;
}

void mics_node_copies_fini(mics_memory *memory, mics_node_copies *copies)
{
    for (int32_t i = 0; i < copies->count; i++) {
        mics_manifest_fini(memory, &copies->list[i].manifest);
        mics_free(memory, copies->list[i].folder);
    }
    mics_free(memory, copies->list);
    *copies = (mics_node_copies){0};
}

// ---- a file ----

static mics_status check_shard(mics_memory *memory, const char *path, const mics_rank_shard *shard,
                               float *scratch)
{
    for (int32_t s = 0; s < shard->state_count; s++) {
        for (int64_t at = shard->begin; at < shard->end; at += CHECK_ELEMS) {
            const int64_t end = shard->end - at < CHECK_ELEMS ? shard->end : at + CHECK_ELEMS;
            MICS_TRY(mics_rank_file_read(memory, path, shard, &shard->states[s], at, end, scratch));
        }
    }
    return MICS_OK;
}

static mics_status check_data(mics_memory *memory, const char *path, const mics_node_copy *copy,
                              int32_t file)
{
    const mics_manifest_file *listed = &copy->manifest.files[file];
    mics_rank_file found = {0};
    float *scratch = NULL;
    mics_status status = MICS_OK;
    MICS_TRY_OUT(mics_rank_file_load(memory, path, &found));
    MICS_TRY_OUT(mics_rank_file_check_id(
        &found, (mics_rank_file_id){copy->key.step, file, copy->key.files}));
    MICS_TRY_OUT(mics_rank_file_check_listed(&found, listed->bytes, listed->hash));
    MICS_TRY_OUT(MICS_NEW(memory, CHECK_ELEMS, &scratch));
    for (int32_t i = 0; i < found.count; i++)
        MICS_TRY_OUT(check_shard(memory, path, &found.shards[i], scratch));
out:
    mics_free(memory, scratch);
    mics_rank_file_fini(memory, &found);
    return status;
}

mics_status mics_node_check_file(mics_memory *memory, const mics_node_copy *copy, int32_t file,
                                 bool *good_out)
{
    char *path = NULL;
    MICS_TRY(mics_file_join(memory, copy->folder, copy->manifest.files[file].name, &path));
    const bool before = mics_log_demote(true);
    const mics_status status =
        mics_file_is_there(path) ? check_data(memory, path, copy, file) : MICS_ERR_IO;
    mics_log_demote(before);
    mics_free(memory, path);
    *good_out = status == MICS_OK;
    return status == MICS_ERR_MEMORY ? mics_fail(status, "no memory to check copies in node memory")
                                     : MICS_OK;
}

// ---- putting a checkpoint together ----

int64_t mics_node_head_bytes(const unsigned char *at, int64_t left)
{
    if (left < MICS_SAFETENSORS_PREFIX)
        return 0;
    uint64_t header = 0;
    memcpy(&header, at, sizeof header);
    if (header > MICS_SAFETENSORS_MAX_HEADER || (int64_t)header > left - MICS_SAFETENSORS_PREFIX)
        return 0;
    return MICS_SAFETENSORS_PREFIX + (int64_t)header;
}

static mics_status read_head(mics_memory *memory, int fd, const char *path,
                             unsigned char **head_out, int64_t *bytes_out)
{
    unsigned char prefix[MICS_SAFETENSORS_PREFIX];
    MICS_TRY(mics_file_read_at(fd, path, prefix, sizeof prefix, 0));
    const int64_t bytes = mics_node_head_bytes(prefix, INT64_MAX);
    if (bytes == 0)
        return mics_fail(MICS_ERR_FORMAT, "%s: offset 0: no length of a header", path);
    MICS_TRY(MICS_NEW(memory, bytes, head_out));
    const mics_status status = mics_file_read_at(fd, path, *head_out, (size_t)bytes, 0);
    if (status != MICS_OK) {
        mics_free(memory, *head_out);
        *head_out = NULL;
    }
    *bytes_out = bytes;
    return status;
}

mics_status mics_node_read_head(mics_memory *memory, const char *slot, int32_t file,
                                unsigned char **head_out, int64_t *bytes_out)
{
    char *path = NULL;
    int fd = -1;
    MICS_TRY(mics_node_open_file(memory, slot, file, false, &fd, &path));
    const mics_status status = read_head(memory, fd, path, head_out, bytes_out);
    close(fd);
    mics_free(memory, path);
    return status;
}

mics_status mics_node_write_stub(mics_memory *memory, const char *folder, int32_t file,
                                 const unsigned char *head, int64_t head_bytes, int64_t bytes)
{
    char *path = NULL;
    int fd = -1;
    MICS_TRY(mics_node_open_file(memory, folder, file, true, &fd, &path));
    mics_status status = mics_file_write_at(fd, path, head, (size_t)head_bytes, 0);
    if (status == MICS_OK)
        status = mics_file_resize(fd, path, bytes);
    close(fd);
    mics_free(memory, path);
    return status;
}

mics_status mics_node_visit(mics_memory *memory, const char *folder, int32_t file,
                            void (*visit)(void *ctx, int32_t file, const mics_rank_shard *shard),
                            void *ctx, int64_t *bytes_out)
{
    char *path = NULL;
    mics_rank_file read = {0};
    MICS_TRY(mics_file_join(memory, folder, mics_ckpt_rank_name(file, 0).text, &path));
    const mics_status status = mics_rank_file_load(memory, path, &read);
    *bytes_out = read.file_bytes;
    for (int32_t i = 0; status == MICS_OK && i < read.count; i++)
        visit(ctx, file, &read.shards[i]);
    mics_rank_file_fini(memory, &read);
    mics_free(memory, path);
    return status;
}

mics_status mics_node_link(mics_memory *memory, const char *slot, int32_t file, const char *folder)
{
    char *from = NULL, *to = NULL;
    mics_status status = MICS_OK;
    MICS_TRY_OUT(mics_file_join(memory, slot, mics_ckpt_rank_name(file, 0).text, &from));
    MICS_TRY_OUT(mics_file_join(memory, folder, mics_ckpt_rank_name(file, 0).text, &to));
    if (link(from, to) != 0)
        status = mics_fail(mics_status_of_errno(errno), "%s: cannot get a second name: %s", from,
                           strerror(errno));
out:
    mics_free(memory, to);
    mics_free(memory, from);
    return status;
}
