// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// mics_machine_read with the file system's root and the affinity given, for tests.
#pragma once

#include "mics/core/device.h"

/* Reads ROOT/proc and ROOT/sys/fs/cgroup; `cores` are those of the affinity mask.
 *
 * Returns: as mics_machine_read.
 */
mics_status mics_machine_read_at(const char *root, int32_t cores, mics_machine *machine_out);
