// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
#include "cli.h"

mics_status cli_open_saved(cli_call *call, const char *adapter, const char *base,
                           mics_saved **saved_out)
{
    const char *path = call->arguments.items[0];
    if (adapter != NULL && base != NULL)
        return mics_fail(
            MICS_ERR_INVALID,
            "mics %s: --adapter is on %s, and --base names another base; leave one out",
            call->verb->name, path);
    return adapter != NULL ? mics_saved_open_adapter(call->memory, adapter, path, saved_out)
                           : mics_saved_open_adapter(call->memory, path, base, saved_out);
}
