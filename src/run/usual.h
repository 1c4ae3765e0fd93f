// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// The cluster that a machine counts as.
#pragma once

#include "run/sizing.h"

/* Ranks of `threads` threads and links for plans without run.cluster: the same for all machines, so
 * that the same run file is planned alike everywhere.
 *
 * Returns: MICS_OK; MICS_ERR_INVALID, logged: more ranks a node than a cluster can have.
 */
mics_status run_usual_cluster(const run_budget *budget, int32_t threads, mics_cluster *cluster_out);
