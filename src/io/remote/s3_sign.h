// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Who asks an S3 server, where that is, and the signature by which it knows both: Signature Version 4.
// Source: docs.aws.amazon.com/AmazonS3/latest/API/sig-v4-header-based-auth.html, 2026.
#pragma once

#include "mics/status.h"
#include <stdbool.h>
#include <stddef.h>

enum { S3_TEXT_BYTES = 4096, S3_DATE_BYTES = 17 };

// As the environment and the files of ~/.aws have it.
typedef struct s3_account {
    char key[256], secret[256]; // "": requests are not signed, as public buckets allow
    char token[S3_TEXT_BYTES];  // of a session; "": none
    char region[64];
    char endpoint[512]; // "https://host:port"; "": AWS'
} s3_account;

typedef struct s3_request {
    const char *method, *host;
    const char *path;  // escaped
    const char *query; // escaped, sorted, each with its "="; "": none
    const char *hash;  // SHA-256 of the body, or UNSIGNED-PAYLOAD
} s3_request;

/* Reads who asks. Threads: any that nobody sets the environment in. */
void s3_account_read(s3_account *account_out);

/* Escapes all but letters, digits, "-._~" and, in paths, "/". Returns: whether it fits. Pure. */
bool s3_escape(const char *text, bool path, char *out, size_t capacity);

/* The value of the header Authorization. `date`: 20130524T000000Z. Returns: as remote_sha256. */
mics_status s3_sign(const s3_account *account, const s3_request *request, const char *date,
                    char authorization[S3_TEXT_BYTES]);
