// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// What a run does when replicas differ, when a loss cannot be right, and when it is a spike.
#include "faults/live.h"
#include "test.h"
#include <math.h>
#include <sys/stat.h>
#include <unistd.h>

static char work[] = "/dev/shm/mics-guard-XXXXXX";

enum { STEPS = 12 };

typedef struct layout {
    const char *name;
    int32_t ranks;
    mics_sharding sharding;
} layout;

static const layout LAYOUTS[] = {
    {"ddp", 2, {1, 1, 1}},     {"ddp", 3, {1, 1, 1}},        {"ddp", 4, {1, 1, 1}},
    {"mics(2)", 4, {2, 2, 2}}, {"1|1|2 of 4", 4, {1, 1, 2}}, {"1|2|2 of 4", 4, {1, 2, 2}},
};
enum { LAYOUT_COUNT = sizeof LAYOUTS / sizeof LAYOUTS[0] };

static live_run run_of(const layout *of)
{
    return (live_run){.ranks = of->ranks,
                      .sharding = of->sharding,
                      .steps = STEPS,
                      .sets = {"run.check_replicas_every=3", "run.checkpoint_every=5"}};
}

static void go_without_flip(live_run *run)
{
    run->flip.kind = LIVE_NONE;
    live_go(run, false);
    ASSERT_OK(run->status);
    assert_int_equal(run->heard_steps, STEPS);
    assert_int_equal(run->warnings, 0);
}

static void go_undisturbed(const layout *of, live_run *run)
{
    *run = run_of(of);
    go_without_flip(run);
}

static void expect(const char *text, const char *part)
{
    if (strstr(text, part) == NULL)
        fail_msg("\"%s\" lacks \"%s\"", text, part);
}

// ---- rewinding ----

static void check_rewound(const layout *of, const live_run *undisturbed, live_kind kind,
                          int64_t after)
{
    live_run run = run_of(of);
    run.flip =
        (live_flip){.kind = kind,
                    .rank = of->ranks - 1,
                    .after = after,
                    .unit = (int32_t)after % 3, // of the last one some ranks have padding alone
                    .elem = 17 + after,
                    .bit = 20};
    live_go(&run, false);
    if (run.status != MICS_OK || run.warnings == 0 || !live_same(&run, undisturbed, 1))
        fail_msg("%s of %d, kind %d after step %d: %s, %d warnings (%s), %s", of->name,
                 (int)of->ranks, (int)kind, (int)after, mics_status_name(run.status),
                 (int)run.warnings, run.warning,
                 live_same(&run, undisturbed, 1) ? "same bits" : "other bits");
    // Found by the first check behind it, and before the save at its end; other gradients by the
    // step that updates with them.
    expect(run.warning, after >= 5 && after < 10 ? "goes back to step 5"
                        : after >= 10            ? "goes back to step 10"
                                                 : "goes back to step 0 (what it began with)");
    expect(run.warning, kind == LIVE_MASTERS ? "masters of unit" : "of unit");
    // What is neither compared nor saved has its update before it.
    assert_int_equal(run.due > 0, after % 3 != 0 && after % 5 != 0);
    assert_true(run.heard_steps > STEPS);
}

static void test_flips_are_found_and_undone(void **state)
{
    (void)state;
    for (int i = 0; i < LAYOUT_COUNT; i++) {
        live_run undisturbed;
        go_undisturbed(&LAYOUTS[i], &undisturbed);
        for (int kind = 0; kind < LIVE_KINDS; kind++) {
            if (kind != LIVE_MASTERS && kind != LIVE_MOMENTS && kind != LIVE_GRADS)
                continue;
            check_rewound(&LAYOUTS[i], &undisturbed, (live_kind)kind, 2 + i % 3);
            check_rewound(&LAYOUTS[i], &undisturbed, (live_kind)kind, 6 + i % 3);
            check_rewound(&LAYOUTS[i], &undisturbed, (live_kind)kind, 11);
        }
    }
}

