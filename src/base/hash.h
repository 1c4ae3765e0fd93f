// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// FNV-1a with 64 bits, for short keys and names. Initial weights depend on it, so what it gives
// never changes.
// Source: Fowler, Noll, Vo, Eastlake, The FNV Non-Cryptographic Hash Algorithm,
// draft-eastlake-fnv, section 5.
#pragma once

#include <stddef.h>
#include <stdint.h>

#define MICS_FNV1A_BEGIN UINT64_C(0xcbf29ce484222325)

/* Takes `count` bytes into a hash, which is MICS_FNV1A_BEGIN before the first.     Threads: any. */
static inline uint64_t mics_fnv1a(uint64_t hash, const void *bytes, size_t count)
{
    const unsigned char *at = (const unsigned char *)bytes;
    for (size_t i = 0; i < count; i++)
        hash = (hash ^ at[i]) * UINT64_C(0x100000001b3);
    return hash;
}
