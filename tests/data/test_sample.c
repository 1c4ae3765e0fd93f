// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// The order of samples: every epoch visits every window once, whatever the mesh.
#include "data/scratch.h"
#include "mics/data.h"

enum { TOKENS = 1000, SEQUENCE = 8 };

static mics_memory *memory;

static int setup(void **state)
{
    (void)state;
    return mics_memory_open(&memory) == MICS_OK ? 0 : 1;
}

static int teardown(void **state)
{
    (void)state;
    return mics_memory_close(memory) == 0 ? 0 : 1;
}

// Token i of the corpus is i.
static mics_corpus *open_counting(int32_t tokens)
{
    int32_t stream[TOKENS];
    mics_corpus *corpus = NULL;
    for (int32_t i = 0; i < tokens; i++)
        stream[i] = i;
    ASSERT_OK(mics_shard_write(files_path("count.bin"), stream, tokens, tokens));
    const char *path = files_path("count.bin");
    ASSERT_OK(mics_corpus_open(memory, &path, 1, NULL, tokens, NULL, &corpus));
    return corpus;
}

static void test_count(void **state)
{
    (void)state;
    assert_int_equal(mics_sample_count(0, 4), 0);
    assert_int_equal(mics_sample_count(1, 4), 0);
    assert_int_equal(mics_sample_count(4, 4), 0);
    assert_int_equal(mics_sample_count(5, 4), 1);
    assert_int_equal(mics_sample_count(8, 4), 1);
    assert_int_equal(mics_sample_count(9, 4), 2);
    assert_int_equal(mics_sample_count(INT64_MAX, 1), INT64_MAX - 1);
}

static void test_epochs_are_permutations(void **state)
{
    (void)state;
    static const int64_t sizes[] = {1, 2, 3, 7, 64, 65, 1000};
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        for (int64_t epoch = 0; epoch < 3; epoch++) {
            char visited[1000] = {0};
            for (int64_t i = 0; i < sizes[s]; i++) {
                int64_t begin = mics_sample_begin(9, sizes[s], 5, epoch * sizes[s] + i);
                assert_int_equal(begin % 5, 0);
                assert_in_range(begin / 5, 0, sizes[s] - 1);
                assert_int_equal(visited[begin / 5]++, 0);
            }
        }
    }
}

static void test_orders_differ(void **state)
{
    (void)state;
    int same_epoch = 0, same_seed = 0;
    for (int64_t i = 0; i < 1000; i++) {
        int64_t begin = mics_sample_begin(9, 1000, 1, i);
        same_epoch += begin == mics_sample_begin(9, 1000, 1, 1000 + i);
        same_seed += begin == mics_sample_begin(10, 1000, 1, i);
    }
    assert_in_range(same_epoch, 0, 10); // one in expectation
    assert_in_range(same_seed, 0, 10);
}

static void test_targets_follow_inputs(void **state)
{
    (void)state;
    mics_corpus *corpus = open_counting(TOKENS);
    int64_t windows = mics_sample_count(TOKENS, SEQUENCE);
    int32_t inputs[4 * SEQUENCE], targets[4 * SEQUENCE];
    for (int64_t first = 0; first < 2 * windows; first += 3) {
        mics_sample_read(corpus, 5, SEQUENCE, first, 4, inputs, targets);
        for (int64_t i = 0; i < 4 * SEQUENCE; i++) {
            int64_t begin = mics_sample_begin(5, windows, SEQUENCE, first + i / SEQUENCE);
            assert_int_equal(inputs[i], begin + i % SEQUENCE);
            assert_int_equal(targets[i], inputs[i] + 1);
        }
    }
    mics_corpus_close(corpus);
}

// A global batch of 12 read by 1, 2, 3, 4, 6 or 12 ranks is the same batch.
static void test_any_mesh_reads_the_same(void **state)
{
    (void)state;
    enum { BATCH = 12 };
    mics_corpus *corpus = open_counting(300);
    int32_t whole[2][BATCH * SEQUENCE], parts[2][BATCH * SEQUENCE];
    for (int64_t step = 0; step < 10; step++) {
        mics_sample_read(corpus, 1, SEQUENCE, step * BATCH, BATCH, whole[0], whole[1]);
        for (int64_t ranks = 1; ranks <= BATCH; ranks++) {
            int64_t share = BATCH / ranks;
            if (share * ranks != BATCH)
                continue;
            for (int64_t rank = 0; rank < ranks; rank++)
                mics_sample_read(corpus, 1, SEQUENCE, step * BATCH + rank * share, share,
                                 parts[0] + rank * share * SEQUENCE,
                                 parts[1] + rank * share * SEQUENCE);
            assert_memory_equal(parts, whole, sizeof whole);
        }
    }
    mics_corpus_close(corpus);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_count, setup, teardown),
        cmocka_unit_test_setup_teardown(test_epochs_are_permutations, setup, teardown),
        cmocka_unit_test_setup_teardown(test_orders_differ, setup, teardown),
        cmocka_unit_test_setup_teardown(test_targets_follow_inputs, setup, teardown),
        cmocka_unit_test_setup_teardown(test_any_mesh_reads_the_same, setup, teardown),
    };
    if (files_open() != 0)
        return 1;
    int failures = cmocka_run_group_tests(tests, NULL, NULL);
    files_close();
    return failures;
}
