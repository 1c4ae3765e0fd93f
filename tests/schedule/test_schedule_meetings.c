// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Local steps: when units meet, what that sends and takes, and where it stands in the list. Over a grid
// of meshes and options the invariants hold, and each change of a list that matters breaks one.
#include "base/capture.h"
#include "mics/builder.h"
#include "mics/core/ledger.h"
#include "mics/core/schedule.h"
#include "model/from_config.h"
#include "models.h"
#include "schedule/rules.h"
#include <stdlib.h>

// Takes the next of a few choices out of a number.
static int take(uint32_t *from, int choices)
{
    const uint32_t taken = *from % (uint32_t)choices;
    *from = *from / (uint32_t)choices * 2654435761u + 12345u;
    *from ^= *from >> 11;
    return (int)taken;
}

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

static bool trains(const mics_schedule *s, int32_t unit)
{
    return !s->spec.model->units[unit].frozen && s->spec.model->units[unit].param_count > 0;
}

static const mics_step_list *training_list(const mics_schedule *s)
{
    return &s->lists[MICS_PHASE_TRAIN];
}

// ---- when ----

// Steps of a kind and state for a unit that run in a training step.
static int32_t count_due(const mics_schedule *s, mics_step_kind kind, int32_t unit, int32_t state,
                         int64_t number)
{
    int32_t count = 0;
    for (int32_t i = 0; i < training_list(s)->count; i++) {
        const mics_step *step = &training_list(s)->steps[i];
        count += step->kind == kind && step->unit == unit && step->state == state &&
                 step->stage != MICS_STAGE_INTER && mics_step_is_due(step, number);
    }
    return count;
}

// A unit meets whole once in `every` training steps, its states once in a period, and never in the
// first training step.
static void check_times(const mics_schedule *s)
{
    const mics_outer *outer = &s->spec.outer;
    const int32_t period = mics_schedule_period(s);
    const int32_t states =
        outer->moments_every > 0 ? 1 + mics_optimizer_def_get(s->spec.optimizer)->states : 1;
    assert_int_equal(period, outer->every * (outer->moments_every > 1 ? outer->moments_every : 1));
    for (int32_t u = 0; u < s->spec.model->unit_count; u++) {
        const bool spreads = mics_schedule_unit_ranks(s, u) > s->sharding[u].optimizer;
        for (int32_t state = 0; state < MICS_OPTIMIZER_STATES + 1; state++) {
            int32_t met = 0;
            for (int64_t number = 1; number <= 2 * period + 1; number++) {
                const int32_t changes = count_due(s, MICS_STEP_MEET_CHANGE, u, state, number);
                for (int kind = MICS_STEP_MEET_CHANGE; kind <= MICS_STEP_MEET_ADOPT; kind++)
                    assert_int_equal(count_due(s, (mics_step_kind)kind, u, state, number),
                                     kind == MICS_STEP_MEET_SPREAD && !spreads ? 0 : changes);
                assert_in_range(changes, 0, number == 1 ? 0 : 1);
                met += changes;
                if (state > 0 && changes == 1)
                    assert_int_equal(count_due(s, MICS_STEP_MEET_CHANGE, u, 0, number), 1);
            }
            const int32_t times = state == 0 ? 2 * period / outer->every : 2;
            assert_int_equal(met, trains(s, u) && state < states ? times : 0);
        }
    }
}

static void check_windows(const mics_schedule *s)
{
    const mics_outer *outer = &s->spec.outer;
    int32_t windows = 0;
    bool *seen = calloc((size_t)outer->every, sizeof *seen);
    assert_non_null(seen);
    for (int32_t u = 0; u < s->spec.model->unit_count; u++) {
        const mics_meeting *m = &s->meetings[u];
        if (!trains(s, u)) {
            assert_int_equal(m->window, -1);
            continue;
        }
        assert_in_range(m->offset, 0, outer->every - 1);
        windows += !seen[m->offset];
        seen[m->offset] = true;
    }
    free(seen);
    assert_int_equal(mics_schedule_windows(s), windows);
}

// ---- bytes and memory ----

// What all ranks send in a meeting of one unit, and of one of its states: each of I islands' ranks
// passes on its 1 / R twice, all but one of I blocks, and each of the shard's replicas what met.
static int64_t meeting_bytes(const mics_schedule *s, int32_t unit, mics_comm_dtype dtype)
{
    const int64_t ranks = mics_schedule_unit_ranks(s, unit), islands = s->spec.mesh.islands;
    const int64_t replicas = ranks / s->sharding[unit].optimizer;
    const int64_t block =
        (int64_t)mics_comm_dtype_bytes(dtype, s->padded_elems[unit] / ranks / islands);
    const int64_t spread = (replicas - 1) * (s->padded_elems[unit] / ranks) * 4;
    return mics_mesh_world(&s->spec.mesh) * (2 * (islands - 1) * block + spread);
}

