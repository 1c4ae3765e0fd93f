// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Memory that the processes of a node see as one: a file without a name, which its maker has open
// and the others find among that one's open files. It goes with the last process that has it.
//
// Why not MPI_Win_allocate_shared: it lives in /dev/shm, of which containers have 64 MiB unless
// told otherwise, and takes no pages. With Open MPI 4.1.4, 2 ranks and a window of 100 MiB there,
// no rank came back from it in 10 minutes, and nothing was said. MPI_Win_free is collective, so a
// rank that failed could not give its memory back. A window's block is not aligned either.
#include "comm/mpi/share.h"
#include "comm/mpi/intra.h"
#include "mics/log.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

// Before what the members see, MICS_ALIGNMENT bytes.
typedef struct share_head {
    uint64_t mark; // the ticket says the same: a process of another node may have the same number
    size_t whole;  // with this head
} share_head;

_Static_assert(sizeof(share_head) <= MICS_ALIGNMENT, "the head must fit before an aligned block");

static size_t whole_bytes(size_t bytes)
{
    return mics_memory_block_bytes(bytes) + MICS_ALIGNMENT;
}

static share_head *map(int file, size_t whole)
{
    void *at = mmap(NULL, whole, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (at == MAP_FAILED)
        return NULL;
    return at;
}

// Pages are taken here, where there may be too few, rather than when they are first written.
static share_head *fill(int file, size_t whole)
{
    do // signals may interrupt it
        errno = posix_fallocate(file, 0, (off_t)whole);
    while (errno == EINTR);
    return errno == 0 ? map(file, whole) : NULL;
}

void *comm_node_memory_make(uint64_t mark, size_t bytes, comm_ticket *ticket_out)
{
    const int file = memfd_create("mics-shared", MFD_CLOEXEC);
    share_head *head = file >= 0 ? fill(file, whole_bytes(bytes)) : NULL;
    *ticket_out = (comm_ticket){.made = head != NULL, .process = getpid(), .file = file};
    if (head == NULL) {
        const int why = errno;
        if (file >= 0)
            close(file);
        errno = why;
        return NULL;
    }
    *head = (share_head){.mark = mark, .whole = whole_bytes(bytes)};
    ticket_out->mark = mark;
    return (char *)head + MICS_ALIGNMENT;
}

void *comm_node_memory_find(const comm_ticket *ticket, size_t bytes)
{
    const size_t whole = whole_bytes(bytes);
    char path[64];
    struct stat found;
    snprintf(path, sizeof path, "/proc/%d/fd/%d", (int)ticket->process, (int)ticket->file);
    const int file = ticket->made ? open(path, O_RDWR | O_CLOEXEC) : -1;
    if (file < 0)
        return NULL;
    const bool fits = fstat(file, &found) == 0 && found.st_size == (off_t)whole;
    share_head *head = fits ? map(file, whole) : NULL;
    close(file);
    if (head != NULL && head->mark == ticket->mark)
        return (char *)head + MICS_ALIGNMENT;
    if (head != NULL)
        munmap(head, whole);
    errno = fits && head == NULL ? ENOMEM : ESTALE;
    return NULL;
}

void comm_node_memory_made(const comm_ticket *ticket)
{
    if (ticket->made)
        close(ticket->file);
}

void comm_node_memory_drop(void *memory)
{
    share_head *head = (share_head *)(void *)((char *)memory - MICS_ALIGNMENT);
    munmap(head, head->whole);
}

// ---- mics_comm_share ----

static mics_status share_result(void *memory, const char *step, size_t bytes, void **memory_out)
{
    *memory_out = memory;
    if (memory != NULL)
        return MICS_OK;
    return mics_fail(MICS_ERR_MEMORY,
                     "cannot share %zu bytes in this node (%s: %s); set run.share_params to false",
                     bytes, step, strerror(errno));
}

static mics_status make(void *ctx, size_t bytes, int32_t users, comm_ticket *ticket_out,
                        void **memory_out)
{
    const comm_mpi *self = ctx;
    (void)users;
    void *memory = comm_node_memory_make(self->intra.mark, bytes, ticket_out);
    return share_result(memory, "making it", bytes, memory_out);
}

static mics_status find(void *ctx, size_t bytes, const comm_ticket *ticket, void **memory_out)
{
    (void)ctx;
    return share_result(comm_node_memory_find(ticket, bytes), "finding it", bytes, memory_out);
}

static void made(void *ctx, const comm_ticket *ticket)
{
    (void)ctx;
    comm_node_memory_made(ticket);
}

void comm_mpi_unshare(void *ctx, void *memory)
{
    (void)ctx;
    comm_node_memory_drop(memory);
}

mics_status comm_mpi_share(void *ctx, const mics_comm_group *over, size_t bytes, void **memory_out)
{
    static const comm_share_ops ops = {
        .make = make, .find = find, .made = made, .drop = comm_mpi_unshare};
    comm_mpi *self = ctx;
    for (int32_t member = 0; member < over->group.size; member++) {
        if (!comm_intra_reaches(self, mics_group_rank(over->group, member)))
            return mics_fail(MICS_ERR_UNSUPPORTED,
                             "%s: rank %d and rank %d do not share memory; set run.share_params to "
                             "false",
                             over->what, (int)self->base.rank,
                             (int)mics_group_rank(over->group, member));
    }
    return comm_share_by(&self->base, &ops, over, bytes, memory_out);
}
