// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Copies of the state in node memory: ranks as threads on two nodes train, end without saving, and go on
// from memory, whole or with a node lost, with the bits of a run that never stopped. What is damaged, of
// another run or of an attempt that was given up is not taken.
#include "io/checkpoint/node.h"
#include "mics/log.h"
#include "mics/run.h"
#include "test.h"
#include <dirent.h>
#include <math.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { STEPS = 8, KEPT = 4, LAST = 5, RANKS = 4, NODES = 2 };

static char work[] = "/dev/shm/test-node-memory-XXXXXX"; // in memory: saves sync often
static mics_memory *memory;
static const char *const texts[] = {"text.txt"};

// A training, and what it comes to.
typedef struct training {
    const char *out;
    mics_sharding sharding;
    int32_t ranks, nodes;
    const char *resume;     // NULL: auto
    const char *set;        // one key more; NULL: none
    int64_t micro_batch;    // 0: 2
    double loss[STEPS + 1]; // by step
    int64_t start_step;
    bool from_memory;
} training;

static void hear_step(void *ctx, const mics_metrics *metrics)
{
    ((training *)ctx)->loss[metrics->step] = metrics->loss;
}

static mics_run_values values_of(const training *self)
{
    return (mics_run_values){.model_config = "model.json",
                             .train = texts,
                             .train_count = 1,
                             .sequence_length = 16,
                             .steps = STEPS,
                             .seed = 3,
                             .out = self->out,
                             .micro_batch = self->micro_batch > 0 ? self->micro_batch : 2,
                             .micro_steps = 2,
                             .learning_rate = 3e-3,
                             .sharding = self->sharding};
}

// Trains to step `until`, and saves there only if that is the run's last.
static mics_status try_run(training *self, int64_t until, mics_memory *with)
{
    const char *const sets[] = {"run.threads=1",
                                "run.device=cpu",
                                "run.validation_batches=0",
                                "run.memory_checkpoint_every=2",
                                "run.param_persistence_threshold=0",
                                self->set != NULL ? self->set : "run.log_every=1"};
    const mics_run_values values = values_of(self);
    const mics_job_spec spec = {.memory = with,
                                .values = &values,
                                .sets = sets,
                                .set_count = sizeof sets / sizeof sets[0],
                                .ranks = self->ranks,
                                .nodes = self->nodes,
                                .resume = self->resume,
                                .callbacks = {.ctx = self, .step = hear_step}};
    mics_job *job = NULL;
    mics_status status = mics_job_open(&spec, &job);
    if (status != MICS_OK)
        return status;
    const mics_job_facts facts = mics_job_facts_get(job);
    self->start_step = facts.start_step;
    self->from_memory = facts.from_memory;
    if (until > facts.start_step)
        status = mics_job_train(job, until - facts.start_step);
    const mics_status closed = mics_job_close(job);
    return status != MICS_OK ? status : closed;
}

static void run(training *self, int64_t until)
{
    ASSERT_OK(try_run(self, until, memory));
}

// ---- what is said ----

// Lines that were logged since listen(), whatever their level.
static struct {
    pthread_mutex_t mutex;
    char text[16384];
} said = {.mutex = PTHREAD_MUTEX_INITIALIZER};

static void hear_line(void *ctx, mics_log_level level, int32_t rank, const char *line)
{
    static const char *const levels[] = {"error", "warning", "info"};
    (void)ctx;
    (void)rank;
    pthread_mutex_lock(&said.mutex);
    const size_t used = strlen(said.text);
    snprintf(said.text + used, sizeof said.text - used, "%s: %s\n", levels[level], line);
    pthread_mutex_unlock(&said.mutex);
}

static void listen(void)
{
    said.text[0] = '\0';
    mics_log_set_sink(hear_line, NULL);
}

// Fails the test unless that was said, and ends listening.
static void assert_said(const char *level, const char *part)
{
    char begin[16];
    bool heard = false;
    mics_log_set_sink(NULL, NULL);
    snprintf(begin, sizeof begin, "%s: ", level);
    for (char *line = said.text; !heard && *line != '\0';) {
        char *end = strchr(line, '\n');
        *end = '\0';
        heard = strncmp(line, begin, strlen(begin)) == 0 && strstr(line, part) != NULL;
        *end = '\n';
        line = end + 1;
    }
    if (!heard)
        fail_msg("no %s that says \"%s\", but: %s", level, part, said.text);
}

// ---- what lies in memory ----

// Path below the only run's folder there is, or the folder itself.
static const char *in_memory(const char *name)
{
    static char paths[4][600];
    static int next;
    char *path = paths[next++ % 4];
    DIR *folder = opendir("shm");
    const struct dirent *entry;
    assert_non_null(folder);
    path[0] = '\0';
    while ((entry = readdir(folder)) != NULL) {
        if (strncmp(entry->d_name, "mics-", 5) != 0)
            continue;
        assert_int_equal(path[0], '\0');
        snprintf(path, sizeof paths[0], "shm/%s/%s", entry->d_name, name);
    }
    closedir(folder);
    return path;
}

static bool is_there(const char *path)
{
    return path[0] != '\0' && access(path, F_OK) == 0;
}

static void shell(const char *format, const char *a, const char *b)
{
    char command[2000];
    snprintf(command, sizeof command, format, a, b);
    assert_int_equal(system(command), 0);
}

// The slot of the newest copy.
static const char *newest_slot(void)
{
    return KEPT / 2 % 2 == 0 ? "slot-1" : "slot-0";
}

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

