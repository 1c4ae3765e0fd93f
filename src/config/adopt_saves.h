// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Keys of saving.
#pragma once

#include "config/adopt.h"

/* When it saves and validates, and which checkpoint it keeps; once run.steps is put. `trainer`: the
 * file is the Trainer's, whose defaults hold. */
mics_status mics_adopt_saves(config *run, bool trainer);
