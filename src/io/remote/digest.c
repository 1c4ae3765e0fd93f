// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
#include "io/remote/digest.h"
#include "io/remote/library.h"
#include "mics/log.h"
#include <pthread.h>
#include <stdio.h>
#include <string.h>

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
