// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Memory that the processes of a node see as one: a file without a name, which its maker has open and
// the others find among that one's open files (as intra.c's page). It goes with the last process
// that has it.
#include "comm/mpi/transport.h"
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

static mics_status cannot(const char *step, size_t bytes)
{
    return mics_fail(MICS_ERR_MEMORY,
                     "cannot share %zu bytes in this node (%s: %s); set run.share_params to false",
                     bytes, step, strerror(errno));
}

static share_head *map(int file, size_t whole)
{
    share_head *head = mmap(NULL, whole, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (head == MAP_FAILED)
        return NULL;
    return head;
}

// Pages are taken here, where there may be too few, rather than when they are first written.
static share_head *make_file(size_t bytes, size_t whole, int *file_out)
{
    const int file = memfd_create("mics-shared", MFD_CLOEXEC);
    share_head *head = NULL;
    *file_out = file;
    if (file < 0) {
        (void)cannot("memfd_create", bytes);
        return NULL;
    }
    do // signals may interrupt it
        errno = posix_fallocate(file, 0, (off_t)whole);
    while (errno == EINTR);
    if (errno != 0)
        (void)cannot("posix_fallocate", bytes);
    else if ((head = map(file, whole)) == NULL)
        (void)cannot("mmap", bytes);
    if (head == NULL)
        close(file);
    return head;
}

static mics_status make(void *ctx, size_t bytes, int32_t users, comm_ticket *ticket_out,
                        void **memory_out)
{
    const comm_mpi *self = ctx;
    const size_t whole = mics_memory_block_bytes(bytes) + MICS_ALIGNMENT;
    int file = -1;
    share_head *head = make_file(bytes, whole, &file);
    (void)users;
    if (head == NULL)
        return MICS_ERR_MEMORY;
    *head = (share_head){.mark = self->near.mark, .whole = whole};
    *ticket_out = (comm_ticket){.process = getpid(), .file = file, .mark = head->mark};
    *memory_out = (char *)head + MICS_ALIGNMENT;
    return MICS_OK;
}

static mics_status find(void *ctx, size_t bytes, const comm_ticket *ticket, void **memory_out)
{
    const size_t whole = mics_memory_block_bytes(bytes) + MICS_ALIGNMENT;
    char path[64];
    struct stat found;
    (void)ctx;
    snprintf(path, sizeof path, "/proc/%d/fd/%d", (int)ticket->process, (int)ticket->file);
    const int file = open(path, O_RDWR | O_CLOEXEC);
    if (file < 0)
        return cannot(path, bytes);
    const bool fits = fstat(file, &found) == 0 && found.st_size == (off_t)whole;
    share_head *head = fits ? map(file, whole) : NULL;
    close(file);
    if (fits && head == NULL)
        return cannot("mmap", bytes);
    if (head == NULL || head->mark != ticket->mark) {
        if (head != NULL)
            munmap(head, whole);
        return mics_fail(MICS_ERR_COMM, "%s is not the memory that process %d shares", path,
                         (int)ticket->process);
    }
    *memory_out = (char *)head + MICS_ALIGNMENT;
    return MICS_OK;
}

static void made(void *ctx, const comm_ticket *ticket)
{
    (void)ctx;
    if (ticket->made)
        close(ticket->file);
}

void comm_mpi_unshare(void *ctx, void *memory)
{
    (void)ctx;
    share_head *head = (share_head *)(void *)((char *)memory - MICS_ALIGNMENT);
    munmap(head, head->whole);
}

mics_status comm_mpi_share(void *ctx, const mics_ring *ring, size_t bytes, void **memory_out)
{
    static const comm_share_ops ops = {
        .make = make, .find = find, .made = made, .drop = comm_mpi_unshare};
    comm_mpi *self = ctx;
    for (int32_t member = 0; member < ring->group.size; member++) {
        if (!comm_near_reaches(self, mics_group_rank(ring->group, member)))
            return mics_fail(MICS_ERR_UNSUPPORTED,
                             "%s: rank %d and rank %d do not share memory; set run.share_params to "
                             "false",
                             ring->what, (int)self->base.rank,
                             (int)mics_group_rank(ring->group, member));
    }
    return comm_share_by(&self->base, &ops, ring, bytes, memory_out);
}
