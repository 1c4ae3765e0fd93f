// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// The plans of one cluster.
#pragma once

#include "plan/tables/tables.h"

void plan_table_found(printer *report, const mics_plan *plan, const mics_plan_found *found,
                      const mics_plan_goal *goal, bool wide);

/* An entry as JSON, `key` NULL in lists; null for NULL. */
void plan_table_entry(printer *report, const char *key, const mics_plan *plan,
                      const mics_plan_entry *entry);

/* Members "name" to "pipeline" of JSON; in the text columns "P|G|O" to "g/r". */
void plan_table_choice(printer *report, const mics_plan_entry *entry);
