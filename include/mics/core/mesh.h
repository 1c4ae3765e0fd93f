// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Who owns what: the mesh of ranks, the groups of the E | P | G | O family, and each rank's range of
// a unit.
//
// Ranks are numbered node by node. The degrees and the ranks of a node form a chain in which each
// divides the next (1 | ... | ranks), so a rank is a number in mixed radix: digit i counts along
// the chain's i-th axis, close ranks first.
//
// Ownership order. A unit's flat buffer is cut into `degree` blocks. Rank r's block is its digits
// below `degree` read with the closest axis most significant (local rank major, node minor). So the
// shards nest: the block at a larger degree lies inside the block at a smaller one, and every gather
// or reduction is one collective in place.
#ifndef MICS_MESH_H
#define MICS_MESH_H

#include "mics/status.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

// ---- group ----
// A group of ranks, as one rank sees it. Every group of the family is an arithmetic progression: a
// nested range (stride 1) or a column of the mesh.

typedef struct mics_group {
    int32_t first;  // world rank of member 0
    int32_t stride; // world ranks between neighbours; >= 1
    int32_t size;   // members; >= 1
    int32_t index;  // which member this rank is
} mics_group;

/* World rank of a member. Needs 0 <= member < group.size. */
static inline int32_t mics_group_rank(mics_group group, int32_t member)
{
    return group.first + member * group.stride;
}

/* How many members of a group share a node of `per_node` ranks: all of them, or as many on each of
 * its nodes. Needs a group of a mesh's, which lies in a node or takes whole ones. */
static inline int32_t mics_group_on_node(mics_group group, int32_t per_node)
{
    const int32_t fit = group.stride < per_node ? per_node / group.stride : 1;
    return fit < group.size ? fit : group.size;
}

// A round of an all-gather by doubling (mics_comm_all_gather_doubling), as one member sees it: it
// sends the first `blocks` blocks that it has, and receives as many behind them.
typedef struct mics_doubling {
    int32_t to, from; // members
    int32_t blocks;
} mics_doubling;

/* The round of a member that has `have` blocks, its own first. The next one begins with have +
 * blocks, and the last ends with group.size. First come rounds between equal local ranks, which
 * double the nodes that blocks are from; then rounds inside each node, which double its ranks.
 *
 * Needs:   1 <= have < group.size, from the round before; per_node >= 1.       Pure.
 * Source:  Bruck et al., IEEE TPDS 8(11), 1997 (all-gather in ceil(log2 p) rounds).
 */
mics_doubling mics_group_doubling(mics_group group, int32_t per_node, int32_t have);

/* The member whose block lies at `place` when all rounds are done: round the nodes from its own on,
 * for each local rank from its own on.        Needs: 0 <= place < group.size.       Pure. */
int32_t mics_group_doubled(mics_group group, int32_t per_node, int32_t place);

// ---- mesh ----

// Ranks that share one copy of each state; 1 <= params | grads | optimizer | ranks.
typedef struct mics_sharding {
    int32_t params, grads, optimizer;
} mics_sharding;

enum { MICS_MESH_AXES = 7 };

typedef struct mics_mesh {
    // Of an island: ranks that train as one, and are all there are but for local steps. What this page
    // says of all ranks holds inside each island. Rank r of the world is of island r / ranks.
    int32_t ranks;
    int32_t islands; // that meet every so many steps (mics_outer); 1
    int32_t ranks_per_node;
    mics_sharding sharding;
    // Ranks that keep different experts: E | P; 1: all have the same. Of units of experts (model.h) a
    // rank keeps one of E blocks, that of its digits below E: it is sharded over P / E, G / E and
    // O / E ranks.
    int32_t experts;
    // Ranks that share each sequence, all of one node: number rank % S of them has slice rank % S. In no
    // chain, as states are cut over all ranks whoever shares sequences.
    int32_t sequence;
    int32_t chain[MICS_MESH_AXES +
                  1]; // ascending, chain[0] = 1, each divides the next, the last is ranks * islands
    int32_t axes;     // chain has axes + 1 entries
} mics_mesh;

