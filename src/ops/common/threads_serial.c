// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Kernels without threads of their own (MICS_OPENMP=OFF). The matrix library still has its own,
// which OMP_NUM_THREADS sets.
#include "ops/common/threads.h"
#include "ops/kernels.h"

void mics_op_set_threads(int32_t threads)
{
    (void)threads;
}

int32_t mics_op_threads(void)
{
    return 1;
}

int32_t mics_op_thread(void)
{
    return 0;
}
