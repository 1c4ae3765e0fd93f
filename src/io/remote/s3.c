// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
#include "io/remote/s3.h"
#include "io/remote/digest.h"
#include "io/remote/s3_call.h"
#include "io/remote/s3_sign.h"
#include "mics/log.h"
#include <ctype.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

// What is small or asked for soon comes or fails in SILENT_S; a part may lie in the kernel's buffers on a slow
// uplink, and servers that join parts are silent: they have http.h's time.
enum { ATTEMPTS = 4, MAX_IDLE = 64, MAX_HASHED = 1 << 20, CLEANING_S = 5, SILENT_S = 20 };

typedef struct s3_address {
    char host[520], path[S3_TEXT_BYTES];
} s3_address;

// ---- connections ----

// Those that nobody uses now, with memory of their own: they outlive the runs that opened them.
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static mics_memory *memory_of_idle;
static remote_http *idle[MAX_IDLE];
static int idle_count;

static mics_status take_connection(const char *url, remote_http **http_out)
{
    mics_status status = MICS_OK;
    *http_out = NULL;
    if (remote_http_is_offline())
        return mics_fail(MICS_ERR_INVALID, "%s: --offline or HF_HUB_OFFLINE says to ask nobody",
                         url);
    pthread_mutex_lock(&mutex);
    if (memory_of_idle == NULL)
        status = mics_memory_open(&memory_of_idle);
    if (idle_count > 0)
        *http_out = idle[--idle_count];
    pthread_mutex_unlock(&mutex);
    return status == MICS_OK && *http_out == NULL ? remote_http_open(memory_of_idle, http_out)
                                                  : status;
}

static void give_connection(remote_http *http)
{
    pthread_mutex_lock(&mutex);
    const bool kept = idle_count < MAX_IDLE;
    if (kept)
        idle[idle_count++] = http;
    pthread_mutex_unlock(&mutex);
    if (!kept)
        remote_http_close(http);
}

// ---- requests ----

bool mics_remote_is_bucket(const char *path)
{
    return strncmp(path, "s3://", 5) == 0;
}

// The bucket is part of the path, as every server understands it.
static mics_status find_address(const s3_call *call, const s3_account *account, s3_address *to,
                                char url[4 * S3_TEXT_BYTES])
{
    char key[S3_TEXT_BYTES];
    const char *bucket = call->url + strlen("s3://"), *slash = strchr(bucket, '/');
    const size_t bytes = strcspn(bucket, "/");
    const bool aws = account->endpoint[0] == '\0';
    const bool plain = !aws && strncmp(account->endpoint, "http://", 7) == 0;
    const char *from = strstr(account->endpoint, "://"), *query = call->query;
    if (bytes == 0 || bytes > 63 || strcspn(bucket, "?#%&@: ") < bytes ||
        (!call->of_bucket && (slash == NULL || slash[1] == '\0')) ||
        !s3_escape(call->of_bucket || slash == NULL ? "" : slash, true, key, sizeof key - 64))
        return mics_fail(MICS_ERR_INVALID, "%s: must be as s3://BUCKET/KEY", call->url);
    from = from != NULL ? from + 3 : account->endpoint;
    mics_text_format(to->host, sizeof to->host, aws ? "s3.%s.amazonaws.com%s" : "%s%s",
                     aws ? account->region : from,
                     aws && strncmp(account->region, "cn-", 3) == 0 ? ".cn" : "");
    to->host[strcspn(to->host, "/?#")] = '\0';
    char *port = strrchr(to->host, ':'); // one that goes without saying is not sent, so not signed
    if (port != NULL && strcmp(port, plain ? ":80" : ":443") == 0)
        *port = '\0';
    const char *behind = aws ? "" : from + strcspn(from, "/?#");
    if (to->host[0] == '\0' || strchr(to->host, '@') != NULL ||
        (*behind != '\0' && strcmp(behind, "/") != 0))
        return mics_fail(MICS_ERR_INVALID, "AWS_ENDPOINT_URL must be as https://HOST:PORT");
    mics_text_format(to->path, sizeof to->path, "/%.*s%s", (int)bytes, bucket, key);
    mics_text_format(url, 4 * S3_TEXT_BYTES, "http%s://%s%s%s%s", plain ? "" : "s", to->host,
                     to->path, query != NULL ? "?" : "", query != NULL ? query : "");
    return MICS_OK;
}

