// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// The folder of a run's state in a node's memory, and the copies that are written there;
// node_find.c finds them again.
#include "io/checkpoint/node.h"
#include "base/file.h"
#include "base/text.h"
#include "io/checkpoint/folder.h"
#include "io/checkpoint/rank_file.h"
#include "mics/log.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>
#include <xxhash.h>

// ---- the run's folder ----

const char *mics_node_base(void)
{
    const char *dir = getenv("MICS_SHM_DIR");
    return dir != NULL && dir[0] != '\0' ? dir : "/dev/shm";
}

mics_status mics_node_draw_id(char id_out[MICS_NODE_ID_BYTES])
{
    unsigned char bytes[(MICS_NODE_ID_BYTES - 1) / 2];
    if (getrandom(bytes, sizeof bytes, 0) != (ssize_t)sizeof bytes)
        return mics_fail(MICS_ERR_IO, "the system has no random bytes: %s", strerror(errno));
    for (size_t i = 0; i < sizeof bytes; i++)
        snprintf(id_out + 2 * i, 3, "%02x", (unsigned)bytes[i]);
    return MICS_OK;
}

bool mics_node_is_id(const char *text)
{
    return strlen(text) == MICS_NODE_ID_BYTES - 1 &&
           strspn(text, "0123456789abcdef") == MICS_NODE_ID_BYTES - 1;
}

mics_status mics_node_root(mics_memory *memory, const char *id, char **root_out)
{
    char name[32 + MICS_NODE_ID_BYTES];
    snprintf(name, sizeof name, "mics-%u-%s", (unsigned)geteuid(), id);
    return mics_file_join(memory, mics_node_base(), name, root_out);
}

mics_status mics_node_check_root(const char *root, bool *there_out)
{
    struct stat info;
    *there_out = false;
    if (lstat(root, &info) != 0) {
        if (errno == ENOENT)
            return MICS_OK;
        return mics_fail(mics_status_of_errno(errno), "%s: cannot look at it: %s", root,
                         strerror(errno));
    }
    if (!S_ISDIR(info.st_mode) || info.st_uid != geteuid() || (info.st_mode & 077) != 0)
        return mics_fail(MICS_ERR_INVALID,
                         "%s: is no folder of this user alone (mode 0700), so it is not used as "
                         "node memory; remove it",
                         root);
    *there_out = true;
    return MICS_OK;
}

mics_status mics_node_make_root(const char *root)
{
    bool there = false;
    if (mkdir(root, 0700) != 0 && errno != EEXIST)
        return mics_fail(mics_status_of_errno(errno),
                         "%s: cannot make the folder: %s; MICS_SHM_DIR names another tmpfs", root,
                         strerror(errno));
    MICS_TRY(mics_node_check_root(root, &there));
    return there ? MICS_OK : mics_fail(MICS_ERR_IO, "%s: is gone again", root);
}

static mics_status node_dir(mics_memory *memory, const char *root, int32_t node, char **dir_out)
{
    char name[32];
    snprintf(name, sizeof name, "node-%d", (int)node);
    return mics_file_join(memory, root, name, dir_out);
}

mics_status mics_node_slot(mics_memory *memory, const char *root, int32_t node, int32_t slot,
                           char **slot_out)
{
    char name[32];
    char *dir = NULL;
    snprintf(name, sizeof name, "slot-%d", (int)slot);
    MICS_TRY(node_dir(memory, root, node, &dir));
    const mics_status status = mics_file_join(memory, dir, name, slot_out);
    mics_free(memory, dir);
    return status;
}

// Removes the entry `name` of the folder `parent`, and what is below it.
static void remove_at(int parent, const char *name)
{
    if (unlinkat(parent, name, 0) == 0 || errno == ENOENT)
        return;
    const int fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *folder = fd >= 0 ? fdopendir(fd) : NULL;
    const struct dirent *entry;
    if (folder == NULL && fd >= 0)
        close(fd);
    while (folder != NULL && (entry = readdir(folder)) != NULL) {
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            remove_at(dirfd(folder), entry->d_name);
    }
    if (folder != NULL)
        closedir(folder);
    if (unlinkat(parent, name, AT_REMOVEDIR) != 0 && errno != ENOENT)
        mics_log(MICS_LOG_WARNING, "%s: cannot be removed from node memory: %s", name,
                 strerror(errno));
}

