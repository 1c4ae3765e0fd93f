// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Scrubbing: masters and moments that no other rank holds are hashed behind an update, and compared
// before the next one.
#pragma once

#include "engine/internal.h"

/* Takes what scrubbing needs, if the spec asks for it and a state exists once.
 * Returns: MICS_OK; MICS_ERR_MEMORY; MICS_ERR_DEVICE. */
mics_status scrub_open(mics_engine *engine);
void scrub_close(mics_engine *engine);

/* Before each run of the streams: the state is to be compared again. If the caller has written it,
 * hashes of what was before are dropped, and what was found. */
void scrub_reset(mics_engine *engine);

/* Before a training list: hashes a state that the caller has written.
 * Returns: MICS_OK; MICS_ERR_DEVICE. */
mics_status scrub_begin(mics_engine *engine);

/* Behind a training list: how long it took tells how often run.scrub_every -1 hashes. */
void scrub_pace(mics_engine *engine, double step_us);

/* On the computing stream: hashes what a unit's masters and moments are now, once a run of the
 * streams. Before they change, and in `_all` before ranks agree on the step. */
void scrub_check(mics_engine *engine, int32_t unit);
void scrub_check_all(mics_engine *engine);

/* On the computing stream, behind a unit's update: hashes what it has to be until the next. */
void scrub_store(mics_engine *engine, int32_t unit);

/* Compares what was hashed. Needs: the computing stream is done with scrub_check. */
void scrub_settle(mics_engine *engine);

/* The same of the state as it is now, between lists. Returns: MICS_OK; MICS_ERR_DEVICE. */
mics_status scrub_compare(mics_engine *engine);

/* The first difference since the caller has written the state: 1 + 2 * unit, and 1 more of moments; 0: none. */
uint64_t scrub_found(const mics_engine *engine);
