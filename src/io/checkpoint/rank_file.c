// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Rank files, written, and their data read. The format stands in rank_file.h; rank_header.c reads
// headers.
//
// Writing: the header's length is known before the data, so the data is streamed first and the
// header, which carries the checksums, is written last. An interrupted file therefore has no magic.
#include "io/checkpoint/rank_file.h"
#include "base/file.h"
#include "base/size.h"
#include "io/checkpoint/bytes.h"
#include "mics/log.h"
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdbool.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

enum {
    CHUNK_ELEMS = MICS_RANK_FILE_CHUNK / 4,
    WRITEBACK_BYTES = 32 << 20 // after so many bytes the kernel is told to begin writing them out
};

static const char magic[8] = MICS_RANK_FILE_MAGIC "2"; // without the NUL

int64_t mics_rank_file_chunks(int64_t elems)
{
    return (elems + CHUNK_ELEMS - 1) / CHUNK_ELEMS;
}

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
        shard->unit_elems < 1 || shard->unit_elems > MICS_RANK_FILE_MAX_ELEMS)
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

// Sizes of a file, from its shards alone.
typedef struct layout {
    int64_t states; // of all shards
    int64_t names_bytes;
    int64_t header_bytes;
    int64_t data_at;
    int64_t file_bytes;
} layout;

static int64_t names_bytes_of(const mics_optimizer_shard *shard)
{
    int64_t bytes = (int64_t)strlen(shard->unit) + 1;
    for (int32_t i = 0; i < shard->state_count; i++)
        bytes += (int64_t)strlen(shard->states[i].name) + 1;
    return bytes;
}

static mics_status plan_layout(const char *path, const mics_optimizer_shard *shards, int32_t count,
                               layout *layout_out)
{
    int64_t states = 0, names = 0, hashes = 0, data = 0;
    for (int32_t i = 0; i < count; i++) {
        const int64_t elems = shards[i].end - shards[i].begin;
        states += shards[i].state_count;
        names += names_bytes_of(&shards[i]);
        hashes += shards[i].state_count * mics_rank_file_chunks(elems);
        data += shards[i].state_count * mics_size_round_up(elems * 4, MICS_RANK_FILE_ALIGN);
        if (data > MICS_RANK_FILE_MAX_ELEMS || names > UINT32_MAX - 8)
            return mics_fail(MICS_ERR_INVALID, "%s: the shards are too large for one file", path);
    }
    names = mics_size_round_up(names, 8);
    int64_t header = MICS_RANK_FILE_FIXED + (int64_t)count * MICS_RANK_FILE_SHARD_BYTES +
                     states * MICS_RANK_FILE_STATE_BYTES + names +
                     hashes * MICS_RANK_FILE_HASH_BYTES;
    if (header > MICS_RANK_FILE_MAX_HEADER)
        return mics_fail(MICS_ERR_INVALID, "%s: the shards are too many for one file", path);
    int64_t data_at = mics_size_round_up(MICS_RANK_FILE_PREFIX + header, MICS_RANK_FILE_ALIGN);
    *layout_out = (layout){.states = states,
                           .names_bytes = names,
                           .header_bytes = header,
                           .data_at = data_at,
                           .file_bytes = data_at + data};
    return MICS_OK;
}

// Where the next records and names of a header go.
typedef struct encoder {
    unsigned char *shard, *state;
    unsigned char *names;
    uint32_t names_used;
    int64_t data_offset;
} encoder;

// Appends a name and describes it at `record`.
static void encode_name(encoder *out, const char *name, unsigned char *record)
{
    const uint32_t bytes = (uint32_t)strlen(name);
    put_u32(record, out->names_used);
    put_u32(record + 4, bytes);
    memcpy(out->names + out->names_used, name, (size_t)bytes + 1);
    out->names_used += bytes + 1;
}

