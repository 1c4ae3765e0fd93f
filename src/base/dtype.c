// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Names of number formats.
#include "mics/core/dtype.h"

const char *mics_dtype_text(mics_dtype dtype)
{
    static const char *const texts[MICS_DTYPES] = {
        [MICS_DTYPE_FP32] = "fp32",
        [MICS_DTYPE_BF16] = "bf16",
        [MICS_DTYPE_FP16] = "fp16",
    };
    return dtype >= 0 && dtype < MICS_DTYPES ? texts[dtype] : "unknown";
}

const char *mics_comm_dtype_text(mics_comm_dtype dtype)
{
    static const char *const texts[] = {[MICS_COMM_FP32] = "fp32",
                                        [MICS_COMM_BF16] = "bf16",
                                        [MICS_COMM_INT8] = "int8",
                                        [MICS_COMM_INT4] = "int4"};
    return (unsigned)dtype < MICS_COMM_DTYPES ? texts[dtype] : "unknown precision";
}
