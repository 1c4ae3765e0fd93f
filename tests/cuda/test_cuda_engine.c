// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// The engine on a GPU, ranks as threads: every sharding of a small GPT-2 against one rank on the
// CPU, in fp32, bf16 and fp16; the same bits from run to run; skipped steps; a kernel that fails.
// In every step fixture.h checks that replicas have the same bits, and bytes and memory are as the
// schedule says.
//
// Emulated, a stream runs only what somebody waits for, the rest by chance: a step that does not
// wait for what it needs gives other losses than the CPU's.
#include "../engine/flips.h"
#include "gpu.h"
#include "mics/core/dtype.h"
#include "nccl_rings.h"
#include "ops/kernels.h"
#include <math.h>

static fixture_case on_gpu(mics_dtype dtype)
{
    return (fixture_case){.ranks = 1,
                          .nodes = 1,
                          .sharding = {1, 1, 1},
                          .sequences = 8,
                          .micro_steps = 2,
                          .steps = 2,
                          .prefetch = 1,
                          .clip = 0.5f,
                          .open_device = staged_open,
                          .kernels = mics_kernels_cuda(),
                          .dtype = dtype};
}

static fixture_run on_cpu(const fixture_case *like)
{
    fixture_run run = {.want = *like};
    run.want.ranks = run.want.nodes = 1;
    run.want.sharding = (mics_sharding){1, 1, 1};
    run.want.open_device = NULL;
    run.want.kernels = NULL;
    run.want.dtype = MICS_DTYPE_FP32;
    fixture_go(&run);
    return run;
}

static void check_losses(const fixture_run *run, const fixture_run *reference)
{
    static const double tolerances[MICS_DTYPES] = {
        [MICS_DTYPE_FP32] = 1e-5, [MICS_DTYPE_BF16] = 1e-2, [MICS_DTYPE_FP16] = 2e-3};
    for (int32_t step = 0; step < run->want.steps; step++) {
        const double loss = run->losses[step], expected = reference->losses[step];
        if (!(fabs(loss - expected) <= tolerances[run->want.dtype] * expected))
            fail_msg("%s, %d ranks, %d nodes, %d|%d|%d: step %d: loss %.9g, the CPU has %.9g",
                     mics_dtype_text(run->want.dtype), (int)run->want.ranks, (int)run->want.nodes,
                     (int)run->want.sharding.params, (int)run->want.sharding.grads,
                     (int)run->want.sharding.optimizer, (int)step + 1, loss, expected);
    }
}

static int needs_gpus(int32_t count)
{
    const mics_cuda_findings *found = mics_cuda_find();
    if (found->devices >= count && mics_kernels_cuda() != NULL)
        return 0;
    print_message("skipped: %d GPUs are needed, %d are there: %s\n", (int)count,
                  (int)found->devices, found->why_not);
    skip();
    return 0;
}

static void test_one_rank(void **state)
{
    (void)state;
    needs_gpus(1);
    const bool slow = FIXTURE_STEPS_RUN < FIXTURE_STEPS;
    for (int dtype = slow ? MICS_DTYPES - 1 : 0; dtype < MICS_DTYPES; dtype++) {
        fixture_run run = {.want = on_gpu((mics_dtype)dtype)};
        const fixture_run reference = on_cpu(&run.want);
        fixture_go(&run);
        check_losses(&run, &reference);
    }
}

// A residual stream in fp32, in both types that it is wider than.
static void test_wide_residual(void **state)
{
    (void)state;
    needs_gpus(1);
    for (int dtype = MICS_DTYPE_BF16; dtype < MICS_DTYPES; dtype++) {
        fixture_run run = {.want = on_gpu((mics_dtype)dtype)};
        run.want.wide_residual = true;
        const fixture_run reference = on_cpu(&run.want);
        fixture_go(&run);
        check_losses(&run, &reference);
    }
}

typedef struct gpu_case {
    int32_t ranks, nodes;
    mics_sharding sharding;
    mics_dtype dtype;
} gpu_case;

static void check_case(const gpu_case *c, bool nccl, const fixture_run *reference)
{
    fixture_run run = {.want = on_gpu(c->dtype)};
    run.want.open_device = nccl ? nccl_open_default : staged_open;
    run.want.ranks = c->ranks;
    run.want.nodes = c->nodes;
    run.want.sharding = c->sharding;
    run.want.hierarchical = true;
    run.want.steps = reference->want.steps;
    run.want.optimizer = reference->want.optimizer;
    fixture_go(&run);
    check_losses(&run, reference);
}