void mics_node_remove(const char *path)
{
    remove_at(AT_FDCWD, path);
}

// The number in a name that begins so; -1: it does not, or has none.
static long number_of(const char *name, const char *begin)
{
    const size_t bytes = strlen(begin);
    char *end = NULL;
    if (strncmp(name, begin, bytes) != 0 || name[bytes] < '0' || name[bytes] > '9')
        return -1;
    const long number = strtol(name + bytes, &end, 10);
    return end != name + bytes ? number : -1;
}

void mics_node_remove_from(const char *root, int32_t first)
{
    DIR *folder = opendir(root);
    const struct dirent *entry;
    while (folder != NULL && (entry = readdir(folder)) != NULL) {
        if (number_of(entry->d_name, "node-") >= first || strncmp(entry->d_name, "resume-", 7) == 0)
            remove_at(dirfd(folder), entry->d_name);
    }
    if (folder != NULL)
        closedir(folder);
}

// Of the files below a folder, with no more than `depth` folders between.
static int64_t used_below(int parent, const char *name, int depth)
{
    struct stat info;
    int64_t sum = 0;
    if (fstatat(parent, name, &info, AT_SYMLINK_NOFOLLOW) != 0)
        return 0;
    if (!S_ISDIR(info.st_mode) || depth == 0) // a file of two names counts half at each
        return (int64_t)info.st_blocks * 512 / (int64_t)(info.st_nlink > 0 ? info.st_nlink : 1);
    const int fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *folder = fd >= 0 ? fdopendir(fd) : NULL;
    const struct dirent *entry;
    if (folder == NULL && fd >= 0)
        close(fd);
    while (folder != NULL && (entry = readdir(folder)) != NULL) {
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            sum += used_below(dirfd(folder), entry->d_name, depth - 1);
    }
    if (folder != NULL)
        closedir(folder);
    return sum;
}

mics_status mics_node_space(const char *root, int64_t *used_out, int64_t *free_out)
{
    enum { DEPTH = 3 }; // node, slot, file
    struct statvfs info;
    const bool there = root != NULL && access(root, F_OK) == 0;
    const char *at = there ? root : mics_node_base();
    if (statvfs(at, &info) != 0)
        return mics_fail(mics_status_of_errno(errno),
                         "%s: cannot look at it: %s; MICS_SHM_DIR names another tmpfs", at,
                         strerror(errno));
    *used_out = there ? used_below(AT_FDCWD, root, DEPTH) : 0;
    *free_out = (int64_t)info.f_bavail * (int64_t)info.f_frsize;
    return MICS_OK;
}

// ---- writing ----

static mics_status make_dir(const char *path)
{
    if (mkdir(path, 0700) == 0 || errno == EEXIST)
        return MICS_OK;
    return mics_fail(mics_status_of_errno(errno), "%s: cannot make the folder: %s", path,
                     strerror(errno));
}

// What is counted is the manifest, so that goes first.
static mics_status empty_slot(mics_memory *memory, const char *slot)
{
    char *manifest = NULL;
    MICS_TRY(make_dir(slot));
    MICS_TRY(mics_file_join(memory, slot, MICS_MANIFEST_NAME, &manifest));
    const bool gone = unlink(manifest) == 0 || errno == ENOENT;
    mics_status status = MICS_OK;
    if (!gone)
        status = mics_fail(mics_status_of_errno(errno), "%s: cannot be removed: %s", manifest,
                           strerror(errno));
    mics_free(memory, manifest);
    return status;
}

mics_status mics_node_begin(mics_memory *memory, const char *root, int32_t node, int32_t slot,
                            char **slot_out)
{
    char *dir = NULL, *path = NULL;
    mics_status status = MICS_OK;
    MICS_TRY_OUT(node_dir(memory, root, node, &dir));
    MICS_TRY_OUT(make_dir(dir));
    MICS_TRY_OUT(mics_node_slot(memory, root, node, slot, &path));
    MICS_TRY_OUT(empty_slot(memory, path));
    *slot_out = path;
    path = NULL;
out:
    mics_free(memory, path);
    mics_free(memory, dir);
    return status;
}

