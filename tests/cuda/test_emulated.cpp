// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// The emulation itself: that right kernels give right numbers, and that each kind of mistake is
// found.
#include "../../src/ops/common/launch.cuh"
#include "../../src/ops/common/numbers.cuh"
#include "emulated/emulated.h"
#include <cstdio>
#include <cstdlib>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <mma.h>
#include <nccl.h>
#include <string>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

extern "C" void mics_cuda_launched(const char *)
{
}
extern "C" bool mics_cuda_list_kernel(mics_cuda_kernel *, const void *)
{
    return true;
}
extern "C" bool mics_cuda_shared_allowed(const char *, size_t, int error)
{
    return error == cudaSuccess;
}

static int failures;

static void expect(bool good, const char *what, int line)
{
    if (good)
        return;
    fprintf(stderr, "test_emulated.cpp:%d: not so: %s\n", line, what);
    failures++;
}
#define EXPECT(condition) expect((condition), #condition, __LINE__)

template <typename T> struct on_device {
    T *at = nullptr;
    size_t count;
    explicit on_device(size_t count_) : count(count_)
    {
        EXPECT(cudaMalloc(&at, count * sizeof(T)) == cudaSuccess);
    }
    ~on_device()
    {
        cudaFree(at);
    }
    void set(const std::vector<T> &values)
    {
        cudaMemcpy(at, values.data(), count * sizeof(T), cudaMemcpyHostToDevice);
    }
    std::vector<T> get() const
    {
        std::vector<T> values(count);
        cudaMemcpy(values.data(), at, count * sizeof(T), cudaMemcpyDeviceToHost);
        return values;
    }
};

static cudaStream_t open_stream()
{
    cudaStream_t stream;
    EXPECT(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) == cudaSuccess);
    return stream;
}

// ---- right kernels ----

// Sum over the block by shuffles and shared memory.
template <int WARPS> __global__ void sum_block(int *out, const int *x)
{
    __shared__ int partial[WARPS];
    int sum = x[blockIdx.x * blockDim.x + threadIdx.x];
    for (int distance = 16; distance > 0; distance /= 2)
        sum += __shfl_xor_sync(0xffffffffu, sum, distance);
    if (threadIdx.x % 32 == 0)
        partial[threadIdx.x / 32] = sum;
    __syncthreads();
    if (threadIdx.x == 0) {
        int total = 0;
        for (int i = 0; i < WARPS; i++)
            total += partial[i];
        out[blockIdx.x] = total;
    }
}

