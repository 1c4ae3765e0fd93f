// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Places every activation and every activation gradient of a model in one arena. Private to this
// module.
#pragma once

#include "mics/core/schedule.h"

/* Fills schedule->units and schedule->activation_elems from schedule->spec. On failure the caller
 * closes the schedule. */
mics_status place_activations(mics_schedule *schedule);
