// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Half of a circle that check_cycles.sh must find.
#ifndef MICS_BAD_CIRCLE_A_H
#define MICS_BAD_CIRCLE_A_H

#include "mesh/circle_b.h"

int circle_a(int count);

#endif
