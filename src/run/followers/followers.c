// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
#include "followers.h"
#include <stddef.h>

#define ROW(name) {&run_##name##_follower, offsetof(run_followers, name)},

const run_follower_row run_follower_rows[RUN_FOLLOWERS] = {RUN_FOLLOWER_LIST(ROW)};
