// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Clusters and schedules for tests of the simulator, and lists of steps written by hand.
#pragma once

#include "base/capture.h"
#include "plan/simulate/simulate.h"
#include "schedule/models.h"
#include <math.h>

// Nodes of `per_node` ranks; numbers of a size at which the small models compute for about as long as they
// communicate. No slowdown, no cores to share.
static inline mics_cluster machine(int32_t per_node)
{
    mics_cluster c;
    mics_cluster_init(&c);
    strcpy(c.name, "test");
    strcpy(c.accelerator.name, "chip");
    c.accelerator.memory_bytes = 1e9;
    c.accelerator.flops_per_s[MICS_MATH_FP32] = 1e9;
    c.accelerator.memory_bytes_per_s = 1e9;
    c.accelerator.launch_us = 1;
    c.tier_count = 2;
    c.tiers[0] = (mics_tier){.name = "node",
                             .fan_out = per_node,
                             .bytes_per_s = 200e6,
                             .efficiency = 1,
                             .latency_us = 2};
    c.tiers[1] =
        (mics_tier){.name = "network", .bytes_per_s = 80e6, .efficiency = 0.9, .latency_us = 10};
    ASSERT_OK(mics_cluster_finish(&c));
    return c;
}

static inline void assert_close(const char *what, double value, double expected, double tolerance)
{
    if (!(fabs(value - expected) <= tolerance * fabs(expected) + 1e-12))
        fail_msg("%s: %.15g, expected %.15g", what, value, expected);
}

// ---- a world with a small model ----

typedef struct world {
    mics_memory *memory;
    mics_model *model;
    mics_schedule_spec spec;
    mics_schedule *schedule;
    mics_cluster cluster;
    mics_simulation *simulation;
} world;

static inline void world_open(world *w, int32_t nodes, int32_t per_node, mics_sharding sharding)
{
    *w = (world){.cluster = machine(per_node)};
    ASSERT_OK(mics_memory_open(&w->memory));
    w->model = model_gpt2(w->memory, 3, true);
    w->spec = (mics_schedule_spec){.model = w->model,
                                   .batch = {.sequences = 2, .length = 16, .threads = 1},
                                   .micro_steps = 2,
                                   .prefetch = 1};
    ASSERT_OK(mics_mesh_init(nodes * per_node, nodes, sharding, &w->spec.mesh));
}

// Makes the schedule anew, with the specification as it is now.
static inline void world_reschedule(world *w)
{
    mics_schedule_close(w->schedule);
    w->schedule = NULL;
    ASSERT_OK(mics_schedule_open(w->memory, &w->spec, &w->schedule));
}

// Once more, on the cluster as it is now; what was simulated before is closed.
static inline const mics_simulation *world_simulate(world *w, const mics_simulate_options *options)
{
    mics_simulation_close(w->simulation);
    w->simulation = NULL;
    if (w->schedule == NULL)
        world_reschedule(w);
    ASSERT_OK(mics_simulate(w->memory, w->schedule, &w->cluster, options, &w->simulation));
    return w->simulation;
}

static inline void world_close(world *w)
{
    mics_simulation_close(w->simulation);
    mics_schedule_close(w->schedule);
    mics_model_close(w->model);
    assert_int_equal(mics_memory_close(w->memory), 0);
}

// ---- lists by hand ----

static inline mics_step hand_step(mics_step_kind kind, mics_stream stream, int32_t unit)
{
    return (mics_step){.kind = kind, .stream = stream, .unit = unit, .wait = {-1, -1, -1, -1}};
}

// A collective of `bytes` a member, which gathers.
static inline mics_step hand_gather(mics_step_kind kind, mics_stream stream, mics_group_axis axis,
                                    size_t bytes)
{
    mics_step step = hand_step(kind, stream, 1);
    step.axis = axis;
    step.block_bytes = bytes;
    step.block_elems = (int64_t)bytes / 4;
    return step;
}

// The last stage of a gather over the world, inside the node.
static inline mics_step hand_node_gather(size_t bytes)
{
    mics_step step = hand_gather(MICS_STEP_GATHER, MICS_STREAM_INTRA, MICS_AXIS_ISLAND, bytes);
    step.stage = MICS_STAGE_INTRA;
    return step;
}

// Simulates these steps in place of the schedule's.
static inline const mics_simulation *hand_simulate(world *w, mics_step *steps, int32_t count,
                                                   const mics_simulate_options *options)
{
    if (w->schedule == NULL)
        world_reschedule(w);
    const mics_step_list own = w->schedule->lists[MICS_PHASE_TRAIN];
    w->schedule->lists[MICS_PHASE_TRAIN] = (mics_step_list){steps, count};
    const mics_simulation *simulation = world_simulate(w, options);
    w->schedule->lists[MICS_PHASE_TRAIN] = own;
    return simulation;
}
