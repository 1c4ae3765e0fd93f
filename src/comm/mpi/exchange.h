// SPDX-FileCopyrightText: The mics authors
// One exchange.
#pragma once

#include "comm/mpi/transport.h"

mics_status comm_mpi_exchange(void *ctx, const mics_exchange *exchange);
