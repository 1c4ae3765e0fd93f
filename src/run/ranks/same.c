// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Comparing the jobs that processes were given: a hash of each, then one text of each that differs.
#include "same.h"
#include "mics/log.h"
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

enum {
    MAX_JOBS = 8, // that are told apart: others are known to differ
    NAMED_KEYS = 3,
    NAMED_RANGES = 4,
    VALUE_BYTES = 100 // of a value in an error
};

// ---- what differs ----

// One job's rows in the order of their keys. Those of a model's config come in its file's order.
typedef struct job_rows {
    char *text; // cut into lines
    char **lines;
    int32_t count;
} job_rows;

static size_t key_bytes(const char *line)
{
    return strcspn(line, "\t");
}

static int compare_keys(const char *a, const char *b)
{
    const size_t left = key_bytes(a), right = key_bytes(b);
    const int order = memcmp(a, b, left < right ? left : right);
    return order != 0 ? order : (left > right) - (left < right);
}

static int compare_lines(const void *a, const void *b)
{
    return compare_keys(*(char *const *)a, *(char *const *)b);
}

static mics_status split_rows(mics_memory *memory, const char *text, job_rows *rows_out)
{
    int32_t lines = 0;
    for (const char *at = text; (at = strchr(at, '\n')) != NULL; at++)
        lines++;
    MICS_TRY(mics_strdup(memory, text, &rows_out->text));
    MICS_TRY(MICS_NEW(memory, lines + 1, &rows_out->lines));
    char *rest = rows_out->text;
    for (char *end; (end = strchr(rest, '\n')) != NULL; rest = end + 1) {
        *end = '\0';
        rows_out->lines[rows_out->count++] = rest;
    }
    qsort(rows_out->lines, (size_t)rows_out->count, sizeof *rows_out->lines, compare_lines);
    return MICS_OK;
}

// The value that a job has for the key of `line`; NULL: none.
static const char *value_of(const job_rows *rows, const char *line)
{
    char **found = rows->count > 0 ? bsearch(&line, rows->lines, (size_t)rows->count,
                                             sizeof *rows->lines, compare_lines)
                                   : NULL;
    return found != NULL ? *found + key_bytes(*found) + 1 : NULL;
}

static bool same_text(const char *a, const char *b)
{
    return a == NULL || b == NULL ? a == b : strcmp(a, b) == 0;
}

typedef struct difference {
    mics_memory *memory;
    job_rows jobs[MAX_JOBS];
    int32_t job_count;
    const int32_t *job_of; // by rank
    int32_t ranks;
    mics_text said;
} difference;

static bool has_value(const difference *d, int32_t rank, const char *line, const char *value)
{
    const int32_t job = d->job_of[rank];
    return job < d->job_count && same_text(value_of(&d->jobs[job], line), value);
}

// "0-3, 6".
static void log_ranks(difference *d, const char *line, const char *value)
{
    int32_t ranges = 0;
    for (int32_t rank = 0; rank < d->ranks; rank++) {
        if (!has_value(d, rank, line, value))
            continue;
        int32_t last = rank;
        while (last + 1 < d->ranks && has_value(d, last + 1, line, value))
            last++;
        if (ranges++ == NAMED_RANGES) {
            mics_text_printf(&d->said, " and more");
            return;
        }
        mics_text_printf(&d->said,
                         ranges == 1 ? (rank == last ? " on rank %d" : " on ranks %d") : ", %d",
                         (int)rank);
        if (last > rank)
            mics_text_printf(&d->said, "-%d", (int)last);
        rank = last;
    }
}

// "run.seed is 3 on ranks 0-2, 4 on rank 3".
static void log_key(difference *d, const char *line)
{
    mics_text_printf(&d->said, "%.*s is", (int)key_bytes(line), line);
    for (int32_t job = 0; job < d->job_count; job++) {
        const char *value = value_of(&d->jobs[job], line);
        bool said = false;
        for (int32_t before = 0; before < job && !said; before++)
            said = same_text(value_of(&d->jobs[before], line), value);
        if (said)
            continue;
        mics_text_printf(&d->said, "%s %.*s", job > 0 ? "," : "", VALUE_BYTES,
                         value != NULL ? value : "(not given)");
        log_ranks(d, line, value);
    }
}

static bool differs(const difference *d, const char *line)
{
    const char *first = value_of(&d->jobs[0], line);
    bool same = true;
    for (int32_t job = 1; job < d->job_count; job++)
        same = same && same_text(value_of(&d->jobs[job], line), first);
    return !same;
}

// Every key once: of the first job that has it.
static bool is_first_with(const difference *d, int32_t job, const char *line)
{
    bool first = true;
    for (int32_t before = 0; before < job; before++)
        first = first && value_of(&d->jobs[before], line) == NULL;
    return first;
}

static void log_keys(difference *d)
{
    int32_t found = 0;
    for (int32_t job = 0; job < d->job_count; job++) {
        for (int32_t i = 0; i < d->jobs[job].count; i++) {
            const char *line = d->jobs[job].lines[i];
            if (!is_first_with(d, job, line) || !differs(d, line))
                continue;
            if (found++ < NAMED_KEYS) {
                mics_text_printf(&d->said, found > 1 ? "; " : "");
                log_key(d, line);
            }
        }
    }
    if (found > NAMED_KEYS)
        mics_text_printf(&d->said, "; and %d more", (int)(found - NAMED_KEYS));
}

