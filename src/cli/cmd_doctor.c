// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// mics doctor: prints what this build and this machine can do (src/measure/machine.c).
#include "base/nccl.h"
#include "base/network.h"
#include "cli.h"
#include "measure/measure.h"
#include "printer.h"
#include <math.h>

static const cli_option flags[] = {CLI_JSON(cli_report)};

#if defined(__clang__)
#define COMPILER "clang " __clang_version__
#else
#define COMPILER "gcc " __VERSION__
#endif

#if defined(_OPENMP)
#define OPENMP "OpenMP"
#else
#define OPENMP "no OpenMP"
#endif

// ---- GPUs ----

static void print_link_pairs(const cli_report *r, const int32_t pairs[MICS_CUDA_LINK_FAST + 1])
{
    static const char *const ways[] = {[MICS_CUDA_LINK_HOST] = "through the host's memory",
                                       [MICS_CUDA_LINK_PEER] = "by PCIe directly",
                                       [MICS_CUDA_LINK_FAST] = "by NVLink"};
    int32_t all = 0;
    for (int link = 0; link <= MICS_CUDA_LINK_FAST; link++)
        all += pairs[link];
    if (all == 0)
        return;
    cli_print(r, "links     %d pair%s", (int)all, cli_plural(all));
    const char *before = ": ";
    for (int link = MICS_CUDA_LINK_FAST; link >= 0; link--) {
        if (pairs[link] == 0)
            continue;
        cli_print(r, "%s%d %s", before, (int)pairs[link], ways[link]);
        before = ", ";
    }
    cli_print(r, "\n");
}

static void print_gpu(cli_report *r, int32_t gpu, int32_t devices)
{
    static const char *const links[] = {[MICS_CUDA_LINK_HOST] = "host",
                                        [MICS_CUDA_LINK_PEER] = "pcie",
                                        [MICS_CUDA_LINK_FAST] = "nvlink"};
    const mics_device_info info = measure_gpu_info(gpu);
    cli_print(r, "GPU %-5d %s, %s; %s\n", (int)gpu, info.name,
              cli_size((double)info.memory_total_bytes).text, info.detail);
    cli_open(r, NULL, '{', false);
    CLI_ROW(r, cli_name("name", info.name),
            cli_int("memory_total_bytes", (int64_t)info.memory_total_bytes),
            cli_name("detail", info.detail));
    cli_open(r, "links", '[', false);
    for (int32_t other = 0; r->json && other < devices; other++)
        CLI_ROW(r, cli_words(NULL, other == gpu ? "self" : links[measure_gpu_link(gpu, other)]));
    cli_close(r);
    cli_close(r);
}

static void print_gpus(cli_report *r, const measure_machine *found)
{
    const mics_cuda_findings *cuda = found->cuda;
    const double network = mics_network_bytes_per_s(NULL);
    const char *why_not = NULL, *cudnn = mics_cuda_find_cudnn(&why_not);
    if (cuda->devices == 0)
        cli_print(r, "GPU       none can be used: %s\n", cuda->why_not);
    cli_open(r, "gpu", '{', false);
    CLI_ROW(r, cli_flag("usable", cuda->devices > 0), cli_name("why_not", cuda->why_not),
            cli_name("plugin", cuda->plugin_path), cli_name("driver", cuda->driver),
            cli_name("runtime", cuda->runtime), cli_name("nccl", cuda->nccl),
            cli_name("cudnn", cudnn));
    cli_open(r, "devices", '[', false);
    for (int32_t i = 0; i < cuda->devices; i++)
        print_gpu(r, i, cuda->devices);
    cli_close(r);
    cli_close(r);
    if (cuda->plugin)
        cli_print(r, "CUDA      %s, built for %s; driver for %s\nNCCL      %s\n", cuda->plugin_path,
                  cuda->runtime, cuda->driver[0] != '\0' ? cuda->driver : "none",
                  cuda->nccl[0] != '\0'
                      ? cuda->nccl
                      : "not found (libnccl.so.2): several GPUs need it; one GPU does not");
    if (cuda->plugin)
        cli_print(r, "cuDNN     %s%s%s\n", cudnn, cudnn[0] != '\0' ? " " : "",
                  why_not != NULL ? why_not : "(for run.attention)");
    print_link_pairs(r, found->gpu_pairs);
    if (network > 0)
        cli_print(r,
                  "network   RDMA ports of %.0f Gb/s together: NCCL has up to %d CTAs between "
                  "nodes\n",
                  network * 8e-9, (int)mics_nccl_read_ctas(1, network).inter);
    CLI_ROW(r, cli_number("network_gb_per_s", network * 1e-9));
}

