// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Which activations are made again in backward.
#ifndef MICS_RECOMPUTE_H
#define MICS_RECOMPUTE_H

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

// Activations that are not kept from forward to backward, but made again there. Layers are the
// units that compute between the first and the loss. Bits do not depend on it.
typedef struct mics_recompute {
    int32_t units; // layers that keep their input alone; MICS_RECOMPUTE_ALL: every unit does
    bool last;     // they are the last ones, else the first
    // In the other layers what is cheap to compute and dear to hold is made again, part by part
    // (Korthikanti et al., 2022, arXiv:2205.05198): attention and what leads to it, and the rest.
    // Results of GEMMs are kept. See schedule/recompute.h.
    bool attention, mlp;
} mics_recompute;

enum { MICS_RECOMPUTE_ALL = INT32_MAX, MICS_RECOMPUTE_BYTES = 48 };

/* Every unit, or none. Pure. */
static inline mics_recompute mics_recompute_all(bool all)
{
    const mics_recompute r = {all ? MICS_RECOMPUTE_ALL : 0, false, false, false};
    return r;
}

/* Whether anything is made again. Pure. */
static inline bool mics_recomputes(mics_recompute recompute)
{
    return recompute.units > 0 || recompute.attention || recompute.mlp;
}

/* Whether two are the same. Pure. */
static inline bool mics_recompute_is(mics_recompute a, mics_recompute b)
{
    return a.units == b.units && a.last == b.last && a.attention == b.attention && a.mlp == b.mlp;
}

/* As run.recompute has it: "true", "false", or parts joined by "+": "attention", "mlp", "first 12"
 * or "last 12", or "12" where it is open of which end.
 *
 * Returns: `text`.
 */
const char *mics_recompute_text(mics_recompute recompute, bool open,
                                char text[MICS_RECOMPUTE_BYTES]);

/* The reverse, of all but "true" and "false".
 *
 * Returns: whether it is one (else nothing is written).
 */
bool mics_recompute_parse(const char *text, mics_recompute *recompute_out, bool *open_out);

#ifdef __cplusplus
}
#endif
#endif
