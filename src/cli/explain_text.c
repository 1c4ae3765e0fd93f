// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// What mics explain prints for people.
#include "base/size.h"
#include "explain.h"
#include "replicas.h"
#include <stdio.h>
#include <string.h>

// A longer schedule shows its first and its last steps.
enum { STEPS_FIRST = 24, STEPS_LAST = 24 };

// Columns as wide as their longest entry, within bounds.
static int width_of(int width, const char *text, int max)
{
    int length = (int)strlen(text);
    return length > width ? (length < max ? length : max) : width;
}

static void print_keys(const mics_run *run)
{
    int keys = 0, values = 0, origins = 0;
    for (int32_t i = 0; i < mics_run_row_count(run); i++) {
        mics_run_row row = mics_run_row_at(run, i);
        keys = width_of(keys, row.key, 60);
        values = width_of(values, row.value, 40);
        origins = width_of(origins, row.origin, 48);
    }
    printf("keys\n");
    for (int32_t i = 0; i < mics_run_row_count(run); i++) {
        mics_run_row row = mics_run_row_at(run, i);
        printf("  %-*s  %-*s  %-*s  %s%s\n", keys, row.key, values, row.value, origins, row.origin,
               row.hint ? "no effect here: " : "", row.help);
    }
}

// Ranks of a group, as many as a line holds.
static void print_group(mics_group group)
{
    enum { SHOWN = 16 };
    for (int32_t i = 0; i < group.size && i < SHOWN; i++)
        printf("%s%d", i > 0 ? ", " : "", (int)mics_group_rank(group, i));
    if (group.size > SHOWN)
        printf(", ... %d", (int)mics_group_rank(group, group.size - 1));
}

// The groups of several ranks that rank 0 is in; the others are alike, shifted.
static void print_mesh(const mics_mesh *mesh)
{
    char name[64];
    int32_t nodes = mesh->ranks / mesh->ranks_per_node;
    printf("\nmesh\n  %d rank%s, %d node%s of %d: %s\n", (int)mesh->ranks,
           mesh->ranks == 1 ? "" : "s", (int)nodes, nodes == 1 ? "" : "s",
           (int)mesh->ranks_per_node, mics_mesh_name(mesh, name, sizeof name));
    for (int i = 0; i < MICS_AXES * MICS_SCOPES; i++) {
        const mics_group_axis axis = (mics_group_axis)(i / MICS_SCOPES);
        const mics_group_scope scope = (mics_group_scope)(i % MICS_SCOPES);
        const mics_group group = mics_mesh_group(mesh, axis, scope, 0);
        const bool part = scope != MICS_SCOPE_WHOLE; // stages need both
        const bool spread = mesh->experts > 1 || axis < MICS_AXIS_EXPERTS;
        if (group.size < 2 || !spread ||
            (part && group.size == mics_mesh_group(mesh, axis, MICS_SCOPE_WHOLE, 0).size))
            continue;
        printf("  %-30s %4d ranks: ", mics_group_text(axis, scope), (int)group.size);
        print_group(group);
        printf(" (of rank 0)\n");
    }
}

static void print_device(const mics_job *job)
{
    const mics_job_facts facts = mics_job_facts_get(job);
    printf("\ndevice\n  %s, %s; %s\n", facts.device, facts.numbers, facts.device_why);
}

static void print_limit(const mics_job *job)
{
    const mics_job_facts facts = mics_job_facts_get(job);
    char text[32];
    if (facts.limit_bytes == SIZE_MAX) {
        printf("  there is no GPU here that says what a rank may use; run.memory_limit says it\n");
        return;
    }
    printf("  %s: a rank may use %s%s\n",
           mics_job_schedule(job)->ledger.total <= facts.limit_bytes ? "fits" : "DOES NOT FIT",
           mics_size_text((double)facts.limit_bytes, text, sizeof text),
           facts.limit_is_set  ? " (run.memory_limit)"
           : facts.accelerator ? ", its share of what this machine's GPUs have"
                               : ", its share of what this machine has available");
}

