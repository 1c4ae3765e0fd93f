// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Rank files: the format stands in rank_file.h.
//
// Writing: the header's length is known before the data, so the data is streamed first and the
// header, which carries the checksums, is written last. An interrupted file therefore has no magic.
#include "io/checkpoint/rank_file.h"
#include "base/file.h"
#include "io/checkpoint/bytes.h"
#include "mics/log.h"
#include "mics/size.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

enum {
    FIXED_BYTES = 40,  // of the header before its pieces
    RECORD_BYTES = 56, // of a piece
    HASH_BYTES = 8,
    DATA_ALIGN = 64,
    CHUNK_ELEMS = MICS_RANK_FILE_CHUNK / 4,
    WRITEBACK_BYTES = 32 << 20 // after so many bytes the kernel is told to begin writing them out
};

static const char MAGIC[8] = {'M', 'I', 'C', 'S', 'C', 'K', 'P', '1'};

// The header of 1 TB of data has 8 MB. A file that claims more than this asks for memory, not to be
// read.
static const int64_t HEADER_MAX = (int64_t)1 << 30;

// A unit of 2^55 elements is beyond any machine, and its bytes and offsets still fit in 63 bits.
static const int64_t ELEMS_MAX = (int64_t)1 << 55;

int64_t mics_rank_file_chunks(int64_t elems)
{
    return (elems + CHUNK_ELEMS - 1) / CHUNK_ELEMS;
}

static mics_status check_piece(const mics_piece *piece, int32_t index)
{
    if (piece->unit == NULL || piece->unit[0] == '\0' ||
        strlen(piece->unit) > MICS_RANK_FILE_NAME_MAX)
        return mics_fail(MICS_ERR_INVALID, "checkpoint: piece %d has no unit name of 1 to %d bytes",
                         (int)index, (int)MICS_RANK_FILE_NAME_MAX);
    if (piece->begin < 0 || piece->begin > piece->end || piece->end > piece->unit_elems ||
        piece->unit_elems < 1 || piece->unit_elems > ELEMS_MAX)
        return mics_fail(MICS_ERR_INVALID,
                         "checkpoint: piece %d holds elements %lld to %lld of unit %s, which has "
                         "%lld",
                         (int)index, (long long)piece->begin, (long long)piece->end, piece->unit,
                         (long long)piece->unit_elems);
    for (int state = 0; state < MICS_STATES; state++) {
        if (piece->data[state] == NULL && piece->begin < piece->end)
            return mics_fail(MICS_ERR_INVALID, "checkpoint: piece %d of unit %s lacks state %d",
                             (int)index, piece->unit, state);
    }
    return MICS_OK;
}

mics_status mics_rank_file_check(const mics_piece *pieces, int32_t count)
{
    if (count < 0 || (count > 0 && pieces == NULL))
        return mics_fail(MICS_ERR_INVALID, "checkpoint: %d pieces", (int)count);
    for (int32_t i = 0; i < count; i++)
        MICS_TRY(check_piece(&pieces[i], i));
    return MICS_OK;
}

// ---- writing ----

// Sizes of a file, from its pieces alone.
typedef struct layout {
    int64_t names_bytes;
    int64_t header_bytes;
    int64_t data_at;
    int64_t file_bytes;
} layout;

static mics_status plan_layout(const char *path, const mics_piece *pieces, int32_t count,
                               layout *layout_out)
{
    int64_t names = 0;
    int64_t hashes = 0;
    int64_t data = 0;
    for (int32_t i = 0; i < count; i++) {
        int64_t elems = pieces[i].end - pieces[i].begin;
        names += (int64_t)strlen(pieces[i].unit) + 1;
        hashes += MICS_STATES * mics_rank_file_chunks(elems);
        data += MICS_STATES * mics_size_round_up(elems * 4, DATA_ALIGN);
        if (data > ELEMS_MAX || names > UINT32_MAX - 8)
            return mics_fail(MICS_ERR_INVALID, "%s: the pieces are too large for one file", path);
    }
    names = mics_size_round_up(names, 8);
    int64_t header = FIXED_BYTES + (int64_t)count * RECORD_BYTES + names + hashes * HASH_BYTES;
    if (header > HEADER_MAX)
        return mics_fail(MICS_ERR_INVALID, "%s: the pieces are too many for one file", path);
    int64_t data_at = mics_size_round_up(MICS_RANK_FILE_PREFIX + header, DATA_ALIGN);
    *layout_out = (layout){.names_bytes = names,
                           .header_bytes = header,
                           .data_at = data_at,
                           .file_bytes = data_at + data};
    return MICS_OK;
}

