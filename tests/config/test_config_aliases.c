// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Keys of communication, and those of others that say the same as one of ours.
#include "config/run_file.h"

static void test_aliases(void **state)
{
    (void)state;
    check_refused("{" RUN_BASE ", \"train_batch_size\": 1, \"steps_per_print\": 3, "
                  "\"zero_optimization\": {\"overlap_comm\": true}, \"nothing\": 0}",
                  MICS_ERR_INVALID, "unknown key");
    static const struct {
        const char *run, *more, *part;
    } cases[] = {
        {"\"steps\": 1, \"log_every\": 2", "\"steps_per_print\": 3", "the same as run.log_every"},
        {"\"steps\": 1, \"prefetch\": 2", "\"zero_optimization\": {\"overlap_comm\": false}",
         "false contradicts run.prefetch 2"},
        {"\"steps\": 1, \"prefetch\": 0", "\"zero_optimization\": {\"overlap_comm\": true}",
         "true contradicts run.prefetch 0"},
        {"\"steps\": 1, \"collectives\": \"ring\"",
         "\"zero_optimization\": {\"mics_hierarchical_params_gather\": true}",
         "mics_hierarchical_params_gather: true contradicts run.collectives ring"},
        {"\"steps\": 1, \"collectives\": \"ring-gathers\"",
         "\"zero_optimization\": {\"mics_hierarchical_params_gather\": false}",
         "false contradicts run.collectives ring-gathers"},
        {"\"steps\": 1",
         "\"sdp_hierarchical_allgather\": false, \"zero_optimization\": "
         "{\"mics_hierarchical_params_gather\": true}",
         "sdp_hierarchical_allgather: false contradicts run.collectives two-stage"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[512];
        snprintf(text, sizeof text,
                 "{\"model\": {\"config\": \"model.json\"}, \"data\": {\"train\": \"a\"}, "
                 "\"train_batch_size\": 1, \"run\": {%s}, %s}",
                 cases[i].run, cases[i].more);
        check_refused(text, MICS_ERR_INVALID, cases[i].part);
    }
}

static void check_collectives(const char *said, const char *more, mics_collectives collectives,
                              const char *value, const char *origin)
{
    char text[512];
    snprintf(text, sizeof text,
             "{\"model\": {\"config\": \"model.json\"}, \"data\": {\"train\": \"a\"}, "
             "\"train_batch_size\": 1, \"run\": {\"steps\": 1%s}%s}",
             said, more);
    mics_run *run = load_good(text);
    assert_int_equal(run->collectives, collectives);
    check_row(run, "run.collectives", value, origin);
    mics_run_close(run);
}

static void test_collectives(void **state)
{
    (void)state;
    static const char *const texts[] = {"auto", "ring", "two-stage", "ring-gathers"};
    for (int i = 0; i < 4; i++) {
        char said[64], value[32];
        snprintf(said, sizeof said, ", \"collectives\": \"%s\"", texts[i]);
        snprintf(value, sizeof value, "\"%s\"", texts[i]);
        check_collectives(said, "", (mics_collectives)i, value, "file");
    }
    check_collectives(", \"collectives\": \"Two-Stage\"", "", MICS_COLLECTIVES_TWO_STAGE,
                      "\"two-stage\"", "file");
    check_collectives("", "", MICS_COLLECTIVES_AUTO, "\"auto\"", "default");
    // The words of others; "auto" leaves it to them.
    static const char zero_true[] =
        ", \"zero_optimization\": {\"mics_hierarchical_params_gather\": true}";
    static const char zero_false[] =
        ", \"zero_optimization\": {\"mics_hierarchical_params_gather\": false}";
    static const char by_zero[] = "auto: zero_optimization.mics_hierarchical_params_gather";
    check_collectives("", zero_true, MICS_COLLECTIVES_TWO_STAGE, "\"two-stage\"", by_zero);
    check_collectives("", zero_false, MICS_COLLECTIVES_RING, "\"ring\"", by_zero);
    check_collectives(", \"collectives\": \"auto\"", zero_false, MICS_COLLECTIVES_RING, "\"ring\"",
                      by_zero);
    check_collectives(", \"collectives\": \"ring\"", zero_false, MICS_COLLECTIVES_RING, "\"ring\"",
                      "file");
    check_collectives("", ", \"sdp_hierarchical_allgather\": false", MICS_COLLECTIVES_RING,
                      "\"ring\"", "auto: sdp_hierarchical_allgather");
    check_refused(
        "{\"run\": {\"collectives\": \"tree\"}}", MICS_ERR_UNSUPPORTED,
        "run.collectives: must be \"auto\" or \"ring\" or \"two-stage\" or \"ring-gathers\", not "
        "\"tree\"");
    check_refused("{\"run\": {\"collectives\": true}}", MICS_ERR_FORMAT, "must be a string");
    check_refused(RUN_WITH("\"run\": {\"steps\": 1, \"hierarchical\": false}"), MICS_ERR_FORMAT,
                  "duplicate");
    check_refused("{\"run\": {\"steps\": 1, \"hierarchical\": false}}", MICS_ERR_INVALID,
                  "run.hierarchical: unknown key");
}

// What a timing finds stands in the rows, and so in run.json.
static void test_resolved_collectives(void **state)
{
    (void)state;
    mics_run *run = load_good(RUN_PLAIN);
    mics_run_resolve_collectives(run, MICS_COLLECTIVES_RING_GATHERS);
    assert_int_equal(run->collectives, MICS_COLLECTIVES_RING_GATHERS);
    check_row(run, "run.collectives", "\"ring-gathers\"", "auto: gathers were timed");
    mics_run_close(run);
}

// "params grads boundary" inter-node, then the same intra-node.
static void check_dtypes(const char *text, const char *expected)
{
    char found[64];
    mics_run *run = load_good(text);
    const mics_comm_dtypes dtypes[] = {run->params_dtype, run->grads_dtype, run->boundary_dtype};
    snprintf(found, sizeof found, "%s %s %s, %s %s %s", mics_comm_dtype_text(dtypes[0].inter),
             mics_comm_dtype_text(dtypes[1].inter), mics_comm_dtype_text(dtypes[2].inter),
             mics_comm_dtype_text(dtypes[0].intra), mics_comm_dtype_text(dtypes[1].intra),
             mics_comm_dtype_text(dtypes[2].intra));
    assert_string_equal(found, expected);
    mics_run_close(run);
}

#define RUN_OF(run_more, more)                                                                     \
    "{\"model\": {\"config\": \"model.json\"}, \"data\": {\"train\": \"a\"}, "                     \
    "\"train_batch_size\": 1, \"run\": {\"steps\": 1" run_more "}" more "}"
#define DTYPES(keys) ", \"comm_dtype\": {" keys "}"
#define COMM_TYPE(type) ", \"communication_data_type\": \"" type "\""

static void test_comm_dtypes(void **state)
{
    (void)state;
    check_dtypes(RUN_OF("", ""), "fp32 fp32 fp32, fp32 fp32 fp32");
    check_dtypes(RUN_OF(DTYPES(""), ""), "fp32 fp32 fp32, fp32 fp32 fp32");
    check_dtypes(RUN_OF(DTYPES("\"params\": \"bf16\""), ""), "bf16 fp32 fp32, fp32 fp32 fp32");
    check_dtypes(RUN_OF(DTYPES("\"grads\": \"BF16\", \"boundary\": \"int8\""), ""),
                 "fp32 bf16 int8, fp32 fp32 fp32");
    check_dtypes(RUN_OF(DTYPES("\"boundary\": \"int8\", \"bf16_intra_node\": true"), ""),
                 "fp32 fp32 int8, bf16 bf16 bf16");
    // DeepSpeed's one word for all gradients, wherever they are sent.
    check_dtypes(RUN_OF("", COMM_TYPE("fp32")), "fp32 fp32 fp32, fp32 fp32 fp32");
    check_dtypes(RUN_OF("", COMM_TYPE("bf16")), "fp32 bf16 bf16, fp32 bf16 bf16");
    check_dtypes(RUN_OF("", COMM_TYPE("bfp16")), "fp32 bf16 bf16, fp32 bf16 bf16");
    check_dtypes(RUN_OF(DTYPES("\"params\": \"bf16\", \"grads\": \"bf16\""), COMM_TYPE("bfp16")),
                 "bf16 bf16 bf16, fp32 bf16 bf16");
    check_dtypes(RUN_OF(DTYPES("\"bf16_intra_node\": true"), COMM_TYPE("bf16")),
                 "fp32 bf16 bf16, bf16 bf16 bf16");
    mics_run *run = load_good(RUN_OF(DTYPES("\"grads\": \"bf16\""), COMM_TYPE("bfp16")));
    check_row(run, "run.comm_dtype.params", "\"fp32\"", "default");
    check_row(run, "run.comm_dtype.grads", "\"bf16\"", "file");
    check_row(run, "run.comm_dtype.boundary", "\"bf16\"", "auto: communication_data_type");
    check_row(run, "communication_data_type", "\"bfp16\"", "file");
    mics_run_close(run);
    run = load_good(RUN_PLAIN);
    assert_null(find_row(run, "communication_data_type").key);
    mics_run_close(run);
}

static void test_comm_dtype_refusals(void **state)
{
    (void)state;
    check_refused(RUN_OF(DTYPES("\"params\": \"int8\""), ""), MICS_ERR_UNSUPPORTED,
                  "run.comm_dtype.params: must be \"fp32\" or \"bf16\" or \"delta\", not \"int8\"; "
                  "parameters carry");
    check_refused(
        RUN_OF(DTYPES("\"grads\": \"int8\""), ""), MICS_ERR_UNSUPPORTED,
        "run.comm_dtype.grads: must be \"fp32\" or \"bf16\", not \"int8\"; \"int8\" is for");
    check_refused(RUN_OF(DTYPES("\"boundary\": \"int4\""), ""), MICS_ERR_UNSUPPORTED,
                  "must be \"auto\" or \"fp32\" or \"bf16\" or \"int8\", not \"int4\"");
    check_refused(RUN_OF(DTYPES("\"boundary\": 8"), ""), MICS_ERR_FORMAT, "must be a string");
    check_refused(RUN_OF(DTYPES("\"reduction\": \"bf16\""), ""), MICS_ERR_INVALID,
                  "run.comm_dtype.reduction: unknown key; known here: params, grads, boundary, "
                  "bf16_intra_node");
    check_refused(RUN_OF(", \"comm_dtype\": \"bf16\"", ""), MICS_ERR_FORMAT, "must be an object");
    check_refused(
        RUN_OF("", COMM_TYPE("fp8")), MICS_ERR_UNSUPPORTED,
        "communication_data_type: must be \"fp32\" or \"bf16\" or \"bfp16\" or \"fp16\", not "
        "\"fp8\"");
    check_refused(
        RUN_OF(DTYPES("\"grads\": \"fp32\""), COMM_TYPE("bf16")), MICS_ERR_INVALID,
        "communication_data_type: bf16 contradicts run.comm_dtype.grads fp32; leave one out");
    check_refused(RUN_OF(DTYPES("\"boundary\": \"int8\""), COMM_TYPE("fp32")), MICS_ERR_INVALID,
                  "fp32 contradicts run.comm_dtype.boundary int8");
    check_refused(RUN_OF("", ", \"zero_optimization\": {\"zero_quantized_gradients\": true}"),
                  MICS_ERR_UNSUPPORTED,
                  "zero_quantized_gradients: cannot be honoured: write \"run\": {\"comm_dtype\": "
                  "{\"boundary\": \"int8\"}} instead");
}

static void test_comm_type_against_the_switch(void **state)
{
    (void)state;
    check_refused(RUN_OF(DTYPES("\"bf16_intra_node\": true"), COMM_TYPE("fp32")), MICS_ERR_INVALID,
                  "communication_data_type: fp32 contradicts run.comm_dtype.bf16_intra_node true");
    check_refused(RUN_OF(DTYPES("\"bf16_intra_node\": \"bf16\""), ""), MICS_ERR_FORMAT,
                  "must be true or false");
}

static void check_threshold(const char *text, int64_t elems, const char *value, const char *origin)
{
    mics_run *run = load_good(text);
    assert_int_equal(run->param_persistence_threshold, elems);
    check_row(run, "run.param_persistence_threshold", value, origin);
    mics_run_close(run);
}

#define THRESHOLD(elems) ", \"param_persistence_threshold\": " #elems
#define PERSISTENT(elems)                                                                          \
    ", \"zero_optimization\": {\"stage3_param_persistence_threshold\": " #elems "}"

static void test_small_units(void **state)
{
    (void)state;
    static const char by_zero[] = "auto: zero_optimization.stage3_param_persistence_threshold";
    check_threshold(RUN_OF("", ""), 16384, "16384", "default");
    check_threshold(RUN_OF(THRESHOLD(0), ""), 0, "0", "file");
    check_threshold(RUN_OF(THRESHOLD(1e6), ""), 1000000, "1000000", "file");
    check_threshold(RUN_OF("", PERSISTENT(100000)), 100000, "100000", by_zero);
    check_threshold(RUN_OF("", PERSISTENT(0)), 0, "0", by_zero);
    check_threshold(RUN_OF("", PERSISTENT("auto")), 16384, "16384", "default");
    check_threshold(RUN_OF(THRESHOLD(7), PERSISTENT("auto")), 7, "7", "file");
    check_threshold(RUN_OF(THRESHOLD(7), PERSISTENT(7)), 7, "7", "file");
    check_threshold(RUN_OF("", ", \"sdp_param_persistence_threshold\": 5"), 5, "5",
                    "auto: sdp_param_persistence_threshold");
    check_threshold(RUN_OF("", ", \"sdp_param_persistence_threshold\": 9223372036854775807"),
                    INT64_MAX, "9223372036854775807", "auto: sdp_param_persistence_threshold");
    check_refused(RUN_OF(THRESHOLD(-1), ""), MICS_ERR_INVALID, "must be 0 or more, not -1");
    check_refused(RUN_OF(THRESHOLD(0.5), ""), MICS_ERR_INVALID, "must be a whole number");
    check_refused(RUN_OF(THRESHOLD("auto"), ""), MICS_ERR_INVALID, "cannot be \"auto\"");
    check_refused(RUN_OF(THRESHOLD(7), PERSISTENT(8)), MICS_ERR_INVALID,
                  "stage3_param_persistence_threshold: 8 contradicts "
                  "run.param_persistence_threshold 7; leave one");
    check_refused(RUN_OF("", PERSISTENT(8) ", \"sdp_param_persistence_threshold\": 9"),
                  MICS_ERR_INVALID, "9 contradicts run.param_persistence_threshold 8");
}

static void check_prefetch(const char *text, int32_t prefetch, bool automatic, const char *origin)
{
    char value[16];
    mics_run *run = load_good(text);
    ASSERT_OK(mics_run_resolve(run, 1, 1));
    assert_int_equal(run->prefetch, prefetch);
    assert_int_equal(run->prefetch_auto, automatic);
    snprintf(value, sizeof value, "%d", (int)prefetch);
    check_row(run, "run.prefetch", value, origin);
    run->prefetch = 3; // what a caller chose shows, until the run is resolved anew
    check_row(run, "run.prefetch", "3", origin);
    ASSERT_OK(mics_run_resolve(run, 1, 1));
    assert_int_equal(run->prefetch, prefetch);
    mics_run_close(run);
}

#define PREFETCH(units) ", \"prefetch\": " #units
#define OVERLAP(value) ", \"zero_optimization\": {\"overlap_comm\": " #value "}"

static void test_prefetch(void **state)
{
    (void)state;
    static const char deepest[] = "auto: the deepest of 3, 2, 1, 0 whose memory fits";
    static const char by_overlap[] = "auto: zero_optimization.overlap_comm is false";
    check_prefetch(RUN_OF("", ""), 1, true, deepest);
    check_prefetch(RUN_OF(PREFETCH("auto"), ""), 1, true, deepest);
    check_prefetch(RUN_OF("", OVERLAP(true)), 1, true, deepest);
    check_prefetch(RUN_OF(PREFETCH(7), ""), 7, false, "file");
    check_prefetch(RUN_OF(PREFETCH(0), ""), 0, false, "file");
    check_prefetch(RUN_OF("", OVERLAP(false)), 0, false, by_overlap);
    check_prefetch(RUN_OF(PREFETCH("auto"), OVERLAP(false)), 0, false, by_overlap);
    check_prefetch(RUN_OF(PREFETCH(0), OVERLAP(false)), 0, false, "file");
    int32_t depth = 7;
    for (int32_t i = 0; i < 4; i++) {
        assert_true(mics_prefetch_candidate(i, &depth));
        assert_int_equal(depth, 3 - i);
    }
    assert_false(mics_prefetch_candidate(4, &depth));
    assert_false(mics_prefetch_candidate(-1, &depth));
    assert_int_equal(depth, 0);
    check_refused(RUN_OF(PREFETCH(-1), ""), MICS_ERR_INVALID, "must be 0 to 1024, not -1");
    check_refused(RUN_OF(PREFETCH("all"), ""), MICS_ERR_FORMAT, "must be an integer");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_aliases, setup, teardown),
        cmocka_unit_test_setup_teardown(test_collectives, setup, teardown),
        cmocka_unit_test_setup_teardown(test_resolved_collectives, setup, teardown),
        cmocka_unit_test_setup_teardown(test_comm_dtypes, setup, teardown),
        cmocka_unit_test_setup_teardown(test_comm_dtype_refusals, setup, teardown),
        cmocka_unit_test_setup_teardown(test_comm_type_against_the_switch, setup, teardown),
        cmocka_unit_test_setup_teardown(test_small_units, setup, teardown),
        cmocka_unit_test_setup_teardown(test_prefetch, setup, teardown),
    };
    return cmocka_run_group_tests(tests, group_setup, group_teardown);
}
