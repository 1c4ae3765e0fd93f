// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// What the optimizer and scheduler sections come to, once every key is known to be good.
#include "config/keys.h"
#include <math.h>
#include <string.h>
#include <strings.h>

// DeepSpeed's WarmupDecayLR takes this when warmup_max_lr is absent, whatever the optimizer's lr.
#define DECAY_MAX_LR 1e-3

// Keys of scheduler.params that the chosen scheduler does not take.
static mics_status check_scheduler_keys(const config *run)
{
    for (int32_t i = 0; i < mics_config_key_count(); i++) {
        const key *row = mics_config_key(i);
        if ((row->flags & KEY_SCHEDULERS) == 0 || !mics_config_given(run, row->path))
            continue;
        if ((row->flags & (1 << (8 + run->run.lr.kind))) == 0)
            return mics_json_fail(run->run.json, row->path, MICS_ERR_INVALID,
                                  "%s has no %s; leave it out", run->scheduler,
                                  mics_config_leaf(row->path));
    }
    return MICS_OK;
}

// WarmupLR and WarmupDecayLR: the rates between which the warm-up goes.
static mics_status fill_warmup_rates(config *run)
{
    static const char path[] = "scheduler.params.warmup_max_lr";
    mics_lr *lr = &run->run.lr;
    lr->start = run->warmup_min_lr;
    if (mics_config_valued(run, path))
        lr->peak = run->warmup_max_lr;
    else if (lr->kind == MICS_LR_WARMUP_DECAY && !mics_config_given(run, path)) {
        lr->peak = DECAY_MAX_LR;
        mics_config_set_origin(run, path, "default");
    }
    run->warmup_max_lr = lr->peak;
    if (lr->start > lr->peak)
        return mics_json_fail(run->run.json, "scheduler.params.warmup_min_lr", MICS_ERR_INVALID,
                              "%g is above the learning rate after the warm-up, %g", lr->start,
                              lr->peak);
    return MICS_OK;
}

static mics_status fill_wsd(config *run)
{
    mics_lr *lr = &run->run.lr;
    if (!mics_config_valued(run, "scheduler.params.decay_num_steps"))
        run->decay_steps = lr->total_steps / 10;
    lr->warmup = MICS_WARMUP_LINEAR;
    lr->decay_steps = run->decay_steps;
    lr->end_ratio = run->min_ratio;
    if (lr->warmup_steps + lr->decay_steps > lr->total_steps)
        return mics_json_fail(
            run->run.json, "scheduler.params.warmup_num_steps", MICS_ERR_INVALID,
            "%lld + decay_num_steps %lld are more than total_num_steps %lld; lower "
            "one of them",
            (long long)lr->warmup_steps, (long long)lr->decay_steps, (long long)lr->total_steps);
    return MICS_OK;
}

// DeepSpeed's three.
static mics_status fill_deepspeed(config *run)
{
    mics_lr *lr = &run->run.lr;
    if (lr->warmup_steps < 1)
        return mics_json_fail(run->run.json, "scheduler.params.warmup_num_steps", MICS_ERR_INVALID,
                              "must be at least 1 for %s, as in DeepSpeed", run->scheduler);
    if (strcmp(run->warmup_type, "log") != 0 && strcmp(run->warmup_type, "linear") != 0)
        return mics_json_fail(run->run.json, "scheduler.params.warmup_type", MICS_ERR_INVALID,
                              "%s has \"log\" and \"linear\" alone", run->scheduler);
    lr->warmup = mics_config_warmup_kind(run->warmup_type);
    if (lr->kind != MICS_LR_WARMUP_COSINE)
        return fill_warmup_rates(run);
    lr->min_ratio = run->warmup_min_ratio;
    lr->end_ratio = run->cos_min_ratio;
    return MICS_OK;
}

// From the phase whose scheduler it is up to the next one with its own.
static int64_t scheduled_steps(const config *run)
{
    return (run->run.lr_end > 0 ? run->run.lr_end : run->run.steps) - run->run.lr_begin;
}

