// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Names of remote files, heads of responses, SHA-256, and what is secret.
#include "base/text.h"
#include "io/remote/digest.h"
#include "io/remote/http.h"
#include "io/remote/hub.h"
#include "io/remote/remote.h"
#include "io/remote/s3.h"
#include "mics/log.h"
#include "test.h"
#include <arpa/inet.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static void test_names(void **state)
{
    (void)state;
    static const struct {
        const char *text, *repo, *revision, *path;
        bool dataset;
    } good[] = {
        {"org/name", "org/name", "main", "", false},
        {"org/name/", "org/name", "main", "", false},
        {"org/a.b-c_d@v1", "org/a.b-c_d", "v1", "", false},
        {"org/name@refs%2Fpr%2F1/x", "org/name", "refs/pr/1", "x", false},
        {"org/name/a/b.txt", "org/name", "main", "a/b.txt", false},
        {"datasets/org/name@v/data/*.jsonl", "org/name", "v", "data/*.jsonl", true},
        {"datasets/org/name/data/", "org/name", "main", "data", true},
        {"org/name/a@b", "org/name", "main", "a@b", false},
    };
    static const char *const bad[] = {"",
                                      "org",
                                      "org/",
                                      "/name",
                                      "../name",
                                      "org/..",
                                      "org/na me",
                                      "org/name@",
                                      "org/name@..",
                                      "org/name@a%2F..%2Fb",
                                      "org/name/../x",
                                      "org/name/a//b",
                                      "datasets/org"};
    remote_hub_name name;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        assert_true(remote_hub_parse(good[i].text, &name));
        assert_string_equal(name.repo, good[i].repo);
        assert_string_equal(name.revision, good[i].revision);
        assert_string_equal(name.path, good[i].path);
        assert_int_equal(name.dataset, good[i].dataset);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        if (remote_hub_parse(bad[i], &name))
            fail_msg("%s is taken as %s, %s, %s", bad[i], name.repo, name.revision, name.path);
    }
}

static void test_schemes(void **state)
{
    (void)state;
    assert_true(mics_remote_is("hf://a/b"));
    assert_true(mics_remote_is("https://a/b"));
    assert_true(mics_remote_is("s3://a/b"));
    assert_false(mics_remote_is("a/b"));
    assert_false(mics_remote_is("://a"));
    assert_false(mics_remote_is("./hf://a/b"));
}

static void test_paths(void **state)
{
    (void)state;
    static const char *const good[] = {"a", "a/b", ".a", "..a", "a/...", "a..b/c"};
    static const char *const bad[] = {"",   "/",   "/a",  "a/",     ".",
                                      "..", "./a", "a/.", "a/../b", "a//b"};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        assert_true(remote_path_is_safe(good[i]));
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_false(remote_path_is_safe(bad[i]));
}

static void take(remote_response *response, const char *line)
{
    remote_http_take_header(response, line, strlen(line));
}

static void test_heads(void **state)
{
    (void)state;
    remote_response response = {0};
    take(&response, "HTTP/1.1 302 Found\r\n");
    take(&response, "ETag: \"first\"\r\n");
    take(&response, "X-Error-Code: GatedRepo\r\n");
    assert_int_equal(response.status, 302);
    assert_string_equal(response.code, "GatedRepo");
    take(&response, "HTTP/2 206 \r\n"); // what the redirection said is gone
    assert_int_equal(response.status, 206);
    assert_string_equal(response.etag, "");
    assert_string_equal(response.code, "");
    assert_int_equal(response.bytes, -1);
    take(&response, "content-length: 5\r\n"); // of the part
    assert_int_equal(response.bytes, -1);
    take(&response, "Content-Range:bytes 5-9/10\r\n");
    assert_int_equal(response.begin, 5);
    assert_int_equal(response.bytes, 10);
    take(&response, "etag:   W/\"a b\"\r\n");
    assert_string_equal(response.etag, "W/\"a b\"");
    take(&response, "Content-Range: bytes */77\r\n");
    assert_int_equal(response.begin, -1);
    assert_int_equal(response.bytes, 77);
    take(&response, "HTTP/1.1 200 OK");
    take(&response, "Content-Length: 99999999999\r\n");
    assert_int_equal(response.bytes, 99999999999);
    take(&response, "Content-Length: -3\r\n");
    assert_int_equal(response.bytes, -1);
    take(&response, "HTTP/1.1 junk\r\n");
    assert_int_equal(response.status, 0);
}

