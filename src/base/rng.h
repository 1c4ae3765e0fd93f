// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Counter-based random numbers: each is a pure function of (seed, stream, index), so any rank can
// make any element of a sharded tensor and the values do not depend on the mesh.
#pragma once

#include <stdint.h>

/* Philox4x32-10: 128 random bits of a 64-bit key and a 128-bit counter.
 *
 * Shapes:  counter: (4); bits_out: (4).
 * Needs:   nothing; any numbers.
 * Source: Salmon et al., Parallel random numbers: as easy as 1, 2, 3, SC11.   Threads: any.
 */
void mics_rng_philox(uint64_t key, const uint32_t counter[4], uint32_t bits_out[4]);

/* 64 random bits of (seed, stream, index).
 *
 * Needs:   nothing; any numbers.
 */
uint64_t mics_rng_bits(uint64_t seed, uint64_t stream, uint64_t index);

/* Uniform in [0, 1), 53 bits.
 *
 * Units:   none.
 * Needs:   nothing; any numbers.
 */
double mics_rng_uniform(uint64_t seed, uint64_t stream, uint64_t index);

/* Standard normal (Box-Muller in double precision).
 *
 * Units:   none.
 * Needs:   nothing; any numbers.
 */
double mics_rng_normal(uint64_t seed, uint64_t stream, uint64_t index);

/* Position of `index` in the pseudo-random permutation of [0, count) named by (seed, stream).
 *
 * A Feistel network with cycle walking, so no table: any rank finds any sample at once. Up to 16 a
 * shuffled table, by which all orders are equally likely.
 * Needs:   count >= 1, index < count.
 */
uint64_t mics_rng_permute(uint64_t seed, uint64_t stream, uint64_t count, uint64_t index);
