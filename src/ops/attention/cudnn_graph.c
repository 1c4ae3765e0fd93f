// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Flash attention in the operations by which cuDNN knows it (cuDNN's documentation, "Fused
// Attention fprop" and "bprop"; NVIDIA's cudnn-frontend builds the same): what stands between the
// matrix products is virtual, so that no T x T matrix reaches memory, but the scores' gradients, by
// which backward adds up the queries' gradients in one order (def.h).
//
// Legend: b sequences, h query heads, k key-value heads, T tokens, D the heads' dimension.
#include "ops/attention/cudnn_graph.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_DESCRIPTORS = 128, MAX_OPS = 32, MAX_CONFIGS = 8, MAX_NOTES = 16 };

// Addresses that the plan was called with, as cuDNN keeps them.
typedef struct pack {
    struct pack *next;
    void *parts[CUDNN_PARTS], *workspace;
    cudnn_descriptor descriptor;
} pack;

struct cudnn_plan {
    const cudnn_library *library;
    cudnn_handle handle;
    cudnn_attention of;
    int status;                             // of the first call that failed; the rest is left out
    cudnn_descriptor made[MAX_DESCRIPTORS]; // in their order
    int made_count;
    cudnn_descriptor parts[CUDNN_PARTS]; // NULL: the pass has none
    cudnn_descriptor ops[MAX_OPS];
    int op_count;
    int64_t virtual_count;
    cudnn_descriptor plan; // of made[]
    pack *packs;
};

// ---- descriptors ----

static cudnn_descriptor make(cudnn_plan *p, int kind)
{
    cudnn_descriptor made = NULL;
    if (p->status == CUDNN_OK)
        p->status = p->made_count < MAX_DESCRIPTORS
                        ? p->library->BackendCreateDescriptor(kind, &made)
                        : CUDNN_NO_MEMORY;
    if (made != NULL)
        p->made[p->made_count++] = made;
    return made;
}

static void set(cudnn_plan *p, cudnn_descriptor of, int name, int type, int64_t count,
                const void *values)
{
    if (p->status == CUDNN_OK)
        p->status = p->library->BackendSetAttribute(of, name, type, count, values);
}

static void refer(cudnn_plan *p, cudnn_descriptor of, int name, cudnn_descriptor to)
{
    set(p, of, name, CUDNN_IS_DESCRIPTOR, 1, &to);
}

static cudnn_descriptor finish(cudnn_plan *p, cudnn_descriptor of)
{
    if (p->status == CUDNN_OK)
        p->status = p->library->BackendFinalize(of);
    return of;
}

static int64_t get(cudnn_plan *p, cudnn_descriptor of, int name, int type, int64_t capacity,
                   void *values)
{
    int64_t count = 0;
    if (p->status == CUDNN_OK)
        p->status = p->library->BackendGetAttribute(of, name, type, capacity, &count, values);
    return count < capacity ? count : capacity;
}

// ---- tensors ----

// What a tensor is.
typedef struct shape {
    int64_t dims[4], strides[4];
} shape;

static cudnn_descriptor tensor(cudnn_plan *p, int64_t uid, int type, shape of, bool is_virtual,
                               bool by_value)
{
    const int64_t alignment = type == CUDNN_FLOAT ? 4 : 16; // lse of a head may begin anywhere
    cudnn_descriptor made = make(p, CUDNN_TENSOR);
    set(p, made, CUDNN_TENSOR_TYPE, CUDNN_IS_TYPE, 1, &type);
    set(p, made, CUDNN_TENSOR_DIMS, CUDNN_IS_INT64, 4, of.dims);
    set(p, made, CUDNN_TENSOR_STRIDES, CUDNN_IS_INT64, 4, of.strides);
    set(p, made, CUDNN_TENSOR_UID, CUDNN_IS_INT64, 1, &uid);
    set(p, made, CUDNN_TENSOR_ALIGNMENT, CUDNN_IS_INT64, 1, &alignment);
    set(p, made, CUDNN_TENSOR_VIRTUAL, CUDNN_IS_BOOL, 1, &is_virtual);
    set(p, made, CUDNN_TENSOR_BY_VALUE, CUDNN_IS_BOOL, 1, &by_value);
    return finish(p, made);
}

