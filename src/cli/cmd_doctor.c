// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// mics doctor: prints what this build and this machine can do (src/measure/machine.c).
#include "base/nccl.h"
#include "base/network.h"
#include "base/size.h"
#include "base/text.h"
#include "cli.h"
#include "measure/measure.h"
#include <stdio.h>

static const char about[] =
    "Prints what this build and this machine can do, times GEMMs for half a second, and says what\n"
    "could be better.";

static mics_status parse(cli_call *call, bool *json)
{
    const cli_option table[] = {
        {"json", CLI_FLAG, NULL, "print one JSON object", json, 0, 0},
    };
    const cli_spec spec = {
        .verb = "doctor",
        .arguments = "",
        .about = about,
        .options = table,
        .option_count = sizeof table / sizeof table[0],
    };
    return cli_parse(call, &spec);
}

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

// ---- text ----

static void print_links(const int32_t pairs[MICS_CUDA_LINK_FAST + 1])
{
    static const char *const ways[] = {[MICS_CUDA_LINK_HOST] = "through the host's memory",
                                       [MICS_CUDA_LINK_PEER] = "by PCIe directly",
                                       [MICS_CUDA_LINK_FAST] = "by NVLink"};
    int32_t all = 0;
    for (int link = 0; link <= MICS_CUDA_LINK_FAST; link++)
        all += pairs[link];
    if (all == 0)
        return;
    printf("links     %d pair%s", (int)all, all == 1 ? "" : "s");
    const char *before = ": ";
    for (int link = MICS_CUDA_LINK_FAST; link >= 0; link--) {
        if (pairs[link] == 0)
            continue;
        printf("%s%d %s", before, (int)pairs[link], ways[link]);
        before = ", ";
    }
    printf("\n");
}

static void print_gpus(const measure_machine *found)
{
    const mics_cuda_findings *cuda = found->cuda;
    const double network = mics_network_bytes_per_s(NULL);
    char total[32];
    if (cuda->devices == 0)
        printf("GPU       none can be used: %s\n", cuda->why_not);
    for (int32_t i = 0; i < cuda->devices; i++) {
        const mics_device_info info = measure_gpu_info(i);
        printf("GPU %-5d %s, %s; %s\n", (int)i, info.name,
               mics_size_text((double)info.memory_total_bytes, total, sizeof total), info.detail);
    }
    if (cuda->plugin) {
        printf("CUDA      %s, built for %s; driver for %s\n", cuda->plugin_path, cuda->runtime,
               cuda->driver[0] != '\0' ? cuda->driver : "none");
        printf("NCCL      %s\n",
               cuda->nccl[0] != '\0'
                   ? cuda->nccl
                   : "not found (libnccl.so.2): several GPUs need it; one GPU does not");
    }
    print_links(found->gpu_pairs);
    if (network > 0)
        printf("network   RDMA ports of %.0f Gb/s together: NCCL has up to %d CTAs between nodes\n",
               network * 8e-9, (int)mics_nccl_read_ctas(1, network).inter);
}

static void print_text(const measure_machine *found)
{
    const mics_machine *machine = &found->machine;
    char total[32], available[32];
    printf("mics      %s, %s, %s\n", MICS_VERSION, COMPILER, OPENMP);
    printf("CPU       %s, %d core%s for this process; %s\n", machine->cpu_name, (int)machine->cores,
           machine->cores == 1 ? "" : "s", machine->isa);
    printf("memory    %s, %s available\n",
           mics_size_text((double)machine->memory_total_bytes, total, sizeof total),
           mics_size_text((double)machine->memory_available_bytes, available, sizeof available));
    printf("kernels   %s", found->kernels);
    for (int32_t i = 0; i < found->other_kernel_count; i++)
        printf("%s%s", i == 0 ? " (also: " : ", ", found->other_kernels[i]);
    printf("%s\nGEMM      %s: %.0f GFLOP/s on one thread, %.0f on %d (fp32, %d x %d x %d)\n",
           found->other_kernel_count > 0 ? ")" : "", found->gemm_library, found->gflops_one,
           found->gflops_all, (int)machine->cores, (int)found->gemm_size, (int)found->gemm_size,
           (int)found->gemm_size);
    printf("          (OpenBLAS up to 0.3.21 takes newer Xeons for old ones and runs at a fifth of "
           "their speed;\n           this program does not use OpenBLAS)\n");
    printf("MPI       %s, %s\n", found->mpi != NULL ? found->mpi : "not in this build",
           found->mpi_launched ? "under its launcher" : "not under a launcher: ranks are threads");
    print_gpus(found);
    for (int32_t i = 0; i < found->advice_count; i++)
        printf("advice    %s\n", found->advice[i]);
}

