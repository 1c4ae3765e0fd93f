// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// bf16 numbers as changes of those that the receiver has: lossless, for any bits. An optimizer's
// step moves most by few units in the last place; how many depends on the exponent, known to both.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Most bytes that a coded block of so many numbers takes, a multiple of 8.   Needs: elems >= 0. */
size_t mics_delta_bound(int64_t elems);

/* Codes `now` for a receiver that has `old`: the same numbers, the same bytes.
 *
 * Shapes:  old, now (elems >= 0); coded: mics_delta_bound(elems) bytes, aligned to 2.
 * Returns: bytes used, a multiple of 8; the rest is undefined.   Threads: 80 KB of stack.
 */
size_t mics_delta_encode(const uint16_t *old, const uint16_t *now, int64_t elems, void *coded);

/* Decodes a block in place: old numbers become new ones. Reads nothing outside `coded`, whatever it
 * holds. There is no checksum: damage may also yield other numbers.
 *
 * Shapes:  values (elems >= 0); coded (bytes), aligned to 2.
 * Returns: false if that is no block of so many numbers and bytes; `values` are then undefined.
 */
bool mics_delta_decode(uint16_t *values, int64_t elems, const void *coded, size_t bytes);
