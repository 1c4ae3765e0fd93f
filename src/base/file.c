// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Files that must be on disk when a call returns, and the list of those that are not whole yet.
#include "base/file.h"
#include "base/size.h"
#include "mics/log.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

mics_status mics_file_join(mics_memory *memory, const char *dir, const char *name, char **path_out)
{
    const size_t bytes = strlen(dir), capacity = bytes + strlen(name) + 2;
    const bool ends = bytes > 0 && dir[bytes - 1] == '/';
    MICS_TRY(MICS_NEW(memory, capacity, path_out));
    snprintf(*path_out, capacity, "%s%s%s", dir, ends ? "" : "/", name);
    return MICS_OK;
}

mics_status mics_file_suffixed(mics_memory *memory, const char *path, const char *suffix,
                               char **path_out)
{
    size_t capacity = strlen(path) + strlen(suffix) + 1;
    MICS_TRY(MICS_NEW(memory, capacity, path_out));
    snprintf(*path_out, capacity, "%s%s", path, suffix);
    return MICS_OK;
}

mics_status mics_file_rename(const char *from, const char *to)
{
    if (rename(from, to) == 0)
        return MICS_OK;
    return mics_fail(mics_status_of_errno(errno), "%s: cannot rename to %s: %s", from, to,
                     strerror(errno));
}

bool mics_file_plain_name(const char *name)
{
    return name[0] != '\0' && strchr(name, '/') == NULL && strcmp(name, ".") != 0 &&
           strcmp(name, "..") != 0;
}

bool mics_file_is_there(const char *path)
{
    return access(path, F_OK) == 0 || (errno != ENOENT && errno != ENOTDIR);
}

mics_status mics_file_resize(int fd, const char *path, int64_t bytes)
{
    int cause = 0;
    while ((cause = ftruncate(fd, (off_t)bytes) == 0 ? 0 : errno) == EINTR)
        continue;
    return cause == 0
               ? MICS_OK
               : mics_fail(mics_status_of_errno(cause), "%s: cannot make it %lld bytes long: %s",
                           path, (long long)bytes, strerror(cause));
}

// Returns errno, or 0.
static int sync_file(int fd)
{
    int cause = 0;
    while ((cause = fsync(fd) == 0 ? 0 : errno) == EINTR)
        continue;
    return cause;
}

mics_status mics_file_sync(int fd, const char *path)
{
    const int cause = sync_file(fd);
    return cause == 0 ? MICS_OK
                      : mics_fail(mics_status_of_errno(cause), "%s: cannot bring it to disk: %s",
                                  path, strerror(cause));
}

mics_status mics_file_sync_dir(const char *path)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return mics_fail(mics_status_of_errno(errno), "%s: cannot open the folder: %s", path,
                         strerror(errno));
    const int cause = sync_file(fd);
    close(fd);
    // Some file systems cannot sync a folder and say EINVAL; their metadata is written through.
    if (cause != 0 && cause != EINVAL)
        return mics_fail(mics_status_of_errno(cause), "%s: cannot sync the folder: %s", path,
                         strerror(cause));
    return MICS_OK;
}

// The folder that holds `path`; false: its name is too long.
static bool folder_of(const char *path, char folder[PATH_MAX])
{
    const char *slash = strrchr(path, '/');
    if (slash == NULL)
        return snprintf(folder, PATH_MAX, ".") > 0;
    const int bytes = slash == path ? 1 : (int)(slash - path);
    return snprintf(folder, PATH_MAX, "%.*s", bytes, path) < PATH_MAX;
}

mics_status mics_file_sync_dir_of(const char *path)
{
    char folder[PATH_MAX];
    if (!folder_of(path, folder))
        return mics_fail(MICS_ERR_INVALID, "%s: the path is too long", path);
    return mics_file_sync_dir(folder);
}

