// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// The same run gives the same bits: again, and after a stop, a checkpoint and a resume. On another
// mesh a resumed run has the same losses within rounding.
#include "fixture.h"
#include "io/checkpoint/scratch.h"
#include "mics/checkpoint.h"
#include <math.h>

enum { STEPS = 8, STOP = 5, SEQUENCES = 16, UNITS = 8 };

typedef struct repeat_run {
    fixture_run run;
    const char *dir;     // (optional) saves there after the last step
    char *resume;        // (optional) folder of a checkpoint to begin with
    int64_t first, last; // steps
    int64_t elems;       // of the model
    float *state;        // (MICS_STATES, elems) after the last step
} repeat_run;

// ---- one rank ----

static void pieces_of(const repeat_run *repeat, const mics_engine *engine, mics_piece *pieces_out)
{
    for (int32_t u = 0; u < repeat->run.model->unit_count; u++) {
        const mics_engine_piece piece = mics_engine_piece_get(engine, u);
        pieces_out[u] = (mics_piece){.unit = repeat->run.model->units[u].name,
                                     .unit_elems = repeat->run.model->units[u].elems,
                                     .begin = piece.range.begin,
                                     .end = piece.range.end,
                                     .data = {piece.params, piece.states[0], piece.states[1]}};
    }
}

static mics_status agree(void *ctx, mics_status mine)
{
    return mics_engine_agree(ctx, mine);
}

static mics_status save(const repeat_run *repeat, const ranks_self *self, mics_engine *engine)
{
    mics_piece pieces[UNITS];
    const int32_t rank = self->comm->rank, writers = repeat->run.want.sharding.optimizer;
    const mics_checkpoint_writer writer = {
        .dir = repeat->dir, .rank = rank, .writers = writers, .agree = agree, .agree_ctx = engine};
    const mics_checkpoint_meta meta = {.step = repeat->last,
                                       .samples = repeat->last * SEQUENCES,
                                       .seed = 1,
                                       .model_json = fixture_config,
                                       .tokenizer = "bytes"};
    pieces_of(repeat, engine, pieces);
    return mics_checkpoint_save(self->memory, &writer, &meta, pieces,
                                rank < writers ? repeat->run.model->unit_count : 0);
}

static mics_status load(const repeat_run *repeat, const ranks_self *self, mics_engine *engine)
{
    mics_piece pieces[UNITS];
    mics_checkpoint *checkpoint = NULL;
    mics_status status = MICS_OK;
    MICS_TRY(mics_checkpoint_open(self->memory, repeat->resume, &checkpoint));
    pieces_of(repeat, engine, pieces);
    for (int32_t i = 0; i < repeat->run.model->unit_count * MICS_STATES; i++) {
        const mics_piece *piece = &pieces[i / MICS_STATES];
        const mics_state state = (mics_state)(i % MICS_STATES);
        MICS_TRY_OUT(mics_checkpoint_read(checkpoint, piece->unit, piece->unit_elems, state,
                                          piece->begin, piece->end, piece->data[state]));
    }
out:
    mics_checkpoint_close(checkpoint);
    return status;
}

static void collect(const repeat_run *repeat, const mics_engine *engine, int32_t rank)
{
    mics_piece pieces[UNITS];
    int64_t at = 0;
    pieces_of(repeat, engine, pieces);
    for (int32_t u = 0; u < repeat->run.model->unit_count; u++) {
        for (int s = 0; s < MICS_STATES && rank < repeat->run.want.sharding.optimizer; s++)
            memcpy(repeat->state + s * repeat->elems + at + pieces[u].begin, pieces[u].data[s],
                   (size_t)(pieces[u].end - pieces[u].begin) * sizeof(float));
        at += pieces[u].unit_elems;
    }
}

static mics_status train(repeat_run *repeat, const ranks_self *self, mics_engine *engine)
{
    if (repeat->resume != NULL) {
        MICS_TRY(load(repeat, self, engine));
        MICS_TRY(mics_engine_publish(engine));
    } else {
        mics_engine_init_random(engine, 1);
    }
    MICS_TRY(mics_engine_agree(engine, MICS_OK)); // engines of all ranks are compared from now on
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
    repeat->state = calloc((size_t)(MICS_STATES * repeat->elems), sizeof(float));
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
    assert_memory_equal(a->state, b->state, (size_t)(MICS_STATES * a->elems) * sizeof(float));
}

static const fixture_case cases[] = {
    {.ranks = 1, .nodes = 1, .sharding = {1, 1, 1}, .threads = 2},
    {.ranks = 4, .nodes = 2, .sharding = {1, 1, 1}},
    {.ranks = 4, .nodes = 2, .sharding = {2, 2, 2}, .threads = 2},
    {.ranks = 4, .nodes = 2, .sharding = {2, 2, 4}},
    {.ranks = 4, .nodes = 1, .sharding = {4, 4, 4}},
    {.ranks = 8, .nodes = 2, .sharding = {2, 4, 8}},
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

// What overlaps, and what is computed again, does not show in the bits.
static void test_prefetch_and_recomputation(void **state)
{
    (void)state;
    fixture_case want = case_at(3);
    repeat_run first = {0}, second = {0};
    go(&first, &want, 1, STEPS);
    want.prefetch = 0;
    want.recompute = true;
    go(&second, &want, 1, STEPS);
    check_same_bits(&first, &second);
    free(first.state);
    free(second.state);
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

static void test_resume_on_the_same_mesh(void **state)
{
    (void)state;
    for (int i = 0; i < CASES; i++) {
        const fixture_case want = case_at(i);
        saved at;
        repeat_run whole = {0};
        go(&whole, &want, 1, STEPS);
        save_at_stop(&want, &at);
        repeat_run resumed = {.resume = at.path};
        go(&resumed, &want, STOP + 1, STEPS);
        check_same_bits(&whole, &resumed);
        free(whole.state);
        free(resumed.state);
        forget(&at);
    }
}

static void check_near(const repeat_run *whole, const repeat_run *resumed)
{
    for (int64_t step = STOP; step < STEPS; step++) {
        double expected = whole->run.losses[step], loss = resumed->run.losses[step];
        if (!(fabs(loss - expected) <= 1e-4 * expected))
            fail_msg("step %d: loss %.9g, %.9g without a stop", (int)step + 1, loss, expected);
    }
}

static void test_resume_on_another_mesh(void **state)
{
    (void)state;
    for (int i = 0; i < CASES; i += 2) {
        const fixture_case want = case_at(i);
        saved at;
        repeat_run whole = {0};
        go(&whole, &want, 1, STEPS);
        save_at_stop(&want, &at);
        for (int j = 0; j < CASES; j++) {
            const fixture_case other = case_at(j);
            repeat_run resumed = {.resume = at.path};
            go(&resumed, &other, STOP + 1, STEPS);
            check_near(&whole, &resumed);
            free(resumed.state);
        }
        free(whole.state);
        forget(&at);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_again),
        cmocka_unit_test(test_prefetch_and_recomputation),
        cmocka_unit_test(test_resume_on_the_same_mesh),
        cmocka_unit_test(test_resume_on_another_mesh),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
