// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// check_trace TRACE.json RANKS ENTRIES FIRST_STEP STEPS [AHEAD_S]: whether a trace has every rank, its three
// tracks, and every entry of the schedule once a step, in order and without overlap; whether ranks met where they
// all have to; and that the last rank's clock is AHEAD_S (0) ahead of rank 0's. Says the first thing that is wrong.
#include "base/json.h"
#include "mics/core/schedule.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_BYTES = 1 << 28 };

typedef struct expected {
    int64_t ranks, entries, first_step, steps;
    double ahead_s;
} expected;

// What is known of a rank so far.
typedef struct seen_rank {
    int64_t tids[MICS_STREAMS]; // by stream; 0: not named
    double ends[MICS_STREAMS];  // of the newest event
    int64_t events;
    bool named;
} seen_rank;

static int wrong(int64_t event, const char *what)
{
    fprintf(stderr, "check_trace: event %lld: %s\n", (long long)event, what);
    return 1;
}

static const char *text_of(const mics_json_value *object, const char *key)
{
    const char *text = mics_json_string(mics_json_get(object, key));
    return text != NULL ? text : "";
}

static int64_t int_of(const mics_json_value *object, const char *key)
{
    return mics_json_int(mics_json_get(object, key));
}

static int check_name(int64_t at, const mics_json_value *event, seen_rank *rank, int64_t number)
{
    char prefix[64];
    const char *kind = text_of(event, "name"),
               *name = text_of(mics_json_get(event, "args"), "name");
    snprintf(prefix, sizeof prefix, "rank %lld, node ", (long long)number);
    if (strcmp(kind, "process_name") == 0) {
        rank->named = strncmp(name, prefix, strlen(prefix)) == 0;
        return rank->named ? 0 : wrong(at, name);
    }
    for (int stream = 0; strcmp(kind, "thread_name") == 0 && stream < MICS_STREAMS; stream++) {
        if (strcmp(name, mics_stream_text((mics_stream)stream)) == 0)
            rank->tids[stream] = int_of(event, "tid");
    }
    return 0;
}

// Events of a rank come by step, by entry; those of a track one after the other.
static int check_event(int64_t at, const mics_json_value *event, seen_rank *rank,
                       const expected *want)
{
    const mics_json_value *args = mics_json_get(event, "args");
    const double begin = mics_json_real(mics_json_get(event, "ts"));
    const double took = mics_json_real(mics_json_get(event, "dur"));
    int stream = 0;
    while (stream < MICS_STREAMS && rank->tids[stream] != int_of(event, "tid"))
        stream++;
    if (stream == MICS_STREAMS || rank->tids[stream] == 0)
        return wrong(at, "on a track without a name");
    if (int_of(args, "entry") != rank->events % want->entries ||
        int_of(args, "step") != want->first_step + rank->events / want->entries)
        return wrong(at, "is not the entry that is due");
    if (!(took >= 0 && begin > 0))
        return wrong(at, "lasts less than no time");
    if (begin < rank->ends[stream] - 0.0005)
        return wrong(at, "overlaps the one before on its track");
    if (stream != MICS_STREAM_COMPUTE && stream != MICS_STREAM_COPY &&
        *text_of(args, "group") == '\0')
        return wrong(at, "has no group");
    rank->ends[stream] = begin + took;
    rank->events++;
    return 0;
}

static int check_events(const mics_json_value *events, seen_rank *ranks, const expected *want)
{
    int failed = 0;
    for (int32_t i = 0; failed == 0 && i < mics_json_count(events); i++) {
        const mics_json_value *event = mics_json_element(events, i);
        const int64_t number = int_of(event, "pid");
        const char *phase = text_of(event, "ph");
        if (number < 0 || number >= want->ranks)
            return wrong(i, "of no such rank");
        if (*phase == 'M')
            failed = check_name(i, event, &ranks[number], number);
        else if (*phase == 'X')
            failed = check_event(i, event, &ranks[number], want);
        else if (strcmp(phase, "s") != 0 && strcmp(phase, "f") != 0)
            failed = wrong(i, "of an unknown phase");
    }
    return failed;
}

static int check_ranks(const seen_rank *ranks, const expected *want)
{
    for (int64_t r = 0; r < want->ranks; r++) {
        if (!ranks[r].named || ranks[r].events != want->entries * want->steps)
            return wrong(r, "is a rank without a name, or without all entries");
        for (int stream = 0; stream < MICS_STREAM_COPY; stream++) {
            if (ranks[r].tids[stream] == 0 || ranks[r].ends[stream] == 0)
                return wrong(r, "is a rank that lacks a track");
        }
    }
    return 0;
}

