// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// The planner against the schedules themselves: memory in closed form is the ledger's, bounds are
// below simulated times, extended steps equal simulated ones, and pruning leaves the optimum where
// it is.
#include "checks.h"
#include "mics/builder.h"
#include "plan/search/baseline.h"
#include "plan/search/estimate.h"
#include <stdlib.h>

static void test_memory_is_the_ledgers(void **state)
{
    (void)state;
    for (int variant = 0; variant < 8; variant++) {
        fixture f;
        open_plans(&f, 2, variant == 5 ? 1 : 4, variant == 0 ? 32 : 48);
        if (variant > 5)
            mics_model_set_segments(f.model);
        f.request.precision =
            variant == 0 || variant > 3 ? MICS_PRECISION_MIXED : MICS_PRECISION_FP32;
        f.request.accelerator = variant >= 3 && variant < 7;
        f.request.param_persistence_threshold =
            variant == 1 || variant == 4 ? 200000 : 0; // layers whole, tables not
        f.request.staging_bytes = variant == 2 ? 12345 : 0;
        f.request.share_params = variant == 1;
        f.request.node_memory = variant % 3 != 0; // nothing on accelerators
        f.offload = 3;
        ASSERT_OK(mics_planner_open(f.memory, &f.request, &f.planner));
        visit_all(&f, check_memory);
        visit_all(&f, check_layered);
        close_plans(&f);
    }
}

// Two buffers of a layer's momentum, or one where nothing is sent of it; on nodes of several GPUs
// and of one. Rounds change the order of updates, and so that of gathers.
static void test_muon(void **state)
{
    (void)state;
    for (int variant = 0; variant < 6; variant++) {
        fixture f;
        open_plans(&f, 2, variant % 3 == 0 ? 1 : 4, 32);
        f.request.optimizer = MICS_OPTIMIZER_MUON;
        f.request.precision = variant < 3 ? MICS_PRECISION_MIXED : MICS_PRECISION_FP32;
        f.request.accelerator = variant != 2;
        f.request.param_persistence_threshold = variant == 1 ? 200000 : 0;
        if (variant == 4) {
            mics_model_close(f.model);
            f.request.model = f.model = plan_model(f.memory, 5, 4, 128, 64, 1600);
        }
        ASSERT_OK(mics_planner_open(f.memory, &f.request, &f.planner));
        visit_all(&f, check_memory);
        visit_all(&f, check_bound);
        close_plans(&f);
    }
}

// One rank's sums in 2 bytes, and states in fewer bits on any mesh.
static void test_memory_in_fewer_bytes(void **state)
{
    (void)state;
    for (int variant = 0; variant < 6; variant++) {
        fixture f;
        open_plans(&f, 1, variant < 4 ? 1 : 4, 8);
        f.request.precision = MICS_PRECISION_MIXED;
        f.request.accelerator = variant % 2 == 1;
        f.request.rounded_sums = variant % 4 >= 2;
        f.request.state_dtype = variant == 1   ? MICS_STATE_8BIT
                                : variant == 2 ? MICS_STATE_BF16
                                : variant > 3  ? MICS_STATE_8BIT
                                               : MICS_STATE_FP32;
        f.offload = 3;
        ASSERT_OK(mics_planner_open(f.memory, &f.request, &f.planner));
        visit_all(&f, check_memory);
        visit_all(&f, check_layered);
        close_plans(&f);
    }
}

// Where units are updated before they are gathered between nodes, they are gathered one visit ahead
// in the first forward. The tables are 0.7 to 2.7 times as large as a layer, so the order of gathers
// says which slots there are.
static void test_memory_over_nodes(void **state)
{
    (void)state;
    for (int vocab = 1000; vocab <= 4000; vocab += 600) {
        fixture f;
        open_plans(&f, 4, 2, 32);
        mics_model_close(f.model);
        f.request.model = f.model = plan_model(f.memory, 5, 4, 128, 64, vocab);
        f.request.precision = MICS_PRECISION_FP32;
        f.request.node_memory = vocab < 2000;
        ASSERT_OK(mics_planner_open(f.memory, &f.request, &f.planner));
        visit_all(&f, check_memory);
        close_plans(&f);
    }
}

// A tied embedding's gradients count where each micro-batch in flight has its own.
static void test_layered_is_the_runs(void **state)
{
    (void)state;
    for (int variant = 0; variant < 3; variant++) {
        const mics_plan_choice choice = {.sharding = variant == 2 ? (mics_sharding){1, 8, 8}
                                                                  : (mics_sharding){1, 1, 1},
                                         .micro_batch = 1,
                                         .micro_steps = 64,
                                         .prefetch = 1};
        fixture f;
        open_plans(&f, 2, 4, (int64_t)8 * 64);
        mics_model_close(f.model);
        f.request.model = f.model = plan_model(f.memory, 1, 2, 32, 8, 4000);
        f.request.length = 8;
        f.request.precision = variant == 0 ? MICS_PRECISION_FP32 : MICS_PRECISION_MIXED;
        ASSERT_OK(mics_planner_open(f.memory, &f.request, &f.planner));
        check_layered(&f, &choice);
        close_plans(&f);
    }
}

static void test_packed_numbers_only_add_memory(void **state)
{
    (void)state;
    fixture f;
    open_plans(&f, 2, 2, 8);
    f.request.precision = MICS_PRECISION_FP32;
    f.request.grads_dtype = f.request.params_dtype = mics_comm_dtypes_both(MICS_COMM_BF16);
    f.request.boundary_dtype = mics_comm_dtypes_both(MICS_COMM_INT8);
    ASSERT_OK(mics_planner_open(f.memory, &f.request, &f.planner));
    const mics_plan_choice choice = {.sharding = {2, 2, 4}, .micro_batch = 1, .micro_steps = 2};
    mics_schedule *schedule = schedule_of(&f, &choice);
    double bytes = 0;
    ASSERT_OK(mics_planner_memory(f.planner, &choice, &bytes));
    assert_true(schedule->ledger.bytes[MICS_MEM_MESSAGES] > 0);
    assert_true(bytes < (double)schedule->ledger.total);
    mics_schedule_close(schedule);
    close_plans(&f);
}

