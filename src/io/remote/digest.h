// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// SHA-256, and signatures by it, by libcrypto; and what else servers say of an object's bytes.
#pragma once

#include "mics/status.h"
#include <stddef.h>

enum { REMOTE_DIGEST_BYTES = 32, REMOTE_DIGEST_TEXT_BYTES = 65 }; // hexadecimal digits and a NUL

/* Returns: MICS_OK; MICS_ERR_UNSUPPORTED, logged: there is no libcrypto. */
mics_status remote_sha256(const void *data, size_t bytes, char text[REMOTE_DIGEST_TEXT_BYTES]);

enum { REMOTE_CHECKSUM_BYTES = 100 };

/* A checksum in the form of S3: "sha256: BASE64", also crc64nvme, crc32c, crc32. Of the name of `promised`; one that
 * is not known here gives `promised`. Returns: as remote_sha256. */
mics_status remote_checksum(const char *promised, const void *data, size_t bytes,
                            char text[REMOTE_CHECKSUM_BYTES]);

/* HMAC-SHA-256. The result may take the key's place. Returns: as remote_sha256. */
mics_status remote_hmac(const void *key, size_t key_bytes, const char *text,
                        unsigned char digest[REMOTE_DIGEST_BYTES]);
