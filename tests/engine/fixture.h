// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Trains a small GPT-2 on N ranks as threads, under any sharding, and checks after every step what
// must always hold: replicas bit-identical, by their hashes too, bytes and exchanges as the
// schedule says, peak memory as the ledger says.
#pragma once

#include "mics/builder.h"
#include "mics/core/ledger.h"
#include "mics/core/transport.h"
#include "ops/kernels.h"

#include "base/json.h"
#include "base/rng.h"
#include "mics/core/engine.h"
#include "model/from_config.h"
#include "ranks.h"
#include "schedule/exchanges.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

// Sanitizers see what is wrong in the first steps or never, and take many times as long.
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
enum { FIXTURE_STEPS = 20, FIXTURE_STEPS_RUN = 2 };
#else
enum { FIXTURE_STEPS = 20, FIXTURE_STEPS_RUN = FIXTURE_STEPS };
#endif

enum { FIXTURE_RANKS = 64 };

// 2 layers, 3 heads of 4, odd sizes on purpose.
static const char fixture_config[] =
    "{\"model_type\": \"gpt2\", \"n_layer\": 2, \"n_head\": 3, \"n_embd\": 12, "
    "\"n_positions\": 19, \"vocab_size\": 29, \"tie_word_embeddings\": %s}";

// Grouped heads with biases, wider than the hidden size, and a window that ends amid the sequence.
static const char fixture_decoder[] =
    "{\"model_type\": \"qwen2\", \"num_hidden_layers\": 2, \"num_attention_heads\": 6, "
    "\"num_key_value_heads\": 2, \"head_dim\": 4, \"hidden_size\": 12, \"intermediate_size\": 20, "
    "\"max_position_embeddings\": 19, \"vocab_size\": 29, \"use_sliding_window\": true, "
    "\"sliding_window\": 5, \"max_window_layers\": 1, \"tie_word_embeddings\": %s}";

// GPT-2 with its three dropouts, and a Llama with the one that it has.
static const char fixture_gpt2_dropout[] =
    "{\"model_type\": \"gpt2\", \"n_layer\": 2, \"n_head\": 3, \"n_embd\": 12, "
    "\"n_positions\": 19, \"vocab_size\": 29, \"tie_word_embeddings\": %s, \"embd_pdrop\": 0.1, "
    "\"attn_pdrop\": 0.2, \"resid_pdrop\": 0.15}";
static const char fixture_llama_dropout[] =
    "{\"model_type\": \"llama\", \"num_hidden_layers\": 2, \"num_attention_heads\": 4, "
    "\"num_key_value_heads\": 2, \"hidden_size\": 16, \"intermediate_size\": 20, "
    "\"max_position_embeddings\": 19, \"vocab_size\": 29, \"attention_dropout\": 0.2, "
    "\"tie_word_embeddings\": %s}";

typedef struct fixture_case {
    const char *config; // NULL: fixture_config
    int32_t ranks, nodes;
    mics_sharding sharding;
    int32_t experts;                       // ranks that keep different ones; 0: 1
    int32_t sequence;                      // ranks that share sequences; 0: 1
    int32_t sequences, micro_steps, steps; // sequences of the global batch
    int32_t prefetch, layered_micro_steps, offload_units;
    int32_t threads; // of a rank; 0: 1
    bool rehearse;   // the products, before the first step
    bool graphs;
    bool early_gathers, recompute, untied, hierarchical, share_params;
    mics_recompute parts; // where not all is recomputed
    // Attention looks at segments of 1 to 7 tokens, and some tokens do not count; both ways, too.
    bool masked, both_ways;
    bool restarts;              // and positions begin anew in each segment
    mics_preference preference; // of pairs of samples; of every fifth pair no token counts
    float clip;
    int64_t param_persistence_threshold, sum_chunk_elems;
    mics_comm_dtypes params_dtype, grads_dtype, boundary_dtype;
    int64_t coalesce_below;
    bool ring_gathers, ring_reductions; // in place of what `hierarchical` says
    // Ranks on a device: opens one, and puts what takes its buffers on top of self->comm. NULL: the
    // CPU.
    mics_status (*open_device)(ranks_self *self, const mics_schedule *schedule,
                               mics_device **device_out);
    const mics_kernels *kernels;
    mics_dtype dtype;
    mics_loss_scaling scaling;
    mics_optimizer optimizer; // all zeros: AdamW
    mics_state_dtype state_dtype;
    bool rounded_sums, delta_sync;
    bool wide_residual;
    bool still;                 // the rate is 0: each step has the first weights
    const char *trainable;      // pattern of what trains; NULL: all
    const mics_lora_spec *lora; // NULL: no adapter
    int32_t island_ranks;       // 0: all
    mics_outer outer;
    float outer_lr, outer_momentum;
    int64_t scrub_every;
} fixture_case;

