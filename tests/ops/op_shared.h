// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// A dividing op of generation, called by several threads as the decoder does.
#pragma once

#include "base/shares.h"
#include "ops/kernels.h"
#include "test.h"
#include <pthread.h>

enum { OP_SHARED_THREADS = 4 };

typedef struct op_shared {
    const mics_kernels *kernels;
    mics_op_call call;
    mics_exec at;
    pthread_t thread;
} op_shared;

static inline void *op_shared_main(void *arg)
{
    op_shared *self = (op_shared *)arg;
    mics_op_set_threads(1);
    self->call.at = &self->at;
    self->kernels->ops[self->call.shape.op->kind]->decode(&self->call);
    return NULL;
}

// workspaces: (threads, floats).
static inline void op_decode_shared(const mics_kernels *k, mics_op_call call, int32_t threads,
                                    float *workspaces, int64_t floats)
{
    op_shared all[OP_SHARED_THREADS];
    mics_shares shares = {0};
    call.shares = &shares;
    assert_true(threads <= OP_SHARED_THREADS && k->ops[call.shape.op->kind]->decode_divides);
    for (int32_t t = 0; t < threads; t++) {
        all[t] = (op_shared){.kernels = k, .call = call};
        all[t].at = (mics_exec){.threads = 1, .workspace = workspaces + t * floats};
        assert_int_equal(pthread_create(&all[t].thread, NULL, op_shared_main, &all[t]), 0);
    }
    for (int32_t t = 0; t < threads; t++)
        pthread_join(all[t].thread, NULL);
}
