// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// What mics bench measured, as tables and as JSON.
#include "base/size.h"
#include "base/text.h"
#include "bench.h"
#include <stdio.h>
#include <string.h>

// ---- tables ----

// A line of a curve: sizes, or values times `unit`.
static void print_sizes(const char *title, const mics_curve *curve, int digits)
{
    printf("  %-21s", title);
    for (int32_t i = 0; i < curve->count; i++)
        printf(" %9.*g", digits, curve->size[i]);
    printf("\n");
}

static void print_values(const char *title, const mics_curve *curve, double unit, int digits)
{
    printf("  %-21s", title);
    for (int32_t i = 0; i < curve->count; i++)
        printf(" %9.*f", digits, curve->value[i] * unit);
    printf("\n");
}

static void print_tier(const char *name, const measure_tier *tier)
{
    char size[32];
    if (tier->ramp.count == 0)
        return;
    printf("%s: latency %.1f us, link %.3f GB/s, %.0f us of a core a MB; computation beside it "
           "takes %.2f times\n",
           name, tier->latency_us, tier->link_bytes_per_s / 1e9, tier->core_us_per_byte * 1e6,
           1 + tier->slowdown);
    printf("  message of one rank  ");
    for (int32_t i = 0; i < tier->ramp.count; i++)
        printf(" %9s", mics_size_text(tier->ramp.size[i], size, sizeof size));
    printf("\n");
    print_values("GB/s, copied", &tier->ramp, 1e-9, 3);
    print_values("GB/s, added", &tier->reduce_ramp, 1e-9, 3);
    print_sizes("threads a core", &tier->beside_us, 3);
    print_values("late by us a message", &tier->beside_us, 1, 0);
    print_values("and by us a MB", &tier->beside_us_per_byte, 1e6, 0);
}

static void print_place(const measure_place *place)
{
    if (place->gpu) {
        printf("%d node%s of %d rank%s (%s), each on a GPU: %s; collectives %s\n",
               (int)place->nodes, place->nodes == 1 ? "" : "s", (int)place->per_node,
               place->per_node == 1 ? "" : "s",
               place->mpi ? "MPI processes" : "threads of one process", place->chip,
               strcmp(place->transport, "nccl") == 0 ? "by NCCL" : "through host memory");
        return;
    }
    printf("%d node%s of %d rank%s (%s), %d thread%s a rank%s\n", (int)place->nodes,
           place->nodes == 1 ? "" : "s", (int)place->per_node, place->per_node == 1 ? "" : "s",
           place->mpi ? "MPI processes" : "threads of one process", (int)place->threads,
           place->threads == 1 ? "" : "s",
           place->shared ? "; all share the cores of one machine" : "");
}

static void print_links(const measure_place *place, const measure_links *links)
{
    char size[32];
    print_place(place);
    print_tier("intra-node", &links->intra);
    print_tier("inter-node", &links->inter);
    if (links->reduce_bytes_per_s > 0)
        printf("what is received is added at %.2f GB/s\n", links->reduce_bytes_per_s / 1e9);
    if (links->row_count > 0)
        printf("%-28s %10s %12s %12s\n", "collective", "block", "measured us", "predicted us");
    for (int32_t i = 0; i < links->row_count; i++) {
        const measure_row *row = &links->rows[i];
        printf("%-28s %10s %12.0f %12.0f\n", row->name,
               mics_size_text(row->collective.block_bytes, size, sizeof size), row->us,
               row->predicted_us);
    }
}

static void print_efficiency(const char *title, const mics_curve *curve, double flops_per_s)
{
    print_sizes(title, curve, 9);
    print_values("GFLOP/s", curve, flops_per_s / 1e9, 1);
}

static void print_compute(const measure_place *place, const measure_compute *compute)
{
    print_place(place);
    printf("%s: fastest GEMM %.1f GFLOP/s, which counts as the peak\n", compute->cpu_name,
           compute->flops_per_s / 1e9);
    if (compute->bf16_flops_per_s > 0)
        printf("  in bf16 %.1f GFLOP/s, as steps in it say\n", compute->bf16_flops_per_s / 1e9);
    print_efficiency("smallest dimension", &compute->matmul_efficiency, compute->flops_per_s);
    if (compute->attention_efficiency.count > 0)
        print_efficiency("attention, length", &compute->attention_efficiency, compute->flops_per_s);
    printf(
        "  memory %.2f GB/s, the model's ops that move it %.2f GB/s, update %.2f GB/s, launch "
        "%.2f us\n"
        "  in training a pass of a micro-step takes %.1f ms, %.2f times the sum of its ops alone "
        "(counted in above); a step %.1f ms more\n",
        compute->stream_bytes_per_s / 1e9, compute->elementwise_bytes_per_s / 1e9,
        compute->update_bytes_per_s / 1e9, compute->launch_us, compute->pass_us / 1e3,
        compute->training_factor, compute->step_overhead_us / 1e3);
    if (compute->host_bytes_per_s > 0)
        printf("  TFLOP/s in fp32 %.3g, tf32 %.3g, fp16 %.3g; copies to the host %.3g GB/s\n",
               compute->gpu_flops_per_s[MICS_MATH_FP32] / 1e12,
               compute->gpu_flops_per_s[MICS_MATH_TF32] / 1e12,
               compute->gpu_flops_per_s[MICS_MATH_FP16] / 1e12, compute->host_bytes_per_s / 1e9);
    printf("  a step at the end: measured %.1f ms, predicted %.1f ms\n", compute->check_us / 1e3,
           compute->check_predicted_us / 1e3);
}

