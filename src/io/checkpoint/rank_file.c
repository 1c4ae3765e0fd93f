// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Rank files, written, and their data read. The format stands in rank_file.h; rank_header.c reads
// headers.
//
// Writing: the header's length is known before the data, so the data is streamed first and the
// header, which carries the checksums, is written last. An interrupted file therefore begins with
// zeros, a header of no bytes.
#include "io/checkpoint/rank_file.h"
#include "base/file.h"
#include "base/text.h"
#include "io/checkpoint/store.h"
#include "mics/log.h"
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdbool.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

enum {
    CHUNK_ELEMS = MICS_RANK_FILE_CHUNK / 4,
    WRITEBACK_BYTES = 32 << 20 // after so many bytes the kernel is told to begin writing them out
};

// ---- checking ----

static bool is_name(const char *name)
{
    return name != NULL && name[0] != '\0' && strlen(name) <= MICS_RANK_FILE_MAX_NAME;
}

static mics_status check_state(const mics_optimizer_shard *shard, int32_t index)
{
    const mics_shard_state *state = &shard->states[index];
    if (!is_name(state->name))
        return mics_fail(MICS_ERR_INVALID,
                         "checkpoint: state %d of unit %s has no name of 1 to %d bytes", (int)index,
                         shard->unit, (int)MICS_RANK_FILE_MAX_NAME);
    if (strchr(state->name, '.') != NULL)
        return mics_fail(MICS_ERR_INVALID, "checkpoint: state %s of unit %s has a dot in its name",
                         state->name, shard->unit);
    for (int32_t i = 0; i < index; i++) {
        if (strcmp(shard->states[i].name, state->name) == 0)
            return mics_fail(MICS_ERR_INVALID, "checkpoint: unit %s has two states called %s",
                             shard->unit, state->name);
    }
    if (state->dtype != MICS_DTYPE_FP32)
        return mics_fail(MICS_ERR_UNSUPPORTED,
                         "checkpoint: state %s of unit %s is %s; checkpoints hold fp32",
                         state->name, shard->unit, mics_dtype_text(state->dtype));
    if (state->data == NULL && shard->begin < shard->end)
        return mics_fail(MICS_ERR_INVALID, "checkpoint: state %s of unit %s has no data",
                         state->name, shard->unit);
    return MICS_OK;
}

static mics_status check_shard(const mics_optimizer_shard *shard, int32_t index)
{
    if (!is_name(shard->unit))
        return mics_fail(MICS_ERR_INVALID, "checkpoint: shard %d has no unit name of 1 to %d bytes",
                         (int)index, (int)MICS_RANK_FILE_MAX_NAME);
    if (shard->begin < 0 || shard->begin > shard->end || shard->end > shard->unit_elems ||
        shard->unit_elems < 1 || shard->unit_elems > MICS_RANK_FILE_MAX_ELEMS ||
        shard->of_island < 0)
        return mics_fail(MICS_ERR_INVALID,
                         "checkpoint: shard %d holds elements %lld to %lld of unit %s, which has "
                         "%lld",
                         (int)index, (long long)shard->begin, (long long)shard->end, shard->unit,
                         (long long)shard->unit_elems);
    if (shard->state_count < 1 || shard->state_count > MICS_MAX_SHARD_STATES)
        return mics_fail(
            MICS_ERR_INVALID, "checkpoint: shard %d of unit %s has %d states; 1 to %d can be saved",
            (int)index, shard->unit, (int)shard->state_count, (int)MICS_MAX_SHARD_STATES);
    for (int32_t i = 0; i < shard->state_count; i++)
        MICS_TRY(check_state(shard, i));
    return MICS_OK;
}

mics_status mics_rank_file_check(const mics_optimizer_shard *shards, int32_t count)
{
    if (count < 0 || (count > 0 && shards == NULL))
        return mics_fail(MICS_ERR_INVALID, "checkpoint: %d shards", (int)count);
    for (int32_t i = 0; i < count; i++)
        MICS_TRY(check_shard(&shards[i], i));
    return MICS_OK;
}

// ---- writing ----

void mics_rank_file_put_unit(mics_text *text, const char *unit, int32_t of_island)
{
    mics_text_printf(text, "%s", unit);
    if (of_island > 0)
        mics_text_printf(text, "@%d", (int)of_island - 1);
}

