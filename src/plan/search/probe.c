// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// What holds for many choices, taken from a few real schedules, so that there is no second formula.
//
// Which gathers a list has, and which slots, depends on what is sharded at all, units gathered
// ahead, recomputation, layered micro-steps and groups of them; from the second layered group on
// each is like the one before. Activations and computation depend on the micro-batch and
// recomputation. The boundary depends on the optimizer's degree.
#include "plan/search/probe.h"
#include "base/free.h"
#include "mics/core/ledger.h"
#include "plan/search/choice.h"
#include "plan/simulate/simulate.h"
#include "schedule/layered.h"
#include "schedule/rules.h"
#include <string.h>

// ---- classes of units ----

static int32_t find_class(mics_planner *planner, const unit_class *wanted)
{
    int32_t at = 0;
    while (at < planner->class_count &&
           (planner->classes[at].padded_elems != wanted->padded_elems ||
            planner->classes[at].whole != wanted->whole ||
            planner->classes[at].experts != wanted->experts ||
            planner->classes[at].frozen != wanted->frozen))
        at++;
    if (at == planner->class_count)
        planner->classes[planner->class_count++] = *wanted;
    return at;
}

mics_sharding class_sharding(const mics_planner *planner, const unit_class *class,
                             mics_sharding mesh)
{
    const int32_t experts = class->experts ? planner->experts : 1;
    const mics_sharding s = {mesh.params / experts, mesh.grads / experts, mesh.optimizer / experts};
    const int32_t params = class->whole ? 1 : s.params;
    if (class->frozen)
        return (mics_sharding){params, params, params};
    return class->whole ? (mics_sharding){1, 1, s.optimizer} : s;
}

// As little as E allows, with that O.
static mics_sharding plain_sharding(const mics_planner *planner, int32_t optimizer)
{
    return (mics_sharding){planner->experts, planner->experts, optimizer};
}

static void count_forwarded(mics_planner *planner, int32_t unit)
{
    const mics_model *model = planner->request.model;
    for (int32_t u = 0; u < model->unit_count - 1; u++) { // the last ends with the loss
        for (int32_t op = 0; op < model->units[u].op_count; op++) {
            for (int i = 0; i < MICS_OP_PARAMS; i++) {
                if (model->units[u].ops[op].params[i].unit == unit) {
                    planner->classes[planner->class_of[unit]].forwarded++;
                    return;
                }
            }
        }
    }
}

// A unit whose gradient the last backward writes: of the first op with a trained parameter.
static int32_t last_written(const mics_model *model)
{
    for (int32_t u = 0; u < model->unit_count; u++) {
        for (int32_t i = 0; i < model->units[u].op_count * MICS_OP_PARAMS; i++) {
            const mics_param_ref ref =
                model->units[u].ops[i / MICS_OP_PARAMS].params[i % MICS_OP_PARAMS];
            if (ref.unit >= 0 && !mics_model_param(model, ref)->frozen)
                return ref.unit;
        }
    }
    return 0;
}

mics_status probe_classes(mics_planner *planner)
{
    const mics_model *model = planner->request.model;
    const size_t units = (size_t)model->unit_count;
    mics_mesh mesh;
    void *block = NULL;
    MICS_TRY(choice_mesh(planner, plain_sharding(planner, planner->experts), &mesh));
    MICS_TRY(mics_alloc(planner->memory, MICS_MEM_HOST, units * sizeof(unit_class), &block));
    planner->classes = block;
    MICS_TRY(mics_alloc(planner->memory, MICS_MEM_HOST, units * sizeof(int32_t), &block));
    planner->class_of = block;
    planner->reads_alike = true;
    for (size_t u = 0; u < units; u++) {
        const mics_unit *unit = &model->units[u];
        planner->reads_alike = planner->reads_alike && !unit->frozen;
        const int64_t elems = unit->elems;
        const int32_t experts = unit->experts > 0 ? planner->experts : 1;
        planner->mixture = planner->mixture || unit->experts > 0;
        mics_mesh held = mesh; // by those that keep the same experts
        held.ranks /= experts;
        const unit_class wanted = {
            .padded_elems = mics_mesh_padded(&held, elems / experts),
            .whole = elems<planner->request.param_persistence_threshold, .experts = experts> 1,
            .frozen = unit->frozen};
        planner->class_of[u] = find_class(planner, &wanted);
        planner->classes[planner->class_of[u]].units++;
        planner->classes[planner->class_of[u]].held += mics_layered_holds(model, (int32_t)u);
        count_forwarded(planner, (int32_t)u);
    }
    planner->first_class = planner->class_of[0];
    planner->last_class = planner->class_of[last_written(model)];
    return MICS_OK;
}

