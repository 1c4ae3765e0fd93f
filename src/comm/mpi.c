// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Ranks as MPI processes; works with Open MPI and MPICH. The only file that knows MPI.
//
// On the wire an exchange is a header with its number of bytes and a hash of its `what`, by which
// crossed collectives are found. A small one carries its data behind
// the header, in one message; a larger one follows in chunks straight from the sender's buffer, and
// straight into the receiver's, or into staging when it is to be added. The chunks of a message do
// not depend on what its receiver does with it.
//
// Waiting polls for a moment and then sleeps between polls, because a blocking MPI call would spin
// and ranks often share cores with threads that compute. Nothing here may call sched_yield: it
// hands the core over for a whole time slice, while a thread that wakes from sleep is let in at
// once. Two ranks with a computing thread each, on 2 cores, did 200 to 500 collectives in 2 s with
// yielding and 4700 to 11000 without, at the same speed of the computation (Linux 6.18, Open
// MPI 4.1.4).
//
// Invariants:
//   1. After opening, every MPI call happens with `mutex` held; waiting lets it go. So another
//      thread can abort, and MPI_THREAD_SERIALIZED is enough.
//   2. Outside of an exchange no request of this comm is active, unless `broken`.
//   3. When `broken`, MPI is not called again except to abort: without progress, what a failed
//      exchange left behind does not reach the caller's buffers, unless the network moves data by
//      itself.
#include "internal.h"
#include "mics/clock.h"
#include "mics/comm.h"
#include "mics/log.h"
#include <mpi.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum {
    TAG_HEADER = 1,
    TAG_CHUNK = 2,
    HEADER_BYTES = 16,    // u64 bytes, u64 hash
    POLL_US = 20,         // how long a wait polls before it sleeps; a sleep costs 60 us or more
    SLEEP_NS = 50 * 1000, // Linux adds its timer slack, 50 us unless told otherwise
    ABORT_S = 10,         // how long MPI_Abort may take
    CLOSE_TIMEOUTS = 10,  // time-outs that closing waits for slower ranks
};

typedef struct mpi_comm {
    mics_comm base;
    mics_memory *memory;
    MPI_Comm world;
    double timeout_s;
    bool owns_mpi; // this comm initialised MPI
    bool broken;
    pthread_mutex_t mutex;
    char *staging; // COMM_WINDOW chunks, small message in, small message out
} mpi_comm;

// One exchange under way. Chunk i uses request i % COMM_WINDOW of its direction.
typedef struct transfer {
    const mics_exchange *exchange;
    size_t chunks; // 0: small, all in the header's message
    size_t received;
    size_t sent;
    MPI_Request header_in;
    MPI_Request header_out;
    MPI_Request in[COMM_WINDOW];
    MPI_Request out[COMM_WINDOW];
} transfer;

// ---- errors and waiting ----

static mics_status fail_mpi(int code, const char *what)
{
    char text[MPI_MAX_ERROR_STRING] = "";
    int length = 0;
    if (MPI_Error_string(code, text, &length) != MPI_SUCCESS)
        strcpy(text, "unknown error");
    return mics_fail(MICS_ERR_COMM, "%s: MPI says: %s", what, text);
}

static mics_status check_mpi(int code, const char *what)
{
    return code == MPI_SUCCESS ? MICS_OK : fail_mpi(code, what);
}

// Called when a poll found nothing. Sleeps without the mutex, once nothing has moved since
// `since_us` for a moment.
static void give_way(mpi_comm *self, double since_us)
{
    if (mics_clock_us() - since_us < POLL_US)
        return;
    pthread_mutex_unlock(&self->mutex);
    nanosleep(&(struct timespec){.tv_nsec = SLEEP_NS}, NULL);
    pthread_mutex_lock(&self->mutex);
}

static bool is_late(double since_us, double timeout_s)
{
    return mics_clock_us() - since_us > timeout_s * 1e6;
}

// Tests one request, if it is active.
static mics_status test(MPI_Request *request, const char *what, bool *done_out)
{
    int done = 0;
    if (*request == MPI_REQUEST_NULL)
        return MICS_OK;
    MICS_TRY(check_mpi(MPI_Test(request, &done, MPI_STATUS_IGNORE), what));
    *done_out = done != 0;
    return MICS_OK;
}

