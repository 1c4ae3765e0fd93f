// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Heartbeats: what ranks are seen doing by others, and who says why a partner is late.
#ifndef MICS_HEARTBEAT_H
#define MICS_HEARTBEAT_H

#include "mics/core/comm.h"
#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Puts this rank's newest status into its heartbeats, in place of the one before. Nobody is waited
 * for: heartbeats travel beside the exchanges, a few a second, also while this rank is in one.
 *
 * Threads: any.   Collective: no.   Blocks: no.
 */
void mics_comm_heartbeat_post(mics_comm *comm, const mics_heartbeat *heartbeat);

/* The newest status of a rank that has reached this one, and the seconds since a heartbeat of that
 * rank did (ranks as threads: 0, as they live as long as this one). Heartbeats reach the monitors,
 * the first and the last rank of the world (ranks as threads: every rank); a rank always reads its
 * own.
 *
 * Units:   age_s_out: seconds.
 * Needs:   0 <= rank < comm->ranks.
 * Returns: false when there is none (outputs untouched).
 * Threads: any.   Collective: no.   Blocks: no.
 */
bool mics_comm_heartbeat_read(mics_comm *comm, int32_t rank, mics_heartbeat *heartbeat_out,
                              double *age_s_out);

/* Lets `handler` speak when an exchange of this rank times out; NULL: the transport does. It says
 * who waited for whom; a handler that reads heartbeats can say why.
 *
 * Needs:   no exchange of this comm under way. The context outlives the comm or the next call.
 * Owns:    nothing; `handler_ctx` is the caller's.
 */
void mics_comm_set_timeout_handler(mics_comm *comm, mics_timeout_handler handler,
                                   void *handler_ctx);

#ifdef __cplusplus
}
#endif
#endif
