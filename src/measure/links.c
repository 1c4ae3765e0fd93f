// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// mics bench comm: links by tier, as a cluster file describes them.
//
// What is measured, in exchanges that training's collectives are made of:
//   ramps     one rank's messages by size, copied and added. Inside a node all ranks of it send at
//             once, on links of their own; between nodes one rank of each sends, in a ring over all
//             ranks of two nodes.
//   link      all ranks of a node send to another node at once.
//   core      processor time that a rank's thread takes for a byte.
//   beside    computation and traffic at once (contention.c).
// In what is one figure for both, gathers count twice and reductions once, as in a micro-step.
#include "measure/internal.h"
#include <math.h>

enum { LATENCY_BYTES = 64, SIZES = 9, ROW_SIZES = 3, ROW_KINDS = 8 };

static const size_t sizes[SIZES] = {1 << 10, 1 << 12, 1 << 14, 1 << 16, 1 << 18,
                                    1 << 20, 1 << 22, 1 << 24, 1 << 25};
static const size_t row_sizes[ROW_SIZES] = {1 << 16, 1 << 20, 1 << 22};
static const size_t LARGE_BYTES = (size_t)4 << 20;  // latencies do not count
static const size_t BESIDE_BYTES = (size_t)8 << 20; // of all blocks together, beside computation

// Shares of the time.
static const double RAMP = 0.12, LARGE = 0.05, BESIDE = 0.28, ROWS = 0.1;

typedef struct meter {
    measure_session *session;
    void *buffer;
    double seconds;
    measure_links *links;
} meter;

// Halves a block until it is no more than `max_bytes`, or that of the smallest message.
static size_t halve(size_t bytes, double max_bytes)
{
    while (bytes > sizes[0] && (double)bytes > max_bytes)
        bytes /= 2;
    return bytes;
}

// What a block may have for the buffer to hold the whole.
static double max_block(const meter *self, const measure_traffic *traffic)
{
    return (double)self->session->place.buffer_bytes / traffic->group.size;
}

// Time of one message in a ring.
static double message_us(const measure_traffic *traffic, double us)
{
    return us / (traffic->group.size - 1);
}

// As a micro-step has them: two gathers, one reduction.
static double mixed(double gather, double reduce)
{
    return (2 * gather + reduce) / 3;
}

static mics_status time_both(meter *self, measure_traffic traffic, double allowed_us,
                             measure_traffic_time *gather, measure_traffic_time *reduce)
{
    traffic.reduces = false;
    MICS_TRY(measure_traffic_run(self->session, &traffic, self->buffer, allowed_us / 2, gather));
    traffic.reduces = true;
    return measure_traffic_run(self->session, &traffic, self->buffer, allowed_us / 2, reduce);
}

// Sizes go up as long as the next one will be done in the time that is left.
static mics_status time_ramp(meter *self, measure_traffic traffic, measure_tier *tier)
{
    double begin_us = 0, now_us = 0, us = 0;
    measure_traffic_time gather = {0}, reduce = {0};
    const double budget_us = self->seconds * RAMP * 1e6;
    traffic.block_bytes = LATENCY_BYTES;
    MICS_TRY(measure_now_us(self->session, &begin_us));
    MICS_TRY(time_both(self, traffic, budget_us / (2 * SIZES), &gather, &reduce));
    tier->latency_us = message_us(&traffic, mixed(gather.us, reduce.us));
    for (int i = 0; i < SIZES; i++) {
        MICS_TRY(measure_now_us(self->session, &now_us));
        const double left_us = budget_us - (now_us - begin_us);
        const double grows = i > 0 ? (double)sizes[i] / (double)sizes[i - 1] : 1;
        // Both are run twice before, and once or more often then.
        if ((double)sizes[i] > max_block(self, &traffic) || (i > 1 && 6 * grows * us > left_us))
            break;
        traffic.block_bytes = sizes[i];
        MICS_TRY(time_both(self, traffic, left_us / (SIZES - i), &gather, &reduce));
        const double bytes = (double)sizes[i];
        us = mixed(gather.us, reduce.us);
        measure_add_point(&tier->ramp, bytes, bytes / message_us(&traffic, gather.us) * 1e6);
        measure_add_point(&tier->reduce_ramp, bytes, bytes / message_us(&traffic, reduce.us) * 1e6);
    }
    return MICS_OK;
}