// Reverses each block through dynamic shared memory.
__global__ void reverse(int *x)
{
    MICS_DYNAMIC_SHARED(int, tile);
    x += blockIdx.x * blockDim.x;
    tile[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    x[threadIdx.x] = tile[blockDim.x - 1 - threadIdx.x];
}

__global__ void warp_things(unsigned *out)
{
    const unsigned lane = threadIdx.x;
    unsigned r = __ballot_sync(0xffffffffu, lane % 3 == 0);
    r += (unsigned)__shfl_up_sync(0xffffffffu, (int)lane, 2);
    r += (unsigned)__shfl_down_sync(0xffffffffu, (int)lane, 1, 8);
    r += (unsigned)__shfl_sync(0xffffffffu, (int)lane, 5);
    r += (unsigned)__all_sync(0xffffffffu, 1) + 2u * (unsigned)__any_sync(0xffffffffu, lane == 7);
    r += (unsigned)__reduce_max_sync(0xffffffffu, -(int)lane) * 4u;
    if (lane < 16)
        r += (unsigned)__shfl_xor_sync(0x0000ffffu, (int)lane, 1);
    out[lane] = r;
}

__global__ void last_block(unsigned *counter, int *sum)
{
    if (threadIdx.x == 0) {
        atomicAdd(sum, (int)blockIdx.x);
        __threadfence();
        if (atomicInc(counter, gridDim.x - 1) == gridDim.x - 1)
            *sum += 1000;
    }
}

template <typename T> __global__ void product(float *d, const T *a, const T *b)
{
    using namespace nvcuda;
    wmma::fragment<wmma::matrix_a, 16, 16, 16, T, wmma::row_major> fa;
    wmma::fragment<wmma::matrix_b, 16, 16, 16, T, wmma::col_major> fb;
    wmma::fragment<wmma::accumulator, 16, 16, 16, float> fd;
    wmma::fill_fragment(fd, 1.0f);
    wmma::load_matrix_sync(fa, a, 16);
    wmma::load_matrix_sync(fb, b, 16);
    wmma::mma_sync(fd, fa, fb, fd);
    for (int i = 0; i < fd.num_elements; i++)
        fd.x[i] *= 2.0f;
    wmma::store_matrix_sync(d, fd, 16, wmma::mem_row_major);
}

static void test_blocks()
{
    cudaStream_t stream = open_stream();
    on_device<int> x(3 * 128), out(3);
    std::vector<int> values(3 * 128);
    for (size_t i = 0; i < values.size(); i++)
        values[i] = (int)i;
    for (int run = 0; run < 3; run++) { // every order of threads
        x.set(values);
        MICS_LAUNCH((sum_block<4>), dim3(3), dim3(128), 0, stream, out.at, x.at);
        MICS_LAUNCH(reverse, 3, 128, 128 * sizeof(int), stream, x.at);
        EXPECT(cudaStreamSynchronize(stream) == cudaSuccess);
        EXPECT(out.get() == (std::vector<int>{8128, 24512, 40896}));
        EXPECT(x.get()[0] == 127 && x.get()[128] == 255 && x.get()[383] == 256);
    }
    cudaStreamDestroy(stream);
}

static void test_warps()
{
    cudaStream_t stream = open_stream();
    on_device<unsigned> out(32);
    unsigned ballot = 0;
    for (unsigned i = 0; i < 32; i += 3)
        ballot |= 1u << i;
    for (int run = 0; run < 3; run++) {
        MICS_LAUNCH(warp_things, 1, 32, 0, stream, out.at);
        cudaStreamSynchronize(stream);
        const std::vector<unsigned> got = out.get();
        for (unsigned i = 0; i < 32; i++) {
            unsigned want = ballot + (i < 2 ? i : i - 2) + (i % 8 == 7 ? i : i + 1) + 5 + 3;
            EXPECT(got[i] == want + (i < 16 ? (i ^ 1u) : 0u));
        }
    }
    on_device<unsigned> counter(1);
    on_device<int> sum(1);
    counter.set({0});
    sum.set({0});
    MICS_LAUNCH(last_block, 8, 64, 0, stream, counter.at, sum.at);
    cudaStreamSynchronize(stream);
    EXPECT(sum.get()[0] == 1028 && counter.get()[0] == 0);
    cudaStreamDestroy(stream);
}

template <typename T> static void test_product()
{
    cudaStream_t stream = open_stream();
    on_device<T> a(256), b(256);
    on_device<float> d(256);
    std::vector<T> a_host(256), b_host(256);
    for (int i = 0; i < 256; i++) {
        a_host[(size_t)i] = T((float)(i % 7 - 3));
        b_host[(size_t)i] = T((float)(i % 5 - 2));
    }
    a.set(a_host);
    b.set(b_host);
    MICS_LAUNCH(product<T>, 1, 32, 0, stream, d.at, a.at, b.at);
    cudaStreamSynchronize(stream);
    const std::vector<float> got = d.get();
    for (int row = 0; row < 16; row++)
        for (int column = 0; column < 16; column++) {
            float want = 1.0f;
            for (int k = 0; k < 16; k++)
                want += (float)a_host[(size_t)(16 * row + k)] *
                        (float)b_host[(size_t)(16 * column + k)];
            EXPECT(got[(size_t)(16 * row + column)] == 2.0f * want);
        }
    cudaStreamDestroy(stream);
}

// All halves, and what lies between two of them.
static void test_halves()
{
    for (unsigned bits = 0; bits < 65536; bits++) {
        const unsigned short h = (unsigned short)bits;
        const float fp16 = __half2float(__ushort_as_half(h));
        const float bf16 = __bfloat162float(__ushort_as_bfloat16(h));
        if (fp16 == fp16)
            EXPECT(__half_as_ushort(__float2half(fp16)) == h);
        else
            EXPECT((__half_as_ushort(__float2half(fp16)) & 0x7fff) > 0x7c00);
        if (bf16 == bf16)
            EXPECT(__bfloat16_as_ushort(__float2bfloat16(bf16)) == h);
    }
    EXPECT(__half_as_ushort(__float2half(65519.9f)) == 0x7bff);
    EXPECT(__half_as_ushort(__float2half(65520.0f)) == 0x7c00);
    EXPECT(__half_as_ushort(__float2half(1.0f + 1.0f / 2048)) == 0x3c00);
    EXPECT(__half_as_ushort(__float2half(1.0f + 3.0f / 2048)) == 0x3c02);
    EXPECT(__half_as_ushort(__float2half(3.0e-8f)) == 1);
    EXPECT(__half_as_ushort(__float2half(2.9802322e-8f)) == 0);
    EXPECT(__bfloat16_as_ushort(__float2bfloat16(1.0f + 1.0f / 256)) == 0x3f80);
    EXPECT(__bfloat16_as_ushort(__float2bfloat16(1.0f + 3.0f / 256)) == 0x3f82);
}

// ---- streams ----

__global__ void set_to(int *x, int value)
{
    *x = value;
}

__global__ void copy_one(int *to, const int *from)
{
    *to = *from;
}

// With the wait the copy sees 7; without it (lazily) it must not.
static int across_streams(bool wait)
{
    cudaStream_t a = open_stream(), b = open_stream();
    cudaEvent_t event;
    on_device<int> x(1), y(1);
    EXPECT(cudaEventCreateWithFlags(&event, cudaEventDisableTiming) == cudaSuccess);
    MICS_LAUNCH(set_to, 1, 1, 0, a, x.at, 7);
    EXPECT(cudaEventRecord(event, a) == cudaSuccess);
    if (wait)
        EXPECT(cudaStreamWaitEvent(b, event, 0) == cudaSuccess);
    MICS_LAUNCH(copy_one, 1, 1, 0, b, y.at, x.at);
    EXPECT(cudaStreamSynchronize(b) == cudaSuccess);
    const int seen = y.get()[0];
    cudaStreamDestroy(a);
    cudaStreamDestroy(b);
    cudaEventDestroy(event);
    return seen;
}

static void test_streams()
{
    for (int i = 0; i < 20; i++)
        EXPECT(across_streams(true) == 7);
    cudaStream_t a = open_stream();
    cudaEvent_t begin, end;
    cudaEventCreate(&begin);
    cudaEventCreate(&end);
    EXPECT(cudaEventQuery(begin) == cudaSuccess);
    cudaEventRecord(begin, a);
    cudaEventRecord(end, a);
    while (cudaEventQuery(end) == cudaErrorNotReady)
        usleep(100);
    float ms = -1;
    EXPECT(cudaEventElapsedTime(&ms, begin, end) == cudaSuccess && ms >= 0);
    cudaEventDestroy(begin);
    cudaEventDestroy(end);
    cudaStreamDestroy(a);
}

// ---- mistakes ----

__global__ void divergent_barrier(int *x)
{
    if (threadIdx.x < 8)
        __syncthreads();
    x[threadIdx.x] = 1;
}

__global__ void two_barriers(int *x)
{
    if (threadIdx.x < 8)
        __syncthreads();
    else
        __syncthreads();
    x[threadIdx.x] = 1;
}

__global__ void lanes_leave(int *x)
{
    if (threadIdx.x >= 8)
        return;
    x[threadIdx.x] = __shfl_xor_sync(0xffffffffu, 1, 1);
}

__global__ void reads_absent_lane(int *x)
{
    x[threadIdx.x] = __shfl_sync(0xffffffffu, 1, 31);
}

__global__ void loads_misaligned(int *x)
{
    x[0] = load_pack<4>(x + 1).at[0];
}

__global__ void stores_misaligned(int *x)
{
    store_pack<4>(x + 2, load_pack<4>(x));
}

__global__ void writes_past(int *x)
{
    x[threadIdx.x + 1] = 1;
}

__global__ void shared_past(int *x)
{
    MICS_DYNAMIC_SHARED(int, tile);
    tile[threadIdx.x + 1] = 1;
    x[0] = tile[0];
}

__global__ void misses_barrier(int *x)
{
    __shared__ int all[64];
    all[threadIdx.x] = (int)threadIdx.x;
    x[threadIdx.x] = all[63 - threadIdx.x];
}

// Warp 1 writes what warp 0 may not have read: while all threads take turns it is three exchanges
// late.
template <bool WAITS> __global__ void overwrites(int *x)
{
    __shared__ int shared;
    int sum = 0;
    if (threadIdx.x == 0)
        shared = 1;
    __syncthreads();
    for (int i = 0; i < 3; i++)
        sum += __shfl_xor_sync(0xffffffffu, (int)threadIdx.x, 1);
    x[threadIdx.x] = shared;
    if (WAITS)
        __syncthreads();
    for (int i = 0; i < 3; i++)
        sum += __shfl_xor_sync(0xffffffffu, sum, 1);
    if (threadIdx.x == 32)
        shared = 2 + (sum & 1);
}

static void launch_wrong(void (*kernel)(int *), unsigned threads, size_t shared)
{
    on_device<int> x(threads);
    cudaStream_t stream = open_stream();
    mics_emulated::launch("kernel", 1, threads, shared, stream, kernel, x.at);
    cudaStreamSynchronize(stream);
    cudaStreamDestroy(stream);
}

static void host_argument()
{
    int here_ = 0;
    cudaStream_t stream = open_stream();
    MICS_LAUNCH(set_to, 1, 1, 0, stream, &here_, 1);
    cudaStreamSynchronize(stream);
}

static void loads_late()
{
    cudaFuncAttributes attributes;
    cudaStream_t stream = open_stream();
    on_device<int> x(1);
    cudaFuncGetAttributes(&attributes, reinterpret_cast<const void *>(copy_one));
    MICS_LAUNCH(set_to, 1, 1, 0, stream, x.at, 1);
}

static void copy_past()
{
    on_device<int> x(4);
    std::vector<int> values(5);
    cudaMemcpy(x.at, values.data(), 20, cudaMemcpyHostToDevice);
}

// A communicator of one rank.
static ncclComm_t open_comm()
{
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    ncclUniqueId id;
    ncclComm_t comm;
    config.blocking = 0;
    EXPECT(ncclGetUniqueId(&id) == ncclSuccess);
    EXPECT(ncclCommInitRankConfig(&comm, 1, id, 0, &config) == ncclInProgress);
    return comm;
}

enum registering { TWICE, BESIDE, KEPT, UNKNOWN, FREED, GOOD };

static void registers(registering how)
{
    on_device<float> x(64), y(64);
    void *handle = nullptr;
    ncclComm_t comm = open_comm();
    cudaStream_t stream = open_stream();
    EXPECT(ncclCommRegister(comm, x.at, 256, &handle) == ncclSuccess && handle != nullptr);
    if (how == TWICE)
        ncclCommRegister(comm, x.at + 32, 64, &handle);
    if (how == BESIDE)
        ncclAllGather(y.at, y.at, 64, ncclFloat32, comm, stream);
    if (how == FREED)
        cudaFree(x.at);
    EXPECT(ncclAllGather(x.at + 32, x.at + 32, 32, ncclFloat32, comm, stream) == ncclSuccess);
    cudaStreamSynchronize(stream);
    if (how != KEPT)
        EXPECT(ncclCommDeregister(comm, handle) == ncclSuccess);
    if (how == UNKNOWN)
        ncclCommDeregister(comm, handle);
    ncclCommDestroy(comm);
    cudaStreamDestroy(stream);
}

// Runs `body` in a process of its own, which must say `text` and abort.
template <typename Body> static void expect_defect(const char *text, Body body, int line)
{
    int ends[2];
    if (pipe(ends) != 0)
        abort();
    const pid_t child = fork();
    if (child == 0) {
        dup2(ends[1], 2);
        body();
        _exit(0);
    }
    close(ends[1]);
    std::string said;
    char piece[512];
    for (ssize_t n; (n = read(ends[0], piece, sizeof piece)) > 0;)
        said.append(piece, (size_t)n);
    close(ends[0]);
    int status = 0;
    waitpid(child, &status, 0);
    const bool found = said.find(text) != std::string::npos;
    if (!found || !WIFSIGNALED(status) || WTERMSIG(status) != SIGABRT) {
        fprintf(stderr, "test_emulated.cpp:%d: expected \"%s\", status %d, said: %s\n", line, text,
                status, said.c_str());
        failures++;
    }
}
#define EXPECT_DEFECT(text, body)                                                                  \
    expect_defect(                                                                                 \
        text, [] { body; }, __LINE__)

// Before this process has threads.
static void test_mistakes()
{
    EXPECT_DEFECT("nobody can go on: thread 0 waits at __syncthreads",
                  launch_wrong(divergent_barrier, 32, 0));
    EXPECT_DEFECT("of the block is at the one in", launch_wrong(two_barriers, 32, 0));
    EXPECT_DEFECT("mask ffffffff", launch_wrong(lanes_leave, 32, 0));
    EXPECT_DEFECT("reads lane 31, which is not in mask", launch_wrong(reads_absent_lane, 16, 0));
    EXPECT_DEFECT("must be on 16 bytes", launch_wrong(loads_misaligned, 1, 0));
    EXPECT_DEFECT("must be on 16 bytes", launch_wrong(stores_misaligned, 1, 0));
    EXPECT_DEFECT("was written to outside, at byte 12", launch_wrong(writes_past, 3, 0));
    EXPECT_DEFECT("wrote 0 bytes past its 128 of dynamic shared memory",
                  launch_wrong(shared_past, 32, 128));
    EXPECT_DEFECT("argument 0 points to memory that is neither", host_argument());
    EXPECT_DEFECT("set_to: is loaded by its first launch", loads_late());
    EXPECT_DEFECT("20 bytes from byte 0 of a block of 16", copy_past());
    EXPECT_DEFECT("has registered this memory already", registers(TWICE));
    EXPECT_DEFECT("256 bytes of a collective are not in any of its 1", registers(BESIDE));
    EXPECT_DEFECT("still has 1 registered buffers", registers(KEPT));
    EXPECT_DEFECT("rank 0 has not registered", registers(UNKNOWN));
    EXPECT_DEFECT("is registered with 1 communicators", registers(FREED));
    EXPECT_DEFECT("outside of kernels: found it", {
        if (across_streams(false) != 7) // MICS_EMULATED_ORDER is read once a process
            mics_emulated::defect("found it");
    });
}

// What is captured runs when its graph is launched, as often as that is, in the stream's order.
static void test_graphs()
{
    cudaStream_t a = open_stream(), b = open_stream();
    cudaEvent_t event;
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t instance = nullptr;
    on_device<int> x(1), y(1);
    EXPECT(cudaEventCreate(&event) == cudaSuccess);
    MICS_LAUNCH(set_to, 1, 1, 0, a, x.at, 1);
    EXPECT(cudaEventRecord(event, b) == cudaSuccess);
    EXPECT(cudaStreamBeginCapture(a, cudaStreamCaptureModeThreadLocal) == cudaSuccess);
    MICS_LAUNCH(copy_one, 1, 1, 0, a, y.at, x.at);
    MICS_LAUNCH(set_to, 1, 1, 0, a, x.at, 2);
    EXPECT(cudaStreamEndCapture(a, &graph) == cudaSuccess);
    EXPECT(cudaGraphInstantiate(&instance, graph, 0) == cudaSuccess);
    cudaGraphDestroy(graph);
    EXPECT(cudaStreamSynchronize(a) == cudaSuccess && x.get()[0] == 1);
    EXPECT(cudaGraphLaunch(instance, a) == cudaSuccess && cudaStreamSynchronize(a) == cudaSuccess);
    EXPECT(y.get()[0] == 1 && x.get()[0] == 2);
    EXPECT(cudaGraphLaunch(instance, a) == cudaSuccess);
    cudaGraphExecDestroy(instance); // what was launched is not touched by it
    EXPECT(cudaStreamSynchronize(a) == cudaSuccess && y.get()[0] == 2);
    void *block = nullptr;
    int here_ = 0;
    const cudaError_t broken[] = {
        (cudaStreamBeginCapture(a, cudaStreamCaptureModeThreadLocal), cudaMalloc(&block, 4)),
        cudaStreamEndCapture(a, &graph),
        (cudaStreamBeginCapture(a, cudaStreamCaptureModeThreadLocal), cudaStreamSynchronize(b)),
        cudaStreamEndCapture(a, &graph),
        (cudaStreamBeginCapture(a, cudaStreamCaptureModeThreadLocal), cudaEventQuery(event)),
        cudaStreamEndCapture(a, &graph),
        (cudaStreamBeginCapture(a, cudaStreamCaptureModeThreadLocal),
         cudaMemcpyAsync(&here_, x.at, 4, cudaMemcpyDefault, a)),
        cudaStreamEndCapture(a, &graph),
    };
    for (size_t i = 0; i < sizeof broken / sizeof broken[0]; i++)
        EXPECT(broken[i] == (i % 2 == 0 ? cudaErrorStreamCaptureUnsupported
                                        : cudaErrorStreamCaptureInvalidated));
    cudaStreamBeginCapture(a, cudaStreamCaptureModeThreadLocal);
    EXPECT(cudaStreamWaitEvent(a, event, 0) == cudaErrorStreamCaptureIsolation);
    EXPECT(cudaStreamEndCapture(a, &graph) == cudaErrorStreamCaptureInvalidated);
    EXPECT(cudaStreamEndCapture(a, &graph) == cudaErrorStreamCaptureUnmatched && graph == nullptr);
    cudaGetLastError();
    cudaEventDestroy(event);
    cudaStreamDestroy(a);
    cudaStreamDestroy(b);
}

static void test_missing_barrier()
{
    cudaStream_t stream = open_stream();
    on_device<int> x(64);
    bool wrong = false;
    for (int run = 0; run < 20; run++) {
        MICS_LAUNCH(misses_barrier, 1, 64, 0, stream, x.at);
        cudaStreamSynchronize(stream);
        const std::vector<int> got = x.get();
        for (int i = 0; i < 64; i++)
            wrong = wrong || got[(size_t)i] != 63 - i;
    }
    EXPECT(wrong);
    cudaStreamDestroy(stream);
}

template <bool WAITS> static int times_overwritten(int launches)
{
    cudaStream_t stream = open_stream();
    on_device<int> x(64);
    int wrong = 0;
    for (int run = 0; run < launches; run++) {
        MICS_LAUNCH((overwrites<WAITS>), 1, 64, 0, stream, x.at);
        cudaStreamSynchronize(stream);
        bool good = true;
        for (int value : x.get())
            good = good && value == 1;
        wrong += !good;
    }
    cudaStreamDestroy(stream);
    return wrong;
}

// Each in a process of its own, which reads the environment anew.
template <bool WAITS> static bool is_overwritten(const char *threads)
{
    const pid_t child = fork();
    if (child == 0) {
        setenv("MICS_EMULATED_THREADS", threads, 1);
        _exit(times_overwritten<WAITS>(20) > 0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    return WEXITSTATUS(status) != 0;
}

static void test_warps_ahead()
{
    EXPECT(is_overwritten<false>("0"));
    EXPECT(!is_overwritten<false>("1") && !is_overwritten<false>("2"));
    EXPECT(is_overwritten<false>("4") && is_overwritten<false>("6"));
    for (const char *threads : {"0", "1", "2", "3", "4", "5", "6"})
        EXPECT(!is_overwritten<true>(threads));
}

static void test_limits()
{
    cudaStream_t stream = open_stream();
    on_device<int> x(1);
    MICS_LAUNCH(set_to, 1, 1025, 0, stream, x.at, 1);
    EXPECT(cudaGetLastError() == cudaErrorInvalidConfiguration);
    MICS_LAUNCH(set_to, 0, 32, 0, stream, x.at, 1);
    EXPECT(cudaGetLastError() == cudaErrorInvalidConfiguration);
    MICS_LAUNCH(reverse, 1, 1, 49153, stream, x.at);
    EXPECT(cudaGetLastError() == cudaErrorInvalidValue);
    EXPECT(MICS_ALLOW_SHARED(reverse, 100000));
    MICS_LAUNCH(reverse, 1, 1, 100000, stream, x.at);
    EXPECT(cudaGetLastError() == cudaSuccess);
    EXPECT(!MICS_ALLOW_SHARED(reverse, 232449));
    EXPECT(cudaGetLastError() == cudaErrorInvalidValue);
    void *block = nullptr;
    EXPECT(cudaMalloc(&block, (size_t)1 << 40) == cudaErrorMemoryAllocation);
    cudaGetLastError();
    EXPECT(cudaStreamSynchronize(stream) == cudaSuccess);
    cudaStreamDestroy(stream);
}

int main()
{
    setenv("MICS_EMULATED_ORDER", "lazy", 1);
    test_mistakes();
    test_warps_ahead();
    unsetenv("MICS_EMULATED_ORDER");
    test_blocks();
    test_warps();
    test_product<__nv_bfloat16>();
    test_product<__half>();
    test_halves();
    test_streams();
    test_graphs();
    test_missing_barrier();
    test_limits();
    registers(GOOD);
    return failures != 0;
}
