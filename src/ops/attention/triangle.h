// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Tiles on the diagonal of causal attention on the CPU.
#pragma once

// What of a GEMM on the diagonal is not needed, because its scores are hidden.
typedef enum triangle {
    WHOLE,        // nothing
    RESULT_LOWER, // the result above its diagonal
    RESULT_UPPER, // the result below its diagonal
    FACTOR_LOWER, // A is 0 above its diagonal
    FACTOR_UPPER  // A is 0 below its diagonal
} triangle;

// The diagonal tile is computed in strips of so many rows; what each saves is whole vectors.
enum { STRIP = 16 };
