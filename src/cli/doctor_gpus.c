// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// GPUs in mics doctor: plugin, driver, NCCL, each GPU, how they reach each other, and why not.
#include "base/text.h"
#include "doctor.h"
#include "mics/device.h"
#include "mics/size.h"
#include <stdbool.h>
#include <stdio.h>

// ---- links ----

// Pairs of GPUs by their link; of both directions the worse counts.
typedef struct link_counts {
    int32_t host, peer, fast, pairs;
} link_counts;

static link_counts count_links(int32_t devices)
{
    link_counts counts = {0};
    for (int32_t a = 0; a < devices; a++) {
        for (int32_t b = a + 1; b < devices; b++) {
            const mics_cuda_link_kind to = mics_cuda_link(a, b), from = mics_cuda_link(b, a);
            const mics_cuda_link_kind link = to < from ? to : from;
            counts.host += link == MICS_CUDA_LINK_HOST;
            counts.peer += link == MICS_CUDA_LINK_PEER;
            counts.fast += link == MICS_CUDA_LINK_FAST;
            counts.pairs++;
        }
    }
    return counts;
}

static void print_links(int32_t devices)
{
    const link_counts counts = count_links(devices);
    if (counts.pairs == 0)
        return;
    printf("links     %d pair%s:", (int)counts.pairs, counts.pairs == 1 ? "" : "s");
    const char *before = " ";
    if (counts.fast > 0) {
        printf("%s%d by NVLink", before, (int)counts.fast);
        before = ", ";
    }
    if (counts.peer > 0) {
        printf("%s%d by PCIe directly", before, (int)counts.peer);
        before = ", ";
    }
    if (counts.host > 0)
        printf("%s%d through the host's memory", before, (int)counts.host);
    printf("\n");
}

static const char *link_name(mics_cuda_link_kind link)
{
    return link == MICS_CUDA_LINK_FAST ? "nvlink" : link == MICS_CUDA_LINK_PEER ? "pcie" : "host";
}

// ---- text ----

static void print_devices(int32_t devices)
{
    for (int32_t i = 0; i < devices; i++) {
        mics_device_info info;
        char total[32];
        if (mics_cuda_device_info(i, &info) != MICS_OK)
            continue;
        printf("GPU %-5d %s, %s; %s\n", (int)i, info.name,
               mics_size_text((double)info.memory_total_bytes, total, sizeof total), info.detail);
    }
}

void cli_doctor_gpus_text(void)
{
    const mics_cuda_findings *found = mics_cuda_find();
    if (found->devices == 0)
        printf("GPU       none can be used: %s\n", found->why_not);
    print_devices(found->devices);
    if (found->plugin) {
        printf("CUDA      %s, built for %s; driver for %s\n", found->plugin_path, found->runtime,
               found->driver[0] != '\0' ? found->driver : "none");
        printf("NCCL      %s\n",
               found->nccl[0] != '\0'
                   ? found->nccl
                   : "not found (libnccl.so.2): several GPUs need it; one GPU does not");
    }
    print_links(found->devices);
}

// ---- JSON ----

static void write_text(const char *name, const char *text)
{
    printf("\"%s\": ", name);
    if (text[0] != '\0')
        mics_text_write_quoted(stdout, text);
    else
        printf("null");
}

static void write_devices(int32_t devices)
{
    printf("\"devices\": [");
    for (int32_t i = 0; i < devices; i++) {
        mics_device_info info;
        if (mics_cuda_device_info(i, &info) != MICS_OK)
            info = (mics_device_info){.name = "unknown"};
        printf("%s{", i > 0 ? ", " : "");
        write_text("name", info.name);
        printf(", \"memory_total_bytes\": %zu, ", info.memory_total_bytes);
        write_text("detail", info.detail);
        printf(", \"links\": [");
        for (int32_t other = 0; other < devices; other++)
            printf("%s\"%s\"", other > 0 ? ", " : "",
                   other == i ? "self" : link_name(mics_cuda_link(i, other)));
        printf("]}");
    }
    printf("]");
}

void cli_doctor_gpus_json(void)
{
    const mics_cuda_findings *found = mics_cuda_find();
    printf("{\"usable\": %s, ", found->devices > 0 ? "true" : "false");
    write_text("why_not", found->why_not);
    printf(", ");
    write_text("plugin", found->plugin_path);
    printf(", ");
    write_text("driver", found->driver);
    printf(", ");
    write_text("runtime", found->runtime);
    printf(", ");
    write_text("nccl", found->nccl);
    printf(", ");
    write_devices(found->devices);
    printf("}");
}