// Fills prefix and header but for the checksums.
static void encode_header(unsigned char *file, const layout *plan, mics_rank_file_id id,
                          const mics_piece *pieces, int32_t count)
{
    memcpy(file, MAGIC, sizeof MAGIC);
    put_u64(file + 8, (uint64_t)plan->header_bytes);
    unsigned char *header = file + MICS_RANK_FILE_PREFIX;
    put_u64(header, (uint64_t)id.step);
    put_u32(header + 8, (uint32_t)id.rank);
    put_u32(header + 12, (uint32_t)id.writers);
    put_u32(header + 16, MICS_RANK_FILE_CHUNK);
    put_u32(header + 20, MICS_STATES);
    put_u64(header + 24, (uint64_t)plan->file_bytes);
    put_u32(header + 32, (uint32_t)count);
    put_u32(header + 36, (uint32_t)plan->names_bytes);

    unsigned char *record = header + FIXED_BYTES;
    unsigned char *names = record + (int64_t)count * RECORD_BYTES;
    uint32_t name_at = 0;
    int64_t offset = plan->data_at;
    for (int32_t i = 0; i < count; i++, record += RECORD_BYTES) {
        const mics_piece *piece = &pieces[i];
        put_u64(record, (uint64_t)piece->unit_elems);
        put_u64(record + 8, (uint64_t)piece->begin);
        put_u64(record + 16, (uint64_t)piece->end);
        for (int state = 0; state < MICS_STATES; state++) {
            put_u64(record + 24 + 8 * state, (uint64_t)offset);
            offset += mics_size_round_up((piece->end - piece->begin) * 4, DATA_ALIGN);
        }
        uint32_t name_bytes = (uint32_t)strlen(piece->unit);
        put_u32(record + 48, name_at);
        put_u32(record + 52, name_bytes);
        memcpy(names + name_at, piece->unit, name_bytes);
        name_at += name_bytes + 1;
    }
}

// A file being written: where the next data and checksum go.
typedef struct stream {
    int fd;
    const char *path;
    int64_t offset;
    int64_t started; // up to here the kernel was told to write
    unsigned char *next_hash;
} stream;

// A hint, so that the disk works while we hash; fsync at the end is what counts.
static void begin_writeback(stream *out)
{
    if (out->offset - out->started < WRITEBACK_BYTES)
        return;
    (void)sync_file_range(out->fd, out->started, out->offset - out->started, SYNC_FILE_RANGE_WRITE);
    out->started = out->offset;
}

// Hashes and writes one state of a piece. A chunk is hashed just before it is written, while it is
// on its way through the cache anyway.
static mics_status write_state(stream *out, const float *data, int64_t elems)
{
    for (int64_t at = 0; at < elems; at += CHUNK_ELEMS) {
        int64_t left = elems - at;
        size_t bytes = (size_t)(left < CHUNK_ELEMS ? left : CHUNK_ELEMS) * 4;
        put_u64(out->next_hash, XXH3_64bits(data + at, bytes));
        out->next_hash += HASH_BYTES;
        MICS_TRY(mics_file_write_at(out->fd, out->path, data + at, bytes, out->offset));
        out->offset += (int64_t)bytes;
        begin_writeback(out);
    }
    out->offset = mics_size_round_up(out->offset, DATA_ALIGN);
    return MICS_OK;
}

static mics_status write_data(stream *out, const mics_piece *pieces, int32_t count,
                              int64_t file_bytes)
{
    // Sets the length first: the gaps between the states then read as zeros.
    if (ftruncate(out->fd, file_bytes) != 0)
        return mics_fail(MICS_ERR_IO, "%s: cannot make it %lld bytes long: %s", out->path,
                         (long long)file_bytes, strerror(errno));
    for (int32_t i = 0; i < count; i++) {
        for (int state = 0; state < MICS_STATES; state++)
            MICS_TRY(write_state(out, pieces[i].data[state], pieces[i].end - pieces[i].begin));
    }
    return MICS_OK;
}

