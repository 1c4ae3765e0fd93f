// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Local steps on GPUs, through the host and by NCCL: as one rank an island on the CPU, whose meetings
// are made by plain loops.
#include "../engine/islands.h"
#include "gpu.h"
#include "nccl_rings.h"

static void test_meetings(void **state)
{
    (void)state;
    static const size_t on[] = {0, 2, 3, 4};
    for (int option = 0; option < 8; option++) {
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_meetings),
    };
    const int missing = gpu_missing();
    return missing != 0 ? missing : cmocka_run_group_tests(tests, NULL, NULL);
}
