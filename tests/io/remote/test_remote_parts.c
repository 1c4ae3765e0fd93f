// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Names of remote files, heads of responses, and SHA-256.
#include "io/remote/http.h"
#include "io/remote/hub.h"
#include "io/remote/sha256.h"
#include "test.h"
#include <string.h>

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

// Of FIPS 180-4's examples, and lengths around a block's end; by sha256sum.
static void test_sha256(void **state)
{
    (void)state;
    static const struct {
        size_t bytes; // of letters "a"
        const char *text;
    } known[] = {
        {0, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"},
        {1, "ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb"},
        {55, "9f4390f8d30c2dd92ec9f095b65e2b9ae9b0a925a5258e241c9f1e910f734318"},
        {56, "b35439a4ac6f0948b6d6f9e3c6af0f5f590ce20f1bde7090ef7970686ec6738a"},
        {63, "7d3e74a05d7db15bce4ad9ec0658ea98e3f06eeecf16b4c6fff2da457ddc2f34"},
        {64, "ffe054fe7ae0cb6dc65c3af9b61d5209f439851db43d0ba5997337df154668eb"},
        {65, "635361c48bb9eab14198e76ea8ab7f1a41685d6ad62aa9146d301d4f17eb0ae0"},
        {119, "31eba51c313a5c08226adf18d4a359cfdfd8d2e816b13f4af952f7ea6584dcfb"},
        {120, "2f3d335432c70b580af0e8e1b3674a7c020d683aa5f73aaaedfdc55af904c21c"},
        {1000000, "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0"},
    };
    static char letters[1000000];
    char text[SHA256_TEXT_BYTES];
    memset(letters, 'a', sizeof letters);
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        for (size_t part = 1; part < 200; part += 62) { // in parts of any length
            remote_sha256 hash;
            remote_sha256_begin(&hash);
            for (size_t at = 0; at < known[i].bytes; at += part)
                remote_sha256_take(&hash, letters + at,
                                   known[i].bytes - at < part ? known[i].bytes - at : part);
            remote_sha256_end(&hash, text);
            assert_string_equal(text, known[i].text);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_names), cmocka_unit_test(test_schemes),
                                       cmocka_unit_test(test_paths), cmocka_unit_test(test_heads),
                                       cmocka_unit_test(test_sha256)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
