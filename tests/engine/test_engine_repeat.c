// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// The same run gives the same bits: again, and after a stop, a checkpoint and a resume. On another
// mesh a resumed run has the same losses within rounding.
#include "fixture.h"
#include "io/checkpoint/scratch.h"
#include "mics/core/checkpoint.h"
#include <math.h>

enum { STEPS = 8, STOP = 5, SEQUENCES = 16, UNITS = 8, STATES = 1 + MICS_OPTIMIZER_STATES };

typedef struct repeat_run {
    fixture_run run;
    const char *dir;     // (optional) saves there after the last step
    char *resume;        // (optional) folder of a checkpoint to begin with
    bool holds;          // each step is tried once before, and held by the last rank
    int64_t first, last; // steps
    int64_t elems;       // of the model
    float *state;        // (STATES, elems) after the last step
} repeat_run;

// ---- one rank ----

static const mics_optimizer_def *def_of(const repeat_run *repeat)
{
    return mics_optimizer_def_get(fixture_optimizer(&repeat->run.want).kind);
}

static const char *state_name(const repeat_run *repeat, int index)
{
    return index == 0 ? MICS_STATE_PARAM : def_of(repeat)->state_names[index - 1];
}

static void states_of(const mics_engine *engine, int32_t unit, float *states_out[STATES])
{
    const mics_engine_optimizer_shard piece = mics_engine_optimizer_shard_get(engine, unit);
    states_out[0] = piece.params;
    for (int s = 1; s < STATES; s++)
        states_out[s] = piece.states[s - 1];
}

static mics_optimizer_shard shard_of(const repeat_run *repeat, const mics_engine *engine,
                                     int32_t unit)
{
    const mics_engine_optimizer_shard piece = mics_engine_optimizer_shard_get(engine, unit);
    mics_optimizer_shard shard = {.unit = repeat->run.model->units[unit].name,
                                  .unit_elems = repeat->run.model->units[unit].elems,
                                  .begin = piece.range.begin,
                                  .end = piece.range.end,
                                  .state_count = 1 + def_of(repeat)->states};
    float *states[STATES];
    states_of(engine, unit, states);
    for (int s = 0; s < shard.state_count; s++)
        shard.states[s] = (mics_shard_state){.name = state_name(repeat, s), .data = states[s]};
    return shard;
}

static mics_status agree(void *ctx, mics_status mine)
{
    return mics_engine_agree(ctx, mine);
}

static mics_status save(const repeat_run *repeat, const ranks_self *self, mics_engine *engine)
{
    mics_optimizer_shard shards[UNITS];
    const int32_t rank = self->comm->rank, writers = repeat->run.want.sharding.optimizer;
    const mics_checkpoint_writer writer = {
        .dir = repeat->dir, .rank = rank, .writers = writers, .agree = agree, .agree_ctx = engine};
    const mics_checkpoint_meta meta = {.step = repeat->last,
                                       .samples = repeat->last * SEQUENCES,
                                       .seed = 1,
                                       .model_json = fixture_config,
                                       .tokenizer = "bytes",
                                       .precision = "fp32",
                                       .optimizer = def_of(repeat)->name,
                                       .sharding = {1, 1, writers},
                                       .layered_micro_steps = 1};
    for (int32_t u = 0; u < repeat->run.model->unit_count; u++)
        shards[u] = shard_of(repeat, engine, u);
    return mics_checkpoint_save(self->memory, &writer, &meta, shards,
                                rank < writers ? repeat->run.model->unit_count : 0);
}

static mics_status load(const repeat_run *repeat, const ranks_self *self, mics_engine *engine)
{
    mics_checkpoint *checkpoint = NULL;
    mics_status status = MICS_OK;
    MICS_TRY(mics_checkpoint_open(self->memory, repeat->resume, &checkpoint));
    const int32_t held = 1 + def_of(repeat)->states;
    for (int32_t i = 0; i < repeat->run.model->unit_count * held; i++) {
        const mics_optimizer_shard shard = shard_of(repeat, engine, i / held);
        float *states[STATES];
        states_of(engine, i / held, states);
        MICS_TRY_OUT(mics_checkpoint_read(checkpoint, shard.unit, shard.unit_elems,
                                          state_name(repeat, i % held), shard.begin, shard.end,
                                          states[i % held]));
    }
out:
    mics_checkpoint_close(checkpoint);
    return status;
}

