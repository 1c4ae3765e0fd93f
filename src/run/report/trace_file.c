// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// OUT/trace.json: a process a rank, a track a stream, an event an entry of the schedule; under
// "otherData" how well the streams overlapped. Figures are means over the traced steps, by rank and
// of all ranks.
//
// Ranks come one by one and are not kept, so the file's size is not bounded by memory. What is
// compared between ranks is summed up as they come.
#include "trace_file.h"
#include "base/file.h"
#include "base/free.h"
#include "mics/core/ledger.h"
#include "overlap.h"
#include <stdio.h>

enum { NAME_BYTES = 128, MAX_ARGS = 8 };

// X(figure, name). Those of streams stand in their order.
#define FIGURE_LIST(X)                                                                             \
    X(STEP, "step_us")                                                                             \
    X(COMPUTE_BUSY, "compute_busy_us")                                                             \
    X(INTRA_BUSY, "intra_busy_us")                                                                 \
    X(INTER_BUSY, "inter_busy_us")                                                                 \
    X(COPY_BUSY, "copy_busy_us")                                                                   \
    X(FIRST_GATHER, "first_gather_us")                                                             \
    X(LAST_REDUCE, "last_reduce_us")                                                               \
    X(IDEAL, "ideal_us")                                                                           \
    X(EXPOSED, "exposed_us")                                                                       \
    X(EXPOSED_GATHER, "exposed_gather_us")                                                         \
    X(EXPOSED_REDUCE, "exposed_reduce_us")                                                         \
    X(EXPOSED_SECOND_HOP, "exposed_second_hop_us")                                                 \
    X(EXPOSED_AGREE, "exposed_agree_us")                                                           \
    X(EXPOSED_MEETING, "exposed_meeting_us")                                                       \
    X(EXPOSED_COPY, "exposed_copy_us")                                                             \
    X(CLOCK_AHEAD, "clock_ahead_us")                                                               \
    X(CLOCK_ACCURACY, "clock_accuracy_us")

#define FIGURE_ENUM(figure, name) figure,
#define FIGURE_NAME(figure, name) name,
typedef enum figure { FIGURE_LIST(FIGURE_ENUM) FIGURES } figure;
static const char *const figure_names[FIGURES] = {FIGURE_LIST(FIGURE_NAME)};

struct run_trace_file {
    const mics_job *job;
    mics_memory *memory;
    char *path;
    mics_trace *trace;
    const mics_step_list *list;
    int32_t ranks, count;
    int64_t first_step;
    run_chain *chains; // by entry: scratch
    double *numbers;   // the block of what follows
    double *took;      // by entry: of one step of one rank
    double *apart;     // by step, by entry: the shortest of all ranks; of computation the sum
    double *figures;   // by figure, by rank
};

// ---- opening ----

static mics_status take_numbers(run_trace_file *file)
{
    const size_t entries = (size_t)file->list->count, all = entries * (size_t)file->count;
    MICS_TRY(MICS_NEW(file->memory, entries + all + FIGURES * (size_t)file->ranks, &file->numbers));
    file->took = file->numbers;
    file->apart = file->took + entries;
    file->figures = file->apart + all;
    return MICS_NEW(file->memory, entries, &file->chains);
}

mics_status run_trace_file_open(const mics_job *job, mics_memory *memory, int32_t count,
                                run_trace_file **file_out)
{
    mics_status status = MICS_OK;
    run_trace_file *file = NULL;
    MICS_TRY(MICS_NEW(memory, 1, &file));
    file->job = job;
    file->memory = memory;
    file->list = &job->schedule->lists[MICS_PHASE_TRAIN];
    file->ranks = mics_mesh_world(&job->schedule->spec.mesh);
    file->count = count;
    MICS_TRY_OUT(take_numbers(file));
    MICS_TRY_OUT(mics_file_join(memory, job->run->out, "trace.json", &file->path));
    MICS_TRY_OUT(mics_trace_open(memory, file->path, &file->trace));
    *file_out = file;
    file = NULL;
out:
    run_trace_file_close(file);
    return status;
}

void run_trace_file_close(run_trace_file *file)
{
    if (file == NULL)
        return;
    mics_trace_close(file->trace);
    MICS_FREE_ALL(file->memory, file->path, file->chains, file->numbers, file);
}

// ---- events ----