static shape packed(int64_t b, int64_t h, int64_t rows, int64_t columns)
{
    return (shape){.dims = {b, h, rows, columns},
                   .strides = {h * rows * columns, rows * columns, columns, 1}};
}

// The same tensor with its rows as columns.
static shape turned(shape of)
{
    return (shape){.dims = {of.dims[0], of.dims[1], of.dims[3], of.dims[2]},
                   .strides = {of.strides[0], of.strides[1], of.strides[3], of.strides[2]}};
}

// `heads` heads of rows in which a token has `row` numbers.
static shape in_rows(const cudnn_plan *p, int64_t heads, int64_t row)
{
    const int64_t D = p->of.heads.dim, T = p->of.T;
    return (shape){.dims = {p->of.sequences, heads, T, D}, .strides = {T * row, D, row, 1}};
}

static void add_part(cudnn_plan *p, cudnn_part part, int type, shape of)
{
    p->parts[part] = tensor(p, part, type, of, false, false);
}

static void add_number(cudnn_plan *p, cudnn_part part)
{
    p->parts[part] = tensor(p, part, CUDNN_FLOAT, packed(1, 1, 1, 1), false, true);
}

static cudnn_descriptor between(cudnn_plan *p, int type, shape of)
{
    return tensor(p, CUDNN_PARTS + p->virtual_count++, type, of, true, false);
}

static shape scores_shape(const cudnn_plan *p)
{
    return packed(p->of.sequences, p->of.heads.query, p->of.T, p->of.T);
}

static shape rows_shape(const cudnn_plan *p)
{
    return packed(p->of.sequences, p->of.heads.query, p->of.T, 1);
}

static cudnn_descriptor scores(cudnn_plan *p)
{
    return between(p, CUDNN_FLOAT, scores_shape(p));
}

static cudnn_descriptor rows(cudnn_plan *p)
{
    return between(p, CUDNN_FLOAT, rows_shape(p));
}

// ---- operations: each gives what it writes ----

static cudnn_descriptor add_op(cudnn_plan *p, cudnn_descriptor op, cudnn_descriptor writes)
{
    p->ops[p->op_count++] = finish(p, op);
    return writes;
}

static cudnn_descriptor multiply(cudnn_plan *p, cudnn_descriptor a, cudnn_descriptor b,
                                 cudnn_descriptor c)
{
    const int precision = CUDNN_FLOAT;
    cudnn_descriptor how = make(p, CUDNN_MATMUL);
    set(p, how, CUDNN_MATMUL_PRECISION, CUDNN_IS_TYPE, 1, &precision);
    finish(p, how);
    cudnn_descriptor op = make(p, CUDNN_MATMUL_OP);
    refer(p, op, CUDNN_MATMUL_OP_A, a);
    refer(p, op, CUDNN_MATMUL_OP_B, b);
    refer(p, op, CUDNN_MATMUL_OP_C, c);
    refer(p, op, CUDNN_MATMUL_OP_DESC, how);
    return add_op(p, op, c);
}

static cudnn_descriptor pointwise(cudnn_plan *p, int mode, int precision, int64_t axis)
{
    cudnn_descriptor how = make(p, CUDNN_POINTWISE);
    set(p, how, CUDNN_POINTWISE_MODE, CUDNN_IS_POINTWISE_MODE, 1, &mode);
    set(p, how, CUDNN_POINTWISE_PRECISION, CUDNN_IS_TYPE, 1, &precision);
    if (axis >= 0)
        set(p, how, CUDNN_POINTWISE_AXIS, CUDNN_IS_INT64, 1, &axis);
    finish(p, how);
    cudnn_descriptor op = make(p, CUDNN_POINTWISE_OP);
    refer(p, op, CUDNN_POINTWISE_OP_DESC, how);
    return op;
}

