// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Where in an update weight decay applies, for kernels of map.cuh. A pack lies on one side of each
// flip: tensors begin on MICS_ALIGNMENT bytes. Where one does not, all elements go one by one.
#pragma once

#include "ops/kernels.h"

struct update_flips {
    bool decays;
    int32_t count;
    int64_t at[MICS_UPDATE_FLIPS];

    __device__ bool decays_at(int64_t i) const
    {
        bool on = decays;
        for (int32_t f = 0; f < count; ++f)
            on ^= i >= at[f];
        return on;
    }
    template <int PACK> bool fit(int64_t i) const
    {
        for (int32_t f = 0; f < count; ++f)
            if ((at[f] - i) % PACK != 0)
                return false;
        return true;
    }
};

static inline update_flips flips_of(const mics_optimizer_update *update)
{
    update_flips flips = {update->decays, update->flip_count, {}};
    for (int32_t f = 0; f < update->flip_count; ++f)
        flips.at[f] = update->flips[f];
    return flips;
}
