// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Local steps that are resumed: in the middle of a period with the same bits, on another mesh of as many
// islands, with other islands where they had agreed, and an error elsewhere; and what others read of such
// checkpoints.
#include "exact.h"
#include "io/checkpoint/catalog.h"
#include "run/save/saved.h"
#include "small_gpt2.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { STEPS = 10, RANKS = 4, NODES = 2, BATCH = 8, MAX_SETS = 8 };

static char work[] = "/tmp/mics-islands-XXXXXX";
static mics_memory *memory;

typedef struct training {
    const char *out, *resume;
    const char *sets[MAX_SETS];
    int32_t ranks; // 0: RANKS
    int64_t steps; // 0: STEPS
    double loss[2 * STEPS], validation[2 * STEPS];
    char note[256], lines[CAPTURE_LINES];
    mics_status status; // of opening
} training;

static void on_step(void *ctx, const mics_metrics *metrics)
{
    training *self = ctx;
    self->loss[metrics->step] = metrics->loss;
}

static void on_validation(void *ctx, int64_t step, double loss)
{
    training *self = ctx;
    self->validation[step] = loss;
}

static void on_note(void *ctx, const char *line)
{
    training *self = ctx;
    if (strstr(line, "island") != NULL)
        snprintf(self->note, sizeof self->note, "%s", line);
}

static void go(training *self)
{
    static const char *const train[] = {"text.txt"};
    const char *sets[MAX_SETS + 8] = {"run.threads=1",          "run.device=cpu",
                                      "run.comm_timeout_s=60",  "run.validation_batches=2",
                                      "run.checkpoint_every=1", "run.keep_checkpoints=0",
                                      "run.validate_every=4",   "scheduler.type=constant"};
    int32_t count = 8;
    const int32_t ranks = self->ranks > 0 ? self->ranks : RANKS;
    for (int i = 0; i < MAX_SETS && self->sets[i] != NULL; i++)
        sets[count++] = self->sets[i];
    const mics_run_values values = {.model_config = "gpt2.json",
                                    .train = train,
                                    .train_count = 1,
                                    .sequence_length = 16,
                                    .steps = self->steps > 0 ? self->steps : STEPS,
                                    .seed = 3,
                                    .out = self->out,
                                    .micro_batch = 1,
                                    .micro_steps = BATCH / ranks,
                                    .learning_rate = 3e-3};
    const mics_job_spec spec = {
        .memory = memory,
        .values = &values,
        .sets = sets,
        .set_count = count,
        .ranks = ranks,
        .nodes = NODES,
        .resume = self->resume,
        .callbacks = {.ctx = self, .step = on_step, .validation = on_validation, .note = on_note}};
    mics_job *job = NULL;
    self->status = open_told(&spec, self->lines, &job);
    if (self->status == MICS_OK)
        (void)train_exactly(job, 0);
}

static void go_well(training *self)
{
    go(self);
    if (self->status != MICS_OK)
        fail_msg("%s: %s", self->out, self->lines);
}

#define SHARDS(p, o) "sharding={\"params\": " #p ", \"optimizer\": " #o "}"

// ---- checkpoints ----

static char *step_of(const char *out, int64_t step, char text[128])
{
    snprintf(text, 128, "%s/checkpoints/step-%08lld", out, (long long)step);
    return text;
}

static float *read_state(const mics_checkpoint *checkpoint, const char *unit, int64_t elems,
                         const char *state)
{
    float *data = malloc((size_t)elems * sizeof *data);
    assert_non_null(data);
    ASSERT_OK(mics_checkpoint_read(checkpoint, unit, elems, state, 0, elems, data));
    return data;
}

static int64_t differing(const mics_checkpoint *a, const mics_checkpoint *b,
                         const mics_catalog_unit *unit, const char *state)
{
    float *left = read_state(a, unit->name, unit->elems, state);
    float *right = read_state(b, unit->name, unit->elems, state);
    int64_t count = 0;
    for (int64_t i = 0; i < unit->elems; i++)
        count += memcmp(&left[i], &right[i], sizeof *left) != 0;
    free(left);
    free(right);
    return count;
}

