// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Exchanges between ranks of a node, without MPI: the receiver reads the sender's memory where it
// lies, in one copy and no faster than it likes, and who waits sleeps until it is woken. MPI copies
// as often, but must be polled, and ranks that share cores pay for each poll. An MPI window would
// copy twice, in and out: 256 KiB to 16 MiB each way took 1.2 to 2.8 times as long with 2 ranks on
// 2 cores, and 0.85 to 1.15 times with 4 (medians of 31, in turns; Open MPI 4.1.4, pieces of 256
// KiB).
//
// The ranks of a node share memory (share.c) with a box for each rank and channel, in which a
// sender offers what it sends. Whether a rank may read another one's memory is a matter of
// permissions, so it is tried when the world opens; where it fails on any rank of a node, MPI
// carries that node's exchanges as it carries those between nodes.
//
// A box: `offered` has the offer's number and addressee, `taken` the number of the last offer that
// its receiver was done with. Plain fields are written before `offered`; the addressee alone reads
// them, before `taken`. A sender that gives up marks its box as withdrawn before it returns; a
// receiver looks for that after it has read, so data read too late is dropped.
//
// Invariant, checked by comm_intra_is_taken: a sender offers again only when its last offer is taken.
#include "comm/mpi/intra.h"
#include "base/assert.h"
#include "base/clock.h"
#include "comm/mpi/share.h"
#include "comm/mpi/wait.h"
#include "mics/core/transport.h"
#include "mics/log.h"
#include <errno.h>
#include <linux/futex.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum {
    SUM_PIECE_BYTES = 256 * 1024, // of staging; stays in a core's second cache until it is added
    POLL_US = 20,                 // a sleep and being woken cost as much
};

_Static_assert(SUM_PIECE_BYTES <= COMM_WINDOW * COMM_CHUNK_BYTES, "staging holds a piece");

static comm_intra_box *box_of(const comm_mpi *self, int32_t rank, int32_t channel)
{
    return &self->intra.boxes[(rank - self->intra.first) * MICS_CHANNELS + channel];
}

// ---- sleeping and waking ----

static void ring_bell(comm_intra_box *box)
{
    atomic_fetch_add(&box->bells, 1);
    if (atomic_load(&box->sleeps))
        syscall(SYS_futex, &box->bells, FUTEX_WAKE, 1, NULL, NULL, 0);
}

uint32_t comm_intra_listen(const comm_mpi *self, int32_t channel)
{
    return self->intra.boxes != NULL ? atomic_load(&box_of(self, self->base.rank, channel)->bells)
                                     : 0;
}

bool comm_intra_poll(const comm_mpi *self, int32_t channel, uint32_t heard)
{
    const double end_us = mics_clock_us() + POLL_US;
    bool news = comm_intra_listen(self, channel) != heard;
    while (!news && mics_clock_us() < end_us)
        news = comm_intra_listen(self, channel) != heard;
    return news;
}

void comm_intra_sleep(const comm_mpi *self, int32_t channel, uint32_t heard, double longest_us)
{
    const struct timespec longest = {.tv_sec = (time_t)(longest_us * 1e-6),
                                     .tv_nsec = (long)longest_us % 1000000 * 1000};
    if (self->intra.boxes == NULL) {
        nanosleep(&longest, NULL);
    } else {
        comm_intra_box *own = box_of(self, self->base.rank, channel);
        atomic_store(&own->sleeps, 1);
        syscall(SYS_futex, &own->bells, FUTEX_WAIT, heard, &longest, NULL, 0);
        atomic_store(&own->sleeps, 0);
    }
}

// ---- sending ----

void comm_intra_offer(comm_mpi *self, const mics_exchange *exchange, uint64_t hash)
{
    comm_intra_box *own = box_of(self, self->base.rank, exchange->channel);
    const uint64_t number = (uint32_t)(atomic_load(&own->offered) >> 32) + 1;
    MICS_ASSERT(comm_intra_is_taken(self, exchange->channel));
    own->address = (uintptr_t)exchange->send;
    own->bytes = exchange->bytes;
    own->hash = hash;
    atomic_store(&own->offered, number << 32 | (uint32_t)exchange->to);
    ring_bell(box_of(self, exchange->to, exchange->channel));
}

