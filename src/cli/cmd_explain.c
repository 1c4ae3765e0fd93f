// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// mics explain: what a run would be, without running anything.
#include "base/utf8.h"
#include "cli.h"
#include "cli/explain.h"
#include "io/report/printer.h"
#include "io/report/terminal.h"
#include "mics/core/ledger.h"
#include "mics/core/schedule.h"
#include "mics/log.h"
#include "mics/memory.h"
#include "mics/run.h"
#include "run/settings.h"
#include "schedule/rules.h"
#include <string.h>

// A longer schedule shows its first and its last steps.
enum { STEPS_FIRST = 24, STEPS_LAST = 24 };

typedef struct explain_options {
    mics_job_spec job;
    bool json, all_steps, all_keys, foreign_keys;
    int64_t samples;
} explain_options;

#define AT(member) offsetof(explain_options, member)
static const cli_option flags[] = {
    {"ranks", CLI_COUNT, "N", "ranks; default 1", AT(job.ranks), 1, CLI_MAX_RANKS},
    {"nodes", CLI_COUNT, "M", "nodes of equally many ranks; default 1", AT(job.nodes), 1,
     CLI_MAX_RANKS},
    {"steps", CLI_KEY_INT, "N", "of N steps, whatever the file says", 0, 1, 0},
    CLI_SOURCE,
    CLI_ADAPTER,
    CLI_SETS,
    {"all-steps", CLI_FLAG, NULL, "print the whole schedule, however long", AT(all_steps), 0, 0},
    {"keys", CLI_FLAG, NULL, "print all keys, and what they do", AT(all_keys), 0, 0},
    {"foreign-keys", CLI_FLAG, NULL,
     "print the keys of other programs' files that have no counterpart here; needs no run",
     AT(foreign_keys), 0, 0},
    {"samples", CLI_INT, "N",
     "print the first N rows of fine-tuning data as they train: tokens that count in [[ ]]; "
     "nothing else",
     AT(samples), 1, 0},
    CELL_JSON(explain_options),
};

// ---- the report ----

static void print_model(printer *r, const mics_job *job)
{
    const mics_model *model = mics_job_model(job);
    const mics_job_facts facts = mics_job_facts_get(job);
    const int64_t params = mics_model_param_count(model);
    const int64_t trained = mics_model_trained_count(model);
    printer_text(r, "\nmodel\n  %s, %lld parameters in %d units\n", model->architecture,
                 (long long)params, (int)model->unit_count);
    if (trained < params)
        printer_text(r,
                     "  trains %lld of them; the others are frozen, and cost memory and gathers\n",
                     (long long)trained);
    PRINTER_ROW(r, cell_int("parameters", params), cell_int("trained_parameters", trained));
    printer_text(r, "\ndevice\n  %s, %s; %s\n", facts.device, facts.numbers, facts.device_why);
    PRINTER_OBJECT(r, "device", cell_words("name", facts.device),
                   cell_words("precision", mics_run_precision_text(mics_job_run(job)->precision)),
                   cell_words("why", facts.device_why));
}

// Ranks of a group, as many as a line holds.
static void print_group(const printer *r, mics_group group)
{
    enum { SHOWN = 16 };
    for (int32_t i = 0; i < group.size && i < SHOWN; i++)
        printer_text(r, "%s%d", i > 0 ? ", " : "", (int)mics_group_rank(group, i));
    if (group.size > SHOWN)
        printer_text(r, ", ... %d", (int)mics_group_rank(group, group.size - 1));
}

// All ranks are those of an island, where there are several.
static const char *group_name(const mics_mesh *mesh, mics_group_axis axis, mics_group_scope scope)
{
    static const char *const islands[MICS_SCOPES] = {[MICS_SCOPE_WHOLE] = "island",
                                                     [MICS_SCOPE_INTRA] = "island, intra-node",
                                                     [MICS_SCOPE_INTER] = "island, inter-node"};
    return mesh->islands > 1 && axis == MICS_AXIS_ISLAND ? islands[scope]
                                                         : mics_group_text(axis, scope);
}

