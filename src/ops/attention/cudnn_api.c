// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Opens cuDNN's library.
#include "ops/attention/cudnn_api.h"
#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// 9.16: the first whose backward takes sequences that are no multiple of 128 as they are.
enum { OLDEST_VERSION = 91600 };

static pthread_once_t once = PTHREAD_ONCE_INIT;
static cudnn_library library;
static char why_not[256], version[32];
static bool found;

#ifdef MICS_CUDNN_LINKED
extern const cudnn_library mics_emulated_cudnn; // in tests

static bool open_library(void)
{
    library = mics_emulated_cudnn;
    if (library.GetVersion() == 0)
        snprintf(why_not, sizeof why_not, "not found (libcudnn.so.9)");
    return library.GetVersion() > 0;
}
#else
// Takes a function's address; ISO C has no cast to it.
static bool take(void *handle, const char *name, void *function_out)
{
    void *address = dlsym(handle, name);
    if (address == NULL)
        snprintf(why_not, sizeof why_not, "libcudnn lacks %s", name);
    memcpy(function_out, &address, sizeof address);
    return address != NULL;
}

static bool open_library(void)
{
    static void *handle; // stays open
    const char *asked = getenv("MICS_CUDNN_LIBRARY");
    handle =
        dlopen(asked != NULL && *asked != '\0' ? asked : "libcudnn.so.9", RTLD_NOW | RTLD_LOCAL);
    if (handle == NULL) {
        const char *error = dlerror();
        snprintf(why_not, sizeof why_not, "not found (%s)",
                 error != NULL ? error : "libcudnn.so.9");
        return false;
    }
#define TAKE(name) take(handle, "cudnn" #name, (void *)&library.name)
    return TAKE(GetVersion) && TAKE(GetLastErrorString) && TAKE(Create) && TAKE(Destroy) &&
           TAKE(SetStream) && TAKE(BackendCreateDescriptor) && TAKE(BackendDestroyDescriptor) &&
           TAKE(BackendFinalize) && TAKE(BackendSetAttribute) && TAKE(BackendGetAttribute) &&
           TAKE(BackendExecute);
#undef TAKE
}
#endif

static void look(void)
{
    if (!open_library())
        return;
    const int number = (int)library.GetVersion();
    snprintf(version, sizeof version, "%d.%d.%d", number / 10000, number / 100 % 100, number % 100);
    if (number < OLDEST_VERSION)
        snprintf(why_not, sizeof why_not, "it is of version %s, and %d.%d or newer is needed",
                 version, OLDEST_VERSION / 10000, OLDEST_VERSION / 100 % 100);
    found = number >= OLDEST_VERSION;
}

const cudnn_library *cudnn_get(void)
{
    pthread_once(&once, look);
    return found ? &library : NULL;
}

const char *cudnn_why_not(void)
{
    pthread_once(&once, look);
    return why_not;
}

/* mics_cuda_find_cudnn, which finds it by name. */
const char *mics_cuda_attention_version(const char **why_not_out);

const char *mics_cuda_attention_version(const char **why_not_out)
{
    *why_not_out = cudnn_get() != NULL ? NULL : why_not;
    return version;
}
