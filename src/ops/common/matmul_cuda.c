// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Row-major GEMMs by cuBLASLt, which thinks in columns: a row-major (R, S) matrix is a
// column-major (S, R) one, so C = A B is computed as C^T = B^T A^T, with our B as the library's A
// and ours A as its B. Rows of its result are our columns.
//
// A plan's key: all that may change the choice of algorithm, alignments included. A plan is made at
// the first call with its key and changes by measuring alone: equal calls give equal bits, and later
// calls allocate nothing. `lock` is held while the table is searched and while a plan's descriptor
// carries a call's pointers.
#include "ops/common/matmul_cuda.h"
#include "base/clock.h"
#include "base/hash.h"
#include "ops/common/def.h"
#include <cublasLt.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// Everything that the choice of an algorithm may depend on; compared as bytes, so it is zeroed
// before it is filled.
typedef struct plan_key {
    int64_t M, N, K, lda, ldb, ldc;
    uint64_t workspace_bytes;
    mics_dtype dtype, dtype_c;
    mics_cuda_epilogue epilogue;
    uint8_t transpose_a, transpose_b, add, tf32;
    uint8_t align_a, align_b, align_c, align_vector, align_aux, align_residual;
    uint8_t unused[10]; // no padding
} plan_key;

typedef struct plan {
    plan_key key;
    bool usable, measured;
    cublasLtMatmulDesc_t operation;
    cublasLtMatrixLayout_t a, b, c; // in the library's order
    cublasLtMatmulAlgo_t algorithm;
} plan;

// A choice as it is saved.
typedef struct saved_choice {
    plan_key key;
    cublasLtMatmulAlgo_t algorithm;
} saved_choice;

typedef struct matmul {
    pthread_mutex_t lock;
    cublasLtHandle_t handle;
    bool tf32;
    double time_until_us; // until then, by mics_clock_us, new plans are measured
    plan **slots;         // open addressing; a power of two of them, at most half of them taken
    int64_t slot_count, plan_count;
    saved_choice *saved; // loaded; looked through when a plan is made
    int64_t saved_count;
} matmul;

enum { FIRST_SLOTS = 256, MAX_CANDIDATES = 16, TIMED_RUNS = 10 };

static void fail(const mics_device *device, const char *call, cublasStatus_t status)
{
    char text[96];
    snprintf(text, sizeof text, "%s: %s", call, cublasLtGetStatusName(status));
    device->ops->fail(device->ctx, text);
}

// ---- what is kept beside a device ----

static void plan_close(plan *p)
{
    if (!p)
        return;
    cublasLtMatmulDescDestroy(p->operation);
    cublasLtMatrixLayoutDestroy(p->a);
    cublasLtMatrixLayoutDestroy(p->b);
    cublasLtMatrixLayoutDestroy(p->c);
    free(p);
}

static void matmul_close(void *object)
{
    matmul *m = object;
    for (int64_t i = 0; m->slots != NULL && i < m->slot_count; ++i)
        plan_close(m->slots[i]);
    if (m->handle)
        cublasLtDestroy(m->handle);
    pthread_mutex_destroy(&m->lock);
    free(m->saved);
    free(m->slots);
    free(m);
}

static matmul *matmul_open(mics_device *device)
{
    matmul *m = calloc(1, sizeof *m);
    if (!m || pthread_mutex_init(&m->lock, NULL) != 0) {
        free(m);
        return NULL;
    }
    m->slots = calloc(FIRST_SLOTS, sizeof(plan *));
    m->slot_count = m->slots ? FIRST_SLOTS : 0;
    const cublasStatus_t status = cublasLtCreate(&m->handle);
    if (!m->slots || status != CUBLAS_STATUS_SUCCESS) {
        fail(device, "cublasLtCreate", m->slots ? status : CUBLAS_STATUS_ALLOC_FAILED);
        matmul_close(m);
        return NULL;
    }
    return m;
}