// ---- JSON ----

// A key and its text; null for none.
static void write_text(const char *name, const char *text, const char *behind)
{
    printf("\"%s\": ", name);
    if (text != NULL && text[0] != '\0')
        mics_text_write_quoted(stdout, text);
    else
        printf("null");
    printf("%s", behind);
}

static void write_gpu(int32_t gpu, int32_t devices)
{
    static const char *const links[] = {[MICS_CUDA_LINK_HOST] = "host",
                                        [MICS_CUDA_LINK_PEER] = "pcie",
                                        [MICS_CUDA_LINK_FAST] = "nvlink"};
    const mics_device_info info = measure_gpu_info(gpu);
    printf("%s{", gpu > 0 ? ", " : "");
    write_text("name", info.name, ", ");
    printf("\"memory_total_bytes\": %zu, ", info.memory_total_bytes);
    write_text("detail", info.detail, ", ");
    printf("\"links\": [");
    for (int32_t other = 0; other < devices; other++)
        printf("%s\"%s\"", other > 0 ? ", " : "",
               other == gpu ? "self" : links[measure_gpu_link(gpu, other)]);
    printf("]}");
}

static void write_gpus(const mics_cuda_findings *cuda)
{
    printf("{\"usable\": %s, ", cuda->devices > 0 ? "true" : "false");
    write_text("why_not", cuda->why_not, ", ");
    write_text("plugin", cuda->plugin_path, ", ");
    write_text("driver", cuda->driver, ", ");
    write_text("runtime", cuda->runtime, ", ");
    write_text("nccl", cuda->nccl, ", \"devices\": [");
    for (int32_t i = 0; i < cuda->devices; i++)
        write_gpu(i, cuda->devices);
    printf("]}");
}

static void print_json(const measure_machine *found)
{
    const mics_machine *machine = &found->machine;
    printf("{\"version\": \"%s\", ", MICS_VERSION);
    write_text("compiler", COMPILER, ", ");
    printf("\"openmp\": %s, ", OPENMP[0] == 'O' ? "true" : "false");
    write_text("cpu", machine->cpu_name, ", ");
    write_text("isa", machine->isa, ", ");
    printf("\"cores\": %d, \"memory_total_bytes\": %zu, \"memory_available_bytes\": %zu, ",
           (int)machine->cores, machine->memory_total_bytes, machine->memory_available_bytes);
    write_text("kernels", found->kernels, ", ");
    write_text("matrix_library", found->gemm_library, ", ");
    printf(
        "\"gemm_gflops_one_thread\": %.1f, \"gemm_gflops_all_cores\": %.1f, \"cores_had\": %.2f, ",
        found->gflops_one, found->gflops_all, found->cores_had);
    write_text("mpi", found->mpi, ", ");
    printf("\"mpi_launched\": %s, \"gpu\": ", found->mpi_launched ? "true" : "false");
    write_gpus(found->cuda);
    printf(", \"advice\": [");
    for (int32_t i = 0; i < found->advice_count; i++) {
        printf("%s", i > 0 ? ", " : "");
        mics_text_write_quoted(stdout, found->advice[i]);
    }
    printf("]}\n");
}

mics_status cmd_doctor(cli_call *call)
{
    measure_machine found;
    bool json = false;
    MICS_TRY(parse(call, &json));
    if (call->helped)
        return MICS_OK;
    call->running = true;
    MICS_TRY(measure_machine_read(call->memory, &found));
    (json ? print_json : print_text)(&found);
    return MICS_OK;
}