static void check_bytes(const mics_schedule *s)
{
    const int32_t world = mics_mesh_world(&s->spec.mesh), period = mics_schedule_period(s);
    const int32_t states = mics_optimizer_def_get(s->spec.optimizer)->states;
    const mics_outer *outer = &s->spec.outer;
    mics_bytes once = {0, 0}, met = {0, 0};
    int64_t expected = 0;
    for (int32_t rank = 0; rank < world; rank++) {
        const mics_bytes alone = mics_schedule_rank_bytes(s, MICS_PHASE_TRAIN, rank);
        const mics_bytes first = mics_schedule_rank_bytes_in(s, rank, 1);
        assert_int_equal(first.intra, alone.intra);
        assert_int_equal(first.inter, alone.inter);
        once.intra += alone.intra, once.inter += alone.inter;
        for (int32_t number = 2; number <= period + 1; number++) {
            const mics_bytes in = mics_schedule_rank_bytes_in(s, rank, number);
            met.intra += in.intra - alone.intra, met.inter += in.inter - alone.inter;
        }
    }
    const mics_bytes all = mics_schedule_all_bytes(s, MICS_PHASE_TRAIN),
                     meetings = mics_schedule_meeting_bytes(s);
    assert_int_equal(all.intra, once.intra);
    assert_int_equal(all.inter, once.inter);
    assert_int_equal(meetings.intra, met.intra);
    assert_int_equal(meetings.inter, met.inter);
    for (int32_t u = 0; u < s->spec.model->unit_count; u++) {
        if (!trains(s, u))
            continue;
        expected += period / outer->every * meeting_bytes(s, u, outer->dtype);
        if (outer->moments_every > 0)
            expected += states * meeting_bytes(s, u, MICS_COMM_FP32);
    }
    assert_int_equal(meetings.intra + meetings.inter, expected);
}

// Anchors, momentum and residuals of all units, and messages of the window that has most.
static void check_memory(const mics_schedule *s)
{
    const int32_t states =
        1 +
        (s->spec.outer.moments_every > 0 ? mics_optimizer_def_get(s->spec.optimizer)->states : 0);
    const bool rounds = s->spec.outer.dtype != MICS_COMM_FP32;
    int64_t held = 0, most = 0;
    for (int32_t window = 0; window < mics_schedule_windows(s); window++) {
        int64_t messages = 0;
        for (int32_t u = 0; u < s->spec.model->unit_count; u++) {
            const int64_t elems = s->padded_elems[u], ranks = mics_schedule_unit_ranks(s, u);
            if (s->meetings[u].window != window)
                continue;
            messages += states * (elems / s->sharding[u].optimizer);
            held += elems / s->sharding[u].optimizer + elems / ranks / s->spec.mesh.islands;
            held += rounds ? elems / ranks + elems / ranks / s->spec.mesh.islands : 0;
        }
        most = messages > most ? messages : most;
    }
    assert_int_equal(s->outer_elems, held + most);
    assert_int_equal(s->ledger.bytes[MICS_MEM_OUTER],
                     mics_memory_block_bytes((size_t)s->outer_elems * sizeof(float)));
}

typedef struct place {
    int64_t at, elems;
    int32_t window; // -1: in all lists
} place;

static void check_apart(const mics_schedule *s, const place *places, int32_t count)
{
    for (int32_t a = 0; a < count; a++) {
        assert_in_range(places[a].at, 0, s->outer_elems - places[a].elems);
        assert_int_equal(places[a].at % 16, 0);
        for (int32_t b = 0; b < a; b++) {
            const bool together = places[a].window < 0 || places[b].window < 0 ||
                                  places[a].window == places[b].window;
            assert_true(!together || places[a].at >= places[b].at + places[b].elems ||
                        places[b].at >= places[a].at + places[a].elems);
        }
    }
}

