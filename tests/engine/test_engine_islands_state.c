// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// The state of local steps: taken into other engines, held, left out, swapped, on a device, and
// compared.
#include "islands.h"
#include "later.h"
#include "mics/core/device.h"

// ---- going on ----

// What one rank has of the state, between two engines.
typedef struct kept_state {
    float *numbers;
    int64_t count, met, tokens[64];
} kept_state;

static void keep_floats(kept_state *kept, bool back, float *values, int64_t elems)
{
    if (values == NULL)
        return;
    if (back)
        memcpy(values, kept->numbers + kept->count, (size_t)elems * sizeof *values);
    else
        memcpy(kept->numbers + kept->count, values, (size_t)elems * sizeof *values);
    kept->count += elems;
}

static void keep(const islands_run *of, mics_engine *engine, kept_state *kept, bool back)
{
    const mics_outer_state outer = mics_engine_outer_state(engine);
    kept->count = 0;
    for (int32_t u = 0; u < of->run.model->unit_count; u++) {
        const mics_engine_optimizer_shard held = mics_engine_optimizer_shard_get(engine, u);
        const mics_engine_outer_shard met = mics_engine_outer_shard_get(engine, u);
        const int64_t elems = held.range.end - held.range.begin;
        keep_floats(kept, back, held.shard_params, held.shard.end - held.shard.begin);
        keep_floats(kept, back, held.params, elems);
        for (int s = 0; s < MICS_OPTIMIZER_STATES; s++)
            keep_floats(kept, back, held.states[s], elems);
        keep_floats(kept, back, met.anchor, met.range.end - met.range.begin);
        keep_floats(kept, back, met.momentum, met.met.end - met.met.begin);
    }
    for (int32_t i = 0; i < outer.windows * outer.islands; i++) {
        if (back)
            outer.counted[i] = kept->tokens[i];
        else
            kept->tokens[i] = outer.counted[i];
    }
    if (back)
        *outer.met = kept->met;
    else
        kept->met = *outer.met;
}

// The state goes into a new engine before step `restart`.
static mics_status train_in_two(ranks_self *self)
{
    islands_run *of = self->arg;
    mics_engine *engine = NULL;
    mics_status status = MICS_OK;
    kept_state kept = {.numbers =
                           calloc(8 * (size_t)model_elems(of->run.model), sizeof *kept.numbers)};
    RANKS_EXPECT(kept.numbers != NULL);
    MICS_TRY_OUT(open_engine(self, of, &engine));
    MICS_TRY_OUT(train(of, engine, self->comm->rank, 1, of->restart - 1));
    MICS_TRY_OUT(mics_engine_complete(engine));
    MICS_TRY_OUT(mics_engine_download_params(engine));
    mics_engine_forget_residual(engine);
    keep(of, engine, &kept, false);
    if (of->restarts) {
        MICS_TRY_OUT(mics_engine_agree(engine, MICS_OK));
        mics_engine_close(engine);
        engine = NULL;
        MICS_TRY_OUT(open_engine(self, of, &engine));
        keep(of, engine, &kept, true);
        MICS_TRY_OUT(mics_engine_upload(engine));
        MICS_TRY_OUT(mics_engine_complete(engine));
    }
    MICS_TRY_OUT(train(of, engine, self->comm->rank, of->restart, of->steps));
    MICS_TRY_OUT(finish(of, engine, self->comm->rank));
    MICS_TRY_OUT(mics_engine_agree(engine, MICS_OK));
out:
    if (status != MICS_OK)
        mics_comm_abort(self->comm, NULL);
    mics_engine_close(engine);
    free(kept.numbers);
    return status;
}