// Along which degrees of the chain a group runs. Its members together hold one shard at the first
// degree; each of them holds a shard at the second.
typedef enum mics_group_axis {
    MICS_AXIS_ISLAND,    // 1 to ranks: all that train as one
    MICS_AXIS_PARTITION, // 1 to P: together hold the parameters once; gathers run here
    MICS_AXIS_GRADIENT,  // 1 to G: hold the gradients once; each micro-step's reduce-scatter
    MICS_AXIS_OPTIMIZER, // 1 to O: hold the optimizer state once; boundary of units that stay whole
    MICS_AXIS_SCATTER,   // G to O: the second hop's reduce-scatter
    MICS_AXIS_PARAM_SYNC,  // P to O: all-gather of what was updated
    MICS_AXIS_REPLICATION, // O to ranks: hold the same optimizer shard; the second hop's all-reduce
    MICS_AXIS_SEQUENCE,    // 1 to S: share sequences; heads and tokens are exchanged here
    MICS_AXIS_EXPERTS,     // 1 to E: keep different experts; tokens travel here
    // Of units of experts: E to P, E to G and E to O, in place of partition, gradient and optimizer
    // groups.
    MICS_AXIS_EXPERT_PARTITION,
    MICS_AXIS_EXPERT_GRADIENT,
    MICS_AXIS_EXPERT_OPTIMIZER,
    MICS_AXIS_OUTER, // ranks to ranks * islands: the same rank of each island; meetings run here
    MICS_AXIS_WORLD, // 1 to ranks * islands: everybody
    MICS_AXES
} mics_group_axis;

// How much of it: where a group has several members a node and several nodes, a collective over it
// may run in stages. One rank alone where there is no such part.
typedef enum mics_group_scope {
    MICS_SCOPE_WHOLE,
    MICS_SCOPE_INTRA, // its ranks of one node
    MICS_SCOPE_INTER, // ranks that have the same local rank, one in each of its nodes
    MICS_SCOPES
} mics_group_scope;

typedef struct mics_range {
    int64_t begin, end; // elements
} mics_range;

/* Builds the mesh.
 *
 * Needs:   ranks >= 1, nodes >= 1; nodes divides ranks; 1 <= P | G | O | ranks; each degree divides
 *          the ranks of a node or is a multiple of them (a group may not straddle nodes unevenly).
 * Returns: MICS_OK; MICS_ERR_INVALID, logged with the sizes that would work (mesh_out untouched).
 * Threads: any.
 */
mics_status mics_mesh_init(int32_t ranks, int32_t nodes, mics_sharding sharding,
                           mics_mesh *mesh_out);

/* Lets `experts` ranks, the nearest ones, keep different experts. mics_mesh_init has made it 1.
 *
 * Needs:   experts >= 1 divides P, and divides the ranks of a node or is a multiple of them.
 * Returns: MICS_OK; MICS_ERR_INVALID, logged with the numbers that would work (mesh untouched).
 * Threads: any.
 */
mics_status mics_mesh_spread_experts(mics_mesh *mesh, int32_t experts);

/* Lets `sequence` ranks, the nearest ones, share each sequence. mics_mesh_init has made it 1.
 *
 * Needs:   sequence >= 1 divides the ranks of a node.
 * Returns: MICS_OK; MICS_ERR_INVALID, logged with the numbers that would work (mesh untouched).
 * Threads: any.
 */
mics_status mics_mesh_cut_sequences(mics_mesh *mesh, int32_t sequence);

/* Parts the ranks into islands of `ranks`, the nearest ones, that meet every so many steps
 * (mics_schedule_spec.outer). mics_mesh_init has made one of all.
 *
 * Needs:   ranks a multiple of O and of S that divides the mesh's; it divides the ranks of a node, or
 *          is a multiple of them.
 * Returns: MICS_OK; MICS_ERR_INVALID, logged with the numbers that would work (mesh untouched).
 * Threads: any.
 */
mics_status mics_mesh_part_islands(mics_mesh *mesh, int32_t ranks);

/* Ranks of all islands. Pure. */
static inline int32_t mics_mesh_world(const mics_mesh *mesh)
{
    return mesh->ranks * mesh->islands;
}

