// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// The mesh over every P | G | O of many worlds: who is in which group, who owns what, and that all
// collectives are in place.
#include "base/capture.h"
#include "mics/core/mesh.h"
#include "test.h"
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_RANKS = 64 };

// ---- every mesh ----

static bool divides(int32_t a, int32_t b)
{
    return b % a == 0;
}

static bool fits(int32_t degree, int32_t ranks_per_node)
{
    return divides(degree, ranks_per_node) || divides(ranks_per_node, degree);
}

// Parts a mesh into islands of all sizes that O, S and nodes allow; others are refused.
static void each_parting(const mics_mesh *mesh, void (*check)(const mics_mesh *mesh))
{
    for (int32_t ranks = -1; ranks <= mesh->ranks + 1; ranks++) {
        mics_mesh parted = *mesh;
        const bool good = ranks >= 1 && divides(mesh->sharding.optimizer, ranks) &&
                          divides(mesh->sequence, ranks) && divides(ranks, mesh->ranks) &&
                          fits(ranks, mesh->ranks_per_node);
        const mics_status status = mics_mesh_part_islands(&parted, ranks);
        ASSERT_STATUS(good ? MICS_OK : MICS_ERR_INVALID, status);
        if (!good) {
            assert_memory_equal(&parted, mesh, sizeof parted);
            continue;
        }
        assert_int_equal(parted.ranks, ranks);
        assert_int_equal(mics_mesh_world(&parted), mesh->ranks);
        check(&parted);
    }
}

// Calls `check` for each mesh of `ranks` on `nodes`, whole and in islands; degrees that must be refused
// are.
static int each_sharding(int32_t ranks, int32_t nodes, void (*check)(const mics_mesh *mesh))
{
    const int32_t local = ranks / nodes;
    int meshes = 0;
    for (int32_t p = 1; p <= ranks; p++) {
        for (int32_t g = p; g <= ranks; g++) {
            for (int32_t o = g; o <= ranks; o++) {
                mics_mesh mesh;
                const bool good = divides(p, g) && divides(g, o) && divides(o, ranks) &&
                                  fits(p, local) && fits(g, local) && fits(o, local);
                mics_status status = mics_mesh_init(ranks, nodes, (mics_sharding){p, g, o}, &mesh);
                ASSERT_STATUS(good ? MICS_OK : MICS_ERR_INVALID, status);
                if (!good)
                    continue;
                each_parting(&mesh, check);
                meshes++;
            }
        }
    }
    return meshes;
}

static void each_mesh(void (*check)(const mics_mesh *mesh))
{
    static const int32_t worlds[] = {1, 2, 3, 4, 6, 8, 12, 16};
    int meshes = 0;
    capture refused; // thousands of them
    capture_begin(&refused);
    for (size_t w = 0; w < sizeof worlds / sizeof worlds[0]; w++) {
        for (int32_t nodes = 1; nodes <= worlds[w]; nodes++) {
            if (divides(nodes, worlds[w]))
                meshes += each_sharding(worlds[w], nodes, check);
        }
    }
    capture_end();
    assert_true(meshes > 300);
    mics_mesh large;
    ASSERT_OK(mics_mesh_init(64, 8, (mics_sharding){2, 16, 64}, &large));
    check(&large);
    ASSERT_OK(mics_mesh_init(64, 8, (mics_sharding){16, 16, 32}, &large));
    check(&large);
}

// ---- groups ----

static int32_t smaller(int32_t a, int32_t b)
{
    return a < b ? a : b;
}

static int32_t larger(int32_t a, int32_t b)
{
    return a > b ? a : b;
}

// How many members a group from one degree to another has, and how many of them in a node, or in how
// many nodes.
static int32_t size_of(const mics_mesh *mesh, mics_group_scope scope, int32_t inner, int32_t outer)
{
    const int32_t k = mesh->ranks_per_node;
    if (scope == MICS_SCOPE_INTRA)
        return larger(smaller(outer, k) / inner, 1);
    if (scope == MICS_SCOPE_INTER)
        return larger(outer / larger(inner, k), 1);
    return outer / inner;
}

static int32_t expected_size(const mics_mesh *mesh, mics_group_axis axis, mics_group_scope scope)
{
    const mics_sharding s = mesh->sharding;
    switch (axis) {
    case MICS_AXIS_PARTITION:
        return size_of(mesh, scope, 1, s.params);
    case MICS_AXIS_GRADIENT:
        return size_of(mesh, scope, 1, s.grads);
    case MICS_AXIS_OPTIMIZER:
        return size_of(mesh, scope, 1, s.optimizer);
    case MICS_AXIS_SCATTER:
        return size_of(mesh, scope, s.grads, s.optimizer);
    case MICS_AXIS_PARAM_SYNC:
        return size_of(mesh, scope, s.params, s.optimizer);
    case MICS_AXIS_REPLICATION:
        return size_of(mesh, scope, s.optimizer, mesh->ranks);
    case MICS_AXIS_SEQUENCE:
        return size_of(mesh, scope, 1, mesh->sequence);
    case MICS_AXIS_EXPERTS:
        return size_of(mesh, scope, 1, mesh->experts);
    case MICS_AXIS_EXPERT_PARTITION:
        return size_of(mesh, scope, mesh->experts, s.params);
    case MICS_AXIS_EXPERT_GRADIENT:
        return size_of(mesh, scope, mesh->experts, s.grads);
    case MICS_AXIS_EXPERT_OPTIMIZER:
        return size_of(mesh, scope, mesh->experts, s.optimizer);
    case MICS_AXIS_ISLAND:
        return size_of(mesh, scope, 1, mesh->ranks);
    case MICS_AXIS_OUTER:
        return size_of(mesh, scope, mesh->ranks, mics_mesh_world(mesh));
    default: // WORLD
        return size_of(mesh, scope, 1, mics_mesh_world(mesh));
    }
}