// Of a text what fits. Servers send blanks while they join parts, and then what came of it.
static void keep_answer(char answer[S3_ANSWER_BYTES], const char *text, size_t bytes)
{
    size_t used = strlen(answer);
    for (size_t i = 0; i < bytes && used + 1 < S3_ANSWER_BYTES; i++)
        if (strchr(" \t\r\n", text[i]) == NULL || (used > 0 && answer[used - 1] > ' '))
            answer[used++] = text[i];
    answer[used] = '\0';
}

static bool take(void *ctx, const remote_response *response, const void *data, size_t bytes)
{
    s3_call *call = ctx;
    if (response->taken == 0) // of an answer that may have broken off before
        call->used = 0;
    if (call->data != NULL) {
        call->overflows = bytes > call->capacity - call->used;
        if (!call->overflows)
            memcpy(call->data + call->used, data, bytes);
        call->used += bytes;
        return !call->overflows;
    }
    if (call->text != NULL && response->taken == 0)
        call->text->used = 0;
    if (call->text != NULL)
        mics_text_append(call->text, data, bytes);
    if (response->taken == 0)
        call->answer[0] = '\0';
    keep_answer(call->answer, data, bytes);
    return true;
}

// Parts are not hashed: their chunks have checksums, which are compared when they are read.
static mics_status sign(const s3_call *call, const s3_account *account, const s3_address *to,
                        s3_get *get)
{
    char date[S3_DATE_BYTES], hash[REMOTE_DIGEST_TEXT_BYTES] = "UNSIGNED-PAYLOAD";
    const time_t now = time(NULL);
    struct tm utc;
    strftime(date, sizeof date, "%Y%m%dT%H%M%SZ", gmtime_r(&now, &utc));
    if (call->body_bytes <= MAX_HASHED)
        MICS_TRY(remote_sha256(call->body != NULL ? call->body : "", call->body_bytes, hash));
    const s3_request request = {.method = call->method,
                                .host = to->host,
                                .path = to->path,
                                .query = call->query != NULL ? call->query : "",
                                .hash = hash};
    snprintf(get->authorization, sizeof get->authorization, "Authorization: ");
    MICS_TRY(s3_sign(account, &request, date, get->authorization + strlen(get->authorization)));
    snprintf(get->dated, sizeof get->dated, "x-amz-date: %s", date);
    snprintf(get->hashed, sizeof get->hashed, "x-amz-content-sha256: %s", hash);
    snprintf(get->token, sizeof get->token, "x-amz-security-token:%s%s",
             account->token[0] != '\0' ? " " : "",
             account->token); // a header without a value is not sent
    const char *const headers[] = {get->dated,
                                   get->hashed,
                                   get->token,
                                   "Expect:",
                                   "Content-Type:",
                                   call->is_head ? "x-amz-checksum-mode: ENABLED" : "Accept: */*",
                                   account->key[0] != '\0' ? get->authorization : NULL,
                                   NULL};
    memcpy(get->headers, headers, sizeof headers);
    return MICS_OK;
}

mics_status s3_get_sign(const char *url, s3_get *get_out)
{
    const s3_call call = {.url = url, .method = "GET"};
    s3_account account;
    s3_address to;
    s3_account_read(&account);
    MICS_TRY(find_address(&call, &account, &to, get_out->url));
    return sign(&call, &account, &to, get_out);
}

static bool is_long(const s3_call *call)
{
    return call->body_bytes > MAX_HASHED || strcmp(call->method, "POST") == 0;
}