// ---- lists and slots ----

static structure_kind structure_of(const mics_planner *planner, const mics_sharding *s)
{
    if (s->params > planner->experts)
        return STRUCTURE_PARAMS;
    return s->grads > planner->experts ? STRUCTURE_GRADS : STRUCTURE_WHOLE;
}

static int32_t next_compute(const mics_step_list *list, int32_t at)
{
    do {
        at++;
    } while (at < list->count && list->steps[at].stream != MICS_STREAM_COMPUTE);
    return at;
}

// Whether a gather waits for one pass, and the next one waits for it.
static bool is_bare(const mics_step_list *list, int32_t gather)
{
    const mics_step *step = &list->steps[gather];
    const int32_t before = step->wait[MICS_STREAM_COMPUTE];
    if (before < 0)
        return false;
    const int32_t next = next_compute(list, before);
    return next < list->count && list->steps[next].wait[step->stream] == gather;
}

// Which phase of the list a step is a pass of; -1: none that counts.
static int32_t phase_of(const mics_schedule *schedule, const mics_step *step)
{
    const mics_schedule_spec *spec = &schedule->spec;
    const bool backward = step->kind == MICS_STEP_BACKWARD;
    const int32_t group = step->micro_step / spec->layered_micro_steps;
    const int32_t last = (spec->micro_steps - 1) / spec->layered_micro_steps;
    if ((!backward && step->kind != MICS_STEP_FORWARD) || (backward ? group == last : group == 0))
        return -1;
    return 2 * group + backward;
}

// Counts collectives inside phases. waited[phase][stream] is the last step of the stream that a
// pass of the phase waits for; zeros at first.
static void count_inside(const mics_planner *planner, const mics_schedule *schedule,
                         int32_t (*waited)[MICS_STREAMS], structure *s)
{
    const mics_step_list *list = &schedule->lists[MICS_PHASE_TRAIN];
    for (int32_t i = 0; i < list->count; i++) {
        const int32_t phase = phase_of(schedule, &list->steps[i]);
        for (int stream = 0; phase >= 0 && stream < MICS_STREAMS; stream++) {
            const int32_t wait = list->steps[i].wait[stream];
            waited[phase][stream] = wait > waited[phase][stream] ? wait : waited[phase][stream];
        }
    }
    for (int32_t i = 0; i < list->count; i++) {
        const mics_step *step = &list->steps[i];
        const int32_t after = step->wait[MICS_STREAM_COMPUTE];
        const bool reduces = step->kind == MICS_STEP_REDUCE;
        if ((!reduces && step->kind != MICS_STEP_GATHER) || after < 0)
            continue;
        const int32_t phase = phase_of(schedule, &list->steps[after]);
        if (phase < 0 || i > waited[phase][step->stream])
            continue;
        const list_count what = reduces          ? COUNT_BACKWARD_REDUCE
                                : phase % 2 == 1 ? COUNT_BACKWARD_GATHER
                                                 : COUNT_FORWARD_GATHER;
        s->counts[what][planner->class_of[step->unit]]++;
    }
}

