// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Causal attention as cuDNN operation graphs (cuDNN 9, cudnn_graph.h), in the order of operations
// that its fused kernels are recognised by: that of NVIDIA's cudnn-frontend 1.x,
// node/scaled_dot_product_flash_attention.h. The single SDPA operations of cuDNN 9.19 cannot be
// used: they have no causal bound before 9.21 (the same file's support surface).
//
// qkv is read and dqkv written in place, by strides. Engines that say that their results may differ
// between runs are passed over; dq is a product's result, not a sum of parts, which is the
// frontend's deterministic form. The log sums of a head lie together, (B, H, T), in the array that
// mics/kernels.h calls (N, H): only cuDNN's backward reads what its forward wrote.
//
// Checked without a chip: the operations and graphs finalise, and cuDNN 9.19's heuristics name
// engines for them (compute capability 9.0, by a device property descriptor). That plans run, repeat
// and are fast is for bench/gpu to show.
//
// The library is opened by name, and only its headers are needed to build. Everything that fails
// makes a shape impossible, and is said by why_not; a failed execution is the device's failure.
//
// The workspace: B H T floats, sum(dy * y) of each row, on 256 bytes; then what the plan asks for.
#include "ops/attention/cudnn_cuda.h"
#include <cudnn_graph.h>
#include <dlfcn.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef cudnnBackendDescriptor_t descriptor;

// The functions that are used, by the names that the library exports.
typedef struct library {
    void *file;
    cudnnStatus_t (*create)(cudnnHandle_t *handle);
    cudnnStatus_t (*destroy)(cudnnHandle_t handle);
    cudnnStatus_t (*set_stream)(cudnnHandle_t handle, cudaStream_t stream);
    const char *(*error_text)(cudnnStatus_t status);
    cudnnStatus_t (*make)(cudnnBackendDescriptorType_t type, descriptor *made);
    cudnnStatus_t (*unmake)(descriptor made);
    cudnnStatus_t (*set)(descriptor of, cudnnBackendAttributeName_t name,
                         cudnnBackendAttributeType_t type, int64_t count, const void *values);
    cudnnStatus_t (*get)(descriptor of, cudnnBackendAttributeName_t name,
                         cudnnBackendAttributeType_t type, int64_t room, int64_t *count,
                         void *values);
    cudnnStatus_t (*finalize)(descriptor made);
    cudnnStatus_t (*execute)(cudnnHandle_t handle, descriptor plan, descriptor pack);
} library;

// Names of tensors that are in memory.
enum tensor_name {
    TENSOR_Q = 1,
    TENSOR_K,
    TENSOR_V,
    TENSOR_Y,
    TENSOR_LSE,
    TENSOR_DY,
    TENSOR_DQ,
    TENSOR_DK,
    TENSOR_DV,
    TENSOR_DELTA,
    TENSOR_SCALE,  // by value, as those below
    TENSOR_HIDDEN, // what a hidden score is
    TENSOR_ONE,
    FIRST_VIRTUAL // and from here on, what kernels keep to themselves
};

enum { MOST_DESCRIPTORS = 128, MOST_OPERATIONS = 24, MOST_CONFIGURATIONS = 8 };

// A graph while it is made. The first failure is kept; what comes after it does nothing.
typedef struct graph {
    const library *lib;
    descriptor made[MOST_DESCRIPTORS], operations[MOST_OPERATIONS];
    int made_count, operation_count;
    int64_t next_virtual;
    int64_t B, T, H, D;
    cudnnDataType_t type;
    cudnnStatus_t status;
    const char *what; // failed
} graph;

// What can be executed. Everything that it was made from lives as long.
typedef struct runnable {
    descriptor made[MOST_DESCRIPTORS];
    int made_count;
    descriptor plan; // NULL: cannot be
    int64_t workspace_bytes;
} runnable;

