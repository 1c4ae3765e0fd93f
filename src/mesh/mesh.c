// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// The mesh, its groups and the ownership order. All closed forms: no group is ever listed.
#include "mics/mesh.h"
#include "mics/log.h"
#include "mics/memory.h"
#include "mics/size.h"
#include <stdbool.h>
#include <stdio.h>

// Elements (fp32) in one aligned stretch of memory.
enum { ALIGNED_ELEMS = MICS_ALIGNMENT / 4 };

static bool divides(int32_t a, int32_t b)
{
    return a >= 1 && b % a == 0;
}

// One divides the other: a group of `degree` ranks covers whole nodes, or nodes hold whole groups.
static bool fits_nodes(int32_t degree, int32_t ranks_per_node)
{
    return divides(degree, ranks_per_node) || divides(ranks_per_node, degree);
}

// Lists the degrees that would do: multiples of `below` that divide `ranks` and do not straddle
// nodes.
static void list_degrees(int32_t below, int32_t ranks, int32_t ranks_per_node, char *text,
                         size_t capacity)
{
    size_t used = 0;
    text[0] = '\0';
    for (int32_t degree = below; degree <= ranks; degree += below) {
        if (!divides(degree, ranks) || !fits_nodes(degree, ranks_per_node))
            continue;
        int written =
            snprintf(text + used, capacity - used, used == 0 ? "%d" : ", %d", (int)degree);
        if (written < 0 || (size_t)written >= capacity - used)
            break;
        used += (size_t)written;
    }
}

static mics_status check_degree(const char *what, int32_t degree, int32_t below, int32_t ranks,
                                int32_t ranks_per_node)
{
    if (degree >= 1 && divides(below, degree) && divides(degree, ranks) &&
        fits_nodes(degree, ranks_per_node))
        return MICS_OK;
    char sizes[256];
    list_degrees(below, ranks, ranks_per_node, sizes, sizeof sizes);
    const char *why = degree < 1                ? "is below 1"
                      : !divides(degree, ranks) ? "does not divide the number of ranks"
                      : !divides(below, degree)
                          ? "is no multiple of the degree before it (params | grads | optimizer)"
                          : "straddles nodes unevenly";
    return mics_fail(MICS_ERR_INVALID,
                     "sharding.%s = %d %s (%d ranks, %d a node); these would work: %s", what,
                     (int)degree, why, (int)ranks, (int)ranks_per_node, sizes);
}

// The distinct members of {1, ranks per node, P, G, O, ranks} in ascending order; the checks made
// them a chain.
static void build_chain(mics_mesh *mesh)
{
    const int32_t marks[] = {mesh->ranks_per_node, mesh->sharding.params, mesh->sharding.grads,
                             mesh->sharding.optimizer, mesh->ranks};
    mesh->chain[0] = 1;
    mesh->axes = 0;
    for (;;) {
        int32_t last = mesh->chain[mesh->axes], next = INT32_MAX;
        for (size_t i = 0; i < sizeof marks / sizeof marks[0]; i++) {
            if (marks[i] > last && marks[i] < next)
                next = marks[i];
        }
        if (next == INT32_MAX)
            return;
        mesh->chain[++mesh->axes] = next;
    }
}

mics_status mics_mesh_init(int32_t ranks, int32_t nodes, mics_sharding sharding,
                           mics_mesh *mesh_out)
{
    if (ranks < 1)
        return mics_fail(MICS_ERR_INVALID, "ranks = %d: at least 1 is needed", (int)ranks);
    if (nodes < 1 || !divides(nodes, ranks))
        return mics_fail(MICS_ERR_INVALID,
                         "%d ranks cannot be spread evenly over %d nodes; give a number of nodes "
                         "that divides %d",
                         (int)ranks, (int)nodes, (int)ranks);
    mics_mesh mesh = {.ranks = ranks, .ranks_per_node = ranks / nodes, .sharding = sharding};
    MICS_TRY(check_degree("params", sharding.params, 1, ranks, mesh.ranks_per_node));
    MICS_TRY(check_degree("grads", sharding.grads, sharding.params, ranks, mesh.ranks_per_node));
    MICS_TRY(
        check_degree("optimizer", sharding.optimizer, sharding.grads, ranks, mesh.ranks_per_node));
    build_chain(&mesh);
    *mesh_out = mesh;
    return MICS_OK;
}

