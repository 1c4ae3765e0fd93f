// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Figures that depend on a size.
#include "mics/cluster.h"
#include <math.h>

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
