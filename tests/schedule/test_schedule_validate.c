// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// The invariants of a finished schedule (validate.c): they hold over a grid of meshes and options,
// and each of them is seen to fail when a schedule is spoiled in one place.
#include "base/capture.h"
#include "mics/core/schedule.h"
#include "model/from_config.h"
#include "models.h"
#include "schedule/rules.h"

// ---- the grid ----

// Takes the next of a few choices out of a number.
static int take(uint32_t *from, uint32_t choices)
{
    const uint32_t taken = *from % choices;
    *from = *from / choices * 2654435761u + 12345u;
    *from ^= *from >> 11;
    return (int)taken;
}

static mics_comm_dtypes wires_of(int choice)
{
    static const mics_comm_dtypes all[] = {{MICS_COMM_FP32, MICS_COMM_FP32},
                                           {MICS_COMM_BF16, MICS_COMM_BF16},
                                           {MICS_COMM_FP32, MICS_COMM_BF16},
                                           {MICS_COMM_FP32, MICS_COMM_INT8},
                                           {MICS_COMM_INT8, MICS_COMM_INT8}};
    return all[choice];
}

// One of many settings, by number.
static mics_schedule_spec spec_of(const mics_model *model, const mics_mesh *mesh, uint32_t number)
{
    uint32_t from = (number + 1) * 2246822519u;
    const int64_t small = model->units[0].elems;
    mics_schedule_spec spec = {.model = model,
                               .mesh = *mesh,
                               .batch = {.sequences = 1, .length = 5, .threads = 1},
                               .micro_steps = 1 + take(&from, 4),
                               .prefetch = take(&from, 3),
                               .recompute = mics_recompute_all(take(&from, 2) == 1),
                               .layered_micro_steps = take(&from, 4)};
    spec.gather = (mics_algorithm)take(&from, MICS_ALGORITHMS);
    spec.reduce = (mics_algorithm)take(&from, MICS_ALGORITHMS);
    spec.boundary = (mics_algorithm)take(&from, MICS_ALGORITHMS);
    spec.param_persistence_threshold = take(&from, 2) * small;
    spec.coalesce_below = take(&from, 2) * 3 * small;
    spec.precision = take(&from, 3) == 0 ? MICS_PRECISION_MIXED : MICS_PRECISION_FP32;
    spec.accelerator = spec.precision == MICS_PRECISION_MIXED || take(&from, 3) == 0;
    spec.params_dtype = wires_of(take(&from, 3));
    spec.grads_dtype = wires_of(take(&from, 3));
    spec.boundary_dtype = wires_of(take(&from, 5));
    spec.delta_sync = number % 2 == 1;
    spec.share_params = take(&from, 2) == 1;
    spec.evaluation_only = take(&from, 9) == 0;
    spec.all_reduces = take(&from, 4) == 0;
    spec.early_gathers = mics_schedule_may_gather_early(&spec) && take(&from, 2) == 0;
    spec.optimizer = (mics_optimizer_kind)take(&from, MICS_OPTIMIZER_KINDS);
    const int32_t more = mics_model_computing_units(model) - 1 - MICS_OFFLOAD_PLACES;
    spec.offload_units = more > 0 ? take(&from, (uint32_t)more + 1) : 0;
    return spec;
}

// Schedules that are valid; refused ones (whose rounded sums would send more) count nothing.
static int check_mesh(mics_memory *memory, const mics_model *model, const mics_mesh *mesh,
                      uint32_t settings)
{
    int valid = 0;
    for (uint32_t i = 0; i < settings; i++) {
        const mics_schedule_spec spec = spec_of(
            model, mesh, i * 8191 + (uint32_t)(mesh->ranks * 31 + mesh->sharding.optimizer));
        mics_schedule *schedule = NULL;
        capture refused;
        capture_begin(&refused);
        const mics_status status = mics_schedule_open(memory, &spec, &schedule);
        capture_end();
        if (status == MICS_ERR_INVALID) {
            ASSERT_SAID(&refused, "times fp32's bytes between nodes");
            continue;
        }
        ASSERT_OK(status);
        ASSERT_OK(mics_schedule_validate(schedule));
        mics_schedule_close(schedule);
        valid++;
    }
    return valid;
}

