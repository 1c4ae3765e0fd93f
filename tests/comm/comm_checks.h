// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Checks of every collective against a plain sum in the order that mics/comm.h states, bit for
// bit. They run on any transport; the same call on every rank.
#pragma once

#include "mics/core/comm.h"
#include "mics/memory.h"
#include <stdbool.h>

/* This rank's group of a kind: 0 the world; then ranges and columns of the sizes that divide.
 *
 * Returns the number of kinds that a world of `ranks` has; fills group_out when kind is below it.
 */
int32_t checks_group(int32_t ranks, int32_t rank, int32_t kind, mics_group *group_out);

/* Each collective once over one group, with blocks of `elems` floats owned as permutation number
 * `order` says (0: identity). Wrong bits and writes outside of the buffer are errors. */
mics_status checks_ring(mics_comm *comm, mics_memory *memory, mics_group group, int32_t order,
                        int64_t elems, int32_t channel);

/* All groups and orders, sizes up to `elems_max`, `rounds` of them chosen by a fixed seed. */
mics_status checks_many_rings(mics_comm *comm, mics_memory *memory, int32_t rounds,
                              int64_t elems_max, int32_t channel);

/* Exchanges with oneself, both neighbours, one neighbour, and only one way; copied and added. */
mics_status checks_exchanges(mics_comm *comm, mics_memory *memory, size_t bytes);

/* A broadcast of `bytes` from every root. */
mics_status checks_broadcast(mics_comm *comm, mics_memory *memory, size_t bytes);

/* Exchanges that a rank makes in an agreement. */
int64_t checks_hops(int32_t ranks);

/* Agreement with nobody failing, each rank alone, and all. */
mics_status checks_agree(mics_comm *comm);

/* Many rings on both channels at once, by two threads a rank. */
mics_status checks_channels(mics_comm *comm, mics_memory *memory, int32_t rounds,
                            int64_t elems_max);

/* Channel 0 stalls until channel 1 has done all that it does. */
mics_status checks_stalled_channel(mics_comm *comm, mics_memory *memory);

/* Memory shared by each kind of group: zeroes first, then what every member writes, twice; an error where
 * members do not share any. */
mics_status checks_share(mics_comm *comm, size_t bytes);

/* A heartbeat that names a rank and a value. */
mics_heartbeat checks_heartbeat(int32_t rank, int32_t value);

/* Three heartbeats of every rank, each of which the monitors (or everybody) read while all are in
 * exchanges. Before, no rank has posted any. */
mics_status checks_heartbeats(mics_comm *comm, bool everybody);
