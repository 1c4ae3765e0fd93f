// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Figures that depend on a size.
#include "plan/cost/keys.h"
#include <math.h>
#include <string.h>

double mics_curve_at(const mics_curve *curve, double size, double otherwise)
{
    if (curve->count == 0)
        return otherwise;
    if (!(size > curve->size[0]))
        return curve->value[0];
    for (int32_t i = 1; i < curve->count; i++) {
        if (size >= curve->size[i])
            continue;
        double low = curve->size[i - 1], high = curve->size[i];
        double share = log(size / low) / log(high / low);
        return curve->value[i - 1] + share * (curve->value[i] - curve->value[i - 1]);
    }
    return curve->value[curve->count - 1];
}

mics_curve mics_curve_constant(double value)
{
    mics_curve curve = {.count = 1};
    curve.size[0] = 1.0;
    curve.value[0] = value;
    return curve;
}

const char *cost_curve_wrong(const mics_curve *curve)
{
    if (curve->count < 0 || curve->count > MICS_CURVE_POINTS)
        return "has more points than fit";
    for (int32_t i = 0; i < curve->count; i++) {
        if (!(curve->size[i] > 0.0 && curve->size[i] <= 1e18))
            return "has a size that is not above 0";
        if (i > 0 && !(curve->size[i] > curve->size[i - 1]))
            return "must have its sizes in ascending order";
    }
    return NULL;
}

const char *mics_attention_kernel_text(mics_attention_kernel kernel)
{
    static const char *const texts[MICS_ATTENTION_KERNELS] = {"unfused", "flash1", "flash2",
                                                              "flash3", "cudnn"};
    return (unsigned)kernel < MICS_ATTENTION_KERNELS ? texts[kernel] : "unknown";
}

bool mics_accelerator_is_gpu(const mics_accelerator *accelerator)
{
    if (accelerator->device[0] != '\0')
        return strcmp(accelerator->device, "cuda") == 0;
    return accelerator->flops_per_s[MICS_MATH_FP16] >
           1.5 * accelerator->flops_per_s[MICS_MATH_FP32];
}

bool mics_kernels_are(const mics_accelerator *accelerator, const char *what)
{
    return strcmp(accelerator->kernels, what) == 0;
}

const char *mics_math_text(mics_math math)
{
    static const char *const texts[MICS_MATHS] = {"fp32", "tf32", "bf16", "fp16", "fp8"};
    return (unsigned)math < MICS_MATHS ? texts[math] : "unknown";
}
