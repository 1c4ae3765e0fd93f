// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// What islands know of each other, and which meetings are due.
//
// An island concludes from a step what it likes by itself; the others hear of it in the next list, or
// from a completion. Who speaks for an island is its first rank; all its ranks say the same, but for
// what each tells and holds.
//
// Tokens that counted. An island knows those of its newest step before the others do, and weighs its
// changes with them; what a meeting divides by is summed behind AGREE_WORLD, on every rank from the
// same integers.
#include "engine/islands.h"
#include "base/free.h"
#include "engine/ballot.h"
#include "mics/core/agreement.h"
#include "mics/core/ledger.h"
#include "mics/log.h"
#include <math.h>
#include <string.h>

static const mics_mesh *mesh_of(const mics_engine *engine)
{
    return &engine->schedule->spec.mesh;
}

mics_status islands_open(mics_engine *engine)
{
    mics_memory *memory = engine->spec.memory;
    const mics_mesh *mesh = mesh_of(engine);
    if (engine->schedule->meetings == NULL)
        return MICS_OK;
    MICS_TRY(MICS_NEW(memory, 1, &engine->islands));
    struct islands *self = engine->islands;
    self->windows = mics_schedule_windows(engine->schedule);
    self->window = -1;
    MICS_TRY(MICS_NEW(memory, 2 * (int64_t)mics_mesh_world(mesh), &self->records));
    MICS_TRY(MICS_NEW(memory, (int64_t)self->windows * mesh->islands, &self->counted));
    return MICS_NEW(memory, self->windows, &self->weights);
}

void islands_close(mics_engine *engine)
{
    struct islands *self = engine->islands;
    if (self == NULL)
        return;
    MICS_FREE_ALL(engine->spec.memory, self->records, self->counted, self->weights, self);
    engine->islands = NULL;
}

mics_outer_state mics_engine_outer_state(const mics_engine *engine)
{
    struct islands *self = engine->islands;
    if (self == NULL)
        return (mics_outer_state){.islands = 1};
    return (mics_outer_state){.met = &self->met,
                              .counted = self->counted,
                              .windows = self->windows,
                              .islands = mesh_of(engine)->islands};
}

const mics_world_result *mics_engine_world(const mics_engine *engine)
{
    return &engine->world;
}

// ---- which meetings are due ----

bool meeting_runs(const mics_engine *engine, const mics_step *step)
{
    const struct islands *self = engine->islands;
    if (self->window >= 0)
        return step->state == 0 && engine->schedule->meetings[step->unit].window == self->window;
    return self->number > self->met && mics_step_is_due(step, self->number);
}

static int32_t adoptions_of(const mics_engine *engine, int64_t number)
{
    const mics_step_list *list = &engine->schedule->lists[MICS_PHASE_TRAIN];
    int32_t count = 0;
    for (int32_t i = 0; i < list->count && number > engine->islands->met; i++)
        count += list->steps[i].kind == MICS_STEP_MEET_ADOPT &&
                 mics_step_is_due(&list->steps[i], number);
    return count;
}

// Adoptions up to which masters change: of the list that runs, or else of the next one.
static void expect_adoptions(mics_engine *engine, int64_t number)
{
    pthread_mutex_lock(&engine->mutex);
    engine->islands->left = adoptions_of(engine, number);
    pthread_mutex_unlock(&engine->mutex);
}

// ---- tokens ----

// Over those of a full period.
static float weight_of(const mics_engine *engine, int64_t counted)
{
    const mics_schedule_spec *spec = &engine->schedule->spec;
    const double all = (double)batch_items(engine) * spec->micro_steps * spec->mesh.ranks;
    return (float)((double)counted / (all * spec->outer.every));
}

static int64_t trained_tokens(const world_record *record)
{
    return record->verdict == MICS_VERDICT_UPDATED ? record->counted : 0;
}

void islands_begin(mics_engine *engine, int64_t number)
{
    struct islands *self = engine->islands;
    if (self == NULL)
        return;
    const mics_mesh *mesh = mesh_of(engine);
    const int32_t island = engine->first / mesh->ranks;
    const int64_t newest = self->fresh ? trained_tokens(&self->own) : 0;
    self->number = number;
    self->told = 0;
    for (int32_t w = 0; w < self->windows; w++)
        self->weights[w] = weight_of(engine, self->counted[w * mesh->islands + island] + newest);
    if (number > 0)
        expect_adoptions(engine, number);
}

// Those of a window that has met count no more.
static void end_window(mics_engine *engine, int32_t window)
{
    const mics_mesh *mesh = mesh_of(engine);
    for (int32_t island = 0; island < mesh->islands; island++)
        engine->islands->counted[window * mesh->islands + island] = 0;
}

bool islands_held(const mics_engine *engine)
{
    return engine->schedule->spec.outer.overlap_steps > 0 &&
           (engine->islands->told & TOLD_HOLD) != 0;
}

int64_t islands_next_step(const mics_engine *engine)
{
    const bool again = engine->islands != NULL && engine->islands->own.verdict == MICS_VERDICT_HELD;
    return engine->step + !again;
}

