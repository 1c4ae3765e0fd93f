// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// What nodes get from one another of a copy in node memory that the run goes on from.
#include "base/free.h"
#include "exchange.h"
#include "found.h"
#include "node_memory.h"
#include "run/job.h"
#include <string.h>

enum { NEEDS_OWN = 1, NEEDS_AGREED = 2 };

// Which rank files the ranks of each node need, and what of them: needs[node * files + file]. Of several
// islands each has its own state, and what all agreed on stands behind that in every file.
typedef struct demand {
    const mics_job *job;
    const run_found_copy *found;
    uint8_t *needs;
    int64_t *bytes, *agreed; // of a file: its length; where that begins which is no island's own
    int32_t *rank_at;        // the first rank that owns a block of the optimizer sharding
} demand;

static int32_t unit_called(const mics_model *model, const char *name, int32_t island)
{
    const size_t bytes = island < 0 ? strlen(name) : (size_t)(strrchr(name, '@') - name);
    for (int32_t u = 0; u < model->unit_count; u++) {
        if (strncmp(model->units[u].name, name, bytes) == 0 && model->units[u].name[bytes] == '\0')
            return u;
    }
    return -1;
}

// Islands that had agreed may be others now (run/save/islands.h).
static bool takes_island(const demand *self, int32_t rank, int32_t island)
{
    const mics_job *job = self->job;
    const int32_t islands = job->node.taken
                                ? mics_checkpoint_meta_get(job->checkpoint)->outer.islands
                                : run_job_islands(job);
    return island < 0 || rank / job->schedule->spec.mesh.ranks % islands == island;
}

static void add_block(demand *self, int32_t file, int64_t block, int32_t island)
{
    const mics_mesh *mesh = &self->job->schedule->spec.mesh;
    for (int32_t rank = self->rank_at[block]; rank < mics_mesh_world(mesh);
         rank += mesh->sharding.optimizer) {
        if (takes_island(self, rank, island))
            self->needs[(size_t)(rank / self->found->group) * (size_t)self->found->key.files +
                        (size_t)file] |= island < 0 ? NEEDS_AGREED : NEEDS_OWN;
    }
}

static void add_shard(void *ctx, int32_t file, const mics_rank_shard *of)
{
    demand *self = ctx;
    const mics_schedule *schedule = self->job->schedule;
    const int32_t island = mics_checkpoint_unit_island(of->unit),
                  unit = unit_called(self->job->model, of->unit, island);
    const int64_t begin = of->begin, end = of->end, at_byte = of->states[0].data_offset;
    if (unit < 0 || begin == end)
        return;
    if (island < 0 && (self->agreed[file] == 0 || at_byte < self->agreed[file]))
        self->agreed[file] = at_byte;
    const int32_t degree = schedule->sharding[unit].optimizer;
    const int64_t elems = schedule->padded_elems[unit] / degree;
    const int64_t whole = self->job->model->units[unit].elems / schedule->experts[unit];
    for (int64_t at = begin; at < end;) { // shard by shard, of one rank's experts after the other's
        const int64_t in_whole = at % whole, shard = in_whole / elems;
        const int64_t next = at - in_whole + elems * (shard + 1);
        add_block(self, file, at / whole * degree + shard, island);
        at = next < at - in_whole + whole ? next : at - in_whole + whole;
    }
}

static mics_status find_demand(demand *self)
{
    const mics_mesh *mesh = &self->job->schedule->spec.mesh;
    const size_t nodes = (size_t)(self->found->processes / self->found->group);
    MICS_TRY(MICS_NEW(self->job->memory, nodes * (size_t)self->found->key.files, &self->needs));
    MICS_TRY(MICS_NEW(self->job->memory, self->found->key.files, &self->bytes));
    MICS_TRY(MICS_NEW(self->job->memory, self->found->key.files, &self->agreed));
    MICS_TRY(MICS_NEW(self->job->memory, mesh->sharding.optimizer, &self->rank_at));
    for (int32_t rank = 0; rank < mesh->sharding.optimizer; rank++)
        self->rank_at[mics_mesh_position(mesh, rank, mesh->sharding.optimizer)] = rank;
    for (int32_t file = 0; file < self->found->key.files; file++)
        MICS_TRY(mics_node_visit(self->job->memory, self->found->folder, file, add_shard, self,
                                 &self->bytes[file]));
    return MICS_OK;
}

// The process that sends a file to `to`: of those that have it, the next one.
static int32_t sender_of(const run_found_copy *found, int32_t file, int32_t to)
{
    for (int32_t i = 1; i <= found->processes; i++) {
        const int32_t p = (to + i) % found->processes;
        if (*run_found_at(found, p, file) != 0)
            return p;
    }
    return to;
}

// This process sends the file, or receives it: as much as `needs` says.
static mics_status pass_file(const demand *self, run_exchange *over, int32_t file, uint8_t needs,
                             int32_t from, int32_t to)
{
    const run_found_copy *found = self->found;
    mics_memory *memory = self->job->memory;
    const int32_t me = self->job->world->first;
    const bool sends = me == from;
    over->exchange = (mics_exchange){.to = sends ? to : MICS_RANK_NONE,
                                     .from = sends ? MICS_RANK_NONE : from,
                                     .what = "a copy in node memory"};
    const char *slot =
        sends ? run_found_folder(found, *run_found_at(found, me, file)) : found->folder;
    over->out = over->in = (run_exchange_end){.fd = -1};
    run_exchange_end *end = sends ? &over->out : &over->in;
    over->begin = needs == NEEDS_AGREED ? self->agreed[file] : 0;
    end->bytes = needs == NEEDS_OWN ? self->agreed[file] : self->bytes[file];
    if (over->local == MICS_OK)
        over->local = mics_node_open_file(memory, slot, file, !sends, &end->fd, &end->path);
    const mics_status status = run_exchange_files(over, end->bytes);
    run_exchange_close_ends(memory, over);
    return status;
}

// All processes walk the same list in the same order, and each waits for its own entries alone: so
// nobody waits in a circle.
static mics_status pass_all(const demand *self, run_exchange *over)
{
    const run_found_copy *found = self->found;
    const int32_t nodes = found->processes / found->group, me = self->job->world->first;
    for (int32_t node = 0; node < nodes; node++) {
        for (int32_t file = 0; file < found->key.files; file++) {
            const uint8_t needs =
                self->needs[(size_t)node * (size_t)found->key.files + (size_t)file];
            if (needs == 0 || run_found_place(found, node, file) != 0)
                continue;
            const int32_t to = node * found->group + file % found->group;
            const int32_t from = sender_of(found, file, to);
            if (me == from || me == to)
                MICS_TRY(pass_file(self, over, file, needs, from, to));
        }
    }
    return over->local;
}

mics_status run_node_fetch(mics_job *job)
{
    mics_comm *comm = job->world->here[0].rank.comm;
    demand wanted = {.job = job, .found = job->node.found};
    run_exchange over = {.comm = comm};
    if (!job->world->mpi) // its one process has all
        return MICS_OK;
    mics_status status = find_demand(&wanted);
    if (status == MICS_OK)
        status = mics_alloc(job->memory, MICS_MEM_HOST, (size_t)2 * RUN_EXCHANGE_PIECE_BYTES,
                            &over.pieces);
    status = run_world_agree(job->world, status);
    if (status == MICS_OK)
        status = pass_all(&wanted, &over);
    MICS_FREE_ALL(job->memory, over.pieces, wanted.needs, wanted.bytes, wanted.agreed,
                  wanted.rank_at);
    return status;
}