typedef struct fixture_run {
    fixture_case want;
    mics_model *model;
    mics_schedule *schedule;
    // By step, from rank 0; all ranks must have the same bits.
    double losses[FIXTURE_STEPS], norms[FIXTURE_STEPS];
    double eval_loss;
    int64_t fail_at; // allocation that fails, where a test asks for it
    int32_t skipped; // steps whose gradients overflowed
    mics_device *devices[FIXTURE_RANKS];
    mics_engine *engines[FIXTURE_RANKS];
    mics_step_result results[FIXTURE_RANKS];
    bool left_over[FIXTURE_RANKS]; // the newest step's update is due
    float *params; // (optional) out: the whole model after the last step, units one after the other
} fixture_run;

enum { FIXTURE_LENGTH = 16 };

typedef struct fixture_source {
    const fixture_run *run;
    int64_t step;
    int32_t rank;
    const float *references; // (sequences) of a test's own
} fixture_source;

// A language with structure: sample `sample` counts in strides; the numbers depend on nothing else.
static inline int32_t fixture_token(int64_t step, int64_t sample, int64_t position, int64_t vocab)
{
    uint64_t bits = mics_rng_bits(7, (uint64_t)step, (uint64_t)sample);
    return (int32_t)((int64_t)(bits % (uint64_t)vocab) + position * (int64_t)(1 + bits / 64 % 3)) %
           (int32_t)vocab;
}

static inline int64_t fixture_sample(const fixture_source *source, int32_t micro_step, int64_t b)
{
    const mics_schedule_spec *spec = &source->run->schedule->spec;
    return (micro_step * source->run->want.ranks + source->rank) / spec->mesh.sequence *
               spec->batch.sequences +
           b;
}

// The place in its sequence of a rank's first token.
static inline int64_t fixture_position(const fixture_source *source)
{
    const mics_schedule_spec *spec = &source->run->schedule->spec;
    return source->rank % spec->mesh.sequence * spec->batch.length;
}

// Of half the samples a third of the tokens count, of the others all.
static inline bool fixture_counts(int64_t step, int64_t sample, int64_t position)
{
    const uint64_t bits = mics_rng_bits(8, (uint64_t)step, (uint64_t)(sample * 100 + position));
    return sample % 2 == 0 || bits % 3 == 0;
}

// About what a guess gives, where the second sample of each pair is masked.
static inline mics_status fixture_read_references(void *ctx, int32_t micro_step,
                                                  float *references_out)
{
    const fixture_source *source = (const fixture_source *)ctx;
    for (int64_t b = 0; b < source->run->schedule->spec.batch.sequences; b++) {
        const int64_t sample = fixture_sample(source, micro_step, b);
        references_out[b] = (sample % 2 == 0 ? -54.0F : -18.0F) + (float)(sample * 7 % 11 - 5);
    }
    return MICS_OK;
}

static inline mics_status fixture_read_segments(void *ctx, int32_t micro_step,
                                                const int32_t *inputs, int32_t *segments_out)
{
    (void)inputs;
    const fixture_source *source = (const fixture_source *)ctx;
    for (int64_t b = 0; b < source->run->schedule->spec.batch.sequences; b++) {
        const int64_t sample = fixture_sample(source, micro_step, b);
        for (int64_t t = 0; t < FIXTURE_LENGTH; t++) {
            const int64_t length = 1 + sample % 7, ahead = sample % 5;
            const int64_t first = (t + ahead) / length * length - ahead;
            segments_out[b * FIXTURE_LENGTH + t] = (int32_t)(first > 0 ? first : 0);
        }
    }
    return MICS_OK;
}

