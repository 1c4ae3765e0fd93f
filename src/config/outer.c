// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Local steps: what of "outer" goes together, and with the rest of a run.
#include "base/text.h"
#include "config/keys.h"
#include <stdio.h>
#include <string.h>

static const char every_key[] = "outer.every", ranks_key[] = "outer.ranks";

// ---- before the ranks are known ----

static mics_status check_period(const config *run, const char *path, int32_t value)
{
    const int32_t every = run->run.outer.every;
    return value <= every ? MICS_OK
                          : mics_json_fail(run->run.json, path, MICS_ERR_INVALID,
                                           "is %d, and outer.every %d: a period has that many "
                                           "steps; take at most %d",
                                           (int)value, (int)every, (int)every);
}

// What a step's ranks would have to settle together, of whom an island is a part.
static mics_status check_others(const config *run)
{
    const mics_json *json = run->run.json;
    if (run->run.preference.kind != MICS_PREFERENCE_NONE)
        return mics_json_fail(json, "outer", MICS_ERR_UNSUPPORTED,
                              "is not for pairs (objective.type \"%s\"); leave one of the two out",
                              run->objective);
    if (run->run.recheck)
        return mics_json_fail(json, "run.recheck", MICS_ERR_UNSUPPORTED,
                              "is not for local steps: an island cannot run a step again while "
                              "others train on; use false");
    if (run->run.delta_sync)
        return mics_json_fail(json, "run.comm_dtype.params", MICS_ERR_UNSUPPORTED,
                              "\"delta\" is not for local steps: where islands meet, parameters "
                              "change by more than a step's few ulps; leave it out");
    if (run->run.outer.moments_every > 0 && run->run.state_dtype != MICS_STATE_FP32)
        return mics_json_fail(json, "outer.moments_every", MICS_ERR_UNSUPPORTED,
                              "is %d, and optimizer.params.state_dtype \"%s\": means are of "
                              "states in fp32; use 0, or states in \"fp32\"",
                              (int)run->run.outer.moments_every, run->state_dtype);
    return MICS_OK;
}

mics_status mics_config_fill_outer(config *run)
{
    mics_outer *outer = &run->run.outer;
    outer->dtype = (mics_comm_dtype)mics_config_choice("outer.dtype", run->outer_dtype);
    if (outer->every == 0 && mics_config_given(run, "outer") && !mics_config_given(run, every_key))
        return mics_json_fail(run->run.json, every_key, MICS_ERR_INVALID,
                              "is missing: the steps between two meetings, as 30; 0 is no local "
                              "steps");
    if (outer->every == 0)
        return MICS_OK;
    MICS_TRY(check_period(run, "outer.fragments", outer->fragments));
    MICS_TRY(check_period(run, "outer.overlap_steps", outer->overlap_steps));
    return check_others(run);
}

// ---- for a number of ranks ----

static bool fits_nodes(int32_t size, int32_t per_node)
{
    return size % per_node == 0 || per_node % size == 0;
}

// "is 6 (8 ranks, 4 a node), ...; these would work: 1, 2, 4".
static mics_status fail_ranks(const config *run, int32_t ranks, int32_t per_node, int32_t size,
                              const char *why)
{
    char sizes[128] = "";
    size_t used = 0;
    for (int32_t fit = run->run.sequence; fit < ranks && used < sizeof sizes;
         fit += run->run.sequence) {
        if (ranks % fit == 0 && fits_nodes(fit, per_node))
            used += (size_t)snprintf(sizes + used, sizeof sizes - used, "%s%d",
                                     used == 0 ? "; these would work: " : ", ", (int)fit);
    }
    return mics_json_fail(run->run.json, ranks_key, MICS_ERR_INVALID,
                          "is %d (%d rank%s, %d a node), %s%s", (int)size, (int)ranks,
                          ranks == 1 ? "" : "s", (int)per_node, why,
                          used > 0 ? sizes : "; more ranks would (--ranks, or a launcher)");
}

static mics_status check_precision(const config *run)
{
    if (run->run.precision != MICS_RUN_PRECISION_FP16)
        return MICS_OK;
    return mics_json_fail(run->run.json, "outer", MICS_ERR_UNSUPPORTED,
                          "is not for fp16, whose losses each island would scale by itself; use "
                          "bf16");
}

mics_status mics_config_resolve_outer(const config *run, int32_t ranks, int32_t nodes,
                                      int32_t *ranks_out)
{
    const int32_t per_node = ranks / nodes;
    const int32_t size = run->outer_ranks > 0 ? run->outer_ranks : per_node;
    *ranks_out = 0;
    if (run->run.outer.every == 0)
        return MICS_OK;
    MICS_TRY(check_precision(run));
    if (size == ranks)
        return fail_ranks(run, ranks, per_node, size, "which is one island that meets nobody");
    if (ranks % size != 0)
        return fail_ranks(run, ranks, per_node, size, "which does not divide the ranks");
    if (!fits_nodes(size, per_node))
        return fail_ranks(run, ranks, per_node, size, "which would straddle nodes unevenly");
    if (size % run->run.sequence != 0)
        return fail_ranks(run, ranks, per_node, size, "which is no multiple of sharding.sequence");
    *ranks_out = size;
    return MICS_OK;
}

// Nothing is planned for islands: what is left open has to be said.
mics_status mics_config_check_outer(const config *run, int32_t ranks, bool sharding_auto)
{
    static const char *const keys[] = {"run.recompute", "run.offload_activations"};
    if (run->run.outer.every == 0)
        return MICS_OK;
    if (sharding_auto && ranks > 1)
        return mics_json_fail(run->run.json, "sharding", MICS_ERR_UNSUPPORTED,
                              "\"auto\" is not planned for local steps; say it for the %d ranks of "
                              "an island, as {\"params\": %d}",
                              (int)ranks, (int)ranks);
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        if (mics_config_given(run, keys[i]) && !mics_config_valued(run, keys[i]))
            return mics_json_fail(run->run.json, keys[i], MICS_ERR_UNSUPPORTED,
                                  "\"auto\" is not planned for local steps; give a value");
    }
    return MICS_OK;
}
