// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
#include "io/remote/digest.h"
#include "io/remote/library.h"
#include "mics/log.h"
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

// Of openssl/sha.h, evp.h and hmac.h.
static unsigned char *(*sha256)(const void *data, size_t bytes, unsigned char *digest);
static const void *(*evp_sha256)(void);
static unsigned char *(*hmac)(const void *kind, const void *key, int key_bytes,
                              const unsigned char *data, size_t bytes, unsigned char *digest,
                              unsigned int *digest_bytes);
static pthread_once_t once = PTHREAD_ONCE_INIT;
static char why_not[REMOTE_WHY_BYTES];
static bool is_open;

static void open_library(void)
{
    static const char *const names[] = {"libcrypto.so.3", "libcrypto.so.1.1", NULL};
    const remote_symbol symbols[] = {
        {"SHA256", (void *)&sha256}, {"EVP_sha256", (void *)&evp_sha256}, {"HMAC", (void *)&hmac}};
    is_open = remote_library_open("MICS_CRYPTO_LIBRARY", names, symbols, 3, why_not);
}

static mics_status check_library(void)
{
    pthread_once(&once, open_library);
    return is_open ? MICS_OK
                   : mics_fail(MICS_ERR_UNSUPPORTED,
                               "libcrypto, which checks downloads, cannot be opened: %s; install "
                               "it (Debian: apt install libssl3), or name it in "
                               "MICS_CRYPTO_LIBRARY",
                               why_not);
}

mics_status remote_hmac(const void *key, size_t key_bytes, const char *text,
                        unsigned char digest[REMOTE_DIGEST_BYTES])
{
    MICS_TRY(check_library());
    (void)hmac(evp_sha256(), key, (int)key_bytes, (const unsigned char *)text, strlen(text), digest,
               NULL);
    return MICS_OK;
}

mics_status remote_sha256(const void *data, size_t bytes, char text[REMOTE_DIGEST_TEXT_BYTES])
{
    unsigned char raw[REMOTE_DIGEST_BYTES];
    MICS_TRY(check_library());
    (void)sha256(data, bytes, raw);
    for (size_t i = 0; i < REMOTE_DIGEST_BYTES; i++)
        snprintf(text + 2 * i, 3, "%02x", raw[i]);
    return MICS_OK;
}

// ---- checksums of S3 ----

// CRCs by their polynomials, reflected. Source: docs.aws.amazon.com/AmazonS3/latest/userguide/checking-object-integrity.html,
// 2026; reveng.sourceforge.io/crc-catalogue.
static const struct {
    const char *name;
    uint64_t polynomial; // 0: SHA-256
    size_t bytes;
} kinds[] = {{"sha256", 0, REMOTE_DIGEST_BYTES},
             {"crc64nvme", UINT64_C(0x9A6C9329AC4BC9B5), 8},
             {"crc32c", 0x82F63B78, 4},
             {"crc32", 0xEDB88320, 4}};

// Eight bytes a turn, by as many tables (Kounavis and Berry, 2005).
static uint64_t crc(uint64_t polynomial, const unsigned char *data, size_t bytes)
{
    uint64_t table[8][256], sum = polynomial >> 32 != 0 ? UINT64_MAX : UINT32_MAX;
    const uint64_t ones = sum;
    for (uint32_t i = 0; i < 256; i++) {
        uint64_t value = i;
        for (int bit = 0; bit < 8; bit++)
            value = value >> 1 ^ ((value & 1) != 0 ? polynomial : 0);
        table[0][i] = value;
    }
    for (uint32_t i = 0; i < 2048 - 256; i++)
        table[1 + i / 256][i % 256] =
            table[i / 256][i % 256] >> 8 ^ table[0][table[i / 256][i % 256] & 255];
    for (; bytes >= 8; bytes -= 8, data += 8) {
        uint64_t next = 0;
        for (int i = 0; i < 8; i++)
            next ^= table[7 - i][(sum >> 8 * i & 255) ^ data[i]];
        sum = next;
    }
    for (; bytes > 0; bytes--)
        sum = sum >> 8 ^ table[0][(sum & 255) ^ *data++];
    return sum ^ ones;
}

mics_status remote_checksum(const char *promised, const void *data, size_t bytes,
                            char text[REMOTE_CHECKSUM_BYTES])
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    unsigned char raw[REMOTE_DIGEST_BYTES + 2] = {0}; // base64 takes three a turn
    const size_t name = strcspn(promised, ":"), count = sizeof kinds / sizeof *kinds;
    size_t kind = 0, used = name + 1 + strspn(promised + name + 1, " ");
    while (kind < count &&
           (strlen(kinds[kind].name) != name || strncasecmp(kinds[kind].name, promised, name) != 0))
        kind++;
    snprintf(text, REMOTE_CHECKSUM_BYTES, "%s", promised);
    if (kind == count)
        return MICS_OK;
    const size_t raw_bytes = kinds[kind].bytes;
    MICS_TRY(check_library());
    if (kinds[kind].polynomial == 0)
        (void)sha256(data, bytes, raw);
    const uint64_t sum = kinds[kind].polynomial != 0 ? crc(kinds[kind].polynomial, data, bytes) : 0;
    for (size_t i = 0; kinds[kind].polynomial != 0 && i < raw_bytes; i++)
        raw[i] = (unsigned char)(sum >> 8 * (raw_bytes - 1 - i));
    for (size_t i = 0; i < raw_bytes; i += 3) {
        const uint32_t group = (uint32_t)raw[i] << 16 | (uint32_t)raw[i + 1] << 8 | raw[i + 2];
        for (size_t c = 0; c < 4; c++)
            text[used++] = i + c <= raw_bytes ? digits[group >> (18 - 6 * c) & 63] : '=';
    }
    text[used] = '\0';
    return MICS_OK;
}
