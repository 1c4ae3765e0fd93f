// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// One-line messages, and how far long work is. The function that first decides an error logs it once, with mics_fail().
#ifndef MICS_LOG_H
#define MICS_LOG_H

#include "mics/status.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum mics_log_level { MICS_LOG_ERROR, MICS_LOG_WARNING, MICS_LOG_INFO } mics_log_level;

// Receives one line, without a newline and without level or rank (`rank` is -1 when none is set).
typedef void (*mics_log_sink)(void *ctx, mics_log_level level, int32_t rank, const char *line);

/* Replaces where messages go; NULL restores standard error ("mics: error: rank 2: ...").
 *
 * Owns:    nothing; `ctx` must outlive its use.   Threads: call before others log.
 */
void mics_log_set_sink(mics_log_sink sink, void *ctx);

/* Says which rank the calling thread works for; -1 for none. Each thread has its own.
 *
 * Needs:   rank >= -1.
 * Threads: any; affects the caller's thread only.
 */
void mics_log_set_rank(int32_t rank);

/* While on, what the calling thread logs as an error is logged as a warning: around a call whose
 * failure the caller makes good, so that a program which keeps the first error of a run does not
 * keep this one. A failure that is passed on after all needs an error line of its own.
 *
 * Returns: what was before, to be set again.
 * Threads: any; affects the caller's thread only.
 */
bool mics_log_demote(bool on);

#if defined(__GNUC__)
#define MICS_PRINTF(string, first) __attribute__((__format__(__printf__, string, first)))
#else
#define MICS_PRINTF(string, first)
#endif

/* Logs one line (cut at 2 KiB; newlines become spaces, other control characters question marks).
 *
 * Threads: any; one line is one call of the sink.
 */
void mics_log(mics_log_level level, const char *format, ...) MICS_PRINTF(2, 3);

/* Logs an error line and returns `status`, so that a failing function ends in one statement:
 * `return mics_fail(MICS_ERR_IO, "%s: %s; check the path", path, strerror(errno));`
 * The text says what, where and what to do.
 *
 * Returns: `status`.                         Threads: any.
 */
mics_status mics_fail(mics_status status, const char *format, ...) MICS_PRINTF(2, 3);

// ---- one voice ----
// All ranks open a run in the same way, so they find the same errors. Only one of them should log
// an error. So a thread can hold its error line back until it knows whether it is that one.

/* From now on the calling thread's first error line is kept back, and later ones are dropped; with
 * `quiet` its warnings and other lines are dropped too. A line kept back before is forgotten.
 *
 * Threads: any; affects the caller's thread only, as do the next five.
 */
void mics_log_hold(bool quiet);

/* Changes whether warnings and other lines are dropped; a line that is kept back stays. */
void mics_log_set_quiet(bool quiet);

/* Takes the line that is kept back, and forgets it: for a caller that makes the failure good and
 * says so in a line of its own. Holding goes on.
 *
 * Shapes:  line_out: (capacity), cut to that; "" when there is none.
 * Needs:   capacity >= 1.
 * Owns:    nothing.
 * Returns: whether there was one.
 */
bool mics_log_take(char *line_out, size_t capacity);

/* Adds what to do to the line that is kept back, behind "; "; nothing when there is none. */
void mics_log_add(const char *text);

/* Ends holding. Logs the line that was kept back if `speak`, as that of `rank`, -1 for none; else
 * drops it.
 *
 * Needs:   rank >= -1.
 * Returns: whether there was one.
 */
bool mics_log_release(bool speak, int32_t rank);

/* While on, all that this thread logs is dropped: around a trial whose failure is nobody's error.
 *
 * Returns: what was before, to be set again.
 */
bool mics_log_mute(bool on);

// ---- how far long work is ----

// Who hears how far long work is: loading, evaluating, exporting, planning. `progress` is called
// now and then, on the thread that does the work, with 0 <= done <= total; done == total is the last.
typedef struct mics_work_listener {
    void *ctx;
    void (*progress)(void *ctx, const char *what, int64_t done, int64_t total); // NULL: nobody
} mics_work_listener;

/* Tells it.        Needs: 0 <= done <= total. */
static inline void mics_work_tell(const mics_work_listener *listener, const char *what,
                                  int64_t done, int64_t total)
{
    if (listener->progress != NULL)
        listener->progress(listener->ctx, what, done, total);
}

#ifdef __cplusplus
}
#endif
#endif
