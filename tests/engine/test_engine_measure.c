// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Timing collectives: what is planned, what is chosen on links of planted speed, that all ranks find
// the same, that time and memory stay within their limits, and what happens when something fails.
#include "engine/measure_plan.h"
#include "fixture.h"
#include "links.h"
#include "mics/clock.h"
#include "mics/measure.h"
#include <math.h>
#include <stdatomic.h>

// ---- pure ----

enum { UNITS_MAX = 16 };

// As much of a schedule as planning reads.
typedef struct sizes {
    mics_schedule schedule;
    mics_model model;
    int64_t padded[UNITS_MAX];
    mics_sharding sharding[UNITS_MAX];
} sizes;

static void sizes_init(sizes *self, int32_t ranks, int32_t nodes, mics_sharding sharding,
                       const int64_t *elems, int32_t count)
{
    *self = (sizes){.model.unit_count = count};
    assert_int_equal(mics_mesh_init(ranks, nodes, sharding, &self->schedule.spec.mesh), MICS_OK);
    self->schedule.spec.model = &self->model;
    self->schedule.padded_elems = self->padded;
    self->schedule.sharding = self->sharding;
    for (int32_t i = 0; i < count; i++) {
        self->padded[i] = elems[i];
        self->sharding[i] = sharding;
    }
}

static const int64_t three_units[] = {1024, 3 * 1024, 4 * 1024};

static void test_sizes_are_rounded_up_to_powers_of_two(void **state)
{
    (void)state;
    sizes self;
    mics_timings plan;
    sizes_init(&self, 4, 2, (mics_sharding){4, 4, 4}, three_units, 3);
    mics_measure_plan(&self.schedule, false, &plan);
    assert_int_equal(plan.row_count, 2);
    assert_int_equal(plan.rows[0].most_bytes, 4096);
    assert_int_equal(plan.rows[1].most_bytes, 16384);
    for (int32_t i = 0; i < 2; i++)
        assert_true(plan.rows[i].of[MICS_MEASURE_GATHER].wanted &&
                    plan.rows[i].of[MICS_MEASURE_REDUCE].wanted);
    // What is timed is as large as the largest unit of a row.
    assert_int_equal(plan.rows[1].of[MICS_MEASURE_GATHER].units, 2);
    assert_int_equal(plan.rows[1].of[MICS_MEASURE_REDUCE].unit_bytes, 16384);
    sizes_init(&self, 4, 2, (mics_sharding){4, 4, 4}, three_units, 2);
    mics_measure_plan(&self.schedule, false, &plan);
    assert_int_equal(plan.rows[1].of[MICS_MEASURE_GATHER].unit_bytes, 3 * 4096);
    sizes_init(&self, 4, 2, (mics_sharding){4, 4, 4}, three_units, 3);
    // Packed gradients are half as long; so rows are for one of the two.
    self.schedule.spec.reduce_wires = mics_wires_both(MICS_WIRE_BF16);
    mics_measure_plan(&self.schedule, false, &plan);
    assert_int_equal(plan.row_count, 4);
    assert_int_equal(plan.rows[0].most_bytes, 2048);
    assert_false(plan.rows[0].of[MICS_MEASURE_GATHER].wanted);
    assert_true(plan.rows[0].of[MICS_MEASURE_REDUCE].wanted);
    assert_int_equal(plan.rows[3].most_bytes, 16384);
    assert_false(plan.rows[3].of[MICS_MEASURE_REDUCE].wanted);
}

static void test_near_sizes_are_joined(void **state)
{
    (void)state;
    static const int64_t elems[] = {16,         32,         1024,    16 * 1024, 64 * 1024,
                                    256 * 1024, 512 * 1024, 1 << 22, 1 << 26};
    sizes self;
    mics_timings plan;
    sizes_init(&self, 4, 2, (mics_sharding){4, 4, 4}, elems, 9);
    mics_measure_plan(&self.schedule, false, &plan);
    assert_int_equal(plan.row_count, MICS_CHOICES);
    // Of the pairs of bytes and of MiB that are a factor of two apart, and then of the one of 4 apart.
    static const size_t most[] = {128, 4096, 262144, 2097152, 1 << 24, 1 << 28};
    int32_t units = 0;
    for (int32_t i = 0; i < plan.row_count; i++) {
        assert_int_equal(plan.rows[i].most_bytes, most[i]);
        units += plan.rows[i].of[MICS_MEASURE_REDUCE].units;
    }
    assert_int_equal(units, 9);
    assert_int_equal(plan.rows[0].of[MICS_MEASURE_GATHER].units, 2);
    assert_int_equal(plan.rows[0].of[MICS_MEASURE_GATHER].unit_bytes, 128);
}

