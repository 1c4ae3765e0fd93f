// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// NCCL for ranks that are threads of one process, in the order of their streams.
//
// A collective is an entry of its stream: it waits there until all ranks of the communicator have
// come to theirs, and the last to come moves the data of all. Sums are made rank by rank. Ranks
// that call different things, or sizes, get an error, as do calls after an abort. Sends and
// receives are taken in groups that all ranks of a communicator make alike, as an all-to-all does.
//
// A communicator that has registered buffers takes no others, since NCCL leaves open what comes of
// collectives in which registered buffers meet others. What is registered is deregistered before
// its communicator is destroyed and before its memory is freed; an abort does it itself.
//
// A communicator connects when a kind of call first comes, or a larger one than before, as NCCL
// chooses algorithms by kind and size; each time it takes memory of its GPU
// (MICS_EMULATED_NCCL_TAKES), which it has until it ends.
//
// Ranks of a communicator may share a GPU from version 2.30 on, where NCCL_MULTI_RANK_GPU_ENABLE
// says so.
#include "emulated.h"
#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <nccl.h>
#include <string>
#include <vector>

namespace
{

enum class Kind { all_gather, reduce_scatter, all_reduce, messages };

struct Message {
    bool sends;
    char *buffer;
    size_t bytes;
    int peer;
};

// One rank's part of a collective.
struct Part {
    Kind kind;
    const char *send;
    char *recv;
    size_t count;
    ncclDataType_t type;
    std::vector<Message> messages;
    bool registered = false;
};

// All ranks of one communicator.
struct World {
    std::mutex mutex;
    std::condition_variable changed;
    int ranks = 0, joined = 0;
    std::vector<int> devices;        // of those that have joined
    std::vector<const Part *> parts; // of the collective that ranks are in
    int here = 0;
    long turn = 0; // collectives done
    ncclResult_t error = ncclSuccess;
    bool aborted = false;
};

std::mutex worlds_mutex;
std::map<std::string, std::shared_ptr<World>> worlds;
std::map<int, int> open_comms; // by device
long ids = 0;
std::atomic<long> connections{0};

struct Queued {
    ncclComm_t comm;
    cudaStream_t stream;
    Message message;
};
thread_local int group_depth = 0;
thread_local std::vector<Queued> group;

size_t bytes_of(size_t count, ncclDataType_t type)
{
    return count * (type == ncclFloat32 ? 4 : 2);
}

} // namespace

struct emulated_nccl_comm {
    std::shared_ptr<World> world;
    int rank = 0, device = 0;
    double made_us = 0;               // when the newest call has been made
    std::map<Kind, size_t> connected; // the largest call of a kind
    size_t taken = 0;
    std::vector<std::pair<char *, size_t>>
        registered; // used by the threads of a rank one at a time, as NCCL asks
};

