// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Requests over HTTP. URLs, which may be signed, and headers, which may be tokens, are never logged.
#pragma once

#include "mics/memory.h"
#include <stdbool.h>
#include <stdint.h>
#include <time.h>

// A connection, kept from request to request.
typedef struct remote_http remote_http;

enum { REMOTE_MAX_HEADERS = 4, REMOTE_ETAG_BYTES = 160 };

typedef struct remote_request {
    const char *url;
    const char *headers[REMOTE_MAX_HEADERS]; // "Name: value"; NULL: none
    // Takes the body of a response with status 200 or 206; false ends the request.
    bool (*take)(void *ctx, const void *data, size_t bytes);
    void *ctx;
} remote_request;

// What a response's head said; of several, as after a redirection, the last one.
typedef struct remote_response {
    int32_t status;               // 0: none came
    int64_t begin;                // of Content-Range; -1: none
    int64_t bytes;                // of the whole file; -1: unknown
    char etag[REMOTE_ETAG_BYTES]; // as it stands there; "": none
    char code[64];                // X-Error-Code, by which the hub says what is wrong
} remote_response;

/* Takes one line of a response's head. Threads: any. Pure. */
void remote_http_take_header(remote_response *response, const char *line, size_t bytes);

/* Opens a connection, by libcurl, which is opened with the first one: who trains on local files needs
 * none.
 *
 * Returns: MICS_OK, with NULL where HF_HUB_OFFLINE says to ask nobody; MICS_ERR_UNSUPPORTED, logged: there is no libcurl; MICS_ERR_MEMORY.
 * Owns:    end it with remote_http_close.
 */
mics_status remote_http_open(mics_memory *memory, remote_http **http_out);

/* Closes; NULL is allowed. */
void remote_http_close(remote_http *http);

/* Whether a file's time is before this process opened its first connection. */
bool remote_http_is_older(struct timespec time);

/* Gets a URL, and follows redirections, none of which leads from https to http; headers of ours go to
 * the first host alone, if they say who we are.
 *
 * Returns: NULL when a response came whole, whatever its status, or `take` ended it; else the cause,
 *          without the URL. Owns: it is of `http`.
 */
const char *remote_http_get(remote_http *http, const remote_request *request,
                            remote_response *response_out);