// A file to be written.
typedef struct layout {
    mics_text head; // the header, from the file's start; padded, so that data is aligned
    mics_text name; // scratch
    uint64_t *hashes;
    int64_t file_bytes;
    uint64_t hash; // the header's
} layout;

enum { DATA_ALIGN = 64 };

static const char *name_tensor(layout *plan, const mics_optimizer_shard *shard, int32_t state)
{
    char range[MICS_RANK_FILE_RANGE_BYTES];
    mics_rank_file_range_text(shard->begin, shard->end, shard->unit_elems, range);
    plan->name.used = 0;
    mics_rank_file_put_unit(&plan->name, shard->unit, shard->of_island);
    mics_text_printf(&plan->name, ".%s%s", shard->states[state].name, range);
    return mics_text_status(&plan->name) == MICS_OK ? plan->name.bytes : "";
}

// Appends a tensor's checksums to the metadata. Returns: the next tensor's.
static const uint64_t *put_hashes(mics_text *head, const char *name, const uint64_t *hashes,
                                  int64_t count)
{
    mics_text_printf(head, ",");
    mics_text_quoted(head, name);
    mics_text_printf(head, ":\"");
    for (int64_t i = 0; i < count; i++)
        mics_text_printf(head, "%016" PRIx64, hashes[i]);
    mics_text_printf(head, "\"");
    return hashes + count;
}

// The header with the checksums of now. Its length is the same whatever they are.
static mics_status compose_header(layout *plan, const char *path, mics_rank_file_id id,
                                  const mics_optimizer_shard *shards, int32_t count)
{
    mics_text *head = &plan->head;
    const uint64_t *hashes = plan->hashes;
    int64_t offset = 0;
    head->used = 0;
    mics_text_printf(head,
                     "%*s" MICS_RANK_FILE_BEGIN "%0*d\",\"step\":\"%" PRId64
                     "\",\"rank\":\"%d\",\"writers\":\"%d\"",
                     MICS_SAFETENSORS_PREFIX, "", MICS_RANK_FILE_HASH_DIGITS, 0, id.step,
                     (int)id.rank, (int)id.writers);
    for (int32_t i = 0; i < count; i++) {
        const int64_t chunks = mics_rank_file_chunks(shards[i].end - shards[i].begin);
        for (int32_t s = 0; s < shards[i].state_count; s++)
            hashes = put_hashes(head, name_tensor(plan, &shards[i], s), hashes, chunks);
    }
    mics_text_printf(head, "}");
    for (int32_t i = 0; i < count; i++) {
        mics_safetensors_entry entry = {.dims = 1, .shape = {shards[i].end - shards[i].begin}};
        for (int32_t s = 0; s < shards[i].state_count; s++) {
            entry.name = name_tensor(plan, &shards[i], s);
            mics_safetensors_write_tensor(head, &entry, &offset);
        }
    }
    MICS_TRY(mics_text_status(&plan->name));
    MICS_TRY(mics_safetensors_end_header(head, path, DATA_ALIGN));
    plan->hash =
        XXH3_64bits(head->bytes + MICS_RANK_FILE_HASHED_AT, head->used - MICS_RANK_FILE_HASHED_AT);
    mics_rank_file_put_hash(head->bytes + MICS_RANK_FILE_HASH_AT, plan->hash);
    plan->file_bytes = (int64_t)head->used + offset;
    return MICS_OK;
}

static mics_status count_hashes(const char *path, const mics_optimizer_shard *shards, int32_t count,
                                int64_t *hashes_out)
{
    int64_t data = 0;
    *hashes_out = 0;
    for (int32_t i = 0; i < count; i++) {
        const int64_t elems = shards[i].end - shards[i].begin;
        *hashes_out += shards[i].state_count * mics_rank_file_chunks(elems);
        data += shards[i].state_count * elems * 4;
        if (data > MICS_RANK_FILE_MAX_ELEMS)
            return mics_fail(MICS_ERR_INVALID, "%s: the shards are too large for one file", path);
    }
    return MICS_OK;
}

static mics_status plan_layout(mics_memory *memory, const char *path, mics_rank_file_id id,
                               const mics_optimizer_shard *shards, int32_t count, layout *plan_out)
{
    int64_t hashes = 0;
    *plan_out = (layout){.head.memory = memory, .name.memory = memory};
    MICS_TRY(count_hashes(path, shards, count, &hashes));
    MICS_TRY(MICS_NEW(memory, hashes, &plan_out->hashes));
    return compose_header(plan_out, path, id, shards, count);
}

