// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// What 2-hop synchronisation is for: with parameter groups inside nodes, nothing but the second hop
// and the agreement crosses between nodes, once a step, however many micro-steps it has. Bytes are
// those that were sent.
#include "fixture.h"

// The fixture's model in bytes: each tensor on 16 floats, each unit on 16 * 4 ranks (embedding,
// two layers, head).
enum { MODEL_BYTES = 4 * (640 + 2 * 1920 + 64) };

// Each of 4 ranks sends its 128 bytes to its partner on the other node.
enum { AGREE_INTER_BYTES = 4 * 128 };

static mics_bytes sent_in_a_step(mics_sharding sharding, int32_t micro_steps)
{
    fixture_run run = {.want = {.ranks = 4,
                                .nodes = 2,
                                .sharding = sharding,
                                .sequences = 4 * micro_steps,
                                .micro_steps = micro_steps,
                                .steps = 2,
                                .prefetch = 1}};
    fixture_go(&run);
    mics_bytes sum = {0, 0};
    for (int32_t rank = 0; rank < 4; rank++) {
        sum.intra += run.results[rank].sent.intra;
        sum.inter += run.results[rank].sent.inter;
    }
    return sum;
}

static const int32_t micro_steps[] = {1, 2, 5};

static void test_only_the_second_hop_crosses(void **state)
{
    (void)state;
    // mics(2): each half of the model is all-reduced by two pairs of ranks, half of it each way in
    // each of two stages. mics+(2): it is reduce-scattered, and gathered when it is updated.
    static const mics_sharding shardings[] = {{2, 2, 2}, {2, 2, 4}};
    for (int i = 0; i < 2; i++) {
        int64_t intra = 0;
        for (int s = 0; s < 3; s++) {
            const mics_bytes sent = sent_in_a_step(shardings[i], micro_steps[s]);
            assert_int_equal(sent.inter, 2 * MODEL_BYTES + AGREE_INTER_BYTES);
            assert_true(sent.intra > intra); // inside nodes they grow
            intra = sent.intra;
        }
    }
}

// Without groups each micro-step crosses.
static void test_zero3_crosses_in_each_micro_step(void **state)
{
    (void)state;
    const int64_t one = sent_in_a_step((mics_sharding){4, 4, 4}, 1).inter - AGREE_INTER_BYTES;
    for (int s = 1; s < 3; s++) {
        const int64_t many =
            sent_in_a_step((mics_sharding){4, 4, 4}, micro_steps[s]).inter - AGREE_INTER_BYTES;
        assert_int_equal(many, micro_steps[s] * one);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_only_the_second_hop_crosses),
        cmocka_unit_test(test_zero3_crosses_in_each_micro_step),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
