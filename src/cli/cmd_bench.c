// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// mics bench: measures links and computation where it runs (src/measure), and prints them.
#include "cli.h"
#include "io/report/printer.h"
#include "measure/measure.h"
#include "mics/run.h"
#include <stdio.h>
#include <string.h>

typedef struct bench_options {
    measure_spec spec;
    const char *device;
    double minutes; // of --for
    bool json;
} bench_options;

// ---- arguments ----

#define AT(member) offsetof(bench_options, member)
// Rows that both have.
#define BENCH_OPTIONS(of_ranks, of_threads)                                                         \
    {"ranks", CLI_COUNT, "N", of_ranks, AT(spec.ranks), 1, CLI_MAX_RANKS},                          \
        {"nodes",                                                                                   \
         CLI_COUNT,                                                                                 \
         "M",                                                                                       \
         "treat the ranks as M nodes; default: what MPI finds, or 1",                               \
         AT(spec.nodes),                                                                            \
         1,                                                                                         \
         CLI_MAX_RANKS},                                                                            \
        {"threads", CLI_COUNT, "N", of_threads, AT(spec.threads), 1, 4096},                         \
        {"out",        CLI_TEXT, "FILE", "the cluster file, made or updated; default cluster.json", \
         AT(spec.out), 0,        0},                                                                \
        {"device",   CLI_TEXT,                                                                      \
         "WHAT",     "cpu, cuda or auto; default: the run's, or auto: GPUs if there are",           \
         AT(device), 0,                                                                             \
         0},                                                                                        \
        {"force",        CLI_FLAG, NULL, "write the file even where it mispredicts a step twofold", \
         AT(spec.force), 0,        0},                                                              \
        CELL_JSON(bench_options),                                                                   \
    {                                                                                               \
        "quiet", CLI_FLAG, NULL, "print nothing but warnings, errors and what --json does",         \
            AT(spec.quiet), 0, 0                                                                    \
    }

#define BENCH_SECONDS                                                                              \
    {                                                                                              \
        "seconds", CLI_REAL, "S", "of wall clock, in all; default 20", AT(spec.seconds), 0, 0      \
    }
// Of a model.
#define BENCH_SHAPE                                                                                \
    {"batch",        CLI_INT, "N",    "sequences of a micro-step; default: the run's, or 1",       \
     AT(spec.batch), 1,       1 << 20},                                                            \
    {                                                                                              \
        "sequence", CLI_INT, "N", "tokens of a sequence; default: the run's, or the model's most", \
            AT(spec.sequence), 1, 1 << 24                                                          \
    }

static const cli_option for_flags[] = {
    {"for", CLI_TEXT, "MODEL", "a run file, a config.json or its folder: what to measure for",
     AT(spec.run), 0, 0},
    {"minutes", CLI_POSITIVE, "M", "of wall clock, in all; default 5", AT(minutes), 0, 10000},
    {"cluster", CLI_TEXT, "NAME|FILE",
     "the machine, of the catalogue or a cluster file: what is not measured stays as there",
     AT(spec.offer), 0, 0},
    BENCH_SHAPE,
    CLI_SETS,
    BENCH_OPTIONS("ranks, as threads of this process; default 1",
                  "of a rank; default: run.threads, or its share of the cores"),
};

static const cli_option comm_flags[] = {
    BENCH_SECONDS,
    BENCH_OPTIONS("ranks, as threads of this process",
                  "that compute in a rank; default: its share of the cores"),
};

static const cli_option compute_flags[] = {
    {"config", CLI_TEXT, "FILE", "a Hugging Face config.json, in place of a run file",
     AT(spec.config), 0, 0},
    BENCH_SHAPE,
    CLI_SETS,
    BENCH_SECONDS,
    BENCH_OPTIONS("ranks, as threads of this process; default 1",
                  "of a rank; default: run.threads, or its share of the cores"),
};

static mics_status fail_part(const cli_call *call)
{
    static const char *const names[] = {"comm", "compute"};
    const char *name = call->argc > 0 ? call->argv[0] : "";
    const char *near = call->argc > 0 ? cli_nearest(name, names, 2) : NULL;
    if (near != NULL)
        return mics_fail(MICS_ERR_INVALID,
                         "mics bench: measures no \"%.40s\"; did you mean \"%s\"?", name, near);
    return mics_fail(MICS_ERR_INVALID,
                     "mics bench: say what to measure: mics bench --for MODEL, mics bench comm, or "
                     "mics bench compute");
}

