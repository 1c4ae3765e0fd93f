// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Names of the parts of a schedule.
#include "base/text.h"
#include "mics/core/schedule.h"
#include <stdlib.h>
#include <string.h>

#define STAGES_OF(name)                                                                            \
    {                                                                                              \
        name, name " intra", name " inter"                                                         \
    }

const char *mics_step_text(mics_step_kind kind, mics_step_stage stage)
{
    static const char *const texts[MICS_STEP_KINDS][MICS_STAGES] = {
        [MICS_STEP_REPLICA_GATHER] = STAGES_OF("replica gather"),
        [MICS_STEP_PARAM_SYNC] = STAGES_OF("param sync"),
        [MICS_STEP_GATHER] = STAGES_OF("gather"),
        [MICS_STEP_FORWARD] = STAGES_OF("forward"),
        [MICS_STEP_BACKWARD] = STAGES_OF("backward"),
        [MICS_STEP_REDUCE] = STAGES_OF("reduce"),
        [MICS_STEP_ALL_TO_ALL] = STAGES_OF("all-to-all"),
        [MICS_STEP_SCATTER] = STAGES_OF("scatter"),
        [MICS_STEP_REPLICA_SCATTER] = STAGES_OF("replica scatter"),
        [MICS_STEP_NORM] = STAGES_OF("norm"),
        [MICS_STEP_AGREE] = STAGES_OF("agree"),
        [MICS_STEP_MOMENTUM] = STAGES_OF("momentum"),
        [MICS_STEP_MOMENTUM_TO_OWNERS] = STAGES_OF("momentum to owners"),
        [MICS_STEP_ORTHOGONALISE] = STAGES_OF("orthogonalise"),
        [MICS_STEP_MOMENTUM_BACK] = STAGES_OF("momentum back"),
        [MICS_STEP_UPDATE] = STAGES_OF("update"),
        [MICS_STEP_STORE] = STAGES_OF("store"),
        [MICS_STEP_FETCH] = STAGES_OF("fetch"),
    };
    return (unsigned)kind < MICS_STEP_KINDS && (unsigned)stage < MICS_STAGES ? texts[kind][stage]
                                                                             : "unknown step";
}

const char *mics_algorithm_text(mics_algorithm algorithm)
{
    switch (algorithm) {
    case MICS_ALGORITHM_RING:
        return "ring";
    case MICS_ALGORITHM_TWO_STAGE:
        return "two-stage";
    case MICS_ALGORITHM_DIRECT:
        return "direct";
    case MICS_ALGORITHM_SHARED:
        return "shared";
    case MICS_ALGORITHM_DOUBLING:
        return "doubling";
    default:
        return "unknown algorithm";
    }
}

const char *mics_stream_text(mics_stream stream)
{
    static const char *const texts[MICS_STREAMS] = {
        [MICS_STREAM_COMPUTE] = "compute",
        [MICS_STREAM_INTRA] = "intra",
        [MICS_STREAM_INTER] = "inter",
        [MICS_STREAM_COPY] = "copy",
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

// ---- recomputation ----

const char *mics_recompute_text(mics_recompute recompute, bool open,
                                char text[MICS_RECOMPUTE_BYTES])
{
    char number[24] = "";
    const bool all = recompute.units == MICS_RECOMPUTE_ALL;
    if (recompute.units > 0)
        mics_text_format(number, sizeof number, "%s%d",
                         open ? "" : (recompute.last ? "last " : "first "), (int)recompute.units);
    if (all || !mics_recomputes(recompute))
        mics_text_format(text, MICS_RECOMPUTE_BYTES, "%s", all ? "true" : "false");
    else
        mics_text_format(
            text, MICS_RECOMPUTE_BYTES, "%s%s%s%s%s", recompute.attention ? "attention" : "",
            recompute.attention && recompute.mlp ? "+" : "", recompute.mlp ? "mlp" : "",
            recompute.units > 0 && (recompute.attention || recompute.mlp) ? "+" : "", number);
    return text;
}

// A number of layers, the whole of `bytes`.
static bool parse_units(const char *text, size_t bytes, mics_recompute *r, bool *open)
{
    const bool first = strncmp(text, "first ", 6) == 0, last = strncmp(text, "last ", 5) == 0;
    const char *digits = text + (first ? 6 : last ? 5 : 0);
    const size_t count = strspn(digits, "0123456789");
    if (r->units > 0 || count == 0 || count > 9 || digits + count != text + bytes)
        return false;
    r->units = (int32_t)strtol(digits, NULL, 10);
    r->last = last && r->units > 0;
    *open = r->units > 0 && !first && !last;
    return true;
}

bool mics_recompute_parse(const char *text, mics_recompute *recompute_out, bool *open_out)
{
    mics_recompute r = mics_recompute_all(false);
    bool open = false;
    for (const char *at = text;; at++) {
        const size_t bytes = strcspn(at, "+");
        bool *part = bytes == 9 && strncmp(at, "attention", 9) == 0 ? &r.attention
                     : bytes == 3 && strncmp(at, "mlp", 3) == 0     ? &r.mlp
                                                                    : NULL;
        if (part != NULL ? *part : !parse_units(at, bytes, &r, &open))
            return false;
        if (part != NULL)
            *part = true;
        at += bytes;
        if (*at == '\0')
            break;
    }
    *recompute_out = r;
    *open_out = open;
    return true;
}
