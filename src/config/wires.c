// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// What numbers travel as, hop by hop, and which keys of run.wire would say nothing.
#include "config/keys.h"
#include "mics/log.h"
#include <stdio.h>
#include <string.h>

static mics_wires wires_of(const char *between, const char *inside)
{
    const mics_wire wire = mics_config_wire(between);
    return (mics_wires){.inside = strcmp(inside, "auto") == 0 ? wire : mics_config_wire(inside),
                        .between = wire};
}

void mics_config_fill_wires(config *run)
{
    run->run.gather_wires = wires_of(run->gather_wire, run->gather_inside);
    run->run.reduce_wires = wires_of(run->reduce_wire, run->reduce_inside);
    run->run.second_hop_wires = wires_of(run->second_hop_wire, run->second_hop_inside);
}

// ---- keys without effect ----

static const char gather_key[] = "run.wire.gather";

// Which hops one kind of numbers takes.
typedef struct hops {
    bool inside, between;
} hops;

typedef struct reach {
    int32_t ranks, per_node;
    mics_sharding sharding;
    bool stages; // collectives over several nodes run in two
} reach;

// The hops of a collective from degree `inner` to degree `outer`.
static hops hops_of(const reach *r, int32_t inner, int32_t outer)
{
    const int32_t k = r->per_node;
    if (inner == outer)
        return (hops){false, false};
    return (hops){.inside = inner < k && (outer <= k || r->stages), .between = outer > k};
}

static hops both(hops a, hops b)
{
    return (hops){a.inside || b.inside, a.between || b.between};
}

// Publication carries rounded numbers where gathers round all that they bring.
static hops gather_hops(const reach *r, mics_wires wires)
{
    const mics_sharding s = r->sharding;
    const hops gathers = hops_of(r, 1, s.params);
    const mics_wire rounds = s.params > r->per_node ? wires.between : wires.inside;
    return s.params > 1 && rounds != MICS_WIRE_FP32
               ? both(gathers, hops_of(r, s.params, s.optimizer))
               : gathers;
}

// What a key is about, and which sharding would have it.
typedef struct wire_keys {
    const char *between, *inside; // paths
    const char *between_said, *inside_said;
    hops hops;
    const char *what, *needs;
} wire_keys;

static mics_status refuse(const config *run, const char *path, const char *said, const char *why,
                          const char *instead)
{
    return mics_json_fail(run->run.json, path, MICS_ERR_INVALID,
                          "\"%s\" would have no effect: %s; %s", said, why, instead);
}

static mics_status check_keys(const config *run, const reach *r, const wire_keys *keys)
{
    char why[160], instead[160];
    const bool auto_inside = strcmp(keys->inside_said, "auto") == 0;
    const hops there = keys->hops;
    const bool between_counts = there.between || (auto_inside && there.inside);
    const char *of = mics_config_leaf(keys->between);
    // communication_data_type says two keys at once, of which one may well have no effect.
    const bool said = mics_config_given(run, keys->between) &&
                      (run->comm_type == NULL || keys->between == gather_key);
    if (said && strcmp(keys->between_said, "fp32") != 0 && !between_counts) {
        snprintf(why, sizeof why, "with P|G|O = %d|%d|%d on %d ranks, %d a node, %s%s",
                 (int)r->sharding.params, (int)r->sharding.grads, (int)r->sharding.optimizer,
                 (int)r->ranks, (int)r->per_node, keys->what,
                 there.inside ? " travels inside nodes alone" : " does not travel");
        if (there.inside)
            snprintf(instead, sizeof instead, "leave it out, or run.wire.%s_inside", of);
        else
            snprintf(instead, sizeof instead, "leave it out, or take a sharding with %s",
                     keys->needs);
        return refuse(run, keys->between, keys->between_said, why, instead);
    }
    if (mics_config_given(run, keys->inside) && !auto_inside && !there.inside &&
        strcmp(keys->inside_said, keys->between_said) != 0) {
        snprintf(why, sizeof why, "with P|G|O = %d|%d|%d on %d ranks, %d a node, %s%s",
                 (int)r->sharding.params, (int)r->sharding.grads, (int)r->sharding.optimizer,
                 (int)r->ranks, (int)r->per_node, keys->what,
                 there.between ? " has no hop inside nodes" : " does not travel");
        snprintf(instead, sizeof instead, "leave it out%s",
                 there.between && r->per_node > 1 ? ", or take run.collectives \"two-stage\"" : "");
        return refuse(run, keys->inside, keys->inside_said, why, instead);
    }
    return MICS_OK;
}

// A run of one rank sends nothing, whatever it says: such files are tried out on one.
mics_status mics_run_check_wires(const mics_run *public_run, int32_t ranks, int32_t nodes)
{
    const config *run = (const config *)public_run; // invariant 1 of keys.h
    const reach r = {.ranks = ranks,
                     .per_node = ranks / nodes,
                     .sharding = run->run.sharding,
                     .stages = run->run.collectives != MICS_COLLECTIVES_RING};
    const mics_sharding s = r.sharding;
    const wire_keys keys[] = {
        {.between = gather_key,
         .inside = "run.wire.gather_inside",
         .between_said = run->gather_wire,
         .inside_said = run->gather_inside,
         .hops = gather_hops(&r, run->run.gather_wires),
         .what = "what is gathered",
         .needs = "P above 1"},
        {.between = "run.wire.reduce",
         .inside = "run.wire.reduce_inside",
         .between_said = run->reduce_wire,
         .inside_said = run->reduce_inside,
         .hops = hops_of(&r, 1, s.grads),
         .what = "what each micro-step reduces",
         .needs = "G above 1"},
        {.between = "run.wire.second_hop",
         .inside = "run.wire.second_hop_inside",
         .between_said = run->second_hop_wire,
         .inside_said = run->second_hop_inside,
         .hops = both(hops_of(&r, s.grads, s.optimizer), hops_of(&r, s.optimizer, ranks)),
         .what = "the second hop",
         .needs = "G below the number of ranks"},
    };
    if (ranks == 1)
        return MICS_OK;
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++)
        MICS_TRY(check_keys(run, &r, &keys[i]));
    const mics_wires gather = run->run.gather_wires;
    if (s.params > r.per_node && gather.inside == MICS_WIRE_BF16 &&
        gather.between == MICS_WIRE_FP32)
        return mics_json_fail(run->run.json, "run.wire.gather_inside", MICS_ERR_INVALID,
                              "\"bf16\" inside nodes and fp32 between them saves where it costs "
                              "least; write run.wire.gather \"bf16\"");
    return MICS_OK;
}
