// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Collectives on the tree: which links a ring's edges load, how long its steps take, what a tree
// takes.
//
// Note on edges. A group (first, stride s, size p) is one of those that tile the ranks: blocks of s
// * p ranks hold s interleaved groups each. A ring sends from each member to the next, the last to
// the first. Of a child of c ranks that a block reaches beyond, min(s, c) such edges lead out: for
// s < c one of each of the s groups that pass through it, for s >= c those of all its ranks.
//
// Note on rings. R rings carry 1 / R of each block by different routes, so up to R ranks of a group
// share the way out of a child; the bytes on its link are the same.
#include "plan/cost/cost.h"
#include <math.h>
#include <stdbool.h>

// What one step of all groups' rings does on one tier.
typedef struct tier_load {
    double edges;   // blocks through the busiest link, one way
    double sharers; // ranks that share them
    double hops;    // edges of one ring that meet in this tier
} tier_load;

typedef struct ring {
    const mics_cluster *cluster;
    int32_t ranks;
    mics_group group;
    int32_t rings;
    double crowd;
    tier_load loads[MICS_CLUSTER_TIERS];
} ring;

// ---- edges ----

// Ranks of one child of a tier, and of what holds that tier.
static int64_t child_ranks(const ring *r, int32_t tier)
{
    if (tier >= r->cluster->tier_count)
        return r->ranks;
    int64_t ranks = mics_cluster_child_ranks(r->cluster, tier);
    return ranks < r->ranks ? ranks : r->ranks;
}

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static bool divides(int64_t a, int64_t b)
{
    return b % a == 0;
}

// Rank after this one in its ring.
static int64_t next_rank(const ring *r, int64_t rank)
{
    const int64_t block = (int64_t)r->group.stride * r->group.size;
    const int64_t next = rank + r->group.stride;
    return next / block == rank / block ? next : next - block;
}

// Edges from the busiest child of c ranks to others that lie in the same `within` ranks, counted
// one by one: for trees that the groups do not divide.
static int64_t count_edges(const ring *r, int64_t c, int64_t within)
{
    int64_t max = 0;
    for (int64_t begin = 0; begin < r->ranks; begin += c) {
        int64_t edges = 0, end = least(begin + c, r->ranks);
        for (int64_t rank = begin; rank < end; rank++) {
            int64_t next = next_rank(r, rank);
            edges += next / c != rank / c && next / within == rank / within;
        }
        max = edges > max ? edges : max;
    }
    return max;
}

// Edges out of the busiest child of c ranks that stay within `within` ranks.
static int64_t edges_out(const ring *r, int64_t c, int64_t within)
{
    const int64_t stride = r->group.stride, block = stride * r->group.size;
    bool even = (divides(c, block) || divides(block, c)) &&
                (divides(within, block) || divides(block, within)) &&
                (divides(c, stride) || divides(stride, c)) &&
                (divides(within, stride) || divides(stride, within)) && divides(c, within);
    if (!even || !divides(block, r->ranks))
        return count_edges(r, c, within);
    if (block <= c || c == within)
        return 0;
    return stride >= within ? 0 : least(stride, c);
}

// Edges of one ring between different children of c ranks.
static double ring_edges(const ring *r, int64_t c)
{
    const int64_t stride = r->group.stride;
    const int64_t members = stride < c ? least(r->group.size, (c + stride - 1) / stride) : 1;
    const double children = ceil((double)r->group.size / (double)members);
    return children > 1.0 ? children : 0.0;
}

// Inside a node the tier where an edge meets carries it; beyond, all tiers from the node outwards
// do.
static void load_tiers(ring *r)
{
    for (int32_t t = 0; t < r->cluster->tier_count; t++) {
        const int64_t c = child_ranks(r, t), parent = child_ranks(r, t + 1);
        const bool inside = t <= r->cluster->node_tier;
        tier_load *load = &r->loads[t];
        load->edges = (double)edges_out(r, c, inside ? parent : r->ranks);
        load->sharers = fmin(load->edges * r->rings, (double)c);
        load->hops = ring_edges(r, c) - ring_edges(r, parent);
    }
}

static ring ring_of(const mics_cluster *cluster, int32_t ranks, const mics_collective *collective)
{
    ring r = {.cluster = cluster,
              .ranks = ranks,
              .group = collective->group,
              .rings = collective->rings > 0 ? collective->rings : cluster->rings,
              .crowd = collective->crowd};
    load_tiers(&r);
    return r;
}

// ---- time ----

// Rates of messages that were measured: of sums, if they were for themselves; else of copies.
static const mics_curve *ramp_of(const mics_tier *tier, bool reduces)
{
    return reduces && tier->reduce_ramp.count > 0 ? &tier->reduce_ramp : &tier->ramp;
}

