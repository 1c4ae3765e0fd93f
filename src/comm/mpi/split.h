// SPDX-FileCopyrightText: The mics authors
// Splits the world into nodes; outside of turns.
#pragma once

#include "comm/mpi/transport.h"

/* A communicator of this rank's node, its ranks in the world's order, within the transport's
 * time-out.
 *
 * Returns: MICS_OK; MICS_ERR_MEMORY; MICS_ERR_PEER when another rank had no memory;
 *          MICS_ERR_TIMEOUT, MICS_ERR_COMM: the world is broken.
 * Owns:    *node_out belongs to the caller.         Collective: yes.
 */
mics_status comm_mpi_split_nodes(comm_mpi *self, MPI_Comm *node_out);
