// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// The figures of a step, one table for every file that has them: metrics.jsonl, TensorBoard's,
// Prometheus'.
#pragma once

#include "mics/report.h"

enum { METRICS_FIGURES = 19 };

typedef struct metrics_figure {
    const char *name; // in metrics.jsonl, where it stands in this order behind the step
    const char *tag;  // in TensorBoard: group/name
    const char *help;
    bool counted;  // `count`, not `value`
    int64_t count; // tokens, bytes
    double value;
} metrics_figure;

void metrics_figures(const mics_metrics *metrics, metrics_figure figures_out[METRICS_FIGURES]);

static inline double metrics_figure_value(const metrics_figure *figure)
{
    return figure->counted ? (double)figure->count : figure->value;
}
