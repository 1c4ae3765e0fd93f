// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// cuDNN's backend interface on the CPU, as far as attention uses it: operation graphs are taken as
// they are written, op by op in fp64, with tensors rounded to their types, enqueued on emulated
// streams.
//
// It is stricter than the library, so that what would go wrong on a chip goes wrong here:
// - an attribute is refused that its kind of descriptor lacks, of another type or count, after the
//   descriptor was finalised, or with one that is not; finalising refuses what is missing;
// - shapes of operations must match, virtual tensors are written once and read, and others have one
//   descriptor a number;
// - a call must name the address of every tensor that is not virtual and of no other, aligned
//   as was said and whole in the device's memory, or in the host's where the number is passed by value;
// - the workspace that a plan asked for is overwritten.
#include "cuda_bf16.h"
#include "cuda_fp16.h"
#include "emulated.h"
#include "ops/attention/cudnn_api.h"
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <set>
#include <string>
#include <vector>

namespace
{

constexpr int BAD = 2000, NOT_SUPPORTED = 3000;

struct handle {
    cudaStream_t stream = nullptr;
};

struct value {
    int type;
    std::vector<char> bytes;
    template <typename T> std::vector<T> as() const
    {
        std::vector<T> out(bytes.size() / sizeof(T));
        std::memcpy(out.data(), bytes.data(), bytes.size());
        return out;
    }
};

struct descriptor {
    int kind;
    bool finalised = false;
    std::map<int, value> values;
    bool has(int name) const
    {
        return values.count(name) != 0;
    }
    template <typename T> T one(int name) const
    {
        return values.at(name).as<T>()[0];
    }
    const descriptor &of(int name) const
    {
        return *one<const descriptor *>(name);
    }
};

thread_local std::string said;

int fail(int status, const std::string &why)
{
    said = why;
    return status;
}

int number(const char *name, int otherwise)
{
    const char *text = std::getenv(name);
    return text != nullptr && *text != '\0' ? std::atoi(text) : otherwise;
}

// ---- what a kind of descriptor has ----

struct rule {
    int kind, name, type;
    int64_t count; // 0: any
    bool needed;
    int refers; // kind that a descriptor must be of; -1: no descriptor
};

const rule rules[] = {
    {CUDNN_TENSOR, CUDNN_TENSOR_TYPE, CUDNN_IS_TYPE, 1, true, -1},
    {CUDNN_TENSOR, CUDNN_TENSOR_DIMS, CUDNN_IS_INT64, 4, true, -1},
    {CUDNN_TENSOR, CUDNN_TENSOR_STRIDES, CUDNN_IS_INT64, 4, true, -1},
    {CUDNN_TENSOR, CUDNN_TENSOR_UID, CUDNN_IS_INT64, 1, true, -1},
    {CUDNN_TENSOR, CUDNN_TENSOR_ALIGNMENT, CUDNN_IS_INT64, 1, true, -1},
    {CUDNN_TENSOR, CUDNN_TENSOR_VIRTUAL, CUDNN_IS_BOOL, 1, false, -1},
    {CUDNN_TENSOR, CUDNN_TENSOR_BY_VALUE, CUDNN_IS_BOOL, 1, false, -1},
    {CUDNN_MATMUL, CUDNN_MATMUL_PRECISION, CUDNN_IS_TYPE, 1, true, -1},
    {CUDNN_MATMUL_OP, CUDNN_MATMUL_OP_A, CUDNN_IS_DESCRIPTOR, 1, true, CUDNN_TENSOR},
    {CUDNN_MATMUL_OP, CUDNN_MATMUL_OP_B, CUDNN_IS_DESCRIPTOR, 1, true, CUDNN_TENSOR},
    {CUDNN_MATMUL_OP, CUDNN_MATMUL_OP_C, CUDNN_IS_DESCRIPTOR, 1, true, CUDNN_TENSOR},
    {CUDNN_MATMUL_OP, CUDNN_MATMUL_OP_DESC, CUDNN_IS_DESCRIPTOR, 1, true, CUDNN_MATMUL},
    {CUDNN_POINTWISE, CUDNN_POINTWISE_MODE, CUDNN_IS_POINTWISE_MODE, 1, true, -1},
    {CUDNN_POINTWISE, CUDNN_POINTWISE_PRECISION, CUDNN_IS_TYPE, 1, true, -1},
    {CUDNN_POINTWISE, CUDNN_POINTWISE_AXIS, CUDNN_IS_INT64, 1, false, -1},
    {CUDNN_POINTWISE_OP, CUDNN_POINTWISE_OP_DESC, CUDNN_IS_DESCRIPTOR, 1, true, CUDNN_POINTWISE},
    {CUDNN_POINTWISE_OP, CUDNN_POINTWISE_OP_X, CUDNN_IS_DESCRIPTOR, 1, true, CUDNN_TENSOR},
    {CUDNN_POINTWISE_OP, CUDNN_POINTWISE_OP_B, CUDNN_IS_DESCRIPTOR, 1, false, CUDNN_TENSOR},
    {CUDNN_POINTWISE_OP, CUDNN_POINTWISE_OP_T, CUDNN_IS_DESCRIPTOR, 1, false, CUDNN_TENSOR},
    {CUDNN_POINTWISE_OP, CUDNN_POINTWISE_OP_Y, CUDNN_IS_DESCRIPTOR, 1, true, CUDNN_TENSOR},
    {CUDNN_REDUCTION, CUDNN_REDUCTION_MODE, CUDNN_IS_REDUCTION_MODE, 1, true, -1},
    {CUDNN_REDUCTION, CUDNN_REDUCTION_PRECISION, CUDNN_IS_TYPE, 1, true, -1},
    {CUDNN_REDUCTION_OP, CUDNN_REDUCTION_OP_X, CUDNN_IS_DESCRIPTOR, 1, true, CUDNN_TENSOR},
    {CUDNN_REDUCTION_OP, CUDNN_REDUCTION_OP_Y, CUDNN_IS_DESCRIPTOR, 1, true, CUDNN_TENSOR},
    {CUDNN_REDUCTION_OP, CUDNN_REDUCTION_OP_DESC, CUDNN_IS_DESCRIPTOR, 1, true, CUDNN_REDUCTION},
    {CUDNN_RESHAPE_OP, CUDNN_RESHAPE_OP_X, CUDNN_IS_DESCRIPTOR, 1, true, CUDNN_TENSOR},
    {CUDNN_RESHAPE_OP, CUDNN_RESHAPE_OP_Y, CUDNN_IS_DESCRIPTOR, 1, true, CUDNN_TENSOR},
    {CUDNN_GRAPH, CUDNN_GRAPH_HANDLE, CUDNN_IS_HANDLE, 1, true, -1},
    {CUDNN_GRAPH, CUDNN_GRAPH_OPS, CUDNN_IS_DESCRIPTOR, 0, true, -1},
    {CUDNN_HEURISTICS, CUDNN_HEURISTICS_GRAPH, CUDNN_IS_DESCRIPTOR, 1, true, CUDNN_GRAPH},
    {CUDNN_HEURISTICS, CUDNN_HEURISTICS_MODE, CUDNN_IS_HEURISTICS_MODE, 1, true, -1},
    {CUDNN_PLAN, CUDNN_PLAN_HANDLE, CUDNN_IS_HANDLE, 1, true, -1},
    {CUDNN_PLAN, CUDNN_PLAN_CONFIG, CUDNN_IS_DESCRIPTOR, 1, true, CUDNN_CONFIG},
    {CUDNN_PACK, CUDNN_PACK_UIDS, CUDNN_IS_INT64, 0, true, -1},
    {CUDNN_PACK, CUDNN_PACK_POINTERS, CUDNN_IS_POINTER, 0, true, -1},
    {CUDNN_PACK, CUDNN_PACK_WORKSPACE, CUDNN_IS_POINTER, 1, true, -1},
};

size_t bytes_of(int type)
{
    switch (type) {
    case CUDNN_IS_BOOL:
        return 1;
    case CUDNN_IS_INT64:
    case CUDNN_IS_HANDLE:
    case CUDNN_IS_POINTER:
    case CUDNN_IS_DESCRIPTOR:
        return 8;
    default:
        return 4;
    }
}

// ---- tensors ----

struct tensor {
    const descriptor *from;
    int type;
    std::vector<int64_t> dims, strides;
    int64_t uid;
    bool is_virtual, by_value;
    int64_t elems() const
    {
        return dims[0] * dims[1] * dims[2] * dims[3];
    }
    int64_t last() const
    {
        int64_t at = 0;
        for (int i = 0; i < 4; i++)
            at += (dims[i] - 1) * strides[i];
        return at;
    }
    size_t elem_bytes() const
    {
        return type == CUDNN_BOOL ? 1 : type == CUDNN_HALF || type == CUDNN_BF16 ? 2 : 4;
    }
};

tensor tensor_of(const descriptor &d)
{
    return {&d,
            d.one<int>(CUDNN_TENSOR_TYPE),
            d.values.at(CUDNN_TENSOR_DIMS).as<int64_t>(),
            d.values.at(CUDNN_TENSOR_STRIDES).as<int64_t>(),
            d.one<int64_t>(CUDNN_TENSOR_UID),
            d.has(CUDNN_TENSOR_VIRTUAL) && d.one<char>(CUDNN_TENSOR_VIRTUAL) != 0,
            d.has(CUDNN_TENSOR_BY_VALUE) && d.one<char>(CUDNN_TENSOR_BY_VALUE) != 0};
}

int check_tensor(const descriptor &d)
{
    const tensor t = tensor_of(d);
    const int known[] = {CUDNN_FLOAT, CUDNN_HALF, CUDNN_INT32, CUDNN_BF16, CUDNN_BOOL};
    for (int i = 0; i < 4; i++)
        if (t.dims[i] < 1 || t.strides[i] < 1)
            return fail(BAD, "a tensor has no size or stride");
    if (std::find(known, known + 5, t.type) == known + 5)
        return fail(BAD, "a tensor has an unknown type");
    if (t.is_virtual && t.by_value)
        return fail(BAD, "a virtual tensor is passed by value");
    if (t.by_value && t.elems() != 1)
        return fail(BAD, "a tensor that is passed by value has several numbers");
    return d.one<int64_t>(CUDNN_TENSOR_ALIGNMENT) % (int64_t)t.elem_bytes() == 0
               ? CUDNN_OK
               : fail(BAD, "a tensor's alignment is no multiple of its numbers");
}

// ---- operations ----

bool is_broadcast(const tensor &from, const tensor &to)
{
    for (int i = 0; i < 4; i++)
        if (from.dims[i] != to.dims[i] && from.dims[i] != 1)
            return false;
    return true;
}

int check_matmul(const descriptor &d)
{
    const tensor a = tensor_of(d.of(CUDNN_MATMUL_OP_A)), b = tensor_of(d.of(CUDNN_MATMUL_OP_B)),
                 c = tensor_of(d.of(CUDNN_MATMUL_OP_C));
    const bool match = a.dims[0] == b.dims[0] && a.dims[0] == c.dims[0] && a.dims[1] == c.dims[1] &&
                       a.dims[1] % b.dims[1] == 0 && a.dims[2] == c.dims[2] &&
                       a.dims[3] == b.dims[2] && b.dims[3] == c.dims[3];
    if (!match)
        return fail(BAD, "the shapes of a matrix product do not match");
    // Tensor cores take both factors in one type of 2 bytes, or fp32 scores as the left one.
    return b.elem_bytes() == 2 && (a.type == b.type || (a.is_virtual && a.type == CUDNN_FLOAT))
               ? CUDNN_OK
               : fail(NOT_SUPPORTED, "the types of a matrix product do not match");
}

int check_pointwise(const descriptor &d)
{
    const int mode = d.of(CUDNN_POINTWISE_OP_DESC).one<int>(CUDNN_POINTWISE_MODE);
    const bool index = mode == CUDNN_INDEX, select = mode == CUDNN_SELECT;
    const bool alone = mode == CUDNN_EXP || mode == CUDNN_LOG || index;
    const tensor x = tensor_of(d.of(CUDNN_POINTWISE_OP_X)),
                 y = tensor_of(d.of(CUDNN_POINTWISE_OP_Y));
    if (d.has(CUDNN_POINTWISE_OP_B) == alone || d.has(CUDNN_POINTWISE_OP_T) != select)
        return fail(BAD, "a pointwise operation has too few operands, or too many");
    if (d.of(CUDNN_POINTWISE_OP_DESC).has(CUDNN_POINTWISE_AXIS) != index)
        return fail(BAD, "an axis is for numbers of elements, which need one");
    if (!is_broadcast(x, y) || (!alone && !is_broadcast(tensor_of(d.of(CUDNN_POINTWISE_OP_B)), y)))
        return fail(BAD, "the shapes of a pointwise operation do not match");
    if ((mode == CUDNN_GREATER_EQUAL) != (y.type == CUDNN_BOOL) ||
        index != (y.type == CUDNN_INT32) ||
        (select && tensor_of(d.of(CUDNN_POINTWISE_OP_T)).type != CUDNN_BOOL))
        return fail(BAD, "the types of a pointwise operation do not match");
    return CUDNN_OK;
}

int check_reduction(const descriptor &d)
{
    const tensor x = tensor_of(d.of(CUDNN_REDUCTION_OP_X)),
                 y = tensor_of(d.of(CUDNN_REDUCTION_OP_Y));
    for (int i = 0; i < 4; i++)
        if (x.dims[i] % y.dims[i] != 0)
            return fail(BAD, "the shapes of a reduction do not match");
    return CUDNN_OK;
}

int check_reshape(const descriptor &d)
{
    return tensor_of(d.of(CUDNN_RESHAPE_OP_X)).elems() ==
                   tensor_of(d.of(CUDNN_RESHAPE_OP_Y)).elems()
               ? CUDNN_OK
               : fail(BAD, "a tensor is reshaped to another size");
}

struct operation {
    const descriptor *op;
    std::vector<tensor> reads;
    tensor writes;
};

operation operation_of(const descriptor &d)
{
    switch (d.kind) {
    case CUDNN_MATMUL_OP:
        return {&d,
                {tensor_of(d.of(CUDNN_MATMUL_OP_A)), tensor_of(d.of(CUDNN_MATMUL_OP_B))},
                tensor_of(d.of(CUDNN_MATMUL_OP_C))};
    case CUDNN_REDUCTION_OP:
        return {&d, {tensor_of(d.of(CUDNN_REDUCTION_OP_X))}, tensor_of(d.of(CUDNN_REDUCTION_OP_Y))};
    case CUDNN_RESHAPE_OP:
        return {&d, {tensor_of(d.of(CUDNN_RESHAPE_OP_X))}, tensor_of(d.of(CUDNN_RESHAPE_OP_Y))};
    default: {
        operation o = {
            &d, {tensor_of(d.of(CUDNN_POINTWISE_OP_X))}, tensor_of(d.of(CUDNN_POINTWISE_OP_Y))};
        for (int name : {CUDNN_POINTWISE_OP_B, CUDNN_POINTWISE_OP_T})
            if (d.has(name))
                o.reads.emplace_back(tensor_of(d.of(name)));
        return o;
    }
    }
}

std::vector<operation> operations_of(const descriptor &graph)
{
    std::vector<operation> all;
    for (const descriptor *op : graph.values.at(CUDNN_GRAPH_OPS).as<const descriptor *>())
        all.emplace_back(operation_of(*op));
    return all;
}

int check_graph(const descriptor &d)
{
    std::map<int64_t, const descriptor *> known;
    std::set<int64_t> written, read;
    for (const descriptor *op : d.values.at(CUDNN_GRAPH_OPS).as<const descriptor *>())
        if (op->kind != CUDNN_MATMUL_OP && op->kind != CUDNN_POINTWISE_OP &&
            op->kind != CUDNN_REDUCTION_OP && op->kind != CUDNN_RESHAPE_OP)
            return fail(BAD, "a graph has what is no operation");
    for (const operation &o : operations_of(d)) {
        std::vector<tensor> all = o.reads;
        all.emplace_back(o.writes);
        for (const tensor &t : all)
            if (known.emplace(t.uid, t.from).first->second != t.from)
                return fail(BAD, "two tensors of a graph have one number");
        for (const tensor &t : o.reads) {
            if (t.is_virtual && written.count(t.uid) == 0)
                return fail(BAD, "a virtual tensor is read before it is written");
            read.insert(t.uid);
        }
        if (!written.insert(o.writes.uid).second || o.writes.by_value)
            return fail(BAD, "a tensor is written twice, or passed by value");
    }
    for (const auto &entry : known)
        if (tensor_of(*entry.second).is_virtual && read.count(entry.first) == 0)
            return fail(BAD, "a virtual tensor is not read");
    return CUDNN_OK;
}

// What cuDNN 9.19 asks for on compute capability 9.0: scores' gradients on tiles of 128 x 64, and
// gradients of keys and values for each query head where heads share them.
int64_t workspace_of(const descriptor &graph)
{
    int64_t bytes = 256, matmuls = 0, scores = 0, shared = 0;
    const int64_t forced = number("MICS_EMULATED_CUDNN_WORKSPACE", -1);
    for (const operation &o : operations_of(graph)) {
        const std::vector<int64_t> &y = o.writes.dims;
        if (o.op->kind == CUDNN_REDUCTION_OP && o.reads[0].dims[1] != y[1])
            shared += (2 * o.reads[0].elems() + 127) / 128 * 128;
        if (o.op->kind == CUDNN_MATMUL_OP && matmuls++ == 0)
            scores = 2 * y[0] * y[1] * ((y[2] + 127) / 128 * 128) * ((y[3] + 63) / 64 * 64);
    }
    if (matmuls > 2)
        bytes += scores + shared;
    return matmuls > 2 && forced >= 0 ? forced : bytes;
}

int finalise(descriptor &d)
{
    for (const rule &r : rules)
        if (r.kind == d.kind && r.needed && !d.has(r.name))
            return fail(BAD, "attribute " + std::to_string(r.name) + " is missing");
    switch (d.kind) {
    case CUDNN_TENSOR:
        return check_tensor(d);
    case CUDNN_MATMUL_OP:
        return check_matmul(d);
    case CUDNN_POINTWISE_OP:
        return check_pointwise(d);
    case CUDNN_REDUCTION_OP:
        return check_reduction(d);
    case CUDNN_RESHAPE_OP:
        return check_reshape(d);
    case CUDNN_GRAPH:
        return check_graph(d);
    case CUDNN_PACK:
        return d.values.at(CUDNN_PACK_UIDS).bytes.size() ==
                       d.values.at(CUDNN_PACK_POINTERS).bytes.size()
                   ? CUDNN_OK
                   : fail(BAD, "a pack has not an address a number");
    default:
        return CUDNN_OK;
    }
}

// ---- running a graph ----

float rounded(double x, int type)
{
    switch (type) {
    case CUDNN_HALF:
        return float(__half(float(x)));
    case CUDNN_BF16:
        return float(__nv_bfloat16(float(x)));
    default:
        return float(x);
    }
}

// The addresses of a call, and the virtual tensors as far as they are written, packed.
struct run {
    std::map<int64_t, char *> at;
    std::map<int64_t, std::vector<float>> held;

