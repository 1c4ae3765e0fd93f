// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Parameter sync as changes: every bit is as without, whatever the sharding, the optimizer and the
// order of updates; what is sent is what sizes say, and less; damage is found, and numbers heal it.
#include "engine/internal.h"
#include "fixture.h"
#include "schedule/rules.h"
#include <stdatomic.h>

enum { STEPS = FIXTURE_STEPS_RUN < 6 ? 4 : 6, MAX_PARAMS = 1 << 17 };

static const char mixture[] =
    "{\"model_type\": \"mixtral\", \"num_hidden_layers\": 2, \"num_attention_heads\": 2, "
    "\"num_key_value_heads\": 1, \"hidden_size\": 12, \"intermediate_size\": 10, "
    "\"num_local_experts\": 4, \"num_experts_per_tok\": 2, \"output_router_logits\": true, "
    "\"max_position_embeddings\": 19, \"vocab_size\": 29, \"tie_word_embeddings\": %s}";

static fixture_case case_of(int32_t ranks, int32_t nodes, mics_sharding sharding)
{
    return (fixture_case){.ranks = ranks,
                          .nodes = nodes,
                          .sharding = sharding,
                          .sequences = 48,
                          .micro_steps = 2,
                          .steps = STEPS,
                          .prefetch = 1,
                          .hierarchical = true,
                          .clip = 0.5f,
                          .dtype = MICS_DTYPE_BF16};
}

static int32_t coded_steps(const mics_schedule *schedule)
{
    const mics_step_list *list = &schedule->lists[MICS_PHASE_TRAIN];
    int32_t count = 0;
    for (int32_t i = 0; i < list->count; i++)
        count += list->steps[i].coded;
    return count;
}

// ---- the same bits ----

static void go(fixture_run *run, const fixture_case *want, bool delta)
{
    mics_memory *memory = NULL;
    run->want = *want;
    run->want.delta_sync = delta;
    assert_int_equal(mics_memory_open(&memory), MICS_OK);
    fixture_open(memory, run);
    int64_t elems = 0;
    for (int32_t u = 0; u < run->model->unit_count; u++)
        elems += run->model->units[u].elems;
    assert_true(elems <= MAX_PARAMS);
    assert_true((coded_steps(run->schedule) > 0) == delta);
    ranks_run_ok(want->ranks, fixture_rank, run);
    fixture_close(run);
    assert_int_equal(mics_memory_close(memory), 0);
}

// In every step fixture.h compares replicas, and what was sent with what sizes say.
static void check_same(const fixture_case *want)
{
    static float params[2][MAX_PARAMS];
    fixture_run numbers = {.params = params[0]}, changes = {.params = params[1]};
    memset(params, 0, sizeof params);
    go(&numbers, want, false);
    go(&changes, want, true);
    assert_memory_equal(changes.losses, numbers.losses, sizeof numbers.losses);
    assert_memory_equal(changes.norms, numbers.norms, sizeof numbers.norms);
    assert_true(changes.eval_loss == numbers.eval_loss);
    // Of a unit that is whole, either of two ranks gives its own masters.
    assert_true(fixture_same_shards(MICS_DTYPE_BF16, params[1], params[0], MAX_PARAMS));
    mics_bytes unsent = {0, 0};
    for (int32_t rank = 0; rank < want->ranks; rank++) {
        unsent.intra += changes.results[rank].unsent.intra;
        unsent.inter += changes.results[rank].unsent.inter;
        assert_memory_equal(&changes.results[rank].unsent_by_all, &changes.results[0].unsent_by_all,
                            sizeof unsent);
    }
    assert_memory_equal(&changes.results[0].unsent_by_all, &unsent, sizeof unsent);
    assert_true(unsent.inter > 0);
}

static const mics_sharding zero1_4 = {1, 1, 4}, plus_4 = {2, 2, 4};