// Makes one folder whose parent exists.
static mics_status make_dir(const char *path, int32_t *made)
{
    if (mkdir(path, 0777) == 0) {
        ++*made;
        return mics_file_sync_dir_of(path);
    }
    int cause = errno;
    struct stat info;
    // Some file systems name another cause than EEXIST for a folder that exists.
    const bool there = stat(path, &info) == 0;
    if (there && S_ISDIR(info.st_mode))
        return MICS_OK;
    if (!there && cause == EEXIST)
        cause = errno;
    return mics_fail(mics_status_of_errno(cause), "%s: cannot make the folder: %s", path,
                     strerror(cause));
}

// The path's length without slashes at its end.
static size_t trimmed(const char *path)
{
    size_t end = strlen(path);
    while (end > 1 && path[end - 1] == '/')
        end--;
    return end;
}

mics_status mics_file_make_dirs(mics_memory *memory, const char *path, int32_t *made_out)
{
    int32_t made = 0;
    char *copy = NULL;
    mics_status status = path[0] != '\0'
                             ? mics_strdup(memory, path, &copy)
                             : mics_fail(MICS_ERR_INVALID, "the name of a folder to make is empty");
    const size_t end = trimmed(path);
    if (status == MICS_OK)
        copy[end] = '\0';
    for (size_t i = 1; status == MICS_OK && i <= end; i++) {
        const char kept = copy[i];
        if ((kept != '/' && kept != '\0') || copy[i - 1] == '/')
            continue;
        copy[i] = '\0';
        status = make_dir(copy, &made);
        copy[i] = kept;
    }
    mics_free(memory, copy);
    if (made_out != NULL)
        *made_out = made;
    return status;
}

void mics_file_remove_dirs(mics_memory *memory, const char *path, int32_t made)
{
    char *copy = NULL;
    if (made == 0 || mics_strdup(memory, path, &copy) != MICS_OK)
        return;
    while (made > 0) {
        copy[trimmed(copy)] = '\0';
        char *slash = strrchr(copy, '/');
        if (rmdir(copy) == 0)
            made--;
        else if (errno != ENOENT) // which the last ones are if making them failed
            break;
        if (slash == NULL)
            break;
        *slash = '\0';
    }
    mics_free(memory, copy);
}

static mics_status write_failed(const char *path, int64_t bytes, int cause)
{
    char text[32];
    mics_size_text((double)bytes, text, sizeof text);
    const char *hint = cause == ENOSPC || cause == EDQUOT ? "; free space there"
                       : cause == EFBIG ? "; raise the file size limit (ulimit -f)"
                                        : "";
    return mics_fail(mics_status_of_errno(cause), "%s: cannot write %lld bytes (%s): %s%s", path,
                     (long long)bytes, text, strerror(cause), hint);
}

// Refuses what the process's file size limit forbids: passing it raises SIGXFSZ, which
// kills where it is not ignored.
static mics_status check_size_limit(const char *path, int64_t bytes)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY ||
        (uint64_t)bytes <= (uint64_t)limit.rlim_cur)
        return MICS_OK;
    return mics_fail(MICS_ERR_IO,
                     "%s: cannot write %lld bytes: the file size limit of this process (ulimit -f) "
                     "is %llu bytes",
                     path, (long long)bytes, (unsigned long long)limit.rlim_cur);
}

bool mics_file_free_bytes(const char *path, int64_t *bytes_out)
{
    struct statvfs there;
    if (statvfs(path, &there) != 0)
        return false;
    *bytes_out = (int64_t)there.f_bavail * (int64_t)there.f_frsize;
    return true;
}

mics_status mics_file_reserve(int fd, const char *path, int64_t bytes)
{
    int cause = 0;
    while (bytes > 0 && (cause = fallocate(fd, 0, 0, bytes) == 0 ? 0 : errno) == EINTR)
        continue;
    // Any other cause means that this file system cannot reserve; writing finds out.
    return cause == ENOSPC || cause == EDQUOT || cause == EFBIG ? write_failed(path, bytes, cause)
                                                                : MICS_OK;
}

