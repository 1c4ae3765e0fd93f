// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
#include "io/remote/s3.h"
#include "base/free.h"
#include "io/remote/digest.h"
#include "io/remote/http.h"
#include "io/remote/s3_sign.h"
#include "mics/log.h"
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

enum { ATTEMPTS = 4, MAX_IDLE = 64, MAX_HASHED = 1 << 20, ANSWER_BYTES = 1024 };

// One request, and its answer.
typedef struct s3_call {
    const char *url, *method;
    const char *query;  // as s3_request; NULL: none
    bool of_bucket;     // it asks for the bucket, not for the key
    bool missing_is_no; // 404 is no failure
    const void *body;
    size_t body_bytes;
    int64_t offset;
    char *data; // where the object's bytes go, from `offset` on; NULL: the answer is a text
    size_t capacity;
    mics_text *text; // (optional)
    // The answer.
    size_t used; // of `data`
    remote_response response;
    char answer[ANSWER_BYTES]; // of a text what fits
    bool overflows;
} s3_call;

typedef struct s3_address {
    char url[4 * S3_TEXT_BYTES], host[520], path[S3_TEXT_BYTES];
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
static mics_status find_address(const s3_call *call, const s3_account *account, s3_address *to)
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
    mics_text_format(to->url, sizeof to->url, "http%s://%s%s%s%s", plain ? "" : "s", to->host,
                     to->path, query != NULL ? "?" : "", query != NULL ? query : "");
    return MICS_OK;
}

// Of a text what fits. Servers send blanks while they join parts, and then what came of it.
static void keep_answer(char answer[ANSWER_BYTES], const char *text, size_t bytes)
{
    size_t used = strlen(answer);
    for (size_t i = 0; i < bytes && used + 1 < ANSWER_BYTES; i++)
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
static mics_status send_once(s3_call *call, const s3_account *account, const s3_address *to,
                             remote_http *http, const char **why_out)
{
    char date[S3_DATE_BYTES], hash[REMOTE_DIGEST_TEXT_BYTES] = "UNSIGNED-PAYLOAD", range[64];
    char authorization[S3_TEXT_BYTES + 32] = "Authorization: ", token[S3_TEXT_BYTES + 32];
    char dated[64], hashed[128];
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
    MICS_TRY(s3_sign(account, &request, date, authorization + strlen(authorization)));
    snprintf(dated, sizeof dated, "x-amz-date: %s", date);
    snprintf(hashed, sizeof hashed, "x-amz-content-sha256: %s", hash);
    snprintf(range, sizeof range, "%lld-%lld", (long long)call->offset,
             (long long)call->offset + (long long)call->capacity - 1);
    snprintf(token, sizeof token, "x-amz-security-token:%s%s", account->token[0] != '\0' ? " " : "",
             account->token); // a header without a value is not sent
    call->used = 0;
    call->answer[0] = '\0';
    *why_out = remote_http_send(
        http,
        &(remote_request){.url = to->url,
                          .is_signed = true,
                          .method = call->method,
                          .body = call->body,
                          .body_bytes = call->body_bytes,
                          .range = call->data != NULL ? range : NULL,
                          .headers = {dated, hashed, token, "Expect:", "Content-Type:",
                                      account->key[0] != '\0' ? authorization : NULL},
                          .take = take,
                          .ctx = call},
        &call->response);
    return MICS_OK;
}

// Copies what stands between <name> and the next "<". Returns: what is behind it; NULL: it is not there, or
// too long.
static const char *find_element(const char *xml, const char *name, char *out, size_t capacity)
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
    (void)find_element(xml, "Code", code, sizeof code);
    (void)find_element(xml, "Message", message, sizeof message);
    (void)find_element(xml, "Region", region, sizeof region);
    return mics_fail(
        MICS_ERR_IO, "%s: %s: the server says %d %s: %s%s%s", call->url, call->method, status, code,
        message,
        account->key[0] == '\0'
            ? "; no credentials were found: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or "
              "AWS_PROFILE of ~/.aws/credentials"
        : status == 403 ? "; look at the credentials, and their rights to get, put, delete and list"
        : status == 404 ? "; look at the bucket's name and AWS_ENDPOINT_URL"
        : status == 301 || region[0] != '\0' ? "; set AWS_REGION to the bucket's "
                                             : "",
        region);
}

