// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// The gradient of the LM head's bias on a GPU; its other cases are in ops/lm_head/cases.h.
#include "gpu_case.h"
#include <math.h>

// Each row adds what a sum in 2 bytes would soon lose.
static void bias_is_rounded_once(void **state)
{
    (void)state;
    enum { N = 600, C = 8, V = 16 };
    const mics_op_shape shape = {.N = N, .in = {C}, .params = {{V, C}, {V}}, .vocab = V};
    for (int dtype = 0; dtype < MICS_DTYPES; ++dtype) {
        gpu_case c;
        gpu_begin(&c, (mics_dtype)dtype,
                  op_workspace_bytes((mics_dtype)dtype, MICS_OP_LM_HEAD, shape),
                  "lm_head bias's gradient");
        double *zeros = gpu_doubles(&c, N * C), *want = gpu_doubles(&c, V);
        double *terms = gpu_doubles(&c, V);
        static const int32_t targets[N];
        for (int v = 0; v < V; ++v) {
            want[v] = 1 + N * (1.0 / V - (v == 0)); // it adds
            terms[v] = 1 + fabs(want[v]);
        }
        double *ones = gpu_doubles(&c, V);
        for (int v = 0; v < V; ++v)
            ones[v] = 1;
        void *dbias = gpu_numbers(&c, ones, V);
        op_backward(
            mics_kernels_cuda(), (mics_op){.kind = MICS_OP_LM_HEAD},
            (mics_op_call){.at = &c.at,
                           .shape = shape,
                           .in = {gpu_numbers(&c, zeros, N * C)},
                           .params = {gpu_numbers(&c, zeros, V * C), gpu_numbers(&c, zeros, V)},
                           .targets = gpu_integers(&c, targets, N),
                           .losses = gpu_poisoned(&c, N * sizeof(float)),
                           .din = gpu_poisoned(&c, gpu_size(&c, N * C)),
                           .dparams = {gpu_poisoned(&c, gpu_size(&c, V * C)), dbias},
                           .add_params = {false, true},
                           .loss_scale = 1,
                           .chunk_rows = 1});
        gpu_expect(&c, "dbias", dbias, (mics_dtype)dtype, V, want, terms, 1.01, 1e-6);
        gpu_end(&c);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(bias_is_rounded_once)};
    const int missing = gpu_missing();
    return missing ? missing : cmocka_run_group_tests(tests, gpu_open, gpu_close);
}
