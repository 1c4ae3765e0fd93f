// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Who makes which matrix orthogonal, where the optimizer does that (Muon).
//
// Units of one length go in rounds of at most O, as even as can be. In a round, block d of the
// optimizer group, an owner, takes matrices of unit d modulo the round's units. So an owner needs
// one unit's momentum, a block from each member, and each gets one block of each owner's back: two
// all-to-alls of equal blocks. A unit whose round has fewer than O has several owners.
//
// Invariants, checked by check_owners:
//   1. A unit with matrices is in one round, whose units are alike and at most O.
//   2. A matrix has one owner, and that takes its unit.
//   3. No owner of a unit could give a matrix to another one, who would then still have fewer FLOPs
//      than it has now.
#include "schedule/owners.h"
#include "mics/log.h"
#include "schedule/rules.h"
#include <stdlib.h>

// Whether a unit has matrices that the optimizer makes orthogonal.
static bool orthogonalises(const mics_schedule *schedule, int32_t unit)
{
    const mics_unit *of = &schedule->spec.model->units[unit];
    const bool takes = mics_optimizer_def_get(schedule->spec.optimizer)->matrix_workspace != NULL;
    bool found = false;
    for (int32_t p = 0; takes && p < of->param_count; p++)
        found = found || of->params[p].hidden;
    return found && !schedule->spec.evaluation_only && mics_schedule_trains(schedule, unit);
}

// ---- rounds ----

static bool alike(const mics_schedule *schedule, int32_t unit, int32_t other)
{
    return schedule->padded_elems[unit] == schedule->padded_elems[other] &&
           schedule->experts[unit] == schedule->experts[other] && orthogonalises(schedule, other);
}

// Puts all units like this one, from it on, into rounds.
static void fill_rounds(mics_schedule *schedule, int32_t unit)
{
    int32_t *units = schedule->members + schedule->member_count, count = 0;
    for (int32_t u = unit; u < schedule->spec.model->unit_count; u++) {
        if (alike(schedule, unit, u))
            units[count++] = u;
    }
    const int32_t most = schedule->sharding[unit].optimizer, rounds = (count + most - 1) / most;
    for (int64_t round = 0; round < rounds; round++) {
        const int32_t begin = (int32_t)(round * count / rounds);
        const int32_t end = (int32_t)((round + 1) * count / rounds);
        for (int32_t i = begin; i < end; i++)
            schedule->rounds[units[i]] =
                (mics_round){schedule->member_count + begin, end - begin, i - begin, 0};
    }
    schedule->member_count += count;
}

// ---- matrices ----

// Collects the matrices of a rank's block of a unit into `to`, or counts them if `to` is NULL. All
// blocks of a unit have the same matrices.
static int32_t collect_matrices(const mics_schedule *schedule, int32_t unit, mics_matrix *to)
{
    const mics_range params = mics_schedule_unit_params(schedule, unit, 0);
    const int64_t begin = mics_schedule_unit_block(schedule, unit, 0).begin;
    int32_t count = 0;
    for (int64_t p = params.begin; p < params.end; p++) {
        const mics_param *param = &schedule->spec.model->units[unit].params[p];
        int64_t row = 0, rows = 0;
        for (int32_t part = 0; param->hidden && mics_param_next_matrix(param, &part, &row, &rows);
             count++) {
            const int64_t columns = param->shape[1];
            if (to != NULL)
                to[count] = (mics_matrix){
                    .first = param->offset + row * columns - begin,
                    .rows = rows,
                    .columns = columns,
                    .flops = mics_optimizer_matrix_flops(schedule->spec.optimizer, rows, columns),
                    .param = (int32_t)(p - params.begin)};
        }
    }
    return count;
}

// Largest first; of equal ones as they lie.
static int compare_matrices(const void *a, const void *b)
{
    const mics_matrix *one = a, *other = b;
    if (one->flops != other->flops)
        return one->flops > other->flops ? -1 : 1;
    return one->first < other->first ? -1 : 1;
}

static mics_status find_matrices(mics_schedule *schedule)
{
    const int32_t units = schedule->spec.model->unit_count;
    MICS_TRY(MICS_NEW(schedule->memory, units + 1, &schedule->matrix_at));
    for (int32_t u = 0; u < units; u++)
        schedule->matrix_at[u + 1] =
            schedule->matrix_at[u] +
            (schedule->rounds[u].count > 0 ? collect_matrices(schedule, u, NULL) : 0);
    MICS_TRY(MICS_NEW(schedule->memory, schedule->matrix_at[units], &schedule->matrices));
    for (int32_t u = 0; u < units; u++) {
        mics_matrix *matrices = schedule->matrices + schedule->matrix_at[u];
        if (schedule->rounds[u].count == 0)
            continue;
        const int32_t count = collect_matrices(schedule, u, matrices);
        qsort(matrices, (size_t)count, sizeof *matrices, compare_matrices);
    }
    return MICS_OK;
}

// ---- owners ----

