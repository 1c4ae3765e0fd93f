// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// The one result type of every call that can fail, and the macros that pass it on.
#ifndef MICS_STATUS_H
#define MICS_STATUS_H

#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

// X(name, text). Ordered by severity: of several failures of a process, the largest value counts.
// MICS_ERR_PEER is an answer, which all ranks have: their world goes on, and may do the next thing.
// After MICS_ERR_ABORTED there is no world to do it in.
//
// MICS_ERR_DISK and MICS_ERR_FULL are an MICS_ERR_IO of which the system itself is the cause, and not
// what was asked for. Whatever is said to return MICS_ERR_IO returns them then.
#define MICS_STATUS_LIST(X)                                                                        \
    X(MICS_OK, "ok")                                                                               \
    X(MICS_ERR_PEER, "another rank failed")                                                        \
    X(MICS_ERR_ABORTED, "another rank has ended the run")                                          \
    X(MICS_ERR_INTERRUPTED, "interrupted")                                                         \
    X(MICS_ERR_UNSUPPORTED, "not supported")                                                       \
    X(MICS_ERR_INVALID, "invalid argument or configuration")                                       \
    X(MICS_ERR_MEMORY, "not enough memory")                                                        \
    X(MICS_ERR_IO, "input or output failed")                                                       \
    X(MICS_ERR_DISK, "a disk is read-only or broken")                                              \
    X(MICS_ERR_FULL, "a disk is full")                                                             \
    X(MICS_ERR_FORMAT, "malformed file")                                                           \
    X(MICS_ERR_NUMERIC, "numbers are not finite")                                                  \
    X(MICS_ERR_TIMEOUT, "timed out")                                                               \
    X(MICS_ERR_COMM, "communication failed")                                                       \
    X(MICS_ERR_DEVICE, "a device failed")

typedef enum mics_status {
#define MICS_STATUS_ENUM(name, text) name,
    MICS_STATUS_LIST(MICS_STATUS_ENUM)
#undef MICS_STATUS_ENUM
        MICS_STATUS_COUNT
} mics_status;

/* Short English text of a status, for logs; never NULL, "unknown status" when out of range.
 *
 * Owns:    nothing; the text is static.      Threads: any.
 */
const char *mics_status_text(mics_status status);

/* Name of a status as written in C, "MICS_ERR_IO"; never NULL.
 *
 * Owns:    nothing; the text is static.      Threads: any.
 */
const char *mics_status_name(mics_status status);

/* What a system call's failure is, by its errno.
 *
 * Needs:   any value.
 * Returns: MICS_ERR_FULL: the disk, or a quota of it, is full; MICS_ERR_DISK: the disk is read-only or
 *          broken; else MICS_ERR_IO.
 * Threads: any.
 */
mics_status mics_status_of_errno(int cause);

/* Whether it is MICS_ERR_IO, MICS_ERR_DISK or MICS_ERR_FULL.     Threads: any. */
bool mics_status_is_io(mics_status status);

// Returns from the calling function when `expr` fails; for functions that own nothing yet.
#define MICS_TRY(expr)                                                                             \
    do {                                                                                           \
        mics_status mics_try_status_ = (expr);                                                     \
        if (mics_try_status_ != MICS_OK)                                                           \
            return mics_try_status_;                                                               \
    } while (0)

// Jumps to the function's one `out:` label, leaving the reason in its local `status`.
#define MICS_TRY_OUT(expr)                                                                         \
    do {                                                                                           \
        status = (expr);                                                                           \
        if (status != MICS_OK)                                                                     \
            goto out;                                                                              \
    } while (0)

#ifdef __cplusplus
}
#endif
#endif
