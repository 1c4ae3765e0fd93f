// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// What is prepared for a shape stands in a table of fixed size, also that nothing could be; a shape
// that it has no room for is prepared at each call. Entries stay until the process ends.
#include "ops/common/gemm_dnnl.h"
#include "ops/gemm/def.h"
#include <oneapi/dnnl/dnnl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_PLANS = 256, ALIGNMENT = 64, MAX_ARGS = 5 };

// What a plan depends on; without padding, as it is compared by bytes.
typedef struct shape {
    int64_t M, N, K, lda, ldb, ldc;
    int32_t threads, transpose_a, transpose_b, add, wide, bias;
} shape;

typedef struct plan {
    shape of;
    dnnl_primitive_t primitive; // NULL: the library has none for it
    size_t scratch_bytes;
} plan;

static struct {
    pthread_mutex_t lock;
    dnnl_engine_t engine;
    int32_t count;
    plan plans[MAX_PLANS];
} cache = {.lock = PTHREAD_MUTEX_INITIALIZER};

static shape shape_of(const mics_exec *at, const mics_gemm_spec *gemm)
{
    shape s;
    memset(&s, 0, sizeof s); // compared as bytes
    s.M = gemm->M;
    s.N = gemm->N;
    s.K = gemm->K;
    s.lda = gemm->lda;
    s.ldb = gemm->ldb;
    s.ldc = gemm->ldc;
    s.threads = at->threads;
    s.transpose_a = gemm->transpose_a;
    s.transpose_b = gemm->transpose_b;
    s.add = gemm->add;
    s.wide = gemm->wide;
    s.bias = gemm->bias != NULL;
    return s;
}

// ---- what differs between oneDNN 2 and 3 ----

#if DNNL_VERSION_MAJOR >= 3

typedef dnnl_memory_desc_t tensor;

static tensor tensor_of(int64_t rows, int64_t columns, dnnl_data_type_t type, int64_t row_stride,
                        int64_t column_stride)
{
    const dnnl_dims_t dims = {rows, columns}, strides = {row_stride, column_stride};
    tensor made = NULL;
    dnnl_memory_desc_create_with_strides(&made, 2, dims, type, strides);
    return made;
}

static void tensor_free(tensor *t)
{
    if (*t != NULL)
        dnnl_memory_desc_destroy(*t);
}

static dnnl_status_t append_sum(dnnl_post_ops_t post)
{
    return dnnl_post_ops_append_sum(post, 1.0F, 0, dnnl_data_type_undef);
}

static dnnl_status_t describe(dnnl_primitive_desc_t *desc, const tensor t[4], bool bias,
                              const_dnnl_primitive_attr_t attr)
{
    return dnnl_matmul_primitive_desc_create(desc, cache.engine, t[0], t[1], bias ? t[2] : NULL,
                                             t[3], attr);
}

static dnnl_status_t memory_of(dnnl_memory_t *memory, const tensor *t, void *data)
{
    return dnnl_memory_create(memory, *t, cache.engine, data);
}

#else

typedef dnnl_memory_desc_t tensor;

static tensor tensor_of(int64_t rows, int64_t columns, dnnl_data_type_t type, int64_t row_stride,
                        int64_t column_stride)
{
    const dnnl_dims_t dims = {rows, columns}, strides = {row_stride, column_stride};
    tensor made;
    memset(&made, 0, sizeof made);
    dnnl_memory_desc_init_by_strides(&made, 2, dims, type, strides);
    return made;
}

static void tensor_free(tensor *t)
{
    (void)t;
}

static dnnl_status_t append_sum(dnnl_post_ops_t post)
{
    return dnnl_post_ops_append_sum(post, 1.0F);
}

static dnnl_status_t describe(dnnl_primitive_desc_t *desc, const tensor t[4], bool bias,
                              const_dnnl_primitive_attr_t attr)
{
    dnnl_matmul_desc_t matmul;
    dnnl_status_t status = dnnl_matmul_desc_init(&matmul, &t[0], &t[1], bias ? &t[2] : NULL, &t[3]);
    if (status == dnnl_success)
        status = dnnl_primitive_desc_create(desc, &matmul, attr, cache.engine, NULL);
    return status;
}

static dnnl_status_t memory_of(dnnl_memory_t *memory, const tensor *t, void *data)
{
    return dnnl_memory_create(memory, t, cache.engine, data);
}

#endif

// ---- plans ----

// A, B, bias, C.
static void tensors_of(tensor t[4], const shape *s)
{
    const dnnl_data_type_t type = s->wide ? dnnl_f32 : dnnl_bf16;
    t[0] =
        tensor_of(s->M, s->K, dnnl_bf16, s->transpose_a ? 1 : s->lda, s->transpose_a ? s->lda : 1);
    t[1] =
        tensor_of(s->K, s->N, dnnl_bf16, s->transpose_b ? 1 : s->ldb, s->transpose_b ? s->ldb : 1);
    t[2] = tensor_of(1, s->N, dnnl_bf16, s->N, 1);
    t[3] = tensor_of(s->M, s->N, type, s->ldc, 1);
}

#define TRY_DNNL(call)                                                                             \
    do {                                                                                           \
        if ((call) != dnnl_success)                                                                \
            goto out;                                                                              \
    } while (0)