// By sha256sum.
static void test_sha256(void **state)
{
    (void)state;
    char text[REMOTE_DIGEST_TEXT_BYTES];
    assert_int_equal(remote_sha256("", 0, text), MICS_OK);
    assert_string_equal(text, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    assert_int_equal(remote_sha256("a", 1, text), MICS_OK);
    assert_string_equal(text, "ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb");
}

// The check values of reveng's catalogue, and of "" and "a" as above.
static void test_checksums(void **state)
{
    (void)state;
    static const struct {
        const char *text, *sum;
    } known[] = {{"123456789", "crc32: y/Q5Jg=="},
                 {"123456789", "crc32c: 4waSgw=="},
                 {"123456789", "crc64nvme: rosUhgp5mIg="},
                 {"", "sha256: 47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU="},
                 {"a", "SHA256:ypeBEsobvcr6wjGzmiPcTaeG7/gUfE5yuYB3ha/uSLs="},
                 {"a", "md5: nobody knows"}};
    static const char long_text[] = "12345678901234567890123456789012345678901";
    char sum[REMOTE_CHECKSUM_BYTES], other[REMOTE_CHECKSUM_BYTES];
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        assert_int_equal(remote_checksum(known[i].sum, known[i].text, strlen(known[i].text), sum),
                         MICS_OK);
        assert_string_equal(sum, known[i].sum);
    }
    for (size_t i = 0; i < sizeof known / sizeof *known - 1;
         i++) { // a byte behind those of a turn counts
        assert_int_equal(remote_checksum(known[i].sum, long_text, 41, sum), MICS_OK);
        assert_int_equal(remote_checksum(known[i].sum, long_text, 40, other), MICS_OK);
        assert_string_not_equal(sum, other);
    }
    remote_response response = {.status = 200};
    remote_http_take_header(&response, "x-amz-checksum-type: FULL_OBJECT\r\n", 34);
    remote_http_take_header(&response, "x-amz-checksum-sha256: abc=-3\r\n", 31);
    assert_string_equal(response.checksum, "");
    remote_http_take_header(&response, "X-Amz-Checksum-crc32: y/Q5Jg==\r\n", 32);
    assert_string_equal(response.checksum, "crc32: y/Q5Jg==");
}

// What no line of a log and no file may have.
static void test_secrets(void **state)
{
    (void)state;
    static const char *const pairs[][2] = {
        {"https://a/b?sig=s", "https://a/b"},
        {"https://u:p@a/b", "https://a/b"},
        {"HTTPS://u:p@a/b?s", "HTTPS://a/b"},
        {"https://u:p@q@a/b?x=1&y=@", "https://a/b"},
        {"x http://u@a:8/b?s is \"https://c?t\", 1?", "x http://a:8/b is \"https://c\", 1?"},
        {"https://a/b@c", "https://a/b@c"},
        {"https://a?s", "https://a"},
        {"hf://datasets/a/b/c-?.txt", "hf://datasets/a/b/c-?.txt"},
        {"://", "://"},
        {"https://", "https://"},
        {"why?", "why?"},
    };
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        char text[64];
        snprintf(text, sizeof text, "%s", pairs[i][0]);
        mics_text_hide_secrets(text);
        assert_string_equal(text, pairs[i][1]);
    }
}

// ---- a server that is silent ----

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static char log_text[8192];

static void keep_line(void *ctx, mics_log_level level, int32_t rank, const char *line)
{
    (void)ctx;
    (void)rank;
    pthread_mutex_lock(&mutex);
    const size_t used = strlen(log_text);
    snprintf(log_text + used, sizeof log_text - used, "%d %s\n", (int)level, line);
    pthread_mutex_unlock(&mutex);
}

