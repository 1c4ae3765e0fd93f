// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Files for every module: opened only when regular, read and written whole, on disk when a call
// returns. Every failure is one line with path and cause.
#pragma once

#include "mics/memory.h"
#include "mics/status.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* "dir/name". Owns: the caller frees *path_out with mics_free. */
mics_status mics_file_join(mics_memory *memory, const char *dir, const char *name, char **path_out);

/* The path with a suffix. Owns: the caller frees *path_out with mics_free. */
mics_status mics_file_suffixed(mics_memory *memory, const char *path, const char *suffix,
                               char **path_out);

/* Renames, and replaces what is there. */
mics_status mics_file_rename(const char *from, const char *to);

/* True when `name` is a plain file name: not empty, no '/', not "." or "..". */
bool mics_file_plain_name(const char *name);

/* False only where surely no file has that name. One that cannot be looked at counts as there: opening
 * it gives the cause, where passing over it would give another result. */
bool mics_file_is_there(const char *path);

/* Brings an open file to disk. */
mics_status mics_file_sync(int fd, const char *path);

/* Makes an open file so long. */
mics_status mics_file_resize(int fd, const char *path, int64_t bytes);

/* Makes a folder and its parents; what exists stays. New entries are on disk on return. Says for
 * mics_file_remove_dirs, unless made_out is NULL, how many folders it made, also after a failure. */
mics_status mics_file_make_dirs(mics_memory *memory, const char *path, int32_t *made_out);

/* Takes mics_file_make_dirs back: removes `made` folders, `path` and its parents, while they are
 * empty. */
void mics_file_remove_dirs(mics_memory *memory, const char *path, int32_t made);

/* fsync of a folder: what was created, renamed or removed in it is on disk. */
mics_status mics_file_sync_dir(const char *path);

/* The same for the folder that holds `path`. */
mics_status mics_file_sync_dir_of(const char *path);

/* Creates a file with a name of ours for writing, and reserves `bytes`, so that a full disk or a file
 * size limit shows before the first byte is written. What is there under it goes first, and a link is
 * never followed. */
mics_status mics_file_create_new(const char *path, int64_t bytes, int *fd_out);

/* What a file system has free for this process, of which `path` is a folder. Returns: whether that can
 * be told (*bytes_out untouched if not). */
bool mics_file_free_bytes(const char *path, int64_t *bytes_out);

/* Reserves the first `bytes` of an open file, as far as its file system can. Returns: MICS_OK;
 * MICS_ERR_IO when the disk is full. */
mics_status mics_file_reserve(int fd, const char *path, int64_t bytes);

/* Writes all of `data` at `offset`. */
mics_status mics_file_write_at(int fd, const char *path, const void *data, size_t bytes,
                               int64_t offset);

/* fsync and close; closes in any case. `status` not MICS_OK only closes, and is returned. */
mics_status mics_file_close_written(int fd, const char *path, mics_status status);

/* Brings all of a stream to disk, and closes it; closes in any case. */
mics_status mics_file_close_stream(FILE *stream, const char *path);

/* Opens a regular file for reading; never waits (a FIFO is refused). A pointer of git-lfs in its
 * place is MICS_ERR_FORMAT. */
mics_status mics_file_open_read(const char *path, int *fd_out, int64_t *bytes_out);

/* Reads at `offset` until `bytes` or the end of the file. Threads: any. */
mics_status mics_file_read_up_to(int fd, const char *path, void *data, size_t bytes, int64_t offset,
                                 size_t *got_out);

/* Reads `bytes` at `offset`; a file that ends earlier is MICS_ERR_FORMAT. Threads: any. */
mics_status mics_file_read_at(int fd, const char *path, void *data, size_t bytes, int64_t offset);

/* Reads a whole file, refusing more than max_bytes; a NUL stands behind it. Owns: the caller frees
 * *text_out with mics_free. */
mics_status mics_file_read_whole(mics_memory *memory, const char *path, size_t max_bytes,
                                 char **text_out, size_t *bytes_out);

enum { MICS_FILE_MAX_WHOLE = 256 << 20 }; // bytes of files whose length nothing else bounds