// Parameter sync that sends changes.
static void test_changes(void **state)
{
    (void)state;
    for (int nodes = 2; nodes <= 4; nodes += 2) {
        fixture f;
        open_plans(&f, nodes, 2, 16);
        f.request.precision = MICS_PRECISION_MIXED;
        f.request.delta_sync = true;
        f.request.coalesce_below = nodes == 4 ? 100000 : 0;
        ASSERT_OK(mics_planner_open(f.memory, &f.request, &f.planner));
        visit_all(&f, check_memory);
        visit_all(&f, check_bound);
        close_plans(&f);
    }
}

// ---- time ----

static void check_bounds(int nodes, int per_node, int64_t batch, const char *more, bool fp32,
                         mics_comm_dtype wire, bool accelerator)
{
    fixture f;
    open_plans(&f, nodes, per_node, batch);
    f.request.accelerator = accelerator;
    f.request.cluster = plan_cluster(f.memory, per_node, more);
    f.request.coalesce_below = nodes == 3 ? 100000 : 0; // of some units, not of all
    f.request.share_params = true;                      // where numbers are fp32
    if (fp32) {
        f.request.precision = MICS_PRECISION_FP32;
        f.request.math = MICS_MATH_FP32;
        f.request.params_dtype = f.request.grads_dtype = mics_comm_dtypes_both(wire);
        f.request.boundary_dtype = mics_comm_dtypes_both(wire);
    }
    f.offload = accelerator ? 3 : 0;
    ASSERT_OK(mics_planner_open(f.memory, &f.request, &f.planner));
    visit_all(&f, check_bound);
    close_plans(&f);
}

static void test_bounds_are_below_simulated_times(void **state)
{
    (void)state;
    tightest = sum_of_bounds = 0;
    bounds = 0;
    check_bounds(2, 4, 32, "", false, MICS_COMM_FP32, false);
    check_bounds(4, 2, 16, "\"cores\": 3", true, MICS_COMM_FP32, false);
    check_bounds(2, 2, 16, "\"pipelined\": false, \"step_overhead_us\": 500", true, MICS_COMM_BF16,
                 false);
    check_bounds(3, 2, 12, "\"pipelined\": true, \"rings\": 1", false, MICS_COMM_FP32, false);
    check_bounds(1, 1, 4, "", false, MICS_COMM_FP32, false);
    check_bounds(2, 4, 32, "", false, MICS_COMM_FP32, true);
    check_bounds(4, 1, 8, "\"rings\": 1", false, MICS_COMM_FP32, true);
    check_bounds(2, 2, 8, "", true, MICS_COMM_FP32, true);
    // Bounds that say nothing would also be below.
    if (tightest < 0.97)
        fail_msg("the tightest bound is %.3f of its time", tightest);
    if (sum_of_bounds < 0.82 * (double)bounds)
        fail_msg("bounds are %.4f of their times on average", sum_of_bounds / (double)bounds);
}

// Where sums come back beside the last backward, that is part of it. On links that take about as long
// for parameter syncs as the first forward computes, bounds that count them there are above the times.
static void test_bounds_of_early_gathers(void **state)
{
    (void)state;
    static const mics_sharding shardings[] = {
        {1, 1, 4}, {1, 2, 4}, {2, 2, 4}, {4, 4, 4}, {2, 2, 2}};
    fixture f;
    tightest = sum_of_bounds = 0;
    bounds = 0;
    open_plans(&f, 4, 2, 64);
    mics_model_close(f.model);
    f.request.model = f.model = plan_model(f.memory, 32, 4, 128, 64, 300);
    f.request.precision = MICS_PRECISION_FP32;
    f.request.math = MICS_MATH_FP32;
    mics_tier *network = &f.request.cluster.tiers[1];
    for (double rate = 1e9; rate < 5e9; rate *= 1.2) {
        network->bytes_per_s = network->rank_bytes_per_s = rate;
        ASSERT_OK(mics_planner_open(f.memory, &f.request, &f.planner));
        for (int i = 0; i < 5 * 2; i++) {
            const mics_plan_choice choice = {.sharding = shardings[i / 2],
                                             .micro_batch = 8,
                                             .micro_steps = 1,
                                             .prefetch = 2,
                                             .early_gathers = true,
                                             .boundary_two_stage = i % 2 == 0};
            check_bound(&f, &choice);
        }
        mics_planner_close(f.planner);
        f.planner = NULL;
    }
    if (sum_of_bounds < 0.95 * (double)bounds) // else they say little
        fail_msg("bounds are %.4f of their times on average", sum_of_bounds / (double)bounds);
    close_plans(&f);
}

// Beside collectives of both streams, each of which costs computation a lot.
static void test_bounds_where_collectives_slow(void **state)
{
    (void)state;
    static const mics_sharding shardings[] = {
        {1, 2, 8}, {2, 8, 8}, {2, 4, 8}, {4, 4, 4}, {8, 8, 8}};
    fixture f;
    open_plans(&f, 4, 2, 64);
    f.request.cluster.tiers[0].slowdown = f.request.cluster.tiers[1].slowdown = 0.8;
    for (double rate = 5e8; rate < 3e10; rate *= 1.5) {
        mics_tier *network = &f.request.cluster.tiers[1];
        network->bytes_per_s = network->rank_bytes_per_s = rate;
        f.request.cluster.tiers[0].bytes_per_s = f.request.cluster.tiers[0].rank_bytes_per_s = rate;
        ASSERT_OK(mics_planner_open(f.memory, &f.request, &f.planner));
        for (int i = 0; i < 5 * 4; i++) {
            const bool whole = i % 2 == 0;
            const mics_plan_choice choice = {.sharding = shardings[i / 4],
                                             .micro_batch = whole ? 8 : 1,
                                             .micro_steps = whole ? 1 : 8,
                                             .prefetch = 3,
                                             .gather_two_stage = i % 4 < 2,
                                             .reduce_two_stage = true,
                                             .boundary_two_stage = true};
            check_bound(&f, &choice);
        }
        mics_planner_close(f.planner);
        f.planner = NULL;
    }
    close_plans(&f);
}