static void test_every_sharding(void **state)
{
    (void)state;
    static const struct {
        int32_t ranks, nodes;
        mics_sharding sharding;
    } cases[] = {
        {2, 2, {1, 1, 2}}, // zero1
        {4, 2, {1, 1, 4}}, // two stages
        {4, 2, {2, 2, 4}}, // mics+(2)
        {4, 2, {2, 4, 4}}, // hpz(2)
        {8, 2, {2, 2, 8}}, // two stages of mics+
        {8, 4, {2, 2, 4}}, // updates are deferred
        {8, 4, {1, 2, 4}}, // the same, and in two stages
        {6, 3, {1, 2, 6}}, {8, 4, {4, 4, 8}}, {8, 8, {1, 1, 8}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        fixture_case want = case_of(cases[i].ranks, cases[i].nodes, cases[i].sharding);
        want.prefetch = (int32_t)(i % 3);
        check_same(&want);
    }
}

static void test_one_stage(void **state)
{
    (void)state;
    fixture_case want = case_of(4, 2, zero1_4);
    want.hierarchical = false; // one ring: some of it intra-node
    check_same(&want);
    want = case_of(8, 2, (mics_sharding){2, 2, 8});
    want.hierarchical = false;
    check_same(&want);
}

static void test_shared_messages_and_whole_units(void **state)
{
    (void)state;
    fixture_case want = case_of(4, 2, plus_4);
    want.coalesce_below = 5000;
    check_same(&want);
    want.coalesce_below = 1 << 20;
    want.param_persistence_threshold = 300;
    check_same(&want);
    want = case_of(8, 4, (mics_sharding){2, 2, 4});
    want.coalesce_below = 1 << 20;
    check_same(&want);
}

static void test_shared_parameters(void **state)
{
    (void)state;
    fixture_case want = case_of(4, 2, plus_4);
    want.share_params = true;
    check_same(&want);
    want.param_persistence_threshold = 300;
    check_same(&want);
}

static void test_optimizers(void **state)
{
    (void)state;
    for (int kind = 0; kind < MICS_OPTIMIZER_KINDS; kind++) {
        fixture_case want = case_of(4, 2, plus_4);
        want.optimizer = fixture_optimizers[kind];
        check_same(&want);
    }
    fixture_case want = case_of(8, 4, (mics_sharding){2, 2, 4}); // deferred rounds of matrices
    want.optimizer = fixture_optimizers[MICS_OPTIMIZER_MUON];
    check_same(&want);
}

static void test_other_numbers(void **state)
{
    (void)state;
    fixture_case want = case_of(4, 2, plus_4);
    want.state_dtype = MICS_STATE_8BIT;
    check_same(&want);
    want = case_of(4, 2, zero1_4);
    want.rounded_sums = true; // gradients of 2 bytes, and an update that writes masters alone
    check_same(&want);
    want = case_of(8, 4, (mics_sharding){1, 2, 4});
    want.early_gathers = true;
    check_same(&want);
    want = case_of(4, 2, plus_4);
    want.still = true; // nothing changes
    check_same(&want);
}

static void test_experts_and_frozen(void **state)
{
    (void)state;
    for (int32_t experts = 1; experts <= 2; experts++) {
        fixture_case want = case_of(8, 4, (mics_sharding){2, 2, 8});
        want.config = mixture;
        want.experts = experts;
        check_same(&want);
    }
    fixture_case want = case_of(4, 2, plus_4);
    want.trainable = "*.mlp.*";
    check_same(&want);
}

// ---- bytes ----

static void test_inside_a_node_numbers_are_sent(void **state)
{
    (void)state;
    mics_memory *memory = NULL;
    fixture_run run = {.want = case_of(4, 1, plus_4)};
    run.want.delta_sync = true;
    assert_int_equal(mics_memory_open(&memory), MICS_OK);
    fixture_open(memory, &run);
    assert_int_equal(coded_steps(run.schedule), 0);
    assert_false(mics_schedule_codes_any(run.schedule));
    fixture_close(&run);
    run.want = case_of(4, 2, plus_4);
    run.want.delta_sync = true;
    run.want.dtype = MICS_DTYPE_FP32;
    fixture_open(memory, &run);
    assert_int_equal(coded_steps(run.schedule), 0);
    fixture_close(&run);
    assert_int_equal(mics_memory_close(memory), 0);
}

// ---- between steps ----

// What happens behind step 2.
typedef enum between {
    NOTHING,
    COMPLETES,
    ASKS,       // for numbers
    ONE_ASKS,   // rank 1 alone
    STARTS_ANEW // parameters and states
} between;

enum { RANKS = 4, FLIPPED = 3 };

typedef struct delta_run {
    fixture_run run;
    between between;
    bool flips;   // a bit of what rank FLIPPED has of another rank's parameters, behind step 2
    bool damages; // what rank FLIPPED receives of a change in step 3
    mics_bytes unsent[FIXTURE_STEPS];
    bool found[FIXTURE_STEPS]; // a difference behind the step
    mics_divergence what;
    char unit[128];     // the first that is sent
    atomic_bool breaks; // messages are damaged from now on
    mics_status statuses[RANKS];
} delta_run;

static mics_status restart(mics_engine *engine)
{
    MICS_TRY(mics_engine_download(engine));
    for (int32_t u = 0; u < engine->schedule->spec.model->unit_count; u++) {
        const mics_engine_optimizer_shard held = mics_engine_optimizer_shard_get(engine, u);
        for (int s = 0; s < 2; s++)
            memset(held.states[s], 0, (size_t)(held.range.end - held.range.begin) * sizeof(float));
    }
    return mics_engine_init_random(engine, 1);
}

static mics_status do_between(const delta_run *d, mics_engine *engine, int32_t rank)
{
    switch (d->between) {
    case COMPLETES:
        return mics_engine_complete(engine);
    case ONE_ASKS:
        if (rank == 1)
            mics_engine_sync_whole(engine);
        return MICS_OK;
    case ASKS:
        mics_engine_sync_whole(engine);
        return MICS_OK;
    case STARTS_ANEW:
        return restart(engine);
    default:
        return MICS_OK;
    }
}

// The first number of the parameter shard's block that another rank updates.
static void flip(const mics_engine *engine, int32_t unit)
{
    const mics_sharding *s = &engine->schedule->sharding[unit];
    const int64_t owned = engine->schedule->padded_elems[unit] / s->optimizer;
    const mics_range own = mics_schedule_unit_range(engine->schedule, unit, engine->rank,
                                                    s->optimizer),
                     all =
                         mics_schedule_unit_range(engine->schedule, unit, engine->rank, s->params);
    uint16_t *shard = (uint16_t *)engine->params + engine->map.params[unit];
    shard[own.begin == all.begin ? owned : 0] ^= 1U << 3;
}

static mics_status train(delta_run *d, mics_engine *engine, int32_t rank)
{
    fixture_source source = {.run = &d->run, .rank = rank};
    const mics_batch_source read = {.read = fixture_read, .ctx = &source};
    for (int64_t step = 1; step <= d->run.want.steps; step++) {
        mics_step_result result;
        mics_divergence found = {.found = false};
        source.step = step;
        if (step == 3) {
            MICS_TRY(do_between(d, engine, rank));
            if (d->flips && rank == FLIPPED)
                flip(engine, 1);
            MICS_TRY(mics_engine_agree(engine, MICS_OK));
            d->breaks = d->damages;
        }
        MICS_TRY(mics_engine_step(engine, step, 3e-3f, &read, &result));
        if (rank == 0) {
            d->run.losses[step - 1] = result.loss;
            d->unsent[step - 1] = result.unsent_by_all;
        }
        if (d->flips && step >= 2)
            MICS_TRY(mics_engine_compare(engine, &found));
        if (rank == 0)
            d->found[step - 1] = found.found;
        if (rank == 0 && found.found)
            d->what = found;
    }
    return MICS_OK;
}

// ---- a stream that is damaged on its way ----

typedef struct damage_comm {
    mics_comm base;
    mics_memory *memory;
    delta_run *of;
} damage_comm;

static mics_status damage_exchange(void *ctx, const mics_exchange *exchange)
{
    const damage_comm *self = ctx;
    MICS_TRY(mics_comm_exchange(self->base.inner, exchange));
    if (self->of->breaks && self->base.rank == FLIPPED &&
        strncmp(exchange->what, "param sync", 10) == 0)
        memset(exchange->recv, 0xff, 8);
    return MICS_OK;
}

static void damage_close(void *ctx)
{
    damage_comm *self = ctx;
    mics_comm_close(self->base.inner);
    mics_free(self->memory, self);
}

static mics_status damage_open_take(ranks_self *self, delta_run *of)
{
    static const mics_comm_ops ops = {
        .name = "damage", .exchange = damage_exchange, .close = damage_close};
    void *block = NULL;
    MICS_TRY(mics_alloc(self->memory, MICS_MEM_HOST, sizeof(damage_comm), &block));
    damage_comm *made = block;
    *made = (damage_comm){.base = *self->comm, .memory = self->memory, .of = of};
    made->base.inner = self->comm;
    made->base.ops = &ops;
    made->base.ctx = made;
    self->comm = &made->base;
    return MICS_OK;
}

static mics_status delta_rank(ranks_self *self)
{
    delta_run *d = self->arg;
    mics_engine *engine = NULL;
    mics_status status = MICS_OK;
    MICS_TRY(damage_open_take(self, d));
    MICS_TRY_OUT(fixture_count(self, &d->run));
    MICS_TRY_OUT(fixture_open_engine(self, &d->run, &engine));
    MICS_TRY_OUT(mics_engine_init_random(engine, 1));
    MICS_TRY_OUT(train(d, engine, self->comm->rank));
out:
    d->statuses[self->comm->rank] = status;
    if (status != MICS_OK)
        mics_comm_abort(self->comm, NULL);
    mics_engine_close(engine);
    return d->damages ? MICS_OK : status;
}

static void run_delta(delta_run *d, mics_sharding sharding)
{
    mics_memory *memory = NULL;
    d->run.want = case_of(RANKS, 2, sharding);
    d->run.want.delta_sync = true;
    assert_int_equal(mics_memory_open(&memory), MICS_OK);
    fixture_open(memory, &d->run);
    snprintf(d->unit, sizeof d->unit, "of %s", d->run.model->units[0].name);
    ranks_run_ok(RANKS, delta_rank, d);
    fixture_close(&d->run);
    assert_int_equal(mics_memory_close(memory), 0);
}

// Numbers of the first step's sync, and of the one behind a call that asks for them; else changes.
static void test_when_numbers_are_sent(void **state)
{
    (void)state;
    for (between what = NOTHING; what <= STARTS_ANEW; what++) {
        delta_run d = {.between = what};
        run_delta(&d, plus_4);
        const int64_t whole = d.unsent[0].inter;
        for (int32_t step = 1; step < STEPS; step++) {
            const bool numbers = step == 2 && what >= ASKS;
            assert_true(numbers ? d.unsent[step].inter == whole : d.unsent[step].inter > 2 * whole);
        }
        for (int32_t step = 2; what == STARTS_ANEW && step < STEPS; step++)
            assert_int_equal(isnan(d.run.losses[step]), 0);
    }
}

// A flipped bit stays until numbers come, so that replicas' comparison finds it.
static void test_a_flipped_bit(void **state)
{
    (void)state;
    delta_run stays = {.flips = true}, heals = {.flips = true, .between = ASKS};
    const bool muted = mics_log_mute(true);
    run_delta(&stays, plus_4);
    run_delta(&heals, plus_4);
    mics_log_mute(muted);
    assert_false(stays.found[1]);
    assert_true(stays.found[STEPS - 1]);
    assert_int_equal(stays.what.state, MICS_REPLICA_PARAMS);
    assert_int_equal(stays.what.unit, 1);
    for (int32_t step = 0; step < STEPS; step++)
        assert_false(heals.found[step]);
}

static char said[1024];
static pthread_mutex_t saying = PTHREAD_MUTEX_INITIALIZER;

static void hear(void *ctx, mics_log_level level, int32_t rank, const char *line)
{
    (void)ctx;
    (void)rank;
    pthread_mutex_lock(&saying);
    if (level == MICS_LOG_ERROR)
        snprintf(said, sizeof said, "%s", line);
    pthread_mutex_unlock(&saying);
}

static void test_damage_ends_the_world(void **state)
{
    (void)state;
    delta_run d = {.damages = true};
    mics_log_set_sink(hear, NULL);
    run_delta(&d, plus_4);
    mics_log_set_sink(NULL, NULL);
    for (int32_t rank = 0; rank < RANKS; rank++)
        assert_int_not_equal(d.statuses[rank], MICS_OK);
    assert_int_equal(d.statuses[FLIPPED], MICS_ERR_COMM);
    assert_non_null(strstr(said, "param sync"));
    assert_non_null(strstr(said, "came to rank 3 from rank 1"));
    assert_non_null(strstr(said, d.unit));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_sharding),
        cmocka_unit_test(test_one_stage),
        cmocka_unit_test(test_shared_messages_and_whole_units),
        cmocka_unit_test(test_shared_parameters),
        cmocka_unit_test(test_optimizers),
        cmocka_unit_test(test_other_numbers),
        cmocka_unit_test(test_experts_and_frozen),
        cmocka_unit_test(test_inside_a_node_numbers_are_sent),
        cmocka_unit_test(test_when_numbers_are_sent),
        cmocka_unit_test(test_a_flipped_bit),
        cmocka_unit_test(test_damage_ends_the_world),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
