// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
#include "call_checks.h"
#include "ranks.h"
#include <string.h>

enum { GUARD = 64, GUARD_BYTE = 0x5a };

static float value_of(int32_t rank, int64_t i)
{
    return (float)((rank * 131 + i * 7) % 251 - 100);
}

// The bits of an element on a rank: a float, or two bytes that are nobody's sum.
static void put(mics_dtype dtype, char *at, int32_t rank, int64_t i)
{
    const float value = value_of(rank, i);
    const uint16_t bits = (uint16_t)(rank * 4099 + i * 17 + 1);
    if (dtype == MICS_DTYPE_FP32)
        memcpy(at, &value, sizeof value);
    else
        memcpy(at, &bits, sizeof bits);
}

// One buffer on the device, a guard at each end; what went there, and what came back.
typedef struct checked_buffer {
    char *sent, *host;
    void *device;
    size_t bytes; // guards included
} checked_buffer;

static mics_status buffer_open(const call_case *at, size_t bytes, checked_buffer *buffer)
{
    void *block = NULL;
    buffer->bytes = bytes + 2 * GUARD;
    MICS_TRY(mics_alloc(at->memory, MICS_MEM_HOST, 2 * buffer->bytes, &block));
    buffer->sent = buffer->host = block;
    memset(buffer->sent, GUARD_BYTE, buffer->bytes);
    buffer->device = buffer->sent;
    if (at->device == NULL)
        return MICS_OK;
    buffer->host = buffer->sent + buffer->bytes;
    return at->device->ops->alloc(at->device->ctx, buffer->bytes, &buffer->device);
}

static void buffer_close(const call_case *at, checked_buffer *buffer)
{
    if (at->device != NULL)
        at->device->ops->free(at->device->ctx, buffer->device);
    mics_free(at->memory, buffer->sent);
}

// Enqueued before the collective, on its stream.
static void upload(const call_case *at, const checked_buffer *buffer)
{
    if (at->device != NULL)
        at->device->ops->copy(at->device->ctx, at->channel + 1, buffer->device, buffer->sent,
                              buffer->bytes);
}

static mics_status download(const call_case *at, const checked_buffer *buffer)
{
    if (at->device == NULL)
        return MICS_OK;
    at->device->ops->copy(at->device->ctx, at->channel + 1, buffer->host, buffer->device,
                          buffer->bytes);
    return at->device->ops->synchronize(at->device->ctx, at->channel + 1);
}

static mics_status check_guards(const checked_buffer *buffer)
{
    for (size_t i = 0; i < GUARD; i++)
        RANKS_EXPECT(buffer->host[i] == GUARD_BYTE &&
                     buffer->host[buffer->bytes - 1 - i] == GUARD_BYTE);
    return MICS_OK;
}

static int32_t block_of(const call_case *at, int32_t member)
{
    return at->block_of != NULL ? at->block_of[member] : member;
}

static int32_t owner_of(const call_case *at, int32_t block)
{
    int32_t member = 0;
    while (block_of(at, member) != block)
        member++;
    return member;
}

static float sum_of(const call_case *at, int64_t i)
{
    float sum = 0;
    for (int32_t m = 0; m < at->group.size; m++)
        sum += value_of(mics_group_rank(at->group, m), i);
    return sum;
}

// What an element of the buffer is afterwards; false where it may be anything.
static bool expect(const call_case *at, mics_comm_call_kind kind, mics_dtype dtype, int64_t i,
                   char *expected)
{
    const int32_t block = (int32_t)(i / at->elems);
    const bool mine = block == block_of(at, at->group.index);
    if (kind == MICS_COMM_CALL_ALL_GATHER) {
        put(dtype, expected, mics_group_rank(at->group, owner_of(at, block)), i);
        return true;
    }
    if (kind == MICS_COMM_CALL_ALL_TO_ALL) {
        put(dtype, expected, at->comm->rank, i);
        return true;
    }
    const float sum = sum_of(at, i);
    memcpy(expected, &sum, sizeof sum);
    return kind == MICS_COMM_CALL_ALL_REDUCE || mine;
}

