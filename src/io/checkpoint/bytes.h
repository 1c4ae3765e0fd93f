// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Little-endian numbers in byte arrays, at any alignment.
#ifndef MICS_CHECKPOINT_BYTES_H
#define MICS_CHECKPOINT_BYTES_H

#include <stdint.h>
#include <string.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
               "checkpoint and safetensors data need a little-endian machine");

static inline void put_u32(unsigned char *at, uint32_t value)
{
    memcpy(at, &value, sizeof value);
}

static inline uint32_t get_u32(const unsigned char *at)
{
    uint32_t value;
    memcpy(&value, at, sizeof value);
    return value;
}

static inline void put_u64(unsigned char *at, uint64_t value)
{
    memcpy(at, &value, sizeof value);
}

static inline uint64_t get_u64(const unsigned char *at)
{
    uint64_t value;
    memcpy(&value, at, sizeof value);
    return value;
}

#endif