// The groups of several ranks that rank 0 is in; the others are alike, shifted.
static void print_groups(const printer *r, const mics_mesh *mesh)
{
    for (int i = 0; i < MICS_AXES * MICS_SCOPES; i++) {
        const mics_group_axis axis = (mics_group_axis)(i / MICS_SCOPES);
        const mics_group_scope scope = (mics_group_scope)(i % MICS_SCOPES);
        const mics_group group = mics_mesh_group(mesh, axis, scope, 0);
        const bool part = scope != MICS_SCOPE_WHOLE; // stages need both
        const bool there = axis < MICS_AXIS_EXPERTS ||
                           (axis < MICS_AXIS_OUTER ? mesh->experts > 1 : mesh->islands > 1);
        if (group.size < 2 || !there ||
            (part && group.size == mics_mesh_group(mesh, axis, MICS_SCOPE_WHOLE, 0).size))
            continue;
        printer_text(r, "  %-30s %4d ranks: ", group_name(mesh, axis, scope), (int)group.size);
        print_group(r, group);
        printer_text(r, " (of rank 0)\n");
    }
}

static void print_mesh(printer *r, const mics_mesh *mesh)
{
    char name[64];
    const int32_t ranks = mics_mesh_world(mesh), nodes = ranks / mesh->ranks_per_node;
    mics_mesh_name(mesh, name, sizeof name);
    printer_text(r, "\nmesh\n  %d rank%s, %d node%s of %d: %s\n", (int)ranks, text_plural(ranks),
                 (int)nodes, text_plural(nodes), (int)mesh->ranks_per_node, name);
    PRINTER_OBJECT(
        r, "mesh", cell_int("ranks", ranks), cell_int("ranks_per_node", mesh->ranks_per_node),
        cell_int("params", mesh->sharding.params), cell_int("grads", mesh->sharding.grads),
        cell_int("optimizer", mesh->sharding.optimizer), cell_words("name", name));
    print_groups(r, mesh);
}

// Which part of a sequence a rank has.
static void print_sequences(printer *r, const mics_job *job)
{
    const mics_schedule_spec *spec = &mics_job_schedule(job)->spec;
    const int32_t ranks = spec->mesh.sequence, data_ranks = mics_mesh_world(&spec->mesh) / ranks;
    if (ranks > 1)
        printer_text(r,
                     "  %d ranks share each sequence, with %lld positions each; %d data %s "
                     "sequences of their own\n",
                     (int)ranks, (long long)spec->batch.length, (int)data_ranks,
                     data_ranks == 1 ? "rank reads" : "ranks read");
    PRINTER_OBJECT(r, "sequence", cell_int("ranks", ranks),
                   cell_int("positions", spec->batch.length), cell_int("data_ranks", data_ranks));
}

static void print_replicas(printer *r, const mics_job *job)
{
    const mics_replicas replicas = mics_mesh_replicas(&mics_job_schedule(job)->spec.mesh);
    char text[400];
    printer_text(r, "\nreplicas\n  ");
    printer_wrapped(r, 2, "%s", cli_replicas_text(job, text, sizeof text));
    PRINTER_OBJECT(r, "replicas", cell_int("params", replicas.params),
                   cell_int("grads", replicas.grads), cell_int("optimizer", replicas.optimizer),
                   cell_flag("compares_params", replicas.compares_params),
                   cell_flag("compares_optimizer", replicas.compares_optimizer),
                   cell_int("every", mics_job_run(job)->check_replicas_every));
}

// A line of the memory, unless it is `hidden` from people.
static void print_share(printer *r, const char *key, const char *what, size_t bytes, bool hidden)
{
    const char *heading = hidden ? NULL : "";
    PRINTER_ROW(r, CELL_SHOWN(-31, heading, "  %s", what),
                CELL_SHOWN(13, heading, "%s ", text_size((double)bytes).text),
                cell_column(cell_int(key, (int64_t)bytes), 19, heading, "%zu B\n", bytes));
}

