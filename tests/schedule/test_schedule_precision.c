// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Mixed precision: the ledgers by hand, and beside those of fp32.
#include "mics/builder.h"
#include "mics/core/ledger.h"
#include "mics/core/schedule.h"
#include "models.h"

// On 4 ranks each tensor takes a multiple of 16 elements, each unit one of 64: embedding 592 -> 640, two
// layers of 1920, the last norm 32 -> 64.
enum { RANKS = 4, ELEMS = 640 + 2 * 1920 + 64, TOKENS = 5 };

typedef struct pair {
    mics_memory *memory;
    mics_model *model;
    mics_schedule *fp32, *mixed;
} pair;

static void pair_open(pair *p, mics_sharding sharding, mics_comm_dtype second_hop, bool recompute)
{
    ASSERT_OK(mics_memory_open(&p->memory));
    p->model = model_gpt2(p->memory, 2, true);
    mics_schedule_spec spec = {.model = p->model,
                               .batch = {.sequences = 1, .length = TOKENS, .threads = 1},
                               .micro_steps = 3,
                               .prefetch = 1,
                               .recompute = mics_recompute_all(recompute),
                               .reduce = MICS_ALGORITHM_TWO_STAGE, // as mixed sums always are
                               .boundary_dtype = {second_hop, second_hop}};
    ASSERT_OK(mics_mesh_init(RANKS, 2, sharding, &spec.mesh));
    ASSERT_OK(mics_schedule_open(p->memory, &spec, &p->fp32));
    spec.precision = MICS_PRECISION_MIXED;
    ASSERT_OK(mics_schedule_open(p->memory, &spec, &p->mixed));
}

static void pair_close(pair *p)
{
    mics_schedule_close(p->fp32);
    mics_schedule_close(p->mixed);
    mics_model_close(p->model);
    assert_int_equal(mics_memory_close(p->memory), 0);
}

// 2 bytes at P, 4 at G, 12 at O; slots of 2 bytes.
static void test_memory_by_hand(void **state)
{
    (void)state;
    pair p;
    pair_open(&p, (mics_sharding){2, 2, 4}, MICS_COMM_FP32, false);
    const size_t *mixed = p.mixed->ledger.bytes, *fp32 = p.fp32->ledger.bytes;
    assert_int_equal(mixed[MICS_MEM_PARAMS], 2 * ELEMS / 2);
    assert_int_equal(mixed[MICS_MEM_GRADS], 4 * ELEMS / 2);
    assert_int_equal(mixed[MICS_MEM_OPTIMIZER], 12 * ELEMS / 4);
    assert_int_equal(fp32[MICS_MEM_OPTIMIZER], 8 * ELEMS / 4);
    assert_int_equal(p.mixed->param_slot_count, p.fp32->param_slot_count);
    assert_int_equal(2 * mixed[MICS_MEM_GATHER], fp32[MICS_MEM_GATHER]);
    assert_int_equal(2 * mixed[MICS_MEM_REDUCE], fp32[MICS_MEM_REDUCE]);
    assert_true(mixed[MICS_MEM_WORKSPACE] >= fp32[MICS_MEM_WORKSPACE]); // sums besides, in fp32
    assert_int_equal(fp32[MICS_MEM_MESSAGES], 0);
    assert_int_equal(mixed[MICS_MEM_MESSAGES], 2 * 1920 / 2); // the other's block of a layer
    pair_close(&p);
}

static const mics_schedule_spec one_rank = {
    .batch = {.sequences = 1, .length = TOKENS, .threads = 1},
    .micro_steps = 1,
    .precision = MICS_PRECISION_MIXED};

static void open_one(pair *p, mics_schedule_spec spec)
{
    ASSERT_OK(mics_memory_open(&p->memory));
    p->fp32 = NULL;
    spec.model = p->model = model_gpt2(p->memory, 2, true);
    ASSERT_OK(mics_mesh_init(1, 1, (mics_sharding){1, 1, 1}, &spec.mesh));
    ASSERT_OK(mics_schedule_open(p->memory, &spec, &p->mixed));
    ASSERT_OK(mics_schedule_validate(p->mixed));
}

