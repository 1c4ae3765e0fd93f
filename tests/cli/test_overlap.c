// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// The sums of a step: busy streams, what nothing hides, and the ideal, on lists made by hand.
#include "../../src/cli/overlap.h"
#include "test.h"

#define C MICS_STREAM_COMPUTE
#define N MICS_STREAM_NEAR
#define F MICS_STREAM_FAR

enum { MOST = 32 };

typedef struct row {
    mics_step_kind kind;
    mics_stream stream;
    int32_t wait[MICS_STREAMS];
    double took;
} row;

static cli_overlap sum(const row *rows, int32_t count)
{
    static mics_step steps[MOST];
    double took[MOST], scratch[MOST];
    cli_overlap overlap;
    assert_true(count <= MOST);
    for (int32_t i = 0; i < count; i++) {
        steps[i] = (mics_step){.kind = rows[i].kind, .stream = rows[i].stream};
        for (int stream = 0; stream < MICS_STREAMS; stream++)
            steps[i].wait[stream] = rows[i].wait[stream];
        took[i] = rows[i].took;
        scratch[i] = 1e9; // whatever stood there
    }
    cli_overlap_sum(&(mics_step_list){steps, count}, took, scratch, &overlap);
    return overlap;
}

// Two units over two nodes: the gather of the first in two stages, one micro-step, second hop.
static void test_two_units(void **state)
{
    (void)state;
    static const row rows[] = {
        {MICS_STEP_PUBLISH, F, {-1, -1, -1}, 1},        // 0
        {MICS_STEP_GATHER_ACROSS, F, {-1, -1, -1}, 10}, // 1
        {MICS_STEP_GATHER, N, {-1, -1, 1}, 4},          // 2
        {MICS_STEP_GATHER_ACROSS, F, {-1, -1, -1}, 10}, // 3
        {MICS_STEP_GATHER, N, {-1, -1, 3}, 4},          // 4
        {MICS_STEP_FORWARD, C, {-1, 2, 0}, 20},         // 5
        {MICS_STEP_BACKWARD, C, {-1, 4, -1}, 30},       // 6
        {MICS_STEP_REDUCE_INSIDE, N, {6, -1, -1}, 50},  // 7: of the unit before the last
        {MICS_STEP_BACKWARD, C, {-1, -1, -1}, 30},      // 8
        {MICS_STEP_REDUCE_INSIDE, N, {8, -1, -1}, 3},   // 9
        {MICS_STEP_REDUCE, F, {-1, 9, -1}, 5},          // 10
        {MICS_STEP_ALL_REDUCE, F, {-1, 7, -1}, 70},     // 11: does not need the last backward
        {MICS_STEP_ALL_REDUCE, F, {-1, -1, 10}, 7},     // 12: nor is this, on its own stream
        {MICS_STEP_SCATTER, N, {-1, -1, 10}, 2},        // 13
        {MICS_STEP_NORM, C, {-1, 13, 12}, 6},           // 14
        {MICS_STEP_AGREE, F, {14, -1, -1}, 9},          // 15
        {MICS_STEP_UPDATE, C, {-1, -1, 15}, 8},         // 16
    };
    const cli_overlap overlap = sum(rows, sizeof rows / sizeof *rows);
    assert_true(overlap.busy[C] == 94);
    assert_true(overlap.busy[N] == 63);
    assert_true(overlap.busy[F] == 112);
    assert_true(overlap.first_gather == 14); // both stages; the publication is shorter
    assert_true(overlap.last_reduce == 3 + 5 + 7);
    assert_true(overlap.ideal == 112 + 14 + 15);
}

static void test_no_communication(void **state)
{
    (void)state;
    static const row rows[] = {
        {MICS_STEP_FORWARD, C, {-1, -1, -1}, 1},
        {MICS_STEP_BACKWARD, C, {-1, -1, -1}, 2},
        {MICS_STEP_UPDATE, C, {-1, -1, -1}, 4},
    };
    const cli_overlap overlap = sum(rows, 3);
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
    const cli_exposed exposed = cli_exposed_sum(exposed_us);
    assert_true(exposed.gather == (1 << MICS_STEP_PUBLISH_ACROSS) + (1 << MICS_STEP_PUBLISH) +
                                      (1 << MICS_STEP_GATHER_ACROSS) + (1 << MICS_STEP_GATHER));
    assert_true(exposed.reduce == (1 << MICS_STEP_REDUCE_INSIDE) + (1 << MICS_STEP_REDUCE));
    assert_true(exposed.second_hop == (1 << MICS_STEP_SCATTER_INSIDE) + (1 << MICS_STEP_SCATTER) +
                                          (1 << MICS_STEP_ALL_REDUCE_INSIDE) +
                                          (1 << MICS_STEP_ALL_REDUCE) +
                                          (1 << MICS_STEP_ALL_REDUCE_BACK));
    assert_true(exposed.agree == 1 << MICS_STEP_AGREE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_two_units),
        cmocka_unit_test(test_no_communication),
        cmocka_unit_test(test_exposed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
