// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Computation of a list.
#pragma once

#include "engine/internal.h"

mics_status run_compute_step(mics_engine *engine, const mics_step *step);

/* Runs each GEMM of a step once (mics_engine_autotune). */
void autotune_gemms(mics_engine *engine);
