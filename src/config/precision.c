// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// run.device, run.precision and run.attention: what the file says of them, in our words and in
// DeepSpeed's, and what they become.
#include "config/keys.h"
#include <math.h>
#include <string.h>

static const char device_key[] = "run.device";
static const char precision_key[] = "run.precision";
static const char attention_key[] = "run.attention";
static const char cudnn_key[] = "run.cudnn_version";

// ---- what the file says ----

static mics_status join_switch(config *run, const char *path, bool on, const char *text,
                               const char *origin)
{
    if (!mics_config_valued(run, path))
        return MICS_OK;
    const bool same = strcmp(run->precision, text) == 0;
    if (on && !same && strcmp(run->precision, "auto") != 0)
        return mics_json_fail(run->run.json, path, MICS_ERR_INVALID,
                              "true contradicts %s %s; leave one out", precision_key,
                              run->precision);
    if (!on && same)
        return mics_json_fail(run->run.json, path, MICS_ERR_INVALID,
                              "false contradicts %s %s; leave one out", precision_key, text);
    if (on && !same) {
        mics_config_set_origin(run, precision_key, origin);
        run->precision = text;
    }
    return MICS_OK;
}

static mics_status fill_loss_scale(config *run)
{
    mics_loss_scale *scale = &run->run.loss_scale;
    scale->dynamic = run->loss_scale == 0;
    scale->initial = scale->dynamic ? ldexp(1.0, (int)run->scale_power) : run->loss_scale;
    if (scale->dynamic && scale->initial < scale->least)
        return mics_json_fail(run->run.json, "fp16.min_loss_scale", MICS_ERR_INVALID,
                              "%g is above 2 to the power of fp16.initial_scale_power, %g",
                              scale->least, scale->initial);
    return MICS_OK;
}

// bf16.enabled false, said and not as "auto", leaves fp32.
static bool is_bf16_off(const config *run)
{
    return mics_config_valued(run, "bf16.enabled") && !run->bf16;
}

mics_status mics_config_join_precision(config *run)
{
    if (run->bf16 && run->fp16)
        return mics_json_fail(run->run.json, "fp16.enabled", MICS_ERR_INVALID,
                              "bf16 and fp16 cannot both be enabled; leave one out");
    MICS_TRY(join_switch(run, "bf16.enabled", run->bf16, "bf16", "auto: bf16.enabled"));
    MICS_TRY(join_switch(run, "fp16.enabled", run->fp16, "fp16", "auto: fp16.enabled"));
    run->run.device = run->asked_device =
        (mics_run_device)mics_config_choice("run.device", run->device);
    run->run.precision = run->asked_precision =
        (mics_run_precision)mics_config_choice("run.precision", run->precision);
    run->run.attention = run->asked_attention =
        (mics_run_attention)mics_config_choice("run.attention", run->attention);
    run->run.precision_auto = run->asked_precision == MICS_RUN_PRECISION_AUTO && !is_bf16_off(run);
    run->asked_origin = run->origins[mics_config_find(precision_key)];
    return fill_loss_scale(run);
}

// ---- what becomes of it ----

static mics_status settle_device(config *run, const char *why_not)
{
    run->run.device = run->asked_device;
    run->run.device_auto = run->asked_device == MICS_RUN_DEVICE_AUTO;
    if (run->run.device_auto) {
        run->run.device = why_not == NULL ? MICS_RUN_DEVICE_CUDA : MICS_RUN_DEVICE_CPU;
        mics_config_set_origin(run, device_key,
                               why_not == NULL ? "auto: a GPU was found"
                                               : "auto: no GPU can be used");
    }
    if (run->run.device == MICS_RUN_DEVICE_CUDA && why_not != NULL)
        return mics_json_fail(run->run.json, device_key, MICS_ERR_UNSUPPORTED, "\"cuda\": %s",
                              why_not);
    return MICS_OK;
}

// On CPUs that are slow in bf16 only a run that is in it already goes on so.
static bool falls_back(const config *run, const char *no_bf16)
{
    return run->asked_precision == MICS_RUN_PRECISION_BF16 && no_bf16 != NULL &&
           run->run.device == MICS_RUN_DEVICE_CPU &&
           run->run.kept_precision != MICS_RUN_PRECISION_BF16;
}

