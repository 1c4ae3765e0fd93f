// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Muon (Jordan et al., 2024, kellerjordan.github.io/posts/muon): a matrix's momentum is made nearly
// orthogonal before it is added. All that are not matrices of hidden layers have AdamW's rule. A
// matrix's momentum is a mean of gradients, as AdamW's first moment, and has its place.
#include "optim/muon/def.h"
#include "mics/core/optimizer.h"

static int64_t muon_workspace(int64_t rows, int64_t columns)
{
    return muon_layout_of(rows, columns).end;
}

// An iteration multiplies the matrix by itself, the smaller square that this gives by itself, and
// that by the matrix (factors.h).
static double muon_flops(int64_t rows, int64_t columns)
{
    const double side = (double)(rows < columns ? rows : columns);
    return MUON_ITERATIONS * (4 * side * (double)rows * (double)columns + 2 * side * side * side);
}

const mics_optimizer_def mics_optimizer_def_muon = {
    .name = "Muon",
    .states = ADAMW_STATES,
    .state_names = {[ADAMW_MOMENT1] = "exp_avg", [ADAMW_MOMENT2] = "exp_avg_sq"},
    .matrix_workspace = muon_workspace,
    .matrix_flops = muon_flops,
    .settings = MUON_SETTINGS,
    .setting = {
        [ADAMW_BETA1] = {.name = "beta1", .most = 0.9999999, .standard = 0.9},
        [ADAMW_BETA2] = {.name = "beta2", .most = 0.9999999, .standard = 0.999},
        [ADAMW_EPS] = {.name = "eps", .least = 1e-30, .most = 1, .standard = 1e-8},
        [MUON_MOMENTUM] = {.name = "momentum", .most = 0.9999999, .standard = 0.95},
        [MUON_NESTEROV] = {.name = "nesterov", .most = 1, .standard = 1, .is_switch = true},
        [MUON_STEPS] = {.name = "ns_steps", .least = 1, .most = 99, .standard = MUON_ITERATIONS},
        [MUON_MATCHES_ADAMW] = {.name = "adjust_lr_fn", .most = 1}}};