static double ramped_us(const mics_tier *tier, const mics_curve *ramp, double bytes)
{
    return fmax(tier->latency_us, bytes / mics_curve_at(ramp, bytes, tier->bytes_per_s) * 1e6);
}

// Without latency: of `bytes` that one rank moves over a link in messages of `message` bytes.
static double rank_us(const mics_tier *tier, const mics_curve *ramp, double bytes, double message)
{
    if (ramp->count > 0) {
        double us = ramped_us(tier, ramp, message) - tier->latency_us;
        return message > 0.0 ? us * (bytes / message) : 0.0;
    }
    return (bytes + tier->half_bytes) / (tier->rank_bytes_per_s * tier->efficiency) * 1e6;
}

static double message_us(const mics_tier *tier, const mics_curve *ramp, double bytes)
{
    if (ramp->count > 0)
        return ramped_us(tier, ramp, bytes);
    if (bytes == 0.0)
        return tier->latency_us;
    return tier->latency_us + rank_us(tier, ramp, bytes, bytes);
}

double mics_cost_message_us(const mics_tier *tier, double bytes)
{
    return message_us(tier, &tier->ramp, bytes);
}

// What adding a block takes after it has come, where the tier's rates do not have it in them.
static double sum_us(const ring *r, const mics_tier *tier, bool reduces, double block)
{
    const double rate = r->cluster->accelerator.reduce_bytes_per_s;
    return reduces && rate > 0.0 && tier->reduce_ramp.count == 0 ? block / rate * 1e6 : 0.0;
}

// What a message takes longer beside computation.
static double late_us(const ring *r, const mics_tier *tier, double message)
{
    return mics_curve_at(&tier->beside_us, r->crowd, 0.0) +
           message * mics_curve_at(&tier->beside_us_per_byte, r->crowd, 0.0);
}

static double link_us(const mics_tier *tier, double bytes)
{
    return bytes / (tier->bytes_per_s * tier->efficiency) * 1e6;
}

// Sets the pace, if this tier is slower than those before.
static void take_pace(mics_cost_use *use, int32_t tier, double by_link, double by_rank,
                      double *slowest)
{
    const double us = fmax(by_link, by_rank);
    if (use->tier >= 0 && us <= *slowest)
        return;
    *slowest = us;
    use->tier = tier;
    use->limit = by_rank > by_link ? MICS_COST_BY_RANK : MICS_COST_BY_LINK;
}

// What passes a tier's links, given the bytes that one edge carries.
static void occupy(const ring *r, int32_t t, double edge_bytes, mics_cost_use *use)
{
    const mics_tier *tier = &r->cluster->tiers[t];
    const double bytes = r->loads[t].edges * edge_bytes;
    if (bytes == 0.0)
        return;
    use->bytes[t] += bytes;
    use->busy_us[t] += link_us(tier, bytes);
    if (t <= r->cluster->node_tier + 1) // a message beyond the node is worked on once, at the node
        use->core_us += bytes / (double)child_ranks(r, t) * tier->core_us_per_byte;
    use->slowdown = fmax(use->slowdown, tier->slowdown);
}

// Exchanges one after the other: the slowest edge holds up all, in every step, with its latency.
static void step_time(const ring *r, double steps, double block, bool reduces, mics_cost_use *use)
{
    double slowest = 0.0, slowest_beside = 0.0, latency = 0.0;
    for (int32_t t = 0; t < r->cluster->tier_count; t++) {
        const mics_tier *tier = &r->cluster->tiers[t];
        const tier_load *load = &r->loads[t];
        if (load->edges == 0.0)
            continue;
        const double message = block * load->edges / load->sharers;
        const double adds = sum_us(r, tier, reduces, block);
        const double by_link = tier->latency_us + link_us(tier, block * load->edges) + adds;
        const double by_rank = message_us(tier, ramp_of(tier, reduces), message) + adds;
        take_pace(use, t, by_link, by_rank, &slowest);
        if (use->tier == t)
            latency = tier->latency_us;
        slowest_beside = fmax(slowest_beside, fmax(by_link, by_rank) + late_us(r, tier, message));
    }
    use->us += steps * slowest;
    use->beside_us += steps * slowest_beside;
    use->latency_us += steps * latency;
}

// A stream of chunks: latencies once along the ring, then the slowest edge's bytes.
static void stream_time(const ring *r, double steps, double block, bool reduces, mics_cost_use *use)
{
    double slowest = 0.0, latency = 0.0, late = 0.0, adds = 0.0;
    for (int32_t t = 0; t < r->cluster->tier_count; t++) {
        const mics_tier *tier = &r->cluster->tiers[t];
        const tier_load *load = &r->loads[t];
        latency += load->hops * steps / r->group.size * tier->latency_us;
        if (load->edges == 0.0)
            continue;
        const double message = block * load->edges / load->sharers;
        take_pace(use, t, link_us(tier, steps * block * load->edges),
                  rank_us(tier, ramp_of(tier, reduces), steps * message, message), &slowest);
        late = fmax(late, late_us(r, tier, message));
        adds = fmax(adds, sum_us(r, tier, reduces, block));
    }
    slowest = fmax(slowest, steps * adds);
    use->us += latency + slowest;
    use->beside_us += latency + slowest + steps * late;
    use->latency_us += latency;
}

