// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Rules that the schedule, the engine and the planner share: what is coded, cut into chunks or left
// over.
#pragma once

#include "mics/core/ledger.h"
#include "mics/core/schedule.h"

/* Whether a unit's parameter sync sends changes, inter-node. Its update then writes masters alone:
 * until the sync this rank's block of the parameter shard is what other ranks have of it. Pure.
 *
 * Needs:   0 <= unit < units of the model.
 */
static inline bool mics_schedule_codes(const mics_schedule *schedule, int32_t unit)
{
    const mics_sharding *s = &schedule->sharding[unit];
    return schedule->spec.delta_sync && mics_schedule_trains(schedule, unit) &&
           s->optimizer > s->params &&
           s->optimizer * schedule->experts[unit] > schedule->spec.mesh.ranks_per_node;
}

/* Whether that of any unit does. Pure. */
static inline bool mics_schedule_codes_any(const mics_schedule *schedule)
{
    bool any = false;
    for (int32_t u = 0; u < schedule->spec.model->unit_count; u++)
        any = any || mics_schedule_codes(schedule, u);
    return any;
}

/* Elements of each block that a DIRECT sum sends at once, of `elems`: all of them, or a chunk. Of
 * numbers that travel as they are held. Pure.
 *
 * Needs:   of the spec its sum_chunk_elems; elems >= 0.
 */
int64_t mics_schedule_sum_chunk(const mics_schedule_spec *spec, int64_t elems);

/* Where in the activation arena lies what a unit's plan says, for one micro-batch in flight. Pure.
 *
 * Needs:   0 <= in_flight < spec.layered_micro_steps of the schedule.
 * Returns: offset in elements; `at` itself where it is -1, or shared by all.
 */
static inline int64_t mics_schedule_in_flight_at(const mics_schedule *schedule, int64_t at,
                                                 int32_t in_flight)
{
    return at >= 0 && at < schedule->in_flight_elems ? at + in_flight * schedule->in_flight_elems
                                                     : at;
}

/* The unit of a round that an owner (a block of the optimizer group) takes matrices of. Pure.
 *
 * Needs:   a unit of the round.
 */
static inline int32_t mics_schedule_owned_unit(const mics_schedule *schedule, int32_t unit,
                                               int32_t owner)
{
    const mics_round round = schedule->rounds[unit];
    return schedule->members[round.at + owner % round.count];
}

/* Floats that the momentum of a round takes whose units have so many elements (padded): a block for
 * each owner, and one from each for what the rank owns, which are the same where it owns all. Pure.
 *
 * Needs:   padded_elems >= 0, optimizer >= 1.
 */
static inline int64_t mics_schedule_round_elems(int64_t padded_elems, int32_t optimizer)
{
    return optimizer > 1 ? 2 * padded_elems : padded_elems;
}

/* Whether all collectives of a kind are part of what the step before left, and nothing is sent
 * where that left nothing: those of momentum where updates are deferred, and replica gathers that
 * are not early. Pure. */
static inline bool mics_schedule_is_left_over(const mics_schedule *schedule, mics_step_kind kind)
{
    return mics_schedule_defers(schedule) &&
           (kind == MICS_STEP_MOMENTUM_TO_OWNERS || kind == MICS_STEP_MOMENTUM_BACK ||
            (kind == MICS_STEP_REPLICA_GATHER && !schedule->spec.early_gathers));
}

/* Bytes of one number of accumulators. Needs what mics_schedule_rounds_sums does. */
size_t mics_schedule_sum_bytes(const mics_schedule_spec *spec);

/* Elements of the activation arena that a tensor of a micro-batch takes: those of 2 bytes hold half
 * a number of a tensor that is fp32. Pure. */
int64_t mics_schedule_tensor_elems(const mics_schedule_spec *spec, const mics_tensor *tensor);

/* Bytes of one element of what a tag counts; 4 for what is counted in other ways. What is held for
 * the optimizer is mics_optimizer_kept_bytes. Pure.
 */
size_t mics_precision_bytes(mics_precision precision, mics_memory_tag tag);