bool comm_intra_is_taken(const comm_mpi *self, int32_t channel)
{
    comm_intra_box *own = box_of(self, self->base.rank, channel);
    return atomic_load(&own->taken) == (uint32_t)(atomic_load(&own->offered) >> 32);
}

void comm_intra_withdraw(comm_mpi *self)
{
    for (int32_t channel = 0; self->intra.boxes != NULL && channel < MICS_CHANNELS; channel++)
        atomic_store(&box_of(self, self->base.rank, channel)->withdrawn, true);
}

// ---- receiving ----

bool comm_intra_is_offered(const comm_mpi *self, int32_t from, int32_t channel, uint64_t *bytes_out,
                           uint64_t *hash_out)
{
    comm_intra_box *box = box_of(self, from, channel);
    const uint64_t offered = atomic_load(&box->offered);
    if ((int32_t)(uint32_t)offered != self->base.rank ||
        atomic_load(&box->taken) == (uint32_t)(offered >> 32))
        return false;
    *bytes_out = box->bytes;
    *hash_out = box->hash;
    return true;
}

// An address of another process, as the system takes it.
static void *address_of(uint64_t address)
{
    const uintptr_t number = (uintptr_t)address;
    void *pointer = NULL;
    memcpy(&pointer, &number, sizeof pointer);
    return pointer;
}

// Reads another process's memory. A process that is gone moves no more, and the launcher or the
// deadline ends what waits for it: *there_out is false.
static mics_status read_memory(const comm_intra_box *box, const char *what, size_t offset, char *to,
                               size_t bytes, bool *there_out)
{
    size_t done = 0;
    while (done < bytes) {
        const struct iovec local = {to + done, bytes - done};
        const struct iovec remote = {address_of(box->address + offset + done), bytes - done};
        const ssize_t got = process_vm_readv(box->process, &local, 1, &remote, 1, 0);
        *there_out = got >= 0 || errno != ESRCH;
        if (!*there_out)
            return MICS_OK;
        if (got <= 0 && atomic_load(&box->withdrawn))
            return MICS_ERR_ABORTED; // and freed what it had offered
        if (got <= 0)
            return mics_fail(MICS_ERR_COMM, "%s: cannot read %zu bytes of process %d: %s", what,
                             bytes, (int)box->process, got == 0 ? "no data" : strerror(errno));
        done += (size_t)got;
    }
    return MICS_OK;
}

// A piece of a sum comes by way of staging.
static mics_status take_piece(comm_mpi *self, const mics_exchange *exchange, size_t at,
                              size_t bytes, bool *there_out)
{
    const comm_intra_box *box = box_of(self, exchange->from, exchange->channel);
    char *to = (char *)exchange->recv + at;
    char *staging = self->staging + (size_t)exchange->channel * COMM_CHANNEL_BYTES;
    if (exchange->reduce == MICS_REDUCE_COPY)
        return read_memory(box, exchange->what, at, to, bytes, there_out);
    MICS_TRY(read_memory(box, exchange->what, at, staging, bytes, there_out));
    if (*there_out)
        comm_add_f32(exchange, at / sizeof(float), (const float *)(const void *)staging,
                     bytes / sizeof(float));
    return MICS_OK;
}

mics_status comm_intra_take(comm_mpi *self, const mics_exchange *exchange, bool *there_out)
{
    comm_intra_box *box = box_of(self, exchange->from, exchange->channel);
    const size_t most = exchange->reduce == MICS_REDUCE_COPY ? COMM_CHUNK_BYTES : SUM_PIECE_BYTES;
    const size_t bytes = mics_exchange_incoming(exchange);
    *there_out = true;
    for (size_t at = 0; *there_out && at < bytes; at += most) {
        const size_t left = bytes - at;
        MICS_TRY(take_piece(self, exchange, at, left < most ? left : most, there_out));
    }
    if (atomic_load(&box->withdrawn))
        return MICS_ERR_ABORTED;
    if (*there_out) {
        atomic_store(&box->taken, (uint32_t)(atomic_load(&box->offered) >> 32));
        ring_bell(box);
    }
    return MICS_OK;
}

// ---- opening ----

static const char intra_what[] = "sharing memory in a node";