static int check_ranks(mics_memory *memory, const mics_model *model, int32_t ranks, int32_t nodes)
{
    int valid = 0;
    for (int32_t p = 1; p <= ranks; p++) {
        for (int32_t g = p; g <= ranks; g += p) {
            for (int32_t o = g; o <= ranks; o += g) {
                mics_mesh mesh;
                capture refused;
                capture_begin(&refused);
                const mics_status status =
                    mics_mesh_init(ranks, nodes, (mics_sharding){p, g, o}, &mesh);
                capture_end();
                if (status == MICS_OK)
                    valid += check_mesh(memory, model, &mesh, 12);
            }
        }
    }
    return valid;
}

static void test_every_schedule_is_valid(void **state)
{
    (void)state;
    int valid = 0;
    mics_memory *memory = NULL;
    ASSERT_OK(mics_memory_open(&memory));
    for (int tied = 0; tied < 2; tied++) {
        mics_model *model = model_gpt2(memory, 2 + tied, tied == 1);
        for (int32_t ranks = 1; ranks <= 16; ranks++) {
            for (int32_t nodes = 1; nodes <= ranks; nodes++) {
                if (ranks % nodes == 0)
                    valid += check_ranks(memory, model, ranks, nodes);
            }
        }
        mics_model_close(model);
    }
    for (int kind = 0; kind < MODEL_KINDS; kind++) {
        mics_model *model = model_build(memory, &model_kinds[kind], true);
        valid += check_ranks(memory, model, 8, 2);
        mics_model_close(model);
    }
    assert_true(valid > 15000);
    assert_int_equal(mics_memory_close(memory), 0);
}

// ---- computations in parts ----

static const char mixture[] =
    "{\"model_type\": \"mixtral\", \"num_hidden_layers\": 2, \"num_attention_heads\": 2, "
    "\"num_key_value_heads\": 1, \"hidden_size\": 8, \"intermediate_size\": 6, "
    "\"num_local_experts\": 4, \"num_experts_per_tok\": 2, "
    "\"max_position_embeddings\": 16, \"vocab_size\": 23}";

static mics_model *open_mixture(mics_memory *memory)
{
    mics_json *json = NULL;
    mics_model *model = NULL;
    ASSERT_OK(mics_json_parse(memory, "mixture", mixture, strlen(mixture), &json));
    ASSERT_OK(mics_model_from_config(memory, json, false, &model));
    mics_json_close(json);
    return model;
}

// The list with one step changed is refused.
static void check_changed(mics_schedule *schedule, mics_step *step, mics_step changed,
                          const char *why)
{
    const mics_step kept = *step;
    capture seen;
    *step = changed;
    capture_begin(&seen);
    const mics_status status = mics_schedule_validate(schedule);
    capture_end();
    *step = kept;
    assert_int_equal(status, MICS_ERR_INVALID);
    ASSERT_SAID(&seen, why);
}

// Each all-to-all, and each part of a computation, is where it must be.
static void check_parts(mics_schedule *schedule, int32_t expected)
{
    mics_step_list *list = &schedule->lists[MICS_PHASE_TRAIN];
    int32_t found = 0;
    ASSERT_OK(mics_schedule_validate(schedule));
    for (int32_t i = 0; i < list->count; i++) {
        mics_step *step = &list->steps[i], changed = *step;
        const bool computes = step->kind == MICS_STEP_FORWARD || step->kind == MICS_STEP_BACKWARD;
        assert_true(!computes || step->part.op <= step->part.op_end);
        if (step->kind == MICS_STEP_ALL_TO_ALL) {
            found++;
            changed.wait[MICS_STREAM_COMPUTE] = -1;
            check_changed(schedule, step, changed, "invariant 13");
            changed = *step;
            changed.in_flight++;
            check_changed(schedule, step, changed, "invariant 13");
            changed = *step;
            changed.block_elems--;
            check_changed(schedule, step, changed, "invariant 16");
            changed = *step;
            changed.axis = step->axis == MICS_AXIS_EXPERTS ? MICS_AXIS_SEQUENCE : MICS_AXIS_EXPERTS;
            check_changed(schedule, step, changed, "breaks invariant");
        } else if (computes && (step->part.op > 0 || step->part.call > 0)) {
            changed.wait[MICS_STREAM_INTRA] = changed.wait[MICS_STREAM_INTER] = -1;
            check_changed(schedule, step, changed, "breaks invariant");
            changed = *step;
            changed.part = (mics_step_part){0, 0, 0, 0};
            check_changed(schedule, step, changed, "breaks invariant");
        }
    }
    assert_int_equal(found, expected);
}

