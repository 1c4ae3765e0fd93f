// SPDX-FileCopyrightText: The mics authors
// Point-to-point exchanges over MPI.
#pragma once

#include "comm/mpi/transport.h"

mics_status comm_mpi_exchange(void *ctx, const mics_exchange *exchange);