// Ranks that share sequences, also of lengths that they do not divide: memory is the ledger's, and
// bounds are below times, all-to-alls of two sizes a layer and all.
static void test_shared_sequences(void **state)
{
    (void)state;
    tightest = 0;
    for (int variant = 0; variant < 4; variant++) {
        fixture f;
        open_plans(&f, 2, variant == 3 ? 2 : 4, 8);
        f.sequence = variant == 1 ? 4 : 2;
        f.request.length = variant == 1 ? 61 : 64;
        f.request.accelerator = variant > 1;
        if (variant == 0) {
            f.request.precision = MICS_PRECISION_FP32;
            f.request.math = MICS_MATH_FP32;
        }
        ASSERT_OK(mics_planner_open(f.memory, &f.request, &f.planner));
        visit_all(&f, check_memory);
        visit_all(&f, check_bound);
        close_plans(&f);
    }
    if (tightest < 0.9)
        fail_msg("the tightest bound is %.3f of its time", tightest);
}

// Where one rank's activations do not fit whole, ranks share sequences if that is faster; never in rows
// of other systems.
static void test_sequences_are_shared(void **state)
{
    (void)state;
    int shared = 0;
    for (double bytes = 4.8e6; bytes < 9e6; bytes += 4e5) {
        fixture f;
        mics_plan_result *open = NULL, *alone = NULL;
        mics_plan_entry row;
        open_plans(&f, 2, 4, 16);
        f.request.memory_bytes = bytes;
        ASSERT_OK(mics_planner_open(f.memory, &f.request, &f.planner));
        ASSERT_OK(mics_planner_search(f.planner, &(mics_plan_space){0}, 1, &open));
        ASSERT_OK(mics_planner_search(f.planner, &(mics_plan_space){.sequence = 1}, 1, &alone));
        ASSERT_OK(mics_planner_baseline(f.planner, NULL, MICS_PLAN_ZERO3, &row));
        assert_true(row.choice.sequence <= 1);
        assert_true(open->count >= alone->count);
        if (alone->count > 0)
            assert_true(open->entries[0].step_us <= alone->entries[0].step_us);
        shared += open->count > 0 && open->entries[0].choice.sequence > 1;
        mics_plan_result_close(open);
        mics_plan_result_close(alone);
        close_plans(&f);
    }
    assert_in_range(shared, 1, 9);
}

static void check_extensions(int nodes, int per_node, int64_t batch, const char *more)
{
    fixture f;
    open_plans(&f, nodes, per_node, batch);
    f.request.cluster = plan_cluster(f.memory, per_node, more);
    f.offload = 2;
    ASSERT_OK(mics_planner_open(f.memory, &f.request, &f.planner));
    visit_all(&f, check_extension);
    close_plans(&f);
}

static void test_extended_steps_equal_simulated_ones(void **state)
{
    (void)state;
    check_extensions(2, 2, 4 * 13, "");
    check_extensions(2, 2, 4 * 9, "\"cores\": 3");
    check_extensions(4, 1, 4 * 7, "\"rings\": 1");
    check_extensions(2, 2, 4 * 20, ""); // of turns of 2 and 4
    check_extensions(2, 2, 4 * 15, ""); // of 3
}

// ---- search ----

static void compare_with_exhaustive(int nodes, int per_node, int64_t batch, double memory_bytes,
                                    const char *more, bool accelerator)
{
    const mics_plan_space every = {.exhaustive = true};
    mics_plan_result *pruned = NULL, *again = NULL, *all = NULL;
    fixture f;
    open_plans(&f, nodes, per_node, batch);
    f.request.cluster = plan_cluster(f.memory, per_node, more);
    f.request.memory_bytes = memory_bytes;
    f.request.accelerator = accelerator;
    ASSERT_OK(mics_planner_open(f.memory, &f.request, &f.planner));
    ASSERT_OK(mics_planner_search(f.planner, NULL, 4, &pruned));
    ASSERT_OK(mics_planner_search(f.planner, NULL, 4, &again));
    ASSERT_OK(mics_planner_search(f.planner, &every, 4, &all));
    assert_same_entries(pruned, again);
    assert_same_entries(pruned, all);
    assert_int_equal(all->simulated, all->fitting);
    assert_true(pruned->simulated <= all->simulated);
    assert_true(pruned->space >= pruned->fitting);
    for (int32_t i = 0; i < pruned->count; i++) {
        assert_true(pruned->entries[i].fits);
        assert_true((double)pruned->entries[i].memory.total <=
                    mics_planner_memory_bytes(f.planner));
    }
    mics_plan_result_close(pruned);
    mics_plan_result_close(again);
    mics_plan_result_close(all);
    close_plans(&f);
}

static void test_pruning_keeps_the_optimum(void **state)
{
    (void)state;
    compare_with_exhaustive(2, 2, 16, 0, "", false);
    compare_with_exhaustive(2, 4, 32, 14e6, "", false); // tight
    compare_with_exhaustive(4, 2, 16, 9e6, "\"pipelined\": true, \"rings\": 1", false);
    compare_with_exhaustive(1, 4, 8, 30e6, "", false);
    compare_with_exhaustive(2, 2, 8, 0, "\"cores\": 2, \"pipelined\": false", false);
    compare_with_exhaustive(2, 4, 32, 48e6, "", true);
}

