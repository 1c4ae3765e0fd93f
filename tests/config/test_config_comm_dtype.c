// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Keys of run.comm_dtype: refusals of what would have no effect with the sharding.
#include "config/run_file.h"
#include <string.h>

// On 8 ranks.
typedef struct dtype_case {
    const char *run;      // more keys of "run"
    const char *sharding; // "P, G, O"
    int32_t nodes;
    const char *part; // of the refusal; NULL: taken
} dtype_case;

static void check_case(const dtype_case *c)
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
    const mics_status status = mics_run_check_comm_dtypes(run, 8, c->nodes);
    if (status != (c->part == NULL ? MICS_OK : MICS_ERR_INVALID))
        fail_msg("%s, %s on %d nodes gave %s (%s)", c->run, c->sharding, (int)c->nodes,
                 mics_status_name(status), seen.line);
    if (c->part != NULL)
        ASSERT_SAID(&seen, c->part);
    mics_run_close(run);
}

#define DTYPES(keys) ", \"comm_dtype\": {" keys "}"
#define RING ", \"collectives\": \"ring\""
#define PARAMS "\"params\": \"bf16\""
#define DELTA DTYPES("\"params\": \"delta\"") ", \"precision\": \"bf16\""
#define GRADS "\"grads\": \"bf16\""
#define INT8 "\"boundary\": \"int8\""
#define INTRA "\"bf16_intra_node\": true"

