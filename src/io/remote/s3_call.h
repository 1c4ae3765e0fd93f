// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// One request of an S3 server, and its answer.
#pragma once

#include "base/text.h"
#include "io/remote/http.h"
#include "io/remote/s3_sign.h"

enum { S3_ANSWER_BYTES = 1024 };

typedef struct s3_call {
    const char *url, *method;
    const char *query;  // as s3_request; NULL: none
    bool of_bucket;     // it asks for the bucket, not for the key
    bool missing_is_no; // 404 is no failure
    bool is_head;       // it asks for the head alone; the caller looks at its status
    const char *
        left; // cleaning up while others wait: asked once, for a few seconds; what an error adds. NULL: not so
    const void *body;
    size_t body_bytes;
    int64_t offset;
    char *data; // where the object's bytes go, from `offset` on; NULL: the answer is a text
    size_t capacity;
    mics_text *text; // (optional)
    // The answer.
    size_t used; // of `data`
    remote_response response;
    char answer[S3_ANSWER_BYTES]; // of a text what fits
    bool overflows;
} s3_call;

/* Sends a request, signed by who asks; see s3.h for what it returns. */
mics_status s3_call_run(s3_call *call);

/* Copies what stands between <name> and the next "<". Returns: what is behind it; NULL: it is not there, or
 * too long. Pure. */
const char *s3_find_element(const char *xml, const char *name, char *out, size_t capacity);

/* Gives up an upload, whose `id` is escaped. `left`: as in s3_call. */
mics_status s3_give_up(const char *url, const char *id, const char *left);

// A GET that may be sent by itself, for a quarter of an hour.
typedef struct s3_get {
    char url[4 * S3_TEXT_BYTES];
    char dated[64], hashed[128], token[S3_TEXT_BYTES + 32], authorization[S3_TEXT_BYTES + 32];
    const char *headers[REMOTE_MAX_HEADERS];
} s3_get;

/* Signs it. Returns: MICS_OK; MICS_ERR_INVALID, MICS_ERR_UNSUPPORTED, one line. Owns: headers are in get_out. */
mics_status s3_get_sign(const char *url, s3_get *get_out);

/* Takes an object; its ETag is without quotes. */
typedef mics_status s3_take(void *ctx, const char *key, const char *etag, int64_t bytes);

/* Lists the objects whose keys begin with that of `url`. Returns: as remote_s3_list, and as `add`. */
mics_status s3_list_objects(mics_memory *memory, const char *url, s3_take *add, void *ctx);

/* An ETag without its quotes. */
void s3_read_tag(const char *etag, char tag[REMOTE_ETAG_BYTES]);
