// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
#include "precision.h"
#include "mics/core/device.h"
#include "mics/log.h"
#include "run/job.h"
#include <stdlib.h>
#include <string.h>
#include <strings.h>

// oneDNN's own words for the instructions that it may use. They are read here, because asking the
// library would keep mics_gemm_limit from being called later.
static bool is_limited(const char *variable)
{
    static const char *const leave_out[] = {"SSE41",     "AVX",         "AVX2",
                                            "AVX2_VNNI", "AVX512_CORE", "AVX512_CORE_VNNI"};
    const char *asked = getenv(variable);
    for (size_t i = 0; asked != NULL && i < sizeof leave_out / sizeof leave_out[0]; i++) {
        if (strcasecmp(asked, leave_out[i]) == 0)
            return true;
    }
    return false;
}

const char *run_precision_no_bf16(void)
{
    const char *asked = getenv("MICS_ISA");
    const bool limited = asked != NULL && *asked != '\0' && strcmp(asked, "avx512") != 0;
    if (limited)
        return "MICS_ISA leaves out AVX512_BF16 and AMX";
    if (is_limited("ONEDNN_MAX_CPU_ISA") || is_limited("DNNL_MAX_CPU_ISA"))
        return "ONEDNN_MAX_CPU_ISA leaves out AVX512_BF16 and AMX";
    mics_machine machine;
    const bool has =
        mics_machine_read(&machine) == MICS_OK &&
        (strstr(machine.isa, "avx512_bf16") != NULL || strstr(machine.isa, "amx_bf16") != NULL);
    return has ? NULL : "this CPU has neither AVX512_BF16 nor AMX";
}

static void log_bf16(const mics_run *run, const char *no_bf16)
{
    if (no_bf16 != NULL)
        mics_log(MICS_LOG_WARNING,
                 "the run stays in bf16, as its checkpoint is, and is slower so: %s; --set "
                 "run.precision=fp32 goes on in fp32",
                 no_bf16);
    else if (run->kept_precision == MICS_RUN_PRECISION_FP32)
        mics_log(MICS_LOG_WARNING,
                 "the checkpoint is of a run in fp32, and goes on in bf16, as run.precision says");
}

static void log_fp32(const mics_run *run, const char *no_bf16)
{
    if (run->fell_back)
        mics_log(MICS_LOG_WARNING,
                 "run.precision is bf16, but %s, so bf16 would be slower; the run goes on in fp32",
                 no_bf16);
    else if (run->kept_precision == MICS_RUN_PRECISION_BF16)
        mics_log(MICS_LOG_WARNING,
                 "the checkpoint is of a run in bf16, and goes on in fp32, as run.precision says");
}

// GPT-2 124M, 4 x 256 tokens, 2 cores of an EPYC with AVX512_BF16, 2026-11-23
// (bench/results/2026-11-23-cpu-bf16.md).
const char *run_precision_hint(const mics_job *job)
{
    const bool open = job->run->precision_auto && job->run->device == MICS_RUN_DEVICE_CPU;
    return open && job->no_bf16 == NULL ? "run.precision \"bf16\" is up to 1.7 times as fast here"
                                        : NULL;
}

void run_precision_log(const mics_job *job)
{
    const mics_run *run = job->run;
    if (run->device != MICS_RUN_DEVICE_CPU)
        return;
    if (run->precision == MICS_RUN_PRECISION_BF16)
        log_bf16(run, job->no_bf16);
    else
        log_fp32(run, job->no_bf16);
}