static void test_parts_of_computations(void **state)
{
    (void)state;
    mics_memory *memory = NULL;
    ASSERT_OK(mics_memory_open(&memory));
    mics_model *model = open_mixture(memory);
    for (int way = 0; way < 8; way++) {
        const bool recompute = way % 2 == 1, shares = way >= 4;
        for (int32_t experts = shares ? 1 : 2; experts <= 4; experts *= 2) {
            mics_schedule_spec spec = {.model = model,
                                       .batch = {.sequences = 2, .length = 8, .threads = 1},
                                       .micro_steps = 2,
                                       .prefetch = 1,
                                       .recompute = mics_recompute_all(recompute),
                                       .accelerator = way / 2 % 2 == 1};
            mics_schedule *schedule = NULL;
            ASSERT_OK(mics_mesh_init(4, 2, (mics_sharding){4, 4, 4}, &spec.mesh));
            ASSERT_OK(mics_mesh_spread_experts(&spec.mesh, experts));
            ASSERT_OK(mics_mesh_cut_sequences(&spec.mesh, shares ? 2 : 1));
            ASSERT_OK(mics_schedule_open(memory, &spec, &schedule));
            // A forward, and as much of it as saves something: of attention two, of a router one.
            const int32_t forward = (experts > 1 ? 2 : 0) + (shares ? 3 : 0),
                          backward = (experts > 1 ? 2 : 0) + (shares ? 2 : 0);
            check_parts(schedule, 2 * 2 * (forward + backward + (recompute ? forward : 0)));
            mics_schedule_close(schedule);
        }
    }
    mics_model_close(model);
    assert_int_equal(mics_memory_close(memory), 0);
}

// ---- mutants ----

static mics_step *find(mics_schedule *schedule, mics_step_kind kind, mics_step_stage stage, int nth)
{
    mics_step_list *list = &schedule->lists[MICS_PHASE_TRAIN];
    for (int32_t i = 0; i < list->count; i++) {
        if (list->steps[i].kind == kind && list->steps[i].stage == stage && nth-- == 0)
            return &list->steps[i];
    }
    fail_msg("the schedule has no %s", mics_step_text(kind, stage));
    return NULL;
}

static void forget_waits(mics_step *step)
{
    for (int stream = 0; stream < MICS_STREAMS; stream++)
        step->wait[stream] = -1;
}

static void wait_for_a_later_step(mics_schedule *s)
{
    find(s, MICS_STEP_NORM, MICS_STAGE_WHOLE, 0)->wait[MICS_STREAM_INTER] =
        s->lists[MICS_PHASE_TRAIN].count - 1;
}

static void wait_for_its_own_stream(mics_schedule *s)
{
    find(s, MICS_STEP_BACKWARD, MICS_STAGE_WHOLE, 1)->wait[MICS_STREAM_COMPUTE] = 0;
}

static void reduce_over_the_world(mics_schedule *s)
{
    find(s, MICS_STEP_REDUCE, MICS_STAGE_WHOLE, 0)->axis = MICS_AXIS_ISLAND;
}

static void gather_alone(mics_schedule *s)
{
    find(s, MICS_STEP_GATHER, MICS_STAGE_WHOLE, 0)->axis = MICS_AXIS_EXPERTS;
}

static void compute_on_a_collectives_stream(mics_schedule *s)
{
    find(s, MICS_STEP_FORWARD, MICS_STAGE_WHOLE, 0)->stream = MICS_STREAM_INTER;
}

static void gather_more(mics_schedule *s)
{
    find(s, MICS_STEP_GATHER, MICS_STAGE_WHOLE, 0)->block_elems += 16;
}

static void send_fewer_bytes(mics_schedule *s)
{
    find(s, MICS_STEP_REPLICA_SCATTER, MICS_STAGE_INTER, 0)->block_bytes -= 4;
}

static void compute_out_of_order(mics_schedule *s)
{
    find(s, MICS_STEP_FORWARD, MICS_STAGE_WHOLE, 1)->micro_step ^= 1;
}

static void share_a_place(mics_schedule *s)
{
    find(s, MICS_STEP_BACKWARD, MICS_STAGE_WHOLE, 0)->in_flight ^= 1;
}

static void read_another_slot(mics_schedule *s)
{
    mics_step_use *use = &find(s, MICS_STEP_FORWARD, MICS_STAGE_WHOLE, 2)->uses[0];
    use->param_slot = (use->param_slot + 1) % s->param_slot_count;
}

