// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Threads of kernels by OpenMP. The setting belongs to the calling thread, so ranks that are
// threads of one process each have their own; the matrix library obeys it too.
#include "ops/common/threads.h"
#include "ops/kernels.h"
#include <omp.h>

void mics_op_set_threads(int32_t threads)
{
    omp_set_num_threads(threads);
}

int32_t mics_op_threads(void)
{
    return omp_get_max_threads();
}

int32_t mics_op_thread(void)
{
    return omp_get_thread_num();
}