static const char *unit_name(const run_trace_file *file, const mics_step *step)
{
    return step->unit >= 0 ? file->job->model->units[step->unit].name : "";
}

// The texts and figures that an event points to.
typedef struct event_text {
    char name[NAME_BYTES], group[NAME_BYTES];
    mics_trace_arg args[MAX_ARGS];
    int32_t arg_count;
} event_text;

static void add_text(event_text *text, const char *name, const char *value)
{
    text->args[text->arg_count++] = (mics_trace_arg){.name = name, .text = value};
}

static void add_number(event_text *text, const char *name, double value)
{
    text->args[text->arg_count++] = (mics_trace_arg){.name = name, .value = value};
}

static void describe(const run_trace_file *file, int32_t rank, int32_t entry, int64_t step_number,
                     event_text *text)
{
    const mics_schedule *schedule = file->job->schedule;
    const mics_step *step = &file->list->steps[entry];
    text->arg_count = 0;
    snprintf(text->name, sizeof text->name, "%s%s%s", mics_step_text(step->kind, step->stage),
             step->unit >= 0 ? " " : "", unit_name(file, step));
    add_number(text, "step", (double)step_number);
    add_number(text, "entry", entry);
    if (step->micro_step >= 0)
        add_number(text, "micro_step", step->micro_step);
    if (!mics_step_is_comm(step)) {
        const bool copies = mics_step_is_copy(step);
        add_number(text, copies ? "bytes" : "flops",
                   copies ? (double)step->block_bytes : step->flops);
        return;
    }
    const mics_bytes sent = mics_schedule_step_bytes(schedule, step, rank);
    const mics_group group =
        mics_mesh_group(&schedule->spec.mesh, step->axis, mics_step_scope(step), rank);
    snprintf(text->group, sizeof text->group, "%s of %d",
             mics_group_text(step->axis, mics_step_scope(step)), (int)group.size);
    add_number(text, "bytes", (double)(sent.intra + sent.inter));
    add_number(text, "inter_bytes", (double)sent.inter);
    add_text(text, "group", text->group);
    add_text(text, "dtype", mics_comm_dtype_text(step->dtype.sent));
    if (step->member_count > 0)
        add_number(text, "units", step->member_count);
}

static bool ran(const run_trace_file *file, const run_traced *traced, int32_t s, int32_t entry)
{
    return mics_step_is_due(&file->list->steps[entry], traced->steps[s].step);
}

static mics_trace_event event_of(const run_trace_file *file, const run_traced *traced, int32_t s,
                                 int32_t entry, event_text *text)
{
    const mics_step *step = &file->list->steps[entry];
    const mics_step_time *time = &traced->times[(int64_t)s * file->list->count + entry];
    describe(file, traced->rank, entry, traced->steps[s].step, text);
    return (mics_trace_event){.process = traced->rank,
                              .track = (int32_t)step->stream,
                              .name = text->name,
                              .category = mics_step_text(step->kind, step->stage),
                              .begin_us = time->begin_us - traced->clock_ahead_us,
                              .end_us = time->end_us - traced->clock_ahead_us,
                              .args = text->args,
                              .arg_count = text->arg_count};
}

// Arrows from the collectives that a computation waited for: those that ended after the
// computation before it.
static void draw_waits(const run_trace_file *file, const run_traced *traced, int32_t s,
                       const mics_trace_event *event, int32_t entry, double free_us)
{
    const mics_step *step = &file->list->steps[entry];
    for (int stream = 0; stream < MICS_STREAMS; stream++) {
        event_text text;
        if (step->wait[stream] < 0 || !ran(file, traced, s, step->wait[stream]))
            continue;
        const mics_trace_event from = event_of(file, traced, s, step->wait[stream], &text);
        if (from.end_us > free_us)
            mics_trace_arrow(file->trace, &from, event);
    }
}

static void write_step(const run_trace_file *file, const run_traced *traced, int32_t s)
{
    double free_us = 0; // when computation was free for its next entry
    for (int32_t entry = 0; entry < file->list->count; entry++) {
        event_text text;
        if (!ran(file, traced, s, entry))
            continue;
        const mics_trace_event event = event_of(file, traced, s, entry, &text);
        mics_trace_write(file->trace, &event);
        if (!mics_step_is_compute(&file->list->steps[entry]))
            continue;
        draw_waits(file, traced, s, &event, entry, free_us);
        free_us = event.end_us;
    }
}

