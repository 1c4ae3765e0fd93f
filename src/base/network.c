// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Rates of RDMA ports: <sys>/class/infiniband/<card>/ports/<port>/rate is "400 Gb/sec (4X NDR)", and
// state "4: ACTIVE" (Linux, Documentation/ABI/stable/sysfs-class-infiniband).
#include "base/network.h"
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PATH_BYTES = 4096, LINE_BYTES = 64 };
#define BYTES_A_GBIT (1e9 / 8)

// The first line of a file; empty when it cannot be read.
static void read_line(const char *folder, const char *name, char line[LINE_BYTES])
{
    char path[PATH_BYTES];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "r");
    if (file == NULL || fgets(line, LINE_BYTES, file) == NULL)
        line[0] = '\0';
    if (file != NULL)
        fclose(file);
}

static double port_bytes_per_s(const char *port)
{
    char state[LINE_BYTES], rate[LINE_BYTES];
    char *unit = NULL;
    read_line(port, "state", state);
    read_line(port, "rate", rate);
    const double gbits = strtod(rate, &unit);
    if (strstr(state, "ACTIVE") == NULL || strncmp(unit, " Gb/sec", 7) != 0 || !(gbits > 0))
        return 0;
    return gbits * BYTES_A_GBIT;
}

double mics_network_bytes_per_s(const char *sys)
{
    char pattern[PATH_BYTES];
    glob_t ports = {.gl_pathc = 0};
    double sum = 0;
    snprintf(pattern, sizeof pattern, "%s/class/infiniband/*/ports/*", sys != NULL ? sys : "/sys");
    if (glob(pattern, 0, NULL, &ports) == 0) {
        for (size_t i = 0; i < ports.gl_pathc; i++)
            sum += port_bytes_per_s(ports.gl_pathv[i]);
    }
    globfree(&ports);
    return sum;
}