static mics_status count_list(const mics_planner *planner, const mics_schedule *schedule,
                              structure *s)
{
    const mics_step_list *list = &schedule->lists[MICS_PHASE_TRAIN];
    int32_t(*waited)[MICS_STREAMS] = NULL;
    for (int what = 0; what < COUNTS; what++) {
        if (s->counts[what] == NULL)
            MICS_TRY(MICS_NEW(planner->memory, planner->class_count, &s->counts[what]));
        memset(s->counts[what], 0, (size_t)planner->class_count * sizeof(int32_t));
    }
    for (int32_t i = 0; i < list->count; i++) {
        if (list->steps[i].kind != MICS_STEP_GATHER || list->steps[i].stage == MICS_STAGE_INTER)
            continue;
        s->counts[COUNT_GATHERS][planner->class_of[list->steps[i].unit]]++;
        s->counts[COUNT_BARE][planner->class_of[list->steps[i].unit]] += is_bare(list, i);
    }
    MICS_TRY(MICS_NEW(planner->memory, 2 * (size_t)schedule->spec.micro_steps, &waited));
    count_inside(planner, schedule, waited, s);
    mics_free(planner->memory, waited);
    return MICS_OK;
}

static mics_status measure_structure(mics_planner *planner, const mics_plan_choice *choice,
                                     int32_t micro_steps, structure *s)
{
    mics_schedule *schedule = NULL;
    MICS_TRY(open_schedule(planner, choice, micro_steps, true, &schedule));
    const mics_status status = count_list(planner, schedule, s);
    s->gather_bytes = schedule->ledger.bytes[MICS_MEM_GATHER];
    s->reduce_bytes = schedule->ledger.bytes[MICS_MEM_REDUCE];
    mics_schedule_close(schedule);
    return status;
}

static bool is_structure(const structures *s, const structures *wanted)
{
    return s->kind == wanted->kind && s->shares == wanted->shares && s->defers == wanted->defers &&
           s->syncs == wanted->syncs && s->far == wanted->far && s->prefetch == wanted->prefetch &&
           s->layered_micro_steps == wanted->layered_micro_steps && s->uneven == wanted->uneven &&
           mics_recompute_is(s->recompute, wanted->recompute);
}

static mics_status add_structures(mics_planner *planner, const structures *wanted,
                                  structures **structures_out)
{
    void *block = NULL;
    MICS_TRY(mics_alloc(planner->memory, MICS_MEM_HOST, sizeof(structures), &block));
    structures *s = block;
    *s = *wanted;
    s->next = planner->structures;
    planner->structures = s;
    *structures_out = s;
    return MICS_OK;
}

// Of how many layered micro-steps lists are measured: more are like MAX_ALIKE of them, unless each in
// flight has a slot for a gradient that several units write.
static int32_t alike(const mics_planner *planner, int32_t layered_micro_steps)
{
    enum { MAX_ALIKE = 3 };
    for (int32_t c = 0; c < planner->class_count; c++) {
        if (planner->classes[c].held > 0)
            return layered_micro_steps;
    }
    return layered_micro_steps < MAX_ALIKE ? layered_micro_steps : MAX_ALIKE;
}

// Measures lists of up to so many layered groups; the first is one shorter where groups are uneven.
static mics_status measure_structures(mics_planner *planner, const mics_plan_choice *choice,
                                      int32_t groups, structures *s)
{
    const int32_t wanted = groups < PROBED_GROUPS ? groups : PROBED_GROUPS;
    mics_plan_choice probe = *choice;
    probe.recompute = s->recompute;
    probe.micro_batch = 1;
    probe.layered_micro_steps = s->layered_micro_steps;
    probe.gather_two_stage = probe.reduce_two_stage = false; // a gather is one step of the list
    if (choice->early_gathers) // gathers are ordered as where no update is deferred
        probe.sharding.optimizer = planner->ranks;
    probe.early_gathers = false;
    for (; s->probed < wanted; s->probed++)
        MICS_TRY(measure_structure(planner, &probe,
                                   (s->probed + 1) * s->layered_micro_steps -
                                       (s->uneven && s->probed > 0),
                                   &s->by_groups[s->probed]));
    return MICS_OK;
}

