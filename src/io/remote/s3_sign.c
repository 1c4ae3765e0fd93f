// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
#include "io/remote/s3_sign.h"
#include "base/text.h"
#include "io/remote/digest.h"
#include "mics/log.h"
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CANONICAL_BYTES = 4 * S3_TEXT_BYTES };

// ---- the signature ----

mics_status s3_sign(const s3_account *account, const s3_request *request, const char *date,
                    char authorization[S3_TEXT_BYTES])
{
    char text[CANONICAL_BYTES], hash[REMOTE_DIGEST_TEXT_BYTES], scope[128], day[9], secret[300];
    unsigned char key[REMOTE_DIGEST_BYTES];
    const bool token = account->token[0] != '\0';
    const char *const headers = token ? "host;x-amz-content-sha256;x-amz-date;x-amz-security-token"
                                      : "host;x-amz-content-sha256;x-amz-date";
    const char *const parts[] = {account->region, "s3", "aws4_request", text};
    snprintf(day, sizeof day, "%.8s", date);
    snprintf(scope, sizeof scope, "%s/%s/s3/aws4_request", day, account->region);
    int bytes = mics_text_format(
        text, sizeof text,
        "%s\n%s\n%s\nhost:%s\nx-amz-content-sha256:%s\nx-amz-date:%s\n%s%s%s\n%s\n%s",
        request->method, request->path, request->query, request->host, request->hash, date,
        token ? "x-amz-security-token:" : "", account->token, token ? "\n" : "", headers,
        request->hash);
    MICS_TRY(remote_sha256(text, (size_t)bytes, hash));
    snprintf(text, sizeof text, "AWS4-HMAC-SHA256\n%s\n%s\n%s", date, scope, hash);
    bytes = mics_text_format(secret, sizeof secret, "AWS4%s", account->secret);
    MICS_TRY(remote_hmac(secret, (size_t)bytes, day, key));
    for (int i = 0; i < 4; i++)
        MICS_TRY(remote_hmac(key, sizeof key, parts[i], key));
    bytes =
        snprintf(authorization, S3_TEXT_BYTES,
                 "AWS4-HMAC-SHA256 Credential=%s/%s, SignedHeaders=%s, Signature=", account->key,
                 scope, headers);
    for (size_t i = 0; i < sizeof key; i++)
        snprintf(authorization + (size_t)bytes + 2 * i, 3, "%02x", key[i]);
    return MICS_OK;
}

bool s3_escape(const char *text, bool path, char *out, size_t capacity)
{
    size_t used = 0;
    *out = '\0';
    for (; *text != '\0' && used + 4 <= capacity; text++) {
        const bool plain = isalnum((unsigned char)*text) || strchr("-._~", *text) != NULL ||
                           (path && *text == '/');
        used += (size_t)snprintf(out + used, capacity - used, plain ? "%c" : "%%%02X",
                                 (unsigned char)*text);
    }
    return *text == '\0';
}

// ---- who asks ----

static bool take_env(const char *name, char *out, size_t capacity)
{
    const char *value = getenv(name);
    if (value != NULL && *value != '\0' && strpbrk(value, "\r\n") == NULL)
        mics_text_format(out, capacity, "%s", value);
    return *out != '\0';
}

// "name = value" of a section of a file in ~/.aws, unless `out` is taken.
static void take_line(const char *line, const char *name, char *out, size_t capacity)
{
    const size_t bytes = strlen(name);
    const char *value = strchr(line, '=');
    if (*out != '\0' || value == NULL || strncmp(line, name, bytes) != 0 ||
        line[bytes + strspn(line + bytes, " \t")] != '=')
        return;
    value += 1 + strspn(value + 1, " \t");
    mics_text_format(out, capacity, "%.*s", (int)strcspn(value, " \t\r\n"), value);
}

static void read_file(const char *said, const char *name, const char *section, s3_account *account)
{
    char path[S3_TEXT_BYTES] = "", line[S3_TEXT_BYTES + 64], title[256];
    const char *home = getenv("HOME");
    if (!take_env(said, path, sizeof path))
        mics_text_format(path, sizeof path, "%s/.aws/%s", home != NULL ? home : "", name);
    FILE *from = fopen(path, "re");
    mics_text_format(title, sizeof title, "[%s]", section);
    const bool keyed = account->key[0] != '\0'; // a pair comes from one place
    for (bool inside = false; from != NULL && fgets(line, sizeof line, from) != NULL;) {
        inside = line[0] == '[' ? strncmp(line, title, strlen(title)) == 0 : inside;
        if (!inside)
            continue;
        take_line(line, "region", account->region, sizeof account->region);
        take_line(line, "endpoint_url", account->endpoint, sizeof account->endpoint);
        if (keyed)
            continue;
        take_line(line, "aws_access_key_id", account->key, sizeof account->key);
        take_line(line, "aws_secret_access_key", account->secret, sizeof account->secret);
        take_line(line, "aws_session_token", account->token, sizeof account->token);
    }
    if (from != NULL)
        fclose(from);
}

void s3_account_read(s3_account *account_out)
{
    s3_account *account = account_out;
    char profile[200] = "", section[256];
    *account = (s3_account){.key = ""};
    if (take_env("AWS_ACCESS_KEY_ID", account->key, sizeof account->key) &&
        take_env("AWS_SECRET_ACCESS_KEY", account->secret, sizeof account->secret))
        take_env("AWS_SESSION_TOKEN", account->token, sizeof account->token);
    else
        account->key[0] = '\0';
    if (!take_env("AWS_REGION", account->region, sizeof account->region))
        take_env("AWS_DEFAULT_REGION", account->region, sizeof account->region);
    if (!take_env("AWS_ENDPOINT_URL_S3", account->endpoint, sizeof account->endpoint))
        take_env("AWS_ENDPOINT_URL", account->endpoint, sizeof account->endpoint);
    const bool named = take_env("AWS_PROFILE", profile, sizeof profile);
    read_file("AWS_SHARED_CREDENTIALS_FILE", "credentials", named ? profile : "default", account);
    mics_text_format(section, sizeof section, "profile %s", profile);
    read_file("AWS_CONFIG_FILE", "config", named ? section : "default", account);
    if (account->region[0] == '\0')
        mics_text_format(account->region, sizeof account->region, "us-east-1");
}