static void test_nothing_fits(void **state)
{
    (void)state;
    fixture f;
    mics_plan_result *result = NULL;
    open_plans(&f, 2, 2, 8);
    f.request.memory_bytes = 100e3;
    ASSERT_OK(mics_planner_open(f.memory, &f.request, &f.planner));
    ASSERT_OK(mics_planner_search(f.planner, NULL, 3, &result));
    assert_int_equal(result->count, 0);
    assert_int_equal(result->fitting, 0);
    assert_false(result->nearest.fits);
    assert_true(result->nearest.spare_bytes < 0);
    assert_int_equal(result->nearest.choice.sharding.optimizer, 4);
    mics_plan_explain(f.planner, NULL, &result->nearest);
    assert_non_null(strstr(result->nearest.why, "does not fit: lacks"));
    mics_plan_result_close(result);
    close_plans(&f);
}

static mics_plan_result *search_with_host(double memory_bytes, double host_bytes_per_s,
                                          const mics_plan_space *space, fixture *f)
{
    mics_plan_result *result = NULL;
    open_plans(f, 2, 2, 8);
    mics_model_close(f->model);
    f->request.model = f->model = plan_model(f->memory, 12, 4, 128, 64, 1000);
    f->request.accelerator = true;
    f->request.memory_bytes = memory_bytes;
    f->request.cluster.accelerator.host_bytes_per_s = host_bytes_per_s;
    ASSERT_OK(mics_planner_open(f->memory, &f->request, &f->planner));
    ASSERT_OK(mics_planner_search(f->planner, space, 2, &result));
    return result;
}

// Where nothing fits without, and in place of recomputation over a fast link; over a slow one not.
static void test_activations_in_host_memory(void **state)
{
    (void)state;
    static const mics_plan_space kept = {.offload_given = true};
    fixture f;
    mics_plan_result *result = search_with_host(1e15, 1e12, NULL, &f);
    assert_int_equal(result->entries[0].choice.offload_units, 0);
    mics_plan_result_close(result);
    close_plans(&f);
    result = search_with_host(1e5, 1e12, &kept, &f);
    const double least = (double)result->nearest.memory.total;
    mics_plan_result_close(result);
    close_plans(&f);
    for (int slow = 0; slow < 2; slow++) {
        result = search_with_host(least - 1, slow ? 1e6 : 1e12, NULL, &f);
        assert_true(result->count > 0 && result->entries[0].choice.offload_units > 0);
        assert_true((double)result->entries[0].memory.total <= least - 1);
        assert_true(result->entries[0].memory.bytes[MICS_MEM_OFFLOAD] > 0);
        assert_true((result->entries[0].exposed_copy_us > 0.5 * result->entries[0].step_us) ==
                    slow);
        mics_plan_result_close(result);
        close_plans(&f);
    }
    for (int slow = 0; slow < 2; slow++) {
        result = search_with_host(1.2 * least, slow ? 1e6 : 1e12, NULL, &f);
        assert_int_equal(result->entries[0].choice.offload_units > 0, slow == 0);
        mics_plan_result_close(result);
        close_plans(&f);
    }
}

static void test_spaces_are_kept_to(void **state)
{
    (void)state;
    const mics_plan_space space = {.sharding = {2, 2, 4},
                                   .micro_batch = 2,
                                   .recompute_given = true,
                                   .recompute = {.units = MICS_RECOMPUTE_ALL},
                                   .prefetch_given = true,
                                   .prefetch = 2,
                                   .layered_micro_steps = 2,
                                   .collectives_given = true};
    const mics_plan_space deep = {
        .sharding = {2, 2, 4}, .prefetch_given = true, .prefetch = 2 * MICS_PLAN_MAX_PREFETCH};
    const mics_plan_space none = {.micro_batch = 3};
    const mics_plan_space odd = {.sharding = {3, 3, 3}};
    mics_plan_result *result = NULL;
    fixture f;
    open_plans(&f, 2, 2, 16);
    ASSERT_OK(mics_planner_open(f.memory, &f.request, &f.planner));
    ASSERT_OK(mics_planner_search(f.planner, &space, 5, &result));
    assert_int_equal(result->count, 1);
    assert_int_equal(result->space, 1);
    const mics_plan_choice *c = &result->entries[0].choice;
    assert_int_equal(c->micro_batch, 2);
    assert_int_equal(c->prefetch, 2);
    assert_int_equal(c->layered_micro_steps, 2);
    assert_true(mics_recomputes(c->recompute) && !c->gather_two_stage && !c->reduce_two_stage);
    mics_plan_result_close(result);
    ASSERT_OK(mics_planner_search(f.planner, &deep, 5, &result));
    assert_int_equal(result->entries[0].choice.prefetch, deep.prefetch);
    mics_plan_result_close(result);
    ASSERT_STATUS(MICS_ERR_INVALID, mics_planner_search(f.planner, &none, 1, &result));
    ASSERT_STATUS(MICS_ERR_INVALID, mics_planner_search(f.planner, &odd, 1, &result));
    ASSERT_STATUS(MICS_ERR_INVALID, mics_planner_search(f.planner, NULL, 0, &result));
    close_plans(&f);
}

