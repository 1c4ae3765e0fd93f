// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// What a schedule sends, keeps on nodes and computes: sums over its lists, before it runs. With local
// steps they repeat after a period. And what a specification makes early, or rounded.
#ifndef MICS_LEDGER_H
#define MICS_LEDGER_H

#include "mics/core/schedule.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Bytes that `rank` sends in one step of a list; 0 for computations and copies. Rings: see comm.h. Pure.
 *
 * Needs:   0 <= rank < mics_mesh_world of the mesh.
 */
mics_bytes mics_schedule_step_bytes(const mics_schedule *schedule, const mics_step *step,
                                    int32_t rank);

/* Memory that a rank's copies of the state take on its node (run.memory_checkpoint_every), at most;
 * with what its node keeps for a partner. Pure.
 *
 * Units:   bytes.
 */
size_t mics_schedule_node_bytes(const mics_schedule *schedule);

/* Its parts: what a rank's copies take whatever the model, and what a unit adds of `padded_elems`
 * parameters whose optimizer states are cut over `owners` ranks. Pure.
 *
 * Units:   bytes.
 * Needs:   owners >= 1.
 */
size_t mics_schedule_node_file_bytes(const mics_mesh *mesh);
size_t mics_schedule_node_unit_bytes(const mics_mesh *mesh, mics_optimizer_kind optimizer,
                                     int64_t padded_elems, int32_t owners);

/* Bytes that `rank` sends in one whole run of a list. Pure.
 *
 * Needs:   0 <= rank < mics_mesh_world of the mesh.
 */
mics_bytes mics_schedule_rank_bytes(const mics_schedule *schedule, mics_phase phase, int32_t rank);

/* The same of training step number `number`, in which units meet or do not; mics_schedule_rank_bytes
 * is of a training list without a meeting. Pure.
 *
 * Needs:   0 <= rank < mics_mesh_world of the mesh; number >= 1.
 */
mics_bytes mics_schedule_rank_bytes_in(const mics_schedule *schedule, int32_t rank, int64_t number);

/* What all ranks send in the meetings of a period: of the training steps behind the first. Pure. */
mics_bytes mics_schedule_meeting_bytes(const mics_schedule *schedule);

/* What all ranks send in a list without a meeting: what metrics.jsonl reports. Pure. */
mics_bytes mics_schedule_all_bytes(const mics_schedule *schedule, mics_phase phase);

/* The same for one stage of one kind of step only, over all ranks; of MEET_* in a period. Pure. */
mics_bytes mics_schedule_kind_bytes(const mics_schedule *schedule, mics_phase phase,
                                    mics_step_kind kind, mics_step_stage stage);

// What units in host memory take there, and what the arena spares. Of one micro-batch in flight.
typedef struct mics_offload {
    int64_t host_elems, spared_elems;
} mics_offload;

/* Those of a schedule that has any other spec.offload_units. Pure.
 *
 * Needs:   0 <= units <= schedule->offload_max.
 */
mics_offload mics_schedule_offload(const mics_schedule *schedule, int32_t units);

/* FLOPs a rank computes in one run of a list, recomputation included. Pure. */
double mics_schedule_flops(const mics_schedule *schedule, mics_phase phase);

// One kind of collective on all units that it runs alike on.
typedef struct mics_operation {
    mics_step_kind kind;   // a collective of units
    const char *algorithm; // mics_step_algorithm_text
    mics_comm_dtype dtype;
    bool coded; // as changes, inter-node
    mics_group_axis axis;
    int32_t units;
    int64_t min_elems, max_elems; // of a unit
} mics_operation;

enum { MICS_MAX_OPERATIONS = 24 };

typedef struct mics_operations {
    mics_operation rows[MICS_MAX_OPERATIONS];
    int32_t count;
    int32_t whole_units; // that stay whole on every rank, where others are sharded
    int64_t whole_elems; // of them together
} mics_operations;

/* The collectives of a training step over units, in the order in which they come.
 *
 * Returns: MICS_OK; MICS_ERR_MEMORY.
 */
mics_status mics_schedule_operations(mics_memory *memory, const mics_schedule *schedule,
                                     mics_operations *operations_out);

/* Training steps after which lists repeat: outer.every, times moments_every where states meet; 1
 * without local steps. Pure. */
int32_t mics_schedule_period(const mics_schedule *schedule);

/* Different offsets of meetings in a period; 0 without local steps. Pure. */
int32_t mics_schedule_windows(const mics_schedule *schedule);

/* Whether replica gathers can be early: there are replicas, and sums travel whole. Pure.
 *
 * Needs:   of the spec its mesh, all_reduces and boundary_dtype.
 */
bool mics_schedule_may_gather_early(const mics_schedule_spec *spec);

/* Whether they are early where nobody says so (boundary.c has the rule). Pure.
 *
 * Needs:   the same, precision and params_dtype.
 */
bool mics_schedule_early_by_rule(const mics_schedule_spec *spec);

/* Whether accumulators hold numbers of 2 bytes: gradients are written where the optimizer reads them,
 * and added to rounded. In mixed precision with G = 1, if spec.rounded_sums allows it, or on one rank
 * with one micro-step, where nothing is added; not of an optimizer that takes matrices whole. The
 * second hop then sends them as they are, and its sums, made in fp32, are rounded once a stage. Pure.
 *
 * Needs:   of the spec its precision, mesh, micro_steps, rounded_sums and optimizer.
 */
bool mics_schedule_rounds_sums(const mics_schedule_spec *spec);

#ifdef __cplusplus
}
#endif
#endif
