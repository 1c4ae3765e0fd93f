// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// The schedule of what a run says.
#include "run/run_schedule.h"
#include "mics/core/schedule.h"
#include "schedule/rules.h"
#include "share.h"
#include "sizing.h"

// Which algorithms run.collectives stands for; "auto", until gathers were timed (collectives.h).
static void choose_collectives(const mics_run *run, mics_schedule_spec *spec)
{
    const bool ring = run->collectives == MICS_COLLECTIVES_RING;
    spec->reduce = spec->boundary = ring ? MICS_ALGORITHM_RING : MICS_ALGORITHM_TWO_STAGE;
    spec->gather =
        run->collectives == MICS_COLLECTIVES_RING_GATHERS ? MICS_ALGORITHM_RING : spec->reduce;
}

// What a sharding has no use for is said once (run_schedule_open).
static bool gathers_early(const mics_run *run, const mics_schedule_spec *spec)
{
    return run->early_gathers_auto ? mics_schedule_early_by_rule(spec)
                                   : run->early_gathers && mics_schedule_may_gather_early(spec);
}

mics_status run_schedule_make(mics_memory *memory, const mics_run *run, const mics_model *model,
                              const run_budget *budget, mics_schedule **schedule_out)
{
    mics_schedule_spec spec = {
        .model = model,
        .batch = {.sequences = run->micro_batch * mics_run_sequences_each(run),
                  .length = mics_run_own_length(run, model->positions),
                  .threads = budget->threads,
                  .library = run->attention != MICS_RUN_ATTENTION_OWN},
        .micro_steps = run->micro_steps,
        .prefetch = run->prefetch,
        .layered_micro_steps = run->layered_micro_steps,
        .recompute = run->recompute,
        .offload_units = run->offload_units,
        .param_persistence_threshold = run->param_persistence_threshold,
        .coalesce_below = run->coalesce_below,
        .params_dtype = run->params_dtype,
        .delta_sync = run->delta_sync,
        .grads_dtype = run->grads_dtype,
        .boundary_dtype = run->boundary_dtype,
        .share_params = run->share_params && budget->shares,
        .comm_staging_bytes = budget->staging_bytes,
        .node_memory = run->memory_checkpoint_every > 0,
        .accelerator = budget->accelerator.used,
        .precision = run_budget_precision(budget),
        .optimizer = run->optimizer.kind,
        .state_dtype = run->state_dtype,
        .rounded_sums = run->rounded_sums,
        .preference = run->preference,
        .outer = run->outer_ranks > 0 ? run->outer : (mics_outer){0},
    };
    choose_collectives(run, &spec);
    MICS_TRY(mics_mesh_init(budget->ranks, budget->nodes, run->sharding, &spec.mesh));
    MICS_TRY(mics_mesh_spread_experts(&spec.mesh, run->experts));
    MICS_TRY(mics_mesh_cut_sequences(&spec.mesh, run->sequence));
    if (run->outer_ranks > 0)
        MICS_TRY(mics_mesh_part_islands(&spec.mesh, run->outer_ranks));
    spec.early_gathers = gathers_early(run, &spec);
    return mics_schedule_open(memory, &spec, schedule_out);
}

bool run_saves_behind(const mics_run *run)
{
    return run->checkpoint_every > 0 || run->keep_best;
}

size_t run_save_copy_room(const mics_run *run, const mics_schedule *least, const run_budget *budget)
{
    const int32_t states = mics_optimizer_def_get(run->optimizer.kind)->states;
    const size_t copy = run_share_copy_bytes(least, states);
    if (!run_saves_behind(run) || budget->accelerator.used) // a GPU's memory has none of it
        return 0;
    return least->ledger.total + copy <= run_budget_auto_bytes(budget) ? copy : 0;
}
