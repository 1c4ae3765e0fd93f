// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// What follows hf://, a newline, and lines of a response's head.
#include "fuzz.h"
#include "io/remote/http.h"
#include "io/remote/hub.h"
#include <stdlib.h>
#include <string.h>

static void check_name(const char *text)
{
    remote_hub_name name;
    if (!remote_hub_parse(text, &name))
        return;
    fuzz_check(remote_path_is_safe(name.repo) && remote_path_is_safe(name.revision),
               "a name leads out");
    fuzz_check(name.path[0] == '\0' || remote_path_is_safe(name.path), "a path leads out");
    fuzz_check(strchr(name.repo, '/') == strrchr(name.repo, '/'), "an organisation in one");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    char *text = malloc(bytes + 1);
    remote_response response = {0};
    fuzz_check(text != NULL, "no memory for a text");
    if (bytes > 0)
        memcpy(text, data, bytes);
    text[bytes] = '\0';
    for (char *line = strchr(text, '\n'); line != NULL; line = strchr(line + 1, '\n'))
        remote_http_take_header(&response, line + 1, strcspn(line + 1, "\n"));
    fuzz_check(response.status >= 0 && response.status < 1000, "a status");
    fuzz_check(response.bytes >= -1 && response.begin >= -1, "a length");
    fuzz_check(strpbrk(response.etag, "\r\n") == NULL, "an ETag of two lines");
    text[strcspn(text, "\n")] = '\0';
    check_name(text);
    free(text);
    return 0;
}
