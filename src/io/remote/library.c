// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
#include "io/remote/library.h"
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool remote_library_open(const char *variable, const char *const *names,
                         const remote_symbol *symbols, size_t count, char why[REMOTE_WHY_BYTES])
{
    const char *const asked[] = {getenv(variable), NULL};
    void *library = NULL;
    if (asked[0] != NULL && *asked[0] != '\0')
        names = asked;
    for (; library == NULL && *names != NULL; names++) {
        library = dlopen(*names, RTLD_NOW | RTLD_LOCAL);
        const char *error = library == NULL ? dlerror() : NULL;
        snprintf(why, REMOTE_WHY_BYTES, "%s", error != NULL ? error : "not found");
    }
    for (size_t i = 0; library != NULL && i < count; i++) {
        void *address = dlsym(library, symbols[i].name); // ISO C has no cast to a function's
        if (address == NULL) {
            snprintf(why, REMOTE_WHY_BYTES, "it lacks %s", symbols[i].name);
            return false;
        }
        memcpy(symbols[i].function_out, &address, sizeof address);
    }
    return library != NULL;
}
