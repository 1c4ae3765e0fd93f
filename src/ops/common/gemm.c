// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// GEMMs by oneDNN's sgemm, whose interface is row-major and which is threaded by OpenMP. It picks
// its code by the instructions that the CPU has, so a CPU newer than the library does not fall back
// to slow code.
#include "ops/common/gemm.h"
#include "mics/log.h"
#include "ops/kernels.h"
#include <oneapi/dnnl/dnnl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

void mics_gemm_plain(bool transpose_a, bool transpose_b, int64_t M, int64_t N, int64_t K,
                     float alpha, const float *a, int64_t lda, const float *b, int64_t ldb,
                     float beta, float *c, int64_t ldc)
{
    int64_t a_row = transpose_a ? 1 : lda, a_column = transpose_a ? lda : 1;
    int64_t b_row = transpose_b ? 1 : ldb, b_column = transpose_b ? ldb : 1;
    for (int64_t m = 0; m < M; ++m)
        for (int64_t n = 0; n < N; ++n) {
            double sum = 0;
            for (int64_t k = 0; k < K; ++k)
                sum += (double)a[m * a_row + k * a_column] * (double)b[k * b_row + n * b_column];
            float *to = &c[m * ldc + n];
            // beta = 0 overwrites, whatever was there.
            double before = beta != 0.0F ? (double)beta * (double)*to : 0.0;
            *to = (float)((double)alpha * sum + before);
        }
}

static void warn_slow(void)
{
    mics_log(MICS_LOG_WARNING,
             "the matrix library (%s) fails, which is want of memory as a rule: plain loops "
             "compute, many times slower; use smaller micro-batches or fewer ranks on the machine",
             mics_gemm_library());
}

void mics_gemm(bool transpose_a, bool transpose_b, int64_t M, int64_t N, int64_t K, float alpha,
               const float *a, int64_t lda, const float *b, int64_t ldb, float beta, float *c,
               int64_t ldc)
{
    static pthread_once_t warned = PTHREAD_ONCE_INIT;
    if (M <= 0 || N <= 0)
        return;
    bool done = K > 0 && dnnl_sgemm(transpose_a ? 'T' : 'N', transpose_b ? 'T' : 'N', M, N, K,
                                    alpha, a, lda, b, ldb, beta, c, ldc) == dnnl_success;
    if (done)
        return;
    if (K > 0)
        pthread_once(&warned, warn_slow);
    mics_gemm_plain(transpose_a, transpose_b, M, N, K, alpha, a, lda, b, ldb, beta, c, ldc);
}

// The library takes this only before it computes or is asked for its instruction set.
mics_status mics_gemm_limit(const mics_kernels *kernels)
{
    const bool avx2 = strcmp(kernels->name, "avx2") == 0;
    if (strcmp(kernels->name, "avx512") == 0)
        return MICS_OK;
    if (dnnl_set_max_cpu_isa(avx2 ? dnnl_cpu_isa_avx2 : dnnl_cpu_isa_sse41) == dnnl_success)
        return MICS_OK;
    return mics_fail(MICS_ERR_UNSUPPORTED,
                     "the matrix library has computed in this process already, and cannot be kept "
                     "to %s any more; set ONEDNN_MAX_CPU_ISA=%s on all machines",
                     kernels->name, avx2 ? "AVX2" : "SSE41");
}

// Only names that both oneDNN 2 and 3 have.
static const char *isa_text(dnnl_cpu_isa_t isa)
{
    switch (isa) {
    case dnnl_cpu_isa_sse41:
        return "SSE4.1";
    case dnnl_cpu_isa_avx:
        return "AVX";
    case dnnl_cpu_isa_avx2:
        return "AVX2";
    case dnnl_cpu_isa_avx2_vnni:
        return "AVX2 with VNNI";
    case dnnl_cpu_isa_avx512_core:
        return "AVX-512";
    case dnnl_cpu_isa_avx512_core_vnni:
        return "AVX-512 with VNNI";
    case dnnl_cpu_isa_avx512_core_bf16:
        return "AVX-512 with VNNI, bf16";
    case dnnl_cpu_isa_avx512_core_amx:
        return "AVX-512 with VNNI, bf16, AMX";
    default:
        return "all instructions"; // the library says so where it does not tell them apart
    }
}

// Written once, by library_describe(), and constant from then on.
static char library_text[96];

static void library_describe(void)
{
    const dnnl_version_t *version = dnnl_version();
    snprintf(library_text, sizeof library_text, "oneDNN %d.%d.%d, %s", version->major,
             version->minor, version->patch, isa_text(dnnl_get_effective_cpu_isa()));
}

const char *mics_gemm_library(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, library_describe);
    return library_text;
}
