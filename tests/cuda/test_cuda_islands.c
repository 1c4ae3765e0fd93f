// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Local steps on GPUs, through the host and by NCCL: as one rank an island on the CPU, whose meetings
// are made by plain loops.
#include "../engine/islands.h"
#include "gpu.h"
#include "nccl_rings.h"

static void options_go(const int *options, int count)
{
    static const size_t on[] = {0, 2, 3, 4};
    for (int i = 0; i < count; i++) {
        const int option = options[i];
        mics_memory *memory = NULL;
        islands_run of = on_mesh(&meshes[on[option / 2]], (mics_outer){.every = 2,
                                                                       .fragments = 1,
                                                                       .overlap_steps = option % 2,
                                                                       .moments_every = 1});
        const bool nccl = option >= 4 && mics_cuda_find()->devices >= of.run.want.ranks;
        of.steps = 4;
        of.run.want.sequences = 16;
        of.run.want.masked = false;
        of.run.want.dtype = option % 4 < 2 ? MICS_DTYPE_FP32 : MICS_DTYPE_BF16;
        of.run.want.outer.dtype = option % 3 < 2 ? MICS_COMM_FP32 : MICS_COMM_BF16;
        of.run.want.open_device = nccl ? nccl_open_default : staged_open;
        of.run.want.kernels = mics_kernels_cuda();
        ASSERT_OK(mics_memory_open(&memory));
        open_case(memory, &of);
        ranks_run_ok(of.run.want.ranks, train_all, &of);
        const bool exact =
            of.run.want.dtype == MICS_DTYPE_FP32 && of.run.want.outer.dtype == MICS_COMM_FP32;
        compare_with_reference(&of, exact ? 2e-5 : 1e-2);
        for (int32_t rank = 0; rank < of.run.want.ranks; rank++)
            mics_device_close(of.run.devices[rank]);
        close_case(&of);
        assert_int_equal(mics_memory_close(memory), 0);
    }
}

// Each mesh, each number type, both ways of sending, at once and a step later.
static void test_meetings(void **state)
{
    (void)state;
    options_go((const int[]){0, 3, 5, 6}, 4);
}

static void test_other_meetings(void **state)
{
    (void)state;
    options_go((const int[]){1, 2, 4, 7}, 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_meetings),
        cmocka_unit_test(test_other_meetings),
    };
    const int missing = gpu_missing();
    return missing != 0 ? missing : cmocka_run_group_tests(tests, NULL, NULL);
}
