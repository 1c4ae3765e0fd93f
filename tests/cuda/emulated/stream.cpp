// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Streams and events: each stream is a thread with a queue.
//
// On a chip a missing wait between streams mostly goes well. Here a stream runs only what somebody
// has asked for: the host by waiting, another stream by waiting for an event, or (unless
// MICS_EMULATED_ORDER is "lazy") chance, by a seed. What was forgotten to be waited for has then
// not happened, and the numbers are wrong.
//
// 1. `enqueued`, `allowed` and `done` count a stream's entries; done <= allowed <= enqueued. All
//    under one mutex. An entry that is done wakes those alone who need not wait any more.
// 2. An event knows the stream and the entry of its newest record; a stream that waits for it took
//    both when it was told to.
// 3. What is enqueued on a stream that captures is kept, not run; a launch of the graph that comes
//    of it is one entry, which runs all of that in order. The stream's own thread captures; another
//    one that enqueues there is a defect.
// 4. After the device has failed entries are dropped, not run, and who waits does so only for what
//    runs already.
#include "state.h"
#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <memory>
#include <random>
#include <thread>
#include <unistd.h>
#include <vector>

using namespace mics_emulated;

namespace
{

struct stream_entry {
    const char *name;
    std::function<void()> work;
};

std::mutex mutex_;

// Somebody who waits for entries, or for the device to fail. `over` is asked under the mutex.
struct waiter {
    std::function<bool()> over;
    std::condition_variable wake;
};
std::vector<waiter *> waiters;

// An entry is done, or the device has failed.
void note_progress()
{
    for (waiter *each : waiters)
        if (each->over())
            each->wake.notify_one();
}

// At most `us` where that is not 0. Whether what is waited for has come.
template <typename Over> bool wait_until(std::unique_lock<std::mutex> &lock, long us, Over over)
{
    if (over())
        return true;
    waiter self{over, {}};
    waiters.emplace_back(&self);
    if (us == 0)
        self.wake.wait(lock, over);
    else
        self.wake.wait_for(lock, std::chrono::microseconds(us), over);
    waiters.erase(std::find(waiters.begin(), waiters.end(), &self));
    return over();
}

std::atomic<cudaError_t> failure{cudaSuccess};
std::atomic<long> kernels_run{0};
std::atomic<long> graphs_launched{0};
thread_local CUstream_st *capturing = nullptr; // by this thread
// Who asks for an event again and again takes a core from kernels, which here run beside it: it is answered when the event is
// reached, or after so long.
const long QUERY_US = 500;

} // namespace

struct CUgraph_st {
    std::vector<stream_entry> entries;
};

struct CUgraphExec_st {
    std::shared_ptr<const std::vector<stream_entry>> entries; // a launch under way holds them too
};

struct CUstream_st {
    std::deque<stream_entry> queue;
    int64_t enqueued = 0, allowed = 0, done = 0;
    bool closing = false, running = false;
    bool captures = false, capture_broken = false;
    std::vector<stream_entry> captured;
    int device = 0;
    std::condition_variable work;
    std::mt19937 random;
    std::thread thread;
};

