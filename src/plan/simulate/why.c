// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// A simulation in words.
#include "mics/simulate.h"
#include <stdio.h>

mics_part mics_part_of(mics_step_kind kind)
{
    switch (kind) {
    case MICS_STEP_FORWARD:
    case MICS_STEP_BACKWARD:
        return MICS_PART_COMPUTATION;
    case MICS_STEP_GATHER:
        return MICS_PART_GATHER;
    case MICS_STEP_REDUCE:
        return MICS_PART_REDUCE;
    case MICS_STEP_SCATTER:
    case MICS_STEP_ALL_REDUCE:
        return MICS_PART_SECOND_HOP;
    case MICS_STEP_PARAM_SYNC:
        return MICS_PART_PARAM_SYNC;
    default:
        return MICS_PART_UPDATE;
    }
}

const char *mics_part_text(mics_part part)
{
    static const char *const texts[MICS_PARTS] = {
        [MICS_PART_COMPUTATION] = "computation", [MICS_PART_GATHER] = "gather",
        [MICS_PART_REDUCE] = "reduce",           [MICS_PART_SECOND_HOP] = "second hop",
        [MICS_PART_PARAM_SYNC] = "param sync",   [MICS_PART_UPDATE] = "update"};
    return (unsigned)part < MICS_PARTS ? texts[part] : "unknown part";
}

static double percent(const mics_simulation *s, mics_part part)
{
    return s->step_us > 0 ? s->parts[part].critical_us / s->step_us * 100 : 0;
}

// The stage of a kind with most of a part's share of the longest chain.
static const mics_simulated_kind *main_kind(const mics_simulation *s, mics_part part)
{
    const mics_simulated_kind *most = NULL;
    for (int i = 0; i < MICS_STEP_KINDS * MICS_STAGES; i++) {
        const mics_simulated_kind *kind = &s->kinds[i / MICS_STAGES][i % MICS_STAGES];
        if (mics_part_of((mics_step_kind)(i / MICS_STAGES)) == part &&
            (most == NULL || kind->critical_us > most->critical_us))
            most = kind;
    }
    return most;
}

static mics_part second_part(const mics_simulation *s)
{
    mics_part second = s->limit == MICS_PART_COMPUTATION ? MICS_PART_GATHER : MICS_PART_COMPUTATION;
    for (int part = 0; part < MICS_PARTS; part++) {
        if (part != (int)s->limit && s->parts[part].critical_us > s->parts[second].critical_us)
            second = (mics_part)part;
    }
    return second;
}

char *mics_simulation_why(const mics_simulation *simulation, const mics_cluster *cluster,
                          char *text, size_t capacity)
{
    const mics_part first = simulation->limit, second = second_part(simulation);
    const mics_simulated_kind *kind = main_kind(simulation, first);
    char pace[MICS_CLUSTER_NAME_BYTES + 32] = "";
    if (kind->tier >= 0)
        snprintf(pace, sizeof pace, " (%s of %s)",
                 kind->limit == MICS_COST_BY_LINK ? "links" : mics_cost_limit_text(kind->limit),
                 cluster->tiers[kind->tier].name);
    snprintf(text, capacity, "%s %.0f %%%s, %s %.0f %%", mics_part_text(first),
             percent(simulation, first), pace, mics_part_text(second), percent(simulation, second));
    return text;
}
