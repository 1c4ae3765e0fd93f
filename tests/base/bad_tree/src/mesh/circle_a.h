// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Half of a circle that check_cycles.sh must find.
#pragma once

#include "mesh/circle_b.h"

int circle_a(int count);