// y = x, or x and b, by `mode`; b NULL: of x alone.
static cudnn_descriptor map(cudnn_plan *p, int mode, cudnn_descriptor x, cudnn_descriptor b,
                            cudnn_descriptor y)
{
    cudnn_descriptor op = pointwise(p, mode, CUDNN_FLOAT, -1);
    refer(p, op, CUDNN_POINTWISE_OP_X, x);
    if (b != NULL)
        refer(p, op, CUDNN_POINTWISE_OP_B, b);
    refer(p, op, CUDNN_POINTWISE_OP_Y, y);
    return add_op(p, op, y);
}

// The number of each score's query (axis 2) or key (axis 3).
static cudnn_descriptor number(cudnn_plan *p, cudnn_descriptor x, int64_t axis)
{
    cudnn_descriptor y = between(p, CUDNN_INT32, scores_shape(p));
    cudnn_descriptor op = pointwise(p, CUDNN_INDEX, CUDNN_FLOAT, axis);
    refer(p, op, CUDNN_POINTWISE_OP_X, x);
    refer(p, op, CUDNN_POINTWISE_OP_Y, y);
    return add_op(p, op, y);
}

static cudnn_descriptor reduce(cudnn_plan *p, int mode, cudnn_descriptor x, cudnn_descriptor y)
{
    const int precision = CUDNN_FLOAT;
    cudnn_descriptor how = make(p, CUDNN_REDUCTION);
    set(p, how, CUDNN_REDUCTION_MODE, CUDNN_IS_REDUCTION_MODE, 1, &mode);
    set(p, how, CUDNN_REDUCTION_PRECISION, CUDNN_IS_TYPE, 1, &precision);
    finish(p, how);
    cudnn_descriptor op = make(p, CUDNN_REDUCTION_OP);
    refer(p, op, CUDNN_REDUCTION_OP_X, x);
    refer(p, op, CUDNN_REDUCTION_OP_Y, y);
    refer(p, op, CUDNN_REDUCTION_OP_DESC, how);
    return add_op(p, op, y);
}

static cudnn_descriptor reshape(cudnn_plan *p, cudnn_descriptor x, shape of)
{
    cudnn_descriptor y = between(p, p->of.type, of), op = make(p, CUDNN_RESHAPE_OP);
    refer(p, op, CUDNN_RESHAPE_OP_X, x);
    refer(p, op, CUDNN_RESHAPE_OP_Y, y);
    return add_op(p, op, y);
}

// Scores of keys that lie behind their queries become the lowest number.
static cudnn_descriptor hide_later(cudnn_plan *p, cudnn_descriptor x)
{
    if (!p->of.causal)
        return x;
    add_number(p, CUDNN_PART_LOWEST);
    cudnn_descriptor query = number(p, x, 2), key = number(p, x, 3);
    cudnn_descriptor seen = between(p, CUDNN_BOOL, scores_shape(p)), y = scores(p);
    cudnn_descriptor op = pointwise(p, CUDNN_GREATER_EQUAL, CUDNN_BOOL, -1);
    refer(p, op, CUDNN_POINTWISE_OP_X, query);
    refer(p, op, CUDNN_POINTWISE_OP_B, key);
    refer(p, op, CUDNN_POINTWISE_OP_Y, seen);
    add_op(p, op, seen);
    op = pointwise(p, CUDNN_SELECT, CUDNN_FLOAT, -1);
    refer(p, op, CUDNN_POINTWISE_OP_X, x);
    refer(p, op, CUDNN_POINTWISE_OP_B, p->parts[CUDNN_PART_LOWEST]);
    refer(p, op, CUDNN_POINTWISE_OP_T, seen);
    refer(p, op, CUDNN_POINTWISE_OP_Y, y);
    return add_op(p, op, y);
}

// ---- the two graphs ----

// Keys come turned, and in backward values too.
static void add_inputs(cudnn_plan *p)
{
    const cudnn_attention *of = &p->of;
    const int64_t row = mics_heads_width(of->all), h = of->heads.query, k = of->heads.key_value;
    const int64_t H = of->all.query, T = of->T;
    const shape values = in_rows(p, k, row);
    add_part(p, CUDNN_PART_Q, of->type, in_rows(p, h, row));
    add_part(p, CUDNN_PART_K, of->type, turned(in_rows(p, k, row)));
    add_part(p, CUDNN_PART_V, of->type, of->backward ? turned(values) : values);
    add_part(p, CUDNN_PART_Y, of->type, in_rows(p, h, H * of->heads.dim));
    add_part(p, CUDNN_PART_LSE, CUDNN_FLOAT,
             (shape){.dims = {of->sequences, h, T, 1}, .strides = {H * T, T, 1, 1}});
    add_number(p, CUDNN_PART_SCALE);
}