static mics_status send_once(s3_call *call, const s3_account *account, const s3_address *to,
                             remote_http *http, s3_get *get, const char **why_out)
{
    char range[64];
    MICS_TRY(sign(call, account, to, get));
    snprintf(range, sizeof range, "%lld-%lld", (long long)call->offset,
             (long long)call->offset + (long long)call->capacity - 1);
    call->used = 0;
    call->answer[0] = '\0';
    remote_request request = {.url = get->url,
                              .is_signed = true,
                              .is_head = call->is_head,
                              .method = call->method,
                              .body = call->body,
                              .body_bytes = call->body_bytes,
                              .range = call->data != NULL ? range : NULL,
                              .limit_s = call->left != NULL ? CLEANING_S : 0,
                              .silent_s = is_long(call) ? 0 : SILENT_S,
                              .shown = call->url,
                              .take = take,
                              .ctx = call};
    memcpy(request.headers, get->headers, sizeof request.headers);
    *why_out = remote_http_send(http, &request, &call->response);
    return MICS_OK;
}

// Copies what stands between <name> and the next "<". Returns: what is behind it; NULL: it is not there, or
// too long.
const char *s3_find_element(const char *xml, const char *name, char *out, size_t capacity)
{
    char tag[64];
    const int bytes = snprintf(tag, sizeof tag, "<%s>", name);
    const char *at = strstr(xml, tag);
    const size_t length = at != NULL ? strcspn(at + bytes, "<") : capacity;
    if (length >= capacity)
        return NULL;
    snprintf(out, capacity, "%.*s", (int)length, at + bytes);
    return at + bytes + length;
}

static mics_status refuse(const s3_call *call, const s3_account *account)
{
    char code[64] = "", message[400] = "", region[64] = "";
    const int status = (int)call->response.status;
    const char *xml = call->response.reason[0] != '\0' ? call->response.reason : call->answer;
    (void)s3_find_element(xml, "Code", code, sizeof code);
    (void)s3_find_element(xml, "Message", message, sizeof message);
    (void)s3_find_element(xml, "Region", region, sizeof region);
    return mics_fail(
        MICS_ERR_IO, "%s: %s: the server says %d %s: %s%s%s%s%s", call->url, call->method, status,
        code, message,
        account->key[0] == '\0'
            ? "; no credentials were found: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or "
              "AWS_PROFILE of ~/.aws/credentials"
        : status == 403 ? "; look at the credentials, and their rights to get, put, delete and list"
        : status == 404 ? "; look at the bucket's name and AWS_ENDPOINT_URL"
        : status == 301 || region[0] != '\0' ? "; set AWS_REGION to the bucket's "
                                             : "",
        region, call->left != NULL ? "; " : "", call->left != NULL ? call->left : "");
}

static bool is_error(const s3_call *call) // of an upload that is completed, behind its status
{
    return strstr(call->answer, "<Error>") != NULL;
}

static mics_status run_on(s3_call *call, remote_http *http)
{
    s3_account account;
    s3_address to;
    s3_get get;
    const char *why = NULL;
    const int attempts = call->left != NULL ? 1 : ATTEMPTS;
    s3_account_read(&account);
    MICS_TRY(find_address(call, &account, &to, get.url));
    MICS_TRY(send_once(call, &account, &to, http, &get, &why));
    for (int attempt = 1; (why != NULL || is_error(call)) && attempt < attempts; attempt++) {
        if (!call->response.is_silent) // else it was waited for
            nanosleep(&(struct timespec){.tv_sec = 1 << (attempt - 1)}, NULL);
        MICS_TRY(send_once(call, &account, &to, http, &get, &why));
    }
    const int32_t status = call->response.status;
    if (why != NULL)
        return mics_fail(
            MICS_ERR_COMM, "%s: no answer came from %s: %s; %s", call->url, to.host, why,
            call->left != NULL ? call->left : "look at AWS_ENDPOINT_URL and the network");
    if (call->is_head)
        return MICS_OK;
    if (status == 404 && call->missing_is_no &&
        strstr(call->response.reason, "NoSuchBucket") == NULL)
        return MICS_OK;
    if (status == 416 || call->overflows ||
        (call->data != NULL && status == 200 && call->offset > 0))
        return mics_fail(
            MICS_ERR_FORMAT,
            "%s: byte %lld was asked for, and others came: it is cut short, or another", call->url,
            (long long)call->offset);
    return status / 100 != 2 || is_error(call) ? refuse(call, &account) : MICS_OK;
}

mics_status s3_call_run(s3_call *call)
{
    remote_http *http = NULL;
    MICS_TRY(take_connection(call->url, &http));
    const mics_status status = run_on(call, http);
    give_connection(http);
    return status;
}

