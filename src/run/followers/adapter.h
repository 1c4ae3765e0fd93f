// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Behind the last step the adapter as PEFT has it: OUT/adapter-STEP.
#pragma once

#include "follower.h"

typedef struct run_adapter {
    const run_context *context;
} run_adapter;