// Every form that fits takes at least as long as what the search answers with.
static void check_forms(fixture *f, const mics_plan_entry *best, int32_t layers)
{
    int32_t fitting = 0;
    for (int parts = 0; parts < 4; parts++) {
        for (int32_t units = 0; units <= layers; units++) {
            for (int last = 0; last < (units == 0 ? 1 : 2); last++) {
                mics_plan_choice choice = best->choice;
                mics_plan_entry e;
                double bytes = 0;
                choice.recompute =
                    (mics_recompute){units, last == 1, parts % 2 == 1, parts / 2 == 1};
                ASSERT_OK(mics_planner_memory(f->planner, &choice, &bytes));
                ASSERT_OK(mics_planner_evaluate(f->planner, &choice, &e));
                assert_true(f->request.coalesce_below > 0 ? (size_t)bytes < e.memory.total
                                                          : (size_t)bytes == e.memory.total);
                fitting += e.fits;
                if (e.fits && best->step_us > e.step_us * (1 + 1e-3))
                    fail_msg("%d%s layers, parts %d: %g us, and the best of %d takes %g",
                             (int)units, last == 1 ? " last" : "", parts, e.step_us,
                             (int)best->choice.recompute.units, best->step_us);
            }
        }
    }
    assert_true(fitting > 0);
}

// What just fits is found exactly, also with messages that units share: with one layer less it does
// not fit. Memory is that of one byte less than each number of layers takes, and of as many as it
// takes.
static void check_fewest_layers(int64_t coalesce_below)
{
    enum { LAYERS = 5 };
    mics_plan_entry e;
    const mics_plan_space space = {.sharding = {2, 2, 4},
                                   .micro_batch = 4,
                                   .prefetch_given = true,
                                   .prefetch = 1,
                                   .offload_given = true,
                                   .layered_micro_steps = 2,
                                   .collectives_given = true};
    mics_plan_choice choice = {.sharding = space.sharding,
                               .micro_batch = space.micro_batch,
                               .micro_steps = 4,
                               .prefetch = 1,
                               .layered_micro_steps = 2};
    fixture f;
    open_plans(&f, 2, 2, 64);
    f.request.coalesce_below = coalesce_below;
    for (int i = 0; i <= 2 * LAYERS + 1; i++) {
        mics_plan_result *result = NULL;
        f.request.memory_bytes = 0;
        ASSERT_OK(mics_planner_open(f.memory, &f.request, &f.planner));
        choice.recompute = (mics_recompute){i / 2, false, false, false};
        ASSERT_OK(mics_planner_evaluate(f.planner, &choice, &e));
        mics_planner_close(f.planner);
        f.request.memory_bytes = (double)e.memory.total - i % 2;
        ASSERT_OK(mics_planner_open(f.memory, &f.request, &f.planner));
        ASSERT_OK(mics_planner_search(f.planner, &space, 1, &result));
        if (i == 2 * LAYERS + 1 && result->count == 0) {
            mics_plan_result_close(result);
            mics_planner_close(f.planner);
            break; // nothing is left to recompute
        }
        assert_int_equal(result->count, 1);
        mics_plan_choice less = result->entries[0].choice;
        check_forms(&f, &result->entries[0], LAYERS);
        assert_true(i > 0 || !mics_recomputes(less.recompute));
        if (less.recompute.units > 0 && less.recompute.units <= LAYERS) {
            less.recompute.units--;
            ASSERT_OK(mics_planner_evaluate(f.planner, &less, &e));
            assert_false(e.fits);
        }
        mics_plan_result_close(result);
        mics_planner_close(f.planner);
    }
    f.planner = NULL;
    close_plans(&f);
}

static void test_fewest_layers(void **state)
{
    (void)state;
    check_fewest_layers(0);
    check_fewest_layers(1 << 20);
}

// A number that is given stands, at the end that is faster.
static void test_given_layers(void **state)
{
    (void)state;
    const mics_plan_space space = {.recompute_given = true,
                                   .recompute_open = true,
                                   .recompute = {2, false, true, false},
                                   .micro_batch = 2};
    mics_plan_result *result = NULL;
    mics_plan_entry other;
    fixture f;
    open_plans(&f, 2, 2, 16);
    ASSERT_OK(mics_planner_open(f.memory, &f.request, &f.planner));
    ASSERT_OK(mics_planner_search(f.planner, &space, 3, &result));
    for (int32_t i = 0; i < result->count; i++) {
        mics_plan_choice choice = result->entries[i].choice;
        assert_true(choice.recompute.units == 2 && choice.recompute.attention);
        choice.recompute.last = !choice.recompute.last;
        ASSERT_OK(mics_planner_evaluate(f.planner, &choice, &other));
        assert_true(result->entries[i].step_us <= other.step_us + 1e-3);
    }
    mics_plan_result_close(result);
    close_plans(&f);
}

// Every sharding that is searched keeps so many copies, and the best of them is the best of all
// that do; baselines are what they are.
static void test_min_replicas(void **state)
{
    (void)state;
    const mics_plan_space twice = {.min_replicas = 2};
    mics_plan_result *all = NULL, *result = NULL;
    mics_plan_entry zero1;
    int32_t best = 0;
    fixture f;
    open_plans(&f, 2, 2, 16);
    ASSERT_OK(mics_planner_open(f.memory, &f.request, &f.planner));
    ASSERT_OK(mics_planner_search(f.planner, NULL, 100, &all));
    ASSERT_OK(mics_planner_search(f.planner, &twice, 100, &result));
    assert_true(result->count > 0 && result->count < all->count);
    for (int32_t i = 0; i < result->count; i++)
        assert_true(2 * result->entries[i].choice.sharding.optimizer <= 4);
    while (2 * all->entries[best].choice.sharding.optimizer > 4)
        best++;
    assert_true(all->entries[best].step_us == result->entries[0].step_us);
    mics_plan_result_close(result);
    mics_plan_result_close(all);
    mics_planner_close(f.planner);
    f.request.min_replicas = 4; // ddp alone
    ASSERT_OK(mics_planner_open(f.memory, &f.request, &f.planner));
    ASSERT_OK(mics_planner_search(f.planner, NULL, 100, &result));
    assert_int_equal(result->count, 1);
    assert_int_equal(result->entries[0].choice.sharding.optimizer, 1);
    mics_plan_result_close(result);
    ASSERT_OK(mics_planner_baseline(f.planner, NULL, MICS_PLAN_ZERO1, &zero1));
    assert_int_equal(zero1.choice.sharding.optimizer, 4);
    mics_planner_close(f.planner);
    f.request.min_replicas = 5;
    ASSERT_OK(mics_planner_open(f.memory, &f.request, &f.planner));
    ASSERT_STATUS(MICS_ERR_INVALID, mics_planner_search(f.planner, NULL, 1, &result));
    close_plans(&f);
}

