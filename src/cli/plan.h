// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// What mics plan prints.
#ifndef MICS_CLI_PLAN_H
#define MICS_CLI_PLAN_H

#include "mics/log.h"
#include "mics/planning.h"

/* How a precision is called: "fp32", "bf16 with fp32 masters". */
const char *cli_plan_precision_text(const mics_plan *plan);

/* Layered micro-steps of a choice; 1 where there is no choice. */
int32_t cli_plan_layered(const mics_plan_choice *choice);

enum { CLI_PLAN_DEGREES_BYTES = 48 };

/* Degrees alone: "8|64|512 E4", "t2 p4 d64e8 v14"; "--" where there is no choice. */
const char *cli_plan_degrees(const mics_plan_entry *entry, char text[CLI_PLAN_DEGREES_BYTES]);

/* The name, in a table; of a long one the degrees alone. */
const char *cli_plan_short_name(const mics_plan_entry *entry, char text[CLI_PLAN_DEGREES_BYTES]);

// Of tables without --wide.
enum { CLI_PLAN_COLUMNS = 120 };

/* Prints a text in lines of at most so many columns; all but the first begin with `indent` spaces. */
void cli_plan_wrapped(const char *text, int indent);

/* Prints one line, or where it is longer lines of at most CLI_PLAN_COLUMNS. */
MICS_PRINTF(1, 2) void cli_plan_say(const char *format, ...);

/* Prints a sentence in lines as wide as the terminal, at most CLI_PLAN_COLUMNS, cut behind commas and
 * colons where a line has one; all but the first are indented. */
void cli_plan_phrases(const char *text);

// ---- plans: tables, and JSON ----

void cli_plan_text(const mics_plan *plan, const mics_plan_found *found, const mics_plan_goal *goal,
                   bool wide);
void cli_plan_json(const mics_plan *plan, const mics_plan_found *found, const mics_plan_goal *goal);
void cli_plan_entry_json(const mics_plan *plan, const mics_plan_entry *entry);

/* "name" to "pipeline", without braces. */
void cli_plan_choice_json(const mics_plan_entry *entry);

// ---- what a buyer reads ----

enum { CLI_PLAN_FIGURE_BYTES = 32 };

/* Three digits, and large ones whole, with commas: "0.534", "53.4", "49,650". Returns `text`. */
const char *cli_plan_figure(double value, char text[CLI_PLAN_FIGURE_BYTES]);

/* The answer in a sentence that begins with `where`, what its figures rest on, and what is `faster`
 * ("": nothing known). */
void cli_plan_answer(const mics_plan_offer *offer, const mics_plan_goal *goal, const char *where,
                     const char *faster, double faster_us);
/* What failures and checkpoints leave of a training: some lines; members of a JSON object. */
void cli_plan_goodput_text(const mics_plan_offer *offer);
void cli_plan_goodput_json(const mics_plan_goodput *goodput);
void cli_plan_offer_json(const mics_plan_offer *offer);

/* ", "tokens"" to ", "meets_goal"", without braces. */
void cli_plan_cost_json(const mics_plan_offer *offer);
void cli_plan_offers_text(const mics_plan_offers *offers, const mics_plan_goal *goal, bool wide);
void cli_plan_offers_json(const mics_plan_offers *offers);

/* Time and price of the offers of one model, as a picture. */
mics_status cli_plan_offers_svg(const mics_plan_offers *offers, const char *file, const char *path);

/* "configs/bert-10b.json" is "bert-10b". */
void cli_plan_model_name(const char *path, char *text, size_t capacity);

/* The catalogue, one line a machine, or as JSON. */
mics_status cli_plan_list(mics_memory *memory, bool as_json);

// ---- a sweep: a table, JSON, and a picture ----

void cli_sweep_text(const mics_plan *plan, const mics_plan_sweep *sweep, const mics_plan_goal *goal,
                    bool wide);
void cli_sweep_json(const mics_plan *plan, const mics_plan_sweep *sweep,
                    const mics_plan_goal *goal);
mics_status cli_sweep_svg(const mics_plan *plan, const mics_plan_sweep *sweep, const char *path);

#endif