// Long messages: the link, what a thread works for a byte, and at which rate it adds what it
// receives, which is what a reduction works more than a gather. The link's rate is from the mean
// and not the median, as what one collective loses the next ones do not make good.
static mics_status time_large(meter *self, measure_traffic traffic, measure_tier *tier,
                              double *alone_us_out)
{
    measure_traffic_time gather = {0}, reduce = {0};
    MICS_TRY(time_both(self, traffic, self->seconds * LARGE * 1e6, &gather, &reduce));
    const double bytes = (double)traffic.block_bytes * (traffic.group.size - 1);
    tier->core_us_per_byte = mixed(gather.core_us, reduce.core_us) / bytes;
    tier->link_bytes_per_s = bytes / mixed(gather.mean_us, reduce.mean_us) * 1e6;
    if (self->links->reduce_bytes_per_s == 0 && reduce.core_us > gather.core_us)
        self->links->reduce_bytes_per_s = bytes / (reduce.core_us - gather.core_us) * 1e6;
    *alone_us_out = gather.mean_us;
    return MICS_OK;
}

// Traffic for whom it takes too long is measured on shorter messages.
static size_t large_block(const meter *self, const measure_traffic *traffic, const mics_curve *ramp)
{
    const double rate = ramp->value[ramp->count - 1] / self->session->place.per_node;
    const double in_time = rate * self->seconds * LARGE / 12 / (traffic->group.size - 1);
    return halve(LARGE_BYTES, fmin(max_block(self, traffic), in_time));
}

// A ring over all nodes has a block for each: shorter ones where they would take too much time or
// memory.
static size_t beside_block(const meter *self, size_t bytes)
{
    const measure_place *place = &self->session->place;
    const int32_t members = place->nodes > place->per_node ? place->nodes : place->per_node;
    const size_t all = place->buffer_bytes < BESIDE_BYTES ? place->buffer_bytes : BESIDE_BYTES;
    return halve(bytes, (double)all / members);
}

static mics_status time_tier(meter *self, bool inter, measure_tier *tier)
{
    const char *name = inter ? "inter-node" : "intra-node";
    measure_session *session = self->session;
    measure_traffic all = measure_traffic_apart(session, inter ? MEASURE_INTER : MEASURE_INTRA,
                                                inter ? measure_pair(&session->place) : 1);
    const measure_traffic one =
        inter ? measure_traffic_apart(session, MEASURE_ALL, measure_pair(&session->place)) : all;
    measure_beside_spec beside = {.inter = inter, .seconds = self->seconds * BESIDE};
    measure_say(session, "%s: messages of 1 KiB to 32 MiB", name);
    MICS_TRY(time_ramp(self, one, tier));
    all.block_bytes = large_block(self, &all, &tier->ramp);
    MICS_TRY(time_large(self, all, tier, &beside.large_us));
    if (inter)
        tier->link_bytes_per_s *= session->place.per_node;
    beside.large_bytes = beside_block(self, all.block_bytes);
    beside.large_us =
        message_us(&all, beside.large_us) * (double)beside.large_bytes / (double)all.block_bytes;
    measure_say(session, "%s: beside computation", name);
    return measure_beside_run(session, &beside, self->buffer, tier);
}

// ---- whole collectives ----

// What rows are made of: among whom, in one stage or two.
typedef struct row_kind {
    const char *name;
    measure_scope scope;
    bool staged, reduces;
} row_kind;

static const row_kind row_kinds[ROW_KINDS] = {
    {.name = "all-gather, intra-node", .scope = MEASURE_INTRA},
    {.name = "reduce-scatter, intra-node", .scope = MEASURE_INTRA, .reduces = true},
    {.name = "all-gather, inter-node", .scope = MEASURE_INTER},
    {.name = "reduce-scatter, inter-node", .scope = MEASURE_INTER, .reduces = true},
    {.name = "all-gather, one ring", .scope = MEASURE_ALL},
    {.name = "reduce-scatter, one ring", .scope = MEASURE_ALL, .reduces = true},
    {.name = "all-gather, two stages", .scope = MEASURE_ALL, .staged = true},
    {.name = "reduce-scatter, two stages", .scope = MEASURE_ALL, .staged = true, .reduces = true},
};