// Members outer / inner ranks apart share a piece at degree `inner` and together hold it once at
// degree `outer`.
static mics_group column(int32_t rank, int32_t inner, int32_t outer)
{
    int32_t in_outer = rank % outer;
    return (mics_group){.first = rank - in_outer + in_outer % inner,
                        .stride = inner,
                        .size = outer / inner,
                        .index = in_outer / inner};
}

// One rank alone when the group of this degree lies inside a node.
static mics_group across(const mics_mesh *mesh, int32_t rank, int32_t degree)
{
    const int32_t inner = degree > mesh->ranks_per_node ? mesh->ranks_per_node : degree;
    return column(rank, inner, degree);
}

// The ranks of a node that share a piece at degree `inner`, up to degree `outer`. One rank alone when
// the node holds no more of them.
static mics_group inside(const mics_mesh *mesh, int32_t rank, int32_t inner, int32_t outer)
{
    const int32_t end = outer < mesh->ranks_per_node ? outer : mesh->ranks_per_node;
    return inner < end ? column(rank, inner, end) : column(rank, 1, 1);
}

mics_group mics_mesh_group(const mics_mesh *mesh, mics_group_kind kind, int32_t rank)
{
    const mics_sharding s = mesh->sharding;
    switch (kind) {
    case MICS_GROUP_PARAMS:
        return column(rank, 1, s.params);
    case MICS_GROUP_GRADS:
        return column(rank, 1, s.grads);
    case MICS_GROUP_SCATTER:
        return column(rank, s.grads, s.optimizer);
    case MICS_GROUP_REPLICAS:
        return column(rank, s.optimizer, mesh->ranks);
    case MICS_GROUP_PUBLISH:
        return column(rank, s.params, s.optimizer);
    case MICS_GROUP_NODE:
        return column(rank, 1, mesh->ranks_per_node);
    case MICS_GROUP_PARAMS_ACROSS:
        return across(mesh, rank, s.params);
    case MICS_GROUP_GRADS_ACROSS:
        return across(mesh, rank, s.grads);
    case MICS_GROUP_OPTIMIZER:
        return column(rank, 1, s.optimizer);
    case MICS_GROUP_SCATTER_INSIDE:
        return inside(mesh, rank, s.grads, s.optimizer);
    case MICS_GROUP_REPLICAS_INSIDE:
        return inside(mesh, rank, s.optimizer, mesh->ranks);
    case MICS_GROUP_PUBLISH_INSIDE:
        return inside(mesh, rank, s.params, s.optimizer);
    case MICS_GROUP_OPTIMIZER_ACROSS:
        return across(mesh, rank, s.optimizer);
    case MICS_GROUP_REPLICAS_ACROSS:
        return column(rank, s.optimizer > mesh->ranks_per_node ? s.optimizer : mesh->ranks_per_node,
                      mesh->ranks);
    case MICS_GROUP_WORLD:
    case MICS_GROUP_KINDS:
        break;
    }
    return column(rank, 1, mesh->ranks);
}

// All groups of a kind are alike, and nodes hold whole groups or groups whole nodes.
bool mics_mesh_spans_nodes(const mics_mesh *mesh, mics_group_kind kind)
{
    const mics_group group = mics_mesh_group(mesh, kind, 0);
    return mics_group_rank(group, group.size - 1) >= mesh->ranks_per_node;
}

int32_t mics_mesh_position(const mics_mesh *mesh, int32_t rank, int32_t degree)
{
    int32_t position = 0;
    for (int32_t axis = 0; axis < mesh->axes && mesh->chain[axis] < degree; axis++) {
        int32_t size = mesh->chain[axis + 1] / mesh->chain[axis];
        position = position * size + rank / mesh->chain[axis] % size;
    }
    return position;
}

// The last `members` of a rank's positions among the ranks of its node, or of its group of degree
// `outer` when that is smaller.
static int32_t block_inside(const mics_mesh *mesh, int32_t rank, int32_t members, int32_t outer)
{
    const int32_t end = outer < mesh->ranks_per_node ? outer : mesh->ranks_per_node;
    return mics_mesh_position(mesh, rank, end) % members;
}

