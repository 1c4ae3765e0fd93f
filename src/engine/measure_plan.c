// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// What to measure, and what follows from it. All pure.
#include "measure_plan.h"
#include <string.h>

// Another algorithm is taken for a gain of 3 %: less is the noise of a few repetitions.
static const double WORTH_A_CHANGE = 0.97;

static int32_t degree_of(const mics_sharding *sharding, mics_measure_op op)
{
    return op == MICS_MEASURE_GATHER ? sharding->params : sharding->grads;
}

// How a unit travels over the whole of its group.
static mics_wire wire_of(const mics_schedule *schedule, mics_measure_op op)
{
    const mics_schedule_spec *spec = &schedule->spec;
    const mics_wires wires = op == MICS_MEASURE_GATHER ? spec->gather_wires : spec->reduce_wires;
    return degree_of(&spec->mesh.sharding, op) > spec->mesh.ranks_per_node ? wires.between
                                                                           : wires.inside;
}

// A ring leaves a node once. Packed contributions go to each member directly, so all ranks of a
// node send them (collectives.c).
double mics_measure_node_bytes(const mics_schedule *schedule, mics_measure_op op,
                               mics_algorithm algorithm, size_t bytes)
{
    const mics_mesh *mesh = &schedule->spec.mesh;
    const double degree = degree_of(&mesh->sharding, op), per_node = mesh->ranks_per_node;
    const bool direct = op == MICS_MEASURE_REDUCE && wire_of(schedule, op) != MICS_WIRE_FP32;
    if (degree <= per_node || algorithm == MICS_ALGORITHM_LIBRARY)
        return 0;
    const double share = (double)bytes / degree;
    if (algorithm == MICS_ALGORITHM_TWO_STAGE)
        return share * (degree - per_node);
    return direct ? share * per_node * (degree - per_node) : share * (degree - 1);
}

// A packed reduction over whole nodes in one stage can send more between them than one of whole
// numbers, as each rank of a node sends to each of the others: no schedule takes that.
static bool sends_too_much(const mics_schedule *schedule, mics_measure_op op)
{
    const mics_sharding *sharding = &schedule->spec.mesh.sharding;
    const int32_t degree = degree_of(sharding, op);
    const size_t packed = mics_wire_bytes(wire_of(schedule, op), degree),
                 whole = mics_wire_bytes(MICS_WIRE_FP32, degree);
    return op == MICS_MEASURE_REDUCE &&
           mics_measure_node_bytes(schedule, op, MICS_ALGORITHM_RING, packed) >
               (double)whole / degree * (degree - 1);
}

bool mics_measure_candidate(const mics_schedule *schedule, mics_measure_op op,
                            mics_algorithm algorithm, bool library)
{
    const mics_mesh *mesh = &schedule->spec.mesh;
    const int32_t degree = degree_of(&mesh->sharding, op);
    switch (algorithm) {
    case MICS_ALGORITHM_RING:
        return degree > 1 && !sends_too_much(schedule, op);
    case MICS_ALGORITHM_TWO_STAGE:
        return mesh->ranks_per_node > 1 && degree > mesh->ranks_per_node;
    default:
        return library && op == MICS_MEASURE_GATHER && degree > 1 && degree <= mesh->ranks_per_node;
    }
}

static bool has_choice(const mics_schedule *schedule, mics_measure_op op, bool library)
{
    int32_t candidates = 0;
    if (op == MICS_MEASURE_GATHER && schedule->spec.share_params)
        return false; // nothing moves
    for (int a = 0; a < MICS_ALGORITHMS; a++)
        candidates += mics_measure_candidate(schedule, op, (mics_algorithm)a, library);
    return candidates > 1;
}

// ---- sizes ----

enum { SIZES = 63 };

// The smallest i with 2^i >= bytes.
static int32_t size_class(size_t bytes)
{
    int32_t i = 0;
    while (i + 1 < SIZES && ((size_t)1 << i) < bytes)
        i++;
    return i;
}

