// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// What the parts of a schedule are called.
#include "mics/schedule.h"

const char *mics_step_kind_text(mics_step_kind kind)
{
    static const char *const texts[MICS_STEP_KINDS] = {
        [MICS_STEP_PUBLISH_ACROSS] = "publish across",
        [MICS_STEP_SCATTER_INSIDE] = "scatter inside",
        [MICS_STEP_ALL_REDUCE_INSIDE] = "all-reduce inside",
        [MICS_STEP_ALL_REDUCE_BACK] = "all-reduce back",
        [MICS_STEP_GATHER_ACROSS] = "gather across",
        [MICS_STEP_REDUCE_INSIDE] = "reduce inside",
        [MICS_STEP_GATHER] = "gather",
        [MICS_STEP_FORWARD] = "forward",
        [MICS_STEP_BACKWARD] = "backward",
        [MICS_STEP_REDUCE] = "reduce",
        [MICS_STEP_SCATTER] = "scatter",
        [MICS_STEP_ALL_REDUCE] = "all-reduce",
        [MICS_STEP_NORM] = "norm",
        [MICS_STEP_AGREE] = "agree",
        [MICS_STEP_UPDATE] = "update",
        [MICS_STEP_PUBLISH] = "publish",
    };
    return (unsigned)kind < MICS_STEP_KINDS ? texts[kind] : "unknown step";
}

const char *mics_algorithm_text(mics_algorithm algorithm)
{
    static const char *const texts[MICS_ALGORITHMS] = {
        [MICS_ALGORITHM_RING] = "ring",
        [MICS_ALGORITHM_TWO_STAGE] = "two-stage",
        [MICS_ALGORITHM_LIBRARY] = "library",
    };
    return (unsigned)algorithm < MICS_ALGORITHMS ? texts[algorithm] : "unknown algorithm";
}

const char *mics_stream_text(mics_stream stream)
{
    static const char *const texts[MICS_STREAMS] = {
        [MICS_STREAM_COMPUTE] = "compute",
        [MICS_STREAM_NEAR] = "near",
        [MICS_STREAM_FAR] = "far",
    };
    return (unsigned)stream < MICS_STREAMS ? texts[stream] : "unknown stream";
}

const char *mics_precision_text(mics_precision precision)
{
    static const char *const texts[MICS_PRECISIONS] = {
        [MICS_PRECISION_FP32] = "fp32",
        [MICS_PRECISION_MIXED] = "mixed",
    };
    return (unsigned)precision < MICS_PRECISIONS ? texts[precision] : "unknown precision";
}
