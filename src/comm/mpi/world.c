// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Ranks as MPI processes: how such a world opens and ends. Works with Open MPI and MPICH. Only
// this folder's files know MPI; transport.h states what holds among them.
#include "comm/mpi/exchange.h"
#include "comm/mpi/heartbeat.h"
#include "comm/mpi/intra.h"
#include "comm/mpi/share.h"
#include "comm/mpi/split.h"
#include "comm/mpi/wait.h"
#include "mics/core/comm.h"
#include "mics/core/transport.h"
#include "mics/log.h"
#include <signal.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum {
    ABORT_S = 10,                   // how long MPI_Abort may take
    READING_NS = 100 * 1000 * 1000, // what a launcher gets to read why
    CLOSE_TIMEOUTS = 10,            // time-outs that closing waits for slower ranks
};

// ---- ending ----

// MPI_Abort may itself wait for a launcher or a peer that is gone: an alarm stands behind it. The
// turn comes at once, as waiting gives it up; should it not come, ending matters more.
// MPICH's launcher drops what it has not read of the ranks' lines when it is told to end: it gets a
// moment (one run in twenty said nothing without it).
// MPICH ends MPI_COMM_WORLD through its launcher, but waits for the ranks of any other
// communicator.
static void mpi_abort(void *ctx)
{
    comm_mpi *self = ctx;
    sigset_t alarm_only;
    sigemptyset(&alarm_only);
    sigaddset(&alarm_only, SIGALRM);
    signal(SIGALRM, SIG_DFL);
    pthread_sigmask(SIG_UNBLOCK, &alarm_only, NULL);
    alarm(ABORT_S);
    nanosleep(&(struct timespec){.tv_nsec = READING_NS}, NULL);
    comm_turn_enter_last(&self->turn, 1);
    MPI_Abort(MPI_COMM_WORLD, 1);
    _exit(1);
}

static void mpi_set_timeout(void *ctx, double seconds)
{
    comm_mpi *self = ctx;
    self->timeout_s = seconds;
}

static void mpi_set_timeout_handler(void *ctx, mics_timeout_handler handler, void *handler_ctx)
{
    comm_mpi *self = ctx;
    self->timeout_handler = handler;
    self->timeout_ctx = handler_ctx;
}

// MPI_Finalize would spin while a slow rank still works; so a barrier comes before it. A rank may
// have much to do yet, and is waited for longer than in a collective; not for ever, as not every
// launcher ends us when one dies. The barrier is the last message: it keeps everybody polling until
// all goodbyes have come, which Open MPI's MPI_Finalize does not see to.
static mics_status close_barrier(comm_mpi *self)
{
    const double timeout_s = CLOSE_TIMEOUTS * self->timeout_s;
    MPI_Request request = MPI_REQUEST_NULL;
    comm_heartbeat_stop(&self->heartbeat);
    MICS_TRY(comm_heartbeat_part(self, timeout_s));
    comm_turn_enter(&self->turn);
    int code = MPI_Ibarrier(self->world, &request);
    comm_turn_leave(&self->turn);
    return comm_mpi_await(self, code, &request, "closing", timeout_s);
}

static void release(comm_mpi *self)
{
    comm_heartbeat_fini(self);
    comm_intra_close(self);
    comm_turn_fini(&self->turn);
    mics_free(self->memory, self->staging);
    mics_free(self->memory, self);
}

static void mpi_close(void *ctx)
{
    comm_mpi *self = ctx;
    bool joined = self->world != MPI_COMM_NULL;
    bool came = joined && !comm_mpi_is_broken(self) && close_barrier(self) == MICS_OK;
    comm_heartbeat_stop(&self->heartbeat);
    comm_turn_enter(&self->turn);
    if (came)
        MPI_Comm_free(&self->world);
    if (self->owns_mpi && !self->broken)
        MPI_Finalize();
    comm_turn_leave(&self->turn);
    release(self);
}

// ---- opening ----

// Initialises MPI unless the program has.
static mics_status start_mpi(bool *owns_out)
{
    int finalized = 0, initialized = 0, level = MPI_THREAD_SINGLE;
    MPI_Finalized(&finalized);
    MPI_Initialized(&initialized);
    if (finalized)
        return mics_fail(MICS_ERR_UNSUPPORTED,
                         "MPI was finalised in this process and cannot start again");
    if (initialized) {
        MPI_Query_thread(&level);
    } else {
        MICS_TRY(comm_mpi_check(MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &level),
                                "starting MPI"));
    }
    *owns_out = !initialized;
    if (level >= MPI_THREAD_SERIALIZED)
        return MICS_OK;
    if (!initialized)
        MPI_Finalize();
    return mics_fail(MICS_ERR_UNSUPPORTED,
                     "this MPI offers no MPI_THREAD_SERIALIZED, which the communication threads "
                     "need; use one built with threads");
}

