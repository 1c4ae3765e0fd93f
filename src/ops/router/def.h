// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// How a router's work is divided on an accelerator, which decides what workspace it needs; parts
// begin on MICS_PART_BYTES.
#pragma once

#include "ops/experts/def.h"

enum {
    // Tokens whose rows one block places: as many as the bits of so many words, of which it keeps
    // that many for each expert.
    MICS_ROUTER_WORDS = 8,
    MICS_ROUTER_FEW_WORDS = 1,
    MICS_ROUTER_FEW_EXPERTS = 1024, // beyond them FEW_WORDS
    MICS_ROUTER_PART = 64,          // tokens of a sequence whose sums one block makes
    MICS_ROUTER_GROUP = 8,          // experts whose gradients of the weight one block sums
    MICS_ROUTER_MAX_BLOCKS = 64,    // such groups times slices of the tokens, at most
    MICS_ROUTER_METRICS = 8,        // of a sequence, at most
};

static inline int64_t mics_router_words(mics_experts e)
{
    return e.count <= MICS_ROUTER_FEW_EXPERTS ? MICS_ROUTER_WORDS : MICS_ROUTER_FEW_WORDS;
}

static inline int64_t mics_router_ceil(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

/* Blocks that place the rows of N tokens. */
static inline int64_t mics_router_places(mics_experts e, int64_t N)
{
    return mics_router_ceil(N, 32 * mics_router_words(e));
}

/* Where input and weight in fp32 begin in forward's workspace, behind how many rows of each expert,
 * and of those dropped, a block places; floats. */
static inline int64_t mics_router_wide_of(mics_experts e, int64_t N)
{
    return mics_part_floats(mics_router_places(e, N) * ((int64_t)e.count + 1) *
                            (int64_t)sizeof(int32_t));
}

/* Parts of a sequence of T tokens. */
static inline int64_t mics_router_parts(int64_t T)
{
    return mics_router_ceil(T, MICS_ROUTER_PART);
}

/* Slices of N tokens over which the weight's gradient is summed. */
static inline int64_t mics_router_slices(mics_experts e, int64_t N)
{
    const int64_t groups = mics_router_ceil(e.count, MICS_ROUTER_GROUP);
    const int64_t most = mics_larger(MICS_ROUTER_MAX_BLOCKS / groups, 1);
    return mics_smaller(mics_router_ceil(N, MICS_ROUTER_PART), most);
}

// Where the parts of backward's workspace begin, floats.
typedef struct mics_router_space {
    int64_t scores;    // (N, count): gradients of scores
    int64_t parts;     // (B * parts, 2 * count + 4): sums of a part's tokens
    int64_t sequences; // (B, count + 1): each probability's gradient; the scale of losses
    int64_t metrics;   // (B, MICS_ROUTER_METRICS), fp64
    int64_t sums;      // (slices, count, C): the weight's gradient
    int64_t end;
} mics_router_space;

static inline mics_router_space mics_router_space_of(mics_experts e, int64_t B, int64_t T,
                                                     int64_t C)
{
    const int64_t E = e.count, bytes = (int64_t)sizeof(float);
    mics_router_space space;
    space.scores = 0;
    space.parts = space.scores + mics_part_floats(B * T * E * bytes);
    space.sequences =
        space.parts + mics_part_floats(B * mics_router_parts(T) * mics_route_sums(e) * bytes);
    space.metrics = space.sequences + mics_part_floats(B * (E + 1) * bytes);
    space.sums =
        space.metrics + mics_part_floats(B * MICS_ROUTER_METRICS * (int64_t)sizeof(double));
    space.end = space.sums + mics_part_floats(mics_router_slices(e, B * T) * E * C * bytes);
    return space;
}