// Metrics hold each step once, and a rank's machine is named.
static void test_metrics_are_cut(void **state)
{
    (void)state;
    live_run run = run_of(&LAYOUTS[2]);
    char host[MICS_HOST_BYTES + 4] = "(";
    run.sets[2] = "run.validation_batches=1";
    run.flip = (live_flip){.kind = LIVE_MASTERS, .rank = 2, .after = 7, .elem = 5, .bit = 3};
    live_go(&run, true);
    ASSERT_OK(run.status);
    assert_int_equal(gethostname(host + 1, MICS_HOST_BYTES), 0);
    expect(run.warning, "rank 2 (");
    expect(run.warning, host);
    assert_int_equal(system("[ \"$(grep -o '^{\"step\": [0-9]*, \"loss\"' out/metrics.jsonl | sort "
                            "-u | wc -l)\" = 12 ] && "
                            "[ \"$(grep -c '\"loss\"' out/metrics.jsonl)\" = 12 ]"),
                     0);
    assert_int_equal(system("rm -r out"), 0);
    // To the start: the validation before it is still there, and no rows are another run's.
    run.flip.after = 2;
    run.sets[3] = "run.csv=table/figures.csv";
    live_go(&run, true);
    ASSERT_OK(run.status);
    expect(run.warning, "goes back to step 0");
    assert_int_equal(system("grep -q '^{\"step\": 0, \"validation_loss\"' out/metrics.jsonl"), 0);
    assert_int_equal(system("[ \"$(ls table)\" = figures.csv ] && "
                            "[ \"$(grep -c '^[1-9][0-9]*,[0-9]' table/figures.csv)\" = 12 ]"),
                     0);
    assert_int_equal(system("rm -r out table"), 0);
}

// A machine that is bad every time ends the run, which says so.
static void test_limit(void **state)
{
    (void)state;
    live_run run = run_of(&LAYOUTS[1]);
    run.flip = (live_flip){
        .kind = LIVE_GRADS, .rank = 1, .after = 7, .elem = 9, .bit = 22, .times = 1000000};
    live_go(&run, false);
    ASSERT_STATUS(MICS_ERR_NUMERIC, run.status);
    assert_int_equal(run.errors, 1);
    expect(run.error, "rank 1 (");
    expect(run.error, "leave it out");
    expect(run.error, "checkpoints/step-00000005");
}

static void test_stop_at_divergence(void **state)
{
    (void)state;
    live_run run = run_of(&LAYOUTS[0]);
    run.sets[2] = "run.on_divergence=stop";
    run.flip = (live_flip){.kind = LIVE_MOMENTS, .rank = 1, .after = 6, .elem = 4, .bit = 1};
    live_go(&run, true);
    ASSERT_STATUS(MICS_ERR_NUMERIC, run.status);
    assert_int_equal(run.errors, 1);
    expect(run.error, "ranks 0 (");
    expect(run.error, "no majority");
    expect(run.error, "on_divergence");
    assert_int_equal(access("out/checkpoints/step-00000005/manifest.json", F_OK), 0);
    assert_int_not_equal(access("out/checkpoints/step-00000010", F_OK), 0);
    assert_int_equal(system("rm -r out"), 0);
}

// A save whose files go while it is under way waits for them.
#define SAVED "while ! [ -e out/checkpoints/step-00000010/manifest.json ]; do sleep 0.01; done; "

// The newest checkpoint is damaged: the one before it. None is left: an error.
static void test_damaged_checkpoint(void **state)
{
    (void)state;
    live_run undisturbed, run = run_of(&LAYOUTS[1]);
    go_undisturbed(&LAYOUTS[1], &undisturbed);
    run.flip = (live_flip){.kind = LIVE_MASTERS, .rank = 1, .after = 11, .elem = 3, .bit = 9};
    run.command = SAVED "for f in out/checkpoints/step-00000010/rank-*; do "
                        "printf damage | dd of=$f bs=1 seek=9000 conv=notrunc 2>/dev/null; done";
    live_go(&run, false);
    ASSERT_OK(run.status);
    expect(run.warning, "goes back to step 5");
    assert_true(live_same(&run, &undisturbed, 1));
    assert_int_equal(run.saved[6], 5); // a stop with step 10 saves that again
    run.command = SAVED "rm -r out/checkpoints/step-*";
    live_go(&run, false);
    assert_int_not_equal(run.status, MICS_OK);
    assert_int_equal(run.errors, 1);
    expect(run.error, "no state that the run could go back to");
}