// Sanitizers see what is wrong in the first case or never, and take many times as long.
static size_t cases_of(size_t count)
{
    return FIXTURE_STEPS_RUN < FIXTURE_STEPS ? 1 : count;
}

static fixture_run short_reference(void)
{
    const fixture_case want = on_gpu(MICS_DTYPE_FP32);
    return on_cpu(&want);
}

static void test_shardings_staged(void **state)
{
    (void)state;
    needs_gpus(1);
    static const gpu_case cases[] = {
        {2, 1, {1, 1, 2}, MICS_DTYPE_BF16},
        {2, 1, {1, 2, 2}, MICS_DTYPE_FP32},
        {2, 2, {2, 2, 2}, MICS_DTYPE_FP16},
        {4, 2, {2, 2, 4}, MICS_DTYPE_BF16},
    };
    const fixture_run reference = short_reference();
    for (size_t i = 0; i < cases_of(sizeof cases / sizeof cases[0]); i++)
        check_case(&cases[i], false, &reference);
}

// Rules that are not AdamW's, their states over two ranks, deferred or not.
static void test_optimizers(void **state)
{
    (void)state;
    static const gpu_case cases[] = {{2, 1, {1, 1, 2}, MICS_DTYPE_FP32},
                                     {2, 2, {2, 2, 2}, MICS_DTYPE_BF16},
                                     {4, 2, {2, 2, 2}, MICS_DTYPE_BF16}};
    needs_gpus(4);
    for (int kind = 0; kind < MICS_OPTIMIZER_KINDS; kind++) {
        if (kind == MICS_OPTIMIZER_ADAMW)
            continue;
        fixture_case like = on_gpu(MICS_DTYPE_FP32);
        like.optimizer = fixture_optimizers[kind];
        const fixture_run reference = on_cpu(&like);
        for (size_t i = 0; i < cases_of(3); i++)
            check_case(&cases[i], false, &reference);
    }
}

static void test_shardings_nccl(void **state)
{
    (void)state;
    needs_gpus(4);
    static const gpu_case cases[] = {
        {4, 2, {1, 1, 1}, MICS_DTYPE_BF16},
        {4, 2, {4, 4, 4}, MICS_DTYPE_BF16},
        {4, 2, {2, 2, 2}, MICS_DTYPE_FP32},
    };
    const fixture_run reference = short_reference();
    for (size_t i = 0; i < cases_of(sizeof cases / sizeof cases[0]); i++)
        check_case(&cases[i], true, &reference);
}

// By NCCL too, where it lets ranks share a GPU.
static void test_shardings_on_one_gpu(void **state)
{
    (void)state;
    static const gpu_case cases[] = {
        {2, 1, {1, 1, 2}, MICS_DTYPE_BF16}, {2, 1, {2, 2, 2}, MICS_DTYPE_FP32},
        {2, 2, {1, 2, 2}, MICS_DTYPE_FP16}, {4, 1, {4, 4, 4}, MICS_DTYPE_BF16},
        {4, 2, {1, 1, 1}, MICS_DTYPE_BF16}, {4, 2, {2, 2, 4}, MICS_DTYPE_FP32},
    };
    needs_gpus(1);
    if (mics_cuda_find()->devices > 1 || !gpu_is_shared_by_nccl())
        skip();
    const fixture_run reference = short_reference();
    for (size_t i = 0; i < cases_of(sizeof cases / sizeof cases[0]); i++)
        check_case(&cases[i], true, &reference);
}

// ---- mixtures of experts ----

// Rows of whole vectors and others, weights that are normalised, both losses of the router.
static const char mixture[] =
    "{\"model_type\": \"qwen3_moe\", \"num_hidden_layers\": 2, \"num_attention_heads\": 3, "
    "\"num_key_value_heads\": 1, \"head_dim\": 4, \"hidden_size\": 16, "
    "\"moe_intermediate_size\": 11, \"num_experts\": 5, \"num_experts_per_tok\": 2, "
    "\"norm_topk_prob\": true, \"output_router_logits\": true, "
    "\"router_aux_loss_coef\": 0.02, \"router_z_loss_coef\": 0.01, "
    "\"max_position_embeddings\": 19, \"vocab_size\": 29, \"tie_word_embeddings\": %s}";

