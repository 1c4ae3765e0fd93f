// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// What the servers of tests share: a listener on this machine, a process a connection.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

/* Takes %XX out of a path or a value, but for %00. */
static inline void stub_unescape(char *text)
{
    char *to = text;
    for (const char *c = text; *c != '\0'; c++) {
        unsigned byte = 0;
        if (*c == '%' && sscanf(c + 1, "%2x", &byte) == 1)
            c += 2;
        *to++ = byte != 0 ? (char)byte : *c;
    }
    *to = '\0';
}

/* Serves until it is killed; PORTFILE has the port once it listens. `serve` does not return.
 *
 * Returns: a program's status, where it cannot listen. */
static inline int stub_listen(const char *portfile, void (*serve)(int connection))
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof at;
    char part[8192];
    signal(SIGCHLD, SIG_IGN);
    signal(SIGPIPE, SIG_IGN);
    const int listener = socket(AF_INET, SOCK_STREAM, 0);
    if (bind(listener, (struct sockaddr *)&at, sizeof at) != 0 || listen(listener, 64) != 0 ||
        getsockname(listener, (struct sockaddr *)&at, &bytes) != 0)
        return 1;
    snprintf(part, sizeof part, "%s.part", portfile);
    FILE *told = fopen(part, "w");
    if (told == NULL || fprintf(told, "%d\n", ntohs(at.sin_port)) < 0 || fclose(told) != 0 ||
        rename(part, portfile) != 0)
        return 1;
    for (;;) {
        const int connection = accept(listener, NULL, NULL);
        if (connection >= 0 && fork() == 0) {
            close(listener);
            (void)prctl(PR_SET_PDEATHSIG, SIGKILL); // a server that is gone answers nobody
            serve(connection);
        }
        if (connection >= 0)
            close(connection);
    }
}