// A rank that fails while all go back ends the run: that the others cannot go on says nothing of the
// states that there are.
static void test_world_ends_on_the_way_back(void **state)
{
    (void)state;
    live_run run = run_of(&LAYOUTS[1]);
    run.flip = (live_flip){.kind = LIVE_MASTERS, .rank = 1, .after = 11, .elem = 3, .bit = 9};
    run.ends_loading = 1;
    live_go(&run, false);
    ASSERT_STATUS(MICS_ERR_ABORTED, run.status);
    assert_int_equal(run.errors, 0); // who ends the world says why
    assert_string_equal(run.rewound, "");
}

// ---- node memory ----

// Copies of steps 2, 4, ... in it; checkpoints of 5 and 10, if any.
static live_run run_with_copies(const layout *of, const char *checkpoints)
{
    live_run run = run_of(of);
    run.nodes = of->ranks % 2 == 0 ? 2 : 1;
    run.sets[1] = checkpoints;
    run.sets[2] = "run.memory_checkpoint_every=2";
    run.flip =
        (live_flip){.kind = LIVE_MOMENTS, .rank = of->ranks - 1, .after = 7, .elem = 3, .bit = 19};
    return run;
}

#define DAMAGE(files)                                                                              \
    "for f in shm/mics-*/" files "/rank-*; do "                                                    \
    "printf damage | dd of=$f bs=1 seek=9000 conv=notrunc 2>/dev/null; done"

static void test_goes_back_to_node_memory(void **state)
{
    (void)state;
    static const struct {
        const char *checkpoints, *command, *back;
    } cases[] = {
        {"run.checkpoint_every=5", NULL, "goes back to step 6 (in node memory)"},
        {"run.checkpoint_every=0", NULL, "goes back to step 6 (in node memory)"},
        // Step 6 is in the first slot, as step 2 was.
        {"run.checkpoint_every=5", DAMAGE("*/slot-0"), "goes back to step 5 (out/checkpoints/"},
        {"run.checkpoint_every=0", DAMAGE("*/slot-0"), "goes back to step 4 (in node memory)"},
        {"run.checkpoint_every=0", DAMAGE("*/slot-?"), "goes back to step 0 (what it began with)"},
        {"run.checkpoint_every=5", "rm -r shm/mics-*", "goes back to step 5 (out/checkpoints/"},
        {"run.checkpoint_every=6", "rm shm/mics-*/*/slot-0/manifest.json",
         "goes back to step 6 (out/checkpoints/"},
    };
    for (int i = 0; i < LAYOUT_COUNT; i++) {
        live_run undisturbed = run_with_copies(&LAYOUTS[i], "run.checkpoint_every=5");
        go_without_flip(&undisturbed);
        for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
            live_run run = run_with_copies(&LAYOUTS[i], cases[c].checkpoints);
            run.command = cases[c].command;
            live_go(&run, false);
            ASSERT_OK(run.status);
            expect(run.warning, cases[c].back);
            if (!live_same(&run, &undisturbed, 1))
                fail_msg("%s of %d, case %d: other bits", LAYOUTS[i].name, (int)LAYOUTS[i].ranks,
                         (int)c);
            assert_int_equal(system("[ -z \"$(ls shm)\" ]"), 0); // the end is on disk
        }
    }
}

