// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Opens NCCL's library.
#include "comm/nccl/library.h"
#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// 2.22: the first in which several communicators can be aborted at once.
enum { OLDEST_VERSION = 22200 };

static pthread_once_t once = PTHREAD_ONCE_INIT;
static nccl_library library;
static char why_not[256], version[32];
static bool found;

static bool open_named(const char *name)
{
    static void *handle; // stays open
    void *address = NULL;
    handle = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (handle == NULL) {
        snprintf(why_not, sizeof why_not, "%s", dlerror());
        return false;
    }
#define NCCL_FIND(function)                                                                        \
    address = dlsym(handle, "nccl" #function);                                                     \
    if (address == NULL) {                                                                         \
        snprintf(why_not, sizeof why_not, "%s lacks nccl" #function, name);                        \
        return false;                                                                              \
    }                                                                                              \
    memcpy(&library.function, &address, sizeof address);
    NCCL_FUNCTIONS(NCCL_FIND)
#undef NCCL_FIND
    return true;
}

// $MICS_NCCL_LIBRARY; else the one that the plugin was linked with (in tests), or the loader's.
static bool find_functions(void)
{
    const char *name = getenv("MICS_NCCL_LIBRARY");
    if (name != NULL && name[0] != '\0')
        return open_named(name);
#ifdef MICS_NCCL_LINKED
#define NCCL_TAKE(function) library.function = nccl##function;
    NCCL_FUNCTIONS(NCCL_TAKE)
#undef NCCL_TAKE
    return true;
#else
    return open_named("libnccl.so.2");
#endif
}

static void look(void)
{
    const bool all = find_functions();
    // As NCCL counts since 2.9: 22809 is 2.28.9.
    if (library.GetVersion != NULL && library.GetVersion(&library.version) == ncclSuccess)
        snprintf(version, sizeof version, "%d.%d.%d", library.version / 10000,
                 library.version / 100 % 100, library.version % 100);
    if (!all && library.version == 0)
        return;
    if (library.version < OLDEST_VERSION) { // whatever it lacks
        snprintf(why_not, sizeof why_not, "it is of version %d.%d, and %d.%d or newer is needed",
                 library.version / 10000, library.version / 100 % 100, OLDEST_VERSION / 10000,
                 OLDEST_VERSION / 100 % 100);
        return;
    }
    found = all;
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

/* For src/device/plugin.c, which finds it by name: "2.28.9", too old or not; "" where there is
 * none. */
const char *mics_cuda_comm_version(void);

const char *mics_cuda_comm_version(void)
{
    pthread_once(&once, look);
    return version;
}