static bool is_error(const s3_call *call) // of an upload that is completed, behind its status
{
    return strstr(call->answer, "<Error>") != NULL;
}

static mics_status run_on(s3_call *call, remote_http *http)
{
    s3_account account;
    s3_address to;
    const char *why = NULL;
    s3_account_read(&account);
    MICS_TRY(find_address(call, &account, &to));
    MICS_TRY(send_once(call, &account, &to, http, &why));
    for (int attempt = 1; (why != NULL || is_error(call)) && attempt < ATTEMPTS; attempt++) {
        nanosleep(&(struct timespec){.tv_sec = 1 << (attempt - 1)}, NULL);
        MICS_TRY(send_once(call, &account, &to, http, &why));
    }
    const int32_t status = call->response.status;
    if (why != NULL)
        return mics_fail(MICS_ERR_COMM,
                         "%s: no answer came from %s: %s; look at AWS_ENDPOINT_URL and the network",
                         call->url, to.host, why);
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

static mics_status run_call(s3_call *call)
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
    MICS_TRY(run_call(&call));
    *read_out = call.used;
    *total_out = call.response.status == 404 ? -1 : call.response.bytes;
    return MICS_OK;
}

mics_status remote_s3_put(const char *url, const void *data, size_t bytes)
{
    return run_call(&(s3_call){.url = url, .method = "PUT", .body = data, .body_bytes = bytes});
}

mics_status remote_s3_remove(const char *url)
{
    return run_call(&(s3_call){.url = url, .method = "DELETE", .missing_is_no = true});
}

// ---- lists ----

// A page of what lies under URL/, `query` around whose prefix.
static mics_status list_page(const char *url, const char *before, const char *behind,
                             mics_text *xml, size_t *prefix_out)
{
    char prefix[S3_TEXT_BYTES], escaped[S3_TEXT_BYTES], query[3 * S3_TEXT_BYTES];
    const char *slash = strchr(url + strlen("s3://"), '/'), *key = slash != NULL ? slash + 1 : "";
    const bool ends = *key == '\0' || mics_text_ends(key, "/");
    *prefix_out = (size_t)mics_text_format(prefix, sizeof prefix, "%s%s", key, ends ? "" : "/");
    if (*prefix_out >= sizeof prefix || !s3_escape(prefix, false, escaped, sizeof escaped))
        return mics_fail(MICS_ERR_INVALID, "%s: is longer than a key may be", url);
    mics_text_format(query, sizeof query, "%sprefix=%s%s", before, escaped, behind);
    s3_call call = {.url = url, .method = "GET", .query = query, .of_bucket = true, .text = xml};
    MICS_TRY(run_call(&call));
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
        MICS_TRY_OUT(list_page(url, before, "", &xml, &prefix));
        const char *text = xml.bytes != NULL ? xml.bytes : "";
        for (int i = 0; i < 2; i++) {
            const char *at = i == 0 ? text : strstr(text, "<CommonPrefixes>");
            while (at != NULL && (at = find_element(at, elements[i], key, sizeof key)) != NULL) {
                if (strlen(key) > prefix)
                    mics_text_printf(names_out, "%s\n", key + prefix);
            }
        }
        more = find_element(text, "NextContinuationToken", next, sizeof next) != NULL &&
               s3_escape(next, false, token, sizeof token);
        mics_text_format(before, sizeof before, "continuation-token=%s&delimiter=%%2F&list-type=2&",
                         token);
    } while (more);
    status = mics_text_status(names_out);
out:
    mics_text_fini(&xml);
    return status;
}

static mics_status give_up(const char *url, const char *id)
{
    char query[S3_TEXT_BYTES + 16];
    mics_text_format(query, sizeof query, "uploadId=%s", id);
    return run_call(
        &(s3_call){.url = url, .method = "DELETE", .query = query, .missing_is_no = true});
}

