// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Requests over HTTP, by libcurl. URLs, which may be signed, and headers, which may be tokens, are
// never logged.
#pragma once

#include "mics/memory.h"
#include <stdbool.h>
#include <stdint.h>
#include <time.h>

// A connection, kept from request to request.
typedef struct remote_http remote_http;

enum { REMOTE_MAX_HEADERS = 8, REMOTE_ETAG_BYTES = 160, REMOTE_REASON_BYTES = 512 };

// What a response's head said; of several, as after a redirection, the last one.
typedef struct remote_response {
    int64_t begin;                    // of Content-Range; -1: none
    int64_t bytes;                    // of the whole file; -1: unknown
    int64_t taken;                    // of the body, by `take`
    int32_t status;                   // 0: none came
    bool is_silent;                   // it was given up, as no byte came or went
    char etag[REMOTE_ETAG_BYTES];     // as it stands there; "": none
    char checksum[80];                // of all bytes, as remote_checksum; "": none
    char modified[64];                // Last-Modified; "": none
    char code[64];                    // X-Error-Code, by which the hub says what is wrong
    char reason[REMOTE_REASON_BYTES]; // the beginning of a failure's body
} remote_response;

typedef struct remote_request {
    const char *method; // NULL: GET
    const char *url;
    bool is_signed;    // for its host alone: no redirection is followed
    bool is_head;      // no body comes, whatever the head says
    long limit_s;      // of its one attempt; 0: none, and several
    long silent_s;     // after so long without a byte it is given up; 0: 60 s
    const char *shown; // in the warning of a silence, at half of that time; NULL: none
    const char *headers[REMOTE_MAX_HEADERS]; // "Name: value"; NULL ends them
    const char *range;                       // "0-0"; NULL: all
    const int64_t
        *done; // in place of `range`: bytes that are there, behind which it goes on; or NULL
    const char *if_range; // with `done`: the ETag or date of the file that they are of; NULL: sure
    const void *body;     // sent with PUT and POST; or NULL
    size_t body_bytes;
    // Takes the body of a success; false ends the request.
    bool (*take)(void *ctx, const remote_response *response, const void *data, size_t bytes);
    void *ctx;
} remote_request;

/* Takes one line of a response's head. Pure. */
void remote_http_take_header(remote_response *response, const char *line, size_t bytes);

/* Whether nobody is to be asked: HF_HUB_OFFLINE, which --offline sets. */
bool remote_http_is_offline(void);

/* Opens a connection.
 *
 * Returns: MICS_OK; MICS_ERR_UNSUPPORTED, logged: there is no libcurl; MICS_ERR_MEMORY.
 * Owns:    end it with remote_http_close.
 */
mics_status remote_http_open(mics_memory *memory, remote_http **http_out);

/* Closes; NULL is allowed. */
void remote_http_close(remote_http *http);

/* Whether a file's time is before this process first asked for one. */
bool remote_http_is_older(struct timespec time);

/* Sends a request, and follows redirections, none of which leads from https to http; an Authorization
 * header goes to the first host alone. A busy server is asked again, behind ever longer waits, and a
 * response that breaks off, behind the bytes that are done.
 *
 * Returns: NULL when a response came whole, whatever its status, or `take` ended it; else the cause,
 *          without the URL. Owns: it is of `http`.
 */
const char *remote_http_send(remote_http *http, const remote_request *request,
                             remote_response *response_out);