// What is kept, and the messages of one list, lie apart.
static void check_places(const mics_schedule *s)
{
    const int32_t units = s->spec.model->unit_count;
    const int32_t states =
        1 +
        (s->spec.outer.moments_every > 0 ? mics_optimizer_def_get(s->spec.optimizer)->states : 0);
    place *places = calloc((size_t)units, 5 * sizeof *places);
    int32_t count = 0;
    assert_non_null(places);
    for (int32_t u = 0; u < units; u++) {
        const mics_meeting *m = &s->meetings[u];
        const int64_t shard = s->padded_elems[u] / s->sharding[u].optimizer,
                      share = s->padded_elems[u] / mics_schedule_unit_ranks(s, u),
                      met = share / s->spec.mesh.islands;
        const place all[] = {{m->anchor, shard, -1},
                             {m->momentum, met, -1},
                             {m->message, states * shard, m->window},
                             {m->sent_residual, share, -1},
                             {m->met_residual, met, -1}};
        const bool rounds = s->spec.outer.dtype != MICS_COMM_FP32;
        assert_true(rounds || (m->sent_residual == -1 && m->met_residual == -1));
        for (int i = 0; trains(s, u) && i < (rounds ? 5 : 3); i++)
            places[count++] = all[i];
        for (int32_t other = 0; other < u; other++)
            assert_int_equal(m->window == s->meetings[other].window,
                             m->offset == s->meetings[other].offset);
    }
    check_apart(s, places, count);
    free(places);
}

// ---- the list ----

// Without its meetings the list is that of as many ranks alone.
static void check_like_alone(mics_memory *memory, const mics_schedule *s)
{
    const mics_mesh *mesh = &s->spec.mesh;
    mics_schedule_spec spec = s->spec;
    mics_schedule *alone = NULL;
    if (s->spread != NULL)
        spec.model = s->spread->base;
    spec.outer = (mics_outer){0};
    ASSERT_OK(mics_mesh_init(mesh->ranks, mics_mesh_nodes(mesh), mesh->sharding, &spec.mesh));
    ASSERT_OK(mics_mesh_spread_experts(&spec.mesh, mesh->experts));
    ASSERT_OK(mics_schedule_open(memory, &spec, &alone));
    const mics_step_list *with = training_list(s), *without = training_list(alone);
    int32_t at = 0;
    for (int32_t i = 0; i < with->count; i++) {
        const mics_step *step = &with->steps[i], *same = &without->steps[at];
        if (mics_step_meets(step) || step->kind == MICS_STEP_AGREE_WORLD)
            continue;
        assert_in_range(at, 0, without->count - 1);
        assert_int_equal(step->kind, same->kind);
        assert_int_equal(step->unit, same->unit);
        assert_int_equal(step->stream, same->stream);
        assert_int_equal(step->stage, same->stage);
        assert_int_equal(step->micro_step, same->micro_step);
        assert_int_equal(step->in_flight, same->in_flight);
        assert_int_equal(step->axis, same->axis);
        assert_int_equal(step->period, 0);
        at++;
    }
    assert_int_equal(at, without->count);
    mics_schedule_close(alone);
}

// ---- the grid ----

static mics_schedule_spec spec_of(const mics_model *model, const mics_mesh *mesh, uint32_t number)
{
    uint32_t from = (number + 1) * 2246822519u;
    const int64_t small = model->units[0].elems;
    mics_schedule_spec spec = {.model = model,
                               .mesh = *mesh,
                               .batch = {.sequences = 1, .length = 5, .threads = 1},
                               .micro_steps = 1 + take(&from, 3),
                               .prefetch = take(&from, 3),
                               .layered_micro_steps = take(&from, 3)};
    spec.gather = spec.reduce = (mics_algorithm)take(&from, MICS_ALGORITHMS);
    spec.boundary = (mics_algorithm)take(&from, MICS_ALGORITHMS);
    spec.param_persistence_threshold = take(&from, 2) * small;
    spec.coalesce_below = take(&from, 2) * 3 * small;
    spec.precision = take(&from, 3) == 0 ? MICS_PRECISION_MIXED : MICS_PRECISION_FP32;
    spec.accelerator = spec.precision == MICS_PRECISION_MIXED || take(&from, 3) == 0;
    spec.share_params = take(&from, 2) == 1;
    spec.early_gathers = mics_schedule_may_gather_early(&spec) && take(&from, 2) == 0;
    spec.optimizer = (mics_optimizer_kind)take(&from, MICS_OPTIMIZER_KINDS);
    spec.any_rounding = true;
    spec.outer.every = 1 + take(&from, 7);
    spec.outer.fragments = 1 + take(&from, spec.outer.every < 3 ? spec.outer.every : 3);
    spec.outer.overlap_steps = take(&from, 2) * take(&from, spec.outer.every + 1);
    spec.outer.dtype = (mics_comm_dtype)take(&from, MICS_COMM_DTYPES);
    spec.outer.moments_every = take(&from, 2) * take(&from, 4);
    return spec;
}

