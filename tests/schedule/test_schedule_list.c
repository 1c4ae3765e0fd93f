// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Checks the list of steps under every interleaving that its waits allow: what a step reads has
// been written, nothing is written while another step may still read it, and every gradient is
// reduced and every parameter updated as often as it must be.
#include "list_checks.h"
#include "mics/core/ledger.h"
#include "schedule/rules.h"
#include <math.h>

// ---- parameter slots ----

// The newest gather into a slot before a step is of the unit it reads, is done, and no other gather
// may be writing the slot meanwhile.
static void check_param_read(const order *o, int32_t reader, int32_t unit)
{
    const mics_step *step = &o->list->steps[reader];
    const mics_step_use *use = use_of(step, unit);
    if (use == NULL || use->param_slot < 0 || use->param_slot >= o->schedule->param_slot_count) {
        fail_at(o, reader, "reads a unit that has no slot");
        return;
    }
    int32_t filled = -1;
    for (int32_t i = 0; i < o->list->count; i++) {
        const mics_step *gather = &o->list->steps[i];
        const bool fills = gather->stage != MICS_STAGE_INTER;
        if (gather->kind != MICS_STEP_GATHER || gather->uses[0].param_slot != use->param_slot)
            continue;
        if (!fills && precedes(o, i, reader)) {
            must_precede(o, i, i + 1, "the second stage begins before the first has ended");
            continue; // its second one counts
        }
        if (precedes(o, i, reader))
            filled = i;
        else
            must_precede(o, reader, i, "may be read while it is overwritten");
    }
    if (filled < 0 || o->list->steps[filled].unit != unit)
        fail_at(o, reader, "its slot holds another unit");
    if (o->schedule->param_slots[use->param_slot] < o->schedule->padded_elems[unit])
        fail_at(o, reader, "its slot is too small");
}

// Members that see each other's shards have one barrier a list, before the first of them reads.
static void check_shared_read(const order *o, int32_t reader, int32_t unit)
{
    int32_t barrier = -1, barriers = 0;
    for (int32_t i = 0; i < o->list->count; i++) {
        const mics_step *step = &o->list->steps[i];
        if (step->kind != MICS_STEP_GATHER || step->unit != unit)
            continue;
        barrier = i;
        barriers++;
        if (step->block_bytes != 0 || step->algorithm != MICS_ALGORITHM_SHARED)
            fail_at(o, i, "moves what is shared");
    }
    if (barriers != 1)
        fail_at(o, reader, "its unit's members have no barrier, or several");
    must_precede(o, barrier, reader, "reads what other members may not have updated yet");
    if (use_of(&o->list->steps[reader], unit) == NULL ||
        use_of(&o->list->steps[reader], unit)->param_slot >= 0)
        fail_at(o, reader, "reads a shared unit, but does not say so");
}

static void check_params(const order *o)
{
    for (int32_t i = 0; i < o->list->count; i++) {
        const mics_step *step = &o->list->steps[i];
        for (int32_t u = 0; computes(step) && u < o->schedule->spec.model->unit_count; u++) {
            if (!reads(o, step, u))
                continue;
            if (is_shared(o, u))
                check_shared_read(o, i, u);
            else if (o->schedule->sharding[u].params > 1)
                check_param_read(o, i, u);
            else if (use_of(step, u) == NULL || use_of(step, u)->param_slot >= 0)
                fail_at(o, i, "reads a unit's persistent buffer, but does not say so");
        }
        if (step->kind == MICS_STEP_GATHER && o->schedule->sharding[step->unit].params == 1)
            fail_at(o, i, "there is nothing to gather");
    }
}

// ---- gradients ----

static bool uses_grad_slot(const mics_step *step, int32_t slot)
{
    for (int32_t i = 0; i < step->use_count; i++) {
        if ((step->kind == MICS_STEP_BACKWARD || step->kind == MICS_STEP_REDUCE) &&
            step->uses[i].grad_slot == slot)
            return true;
    }
    return false;
}

