// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// A server that speaks S3, for tests of buckets: stub_s3 ROOT PORTFILE [NAMES].
//
// The object KEY of BUCKET is the file ROOT/BUCKET/KEY, and ROOT/BUCKET must be there. An upload in parts is
// a folder of ROOT/uploads. A list has NAMES names a page. A file in ROOT/faults, "METHOD TEXT STATUS CODE",
// is the answer to one request whose line has TEXT, and goes with it; status 0 ends the connection behind
// what was done, and one below 0 leaves it without an answer. ROOT/head has a line that heads of objects have. A CODE
// that is a number is how many bytes of the answer come before the end. ROOT/requests.log has a line a request: "METHOD TARGET RANGE STATUS". Signatures
// are not checked (tests/io/remote/test_s3_sign.c does), but that one is there, and of the key "key".
#include "stub.h"
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <unistd.h>

enum { LINE = 8192, PATH = 3 * LINE, MAX_BODY = 1 << 28 };

typedef struct request {
    char method[16], target[LINE], path[LINE], query[LINE], range[64], signature[LINE], hash[80];
    char token[256];
    size_t bytes;
    char *body;
} request;

static const char *root;
static int names_of_page = 1000;

// ---- requests ----

static void take_line(request *r, const char *line)
{
    const char *value = strchr(line, ':');
    value = value != NULL ? value + 1 + strspn(value + 1, " ") : "";
    if (strncasecmp(line, "Range:", 6) == 0)
        snprintf(r->range, sizeof r->range, "%s", value);
    if (strncasecmp(line, "Authorization:", 14) == 0)
        snprintf(r->signature, sizeof r->signature, "%s", value);
    if (strncasecmp(line, "x-amz-content-sha256:", 21) == 0)
        snprintf(r->hash, sizeof r->hash, "%s", value);
    if (strncasecmp(line, "x-amz-security-token:", 21) == 0)
        snprintf(r->token, sizeof r->token, "%s", value);
    if (strncasecmp(line, "Content-Length:", 15) == 0)
        r->bytes = (size_t)strtoull(value, NULL, 10);
}

static int read_request(FILE *in, request *r)
{
    char line[LINE];
    free(r->body);
    *r = (request){.bytes = 0};
    if (fgets(line, sizeof line, in) == NULL ||
        sscanf(line, "%15s %8000s", r->method, r->target) != 2)
        return 0;
    snprintf(r->path, sizeof r->path, "%.*s", (int)strcspn(r->target, "?"), r->target);
    const char *query = strchr(r->target, '?');
    snprintf(r->query, sizeof r->query, "%s", query != NULL ? query + 1 : "");
    stub_unescape(r->path);
    while (fgets(line, sizeof line, in) != NULL && line[0] != '\r') {
        line[strcspn(line, "\r\n")] = '\0';
        take_line(r, line);
    }
    r->body = r->bytes < MAX_BODY ? malloc(r->bytes + 1) : NULL;
    if (r->body == NULL || fread(r->body, 1, r->bytes, in) != r->bytes)
        return 0;
    r->body[r->bytes] = '\0';
    return strstr(r->path, "..") == NULL;
}

// A value of the query; "" where there is none.
static const char *asked(const request *r, const char *name, char value[LINE])
{
    const size_t bytes = strlen(name);
    value[0] = '\0';
    for (const char *at = r->query; *at != '\0'; at += strcspn(at, "&"), at += *at == '&') {
        if (strncmp(at, name, bytes) == 0 && at[bytes] == '=')
            snprintf(value, LINE, "%.*s", (int)strcspn(at + bytes + 1, "&"), at + bytes + 1);
    }
    stub_unescape(value);
    return value;
}

// ---- answers ----

static void log_request(const request *r, int status)
{
    char path[PATH];
    snprintf(path, sizeof path, "%s/requests.log", root);
    FILE *to = fopen(path, "a");
    if (to == NULL)
        return;
    fprintf(to, "%s %s %s %d\n", r->method, r->target, r->range[0] != '\0' ? r->range : "-",
            status);
    fclose(to);
}

static void answer(FILE *out, const request *r, int status, const char *head, const char *body)
{
    log_request(r, status);
    fprintf(out, "HTTP/1.1 %d Stub\r\n%sContent-Length: %zu\r\n\r\n%s", status, head, strlen(body),
            strcmp(r->method, "HEAD") == 0 ? "" : body);
}

