// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Steps of epochs, once the data is known.
#include "config/keys.h"
#include <math.h>

// Optimizer steps of an epoch, as the Trainer counts them: dataloader_drop_last drops the last
// micro-batch of all ranks where it is not whole.
static int64_t count_steps(const config *run, int64_t sequences)
{
    const int64_t of_step = run->run.global_batch, micro_steps = run->run.micro_steps;
    const int64_t of_micro = of_step / micro_steps + (of_step % micro_steps != 0);
    if (mics_json_bool(mics_json_at(run->run.json, "dataloader_drop_last")) && of_micro > 0)
        sequences -= sequences % of_micro;
    const int64_t steps = sequences / of_step + (sequences % of_step != 0 ? 1 : 0);
    return steps > 0 ? steps : 1;
}

static void settle_epoch(int64_t *every, int64_t per_epoch)
{
    if (*every == MICS_STEPS_UNKNOWN)
        *every = per_epoch;
}

mics_status mics_run_resolve_epochs(mics_run *public_run, int64_t sequences)
{
    config *run = (config *)public_run; // invariant 1 of keys.h
    const int64_t per_epoch = count_steps(run, sequences);
    settle_epoch(&run->run.checkpoint_every, per_epoch);
    settle_epoch(&run->run.validate_every, per_epoch);
    if (run->run.epochs == 0)
        return MICS_OK;
    const double steps = ceil(run->run.epochs * (double)per_epoch);
    if (!(steps < (double)MICS_STEPS_UNKNOWN))
        return mics_json_fail(run->run.json, "num_train_epochs", MICS_ERR_INVALID,
                              "%g epochs are %g steps; at most 1e12 work", run->run.epochs, steps);
    run->run.steps = (int64_t)steps;
    return mics_config_fill_optimizer(run);
}
