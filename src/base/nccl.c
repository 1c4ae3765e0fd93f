// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// What NCCL takes of a GPU.
#include "base/nccl.h"

// A ring runs in one CTA a channel. NCCL gives the ring through a card of 400 Gb/s up to four
// channels (2.30, src/graph/connect.cc: each ring twice, and twice again with fewer than 16).
#define CTA_BYTES_PER_S 12.5e9
enum { MIN_INTER_CTAS = 8, MAX_INTER_CTAS = 24 };

mics_nccl_ctas mics_nccl_choose_ctas(int32_t sharers, double node_bytes_per_s)
{
    const double wanted = node_bytes_per_s / CTA_BYTES_PER_S;
    if (sharers > 1)
        return (mics_nccl_ctas){.intra = 8, .inter = 4};
    return (mics_nccl_ctas){.intra = 24,
                            .inter = wanted >= MAX_INTER_CTAS   ? MAX_INTER_CTAS
                                     : wanted <= MIN_INTER_CTAS ? MIN_INTER_CTAS
                                                                : (int32_t)wanted};
}