mics_status probe_structure(mics_planner *planner, const mics_plan_choice *choice,
                            const structures **structures_out)
{
    planner = planner->whole != NULL ? planner->whole : planner;
    const int32_t layered_micro_steps =
        mics_schedule_layered_micro_steps(choice->micro_steps, choice->layered_micro_steps);
    const mics_sharding *sharding = &choice->sharding;
    const structure_kind kind = structure_of(planner, sharding);
    const bool shares = degree_shares(planner, sharding->params);
    // The order of gathers says which slots there are, as units differ in size; and what the head
    // of the list brings says which order that is.
    const bool ordered = planner->mixture || (kind == STRUCTURE_PARAMS && !shares);
    const bool late = sharding->optimizer < planner->ranks && !choice->early_gathers;
    const bool defers = ordered && late && !choice->all_reduces;
    const structures wanted = {
        .kind = kind,
        .shares = shares,
        .defers = defers,
        .syncs = planner->mixture && sharding->optimizer > sharding->params,
        .far = defers && sharding->optimizer > planner->ranks_per_node,
        .prefetch = choice->prefetch,
        .layered_micro_steps = alike(planner, layered_micro_steps),
        .uneven = choice->micro_steps % layered_micro_steps != 0,
        .recompute = planner->reads_alike
                         ? mics_recompute_all(choice->recompute.units == MICS_RECOMPUTE_ALL)
                         : choice->recompute};
    structures *s = planner->structures;
    while (s != NULL && !is_structure(s, &wanted))
        s = s->next;
    if (s == NULL)
        MICS_TRY(add_structures(planner, &wanted, &s));
    *structures_out = s;
    return measure_structures(planner, choice, choice_groups(choice), s);
}

void close_structures(mics_planner *planner)
{
    while (planner->structures != NULL) {
        structures *s = planner->structures;
        planner->structures = s->next;
        for (int i = 0; i < PROBED_GROUPS * COUNTS; i++)
            mics_free(planner->memory, s->by_groups[i / COUNTS].counts[i % COUNTS]);
        mics_free(planner->memory, s);
    }
}

int32_t choice_groups(const mics_plan_choice *choice)
{
    return mics_schedule_layered_groups(choice->micro_steps, choice->layered_micro_steps);
}

const structure *structure_at(const structures *s, int32_t groups)
{
    return &s->by_groups[(groups < PROBED_GROUPS ? groups : PROBED_GROUPS) - 1];
}

double structure_count(const structures *s, list_count what, int32_t class, int32_t groups)
{
    const double last = structure_at(s, groups)->counts[what][class];
    if (groups <= PROBED_GROUPS)
        return last;
    return last +
           (groups - PROBED_GROUPS) * (last - s->by_groups[PROBED_GROUPS - 2].counts[what][class]);
}

// ---- computation ----

static mics_status simulate_plain(mics_planner *planner, const mics_plan_choice *choice,
                                  mics_schedule **schedule_out, mics_simulation **simulation_out)
{
    mics_schedule *schedule = NULL;
    MICS_TRY(open_schedule(planner, choice, 1, true, &schedule));
    const mics_status status = mics_simulate(planner->memory, schedule, &planner->request.cluster,
                                             &planner->simulate, simulation_out);
    if (status != MICS_OK)
        mics_schedule_close(schedule);
    else
        *schedule_out = schedule;
    return status;
}

static void close_batch(mics_planner *planner, batch_probe *probe)
{
    mics_schedule_close(probe->schedule);
    MICS_FREE_ALL(planner->memory, probe->pass_us[0], probe->pass_us[1], probe->unit_us,
                  probe->offloads);
    mics_free(planner->memory, probe);
}

static mics_status open_pass_us(mics_planner *planner, batch_probe *probe)
{
    const int32_t passes = 2 * planner->request.model->unit_count;
    for (int sharded = 0; sharded < 2; sharded++) {
        MICS_TRY(MICS_NEW(planner->memory, passes, &probe->pass_us[sharded]));
        for (int32_t i = 0; i < passes; i++)
            probe->pass_us[sharded][i] = -1;
    }
    return MICS_OK;
}

static int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

