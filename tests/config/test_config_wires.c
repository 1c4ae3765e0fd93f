// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Keys of run.wire: a precision a hop, and refusals of what would have no effect with the sharding.
#include "config/run_file.h"
#include <string.h>

// On 8 ranks.
typedef struct wire_case {
    const char *run;      // more keys of "run"
    const char *sharding; // "P, G, O"
    int32_t nodes;
    const char *part; // of the refusal; NULL: taken
} wire_case;

static void check_case(const wire_case *c)
{
    int p = 0, g = 0, o = 0;
    char text[512], *end = NULL;
    p = (int)strtol(c->sharding, &end, 10);
    g = (int)strtol(end + 1, &end, 10);
    o = (int)strtol(end + 1, &end, 10);
    snprintf(
        text, sizeof text,
        "{\"model\": {\"config\": \"model.json\"}, \"data\": {\"train\": [\"a.txt\"]}, \"run\": "
        "{\"steps\": 1%s}, \"train_micro_batch_size_per_gpu\": 4, \"sharding\": {\"params\": "
        "%d, \"grads\": %d, \"optimizer\": %d}}",
        c->run, p, g, o);
    mics_run *run = load_good(text);
    ASSERT_OK(mics_run_resolve(run, 8, c->nodes));
    const mics_status status = mics_run_check_wires(run, 8, c->nodes);
    if (status != (c->part == NULL ? MICS_OK : MICS_ERR_INVALID))
        fail_msg("%s, %s on %d nodes gave %s (%s)", c->run, c->sharding, (int)c->nodes,
                 mics_status_name(status), seen.line);
    if (c->part != NULL)
        ASSERT_SAID(&seen, c->part);
    mics_run_close(run);
}

#define WIRE(keys) ", \"wire\": {" keys "}"
#define RING ", \"collectives\": \"ring\""
#define GATHER "\"gather\": \"bf16\""
#define REDUCE "\"reduce\": \"bf16\""
#define INT8 "\"second_hop\": \"int8\""

