// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// How long computation and collectives take on a cluster, and what they occupy meanwhile. Pure
// functions of descriptions; a simulator adds time and contention.
//
// Computation is a roofline: the longest of FLOPs at the rate that such a shape reaches, bytes at
// the rate of memory, and the launch of its kernels.
//
// Contention. A collective alone takes `us`. Of that it keeps the links of tier t busy for
// busy_us[t], if they run at their full rate; so it uses the share busy_us[t] / us of them. Several
// at once go at full speed as long as the shares of each tier add up to at most 1, and slower in
// proportion when they do not. Links are full duplex and rings send as much as they receive, so one
// figure stands for both directions.
//
// All groups of a kind work at once: the groups of one step of a schedule together cover the ranks,
// and their traffic through a node's link is counted together. So one call tells what a step costs
// the whole cluster, and any node may stand for all.
#pragma once

#include "mics/core/mesh.h"
#include "mics/op.h"
#include "plan/cost/cluster.h"
#include <stdint.h>

// ---- computation ----

typedef enum mics_cost_op_kind {
    MICS_COST_MATMUL,
    MICS_COST_ATTENTION,   // fused: scores stay on the chip
    MICS_COST_ELEMENTWISE, // moves memory: norms, activations, additions, embeddings, copies
    MICS_COST_UPDATE,      // the optimizer's
    MICS_COST_OP_KINDS
} mics_cost_op_kind;

typedef struct mics_cost_op {
    mics_cost_op_kind kind;
    mics_math math;
    double flops;
    double bytes;    // of memory read and written
    int64_t m, n, k; // MATMUL: the GEMM's dimensions; ATTENTION: m is the sequence's length
    int32_t kernels; // that it consists of; 0 counts as 1
} mics_cost_op;

// What limits an op, or a collective.
typedef enum mics_cost_limit {
    MICS_COST_BY_FLOPS,
    MICS_COST_BY_MEMORY,
    MICS_COST_BY_LAUNCH, // a collective: latency
    MICS_COST_BY_LINK,   // all links of a tier together
    MICS_COST_BY_RANK    // what one rank moves over a link
} mics_cost_limit;

/* Time of one op on one rank, alone, in us; *limit_out (may be NULL) says what it is limited by.
 *
 * Units:   us.
 * Needs:   a finished cluster; flops, bytes >= 0; sizes >= 1 where the kind reads them.
 * Returns: the time; never negative.
 * Source:  Williams et al., Roofline, CACM 52(4), 2009; efficiencies: the cluster's.
 */
double mics_cost_op_us(const mics_cluster *cluster, const mics_cost_op *op,
                       mics_cost_limit *limit_out);

/* A GEMM (M, K) x (K, N), operands and result of `elem_bytes`: its FLOPs and bytes.
 *
 * Shapes:  (m, k) x (k, n) -> (m, n).
 * Units:   FLOPs, bytes.
 * Needs:   m, n, k, elem_bytes >= 1.
 */
mics_cost_op mics_cost_matmul(int64_t m, int64_t n, int64_t k, int32_t elem_bytes, mics_math math);

/* A part of an op's pass (mics_op_work), of numbers of `elem_bytes`, once.
 *
 * Needs:   a work that a descriptor made; elem_bytes >= 1.     Units: FLOPs, bytes.
 */
mics_cost_op mics_cost_of_work(const mics_op_work *work, int32_t elem_bytes, mics_math math);

// ---- communication ----

/* Time of one message of one rank over a tier's link that nobody else uses, in us.
 *
 * latency + (bytes + half_bytes) / rate; with a ramp, the larger of latency and bytes / ramp.
 * Units:   bytes; us.
 * Needs:   bytes >= 0; 0 gives the latency.
 */
double mics_cost_message_us(const mics_tier *tier, double bytes);