// Waits for one of MPI's own collectives; `code` is what starting it gave.
static mics_status await(mpi_comm *self, int code, MPI_Request *request, const char *what,
                         double timeout_s)
{
    double since_us = mics_clock_us();
    bool done = false;
    pthread_mutex_lock(&self->mutex);
    mics_status status = check_mpi(code, what);
    while (status == MICS_OK && !done) {
        status = test(request, what, &done);
        if (status == MICS_OK && !done && is_late(since_us, timeout_s))
            status = mics_fail(MICS_ERR_TIMEOUT,
                               "%s: not all ranks came within %g s; see what the others do, or "
                               "raise run.comm_timeout_s",
                               what, timeout_s);
        if (status == MICS_OK && !done)
            give_way(self, since_us);
    }
    self->broken = status != MICS_OK;
    pthread_mutex_unlock(&self->mutex);
    return status;
}

// ---- one exchange ----

static size_t chunk_bytes(const transfer *moving, size_t chunk)
{
    size_t left = moving->exchange->bytes - chunk * COMM_CHUNK_BYTES;
    return left < COMM_CHUNK_BYTES ? left : COMM_CHUNK_BYTES;
}

static char *small_in(const mpi_comm *self)
{
    return self->staging + COMM_WINDOW * COMM_CHUNK_BYTES;
}

static char *small_out(const mpi_comm *self)
{
    return small_in(self) + COMM_SMALL_BYTES;
}

static mics_status post_receive(mpi_comm *self, transfer *moving, size_t chunk)
{
    const mics_exchange *exchange = moving->exchange;
    size_t slot = chunk % COMM_WINDOW;
    char *to = exchange->reduce == MICS_REDUCE_COPY
                   ? (char *)exchange->recv + chunk * COMM_CHUNK_BYTES
                   : self->staging + slot * COMM_CHUNK_BYTES;
    return check_mpi(MPI_Irecv(to, (int)chunk_bytes(moving, chunk), MPI_BYTE, exchange->from,
                               TAG_CHUNK, self->world, &moving->in[slot]),
                     exchange->what);
}

static mics_status post_send(mpi_comm *self, transfer *moving, size_t chunk)
{
    const mics_exchange *exchange = moving->exchange;
    return check_mpi(MPI_Isend((const char *)exchange->send + chunk * COMM_CHUNK_BYTES,
                               (int)chunk_bytes(moving, chunk), MPI_BYTE, exchange->to, TAG_CHUNK,
                               self->world, &moving->out[chunk % COMM_WINDOW]),
                     exchange->what);
}

// FNV-1a.
static uint64_t hash_text(const char *text)
{
    uint64_t hash = 0xcbf29ce484222325u;
    for (; *text != '\0'; text++)
        hash = (hash ^ (unsigned char)*text) * 0x100000001b3u;
    return hash;
}

// Receives are posted before sends, so that data finds its place.
static mics_status start(mpi_comm *self, transfer *moving)
{
    const mics_exchange *exchange = moving->exchange;
    bool receives = exchange->from != MICS_RANK_NONE, sends = exchange->to != MICS_RANK_NONE;
    if (receives)
        MICS_TRY(check_mpi(MPI_Irecv(small_in(self), COMM_SMALL_BYTES, MPI_BYTE, exchange->from,
                                     TAG_HEADER, self->world, &moving->header_in),
                           exchange->what));
    size_t first = moving->chunks < COMM_WINDOW ? moving->chunks : COMM_WINDOW;
    for (size_t chunk = 0; receives && chunk < first; chunk++)
        MICS_TRY(post_receive(self, moving, chunk));
    if (!sends)
        return MICS_OK;
    uint64_t header[2] = {exchange->bytes, hash_text(exchange->what)};
    size_t behind = moving->chunks == 0 ? exchange->bytes : 0;
    memcpy(small_out(self), header, HEADER_BYTES);
    if (behind > 0)
        memcpy(small_out(self) + HEADER_BYTES, exchange->send, behind);
    MICS_TRY(check_mpi(MPI_Isend(small_out(self), (int)(HEADER_BYTES + behind), MPI_BYTE,
                                 exchange->to, TAG_HEADER, self->world, &moving->header_out),
                       exchange->what));
    for (size_t chunk = 0; chunk < first; chunk++)
        MICS_TRY(post_send(self, moving, chunk));
    return MICS_OK;
}

// What arrived behind a header, or in a chunk of staging, joins the receiver's buffer.
static void deliver(const mics_exchange *exchange, size_t offset, const char *from, size_t bytes)
{
    char *to = (char *)exchange->recv + offset;
    if (exchange->reduce == MICS_REDUCE_SUM_F32)
        comm_add_f32((float *)(void *)to, (const float *)(const void *)from, bytes / sizeof(float));
    else
        memcpy(to, from, bytes);
}

