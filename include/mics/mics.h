// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// The whole public API. run.h is where to begin; the others serve who builds a model, a schedule or a
// training loop of their own.
#ifndef MICS_MICS_H
#define MICS_MICS_H

#include "mics/checkpoint.h"
#include "mics/cluster.h"
#include "mics/comm.h"
#include "mics/config.h"
#include "mics/cost.h"
#include "mics/data.h"
#include "mics/device.h"
#include "mics/dtype.h"
#include "mics/engine.h"
#include "mics/goodput.h"
#include "mics/json.h"
#include "mics/kernels.h"
#include "mics/log.h"
#include "mics/memory.h"
#include "mics/mesh.h"
#include "mics/model.h"
#include "mics/op.h"
#include "mics/optimizer.h"
#include "mics/plan.h"
#include "mics/planning.h"
#include "mics/report.h"
#include "mics/run.h"
#include "mics/schedule.h"
#include "mics/simulate.h"
#include "mics/status.h"
#include "mics/work.h"

#endif
