// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Damage where copies are in node memory: to a copy, on one node or all; to the disk, which is newer; and
// numbers that are not finite. The newest state that is whole is taken.
#include "io/checkpoint/node.h"
#include "run/node_trainings.h"
#include <math.h>

// Changes one byte of a file, from its end.
static void flip(const char *path, long from_end)
{
    FILE *file = fopen(path, "r+b");
    assert_non_null(file);
    assert_int_equal(fseek(file, -from_end, SEEK_END), 0);
    const int byte = fgetc(file);
    assert_int_equal(fseek(file, -from_end, SEEK_END), 0);
    assert_true(fputc(byte ^ 1, file) != EOF);
    assert_int_equal(fclose(file), 0);
}

// The newest copy is damaged on every node that has it: the one before is taken.
static void test_damage_is_passed_over(void **state)
{
    (void)state;
    static const struct {
        const char *file, *said;
        long at;
    } damages[] = {{"rank-00001.safetensors", "differ from their checksum", 5000},
                   {"manifest.json", "differs from its checksum", 8}};
    for (size_t i = 0; i < sizeof damages / sizeof damages[0]; i++) {
        training again = make("damaged", ZERO3);
        interrupted("damaged", ZERO3);
        for (int node = 0; node < NODES; node++)
            flip(slot_file(node, damages[i].file), damages[i].at);
        listen();
        run(&again, STEPS);
        assert_said("warning", damages[i].said);
        assert_true(again.from_memory);
        assert_int_equal(again.start_step, KEPT - 2);
        assert_undisturbed(&again, KEPT - 2);
    }
}

// One node's file is damaged, another's is not.
static void test_damage_on_one_node(void **state)
{
    (void)state;
    training again = make("one", MICS2);
    interrupted("one", MICS2);
    flip(slot_file(0, "rank-00001.safetensors"), 5000);
    shell("truncate -s -1 %s%s", slot_file(1, "rank-00000.safetensors"), "");
    listen();
    assert_goes_on(&again, true, KEPT);
    assert_said("warning", "differ from their checksum");
}

// The checkpoint on disk is newer than the copy, and proves to be damaged, when it is opened or when its
// data are read: the copy is next, and not an older checkpoint.
static void test_disk_that_is_damaged(void **state)
{
    (void)state;
    static const struct {
        const char *command, *said;
    } damages[] = {
        {"cd damaged/checkpoints/step-00000005 && printf x | dd of=rank-00001.safetensors bs=1 "
         "seek=5001 "
         "conv=notrunc 2>/dev/null",
         "differ from their checksum"},
        {"truncate -s 300 damaged/checkpoints/step-00000005/manifest.json", "manifest.json"},
        {"rm damaged/checkpoints/step-00000005/rank-00003.safetensors", "missing"},
    };
    for (size_t i = 0; i < sizeof damages / sizeof damages[0]; i++) {
        training first = make("damaged", ZERO3), again = first;
        shell("rm -rf shm/* damaged%s%s", "", "");
        first.set = "run.checkpoint_every=3";
        run(&first, KEPT - 1); // so that there is an older one
        first.set = "run.checkpoint_every=5";
        run(&first, KEPT + 1);
        assert_string_equal(in_memory(""), "");
        shell("rm -r damaged/checkpoints/step-00000005 && "
              "echo step-00000003 >damaged/checkpoints/latest%s%s",
              "", "");
        first.set = "run.checkpoint_every=0";
        run(&first, KEPT + 1); // from step 3; a copy of 4, no checkpoint of 5
        assert_int_equal(first.start_step, KEPT - 1);
        first.set = "run.checkpoint_every=5";
        shell("cp -r shm shm.kept%s%s", "", "");
        run(&first, KEPT + 1);
        shell("rm -rf shm && mv shm.kept shm && %s%s", damages[i].command, "");
        listen();
        run(&again, STEPS);
        assert_said("warning", damages[i].said);
        assert_true(again.from_memory);
        assert_int_equal(again.start_step, KEPT);
        assert_undisturbed(&again, KEPT);
        assert_string_equal(in_memory(""), "");
    }
}

// ---- a copy that is not finite ----

