// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// What an engine does when something fails: memory, any exchange of a step, the data, the numbers.
// One line says it, every rank hears of it, nothing leaks, and the test would see a rank that waits
// for the others' time-out.
#include "comm/fault.h"
#include "fixture.h"
#include "mics/core/transport.h"
#include "model/from_config.h"
#include <math.h>
#include <stdatomic.h>

enum { TIMEOUT_S = 20, FAULT_RANKS = 4, MICRO_STEPS = 2 };

// ---- lines that ranks log ----

typedef struct lines {
    atomic_int errors;
} lines;

static void count_line(void *ctx, mics_log_level level, int32_t rank, const char *line)
{
    lines *seen = ctx;
    (void)rank;
    (void)line;
    if (level == MICS_LOG_ERROR)
        atomic_fetch_add(&seen->errors, 1);
}

static lines *listen(void)
{
    static lines seen;
    atomic_store(&seen.errors, 0);
    mics_log_set_sink(count_line, &seen);
    return &seen;
}

static int heard(lines *seen)
{
    mics_log_set_sink(NULL, NULL);
    return atomic_load(&seen->errors);
}

// ---- runs in which one rank fails ----

typedef struct fault_run {
    fixture_run run;
    mics_status (*call)(struct fault_run *fault, mics_engine *engine, int32_t rank); // that fails
    int32_t faulty;          // the rank that fails
    int64_t exchange;        // which of its exchanges fails; 0: none
    int64_t allocation;      // and which allocation of opening the engine
    int32_t micro_step;      // whose tokens it cannot read; -1: none
    float poison;            // put into its parameters, unless 0
    pthread_barrier_t ended; // all ranks have their result: none was woken by another's return
    mics_status statuses[FAULT_RANKS]; // of the step
    bool kept[FAULT_RANKS];            // parameters and moments are as before the step
} fault_run;

static const mics_sharding shardings[] = {{1, 1, 1}, {2, 2, 2}, {2, 2, 4},
                                          {4, 4, 4}, {1, 1, 4}, {1, 4, 4}};
enum { SHARDINGS = sizeof shardings / sizeof shardings[0] };

typedef struct fault_source {
    const fault_run *fault;
    fixture_source inner;
} fault_source;

static mics_status fault_read(void *ctx, int32_t micro_step, int32_t *inputs_out,
                              int32_t *targets_out)
{
    fault_source *source = ctx;
    if (source->inner.rank == source->fault->faulty && micro_step == source->fault->micro_step)
        return mics_fail(MICS_ERR_IO, "told to fail at micro-step %d", (int)micro_step);
    return fixture_read(&source->inner, micro_step, inputs_out, targets_out);
}

static mics_status steps(fault_run *fault, mics_engine *engine, int32_t rank, int64_t count)
{
    fault_source source = {.fault = fault, .inner = {.run = &fault->run, .rank = rank}};
    const mics_batch_source read = {.read = fault_read, .ctx = &source};
    mics_step_result result;
    mics_status status = MICS_OK;
    for (int64_t step = 1; status == MICS_OK && step <= count; step++) {
        source.inner.step = step;
        status = mics_engine_step(engine, step, 1e-3f, &read, &result);
    }
    return status;
}

static mics_status step(fault_run *fault, mics_engine *engine, int32_t rank)
{
    return steps(fault, engine, rank, 1);
}

// The second one completes the first.
static mics_status two_steps(fault_run *fault, mics_engine *engine, int32_t rank)
{
    return steps(fault, engine, rank, 2);
}

static mics_status step_and_complete(fault_run *fault, mics_engine *engine, int32_t rank)
{
    const mics_status status = step(fault, engine, rank);
    return status == MICS_OK ? mics_engine_complete(engine) : status;
}

// Every rank makes as many.
static int64_t exchanges_of_steps(const fault_run *fault, int32_t count)
{
    const mics_schedule *schedule = fault->run.schedule;
    return step_exchanges_of(schedule, 0, false) +
           (count > 1 ? step_exchanges_of(schedule, 0, mics_schedule_defers(schedule)) : 0);
}

