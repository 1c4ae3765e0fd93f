// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Batch sizes and shardings for a number of ranks.
#include "config/run_file.h"

// A resolution: what the file says, and what becomes of it on ranks x nodes.
typedef struct batch_case {
    const char *text; // members of the run file
    int32_t ranks;
    int64_t train, micro, steps; // train 0: refused
    const char *part;
} batch_case;

static void check_batch(const batch_case *one)
{
    char text[1024];
    snprintf(text, sizeof text, "{%s%s}", RUN_BASE, one->text);
    mics_run *run = load_good(text);
    mics_status status = mics_run_resolve(run, one->ranks, 1);
    if (one->train == 0) {
        assert_int_equal(status, MICS_ERR_INVALID);
        ASSERT_SAID(&seen, one->part);
        assert_int_equal(run->global_batch, 0);
    } else {
        if (status != MICS_OK)
            fail_msg("%s: %s", one->text, seen.line);
        assert_int_equal(run->global_batch, one->train);
        assert_int_equal(run->micro_batch, one->micro);
        assert_int_equal(run->micro_steps, one->steps);
    }
    mics_run_close(run);
}

#define TRAIN(n) ", \"train_batch_size\": " #n
#define MICRO(n) ", \"train_micro_batch_size_per_gpu\": " #n
#define STEPS(n) ", \"gradient_accumulation_steps\": " #n

