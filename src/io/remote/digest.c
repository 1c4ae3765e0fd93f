// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
#include "io/remote/digest.h"
#include "io/remote/library.h"
#include "mics/log.h"
#include <pthread.h>
#include <stdio.h>

enum { SHA256_BYTES = 32 };

// Of openssl/sha.h.
static unsigned char *(*sha256)(const void *data, size_t bytes, unsigned char *digest);
static pthread_once_t once = PTHREAD_ONCE_INIT;
static char why_not[REMOTE_WHY_BYTES];
static bool is_open;

static void open_library(void)
{
    static const char *const names[] = {"libcrypto.so.3", "libcrypto.so.1.1", NULL};
    const remote_symbol symbol = {"SHA256", (void *)&sha256};
    is_open = remote_library_open("MICS_CRYPTO_LIBRARY", names, &symbol, 1, why_not);
}

mics_status remote_sha256(const void *data, size_t bytes, char text[REMOTE_DIGEST_TEXT_BYTES])
{
    unsigned char raw[SHA256_BYTES];
    pthread_once(&once, open_library);
    if (!is_open)
        return mics_fail(MICS_ERR_UNSUPPORTED,
                         "libcrypto, which checks downloads, cannot be opened: %s; install it "
                         "(Debian: apt install libssl3), or name it in MICS_CRYPTO_LIBRARY",
                         why_not);
    (void)sha256(data, bytes, raw);
    for (size_t i = 0; i < SHA256_BYTES; i++)
        snprintf(text + 2 * i, 3, "%02x", raw[i]);
    return MICS_OK;
}
