// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// A picture of a few curves over a few sizes, as SVG: for reports, on paper too. Colours are those
// of Okabe and Ito, which people of all kinds of colour vision tell apart; lines differ in dashes
// and marks besides, and are named where they end.
#ifndef MICS_CHART_H
#define MICS_CHART_H

#include "mics/memory.h"
#include "mics/status.h"
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { MICS_CHART_SERIES = 8 };

typedef struct mics_chart_series {
    const char *name;
    const double *y; // by place on the x axis; NaN: none there
} mics_chart_series;

typedef struct mics_chart {
    const char *title;
    const char *subtitle;                        // NULL: none
    const char *x_label, *y_label;               // with units
    const char *const *x_texts;                  // ticks, evenly spaced, ascending
    int32_t x_count;                             // at least 1
    mics_chart_series series[MICS_CHART_SERIES]; // the first is the one that matters
    int32_t series_count;
    const char *note; // below the picture; NULL: none
} mics_chart;

/* The picture as text. The y axis begins at 0; a series without any value is left out.
 *
 * Needs:   x_count >= 1; 1 <= series_count <= MICS_CHART_SERIES; values >= 0 or NaN.
 * Returns: MICS_OK; MICS_ERR_INVALID, logged: a need, or no value at all; MICS_ERR_MEMORY.
 * Owns:    the caller frees *svg_out with mics_free.      Threads: any.
 */
mics_status mics_chart_svg(mics_memory *memory, const mics_chart *chart, char **svg_out);

#ifdef __cplusplus
}
#endif
#endif
