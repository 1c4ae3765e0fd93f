// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// The search over choices.
#pragma once

#include "plan/search/bound.h"
#include "plan/search/probe.h"

typedef struct candidate {
    double bound_us;
    double memory_bytes;
    double
        unseen_bytes; // of it, messages that choice_memory does not count, as far as they are known
    mics_plan_choice choice;
} candidate;

// The best of one sharding so far.
typedef struct found {
    double step_us;
    double memory_bytes;
    double inter_bytes; // sent in a step; below 0: not asked for yet
    mics_plan_choice choice;
} found;

typedef struct search {
    mics_planner *planner; // of E = S = 1
    mics_planner *at;      // of the E and S whose choices are listed
    int32_t sequence;      // this S
    bool keeps_all;        // what fits is among them that keeps activations as they are
    double unseen_bytes;   // of the sharding and collectives whose choices are listed
    const mics_plan_space *space;
    int32_t max_found;
    candidate *candidates;
    int32_t count, capacity;
    found *found; // ascending
    int32_t found_count;
    candidate smallest; // of the least memory
    mics_planner *refused_at;
    mics_plan_choice refused; // the first that rounding rules out, where refused_at != NULL
    int64_t listed, fitting, simulated;
    class_cost *classes;
} search;

static inline bool search_fits(const search *s, double memory_bytes)
{
    return memory_bytes <= limit_of(s->planner);
}

/* Lists the space: every choice with its memory and bound. */
mics_status list_space(search *s);

/* Puts one more choice behind those that are listed. */
mics_status keep_candidate(search *s, const candidate *c);

// Of the best time, below which bounds with activations in host memory are: they are 3 % too low, and
// many choices are about as fast.
#define WORTH_OFFLOAD 0.97

bool same_sharding(const mics_plan_choice *left, const mics_plan_choice *right);

/* Where a choice's sharding stands among what was found; found_count: nowhere. */
int32_t index_of_sharding(const search *s, const mics_plan_choice *choice);

/* Whether a choice that takes so long at least can be neither the best of its sharding nor among the
 * best; with `worth` below 1, whether its bound is not below that share of the best time. */
bool is_cut(const search *s, const mics_plan_choice *choice, double bound_us, double worth);

/* Of a space's choices for one sharding the one with the least memory. */
mics_status least_memory(mics_planner *planner, const mics_plan_space *space,
                         mics_plan_choice *choice_out, double *bytes_out);

/* Sets the fewest offload_units with which a candidate fits, its memory, and a time that copies and
 * computation take at least; false: none, or the node's memory does not hold them. */
mics_status choose_offload(mics_planner *planner, candidate *c, double *us_out, bool *fits_out);

enum { OFFLOAD_BASES = 4 };

static inline bool may_offload(const search *s)
{
    return !s->space->offload_given && s->planner->request.accelerator;
}

/* Lists, with activations in host memory, as few units as fit: the OFFLOAD_BASES best of what was found,
 * where they recompute, and with the next larger micro-batch; or all of the first `listed` that do not fit, unless what was
 * found cuts them. Each with the forms of recomputation that need no number. */
mics_status list_offload_around(search *s);
mics_status list_offload(search *s, int32_t listed);
