// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// What a schedule takes. Private to this module.
#ifndef MICS_SCHEDULE_LEDGER_H
#define MICS_SCHEDULE_LEDGER_H

#include "mics/schedule.h"

/* Fills the workspace sizes, the memory ledger and the bytes that all ranks send, once lists, slots and activations are known. */
void fill_ledger(mics_schedule *schedule);

#endif
