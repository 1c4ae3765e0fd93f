// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// What the plugin's device files share. Part of the plugin, not of libmics.
#pragma once

#include "mics/core/device.h"
#include "mics/status.h"
#include <stdbool.h>
#include <stdint.h>

enum {
    MICS_CUDA_MAX_DEVICES = 64,
    MICS_CUDA_MIN_MAJOR = 8 // compute capability; bf16 matrix products
};

/* Keeps the first failure of device `index`, and logs it once: what a later call finds is mostly
 * the same one again.
 *
 * Returns: MICS_ERR_DEVICE.   Threads: any. */
mics_status mics_cuda_keep(int32_t index, const char *what, const char *why);

/* Whether a failure of device `index` is kept: MICS_OK, or MICS_ERR_DEVICE in silence. */
mics_status mics_cuda_kept(int32_t index);

/* Forgets it; when a device is opened anew. */
void mics_cuda_forget(int32_t index);

/* Whether a GPU may be opened, as far as is known without opening it; else why not, in one line. */
bool mics_cuda_is_usable(int32_t index, char *why_not, size_t bytes);
