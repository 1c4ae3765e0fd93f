// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// What libmics has of the CUDA kernels: finding them in the plugin, and the order of tokens, which
// they take from the host.
#include "ops/kernels.h"
#include <string.h>

const mics_kernels *mics_kernels_cuda(void)
{
    const mics_kernels *(*table)(void) = NULL;
    void *symbol = mics_plugin_symbol("mics_cuda_kernels");
    if (!symbol)
        return NULL;
    memcpy(&table, &symbol, sizeof table); // ISO C has no cast from an object to a function
    return table();
}

void mics_op_sort_tokens(int32_t *order_N, const int32_t *tokens_N, int64_t N, int64_t V,
                         int32_t *counts_V)
{
    // counts_V[t + 1] counts token t; then sums of these are where each token's positions begin.
    memset(counts_V, 0, (size_t)(V + 1) * sizeof *counts_V);
    for (int64_t n = 0; n < N; ++n)
        ++counts_V[tokens_N[n] + 1];
    for (int64_t v = 0; v < V; ++v)
        counts_V[v + 1] += counts_V[v];
    for (int64_t n = 0; n < N; ++n)
        order_N[counts_V[tokens_N[n]]++] = (int32_t)n;
}