// Where units have the most bytes together; gathers first if they alone are chosen.
static void test_order(void **state)
{
    (void)state;
    static const int64_t elems[] = {1 << 20, 1 << 10, 1 << 18, 1 << 18, 1 << 18, 1 << 18, 1 << 18};
    static const int32_t alike[] = {1, 1, 2, 2, 0, 0}, apart[] = {1, 2, 0, 1, 2, 0};
    sizes self;
    mics_timings plan;
    measure_place places[MEASURE_PLACES];
    sizes_init(&self, 4, 2, (mics_sharding){4, 4, 4}, elems, 7);
    mics_measure_plan(&self.schedule, false, &plan);
    assert_int_equal(measure_order(&plan, true, places), 6);
    for (int i = 0; i < 6; i++) {
        assert_int_equal(places[i].row, alike[i]);
        assert_int_equal(places[i].op, i % 2);
    }
    assert_int_equal(measure_order(&plan, false, places), 6);
    for (int i = 0; i < 6; i++) {
        assert_int_equal(places[i].row, apart[i]);
        assert_int_equal(places[i].op, i / 3);
    }
}

// What was not timed takes the times of the size that is nearest by ratio.
static void test_what_follows(void **state)
{
    (void)state;
    static const size_t unit_bytes[] = {1000, 4000, 30000, 200000}, timed[] = {1000, 0, 0, 100000},
                        expected[] = {1000, 1000, 100000, 100000};
    mics_timings timings = {.row_count = 4};
    for (int i = 0; i < 4; i++) {
        mics_timing *gather = &timings.rows[i].of[MICS_MEASURE_GATHER];
        *gather = (mics_timing){
            .wanted = true, .units = 1, .unit_bytes = unit_bytes[i], .bytes = timed[i]};
        gather->us[MICS_ALGORITHM_RING] = (double)timed[i];
    }
    measure_follow(&timings);
    for (int i = 0; i < 4; i++) {
        const mics_timing *gather = &timings.rows[i].of[MICS_MEASURE_GATHER];
        assert_int_equal(gather->bytes, expected[i]);
        assert_true(gather->us[MICS_ALGORITHM_RING] == (double)expected[i]);
        assert_true(mics_measure_is_timed(gather) == (i == 0));
        assert_int_equal(timings.rows[i].of[MICS_MEASURE_REDUCE].bytes, 0);
    }
    mics_timings none = {.row_count = 1};
    none.rows[0].of[0] = (mics_timing){.wanted = true, .units = 1, .unit_bytes = 1};
    measure_follow(&none);
    assert_int_equal(none.rows[0].of[0].bytes, 0);
    assert_false(mics_measure_is_timed(&none.rows[0].of[0]));
}

static void test_nothing_to_choose(void **state)
{
    (void)state;
    static const struct {
        int32_t ranks, nodes;
        mics_sharding sharding;
        bool library;
        int32_t rows;
    } cases[] = {
        {4, 2, {2, 2, 4}, false, 0}, // groups inside nodes
        {4, 4, {4, 4, 4}, false, 0}, // one rank a node: both are one ring
        {4, 1, {4, 4, 4}, false, 0}, {4, 1, {1, 1, 4}, true, 0}, // nobody gathers
        {1, 1, {1, 1, 1}, true, 0},  {4, 1, {4, 4, 4}, true, 2}, // library or ring
        {4, 2, {2, 2, 4}, true, 2},  {4, 2, {1, 4, 4}, true, 2}, // reductions alone
        {4, 4, {4, 4, 4}, true, 0}, // the library is not trusted between nodes
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        sizes self;
        mics_timings plan;
        sizes_init(&self, cases[i].ranks, cases[i].nodes, cases[i].sharding, three_units, 3);
        mics_measure_plan(&self.schedule, cases[i].library, &plan);
        if (plan.row_count != cases[i].rows)
            fail_msg("case %d: %d rows, expected %d", (int)i, (int)plan.row_count,
                     (int)cases[i].rows);
    }
    // Units that every rank holds whole have no part in it.
    sizes self;
    mics_timings plan;
    sizes_init(&self, 4, 2, (mics_sharding){4, 4, 4}, three_units, 3);
    self.sharding[0] = (mics_sharding){1, 1, 4};
    mics_measure_plan(&self.schedule, true, &plan);
    assert_int_equal(plan.row_count, 1);
    assert_int_equal(plan.rows[0].most_bytes, 16384);
}

