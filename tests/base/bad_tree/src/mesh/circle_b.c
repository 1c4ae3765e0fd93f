// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Calls the other half of a circle, which calls this one.
#include "mesh/circle_b.h"

int circle_b(int count)
{
    return count > 0 ? circle_a(count - 1) : 0;
}