static void print_limit(const printer *r, const mics_job *job)
{
    const mics_job_facts facts = mics_job_facts_get(job);
    if (facts.limit_bytes == SIZE_MAX)
        printer_text(r,
                     "  there is no GPU here that says what a rank may use; run.memory_limit says "
                     "it\n");
    else
        printer_text(r, "  %s: a rank may use %s%s\n",
                     mics_job_schedule(job)->ledger.total <= facts.limit_bytes ? "fits"
                                                                               : "DOES NOT FIT",
                     text_size((double)facts.limit_bytes).text,
                     facts.limit_is_set  ? " (run.memory_limit)"
                     : facts.accelerator ? ", its share of what this machine's GPUs have"
                                         : ", its share of what this machine has available");
}

static void print_memory(printer *r, const mics_job *job)
{
    const mics_memory_ledger *ledger = &mics_job_schedule(job)->ledger;
    const mics_job_facts facts = mics_job_facts_get(job);
    printer_text(r, "\nmemory of a rank\n");
    printer_open(r, "memory_bytes", '{', false);
    for (int tag = 0; tag < MICS_MEM_TAGS; tag++) {
        const char *name = mics_memory_tag_text((mics_memory_tag)tag);
        if (!r->json || tag != MICS_MEM_HOST)
            print_share(r, name, tag == MICS_MEM_OFFLOAD ? "host, offloaded activations" : name,
                        ledger->bytes[tag], ledger->bytes[tag] == 0);
    }
    print_share(r, "total", "in all", ledger->total, false);
    printer_close(r);
    print_share(r, "host_copy_bytes", "host, to load and save", facts.host_copy_bytes,
                facts.host_copy_bytes == 0);
    print_share(r, "node_memory_bytes", "host, copies in node memory", facts.node_memory_bytes,
                !facts.accelerator || facts.node_memory_bytes == 0);
    print_share(r, "save_copy_bytes", "host, to save behind steps", facts.save_copy_bytes,
                facts.save_copy_bytes == 0);
    print_limit(r, job);
}

static void print_phases(printer *r, const mics_job *job)
{
    const int32_t count = mics_job_facts_get(job).phases;
    printer_text(r,
                 count > 0 ? "\nphases (keys, memory, bytes and schedule are the first's)\n" : "");
    printer_open(r, "phases", '[', false);
    for (int32_t i = 0; i < count; i++) {
        const mics_job_phase phase = mics_job_phase_get(job, i);
        printer_text(r, "  steps %lld to %lld: %lld sequences of %lld tokens, %s a rank",
                     (long long)phase.begin + 1, (long long)phase.end,
                     (long long)phase.global_batch, (long long)phase.length,
                     text_size((double)phase.memory_bytes).text);
        printer_text(r, phase.islands > 0 ? ", %d islands that meet every %d steps\n" : "\n",
                     (int)phase.islands, (int)phase.every);
        PRINTER_OBJECT(
            r, NULL, cell_int("first_step", phase.begin + 1), cell_int("last_step", phase.end),
            cell_int("global_batch", phase.global_batch), cell_int("sequence_length", phase.length),
            cell_int("memory_bytes", (int64_t)phase.memory_bytes),
            cell_int("islands", phase.islands), cell_int("outer_every", phase.every));
    }
    printer_close(r);
}

static void print_operation(printer *r, const mics_operation *row)
{
    const char *kind = mics_step_text(row->kind, MICS_STAGE_WHOLE);
    const char *dtype = row->coded ? "delta" : mics_comm_dtype_text(row->dtype);
    const char *group = mics_group_text(row->axis, MICS_SCOPE_WHOLE);
    printer_text(
        r, "  %-15s  %-9s  %-5s  %-20s  %d unit%s of %lld%s elements\n", kind, row->algorithm,
        dtype, group, (int)row->units, text_plural(row->units), (long long)row->min_elems,
        row->max_elems > row->min_elems ? text_of(" to %lld", (long long)row->max_elems).text : "");
    PRINTER_OBJECT(r, NULL, cell_words("kind", kind), cell_words("algorithm", row->algorithm),
                   cell_words("dtype", dtype), cell_words("group", group),
                   cell_int("units", row->units), cell_int("min_elems", row->min_elems),
                   cell_int("max_elems", row->max_elems));
}