static void read_before_the_gather(mics_schedule *s)
{
    forget_waits(find(s, MICS_STEP_FORWARD, MICS_STAGE_WHOLE, 0));
}

static void fill_a_slot_that_is_read(mics_schedule *s)
{
    const mics_step_list *list = &s->lists[MICS_PHASE_TRAIN];
    for (int32_t i = 0; i < list->count; i++) {
        if (list->steps[i].kind == MICS_STEP_GATHER && list->steps[i].micro_step > 0)
            list->steps[i].wait[MICS_STREAM_COMPUTE] = -1;
    }
}

static void begin_before_the_first_stage(mics_schedule *s)
{
    forget_waits(find(s, MICS_STEP_REPLICA_SCATTER, MICS_STAGE_INTER, 0));
}

static void leave_out_a_stage(mics_schedule *s)
{
    *find(s, MICS_STEP_REPLICA_SCATTER, MICS_STAGE_INTER, 0) =
        *find(s, MICS_STEP_REPLICA_SCATTER, MICS_STAGE_INTRA, 0);
}

static void update_before_it_comes_back(mics_schedule *s)
{
    forget_waits(find(s, MICS_STEP_UPDATE, MICS_STAGE_WHOLE, 0));
}

static void gather_before_the_update(mics_schedule *s)
{
    find(s, MICS_STEP_GATHER, MICS_STAGE_WHOLE, 0)->wait[MICS_STREAM_COMPUTE] = -1;
}

static void sync_before_the_update(mics_schedule *s)
{
    find(s, MICS_STEP_PARAM_SYNC, MICS_STAGE_WHOLE, 0)->wait[MICS_STREAM_COMPUTE] = -1;
}

// The first forward and the update before it change places.
static void read_before_the_update(mics_schedule *s)
{
    mics_step *forward = find(s, MICS_STEP_FORWARD, MICS_STAGE_WHOLE, 0);
    mics_step *update = find(s, MICS_STEP_UPDATE, MICS_STAGE_WHOLE, 0), first = *update;
    *update = *forward;
    *forward = first;
}

// Two layers, which are alike.
static void bring_one_unit_back_twice(mics_schedule *s)
{
    mics_step *second = find(s, MICS_STEP_REPLICA_GATHER, MICS_STAGE_INTER, 2);
    second->unit = second->uses[0].unit = 1;
}

static void reduce_before_backward(mics_schedule *s)
{
    forget_waits(find(s, MICS_STEP_REDUCE, MICS_STAGE_WHOLE, 0));
}

static void overwrite_the_sum(mics_schedule *s)
{
    mics_step *reduce = find(s, MICS_STEP_REDUCE, MICS_STAGE_WHOLE, 0);
    while (reduce->kind != MICS_STEP_REDUCE || !reduce->uses[0].accumulate)
        reduce++;
    reduce->uses[0].accumulate = false;
}

// The head's, of the second micro-batch in flight.
static void overwrite_the_slot(mics_schedule *s)
{
    find(s, MICS_STEP_BACKWARD, MICS_STAGE_WHOLE, 1)->uses[0].accumulate = false;
}

// The head's, as if the second micro-batch in flight were to come.
static void reduce_a_part(mics_schedule *s)
{
    find(s, MICS_STEP_REDUCE, MICS_STAGE_WHOLE, 0)->micro_step--;
}

// The last layer's gradient twice, and the one's before it never.
static void reduce_twice(mics_schedule *s)
{
    mics_step *first = find(s, MICS_STEP_REDUCE, MICS_STAGE_WHOLE, 0), *other = first;
    do
        other++;
    while (other->kind != MICS_STEP_REDUCE || other->unit == first->unit);
    other->unit = first->unit;
    other->uses[0] = first->uses[0];
    other->block_elems = first->block_elems;
    other->block_bytes = first->block_bytes;
}

static void sum_before_the_gradient(mics_schedule *s)
{
    mics_step *scatter = find(s, MICS_STEP_SCATTER, MICS_STAGE_WHOLE, 0);
    while (scatter->stream == MICS_STREAM_INTRA && scatter->kind != MICS_STEP_NORM)
        scatter++;
    forget_waits(scatter);
}

// Two layers, which are alike.
static void sum_another_unit(mics_schedule *s)
{
    find(s, MICS_STEP_SCATTER, MICS_STAGE_WHOLE, 2)->unit =
        find(s, MICS_STEP_SCATTER, MICS_STAGE_WHOLE, 1)->unit;
}

