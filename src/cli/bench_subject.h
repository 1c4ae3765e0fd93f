// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// The model that mics bench measures: a run file's, a configuration's, or GPT-2.
#ifndef MICS_CLI_BENCH_SUBJECT_H
#define MICS_CLI_BENCH_SUBJECT_H

#include "bench.h"

typedef struct bench_subject_spec {
    const char *run; // a run file; NULL: none
    const char *const *sets;
    int32_t set_count;
    const char *config;      // a model's configuration; NULL: the run's, or GPT-2
    int64_t batch, sequence; // 0: the run's, or the model's
    int32_t threads;         // 0: the run's
    int32_t ranks, nodes, ranks_here;
    double seconds; // that there will be: a large model is cut to fewer layers
} bench_subject_spec;

/* Opens it, cut to as many layers as every rank of this machine can train for itself. Its batch's threads are 0
 * where neither run nor caller says.
 *
 * Returns: MICS_OK; what was wrong, logged; MICS_ERR_MEMORY (one layer is too much).
 * Owns:    bench_subject_close, also after a failure; NULL members are allowed.
 */
mics_status bench_subject_open(mics_memory *memory, const bench_subject_spec *spec,
                               bench_subject *subject);
void bench_subject_close(bench_subject *subject);

#endif
