// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Preloaded: a call of the system or the C library that fails. MICS_TEST_CALLS_COUNTED names a file for
// the number of calls of each kind that the program made. With MICS_TEST_CALLS_SEED one kind of
// those in the file MICS_TEST_CALLS_COUNTS fails: from a call on that follows from the seed, once or
// several times in turn. MICS_TEST_CALLS_LOG names a file for a line on each failure. Only calls
// from the program's own code count: libraries have ways out of their own.
#ifndef _GNU_SOURCE
#define _GNU_SOURCE // RTLD_NEXT
#endif
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <limits.h>
#include <link.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum {
    SHORT = -1,
    SPURIOUS = -2
}; // beside errno: half of the bytes; a wait that ends without cause
enum { MAX_ERRORS = 5, MAX_TIMES = 24 };

// X(kind, errors): what the call fails with.
#define KINDS(X)                                                                                   \
    X(open, EIO, EMFILE, ENOMEM, EACCES, EINTR)                                                    \
    X(openat, EIO, EMFILE)                                                                         \
    X(close, EIO, EINTR)                                                                           \
    X(read, EIO, EINTR, SHORT)                                                                     \
    X(pread, EIO, EINTR, SHORT)                                                                    \
    X(write, EIO, ENOSPC, EINTR, EDQUOT, SHORT)                                                    \
    X(pwrite, EIO, ENOSPC, EINTR, EDQUOT, SHORT)                                                   \
    X(fsync, EIO, ENOSPC, EINTR)                                                                   \
    X(ftruncate, EIO, ENOSPC, EINTR)                                                               \
    X(fallocate, ENOSPC, EOPNOTSUPP, EINTR)                                                        \
    X(posix_fallocate, ENOSPC, EINTR)                                                              \
    X(rename, EIO, ENOSPC)                                                                         \
    X(link, EPERM, EMLINK, ENOSPC)                                                                 \
    X(unlink, EIO, EACCES)                                                                         \
    X(unlinkat, EIO, EACCES)                                                                       \
    X(mkdir, EIO, ENOSPC)                                                                          \
    X(mkdtemp, ENOSPC)                                                                             \
    X(rmdir, EIO)                                                                                  \
    X(stat, EIO)                                                                                   \
    X(lstat, EIO)                                                                                  \
    X(fstat, EIO)                                                                                  \
    X(fstatat, EIO)                                                                                \
    X(statvfs, EIO)                                                                                \
    X(access, EIO)                                                                                 \
    X(faccessat, EIO)                                                                              \
    X(readlink, EIO)                                                                               \
    X(realpath, EIO, ENOMEM)                                                                       \
    X(opendir, EMFILE, EIO)                                                                        \
    X(fdopendir, ENOMEM)                                                                           \
    X(readdir, EIO)                                                                                \
    X(scandir, ENOMEM)                                                                             \
    X(glob, GLOB_NOSPACE, GLOB_ABORTED)                                                            \
    X(flock, EINTR, ENOLCK)                                                                        \
    X(fcntl, ENOLCK, EMFILE)                                                                       \
    X(fopen, EMFILE, EIO)                                                                          \
    X(fdopen, ENOMEM)                                                                              \
    X(fopencookie, ENOMEM)                                                                         \
    X(open_memstream, ENOMEM)                                                                      \
    X(fread, EIO)                                                                                  \
    X(fgets, EIO)                                                                                  \
    X(getdelim, EIO)                                                                               \
    X(fwrite, EIO, ENOSPC)                                                                         \
    X(fseeko, EIO)                                                                                 \
    X(fflush, EIO, ENOSPC)                                                                         \
    X(fclose, EIO, ENOSPC)                                                                         \
    X(mmap, ENOMEM)                                                                                \
    X(memfd_create, EMFILE)                                                                        \
    X(malloc, ENOMEM)                                                                              \
    X(calloc, ENOMEM)                                                                              \
    X(aligned_alloc, ENOMEM)                                                                       \
    X(getrandom, EINTR)                                                                            \
    X(nanosleep, EINTR)                                                                            \
    X(pthread_create, EAGAIN)                                                                      \
    X(pthread_mutex_init, ENOMEM)                                                                  \
    X(pthread_cond_init, ENOMEM)                                                                   \
    X(pthread_cond_wait, SPURIOUS)                                                                 \
    X(pthread_cond_timedwait, SPURIOUS)

enum {
#define KIND(name, ...) CALL_##name,
    KINDS(KIND)
#undef KIND
        CALLS
};