// GShard's recipe: a capacity, random second experts, noise; in evaluations another capacity.
static const char gshard[] =
    "{\"model_type\": \"mixtral\", \"num_hidden_layers\": 1, \"num_attention_heads\": 2, "
    "\"num_key_value_heads\": 1, \"hidden_size\": 12, \"intermediate_size\": 10, "
    "\"num_local_experts\": 4, \"num_experts_per_tok\": 2, \"expert_capacity_factor\": 0.75, "
    "\"expert_eval_capacity_factor\": 0.5, \"second_expert_policy\": \"random\", "
    "\"router_jitter_noise\": 0.1, \"max_position_embeddings\": 19, \"vocab_size\": 29, "
    "\"tie_word_embeddings\": %s}";

// What the routers did on the ranks together: micro-batches are divided otherwise than on one.
static void check_routers(const fixture_run *run, const fixture_run *reference)
{
    for (int sum = 0; sum < MICS_ROUTER_SUMS; sum++) {
        const double expected = reference->results[0].router_sums[sum];
        const double got = run->results[0].router_sums[sum];
        const bool drops = sum == MICS_ROUTER_DROPPED; // not every mixture does
        if (!(fabs(got - expected) <= 1e-3 * expected) || (expected <= 0 && !drops))
            fail_msg("%d ranks: sum %d of the routers is %.9g, the CPU has %.9g",
                     (int)run->want.ranks, sum, got, expected);
    }
}

static void check_mixture(const char *config)
{
    static const struct {
        gpu_case of;
        bool nccl, graphs, recompute;
    } cases[] = {
        {{1, 1, {1, 1, 1}, MICS_DTYPE_FP32}, false, false, false},
        {{1, 1, {1, 1, 1}, MICS_DTYPE_FP16}, false, true, false},
        {{2, 1, {1, 2, 2}, MICS_DTYPE_FP32}, false, false, true},
        {{2, 2, {2, 2, 2}, MICS_DTYPE_BF16}, false, false, false},
        {{4, 2, {2, 2, 4}, MICS_DTYPE_FP32}, true, true, true},
    };
    fixture_case like = on_gpu(MICS_DTYPE_FP32);
    like.config = config;
    like.rehearse = true;
    const fixture_run reference = on_cpu(&like);
    for (size_t i = 0; i < cases_of(sizeof cases / sizeof cases[0]); i++) {
        fixture_run run = {.want = like};
        run.want.open_device = cases[i].nccl ? nccl_open_default : staged_open;
        run.want.ranks = cases[i].of.ranks;
        run.want.nodes = cases[i].of.nodes;
        run.want.sharding = cases[i].of.sharding;
        run.want.dtype = cases[i].of.dtype;
        run.want.hierarchical = cases[i].of.nodes > 1;
        run.want.graphs = cases[i].graphs;
        run.want.recompute = cases[i].recompute;
        fixture_go(&run);
        check_losses(&run, &reference);
        if (run.want.dtype == MICS_DTYPE_FP32) {
            check_routers(&run, &reference);
            assert_true(fabs(run.eval_loss - reference.eval_loss) <= 1e-4 * reference.eval_loss);
        }
    }
}

static void test_mixtures(void **state)
{
    (void)state;
    needs_gpus(4);
    check_mixture(mixture);
    check_mixture(gshard);
}

// ---- ranks that keep different experts ----

// 4 experts, of which rows of a capacity are dropped, and a shared one.
static const char spread_config[] =
    "{\"model_type\": \"qwen2_moe\", \"num_hidden_layers\": 2, \"num_attention_heads\": 2, "
    "\"num_key_value_heads\": 1, \"hidden_size\": 16, \"moe_intermediate_size\": 11, "
    "\"shared_expert_intermediate_size\": 10, \"num_experts\": 4, \"num_experts_per_tok\": 3, "
    "\"expert_capacity_factor\": 0.9, \"output_router_logits\": true, "
    "\"max_position_embeddings\": 19, \"vocab_size\": 29, \"tie_word_embeddings\": %s}";

typedef struct spread_case {
    gpu_case of;
    int32_t experts;
    bool nccl, graphs, recompute;
    int32_t layered, coalesce_below;
} spread_case;