static mics_status evaluate(fault_run *fault, mics_engine *engine, int32_t rank)
{
    fixture_source source = {.run = &fault->run, .step = 1, .rank = rank};
    const mics_batch_source read = {.read = fixture_read, .ctx = &source};
    mics_step_result result;
    return mics_engine_eval(engine, &read, &result);
}

// Counting on top of the fault on top of the transport.
static mics_status open_rank(fault_run *fault, ranks_self *self, mics_engine **engine_out)
{
    const bool faulty = self->comm->rank == fault->faulty;
    MICS_TRY(fault_open_take(self->memory, self->comm, faulty ? fault->exchange : 0, &self->comm));
    MICS_TRY(fixture_count(self, &fault->run));
    mics_memory_fail_after(self->memory, faulty ? fault->allocation : 0);
    MICS_TRY(fixture_open_engine(self, &fault->run, engine_out));
    mics_memory_fail_after(self->memory, 0);
    mics_engine_init_random(*engine_out, 1);
    return MICS_OK;
}

static mics_status publish(fault_run *fault, mics_engine *engine, int32_t rank)
{
    (void)fault;
    (void)rank;
    return mics_engine_complete(engine);
}

static void fault_open(mics_memory *memory, mics_sharding sharding, int32_t prefetch,
                       fault_run *fault)
{
    *fault = (fault_run){.run.want = {.ranks = FAULT_RANKS,
                                      .nodes = 2,
                                      .sharding = sharding,
                                      .sequences = FAULT_RANKS * MICRO_STEPS,
                                      .micro_steps = MICRO_STEPS,
                                      .prefetch = prefetch,
                                      .clip = 1},
                         .call = step,
                         .micro_step = -1};
    fixture_open(memory, &fault->run);
    assert_int_equal(pthread_barrier_init(&fault->ended, NULL, FAULT_RANKS), 0);
}

static void fault_close(fault_run *fault)
{
    pthread_barrier_destroy(&fault->ended);
    fixture_close(&fault->run);
}

// A rank that needed nothing more of the one that failed may end the call well; then it learns of
// the failure in the next collective.
static mics_status fault_rank(ranks_self *self)
{
    fault_run *fault = self->arg;
    mics_engine *engine = NULL;
    const int32_t rank = self->comm->rank;
    MICS_TRY(open_rank(fault, self, &engine));
    mics_status status = fault->call(fault, engine, rank);
    if (status == MICS_OK)
        status = mics_engine_agree(engine, MICS_OK);
    fault->statuses[rank] = status;
    pthread_barrier_wait(&fault->ended);
    mics_engine_close(engine);
    return MICS_OK;
}

static void check_peers(const fault_run *fault, mics_status expected)
{
    for (int32_t rank = 0; rank < FAULT_RANKS; rank++)
        ASSERT_STATUS(rank == fault->faulty ? expected : MICS_ERR_ABORTED, fault->statuses[rank]);
}

// Opening ranks agree on what they could allocate; behind that a failure ends the world.
static void check_openers(const fault_run *fault)
{
    for (int32_t rank = 0; rank < FAULT_RANKS; rank++) {
        const mics_status status = fault->statuses[rank];
        if (rank == fault->faulty)
            ASSERT_STATUS(MICS_ERR_MEMORY, status);
        else
            assert_true(status == MICS_ERR_PEER || status == MICS_ERR_ABORTED);
    }
}

static void go(fault_run *fault, ranks_function function)
{
    mics_status statuses[FAULT_RANKS];
    ranks_run_timeout(FAULT_RANKS, TIMEOUT_S, function, fault, statuses);
    for (int32_t rank = 0; rank < FAULT_RANKS; rank++)
        ASSERT_OK(statuses[rank]);
}

// Exchanges of the call number 1 .. last fail in turn, each time on another rank.
static void fail_each_exchange(fault_run *fault, int64_t last)
{
    for (int64_t n = 1; n <= last; n++) {
        fault->faulty = (int32_t)(n % FAULT_RANKS);
        fault->exchange = n;
        lines *seen = listen();
        go(fault, fault_rank);
        assert_int_equal(heard(seen), 1);
        check_peers(fault, MICS_ERR_COMM);
    }
}

