// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// mics bench as a whole: what is measured and for how long, and the cluster file that becomes of
// it.
#include "base/clock.h"
#include "measure/internal.h"
#include "mics/log.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static const double TIMEOUT_S = 120;
// Of the time asked for, what is taken for the other half where the file lacks it.
static const double OTHER_SHARE = 0.25;
// And for the step that is timed once more at the end; and what each half has at least, of its own,
// where what came before took too long.
static const double CHECK_SHARE = 0.06, MIN_SHARE = 0.3;
// Phases begin with a call that warms up, and end with the last that began in time.
static const double BEYOND = 0.06;

typedef struct job {
    mics_memory *memory;
    const measure_spec *spec;
    run_world *world;
    measure_subject subject;
    bool gpu;
    double begun_us;           // on this process' clock
    double links_s, compute_s; // for each half; 0: not measured
    double check_s;            // for a step at the end
    measure_report *report;    // filled by rank 0, the cluster by its process
} job;

// ---- before measuring ----

static mics_status check(const job *self)
{
    if (self->spec->seconds == 0)
        return mics_fail(MICS_ERR_INVALID, "mics bench: --seconds 0 measures nothing");
    if (self->spec->compute || self->world->ranks > 1)
        return MICS_OK;
    return mics_fail(MICS_ERR_INVALID,
                     "mics bench comm: one rank has no links; give --ranks 2 or more, or mpirun");
}

// The first process knows the file.
static mics_status open_file(job *self)
{
    if (!self->report->first)
        return MICS_OK;
    return measure_file_open(self->memory, self->spec->out, self->world->ranks / self->world->nodes,
                             &self->report->updated, &self->report->cluster);
}

// Which halves are measured, and for how long: what is asked for, and what the file lacks.
static mics_status share_out(job *self)
{
    int64_t lacks = self->report->first && !self->report->updated;
    MICS_TRY(run_world_max(self->world, &lacks, 1));
    const double other_s = lacks ? self->spec->seconds * OTHER_SHARE : 0;
    self->check_s = self->spec->compute || lacks ? self->spec->seconds * CHECK_SHARE : 0;
    const double wanted_s = self->spec->seconds * (1 - BEYOND) - other_s - self->check_s;
    self->compute_s = self->spec->compute ? wanted_s : other_s;
    self->links_s = self->spec->compute ? other_s : wanted_s;
    if (self->world->ranks == 1)
        self->links_s = 0;
    return MICS_OK;
}

// ---- measuring ----

// What is left of the whole for a part, of which `later_s` belong to others; the same on all ranks.
static mics_status time_left(measure_session *session, const job *self, double wanted_s,
                             double later_s, double *left_s_out)
{
    const double end_us = self->begun_us + self->spec->seconds * (1 - BEYOND) * 1e6;
    const double mine = fmax((end_us - mics_clock_us()) / 1e6 - later_s, MIN_SHARE * wanted_s);
    MICS_TRY(measure_share(session, &mine, 1));
    *left_s_out = session->all[0];
    return MICS_OK;
}

static mics_status measure(measure_session *session, job *self)
{
    measure_subject subject = self->subject;
    double left_s = 0;
    measure_links links = {.took_s = 0};
    measure_compute compute = {.took_s = 0};
    subject.batch.threads = session->place.threads;
    if (self->compute_s > 0) {
        MICS_TRY(time_left(session, self, self->compute_s, self->links_s + self->check_s, &left_s));
        MICS_TRY(measure_compute_run(session, &subject, left_s, &compute));
    }
    if (self->links_s > 0) {
        MICS_TRY(time_left(session, self, self->links_s, self->check_s, &left_s));
        MICS_TRY(measure_links_run(session, left_s, &links));
    }
    if (self->compute_s > 0)
        MICS_TRY(measure_training_check(session, &subject, self->check_s, &compute));
    if (session->rank->comm->rank == 0) {
        self->report->place = session->place;
        self->report->links = links;
        self->report->compute = compute;
    }
    return MICS_OK;
}

static mics_status run_rank_main(void *ctx, run_rank *rank)
{
    job *self = ctx;
    measure_session session = {.rank = NULL};
    mics_status status =
        measure_session_open(&session, rank, self->subject.batch.threads, self->gpu);
    session.quiet = self->spec->quiet;
    if (status == MICS_OK && self->gpu)
        status = measure_gpu_open(&session);
    if (status == MICS_OK)
        status = measure(&session, self);
    measure_session_close(&session);
    return status;
}