// One node's file is damaged where the other's is not, and a copy made behind it takes the place of
// the older one.
static void test_goes_back_twice(void **state)
{
    (void)state;
    live_run run = run_with_copies(&LAYOUTS[3], "run.checkpoint_every=0"), undisturbed = run;
    go_without_flip(&undisturbed);
    run.command = DAMAGE("node-1/slot-0");
    live_go(&run, false);
    ASSERT_OK(run.status);
    expect(run.warning, "goes back to step 6 (in node memory)");
    assert_true(live_same(&run, &undisturbed, 1));
    // The second time the newest copy is the one that was made on the way.
    run.flip.kind = LIVE_GRADS;
    run.flip.times = 1000000;
    run.command = NULL;
    live_go(&run, false);
    ASSERT_STATUS(MICS_ERR_NUMERIC, run.status);
    expect(run.error, "that of step 6, in node memory (--resume auto goes on from it)");
    assert_int_equal(system("rm -r shm/mics-*"), 0);
}

// ---- repairing ----

static void test_repair(void **state)
{
    (void)state;
    static const live_kind kinds[] = {LIVE_MASTERS, LIVE_MOMENTS};
    for (int ranks = 2; ranks <= 4; ranks++) {
        for (int k = 0; k < 2; k++) {
            live_run run = run_of(&LAYOUTS[ranks - 2]);
            run.sets[2] = "run.on_divergence=repair";
            run.flip = (live_flip){
                .kind = kinds[k], .rank = ranks - 1, .after = 4, .unit = 2, .elem = 8, .bit = 12};
            live_go(&run, false);
            ASSERT_OK(run.status);
            assert_true(run.warnings > 0);
            if (ranks == 2) { // no majority
                expect(run.warning, "goes back to step");
                continue;
            }
            expect(run.warning, "it has got what most hold");
            expect(run.warning, "steps since step 3");
            assert_int_equal(run.heard_steps, STEPS);
        }
    }
}

// ---- losses that cannot be right ----

// A learning rate that no model stands. What was good is saved aside, and the run resumes from it.
static void test_saved_aside(void **state)
{
    (void)state;
    live_run run = run_of(&LAYOUTS[3]), again = run_of(&LAYOUTS[3]);
    run.sets[2] = "optimizer.params.lr=50";
    run.sets[3] = "run.checkpoint_every=0";
    live_go(&run, true);
    ASSERT_STATUS(MICS_ERR_NUMERIC, run.status);
    assert_int_equal(run.errors, 1);
    expect(run.error, "parameters are as after the step before");
    expect(run.error, "--resume out/aside/step-0000000");
    char from[64];
    const char *at = strstr(run.error, "out/aside/step-");
    assert_non_null(at);
    snprintf(from, sizeof from, "%.23s", at);
    assert_int_equal(access(from, F_OK), 0);
    again.resume = from;
    live_go(&again, false);
    assert_true(again.step >= run.step);
    assert_true(again.status == MICS_OK || again.status == MICS_ERR_NUMERIC);
    if (again.status == MICS_ERR_NUMERIC && strstr(again.error, "not finite") == NULL)
        expect(again.error, "no cross-entropy"); // or the norm, where kernels round otherwise
}

// What no cross-entropy is: far above a guess, as a parameter that exists once has become huge; and
// below 0.
static void test_impossible_losses(void **state)
{
    (void)state;
    static const layout once = {"zero1", 2, {1, 1, 2}};
    live_run run = run_of(&once);
    run.steps = 40;
    run.flip = (live_flip){
        .kind = LIVE_MASTERS, .rank = 0, .after = 30, .unit = 0, .elem = 512, .bit = LIVE_HUGE};
    live_go(&run, false);
    ASSERT_STATUS(MICS_ERR_NUMERIC, run.status);
    expect(run.error, "step 31: loss 3");
    expect(run.error, "5.54518 for a guess among 256 tokens");
    run = run_of(&once);
    run.flip = (live_flip){.kind = LIVE_LOSS, .rank = 1, .after = 6};
    live_go(&run, false);
    ASSERT_STATUS(MICS_ERR_NUMERIC, run.status);
    expect(run.error, "step 7: loss -");
    expect(run.error, "no cross-entropy");
    assert_int_equal(run.errors, 1);
}

