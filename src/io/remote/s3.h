// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Objects of S3 and of servers that speak as it does: s3://BUCKET/KEY. An object is there whole or not at
// all. Requests that a busy server refuses, or that no answer comes to, are repeated for 8 s and more.
//
// All functions: Threads: any. Return MICS_OK; MICS_ERR_COMM: no answer; MICS_ERR_IO: refused;
// MICS_ERR_INVALID: no such URL, or offline; MICS_ERR_UNSUPPORTED: no libcurl; MICS_ERR_MEMORY. One line,
// without what is secret.
#pragma once

#include "base/text.h"
#include "io/remote/remote.h"
#include "mics/memory.h"
#include "mics/status.h"
#include <stdbool.h>
#include <stdint.h>

/* Reads up to `bytes` at `offset`, fewer at the object's end.
 *
 * Needs:     bytes >= 1.
 * total_out: bytes of the object; -1: there is none.
 * Returns:   also MICS_ERR_FORMAT: nothing is there at that offset.
 */
mics_status remote_s3_read(const char *url, int64_t offset, void *data, size_t bytes,
                           size_t *read_out, int64_t *total_out);

/* Puts an object in place of what is there. */
mics_status remote_s3_put(const char *url, const void *data, size_t bytes);

/* Removes an object; none is no error. `left`: NULL; or of what others wait for, which is asked once and for 5 s:
 * what the error line adds. */
mics_status remote_s3_remove(const char *url, const char *left);

/* Lists what lies directly under URL/: a line a name, of folders with "/" at the end. */
mics_status remote_s3_list(mics_memory *memory, const char *url, mics_text *names_out);

// An object that is written in parts while they are filled. Nothing is there until it is ended well.
typedef struct remote_s3_upload remote_s3_upload;

/* Begins it. `bytes`: of all of it; the first `head` may be written last.
 *
 * Owns: end it with remote_s3_upload_end. Five parts of 8 MiB, or of bytes / 10000, are in memory. */
mics_status remote_s3_upload_begin(mics_memory *memory, const char *url, int64_t bytes,
                                   int64_t head, remote_s3_upload **upload_out);

/* Takes bytes, from `head` on in order. An earlier part's failure is returned. */
mics_status remote_s3_upload_write(remote_s3_upload *upload, const void *data, size_t bytes,
                                   int64_t offset);

/* Ends it, with the object there if `status` is MICS_OK. Returns `status` if it is an error. */
mics_status remote_s3_upload_end(remote_s3_upload *upload, mics_status status);

/* Gives up all uploads under URL/ that were begun and not ended, as by a process that was killed.
 * Needs: none of them under way. */
mics_status remote_s3_give_up_uploads(mics_memory *memory, const char *url);