static void print_operations(printer *r, const mics_schedule *schedule, const mics_operations *all)
{
    printer_text(r, all->count > 0 ? "\ncollectives over units\n" : "");
    printer_open(r, "collectives", '[', true);
    for (int32_t i = 0; i < all->count; i++)
        print_operation(r, &all->rows[i]);
    printer_close(r);
    if (all->count > 0 && all->whole_units > 0)
        printer_text(
            r,
            "  %d unit%s of %lld elements in all stay%s whole on every rank, being smaller "
            "than run.param_persistence_threshold %lld\n",
            (int)all->whole_units, text_plural(all->whole_units), (long long)all->whole_elems,
            all->whole_units == 1 ? "s" : "",
            (long long)schedule->spec.param_persistence_threshold);
    PRINTER_OBJECT(r, "whole", cell_int("units", all->whole_units),
                   cell_int("elems", all->whole_elems));
}

static void print_sent(printer *r, const char *key, const char *what, mics_bytes bytes)
{
    printer_text(r, "  %-28s %14s %14s\n", what, text_size((double)bytes.intra).text,
                 text_size((double)bytes.inter).text);
    PRINTER_OBJECT(r, key, cell_int("intra", bytes.intra), cell_int("inter", bytes.inter));
}

static void print_bytes(printer *r, const mics_schedule *schedule)
{
    const bool coded = mics_schedule_codes_any(schedule);
    printer_text(r, "\nbytes sent in a step, all ranks together\n  %-28s %14s %14s\n", "",
                 "intra-node", "inter-node");
    printer_open(r, "sent_bytes", '{', false);
    for (int i = 0; i < MICS_STEP_KINDS * MICS_STAGES; i++) {
        const mics_step_kind kind = (mics_step_kind)(i / MICS_STAGES);
        const mics_step_stage stage = (mics_step_stage)(i % MICS_STAGES);
        const mics_bytes bytes = mics_schedule_kind_bytes(schedule, MICS_PHASE_TRAIN, kind, stage);
        const char *text = mics_step_text(kind, stage);
        const bool most = coded && kind == MICS_STEP_PARAM_SYNC && stage != MICS_STAGE_INTRA;
        if ((bytes.intra > 0 || bytes.inter > 0) && !mics_step_meets(&(mics_step){.kind = kind}))
            print_sent(r, text, text_of(most ? "%s, at most" : "%s", text).text, bytes);
    }
    print_sent(r, "all", coded ? "in all, at most" : "in all",
               mics_schedule_all_bytes(schedule, MICS_PHASE_TRAIN));
    printer_close(r);
}

// How often islands meet, and what they send for it.
static void print_local_steps(printer *r, const mics_job *job)
{
    const mics_run *run = mics_job_run(job);
    const mics_schedule *schedule = mics_job_schedule(job);
    const mics_outer *outer = &schedule->spec.outer;
    const mics_mesh *mesh = &schedule->spec.mesh;
    const int32_t period = mics_schedule_period(schedule);
    char text[256];
    if (mesh->islands == 1)
        return;
    const mics_bytes meetings = mics_schedule_meeting_bytes(schedule);
    printer_text(r, "\nlocal steps\n  ");
    printer_wrapped(r, 2, "%s", cli_islands_text(job, text, sizeof text));
    printer_text(r, "  %-28s %14s %14s\n", "sent for that, all ranks", "intra-node", "inter-node");
    printer_open(r, "local_steps", '{', false);
    PRINTER_ROW(r, cell_int("islands", mesh->islands), cell_int("ranks", mesh->ranks),
                cell_int("every", outer->every), cell_int("fragments", outer->fragments),
                cell_int("overlap_steps", outer->overlap_steps),
                cell_words("dtype", mics_comm_dtype_text(outer->dtype)),
                cell_int("moments_every", outer->moments_every), cell_number("lr", run->outer_lr),
                cell_number("momentum", run->outer_momentum), cell_int("period", period));
    print_sent(r, "sent_bytes_of_a_period", text_of("in %d steps", (int)period).text, meetings);
    print_sent(r, "sent_bytes_of_a_step", "a step, on average",
               (mics_bytes){meetings.intra / period, meetings.inter / period});
    printer_close(r);
}

