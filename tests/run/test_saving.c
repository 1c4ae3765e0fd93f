// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Saves behind the steps and stops, through mics/run.h: a state that is not finite is not saved, and a run that was stopped
// in the middle of a step goes on with the bits of one that never was.
#include "base/capture.h"
#include "mics/run.h"
#include "run/run_schedule.h"
#include "run/sizing.h"
#include "run/trainer.h"
#include "test.h"
#include <fcntl.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define STATE_NAME(name) #name,

enum { STEPS = 8, RANKS = 4, POISON_AFTER = 3, SHORT = 3, KEPT = 2 }; // SHORT: micro-steps

static char work[] = "/tmp/mics-saving-XXXXXX";
static mics_memory *memory;

typedef struct heard {
    mics_job *job;
    bool alone;             // one rank
    double loss[STEPS + 1]; // by step
    bool poisons;
    float parameter;    // with it; 0: with infinity, as a second moment
    int32_t poisoned;   // rank
    int64_t saved;      // newest step that was reported
    int32_t held;       // checkpoints then
    const char *blocks; // a path where nothing can be saved, from POISON_AFTER on
} heard;

// A second moment that overflows makes updates vanish, and no loss tells. It exists once, so that no
// replica tells either.
static void poison(const mics_job *job, int32_t rank, float parameter)
{
    const mics_engine_optimizer_shard shard =
        mics_engine_optimizer_shard_get(job->trainers[rank].context.engine, 1);
    if (parameter > 0)
        shard.params[0] = parameter;
    else
        shard.states[1][0] = INFINITY;
}

static void on_step(void *ctx, const mics_metrics *metrics)
{
    heard *self = ctx;
    self->loss[metrics->step] = metrics->loss;
    if (self->poisons && metrics->step == POISON_AFTER)
        poison(self->job, self->poisoned, self->parameter);
    if (self->blocks != NULL && metrics->step == POISON_AFTER)
        fclose(fopen(self->blocks, "w"));
}

static void on_checkpoint(void *ctx, int64_t step, const char *path)
{
    char manifest[4096];
    snprintf(manifest, sizeof manifest, "%s/manifest.json", path);
    assert_int_equal(access(manifest, F_OK), 0);
    ((heard *)ctx)->saved = step;
    ((heard *)ctx)->held = 0;
    for (int64_t held = 1; held <= step; held++) {
        snprintf(manifest, sizeof manifest, "%s/../step-%08lld/manifest.json", path,
                 (long long)held);
        ((heard *)ctx)->held += access(manifest, F_OK) == 0;
    }
}

// Masters exist `replicas` times.
static mics_job *open_saving(const char *out, heard *ears, int64_t micro_steps, int64_t every,
                             int32_t replicas, const char *set)
{
    static const char *const texts[] = {"text.txt"};
    const char *sets[] = {"run.validation_batches=0", "run.threads=1",     "run.device=cpu",
                          "run.comm_timeout_s=60",    "run.scrub_every=0", set};
    mics_run_values values = {.model_config = "model.json",
                              .train = texts,
                              .train_count = 1,
                              .sequence_length = 16,
                              .steps = STEPS,
                              .seed = 3,
                              .out = out,
                              .checkpoint_every = every,
                              .micro_batch = 2,
                              .micro_steps = micro_steps,
                              .learning_rate = 3e-3,
                              .sharding = {2, 2, RANKS / replicas}};
    if (ears->alone)
        values.sharding = (mics_sharding){1, 1, 1};
    const mics_job_spec spec = {
        .memory = memory,
        .values = &values,
        .sets = sets,
        .set_count = set != NULL ? 6 : 5,
        .ranks = ears->alone ? 1 : RANKS,
        .nodes = 1,
        .callbacks = {.ctx = ears, .step = on_step, .checkpoint = on_checkpoint}};
    ASSERT_OK(mics_job_open(&spec, &ears->job));
    return ears->job;
}

static mics_job *open_job(const char *out, heard *ears, int64_t micro_steps, const char *limit)
{
    return open_saving(out, ears, micro_steps, 2, 1, limit);
}

static void check_poisoned(const char *out, const char *limit)
{
    heard ears = {.poisons = true};
    capture seen;
    char path[256];
    mics_job *job = open_job(out, &ears, SHORT, limit);
    capture_begin(&seen);
    ASSERT_STATUS(MICS_ERR_NUMERIC, mics_job_train(job, 0));
    mics_job_close(job);
    capture_end();
    assert_int_equal(seen.errors, 1);
    assert_non_null(strstr(seen.line,
                           "step 4 is not saved: element 0 of unit h.0, state exp_avg_sq, "
                           "is inf, not finite"));
    assert_int_equal(ears.saved, 2);
    snprintf(path, sizeof path, "%s/checkpoints/step-00000004/manifest.json", out);
    assert_int_not_equal(access(path, F_OK), 0);
}

