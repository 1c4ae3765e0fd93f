// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// The order of samples.
#include "base/rng.h"
#include "mics/data.h"

// Streams of random numbers that belong to the order of samples: one an epoch. The high byte keeps
// them apart from what else is drawn from the run's seed.
static const uint64_t order_stream = (uint64_t)0x5A << 56;

int64_t mics_sample_count(int64_t tokens, int64_t sequence)
{
    return tokens < 1 ? 0 : (tokens - 1) / sequence;
}

int64_t mics_sample_begin(uint64_t seed, int64_t windows, int64_t sequence, int64_t sample)
{
    uint64_t epoch = (uint64_t)(sample / windows), index = (uint64_t)(sample % windows);
    uint64_t window = mics_rng_permute(seed, order_stream | epoch, (uint64_t)windows, index);
    return (int64_t)window * sequence;
}