// To the same bits, wherever in the period.
static void test_restart(void **state)
{
    (void)state;
    for (int64_t restart = 2; restart <= 7; restart++) {
        for (int beside = 0; beside < 2; beside++) {
            mics_memory *memory = NULL;
            const mics_outer outer = {.every = 4,
                                      .fragments = 2,
                                      .overlap_steps = beside,
                                      .moments_every = 1,
                                      .dtype = restart % 2 == 0 ? MICS_COMM_INT4 : MICS_COMM_FP32};
            islands_run through = on_mesh(&meshes[restart], outer);
            through.restart = restart;
            through.run.want.optimizer = fixture_optimizers[MICS_OPTIMIZER_ADAMW];
            through.run.want.dtype = restart == 5 ? MICS_DTYPE_BF16 : MICS_DTYPE_FP32;
            islands_run again = through;
            again.restarts = true;
            ASSERT_OK(mics_memory_open(&memory));
            open_case(memory, &through);
            open_case(memory, &again);
            ranks_run_ok(through.run.want.ranks, train_in_two, &through);
            ranks_run_ok(again.run.want.ranks, train_in_two, &again);
            for (int32_t i = 0; i < islands_of(&again); i++) {
                const size_t bytes = (size_t)model_elems(again.run.model) * sizeof(float);
                assert_memory_equal(again.masters[i], through.masters[i], bytes);
                assert_memory_equal(again.agreed[i], through.agreed[i], bytes);
            }
            close_case(&through);
            close_case(&again);
            assert_int_equal(mics_memory_close(memory), 0);
        }
    }
}

// ---- steps that are taken again, or left out ----

static mics_status one_step(islands_run *of, mics_engine *engine, int32_t rank, int64_t step,
                            mics_step_result *result)
{
    fixture_source source = {.run = &of->run, .step = step, .rank = rank};
    const mics_batch_source read = {
        .read = fixture_read, .read_segments = fixture_read_segments, .ctx = &source};
    return mics_engine_step(engine, step, fixture_lr(&of->run.want), &read, result);
}

// A hold of one rank holds the world. Its step's meetings are done once: at its head, or, where they
// overlap it, when it is taken again.
static mics_status train_held(ranks_self *self)
{
    islands_run *of = self->arg;
    mics_engine *engine = NULL;
    mics_status status = MICS_OK;
    const int32_t rank = self->comm->rank;
    mics_step_result result;
    MICS_TRY_OUT(open_engine(self, of, &engine));
    MICS_TRY_OUT(train(of, engine, rank, 1, of->held - 1));
    mics_engine_next_ballot(engine);
    if (rank == of->run.want.ranks - 1) {
        (void)mics_engine_hold(engine);
        mics_engine_tell(engine, 5);
    }
    MICS_TRY_OUT(one_step(of, engine, rank, of->held, &result));
    if (result.verdict != MICS_VERDICT_HELD || (result.told & 7) != 5)
        MICS_TRY_OUT(mics_fail(MICS_ERR_INVALID, "rank %d: verdict %d, told %x", (int)rank,
                               (int)result.verdict, (unsigned)result.told));
    if (rank == 0) // of the step before that
        of->world_losses[of->held - 2] = mics_engine_world(engine)->loss;
    MICS_TRY_OUT(train(of, engine, rank, of->held, of->steps));
    MICS_TRY_OUT(finish(of, engine, rank));
    MICS_TRY_OUT(mics_engine_agree(engine, MICS_OK));
out:
    if (status != MICS_OK)
        mics_comm_abort(self->comm, NULL);
    mics_engine_close(engine);
    return status;
}

static void test_held(void **state)
{
    (void)state;
    for (int option = 0; option < 9; option++) {
        mics_memory *memory = NULL;
        const int64_t held = 4 + option % 3;
        islands_run of = on_mesh(
            &meshes[held], (mics_outer){.every = 4, .fragments = 1, .overlap_steps = option / 3});
        of.held = held;
        ASSERT_OK(mics_memory_open(&memory));
        open_case(memory, &of);
        ranks_run_ok(of.run.want.ranks, train_held, &of);
        compare_with_reference(&of, 2e-5);
        close_case(&of);
        assert_int_equal(mics_memory_close(memory), 0);
    }
}

// A step that one island leaves out is its own: the others update, and its tokens weigh nothing.
static void test_left_out(void **state)
{
    (void)state;
    for (int option = 0; option < 8; option++) {
        for (size_t m = 0; m < sizeof meshes / sizeof meshes[0]; m++) {
            islands_run of = on_mesh(&meshes[m], (mics_outer){.every = option / 4 == 0 ? 4 : 1,
                                                              .fragments = 1,
                                                              .overlap_steps = option % 2});
            of.numeric = option / 2 % 2 == 1;
            if (of.numeric && of.run.want.outer.every == 1) // what is not finite does not meet
                continue;
            of.skip = 4;
            run_case(&of, 2e-5);
        }
    }
}

// ---- what they agreed on ----

