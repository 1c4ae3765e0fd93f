// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Opens NCCL's library.
#include "nccl_library.h"
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#ifndef MICS_NCCL_LIBRARY
#define MICS_NCCL_LIBRARY "libnccl.so.2"
#endif

// The first with ncclConfig_t's `trafficClass` and all that is called; older ones read a shorter struct.
enum { OLDEST_VERSION = 21800 };

static pthread_once_t once = PTHREAD_ONCE_INIT;
static nccl_library library;
static char why_not[256];
static int found;

#ifdef MICS_NCCL_LINKED
static int find_functions(void)
{
#define NCCL_TAKE(name) library.name = nccl##name;
    NCCL_FUNCTIONS(NCCL_TAKE)
#undef NCCL_TAKE
    return 1;
}
#else
static int find_functions(void)
{
    void *handle = dlopen(MICS_NCCL_LIBRARY, RTLD_NOW | RTLD_LOCAL);
    void *address = NULL;
    if (handle == NULL) {
        snprintf(why_not, sizeof why_not, "%s", dlerror());
        return 0;
    }
#define NCCL_FIND(name)                                                                            \
    address = dlsym(handle, "nccl" #name);                                                         \
    if (address == NULL) {                                                                         \
        snprintf(why_not, sizeof why_not, MICS_NCCL_LIBRARY " lacks nccl" #name);                  \
        return 0;                                                                                  \
    }                                                                                              \
    memcpy(&library.name, &address, sizeof address);
    NCCL_FUNCTIONS(NCCL_FIND)
#undef NCCL_FIND
    return 1;
}
#endif

static void look(void)
{
    if (!find_functions())
        return;
    if (library.GetVersion(&library.version) != ncclSuccess || library.version < OLDEST_VERSION) {
        snprintf(why_not, sizeof why_not, MICS_NCCL_LIBRARY " is of version %d; from %d on will do",
                 library.version, OLDEST_VERSION);
        return;
    }
    found = 1;
}

const nccl_library *nccl_get(void)
{
    pthread_once(&once, look);
    return found ? &library : NULL;
}

const char *nccl_why_not(void)
{
    pthread_once(&once, look);
    return why_not;
}
