// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// SGD with momentum, as torch.optim.SGD has it, without dampening (Sutskever et al., ICML 2013).
#include "optim/sgd/def.h"
#include "mics/core/optimizer.h"

const mics_optimizer_def mics_optimizer_def_sgd = {
    .name = "SGD",
    .states = SGD_STATES,
    .state_names = {[SGD_BUFFER] = "momentum_buffer"},
    .settings = SGD_SETTINGS,
    .setting = {[SGD_MOMENTUM] = {.name = "momentum", .most = 0.9999999},
                [SGD_NESTEROV] = {.name = "nesterov", .most = 1, .is_switch = true}}};