// A NaN in one replica's masters is that replica's, and not the data's.
static void test_nan_of_a_replica(void **state)
{
    (void)state;
    live_run undisturbed, run = run_of(&LAYOUTS[1]);
    go_undisturbed(&LAYOUTS[1], &undisturbed);
    run.flip = (live_flip){.kind = LIVE_MASTERS, .rank = 1, .after = 6, .elem = 40, .bit = 30};
    live_go(&run, false);
    ASSERT_OK(run.status);
    expect(run.warning, "goes back to step 5");
    assert_true(live_same(&run, &undisturbed, 1));
}

// ---- running a step again ----

static live_run transient(live_kind kind, int32_t bit)
{
    live_run run = run_of(&LAYOUTS[3]);
    run.sets[2] = "run.recheck=true";
    run.flip = (live_flip){.kind = kind, .rank = 2, .after = 7, .unit = 1, .elem = 3, .bit = bit};
    return run;
}

static void test_recheck_tells_a_machine(void **state)
{
    (void)state;
    live_run undisturbed, run = transient(LIVE_ACTIVATIONS, LIVE_NAN);
    go_undisturbed(&LAYOUTS[3], &undisturbed);
    live_go(&run, false);
    ASSERT_OK(run.status);
    expect(run.warning, "a machine is to blame");
    expect(run.warning, "rank 2 (");
    assert_true(live_same(&run, &undisturbed, 1));
    // Without it the run ends.
    run = transient(LIVE_ACTIVATIONS, LIVE_NAN);
    run.sets[2] = "run.recheck=false";
    live_go(&run, false);
    ASSERT_STATUS(MICS_ERR_NUMERIC, run.status);
    assert_int_equal(run.errors, 1);
}

static void test_recheck_tells_the_data(void **state)
{
    (void)state;
    live_run run = run_of(&LAYOUTS[3]);
    run.sets[2] = "optimizer.params.lr=1e6";
    run.sets[3] = "run.recheck=true";
    live_go(&run, false);
    ASSERT_STATUS(MICS_ERR_NUMERIC, run.status);
    assert_int_equal(run.errors, 1);
    expect(run.error, "gives the same numbers");
}

// ---- spikes ----

// A parameter that exists once becomes many times what it was: no replica contradicts it, but the
// loss jumps.
static live_run spiking(const char *what, char *set, size_t capacity)
{
    static const layout once = {"zero1", 2, {1, 1, 2}};
    live_run run = run_of(&once);
    snprintf(set, capacity, "run.on_spike=%s", what);
    run.steps = 40;
    run.sets[1] = "run.spike_zscore=2";
    run.sets[2] = set;
    run.flip = (live_flip){
        .kind = LIVE_MASTERS, .rank = 0, .after = 30, .unit = 0, .elem = 512, .bit = LIVE_LARGE};
    return run;
}

static void test_spikes(void **state)
{
    (void)state;
    char set[64];
    live_run run = spiking("warn", set, sizeof set);
    live_go(&run, false);
    ASSERT_OK(run.status);
    expect(run.warning, "standard deviations above the mean");
    const uint64_t trained = run.digest;
    run = spiking("skip", set, sizeof set);
    live_go(&run, false);
    ASSERT_OK(run.status);
    expect(run.warning, "the step is left out");
    assert_true(run.digest != trained);
    assert_int_equal(run.heard_steps, 40);
    run = spiking("stop", set, sizeof set);
    live_go(&run, false);
    ASSERT_STATUS(MICS_ERR_NUMERIC, run.status);
    expect(run.error, "--resume out/aside/step-00000030");
    assert_int_equal(run.errors, 1);
}

// Losses that only waver: many of those behind the 20th are spikes, and left out.
static live_run wavering(const layout *of)
{
    live_run run = run_of(of);
    run.steps = 60;
    run.sets[1] = "run.checkpoint_every=25";
    run.sets[2] = "run.spike_zscore=0.1";
    run.sets[3] = "run.on_spike=skip";
    run.sets[4] = "optimizer.params.lr=1e-5";
    run.sets[5] = "run.keep_checkpoints=0";
    return run;
}

