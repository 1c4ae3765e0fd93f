// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Texts of the status codes, from the same list as the enum.
#include "mics/status.h"
#include <errno.h>

const char *mics_status_text(mics_status status)
{
    static const char *const texts[] = {
#define MICS_STATUS_TEXT(name, text) text,
        MICS_STATUS_LIST(MICS_STATUS_TEXT)
#undef MICS_STATUS_TEXT
    };
    return (unsigned)status < MICS_STATUS_COUNT ? texts[status] : "unknown status";
}

const char *mics_status_name(mics_status status)
{
    static const char *const names[] = {
#define MICS_STATUS_NAME(name, text) #name,
        MICS_STATUS_LIST(MICS_STATUS_NAME)
#undef MICS_STATUS_NAME
    };
    return (unsigned)status < MICS_STATUS_COUNT ? names[status] : "unknown";
}

mics_status mics_status_of_errno(int cause)
{
    if (cause == ENOSPC || cause == EDQUOT)
        return MICS_ERR_FULL;
    const bool disk = cause == EROFS || cause == EIO;
    return disk ? MICS_ERR_DISK : MICS_ERR_IO;
}

bool mics_status_is_io(mics_status status)
{
    return status == MICS_ERR_IO || status == MICS_ERR_DISK || status == MICS_ERR_FULL;
}
