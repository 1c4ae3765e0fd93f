// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// The mesh, its groups and the ownership order. All closed forms: no group is ever listed.
#include "mics/core/mesh.h"
#include "base/size.h"
#include "mics/log.h"
#include "mics/memory.h"
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

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

// The distinct members of {1, ranks per node, E, P, G, O, R, n} in ascending order; the checks made
// them a chain.
static void build_chain(mics_mesh *mesh)
{
    const int32_t marks[] = {
        mesh->ranks_per_node,     mesh->experts, mesh->sharding.params, mesh->sharding.grads,
        mesh->sharding.optimizer, mesh->ranks,   mics_mesh_world(mesh)};
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
    mics_mesh mesh = {.ranks = ranks,
                      .islands = 1,
                      .ranks_per_node = ranks / nodes,
                      .sharding = sharding,
                      .experts = 1,
                      .sequence = 1};
    MICS_TRY(check_degree("params", sharding.params, 1, ranks, mesh.ranks_per_node));
    MICS_TRY(check_degree("grads", sharding.grads, sharding.params, ranks, mesh.ranks_per_node));
    MICS_TRY(
        check_degree("optimizer", sharding.optimizer, sharding.grads, ranks, mesh.ranks_per_node));
    build_chain(&mesh);
    *mesh_out = mesh;
    return MICS_OK;
}

mics_status mics_mesh_spread_experts(mics_mesh *mesh, int32_t experts)
{
    const int32_t params = mesh->sharding.params;
    mics_mesh spread = *mesh;
    if (experts < 1 || !divides(experts, params) || !fits_nodes(experts, mesh->ranks_per_node)) {
        char sizes[256];
        list_degrees(1, params, mesh->ranks_per_node, sizes, sizeof sizes);
        return mics_fail(MICS_ERR_INVALID,
                         "sharding.experts = %d must divide sharding.params = %d, and not straddle "
                         "nodes of %d ranks unevenly; these would work: %s",
                         (int)experts, (int)params, (int)mesh->ranks_per_node, sizes);
    }
    spread.experts = experts;
    build_chain(&spread);
    *mesh = spread;
    return MICS_OK;
}

mics_status mics_mesh_cut_sequences(mics_mesh *mesh, int32_t sequence)
{
    const int32_t per_node = mesh->ranks_per_node;
    const int32_t most = mesh->ranks < per_node ? mesh->ranks : per_node;
    if (!divides(sequence, most)) {
        char sizes[256];
        list_degrees(1, most, most, sizes, sizeof sizes);
        return mics_fail(MICS_ERR_INVALID,
                         "sharding.sequence = %d must divide the %d ranks of %s; these would "
                         "work: %s",
                         (int)sequence, (int)most, most < per_node ? "an island" : "a node", sizes);
    }
    mesh->sequence = sequence;
    return MICS_OK;
}

mics_status mics_mesh_part_islands(mics_mesh *mesh, int32_t ranks)
{
    const int32_t world = mics_mesh_world(mesh), per_node = mesh->ranks_per_node;
    const int32_t owners = mesh->sharding.optimizer;
    if (ranks < 1 || !divides(owners, ranks) || !divides(mesh->sequence, ranks) ||
        !divides(ranks, world) || !fits_nodes(ranks, per_node)) {
        char sizes[256];
        int32_t both = owners;
        while (!divides(mesh->sequence, both))
            both += owners;
        list_degrees(both, world, per_node, sizes, sizeof sizes);
        return mics_fail(
            MICS_ERR_INVALID,
            "outer.ranks = %d must be a multiple of sharding.optimizer = %d and of "
            "sharding.sequence = %d, divide the %d ranks, and not straddle nodes of %d "
            "ranks unevenly; these would work: %s",
            (int)ranks, (int)owners, (int)mesh->sequence, (int)world, (int)per_node, sizes);
    }
    mesh->ranks = ranks;
    mesh->islands = world / ranks;
    build_chain(mesh);
    return MICS_OK;
}

// The degrees between which a group runs.
typedef struct stretch {
    int32_t inner, outer;
} stretch;

