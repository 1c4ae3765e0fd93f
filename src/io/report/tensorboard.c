// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// TensorBoard's event files: records of TFRecord, each an Event message of protocol buffers.
//
//   record: u64 bytes, u32 masked CRC-32C of these 8 bytes, data, u32 masked CRC-32C of data
//   Event:  1 wall_time (double), 2 step (int64), 3 file_version (string), 5 summary, 7 session_log
//   summary: 1 value { 1 tag (string), 2 simple_value (float) }, one for each figure
//
// A record goes to the system whole or, on a failure, is taken back: readers that follow the file see
// no damaged one.
//
// Source: tensorflow/core/util/event.proto, framework/summary.proto, lib/io/record_writer.cc.
#include "base/file.h"
#include "io/report/figures.h"
#include "mics/log.h"
#include "mics/report.h"
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum {
    RECORD_BYTES = 1024, // of a step: 16 figures of some 45 bytes
    HEAD_BYTES = 12,
    TAIL_BYTES = 4,
    HOST_BYTES = 65,
    NAME_BYTES = 160,
};

// Field number and wire type of protocol buffers.
enum { VARINT = 0, FIXED64 = 1, LENGTH = 2, FIXED32 = 5 };
enum {
    EVENT_WALL_TIME = 1,
    EVENT_STEP = 2,
    EVENT_VERSION = 3,
    EVENT_SUMMARY = 5,
    EVENT_SESSION = 7
};
enum { SESSION_STATUS = 1, SESSION_START = 1 };

struct mics_tensorboard {
    mics_memory *memory;
    char *path;
    int fd;
    int64_t end; // of the newest record that is whole
};

// A record in the making: `used` bytes of data behind room for its head.
typedef struct record {
    unsigned char bytes[HEAD_BYTES + RECORD_BYTES + TAIL_BYTES];
    size_t used;
    bool full; // something did not fit
} record;

// ---- protocol buffers ----

static void put(record *r, const void *data, size_t bytes)
{
    if (bytes > RECORD_BYTES - r->used) {
        r->full = true;
        return;
    }
    memcpy(r->bytes + HEAD_BYTES + r->used, data, bytes);
    r->used += bytes;
}

static void put_varint(record *r, uint64_t value)
{
    unsigned char bytes[10];
    size_t count = 0;
    for (; value >= 0x80; value >>= 7)
        bytes[count++] = (unsigned char)(value | 0x80);
    bytes[count++] = (unsigned char)value;
    put(r, bytes, count);
}

static void put_key(record *r, unsigned field, unsigned wire_type)
{
    put_varint(r, (uint64_t)field << 3 | wire_type);
}

static void put_int(record *r, unsigned field, int64_t value)
{
    put_key(r, field, VARINT);
    put_varint(r, (uint64_t)value);
}

static void put_bytes(record *r, unsigned field, const void *data, size_t bytes)
{
    put_key(r, field, LENGTH);
    put_varint(r, bytes);
    put(r, data, bytes);
}

static void put_message(record *r, unsigned field, const record *message)
{
    put_bytes(r, field, message->bytes + HEAD_BYTES, message->used);
    r->full = r->full || message->full;
}

static void begin_event(record *r, int64_t step)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_REALTIME, &now);
    const double wall = (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
    *r = (record){.used = 0};
    put_key(r, EVENT_WALL_TIME, FIXED64);
    put(r, &wall, sizeof wall);
    put_int(r, EVENT_STEP, step);
}

// A figure of a summary. What is not a number has no place in a chart.
static void put_figure(record *summary, const char *tag, double value)
{
    record figure = {.used = 0};
    const float narrow = (float)value;
    if (isnan(value))
        return;
    put_bytes(&figure, 1, tag, strlen(tag));
    put_key(&figure, 2, FIXED32);
    put(&figure, &narrow, sizeof narrow);
    put_message(summary, 1, &figure);
}

// ---- records ----

// CRC-32C (Castagnoli), bit by bit: a record has less than a kilobyte.
static uint32_t crc32c(const unsigned char *data, size_t bytes)
{
    uint32_t crc = UINT32_MAX;
    for (size_t i = 0; i < bytes; i++) {
        crc ^= data[i];
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (0x82f63b78U & (0U - (crc & 1)));
    }
    return ~crc;
}

static void put_masked_crc(unsigned char *at, const unsigned char *data, size_t bytes)
{
    const uint32_t crc = crc32c(data, bytes);
    const uint32_t masked = (crc >> 15 | crc << 17) + 0xa282ead8U;
    memcpy(at, &masked, sizeof masked);
}