    int64_t offset(const tensor &t, int64_t i) const
    {
        int64_t at_elem = 0;
        for (int axis = 3; axis >= 0; axis--) {
            at_elem += i % t.dims[axis] * t.strides[axis];
            i /= t.dims[axis];
        }
        return at_elem;
    }
    float load(const tensor &t, int64_t i) const
    {
        const char *from = at.at(t.uid) + offset(t, i) * (int64_t)t.elem_bytes();
        if (t.type == CUDNN_FLOAT) {
            float x;
            std::memcpy(&x, from, sizeof x);
            return x;
        }
        unsigned short bits;
        std::memcpy(&bits, from, sizeof bits);
        if (t.type == CUDNN_BF16)
            return mics_emulated::bf16_value(bits);
        __half x;
        std::memcpy(&x, &bits, sizeof x);
        return float(x);
    }
    void store(const tensor &t, int64_t i, float x)
    {
        char *to = at.at(t.uid) + offset(t, i) * (int64_t)t.elem_bytes();
        if (t.type == CUDNN_FLOAT) {
            std::memcpy(to, &x, sizeof x);
        } else if (t.type == CUDNN_BF16) {
            const __nv_bfloat16 bits(x);
            std::memcpy(to, &bits, sizeof bits);
        } else {
            const __half bits(x);
            std::memcpy(to, &bits, sizeof bits);
        }
    }
    // All numbers of a tensor, in the order of its dimensions.
    std::vector<float> read(const tensor &t) const
    {
        if (t.is_virtual)
            return held.at(t.uid);
        std::vector<float> out((size_t)t.elems());
        for (int64_t i = 0; i < t.elems(); i++)
            out[(size_t)i] = load(t, i);
        return out;
    }
    void write(const tensor &t, const std::vector<double> &values)
    {
        std::vector<float> out((size_t)t.elems());
        for (int64_t i = 0; i < t.elems(); i++) {
            out[(size_t)i] = rounded(values[(size_t)i], t.type);
            if (!t.is_virtual)
                store(t, i, out[(size_t)i]);
        }
        if (t.is_virtual)
            held[t.uid] = out;
    }
};

std::vector<double> matmul(const run &r, const operation &o)
{
    const tensor &a = o.reads[0], &b = o.reads[1], &c = o.writes;
    const std::vector<float> left = r.read(a), right = r.read(b);
    const int64_t H = c.dims[1], M = c.dims[2], N = c.dims[3], K = a.dims[3];
    const int64_t shared = a.dims[1] / b.dims[1];
    std::vector<double> out((size_t)c.elems());
    for (int64_t h = 0; h < c.dims[0] * H; h++)
        for (int64_t m = 0; m < M; m++)
            for (int64_t k = 0; k < K; k++) {
                const int64_t of = h / H * b.dims[1] + h % H / shared;
                // Scores that come as fp32 are rounded on their way to the tensor cores.
                const double x = rounded(left[(size_t)((h * M + m) * K + k)], b.type);
                for (int64_t n = 0; n < N; n++)
                    out[(size_t)((h * M + m) * N + n)] +=
                        x * (double)right[(size_t)((of * K + k) * N + n)];
            }
    return out;
}

// Which element of a tensor the broadcast of it to `to` has in place i; of a smaller one of a
// reduction, which it is summed into.
int64_t place(const tensor &t, const tensor &to, int64_t i)
{
    int64_t at = 0, stride = 1;
    for (int axis = 3; axis >= 0; axis--) {
        const int64_t index = i % to.dims[axis] * t.dims[axis] / to.dims[axis];
        at += index * stride;
        stride *= t.dims[axis];
        i /= to.dims[axis];
    }
    return at;
}

double apply(int mode, double x, double b, bool chosen)
{
    switch (mode) {
    case CUDNN_ADD:
        return x + b;
    case CUDNN_MUL:
        return x * b;
    case CUDNN_DIV:
        return x / b;
    case CUDNN_SUB:
        return x - b;
    case CUDNN_EXP:
        return std::exp(x);
    case CUDNN_LOG:
        return std::log(x);
    case CUDNN_GREATER_EQUAL:
        return x >= b;
    case CUDNN_SELECT:
        return chosen ? x : b;
    default:
        mics_emulated::defect_in("cuDNN", "pointwise mode %d is not emulated", mode);
    }
}

std::vector<double> pointwise(const run &r, const operation &o)
{
    const descriptor &how = o.op->of(CUDNN_POINTWISE_OP_DESC);
    const int mode = how.one<int>(CUDNN_POINTWISE_MODE);
    const tensor &y = o.writes;
    std::vector<double> out((size_t)y.elems());
    if (mode == CUDNN_INDEX) {
        const int64_t axis = how.one<int64_t>(CUDNN_POINTWISE_AXIS);
        for (int64_t i = 0; i < y.elems(); i++)
            out[(size_t)i] = (double)(axis == 3 ? i % y.dims[3] : i / y.dims[3] % y.dims[2]);
        return out;
    }
    std::vector<std::vector<float>> in;
    for (const tensor &t : o.reads)
        in.emplace_back(r.read(t));
    for (int64_t i = 0; i < y.elems(); i++) {
        double x[3] = {0, 0, 0};
        for (size_t n = 0; n < in.size(); n++)
            x[n] = (double)in[n][(size_t)place(o.reads[n], y, i)];
        out[(size_t)i] = apply(mode, x[0], x[1], x[2] != 0);
    }
    return out;
}

std::vector<double> reduction(const run &r, const operation &o)
{
    const bool sums = o.op->of(CUDNN_REDUCTION_OP_DESC).one<int>(CUDNN_REDUCTION_MODE) == CUDNN_SUM;
    const tensor &x = o.reads[0], &y = o.writes;
    const std::vector<float> in = r.read(x);
    std::vector<double> out((size_t)y.elems(), sums ? 0 : -HUGE_VAL);
    for (int64_t i = 0; i < x.elems(); i++) {
        double &to = out[(size_t)place(y, x, i)];
        to = sums ? to + (double)in[(size_t)i] : std::max(to, (double)in[(size_t)i]);
    }
    return out;
}

// A reshape here always turns rows and columns: numbers keep their place in memory.
std::vector<double> reshaped(const run &r, const operation &o)
{
    const tensor &x = o.reads[0], &y = o.writes;
    const std::vector<float> in = r.read(x);
    std::vector<double> out((size_t)y.elems());
    if (y.dims[2] != x.dims[3] || y.dims[3] != x.dims[2] || y.strides[2] != x.strides[3] ||
        y.strides[3] != x.strides[2])
        mics_emulated::defect_in("cuDNN", "a reshape that does not turn rows is not emulated");
    for (int64_t i = 0; i < y.elems(); i++) {
        const int64_t row = i / y.dims[3] % y.dims[2], column = i % y.dims[3];
        const int64_t matrix = i / y.dims[3] / y.dims[2];
        out[(size_t)i] = (double)in[(size_t)((matrix * x.dims[2] + column) * x.dims[3] + row)];
    }
    return out;
}

void run_graph(const std::vector<operation> &operations, const std::map<int64_t, char *> &at,
               char *workspace, size_t workspace_bytes)
{
    run r = {at, {}};
    std::memset(workspace, 0xff, workspace_bytes);
    for (const operation &o : operations) {
        switch (o.op->kind) {
        case CUDNN_MATMUL_OP:
            r.write(o.writes, matmul(r, o));
            break;
        case CUDNN_REDUCTION_OP:
            r.write(o.writes, reduction(r, o));
            break;
        case CUDNN_RESHAPE_OP:
            r.write(o.writes, reshaped(r, o));
            break;
        default:
            r.write(o.writes, pointwise(r, o));
        }
    }
}

// ---- calls ----

int check_address(const tensor &t, char *at)
{
    const size_t bytes = ((size_t)t.last() + 1) * t.elem_bytes();
    const bool device =
        mics_emulated::memory_of(at, bytes, "cuDNN") == mics_emulated::MEMORY_DEVICE;
    if (device == t.by_value)
        return fail(BAD,
                    "a number that is passed by value lies on the device, or a tensor does not");
    return t.by_value ||
                   (uintptr_t)at % (uintptr_t)t.from->one<int64_t>(CUDNN_TENSOR_ALIGNMENT) == 0
               ? CUDNN_OK
               : fail(BAD, "an address is not aligned as was said");
}

int execute(handle *h, const descriptor &plan, const descriptor &pack)
{
    const descriptor &graph = plan.of(CUDNN_PLAN_CONFIG).of(CUDNN_HEURISTICS_GRAPH);
    const std::vector<operation> operations = operations_of(graph);
    const std::vector<int64_t> uids = pack.values.at(CUDNN_PACK_UIDS).as<int64_t>();
    const std::vector<char *> addresses = pack.values.at(CUDNN_PACK_POINTERS).as<char *>();
    std::map<int64_t, char *> at;
    std::set<int64_t> used;
    for (size_t i = 0; i < uids.size(); i++)
        if (!at.emplace(uids[i], addresses[i]).second)
            return fail(BAD, "a pack names a tensor twice");
    for (const operation &o : operations) {
        std::vector<tensor> all = o.reads;
        all.emplace_back(o.writes);
        for (const tensor &t : all) {
            if (t.is_virtual || !used.insert(t.uid).second)
                continue;
            if (at.count(t.uid) == 0 || at[t.uid] == nullptr)
                return fail(BAD, "a pack lacks a tensor's address");
            const int status = check_address(t, at[t.uid]);
            if (status != CUDNN_OK)
                return status;
        }
    }
    if (used.size() != at.size())
        return fail(BAD, "a pack names what the graph has not");
    char *workspace = pack.one<char *>(CUDNN_PACK_WORKSPACE);
    const size_t bytes = (size_t)workspace_of(graph);
    if (mics_emulated::memory_of(workspace, bytes, "cuDNN") != mics_emulated::MEMORY_DEVICE)
        return fail(BAD, "the workspace does not lie on the device");
    const cudaError_t error = mics_emulated::enqueue(
        h->stream, "cudnn", [=] { run_graph(operations, at, workspace, bytes); });
    return error == cudaSuccess ? CUDNN_OK : fail(5000, "enqueueing failed");
}

// ---- the interface ----

size_t get_version()
{
    const int64_t version = number("MICS_EMULATED_CUDNN", 91900);
    if (version < 0)
        std::abort();
    return (size_t)version;
}

void get_last_error(char *message, size_t bytes)
{
    std::snprintf(message, bytes, "%s", said.c_str());
}

int create_handle(cudnn_handle *out)
{
    *out = new handle;
    return CUDNN_OK;
}

int destroy_handle(cudnn_handle h)
{
    delete static_cast<handle *>(h);
    return CUDNN_OK;
}

int set_stream(cudnn_handle h, void *stream)
{
    static_cast<handle *>(h)->stream = static_cast<cudaStream_t>(stream);
    return CUDNN_OK;
}

int create(int kind, cudnn_descriptor *out)
{
    const bool known = kind == CUDNN_ENGINE || kind == CUDNN_CONFIG ||
                       std::any_of(std::begin(rules), std::end(rules),
                                   [=](const rule &r) { return r.kind == kind; });
    if (!known)
        return fail(BAD, "a kind of descriptor is not emulated");
    *out = new descriptor{kind, false, {}};
    return CUDNN_OK;
}

int destroy(cudnn_descriptor d)
{
    delete static_cast<descriptor *>(d);
    return CUDNN_OK;
}

int finalize(cudnn_descriptor of)
{
    descriptor *d = static_cast<descriptor *>(of);
    if (d->finalised)
        return fail(BAD, "a descriptor is finalised twice");
    const int status = finalise(*d);
    d->finalised = status == CUDNN_OK;
    return status;
}

int set_attribute(cudnn_descriptor of, int name, int type, int64_t count, const void *values)
{
    descriptor *d = static_cast<descriptor *>(of);
    const rule *r = std::find_if(std::begin(rules), std::end(rules), [=](const rule &one) {
        return one.kind == d->kind && one.name == name;
    });
    if (r == std::end(rules) || r->type != type || (r->count != 0 && r->count != count) ||
        count < 1)
        return fail(BAD, "kind " + std::to_string(d->kind) + " takes no such attribute " +
                             std::to_string(name));
    if (d->finalised)
        return fail(BAD, "a finalised descriptor is changed");
    const char *from = static_cast<const char *>(values);
    value v = {type, {from, from + (size_t)count * bytes_of(type)}};
    if (type == CUDNN_IS_DESCRIPTOR)
        for (const descriptor *to : v.as<const descriptor *>())
            if (to == nullptr || !to->finalised || (r->refers >= 0 && to->kind != r->refers))
                return fail(2004, "a descriptor is not finalised, or of another kind");
    if (type == CUDNN_IS_HANDLE && v.as<void *>()[0] == nullptr)
        return fail(BAD, "there is no handle");
    d->values[name] = v;
    return CUDNN_OK;
}

template <typename T> void put(descriptor &d, int name, int type, T what)
{
    const char *from = reinterpret_cast<const char *>(&what);
    d.values[name] = {type, {from, from + sizeof what}};
    d.finalised = true;
}

// Two configurations: the first is not deterministic, as far as backward goes.
int give_results(const descriptor &heuristics, int64_t capacity, int64_t *count, void *values)
{
    if (number("MICS_EMULATED_CUDNN_PLANS", 1) == 0) {
        *count = 0;
        return CUDNN_OK;
    }
    *count = 2;
    for (int64_t i = 0; i < 2 && i < capacity; i++) {
        descriptor &config = *static_cast<descriptor **>(values)[i];
        put(config, CUDNN_HEURISTICS_GRAPH, CUDNN_IS_DESCRIPTOR,
            heuristics.one<const descriptor *>(CUDNN_HEURISTICS_GRAPH));
        put(config, CUDNN_ENGINE_NOTES, CUDNN_IS_NOTE, i == 0 ? CUDNN_NOTE_NONDETERMINISTIC : 0);
    }
    return CUDNN_OK;
}

int get_attribute(cudnn_descriptor of, int name, int type, int64_t capacity, int64_t *count,
                  void *values)
{
    const descriptor *d = static_cast<const descriptor *>(of);
    if (!d->finalised)
        return fail(2004, "a descriptor that is not finalised is asked");
    if (d->kind == CUDNN_HEURISTICS && name == CUDNN_HEURISTICS_RESULTS)
        return give_results(*d, capacity, count, values);
    *count = 1;
    if (d->kind == CUDNN_CONFIG && name == CUDNN_CONFIG_ENGINE && type == CUDNN_IS_DESCRIPTOR) {
        descriptor &engine = **static_cast<descriptor **>(values);
        put(engine, CUDNN_ENGINE_NOTES, CUDNN_IS_NOTE, d->one<int>(CUDNN_ENGINE_NOTES));
    } else if (d->kind == CUDNN_ENGINE && name == CUDNN_ENGINE_NOTES && type == CUDNN_IS_NOTE) {
        *static_cast<int *>(values) = d->one<int>(CUDNN_ENGINE_NOTES);
    } else if (d->kind == CUDNN_CONFIG && name == CUDNN_CONFIG_WORKSPACE) {
        *static_cast<int64_t *>(values) = workspace_of(d->of(CUDNN_HEURISTICS_GRAPH));
    } else if (d->kind == CUDNN_PLAN && name == CUDNN_PLAN_WORKSPACE) {
        *static_cast<int64_t *>(values) =
            workspace_of(d->of(CUDNN_PLAN_CONFIG).of(CUDNN_HEURISTICS_GRAPH));
    } else {
        return fail(BAD, "an attribute is not emulated");
    }
    return CUDNN_OK;
}

int execute_plan(cudnn_handle h, cudnn_descriptor of, cudnn_descriptor with)
{
    const descriptor *plan = static_cast<descriptor *>(of), *pack = static_cast<descriptor *>(with);
    if (plan->kind != CUDNN_PLAN || pack->kind != CUDNN_PACK || !plan->finalised ||
        !pack->finalised)
        return fail(BAD, "no plan, or no pack");
    if (plan->of(CUDNN_PLAN_CONFIG).one<int>(CUDNN_ENGINE_NOTES) == CUDNN_NOTE_NONDETERMINISTIC)
        mics_emulated::defect_in("cuDNN", "a plan that is not deterministic is run");
    return execute(static_cast<handle *>(h), *plan, *pack);
}

} // namespace

extern "C" {
extern const cudnn_library mics_emulated_cudnn;
const cudnn_library mics_emulated_cudnn = {
    get_version, get_last_error, create_handle, destroy_handle, set_stream,  create,
    destroy,     finalize,       set_attribute, get_attribute,  execute_plan};
}