// Between nodes nobody counts what the library sends.
static void test_the_library_stays_inside_nodes(void **state)
{
    (void)state;
    static const struct {
        int32_t ranks, nodes;
        mics_sharding sharding;
        bool candidate;
    } cases[] = {
        {4, 1, {4, 4, 4}, true},  {8, 2, {2, 8, 8}, true},  {8, 2, {4, 8, 8}, true},
        {8, 2, {8, 8, 8}, false}, {4, 4, {2, 2, 4}, false}, {4, 1, {1, 4, 4}, false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        sizes self;
        sizes_init(&self, cases[i].ranks, cases[i].nodes, cases[i].sharding, three_units, 3);
        const bool found = mics_measure_candidate(&self.schedule, MICS_MEASURE_GATHER,
                                                  MICS_ALGORITHM_LIBRARY, true);
        if (found != cases[i].candidate)
            fail_msg("case %d: the library is %s candidate", (int)i, found ? "a" : "no");
        assert_false(mics_measure_candidate(&self.schedule, MICS_MEASURE_GATHER,
                                            MICS_ALGORITHM_LIBRARY, false));
        assert_false(mics_measure_candidate(&self.schedule, MICS_MEASURE_REDUCE,
                                            MICS_ALGORITHM_LIBRARY, true));
    }
}

// 4 ranks of a node would each send packed numbers to 4 of the other; in bf16 that is more than a
// ring of fp32 sends. 2 to 2 is less.
static void test_packed_reductions_that_send_more(void **state)
{
    (void)state;
    for (int i = 0; i < 4; i++) {
        sizes self;
        const int32_t ranks = i % 2 ? 8 : 4;
        sizes_init(&self, ranks, 2, (mics_sharding){ranks, ranks, ranks}, three_units, 3);
        self.schedule.spec.reduce_wires = mics_wires_both(i / 2 ? MICS_WIRE_BF16 : MICS_WIRE_FP32);
        assert_int_equal(
            mics_measure_candidate(&self.schedule, MICS_MEASURE_REDUCE, MICS_ALGORITHM_RING, false),
            i < 3);
        assert_true(mics_measure_candidate(&self.schedule, MICS_MEASURE_GATHER, MICS_ALGORITHM_RING,
                                           false));
    }
}

static mics_timing timing_of(double ring, double two_stage, double library)
{
    return (mics_timing){.wanted = true, .bytes = 1, .us = {ring, two_stage, library}};
}

static mics_algorithm fastest(double ring, double two_stage, double library)
{
    const mics_timing timing = timing_of(ring, two_stage, library);
    return mics_measure_fastest(&timing);
}

static void test_a_change_must_be_worth_it(void **state)
{
    (void)state;
    assert_int_equal(fastest(98, 100, 0), MICS_ALGORITHM_TWO_STAGE);
    assert_int_equal(fastest(98, 100, 97.5), MICS_ALGORITHM_TWO_STAGE);
    assert_int_equal(fastest(96, 100, 0), MICS_ALGORITHM_RING);
    assert_int_equal(fastest(96, 100, 95), MICS_ALGORITHM_LIBRARY);
    assert_int_equal(fastest(95, 100, 96), MICS_ALGORITHM_RING);
    assert_int_equal(fastest(98, 100, 90), MICS_ALGORITHM_LIBRARY);
    assert_int_equal(fastest(200, 100, 150), MICS_ALGORITHM_TWO_STAGE);
    assert_int_equal(fastest(100, 0, 98), MICS_ALGORITHM_RING); // one ring is the usual there
    assert_int_equal(fastest(100, 0, 90), MICS_ALGORITHM_LIBRARY);
    assert_int_equal(fastest(0, 0, 0), MICS_ALGORITHM_TWO_STAGE);
}

static void test_choices(void **state)
{
    (void)state;
    mics_timings timings = {.row_count = 3};
    mics_collective_choice choices[MICS_CHOICES];
    timings.rows[0].most_bytes = 1024;
    timings.rows[1].most_bytes = 4096;
    timings.rows[2].most_bytes = 65536;
    timings.rows[0].of[MICS_MEASURE_GATHER] = timing_of(50, 100, 70);
    timings.rows[1].of[MICS_MEASURE_REDUCE] = timing_of(50, 100, 0);
    timings.rows[2].of[MICS_MEASURE_GATHER] = timing_of(150, 100, 70);
    timings.rows[2].of[MICS_MEASURE_REDUCE] = timing_of(150, 100, 0);
    assert_int_equal(mics_measure_choose(&timings, true, choices), 3);
    assert_int_equal(choices[0].most_bytes, 1024);
    assert_int_equal(choices[2].most_bytes, 65536);
    static const mics_algorithm gathers[] = {MICS_ALGORITHM_RING, MICS_ALGORITHM_LIBRARY,
                                             MICS_ALGORITHM_LIBRARY};
    static const mics_algorithm reductions[] = {MICS_ALGORITHM_RING, MICS_ALGORITHM_RING,
                                                MICS_ALGORITHM_TWO_STAGE};
    for (int i = 0; i < 3; i++) {
        assert_int_equal(choices[i].gather, gathers[i]);
        assert_int_equal(choices[i].reduce, reductions[i]);
    }
    assert_int_equal(mics_measure_choose(&timings, false, choices), 3);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(choices[i].gather, gathers[i]);
        assert_int_equal(choices[i].reduce, MICS_ALGORITHM_TWO_STAGE);
    }
}

