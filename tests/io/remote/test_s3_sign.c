// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Signatures as botocore makes them, and who signs by environment and files.
#include "io/remote/s3_sign.h"
#include "test.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LINE = 8192, FIELDS = 10 };

static const char *some(const char *field)
{
    return strcmp(field, "-") == 0 ? "" : field;
}

static void test_signatures(void **state)
{
    (void)state;
    char line[LINE], authorization[S3_TEXT_BYTES];
    int lines = 0;
    FILE *golden = fopen(MICS_TEST_DATA "/s3_signatures.txt", "re");
    assert_non_null(golden);
    for (; fgets(line, sizeof line, golden) != NULL; lines++) {
        const char *fields[FIELDS];
        char *rest = line;
        line[strcspn(line, "\n")] = '\0';
        for (int i = 0; i < FIELDS; i++)
            assert_non_null(fields[i] = strsep(&rest, "\t"));
        s3_account account = {.key = "AKIDEXAMPLE"};
        snprintf(account.secret, sizeof account.secret, "%s", fields[0]);
        snprintf(account.token, sizeof account.token, "%s", some(fields[1]));
        snprintf(account.region, sizeof account.region, "%s", fields[2]);
        const s3_request request = {.method = fields[3],
                                    .host = fields[4],
                                    .path = fields[5],
                                    .query = some(fields[6]),
                                    .hash = fields[7]};
        assert_int_equal(s3_sign(&account, &request, fields[8], authorization), MICS_OK);
        assert_string_equal(authorization, fields[9]);
    }
    assert_int_equal(lines, 12);
    fclose(golden);
}

static void test_escape(void **state)
{
    (void)state;
    char text[32] = "x";
    assert_true(s3_escape("", true, text, sizeof text));
    assert_string_equal(text, "");
    assert_true(s3_escape("a/b c+d~e%", true, text, sizeof text));
    assert_string_equal(text, "a/b%20c%2Bd~e%25");
    assert_true(s3_escape("a/\xc3\xa9", false, text, sizeof text));
    assert_string_equal(text, "a%2F%C3%A9");
    assert_false(s3_escape("0123456789012345678901234567890123456789", false, text, sizeof text));
    assert_true(strlen(text) < sizeof text);
}

static void write_file(const char *path, const char *text)
{
    FILE *to = fopen(path, "we");
    assert_non_null(to);
    fputs(text, to);
    fclose(to);
}

static void test_accounts(void **state)
{
    (void)state;
    static const char *const names[] = {
        "AWS_ACCESS_KEY_ID",  "AWS_SECRET_ACCESS_KEY",      "AWS_SESSION_TOKEN", "AWS_REGION",
        "AWS_DEFAULT_REGION", "AWS_ENDPOINT_URL_S3",        "AWS_ENDPOINT_URL",  "AWS_PROFILE",
        "AWS_CONFIG_FILE",    "AWS_SHARED_CREDENTIALS_FILE"};
    char folder[] = "/tmp/mics_s3_XXXXXX", credentials[64], config[64];
    s3_account account;
    assert_non_null(mkdtemp(folder));
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        unsetenv(names[i]);
    setenv("HOME", folder, 1);
    s3_account_read(&account);
    assert_string_equal(account.key, "");
    assert_string_equal(account.endpoint, "");
    assert_string_equal(account.region, "us-east-1");

    snprintf(credentials, sizeof credentials, "%s/credentials", folder);
    snprintf(config, sizeof config, "%s/config", folder);
    write_file(credentials, "[default]\naws_access_key_id = a\naws_secret_access_key=b\n"
                            "[work]\r\naws_access_key_id=c\r\naws_secret_access_key = d \r\n"
                            "aws_session_token=e\r\n");
    write_file(config, "[default]\nregion = eu-west-1\n[profile work]\nregion=eu-north-1\n"
                       "endpoint_url = http://minio:9000\n");
    setenv("AWS_SHARED_CREDENTIALS_FILE", credentials, 1);
    setenv("AWS_CONFIG_FILE", config, 1);
    s3_account_read(&account);
    assert_string_equal(account.key, "a");
    assert_string_equal(account.secret, "b");
    assert_string_equal(account.token, "");
    assert_string_equal(account.region, "eu-west-1");
    setenv("AWS_PROFILE", "work", 1);
    s3_account_read(&account);
    assert_string_equal(account.key, "c");
    assert_string_equal(account.secret, "d");
    assert_string_equal(account.token, "e");
    assert_string_equal(account.region, "eu-north-1");
    assert_string_equal(account.endpoint, "http://minio:9000");

    // A pair of the environment takes no token of a file, and half of one is none.
    setenv("AWS_ACCESS_KEY_ID", "f", 1);
    s3_account_read(&account);
    assert_string_equal(account.key, "c");
    setenv("AWS_SECRET_ACCESS_KEY", "g", 1);
    setenv("AWS_REGION", "ap-south-1", 1);
    setenv("AWS_ENDPOINT_URL", "http://other", 1);
    setenv("AWS_ENDPOINT_URL_S3", "http://s3", 1);
    s3_account_read(&account);
    assert_string_equal(account.key, "f");
    assert_string_equal(account.secret, "g");
    assert_string_equal(account.token, "");
    assert_string_equal(account.region, "ap-south-1");
    assert_string_equal(account.endpoint, "http://s3");
    setenv("AWS_SESSION_TOKEN", "two\nlines", 1); // would be another header
    s3_account_read(&account);
    assert_string_equal(account.token, "");
    unlink(credentials);
    unlink(config);
    rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_signatures),
                                       cmocka_unit_test(test_escape),
                                       cmocka_unit_test(test_accounts)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
