// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Local steps against PyTorch: 20 periods of four islands, AdamW and Muon, meetings ahead of forward
// and beside computation. Losses of each island and step, and what all agree on in the end, are
// within 1e-5 (tests/golden/README.md, islands).
#include "golden.h"
#include "mics/core/transport.h"
#include "ranks.h"
#include <math.h>

enum { ISLANDS = 4, SEQUENCES = 2 };

static const double tolerance = 1e-5;
// One parameter of a case may be off by more: where a gradient is next to nothing Adam's step is a ratio of roundings, and those
// of plain kernels without optimisation are others.
static const double one_tolerance = 3e-5;

static const struct {
    int32_t ranks, nodes;
    mics_sharding sharding;
    int32_t sequences; // of a rank's micro-step
} meshes[] = {
    {4, 4, {1, 1, 1}, 2}, {4, 2, {1, 1, 1}, 1}, {8, 4, {2, 2, 2}, 1},
    {8, 4, {1, 1, 2}, 1}, {8, 2, {1, 1, 1}, 1}, {8, 1, {1, 2, 2}, 1},
};

static const char *const cases[] = {"adamw",       "adamw_beside", "muon",
                                    "muon_beside", "moments",      "average"};

typedef struct hyper {
    float lr, beta1, beta2, eps, weight_decay, clip, muon_momentum;
} hyper;

typedef struct outer {
    float muon, every, fragments, overlap_steps, moments_every, lr, momentum;
} outer;

typedef struct islands_golden {
    golden files;
    hyper hyper;
    float *inputs, *targets; // (steps of the longest case, ISLANDS, SEQUENCES, T)
    int64_t length;          // T
    // Of a case and a mesh
    const char *name;
    outer outer;
    mics_schedule *schedule;
    int64_t steps;
    float *expected;  // (steps, ISLANDS) losses
    double *losses;   // the same, as they are
    float *agreed[8]; // by unit
} islands_golden;

// ---- one rank ----

typedef struct islands_source {
    const islands_golden *of;
    int64_t step; // from 0
    int32_t rank;
} islands_source;

static mics_status read_batch(void *ctx, int32_t micro_step, int32_t *inputs_out,
                              int32_t *targets_out)
{
    const islands_source *source = ctx;
    const islands_golden *of = source->of;
    const mics_schedule_spec *spec = &of->schedule->spec;
    const int32_t ranks = spec->mesh.ranks, island = source->rank / ranks;
    for (int64_t b = 0; b < spec->batch.sequences; b++) {
        const int64_t sequence =
            (micro_step * ranks + source->rank % ranks) * spec->batch.sequences + b;
        const int64_t from =
            ((source->step * ISLANDS + island) * SEQUENCES + sequence) * of->length;
        for (int64_t t = 0; t < of->length; t++) {
            inputs_out[b * of->length + t] = (int32_t)of->inputs[from + t];
            targets_out[b * of->length + t] = (int32_t)of->targets[from + t];
        }
    }
    return MICS_OK;
}

static mics_status train(islands_golden *of, mics_engine *engine, int32_t rank)
{
    const int32_t ranks = of->schedule->spec.mesh.ranks;
    islands_source source = {.of = of, .rank = rank};
    const mics_batch_source read = {.read = read_batch, .ctx = &source};
    for (; source.step < of->steps; source.step++) {
        mics_step_result result;
        MICS_TRY(mics_engine_step(engine, source.step + 1, of->hyper.lr, &read, &result));
        if (rank % ranks == 0)
            of->losses[source.step * ISLANDS + rank / ranks] = result.loss;
    }
    return mics_engine_meet(engine);
}

static void collect(const islands_golden *of, const mics_engine *engine, int32_t rank)
{
    if (rank >= of->schedule->spec.mesh.sharding.optimizer)
        return; // the others' are the same: mics_engine_compare
    for (int32_t u = 0; u < of->files.model->unit_count; u++) {
        const mics_engine_optimizer_shard held = mics_engine_optimizer_shard_get(engine, u);
        memcpy(of->agreed[u] + held.range.begin, held.params,
               (size_t)(held.range.end - held.range.begin) * sizeof(float));
    }
}

static mics_status check_alike(mics_engine *engine)
{
    mics_divergence found;
    MICS_TRY(mics_engine_compare(engine, &found));
    RANKS_EXPECT(!found.found);
    return MICS_OK;
}

static mics_status open_engine(const islands_golden *of, ranks_self *self, mics_engine **engine_out)
{
    const hyper *h = &of->hyper;
    MICS_TRY(mics_comm_count_open_take(self->memory, self->comm,
                                       of->schedule->spec.mesh.ranks_per_node, &self->comm));
    const mics_engine_spec spec = {
        .memory = self->memory,
        .schedule = of->schedule,
        .comm = self->comm,
        .optimizer = {of->schedule->spec.optimizer,
                      {(double)h->beta1, (double)h->beta2, (double)h->eps, (double)h->muon_momentum,
                       1, 5, 1},
                      (double)h->weight_decay},
        .clip = h->clip,
        .outer_lr = of->outer.lr,
        .outer_momentum = of->outer.momentum};
    return mics_engine_open(&spec, engine_out);
}

static mics_status train_rank(ranks_self *self)
{
    islands_golden *of = self->arg;
    mics_engine *engine = NULL;
    mics_status status = MICS_OK;
    MICS_TRY_OUT(open_engine(of, self, &engine));
    MICS_TRY_OUT(golden_load(&of->files, engine));
    MICS_TRY_OUT(mics_engine_set_anchors(engine));
    MICS_TRY_OUT(train(of, engine, self->comm->rank));
    MICS_TRY_OUT(check_alike(engine));
    collect(of, engine, self->comm->rank);
out:
    if (status != MICS_OK)
        mics_comm_abort(self->comm, NULL);
    mics_engine_close(engine);
    return status;
}

