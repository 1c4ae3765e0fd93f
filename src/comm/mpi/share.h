// SPDX-FileCopyrightText: The mics authors
// Memory that ranks of a node share.
#pragma once

#include "comm/mpi/transport.h"

/* `bytes` of zeroes that the other processes of the node find by the ticket. After the last has
 * looked, the maker calls comm_node_memory_made.
 *
 * Returns: NULL when that cannot be; errno says why.     Owns: comm_node_memory_drop gives it back.
 */
void *comm_node_memory_make(uint64_t mark, size_t bytes, comm_ticket *ticket_out);
void *comm_node_memory_find(const comm_ticket *ticket, size_t bytes);
void comm_node_memory_made(const comm_ticket *ticket);
void comm_node_memory_drop(void *memory);

mics_status comm_mpi_share(void *ctx, const mics_comm_group *over, size_t bytes, void **memory_out);
void comm_mpi_unshare(void *ctx, void *memory);
