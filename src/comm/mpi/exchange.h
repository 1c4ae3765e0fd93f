// SPDX-FileCopyrightText: The mics authors
// One exchange.
#ifndef MICS_COMM_MPI_EXCHANGE_H
#define MICS_COMM_MPI_EXCHANGE_H

#include "comm/mpi/transport.h"

mics_status comm_mpi_exchange(void *ctx, const mics_exchange *exchange);

#endif