static float *read_state(mics_checkpoint *from, const mics_unit *unit, const char *name)
{
    float *data = calloc((size_t)unit->elems, sizeof *data);
    assert_non_null(data);
    ASSERT_OK(mics_checkpoint_read(from, unit->name, unit->elems, name, 0, unit->elems, data));
    return data;
}

// Makes the newest copy once more, of one rank's whole state, with a number that is not finite.
static void poison_copy(void)
{
    static const char *const names[] = {MICS_STATE_PARAM, "exp_avg", "exp_avg_sq"};
    enum { MAX_UNITS = 8 };
    mics_optimizer_shard shards[MAX_UNITS] = {0};
    mics_manifest_unit units[MAX_UNITS];
    mics_node_copies copies = {0};
    mics_checkpoint *checkpoint = NULL;
    mics_saved *saved = NULL;
    mics_node_file file;
    char root[600], *slot = NULL;
    snprintf(root, sizeof root, "%s", in_memory(""));
    ASSERT_OK(mics_node_scan(memory, root, &copies));
    assert_true(copies.count > 0);
    const mics_node_key key = copies.list[0].key;
    ASSERT_OK(mics_checkpoint_open(memory, copies.list[0].folder, &checkpoint));
    ASSERT_OK(mics_saved_open(memory, "poison", NULL, &saved));
    const mics_model *model = mics_saved_facts_get(saved).model;
    assert_true(model->unit_count <= MAX_UNITS);
    for (int32_t u = 0; u < model->unit_count; u++) {
        const mics_unit *unit = &model->units[u];
        units[u] = (mics_manifest_unit){unit->name, unit->elems};
        shards[u] = (mics_optimizer_shard){
            .unit = unit->name, .unit_elems = unit->elems, .end = unit->elems, .state_count = 3};
        for (int n = 0; n < 3; n++) {
            float *data = read_state(checkpoint, unit, names[n]);
            if (u == 1 && n == 1)
                data[7] = NAN;
            shards[u].states[n] = (mics_shard_state){names[n], MICS_DTYPE_FP32, data};
        }
    }
    ASSERT_OK(mics_node_begin(memory, root, 0, key.slot, &slot));
    ASSERT_OK(mics_node_write(memory, slot, key.step, 0, 1, shards, model->unit_count, &file));
    const mics_node_manifest manifest = {.meta = mics_checkpoint_meta_get(checkpoint),
                                         .files = &file,
                                         .file_count = 1,
                                         .units = units,
                                         .unit_count = model->unit_count,
                                         .slot = key.slot,
                                         .serial = key.serial};
    ASSERT_OK(mics_node_commit(memory, slot, &manifest, (const bool[]){true}));
    for (int32_t u = 0; u < model->unit_count; u++) {
        for (int n = 0; n < 3; n++)
            free((void *)shards[u].states[n].data);
    }
    mics_free(memory, slot);
    mics_saved_close(saved);
    mics_checkpoint_close(checkpoint);
    mics_node_copies_fini(memory, &copies);
}

static void test_copy_that_is_not_finite(void **state)
{
    (void)state;
    training first = make("poison", (mics_sharding){1, 1, 1}), again;
    first.ranks = first.nodes = 1;
    again = first;
    shell("rm -rf shm/* poison%s%s", "", "");
    first.set = "run.checkpoint_every=3";
    run(&first, LAST); // 3 on disk, 4 in memory
    poison_copy();
    listen();
    run(&again, STEPS);
    assert_said("warning", "resumes from poison/checkpoints/step-00000003 instead of step 4");
    assert_false(again.from_memory);
    assert_int_equal(again.start_step, 3);
    assert_undisturbed(&again, 3);
    // Nothing on disk: no way back.
    shell("rm -rf shm/* poison%s%s", "", "");
    first.set = "run.checkpoint_every=1";
    run(&first, 1);
    first.set = NULL;
    run(&first, LAST);
    poison_copy();
    shell("rm -r poison/checkpoints%s%s", "", "");
    listen();
    ASSERT_STATUS(MICS_ERR_INVALID, try_run(&again, STEPS, memory));
    assert_said("error", "none of its checkpoints can be resumed from");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_damage_is_passed_over),
        cmocka_unit_test(test_damage_on_one_node),
        cmocka_unit_test(test_disk_that_is_damaged),
        cmocka_unit_test(test_copy_that_is_not_finite),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
