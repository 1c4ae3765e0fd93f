// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// mics doctor: prints what this build and this machine can do (src/measure/machine.c).
#include "base/nccl.h"
#include "base/network.h"
#include "cli.h"
#include "io/report/printer.h"
#include "measure/measure.h"
#include <math.h>

static const cli_option flags[] = {CELL_JSON(printer)};

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

static void print_link_pairs(const printer *r, const int32_t pairs[MICS_CUDA_LINK_FAST + 1])
{
    static const char *const ways[] = {[MICS_CUDA_LINK_HOST] = "through the host's memory",
                                       [MICS_CUDA_LINK_PEER] = "by PCIe directly",
                                       [MICS_CUDA_LINK_FAST] = "by NVLink"};
    int32_t all = 0;
    for (int link = 0; link <= MICS_CUDA_LINK_FAST; link++)
        all += pairs[link];
    if (all == 0)
        return;
    printer_text(r, "links     %d pair%s", (int)all, text_plural(all));
    const char *before = ": ";
    for (int link = MICS_CUDA_LINK_FAST; link >= 0; link--) {
        if (pairs[link] == 0)
            continue;
        printer_text(r, "%s%d %s", before, (int)pairs[link], ways[link]);
        before = ", ";
    }
    printer_text(r, "\n");
}

static void print_gpu(printer *r, int32_t gpu, int32_t devices)
{
    static const char *const links[] = {[MICS_CUDA_LINK_HOST] = "host",
                                        [MICS_CUDA_LINK_PEER] = "pcie",
                                        [MICS_CUDA_LINK_FAST] = "nvlink"};
    const mics_device_info info = measure_gpu_info(gpu);
    printer_text(r, "GPU %-5d %s, %s; %s\n", (int)gpu, info.name,
                 text_size((double)info.memory_total_bytes).text, info.detail);
    printer_open(r, NULL, '{', false);
    PRINTER_ROW(r, cell_name("name", info.name),
                cell_int("memory_total_bytes", (int64_t)info.memory_total_bytes),
                cell_name("detail", info.detail));
    printer_open(r, "links", '[', false);
    for (int32_t other = 0; r->json && other < devices; other++)
        PRINTER_ROW(r,
                    cell_words(NULL, other == gpu ? "self" : links[measure_gpu_link(gpu, other)]));
    printer_close(r);
    printer_close(r);
}

static void print_gpus(printer *r, const measure_machine *found)
{
    const mics_cuda_findings *cuda = found->cuda;
    const double network = mics_network_bytes_per_s(NULL);
    const char *why_not = NULL, *cudnn = mics_cuda_find_cudnn(&why_not);
    if (cuda->devices == 0)
        printer_text(r, "GPU       none can be used: %s\n", cuda->why_not);
    printer_open(r, "gpu", '{', false);
    PRINTER_ROW(r, cell_flag("usable", cuda->devices > 0), cell_name("why_not", cuda->why_not),
                cell_name("plugin", cuda->plugin_path), cell_name("driver", cuda->driver),
                cell_name("runtime", cuda->runtime), cell_name("nccl", cuda->nccl),
                cell_name("cudnn", cudnn));
    printer_open(r, "devices", '[', false);
    for (int32_t i = 0; i < cuda->devices; i++)
        print_gpu(r, i, cuda->devices);
    printer_close(r);
    printer_close(r);
    if (cuda->plugin)
        printer_text(r, "CUDA      %s, built for %s; driver for %s\nNCCL      %s\n",
                     cuda->plugin_path, cuda->runtime,
                     cuda->driver[0] != '\0' ? cuda->driver : "none",
                     cuda->nccl[0] != '\0'
                         ? cuda->nccl
                         : "not found (libnccl.so.2): several GPUs need it; one GPU does not");
    if (cuda->plugin)
        printer_text(r, "cuDNN     %s%s%s\n", cudnn, cudnn[0] != '\0' ? " " : "",
                     why_not != NULL ? why_not : "(for run.attention)");
    print_link_pairs(r, found->gpu_pairs);
    if (network > 0)
        printer_text(r,
                     "network   RDMA ports of %.0f Gb/s together: NCCL has up to %d CTAs between "
                     "nodes\n",
                     network * 8e-9, (int)mics_nccl_read_ctas(1, network).inter);
    PRINTER_ROW(r, cell_number("network_gb_per_s", network * 1e-9));
}