static mics_status check_buffer(const call_case *at, mics_comm_call_kind kind, mics_dtype dtype,
                                const checked_buffer *buffer)
{
    const size_t bytes = mics_dtype_bytes(dtype);
    char expected[4];
    MICS_TRY(check_guards(buffer));
    for (int64_t i = 0; i < at->elems * at->group.size; i++) {
        if (expect(at, kind, dtype, i, expected) &&
            memcmp(buffer->host + GUARD + (size_t)i * bytes, expected, bytes) != 0)
            return mics_fail(MICS_ERR_NUMERIC,
                             "collective %d in %s over %d ranks, blocks of %lld: element %lld is "
                             "wrong on rank %d",
                             (int)kind, mics_dtype_text(dtype), at->group.size,
                             (long long)at->elems, (long long)i, at->comm->rank);
    }
    return MICS_OK;
}

// Block h - 1 is this rank's block as the member h before it has it; by owner, it lies where that
// member's own does, and this rank's is as it was.
static mics_status check_incoming(const call_case *at, mics_dtype dtype, bool by_owner,
                                  const checked_buffer *incoming)
{
    const size_t bytes = mics_dtype_bytes(dtype);
    char expected[4];
    MICS_TRY(check_guards(incoming));
    for (int32_t hop = by_owner ? 0 : 1; hop < at->group.size; hop++) {
        const int32_t from = (at->group.index + at->group.size - hop) % at->group.size;
        const int32_t block = by_owner ? block_of(at, from) : hop - 1;
        for (int64_t i = 0; i < at->elems; i++) {
            const int64_t place = block_of(at, at->group.index) * at->elems + i;
            put(dtype, expected, mics_group_rank(at->group, from), place);
            if (hop == 0)
                memset(expected, GUARD_BYTE, sizeof expected);
            RANKS_EXPECT(memcmp(incoming->host + GUARD + (size_t)(block * at->elems + i) * bytes,
                                expected, bytes) == 0);
        }
    }
    return MICS_OK;
}

static mics_status check_kind(const call_case *at, mics_comm_call_kind kind, mics_dtype dtype,
                              bool by_owner)
{
    const size_t bytes = mics_dtype_bytes(dtype), block_bytes = (size_t)at->elems * bytes;
    const mics_comm_group ring = {.group = at->group,
                                  .block_of = at->block_of,
                                  .channel = at->channel,
                                  .what = "checked collective"};
    checked_buffer buffer = {0}, incoming = {0};
    mics_status status = MICS_OK;
    MICS_TRY_OUT(buffer_open(at, block_bytes * (size_t)at->group.size, &buffer));
    MICS_TRY_OUT(buffer_open(at, block_bytes * (size_t)(at->group.size - !by_owner), &incoming));
    for (int64_t i = 0; i < at->elems * at->group.size; i++)
        put(dtype, buffer.sent + GUARD + (size_t)i * bytes, at->comm->rank, i);
    upload(at, &buffer);
    upload(at, &incoming);
    const mics_comm_call call = {
        .kind = kind,
        .over = &ring,
        .buffer = (char *)buffer.device + GUARD,
        .incoming = kind == MICS_COMM_CALL_ALL_TO_ALL ? (char *)incoming.device + GUARD : NULL,
        .by_owner = by_owner,
        .block_elems = at->elems,
        .dtype = dtype};
    MICS_TRY_OUT(mics_comm_collective(at->comm, &call));
    MICS_TRY_OUT(download(at, &buffer));
    MICS_TRY_OUT(download(at, &incoming));
    MICS_TRY_OUT(check_buffer(at, kind, dtype, &buffer));
    if (kind == MICS_COMM_CALL_ALL_TO_ALL)
        MICS_TRY_OUT(check_incoming(at, dtype, by_owner, &incoming));
out:
    buffer_close(at, &incoming);
    buffer_close(at, &buffer);
    if (status == MICS_OK && at->frees_together)
        status = mics_comm_agree(at->comm, MICS_OK);
    return status;
}

mics_status checks_calls(const call_case *at)
{
    for (int kind = 0; kind < MICS_COMM_CALLS; kind++) {
        for (int dtype = 0; dtype < MICS_DTYPES; dtype++) {
            const bool sums =
                kind == MICS_COMM_CALL_REDUCE_SCATTER || kind == MICS_COMM_CALL_ALL_REDUCE;
            if (!sums || dtype == MICS_DTYPE_FP32)
                MICS_TRY(check_kind(at, (mics_comm_call_kind)kind, (mics_dtype)dtype, false));
            if (kind == MICS_COMM_CALL_ALL_TO_ALL)
                MICS_TRY(check_kind(at, (mics_comm_call_kind)kind, (mics_dtype)dtype, true));
        }
    }
    return MICS_OK;
}