// Gives each matrix of a unit to the owner that has the fewest FLOPs so far, `loads` by owner.
static void choose_owners(const mics_schedule *schedule, int32_t unit, double *loads)
{
    const mics_round *round = &schedule->rounds[unit];
    const int32_t owners = schedule->sharding[unit].optimizer;
    for (int32_t m = schedule->matrix_at[unit]; m < schedule->matrix_at[unit + 1]; m++) {
        mics_matrix *matrix = &schedule->matrices[m];
        matrix->owner = round->index;
        for (int32_t owner = round->index; owner < owners; owner += round->count) {
            if (loads[owner] < loads[matrix->owner])
                matrix->owner = owner;
        }
        loads[matrix->owner] += matrix->flops;
    }
}

static void find_owners_of(mics_schedule *schedule, int32_t unit, double *loads)
{
    const mics_round round = schedule->rounds[unit];
    const int32_t owners = schedule->sharding[unit].optimizer;
    int32_t busiest = 0;
    for (int32_t owner = 0; owner < owners; owner++)
        loads[owner] = 0;
    for (int32_t i = 0; i < round.count; i++)
        choose_owners(schedule, schedule->members[round.at + i], loads);
    for (int32_t owner = 1; owner < owners; owner++)
        busiest = loads[owner] > loads[busiest] ? owner : busiest;
    for (int32_t i = 0; i < round.count; i++)
        schedule->rounds[schedule->members[round.at + i]].busiest = busiest;
}

mics_status find_owners(mics_schedule *schedule)
{
    const int32_t units = schedule->spec.model->unit_count;
    double *loads = NULL;
    MICS_TRY(MICS_NEW(schedule->memory, units, &schedule->rounds));
    for (int32_t u = 0; u < units; u++) {
        if (schedule->rounds[u].count == 0 && orthogonalises(schedule, u))
            fill_rounds(schedule, u);
    }
    MICS_TRY(find_matrices(schedule));
    MICS_TRY(MICS_NEW(schedule->memory, schedule->spec.mesh.sharding.optimizer, &loads));
    for (int32_t u = 0; u < units; u++) {
        if (schedule->rounds[u].count > 0 && schedule->rounds[u].index == 0)
            find_owners_of(schedule, u, loads);
    }
    mics_free(schedule->memory, loads);
    return MICS_OK;
}

double owner_flops(const mics_schedule *schedule, int32_t unit, int32_t owner)
{
    const int32_t owned = mics_schedule_owned_unit(schedule, unit, owner);
    double flops = 0;
    for (int32_t m = schedule->matrix_at[owned]; m < schedule->matrix_at[owned + 1]; m++)
        flops += schedule->matrices[m].owner == owner ? schedule->matrices[m].flops : 0;
    return flops;
}

// ---- what must hold ----

static mics_status broken(int32_t unit, int number, const char *why)
{
    return mics_fail(MICS_ERR_INVALID,
                     "schedule: owners of unit %d break invariant %d: %s; this is a defect of mics",
                     (int)unit, number, why);
}

static mics_status check_round(const mics_schedule *schedule, int32_t unit)
{
    const mics_round round = schedule->rounds[unit];
    const bool takes = orthogonalises(schedule, unit);
    if (takes != (round.count > 0) || round.count > schedule->sharding[unit].optimizer)
        return broken(unit, 1, "it is in no round, or in one that is too long");
    if (!takes)
        return MICS_OK;
    const int32_t first = schedule->members[round.at];
    if (round.index >= round.count || schedule->members[round.at + round.index] != unit ||
        schedule->rounds[first].at != round.at || !alike(schedule, unit, first))
        return broken(unit, 1, "its round is of others");
    return MICS_OK;
}

// Whether an owner is too busy beside another one of its unit.
static bool could_give(const mics_schedule *schedule, int32_t unit, const mics_matrix *smallest)
{
    const mics_round *round = &schedule->rounds[unit];
    const double left = owner_flops(schedule, unit, smallest->owner) - smallest->flops;
    for (int32_t owner = round->index; owner < schedule->sharding[unit].optimizer;
         owner += round->count) {
        if (left > owner_flops(schedule, unit, owner) * (1 + 1e-12))
            return true;
    }
    return false;
}

static mics_status check_matrices(const mics_schedule *schedule, int32_t unit)
{
    const mics_round *round = &schedule->rounds[unit];
    const int32_t begin = schedule->matrix_at[unit], end = schedule->matrix_at[unit + 1];
    if (end - begin != (round->count > 0 ? collect_matrices(schedule, unit, NULL) : 0))
        return broken(unit, 2, "it has other matrices");
    for (int32_t m = begin; m < end; m++) {
        const mics_matrix *matrix = &schedule->matrices[m];
        if (matrix->owner < 0 || matrix->owner >= schedule->sharding[unit].optimizer ||
            matrix->owner % round->count != round->index)
            return broken(unit, 2, "a matrix's owner does not take its unit");
        if (could_give(schedule, unit, matrix))
            return broken(unit, 3, "an owner has too many matrices");
    }
    return MICS_OK;
}

mics_status check_owners(const mics_schedule *schedule)
{
    for (int32_t u = 0; u < schedule->spec.model->unit_count; u++) {
        MICS_TRY(check_round(schedule, u));
        MICS_TRY(check_matrices(schedule, u));
    }
    return MICS_OK;
}