static mics_status take_device(bench_options *options)
{
    measure_spec *spec = &options->spec;
    spec->has_device = options->device != NULL;
    for (int i = 0; spec->has_device && i <= MICS_RUN_DEVICE_CUDA; i++) {
        spec->device = (mics_run_device)i;
        if (strcmp(mics_run_device_text(spec->device), options->device) == 0)
            return MICS_OK;
    }
    if (!spec->has_device)
        return MICS_OK;
    return mics_fail(MICS_ERR_INVALID, "mics bench: --device %.40s: cpu, cuda or auto",
                     options->device);
}

static mics_status check(const cli_call *call, const bench_options *options)
{
    if (options->spec.config == NULL || (call->arguments.count == 0 && call->sets.count == 0))
        return MICS_OK;
    return mics_fail(MICS_ERR_INVALID, "mics bench compute: --config stands in place of RUN.json "
                                       "and --set; leave one out");
}

// ---- the report ----

static void write_curve(printer *r, const char *key, const mics_curve *curve, double unit)
{
    printer_open(r, key, '[', false);
    for (int32_t i = 0; i < curve->count; i++) {
        printer_open(r, NULL, '[', false);
        PRINTER_ROW(r, cell_number(NULL, curve->size[i]),
                    cell_number(NULL, curve->value[i] / unit));
        printer_close(r);
    }
    printer_close(r);
}

// A line of the text: sizes of a curve, or its values in `unit`.
static void print_sizes(const printer *r, const char *title, const mics_curve *curve, int digits)
{
    printer_text(r, "  %-21s", title);
    for (int32_t i = 0; i < curve->count; i++)
        printer_text(r, " %9.*g", digits, curve->size[i]);
    printer_text(r, "\n");
}

static void print_values(const printer *r, const char *title, const mics_curve *curve, double unit,
                         int decimals)
{
    printer_text(r, "  %-21s", title);
    for (int32_t i = 0; i < curve->count; i++)
        printer_text(r, " %9.*f", decimals, curve->value[i] / unit);
    printer_text(r, "\n");
}

static void print_tier(printer *r, const char *key, const char *name, const measure_tier *tier)
{
    if (tier->ramp.count == 0) {
        PRINTER_ROW(r, cell_null(key));
        return;
    }
    printer_text(
        r,
        "%s: latency %.1f us, link %.3f GB/s, %.0f us of a core a MB; computation beside it "
        "takes %.2f times\n  message of one rank  ",
        name, tier->latency_us, tier->link_bytes_per_s / 1e9, tier->core_us_per_byte * 1e6,
        1 + tier->slowdown);
    for (int32_t i = 0; i < tier->ramp.count; i++)
        printer_text(r, " %9s", text_size(tier->ramp.size[i]).text);
    printer_text(r, "\n");
    print_values(r, "GB/s, copied", &tier->ramp, 1e9, 3);
    print_values(r, "GB/s, added", &tier->reduce_ramp, 1e9, 3);
    print_sizes(r, "threads a core", &tier->beside_us, 3);
    print_values(r, "late by us a message", &tier->beside_us, 1, 0);
    print_values(r, "and by us a MB", &tier->beside_us_per_byte, 1e-6, 0);
    printer_open(r, key, '{', false);
    PRINTER_ROW(r, cell_number("latency_us", tier->latency_us),
                cell_number("link_gb_per_s", tier->link_bytes_per_s / 1e9),
                cell_number("core_us_per_mb", tier->core_us_per_byte * 1e6),
                cell_number("slowdown", tier->slowdown));
    write_curve(r, "rank_gb_per_s", &tier->ramp, 1e9);
    write_curve(r, "reduce_gb_per_s", &tier->reduce_ramp, 1e9);
    write_curve(r, "beside_us", &tier->beside_us, 1);
    write_curve(r, "beside_us_per_mb", &tier->beside_us_per_byte, 1e-6);
    printer_close(r);
}

static void print_place(const printer *r, const measure_place *place)
{
    printer_text(r, "%d node%s of %d rank%s (%s), ", (int)place->nodes, text_plural(place->nodes),
                 (int)place->per_node, text_plural(place->per_node),
                 place->mpi ? "MPI processes" : "threads of one process");
    if (place->gpu)
        printer_text(r, "each on a GPU: %s; collectives %s\n", place->chip,
                     strcmp(place->transport, "nccl") == 0 ? "by NCCL" : "through host memory");
    else
        printer_text(r, "%d thread%s a rank%s\n", (int)place->threads, text_plural(place->threads),
                     place->shared ? "; all share the cores of one machine" : "");
}

static void print_collective(printer *r, const measure_row *row)
{
    const double bytes = row->collective.block_bytes;
    printer_text(r, "%-28s %10s %12.0f %12.0f\n", row->name, text_size(bytes).text, row->us,
                 row->predicted_us);
    PRINTER_OBJECT(r, NULL, cell_words("collective", row->name), cell_rounded("block_bytes", bytes),
                   cell_number("us", row->us), cell_number("predicted_us", row->predicted_us));
}