static void print_memory(const mics_job *job)
{
    const mics_memory_ledger *ledger = &mics_job_schedule(job)->ledger;
    char text[32];
    printf("\nmemory of a rank\n");
    for (int tag = 0; tag < MICS_MEM_TAGS; tag++) {
        if (ledger->bytes[tag] > 0)
            printf("  %-28s %12s %16zu B\n", mics_memory_tag_text((mics_memory_tag)tag),
                   mics_size_text((double)ledger->bytes[tag], text, sizeof text),
                   ledger->bytes[tag]);
    }
    printf("  %-28s %12s %16zu B\n", "in all",
           mics_size_text((double)ledger->total, text, sizeof text), ledger->total);
    const size_t host = mics_job_facts_get(job).host_copy_bytes;
    if (host > 0)
        printf("  %-28s %12s %16zu B\n", "host, to load and save",
               mics_size_text((double)host, text, sizeof text), host);
    if (mics_job_facts_get(job).accelerator) {
        const size_t copies = mics_job_facts_get(job).node_memory_bytes;
        if (copies > 0)
            printf("  %-28s %12s %16zu B\n", "host, copies in node memory",
                   mics_size_text((double)copies, text, sizeof text), copies);
    }
    const size_t copy = mics_job_facts_get(job).save_copy_bytes;
    if (copy > 0)
        printf("  %-28s %12s %16zu B\n", "host, to save behind steps",
               mics_size_text((double)copy, text, sizeof text), copy);
    print_limit(job);
}

static void print_replicas(const mics_job *job)
{
    char text[320];
    printf("\nreplicas\n  %s\n", cli_replicas_text(job, text, sizeof text));
}

static void print_operation(const cli_operation *row)
{
    printf("  %-15s  %-9s  %-5s  %-20s  %d unit%s of %lld",
           mics_step_text(row->kind, MICS_STAGE_WHOLE), row->algorithm,
           mics_comm_dtype_text(row->dtype), mics_group_text(row->axis, MICS_SCOPE_WHOLE),
           (int)row->units, row->units == 1 ? "" : "s", (long long)row->min_elems);
    if (row->max_elems > row->min_elems)
        printf(" to %lld", (long long)row->max_elems);
    printf(" elements\n");
}

static void print_operations(const mics_schedule *schedule, const cli_operations *operations)
{
    if (operations->count == 0)
        return;
    printf("\ncollectives over units\n");
    for (int32_t i = 0; i < operations->count; i++)
        print_operation(&operations->rows[i]);
    if (operations->whole_units > 0)
        printf("  %d unit%s of %lld elements in all stay%s whole on every rank, being smaller than "
               "run.param_persistence_threshold %lld\n",
               (int)operations->whole_units, operations->whole_units == 1 ? "" : "s",
               (long long)operations->whole_elems, operations->whole_units == 1 ? "s" : "",
               (long long)schedule->spec.param_persistence_threshold);
}

static void print_row(const char *name, mics_bytes bytes)
{
    char intra[32], inter[32];
    printf("  %-28s %14s %14s\n", name, mics_size_text((double)bytes.intra, intra, sizeof intra),
           mics_size_text((double)bytes.inter, inter, sizeof inter));
}

static void print_bytes(const mics_schedule *schedule)
{
    printf("\nbytes sent in a step, all ranks together\n  %-28s %14s %14s\n", "", "intra-node",
           "inter-node");
    for (int i = 0; i < MICS_STEP_KINDS * MICS_STAGES; i++) {
        const mics_step_kind kind = (mics_step_kind)(i / MICS_STAGES);
        const mics_step_stage stage = (mics_step_stage)(i % MICS_STAGES);
        const mics_bytes bytes = mics_schedule_kind_bytes(schedule, MICS_PHASE_TRAIN, kind, stage);
        if (bytes.intra > 0 || bytes.inter > 0)
            print_row(mics_step_text(kind, stage), bytes);
    }
    print_row("in all", mics_schedule_all_bytes(schedule, MICS_PHASE_TRAIN));
}

