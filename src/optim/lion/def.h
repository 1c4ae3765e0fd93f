// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// The order of Lion's settings and states, on which its descriptor and its kernels agree.
#pragma once

enum { LION_BETA1, LION_BETA2, LION_SETTINGS };
enum { LION_MOMENT, LION_STATES };
