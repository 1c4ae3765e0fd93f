// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
#include "io/remote/http.h"
#include "base/clock.h"
#include "base/text.h"
#include "io/remote/library.h"
#include "mics/log.h"
#include <ctype.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

// Of curl/curl.h, whose numbers never change: options from 0 on are longs, from 10000 on pointers,
// from 20000 on functions, from 30000 on long longs.
enum {
    CURL_WRITEDATA = 10001,
    CURL_URL = 10002,
    CURL_RANGE = 10007,
    CURL_ERRORBUFFER = 10010,
    CURL_POSTFIELDS = 10015,
    CURL_USERAGENT = 10018,
    CURL_NOPROGRESS = 43,
    CURL_XFERINFODATA = 10057,
    CURL_XFERINFOFUNCTION = 20219,
    CURL_HTTPHEADER = 10023,
    CURL_HEADERDATA = 10029,
    CURL_CUSTOMREQUEST = 10036,
    CURL_TIMEOUT = 13, // seconds of all
    CURL_NOBODY = 44,
    CURL_FOLLOWLOCATION = 52,
    CURL_CAINFO = 10065,
    CURL_CONNECTTIMEOUT = 78,
    CURL_NOSIGNAL = 99,
    CURL_PROTOCOLS = 181,
    CURL_UPLOAD_BUFFERSIZE = 280,
    CURL_REDIR_PROTOCOLS = 182,
    CURL_WRITEFUNCTION = 20011,
    CURL_HEADERFUNCTION = 20079,
    CURL_POSTFIELDSIZE_LARGE = 30120,
    CURL_ERROR_BYTES = 256,
    CURL_GLOBAL_ALL = 3
};
enum { ATTEMPTS = 5, FIRST_WAIT_MS = 200 };
static const long CONNECT_S = 30, SILENT_S = 60, HTTP_AND_HTTPS = 3, HTTPS = 2;
static const long UPLOAD_BUFFER_BYTES = 1 << 20;

typedef struct curl_list { // struct curl_slist
    const char *text;
    struct curl_list *next;
} curl_list;

static struct {
    int (*global_init)(long flags);
    void *(*easy_init)(void);
    void (*easy_cleanup)(void *handle);
    void (*easy_reset)(void *handle);
    int (*easy_setopt)(void *handle, int option, ...);
    int (*easy_perform)(void *handle);
    const char *(*easy_strerror)(int code);
} curl;

struct remote_http {
    mics_memory *memory;
    void *handle;
    const remote_request *request; // under way
    remote_response *response;
    bool ended;                 // by `take`
    bool told;                  // that nothing moves
    long long moved;            // bytes, both ways
    double moved_us, silent_us; // when; how long none may move
    char why[CURL_ERROR_BYTES];
};

static pthread_once_t once = PTHREAD_ONCE_INIT;
static char why_not[REMOTE_WHY_BYTES];
static bool is_open;
static struct timespec opened;

// ---- connections ----

bool remote_http_is_offline(void)
{
    return mics_text_is_among(getenv("HF_HUB_OFFLINE"), "1|on|yes|true|ON|YES|TRUE|True");
}

static void open_library(void)
{
    static const char *const names[] = {"libcurl.so.4", "libcurl-gnutls.so.4", NULL};
#define SYMBOL(name)                                                                               \
    {                                                                                              \
        "curl_" #name, (void *)&curl.name                                                          \
    }
    const remote_symbol symbols[] = {
        SYMBOL(global_init), SYMBOL(easy_init),    SYMBOL(easy_cleanup), SYMBOL(easy_reset),
        SYMBOL(easy_setopt), SYMBOL(easy_perform), SYMBOL(easy_strerror)};
#undef SYMBOL
    clock_gettime(CLOCK_REALTIME_COARSE, &opened); // as file systems do
    is_open = remote_library_open("MICS_CURL_LIBRARY", names, symbols,
                                  sizeof symbols / sizeof *symbols, why_not) &&
              curl.global_init(CURL_GLOBAL_ALL) == 0;
}

mics_status remote_http_open(mics_memory *memory, remote_http **http_out)
{
    remote_http *http = NULL;
    *http_out = NULL;
    pthread_once(&once, open_library);
    if (!is_open)
        return mics_fail(MICS_ERR_UNSUPPORTED,
                         "libcurl, which downloads, cannot be opened: %s; install it (Debian: apt "
                         "install libcurl4), or name it in MICS_CURL_LIBRARY",
                         why_not);
    MICS_TRY(MICS_NEW(memory, 1, &http));
    *http = (remote_http){.memory = memory, .handle = curl.easy_init()};
    if (http->handle == NULL) {
        mics_free(memory, http);
        return mics_fail(MICS_ERR_MEMORY, "no memory for a connection");
    }
    *http_out = http;
    return MICS_OK;
}