// Every state of every unit and island.
static void expect_same(const char *out, const char *other, int64_t step)
{
    char path[128], other_path[128], manifest_path[160];
    mics_checkpoint *a = NULL, *b = NULL;
    mics_manifest manifest = {0};
    mics_catalog catalog = {0};
    step_of(out, step, path);
    snprintf(manifest_path, sizeof manifest_path, "%s/manifest.json", path);
    ASSERT_OK(mics_checkpoint_open(memory, path, &a));
    ASSERT_OK(mics_checkpoint_open(memory, step_of(other, step, other_path), &b));
    ASSERT_OK(mics_manifest_load(memory, manifest_path, &manifest));
    ASSERT_OK(mics_catalog_load(memory, path, &manifest, step, &catalog));
    for (int32_t u = 0; u < catalog.unit_count; u++) {
        const mics_rank_shard *shard = catalog.shards[catalog.units[u].first].shard;
        for (int32_t s = 0; s < shard->state_count; s++) {
            const int64_t count = differing(a, b, &catalog.units[u], shard->states[s].name);
            if (count > 0)
                fail_msg("%s: %lld elements of %s.%s differ from %s", path, (long long)count,
                         shard->unit, shard->states[s].name, other_path);
        }
    }
    const mics_checkpoint_outer *left = &mics_checkpoint_meta_get(a)->outer,
                                *right = &mics_checkpoint_meta_get(b)->outer;
    assert_int_equal(left->islands, right->islands);
    assert_int_equal(left->met, right->met);
    assert_int_equal(left->windows, right->windows);
    for (int32_t i = 0; i < left->windows * left->islands; i++)
        assert_int_equal(left->counted[i], right->counted[i]);
    mics_catalog_fini(memory, &catalog);
    mics_manifest_fini(memory, &manifest);
    mics_checkpoint_close(a);
    mics_checkpoint_close(b);
}

static bool is_agreed(const char *out, int64_t step)
{
    char path[128];
    mics_checkpoint *checkpoint = NULL;
    ASSERT_OK(mics_checkpoint_open(memory, step_of(out, step, path), &checkpoint));
    const bool agreed = mics_checkpoint_is_agreed(&mics_checkpoint_meta_get(checkpoint)->outer);
    mics_checkpoint_close(checkpoint);
    return agreed;
}

// ---- as many islands ----

static const struct {
    const char *name, *shards, *outer, *more;
    const char *other; // another sharding
} kinds[] = {
    {"whole", SHARDS(2, 2), "outer={\"every\": 4}", NULL, SHARDS(1, 2)},
    {"replicas", SHARDS(1, 1), "outer={\"every\": 3, \"fragments\": 2}", NULL, SHARDS(2, 2)},
    {"single", SHARDS(1, 1), "outer={\"every\": 4, \"ranks\": 1}", NULL, NULL},
    {"beside", SHARDS(1, 2), "outer={\"every\": 4, \"fragments\": 2, \"overlap_steps\": 2}", NULL,
     SHARDS(1, 1)},
    {"int8", SHARDS(1, 1), "outer={\"every\": 3, \"overlap_steps\": 1, \"dtype\": \"int8\"}", NULL,
     SHARDS(1, 2)},
    {"moments", SHARDS(2, 2), "outer={\"every\": 2, \"moments_every\": 2}", "optimizer.type=Muon",
     SHARDS(1, 1)},
    {"bf16", SHARDS(1, 2), "outer={\"every\": 4}", "bf16={\"enabled\": true}", SHARDS(2, 2)},
    {"adapter", SHARDS(2, 2), "outer={\"every\": 4}",
     "adapter={\"r\": 2, \"target_modules\": [\"c_attn\", \"c_fc\"]}", SHARDS(1, 1)},
    {"part", SHARDS(1, 2), "outer={\"every\": 3}", "model.trainable=[\"transformer.h.1.*\"]",
     SHARDS(2, 2)},
    {"best", SHARDS(2, 2), "outer={\"every\": 4}", "run.keep_best=true", NULL},
};