static void gather_before_the_sum(mics_schedule *s)
{
    mics_step *scatter = find(s, MICS_STEP_REPLICA_SCATTER, MICS_STAGE_WHOLE, 0);
    mics_step *gather = find(s, MICS_STEP_REPLICA_GATHER, MICS_STAGE_WHOLE, 0), first = *gather;
    *gather = *scatter;
    *scatter = first;
}

// The same where gathers are early and updates deferred.
static void gather_early_before_the_sum(mics_schedule *s)
{
    gather_before_the_sum(s);
}

static void norm_before_the_early_gather(mics_schedule *s)
{
    mics_step *norm = find(s, MICS_STEP_NORM, MICS_STAGE_WHOLE, 0);
    norm->wait[MICS_STREAM_INTER]--;
}

static void norm_before_the_gather(mics_schedule *s)
{
    find(s, MICS_STEP_NORM, MICS_STAGE_WHOLE, 0)->wait[MICS_STREAM_INTER]--;
}

static void gather_before_the_sync(mics_schedule *s)
{
    mics_step *gather = find(s, MICS_STEP_GATHER, MICS_STAGE_WHOLE, 0);
    gather->wait[MICS_STREAM_INTER] = -1;
}

static void update_before_the_agreement(mics_schedule *s)
{
    forget_waits(find(s, MICS_STEP_UPDATE, MICS_STAGE_WHOLE, 0));
}

// Of an optimizer that makes matrices orthogonal. The layers of the model are one round.
static void send_before_the_momentum(mics_schedule *s)
{
    forget_waits(find(s, MICS_STEP_MOMENTUM_TO_OWNERS, MICS_STAGE_WHOLE, 0));
}

static void orthogonalise_before_it_comes(mics_schedule *s)
{
    forget_waits(find(s, MICS_STEP_ORTHOGONALISE, MICS_STAGE_WHOLE, 0));
}

static void send_back_before_it_is_orthogonal(mics_schedule *s)
{
    forget_waits(find(s, MICS_STEP_MOMENTUM_BACK, MICS_STAGE_WHOLE, 0));
}

static void update_before_momentum_is_back(mics_schedule *s)
{
    forget_waits(find(s, MICS_STEP_UPDATE, MICS_STAGE_WHOLE, 1));
}

static void hold_two_rounds(mics_schedule *s)
{
    find(s, MICS_STEP_UPDATE, MICS_STAGE_WHOLE, 1)->kind = MICS_STEP_MOMENTUM;
}

static void take_one_momentum_twice(mics_schedule *s)
{
    find(s, MICS_STEP_MOMENTUM, MICS_STAGE_WHOLE, 1)->unit =
        find(s, MICS_STEP_MOMENTUM, MICS_STAGE_WHOLE, 0)->unit;
}

static void update_without_the_owners(mics_schedule *s)
{
    mics_step *step = find(s, MICS_STEP_ORTHOGONALISE, MICS_STAGE_WHOLE, 0);
    step->kind = MICS_STEP_UPDATE;
}

static void leave_a_unit_out_of_rounds(mics_schedule *s)
{
    s->rounds[1].count = 0;
}

static void own_another_units_matrix(mics_schedule *s)
{
    s->matrices[0].owner++;
}

static void own_all_of_a_unit(mics_schedule *s)
{
    for (int32_t m = s->matrix_at[1]; m < s->matrix_at[2]; m++)
        s->matrices[m].owner = s->rounds[1].index;
}

static void update_one_unit_twice(mics_schedule *s)
{
    find(s, MICS_STEP_UPDATE, MICS_STAGE_WHOLE, 1)->unit = 0;
}

static void norm_before_the_sums(mics_schedule *s)
{
    forget_waits(find(s, MICS_STEP_NORM, MICS_STAGE_WHOLE, 0));
}

static void count_a_byte_more(mics_schedule *s)
{
    s->kind_bytes[MICS_PHASE_TRAIN][MICS_STEP_GATHER][MICS_STAGE_WHOLE].intra++;
}

static void take_no_room_to_join(mics_schedule *s)
{
    s->coalesced_bytes[MICS_STREAM_INTER] = 0;
}

// The nth step of a kind that waits for a copy.
static mics_step *find_waiting(mics_schedule *s, mics_step_kind kind, int nth)
{
    for (int i = 0;; i++) {
        mics_step *step = find(s, kind, MICS_STAGE_WHOLE, i);
        if (step->wait[MICS_STREAM_COPY] >= 0 && nth-- == 0)
            return step;
    }
}