// Two threads that meet a new device at once must not both open it. The library works for the
// thread's current GPU, which asking for a stream sets.
static matmul *matmul_of(mics_device *device)
{
    device->ops->stream_handle(device->ctx, 0);
    static pthread_mutex_t opening = PTHREAD_MUTEX_INITIALIZER;
    pthread_mutex_lock(&opening);
    matmul *m = device->ops->kept(device->ctx, MICS_DEVICE_GEMMS);
    if (!m) {
        m = matmul_open(device);
        if (m)
            device->ops->keep(device->ctx, MICS_DEVICE_GEMMS, m, matmul_close);
    }
    pthread_mutex_unlock(&opening);
    return m;
}

// ---- the table of plans ----

static uint64_t hash_of(const plan_key *key)
{
    return mics_fnv1a(MICS_FNV1A_BEGIN, key, sizeof *key);
}

// Where a key's plan is, or would be put.
static plan **slot_of(plan **slots, int64_t count, const plan_key *key)
{
    uint64_t i = hash_of(key) & (uint64_t)(count - 1);
    while (slots[i] && memcmp(&slots[i]->key, key, sizeof *key) != 0)
        i = (i + 1) & (uint64_t)(count - 1);
    return &slots[i];
}

static bool table_grow(matmul *m)
{
    const int64_t count = 2 * m->slot_count;
    plan **slots = calloc((size_t)count, sizeof(plan *));
    if (!slots)
        return false;
    for (int64_t i = 0; i < m->slot_count; ++i) {
        if (m->slots[i])
            *slot_of(slots, count, &m->slots[i]->key) = m->slots[i];
    }
    free(m->slots);
    m->slots = slots;
    m->slot_count = count;
    return true;
}

// Bytes that an address is aligned to, at most 16: the widest load of one thread, and what the
// tensor memory accelerator asks of an address. More would only make more plans of one shape.
static uint8_t alignment_of(const void *address)
{
    const uintptr_t low = (uintptr_t)address & 15;
    return (uint8_t)(low ? low & (~low + 1) : 16);
}

static plan_key key_of(const matmul *m, const mics_exec *at, const mics_cuda_gemm *p,
                       size_t workspace_bytes)
{
    plan_key key;
    memset(&key, 0, sizeof key);
    key.M = p->M;
    key.N = p->N;
    key.K = p->K;
    key.lda = p->lda;
    key.ldb = p->ldb;
    key.ldc = p->ldc;
    key.workspace_bytes = (uint64_t)mics_smaller((int64_t)workspace_bytes, MICS_GEMM_BYTES);
    key.dtype = at->dtype;
    key.dtype_c = p->wide ? MICS_DTYPE_FP32 : at->dtype;
    key.epilogue = p->epilogue;
    key.transpose_a = p->transpose_a;
    key.transpose_b = p->transpose_b;
    key.add = p->add || p->residual;
    key.tf32 = m->tf32 && at->dtype == MICS_DTYPE_FP32;
    key.align_a = alignment_of(p->a);
    key.align_b = alignment_of(p->b);
    key.align_c = alignment_of(p->c);
    key.align_vector = alignment_of(p->vector);
    key.align_aux = alignment_of(p->aux);
    key.align_residual = p->residual ? alignment_of(p->residual) : 0;
    return key;
}

// ---- plans ----

static cudaDataType_t library_type(mics_dtype dtype)
{
    return dtype == MICS_DTYPE_FP32 ? CUDA_R_32F
                                    : (dtype == MICS_DTYPE_BF16 ? CUDA_R_16BF : CUDA_R_16F);
}

// Our A is the library's B.
static const uint32_t library_epilogue[] = {
    [MICS_CUDA_EPILOGUE_NONE] = CUBLASLT_EPILOGUE_DEFAULT,
    [MICS_CUDA_EPILOGUE_BIAS] = CUBLASLT_EPILOGUE_BIAS,
    [MICS_CUDA_EPILOGUE_GELU] = CUBLASLT_EPILOGUE_GELU_AUX,
    [MICS_CUDA_EPILOGUE_BIAS_GELU] = CUBLASLT_EPILOGUE_GELU_AUX_BIAS,
    [MICS_CUDA_EPILOGUE_DGELU] = CUBLASLT_EPILOGUE_DGELU,
    [MICS_CUDA_EPILOGUE_SUM_A] = CUBLASLT_EPILOGUE_BGRADB,
    [MICS_CUDA_EPILOGUE_SUM_B] = CUBLASLT_EPILOGUE_BGRADA,
};

