// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Words for a plan's parts.
#pragma once

#include "plan/tables/tables.h"

/* Degrees alone: "8|64|512 E4", "t2 p4 d64e8 v14"; "--" where there is no choice. */
short_text plan_table_degrees(const mics_plan_entry *entry);

/* The name, in a table; of a long one the degrees alone. */
short_text plan_table_short_name(const mics_plan_entry *entry);

/* Three digits, and large ones whole, with commas: "0.534", "53.4", "49,650". */
short_text plan_table_figure(double value);

/* Four digits, and large ones whole. */
short_text plan_table_rate(double value);

/* A time in its own unit, from ms to years: "6.6 min", "23.9 s". */
short_text plan_table_duration(double s);

/* The same with its range: "19.8 days (17.4 to 23.8)". */
short_text plan_table_span(const mics_plan_range *s);

/* "300B". */
short_text plan_table_count(double count);

/* Tokens a second: "725,235", and from ten millions on "12.6M". */
short_text plan_table_tokens(double per_s);

/* Whether a price of that month ("2026-11"; "": not said) is more than six months old. */
bool plan_table_is_old(const char *date);

/* "32 x 2 rec": micro-batch, micro-steps, recomputed; "off": activations in host memory; "both". */
short_text plan_table_batch(const mics_plan_choice *choice);