static void refuse(FILE *out, const request *r, int status, const char *code)
{
    char body[LINE];
    snprintf(body, sizeof body,
             "<?xml version=\"1.0\"?><Error><Code>%s</Code><Message>as told</Message></Error>",
             code);
    answer(out, r, status, "", body);
}

// Of a part that is stored: another one of the same number has another.
static void tag_of(const char *path, char tag[64])
{
    struct stat facts = {.st_size = -1};
    (void)stat(path, &facts);
    snprintf(tag, 64, "\"%llx-%llx\"", (long long)facts.st_ino, (long long)facts.st_size);
}

static void make_folder_of(const char *path)
{
    char folder[PATH];
    for (const char *slash = strchr(path + 1, '/'); slash != NULL; slash = strchr(slash + 1, '/')) {
        snprintf(folder, sizeof folder, "%.*s", (int)(slash - path), path);
        (void)mkdir(folder, 0755);
    }
}

static int place(const char *unplaced, const char *path)
{
    for (int i = 0; i < 100; i++) { // another process may remove a prefix in between
        make_folder_of(path);
        if (rename(unplaced, path) == 0)
            return 1;
    }
    return 0;
}

// Whole or not at all, as a bucket has it.
static int store(const char *path, const char *bytes, size_t count)
{
    char unplaced[PATH];
    snprintf(unplaced, sizeof unplaced, "%s/unplaced-%d", root, (int)getpid());
    FILE *to = fopen(unplaced, "wb");
    const int good = to != NULL && fwrite(bytes, 1, count, to) == count;
    return (to == NULL || fclose(to) == 0) && good && place(unplaced, path);
}

static char *load(const char *path, size_t *bytes_out)
{
    struct stat facts;
    FILE *from = fopen(path, "rb");
    char *bytes = NULL;
    if (from != NULL && fstat(fileno(from), &facts) == 0 && S_ISREG(facts.st_mode))
        bytes = malloc((size_t)facts.st_size + 1);
    if (bytes != NULL) {
        *bytes_out = fread(bytes, 1, (size_t)facts.st_size, from);
        bytes[*bytes_out] = '\0';
    }
    if (from != NULL)
        fclose(from);
    return bytes;
}

// Of bytes and name.
static void write_etag(FILE *out, const char *path)
{
    struct stat facts = {.st_size = 0};
    (void)stat(path, &facts);
    fprintf(out, "ETag: \"%llx-%llx%09llx\"\r\n", (long long)facts.st_size,
            (long long)facts.st_mtim.tv_sec, (long long)facts.st_mtim.tv_nsec);
}

static void get(FILE *out, const request *r, const char *path)
{
    char line[256] = "", head[PATH];
    long long from = 0, last = 0;
    size_t bytes = 0;
    char *object = load(path, &bytes);
    if (object == NULL) {
        refuse(out, r, 404, "NoSuchKey");
        return;
    }
    const int numbers = sscanf(r->range, "bytes=%lld-%lld", &from, &last), part = numbers > 0;
    last = numbers == 1 ? (long long)bytes - 1 : last;
    last = part && last < (long long)bytes - 1 ? last : (long long)bytes - 1;
    if (part && from > last) {
        refuse(out, r, 416, "InvalidRange");
    } else {
        log_request(r, part ? 206 : 200);
        fprintf(out, "HTTP/1.1 %d Stub\r\nContent-Length: %lld\r\n", part ? 206 : 200,
                last - from + 1);
        write_etag(out, path);
        snprintf(head, sizeof head, "%s/head", root);
        FILE *more = strcmp(r->method, "HEAD") == 0 ? fopen(head, "r") : NULL;
        if (more != NULL && fgets(line, sizeof line, more) != NULL)
            fprintf(out, "%.*s\r\n", (int)strcspn(line, "\n"), line);
        if (more != NULL)
            fclose(more);
        if (part)
            fprintf(out, "Content-Range: bytes %lld-%lld/%zu\r\n", from, last, bytes);
        fputs("\r\n", out);
        if (strcmp(r->method, "HEAD") != 0)
            fwrite(object + from, 1, (size_t)(last - from + 1), out);
    }
    free(object);
}

// ---- lists ----