static const struct {
    const char *name;
    int errors[MAX_ERRORS]; // 0: none
} kinds[] = {
#define KIND(kind, ...) {#kind, {__VA_ARGS__}},
    KINDS(KIND)
#undef KIND
};

static atomic_llong counts[CALLS];
static uintptr_t program_begin, program_end;
// Which calls of `failing` fail; < 0: none.
static int failing = -1, failing_error;
static long long failing_from, failing_times;

// ---- what fails ----

static uint64_t draw(uint64_t *state)
{
    uint64_t x = *state += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

static int find_program(struct dl_phdr_info *info, size_t bytes, void *ctx)
{
    (void)bytes;
    (void)ctx;
    program_begin = UINTPTR_MAX;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const uintptr_t at = info->dlpi_addr + info->dlpi_phdr[i].p_vaddr;
        if (info->dlpi_phdr[i].p_type != PT_LOAD)
            continue;
        program_begin = at < program_begin ? at : program_begin;
        program_end = at + info->dlpi_phdr[i].p_memsz;
    }
    return 1; // the program is the first
}

static int find_kind(const char *name)
{
    for (int kind = 0; kind < CALLS; kind++) {
        if (strcmp(kinds[kind].name, name) == 0)
            return kind;
    }
    return -1;
}

// A kind is as likely as any other, and so is each of its calls.
static void choose(const char *seed, const char *path)
{
    int present[CALLS], present_count = 0, error_count = 0;
    long long calls[CALLS];
    char name[64];
    FILE *file = fopen(path, "r");
    long long count;
    while (file != NULL && present_count < CALLS && fscanf(file, "%63s %lld", name, &count) == 2) {
        calls[present_count] = count;
        present[present_count] = find_kind(name);
        present_count += present[present_count] >= 0 && count > 0;
    }
    if (file != NULL)
        fclose(file);
    uint64_t state = strtoull(seed, NULL, 10);
    if (present_count == 0)
        return;
    const int at = (int)(draw(&state) % (uint64_t)present_count);
    const int *errors = kinds[present[at]].errors;
    while (error_count < MAX_ERRORS && errors[error_count] != 0)
        error_count++;
    failing_error = errors[draw(&state) % (uint64_t)error_count];
    failing_from = (long long)(draw(&state) % (uint64_t)calls[at]);
    failing_times = draw(&state) % 3 < 2 ? 1 : (long long)(draw(&state) % MAX_TIMES) + 1;
    failing = present[at];
}

__attribute__((constructor)) static void begin(void)
{
    const char *seed = getenv("MICS_TEST_CALLS_SEED"), *path = getenv("MICS_TEST_CALLS_COUNTS");
    dl_iterate_phdr(find_program, NULL);
    if (seed != NULL && path != NULL)
        choose(seed, path);
}

__attribute__((destructor)) static void end(void)
{
    const char *path = getenv("MICS_TEST_CALLS_COUNTED");
    FILE *file = path != NULL ? fopen(path, "w") : NULL;
    for (int kind = 0; file != NULL && kind < CALLS; kind++)
        fprintf(file, "%s %lld\n", kinds[kind].name, atomic_load(&counts[kind]));
    if (file != NULL)
        fclose(file);
}

static void log_failure(int kind, uintptr_t caller)
{
    const char *path = getenv("MICS_TEST_CALLS_LOG");
    char line[160];
    if (path == NULL)
        return;
    const int bytes = snprintf(line, sizeof line, "%s %s +0x%llx\n", kinds[kind].name,
                               failing_error == SHORT      ? "short"
                               : failing_error == SPURIOUS ? "spurious"
                               : kind == CALL_glob         ? "fails"
                                                           : strerrorname_np(failing_error),
                               (unsigned long long)(caller - program_begin));
    const long file = syscall(SYS_openat, AT_FDCWD, path, O_WRONLY | O_CREAT | O_APPEND, 0666);
    if (file >= 0 && syscall(SYS_write, (int)file, line, (size_t)bytes) >= 0)
        syscall(SYS_close, (int)file);
}

static bool is_failing(int kind, const void *caller)
{
    const uintptr_t at = (uintptr_t)caller;
    if (at < program_begin || at >= program_end)
        return false;
    const long long call = atomic_fetch_add(&counts[kind], 1);
    if (kind != failing || call < failing_from || call >= failing_from + failing_times)
        return false;
    log_failure(kind, at);
    if (failing_error > 0)
        errno = failing_error;
    return true;
}

static void find_real(const char *name, void *real_out)
{
    void *const at = dlsym(RTLD_NEXT, name);
    memcpy(real_out, &at, sizeof at);
}

