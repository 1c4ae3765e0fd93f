// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// What plans of this library are compared with, beyond what a planner says of each.
#pragma once

#include "plan/offers/planning.h"

/* MEGATRON's best within the degrees that the plan fixes; found->planner is open. */
mics_status offers_find_megatron(const mics_plan *plan, mics_plan_found *found);

/* What MEGATRON would take where nothing of the family fits: "; megatron t8 ... would take 2.1 s a
 * step; mics cannot run it"; "" where it has no plan either. */
void offers_rival_text(const mics_plan *plan, const mics_plan_found *found, char *text,
                       size_t bytes);

/* Where nothing of the family fits: writes what lacks the least memory, and looks for MEGATRON's
 * plan, which it names where there is one. */
mics_status offers_note_nothing(const mics_plan *plan, mics_plan_found *found, char *text,
                                size_t bytes);

/* Whether degrees of MEGATRON are given. Pure. */
bool offers_fixes_degrees(const mics_plan_pipeline *degrees);

/* Adds to the baselines' `why`: why MICS loses to ZERO3, and what fixed degrees leave no cut. */
void offers_explain_rivals(const mics_plan *plan, mics_plan_found *found);