// What "auto" chose, where there was a choice.
static void print_layered_choice(const printer *r, const mics_layered_choice *layered, int32_t of)
{
    printer_text(r, "\nlayered accumulation\n  %d of %d micro-steps (%s)\n", (int)layered->number,
                 (int)of, layered->why);
    printer_text(r, "  %s between nodes, with one %s; %s more memory of a rank\n",
                 text_size((double)layered->inter_bytes).text,
                 text_size((double)layered->inter_bytes_of_one).text,
                 text_size((double)layered->more_bytes).text);
    printer_text(r, "  each further one takes %s; the state of a rank is %s\n",
                 text_size((double)layered->each_bytes).text,
                 text_size((double)layered->state_bytes).text);
}

static void print_layered(printer *r, const mics_job *job)
{
    const mics_layered_choice layered = mics_job_facts_get(job).layered;
    const mics_schedule_spec *spec = &mics_job_schedule(job)->spec;
    if (layered.automatic && spec->micro_steps > 1 && spec->mesh.ranks > spec->mesh.ranks_per_node)
        print_layered_choice(r, &layered, spec->micro_steps);
    printer_open(r, "layered", '{', false);
    PRINTER_ROW(r, cell_int("micro_steps", spec->layered_micro_steps),
                cell_int("of", spec->micro_steps));
    if (layered.automatic)
        PRINTER_ROW(r, cell_words("why", layered.why),
                    cell_int("sent_inter_bytes", layered.inter_bytes),
                    cell_int("sent_inter_bytes_of_one", layered.inter_bytes_of_one),
                    cell_int("more_memory_bytes", (int64_t)layered.more_bytes),
                    cell_int("each_bytes", (int64_t)layered.each_bytes),
                    cell_int("state_bytes", (int64_t)layered.state_bytes));
    printer_close(r);
}

static const char *dtype_word(const mics_step *step)
{
    return step->coded ? "delta" : mics_comm_dtype_text(step->dtype.sent);
}

// What a step moves or computes.
static short_text work_word(const mics_step *step)
{
    if (mics_step_is_copy(step))
        return text_of("%s     ", text_size((double)step->block_bytes).text);
    if (!mics_step_is_comm(step))
        return text_of("%.3g MFLOP", step->flops / 1e6);
    if (step->block_bytes == 0)
        return text_of("shared     ");
    const bool numbers = step->unit >= 0 && step->kind != MICS_STEP_SIZES;
    return text_of("%s%s %s", step->coded ? "<= " : "", text_size((double)step->block_bytes).text,
                   numbers ? dtype_word(step) : "    ");
}

static void print_step(printer *r, const mics_schedule *schedule, int32_t index)
{
    const mics_step *step = &schedule->lists[MICS_PHASE_TRAIN].steps[index];
    const mics_unit *units = schedule->spec.model->units;
    const char *unit = step->unit >= 0 ? units[step->unit].name : "-";
    const short_text micro = text_of(step->micro_step >= 0 ? "%d" : "-", (int)step->micro_step);
    const short_text members = text_of(" +%d", (int)step->member_count - 1);
    const short_text name = text_of("%s%s", unit, step->member_count > 0 ? members.text : "");
    printer_text(r, "  %5d %-8s %-17s %-16s %5s %18s", (int)index, mics_stream_text(step->stream),
                 mics_step_text(step->kind, step->stage), name.text, micro.text,
                 work_word(step).text);
    const int streams = schedule->spec.offload_units > 0 ? MICS_STREAMS : MICS_STREAM_COPY;
    for (int stream = 0; stream < streams; stream++)
        printer_text(r, step->wait[stream] >= 0 ? " %5d" : "     -", (int)step->wait[stream]);
    if (step->period > 0)
        printer_text(r, "  behind step %d of %d",
                     (int)(step->offset > 0 ? step->offset : step->period), (int)step->period);
    printer_text(r, "\n");
}

