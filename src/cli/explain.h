// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// How mics explain begins: the answer, and the keys.
#pragma once

#include "io/report/printer.h"
#include "mics/core/schedule.h"
#include "mics/run.h"
#include "run/settings.h"

/* Of a rank, in the phase that takes most. */
double explain_most_bytes(const mics_job *job);

/* Model and ranks, whether it fits, and what a step sends: in the text alone. */
void explain_answer(const printer *r, const mics_job *job);

/* Keys, their values, and where those are from. The text has those that are not defaults, or `all`, and what
 * each does. */
void explain_keys(printer *r, const mics_run *run, bool all);

/* Keys of other programs' files that have no counterpart. */
void explain_foreign_keys(printer *r);
