// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// How long threads of OpenMP spin while they wait.
//
// GNU's OpenMP spins for 300000 rounds, some 10 ms, where a process has as many cores as threads. It
// does not see other processes: where ranks or other programs want the same cores, each barrier then
// waits until the spinning ends. It reads its settings before main begins, so they are given to a
// second start of the same program.
#include "cli.h"
#include <stdlib.h>
#include <unistd.h>

// Some 20 us: as long as falling asleep and being woken take.
#define SPIN_ROUNDS "500"

enum { PATH_BYTES = 4096 };

static bool is_said(void)
{
    return getenv("GOMP_SPINCOUNT") != NULL || getenv("OMP_WAIT_POLICY") != NULL;
}

void cli_bound_spinning(char **argv)
{
    char path[PATH_BYTES];
    if (is_said())
        return;
    const ssize_t bytes = readlink("/proc/self/exe", path, sizeof path - 1);
    if (bytes <= 0 || setenv("GOMP_SPINCOUNT", SPIN_ROUNDS, 1) != 0)
        return;
    path[bytes] = '\0';
    execv(path, argv); // returns where it fails: then threads spin as long as they do
}
