// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Drawing of a token. The vocabulary is not sorted: of the likeliest tokens a heap keeps as many as
// are asked for.
#include "draw.h"
#include "base/free.h"
#include "base/rng.h"
#include <math.h>
#include <stdlib.h>

// Names the stream of random numbers of sampling.
enum { SAMPLING_STREAM = 0x67656e };

// Tokens that top_p looks at first; most often it needs no more.
enum { FIRST_CANDIDATES = 256 };

// Zeroed settings are off.
static bool has_penalty(const mics_sampling *sampling)
{
    return sampling->repetition_penalty > 0 && sampling->repetition_penalty != 1;
}

static bool has_top_p(const mics_sampling *sampling)
{
    return sampling->top_p > 0 && sampling->top_p < 1;
}

mics_status run_drawer_init(run_drawer *drawer, mics_memory *memory, const mics_sampling *sampling,
                            int32_t vocab)
{
    const bool all = sampling->top_k == 0 || sampling->top_k >= vocab;
    *drawer = (run_drawer){
        .sampling = sampling, .vocab = vocab, .count = all ? vocab : (int32_t)sampling->top_k};
    if (has_penalty(sampling))
        MICS_TRY(MICS_NEW(memory, vocab, &drawer->penalized));
    if (!(sampling->temperature > 0))
        return MICS_OK;
    if (!all || has_top_p(sampling))
        MICS_TRY(MICS_NEW(memory, drawer->count, &drawer->candidates));
    return MICS_NEW(memory, drawer->count, &drawer->weights);
}

void run_drawer_fini(run_drawer *drawer, mics_memory *memory)
{
    MICS_FREE_ALL(memory, drawer->candidates, drawer->weights, drawer->penalized);
}

// ---- the likeliest ----

static int32_t likeliest(const float *logits, int32_t vocab)
{
    int32_t best = 0;
    for (int32_t token = 1; token < vocab; token++)
        best = logits[token] > logits[best] ? token : best;
    return best;
}

// Whether a is less likely than b; of equal ones the larger id counts as less likely.
static bool below(run_candidate a, run_candidate b)
{
    return a.logit < b.logit || (a.logit == b.logit && a.token > b.token);
}

// Most likely first.
static int compare(const void *a, const void *b)
{
    return below(*(const run_candidate *)b, *(const run_candidate *)a) ? -1 : 1;
}

// Puts a candidate at the heap's root, where the least likely stands, and lets it sink.
static void sink(run_candidate *heap, int32_t count, run_candidate candidate)
{
    int32_t at = 0;
    for (int32_t child = 1; child < count; child = 2 * at + 1) {
        if (child + 1 < count && below(heap[child + 1], heap[child]))
            child++;
        if (!below(heap[child], candidate))
            break;
        heap[at] = heap[child];
        at = child;
    }
    heap[at] = candidate;
}

// The `count` likeliest, most likely first, equal ones by id, so that the order is one.
static void find_candidates(const run_drawer *drawer, const float *logits, int32_t count)
{
    run_candidate *heap = drawer->candidates;
    for (int32_t token = 0; token < count; token++)
        heap[token] = (run_candidate){-INFINITY, INT32_MAX}; // less likely than any
    for (int32_t token = 0; token < drawer->vocab; token++) {
        const run_candidate candidate = {logits[token], token};
        if (below(heap[0], candidate))
            sink(heap, count, candidate);
    }
    qsort(heap, (size_t)count, sizeof *heap, compare);
}

// ---- what is drawn from ----

static const float *penalize(const run_drawer *drawer, const float *logits, const bool *seen)
{
    const float penalty = (float)drawer->sampling->repetition_penalty;
    if (drawer->penalized == NULL || seen == NULL)
        return logits;
    for (int32_t token = 0; token < drawer->vocab; token++) {
        const float logit = logits[token];
        drawer->penalized[token] = !seen[token] ? logit
                                   : logit > 0  ? logit / penalty
                                                : logit * penalty;
    }
    return drawer->penalized;
}

static double weight_of(const run_drawer *drawer, float logit, float best)
{
    return exp(((double)logit - (double)best) / drawer->sampling->temperature);
}

// Weights of the likeliest `count` tokens, which are candidates. Returns their sum.
static double weigh_candidates(const run_drawer *drawer, const float *logits, int32_t count)
{
    double sum = 0;
    find_candidates(drawer, logits, count);
    for (int32_t i = 0; i < count; i++) {
        drawer->weights[i] =
            weight_of(drawer, drawer->candidates[i].logit, drawer->candidates[0].logit);
        sum += drawer->weights[i];
    }
    return sum;
}

static double weigh_all(const run_drawer *drawer, const float *logits, float best)
{
    double sum = 0;
    for (int32_t token = 0; token < drawer->vocab; token++) {
        drawer->weights[token] = weight_of(drawer, logits[token], best);
        sum += drawer->weights[token];
    }
    return sum;
}

// How many of `count` candidates have together at least the share top_p of `sum`; at least one.
// Returns count + 1 when all do not.
static int32_t count_top_p(const run_drawer *drawer, int32_t count, double sum)
{
    double left = drawer->sampling->top_p * sum;
    for (int32_t i = 0; i < count; i++) {
        left -= drawer->weights[i];
        if (left <= 0)
            return i + 1;
    }
    return count + 1;
}

// Of all tokens the likeliest that have top_p together: as many candidates as are found to suffice.
static int32_t find_top_p(const run_drawer *drawer, const float *logits, float best)
{
    const double sum = weigh_all(drawer, logits, best);
    int32_t count = drawer->vocab < FIRST_CANDIDATES ? drawer->vocab : FIRST_CANDIDATES;
    for (;; count = count < drawer->vocab / 4 ? 4 * count : drawer->vocab) {
        (void)weigh_candidates(drawer, logits, count);
        const int32_t kept = count_top_p(drawer, count, sum);
        if (kept <= count || count == drawer->vocab)
            return kept < count ? kept : count;
    }
}

// Tokens that are drawn from: of `count` candidates the first ones, or of all tokens; the others'
// weights become 0. Returns their number.
static int32_t keep_likely(const run_drawer *drawer, const float *logits, float best)
{
    const mics_sampling *sampling = drawer->sampling;
    int32_t count = drawer->count;
    if (drawer->candidates == NULL) {
        (void)weigh_all(drawer, logits, best);
    } else if (count == drawer->vocab) {
        count = find_top_p(drawer, logits, best);
    } else {
        const double sum = weigh_candidates(drawer, logits, count);
        const int32_t kept = has_top_p(sampling) ? count_top_p(drawer, count, sum) : count;
        count = kept < count ? kept : count;
    }
    for (int32_t i = 0; i < count; i++) // of the likeliest the weight is 1
        drawer->weights[i] = drawer->weights[i] < sampling->min_p ? 0 : drawer->weights[i];
    return count;
}

int32_t run_draw(const run_drawer *drawer, const float *logits, const bool *seen, uint64_t seed,
                 int64_t index)
{
    const float *from = penalize(drawer, logits, seen);
    const int32_t top = likeliest(from, drawer->vocab);
    if (!(drawer->sampling->temperature > 0))
        return top;
    const int32_t count = keep_likely(drawer, from, from[top]);
    double sum = 0;
    for (int32_t i = 0; i < count; i++)
        sum += drawer->weights[i];
    double left = sum * mics_rng_uniform(seed, SAMPLING_STREAM, (uint64_t)index);
    for (int32_t i = 0; i < count; i++) {
        left -= drawer->weights[i];
        if (left < 0)
            return drawer->candidates != NULL ? drawer->candidates[i].token : i;
    }
    return top;
}
