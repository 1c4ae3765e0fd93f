// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// bf16 on CPUs: whether this process is fast in it, and what a run says of its precision.
#ifndef MICS_RUN_RANKS_PRECISION_H
#define MICS_RUN_RANKS_PRECISION_H

#include <stddef.h>

typedef struct mics_job mics_job;

/* Why this process is slow in bf16, in one line; NULL: it is not. The environment variable MICS_ISA
 * stands for a machine that has no more than that.   Owns: nothing; static. */
const char *run_precision_no_bf16(void);

/* Says what became of run.precision on CPUs, where bf16 is slow, or the checkpoint has another.
 * Nothing on GPUs. For one process. */
void run_precision_log(const mics_job *job);

/* What bf16 would bring to a run that leaves its precision open; NULL: nothing. Static. */
const char *run_precision_hint(const mics_job *job);

#endif