static void a_state_that_is_not_finite_is_not_saved(void **state)
{
    (void)state;
    check_poisoned("poisoned", NULL);
}

// Without memory for a copy.
static void nor_where_saves_wait(void **state)
{
    (void)state;
    heard ears = {0};
    char limit[64];
    mics_job *job = open_job("sized", &ears, SHORT, NULL);
    assert_true(mics_job_facts_get(job).save_copy_bytes > 0);
    snprintf(limit, sizeof limit, "run.memory_limit=%zuB", mics_job_schedule(job)->ledger.total);
    mics_job_close(job);
    ears = (heard){0};
    job = open_job("sized", &ears, SHORT, limit);
    assert_int_equal(mics_job_facts_get(job).save_copy_bytes, 0);
    mics_job_close(job);
    check_poisoned("waiting", limit);
}

// Also of the best alone.
static void a_choice_leaves_memory_for_what_saves_behind(void **state)
{
    (void)state;
    heard ears = {0};
    const mics_job *job = open_job("room", &ears, SHORT, NULL);
    mics_run run = *job->run;
    run.checkpoint_every = 0;
    assert_int_equal(run_save_copy_room(&run, job->schedule, &job->budget), 0);
    run.keep_best = true;
    assert_int_equal(run_save_copy_room(&run, job->schedule, &job->budget), job->save_copy_bytes);
    mics_job_close(ears.job);
}

static void check_final(const char *out, float parameter, const char *what)
{
    heard ears = {.poisons = true, .parameter = parameter};
    capture seen;
    mics_job *job = open_job(out, &ears, SHORT, NULL);
    ASSERT_OK(mics_job_train(job, POISON_AFTER));
    capture_begin(&seen);
    assert_true(mics_job_save(job) != MICS_OK);
    mics_job_close(job);
    capture_end();
    assert_non_null(strstr(seen.line, "step 3 is not saved"));
    assert_non_null(strstr(seen.line, what));
}

static void a_final_save_of_it_fails(void **state)
{
    (void)state;
    check_final("final", 0, "state exp_avg_sq, is inf, not finite");
}

// A flipped bit of an exponent. The unit's largest number is a layer norm's weight, 1: of it training
// makes no 1001, and nobody can tell of 999.
static void so_does_one_of_what_cannot_be(void **state)
{
    (void)state;
    heard ears = {.poisons = true, .parameter = 998};
    check_final("huge", 1e37F, "state param, is 1e+37, larger than it can be");
    check_final("grown", 1100, "state param, is 1100, larger than it can be");
    mics_job *job = open_job("less", &ears, SHORT, NULL);
    ASSERT_OK(mics_job_train(job, POISON_AFTER));
    ASSERT_OK(mics_job_save(job));
    ASSERT_OK(mics_job_close(job));
}

// What is written to the open file goes to a disk that is full.
static void fill_disk_of(const char *name)
{
    char link[64], path[4096];
    for (int fd = 3; fd < 256; fd++) {
        snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
        const ssize_t length = readlink(link, path, sizeof path - 1);
        path[length > 0 ? length : 0] = '\0';
        if (strstr(path, name) == NULL)
            continue;
        const int full = open("/dev/full", O_WRONLY);
        assert_int_equal(dup2(full, fd), fd);
        close(full);
    }
}

// A save that was under way fails as the job is closed, and so do its metrics.
static void the_error_at_the_end_is_that_of_a_save(void **state)
{
    (void)state;
    heard ears = {.poisons = true, .alone = true};
    mics_job *job = open_job("closed", &ears, SHORT, NULL);
    ASSERT_OK(mics_job_train(job, POISON_AFTER + 1));
    fill_disk_of("closed/metrics.jsonl");
    ASSERT_STATUS(MICS_ERR_NUMERIC, mics_job_close(job));
}

// A save that a text waits for, too.
static void texts_leave_no_older_checkpoints(void **state)
{
    (void)state;
    heard ears = {0};
    mics_job *job = open_saving("texts", &ears, SHORT, 0, 1, "run.sample_every=1");
    ASSERT_OK(mics_job_train(job, 0));
    assert_int_equal(ears.saved, STEPS);
    assert_in_range(ears.held, 1, KEPT + 2);
    ASSERT_OK(mics_job_close(job));
}

static void a_save_that_fails_before_a_text_is_a_warning(void **state)
{
    (void)state;
    heard ears = {.blocks = "blocked/checkpoints/step-00000004"};
    capture seen;
    mics_job *job = open_saving("blocked", &ears, SHORT, 0, 1, "run.sample_every=2");
    capture_begin(&seen);
    ASSERT_OK(mics_job_train(job, 0));
    capture_end();
    assert_int_equal(seen.errors, 0);
    assert_int_equal(ears.saved, STEPS);
    ASSERT_OK(mics_job_close(job));
}