static void check_schedule(mics_memory *memory, const mics_model *model, const mics_mesh *mesh,
                           uint32_t number)
{
    const mics_schedule_spec spec = spec_of(model, mesh, number);
    mics_schedule *s = NULL;
    ASSERT_OK(mics_schedule_open(memory, &spec, &s));
    ASSERT_OK(mics_schedule_validate(s));
    check_times(s);
    check_windows(s);
    check_bytes(s);
    check_memory(s);
    check_places(s);
    check_like_alone(memory, s);
    mics_schedule_close(s);
}

// Islands of all sizes; returns how many schedules there were.
static int check_mesh(mics_memory *memory, const mics_model *model, const mics_mesh *whole,
                      int32_t experts, int settings)
{
    int valid = 0;
    for (int32_t ranks = whole->sharding.optimizer; ranks < whole->ranks; ranks++) {
        mics_mesh mesh = *whole;
        capture refused;
        capture_begin(&refused);
        const mics_status status = mics_mesh_part_islands(&mesh, ranks);
        capture_end();
        if (status != MICS_OK)
            continue;
        ASSERT_OK(mics_mesh_spread_experts(&mesh, experts));
        for (int i = 0; i < settings; i++)
            check_schedule(memory, model, &mesh,
                           (uint32_t)(((i * 67 + ranks) * 67 + whole->ranks) * 67 +
                                      whole->sharding.optimizer * 16 + whole->sharding.params));
        valid += settings;
    }
    return valid;
}

static int check_ranks(mics_memory *memory, const mics_model *model, int32_t ranks, int32_t nodes)
{
    int valid = 0;
    for (int32_t p = 1; p <= ranks; p++) {
        for (int32_t g = p; g <= ranks; g += p) {
            for (int32_t o = g; o < ranks; o += g) {
                mics_mesh mesh;
                capture refused;
                capture_begin(&refused);
                const mics_status status =
                    mics_mesh_init(ranks, nodes, (mics_sharding){p, g, o}, &mesh);
                capture_end();
                if (status == MICS_OK)
                    valid += check_mesh(memory, model, &mesh, 1, 6);
            }
        }
    }
    return valid;
}

static void test_every_schedule(void **state)
{
    (void)state;
    int valid = 0;
    mics_memory *memory = NULL;
    ASSERT_OK(mics_memory_open(&memory));
    for (int tied = 0; tied < 2; tied++) {
        mics_model *model = model_gpt2(memory, 2 + tied, tied == 1);
        for (int32_t ranks = 2; ranks <= 16; ranks++) {
            for (int32_t nodes = 1; nodes <= ranks; nodes++) {
                if (ranks % nodes == 0)
                    valid += check_ranks(memory, model, ranks, nodes);
            }
        }
        mics_model_close(model);
    }
    mics_model *adapted = model_gpt2(memory, 3, false); // most of it frozen
    ASSERT_OK(mics_model_add_lora(adapted, &(mics_lora_spec){.rank = 2, .alpha = 4}));
    valid += check_ranks(memory, adapted, 8, 2);
    mics_model_close(adapted);
    mics_model *model = open_mixture(memory);
    for (int32_t nodes = 1; nodes <= 8; nodes *= 2) {
        mics_mesh mesh;
        for (int32_t experts = 1; experts <= 4; experts *= 2) {
            ASSERT_OK(mics_mesh_init(16, nodes, (mics_sharding){4, 4, 4}, &mesh));
            valid += check_mesh(memory, model, &mesh, experts, 40);
            ASSERT_OK(mics_mesh_init(16, nodes, (mics_sharding){4, 4, 8}, &mesh));
            valid += check_mesh(memory, model, &mesh, experts, 40);
        }
    }
    mics_model_close(model);
    assert_true(valid > 2000);
    assert_int_equal(mics_memory_close(memory), 0);
}