typedef struct shape {
    struct shape *next;
    mics_dtype dtype;
    int64_t B, T, H, D;
    runnable forward, backward;
    char why_not[160];
    char no_room[160]; // written with the lock held
} shape;

struct mics_cuda_cudnn {
    library lib;
    cudnnHandle_t handle;
    pthread_mutex_t lock; // of shapes, and of the handle while its stream is set
    shape *shapes;
};

// ---- descriptors ----

static void check(graph *g, cudnnStatus_t status, const char *what)
{
    if (g->status == CUDNN_STATUS_SUCCESS && status != CUDNN_STATUS_SUCCESS) {
        g->status = status;
        g->what = what;
    }
}

static descriptor make(graph *g, cudnnBackendDescriptorType_t type)
{
    descriptor made = NULL;
    if (g->status != CUDNN_STATUS_SUCCESS)
        return NULL;
    if (g->made_count == MOST_DESCRIPTORS) {
        check(g, CUDNN_STATUS_INTERNAL_ERROR, "too many descriptors");
        return NULL;
    }
    check(g, g->lib->make(type, &made), "a descriptor");
    if (made)
        g->made[g->made_count++] = made;
    return made;
}

static void set(graph *g, descriptor of, cudnnBackendAttributeName_t name,
                cudnnBackendAttributeType_t type, int64_t count, const void *values)
{
    if (g->status == CUDNN_STATUS_SUCCESS)
        check(g, g->lib->set(of, name, type, count, values), "an attribute");
}

static void set_descriptor(graph *g, descriptor of, cudnnBackendAttributeName_t name,
                           descriptor value)
{
    if (value)
        set(g, of, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &value);
}

static void finalize(graph *g, descriptor made, const char *what)
{
    if (g->status == CUDNN_STATUS_SUCCESS)
        check(g, g->lib->finalize(made), what);
}

static void unmake(const library *lib, descriptor *made, int count)
{
    for (int i = count - 1; i >= 0; --i)
        lib->unmake(made[i]);
}

// ---- tensors ----

typedef struct tensor_shape {
    int64_t dims[4], strides[4];
} tensor_shape;

