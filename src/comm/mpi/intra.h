// SPDX-FileCopyrightText: The mics authors
// Exchanges between ranks of a node; not in a turn, unless it says so.
#pragma once

#include "comm/mpi/transport.h"

/* Finds out whether the ranks of a node can read each other's memory. If they cannot, boxes stays
 * NULL, which is no error. */
mics_status comm_intra_open(comm_mpi *self, MPI_Comm node);
void comm_intra_close(comm_mpi *self);

/* Whether a rank, or this one, is reached without MPI. MICS_RANK_NONE is not. */
static inline bool comm_intra_reaches(const comm_mpi *self, int32_t rank)
{
    const comm_intra *intra = &self->intra;
    return intra->boxes != NULL && rank >= intra->first &&
           rank < intra->first + self->base.ranks_per_node &&
           (intra->node_ranks == 0 ||
            rank / intra->node_ranks == self->base.rank / intra->node_ranks);
}

/* What is waited for may have come when this number has changed. */
uint32_t comm_intra_listen(const comm_mpi *self, int32_t channel);

/* Looks for a moment whether there is news since `heard` was listened to. */
bool comm_intra_poll(const comm_mpi *self, int32_t channel, uint32_t heard);

/* Sleeps for `longest_us` < 1e6, or until there is news since `heard` was listened to. */
void comm_intra_sleep(const comm_mpi *self, int32_t channel, uint32_t heard, double longest_us);

/* Offers what the exchange sends to the rank that it sends to. The last offer has been taken. */
void comm_intra_offer(comm_mpi *self, const mics_exchange *exchange, uint64_t hash);

/* Whether this rank's offer has been taken. */
bool comm_intra_is_taken(const comm_mpi *self, int32_t channel);

/* For the end: what is offered and not taken yet must not be. */
void comm_intra_withdraw(comm_mpi *self);

/* Whether rank `from` offers this one something that has not been taken, and what that is. */
bool comm_intra_is_offered(const comm_mpi *self, int32_t from, int32_t channel, uint64_t *bytes_out,
                           uint64_t *hash_out);

/* Takes what is offered; the sizes are the same. *there_out is false when the other process is
 * gone; then something may have been added, and this must not be tried again.
 *
 * Returns: MICS_OK; MICS_ERR_COMM; MICS_ERR_ABORTED when the sender has withdrawn.
 */
mics_status comm_intra_take(comm_mpi *self, const mics_exchange *exchange, bool *there_out);