static inline mics_status fixture_read(void *ctx, int32_t micro_step, int32_t *inputs_out,
                                       int32_t *targets_out)
{
    const fixture_source *source = (const fixture_source *)ctx;
    const fixture_run *run = source->run;
    const int64_t T = run->schedule->spec.batch.length, first = fixture_position(source);
    for (int64_t b = 0; b < run->schedule->spec.batch.sequences; b++) {
        const int64_t sample = fixture_sample(source, micro_step, b);
        for (int64_t t = first; t < first + T; t++) {
            const int64_t at = b * T + t - first;
            inputs_out[at] = fixture_token(source->step, sample, t, run->model->vocab);
            const bool counts =
                (!run->want.masked || fixture_counts(source->step, sample, t)) &&
                (run->want.preference.kind == MICS_PREFERENCE_NONE || sample / 2 % 5 != 4);
            targets_out[at] =
                counts ? fixture_token(source->step, sample, t + 1, run->model->vocab) : -1;
        }
    }
    return MICS_OK;
}

// Counts on top of a rank's transport, as the engine wants it.
static inline mics_status fixture_count(ranks_self *self, const fixture_run *run)
{
    return mics_comm_count_open_take(self->memory, self->comm, run->want.ranks / run->want.nodes,
                                     &self->comm);
}

// One of each kind, by kind.
static const mics_optimizer fixture_optimizers[MICS_OPTIMIZER_KINDS] = {
    [MICS_OPTIMIZER_ADAMW] = {MICS_OPTIMIZER_ADAMW, {0.9, 0.95, 1e-8}, 0.1},
    [MICS_OPTIMIZER_SGD] = {MICS_OPTIMIZER_SGD, {0.9, 1}, 0.1},
    [MICS_OPTIMIZER_MUON] = {MICS_OPTIMIZER_MUON, {0.9, 0.95, 1e-8, 0.95, 1, 5, 1}, 0.1},
    [MICS_OPTIMIZER_LION] = {MICS_OPTIMIZER_LION, {0.9, 0.99}, 0.1},
};

static inline mics_optimizer fixture_optimizer(const fixture_case *want)
{
    return want->optimizer.kind == MICS_OPTIMIZER_ADAMW ? fixture_optimizers[MICS_OPTIMIZER_ADAMW]
                                                        : want->optimizer;
}

static inline mics_status fixture_open_engine(const ranks_self *self, const fixture_run *run,
                                              mics_engine **engine_out)
{
    const mics_engine_spec spec = {.memory = self->memory,
                                   .schedule = run->schedule,
                                   .comm = self->comm,
                                   .optimizer = fixture_optimizer(&run->want),
                                   .clip = run->want.clip,
                                   .outer_lr = run->want.outer_lr,
                                   .outer_momentum = run->want.outer_momentum,
                                   .scrub_every = run->want.scrub_every,
                                   .device = run->devices[self->comm->rank],
                                   .kernels = run->want.kernels,
                                   .dtype = run->want.dtype,
                                   .loss_scaling = run->want.scaling,
                                   .graphs = run->want.graphs,
                                   .seed = 1,
                                   .timeout_s = RANKS_TIMEOUT_S};
    return mics_engine_open(&spec, engine_out);
}

// To nearest, ties to even.
static inline uint16_t fixture_fp16(float value)
{
    uint32_t bits = 0;
    memcpy(&bits, &value, sizeof bits);
    const uint16_t sign = (uint16_t)(bits >> 16 & 0x8000);
    const double magnitude = fabs((double)value);
    if (isnan(value))
        return (uint16_t)(sign | 0x7e00);
    if (magnitude >= 65520)
        return (uint16_t)(sign | 0x7c00);
    int exponent = 0;
    (void)frexp(magnitude, &exponent); // magnitude < 2^exponent
    if (exponent < -13)
        exponent = -13; // denormals have the steps of the smallest normals
    const double steps = nearbyint(ldexp(magnitude, 11 - exponent)); // at most 2048
    if (steps < 1024)
        return (uint16_t)(sign | (uint16_t)steps);
    return (uint16_t)(sign + (uint16_t)((exponent + 13) << 10) + (uint16_t)steps);
}