// Inside a node it ends at the ranks of a node at the latest, and between nodes it begins there at
// the earliest; the checks made that a degree of the chain.
static stretch stretch_of(const mics_mesh *mesh, mics_group_axis axis, mics_group_scope scope)
{
    const mics_sharding s = mesh->sharding;
    const int32_t per_node = mesh->ranks_per_node;
    const stretch axes[MICS_AXES] = {
        [MICS_AXIS_ISLAND] = {1, mesh->ranks},
        [MICS_AXIS_PARTITION] = {1, s.params},
        [MICS_AXIS_GRADIENT] = {1, s.grads},
        [MICS_AXIS_OPTIMIZER] = {1, s.optimizer},
        [MICS_AXIS_SCATTER] = {s.grads, s.optimizer},
        [MICS_AXIS_PARAM_SYNC] = {s.params, s.optimizer},
        [MICS_AXIS_REPLICATION] = {s.optimizer, mesh->ranks},
        [MICS_AXIS_SEQUENCE] = {1, mesh->sequence},
        [MICS_AXIS_EXPERTS] = {1, mesh->experts},
        [MICS_AXIS_EXPERT_PARTITION] = {mesh->experts, s.params},
        [MICS_AXIS_EXPERT_GRADIENT] = {mesh->experts, s.grads},
        [MICS_AXIS_EXPERT_OPTIMIZER] = {mesh->experts, s.optimizer},
        [MICS_AXIS_OUTER] = {mesh->ranks, mics_mesh_world(mesh)},
        [MICS_AXIS_WORLD] = {1, mics_mesh_world(mesh)},
    };
    stretch at = axes[axis];
    if (scope == MICS_SCOPE_INTRA && at.outer > per_node)
        at.outer = per_node;
    if (scope == MICS_SCOPE_INTER && at.inner < per_node)
        at.inner = per_node;
    if (at.inner > at.outer) // nothing of it
        at.inner = at.outer;
    return at;
}

// Members outer / inner ranks apart share a piece at degree `inner` and together hold it once at
// degree `outer`.
mics_group mics_mesh_group(const mics_mesh *mesh, mics_group_axis axis, mics_group_scope scope,
                           int32_t rank)
{
    const stretch at = stretch_of(mesh, axis, scope);
    const int32_t in_outer = rank % at.outer;
    return (mics_group){.first = rank - in_outer + in_outer % at.inner,
                        .stride = at.inner,
                        .size = at.outer / at.inner,
                        .index = in_outer / at.inner};
}

// All groups of a kind are alike, and nodes hold whole groups or groups whole nodes.
bool mics_mesh_spans_nodes(const mics_mesh *mesh, mics_group_axis axis, mics_group_scope scope)
{
    const mics_group group = mics_mesh_group(mesh, axis, scope, 0);
    return mics_group_rank(group, group.size - 1) >= mesh->ranks_per_node;
}

// ---- doubling ----

// The members of one node; of a group that cuts nodes unevenly each is alone.
static int32_t members_inside(mics_group group, int32_t per_node)
{
    const int32_t inside = mics_group_on_node(group, per_node);
    return group.size % inside == 0 ? inside : 1;
}

// `steps` members further on in the ring of `size` members from `first` on.
static int32_t member_behind(int32_t first, int32_t size, int32_t member, int64_t steps)
{
    return first + (int32_t)((member - first + steps) % size);
}

mics_doubling mics_group_doubling(mics_group group, int32_t per_node, int32_t have)
{
    const int32_t local = members_inside(group, per_node), nodes = group.size / local;
    const int32_t node = group.index - group.index % local; // its first member
    if (have < nodes) {
        const int64_t hop = (int64_t)have * local;
        return (mics_doubling){.to = member_behind(0, group.size, group.index, group.size - hop),
                               .from = member_behind(0, group.size, group.index, hop),
                               .blocks = have < nodes - have ? have : nodes - have};
    }
    const int32_t hop = have / nodes;
    return (mics_doubling){.to = member_behind(node, local, group.index, local - hop),
                           .from = member_behind(node, local, group.index, hop),
                           .blocks = nodes * (hop < local - hop ? hop : local - hop)};
}

int32_t mics_group_doubled(mics_group group, int32_t per_node, int32_t place)
{
    const int32_t local = members_inside(group, per_node), nodes = group.size / local;
    const int32_t column =
        member_behind(group.index - group.index % local, local, group.index, place / nodes);
    return member_behind(0, group.size, column, (int64_t)(place % nodes) * local);
}

// ---- positions ----

int32_t mics_mesh_position(const mics_mesh *mesh, int32_t rank, int32_t degree)
{
    int32_t position = 0;
    for (int32_t axis = 0; axis < mesh->axes && mesh->chain[axis] < degree; axis++) {
        int32_t size = mesh->chain[axis + 1] / mesh->chain[axis];
        position = position * size + rank / mesh->chain[axis] % size;
    }
    return position;
}

// The blocks of a piece at degree `inner` are the last part of a position at degree `outer`.
int32_t mics_mesh_block(const mics_mesh *mesh, mics_group_axis axis, mics_group_scope scope,
                        int32_t rank)
{
    const stretch at = stretch_of(mesh, axis, scope);
    const bool all = axis == MICS_AXIS_ISLAND || axis == MICS_AXIS_WORLD;
    if ((all && scope == MICS_SCOPE_WHOLE) || axis == MICS_AXIS_SEQUENCE)
        return mics_mesh_group(mesh, axis, scope, rank).index;
    return mics_mesh_position(mesh, rank, at.outer) % (at.outer / at.inner);
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
    return mics_size_round_up(elems, (int64_t)ALIGNED_ELEMS * mics_mesh_world(mesh));
}