mics_status remote_s3_give_up_uploads(mics_memory *memory, const char *url)
{
    char key[S3_TEXT_BYTES], id[S3_TEXT_BYTES], escaped[S3_TEXT_BYTES], object[2 * S3_TEXT_BYTES];
    mics_text xml = {.memory = memory};
    size_t prefix = 0;
    mics_status status = list_page(url, "", "&uploads=", &xml, &prefix);
    const char *at = status == MICS_OK && xml.bytes != NULL ? strstr(xml.bytes, "<Upload>") : NULL;
    for (; status == MICS_OK && at != NULL; at = strstr(at + 1, "<Upload>")) {
        if (find_element(at, "UploadId", id, sizeof id) == NULL ||
            find_element(at, "Key", key, sizeof key) == NULL ||
            !s3_escape(id, false, escaped, sizeof escaped) || strlen(key) < prefix ||
            strncmp(key + prefix, "step-", 5) != 0) // another run's, whose prefix is longer
            continue;
        mics_text_format(object, sizeof object, "s3://%.*s/%s", (int)strcspn(url + 5, "/"), url + 5,
                         key);
        status = give_up(object, escaped);
    }
    mics_text_fini(&xml);
    return status;
}

// ---- uploads ----

// AWS takes 10000 parts of 5 MiB and more; some servers want all of one size.
enum { PART_BYTES = 8 << 20, PART_UNIT = 1 << 20, MAX_PARTS = 10000, SLOTS = 5, WHY_BYTES = 1024 };

// A part that is filled, or sent by a thread of its own. The first slot keeps the first part until the
// end, as a file's header is written last; the others take turns.
typedef struct slot {
    remote_s3_upload *upload;
    char *bytes;
    int32_t part;
    bool runs;
    pthread_t thread;
    mics_status status;
    char why[WHY_BYTES];
} slot;

struct remote_s3_upload {
    mics_memory *memory;
    char *url;
    int64_t bytes, part_bytes;
    char (*tags)[REMOTE_ETAG_BYTES]; // by part
    int32_t parts;
    slot slots[SLOTS];
    char id[S3_TEXT_BYTES]; // escaped
};

static size_t bytes_of(const remote_s3_upload *self, int32_t part)
{
    const int64_t left = self->bytes - part * self->part_bytes;
    return (size_t)(left < self->part_bytes ? left : self->part_bytes);
}

// Its error line is the writer's to say, in its own voice.
static void *send_part(void *ctx)
{
    slot *self = ctx;
    const remote_s3_upload *upload = self->upload;
    char query[S3_TEXT_BYTES + 64];
    mics_text_format(query, sizeof query, "partNumber=%d&uploadId=%s", (int)self->part + 1,
                     upload->id);
    s3_call call = {.url = upload->url,
                    .method = "PUT",
                    .query = query,
                    .body = self->bytes,
                    .body_bytes = bytes_of(upload, self->part)};
    mics_log_hold(true);
    self->status = run_call(&call);
    (void)mics_log_take(self->why, sizeof self->why);
    mics_log_release(false, -1);
    memcpy(upload->tags[self->part], call.response.etag, sizeof *upload->tags);
    return NULL;
}

static mics_status start(slot *self)
{
    self->runs = pthread_create(&self->thread, NULL, send_part, self) == 0;
    return self->runs ? MICS_OK
                      : mics_fail(MICS_ERR_MEMORY, "%s: no thread to send it", self->upload->url);
}

static mics_status settle(slot *self)
{
    if (!self->runs)
        return MICS_OK;
    pthread_join(self->thread, NULL);
    self->runs = false;
    return self->status == MICS_OK ? MICS_OK : mics_fail(self->status, "%s", self->why);
}

static mics_status begin(remote_s3_upload *self)
{
    char id[S3_TEXT_BYTES / 3];
    s3_call call = {.url = self->url, .method = "POST", .query = "uploads=", .body = ""};
    MICS_TRY(MICS_NEW(self->memory, self->parts, &self->tags));
    MICS_TRY(run_call(&call));
    return find_element(call.answer, "UploadId", id, sizeof id) != NULL &&
                   s3_escape(id, false, self->id, sizeof self->id)
               ? MICS_OK
               : mics_fail(MICS_ERR_IO, "%s: the server begins no upload in parts", self->url);
}

