// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Collectives on a device's buffers, or on the host's: by the transport's own entry, or by rings of
// exchanges.
#include "base/size.h"
#include "internal.h"
#include "mics/core/transport.h"
#include "mics/log.h"

static mics_status check_call(const mics_comm *comm, const mics_comm_call *call)
{
    const char *what = call->over->what != NULL ? call->over->what : "collective";
    if (call->kind < 0 || call->kind >= MICS_COMM_CALLS)
        return mics_fail(MICS_ERR_INVALID, "%s: unknown collective %d", what, (int)call->kind);
    if (call->dtype < 0 || call->dtype >= MICS_DTYPES)
        return mics_fail(MICS_ERR_INVALID, "%s: unknown number format %d", what, (int)call->dtype);
    const bool sums =
        call->kind == MICS_COMM_CALL_REDUCE_SCATTER || call->kind == MICS_COMM_CALL_ALL_REDUCE;
    if (sums && call->dtype != MICS_DTYPE_FP32)
        return mics_fail(MICS_ERR_INVALID, "%s: sums are made in fp32, not %s", what,
                         mics_dtype_text(call->dtype));
    size_t block_bytes = 0;
    MICS_TRY(mics_size_bytes(call->block_elems, mics_dtype_bytes(call->dtype), &block_bytes));
    if (call->kind == MICS_COMM_CALL_ALL_TO_ALL && call->incoming == NULL &&
        call->over->group.size > 1 && block_bytes > 0)
        return mics_fail(MICS_ERR_INVALID, "%s: no buffer for what comes in", what);
    return comm_check_group(comm, call->over, call->buffer, block_bytes);
}

// All-to-all, one exchange a hop: to the member `hop` places after this one, from that as far
// before.
static mics_status all_to_all(mics_comm *comm, const mics_comm_call *call, size_t block_bytes)
{
    const mics_comm_group *over = call->over;
    const int32_t size = over->group.size, index = over->group.index;
    for (int32_t hop = 1; hop < size; hop++) {
        const int32_t to = (index + hop) % size, from = (index + size - hop) % size;
        const mics_exchange exchange = {
            .to = mics_group_rank(over->group, to),
            .from = mics_group_rank(over->group, from),
            .send = comm_outgoing(call, comm_block_of(over, to)),
            .recv = comm_incoming(call, hop, comm_block_of(over, from), block_bytes),
            .bytes = block_bytes,
            .reduce = MICS_REDUCE_COPY,
            .channel = over->channel,
            .what = over->what};
        MICS_TRY(mics_comm_exchange(comm, &exchange));
    }
    return MICS_OK;
}

mics_status comm_call_by_rings(mics_comm *comm, const mics_comm_call *call)
{
    const size_t block_bytes = (size_t)call->block_elems * mics_dtype_bytes(call->dtype);
    switch (call->kind) {
    case MICS_COMM_CALL_ALL_GATHER:
        return mics_comm_all_gather(comm, call->over, call->buffer, block_bytes);
    case MICS_COMM_CALL_ALL_TO_ALL:
        return all_to_all(comm, call, block_bytes);
    case MICS_COMM_CALL_REDUCE_SCATTER:
        return mics_comm_reduce_scatter(comm, call->over, call->buffer, call->block_elems);
    default: // ALL_REDUCE
        return mics_comm_all_reduce(comm, call->over, call->buffer,
                                    call->block_elems * call->over->group.size);
    }
}

mics_status mics_comm_collective(mics_comm *comm, const mics_comm_call *call)
{
    mics_comm *on_device = comm;
    MICS_TRY(check_call(comm, call));
    COMM_FIND(on_device, collective);
    return on_device->ops->collective != NULL ? on_device->ops->collective(on_device->ctx, call)
                                              : comm_call_by_rings(comm, call);
}

mics_status mics_comm_check(mics_comm *comm)
{
    COMM_FIND(comm, check);
    return comm->ops->check != NULL ? comm->ops->check(comm->ctx) : MICS_OK;
}

mics_status mics_comm_register(mics_comm *comm, const mics_comm_buffer *buffers, int32_t count)
{
    if (count < 0 || count > MICS_COMM_MAX_BUFFERS)
        return mics_fail(MICS_ERR_INVALID, "%d blocks for collectives; at most %d", (int)count,
                         MICS_COMM_MAX_BUFFERS);
    COMM_FIND(comm, register_buffers);
    if (comm->ops->register_buffers == NULL)
        return MICS_OK;
    return comm->ops->register_buffers(comm->ctx, buffers, count);
}

void mics_comm_unregister(mics_comm *comm)
{
    COMM_FIND(comm, unregister_buffers);
    if (comm->ops->unregister_buffers != NULL)
        comm->ops->unregister_buffers(comm->ctx);
}

mics_status mics_comm_warm_up(mics_comm *comm, mics_comm_warm_up_run run, void *run_ctx)
{
    COMM_FIND(comm, warm_up);
    return comm->ops->warm_up != NULL ? comm->ops->warm_up(comm->ctx, run, run_ctx) : run(run_ctx);
}
