// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Attention as graphs of cuDNN's operations, and the plans that run them.
#pragma once

#include "mics/op.h"
#include "ops/attention/cudnn_api.h"

// What a graph reads and writes, by number: a call gives the address of each that its pass has.
typedef enum cudnn_part {
    CUDNN_PART_Q,
    CUDNN_PART_K,
    CUDNN_PART_V,
    CUDNN_PART_Y,
    CUDNN_PART_LSE,    // (b, h, T) of the chunk's, within (B, H, T)
    CUDNN_PART_SCALE,  // numbers of the host
    CUDNN_PART_LOWEST, // of causal attention
    CUDNN_FORWARD_PARTS,
    CUDNN_PART_DY = CUDNN_FORWARD_PARTS,
    CUDNN_PART_DQ,
    CUDNN_PART_DK,
    CUDNN_PART_DV,
    CUDNN_PART_SUMS, // (b, h, T) without gaps, scratch
    CUDNN_PART_ONE,
    CUDNN_PARTS
} cudnn_part;

// One pass over some heads of some sequences of (B, T) tokens.
typedef struct cudnn_attention {
    int64_t sequences, T;
    mics_heads heads; // of the chunk
    mics_heads all;   // that lie in a token's row
    int type;         // CUDNN_BF16, CUDNN_HALF
    bool causal, backward;
} cudnn_attention;

typedef struct cudnn_plan cudnn_plan;

/* Makes a plan whose workspace is at most `bytes`: the first that cuDNN's heuristics name and which
 * is deterministic.
 *
 * Returns: NULL where there is none, or memory is short: why_not says what cuDNN said.
 * Owns:    close with cudnn_plan_close, before the handle is destroyed. */
cudnn_plan *cudnn_plan_open(const cudnn_library *library, cudnn_handle handle,
                            const cudnn_attention *attention, int64_t bytes, char *why_not,
                            size_t capacity);

/* Closes; NULL is allowed. */
void cudnn_plan_close(cudnn_plan *plan);

/* Enqueues the plan's pass on the handle's stream. What was called with the same addresses before
 * allocates nothing.
 *
 * parts: by cudnn_part; those that the pass lacks are not read.
 * Returns: CUDNN_OK, or cuDNN's status. */
int cudnn_plan_run(cudnn_plan *plan, void *const parts[CUDNN_PARTS], void *workspace);