typedef enum mics_collective_kind {
    MICS_COLLECTIVE_ALL_GATHER,      // ring: size - 1 steps of a block
    MICS_COLLECTIVE_REDUCE_SCATTER,  // ring: the same, backwards, with sums
    MICS_COLLECTIVE_ALL_REDUCE,      // ring: both, one after the other
    MICS_COLLECTIVE_ALL_REDUCE_TREE, // up and down a pair of inter-node binary trees
    // between equal local ranks and then inside each node, in rounds that double what each has
    MICS_COLLECTIVE_ALL_GATHER_DOUBLING,
    MICS_COLLECTIVE_SEND, // one step: each member to the next, as between pipeline stages
    MICS_COLLECTIVE_KINDS
} mics_collective_kind;

typedef struct mics_collective {
    mics_collective_kind kind;
    mics_group group;   // one of the groups, whichever; size 1 costs nothing
    double block_bytes; // of a member's block; the whole buffer has group.size of them (SEND: one)
    int32_t rings;      // at once, each with its share of a block; 0: the cluster's
    double crowd;       // threads a core that compute meanwhile, for beside_us
} mics_collective;

typedef struct mics_cost_use {
    double us;                        // from start to end, alone on its links
    double beside_us;                 // the same while all ranks compute; at least us
    double latency_us;                // of it: nothing moves
    double bytes[MICS_CLUSTER_TIERS]; // through the busiest link of each tier, one way, all groups
    double busy_us[MICS_CLUSTER_TIERS]; // those bytes at the link's full rate; <= us
    double core_us;                     // that one core works for it, a rank
    double slowdown;                    // computation beside it takes 1 + slowdown times
    int32_t tier;                       // the one that sets the pace; -1: none
    mics_cost_limit limit;              // and by what
} mics_cost_use;

/* What a collective costs on a cluster of `ranks` ranks, numbered node by node.
 *
 * Units:   us, bytes.
 * Needs:   a finished cluster; ranks from mics_cluster_ranks; the group within them;
 *          block_bytes >= 0. Groups are those of a mesh: their siblings tile the ranks. Where
 *          tiers beyond the node do not divide evenly, the most loaded link counts.
 * Returns: zeros (tier -1) for a group of one.           Threads: any.           Pure.
 * Source:  Thakur, Rabenseifner, Gropp, IJHPCA 19(1), 2005 (rings); Sanders, Speck, Traeff,
 *          Parallel Computing 35(12), 2009 (two trees).
 */
mics_cost_use mics_cost_collective(const mics_cluster *cluster, int32_t ranks,
                                   const mics_collective *collective);

/* Cost of an all-to-all: each member of a group sends every other member a block, directly, one
 * after the other. `collective` is of SEND. A send within a node costs as much as a shift of all
 * members by one rank of the node. A send to another node costs as much as a shift by one node.
 *
 * Needs and returns: as mics_cost_collective.
 */
mics_cost_use mics_cost_direct(const mics_cluster *cluster, int32_t ranks,
                               const mics_collective *collective);

/* The two collectives of which a gather or reduction in two stages consists: between equal local
 * ranks, then inside each node (reductions: the other way round).
 *
 * An all-reduce has three stages: an intra-node reduce-scatter, an inter-node all-reduce of the
 * result, an intra-node all-gather.
 * Shapes:  stages_out: (3), of which as many are written as returned.
 * Needs:   all-gather, reduce-scatter or all-reduce; a group of stride 1.
 * Returns: how many stages were written: 1 (the collective as it is) when the group lies inside a
 *          node, or does not cover whole nodes.
 * Source:  Zhang et al., MiCS, PVLDB 16(1), 2022, arXiv:2205.00119, section 3.3.
 */
int32_t mics_cost_stages(const mics_cluster *cluster, const mics_collective *collective,
                         mics_collective stages_out[3]);

/* One after the other: times add up, and so do bytes and busy times.
 *
 * Needs:   uses of one cluster.
 */
mics_cost_use mics_cost_then(mics_cost_use first, mics_cost_use second);

/* "FLOPs", "memory", ...; never NULL. */
const char *mics_cost_limit_text(mics_cost_limit limit);
