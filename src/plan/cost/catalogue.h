// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// The catalogue's tables: accelerators and machines as rows of (key, figure, source), the keys being
// those of cluster files.
#ifndef MICS_COST_CATALOGUE_H
#define MICS_COST_CATALOGUE_H

#include "plan/cost/keys.h"

enum { CATALOGUE_FIGURES = 24, CATALOGUE_NAMES = 4 };

typedef struct catalogue_source {
    const char *text;
    const char *date;
    bool assumed;
} catalogue_source;

// One figure in the unit of its key; ends a list when key is NULL.
typedef struct catalogue_row {
    const char *key;
    double value;
    const mics_curve *curve;
    const catalogue_source *source;
} catalogue_row;

typedef struct catalogue_accelerator {
    const char *name;
    catalogue_row rows[CATALOGUE_FIGURES];
} catalogue_accelerator;

typedef struct catalogue_machine {
    const char *names[CATALOGUE_NAMES]; // the first is its own, the rest other names; NULL ends
    const char *accelerator;
    catalogue_row rows[CATALOGUE_FIGURES];
} catalogue_machine;

const catalogue_accelerator *catalogue_accelerators(int32_t *count_out);
const catalogue_machine *catalogue_machines(int32_t *count_out);

/* An entry without finishing it, so that a file can change figures before the rest follows from them.
 *
 * Returns: false when there is none (cluster_out untouched).
 */
bool catalogue_cluster(const char *name, mics_cluster *cluster_out);
bool catalogue_accelerator_get(const char *name, mics_accelerator *accelerator_out);

/* "unknown cluster "p4d"; did you mean p4d.24xlarge or p4de.24xlarge?" without the first three words:
 * what to say of a name that is not there. Returns `text`. */
char *catalogue_suggest(bool accelerators, const char *name, char *text, size_t capacity);

#endif