static bool is_there(const measure_place *place, const row_kind *kind)
{
    return (kind->scope == MEASURE_INTRA || place->nodes > 1) &&
           (kind->scope == MEASURE_INTER || place->per_node > 1);
}

// A collective of the row, as one of its stages or the whole.
static measure_traffic traffic_of(const meter *self, const row_kind *kind, measure_scope scope,
                                  size_t block_bytes)
{
    const int32_t nodes = self->session->place.nodes;
    measure_traffic traffic =
        measure_traffic_among(self->session, scope, scope == MEASURE_INTRA ? 1 : nodes);
    traffic.reduces = kind->reduces;
    traffic.block_bytes = block_bytes;
    return traffic;
}

static mics_status time_row(meter *self, const row_kind *kind, size_t block_bytes,
                            double allowed_us)
{
    const size_t node_bytes = block_bytes * (size_t)self->session->place.nodes;
    const measure_traffic one = traffic_of(self, kind, kind->scope, block_bytes);
    measure_traffic inter = traffic_of(self, kind, MEASURE_INTER, block_bytes);
    measure_traffic intra = traffic_of(self, kind, MEASURE_INTRA, node_bytes);
    const measure_traffic *staged = kind->reduces ? &intra : &inter;
    measure_traffic_time time = {0};
    if (kind->reduces)
        intra.then = &inter;
    else
        inter.then = &intra;
    MICS_TRY(measure_traffic_run(self->session, kind->staged ? staged : &one, self->buffer,
                                 allowed_us, &time));
    self->links->rows[self->links->row_count++] =
        (measure_row){.name = kind->name,
                      .collective = {.kind = kind->reduces ? MICS_COLLECTIVE_REDUCE_SCATTER
                                                           : MICS_COLLECTIVE_ALL_GATHER,
                                     .group = one.group,
                                     .block_bytes = (double)block_bytes},
                      .staged = kind->staged,
                      .us = time.us};
    return MICS_OK;
}

static mics_status time_rows(meter *self)
{
    const measure_place *place = &self->session->place;
    double begin_us = 0, now_us = 0, us[ROW_KINDS] = {0};
    const double budget_us = self->seconds * ROWS * 1e6;
    measure_say(self->session, "whole collectives");
    MICS_TRY(measure_now_us(self->session, &begin_us));
    for (int i = 0; i < ROW_SIZES * ROW_KINDS; i++) {
        const row_kind *kind = &row_kinds[i % ROW_KINDS];
        const size_t bytes = row_sizes[i / ROW_KINDS];
        double *before = &us[i % ROW_KINDS];
        if (!is_there(place, kind) || bytes * (size_t)place->ranks > place->buffer_bytes)
            continue;
        MICS_TRY(measure_now_us(self->session, &now_us));
        const double left_us = budget_us - (now_us - begin_us);
        if (*before > 0 && 3 * 16 * *before > left_us) // a size is up to 16 times the one before
            continue;
        MICS_TRY(time_row(self, kind, bytes, left_us / (ROW_SIZES * ROW_KINDS - i)));
        *before = self->links->rows[self->links->row_count - 1].us;
    }
    return MICS_OK;
}

mics_status measure_links_run(measure_session *self, double seconds, measure_links *links_out)
{
    measure_links links = {.took_s = 0};
    meter m = {.session = self, .seconds = seconds, .links = &links};
    double begin_us = 0, end_us = 0;
    mics_status status = measure_buffer_open(self, self->place.buffer_bytes, &m.buffer);
    MICS_TRY_OUT(run_rank_agree(self->rank, status));
    MICS_TRY_OUT(measure_now_us(self, &begin_us));
    if (self->place.per_node > 1)
        MICS_TRY_OUT(time_tier(&m, false, &links.intra));
    if (self->place.nodes > 1)
        MICS_TRY_OUT(time_tier(&m, true, &links.inter));
    MICS_TRY_OUT(time_rows(&m));
    MICS_TRY_OUT(measure_now_us(self, &end_us));
    links.took_s = (end_us - begin_us) / 1e6;
    *links_out = links;
out:
    measure_buffer_close(self, m.buffer);
    return status;
}
