// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// AdamW (Loshchilov and Hutter, 2019, arXiv:1711.05101).
#include "optim/adamw/def.h"
#include "mics/core/optimizer.h"

const mics_optimizer_def mics_optimizer_def_adamw = {
    .name = "AdamW",
    .states = ADAMW_STATES,
    .state_names = {[ADAMW_MOMENT1] = "exp_avg", [ADAMW_MOMENT2] = "exp_avg_sq"},
    .squares = {[ADAMW_MOMENT2] = true},
    .settings = ADAMW_SETTINGS,
    .setting = {[ADAMW_BETA1] = {"beta1", 0, 0.9999999, 0.9},
                [ADAMW_BETA2] = {"beta2", 0, 0.9999999, 0.999},
                [ADAMW_EPS] = {"eps", 1e-30, 1, 1e-8}}};
