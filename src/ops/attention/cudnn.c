// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Attention by cuDNN: plans are made before the first step, and kept beside the device. Calls of
// one device come from one thread at a time.
#include "ops/attention/attention_cuda.h"
#include "ops/attention/cudnn_graph.h"
#include "ops/attention/def.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

// Both passes of one shape.
typedef struct entry {
    struct entry *next;
    int64_t B, T;
    mics_heads heads;
    int type;
    bool causal;
    mics_cudnn_chunk chunk; // of backward; forward computes all at once
    cudnn_plan *forward, *backward;
    float scale, lowest, one; // read when a call runs
} entry;

typedef struct keeper {
    const cudnn_library *library;
    cudnn_handle handle;
    entry *entries;
    char why_not[256]; // of the newest shape without plans
} keeper;

// ---- what is kept beside a device ----

static void close_entries(keeper *k)
{
    while (k->entries != NULL) {
        entry *first = k->entries;
        k->entries = first->next;
        cudnn_plan_close(first->forward);
        cudnn_plan_close(first->backward);
        free(first);
    }
}

static void close_keeper(void *object)
{
    keeper *k = object;
    close_entries(k);
    if (k->handle != NULL)
        k->library->Destroy(k->handle);
    free(k);
}

static keeper *keeper_of(const mics_device *device)
{
    return device->ops->kept(device->ctx, MICS_DEVICE_ATTENTION);
}

// Opens what is kept; asking for a stream makes the device the thread's current one.
static keeper *open_keeper(const mics_device *device)
{
    keeper *k = calloc(1, sizeof *k);
    if (k == NULL)
        return NULL;
    void *stream = device->ops->stream_handle(device->ctx, 0);
    k->library = cudnn_get();
    device->ops->keep(device->ctx, MICS_DEVICE_ATTENTION, k, close_keeper);
    if (k->library != NULL && k->library->Create(&k->handle) == CUDNN_OK &&
        k->library->SetStream(k->handle, stream) != CUDNN_OK) {
        k->library->Destroy(k->handle);
        k->handle = NULL;
    }
    return k;
}

// ---- plans ----

static int type_of(const mics_exec *at)
{
    return at->dtype == MICS_DTYPE_BF16 ? CUDNN_BF16 : CUDNN_HALF;
}

static entry *find(const keeper *k, const mics_exec *at, const mics_op_shape *s)
{
    entry *e = k->entries;
    while (e != NULL &&
           (e->B != s->B || e->T != s->T || e->type != type_of(at) ||
            e->causal == s->op->both_ways || memcmp(&e->heads, &s->heads, sizeof e->heads) != 0))
        e = e->next;
    return e;
}

static void open_plans(keeper *k, entry *e)
{
    const int64_t shared = e->heads.query / e->heads.key_value;
    cudnn_attention of = {.sequences = e->B,
                          .T = e->T,
                          .heads = e->heads,
                          .all = e->heads,
                          .type = e->type,
                          .causal = e->causal};
    e->forward = cudnn_plan_open(k->library, k->handle, &of, MICS_CUDNN_SMALL_BYTES, k->why_not,
                                 sizeof k->why_not);
    if (e->forward == NULL)
        return;
    of.backward = true;
    of.sequences = e->chunk.sequences;
    of.heads.key_value = e->chunk.heads;
    of.heads.query = e->chunk.heads * shared;
    e->backward =
        cudnn_plan_open(k->library, k->handle, &of, mics_cudnn_bytes(e->T, e->heads, e->chunk),
                        k->why_not, sizeof k->why_not);
}

const char *mics_cuda_attention_prepare(const mics_exec *at, const mics_op_shape *s)
{
    static const char no_memory[] = "there is no memory for cuDNN's plans";
    keeper *k = keeper_of(at->device);
    if (k == NULL)
        k = open_keeper(at->device);
    if (k == NULL)
        return no_memory;
    if (k->handle == NULL)
        return "cuDNN cannot be opened on this GPU";
    if (find(k, at, s) != NULL)
        return NULL;
    entry *e = calloc(1, sizeof *e);
    if (e == NULL)
        return no_memory;
    *e = (entry){.next = k->entries,
                 .B = s->B,
                 .T = s->T,
                 .heads = s->heads,
                 .type = type_of(at),
                 .causal = !s->op->both_ways,
                 .chunk = mics_cudnn_chunk_of(s->B, s->T, s->heads),
                 .scale = 1.0F / sqrtf((float)s->heads.dim),
                 .lowest = -INFINITY,
                 .one = 1};
    k->entries = e;
    open_plans(k, e);
    if (e->backward != NULL)
        return NULL;
    k->entries = e->next;
    cudnn_plan_close(e->forward);
    free(e);
    return k->why_not;
}