// Whether two shards are the same to whoever gathers them. Where parameters travel as bf16, owners
// hold their own pieces whole.
static inline bool fixture_same_shards(mics_dtype dtype, const float *a, const float *b,
                                       size_t elems)
{
    const mics_kernels *kernels = mics_kernels_get(NULL);
    for (size_t i = 0; i < elems; i++) {
        uint16_t rounded[2];
        kernels->pack_bf16(&rounded[0], &a[i], 1);
        kernels->pack_bf16(&rounded[1], &b[i], 1);
        if (dtype == MICS_DTYPE_FP16 && fixture_fp16(a[i]) != fixture_fp16(b[i]))
            return false;
        if (dtype == MICS_DTYPE_FP16)
            continue;
        if (dtype == MICS_DTYPE_BF16 ? rounded[0] != rounded[1] : memcmp(&a[i], &b[i], 4) != 0)
            return false;
    }
    return true;
}

// How whoever gathers a unit sees it.
static inline mics_comm_dtype fixture_gathered_as(const fixture_run *run,
                                                  const mics_sharding *sharding)
{
    const mics_mesh *mesh = &run->schedule->spec.mesh;
    if (sharding->params == 1)
        return MICS_COMM_FP32;
    return sharding->params > mesh->ranks_per_node ? run->want.params_dtype.inter
                                                   : run->want.params_dtype.intra;
}

// Ranks with the same parameter shard hold the same bits; so do ranks with the same optimizer
// piece.
static inline mics_status fixture_compare_replicas(const fixture_run *run, int32_t rank)
{
    const mics_mesh *mesh = &run->schedule->spec.mesh;
    for (int32_t u = 0; u < run->model->unit_count; u++) {
        mics_engine_optimizer_shard own = mics_engine_optimizer_shard_get(run->engines[rank], u);
        const mics_sharding *s = &run->schedule->sharding[u];
        mics_engine_optimizer_shard other = mics_engine_optimizer_shard_get(
            run->engines[rank % (s->params * run->schedule->experts[u])], u);
        size_t bytes = (size_t)(own.shard.end - own.shard.begin) * sizeof(float);
        RANKS_EXPECT(own.shard.begin == other.shard.begin);
        const bool rounded = fixture_gathered_as(run, s) == MICS_COMM_BF16;
        const mics_dtype dtype = rounded ? MICS_DTYPE_BF16 : run->want.dtype;
        RANKS_EXPECT(fixture_same_shards(dtype, own.shard_params, other.shard_params,
                                         bytes / sizeof(float)));
        other = mics_engine_optimizer_shard_get(run->engines[rank % mesh->sharding.optimizer], u);
        bytes = (size_t)(own.range.end - own.range.begin) * sizeof(float);
        RANKS_EXPECT(own.range.begin == other.range.begin);
        for (int i = 0; i < MICS_OPTIMIZER_STATES; i++)
            RANKS_EXPECT(own.states[i] == NULL ||
                         memcmp(own.states[i], other.states[i], bytes) == 0);
    }
    return MICS_OK;
}

// Whether a step's update is left to the next one, where it may be; of others the state is
// compared.
static inline bool fixture_leaves(const fixture_run *run, int64_t step)
{
    return step % 2 == 1 && step < run->want.steps;
}

static inline int64_t fixture_copied_bytes(const mics_schedule *schedule)
{
    const mics_step_list *list = &schedule->lists[MICS_PHASE_TRAIN];
    int64_t bytes = 0;
    for (int32_t i = 0; i < list->count; i++)
        bytes += mics_step_is_copy(&list->steps[i]) ? (int64_t)list->steps[i].block_bytes : 0;
    return bytes;
}