static cudnn_descriptor scaled_scores(cudnn_plan *p)
{
    cudnn_descriptor s = multiply(p, p->parts[CUDNN_PART_Q], p->parts[CUDNN_PART_K], scores(p));
    return map(p, CUDNN_MUL, s, p->parts[CUDNN_PART_SCALE], scores(p));
}

static void add_forward(cudnn_plan *p)
{
    cudnn_descriptor s = hide_later(p, scaled_scores(p));
    cudnn_descriptor highest = reduce(p, CUDNN_MAX, s, rows(p));
    cudnn_descriptor e = map(p, CUDNN_SUB, s, highest, scores(p));
    e = map(p, CUDNN_EXP, e, NULL, scores(p));
    cudnn_descriptor sum = reduce(p, CUDNN_SUM, e, rows(p));
    cudnn_descriptor log = map(p, CUDNN_LOG, sum, NULL, rows(p));
    map(p, CUDNN_ADD, highest, log, p->parts[CUDNN_PART_LSE]);
    e = map(p, CUDNN_DIV, e, sum, between(p, p->of.type, scores_shape(p)));
    multiply(p, e, p->parts[CUDNN_PART_V], p->parts[CUDNN_PART_Y]);
}

// The gradient of keys or values: of the turned (b, h, T, T) times (b, h, T, D), summed over query
// heads that share them.
static void add_shared(cudnn_plan *p, cudnn_descriptor x, cudnn_part by, cudnn_part to)
{
    const mics_heads heads = p->of.heads;
    x = reshape(p, x, turned(scores_shape(p)));
    if (heads.query == heads.key_value) {
        multiply(p, x, p->parts[by], p->parts[to]);
        return;
    }
    const shape each = packed(p->of.sequences, heads.query, p->of.T, heads.dim);
    x = multiply(p, x, p->parts[by], between(p, p->of.type, each));
    reduce(p, CUDNN_SUM, x, p->parts[to]);
}

static void add_gradients(cudnn_plan *p)
{
    const int64_t row = mics_heads_width(p->of.all), h = p->of.heads.query;
    const int64_t k = p->of.heads.key_value;
    add_part(p, CUDNN_PART_DY, p->of.type, in_rows(p, h, p->of.all.query * p->of.heads.dim));
    add_part(p, CUDNN_PART_DQ, p->of.type, in_rows(p, h, row));
    add_part(p, CUDNN_PART_DK, p->of.type, in_rows(p, k, row));
    add_part(p, CUDNN_PART_DV, p->of.type, in_rows(p, k, row));
    add_part(p, CUDNN_PART_SUMS, CUDNN_FLOAT, rows_shape(p));
    add_number(p, CUDNN_PART_ONE);
}

static void add_backward(cudnn_plan *p)
{
    const mics_heads heads = p->of.heads;
    cudnn_descriptor *parts = p->parts;
    add_gradients(p);
    // sums = sum(dy * y); cuDNN knows the graph by its factor, which is for dropout.
    cudnn_descriptor y =
        between(p, CUDNN_FLOAT, packed(p->of.sequences, heads.query, p->of.T, heads.dim));
    y = map(p, CUDNN_MUL, parts[CUDNN_PART_DY], parts[CUDNN_PART_Y], y);
    map(p, CUDNN_MUL, reduce(p, CUDNN_SUM, y, rows(p)), parts[CUDNN_PART_ONE],
        parts[CUDNN_PART_SUMS]);
    // Probabilities again, and dv.
    cudnn_descriptor s = scaled_scores(p);
    s = hide_later(p, map(p, CUDNN_SUB, s, parts[CUDNN_PART_LSE], scores(p)));
    cudnn_descriptor e = map(p, CUDNN_EXP, s, NULL, scores(p));
    add_shared(p, e, CUDNN_PART_DY, CUDNN_PART_DV);
    // ds = p (dy v^T - sums) scale; dk, and dq straight from it.
    cudnn_descriptor ds = multiply(p, parts[CUDNN_PART_DY], parts[CUDNN_PART_V], scores(p));
    ds = map(p, CUDNN_SUB, ds, parts[CUDNN_PART_SUMS], scores(p));
    ds = map(p, CUDNN_MUL, ds, e, scores(p));
    ds = map(p, CUDNN_MUL, ds, parts[CUDNN_PART_SCALE], scores(p));
    add_shared(p, ds, CUDNN_PART_Q, CUDNN_PART_DK);
    const shape keys = in_rows(p, heads.key_value, mics_heads_width(p->of.all));
    multiply(p, ds, reshape(p, parts[CUDNN_PART_K], keys), parts[CUDNN_PART_DQ]);
}

