// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// cuBLASLt on the CPU, as far as mics uses it: D = alpha op(A) op(B) + beta C in columns,
// with epilogues, enqueued on emulated streams. Sums run over k in fp32 in order; the result is
// rounded once.
//
// It is stricter than the library, so that what would go wrong on a chip goes wrong here:
// - a call is refused (CUBLAS_STATUS_NOT_SUPPORTED) where documentation demands what is not given:
//   the leading dimension of a GELU input
//   must be a multiple of 8 (cublasLtMatmulDescAttributes_t, EPILOGUE_AUX_LD);
// - epilogues of GELU and of bias gradients are refused for fp32 matrices, and all epilogues on
//   pointers that are not on 16 bytes:
//   which of these a chip has depends on shape and version, and callers must live without them;
// - beta C meets bias gradients, but no GELU;
// - an algorithm is refused at run time for another operation than it was found for;
// - the workspace that an algorithm asked for is overwritten, and pointers are checked to lie in
//   the device's memory.
#include "cublasLt.h"
#include "cuda_bf16.h"
#include "cuda_fp16.h"
#include "emulated.h"
#include <cmath>
#include <cstring>
#include <new>
#include <vector>

struct mics_emulated_lt {
    int live;
};

struct mics_emulated_operation {
    cublasComputeType_t compute;
    int32_t transpose_a, transpose_b;
    uint32_t epilogue;
    void *bias, *aux;
    int64_t aux_ld;
};

struct mics_emulated_matrix {
    cudaDataType_t type;
    uint64_t rows, cols;
    int64_t ld;
};

struct mics_emulated_preference {
    uint64_t workspace_bytes;
    uint32_t alignment[4]; // A, B, C, D
    uint32_t schemes;
};