static void test_keys_without_effect(void **state)
{
    (void)state;
    static const wire_case cases[] = {
        {"", "1, 1, 1", 2, NULL},
        {WIRE("\"gather\": \"fp32\""), "1, 1, 8", 2, NULL}, // as it is anyway
        {WIRE(GATHER), "2, 2, 2", 2, NULL},
        {WIRE(GATHER), "8, 8, 8", 2, NULL},
        {WIRE(GATHER), "1, 1, 8", 2,
         "run.wire.gather: \"bf16\" would have no effect: with P|G|O = 1|1|8 on 8 ranks, 4 a node, "
         "what is gathered does not travel; leave it out, or take a sharding with P above 1"},
        {WIRE(REDUCE), "1, 2, 2", 2, NULL},
        {WIRE(REDUCE), "1, 1, 1", 2, "run.wire.reduce: \"bf16\" would have no effect"},
        {WIRE(INT8), "2, 2, 2", 2, NULL},
        {WIRE(INT8), "1, 1, 1", 1, NULL}, // inside one node
        {WIRE(INT8), "8, 8, 8", 2,
         "the second hop does not travel; leave it out, or take a sharding with G below the number "
         "of ranks"},
        {WIRE(INT8), "1, 8, 8", 2, "run.wire.second_hop: \"int8\" would have no effect"},
        // one hop apart from the other
        {WIRE(GATHER ", \"gather_inside\": \"fp32\""), "8, 8, 8", 2, NULL},
        {WIRE(GATHER ", \"gather_inside\": \"fp32\""), "2, 2, 8", 2,
         "what is gathered travels inside nodes alone; leave it out, or run.wire.gather_inside"},
        {WIRE("\"gather_inside\": \"bf16\""), "2, 2, 8", 2, NULL},
        {WIRE(GATHER ", \"gather_inside\": \"bf16\""), "2, 2, 8", 2, NULL}, // publication
        {WIRE(GATHER ", \"gather_inside\": \"bf16\""), "2, 2, 2", 2,
         "run.wire.gather: \"bf16\" would have no effect"},
        {WIRE("\"gather_inside\": \"bf16\""), "8, 8, 8", 2,
         "fp32 between them saves where it costs least; write run.wire.gather \"bf16\""},
        {WIRE("\"gather_inside\": \"bf16\""), "1, 8, 8", 2, "run.wire.gather_inside"},
        {WIRE(GATHER ", \"gather_inside\": \"fp32\"") RING, "8, 8, 8", 2,
         "run.wire.gather_inside: \"fp32\" would have no effect"},
        {WIRE(REDUCE ", \"reduce_inside\": \"fp32\""), "8, 8, 8", 8,
         "what each micro-step reduces has no hop inside nodes; leave it out"},
        {WIRE(REDUCE ", \"reduce_inside\": \"fp32\"") RING, "8, 8, 8", 2,
         "or take run.collectives \"two-stage\""},
        {WIRE("\"reduce_inside\": \"bf16\""), "2, 8, 8", 2, NULL},
        {WIRE(INT8 ", \"second_hop_inside\": \"bf16\""), "1, 1, 8", 2, NULL},
        {WIRE(INT8 ", \"second_hop_inside\": \"bf16\""), "4, 4, 8", 2,
         "run.wire.second_hop_inside: \"bf16\" would have no effect"},
        {WIRE(INT8 ", \"second_hop_inside\": \"bf16\""), "1, 1, 8", 1,
         "run.wire.second_hop: \"int8\" would have no effect"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        check_case(&cases[i]);
}

static void test_hops(void **state)
{
    (void)state;
    mics_run *run = load_good(
        "{\"model\": {\"config\": \"model.json\"}, \"data\": {\"train\": [\"a.txt\"]}, \"run\": "
        "{\"steps\": 1" WIRE(
            GATHER ", \"gather_inside\": \"fp32\", \"second_hop\": \"int8\", "
                   "\"second_hop_inside\": \"bf16\", \"reduce\": \"bf16\"") "}, "
                                                                            "\"train_micro_batch_"
                                                                            "size_per_gpu\": 4}");
    assert_int_equal(run->gather_wires.inside, MICS_WIRE_FP32);
    assert_int_equal(run->gather_wires.between, MICS_WIRE_BF16);
    assert_int_equal(run->reduce_wires.inside, MICS_WIRE_BF16); // as the other
    assert_int_equal(run->reduce_wires.between, MICS_WIRE_BF16);
    assert_int_equal(run->second_hop_wires.inside, MICS_WIRE_BF16);
    assert_int_equal(run->second_hop_wires.between, MICS_WIRE_INT8);
    assert_int_equal(run->join_below, 262144);
    mics_run_close(run);
    check_refused(RUN_WITH("\"sharding\": {\"params\": 2}, \"communication_data_type\": \"int8\""),
                  MICS_ERR_UNSUPPORTED, "communication_data_type");
}

// A rank alone sends nothing, and communication_data_type says two keys of which one may be idle.
static void test_what_is_let_pass(void **state)
{
    (void)state;
    mics_run *run = load_good(
        "{\"model\": {\"config\": \"model.json\"}, \"data\": {\"train\": [\"a.txt\"]}, \"run\": "
        "{\"steps\": 1" WIRE(GATHER ", " REDUCE
                                    ", " INT8) "}, \"sharding\": {\"params\": 1}, "
                                               "\"train_micro_batch_size_per_gpu\": 4}");
    ASSERT_OK(mics_run_resolve(run, 1, 1));
    ASSERT_OK(mics_run_check_wires(run, 1, 1));
    mics_run_close(run);
    run = load_good(RUN_WITH("\"sharding\": {\"params\": 8}, \"communication_data_type\": "
                             "\"bf16\""));
    ASSERT_OK(mics_run_resolve(run, 8, 2));
    ASSERT_OK(mics_run_check_wires(run, 8, 2));
    mics_run_close(run);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_keys_without_effect, setup, teardown),
        cmocka_unit_test_setup_teardown(test_hops, setup, teardown),
        cmocka_unit_test_setup_teardown(test_what_is_let_pass, setup, teardown),
    };
    return cmocka_run_group_tests(tests, group_setup, group_teardown);
}
