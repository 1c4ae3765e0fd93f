// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Preloaded: writes to the file MICS_TEST_SETTINGS what the environment says when the program ends.
#include <stdio.h>
#include <stdlib.h>

__attribute__((destructor)) static void write_settings(void)
{
    static const char *const names[] = {"OMPI_MCA_mpi_yield_when_idle",
                                        "OMPI_MCA_opal_event_include",
                                        "NCCL_LAUNCH_ORDER_IMPLICIT"};
    const char *path = getenv("MICS_TEST_SETTINGS");
    FILE *file = path != NULL ? fopen(path, "w") : NULL;
    for (int i = 0; file != NULL && i < 3; i++)
        fprintf(file, "%s ", getenv(names[i]) != NULL ? getenv(names[i]) : "-");
    if (file != NULL)
        fclose(file);
}
