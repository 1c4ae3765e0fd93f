// SPDX-FileCopyrightText: The mics authors
// Inter-node parameter sync as changes.
#pragma once

#include "engine/internal.h"

/* Before a run of a list: whether this rank wants numbers in its parameter syncs. */
void deltas_begin(mics_engine *engine);

/* Codes this rank's block of what a parameter sync gathers, for receivers that have what is in
 * `blocks`; then the block has the new numbers, of the masters. `over`: all ranks, to whom its bytes
 * go.
 *
 * Returns: MICS_OK; MICS_ERR_COMM, logged: a rank tells what cannot be; as mics_comm_exchange.
 */
mics_status deltas_code(mics_engine *engine, const mics_step *sync, const mics_comm_group *over,
                        void *blocks);

/* Gathers what was coded into `blocks`, behind deltas_code.
 *
 * Returns: MICS_OK; MICS_ERR_COMM, logged: a change does not decode; as mics_comm_exchange.
 */
mics_status deltas_gather(const mics_engine *engine, const mics_step *sync,
                          const mics_comm_group *over, void *blocks);