void islands_end(mics_engine *engine)
{
    struct islands *self = engine->islands;
    const mics_meeting *meetings = engine->schedule->meetings;
    if (self == NULL)
        return;
    if (islands_held(engine))
        self->number = 0;
    if (self->window >= 0)
        end_window(engine, self->window);
    for (int32_t u = 0; u < engine->schedule->spec.model->unit_count; u++) {
        const mics_step of = {.period = engine->schedule->spec.outer.every,
                              .offset = meetings[u].offset};
        if (meetings[u].window >= 0 && self->number > self->met &&
            mics_step_is_due(&of, self->number))
            end_window(engine, meetings[u].window);
    }
    self->met = self->number > self->met ? self->number : self->met;
    expect_adoptions(engine, islands_next_step(engine));
}

float islands_weights(const mics_engine *engine, int32_t unit)
{
    const mics_mesh *mesh = mesh_of(engine);
    const int64_t *counted =
        engine->islands->counted + engine->schedule->meetings[unit].window * mesh->islands;
    double sum = 0;
    for (int32_t island = 0; island < mesh->islands; island++)
        sum += (double)weight_of(engine, counted[island]);
    return (float)sum;
}

// ---- the world ----

// Of `ranks` ranks, every `stride`th of which speaks for an island.
static void conclude(mics_engine *engine, const world_record *records, int32_t ranks,
                     int32_t stride, uint32_t told)
{
    mics_world_result result = {.step = engine->noted_step, .told = told};
    double loss = 0, squares = 0;
    for (int32_t rank = 0; rank < ranks; rank += stride) {
        const world_record *of = &records[rank];
        loss += of->loss;
        squares += of->grad_norm * of->grad_norm;
        result.counted += of->counted;
        result.updated += of->verdict == MICS_VERDICT_UPDATED;
        if (of->memory_peak_bytes > result.memory_peak_bytes)
            result.memory_peak_bytes = of->memory_peak_bytes;
        for (int i = 0; i < MICS_ROUTER_SUMS; i++)
            result.router_sums[i] += of->router_sums[i];
        for (int i = 0; i < MICS_PREFERENCE_SUMS; i++)
            result.preference_sums[i] += of->preference_sums[i];
    }
    result.loss = result.counted > 0 ? loss / (double)result.counted : NAN;
    const int32_t count = ranks / stride;
    result.grad_norm = sqrt(squares / count);
    engine->world = result;
}

void islands_note(mics_engine *engine, double loss)
{
    const mics_step_result *result = &engine->result;
    world_record own = {.loss = loss,
                        .grad_norm = result->grad_norm,
                        .counted = result->counted,
                        .memory_peak_bytes = result->memory_peak_bytes,
                        .verdict = (uint16_t)result->verdict};
    memcpy(own.router_sums, result->router_sums, sizeof own.router_sums);
    memcpy(own.preference_sums, result->preference_sums, sizeof own.preference_sums);
    engine->noted_step = engine->step;
    if (engine->islands == NULL) {
        conclude(engine, &own, 1, 1, result->told);
        return;
    }
    engine->islands->own = own;
    engine->islands->fresh = true;
}

void islands_forget(mics_engine *engine)
{
    if (engine->islands != NULL)
        engine->islands->fresh = false;
}

// Islands that are in different steps would not meet.
static mics_status check_together(const mics_engine *engine)
{
    const world_record *records = engine->islands->records;
    for (int32_t rank = 0; rank < mics_mesh_world(mesh_of(engine)); rank++) {
        if (records[rank].step == engine->step && records[rank].fresh == engine->islands->fresh)
            continue;
        if (engine->rank != 0)
            return MICS_ERR_INVALID;
        return mics_fail(
            MICS_ERR_INVALID,
            "rank 0 is in step %lld, and rank %d of another island in step %lld, or has "
            "taken over another state: all islands make the same calls",
            (long long)engine->step, (int)rank, (long long)records[rank].step);
    }
    return MICS_OK;
}

static void count_tokens(mics_engine *engine)
{
    const mics_mesh *mesh = mesh_of(engine);
    struct islands *self = engine->islands;
    for (int32_t island = 0; island < mesh->islands; island++) {
        const int64_t tokens = trained_tokens(&self->records[island * mesh->ranks]);
        for (int32_t window = 0; window < self->windows; window++)
            self->counted[window * mesh->islands + island] += tokens;
    }
}

// A completion is no step, so it casts no ballot.
mics_status agree_world(mics_engine *engine, const mics_comm_group *over, size_t block_bytes)
{
    struct islands *self = engine->islands;
    const int32_t world = over->group.size;
    world_record *mine = &self->records[engine->rank];
    _Static_assert(sizeof *mine == sizeof(mics_agreement), "AGREE_WORLD sends as much as AGREE");
    *mine = self->own;
    mine->step = engine->step;
    mine->fresh = self->fresh;
    mine->told = engine->completing ? 0 : cast_ballot(engine);
    MICS_TRY(mics_comm_all_gather_doubling(engine->spec.comm, over, self->records,
                                           self->records + world, block_bytes));
    MICS_TRY(check_together(engine));
    for (int32_t rank = 0; rank < world; rank++)
        self->told |= self->records[rank].told;
    if (!self->fresh)
        return MICS_OK;
    count_tokens(engine);
    conclude(engine, self->records, world, mesh_of(engine)->ranks, self->told);
    self->fresh = false;
    return MICS_OK;
}