static void check_spread(const spread_case *c, const fixture_run *reference)
{
    fixture_run run = {.want = reference->want};
    run.want.open_device = c->nccl ? nccl_open_default : staged_open;
    run.want.kernels = mics_kernels_cuda();
    run.want.ranks = c->of.ranks;
    run.want.nodes = c->of.nodes;
    run.want.sharding = c->of.sharding;
    run.want.experts = c->experts;
    run.want.dtype = c->of.dtype;
    run.want.hierarchical = c->of.nodes > 1;
    run.want.graphs = c->graphs;
    run.want.recompute = c->recompute;
    run.want.layered_micro_steps = c->layered;
    run.want.coalesce_below = c->coalesce_below;
    fixture_go(&run);
    check_losses(&run, reference);
    if (c->of.dtype != MICS_DTYPE_FP32)
        return;
    if (reference->results[0].router_sums[MICS_ROUTER_SEQUENCES] > 0)
        check_routers(&run, reference);
    for (int32_t step = 0; step < run.want.steps; step++) // experts in each other's place: 3e-5
        assert_true(fabs(run.losses[step] / reference->losses[step] - 1) <= 2e-6);
    assert_true(fabs(run.eval_loss / reference->eval_loss - 1) <= 2e-6);
}

// E inside nodes and over them, with P, G and O equal to it and above.
static void test_expert_ranks(void **state)
{
    (void)state;
    static const spread_case cases[] = {
        {{4, 2, {4, 4, 4}, MICS_DTYPE_FP32}, 4, true, false, false, 0, 0},
        {{2, 1, {2, 2, 2}, MICS_DTYPE_FP32}, 2, false, false, false, 0, 0},
        {{2, 2, {2, 2, 2}, MICS_DTYPE_BF16}, 2, true, true, false, 2, 0},
        {{4, 2, {2, 4, 4}, MICS_DTYPE_FP32}, 2, true, true, true, 0, 1 << 20},
        {{4, 2, {4, 4, 4}, MICS_DTYPE_FP16}, 2, true, false, true, 0, 0},
        {{4, 1, {4, 4, 4}, MICS_DTYPE_BF16}, 4, false, false, true, 0, 0},
        {{4, 2, {2, 2, 2}, MICS_DTYPE_FP32}, 2, false, true, false, 2, 0},
        {{4, 2, {4, 4, 4}, MICS_DTYPE_FP32}, 4, false, false, false, 0, 0},
    };
    fixture_case like = on_gpu(MICS_DTYPE_FP32);
    like.config = spread_config;
    like.rehearse = true;
    needs_gpus(1);
    const fixture_run reference = on_cpu(&like);
    assert_true(reference.results[0].router_sums[MICS_ROUTER_DROPPED] > 0);
    for (size_t i = 0; i < cases_of(sizeof cases / sizeof cases[0]); i++) {
        if (!cases[i].nccl || mics_cuda_find()->devices >= cases[i].of.ranks)
            check_spread(&cases[i], &reference);
    }
}

// Ranks that share sequences, with masks, positions that restart, and losses of a router.
static void test_sequence_ranks(void **state)
{
    (void)state;
    static const char routed[] =
        "{\"model_type\": \"mixtral\", \"num_hidden_layers\": 2, \"num_attention_heads\": 4, "
        "\"num_key_value_heads\": 2, \"hidden_size\": 16, \"intermediate_size\": 10, "
        "\"num_local_experts\": 4, \"num_experts_per_tok\": 2, \"output_router_logits\": true, "
        "\"router_jitter_noise\": 0.1, \"attention_dropout\": 0.1, "
        "\"max_position_embeddings\": 19, \"vocab_size\": 29, \"tie_word_embeddings\": %s}";
    static const char gpt2[] =
        "{\"model_type\": \"gpt2\", \"n_layer\": 2, \"n_head\": 4, \"n_embd\": 16, "
        "\"n_positions\": 19, \"vocab_size\": 29, \"tie_word_embeddings\": %s, "
        "\"embd_pdrop\": 0.1, \"attn_pdrop\": 0.2, \"resid_pdrop\": 0.15}";
    static const struct {
        spread_case of;
        int32_t sequence;
        bool mixture;
    } cases[] = {
        {{{2, 1, {1, 1, 1}, MICS_DTYPE_FP32}, 1, false, false, false, 0, 0}, 2, false},
        {{{4, 1, {4, 4, 4}, MICS_DTYPE_FP32}, 1, true, true, false, 2, 0}, 4, false},
        {{{4, 2, {2, 2, 2}, MICS_DTYPE_BF16}, 1, true, false, true, 0, 0}, 2, false},
        {{{4, 1, {2, 2, 4}, MICS_DTYPE_FP32}, 2, true, true, false, 0, 0}, 2, true},
        {{{4, 1, {1, 1, 4}, MICS_DTYPE_FP32}, 1, false, false, true, 0, 0}, 4, true},
        {{{4, 2, {4, 4, 4}, MICS_DTYPE_BF16}, 2, true, true, false, 2, 0}, 2, true},
    };
    fixture_run references[2];
    needs_gpus(1);
    for (int of_mixture = 0; of_mixture < 2; of_mixture++) {
        fixture_case like = on_gpu(MICS_DTYPE_FP32);
        like.config = of_mixture == 1 ? routed : gpt2;
        like.masked = like.restarts = true;
        references[of_mixture] = on_cpu(&like);
    }
    for (size_t i = 0; i < cases_of(sizeof cases / sizeof cases[0]); i++) {
        fixture_run like = references[cases[i].mixture];
        like.want.sequence = cases[i].sequence;
        if (!cases[i].of.nccl || mics_cuda_find()->devices >= cases[i].of.of.ranks)
            check_spread(&cases[i].of, &like);
    }
}