static void layout_fini(mics_memory *memory, layout *plan)
{
    mics_text_fini(&plan->head);
    mics_text_fini(&plan->name);
    mics_free(memory, plan->hashes);
}

// A file being written: where the next data and checksum go.
typedef struct stream {
    int fd;
    const char *path;
    int64_t offset;
    int64_t started; // up to here the kernel was told to write
    int64_t file_bytes;
    const mics_work_listener *listener; // (optional)
    uint64_t *next_hash;
    remote_s3_upload *upload; // NULL: a file
} stream;

static mics_status write_at(const stream *out, const void *data, size_t bytes, int64_t offset)
{
    return out->upload != NULL ? remote_s3_upload_write(out->upload, data, bytes, offset)
                               : mics_file_write_at(out->fd, out->path, data, bytes, offset);
}

// A hint, so that the disk works while we hash; fsync at the end is what counts.
static void begin_writeback(stream *out)
{
    if (out->offset - out->started < WRITEBACK_BYTES)
        return;
    if (out->upload == NULL)
        (void)sync_file_range(out->fd, out->started, out->offset - out->started,
                              SYNC_FILE_RANGE_WRITE);
    out->started = out->offset;
    if (out->listener != NULL)
        mics_work_tell(out->listener, "saving", out->offset, out->file_bytes);
}

// Hashes and writes one state of a shard. A chunk is hashed just before it is written, while it is
// on its way through the cache anyway.
static mics_status write_state(stream *out, const float *data, int64_t elems)
{
    for (int64_t at = 0; at < elems; at += CHUNK_ELEMS) {
        int64_t left = elems - at;
        size_t bytes = (size_t)(left < CHUNK_ELEMS ? left : CHUNK_ELEMS) * 4;
        *out->next_hash++ = XXH3_64bits(data + at, bytes);
        MICS_TRY(write_at(out, data + at, bytes, out->offset));
        out->offset += (int64_t)bytes;
        begin_writeback(out);
    }
    return MICS_OK;
}

static mics_status write_data(stream *out, const mics_optimizer_shard *shards, int32_t count)
{
    if (out->upload == NULL)
        MICS_TRY(mics_file_resize(out->fd, out->path, out->file_bytes));
    for (int32_t i = 0; i < count; i++) {
        for (int32_t state = 0; state < shards[i].state_count; state++)
            MICS_TRY(
                write_state(out, shards[i].states[state].data, shards[i].end - shards[i].begin));
    }
    return MICS_OK;
}

// Writes data and header into an open file.
static mics_status write_planned(stream *out, layout *plan, mics_rank_file_id id,
                                 const mics_optimizer_shard *shards, int32_t count)
{
    out->offset = (int64_t)plan->head.used;
    out->file_bytes = plan->file_bytes;
    out->next_hash = plan->hashes;
    MICS_TRY(write_data(out, shards, count));
    MICS_TRY(compose_header(plan, out->path, id, shards, count));
    return write_at(out, plan->head.bytes, plan->head.used, 0);
}

mics_status mics_rank_file_write(mics_memory *memory, const char *path, mics_rank_file_id id,
                                 const mics_optimizer_shard *shards, int32_t count,
                                 const mics_work_listener *listener)
{
    layout plan = {0};
    stream out = {.fd = -1, .path = path, .listener = listener};
    mics_status status = MICS_OK;
    MICS_TRY_OUT(plan_layout(memory, path, id, shards, count, &plan));
    if (mics_remote_is_bucket(path)) {
        MICS_TRY_OUT(remote_s3_upload_begin(memory, path, plan.file_bytes, (int64_t)plan.head.used,
                                            &out.upload));
        status = remote_s3_upload_end(out.upload, write_planned(&out, &plan, id, shards, count));
        goto out;
    }
    MICS_TRY_OUT(mics_file_create_new(path, plan.file_bytes, &out.fd));
    status = write_planned(&out, &plan, id, shards, count);
    status = mics_file_close_written(out.fd, path, status);
    if (status != MICS_OK)
        unlink(path);
out:
    layout_fini(memory, &plan);
    return status;
}