static descriptor tensor(graph *g, int64_t name, cudnnDataType_t type, const tensor_shape *at,
                         bool is_virtual, bool by_value)
{
    const int64_t alignment = by_value ? 4 : 16;
    descriptor made = make(g, CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    set(g, made, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &name);
    set(g, made, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type);
    set(g, made, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, at->dims);
    set(g, made, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, at->strides);
    set(g, made, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, &is_virtual);
    set(g, made, CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, 1, &by_value);
    set(g, made, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, &alignment);
    finalize(g, made, "a tensor");
    return made;
}

static descriptor stored(graph *g, int64_t name, const tensor_shape *at)
{
    return tensor(g, name, g->type, at, false, false);
}

static descriptor passing(graph *g, cudnnDataType_t type, const tensor_shape *at)
{
    return tensor(g, g->next_virtual++, type, at, true, false);
}

static descriptor number(graph *g, int64_t name)
{
    const tensor_shape at = {{1, 1, 1, 1}, {1, 1, 1, 1}};
    return tensor(g, name, CUDNN_DATA_FLOAT, &at, false, true);
}

// (B, H, T, D) of tokens' rows that are `row` numbers long.
static tensor_shape heads(const graph *g, int64_t row)
{
    const tensor_shape at = {{g->B, g->H, g->T, g->D}, {g->T * row, g->D, row, 1}};
    return at;
}

static tensor_shape transposed(tensor_shape at)
{
    const tensor_shape turned = {{at.dims[0], at.dims[1], at.dims[3], at.dims[2]},
                                 {at.strides[0], at.strides[1], at.strides[3], at.strides[2]}};
    return turned;
}

static tensor_shape table(const graph *g) // of scores
{
    const tensor_shape at = {{g->B, g->H, g->T, g->T}, {g->H * g->T * g->T, g->T * g->T, g->T, 1}};
    return at;
}

static tensor_shape rows(const graph *g) // one number a query
{
    const tensor_shape at = {{g->B, g->H, g->T, 1}, {g->H * g->T, g->T, 1, 1}};
    return at;
}

// ---- operations ----

static void add_operation(graph *g, descriptor operation, const char *what)
{
    finalize(g, operation, what);
    if (g->status == CUDNN_STATUS_SUCCESS && g->operation_count == MOST_OPERATIONS)
        check(g, CUDNN_STATUS_INTERNAL_ERROR, "too many operations");
    if (g->status == CUDNN_STATUS_SUCCESS)
        g->operations[g->operation_count++] = operation;
}

// One operation element by element; x, b and t as many as the mode takes, the others NULL. `axis`:
// of GEN_INDEX, else -1.
typedef struct pointwise {
    cudnnPointwiseMode_t mode;
    cudnnDataType_t compute;
    int64_t axis;
    descriptor x, b, t, y;
} pointwise;

static descriptor add_pointwise(graph *g, pointwise p)
{
    descriptor made = make(g, CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
    set(g, made, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &p.mode);
    set(g, made, CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, 1, &p.compute);
    if (p.axis >= 0)
        set(g, made, CUDNN_ATTR_POINTWISE_AXIS, CUDNN_TYPE_INT64, 1, &p.axis);
    finalize(g, made, "an elementwise operation");
    descriptor operation = make(g, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
    set_descriptor(g, operation, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, made);
    set_descriptor(g, operation, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, p.x);
    set_descriptor(g, operation, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, p.b);
    set_descriptor(g, operation, CUDNN_ATTR_OPERATION_POINTWISE_TDESC, p.t);
    set_descriptor(g, operation, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, p.y);
    add_operation(g, operation, "an elementwise operation");
    return p.y;
}

// y = mode(x, b) in fp32, into a passing tensor of a shape.
static descriptor combine(graph *g, cudnnPointwiseMode_t mode, descriptor x, descriptor b,
                          tensor_shape at)
{
    const pointwise p = {mode, CUDNN_DATA_FLOAT, -1, x, b, NULL, passing(g, CUDNN_DATA_FLOAT, &at)};
    return add_pointwise(g, p);
}

static descriptor multiply(graph *g, descriptor a, descriptor b, descriptor c)
{
    const cudnnDataType_t compute = CUDNN_DATA_FLOAT;
    descriptor made = make(g, CUDNN_BACKEND_MATMUL_DESCRIPTOR);
    set(g, made, CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &compute);
    finalize(g, made, "a product");
    descriptor operation = make(g, CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);
    set_descriptor(g, operation, CUDNN_ATTR_OPERATION_MATMUL_ADESC, a);
    set_descriptor(g, operation, CUDNN_ATTR_OPERATION_MATMUL_BDESC, b);
    set_descriptor(g, operation, CUDNN_ATTR_OPERATION_MATMUL_CDESC, c);
    set_descriptor(g, operation, CUDNN_ATTR_OPERATION_MATMUL_DESC, made);
    add_operation(g, operation, "a product");
    return c;
}

// Over the last dimension.
static descriptor reduce(graph *g, cudnnReduceTensorOp_t how, descriptor x)
{
    const cudnnDataType_t compute = CUDNN_DATA_FLOAT;
    const tensor_shape at = rows(g);
    descriptor y = passing(g, CUDNN_DATA_FLOAT, &at);
    descriptor made = make(g, CUDNN_BACKEND_REDUCTION_DESCRIPTOR);
    set(g, made, CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, 1, &how);
    set(g, made, CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &compute);
    finalize(g, made, "a reduction");
    descriptor operation = make(g, CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR);
    set_descriptor(g, operation, CUDNN_ATTR_OPERATION_REDUCTION_XDESC, x);
    set_descriptor(g, operation, CUDNN_ATTR_OPERATION_REDUCTION_YDESC, y);
    set_descriptor(g, operation, CUDNN_ATTR_OPERATION_REDUCTION_DESC, made);
    add_operation(g, operation, "a reduction");
    return y;
}

static descriptor reshape(graph *g, descriptor x, tensor_shape at)
{
    descriptor y = passing(g, g->type, &at);
    descriptor operation = make(g, CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR);
    set_descriptor(g, operation, CUDNN_ATTR_OPERATION_RESHAPE_XDESC, x);
    set_descriptor(g, operation, CUDNN_ATTR_OPERATION_RESHAPE_YDESC, y);
    add_operation(g, operation, "a reshape");
    return y;
}

// Scores of keys past a query become very small.
static descriptor hide(graph *g, descriptor scores)
{
    const tensor_shape at = table(g);
    const pointwise row = {
        CUDNN_POINTWISE_GEN_INDEX,        CUDNN_DATA_FLOAT, 2, scores, NULL, NULL,
        passing(g, CUDNN_DATA_INT32, &at)};
    const pointwise column = {
        CUDNN_POINTWISE_GEN_INDEX,        CUDNN_DATA_FLOAT, 3, scores, NULL, NULL,
        passing(g, CUDNN_DATA_INT32, &at)};
    add_pointwise(g, row);
    add_pointwise(g, column);
    const pointwise seen = {CUDNN_POINTWISE_CMP_GE,
                            CUDNN_DATA_BOOLEAN,
                            -1,
                            row.y,
                            column.y,
                            NULL,
                            passing(g, CUDNN_DATA_BOOLEAN, &at)};
    add_pointwise(g, seen);
    const pointwise chosen = {CUDNN_POINTWISE_BINARY_SELECT,
                              CUDNN_DATA_FLOAT,
                              -1,
                              scores,
                              number(g, TENSOR_HIDDEN),
                              seen.y,
                              passing(g, CUDNN_DATA_FLOAT, &at)};
    return add_pointwise(g, chosen);
}

static descriptor scores_of(graph *g, descriptor q, descriptor k_turned, descriptor scale)
{
    const tensor_shape at = table(g);
    descriptor s = multiply(g, q, k_turned, passing(g, CUDNN_DATA_FLOAT, &at));
    return combine(g, CUDNN_POINTWISE_MUL, s, scale, at);
}

static void describe_forward(graph *g)
{
    const int64_t C = g->H * g->D;
    const tensor_shape in = heads(g, 3 * C), in_turned = transposed(in), out = heads(g, C);
    const tensor_shape at = table(g), row = rows(g);
    descriptor q = stored(g, TENSOR_Q, &in), k = stored(g, TENSOR_K, &in_turned);
    descriptor v = stored(g, TENSOR_V, &in), y = stored(g, TENSOR_Y, &out);
    descriptor lse = tensor(g, TENSOR_LSE, CUDNN_DATA_FLOAT, &row, false, false);
    descriptor s = hide(g, scores_of(g, q, k, number(g, TENSOR_SCALE)));
    descriptor maximum = reduce(g, CUDNN_REDUCE_TENSOR_MAX, s);
    descriptor less = combine(g, CUDNN_POINTWISE_SUB, s, maximum, at);
    descriptor e = combine(g, CUDNN_POINTWISE_EXP, less, NULL, at);
    descriptor sum = reduce(g, CUDNN_REDUCE_TENSOR_ADD, e);
    descriptor log_sum = combine(g, CUDNN_POINTWISE_LOG, sum, NULL, row);
    const pointwise add = {CUDNN_POINTWISE_ADD, CUDNN_DATA_FLOAT, -1, maximum, log_sum, NULL, lse};
    add_pointwise(g, add);
    const pointwise divide = {CUDNN_POINTWISE_DIV,     CUDNN_DATA_FLOAT, -1, e, sum, NULL,
                              passing(g, g->type, &at)};
    multiply(g, add_pointwise(g, divide), v, y);
}

// delta = sum(dy * y), kept in memory between the kernels of a plan.
static descriptor describe_delta(graph *g, descriptor dy, descriptor y)
{
    const int64_t C = g->H * g->D;
    const tensor_shape out = heads(g, C), row = rows(g);
    descriptor product = combine(g, CUDNN_POINTWISE_MUL, dy, y, out);
    const pointwise keep = {CUDNN_POINTWISE_MUL,
                            CUDNN_DATA_FLOAT,
                            -1,
                            reduce(g, CUDNN_REDUCE_TENSOR_ADD, product),
                            number(g, TENSOR_ONE),
                            NULL,
                            tensor(g, TENSOR_DELTA, CUDNN_DATA_FLOAT, &row, false, false)};
    return add_pointwise(g, keep);
}

static void describe_backward(graph *g)
{
    const int64_t C = g->H * g->D;
    const tensor_shape in = heads(g, 3 * C), in_turned = transposed(in), out = heads(g, C);
    const tensor_shape at = table(g), at_turned = transposed(at), row = rows(g);
    descriptor q = stored(g, TENSOR_Q, &in), k = stored(g, TENSOR_K, &in_turned);
    descriptor v = stored(g, TENSOR_V, &in_turned), y = stored(g, TENSOR_Y, &out);
    descriptor dy = stored(g, TENSOR_DY, &out), dq = stored(g, TENSOR_DQ, &in);
    descriptor dk = stored(g, TENSOR_DK, &in), dv = stored(g, TENSOR_DV, &in);
    descriptor lse = tensor(g, TENSOR_LSE, CUDNN_DATA_FLOAT, &row, false, false);
    descriptor scale = number(g, TENSOR_SCALE), delta = describe_delta(g, dy, y);

    descriptor s = scores_of(g, q, k, scale);
    s = hide(g, combine(g, CUDNN_POINTWISE_SUB, s, lse, at));
    descriptor p = combine(g, CUDNN_POINTWISE_EXP, s, NULL, at);
    multiply(g, reshape(g, p, at_turned), dy, dv);

    descriptor dp = multiply(g, dy, v, passing(g, CUDNN_DATA_FLOAT, &at));
    dp = combine(g, CUDNN_POINTWISE_SUB, dp, delta, at);
    dp = combine(g, CUDNN_POINTWISE_MUL, dp, p, at);
    descriptor ds = combine(g, CUDNN_POINTWISE_MUL, dp, scale, at);
    multiply(g, reshape(g, ds, at_turned), q, dk);
    multiply(g, ds, reshape(g, k, in), dq);
}

// ---- plans ----

static bool repeats(graph *g, descriptor configuration)
{
    descriptor engine = make(g, CUDNN_BACKEND_ENGINE_DESCRIPTOR);
    cudnnBackendNumericalNote_t notes[CUDNN_NUMERICAL_NOTE_TYPE_COUNT];
    int64_t count = 0;
    if (!engine ||
        g->lib->get(configuration, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
                    &count, &engine) != CUDNN_STATUS_SUCCESS ||
        g->lib->get(engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE,
                    CUDNN_NUMERICAL_NOTE_TYPE_COUNT, &count, notes) != CUDNN_STATUS_SUCCESS)
        return false;
    for (int64_t i = 0; i < count; ++i)
        if (notes[i] == CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC)
            return false;
    return true;
}

static bool plan_open(graph *g, cudnnHandle_t handle, descriptor configuration, runnable *to)
{
    int64_t count = 0;
    descriptor plan = make(g, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
    if (!plan ||
        g->lib->set(plan, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1, &handle) !=
            CUDNN_STATUS_SUCCESS ||
        g->lib->set(plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
                    &configuration) != CUDNN_STATUS_SUCCESS ||
        g->lib->finalize(plan) != CUDNN_STATUS_SUCCESS ||
        g->lib->get(plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1, &count,
                    &to->workspace_bytes) != CUDNN_STATUS_SUCCESS)
        return false;
    to->plan = plan;
    return true;
}

// The first configuration that heuristics name, repeats bit by bit, and makes a plan.
static void choose(graph *g, cudnnHandle_t handle, runnable *to)
{
    const cudnnBackendHeurMode_t mode = CUDNN_HEUR_MODE_A;
    descriptor operations = make(g, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    set(g, operations, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &handle);
    set(g, operations, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
        g->operation_count, g->operations);
    finalize(g, operations, "the graph");
    descriptor heuristics = make(g, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
    set_descriptor(g, heuristics, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, operations);
    set(g, heuristics, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode);
    finalize(g, heuristics, "the graph's heuristics");
    descriptor found[MOST_CONFIGURATIONS];
    int64_t count = 0;
    for (int i = 0; i < MOST_CONFIGURATIONS; ++i)
        found[i] = make(g, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
    if (g->status == CUDNN_STATUS_SUCCESS)
        check(g,
              g->lib->get(heuristics, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                          MOST_CONFIGURATIONS, &count, found),
              "the heuristics' results");
    for (int64_t i = 0; g->status == CUDNN_STATUS_SUCCESS && i < count && !to->plan; ++i)
        if (repeats(g, found[i]))
            plan_open(g, handle, found[i], to);
    if (!to->plan)
        check(g, CUDNN_STATUS_NOT_SUPPORTED, "no engine that repeats its results");
}

static bool runnable_open(mics_cuda_cudnn *cudnn, shape *s, bool backward)
{
    runnable *to = backward ? &s->backward : &s->forward;
    graph g = {.lib = &cudnn->lib, .next_virtual = FIRST_VIRTUAL, .B = s->B, .T = s->T};
    g.H = s->H;
    g.D = s->D;
    g.type = s->dtype == MICS_DTYPE_BF16 ? CUDNN_DATA_BFLOAT16 : CUDNN_DATA_HALF;
    if (backward)
        describe_backward(&g);
    else
        describe_forward(&g);
    choose(&g, cudnn->handle, to);
    memcpy(to->made, g.made, sizeof g.made);
    to->made_count = g.made_count;
    if (g.status != CUDNN_STATUS_SUCCESS)
        snprintf(s->why_not, sizeof s->why_not, "cuDNN, %s, %s: %s",
                 backward ? "backward" : "forward", g.what, cudnn->lib.error_text(g.status));
    return g.status == CUDNN_STATUS_SUCCESS;
}

// ---- shapes ----

static shape *shape_open(mics_cuda_cudnn *cudnn, mics_dtype dtype, const mics_cuda_attention *a)
{
    shape *s = calloc(1, sizeof *s);
    if (!s)
        return NULL;
    s->dtype = dtype;
    s->B = a->B;
    s->T = a->T;
    s->H = a->H;
    s->D = a->D;
    if (dtype == MICS_DTYPE_FP32 || a->D % 8 != 0 || a->D > 256)
        snprintf(s->why_not, sizeof s->why_not,
                 "cuDNN has attention for bf16 and fp16, and head dimensions in multiples of 8 up "
                 "to 256");
    else if (runnable_open(cudnn, s, false))
        runnable_open(cudnn, s, true);
    s->next = cudnn->shapes;
    cudnn->shapes = s;
    return s;
}

static shape *shape_of(mics_cuda_cudnn *cudnn, mics_dtype dtype, const mics_cuda_attention *a)
{
    pthread_mutex_lock(&cudnn->lock);
    shape *s = cudnn->shapes;
    while (s && (s->dtype != dtype || s->B != a->B || s->T != a->T || s->H != a->H || s->D != a->D))
        s = s->next;
    if (!s)
        s = shape_open(cudnn, dtype, a);
    pthread_mutex_unlock(&cudnn->lock);
    return s;
}

static size_t delta_bytes(const mics_cuda_attention *a)
{
    return ((size_t)(a->B * a->H * a->T) * sizeof(float) + 255) / 256 * 256;
}

const char *mics_cuda_cudnn_why_not(mics_cuda_cudnn *cudnn, const mics_op_place *at,
                                    const mics_cuda_attention *a)
{
    shape *s = shape_of(cudnn, at->dtype, a);
    if (!s)
        return "out of memory";
    if (s->why_not[0] != '\0')
        return s->why_not;
    const int64_t more = s->backward.workspace_bytes > s->forward.workspace_bytes
                             ? s->backward.workspace_bytes
                             : s->forward.workspace_bytes;
    const size_t needed = delta_bytes(a) + (size_t)more;
    if (needed <= at->workspace_bytes)
        return "";
    pthread_mutex_lock(&cudnn->lock);
    snprintf(s->no_room, sizeof s->no_room,
             "cuDNN's plans need %zu bytes of workspace, and the largest of the other kernels has "
             "%zu; ours run in these",
             needed, at->workspace_bytes);
    pthread_mutex_unlock(&cudnn->lock);
    return s->no_room;
}

// ---- running ----

typedef struct variant {
    int64_t names[16];
    void *addresses[16];
    int64_t count;
} variant;

static void with(variant *v, int64_t name, void *address)
{
    v->names[v->count] = name;
    v->addresses[v->count++] = address;
}

static cudnnStatus_t execute(mics_cuda_cudnn *cudnn, const mics_op_place *at, const runnable *r,
                             const variant *v, void *workspace)
{
    descriptor pack = NULL;
    cudnnStatus_t status = cudnn->lib.make(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, &pack);
    if (status == CUDNN_STATUS_SUCCESS)
        status = cudnn->lib.set(pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64,
                                v->count, v->names);
    if (status == CUDNN_STATUS_SUCCESS)
        status = cudnn->lib.set(pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR,
                                v->count, v->addresses);
    if (status == CUDNN_STATUS_SUCCESS)
        status = cudnn->lib.set(pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1,
                                &workspace);
    if (status == CUDNN_STATUS_SUCCESS)
        status = cudnn->lib.finalize(pack);
    if (status == CUDNN_STATUS_SUCCESS)
        status = cudnn->lib.set_stream(cudnn->handle,
                                       at->device->ops->stream_handle(at->device->ctx, at->stream));
    if (status == CUDNN_STATUS_SUCCESS)
        status = cudnn->lib.execute(cudnn->handle, r->plan, pack);
    if (pack)
        cudnn->lib.unmake(pack);
    return status;
}

static void run(mics_cuda_cudnn *cudnn, const mics_op_place *at, const mics_cuda_attention *a,
                bool backward)
{
    const shape *s = shape_of(cudnn, at->dtype, a);
    const size_t row = (size_t)(a->H * a->D) * mics_dtype_bytes(at->dtype);
    float scale = 1.0F / sqrtf((float)a->D), hidden = -1e30F, one = 1.0F;
    char *qkv = (char *)(uintptr_t)a->qkv_N3C, *dqkv = a->dqkv_N3C; // qkv is read only
    variant v = {.count = 0};
    with(&v, TENSOR_Q, qkv);
    with(&v, TENSOR_K, qkv + row);
    with(&v, TENSOR_V, qkv + 2 * row);
    with(&v, TENSOR_Y, a->y_NC);
    with(&v, TENSOR_LSE, a->lse_NH);
    with(&v, TENSOR_SCALE, &scale);
    with(&v, TENSOR_HIDDEN, &hidden);
    if (backward) {
        with(&v, TENSOR_DY, (void *)(uintptr_t)a->dy_NC); // read only
        with(&v, TENSOR_DQ, dqkv);
        with(&v, TENSOR_DK, dqkv + row);
        with(&v, TENSOR_DV, dqkv + 2 * row);
        with(&v, TENSOR_DELTA, at->workspace);
        with(&v, TENSOR_ONE, &one);
    }
    pthread_mutex_lock(&cudnn->lock);
    const cudnnStatus_t status = execute(cudnn, at, backward ? &s->backward : &s->forward, &v,
                                         (char *)at->workspace + delta_bytes(a));
    pthread_mutex_unlock(&cudnn->lock);
    if (status != CUDNN_STATUS_SUCCESS) {
        char text[128];
        snprintf(text, sizeof text, "cudnnBackendExecute: %s", cudnn->lib.error_text(status));
        at->device->ops->fail(at->device->ctx, text);
    }
}

void mics_cuda_cudnn_forward(mics_cuda_cudnn *cudnn, const mics_op_place *at,
                             const mics_cuda_attention *a)
{
    run(cudnn, at, a, false);
}

void mics_cuda_cudnn_backward(mics_cuda_cudnn *cudnn, const mics_op_place *at,
                              const mics_cuda_attention *a)
{
    run(cudnn, at, a, true);
}

// ---- the library ----

// dlsym gives an object's address for a function's; POSIX lets them be copied.
static bool find(const library *lib, const char *name, void *function_out)
{
    void *symbol = dlsym(lib->file, name);
    memcpy(function_out, &symbol, sizeof symbol);
    return symbol != NULL;
}

static bool find_all(library *lib)
{
    return find(lib, "cudnnCreate", &lib->create) && find(lib, "cudnnDestroy", &lib->destroy) &&
           find(lib, "cudnnSetStream", &lib->set_stream) &&
           find(lib, "cudnnGetErrorString", &lib->error_text) &&
           find(lib, "cudnnBackendCreateDescriptor", &lib->make) &&
           find(lib, "cudnnBackendDestroyDescriptor", &lib->unmake) &&
           find(lib, "cudnnBackendSetAttribute", &lib->set) &&
           find(lib, "cudnnBackendGetAttribute", &lib->get) &&
           find(lib, "cudnnBackendFinalize", &lib->finalize) &&
           find(lib, "cudnnBackendExecute", &lib->execute);
}

mics_cuda_cudnn *mics_cuda_cudnn_open(const char **why_not_out)
{
    mics_cuda_cudnn *cudnn = calloc(1, sizeof *cudnn);
    *why_not_out = "out of memory";
    if (!cudnn)
        return NULL;
    pthread_mutex_init(&cudnn->lock, NULL);
    cudnn->lib.file = dlopen("libcudnn.so.9", RTLD_NOW | RTLD_LOCAL);
    if (!cudnn->lib.file)
        *why_not_out =
            "libcudnn.so.9 cannot be opened: install cuDNN 9, or put it into the loader's path";
    else if (!find_all(&cudnn->lib))
        *why_not_out = "libcudnn.so.9 lacks functions of cuDNN 9";
    else if (cudnn->lib.create(&cudnn->handle) != CUDNN_STATUS_SUCCESS)
        *why_not_out = "cudnnCreate failed: the driver or the GPU is too old for this cuDNN";
    else
        return cudnn;
    mics_cuda_cudnn_close(cudnn);
    return NULL;
}

void mics_cuda_cudnn_close(mics_cuda_cudnn *cudnn)
{
    if (!cudnn)
        return;
    while (cudnn->shapes) {
        shape *s = cudnn->shapes;
        cudnn->shapes = s->next;
        unmake(&cudnn->lib, s->forward.made, s->forward.made_count);
        unmake(&cudnn->lib, s->backward.made, s->backward.made_count);
        free(s);
    }
    if (cudnn->handle)
        cudnn->lib.destroy(cudnn->handle);
    if (cudnn->lib.file)
        dlclose(cudnn->lib.file);
    pthread_mutex_destroy(&cudnn->lock);
    free(cudnn);
}
