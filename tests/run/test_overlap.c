// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// The sums of a step: busy streams, what nothing hides, and the ideal, on lists made by hand; and
// that no order of a schedule's collectives beats the ideal.
#include "base/rng.h"
#include "run/report/overlap.h"
#include "schedule/models.h"
#include <math.h>

#define C MICS_STREAM_COMPUTE
#define N MICS_STREAM_INTRA
#define F MICS_STREAM_INTER

enum { MOST = 32 };

typedef struct row {
    mics_step_kind kind;
    mics_stream stream;
    int32_t wait[MICS_STREAM_COPY];
    double took;
} row;

static run_overlap sum(const row *rows, int32_t count)
{
    static mics_step steps[MOST];
    double took[MOST];
    run_chain scratch[MOST];
    run_overlap overlap;
    assert_true(count <= MOST);
    for (int32_t i = 0; i < count; i++) {
        steps[i] = (mics_step){.kind = rows[i].kind, .stream = rows[i].stream};
        for (int stream = 0; stream < MICS_STREAMS; stream++)
            steps[i].wait[stream] = stream < MICS_STREAM_COPY ? rows[i].wait[stream] : -1;
        took[i] = rows[i].took;
        scratch[i] = (run_chain){1e9, 1e9, 3, {1e9}, {-1e9}}; // whatever stood there
    }
    run_overlap_sum(&(mics_step_list){steps, count}, took, scratch, &overlap);
    return overlap;
}

// Two units over two nodes: the gather of the first in two stages, one micro-step, second hop.
static void test_two_units(void **state)
{
    (void)state;
    static const row rows[] = {
        {MICS_STEP_PARAM_SYNC, F, {-1, -1, -1}, 1},      // 0
        {MICS_STEP_GATHER, F, {-1, -1, -1}, 10},         // 1
        {MICS_STEP_GATHER, N, {-1, -1, 1}, 4},           // 2
        {MICS_STEP_GATHER, F, {-1, -1, -1}, 10},         // 3
        {MICS_STEP_GATHER, N, {-1, -1, 3}, 4},           // 4
        {MICS_STEP_FORWARD, C, {-1, 2, 0}, 20},          // 5
        {MICS_STEP_BACKWARD, C, {-1, 4, -1}, 30},        // 6
        {MICS_STEP_REDUCE, N, {6, -1, -1}, 50},          // 7: of the unit before the last
        {MICS_STEP_BACKWARD, C, {-1, -1, -1}, 30},       // 8
        {MICS_STEP_REDUCE, N, {8, -1, -1}, 3},           // 9
        {MICS_STEP_REDUCE, F, {-1, 9, -1}, 5},           // 10
        {MICS_STEP_REPLICA_SCATTER, F, {-1, 7, -1}, 70}, // 11: does not need the last backward
        {MICS_STEP_REPLICA_SCATTER, F, {-1, -1, 10}, 7}, // 12: nor is this, on its own stream
        {MICS_STEP_SCATTER, N, {-1, -1, 10}, 2},         // 13
        {MICS_STEP_NORM, C, {-1, 13, 12}, 6},            // 14
        {MICS_STEP_AGREE, F, {14, -1, -1}, 9},           // 15
        {MICS_STEP_UPDATE, C, {-1, -1, 15}, 8},          // 16
    };
    const run_overlap overlap = sum(rows, sizeof rows / sizeof *rows);
    assert_true(overlap.busy[C] == 94);
    assert_true(overlap.busy[N] == 63);
    assert_true(overlap.busy[F] == 112);
    assert_true(overlap.first_gather == 14); // both stages; the publication is shorter
    assert_true(overlap.last_reduce == 3 + 5 + 7);
    // Both stages, computation, the reduction inside and its all-reduce: 114. The other two
    // collectives between nodes can be before that, so norm, agreement and update follow.
    assert_true(overlap.ideal == 14 + 20 + 30 + 50 + 70 + 6 + 9 + 8);
}

// A second hop that only the last of the micro-steps allows: its stream from there on decides,
// whatever is before it on that stream.
static void test_second_hop(void **state)
{
    (void)state;
    static const row rows[] = {
        {MICS_STEP_FORWARD, C, {-1, -1, -1}, 10},        // 0
        {MICS_STEP_BACKWARD, C, {-1, -1, -1}, 20},       // 1
        {MICS_STEP_FORWARD, C, {-1, -1, -1}, 10},        // 2
        {MICS_STEP_BACKWARD, C, {-1, -1, -1}, 20},       // 3
        {MICS_STEP_REPLICA_SCATTER, F, {3, -1, -1}, 40}, // 4
        {MICS_STEP_BACKWARD, C, {-1, -1, -1}, 5},        // 5
        {MICS_STEP_REPLICA_SCATTER, F, {5, -1, -1}, 40}, // 6
        {MICS_STEP_NORM, C, {-1, -1, 6}, 1},             // 7
        {MICS_STEP_AGREE, F, {7, -1, -1}, 2},            // 8
        {MICS_STEP_UPDATE, C, {-1, -1, 8}, 3},           // 9
    };
    const run_overlap overlap = sum(rows, sizeof rows / sizeof *rows);
    assert_true(overlap.busy[C] == 69 && overlap.busy[F] == 82);
    assert_true(overlap.ideal == 60 + 40 + 40 + 1 + 2 + 3);
}