namespace
{

// Newest record of an event. A waiting stream holds it after the event is gone.
struct event_record {
    CUstream_st *stream;
    int64_t entry; // reached when stream->done >= entry
    bool reached;
    double us;
};

std::vector<CUstream_st *> &streams()
{
    static auto *all = new std::vector<CUstream_st *>();
    return *all;
}

void allow(CUstream_st *stream, int64_t entry)
{
    if (entry <= stream->allowed)
        return;
    stream->allowed = entry;
    stream->work.notify_one();
}

void allow_all()
{
    for (CUstream_st *stream : streams())
        allow(stream, stream->enqueued);
}

bool idle(int device)
{
    return std::all_of(streams().begin(), streams().end(), [device](const CUstream_st *stream) {
        return stream->device != device || stream->done == stream->enqueued;
    });
}

// What a failure leaves running still touches memory.
bool any_running()
{
    return std::any_of(streams().begin(), streams().end(),
                       [](const CUstream_st *stream) { return stream->running; });
}

// A pause now and then, so that streams meet in different ways.
void dawdle(CUstream_st *stream)
{
    if (!settings().eager && !settings().lazy && stream->random() % 16 == 0)
        usleep((useconds_t)(stream->random() % 100));
}

void stream_main(CUstream_st *stream)
{
    std::unique_lock<std::mutex> lock(mutex_);
    for (;;) {
        stream->work.wait(lock, [&] {
            return stream->done < stream->allowed ||
                   (stream->closing && stream->done == stream->enqueued);
        });
        if (stream->done == stream->allowed)
            return;
        stream_entry entry = std::move(stream->queue.front());
        stream->queue.pop_front();
        stream->running = true;
        lock.unlock();
        if (failure == cudaSuccess) {
            dawdle(stream);
            entry.work();
        }
        entry.work = nullptr; // what it holds goes before it counts as done
        lock.lock();
        stream->running = false;
        stream->done++;
        note_progress();
    }
}

CUstream_st *open_stream()
{
    auto *stream = new CUstream_st();
    std::lock_guard<std::mutex> lock(mutex_);
    stream->device = current_device();
    stream->random.seed(settings().seed + (unsigned)streams().size());
    streams().push_back(stream);
    stream->thread = std::thread(stream_main, stream);
    return stream;
}

// The stream that a call names; NULL is one of its own.
CUstream_st *real(cudaStream_t stream)
{
    static CUstream_st *null_stream = nullptr;
    static std::once_flag once;
    if (stream != nullptr)
        return stream;
    std::call_once(once, [] { null_stream = open_stream(); });
    return null_stream;
}

int64_t push(CUstream_st *stream, const char *name, std::function<void()> work)
{
    if (stream->captures && stream != capturing)
        defect_in(name, "enqueued on a stream that another thread captures");
    if (stream->captures) {
        stream->captured.push_back({name, std::move(work)});
        return stream->enqueued;
    }
    stream->queue.push_back({name, std::move(work)});
    stream->enqueued++;
    if (settings().eager || (!settings().lazy && stream->random() % 2 == 0))
        allow(stream, stream->enqueued);
    return stream->enqueued;
}

cudaError_t wait_stream(CUstream_st *stream)
{
    std::unique_lock<std::mutex> lock(mutex_);
    const int64_t entry = stream->enqueued;
    allow(stream, entry);
    wait_until(lock, 0, [&] {
        return stream->done >= entry || (failure != cudaSuccess && !stream->running);
    });
    return failure;
}

void wait_record(const std::shared_ptr<event_record> &record)
{
    std::unique_lock<std::mutex> lock(mutex_);
    if (!record->reached && failure == cudaSuccess)
        allow(record->stream, record->entry);
    wait_until(lock, 0, [&] { return record->reached || failure != cudaSuccess; });
}

} // namespace

struct CUevent_st {
    std::shared_ptr<event_record> record; // NULL: never recorded
    bool timed;
};

