// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Lion (Chen et al., 2023, arXiv:2302.06675, algorithm 2); the state's name is the authors'.
#include "optim/lion/def.h"
#include "mics/core/optimizer.h"

const mics_optimizer_def mics_optimizer_def_lion = {
    .name = "Lion",
    .states = LION_STATES,
    .state_names = {[LION_MOMENT] = "exp_avg"},
    .settings = LION_SETTINGS,
    .setting = {[LION_BETA1] = {.name = "beta1", .most = 0.9999999, .standard = 0.9},
                [LION_BETA2] = {.name = "beta2", .most = 0.9999999, .standard = 0.99}}};
