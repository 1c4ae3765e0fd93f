// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// The decoder against transformers' logits: token by token, prompts at once, several sequences,
// bf16, any number of threads; and what it refuses.
#include "base/capture.h"
#include "golden.h"
#include "mics/core/engine.h"
#include "ops/kernels.h"
#include <math.h>

static const double logit_tolerance = 1e-4;

static const char *const folders[] = {"gpt2",
                                      "gpt2_untied",
                                      "gpt2_hub",
                                      "gpt2_gelu",
                                      "gpt2_relu",
                                      "gpt2_silu",
                                      "llama_grouped",
                                      "llama_single",
                                      "llama_yarn",
                                      "mistral_full",
                                      "qwen2_layers",
                                      "qwen2_single",
                                      "mistral_window",
                                      "qwen3_grouped",
                                      "qwen3_single",
                                      "gpt_neox_parallel",
                                      "gpt_neox_serial",
                                      "mixtral_small",
                                      "mixtral_balanced",
                                      "qwen3_moe_layers",
                                      "qwen3_moe_normalised",
                                      "qwen2_moe_shared"};

enum { FOLDERS = sizeof folders / sizeof folders[0], MAX_UNITS = 8 };

// A folder's model with its parameters in one dtype.
typedef struct subject {
    golden g;
    void *params[MAX_UNITS];
    mics_dtype dtype;
} subject;

static void place_param(const subject *s, const mics_unit *unit, int32_t p, void *params)
{
    const mics_param *param = &unit->params[p];
    void *at = (char *)params + mics_decoder_place(unit, p, s->dtype);
    float *weights = golden_weights(&s->g, param);
    if (s->dtype == MICS_DTYPE_BF16 && param->dims > 1)
        mics_kernels_get(NULL)->pack_bf16(at, weights, param->elems);
    else
        memcpy(at, weights, (size_t)param->elems * sizeof *weights);
    free(weights);
}

static void subject_open(subject *s, const char *folder, mics_dtype dtype)
{
    *s = (subject){.dtype = dtype};
    golden_open(&s->g, folder);
    assert_true(s->g.model->unit_count <= MAX_UNITS);
    for (int32_t u = 0; u < s->g.model->unit_count; u++) {
        const mics_unit *unit = &s->g.model->units[u];
        s->params[u] = calloc(1, mics_decoder_place(unit, unit->param_count, dtype));
        assert_non_null(s->params[u]);
        for (int32_t p = 0; p < unit->param_count; p++)
            place_param(s, unit, p, s->params[u]);
    }
}

static void subject_close(subject *s)
{
    for (int32_t u = 0; u < s->g.model->unit_count; u++)
        free(s->params[u]);
    golden_close(&s->g);
}

// Rounds what is of two dimensions to bf16, and keeps it in fp32.
static void round_params(const subject *s)
{
    const mics_kernels *k = mics_kernels_get(NULL);
    for (int32_t u = 0; u < s->g.model->unit_count; u++) {
        const mics_unit *unit = &s->g.model->units[u];
        for (int32_t p = 0; p < unit->param_count; p++) {
            float *values = (float *)s->params[u] + unit->params[p].offset;
            const int64_t elems = unit->params[p].elems;
            uint16_t *packed = calloc((size_t)elems, sizeof *packed);
            assert_non_null(packed);
            if (unit->params[p].dims > 1) {
                k->pack_bf16(packed, values, elems);
                k->unpack_bf16(values, packed, elems);
            }
            free(packed);
        }
    }
}

static mics_decoder *open_decoder(const subject *s, const mics_kernels *kernels, int64_t sequences,
                                  int32_t threads)
{
    mics_decoder *decoder = NULL;
    const mics_decoder_spec spec = {.model = s->g.model,
                                    .params = (const void *const *)s->params,
                                    .dtype = s->dtype,
                                    .kernels = kernels,
                                    .sequences = sequences,
                                    .capacity = s->g.length,
                                    .threads = threads};
    ASSERT_OK(mics_decoder_open(s->g.memory, &spec, &decoder));
    return decoder;
}

static const float *feed(mics_decoder *decoder, mics_decoder_feed_spec spec)
{
    const float *logits = NULL;
    ASSERT_OK(mics_decoder_feed(decoder, &spec, &logits));
    return logits;
}

// How the sequences of a golden batch are fed.
typedef enum way {
    BY_TOKEN, // one sequence after the other
    AT_ONCE,  // up to each token anew
    HALVES,   // half of the tokens before, then the others
    TOGETHER, // a token of each
    WAYS
} way;