// All objects whose keys begin so, as lists without a delimiter have them: in one page.
static void list_below(FILE *to, const char *folder, const char *key, const char *prefix)
{
    char path[PATH + 300], below[PATH + 300];
    struct dirent **entries = NULL;
    struct stat facts;
    const int count = scandir(folder, &entries, NULL, alphasort);
    for (int i = 0; i < count; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, entries[i]->d_name);
        snprintf(below, sizeof below, "%s%s", key, entries[i]->d_name);
        if (entries[i]->d_name[0] != '.' && stat(path, &facts) == 0 && S_ISDIR(facts.st_mode)) {
            strcat(below, "/");
            list_below(to, path, below, prefix);
        } else if (entries[i]->d_name[0] != '.' && strncmp(below, prefix, strlen(prefix)) == 0) {
            fprintf(to, "<Contents><Key>");
            for (const char *c = below; *c != '\0'; c++)
                fprintf(to, strchr("+& %", *c) != NULL ? "%%%02X" : "%c", (unsigned char)*c);
            fprintf(to,
                    "</Key><ETag>&quot;%llx-%llx%09llx&quot;</ETag><Size>%lld</Size></Contents>",
                    (long long)facts.st_size, (long long)facts.st_mtim.tv_sec,
                    (long long)facts.st_mtim.tv_nsec, (long long)facts.st_size);
        }
        free(entries[i]);
    }
    free(entries);
}

static void list_all(FILE *out, const request *r, const char *bucket)
{
    char prefix[LINE], folder[PATH], *body = NULL;
    size_t used = 0;
    FILE *to = open_memstream(&body, &used);
    snprintf(folder, sizeof folder, "%s/%s", root, bucket);
    fprintf(to, "<ListBucketResult><EncodingType>url</EncodingType>");
    list_below(to, folder, "", asked(r, "prefix", prefix));
    fprintf(to, "</ListBucketResult>");
    fclose(to);
    answer(out, r, 200, "", body);
    free(body);
}

static void list(FILE *out, const request *r, const char *bucket)
{
    char prefix[LINE], token[LINE], folder[PATH], path[PATH + 300], *body = NULL;
    size_t used = 0;
    struct dirent **entries = NULL;
    struct stat facts;
    int shown = 0;
    asked(r, "prefix", prefix);
    asked(r, "continuation-token", token);
    snprintf(folder, sizeof folder, "%s/%s/%s", root, bucket, prefix);
    const int count = scandir(folder, &entries, NULL, alphasort);
    FILE *to = open_memstream(&body, &used);
    fprintf(to, "<ListBucketResult><Name>%s</Name><Prefix>%s</Prefix>", bucket, prefix);
    for (int i = 0; i < count; i++) {
        const char *name = entries[i]->d_name;
        snprintf(path, sizeof path, "%s/%s", folder, name);
        if (name[0] == '.' || strcmp(name, token) <= 0 || stat(path, &facts) != 0)
            continue;
        if (shown++ == names_of_page) {
            fprintf(to, "<NextContinuationToken>%s</NextContinuationToken>",
                    entries[i - 1]->d_name);
            break;
        }
        fprintf(to,
                S_ISDIR(facts.st_mode) ? "<CommonPrefixes><Prefix>%s%s/</Prefix></CommonPrefixes>"
                                       : "<Contents><Key>%s%s</Key><Size>1</Size></Contents>",
                prefix, name);
    }
    for (int i = 0; i < count; i++)
        free(entries[i]);
    free(entries);
    fprintf(to, "</ListBucketResult>");
    fclose(to);
    answer(out, r, 200, "", body);
    free(body);
}

// ---- uploads ----

static void list_uploads(FILE *out, const request *r, const char *bucket)
{
    char prefix[LINE], path[PATH], whole[PATH], *body = NULL;
    size_t used = 0, bytes = 0;
    const struct dirent *entry;
    asked(r, "prefix", prefix);
    snprintf(whole, sizeof whole, "/%s/%s", bucket, prefix);
    snprintf(path, sizeof path, "%s/uploads", root);
    DIR *uploads = opendir(path);
    FILE *to = open_memstream(&body, &used);
    fprintf(to, "<ListMultipartUploadsResult>");
    while (uploads != NULL && (entry = readdir(uploads)) != NULL) {
        snprintf(path, sizeof path, "%s/uploads/%s/key", root, entry->d_name);
        char *key = load(path, &bytes);
        if (key != NULL && strncmp(key, whole, strlen(whole)) == 0)
            fprintf(to, "<Upload><Key>%s</Key><UploadId>%s</UploadId></Upload>",
                    key + 2 + strlen(bucket), entry->d_name);
        free(key);
    }
    if (uploads != NULL)
        closedir(uploads);
    fprintf(to, "</ListMultipartUploadsResult>");
    fclose(to);
    answer(out, r, 200, "", body);
    free(body);
}