// ---- the report ----

static void print_kernels(const cli_report *r, const measure_machine *found)
{
    cli_print(r, "kernels   %s", found->kernels);
    for (int32_t i = 0; i < found->other_kernel_count; i++)
        cli_print(r, "%s%s", i == 0 ? " (also: " : ", ", found->other_kernels[i]);
    cli_print(r, "%s\nGEMM      %s: %.0f GFLOP/s on one thread, %.0f on %d (fp32, %d x %d x %d)\n",
              found->other_kernel_count > 0 ? ")" : "", found->gemm_library, found->gflops_one,
              found->gflops_all, (int)found->machine.cores, (int)found->gemm_size,
              (int)found->gemm_size, (int)found->gemm_size);
    cli_print(r,
              "          (OpenBLAS up to 0.3.21 takes newer Xeons for old ones and runs at a fifth "
              "of their speed;\n           this program does not use OpenBLAS)\n");
}

static double rounded(double value, double to)
{
    return round(value * to) / to;
}

static void print_machine(cli_report *r, const measure_machine *found)
{
    const mics_machine *m = &found->machine;
    cli_print(r, "mics      %s, %s, %s\n", MICS_VERSION, COMPILER, OPENMP);
    CLI_ROW(r, cli_words("version", MICS_VERSION), cli_name("compiler", COMPILER),
            cli_flag("openmp", OPENMP[0] == 'O'));
    cli_print(r, "CPU       %s, %d core%s for this process; %s\n", m->cpu_name, (int)m->cores,
              cli_plural(m->cores), m->isa);
    cli_print(r, "memory    %s, %s available\n", cli_size((double)m->memory_total_bytes).text,
              cli_size((double)m->memory_available_bytes).text);
    CLI_ROW(r, cli_name("cpu", m->cpu_name), cli_name("isa", m->isa), cli_int("cores", m->cores),
            cli_int("memory_total_bytes", (int64_t)m->memory_total_bytes),
            cli_int("memory_available_bytes", (int64_t)m->memory_available_bytes));
    print_kernels(r, found);
    CLI_ROW(r, cli_name("kernels", found->kernels), cli_name("matrix_library", found->gemm_library),
            cli_number("gemm_gflops_one_thread", rounded(found->gflops_one, 10)),
            cli_number("gemm_gflops_all_cores", rounded(found->gflops_all, 10)),
            cli_number("cores_had", rounded(found->cores_had, 100)));
    cli_print(r, "MPI       %s, %s\n", found->mpi != NULL ? found->mpi : "not in this build",
              found->mpi_launched ? "under its launcher"
                                  : "not under a launcher: ranks are threads");
    CLI_ROW(r, cli_name("mpi", found->mpi), cli_flag("mpi_launched", found->mpi_launched));
    print_gpus(r, found);
    cli_open(r, "advice", '[', false);
    for (int32_t i = 0; i < found->advice_count; i++) {
        cli_print(r, "advice    %s\n", found->advice[i]);
        CLI_ROW(r, cli_words(NULL, found->advice[i]));
    }
    cli_close(r);
}

static mics_status run_doctor(cli_call *call)
{
    measure_machine found;
    cli_report report = {.digits = 9};
    MICS_TRY(cli_parse(call, &report));
    call->running = true;
    MICS_TRY(measure_machine_read(call->memory, &found));
    cli_open(&report, NULL, '{', false);
    print_machine(&report, &found);
    cli_close(&report);
    return MICS_OK;
}

const cli_verb cmd_doctor = {
    .name = "doctor",
    .summary = "what this build and this machine can do",
    .arguments = "",
    .about = "Prints what this build and this machine can do, times GEMMs for half a second, and "
             "says what\n"
             "could be better.",
    CLI_OPTIONS(flags),
    .run = run_doctor,
};
