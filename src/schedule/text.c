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
        [MICS_STEP_SIZES] = STAGES_OF("sizes"),
        [MICS_STEP_AGREE_WORLD] = STAGES_OF("agree world"),
        [MICS_STEP_MEET_CHANGE] = STAGES_OF("meet change"),
        [MICS_STEP_MEET_SCATTER] = STAGES_OF("meet scatter"),
        [MICS_STEP_MEET_UPDATE] = STAGES_OF("meet update"),
        [MICS_STEP_MEET_GATHER] = STAGES_OF("meet gather"),
        [MICS_STEP_MEET_SPREAD] = STAGES_OF("meet spread"),
        [MICS_STEP_MEET_ADOPT] = STAGES_OF("meet adopt"),
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
    char units[24] = "";
    const bool all = recompute.units == MICS_RECOMPUTE_ALL;
    if (recompute.units > 0)
        mics_text_format(units, sizeof units, "%s%d",
                         open ? "" : (recompute.last ? "last " : "first "), (int)recompute.units);
    mics_text_format(text, MICS_RECOMPUTE_BYTES, "%s%s%s", recompute.attention ? "attention+" : "",
                     recompute.mlp ? "mlp+" : "", units);
    if (recompute.units == 0 && *text != '\0')
        text[strlen(text) - 1] = '\0';
    if (all || *text == '\0')
        mics_text_format(text, MICS_RECOMPUTE_BYTES, "%s", all ? "true" : "false");
    return text;
}

// What is meant is what would be written so.
bool mics_recompute_parse(const char *text, mics_recompute *recompute_out, bool *open_out)
{
    char same[MICS_RECOMPUTE_BYTES];
    const mics_recompute r = {.units =
                                  (int32_t)strtol(text + strcspn(text, "0123456789"), NULL, 10),
                              .last = strstr(text, "last ") != NULL,
                              .attention = strstr(text, "attention") != NULL,
                              .mlp = strstr(text, "mlp") != NULL};
    const bool open = !r.last && strstr(text, "first ") == NULL;
    if (!mics_recomputes(r) || strcmp(mics_recompute_text(r, open, same), text) != 0)
        return false;
    *recompute_out = r;
    *open_out = open && r.units > 0;
    return true;
}