static void overwrite_the_unstored(mics_schedule *s)
{
    find_waiting(s, MICS_STEP_FORWARD, 3)->wait[MICS_STREAM_COPY] = -1;
}

static void read_before_the_fetch(mics_schedule *s)
{
    find_waiting(s, MICS_STEP_BACKWARD, 3)->wait[MICS_STREAM_COPY] = -1;
}

static void store_before_forward(mics_schedule *s)
{
    forget_waits(find(s, MICS_STEP_STORE, MICS_STAGE_WHOLE, 2));
}

static void store_elsewhere(mics_schedule *s)
{
    find(s, MICS_STEP_STORE, MICS_STAGE_WHOLE, 1)->to += 16;
}

static void store_a_part(mics_schedule *s)
{
    find(s, MICS_STEP_STORE, MICS_STAGE_WHOLE, 1)->block_elems -= 16;
}

static void fetch_too_early(mics_schedule *s)
{
    int32_t *wait = &find(s, MICS_STEP_FETCH, MICS_STAGE_WHOLE, 1)->wait[MICS_STREAM_COMPUTE];
    do
        --*wait;
    while (!mics_step_is_compute(&s->lists[MICS_PHASE_TRAIN].steps[*wait]));
}

static void fetch_before_the_backward(mics_schedule *s)
{
    forget_waits(find(s, MICS_STEP_FETCH, MICS_STAGE_WHOLE, 0));
}

static void fetch_anothers(mics_schedule *s)
{
    find(s, MICS_STEP_FETCH, MICS_STAGE_WHOLE, 3)->in_flight ^= 1;
}

static void compute_a_copy(mics_schedule *s)
{
    find(s, MICS_STEP_UPDATE, MICS_STAGE_WHOLE, 1)->kind = MICS_STEP_STORE;
}

// An op of the first layer that runs again, or of a kind.
static int32_t find_op(const mics_schedule *s, bool again, mics_op_kind kind)
{
    int32_t op = 0;
    while (again ? !s->units[1].again[op] : s->spec.model->units[1].ops[op].kind != kind)
        op++;
    return op;
}

static void keep_what_is_made_again(mics_schedule *s)
{
    s->units[1].again[find_op(s, true, MICS_OP_KINDS)] = false;
}

static void multiply_again(mics_schedule *s)
{
    s->units[1].again[find_op(s, false, MICS_OP_LINEAR)] = true;
}

static void share_what_is_kept(mics_schedule *s)
{
    const int32_t op = find_op(s, false, MICS_OP_LINEAR);
    s->units[1].tensor_at[s->spec.model->units[1].ops[op].out] = s->in_flight_elems;
}

static mics_step *coded_sync(mics_schedule *s)
{
    return find(s, MICS_STEP_SIZES, MICS_STAGE_WHOLE, 1) + 1;
}

static void send_numbers(mics_schedule *s)
{
    mics_step *sync = coded_sync(s);
    sync->coded = false;
    sync->block_bytes = mics_comm_dtype_bytes(sync->dtype.sent, sync->block_elems);
}

static void name_anothers_sizes(mics_schedule *s)
{
    (coded_sync(s) - 1)->unit = 2;
}

static void send_sizes_to_the_group(mics_schedule *s)
{
    mics_step *sync = coded_sync(s);
    sync[-1].axis = sync->axis;
}

static void bound_fewer_bytes(mics_schedule *s)
{
    coded_sync(s)->block_bytes -= 8;
}

typedef struct mutant {
    const char *name, *said;
    mics_sharding sharding; // of 16 ranks on 2 nodes
    bool all_reduces;
    void (*spoil)(mics_schedule *schedule);
} mutant;