void cli_bench_text(const char *file, const measure_report *report)
{
    if (report->has_links)
        print_links(&report->place, &report->links);
    if (report->has_compute)
        print_compute(&report->place, &report->compute);
    printf("%s %s\n", file, report->updated ? "updated" : "written");
}

// ---- JSON ----

static void json_curve(const char *key, const mics_curve *curve, double unit)
{
    printf(", \"%s\": [", key);
    for (int32_t i = 0; i < curve->count; i++)
        printf("%s[%.6g, %.6g]", i == 0 ? "" : ", ", curve->size[i], curve->value[i] / unit);
    printf("]");
}

static void json_tier(const char *key, const measure_tier *tier)
{
    printf(", \"%s\": ", key);
    if (tier->ramp.count == 0) {
        printf("null");
        return;
    }
    printf("{\"latency_us\": %.6g, \"link_gb_per_s\": %.6g, \"core_us_per_mb\": %.6g, "
           "\"slowdown\": %.6g",
           tier->latency_us, tier->link_bytes_per_s / 1e9, tier->core_us_per_byte * 1e6,
           tier->slowdown);
    json_curve("rank_gb_per_s", &tier->ramp, 1e9);
    json_curve("reduce_gb_per_s", &tier->reduce_ramp, 1e9);
    json_curve("beside_us", &tier->beside_us, 1);
    json_curve("beside_us_per_mb", &tier->beside_us_per_byte, 1e-6);
    printf("}");
}

static void json_links(const measure_links *links)
{
    printf("{\"seconds\": %.3g", links->took_s);
    json_tier("node", &links->intra);
    json_tier("network", &links->inter);
    printf(", \"reduce_gb_per_s\": %.6g, \"collectives\": [", links->reduce_bytes_per_s / 1e9);
    for (int32_t i = 0; i < links->row_count; i++) {
        const measure_row *row = &links->rows[i];
        printf("%s{\"collective\": \"%s\", \"block_bytes\": %.0f, \"us\": %.6g, "
               "\"predicted_us\": %.6g}",
               i == 0 ? "" : ", ", row->name, row->collective.block_bytes, row->us,
               row->predicted_us);
    }
    printf("]}");
}

static void json_compute(const measure_compute *compute)
{
    printf("{\"seconds\": %.3g, \"processor\": ", compute->took_s);
    mics_text_write_quoted(stdout, compute->cpu_name);
    printf(", \"gflops\": %.6g", compute->flops_per_s / 1e9);
    if (compute->bf16_flops_per_s > 0)
        printf(", \"bf16_gflops\": %.6g", compute->bf16_flops_per_s / 1e9);
    json_curve("matmul_efficiency", &compute->matmul_efficiency, 1);
    json_curve("attention_efficiency", &compute->attention_efficiency, 1);
    printf(", \"memory_gb_per_s\": %.6g, \"elementwise_gb_per_s\": %.6g, \"update_gb_per_s\": "
           "%.6g, \"launch_us\": %.6g, \"pass_ms\": %.6g, \"training_factor\": %.6g, "
           "\"step_overhead_us\": %.6g, \"host_gb_per_s\": %.6g, \"step_ms\": %.6g, "
           "\"predicted_step_ms\": %.6g}",
           compute->stream_bytes_per_s / 1e9, compute->elementwise_bytes_per_s / 1e9,
           compute->update_bytes_per_s / 1e9, compute->launch_us, compute->pass_us / 1e3,
           compute->training_factor, compute->step_overhead_us, compute->host_bytes_per_s / 1e9,
           compute->check_us / 1e3, compute->check_predicted_us / 1e3);
}

mics_status cli_bench_json(mics_memory *memory, const char *file, const measure_report *report)
{
    const measure_place *place = &report->place;
    char *text = NULL;
    MICS_TRY(mics_cluster_text(memory, &report->cluster, &text));
    printf("{\"file\": ");
    mics_text_write_quoted(stdout, file);
    printf(", \"ranks\": %d, \"nodes\": %d, \"threads\": %d, \"transport\": \"%s\", "
           "\"device\": \"%s\", \"collectives_by\": \"%s\", \"shared_cores\": %s, \"comm\": ",
           (int)place->ranks, (int)place->nodes, (int)place->threads,
           place->mpi ? "mpi" : "threads", place->gpu ? "cuda" : "cpu",
           place->gpu ? place->transport : (place->mpi ? "mpi" : "threads"),
           place->shared ? "true" : "false");
    if (report->has_links)
        json_links(&report->links);
    else
        printf("null");
    printf(", \"compute\": ");
    if (report->has_compute)
        json_compute(&report->compute);
    else
        printf("null");
    printf(", \"cluster\": %s}\n", text);
    mics_free(memory, text);
    return MICS_OK;
}