// Each rank is where its group says; members see the same group; blocks are a permutation.
static void check_group(const mics_mesh *mesh, mics_group_axis axis, mics_group_scope scope,
                        int32_t rank)
{
    const mics_group group = mics_mesh_group(mesh, axis, scope, rank);
    bool taken[MAX_RANKS] = {false};
    assert_int_equal(group.size, expected_size(mesh, axis, scope));
    const int32_t ends[] = {group.first, mics_group_rank(group, group.size - 1)};
    const bool spans = ends[0] / mesh->ranks_per_node != ends[1] / mesh->ranks_per_node;
    assert_int_equal(mics_mesh_spans_nodes(mesh, axis, scope), spans);
    assert_int_equal(mics_group_rank(group, group.index), rank);
    for (int32_t member = 0; member < group.size; member++) {
        const int32_t other = mics_group_rank(group, member);
        assert_in_range(other, 0, mics_mesh_world(mesh) - 1);
        const mics_group seen = mics_mesh_group(mesh, axis, scope, other);
        assert_int_equal(seen.first, group.first);
        assert_int_equal(seen.stride, group.stride);
        assert_int_equal(seen.size, group.size);
        assert_int_equal(seen.index, member);
        const int32_t block = mics_mesh_block(mesh, axis, scope, other);
        assert_in_range(block, 0, group.size - 1);
        assert_false(taken[block]);
        taken[block] = true;
    }
}

static void check_groups_of(const mics_mesh *mesh)
{
    for (int i = 0; i < MICS_AXES * MICS_SCOPES; i++) {
        for (int32_t rank = 0; rank < mics_mesh_world(mesh); rank++)
            check_group(mesh, (mics_group_axis)(i / MICS_SCOPES),
                        (mics_group_scope)(i % MICS_SCOPES), rank);
    }
}

// Ranks whose digits below E are equal keep the same experts: they hold a block's shards in order.
static void check_expert_blocks(const mics_mesh *mesh)
{
    for (int32_t rank = 0; rank < mesh->ranks; rank++) {
        const int32_t params = mesh->sharding.params / mesh->experts;
        const int32_t block = mics_mesh_position(mesh, rank, mesh->experts);
        const int32_t shard = mics_mesh_position(mesh, rank, mesh->sharding.params);
        assert_int_equal(shard / params, block);
        assert_int_equal(mics_mesh_block(mesh, MICS_AXIS_EXPERT_PARTITION, MICS_SCOPE_WHOLE, rank),
                         shard % params);
        assert_int_equal(mics_mesh_block(mesh, MICS_AXIS_EXPERTS, MICS_SCOPE_WHOLE, rank), block);
    }
}

// Those that share sequences are neighbours, numbered by the slice that each has; nothing else changes.
static void check_sequence_groups(const mics_mesh *mesh)
{
    for (int32_t sequence = 1; sequence <= mesh->ranks_per_node; sequence++) {
        mics_mesh cut = *mesh;
        if (mesh->ranks_per_node % sequence != 0 || mesh->ranks % sequence != 0)
            continue;
        ASSERT_OK(mics_mesh_cut_sequences(&cut, sequence));
        check_groups_of(&cut);
        for (int32_t rank = 0; rank < mesh->ranks; rank++) {
            assert_int_equal(mics_mesh_block(&cut, MICS_AXIS_SEQUENCE, MICS_SCOPE_WHOLE, rank),
                             rank % sequence);
            assert_int_equal(mics_mesh_position(&cut, rank, mesh->ranks),
                             mics_mesh_position(mesh, rank, mesh->ranks));
        }
    }
}

// With every number of ranks that keep different experts.
static void check_groups(const mics_mesh *mesh)
{
    check_sequence_groups(mesh);
    for (int32_t experts = 1; experts <= mesh->sharding.params; experts++) {
        mics_mesh spread = *mesh;
        const bool fits =
            mesh->sharding.params % experts == 0 &&
            (mesh->ranks_per_node % experts == 0 || experts % mesh->ranks_per_node == 0);
        if (!fits)
            continue;
        ASSERT_OK(mics_mesh_spread_experts(&spread, experts));
        check_groups_of(&spread);
        check_expert_blocks(&spread);
    }
}