// ---- objects ----

mics_status remote_s3_read(const char *url, int64_t offset, void *data, size_t bytes,
                           size_t *read_out, int64_t *total_out)
{
    s3_call call = {.url = url,
                    .method = "GET",
                    .missing_is_no = true,
                    .offset = offset,
                    .data = data,
                    .capacity = bytes};
    MICS_TRY(s3_call_run(&call));
    *read_out = call.used;
    *total_out = call.response.status == 404 ? -1 : call.response.bytes;
    return MICS_OK;
}

mics_status remote_s3_put(const char *url, const void *data, size_t bytes)
{
    return s3_call_run(&(s3_call){.url = url, .method = "PUT", .body = data, .body_bytes = bytes});
}

mics_status remote_s3_remove(const char *url, const char *left)
{
    return s3_call_run(
        &(s3_call){.url = url, .method = "DELETE", .missing_is_no = true, .left = left});
}

// ---- lists ----

// A page of what lies under URL/, or whose key begins as that of `url` if `exact`; `query` is around its prefix.
static mics_status list_page(const char *url, bool exact, const char *before, const char *behind,
                             mics_text *xml, size_t *prefix_out)
{
    char prefix[S3_TEXT_BYTES], escaped[S3_TEXT_BYTES], query[3 * S3_TEXT_BYTES];
    const char *slash = strchr(url + strlen("s3://"), '/'), *key = slash != NULL ? slash + 1 : "";
    const bool ends = exact || *key == '\0' || mics_text_ends(key, "/");
    *prefix_out = (size_t)mics_text_format(prefix, sizeof prefix, "%s%s", key, ends ? "" : "/");
    if (*prefix_out >= sizeof prefix || !s3_escape(prefix, false, escaped, sizeof escaped))
        return mics_fail(MICS_ERR_INVALID, "%s: is longer than a key may be", url);
    mics_text_format(query, sizeof query, "%sprefix=%s%s", before, escaped, behind);
    s3_call call = {.url = url, .method = "GET", .query = query, .of_bucket = true, .text = xml};
    MICS_TRY(s3_call_run(&call));
    return mics_text_status(xml);
}

mics_status remote_s3_list(mics_memory *memory, const char *url, mics_text *names_out)
{
    static const char *const elements[] = {"Key", "Prefix"};
    char before[2 * S3_TEXT_BYTES] = "delimiter=%2F&list-type=2&", token[S3_TEXT_BYTES] = "";
    char next[S3_TEXT_BYTES], key[S3_TEXT_BYTES];
    bool more = false;
    mics_text xml = {.memory = memory};
    mics_status status = MICS_OK;
    size_t prefix = 0;
    do {
        MICS_TRY_OUT(list_page(url, false, before, "", &xml, &prefix));
        const char *text = xml.bytes != NULL ? xml.bytes : "";
        for (int i = 0; i < 2; i++) {
            const char *at = i == 0 ? text : strstr(text, "<CommonPrefixes>");
            while (at != NULL && (at = s3_find_element(at, elements[i], key, sizeof key)) != NULL) {
                if (strlen(key) > prefix)
                    mics_text_printf(names_out, "%s\n", key + prefix);
            }
        }
        more = s3_find_element(text, "NextContinuationToken", next, sizeof next) != NULL &&
               s3_escape(next, false, token, sizeof token);
        mics_text_format(before, sizeof before, "continuation-token=%s&delimiter=%%2F&list-type=2&",
                         token);
    } while (more);
    status = mics_text_status(names_out);
out:
    mics_text_fini(&xml);
    return status;
}

// As in lists of encoding-type=url.
static void unescape(char *text)
{
    char *to = text;
    for (const char *c = text; *c != '\0'; c++) {
        if (*c == '%' && isxdigit((unsigned char)c[1]) && isxdigit((unsigned char)c[2])) {
            const char digits[] = {c[1], c[2], '\0'};
            *to++ = (char)strtoul(digits, NULL, 16);
            c += 2;
        } else {
            *to++ = *c == '+' ? ' ' : *c;
        }
    }
    *to = '\0';
}

