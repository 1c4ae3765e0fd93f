// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// What the files of mics plan share.
#ifndef MICS_CLI_PLAN_H
#define MICS_CLI_PLAN_H

#include "args.h"
#include "mics/config.h"
#include "mics/json.h"
#include "mics/model.h"
#include "mics/plan.h"
#include "mics/run.h"
#include <stdio.h>

typedef struct cli_plan_options {
    cli_list arguments, sets;
    const char *cluster, *precision, *sweep, *svg;
    int64_t top;
    bool json;
} cli_plan_options;

// What a plan is made from.
typedef struct cli_plan {
    mics_memory *memory;
    mics_run *run;
    mics_json *config; // the model's
    mics_model *model;
    mics_cluster cluster;
    int32_t nodes;
    int64_t length;
    int64_t train_batch; // sequences a step; 0: rank_batch times the ranks
    int64_t rank_batch;
    mics_precision precision;
    mics_math math;
    bool accelerator; // ranks are taken to run on GPUs
} cli_plan;

// What was found for one cluster and batch. Begin with zeros.
typedef struct cli_plan_found {
    mics_planner *planner;
    mics_plan_result *result;
    mics_plan_entry baselines[MICS_PLAN_BASELINES];
    mics_plan_entry file; // as the run file says
    bool has_file;        // what it says can be honoured there
} cli_plan_found;

// ---- plan_open.c ----

/* Reads everything; on failure too it is closed with cli_plan_close. */
mics_status cli_plan_open(cli_plan *plan, const cli_plan_options *options);
void cli_plan_close(cli_plan *plan);

/* The request for so many nodes. */
mics_plan_request cli_plan_request(const cli_plan *plan, int32_t nodes);

/* How a precision is called: "fp32", "bf16 (mixed)". */
const char *cli_plan_precision_text(const cli_plan *plan);

// ---- plan_find.c ----

/* Plans for so many nodes; with `top` 0 the baselines alone. On failure too it is closed with
 * cli_plan_found_close. Where nothing fits, result->count is 0 and nothing is said. */
mics_status cli_plan_find(const cli_plan *plan, int32_t nodes, int32_t top, cli_plan_found *found);
void cli_plan_found_close(cli_plan_found *found);

/* The error line where nothing fits: what lacks how much, and what would work. */
mics_status cli_plan_fail_fit(const cli_plan *plan, const cli_plan_found *found);

// ---- output ----

/* Micro-steps that a choice has side by side; 1 where there is no choice. */
int32_t cli_plan_breadth(const mics_plan_choice *choice);

void cli_plan_text(const cli_plan *plan, const cli_plan_found *found);
void cli_plan_json(const cli_plan *plan, const cli_plan_found *found);
void cli_plan_entry_json(const cli_plan *plan, const mics_plan_entry *entry);

// ---- plan_sweep.c ----

/* --sweep nodes=... or P; writes --svg too. */
mics_status cli_plan_sweep(const cli_plan *plan, const cli_plan_options *options);

#endif