mics_status mics_rank_file_write(mics_memory *memory, const char *path, mics_rank_file_id id,
                                 const mics_piece *pieces, int32_t count)
{
    layout plan = {0};
    MICS_TRY(plan_layout(path, pieces, count, &plan));
    size_t head_bytes = (size_t)(MICS_RANK_FILE_PREFIX + plan.header_bytes);
    void *block = NULL;
    MICS_TRY(mics_alloc(memory, MICS_MEM_HOST, head_bytes, &block));
    unsigned char *head = block;
    encode_header(head, &plan, id, pieces, count);

    stream out = {.fd = -1, .path = path, .offset = plan.data_at};
    out.next_hash = head + MICS_RANK_FILE_PREFIX + FIXED_BYTES + (int64_t)count * RECORD_BYTES +
                    plan.names_bytes;
    mics_status status = mics_file_create(path, plan.file_bytes, &out.fd);
    if (status == MICS_OK) {
        status = write_data(&out, pieces, count, plan.file_bytes);
        put_u64(head + 16, XXH3_64bits(head + MICS_RANK_FILE_PREFIX, (size_t)plan.header_bytes));
        if (status == MICS_OK)
            status = mics_file_write_at(out.fd, path, head, head_bytes, 0);
        status = mics_file_close_written(out.fd, path, status);
        if (status != MICS_OK)
            unlink(path);
    }
    mics_free(memory, block);
    return status;
}

// ---- reading ----

static mics_status malformed(const char *path, int64_t offset, const char *what)
{
    return mics_fail(MICS_ERR_FORMAT, "%s: offset %lld: %s", path, (long long)offset, what);
}

// Reads prefix and header and checks the header's own hash.
static mics_status read_header(mics_memory *memory, const char *path, int fd, int64_t size,
                               mics_rank_file *file, int64_t *header_bytes_out)
{
    unsigned char prefix[MICS_RANK_FILE_PREFIX];
    MICS_TRY(mics_file_read_at(fd, path, prefix, sizeof prefix, 0));
    if (memcmp(prefix, MAGIC, sizeof MAGIC) != 0)
        return malformed(path, 0, "does not begin with MICSCKP1: not a rank file, or not complete");
    uint64_t bytes = get_u64(prefix + 8);
    if (bytes < FIXED_BYTES || bytes > (uint64_t)(size - MICS_RANK_FILE_PREFIX) ||
        bytes > (uint64_t)HEADER_MAX)
        return mics_fail(MICS_ERR_FORMAT,
                         "%s: offset 8: a header of %llu bytes in a file of %lld bytes; the file "
                         "is damaged",
                         path, (unsigned long long)bytes, (long long)size);
    void *block = NULL;
    MICS_TRY(mics_alloc(memory, MICS_MEM_HOST, (size_t)bytes, &block));
    file->header = block;
    MICS_TRY(mics_file_read_at(fd, path, block, (size_t)bytes, MICS_RANK_FILE_PREFIX));
    file->header_hash = get_u64(prefix + 16);
    if (XXH3_64bits(block, (size_t)bytes) != file->header_hash)
        return malformed(path, 16, "the header differs from its checksum; the file is damaged");
    *header_bytes_out = (int64_t)bytes;
    return MICS_OK;
}