int32_t mics_mesh_block(const mics_mesh *mesh, mics_group_kind kind, int32_t rank)
{
    const mics_sharding s = mesh->sharding;
    switch (kind) {
    case MICS_GROUP_PARAMS:
        return mics_mesh_position(mesh, rank, s.params);
    case MICS_GROUP_GRADS:
        return mics_mesh_position(mesh, rank, s.grads);
    case MICS_GROUP_OPTIMIZER:
        return mics_mesh_position(mesh, rank, s.optimizer);
    case MICS_GROUP_SCATTER:
        return mics_mesh_position(mesh, rank, s.optimizer) % (s.optimizer / s.grads);
    case MICS_GROUP_PUBLISH:
        return mics_mesh_position(mesh, rank, s.optimizer) % (s.optimizer / s.params);
    case MICS_GROUP_NODE:
        return mics_mesh_position(mesh, rank, mesh->ranks_per_node);
    case MICS_GROUP_PARAMS_ACROSS:
        return mics_mesh_position(mesh, rank, s.params) % across(mesh, rank, s.params).size;
    case MICS_GROUP_GRADS_ACROSS:
        return mics_mesh_position(mesh, rank, s.grads) % across(mesh, rank, s.grads).size;
    case MICS_GROUP_SCATTER_INSIDE:
    case MICS_GROUP_PUBLISH_INSIDE:
        return block_inside(mesh, rank, mics_mesh_group(mesh, kind, rank).size, s.optimizer);
    case MICS_GROUP_OPTIMIZER_ACROSS:
        return mics_mesh_position(mesh, rank, s.optimizer) % across(mesh, rank, s.optimizer).size;
    default:
        return mics_mesh_group(mesh, kind, rank).index;
    }
}

mics_range mics_mesh_range(const mics_mesh *mesh, int32_t rank, int32_t degree,
                           int64_t padded_elems)
{
    int64_t block = padded_elems / degree;
    int64_t begin = block * mics_mesh_position(mesh, rank, degree);
    return (mics_range){.begin = begin, .end = begin + block};
}

int64_t mics_mesh_padded(const mics_mesh *mesh, int64_t elems)
{
    return mics_size_round_up(elems, (int64_t)ALIGNED_ELEMS * mesh->ranks);
}

const char *mics_group_kind_text(mics_group_kind kind)
{
    static const char *const texts[MICS_GROUP_KINDS] = {
        [MICS_GROUP_WORLD] = "world",
        [MICS_GROUP_PARAMS] = "partition group",
        [MICS_GROUP_GRADS] = "gradient group",
        [MICS_GROUP_SCATTER] = "scatter group",
        [MICS_GROUP_REPLICAS] = "replication group",
        [MICS_GROUP_PUBLISH] = "publish group",
        [MICS_GROUP_NODE] = "node",
        [MICS_GROUP_PARAMS_ACROSS] = "partition group across nodes",
        [MICS_GROUP_GRADS_ACROSS] = "gradient group across nodes",
        [MICS_GROUP_OPTIMIZER] = "optimizer group",
        [MICS_GROUP_SCATTER_INSIDE] = "scatter group in the node",
        [MICS_GROUP_REPLICAS_INSIDE] = "replication group in the node",
        [MICS_GROUP_PUBLISH_INSIDE] = "publish group in the node",
        [MICS_GROUP_OPTIMIZER_ACROSS] = "optimizer group across nodes",
        [MICS_GROUP_REPLICAS_ACROSS] = "replication group across nodes",
    };
    return (unsigned)kind < MICS_GROUP_KINDS ? texts[kind] : "unknown group";
}

char *mics_mesh_name(const mics_mesh *mesh, char *text, size_t capacity)
{
    const int32_t p = mesh->sharding.params, g = mesh->sharding.grads, o = mesh->sharding.optimizer;
    const int32_t n = mesh->ranks;
    if (o == 1)
        snprintf(text, capacity, "ddp");
    else if (p == 1 && g == 1 && o == n)
        snprintf(text, capacity, "zero1");
    else if (p == 1 && g == n)
        snprintf(text, capacity, "zero2");
    else if (p == n)
        snprintf(text, capacity, "zero3");
    else if (p == g && g == o)
        snprintf(text, capacity, "mics(%d)", (int)p);
    else if (p == g && o == n)
        snprintf(text, capacity, "mics+(%d)", (int)p);
    else if (g == n)
        snprintf(text, capacity, "hpz(%d)", (int)p);
    else
        snprintf(text, capacity, "P|G|O = %d|%d|%d", (int)p, (int)g, (int)o);
    return text;
}