static void test_spread_is_refused(void **state)
{
    (void)state;
    mics_mesh mesh;
    ASSERT_OK(mics_mesh_init(12, 2, (mics_sharding){6, 6, 12}, &mesh));
    const mics_mesh before = mesh;
    static const int32_t bad[] = {0, -1, 4, 5, 12};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_int_equal(mics_mesh_spread_experts(&mesh, bad[i]), MICS_ERR_INVALID);
    static const int32_t no_slices[] = {0, -1, 4, 5, 12};
    for (size_t i = 0; i < sizeof no_slices / sizeof no_slices[0]; i++)
        assert_int_equal(mics_mesh_cut_sequences(&mesh, no_slices[i]), MICS_ERR_INVALID);
    assert_memory_equal(&mesh, &before, sizeof mesh);
}

static void test_groups_partition_the_ranks(void **state)
{
    (void)state;
    each_mesh(check_groups);
}

// A unit of an island is cut once more over islands: their members at one place hold the island's share
// together, in the order of blocks.
static void check_island_shares(const mics_mesh *mesh)
{
    const int64_t padded = mics_mesh_padded(mesh, 1000);
    for (int32_t rank = 0; rank < mics_mesh_world(mesh); rank++) {
        const mics_range share = mics_mesh_range(mesh, rank, mesh->ranks, padded);
        const mics_range met = mics_mesh_range(mesh, rank, mics_mesh_world(mesh), padded);
        const mics_group group = mics_mesh_group(mesh, MICS_AXIS_OUTER, MICS_SCOPE_WHOLE, rank);
        const mics_group island = mics_mesh_group(mesh, MICS_AXIS_ISLAND, MICS_SCOPE_WHOLE, rank);
        assert_int_equal((met.end - met.begin) % 16, 0);
        assert_int_equal(met.begin - share.begin,
                         mics_mesh_block(mesh, MICS_AXIS_OUTER, MICS_SCOPE_WHOLE, rank) *
                             (met.end - met.begin));
        const int64_t local = mesh->ranks_per_node; // in two stages it is the same block
        if (mesh->ranks < local && local < mics_mesh_world(mesh))
            assert_int_equal(met.begin - share.begin,
                             mics_mesh_block(mesh, MICS_AXIS_OUTER, MICS_SCOPE_INTRA, rank) *
                                     (padded / local) +
                                 mics_mesh_block(mesh, MICS_AXIS_OUTER, MICS_SCOPE_INTER, rank) *
                                     (met.end - met.begin));
        assert_int_equal(group.index, rank / mesh->ranks);
        assert_int_equal(island.first, rank - rank % mesh->ranks);
        for (int32_t member = 0; member < group.size; member++)
            assert_int_equal(
                mics_mesh_range(mesh, mics_group_rank(group, member), mesh->ranks, padded).begin,
                share.begin);
    }
}

static void test_islands_share_what_meets(void **state)
{
    (void)state;
    each_mesh(check_island_shares);
    char text[64];
    mics_mesh mesh;
    ASSERT_OK(mics_mesh_init(16, 4, (mics_sharding){2, 2, 4}, &mesh));
    ASSERT_OK(mics_mesh_part_islands(&mesh, 8));
    assert_int_equal(mesh.islands, 2);
    assert_int_equal(mics_mesh_nodes(&mesh), 2);
    assert_string_equal(mics_mesh_name(&mesh, text, sizeof text), "P|G|O = 2|2|4, R = 8");
    ASSERT_OK(mics_mesh_init(16, 2, (mics_sharding){2, 2, 2}, &mesh));
    ASSERT_OK(mics_mesh_part_islands(&mesh, 4)); // two a node
    assert_int_equal(mesh.islands, 4);
    assert_int_equal(mics_mesh_nodes(&mesh), 1);
    assert_false(mics_mesh_spans_nodes(&mesh, MICS_AXIS_ISLAND, MICS_SCOPE_WHOLE));
    assert_true(mics_mesh_spans_nodes(&mesh, MICS_AXIS_OUTER, MICS_SCOPE_WHOLE));
    assert_false(mics_mesh_spans_nodes(&mesh, MICS_AXIS_OUTER, MICS_SCOPE_INTRA));
    capture seen;
    capture_begin(&seen);
    assert_int_equal(mics_mesh_cut_sequences(&mesh, 8), MICS_ERR_INVALID);
    capture_end();
    ASSERT_SAID(&seen, "must divide the 4 ranks of an island; these would work: 1, 2, 4");
    capture_begin(&seen);
    assert_int_equal(mics_mesh_part_islands(&mesh, 3), MICS_ERR_INVALID);
    capture_end();
    ASSERT_SAID(&seen,
                "outer.ranks = 3 must be a multiple of sharding.optimizer = 2 and of "
                "sharding.sequence = 1, divide the 16 ranks, and not straddle nodes of 8 ranks "
                "unevenly; these would work: 2, 4, 8, 16");
}

