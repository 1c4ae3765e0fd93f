// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// A test case's own memory, which must be given back whole, and what is logged meanwhile.
#pragma once

#include "base/capture.h"
#include "mics/memory.h"

static mics_memory *memory;
static capture seen;

static int setup(void **state)
{
    (void)state;
    capture_begin(&seen);
    return mics_memory_open(&memory) == MICS_OK ? 0 : 1;
}

static int teardown(void **state)
{
    (void)state;
    capture_end();
    return mics_memory_close(memory) == 0 ? 0 : 1;
}
