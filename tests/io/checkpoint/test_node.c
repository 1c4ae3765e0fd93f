// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// The folder of copies in node memory: files written over longer and shorter ones, what is removed and what is
// not, and what is refused.
#include "base/capture.h"
#include "io/checkpoint/node.h"
#include "io/checkpoint/scratch.h"
#include <sys/stat.h>

enum { ELEMS = 300000, STEP = 7 };

static mics_memory *memory;
static scratch place;

// One state of one unit, as file `file` of two.
static mics_node_file write_file(const char *slot, int32_t file, int64_t elems, float value)
{
    float *data = malloc((size_t)elems * sizeof *data);
    mics_node_file written = {0};
    assert_non_null(data);
    for (int64_t i = 0; i < elems; i++)
        data[i] = value + (float)i;
    const mics_optimizer_shard shard = {
        .unit = "a",
        .unit_elems = 2 * elems,
        .begin = file * elems,
        .end = (file + 1) * elems,
        .state_count = 1,
        .states = {{.name = MICS_STATE_PARAM, .dtype = MICS_DTYPE_FP32, .data = data}}};
    ASSERT_OK(mics_node_write(memory, slot, STEP, file, 2, &shard, 1, &written));
    free(data);
    return written;
}

// A copy of files of so many elements; without `own` the node does not keep file 0.
static void make_copy(const char *root, int32_t slot, int64_t elems, int64_t serial, bool own)
{
    const mics_checkpoint_meta meta = {.step = STEP,
                                       .model_json = "{}",
                                       .tokenizer = "there.json",
                                       .tokenizer_text = "{}",
                                       .tokenizer_bytes = 2,
                                       .precision = "fp32",
                                       .optimizer = "SGD",
                                       .sharding = {1, 1, 2},
                                       .layered_micro_steps = 1};
    mics_manifest_unit unit = {"a", 2 * elems};
    mics_node_file files[2];
    const bool keeps[2] = {own, true};
    char *folder = NULL;
    ASSERT_OK(mics_node_begin(memory, root, 0, slot, &folder));
    for (int32_t i = 0; i < 2; i++)
        files[i] = write_file(folder, i, elems, (float)serial);
    const mics_node_manifest manifest = {.meta = &meta,
                                         .files = files,
                                         .file_count = 2,
                                         .units = &unit,
                                         .unit_count = 1,
                                         .slot = slot,
                                         .serial = serial};
    ASSERT_OK(mics_node_commit(memory, folder, &manifest, keeps));
    mics_free(memory, folder);
}

static bool is_good(const mics_node_copy *copy, int32_t file)
{
    bool good = false;
    ASSERT_OK(mics_node_check_file(memory, copy, file, &good));
    return good;
}

static const char *make_root(void)
{
    static char root[SCRATCH_PATH * 2];
    snprintf(root, sizeof root, "%s", scratch_path(&place, "mics-root"));
    ASSERT_OK(mics_node_make_root(root));
    return root;
}

static void test_copies_replace_one_another(void **state)
{
    (void)state;
    static const int64_t sizes[] = {ELEMS, 5, ELEMS + 7, 64};
    const char *root = make_root();
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        mics_node_copies copies;
        make_copy(root, 0, sizes[i], (int64_t)i + 1, true);
        ASSERT_OK(mics_node_scan(memory, root, &copies));
        assert_int_equal(copies.count, 1);
        assert_int_equal(copies.list[0].key.serial, i + 1);
        assert_true(is_good(&copies.list[0], 0) && is_good(&copies.list[0], 1));
        mics_node_copies_fini(memory, &copies);
    }
    make_copy(root, 1, 9, 100, false);
    mics_node_copies copies;
    int64_t used = 0, left = 0;
    ASSERT_OK(mics_node_scan(memory, root, &copies));
    assert_int_equal(copies.count, 2);
    assert_int_equal(copies.list[0].key.serial, 100); // newest first
    assert_false(is_good(&copies.list[0], 0));        // not kept here
    assert_true(is_good(&copies.list[0], 1));
    mics_node_copies_fini(memory, &copies);
    ASSERT_OK(mics_node_space(root, &used, &left));
    assert_true(used > 0 && left > 0);
    // A slot that is written again does not count meanwhile.
    char *folder = NULL;
    ASSERT_OK(mics_node_begin(memory, root, 0, 1, &folder));
    mics_free(memory, folder);
    ASSERT_OK(mics_node_scan(memory, root, &copies));
    assert_int_equal(copies.count, 1);
    mics_node_copies_fini(memory, &copies);
    mics_node_remove(root);
    assert_false(file_exists(root));
}