static void test_each_exchange_of_a_step(void **state)
{
    (void)state;
    mics_memory *memory = NULL;
    ASSERT_OK(mics_memory_open(&memory));
    for (int i = 0; i < SHARDINGS; i++) {
        fault_run fault;
        fault_open(memory, shardings[i], i % 2, &fault);
        fault.call = two_steps;
        fail_each_exchange(&fault, exchanges_of_steps(&fault, 2));
        fault.exchange = 0; // and without a fault all is well
        go(&fault, fault_rank);
        for (int32_t rank = 0; rank < FAULT_RANKS; rank++)
            ASSERT_OK(fault.statuses[rank]);
        fault_close(&fault);
    }
    assert_int_equal(mics_memory_close(memory), 0);
}

// Momentum on its way to owners and back, too.
static void test_each_exchange_of_muon(void **state)
{
    (void)state;
    mics_memory *memory = NULL;
    ASSERT_OK(mics_memory_open(&memory));
    for (int i = 0; i < SHARDINGS; i++) {
        fault_run fault;
        fault_open(memory, shardings[i], i % 2, &fault);
        fixture_close(&fault.run);
        fault.run.want.optimizer = fixture_optimizers[MICS_OPTIMIZER_MUON];
        fixture_open(memory, &fault.run);
        fault.call = two_steps;
        fail_each_exchange(&fault, exchanges_of_steps(&fault, 2));
        fault.exchange = 0;
        go(&fault, fault_rank);
        for (int32_t rank = 0; rank < FAULT_RANKS; rank++)
            ASSERT_OK(fault.statuses[rank]);
        fault_close(&fault);
    }
    assert_int_equal(mics_memory_close(memory), 0);
}

static void test_each_exchange_of_other_calls(void **state)
{
    (void)state;
    mics_memory *memory = NULL;
    ASSERT_OK(mics_memory_open(&memory));
    for (int i = 0; i < SHARDINGS; i++) {
        const mics_sharding s = shardings[i];
        fault_run fault;
        fault_open(memory, s, 1, &fault);
        fault.call = evaluate;
        fail_each_exchange(&fault, exchanges_of(fault.run.schedule, MICS_PHASE_EVAL, 0));
        fault.call = publish;
        const int32_t syncs = fault.run.model->unit_count * (s.optimizer / s.params - 1);
        fail_each_exchange(&fault, syncs);
        fault.call = step_and_complete;
        fail_each_exchange(&fault,
                           exchanges_of_steps(&fault, 1) + syncs +
                               fault.run.model->unit_count * (FAULT_RANKS / s.optimizer - 1));
        fault_close(&fault);
    }
    assert_int_equal(mics_memory_close(memory), 0);
}

// ---- engines whose ranks share their parameters ----

// Opening them, the ranks agree in two rounds and then share, which counts as one exchange.
enum { OPENING_EXCHANGES = 3 };

static mics_status sharing_rank(ranks_self *self)
{
    fault_run *fault = self->arg;
    mics_engine *engine = NULL;
    const int32_t rank = self->comm->rank;
    mics_status status = open_rank(fault, self, &engine);
    mics_memory_fail_after(self->memory, 0);
    if (status == MICS_OK)
        status = fault->call(fault, engine, rank);
    if (status == MICS_OK)
        status = mics_engine_agree(engine, MICS_OK);
    if (status != MICS_OK)
        mics_comm_abort(self->comm, NULL);
    fault->statuses[rank] = status;
    pthread_barrier_wait(&fault->ended);
    mics_engine_close(engine);
    return MICS_OK;
}

