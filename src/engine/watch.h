// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// The report on ranks that wait too long.
#pragma once

#include "engine/internal.h"

/* Says that nothing has moved on this rank's device: it is in step `index` of the list, on `stream`
 * (COMPUTE: in no collective; index -1: in no step). */
void watch_explain_device(mics_engine *engine, mics_stream stream, int32_t index, double waited_s);

/* The engine's time-out handler: says which collective is late, who has not entered it, and what
 * those ranks were last seen doing. `ctx` is the engine. */
void watch_explain(void *ctx, const mics_timeout *late);
