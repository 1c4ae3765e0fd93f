// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Prototypes without their contracts, each for a reason of its own: what check_contracts.sh must find.
#ifndef MICS_BAD_H
#define MICS_BAD_H

#include "mics/status.h"
#include <stdbool.h>
#include <stdint.h>

typedef struct mics_bad {
    mics_status (*never)(void *ctx, int32_t count); // no prototype
} mics_bad;

// ---- a title is no comment of what follows a blank line ----

void mics_bad_silent(void);

/* Says nothing of its result, nor of who closes. */
mics_status mics_bad_open(mics_bad **bad_out);

/* Gives something. */
const char *mics_bad_name(const mics_bad *bad);

/* True or not. */
bool mics_bad_is(const mics_bad *bad);

/* Adds.
 *
 * Returns: the sum.
 */
static inline float mics_bad_add(const float *values, int64_t count)
{
    float sum = 0;
    for (int64_t i = 0; i < count; i++)
        sum += values[i];
    return sum;
}

/* Whether all is said.
 *
 * Shapes:  values: (elems).
 * Units:   none.
 * Needs:   elems >= 0.
 */
bool mics_bad_good(const double *values, int64_t elems);
mics_bad *mics_bad_shares_that_comment(mics_bad *bad);

#endif
