// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Objects that are written in parts.
#include "base/free.h"
#include "io/remote/s3.h"
#include "io/remote/s3_call.h"
#include "io/remote/s3_sign.h"
#include "mics/log.h"
#include <pthread.h>
#include <string.h>

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
    mics_log_hold(false); // a silence is told at once
    self->status = s3_call_run(&call);
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
    MICS_TRY(s3_call_run(&call));
    return s3_find_element(call.answer, "UploadId", id, sizeof id) != NULL &&
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
        status = s3_call_run(&call);
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
    const bool before = mics_log_demote(true);
    if (status != MICS_OK && self->id[0] != '\0')
        (void)s3_give_up(self->url, self->id,
                         "what was uploaded of it is left there until the next start");
    mics_log_demote(before);
    for (int i = 0; i < SLOTS; i++)
        mics_free(self->memory, self->slots[i].bytes);
    MICS_FREE_ALL(self->memory, self->tags, self->url, self);
    return status;
}