static void test_bits(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        char path[128], again[64], other[64];
        training full = {.out = kinds[i].name,
                         .sets = {kinds[i].shards, kinds[i].outer, kinds[i].more}};
        go_well(&full);
        for (int64_t step = 3; step <= 6; step++) {
            snprintf(again, sizeof again, "%s-%d", kinds[i].name, (int)step);
            training resumed = {.out = again,
                                .resume = step_of(kinds[i].name, step, path),
                                .sets = {kinds[i].shards, kinds[i].outer, kinds[i].more}};
            go_well(&resumed);
            assert_string_equal(resumed.note, "");
            for (int64_t at = step + 1; at <= STEPS; at++)
                expect_same(kinds[i].name, again, at);
        }
        if (kinds[i].other == NULL)
            continue;
        snprintf(other, sizeof other, "%s-other", kinds[i].name);
        training moved = {.out = other,
                          .resume = step_of(kinds[i].name, 5, path),
                          .sets = {kinds[i].other, kinds[i].outer, kinds[i].more}};
        go_well(&moved);
        for (int64_t at = 6; at <= STEPS; at++) {
            if (fabs(moved.loss[at] - full.loss[at]) > 2e-4 * full.loss[at])
                fail_msg("%s: step %d: loss %.9g, on the other mesh %.9g", kinds[i].name, (int)at,
                         full.loss[at], moved.loss[at]);
        }
    }
}

// Twice as many ranks in each island.
static void test_more_ranks(void **state)
{
    char path[128];
    (void)state;
    training few = {
        .out = "few", .ranks = 2, .sets = {SHARDS(1, 1), "outer={\"every\": 4, \"ranks\": 1}"}};
    go_well(&few);
    training more = {.out = "more",
                     .resume = step_of("few", 6, path),
                     .sets = {SHARDS(2, 2), "outer={\"every\": 4, \"ranks\": 2}"}};
    go_well(&more);
    assert_string_equal(more.note, "");
    for (int64_t at = 7; at <= STEPS; at++) { // an island's sequences are others
        if (!(fabs(more.loss[at] - few.loss[at]) < 5e-3 * few.loss[at]))
            fail_msg("step %d: loss %.9g, of more ranks %.9g", (int)at, few.loss[at],
                     more.loss[at]);
    }
}

// ---- other islands ----

static const char every_4[] = "outer={\"every\": 4}",
                  single_4[] = "outer={\"every\": 4, \"ranks\": 1}";

static void expect_islands(const char *out, const char *from, int64_t step, const char *outer,
                           double loss, const char *note)
{
    char path[128];
    training other = {
        .out = out, .resume = step_of(from, step, path), .sets = {SHARDS(1, 1), outer}};
    go_well(&other);
    if (strcmp(other.note, note) != 0)
        fail_msg("%s: \"%s\"", out, other.note);
    if (!(fabs(other.loss[step + 1] - loss) < 1e-5 * loss)) // of the parameters that all agreed on
        fail_msg("%s: loss %.9g, expected %.9g", out, other.loss[step + 1], loss);
}

static void expect_refused(const char *out, const char *from, int64_t step, const char *outer,
                           const char *words)
{
    char path[128];
    training refused = {
        .out = out, .resume = step_of(from, step, path), .sets = {SHARDS(1, 1), outer}};
    go(&refused);
    assert_int_equal(refused.status, MICS_ERR_INVALID);
    if (strstr(refused.lines, words) == NULL)
        fail_msg("%s: %s", out, refused.lines);
}

static void test_other_islands(void **state)
{
    (void)state;
    training two = {.out = "two", .sets = {SHARDS(1, 1), every_4}};
    training one = {.out = "one", .sets = {SHARDS(1, 1)}};
    go_well(&two);
    go_well(&one);
    for (int64_t step = 1; step <= STEPS; step++)
        assert_int_equal(is_agreed("two", step), step % 4 == 0 || step == STEPS);
    expect_islands("four", "two", 4, single_4, two.loss[5],
                   "2 islands had agreed at step 4: 4 resume from there with their outer momentum, "
                   "island i with the moments of island i modulo 2");
    expect_islands("none", "two", 4, "outer.every=0", two.loss[5],
                   "2 islands had agreed at step 4: the run resumes from there as one, with the "
                   "moments of the first and without outer momentum");
    expect_islands("some", "one", 5, every_4, one.loss[6],
                   "step 5 is of one island: 2 begin with its parameters and moments");
    expect_refused("refused", "two", 6, single_4,
                   "step 6 is between meetings of its 2 islands, and this run has 4 (outer.ranks); "
                   "they agreed at step 4: resume from that, or train to step 8 (run.steps) with 2 "
                   "islands");
    expect_refused("refused", "two", 3, "outer.every=0",
                   "and this run has 1 (outer.ranks); they agree at step 4: train to it");
    expect_refused("refused", "two", 6, "outer={\"every\": 3}",
                   "and this run has another outer.every");
    training longer = {.out = "other-period",
                       .resume = "two/checkpoints/step-00000008",
                       .sets = {SHARDS(1, 1), "outer={\"every\": 3, \"fragments\": 3}"}};
    go_well(&longer);
}