// ---- entries ----

// However fast a machine is, the kind of step that a step waits for most is no longer than it.
static void test_limit_of_a_fast_machine(void **state)
{
    (void)state;
    const mics_plan_choice choice = {
        .sharding = {1, 1, 1}, .micro_batch = 2, .micro_steps = 2, .prefetch = 1};
    mics_plan_entry e;
    fixture f;
    open_plans(&f, 1, 1, 4);
    mics_accelerator *chip = &f.request.cluster.accelerator;
    chip->launch_us = 0;
    chip->memory_bytes_per_s = 1e18;
    chip->update_bytes_per_s = 1e9; // 28 bytes of each parameter take longest
    for (int math = 0; math < MICS_MATHS; math++)
        chip->flops_per_s[math] = 1e18;
    ASSERT_OK(mics_planner_open(f.memory, &f.request, &f.planner));
    ASSERT_OK(mics_planner_evaluate(f.planner, &choice, &e));
    assert_int_equal(e.limit, MICS_STEP_UPDATE);
    assert_true(e.limit_us > 0.99 * e.update_us && e.limit_us <= e.step_us);
    close_plans(&f);
    f = (fixture){0};
    open_plans(&f, 1, 1, 4);
    chip->launch_us = 0;
    chip->memory_bytes_per_s = chip->update_bytes_per_s = 1e18;
    for (int math = 0; math < MICS_MATHS; math++)
        chip->flops_per_s[math] = 1e16;
    ASSERT_OK(mics_planner_open(f.memory, &f.request, &f.planner));
    ASSERT_OK(mics_planner_evaluate(f.planner, &choice, &e));
    assert_true(e.step_us < 1);
    assert_int_equal(e.limit, MICS_STEP_BACKWARD);
    assert_true(e.limit_us > 0.5 * e.step_us && e.limit_us <= e.step_us);
    close_plans(&f);
}

static void test_rates(void **state)
{
    (void)state;
    const mics_plan_choice choice = {.sharding = {2, 2, 4},
                                     .micro_batch = 2,
                                     .micro_steps = 2,
                                     .prefetch = 1,
                                     .recompute = {.units = MICS_RECOMPUTE_ALL}};
    mics_plan_entry e;
    fixture f;
    open_plans(&f, 2, 2, 16);
    ASSERT_OK(mics_planner_open(f.memory, &f.request, &f.planner));
    ASSERT_OK(mics_planner_evaluate(f.planner, &choice, &e));
    const double flops = mics_model_flops_per_token(f.model, 64) * 16 * 64 / 4;
    assert_close(e.tokens, 16 * 64, 0, "tokens");
    assert_close(e.tokens_per_s, 16 * 64 / e.step_us * 1e6, 1e-12, "tokens/s");
    assert_close(e.tflops_per_gpu, flops / e.step_us * 1e-6, 1e-12, "TFLOP/s");
    assert_close(e.mfu, flops / e.step_us * 1e6 / 8e12, 1e-12, "MFU");
    assert_close(e.usd_per_gtoken, 2 * 3.6 / 3600 / e.tokens_per_s * 1e9, 1e-12, "price");
    assert_true(e.hardware_flops > e.model_flops);
    assert_string_equal(e.name, "mics+(2)");
    assert_close(e.spare_bytes, 15.0 * (1 << 30) - (double)e.memory.total, 1e-12, "spare");
    close_plans(&f);
}

static void test_baselines(void **state)
{
    (void)state;
    fixture f;
    mics_plan_entry entries[MICS_PLAN_BASELINES];
    open_plans(&f, 2, 2, 16);
    f.request.memory_bytes = 9e6; // ddp takes 16 bytes a parameter: 18 MB
    ASSERT_OK(mics_planner_open(f.memory, &f.request, &f.planner));
    for (int b = 0; b < MICS_PLAN_BASELINES; b++) {
        ASSERT_OK(mics_planner_baseline(f.planner, NULL, (mics_plan_baseline)b, &entries[b]));
        mics_plan_explain(f.planner, NULL, &entries[b]);
        assert_true(entries[b].why[0] != '\0');
        assert_true(entries[b].fits == ((double)entries[b].memory.total <= 9e6));
    }
    assert_false(entries[MICS_PLAN_DDP].fits);
    assert_string_equal(entries[MICS_PLAN_ZERO3].name, "zero3");
    assert_true(entries[MICS_PLAN_ZERO3].fits);
    assert_false(entries[MICS_PLAN_ZERO3].choice.gather_two_stage);
    const mics_sharding mics = entries[MICS_PLAN_MICS].choice.sharding;
    assert_true(mics.params == mics.grads && mics.grads == mics.optimizer);
    const mics_sharding plus = entries[MICS_PLAN_MICS_PLUS].choice.sharding;
    assert_true(plus.params == plus.grads && plus.optimizer == 4);
    assert_true(entries[MICS_PLAN_HPZ].choice.sharding.params > 1);
    assert_true(entries[MICS_PLAN_MEGATRON].pipeline.stages > 0);
    // The smallest that fits: the next smaller one does not.
    if (mics.params > 1) {
        const mics_plan_space smaller = {
            .sharding = {mics.params / 2, mics.params / 2, mics.params / 2}};
        mics_plan_result *result = NULL;
        ASSERT_OK(mics_planner_search(f.planner, &smaller, 1, &result));
        assert_int_equal(result->count, 0);
        mics_plan_result_close(result);
    }
    close_plans(&f);
}

