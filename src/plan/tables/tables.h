// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// What mics plan prints.
#pragma once

#include "io/report/printer.h"
#include "plan/offers/planning.h"