mics_replicas mics_mesh_replicas(const mics_mesh *mesh)
{
    const mics_sharding s = mesh->sharding;
    return (mics_replicas){.params = mesh->ranks / s.params,
                           .grads = mesh->ranks / s.grads,
                           .optimizer = mesh->ranks / s.optimizer,
                           .compares_params = s.optimizer > s.params,
                           .compares_optimizer = s.optimizer < mesh->ranks};
}

static void keep_partner(const mics_mesh *mesh, int32_t rank, mics_keep *keep)
{
    const int32_t per_node = mesh->ranks_per_node, world = mics_mesh_world(mesh);
    keep->to = (rank + per_node) % world;
    keep->from = (rank - per_node + world) % world;
}

// What islands agreed on, and the momentum of that, each rank has a part of that no other has: so each
// has a file of its own.
static mics_keep keep_of_island(const mics_mesh *mesh, int32_t rank)
{
    const int32_t degree = mesh->sharding.optimizer, inside = rank % mesh->ranks;
    mics_keep keep = {.files = mics_mesh_world(mesh),
                      .file = rank,
                      .part = inside / degree,
                      .parts = mesh->ranks / degree,
                      .to = -1,
                      .from = -1};
    if (mics_mesh_world(mesh) > mesh->ranks_per_node)
        keep_partner(mesh, rank, &keep);
    return keep;
}

// Ranks that are a multiple of O apart hold the same shard. O divides the ranks of a node, whose
// ranks then hold every shard equally often, or is a multiple of them: each shard then lies in a node
// once, and n / O nodes hold it.
mics_keep mics_mesh_keep(const mics_mesh *mesh, int32_t rank)
{
    const int32_t degree = mesh->sharding.optimizer, per_node = mesh->ranks_per_node;
    mics_keep keep = {.parts = 1, .to = -1, .from = -1};
    if (mesh->islands > 1)
        return keep_of_island(mesh, rank);
    if (degree <= per_node) {
        keep.parts = per_node / degree;
        keep.part = rank % per_node / degree;
    } else if (degree == mesh->ranks) {
        keep_partner(mesh, rank, &keep);
    }
    keep.files = degree * keep.parts;
    keep.file = rank % degree * keep.parts + keep.part;
    return keep;
}

#define SCOPES_OF(name)                                                                            \
    {                                                                                              \
        name, name ", intra-node", name ", inter-node"                                             \
    }

const char *mics_group_text(mics_group_axis axis, mics_group_scope scope)
{
    static const char *const texts[MICS_AXES][MICS_SCOPES] = {
        [MICS_AXIS_ISLAND] = SCOPES_OF("world"),
        [MICS_AXIS_PARTITION] = SCOPES_OF("partition group"),
        [MICS_AXIS_GRADIENT] = SCOPES_OF("gradient group"),
        [MICS_AXIS_OPTIMIZER] = SCOPES_OF("optimizer group"),
        [MICS_AXIS_SCATTER] = SCOPES_OF("scatter group"),
        [MICS_AXIS_PARAM_SYNC] = SCOPES_OF("param sync group"),
        [MICS_AXIS_REPLICATION] = SCOPES_OF("replication group"),
        [MICS_AXIS_SEQUENCE] = SCOPES_OF("sequence group"),
        [MICS_AXIS_EXPERTS] = SCOPES_OF("expert group"),
        [MICS_AXIS_EXPERT_PARTITION] = SCOPES_OF("experts' partition group"),
        [MICS_AXIS_EXPERT_GRADIENT] = SCOPES_OF("experts' gradient group"),
        [MICS_AXIS_EXPERT_OPTIMIZER] = SCOPES_OF("experts' optimizer group"),
        [MICS_AXIS_OUTER] = SCOPES_OF("islands"),
        [MICS_AXIS_WORLD] = SCOPES_OF("all islands"),
    };
    return (unsigned)axis < MICS_AXES && (unsigned)scope < MICS_SCOPES ? texts[axis][scope]
                                                                       : "unknown group";
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
    size_t used = strlen(text);
    if (mesh->experts > 1)
        snprintf(text + used, capacity - used, ", E = %d", (int)mesh->experts);
    used = strlen(text);
    if (mesh->sequence > 1)
        snprintf(text + used, capacity - used, ", S = %d", (int)mesh->sequence);
    used = strlen(text);
    if (mesh->islands > 1)
        snprintf(text + used, capacity - used, ", R = %d", (int)mesh->ranks);
    return text;
}
