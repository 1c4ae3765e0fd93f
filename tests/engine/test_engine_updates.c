// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// How often a step calls its optimizer: once for all tensors of a rank's part of a unit, or a few
// times where more of them than a call takes differ in decay.
#include "fixture.h"
#include "ops/kernels.h"
#include <stdatomic.h>

enum { STEPS = FIXTURE_STEPS_RUN < 2 ? FIXTURE_STEPS_RUN : 2 };

static const char gpt2[] =
    "{\"model_type\": \"gpt2\", \"n_layer\": 3, \"n_head\": 3, \"n_embd\": 12, "
    "\"n_positions\": 19, \"vocab_size\": 29, \"tie_word_embeddings\": %s}";

static atomic_llong calls, joined;

static void count_update(const mics_exec *at, const mics_optimizer_update *update)
{
    atomic_fetch_add(&calls, 1);
    atomic_fetch_add(&joined, update->flip_count);
    mics_kernels_get(NULL)->update[MICS_OPTIMIZER_ADAMW](at, update);
}

static void check(int32_t ranks, mics_sharding sharding)
{
    mics_kernels counting = *mics_kernels_get(NULL);
    counting.update[MICS_OPTIMIZER_ADAMW] = count_update;
    fixture_run run = {.want = {.config = gpt2,
                                .ranks = ranks,
                                .nodes = 1,
                                .sharding = sharding,
                                .sequences = 8,
                                .micro_steps = 1,
                                .steps = STEPS,
                                .prefetch = 1,
                                .kernels = &counting,
                                .clip = 0.5f}};
    mics_memory *memory = NULL;
    ASSERT_OK(mics_memory_open(&memory));
    fixture_open(memory, &run);
    const int64_t units = run.model->unit_count;
    fixture_close(&run);
    assert_int_equal(mics_memory_close(memory), 0);
    atomic_store(&calls, 0);
    atomic_store(&joined, 0);
    fixture_go(&run);
    // Of a small unit the last ranks may hold padding alone.
    assert_in_range(atomic_load(&calls), STEPS, STEPS * ranks * units);
    if (sharding.optimizer == 1)
        assert_int_equal(atomic_load(&calls), STEPS * ranks * units);
    assert_true(atomic_load(&joined) > 0);
}

static void test_once_a_unit(void **state)
{
    (void)state;
    check(1, (mics_sharding){1, 1, 1});
    check(2, (mics_sharding){1, 1, 1});
    check(4, (mics_sharding){2, 2, 4});
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_once_a_unit)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
