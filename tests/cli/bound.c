// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Preloaded into ranks: cores that a launcher would have left to each, on machines that have fewer.
// MICS_TEST_CORES="COUNT SHARERS": each COUNT cores are for SHARERS ranks. The machine has MICS_TEST_ONLINE, if that is set.
#include <dlfcn.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

static size_t rank_of_launcher(void)
{
    const char *rank = getenv("OMPI_COMM_WORLD_RANK");
    rank = rank != NULL ? rank : getenv("PMI_RANK");
    return rank != NULL ? (size_t)atoi(rank) : 0;
}

int sched_getaffinity(pid_t pid, size_t bytes, cpu_set_t *mask)
{
    size_t count = 0, sharers = 0;
    const char *cores = getenv("MICS_TEST_CORES");
    (void)pid;
    if (cores == NULL || sscanf(cores, "%zu %zu", &count, &sharers) != 2)
        return -1;
    const size_t first = rank_of_launcher() / sharers * count;
    CPU_ZERO_S(bytes, mask);
    for (size_t core = first; core < first + count; core++)
        CPU_SET_S(core, bytes, mask);
    return 0;
}

long sysconf(int name)
{
    const char *online = getenv("MICS_TEST_ONLINE");
    void *symbol = dlsym(RTLD_NEXT, "sysconf");
    long (*real)(int) = NULL;
    if (name == _SC_NPROCESSORS_ONLN && online != NULL)
        return atol(online);
    memcpy(&real, &symbol, sizeof real);
    return real(name);
}