// O and S both divide what would work.
static void test_islands_of_both(void **state)
{
    (void)state;
    mics_mesh mesh;
    capture seen;
    ASSERT_OK(mics_mesh_init(24, 2, (mics_sharding){2, 2, 4}, &mesh));
    ASSERT_OK(mics_mesh_cut_sequences(&mesh, 3));
    capture_begin(&seen);
    assert_int_equal(mics_mesh_part_islands(&mesh, 4), MICS_ERR_INVALID);
    capture_end();
    ASSERT_SAID(&seen, "these would work: 12, 24");
    ASSERT_OK(mics_mesh_part_islands(&mesh, 12));
}

// A column of one kind meets a range of another in one rank: together they cover an optimizer group
// or the world.
static void check_crossing(const mics_mesh *mesh)
{
    for (int32_t rank = 0; rank < mesh->ranks; rank++) {
        const mics_group replicas =
            mics_mesh_group(mesh, MICS_AXIS_REPLICATION, MICS_SCOPE_WHOLE, rank);
        const mics_group scatter = mics_mesh_group(mesh, MICS_AXIS_SCATTER, MICS_SCOPE_WHOLE, rank);
        const mics_group grads = mics_mesh_group(mesh, MICS_AXIS_GRADIENT, MICS_SCOPE_WHOLE, rank);
        assert_int_equal(grads.stride, 1);
        assert_int_equal(mics_mesh_group(mesh, MICS_AXIS_PARTITION, MICS_SCOPE_WHOLE, rank).stride,
                         1);
        assert_int_equal(scatter.stride, mesh->sharding.grads);
        assert_int_equal(replicas.stride, mesh->sharding.optimizer);
        assert_int_equal(grads.size * scatter.size * replicas.size, mesh->ranks);
    }
}

static void test_ranges_and_columns(void **state)
{
    (void)state;
    each_mesh(check_crossing);
}

// ---- ownership ----

static bool contains(mics_range outer, mics_range inner)
{
    return outer.begin <= inner.begin && inner.end <= outer.end;
}

static void check_nesting(const mics_mesh *mesh, int32_t rank, int64_t padded)
{
    const mics_sharding s = mesh->sharding;
    const mics_range params = mics_mesh_range(mesh, rank, s.params, padded);
    const mics_range grads = mics_mesh_range(mesh, rank, s.grads, padded);
    const mics_range owned = mics_mesh_range(mesh, rank, s.optimizer, padded);
    const int64_t piece = padded / s.optimizer;
    assert_true(contains(params, grads) && contains(grads, owned));
    assert_int_equal(owned.end - owned.begin, piece);
    assert_int_equal(grads.end - grads.begin, padded / s.grads);
    assert_int_equal(params.end - params.begin, padded / s.params);
    // Where the collectives put things.
    assert_int_equal(params.begin,
                     mics_mesh_block(mesh, MICS_AXIS_PARTITION, MICS_SCOPE_WHOLE, rank) *
                         (padded / s.params));
    assert_int_equal(grads.begin,
                     mics_mesh_block(mesh, MICS_AXIS_GRADIENT, MICS_SCOPE_WHOLE, rank) *
                         (padded / s.grads));
    assert_int_equal(owned.begin - grads.begin,
                     mics_mesh_block(mesh, MICS_AXIS_SCATTER, MICS_SCOPE_WHOLE, rank) * piece);
    assert_int_equal(owned.begin - params.begin,
                     mics_mesh_block(mesh, MICS_AXIS_PARAM_SYNC, MICS_SCOPE_WHOLE, rank) * piece);
    // Members of a column hold the same piece.
    const mics_group replicas =
        mics_mesh_group(mesh, MICS_AXIS_REPLICATION, MICS_SCOPE_WHOLE, rank);
    for (int32_t member = 0; member < replicas.size; member++) {
        const int32_t other = mics_group_rank(replicas, member);
        assert_int_equal(mics_mesh_range(mesh, other, s.optimizer, padded).begin, owned.begin);
    }
}

// At each degree of the chain, each run of `degree` ranks owns the unit once.
static void check_positions(const mics_mesh *mesh, int32_t degree)
{
    for (int32_t first = 0; first < mics_mesh_world(mesh); first += degree) {
        bool taken[MAX_RANKS] = {false};
        for (int32_t rank = first; rank < first + degree; rank++) {
            const int32_t position = mics_mesh_position(mesh, rank, degree);
            assert_in_range(position, 0, degree - 1);
            assert_false(taken[position]);
            taken[position] = true;
            assert_int_equal(position, mics_mesh_position(mesh, rank % degree, degree));
        }
    }
}

static void check_ownership(const mics_mesh *mesh)
{
    const int64_t padded = mics_mesh_padded(mesh, 1000);
    for (int32_t rank = 0; rank < mesh->ranks; rank++)
        check_nesting(mesh, rank, padded);
    for (int32_t axis = 0; axis <= mesh->axes; axis++)
        check_positions(mesh, mesh->chain[axis]);
}

static void test_pieces_nest_and_tile(void **state)
{
    (void)state;
    each_mesh(check_ownership);
}