static void test_batch(void **state)
{
    (void)state;
    static const batch_case cases[] = {
        {TRAIN(32) MICRO(4) STEPS(2), 4, 32, 4, 2, NULL},
        {MICRO(4) STEPS(2), 3, 24, 4, 2, NULL},
        {MICRO(4), 2, 8, 4, 1, NULL},
        {TRAIN(32), 4, 32, 8, 1, NULL},
        {TRAIN(32) MICRO(2), 4, 32, 2, 4, NULL},
        {TRAIN(32) STEPS(2), 4, 32, 4, 2, NULL},
        {TRAIN("auto") MICRO(4) STEPS("auto"), 4, 16, 4, 1, NULL},
        {TRAIN(16) MICRO("auto") STEPS("auto"), 4, 16, 4, 1, NULL},
        {TRAIN(16) MICRO("auto") STEPS(2), 4, 16, 2, 2, NULL},
        {TRAIN("auto") MICRO("auto") STEPS(2), 4, 64, 8, 2, NULL}, // 8 is the Trainer's
        {TRAIN(30) MICRO(4) STEPS(2), 4, 0, 0, 0,
         "30 is not train_micro_batch_size_per_gpu 4 x gradient_accumulation_steps 2 x 4 ranks = "
         "32"},
        {TRAIN(10) MICRO(4), 4, 10, 4, 1, NULL}, // rows that count nothing
        {TRAIN(20) MICRO(4), 4, 20, 4, 2, NULL},
        {TRAIN(10) STEPS(1), 4, 10, 3, 1, NULL},
        {TRAIN(16), 6, 16, 3, 1, NULL},
        {TRAIN(16) STEPS(2), 6, 16, 2, 2, NULL},
        {TRAIN(16) STEPS(4), 6, 0, 0, 0, "at most 3 would work"},
        {TRAIN(18) MICRO(4) STEPS(1), 4, 0, 0, 0, "leave one of the three out"},
        {TRAIN(1000000000000) MICRO(1), 1, 0, 0, 0, "larger micro-batch"},
        {TRAIN(1), 4, 1, 1, 1, NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        check_batch(&cases[i]);
    check_refused("{" RUN_BASE "}", MICS_ERR_INVALID, "train_micro_batch_size_per_gpu: is missing");
}

typedef struct sharding_case {
    const char *text;
    int32_t ranks, nodes;
    mics_sharding sharding; // params 0: refused
    const char *part;       // of the error, or of the origin that explain shows
} sharding_case;

static const char *origin_of(const mics_run *run, const char *key)
{
    for (int32_t i = 0; i < mics_run_row_count(run); i++) {
        mics_run_row row = mics_run_row_at(run, i);
        if (strcmp(row.key, key) == 0)
            return row.origin;
    }
    return "(no row)";
}

static void check_sharding(const sharding_case *one)
{
    char text[1024];
    snprintf(text, sizeof text, "{%s%s%s}", RUN_BASE, MICRO(1), one->text);
    mics_run *run = load_good(text);
    mics_status status = mics_run_resolve(run, one->ranks, one->nodes);
    if (one->sharding.params == 0) {
        if (status != MICS_ERR_INVALID && status != MICS_ERR_UNSUPPORTED)
            fail_msg("%s gave %s", one->text, mics_status_name(status));
        ASSERT_SAID(&seen, one->part);
        assert_int_equal(run->sharding.params, 0);
    } else {
        if (status != MICS_OK)
            fail_msg("%s: %s", one->text, seen.line);
        assert_memory_equal(&run->sharding, &one->sharding, sizeof run->sharding);
        mics_mesh mesh; // what is accepted here, the mesh takes too
        ASSERT_OK(mics_mesh_init(one->ranks, one->nodes, run->sharding, &mesh));
        assert_string_equal(origin_of(run, "sharding.params"), one->part);
    }
    mics_run_close(run);
}

#define ZERO(text) ", \"zero_optimization\": {" text "}"
#define NATIVE(text) ", \"sharding\": {" text "}"
#define BY_STAGE "auto: zero_optimization.stage"
#define BY_MICS "auto: zero_optimization.mics_shard_size"
#define BY_HPZ "auto: zero_optimization.zero_hpz_partition_size"

static void test_sharding(void **state)
{
    (void)state;
    static const sharding_case cases[] = {
        {ZERO(""), 4, 2, {1, 1, 1}, BY_STAGE},
        {ZERO("\"stage\": 0"), 4, 2, {1, 1, 1}, BY_STAGE},
        {ZERO("\"stage\": 1"), 4, 2, {1, 1, 4}, BY_STAGE},
        {ZERO("\"stage\": 2"), 4, 2, {1, 4, 4}, BY_STAGE},
        {ZERO("\"stage\": 3"), 4, 2, {4, 4, 4}, BY_STAGE},
        {ZERO("\"stage\": 3, \"mics_shard_size\": 2"), 4, 2, {2, 2, 2}, BY_MICS},
        {ZERO("\"stage\": 3, \"mics_shard_size\": -1"), 4, 2, {4, 4, 4}, BY_STAGE},
        {ZERO("\"stage\": 3, \"zero_hpz_partition_size\": 2"), 8, 2, {2, 8, 8}, BY_HPZ},
        {ZERO("\"stage\": 3, \"zero_hpz_partition_size\": 1"), 8, 2, {8, 8, 8}, BY_STAGE},
        {NATIVE("\"params\": 2, \"grads\": 4, \"optimizer\": 8"), 8, 2, {2, 4, 8}, "file"},
        {NATIVE("\"params\": 2"), 8, 2, {2, 2, 2}, "file"},
        {NATIVE("\"optimizer\": 8"), 8, 2, {1, 1, 8}, "auto: 1"},
        {", \"sharded_data_parallel_degree\": 4",
         8,
         2,
         {4, 4, 4},
         "auto: sharded_data_parallel_degree"},
        {", \"sharded_data_parallel_degree\": 4, \"hybrid_shard_degree\": 4",
         8,
         2,
         {4, 4, 4},
         "auto: sharded_data_parallel_degree"},
        {", \"hybrid_shard_degree\": 8", 8, 2, {8, 8, 8}, "auto: hybrid_shard_degree"},
        {ZERO("\"stage\": 3, \"mics_shard_size\": 2, \"mics_hierarchical_params_gather\": true"),
         4,
         2,
         {2, 2, 2},
         BY_MICS},
        {", \"sharded_data_parallel_degree\": 2, \"sdp_hierarchical_allgather\": true",
         4,
         2,
         {2, 2, 2},
         "auto: sharded_data_parallel_degree"},
        // refused
        {ZERO("\"stage\": 3, \"mics_shard_size\": 4, \"mics_hierarchical_params_gather\": true"),
         4,
         2,
         {4, 4, 4},
         BY_MICS},
        {", \"sharded_data_parallel_degree\": 4, \"sdp_hierarchical_allgather\": true",
         4,
         2,
         {4, 4, 4},
         "auto: sharded_data_parallel_degree"},
        {ZERO("\"stage\": 3, \"mics_shard_size\": 3"),
         4,
         2,
         {0, 0, 0},
         "mics_shard_size: 3 does not divide the ranks (4 ranks, 2 a node); these would work: "
         "1, 2, 4"},
        {NATIVE("\"params\": 2"),
         1,
         1,
         {0, 0, 0},
         "2 does not divide the ranks (1 rank, 1 a node); these would work: 1; --ranks or a"},
        {ZERO("\"stage\": 3, \"mics_shard_size\": 20"),
         40,
         5,
         {0, 0, 0},
         "20 would straddle nodes unevenly (40 ranks, 8 a node); these would work: 1, 2, 4, 8, 40"},
        {ZERO("\"stage\": 3, \"mics_shard_size\": 1048576"),
         4,
         2,
         {0, 0, 0},
         "does not divide the ranks"},
        {NATIVE("\"params\": 4, \"grads\": 2"),
         8,
         2,
         {0, 0, 0},
         "sharding.grads: 2 is no multiple of params (P) = 4 (8 ranks, 4 a node); these would "
         "work: 4, "
         "8"},
        {NATIVE("\"params\": 2, \"grads\": 4, \"optimizer\": 2"),
         8,
         2,
         {0, 0, 0},
         "2 is no multiple of grads (G) = 4"},
        {NATIVE("\"params\": 2, \"optimizer\": 3"), 8, 2, {0, 0, 0}, "sharding.optimizer: 3"},
        {ZERO(""), 4, 3, {0, 0, 0}, "4 ranks cannot be spread evenly over 3 nodes"},
        {ZERO(""), 0, 1, {0, 0, 0}, "0 ranks"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        check_sharding(&cases[i]);
}

static void test_sources_conflict(void **state)
{
    (void)state;
    check_refused(RUN_WITH("\"sharding\": {\"params\": 2}, \"zero_optimization\": {\"stage\": 3}"),
                  MICS_ERR_INVALID, "run.json:4: zero_optimization: cannot stand together");
    check_refused(RUN_WITH("\"sharding\": \"auto\", \"hybrid_shard_degree\": 2"), MICS_ERR_INVALID,
                  "hybrid_shard_degree: cannot stand together with sharding");
    check_refused(RUN_WITH("\"sharded_data_parallel_degree\": 4, \"hybrid_shard_degree\": 2"),
                  MICS_ERR_INVALID, "cannot stand together with sharded_data_parallel_degree");
    check_refused(RUN_WITH("\"sdp_hierarchical_allgather\": true"), MICS_ERR_INVALID,
                  "needs sharded_data_parallel_degree");
    check_refused(RUN_WITH("\"zero_optimization\": {\"stage\": 2, \"mics_shard_size\": 2}"),
                  MICS_ERR_INVALID, "needs \"stage\": 3, and the stage is 2");
    check_refused(RUN_WITH("\"zero_optimization\": {\"zero_hpz_partition_size\": 2}"),
                  MICS_ERR_INVALID, "needs \"stage\": 3, and the stage is 0");
    check_refused(RUN_WITH("\"zero_optimization\": {\"stage\": 3, \"mics_shard_size\": 0}"),
                  MICS_ERR_INVALID, "must be -1 (off), or 1 or more");
    check_refused(RUN_WITH("\"zero_optimization\": {\"stage\": 3, \"mics_shard_size\": 2, "
                           "\"zero_hpz_partition_size\": 2}"),
                  MICS_ERR_INVALID, "cannot stand together with mics_shard_size");
}

static void test_auto_sharding(void **state)
{
    (void)state;
    static const char *const texts[] = {RUN_PLAIN, RUN_WITH("\"sharding\": \"auto\"")};
    for (size_t i = 0; i < 2; i++) {
        mics_run *run = load_good(texts[i]);
        ASSERT_OK(mics_run_resolve(run, 8, 2));
        assert_true(run->sharding_auto && run->sharding_open);
        assert_int_equal(run->sharding.params, 1);
        assert_string_equal(origin_of(run, "sharding.grads"),
                            "auto: the fastest that fits, on usual links");
        mics_run_close(run);
    }
    mics_run *run = load_good(RUN_WITH("\"sharding\": {\"params\": 1}"));
    ASSERT_OK(mics_run_resolve(run, 8, 2));
    assert_false(run->sharding_auto || run->sharding_open);
    mics_run_close(run);
    // 12 ranks as 2 nodes of 6: 4 divides the ranks and straddles nodes
    static const int32_t degrees[] = {1, 2, 3, 6, 12};
    mics_sharding sharding = {0, 0, 0};
    for (int32_t i = 0; i < 5; i++) {
        assert_true(mics_sharding_candidate(12, 2, i, &sharding));
        assert_int_equal(sharding.params, degrees[i]);
        assert_int_equal(sharding.grads, degrees[i]);
        assert_int_equal(sharding.optimizer, degrees[i]);
    }
    assert_false(mics_sharding_candidate(12, 2, 5, &sharding));
    assert_false(mics_sharding_candidate(12, 2, -1, &sharding));
    assert_false(mics_sharding_candidate(12, 5, 0, &sharding));
    assert_false(mics_sharding_candidate(0, 0, 0, &sharding));
}

#define CUT(n) ", \"sharding\": {\"sequence\": " #n "}"

// S ranks are one where batches are counted. It stands beside any sharding.
static void test_sequence(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int32_t ranks, nodes;
        mics_sharding sharding;
        int32_t sequence;
        bool is_auto;
        int64_t train, steps;
        const char *part; // of the error; NULL: none
    } cases[] = {
        {MICRO(2) CUT(4), 8, 2, {1, 1, 1}, 4, true, 4, 1, NULL},
        {MICRO(2) TRAIN(16) CUT(2), 8, 1, {1, 1, 1}, 2, true, 16, 2, NULL},
        {MICRO(2) CUT(2) ZERO("\"stage\": 3"), 8, 2, {8, 8, 8}, 2, false, 8, 1, NULL},
        {MICRO(2) ", \"sharding\": \"auto\", \"sequence_parallel_size\": 4",
         8,
         2,
         {1, 1, 1},
         4,
         true,
         4,
         1,
         NULL},
        {MICRO(2) ZERO("\"stage\": 2") ", \"sequence_parallel_size\": 2",
         8,
         2,
         {1, 8, 8},
         2,
         false,
         8,
         1,
         NULL},
        {MICRO(2) ", \"parallelism\": {\"data_parallel_shard_degree\": 2, "
                  "\"data_parallel_replicate_degree\": 2, \"context_parallel_degree\": 4}",
         16,
         2,
         {8, 8, 8},
         4,
         false,
         8,
         1,
         NULL},
        {MICRO(2) ", \"parallelism\": {\"data_parallel_shard_degree\": 8, "
                  "\"data_parallel_replicate_degree\": 2, \"context_parallel_degree\": 2}",
         16,
         2,
         {0, 0, 0},
         0,
         false,
         0,
         0,
         "8 shards x 2 replicas x 2 of a sequence are not 16 ranks"},
        {MICRO(2) NATIVE("\"params\": 2, \"sequence\": 3"),
         6,
         1,
         {0, 0, 0},
         0,
         false,
         0,
         0,
         "sharding.sequence: 3 must divide the ranks of a node, 6, and divide params (P) = 2 or be "
         "a multiple of it; these would work: 1, 2, 6"},
        {MICRO(2) CUT(8), 8, 2, {0, 0, 0}, 0, false, 0, 0, "these would work: 1, 2, 4"},
        {MICRO(2) TRAIN(7) STEPS(2) CUT(2),
         8,
         2,
         {0, 0, 0},
         0,
         false,
         0,
         0,
         "x 4 data ranks (ranks / sharding.sequence) = 16"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char text[1024];
        snprintf(text, sizeof text, "{%s%s}", RUN_BASE, cases[i].text);
        mics_run *run = load_good(text);
        const mics_status status = mics_run_resolve(run, cases[i].ranks, cases[i].nodes);
        if ((status != MICS_OK) != (cases[i].part != NULL))
            fail_msg("%s: %s", text, seen.line);
        if (cases[i].part != NULL)
            ASSERT_SAID(&seen, cases[i].part);
        if (cases[i].part == NULL)
            assert_int_equal(run->sequence, cases[i].sequence);
        assert_memory_equal(&run->sharding, &cases[i].sharding, sizeof run->sharding);
        assert_int_equal(run->sharding_auto, cases[i].is_auto);
        assert_int_equal(run->global_batch, cases[i].train);
        assert_int_equal(run->micro_steps, cases[i].steps);
        mics_run_close(run);
    }
    static const char *const sets[] = {"sharding=auto", "sharding.sequence=2"};
    mics_run *run = NULL;
    ASSERT_OK(mics_run_parse(memory, "run.json", RUN_PLAIN, sets, 2, &run));
    ASSERT_OK(mics_run_resolve(run, 8, 2));
    assert_true(run->sharding_auto && run->sequence == 2);
    mics_run_close(run);
    check_refused(RUN_WITH("\"sharding\": {\"sequence\": 2}, \"sequence_parallel_degree\": 4"),
                  MICS_ERR_INVALID, "4 contradicts sharding.sequence 2; leave one out");
}

static void test_min_replicas(void **state)
{
    (void)state;
    static const char *const sets[] = {"run.min_replicas=3"};
    mics_run *run = NULL;
    ASSERT_OK(mics_run_parse(memory, "run.json", RUN_WITH("\"sharding\": {\"params\": 2}"), sets, 1,
                             &run));
    ASSERT_OK(mics_run_resolve(run, 8, 2)); // four copies
    capture_begin(&seen);
    ASSERT_STATUS(MICS_ERR_INVALID, mics_run_resolve(run, 4, 2));
    capture_end();
    ASSERT_SAID(&seen,
                "is 3, but with optimizer state over 2 of 4 ranks it exists 2 times; take at "
                "most 2, optimizer state over at most 1 ranks");
    capture_begin(&seen);
    ASSERT_STATUS(MICS_ERR_INVALID, mics_run_resolve(run, 2, 1));
    capture_end();
    ASSERT_SAID(&seen, "3 copies of every state need 3 ranks, and there are 2; 1 to 2 would work");
    mics_run_close(run);
}

// How a global batch is cut, and recomputation, are the planner's in a file of our own words that
// leaves them open.
static void test_open_batch(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        bool batch, recompute;
    } cases[] = {
        {"{" RUN_BASE TRAIN(64) "}", true, true},
        {"{" RUN_BASE TRAIN(64) MICRO("auto") STEPS("auto") ", \"sharding\": {\"params\": 2}}",
         true, true},
        {"{" RUN_BASE TRAIN(64) MICRO(4) "}", false, false},
        {"{" RUN_BASE TRAIN(64) STEPS(4) "}", false, false},
        {"{" RUN_BASE MICRO(4) STEPS(4) "}", false, false},
        {"{" RUN_BASE TRAIN(64) ", \"zero_optimization\": {\"stage\": 1}}", false, false},
        {"{" RUN_BASE TRAIN(64) ", \"sharded_data_parallel_degree\": 2}", false, false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        mics_run *run = load_good(cases[i].text);
        ASSERT_OK(mics_run_resolve(run, 8, 2));
        assert_int_equal(run->batch_auto, cases[i].batch);
        assert_int_equal(run->recompute_auto, cases[i].recompute);
        assert_int_equal(run->micro_batch * run->micro_steps * 8, run->global_batch);
        mics_run_close(run);
    }
    static const char *const sets[] = {"run.recompute=false"};
    mics_run *run = NULL;
    ASSERT_OK(mics_run_parse(memory, "run.json", cases[0].text, sets, 1, &run));
    ASSERT_OK(mics_run_resolve(run, 8, 2));
    assert_true(run->batch_auto && !run->recompute_auto);
    assert_string_equal(origin_of(run, "gradient_accumulation_steps"),
                        "auto: the fastest that fits");
    mics_run_close(run);
}

// One run on mesh after mesh; a failure leaves the last good resolution.
static void test_resolves_again(void **state)
{
    (void)state;
    mics_run *run = load_good(RUN_WITH("\"zero_optimization\": {\"stage\": 1}"));
    ASSERT_OK(mics_run_resolve(run, 4, 2));
    assert_int_equal(run->global_batch, 16);
    ASSERT_OK(mics_run_resolve(run, 8, 1));
    assert_int_equal(run->global_batch, 32);
    assert_int_equal(run->sharding.optimizer, 8);
    ASSERT_STATUS(MICS_ERR_INVALID, mics_run_resolve(run, 8, 3));
    assert_int_equal(run->global_batch, 32);
    mics_run_close(run);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_batch, setup, teardown),
        cmocka_unit_test_setup_teardown(test_sharding, setup, teardown),
        cmocka_unit_test_setup_teardown(test_sources_conflict, setup, teardown),
        cmocka_unit_test_setup_teardown(test_sequence, setup, teardown),
        cmocka_unit_test_setup_teardown(test_auto_sharding, setup, teardown),
        cmocka_unit_test_setup_teardown(test_min_replicas, setup, teardown),
        cmocka_unit_test_setup_teardown(test_open_batch, setup, teardown),
        cmocka_unit_test_setup_teardown(test_resolves_again, setup, teardown),
    };
    return cmocka_run_group_tests(tests, group_setup, group_teardown);
}
