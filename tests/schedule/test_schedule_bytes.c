// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// The traffic ledger against formulas written out by hand, on 8 ranks as 2 nodes x 4.
//
// A ring over k members sends (k - 1) blocks over each of its k links. A ring over all 8 ranks has
// 6 links inside nodes and 2 between them; over 4 ranks that are 2 apart, 2 and 2; over 2 ranks
// that are 4 apart, 0 and 2.
#include "exchanges.h"
#include "mics/core/ledger.h"
#include "mics/core/schedule.h"
#include "model/from_config.h"
#include "models.h"
#include "schedule/ledger.h"

enum { RANKS = 8, NODES = 2 };

// The model's parameters in floats: 29 tokens, 19 positions, width 12, 2 layers; each tensor on 16
// floats, each unit on 16 * 8.
enum {
    EMBED = 640,  // 29 * 12 -> 352, 19 * 12 -> 240; 592 -> 640
    LAYER = 1920, // ln 4 * 16, c_attn 432 + 48, c_proj 144 + 16, c_fc 576 + 48, c_proj 576 + 16
    HEAD = 128,   // ln_f 2 * 16 -> 128
    HEAD_UNTIED = 384,         // and 29 * 12 -> 352
    AGREE_INTRA = 8 * 6 * 128, // by doubling in a node, 128 bytes a rank: 2 of 8 ranks', then 4
    AGREE_INTER = 8 * 128,     // each rank to its partner on the other node
};

// Bytes that all ranks send in a step, in multiples of what one micro-step gathers (A), of the
// model (M) in each micro-step, and of the model once a step. A layered group counts as one
// micro-step.
typedef struct by_hand {
    mics_sharding sharding;
    const char *name;
    double intra_A, intra_M, intra_once;
    double inter_A, inter_M, inter_once;
} by_hand;

static const by_hand cases[] = {
    // all-reduce over 8: 14/8 M a link
    {{1, 1, 1}, "ddp", 0, 0, 10.5, 0, 0, 3.5},
    // reduce-scatter and all-gather over 8: 7/8 M a link each
    {{1, 1, 8}, "zero1", 0, 0, 10.5, 0, 0, 3.5},
    // the reduce-scatter in each micro-step, the all-gather once
    {{1, 8, 8}, "zero2", 0, 5.25, 5.25, 0, 1.75, 1.75},
    {{8, 8, 8}, "zero3", 5.25, 5.25, 0, 1.75, 1.75, 0},
    // in pairs: each rank sends 1/2; second hop over 4 that are 2 apart: 6/8 M on each of 8 links
    {{2, 2, 2}, "mics(2)", 4, 4, 3, 0, 0, 3},
    // in a node: each rank sends 3/4; second hop in pairs across nodes: 2/8 M on each of 8 links
    {{4, 4, 4}, "mics(4)", 6, 6, 0, 0, 0, 2},
    // second hop as reduce-scatter, then publication, 3/8 M a link each
    {{2, 2, 8}, "mics+(2)", 4, 4, 3, 0, 0, 3},
    {{4, 4, 8}, "mics+(4)", 6, 6, 0, 0, 0, 2},
    // gathers in the small group, gradients over all in each micro-step, publication once
    {{2, 8, 8}, "hpz(2)", 4, 5.25, 1.5, 0, 1.75, 1.5},
    {{4, 8, 8}, "hpz(4)", 6, 5.25, 0, 0, 1.75, 1},
    // gradients in pairs; scatter over 2 that are 2 apart, M/4 a link; replicas in pairs across
    // nodes, 2/8 M a link; publication in the node, 3/4 M a link
    {{1, 2, 4}, "P|G|O = 1|2|4", 0, 4, 2 + 6, 0, 0, 2},
};

typedef struct setting {
    mics_mesh mesh;
    int32_t micro_steps, prefetch, layered_micro_steps;
    bool tied, hierarchical;
    int64_t coalesce_below;
} setting;

