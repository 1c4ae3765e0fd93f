// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// run.device, run.precision, and DeepSpeed's words for the latter; run.attention.
#include "config/run_file.h"

#define RUN_ON(run, more)                                                                          \
    "{\"model\": {\"config\": \"model.json\"}, \"data\": {\"train\": \"a\"}, "                     \
    "\"train_batch_size\": 1, \"run\": {\"steps\": 1" run "}" more "}"

static const char none[] = "libmics_cuda.so is not there", slow[] = "no AVX512_BF16";

static void check_settled(const char *text, const char *why_not, mics_run_device device,
                          mics_run_precision precision, const char *device_origin,
                          const char *precision_origin)
{
    char value[32];
    mics_run *run = load_good(text);
    for (int again = 0; again < 2; again++) {
        ASSERT_OK(mics_run_resolve_device(run, why_not, NULL));
        assert_int_equal(run->device, device);
        assert_int_equal(run->precision, precision);
        snprintf(value, sizeof value, "\"%s\"", mics_run_device_text(device));
        check_row(run, "run.device", value, device_origin);
        snprintf(value, sizeof value, "\"%s\"", mics_run_precision_text(precision));
        check_row(run, "run.precision", value, precision_origin);
    }
    mics_run_close(run);
}

static void test_auto(void **state)
{
    (void)state;
    check_settled(RUN_ON("", ""), none, MICS_RUN_DEVICE_CPU, MICS_RUN_PRECISION_FP32,
                  "auto: no GPU can be used", "auto: fp32 on cpu");
    check_settled(RUN_ON("", ""), NULL, MICS_RUN_DEVICE_CUDA, MICS_RUN_PRECISION_BF16,
                  "auto: a GPU was found", "auto: bf16 on cuda");
    check_settled(RUN_ON(", \"device\": \"auto\", \"precision\": \"auto\"", ""), NULL,
                  MICS_RUN_DEVICE_CUDA, MICS_RUN_PRECISION_BF16, "auto: a GPU was found",
                  "auto: bf16 on cuda");
    // The same run on another machine.
    mics_run *run = load_good(RUN_ON("", ""));
    ASSERT_OK(mics_run_resolve_device(run, NULL, NULL));
    ASSERT_OK(mics_run_resolve_device(run, none, NULL));
    assert_int_equal(run->device, MICS_RUN_DEVICE_CPU);
    assert_int_equal(run->precision, MICS_RUN_PRECISION_FP32);
    mics_run_close(run);
}