namespace
{

// An entry of a stream.
struct Call {
    std::shared_ptr<World> world;
    int rank;
    Part part;
};

bool alike(const World &world)
{
    for (const Part *part : world.parts) {
        if (part->kind != world.parts[0]->kind || part->count != world.parts[0]->count ||
            part->type != world.parts[0]->type)
            return false;
        if (part->registered != world.parts[0]->registered)
            mics_emulated::defect_in(
                "NCCL",
                "some ranks of a communicator have registered buffers, and others have not");
    }
    return true;
}

// At most so many CTAs of each of a rank's two kernels fit where ranks share a GPU.
const int SHARED_CTAS = 8;

int version()
{
    const char *text = std::getenv("MICS_EMULATED_NCCL");
    return text != nullptr ? std::atoi(text) : 22809;
}

bool may_share()
{
    const char *text = std::getenv("NCCL_MULTI_RANK_GPU_ENABLE");
    return version() >= 23000 && text != nullptr && std::atoi(text) != 0;
}

// Called with the world's mutex, by each rank that joins.
void join(World &world, int ranks, int device, int max_ctas)
{
    for (const int other : world.devices) {
        if (other == device && !may_share())
            world.error = ncclInvalidUsage;
        if (other == device && max_ctas > SHARED_CTAS)
            mics_emulated::defect_in("ncclCommInitRankConfig",
                                     "ranks that share GPU %d ask for %d CTAs", device, max_ctas);
    }
    world.devices.push_back(device);
    world.ranks = ranks;
    world.parts.resize(static_cast<size_t>(ranks));
    world.joined++;
}

void sum_blocks(const World &world, size_t first, size_t count, std::vector<float> &sum)
{
    sum.assign(count, 0);
    for (const Part *part : world.parts) {
        const float *values = reinterpret_cast<const float *>(part->send) + first;
        for (size_t i = 0; i < count; i++)
            sum[i] += values[i];
    }
}

ncclResult_t move_messages(const World &world)
{
    for (int rank = 0; rank < world.ranks; rank++) {
        std::vector<size_t> next(static_cast<size_t>(world.ranks),
                                 0); // of each peer's sends to this rank
        for (const Message &recv : world.parts[static_cast<size_t>(rank)]->messages) {
            if (recv.sends)
                continue;
            const auto peer = static_cast<size_t>(recv.peer);
            const std::vector<Message> &theirs = world.parts[peer]->messages;
            size_t &at = next[peer];
            while (at < theirs.size() && !(theirs[at].sends && theirs[at].peer == rank))
                at++;
            if (at == theirs.size() || theirs[at].bytes != recv.bytes)
                return ncclInvalidUsage;
            std::memcpy(recv.buffer, theirs[at].buffer, recv.bytes);
            at++;
        }
    }
    return ncclSuccess;
}

// Called with all parts here.
ncclResult_t move(const World &world)
{
    if (!alike(world))
        return ncclInvalidUsage;
    const Part &first = *world.parts[0];
    const size_t bytes = bytes_of(first.count, first.type);
    const auto ranks = static_cast<size_t>(world.ranks);
    std::vector<float> sum;
    std::vector<std::vector<float>> sums;
    switch (first.kind) {
    case Kind::messages:
        return move_messages(world);
    case Kind::all_gather: {
        std::vector<char> all(ranks * bytes);
        for (size_t r = 0; r < ranks; r++)
            std::memcpy(all.data() + r * bytes, world.parts[r]->send, bytes);
        for (const Part *part : world.parts)
            std::memcpy(part->recv, all.data(), all.size());
        return ncclSuccess;
    }
    case Kind::reduce_scatter: // in place, so all sums come before the first write
        for (size_t r = 0; r < ranks; r++) {
            sum_blocks(world, r * first.count, first.count, sum);
            sums.push_back(sum);
        }
        for (size_t r = 0; r < ranks; r++)
            std::memcpy(world.parts[r]->recv, sums[r].data(), bytes);
        return ncclSuccess;
    case Kind::all_reduce:
        sum_blocks(world, 0, first.count, sum);
        for (const Part *part : world.parts)
            std::memcpy(part->recv, sum.data(), bytes);
        return ncclSuccess;
    }
    return ncclInternalError;
}

void run(const Call &call)
{
    World &world = *call.world;
    std::unique_lock<std::mutex> lock(world.mutex);
    const long turn = world.turn;
    if (world.aborted || world.error != ncclSuccess)
        return;
    world.parts[static_cast<size_t>(call.rank)] = &call.part;
    if (++world.here == world.ranks) {
        world.error = move(world);
        world.here = 0;
        world.turn++;
        world.changed.notify_all();
        return;
    }
    while (!world.changed.wait_for(lock, std::chrono::milliseconds(1),
                                   [&] { return world.turn > turn || world.aborted; })) {
        lock.unlock();
        mics_emulated::waiting();
        lock.lock();
    }
}

void check_registered(const emulated_nccl_comm &comm, const void *buffer, size_t bytes)
{
    const char *begin = static_cast<const char *>(buffer);
    for (const auto &block : comm.registered)
        if (begin >= block.first && begin + bytes <= block.first + block.second)
            return;
    if (!comm.registered.empty())
        mics_emulated::defect_in(
            "NCCL",
            "rank %d: %zu bytes of a collective are not in any of its %zu registered buffers",
            comm.rank, bytes, comm.registered.size());
}

void check_buffers(const emulated_nccl_comm &comm, const Part &part)
{
    const size_t bytes = bytes_of(part.count, part.type);
    const auto ranks = static_cast<size_t>(comm.world->ranks);
    for (const Message &message : part.messages)
        check_registered(comm, message.buffer, message.bytes);
    if (part.kind == Kind::messages)
        return;
    check_registered(comm, part.send, part.kind == Kind::reduce_scatter ? ranks * bytes : bytes);
    check_registered(comm, part.recv, part.kind == Kind::all_gather ? ranks * bytes : bytes);
}

size_t largest(const Part &part)
{
    size_t bytes = bytes_of(part.count, part.type);
    for (const Message &message : part.messages)
        bytes = std::max(bytes, message.bytes);
    return bytes;
}

void connect(emulated_nccl_comm &comm, const Part &part)
{
    const char *text = std::getenv("MICS_EMULATED_NCCL_TAKES");
    const size_t bytes = text != nullptr ? std::strtoul(text, nullptr, 10) : 0;
    if (comm.connected.count(part.kind) != 0 && comm.connected[part.kind] >= largest(part))
        return;
    comm.connected[part.kind] = largest(part);
    connections++;
    comm.taken += bytes;
    mics_emulated::take_memory(comm.device, static_cast<ptrdiff_t>(bytes));
}

ncclResult_t enqueue(ncclComm_t comm, Part part, cudaStream_t stream)
{
    connect(*comm, part);
    check_buffers(*comm, part);
    part.registered = !comm->registered.empty();
    {
        std::lock_guard<std::mutex> lock(comm->world->mutex);
        if (comm->world->aborted)
            return ncclRemoteError;
        if (comm->world->error != ncclSuccess)
            return comm->world->error;
    }
    const auto call = std::make_shared<Call>(Call{comm->world, comm->rank, std::move(part)});
    if (mics_emulated::enqueue(stream, "NCCL", [call] { run(*call); }) != cudaSuccess)
        return ncclUnhandledCudaError;
    const char *text = std::getenv("MICS_EMULATED_NCCL_CALL_US");
    comm->made_us = mics_emulated::now_us() + (text != nullptr ? std::atof(text) : 0);
    return text != nullptr ? ncclInProgress : ncclSuccess;
}

ncclResult_t whole(Kind kind, const void *send, void *recv, size_t count, ncclDataType_t type,
                   ncclComm_t comm, cudaStream_t stream)
{
    if (kind != Kind::all_gather && type != ncclFloat32)
        return ncclInvalidArgument; // nothing of mics sums less than fp32 here
    if (group_depth > 0)
        return ncclInvalidUsage; // of this emulation
    return enqueue(comm,
                   Part{kind,
                        static_cast<const char *>(send),
                        static_cast<char *>(recv),
                        count,
                        type,
                        {},
                        false},
                   stream);
}

ncclResult_t message(bool sends, const void *buffer, size_t count, ncclDataType_t type, int peer,
                     ncclComm_t comm, cudaStream_t stream)
{
    if (group_depth == 0 || peer < 0 || peer >= comm->world->ranks)
        return ncclInvalidUsage;
    auto *bytes = const_cast<char *>(static_cast<const char *>(buffer));
    group.push_back(Queued{comm, stream, Message{sends, bytes, bytes_of(count, type), peer}});
    return ncclInProgress; // as that of a communicator that does not block may
}

} // namespace

