// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// What a script does at all.
#pragma once

#include "config/adopt.h"

/* Whether it trains and validates, from where it resumes, and by which seed. */
extern const adopted_keys mics_adopt_work;
