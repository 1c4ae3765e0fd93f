// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
#include "io/remote/sha256.h"
#include <stdio.h>
#include <string.h>

static const uint32_t constants[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

static uint32_t rotate(uint32_t x, int by)
{
    return x >> by | x << (32 - by);
}

// One round; its variables take the next one's places by name, as copies would cost more than it.
#define ROUND(a, b, c, d, e, f, g, h, i)                                                           \
    do {                                                                                           \
        (h) += (rotate(e, 6) ^ rotate(e, 11) ^ rotate(e, 25)) + (((e) & (f)) ^ (~(e) & (g))) +     \
               constants[i] + w[i];                                                                \
        (d) += (h);                                                                                \
        (h) += (rotate(a, 2) ^ rotate(a, 13) ^ rotate(a, 22)) +                                    \
               (((a) & (b)) ^ ((a) & (c)) ^ ((b) & (c)));                                          \
    } while (0)

static void take_block(uint32_t state[8], const uint8_t *block)
{
    uint32_t w[64], s[8];
    for (int i = 0; i < 16; i++)
        w[i] = (uint32_t)block[4 * i] << 24 | (uint32_t)block[4 * i + 1] << 16 |
               (uint32_t)block[4 * i + 2] << 8 | block[4 * i + 3];
    for (int i = 16; i < 64; i++)
        w[i] = w[i - 16] + w[i - 7] +
               (rotate(w[i - 15], 7) ^ rotate(w[i - 15], 18) ^ w[i - 15] >> 3) +
               (rotate(w[i - 2], 17) ^ rotate(w[i - 2], 19) ^ w[i - 2] >> 10);
    memcpy(s, state, sizeof s);
    for (int i = 0; i < 64; i += 8) {
        ROUND(s[0], s[1], s[2], s[3], s[4], s[5], s[6], s[7], i);
        ROUND(s[7], s[0], s[1], s[2], s[3], s[4], s[5], s[6], i + 1);
        ROUND(s[6], s[7], s[0], s[1], s[2], s[3], s[4], s[5], i + 2);
        ROUND(s[5], s[6], s[7], s[0], s[1], s[2], s[3], s[4], i + 3);
        ROUND(s[4], s[5], s[6], s[7], s[0], s[1], s[2], s[3], i + 4);
        ROUND(s[3], s[4], s[5], s[6], s[7], s[0], s[1], s[2], i + 5);
        ROUND(s[2], s[3], s[4], s[5], s[6], s[7], s[0], s[1], i + 6);
        ROUND(s[1], s[2], s[3], s[4], s[5], s[6], s[7], s[0], i + 7);
    }
    for (int i = 0; i < 8; i++)
        state[i] += s[i];
}

void remote_sha256_begin(remote_sha256 *hash)
{
    *hash = (remote_sha256){.state = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f,
                                      0x9b05688c, 0x1f83d9ab, 0x5be0cd19}};
}

void remote_sha256_take(remote_sha256 *hash, const void *data, size_t bytes)
{
    const uint8_t *at = data;
    while (bytes > 0) {
        const size_t used = hash->bytes % SHA256_BLOCK_BYTES, left = SHA256_BLOCK_BYTES - used;
        const size_t part = bytes < left ? bytes : left;
        if (part == SHA256_BLOCK_BYTES) {
            take_block(hash->state, at);
        } else {
            memcpy(hash->block + used, at, part);
            if (part == left)
                take_block(hash->state, hash->block);
        }
        hash->bytes += part;
        at += part;
        bytes -= part;
    }
}

void remote_sha256_end(remote_sha256 *hash, char text[SHA256_TEXT_BYTES])
{
    static const uint8_t padding[SHA256_BLOCK_BYTES] = {0x80};
    const uint64_t bits = hash->bytes * 8;
    const size_t used = hash->bytes % SHA256_BLOCK_BYTES;
    uint8_t length[8];
    for (int i = 0; i < 8; i++)
        length[i] = (uint8_t)(bits >> (56 - 8 * i));
    remote_sha256_take(hash, padding, (used < 56 ? 56 : 120) - used);
    remote_sha256_take(hash, length, sizeof length);
    for (int i = 0; i < 8; i++)
        snprintf(text + 8 * i, 9, "%08x", (unsigned)hash->state[i]);
}
