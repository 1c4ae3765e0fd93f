// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Local steps: islands for a number of ranks, shardings within them, and what is refused.
#include "config/run_file.h"

#define OUTER(text) ", \"outer\": {\"every\": 6" text "}"
#define NATIVE(text) ", \"sharding\": {" text "}"
#define ZERO(text) ", \"zero_optimization\": {" text "}"
#define RUN_OF(more) "{" RUN_BASE ", \"train_micro_batch_size_per_gpu\": 4" more "}"

// On ranks x nodes: R and sharding, or a part of the error.
typedef struct outer_case {
    const char *text;
    int32_t ranks, nodes, island; // island 0: refused
    mics_sharding sharding;
    const char *part;
} outer_case;

static void check_case(const outer_case *one)
{
    char text[1024];
    snprintf(text, sizeof text, "{%s, \"train_micro_batch_size_per_gpu\": 4%s}", RUN_BASE,
             one->text);
    mics_run *run = load_good(text);
    const mics_status status = mics_run_resolve(run, one->ranks, one->nodes);
    if (one->island == 0) {
        if (status != MICS_ERR_INVALID && status != MICS_ERR_UNSUPPORTED)
            fail_msg("%s gave %s", one->text, mics_status_name(status));
        ASSERT_SAID(&seen, one->part);
    } else {
        if (status != MICS_OK)
            fail_msg("%s: %s", one->text, seen.line);
        assert_int_equal(run->outer_ranks, one->island);
        assert_memory_equal(&run->sharding, &one->sharding, sizeof run->sharding);
        assert_false(run->sharding_auto);
        assert_int_equal(run->global_batch, 4 * one->ranks); // of all islands
        mics_mesh mesh; // what is accepted here, the mesh takes too
        ASSERT_OK(mics_mesh_init(one->ranks, one->nodes, run->sharding, &mesh));
        ASSERT_OK(mics_mesh_part_islands(&mesh, run->outer_ranks));
        const mics_run_island island = mics_run_island_of(run, one->ranks, one->nodes);
        assert_int_equal(island.ranks, mesh.ranks);
        assert_int_equal(island.nodes, mics_mesh_nodes(&mesh));
    }
    mics_run_close(run);
}