// ---- comparisons ----

static void check_losses(const islands_golden *of, int mesh)
{
    for (int64_t i = 0; i < of->steps * ISLANDS; i++) {
        const double loss = of->losses[i], expected = (double)of->expected[i];
        if (!(fabs(loss - expected) <= tolerance))
            fail_msg("%s, mesh %d: step %d, island %d: loss %.9g, not %.9g", of->name, mesh,
                     (int)(i / ISLANDS) + 1, (int)(i % ISLANDS), loss, expected);
    }
}

static void check_agreed(const islands_golden *of, int mesh)
{
    char prefix[MICS_NAME_BYTES];
    int further = 0;
    snprintf(prefix, sizeof prefix, "%s.", of->name);
    for (int32_t u = 0; u < of->files.model->unit_count; u++) {
        for (int32_t p = 0; p < of->files.model->units[u].param_count; p++) {
            const mics_param *param = &of->files.model->units[u].params[p];
            const float *got = of->agreed[u] + param->offset;
            float *expected = golden_of(&of->files, prefix, param);
            for (int64_t i = 0; i < param->elems; i++) {
                const double off = fabs((double)got[i] - (double)expected[i]);
                further += off > tolerance;
                if (!(off <= one_tolerance) || further > 1)
                    fail_msg("%s, mesh %d: element %d of %s: %.9g, not %.9g", of->name, mesh,
                             (int)i, param->name, (double)got[i], (double)expected[i]);
            }
            free(expected);
        }
    }
}

// ---- runs ----

static void open_schedule(islands_golden *of, int mesh)
{
    const int32_t ranks = meshes[mesh].ranks, island = ranks / ISLANDS;
    const int32_t sequences = meshes[mesh].sequences;
    mics_schedule_spec spec = {
        .model = of->files.model,
        .batch = {.sequences = sequences, .length = of->length, .threads = 1},
        .micro_steps = SEQUENCES / (island * sequences),
        .prefetch = 1,
        .optimizer = of->outer.muon > 0 ? MICS_OPTIMIZER_MUON : MICS_OPTIMIZER_ADAMW,
        .outer = {.every = (int32_t)of->outer.every,
                  .fragments = (int32_t)of->outer.fragments,
                  .overlap_steps = (int32_t)of->outer.overlap_steps,
                  .moments_every = (int32_t)of->outer.moments_every}};
    ASSERT_OK(mics_mesh_init(ranks, meshes[mesh].nodes, meshes[mesh].sharding, &spec.mesh));
    ASSERT_OK(mics_mesh_part_islands(&spec.mesh, island));
    ASSERT_OK(mics_schedule_open(of->files.memory, &spec, &of->schedule));
}

static void check_mesh(islands_golden *of, int mesh)
{
    open_schedule(of, mesh);
    of->losses = calloc((size_t)(of->steps * ISLANDS), sizeof *of->losses);
    assert_non_null(of->losses);
    for (int32_t u = 0; u < of->files.model->unit_count; u++) {
        of->agreed[u] = calloc((size_t)of->files.model->units[u].elems, sizeof(float));
        assert_non_null(of->agreed[u]);
    }
    ranks_run_ok(meshes[mesh].ranks, train_rank, of);
    check_losses(of, mesh);
    check_agreed(of, mesh);
    for (int32_t u = 0; u < of->files.model->unit_count; u++)
        free(of->agreed[u]);
    free(of->losses);
    mics_schedule_close(of->schedule);
}

static void read_numbers(const islands_golden *of, const char *name, void *to, size_t bytes)
{
    float *numbers = golden_read(of->files.expected, name);
    assert_int_equal(mics_safetensors_find(of->files.expected, name)->elems,
                     bytes / sizeof *numbers);
    memcpy(to, numbers, bytes);
    free(numbers);
}

static void check_case(islands_golden *of, const char *name)
{
    char text[MICS_NAME_BYTES];
    of->name = name;
    snprintf(text, sizeof text, "%s.outer", name);
    read_numbers(of, text, &of->outer, sizeof of->outer);
    snprintf(text, sizeof text, "%s.losses", name);
    of->expected = golden_read(of->files.expected, text);
    of->steps = mics_safetensors_find(of->files.expected, text)->shape[0];
    assert_int_equal(of->steps, GOLDEN_STEPS * (int64_t)of->outer.every); // periods
    for (int mesh = 0; mesh < (int)(sizeof meshes / sizeof *meshes); mesh++)
        check_mesh(of, mesh);
    free(of->expected);
}

static void test_periods(void **state)
{
    (void)state;
    islands_golden of = {0};
    ASSERT_OK(mics_memory_open(&of.files.memory));
    golden_open_model(&of.files, "islands");
    assert_true(of.files.model->unit_count <= (int32_t)(sizeof of.agreed / sizeof *of.agreed));
    read_numbers(&of, "hyper", &of.hyper, sizeof of.hyper);
    of.inputs = golden_read(of.files.expected, "inputs");
    of.targets = golden_read(of.files.expected, "targets");
    of.length = mics_safetensors_find(of.files.expected, "inputs")->shape[3];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        check_case(&of, cases[i]);
    free(of.inputs);
    free(of.targets);
    golden_close(&of.files);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_periods)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