static void encode_shard(encoder *out, const mics_optimizer_shard *shard)
{
    put_u64(out->shard, (uint64_t)shard->unit_elems);
    put_u64(out->shard + 8, (uint64_t)shard->begin);
    put_u64(out->shard + 16, (uint64_t)shard->end);
    encode_name(out, shard->unit, out->shard + 24);
    put_u32(out->shard + 32, (uint32_t)shard->state_count);
    out->shard += MICS_RANK_FILE_SHARD_BYTES;
    for (int32_t i = 0; i < shard->state_count; i++) {
        put_u64(out->state, (uint64_t)out->data_offset);
        encode_name(out, shard->states[i].name, out->state + 8);
        memcpy(out->state + 16, MICS_RANK_FILE_FP32, sizeof MICS_RANK_FILE_FP32);
        out->state += MICS_RANK_FILE_STATE_BYTES;
        out->data_offset +=
            mics_size_round_up((shard->end - shard->begin) * 4, MICS_RANK_FILE_ALIGN);
    }
}

// Fills prefix and header but for the checksums, which begin at the place returned.
static unsigned char *encode_header(unsigned char *file, const layout *plan, mics_rank_file_id id,
                                    const mics_optimizer_shard *shards, int32_t count)
{
    memcpy(file, magic, sizeof magic);
    put_u64(file + 8, (uint64_t)plan->header_bytes);
    unsigned char *header = file + MICS_RANK_FILE_PREFIX;
    put_u64(header, (uint64_t)id.step);
    put_u32(header + 8, (uint32_t)id.rank);
    put_u32(header + 12, (uint32_t)id.writers);
    put_u32(header + 16, MICS_RANK_FILE_CHUNK);
    put_u32(header + 20, (uint32_t)plan->states);
    put_u64(header + 24, (uint64_t)plan->file_bytes);
    put_u32(header + 32, (uint32_t)count);
    put_u32(header + 36, (uint32_t)plan->names_bytes);

    encoder out = {.shard = header + MICS_RANK_FILE_FIXED, .data_offset = plan->data_at};
    out.state = out.shard + (int64_t)count * MICS_RANK_FILE_SHARD_BYTES;
    out.names = out.state + plan->states * MICS_RANK_FILE_STATE_BYTES;
    for (int32_t i = 0; i < count; i++)
        encode_shard(&out, &shards[i]);
    return out.names + plan->names_bytes;
}

// A file being written: where the next data and checksum go.
typedef struct stream {
    int fd;
    const char *path;
    int64_t offset;
    int64_t started; // up to here the kernel was told to write
    int64_t file_bytes;
    const mics_work_listener *listener; // (optional)
    unsigned char *next_hash;
} stream;

// A hint, so that the disk works while we hash; fsync at the end is what counts.
static void begin_writeback(stream *out)
{
    if (out->offset - out->started < WRITEBACK_BYTES)
        return;
    (void)sync_file_range(out->fd, out->started, out->offset - out->started, SYNC_FILE_RANGE_WRITE);
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
        put_u64(out->next_hash, XXH3_64bits(data + at, bytes));
        out->next_hash += MICS_RANK_FILE_HASH_BYTES;
        MICS_TRY(mics_file_write_at(out->fd, out->path, data + at, bytes, out->offset));
        out->offset += (int64_t)bytes;
        begin_writeback(out);
    }
    out->offset = mics_size_round_up(out->offset, MICS_RANK_FILE_ALIGN);
    return MICS_OK;
}

static mics_status write_data(stream *out, const mics_optimizer_shard *shards, int32_t count)
{
    // Sets the length first: the gaps between the states then read as zeros.
    if (ftruncate(out->fd, out->file_bytes) != 0)
        return mics_fail(mics_status_of_errno(errno), "%s: cannot make it %lld bytes long: %s",
                         out->path, (long long)out->file_bytes, strerror(errno));
    for (int32_t i = 0; i < count; i++) {
        for (int32_t state = 0; state < shards[i].state_count; state++)
            MICS_TRY(
                write_state(out, shards[i].states[state].data, shards[i].end - shards[i].begin));
    }
    return MICS_OK;
}

