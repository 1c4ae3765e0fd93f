// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Half of a circle that check_cycles.sh must find.
#pragma once

#include "mesh/circle_a.h"

int circle_b(int count);
