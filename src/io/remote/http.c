// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
#include "io/remote/http.h"
#include "base/text.h"
#include "mics/log.h"
#include <ctype.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

// Of curl/curl.h, whose numbers never change: options from 0 on are longs, from 10000 on pointers,
// from 20000 on functions.
enum {
    CURL_WRITEDATA = 10001,
    CURL_URL = 10002,
    CURL_ERRORBUFFER = 10010,
    CURL_USERAGENT = 10018,
    CURL_LOW_SPEED_BYTES = 19, // bytes a second
    CURL_LOW_SPEED_TIME = 20,
    CURL_HTTPHEADER = 10023,
    CURL_HEADERDATA = 10029,
    CURL_FOLLOWLOCATION = 52,
    CURL_CAINFO = 10065,
    CURL_MAXREDIRS = 68,
    CURL_CONNECTTIMEOUT = 78,
    CURL_NOSIGNAL = 99,
    CURL_PROTOCOLS = 181,
    CURL_REDIR_PROTOCOLS = 182,
    CURL_WRITEFUNCTION = 20011,
    CURL_HEADERFUNCTION = 20079,
    CURL_ERROR_BYTES = 256
};
enum { CONNECT_S = 30, SILENT_S = 60, REDIRECTIONS = 10, HTTP_AND_HTTPS = 3, HTTPS = 2 };

typedef struct curl_library {
    int (*global_init)(long flags);
    void *(*easy_init)(void);
    void (*easy_cleanup)(void *handle);
    void (*easy_reset)(void *handle);
    int (*easy_setopt)(void *handle, int option, ...);
    int (*easy_perform)(void *handle);
    const char *(*easy_strerror)(int code);
    void *(*slist_append)(void *list, const char *text);
    void (*slist_free_all)(void *list);
} curl_library;

struct remote_http {
    mics_memory *memory;
    void *handle;
    const remote_request *request; // under way
    remote_response *response;
    bool ended; // by `take`
    char why[CURL_ERROR_BYTES];
};

static pthread_once_t once = PTHREAD_ONCE_INIT;
static curl_library curl;
static char why_not[256]; // "": it is open
static struct timespec opened;

// ---- libcurl ----

// Takes a function's address; ISO C has no cast to it.
static void take_function(void *library, const char *name, void *function_out)
{
    void *address = dlsym(library, name);
    if (address == NULL)
        snprintf(why_not, sizeof why_not, "it lacks %s", name);
    memcpy(function_out, &address, sizeof address);
}

static void open_library(void)
{
    static void *library; // stays open
    const char *const names[] = {getenv("MICS_CURL_LIBRARY"), "libcurl.so.4",
                                 "libcurl-gnutls.so.4"}; // the last is Debian's other build
    const bool asked = names[0] != NULL && *names[0] != '\0';
    clock_gettime(CLOCK_REALTIME_COARSE, &opened); // as file systems do
    for (int i = asked ? 0 : 1; i < (asked ? 1 : 3) && library == NULL; i++)
        library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
        const char *error = dlerror();
        snprintf(why_not, sizeof why_not, "%s", error != NULL ? error : "not found");
        return;
    }
#define TAKE(name) take_function(library, "curl_" #name, (void *)&curl.name)
    TAKE(global_init), TAKE(easy_init), TAKE(easy_cleanup), TAKE(easy_reset), TAKE(easy_setopt);
    TAKE(easy_perform), TAKE(easy_strerror), TAKE(slist_append), TAKE(slist_free_all);
#undef TAKE
    if (why_not[0] == '\0' && curl.global_init(3) != 0) // CURL_GLOBAL_ALL
        snprintf(why_not, sizeof why_not, "it cannot begin");
}

mics_status remote_http_open(mics_memory *memory, remote_http **http_out)
{
    remote_http *http = NULL;
    *http_out = NULL;
    if (mics_text_is_among(getenv("HF_HUB_OFFLINE"), "1|on|yes|true|ON|YES|TRUE|True"))
        return MICS_OK;
    pthread_once(&once, open_library);
    if (why_not[0] != '\0')
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
    } else {
        value_of(text, "ETag", response->etag, sizeof response->etag);
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
    const int32_t status = http->response->status;
    if (status != 200 && status != 206)
        return one * bytes; // what it says of the failure
    http->ended = !http->request->take(http->request->ctx, data, one * bytes);
    return http->ended ? 0 : one * bytes;
}

static void set_options(remote_http *http, const char *url, void *headers)
{
    const long protocols = strncasecmp(url, "http://", 7) == 0 ? HTTP_AND_HTTPS : HTTPS;
    const char *certificates = getenv("SSL_CERT_FILE"); // in place of the system's
    curl.easy_reset(http->handle);                      // the connection stays
#define SET(option, value) curl.easy_setopt(http->handle, option, value)
    SET(CURL_URL, url);
    SET(CURL_HTTPHEADER, headers);
    SET(CURL_NOSIGNAL, 1L);
    SET(CURL_FOLLOWLOCATION, 1L);
    SET(CURL_MAXREDIRS, (long)REDIRECTIONS);
    SET(CURL_PROTOCOLS, protocols);
    SET(CURL_REDIR_PROTOCOLS, protocols);
    SET(CURL_CONNECTTIMEOUT, (long)CONNECT_S);
    SET(CURL_LOW_SPEED_BYTES, 1L);
    SET(CURL_LOW_SPEED_TIME, (long)SILENT_S);
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

const char *remote_http_get(remote_http *http, const remote_request *request,
                            remote_response *response_out)
{
    void *headers = NULL;
    *response_out = (remote_response){.begin = -1, .bytes = -1};
    http->request = request;
    http->response = response_out;
    http->ended = false;
    http->why[0] = '\0';
    for (int i = 0; i < REMOTE_MAX_HEADERS && request->headers[i] != NULL; i++) {
        void *longer = curl.slist_append(headers, request->headers[i]);
        if (longer == NULL) {
            curl.slist_free_all(headers);
            return "no memory for its headers";
        }
        headers = longer;
    }
    set_options(http, request->url, headers);
    const int result = curl.easy_perform(http->handle);
    curl.slist_free_all(headers);
    if (result == 0 || http->ended)
        return NULL;
    // The message may quote a host, but no path or query.
    return http->why[0] != '\0' && strstr(http->why, "://") == NULL ? http->why
                                                                    : curl.easy_strerror(result);
}