// What is as short as a part is put as a whole.
mics_status remote_s3_upload_begin(mics_memory *memory, const char *url, int64_t bytes,
                                   int64_t head, remote_s3_upload **upload_out)
{
    remote_s3_upload *self = NULL;
    void *block = NULL;
    int64_t part = (bytes + MAX_PARTS - 1) / MAX_PARTS;
    part = part > head ? part : head;
    part = part > PART_BYTES ? (part + PART_UNIT - 1) / PART_UNIT * PART_UNIT : PART_BYTES;
    MICS_TRY(MICS_NEW(memory, 1, &self));
    self->memory = memory;
    self->bytes = bytes;
    self->part_bytes = part;
    self->parts = (int32_t)((bytes + part - 1) / part);
    mics_status status = mics_strdup(memory, url, &self->url);
    for (int i = 0; status == MICS_OK && i < SLOTS && i < self->parts; i++) {
        status = mics_alloc(memory, MICS_MEM_HOST, (size_t)part, &block);
        self->slots[i] = (slot){.upload = self, .bytes = status == MICS_OK ? block : NULL};
    }
    if (status == MICS_OK && self->parts > 1)
        status = begin(self);
    if (status != MICS_OK)
        return remote_s3_upload_end(self, status);
    *upload_out = self;
    return MICS_OK;
}

mics_status remote_s3_upload_write(remote_s3_upload *upload, const void *data, size_t bytes,
                                   int64_t offset)
{
    for (const char *from = data; bytes > 0;) {
        const int32_t part = (int32_t)(offset / upload->part_bytes);
        const size_t at = (size_t)(offset % upload->part_bytes), whole = bytes_of(upload, part);
        const size_t now = bytes < whole - at ? bytes : whole - at;
        slot *to = &upload->slots[part > 0 ? 1 + (part - 1) % (SLOTS - 1) : 0];
        MICS_TRY(settle(to));
        to->part = part;
        memcpy(to->bytes + at, from, now);
        if (part > 0 && at + now == whole)
            MICS_TRY(start(to));
        from += now;
        offset += (int64_t)now;
        bytes -= now;
    }
    return MICS_OK;
}

// When an answer is lost on its way, the request is repeated; there is no upload then, but the object.
static mics_status complete(const remote_s3_upload *self)
{
    char query[S3_TEXT_BYTES + 16], byte;
    size_t got = 0;
    int64_t there = self->bytes;
    mics_text list = {.memory = self->memory};
    mics_text_printf(&list, "<CompleteMultipartUpload>");
    for (int32_t i = 0; i < self->parts; i++)
        mics_text_printf(&list, "<Part><PartNumber>%d</PartNumber><ETag>%s</ETag></Part>",
                         (int)i + 1, self->tags[i]);
    mics_text_printf(&list, "</CompleteMultipartUpload>");
    mics_text_format(query, sizeof query, "uploadId=%s", self->id);
    s3_call call = {.url = self->url,
                    .method = "POST",
                    .query = query,
                    .missing_is_no = true,
                    .body = list.bytes,
                    .body_bytes = list.used};
    mics_status status = mics_text_status(&list);
    if (status == MICS_OK)
        status = run_call(&call);
    if (status == MICS_OK && call.response.status == 404)
        status = remote_s3_read(self->url, 0, &byte, 1, &got, &there);
    mics_text_fini(&list);
    return status != MICS_OK || there == self->bytes
               ? status
               : mics_fail(MICS_ERR_IO, "%s: the server ended the upload early", self->url);
}

mics_status remote_s3_upload_end(remote_s3_upload *upload, mics_status status)
{
    remote_s3_upload *self = upload;
    if (status == MICS_OK && self->parts == 1)
        status = remote_s3_put(self->url, self->slots[0].bytes, (size_t)self->bytes);
    else if (status == MICS_OK)
        status = start(&self->slots[0]);
    for (int i = 0; i < SLOTS; i++) {
        const bool muted = mics_log_mute(true);
        mics_log_mute(muted || status != MICS_OK); // one line says it
        const mics_status sent = settle(&self->slots[i]);
        mics_log_mute(muted);
        status = status == MICS_OK ? sent : status;
    }
    if (status == MICS_OK && self->parts > 1)
        status = complete(self);
    const bool muted = mics_log_mute(true);
    if (status != MICS_OK && self->id[0] != '\0')
        (void)give_up(self->url, self->id);
    mics_log_mute(muted);
    for (int i = 0; i < SLOTS; i++)
        mics_free(self->memory, self->slots[i].bytes);
    MICS_FREE_ALL(self->memory, self->tags, self->url, self);
    return status;
}