// What a node sends is what the schedule's ledger says of its ranks.
static void test_bytes_between_nodes(void **state)
{
    (void)state;
    static const mics_wire wires[] = {MICS_WIRE_FP32, MICS_WIRE_BF16};
    for (int i = 0; i < 4; i++) {
        mics_memory *memory = NULL;
        const mics_algorithm algorithm = i % 2 ? MICS_ALGORITHM_TWO_STAGE : MICS_ALGORITHM_RING;
        fixture_run run = {.want = {.ranks = 8,
                                    .nodes = 4,
                                    .sharding = {8, 8, 8},
                                    .sequences = 8,
                                    .micro_steps = 1,
                                    .gather_wires = {wires[i / 2], wires[i / 2]},
                                    .reduce_wires = {wires[i / 2], wires[i / 2]},
                                    .choices = {{SIZE_MAX, algorithm, algorithm}},
                                    .choice_count = 1}};
        assert_int_equal(mics_memory_open(&memory), MICS_OK);
        fixture_open(memory, &run);
        const mics_schedule *schedule = run.schedule;
        const mics_step_list *list = &schedule->lists[MICS_PHASE_TRAIN];
        double sent[MICS_MEASURE_OPS] = {0}, expected[MICS_MEASURE_OPS] = {0};
        for (int32_t s = 0; s < list->count; s++) {
            const mics_step *step = &list->steps[s];
            const bool gather = step->kind == MICS_STEP_GATHER;
            if (step->stream == MICS_STREAM_FAR && step->unit >= 0)
                for (int32_t rank = 0; rank < 2; rank++)
                    sent[!gather] += (double)mics_schedule_step_bytes(schedule, step, rank).inter;
            const bool last = step->stage == (gather ? MICS_STAGE_INTRA : MICS_STAGE_INTER) ||
                              step->stage == MICS_STAGE_WHOLE;
            if (last && (gather || step->kind == MICS_STEP_REDUCE))
                expected[!gather] += mics_measure_node_bytes(
                    schedule, gather ? MICS_MEASURE_GATHER : MICS_MEASURE_REDUCE, algorithm,
                    mics_wire_bytes(wires[i / 2], schedule->padded_elems[step->unit]));
        }
        for (int op = 0; op < MICS_MEASURE_OPS; op++)
            assert_true(expected[op] > 0 && sent[op] == expected[op]);
        fixture_close(&run);
        assert_int_equal(mics_memory_close(memory), 0);
    }
}

// ---- on ranks ----

// A busy machine keeps any rank from its core at any time: a time may be wrong, but not each time.
enum { RANKS = 4, ATTEMPTS = 5 };

typedef struct measuring {
    fixture_run run; // whose schedule it is
    links_spec links;
    double budget_s;
    size_t limit_bytes;
    bool reductions_too;
    const mics_timings *known; // checked, in place of measuring; NULL: measures
    bool same[RANKS];
    int32_t faulty;     // the rank that fails
    int64_t allocation; // which of its allocations fails; 0: none
    int64_t exchange;   // which of its exchanges fails; 0: none
    atomic_int errors;  // lines
    mics_timings found[RANKS];
    double took_us[RANKS];
    int64_t exchanges[RANKS];
    size_t peak_bytes[RANKS];
} measuring;

static mics_status measure(ranks_self *self)
{
    measuring *of = self->arg;
    const int32_t rank = self->comm->rank;
    const bool faulty = rank == of->faulty;
    mics_timings timings;
    mics_memory_stats stats;
    bool library = false;
    mics_comm *plain = self->comm; // beneath the planted faults; closed with what takes it
    MICS_TRY(links_open_take(self->memory, &of->links, &self->comm));
    MICS_TRY(mics_comm_fault_open_take(self->memory, self->comm, faulty ? of->exchange : 0,
                                       &self->comm));
    MICS_TRY(fixture_count(self, &of->run));
    mics_memory_fail_after(self->memory, faulty ? of->allocation : 0);
    MICS_TRY(
        mics_measure_library(self->memory, self->comm, &of->run.schedule->spec.mesh, &library));
    mics_measure_plan(of->run.schedule, library, &timings);
    const mics_measure_spec spec = {.memory = self->memory,
                                    .comm = self->comm,
                                    .schedule = of->run.schedule,
                                    .library = library,
                                    .reductions_too = of->reductions_too,
                                    .budget_s = of->budget_s,
                                    .limit_bytes = of->limit_bytes};
    const int64_t before = fixture_exchanges(self->comm);
    const double begin_us = mics_clock_us();
    mics_status status = of->known == NULL ? mics_measure_run(&spec, &timings)
                                           : mics_measure_check(&spec, of->known, &of->same[rank]);
    if (status == MICS_ERR_COMM)
        RANKS_EXPECT(mics_comm_agree(plain, MICS_OK) == MICS_ERR_PEER); // the world has ended
    MICS_TRY(status);
    of->took_us[rank] = mics_clock_us() - begin_us;
    of->exchanges[rank] = fixture_exchanges(self->comm) - before;
    mics_memory_stats_get(self->memory, &stats);
    of->peak_bytes[rank] = stats.peak[MICS_MEM_GATHER];
    of->found[rank] = timings;
    mics_memory_fail_after(self->memory, 0);
    // A rank that needed nothing more of one that failed is here too, and hears of it now.
    return mics_comm_agree(plain, MICS_OK);
}

