// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// The order of SGD's settings and states, on which its descriptor and its kernels agree.
#ifndef MICS_OPTIM_SGD_DEF_H
#define MICS_OPTIM_SGD_DEF_H

enum { SGD_MOMENTUM, SGD_NESTEROV, SGD_SETTINGS };
enum { SGD_BUFFER, SGD_STATES };

#endif