// Logits after token t of all sequences, (B, V).
static void logits_of(const subject *s, mics_decoder *decoder, way by, int64_t t, float *logits_out)
{
    const int64_t B = s->g.sequences, T = s->g.length, V = s->g.model->vocab;
    int32_t newest[8];
    for (int64_t b = 0; b < B; b++) {
        const int32_t *tokens = s->g.inputs + b * T;
        const float *logits = NULL;
        newest[b] = tokens[t];
        if (by == BY_TOKEN)
            logits = feed(decoder, (mics_decoder_feed_spec){tokens + t, b, 1, 1, t});
        if (by == HALVES && t > 0)
            feed(decoder, (mics_decoder_feed_spec){tokens, b, 1, (t + 1) / 2, 0});
        if (by == HALVES)
            logits = feed(decoder, (mics_decoder_feed_spec){tokens + (t + 1) / 2, b, 1,
                                                            t + 1 - (t + 1) / 2, (t + 1) / 2});
        if (by == AT_ONCE)
            logits = feed(decoder, (mics_decoder_feed_spec){tokens, b, 1, t + 1, 0});
        if (logits != NULL)
            memcpy(logits_out + b * V, logits, (size_t)V * sizeof *logits);
    }
    if (by == TOGETHER)
        memcpy(logits_out, feed(decoder, (mics_decoder_feed_spec){newest, 0, B, 1, t}),
               (size_t)(B * V) * sizeof *logits_out);
}

// From one token whose logits are looked at to the next: what feeds many tokens for them, less.
static int64_t stride_of(way by)
{
    return by == AT_ONCE || by == HALVES ? 5 : 1;
}

// Logits of a batch, (T, B, V); those that are not looked at are 0. The caller frees them.
static float *all_logits(const subject *s, const mics_kernels *kernels, way by, int32_t threads)
{
    const int64_t row = s->g.sequences * s->g.model->vocab;
    mics_decoder *decoder = open_decoder(s, kernels, s->g.sequences, threads);
    float *logits = calloc((size_t)(s->g.length * row), sizeof *logits);
    assert_non_null(logits);
    assert_true(s->g.sequences <= 8);
    for (int64_t t = 0; t < s->g.length; t += stride_of(by))
        logits_of(s, decoder, by, t, logits + t * row);
    mics_decoder_close(decoder);
    return logits;
}

static size_t logits_bytes(const subject *s)
{
    return (size_t)(s->g.length * s->g.sequences * s->g.model->vocab) * sizeof(float);
}

static void check_near(const subject *s, const float *logits, way by, const char *what)
{
    const int64_t B = s->g.sequences, T = s->g.length, V = s->g.model->vocab;
    float *expected = golden_read(s->g.expected, "logits"); // (B, T, V)
    for (int64_t t = 0; t < T; t += stride_of(by)) {
        for (int64_t i = 0; i < B * V; i++) {
            const float want = expected[(i / V * T + t) * V + i % V];
            const double off = fabs((double)logits[t * B * V + i] - (double)want);
            if (!(off <= logit_tolerance))
                fail_msg("%s: token %d, logit %d is off by %g", what, (int)t, (int)i, off);
        }
    }
    free(expected);
}

// ---- tests ----

static void test_logits(void **state)
{
    (void)state;
    for (int f = 0; f < FOLDERS; f++) {
        subject s;
        subject_open(&s, folders[f], MICS_DTYPE_FP32);
        for (int32_t k = 0; k < mics_kernels_count(); k++) {
            for (int by = 0; mics_kernels_at(k) != NULL && by < WAYS; by++) {
                float *logits = all_logits(&s, mics_kernels_at(k), (way)by, 1);
                check_near(&s, logits, (way)by, folders[f]);
                free(logits);
            }
        }
        subject_close(&s);
    }
}

// Neither threads nor the other sequences of a step change a bit.
static void test_same_bits(void **state)
{
    (void)state;
    for (int f = 0; f < FOLDERS; f += 3) {
        for (int dtype = MICS_DTYPE_FP32; dtype <= MICS_DTYPE_BF16; dtype++) {
            subject s;
            subject_open(&s, folders[f], (mics_dtype)dtype);
            for (int by = 0; by < WAYS; by++) {
                float *one = all_logits(&s, NULL, (way)by, 1);
                float *three = all_logits(&s, NULL, by == TOGETHER ? BY_TOKEN : (way)by, 3);
                assert_memory_equal(one, three, logits_bytes(&s));
                free(one);
                free(three);
            }
            subject_close(&s);
        }
    }
}

// Weights of bf16 give what the same numbers give in fp32: to the bit where one token is fed, and
// nearly so where the matrix library multiplies.
static void test_bf16(void **state)
{
    (void)state;
    for (int f = 0; f < FOLDERS; f++) {
        subject half, whole;
        subject_open(&half, folders[f], MICS_DTYPE_BF16);
        subject_open(&whole, folders[f], MICS_DTYPE_FP32);
        round_params(&whole);
        for (int by = 0; by < WAYS; by++) {
            float *have = all_logits(&half, NULL, (way)by, 1);
            float *want = all_logits(&whole, NULL, (way)by, 1);
            const int64_t elems = (int64_t)(logits_bytes(&half) / sizeof(float));
            for (int64_t i = 0; i < elems; i++) {
                const double off = fabs((double)have[i] - (double)want[i]);
                if (!(off <= (by == BY_TOKEN || by == TOGETHER ? 0 : logit_tolerance)))
                    fail_msg("%s: logit %d is off by %g", folders[f], (int)i, off);
            }
            free(have);
            free(want);
        }
        subject_close(&half);
        subject_close(&whole);
    }
}

