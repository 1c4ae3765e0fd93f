// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// All-to-alls of schedules against sizes written out by hand, and what has none.
#include "base/capture.h"
#include "base/json.h"
#include "mics/core/ledger.h"
#include "mics/core/schedule.h"
#include "model/from_config.h"
#include "test.h"
#include <math.h>
#include <string.h>

#define MIXTURE                                                                                    \
    "{\"model_type\": \"mixtral\", \"num_hidden_layers\": 2, \"num_attention_heads\": 2, "         \
    "\"num_key_value_heads\": 1, \"hidden_size\": 8, \"intermediate_size\": 6, "                   \
    "\"num_local_experts\": 4, \"num_experts_per_tok\": 2, "                                       \
    "\"max_position_embeddings\": 16, \"vocab_size\": 23"

// 4 query heads, 2 key-value heads of 2.
#define SHARED                                                                                     \
    "{\"model_type\": \"mixtral\", \"num_hidden_layers\": 2, \"num_attention_heads\": 4, "         \
    "\"num_key_value_heads\": 2, \"hidden_size\": 8, \"intermediate_size\": 6, "                   \
    "\"num_local_experts\": 4, \"num_experts_per_tok\": 2, "                                       \
    "\"max_position_embeddings\": 16, \"vocab_size\": 23"

static mics_model *open_mixture(mics_memory *memory, const char *mixture)
{
    mics_json *json = NULL;
    mics_model *model = NULL;
    ASSERT_OK(mics_json_parse(memory, "mixture", mixture, strlen(mixture), &json));
    ASSERT_OK(mics_model_from_config(memory, json, false, &model));
    mics_json_close(json);
    return model;
}

// A block has room for what a capacity lets the experts of a rank take: of 16 tokens of 2 experts, two
// experts a rank. All-to-alls of a forward carry 8 + 1 and 8 numbers a row, those of a backward too.
static void test_capacities_bound_all_to_alls(void **state)
{
    (void)state;
    static const struct {
        const char *config;
        int64_t rows; // of a token, in both blocks
    } cases[] = {{MIXTURE "}", 4},
                 {MIXTURE ", \"expert_capacity_factor\": 1}", 2},
                 {MIXTURE ", \"expert_capacity_factor\": 0.5}", 1},
                 {MIXTURE ", \"expert_capacity_factor\": 0.5, \"expert_min_capacity\": 8}", 4},
                 {MIXTURE ", \"expert_capacity_factor\": 1, "
                          "\"expert_eval_capacity_factor\": 1.5}",
                  3}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        mics_memory *memory = NULL;
        mics_schedule *schedule = NULL;
        ASSERT_OK(mics_memory_open(&memory));
        mics_model *model = open_mixture(memory, cases[i].config);
        mics_schedule_spec spec = {.model = model,
                                   .batch = {.sequences = 2, .length = 8, .threads = 1},
                                   .micro_steps = 1,
                                   .prefetch = 1};
        ASSERT_OK(mics_mesh_init(2, 1, (mics_sharding){2, 2, 2}, &spec.mesh));
        ASSERT_OK(mics_mesh_spread_experts(&spec.mesh, 2));
        ASSERT_OK(mics_schedule_open(memory, &spec, &schedule));
        for (int phase = 0; phase < MICS_PHASES; phase++) {
            const mics_step_list *list = &schedule->lists[phase];
            int64_t bytes = 0;
            for (int32_t s = 0; s < list->count; s++)
                if (list->steps[s].kind == MICS_STEP_ALL_TO_ALL)
                    bytes += (int64_t)list->steps[s].block_bytes;
            const int64_t passes = phase == MICS_PHASE_TRAIN ? 2 : 1,
                          block = 16 * cases[i].rows / 2;
            assert_int_equal(bytes, passes * 2 * block * (9 + 8) * 4);
        }
        mics_schedule_close(schedule);
        mics_model_close(model);
        assert_int_equal(mics_memory_close(memory), 0);
    }
}