static mics_status swap(ranks_self *self)
{
    islands_run *of = self->arg;
    mics_engine *engine = NULL;
    mics_status status = MICS_OK;
    const int32_t rank = self->comm->rank, island = rank / of->run.want.island_ranks;
    mics_step_result result;
    MICS_TRY_OUT(open_engine(self, of, &engine));
    MICS_TRY_OUT(train(of, engine, rank, 1, of->steps));
    MICS_TRY_OUT(mics_engine_complete(engine));
    MICS_TRY_OUT(mics_engine_download_params(engine));
    collect(of, engine, rank, of->masters[island], NULL);
    MICS_TRY_OUT(mics_engine_swap_agreed(engine));
    MICS_TRY_OUT(mics_engine_download_params(engine));
    collect(of, engine, rank, of->agreed[island], NULL);
    if (one_step(of, engine, rank, of->steps + 1, &result) != MICS_ERR_INVALID)
        MICS_TRY_OUT(mics_fail(MICS_ERR_INVALID, "a step with what was swapped"));
    MICS_TRY_OUT(mics_engine_swap_agreed(engine));
    MICS_TRY_OUT(mics_engine_download_params(engine));
    collect(of, engine, rank, of->states[island], NULL);
    MICS_TRY_OUT(check_alike(engine));
    MICS_TRY_OUT(mics_engine_agree(engine, MICS_OK));
out:
    if (status != MICS_OK)
        mics_comm_abort(self->comm, NULL);
    mics_engine_close(engine);
    return status;
}

static void test_swap(void **state)
{
    (void)state;
    for (size_t m = 0; m < sizeof meshes / sizeof meshes[0]; m++) {
        mics_memory *memory = NULL;
        islands_run of = on_mesh(&meshes[m], (mics_outer){.every = 4, .fragments = 1});
        of.steps = 6;
        of.run.want.dtype = m % 2 == 0 ? MICS_DTYPE_FP32 : MICS_DTYPE_BF16;
        ASSERT_OK(mics_memory_open(&memory));
        open_case(memory, &of);
        ranks_run_ok(of.run.want.ranks, swap, &of);
        const size_t bytes = (size_t)model_elems(of.run.model) * sizeof(float);
        for (int32_t i = 0; i < islands_of(&of); i++) {
            assert_memory_equal(of.states[i], of.masters[i], bytes);
            assert_memory_equal(of.agreed[i], of.agreed[0], bytes);
            assert_memory_not_equal(of.agreed[i], of.masters[i], bytes);
        }
        close_case(&of);
        assert_int_equal(mics_memory_close(memory), 0);
    }
}

// ---- devices, and memory that changes ----

static mics_status open_later(ranks_self *self, const mics_schedule *schedule,
                              mics_device **device_out)
{
    (void)self;
    return later_open(mics_engine_events(schedule), device_out);
}

static void close_devices(islands_run *of)
{
    for (int32_t rank = 0; rank < of->run.want.ranks; rank++)
        mics_device_close(of->run.devices[rank]);
}

static void test_device(void **state)
{
    (void)state;
    for (int option = 0; option < 8; option++) {
        mics_memory *memory = NULL;
        islands_run of =
            on_mesh(&meshes[2 + option],
                    (mics_outer){.every = 2, .fragments = 1, .overlap_steps = option % 2});
        of.run.want.dtype = option / 4 == 0 ? MICS_DTYPE_FP32 : MICS_DTYPE_BF16;
        of.run.want.outer.dtype = option / 2 % 2 == 0 ? MICS_COMM_FP32 : MICS_COMM_BF16;
        of.run.want.outer.moments_every = 1;
        of.run.want.open_device = open_later;
        of.run.want.kernels = &later_table;
        of.run.want.scrub_every = 1;
        ASSERT_OK(mics_memory_open(&memory));
        open_case(memory, &of);
        ranks_run_ok(of.run.want.ranks, train_all, &of);
        compare_with_reference(&of, option == 0 || option == 1 ? 2e-5 : 1e-2);
        close_devices(&of);
        close_case(&of);
        assert_int_equal(mics_memory_close(memory), 0);
    }
}