static inline mics_status fixture_check_step(fixture_run *run, mics_engine *engine,
                                             const ranks_self *self, int64_t step,
                                             int64_t exchanges)
{
    const int32_t rank = self->comm->rank;
    const bool completes = run->results[rank].completes;
    const mics_bytes predicted = step_bytes_of(run->schedule, rank, completes),
                     sent = run->results[rank].sent, unsent = run->results[rank].unsent;
    RANKS_EXPECT(sent.intra + unsent.intra == predicted.intra && unsent.intra >= 0);
    RANKS_EXPECT(sent.inter + unsent.inter == predicted.inter && unsent.inter >= 0);
    RANKS_EXPECT(run->results[rank].copied_bytes == fixture_copied_bytes(run->schedule));
    RANKS_EXPECT(exchanges == step_exchanges_of(run->schedule, rank, completes));
    RANKS_EXPECT(completes == (step > 1 && run->left_over[rank]));
    run->left_over[rank] = fixture_leaves(run, step) &&
                           run->results[rank].verdict == MICS_VERDICT_UPDATED &&
                           mics_schedule_defers(run->schedule);
    if (fixture_leaves(run, step))
        return MICS_OK;
    mics_divergence found;
    MICS_TRY(mics_engine_compare(engine, &found));
    RANKS_EXPECT(!found.found);
    MICS_TRY(mics_engine_complete(engine)); // shards are whole between steps only then
    MICS_TRY(mics_engine_download_params(engine));
    MICS_TRY(mics_engine_agree(engine, MICS_OK)); // every rank has ended the step
    mics_status same = fixture_compare_replicas(run, rank);
    if (memcmp(&run->results[rank].loss, &run->results[0].loss, 2 * sizeof(double)) != 0)
        same = mics_fail(MICS_ERR_INVALID, "loss or norm differs from rank 0's");
    if (run->results[rank].memory_peak_bytes != run->results[0].memory_peak_bytes ||
        memcmp(run->results[rank].router_sums, run->results[0].router_sums,
               sizeof run->results[0].router_sums) != 0)
        same = mics_fail(MICS_ERR_INVALID, "peak or routers' sums differ from rank 0's");
    if (memcmp(run->results[rank].preference_sums, run->results[0].preference_sums,
               sizeof run->results[0].preference_sums) != 0)
        same = mics_fail(MICS_ERR_INVALID, "sums over pairs differ from rank 0's");
    return mics_engine_agree(engine, same); // nobody begins the next step before all have compared
}

static inline int64_t fixture_exchanges(const mics_comm *comm)
{
    mics_traffic traffic;
    mics_comm_count_get(comm, &traffic);
    return traffic.exchanges;
}

// Such that a run learns in 20 steps.
static inline float fixture_lr(const fixture_case *want)
{
    if (want->still)
        return 0;
    switch (want->optimizer.kind) {
    case MICS_OPTIMIZER_SGD:
        return 0.3f;
    case MICS_OPTIMIZER_LION:
        return 2e-3f;
    default:
        return 3e-3f;
    }
}

static inline mics_status fixture_train(fixture_run *run, mics_engine *engine,
                                        const ranks_self *self, int64_t first, int64_t last)
{
    const int32_t rank = self->comm->rank;
    fixture_source source = {.run = run, .rank = rank};
    const mics_batch_source read = {.read = fixture_read,
                                    .read_segments = fixture_read_segments,
                                    .read_references = fixture_read_references,
                                    .ctx = &source};
    for (int64_t step = first; step <= last; step++) {
        source.step = step;
        int64_t before = fixture_exchanges(self->comm);
        MICS_TRY(
            mics_engine_step(engine, step, fixture_lr(&run->want), &read, &run->results[rank]));
        int64_t exchanges = fixture_exchanges(self->comm) - before;
        MICS_TRY(fixture_check_step(run, engine, self, step, exchanges));
        // What replicas are compared by, wherever its memory is. Of what trains alone a rank may have
        // nothing but padding, and an A has no gradient as long as B is 0.
        RANKS_EXPECT(run->want.trainable != NULL || run->want.lora != NULL ||
                     !run->results[rank].completes ||
                     mics_engine_agreements(engine)[rank].updated_squares > 0);
        if (rank == 0) {
            run->losses[step - 1] = run->results[0].loss;
            run->norms[step - 1] = run->results[0].grad_norm;
            run->skipped += run->results[0].skipped;
        }
    }
    source.step = 1;
    mics_step_result eval;
    MICS_TRY(mics_engine_eval(engine, &read, &eval));
    const mics_bytes predicted = mics_schedule_rank_bytes(run->schedule, MICS_PHASE_EVAL, rank);
    RANKS_EXPECT(eval.sent.intra == predicted.intra && eval.sent.inter == predicted.inter);
    if (rank == 0)
        run->eval_loss = eval.loss;
    return MICS_OK;
}