static void test_shared_parameters(void **state)
{
    (void)state;
    const mics_sharding some[] = {{2, 2, 2}, {2, 2, 4}, {2, 4, 4}};
    mics_memory *memory = NULL;
    ASSERT_OK(mics_memory_open(&memory));
    for (int i = 0; i < 3; i++) {
        fault_run fault;
        fault_open(memory, some[i], 1, &fault);
        fixture_close(&fault.run);
        fault.run.want.share_params = true;
        fixture_open(memory, &fault.run);
        const int64_t last = OPENING_EXCHANGES + exchanges_of_steps(&fault, 1);
        for (int64_t n = 1; n <= last; n++) {
            fault.faulty = (int32_t)(n % FAULT_RANKS);
            fault.exchange = n;
            lines *seen = listen();
            go(&fault, sharing_rank);
            assert_int_equal(heard(seen), 1);
            check_peers(&fault, MICS_ERR_COMM);
        }
        fault.exchange = 0;
        fault.faulty = 1;
        // Whichever allocation of one rank fails, no other waits for it.
        for (fault.allocation = 1;; fault.allocation++) {
            lines *seen = listen();
            go(&fault, sharing_rank);
            const int errors = heard(seen);
            if (fault.statuses[fault.faulty] == MICS_OK)
                break;
            assert_int_equal(errors, 1);
            check_openers(&fault);
        }
        assert_true(fault.allocation > 10);
        fault_close(&fault);
    }
    assert_int_equal(mics_memory_close(memory), 0);
}

static void test_data_of_one_rank(void **state)
{
    (void)state;
    mics_memory *memory = NULL;
    ASSERT_OK(mics_memory_open(&memory));
    for (int i = 0; i < SHARDINGS; i++) {
        fault_run fault;
        fault_open(memory, shardings[i], 1, &fault);
        for (fault.micro_step = 0; fault.micro_step < MICRO_STEPS; fault.micro_step++) {
            for (fault.faulty = 0; fault.faulty < FAULT_RANKS; fault.faulty++) {
                lines *seen = listen();
                go(&fault, fault_rank);
                assert_int_equal(heard(seen), 1);
                check_peers(&fault, MICS_ERR_IO);
            }
        }
        fault_close(&fault);
    }
    assert_int_equal(mics_memory_close(memory), 0);
}

// ---- numbers that are not finite ----

// The rank's masters and moments, one after the other; the caller frees them. What it holds of other
// ranks' pieces is not its own to keep.
static float *copy_state(const fault_run *fault, const mics_engine *engine, size_t *bytes_out)
{
    const mics_memory_ledger *ledger = &fault->run.schedule->ledger;
    float *copy = calloc(1, ledger->bytes[MICS_MEM_PARAMS] + ledger->bytes[MICS_MEM_OPTIMIZER]);
    size_t elems = 0;
    for (int32_t u = 0; copy != NULL && u < fault->run.model->unit_count; u++) {
        const mics_engine_optimizer_shard piece = mics_engine_optimizer_shard_get(engine, u);
        const size_t owned = (size_t)(piece.range.end - piece.range.begin);
        memcpy(copy + elems, piece.params, owned * sizeof(float));
        memcpy(copy + elems + owned, piece.states[0], owned * sizeof(float));
        memcpy(copy + elems + 2 * owned, piece.states[1], owned * sizeof(float));
        elems += 3 * owned;
    }
    *bytes_out = elems * sizeof(float);
    return copy;
}

static mics_status step_poisoned(fault_run *fault, mics_engine *engine, int32_t rank)
{
    size_t bytes = 0, bytes_after = 0;
    float *before = copy_state(fault, engine, &bytes);
    fault->statuses[rank] = step(fault, engine, rank);
    float *after = copy_state(fault, engine, &bytes_after);
    if (fault->statuses[rank] == MICS_ERR_NUMERIC)
        fault->statuses[rank] = evaluate(fault, engine, rank);
    fault->kept[rank] = before != NULL && after != NULL && bytes == bytes_after &&
                        memcmp(before, after, bytes) == 0;
    free(before);
    free(after);
    return MICS_OK;
}