static void collect(const repeat_run *repeat, const mics_engine *engine, int32_t rank)
{
    int64_t at = 0;
    for (int32_t u = 0; u < repeat->run.model->unit_count; u++) {
        const mics_optimizer_shard shard = shard_of(repeat, engine, u);
        for (int s = 0; s < shard.state_count && rank < repeat->run.want.sharding.optimizer; s++)
            memcpy(repeat->state + s * repeat->elems + at + shard.begin, shard.states[s].data,
                   (size_t)(shard.end - shard.begin) * sizeof(float));
        at += shard.unit_elems;
    }
}

// Reads as the fixture does; the last rank holds the state in the middle of the step.
typedef struct held_source {
    fixture_source tokens;
    mics_engine *engine;
    bool holds;
} held_source;

static mics_status read_held(void *ctx, int32_t micro_step, int32_t *inputs_out,
                             int32_t *targets_out)
{
    held_source *source = ctx;
    if (source->holds && micro_step == 1)
        RANKS_EXPECT(mics_engine_hold(source->engine));
    return fixture_read(&source->tokens, micro_step, inputs_out, targets_out);
}

// A step that is held changes nothing, on no rank, and the next one is as if it had not been.
static mics_status train_held(repeat_run *repeat, const ranks_self *self, mics_engine *engine)
{
    const int32_t rank = self->comm->rank;
    held_source source = {.tokens = {.run = &repeat->run, .rank = rank},
                          .engine = engine,
                          .holds = rank == self->comm->ranks - 1};
    const mics_batch_source read = {.read = read_held, .ctx = &source};
    for (int64_t step = repeat->first; step <= repeat->last; step++) {
        mics_step_result result;
        source.tokens.step = step;
        MICS_TRY(mics_engine_step(engine, step, 3e-3f, &read, &result));
        RANKS_EXPECT(result.verdict == MICS_VERDICT_HELD);
        MICS_TRY(fixture_train(&repeat->run, engine, self, step, step));
        RANKS_EXPECT(repeat->run.results[rank].verdict == MICS_VERDICT_UPDATED);
    }
    return MICS_OK;
}

static mics_status train(repeat_run *repeat, const ranks_self *self, mics_engine *engine)
{
    if (repeat->resume != NULL) {
        MICS_TRY(load(repeat, self, engine));
        MICS_TRY(mics_engine_upload(engine));
        MICS_TRY(mics_engine_complete(engine));
    } else {
        mics_engine_init_random(engine, 1);
    }
    MICS_TRY(mics_engine_agree(engine, MICS_OK)); // engines of all ranks are compared from now on
    if (repeat->holds)
        MICS_TRY(train_held(repeat, self, engine));
    else
        MICS_TRY(fixture_train(&repeat->run, engine, self, repeat->first, repeat->last));
    collect(repeat, engine, self->comm->rank);
    return repeat->dir != NULL ? save(repeat, self, engine) : mics_engine_agree(engine, MICS_OK);
}

static mics_status repeat_rank(ranks_self *self)
{
    repeat_run *repeat = self->arg;
    mics_engine *engine = NULL;
    MICS_TRY(fixture_count(self, &repeat->run));
    MICS_TRY(fixture_open_engine(self, &repeat->run, &engine));
    repeat->run.engines[self->comm->rank] = engine;
    mics_status status = train(repeat, self, engine);
    mics_engine_close(engine);
    return status;
}

// ---- a run ----

// Trains steps first .. last; the caller frees repeat->state.
static void go(repeat_run *repeat, const fixture_case *want, int64_t first, int64_t last)
{
    mics_memory *memory = NULL;
    ASSERT_OK(mics_memory_open(&memory));
    repeat->run = (fixture_run){.want = *want};
    repeat->first = first;
    repeat->last = last;
    fixture_open(memory, &repeat->run);
    assert_true(repeat->run.model->unit_count <= UNITS);
    repeat->elems = 0;
    for (int32_t u = 0; u < repeat->run.model->unit_count; u++)
        repeat->elems += repeat->run.model->units[u].elems;
    repeat->state = calloc((size_t)(STATES * repeat->elems), sizeof(float));
    assert_non_null(repeat->state);
    ranks_run_ok(want->ranks, repeat_rank, repeat);
    fixture_close(&repeat->run);
    assert_int_equal(mics_memory_close(memory), 0);
}

static void check_same_bits(const repeat_run *a, const repeat_run *b)
{
    for (int64_t step = b->first; step <= b->last; step++) {
        assert_memory_equal(&a->run.losses[step - 1], &b->run.losses[step - 1], sizeof(double));
        assert_memory_equal(&a->run.norms[step - 1], &b->run.norms[step - 1], sizeof(double));
    }
    assert_memory_equal(&a->run.eval_loss, &b->run.eval_loss, sizeof(double));
    assert_int_equal(a->elems, b->elems);
    assert_memory_equal(a->state, b->state, (size_t)(STATES * a->elems) * sizeof(float));
}

