// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Scores are computed token by token, so that a token's experts do not depend on the tokens beside
// it: neither the mesh nor the size of micro-batches changes them.
//
// Shapes: T tokens of a sequence, E experts, k chosen. p probabilities, w weights, f fraction of a
// sequence's tokens that an expert gets, P mean of its probabilities over the sequence.
#include "ops/common/decode.h"
#include "ops/common/mask.h"
#include "ops/experts/def.h"
#include "ops/router/scores.h"

enum { NOISE = 256 }; // numbers whose noise is made at a time

// ---- forward ----

static bool is_noisy(const mics_op_call *call)
{
    return call->draw != NULL && call->shape.op->router.jitter > 0;
}

// What numbers `first` to `first` + count of a token's input are multiplied by. count <= NOISE.
static void noise_of(const mics_op_call *call, int64_t n, int64_t first, int64_t count,
                     float *noise)
{
    static const float HALF = 32768;
    const float jitter = call->shape.op->router.jitter;
    const mics_mask mask = mics_mask_of(call, n / call->shape.T, 0);
    uint16_t bits[NOISE];
    MICS_ISA_OP(mask_rows)
    (bits, &mask, n % call->shape.T, first / MICS_MASK_BLOCK, 31,
     (count + MICS_MASK_BLOCK - 1) / MICS_MASK_BLOCK);
#pragma omp simd
    for (int64_t i = 0; i < count; ++i)
        noise[i] = 1 + jitter * (((float)bits[i] + 0.5F) / HALF - 1);
}

// What the router multiplies, in fp32: its input, with noise where there is some. `space`: (N, C).
static const float *input_of(const mics_op_call *call, float *space)
{
    const int64_t N = call->shape.N, C = call->shape.in[0];
    const mics_elem *x = call->in[0];
    const bool noisy = is_noisy(call);
    if (MICS_ELEM_FP32 && !noisy)
        return call->in[0];
#pragma omp parallel for if (N * C >= MICS_OP_PARALLEL)
    for (int64_t n = 0; n < N; ++n) {
        float noise[NOISE];
        for (int64_t i = 0; i < NOISE; ++i)
            noise[i] = 1;
        for (int64_t first = 0; first < C; first += NOISE) {
            const int64_t part = mics_smaller(NOISE, C - first), at = n * C + first;
            if (noisy)
                noise_of(call, n, first, part, noise);
#pragma omp simd
            for (int64_t c = 0; c < part; ++c)
                space[at + c] = mics_load(x[at + c]) * noise[c];
        }
    }
    return space;
}

static void scores_of(float *score_E, const float *x_C, const mics_elem *weight_EC, int64_t E,
                      int64_t C)
{
    for (int64_t e = 0; e < E; ++e) {
        const mics_elem *weight_C = weight_EC + e * C;
        float sum = 0;
#pragma omp simd reduction(+ : sum)
        for (int64_t c = 0; c < C; ++c)
            sum += x_C[c] * mics_load(weight_C[c]);
        score_E[e] = sum;
    }
}

// Whether chance leaves out the second expert of token n.
static bool leaves_out_second(const mics_op_call *call, int64_t n)
{
    static const float ALL = 65536;
    const mics_experts e = call->shape.op->experts;
    const float *row = call->stats + n * mics_route_floats(e);
    if (call->draw == NULL || !call->shape.op->router.random_second)
        return false;
    const mics_mask mask = mics_mask_of(call, n / call->shape.T, 1);
    uint16_t bits[MICS_MASK_BLOCK];
    MICS_ISA_OP(mask_rows)(bits, &mask, n % call->shape.T, 0, 0, 1);
    const float share = router_probability(row, e, 1) / router_sum(row, e);
    return (float)bits[0] >= ALL * 2 * share;
}

// A token of no segment (mics_op_call.segments), which goes to no expert: padding.
static bool is_nothing(const mics_op_call *call, int64_t n)
{
    return call->segments != NULL && call->segments[n] < 0;
}

static void route_token(const mics_op_call *call, const float *x_NC, int64_t n)
{
    const mics_op_shape *s = &call->shape;
    const mics_experts e = s->op->experts;
    const int64_t C = s->in[0];
    float *row = call->stats + n * mics_route_floats(e);
    scores_of(row, x_NC + n * C, call->params[0], e.count, C);
    router_choose(row, e);
    for (int32_t j = 0; is_nothing(call, n) && j < e.chosen; ++j)
        router_chosen(row, e)[j] = ~router_chosen(row, e)[j];
    if (is_nothing(call, n))
        memset(row, 0, ((size_t)e.count + 2) * sizeof *row);
    else if (leaves_out_second(call, n))
        router_chosen(row, e)[1] = ~router_chosen(row, e)[1];
}

