// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Which NCCL there is. It is looked for by name, as a machine with one GPU need not have it.
#include "device/cuda_internal.h"
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// As NCCL counts since 2.9: 22809 is 2.28.9.
static void version_text(int version, char *text, size_t bytes)
{
    snprintf(text, bytes, "%d.%d.%d", version / 10000, version / 100 % 100, version % 100);
}

#ifdef MICS_NCCL_LINKED
int ncclGetVersion(int *version); // as NCCL has it, with an enumeration of its own as the result
#endif

void mics_cuda_nccl_version(char *text, size_t bytes)
{
    const char *name = getenv("MICS_NCCL_LIBRARY");
    int (*get_version)(int *version) = NULL;
    int version = 0;
    text[0] = '\0';
#ifdef MICS_NCCL_LINKED
    if (name == NULL || *name == '\0') {
        if (ncclGetVersion(&version) == 0 && version > 0)
            version_text(version, text, bytes);
        return;
    }
#endif
    void *library =
        dlopen(name != NULL && *name != '\0' ? name : "libnccl.so.2", RTLD_LAZY | RTLD_LOCAL);
    if (library == NULL)
        return;
    void *address = dlsym(library, "ncclGetVersion");
    memcpy(&get_version, &address, sizeof get_version); // ISO C has no cast for it
    if (get_version != NULL && get_version(&version) == 0)
        version_text(version, text, bytes);
    dlclose(library);
}
