// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// For who speaks although its thread is quiet, because it alone knows something.
#pragma once

#include <stdbool.h>

/* Whether the calling thread's warnings and other lines are dropped (mics_log_hold). */
bool mics_log_is_quiet(void);