static void settle_precision(config *run, const char *no_bf16)
{
    const bool falls = run->run.fell_back = falls_back(run, no_bf16);
    run->run.precision = falls ? MICS_RUN_PRECISION_FP32 : run->asked_precision;
    mics_config_set_origin(run, precision_key,
                           falls ? "auto: fp32, as this CPU is slow in bf16" : run->asked_origin);
    if (run->asked_precision != MICS_RUN_PRECISION_AUTO)
        return;
    const bool cuda = run->run.device == MICS_RUN_DEVICE_CUDA;
    const bool halves = cuda && !is_bf16_off(run);
    run->run.precision = halves ? MICS_RUN_PRECISION_BF16 : MICS_RUN_PRECISION_FP32;
    mics_config_set_origin(run, precision_key,
                           halves ? "auto: bf16 on cuda"
                           : cuda ? "auto: bf16.enabled is false"
                                  : "auto: fp32 on cpu");
}

bool mics_config_is_of_cpu(mics_run_precision precision)
{
    return precision == MICS_RUN_PRECISION_FP32 || precision == MICS_RUN_PRECISION_BF16;
}

static mics_status fail_on_cpu(const config *run, const char *why_not)
{
    const char *said = run->fp16 ? "fp16.enabled" : precision_key;
    const bool of_switch = run->fp16;
    return mics_json_fail(run->run.json, said, MICS_ERR_UNSUPPORTED,
                          "%s is for GPUs; on the cpu device fp32 and bf16 work: --set %s=%s%s%s",
                          run->precision, said, of_switch ? "false" : "fp32",
                          why_not != NULL ? ". No GPU can be used: " : "",
                          why_not != NULL ? why_not : "");
}

static mics_status fail_switch(const config *run, const char *name)
{
    return mics_json_fail(run->run.json, name, MICS_ERR_UNSUPPORTED,
                          "is for GPUs; on the cpu device leave it out, or false");
}

mics_status mics_run_resolve_device(mics_run *public_run, const char *why_not, const char *no_bf16)
{
    config *run = (config *)public_run; // invariant 1 of keys.h
    MICS_TRY(settle_device(run, why_not));
    settle_precision(run, no_bf16);
    run->device = mics_run_device_text(run->run.device);
    run->precision = mics_run_precision_text(run->run.precision);
    if (run->run.device == MICS_RUN_DEVICE_CPU && !mics_config_is_of_cpu(run->run.precision))
        return fail_on_cpu(run, why_not);
    if (run->run.device != MICS_RUN_DEVICE_CPU)
        return MICS_OK;
    if (run->run.gemm_autotune)
        return fail_switch(run, "run.gemm_autotune");
    return run->run.graphs ? fail_switch(run, "run.graphs") : MICS_OK;
}

// ---- attention ----

static void settle_auto(config *run, const char *why_not)
{
    const bool cuda = run->run.device == MICS_RUN_DEVICE_CUDA, found = cuda && why_not == NULL;
    run->run.attention = found ? MICS_RUN_ATTENTION_CUDNN : MICS_RUN_ATTENTION_OWN;
    mics_config_set_origin(run, attention_key,
                           found  ? "auto: cuDNN was found"
                           : cuda ? "auto: cuDNN cannot be used"
                                  : "auto: own on cpu");
}

static mics_status settle_version(config *run, const char *version)
{
    const char *asked = run->run.cudnn;
    if (mics_config_given(run, cudnn_key) && strcmp(asked, "any") != 0 &&
        strcmp(asked, version) != 0)
        return mics_json_fail(run->run.json, cudnn_key, MICS_ERR_UNSUPPORTED,
                              "%s is not what was found, %s; install it, or leave the key out",
                              asked, version);
    run->run.cudnn = version;
    if (!mics_config_given(run, cudnn_key))
        mics_config_set_origin(run, cudnn_key, "auto: what was found");
    return MICS_OK;
}

mics_status mics_run_resolve_attention(mics_run *public_run, const char *version,
                                       const char *why_not)
{
    config *run = (config *)public_run; // invariant 1 of keys.h
    const bool cpu = run->run.device == MICS_RUN_DEVICE_CPU;
    run->run.attention = run->asked_attention;
    run->run.attention_auto = run->asked_attention == MICS_RUN_ATTENTION_AUTO;
    if (run->run.attention_auto)
        settle_auto(run, why_not);
    run->attention = mics_run_attention_text(run->run.attention);
    if (run->run.attention == MICS_RUN_ATTENTION_OWN)
        return MICS_OK;
    if (cpu || why_not != NULL)
        return mics_json_fail(run->run.json, attention_key, MICS_ERR_UNSUPPORTED,
                              "\"cudnn\": %s; \"own\" works", cpu ? "it is for GPUs" : why_not);
    return version != NULL ? settle_version(run, version) : MICS_OK;
}
