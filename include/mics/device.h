// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// What the machine has for this process: cores and memory, after affinity and control groups have
// taken their share.
#ifndef MICS_DEVICE_H
#define MICS_DEVICE_H

#include "mics/status.h"
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct mics_machine {
    int32_t cores; // this process may use: affinity, and the control group's quota rounded up
    size_t memory_total_bytes;     // of the machine, or the control group's limit if that is less
    size_t memory_available_bytes; // that can be allocated now without swapping
    char cpu_name[96];             // "Intel(R) Xeon(R) ...", or "unknown"
    char isa[96]; // vector extensions that matter here: "avx2 fma avx512f"; may be empty
} mics_machine;

/* Reads what Linux says of machine and process: /proc, sched_getaffinity, control groups v1 and v2.
 *
 * Returns: MICS_OK; MICS_ERR_IO (no /proc/meminfo, or it says nothing of memory; machine_out
 *          untouched).
 * Threads: any.
 */
mics_status mics_machine_read(mics_machine *machine_out);

#ifdef __cplusplus
}
#endif
#endif