// From its first writer to its reduction a slot is this unit's alone.
static void check_grad_slot(const order *o, int32_t slot, int32_t unit, int32_t first,
                            int32_t reduced)
{
    if (slot < 0 || slot >= o->schedule->grad_slot_count ||
        o->schedule->grad_slots[slot] < o->schedule->padded_elems[unit])
        fail_at(o, reduced, "its slot is none, or too small");
    for (int32_t i = 0; i < o->list->count; i++) {
        const mics_step *step = &o->list->steps[i];
        if (!uses_grad_slot(step, slot) || precedes(o, i, first) || precedes(o, reduced, i))
            continue;
        const mics_step_use *use = use_of(step, unit);
        if (use == NULL || use->grad_slot != slot)
            fail_at(o, i, "may use a gradient slot that another unit still needs");
    }
}

// Which of its layered group a micro-step is.
static int32_t in_flight_of(const order *o, int32_t micro_step)
{
    for (int32_t i = 0; i < o->list->count; i++) {
        if (computes(&o->list->steps[i]) && o->list->steps[i].micro_step == micro_step)
            return o->list->steps[i].in_flight;
    }
    return 0; // there is none: a group ends before it
}

// A backward into a slot: the first of the layered group overwrites it.
static void check_slot_write(const order *o, int32_t writer, int32_t unit, int32_t slot)
{
    const mics_step_use *use = use_of(&o->list->steps[writer], unit);
    if (use == NULL || use->grad_slot != slot)
        fail_at(o, writer, "writes its gradient elsewhere than it is reduced");
    if (use != NULL && use->accumulate != (o->list->steps[writer].in_flight > 0))
        fail_at(o, writer, "the first micro-batch in flight overwrites, later ones add");
}

// The inter-node stage of a reduction follows its intra-node stage. Gathers ahead go first: they
// run while the intra-node stage does.
static void check_first_stage(const order *o, int32_t reduced)
{
    const mics_step *step = &o->list->steps[reduced];
    int32_t first = -1;
    must_count(o, MICS_STEP_REDUCE, MICS_STAGE_INTRA, step->unit, step->micro_step, 1, &first);
    if (o->list->steps[first].uses[0].grad_slot != step->uses[0].grad_slot)
        fail_at(o, reduced, "its stages are of two slots");
    must_precede(o, first, reduced, "begins before its first stage has ended");
    for (int32_t i = reduced + 1; o->schedule->spec.prefetch > 0 && i < o->list->count; i++) {
        if (o->list->steps[i].kind == MICS_STEP_GATHER)
            fail_at(o, reduced, "holds up a gather ahead");
        if (computes(&o->list->steps[i]))
            break;
    }
}

// Gradients of one unit in the layered group that ends with a micro-step, G > 1.
static void check_reduction(const order *o, int32_t unit, int32_t micro_step)
{
    int32_t reduced = -1, first = -1;
    const int32_t begin = micro_step - in_flight_of(o, micro_step);
    if (!has_params(o, unit))
        return;
    const mics_mesh *mesh = &o->schedule->spec.mesh;
    const bool two_stages = o->schedule->spec.reduce == MICS_ALGORITHM_TWO_STAGE &&
                            mesh->sharding.grads > mesh->ranks_per_node;
    const mics_step_stage last = two_stages ? MICS_STAGE_INTER : MICS_STAGE_WHOLE;
    if (in_flight_of(o, micro_step + 1) > 0) { // another one of the group follows
        must_count(o, MICS_STEP_REDUCE, last, unit, micro_step, 0, &reduced);
        return;
    }
    must_count(o, MICS_STEP_REDUCE, last, unit, micro_step, 1, &reduced);
    const mics_step *reduce = &o->list->steps[reduced];
    const int32_t slot = reduce->uses[0].grad_slot;
    for (int32_t i = 0; i < o->list->count; i++) {
        const mics_step *step = &o->list->steps[i];
        if (!computes(step) || step->micro_step < begin || step->micro_step > micro_step ||
            !writes(o, step, unit))
            continue;
        first = first < 0 ? i : first;
        check_slot_write(o, i, unit, slot);
        must_precede(o, i, reduced, "begins before all of its gradient is there");
    }
    if (reduce->uses[0].accumulate != (begin > 0))
        fail_at(o, reduced, "the first layered group overwrites, later ones add");
    if (two_stages)
        check_first_stage(o, reduced);
    if (reduce->axis != MICS_AXIS_GRADIENT)
        fail_at(o, reduced, "is over another group");
    check_grad_slot(o, slot, unit, first, reduced);
}