// A recomputed micro-batch keeps the inputs of two layers and of the head, and one gradient of such:
// 5 tokens of 12 numbers each, on 16 elements; fp32 ones are two elements.
static void test_wide_residual(void **state)
{
    (void)state;
    pair p;
    mics_schedule *wide = NULL;
    mics_schedule_spec spec = one_rank;
    spec.recompute = mics_recompute_all(true);
    open_one(&p, spec);
    assert_int_equal(p.mixed->in_flight_elems, 4 * 64);
    spec = p.mixed->spec;
    ASSERT_OK(mics_model_widen_residual(p.model));
    ASSERT_OK(mics_schedule_open(p.memory, &spec, &wide));
    ASSERT_OK(mics_schedule_validate(wide));
    assert_int_equal(wide->in_flight_elems, 4 * 128);
    assert_true(wide->ledger.bytes[MICS_MEM_ACTIVATIONS] >
                p.mixed->ledger.bytes[MICS_MEM_ACTIVATIONS] + 2 * 4 * 64);
    assert_int_equal(wide->ledger.bytes[MICS_MEM_PARAMS], p.mixed->ledger.bytes[MICS_MEM_PARAMS]);
    mics_schedule_close(wide);
    pair_close(&p);
}

// 2 bytes of sums and no slots where one micro-step is all, or more may be rounded; not of Muon.
static void test_rounded_sums(void **state)
{
    (void)state;
    for (int i = 0; i < 5; i++) {
        mics_schedule_spec spec = one_rank;
        pair p;
        spec.micro_steps = i == 0 ? 1 : 3;
        spec.rounded_sums = i == 1 || i == 4;
        spec.layered_micro_steps = i == 4 ? 2 : 0;
        spec.optimizer = i == 3 ? MICS_OPTIMIZER_MUON : MICS_OPTIMIZER_ADAMW;
        const bool rounded = i < 2 || i == 4;
        open_one(&p, spec);
        const size_t *bytes = p.mixed->ledger.bytes;
        size_t elems = 0;
        for (int32_t u = 0; u < p.model->unit_count; u++)
            elems += (size_t)p.mixed->padded_elems[u];
        assert_int_equal(bytes[MICS_MEM_GRADS], mics_memory_block_bytes((rounded ? 2 : 4) * elems));
        assert_int_equal(bytes[MICS_MEM_REDUCE] == 0, rounded);
        pair_close(&p);
    }
}

// Bytes of one rank's states: of each layer and table one fp32 scale for 256 of them, 16 bytes at
// least; with masters.
static void test_packed_states(void **state)
{
    (void)state;
    for (int i = 0; i < 4; i++) {
        mics_schedule_spec spec = one_rank;
        pair p;
        size_t want = 0;
        spec.state_dtype = i % 2 == 0 ? MICS_STATE_8BIT : MICS_STATE_BF16;
        spec.optimizer = i < 2 ? MICS_OPTIMIZER_ADAMW : MICS_OPTIMIZER_LION;
        open_one(&p, spec);
        for (int32_t u = 0; u < p.model->unit_count; u++) {
            const size_t elems = (size_t)p.mixed->padded_elems[u];
            const size_t scales = ((elems + 255) / 256 * 4 + 15) / 16 * 16;
            want += (i < 2 ? 2 : 1) * (i % 2 == 0 ? scales + elems : 2 * elems) + 4 * elems;
        }
        assert_int_equal(p.mixed->ledger.bytes[MICS_MEM_OPTIMIZER], mics_memory_block_bytes(want));
        pair_close(&p);
    }
}

// One rank: 18 bytes a parameter, padding included, and slots for gradients of a micro-step: of
// the tied table and the last norm, while a layer has its own.
static void test_eighteen_bytes_a_parameter(void **state)
{
    (void)state;
    pair p;
    pair_open(&p, (mics_sharding){1, 1, 1}, MICS_COMM_FP32, false);
    const size_t *bytes = p.mixed->ledger.bytes;
    assert_int_equal(bytes[MICS_MEM_PARAMS] + bytes[MICS_MEM_GRADS] + bytes[MICS_MEM_OPTIMIZER],
                     18 * ELEMS);
    assert_int_equal(bytes[MICS_MEM_GATHER], 0);
    assert_int_equal(bytes[MICS_MEM_REDUCE], 2 * (640 + 1920 + 64));
    pair_close(&p);
}

