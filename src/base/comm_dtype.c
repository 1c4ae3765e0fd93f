// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Names of the precisions on the wire.
#include "mics/comm_dtype.h"

const char *mics_comm_dtype_text(mics_comm_dtype wire)
{
    static const char *const texts[] = {
        [MICS_COMM_FP32] = "fp32", [MICS_COMM_BF16] = "bf16", [MICS_COMM_INT8] = "int8"};
    return (unsigned)wire < MICS_COMM_DTYPES ? texts[wire] : "unknown precision";
}