static void check_chain(const mics_mesh *mesh)
{
    assert_in_range(mesh->axes, 0, MICS_MESH_AXES);
    assert_int_equal(mesh->chain[0], 1);
    assert_int_equal(mesh->chain[mesh->axes], mics_mesh_world(mesh));
    for (int32_t axis = 0; axis < mesh->axes; axis++) {
        assert_true(mesh->chain[axis] < mesh->chain[axis + 1]);
        assert_true(divides(mesh->chain[axis], mesh->chain[axis + 1]));
    }
}

static void test_chain(void **state)
{
    (void)state;
    each_mesh(check_chain);
}

// A gather over several nodes in two stages, each in place: between equal local ranks, which leaves
// one contiguous block, then inside the node, whose blocks are the whole.
static void check_hierarchy(const mics_mesh *mesh)
{
    const int32_t p = mesh->sharding.params;
    if (p <= mesh->ranks_per_node)
        return;
    for (int32_t rank = 0; rank < mesh->ranks; rank++) {
        const mics_group between =
            mics_mesh_group(mesh, MICS_AXIS_PARTITION, MICS_SCOPE_INTER, rank);
        const mics_group node = mics_mesh_group(mesh, MICS_AXIS_ISLAND, MICS_SCOPE_INTRA, rank);
        const int32_t begin = node.index * between.size;
        for (int32_t member = 0; member < between.size; member++) {
            const int32_t other = mics_group_rank(between, member);
            assert_int_equal(other % mesh->ranks_per_node, node.index);
            const int32_t position = mics_mesh_position(mesh, other, p);
            assert_in_range(position, begin, begin + between.size - 1);
        }
        assert_int_equal(node.size * between.size, p);
    }
}

static void test_hierarchical_gather_is_in_place(void **state)
{
    (void)state;
    each_mesh(check_hierarchy);
    // By hand: 2 nodes x 2, all four hold a quarter. Local rank major, node minor.
    mics_mesh mesh;
    ASSERT_OK(mics_mesh_init(4, 2, (mics_sharding){4, 4, 4}, &mesh));
    static const int32_t positions[] = {0, 2, 1, 3};
    for (int32_t rank = 0; rank < 4; rank++)
        assert_int_equal(mics_mesh_position(&mesh, rank, 4), positions[rank]);
}

// The same for the columns of the second hop and of parameter sync: a node's share of the buffer is one
// contiguous block, in which the ranks of equal local rank own theirs. Group sizes multiply.
static void check_stages(const mics_mesh *mesh, mics_group_axis axis)
{
    for (int32_t rank = 0; rank < mesh->ranks; rank++) {
        const mics_group all = mics_mesh_group(mesh, axis, MICS_SCOPE_WHOLE, rank);
        const mics_group near = mics_mesh_group(mesh, axis, MICS_SCOPE_INTRA, rank);
        const mics_group far = mics_mesh_group(mesh, axis, MICS_SCOPE_INTER, rank);
        assert_int_equal(near.size * far.size, all.size);
        assert_int_equal(near.stride, all.stride);
        assert_int_equal(far.stride % mesh->ranks_per_node, 0);
        assert_int_equal(mics_mesh_block(mesh, axis, MICS_SCOPE_WHOLE, rank),
                         mics_mesh_block(mesh, axis, MICS_SCOPE_INTRA, rank) * far.size +
                             mics_mesh_block(mesh, axis, MICS_SCOPE_INTER, rank));
        for (int32_t member = 0; member < near.size; member++)
            assert_int_equal(mics_group_rank(near, member) / mesh->ranks_per_node,
                             rank / mesh->ranks_per_node);
    }
}

static void check_columns(const mics_mesh *mesh)
{
    const int32_t k = mesh->ranks_per_node;
    const mics_sharding s = mesh->sharding;
    if (s.grads < k && k < s.optimizer)
        check_stages(mesh, MICS_AXIS_SCATTER);
    if (s.params < k && k < s.optimizer)
        check_stages(mesh, MICS_AXIS_PARAM_SYNC);
    if (1 < k && k < s.optimizer) // of units that stay whole
        check_stages(mesh, MICS_AXIS_OPTIMIZER);
    for (int32_t rank = 0; s.optimizer < k && k < mesh->ranks && rank < mesh->ranks; rank++) {
        // An all-reduce's blocks are whose they like; its groups must cover the replicas.
        const mics_group near =
            mics_mesh_group(mesh, MICS_AXIS_REPLICATION, MICS_SCOPE_INTRA, rank);
        const mics_group far = mics_mesh_group(mesh, MICS_AXIS_REPLICATION, MICS_SCOPE_INTER, rank);
        assert_int_equal(near.size * far.size, mesh->ranks / s.optimizer);
        assert_int_equal(near.stride, s.optimizer);
        assert_int_equal(far.stride, k);
    }
}

static void test_second_hop_in_stages_is_in_place(void **state)
{
    (void)state;
    each_mesh(check_columns);
    // By hand: 2 nodes x 4 in pairs, all eight hold the optimizer state.
    mics_mesh mesh;
    ASSERT_OK(mics_mesh_init(8, 2, (mics_sharding){2, 2, 8}, &mesh));
    static const int32_t inside[] = {0, 0, 1, 1, 0, 0, 1, 1};
    for (int32_t rank = 0; rank < 8; rank++) {
        assert_int_equal(mics_mesh_block(&mesh, MICS_AXIS_SCATTER, MICS_SCOPE_INTRA, rank),
                         inside[rank]);
        assert_int_equal(mics_mesh_block(&mesh, MICS_AXIS_OPTIMIZER, MICS_SCOPE_INTER, rank),
                         rank / 4);
    }
}