/* Nodes that an island lies on; 1 where a node holds several. Pure. */
static inline int32_t mics_mesh_nodes(const mics_mesh *mesh)
{
    return mesh->ranks > mesh->ranks_per_node ? mesh->ranks / mesh->ranks_per_node : 1;
}

/* The group along an axis that a rank is in. Needs 0 <= rank < mics_mesh_world(mesh). */
mics_group mics_mesh_group(const mics_mesh *mesh, mics_group_axis axis, mics_group_scope scope,
                           int32_t rank);

/* Which block of its group's collective a member owns: a permutation of [0, size) over the members.
 *
 * All of ISLAND, of WORLD and of REPLICATION, and of SEQUENCE: the member's own index.
 * Needs:   0 <= rank < mics_mesh_world(mesh).
 */
int32_t mics_mesh_block(const mics_mesh *mesh, mics_group_axis axis, mics_group_scope scope,
                        int32_t rank);

/* Whether such groups have members on several nodes. */
bool mics_mesh_spans_nodes(const mics_mesh *mesh, mics_group_axis axis, mics_group_scope scope);

/* Rank's block among `degree` blocks, in ownership order. Needs degree in the chain. */
int32_t mics_mesh_position(const mics_mesh *mesh, int32_t rank, int32_t degree);

/* Elements of a unit's padded flat buffer that a rank holds at a degree. Needs padded_elems from
 * mics_mesh_padded. */
mics_range mics_mesh_range(const mics_mesh *mesh, int32_t rank, int32_t degree,
                           int64_t padded_elems);

/* A unit's length rounded up so that every degree, and the all-reduce over replicas, cuts it into
 * equal blocks that start on 64 bytes: a multiple of 16 * ranks * islands.
 *
 * Units:   elements.
 * Needs:   elems >= 0.
 */
int64_t mics_mesh_padded(const mics_mesh *mesh, int64_t elems);

// How often each state exists among the ranks, and what of it replicas can be compared by: masters
// and moments if they exist more than once; parameters if they do, and are cut less often than
// masters, so that they are more than a rank's own masters.
typedef struct mics_replicas {
    int32_t params, grads, optimizer;
    bool compares_params, compares_optimizer;
} mics_replicas;

/* Of a mesh's units, those that stay whole on every rank left aside. Pure. */
mics_replicas mics_mesh_replicas(const mics_mesh *mesh);

// What a rank keeps of its optimizer shard in the memory of its node, so that each node keeps what
// its ranks hold once: ranks of a node that hold the same shard cut it into as many parts. Files are
// numbered alike on all nodes, and have the same content where several keep them. Of several islands the
// ranks of an island that hold the same shard cut it, on whichever nodes they are, and the number of a
// file is its rank's.
typedef struct mics_keep {
    int32_t files;       // that all parts of all shards come to
    int32_t file;        // of this rank's part
    int32_t part, parts; // part `part` of `parts` equal ones of its shard
    // Where no other node holds its shards, the next one (cyclic) keeps a copy of them: the rank that
    // this one sends its file to, and the one whose file it receives. -1: nobody.
    int32_t to, from;
} mics_keep;

/* What a rank keeps. Losing one of several nodes then loses nothing.
 *
 * Needs:   0 <= rank < mics_mesh_world(mesh).
 */
mics_keep mics_mesh_keep(const mics_mesh *mesh, int32_t rank);

/* What such groups are called: "partition group", "partition group, intra-node"; never NULL. */
const char *mics_group_text(mics_group_axis axis, mics_group_scope scope);

/* The family's name for a sharding: "ddp", "zero1", "zero2", "zero3", "mics(2)", "mics+(2)",
 * "hpz(2)" or "P|G|O = 1|2|4"; with ", E = 2" behind it where experts are spread, and
 * ", S = 2" where sequences are cut, and ", R = 2" where islands are of 2 ranks.
 *
 * Writes at most `capacity` characters; returns `text`.
 * Needs:   capacity >= 1.
 * Returns: `text`.
 */
char *mics_mesh_name(const mics_mesh *mesh, char *text, size_t capacity);

#ifdef __cplusplus
}
#endif
#endif