mics_status mics_rank_file_write_over(mics_memory *memory, int fd, const char *path,
                                      mics_rank_file_id id, const mics_optimizer_shard *shards,
                                      int32_t count, int64_t *bytes_out, uint64_t *hash_out)
{
    static const unsigned char nothing[MICS_SAFETENSORS_PREFIX];
    layout plan = {0};
    stream out = {.fd = fd, .path = path};
    mics_status status = MICS_OK;
    MICS_TRY_OUT(plan_layout(memory, path, id, shards, count, &plan));
    MICS_TRY_OUT(mics_file_write_at(fd, path, nothing, sizeof nothing, 0)); // what it held is gone
    MICS_TRY_OUT(mics_file_reserve(fd, path, plan.file_bytes));
    MICS_TRY_OUT(write_planned(&out, &plan, id, shards, count));
    *bytes_out = plan.file_bytes;
    *hash_out = plan.hash;
out:
    layout_fini(memory, &plan);
    return status;
}

// ---- reading data ----

// A read in progress; `scratch` holds a chunk of which only a part is wanted.
typedef struct reading {
    mics_memory *memory;
    mics_store_file file;
    const char *path;
    const mics_rank_shard *shard;
    const mics_rank_state *state;
    void *scratch;
} reading;

// Reads chunk number `chunk` of `elems` elements to `to` and checks it.
static mics_status read_chunk(reading *in, int64_t chunk, int64_t elems, void *to)
{
    int64_t offset = in->state->data_offset + chunk * MICS_RANK_FILE_CHUNK;
    size_t bytes = (size_t)elems * 4;
    MICS_TRY(mics_store_read(&in->file, to, bytes, offset));
    if (XXH3_64bits(to, bytes) != in->state->hashes[chunk])
        return mics_fail(MICS_ERR_FORMAT,
                         "%s: offset %lld: %zu bytes of unit %s differ from their checksum; the "
                         "file is damaged",
                         in->path, (long long)offset, bytes, in->shard->unit);
    return MICS_OK;
}

// Reads the part [first, last) of the shard, counted from its begin.
static mics_status read_part(reading *in, int64_t first, int64_t last, float *data_out)
{
    int64_t elems = in->shard->end - in->shard->begin;
    while (first < last) {
        int64_t chunk = first / CHUNK_ELEMS;
        int64_t chunk_begin = chunk * CHUNK_ELEMS;
        int64_t chunk_elems = elems - chunk_begin < CHUNK_ELEMS ? elems - chunk_begin : CHUNK_ELEMS;
        int64_t stop = chunk_begin + chunk_elems < last ? chunk_begin + chunk_elems : last;
        if (first == chunk_begin && stop == chunk_begin + chunk_elems) {
            MICS_TRY(read_chunk(in, chunk, chunk_elems, data_out));
        } else {
            if (in->scratch == NULL)
                MICS_TRY(mics_alloc(in->memory, MICS_MEM_HOST, MICS_RANK_FILE_CHUNK, &in->scratch));
            MICS_TRY(read_chunk(in, chunk, chunk_elems, in->scratch));
            memcpy(data_out, (const float *)in->scratch + (first - chunk_begin),
                   (size_t)(stop - first) * 4);
        }
        data_out += stop - first;
        first = stop;
    }
    return MICS_OK;
}

mics_status mics_rank_file_read(mics_memory *memory, const char *path, const mics_rank_shard *shard,
                                const mics_rank_state *state, int64_t begin, int64_t end,
                                float *data_out)
{
    if (begin == end)
        return MICS_OK;
    const int64_t first = (begin - shard->begin) / CHUNK_ELEMS * CHUNK_ELEMS;
    const int64_t ends = (end - shard->begin + CHUNK_ELEMS - 1) / CHUNK_ELEMS * CHUNK_ELEMS;
    const int64_t elems = shard->end - shard->begin, last = ends < elems ? ends : elems;
    reading in = {.memory = memory, .path = path, .shard = shard, .state = state};
    MICS_TRY(mics_store_open(memory, path, state->data_offset + first * 4,
                             state->data_offset + last * 4, &in.file));
    mics_status status = read_part(&in, begin - shard->begin, end - shard->begin, data_out);
    mics_free(memory, in.scratch);
    mics_store_close(&in.file);
    return status;
}
