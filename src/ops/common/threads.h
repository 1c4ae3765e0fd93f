// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// The one thing that kernels ask of the thread library. The build picks threads_openmp.c or
// threads_serial.c.
#pragma once

#include <stdint.h>

/* Number of the calling thread in its team, from 0. Threads: any. */
int32_t mics_op_thread(void);
