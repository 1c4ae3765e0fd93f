// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// GPUs of a run: which device and numbers a run file comes to, and what each rank opens.
#pragma once

#include "mics/core/engine.h"
#include "run/job.h"
#include "world.h"

/* Settles run.device, run.precision and run.attention (mics_run_resolve_device,
 * mics_run_resolve_attention) of what is sized and not run: "cuda" needs no GPU then, and "cudnn" no
 * cuDNN. */
mics_status run_gpu_resolve_unseen(mics_run *run);

/* The same for all processes: "auto" is the CPU where one of them has no GPU, and our own kernels
 * where they have no cuDNN of one version. *no_bf16_out: why one
 * of their CPUs is slow in bf16, static; NULL: none is.   Collective: over processes, in setup. */
mics_status run_gpu_resolve_all(run_world *world, mics_run *run, const char **no_bf16_out);

/* What ops and numbers a run on GPUs computes with; all 0 for the CPU. Needs run.device settled. */
run_accelerator run_gpu_accelerator(const mics_run *run);

/* What a library's kernels lack for the run's ops (run.attention), where they are asked for: one line
 * of each reason where the run takes our own instead.
 *
 * Needs:   the schedule.
 * Returns: MICS_OK; MICS_ERR_UNSUPPORTED, logged: the run takes no others. */
mics_status run_gpu_check_library(const mics_job *job);

// The next two do nothing for a run on the CPU. They return MICS_OK, or what was wrong, logged and
// agreed on by all ranks.       Collective: over ranks.

/* Opens a rank's GPU with the plans of run.attention, which all ranks have or none, and lets its
 * collectives take the GPU's buffers: before the engine; nothing where that was done before. The
 * world closes it. */
mics_status run_gpu_open(const mics_job *job, run_rank *rank);

/* Runs each GEMM of a step once, so that the library loads its kernels before collectives run. With
 * run.gemm_autotune all ranks take the algorithms of OUT/products.bin first. Where it has none for
 * this GPU, rank 0 times the GEMMs for some seconds, and keeps what it found there. So a run that
 * is
 * resumed computes the same bits as one that was not stopped. Before the first step. */
mics_status run_gpu_autotune(const mics_job *job, run_rank *rank, mics_engine *engine);

/* What an engine's spec says of the device. */
void run_gpu_fill(const mics_job *job, const run_rank *rank, mics_engine_spec *spec);

/* What numbers it computes with: "bf16 with fp32 masters". */
const char *run_gpu_numbers(mics_run_precision precision);

/* Says in job->device_why why the run, whose device is settled, computes where it does. */
void run_gpu_why(mics_job *job);