mics_status run_same_fail(mics_memory *memory, const char *const *texts, int32_t job_count,
                          const int32_t *job_of, int32_t ranks)
{
    difference d = {.memory = memory, .job_of = job_of, .ranks = ranks, .said = {.memory = memory}};
    mics_status status = MICS_OK;
    for (; status == MICS_OK && d.job_count < job_count && d.job_count < MAX_JOBS; d.job_count++)
        status = split_rows(memory, texts[d.job_count], &d.jobs[d.job_count]);
    if (status == MICS_OK) {
        log_keys(&d);
        status = mics_text_status(&d.said);
    }
    if (status == MICS_OK)
        status = mics_fail(MICS_ERR_INVALID,
                           "the ranks were not given the same job: %s; give all nodes the same "
                           "files, flags and environment, and the same build",
                           d.said.bytes);
    for (int32_t job = 0; job < MAX_JOBS; job++) {
        mics_free(memory, d.jobs[job].lines);
        mics_free(memory, d.jobs[job].text);
    }
    mics_text_fini(&d.said);
    return status;
}

// ---- comparing ----

typedef struct summary {
    uint64_t hash; // of the rows, whatever their order
    uint64_t bytes;
} summary;

static summary summarise(const mics_text *rows)
{
    summary mine = {.bytes = rows->used};
    for (const char *at = rows->bytes, *end; (end = strchr(at, '\n')) != NULL; at = end + 1)
        mine.hash += XXH3_64bits(at, (size_t)(end - at));
    return mine;
}

// Which job each rank has, numbered by their first ranks. Returns how many there are.
static int32_t number_jobs(const summary *all, int32_t ranks, int32_t *job_of, int32_t *first_of)
{
    int32_t jobs = 0;
    for (int32_t rank = 0; rank < ranks; rank++) {
        int32_t job = 0;
        while (job < jobs && job < MAX_JOBS && all[first_of[job]].hash != all[rank].hash)
            job++;
        if (job == jobs && jobs < MAX_JOBS)
            first_of[jobs++] = rank;
        job_of[rank] = job;
    }
    return jobs;
}

// All processes get one text of each job, from the first rank that has it.
static mics_status exchange_texts(run_world *world, mics_memory *memory, const mics_text *rows,
                                  const summary *all, const int32_t *first_of, int32_t jobs,
                                  char **texts)
{
    mics_status status = MICS_OK;
    for (int32_t job = 0; status == MICS_OK && job < jobs; job++)
        status = MICS_NEW(memory, (int64_t)all[first_of[job]].bytes + 1, &texts[job]);
    MICS_TRY(run_world_agree(world, status));
    for (int32_t job = 0; job < jobs; job++) {
        if (world->first == first_of[job])
            memcpy(texts[job], rows->bytes, rows->used);
        MICS_TRY(mics_comm_broadcast(world->here[0].rank.comm, first_of[job], texts[job],
                                     all[first_of[job]].bytes));
    }
    return MICS_OK;
}

static mics_status log_differences(run_world *world, mics_memory *memory, const mics_text *rows,
                                   const summary *all, int32_t *job_of)
{
    int32_t first_of[MAX_JOBS] = {0};
    char *texts[MAX_JOBS] = {NULL};
    const int32_t jobs = number_jobs(all, world->ranks, job_of, first_of);
    mics_status status = MICS_OK;
    if (jobs > 1)
        status = exchange_texts(world, memory, rows, all, first_of, jobs, texts);
    if (jobs > 1 && status == MICS_OK)
        status = run_world_agree(
            world, run_same_fail(memory, (const char *const *)texts, jobs, job_of, world->ranks));
    for (int32_t job = 0; job < jobs; job++)
        mics_free(memory, texts[job]);
    return status;
}

// Takes what listing the rows came to, and frees them.
static mics_status compare_take(run_world *world, mics_memory *memory, mics_text *rows,
                                mics_status listed)
{
    summary *all = NULL, mine = {0};
    int32_t *job_of = NULL;
    mics_status status = listed;
    if (status == MICS_OK)
        status = mics_text_status(rows);
    if (status == MICS_OK)
        status = MICS_NEW(memory, world->ranks, &all);
    if (status == MICS_OK)
        status = MICS_NEW(memory, world->ranks, &job_of);
    status = run_world_agree(world, status);
    if (status == MICS_OK) {
        mine = summarise(rows);
        status = run_world_gather(world, &mine, sizeof mine, all);
    }
    if (status == MICS_OK && job_of != NULL) // as it is, where all could be had
        status = log_differences(world, memory, rows, all, job_of);
    mics_free(memory, job_of);
    mics_free(memory, all);
    mics_text_fini(rows);
    return status;
}

mics_status run_same_run(mics_job *job)
{
    mics_text rows = {.memory = job->memory};
    if (!job->world->mpi)
        return MICS_OK;
    run_same_list_run(&rows, job);
    return compare_take(job->world, job->memory, &rows, MICS_OK);
}

mics_status run_same_data(mics_job *job)
{
    mics_text rows = {.memory = job->memory};
    if (!job->world->mpi)
        return MICS_OK;
    return compare_take(job->world, job->memory, &rows, run_same_list_data(&rows, job));
}