// Through host copies the state comes back to the same bits on a device, too.
static void test_restart_on_device(void **state)
{
    (void)state;
    for (int64_t restart = 2; restart <= 7; restart++) {
        mics_memory *memory = NULL;
        islands_run through = on_mesh(
            &meshes[restart],
            (mics_outer){.every = 4, .fragments = 2, .overlap_steps = 1, .dtype = MICS_COMM_BF16});
        through.restart = restart;
        through.run.want.open_device = open_later;
        through.run.want.kernels = &later_table;
        islands_run again = through;
        again.restarts = true;
        ASSERT_OK(mics_memory_open(&memory));
        open_case(memory, &through);
        open_case(memory, &again);
        ranks_run_ok(through.run.want.ranks, train_in_two, &through);
        ranks_run_ok(again.run.want.ranks, train_in_two, &again);
        for (int32_t i = 0; i < islands_of(&again); i++)
            assert_memory_equal(again.agreed[i], through.agreed[i],
                                (size_t)model_elems(again.run.model) * sizeof(float));
        close_devices(&through);
        close_devices(&again);
        close_case(&through);
        close_case(&again);
        assert_int_equal(mics_memory_close(memory), 0);
    }
}

// Hashes behind each update and each adoption: nothing has changed by itself.
static void test_scrub(void **state)
{
    (void)state;
    for (size_t m = 0; m < sizeof meshes / sizeof meshes[0]; m++) {
        for (int beside = 0; beside < 2; beside++) {
            islands_run of = on_mesh(&meshes[m], (mics_outer){.every = 2,
                                                              .fragments = 1,
                                                              .overlap_steps = beside,
                                                              .moments_every = 1});
            of.run.want.scrub_every = 1;
            run_case(&of, 2e-5);
        }
    }
}

// One rank's anchor, and all know whose; of four islands most are right, of two nobody knows.
static mics_status differ(ranks_self *self)
{
    islands_run *of = self->arg;
    mics_engine *engine = NULL;
    mics_status status = MICS_OK;
    const int32_t rank = self->comm->rank;
    mics_divergence found = {.found = false};
    MICS_TRY_OUT(open_engine(self, of, &engine));
    MICS_TRY_OUT(train(of, engine, rank, 1, of->steps));
    MICS_TRY_OUT(check_alike(engine));
    if (rank == of->run.want.ranks - 1)
        mics_engine_outer_shard_get(engine, 1).anchor[0] += 1;
    MICS_TRY_OUT(mics_engine_compare(engine, &found));
    if (!found.found || found.state != MICS_REPLICA_ANCHORS || found.unit != 1 || found.majority ||
        found.count != 1 ||
        (found.rank != of->run.want.ranks - 1 && found.other != of->run.want.ranks - 1))
        MICS_TRY_OUT(mics_fail(MICS_ERR_INVALID, "found %d of unit %d on rank %d and %d",
                               (int)found.state, (int)found.unit, (int)found.rank,
                               (int)found.other));
    if (rank == of->run.want.ranks - 1)
        mics_engine_outer_shard_get(engine, 1).anchor[0] -= 1;
    // And of masters inside one island.
    if (rank == of->run.want.ranks - 1)
        mics_engine_optimizer_shard_get(engine, 1).params[0] += 1;
    MICS_TRY_OUT(mics_engine_compare(engine, &found));
    const bool several = of->run.want.island_ranks > of->run.want.sharding.optimizer;
    if (several && (!found.found || found.state != MICS_REPLICA_MASTERS ||
                    found.rank / of->run.want.island_ranks != islands_of(of) - 1))
        MICS_TRY_OUT(
            mics_fail(MICS_ERR_INVALID, "found %d of rank %d", (int)found.state, (int)found.rank));
    MICS_TRY_OUT(mics_engine_agree(engine, MICS_OK));
out:
    if (status != MICS_OK)
        mics_comm_abort(self->comm, NULL);
    mics_engine_close(engine);
    return status;
}

static void test_differ(void **state)
{
    (void)state;
    for (size_t m = 0; m < sizeof meshes / sizeof meshes[0]; m++) {
        mics_memory *memory = NULL;
        islands_run of = on_mesh(&meshes[m], (mics_outer){.every = 2, .fragments = 1});
        of.steps = 3;
        ASSERT_OK(mics_memory_open(&memory));
        open_case(memory, &of);
        ranks_run_ok(of.run.want.ranks, differ, &of);
        close_case(&of);
        assert_int_equal(mics_memory_close(memory), 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_restart),  cmocka_unit_test(test_held),
        cmocka_unit_test(test_left_out), cmocka_unit_test(test_swap),
        cmocka_unit_test(test_device),   cmocka_unit_test(test_restart_on_device),
        cmocka_unit_test(test_scrub),    cmocka_unit_test(test_differ),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