// Drops what is beyond the experts' capacity in the sequence of token `first`. taken_E: scratch.
static void drop_rows(const mics_op_call *call, int64_t first, int32_t *taken_E)
{
    const mics_experts e = call->shape.op->experts;
    const int64_t T = call->shape.T;
    const int64_t capacity = mics_experts_capacity(e, T, call->training);
    memset(taken_E, 0, (size_t)e.count * sizeof *taken_E);
    for (int32_t j = 0; capacity < T && j < e.chosen; ++j)
        for (int64_t n = first; n < first + T; ++n) {
            int32_t *choice = router_chosen(call->stats + n * mics_route_floats(e), e) + j;
            if (!mics_route_drops(*choice) && taken_E[*choice]++ >= capacity)
                *choice = ~*choice;
        }
}

// Places of all rows: those that experts take, sorted by expert, then by token; and the others.
static void place_rows(const mics_op_call *call, int32_t *next)
{
    const mics_experts e = call->shape.op->experts;
    memset(next, 0, ((size_t)e.count + 1) * sizeof *next);
    for (int64_t n = 0; n < call->shape.N; ++n)
        for (int32_t j = 0; j < e.chosen; ++j) {
            const int32_t choice = mics_route_chosen(call->stats, e, n)[j];
            next[mics_route_drops(choice) ? e.count : choice]++;
        }
    int32_t before = 0;
    for (int32_t i = 0; i <= e.count; ++i) {
        const int32_t own = next[i];
        next[i] = before;
        before += own;
    }
    for (int64_t n = 0; n < call->shape.N; ++n) {
        int32_t *chosen = router_chosen(call->stats + n * mics_route_floats(e), e);
        for (int32_t j = 0; j < e.chosen; ++j)
            chosen[e.chosen + j] = next[mics_route_drops(chosen[j]) ? e.count : chosen[j]]++;
    }
}

static void weigh(const mics_op_call *call)
{
    const mics_op *op = call->shape.op;
    const mics_experts e = op->experts;
    mics_elem *out = call->out;
    for (int64_t n = 0; n < call->shape.N; ++n) {
        const float *row = call->stats + n * mics_route_floats(e);
        for (int32_t j = 0; j < e.chosen; ++j)
            out[n * e.chosen + j] = mics_store(
                mics_route_drops(mics_route_chosen(row, e, 0)[j]) ? 0 : router_weight(row, op, j));
    }
}

// Sums over a sequence's tokens: of those that are of a segment, of those whose loss counts, of their
// entropies, and of choices that full experts did not take.
typedef struct sequence_sums {
    double tokens, counted, entropy, dropped;
} sequence_sums;

// And of each expert: its probabilities, and how many chose it.
static sequence_sums sums_of(const mics_op_call *call, int64_t first, float *sum_E, float *chosen_E)
{
    const mics_experts e = call->shape.op->experts;
    sequence_sums sums = {0};
    memset(chosen_E, 0, (size_t)e.count * sizeof *chosen_E);
    memset(sum_E, 0, (size_t)e.count * sizeof *sum_E);
    for (int64_t n = first; n < first + call->shape.T; ++n) {
        const float *row = call->stats + n * mics_route_floats(e);
        const int32_t *chosen = mics_route_chosen(row, e, 0);
        for (int32_t j = 0; !is_nothing(call, n) && j < e.chosen; ++j) {
            chosen_E[mics_route_expert(chosen[j])] += 1;
            sums.dropped += mics_route_drops(chosen[j]) && !(j == 1 && leaves_out_second(call, n));
        }
        for (int32_t i = 0; i < e.count; ++i)
            sum_E[i] += row[i];
        sums.entropy += (double)row[e.count + 1];
        sums.tokens += !is_nothing(call, n);
        sums.counted += call->targets != NULL && call->targets[n] >= 0;
    }
    return sums;
}

// To each rank that shares the sequences.
static void send_sums(const mics_op_call *call)
{
    const mics_op_shape *s = &call->shape;
    const mics_experts e = s->op->experts;
    float *blocks = call->stats + s->N * mics_route_floats(e);
    for (int64_t b = 0; s->op->sequence_ranks > 0 && b < s->B; ++b) {
        float *own = blocks + mics_route_sums_at(s, 0, b), *rest = own + 2 * e.count;
        const sequence_sums sums = sums_of(call, b * s->T, own, own + e.count);
        rest[0] = (float)sums.entropy;
        rest[1] = (float)sums.counted;
        rest[2] = (float)sums.dropped;
        rest[3] = (float)sums.tokens;
        for (int32_t rank = 1; rank < s->op->sequence_ranks; ++rank)
            memcpy(blocks + mics_route_sums_at(s, rank, b), own,
                   (size_t)mics_route_sums(e) * sizeof *own);
    }
}

