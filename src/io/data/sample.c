// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// The order of samples, of one corpus and of several with weights.
//
// In a mixture sample number k of a part is due at time (k + phase) x period: period = all weights
// / the part's, phase a number in [0, 1) that the seed gives. Samples are taken as they are due,
// and of those that are due at once the first part's first. So after any number of samples each
// part has had its share, but for at most as many samples as there are parts; and which sample
// number n is follows from n alone.
#include "base/rng.h"
#include "io/data/data.h"
#include <math.h>

// Streams of random numbers that belong to the order of samples: one an epoch. The high byte keeps
// them apart from what else is drawn from the run's seed.
static const uint64_t order_stream = (uint64_t)0x5A << 56;
static const uint64_t phase_stream = (uint64_t)0x5B << 56; // of mixtures
enum { PART_SHIFT = 40 }; // parts of a mixture have streams of their own

int64_t mics_sample_count(int64_t tokens, int64_t sequence)
{
    return tokens < 1 ? 0 : (tokens - 1) / sequence;
}

static int64_t begin_of(uint64_t seed, uint64_t stream, int64_t windows, int64_t sequence,
                        int64_t sample)
{
    uint64_t epoch = (uint64_t)(sample / windows), index = (uint64_t)(sample % windows);
    uint64_t window = mics_rng_permute(seed, stream | epoch, (uint64_t)windows, index);
    return (int64_t)window * sequence;
}

int64_t mics_sample_begin(uint64_t seed, int64_t windows, int64_t sequence, int64_t sample)
{
    return begin_of(seed, order_stream, windows, sequence, sample);
}

int64_t mics_sample_index(uint64_t seed, int32_t part, int64_t count, int64_t sample)
{
    return begin_of(seed, order_stream | (uint64_t)part << PART_SHIFT, count, 1, sample);
}

// ---- mixtures ----

// A part's samples in time.
typedef struct beat {
    double period, phase;
} beat;

static beat beat_of(uint64_t seed, const mics_mixture_part *parts, int32_t part, double weights)
{
    return (beat){.period = weights / parts[part].weight,
                  .phase = mics_rng_uniform(seed, phase_stream, (uint64_t)part)};
}

static double sum_weights(const mics_mixture_part *parts, int32_t count)
{
    double weights = 0;
    for (int32_t i = 0; i < count; i++)
        weights += parts[i].weight;
    return weights;
}

static double due(beat of, int64_t sample)
{
    return ((double)sample + of.phase) * of.period;
}

// How many samples of a part are due before a time.
static int64_t due_before(beat of, double time)
{
    const double about = floor(time / of.period - of.phase) + 1;
    int64_t count = about > 0 ? (int64_t)about : 0;
    while (count > 0 && due(of, count - 1) >= time)
        count--;
    while (due(of, count) < time)
        count++;
    return count;
}

static int64_t all_due_before(uint64_t seed, const mics_mixture_part *parts, int32_t count,
                              double weights, double time)
{
    int64_t samples = 0;
    for (int32_t i = 0; i < count; i++)
        samples += due_before(beat_of(seed, parts, i, weights), time);
    return samples;
}

mics_mixture_sample mics_mixture_find(uint64_t seed, const mics_mixture_part *parts, int32_t count,
                                      int64_t sample)
{
    const double weights = sum_weights(parts, count);
    // At `low` no more than `sample` samples were due, at `high` more.
    double low = sample > count ? (double)(sample - count) : 0, high = (double)sample + count + 1;
    int64_t before = all_due_before(seed, parts, count, weights, low);
    for (;;) {
        const double middle = low + (high - low) / 2;
        if (middle <= low || middle >= high)
            break; // neighbours: what is due between them is due at `low`
        const int64_t due_then = all_due_before(seed, parts, count, weights, middle);
        if (due_then <= sample) {
            low = middle;
            before = due_then;
        } else {
            high = middle;
            if (due_then == before + 1)
                break;
        }
    }
    for (int32_t i = 0; i < count; i++) {
        const beat of = beat_of(seed, parts, i, weights);
        const int64_t index = due_before(of, low);
        if (due(of, index) < high && before++ == sample)
            return (mics_mixture_sample){.part = i, .index = index};
    }
    return (mics_mixture_sample){.part = 0}; // never: one of them is the sample
}

int64_t mics_mixture_begin(uint64_t seed, const mics_mixture_part *parts, int32_t count,
                           int64_t sequence, int64_t sample)
{
    const mics_mixture_sample at = mics_mixture_find(seed, parts, count, sample);
    const mics_mixture_part *part = &parts[at.part];
    return part->begin + begin_of(seed, order_stream | (uint64_t)at.part << PART_SHIFT,
                                  part->windows, sequence, at.index);
}
