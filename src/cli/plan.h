// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// What mics plan prints.
#ifndef MICS_CLI_PLAN_H
#define MICS_CLI_PLAN_H

#include "io/report/printer.h"
#include "plan/offers/planning.h"

// ---- plan_words.c ----

/* Degrees alone: "8|64|512 E4", "t2 p4 d64e8 v14"; "--" where there is no choice. */
short_text cli_plan_degrees(const mics_plan_entry *entry);

/* The name, in a table; of a long one the degrees alone. */
short_text cli_plan_short_name(const mics_plan_entry *entry);

/* Three digits, and large ones whole, with commas: "0.534", "53.4", "49,650". */
short_text cli_plan_figure(double value);

/* Four digits, and large ones whole. */
short_text cli_plan_rate(double value);

/* "32 x 2 rec": micro-batch, micro-steps, recomputed. */
short_text cli_plan_batch(const mics_plan_choice *choice);

// ---- plan_found.c: the plans of one cluster ----

void cli_plan_found(printer *report, const mics_plan *plan, const mics_plan_found *found,
                    const mics_plan_goal *goal, bool wide);

/* An entry as JSON, `key` NULL in lists; null for NULL. */
void cli_plan_entry(printer *report, const char *key, const mics_plan *plan,
                    const mics_plan_entry *entry);

/* Members "name" to "pipeline" of JSON; in the text columns "P|G|O" to "g/r". */
void cli_plan_choice(printer *report, const mics_plan_entry *entry);

// ---- plan_offer.c: what a buyer reads ----

/* The answer in sentences that begin with `where`, what its figures rest on, and what is `faster`
 * ("": nothing known). Of the text alone. */
void cli_plan_answer(printer *report, const mics_plan_offer *offer, const mics_plan_goal *goal,
                     const char *where, const char *faster, double faster_us);

/* An offer as JSON, `key` NULL in lists. */
void cli_plan_offer(printer *report, const char *key, const mics_plan_offer *offer);

/* Members "tokens" to "meets_goal" of JSON. */
void cli_plan_cost(printer *report, const mics_plan_offer *offer);

void cli_plan_offers(printer *report, const mics_plan_offers *offers, const mics_plan_goal *goal,
                     bool wide);

/* The catalogue, a line a machine. */
mics_status cli_plan_list(printer *report, mics_memory *memory);

/* plan_goodput.c: what failures and checkpoints leave of a training: lines; members of JSON. */
void cli_plan_goodput(printer *report, const mics_plan_offer *offer);

// ---- plan_sweep.c ----

void cli_plan_sweep(printer *report, const mics_plan *plan, const mics_plan_sweep *sweep,
                    const mics_plan_goal *goal, bool wide);

#endif
