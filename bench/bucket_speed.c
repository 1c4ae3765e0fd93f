// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Writes a rank file of so many MiB, as a save does: bucket_speed PATH MIB. Prints its seconds.
#include "base/clock.h"
#include "io/checkpoint/rank_file.h"
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv)
{
    const int64_t elems = argc == 3 ? strtoll(argv[2], NULL, 10) << 18 : 0;
    mics_memory *memory = NULL;
    void *block = NULL;
    if (elems < 1 || mics_memory_open(&memory) != MICS_OK ||
        mics_alloc(memory, MICS_MEM_HOST, (size_t)elems * sizeof(float), &block) != MICS_OK)
        return 2;
    float *data = block;
    for (int64_t i = 0; i < elems; i++)
        data[i] = (float)i;
    const mics_optimizer_shard shard = {
        .unit = "h.0",
        .unit_elems = elems,
        .end = elems,
        .state_count = 1,
        .states = {{.name = MICS_STATE_PARAM, .dtype = MICS_DTYPE_FP32, .data = data}}};
    const mics_work_listener nobody = {.progress = NULL};
    const double begin_us = mics_clock_us();
    const mics_status status =
        mics_rank_file_write(memory, argv[1], (mics_rank_file_id){1, 0, 1}, &shard, 1, &nobody);
    printf("%.4f\n", (mics_clock_us() - begin_us) / 1e6);
    mics_free(memory, block);
    mics_memory_close(memory);
    return status == MICS_OK ? 0 : 1;
}