// Of all those ranks, in their order.
static sequence_sums sums_that_came(const mics_op_call *call, int64_t b, float *sum_E,
                                    float *chosen_E)
{
    const mics_op_shape *s = &call->shape;
    const int32_t E = s->op->experts.count;
    sequence_sums sums = {0};
    memset(chosen_E, 0, (size_t)E * sizeof *chosen_E);
    memset(sum_E, 0, (size_t)E * sizeof *sum_E);
    for (int32_t rank = 0; rank < s->op->sequence_ranks; ++rank) {
        const float *came = call->routes + mics_route_sums_at(s, rank, b), *rest = came + 2 * E;
        for (int32_t i = 0; i < E; ++i) {
            sum_E[i] += came[i];
            chosen_E[i] += came[E + i];
        }
        sums.entropy += (double)rest[0];
        sums.counted += (double)rest[1];
        sums.dropped += (double)rest[2];
        sums.tokens += (double)rest[3];
    }
    return sums;
}

static void forward(const mics_op_call *call)
{
    const int64_t N = call->shape.N, E = call->shape.op->experts.count;
    int32_t *rows = call->at->workspace;
    const float *x = input_of(call, (float *)call->at->workspace + mics_route_rows_floats(E));
#pragma omp parallel for if (N * call->shape.in[0] >= MICS_OP_PARALLEL)
    for (int64_t n = 0; n < N; ++n)
        route_token(call, x, n);
    for (int64_t first = 0; first < N; first += call->shape.T)
        drop_rows(call, first, rows);
    place_rows(call, rows);
    weigh(call);
    send_sums(call);
}

// ---- backward ----

// Scale of a sequence's losses: by its share of tokens whose loss counts, since the engine takes
// the mean over those alone; of a pair of sequences by half.
static float scale_of(const mics_op_call *call, const sequence_sums *of)
{
    const float counted = call->pairs && of->counted > 0 ? 0.5F : (float)of->counted;
    return call->targets != NULL
               ? call->loss_scale * counted / (float)(of->tokens > 0 ? of->tokens : 1)
               : call->loss_scale;
}

// What a sequence's tokens share: the gradient of each probability of the loss that balances, the
// same for all of them. Adds the sequence to the metrics. sum_E: scratch. Returns: scale_of.
static float balance_of(const mics_op_call *call, int64_t first, float *gradient_E, float *sum_E)
{
    const mics_op_shape *s = &call->shape;
    const mics_experts e = s->op->experts;
    const sequence_sums of = s->op->sequence_ranks > 0
                                 ? sums_that_came(call, first / s->T, sum_E, gradient_E)
                                 : sums_of(call, first, sum_E, gradient_E);
    const double T = of.tokens > 0 ? of.tokens : 1;
    const float scale = scale_of(call, &of);
    double fullest = 0, balance = 0;
    for (int32_t i = 0; i < e.count; ++i) {
        const double fraction = (double)gradient_E[i] / T;
        fullest = fraction > fullest ? fraction : fullest;
        balance += e.count * fraction * (double)sum_E[i] / T;
        gradient_E[i] = (float)((double)s->op->router.balance * (double)scale * e.count * fraction);
    }
    if (call->router_sums == NULL || scale == 0) // none of its tokens counts
        return scale;
    call->router_sums[MICS_ROUTER_SEQUENCES] += 1;
    call->router_sums[MICS_ROUTER_ENTROPY] += of.entropy / T;
    call->router_sums[MICS_ROUTER_FULLEST] += fullest * e.count / e.chosen;
    call->router_sums[MICS_ROUTER_BALANCE] += balance;
    call->router_sums[MICS_ROUTER_DROPPED] += of.dropped / (T * e.chosen);
    return scale;
}

