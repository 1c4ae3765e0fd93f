// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// A sweep's points, and how they are shown.
#ifndef MICS_CLI_PLAN_SWEEP_H
#define MICS_CLI_PLAN_SWEEP_H

#include "plan.h"

enum { SWEEP_POINTS_MOST = 64, SWEEP_CURVES_MOST = MICS_PLAN_BASELINES + 1 };

// One cluster size, or one P.
typedef struct cli_sweep_point {
    int32_t size; // nodes, or P
    int32_t nodes, ranks;
    int64_t global_batch;
    mics_plan_entry curves[SWEEP_CURVES_MOST]; // by curve
    bool has[SWEEP_CURVES_MOST];               // there is one, and it fits
    char note[160];                            // why there is none
} cli_sweep_point;

typedef struct cli_sweep {
    bool over_params;                     // else over nodes
    const char *names[SWEEP_CURVES_MOST]; // the first is the planner's best
    int32_t curve_count;
    cli_sweep_point *points;
    int32_t point_count;
} cli_sweep;

void cli_sweep_text(const cli_plan *plan, const cli_sweep *sweep);
void cli_sweep_json(const cli_plan *plan, const cli_sweep *sweep);
mics_status cli_sweep_svg(const cli_plan *plan, const cli_sweep *sweep, const char *path);

#endif