void remote_http_close(remote_http *http)
{
    if (http == NULL)
        return;
    curl.easy_cleanup(http->handle);
    mics_free(http->memory, http);
}

bool remote_http_is_older(struct timespec time)
{
    pthread_once(&once, open_library);
    return time.tv_sec < opened.tv_sec ||
           (time.tv_sec == opened.tv_sec && time.tv_nsec < opened.tv_nsec);
}

// ---- heads ----

// The value of a header, where it has that name.
static bool value_of(const char *line, const char *name, char *value, size_t capacity)
{
    const size_t bytes = strlen(name);
    if (strncasecmp(line, name, bytes) != 0 || line[bytes] != ':')
        return false;
    const char *from = line + bytes + 1;
    from += strspn(from, " \t");
    mics_text_format(value, capacity, "%.*s", (int)strcspn(from, "\r\n"), from);
    return true;
}

static int64_t number_of(const char *text)
{
    return isdigit((unsigned char)*text) ? strtoll(text, NULL, 10) : -1;
}

void remote_http_take_header(remote_response *response, const char *line, size_t bytes)
{
    char text[1024], value[256];
    snprintf(text, sizeof text, "%.*s", (int)(bytes < sizeof text ? bytes : sizeof text - 1), line);
    const char *space = strchr(text, ' ');
    if (strncmp(text, "HTTP/", 5) == 0) {
        *response = (remote_response){.begin = -1, .bytes = -1};
        const int64_t status = space != NULL ? number_of(space + 1) : 0;
        response->status = status >= 100 && status < 1000 ? (int32_t)status : 0;
    } else if (value_of(text, "Content-Range", value, sizeof value)) { // bytes 5-9/10
        const char *slash = strchr(value, '/');
        response->begin = strncasecmp(value, "bytes ", 6) == 0 ? number_of(value + 6) : -1;
        response->bytes = slash != NULL ? number_of(slash + 1) : -1;
    } else if (value_of(text, "Content-Length", value, sizeof value) && response->status == 200) {
        response->bytes = number_of(value);
    } else if (strncasecmp(text, "x-amz-checksum-", 15) == 0) {
        if (strchr(text + 15, '-') == NULL &&
            strncasecmp(text + 15, "type", 4) != 0) // "-3": of parts
            mics_text_format(response->checksum, sizeof response->checksum, "%.*s",
                             (int)strcspn(text + 15, "\r\n"), text + 15);
    } else {
        value_of(text, "ETag", response->etag, sizeof response->etag);
        value_of(text, "Last-Modified", response->modified, sizeof response->modified);
        value_of(text, "X-Error-Code", response->code, sizeof response->code);
    }
}

// ---- requests ----

static size_t take_header(char *line, size_t one, size_t bytes, void *ctx)
{
    remote_http_take_header(((remote_http *)ctx)->response, line, one * bytes);
    return one * bytes;
}

static size_t take_body(char *data, size_t one, size_t bytes, void *ctx)
{
    remote_http *http = ctx;
    remote_response *response = http->response;
    const size_t used = strlen(response->reason);
    if (response->status / 100 != 2)
        snprintf(response->reason + used, sizeof response->reason - used, "%.*s", (int)bytes, data);
    else if (http->request->take != NULL)
        http->ended = !http->request->take(http->request->ctx, response, data, one * bytes);
    response->taken += (int64_t)(one * bytes);
    return http->ended ? 0 : one * bytes;
}

// libcurl calls it each second, from connecting on, whether bytes move or not. Not 0 ends the request.
static int watch(void *ctx, long long down_all, long long down, long long up_all, long long up)
{
    (void)down_all;
    (void)up_all;
    remote_http *http = ctx;
    const double now_us = mics_clock_us();
    if (down + up != http->moved)
        http->moved_us = now_us;
    http->moved = down + up;
    const double silent_us = now_us - http->moved_us;
    if (silent_us >= http->silent_us / 2 && !http->told && http->request->shown != NULL) {
        http->told = true;
        mics_log(MICS_LOG_WARNING,
                 "%s: the server is silent: no byte came or went for %.3g s; this attempt ends "
                 "behind %.3g s",
                 http->request->shown, silent_us / 1e6, http->silent_us / 1e6);
    }
    http->response->is_silent = silent_us >= http->silent_us;
    return http->response->is_silent;
}

