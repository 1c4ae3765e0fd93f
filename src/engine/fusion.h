// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Ops that run as one call with the next one.
#pragma once

#include "engine/internal.h"

/* How a unit's op, or gradient call, runs as one call with the next one.   Returns: NULL: it does not. */
const mics_op_pair *fused_forward(const mics_engine *engine, int32_t unit, int32_t op);
const mics_op_pair *fused_backward(const mics_engine *engine, int32_t unit, int32_t call);