static mics_status take_header(mpi_comm *self, transfer *moving)
{
    const mics_exchange *exchange = moving->exchange;
    uint64_t header[2] = {0};
    memcpy(header, small_in(self), HEADER_BYTES);
    bool same = header[1] == hash_text(exchange->what);
    if (header[0] != exchange->bytes || !same)
        return mics_fail(MICS_ERR_COMM,
                         "%s: rank %d expects %zu bytes from rank %d, which sends %llu%s",
                         exchange->what, (int)self->base.rank, exchange->bytes, (int)exchange->from,
                         (unsigned long long)header[0],
                         same ? "" : " of something else: their collectives differ in order");
    if (moving->chunks == 0 && exchange->bytes > 0)
        deliver(exchange, 0, small_in(self) + HEADER_BYTES, exchange->bytes);
    return MICS_OK;
}

static mics_status take_chunk(mpi_comm *self, transfer *moving)
{
    const mics_exchange *exchange = moving->exchange;
    size_t chunk = moving->received;
    if (exchange->reduce == MICS_REDUCE_SUM_F32)
        deliver(exchange, chunk * COMM_CHUNK_BYTES,
                self->staging + chunk % COMM_WINDOW * COMM_CHUNK_BYTES, chunk_bytes(moving, chunk));
    moving->received++;
    if (chunk + COMM_WINDOW < moving->chunks)
        return post_receive(self, moving, chunk + COMM_WINDOW);
    return MICS_OK;
}

static mics_status chunk_sent(mpi_comm *self, transfer *moving)
{
    size_t chunk = moving->sent++;
    if (chunk + COMM_WINDOW < moving->chunks)
        return post_send(self, moving, chunk + COMM_WINDOW);
    return MICS_OK;
}

// Does what can be done without waiting; *moved_out tells whether that was anything.
static mics_status advance(mpi_comm *self, transfer *moving, bool *moved_out)
{
    const char *what = moving->exchange->what;
    bool header_in = false, in = false, header_out = false, out = false;
    MICS_TRY(test(&moving->header_in, what, &header_in));
    if (header_in)
        MICS_TRY(take_header(self, moving));
    if (moving->received < moving->chunks)
        MICS_TRY(test(&moving->in[moving->received % COMM_WINDOW], what, &in));
    if (in)
        MICS_TRY(take_chunk(self, moving));
    MICS_TRY(test(&moving->header_out, what, &header_out));
    if (moving->sent < moving->chunks)
        MICS_TRY(test(&moving->out[moving->sent % COMM_WINDOW], what, &out));
    if (out)
        MICS_TRY(chunk_sent(self, moving));
    *moved_out = header_in || in || header_out || out;
    return MICS_OK;
}

static bool is_received(const transfer *moving)
{
    return moving->header_in == MPI_REQUEST_NULL && moving->received == moving->chunks;
}

static bool is_sent(const transfer *moving)
{
    return moving->header_out == MPI_REQUEST_NULL && moving->sent == moving->chunks;
}

static mics_status drive(mpi_comm *self, transfer *moving)
{
    const mics_exchange *exchange = moving->exchange;
    double since_us = mics_clock_us();
    while (!is_received(moving) || !is_sent(moving)) {
        bool moved = false;
        MICS_TRY(advance(self, moving, &moved));
        if (moved) {
            since_us = mics_clock_us();
            continue;
        }
        if (is_late(since_us, self->timeout_s)) {
            bool sending = is_received(moving);
            return mics_fail(
                MICS_ERR_TIMEOUT,
                "%s: rank %d waited %g s for rank %d to %s; see what that rank does, or "
                "raise run.comm_timeout_s",
                exchange->what, (int)self->base.rank, self->timeout_s,
                (int)(sending ? exchange->to : exchange->from), sending ? "receive" : "send");
        }
        give_way(self, since_us);
    }
    return MICS_OK;
}

// After a failure: MPI forgets the requests. Sends cannot be taken back; see invariant 3.
static void forget(transfer *moving)
{
    MPI_Request *requests[2 + 2 * COMM_WINDOW] = {&moving->header_in, &moving->header_out};
    for (size_t slot = 0; slot < COMM_WINDOW; slot++) {
        requests[2 + slot] = &moving->in[slot];
        requests[2 + COMM_WINDOW + slot] = &moving->out[slot];
    }
    for (size_t i = 0; i < sizeof requests / sizeof requests[0]; i++) {
        bool receives = i == 0 || (i >= 2 && i < 2 + COMM_WINDOW);
        if (*requests[i] == MPI_REQUEST_NULL)
            continue;
        if (receives)
            MPI_Cancel(requests[i]);
        MPI_Request_free(requests[i]);
    }
}