// ---- the calls ----

#define FAILS(kind) is_failing(CALL_##kind, __builtin_return_address(0))
#define REAL(result, kind, ...)                                                                    \
    static result (*real)(__VA_ARGS__);                                                            \
    if (real == NULL)                                                                              \
    find_real(#kind, (void *)&real)

// Fails instead of being made.
#define CALL(result, kind, failed, params, arguments)                                              \
    result kind params                                                                             \
    {                                                                                              \
        static result(*real) params;                                                               \
        if (real == NULL)                                                                          \
            find_real(#kind, (void *)&real);                                                       \
        return FAILS(kind) ? (failed) : real arguments;                                            \
    }

// Moves half of the bytes where it is to be short.
#define TRANSFER(kind, params, whole, half)                                                        \
    ssize_t kind params                                                                            \
    {                                                                                              \
        static ssize_t(*real) params;                                                              \
        if (real == NULL)                                                                          \
            find_real(#kind, (void *)&real);                                                       \
        if (fd <= STDERR_FILENO || !FAILS(kind))                                                   \
            return real whole;                                                                     \
        return failing_error == SHORT ? real half : -1;                                            \
    }

// Of a stream: its mark of an error is set, as the C library would.
#define STREAM(result, kind, failed, params, arguments)                                            \
    result kind params                                                                             \
    {                                                                                              \
        static result(*real) params;                                                               \
        if (real == NULL)                                                                          \
            find_real(#kind, (void *)&real);                                                       \
        if (stream == stdout || stream == stderr || !FAILS(kind))                                  \
            return real arguments;                                                                 \
        stream->_flags |= 0x20;                                                                    \
        return failed;                                                                             \
    }

int open(const char *path, int flags, ...)
{
    va_list more;
    va_start(more, flags);
    const unsigned mode = (flags & O_CREAT) != 0 ? va_arg(more, unsigned) : 0;
    va_end(more);
    REAL(int, open, const char *, int, ...);
    return FAILS(open) ? -1 : real(path, flags, mode);
}

int openat(int folder, const char *path, int flags, ...)
{
    va_list more;
    va_start(more, flags);
    const unsigned mode = (flags & O_CREAT) != 0 ? va_arg(more, unsigned) : 0;
    va_end(more);
    REAL(int, openat, int, const char *, int, ...);
    return FAILS(openat) ? -1 : real(folder, path, flags, mode);
}

int fcntl(int fd, int command, ...)
{
    va_list more;
    va_start(more, command);
    void *const argument = va_arg(more, void *);
    va_end(more);
    REAL(int, fcntl, int, int, ...);
    return FAILS(fcntl) ? -1 : real(fd, command, argument);
}

// Closed all the same, as Linux does.
int close(int fd)
{
    REAL(int, close, int);
    const int result = real(fd);
    return FAILS(close) ? -1 : result;
}

int fclose(FILE *stream)
{
    REAL(int, fclose, FILE *);
    const int result = real(stream);
    return FAILS(fclose) ? EOF : result;
}

TRANSFER(read, (int fd, void *to, size_t bytes), (fd, to, bytes), (fd, to, (bytes + 1) / 2))
TRANSFER(pread, (int fd, void *to, size_t bytes, off_t at), (fd, to, bytes, at),
         (fd, to, (bytes + 1) / 2, at))
TRANSFER(write, (int fd, const void *from, size_t bytes), (fd, from, bytes),
         (fd, from, (bytes + 1) / 2))
TRANSFER(pwrite, (int fd, const void *from, size_t bytes, off_t at), (fd, from, bytes, at),
         (fd, from, (bytes + 1) / 2, at))
CALL(int, fsync, -1, (int fd), (fd))
CALL(int, ftruncate, -1, (int fd, off_t bytes), (fd, bytes))
CALL(int, fallocate, -1, (int fd, int mode, off_t at, off_t bytes), (fd, mode, at, bytes))
CALL(int, posix_fallocate, failing_error, (int fd, off_t at, off_t bytes), (fd, at, bytes))
CALL(int, rename, -1, (const char *from, const char *to), (from, to))
CALL(int, link, -1, (const char *from, const char *to), (from, to))
CALL(int, unlink, -1, (const char *path), (path))
CALL(int, unlinkat, -1, (int folder, const char *path, int flags), (folder, path, flags))
CALL(int, mkdir, -1, (const char *path, mode_t mode), (path, mode))
CALL(char *, mkdtemp, NULL, (char *path), (path))
CALL(int, rmdir, -1, (const char *path), (path))
CALL(int, stat, -1, (const char *path, struct stat *info), (path, info))
CALL(int, lstat, -1, (const char *path, struct stat *info), (path, info))
CALL(int, fstat, -1, (int fd, struct stat *info), (fd, info))
CALL(int, fstatat, -1, (int folder, const char *path, struct stat *info, int flags),
     (folder, path, info, flags))
CALL(int, statvfs, -1, (const char *path, struct statvfs *info), (path, info))
CALL(int, access, -1, (const char *path, int mode), (path, mode))
CALL(int, faccessat, -1, (int folder, const char *path, int mode, int flags),
     (folder, path, mode, flags))
CALL(ssize_t, readlink, -1, (const char *path, char *to, size_t bytes), (path, to, bytes))
CALL(char *, realpath, NULL, (const char *path, char *to), (path, to))
CALL(DIR *, opendir, NULL, (const char *path), (path))
CALL(DIR *, fdopendir, NULL, (int fd), (fd))
CALL(struct dirent *, readdir, NULL, (DIR * folder), (folder))
CALL(int, scandir, -1,
     (const char *path, struct dirent ***names, int (*takes)(const struct dirent *),
      int (*compare)(const struct dirent **, const struct dirent **)),
     (path, names, takes, compare))
CALL(int, glob, failing_error,
     (const char *pattern, int flags, int (*fails)(const char *, int), glob_t *found),
     (pattern, flags, fails, found))
CALL(int, flock, -1, (int fd, int operation), (fd, operation))
CALL(int, fseeko, -1, (FILE * stream, off_t at, int whence), (stream, at, whence))
CALL(FILE *, fopen, NULL, (const char *path, const char *mode), (path, mode))
CALL(FILE *, fdopen, NULL, (int fd, const char *mode), (fd, mode))
CALL(FILE *, fopencookie, NULL, (void *ctx, const char *mode, cookie_io_functions_t calls),
     (ctx, mode, calls))
CALL(FILE *, open_memstream, NULL, (char **text, size_t *bytes), (text, bytes))
STREAM(size_t, fread, 0, (void *to, size_t bytes, size_t count, FILE *stream),
       (to, bytes, count, stream))
STREAM(char *, fgets, NULL, (char *to, int bytes, FILE *stream), (to, bytes, stream))
STREAM(ssize_t, getdelim, -1, (char **line, size_t *capacity, int end_of_line, FILE *stream),
       (line, capacity, end_of_line, stream))
STREAM(size_t, fwrite, 0, (const void *from, size_t bytes, size_t count, FILE *stream),
       (from, bytes, count, stream))
STREAM(int, fflush, EOF, (FILE * stream), (stream))
CALL(void *, mmap, MAP_FAILED,
     (void *at, size_t bytes, int protection, int flags, int fd, off_t offset),
     (at, bytes, protection, flags, fd, offset))
CALL(int, memfd_create, -1, (const char *name, unsigned flags), (name, flags))
CALL(ssize_t, getrandom, -1, (void *to, size_t bytes, unsigned flags), (to, bytes, flags))
CALL(int, nanosleep, -1, (const struct timespec *length, struct timespec *left), (length, left))
CALL(int, pthread_create, failing_error,
     (pthread_t * thread, const pthread_attr_t *how, void *(*runs)(void *), void *ctx),
     (thread, how, runs, ctx))
CALL(int, pthread_mutex_init, failing_error,
     (pthread_mutex_t * mutex, const pthread_mutexattr_t *how), (mutex, how))
CALL(int, pthread_cond_init, failing_error, (pthread_cond_t * cond, const pthread_condattr_t *how),
     (cond, how))
CALL(int, pthread_cond_wait, 0, (pthread_cond_t * cond, pthread_mutex_t *mutex), (cond, mutex))
CALL(int, pthread_cond_timedwait, 0,
     (pthread_cond_t * cond, pthread_mutex_t *mutex, const struct timespec *until),
     (cond, mutex, until))

// dlsym allocates.
extern void *__libc_malloc(size_t bytes);
extern void *__libc_calloc(size_t count, size_t bytes);
extern void *__libc_memalign(size_t alignment, size_t bytes);

void *malloc(size_t bytes)
{
    return FAILS(malloc) ? NULL : __libc_malloc(bytes);
}

void *calloc(size_t count, size_t bytes)
{
    return FAILS(calloc) ? NULL : __libc_calloc(count, bytes);
}

void *aligned_alloc(size_t alignment, size_t bytes)
{
    return FAILS(aligned_alloc) ? NULL : __libc_memalign(alignment, bytes);
}
