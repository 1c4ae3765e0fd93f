// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// The table of predicted against measured bytes.
#include "base/size.h"
#include "base/text.h"
#include "mics/report.h"
#include <errno.h>
#include <inttypes.h>
#include <string.h>

static void verdict_text(const mics_compare_row *row, char *text, size_t capacity)
{
    int64_t more = row->measured - row->predicted;
    if (more == 0)
        snprintf(text, capacity, "exact");
    else if (row->predicted == 0)
        snprintf(text, capacity, "%+" PRId64 " B", more);
    else
        mics_text_format(text, capacity, "%+" PRId64 " B (%+.2f %%)", more,
                         100.0 * (double)more / (double)row->predicted);
}

static int label_columns(const char *title, const mics_compare_row *rows, int32_t count)
{
    size_t columns = strlen(title);
    for (int32_t i = 0; i < count; i++) {
        if (strlen(rows[i].label) > columns)
            columns = strlen(rows[i].label);
    }
    return (int)columns;
}

mics_status mics_compare_print(FILE *stream, const char *title, const mics_compare_row *rows,
                               int32_t count)
{
    int columns = label_columns(title, rows, count);
    fprintf(stream, "%-*s  %12s  %12s\n", columns, title, "predicted", "measured");
    for (int32_t i = 0; i < count; i++) {
        char predicted[32], measured[32], verdict[64];
        verdict_text(&rows[i], verdict, sizeof verdict);
        fprintf(stream, "%-*s  %12s  %12s  %s\n", columns, rows[i].label,
                mics_size_text((double)rows[i].predicted, predicted, sizeof predicted),
                mics_size_text((double)rows[i].measured, measured, sizeof measured), verdict);
    }
    if (fflush(stream) != 0 || ferror(stream) != 0)
        return mics_fail(mics_status_of_errno(errno), "cannot print a table: %s", strerror(errno));
    return MICS_OK;
}