// The figures, also against each other.
static int check_figures(const mics_json_value *other, const expected *want)
{
    static const char *const names[] = {"step_us",
                                        "compute_busy_us",
                                        "intra_busy_us",
                                        "inter_busy_us",
                                        "first_gather_us",
                                        "last_reduce_us",
                                        "ideal_us",
                                        "exposed_us",
                                        "exposed_gather_us",
                                        "exposed_agree_us",
                                        "overlap_ratio",
                                        "ideal_without_waits_us",
                                        "overlap_ratio_without_waits"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (!(mics_json_real(mics_json_get(other, names[i])) > 0))
            return wrong((int64_t)i, names[i]);
    }
    const double step = mics_json_real(mics_json_get(other, "step_us"));
    const double ideal = mics_json_real(mics_json_get(other, "ideal_us"));
    const double ratio = mics_json_real(mics_json_get(other, "overlap_ratio"));
    if (!(fabs(ratio - step / ideal) < 1e-9 * ratio))
        return wrong(0, "overlap_ratio is not step_us / ideal_us");
    if (mics_json_count(mics_json_get(other, "step_us_by_rank")) != want->ranks ||
        mics_json_count(mics_json_get(other, "clock_accuracy_us_by_rank")) != want->ranks)
        return wrong(0, "figures by rank are missing");
    return 0;
}

// Ranks of one machine share a clock, and that is found.
static int check_clocks(const mics_json_value *other, const expected *want, double *slack_out)
{
    const mics_json_value *ahead = mics_json_get(other, "clock_ahead_us_by_rank");
    const mics_json_value *accuracy = mics_json_get(other, "clock_accuracy_us_by_rank");
    const double last_us = mics_json_real(mics_json_element(ahead, (int32_t)want->ranks - 1));
    double worst = 0;
    for (int32_t r = 0; r < want->ranks; r++)
        worst = fmax(worst, mics_json_real(mics_json_element(accuracy, r)));
    *slack_out = 2 * worst;
    if (want->ahead_s == 0 ? last_us != 0 : !(fabs(last_us - want->ahead_s * 1e6) <= worst))
        return wrong(want->ranks - 1, "is a rank whose clock was not found");
    return 0;
}

// Nobody leaves the agreement of a step before everybody has come.
static int check_agreements(const mics_json_value *events, const expected *want, double slack_us)
{
    for (int64_t s = 0; s < want->steps; s++) {
        double last_begin = 0, first_end = INFINITY;
        for (int32_t i = 0; i < mics_json_count(events); i++) {
            const mics_json_value *event = mics_json_element(events, i);
            if (strcmp(text_of(event, "cat"), "agree") != 0 ||
                int_of(mics_json_get(event, "args"), "step") != want->first_step + s)
                continue;
            const double begin = mics_json_real(mics_json_get(event, "ts"));
            last_begin = fmax(last_begin, begin);
            first_end = fmin(first_end, begin + mics_json_real(mics_json_get(event, "dur")));
        }
        if (!(last_begin > 0 && last_begin <= first_end + slack_us))
            return wrong(s, "is a step whose agreement some rank left before another came");
    }
    return 0;
}

int main(int argc, char **argv)
{
    if (argc != 6 && argc != 7)
        return wrong(0, "usage: check_trace TRACE.json RANKS ENTRIES FIRST_STEP STEPS [AHEAD_S]");
    const expected want = {strtoll(argv[2], NULL, 10), strtoll(argv[3], NULL, 10),
                           strtoll(argv[4], NULL, 10), strtoll(argv[5], NULL, 10),
                           argc > 6 ? strtod(argv[6], NULL) : 0};
    mics_memory *memory = NULL;
    mics_json *json = NULL;
    seen_rank *ranks = calloc((size_t)want.ranks, sizeof *ranks);
    int failed = ranks == NULL || mics_memory_open(&memory) != MICS_OK ||
                 mics_json_load(memory, argv[1], MOST_BYTES, &json) != MICS_OK;
    const mics_json_value *events = failed ? NULL : mics_json_at(json, "traceEvents");
    const mics_json_value *other = failed ? NULL : mics_json_at(json, "otherData");
    double slack_us = 0;
    if (!failed)
        failed = check_events(events, ranks, &want) || check_ranks(ranks, &want) ||
                 check_figures(other, &want) || check_clocks(other, &want, &slack_us) ||
                 check_agreements(events, &want, slack_us);
    mics_json_close(json);
    failed = mics_memory_close(memory) != 0 || failed;
    free(ranks);
    return failed;
}