static void check_padding(const mics_mesh *mesh)
{
    static const int64_t lengths[] = {0, 1, 15, 16, 17, 1000, 38597376, (int64_t)1 << 40};
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
        const int64_t padded = mics_mesh_padded(mesh, lengths[i]);
        const int64_t line = (int64_t)16 * mics_mesh_world(mesh);
        assert_int_equal(padded % line, 0);
        assert_true(padded >= lengths[i] && padded - lengths[i] < line);
    }
}

static void test_padding(void **state)
{
    (void)state;
    each_mesh(check_padding);
}

// ---- names ----

static void test_names(void **state)
{
    (void)state;
    static const struct {
        int32_t ranks;
        mics_sharding sharding;
        const char *name;
    } names[] = {
        {1, {1, 1, 1}, "ddp"},           {4, {1, 1, 1}, "ddp"},
        {4, {1, 1, 4}, "zero1"},         {4, {1, 4, 4}, "zero2"},
        {4, {4, 4, 4}, "zero3"},         {8, {2, 2, 2}, "mics(2)"},
        {8, {4, 4, 4}, "mics(4)"},       {8, {2, 2, 8}, "mics+(2)"},
        {8, {4, 4, 8}, "mics+(4)"},      {8, {2, 8, 8}, "hpz(2)"},
        {8, {4, 8, 8}, "hpz(4)"},        {8, {1, 2, 4}, "P|G|O = 1|2|4"},
        {8, {2, 2, 4}, "P|G|O = 2|2|4"}, {8, {1, 1, 4}, "P|G|O = 1|1|4"},
        {8, {2, 4, 8}, "P|G|O = 2|4|8"},
    };
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        mics_mesh mesh;
        char text[32], little[4] = "zzz";
        ASSERT_OK(mics_mesh_init(names[i].ranks, 1, names[i].sharding, &mesh));
        assert_string_equal(mics_mesh_name(&mesh, text, sizeof text), names[i].name);
        assert_ptr_equal(mics_mesh_name(&mesh, little, sizeof little), little);
        assert_true(strlen(little) == 3 && strncmp(little, names[i].name, 3) == 0);
    }
    assert_string_equal(mics_group_text(MICS_AXIS_PARTITION, MICS_SCOPE_WHOLE), "partition group");
    assert_string_equal(mics_group_text(MICS_AXIS_REPLICATION, MICS_SCOPE_INTER),
                        "replication group, inter-node");
    assert_string_equal(mics_group_text(MICS_AXES, MICS_SCOPE_WHOLE), "unknown group");
    assert_string_equal(mics_group_text(MICS_AXIS_ISLAND, MICS_SCOPES), "unknown group");
    for (int i = 0; i < MICS_AXES * MICS_SCOPES; i++)
        assert_non_null(mics_group_text((mics_group_axis)(i / MICS_SCOPES),
                                        (mics_group_scope)(i % MICS_SCOPES)));
}

// ---- what nodes keep in memory ----

// How often a file is kept by a node's own ranks, and as a partner's copy.
static void count_kept(const mics_mesh *mesh, int32_t node, int32_t file, int *own_out,
                       int *copies_out)
{
    *own_out = *copies_out = 0;
    for (int32_t local = 0; local < mesh->ranks_per_node; local++) {
        const mics_keep keep = mics_mesh_keep(mesh, node * mesh->ranks_per_node + local);
        *own_out += keep.file == file;
        *copies_out += keep.from >= 0 && mics_mesh_keep(mesh, keep.from).file == file;
    }
}

// A file is the same part of the same shard wherever it is kept, and each is kept by somebody.
static void check_files(const mics_mesh *mesh)
{
    const int32_t degree = mesh->sharding.optimizer;
    int32_t seen_at[MAX_RANKS];
    memset(seen_at, -1, sizeof seen_at);
    for (int32_t rank = 0; rank < mesh->ranks; rank++) {
        const mics_keep keep = mics_mesh_keep(mesh, rank), first = mics_mesh_keep(mesh, 0);
        const int32_t place = mics_mesh_position(mesh, rank, degree) * keep.parts + keep.part;
        assert_int_equal(keep.files, first.files);
        assert_int_equal(keep.parts, first.parts);
        assert_int_equal(keep.files, degree * keep.parts);
        assert_in_range(keep.part, 0, keep.parts - 1);
        assert_in_range(keep.file, 0, keep.files - 1);
        assert_true(seen_at[keep.file] == -1 || seen_at[keep.file] == place);
        seen_at[keep.file] = place;
        assert_int_equal(keep.to < 0, keep.from < 0);
        if (keep.to < 0)
            continue;
        assert_int_equal(mics_mesh_keep(mesh, keep.to).from, rank);
        assert_int_equal(keep.to / mesh->ranks_per_node,
                         (rank / mesh->ranks_per_node + 1) % (mesh->ranks / mesh->ranks_per_node));
    }
    for (int32_t file = 0; file < mics_mesh_keep(mesh, 0).files; file++)
        assert_int_not_equal(seen_at[file], -1);
}