void s3_read_tag(const char *etag, char tag[REMOTE_ETAG_BYTES])
{
    const char *begin = strncmp(etag, "&quot;", 6) == 0 ? etag + 6 : etag + (etag[0] == '"');
    snprintf(tag, REMOTE_ETAG_BYTES, "%.*s", (int)strcspn(begin, "&\" "), begin);
}

// Of a page, which it cuts.
static mics_status take_objects(const char *url, char *xml, s3_take *add, void *ctx)
{
    char key[S3_TEXT_BYTES], bytes[24], etag[REMOTE_ETAG_BYTES], tag[REMOTE_ETAG_BYTES],
        *end = NULL;
    const bool escaped = strstr(xml, "<EncodingType>url<") != NULL;
    for (char *at = xml;
         (at = strstr(at, "<Contents>")) != NULL && (end = strstr(at, "</Contents>")) != NULL;
         at = end + 1) {
        *end = '\0';
        if (s3_find_element(at, "Key", key, sizeof key) == NULL ||
            s3_find_element(at, "Size", bytes, sizeof bytes) == NULL ||
            s3_find_element(at, "ETag", etag, sizeof etag) == NULL)
            return mics_fail(MICS_ERR_FORMAT, "%s: the server lists an object without ETag or size",
                             url);
        if (escaped)
            unescape(key);
        s3_read_tag(etag, tag);
        if (!mics_text_ends(key, "/")) // a folder's
            MICS_TRY(add(ctx, key, tag, strtoll(bytes, NULL, 10)));
    }
    return MICS_OK;
}

mics_status s3_list_objects(mics_memory *memory, const char *url, s3_take *add, void *ctx)
{
    char before[2 * S3_TEXT_BYTES] = "encoding-type=url&list-type=2&", token[S3_TEXT_BYTES] = "";
    char next[S3_TEXT_BYTES];
    mics_text xml = {.memory = memory};
    mics_status status = MICS_OK;
    size_t prefix = 0;
    for (bool more = true; more;) {
        MICS_TRY_OUT(list_page(url, true, before, "", &xml, &prefix));
        char *text = xml.bytes != NULL ? xml.bytes : token;
        more = s3_find_element(text, "NextContinuationToken", next, sizeof next) != NULL &&
               s3_escape(next, false, token, sizeof token);
        MICS_TRY_OUT(take_objects(url, text, add, ctx));
        mics_text_format(before, sizeof before,
                         "continuation-token=%s&encoding-type=url&list-type=2&", token);
    }
out:
    mics_text_fini(&xml);
    return status;
}

mics_status s3_give_up(const char *url, const char *id, const char *left)
{
    char query[S3_TEXT_BYTES + 16];
    mics_text_format(query, sizeof query, "uploadId=%s", id);
    return s3_call_run(&(s3_call){
        .url = url, .method = "DELETE", .query = query, .missing_is_no = true, .left = left});
}

mics_status remote_s3_give_up_uploads(mics_memory *memory, const char *url)
{
    char key[S3_TEXT_BYTES], id[S3_TEXT_BYTES], escaped[S3_TEXT_BYTES], object[2 * S3_TEXT_BYTES];
    mics_text xml = {.memory = memory};
    size_t prefix = 0;
    mics_status status = list_page(url, false, "", "&uploads=", &xml, &prefix);
    const char *at = status == MICS_OK && xml.bytes != NULL ? strstr(xml.bytes, "<Upload>") : NULL;
    for (; status == MICS_OK && at != NULL; at = strstr(at + 1, "<Upload>")) {
        if (s3_find_element(at, "UploadId", id, sizeof id) == NULL ||
            s3_find_element(at, "Key", key, sizeof key) == NULL ||
            !s3_escape(id, false, escaped, sizeof escaped) || strlen(key) < prefix ||
            strncmp(key + prefix, "step-", 5) != 0) // another run's, whose prefix is longer
            continue;
        mics_text_format(object, sizeof object, "s3://%.*s/%s", (int)strcspn(url + 5, "/"), url + 5,
                         key);
        status = s3_give_up(object, escaped, NULL);
    }
    mics_text_fini(&xml);
    return status;
}