static void measuring_open(mics_memory *memory, mics_sharding sharding, measuring *of)
{
    *of = (measuring){.run.want = {.ranks = RANKS,
                                   .nodes = 2,
                                   .sharding = sharding,
                                   .sequences = RANKS,
                                   .micro_steps = 1},
                      .links.ranks_per_node = 2,
                      .budget_s = 0.2,
                      .limit_bytes = SIZE_MAX,
                      .reductions_too = true,
                      .faulty = -1};
    fixture_open(memory, &of->run);
}

// All units of one size, and time enough for what is quick to be repeated.
static void planted_open(mics_memory *memory, mics_sharding sharding, const links_spec *planted,
                         measuring *of)
{
    measuring_open(memory, sharding, of);
    for (int32_t unit = 0; unit < of->run.model->unit_count; unit++)
        of->run.schedule->padded_elems[unit] = 4096;
    of->links = *planted;
    of->budget_s = 0.4;
}

static void check_alike(const measuring *of)
{
    for (int32_t rank = 1; rank < RANKS; rank++)
        assert_memory_equal(&of->found[rank], &of->found[0], sizeof of->found[0]);
}

static void go(measuring *of)
{
    ranks_run_ok(RANKS, measure, of);
    check_alike(of);
}

// In one ring of 4 each unit goes through three exchanges one after the other, all as slow as the
// slowest link; in two stages through one far and one near, each beside the other of the next unit.
static void test_choices_follow_planted_times(void **state)
{
    (void)state;
    static const mics_sharding over_nodes = {4, 4, 4}, in_nodes = {2, 4, 4};
    const struct {
        links_spec links;
        mics_sharding sharding;
        mics_algorithm gather, reduce;
    } cases[] = {
        // Between nodes 2 ms: three times, or once.
        {{.ranks_per_node = 2, .far_us = 2000},
         over_nodes,
         MICS_ALGORITHM_TWO_STAGE,
         MICS_ALGORITHM_TWO_STAGE},
        // The channel inside nodes is the slow one: the ring does not use it.
        {{.ranks_per_node = 2, .channel_us = {8000, 300}},
         over_nodes,
         MICS_ALGORITHM_RING,
         MICS_ALGORITHM_RING},
        // Between nodes the library is not tried, however fast it is.
        {{.ranks_per_node = 2, .far_us = 2000, .library = true},
         over_nodes,
         MICS_ALGORITHM_TWO_STAGE,
         MICS_ALGORITHM_TWO_STAGE},
        {{.ranks_per_node = 2, .channel_us = {4000, 0}, .far_us = 4000, .library = true},
         in_nodes,
         MICS_ALGORITHM_LIBRARY,
         MICS_ALGORITHM_TWO_STAGE},
        {{.ranks_per_node = 2, .far_us = 4000, .library = true, .library_us = 8000},
         in_nodes,
         MICS_ALGORITHM_RING,
         MICS_ALGORITHM_TWO_STAGE},
    };
    mics_memory *memory = NULL;
    assert_int_equal(mics_memory_open(&memory), MICS_OK);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        measuring of;
        planted_open(memory, cases[i].sharding, &cases[i].links, &of);
        const mics_timing *gather = &of.found[0].rows[0].of[MICS_MEASURE_GATHER];
        const mics_timing *reduce = &of.found[0].rows[0].of[MICS_MEASURE_REDUCE];
        const bool inside = cases[i].sharding.params == 2;
        bool right = false;
        for (int attempt = 0; !right && attempt < ATTEMPTS; attempt++) {
            go(&of);
            assert_int_equal(of.found[0].row_count, 1);
            assert_true((gather->us[MICS_ALGORITHM_LIBRARY] > 0) == inside);
            assert_true(reduce->us[MICS_ALGORITHM_LIBRARY] == 0);
            right = mics_measure_fastest(gather) == cases[i].gather &&
                    mics_measure_fastest(reduce) == cases[i].reduce;
        }
        if (!right)
            fail_msg("case %d: gathers take %g, %g, %g us, reductions %g, %g: chosen %s, %s",
                     (int)i, gather->us[0], gather->us[1], gather->us[2], reduce->us[0],
                     reduce->us[1], mics_algorithm_text(mics_measure_fastest(gather)),
                     mics_algorithm_text(mics_measure_fastest(reduce)));
        fixture_close(&of.run);
    }
    assert_int_equal(mics_memory_close(memory), 0);
}

