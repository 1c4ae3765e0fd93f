// SPDX-FileCopyrightText: The mics authors
// Heartbeats.
#pragma once

#include "comm/mpi/transport.h"

/* Makes what heartbeats need, their thread too, which waits for comm_heartbeat_start. Not
 * collective.
 *
 * Returns: MICS_OK; MICS_ERR_MEMORY. Ends with comm_heartbeat_fini in both cases.
 */
mics_status comm_heartbeat_open(comm_mpi *self, int32_t rank, int32_t ranks);

/* Begins: the world is open. */
mics_status comm_heartbeat_start(comm_mpi *self);

/* Ends the thread. */
void comm_heartbeat_stop(comm_heartbeat *beat);

/* After comm_heartbeat_stop, on every rank, if heartbeats have begun: says goodbye to the monitors,
 * and as one hears it from all. Then no message is under way. */
mics_status comm_heartbeat_part(comm_mpi *self, double timeout_s);

/* Frees; stops first. A zeroed one is allowed. */
void comm_heartbeat_fini(comm_mpi *self);

void comm_mpi_post(void *ctx, const mics_heartbeat *heartbeat);
bool comm_mpi_read(void *ctx, int32_t rank, mics_heartbeat *heartbeat_out, double *age_s_out);