// No other row of the ZeRO and MiCS family is faster than what this library does at the row's sharding:
// its replica gathers run behind backward, too, as those of the other systems. Rings that sum in 2 bytes
// are not this library's.
static void test_no_row_is_faster(void **state)
{
    (void)state;
    static const struct {
        const char *cluster;
        int32_t nodes, layers, width, experts;
        double memory_bytes;
    } cases[] = {{"p5.48xlarge", 64, 12, 4096, 32, 40e9},
                 {"p5.48xlarge", 16, 12, 4096, 8, 0},
                 {"p4d.24xlarge", 16, 12, 4096, 4, 0},
                 {"p4d.24xlarge", 64, 8, 4096, 16, 0}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        fixture f;
        open_plans(&f, 1, 8, 1024);
        take_mixture_of(&f, cases[i].layers, cases[i].width, cases[i].experts);
        ASSERT_OK(mics_cluster_find(cases[i].cluster, &f.request.cluster));
        f.request.nodes = cases[i].nodes;
        f.request.length = 4096;
        f.request.accelerator = true;
        f.request.coalesce_below = 1 << 20;
        f.request.memory_bytes = cases[i].memory_bytes;
        ASSERT_OK(mics_planner_open(f.memory, &f.request, &f.planner));
        for (int b = 0; b < MICS_PLAN_MEGATRON; b++) {
            mics_plan_entry row;
            mics_plan_result *result = NULL;
            ASSERT_OK(mics_planner_baseline(f.planner, NULL, (mics_plan_baseline)b, &row));
            const mics_plan_space space = {.sharding = row.choice.sharding, .fitting_only = true};
            const bool rounds = row.choice.sums_by_ring && row.choice.sharding.grads > 1;
            if (!row.fits || rounds) // sums to 2 bytes at every rank
                continue;
            ASSERT_OK(mics_planner_search(f.planner, &space, 1, &result));
            assert_int_equal(result->count, 1);
            double bytes = 0; // sums in chunks too
            ASSERT_OK(mics_planner_memory(f.planner, &result->entries[0].choice, &bytes));
            assert_true(bytes == (double)result->entries[0].memory.total);
            if (row.step_us < result->entries[0].step_us)
                fail_msg("case %d: %s takes %.3f us, at its sharding %.3f us", (int)i, row.name,
                         row.step_us, result->entries[0].step_us);
            mics_plan_result_close(result);
        }
        close_plans(&f);
    }
}

// Small layers share messages where that is faster: rows of other systems are as good as those are.
static void test_buckets(void **state)
{
    (void)state;
    fixture f;
    open_plans(&f, 8, 4, 64);
    f.request.coalesce_below = 1;
    f.request.cluster.tiers[1].latency_us = 1000; // rings that are all latency
    ASSERT_OK(mics_planner_open(f.memory, &f.request, &f.planner));
    static const mics_sharding shardings[] = {{1, 1, 1}, {1, 1, 32}};
    static const mics_plan_baseline rows[] = {MICS_PLAN_DDP, MICS_PLAN_ZERO1};
    for (int i = 0; i < 2; i++) {
        mics_plan_entry row, alone;
        ASSERT_OK(mics_planner_baseline(f.planner, NULL, rows[i], &row));
        mics_plan_choice choice = row.choice;
        assert_int_equal(choice.sharding.optimizer, shardings[i].optimizer);
        ASSERT_OK(mics_planner_evaluate(f.planner, &choice, &alone)); // a message a layer
        if (row.step_us > 0.5 * alone.step_us)
            fail_msg("%s: %.0f us, a message a layer %.0f us", row.name, row.step_us,
                     alone.step_us);
    }
    close_plans(&f);
}

// 6 sequences on 4 ranks: a rank computes 2, and 2 of 8 rows count nothing.
static void test_uneven_batch(void **state)
{
    (void)state;
    fixture f;
    mics_plan_entry entry, whole;
    mics_plan_result *result = NULL;
    open_plans(&f, 2, 2, 8);
    mics_plan_choice choice = {.sharding = {1, 1, 1}, .micro_batch = 1, .micro_steps = 2};
    ASSERT_OK(mics_planner_open(f.memory, &f.request, &f.planner));
    ASSERT_OK(mics_planner_evaluate(f.planner, &choice, &whole));
    mics_planner_close(f.planner);
    f.request.global_batch = 6;
    ASSERT_OK(mics_planner_open(f.memory, &f.request, &f.planner));
    ASSERT_OK(mics_planner_search(f.planner, NULL, 1, &result));
    assert_int_equal(result->entries[0].choice.micro_batch * result->entries[0].choice.micro_steps,
                     2);
    mics_plan_result_close(result);
    ASSERT_OK(mics_planner_evaluate(f.planner, &choice, &entry)); // as long, with fewer tokens
    assert_true(entry.step_us == whole.step_us && entry.hardware_flops == whole.hardware_flops);
    assert_true(entry.tokens == 0.75 * whole.tokens);
    choice.micro_steps = 1;
    ASSERT_STATUS(MICS_ERR_INVALID, mics_planner_evaluate(f.planner, &choice, &entry));
    ASSERT_OK(mics_planner_baseline(f.planner, NULL, MICS_PLAN_MEGATRON, &entry));
    assert_true(entry.pipeline.data > 0 && 6 % entry.pipeline.data == 0);
    mics_planner_close(f.planner);
    // What the run file says is tried also where it does not divide a rank's share.
    f.request.global_batch = 20;
    f.request.micro_batch = 3;
    ASSERT_OK(mics_planner_open(f.memory, &f.request, &f.planner));
    choice = (mics_plan_choice){.sharding = {1, 1, 1}, .micro_batch = 3, .micro_steps = 2};
    ASSERT_OK(mics_planner_evaluate(f.planner, &choice, &entry));
    const mics_plan_space space = {.micro_batch = 3};
    ASSERT_OK(mics_planner_search(f.planner, &space, 1, &result));
    assert_int_equal(result->entries[0].choice.micro_steps, 2);
    mics_plan_result_close(result);
    choice = (mics_plan_choice){.sharding = {1, 1, 1}, .micro_batch = 2, .micro_steps = 3};
    ASSERT_STATUS(MICS_ERR_INVALID, mics_planner_evaluate(f.planner, &choice, &entry));
    close_plans(&f);
}