// What is a spike is told by the losses before it, which checkpoints keep: a run that goes back, or
// is stopped and resumes, leaves out the same steps.
static void test_spikes_after_going_back(void **state)
{
    (void)state;
    for (int i = 0; i < LAYOUT_COUNT; i++) {
        live_run undisturbed = wavering(&LAYOUTS[i]), run = undisturbed;
        live_go(&undisturbed, true);
        ASSERT_OK(undisturbed.status);
        assert_true(undisturbed.skipped > 3);
        for (int64_t step = 25; step <= 50; step += 25) {
            char from[48];
            snprintf(from, sizeof from, "out/checkpoints/step-%08d", (int)step);
            run.resume = from;
            live_go(&run, true);
            ASSERT_OK(run.status);
            assert_true(live_same(&run, &undisturbed, step + 1));
        }
        assert_int_equal(system("rm -r out"), 0);
        run.resume = NULL;
        run.flip = (live_flip){
            .kind = LIVE_MASTERS, .rank = LAYOUTS[i].ranks - 1, .after = 40, .elem = 3, .bit = 19};
        live_go(&run, false);
        ASSERT_OK(run.status);
        assert_true(live_same(&run, &undisturbed, 1));
        // From node memory, and from what it began with.
        run.sets[1] = "run.checkpoint_every=0";
        run.flip.after = 30;
        live_go(&run, false);
        ASSERT_OK(run.status);
        assert_true(live_same(&run, &undisturbed, 1));
        run.sets[6] = "run.memory_checkpoint_every=13";
        live_go(&run, false);
        ASSERT_OK(run.status);
        expect(run.rewound, "in node memory");
        assert_true(live_same(&run, &undisturbed, 1));
    }
}

// On another mesh losses differ by rounding alone, so the same steps are left out.
static void test_spikes_on_another_mesh(void **state)
{
    (void)state;
    static const layout meshes[] = {
        {"mics(2)", 4, {2, 2, 2}}, {"alone", 1, {1, 1, 1}}, {"zero3", 2, {2, 2, 2}}};
    live_run run = wavering(&meshes[0]);
    int32_t skipped = 0;
    live_go(&run, true);
    ASSERT_OK(run.status);
    for (int i = 0; i < 3; i++) {
        run.ranks = meshes[i].ranks;
        run.sharding = meshes[i].sharding;
        run.resume = "out/checkpoints/step-00000025";
        live_go(&run, true);
        ASSERT_OK(run.status);
        assert_true(run.skipped > 0);
        assert_true(i == 0 || run.skipped == skipped);
        skipped = run.skipped;
    }
    assert_int_equal(system("rm -r out"), 0);
}

static int open_work(void **state)
{
    (void)state;
    if (mkdtemp(work) == NULL || chdir(work) != 0 || mkdir("shm", 0700) != 0 ||
        setenv("MICS_SHM_DIR", "shm", 1) != 0)
        return 1;
    return live_prepare();
}

static int close_work(void **state)
{
    char command[64];
    (void)state;
    snprintf(command, sizeof command, "rm -rf %s", work);
    return chdir("/") != 0 || system(command) != 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_flips_are_found_and_undone),
        cmocka_unit_test(test_metrics_are_cut),
        cmocka_unit_test(test_limit),
        cmocka_unit_test(test_stop_at_divergence),
        cmocka_unit_test(test_damaged_checkpoint),
        cmocka_unit_test(test_world_ends_on_the_way_back),
        cmocka_unit_test(test_goes_back_to_node_memory),
        cmocka_unit_test(test_goes_back_twice),
        cmocka_unit_test(test_repair),
        cmocka_unit_test(test_saved_aside),
        cmocka_unit_test(test_impossible_losses),
        cmocka_unit_test(test_nan_of_a_replica),
        cmocka_unit_test(test_recheck_tells_a_machine),
        cmocka_unit_test(test_recheck_tells_the_data),
        cmocka_unit_test(test_spikes),
        cmocka_unit_test(test_spikes_after_going_back),
        cmocka_unit_test(test_spikes_on_another_mesh),
    };
    return cmocka_run_group_tests(tests, open_work, close_work);
}