// Stages of consecutive units overlap: with 4 ms each a unit takes about 4 ms, not 8.
static void test_stages_are_timed_in_a_pipeline(void **state)
{
    (void)state;
    const links_spec planted = {.ranks_per_node = 2, .channel_us = {4000, 4000}};
    mics_memory *memory = NULL;
    measuring of;
    assert_int_equal(mics_memory_open(&memory), MICS_OK);
    planted_open(memory, (mics_sharding){4, 4, 4}, &planted, &of);
    double us = INFINITY;
    for (int attempt = 0; us >= 7500 && attempt < ATTEMPTS; attempt++) {
        go(&of);
        us = of.found[0].rows[0].of[MICS_MEASURE_GATHER].us[MICS_ALGORITHM_TWO_STAGE];
        assert_true(us >= 3900);
    }
    if (us >= 7500)
        fail_msg("a unit takes %g us, expected about 4000", us);
    fixture_close(&of.run);
    assert_int_equal(mics_memory_close(memory), 0);
}

// A larger unit than the budget allows is timed in part, and ranks still find the same.
static void test_budget(void **state)
{
    (void)state;
    mics_memory *memory = NULL;
    measuring of;
    assert_int_equal(mics_memory_open(&memory), MICS_OK);
    measuring_open(memory, (mics_sharding){4, 4, 4}, &of);
    for (int32_t unit = 0; unit < of.run.model->unit_count; unit++)
        of.run.schedule->padded_elems[unit] = (int64_t)1 << 26; // 256 MiB
    of.links.far_us = 1000;
    of.budget_s = 0.25;
    go(&of);
    const mics_timing *gather = &of.found[0].rows[0].of[MICS_MEASURE_GATHER];
    assert_int_equal(of.found[0].row_count, 1);
    assert_true(gather->bytes >= 64 * 1024 && gather->bytes < (size_t)1 << 28);
    assert_true(gather->us[MICS_ALGORITHM_RING] > 0 && gather->us[MICS_ALGORITHM_TWO_STAGE] > 0);
    // What is asked for is a quarter of a second; a busy machine is forgiven ten times that.
    assert_true(of.took_us[0] < 2.5e6);
    fixture_close(&of.run);
    assert_int_equal(mics_memory_close(memory), 0);
}

// Units are timed as they are where there is time; what is not chosen gives way to what is.
static void test_time_goes_to_what_is_chosen(void **state)
{
    (void)state;
    mics_memory *memory = NULL;
    measuring of;
    assert_int_equal(mics_memory_open(&memory), MICS_OK);
    measuring_open(memory, (mics_sharding){4, 4, 4}, &of);
    of.run.schedule->padded_elems[0] = 3 << 17; // 1.5 MiB
    of.run.schedule->padded_elems[1] = 3 << 18;
    of.links.far_mib_us = 4000;
    of.budget_s = 5;
    go(&of);
    for (int32_t i = 0; i < of.found[0].row_count; i++) {
        for (int op = 0; op < MICS_MEASURE_OPS; op++)
            assert_true(mics_measure_is_timed(&of.found[0].rows[i].of[op]));
    }
    const int32_t last = of.found[0].row_count - 1;
    assert_int_equal(of.found[0].rows[last].of[MICS_MEASURE_GATHER].bytes, 3 << 20);
    // No time at all: one row is timed on little, the other follows from it.
    of.budget_s = 1e-3;
    of.reductions_too = false;
    go(&of);
    for (int32_t i = 0; i <= last; i++) {
        const mics_timing *gather = &of.found[0].rows[i].of[MICS_MEASURE_GATHER];
        assert_true(gather->bytes > 0 && gather->bytes < 1 << 20);
        assert_int_equal(of.found[0].rows[i].of[MICS_MEASURE_REDUCE].bytes, 0);
    }
    assert_false(mics_measure_is_timed(&of.found[0].rows[last].of[MICS_MEASURE_GATHER]));
    fixture_close(&of.run);
    assert_int_equal(mics_memory_close(memory), 0);
}