static bool set(cublasLtMatmulDesc_t operation, cublasLtMatmulDescAttributes_t attribute,
                const void *value, size_t bytes)
{
    return cublasLtMatmulDescSetAttribute(operation, attribute, value, bytes) ==
           CUBLAS_STATUS_SUCCESS;
}

// Heuristics look at the pointers too: at their alignment.
static bool set_pointers(const plan *p, void *vector, void *aux)
{
    return (!vector ||
            set(p->operation, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &vector, sizeof vector)) &&
           (!aux || set(p->operation, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, &aux, sizeof aux));
}

static bool with_aux(const plan_key *key)
{
    return key->epilogue == MICS_CUDA_EPILOGUE_GELU ||
           key->epilogue == MICS_CUDA_EPILOGUE_BIAS_GELU ||
           key->epilogue == MICS_CUDA_EPILOGUE_DGELU;
}

// What documentation demands of an aux matrix (CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD) is not left to
// heuristics to refuse.
static bool permitted(const plan_key *key)
{
    return !with_aux(key) || (key->N % 8 == 0 && key->align_aux == 16);
}

static bool describe_operation(plan *p)
{
    const plan_key *key = &p->key;
    const int32_t transpose_a = key->transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N;
    const int32_t transpose_b = key->transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N;
    const uint32_t epilogue = library_epilogue[key->epilogue];
    const int64_t aux_ld = key->N;
    if (cublasLtMatmulDescCreate(&p->operation,
                                 key->tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F,
                                 CUDA_R_32F) != CUBLAS_STATUS_SUCCESS)
        return false;
    return set(p->operation, CUBLASLT_MATMUL_DESC_TRANSA, &transpose_a, sizeof transpose_a) &&
           set(p->operation, CUBLASLT_MATMUL_DESC_TRANSB, &transpose_b, sizeof transpose_b) &&
           set(p->operation, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof epilogue) &&
           (!with_aux(key) ||
            set(p->operation, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, &aux_ld, sizeof aux_ld));
}

// A row-major (rows, columns) matrix as the library sees it.
static bool describe_matrix(cublasLtMatrixLayout_t *layout, mics_dtype dtype, int64_t rows,
                            int64_t columns, int64_t ld)
{
    return cublasLtMatrixLayoutCreate(layout, library_type(dtype), (uint64_t)columns,
                                      (uint64_t)rows, ld) == CUBLAS_STATUS_SUCCESS;
}

static bool describe(plan *p)
{
    const plan_key *k = &p->key;
    return describe_operation(p) &&
           describe_matrix(&p->a, k->dtype, k->transpose_b ? k->N : k->K,
                           k->transpose_b ? k->K : k->N, k->ldb) &&
           describe_matrix(&p->b, k->dtype, k->transpose_a ? k->K : k->M,
                           k->transpose_a ? k->M : k->K, k->lda) &&
           describe_matrix(&p->c, k->dtype_c, k->M, k->N, k->ldc);
}

// Split sums only where partial sums stay in fp32 and are added in a step of their own: one
// rounding, in a fixed order.
static bool prefer(cublasLtMatmulPreference_t preference, const plan_key *key)
{
    const struct {
        cublasLtMatmulPreferenceAttributes_t name;
        uint32_t value;
    } values[] = {
        {CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, key->align_b},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, key->align_a},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES,
         key->align_residual ? key->align_residual : key->align_c},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, key->align_c},
    };
    bool good = cublasLtMatmulPreferenceSetAttribute(
                    preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &key->workspace_bytes,
                    sizeof key->workspace_bytes) == CUBLAS_STATUS_SUCCESS;
    for (size_t i = 0; i < sizeof values / sizeof *values; ++i) {
        good = good && cublasLtMatmulPreferenceSetAttribute(
                           preference, values[i].name, &values[i].value, sizeof values[i].value) ==
                           CUBLAS_STATUS_SUCCESS;
    }
    return good;
}