static void write_step(printer *r, const mics_schedule *schedule, const mics_step *step)
{
    int32_t count = 0;
    (void)mics_schedule_members(schedule, step, &count);
    printer_open(r, NULL, '{', false);
    PRINTER_ROW(
        r, cell_words("stream", mics_stream_text(step->stream)),
        cell_words("kind", mics_step_text(step->kind, step->stage)), cell_int("unit", step->unit),
        cell_int("units", count), cell_int("micro_step", step->micro_step),
        cell_int("block_bytes", (int64_t)step->block_bytes), cell_words("dtype", dtype_word(step)));
    if (mics_step_is_comm(step))
        PRINTER_ROW(r, cell_words("algorithm", mics_step_algorithm_text(step)));
    if (step->period > 0)
        PRINTER_ROW(r, cell_int("period", step->period), cell_int("offset", step->offset));
    PRINTER_ROW(r, cell_rounded("flops", step->flops));
    printer_open(r, "wait", '[', false);
    const int streams = schedule->spec.offload_units > 0 ? MICS_STREAMS : MICS_STREAM_COPY;
    for (int stream = 0; stream < streams; stream++)
        PRINTER_ROW(r, cell_int(NULL, step->wait[stream]));
    printer_close(r);
    printer_close(r);
}

// The text leaves out the middle of a long schedule, unless `all_steps`.
static void print_steps(printer *r, const mics_schedule *schedule, bool all_steps)
{
    const mics_step_list *list = &schedule->lists[MICS_PHASE_TRAIN];
    const int32_t last = list->count - STEPS_LAST;
    printer_text(
        r,
        "\nschedule of a step: %d entries, %.3g GFLOP a rank, on three streams at once: "
        "compute, intra\n(intra-node collectives) and inter (inter-node); a step waits for "
        "those named on each\n",
        (int)list->count, mics_schedule_flops(schedule, MICS_PHASE_TRAIN) / 1e9);
    if (schedule->spec.offload_units > 0)
        printer_text(
            r, "  and copy, a fourth one: activations of %d unit%s, to host memory and back\n",
            (int)schedule->spec.offload_units, text_plural(schedule->spec.offload_units));
    if (schedule->spec.layered_micro_steps > 1)
        printer_text(r, "  %d of %d micro-steps are layered\n",
                     (int)schedule->spec.layered_micro_steps, (int)schedule->spec.micro_steps);
    printer_text(r, "  %5s %-8s %-17s %-16s %5s %18s %17s\n", "", "stream", "kind", "unit", "micro",
                 "block or work", "waits for");
    printer_open(r, "steps", '[', true);
    for (int32_t i = 0; i < list->count; i++) {
        if (!r->json && !all_steps && i == STEPS_FIRST && last > i + 1) {
            printer_text(r, "  ... %d more; --all-steps shows them\n", (int)(last - i));
            i = last;
        }
        if (r->json)
            write_step(r, schedule, &list->steps[i]);
        else
            print_step(r, schedule, i);
    }
    printer_close(r);
}

static mics_status print_report(mics_memory *memory, const mics_job *job,
                                const explain_options *options)
{
    const mics_schedule *schedule = mics_job_schedule(job);
    printer report = {.json = options->json};
    mics_operations all;
    MICS_TRY(mics_schedule_operations(memory, schedule, &all));
    printer_open(&report, NULL, '{', true);
    explain_answer(&report, job);
    explain_keys(&report, mics_job_run(job), options->all_keys);
    print_model(&report, job);
    print_mesh(&report, &schedule->spec.mesh);
    print_sequences(&report, job);
    print_replicas(&report, job);
    print_memory(&report, job);
    print_phases(&report, job);
    print_operations(&report, schedule, &all);
    print_bytes(&report, schedule);
    print_local_steps(&report, job);
    print_layered(&report, job);
    print_steps(&report, schedule, options->all_steps);
    printer_close(&report);
    return MICS_OK;
}

// ---- samples ----

static void print_ids(printer *r, const mics_job_sample *sample)
{
    printer_open(r, "tokens", '[', false);
    for (int64_t i = 0; i < sample->count; i++)
        PRINTER_ROW(r, cell_int(NULL, sample->tokens[i]));
    printer_close(r);
    printer_open(r, "counts", '[', false);
    for (int64_t i = 0; i < sample->count; i++)
        PRINTER_ROW(r, cell_int(NULL, sample->counts[i]));
    printer_close(r);
}

