// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// A test case that is watched (base/watched.h) and has a cache of tokens of its own.
#pragma once

#include "base/watched.h"
#include "io/data/scratch.h"
#include <stdio.h>

static char cache[300];

static int setup_cached(void **state)
{
    static int number;
    snprintf(cache, sizeof cache, "%s/cache/%d", files_folder, number++);
    return setup(state);
}
