// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// GPUs for the verbs that run or size a run: which device and numbers a run file comes to, and what each rank opens.
#ifndef MICS_CLI_GPU_H
#define MICS_CLI_GPU_H

#include "job.h"
#include "launch.h"
#include "mics/engine.h"

/* Whether this process has a GPU for a run that may use one: NULL, or why not. Does not look where the run is for the CPU. */
const char *cli_gpu_why_not(const mics_run *run);

/* Settles run.device and run.precision for this process alone (mics_run_resolve_device). */
mics_status cli_gpu_resolve(mics_run *run);

/* The same for what is sized and not run: "cuda" needs no GPU then. */
mics_status cli_gpu_resolve_unseen(mics_run *run);

/* The same for all processes: "auto" is the CPU where one of them has no GPU.   Collective: over processes, in setup. */
mics_status cli_gpu_resolve_all(cli_world *world, mics_run *run);

/* What ops and numbers a run on GPUs computes with; all 0 for the CPU. Needs run.device settled. */
cli_accelerator cli_gpu_accelerator(const mics_run *run);

/* Opens a rank's GPU, and lets its collectives take the GPU's buffers. Nothing for a run on the CPU. The device
 * is closed with the world.
 *
 * Returns: MICS_OK; what was wrong, logged, agreed on by all ranks.   Collective: over ranks, before the engine. */
mics_status cli_gpu_open(const cli_job *job, cli_rank *rank);

/* With run.gemm_autotune: takes the choices of OUT/products.bin; where there are none for this GPU, rank 0 times
 * the products of a step, for at most some seconds, and keeps them there, and all ranks take them. So a run that
 * goes on computes the same bits as one that was not stopped.
 *
 * Returns: MICS_OK; what was wrong, logged, agreed on by all ranks.   Collective: over ranks, before the first step. */
mics_status cli_gpu_time_products(const cli_job *job, cli_rank *rank, mics_engine *engine);

/* What an engine's spec says of the device. */
void cli_gpu_fill(const cli_job *job, const cli_rank *rank, mics_engine_spec *spec);

// What a run computes on, and why.
typedef struct cli_gpu_words {
    const char *device, *numbers;
    char why[400];
} cli_gpu_words;

/* Of a job whose run.device is settled. */
cli_gpu_words cli_gpu_explain(const cli_job *job);

/* The line of the beginning that says where the run computes (rank 0). */
void cli_gpu_print(const cli_job *job);

#endif