static const char *slot_file(int node, const char *name)
{
    char below[100];
    snprintf(below, sizeof below, "node-%d/%s/%s", node, newest_slot(), name);
    return in_memory(below);
}

// ---- trainings ----

static training make(const char *out, mics_sharding sharding)
{
    return (training){.out = out, .sharding = sharding, .ranks = RANKS, .nodes = NODES};
}

// One that ended after LAST steps, with its newest copy of step KEPT.
static training interrupted(const char *out, mics_sharding sharding)
{
    training first = make(out, sharding);
    shell("rm -rf shm/* %s%s", out, "");
    run(&first, LAST);
    assert_int_equal(first.start_step, 0);
    assert_false(first.from_memory);
    assert_true(is_there(slot_file(0, "manifest.json")));
    return first;
}

// Losses from a step on, and the last weights, are those of a run that never stopped, with the same
// `sharding` and key.
static void assert_undisturbed(const training *self, int64_t from)
{
    training whole = make("whole", self->sharding);
    whole.ranks = self->ranks;
    whole.nodes = self->nodes;
    whole.set = self->set;
    shell("rm -rf whole%s%s", "", "");
    run(&whole, STEPS);
    for (int64_t step = from + 1; step <= STEPS; step++)
        assert_memory_equal(&whole.loss[step], &self->loss[step], sizeof(double));
    shell("for file in whole/checkpoints/step-*8/rank-*; do cmp $file %s/${file#whole/} || exit 1; "
          "done%s",
          self->out, "");
}

static void assert_goes_on(training *self, bool from_memory, int64_t step)
{
    run(self, STEPS);
    assert_int_equal(self->from_memory, from_memory);
    assert_int_equal(self->start_step, step);
    assert_undisturbed(self, step);
    // The state is on disk, so memory is given back.
    assert_string_equal(in_memory(""), "");
}

static const mics_sharding ZERO3 = {4, 4, 4}, MICS2 = {2, 2, 2};

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
    shell("rm shm/*/node-*/slot-*/rank-00002.mics%s%s", "", "");
    listen();
    run(&again, STEPS);
    assert_said("warning", "step 4 is not whole: 1 of its 4 files");
    assert_false(again.from_memory);
    assert_int_equal(again.start_step, 0); // nothing on disk either
}

// The newest copy is damaged on every node that has it: the one before is taken.
static void test_damage_is_passed_over(void **state)
{
    (void)state;
    static const struct {
        const char *file, *said;
        long at;
    } damages[] = {{"rank-00001.mics", "differ from their checksum", 5000},
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
    flip(slot_file(0, "rank-00001.mics"), 5000);
    shell("truncate -s -1 %s%s", slot_file(1, "rank-00000.mics"), "");
    listen();
    assert_goes_on(&again, true, KEPT);
    assert_said("warning", "differ from their checksum");
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

// The checkpoint on disk is newer than the copy, and proves to be damaged, when it is opened or when its
// data are read: the copy is next, and not an older checkpoint.
static void test_disk_that_is_damaged(void **state)
{
    (void)state;
    static const struct {
        const char *command, *said;
    } damages[] = {
        {"cd damaged/checkpoints/step-00000005 && printf x | dd of=rank-00001.mics bs=1 seek=5001 "
         "conv=notrunc 2>/dev/null",
         "differ from their checksum"},
        {"truncate -s 300 damaged/checkpoints/step-00000005/manifest.json", "manifest.json"},
        {"rm damaged/checkpoints/step-00000005/rank-00003.mics", "missing"},
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
    again.set = "run.seed=4";
    listen();
    ASSERT_STATUS(MICS_ERR_INVALID, try_run(&again, STEPS, memory));
    assert_said("error", "was made with run.seed 3, this run has 4");
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

// ---- the folder ----

static int set_up(void **state)
{
    (void)state;
    FILE *model, *text;
    if (mkdtemp(work) == NULL || chdir(work) != 0 || mkdir("shm", 0700) != 0 ||
        setenv("MICS_SHM_DIR", "shm", 1) != 0)
        return 1;
    model = fopen("model.json", "w");
    text = fopen("text.txt", "w");
    if (model == NULL || text == NULL)
        return 1;
    fputs("{\"model_type\": \"gpt2\", \"activation_function\": \"gelu_new\", \"n_embd\": 16, "
          "\"n_head\": 2, \"n_layer\": 2, \"n_positions\": 16, \"vocab_size\": 256, "
          "\"layer_norm_epsilon\": 1e-05, \"initializer_range\": 0.02, \"attn_pdrop\": 0.0, "
          "\"embd_pdrop\": 0.0, \"resid_pdrop\": 0.0, \"tie_word_embeddings\": true}\n",
          model);
    for (int i = 0; i < 4000; i++)
        fputc('a' + i * i % 23, text);
    fclose(model);
    fclose(text);
    return mics_memory_open(&memory) == MICS_OK ? 0 : 1;
}

static int tear_down(void **state)
{
    (void)state;
    char command[100];
    snprintf(command, sizeof command, "rm -rf %s", work);
    return mics_memory_close(memory) == 0 && system(command) == 0 ? 0 : 1;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_sharding_survives_any_node),
        cmocka_unit_test(test_other_meshes),
        cmocka_unit_test(test_too_much_lost),
        cmocka_unit_test(test_damage_is_passed_over),
        cmocka_unit_test(test_damage_on_one_node),
        cmocka_unit_test(test_foreign_folders),
        cmocka_unit_test(test_disk_that_is_newer),
        cmocka_unit_test(test_disk_that_is_damaged),
        cmocka_unit_test(test_copy_that_is_not_finite),
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