// Up to `capacity` algorithms, what the library thinks fastest first; how many there are.
static int candidates(const matmul *m, const plan *p, cublasLtMatmulHeuristicResult_t *results,
                      int capacity)
{
    cublasLtMatmulPreference_t preference = NULL;
    int found = 0;
    if (cublasLtMatmulPreferenceCreate(&preference) != CUBLAS_STATUS_SUCCESS)
        return 0;
    if (prefer(preference, &p->key) &&
        cublasLtMatmulAlgoGetHeuristic(m->handle, p->operation, p->a, p->b, p->c, p->c, preference,
                                       capacity, results, &found) != CUBLAS_STATUS_SUCCESS)
        found = 0;
    cublasLtMatmulPreferenceDestroy(preference);
    int usable = 0;
    for (int i = 0; i < found; ++i) {
        if (results[i].state == CUBLAS_STATUS_SUCCESS)
            results[usable++] = results[i];
    }
    return usable;
}

// A loaded choice, if there is one for this plan and the library confirms it here.
static bool take_saved(const matmul *m, plan *p)
{
    for (int64_t i = 0; i < m->saved_count; ++i) {
        if (memcmp(&m->saved[i].key, &p->key, sizeof p->key) != 0)
            continue;
        cublasLtMatmulHeuristicResult_t result;
        if (cublasLtMatmulAlgoCheck(m->handle, p->operation, p->a, p->b, p->c, p->c,
                                    &m->saved[i].algorithm, &result) != CUBLAS_STATUS_SUCCESS ||
            result.workspaceSize > p->key.workspace_bytes)
            return false;
        p->algorithm = m->saved[i].algorithm;
        p->measured = true;
        return true;
    }
    return false;
}

static plan *plan_open(const matmul *m, const plan_key *key, void *vector, void *aux)
{
    plan *p = calloc(1, sizeof *p);
    if (!p)
        return NULL;
    p->key = *key;
    if (!describe(p) || !set_pointers(p, vector, aux)) {
        plan_close(p);
        return NULL;
    }
    cublasLtMatmulHeuristicResult_t best;
    if (!permitted(key))
        return p;
    p->usable = take_saved(m, p);
    if (!p->usable && candidates(m, p, &best, 1) > 0) {
        p->algorithm = best.algo;
        p->usable = true;
    }
    return p;
}

// With the lock held. NULL: out of memory, or the library refused what must be possible.
static plan *plan_for(matmul *m, const plan_key *key, void *vector, void *aux)
{
    plan **slot = slot_of(m->slots, m->slot_count, key);
    plan *known = *slot;
    if (known != NULL)
        return known;
    if (2 * (m->plan_count + 1) > m->slot_count) {
        if (!table_grow(m))
            return NULL;
        slot = slot_of(m->slots, m->slot_count, key);
    }
    *slot = plan_open(m, key, vector, aux);
    if (*slot)
        m->plan_count++;
    return *slot;
}

// ---- running a plan ----

static cublasStatus_t enqueue(const matmul *m, const plan *p, const mics_exec *at,
                              const mics_cuda_gemm *gemm, const cublasLtMatmulAlgo_t *algorithm,
                              void *workspace)
{
    const float alpha = gemm->alpha != 0 ? gemm->alpha : 1.0F, beta = p->key.add ? 1.0F : 0.0F;
    const void *added = gemm->residual ? gemm->residual : gemm->c;
    if (!set_pointers(p, gemm->vector, gemm->aux))
        return CUBLAS_STATUS_INVALID_VALUE;
    return cublasLtMatmul(m->handle, p->operation, &alpha, gemm->b, p->a, gemm->a, p->b, &beta,
                          added, p->c, gemm->c, p->c, algorithm, workspace, p->key.workspace_bytes,
                          at->device->ops->stream_handle(at->device->ctx, at->stream));
}