// Pairs, of whose tokens some do not count; on one rank enough that rows are left out.
static void test_preference(void **state)
{
    (void)state;
    static const struct {
        gpu_case of;
        mics_preference preference;
        bool graphs;
        int32_t layered;
    } cases[] = {
        {{1, 1, {1, 1, 1}, MICS_DTYPE_FP32}, {MICS_PREFERENCE_DPO, 0.1, 0.1}, true, 2},
        {{1, 1, {1, 1, 1}, MICS_DTYPE_FP32}, {MICS_PREFERENCE_IPO, 0.5, 0}, false, 0},
        {{1, 1, {1, 1, 1}, MICS_DTYPE_FP16}, {MICS_PREFERENCE_DPO, 0.1, 0}, false, 0},
        {{2, 2, {2, 2, 2}, MICS_DTYPE_BF16}, {MICS_PREFERENCE_DPO, 0.1, 0}, true, 0},
    };
    needs_gpus(1);
    for (size_t i = 0; i < cases_of(sizeof cases / sizeof cases[0]); i++) {
        fixture_run run = {.want = on_gpu(cases[i].of.dtype)};
        run.want.sequences = 16;
        run.want.masked = true;
        run.want.preference = cases[i].preference;
        run.want.steps = cases[i].graphs ? 3 : 2; // the third is a graph's
        const fixture_run reference = on_cpu(&run.want);
        run.want.ranks = cases[i].of.ranks;
        run.want.nodes = cases[i].of.nodes;
        run.want.sharding = cases[i].of.sharding;
        run.want.graphs = cases[i].graphs;
        run.want.layered_micro_steps = cases[i].layered;
        fixture_go(&run);
        check_losses(&run, &reference);
        for (int sum = 0; sum < MICS_PREFERENCE_SUMS; sum++) {
            const double want = reference.results[0].preference_sums[sum],
                         got = run.results[0].preference_sums[sum];
            const double off = run.want.dtype == MICS_DTYPE_FP32 ? 1e-4 : 2e-2;
            if (!(fabs(got - want) <= off * (1 + fabs(want)) + (off > 1e-3 ? 2 : 0)))
                fail_msg("%s: sum %d over pairs is %.9g, the CPU has %.9g",
                         mics_dtype_text(run.want.dtype), sum, got, want);
        }
    }
}

// The same run twice gives the same bits.
static void test_repeats(void **state)
{
    (void)state;
    needs_gpus(1);
    fixture_run runs[2];
    for (int i = 0; i < 2; i++) {
        runs[i] = (fixture_run){.want = on_gpu(MICS_DTYPE_BF16)};
        runs[i].want.ranks = 2;
        runs[i].want.sharding = (mics_sharding){1, 2, 2};
        fixture_go(&runs[i]);
    }
    assert_memory_equal(runs[0].losses, runs[1].losses, sizeof runs[0].losses);
    assert_memory_equal(runs[0].norms, runs[1].norms, sizeof runs[0].norms);
}