static void name_tracks(const run_trace_file *file, int32_t rank)
{
    char name[NAME_BYTES];
    bool used[MICS_STREAMS] = {false};
    const int32_t per_node = file->job->schedule->spec.mesh.ranks_per_node;
    snprintf(name, sizeof name, "rank %d, node %d", (int)rank, (int)(rank / per_node));
    mics_trace_name_process(file->trace, rank, name);
    for (int32_t i = 0; i < file->list->count; i++)
        used[file->list->steps[i].stream] = true;
    for (int stream = 0; stream < MICS_STREAMS; stream++) {
        if (used[stream])
            mics_trace_name_track(file->trace, rank, stream, mics_stream_text((mics_stream)stream));
    }
}

// ---- figures ----

static double *figure_of(const run_trace_file *file, figure which, int32_t rank)
{
    return &file->figures[(int64_t)which * file->ranks + rank];
}

static void add_figures(run_trace_file *file, int32_t rank, const run_traced_step *step)
{
    run_overlap overlap;
    const run_exposed exposed = run_exposed_sum(step->exposed_us);
    run_overlap_sum(file->list, file->took, file->chains, &overlap);
    const double values[FIGURES] = {
        [STEP] = step->step_us,
        [COMPUTE_BUSY] = overlap.busy[MICS_STREAM_COMPUTE],
        [INTRA_BUSY] = overlap.busy[MICS_STREAM_INTRA],
        [INTER_BUSY] = overlap.busy[MICS_STREAM_INTER],
        [COPY_BUSY] = overlap.busy[MICS_STREAM_COPY],
        [FIRST_GATHER] = overlap.first_gather,
        [LAST_REDUCE] = overlap.last_reduce,
        [IDEAL] = overlap.ideal,
        [EXPOSED] =
            exposed.gather + exposed.reduce + exposed.second_hop + exposed.agree + exposed.meeting,
        [EXPOSED_GATHER] = exposed.gather,
        [EXPOSED_REDUCE] = exposed.reduce,
        [EXPOSED_SECOND_HOP] = exposed.second_hop,
        [EXPOSED_AGREE] = exposed.agree,
        [EXPOSED_MEETING] = exposed.meeting,
        [EXPOSED_COPY] = exposed.copy,
    };
    for (int which = 0; which < FIGURES; which++)
        *figure_of(file, (figure)which, rank) += values[which] / file->count;
}

void run_trace_file_add(run_trace_file *file, const run_traced *traced)
{
    const int32_t entries = file->list->count, rank = traced->rank;
    file->first_step = traced->steps[0].step;
    name_tracks(file, rank);
    for (int32_t s = 0; s < traced->count; s++) {
        const mics_step_time *times = &traced->times[(int64_t)s * entries];
        double *apart = &file->apart[(int64_t)s * entries];
        for (int32_t i = 0; i < entries; i++) {
            const double took = times[i].end_us - times[i].begin_us;
            file->took[i] = took;
            if (!mics_step_is_comm(&file->list->steps[i]))
                apart[i] += took / file->ranks;
            else if (apart[i] == 0 || took < apart[i]) // no collective takes no time
                apart[i] = took;
        }
        write_step(file, traced, s);
        add_figures(file, rank, &traced->steps[s]);
    }
    *figure_of(file, CLOCK_AHEAD, rank) = traced->clock_ahead_us;
    *figure_of(file, CLOCK_ACCURACY, rank) = traced->clock_accuracy_us;
}

static double mean_of(const run_trace_file *file, figure which)
{
    double sum = 0;
    for (int32_t rank = 0; rank < file->ranks; rank++)
        sum += *figure_of(file, which, rank);
    return sum / file->ranks;
}

// The ideal when nobody waits for anybody: who comes last to a collective waits for none.
static double ideal_apart(const run_trace_file *file)
{
    double sum = 0;
    for (int32_t s = 0; s < file->count; s++) {
        run_overlap overlap;
        run_overlap_sum(file->list, &file->apart[(int64_t)s * file->list->count], file->chains,
                        &overlap);
        sum += overlap.ideal;
    }
    return sum / file->count;
}