static void test_only_ours_is_removed(void **state)
{
    (void)state;
    static const char *const folders[] = {"node-0", "node-1", "node-12",
                                          "node-",  "nodes",  "resume-a-0"};
    static const bool stays[] = {true, false, false, true, true, false};
    const char *root = make_root();
    char path[SCRATCH_PATH * 4];
    for (size_t i = 0; i < sizeof folders / sizeof folders[0]; i++) {
        snprintf(path, sizeof path, "%s/%s", root, folders[i]);
        assert_int_equal(mkdir(path, 0700), 0);
    }
    // A link in what is removed leads to a file that stays.
    file_write(scratch_path(&place, "kept"), "x", 1);
    snprintf(path, sizeof path, "%s/node-1/link", root);
    assert_int_equal(symlink(place.dir, path), 0);
    mics_node_remove_from(root, 1);
    for (size_t i = 0; i < sizeof folders / sizeof folders[0]; i++) {
        snprintf(path, sizeof path, "%s/%s", root, folders[i]);
        assert_int_equal(file_exists(path), stays[i]);
    }
    assert_true(file_exists(scratch_path(&place, "kept")));
    mics_node_remove(root);
}

static void test_refusals(void **state)
{
    (void)state;
    capture seen;
    bool there = true;
    const char *root = make_root();
    char *folder = NULL, *path = NULL;
    int fd = -1;
    // A rank file that is a link, or a folder, is not written through.
    ASSERT_OK(mics_node_begin(memory, root, 0, 0, &folder));
    char file[SCRATCH_PATH * 4];
    snprintf(file, sizeof file, "%s/rank-00000.safetensors", folder);
    file_write(scratch_path(&place, "victim"), "as it was", 9);
    assert_int_equal(symlink(scratch_path(&place, "victim"), file), 0);
    capture_begin(&seen);
    ASSERT_STATUS(MICS_ERR_IO, mics_node_open_file(memory, folder, 0, true, &fd, &path));
    ASSERT_SAID(&seen, "rank-00000.safetensors: cannot be opened as a file");
    assert_int_equal(unlink(file), 0);
    assert_int_equal(mkdir(file, 0700), 0);
    ASSERT_STATUS(MICS_ERR_IO, mics_node_open_file(memory, folder, 0, true, &fd, &path));
    capture_end();
    mics_free(memory, folder);
    mics_node_remove(root);
    // A root that is a link or open to others.
    ASSERT_OK(mics_node_check_root(root, &there));
    assert_false(there);
    assert_int_equal(symlink(place.dir, root), 0);
    capture_begin(&seen);
    ASSERT_STATUS(MICS_ERR_INVALID, mics_node_make_root(root));
    ASSERT_SAID(&seen, "is no folder of this user alone");
    assert_int_equal(unlink(root), 0);
    assert_int_equal(mkdir(root, 0700), 0);
    assert_int_equal(chmod(root, 0750), 0);
    ASSERT_STATUS(MICS_ERR_INVALID, mics_node_check_root(root, &there));
    ASSERT_SAID(&seen, "is no folder of this user alone");
    capture_end();
    assert_int_equal(rmdir(root), 0);
}

static void test_ids(void **state)
{
    (void)state;
    char one[MICS_NODE_ID_BYTES], two[MICS_NODE_ID_BYTES];
    ASSERT_OK(mics_node_draw_id(one));
    ASSERT_OK(mics_node_draw_id(two));
    assert_true(mics_node_is_id(one) && mics_node_is_id(two));
    assert_string_not_equal(one, two);
    assert_false(mics_node_is_id(""));
    one[3] = '/';
    assert_false(mics_node_is_id(one));
    two[31] = '\0';
    assert_false(mics_node_is_id(two));
}

static int set_up(void **state)
{
    (void)state;
    scratch_make_fast(&place);
    return mics_memory_open(&memory) == MICS_OK ? 0 : 1;
}

static int tear_down(void **state)
{
    (void)state;
    scratch_remove(&place);
    return mics_memory_close(memory) == 0 ? 0 : 1;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_copies_replace_one_another),
        cmocka_unit_test(test_only_ours_is_removed),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_ids),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
