// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Ranks that share sequences: every number of them has the losses and norms of one rank on the same
// data, and in every step all that fixture.h checks, bytes and memory among it.
#include "fixture.h"
#include "mics/builder.h"
#include <math.h>

enum { SEQUENCES = 16, STEPS = FIXTURE_STEPS_RUN < 4 ? FIXTURE_STEPS_RUN : 4 };

static fixture_run run_of(const fixture_case *like, int32_t ranks, int32_t sequence)
{
    fixture_run run = {.want = *like};
    run.want.ranks = ranks;
    run.want.sequence = sequence;
    run.want.nodes = run.want.nodes > 0 && ranks / sequence > 1 ? 2 : 1;
    run.want.sequences = run.want.sequences > 0 ? run.want.sequences : SEQUENCES;
    run.want.steps = STEPS;
    if (ranks == 1) {
        run.want.sharding = (mics_sharding){1, 1, 1};
        run.want.experts = 0;
        run.want.share_params = false;
    }
    fixture_go(&run);
    return run;
}

static void check_close(const fixture_run *run, const char *what, double got, double expected,
                        double tolerance)
{
    if (!(fabs(got - expected) <= tolerance * fabs(expected)))
        fail_msg("%d ranks, S = %d, %d|%d|%d: %s is %.9g, one rank has %.9g", (int)run->want.ranks,
                 (int)run->want.sequence, (int)run->want.sharding.params,
                 (int)run->want.sharding.grads, (int)run->want.sharding.optimizer, what, got,
                 expected);
}

static void check_same(const fixture_run *run, const fixture_run *one)
{
    const bool bf16 = run->want.dtype == MICS_DTYPE_BF16;
    for (int step = 0; step < STEPS; step++) {
        check_close(run, "a loss", run->losses[step], one->losses[step], bf16 ? 2e-3 : 1e-6);
        check_close(run, "a norm", run->norms[step], one->norms[step], bf16 ? 2e-2 : 1e-5);
    }
    check_close(run, "the loss of an evaluation", run->eval_loss, one->eval_loss,
                bf16 ? 2e-3 : 1e-6);
    for (int sum = 0; sum < MICS_ROUTER_SUMS; sum++)
        check_close(run, "a sum of routers", run->results[0].router_sums[sum],
                    one->results[0].router_sums[sum], bf16 ? 2e-2 : 2e-6);
}

// 2, 4 and 8 ranks, of which 2 and 4 share sequences, with shardings that S divides and that divide S.
static void check_family(fixture_case want, int32_t most)
{
    static const mics_sharding shardings[] = {{1, 1, 1}, {2, 2, 2}, {1, 2, 4}, {4, 4, 4}};
    want.micro_steps = want.micro_steps > 0 ? want.micro_steps : 2;
    const fixture_run one = run_of(&want, 1, 1);
    int32_t cases = 0;
    for (int32_t ranks = 2; ranks <= 8; ranks *= 2)
        for (int32_t sequence = 2; sequence <= most && sequence <= ranks; sequence *= 2) {
            fixture_case of = want;
            do
                of.sharding = shardings[cases++ % 4];
            while (of.sharding.optimizer > ranks || (of.experts > 0 && of.sharding.params == 1));
            of.nodes = cases % 2;
            of.prefetch = cases % 3;
            of.layered_micro_steps = cases % 3 == 0 ? 2 : 0;
            of.hierarchical = true;
            const fixture_run run = run_of(&of, ranks, sequence);
            check_same(&run, &one);
        }
}

static const char gpt2[] =
    "{\"model_type\": \"gpt2\", \"n_layer\": 2, \"n_head\": 4, \"n_embd\": 12, "
    "\"n_positions\": 19, \"vocab_size\": 29, \"tie_word_embeddings\": %s, \"embd_pdrop\": 0.1, "
    "\"attn_pdrop\": 0.2, \"resid_pdrop\": 0.15}";

static void test_gpt2(void **state)
{
    (void)state;
    check_family((fixture_case){.config = gpt2}, 4);
}

// Heads that several ranks read; with bits that no mask shows.
static void test_llama(void **state)
{
    (void)state;
    check_family((fixture_case){.config = fixture_llama_dropout}, 4);
}

