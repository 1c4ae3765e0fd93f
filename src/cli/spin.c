// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// How long threads of OpenMP spin while they wait.
//
// GNU's OpenMP spins for 300000 rounds, some 10 ms, where a process has as many cores as threads.
// It does not see other processes: where ranks or other programs want the same cores, each barrier
// then waits until the spinning ends. It reads its settings before main begins, so they are given
// to a second start of the same program.
#include "cli.h"
#if defined(_OPENMP)
#include <stdlib.h>
#include <sys/auxv.h>
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
    // Without a loader below it the program was handed to one, which /proc/self/exe then is.
    if (is_said() || getauxval(AT_BASE) == 0)
        return;
    const ssize_t bytes = readlink("/proc/self/exe", path, sizeof path);
    if (bytes <= 0 || bytes >= PATH_BYTES || setenv("GOMP_SPINCOUNT", SPIN_ROUNDS, 1) != 0)
        return;
    path[bytes] = '\0';
    execv(path, argv); // returns where it fails: then threads spin as long as they do
}

#else

void cli_bound_spinning(char **argv)
{
    (void)argv;
}

#endif