// Islands as large as all ranks are none.
static void test_one_island(void **state)
{
    (void)state;
    mics_memory *memory = NULL;
    ASSERT_OK(mics_memory_open(&memory));
    mics_model *model = model_gpt2(memory, 2, false);
    mics_schedule_spec spec = {
        .model = model, .batch = {.sequences = 1, .length = 5, .threads = 1}, .micro_steps = 2};
    mics_schedule *s = NULL;
    ASSERT_OK(mics_mesh_init(8, 2, (mics_sharding){2, 2, 4}, &spec.mesh));
    const mics_mesh whole = spec.mesh;
    ASSERT_OK(mics_mesh_part_islands(&spec.mesh, 8));
    assert_memory_equal(&spec.mesh, &whole, sizeof whole);
    ASSERT_OK(mics_schedule_open(memory, &spec, &s));
    ASSERT_OK(mics_schedule_validate(s));
    assert_null(s->meetings);
    assert_int_equal(s->outer_elems, 0);
    assert_int_equal(s->ledger.bytes[MICS_MEM_OUTER], 0);
    assert_int_equal(mics_schedule_period(s), 1);
    assert_int_equal(mics_schedule_windows(s), 0);
    for (int32_t i = 0; i < training_list(s)->count; i++) {
        const mics_step *step = &training_list(s)->steps[i];
        assert_true(step->kind != MICS_STEP_AGREE_WORLD && !mics_step_meets(step));
    }
    mics_schedule_close(s);
    mics_model_close(model);
    assert_int_equal(mics_memory_close(memory), 0);
}

// ---- places, by hand ----

static mics_schedule_spec example(const mics_model *model, mics_sharding sharding, mics_outer outer)
{
    mics_schedule_spec spec = {.model = model,
                               .batch = {.sequences = 1, .length = 5, .threads = 1},
                               .micro_steps = 1,
                               .prefetch = 1,
                               .gather = MICS_ALGORITHM_TWO_STAGE,
                               .reduce = MICS_ALGORITHM_TWO_STAGE,
                               .boundary = MICS_ALGORITHM_TWO_STAGE,
                               .outer = outer};
    ASSERT_OK(mics_mesh_init(8, 4, sharding, &spec.mesh));
    ASSERT_OK(mics_mesh_part_islands(&spec.mesh, 4));
    return spec;
}

// Units of 640, 1920, 1920, 1920 and 384 elements.
static void test_offsets(void **state)
{
    (void)state;
    static const struct {
        mics_outer outer;
        int32_t offsets[5];
    } cases[] = {
        {{.every = 6, .fragments = 1, .overlap_steps = 0}, {0, 0, 0, 0, 0}},
        {{.every = 6, .fragments = 1, .overlap_steps = 1}, {0, 0, 0, 0, 0}},
        {{.every = 7, .fragments = 2, .overlap_steps = 1}, {0, 0, 3, 3, 3}},
        // of 2560 and of 4224 elements, in three lists each
        {{.every = 6, .fragments = 2, .overlap_steps = 3}, {0, 0, 3, 4, 5}},
        // over the whole period: the second fragment's last ones meet in the next one
        {{.every = 6, .fragments = 2, .overlap_steps = 6}, {0, 1, 3, 5, 2}},
        {{.every = 5, .fragments = 5, .overlap_steps = 0}, {0, 1, 2, 3, 4}},
    };
    mics_memory *memory = NULL;
    ASSERT_OK(mics_memory_open(&memory));
    mics_model *model = model_gpt2(memory, 3, false);
    for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
        const mics_schedule_spec spec = example(model, (mics_sharding){2, 2, 2}, cases[c].outer);
        mics_schedule *s = NULL;
        ASSERT_OK(mics_schedule_open(memory, &spec, &s));
        for (int32_t u = 0; u < 5; u++)
            assert_int_equal(s->meetings[u].offset, cases[c].offsets[u]);
        mics_schedule_close(s);
    }
    mics_model_close(model);
    assert_int_equal(mics_memory_close(memory), 0);
}

static int32_t index_of(const mics_schedule *s, mics_step_kind kind, int32_t unit)
{
    for (int32_t i = 0; i < training_list(s)->count; i++) {
        if (training_list(s)->steps[i].kind == kind && training_list(s)->steps[i].unit == unit)
            return i;
    }
    fail_msg("no %s of unit %d", mics_step_text(kind, MICS_STAGE_WHOLE), (int)unit);
    return -1;
}