// No node keeps anything twice, the loss of one of several loses nothing, and no copy is made that
// this does not need.
static void check_keep(const mics_mesh *mesh)
{
    const int32_t nodes = mesh->ranks / mesh->ranks_per_node;
    if (mesh->islands > 1)
        return;
    check_files(mesh);
    for (int32_t file = 0; file < mics_mesh_keep(mesh, 0).files; file++) {
        int holders = 0, owners = 0, all_copies = 0;
        for (int32_t node = 0; node < nodes; node++) {
            int own, copies;
            count_kept(mesh, node, file, &own, &copies);
            assert_true(own + copies <= 1);
            holders += own + copies;
            owners += own;
            all_copies += copies;
        }
        assert_true(owners >= 1);
        assert_true(holders >= (nodes > 1 ? 2 : 1));
        assert_int_equal(all_copies, nodes > 1 && owners == 1);
    }
}

static void test_nodes_keep_enough(void **state)
{
    (void)state;
    each_mesh(check_keep);
}

// ---- refusals ----

static void test_refusals(void **state)
{
    (void)state;
    static const struct {
        int32_t ranks, nodes;
        mics_sharding sharding;
        const char *said;
    } refusals[] = {
        {0, 1, {1, 1, 1}, "ranks = 0"},
        {-4, 1, {1, 1, 1}, "ranks = -4"},
        {4, 0, {1, 1, 1}, "0 nodes"},
        {4, -1, {1, 1, 1}, "-1 nodes"},
        {4, 3, {1, 1, 1}, "number of nodes that divides 4"},
        {2, 4, {1, 1, 1}, "4 nodes"},
        {8, 2, {3, 3, 3}, "sharding.params = 3 does not divide the number of ranks"},
        {8, 2, {3, 3, 3}, "these would work: 1, 2, 4, 8"},
        {8, 2, {0, 8, 8}, "sharding.params = 0 is below 1"},
        {8, 2, {-2, 8, 8}, "sharding.params = -2 is below 1"},
        {8, 2, {16, 16, 16}, "these would work: 1, 2, 4, 8"},
        {8, 2, {4, 2, 8}, "sharding.grads = 2 is no multiple of the degree before it"},
        {8, 2, {4, 2, 8}, "these would work: 4, 8"},
        {8, 2, {2, 4, 2}, "sharding.optimizer = 2 is no multiple"},
        {8, 2, {2, 4, 2}, "these would work: 4, 8"},
        {12, 2, {4, 4, 4}, "sharding.params = 4 straddles nodes unevenly"},
        {12, 2, {4, 4, 4}, "(12 ranks, 6 a node); these would work: 1, 2, 3, 6, 12"},
        {12, 2, {1, 4, 12}, "sharding.grads = 4 straddles nodes unevenly"},
        {12, 2, {1, 1, 4}, "sharding.optimizer = 4 straddles nodes unevenly"},
        {6, 2, {2, 2, 6}, "these would work: 1, 3, 6"},
    };
    for (size_t i = 0; i < sizeof refusals / sizeof refusals[0]; i++) {
        capture seen;
        mics_mesh mesh = {.ranks = 77};
        capture_begin(&seen);
        mics_status status =
            mics_mesh_init(refusals[i].ranks, refusals[i].nodes, refusals[i].sharding, &mesh);
        capture_end();
        ASSERT_STATUS(MICS_ERR_INVALID, status);
        ASSERT_SAID(&seen, refusals[i].said);
        assert_int_equal(mesh.ranks, 77); // untouched
    }
}

// ---- doubling ----

// What each member has: members whose blocks lie in its memory, in order.
typedef struct held {
    int32_t *of; // (members, members)
    int32_t size;
} held;

static int32_t *blocks_of(const held *all, int32_t member)
{
    return all->of + (int64_t)member * all->size;
}

static mics_group seen_by(mics_group group, int32_t member)
{
    group.index = member;
    return group;
}

static int32_t rounds_of(int32_t size)
{
    int32_t rounds = 0;
    for (int32_t have = 1; have < size; have *= 2)
        rounds++;
    return rounds;
}

// A round of all members, each of whom has `have` blocks.
static int32_t double_all(const held *all, mics_group group, int32_t per_node, int32_t have)
{
    const int32_t blocks = mics_group_doubling(group, per_node, have).blocks;
    assert_true(blocks >= 1 && blocks <= have && have + blocks <= group.size);
    for (int32_t m = 0; m < group.size; m++) {
        const mics_doubling mine = mics_group_doubling(seen_by(group, m), per_node, have);
        const mics_doubling theirs = mics_group_doubling(seen_by(group, mine.from), per_node, have);
        assert_int_equal(mine.blocks, blocks);
        assert_int_equal(theirs.to, m);
        assert_true(mine.from != m);
        memcpy(blocks_of(all, m) + have, blocks_of(all, mine.from),
               (size_t)blocks * sizeof(int32_t));
    }
    return blocks;
}