// The gradient of a token's scores, from that of its weights and of its probabilities (which
// dscore_E holds at first, of the loss that balances). A weight that is dropped is 0.
static void score_gradient(const mics_op_call *call, int64_t n, float scale, float *dscore_E)
{
    const mics_op *op = call->shape.op;
    const mics_experts e = op->experts;
    const float *row = call->stats + n * mics_route_floats(e);
    const int32_t *chosen = mics_route_chosen(call->stats, e, n);
    const mics_elem *dweight = (const mics_elem *)call->dout + n * e.chosen;
    float sum = 1, mean = 0;
    if (is_nothing(call, n)) {
        memset(dscore_E, 0, (size_t)e.count * sizeof *dscore_E);
        return;
    }
    if (op->router.normalised) {
        sum = router_sum(row, e);
        for (int32_t j = 0; j < e.chosen; ++j)
            if (!mics_route_drops(chosen[j]))
                mean += mics_load(dweight[j]) * router_weight(row, op, j);
    }
    for (int32_t j = 0; j < e.chosen; ++j) {
        const float own = mics_route_drops(chosen[j]) ? 0 : mics_load(dweight[j]);
        dscore_E[mics_route_expert(chosen[j])] += (own - mean) / sum;
    }
    float dot = 0;
    for (int32_t i = 0; i < e.count; ++i)
        dot += row[i] * dscore_E[i];
    const float z = 2 * op->router.z * scale * row[e.count];
    for (int32_t i = 0; i < e.count; ++i)
        dscore_E[i] = row[i] * (dscore_E[i] - dot + z);
}

// dx (N, C) (+)= dscore (N, E) W, times the noise.
static void input_gradient(const mics_op_call *call, const float *dscore_NE)
{
    const int64_t N = call->shape.N, C = call->shape.in[0], E = call->shape.op->experts.count;
    const mics_elem *weight_EC = call->params[0];
    mics_elem *dx = call->din;
#pragma omp parallel for if (N * C >= MICS_OP_PARALLEL)
    for (int64_t n = 0; n < N; ++n) {
        for (int64_t first = 0; first < C; first += NOISE) {
            const int64_t part = mics_smaller(NOISE, C - first);
            mics_elem *to = dx + n * C + first;
            float sum[NOISE], noise[NOISE];
            memset(sum, 0, sizeof sum);
            for (int64_t e = 0; e < E; ++e) {
                const float by = dscore_NE[n * E + e];
                const mics_elem *weight = weight_EC + e * C + first;
#pragma omp simd
                for (int64_t c = 0; c < part; ++c)
                    sum[c] += by * mics_load(weight[c]);
            }
            if (is_noisy(call)) {
                noise_of(call, n, first, part, noise);
                for (int64_t c = 0; c < part; ++c)
                    sum[c] *= noise[c];
            }
            for (int64_t c = 0; c < part; ++c)
                to[c] = mics_store(call->add_din ? mics_load(to[c]) + sum[c] : sum[c]);
        }
    }
}

// dW (E, C) (+)= dscore^T x, in the order of tokens.
static void weight_gradient(const mics_op_call *call, const float *x, const float *dscore_NE,
                            float *sum_EC)
{
    const int64_t N = call->shape.N, C = call->shape.in[0], E = call->shape.op->experts.count;
    mics_elem *dweight = call->dparams[0];
#pragma omp parallel for if (N * C >= MICS_OP_PARALLEL)
    for (int64_t e = 0; e < E; ++e) {
        float *sum = sum_EC + e * C;
        mics_elem *to = dweight + e * C;
        memset(sum, 0, (size_t)C * sizeof *sum);
        for (int64_t n = 0; n < N; ++n) {
            const float by = dscore_NE[n * E + e];
#pragma omp simd
            for (int64_t c = 0; c < C; ++c)
                sum[c] += by * x[n * C + c];
        }
        for (int64_t c = 0; c < C; ++c)
            to[c] = mics_store(call->add_params[0] ? mics_load(to[c]) + sum[c] : sum[c]);
    }
}

static void backward(const mics_op_call *call)
{
    const mics_op_shape *s = &call->shape;
    const int64_t E = s->op->experts.count;
    float *dscore_NE = call->at->workspace, *rest = dscore_NE + s->N * E;
    for (int64_t first = 0; first < s->N; first += s->T) {
        const float scale = balance_of(call, first, dscore_NE + first * E, rest);
        for (int64_t n = first + s->T; --n >= first;) {
            if (n > first) // the first row holds what all begin with
                memcpy(dscore_NE + n * E, dscore_NE + first * E, (size_t)E * sizeof *dscore_NE);
            score_gradient(call, n, scale, dscore_NE + n * E);
        }
    }
    if (call->din)
        input_gradient(call, dscore_NE);
    if (call->dparams[0])
        weight_gradient(call, input_of(call, rest + E * s->in[0]), dscore_NE, rest);
}

const mics_op_kernels MICS_OP(router_kernels) = {
    .forward = forward,
    .backward = backward,
    .decode = MICS_ELEM_FP32 ? MICS_ISA_OP(router_decode) : NULL};
