// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// The graphs that attention gives to cuDNN, before NVIDIA's own library and without a GPU: cuDNN
// finalises descriptors and graphs, and names engines and their workspaces, for a GPU that is
// described to it (CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR). Plans are not made: they load kernels.
// Skipped where libcudnn.so.9 is not, or nothing takes the place of the driver's libcuda.so.1.
#include "ops/attention/cudnn_graph.h"
#include "ops/attention/def.h"
#include <dlfcn.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { DEVICE = 38, DEVICE_JSON = 2702, IS_CHAR = 24, HEURISTICS_DEVICE = 204 };
enum { MAX_KNOWN = 256 };

static cudnn_library real; // of the library

// What stands between the graphs and the library.
static struct {
    cudnn_descriptor device;
    struct {
        cudnn_descriptor descriptor;
        int kind;
    } known[MAX_KNOWN];
    int known_count;
    int64_t workspace; // of the newest configuration that was asked
} between;

static int kind_of(cudnn_descriptor descriptor)
{
    for (int i = between.known_count - 1; i >= 0; i--)
        if (between.known[i].descriptor == descriptor)
            return between.known[i].kind;
    return -1;
}

static int create(int kind, cudnn_descriptor *descriptor)
{
    const int status = real.BackendCreateDescriptor(kind, descriptor);
    assert_true(between.known_count < MAX_KNOWN);
    between.known[between.known_count].descriptor = *descriptor;
    between.known[between.known_count++].kind = kind;
    return status;
}

static int finalize(cudnn_descriptor descriptor)
{
    const int kind = kind_of(descriptor);
    if (kind == CUDNN_PLAN)
        return CUDNN_OK;
    if (kind == CUDNN_HEURISTICS)
        assert_int_equal(real.BackendSetAttribute(descriptor, HEURISTICS_DEVICE,
                                                  CUDNN_IS_DESCRIPTOR, 1, &between.device),
                         CUDNN_OK);
    return real.BackendFinalize(descriptor);
}

// There is no handle without a GPU.
static int set(cudnn_descriptor descriptor, int name, int type, int64_t count, const void *values)
{
    if (type == CUDNN_IS_HANDLE)
        return CUDNN_OK;
    return real.BackendSetAttribute(descriptor, name, type, count, values);
}

static int get(cudnn_descriptor descriptor, int name, int type, int64_t capacity, int64_t *count,
               void *values)
{
    if (name == CUDNN_PLAN_WORKSPACE) {
        memcpy(values, &between.workspace, sizeof between.workspace);
        return CUDNN_OK;
    }
    const int status = real.BackendGetAttribute(descriptor, name, type, capacity, count, values);
    if (name == CUDNN_CONFIG_WORKSPACE)
        memcpy(&between.workspace, values, sizeof between.workspace);
    return status;
}

// ---- a GPU ----

typedef struct gpu {
    int capability, processors, shared;
    const char *name;
} gpu;

static const gpu gpus[] = {{800, 108, 166912, "NVIDIA A100-SXM4-80GB"},
                           {900, 132, 232448, "NVIDIA H100 80GB HBM3"},
                           {1000, 148, 232448, "NVIDIA B200"}};

static void describe(const gpu *of)
{
    char json[1024];
    snprintf(json, sizeof json,
             "{\"cudaDeviceId\": 0, \"deviceVer\": %d, \"driverVer\": 13000, "
             "\"totalGlobalMem\": 85899345920, \"maxGridSize\": [2147483647, 65535, 65535], "
             "\"maxBlockSize\": [1024, 1024, 64], \"regsPerBlock\": 65536, "
             "\"multiProcessorCount\": %d, \"warpSize\": 32, \"maxSharedMemoryPerBlock\": 49152, "
             "\"maxSharedMemoryPerBlockOptin\": %d, \"reservedSharedMemoryPerBlock\": 1024, "
             "\"maxRegistersPerSM\": 65536, \"maxCtasPerSM\": 32, \"maxThreadsPerBlock\": 1024, "
             "\"maxThreadsPerSM\": 2048, \"pciDeviceId\": 0, \"isTccDriver\": 0, "
             "\"supportCoopLaunch\": 1, \"smClockRateKHz\": 1980000, \"memClockRateKHz\": 2619000, "
             "\"l2CacheSize\": 52428800, \"deviceName\": \"%s\"}",
             of->capability, of->processors, of->shared, of->name);
    assert_int_equal(real.BackendCreateDescriptor(DEVICE, &between.device), CUDNN_OK);
    assert_int_equal(
        real.BackendSetAttribute(between.device, DEVICE_JSON, IS_CHAR, (int64_t)strlen(json), json),
        CUDNN_OK);
    assert_int_equal(real.BackendFinalize(between.device), CUDNN_OK);
}

// ---- shapes ----

typedef struct shape {
    int64_t B, T;
    mics_heads heads;
} shape;

// Of models: 1.5B, 124M, Llama-8B, Qwen; and around the borders of tiles.
static const shape shapes[] = {
    {8, 1024, {25, 25, 64}}, {4, 1024, {12, 12, 64}}, {1, 8192, {32, 8, 128}},
    {2, 2048, {14, 2, 64}},  {1, 1, {2, 2, 64}},      {2, 65, {3, 3, 64}},
    {1, 200, {2, 2, 40}},    {3, 130, {5, 1, 72}},    {1, 1025, {2, 2, 8}},
    {2, 1032, {4, 1, 128}},  {1, 1000, {4, 2, 96}}};

