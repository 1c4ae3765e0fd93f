// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// SHA-256, by which hubs name large files. Source: FIPS 180-4.
#pragma once

#include <stddef.h>
#include <stdint.h>

enum { SHA256_BLOCK_BYTES = 64, SHA256_TEXT_BYTES = 65 };

typedef struct remote_sha256 {
    uint32_t state[8];
    uint64_t bytes; // taken
    uint8_t block[SHA256_BLOCK_BYTES];
} remote_sha256;

void remote_sha256_begin(remote_sha256 *hash);
void remote_sha256_take(remote_sha256 *hash, const void *data, size_t bytes);
/* Ends it, as 64 hexadecimal digits and a NUL. */
void remote_sha256_end(remote_sha256 *hash, char text[SHA256_TEXT_BYTES]);