// The run's units of a size.
typedef struct size_units {
    int32_t count;
    size_t most_bytes;
} size_units;

static bool any_wanted(const size_units wanted[MICS_MEASURE_OPS])
{
    return wanted[MICS_MEASURE_GATHER].count > 0 || wanted[MICS_MEASURE_REDUCE].count > 0;
}

static void add_units(size_units *to, size_units more)
{
    to->count += more.count;
    to->most_bytes = more.most_bytes > to->most_bytes ? more.most_bytes : to->most_bytes;
}

static int32_t count_sizes(size_units wanted[SIZES][MICS_MEASURE_OPS])
{
    int32_t count = 0;
    for (int32_t i = 0; i < SIZES; i++)
        count += any_wanted(wanted[i]);
    return count;
}

// Joins a size to the next larger one: the pair that is nearest, of equals the smallest.
static void join_nearest(size_units wanted[SIZES][MICS_MEASURE_OPS])
{
    int32_t before = -1, from = 0, to = 0, least = SIZES + 1;
    for (int32_t i = 0; i < SIZES; i++) {
        if (!any_wanted(wanted[i]))
            continue;
        if (before >= 0 && i - before < least) {
            from = before;
            to = i;
            least = i - before;
        }
        before = i;
    }
    for (int op = 0; op < MICS_MEASURE_OPS; op++) {
        add_units(&wanted[to][op], wanted[from][op]);
        wanted[from][op] = (size_units){0};
    }
}

void mics_measure_plan(const mics_schedule *schedule, bool library, mics_timings *plan_out)
{
    const mics_schedule_spec *spec = &schedule->spec;
    size_units wanted[SIZES][MICS_MEASURE_OPS] = {0};
    mics_timings plan = {.row_count = 0};
    for (int op = 0; op < MICS_MEASURE_OPS; op++) {
        if (!has_choice(schedule, (mics_measure_op)op, library))
            continue;
        for (int32_t unit = 0; unit < spec->model->unit_count; unit++) {
            const size_t bytes = mics_wire_bytes(wire_of(schedule, (mics_measure_op)op),
                                                 schedule->padded_elems[unit]);
            if (degree_of(&schedule->sharding[unit], (mics_measure_op)op) > 1)
                add_units(&wanted[size_class(bytes)][op], (size_units){1, bytes});
        }
    }
    while (count_sizes(wanted) > MICS_CHOICES)
        join_nearest(wanted);
    for (int32_t i = 0; i < SIZES; i++) {
        if (!any_wanted(wanted[i]))
            continue;
        mics_timing_row *row = &plan.rows[plan.row_count++];
        row->most_bytes = (size_t)1 << i;
        for (int op = 0; op < MICS_MEASURE_OPS; op++)
            row->of[op] = (mics_timing){.wanted = wanted[i][op].count > 0,
                                        .units = wanted[i][op].count,
                                        .unit_bytes = wanted[i][op].most_bytes};
    }
    *plan_out = plan;
}

// ---- what was not timed ----

bool mics_measure_is_timed(const mics_timing *timing)
{
    return timing->bytes > 0 && timing->bytes == timing->unit_bytes;
}

// How many times as large one size is as another.
static double apart(size_t a, size_t b)
{
    return a > b ? (double)a / (double)b : (double)b / (double)a;
}

const mics_timing *measure_nearest(const mics_timings *timings, mics_measure_op op,
                                   size_t unit_bytes)
{
    const mics_timing *nearest = NULL;
    for (int32_t i = 0; i < timings->row_count; i++) {
        const mics_timing *timing = &timings->rows[i].of[op];
        if (timing->bytes > 0 && (nearest == NULL || apart(timing->bytes, unit_bytes) <
                                                         apart(nearest->bytes, unit_bytes)))
            nearest = timing;
    }
    return nearest;
}

