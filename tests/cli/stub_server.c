// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// A server of files over HTTP, for tests of what is downloaded: stub_server ROOT PORTFILE.
//
// The path of a request is a file in ROOT; the query is passed over. What lies beside FILE says more:
// FILE.status a status to give in its place, with X-Error-Code from FILE.code; FILE.token the token
// without which it is 401; FILE.location where it is instead; FILE.cut after how many bytes the
// connection ends, once. Each file has an ETag by its size and time. ROOT/requests.log has a line a
// request: "METHOD PATH RANGE STATUS AUTHORIZATION".
#include "stub.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

enum { LINE = 8192, SENT_BYTES = 1 << 16 };

typedef struct request {
    char method[16], path[LINE], range[64], if_range[128], token[256];
} request;

static const char *root;

static void take_line(request *r, const char *line)
{
    const char *value = strchr(line, ':');
    value = value != NULL ? value + 1 + strspn(value + 1, " ") : "";
    if (strncasecmp(line, "Range:", 6) == 0)
        snprintf(r->range, sizeof r->range, "%s", value);
    if (strncasecmp(line, "If-Range:", 9) == 0)
        snprintf(r->if_range, sizeof r->if_range, "%s", value);
    if (strncasecmp(line, "Authorization:", 14) == 0)
        snprintf(r->token, sizeof r->token, "%s", value);
}

static int read_request(FILE *in, request *r)
{
    char line[LINE], target[LINE];
    *r = (request){.range = ""};
    if (fgets(line, sizeof line, in) == NULL || sscanf(line, "%15s %8000s", r->method, target) != 2)
        return 0;
    snprintf(r->path, sizeof r->path, "%.*s", (int)strcspn(target, "?"), target);
    stub_unescape(r->path);
    while (fgets(line, sizeof line, in) != NULL && line[0] != '\r') {
        line[strcspn(line, "\r\n")] = '\0';
        take_line(r, line);
    }
    return strstr(r->path, "..") == NULL;
}

static int beside(const request *r, const char *suffix, char *text, size_t capacity)
{
    char path[2 * LINE];
    snprintf(path, sizeof path, "%s%s%s", root, r->path, suffix);
    FILE *from = fopen(path, "r");
    const int any = from != NULL && fgets(text, (int)capacity, from) != NULL;
    if (from != NULL)
        fclose(from);
    text[any ? strcspn(text, "\n") : 0] = '\0';
    return any;
}

static void log_request(const request *r, int status)
{
    char path[LINE];
    snprintf(path, sizeof path, "%s/requests.log", root);
    FILE *to = fopen(path, "a");
    if (to == NULL)
        return;
    fprintf(to, "%s %s %s %d %s\n", r->method, r->path, r->range[0] != '\0' ? r->range : "-",
            status, r->token[0] != '\0' ? r->token : "-");
    fclose(to);
}

static void answer_short(FILE *out, const request *r, int status, const char *more)
{
    log_request(r, status);
    fprintf(out, "HTTP/1.1 %d Stub\r\n%sContent-Length: 0\r\n\r\n", status, more);
    fflush(out);
}

// Returns: whether the connection stays.
static int send_file(FILE *out, const request *r, FILE *file, const struct stat *facts)
{
    char etag[64], cut[64], path[2 * LINE], part[SENT_BYTES];
    long long from = 0, last = 0, end = facts->st_size, cut_at = -1;
    snprintf(etag, sizeof etag, "\"%llx-%llx%09llx\"", (long long)facts->st_size,
             (long long)facts->st_mtim.tv_sec, (long long)facts->st_mtim.tv_nsec);
    const int numbers = sscanf(r->range, "bytes=%lld-%lld", &from, &last);
    const int part_of = numbers >= 1 && (r->if_range[0] == '\0' || strcmp(r->if_range, etag) == 0);
    from = part_of ? from : 0;
    if (part_of && from >= end) {
        snprintf(path, sizeof path, "ETag: %s\r\nContent-Range: bytes */%lld\r\n", etag, end);
        answer_short(out, r, 416, path);
        return 1;
    }
    const long long whole = end;
    end = part_of && numbers == 2 && last < end ? last + 1 : end;
    if (numbers < 2 && beside(r, ".cut", cut, sizeof cut)) {
        cut_at = atoll(cut);
        snprintf(path, sizeof path, "%s%s.cut", root, r->path);
        unlink(path);
    }
    log_request(r, part_of ? 206 : 200);
    fprintf(out, "HTTP/1.1 %d Stub\r\nETag: %s\r\nContent-Length: %lld\r\n", part_of ? 206 : 200,
            etag, end - from);
    if (part_of)
        fprintf(out, "Content-Range: bytes %lld-%lld/%lld\r\n", from, end - 1, whole);
    fputs("\r\n", out);
    fseek(file, (long)from, SEEK_SET);
    size_t bytes = 0;
    for (long long sent = 0, left = end - from; left > 0; sent += (long long)bytes) {
        bytes = fread(part, 1, left < SENT_BYTES ? (size_t)left : sizeof part, file);
        left -= (long long)bytes;
        if (bytes == 0)
            return 0;
        if (cut_at >= 0 && sent + (long long)bytes > cut_at) {
            fwrite(part, 1, (size_t)(cut_at - sent), out);
            fflush(out);
            return 0;
        }
        fwrite(part, 1, bytes, out);
    }
    fflush(out);
    return 1;
}

static int answer(FILE *out, const request *r)
{
    char text[LINE], head[2 * LINE], code[128], path[2 * LINE];
    struct stat facts;
    if (beside(r, ".token", text, sizeof text)) {
        snprintf(head, sizeof head, "Bearer %s", text);
        if (strcmp(head, r->token) != 0) {
            answer_short(out, r, 401, "X-Error-Code: RepoNotFound\r\n");
            return 1;
        }
    }
    if (beside(r, ".status", text, sizeof text)) {
        const int any = beside(r, ".code", code, sizeof code);
        snprintf(head, sizeof head, "X-Error-Code: %s\r\n", any ? code : "Stub");
        answer_short(out, r, atoi(text), head);
        return 1;
    }
    if (beside(r, ".location", text, sizeof text)) {
        snprintf(head, sizeof head, "Location: %s\r\nETag: \"of the redirection\"\r\n", text);
        answer_short(out, r, 302, head);
        return 1;
    }
    snprintf(path, sizeof path, "%s%s", root, r->path);
    FILE *file = fopen(path, "rb");
    if (file == NULL || fstat(fileno(file), &facts) != 0 || !S_ISREG(facts.st_mode)) {
        answer_short(out, r, 404, "X-Error-Code: EntryNotFound\r\n");
        if (file != NULL)
            fclose(file);
        return 1;
    }
    const int stays = send_file(out, r, file, &facts);
    fclose(file);
    return stays;
}

static void serve(int connection)
{
    FILE *in = fdopen(connection, "r"), *out = fdopen(dup(connection), "w");
    request r;
    while (in != NULL && out != NULL && read_request(in, &r) && answer(out, &r))
        continue;
    _exit(0);
}

int main(int argc, char **argv)
{
    if (argc != 3)
        return 2;
    root = argv[1];
    return stub_listen(argv[2], serve);
}