// What is published on one stream, unit after unit, holds up the computation of the last.
static void test_publication(void **state)
{
    (void)state;
    static const row rows[] = {
        {MICS_STEP_PARAM_SYNC, F, {-1, -1, -1}, 30}, // 0
        {MICS_STEP_PARAM_SYNC, F, {-1, -1, -1}, 30}, // 1
        {MICS_STEP_PARAM_SYNC, F, {-1, -1, -1}, 30}, // 2
        {MICS_STEP_FORWARD, C, {-1, -1, 0}, 10},     // 3
        {MICS_STEP_FORWARD, C, {-1, -1, 1}, 10},     // 4
        {MICS_STEP_FORWARD, C, {-1, -1, 2}, 10},     // 5
        {MICS_STEP_BACKWARD, C, {-1, -1, -1}, 60},   // 6
        {MICS_STEP_UPDATE, C, {-1, -1, -1}, 1},      // 7
    };
    assert_true(sum(rows, sizeof rows / sizeof *rows).ideal == 90 + 10 + 60 + 1);
}

// ---- schedules ----

enum { MOST_ENTRIES = 1024 };

static bool waits_are_done(const mics_step_list *list, int32_t entry, const double *ends)
{
    const mics_step *step = &list->steps[entry];
    for (int stream = 0; stream < MICS_STREAMS; stream++) {
        if (step->wait[stream] >= 0 && ends[step->wait[stream]] < 0)
            return false;
    }
    for (int32_t other = 0; other < entry; other++) {
        const bool before = !mics_step_is_comm(step) && (step->kind == MICS_STEP_NORM ||
                                                         !mics_step_is_comm(&list->steps[other]));
        if (before && ends[other] < 0)
            return false;
    }
    return true;
}

// Runs the list with collectives in an order by chance, one at a time on each stream.
static double run_by_chance(const mics_step_list *list, const double *took, uint64_t seed)
{
    double ends[MOST_ENTRIES], free_at[MICS_STREAMS] = {0}, last = 0;
    for (int32_t i = 0; i < list->count; i++)
        ends[i] = -1;
    for (int32_t done = 0; done < list->count; done++) {
        int32_t ready[MOST_ENTRIES], count = 0;
        for (int32_t i = 0; i < list->count; i++) {
            if (ends[i] < 0 && waits_are_done(list, i, ends))
                ready[count++] = i;
        }
        assert_true(count > 0);
        const int32_t entry = ready[mics_rng_bits(seed, 1, (uint64_t)done) % (uint64_t)count];
        const mics_step *step = &list->steps[entry];
        double begin = free_at[step->stream];
        for (int stream = 0; stream < MICS_STREAMS; stream++) {
            if (step->wait[stream] >= 0)
                begin = fmax(begin, ends[step->wait[stream]]);
        }
        for (int32_t other = 0; step->kind == MICS_STEP_NORM && other < entry; other++)
            begin = fmax(begin, ends[other]);
        ends[entry] = free_at[step->stream] = begin + took[entry];
        last = fmax(last, ends[entry]);
    }
    return last;
}

// In the list's own order.
static double run_as_listed(const mics_step_list *list, const double *took)
{
    double ends[MOST_ENTRIES], free_at[MICS_STREAMS] = {0}, last = 0;
    for (int32_t i = 0; i < list->count; i++) {
        const mics_step *step = &list->steps[i];
        double begin = free_at[step->stream];
        for (int stream = 0; stream < MICS_STREAMS; stream++) {
            if (step->wait[stream] >= 0)
                begin = fmax(begin, ends[step->wait[stream]]);
        }
        ends[i] = free_at[step->stream] = begin + took[i];
        last = fmax(last, ends[i]);
    }
    return last;
}