static const mutant mutants[] = {
    {"later step", "invariant 1:", {2, 2, 4}, false, wait_for_a_later_step},
    {"own stream", "invariant 1:", {2, 2, 4}, false, wait_for_its_own_stream},
    {"another group", "invariant 2:", {2, 2, 4}, false, reduce_over_the_world},
    {"a group of one", "its group has one member", {2, 2, 4}, false, gather_alone},
    {"another stream", "invariant 2:", {2, 2, 4}, false, compute_on_a_collectives_stream},
    {"longer block", "invariant 3:", {2, 2, 4}, false, gather_more},
    {"fewer bytes", "invariant 3:", {2, 2, 4}, false, send_fewer_bytes},
    {"pass out of order", "invariant 4:", {2, 2, 4}, false, compute_out_of_order},
    {"one place in flight for two", "invariant 4:", {2, 2, 4}, false, share_a_place},
    {"another slot", "invariant 5:", {2, 2, 4}, false, read_another_slot},
    {"before the gather", "invariant 5:", {4, 4, 4}, false, read_before_the_gather},
    {"slot in use", "invariant 6:", {2, 2, 4}, false, fill_a_slot_that_is_read},
    {"stages at once", "invariant 7:", {2, 2, 4}, false, begin_before_the_first_stage},
    {"no last stage", "invariant 7:", {2, 2, 4}, false, leave_out_a_stage},
    {"before backward", "invariant 8:", {2, 2, 4}, false, reduce_before_backward},
    {"overwritten", "invariant 8:", {2, 2, 4}, false, overwrite_the_sum},
    {"slot overwritten", "invariant 8:", {2, 2, 4}, false, overwrite_the_slot},
    {"reduced in part", "invariant 8:", {2, 2, 4}, false, reduce_a_part},
    {"reduced twice", "invariant 8:", {2, 2, 4}, false, reduce_twice},
    {"sum too early", "invariant 9:", {8, 8, 16}, false, sum_before_the_gradient},
    {"summed twice", "invariant 9:", {8, 8, 16}, false, sum_another_unit},
    {"gathered unsummed", "invariant 9:", {8, 8, 8}, true, gather_before_the_sum},
    {"norm before the gather", "invariant 9:", {8, 8, 8}, true, norm_before_the_gather},
    {"gathered early, unsummed", "invariant 9:", {1, 1, 8}, false, gather_early_before_the_sum},
    {"norm before it", "invariant 9:", {1, 1, 8}, false, norm_before_the_early_gather},
    {"sync too late", "invariant 10:", {8, 8, 16}, false, gather_before_the_sync},
    {"not come back", "invariant 10:", {2, 2, 4}, false, update_before_it_comes_back},
    {"comes back twice", "invariant 10:", {2, 2, 4}, false, bring_one_unit_back_twice},
    {"gathered too early", "invariant 10:", {2, 2, 2}, false, gather_before_the_update},
    {"synchronised too early", "invariant 10:", {2, 2, 8}, false, sync_before_the_update},
    {"read too early", "invariant 10:", {1, 1, 1}, false, read_before_the_update},
    {"no agreement", "invariant 11:", {8, 8, 16}, false, update_before_the_agreement},
    {"updated twice", "invariant 11:", {8, 8, 16}, false, update_one_unit_twice},
    {"norm too early", "invariant 11:", {2, 2, 4}, false, norm_before_the_sums},
    {"ledger", "invariant 12:", {2, 2, 4}, false, count_a_byte_more},
    {"not kept", "invariant 1 of recompute.c", {2, 2, 4}, false, keep_what_is_made_again},
    {"kept elsewhere", "invariant 1 of recompute.c", {2, 2, 4}, false, share_what_is_kept},
    {"multiplied again", "invariant 2 of recompute.c", {2, 2, 4}, false, multiply_again},
    {"no room", "invariant 12:", {8, 8, 16}, false, take_no_room_to_join},
};

static const mutant of_matrices[] = {
    {"sent before the momentum", "invariant 11:", {2, 2, 4}, false, send_before_the_momentum},
    {"orthogonal too early", "invariant 11:", {2, 2, 4}, false, orthogonalise_before_it_comes},
    {"back too early", "invariant 11:", {2, 2, 4}, false, send_back_before_it_is_orthogonal},
    {"before it is back", "invariant 11:", {2, 2, 4}, false, update_before_momentum_is_back},
    {"two rounds", "invariant 11:", {2, 2, 4}, false, hold_two_rounds},
    {"momentum twice", "invariant 11:", {2, 2, 4}, false, take_one_momentum_twice},
    {"no owners", "invariant 11:", {2, 2, 4}, false, update_without_the_owners},
    {"no round",
     "owners of unit 1 break invariant 1:",
     {2, 2, 4},
     false,
     leave_a_unit_out_of_rounds},
    {"another unit's", "invariant 2:", {2, 2, 4}, false, own_another_units_matrix},
    {"too many", "owners of unit 1 break invariant 3:", {2, 2, 4}, false, own_all_of_a_unit},
};

