// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// What tensor-, context-, expert-parallel ranks, stages and replicas send each other.
#include "plan/search/megatron.h"
#include "schedule/rules.h"
#include <math.h>

static double elem_bytes(const mics_planner *planner)
{
    return (double)mics_precision_bytes(planner->request.precision, MICS_MEM_ACTIVATIONS);
}

static mics_cost_use use_of(const mics_planner *planner, mics_collective_kind kind,
                            mics_group group, double block_bytes)
{
    const mics_collective collective = {.kind = kind, .group = group, .block_bytes = block_bytes};
    return mics_cost_collective(&planner->request.cluster, planner->ranks, &collective);
}

static double us_of(const mics_planner *planner, mics_collective_kind kind, mics_group group,
                    double block_bytes)
{
    return use_of(planner, kind, group, block_bytes).us;
}

double cut_tokens(const mics_planner *planner, const cut *c)
{
    return (double)(c->micro_batch * planner->request.length) / c->p.context;
}

// The vectors of a rank's tokens, cut over the tensor-parallel ranks.
static double tensor_block(const mics_planner *planner, const cut *c)
{
    return cut_tokens(planner, c) * (double)planner->request.model->hidden * elem_bytes(planner) /
           c->p.tensor;
}

static mics_group tensor_group(const cut *c)
{
    return (mics_group){.first = 0, .stride = 1, .size = c->p.tensor};
}

double exchange_sum_us(const mics_planner *planner, const cut *c)
{
    return us_of(planner, MICS_COLLECTIVE_ALL_REDUCE, tensor_group(c), tensor_block(planner, c));
}

double exchange_slowdown(const mics_planner *planner, const cut *c)
{
    return use_of(planner, MICS_COLLECTIVE_ALL_GATHER, tensor_group(c), tensor_block(planner, c))
        .slowdown;
}

double exchange_gather_us(const mics_planner *planner, const cut *c)
{
    return us_of(planner, MICS_COLLECTIVE_ALL_GATHER, tensor_group(c), tensor_block(planner, c));
}

// Of a token's experts those that it is sent to: where nodes get it once, as many as they are on
// average.
static double sent_to(const mics_planner *planner, const cut *c, int32_t chosen)
{
    const double nodes = (double)c->p.expert / planner->ranks_per_node;
    if (nodes <= 1 || !rival_software(planner)->sends_once)
        return chosen;
    return fmin(nodes * (1 - pow(1 - 1 / nodes, chosen)), chosen);
}

double exchange_experts_us(const mics_planner *planner, const cut *c, int32_t chosen)
{
    const int32_t e = c->p.expert;
    const mics_collective all_to_all = {.kind = MICS_COLLECTIVE_SEND,
                                        .group = {.first = 0, .stride = 1, .size = e},
                                        .block_bytes = sent_to(planner, c, chosen) *
                                                       tensor_block(planner, c) / e};
    return e > 1 ? mics_cost_direct(&planner->request.cluster, planner->ranks, &all_to_all).us : 0;
}

double exchange_ring_us(const mics_planner *planner, const cut *c, double bytes)
{
    const mics_group group = {.first = 0, .stride = c->p.tensor, .size = c->p.context};
    return us_of(planner, MICS_COLLECTIVE_SEND, group, bytes);
}

static int32_t stage_ranks(const cut *c)
{
    return c->p.tensor * c->p.context * c->p.data;
}

static mics_group stage_group(const cut *c)
{
    return (mics_group){.first = 0, .stride = stage_ranks(c), .size = c->p.stages};
}

// Each tensor-parallel rank sends its part of the activations. Without sequence parallelism the
// next stage gathers them in the node.
double exchange_send_us(const mics_planner *planner, const cut *c)
{
    if (c->p.stages == 1)
        return 0;
    const double send_us =
        us_of(planner, MICS_COLLECTIVE_SEND, stage_group(c), tensor_block(planner, c));
    return send_us + (c->p.era == MICS_MEGATRON_2021 ? exchange_gather_us(planner, c) : 0);
}

static mics_group replicas(const cut *c, int32_t stride)
{
    return (mics_group){.first = 0, .stride = stride, .size = stage_ranks(c) / stride};
}

mics_cost_use exchange_shards(const mics_planner *planner, const cut *c, int32_t stride,
                              mics_collective_kind kind, double bytes)
{
    const mics_group group = replicas(c, stride);
    return use_of(planner, kind, group, bytes / group.size);
}

double exchange_gradients_us(const mics_planner *planner, const cut *c, int32_t stride,
                             double bytes)
{
    const mics_group group = replicas(c, stride);
    const double ring_us = us_of(planner, MICS_COLLECTIVE_ALL_REDUCE, group, bytes / group.size);
    if (!planner->simulate.trees)
        return ring_us;
    return fmin(ring_us,
                us_of(planner, MICS_COLLECTIVE_ALL_REDUCE_TREE, group, bytes / group.size));
}

double exchange_table_us(const mics_planner *planner, const cut *c, double bytes)
{
    return us_of(planner, MICS_COLLECTIVE_SEND, stage_group(c), bytes);
}