// Links that are slower or faster than they were are found out, on all ranks; in times that say
// nothing of links nothing is looked for.
static void test_other_links_are_found(void **state)
{
    (void)state;
    static const struct {
        mics_sharding sharding;
        int32_t before_us, now_us;
        bool same;
    } cases[] = {{{4, 4, 4}, 16000, 16000, true},
                 {{4, 4, 4}, 16000, 60000, false},
                 {{4, 4, 4}, 16000, 2000, false},
                 {{4, 4, 4}, 1000, 20000, true}, // too short
                 {{2, 2, 4}, 16000, 60000, true}};
    mics_memory *memory = NULL;
    assert_int_equal(mics_memory_open(&memory), MICS_OK);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const links_spec planted = {.ranks_per_node = 2, .far_us = cases[i].now_us};
        mics_timings known;
        measuring of;
        planted_open(memory, cases[i].sharding, &planted, &of);
        mics_measure_plan(of.run.schedule, true, &known);
        for (int32_t row = 0; row < known.row_count; row++) {
            for (int op = 0; op < MICS_MEASURE_OPS; op++) {
                mics_timing *timing = &known.rows[row].of[op];
                timing->bytes = timing->unit_bytes;
                timing->us[MICS_ALGORITHM_TWO_STAGE] = cases[i].before_us;
                timing->us[MICS_ALGORITHM_RING] = 3 * cases[i].before_us;
            }
        }
        of.known = &known;
        for (int attempt = 0; attempt < ATTEMPTS; attempt++) {
            ranks_run_ok(RANKS, measure, &of);
            for (int32_t rank = 1; rank < RANKS; rank++)
                assert_true(of.same[rank] == of.same[0]);
            if (of.same[0] == cases[i].same)
                break;
        }
        if (of.same[0] != cases[i].same)
            fail_msg("case %d: links are %s", (int)i, of.same[0] ? "the same" : "others");
        fixture_close(&of.run);
    }
    assert_int_equal(mics_memory_close(memory), 0);
}

static void test_memory_limit(void **state)
{
    (void)state;
    mics_memory *memory = NULL;
    measuring of;
    assert_int_equal(mics_memory_open(&memory), MICS_OK);
    measuring_open(memory, (mics_sharding){4, 4, 4}, &of);
    of.run.schedule->padded_elems[0] = (int64_t)1 << 22; // 16 MiB
    of.budget_s = 60;                                    // which does not matter
    of.limit_bytes = (size_t)1 << 20;
    go(&of);
    const int32_t last = of.found[0].row_count - 1;
    assert_int_equal(of.found[0].rows[last].most_bytes, 1 << 24);
    assert_int_equal(of.found[0].rows[last].of[MICS_MEASURE_GATHER].bytes, 1 << 19);
    for (int32_t rank = 0; rank < RANKS; rank++)
        assert_int_equal(of.peak_bytes[rank], of.limit_bytes);
    // Nothing at all: nothing is timed, and two stages stay.
    of.limit_bytes = 100;
    go(&of);
    for (int32_t row = 0; row <= last; row++) {
        for (int op = 0; op < MICS_MEASURE_OPS; op++) {
            assert_int_equal(of.found[0].rows[row].of[op].bytes, 0);
            assert_int_equal(mics_measure_fastest(&of.found[0].rows[row].of[op]),
                             MICS_ALGORITHM_TWO_STAGE);
        }
    }
    fixture_close(&of.run);
    assert_int_equal(mics_memory_close(memory), 0);
}

static void test_nothing_is_timed_where_nothing_is_chosen(void **state)
{
    (void)state;
    mics_memory *memory = NULL;
    measuring of;
    assert_int_equal(mics_memory_open(&memory), MICS_OK);
    measuring_open(memory, (mics_sharding){2, 2, 4}, &of);
    go(&of);
    assert_int_equal(of.found[0].row_count, 0);
    for (int32_t rank = 0; rank < RANKS; rank++)
        assert_int_equal(of.exchanges[rank], 0);
    fixture_close(&of.run);
    assert_int_equal(mics_memory_close(memory), 0);
}

// Packed gradients travel to each member directly.
static void test_packed_wires(void **state)
{
    (void)state;
    const links_spec planted = {.ranks_per_node = 2, .far_us = 2000};
    mics_memory *memory = NULL;
    measuring of;
    assert_int_equal(mics_memory_open(&memory), MICS_OK);
    planted_open(memory, (mics_sharding){2, 4, 4}, &planted, &of);
    of.run.schedule->spec.reduce_wires = mics_wires_both(MICS_WIRE_BF16);
    const mics_timing *reduce = &of.found[0].rows[0].of[MICS_MEASURE_REDUCE];
    mics_algorithm fastest = MICS_ALGORITHMS;
    for (int i = 0; fastest != MICS_ALGORITHM_TWO_STAGE && i < ATTEMPTS; i++) {
        go(&of);
        assert_int_equal(of.found[0].row_count, 1);
        assert_false(of.found[0].rows[0].of[MICS_MEASURE_GATHER].wanted);
        fastest = mics_measure_fastest(reduce);
    }
    assert_int_equal(fastest, MICS_ALGORITHM_TWO_STAGE);
    assert_true(reduce->us[MICS_ALGORITHM_RING] > 0);
    fixture_close(&of.run);
    assert_int_equal(mics_memory_close(memory), 0);
}

// ---- failures ----

