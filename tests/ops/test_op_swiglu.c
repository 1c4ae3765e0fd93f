// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// SwiGLU far out; its cases are in ops/swiglu/cases.h.
#include "op_harness.h"
#include <math.h>

// Gates far out: the sigmoid is 0 or 1, and nothing is NaN that need not be.
static void swiglu_at_the_edges(void **state)
{
    (void)state;
    enum { I = 6 };
    const float x[2 * I] = {0, 20, -20, 1e30F, -1e30F, NAN, 2, 2, 2, 2, 2, 2};
    const float dy[I] = {1, 1, 1, 1, 1, 1};
    for (int32_t index = 0; index < mics_kernels_count(); ++index) {
        const mics_kernels *k = mics_kernels_at(index);
        const mics_exec at = op_exec(1, NULL);
        float y[I], dx[2 * I];
        if (!k)
            continue;
        op_swiglu_forward(k, &at, y, x, 1, I);
        op_swiglu_backward(k, &at, dx, dy, x, 1, I, false);
        assert_true(y[0] == 0.0F && fabsf(y[1] - 40.0F) < 1e-5F && fabsf(y[2]) < 1e-7F);
        assert_true(y[3] == 2e30F && y[4] == 0.0F && isnan(y[5]));
        assert_true(dx[0] == 1.0F && dx[3] == 2.0F && fabsf(dx[4]) < 1e-35F && isnan(dx[5]));
        assert_true(dx[I] == 0.0F && dx[I + 3] == 1e30F && fabsf(dx[I + 4]) < 1e-35F);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(swiglu_at_the_edges),
    };
    return op_run_tests(tests);
}