// One way round: `steps` steps of a block, added to what came before.
static void go_round(const ring *r, double steps, double block, bool reduces, mics_cost_use *use)
{
    use->tier = -1;
    if (r->cluster->pipelined)
        stream_time(r, steps, block, reduces, use);
    else
        step_time(r, steps, block, reduces, use);
    for (int32_t t = 0; t < r->cluster->tier_count; t++)
        occupy(r, t, steps * block, use);
}

// A round: each member sends `blocks` blocks to the one `hop` members before it.
static void go_shift(const mics_cluster *cluster, int32_t ranks, const mics_collective *collective,
                     int32_t hop, int32_t members, double blocks, mics_cost_use *use)
{
    mics_collective shift = *collective;
    shift.group.stride = collective->group.stride * hop;
    shift.group.size = members / hop > 1 ? members / hop : 2;
    const ring r = ring_of(cluster, ranks, &shift);
    go_round(&r, 1.0, blocks * collective->block_bytes, false, use);
}

// The rounds of mics_group_doubling. What long messages are behind in the beginning (half_bytes), few
// bytes are not: they take the latency.
static void go_doubling(const mics_cluster *cluster, int32_t ranks,
                        const mics_collective *collective, mics_cost_use *use)
{
    const mics_group group = collective->group;
    const int32_t local = mics_group_on_node(group, mics_cluster_ranks_per_node(cluster));
    const int32_t nodes = group.size / local;
    mics_cluster few = *cluster;
    for (int32_t t = 0; t < cluster->tier_count; t++)
        few.tiers[t].half_bytes = 0.0;
    for (int32_t have = 1; have < nodes; have *= 2)
        go_shift(&few, ranks, collective, have * local, group.size,
                 (double)least(have, nodes - have), use);
    for (int32_t have = 1; have < local; have *= 2)
        go_shift(&few, ranks, collective, have, local,
                 (double)nodes * (double)least(have, local - have), use);
}

// How often a tree's buffer passes the busiest link of a tier, whose children of the group are
// `children`. Between nodes each of two trees takes half of it, and who is inside one is a leaf of
// the other, so all links carry alike: children - 1 edges, up and down. Inside a node it is a
// chain.
static double tree_passes(bool inside, double children)
{
    return inside ? fmin(2.0, children - 1.0) : 2.0 * (children - 1.0) / children;
}

// Up to the roots and down again.
static void go_tree(const ring *r, double bytes, mics_cost_use *use)
{
    double slowest = 0.0, late = 0.0;
    use->tier = -1;
    for (int32_t t = 0; t < r->cluster->tier_count; t++) {
        const mics_tier *tier = &r->cluster->tiers[t];
        const tier_load *load = &r->loads[t];
        const bool inside = t <= r->cluster->node_tier;
        const double children = ring_edges(r, child_ranks(r, t));
        const double parents = fmax(ring_edges(r, child_ranks(r, t + 1)), 1.0);
        const double below = ceil(children / parents); // children of the group under one parent
        if (load->edges == 0.0)
            continue;
        const double passed = bytes * tree_passes(inside, inside ? below : children);
        const double message = passed * load->edges / load->sharers;
        const double depth = 2.0 * (inside ? below - 1.0 : ceil(log2(below)));
        if (load->hops > 0.0) {
            use->latency_us += depth * tier->latency_us;
            late += depth * late_us(r, tier, message);
        }
        take_pace(use, t, link_us(tier, passed * load->edges),
                  rank_us(tier, &tier->ramp, message, message), &slowest);
        occupy(r, t, passed, use);
    }
    use->us = use->latency_us + slowest;
    use->beside_us = use->us + late;
}