static void begin(FILE *out, const request *r)
{
    static int count;
    char path[PATH], body[LINE], id[64];
    snprintf(id, sizeof id, "up+%d-%d", (int)getpid(), count++);
    snprintf(path, sizeof path, "%s/uploads/%s/key", root, id);
    (void)store(path, r->path, strlen(r->path));
    snprintf(body, sizeof body, "<R><UploadId>%s</UploadId></R>", id);
    answer(out, r, 200, "", body);
}

// Appends a file. Returns: whether it is there.
static int append(FILE *to, const char *path)
{
    struct stat facts;
    FILE *from = fopen(path, "rb");
    off_t at = 0;
    int good = from != NULL && fstat(fileno(from), &facts) == 0;
    while (good && at < facts.st_size)
        good = sendfile(fileno(to), fileno(from), &at, (size_t)(facts.st_size - at)) > 0;
    if (from != NULL)
        fclose(from);
    return good;
}

// Its parts in order become an object, if the request lists each with its tag.
static int join(const request *r, const char *id, const char *object)
{
    char path[PATH], unplaced[PATH], line[LINE], tag[64];
    snprintf(unplaced, sizeof unplaced, "%s/unplaced-%d", root, (int)getpid());
    FILE *to = fopen(unplaced, "wb");
    int part = 1, listed = 1;
    for (;; part++) {
        snprintf(path, sizeof path, "%s/uploads/%s/%d", root, id, part);
        tag_of(path, tag);
        snprintf(line, sizeof line, "<PartNumber>%d</PartNumber><ETag>%s</ETag>", part, tag);
        if (to == NULL || access(path, F_OK) != 0)
            break;
        listed = listed && strstr(r->body, line) != NULL && append(to, path);
    }
    return to != NULL && fclose(to) == 0 && listed && part > 1 && place(unplaced, object);
}

static void remove_upload(const char *id)
{
    char path[PATH];
    const struct dirent *entry;
    snprintf(path, sizeof path, "%s/uploads/%s", root, id);
    DIR *folder = opendir(path);
    while (folder != NULL && (entry = readdir(folder)) != NULL) {
        if (entry->d_name[0] != '.')
            (void)unlinkat(dirfd(folder), entry->d_name, 0);
    }
    if (folder != NULL)
        closedir(folder);
    (void)rmdir(path);
}

static void complete(FILE *out, const request *r, const char *id, const char *path)
{
    if (!join(r, id, path)) {
        refuse(out, r, 400, "InvalidPart");
    } else {
        remove_upload(id);
        answer(out, r, 200, "", "<CompleteMultipartUploadResult></CompleteMultipartUploadResult>");
    }
}

static void serve_upload(FILE *out, const request *r, const char *id, const char *path)
{
    char upload[PATH], part[LINE], tag[64], head[80];
    snprintf(upload, sizeof upload, "%s/uploads/%s/key", root, id);
    if (access(upload, F_OK) != 0) {
        refuse(out, r, 404, "NoSuchUpload");
    } else if (strcmp(r->method, "PUT") == 0) {
        snprintf(upload, sizeof upload, "%s/uploads/%s/%s", root, id, asked(r, "partNumber", part));
        (void)store(upload, r->body, r->bytes);
        tag_of(upload, tag);
        snprintf(head, sizeof head, "ETag: %s\r\n", tag);
        answer(out, r, 200, head, "");
    } else if (strcmp(r->method, "POST") == 0) {
        complete(out, r, id, path);
    } else {
        remove_upload(id);
        answer(out, r, 204, "", "");
    }
}

// ---- all ----