static const mutant of_copies[] = {
    {"overwritten unstored", "invariant 15:", {2, 2, 4}, false, overwrite_the_unstored},
    {"not fetched", "invariant 14:", {2, 2, 4}, false, read_before_the_fetch},
    {"stored too early", "invariant 14:", {2, 2, 4}, false, store_before_forward},
    {"stored elsewhere", "invariant 14:", {2, 2, 4}, false, store_elsewhere},
    {"stored in part", "invariant 14:", {2, 2, 4}, false, store_a_part},
    {"fetched too early", "invariant 15:", {2, 2, 4}, false, fetch_too_early},
    {"fetched before backward", "invariant 15:", {2, 2, 4}, false, fetch_before_the_backward},
    {"another micro-batch's", "invariant 14:", {2, 2, 4}, false, fetch_anothers},
    {"a copy that computes", "invariant 2:", {2, 2, 4}, false, compute_a_copy},
};

static const mutant of_changes[] = {
    {"numbers", "invariant 21:", {8, 8, 16}, false, send_numbers},
    {"sizes of another unit", "invariant 21:", {8, 8, 16}, false, name_anothers_sizes},
    {"sizes to some", "invariant 21:", {8, 8, 16}, false, send_sizes_to_the_group},
    {"shorter bound", "invariant 3:", {8, 8, 16}, false, bound_fewer_bytes},
};

static void check_mutant(mics_memory *memory, const mics_model *model, const mutant *m,
                         mics_optimizer_kind optimizer, int32_t offload_units)
{
    const bool joins = m->spoil == take_no_room_to_join;
    const bool early =
        m->spoil == gather_early_before_the_sum || m->spoil == norm_before_the_early_gather;
    mics_schedule_spec spec = {.model = model,
                               .batch = {.sequences = 1, .length = 5, .threads = 1},
                               .micro_steps = 4,
                               .prefetch = 1,
                               .layered_micro_steps = 2,
                               .boundary = MICS_ALGORITHM_TWO_STAGE,
                               .coalesce_below = joins ? 1 << 20 : 0,
                               .all_reduces = m->all_reduces,
                               .early_gathers = early,
                               .offload_units = offload_units,
                               .recompute = {.attention = true, .mlp = true},
                               .optimizer = optimizer};
    if (m >= of_changes && m < of_changes + sizeof of_changes / sizeof of_changes[0]) {
        spec.precision = MICS_PRECISION_MIXED;
        spec.delta_sync = true;
    }
    mics_schedule *schedule = NULL;
    capture seen;
    ASSERT_OK(mics_mesh_init(16, 2, m->sharding, &spec.mesh));
    ASSERT_OK(mics_schedule_open(memory, &spec, &schedule));
    ASSERT_OK(mics_schedule_validate(schedule));
    m->spoil(schedule);
    capture_begin(&seen);
    const mics_status status = mics_schedule_validate(schedule);
    capture_end();
    if (status != MICS_ERR_INVALID)
        fail_msg("\"%s\" goes through", m->name);
    ASSERT_SAID(&seen, m->said);
    mics_schedule_close(schedule);
}

static void test_each_invariant_fails(void **state)
{
    (void)state;
    mics_memory *memory = NULL;
    ASSERT_OK(mics_memory_open(&memory));
    mics_model *model = model_gpt2(memory, 3, false);
    for (size_t i = 0; i < sizeof mutants / sizeof mutants[0]; i++)
        check_mutant(memory, model, &mutants[i], MICS_OPTIMIZER_ADAMW, 0);
    for (size_t i = 0; i < sizeof of_changes / sizeof of_changes[0]; i++)
        check_mutant(memory, model, &of_changes[i], MICS_OPTIMIZER_ADAMW, 0);
    for (size_t i = 0; i < sizeof of_matrices / sizeof of_matrices[0]; i++)
        check_mutant(memory, model, &of_matrices[i], MICS_OPTIMIZER_MUON, 0);
    mics_model_close(model);
    model = model_gpt2(memory, 6, false);
    for (size_t i = 0; i < sizeof of_copies / sizeof of_copies[0]; i++)
        check_mutant(memory, model, &of_copies[i], MICS_OPTIMIZER_ADAMW, 4);
    mics_model_close(model);
    assert_int_equal(mics_memory_close(memory), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_schedule_is_valid),
        cmocka_unit_test(test_parts_of_computations),
        cmocka_unit_test(test_each_invariant_fails),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