static void make(plan *made, const shape *s)
{
    dnnl_primitive_attr_t attr = NULL;
    dnnl_post_ops_t post = NULL;
    dnnl_primitive_desc_t desc = NULL;
    tensor t[4];
    tensors_of(t, s);
    memset(made, 0, sizeof *made);
    made->of = *s;
    if (cache.engine == NULL)
        TRY_DNNL(dnnl_engine_create(&cache.engine, dnnl_cpu, 0));
    TRY_DNNL(dnnl_primitive_attr_create(&attr));
    TRY_DNNL(dnnl_primitive_attr_set_scratchpad_mode(attr, dnnl_scratchpad_mode_user));
    TRY_DNNL(dnnl_post_ops_create(&post));
    if (s->add)
        TRY_DNNL(append_sum(post));
    TRY_DNNL(dnnl_primitive_attr_set_post_ops(attr, post));
    TRY_DNNL(describe(&desc, t, s->bias, attr));
    TRY_DNNL(dnnl_primitive_create(&made->primitive, desc));
    made->scratch_bytes =
        dnnl_memory_desc_get_size(dnnl_primitive_desc_query_md(desc, dnnl_query_scratchpad_md, 0));
out:
    for (int i = 0; i < 4; i++)
        tensor_free(&t[i]);
    if (desc != NULL)
        dnnl_primitive_desc_destroy(desc);
    if (post != NULL)
        dnnl_post_ops_destroy(post);
    if (attr != NULL)
        dnnl_primitive_attr_destroy(attr);
}

// Finds or makes a plan. `own`: the table has no room for it, and the caller destroys it.
static bool plan_for(plan *found, const shape *s, bool *own)
{
    *own = false;
    pthread_mutex_lock(&cache.lock);
    int32_t at = 0;
    while (at < cache.count && memcmp(&cache.plans[at].of, s, sizeof *s) != 0)
        ++at;
    if (at < cache.count) {
        *found = cache.plans[at];
    } else {
        make(found, s);
        *own = cache.count == MAX_PLANS;
        if (!*own)
            cache.plans[cache.count++] = *found;
    }
    pthread_mutex_unlock(&cache.lock);
    return found->primitive != NULL;
}

// Where the primitive works: in the GEMM's space if that is enough, else in a block that the caller
// frees. Returns: NULL, where it needs nothing, or for want of memory.
static void *scratch_of(const plan *p, const mics_gemm_spec *gemm, void **block_out)
{
    const size_t bytes = (size_t)mics_size_round_up((int64_t)p->scratch_bytes, ALIGNMENT);
    const size_t floats = (size_t)mics_gemm_floats_bf16(gemm->M, gemm->N, gemm->K);
    const size_t before = (size_t)(-(uintptr_t)gemm->space % ALIGNMENT);
    *block_out = NULL;
    if (bytes == 0)
        return NULL;
    if (before + bytes <= floats * sizeof(float))
        return (char *)gemm->space + before;
    return *block_out = aligned_alloc(ALIGNMENT, bytes);
}

static bool run(const plan *p, const mics_gemm_spec *gemm)
{
    void *block;
    void *data[MAX_ARGS] = {(void *)gemm->a, (void *)gemm->b, (void *)gemm->bias, gemm->c,
                            scratch_of(p, gemm, &block)};
    static const int names[MAX_ARGS] = {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_BIAS, DNNL_ARG_DST,
                                        DNNL_ARG_SCRATCHPAD};
    dnnl_exec_arg_t args[MAX_ARGS];
    tensor t[MAX_ARGS];
    dnnl_stream_t stream = NULL;
    bool done = false;
    int count = 0;
    tensors_of(t, &p->of);
    t[4] = tensor_of(1, (int64_t)p->scratch_bytes, dnnl_u8, (int64_t)p->scratch_bytes, 1);
    if (data[4] == NULL && p->scratch_bytes > 0)
        goto out;
    TRY_DNNL(dnnl_stream_create(&stream, cache.engine, dnnl_stream_default_flags));
    for (int i = 0; i < MAX_ARGS; i++) {
        if (data[i] == NULL)
            continue;
        args[count].arg = names[i];
        TRY_DNNL(memory_of(&args[count].memory, &t[i], data[i]));
        ++count;
    }
    TRY_DNNL(dnnl_primitive_execute(p->primitive, stream, count, args));
    done = dnnl_stream_wait(stream) == dnnl_success;
out:
    for (int i = 0; i < count; i++)
        dnnl_memory_destroy(args[i].memory);
    for (int i = 0; i < MAX_ARGS; i++)
        tensor_free(&t[i]);
    if (stream != NULL)
        dnnl_stream_destroy(stream);
    free(block);
    return done;
}

bool mics_gemm_has_pairs(void)
{
    return dnnl_get_effective_cpu_isa() == dnnl_cpu_isa_avx512_core_bf16;
}

bool mics_gemm_dnnl(const mics_exec *at, const mics_gemm_spec *gemm)
{
    const shape s = shape_of(at, gemm);
    plan p;
    bool own;
    if (!plan_for(&p, &s, &own))
        return false;
    const bool done = run(&p, gemm);
    if (own)
        dnnl_primitive_destroy(p.primitive);
    return done;
}