// What "auto" chose, where there was a choice.
static void print_layered(const mics_job *job)
{
    const mics_layered_choice layered = mics_job_facts_get(job).layered;
    const mics_schedule_spec *spec = &mics_job_schedule(job)->spec;
    char bytes[32], before[32], more[32], state[32];
    if (!layered.automatic || spec->micro_steps == 1 ||
        spec->mesh.ranks == spec->mesh.ranks_per_node)
        return;
    printf("\nlayered accumulation\n  %d of %d micro-steps (%s)\n", (int)layered.number,
           (int)spec->micro_steps, layered.why);
    printf("  %s between nodes, with one %s; %s more memory of a rank\n",
           mics_size_text((double)layered.inter_bytes, bytes, sizeof bytes),
           mics_size_text((double)layered.inter_bytes_of_one, before, sizeof before),
           mics_size_text((double)layered.more_bytes, more, sizeof more));
    printf("  each further one takes %s; the state of a rank is %s\n",
           mics_size_text((double)layered.each_bytes, more, sizeof more),
           mics_size_text((double)layered.state_bytes, state, sizeof state));
}

static void print_wait(int32_t step)
{
    if (step >= 0)
        printf(" %5d", (int)step);
    else
        printf("     -");
}

static void print_step(const mics_schedule *schedule, int32_t index)
{
    const mics_step *step = &schedule->lists[MICS_PHASE_TRAIN].steps[index];
    const mics_unit *units = schedule->spec.model->units;
    char work[64] = "", size[32], micro[16] = "-", name[MICS_NAME_BYTES + 16];
    if (mics_step_is_comm(step) && step->block_bytes == 0)
        snprintf(work, sizeof work, "shared     ");
    else if (mics_step_is_comm(step))
        snprintf(work, sizeof work, "%s %s",
                 mics_size_text((double)step->block_bytes, size, sizeof size),
                 step->unit >= 0 ? mics_comm_dtype_text(step->dtype.sent) : "    ");
    else
        snprintf(work, sizeof work, "%.3g MFLOP", step->flops / 1e6);
    if (step->micro_step >= 0)
        snprintf(micro, sizeof micro, "%d", (int)step->micro_step);
    snprintf(name, sizeof name, "%s", step->unit >= 0 ? units[step->unit].name : "-");
    if (step->member_count > 0)
        snprintf(name, sizeof name, "%s +%d", units[step->unit].name, (int)step->member_count - 1);
    printf("  %5d %-8s %-17s %-16s %5s %18s", (int)index, mics_stream_text(step->stream),
           mics_step_text(step->kind, step->stage), name, micro, work);
    for (int stream = 0; stream < MICS_STREAMS; stream++)
        print_wait(step->wait[stream]);
    printf("\n");
}

static void print_steps(const mics_schedule *schedule, bool all_steps)
{
    int32_t count = schedule->lists[MICS_PHASE_TRAIN].count;
    int32_t last = count - STEPS_LAST;
    printf("\nschedule of a step: %d entries, %.3g GFLOP a rank, on three streams at once: "
           "compute, intra\n(intra-node collectives) and inter (inter-node); a step waits for "
           "those named on each\n",
           (int)count, mics_schedule_flops(schedule, MICS_PHASE_TRAIN) / 1e9);
    if (schedule->spec.layered_micro_steps > 1)
        printf("  %d of %d micro-steps are layered\n", (int)schedule->spec.layered_micro_steps,
               (int)schedule->spec.micro_steps);
    printf("  %5s %-8s %-17s %-16s %5s %18s %17s\n", "", "stream", "kind", "unit", "micro",
           "block or work", "waits for");
    for (int32_t i = 0; i < count; i++) {
        if (!all_steps && i == STEPS_FIRST && last > i + 1) {
            printf("  ... %d more; --all-steps shows them\n", (int)(last - i));
            i = last;
        }
        print_step(schedule, i);
    }
}

mics_status cli_explain_text(mics_memory *memory, const mics_job *job, bool all_steps)
{
    cli_operations operations;
    MICS_TRY(cli_operations_list(memory, mics_job_schedule(job), &operations));
    print_keys(mics_job_run(job));
    printf("\nmodel\n  %s, %lld parameters in %d units\n", mics_job_model(job)->architecture,
           (long long)mics_model_param_count(mics_job_model(job)),
           (int)mics_job_model(job)->unit_count);
    print_device(job);
    print_mesh(&mics_job_schedule(job)->spec.mesh);
    print_replicas(job);
    print_memory(job);
    print_operations(mics_job_schedule(job), &operations);
    print_bytes(mics_job_schedule(job));
    print_layered(job);
    print_steps(mics_job_schedule(job), all_steps);
    return MICS_OK;
}