// Steps of the warm-up: as given, or as a share of the run's.
static void settle_warmup(config *run)
{
    static const char steps_key[] = "scheduler.params.warmup_num_steps";
    const mics_lr_kind kind = run->run.lr.kind;
    const int32_t index = mics_config_find(steps_key);
    if (mics_config_given(run, steps_key))
        return;
    if (run->warmup_ratio > 0.0) {
        run->warmup_steps = (int64_t)ceil(run->warmup_ratio * (double)scheduled_steps(run));
        mics_config_set_origin(run, steps_key, "auto: warmup_ratio of run.steps");
    } else if (kind > MICS_LR_ONE_CYCLE && run->states[index] == KEY_ABSENT) {
        run->warmup_steps = 0;
    }
}

static mics_status fill_scheduler(config *run)
{
    mics_lr *lr = &run->run.lr;
    *lr = (mics_lr){.kind = mics_config_lr_kind(run->scheduler), .peak = run->lr};
    if (run->scheduler == NULL && mics_config_given(run, "scheduler"))
        return mics_json_fail(run->run.json, "scheduler.type", MICS_ERR_INVALID,
                              "is missing: WarmupLR, WarmupDecayLR, WarmupCosineLR, linear, cosine "
                              "or another; without a scheduler the learning rate is constant");
    if (run->scheduler == NULL)
        return MICS_OK;
    MICS_TRY(check_scheduler_keys(run));
    if (lr->kind == MICS_LR_CONSTANT)
        return MICS_OK;
    if (lr->kind == MICS_LR_ONE_CYCLE)
        return mics_config_fill_one_cycle(run);
    settle_warmup(run);
    if (!mics_config_valued(run, "scheduler.params.total_num_steps"))
        run->total_steps = scheduled_steps(run);
    lr->warmup_steps = run->warmup_steps;
    if (lr->kind != MICS_LR_WARMUP)
        lr->total_steps = run->total_steps;
    if (lr->kind == MICS_LR_WSD)
        return fill_wsd(run);
    return lr->kind > MICS_LR_ONE_CYCLE ? mics_config_fill_trainer_lr(run) : fill_deepspeed(run);
}

// ---- the optimizer ----

// AdamW has names of its own, and is what runs without a name.
mics_optimizer_kind mics_config_optimizer_of(const mics_json *json)
{
    const char *type = mics_json_string(mics_json_at(json, "optimizer.type"));
    static const struct {
        const char *name;
        mics_optimizer_kind kind;
    } others[] = {
        {"SGD", MICS_OPTIMIZER_SGD},        {"Lion", MICS_OPTIMIZER_LION},
        {"FusedLion", MICS_OPTIMIZER_LION}, {"DeepSpeedCPULion", MICS_OPTIMIZER_LION},
        {"Muon", MICS_OPTIMIZER_MUON},
    };
    for (size_t i = 0; type != NULL && i < sizeof others / sizeof *others; i++) {
        if (strcasecmp(type, others[i].name) == 0)
            return others[i].kind;
    }
    return MICS_OPTIMIZER_ADAMW;
}

static const char adam_mode_key[] = "optimizer.params.adam_w_mode",
                  adjust_key[] = "optimizer.params.adjust_lr_fn",
                  adam_lr_key[] = "optimizer.params.adam_lr";

bool mics_config_is_of_optimizer(const config *run, const key *row)
{
    if (row->type == KEY_SETTINGS)
        return mics_config_setting(run, row) >= 0;
    if (strcmp(row->path, adjust_key) == 0 || strcmp(row->path, adam_lr_key) == 0)
        return run->run.optimizer.kind == MICS_OPTIMIZER_MUON;
    return strcmp(row->path, adam_mode_key) != 0 || run->run.optimizer.kind == MICS_OPTIMIZER_ADAMW;
}

static const char *optimizer_name(const config *run)
{
    return mics_optimizer_def_get(run->run.optimizer.kind)->name;
}

// Keys of optimizer.params that the chosen optimizer does not take.
static mics_status check_optimizer_keys(const config *run)
{
    for (int32_t i = 0; i < mics_config_key_count(); i++) {
        const key *row = mics_config_key(i);
        if (!mics_config_is_of_optimizer(run, row) && mics_config_given(run, row->path))
            return mics_json_fail(run->run.json, row->path, MICS_ERR_INVALID,
                                  "%s has no %s; leave it out", optimizer_name(run),
                                  mics_config_leaf(row->path));
    }
    return MICS_OK;
}

