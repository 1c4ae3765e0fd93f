// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
#include "random_data.h"
#include "mics/log.h"
#include <stdlib.h>

// From one fill's beginning to the next one's: prime, so that few fills of any size begin alike.
enum { ELEMS_BETWEEN_FILLS = 1299709 };

// Knuth's linear congruential generator; its upper 24 bits.
static void generate(float *host, int64_t elems)
{
    uint64_t state = 1;
    for (int64_t i = 0; i < elems; ++i) {
        state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        host[i] = (float)(state >> 40) * 0x1p-23F - 1.0F;
    }
}

static mics_status alloc_blocks(random_source *source, mics_dtype dtype)
{
    for (int kind = 0; kind < RANDOM_KINDS; ++kind) {
        void *block = NULL;
        source->elem_bytes[kind] =
            kind == RANDOM_DTYPE ? (int64_t)mics_dtype_bytes(dtype) : (int64_t)sizeof(float);
        MICS_TRY(source->device->ops->alloc(
            source->device->ctx, (size_t)(source->elems * source->elem_bytes[kind]), &block));
        source->blocks[kind] = block;
    }
    return MICS_OK;
}

static void upload(random_source *source, random_kind kind, const float *host)
{
    source->device->ops->copy(source->device->ctx, 0, source->blocks[kind], host,
                              (size_t)source->elems * sizeof *host);
}

static mics_status fill_blocks(random_source *source, const mics_kernels *table, mics_dtype dtype,
                               float *host)
{
    const mics_exec at = {.device = source->device, .dtype = dtype, .threads = 1};
    generate(host, source->elems);
    upload(source, RANDOM_FP32, host);
    if (dtype == MICS_DTYPE_FP32)
        upload(source, RANDOM_DTYPE, host);
    else
        table->round(&at, source->blocks[RANDOM_DTYPE], (const float *)source->blocks[RANDOM_FP32],
                     source->elems);
    MICS_TRY(source->device->ops->synchronize(source->device->ctx, 0));
    for (int64_t i = 0; i < source->elems; ++i)
        host[i] = host[i] * 0.5F + 0.5F;
    upload(source, RANDOM_POSITIVE, host);
    return source->device->ops->synchronize(source->device->ctx, 0);
}

mics_status random_source_open(mics_device *device, const mics_kernels *table, mics_dtype dtype,
                               int64_t elems, random_source *source)
{
    source->device = device;
    source->elems = elems;
    MICS_TRY(alloc_blocks(source, dtype));
    float *host = malloc((size_t)elems * sizeof *host);
    if (!host)
        return mics_fail(MICS_ERR_MEMORY, "no memory for %lld random numbers", (long long)elems);
    const mics_status status = fill_blocks(source, table, dtype, host);
    free(host);
    return status;
}

void random_source_fill(random_source *source, random_kind kind, void *to, int64_t bytes)
{
    const int64_t size = source->elems * source->elem_bytes[kind];
    int64_t from = source->next * source->elem_bytes[kind];
    for (int64_t done = 0; done < bytes;) {
        const int64_t left = bytes - done, here = size - from, part = left < here ? left : here;
        source->device->ops->copy(source->device->ctx, 0, (char *)to + done,
                                  source->blocks[kind] + from, (size_t)part);
        done += part;
        from = 0;
    }
    source->next = (source->next + ELEMS_BETWEEN_FILLS) % source->elems;
}

void random_source_close(random_source *source)
{
    for (int kind = 0; kind < RANDOM_KINDS; ++kind)
        if (source->blocks[kind])
            source->device->ops->free(source->device->ctx, source->blocks[kind]);
    *source = (random_source){.device = NULL};
}