static void print_links(printer *r, const measure_place *place, const measure_links *links)
{
    const double reduce = links->reduce_bytes_per_s / 1e9;
    print_place(r, place);
    printer_open(r, "comm", '{', false);
    PRINTER_ROW(r, cell_number("seconds", links->took_s));
    print_tier(r, "node", "intra-node", &links->intra);
    print_tier(r, "network", "inter-node", &links->inter);
    if (reduce > 0)
        printer_text(r, "what is received is added at %.2f GB/s\n", reduce);
    PRINTER_ROW(r, cell_number("reduce_gb_per_s", reduce));
    if (links->row_count > 0)
        printer_text(r, "%-28s %10s %12s %12s\n", "collective", "block", "measured us",
                     "predicted us");
    printer_open(r, "collectives", '[', false);
    for (int32_t i = 0; i < links->row_count; i++)
        print_collective(r, &links->rows[i]);
    printer_close(r);
    printer_close(r);
}

static void print_efficiency(printer *r, const char *key, const char *title,
                             const mics_curve *curve, double flops_per_s)
{
    if (curve->count > 0 && !r->json) {
        print_sizes(r, title, curve, 9);
        print_values(r, "GFLOP/s", curve, 1e9 / flops_per_s, 1);
    }
    write_curve(r, key, curve, 1);
}

static void print_rates(const printer *r, const measure_compute *c)
{
    printer_text(
        r,
        "  memory %.2f GB/s, the model's ops that move it %.2f GB/s, update %.2f GB/s, launch "
        "%.2f us\n  in training a pass of a micro-step takes %.1f ms, %.2f times the sum of "
        "its ops alone (counted in above); a step %.1f ms more\n",
        c->stream_bytes_per_s / 1e9, c->elementwise_bytes_per_s / 1e9, c->update_bytes_per_s / 1e9,
        c->launch_us, c->pass_us / 1e3, c->training_factor, c->step_overhead_us / 1e3);
    if (c->host_bytes_per_s > 0)
        printer_text(
            r, "  TFLOP/s in fp32 %.3g, tf32 %.3g, fp16 %.3g; copies to the host %.3g GB/s\n",
            c->gpu_flops_per_s[MICS_MATH_FP32] / 1e12, c->gpu_flops_per_s[MICS_MATH_TF32] / 1e12,
            c->gpu_flops_per_s[MICS_MATH_FP16] / 1e12, c->host_bytes_per_s / 1e9);
    printer_text(r, "  a step at the end: measured %.1f ms, predicted %.1f ms\n", c->check_us / 1e3,
                 c->check_predicted_us / 1e3);
}

static void print_compute(printer *r, const measure_place *place, const measure_compute *c)
{
    print_place(r, place);
    printer_text(r, "%s: fastest GEMM %.1f GFLOP/s, which counts as the peak\n", c->cpu_name,
                 c->flops_per_s / 1e9);
    printer_open(r, "compute", '{', false);
    PRINTER_ROW(r, cell_number("seconds", c->took_s), cell_words("processor", c->cpu_name),
                cell_number("gflops", c->flops_per_s / 1e9));
    if (c->bf16_flops_per_s > 0) {
        printer_text(r, "  in bf16 %.1f GFLOP/s, as steps in it say\n", c->bf16_flops_per_s / 1e9);
        PRINTER_ROW(r, cell_number("bf16_gflops", c->bf16_flops_per_s / 1e9));
    }
    print_efficiency(r, "matmul_efficiency", "smallest dimension", &c->matmul_efficiency,
                     c->flops_per_s);
    print_efficiency(r, "attention_efficiency", "attention, length", &c->attention_efficiency,
                     c->flops_per_s);
    print_rates(r, c);
    PRINTER_ROW(r, cell_number("memory_gb_per_s", c->stream_bytes_per_s / 1e9),
                cell_number("elementwise_gb_per_s", c->elementwise_bytes_per_s / 1e9),
                cell_number("update_gb_per_s", c->update_bytes_per_s / 1e9),
                cell_number("launch_us", c->launch_us), cell_number("pass_ms", c->pass_us / 1e3),
                cell_number("training_factor", c->training_factor),
                cell_number("step_overhead_us", c->step_overhead_us),
                cell_number("host_gb_per_s", c->host_bytes_per_s / 1e9),
                cell_number("step_ms", c->check_us / 1e3),
                cell_number("predicted_step_ms", c->check_predicted_us / 1e3));
    printer_close(r);
}

