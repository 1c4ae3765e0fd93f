// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// The program runs nothing itself, so this breaks the layers.
#include "measure/internal.h"
#include "measure/measure.h"
#include "mics/core/engine.h"
#include "run/job.h"