// Statistics of 5 tokens keep 4 bytes: a norm's 2 numbers a token take 32 elements in place of 16, and so
// do an attention's 3. Two norms and an attention a layer that keeps them; with recomputation one layer's,
// or the last norm's, at a time.
static void test_statistics_stay_fp32(void **state)
{
    (void)state;
    for (int recompute = 0; recompute < 2; recompute++) {
        pair p;
        pair_open(&p, (mics_sharding){1, 1, 1}, MICS_COMM_FP32, recompute == 1);
        const int64_t more = recompute == 1 ? 3 * 16 : 2 * 3 * 16 + 16;
        assert_int_equal(p.mixed->activation_elems, p.fp32->activation_elems + more);
        assert_int_equal(p.mixed->ledger.bytes[MICS_MEM_ACTIVATIONS],
                         mics_memory_block_bytes(2 * (size_t)p.mixed->activation_elems));
        pair_close(&p);
    }
}

// What is held in 2 bytes travels so, unpacked; the second hop as it is asked for.
static void test_traffic(void **state)
{
    (void)state;
    static const mics_sharding shardings[] = {{1, 1, 1}, {1, 1, 4}, {1, 4, 4}, {4, 4, 4},
                                              {2, 2, 2}, {2, 2, 4}, {2, 4, 4}, {1, 2, 4}};
    for (size_t i = 0; i < sizeof shardings / sizeof shardings[0]; i++) {
        pair p;
        pair_open(&p, shardings[i], i % 2 == 0 ? MICS_COMM_FP32 : MICS_COMM_INT8, false);
        for (int form = 0; form < MICS_STEP_KINDS * MICS_STAGES; form++) {
            const mics_step_kind k = (mics_step_kind)(form / MICS_STAGES);
            const mics_step_stage stage = (mics_step_stage)(form % MICS_STAGES);
            const mics_bytes mixed = mics_schedule_kind_bytes(p.mixed, MICS_PHASE_TRAIN, k, stage);
            const mics_bytes fp32 = mics_schedule_kind_bytes(p.fp32, MICS_PHASE_TRAIN, k, stage);
            const bool second_hop = mics_step_is_second_hop(&(mics_step){.kind = k});
            const int64_t times = second_hop || k == MICS_STEP_AGREE ? 1 : 2;
            assert_int_equal(times * mixed.intra, fp32.intra);
            assert_int_equal(times * mixed.inter, fp32.inter);
        }
        const mics_step_list *list = &p.mixed->lists[MICS_PHASE_TRAIN];
        for (int32_t s = 0; s < list->count; s++) {
            const mics_step *step = &list->steps[s];
            const bool rounded = mics_step_is_second_hop(step) && i % 2 == 1;
            assert_int_equal(step->dtype.sent != step->dtype.held, rounded);
            assert_int_equal(step->algorithm == MICS_ALGORITHM_DIRECT,
                             mics_step_sums(step) && (rounded || step->kind == MICS_STEP_REDUCE));
        }
        pair_close(&p);
    }
}

static void test_an_unknown_precision_is_refused(void **state)
{
    (void)state;
    pair p;
    pair_open(&p, (mics_sharding){1, 1, 1}, MICS_COMM_FP32, false);
    mics_schedule_spec spec = p.fp32->spec;
    mics_schedule *schedule = NULL;
    spec.precision = MICS_PRECISIONS;
    ASSERT_STATUS(MICS_ERR_INVALID, mics_schedule_open(p.memory, &spec, &schedule));
    assert_null(schedule);
    pair_close(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_memory_by_hand),
        cmocka_unit_test(test_rounded_sums),
        cmocka_unit_test(test_wide_residual),
        cmocka_unit_test(test_packed_states),
        cmocka_unit_test(test_eighteen_bytes_a_parameter),
        cmocka_unit_test(test_statistics_stay_fp32),
        cmocka_unit_test(test_traffic),
        cmocka_unit_test(test_an_unknown_precision_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
