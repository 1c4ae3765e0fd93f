// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Names of the precisions on the wire.
#include "mics/wire.h"

const char *mics_wire_text(mics_wire wire)
{
    static const char *const texts[] = {
        [MICS_WIRE_FP32] = "fp32", [MICS_WIRE_BF16] = "bf16", [MICS_WIRE_INT8] = "int8"};
    return (unsigned)wire < MICS_WIRES ? texts[wire] : "unknown precision";
}
