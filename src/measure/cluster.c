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
#include <string.h>
#include <time.h>

static const double TIMEOUT_S = 120;
// Of the time asked for, what is taken for the other half where the file lacks it, and for links where
// both are asked for.
static const double OTHER_SHARE = 0.25, LINKS_SHARE = 0.4;
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
    double begun_us; // on this process' clock
    measure_parts parts;
    int32_t cores;          // that the offer's ranks share; 0: as the machine has them
    measure_report *report; // filled by rank 0, the cluster by its process
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
    const measure_place place = {.gpu = self->gpu,
                                 .nodes = self->world->nodes,
                                 .per_node = self->world->ranks / self->world->nodes};
    return measure_file_open(self->memory, self->spec, &place, &self->report->updated,
                             &self->report->cluster);
}

measure_parts measure_share_out(const measure_spec *spec, int32_t ranks, bool lacks)
{
    const double seconds = spec->seconds;
    measure_parts parts = {.check_s = spec->compute || lacks ? seconds * CHECK_SHARE : 0};
    const double all_s = seconds * (1 - BEYOND) - parts.check_s;
    const bool both = spec->compute && spec->links;
    const double other_s = both ? all_s * LINKS_SHARE : (lacks ? seconds * OTHER_SHARE : 0);
    parts.compute_s = spec->compute ? all_s - other_s : other_s;
    parts.links_s = spec->compute ? other_s : all_s - other_s;
    if (ranks > 1)
        return parts;
    parts.links_s = 0;
    parts.compute_s = spec->compute ? all_s : other_s;
    return parts;
}

static mics_status share_out(job *self)
{
    const measure_report *report = self->report;
    int64_t said[] = {report->first && !report->updated,
                      report->first && self->spec->offer != NULL ? report->cluster.cores : 0};
    MICS_TRY(run_world_max(self->world, said, 2));
    self->parts = measure_share_out(self->spec, self->world->ranks, said[0] != 0);
    self->cores = (int32_t)said[1];
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
    if (self->parts.compute_s > 0) {
        MICS_TRY(time_left(session, self, self->parts.compute_s,
                           self->parts.links_s + self->parts.check_s, &left_s));
        MICS_TRY(measure_compute_run(session, &subject, left_s, &compute));
    }
    if (self->parts.links_s > 0) {
        MICS_TRY(time_left(session, self, self->parts.links_s, self->parts.check_s, &left_s));
        MICS_TRY(measure_links_run(session, left_s, &links));
    }
    if (self->parts.compute_s > 0)
        MICS_TRY(measure_training_check(session, &subject, self->parts.check_s, &compute));
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
    if (self->cores > 0) { // this is a node of several on one machine
        session.place.shared = true;
        session.place.cores = self->cores;
    }
    if (status == MICS_OK && self->gpu)
        status = measure_gpu_open(&session);
    if (status == MICS_OK)
        status = measure(&session, self);
    measure_session_close(&session);
    return status;
}

// ---- afterwards ----

// `of`: what was measured; "": nothing more to say.
static void note(const measure_place *place, const char *section, double took_s, const char *of,
                 mics_cluster *cluster)
{
    char words[160], date[16] = "";
    const time_t now = time(NULL);
    struct tm parts;
    if (gmtime_r(&now, &parts) != NULL)
        strftime(date, sizeof date, "%Y-%m-%d", &parts);
    snprintf(words, sizeof words, "mics bench, %s, %d x %d ranks by %s, %.0f s%s", date,
             (int)place->nodes, (int)place->per_node, place->mpi ? "MPI" : "threads", took_s, of);
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

static void note_parts(const job *self)
{
    const measure_report *report = self->report;
    const mics_batch *batch = &self->subject.batch;
    const char *path = mics_json_name(self->subject.config), *slash = strrchr(path, '/');
    char of[72];
    snprintf(of, sizeof of, ", %.32s, %lld x %lld tokens", slash != NULL ? slash + 1 : path,
             (long long)batch->sequences, (long long)batch->length);
    if (report->has_links)
        note(&report->place, "links", report->links.took_s, "", &self->report->cluster);
    if (report->has_compute)
        note(&report->place, "computation", report->compute.took_s, of, &self->report->cluster);
}

// One node has no network; without one, plans are of one node.
static void warn_no_network(const job *self)
{
    const mics_cluster *cluster = &self->report->cluster;
    if (self->spec->compute && self->spec->links && cluster->tier_count == cluster->node_tier + 1)
        mics_log(MICS_LOG_WARNING,
                 "%s describes one node: measure on two (mpirun), or give the machine with "
                 "--cluster, whose network counts then",
                 self->spec->out);
}

static mics_status finish(job *self)
{
    measure_report *report = self->report;
    const measure_place *place = &report->place;
    if (!report->first)
        return MICS_OK;
    if (self->parts.compute_s > 0)
        MICS_TRY(measure_training_judge(&report->compute, load_without_waiting(place), place->cores,
                                        self->spec->force));
    report->has_links = self->parts.links_s > 0;
    report->has_compute = self->parts.compute_s > 0;
    note_parts(self);
    if (report->has_compute)
        measure_file_take_compute(place, &report->compute, &report->cluster);
    if (report->has_links)
        measure_file_take_links(place, &report->links, &report->cluster);
    MICS_TRY(mics_cluster_finish(&report->cluster));
    for (int32_t i = 0; i < report->links.row_count; i++)
        predict(&report->cluster, place->ranks, &report->links.rows[i]);
    MICS_TRY(measure_file_write(self->memory, self->spec->out, &report->cluster));
    warn_no_network(self);
    return MICS_OK;
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
    run_world_keep_apart(self->world);
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