static void test_keys_without_effect(void **state)
{
    (void)state;
    static const dtype_case cases[] = {
        {"", "1, 1, 1", 2, NULL},
        {DTYPES("\"params\": \"fp32\", \"bf16_intra_node\": false"), "1, 1, 8", 2, NULL},
        {DTYPES(PARAMS), "8, 8, 8", 2, NULL},
        {DTYPES(PARAMS), "1, 1, 8", 2,
         "run.comm_dtype.params: \"bf16\" would have no effect: with P|G|O = 1|1|8 on 8 ranks, 4 a "
         "node, parameters are not sent inter-node; leave it out, or take a sharding with P "
         "over several nodes"},
        {DTYPES(PARAMS), "2, 2, 2", 2,
         "not sent inter-node; leave it out, or set run.comm_dtype.bf16_intra_node"},
        {DTYPES(PARAMS), "2, 2, 8", 2, "run.comm_dtype.params: \"bf16\" would have no effect"},
        {DTYPES(PARAMS ", " INTRA), "2, 2, 8", 2, NULL}, // parameter sync
        {DTYPES(PARAMS ", " INTRA), "2, 2, 2", 2, "run.comm_dtype.params: \"bf16\""},
        {DELTA, "2, 2, 8", 2, NULL},
        {DELTA, "1, 2, 4", 4, NULL}, // updates are deferred
        {DELTA, "8, 8, 8", 2,
         "run.comm_dtype.params: \"delta\" would have no effect: with P|G|O = 8|8|8 on 8 ranks, 4 "
         "a "
         "node, what is updated is not sent inter-node; leave it out, or take a sharding with O "
         "above P, over several nodes"},
        {DELTA, "2, 2, 4", 2, "what is updated is not sent inter-node; leave it out, or take"},
        {DELTA, "1, 1, 8", 1, "what is updated is not sent inter-node; leave it out"},
        {DTYPES("\"params\": \"delta\"") ", \"precision\": \"fp32\"", "2, 2, 8", 2,
         "run.comm_dtype.params: \"delta\" is for parameters in bf16, and run.precision is "
         "\"fp32\""},
        {DTYPES(GRADS), "1, 8, 8", 2, NULL},
        {DTYPES(GRADS), "1, 2, 2", 2, "or set run.comm_dtype.bf16_intra_node"},
        {DTYPES(GRADS), "1, 1, 1", 2,
         "gradients of a micro-step are not sent inter-node; leave it out, or take a sharding "
         "with G over several nodes"},
        {DTYPES(INT8), "2, 2, 2", 2, NULL},
        {DTYPES(INT8), "1, 1, 8", 2, NULL},
        {DTYPES(INT8), "8, 8, 8", 2,
         "run.comm_dtype.boundary: \"int8\" would have no effect: with P|G|O = 8|8|8 on 8 ranks, 4 "
         "a node, gradients at the accumulation boundary are not sent inter-node; leave it out, "
         "or take a sharding with G below the number of ranks"},
        {DTYPES(INT8), "1, 1, 1", 1, "or set run.comm_dtype.bf16_intra_node"}, // one node
        // The switch for intra-node links.
        {DTYPES(INTRA), "2, 2, 2", 2, NULL},
        {DTYPES(INTRA), "1, 1, 8", 2, NULL},
        {DTYPES(INTRA), "1, 1, 8", 8,
         "run.comm_dtype.bf16_intra_node: true would have no effect: with P|G|O = 1|1|8 on 8 "
         "ranks, 1 a node, nothing is sent intra-node; leave it out"},
        {DTYPES(INTRA ", " PARAMS) RING, "8, 8, 8", 2,
         "leave it out, or take run.collectives \"two-stage\""},
        {DTYPES(INTRA), "8, 8, 8", 2,
         "would save where it costs least; write run.comm_dtype.params \"bf16\" too"},
        {DTYPES(INTRA ", " PARAMS), "8, 8, 8", 2, NULL},
        {DTYPES(INTRA) ", \"precision\": \"bf16\"", "8, 8, 8", 2, NULL}, // as they are held
        {DTYPES(INTRA ", " INT8), "1, 1, 8", 2, NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        check_case(&cases[i]);
}

// A rank alone sends nothing, and communication_data_type says two keys of which one may be idle.
static void test_what_is_let_pass(void **state)
{
    (void)state;
    mics_run *run = load_good(
        "{\"model\": {\"config\": \"model.json\"}, \"data\": {\"train\": [\"a.txt\"]}, \"run\": "
        "{\"steps\": 1" DTYPES(
            PARAMS ", " GRADS ", " INT8
                   ", " INTRA) "}, \"sharding\": "
                               "{\"params\": 1}, \"train_micro_batch_size_per_gpu\": 4}");
    ASSERT_OK(mics_run_resolve(run, 1, 1));
    ASSERT_OK(mics_run_check_comm_dtypes(run, 1, 1));
    mics_run_close(run);
    run = load_good(RUN_WITH("\"sharding\": {\"params\": 8}, \"communication_data_type\": "
                             "\"bf16\""));
    ASSERT_OK(mics_run_resolve(run, 8, 2));
    ASSERT_OK(mics_run_check_comm_dtypes(run, 8, 2));
    mics_run_close(run);
    check_refused(RUN_WITH("\"sharding\": {\"params\": 2}, \"communication_data_type\": \"int8\""),
                  MICS_ERR_UNSUPPORTED, "communication_data_type");
}

// Rounded sums are of gradients that are not split, and are sent as they are.
static void test_rounded_sums(void **state)
{
    (void)state;
#define SUMS(sharding, more)                                                                       \
    "{\"model\": {\"config\": \"model.json\"}, \"data\": {\"train\": [\"a.txt\"]}, \"run\": "      \
    "{\"steps\": 1, \"precision\": \"bf16\"" more                                                  \
    "}, \"data_types\": {\"grad_accum_dtype\": \"bf16\"}, "                                        \
    "\"train_micro_batch_size_per_gpu\": 4, \"sharding\": {" sharding "}}"
    static const struct {
        const char *text, *part;
    } cases[] = {
        {SUMS("\"params\": 1, \"grads\": 1, \"optimizer\": 8", ""), NULL},
        {SUMS("\"params\": 1, \"grads\": 1, \"optimizer\": 1", DTYPES("\"boundary\": \"bf16\"")),
         NULL},
        {SUMS("\"params\": 1, \"grads\": 4, \"optimizer\": 4", ""), "and sharding.grads is 4"},
        {SUMS("\"params\": 1, \"grads\": 1, \"optimizer\": 8", DTYPES("\"boundary\": \"int8\"")),
         "\"int8\" would have no effect: sums in bf16"},
        {SUMS("\"params\": 1, \"grads\": 1, \"optimizer\": 8", DTYPES("\"boundary\": \"fp32\"")),
         "\"fp32\" would have no effect: sums in bf16"},
    };
#undef SUMS
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        mics_run *run = load_good(cases[i].text);
        ASSERT_OK(mics_run_resolve_device(run, NULL, NULL));
        ASSERT_OK(mics_run_resolve(run, 8, 2));
        assert_int_equal(mics_run_check_comm_dtypes(run, 8, 2) == MICS_OK, cases[i].part == NULL);
        if (cases[i].part != NULL)
            ASSERT_SAID(&seen, cases[i].part);
        mics_run_close(run);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_rounded_sums, setup, teardown),
        cmocka_unit_test_setup_teardown(test_keys_without_effect, setup, teardown),
        cmocka_unit_test_setup_teardown(test_what_is_let_pass, setup, teardown),
    };
    return cmocka_run_group_tests(tests, group_setup, group_teardown);
}