// In fp32 parameters lie as they do in a flat buffer.
static void test_place(void **state)
{
    (void)state;
    golden g;
    golden_open(&g, "llama_grouped");
    for (int32_t u = 0; u < g.model->unit_count; u++) {
        const mics_unit *unit = &g.model->units[u];
        for (int32_t p = 0; p < unit->param_count; p++)
            assert_int_equal(mics_decoder_place(unit, p, MICS_DTYPE_FP32),
                             (size_t)unit->params[p].offset * sizeof(float));
        assert_int_equal(mics_decoder_place(unit, unit->param_count, MICS_DTYPE_FP32),
                         (size_t)unit->elems * sizeof(float));
    }
    golden_close(&g);
}

// Sequences that go on from one prompt.
static void test_spread(void **state)
{
    (void)state;
    subject s;
    subject_open(&s, "qwen3_grouped", MICS_DTYPE_FP32);
    const int64_t V = s.g.model->vocab;
    const int32_t *tokens = s.g.inputs;
    mics_decoder *one = open_decoder(&s, NULL, 1, 1), *three = open_decoder(&s, NULL, 3, 1);
    feed(one, (mics_decoder_feed_spec){tokens, 0, 1, 4, 0});
    feed(three, (mics_decoder_feed_spec){tokens, 0, 1, 4, 0});
    mics_decoder_spread(three, 4);
    const int32_t next[] = {1, 2, 3};
    const float *all = feed(three, (mics_decoder_feed_spec){next, 0, 3, 1, 4});
    for (int i = 0; i < 3; i++) {
        const float *alone = feed(one, (mics_decoder_feed_spec){next + i, 0, 1, 1, 4});
        assert_memory_equal(alone, all + i * V, (size_t)V * sizeof *alone);
    }
    mics_decoder_close(one);
    mics_decoder_close(three);
    subject_close(&s);
}

static void test_refusals(void **state)
{
    (void)state;
    subject s;
    subject_open(&s, "gpt2", MICS_DTYPE_FP32);
    mics_decoder *decoder = NULL;
    capture seen;
    capture_begin(&seen);
    mics_decoder_spec spec = {
        .model = s.g.model, .params = (const void *const *)s.params, .sequences = 2, .threads = 1};
    const int64_t capacities[] = {0, 25};
    for (int i = 0; i < 2; i++) {
        spec.capacity = capacities[i];
        ASSERT_STATUS(MICS_ERR_INVALID, mics_decoder_open(s.g.memory, &spec, &decoder));
    }
    spec.capacity = 3;
    spec.sequences = INT64_MAX / 4;
    ASSERT_STATUS(MICS_ERR_INVALID, mics_decoder_open(s.g.memory, &spec, &decoder));
    spec.sequences = 2;
    ASSERT_OK(mics_decoder_open(s.g.memory, &spec, &decoder));
    const int32_t tokens[] = {0, 100, 1, 2, 101, -1};
    const mics_decoder_feed_spec bad[] = {
        {tokens + 4, 0, 1, 1, 0}, {tokens + 5, 0, 1, 1, 0},                       // no such token
        {tokens, 0, 1, 2, 2},     {tokens, 0, 1, 1, -1},    {tokens, 0, 1, 0, 0}, // no place
        {tokens, 1, 2, 1, 0},     {tokens, -1, 1, 1, 0},    {tokens, 0, 0, 1, 0}, // no sequence
        {tokens, 0, 2, 2, 0},                                                     // both
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        const float *logits = NULL;
        const mics_status status = mics_decoder_feed(decoder, &bad[i], &logits);
        ASSERT_STATUS(MICS_ERR_INVALID, status);
    }
    assert_int_equal(seen.errors, 3 + 9);
    capture_end();
    feed(decoder, (mics_decoder_feed_spec){tokens, 0, 1, 2, 1});
    mics_decoder_close(decoder);
    subject_close(&s);
}

// What sees later tokens would be fed without them.
static void test_encoders(void **state)
{
    (void)state;
    subject s;
    mics_decoder *decoder = NULL;
    capture seen;
    subject_open(&s, "bert_tanh", MICS_DTYPE_FP32);
    capture_begin(&seen);
    const mics_decoder_spec spec = {.model = s.g.model,
                                    .params = (const void *const *)s.params,
                                    .sequences = 1,
                                    .capacity = 3,
                                    .threads = 1};
    ASSERT_STATUS(MICS_ERR_UNSUPPORTED, mics_decoder_open(s.g.memory, &spec, &decoder));
    assert_null(decoder);
    assert_int_equal(seen.errors, 1);
    capture_end();
    subject_close(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_logits),   cmocka_unit_test(test_same_bits),
        cmocka_unit_test(test_bf16),     cmocka_unit_test(test_place),
        cmocka_unit_test(test_spread),   cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_encoders),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
