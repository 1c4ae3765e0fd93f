// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// The order of AdamW's settings and states, on which its descriptor and its kernels agree.
#pragma once

enum { ADAMW_BETA1, ADAMW_BETA2, ADAMW_EPS, ADAMW_SETTINGS };
enum { ADAMW_MOMENT1, ADAMW_MOMENT2, ADAMW_STATES };