void mics_cuda_attention_forget(mics_device *device)
{
    keeper *k = keeper_of(device);
    if (k != NULL)
        close_entries(k);
}

// ---- calls ----

static char *moved(const void *address, int64_t elems, size_t elem_bytes)
{
    return (char *)(uintptr_t)address + (size_t)elems * elem_bytes;
}

// Addresses of the chunk that begins with sequence b and key-value head k.
static void fill_parts(entry *e, const mics_cuda_attention *a, int64_t b, int64_t k,
                       void *parts[CUDNN_PARTS])
{
    const int64_t D = e->heads.dim, H = e->heads.query, K = e->heads.key_value;
    const int64_t token = b * e->T, head = k * (H / K), row = token * mics_heads_width(e->heads);
    const size_t half = 2;
    parts[CUDNN_PART_Q] = moved(a->qkv_N3C, row + head * D, half);
    parts[CUDNN_PART_K] = moved(a->qkv_N3C, row + (H + k) * D, half);
    parts[CUDNN_PART_V] = moved(a->qkv_N3C, row + (H + K + k) * D, half);
    parts[CUDNN_PART_Y] = moved(a->y_NC, (token * H + head) * D, half);
    parts[CUDNN_PART_LSE] = moved(a->lse_NH, token * H + head * e->T, sizeof(float));
    parts[CUDNN_PART_SCALE] = &e->scale;
    parts[CUDNN_PART_LOWEST] = &e->lowest;
    if (a->dqkv_N3C == NULL)
        return;
    parts[CUDNN_PART_DY] = moved(a->dy_NC, (token * H + head) * D, half);
    parts[CUDNN_PART_DQ] = moved(a->dqkv_N3C, row + head * D, half);
    parts[CUDNN_PART_DK] = moved(a->dqkv_N3C, row + (H + k) * D, half);
    parts[CUDNN_PART_DV] = moved(a->dqkv_N3C, row + (H + K + k) * D, half);
    parts[CUDNN_PART_ONE] = &e->one;
}

static int run_backward(entry *e, const mics_exec *at, const mics_cuda_attention *a)
{
    const int64_t sums = mics_cudnn_sums_bytes(e->T, e->heads, e->chunk);
    void *parts[CUDNN_PARTS] = {[CUDNN_PART_SUMS] = at->workspace};
    for (int64_t b = 0; b < e->B; b += e->chunk.sequences) {
        for (int64_t k = 0; k < e->heads.key_value; k += e->chunk.heads) {
            fill_parts(e, a, b, k, parts);
            const int status = cudnn_plan_run(e->backward, parts, moved(at->workspace, sums, 1));
            if (status != CUDNN_OK)
                return status;
        }
    }
    return CUDNN_OK;
}

static int run_forward(entry *e, const mics_exec *at, const mics_cuda_attention *a)
{
    void *parts[CUDNN_PARTS] = {NULL};
    fill_parts(e, a, 0, 0, parts);
    return cudnn_plan_run(e->forward, parts, at->workspace);
}

bool mics_cuda_attention_by_cudnn(const mics_exec *at, const mics_cuda_attention *a)
{
    const mics_op_shape *s = &a->call->shape;
    keeper *k = s->library ? keeper_of(at->device) : NULL;
    entry *e = k != NULL && mics_cudnn_lacks(s) == NULL ? find(k, at, s) : NULL;
    char text[128] = "cudnnBackendExecute: ";
    const size_t used = strlen(text);
    if (e == NULL)
        return false;
    int status = k->library->SetStream(k->handle,
                                       at->device->ops->stream_handle(at->device->ctx, at->stream));
    if (status == CUDNN_OK)
        status = a->dqkv_N3C != NULL ? run_backward(e, at, a) : run_forward(e, at, a);
    if (status != CUDNN_OK) {
        k->library->GetLastErrorString(text + used, sizeof text - used);
        at->device->ops->fail(at->device->ctx, text);
    }
    return true;
}