// Writes data and header into an open file; *hash_out is the header's.
static mics_status write_planned(mics_memory *memory, stream *out, const layout *plan,
                                 mics_rank_file_id id, const mics_optimizer_shard *shards,
                                 int32_t count, uint64_t *hash_out)
{
    const size_t head_bytes = (size_t)(MICS_RANK_FILE_PREFIX + plan->header_bytes);
    unsigned char *head = NULL;
    MICS_TRY(MICS_NEW(memory, head_bytes, &head));
    out->offset = plan->data_at;
    out->file_bytes = plan->file_bytes;
    out->next_hash = encode_header(head, plan, id, shards, count);
    mics_status status = write_data(out, shards, count);
    *hash_out = XXH3_64bits(head + MICS_RANK_FILE_PREFIX, (size_t)plan->header_bytes);
    put_u64(head + 16, *hash_out);
    if (status == MICS_OK)
        status = mics_file_write_at(out->fd, out->path, head, head_bytes, 0);
    mics_free(memory, head);
    return status;
}

mics_status mics_rank_file_write(mics_memory *memory, const char *path, mics_rank_file_id id,
                                 const mics_optimizer_shard *shards, int32_t count,
                                 const mics_work_listener *listener)
{
    layout plan = {0};
    stream out = {.fd = -1, .path = path, .listener = listener};
    uint64_t hash = 0;
    MICS_TRY(plan_layout(path, shards, count, &plan));
    MICS_TRY(mics_file_create_new(path, plan.file_bytes, &out.fd));
    mics_status status = write_planned(memory, &out, &plan, id, shards, count, &hash);
    status = mics_file_close_written(out.fd, path, status);
    if (status != MICS_OK)
        unlink(path);
    return status;
}

mics_status mics_rank_file_write_over(mics_memory *memory, int fd, const char *path,
                                      mics_rank_file_id id, const mics_optimizer_shard *shards,
                                      int32_t count, int64_t *bytes_out, uint64_t *hash_out)
{
    static const unsigned char nothing[MICS_RANK_FILE_PREFIX];
    layout plan = {0};
    stream out = {.fd = fd, .path = path};
    MICS_TRY(plan_layout(path, shards, count, &plan));
    MICS_TRY(mics_file_write_at(fd, path, nothing, sizeof nothing, 0)); // what it held is gone
    MICS_TRY(mics_file_reserve(fd, path, plan.file_bytes));
    *bytes_out = plan.file_bytes;
    return write_planned(memory, &out, &plan, id, shards, count, hash_out);
}

// ---- numbers that are not finite ----

// An exponent of ones says so. Blocks are counted first, which compilers make vectors of.
int64_t mics_rank_file_find_not_finite(const float *data, int64_t elems)
{
    const uint32_t exponent = 0x7f800000;
    for (int64_t begin = 0; begin < elems; begin += 4096) {
        const int64_t end = elems - begin < 4096 ? elems : begin + 4096;
        int64_t found = 0;
        for (int64_t i = begin; i < end; i++) {
            uint32_t bits;
            memcpy(&bits, &data[i], sizeof bits);
            found += (bits & exponent) == exponent;
        }
        for (int64_t i = begin; found > 0 && i < end; i++) {
            if (!isfinite(data[i]))
                return i;
        }
    }
    return -1;
}

// ---- reading data ----

// A read in progress; `scratch` holds a chunk of which only a part is wanted.
typedef struct reading {
    mics_memory *memory;
    int fd;
    const char *path;
    const mics_rank_shard *shard;
    const mics_rank_state *state;
    void *scratch;
} reading;

// Reads chunk number `chunk` of `elems` elements to `to` and checks it.
static mics_status read_chunk(const reading *in, int64_t chunk, int64_t elems, void *to)
{
    int64_t offset = in->state->data_offset + chunk * MICS_RANK_FILE_CHUNK;
    size_t bytes = (size_t)elems * 4;
    MICS_TRY(mics_file_read_at(in->fd, in->path, to, bytes, offset));
    if (XXH3_64bits(to, bytes) != get_u64(in->state->hashes + chunk * MICS_RANK_FILE_HASH_BYTES))
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
    int64_t size = 0;
    reading in = {.memory = memory, .fd = -1, .path = path, .shard = shard, .state = state};
    MICS_TRY(mics_file_open_read(path, &in.fd, &size));
    mics_status status = read_part(&in, begin - shard->begin, end - shard->begin, data_out);
    mics_free(memory, in.scratch);
    close(in.fd);
    return status;
}