// A fault that somebody else has taken is none.
static int find_fault(const request *r, int *status, char code[64])
{
    char path[PATH], method[16], text[256];
    const struct dirent *entry;
    int found = 0;
    snprintf(path, sizeof path, "%s/faults", root);
    DIR *faults = opendir(path);
    while (faults != NULL && !found && (entry = readdir(faults)) != NULL) {
        snprintf(path, sizeof path, "%s/faults/%s", root, entry->d_name);
        FILE *from = entry->d_name[0] != '.' ? fopen(path, "r") : NULL;
        found =
            from != NULL && fscanf(from, "%15s %255s %d %63s", method, text, status, code) == 4 &&
            strcmp(method, r->method) == 0 && strstr(r->target, text) != NULL && unlink(path) == 0;
        if (from != NULL)
            fclose(from);
    }
    if (faults != NULL)
        closedir(faults);
    return found;
}

static void serve_object(FILE *out, const request *r)
{
    char path[PATH], bucket[LINE], id[LINE];
    struct stat facts;
    snprintf(bucket, sizeof bucket, "%.*s", (int)strcspn(r->path + 1, "/"), r->path + 1);
    snprintf(path, sizeof path, "%s/%s", root, bucket);
    const int names_key = strlen(r->path) > strlen(bucket) + 2;
    if (strncmp(r->signature, "AWS4-HMAC-SHA256 Credential=key/", 32) != 0 ||
        strstr(r->signature, "/eu-central-1/s3/aws4_request, SignedHeaders=host;") == NULL ||
        r->hash[0] == '\0' || strcmp(r->token, "t0ken") != 0) {
        refuse(out, r, 403, "AccessDenied");
        return;
    }
    if (stat(path, &facts) != 0) {
        refuse(out, r, 404, "NoSuchBucket");
        return;
    }
    snprintf(path, sizeof path, "%s%s", root, r->path);
    if (asked(r, "uploadId", id)[0] != '\0')
        serve_upload(out, r, id, path);
    else if (strstr(r->query, "uploads=") != NULL && names_key)
        begin(out, r);
    else if (strstr(r->query, "uploads=") != NULL)
        list_uploads(out, r, bucket);
    else if (strcmp(r->method, "GET") == 0 && !names_key && strstr(r->query, "delimiter=") == NULL)
        list_all(out, r, bucket);
    else if (strcmp(r->method, "GET") == 0 && !names_key)
        list(out, r, bucket);
    else if (strcmp(r->method, "GET") == 0 || strcmp(r->method, "HEAD") == 0)
        get(out, r, path);
    else if (strcmp(r->method, "PUT") == 0 && store(path, r->body, r->bytes))
        answer(out, r, 200, "ETag: \"whole\"\r\n", "");
    else if (strcmp(r->method, "DELETE") == 0) {
        (void)unlink(path);
        for (char *slash = strrchr(path, '/'); strlen(path) > strlen(root) + strlen(bucket) + 2;
             slash = strrchr(path, '/')) { // prefixes are there as long as objects are
            *slash = '\0';
            if (strlen(path) <= strlen(root) + strlen(bucket) + 1 || rmdir(path) != 0)
                break;
        }
        answer(out, r, 204, "", "");
    } else
        refuse(out, r, 500, "InternalError");
}

static int serve_one(FILE *out, const request *r)
{
    char code[64], *unsent = NULL;
    size_t used = 0;
    int status = 0;
    if (!find_fault(r, &status, code)) {
        serve_object(out, r);
        return fflush(out) == 0;
    }
    if (status < 0) {
        log_request(r, status);
        for (;;)
            pause();
    }
    if (status != 0) {
        refuse(out, r, status, code);
        return fflush(out) == 0;
    }
    FILE *nowhere = open_memstream(&unsent, &used);
    serve_object(nowhere, r);
    fclose(nowhere);
    const size_t cut = strtoull(code, NULL, 10);
    (void)fwrite(unsent, 1, cut < used ? cut : used, out);
    (void)fflush(out);
    free(unsent);
    return 0;
}

static void serve(int connection)
{
    FILE *in = fdopen(connection, "r"), *out = fdopen(dup(connection), "w");
    request r = {.bytes = 0};
    while (in != NULL && out != NULL && read_request(in, &r) && serve_one(out, &r))
        continue;
    _exit(0);
}

int main(int argc, char **argv)
{
    if (argc < 3)
        return 2;
    root = argv[1];
    names_of_page = argc > 3 ? atoi(argv[3]) : names_of_page;
    return stub_listen(argv[2], serve);
}