static const fixture_case cases[] = {
    {.ranks = 1, .nodes = 1, .sharding = {1, 1, 1}, .threads = 2},
    {.ranks = 4, .nodes = 2, .sharding = {1, 1, 1}},
    {.ranks = 4, .nodes = 2, .sharding = {2, 2, 2}, .threads = 2},
    {.ranks = 4, .nodes = 2, .sharding = {2, 2, 4}},
    {.ranks = 4, .nodes = 1, .sharding = {4, 4, 4}},
    {.ranks = 8, .nodes = 2, .sharding = {2, 4, 8}},
    {.ranks = 8, .nodes = 4, .sharding = {1, 1, 4}, .early_gathers = true},
};
enum { CASES = sizeof cases / sizeof cases[0] };

static fixture_case case_at(int i)
{
    fixture_case want = cases[i];
    want.sequences = SEQUENCES;
    want.micro_steps = 2;
    want.prefetch = 1;
    want.clip = 0.5f;
    return want;
}

// ---- tests ----

static void test_again(void **state)
{
    (void)state;
    for (int i = 0; i < CASES; i++) {
        const fixture_case want = case_at(i);
        repeat_run first = {0}, second = {0};
        go(&first, &want, 1, STEPS);
        go(&second, &want, 1, STEPS);
        check_same_bits(&first, &second);
        free(first.state);
        free(second.state);
    }
}

static void test_held_steps(void **state)
{
    (void)state;
    for (int i = 0; i < CASES; i += 2) {
        const fixture_case want = case_at(i);
        repeat_run plain = {0}, held = {.holds = true};
        go(&plain, &want, 1, STEPS);
        go(&held, &want, 1, STEPS);
        check_same_bits(&plain, &held);
        free(plain.state);
        free(held.state);
    }
}

// When the sums of replicas come back does not show in the bits: of one rank a state's copy and of
// several, intra-node and inter-node, of a part of the states and of all.
static void test_early_gathers(void **state)
{
    (void)state;
    static const fixture_case early[] = {
        {.ranks = 4, .nodes = 2, .sharding = {1, 1, 1}},
        {.ranks = 4, .nodes = 2, .sharding = {2, 2, 2}, .threads = 2},
        {.ranks = 8, .nodes = 4, .sharding = {1, 1, 4}, .coalesce_below = 4096},
        {.ranks = 8, .nodes = 4, .sharding = {2, 4, 4}, .hierarchical = true},
        {.ranks = 8, .nodes = 2, .sharding = {2, 2, 4}, .share_params = true},
        {.ranks = 8, .nodes = 2, .sharding = {4, 4, 4}, .layered_micro_steps = 2},
    };
    for (size_t i = 0; i < 2 * sizeof early / sizeof early[0]; i++) {
        fixture_case want = early[i / 2];
        repeat_run late = {0}, soon = {0};
        want.sequences = SEQUENCES;
        want.micro_steps = 2;
        want.clip = 0.5f;
        want.dtype = i % 2 == 0 ? MICS_DTYPE_FP32 : MICS_DTYPE_BF16;
        want.prefetch = 2;
        go(&late, &want, 1, STEPS);
        want.early_gathers = true;
        go(&soon, &want, 1, STEPS);
        check_same_bits(&late, &soon);
        free(late.state);
        free(soon.state);
    }
}

// What overlaps, and what is computed again, does not show in the bits.
static void test_prefetch_and_recomputation(void **state)
{
    (void)state;
    static const char *const configs[] = {NULL, fixture_gpt2_dropout, fixture_llama_dropout};
    for (int i = 0; i < 3; i++) {
        fixture_case want = case_at(3);
        want.config = configs[i];
        repeat_run first = {0}, second = {0};
        go(&first, &want, 1, STEPS);
        want.prefetch = 0;
        want.recompute = true;
        go(&second, &want, 1, STEPS);
        check_same_bits(&first, &second);
        free(first.state);
        free(second.state);
    }
}

// The folder of step STOP, saved by a run of a case; remove and free it with forget.
typedef struct saved {
    scratch place;
    mics_memory *memory;
    char *path;
} saved;

static void save_at_stop(const fixture_case *want, saved *out)
{
    scratch_make_fast(&out->place);
    repeat_run before = {.dir = out->place.dir};
    go(&before, want, 1, STOP);
    free(before.state);
    ASSERT_OK(mics_memory_open(&out->memory));
    ASSERT_OK(mics_checkpoint_latest(out->memory, out->place.dir, &out->path));
    assert_non_null(out->path);
}