// ---- plans ----

static cudnn_descriptor add_graph(cudnn_plan *p)
{
    add_inputs(p);
    if (p->of.backward)
        add_backward(p);
    else
        add_forward(p);
    cudnn_descriptor graph = make(p, CUDNN_GRAPH);
    set(p, graph, CUDNN_GRAPH_HANDLE, CUDNN_IS_HANDLE, 1, &p->handle);
    set(p, graph, CUDNN_GRAPH_OPS, CUDNN_IS_DESCRIPTOR, p->op_count, p->ops);
    return finish(p, graph);
}

static bool is_deterministic(cudnn_plan *p, cudnn_descriptor config)
{
    int notes[MAX_NOTES];
    cudnn_descriptor engine = make(p, CUDNN_ENGINE);
    get(p, config, CUDNN_CONFIG_ENGINE, CUDNN_IS_DESCRIPTOR, 1, &engine);
    const int64_t count = get(p, engine, CUDNN_ENGINE_NOTES, CUDNN_IS_NOTE, MAX_NOTES, notes);
    for (int64_t i = 0; i < count; i++)
        if (notes[i] == CUDNN_NOTE_NONDETERMINISTIC)
            return false;
    return true;
}

// The plan of one configuration; NULL: it asks for more memory, which *least_out learns, or is not
// deterministic.
static cudnn_descriptor plan_of(cudnn_plan *p, cudnn_descriptor config, int64_t bytes,
                                int64_t *least_out)
{
    int64_t asked = 0;
    if (!is_deterministic(p, config))
        return NULL;
    get(p, config, CUDNN_CONFIG_WORKSPACE, CUDNN_IS_INT64, 1, &asked);
    if (p->status == CUDNN_OK && asked <= bytes) {
        cudnn_descriptor plan = make(p, CUDNN_PLAN);
        set(p, plan, CUDNN_PLAN_HANDLE, CUDNN_IS_HANDLE, 1, &p->handle);
        refer(p, plan, CUDNN_PLAN_CONFIG, config);
        finish(p, plan);
        get(p, plan, CUDNN_PLAN_WORKSPACE, CUDNN_IS_INT64, 1, &asked);
        if (p->status == CUDNN_OK && asked <= bytes)
            return plan;
    }
    *least_out = *least_out < asked ? *least_out : asked;
    return NULL;
}

// *least_out: the least that was asked for and is too much; INT64_MAX: nothing is.
static void choose(cudnn_plan *p, int64_t bytes, int64_t *least_out)
{
    const int mode = CUDNN_HEURISTICS_A;
    cudnn_descriptor configs[MAX_CONFIGS];
    cudnn_descriptor graph = add_graph(p), heuristics = make(p, CUDNN_HEURISTICS);
    refer(p, heuristics, CUDNN_HEURISTICS_GRAPH, graph);
    set(p, heuristics, CUDNN_HEURISTICS_MODE, CUDNN_IS_HEURISTICS_MODE, 1, &mode);
    finish(p, heuristics);
    for (int i = 0; i < MAX_CONFIGS; i++)
        configs[i] = make(p, CUDNN_CONFIG);
    const int64_t count =
        get(p, heuristics, CUDNN_HEURISTICS_RESULTS, CUDNN_IS_DESCRIPTOR, MAX_CONFIGS, configs);
    for (int64_t i = 0; i < count && p->plan == NULL; i++) {
        p->status = CUDNN_OK; // whatever the one before came to
        p->plan = plan_of(p, configs[i], bytes, least_out);
    }
}