static void set_options(remote_http *http, const char *range, const curl_list *headers)
{
    const remote_request *request = http->request;
    const bool plain = strncasecmp(request->url, "http://", 7) == 0;
    const char *certificates = getenv("SSL_CERT_FILE"); // in place of the system's
    curl.easy_reset(http->handle);                      // the connection stays
#define SET(option, value) curl.easy_setopt(http->handle, option, value)
    SET(CURL_URL, request->url);
    SET(CURL_HTTPHEADER, headers);
    SET(CURL_RANGE, range);
    SET(CURL_CUSTOMREQUEST, request->method);
    SET(CURL_POSTFIELDSIZE_LARGE, (long long)request->body_bytes);
    if (request->body != NULL)
        SET(CURL_POSTFIELDS, request->body);
    if (request->is_head)
        SET(CURL_NOBODY, 1L);
    SET(CURL_TIMEOUT, request->limit_s);
    SET(CURL_UPLOAD_BUFFERSIZE, UPLOAD_BUFFER_BYTES);
    SET(CURL_NOSIGNAL, 1L);
    SET(CURL_FOLLOWLOCATION, request->is_signed ? 0L : 1L);
    SET(CURL_PROTOCOLS, plain ? HTTP_AND_HTTPS : HTTPS);
    SET(CURL_REDIR_PROTOCOLS, plain ? HTTP_AND_HTTPS : HTTPS);
    SET(CURL_CONNECTTIMEOUT, CONNECT_S);
    SET(CURL_NOPROGRESS, 0L);
    SET(CURL_XFERINFOFUNCTION, watch);
    SET(CURL_XFERINFODATA, http);
    SET(CURL_USERAGENT, "mics");
    SET(CURL_ERRORBUFFER, http->why);
    SET(CURL_HEADERFUNCTION, take_header);
    SET(CURL_HEADERDATA, http);
    SET(CURL_WRITEFUNCTION, take_body);
    SET(CURL_WRITEDATA, http);
    if (certificates != NULL && *certificates != '\0')
        SET(CURL_CAINFO, certificates);
#undef SET
}

static const char *send_once(remote_http *http)
{
    const remote_request *request = http->request;
    const bool goes_on = request->done != NULL && *request->done > 0;
    char range[32], if_range[REMOTE_ETAG_BYTES + 16];
    curl_list headers[REMOTE_MAX_HEADERS + 1], *list = NULL;
    int32_t count = 0;
    *http->response = (remote_response){.begin = -1, .bytes = -1};
    http->ended = http->told = false;
    http->moved = 0;
    http->moved_us = mics_clock_us();
    http->why[0] = '\0';
    snprintf(range, sizeof range, "%lld-", goes_on ? (long long)*request->done : 0);
    snprintf(if_range, sizeof if_range, "If-Range: %s",
             request->if_range != NULL ? request->if_range : "");
    for (; count < REMOTE_MAX_HEADERS && request->headers[count] != NULL; count++)
        headers[count] = (curl_list){request->headers[count], &headers[count + 1]};
    if (goes_on && request->if_range != NULL)
        headers[count++] = (curl_list){if_range, NULL};
    if (count > 0) {
        headers[count - 1].next = NULL;
        list = headers;
    }
    set_options(http, goes_on ? range : request->range, list);
    const int result = curl.easy_perform(http->handle);
    if (result == 0 || http->ended)
        return NULL;
    if (http->response->is_silent)
        snprintf(http->why, sizeof http->why,
                 "no byte came or went for %.3g s (MICS_REMOTE_SILENT_S)", http->silent_us / 1e6);
    return http->why[0] != '\0' ? http->why : curl.easy_strerror(result);
}

// A silence was waited for; only of what goes on behind its bytes is the rest asked for.
static bool is_passing(const remote_request *request, const remote_response *response,
                       const char *why)
{
    const int32_t status = response->status;
    return (why != NULL && status != 0 && (!response->is_silent || request->done != NULL)) ||
           status == 429 || status == 500 || (status >= 502 && status <= 504);
}

const char *remote_http_send(remote_http *http, const remote_request *request,
                             remote_response *response_out)
{
    http->request = request;
    http->response = response_out;
    const char *asked = getenv("MICS_REMOTE_SILENT_S");
    const long silent_limit_s = request->silent_s > 0 ? request->silent_s : SILENT_S;
    char *end = NULL;
    const double silent_s = asked != NULL ? strtod(asked, &end) : (double)silent_limit_s;
    http->silent_us = silent_s * 1e6;
    *response_out = (remote_response){.is_silent = true}; // nothing to wait for
    if (!(silent_s > 0) || (end != NULL && *end != '\0'))
        return "MICS_REMOTE_SILENT_S must be seconds, more than 0";
    for (int attempt = 1;; attempt++) {
        const char *why = send_once(http);
        if (http->ended || !is_passing(request, response_out, why) || attempt == ATTEMPTS ||
            request->limit_s > 0)
            return why;
        if (request->done != NULL && response_out->status == 206 && response_out->taken > 0)
            attempt = 1; // it goes on
        const long wait_ms = FIRST_WAIT_MS << (2 * (attempt - 1));
        nanosleep(&(struct timespec){wait_ms / 1000, wait_ms % 1000 * 1000000}, NULL);
    }
}