namespace
{

constexpr uint64_t ALGORITHM = 0x6d696373; // "mics": data[0] of every algorithm

size_t bytes_of(cudaDataType_t type)
{
    return type == CUDA_R_32F ? 4 : 2;
}

// A matrix in memory, by columns. Numbers go in and out as floats.
struct view {
    char *at;
    mics_emulated_matrix layout;
    char *address(uint64_t row, uint64_t col) const
    {
        return at + (row + col * (uint64_t)layout.ld) * bytes_of(layout.type);
    }
    float get(uint64_t row, uint64_t col) const
    {
        const char *from = address(row, col);
        if (layout.type == CUDA_R_32F) {
            float value;
            std::memcpy(&value, from, sizeof value);
            return value;
        }
        if (layout.type == CUDA_R_16BF) {
            __nv_bfloat16 value;
            std::memcpy(&value, from, sizeof value);
            return float(value);
        }
        __half value;
        std::memcpy(&value, from, sizeof value);
        return float(value);
    }
    void put(uint64_t row, uint64_t col, float number) const
    {
        char *to = address(row, col);
        if (layout.type == CUDA_R_32F) {
            std::memcpy(to, &number, sizeof number);
        } else if (layout.type == CUDA_R_16BF) {
            const __nv_bfloat16 value(number);
            std::memcpy(to, &value, sizeof value);
        } else {
            const __half value(number);
            std::memcpy(to, &value, sizeof value);
        }
    }
};

// One product with everything it needs, copied when it is enqueued.
struct job {
    mics_emulated_operation operation;
    view a, b, c, d;
    uint64_t k;
    float alpha, beta;
    void *workspace;
    size_t workspace_used;
};

float gelu(float x)
{
    return 0.5F * x * (1.0F + std::tanh(0.7978845608F * (x + 0.044715F * x * x * x)));
}

float gelu_slope(float x)
{
    const float t = std::tanh(0.7978845608F * (x + 0.044715F * x * x * x));
    return 0.5F * (1.0F + t) +
           0.5F * x * (1.0F - t * t) * 0.7978845608F * (1.0F + 3.0F * 0.044715F * x * x);
}

// TF32 keeps 10 bits of the mantissa.
float as_multiplied(float x, cublasComputeType_t compute)
{
    if (compute != CUBLAS_COMPUTE_32F_FAST_TF32)
        return x;
    const uint32_t bits = __float_as_uint(x);
    return __uint_as_float((bits + 0xfffU + ((bits >> 13) & 1U)) & ~0x1fffU);
}

// op(M) (rows, k) as rows of k floats, for M as the left factor; for the right one, its columns.
std::vector<float> lines(const view &m, bool transposed, bool right, uint64_t count, uint64_t k,
                         cublasComputeType_t compute)
{
    std::vector<float> out(count * k);
    for (uint64_t i = 0; i < count; ++i)
        for (uint64_t j = 0; j < k; ++j)
            out[i * k + j] =
                as_multiplied(transposed != right ? m.get(j, i) : m.get(i, j), compute);
    return out;
}

view vector_of(const job &j, void *at, uint64_t count)
{
    return {static_cast<char *>(at), {j.d.layout.type, count, 1, (int64_t)count}};
}

float finish(const job &j, const view &bias, const view &aux, uint64_t row, uint64_t col, float x)
{
    switch (j.operation.epilogue) {
    case CUBLASLT_EPILOGUE_BIAS:
        return x + bias.get(row, 0);
    case CUBLASLT_EPILOGUE_GELU_AUX:
    case CUBLASLT_EPILOGUE_GELU_AUX_BIAS:
        if (j.operation.epilogue == CUBLASLT_EPILOGUE_GELU_AUX_BIAS)
            x += bias.get(row, 0);
        aux.put(row, col, x);
        return gelu(x);
    case CUBLASLT_EPILOGUE_DGELU:
        return x * gelu_slope(aux.get(row, col));
    default:
        return x;
    }
}

void sum_lines(const view &out, const std::vector<float> &values, uint64_t count, uint64_t k)
{
    for (uint64_t i = 0; i < count; ++i) {
        float sum = 0;
        for (uint64_t j = 0; j < k; ++j)
            sum += values[i * k + j];
        out.put(i, 0, sum);
    }
}

void run(const job &j)
{
    const uint64_t rows = j.d.layout.rows, cols = j.d.layout.cols;
    const mics_emulated_operation &op = j.operation;
    const std::vector<float> a =
        lines(j.a, op.transpose_a != CUBLAS_OP_N, false, rows, j.k, op.compute);
    const std::vector<float> b =
        lines(j.b, op.transpose_b != CUBLAS_OP_N, true, cols, j.k, op.compute);
    const view bias = vector_of(j, op.bias, op.epilogue == CUBLASLT_EPILOGUE_BGRADB ? cols : rows);
    view aux = j.d;
    aux.at = static_cast<char *>(op.aux);
    aux.layout.ld = op.aux_ld;
    if (j.workspace_used > 0)
        std::memset(j.workspace, 0xff, j.workspace_used);
    for (uint64_t col = 0; col < cols; ++col)
        for (uint64_t row = 0; row < rows; ++row) {
            float sum = 0;
            for (uint64_t k = 0; k < j.k; ++k)
                sum += a[row * j.k + k] * b[col * j.k + k];
            sum *= j.alpha;
            if (j.beta != 0)
                sum += j.beta * j.c.get(row, col);
            j.d.put(row, col, finish(j, bias, aux, row, col, sum));
        }
    if (op.epilogue == CUBLASLT_EPILOGUE_BGRADA)
        sum_lines(bias, a, rows, j.k);
    if (op.epilogue == CUBLASLT_EPILOGUE_BGRADB)
        sum_lines(bias, b, cols, j.k);
}

bool is_on(const void *p, uint64_t bytes)
{
    return (uintptr_t)p % bytes == 0;
}

// Whether matrices and operation fit together; k_out is the length of sums.
bool consistent(const mics_emulated_operation &op, const mics_emulated_matrix &a,
                const mics_emulated_matrix &b, const mics_emulated_matrix &d, uint64_t *k_out)
{
    const bool ta = op.transpose_a != CUBLAS_OP_N, tb = op.transpose_b != CUBLAS_OP_N;
    *k_out = ta ? a.rows : a.cols;
    return (ta ? a.cols : a.rows) == d.rows && (tb ? b.rows : b.cols) == d.cols &&
           (tb ? b.cols : b.rows) == *k_out && a.type == b.type && a.ld >= (int64_t)a.rows &&
           b.ld >= (int64_t)b.rows && d.ld >= (int64_t)d.rows &&
           (d.type == a.type || d.type == CUDA_R_32F);
}

bool supported(const mics_emulated_operation &op, const mics_emulated_matrix &d)
{
    const bool with_aux = op.epilogue == CUBLASLT_EPILOGUE_GELU_AUX ||
                          op.epilogue == CUBLASLT_EPILOGUE_GELU_AUX_BIAS ||
                          op.epilogue == CUBLASLT_EPILOGUE_DGELU;
    const bool with_bias = op.epilogue != CUBLASLT_EPILOGUE_DEFAULT &&
                           (!with_aux || op.epilogue == CUBLASLT_EPILOGUE_GELU_AUX_BIAS);
    if (with_aux && (op.aux_ld % 8 != 0 || op.aux_ld < (int64_t)d.rows || !is_on(op.aux, 16)))
        return false;
    if (with_bias && !is_on(op.bias, 16))
        return false;
    if (d.type == CUDA_R_32F && op.epilogue != CUBLASLT_EPILOGUE_DEFAULT &&
        op.epilogue != CUBLASLT_EPILOGUE_BIAS)
        return false;
    return true;
}

// What an algorithm was found for, as a number.
uint64_t print_of(const mics_emulated_operation &op, const mics_emulated_matrix &a,
                  const mics_emulated_matrix &b, const mics_emulated_matrix &d)
{
    uint64_t hash = 14695981039346656037ULL;
    for (uint64_t value :
         {(uint64_t)op.compute, (uint64_t)op.transpose_a, (uint64_t)op.transpose_b,
          (uint64_t)op.epilogue, a.rows, a.cols, (uint64_t)a.ld, (uint64_t)a.type, b.rows, b.cols,
          (uint64_t)b.ld, d.rows, d.cols, (uint64_t)d.ld, (uint64_t)d.type})
        hash = (hash ^ value) * 1099511628211ULL;
    return hash;
}

template <typename T> bool take(T *to, const void *value, size_t bytes)
{
    if (bytes != sizeof *to)
        return false;
    std::memcpy(to, value, bytes);
    return true;
}

} // namespace