// A mark of this process: its number alone is not unique, as other containers count too.
static uint64_t make_mark(const comm_mpi *self)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    uint64_t mark = (uint64_t)now.tv_sec * 1000000007u + (uint64_t)now.tv_nsec;
    return (mark ^ (uint64_t)getpid() << 32 ^ (uintptr_t)self) | 1;
}

// Whether this rank can read a word of every other one.
static bool reads_all(const comm_mpi *self)
{
    for (int32_t i = 0; i < self->base.ranks_per_node; i++) {
        const comm_intra_box *box = box_of(self, self->intra.first + i, 0);
        uint64_t mark = 0;
        bool there = false;
        const struct iovec local = {&mark, sizeof mark};
        const struct iovec remote = {address_of(box->address), sizeof mark};
        there = process_vm_readv(box->process, &local, 1, &remote, 1, 0) == (ssize_t)sizeof mark;
        if (!there || mark != box->hash)
            return false;
    }
    return true;
}

static mics_status agree(comm_mpi *self, MPI_Comm node, bool *well)
{
    int mine = *well ? 1 : 0, all = 0;
    MPI_Request request = MPI_REQUEST_NULL;
    int code = MPI_Iallreduce(&mine, &all, 1, MPI_INT, MPI_MIN, node, &request);
    MICS_TRY(comm_mpi_await(self, code, &request, intra_what, self->timeout_s));
    *well = all == 1;
    return MICS_OK;
}

// Fills this rank's boxes; until the first offer, box 0 says where its mark lies, and what it is.
static void introduce(comm_mpi *self)
{
    for (int32_t channel = 0; channel < MICS_CHANNELS; channel++) {
        comm_intra_box *own = box_of(self, self->base.rank, channel);
        own->process = getpid();
        own->address = (uintptr_t)&self->intra.mark;
        own->hash = self->intra.mark;
    }
}

// The node's first rank makes the boxes, the others find them, and each looks whether it can read
// all.
static mics_status open_boxes(comm_mpi *self, MPI_Comm node, comm_ticket *ticket)
{
    comm_intra *intra = &self->intra;
    const size_t bytes = (size_t)self->base.ranks_per_node * MICS_CHANNELS * sizeof(comm_intra_box);
    const bool first = self->base.rank == intra->first;
    MPI_Request request = MPI_REQUEST_NULL;
    if (first)
        intra->boxes = comm_node_memory_make(intra->mark, bytes, ticket);
    int code = MPI_Ibcast(ticket, (int)sizeof *ticket, MPI_BYTE, 0, node, &request);
    MICS_TRY(comm_mpi_await(self, code, &request, intra_what, self->timeout_s));
    if (!first)
        intra->boxes = comm_node_memory_find(ticket, bytes);
    bool well = intra->boxes != NULL;
    if (well)
        introduce(self);
    MICS_TRY(agree(self, node, &well));
    well = well && reads_all(self);
    MICS_TRY(agree(self, node, &well));
    if (!well)
        comm_intra_close(self);
    if (!well && first)
        mics_log(MICS_LOG_INFO, "ranks of this node may not read each other's memory "
                                "(process_vm_readv): MPI carries what they exchange");
    return MICS_OK;
}

mics_status comm_intra_open(comm_mpi *self, MPI_Comm node)
{
    comm_intra *intra = &self->intra;
    const int32_t per_node = self->base.ranks_per_node;
    comm_ticket ticket = {0};
    if (per_node == 1)
        return MICS_OK;
    intra->first = self->base.rank / per_node * per_node;
    intra->mark = make_mark(self);
    mics_status status = open_boxes(self, node, &ticket);
    if (self->base.rank == intra->first)
        comm_node_memory_made(&ticket);
    return status;
}

void comm_intra_close(comm_mpi *self)
{
    if (self->intra.boxes != NULL)
        comm_node_memory_drop(self->intra.boxes);
    self->intra.boxes = NULL;
}

void mics_comm_mpi_keep_apart(mics_comm *comm, int32_t node_ranks)
{
    comm_mpi *self = comm->ctx;
    self->intra.node_ranks = node_ranks;
    comm->ranks_sharing = comm->ranks_sharing % node_ranks == 0 ? node_ranks : 1;
}
