// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// The program runs nothing itself, so this breaks the layers.
#include "mics/engine.h"
#include "run/job.h"