// Creates a file, and reserves its bytes, so that a full disk or a file size limit shows before the
// first is written.
static mics_status create(const char *path, int flags, int64_t bytes, int *fd_out)
{
    MICS_TRY(check_size_limit(path, bytes));
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC | flags, 0666);
    if (fd < 0)
        return mics_fail(mics_status_of_errno(errno), "%s: cannot create: %s", path,
                         strerror(errno));
    const mics_status status = mics_file_reserve(fd, path, bytes);
    if (status == MICS_OK) {
        *fd_out = fd;
    } else {
        close(fd);
        unlink(path);
    }
    return status;
}

mics_status mics_file_create_new(const char *path, int64_t bytes, int *fd_out)
{
    if (unlink(path) != 0 && errno != ENOENT)
        return mics_fail(mics_status_of_errno(errno), "%s: cannot replace: %s", path,
                         strerror(errno));
    return create(path, O_EXCL | O_NOFOLLOW, bytes, fd_out);
}

mics_status mics_file_write_at(int fd, const char *path, const void *data, size_t bytes,
                               int64_t offset)
{
    const char *from = data;
    while (bytes > 0) {
        ssize_t written = pwrite(fd, from, bytes, offset);
        if (written < 0 && errno == EINTR)
            continue;
        if (written <= 0)
            return write_failed(path, (int64_t)bytes, written == 0 ? EIO : errno);
        from += written;
        offset += written;
        bytes -= (size_t)written;
    }
    return MICS_OK;
}

mics_status mics_file_close_written(int fd, const char *path, mics_status status)
{
    int cause = status == MICS_OK ? sync_file(fd) : 0;
    if (close(fd) != 0 && cause == 0 && errno != EINTR)
        cause = errno;
    if (status == MICS_OK && cause != 0)
        status = mics_fail(mics_status_of_errno(cause), "%s: cannot bring it to disk: %s", path,
                           strerror(cause));
    return status;
}

mics_status mics_file_close_stream(FILE *stream, const char *path)
{
    // Where an earlier call failed, its cause is not known any more.
    bool good = ferror(stream) == 0;
    int cause = good ? 0 : EIO;
    if (fflush(stream) != 0 || (cause == 0 && (cause = sync_file(fileno(stream))) != 0)) {
        cause = cause != 0 ? cause : errno;
        good = false;
    }
    if (fclose(stream) != 0 && good) {
        good = false;
        cause = errno;
    }
    return good ? MICS_OK
                : mics_fail(mics_status_of_errno(cause), "%s: cannot write: %s", path,
                            strerror(cause));
}

mics_status mics_file_write_whole(const char *path, const void *data, size_t bytes)
{
    int fd = -1;
    MICS_TRY(create(path, O_TRUNC, (int64_t)bytes, &fd));
    mics_status status = mics_file_write_at(fd, path, data, bytes, 0);
    status = mics_file_close_written(fd, path, status);
    if (status != MICS_OK)
        unlink(path);
    return status;
}

// ---- files written aside ----

static const char aside_end[] = ".tmp";
enum { SECRET_DIGITS = sizeof((mics_file_secret *)NULL)->text - 1 };

// What a process that ends by a signal removes: files, and temporary folders. `mutex` guards the list,
// and is never given back once all is abandoned.
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static mics_file_aside *asides;

mics_status mics_file_secret_get(mics_file_secret *secret_out)
{
    uint64_t number = 0;
    ssize_t got;
    while ((got = getrandom(&number, sizeof number, 0)) < 0 && errno == EINTR)
        continue;
    if (got != (ssize_t)sizeof number)
        return mics_fail(MICS_ERR_IO, "the system gives no random numbers: %s", strerror(errno));
    snprintf(secret_out->text, sizeof secret_out->text, "%016llx", (unsigned long long)number);
    return MICS_OK;
}