extern "C" {

ncclResult_t ncclGetVersion(int *version)
{
    *version = ::version();
    return ncclSuccess;
}

const char *ncclGetErrorString(ncclResult_t result)
{
    return result == ncclInvalidUsage      ? "invalid usage"
           : result == ncclInvalidArgument ? "invalid argument"
           : result == ncclRemoteError     ? "remote process exited or there was a network error"
           : result == ncclSuccess         ? "no error"
                                           : "an error of the emulation";
}

const char *ncclGetLastError(ncclComm_t)
{
    return "";
}

ncclResult_t ncclGetUniqueId(ncclUniqueId *id)
{
    std::lock_guard<std::mutex> lock(worlds_mutex);
    std::memset(id, 0, sizeof *id);
    const std::string text = "emulated " + std::to_string(++ids);
    std::memcpy(id->internal, text.c_str(), text.size());
    return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t *comm, int ranks, ncclUniqueId id, int rank,
                                    ncclConfig_t *config)
{
    if (config->blocking != 0 || config->size != sizeof(ncclConfig_t) || rank < 0 || rank >= ranks)
        return ncclInvalidArgument;
    std::lock_guard<std::mutex> lock(worlds_mutex);
    std::shared_ptr<World> &world = worlds[id.internal];
    if (!world)
        world = std::make_shared<World>();
    std::lock_guard<std::mutex> inside(world->mutex);
    *comm = new emulated_nccl_comm{world, rank, 0, 0, {}, 0, {}};
    cudaGetDevice(&(*comm)->device);
    join(*world, ranks, (*comm)->device, config->maxCTAs);
    open_comms[(*comm)->device]++;
    return ncclInProgress;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *error)
{
    std::lock_guard<std::mutex> lock(comm->world->mutex);
    const World &world = *comm->world;
    *error = world.aborted                             ? ncclRemoteError
             : world.error != ncclSuccess              ? world.error
             : world.joined < world.ranks              ? ncclInProgress
             : mics_emulated::now_us() < comm->made_us ? ncclInProgress
                                                       : ncclSuccess;
    return ncclSuccess;
}

ncclResult_t ncclCommFinalize(ncclComm_t)
{
    return ncclSuccess;
}

// Which ranks refuse, and how: MICS_EMULATED_NCCL_REGISTER (../README.md).
ncclResult_t ncclCommRegister(const ncclComm_t comm, void *buffer, size_t bytes, void **handle)
{
    const char *text = std::getenv("MICS_EMULATED_NCCL_REGISTER");
    const std::string how = text != nullptr ? text : "";
    *handle = nullptr;
    if (how == "none" || (how == "one" && comm->rank == 1))
        return ncclSuccess;
    if (how == "fail")
        return ncclSystemError;
    if (mics_emulated::memory_of(buffer, bytes, "ncclCommRegister") != mics_emulated::MEMORY_DEVICE)
        return ncclInvalidArgument;
    char *begin = static_cast<char *>(buffer);
    for (const auto &block : comm->registered)
        if (begin < block.first + block.second && block.first < begin + bytes)
            mics_emulated::defect_in("ncclCommRegister",
                                     "rank %d has registered this memory already", comm->rank);
    mics_emulated::keep_block(buffer, 1);
    comm->registered.emplace_back(begin, bytes);
    *handle = buffer;
    return ncclSuccess;
}

ncclResult_t ncclCommDeregister(const ncclComm_t comm, void *handle)
{
    auto &all = comm->registered;
    for (auto block = all.begin(); block != all.end(); ++block) {
        if (block->first != handle)
            continue;
        mics_emulated::keep_block(handle, -1);
        all.erase(block);
        return ncclSuccess;
    }
    mics_emulated::defect_in("ncclCommDeregister", "rank %d has not registered %p", comm->rank,
                             handle);
}

ncclResult_t ncclCommDestroy(ncclComm_t comm)
{
    if (!comm->registered.empty())
        mics_emulated::defect_in("ncclCommDestroy", "rank %d still has %zu registered buffers",
                                 comm->rank, comm->registered.size());
    std::lock_guard<std::mutex> lock(worlds_mutex);
    open_comms[comm->device]--;
    mics_emulated::take_memory(comm->device, -static_cast<ptrdiff_t>(comm->taken));
    delete comm;
    return ncclSuccess;
}

// For tests: how often a communicator of this process has connected.
long mics_cuda_emulated_nccl_connections(void);

long mics_cuda_emulated_nccl_connections(void)
{
    return connections;
}

// Frees memory of the device, which waits for the kernels of its other communicators too.
ncclResult_t ncclCommAbort(ncclComm_t comm)
{
    {
        std::lock_guard<std::mutex> lock(worlds_mutex);
        const int others = --open_comms[comm->device];
        if (others > 0 && group_depth == 0)
            mics_emulated::defect_in("ncclCommAbort",
                                     "outside of a group, while GPU %d has %d more communicators",
                                     comm->device, others);
    }
    {
        std::lock_guard<std::mutex> lock(comm->world->mutex);
        comm->world->aborted = true;
        comm->world->changed.notify_all();
    }
    for (const auto &block : comm->registered)
        mics_emulated::keep_block(block.first, -1);
    mics_emulated::take_memory(comm->device, -static_cast<ptrdiff_t>(comm->taken));
    delete comm;
    return ncclSuccess;
}

ncclResult_t ncclGroupStart(void)
{
    group_depth++;
    return ncclSuccess;
}

ncclResult_t ncclGroupEnd(void)
{
    if (group_depth == 0)
        return ncclInvalidUsage;
    if (--group_depth > 0 || group.empty())
        return ncclSuccess;
    Part part{Kind::messages, nullptr, nullptr, 0, ncclFloat32, {}, false};
    const ncclComm_t comm = group[0].comm;
    const cudaStream_t stream = group[0].stream;
    bool one = true;
    for (const Queued &queued : group) {
        one = one && queued.comm == comm && queued.stream == stream;
        part.messages.push_back(queued.message);
    }
    group.clear();
    return one ? enqueue(comm, std::move(part), stream) : ncclInvalidUsage;
}

ncclResult_t ncclAllGather(const void *send, void *recv, size_t count, ncclDataType_t type,
                           ncclComm_t comm, cudaStream_t stream)
{
    return whole(Kind::all_gather, send, recv, count, type, comm, stream);
}

ncclResult_t ncclReduceScatter(const void *send, void *recv, size_t count, ncclDataType_t type,
                               ncclRedOp_t, ncclComm_t comm, cudaStream_t stream)
{
    return whole(Kind::reduce_scatter, send, recv, count, type, comm, stream);
}

ncclResult_t ncclAllReduce(const void *send, void *recv, size_t count, ncclDataType_t type,
                           ncclRedOp_t, ncclComm_t comm, cudaStream_t stream)
{
    return whole(Kind::all_reduce, send, recv, count, type, comm, stream);
}

ncclResult_t ncclSend(const void *buffer, size_t count, ncclDataType_t type, int peer,
                      ncclComm_t comm, cudaStream_t stream)
{
    return message(true, buffer, count, type, peer, comm, stream);
}

ncclResult_t ncclRecv(void *buffer, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream)
{
    return message(false, buffer, count, type, peer, comm, stream);
}
}