static mics_schedule *open_schedule(mics_memory *memory, const mics_model *model,
                                    const setting *want)
{
    const mics_algorithm algorithm =
        want->hierarchical ? MICS_ALGORITHM_TWO_STAGE : MICS_ALGORITHM_RING;
    const mics_schedule_spec spec = {.model = model,
                                     .mesh = want->mesh,
                                     .batch = {.sequences = 1, .length = 5, .threads = 1},
                                     .micro_steps = want->micro_steps,
                                     .prefetch = want->prefetch,
                                     .layered_micro_steps = want->layered_micro_steps,
                                     .gather = algorithm,
                                     .reduce = algorithm,
                                     .boundary = algorithm,
                                     .coalesce_below = want->coalesce_below};
    mics_schedule *schedule = NULL;
    ASSERT_OK(mics_schedule_open(memory, &spec, &schedule));
    return schedule;
}

static double model_bytes(const setting *want)
{
    return 4.0 * (EMBED + 2 * LAYER + (want->tied ? HEAD : HEAD_UNTIED));
}

// What a turn of micro-steps gathers: each layer before forward and before backward, but the last
// one stays when units are gathered ahead; the head once; the embedding before its forward, and for
// a head that is tied to it.
static double gathered_bytes(const setting *want)
{
    const int layers = want->prefetch > 0 ? 3 : 4;
    const int embeddings = want->tied ? 2 : 1;
    return 4.0 * (embeddings * EMBED + layers * LAYER + (want->tied ? HEAD : HEAD_UNTIED));
}

static void check_equal(const char *what, int64_t have, double want)
{
    if ((double)have != want)
        fail_msg("%s: %lld bytes, not %.17g", what, (long long)have, want);
}

static void check_train(const mics_schedule *schedule, const by_hand *expected, const setting *want)
{
    const int layered_micro_steps = want->layered_micro_steps > 1 ? want->layered_micro_steps : 1;
    const int turns = (want->micro_steps + layered_micro_steps - 1) / layered_micro_steps;
    const double A = turns * gathered_bytes(want), M = model_bytes(want);
    const mics_bytes sent = mics_schedule_all_bytes(schedule, MICS_PHASE_TRAIN);
    check_equal(expected->name, sent.intra,
                expected->intra_A * A + expected->intra_M * M * turns + expected->intra_once * M +
                    AGREE_INTRA);
    check_equal(expected->name, sent.inter,
                expected->inter_A * A + expected->inter_M * M * turns + expected->inter_once * M +
                    AGREE_INTER);
}

// An evaluation gathers each unit once, and a tied table twice.
static void check_eval(const mics_schedule *schedule, const by_hand *expected, const setting *want)
{
    const double A = model_bytes(want) + (want->tied ? 4.0 * EMBED : 0);
    const mics_bytes sent = mics_schedule_all_bytes(schedule, MICS_PHASE_EVAL);
    check_equal(expected->name, sent.intra, expected->intra_A * A + AGREE_INTRA);
    check_equal(expected->name, sent.inter, expected->inter_A * A + AGREE_INTER);
}

// Ranks' bytes and kinds' bytes are the same sum, taken in two ways.
static void check_sums(const mics_schedule *schedule)
{
    for (int phase = 0; phase < MICS_PHASES; phase++) {
        const mics_bytes all = mics_schedule_all_bytes(schedule, (mics_phase)phase);
        mics_bytes ranks = {0, 0};
        for (int32_t rank = 0; rank < RANKS; rank++) {
            mics_bytes one = mics_schedule_rank_bytes(schedule, (mics_phase)phase, rank);
            ranks.intra += one.intra;
            ranks.inter += one.inter;
        }
        assert_int_equal(ranks.intra, all.intra);
        assert_int_equal(ranks.inter, all.inter);
    }
}

static void check_case(mics_memory *memory, const by_hand *expected, setting want)
{
    char name[64];
    mics_model *model = model_gpt2(memory, 2, want.tied);
    ASSERT_OK(mics_mesh_init(RANKS, NODES, expected->sharding, &want.mesh));
    assert_string_equal(mics_mesh_name(&want.mesh, name, sizeof name), expected->name);
    mics_schedule *schedule = open_schedule(memory, model, &want);
    check_train(schedule, expected, &want);
    check_eval(schedule, expected, &want);
    check_sums(schedule);
    mics_schedule_close(schedule);
    mics_model_close(model);
}

