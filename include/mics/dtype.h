// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// What numbers are held in.
#ifndef MICS_DTYPE_H
#define MICS_DTYPE_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum mics_dtype {
    MICS_DTYPE_FP32,
    MICS_DTYPE_BF16, // the upper half of fp32; rounded to nearest, ties to even
    MICS_DTYPE_FP16, // IEEE 754 binary16; rounded likewise, infinity beyond 65504
    MICS_DTYPES
} mics_dtype;

/* Bytes of one number. */
static inline size_t mics_dtype_bytes(mics_dtype dtype)
{
    return dtype == MICS_DTYPE_FP32 ? 4 : 2;
}

/* "fp32", "bf16", "fp16"; never NULL. */
const char *mics_dtype_text(mics_dtype dtype);

#ifdef __cplusplus
}
#endif
#endif