// The file's own text is a member of the JSON.
static mics_status print_report(mics_memory *memory, const char *file, bool json,
                                const measure_report *report)
{
    const measure_place *place = &report->place;
    const char *transport = place->mpi ? "mpi" : "threads";
    printer r = {.json = json, .digits = 6};
    char *cluster = NULL;
    MICS_TRY(mics_cluster_text(memory, &report->cluster, &cluster));
    printer_open(&r, NULL, '{', false);
    PRINTER_ROW(&r, cell_words("file", file), cell_int("ranks", place->ranks),
                cell_int("nodes", place->nodes), cell_int("threads", place->threads),
                cell_words("transport", transport),
                cell_words("device", place->gpu ? "cuda" : "cpu"),
                cell_words("collectives_by", place->gpu ? place->transport : transport),
                cell_flag("shared_cores", place->shared));
    if (report->has_links)
        print_links(&r, place, &report->links);
    else
        PRINTER_ROW(&r, cell_null("comm"));
    if (report->has_compute)
        print_compute(&r, place, &report->compute);
    else
        PRINTER_ROW(&r, cell_null("compute"));
    PRINTER_ROW(&r, cell_written("cluster", cluster));
    printer_text(&r, "%s %s\n", file, report->updated ? "updated" : "written");
    printer_close(&r);
    mics_free(memory, cluster);
    return MICS_OK;
}

// ---- the whole ----

static mics_status bench(cli_call *call, bench_options *options)
{
    measure_spec *spec = &options->spec;
    measure_report report;
    if (spec->status == MICS_OK)
        spec->status = check(call, options);
    if (spec->status == MICS_OK)
        spec->status = take_device(options);
    if (call->arguments.count > 0)
        spec->run = call->arguments.items[0];
    spec->sets = call->sets.items;
    spec->set_count = call->sets.count;
    MICS_TRY(measure_cluster(call->memory, spec, &call->running, &report));
    if (!report.first)
        return MICS_OK;
    if (spec->quiet && !options->json)
        return MICS_OK;
    return print_report(call->memory, spec->out, options->json, &report);
}

// Words of the verb itself are parts that there are not.
static mics_status parse(cli_call *call, bench_options *options)
{
    const bool whole = call->verb->parts != NULL;
    if (whole && (call->argc == 0 || call->argv[0][0] != '-'))
        return fail_part(call);
    MICS_TRY(cli_parse(call, options));
    if (!whole)
        return MICS_OK;
    options->spec.seconds = 60 * options->minutes;
    if (options->spec.run == NULL)
        return mics_fail(MICS_ERR_INVALID,
                         "mics bench: --for is missing: a run file, or a model's config.json");
    return MICS_OK;
}

static mics_status run_bench(cli_call *call)
{
    bench_options options = {.spec = {.out = "cluster.json", .seconds = 20}, .minutes = 5};
    mics_log_hold(mics_job_is_launched()); // until it is known who speaks
    options.spec.links = call->verb->options != compute_flags;
    options.spec.compute = call->verb->options != comm_flags;
    options.spec.status = parse(call, &options);
    cli_log_quiet(options.spec.quiet);
    return bench(call, &options);
}

static const cli_verb comm = {
    .name = "bench comm",
    .summary = "links intra-node and inter-node",
    .arguments = "",
    .about =
        "Measures messages intra-node and inter-node: latency, rate by size, what they take of a\n"
        "core, and how computation fares beside them. Under mpirun or srun the ranks are MPI's,\n"
        "otherwise --ranks threads of this process. Updates the links of a cluster file for mics "
        "plan.",
    CLI_OPTIONS(comm_flags),
    .run = run_bench,
};

static const cli_verb compute = {
    .name = "bench compute",
    .summary = "the ops of a model",
    .arguments = "[RUN.json]",
    .about = "Measures the ops of a model as training runs them, on all ranks at once: of a run "
             "file, of a\n"
             "model configuration, or of GPT-2. Updates the computation of a cluster file for mics "
             "plan.",
    CLI_OPTIONS(compute_flags),
    .max_arguments = 1,
    .run = run_bench,
};

const cli_verb cmd_bench = {
    .name = "bench",
    .summary = "measures links and computation for a cluster file",
    .arguments = "--for MODEL",
    .about =
        "With --for: the ops of MODEL as training runs them, memory and links, on one node or, "
        "under\n"
        "mpirun or srun, on several. Writes a cluster file, from which mics plan plans any number "
        "of\n"
        "nodes.",
    CLI_OPTIONS(for_flags),
    .parts = (const cli_verb *const[]){&comm, &compute, NULL},
    .run = run_bench,
};
