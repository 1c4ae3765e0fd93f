// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// DeepSpeed's OneCycle, and the schedulers of Hugging Face's Trainer.
#include "config/keys.h"
#include <math.h>
#include <string.h>

#define OF_INVERSE_SQRT 10000 // time scale without a warm-up, as in transformers

// DeepSpeed's default is true: the first beta goes from 0.9 to 0.8 and back, the second is 0.99.
static mics_status check_cycle_momentum(const config *run)
{
    static const char path[] = "scheduler.params.cycle_momentum";
    const mics_json_value *value = mics_json_at(run->run.json, path);
    if (mics_json_type_of(value) == MICS_JSON_BOOL && !mics_json_bool(value))
        return MICS_OK;
    return mics_json_fail(run->run.json, path, MICS_ERR_UNSUPPORTED,
                          "is true in DeepSpeed unless the file says false, and changes the betas "
                          "in every step, which is not built; write \"cycle_momentum\": false");
}

mics_status mics_config_fill_one_cycle(config *run)
{
    static const char min_key[] = "scheduler.params.cycle_min_lr";
    static const char max_key[] = "scheduler.params.cycle_max_lr";
    mics_lr *lr = &run->run.lr;
    if (!mics_config_valued(run, min_key))
        return mics_json_fail(run->run.json, min_key, MICS_ERR_INVALID,
                              "is missing: OneCycle needs it, and cycle_max_lr");
    if (!mics_config_valued(run, max_key))
        return mics_json_fail(run->run.json, max_key, MICS_ERR_INVALID,
                              "is missing: OneCycle needs it");
    if (!mics_config_valued(run, "scheduler.params.cycle_second_step_size"))
        run->cycle_second = run->cycle_first;
    MICS_TRY(check_cycle_momentum(run));
    lr->start = run->cycle_min_lr;
    lr->peak = run->cycle_max_lr;
    lr->warmup_steps = run->cycle_first;
    lr->stable_steps = run->cycle_second;
    lr->decay_steps = run->cycle_decay_steps;
    lr->decay_rate = run->decay_lr_rate;
    return MICS_OK;
}

static mics_status fill_wave(config *run)
{
    if (!mics_config_valued(run, "scheduler.params.num_cycles"))
        run->cycles = run->run.lr.kind == MICS_LR_COSINE_RESTARTS ? 1.0 : 0.5;
    run->run.lr.cycles = run->cycles;
    return MICS_OK;
}

// min_ratio and min_lr say the same.
static mics_status fill_wave_min(config *run)
{
    static const char ratio_key[] = "scheduler.params.min_ratio";
    static const char min_key[] = "scheduler.params.min_lr";
    mics_lr *lr = &run->run.lr;
    const bool by_ratio = mics_config_given(run, ratio_key),
               by_lr = mics_config_valued(run, min_key);
    if (!by_ratio && !by_lr)
        return mics_json_fail(run->run.json, min_key, MICS_ERR_INVALID,
                              "is missing: cosine_with_min_lr needs it, or min_ratio");
    if (by_lr && !(run->min_lr <= lr->peak))
        return mics_json_fail(run->run.json, min_key, MICS_ERR_INVALID,
                              "%g is above the learning rate, %g", run->min_lr, lr->peak);
    if (by_lr && by_ratio && fabs(run->min_lr - run->min_ratio * lr->peak) > 1e-9 * lr->peak)
        return mics_json_fail(run->run.json, min_key, MICS_ERR_INVALID,
                              "%g contradicts min_ratio %g of the learning rate; leave one out",
                              run->min_lr, run->min_ratio);
    if (!by_ratio)
        run->min_ratio = lr->peak > 0.0 ? run->min_lr / lr->peak : 0.0;
    run->min_lr = run->min_ratio * lr->peak;
    lr->end_ratio = run->min_ratio;
    return fill_wave(run);
}

static mics_status fill_polynomial(config *run)
{
    mics_lr *lr = &run->run.lr;
    if (!(run->lr_end < lr->peak))
        return mics_json_fail(run->run.json, "scheduler.params.lr_end", MICS_ERR_INVALID,
                              "%g is not below the learning rate, %g", run->lr_end, lr->peak);
    lr->end_ratio = run->lr_end / lr->peak;
    lr->power = run->power;
    return MICS_OK;
}

static mics_status fill_inverse_sqrt(config *run)
{
    mics_lr *lr = &run->run.lr;
    if (!mics_config_valued(run, "scheduler.params.timescale"))
        run->timescale = lr->warmup_steps > 0 ? lr->warmup_steps : OF_INVERSE_SQRT;
    lr->decay_steps = run->timescale;
    return MICS_OK;
}

static mics_status fill_stable_decay(config *run)
{
    static const char decay_key[] = "scheduler.params.decay_num_steps";
    mics_lr *lr = &run->run.lr;
    if (!mics_config_valued(run, decay_key))
        return mics_json_fail(run->run.json, decay_key, MICS_ERR_INVALID,
                              "is missing: warmup_stable_decay needs it");
    if (!mics_config_valued(run, "scheduler.params.stable_num_steps"))
        run->stable_steps = lr->total_steps - lr->warmup_steps - run->decay_steps;
    if (run->stable_steps < 0)
        return mics_json_fail(run->run.json, decay_key, MICS_ERR_INVALID,
                              "%lld + warmup_num_steps %lld are more than total_num_steps %lld; "
                              "lower one of them",
                              (long long)run->decay_steps, (long long)lr->warmup_steps,
                              (long long)lr->total_steps);
    if (!mics_config_given(run, "scheduler.params.warmup_type") &&
        strcmp(run->warmup_type, "log") == 0)
        run->warmup_type = "linear";
    lr->warmup = mics_config_warmup_kind(run->warmup_type);
    if (lr->warmup == MICS_WARMUP_LOG)
        return mics_json_fail(run->run.json, "scheduler.params.warmup_type", MICS_ERR_INVALID,
                              "\"log\" is DeepSpeed's; warmup_stable_decay has \"linear\", "
                              "\"cosine\" and \"1-sqrt\"");
    lr->decay = mics_config_warmup_kind(run->decay_type);
    lr->stable_steps = run->stable_steps;
    lr->decay_steps = run->decay_steps;
    lr->end_ratio = run->min_ratio;
    return fill_wave(run);
}

mics_status mics_config_fill_trainer_lr(config *run)
{
    switch (run->run.lr.kind) {
    case MICS_LR_COSINE:
    case MICS_LR_COSINE_RESTARTS:
        return fill_wave(run);
    case MICS_LR_COSINE_MIN:
        return fill_wave_min(run);
    case MICS_LR_POLYNOMIAL:
        return fill_polynomial(run);
    case MICS_LR_INVERSE_SQRT:
        return fill_inverse_sqrt(run);
    case MICS_LR_STABLE_DECAY:
        return fill_stable_decay(run);
    default:
        return MICS_OK;
    }
}