static void note_run(const run_trace_file *file)
{
    char name[NAME_BYTES];
    mics_trace *trace = file->trace;
    const mics_mesh *mesh = &file->job->schedule->spec.mesh;
    mics_trace_note_text(trace, "program", "mics " MICS_VERSION);
    mics_trace_note_text(trace, "model", file->job->run->model_config);
    mics_trace_note_text(trace, "sharding", mics_mesh_name(mesh, name, sizeof name));
    mics_trace_note_real(trace, "ranks", file->ranks);
    mics_trace_note_real(trace, "ranks_per_node", mesh->ranks_per_node);
    mics_trace_note_real(trace, "micro_steps", file->job->run->micro_steps);
    mics_trace_note_real(trace, "first_step", (double)file->first_step);
    mics_trace_note_real(trace, "steps", file->count);
    mics_trace_note_text(trace, "clocks",
                         "all times are rank 0's; those of a rank may be off by clock_accuracy_us, "
                         "half of its shortest round trip");
}

static void note_figures(const run_trace_file *file)
{
    for (int which = 0; which < FIGURES; which++) {
        char name[NAME_BYTES];
        if (which < CLOCK_AHEAD)
            mics_trace_note_real(file->trace, figure_names[which], mean_of(file, (figure)which));
        snprintf(name, sizeof name, "%s_by_rank", figure_names[which]);
        mics_trace_note_reals(file->trace, name, figure_of(file, (figure)which, 0), file->ranks);
    }
    const double step = mean_of(file, STEP), apart = ideal_apart(file);
    mics_trace_note_real(file->trace, "overlap_ratio", step / mean_of(file, IDEAL));
    mics_trace_note_real(file->trace, "ideal_without_waits_us", apart);
    mics_trace_note_real(file->trace, "overlap_ratio_without_waits", step / apart);
}

// ---- the end ----

static double ms_of(const run_trace_file *file, figure which)
{
    return mean_of(file, which) / 1e3;
}

// The rank that computes longest as a rule: nobody keeps it waiting, so what it waits for are links.
static int32_t waits_least(const run_trace_file *file)
{
    int32_t least = 0;
    for (int32_t rank = 1; rank < file->ranks; rank++) {
        if (*figure_of(file, EXPOSED, rank) < *figure_of(file, EXPOSED, least))
            least = rank;
    }
    return least;
}

static void note_summary(const run_trace_file *file)
{
    const long long first = file->first_step, last = first + file->count - 1;
    if (file->count == 1)
        run_job_note(file->job, "trace of step %lld written to %s; open it at ui.perfetto.dev",
                     first, file->path);
    else
        run_job_note(file->job,
                     "trace of steps %lld to %lld written to %s; open it at ui.perfetto.dev", first,
                     last, file->path);
    run_job_note(file->job,
                 "  a step took %.2f ms, mean of all ranks; busy: compute %.2f, intra %.2f, "
                 "inter %.2f",
                 ms_of(file, STEP), ms_of(file, COMPUTE_BUSY), ms_of(file, INTRA_BUSY),
                 ms_of(file, INTER_BUSY));
    run_job_note(file->job,
                 "  computation waited %.2f ms: gather %.2f, reduce %.2f, second hop %.2f, "
                 "agree %.2f",
                 ms_of(file, EXPOSED), ms_of(file, EXPOSED_GATHER), ms_of(file, EXPOSED_REDUCE),
                 ms_of(file, EXPOSED_SECOND_HOP), ms_of(file, EXPOSED_AGREE));
    const int32_t least = waits_least(file);
    if (file->ranks > 1)
        run_job_note(file->job,
                     "  rank %d waited least, %.2f ms; what others waited beyond that, "
                     "they waited for late ranks",
                     (int)least, *figure_of(file, EXPOSED, least) / 1e3);
    run_job_note(file->job,
                 "  at least, whatever the order of collectives: %.2f ms (first gather %.2f, "
                 "last reduce %.2f); the step took %.2f times that",
                 ms_of(file, IDEAL), ms_of(file, FIRST_GATHER), ms_of(file, LAST_REDUCE),
                 mean_of(file, STEP) / mean_of(file, IDEAL));
}

mics_status run_trace_file_finish(run_trace_file *file)
{
    note_run(file);
    note_figures(file);
    MICS_TRY(mics_trace_finish(file->trace));
    note_summary(file);
    return MICS_OK;
}