static void test_family_by_hand(void **state)
{
    (void)state;
    static const int32_t micro_steps[] = {1, 2, 5};
    mics_memory *memory = NULL;
    ASSERT_OK(mics_memory_open(&memory));
    for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
        for (int s = 0; s < 3; s++) {
            check_case(memory, &cases[c],
                       (setting){.micro_steps = micro_steps[s], .prefetch = 1, .tied = true});
            check_case(memory, &cases[c],
                       (setting){.micro_steps = micro_steps[s], .prefetch = 0, .tied = true});
            check_case(memory, &cases[c],
                       (setting){.micro_steps = micro_steps[s], .prefetch = 1, .tied = false});
            for (int32_t layered_micro_steps = 2; layered_micro_steps < 7; layered_micro_steps++)
                check_case(memory, &cases[c],
                           (setting){.micro_steps = micro_steps[s],
                                     .prefetch = layered_micro_steps % 2,
                                     .layered_micro_steps = layered_micro_steps,
                                     .tied = layered_micro_steps % 3 == 0});
        }
    }
    assert_int_equal(mics_memory_close(memory), 0);
}

// All communication stays inside when there is one node, and all of it crosses when each rank is a
// node; the sum is the same.
static void test_nodes_share_the_same_sum(void **state)
{
    (void)state;
    mics_memory *memory = NULL;
    ASSERT_OK(mics_memory_open(&memory));
    mics_model *model = model_gpt2(memory, 2, true);
    for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
        mics_bytes sent[3];
        const int32_t nodes[] = {1, 2, 8};
        for (int i = 0; i < 3; i++) {
            setting want = {.micro_steps = 2, .prefetch = 1, .tied = true};
            ASSERT_OK(mics_mesh_init(RANKS, nodes[i], cases[c].sharding, &want.mesh));
            mics_schedule *schedule = open_schedule(memory, model, &want);
            sent[i] = mics_schedule_all_bytes(schedule, MICS_PHASE_TRAIN);
            mics_schedule_close(schedule);
        }
        assert_int_equal(sent[0].inter, 0);
        assert_int_equal(sent[2].intra, 0);
        assert_int_equal(sent[0].intra, sent[1].intra + sent[1].inter);
        assert_int_equal(sent[0].intra, sent[2].inter);
    }
    mics_model_close(model);
    assert_int_equal(mics_memory_close(memory), 0);
}

// Two stages, 2 nodes of 4, k = 4, p = 8: (p - k) / p of a gather leaves each node, half of it, so
// all of it in sum, where one ring over both nodes sends 7/8 over each of its two links. In the
// nodes each rank sends 3 blocks of a quarter.
static void test_two_stages_by_hand(void **state)
{
    (void)state;
    mics_memory *memory = NULL;
    ASSERT_OK(mics_memory_open(&memory));
    mics_model *model = model_gpt2(memory, 2, true);
    static const by_hand two_stages[] = {
        {{8, 8, 8}, "zero3", 6, 6, 0, 1, 1, 0},
        // publication in two stages too: M/8 to the other node a rank, then 3/4 M in the node
        {{1, 8, 8}, "zero2", 0, 6, 6, 0, 1, 1},
        // all-reduce: 3/4 M a rank in the node and back, and in between M/4 in pairs
        {{1, 1, 1}, "ddp", 0, 0, 12, 0, 0, 2},
        // scatter: 3/4 M a rank in the node, then half of M/4; publication the same backwards
        {{1, 1, 8}, "zero1", 0, 0, 12, 0, 0, 2},
        // the same with M/2, in pairs: M/4 a rank in the node, half of M/4 between
        {{2, 2, 2}, "mics(2)", 4, 4, 4, 0, 0, 2},
        {{2, 2, 8}, "mics+(2)", 4, 4, 4, 0, 0, 2},
        {{2, 8, 8}, "hpz(2)", 4, 6, 2, 0, 1, 1},
        // whole nodes: nothing to split
        {{4, 4, 4}, "mics(4)", 6, 6, 0, 0, 0, 2},
        {{4, 4, 8}, "mics+(4)", 6, 6, 0, 0, 0, 2},
    };
    for (size_t c = 0; c < sizeof two_stages / sizeof two_stages[0]; c++) {
        setting want = {.micro_steps = 3, .prefetch = 1, .tied = true, .hierarchical = true};
        ASSERT_OK(mics_mesh_init(RANKS, 2, two_stages[c].sharding, &want.mesh));
        mics_schedule *schedule = open_schedule(memory, model, &want);
        check_train(schedule, &two_stages[c], &want);
        check_sums(schedule);
        mics_schedule_close(schedule);
    }
    mics_model_close(model);
    assert_int_equal(mics_memory_close(memory), 0);
}

