// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// What mics plan prints.
#ifndef MICS_CLI_PLAN_H
#define MICS_CLI_PLAN_H

#include "io/report/printer.h"
#include "plan/offers/planning.h"

#endif
