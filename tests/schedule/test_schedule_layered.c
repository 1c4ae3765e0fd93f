// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// How many micro-batches are in flight where nobody says it.
#include "mics/core/schedule.h"
#include "schedule/layered.h"
#include "schedule/models.h"
#include "test.h"
#include <string.h>

static void test_rule(void **state)
{
    (void)state;
    static const struct {
        mics_layered_need need;
        int32_t number;
        const char *why;
    } rows[] = {
        // Nothing to gain.
        {{4, false, false, 1000, 1}, 1, "nothing is sent between nodes"},
        {{1, true, false, 1000, 1}, 1, "there is one micro-step"},
        // The bound: additional memory up to the state and one, and not a byte more.
        {{4, true, false, 200, 100}, 4, "all"},
        {{4, true, false, 199, 100}, 2, "as many as at most"}, // 3 would be groups of 2 and 2
        {{4, true, false, 0, 100}, 2, "as many as at most"},
        {{7, true, false, 200, 100}, 4, "as many as at most"}, // 4 and 3
        {{4, true, false, 0, 0}, 2, "as many as at most"},
        {{5000, true, false, SIZE_MAX, 1}, 1000, "as many as at most"},
        // Sums of 16 bits.
        {{64, true, true, 1000, 1}, 8, "16 bits"},
        {{64, true, false, 1000, 1}, 64, "all"},
        {{64, true, true, 200, 100}, 4, "as many as at most"},
        {{8, true, true, 1000, 1}, 8, "all"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const char *why = NULL;
        const int32_t number = mics_layered_auto(&rows[i].need, &why);
        if (number != rows[i].number || strstr(why, rows[i].why) == NULL)
            fail_msg("row %d: %d (%s), expected %d (%s)", (int)i, (int)number, why,
                     (int)rows[i].number, rows[i].why);
    }
}

static const mics_sharding shardings[] = {{1, 1, 1}, {1, 1, 8}, {2, 2, 2}, {2, 4, 8}, {8, 8, 8}};

static mics_schedule *open_with(mics_memory *memory, const mics_model *model, size_t way,
                                int32_t layered, int32_t threads)
{
    mics_schedule_spec spec = {
        .model = model,
        .batch = {.sequences = 2, .length = 8, .threads = threads},
        .micro_steps = 6,
        .prefetch = threads % 3,
        .layered_micro_steps = layered,
        .share_params = threads % 2 == 1,
        .precision = way % 2 == 0 ? MICS_PRECISION_FP32 : MICS_PRECISION_MIXED,
    };
    mics_schedule *schedule = NULL;
    ASSERT_OK(mics_mesh_init(8, 4, shardings[way / 2], &spec.mesh));
    ASSERT_OK(mics_schedule_open(memory, &spec, &schedule));
    return schedule;
}

// What it rests on: each further one takes what is said, whatever the machine, and the state is all
// that the ledger has of it.
static void test_need(void **state)
{
    (void)state;
    mics_memory *memory = NULL;
    ASSERT_OK(mics_memory_open(&memory));
    mics_model *model = model_gpt2(memory, 2, true);
    for (size_t way = 0; way < 2 * (sizeof shardings / sizeof *shardings); way++) {
        mics_schedule *one = open_with(memory, model, way, 1, 1),
                      *three = open_with(memory, model, way, 3, 4);
        const mics_layered_need a = mics_schedule_layered_need(one),
                                b = mics_schedule_layered_need(three);
        size_t more = 0;
        assert_int_equal(a.micro_steps, 6);
        assert_true(a.crosses_nodes);
        assert_int_equal(a.rounds, way % 2 == 1 && shardings[way / 2].grads > 1);
        assert_true(a.each_bytes > 0 && a.each_bytes == b.each_bytes);
        assert_true(a.state_bytes > 0 && a.state_bytes == b.state_bytes);
        for (int tag = 0; tag < MICS_MEM_TAGS; tag++) {
            if (tag == MICS_MEM_ACTIVATIONS || tag == MICS_MEM_DATA || tag == MICS_MEM_REDUCE)
                more += three->ledger.bytes[tag] - one->ledger.bytes[tag];
        }
        if (more + 3 * MICS_ALIGNMENT < 2 * a.each_bytes ||
            more > 2 * a.each_bytes + 3 * MICS_ALIGNMENT)
            fail_msg("way %d: two more take %zu bytes, each is %zu", (int)way, more, a.each_bytes);
        mics_schedule_close(one);
        mics_schedule_close(three);
    }
    mics_model_close(model);
    assert_int_equal(mics_memory_close(memory), 0);
}

// A tied embedding's gradient is written by two units; without tying, by one.
static void test_stops(void **state)
{
    (void)state;
    mics_memory *memory = NULL;
    ASSERT_OK(mics_memory_open(&memory));
    for (int tied = 0; tied < 2; tied++) {
        mics_model *model = model_gpt2(memory, 2, tied == 1);
        for (int32_t u = 0; u < model->unit_count; u++)
            assert_int_equal(mics_layered_holds(model, u), tied == 1 && u == 0);
        for (size_t way = 0; way < 4; way++) { // fp32 and bf16, with G = 1 and then 8
            mics_schedule *schedule = open_with(memory, model, way < 2 ? way : 6 + way, 1, 1);
            const size_t elems = (size_t)schedule->padded_elems[0];
            const size_t held = tied == 1 && way == 1 ? 2 * elems : 0;
            const size_t rest = (size_t)schedule->in_flight_elems * (way % 2 == 1 ? 2 : 4) +
                                (size_t)schedule->data_elems * sizeof(int32_t);
            assert_int_equal(mics_schedule_layered_need(schedule).each_bytes, rest + held);
            mics_schedule_close(schedule);
        }
        mics_model_close(model);
    }
    assert_int_equal(mics_memory_close(memory), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rule),
        cmocka_unit_test(test_need),
        cmocka_unit_test(test_stops),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
