// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// run.scrub_every: bits that flip at rest in masters and moments that exist once are found, whatever
// the state is made of, and nothing else is taken for one. With MICS_CUDA_PLUGIN on GPUs.
#include "base/rng.h"
#include "faults/live.h"
#include "run/ranks/precision.h"
#include "test.h"
#include <unistd.h>

static char work[] = "/dev/shm/mics-scrub-XXXXXX";

enum { STEPS = 9, FLIPS = 6, MAX_SETS = 4 };

#define LORA "adapter={\"r\": 2, \"target_modules\": \"all-linear\"}"

typedef struct kind {
    const char *name;
    int32_t ranks, nodes;
    mics_sharding sharding;
    bool on_gpus; // too; the emulation is slow
    const char *sets[MAX_SETS];
} kind;

static const kind kinds[] = {
    {"one rank", 1, 1, {1, 1, 1}, false, {NULL}},
    {"zero1", 2, 1, {1, 1, 2}, true, {NULL}},
    {"zero3", 2, 1, {2, 2, 2}, false, {"run.validate_every=2", "run.validation_batches=1"}},
    {"mics+(2)", 4, 1, {2, 2, 4}, false, {"run.prefetch=2"}},
    {"bf16", 2, 1, {2, 2, 2}, false, {"run.precision=bf16"}},
    {"moments in bf16", 2, 1, {1, 2, 2}, false, {"optimizer.params.state_dtype=bf16"}},
    {"moments in 8 bits", 2, 1, {1, 2, 2}, true, {"optimizer.params.state_dtype=8bit"}},
    {"Muon", 2, 1, {2, 2, 2}, false, {"optimizer.type=Muon"}},
    {"SGD", 2, 1, {1, 1, 2}, false, {"optimizer.type=SGD", "optimizer.params.momentum=0.9"}},
    {"int8", 4, 2, {2, 2, 4}, false, {"run.comm_dtype.boundary=int8"}},
    {"shared parameters", 4, 1, {4, 4, 4}, false, {"run.share_params=true"}},
};
enum { KINDS = sizeof kinds / sizeof kinds[0] };

static bool on_gpus(void)
{
    return getenv("MICS_CUDA_PLUGIN") != NULL;
}

// Where this CPU has no bf16; "zero3" is the same then, but for a warning.
static bool goes_on_in_fp32(const kind *of)
{
    return strcmp(of->name, "bf16") == 0 && run_precision_no_bf16() != NULL;
}

static live_run run_of(const kind *of, const char *every)
{
    live_run run = {
        .ranks = of->ranks, .nodes = of->nodes, .sharding = of->sharding, .steps = STEPS};
    int32_t count = 0;
    run.sets[count++] = "run.checkpoint_every=3";
    run.sets[count++] = every;
    if (on_gpus())
        run.sets[count++] = "run.device=cuda";
    for (int i = 0; i < MAX_SETS && of->sets[i] != NULL; i++)
        run.sets[count++] = of->sets[i];
    return run;
}

static void expect(const char *text, const char *part)
{
    if (strstr(text, part) == NULL)
        fail_msg("\"%s\" lacks \"%s\"", text, part);
}

static live_flip draw_flip(const kind *of, uint64_t index)
{
    const uint64_t at = (uint64_t)(of - kinds);
    return (live_flip){.kind = LIVE_HELD,
                       .rank = (int32_t)(mics_rng_bits(at, index, 1) % (uint64_t)of->ranks),
                       .after = (int64_t)(1 + mics_rng_bits(at, index, 2) % (STEPS - 1)),
                       .unit = (int32_t)(mics_rng_bits(at, index, 3) % 3),
                       .elem = (int64_t)((mics_rng_bits(at, index, 4) % 4096) * 2 + index % 2),
                       .bit = (int32_t)(mics_rng_bits(at, index, 5) % 8)};
}

static void test_every_flip_is_found(void **state)
{
    (void)state;
    for (const kind *of = kinds; of < kinds + KINDS; of++) {
        if (on_gpus() ? !of->on_gpus : goes_on_in_fp32(of))
            continue;
        live_run plain = run_of(of, "run.scrub_every=0"), quiet = run_of(of, "run.scrub_every=1");
        live_go(&plain, false);
        if (plain.status != MICS_OK)
            fail_msg("%s: %s", of->name, plain.error);
        live_go(&quiet, false);
        ASSERT_OK(quiet.status);
        if (quiet.warnings > 0)
            fail_msg("%s: %s", of->name, quiet.warning);
        assert_true(live_same(&quiet, &plain, 1));
        for (uint64_t i = 0; i < (on_gpus() ? 2 : FLIPS); i++) {
            live_run run = run_of(of, "run.scrub_every=1");
            run.flip = draw_flip(of, i);
            live_go(&run, false);
            ASSERT_OK(run.status);
            expect(run.warning, i % 2 == 0 ? "masters of unit" : "moments of unit");
            expect(run.warning, "changed in memory since their update");
            if (!live_same(&run, &plain, 1))
                fail_msg("%s: other bits after %s", of->name, run.warning);
        }
    }
}