// ---- the report ----

static void print_kernels(const printer *r, const measure_machine *found)
{
    printer_text(r, "kernels   %s", found->kernels);
    for (int32_t i = 0; i < found->other_kernel_count; i++)
        printer_text(r, "%s%s", i == 0 ? " (also: " : ", ", found->other_kernels[i]);
    printer_text(r,
                 "%s\nGEMM      %s: %.0f GFLOP/s on one thread, %.0f on %d (fp32, %d x %d x %d)\n",
                 found->other_kernel_count > 0 ? ")" : "", found->gemm_library, found->gflops_one,
                 found->gflops_all, (int)found->machine.cores, (int)found->gemm_size,
                 (int)found->gemm_size, (int)found->gemm_size);
    printer_text(
        r, "          (OpenBLAS up to 0.3.21 takes newer Xeons for old ones and runs at a fifth "
           "of their speed;\n           this program does not use OpenBLAS)\n");
}

static double rounded(double value, double to)
{
    return round(value * to) / to;
}

static void print_machine(printer *r, const measure_machine *found)
{
    const mics_machine *m = &found->machine;
    printer_text(r, "mics      %s, %s, %s\n", MICS_VERSION, COMPILER, OPENMP);
    PRINTER_ROW(r, cell_words("version", MICS_VERSION), cell_name("compiler", COMPILER),
                cell_flag("openmp", OPENMP[0] == 'O'));
    printer_text(r, "CPU       %s, %d core%s for this process; %s\n", m->cpu_name, (int)m->cores,
                 text_plural(m->cores), m->isa);
    printer_text(r, "memory    %s, %s available\n", text_size((double)m->memory_total_bytes).text,
                 text_size((double)m->memory_available_bytes).text);
    PRINTER_ROW(r, cell_name("cpu", m->cpu_name), cell_name("isa", m->isa),
                cell_int("cores", m->cores),
                cell_int("memory_total_bytes", (int64_t)m->memory_total_bytes),
                cell_int("memory_available_bytes", (int64_t)m->memory_available_bytes));
    print_kernels(r, found);
    PRINTER_ROW(r, cell_name("kernels", found->kernels),
                cell_name("matrix_library", found->gemm_library),
                cell_number("gemm_gflops_one_thread", rounded(found->gflops_one, 10)),
                cell_number("gemm_gflops_all_cores", rounded(found->gflops_all, 10)),
                cell_number("cores_had", rounded(found->cores_had, 100)));
    printer_text(r, "MPI       %s, %s\n", found->mpi != NULL ? found->mpi : "not in this build",
                 found->mpi_launched ? "under its launcher"
                                     : "not under a launcher: ranks are threads");
    PRINTER_ROW(r, cell_name("mpi", found->mpi), cell_flag("mpi_launched", found->mpi_launched));
    print_gpus(r, found);
    printer_open(r, "advice", '[', false);
    for (int32_t i = 0; i < found->advice_count; i++) {
        printer_text(r, "advice    %s\n", found->advice[i]);
        PRINTER_ROW(r, cell_words(NULL, found->advice[i]));
    }
    printer_close(r);
}

static mics_status run_doctor(cli_call *call)
{
    measure_machine found;
    printer report = {.digits = 9};
    MICS_TRY(cli_parse(call, &report));
    call->running = true;
    MICS_TRY(measure_machine_read(call->memory, &found));
    printer_open(&report, NULL, '{', false);
    print_machine(&report, &found);
    printer_close(&report);
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
