// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Rows of the token and position tables, and their gradients. Shapes: see mics/kernels.h.
#include "ops/common/kernels_isa.h"
#include <string.h>

// Backward gives each task so many columns: tasks never meet, and each adds its rows in order.
enum { STRIPE = 64 };

void MICS_OP(embedding_forward)(float *y_NC, const int32_t *tokens_N, const float *wte_VC,
                                const float *wpe_PC, int64_t N, int64_t T, int64_t C)
{
#pragma omp parallel for if (N * C >= MICS_OP_PARALLEL)
    for (int64_t n = 0; n < N; ++n) {
        float *y_C = y_NC + n * C;
        const float *wte_C = wte_VC + tokens_N[n] * C;
        if (!wpe_PC) {
            memcpy(y_C, wte_C, (size_t)C * sizeof *y_C);
            continue;
        }
        const float *wpe_C = wpe_PC + n % T * C;
#pragma omp simd
        for (int64_t c = 0; c < C; ++c)
            y_C[c] = wte_C[c] + wpe_C[c];
    }
}

static void zero_rows(float *rows, int64_t count, int64_t C)
{
#pragma omp parallel for if (count * C >= MICS_OP_PARALLEL)
    for (int64_t row = 0; row < count; ++row)
        memset(rows + row * C, 0, (size_t)C * sizeof *rows);
}

static void add_into(float *dst, const float *src, int64_t elems)
{
#pragma omp simd
    for (int64_t i = 0; i < elems; ++i)
        dst[i] += src[i];
}

void MICS_OP(embedding_backward)(float *dwte_VC, float *dwpe_PC, const float *dy_NC,
                                 const int32_t *tokens_N, int64_t N, int64_t T, int64_t C,
                                 int64_t V, int64_t P, bool add_dwte, bool add_dwpe)
{
    if (!add_dwte)
        zero_rows(dwte_VC, V, C);
    if (dwpe_PC && !add_dwpe)
        zero_rows(dwpe_PC, P, C);
#pragma omp parallel for if (N * C >= MICS_OP_PARALLEL)
    for (int64_t column = 0; column < C; column += STRIPE) {
        int64_t width = C - column < STRIPE ? C - column : STRIPE;
        for (int64_t n = 0; n < N; ++n) {
            const float *dy = dy_NC + n * C + column;
            add_into(dwte_VC + tokens_N[n] * C + column, dy, width);
            if (dwpe_PC)
                add_into(dwpe_PC + n % T * C + column, dy, width);
        }
    }
}