// After such a step the world is whole: with a sound parameter the next one goes well.
static mics_status poisoned_rank(ranks_self *self)
{
    fault_run *fault = self->arg;
    mics_engine *engine = NULL;
    const int32_t rank = self->comm->rank;
    MICS_TRY(open_rank(fault, self, &engine));
    const mics_engine_optimizer_shard piece = mics_engine_optimizer_shard_get(engine, 1);
    const float sound = piece.params[0];
    if (rank == fault->faulty)
        piece.params[0] = fault->poison;
    mics_status status = step_poisoned(fault, engine, rank);
    piece.params[0] = sound;
    if (status == MICS_OK)
        status = mics_engine_agree(engine, MICS_OK);
    if (status == MICS_OK)
        status = step(fault, engine, rank);
    mics_engine_close(engine);
    return status;
}

static void test_numbers_not_finite(void **state)
{
    (void)state;
    const float poisons[] = {NAN, INFINITY, -INFINITY};
    mics_memory *memory = NULL;
    ASSERT_OK(mics_memory_open(&memory));
    for (int i = 0; i < SHARDINGS; i++) {
        fault_run fault;
        fault_open(memory, shardings[i], 1, &fault);
        for (int p = 0; p < 3; p++) {
            fault.faulty = p + 1;
            fault.poison = poisons[p];
            lines *seen = listen();
            go(&fault, poisoned_rank);
            assert_int_equal(heard(seen), 2); // of the step and of the evaluation
            for (int32_t rank = 0; rank < FAULT_RANKS; rank++) {
                ASSERT_STATUS(MICS_ERR_NUMERIC, fault.statuses[rank]);
                assert_true(fault.kept[rank]);
            }
        }
        fault_close(&fault);
    }
    assert_int_equal(mics_memory_close(memory), 0);
}

// ---- memory ----

// What is opened while allocations fail, and how it is closed.
typedef struct opening {
    mics_memory *memory;
    mics_json *config;
    fixture_run *run; // model and schedule that are open already
    mics_comm *comm;
    void *opened;
} opening;

static mics_status open_model(opening *o)
{
    mics_model *model = NULL;
    MICS_TRY(mics_model_from_config(o->memory, o->config, false, &model));
    o->opened = model;
    return MICS_OK;
}

static void close_model(opening *o)
{
    mics_model_close(o->opened);
}

static mics_status open_schedule(opening *o)
{
    mics_schedule *schedule = NULL;
    MICS_TRY(mics_schedule_open(o->memory, &o->run->schedule->spec, &schedule));
    o->opened = schedule;
    return MICS_OK;
}

static void close_schedule(opening *o)
{
    mics_schedule_close(o->opened);
}

static mics_status open_engine(opening *o)
{
    const ranks_self self = {.memory = o->memory, .comm = o->comm};
    mics_engine *engine = NULL;
    MICS_TRY(fixture_open_engine(&self, o->run, &engine));
    o->opened = engine;
    return MICS_OK;
}

static void close_engine(opening *o)
{
    mics_engine_close(o->opened);
}

static mics_status open_decoder(opening *o)
{
    mics_decoder *decoder = NULL;
    const mics_decoder_spec spec = {
        .model = o->run->model, .sequences = 2, .capacity = 8, .threads = 3};
    MICS_TRY(mics_decoder_open(o->memory, &spec, &decoder));
    o->opened = decoder;
    return MICS_OK;
}

static void close_decoder(opening *o)
{
    mics_decoder_close(o->opened);
}

static int64_t live_blocks(const mics_memory *memory)
{
    mics_memory_stats stats;
    mics_memory_stats_get(memory, &stats);
    return stats.live_blocks;
}

// Fails the first allocation, then the second, until there are no more.
static void fail_each_allocation(opening *o, mics_status (*open)(opening *o),
                                 void (*close)(opening *o))
{
    const int64_t before = live_blocks(o->memory);
    int64_t n = 1;
    for (;; n++) {
        lines *seen = listen();
        mics_memory_fail_after(o->memory, n);
        mics_status status = open(o);
        int errors = heard(seen);
        if (status == MICS_OK)
            break;
        ASSERT_STATUS(MICS_ERR_MEMORY, status);
        assert_int_equal(errors, 1);
        assert_int_equal(live_blocks(o->memory), before);
    }
    mics_memory_fail_after(o->memory, 0);
    assert_true(n > 4);
    close(o);
    assert_int_equal(live_blocks(o->memory), before);
}

