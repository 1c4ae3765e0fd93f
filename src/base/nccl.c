// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// What NCCL takes of a GPU.
#include "base/nccl.h"

mics_nccl_ctas mics_nccl_choose_ctas(int32_t sharers)
{
    if (sharers > 1)
        return (mics_nccl_ctas){.intra = 8, .inter = 4};
    return (mics_nccl_ctas){.intra = 24, .inter = 8};
}