// Passes alone, and the parts of the arena.
static void measure_batch(const mics_planner *planner, batch_probe *probe)
{
    const mics_schedule *schedule = probe->schedule;
    const mics_step_list *list = &schedule->lists[MICS_PHASE_TRAIN];
    const size_t elem = mics_precision_bytes(planner->request.precision, MICS_MEM_ACTIVATIONS);
    int64_t shared = 0, scratch = 0;
    for (int32_t i = 0; i < list->count; i++) {
        const mics_step *step = &list->steps[i];
        if (step->kind != MICS_STEP_FORWARD && step->kind != MICS_STEP_BACKWARD)
            continue;
        const double us = mics_simulate_part_us(schedule, &planner->request.cluster,
                                                planner->simulate.math, step);
        *(step->kind == MICS_STEP_FORWARD ? &probe->forward_us : &probe->backward_us) += us;
        probe->unit_us[step->unit] += step->kind == MICS_STEP_FORWARD ? 0 : us;
    }
    for (int32_t u = 0; u < planner->request.model->unit_count; u++) {
        shared = larger(shared, schedule->units[u].shared_elems);
        scratch = larger(scratch, schedule->units[u].scratch_elems);
    }
    probe->layered_bytes = (size_t)schedule->in_flight_elems * elem;
    probe->shared_bytes = (size_t)shared * elem;
    probe->scratch_bytes = (size_t)scratch * elem;
    probe->token_bytes = (size_t)schedule->data_elems * sizeof(int32_t);
    probe->workspace_bytes = schedule->ledger.bytes[MICS_MEM_WORKSPACE];
}

mics_status probe_batch(mics_planner *planner, const mics_plan_choice *choice,
                        const batch_probe **probe_out)
{
    batch_probe *probe = find_batch(planner, choice->micro_batch, choice->recompute);
    mics_plan_choice plain = *choice;
    if (probe == NULL) {
        batch_probe **list = &planner->batches[batch_index(planner, choice->micro_batch)];
        plain.sharding = plain_sharding(planner, planner->experts);
        plain.prefetch = 1;
        plain.offload_units = 0;
        MICS_TRY(MICS_NEW(planner->memory, 1, &probe));
        mics_status status =
            MICS_NEW(planner->memory, planner->request.model->unit_count, &probe->unit_us);
        if (status == MICS_OK)
            status = open_pass_us(planner, probe);
        if (status == MICS_OK)
            status = open_schedule(planner, &plain, 1, true, &probe->schedule);
        if (status == MICS_OK)
            measure_batch(planner, probe);
        else
            close_batch(planner, probe);
        MICS_TRY(status);
        probe->recompute = choice->recompute;
        probe->next = *list;
        *list = probe;
    }
    *probe_out = probe;
    return MICS_OK;
}

mics_status probe_offloads(mics_planner *planner, const mics_plan_choice *choice,
                           const batch_probe **probe_out)
{
    MICS_TRY(probe_batch(planner, choice, probe_out));
    batch_probe *probe = find_batch(planner, choice->micro_batch, choice->recompute);
    if (probe->offloads != NULL)
        return MICS_OK;
    MICS_TRY(MICS_NEW(planner->memory, probe->schedule->offload_max + 1, &probe->offloads));
    for (int32_t units = 0; units <= probe->schedule->offload_max; units++)
        probe->offloads[units] = mics_schedule_offload(probe->schedule, units);
    return MICS_OK;
}

void add_whole(const mics_planner *planner, const batch_probe *all, int32_t unit, batch_probe *at)
{
    const size_t elem = mics_precision_bytes(planner->request.precision, MICS_MEM_ACTIVATIONS);
    const mics_unit_plan *kept = &at->schedule->units[unit], *whole = &all->schedule->units[unit];
    at->layered_bytes -= (size_t)(kept->kept_elems - whole->kept_elems) * elem;
    at->shared_bytes =
        (size_t)larger((int64_t)at->shared_bytes, whole->shared_elems * (int64_t)elem);
    at->scratch_bytes =
        (size_t)larger((int64_t)at->scratch_bytes, whole->scratch_elems * (int64_t)elem);
    at->backward_us += all->unit_us[unit] - at->unit_us[unit];
}

