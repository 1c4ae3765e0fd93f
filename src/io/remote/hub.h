// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Repositories of a Hugging Face hub.
#pragma once

#include "io/remote/remote.h"

enum { REMOTE_NAME_BYTES = 1024 };

// hf://[datasets/]ORG/NAME[@REVISION][/PATH]
typedef struct remote_hub_name {
    bool dataset;
    char repo[REMOTE_NAME_BYTES];     // "org/name"
    char revision[REMOTE_NAME_BYTES]; // "main", where none is given
    char path[REMOTE_NAME_BYTES];     // of a file, a folder or a glob; "": of all
} remote_hub_name;

/* Reads what follows "hf://". Returns: whether it is such a name. Pure. */
bool remote_hub_parse(const char *text, remote_hub_name *name_out);

/* Whether somebody else's name of a file may be one in a folder of ours: relative, nowhere up. Pure. */
bool remote_path_is_safe(const char *path);

/* mics_remote_fetch of a URL that begins with hf://. */
mics_status remote_hub_fetch(mics_memory *memory, const char *url, mics_remote_want want,
                             char **path_out);