static void *stop_soon(void *ctx)
{
    usleep(50 * 1000);
    mics_job_stop(ctx);
    return NULL;
}

// Steps long enough that it stops in the middle of one.
static void stop_often(const char *out, int32_t replicas, const char *set, bool keeps)
{
    enum { MICRO_STEPS = 30 };
    heard whole = {0}, parts = {0};
    char path[64];
    snprintf(path, sizeof path, "whole-%s", out);
    mics_job *job = open_saving(path, &whole, MICRO_STEPS, 2, replicas, NULL);
    ASSERT_OK(mics_job_train(job, 0));
    ASSERT_OK(mics_job_close(job));
    job = open_saving(out, &parts, MICRO_STEPS, keeps ? 0 : 2, replicas, set);
    for (int stops = 0; mics_job_facts_get(job).step < STEPS && stops < 100; stops++) {
        pthread_t thread;
        if (stops < 3)
            assert_int_equal(pthread_create(&thread, NULL, stop_soon, job), 0);
        const mics_status status = mics_job_train(job, 0);
        if (stops < 3)
            pthread_join(thread, NULL);
        const mics_job_facts facts = mics_job_facts_get(job);
        assert_true(status == MICS_OK || status == MICS_ERR_INTERRUPTED);
        assert_int_equal(facts.saved_step, facts.step);
        if (status == MICS_ERR_INTERRUPTED) {
            assert_int_equal(parts.saved, facts.step);
            const mics_job_standing at = mics_job_standing_get(job);
            assert_int_equal(at.saved_step, facts.step);
            assert_int_equal(at.kept, keeps);
            assert_int_equal(at.kept_step, keeps ? facts.step : 0);
        }
    }
    ASSERT_OK(mics_job_close(job));
    snprintf(path, sizeof path, "%s/node-memory", out);
    assert_int_not_equal(access(path, F_OK), 0);
    assert_int_equal(rmdir("shm"), 0); // all is given back
    assert_int_equal(mkdir("shm", 0700), 0);
    for (int64_t step = 1; step <= STEPS; step++)
        assert_memory_equal(&whole.loss[step], &parts.loss[step], sizeof(double));
}

static void a_stopped_run_goes_on_with_the_same_bits(void **state)
{
    (void)state;
    stop_often("parts", 1, "run.grace_s=1000", false);
    stop_often("due", 2, "run.grace_s=1000", false); // updates are in the next step
}

// Without any time for the disk: each stop is in node memory first, and then on disk too.
static void and_one_that_is_late_for_the_disk(void **state)
{
    (void)state;
    stop_often("late", 1, "run.grace_s=0", true);
    stop_often("due-late", 2, "run.grace_s=0", true);
}