namespace mics_emulated
{

double now_us()
{
    using namespace std::chrono;
    return (double)duration_cast<nanoseconds>(steady_clock::now().time_since_epoch()).count() / 1e3;
}

cudaError_t refused_by_capture(cudaStream_t about)
{
    std::lock_guard<std::mutex> lock(mutex_);
    CUstream_st *broken = capturing;
    if (about != nullptr && about->captures)
        broken = about;
    if (broken == nullptr)
        return cudaSuccess;
    broken->capture_broken = true;
    return cudaErrorStreamCaptureUnsupported;
}

cudaError_t enqueue(cudaStream_t stream, const char *name, std::function<void()> work)
{
    if (cudaError_t error = entry_error())
        return note(error);
    CUstream_st *on = real(stream);
    std::lock_guard<std::mutex> lock(mutex_);
    push(on, name, std::move(work));
    return cudaSuccess;
}

void waiting()
{
    std::lock_guard<std::mutex> lock(mutex_);
    allow_all();
}

void fail_device(cudaError_t error)
{
    std::lock_guard<std::mutex> lock(mutex_);
    cudaError_t none = cudaSuccess;
    failure.compare_exchange_strong(none, error);
    allow_all();
    note_progress();
}

bool device_failed()
{
    return failure != cudaSuccess;
}

void wait_for_all()
{
    const int device = current_device();
    std::unique_lock<std::mutex> lock(mutex_);
    wait_until(lock, 0, [device] {
        allow_all(); // what is enqueued meanwhile runs too
        return idle(device) || (failure != cudaSuccess && !any_running());
    });
}

static bool shape_is_possible(const launch_shape &shape)
{
    const dim3 g = shape.grid, b = shape.block;
    const uint64_t threads = (uint64_t)b.x * b.y * b.z;
    return threads >= 1 && threads <= 1024 && b.z <= 64 && g.x >= 1 && g.y >= 1 && g.z >= 1 &&
           g.x <= 2147483647u && g.y <= 65535 && g.z <= 65535;
}

size_t shared_limit(const void *kernel);
void expect_loaded(const char *name, const void *kernel);

void enqueue_kernel(const launch_shape &shape, std::function<void()> thread_main)
{
    if (!shape_is_possible(shape)) {
        note(cudaErrorInvalidConfiguration);
        return;
    }
    if (shape.shared_bytes > shared_limit(shape.kernel)) {
        note(cudaErrorInvalidValue);
        return;
    }
    expect_loaded(shape.name, shape.kernel);
    static std::atomic<int> launches{0};
    enqueue(shape.stream, shape.name, [shape, thread_main] {
        if (++kernels_run == settings().fail_at) {
            fail_device(cudaErrorIllegalAddress);
            return;
        }
        run_grid(shape, launches++, thread_main);
        check_guards(shape.name);
    });
}

} // namespace mics_emulated

extern "C" {

// ---- streams ----

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned)
{
    if (cudaError_t error = entry_error())
        return note(error);
    *stream = open_stream();
    return cudaSuccess;
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *stream, unsigned flags, int)
{
    return cudaStreamCreateWithFlags(stream, flags);
}

cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
    {
        std::unique_lock<std::mutex> lock(mutex_);
        allow(stream, stream->enqueued);
        stream->closing = true;
        stream->work.notify_one();
    }
    stream->thread.join();
    std::lock_guard<std::mutex> lock(mutex_);
    streams().erase(std::find(streams().begin(), streams().end(), stream));
    delete stream;
    return note(failure);
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
    if (cudaError_t error = entry_error())
        return note(error);
    if (cudaError_t error = refused_by_capture(stream))
        return note(error);
    return note(wait_stream(real(stream)));
}

cudaError_t cudaStreamQuery(cudaStream_t stream)
{
    if (cudaError_t error = entry_error())
        return note(error);
    if (cudaError_t error = refused_by_capture(stream))
        return note(error);
    CUstream_st *on = real(stream);
    std::lock_guard<std::mutex> lock(mutex_);
    allow(on, on->enqueued);
    return note(on->done == on->enqueued ? cudaSuccess : cudaErrorNotReady);
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned)
{
    if (cudaError_t error = entry_error())
        return note(error);
    std::shared_ptr<event_record> record;
    {
        std::lock_guard<std::mutex> lock(mutex_);
        record = event->record;
    }
    if (record == nullptr)
        return cudaSuccess;
    if (capturing != nullptr && stream == capturing) { // no event of it was captured
        capturing->capture_broken = true;
        return note(cudaErrorStreamCaptureIsolation);
    }
    return enqueue(stream, "cudaStreamWaitEvent", [record] { wait_record(record); });
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void *user_data)
{
    return enqueue(stream, "cudaLaunchHostFunc", [function, user_data] { function(user_data); });
}