// G = 1: backward works on the accumulator.
static void check_accumulation(const order *o, int32_t unit, int32_t micro_step)
{
    int32_t reduced = -1;
    must_count(o, MICS_STEP_REDUCE, MICS_STAGE_WHOLE, unit, micro_step, 0, &reduced);
    must_count(o, MICS_STEP_REDUCE, MICS_STAGE_INTER, unit, micro_step, 0, &reduced);
    for (int32_t i = 0; i < o->list->count; i++) {
        const mics_step *step = &o->list->steps[i];
        if (!computes(step) || step->micro_step != micro_step || !writes(o, step, unit))
            continue;
        if (use_of(step, unit) == NULL || use_of(step, unit)->grad_slot >= 0)
            fail_at(o, i, "its gradient belongs into the accumulator");
        if (use_of(step, unit) != NULL && use_of(step, unit)->accumulate != (micro_step > 0))
            fail_at(o, i, "the first micro-step overwrites, later ones add");
    }
}

// ---- the whole ----

static int32_t next_pass(const order *o, int32_t at)
{
    while (at < o->list->count && !computes(&o->list->steps[at]))
        at++;
    return at;
}

// How many are in flight in the layered group that begins with the pass at `at`.
static int32_t count_in_flight(const order *o, int32_t at)
{
    int32_t in_flight_count = 0;
    for (; at < o->list->count && o->list->steps[at].in_flight == in_flight_count;
         at = next_pass(o, at + 1))
        in_flight_count++;
    return in_flight_count;
}

// Each layered group: all units but the loss forward in order, then all backward in reverse, each
// for all in flight. Groups are as even as can be.
static void check_passes(const order *o)
{
    const mics_schedule_spec *spec = &o->schedule->spec;
    const int32_t units = spec->model->unit_count;
    const bool training = o->phase == MICS_PHASE_TRAIN;
    const int32_t micro_steps = training ? spec->micro_steps : 1;
    const int32_t places = training ? 2 * units - 1 : units;
    int32_t at = next_pass(o, 0), micro_step = 0, fewest = micro_steps, most = 0;
    while (at < o->list->count) {
        const int32_t in_flight_count = count_in_flight(o, at);
        for (int32_t pass = 0; pass < places * in_flight_count; pass++, at = next_pass(o, at + 1)) {
            const mics_step *step = &o->list->steps[at];
            const int32_t place = pass / in_flight_count, in_flight = pass % in_flight_count;
            const bool backward = training && place >= units - 1;
            const int32_t unit = backward ? 2 * units - 2 - place : place;
            assert_in_range(at, 0, o->list->count - 1);
            if (step->unit != unit || step->in_flight != in_flight ||
                step->micro_step != micro_step + in_flight ||
                (step->kind == MICS_STEP_BACKWARD) != backward)
                fail_at(o, at, "is out of order");
        }
        micro_step += in_flight_count;
        fewest = in_flight_count < fewest ? in_flight_count : fewest;
        most = in_flight_count > most ? in_flight_count : most;
    }
    assert_int_equal(micro_step, micro_steps);
    assert_true(most - fewest <= 1);
    assert_int_equal(most, training ? spec->layered_micro_steps : 1);
}

// Of shared units whose updates are deferred, the barrier is behind an update that is late.
static bool is_behind_update(const order *o, int32_t unit)
{
    return o->phase == MICS_PHASE_TRAIN && mics_schedule_defers(o->schedule) &&
           is_shared(o, unit) &&
           o->schedule->sharding[unit].optimizer == o->schedule->sharding[unit].params;
}

// With prefetch, a pass and the collectives listed around it run side by side: no gather but a
// list's first ones is for the very next pass, and no backward waits for the reduction before it.
static void check_overlap(const order *o)
{
    int32_t reduced = -1, passes = 0;
    for (int32_t i = 0; i < o->list->count; i++) {
        const mics_step *step = &o->list->steps[i];
        if (computes(step)) {
            if (step->kind == MICS_STEP_BACKWARD && reduced >= 0 && precedes(o, reduced, i))
                fail_at(o, i, "waits for the reduction before it");
            passes++;
            reduced = -1;
        }
        if (step->kind == MICS_STEP_REDUCE)
            reduced = i;
        int32_t next = i + 1;
        while (next < o->list->count && !computes(&o->list->steps[next]))
            next++;
        if (step->kind == MICS_STEP_GATHER && passes > 0 && !is_behind_update(o, step->unit) &&
            reads(o, &o->list->steps[next], step->unit))
            fail_at(o, i, "is listed too late to overlap");
    }
}

