// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// The public API that one learns: run.h is where to begin, builder.h for a model of one's own. Whoever
// writes a training loop of their own includes headers of mics/core.
#ifndef MICS_MICS_H
#define MICS_MICS_H

#include "mics/builder.h"
#include "mics/log.h"
#include "mics/memory.h"
#include "mics/model.h"
#include "mics/op.h"
#include "mics/report.h"
#include "mics/run.h"
#include "mics/status.h"

#endif
