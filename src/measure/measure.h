// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// What `mics bench` and `mics doctor` find out about the machine that they run on. The program
// parses and prints; what is timed, for how long, and what a cluster file then says is decided
// here.
//
// mics bench: every rank times links, and the ops of a model; rank 0 has the results, and its
// process merges them into a cluster file, which `mics plan` reads.
#pragma once

#include "config/config.h"
#include "mics/core/device.h"
#include "mics/memory.h"
#include "mics/status.h"
#include "plan/cost/cluster.h"
#include "plan/cost/cost.h"
#include <stdbool.h>
#include <stdint.h>

// ---- mics bench ----

typedef struct measure_spec {
    bool compute;    // what a rank computes with; else links
    bool links;      // links too
    const char *run; // a run file or a model's configuration, which is measured; NULL: none
    const char *const *sets;
    int32_t set_count;
    const char *config;      // a model's configuration; NULL: the run's, or GPT-2
    int64_t batch, sequence; // 0: the run's, or the model's
    int32_t threads;         // of a rank; 0: the run's, or an equal share of the cores
    int32_t ranks, nodes;    // 0: MPI's, or 1
    bool has_device;         // `device` holds; else the run's, or auto
    mics_run_device device;  // AUTO: GPUs where every process has one
    double seconds;          // of wall clock, all together
    const char *out;         // the cluster file, made or updated
    // The machine, of the catalogue or a cluster file: the file begins from it, and what is not measured
    // stays as there; NULL: none.
    const char *offer;
    bool quiet;         // say nothing of what is being measured
    bool force;         // write the file even where it mispredicts a step
    mics_status status; // of what the caller did before: an error ends all ranks
} measure_spec;

// Where it is measured; alike on all ranks.
typedef struct measure_place {
    int32_t ranks, nodes, per_node;
    int32_t threads;       // of a rank, that compute
    int32_t cores;         // that ranks have together on the machine with the fewest
    int32_t machine_ranks; // that run on one machine; nodes may be of one machine (emulation)
    bool shared;           // one machine stands for all, and has fewer cores than ranks' threads
    size_t buffer_bytes;   // that a rank may allocate
    bool mpi;
    bool gpu;            // ranks compute on GPUs
    char chip[64];       // of rank 0: "NVIDIA H200"
    char transport[16];  // of collectives on GPUs: "nccl" or "staged"
    double memory_bytes; // of that GPU
} measure_place;

// Links of one tier. No points in the ramp: not measured.
typedef struct measure_tier {
    double latency_us;
    mics_curve ramp;         // message bytes -> bytes/s of one rank, in gathers
    mics_curve reduce_ramp;  // the same in reductions, with the adding
    double link_bytes_per_s; // of one child's link: all ranks that share it at once
    double core_us_per_byte; // that a rank's thread works
    double slowdown;         // of computation beside it; see contention.c
    // What messages take longer beside computation, by the threads a core that compute.
    mics_curve beside_us, beside_us_per_byte;
} measure_tier;

enum { MEASURE_ROWS = 32 };

// One collective, and what the cluster that was measured predicts for it.
typedef struct measure_row {
    const char *name;
    mics_collective collective;
    bool staged; // in two stages
    double us, predicted_us;
} measure_row;

typedef struct measure_links {
    measure_tier intra, inter;
    double reduce_bytes_per_s; // 0: not measured
    measure_row rows[MEASURE_ROWS];
    int32_t row_count;
    double took_s;
} measure_links;

// What one rank computes with. Rates are those at which the model trains.
typedef struct measure_compute {
    char cpu_name[MICS_CLUSTER_NAME_BYTES];
    double memory_bytes;
    double flops_per_s;      // the largest rate of a GEMM
    double bf16_flops_per_s; // the same in bf16, as training in it says; 0: not measured
    // On GPUs: the largest rate of a GEMM in each; flops_per_s is that in bf16. 0: not measured.
    double gpu_flops_per_s[MICS_MATHS];
    double host_bytes_per_s;         // from a GPU to its host, all at once; 0: not measured
    mics_curve matmul_efficiency;    // share of that, by the smallest dimension
    mics_curve attention_efficiency; // by the length of the sequence
    double stream_bytes_per_s;       // of additions that no cache holds
    double elementwise_bytes_per_s;  // of the model's ops that move memory
    double update_bytes_per_s;
    double launch_us;
    double step_overhead_us;
    double training_factor; // what a pass of the model takes, to the sum of its ops alone
    double pass_us;         // forward and backward of one micro-step in training
    // A step of one micro-step: measured once more at the end, and as the file predicts it; and of
    // those that were measured the slowest to the fastest.
    double check_us, check_predicted_us, check_spread;
    double took_s;
} measure_compute;

// What was found, and the file as it was written.
typedef struct measure_report {
    bool first;   // this process has rank 0: the only one with anything below
    bool updated; // the file was there before
    bool has_links, has_compute;
    measure_place place;
    measure_links links;
    measure_compute compute;
    mics_cluster cluster;
} measure_report;

// How long each part may take, s.
typedef struct measure_parts {
    double compute_s, links_s; // 0: not measured
    double check_s;            // of a step at the end
} measure_parts;

/* Shares out the seconds of a spec among `ranks` ranks: what it asks for, and for a short time what the
 * file `lacks`. Together they are less than the seconds, as phases end late.     Pure. */
measure_parts measure_share_out(const measure_spec *spec, int32_t ranks, bool lacks);

/* Measures what the spec says, and in short the other half where the file lacks it, as a file must
 * have both; then writes the file. Says on standard error what is being measured. A file whose
 * prediction of a step is not between half and twice what a step took at the end is not written, unless `force`.
 *
 * Needs:   nobody else uses MPI; seconds >= 0.
 * Returns: MICS_OK; what was wrong, logged once by the first process. *running_out is whether
 *          measuring had begun by then; report_out is filled on success alone.
 * Collective: over processes.   Blocks: yes.
 */
mics_status measure_cluster(mics_memory *memory, const measure_spec *spec, bool *running_out,
                            measure_report *report_out);

// ---- mics doctor ----

enum { MEASURE_MAX_KERNELS = 8, MEASURE_MAX_ADVICE = 8, MEASURE_ADVICE_BYTES = 256 };

// What this build and machine have. Texts live as long as the process.
typedef struct measure_machine {
    mics_machine machine;
    const char *kernels;                            // those that are used
    const char *other_kernels[MEASURE_MAX_KERNELS]; // that would run here too
    int32_t other_kernel_count;
    const char *gemm_library;
    const char *mpi; // NULL: not in this build
    bool mpi_launched;
    int32_t gemm_size;              // GEMMs of so many rows, columns and terms:
    double gflops_one, gflops_all;  // on one thread, on all cores
    double cores_had;               // of the machine, while gflops_all was timed
    const mics_cuda_findings *cuda; // plugin, driver, NCCL, GPUs
    int32_t
        gpu_pairs[MICS_CUDA_LINK_FAST + 1]; // by their link; of both directions the worse counts
    char advice[MEASURE_MAX_ADVICE][MEASURE_ADVICE_BYTES];
    int32_t advice_count;
} measure_machine;

/* Looks, and times GEMMs for half a second.
 *
 * Returns: MICS_OK; MICS_ERR_MEMORY; what mics_machine_read returns.
 */
mics_status measure_machine_read(mics_memory *memory, measure_machine *machine_out);

/* GPU `gpu` of those that were found; one that does not tell is called "unknown". */
mics_device_info measure_gpu_info(int32_t gpu);

/* How GPU `from` reaches `to`. */
mics_cuda_link_kind measure_gpu_link(int32_t from, int32_t to);
