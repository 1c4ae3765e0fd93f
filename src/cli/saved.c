// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
#include "cli.h"

mics_status cli_fetch(cli_call *call, mics_remote_want want, const char **path)
{
    char *local = NULL;
    if (*path == NULL || !mics_remote_is(*path))
        return MICS_OK;
    if (call->owned_count == CLI_MAX_OWNED)
        return mics_fail(MICS_ERR_INVALID, "mics %s: too many remote files; name them by a glob",
                         call->verb->name);
    MICS_TRY(mics_remote_fetch(call->memory, *path, want, &local));
    call->owned[call->owned_count++] = local;
    *path = local;
    return MICS_OK;
}

mics_status cli_open_saved(cli_call *call, const char *adapter, const char *base,
                           mics_saved **saved_out)
{
    const char *path = call->arguments.items[0];
    bool model = false;
    if (adapter != NULL && base != NULL)
        return mics_fail(
            MICS_ERR_INVALID,
            "mics %s: --adapter is on %s, and --base names another base; leave one out",
            call->verb->name, path);
    MICS_TRY(mics_remote_holds_model(call->memory, path, &model));
    if (model) // checkpoints are read from there
        MICS_TRY(cli_fetch(call, MICS_REMOTE_WEIGHTS, &path));
    MICS_TRY(cli_fetch(call, MICS_REMOTE_WEIGHTS, &adapter));
    MICS_TRY(cli_fetch(call, MICS_REMOTE_WEIGHTS, &base));
    return adapter != NULL ? mics_saved_open_adapter(call->memory, adapter, path, saved_out)
                           : mics_saved_open_adapter(call->memory, path, base, saved_out);
}