static mics_status mpi_exchange(void *ctx, const mics_exchange *exchange)
{
    mpi_comm *self = ctx;
    if (self->broken)
        return MICS_ERR_COMM; // logged when it broke
    transfer moving = {
        .exchange = exchange, .header_in = MPI_REQUEST_NULL, .header_out = MPI_REQUEST_NULL};
    for (size_t slot = 0; slot < COMM_WINDOW; slot++)
        moving.in[slot] = moving.out[slot] = MPI_REQUEST_NULL;
    if (exchange->bytes > COMM_SMALL_BYTES - HEADER_BYTES)
        moving.chunks = (exchange->bytes - 1) / COMM_CHUNK_BYTES + 1;
    pthread_mutex_lock(&self->mutex);
    // A direction that is not used has nothing left to do.
    moving.received = exchange->from == MICS_RANK_NONE ? moving.chunks : 0;
    moving.sent = exchange->to == MICS_RANK_NONE ? moving.chunks : 0;
    mics_status status = start(self, &moving);
    if (status == MICS_OK)
        status = drive(self, &moving);
    if (status != MICS_OK) {
        forget(&moving);
        self->broken = true;
    }
    pthread_mutex_unlock(&self->mutex);
    return status;
}

// ---- ending ----

// MPI_Abort may itself wait for a launcher or a peer that is gone: an alarm stands behind it. The
// mutex is had at once, as waiting lets it go; should it not come, ending matters more.
// MPICH ends MPI_COMM_WORLD through its launcher, but waits for the ranks of any other
// communicator.
static void mpi_abort(void *ctx)
{
    mpi_comm *self = ctx;
    sigset_t alarm_only;
    sigemptyset(&alarm_only);
    sigaddset(&alarm_only, SIGALRM);
    signal(SIGALRM, SIG_DFL);
    pthread_sigmask(SIG_UNBLOCK, &alarm_only, NULL);
    alarm(ABORT_S);
    struct timespec deadline;
    clock_gettime(CLOCK_REALTIME, &deadline);
    deadline.tv_sec++;
    (void)pthread_mutex_timedlock(&self->mutex, &deadline);
    MPI_Abort(MPI_COMM_WORLD, 1);
    _exit(1);
}

static void mpi_set_timeout(void *ctx, double seconds)
{
    mpi_comm *self = ctx;
    self->timeout_s = seconds;
}

// MPI_Finalize would spin while a slow rank still works; so all meet before it. A rank may have
// much to do yet, and is waited for longer than in a collective; not for ever, as not every
// launcher ends us when one dies.
static mics_status meet_to_close(mpi_comm *self)
{
    MPI_Request request = MPI_REQUEST_NULL;
    pthread_mutex_lock(&self->mutex);
    int code = MPI_Ibarrier(self->world, &request);
    pthread_mutex_unlock(&self->mutex);
    return await(self, code, &request, "closing", CLOSE_TIMEOUTS * self->timeout_s);
}

static void mpi_close(void *ctx)
{
    mpi_comm *self = ctx;
    bool joined = self->world != MPI_COMM_NULL;
    bool met = !self->broken && joined && meet_to_close(self) == MICS_OK;
    pthread_mutex_lock(&self->mutex);
    if (met)
        MPI_Comm_free(&self->world);
    if (self->owns_mpi && !self->broken)
        MPI_Finalize();
    pthread_mutex_unlock(&self->mutex);
    pthread_mutex_destroy(&self->mutex);
    mics_free(self->memory, self->staging);
    mics_free(self->memory, self);
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
        // Open MPI's polls yield when its launcher was asked for more ranks than cores; see the
        // head of this file for what that does. A user's own setting stays.
        setenv("OMPI_MCA_mpi_yield_when_idle", "0", 0);
        MICS_TRY(
            check_mpi(MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &level), "starting MPI"));
    }
    *owns_out = !initialized;
    if (level >= MPI_THREAD_SERIALIZED)
        return MICS_OK;
    if (!initialized)
        MPI_Finalize();
    return mics_fail(MICS_ERR_UNSUPPORTED,
                     "this MPI offers no MPI_THREAD_SERIALIZED, which the communication thread "
                     "needs; use one built with threads");
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
static mics_status refuse_nodes(const mpi_comm *self, int fewest, int most)
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

