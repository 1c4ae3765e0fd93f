// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// All-to-alls of a mixture's schedule against sizes written out by hand.
#include "base/json.h"
#include "mics/core/schedule.h"
#include "model/from_config.h"
#include "test.h"
#include <string.h>

#define MIXTURE                                                                                    \
    "{\"model_type\": \"mixtral\", \"num_hidden_layers\": 2, \"num_attention_heads\": 2, "         \
    "\"num_key_value_heads\": 1, \"hidden_size\": 8, \"intermediate_size\": 6, "                   \
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

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_capacities_bound_all_to_alls)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
