// SPDX-FileCopyrightText: The mics authors
// Waiting for MPI, in the caller's turn, but for comm_mpi_await and comm_mpi_is_broken.
#pragma once

#include "comm/mpi/transport.h"

/* MICS_OK, or an error with MPI's text. */
mics_status comm_mpi_check(int code, const char *what);

/* Tests one request, if it is active; *done_out is set when it is done. */
mics_status comm_mpi_test(MPI_Request *request, const char *what, bool *done_out);

/* Called when a poll found nothing. Sleeps outside of the turn, once nothing has moved since
 * `since_us` for a moment. */
void comm_mpi_give_way(comm_mpi *self, double since_us);

/* Calls the time-out handler, outside of the turn; once: who comes later waits until it has spoken.
 * Returns MICS_ERR_TIMEOUT. */
mics_status comm_mpi_report_timeout(comm_mpi *self, const mics_timeout *timeout);

/* Waits for one of MPI's own collectives; `code` is what starting it gave. */
mics_status comm_mpi_await(comm_mpi *self, int code, MPI_Request *request, const char *what,
                           double timeout_s);

/* Not in a turn. */
bool comm_mpi_is_broken(comm_mpi *self);