static mics_status decode_fixed(const char *path, int64_t size, int64_t header_bytes,
                                mics_rank_file *file)
{
    const unsigned char *header = file->header;
    const int64_t at = MICS_RANK_FILE_PREFIX;
    uint64_t step = get_u64(header);
    uint32_t rank = get_u32(header + 8);
    uint32_t writers = get_u32(header + 12);
    if (step > INT64_MAX)
        return malformed(path, at, "the step is negative");
    if (writers > INT32_MAX || rank >= writers)
        return malformed(path, at + 8, "the rank is not below the number of writers");
    if (get_u32(header + 16) != MICS_RANK_FILE_CHUNK)
        return malformed(path, at + 16, "chunks are not of 1048576 bytes");
    if (get_u32(header + 20) != MICS_STATES)
        return malformed(path, at + 20, "not 3 states");
    if (get_u64(header + 24) != (uint64_t)size)
        return mics_fail(
            MICS_ERR_FORMAT, "%s: offset %lld: the file has %lld bytes, its header says %llu", path,
            (long long)at + 24, (long long)size, (unsigned long long)get_u64(header + 24));
    uint64_t pieces = get_u32(header + 32);
    uint64_t names_bytes = get_u32(header + 36);
    if (pieces > INT32_MAX ||
        FIXED_BYTES + pieces * RECORD_BYTES + names_bytes > (uint64_t)header_bytes)
        return malformed(path, at + 32, "pieces and names do not fit into the header");
    if (names_bytes % 8 != 0)
        return malformed(path, at + 36, "the names' length is no multiple of 8");
    file->id = (mics_rank_file_id){(int64_t)step, (int32_t)rank, (int32_t)writers};
    file->count = (int32_t)pieces;
    file->file_bytes = size;
    return MICS_OK;
}

// What decoding the pieces walks through.
typedef struct decoder {
    const char *path;
    const unsigned char *names;
    uint64_t names_bytes;
    const unsigned char *next_hash;
    const unsigned char *hashes_end;
    int64_t next_data;
} decoder;

static mics_status decode_states(decoder *in, const unsigned char *record, int64_t offset,
                                 mics_rank_piece *piece)
{
    int64_t elems = piece->end - piece->begin;
    int64_t hash_bytes = mics_rank_file_chunks(elems) * HASH_BYTES;
    for (int state = 0; state < MICS_STATES; state++) {
        if (get_u64(record + 24 + 8 * state) != (uint64_t)in->next_data)
            return malformed(in->path, offset + 24 + 8 * state,
                             "the data does not lie where the lengths before it put it");
        if (in->hashes_end - in->next_hash < hash_bytes)
            return malformed(in->path, offset, "the header holds too few checksums for this piece");
        piece->data_offset[state] = in->next_data;
        piece->hashes[state] = in->next_hash;
        in->next_hash += hash_bytes;
        in->next_data += mics_size_round_up(elems * 4, DATA_ALIGN);
    }
    return MICS_OK;
}

// `offset` is the record's place in the file, for errors.
static mics_status decode_piece(decoder *in, const unsigned char *record, int64_t offset,
                                mics_rank_piece *piece)
{
    uint64_t unit_elems = get_u64(record);
    uint64_t begin = get_u64(record + 8);
    uint64_t end = get_u64(record + 16);
    if (unit_elems < 1 || unit_elems > (uint64_t)ELEMS_MAX || begin > end || end > unit_elems)
        return mics_fail(MICS_ERR_FORMAT,
                         "%s: offset %lld: elements %llu to %llu of a unit of %llu", in->path,
                         (long long)offset, (unsigned long long)begin, (unsigned long long)end,
                         (unsigned long long)unit_elems);
    uint64_t name_at = get_u32(record + 48);
    uint64_t name_bytes = get_u32(record + 52);
    if (name_bytes < 1 || name_bytes > MICS_RANK_FILE_NAME_MAX ||
        name_at + name_bytes + 1 > in->names_bytes)
        return malformed(in->path, offset + 48, "the unit's name lies outside the names");
    const unsigned char *name = in->names + name_at;
    if (memchr(name, '\0', name_bytes + 1) != name + name_bytes)
        return malformed(in->path, offset + 48, "the unit's name does not end where it should");
    piece->unit = (const char *)name;
    piece->unit_elems = (int64_t)unit_elems;
    piece->begin = (int64_t)begin;
    piece->end = (int64_t)end;
    return decode_states(in, record, offset, piece);
}