static mics_status write_record(mics_tensorboard *file, record *r)
{
    const uint64_t bytes = r->used;
    unsigned char *data = r->bytes + HEAD_BYTES;
    if (r->full)
        return mics_fail(MICS_ERR_INVALID, "%s: a record has more than %d bytes", file->path,
                         RECORD_BYTES);
    memcpy(r->bytes, &bytes, sizeof bytes);
    put_masked_crc(r->bytes + sizeof bytes, r->bytes, sizeof bytes);
    put_masked_crc(data + r->used, data, r->used);
    const size_t whole = HEAD_BYTES + r->used + TAIL_BYTES;
    const mics_status status = mics_file_write_at(file->fd, file->path, r->bytes, whole, file->end);
    if (status == MICS_OK)
        file->end += (int64_t)whole;
    else if (ftruncate(file->fd, file->end) != 0)
        mics_log(MICS_LOG_WARNING, "%s: holds part of a record: %s", file->path, strerror(errno));
    return status;
}

// ---- opening ----

static mics_status write_begin(mics_tensorboard *file, int64_t resume_step)
{
    static const char version[] = "brain.Event:2";
    record event, session = {.used = 0};
    begin_event(&event, 0);
    put_bytes(&event, EVENT_VERSION, version, sizeof version - 1);
    MICS_TRY(write_record(file, &event));
    // What older files of the folder have from this step on is no longer shown.
    begin_event(&event, resume_step + 1);
    put_int(&session, SESSION_STATUS, SESSION_START);
    put_message(&event, EVENT_SESSION, &session);
    return write_record(file, &event);
}

// TensorBoard reads the files of a folder in the order of their names, which begin with the second:
// files of the same second are told apart by what stands behind.
static mics_status create(mics_tensorboard *file, const char *folder)
{
    char host[HOST_BYTES] = "", name[NAME_BYTES];
    if (gethostname(host, sizeof host - 1) != 0 || host[0] == '\0')
        snprintf(host, sizeof host, "localhost");
    for (int number = 0; file->fd < 0; number++) {
        snprintf(name, sizeof name, "events.out.tfevents.%010" PRId64 ".%s.%ld.%d",
                 (int64_t)time(NULL), host, (long)getpid(), number);
        mics_free(file->memory, file->path);
        file->path = NULL;
        MICS_TRY(mics_file_join(file->memory, folder, name, &file->path));
        file->fd = open(file->path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0666);
        if (file->fd < 0 && errno != EEXIST)
            return mics_fail(mics_status_of_errno(errno), "%s: cannot create: %s", file->path,
                             strerror(errno));
    }
    return MICS_OK;
}

mics_status mics_tensorboard_open(mics_memory *memory, const char *folder, int64_t resume_step,
                                  mics_tensorboard **file_out)
{
    mics_tensorboard *file = NULL;
    MICS_TRY(MICS_NEW(memory, 1, &file));
    mics_status status = MICS_OK;
    file->memory = memory;
    file->fd = -1;
    MICS_TRY_OUT(mics_file_make_dirs(memory, folder, NULL));
    MICS_TRY_OUT(create(file, folder));
    status = write_begin(file, resume_step);
    if (status != MICS_OK)
        (void)unlink(file->path);
    MICS_TRY_OUT(status);
    *file_out = file;
    file = NULL;
out:
    if (file != NULL)
        (void)mics_tensorboard_close(file);
    return status;
}

mics_status mics_tensorboard_write(mics_tensorboard *file, const mics_metrics *metrics)
{
    metrics_figure figures[METRICS_FIGURES];
    record event, summary = {.used = 0};
    metrics_figures(metrics, figures);
    for (int32_t i = 0; i < METRICS_FIGURES; i++)
        put_figure(&summary, figures[i].tag, metrics_figure_value(&figures[i]));
    begin_event(&event, metrics->step);
    put_message(&event, EVENT_SUMMARY, &summary);
    return write_record(file, &event);
}

mics_status mics_tensorboard_write_validation(mics_tensorboard *file, int64_t step, double loss)
{
    record event, summary = {.used = 0};
    put_figure(&summary, "validation/loss", loss);
    begin_event(&event, step);
    put_message(&event, EVENT_SUMMARY, &summary);
    return write_record(file, &event);
}

mics_status mics_tensorboard_close(mics_tensorboard *file)
{
    if (file == NULL)
        return MICS_OK;
    mics_status status = MICS_OK;
    if (file->fd >= 0)
        status = mics_file_close_written(file->fd, file->path, MICS_OK);
    mics_free(file->memory, file->path);
    mics_free(file->memory, file);
    return status;
}