static void check_list(const mics_schedule *schedule, mics_phase phase)
{
    order o;
    order_open(&o, schedule, phase);
    check_passes(&o);
    check_params(&o);
    if (schedule->spec.prefetch > 0)
        check_overlap(&o);
    if (phase == MICS_PHASE_TRAIN) {
        for (int32_t micro = 0; micro < schedule->spec.micro_steps; micro++) {
            for (int32_t u = 0; u < schedule->spec.model->unit_count; u++) {
                if (schedule->sharding[u].grads > 1)
                    check_reduction(&o, u, micro);
                else
                    check_accumulation(&o, u, micro);
            }
        }
        check_boundary(&o);
    } else {
        must_precede(&o, o.list->count - 2, only_step(&o, MICS_STEP_AGREE), "agrees on no loss");
    }
    free(o.known);
}

static void check_schedule(mics_memory *memory, const mics_schedule_spec *spec)
{
    mics_schedule *schedule = NULL;
    ASSERT_OK(mics_schedule_open(memory, spec, &schedule));
    check_list(schedule, MICS_PHASE_TRAIN);
    check_list(schedule, MICS_PHASE_EVAL);
    mics_schedule_close(schedule);
}

// One mesh, for several numbers of micro-steps and units gathered ahead.
static void check_mesh(mics_memory *memory, const mics_model *model, const mics_mesh *mesh)
{
    mics_schedule_spec spec = {
        .model = model, .mesh = *mesh, .batch = {.sequences = 1, .length = 3, .threads = 1}};
    for (int variant = 0; variant < 64; variant++) {
        spec.micro_steps = variant % 2 == 0 ? 1 : 5;
        spec.prefetch = variant % 8 / 2;
        spec.recompute = mics_recompute_all(variant % 8 >= 4);
        spec.gather = spec.reduce = spec.boundary =
            variant % 16 >= 8 ? MICS_ALGORITHM_TWO_STAGE : MICS_ALGORITHM_RING;
        // Some units stay whole: the last ones of most models are the smallest.
        spec.param_persistence_threshold = variant % 32 >= 16 ? model->units[0].elems : 0;
        // Some share messages, and not all of these one.
        spec.coalesce_below = variant >= 32 ? 3 * model->units[0].elems : 0;
        spec.share_params = variant % 3 == 0;
        spec.layered_micro_steps = variant % 5;
        spec.early_gathers = mics_schedule_may_gather_early(&spec) && variant / 5 % 2 == 0;
        check_schedule(memory, &spec);
    }
}

// Every sharding of 8 ranks on 2 nodes; on 4 nodes those whose replicas and optimizer shards are
// both on several.
static void check_model(mics_memory *memory, const mics_model *model)
{
    mics_mesh mesh;
    for (int32_t p = 1; p <= 8; p *= 2) {
        for (int32_t g = p; g <= 8; g *= 2) {
            for (int32_t o = g; o <= 8; o *= 2) {
                for (int32_t nodes = 2; nodes <= (o == 4 ? 4 : 2); nodes *= 2) {
                    ASSERT_OK(mics_mesh_init(8, nodes, (mics_sharding){p, g, o}, &mesh));
                    check_mesh(memory, model, &mesh);
                }
            }
        }
    }
}

static void test_gpt2(void **state)
{
    (void)state;
    static const int layers[] = {1, 2, 5};
    mics_memory *memory = NULL;
    ASSERT_OK(mics_memory_open(&memory));
    for (int i = 0; i < 6; i++) {
        mics_model *model = model_gpt2(memory, layers[i / 2], i % 2 == 0);
        check_model(memory, model);
        mics_model_close(model);
    }
    assert_int_equal(mics_memory_close(memory), 0);
}

static void test_other_models(void **state)
{
    (void)state;
    mics_memory *memory = NULL;
    ASSERT_OK(mics_memory_open(&memory));
    for (int i = 0; i < 2 * MODEL_KINDS; i++) {
        mics_model *model = model_build(memory, &model_kinds[i / 2], i % 2 == 0);
        check_model(memory, model);
        mics_model_close(model);
    }
    assert_int_equal(mics_memory_close(memory), 0);
}