// What attention keeps of whole sequences goes to host memory, or is made again, without an all-to-all
// where its layer is not recomputed whole.
static void test_offload(void **state)
{
    (void)state;
    static const char deep[] =
        "{\"model_type\": \"llama\", \"num_hidden_layers\": 5, \"num_attention_heads\": 4, "
        "\"num_key_value_heads\": 2, \"hidden_size\": 16, \"intermediate_size\": 20, "
        "\"max_position_embeddings\": 19, \"vocab_size\": 29, \"attention_dropout\": 0.2, "
        "\"tie_word_embeddings\": %s}";
    check_family((fixture_case){.config = deep, .offload_units = 2}, 4);
    const mics_recompute parts = {.units = 2, .last = true, .attention = true, .mlp = true};
    check_family((fixture_case){.config = deep, .offload_units = 2, .parts = parts}, 4);
}

// A rank's query heads begin amid those of a key-value head.
static void test_uneven(void **state)
{
    (void)state;
    static const char uneven[] =
        "{\"model_type\": \"qwen3\", \"num_hidden_layers\": 2, \"num_attention_heads\": 12, "
        "\"num_key_value_heads\": 6, \"head_dim\": 4, \"hidden_size\": 12, "
        "\"intermediate_size\": 20, \"max_position_embeddings\": 19, \"vocab_size\": 29, "
        "\"tie_word_embeddings\": %s}";
    check_family(
        (fixture_case){.config = uneven, .recompute = true, .threads = 2, .share_params = true}, 4);
}

// A window that ends in another rank's tokens, and micro-batches of one sequence.
static void test_window(void **state)
{
    (void)state;
    fixture_case want = {.config = fixture_decoder, .sequences = 16, .micro_steps = 4};
    check_family(want, 2);
}

static void test_segments(void **state)
{
    (void)state;
    check_family((fixture_case){.config = gpt2, .masked = true, .restarts = true}, 4);
    check_family((fixture_case){.config = fixture_llama_dropout, .masked = true, .both_ways = true},
                 4);
}

static void test_encoder(void **state)
{
    (void)state;
    static const char bert[] =
        "{\"model_type\": \"bert\", \"architectures\": [\"BertForMaskedLM\"], "
        "\"num_hidden_layers\": 2, \"num_attention_heads\": 4, \"hidden_size\": 12, "
        "\"intermediate_size\": 20, \"max_position_embeddings\": 19, \"vocab_size\": 29, "
        "\"hidden_dropout_prob\": 0.1, \"attention_probs_dropout_prob\": 0.1}";
    check_family((fixture_case){.config = bert, .masked = true}, 4);
}

static const char mixtral[] =
    "{\"model_type\": \"mixtral\", \"num_hidden_layers\": 2, \"num_attention_heads\": 4, "
    "\"num_key_value_heads\": 2, \"hidden_size\": 16, \"intermediate_size\": 10, "
    "\"num_local_experts\": 4, \"num_experts_per_tok\": 2, \"output_router_logits\": true, "
    "\"router_jitter_noise\": 0.1, \"max_position_embeddings\": 19, \"vocab_size\": 29, "
    "\"tie_word_embeddings\": %s}";

static void test_mixture(void **state)
{
    (void)state;
    check_family((fixture_case){.config = mixtral}, 4);
    check_family((fixture_case){.config = mixtral, .masked = true}, 4);
    check_family((fixture_case){.config = mixtral, .experts = 2, .recompute = true}, 4);
    const mics_recompute parts = {.attention = true, .mlp = true};
    check_family((fixture_case){.config = mixtral, .masked = true, .parts = parts}, 4);
}

static void test_bf16(void **state)
{
    (void)state;
    check_family((fixture_case){.config = fixture_llama_dropout, .dtype = MICS_DTYPE_BF16}, 4);
    check_family((fixture_case){.config = mixtral, .dtype = MICS_DTYPE_BF16, .wide_residual = true},
                 4);
}

static void test_adapters(void **state)
{
    (void)state;
    static const char *const targets[] = {"q_proj", "v_proj", "down_proj"};
    const mics_lora_spec lora = {
        .rank = 2, .alpha = 4, .dropout = 0.1, .targets = targets, .target_count = 3};
    check_family((fixture_case){.config = fixture_llama_dropout, .lora = &lora}, 4);
    check_family((fixture_case){.config = fixture_llama_dropout, .trainable = "*layers.1.*"}, 4);
}

