// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
#include "base/file.h"
#include "mics/log.h"
#include <sys/stat.h>

mics_status mics_file_refuse_special(const char *path)
{
    struct stat found;
    if (stat(path, &found) != 0 || S_ISREG(found.st_mode))
        return MICS_OK;
    return mics_fail(MICS_ERR_IO, "%s: is %s, not a regular file; move it away", path,
                     S_ISDIR(found.st_mode)    ? "a folder"
                     : S_ISFIFO(found.st_mode) ? "a pipe, which would wait for a reader"
                                               : "a device or socket");
}
