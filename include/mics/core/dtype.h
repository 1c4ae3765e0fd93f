// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// What numbers are held in.
#ifndef MICS_DTYPE_H
#define MICS_DTYPE_H

#include <stddef.h>
#include <stdint.h>

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

// ---- comm_dtype ----
// Numbers as they travel: floats whole, or rounded to fewer bytes. Memory and sums are fp32.

typedef enum mics_comm_dtype {
    MICS_COMM_FP32,
    MICS_COMM_BF16, // nearest, ties to even
    // Blocks of MICS_COMM_INT8_BLOCK elements, the last one shorter, each with one fp32 scale: its
    // largest magnitude / 127, cut to 17 significant bits, so that an element times it is exact.
    // All scales stand first, then all elements: v / scale, nearest, ties to even, in -127 ... 127.
    // The scale is 0, and so are the elements, where it would be denormal (magnitudes below
    // 1.5e-36), and NaN where the block holds a NaN or an infinity.
    MICS_COMM_INT8,
    // Likewise with two elements a byte, the even one in the low half, v + 8 of -7 ... 7; the scale
    // is the largest magnitude / 7. Of changes at meetings alone (mics_outer).
    MICS_COMM_INT4,
    MICS_COMM_DTYPES
} mics_comm_dtype;

enum { MICS_COMM_INT8_BLOCK = 256 };

// How one kind of numbers travels: in intra-node collectives, and in inter-node ones.
typedef struct mics_comm_dtypes {
    mics_comm_dtype intra, inter;
} mics_comm_dtypes;

/* The same on both hops. */
static inline mics_comm_dtypes mics_comm_dtypes_both(mics_comm_dtype dtype)
{
    const mics_comm_dtypes dtypes = {dtype, dtype};
    return dtypes;
}

/* "fp32", "bf16", "int8", "int4"; never NULL. */
const char *mics_comm_dtype_text(mics_comm_dtype dtype);

/* Bytes that `elems` numbers take; those of INT8 and INT4 are rounded up to 64. Needs elems >= 0. */
static inline size_t mics_comm_dtype_bytes(mics_comm_dtype dtype, int64_t elems)
{
    const size_t n = (size_t)elems;
    if (dtype == MICS_COMM_BF16)
        return 2 * n;
    if (dtype == MICS_COMM_INT8)
        return (n + (n + MICS_COMM_INT8_BLOCK - 1) / MICS_COMM_INT8_BLOCK * 4 + 63) / 64 * 64;
    if (dtype == MICS_COMM_INT4)
        return ((n + 1) / 2 + (n + MICS_COMM_INT8_BLOCK - 1) / MICS_COMM_INT8_BLOCK * 4 + 63) / 64 *
               64;
    return 4 * n;
}

#ifdef __cplusplus
}
#endif
#endif
