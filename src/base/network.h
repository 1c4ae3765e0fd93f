// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Network cards of this machine.
#pragma once

/* Rate of all RDMA ports of this machine that are up (InfiniBand, RoCE, EFA), as Linux tells it.
 *
 * `sys`: where its tree of devices is; NULL: /sys.
 * Units:   bytes per second.
 * Returns: 0 where there are none, or nothing is told.      Threads: any.
 */
double mics_network_bytes_per_s(const char *sys);
