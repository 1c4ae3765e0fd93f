// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Copies of the state in node memory: ranks as threads on two nodes train, end without saving, and go on
// from memory, whole or with a node lost, with the bits of a run that never stopped. What is of another run
// or of an attempt that was given up is not taken.
#include "run/node_trainings.h"

static void test_every_sharding_survives_any_node(void **state)
{
    (void)state;
    static const mics_sharding shardings[] = {{1, 1, 1}, {1, 1, 4}, {1, 4, 4},
                                              {4, 4, 4}, {2, 2, 2}, {2, 2, 4}};
    for (size_t i = 0; i < sizeof shardings / sizeof shardings[0]; i++) {
        for (int lost = 0; lost < NODES; lost++) {
            training again = make("any", shardings[i]);
            interrupted("any", shardings[i]);
            char name[20];
            snprintf(name, sizeof name, "node-%d", lost);
            shell("rm -r %s%s", in_memory(name), "");
            assert_goes_on(&again, true, KEPT);
        }
    }
}

// Where an island's shards are on one node alone, on several, and in the middle of a period.
static void test_islands_survive_any_node(void **state)
{
    (void)state;
    static const struct {
        mics_sharding sharding;
        int32_t ranks, nodes;
        const char *outer;
    } cases[] = {
        {{2, 2, 2}, 4, 2, "outer={\"every\": 3, \"ranks\": 2}"},
        {{1, 1, 1}, 4, 2, "outer={\"every\": 3, \"ranks\": 2, \"fragments\": 2}"},
        {{1, 1, 1}, 4, 2, "outer={\"every\": 2, \"ranks\": 1, \"overlap_steps\": 1}"},
        {{1, 1, 2}, 8, 4, "outer={\"every\": 3, \"ranks\": 4}"},
        {{4, 4, 4}, 8, 4, "outer={\"every\": 3, \"ranks\": 4}"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        for (int lost = 0; lost < cases[i].nodes; lost++) {
            char name[20];
            training again = make("islands", cases[i].sharding);
            again.ranks = cases[i].ranks;
            again.nodes = cases[i].nodes;
            again.set = cases[i].outer;
            shell("rm -rf shm/* islands%s%s", "", "");
            run(&again, LAST);
            snprintf(name, sizeof name, "node-%d", lost);
            shell("rm -r %s%s", in_memory(name), "");
            assert_goes_on(&again, true, KEPT);
        }
    }
}

static void test_other_meshes(void **state)
{
    (void)state;
    static const struct {
        mics_sharding sharding;
        int32_t ranks, nodes;
        int64_t micro_batch;
    } meshes[] = {
        {{2, 2, 2}, 2, 1, 4}, {{2, 2, 2}, 4, 1, 2}, {{1, 1, 1}, 1, 1, 8}, {{4, 4, 4}, 4, 4, 2}};
    training first = make("first", ZERO3);
    run(&first, STEPS);
    for (size_t i = 0; i < sizeof meshes / sizeof meshes[0]; i++) {
        training again = make("other", meshes[i].sharding);
        interrupted("other", ZERO3);
        again.ranks = meshes[i].ranks;
        again.nodes = meshes[i].nodes;
        again.micro_batch = meshes[i].micro_batch;
        run(&again, KEPT + 3); // a copy of its own
        assert_true(again.from_memory);
        assert_int_equal(again.start_step, KEPT);
        for (int64_t step = KEPT + 1; step <= KEPT + 3; step++)
            assert_float_equal(again.loss[step], first.loss[step], 1e-4);
        // What nodes that are no more kept is gone, and from the new mesh it goes on too.
        assert_int_equal(is_there(in_memory("node-1")), meshes[i].nodes > 1);
        run(&again, STEPS);
        assert_true(again.from_memory);
        assert_int_equal(again.start_step, KEPT + 2);
    }
}

static void test_too_much_lost(void **state)
{
    (void)state;
    training again = make("lost", ZERO3);
    interrupted("lost", ZERO3);
    shell("rm shm/*/node-*/slot-*/rank-00002.safetensors%s%s", "", "");
    listen();
    run(&again, STEPS);
    assert_said("warning", "step 4 is not whole: 1 of its 4 files");
    assert_false(again.from_memory);
    assert_int_equal(again.start_step, 0); // nothing on disk either
}

// Links and foreign folders are not followed, nor removed.
static void test_foreign_folders(void **state)
{
    (void)state;
    training again = make("foreign", ZERO3);
    char moved[700];
    interrupted("foreign", ZERO3);
    snprintf(moved, sizeof moved, "%s", in_memory(""));
    moved[strlen(moved) - 1] = '\0';
    shell("mv %s target && ln -s ../target %s", moved, moved);
    listen();
    run(&again, LAST);
    assert_said("warning", "is no folder of this user alone");
    assert_false(again.from_memory);
    shell("test -f target/node-0/slot-0/manifest.json && rm -r target%s%s", "", "");
    // One that others may enter.
    interrupted("foreign", ZERO3);
    assert_int_equal(chmod(in_memory(""), 0755), 0);
    listen();
    run(&again, STEPS);
    assert_said("warning", "is no folder of this user alone");
    assert_false(again.from_memory);
}

static void test_disk_that_is_newer(void **state)
{
    (void)state;
    training first = make("disk", ZERO3), again = first;
    shell("rm -rf shm/* disk%s%s", "", "");
    first.set = "run.checkpoint_every=5";
    run(&first, LAST);
    assert_string_equal(in_memory(""), ""); // saved: memory is given back
    // A step later there is a copy, which the disk's is older than.
    first.set = "run.checkpoint_every=3";
    shell("rm -rf shm/* disk%s%s", "", "");
    run(&first, LAST);
    assert_goes_on(&again, true, KEPT);
    // And the other way round.
    shell("rm -rf shm/* disk%s%s", "", "");
    first.set = "run.memory_checkpoint_every=3";
    run(&first, 3);
    first.set = "run.checkpoint_every=4";
    run(&first, LAST);
    shell("test -d disk/checkpoints/step-00000004%s%s", "", "");
    shell("rm -r %s%s", in_memory(""), "");
    run(&again, STEPS);
    assert_false(again.from_memory);
    assert_int_equal(again.start_step, 4);
}

// Neither another run nor an attempt that was given up is taken.
static void test_whose_copies(void **state)
{
    (void)state;
    training again = make("whose", ZERO3), other = make("beside", ZERO3);
    interrupted("whose", ZERO3);
    run(&other, LAST);
    assert_false(other.from_memory); // side by side
    shell("rm -rf shm/*%s%s", "", "");
    interrupted("whose", ZERO3);
    shell("rm -r whose%s%s", "", ""); // begun anew in a folder of the same name
    run(&again, 1);
    assert_false(again.from_memory);
    assert_int_equal(again.start_step, 0);
    // --resume none gives up what memory holds, for good.
    interrupted("whose", ZERO3);
    again.resume = "none";
    run(&again, 1);
    assert_int_equal(again.start_step, 0);
    again.resume = NULL;
    run(&again, 1);
    assert_false(again.from_memory);
    assert_int_equal(again.start_step, 0);
}

// The key is taken out: the copy is still where the run goes on from, until a newer state is on disk.
static void test_without_the_key(void **state)
{
    (void)state;
    training again = make("key", ZERO3);
    interrupted("key", ZERO3);
    again.set = "run.memory_checkpoint_every=0";
    for (int i = 0; i < 2; i++) {
        run(&again, LAST);
        assert_true(again.from_memory);
        assert_int_equal(again.start_step, KEPT);
    }
    assert_goes_on(&again, true, KEPT);
}

static void test_another_model_is_refused(void **state)
{
    (void)state;
    training again = make("model", ZERO3);
    interrupted("model", ZERO3);
    again.set = "optimizer.type=Lion";
    listen();
    ASSERT_STATUS(MICS_ERR_INVALID, try_run(&again, STEPS, memory));
    assert_said("error", "was made with optimizer.type AdamW, this run has Lion");
    again.set = NULL; // what was refused is still there
    assert_goes_on(&again, true, KEPT);
}

// The copies go on in the run's memory ledger, so a limit that is too low says so before a step.
static void test_ledger_and_limit(void **state)
{
    (void)state;
    training with = make("limit", ZERO3);
    mics_job *job = NULL;
    char limit[64];
    const char *const sets[] = {"run.memory_checkpoint_every=2", "run.threads=1"};
    const mics_run_values values = values_of(&with);
    const mics_job_spec spec = {.memory = memory,
                                .values = &values,
                                .sets = sets,
                                .set_count = 2,
                                .ranks = RANKS,
                                .nodes = NODES};
    ASSERT_OK(mics_job_size(&spec, &job));
    const mics_memory_ledger ledger = mics_job_schedule(job)->ledger;
    assert_int_equal(ledger.bytes[MICS_MEM_NODE],
                     mics_memory_block_bytes(mics_job_facts_get(job).node_memory_bytes));
    assert_true(ledger.bytes[MICS_MEM_NODE] > 0);
    ASSERT_OK(mics_job_close(job));
    snprintf(limit, sizeof limit, "run.memory_limit=%zu",
             ledger.total - ledger.bytes[MICS_MEM_NODE] + 70000);
    with.set = limit;
    listen();
    ASSERT_STATUS(MICS_ERR_MEMORY, try_run(&with, STEPS, memory));
    assert_said("error", "copies in node memory");
    assert_said("error", "run.memory_checkpoint_every 0 (");
}

static void test_no_place(void **state)
{
    (void)state;
    training run_without = make("place", ZERO3);
    assert_int_equal(setenv("MICS_SHM_DIR", "nowhere", 1), 0);
    listen();
    ASSERT_STATUS(MICS_ERR_IO, try_run(&run_without, STEPS, memory));
    assert_said("error", "MICS_SHM_DIR names another tmpfs");
    assert_int_equal(setenv("MICS_SHM_DIR", "shm", 1), 0);
}

// A copy that cannot be written is a warning, and training goes on.
static void test_a_copy_that_fails(void **state)
{
    (void)state;
    training first = make("full", ZERO3), again = first;
    interrupted("full", ZERO3);
    // The older slot is a file: nothing can be written into it.
    char older[700];
    snprintf(older, sizeof older, "%s",
             in_memory(KEPT / 2 % 2 == 0 ? "node-1/slot-0" : "node-1/slot-1"));
    shell("rm -r %s && touch %s", older, older);
    listen();
    run(&again, STEPS - 1);
    assert_true(again.from_memory);
    assert_said("warning", "step 6 is not kept in node memory; training goes on");
    run(&again, STEPS);
    assert_true(again.from_memory);
    assert_int_equal(again.start_step, KEPT); // the copy before counts
}

// Every allocation of a start from memory fails in turn: an error or no copy, and no block stays.
static void test_allocations(void **state)
{
    (void)state;
    bool ended = false;
    interrupted("alloc", MICS2);
    shell("cp -r shm shm.kept && cp -r alloc alloc.kept%s%s", "", "");
    for (int64_t n = 1; !ended; n += 1 + n / 8) {
        training again = make("alloc", MICS2);
        mics_memory *failing = NULL;
        mics_memory_stats stats;
        ASSERT_OK(mics_memory_open(&failing));
        shell("rm -rf shm/* alloc && cp -r shm.kept/* shm && cp -r alloc.kept alloc%s%s", "", "");
        mics_memory_fail_after(failing, n);
        listen();
        (void)try_run(&again, 0, failing);
        mics_log_set_sink(NULL, NULL);
        mics_memory_stats_get(failing, &stats);
        ended = stats.allocations < n;
        assert_int_equal(mics_memory_close(failing), 0);
    }
    shell("rm -r shm.kept alloc.kept%s%s", "", "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_sharding_survives_any_node),
        cmocka_unit_test(test_islands_survive_any_node),
        cmocka_unit_test(test_other_meshes),
        cmocka_unit_test(test_too_much_lost),
        cmocka_unit_test(test_foreign_folders),
        cmocka_unit_test(test_disk_that_is_newer),
        cmocka_unit_test(test_whose_copies),
        cmocka_unit_test(test_without_the_key),
        cmocka_unit_test(test_another_model_is_refused),
        cmocka_unit_test(test_ledger_and_limit),
        cmocka_unit_test(test_no_place),
        cmocka_unit_test(test_a_copy_that_fails),
        cmocka_unit_test(test_allocations),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
