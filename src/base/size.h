// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Checked sizes: int64_t counts elements, size_t counts bytes, and no product of either wraps.
#pragma once

#include "mics/status.h"
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* a * b for non-negative numbers of elements.
 *
 * Units:   elements.
 * Needs:   a >= 0, b >= 0.
 * Returns: MICS_OK; MICS_ERR_INVALID, logged, when an operand is negative or the product exceeds
 * int64_t.
 */
mics_status mics_size_mul(int64_t a, int64_t b, int64_t *product_out);

/* elems * elem_bytes, in bytes.
 *
 * Needs:   elems >= 0.
 * Returns: MICS_OK; MICS_ERR_INVALID, logged, when negative or beyond size_t.
 */
mics_status mics_size_bytes(int64_t elems, size_t elem_bytes, size_t *bytes_out);

/* The smallest multiple of `multiple` that is not below `value`. Needs value >= 0, multiple >= 1.
 */
int64_t mics_size_round_up(int64_t value, int64_t multiple);

/* "1.50 GiB", "12.0 MiB", "640 B": for people. Writes at most `capacity` characters; returns
 * `text`.
 *
 * Needs:   capacity >= 1; bytes >= 0.
 * Returns: `text`.
 */
char *mics_size_text(double bytes, char *text, size_t capacity);

#ifdef __cplusplus
}
#endif