static mics_status decode_pieces(mics_memory *memory, const char *path, int64_t header_bytes,
                                 mics_rank_file *file)
{
    void *block = NULL;
    size_t bytes = (size_t)file->count * sizeof *file->pieces;
    MICS_TRY(mics_alloc(memory, MICS_MEM_HOST, bytes, &block));
    file->pieces = block;
    const unsigned char *records = file->header + FIXED_BYTES;
    decoder in = {.path = path,
                  .names = records + (int64_t)file->count * RECORD_BYTES,
                  .names_bytes = get_u32(file->header + 36),
                  .hashes_end = file->header + header_bytes};
    in.next_hash = in.names + in.names_bytes;
    in.next_data = mics_size_round_up(MICS_RANK_FILE_PREFIX + header_bytes, DATA_ALIGN);
    for (int32_t i = 0; i < file->count; i++) {
        int64_t at = (int64_t)i * RECORD_BYTES;
        MICS_TRY(decode_piece(&in, records + at, MICS_RANK_FILE_PREFIX + FIXED_BYTES + at,
                              &file->pieces[i]));
        if (in.next_data > file->file_bytes)
            return malformed(path, MICS_RANK_FILE_PREFIX + FIXED_BYTES + at,
                             "the piece's data runs past the end of the file");
    }
    if (in.next_hash != in.hashes_end)
        return malformed(path, MICS_RANK_FILE_PREFIX, "the header is longer than what it says");
    if (in.next_data != file->file_bytes)
        return malformed(path, in.next_data, "the file goes on after its last piece");
    return MICS_OK;
}

mics_status mics_rank_file_load(mics_memory *memory, const char *path, mics_rank_file *file_out)
{
    int fd = -1;
    int64_t size = 0;
    MICS_TRY(mics_file_open_read(path, &fd, &size));
    mics_rank_file file = {0};
    int64_t header_bytes = 0;
    mics_status status = read_header(memory, path, fd, size, &file, &header_bytes);
    close(fd);
    if (status == MICS_OK)
        status = decode_fixed(path, size, header_bytes, &file);
    if (status == MICS_OK)
        status = decode_pieces(memory, path, header_bytes, &file);
    if (status == MICS_OK)
        *file_out = file;
    else
        mics_rank_file_fini(memory, &file);
    return status;
}

void mics_rank_file_fini(mics_memory *memory, mics_rank_file *file)
{
    mics_free(memory, file->pieces);
    mics_free(memory, file->header);
    *file = (mics_rank_file){0};
}

// A read in progress; `scratch` holds a chunk of which only a part is wanted.
typedef struct reading {
    mics_memory *memory;
    int fd;
    const char *path;
    const mics_rank_piece *piece;
    mics_state state;
    void *scratch;
} reading;

// Reads chunk number `chunk` of `elems` elements to `to` and checks it.
static mics_status read_chunk(const reading *in, int64_t chunk, int64_t elems, void *to)
{
    int64_t offset = in->piece->data_offset[in->state] + chunk * MICS_RANK_FILE_CHUNK;
    size_t bytes = (size_t)elems * 4;
    MICS_TRY(mics_file_read_at(in->fd, in->path, to, bytes, offset));
    if (XXH3_64bits(to, bytes) != get_u64(in->piece->hashes[in->state] + chunk * HASH_BYTES))
        return mics_fail(MICS_ERR_FORMAT,
                         "%s: offset %lld: %zu bytes of unit %s differ from their checksum; the "
                         "file is damaged",
                         in->path, (long long)offset, bytes, in->piece->unit);
    return MICS_OK;
}

// Reads the part [first, last) of the piece, counted from its begin.
static mics_status read_part(reading *in, int64_t first, int64_t last, float *data_out)
{
    int64_t elems = in->piece->end - in->piece->begin;
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

mics_status mics_rank_file_read(mics_memory *memory, const char *path, const mics_rank_piece *piece,
                                mics_state state, int64_t begin, int64_t end, float *data_out)
{
    if (begin == end)
        return MICS_OK;
    int64_t size = 0;
    reading in = {.memory = memory, .fd = -1, .path = path, .piece = piece, .state = state};
    MICS_TRY(mics_file_open_read(path, &in.fd, &size));
    mics_status status = read_part(&in, begin - piece->begin, end - piece->begin, data_out);
    mics_free(memory, in.scratch);
    close(in.fd);
    return status;
}