static mics_status put_object(void)
{
    return remote_s3_put("s3://bucket/put", "x", 1);
}

static mics_status read_length(void)
{
    char byte;
    size_t got = 0;
    int64_t bytes = 0;
    return remote_s3_read("s3://bucket/length", 0, &byte, 1, &got, &bytes);
}

static mics_status begin_upload(void)
{
    remote_s3_upload *upload = NULL;
    mics_memory *memory = NULL;
    ASSERT_OK(mics_memory_open(&memory));
    const mics_status status =
        remote_s3_upload_begin(memory, "s3://bucket/upload", 9 << 20, 0, &upload);
    mics_memory_close(memory);
    return status;
}

typedef struct silent_call {
    mics_status (*run)(void);
    const char *name;
    pthread_t thread;
    mics_status status;
} silent_call;

static void *run_call(void *ctx)
{
    silent_call *call = ctx;
    call->status = call->run();
    return NULL;
}

static int count_of(const char *text)
{
    int count = 0;
    for (const char *at = log_text; (at = strstr(at, text)) != NULL; at++)
        count++;
    return count;
}

// The kernel takes connections and bytes, and nobody answers.
static void test_silence(void **state)
{
    (void)state;
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof to;
    char text[128];
    silent_call calls[] = {{.run = put_object, .name = "put"},
                           {.run = read_length, .name = "length"},
                           {.run = begin_upload, .name = "upload"}};
    const size_t count = sizeof calls / sizeof *calls;
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_true(fd >= 0 && bind(fd, (struct sockaddr *)&to, bytes) == 0 && listen(fd, 64) == 0 &&
                getsockname(fd, (struct sockaddr *)&to, &bytes) == 0);
    snprintf(text, sizeof text, "http://127.0.0.1:%d", (int)ntohs(to.sin_port));
    setenv("AWS_ENDPOINT_URL", text, 1);
    setenv("no_proxy", "127.0.0.1", 1);
    setenv("MICS_REMOTE_SILENT_S", "0.1", 1);
    unsetenv("AWS_ENDPOINT_URL_S3");
    unsetenv("HF_HUB_OFFLINE");
    mics_log_set_sink(keep_line, NULL);
    for (size_t i = 0; i < count; i++)
        assert_int_equal(pthread_create(&calls[i].thread, NULL, run_call, &calls[i]), 0);
    for (size_t i = 0; i < count; i++)
        pthread_join(calls[i].thread, NULL);
    mics_log_set_sink(NULL, NULL);
    close(fd);
    if (calls[0].status == MICS_ERR_UNSUPPORTED)
        skip();
    for (size_t i = 0; i < count; i++) {
        ASSERT_STATUS(MICS_ERR_COMM, calls[i].status);
        snprintf(text, sizeof text, "1 s3://bucket/%s: the server is silent: no byte came or went",
                 calls[i].name);
        assert_int_equal(count_of(text), 4);
        snprintf(text, sizeof text, "0 s3://bucket/%s: no answer came from 127.0.0.1:%d: no byte",
                 calls[i].name, (int)ntohs(to.sin_port));
        assert_int_equal(count_of(text), 1);
    }
    assert_int_equal(count_of("(MICS_REMOTE_SILENT_S); look at AWS_ENDPOINT_URL and the network"),
                     3);
    setenv("MICS_REMOTE_SILENT_S", "soon", 1);
    mics_log_hold(true);
    ASSERT_STATUS(MICS_ERR_COMM, put_object());
    mics_log_release(false, -1);
    unsetenv("MICS_REMOTE_SILENT_S");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names),   cmocka_unit_test(test_schemes),
        cmocka_unit_test(test_paths),   cmocka_unit_test(test_heads),
        cmocka_unit_test(test_sha256),  cmocka_unit_test(test_checksums),
        cmocka_unit_test(test_secrets), cmocka_unit_test(test_silence)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