// Ranks of a node must be a range, and all nodes equally large: meshes are made of such ranges.
static mics_status find_nodes(mpi_comm *self)
{
    MPI_Comm node = MPI_COMM_NULL;
    MPI_Request request = MPI_REQUEST_NULL;
    int size = 0, place = 0, leader = self->base.rank;
    MICS_TRY(check_mpi(MPI_Comm_split_type(self->world, MPI_COMM_TYPE_SHARED, self->base.rank,
                                           MPI_INFO_NULL, &node),
                       "finding the ranks of a node"));
    MPI_Comm_size(node, &size);
    MPI_Comm_rank(node, &place);
    int code = MPI_Ibcast(&leader, 1, MPI_INT, 0, node, &request);
    MICS_TRY(await(self, code, &request, "finding a node's first rank", self->timeout_s));
    MPI_Comm_free(&node);
    int mine[3] = {size, -size, self->base.rank != leader + place}, worst[3] = {0};
    code = MPI_Iallreduce(mine, worst, 3, MPI_INT, MPI_MAX, self->world, &request);
    MICS_TRY(await(self, code, &request, "comparing the nodes", self->timeout_s));
    self->base.ranks_per_node = size;
    bool in_order = worst[2] == 0;
    return in_order && worst[0] == -worst[1] ? MICS_OK : refuse_nodes(self, -worst[1], worst[0]);
}

// Own communicator, ranks, nodes. All ranks succeed or fail together, as far as MPI lets them.
static mics_status join_world(mpi_comm *self)
{
    MPI_Comm world = MPI_COMM_NULL;
    MPI_Request request = MPI_REQUEST_NULL;
    int code = MPI_Comm_idup(MPI_COMM_WORLD, &world, &request);
    MICS_TRY(await(self, code, &request, "opening the world", self->timeout_s));
    self->world = world;
    MPI_Comm_set_errhandler(self->world, MPI_ERRORS_RETURN);
    int rank = 0, ranks = 0;
    MPI_Comm_rank(self->world, &rank);
    MPI_Comm_size(self->world, &ranks);
    self->base.rank = rank;
    self->base.ranks = ranks;
    return find_nodes(self);
}

// Before opening goes on, so that nobody waits for a rank without memory. That rank has nothing to
// wait with, so this is the one place where waiting spins.
static mics_status agree_to_open(mics_status mine)
{
    int failed = mine != MICS_OK, any = 0;
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MICS_TRY(check_mpi(MPI_Allreduce(&failed, &any, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD),
                       "agreeing to open"));
    if (mine != MICS_OK)
        return mine;
    return any ? MICS_ERR_PEER : MICS_OK;
}

static mics_status allocate(mics_memory *memory, mpi_comm **self_out)
{
    void *block = NULL, *staging = NULL;
    MICS_TRY(mics_alloc(memory, MICS_MEM_HOST, sizeof(mpi_comm), &block));
    mics_status status = mics_alloc(memory, MICS_MEM_COMM, COMM_STAGING_BYTES, &staging);
    mpi_comm *self = block;
    if (status == MICS_OK && pthread_mutex_init(&self->mutex, NULL) != 0)
        status = mics_fail(MICS_ERR_MEMORY, "no mutex for the MPI transport");
    if (status != MICS_OK) {
        mics_free(memory, staging);
        mics_free(memory, block);
        return status;
    }
    self->memory = memory;
    self->staging = staging;
    self->world = MPI_COMM_NULL;
    *self_out = self;
    return MICS_OK;
}

mics_status mics_comm_mpi_open(mics_memory *memory, double timeout_s, mics_comm **comm_out)
{
    static const mics_comm_ops ops = {
        .name = "mpi",
        .exchange = mpi_exchange,
        .set_timeout = mpi_set_timeout,
        .abort = mpi_abort,
        .close = mpi_close,
    };
    if (!(timeout_s > 0))
        return mics_fail(MICS_ERR_INVALID, "cannot wait %g s for other ranks", timeout_s);
    // Read first: starting alone, MPI sets some of these variables itself.
    int32_t announced_ranks = mics_comm_mpi_announced_ranks();
    int32_t announced_rank = mics_comm_mpi_announced_rank();
    mpi_comm *self = NULL;
    bool owns_mpi = false;
    MICS_TRY(start_mpi(&owns_mpi));
    mics_status own = allocate(memory, &self);
    mics_status status = agree_to_open(own);
    if (status == MICS_OK) {
        self->timeout_s = timeout_s;
        self->base.ops = &ops;
        self->base.ctx = self;
        self->base.staging_bytes = COMM_STAGING_BYTES;
        status = join_world(self);
    }
    if (status == MICS_OK)
        status = check_launcher(self->base.ranks, announced_ranks, announced_rank);
    if (status == MICS_OK) {
        self->owns_mpi = owns_mpi;
        *comm_out = &self->base;
        return MICS_OK;
    }
    bool broken = own == MICS_OK && self->broken;
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