/* Refuses what is there and no regular file, before it is opened: a pipe would wait without end.
 *
 * Returns: MICS_OK, also where nothing is there; MICS_ERR_IO.
 */
mics_status mics_file_refuse_special(const char *path);

// ---- files written aside ----
// A file that is to appear whole is written under a name beside its own that nobody can foresee,
// NAME.<16 hexadecimal digits>.tmp, which must not exist and is no link; then it is renamed. All
// such names of the process are known, so that a signal that ends it leaves none behind. SIGKILL does:
// a process holds its files with a lock (flock), which the system gives up for it, so that others can
// tell those of the dead.

// One of them. Zeroed it is none; it must stay where it is until it is placed or dropped.
typedef struct mics_file_aside {
    const char *path;             // NULL: none
    struct mics_file_aside *next; // of the process' others
    bool held;                    // by `lock`
    int lock;
} mics_file_aside;

/* Begins the file that will be `path`, and reserves `bytes`.
 *
 * Owns: end it with mics_file_place or mics_file_drop; the caller closes *fd_out before. */
mics_status mics_file_begin_aside(mics_memory *memory, const char *path, int64_t bytes,
                                  mics_file_aside *aside_out, int *fd_out);

/* Renames it to `path`; one that cannot be renamed is removed. */
mics_status mics_file_place(mics_memory *memory, mics_file_aside *aside, const char *path);

/* Removes it; none is allowed. */
void mics_file_drop(mics_memory *memory, mics_file_aside *aside);

/* Lists a name that is about to be made, or is one no more, for callers who name and make their
 * files themselves. `path` is borrowed until then. */
void mics_file_list(mics_file_aside *aside, const char *path);
void mics_file_unlist(mics_file_aside *aside);

/* Removes all of them, and temporary folders, and lets no other begin: whoever tries waits for
 * ever. For a process that a signal ends next; never in a signal handler. */
void mics_file_abandon_all(void);

/* Bytes of NAME, when `file` is NAME.<16 hexadecimal digits>.tmp; else 0. */
size_t mics_file_aside_stem(const char *file);

/* Removes what killed processes left of `name` in a folder. Needs: nobody writes it there now. */
void mics_file_sweep(const char *dir, const char *name);

/* Holds an open file of ours, just created, until its last descriptor is closed. Returns: whether it
 * is there: somebody may have removed it as a dead process'. True where there are no locks. */
bool mics_file_hold(int fd);

/* Removes the files of a folder of which `is_ours` is true, and that no process holds; it is given
 * `name`, too. Nothing where there are no locks. */
void mics_file_sweep_dead(const char *dir, bool (*is_ours)(const char *file, const char *name),
                          const char *name);

/* The same in the folder that holds `path`, with the last part of that as `name`. */
void mics_file_sweep_dead_beside(const char *path,
                                 bool (*is_ours)(const char *file, const char *name));

/* The same of what killed processes wrote aside for `path`. */
void mics_file_sweep_dead_of(const char *path);

/* 16 hexadecimal digits that nobody can foresee, and a NUL. */
typedef struct mics_file_secret {
    char text[17];
} mics_file_secret;

mics_status mics_file_secret_get(mics_file_secret *secret_out);

/* Writes a file and brings it to disk; one that could not be completed is removed. */
mics_status mics_file_write_whole(const char *path, const void *data, size_t bytes);

/* Writes dir/name aside, fsyncs it and renames it into place; the folder's own fsync is left to the
 * caller. */
mics_status mics_file_replace(mics_memory *memory, const char *dir, const char *name,
                              const char *text, size_t bytes);

// A folder under TMPDIR (or /tmp) that is gone afterwards.
typedef struct mics_temp_dir {
    char path[256]; // "" until init
    mics_file_aside listed;
} mics_temp_dir;

/* Needs: *dir_out stays where it is until fini. */
mics_status mics_temp_dir_init(mics_temp_dir *dir_out);
/* Removes the folder and the files in it. */
void mics_temp_dir_fini(mics_temp_dir *dir);
