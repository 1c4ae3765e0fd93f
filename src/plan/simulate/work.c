// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// What each step of the list takes alone. Everything is priced once: a unit's pass once for all
// micro-steps, a collective once for all units that are alike.
#include "plan/simulate/internal.h"

enum { MAX_EXCHANGES = 16 };

typedef struct pricing {
    const mics_schedule *schedule;
    const mics_cluster *cluster;
    const mics_simulate_options *options;
    work_table *table;
    double *own_us;             // where the options have none
    double *forward, *backward; // by unit, us; below 0: not yet
    int32_t *known;             // by kind, stage and unit: its collective; -1: not yet
    // By kind and stage: the newest collective that was priced, and for which step.
    int32_t last[MICS_STEP_KINDS * MICS_STAGES];
    const mics_step *last_step[MICS_STEP_KINDS * MICS_STAGES];
    // All-to-alls of several sizes that a unit may have.
    const mics_step *exchanges[MAX_EXCHANGES];
    int32_t exchange_index[MAX_EXCHANGES], exchange_count;
} pricing;

static mics_status pricing_open(pricing *p)
{
    mics_memory *memory = p->table->memory;
    const size_t units = (size_t)p->schedule->spec.model->unit_count;
    void *block = NULL;
    if (p->options->pass_us == NULL) {
        MICS_TRY(mics_alloc(memory, MICS_MEM_HOST, 2 * units * sizeof(double), &block));
        p->own_us = block;
        for (size_t u = 0; u < 2 * units; u++)
            p->own_us[u] = -1;
    }
    p->forward = p->own_us != NULL ? p->own_us : p->options->pass_us;
    p->backward = p->forward + units;
    const size_t stages = MICS_STEP_KINDS * MICS_STAGES * units;
    MICS_TRY(mics_alloc(memory, MICS_MEM_HOST, stages * sizeof(int32_t), &block));
    p->known = block;
    for (size_t i = 0; i < stages; i++)
        p->known[i] = -1;
    return MICS_OK;
}

static void pricing_close(pricing *p)
{
    mics_free(p->table->memory, p->own_us);
    mics_free(p->table->memory, p->known);
}

static double computation_us(pricing *p, const mics_step *step)
{
    double *us = NULL;
    const bool first = step->part.op == 0 && step->part.call == 0;
    if (p->schedule->spread != NULL &&
        (step->kind == MICS_STEP_FORWARD || step->kind == MICS_STEP_BACKWARD) &&
        !(first && mics_schedule_ends_pass(p->schedule, step)))
        return mics_simulate_part_us(p->schedule, p->cluster, p->options->math, step);
    switch (step->kind) {
    case MICS_STEP_FORWARD:
        us = &p->forward[step->unit];
        if (*us < 0)
            *us = unit_forward_us(p->schedule, p->cluster, p->options->math, step->unit, NULL);
        return *us;
    case MICS_STEP_BACKWARD:
        us = &p->backward[step->unit];
        if (*us < 0)
            *us = unit_backward_us(p->schedule, p->cluster, p->options->math, step->unit, NULL);
        return *us;
    case MICS_STEP_NORM:
        return norm_us(p->schedule, p->cluster);
    case MICS_STEP_MOMENTUM:
        return momentum_us(p->schedule, p->cluster, step->unit);
    case MICS_STEP_ORTHOGONALISE:
        return orthogonalise_us(p->schedule, p->cluster, p->options->math, step->unit);
    case MICS_STEP_MEET_CHANGE:
    case MICS_STEP_MEET_UPDATE:
    case MICS_STEP_MEET_ADOPT:
        return meeting_us(p->schedule, p->cluster, step);
    default: // UPDATE
        return update_us(p->schedule, p->cluster, step->unit);
    }
}

// ---- collectives ----

