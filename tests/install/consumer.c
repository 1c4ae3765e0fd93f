// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// A program of somebody who installed the library: compiled as C and as C++ against the installed
// headers, linked against the shared and the static library. It includes every public header.
#include "every_header.h"
#include <stdio.h>

static mics_status run(mics_memory *memory)
{
    char *copy = NULL;
    mics_status status = mics_strdup(memory, "installed", &copy);
    if (status == MICS_OK)
        printf("%s, %s, %s\n", copy, mics_status_text(status), mics_dtype_text(MICS_DTYPE_BF16));
    mics_free(memory, copy);
    return status;
}

int main(void)
{
    mics_memory *memory = NULL;
    mics_status status = mics_memory_open(&memory);
    if (status == MICS_OK) {
        status = run(memory);
    }
    return mics_memory_close(memory) == 0 && status == MICS_OK ? 0 : 1;
}