static int32_t setting_named(const config *run, const char *name)
{
    const mics_optimizer_def *def = mics_optimizer_def_get(run->run.optimizer.kind);
    int32_t at = def->settings - 1;
    while (at >= 0 && strcmp(def->setting[at].name, name) != 0)
        at--;
    return at;
}

static mics_status check_nesterov(const config *run)
{
    const double *settings = run->run.optimizer.settings;
    const int32_t nesterov = setting_named(run, "nesterov"),
                  momentum = setting_named(run, "momentum");
    if (run->run.optimizer.kind != MICS_OPTIMIZER_SGD || settings[nesterov] == 0 ||
        settings[momentum] > 0)
        return MICS_OK;
    return mics_json_fail(run->run.json, "optimizer.params.nesterov", MICS_ERR_INVALID,
                          "needs a momentum above 0, as in torch");
}

static mics_status fill_muon(config *run)
{
    double *settings = run->run.optimizer.settings;
    const int32_t steps = setting_named(run, "ns_steps"),
                  adjust = setting_named(run, "adjust_lr_fn");
    if (run->run.optimizer.kind != MICS_OPTIMIZER_MUON)
        return MICS_OK;
    settings[adjust] = strcmp(run->adjust_lr, "match_rms_adamw") == 0;
    return settings[steps] == floor(settings[steps])
               ? MICS_OK
               : mics_json_fail(run->run.json, "optimizer.params.ns_steps", MICS_ERR_INVALID,
                                "must be a whole number, not %g", settings[steps]);
}

static mics_status fill_state_dtype(config *run)
{
    static const char path[] = "optimizer.params.state_dtype";
    mics_state_dtype dtype = MICS_STATE_FP32;
    while (strcmp(run->state_dtype, mics_state_dtype_text(dtype)) != 0)
        dtype++;
    run->run.state_dtype = dtype;
    if (dtype == MICS_STATE_FP32 || run->run.optimizer.kind != MICS_OPTIMIZER_MUON)
        return MICS_OK;
    return mics_json_fail(run->run.json, path, MICS_ERR_UNSUPPORTED,
                          "Muon takes its states as fp32; use \"fp32\", or AdamW, SGD or Lion");
}

// The schedule is of one rate, so the other one is a multiple of it.
static mics_status fill_adam_lr(config *run)
{
    const double peak = run->run.lr.peak;
    if (run->adam_lr > 0 && (float)peak <= 0)
        return mics_json_fail(run->run.json, adam_lr_key, MICS_ERR_INVALID,
                              "changes as lr does, which is 0; give lr too");
    run->run.other_rate = run->adam_lr > 0 ? run->adam_lr / peak : 0;
    return MICS_OK;
}

// torch's AdamW has another default than DeepSpeed's own.
static mics_status check_torch_adam(const config *run)
{
    static const char path[] = "optimizer.params.torch_adam";
    const bool torch = mics_json_bool(mics_json_at(run->run.json, path));
    const bool adam = run->run.optimizer.kind == MICS_OPTIMIZER_ADAMW;
    if (!torch || !adam || !run->adam_w_mode ||
        mics_config_given(run, "optimizer.params.weight_decay"))
        return MICS_OK;
    return mics_json_fail(run->run.json, path, MICS_ERR_INVALID,
                          "is torch's AdamW, whose weight decay is 0.01 unless the file says it; "
                          "write weight_decay beside it");
}

mics_status mics_config_fill_optimizer(config *run)
{
    MICS_TRY(check_optimizer_keys(run));
    MICS_TRY(check_nesterov(run));
    MICS_TRY(fill_muon(run));
    MICS_TRY(fill_state_dtype(run));
    if (!run->adam_w_mode && run->run.optimizer.weight_decay != 0.0)
        return mics_json_fail(run->run.json, adam_mode_key, MICS_ERR_UNSUPPORTED,
                              "weight decay that is added to the gradient is not built; use true, "
                              "or weight_decay 0");
    MICS_TRY(check_torch_adam(run));
    MICS_TRY(fill_scheduler(run));
    return fill_adam_lr(run);
}
