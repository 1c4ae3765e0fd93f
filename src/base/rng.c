// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Philox4x32-10 and what is drawn from it.
#include "base/rng.h"
#include <math.h>

void mics_rng_philox(uint64_t key, const uint32_t counter[4], uint32_t bits_out[4])
{
    // Multipliers and Weyl constants of Salmon et al., SC11, table 2 and section 3.
    const uint32_t m0 = 0xD2511F53u, m1 = 0xCD9E8D57u;
    uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);
    uint32_t c0 = counter[0], c1 = counter[1], c2 = counter[2], c3 = counter[3];
    for (int round = 0; round < 10; round++) {
        uint64_t p0 = (uint64_t)m0 * c0, p1 = (uint64_t)m1 * c2;
        uint32_t n0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0, n2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c1 = (uint32_t)p1;
        c3 = (uint32_t)p0;
        c0 = n0;
        c2 = n2;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    bits_out[0] = c0;
    bits_out[1] = c1;
    bits_out[2] = c2;
    bits_out[3] = c3;
}

static void bits_128(uint64_t seed, uint64_t stream, uint64_t index, uint32_t bits_out[4])
{
    const uint32_t counter[4] = {(uint32_t)index, (uint32_t)(index >> 32), (uint32_t)stream,
                                 (uint32_t)(stream >> 32)};
    mics_rng_philox(seed, counter, bits_out);
}

uint64_t mics_rng_bits(uint64_t seed, uint64_t stream, uint64_t index)
{
    uint32_t bits[4];
    bits_128(seed, stream, index, bits);
    return (uint64_t)bits[0] | (uint64_t)bits[1] << 32;
}

// 53 bits as a fraction in [0, 1).
static double fraction(uint32_t low, uint32_t high)
{
    uint64_t bits = (uint64_t)low | (uint64_t)high << 32;
    return (double)(bits >> 11) * 0x1p-53;
}

double mics_rng_uniform(uint64_t seed, uint64_t stream, uint64_t index)
{
    uint32_t bits[4];
    bits_128(seed, stream, index, bits);
    return fraction(bits[0], bits[1]);
}

double mics_rng_normal(uint64_t seed, uint64_t stream, uint64_t index)
{
    uint32_t bits[4];
    bits_128(seed, stream, index, bits);
    const double two_pi = 6.283185307179586476925286766559;
    double radius = sqrt(-2.0 * log1p(-fraction(bits[0], bits[1]))); // 1 - u is never 0
    return radius * cos(two_pi * fraction(bits[2], bits[3]));
}

enum { FEW = 16 };

// As a table: rounds of one or two bits give some orders more often than others.
static uint64_t permute_few(uint64_t seed, uint64_t stream, uint64_t count, uint64_t index)
{
    uint8_t order[FEW] = {0};
    for (uint64_t i = 0; i < count; i++)
        order[i] = (uint8_t)i;
    for (uint64_t left = count; left > 1; left--) { // Fisher and Yates
        const uint64_t other = mics_rng_bits(seed, stream, left - 1) % left;
        const uint8_t last = order[left - 1];
        order[left - 1] = order[other];
        order[other] = last;
    }
    return order[index];
}

uint64_t mics_rng_permute(uint64_t seed, uint64_t stream, uint64_t count, uint64_t index)
{
    if (count <= FEW)
        return permute_few(seed, stream, count, index);
    int half_bits = 1; // the network permutes [0, 4^half_bits), the smallest such range >= count
    while (half_bits < 32 && ((uint64_t)1 << (2 * half_bits)) < count)
        half_bits++;
    const uint64_t mask = ((uint64_t)1 << half_bits) - 1;
    do { // walk until the image falls below count; at most 4 rounds on average
        uint64_t left = index >> half_bits, right = index & mask;
        for (uint64_t round = 0; round < 6; round++) {
            uint64_t mixed = mics_rng_bits(seed, stream, right << 3 | round) & mask;
            uint64_t next = left ^ mixed;
            left = right;
            right = next;
        }
        index = left << half_bits | right;
    } while (index >= count);
    return index;
}