// A launcher of another MPI starts processes that each believe to be alone. The arguments tell what
// it announced; the first process complains for all.
static mics_status check_launcher(int32_t ranks, int32_t announced_ranks, int32_t announced_rank)
{
    if (ranks > 1 || announced_ranks <= 1)
        return MICS_OK;
    if (announced_rank > 0)
        return MICS_ERR_COMM;
    return mics_fail(MICS_ERR_COMM,
                     "the launcher started %d processes, but each is alone in its MPI world: this "
                     "build uses %s; start it with that MPI's mpirun, or with srun --mpi=pmix or "
                     "--mpi=pmi2",
                     (int)announced_ranks, mics_comm_mpi_version());
}

// Every rank knows; one says it.
static mics_status refuse_nodes(const comm_mpi *self, int fewest, int most)
{
    if (self->base.rank != 0)
        return MICS_ERR_INVALID;
    if (fewest != most)
        return mics_fail(MICS_ERR_INVALID,
                         "the nodes have %d to %d ranks each, but need equally many: ask the "
                         "launcher for K a node (Open MPI: --map-by ppr:K:node; MPICH: -ppn K; "
                         "Slurm: --ntasks-per-node=K)",
                         fewest, most);
    return mics_fail(MICS_ERR_INVALID,
                     "ranks are not numbered node by node: ask the launcher to fill one node after "
                     "the other (Open MPI: --map-by slot or ppr:K:node, not --map-by node; MPICH: "
                     "-ppn K; Slurm: --distribution=block)");
}

// Sharing memory takes what reading each other's does; all nodes do, or none.
static mics_status find_sharing(comm_mpi *self)
{
    const int32_t per_node = self->base.ranks_per_node;
    MPI_Request request = MPI_REQUEST_NULL;
    int mine = self->intra.boxes != NULL, all = 0;
    int code = MPI_Iallreduce(&mine, &all, 1, MPI_INT, MPI_MIN, self->world, &request);
    MICS_TRY(comm_mpi_await(self, code, &request, "comparing the nodes", self->timeout_s));
    self->base.ranks_sharing = all ? per_node : 1;
    return MICS_OK;
}

// In a node's communicator: where this rank's node begins, and whether all nodes are ranges of
// ranks, equally large.
static mics_status compare_nodes(comm_mpi *self, MPI_Comm node)
{
    MPI_Request request = MPI_REQUEST_NULL;
    int size = 0, place = 0, leader = self->base.rank;
    MPI_Comm_size(node, &size);
    MPI_Comm_rank(node, &place);
    int code = MPI_Ibcast(&leader, 1, MPI_INT, 0, node, &request);
    MICS_TRY(comm_mpi_await(self, code, &request, "finding a node's first rank", self->timeout_s));
    int mine[3] = {size, -size, self->base.rank != leader + place}, worst[3] = {0};
    code = MPI_Iallreduce(mine, worst, 3, MPI_INT, MPI_MAX, self->world, &request);
    MICS_TRY(comm_mpi_await(self, code, &request, "comparing the nodes", self->timeout_s));
    self->base.ranks_per_node = size;
    const bool even = worst[2] == 0 && worst[0] == -worst[1];
    return even ? MICS_OK : refuse_nodes(self, -worst[1], worst[0]);
}

// Ranks of a node must be a range, and all nodes equally large: meshes are made of such ranges.
static mics_status find_nodes(comm_mpi *self)
{
    MPI_Comm node = MPI_COMM_NULL;
    MICS_TRY(comm_mpi_split_nodes(self, &node));
    mics_status status = compare_nodes(self, node);
    if (status == MICS_OK)
        status = comm_intra_open(self, node);
    if (!self->broken)
        MPI_Comm_free(&node);
    return status == MICS_OK ? find_sharing(self) : status;
}

// Own communicator, ranks, nodes. All ranks succeed or fail together, as far as MPI lets them.
static mics_status join_world(comm_mpi *self)
{
    MPI_Comm world = MPI_COMM_NULL;
    MPI_Request request = MPI_REQUEST_NULL;
    int code = MPI_Comm_idup(MPI_COMM_WORLD, &world, &request);
    MICS_TRY(comm_mpi_await(self, code, &request, "opening the world", self->timeout_s));
    self->world = world;
    MPI_Comm_set_errhandler(self->world, MPI_ERRORS_RETURN);
    int rank = 0, ranks = 0;
    MPI_Comm_rank(self->world, &rank);
    MPI_Comm_size(self->world, &ranks);
    self->base.rank = rank;
    self->base.ranks = ranks;
    return find_nodes(self);
}