// Fragments never agree at once, but where a run ends.
static void test_end(void **state)
{
    static const char fragments[] = "outer={\"every\": 4, \"fragments\": 2, \"overlap_steps\": 1}";
    (void)state;
    training parts = {.out = "parts", .sets = {SHARDS(1, 1), fragments}};
    go_well(&parts);
    for (int64_t step = 1; step < STEPS; step++)
        assert_false(is_agreed("parts", step));
    assert_true(is_agreed("parts", STEPS));
    expect_refused("parts-refused", "parts", 8, single_4,
                   "they agree where a run or a phase ends: train to such a step (run.steps) with "
                   "2 islands");
    training longer = {.out = "parts-longer",
                       .resume = "parts/checkpoints/step-00000010",
                       .steps = STEPS + 4,
                       .sets = {SHARDS(1, 1), single_4}};
    go_well(&longer);
    assert_true(isfinite(longer.loss[STEPS + 4]));
    training same = {.out = "parts-same", // as the islands were, as on other meshes
                     .resume = "parts/checkpoints/step-00000010",
                     .steps = STEPS + 4,
                     .sets = {SHARDS(2, 2), fragments}};
    go_well(&same);
    assert_string_equal(same.note, "");
}

// ---- who knows nothing of islands ----

static void test_readers(void **state)
{
    (void)state;
    training run = {.out = "read", .sets = {SHARDS(1, 1), every_4, "run.validate_every=1"}};
    go_well(&run);
    mics_checkpoint *checkpoint = NULL;
    mics_saved *saved = NULL;
    ASSERT_OK(mics_saved_open(memory, "read/checkpoints/step-00000006", NULL, &saved));
    ASSERT_OK(mics_checkpoint_open(memory, "read/checkpoints/step-00000006", &checkpoint));
    int64_t same = 0, others[2] = {0, 0}, all = 0;
    for (int32_t u = 0; u < saved->model->unit_count; u++) {
        const mics_unit *unit = &saved->model->units[u];
        float *read = malloc((size_t)unit->elems * sizeof *read);
        ASSERT_OK(run_saved_read(saved, u, (mics_range){0, unit->elems}, read));
        for (int32_t island = -1; island < 2; island++) {
            char *name = NULL;
            if (island >= 0)
                ASSERT_OK(mics_checkpoint_island_unit(memory, unit->name, island, &name));
            float *own = read_state(checkpoint, name != NULL ? name : unit->name, unit->elems,
                                    MICS_STATE_PARAM);
            for (int64_t i = 0; i < unit->elems; i++)
                *(island < 0 ? &same : &others[island]) += own[i] == read[i];
            free(own);
            mics_free(memory, name);
        }
        all += unit->elems;
        free(read);
    }
    assert_int_equal(same, all); // what the islands agreed on at step 4
    assert_true(others[0] < all / 2 && others[1] < all / 2);
    mics_checkpoint_close(checkpoint);
    mics_saved_close(saved);
}

static int begin(void **state)
{
    (void)state;
    if (mkdtemp(work) == NULL || chdir(work) != 0 || mics_memory_open(&memory) != MICS_OK)
        return 1;
    return write_small_gpt2();
}

static int end(void **state)
{
    char command[64];
    (void)state;
    const int64_t leaks = mics_memory_close(memory);
    snprintf(command, sizeof command, "rm -r %s", work);
    return chdir("/") == 0 && system(command) == 0 && leaks == 0 ? 0 : 1;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bits),          cmocka_unit_test(test_more_ranks),
        cmocka_unit_test(test_other_islands), cmocka_unit_test(test_end),
        cmocka_unit_test(test_readers),
    };
    return cmocka_run_group_tests(tests, begin, end);
}