// A scale that is too large for fp16: the step is left out by all ranks.
static void test_overflow_is_skipped(void **state)
{
    (void)state;
    needs_gpus(1);
    fixture_run run = {.want = on_gpu(MICS_DTYPE_FP16)};
    run.want.ranks = 2;
    run.want.sharding = (mics_sharding){2, 2, 2};
    run.want.scaling =
        (mics_loss_scaling){.initial = 0x1p28, .window = 1000, .hysteresis = 2, .min = 1};
    fixture_go(&run);
    assert_int_equal(run.skipped, 2);
    assert_false(isfinite(run.norms[1]) != 0);
    assert_true(isfinite(run.losses[1]) != 0);
}

// ---- graphs ----

static bool is_emulated(void)
{
    const char *plugin = getenv("MICS_CUDA_PLUGIN");
    return plugin != NULL && strstr(plugin, "emulated") != NULL;
}

// Graphs that the emulation has launched; 0 on a chip.
static long graphs_launched(void)
{
    long (*launched)(void) = NULL;
    if (!is_emulated())
        return 0;
    void *symbol = mics_plugin_symbol("mics_cuda_emulated_graphs_launched");
    assert_non_null(symbol);
    memcpy(&launched, &symbol, sizeof launched); // ISO C has no cast for it
    return launched();
}

typedef struct graph_case {
    int32_t ranks, nodes;
    mics_sharding sharding;
    mics_dtype dtype;
    bool nccl, recompute;
    int32_t sequences, steps;
    double scale; // of fp16, at first
} graph_case;

static void same_with_graphs(const graph_case *c)
{
    fixture_run runs[2];
    for (int graphs = 0; graphs < 2; graphs++) {
        const long before = graphs_launched();
        runs[graphs] = (fixture_run){.want = on_gpu(c->dtype)};
        fixture_case *want = &runs[graphs].want;
        want->open_device = c->nccl ? nccl_open_default : staged_open;
        want->ranks = c->ranks;
        want->nodes = c->nodes;
        want->sharding = c->sharding;
        want->hierarchical = c->nodes > 1;
        want->recompute = c->recompute;
        want->sequences = c->sequences;
        want->steps = c->steps;
        want->graphs = graphs;
        // Grows after two good steps, and is halved by each that overflows.
        want->scaling =
            (mics_loss_scaling){.initial = c->scale, .window = 2, .hysteresis = 1, .min = 1};
        fixture_go(&runs[graphs]);
        if (is_emulated())
            assert_int_equal(graphs_launched() > before, graphs);
    }
    assert_int_equal(runs[0].skipped, runs[1].skipped);
    assert_memory_equal(runs[0].losses, runs[1].losses, sizeof runs[0].losses);
    assert_memory_equal(runs[0].norms, runs[1].norms, sizeof runs[0].norms);
    assert_memory_equal(&runs[0].eval_loss, &runs[1].eval_loss, sizeof runs[0].eval_loss);
    if (c->scale > 1)
        assert_in_range(runs[0].skipped, 1, c->steps - 1); // some steps, not all
}

static void test_graphs(void **state)
{
    (void)state;
    static const graph_case cases[] = {
        {1, 1, {1, 1, 1}, MICS_DTYPE_FP32, false, false, 4, 2, 1},
        {1, 1, {1, 1, 1}, MICS_DTYPE_FP16, false, true, 4, 6, 0x1p22},
        {2, 1, {1, 2, 2}, MICS_DTYPE_BF16, false, true, 4, 2, 1},
        {4, 2, {2, 2, 4}, MICS_DTYPE_BF16, true, false, 8, 2, 1},
    };
    needs_gpus(1);
    for (size_t i = 0; i < cases_of(sizeof cases / sizeof cases[0]); i++) {
        if (!cases[i].nccl || mics_cuda_find()->devices >= cases[i].ranks)
            same_with_graphs(&cases[i]);
    }
}

// ---- micro-steps side by side ----

