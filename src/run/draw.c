// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Drawing of a token. The vocabulary is not sorted: of the likeliest tokens a heap keeps as many as
// are asked for.
#include "draw.h"
#include "base/rng.h"
#include <math.h>
#include <stdlib.h>

// Names the stream of random numbers of sampling.
enum { SAMPLING_STREAM = 0x67656e };

mics_status run_drawer_init(run_drawer *drawer, mics_memory *memory, const mics_sampling *sampling,
                            int32_t vocab)
{
    const bool all = sampling->top_k == 0 || sampling->top_k >= vocab;
    *drawer = (run_drawer){
        .sampling = sampling, .vocab = vocab, .count = all ? vocab : (int32_t)sampling->top_k};
    if (!(sampling->temperature > 0))
        return MICS_OK;
    if (!all)
        MICS_TRY(MICS_NEW(memory, drawer->count, &drawer->candidates));
    return MICS_NEW(memory, drawer->count, &drawer->weights);
}

void run_drawer_fini(run_drawer *drawer, mics_memory *memory)
{
    mics_free(memory, drawer->candidates);
    mics_free(memory, drawer->weights);
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

// Most likely first, equal ones by id, so that the order is one.
static void find_candidates(const run_drawer *drawer, const float *logits)
{
    run_candidate *heap = drawer->candidates;
    const int32_t count = drawer->count;
    for (int32_t token = 0; token < count; token++)
        heap[token] = (run_candidate){-INFINITY, INT32_MAX}; // less likely than any
    for (int32_t token = 0; token < drawer->vocab; token++) {
        const run_candidate candidate = {logits[token], token};
        if (below(heap[0], candidate))
            sink(heap, count, candidate);
    }
    qsort(heap, (size_t)count, sizeof *heap, compare);
}

// ---- drawing ----

int32_t run_draw(const run_drawer *drawer, const float *logits, uint64_t seed, int64_t index)
{
    const run_candidate *candidates = drawer->candidates;
    const double temperature = drawer->sampling->temperature;
    if (!(temperature > 0))
        return likeliest(logits, drawer->vocab);
    if (candidates != NULL)
        find_candidates(drawer, logits);
    const int32_t top = candidates != NULL ? candidates[0].token : likeliest(logits, drawer->vocab);
    const double best = (double)logits[top];
    double sum = 0;
    for (int32_t i = 0; i < drawer->count; i++) {
        const float logit = candidates != NULL ? candidates[i].logit : logits[i];
        drawer->weights[i] = exp(((double)logit - best) / temperature);
        sum += drawer->weights[i];
    }
    double left = sum * mics_rng_uniform(seed, SAMPLING_STREAM, (uint64_t)index);
    for (int32_t i = 0; i < drawer->count; i++) {
        left -= drawer->weights[i];
        if (left < 0)
            return candidates != NULL ? candidates[i].token : i;
    }
    return top;
}