// What is no character, or steers a terminal, becomes a point.
static void print_text(const printer *r, const char *text)
{
    const size_t bytes = strlen(text);
    for (size_t at = 0; at < bytes;) {
        const int32_t length = mics_utf8_char(text + at, bytes - at);
        const bool shown = text[at] == '\n' || text[at] == '\t' ||
                           (length > 0 && !mics_terminal_is_control(text + at, length));
        printer_text(r, "%.*s", shown ? (int)length : 1, shown ? text + at : ".");
        at += length > 0 ? (size_t)length : 1;
    }
}

static void print_sample(void *ctx, const mics_job_sample *sample)
{
    printer *r = ctx;
    int64_t counted = 0;
    for (int64_t i = 0; i < sample->count; i++)
        counted += sample->counts[i];
    printer_text(r, "%s: %lld tokens, %lld count\n", sample->name, (long long)sample->count,
                 (long long)counted);
    for (int64_t i = 0; i < sample->part_count; i++) {
        const struct mics_job_sample_part *part = &sample->parts[i];
        printer_text(r, "%s", part->counts ? "[[" : "");
        print_text(r, part->text);
        printer_text(r, "%s", part->counts ? "]]" : "");
    }
    printer_text(r, "\n\n");
    printer_open(r, NULL, '{', false);
    PRINTER_ROW(r, cell_words("name", sample->name));
    print_ids(r, sample);
    printer_close(r);
}

static mics_status print_samples(mics_job *job, const explain_options *options)
{
    printer report = {.json = options->json};
    printer_open(&report, NULL, '{', true);
    printer_open(&report, "samples", '[', true);
    const mics_status status = mics_job_samples(job, options->samples, print_sample, &report);
    printer_close(&report);
    printer_close(&report);
    return status;
}

// ---- the whole ----

// What does not fit would not be trained, so it is no success.
static mics_status check_fits(const mics_job *job)
{
    const double total = explain_most_bytes(job);
    const size_t limit = mics_job_facts_get(job).limit_bytes;
    if (limit == SIZE_MAX || total <= (double)limit)
        return MICS_OK;
    return mics_fail(MICS_ERR_MEMORY,
                     "the run does not fit: a rank needs %s and may use %s; mics train says what "
                     "would fit",
                     text_size(total).text, text_size((double)limit).text);
}

static mics_status run_explain(cli_call *call)
{
    explain_options options = {.job = {.memory = call->memory, .ranks = 1, .nodes = 1}};
    mics_job *job = NULL;
    MICS_TRY(cli_parse(call, &options));
    if (options.foreign_keys) {
        printer report = {.json = options.json};
        printer_open(&report, NULL, '{', true);
        explain_foreign_keys(&report);
        printer_close(&report);
        return MICS_OK;
    }
    if (call->arguments.count == 0)
        return mics_fail(MICS_ERR_INVALID, "mics explain: missing: %s; see mics explain --help",
                         call->verb->arguments);
    options.job.file = call->arguments.items[0];
    options.job.sets = call->sets.items;
    options.job.set_count = call->sets.count;
    MICS_TRY(mics_job_size(&options.job, &job));
    mics_status status = options.samples > 0 ? print_samples(job, &options)
                                             : print_report(call->memory, job, &options);
    if (status == MICS_OK && options.samples == 0)
        status = check_fits(job);
    (void)mics_job_close(job);
    return status;
}

const cli_verb cmd_explain = {
    .name = "explain",
    .summary = "shows what a run would do: keys, mesh, memory, bytes, schedule",
    .arguments = "RUN.json|FOLDER",
    .about =
        "Prints what a run would be: whether it fits, and what it sends; keys with where their\n"
        "values come from, the mesh and its groups, memory, bytes, and the schedule of a step.\n"
        "Runs nothing, so run.device \"cuda\" needs no GPU here.",
    CLI_OPTIONS(flags),
    .max_arguments = 1,
    .model_stands = true,
    .run = run_explain,
};