// Of a unit that is whole, several ranks write the same parameters.
static inline void fixture_collect(const fixture_run *run, mics_engine *engine, int32_t rank)
{
    static pthread_mutex_t one_at_a_time = PTHREAD_MUTEX_INITIALIZER;
    int64_t at = 0;
    pthread_mutex_lock(&one_at_a_time);
    for (int32_t u = 0; run->params != NULL && u < run->model->unit_count; u++) {
        mics_engine_optimizer_shard piece = mics_engine_optimizer_shard_get(engine, u);
        if (rank < run->want.sharding.params)
            memcpy(run->params + at + piece.shard.begin, piece.shard_params,
                   (size_t)(piece.shard.end - piece.shard.begin) * sizeof(float));
        at += run->model->units[u].elems;
    }
    pthread_mutex_unlock(&one_at_a_time);
}

static inline mics_status fixture_check_memory(const ranks_self *self, const fixture_run *run)
{
    mics_memory_stats stats;
    mics_memory_stats_get(self->memory, &stats);
    for (int tag = 0; tag < MICS_MEM_HOST; tag++)
        RANKS_EXPECT(stats.peak[tag] == run->schedule->ledger.bytes[tag]);
    RANKS_EXPECT(stats.total_peak == run->schedule->ledger.total);
    return MICS_OK;
}

static inline mics_status fixture_rank(ranks_self *self)
{
    fixture_run *run = (fixture_run *)self->arg;
    const int32_t rank = self->comm->rank;
    mics_engine *engine = NULL;
    mics_status status = MICS_OK;
    if (run->want.open_device != NULL)
        MICS_TRY(run->want.open_device(self, run->schedule, &run->devices[rank]));
    MICS_TRY_OUT(fixture_count(self, run));
    MICS_TRY_OUT(fixture_open_engine(self, run, &engine));
    run->engines[rank] = engine;
    MICS_TRY_OUT(mics_engine_init_random(engine, 1));
    if (run->want.rehearse)
        MICS_TRY_OUT(mics_engine_autotune(engine));
    MICS_TRY_OUT(mics_engine_agree(engine, MICS_OK));
    MICS_TRY_OUT(fixture_train(run, engine, self, 1, run->want.steps));
    MICS_TRY_OUT(fixture_check_memory(self, run));
    fixture_collect(run, engine, rank);
    MICS_TRY_OUT(mics_engine_agree(engine, MICS_OK)); // others read this engine until here
out:
    if (status != MICS_OK)
        mics_comm_abort(self->comm, NULL);
    mics_engine_close(engine);
    mics_comm_close(self->comm); // which may use the device
    self->comm = NULL;
    mics_device_close(run->devices[rank]);
    return status;
}

static inline void fixture_mask(mics_model *model, bool both_ways)
{
    mics_model_set_segments(model);
    for (int32_t u = 0; u < model->unit_count; u++)
        for (int32_t o = 0; o < model->units[u].op_count; o++)
            model->units[u].ops[o].both_ways = both_ways && model->units[u].ops[o].segments;
}

