// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// What a buyer reads.
#pragma once

#include "plan/tables/tables.h"

/* The answer in sentences that begin with `where`, what its figures rest on, and what is `faster`
 * ("": nothing known). Of the text alone. */
void plan_table_answer(printer *report, const mics_plan_offer *offer, const mics_plan_goal *goal,
                       const char *where);

/* Which kind of price an offer has, and of when. Of the text alone. */
void plan_table_price(const printer *report, const mics_plan_offer *offer);

/* An offer as JSON, `key` NULL in lists. */
void plan_table_offer(printer *report, const char *key, const mics_plan_offer *offer);

/* Members "tokens" to "meets_goal" of JSON. */
void plan_table_cost(printer *report, const mics_plan_offer *offer);

void plan_table_offers(printer *report, const mics_plan_offers *offers, const mics_plan_goal *goal,
                       bool wide);

/* The catalogue, a line a machine. */
mics_status plan_table_list(printer *report);

/* goodput.c: what failures and checkpoints leave of a training: lines; members of JSON. */
void plan_table_goodput(printer *report, const mics_plan_offer *offer);