static void count_errors(void *ctx, mics_log_level level, int32_t rank, const char *line)
{
    measuring *of = ctx;
    (void)rank;
    (void)line;
    if (level == MICS_LOG_ERROR)
        atomic_fetch_add(&of->errors, 1);
}

// True when all went well; else the faulty rank has its own status and all others hear of it.
static bool passes(measuring *of, mics_status own)
{
    mics_status statuses[RANKS];
    atomic_store(&of->errors, 0);
    mics_log_set_sink(count_errors, of);
    ranks_run_timeout(RANKS, 20, measure, of, statuses);
    mics_log_set_sink(NULL, NULL);
    int32_t good = 0;
    for (int32_t rank = 0; rank < RANKS; rank++)
        good += statuses[rank] == MICS_OK;
    if (good == RANKS)
        return true;
    for (int32_t rank = 0; rank < RANKS; rank++)
        assert_int_equal(statuses[rank], rank == of->faulty ? own : MICS_ERR_PEER);
    assert_int_equal(atomic_load(&of->errors), 1);
    return false;
}

static void test_failing_allocations(void **state)
{
    (void)state;
    mics_memory *memory = NULL;
    measuring of;
    assert_int_equal(mics_memory_open(&memory), MICS_OK);
    measuring_open(memory, (mics_sharding){4, 4, 4}, &of);
    of.links.library = true;
    of.budget_s = 1e-3;
    of.faulty = 2;
    for (of.allocation = 1; !passes(&of, MICS_ERR_MEMORY); of.allocation++)
        assert_true(of.allocation < 200);
    assert_true(of.allocation > MICS_AXES * MICS_SCOPES); // groups, buffers and the times of all
    fixture_close(&of.run);
    assert_int_equal(mics_memory_close(memory), 0);
}

// The same of checking.
static void test_failing_checks(void **state)
{
    (void)state;
    mics_memory *memory = NULL;
    measuring of;
    mics_timings known;
    assert_int_equal(mics_memory_open(&memory), MICS_OK);
    measuring_open(memory, (mics_sharding){4, 4, 4}, &of);
    mics_measure_plan(of.run.schedule, false, &known);
    known.rows[0].of[MICS_MEASURE_GATHER].bytes = 4096;
    known.rows[0].of[MICS_MEASURE_GATHER].us[MICS_ALGORITHM_TWO_STAGE] = 1e6;
    of.known = &known;
    of.faulty = 3;
    for (of.allocation = 1; !passes(&of, MICS_ERR_MEMORY); of.allocation++)
        assert_true(of.allocation < 100);
    assert_true(of.allocation > MICS_AXES * MICS_SCOPES + 4);
    of.allocation = 0;
    for (of.exchange = 1; !passes(&of, MICS_ERR_COMM); of.exchange++)
        assert_true(of.exchange < 1000);
    assert_true(of.exchange > 10);
    fixture_close(&of.run);
    assert_int_equal(mics_memory_close(memory), 0);
}

// Each ends the world once, whichever thread of the rank met it.
static void test_failing_exchanges(void **state)
{
    (void)state;
    mics_memory *memory = NULL;
    measuring of;
    assert_int_equal(mics_memory_open(&memory), MICS_OK);
    measuring_open(memory, (mics_sharding){4, 4, 4}, &of);
    of.budget_s = 1e-3;
    of.faulty = 1;
    for (of.exchange = 1; !passes(&of, MICS_ERR_COMM); of.exchange += 1 + of.exchange / 8)
        assert_true(of.exchange < 100000);
    assert_true(of.exchange > 50);
    fixture_close(&of.run);
    assert_int_equal(mics_memory_close(memory), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sizes_are_rounded_up_to_powers_of_two),
        cmocka_unit_test(test_near_sizes_are_joined),
        cmocka_unit_test(test_order),
        cmocka_unit_test(test_what_follows),
        cmocka_unit_test(test_nothing_to_choose),
        cmocka_unit_test(test_the_library_stays_inside_nodes),
        cmocka_unit_test(test_packed_reductions_that_send_more),
        cmocka_unit_test(test_a_change_must_be_worth_it),
        cmocka_unit_test(test_choices),
        cmocka_unit_test(test_bytes_between_nodes),
        cmocka_unit_test(test_choices_follow_planted_times),
        cmocka_unit_test(test_stages_are_timed_in_a_pipeline),
        cmocka_unit_test(test_budget),
        cmocka_unit_test(test_time_goes_to_what_is_chosen),
        cmocka_unit_test(test_other_links_are_found),
        cmocka_unit_test(test_memory_limit),
        cmocka_unit_test(test_nothing_is_timed_where_nothing_is_chosen),
        cmocka_unit_test(test_packed_wires),
        cmocka_unit_test(test_failing_allocations),
        cmocka_unit_test(test_failing_exchanges),
        cmocka_unit_test(test_failing_checks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
