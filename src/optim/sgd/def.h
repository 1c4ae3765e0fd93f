// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// The order of SGD's settings and states, on which its descriptor and its kernels agree.
#pragma once

enum { SGD_MOMENTUM, SGD_NESTEROV, SGD_SETTINGS };
enum { SGD_BUFFER, SGD_STATES };