mics_status batch_of(mics_planner *planner, const mics_plan_choice *choice, batch_probe *batch_out)
{
    const mics_model *model = planner->request.model;
    const bool mixed = recomputes_some(choice->recompute) && choice->offload_units == 0;
    const batch_probe *kept = NULL, *all = NULL;
    mics_plan_choice form = *choice;
    if (mixed) {
        form.recompute = mics_recompute_all(true);
        MICS_TRY(probe_batch(planner, &form, &all));
        form.recompute = choice->recompute;
        form.recompute.units = form.recompute.last = 0;
    }
    MICS_TRY(probe_batch(planner, &form, &kept));
    *batch_out = *kept;
    for (int32_t i = 1, left = mixed ? choice->recompute.units : 0; left > 0; i++) {
        const int32_t u = choice->recompute.last ? model->unit_count - 1 - i : i;
        if (mics_unit_computes(&model->units[u])) {
            add_whole(planner, all, u, batch_out);
            left--;
        }
    }
    if (choice->offload_units == 0)
        return MICS_OK;
    batch_out->layered_bytes -=
        (size_t)mics_schedule_offload(kept->schedule, choice->offload_units).spared_elems *
        mics_precision_bytes(planner->request.precision, MICS_MEM_ACTIVATIONS);
    return MICS_OK;
}

void close_batches(mics_planner *planner)
{
    for (int32_t i = 0; planner->batches != NULL && i < planner->micro_batch_count; i++) {
        while (planner->batches[i] != NULL) {
            batch_probe *probe = planner->batches[i];
            planner->batches[i] = probe->next;
            close_batch(planner, probe);
        }
    }
    mics_free(planner->memory, planner->batches);
}

mics_status probe_boundary(mics_planner *planner, int32_t degree, bool all_reduces, double *us_out,
                           double *update_us_out)
{
    int32_t at = 0;
    while (at + 1 < planner->degree_count && planner->degrees[at] != degree)
        at++;
    boundary_probe *probe = &planner->boundaries[2 * at + all_reduces];
    mics_schedule *schedule = NULL;
    mics_simulation *simulation = NULL;
    if (!probe->known) {
        const mics_plan_choice choice = {.sharding = plain_sharding(planner, degree),
                                         .micro_batch = 1,
                                         .micro_steps = 1,
                                         .prefetch = 1,
                                         .all_reduces = all_reduces};
        MICS_TRY(simulate_plain(planner, &choice, &schedule, &simulation));
        probe->us = simulation->kinds[MICS_STEP_NORM][MICS_STAGE_WHOLE].alone_us +
                    simulation->kinds[MICS_STEP_AGREE][MICS_STAGE_WHOLE].alone_us;
        probe->update_us = simulation->kinds[MICS_STEP_MOMENTUM][MICS_STAGE_WHOLE].alone_us +
                           simulation->kinds[MICS_STEP_ORTHOGONALISE][MICS_STAGE_WHOLE].alone_us +
                           simulation->kinds[MICS_STEP_UPDATE][MICS_STAGE_WHOLE].alone_us;
        probe->known = true;
        mics_simulation_close(simulation);
        mics_schedule_close(schedule);
    }
    *us_out = probe->us;
    *update_us_out = probe->update_us;
    return MICS_OK;
}

// ---- rounding ----

mics_status probe_rounding(mics_planner *planner, const mics_plan_choice *choice, double *bytes_out)
{
    mics_schedule *schedule = NULL;
    const batch_probe *batch = NULL;
    mics_plan_choice least = *choice; // what a schedule sends as what is the same with any batch
    *bytes_out = 0;
    if (!request_rounds(&planner->request))
        return MICS_OK;
    least.micro_batch = planner->micro_batches[0];
    least.micro_steps = least.layered_micro_steps = 1;
    MICS_TRY(probe_batch(planner, &least, &batch));
    MICS_TRY(open_schedule(planner, &least, 1, false, &schedule));
    const double bytes = (double)schedule->ledger.total;
    mics_schedule_close(schedule);
    *bytes_out = bytes;
    return MICS_OK;
}