// ---- afterwards ----

static void note(const measure_place *place, const char *section, double took_s,
                 mics_cluster *cluster)
{
    char words[96], date[16] = "";
    const time_t now = time(NULL);
    struct tm parts;
    if (gmtime_r(&now, &parts) != NULL)
        strftime(date, sizeof date, "%Y-%m-%d", &parts);
    snprintf(words, sizeof words, "mics bench, %s, %d x %d ranks by %s, %.0f s", date,
             (int)place->nodes, (int)place->per_node, place->mpi ? "MPI" : "threads", took_s);
    measure_file_note(cluster, section, words);
}

static void predict(const mics_cluster *cluster, int32_t ranks, measure_row *row)
{
    mics_collective stages[3] = {row->collective};
    const int32_t count = row->staged ? mics_cost_stages(cluster, &row->collective, stages) : 1;
    for (int32_t i = 0; i < count; i++)
        row->predicted_us += mics_cost_collective(cluster, ranks, &stages[i]).us;
}

// The machine's load average, without the ranks' own threads that have no core.
static double load_without_waiting(const measure_place *place)
{
    const double waiting = (double)place->machine_ranks * place->threads - place->cores;
    double load = 0;
    if (getloadavg(&load, 1) != 1)
        return 0;
    return load - fmax(waiting, 0);
}

static mics_status finish(job *self)
{
    measure_report *report = self->report;
    const measure_place *place = &report->place;
    if (!report->first)
        return MICS_OK;
    if (self->compute_s > 0)
        MICS_TRY(measure_training_judge(&report->compute, load_without_waiting(place), place->cores,
                                        self->spec->force));
    report->has_links = self->links_s > 0;
    report->has_compute = self->compute_s > 0;
    if (report->has_links)
        note(place, "links", report->links.took_s, &report->cluster);
    if (report->has_compute) {
        note(place, "computation", report->compute.took_s, &report->cluster);
        measure_file_take_compute(place, &report->compute, &report->cluster);
    }
    if (report->has_links)
        measure_file_take_links(place, &report->links, &report->cluster);
    MICS_TRY(mics_cluster_finish(&report->cluster));
    for (int32_t i = 0; i < report->links.row_count; i++)
        predict(&report->cluster, place->ranks, &report->links.rows[i]);
    return measure_file_write(self->memory, self->spec->out, &report->cluster);
}

// ---- the whole ----

static mics_status run(job *self, bool *running_out)
{
    mics_status mine = self->spec->status;
    self->report->first = self->world->first == 0;
    mics_run_device device = MICS_RUN_DEVICE_AUTO;
    if (mine == MICS_OK)
        mine = check(self);
    if (mine == MICS_OK)
        mine = measure_subject_device(self->memory, self->spec, &device);
    MICS_TRY(run_world_agree(self->world, mine));
    mine = measure_gpu_choose(self->world, device, &self->gpu);
    if (mine == MICS_OK)
        mine =
            measure_subject_open(self->memory, self->spec, self->world, self->gpu, &self->subject);
    if (mine == MICS_OK)
        mine = open_file(self);
    MICS_TRY(run_world_agree(self->world, mine));
    MICS_TRY(share_out(self));
    *running_out = true;
    MICS_TRY(run_world_run(self->world, run_rank_main, self));
    return finish(self);
}

mics_status measure_cluster(mics_memory *memory, const measure_spec *spec, bool *running_out,
                            measure_report *report_out)
{
    const run_world_spec world = {
        .ranks = spec->ranks, .nodes = spec->nodes, .timeout_s = TIMEOUT_S};
    measure_report report = {.first = false};
    job self = {.memory = memory, .spec = spec, .report = &report, .begun_us = mics_clock_us()};
    *running_out = false;
    mics_status status = run_world_open(memory, &world, &self.world);
    if (status == MICS_OK)
        status = run(&self, running_out);
    mics_log_release(status != MICS_OK, -1);
    run_world_close(self.world);
    measure_subject_close(&self.subject);
    if (status == MICS_OK)
        *report_out = report;
    return status;
}