extern "C" {

cublasStatus_t cublasLtCreate(cublasLtHandle_t *handle)
{
    *handle = new mics_emulated_lt{1};
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle)
{
    delete handle;
    return CUBLAS_STATUS_SUCCESS;
}

size_t cublasLtGetVersion(void)
{
    return 130000;
}

const char *cublasLtGetStatusName(cublasStatus_t status)
{
    switch (status) {
    case CUBLAS_STATUS_SUCCESS:
        return "CUBLAS_STATUS_SUCCESS";
    case CUBLAS_STATUS_ALLOC_FAILED:
        return "CUBLAS_STATUS_ALLOC_FAILED";
    case CUBLAS_STATUS_INVALID_VALUE:
        return "CUBLAS_STATUS_INVALID_VALUE";
    case CUBLAS_STATUS_NOT_SUPPORTED:
        return "CUBLAS_STATUS_NOT_SUPPORTED";
    default:
        return "CUBLAS_STATUS_INTERNAL_ERROR";
    }
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *operation,
                                        cublasComputeType_t compute, cudaDataType_t scale)
{
    if (scale != CUDA_R_32F)
        return CUBLAS_STATUS_NOT_SUPPORTED;
    *operation = new mics_emulated_operation{};
    (*operation)->compute = compute;
    (*operation)->epilogue = CUBLASLT_EPILOGUE_DEFAULT;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t operation)
{
    delete operation;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t operation,
                                              cublasLtMatmulDescAttributes_t attribute,
                                              const void *value, size_t bytes)
{
    bool good = false;
    switch (attribute) {
    case CUBLASLT_MATMUL_DESC_TRANSA:
        good = take(&operation->transpose_a, value, bytes);
        break;
    case CUBLASLT_MATMUL_DESC_TRANSB:
        good = take(&operation->transpose_b, value, bytes);
        break;
    case CUBLASLT_MATMUL_DESC_EPILOGUE:
        good = take(&operation->epilogue, value, bytes);
        break;
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
        good = take(&operation->bias, value, bytes);
        break;
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER:
        good = take(&operation->aux, value, bytes);
        break;
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD:
        good = take(&operation->aux_ld, value, bytes);
        break;
    }
    return good ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_INVALID_VALUE;
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *layout, cudaDataType_t type,
                                          uint64_t rows, uint64_t cols, int64_t ld)
{
    *layout = new mics_emulated_matrix{type, rows, cols, ld};
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout)
{
    delete layout;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *preference)
{
    *preference = new mics_emulated_preference{0, {256, 256, 256, 256}, 7};
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference)
{
    delete preference;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t attribute,
                                                    const void *value, size_t bytes)
{
    bool good = false;
    switch (attribute) {
    case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES:
        good = take(&preference->workspace_bytes, value, bytes);
        break;
    case CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK:
        good = take(&preference->schemes, value, bytes);
        break;
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES:
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES:
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES:
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES:
        good = take(&preference->alignment[attribute - CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES],
                    value, bytes);
        break;
    }
    return good ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_INVALID_VALUE;
}

// Two algorithms for each operation: the second takes a workspace, if it may have one. An algorithm
// keeps which alignments it was promised, for the check at run time.
cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle,
                                              cublasLtMatmulDesc_t operation,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int requested,
                                              cublasLtMatmulHeuristicResult_t results[],
                                              int *returned)
{
    uint64_t k;
    (void)handle;
    *returned = 0;
    if (!consistent(*operation, *a, *b, *d, &k) || c->type != d->type || requested < 1)
        return CUBLAS_STATUS_INVALID_VALUE;
    if (!supported(*operation, *d))
        return CUBLAS_STATUS_NOT_SUPPORTED;
    const uint64_t workspace =
        preference->workspace_bytes < 4096 ? preference->workspace_bytes : 4096;
    for (int i = 0; i < requested && i < 2; ++i) {
        cublasLtMatmulHeuristicResult_t &result = results[i];
        result = cublasLtMatmulHeuristicResult_t{};
        result.algo.data[0] = ALGORITHM;
        result.algo.data[1] = print_of(*operation, *a, *b, *d);
        result.algo.data[2] = result.workspaceSize = i == 0 ? workspace : 0;
        for (int j = 0; j < 4; ++j)
            result.algo.data[3 + j] = preference->alignment[j];
        result.state = CUBLAS_STATUS_SUCCESS;
        ++*returned;
    }
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoCheck(cublasLtHandle_t handle, cublasLtMatmulDesc_t operation,
                                       cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                       cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                       const cublasLtMatmulAlgo_t *algo,
                                       cublasLtMatmulHeuristicResult_t *result)
{
    uint64_t k;
    (void)handle;
    if (algo->data[0] != ALGORITHM || !consistent(*operation, *a, *b, *d, &k) ||
        c->type != d->type || algo->data[1] != print_of(*operation, *a, *b, *d))
        return CUBLAS_STATUS_INVALID_VALUE;
    if (!supported(*operation, *d))
        return CUBLAS_STATUS_NOT_SUPPORTED;
    *result = cublasLtMatmulHeuristicResult_t{};
    result->workspaceSize = (size_t)algo->data[2];
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t operation,
                              const void *alpha, const void *a, cublasLtMatrixLayout_t a_layout,
                              const void *b, cublasLtMatrixLayout_t b_layout, const void *beta,
                              const void *c, cublasLtMatrixLayout_t c_layout, void *d,
                              cublasLtMatrixLayout_t d_layout, const cublasLtMatmulAlgo_t *algo,
                              void *workspace, size_t workspace_bytes, cudaStream_t stream)
{
    cublasLtMatmulHeuristicResult_t checked;
    const cublasStatus_t status = cublasLtMatmulAlgoCheck(handle, operation, a_layout, b_layout,
                                                          c_layout, d_layout, algo, &checked);
    if (status != CUBLAS_STATUS_SUCCESS)
        return status;
    if (checked.workspaceSize > workspace_bytes || !is_on(workspace, 256) ||
        (c == d && c_layout->ld != d_layout->ld) || !is_on(a, algo->data[3]) ||
        !is_on(b, algo->data[4]) || !is_on(c, algo->data[5]) || !is_on(d, algo->data[6]))
        return CUBLAS_STATUS_INVALID_VALUE;
    int index = 0;
    for (const void *p :
         {a, b, c, static_cast<const void *>(d), static_cast<const void *>(operation->bias),
          static_cast<const void *>(operation->aux)}) {
        if (p)
            mics_emulated::check_argument("cublasLtMatmul", index, p);
        ++index;
    }
    job j{};
    j.operation = *operation;
    j.a = {const_cast<char *>(static_cast<const char *>(a)), *a_layout};
    j.b = {const_cast<char *>(static_cast<const char *>(b)), *b_layout};
    j.c = {const_cast<char *>(static_cast<const char *>(c)), *c_layout};
    j.d = {static_cast<char *>(d), *d_layout};
    j.k = operation->transpose_a != CUBLAS_OP_N ? a_layout->rows : a_layout->cols;
    j.alpha = *static_cast<const float *>(alpha);
    j.beta = *static_cast<const float *>(beta);
    j.workspace = workspace;
    j.workspace_used = checked.workspaceSize;
    return mics_emulated::enqueue(stream, "cublasLtMatmul", [j]() { run(j); }) == cudaSuccess
               ? CUBLAS_STATUS_SUCCESS
               : CUBLAS_STATUS_EXECUTION_FAILED;
}

} // extern "C"
