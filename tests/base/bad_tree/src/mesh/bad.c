// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Breaks every rule that check_layers.sh knows; never compiled.
#include "base/json_text.h"
#include "mics/core/engine.h"
#include "mics/core/schedule.h"
#include "mics/status.h"
#include <jansson.h>
#include <mpi.h>
#include <pthread.h>
