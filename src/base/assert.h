// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Assertions of numbered invariants: a file's predicate, asserted where the structure changes.
// NDEBUG compiles the call away; the predicate still counts as used.
#pragma once

#include <assert.h>
#include <stdbool.h>

#ifdef NDEBUG
#define MICS_ASSERT(predicate) ((void)(true || (predicate)))
#else
#define MICS_ASSERT(predicate) assert(predicate)
#endif
