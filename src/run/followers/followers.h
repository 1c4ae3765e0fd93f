// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// What happens around a step.
#pragma once

#include "adapter.h"
#include "best.h"
#include "metrics.h"
#include "replicas.h"
#include "saving.h"
#include "texts.h"
#include "trace.h"
#include "validation.h"

// The order has a meaning:
//   trace, metrics  first: the figures of a step are its own, whatever follows it.
//   replicas        before all that keep or show the state: no state is saved that they differ on.
//   saving          before what may take long, so that a run that is killed in there has its step.
//   validation      behind it: it writes nothing that a run could go on from.
//   best            needs the validation of the same step.
//   adapter, texts  last: they are drawn from the checkpoint.
#define RUN_FOLLOWER_LIST(X)                                                                       \
    X(trace) X(metrics) X(replicas) X(saving) X(validation) X(best) X(adapter) X(texts)

#define RUN_FOLLOWER_STATE(name) run_##name name;
#define RUN_FOLLOWER_ENUM(name) RUN_FOLLOWER_##name,
#define RUN_FOLLOWER_ROW(name) extern const run_follower run_##name##_follower;

typedef struct run_followers {
    RUN_FOLLOWER_LIST(RUN_FOLLOWER_STATE)
} run_followers;

enum { RUN_FOLLOWER_LIST(RUN_FOLLOWER_ENUM) RUN_FOLLOWERS };

typedef struct run_follower_row {
    const run_follower *follower;
    size_t at; // its state, in run_followers
} run_follower_row;

RUN_FOLLOWER_LIST(RUN_FOLLOWER_ROW)
extern const run_follower_row run_follower_rows[RUN_FOLLOWERS];

static inline void *run_follower_state(run_followers *all, const run_follower_row *row)
{
    return (char *)all + row->at;
}
