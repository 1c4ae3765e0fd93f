// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Breaks the rules for public headers; never compiled.
#include "mesh/private.h"
#include <stdio.h>