static const cudnn_library through = {.BackendCreateDescriptor = create,
                                      .BackendFinalize = finalize,
                                      .BackendSetAttribute = set,
                                      .BackendGetAttribute = get};

static cudnn_library library_through(void)
{
    cudnn_library library = through;
    library.GetLastErrorString = real.GetLastErrorString;
    library.BackendDestroyDescriptor = real.BackendDestroyDescriptor;
    return library;
}

static void check(const cudnn_attention *of, int64_t bytes, const char *name)
{
    char why_not[256] = "";
    const cudnn_library library = library_through();
    between.known_count = 0;
    cudnn_plan *plan = cudnn_plan_open(&library, NULL, of, bytes, why_not, sizeof why_not);
    if (plan == NULL)
        fail_msg("%s, %s, %d x %d tokens, heads %d/%d of %d: %s", name,
                 of->backward ? "backward" : "forward", (int)of->sequences, (int)of->T,
                 (int)of->heads.query, (int)of->heads.key_value, (int)of->heads.dim, why_not);
    cudnn_plan_close(plan);
    assert_true(between.workspace <= bytes);
}

static void test_less_workspace(void **state)
{
    (void)state;
    char why_not[256] = "";
    const cudnn_library library = library_through();
    const mics_heads heads = {4, 4, 64};
    const cudnn_attention of = {.sequences = 1,
                                .T = 256,
                                .heads = heads,
                                .all = heads,
                                .type = CUDNN_BF16,
                                .causal = true,
                                .backward = true};
    describe(&gpus[1]);
    between.known_count = 0;
    assert_null(cudnn_plan_open(&library, NULL, &of, 4 * 256 * 256, why_not, sizeof why_not));
    assert_non_null(strstr(why_not, "cuDNN asks for a workspace of "));
    real.BackendDestroyDescriptor(between.device);
}

static void check_shape(const shape *s, int type, bool causal, const char *name)
{
    const int64_t shared = s->heads.query / s->heads.key_value;
    const mics_cudnn_chunk chunk = mics_cudnn_chunk_of(s->B, s->T, s->heads);
    cudnn_attention of = {.sequences = s->B,
                          .T = s->T,
                          .heads = s->heads,
                          .all = s->heads,
                          .type = type,
                          .causal = causal};
    check(&of, MICS_CUDNN_SMALL_BYTES, name);
    of.backward = true;
    of.sequences = chunk.sequences;
    of.heads.query = chunk.heads * shared;
    of.heads.key_value = chunk.heads;
    check(&of, mics_cudnn_bytes(s->T, s->heads, chunk), name);
}

static void test_shapes(void **state)
{
    (void)state;
    for (size_t g = 0; g < sizeof gpus / sizeof *gpus; g++) {
        describe(&gpus[g]);
        for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
            check_shape(&shapes[i], i % 4 == 3 ? CUDNN_HALF : CUDNN_BF16, i % 3 != 2 || i == 2,
                        gpus[g].name);
        real.BackendDestroyDescriptor(between.device);
    }
}

// ---- the library ----

static bool take(void *handle, const char *name, void *function_out)
{
    void *address = dlsym(handle, name);
    memcpy(function_out, &address, sizeof address);
    return address != NULL;
}

// cuDNN looks for the driver's library, and calls nothing of it here: the toolkit's stub will do.
static bool open_driver(void)
{
    static const char *const names[] = {"libcuda.so.1", "/usr/local/cuda/lib64/stubs/libcuda.so",
                                        "/usr/local/cuda/lib/stubs/libcuda.so"};
    void *handle = NULL;
    for (size_t i = 0; handle == NULL && i < sizeof names / sizeof *names; i++)
        handle = dlopen(names[i], RTLD_NOW | RTLD_GLOBAL);
    return handle != NULL;
}

static bool open_real(void)
{
    const char *asked = getenv("MICS_CUDNN_LIBRARY");
    void *handle = dlopen(asked != NULL ? asked : "libcudnn.so.9", RTLD_NOW | RTLD_LOCAL);
    if (handle == NULL && asked == NULL)
        handle = dlopen("/usr/local/cuda/lib64/libcudnn.so.9", RTLD_NOW | RTLD_LOCAL);
    return handle != NULL && take(handle, "cudnnGetVersion", &real.GetVersion) &&
           take(handle, "cudnnGetLastErrorString", &real.GetLastErrorString) &&
           take(handle, "cudnnBackendCreateDescriptor", &real.BackendCreateDescriptor) &&
           take(handle, "cudnnBackendDestroyDescriptor", &real.BackendDestroyDescriptor) &&
           take(handle, "cudnnBackendFinalize", &real.BackendFinalize) &&
           take(handle, "cudnnBackendSetAttribute", &real.BackendSetAttribute) &&
           take(handle, "cudnnBackendGetAttribute", &real.BackendGetAttribute);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_shapes),
                                       cmocka_unit_test(test_less_workspace)};
    if (!open_real() || !open_driver()) {
        fprintf(stderr, "skipped: no libcudnn.so.9 (MICS_CUDNN_LIBRARY), or no libcuda.so.1\n");
        return 77;
    }
    if (real.GetVersion() < 91600) {
        fprintf(stderr, "skipped: cuDNN is older than 9.16\n");
        return 77;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