static void explain(const cudnn_plan *p, int64_t bytes, int64_t least, char *why_not,
                    size_t capacity)
{
    char said[160] = "";
    if (p->status != CUDNN_OK)
        p->library->GetLastErrorString(said, sizeof said);
    said[strcspn(said, "\n")] = '\0';
    if (p->status != CUDNN_OK)
        snprintf(why_not, capacity, "cuDNN makes no plan: %s (%d)", said, p->status);
    else if (least < INT64_MAX)
        snprintf(why_not, capacity,
                 "cuDNN asks for a workspace of %lld bytes, of which there are %lld",
                 (long long)least, (long long)bytes);
    else
        snprintf(why_not, capacity, "cuDNN has no deterministic plan of this shape");
}

cudnn_plan *cudnn_plan_open(const cudnn_library *library, cudnn_handle handle,
                            const cudnn_attention *attention, int64_t bytes, char *why_not,
                            size_t capacity)
{
    int64_t least = INT64_MAX;
    cudnn_plan *p = calloc(1, sizeof *p);
    if (p == NULL) {
        snprintf(why_not, capacity, "there is no memory for a plan");
        return NULL;
    }
    p->library = library;
    p->handle = handle;
    p->of = *attention;
    choose(p, bytes, &least);
    if (p->plan != NULL)
        return p;
    explain(p, bytes, least, why_not, capacity);
    cudnn_plan_close(p);
    return NULL;
}

void cudnn_plan_close(cudnn_plan *p)
{
    if (p == NULL)
        return;
    while (p->packs != NULL) {
        pack *first = p->packs;
        p->packs = first->next;
        p->library->BackendDestroyDescriptor(first->descriptor);
        free(first);
    }
    while (p->made_count > 0)
        p->library->BackendDestroyDescriptor(p->made[--p->made_count]);
    free(p);
}

// ---- calls ----

static int describe_pack(const cudnn_plan *p, pack *with)
{
    const cudnn_library *library = p->library;
    int64_t uids[CUDNN_PARTS], count = 0;
    void *addresses[CUDNN_PARTS];
    for (int part = 0; part < CUDNN_PARTS; part++) {
        if (p->parts[part] == NULL)
            continue;
        uids[count] = part;
        addresses[count++] = with->parts[part];
    }
    int status = library->BackendCreateDescriptor(CUDNN_PACK, &with->descriptor);
    if (status == CUDNN_OK)
        status = library->BackendSetAttribute(with->descriptor, CUDNN_PACK_UIDS, CUDNN_IS_INT64,
                                              count, uids);
    if (status == CUDNN_OK)
        status = library->BackendSetAttribute(with->descriptor, CUDNN_PACK_POINTERS,
                                              CUDNN_IS_POINTER, count, addresses);
    if (status == CUDNN_OK)
        status = library->BackendSetAttribute(with->descriptor, CUDNN_PACK_WORKSPACE,
                                              CUDNN_IS_POINTER, 1, &with->workspace);
    return status == CUDNN_OK ? library->BackendFinalize(with->descriptor) : status;
}

int cudnn_plan_run(cudnn_plan *p, void *const parts[CUDNN_PARTS], void *workspace)
{
    pack *with = p->packs;
    while (with != NULL &&
           (with->workspace != workspace || memcmp(with->parts, parts, sizeof with->parts) != 0))
        with = with->next;
    if (with == NULL) {
        with = calloc(1, sizeof *with);
        if (with == NULL)
            return CUDNN_NO_MEMORY;
        memcpy(with->parts, parts, sizeof with->parts);
        with->workspace = workspace;
        with->next = p->packs;
        p->packs = with;
        const int status = describe_pack(p, with);
        if (status != CUDNN_OK)
            return status;
    }
    return p->library->BackendExecute(p->handle, p->plan, with->descriptor);
}