// What sums are rounded to is what gradients are.
static void test_sums(void **state)
{
    (void)state;
#define SUMS_IN(dtype, more) RUN_WITH("\"data_types\": {\"grad_accum_dtype\": \"" dtype "\"}" more)
    static const struct {
        const char *text, *why;
        int32_t ranks;
        bool rounded;
    } cases[] = {
        {RUN_PLAIN, NULL, 1, false},
        {SUMS_IN("fp32", ""), NULL, 4, false},
        {SUMS_IN("bf16", ""), NULL, 1, true},
        {SUMS_IN("fp16", ", \"fp16\": {\"enabled\": true}"), NULL, 1, true},
        {SUMS_IN("bf16", ""), "are not split, and sharding is \"auto\"", 4, false},
        {SUMS_IN("bf16", ", \"sharding\": {\"params\": 1, \"grads\": 1}"), NULL, 4, true},
        {SUMS_IN("fp16", ""), "run.precision is bf16; use \"fp32\", or that", 1, false},
        {SUMS_IN("bf16", ", \"optimizer\": {\"type\": \"Muon\"}"), "Muon takes gradients in fp32",
         1, false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        mics_run *run = load_good(cases[i].text);
        ASSERT_OK(mics_run_resolve_device(run, NULL, NULL));
        if (cases[i].why == NULL) {
            ASSERT_OK(mics_run_resolve(run, cases[i].ranks, 1));
            assert_int_equal(run->rounded_sums, cases[i].rounded);
        } else {
            assert_int_not_equal(mics_run_resolve(run, cases[i].ranks, 1), MICS_OK);
            ASSERT_SAID(&seen, cases[i].why);
        }
        mics_run_close(run);
    }
#undef SUMS_IN
}

static void test_said(void **state)
{
    (void)state;
    check_settled(RUN_ON(", \"device\": \"cpu\"", ""), NULL, MICS_RUN_DEVICE_CPU,
                  MICS_RUN_PRECISION_FP32, "file", "auto: fp32 on cpu");
    check_settled(RUN_ON(", \"device\": \"cuda\", \"precision\": \"tf32\"", ""), NULL,
                  MICS_RUN_DEVICE_CUDA, MICS_RUN_PRECISION_TF32, "file", "file");
    check_settled(RUN_ON("", ", \"bf16\": {\"enabled\": true}"), NULL, MICS_RUN_DEVICE_CUDA,
                  MICS_RUN_PRECISION_BF16, "auto: a GPU was found", "auto: bf16.enabled");
    check_settled(RUN_ON("", ", \"bf16\": {\"enabled\": \"auto\"}, \"fp16\": {\"enabled\": true}"),
                  NULL, MICS_RUN_DEVICE_CUDA, MICS_RUN_PRECISION_FP16, "auto: a GPU was found",
                  "auto: fp16.enabled");
    check_settled(RUN_ON(", \"precision\": \"bf16\"", ", \"bf16\": {\"enabled\": true}"), NULL,
                  MICS_RUN_DEVICE_CUDA, MICS_RUN_PRECISION_BF16, "auto: a GPU was found", "file");
    check_settled(RUN_ON("", ", \"bf16\": {\"enabled\": false}"), NULL, MICS_RUN_DEVICE_CUDA,
                  MICS_RUN_PRECISION_FP32, "auto: a GPU was found", "auto: bf16.enabled is false");
}

static void test_contradictions(void **state)
{
    (void)state;
    check_refused(RUN_ON("", ", \"bf16\": {\"enabled\": true}, \"fp16\": {\"enabled\": true}"),
                  MICS_ERR_INVALID, "bf16 and fp16 cannot both be enabled");
    check_refused(RUN_ON(", \"precision\": \"fp32\"", ", \"bf16\": {\"enabled\": true}"),
                  MICS_ERR_INVALID, "bf16.enabled: true contradicts run.precision fp32");
    check_refused(RUN_ON(", \"precision\": \"fp16\"", ", \"fp16\": {\"enabled\": false}"),
                  MICS_ERR_INVALID, "fp16.enabled: false contradicts run.precision fp16");
    check_refused(RUN_ON("", ", \"fp16\": {\"initial_scale_power\": 1, \"min_loss_scale\": 4}"),
                  MICS_ERR_INVALID, "fp16.min_loss_scale: 4 is above");
}

static void check_unusable(const char *text, const char *why_not, const char *part)
{
    mics_run *run = load_good(text);
    ASSERT_STATUS(MICS_ERR_UNSUPPORTED, mics_run_resolve_device(run, why_not, NULL));
    ASSERT_SAID(&seen, part);
    mics_run_close(run);
}

static void test_unusable(void **state)
{
    (void)state;
    check_unusable(RUN_ON(", \"device\": \"cuda\"", ""), none,
                   "run.device: \"cuda\": libmics_cuda.so is not there");
    check_unusable(RUN_ON("", ", \"fp16\": {\"enabled\": true}"), none,
                   "fp16.enabled: fp16 is for GPUs; on the cpu device fp32 and bf16 work: --set "
                   "fp16.enabled=false. No GPU can be used: libmics_cuda.so is not there");
    check_unusable(RUN_ON(", \"device\": \"cpu\", \"precision\": \"tf32\"", ""), NULL,
                   "run.precision: tf32 is for GPUs; on the cpu device fp32 and bf16 work: --set "
                   "run.precision=fp32");
}

// bf16 on CPUs that are fast in it, in whatever words; else fp32, which explain and the resolved run
// say. The same run elsewhere is in bf16 again.
static void test_bf16_on_cpu(void **state)
{
    (void)state;
    static const struct {
        const char *run, *more, *origin;
    } words[] = {{", \"precision\": \"bf16\"", "", "file"},
                 {"", ", \"bf16\": {\"enabled\": true}", "auto: bf16.enabled"}};
    for (int i = 0; i < 2; i++) {
        char text[512];
        snprintf(text, sizeof text, RUN_ON("%s", "%s"), words[i].run, words[i].more);
        mics_run *run = load_good(text);
        assert_false(run->precision_auto);
        ASSERT_OK(mics_run_resolve_device(run, none, slow));
        assert_true(run->fell_back);
        check_row(run, "run.precision", "\"fp32\"", "auto: fp32, as this CPU is slow in bf16");
        ASSERT_OK(mics_run_resolve_device(run, none, NULL));
        assert_false(run->fell_back);
        check_row(run, "run.precision", "\"bf16\"", words[i].origin);
        ASSERT_OK(mics_run_resolve_device(run, NULL, slow)); // a GPU
        assert_int_equal(run->precision, MICS_RUN_PRECISION_BF16);
        mics_run_close(run);
    }
    mics_run *run = load_good(RUN_ON("", ""));
    assert_true(run->precision_auto);
    ASSERT_OK(mics_run_resolve_device(run, none, slow));
    assert_false(run->fell_back);
    mics_run_close(run);
}

// The second hop follows the precision of a run on CPUs, unless the file says what it is.
static void test_boundary(void **state)
{
    (void)state;
    static const char bf16[] = ", \"precision\": \"bf16\"";
    static const struct {
        const char *more, *why_not, *value, *origin;
        int32_t nodes; // of 4 ranks
    } cases[] = {
        {bf16, none, "bf16", "auto: bf16 as run.precision", 2},
        {bf16, NULL, "fp32", "auto: fp32", 2},
        {"", none, "fp32", "auto: fp32", 2},
        {", \"precision\": \"bf16\", \"comm_dtype\": {\"boundary\": \"fp32\"}", none, "fp32",
         "file", 2},
        {", \"precision\": \"bf16\", \"comm_dtype\": {\"boundary\": \"int8\"}", none, "int8",
         "file", 2},
        {", \"precision\": \"bf16\", \"comm_dtype\": {\"boundary\": \"auto\"}", none, "bf16",
         "auto: bf16 as run.precision", 2},
        {", \"precision\": \"bf16\", \"collectives\": \"ring\"", none, "fp32",
         "auto: fp32 in one ring", 2},
        {", \"precision\": \"bf16\", \"collectives\": \"ring\"", none, "bf16",
         "auto: bf16 as run.precision", 4},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char text[512], value[16];
        snprintf(text, sizeof text,
                 "{\"model\": {\"config\": \"model.json\"}, \"data\": {\"train\": \"a\"}, "
                 "\"train_batch_size\": 4, \"run\": {\"steps\": 1%s}}",
                 cases[i].more);
        snprintf(value, sizeof value, "\"%s\"", cases[i].value);
        mics_run *run = load_good(text);
        for (int again = 0; again < 2; again++) {
            ASSERT_OK(mics_run_resolve_device(run, cases[i].why_not, NULL));
            ASSERT_OK(mics_run_resolve(run, 4, cases[i].nodes));
            check_row(run, "run.comm_dtype.boundary", value, cases[i].origin);
            assert_string_equal(mics_comm_dtype_text(run->boundary_dtype.inter), cases[i].value);
            assert_int_equal(run->boundary_dtype.intra, MICS_COMM_FP32);
        }
        mics_run_close(run);
    }
}

static void test_loss_scale(void **state)
{
    (void)state;
    mics_run *run = load_good(RUN_ON("", ""));
    assert_true(run->loss_scale.dynamic);
    assert_true(run->loss_scale.initial == 65536.0);
    assert_true(run->loss_scale.least == 1.0);
    assert_int_equal(run->loss_scale.window, 1000);
    assert_int_equal(run->loss_scale.hysteresis, 2);
    assert_null(find_row(run, "fp16.hysteresis").key); // no say in this run
    mics_run_close(run);
    run = load_good(RUN_ON("", ", \"fp16\": {\"enabled\": true, \"loss_scale\": 128, "
                               "\"hysteresis\": 1, \"loss_scale_window\": 50}"));
    assert_false(run->loss_scale.dynamic);
    assert_true(run->loss_scale.initial == 128.0);
    assert_int_equal(run->loss_scale.window, 50);
    assert_int_equal(run->loss_scale.hysteresis, 1);
    check_row(run, "fp16.loss_scale", "128", "file");
    check_row(run, "fp16.min_loss_scale", "1", "default");
    mics_run_close(run);
}

static void check_attention(const char *more, const char *device_why_not, const char *version,
                            const char *why_not, const char *value, const char *origin)
{
    char text[512];
    snprintf(text, sizeof text,
             "{\"model\": {\"config\": \"model.json\"}, \"data\": {\"train\": \"a\"}, "
             "\"train_batch_size\": 1, \"run\": {\"steps\": 1%s}}",
             more);
    mics_run *run = load_good(text);
    ASSERT_OK(mics_run_resolve_device(run, device_why_not, NULL));
    for (int again = 0; again < 2; again++) {
        const mics_status status = mics_run_resolve_attention(run, version, why_not);
        if (value == NULL) {
            assert_int_equal(status, MICS_ERR_UNSUPPORTED);
            ASSERT_SAID(&seen, origin);
            break;
        }
        ASSERT_OK(status);
        check_row(run, "run.attention", value, origin);
        assert_string_equal(
            run->cudnn, run->attention == MICS_RUN_ATTENTION_CUDNN && version ? version : "any");
    }
    mics_run_close(run);
}

static void test_attention(void **state)
{
    (void)state;
    static const char old[] = "it is of version 9.1.0", v[] = "9.19.0";
    check_attention("", NULL, v, NULL, "\"own\"", "default");
    check_attention("", NULL, v, old, "\"own\"", "default");
    check_attention(", \"attention\": \"cudnn\"", NULL, v, NULL, "\"cudnn\"", "file");
    check_attention(", \"attention\": \"cudnn\"", NULL, NULL, NULL, "\"cudnn\"", "file");
    check_attention(", \"attention\": \"auto\"", NULL, v, NULL, "\"cudnn\"",
                    "auto: cuDNN was found");
    check_attention(", \"attention\": \"auto\"", NULL, v, old, "\"own\"",
                    "auto: cuDNN cannot be used");
    check_attention(", \"attention\": \"auto\"", none, v, NULL, "\"own\"", "auto: own on cpu");
    check_attention(", \"attention\": \"cudnn\", \"cudnn_version\": \"9.19.0\"", NULL, v, NULL,
                    "\"cudnn\"", "file");
    check_attention(", \"attention\": \"cudnn\"", NULL, v, old, NULL,
                    "run.attention: \"cudnn\": it is of version 9.1.0; \"own\" works");
    check_attention(", \"attention\": \"cudnn\"", none, v, NULL, NULL,
                    "run.attention: \"cudnn\": it is for GPUs; \"own\" works");
    check_attention(", \"attention\": \"cudnn\", \"cudnn_version\": \"9.20.0\"", NULL, v, NULL,
                    NULL, "run.cudnn_version: 9.20.0 is not what was found, 9.19.0");
}

// A run that goes on keeps the choice, and takes the cuDNN that is found.
static void test_kept_attention(void **state)
{
    (void)state;
    static const char stored[] =
        "{\"run\": {\"attention\": \"cudnn\", \"cudnn_version\": \"9.18.1\"}}";
    mics_run *run = load_good(RUN_ON("", ""));
    assert_int_equal(run->kept_attention, MICS_RUN_ATTENTION_AUTO);
    ASSERT_OK(mics_run_keep(run, "stored", stored));
    assert_int_equal(run->kept_attention, MICS_RUN_ATTENTION_CUDNN);
    assert_string_equal(run->kept_cudnn, "9.18.1");
    ASSERT_OK(mics_run_resolve_device(run, NULL, NULL));
    ASSERT_OK(mics_run_resolve_attention(run, "9.19.0", NULL));
    check_row(run, "run.attention", "\"cudnn\"", "checkpoint");
    check_row(run, "run.cudnn_version", "\"9.19.0\"", "auto: what was found");
    mics_run_close(run);
    run = load_good(RUN_ON(", \"attention\": \"own\"", ""));
    ASSERT_OK(mics_run_keep(run, "stored", stored));
    ASSERT_OK(mics_run_resolve_device(run, NULL, NULL));
    ASSERT_OK(mics_run_resolve_attention(run, "9.19.0", NULL));
    check_row(run, "run.attention", "\"own\"", "file");
    assert_int_equal(run->kept_attention, MICS_RUN_ATTENTION_CUDNN);
    mics_run_close(run);
    run = load_good(RUN_ON("", "")); // of before there was the key
    ASSERT_OK(mics_run_keep(run, "stored", "{}"));
    assert_int_equal(run->kept_attention, MICS_RUN_ATTENTION_OWN);
    mics_run_close(run);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_auto, setup, teardown),
        cmocka_unit_test_setup_teardown(test_attention, setup, teardown),
        cmocka_unit_test_setup_teardown(test_kept_attention, setup, teardown),
        cmocka_unit_test_setup_teardown(test_said, setup, teardown),
        cmocka_unit_test_setup_teardown(test_sums, setup, teardown),
        cmocka_unit_test_setup_teardown(test_contradictions, setup, teardown),
        cmocka_unit_test_setup_teardown(test_unusable, setup, teardown),
        cmocka_unit_test_setup_teardown(test_bf16_on_cpu, setup, teardown),
        cmocka_unit_test_setup_teardown(test_boundary, setup, teardown),
        cmocka_unit_test_setup_teardown(test_loss_scale, setup, teardown),
    };
    return cmocka_run_group_tests(tests, group_setup, group_teardown);
}
