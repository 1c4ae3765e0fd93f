// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Every key of a cluster file: one table for reading, writing and checking.
#pragma once

#include "plan/cost/cluster.h"

typedef enum cost_section { COST_TOP, COST_ACCELERATOR, COST_TIER, COST_SECTIONS } cost_section;

typedef enum cost_key_type {
    COST_REAL,  // double
    COST_COUNT, // int32_t
    COST_SWITCH,
    COST_TEXT,  // char array
    COST_CURVE, // a number, or pairs of size and figure
    COST_RAMP   // pairs of size and figure
} cost_key_type;

typedef struct cost_key {
    const char *name;
    size_t at, bytes; // the field in mics_cluster, mics_accelerator or mics_tier
    double unit;      // of the file, in the structure's
    double low, high; // in the file's unit
    cost_key_type type;
    bool other; // another unit of the key before it; read, never written
    bool keep;  // written even when it is 0
} cost_key;

/* Rows of a section. */
const cost_key *cost_keys(cost_section section, int32_t *count_out);

/* Row of a key, or NULL. */
const cost_key *cost_key_find(cost_section section, const char *name);

/* mics_cluster_finish for a cluster that was read from `json` (NULL: from a program). */
mics_status cost_finish(const mics_json *json, mics_cluster *cluster);

/* What is wrong with a curve, or NULL. Values are checked by the caller. */
const char *cost_curve_wrong(const mics_curve *curve);