// 48 units of up to 1920 elements, which may share messages of up to 1 MiB: all of them share one,
// and what is sent once a step costs as many exchanges as one unit does. Bytes stay what they are.
static void test_small_units_share_messages(void **state)
{
    (void)state;
    static const struct {
        mics_sharding sharding;
        bool hierarchical;
        int64_t once; // exchanges of one unit's boundary, on rank 0
    } few[] = {
        {{1, 1, 1}, false, 2 * 7},        // one all-reduce over 8
        {{1, 1, 1}, true, 3 + 2 * 1 + 3}, // in the node, across, and back
        {{1, 1, 8}, false, 7 + 7},        // scatter, publication
        {{1, 1, 8}, true, 3 + 1 + 1 + 3}, // both in two stages
        {{2, 2, 2}, true, 1 + 2 * 1 + 1}, {{2, 2, 8}, true, 1 + 1 + 1 + 1}, {{8, 8, 8}, true, 0},
    };
    mics_memory *memory = NULL;
    ASSERT_OK(mics_memory_open(&memory));
    mics_model *model = model_gpt2(memory, 46, true);
    for (size_t c = 0; c < sizeof few / sizeof few[0]; c++) {
        setting want = {
            .micro_steps = 2, .prefetch = 1, .tied = true, .hierarchical = few[c].hierarchical};
        ASSERT_OK(mics_mesh_init(RANKS, NODES, few[c].sharding, &want.mesh));
        mics_schedule *apart = open_schedule(memory, model, &want);
        want.coalesce_below = 1 << 18;
        mics_schedule *joined = open_schedule(memory, model, &want);
        const mics_bytes one = mics_schedule_all_bytes(apart, MICS_PHASE_TRAIN),
                         other = mics_schedule_all_bytes(joined, MICS_PHASE_TRAIN);
        assert_int_equal(one.intra, other.intra);
        assert_int_equal(one.inter, other.inter);
        check_sums(joined);
        assert_int_equal(exchanges_of(apart, MICS_PHASE_TRAIN, 0) -
                             exchanges_of(joined, MICS_PHASE_TRAIN, 0),
                         (model->unit_count - 1) * few[c].once);
        mics_schedule_close(apart);
        mics_schedule_close(joined);
    }
    mics_model_close(model);
    assert_int_equal(mics_memory_close(memory), 0);
}

// 2.6e13 parameters over half a million ranks: more bytes a step than a number of 63 bits counts.
static void test_absurd_sizes_are_refused(void **state)
{
    (void)state;
    static const char config[] =
        "{\"model_type\": \"gpt2\", \"n_layer\": 2, \"n_head\": 1, \"n_embd\": 1048576, "
        "\"n_positions\": 19, \"vocab_size\": 29, \"tie_word_embeddings\": true}";
    mics_memory *memory = NULL;
    mics_json *json = NULL;
    mics_model *model = NULL;
    mics_schedule *schedule = NULL;
    ASSERT_OK(mics_memory_open(&memory));
    ASSERT_OK(mics_json_parse(memory, "model", config, strlen(config), &json));
    ASSERT_OK(mics_model_from_config(memory, json, false, &model));
    mics_json_close(json);
    for (int nodes = 64; nodes <= 65536; nodes *= 1024) {
        mics_schedule_spec spec = {
            .model = model, .batch = {.sequences = 1, .length = 5, .threads = 1}, .micro_steps = 1};
        ASSERT_OK(mics_mesh_init(8 * nodes, nodes, (mics_sharding){8 * nodes, 8 * nodes, 8 * nodes},
                                 &spec.mesh));
        mics_status status = mics_schedule_open(memory, &spec, &schedule);
        assert_int_equal(status, nodes == 64 ? MICS_OK : MICS_ERR_INVALID);
        if (status == MICS_OK)
            mics_schedule_close(schedule);
    }
    mics_model_close(model);
    assert_int_equal(mics_memory_close(memory), 0);
}