static inline void fixture_open(mics_memory *memory, fixture_run *run)
{
    char text[512];
    mics_json *json = NULL;
    const char *config = run->want.config != NULL ? run->want.config : fixture_config;
    int length = snprintf(text, sizeof text, config, run->want.untied ? "false" : "true");
    assert_int_equal(mics_json_parse(memory, "fixture", text, (size_t)length, &json), MICS_OK);
    assert_int_equal(mics_model_from_config(memory, json, false, &run->model), MICS_OK);
    mics_json_close(json);
    if (run->want.trainable != NULL)
        ASSERT_OK(mics_model_freeze(run->model, &run->want.trainable, 1));
    if (run->want.lora != NULL)
        ASSERT_OK(mics_model_add_lora(run->model, run->want.lora));
    if (run->want.masked)
        fixture_mask(run->model, run->want.both_ways);
    if (run->want.restarts)
        mics_model_restart_positions(run->model);
    if (run->want.wide_residual)
        ASSERT_OK(mics_model_widen_residual(run->model));
    const mics_algorithm algorithm =
        run->want.hierarchical ? MICS_ALGORITHM_TWO_STAGE : MICS_ALGORITHM_RING;
    const int32_t sequence = run->want.sequence > 0 ? run->want.sequence : 1;
    mics_schedule_spec spec = {
        .model = run->model,
        .batch = {.sequences =
                      run->want.sequences * sequence / run->want.ranks / run->want.micro_steps,
                  .length = FIXTURE_LENGTH / sequence,
                  .threads = run->want.threads > 0 ? run->want.threads : 1},
        .micro_steps = run->want.micro_steps,
        .prefetch = run->want.prefetch,
        .layered_micro_steps = run->want.layered_micro_steps,
        .early_gathers = run->want.early_gathers,
        .offload_units = run->want.offload_units,
        .recompute = run->want.recompute ? mics_recompute_all(true) : run->want.parts,
        .gather = run->want.ring_gathers ? MICS_ALGORITHM_RING : algorithm,
        .reduce = run->want.ring_reductions ? MICS_ALGORITHM_RING : algorithm,
        .boundary = algorithm,
        .param_persistence_threshold = run->want.param_persistence_threshold,
        .coalesce_below = run->want.coalesce_below,
        .sum_chunk_elems = run->want.sum_chunk_elems,
        .params_dtype = run->want.params_dtype,
        .grads_dtype = run->want.grads_dtype,
        .boundary_dtype = run->want.boundary_dtype,
        .share_params = run->want.share_params,
        .delta_sync = run->want.delta_sync,
        .precision =
            run->want.dtype != MICS_DTYPE_FP32 ? MICS_PRECISION_MIXED : MICS_PRECISION_FP32,
        .accelerator = run->want.open_device != NULL,
        .optimizer = fixture_optimizer(&run->want).kind,
        .state_dtype = run->want.state_dtype,
        .preference = run->want.preference,
        .rounded_sums = run->want.rounded_sums,
        .outer = run->want.outer};
    assert_int_equal(spec.batch.sequences * run->want.ranks * run->want.micro_steps,
                     run->want.sequences * sequence);
    assert_int_equal(
        mics_mesh_init(run->want.ranks, run->want.nodes, run->want.sharding, &spec.mesh), MICS_OK);
    if (run->want.experts > 0)
        assert_int_equal(mics_mesh_spread_experts(&spec.mesh, run->want.experts), MICS_OK);
    assert_int_equal(mics_mesh_cut_sequences(&spec.mesh, sequence), MICS_OK);
    if (run->want.island_ranks > 0)
        assert_int_equal(mics_mesh_part_islands(&spec.mesh, run->want.island_ranks), MICS_OK);
    assert_int_equal(mics_schedule_open(memory, &spec, &run->schedule), MICS_OK);
    assert_int_equal(mics_schedule_validate(run->schedule), MICS_OK);
}

static inline void fixture_close(fixture_run *run)
{
    mics_schedule_close(run->schedule);
    mics_model_close(run->model);
}

/* Trains a case from the first step; the run's numbers are filled. Fails the test when anything is
 * off. */
static inline void fixture_go(fixture_run *run)
{
    mics_memory *memory = NULL;
    assert_int_equal(mics_memory_open(&memory), MICS_OK);
    fixture_open(memory, run);
    ranks_run_ok(run->want.ranks, fixture_rank, run);
    fixture_close(run);
    assert_int_equal(mics_memory_close(memory), 0);
}