mics_status mics_node_open_file(mics_memory *memory, const char *slot, int32_t file, bool writing,
                                int *fd_out, char **path_out)
{
    const int flags = writing ? O_RDWR | O_CREAT : O_RDONLY;
    char *path = NULL;
    MICS_TRY(mics_file_join(memory, slot, mics_ckpt_rank_name(file, 0).text, &path));
    int fd = open(path, flags | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0600);
    struct stat info;
    if (fd >= 0 && fstat(fd, &info) == 0 && S_ISREG(info.st_mode)) {
        *fd_out = fd;
        *path_out = path;
        return MICS_OK;
    }
    const mics_status status = mics_fail(
        mics_status_of_errno(errno), "%s: cannot be opened as a file: %s", path, strerror(errno));
    if (fd >= 0)
        close(fd);
    mics_free(memory, path);
    return status;
}

mics_status mics_node_write(mics_memory *memory, const char *slot, int64_t step, int32_t file,
                            int32_t files, const mics_optimizer_shard *shards, int32_t count,
                            mics_node_file *file_out)
{
    const mics_rank_file_id id = {step, file, files};
    char *path = NULL;
    int fd = -1;
    MICS_TRY(mics_rank_file_check(shards, count));
    MICS_TRY(mics_node_open_file(memory, slot, file, true, &fd, &path));
    const mics_status status = mics_rank_file_write_over(memory, fd, path, id, shards, count,
                                                         &file_out->bytes, &file_out->hash);
    close(fd);
    mics_free(memory, path);
    return status;
}

// Removes rank files that this node does not keep: an older mesh's.
static void remove_unkept(const char *slot, const bool *keeps, int32_t files)
{
    DIR *folder = opendir(slot);
    const struct dirent *entry;
    while (folder != NULL && (entry = readdir(folder)) != NULL) {
        const long file = number_of(entry->d_name, "rank-");
        if (file >= files || (file >= 0 && !keeps[file]))
            remove_at(dirfd(folder), entry->d_name);
    }
    if (folder != NULL)
        closedir(folder);
}

static mics_status write_tokenizer(mics_memory *memory, const char *slot,
                                   const mics_checkpoint_meta *meta, mics_manifest_file *file)
{
    static const char name[] = "tokenizer.json";
    if (strcmp(meta->tokenizer, "bytes") == 0 || meta->tokenizer_text == NULL)
        return MICS_OK;
    *file = (mics_manifest_file){name, (int64_t)meta->tokenizer_bytes,
                                 XXH3_64bits(meta->tokenizer_text, meta->tokenizer_bytes)};
    return mics_file_replace(memory, slot, name, meta->tokenizer_text, meta->tokenizer_bytes);
}

static mics_status write_manifest(mics_memory *memory, const char *slot,
                                  const mics_manifest *manifest)
{
    mics_text text = {.memory = memory};
    mics_manifest_write(manifest, &text);
    mics_status status = mics_text_status(&text);
    if (status == MICS_OK)
        status = mics_file_replace(memory, slot, MICS_MANIFEST_NAME, text.bytes, text.used);
    mics_text_fini(&text);
    return status;
}

static mics_status describe(mics_memory *memory, const char *slot, const mics_node_manifest *from,
                            mics_ckpt_name *names, mics_manifest_file *files)
{
    mics_manifest manifest = {
        .generation = from->slot,
        .serial = from->serial,
        .meta = *from->meta,
        .files = files,
        .file_count = from->file_count,
        .units = from->units,
        .unit_count = from->unit_count,
    };
    for (int32_t i = 0; i < from->file_count; i++) {
        names[i] = mics_ckpt_rank_name(i, 0);
        files[i] = (mics_manifest_file){names[i].text, from->files[i].bytes, from->files[i].hash};
    }
    MICS_TRY(write_tokenizer(memory, slot, from->meta, &manifest.tokenizer));
    return write_manifest(memory, slot, &manifest);
}

mics_status mics_node_commit(mics_memory *memory, const char *slot,
                             const mics_node_manifest *manifest, const bool *keeps)
{
    mics_ckpt_name *names = NULL;
    mics_manifest_file *files = NULL;
    mics_status status = MICS_OK;
    remove_unkept(slot, keeps, manifest->file_count);
    MICS_TRY_OUT(MICS_NEW(memory, manifest->file_count, &names));
    MICS_TRY_OUT(MICS_NEW(memory, manifest->file_count, &files));
    status = describe(memory, slot, manifest, names, files);
out:
    mics_free(memory, files);
    mics_free(memory, names);
    return status;
}