// ---- choosing by time ----

// Microseconds of one run: the mean of several, after one that nobody times.
static mics_status time_one(const matmul *m, const plan *p, const mics_exec *at,
                            const mics_cuda_gemm *gemm, const cublasLtMatmulAlgo_t *algorithm,
                            void *workspace, double *us_out)
{
    const mics_device *device = at->device;
    if (enqueue(m, p, at, gemm, algorithm, workspace) != CUBLAS_STATUS_SUCCESS)
        return MICS_ERR_UNSUPPORTED;
    MICS_TRY(device->ops->synchronize(device->ctx, at->stream));
    const double begin = mics_clock_us();
    for (int i = 0; i < TIMED_RUNS; ++i) {
        if (enqueue(m, p, at, gemm, algorithm, workspace) != CUBLAS_STATUS_SUCCESS)
            return MICS_ERR_UNSUPPORTED;
    }
    MICS_TRY(device->ops->synchronize(device->ctx, at->stream));
    *us_out = (mics_clock_us() - begin) / TIMED_RUNS;
    return MICS_OK;
}

// With the lock held. Later candidates must be 2 % faster than the best so far, so that noise does
// not decide between equals. A device that fails says so in its check.
static void measure(const matmul *m, plan *p, const mics_exec *at, const mics_cuda_gemm *gemm,
                    void *workspace)
{
    cublasLtMatmulHeuristicResult_t results[MAX_CANDIDATES];
    const int count =
        set_pointers(p, gemm->vector, gemm->aux) ? candidates(m, p, results, MAX_CANDIDATES) : 0;
    double best = 0;
    int chosen = -1;
    for (int i = 0; i < count; ++i) {
        double us;
        const mics_status status = time_one(m, p, at, gemm, &results[i].algo, workspace, &us);
        if (status == MICS_ERR_UNSUPPORTED)
            continue;
        if (status != MICS_OK)
            return;
        if (chosen < 0 || us < 0.98 * best) {
            best = us;
            chosen = i;
        }
    }
    if (chosen < 0)
        return;
    p->algorithm = results[chosen].algo;
    p->measured = true;
}

void mics_cuda_matmul_time(mics_device *device, double seconds)
{
    matmul *m = matmul_of(device);
    if (!m)
        return;
    pthread_mutex_lock(&m->lock);
    m->time_until_us = seconds > 0 ? mics_clock_us() + 1e6 * seconds : 0;
    pthread_mutex_unlock(&m->lock);
}

// ---- GEMMs ----

// What a library may lack; the caller has another way then.
static bool may_lack(const mics_cuda_gemm *gemm)
{
    return gemm->epilogue != MICS_CUDA_EPILOGUE_NONE || gemm->residual != NULL;
}

bool mics_cuda_matmul(const mics_exec *at, const mics_cuda_gemm *gemm, void *workspace,
                      size_t workspace_bytes)
{
    matmul *m = matmul_of(at->device);
    if (!m)
        return true;
    pthread_mutex_lock(&m->lock);
    const plan_key key = key_of(m, at, gemm, workspace_bytes);
    plan *p = plan_for(m, &key, gemm->vector, gemm->aux);
    if (p && p->usable && !p->measured && m->time_until_us > 0 &&
        mics_clock_us() < m->time_until_us)
        measure(m, p, at, gemm, workspace);
    const bool usable = p && p->usable;
    const cublasStatus_t status =
        usable ? enqueue(m, p, at, gemm, &p->algorithm, workspace) : CUBLAS_STATUS_SUCCESS;
    pthread_mutex_unlock(&m->lock);
    if (!p)
        fail(at->device, "a plan for cublasLtMatmul", CUBLAS_STATUS_ALLOC_FAILED);
    else if (!usable && !may_lack(gemm))
        fail(at->device, "cublasLtMatmulAlgoGetHeuristic", CUBLAS_STATUS_NOT_SUPPORTED);
    else if (status != CUBLAS_STATUS_SUCCESS)
        fail(at->device, "cublasLtMatmul", status);
    return usable || !p || !may_lack(gemm);
}

