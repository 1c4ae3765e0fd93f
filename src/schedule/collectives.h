// SPDX-FileCopyrightText: The mics authors
// Group, stages, communication dtype and algorithm of a collective.
#pragma once

#include "schedule/builder.h"

/* Which of a unit's collectives run in stages. */
void find_stages(const builder *b, int32_t unit, bool stages[MICS_STEP_KINDS]);

/* The stages of a unit's collective of some kind, in order. */
typedef struct stage_list {
    mics_step_stage at[2];
    int32_t count;
} stage_list;
stage_list stages_of(const builder *b, mics_step_kind kind, int32_t unit);

/* Along which axis a unit's collective of some kind runs. */
mics_group_axis axis_of(const builder *b, mics_step_kind kind, int32_t unit);

/* The all-to-all that an op is, between two tensors of a unit, or their gradients; `elems` of one. */
mics_step all_to_all_step(const builder *b, pass p, const mics_op *op, int64_t from, int64_t to,
                          int64_t elems);

/* What goes directly ahead of a parameter sync that sends changes, and waits as it does. */
mics_step sizes_step(const mics_step *sync);

/* A collective of a unit's meeting, or a stage of it; of what `state` says (mics_step). */
mics_step meeting_step(const builder *b, mics_step_kind kind, mics_step_stage stage, int32_t unit,
                       int32_t state);

/* A collective of `count` units, which are alike sharded, or a stage of it; or an agreement, of
 * none. */
mics_step comm_step(const builder *b, mics_step_kind kind, mics_step_stage stage,
                    const int32_t *units, int32_t count, int32_t micro_step);
