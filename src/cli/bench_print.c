// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// What mics bench measured, as tables and as JSON.
#include "base/text.h"
#include "bench.h"
#include "mics/size.h"

static double predicted_us(const bench_place *place, const mics_cluster *cluster,
                           const bench_row *row)
{
    mics_collective stages[3] = {row->collective};
    double us = 0;
    int32_t count = 1;
    if (row->staged)
        count = mics_cost_stages(cluster, &row->collective, stages);
    for (int32_t i = 0; i < count; i++)
        us += mics_cost_collective(cluster, place->ranks, &stages[i]).us;
    return us;
}

static void print_sizes(const char *title, const mics_curve *curve, FILE *out)
{
    fprintf(out, "  %-21s", title);
    for (int32_t i = 0; i < curve->count; i++)
        fprintf(out, " %9.3g", curve->size[i]);
    fprintf(out, "\n");
}

static void print_values(const char *title, const mics_curve *curve, double unit, int digits,
                         FILE *out)
{
    fprintf(out, "  %-21s", title);
    for (int32_t i = 0; i < curve->count; i++)
        fprintf(out, " %9.*f", digits, curve->value[i] * unit);
    fprintf(out, "\n");
}

static void print_tier(const char *name, const bench_tier *tier, FILE *out)
{
    char size[32];
    if (tier->ramp.count == 0)
        return;
    fprintf(
        out,
        "%s: latency %.1f us, link %.3f GB/s, %.0f us of a core a MB; computation beside it takes "
        "%.2f times\n",
        name, tier->latency_us, tier->link_bytes_per_s / 1e9, tier->core_us_per_byte * 1e6,
        1 + tier->slowdown);
    fprintf(out, "  message of one rank  ");
    for (int32_t i = 0; i < tier->ramp.count; i++)
        fprintf(out, " %9s", mics_size_text(tier->ramp.size[i], size, sizeof size));
    fprintf(out, "\n");
    print_values("GB/s, copied", &tier->ramp, 1e-9, 3, out);
    print_values("GB/s, added", &tier->reduce_ramp, 1e-9, 3, out);
    print_sizes("threads a core", &tier->beside_us, out);
    print_values("late by us a message", &tier->beside_us, 1, 0, out);
    print_values("and by us a MB", &tier->beside_us_per_byte, 1e6, 0, out);
}

static void print_place(const bench_place *place, FILE *out)
{
    fprintf(out, "%d node%s of %d rank%s (%s), %d thread%s a rank%s\n", (int)place->nodes,
            place->nodes == 1 ? "" : "s", (int)place->per_node, place->per_node == 1 ? "" : "s",
            place->mpi ? "MPI processes" : "threads of one process", (int)place->threads,
            place->threads == 1 ? "" : "s",
            place->shared ? "; all share the cores of one machine" : "");
}

void bench_print_links(const bench_place *place, const bench_links *links,
                       const mics_cluster *cluster, FILE *out)
{
    char size[32];
    print_place(place, out);
    print_tier("in a node", &links->near, out);
    print_tier("between nodes", &links->far, out);
    if (links->reduce_bytes_per_s > 0)
        fprintf(out, "what is received is added at %.2f GB/s\n", links->reduce_bytes_per_s / 1e9);
    if (links->row_count > 0)
        fprintf(out, "%-28s %10s %12s %12s\n", "collective", "block", "measured us",
                "predicted us");
    for (int32_t i = 0; i < links->row_count; i++) {
        const bench_row *row = &links->rows[i];
        fprintf(out, "%-28s %10s %12.0f %12.0f\n", row->name,
                mics_size_text(row->collective.block_bytes, size, sizeof size), row->us,
                predicted_us(place, cluster, row));
    }
}

static void print_curve(const char *title, const mics_curve *curve, double unit, FILE *out)
{
    fprintf(out, "  %-21s", title);
    for (int32_t i = 0; i < curve->count; i++)
        fprintf(out, " %9.0f", curve->size[i]);
    fprintf(out, "\n");
    print_values("GFLOP/s", curve, unit / 1e9, 1, out);
}