// In 16 bits, where G is 1, each micro-batch's gradients have a slot of their own and are added up
// in the order of micro-steps: the same bits. Else they are added in one slot, rounded each time.
static void test_layered_accumulation(void **state)
{
    (void)state;
    static const mics_sharding shardings[] = {{1, 1, 1}, {1, 2, 2}, {2, 2, 2}};
    needs_gpus(1);
    for (int32_t i = 0; i < (int32_t)cases_of(3); i++) {
        fixture_run runs[2];
        for (int32_t side = 0; side < 2; side++) {
            runs[side] = (fixture_run){.want = on_gpu(i == 1 ? MICS_DTYPE_FP16 : MICS_DTYPE_BF16)};
            fixture_case *want = &runs[side].want;
            want->ranks = want->nodes = 2;
            want->sharding = shardings[i];
            want->micro_steps = 3;
            want->sequences = 6;
            want->steps = 2;
            want->recompute = i == 2;
            want->graphs = i == 0;
            want->layered_micro_steps = side == 0 ? 1 : 2 + i % 2; // turns of 1 and 2, or one of 3
            fixture_go(&runs[side]);
        }
        for (int32_t step = 0; step < runs[0].want.steps; step++) {
            const double close = i == 0 ? 0 : 1e-2;
            assert_true(fabs(runs[1].losses[step] / runs[0].losses[step] - 1) <= close);
            assert_true(fabs(runs[1].norms[step] / runs[0].norms[step] - 1) <= close);
        }
        assert_true(fabs(runs[1].eval_loss / runs[0].eval_loss - 1) <= (i == 0 ? 0 : 1e-2));
    }
}

// What replicas hold is compared on the device, and repaired through the host.
static void test_flips_are_found(void **state)
{
    (void)state;
    needs_gpus(1);
    for (int dtype = 0; dtype < (int)cases_of(MICS_DTYPES); dtype++) {
        fixture_case want = on_gpu((mics_dtype)dtype);
        want.ranks = 3;
        want.sequences = 6;
        flips_go(&want, FLIPS_MASTERS, 1, 1, 3);
        flips_go(&want, FLIPS_MOMENTS, 2, 0, 3);
        want.sharding = (mics_sharding){1, 1, 3};
        flips_go(&want, FLIPS_PARAMS, 1, 1, 3);
    }
}

static const char deep_config[] =
    "{\"model_type\": \"gpt2\", \"n_layer\": 6, \"n_head\": 3, \"n_embd\": 12, "
    "\"n_positions\": 19, \"vocab_size\": 29, \"tie_word_embeddings\": %s}";

// Activations in host memory, and the same bits.
static void test_offload(void **state)
{
    (void)state;
    needs_gpus(1);
    for (int i = 0; i < (FIXTURE_STEPS_RUN < FIXTURE_STEPS ? 1 : 3); i++) {
        fixture_run kept = {.want = on_gpu(i == 0 ? MICS_DTYPE_BF16 : MICS_DTYPE_FP32)};
        kept.want.config = deep_config;
        kept.want.ranks = i == 2 ? 2 : 1;
        kept.want.sharding = i == 2 ? (mics_sharding){2, 2, 2} : kept.want.sharding;
        kept.want.recompute = i == 1;
        kept.want.graphs = i == 0;
        kept.want.layered_micro_steps = i == 2 ? 2 : 1;
        fixture_run moved = {.want = kept.want};
        moved.want.offload_units = 2 + i;
        fixture_go(&kept);
        fixture_go(&moved);
        assert_memory_equal(kept.losses, moved.losses, sizeof kept.losses);
        assert_memory_equal(kept.norms, moved.norms, sizeof kept.norms);
        assert_true(kept.eval_loss == moved.eval_loss && moved.results[0].copied_bytes > 0);
    }
}

int main(int count, char **names)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_rank),         cmocka_unit_test(test_wide_residual),
        cmocka_unit_test(test_shardings_staged), cmocka_unit_test(test_optimizers),
        cmocka_unit_test(test_shardings_nccl),   cmocka_unit_test(test_mixtures),
        cmocka_unit_test(test_expert_ranks),     cmocka_unit_test(test_sequence_ranks),
        cmocka_unit_test(test_repeats),          cmocka_unit_test(test_overflow_is_skipped),
        cmocka_unit_test(test_graphs),           cmocka_unit_test(test_offload),
        cmocka_unit_test(test_preference),       cmocka_unit_test(test_layered_accumulation),
        cmocka_unit_test(test_flips_are_found),  cmocka_unit_test(test_shardings_on_one_gpu),
    };
    if (count > 1)
        cmocka_set_test_filter(names[1]);
    const int missing = gpu_missing();
    return missing != 0 ? missing : cmocka_run_group_tests(tests, NULL, NULL);
}