size_t mics_file_aside_stem(const char *file)
{
    const size_t tail = 1 + SECRET_DIGITS + sizeof aside_end - 1, length = strlen(file);
    if (length <= tail || strcmp(file + length - (sizeof aside_end - 1), aside_end) != 0)
        return 0;
    const char *digits = file + length - tail + 1;
    const bool ours = digits[-1] == '.' && strspn(digits, "0123456789abcdef") == SECRET_DIGITS;
    return ours ? length - tail : 0;
}

// A name is listed before the file is made, so there is none that is not listed.
void mics_file_list(mics_file_aside *aside, const char *path)
{
    pthread_mutex_lock(&mutex);
    *aside = (mics_file_aside){.path = path, .next = asides};
    asides = aside;
    pthread_mutex_unlock(&mutex);
}

void mics_file_unlist(mics_file_aside *aside)
{
    pthread_mutex_lock(&mutex);
    mics_file_aside **at = &asides;
    while (*at != NULL && *at != aside)
        at = &(*at)->next;
    if (*at != NULL)
        *at = aside->next;
    pthread_mutex_unlock(&mutex);
    *aside = (mics_file_aside){0};
}

static void end_aside(mics_memory *memory, mics_file_aside *aside)
{
    const char *path = aside->path;
    if (aside->held)
        close(aside->lock);
    mics_file_unlist(aside);
    mics_free(memory, (void *)path);
}

bool mics_file_hold(int fd)
{
    struct stat info;
    if (flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK)
        return false;
    return fstat(fd, &info) != 0 || info.st_nlink > 0;
}

// The lock goes with the last descriptor, and the caller closes its own before the file has its name.
// A process without a descriptor to spare holds it until then. Returns: whether it is there.
static bool hold_aside(mics_file_aside *aside, int fd)
{
    if (!mics_file_hold(fd))
        return false;
    aside->lock = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    aside->held = aside->lock >= 0;
    return true;
}

// `held_out`: false where somebody took the file for a dead process' before it was held.
static mics_status try_aside(mics_memory *memory, const char *path, int64_t bytes,
                             mics_file_aside *aside_out, int *fd_out, bool *held_out)
{
    mics_file_secret secret;
    char suffix[1 + sizeof secret.text + sizeof aside_end], *name = NULL;
    MICS_TRY(mics_file_secret_get(&secret));
    snprintf(suffix, sizeof suffix, ".%s%s", secret.text, aside_end);
    MICS_TRY(mics_file_suffixed(memory, path, suffix, &name));
    mics_file_list(aside_out, name);
    int fd = -1;
    const mics_status status = create(name, O_EXCL | O_NOFOLLOW, bytes, &fd);
    if (status != MICS_OK) {
        end_aside(memory, aside_out);
        return status;
    }
    *held_out = hold_aside(aside_out, fd);
    if (*held_out) {
        *fd_out = fd;
    } else {
        close(fd);
        mics_file_drop(memory, aside_out);
    }
    return MICS_OK;
}

mics_status mics_file_begin_aside(mics_memory *memory, const char *path, int64_t bytes,
                                  mics_file_aside *aside_out, int *fd_out)
{
    enum { MAX_TRIES = 8 };
    bool held = false;
    for (int i = 0; i < MAX_TRIES && !held; i++)
        MICS_TRY(try_aside(memory, path, bytes, aside_out, fd_out, &held));
    return held ? MICS_OK
                : mics_fail(MICS_ERR_IO, "%s: somebody removes what is written for it", path);
}

mics_status mics_file_place(mics_memory *memory, mics_file_aside *aside, const char *path)
{
    const mics_status status = mics_file_rename(aside->path, path);
    mics_file_drop(memory, aside); // its name is gone already where it was renamed
    return status;
}

void mics_file_drop(mics_memory *memory, mics_file_aside *aside)
{
    if (aside->path == NULL)
        return;
    unlink(aside->path);
    end_aside(memory, aside);
}

static bool is_aside_of(const char *file, const char *name)
{
    const size_t stem = mics_file_aside_stem(file);
    return stem > 0 && stem == strlen(name) && memcmp(file, name, stem) == 0;
}