static void forget(saved *at)
{
    mics_free(at->memory, at->path);
    assert_int_equal(mics_memory_close(at->memory), 0);
    scratch_remove(&at->place);
}

static void check_same_mesh(const fixture_case *want)
{
    saved at;
    repeat_run whole = {0};
    go(&whole, want, 1, STEPS);
    save_at_stop(want, &at);
    repeat_run resumed = {.resume = at.path};
    go(&resumed, want, STOP + 1, STEPS);
    check_same_bits(&whole, &resumed);
    free(whole.state);
    free(resumed.state);
    forget(&at);
}

static void test_resume_on_the_same_mesh(void **state)
{
    (void)state;
    for (int i = 0; i < CASES; i++) {
        const fixture_case want = case_at(i);
        check_same_mesh(&want);
    }
}

static void check_near(const repeat_run *whole, const repeat_run *resumed)
{
    const double tolerance = whole->run.want.state_dtype == MICS_STATE_FP32 ? 1e-4 : 2e-3;
    for (int64_t step = STOP; step < STEPS; step++) {
        double expected = whole->run.losses[step], loss = resumed->run.losses[step];
        if (!(fabs(loss - expected) <= tolerance * expected))
            fail_msg("step %d: loss %.9g, %.9g without a stop", (int)step + 1, loss, expected);
    }
}

// Stops case `i`, and goes on as every other one.
static void check_other_meshes(int i, const char *config, mics_optimizer optimizer,
                               mics_state_dtype dtype)
{
    fixture_case want = case_at(i);
    saved at;
    repeat_run whole = {0};
    want.config = config;
    want.optimizer = optimizer;
    want.state_dtype = dtype;
    go(&whole, &want, 1, STEPS);
    save_at_stop(&want, &at);
    for (int j = 0; j < CASES; j++) {
        fixture_case other = case_at(j);
        other.config = config;
        other.optimizer = optimizer;
        other.state_dtype = dtype;
        repeat_run resumed = {.resume = at.path};
        go(&resumed, &other, STOP + 1, STEPS);
        check_near(&whole, &resumed);
        free(resumed.state);
    }
    free(whole.state);
    forget(&at);
}

static void test_resume_on_another_mesh(void **state)
{
    (void)state;
    for (int i = 0; i < CASES; i += 2)
        check_other_meshes(i, NULL, (mics_optimizer){0}, MICS_STATE_FP32);
}

// Masks are those of the run that was not stopped.
static void test_resume_with_dropout(void **state)
{
    (void)state;
    fixture_case want = case_at(3);
    want.config = fixture_gpt2_dropout;
    check_same_mesh(&want);
    check_other_meshes(3, fixture_gpt2_dropout, (mics_optimizer){0}, MICS_STATE_FP32);
    check_other_meshes(5, fixture_llama_dropout, (mics_optimizer){0}, MICS_STATE_FP32);
}

static void test_resume_of_every_optimizer(void **state)
{
    (void)state;
    for (int kind = 0; kind < MICS_OPTIMIZER_KINDS; kind++) {
        fixture_case want = case_at(kind % CASES);
        want.optimizer = fixture_optimizers[kind];
        check_same_mesh(&want);
        check_other_meshes(3, NULL, want.optimizer, MICS_STATE_FP32);
    }
}

// What a checkpoint holds of states in fewer bits, a resumed run holds to the bit; on another mesh,
// where blocks of 8 bits lie elsewhere, within what they round.
static void test_resume_of_packed_states(void **state)
{
    (void)state;
    for (int dtype = MICS_STATE_BF16; dtype < MICS_STATE_DTYPES; dtype++) {
        for (int i = 0; i < CASES; i++) {
            fixture_case want = case_at(i);
            want.state_dtype = (mics_state_dtype)dtype;
            want.optimizer = fixture_optimizers[i % 3 == 1   ? MICS_OPTIMIZER_LION
                                                : i % 3 == 2 ? MICS_OPTIMIZER_SGD
                                                             : MICS_OPTIMIZER_ADAMW];
            check_same_mesh(&want);
        }
        check_other_meshes(3, NULL, (mics_optimizer){0}, (mics_state_dtype)dtype);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_again),
        cmocka_unit_test(test_held_steps),
        cmocka_unit_test(test_early_gathers),
        cmocka_unit_test(test_prefetch_and_recomputation),
        cmocka_unit_test(test_resume_on_the_same_mesh),
        cmocka_unit_test(test_resume_on_another_mesh),
        cmocka_unit_test(test_resume_with_dropout),
        cmocka_unit_test(test_resume_of_every_optimizer),
        cmocka_unit_test(test_resume_of_packed_states),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