static void write_file(const char *name, const char *text)
{
    FILE *file = fopen(name, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

// ---- the table of states ----

static const char *const states[] = {RUN_SAVE_STATE_LIST(STATE_NAME)};

// docs/reliability.md lists the moves of the code, in the same order.
static void the_page_lists_all_moves(void **state)
{
    FILE *page = fopen(MICS_TEST_DATA "/../../docs/reliability.md", "r");
    char line[512], from[16], to[16];
    int moves = 0;
    bool here = false;
    (void)state;
    assert_non_null(page);
    while (fgets(line, sizeof line, page) != NULL) {
        if (line[0] == '#')
            here = strcmp(line, "## States of a save\n") == 0;
        if (!here || sscanf(line, "| %15[A-Z] | %15[A-Z] |", from, to) != 2)
            continue;
        assert_in_range(moves, 0, RUN_SAVE_MOVES - 1);
        assert_string_equal(from, states[run_save_moves[moves].from]);
        assert_string_equal(to, states[run_save_moves[moves].to]);
        moves++;
    }
    fclose(page);
    assert_int_equal(moves, RUN_SAVE_MOVES);
}

static unsigned int moves_of(const mics_job *job)
{
    unsigned int moved = 0;
    for (int rank = 0; rank < RANKS; rank++)
        moved |= job->trainers[rank].followers.saving.saver.moved;
    return moved;
}

static unsigned int close_walked(mics_job *job)
{
    const unsigned int moved = moves_of(job);
    (void)mics_job_close(job);
    return moved;
}

static unsigned int walk_to_the_end(void)
{
    heard ears = {0};
    mics_job *job = open_saving("walk", &ears, SHORT, 2, 1, "run.memory_checkpoint_every=3");
    ASSERT_OK(mics_job_train(job, 0));
    return close_walked(job);
}

static unsigned int walk_a_save_that_one_rank_fails(void)
{
    heard ears = {.poisons = true, .poisoned = RANKS - 1};
    mics_job *job = open_job("walk-poison", &ears, SHORT, NULL);
    ASSERT_STATUS(MICS_ERR_NUMERIC, mics_job_train(job, 0));
    return close_walked(job);
}

static unsigned int walk_a_commit_that_fails(void)
{
    heard ears = {0};
    mics_job *job = open_job("walk-block", &ears, SHORT, NULL);
    ASSERT_OK(mics_job_train(job, SHORT));
    ASSERT_OK(mics_job_save(job));
    assert_int_equal(unlink("walk-block/checkpoints/latest"), 0);
    assert_int_equal(mkdir("walk-block/checkpoints/latest", 0700), 0);
    write_file("walk-block/checkpoints/latest/file", "");
    ASSERT_OK(mics_job_train(job, 2));
    ASSERT_STATUS(MICS_ERR_IO, mics_job_save(job));
    return close_walked(job);
}

static bool has_moved(unsigned int moved, run_save_state from, run_save_state to)
{
    int move = 0;
    while (run_save_moves[move].from != from || run_save_moves[move].to != to)
        move++;
    return (moved >> move & 1U) != 0;
}

// In the first step, whose state the savers then write by themselves, with time enough for the disk.
// Steps are longer each time, until one is long enough.
static unsigned int walk_a_stop_in_a_step(void)
{
    unsigned int moved = 0;
    for (int64_t micro_steps = 30;
         !has_moved(moved, RUN_SAVE_QUEUED, RUN_SAVE_IDLE) && micro_steps < 30 << 12;
         micro_steps *= 2) {
        heard ears = {0};
        pthread_t thread;
        mics_job *job = open_saving("walk-stop", &ears, micro_steps, 0, 1, "run.grace_s=1000");
        assert_int_equal(pthread_create(&thread, NULL, stop_soon, job), 0);
        (void)mics_job_train(job, 0);
        pthread_join(thread, NULL);
        moved = close_walked(job);
        assert_int_equal(system("rm -rf walk-stop"), 0);
    }
    return moved;
}

static void all_moves_are_made(void **state)
{
    (void)state;
    const unsigned int moved = walk_to_the_end() | walk_a_save_that_one_rank_fails() |
                               walk_a_commit_that_fails() | walk_a_stop_in_a_step();
    assert_int_equal(moved >> RUN_SAVE_MOVES, 0); // one that is not in the table
    for (int move = 0; move < RUN_SAVE_MOVES; move++) {
        if ((moved >> move & 1U) == 0)
            fail_msg("no save went from %s to %s", states[run_save_moves[move].from],
                     states[run_save_moves[move].to]);
    }
}

static int begin(void **state)
{
    char text[4096] = "";
    (void)state;
    for (size_t i = 0; i + 32 < sizeof text; i += 26)
        snprintf(text + i, sizeof text - i, "the lark at break of day%c\n", (char)('a' + i % 26));
    if (mkdtemp(work) == NULL || chdir(work) != 0 || mics_memory_open(&memory) != MICS_OK)
        return 1;
    if (mkdir("shm", 0700) != 0 || setenv("MICS_SHM_DIR", "shm", 1) != 0)
        return 1;
    write_file("text.txt", text);
    write_file("model.json",
               "{\"model_type\": \"gpt2\", \"n_embd\": 16, \"n_head\": 2, \"n_layer\": 2, "
               "\"n_positions\": 16, \"vocab_size\": 256, \"attn_pdrop\": 0, \"embd_pdrop\": 0, "
               "\"resid_pdrop\": 0, \"tie_word_embeddings\": true}");
    return 0;
}

static int end(void **state)
{
    char command[64];
    (void)state;
    const int64_t leaks = mics_memory_close(memory);
    snprintf(command, sizeof command, "rm -rf %s", work);
    return system(command) == 0 && leaks == 0 ? 0 : 1;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_state_that_is_not_finite_is_not_saved),
        cmocka_unit_test(nor_where_saves_wait),
        cmocka_unit_test(a_choice_leaves_memory_for_what_saves_behind),
        cmocka_unit_test(a_final_save_of_it_fails),
        cmocka_unit_test(so_does_one_of_what_cannot_be),
        cmocka_unit_test(the_error_at_the_end_is_that_of_a_save),
        cmocka_unit_test(texts_leave_no_older_checkpoints),
        cmocka_unit_test(a_save_that_fails_before_a_text_is_a_warning),
        cmocka_unit_test(a_stopped_run_goes_on_with_the_same_bits),
        cmocka_unit_test(and_one_that_is_late_for_the_disk),
        cmocka_unit_test(the_page_lists_all_moves),
        cmocka_unit_test(all_moves_are_made),
    };
    return cmocka_run_group_tests(tests, begin, end);
}