// A state that the run would save or stop with.
static void test_no_save_has_one(void **state)
{
    (void)state;
    live_run plain = run_of(&kinds[1], "run.scrub_every=0"),
             run = run_of(&kinds[1], "run.scrub_every=1");
    live_go(&plain, false);
    run.flip = (live_flip){.kind = LIVE_HELD, .rank = 1, .after = 5, .elem = 7, .bit = 2};
    run.saves = true;
    live_go(&run, false);
    ASSERT_OK(run.status);
    expect(run.warning, "after step 5: moments of unit embed, which only rank 1 (");
    expect(run.warning, "the run goes back to step 3");
    assert_true(live_same(&run, &plain, 1));
}

static void test_stop(void **state)
{
    (void)state;
    live_run run = run_of(&kinds[1], "run.scrub_every=1");
    run.sets[4] = run.sets[2];
    run.sets[2] = run.sets[3] = "run.on_divergence=stop";
    run.flip = (live_flip){.kind = LIVE_HELD, .rank = 0, .after = 5, .elem = 8, .bit = 6};
    live_go(&run, false);
    ASSERT_STATUS(MICS_ERR_NUMERIC, run.status);
    expect(run.error, "after step 5: masters of unit embed, which only rank 0 (");
    expect(run.error, "run.on_divergence is \"stop\"");
    assert_int_equal(run.errors, 1);
}

// Every second hash finds half, and every unit has its turn.
static void test_interval(void **state)
{
    (void)state;
    int found = 0;
    if (on_gpus()) // decided on the host
        return;
    for (int32_t unit = 0; unit < 3; unit++) {
        for (int64_t after = 4; after <= 5; after++) {
            live_run run = run_of(&kinds[1], "run.scrub_every=2");
            run.flip = (live_flip){.kind = LIVE_HELD, .rank = 1, .after = after, .unit = unit};
            live_go(&run, false);
            ASSERT_OK(run.status);
            found += run.warnings;
        }
    }
    assert_int_equal(found, 3);
}

// Frozen parameters are hashed once, and compared before each save: the run goes back to the last one,
// and reads them again.
static void test_frozen(void **state)
{
    (void)state;
    static const kind frozen[] = {
        {"LoRA, mics(2)", 4, 2, {2, 2, 2}, true, {LORA}},
        {"LoRA, whole", 1, 1, {1, 1, 1}, false, {LORA}},
        {"LoRA, zero3", 2, 1, {2, 2, 2}, false, {LORA, "run.precision=bf16"}},
        {"a layer trains", 3, 1, {1, 1, 3}, false, {"model.trainable=[\"*.h.1.*\"]"}},
    };
    for (const kind *of = frozen; of < frozen + sizeof frozen / sizeof *frozen; of++) {
        if (on_gpus() && !of->on_gpus)
            continue;
        live_run plain = run_of(of, "run.scrub_every=1"), run = plain;
        live_go(&plain, false);
        if (plain.status != MICS_OK || plain.rewound[0] != '\0')
            fail_msg("%s: %s%s", of->name, plain.error, plain.rewound);
        for (int32_t unit = 0; unit < 3; unit++) {
            run.flip = (live_flip){.kind = LIVE_FROZEN,
                                   .rank = of->ranks - 1,
                                   .after = 4 + unit,
                                   .unit = unit,
                                   .elem = 5 + unit,
                                   .bit = 6};
            live_go(&run, false);
            if (run.status != MICS_OK)
                fail_msg("%s: %s", of->name, run.error);
            expect(run.rewound, "parameters of unit");
            expect(run.rewound, unit < 2 ? "goes back to step 3" : "goes back to step 6");
            if (!live_same(&run, &plain, 1))
                fail_msg("%s: other bits after %s", of->name, run.rewound);
        }
    }
}

static int open_work(void **state)
{
    (void)state;
    return mkdtemp(work) != NULL && chdir(work) == 0 ? live_prepare() : 1;
}

static int close_work(void **state)
{
    char command[64];
    (void)state;
    snprintf(command, sizeof command, "rm -rf %s", work);
    return chdir("/") == 0 ? system(command) : 1;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_flip_is_found),
        cmocka_unit_test(test_no_save_has_one),
        cmocka_unit_test(test_stop),
        cmocka_unit_test(test_interval),
        cmocka_unit_test(test_frozen),
    };
    return cmocka_run_group_tests(tests, open_work, close_work);
}