void measure_follow(mics_timings *timings)
{
    const mics_timings timed = *timings;
    for (int32_t i = 0; i < timings->row_count; i++) {
        for (int op = 0; op < MICS_MEASURE_OPS; op++) {
            mics_timing *timing = &timings->rows[i].of[op];
            const mics_timing *from =
                timing->wanted ? measure_nearest(&timed, (mics_measure_op)op, timing->unit_bytes)
                               : NULL;
            if (from == NULL)
                continue;
            timing->bytes = from->bytes;
            memcpy(timing->us, from->us, sizeof timing->us);
        }
    }
}

// ---- order ----

static double weight(const mics_timing *timing)
{
    return (double)timing->units * (double)timing->unit_bytes;
}

// Whether `a` is timed before `b`: the operation that goes first, then the larger sum of bytes,
// then the larger unit.
static bool goes_before(const mics_timings *timings, measure_place a, measure_place b,
                        bool ops_alike)
{
    const mics_timing *x = &timings->rows[a.row].of[a.op], *y = &timings->rows[b.row].of[b.op];
    if (!ops_alike && a.op != b.op)
        return a.op < b.op;
    if (weight(x) != weight(y))
        return weight(x) > weight(y);
    return a.row != b.row ? a.row > b.row : a.op < b.op;
}

int32_t measure_order(const mics_timings *timings, bool ops_alike,
                      measure_place places_out[MEASURE_PLACES])
{
    int32_t count = 0;
    for (int32_t i = 0; i < timings->row_count * MICS_MEASURE_OPS; i++) {
        const measure_place place = {i / MICS_MEASURE_OPS, (mics_measure_op)(i % MICS_MEASURE_OPS)};
        int32_t at = count;
        if (!timings->rows[place.row].of[place.op].wanted)
            continue;
        for (; at > 0 && goes_before(timings, place, places_out[at - 1], ops_alike); at--)
            places_out[at] = places_out[at - 1];
        places_out[at] = place;
        count++;
    }
    return count;
}

// ---- choices ----

mics_algorithm mics_measure_fastest(const mics_timing *timing)
{
    mics_algorithm best = MICS_ALGORITHM_TWO_STAGE;
    if (timing->us[best] <= 0 && timing->us[MICS_ALGORITHM_RING] > 0)
        best = MICS_ALGORITHM_RING;
    double least_us = timing->us[best] * WORTH_A_CHANGE;
    for (int a = 0; a < MICS_ALGORITHMS; a++) {
        if (timing->us[a] > 0 && timing->us[a] < least_us) {
            best = (mics_algorithm)a;
            least_us = timing->us[a];
        }
    }
    return best;
}

// The timing that a row goes by for an operation that none of its units has: of the nearest larger
// units that were timed, else of the nearest smaller ones.
static const mics_timing *timing_for(const mics_timings *timings, int32_t row, mics_measure_op op)
{
    for (int32_t i = row; i < timings->row_count; i++) {
        if (timings->rows[i].of[op].bytes > 0)
            return &timings->rows[i].of[op];
    }
    for (int32_t i = row; i > 0; i--) {
        if (timings->rows[i - 1].of[op].bytes > 0)
            return &timings->rows[i - 1].of[op];
    }
    return &timings->rows[row].of[op];
}

int32_t mics_measure_choose(const mics_timings *timings, bool reductions_too,
                            mics_collective_choice choices_out[MICS_CHOICES])
{
    for (int32_t i = 0; i < timings->row_count; i++) {
        choices_out[i] = (mics_collective_choice){
            .most_bytes = timings->rows[i].most_bytes,
            .gather = mics_measure_fastest(timing_for(timings, i, MICS_MEASURE_GATHER)),
            .reduce = MICS_ALGORITHM_TWO_STAGE,
        };
        if (reductions_too)
            choices_out[i].reduce =
                mics_measure_fastest(timing_for(timings, i, MICS_MEASURE_REDUCE));
    }
    return timings->row_count;
}
