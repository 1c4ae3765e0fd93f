// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Models and data of buckets.
#pragma once

#include "io/remote/hub.h"

/* mics_remote_fetch of a URL that begins with s3://. */
mics_status remote_s3_fetch(mics_memory *memory, const char *url, mics_remote_want want,
                            char **path_out);

/* As remote_hub_open_path, of what that names. */
bool remote_s3_open_path(remote_hub *self, mics_memory *memory, const char *path,
                         mics_remote_want want);