static void check_schedule(const mics_schedule *schedule)
{
    static run_chain scratch[MOST_ENTRIES];
    const mics_step_list *list = &schedule->lists[MICS_PHASE_TRAIN];
    double took[MOST_ENTRIES];
    assert_true(list->count <= MOST_ENTRIES);
    for (uint64_t seed = 0; seed < 12; seed++) {
        run_overlap overlap;
        double least = 0;
        for (int32_t i = 0; i < list->count;
             i++) // by turns computation, or a stream, is the slowest
            took[i] = mics_rng_uniform(seed, 0, (uint64_t)i) *
                      (list->steps[i].stream == (mics_stream)(seed % MICS_STREAMS) ? 5 : 1);
        run_overlap_sum(list, took, scratch, &overlap);
        for (int stream = 0; stream < MICS_STREAMS; stream++)
            least = fmax(least, overlap.busy[stream]);
        assert_true(overlap.ideal >= least * (1 - 1e-12));
        assert_true(overlap.ideal <= run_as_listed(list, took) * (1 + 1e-12));
        assert_true(overlap.ideal <= run_by_chance(list, took, seed) * (1 + 1e-12));
    }
}

static void test_no_order_beats_it(void **state)
{
    (void)state;
    static const struct {
        int32_t ranks, per_node;
        mics_sharding sharding;
    } cases[] = {
        {2, 1, {1, 1, 1}}, {4, 2, {1, 1, 4}}, {4, 2, {1, 4, 4}}, {4, 2, {4, 4, 4}},
        {4, 2, {2, 2, 2}}, {4, 2, {2, 2, 4}}, {4, 2, {2, 4, 4}}, {8, 4, {2, 2, 2}},
        {8, 4, {2, 2, 8}}, {1, 1, {1, 1, 1}},
    };
    mics_memory *memory = NULL;
    ASSERT_OK(mics_memory_open(&memory));
    mics_model *model = model_gpt2(memory, 3, true);
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        mics_schedule *schedule = NULL;
        mics_schedule_spec spec = {
            .model = model,
            .batch = {.sequences = 1, .length = 8, .threads = 1},
            .micro_steps = 2,
            .prefetch = (int32_t)(c % 3),
            .gather = MICS_ALGORITHM_TWO_STAGE,
            .reduce = MICS_ALGORITHM_TWO_STAGE,
            .boundary = MICS_ALGORITHM_TWO_STAGE,
        };
        ASSERT_OK(mics_mesh_init(cases[c].ranks, cases[c].per_node, cases[c].sharding, &spec.mesh));
        ASSERT_OK(mics_schedule_open(memory, &spec, &schedule));
        check_schedule(schedule);
        mics_schedule_close(schedule);
    }
    mics_model_close(model);
    assert_int_equal(mics_memory_close(memory), 0);
}

static void test_no_communication(void **state)
{
    (void)state;
    static const row rows[] = {
        {MICS_STEP_FORWARD, C, {-1, -1, -1}, 1},
        {MICS_STEP_BACKWARD, C, {-1, -1, -1}, 2},
        {MICS_STEP_UPDATE, C, {-1, -1, -1}, 4},
    };
    const run_overlap overlap = sum(rows, 3);
    assert_true(overlap.first_gather == 0 && overlap.last_reduce == 0);
    assert_true(overlap.ideal == 7);
    assert_true(sum(rows, 1).ideal == 1); // no backward
    assert_true(sum(rows, 0).ideal == 0);
}

static void test_exposed(void **state)
{
    (void)state;
    double exposed_us[MICS_STEP_KINDS];
    for (int kind = 0; kind < MICS_STEP_KINDS; kind++)
        exposed_us[kind] = 1 << kind;
    const run_exposed exposed = run_exposed_sum(exposed_us);
    assert_true(exposed.gather == (1 << MICS_STEP_SIZES) + (1 << MICS_STEP_PARAM_SYNC) +
                                      (1 << MICS_STEP_MOMENTUM_TO_OWNERS) +
                                      (1 << MICS_STEP_MOMENTUM_BACK) + (1 << MICS_STEP_GATHER));
    assert_true(exposed.reduce == 1 << MICS_STEP_REDUCE);
    assert_true(exposed.second_hop == (1 << MICS_STEP_SCATTER) + (1 << MICS_STEP_REPLICA_SCATTER) +
                                          (1 << MICS_STEP_REPLICA_GATHER));
    assert_true(exposed.agree == 1 << MICS_STEP_AGREE);
    assert_true(exposed.meeting == (1 << MICS_STEP_AGREE_WORLD) + (1 << MICS_STEP_MEET_SCATTER) +
                                       (1 << MICS_STEP_MEET_GATHER) + (1 << MICS_STEP_MEET_SPREAD));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_two_units),        cmocka_unit_test(test_second_hop),
        cmocka_unit_test(test_publication),      cmocka_unit_test(test_no_order_beats_it),
        cmocka_unit_test(test_no_communication), cmocka_unit_test(test_exposed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