// With overlap sums begin one after the other, and outer steps stand between passes.
static void test_meetings_run_beside_passes(void **state)
{
    (void)state;
    mics_memory *memory = NULL;
    ASSERT_OK(mics_memory_open(&memory));
    mics_model *model = model_gpt2(memory, 3, false);
    for (int32_t o = 2; o <= 4; o += 2) {
        const mics_outer outer = {.every = 4, .fragments = 1, .overlap_steps = 1};
        const mics_schedule_spec spec = example(model, (mics_sharding){2, 2, o}, outer);
        mics_schedule *s = NULL;
        ASSERT_OK(mics_schedule_open(memory, &spec, &s));
        int32_t passes = 0;
        for (int32_t u = 0; u < 5; u++) {
            const int32_t scatter = index_of(s, MICS_STEP_MEET_SCATTER, u),
                          update = index_of(s, MICS_STEP_MEET_UPDATE, u),
                          adopt = index_of(s, MICS_STEP_MEET_ADOPT, u);
            int32_t between = 0;
            for (int32_t i = scatter; i < update; i++)
                between += training_list(s)->steps[i].kind == MICS_STEP_FORWARD ||
                           training_list(s)->steps[i].kind == MICS_STEP_BACKWARD;
            passes += between;
            assert_true(between > 0 || u == 4 || s->padded_elems[u] < 1000);
            assert_true(u == 0 || scatter > index_of(s, MICS_STEP_MEET_SCATTER, u - 1));
            assert_true(adopt > index_of(s, MICS_STEP_AGREE, -1));
        }
        assert_true(passes >= 3);
        mics_schedule_close(s);
    }
    mics_model_close(model);
    assert_int_equal(mics_memory_close(memory), 0);
}

// ---- mutants ----

static void must_break(mics_schedule *s, const char *why, int32_t at)
{
    capture seen;
    capture_begin(&seen);
    const mics_status status = mics_schedule_validate(s);
    capture_end();
    if (status != MICS_ERR_INVALID) {
        const mics_step *step = &training_list(s)->steps[at];
        fail_msg("%s: step %d, %s of unit %d: nobody noticed", why, (int)at,
                 mics_step_text(step->kind, step->stage), (int)step->unit);
    }
}

typedef struct knowledge {
    int32_t newest[MICS_STREAMS];
} knowledge;

static void learn(knowledge *to, const knowledge *from)
{
    for (int stream = 0; stream < MICS_STREAMS; stream++) {
        if (from->newest[stream] > to->newest[stream])
            to->newest[stream] = from->newest[stream];
    }
}

// What is done when step `at` begins, in a training step in which that is due.
static knowledge known_by(const mics_schedule *s, int32_t at)
{
    const mics_step *steps = training_list(s)->steps;
    const int64_t number = 1 + (steps[at].offset > 0 ? steps[at].offset : steps[at].period);
    const knowledge nothing = {{-1, -1, -1, -1}};
    knowledge streams[MICS_STREAMS] = {nothing, nothing, nothing, nothing}, found = nothing;
    knowledge *all = calloc((size_t)at + 1, sizeof *all);
    assert_non_null(all);
    for (int32_t i = 0; i <= at; i++) {
        knowledge *stream = &streams[steps[i].stream];
        for (int other = 0; other < MICS_STREAMS && mics_step_is_due(&steps[i], number); other++) {
            if (steps[i].wait[other] >= 0)
                learn(stream, &all[steps[i].wait[other]]);
        }
        found = *stream;
        stream->newest[steps[i].stream] = i;
        all[i] = *stream;
    }
    free(all);
    return found;
}

// Forgets what a step waits for: that breaks an invariant, unless all of it is done by then anyway.
static void forget_waits(mics_schedule *s, int32_t at)
{
    mics_step *step = &s->lists[MICS_PHASE_TRAIN].steps[at];
    const mics_step kept = *step;
    for (int stream = 0; stream < MICS_STREAMS; stream++)
        step->wait[stream] = -1;
    const knowledge knows = known_by(s, at);
    bool done = true;
    for (int stream = 0; stream < MICS_STREAMS; stream++)
        done = done && knows.newest[stream] >= kept.wait[stream];
    if (done)
        ASSERT_OK(mics_schedule_validate(s));
    else
        must_break(s, "without waits", at);
    *step = kept;
}