void bench_print_compute(const bench_place *place, const bench_compute *compute, FILE *out)
{
    print_place(place, out);
    fprintf(out, "%s: fastest product %.1f GFLOP/s, which counts as the peak\n", compute->cpu_name,
            compute->flops_per_s / 1e9);
    print_curve("smallest dimension", &compute->matmul_efficiency, compute->flops_per_s, out);
    if (compute->attention_efficiency.count > 0)
        print_curve("attention, length", &compute->attention_efficiency, compute->flops_per_s, out);
    fprintf(
        out,
        "  memory %.2f GB/s, the model's ops that move it %.2f GB/s, update %.2f GB/s, launch "
        "%.2f us\n"
        "  in training a pass of a micro-step takes %.1f ms, %.2f times the sum of its ops alone "
        "(counted in above); a step %.1f ms more\n",
        compute->stream_bytes_per_s / 1e9, compute->elementwise_bytes_per_s / 1e9,
        compute->update_bytes_per_s / 1e9, compute->launch_us, compute->pass_us / 1e3,
        compute->training_factor, compute->step_overhead_us / 1e3);
}

// ---- JSON ----

static void json_curve(const char *key, const mics_curve *curve, double unit, FILE *out)
{
    fprintf(out, "\"%s\": [", key);
    for (int32_t i = 0; i < curve->count; i++)
        fprintf(out, "%s[%.6g, %.6g]", i == 0 ? "" : ", ", curve->size[i], curve->value[i] / unit);
    fprintf(out, "]");
}

static void json_tier(const char *key, const bench_tier *tier, FILE *out)
{
    if (tier->ramp.count == 0) {
        fprintf(out, "\"%s\": null", key);
        return;
    }
    fprintf(out,
            "\"%s\": {\"latency_us\": %.6g, \"link_gb_per_s\": %.6g, \"core_us_per_mb\": %.6g, "
            "\"slowdown\": %.6g, ",
            key, tier->latency_us, tier->link_bytes_per_s / 1e9, tier->core_us_per_byte * 1e6,
            tier->slowdown);
    json_curve("rank_gb_per_s", &tier->ramp, 1e9, out);
    fprintf(out, ", ");
    json_curve("reduce_gb_per_s", &tier->reduce_ramp, 1e9, out);
    fprintf(out, ", ");
    json_curve("beside_us", &tier->beside_us, 1, out);
    fprintf(out, ", ");
    json_curve("beside_us_per_mb", &tier->beside_us_per_byte, 1e-6, out);
    fprintf(out, "}");
}

void bench_json_links(const bench_place *place, const bench_links *links,
                      const mics_cluster *cluster, FILE *out)
{
    fprintf(out, "{\"seconds\": %.3g, ", links->took_s);
    json_tier("node", &links->near, out);
    fprintf(out, ", ");
    json_tier("network", &links->far, out);
    fprintf(out, ", \"reduce_gb_per_s\": %.6g, \"collectives\": [",
            links->reduce_bytes_per_s / 1e9);
    for (int32_t i = 0; i < links->row_count; i++) {
        const bench_row *row = &links->rows[i];
        fprintf(out,
                "%s{\"collective\": \"%s\", \"block_bytes\": %.0f, \"us\": %.6g, "
                "\"predicted_us\": %.6g}",
                i == 0 ? "" : ", ", row->name, row->collective.block_bytes, row->us,
                predicted_us(place, cluster, row));
    }
    fprintf(out, "]}");
}

void bench_json_compute(const bench_compute *compute, FILE *out)
{
    fprintf(out, "{\"seconds\": %.3g, \"processor\": ", compute->took_s);
    mics_text_write_quoted(out, compute->cpu_name);
    fprintf(out, ", \"gflops\": %.6g, ", compute->flops_per_s / 1e9);
    json_curve("matmul_efficiency", &compute->matmul_efficiency, 1, out);
    fprintf(out, ", ");
    json_curve("attention_efficiency", &compute->attention_efficiency, 1, out);
    fprintf(out,
            ", \"memory_gb_per_s\": %.6g, \"elementwise_gb_per_s\": %.6g, \"update_gb_per_s\": "
            "%.6g, \"launch_us\": %.6g, \"pass_ms\": %.6g, \"training_factor\": %.6g, "
            "\"step_overhead_us\": %.6g}",
            compute->stream_bytes_per_s / 1e9, compute->elementwise_bytes_per_s / 1e9,
            compute->update_bytes_per_s / 1e9, compute->launch_us, compute->pass_us / 1e3,
            compute->training_factor, compute->step_overhead_us);
}