static void test_bad_requests(void **state)
{
    (void)state;
    fixture f;
    mics_planner *planner = NULL;
    open_plans(&f, 2, 2, 16);
    const mics_plan_request good = f.request;
    const struct {
        int64_t length, batch;
        int32_t nodes;
    } bad[] = {{0, 16, 2},  {65, 16, 2},        {64, 0, 2},         {64, -4, 2},
               {64, 16, 0}, {64, INT64_MAX, 2}, {64, 16, INT32_MAX}};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        f.request = good;
        f.request.length = bad[i].length;
        f.request.global_batch = bad[i].batch;
        f.request.nodes = bad[i].nodes;
        ASSERT_STATUS(MICS_ERR_INVALID, mics_planner_open(f.memory, &f.request, &planner));
    }
    assert_null(planner);
    f.request = good;
    ASSERT_OK(mics_planner_open(f.memory, &f.request, &f.planner));
    const mics_plan_choice choices[] = {
        {.sharding = {3, 3, 3}, .micro_batch = 1, .micro_steps = 4},
        {.sharding = {1, 1, 1}, .micro_batch = 1, .micro_steps = 3},
        {.sharding = {1, 1, 1}, .micro_batch = 0, .micro_steps = 4},
        {.sharding = {1, 1, 1}, .micro_batch = 4, .micro_steps = -1},
        {.sharding = {1, 1, 1}, .micro_batch = 1, .micro_steps = 4, .prefetch = -1},
        {.sharding = {1, 1, 1}, .micro_batch = 1, .micro_steps = 4, .layered_micro_steps = -1},
        {.sharding = {2, 1, 1}, .micro_batch = 1, .micro_steps = 4},
    };
    mics_plan_entry entry;
    double value = 0;
    for (size_t i = 0; i < sizeof choices / sizeof choices[0]; i++) {
        ASSERT_STATUS(MICS_ERR_INVALID, mics_planner_evaluate(f.planner, &choices[i], &entry));
        ASSERT_STATUS(MICS_ERR_INVALID, mics_planner_memory(f.planner, &choices[i], &value));
        ASSERT_STATUS(MICS_ERR_INVALID, mics_planner_bound(f.planner, &choices[i], &value));
    }
    close_plans(&f);
}

// ---- allocation failures ----

static mics_status plan_once(fixture *f)
{
    const mics_plan_space space = {.sharding = {2, 2, 4}, .prefetch_given = true, .prefetch = 1};
    mics_plan_result *result = NULL;
    mics_plan_entry entry;
    MICS_TRY(mics_planner_open(f->memory, &f->request, &f->planner));
    mics_status status = mics_planner_search(f->planner, &space, 2, &result);
    mics_plan_result_close(result);
    if (status == MICS_OK)
        status = mics_planner_baseline(f->planner, NULL, MICS_PLAN_MEGATRON, &entry);
    mics_planner_close(f->planner);
    f->planner = NULL;
    return status;
}

static void test_failed_allocations(void **state)
{
    (void)state;
    fixture f;
    open_plans(&f, 2, 2, 8);
    mics_memory_stats before, after;
    mics_memory_stats_get(f.memory, &before);
    bool passed = false;
    // Every one of the first hundred, then with growing strides: a run makes thousands.
    for (int64_t n = 1; !passed; n += 1 + n / 40) {
        mics_memory_fail_after(f.memory, n);
        const mics_status status = plan_once(&f);
        mics_memory_fail_after(f.memory, 0);
        passed = status == MICS_OK;
        if (!passed)
            assert_int_equal(status, MICS_ERR_MEMORY);
        mics_memory_stats_get(f.memory, &after);
        assert_int_equal(after.live_blocks, before.live_blocks);
    }
    close_plans(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_memory_is_the_ledgers),
        cmocka_unit_test(test_muon),
        cmocka_unit_test(test_memory_in_fewer_bytes),
        cmocka_unit_test(test_memory_over_nodes),
        cmocka_unit_test(test_layered_is_the_runs),
        cmocka_unit_test(test_packed_numbers_only_add_memory),
        cmocka_unit_test(test_changes),
        cmocka_unit_test(test_bounds_are_below_simulated_times),
        cmocka_unit_test(test_bounds_of_early_gathers),
        cmocka_unit_test(test_bounds_where_collectives_slow),
        cmocka_unit_test(test_shared_sequences),
        cmocka_unit_test(test_sequences_are_shared),
        cmocka_unit_test(test_extended_steps_equal_simulated_ones),
        cmocka_unit_test(test_pruning_keeps_the_optimum),
        cmocka_unit_test(test_nothing_fits),
        cmocka_unit_test(test_activations_in_host_memory),
        cmocka_unit_test(test_spaces_are_kept_to),
        cmocka_unit_test(test_fewest_layers),
        cmocka_unit_test(test_given_layers),
        cmocka_unit_test(test_min_replicas),
        cmocka_unit_test(test_limit_of_a_fast_machine),
        cmocka_unit_test(test_rates),
        cmocka_unit_test(test_baselines),
        cmocka_unit_test(test_no_row_is_faster),
        cmocka_unit_test(test_buckets),
        cmocka_unit_test(test_uneven_batch),
        cmocka_unit_test(test_bad_requests),
        cmocka_unit_test(test_failed_allocations),
    };
    mics_log_set_sink(drop_line, NULL);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