static void change_one(mics_schedule *s, int32_t at)
{
    mics_step *step = &s->lists[MICS_PHASE_TRAIN].steps[at];
    const mics_step kept = *step;
    if (step->kind == MICS_STEP_AGREE_WORLD) {
        step->axis = MICS_AXIS_ISLAND;
        must_break(s, "over an island", at);
        *step = kept;
        step->period = s->spec.outer.every;
        must_break(s, "not always", at);
        *step = kept;
        return;
    }
    forget_waits(s, at);
    step->offset = (step->offset + 1) % step->period;
    must_break(s, "in another training step", at);
    *step = kept;
    step->period = 0;
    must_break(s, "in every training step", at);
    *step = kept;
    step->state = step->state == 0 ? 1 : 0;
    must_break(s, "of another state", at);
    *step = kept;
    step->unit = step->unit == 1 ? 2 : 1;
    must_break(s, "of another unit", at);
    *step = kept;
    if (!mics_step_is_comm(step))
        return;
    step->axis = step->axis == MICS_AXIS_OUTER ? MICS_AXIS_REPLICATION : MICS_AXIS_OUTER;
    must_break(s, "of other ranks", at);
    *step = kept;
    step->dtype.sent = step->dtype.sent == MICS_COMM_BF16 ? MICS_COMM_FP32 : MICS_COMM_BF16;
    step->block_bytes = mics_comm_dtype_bytes(step->dtype.sent, step->block_elems);
    must_break(s, "in other numbers", at);
    *step = kept;
}

// Two computations that follow each other, in the other order.
static void swap(mics_schedule *s, int32_t a, int32_t b)
{
    mics_step *steps = s->lists[MICS_PHASE_TRAIN].steps, first = steps[a];
    assert_true(mics_step_is_compute(&steps[a]) && mics_step_is_compute(&steps[b]));
    steps[a] = steps[b];
    steps[b] = first;
}

static void swap_breaks(mics_schedule *s, mics_step_kind one, mics_step_kind other)
{
    const int32_t a = index_of(s, one, 1), b = index_of(s, other, 1);
    swap(s, a, b);
    must_break(s, "in another order", a);
    swap(s, a, b);
    ASSERT_OK(mics_schedule_validate(s));
}

static void send_early(mics_schedule *s)
{
    const bool syncs = s->spec.mesh.sharding.optimizer > s->spec.mesh.sharding.params;
    const int32_t at = index_of(s, syncs ? MICS_STEP_PARAM_SYNC : MICS_STEP_GATHER, 1);
    int32_t *wait = &s->lists[MICS_PHASE_TRAIN].steps[at].wait[MICS_STREAM_COMPUTE];
    const int32_t kept = *wait;
    assert_int_equal(training_list(s)->steps[kept].kind, MICS_STEP_MEET_ADOPT);
    *wait = index_of(s, MICS_STEP_MEET_UPDATE, 1);
    must_break(s, "before it met", at);
    *wait = kept;
}

// Each place of a unit in turn where another thing lies; then an arena that is too short.
static void misplace(mics_schedule *s)
{
    mics_meeting *m = &s->meetings[3];
    const mics_meeting kept = *m;
    m->anchor = s->meetings[2].anchor;
    must_break(s, "in another unit's anchor", 0);
    *m = kept;
    m->momentum = m->anchor;
    must_break(s, "in its anchor", 0);
    *m = kept;
    m->message = m->momentum;
    must_break(s, "in what is kept", 0);
    *m = kept;
    if (s->meetings[4].window == m->window) {
        m->message = s->meetings[4].message;
        must_break(s, "in another unit's message", 0);
        *m = kept;
    }
    if (s->spec.outer.dtype != MICS_COMM_FP32) {
        m->sent_residual = m->momentum;
        must_break(s, "in its momentum", 0);
        *m = kept;
        m->met_residual = m->sent_residual;
        must_break(s, "in its other residual", 0);
        *m = kept;
    }
    s->outer_elems--;
    must_break(s, "behind the arena", 0);
    s->outer_elems++;
    ASSERT_OK(mics_schedule_validate(s));
}

static void test_changes_break_invariants(void **state)
{
    (void)state;
    mics_memory *memory = NULL;
    ASSERT_OK(mics_memory_open(&memory));
    mics_model *model = model_gpt2(memory, 3, false);
    for (int i = 0; i < 16; i++) {
        const mics_outer outer = {.every = 4,
                                  .fragments = 1 + i / 8,
                                  .overlap_steps = i / 4 % 2 * 2,
                                  .dtype = i / 2 % 2 == 0 ? MICS_COMM_FP32 : MICS_COMM_INT4,
                                  .moments_every = i == 5 ? 2 : 0};
        const mics_schedule_spec spec =
            example(model, (mics_sharding){2, 2, i % 2 == 0 ? 2 : 4}, outer);
        mics_schedule *s = NULL;
        ASSERT_OK(mics_schedule_open(memory, &spec, &s));
        ASSERT_OK(mics_schedule_validate(s));
        for (int32_t at = 0; at < training_list(s)->count; at++) {
            const mics_step *step = &training_list(s)->steps[at];
            if (mics_step_meets(step) || step->kind == MICS_STEP_AGREE_WORLD)
                change_one(s, at);
        }
        if (mics_schedule_defers(s)) // the change behind the update that was deferred
            swap_breaks(s, MICS_STEP_UPDATE, MICS_STEP_MEET_CHANGE);
        else if (outer.overlap_steps > 0)
            swap_breaks(s, MICS_STEP_MEET_ADOPT, MICS_STEP_UPDATE);
        else // what is sent to others before it met
            send_early(s);
        swap_breaks(s, MICS_STEP_MEET_UPDATE, MICS_STEP_MEET_ADOPT);
        misplace(s);
        mics_schedule_close(s);
    }
    mics_model_close(model);
    assert_int_equal(mics_memory_close(memory), 0);
}