// ---- early replica gathers ----

static void test_which_gathers_are_early(void **state)
{
    (void)state;
    static const mics_comm_dtypes bf16_inter = {MICS_COMM_FP32, MICS_COMM_BF16};
    static const struct {
        const char *why_not;
        int32_t ranks, nodes;
        mics_sharding sharding;
        bool early;
    } cases[] = {
        {"", 16, 8, {1, 1, 8}, true},
        {"", 16, 8, {2, 2, 8}, true},
        {"", 16, 8, {2, 8, 8}, true},
        {"", 64, 8, {8, 8, 32}, true},
        {"", 8, 4, {1, 1, 4}, true},
        {"", 4, 4, {1, 1, 2}, true},
        {"", 128, 64, {1, 1, 8}, true},
        {"more than half of a parameter sync comes back", 16, 8, {1, 1, 4}, false},
        {"the same", 128, 64, {1, 1, 4}, false},
        {"nothing comes back", 16, 8, {1, 1, 16}, false},
        {"what is updated stays in the node", 16, 8, {2, 2, 2}, false},
        {"the same", 16, 8, {1, 1, 1}, false},
        {"parameters are gathered between nodes", 16, 8, {4, 4, 8}, false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        mics_schedule_spec spec = {.micro_steps = 1};
        ASSERT_OK(mics_mesh_init(cases[i].ranks, cases[i].nodes, cases[i].sharding, &spec.mesh));
        if (mics_schedule_early_by_rule(&spec) != cases[i].early)
            fail_msg("case %d: %s", (int)i, cases[i].early ? "not early" : cases[i].why_not);
        mics_schedule_spec others[] = {spec, spec, spec, spec};
        others[0].precision = MICS_PRECISION_MIXED; // sums are twice the bytes of parameters
        others[1].boundary_dtype = bf16_inter;      // the norm is of numbers that are not rounded
        others[2].params_dtype = bf16_inter;
        others[3].all_reduces = true;
        for (int other = 0; other < 4; other++)
            assert_false(mics_schedule_early_by_rule(&others[other]));
    }
}

// ---- arguments ----

static void test_arguments(void **state)
{
    (void)state;
    mics_memory *memory = NULL;
    mics_schedule *schedule = NULL;
    ASSERT_OK(mics_memory_open(&memory));
    mics_model *model = model_gpt2(memory, 1, true);
    mics_schedule_spec good = {.model = model,
                               .batch = {.sequences = 1, .length = MODEL_POSITIONS, .threads = 1},
                               .micro_steps = 1};
    ASSERT_OK(mics_mesh_init(1, 1, (mics_sharding){1, 1, 1}, &good.mesh));
    mics_schedule_spec bad[12];
    for (int i = 0; i < 12; i++)
        bad[i] = good;
    bad[0].batch.sequences = 0;
    bad[1].batch.length = 0;
    bad[2].batch.threads = 0;
    bad[3].micro_steps = 0;
    bad[4].prefetch = -1;
    bad[5].batch.length = MODEL_POSITIONS + 1;
    bad[6].batch.sequences = INT64_MAX / 2;
    // 8 of a node's ranks would each send their gradients to 8 of the other's; one a node is fine.
    ASSERT_OK(mics_mesh_init(16, 2, (mics_sharding){1, 1, 1}, &bad[7].mesh));
    bad[7].boundary_dtype = mics_comm_dtypes_both(MICS_COMM_BF16);
    bad[8].layered_micro_steps = -1;
    // Replica gathers need replicas, and sums that are not rounded.
    for (int i = 9; i < 12; i++)
        ASSERT_OK(mics_mesh_init(4, 2, (mics_sharding){1, 1, i == 9 ? 4 : 2}, &bad[i].mesh));
    bad[9].early_gathers = bad[10].early_gathers = bad[11].early_gathers = true;
    bad[10].boundary_dtype.inter = MICS_COMM_BF16;
    bad[11].all_reduces = true;
    for (int i = 0; i < 12; i++) {
        ASSERT_STATUS(MICS_ERR_INVALID, mics_schedule_open(memory, &bad[i], &schedule));
        assert_null(schedule);
    }
    ASSERT_OK(mics_schedule_open(memory, &good, &schedule));
    mics_schedule_close(schedule);
    ASSERT_OK(mics_mesh_init(16, 2, (mics_sharding){8, 8, 8}, &bad[7].mesh));
    ASSERT_OK(mics_schedule_open(memory, &bad[7], &schedule));
    mics_schedule_close(schedule);
    mics_schedule_close(NULL);
    mics_model_close(model);
    assert_int_equal(mics_memory_close(memory), 0);
}

// ---- preference pairs ----

// The loss's backward computes its forward first, and a micro-batch has a scale a token and a
// reference a sequence beside; lists have the same steps.
static void test_pairs(void **state)
{
    (void)state;
    enum { SEQUENCES = 4 };
    const int64_t tokens = SEQUENCES * MODEL_POSITIONS;
    mics_memory *memory = NULL;
    mics_schedule *plain = NULL, *pairs = NULL;
    ASSERT_OK(mics_memory_open(&memory));
    mics_model *model = model_gpt2(memory, 2, true);
    const int32_t last = model->unit_count - 1;
    mics_schedule_spec spec = {
        .model = model,
        .batch = {.sequences = SEQUENCES, .length = MODEL_POSITIONS, .threads = 1},
        .micro_steps = 2};
    ASSERT_OK(mics_mesh_init(4, 2, (mics_sharding){2, 2, 4}, &spec.mesh));
    ASSERT_OK(mics_schedule_open(memory, &spec, &plain));
    spec.preference = (mics_preference){MICS_PREFERENCE_DPO, 0.1, 0.1};
    ASSERT_OK(mics_schedule_open(memory, &spec, &pairs));
    ASSERT_OK(mics_schedule_validate(pairs));
    const mics_op *head = &model->units[last].ops[model->units[last].op_count - 1];
    const double forward =
        mics_op_cost_get(model, &model->units[last], head, spec.batch).flops_forward;
    assert_true(forward > 0);
    assert_true(pairs->units[last].flops[1] == plain->units[last].flops[1] + forward);
    assert_true(mics_schedule_flops(pairs, MICS_PHASE_TRAIN) ==
                mics_schedule_flops(plain, MICS_PHASE_TRAIN) + 2 * forward);
    assert_int_equal(pairs->workspace_elems, plain->workspace_elems + tokens);
    assert_int_equal(pairs->data_elems, plain->data_elems + SEQUENCES);
    for (int phase = 0; phase < MICS_PHASES; phase++)
        assert_int_equal(pairs->lists[phase].count, plain->lists[phase].count);
    mics_schedule_close(plain);
    mics_schedule_close(pairs);
    mics_model_close(model);
    assert_int_equal(mics_memory_close(memory), 0);
}

static void test_pairs_are_refused(void **state)
{
    (void)state;
    static const mics_preference bad[] = {
        {MICS_PREFERENCE_DPO, 0, 0},   {MICS_PREFERENCE_DPO, (double)NAN, 0},
        {MICS_PREFERENCE_DPO, 1, 0.5}, {MICS_PREFERENCE_IPO, 0.1, 0.1},
        {MICS_PREFERENCE_KINDS, 1, 0},
    };
    mics_memory *memory = NULL;
    mics_schedule *schedule = NULL;
    ASSERT_OK(mics_memory_open(&memory));
    mics_model *model = model_gpt2(memory, 1, true);
    mics_schedule_spec spec = {
        .model = model, .batch = {.sequences = 2, .length = 3, .threads = 1}, .micro_steps = 1};
    ASSERT_OK(mics_mesh_init(1, 1, (mics_sharding){1, 1, 1}, &spec.mesh));
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        spec.preference = bad[i];
        ASSERT_STATUS(MICS_ERR_INVALID, mics_schedule_open(memory, &spec, &schedule));
    }
    spec.preference = (mics_preference){MICS_PREFERENCE_IPO, 0.1, 0};
    spec.batch.sequences = 3;
    ASSERT_STATUS(MICS_ERR_INVALID, mics_schedule_open(memory, &spec, &schedule));
    mics_model_close(model);
    assert_int_equal(mics_memory_close(memory), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pairs),
        cmocka_unit_test(test_pairs_are_refused),
        cmocka_unit_test(test_gpt2),
        cmocka_unit_test(test_other_models),
        cmocka_unit_test(test_which_gathers_are_early),
        cmocka_unit_test(test_arguments),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