cudaError_t cudaDeviceSynchronize(void)
{
    if (cudaError_t error = entry_error())
        return note(error);
    if (cudaError_t error = refused_by_capture(nullptr))
        return note(error);
    wait_for_all();
    check_guards("cudaDeviceSynchronize");
    return note(failure);
}

// ---- graphs ----

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, enum cudaStreamCaptureMode mode)
{
    if (cudaError_t error = entry_error())
        return note(error);
    std::lock_guard<std::mutex> lock(mutex_);
    if (stream == nullptr || mode != cudaStreamCaptureModeThreadLocal)
        return note(cudaErrorStreamCaptureUnsupported);
    if (capturing != nullptr || stream->captures)
        return note(cudaErrorInvalidValue);
    stream->captures = true;
    stream->capture_broken = false;
    capturing = stream;
    return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph)
{
    *graph = nullptr;
    std::lock_guard<std::mutex> lock(mutex_);
    if (stream == nullptr || stream != capturing)
        return note(cudaErrorStreamCaptureUnmatched);
    stream->captures = false;
    capturing = nullptr;
    std::vector<stream_entry> entries = std::move(stream->captured);
    stream->captured.clear();
    if (failure != cudaSuccess)
        return note(failure);
    if (stream->capture_broken)
        return note(cudaErrorStreamCaptureInvalidated);
    *graph = new CUgraph_st{std::move(entries)};
    return cudaSuccess;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t *instance, cudaGraph_t graph, unsigned long long)
{
    if (cudaError_t error = entry_error())
        return note(error);
    *instance =
        new CUgraphExec_st{std::make_shared<const std::vector<stream_entry>>(graph->entries)};
    return cudaSuccess;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t instance, cudaStream_t stream)
{
    if (cudaError_t error = entry_error())
        return note(error);
    if (capturing != nullptr && stream == capturing)
        return note(refused_by_capture(stream));
    graphs_launched++;
    return enqueue(stream, "cudaGraphLaunch", [entries = instance->entries] {
        for (const stream_entry &entry : *entries)
            if (failure == cudaSuccess)
                entry.work();
    });
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t instance)
{
    delete instance;
    return cudaSuccess;
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph)
{
    delete graph;
    return cudaSuccess;
}

// For tests: how many graphs this process has launched.
long mics_cuda_emulated_graphs_launched(void)
{
    return graphs_launched;
}

// ---- events ----

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags)
{
    if (cudaError_t error = entry_error())
        return note(error);
    *event = new CUevent_st{nullptr, (flags & cudaEventDisableTiming) == 0};
    return cudaSuccess;
}

cudaError_t cudaEventCreate(cudaEvent_t *event)
{
    return cudaEventCreateWithFlags(event, cudaEventDefault);
}

cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    delete event;
    return cudaSuccess;
}

// On a chip the event would be captured too; nothing here asks for that.
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
    if (cudaError_t error = entry_error())
        return note(error);
    if (capturing != nullptr && stream == capturing)
        return note(refused_by_capture(stream));
    CUstream_st *on = real(stream);
    std::lock_guard<std::mutex> lock(mutex_);
    auto record = std::make_shared<event_record>(event_record{on, 0, false, 0});
    record->entry = push(on, "cudaEventRecord", [record] {
        std::lock_guard<std::mutex> inner(mutex_);
        record->us = now_us();
        record->reached = true;
    });
    event->record = record;
    return cudaSuccess;
}

cudaError_t cudaEventQuery(cudaEvent_t event)
{
    if (cudaError_t error = entry_error())
        return note(error);
    if (cudaError_t error = refused_by_capture(nullptr))
        return note(error);
    std::unique_lock<std::mutex> lock(mutex_);
    const std::shared_ptr<event_record> record = event->record;
    if (record == nullptr || record->reached)
        return cudaSuccess;
    allow(record->stream, record->entry);
    const bool over =
        wait_until(lock, QUERY_US, [&] { return record->reached || failure != cudaSuccess; });
    return note(over && record->reached ? cudaSuccess : cudaErrorNotReady);
}