static void test_each_allocation(void **state)
{
    (void)state;
    opening o = {0};
    fixture_run run = {.want = {.ranks = FAULT_RANKS,
                                .nodes = 2,
                                .sharding = {2, 2, 4},
                                .sequences = FAULT_RANKS,
                                .micro_steps = 1,
                                .prefetch = 1}};
    char text[256];
    int length = snprintf(text, sizeof text, fixture_config, "true");
    mics_thread_world *world = NULL;
    ASSERT_OK(mics_memory_open(&o.memory));
    ASSERT_OK(mics_json_parse(o.memory, "fixture", text, (size_t)length, &o.config));
    fixture_open(o.memory, &run);
    o.run = &run;
    ASSERT_OK(mics_thread_world_open(o.memory, FAULT_RANKS, 1, &world));
    ranks_self self = {.memory = o.memory};
    ASSERT_OK(mics_comm_thread_open(o.memory, world, 0, &self.comm));
    ASSERT_OK(fixture_count(&self, &run));
    o.comm = self.comm;
    fail_each_allocation(&o, open_model, close_model);
    fail_each_allocation(&o, open_schedule, close_schedule);
    fail_each_allocation(&o, open_engine, close_engine);
    fail_each_allocation(&o, open_decoder, close_decoder);
    mics_comm_close(self.comm);
    mics_thread_world_close(world);
    fixture_close(&run);
    mics_json_close(o.config);
    assert_int_equal(mics_memory_close(o.memory), 0);
}

// ---- arguments ----

// A communicator of `ranks`, `ranks_per_node` on a node (0: one that does not count), against a schedule of 4 ranks on 2 nodes.
static mics_status open_with(int32_t ranks, int32_t ranks_per_node)
{
    fixture_run run = {.want = {.ranks = FAULT_RANKS,
                                .nodes = 2,
                                .sharding = {2, 2, 2},
                                .sequences = FAULT_RANKS,
                                .micro_steps = 1}};
    mics_memory *memory = NULL;
    mics_thread_world *world = NULL;
    mics_engine *engine = NULL;
    ASSERT_OK(mics_memory_open(&memory));
    fixture_open(memory, &run);
    ASSERT_OK(mics_thread_world_open(memory, ranks, 1, &world));
    ranks_self self = {.memory = memory};
    ASSERT_OK(mics_comm_thread_open(memory, world, 0, &self.comm));
    if (ranks_per_node > 0)
        ASSERT_OK(mics_comm_count_open_take(memory, self.comm, ranks_per_node, &self.comm));
    mics_status status = fixture_open_engine(&self, &run, &engine);
    mics_engine_close(engine);
    mics_comm_close(self.comm);
    mics_thread_world_close(world);
    fixture_close(&run);
    assert_int_equal(mics_memory_close(memory), 0);
    return status;
}

static void test_wrong_communicator(void **state)
{
    (void)state;
    ASSERT_OK(open_with(4, 2));
    lines *seen = listen();
    mics_status fewer = open_with(2, 2), more = open_with(8, 2), one_node = open_with(4, 4),
                uncounted = open_with(4, 0);
    assert_int_equal(heard(seen), 4);
    ASSERT_STATUS(MICS_ERR_INVALID, uncounted);
    ASSERT_STATUS(MICS_ERR_INVALID, fewer);
    ASSERT_STATUS(MICS_ERR_INVALID, more);
    ASSERT_STATUS(MICS_ERR_INVALID, one_node);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_exchange_of_a_step),
        cmocka_unit_test(test_each_exchange_of_muon),
        cmocka_unit_test(test_each_exchange_of_other_calls),
        cmocka_unit_test(test_shared_parameters),
        cmocka_unit_test(test_data_of_one_rank),
        cmocka_unit_test(test_numbers_not_finite),
        cmocka_unit_test(test_each_allocation),
        cmocka_unit_test(test_wrong_communicator),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