// ---- refusals ----

static void test_refusals(void **state)
{
    (void)state;
    static const struct {
        mics_outer outer;
        bool whole; // one island
        bool all_reduces, delta_sync;
        mics_state_dtype states;
        const char *said;
    } refusals[] = {
        {.outer = {.every = 0}, .said = "2 islands of 4 ranks that meet every 0 steps"},
        {.outer = {.every = -1}, .said = "meet every -1 steps"},
        {.outer = {.every = 4, .fragments = 1}, .whole = true, .said = "nobody to meet"},
        {.outer = {.every = 4, .fragments = 0}, .said = "fragments 0 of 1 to 4"},
        {.outer = {.every = 3, .fragments = 4}, .said = "fragments 4 of 1 to 3"},
        {.outer = {.every = 9, .fragments = 6}, .said = "fragments 6 of 1 to 5"},
        {.outer = {.every = 4, .fragments = 1, .overlap_steps = 5},
         .said = "overlap_steps 5 of 0 (forward waits) to 4"},
        {.outer = {.every = 4, .fragments = 1, .overlap_steps = -1}, .said = "overlap_steps -1"},
        {.outer = {.every = 4, .fragments = 1, .dtype = MICS_COMM_DTYPES},
         .said = "dtype unknown precision of fp32, bf16, int8 or int4"},
        {.outer = {.every = 4, .fragments = 1, .moments_every = -1}, .said = "moments_every -1"},
        {.outer = {.every = 1 << 30, .fragments = 1, .moments_every = 2},
         .said = "moments_every 2 of 0 (never) to 1"},
        {.outer = {.every = 4, .fragments = 1, .moments_every = 1},
         .states = MICS_STATE_8BIT,
         .said = "states that meet are held as fp32"},
        {.outer = {.every = 4, .fragments = 1}, .all_reduces = true, .said = "all_reduces"},
        {.outer = {.every = 4, .fragments = 1}, .delta_sync = true, .said = "delta_sync"},
    };
    mics_memory *memory = NULL;
    ASSERT_OK(mics_memory_open(&memory));
    mics_model *model = model_gpt2(memory, 3, false);
    for (size_t i = 0; i < sizeof refusals / sizeof refusals[0]; i++) {
        mics_schedule_spec spec = example(model, (mics_sharding){2, 2, 2}, refusals[i].outer);
        mics_schedule *s = NULL;
        capture seen;
        if (refusals[i].whole)
            ASSERT_OK(mics_mesh_init(8, 4, (mics_sharding){2, 2, 2}, &spec.mesh));
        spec.all_reduces = refusals[i].all_reduces;
        spec.delta_sync = refusals[i].delta_sync;
        spec.state_dtype = refusals[i].states;
        capture_begin(&seen);
        const mics_status status = mics_schedule_open(memory, &spec, &s);
        capture_end();
        ASSERT_STATUS(MICS_ERR_INVALID, status);
        ASSERT_SAID(&seen, refusals[i].said);
    }
    mics_schedule_spec spec =
        example(model, (mics_sharding){2, 2, 2}, (mics_outer){.every = 4, .fragments = 1});
    mics_schedule *s = NULL;
    capture seen;
    spec.boundary_dtype = mics_comm_dtypes_both(MICS_COMM_INT4);
    capture_begin(&seen);
    assert_int_equal(mics_schedule_open(memory, &spec, &s), MICS_ERR_INVALID);
    capture_end();
    ASSERT_SAID(&seen, "the second hop goes as fp32, bf16 or int8");
    mics_model_close(model);
    assert_int_equal(mics_memory_close(memory), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_schedule),
        cmocka_unit_test(test_one_island),
        cmocka_unit_test(test_offsets),
        cmocka_unit_test(test_meetings_run_beside_passes),
        cmocka_unit_test(test_changes_break_invariants),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