static void test_one_rank_sends_nothing(void **state)
{
    (void)state;
    mics_memory *memory = NULL;
    ASSERT_OK(mics_memory_open(&memory));
    mics_model *model = model_gpt2(memory, 2, true);
    setting want = {.micro_steps = 3, .prefetch = 1, .tied = true};
    ASSERT_OK(mics_mesh_init(1, 1, (mics_sharding){1, 1, 1}, &want.mesh));
    mics_schedule *schedule = open_schedule(memory, model, &want);
    const mics_bytes sent = mics_schedule_all_bytes(schedule, MICS_PHASE_TRAIN);
    assert_int_equal(sent.intra + sent.inter, 0);
    assert_int_equal(exchanges_of(schedule, MICS_PHASE_TRAIN, 0), 0);
    mics_schedule_close(schedule);
    mics_model_close(model);
    assert_int_equal(mics_memory_close(memory), 0);
}

// What runs on units, alike ones together, as explain shows it.
static void test_operations_over_units(void **state)
{
    (void)state;
    mics_memory *memory = NULL;
    ASSERT_OK(mics_memory_open(&memory));
    mics_model *model = model_gpt2(memory, 2, true);
    setting want = {.micro_steps = 3, .prefetch = 1, .tied = true, .hierarchical = true};
    ASSERT_OK(mics_mesh_init(RANKS, NODES, (mics_sharding){8, 8, 8}, &want.mesh));
    mics_schedule *schedule = open_schedule(memory, model, &want);
    mics_operations all;
    ASSERT_OK(mics_schedule_operations(memory, schedule, &all));
    assert_int_equal(all.count, 2);
    assert_int_equal(all.whole_units, 0);
    assert_int_equal(all.rows[0].kind, MICS_STEP_GATHER);
    assert_int_equal(all.rows[1].kind, MICS_STEP_REDUCE);
    for (int32_t i = 0; i < all.count; i++) {
        // In stages and in each micro-step, and each unit counts once.
        assert_string_equal(all.rows[i].algorithm, "two-stage");
        assert_int_equal(all.rows[i].units, model->unit_count);
        assert_int_equal(all.rows[i].min_elems, 32); // ln_f 2 * 16
        assert_int_equal(all.rows[i].max_elems, LAYER);
    }
    mics_schedule_close(schedule);
    mics_model_close(model);
    assert_int_equal(mics_memory_close(memory), 0);
}

// ---- node memory ----

// Copies of masters and two moments in node memory: two of a rank's part, four where a rank keeps
// another node's too. A state has 8 bytes a MiB or part of one, and 2 x 64 to begin on; a unit 256.
static void test_node_memory_by_hand(void **state)
{
    (void)state;
    static const struct {
        int32_t optimizer; // ranks that share the state
        size_t file_bytes; // of 64 KiB a copy
        size_t unit_bytes; // of 2,400,000 floats
    } memories[] = {
        {8, 4 * 65536, 4 * (256 + 3 * (1200000 + 2 * 8 + 128))},
        {4, 2 * 65536, 2 * (256 + 3 * (2400000 + 3 * 8 + 128))},
        {2, 2 * 65536, 2 * (256 + 3 * (2400000 + 3 * 8 + 128))}, // of 2 ranks each keeps half
        {1, 2 * 65536, 2 * (256 + 3 * (2400000 + 3 * 8 + 128))},
    };
    for (size_t c = 0; c < sizeof memories / sizeof memories[0]; c++) {
        const int32_t owners = memories[c].optimizer;
        mics_mesh mesh;
        ASSERT_OK(mics_mesh_init(RANKS, NODES, (mics_sharding){1, 1, owners}, &mesh));
        assert_int_equal(mics_schedule_node_file_bytes(&mesh), memories[c].file_bytes);
        assert_int_equal(
            mics_schedule_node_unit_bytes(&mesh, MICS_OPTIMIZER_ADAMW, 2400000, owners),
            memories[c].unit_bytes);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_family_by_hand),
        cmocka_unit_test(test_nodes_share_the_same_sum),
        cmocka_unit_test(test_two_stages_by_hand),
        cmocka_unit_test(test_absurd_sizes_are_refused),
        cmocka_unit_test(test_small_units_share_messages),
        cmocka_unit_test(test_one_rank_sends_nothing),
        cmocka_unit_test(test_operations_over_units),
        cmocka_unit_test(test_node_memory_by_hand),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