static bool shares_node(mics_group group, int32_t per_node, int32_t a, int32_t b)
{
    return mics_group_rank(group, a) / per_node == mics_group_rank(group, b) / per_node;
}

// Every block once, where mics_group_doubled says; each other node's blocks come to a node once for
// each of its ranks; as few rounds as there can be.
static void check_doubling(mics_group group, int32_t per_node)
{
    const int32_t size = group.size, local = mics_group_on_node(group, per_node);
    held all = {.of = calloc((size_t)size * (size_t)size, sizeof(int32_t)), .size = size};
    int32_t rounds = 0, inter = 0;
    assert_non_null(all.of);
    for (int32_t m = 0; m < size; m++)
        *blocks_of(&all, m) = m;
    for (int32_t have = 1; have < size; rounds++) {
        const mics_doubling first = mics_group_doubling(group, per_node, have);
        const int32_t blocks = double_all(&all, group, per_node, have);
        inter += shares_node(group, per_node, group.index, first.to) ? 0 : blocks;
        have += blocks;
    }
    assert_int_equal(rounds, rounds_of(size / local) + rounds_of(local));
    assert_int_equal(inter, size / local - 1);
    for (int32_t m = 0; m < size; m++) {
        uint64_t seen[MAX_RANKS * MAX_RANKS / 64 + 1] = {0};
        for (int32_t place = 0; place < size; place++) {
            const int32_t block = blocks_of(&all, m)[place];
            assert_int_equal(block, mics_group_doubled(seen_by(group, m), per_node, place));
            assert_true((seen[block / 64] >> block % 64 & 1) == 0);
            seen[block / 64] |= (uint64_t)1 << block % 64;
        }
    }
    free(all.of);
}

// All groups of every mesh, and worlds of numbers of nodes and ranks that are no powers of two.
static void check_doublings(const mics_mesh *mesh)
{
    for (int axis = 0; axis < MICS_AXES; axis++) {
        for (int scope = 0; scope < MICS_SCOPES; scope++)
            check_doubling(mics_mesh_group(mesh, (mics_group_axis)axis, (mics_group_scope)scope, 0),
                           mesh->ranks_per_node);
    }
}

static void test_doubling_reaches_all(void **state)
{
    (void)state;
    static const int32_t nodes[] = {1, 2, 3, 5, 7, 8, 13, 64};
    each_mesh(check_doublings);
    for (size_t n = 0; n < sizeof nodes / sizeof nodes[0]; n++) {
        for (int32_t per_node = 1; per_node <= 8; per_node++)
            check_doubling((mics_group){.stride = 1, .size = nodes[n] * per_node}, per_node);
    }
    // Groups that take nodes unevenly are one level.
    const mics_group uneven = {.first = 1, .stride = 2, .size = 5};
    for (int32_t have = 1, rounds = 0; have < 5; rounds++) {
        const mics_doubling round = mics_group_doubling(uneven, 6, have);
        assert_int_equal(round.from, 1 << rounds);
        have += round.blocks;
    }
}

// ---- replicas ----

static void test_replicas_of_each_sharding(void **state)
{
    (void)state;
    static const struct {
        mics_sharding sharding;
        mics_replicas expected; // of 8 ranks
    } cases[] = {
        {{1, 1, 1}, {8, 8, 8, false, true}}, {{2, 2, 2}, {4, 4, 4, false, true}},
        {{1, 1, 8}, {8, 8, 1, true, false}}, {{1, 8, 8}, {8, 1, 1, true, false}},
        {{2, 4, 4}, {4, 2, 2, true, true}},  {{2, 2, 8}, {4, 4, 1, true, false}},
        {{4, 8, 8}, {2, 1, 1, true, false}}, {{8, 8, 8}, {1, 1, 1, false, false}},
    };
    for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
        mics_mesh mesh;
        ASSERT_OK(mics_mesh_init(8, 2, cases[c].sharding, &mesh));
        const mics_replicas found = mics_mesh_replicas(&mesh), expected = cases[c].expected;
        assert_int_equal(found.params, expected.params);
        assert_int_equal(found.grads, expected.grads);
        assert_int_equal(found.optimizer, expected.optimizer);
        assert_int_equal(found.compares_params, expected.compares_params);
        assert_int_equal(found.compares_optimizer, expected.compares_optimizer);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_groups_partition_the_ranks),
        cmocka_unit_test(test_islands_share_what_meets),
        cmocka_unit_test(test_islands_of_both),
        cmocka_unit_test(test_spread_is_refused),
        cmocka_unit_test(test_ranges_and_columns),
        cmocka_unit_test(test_pieces_nest_and_tile),
        cmocka_unit_test(test_chain),
        cmocka_unit_test(test_hierarchical_gather_is_in_place),
        cmocka_unit_test(test_second_hop_in_stages_is_in_place),
        cmocka_unit_test(test_padding),
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_replicas_of_each_sharding),
        cmocka_unit_test(test_nodes_keep_enough),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_doubling_reaches_all),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