static mics_status add_collective(pricing *p, const mics_step *step, int32_t *index_out)
{
    work_table *table = p->table;
    const int32_t count = table->collective_count;
    if ((count & (count - 1)) == 0) { // full
        void *block = table->collectives;
        const size_t capacity = count == 0 ? 1 : 2 * (size_t)count;
        MICS_TRY(mics_realloc(table->memory, MICS_MEM_HOST, capacity * sizeof(collective), &block));
        table->collectives = block;
    }
    collective c = {.use = collective_use(p->schedule, p->cluster, p->options, step)};
    for (int t = 0; t < MICS_CLUSTER_TIERS && c.use.us > 0; t++)
        c.share[t] = c.use.busy_us[t] / c.use.us;
    c.cores = c.use.us > 0 ? c.use.core_us / c.use.us : 0;
    c.late = c.use.us > 0 ? c.use.beside_us / c.use.us - 1 : 0;
    table->collectives[count] = c;
    *index_out = table->collective_count++;
    return MICS_OK;
}

// Whether two steps of one kind and stage cost the same. Decompressing depends on the whole unit,
// which is then alike.
static bool alike(const mics_step *a, const mics_step *b)
{
    return a->axis == b->axis && a->block_elems == b->block_elems &&
           a->block_bytes == b->block_bytes && a->dtype.held == b->dtype.held &&
           a->dtype.sent == b->dtype.sent && a->member_count == 0 && b->member_count == 0;
}

static mics_status find_exchange(pricing *p, const mics_step *step, int32_t *index_out)
{
    int32_t at = 0;
    while (at < p->exchange_count && !alike(p->exchanges[at], step))
        at++;
    if (at == p->exchange_count) {
        at -= at == MAX_EXCHANGES; // the last one gives way
        MICS_TRY(add_collective(p, step, &p->exchange_index[at]));
        p->exchanges[at] = step;
        p->exchange_count = at + 1;
    }
    *index_out = p->exchange_index[at];
    return MICS_OK;
}

static mics_status find_collective(pricing *p, const mics_step *step, int32_t *index_out)
{
    if (step->kind == MICS_STEP_ALL_TO_ALL)
        return find_exchange(p, step, index_out);
    const int32_t unit = step->unit < 0 ? 0 : step->unit;
    const int32_t which = (int32_t)step->kind * MICS_STAGES + (int32_t)step->stage;
    int32_t other = -1; // of states that meet, which may travel otherwise than what they are of
    int32_t *known = &p->known[(int64_t)which * p->schedule->spec.model->unit_count + unit];
    known = step->state > 0 ? &other : known;
    if (*known < 0) {
        const mics_step *last = p->last_step[which];
        if (last != NULL && alike(last, step))
            *known = p->last[which];
        else
            MICS_TRY(add_collective(p, step, known));
        p->last[which] = *known;
        p->last_step[which] = step;
    }
    *index_out = *known;
    return MICS_OK;
}

static mics_status price_steps(pricing *p)
{
    const mics_step_list *list = &p->schedule->lists[MICS_PHASE_TRAIN];
    for (int32_t i = 0; i < list->count; i++) {
        const mics_step *step = &list->steps[i];
        work *w = &p->table->steps[i];
        *w = (work){.collective = -1};
        if (!mics_step_is_compute(step)) {
            MICS_TRY(find_collective(p, step, &w->collective));
            w->us = p->table->collectives[w->collective].use.us;
        } else {
            w->us = computation_us(p, step);
        }
    }
    return MICS_OK;
}

mics_status work_open(mics_memory *memory, const mics_schedule *schedule,
                      const mics_cluster *cluster, const mics_simulate_options *options,
                      work_table *table)
{
    pricing p = {.schedule = schedule, .cluster = cluster, .options = options, .table = table};
    const size_t steps = (size_t)schedule->lists[MICS_PHASE_TRAIN].count;
    mics_status status = MICS_OK;
    void *block = NULL;
    table->memory = memory;
    MICS_TRY(mics_alloc(memory, MICS_MEM_HOST, steps * sizeof(work), &block));
    table->steps = block;
    MICS_TRY_OUT(pricing_open(&p));
    MICS_TRY_OUT(price_steps(&p));
out:
    pricing_close(&p);
    return status;
}

void work_close(work_table *table)
{
    if (table->memory == NULL)
        return;
    mics_free(table->memory, table->steps);
    mics_free(table->memory, table->collectives);
}