mics_cost_use mics_cost_collective(const mics_cluster *cluster, int32_t ranks,
                                   const mics_collective *collective)
{
    mics_cost_use use = {.tier = -1, .limit = MICS_COST_BY_LAUNCH};
    const int32_t size = collective->group.size;
    const double block = collective->block_bytes, steps = size - 1.0;
    if (size <= 1)
        return use;
    const ring r = ring_of(cluster, ranks, collective);
    switch (collective->kind) {
    case MICS_COLLECTIVE_ALL_REDUCE_TREE:
        go_tree(&r, block * size, &use);
        break;
    case MICS_COLLECTIVE_ALL_GATHER_DOUBLING:
        go_doubling(cluster, ranks, collective, &use);
        break;
    case MICS_COLLECTIVE_SEND:
        go_round(&r, 1.0, block, false, &use);
        break;
    case MICS_COLLECTIVE_ALL_REDUCE:
        go_round(&r, steps, block, true, &use);
        go_round(&r, steps, block, false, &use);
        break;
    case MICS_COLLECTIVE_REDUCE_SCATTER:
    case MICS_COLLECTIVE_ALL_GATHER:
    case MICS_COLLECTIVE_KINDS:
        go_round(&r, steps, block, collective->kind == MICS_COLLECTIVE_REDUCE_SCATTER, &use);
        break;
    }
    use.us += cluster->collective_us;
    use.beside_us += cluster->collective_us;
    use.latency_us += cluster->collective_us;
    if (use.latency_us > use.us / 2.0)
        use.limit = MICS_COST_BY_LAUNCH;
    return use;
}

// ---- composition ----

int32_t mics_cost_stages(const mics_cluster *cluster, const mics_collective *collective,
                         mics_collective stages_out[3])
{
    const int32_t k = mics_cluster_ranks_per_node(cluster), p = collective->group.size;
    stages_out[0] = *collective;
    bool is_ring = collective->kind == MICS_COLLECTIVE_ALL_GATHER ||
                   collective->kind == MICS_COLLECTIVE_REDUCE_SCATTER ||
                   collective->kind == MICS_COLLECTIVE_ALL_REDUCE;
    if (!is_ring || collective->group.stride != 1 || p <= k || p % k != 0 || k == 1)
        return 1;
    mics_collective inside = *collective, across = *collective;
    const int32_t rank = collective->group.first + collective->group.index, nodes = p / k;
    inside.group =
        (mics_group){.first = rank - rank % k, .stride = 1, .size = k, .index = rank % k};
    inside.block_bytes = collective->block_bytes * nodes;
    across.group = (mics_group){.first = collective->group.first + rank % k,
                                .stride = k,
                                .size = nodes,
                                .index = collective->group.index / k};
    if (collective->kind == MICS_COLLECTIVE_ALL_REDUCE) {
        stages_out[0] = inside;
        stages_out[0].kind = MICS_COLLECTIVE_REDUCE_SCATTER;
        stages_out[1] = across;
        stages_out[2] = inside;
        stages_out[2].kind = MICS_COLLECTIVE_ALL_GATHER;
        return 3;
    }
    bool gathers = collective->kind == MICS_COLLECTIVE_ALL_GATHER;
    stages_out[0] = gathers ? across : inside;
    stages_out[1] = gathers ? inside : across;
    return 2;
}

mics_cost_use mics_cost_then(mics_cost_use first, mics_cost_use second)
{
    mics_cost_use sum = first.us >= second.us ? first : second; // its tier and limit
    sum.us = first.us + second.us;
    sum.beside_us = first.beside_us + second.beside_us;
    sum.latency_us = first.latency_us + second.latency_us;
    sum.core_us = first.core_us + second.core_us;
    sum.slowdown = fmax(first.slowdown, second.slowdown);
    for (int32_t t = 0; t < MICS_CLUSTER_TIERS; t++) {
        sum.bytes[t] = first.bytes[t] + second.bytes[t];
        sum.busy_us[t] = first.busy_us[t] + second.busy_us[t];
    }
    return sum;
}

// `count` of them one after the other, begun once.
static mics_cost_use repeated(mics_cost_use use, double count, double start_us)
{
    use.us = (use.us - start_us) * count;
    use.beside_us = (use.beside_us - start_us) * count;
    use.latency_us = (use.latency_us - start_us) * count;
    use.core_us *= count;
    for (int t = 0; t < MICS_CLUSTER_TIERS; t++) {
        use.bytes[t] *= count;
        use.busy_us[t] *= count;
    }
    return use;
}

mics_cost_use mics_cost_direct(const mics_cluster *cluster, int32_t ranks,
                               const mics_collective *collective)
{
    const mics_group group = collective->group;
    const int32_t local = mics_group_on_node(group, mics_cluster_ranks_per_node(cluster));
    const double start_us = cluster->collective_us;
    mics_collective intra = *collective, inter = *collective;
    intra.group = (mics_group){.first = group.first, .stride = group.stride, .size = local};
    inter.group = (mics_group){
        .first = group.first, .stride = group.stride * local, .size = group.size / local};
    mics_cost_use use = {.tier = -1};
    if (local > 1)
        use = repeated(mics_cost_collective(cluster, ranks, &intra), local - 1, start_us);
    if (inter.group.size > 1)
        use = mics_cost_then(use, repeated(mics_cost_collective(cluster, ranks, &inter),
                                           group.size - local, start_us));
    use.us += start_us;
    use.beside_us += start_us;
    use.latency_us += start_us;
    return use;
}