// Before opening goes on, so that nobody waits for a rank without memory, which has no transport to
// wait with: this one is only for that. *came_out: all ranks came.
static mics_status agree_to_open(mics_status mine, double timeout_s, bool *came_out)
{
    comm_mpi barrier = {.world = MPI_COMM_NULL};
    MPI_Request request = MPI_REQUEST_NULL;
    int rank = 0, failed = mine != MICS_OK, any = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    barrier.base.rank = rank;
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MICS_TRY(comm_turn_init(&barrier.turn));
    const int code = MPI_Iallreduce(&failed, &any, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD, &request);
    const mics_status came =
        comm_mpi_await(&barrier, code, &request, "agreeing to open", timeout_s);
    comm_turn_fini(&barrier.turn);
    *came_out = came == MICS_OK;
    if (mine != MICS_OK)
        return mine;
    if (came != MICS_OK)
        return came;
    return any ? MICS_ERR_PEER : MICS_OK;
}

// All that can fail on one rank alone.
static mics_status allocate(mics_memory *memory, comm_mpi **self_out)
{
    mics_status status = MICS_OK;
    void *block = NULL;
    int rank = 0, ranks = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    comm_mpi *self = NULL;
    MICS_TRY(MICS_NEW(memory, 1, &self));
    self->memory = memory;
    self->world = MPI_COMM_NULL;
    MICS_TRY_OUT(mics_alloc(memory, MICS_MEM_COMM, COMM_STAGING_BYTES, &block));
    self->staging = block;
    MICS_TRY_OUT(comm_turn_init(&self->turn));
    MICS_TRY_OUT(comm_heartbeat_open(self, rank, ranks));
    *self_out = self;
    return MICS_OK;
out:
    release(self);
    return status;
}

mics_status mics_comm_mpi_open(mics_memory *memory, double timeout_s, mics_comm **comm_out)
{
    static const mics_comm_ops ops = {
        .name = "mpi",
        .exchange = comm_mpi_exchange,
        .set_timeout = mpi_set_timeout,
        .abort = mpi_abort,
        .set_timeout_handler = mpi_set_timeout_handler,
        .post = comm_mpi_post,
        .read = comm_mpi_read,
        .close = mpi_close,
        .share = comm_mpi_share,
        .unshare = comm_mpi_unshare,
    };
    if (!(timeout_s > 0))
        return mics_fail(MICS_ERR_INVALID, "cannot wait %g s for other ranks", timeout_s);
    // Read first: starting alone, MPI sets some of these variables itself.
    int32_t announced_ranks = mics_comm_mpi_announced_ranks();
    int32_t announced_rank = mics_comm_mpi_announced_rank();
    comm_mpi *self = NULL;
    bool owns_mpi = false;
    MICS_TRY(start_mpi(&owns_mpi));
    bool came = false;
    mics_status own = allocate(memory, &self);
    mics_status status = agree_to_open(own, timeout_s, &came);
    if (status == MICS_OK) {
        self->timeout_s = timeout_s;
        self->base.ops = &ops;
        self->base.ctx = self;
        self->base.staging_bytes = COMM_STAGING_BYTES;
        status = join_world(self);
    }
    if (status == MICS_OK)
        status = check_launcher(self->base.ranks, announced_ranks, announced_rank);
    if (status == MICS_OK)
        status = comm_heartbeat_start(self);
    if (status == MICS_OK) {
        self->owns_mpi = owns_mpi;
        *comm_out = &self->base;
        return MICS_OK;
    }
    const bool broken = !came || (own == MICS_OK && self->broken);
    if (own == MICS_OK)
        mpi_close(self); // leaves MPI itself alone, as it owns nothing yet
    if (owns_mpi && !broken)
        MPI_Finalize();
    return status;
}

// ---- version ----

static pthread_once_t version_once = PTHREAD_ONCE_INIT;
static char version_text[MPI_MAX_LIBRARY_VERSION_STRING];

// Keeps the first line up to a comma, with single blanks: the rest tells how it was configured.
static void read_version(void)
{
    char full[MPI_MAX_LIBRARY_VERSION_STRING] = "";
    int length = 0;
    if (MPI_Get_library_version(full, &length) != MPI_SUCCESS)
        strcpy(full, "MPI");
    size_t kept = 0;
    for (const char *c = full; *c != '\0' && *c != '\n' && *c != ','; c++) {
        bool blank = *c == ' ' || *c == '\t';
        if (!blank || (kept > 0 && version_text[kept - 1] != ' '))
            version_text[kept++] = blank ? ' ' : *c;
    }
    version_text[kept] = '\0';
}

const char *mics_comm_mpi_version(void)
{
    pthread_once(&version_once, read_version);
    return version_text;
}