cudaError_t cudaEventSynchronize(cudaEvent_t event)
{
    if (cudaError_t error = entry_error())
        return note(error);
    if (cudaError_t error = refused_by_capture(nullptr))
        return note(error);
    std::shared_ptr<event_record> record;
    {
        std::lock_guard<std::mutex> lock(mutex_);
        record = event->record;
    }
    if (record != nullptr)
        wait_record(record);
    return note(failure);
}

cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t begin, cudaEvent_t end)
{
    if (cudaError_t error = entry_error())
        return note(error);
    std::lock_guard<std::mutex> lock(mutex_);
    if (!begin->timed || !end->timed || begin->record == nullptr || end->record == nullptr)
        return note(cudaErrorInvalidResourceHandle);
    if (!begin->record->reached || !end->record->reached)
        return note(cudaErrorNotReady);
    *ms = (float)((end->record->us - begin->record->us) / 1e3);
    return cudaSuccess;
}

// ---- copies ----

static cudaError_t enqueue_copy(cudaStream_t stream, const char *name, bool wait,
                                std::function<void()> work)
{
    if (wait)
        if (cudaError_t refused = refused_by_capture(stream))
            return note(refused);
    cudaError_t error = enqueue(stream, name, std::move(work));
    if (error != cudaSuccess || !wait)
        return error;
    return note(wait_stream(real(stream)));
}

static bool fits(enum cudaMemcpyKind kind, memory_kind to, memory_kind from)
{
    switch (kind) {
    case cudaMemcpyHostToHost:
        return to != MEMORY_DEVICE && from != MEMORY_DEVICE;
    case cudaMemcpyHostToDevice:
        return to == MEMORY_DEVICE && from != MEMORY_DEVICE;
    case cudaMemcpyDeviceToHost:
        return to != MEMORY_DEVICE && from == MEMORY_DEVICE;
    case cudaMemcpyDeviceToDevice:
        return to == MEMORY_DEVICE && from == MEMORY_DEVICE;
    default:
        return true;
    }
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind,
                            cudaStream_t stream)
{
    if (bytes == 0)
        return note(entry_error());
    const memory_kind to_kind = memory_of(to, bytes, "cudaMemcpyAsync, destination");
    const memory_kind from_kind = memory_of(from, bytes, "cudaMemcpyAsync, source");
    if (!fits(kind, to_kind, from_kind))
        return note(cudaErrorInvalidValue);
    const char *low = static_cast<const char *>(from), *high = static_cast<char *>(to);
    if (low < high + bytes && high < low + bytes)
        defect_in("cudaMemcpyAsync", "source and destination overlap");
    const bool wait = to_kind == MEMORY_PAGEABLE || from_kind == MEMORY_PAGEABLE;
    return enqueue_copy(stream, "cudaMemcpyAsync", wait,
                        [to, from, bytes] { std::memcpy(to, from, bytes); });
}

cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind)
{
    if (cudaError_t error = cudaMemcpyAsync(to, from, bytes, kind, nullptr))
        return error;
    return cudaStreamSynchronize(nullptr);
}

cudaError_t cudaMemsetAsync(void *to, int value, size_t bytes, cudaStream_t stream)
{
    if (bytes == 0)
        return note(entry_error());
    if (memory_of(to, bytes, "cudaMemsetAsync") == MEMORY_PAGEABLE)
        return note(cudaErrorInvalidValue);
    return enqueue_copy(stream, "cudaMemsetAsync", false,
                        [to, value, bytes] { std::memset(to, value, bytes); });
}

cudaError_t cudaMemset(void *to, int value, size_t bytes)
{
    if (cudaError_t error = cudaMemsetAsync(to, value, bytes, nullptr))
        return error;
    return cudaStreamSynchronize(nullptr);
}
}

namespace mics_emulated
{

// What entry_error asks first.
cudaError_t kept_failure()
{
    return failure;
}

} // namespace mics_emulated