void mics_cuda_matmul_allow_tf32(mics_device *device, bool allow)
{
    matmul *m = matmul_of(device);
    if (!m)
        return;
    pthread_mutex_lock(&m->lock);
    m->tf32 = allow;
    pthread_mutex_unlock(&m->lock);
}

bool mics_cuda_matmul_has_tf32(mics_device *device)
{
    matmul *m = matmul_of(device);
    if (!m)
        return false;
    pthread_mutex_lock(&m->lock);
    const bool allowed = m->tf32;
    pthread_mutex_unlock(&m->lock);
    return allowed;
}

// ---- choices as bytes ----

typedef struct saved_head {
    char what[16]; // "mics products 1"
    uint64_t library_version;
    char chip[96];
    int64_t count;
} saved_head;

static saved_head head_of(const mics_device *device)
{
    mics_device_info info;
    memset(&info, 0, sizeof info);
    device->ops->info(device->ctx, &info);
    saved_head head;
    memset(&head, 0, sizeof head);
    snprintf(head.what, sizeof head.what, "mics products 1");
    head.library_version = cublasLtGetVersion();
    snprintf(head.chip, sizeof head.chip, "%s", info.name);
    return head;
}

size_t mics_cuda_matmul_save(mics_device *device, void *bytes, size_t capacity)
{
    matmul *m = matmul_of(device);
    if (!m)
        return 0;
    saved_head head = head_of(device);
    char *to = bytes;
    size_t size = sizeof head;
    pthread_mutex_lock(&m->lock);
    for (int64_t i = 0; i < m->slot_count; ++i) {
        const plan *p = m->slots[i];
        if (!p || !p->measured)
            continue;
        saved_choice choice;
        memset(&choice, 0, sizeof choice);
        choice.key = p->key;
        choice.algorithm = p->algorithm;
        if (size + sizeof choice <= capacity)
            memcpy(to + size, &choice, sizeof choice);
        size += sizeof choice;
        head.count++;
    }
    pthread_mutex_unlock(&m->lock);
    if (sizeof head <= capacity)
        memcpy(to, &head, sizeof head);
    return size;
}

mics_status mics_cuda_matmul_load(mics_device *device, const void *bytes, size_t size)
{
    matmul *m = matmul_of(device);
    if (!m)
        return MICS_ERR_DEVICE;
    saved_head head, here = head_of(device);
    if (size < sizeof head)
        return MICS_ERR_FORMAT;
    memcpy(&head, bytes, sizeof head);
    const size_t rest = size - sizeof head;
    here.count = head.count;
    if (memcmp(&head, &here, sizeof head) != 0 || head.count < 0 ||
        rest % sizeof(saved_choice) != 0 || (uint64_t)head.count != rest / sizeof(saved_choice))
        return MICS_ERR_FORMAT;
    saved_choice *saved = calloc((size_t)head.count + 1, sizeof *saved);
    if (!saved)
        return MICS_ERR_MEMORY;
    memcpy(saved, (const char *)bytes + sizeof head, rest);
    pthread_mutex_lock(&m->lock);
    free(m->saved);
    m->saved = saved;
    m->saved_count = head.count;
    pthread_mutex_unlock(&m->lock);
    return MICS_OK;
}

void mics_cuda_matmul_count(mics_device *device, int64_t *plans_out, int64_t *measured_out)
{
    matmul *m = matmul_of(device);
    *plans_out = *measured_out = 0;
    if (!m)
        return;
    pthread_mutex_lock(&m->lock);
    *plans_out = m->plan_count;
    for (int64_t i = 0; i < m->slot_count; ++i)
        *measured_out += m->slots[i] && m->slots[i]->measured;
    pthread_mutex_unlock(&m->lock);
}