// Of each layer travel q, k and v, with the key-value heads that 4 ranks must have twice; what attention
// makes; and in forward 2 x 4 + 4 sums a sequence, as numbers of a token. A rank has the FLOPs of as many
// tokens of its own sequences.
static void test_bytes_of_shared_sequences(void **state)
{
    (void)state;
    static const struct {
        int32_t ranks;
        int64_t pairs; // key-value heads of all ranks
    } cases[] = {{2, 2}, {4, 4}};
    for (int i = 0; i < 2; i++) {
        mics_memory *memory = NULL;
        mics_schedule *schedule = NULL;
        ASSERT_OK(mics_memory_open(&memory));
        mics_model *model = open_mixture(memory, SHARED "}");
        const int32_t S = cases[i].ranks;
        mics_schedule_spec spec = {.model = model,
                                   .batch = {.sequences = 4 / S, .length = 16, .threads = 1},
                                   .micro_steps = 1,
                                   .prefetch = 1};
        ASSERT_OK(mics_mesh_init(8, 2, (mics_sharding){4, 4, 8}, &spec.mesh));
        ASSERT_OK(mics_schedule_open(memory, &spec, &schedule));
        const double flops = mics_schedule_flops(schedule, MICS_PHASE_TRAIN);
        mics_schedule_close(schedule);
        spec.batch.sequences = 4;
        spec.batch.length = 16 / S;
        ASSERT_OK(mics_mesh_cut_sequences(&spec.mesh, S));
        ASSERT_OK(mics_schedule_open(memory, &spec, &schedule));
        ASSERT_OK(mics_schedule_validate(schedule));
        assert_true(fabs(mics_schedule_flops(schedule, MICS_PHASE_TRAIN) / flops - 1) < 1e-12);
        const int64_t T = 16 / S, tokens = 4 * T, sums = (12 + T - 1) / T * S;
        for (int phase = 0; phase < MICS_PHASES; phase++) {
            const int64_t passes = phase == MICS_PHASE_TRAIN ? 2 : 1;
            const int64_t numbers =
                2 * tokens * (passes * ((4 + 2 * cases[i].pairs) * 2 + 4 * 2) + sums);
            const mics_bytes bytes = mics_schedule_kind_bytes(
                schedule, (mics_phase)phase, MICS_STEP_ALL_TO_ALL, MICS_STAGE_WHOLE);
            assert_int_equal(bytes.intra, 8 * 4 * numbers / S * (S - 1));
            assert_int_equal(bytes.inter, 0);
        }
        mics_schedule_close(schedule);
        mics_model_close(model);
        assert_int_equal(mics_memory_close(memory), 0);
    }
}

static void check_refused(const char *config, int32_t S, mics_preference_kind pairs,
                          const char *why)
{
    mics_memory *memory = NULL;
    mics_schedule *schedule = NULL;
    capture seen;
    ASSERT_OK(mics_memory_open(&memory));
    mics_model *model = open_mixture(memory, config);
    mics_schedule_spec spec = {.model = model,
                               .batch = {.sequences = 2, .length = S == 2 ? 9 : 2, .threads = 1},
                               .micro_steps = 1,
                               .preference = {pairs, 0.1, 0}};
    ASSERT_OK(mics_mesh_init(12, 1, (mics_sharding){1, 1, 1}, &spec.mesh));
    ASSERT_OK(mics_mesh_cut_sequences(&spec.mesh, S));
    capture_begin(&seen);
    assert_int_not_equal(mics_schedule_open(memory, &spec, &schedule), MICS_OK);
    capture_end();
    ASSERT_SAID(&seen, why);
    mics_model_close(model);
    assert_int_equal(mics_memory_close(memory), 0);
}

static void test_what_cannot_be_shared(void **state)
{
    (void)state;
    check_refused(SHARED "}", 3, MICS_PREFERENCE_NONE,
                  "unit layers.0 has query heads that this does not divide; these would work: 1, "
                  "2, 4");
    check_refused(SHARED ", \"expert_capacity_factor\": 1}", 4, MICS_PREFERENCE_NONE,
                  "has experts with a capacity");
    check_refused(SHARED "}", 4, MICS_PREFERENCE_DPO, "preference pairs");
    check_refused(SHARED "}", 2, MICS_PREFERENCE_NONE, "18 is longer than the model's 16");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_capacities_bound_all_to_alls),
                                       cmocka_unit_test(test_bytes_of_shared_sequences),
                                       cmocka_unit_test(test_what_cannot_be_shared)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