// Calls `removes` for the files of a folder of which `is_ours` is true; NULL: for all.
static void remove_files(const char *dir, bool (*is_ours)(const char *file, const char *name),
                         const char *name, void (*removes)(int folder, const char *file))
{
    DIR *entries = opendir(dir);
    const struct dirent *entry;
    if (entries == NULL)
        return;
    while ((entry = readdir(entries)) != NULL) {
        if (is_ours == NULL || is_ours(entry->d_name, name))
            removes(dirfd(entries), entry->d_name);
    }
    closedir(entries);
}

static void remove_file(int folder, const char *file)
{
    (void)unlinkat(folder, file, 0); // "." and ".." stay
}

void mics_file_sweep(const char *dir, const char *name)
{
    remove_files(dir, is_aside_of, name, remove_file);
}

// A lock that is shared needs no right to write.
static void remove_if_dead(int folder, const char *file)
{
    const int fd = openat(folder, file, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    struct stat info;
    if (fd < 0)
        return;
    if (fstat(fd, &info) == 0 && S_ISREG(info.st_mode) && flock(fd, LOCK_SH | LOCK_NB) == 0)
        remove_file(folder, file);
    close(fd);
}

void mics_file_sweep_dead(const char *dir, bool (*is_ours)(const char *file, const char *name),
                          const char *name)
{
    remove_files(dir, is_ours, name, remove_if_dead);
}

void mics_file_sweep_dead_beside(const char *path,
                                 bool (*is_ours)(const char *file, const char *name))
{
    char folder[PATH_MAX];
    const char *slash = strrchr(path, '/');
    if (folder_of(path, folder))
        mics_file_sweep_dead(folder, is_ours, slash != NULL ? slash + 1 : path);
}

void mics_file_sweep_dead_of(const char *path)
{
    mics_file_sweep_dead_beside(path, is_aside_of);
}

mics_status mics_file_replace(mics_memory *memory, const char *dir, const char *name,
                              const char *text, size_t bytes)
{
    char *target = NULL;
    mics_file_aside aside = {0};
    int fd = -1;
    mics_status status = MICS_OK;
    MICS_TRY_OUT(mics_file_join(memory, dir, name, &target));
    MICS_TRY_OUT(mics_file_begin_aside(memory, target, (int64_t)bytes, &aside, &fd));
    status = mics_file_write_at(fd, aside.path, text, bytes, 0);
    MICS_TRY_OUT(mics_file_close_written(fd, aside.path, status));
    status = mics_file_place(memory, &aside, target);
out:
    mics_file_drop(memory, &aside);
    mics_free(memory, target);
    return status;
}

// ---- temporary folders ----

mics_status mics_temp_dir_init(mics_temp_dir *dir_out)
{
    const char *parent = getenv("TMPDIR");
    char path[sizeof dir_out->path];
    if (parent == NULL || parent[0] == '\0')
        parent = "/tmp";
    int length = snprintf(path, sizeof path, "%s/mics-XXXXXX", parent);
    if (length < 0 || (size_t)length >= sizeof path || mkdtemp(path) == NULL)
        return mics_fail(mics_status_of_errno(errno), "%s: no temporary folder: %s", parent,
                         strerror(errno));
    memcpy(dir_out->path, path, sizeof path);
    mics_file_list(&dir_out->listed, dir_out->path);
    return MICS_OK;
}

static void remove_temp_dir(const char *path)
{
    remove_files(path, NULL, NULL, remove_file);
    rmdir(path);
}

void mics_temp_dir_fini(mics_temp_dir *dir)
{
    if (dir->path[0] == '\0')
        return;
    remove_temp_dir(dir->path);
    mics_file_unlist(&dir->listed);
    *dir = (mics_temp_dir){0};
}

void mics_file_abandon_all(void)
{
    pthread_mutex_lock(&mutex); // and keeps it
    for (const mics_file_aside *aside = asides; aside != NULL; aside = aside->next) {
        if (unlink(aside->path) != 0) // a folder
            remove_temp_dir(aside->path);
    }
}