// ---- logits ----

enum { VOCAB = 29 };

typedef struct logits_run {
    fixture_run run;
    float rows[SEQUENCES][FIXTURE_LENGTH][VOCAB];
} logits_run;

static mics_status read_logits(logits_run *of, mics_engine *engine, int32_t rank)
{
    const mics_batch *batch = &of->run.schedule->spec.batch;
    fixture_source source = {.run = &of->run, .rank = rank, .step = 1};
    const mics_batch_source read = {
        .read = fixture_read, .read_segments = fixture_read_segments, .ctx = &source};
    mics_step_result result;
    MICS_TRY(mics_engine_init_random(engine, 1));
    MICS_TRY(mics_engine_eval(engine, &read, &result));
    for (int64_t b = 0; b < batch->sequences; b++)
        for (int64_t t = 0; t < batch->length; t++)
            MICS_TRY(mics_engine_logits(
                engine, b * batch->length + t, 1,
                of->rows[fixture_sample(&source, 0, b)][fixture_position(&source) + t]));
    return mics_engine_agree(engine, MICS_OK);
}

static mics_status logits_rank(ranks_self *self)
{
    logits_run *of = (logits_run *)self->arg;
    mics_engine *engine = NULL;
    MICS_TRY(fixture_count(self, &of->run));
    MICS_TRY(fixture_open_engine(self, &of->run, &engine));
    const mics_status status = read_logits(of, engine, self->comm->rank);
    if (status != MICS_OK)
        mics_comm_abort(self->comm, NULL);
    mics_engine_close(engine);
    return status;
}

static void find_logits(logits_run *of, fixture_case want, int32_t ranks, int32_t sequence)
{
    mics_memory *memory = NULL;
    want.ranks = ranks;
    want.sequence = sequence;
    want.nodes = want.micro_steps = 1;
    want.sharding = (mics_sharding){1, 1, ranks};
    want.sequences = SEQUENCES;
    of->run = (fixture_run){.want = want};
    assert_int_equal(mics_memory_open(&memory), MICS_OK);
    fixture_open(memory, &of->run);
    ranks_run_ok(ranks, logits_rank, of);
    fixture_close(&of->run);
    assert_int_equal(mics_memory_close(memory), 0);
}

// Whatever is computed row by row has the same bits. Of several rows at a time that holds for our own
// GEMMs; a library's may add in another order where there are fewer.
static void check_logits(const fixture_case *want)
{
    static logits_run one, many;
    find_logits(&one, *want, 1, 1);
    for (int32_t sequence = 2; sequence <= 4; sequence *= 2)
        for (int32_t ranks = sequence; ranks <= 4; ranks *= 2) {
            find_logits(&many, *want, ranks, sequence);
            const float *a = &one.rows[0][0][0], *b = &many.rows[0][0][0];
            int64_t different = 0;
            for (size_t i = 0; i < sizeof one.rows / sizeof *a; i++) {
                assert_true(fabsf(a[i] - b[i]) <= 1e-6F * fmaxf(1, fabsf(a[i])));
                different += a[i] != b[i];
            }
            assert_true(want->dtype == MICS_DTYPE_FP32 || different == 0);
        }
}

static void test_logits(void **state)
{
    (void)state;
    check_logits(&(fixture_case){.config = gpt2, .masked = true});
    check_logits(&(fixture_case){.config = fixture_llama_dropout});
    check_logits(&(fixture_case){.config = mixtral, .masked = true});
    check_logits(&(fixture_case){.config = fixture_llama_dropout, .dtype = MICS_DTYPE_BF16});
    check_logits(&(fixture_case){.config = mixtral, .dtype = MICS_DTYPE_BF16});
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gpt2),    cmocka_unit_test(test_llama),
        cmocka_unit_test(test_uneven),  cmocka_unit_test(test_offload),
        cmocka_unit_test(test_window),  cmocka_unit_test(test_segments),
        cmocka_unit_test(test_encoder), cmocka_unit_test(test_mixture),
        cmocka_unit_test(test_bf16),    cmocka_unit_test(test_adapters),
        cmocka_unit_test(test_logits)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