static void test_islands(void **state)
{
    (void)state;
    static const outer_case cases[] = {
        {OUTER("") NATIVE("\"params\": 2"), 8, 4, 2, {2, 2, 2}, NULL},
        {OUTER("") NATIVE("\"params\": 2"), 8, 2, 4, {2, 2, 2}, NULL},
        {OUTER(", \"ranks\": \"auto\"") NATIVE("\"optimizer\": 4"), 8, 2, 4, {1, 1, 4}, NULL},
        {OUTER(", \"ranks\": 4") NATIVE("\"params\": 2, \"optimizer\": 4"),
         8,
         4,
         4,
         {2, 2, 4},
         NULL},
        {OUTER(", \"ranks\": 2") NATIVE("\"params\": 2"), 8, 1, 2, {2, 2, 2}, NULL},
        {OUTER(", \"ranks\": 1"), 4, 1, 1, {1, 1, 1}, NULL}, // nothing is left to choose
        {OUTER("") ZERO("\"stage\": 3"), 8, 2, 4, {4, 4, 4}, NULL},
        {OUTER("") ZERO("\"stage\": 1"), 8, 2, 4, {1, 1, 4}, NULL},
        {OUTER("") ZERO("\"stage\": 3, \"mics_shard_size\": 2"), 8, 2, 4, {2, 2, 2}, NULL},
        {OUTER("") ", \"fsdp_sharding_strategy\": \"full_shard\"", 8, 2, 4, {4, 4, 4}, NULL},
        {OUTER("") NATIVE("\"params\": 2"),
         4,
         1,
         0,
         {0},
         "outer.ranks: is 4 (4 ranks, 4 a node), which is one island that meets nobody; these "
         "would work: 1, 2"},
        {OUTER(", \"ranks\": 8") NATIVE("\"params\": 2"), 8, 2, 0, {0}, "would work: 1, 2, 4"},
        {OUTER(", \"ranks\": 3") NATIVE("\"params\": 1"), 8, 2, 0, {0}, "does not divide"},
        {OUTER(", \"ranks\": 4") NATIVE("\"params\": 1"), 12, 2, 0, {0}, "straddle nodes"},
        {OUTER(", \"ranks\": 1") NATIVE("\"params\": 2, \"sequence\": 2"),
         4,
         2,
         0,
         {0},
         "no multiple of sharding.sequence; these would work: 2"},
        {OUTER(""), 1, 1, 0, {0}, "more ranks would (--ranks, or a launcher)"},
        {OUTER("") NATIVE("\"params\": 8"),
         8,
         2,
         0,
         {0},
         "8 does not divide the ranks of an island (4 ranks, 4 a node)"},
        {OUTER(""), 8, 2, 0, {0}, "\"auto\" is not planned for local steps"},
        {OUTER("") ", \"sharding\": \"auto\"", 8, 2, 0, {0}, "for the 4 ranks of an island"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        check_case(&cases[i]);
}

// Copies of every state are those of an island.
static void test_copies(void **state)
{
    (void)state;
    mics_run *run =
        load_good("{\"model\": {\"config\": \"model.json\"}, "
                  "\"data\": {\"train\": [\"a.txt\"]}, \"run\": {\"steps\": 100, "
                  "\"min_replicas\": 2}, \"train_micro_batch_size_per_gpu\": 4" OUTER("")
                      NATIVE("\"params\": 4") "}");
    ASSERT_STATUS(MICS_ERR_INVALID, mics_run_resolve(run, 8, 2));
    ASSERT_SAID(&seen, "with optimizer state over 4 of 4 ranks it exists 1 times");
    mics_run_close(run);
}

static void test_values(void **state)
{
    (void)state;
    mics_run *run = load_good(RUN_OF(OUTER(
        ", \"lr\": 0.5, \"momentum\": 0.8, \"fragments\": 3, \"overlap_steps\": 2, \"dtype\": "
        "\"int4\", \"moments_every\": 5") NATIVE("\"params\": 2")));
    ASSERT_OK(mics_run_resolve(run, 4, 2));
    const mics_outer expected = {.every = 6,
                                 .fragments = 3,
                                 .overlap_steps = 2,
                                 .moments_every = 5,
                                 .dtype = MICS_COMM_INT4};
    assert_memory_equal(&run->outer, &expected, sizeof expected);
    assert_true(run->outer_lr == 0.5 && run->outer_momentum == 0.8);
    check_row(run, "outer.ranks", "2", "auto: those of a node");
    mics_run_close(run);
    run = load_good(RUN_OF(OUTER("") NATIVE("\"params\": 2")));
    assert_true(run->outer_lr == 0.7 && run->outer_momentum == 0.9);
    assert_int_equal(run->outer.fragments, 1);
    mics_run_close(run);
    run = load_good(RUN_PLAIN);
    ASSERT_OK(mics_run_resolve(run, 4, 2));
    assert_int_equal(run->outer_ranks, 0);
    assert_null(find_row(run, "outer.lr").key);
    mics_run_close(run);
}

// What no batch sizes say is not planned: it is what it would be on so many ranks.
static void test_batch(void **state)
{
    (void)state;
    mics_run *run =
        load_good("{" RUN_BASE ", \"train_batch_size\": 32" OUTER("") NATIVE("\"params\": 2") "}");
    ASSERT_OK(mics_run_resolve(run, 8, 2));
    assert_false(run->batch_auto);
    assert_int_equal(run->global_batch, 32);
    assert_int_equal(run->micro_batch, 4);
    mics_run_close(run);
}

static void test_refused(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        mics_status status;
        const char *part;
    } cases[] = {
        {", \"outer\": {\"ranks\": 2}", MICS_ERR_INVALID, "outer.every: is missing"},
        {OUTER(", \"fragments\": 7"), MICS_ERR_INVALID, "outer.fragments: is 7"},
        {OUTER(", \"overlap_steps\": 7"), MICS_ERR_INVALID, "take at most 6"},
        {OUTER(", \"type\": \"adam\""), MICS_ERR_UNSUPPORTED, "must be \"nesterov\""},
        {OUTER(", \"dtype\": \"fp8\""), MICS_ERR_UNSUPPORTED, "\"int4\""},
        {OUTER(", \"momentum\": 1"), MICS_ERR_INVALID, "outer.momentum"},
        {OUTER(
             ", \"moments_every\": 2") ", \"optimizer\": {\"params\": {\"state_dtype\": \"8bit\"}}",
         MICS_ERR_UNSUPPORTED, "means are of states in fp32"},
        {OUTER("") ", \"objective\": {\"type\": \"dpo\"}", MICS_ERR_UNSUPPORTED, "not for pairs"},
        {OUTER(", \"H\": 2"), MICS_ERR_INVALID, "outer.H: unknown key"},
        {", \"phases\": [{\"steps\": 5}, {\"outer.every\": 2}]", MICS_ERR_INVALID,
         "is no key that a phase changes"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[1024];
        snprintf(text, sizeof text, "{%s, \"train_micro_batch_size_per_gpu\": 4%s}", RUN_BASE,
                 cases[i].text);
        check_refused(text, cases[i].status, cases[i].part);
    }
    check_refused("{\"model\": {\"config\": \"model.json\"}, \"data\": {\"train\": [\"a.txt\"]}, "
                  "\"run\": {\"steps\": 9, \"recheck\": true}, "
                  "\"train_micro_batch_size_per_gpu\": 4" OUTER("") "}",
                  MICS_ERR_UNSUPPORTED, "run.recheck: is not for local steps");
    check_refused("{\"model\": {\"config\": \"model.json\"}, \"data\": {\"train\": [\"a.txt\"]}, "
                  "\"run\": {\"steps\": 9, \"precision\": \"bf16\", \"comm_dtype\": {\"params\": "
                  "\"delta\"}}, \"train_micro_batch_size_per_gpu\": 4" OUTER("") "}",
                  MICS_ERR_UNSUPPORTED, "\"delta\" is not for local steps");
}

// A file that does not say it keeps it; another one says 0.
static void test_kept(void **state)
{
    (void)state;
    static const char stored[] = "{\"outer\": {\"every\": 30, \"ranks\": 2, \"lr\": 0.4}}";
    mics_run *run = load_good(RUN_OF(NATIVE("\"params\": 2")));
    ASSERT_OK(mics_run_keep(run, "stored", stored));
    assert_int_equal(run->outer.every, 30);
    assert_true(run->outer_lr == 0.4);
    ASSERT_OK(mics_run_resolve(run, 8, 2)); // R is that of these nodes
    assert_int_equal(run->outer_ranks, 4);
    assert_non_null(strstr(mics_run_kept_text(run), "outer.every 30"));
    mics_run_close(run);
    run = load_good(RUN_OF(", \"outer\": {\"every\": 0}" NATIVE("\"params\": 2")));
    ASSERT_OK(mics_run_keep(run, "stored", stored));
    ASSERT_OK(mics_run_resolve(run, 8, 2));
    assert_int_equal(run->outer_ranks, 0);
    mics_run_close(run);
}

static void test_fp16(void **state)
{
    (void)state;
    mics_run *run =
        load_good(RUN_OF(OUTER("") NATIVE("\"params\": 2") ", \"fp16\": {\"enabled\": true}"));
    ASSERT_OK(mics_run_resolve_device(run, NULL, NULL));
    ASSERT_STATUS(MICS_ERR_UNSUPPORTED, mics_run_resolve(run, 4, 2));
    ASSERT_SAID(&seen, "is not for fp16");
    mics_run_close(run);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_islands, setup, teardown),
        cmocka_unit_test_setup_teardown(test_copies, setup, teardown),
        cmocka_unit_test_setup_teardown(test_values, setup, teardown),
        cmocka_unit_test_setup_teardown(test_batch, setup, teardown),
        cmocka_unit_test_setup_teardown(test_refused, setup, teardown),
        cmocka_unit_test_setup_teardown(test_kept, setup, teardown),
        cmocka_unit_test_setup_teardown(test_fp16, setup, teardown),
    };
    return cmocka_run_group_tests(tests, group_setup, group_teardown);
}
