// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Time and price of several clusters as a picture.
#include "base/file.h"
#include "mics/log.h"
#include "mics/report.h"
#include "plan.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { NAME_BYTES = MICS_CLUSTER_NAME_BYTES + 16 };

typedef struct picture {
    mics_scatter_point points[MICS_PLAN_MAX_OFFERS];
    char names[MICS_PLAN_MAX_OFFERS][NAME_BYTES];
    char title[128], subtitle[160];
} picture;

void cli_plan_model_name(const char *path, char *text, size_t capacity)
{
    const char *slash = strrchr(path, '/');
    snprintf(text, capacity, "%s", slash != NULL ? slash + 1 : path);
    char *dot = strrchr(text, '.');
    if (dot != NULL && dot != text)
        *dot = '\0';
}

// Days and price of all tokens; where none are asked for hours and price of 1e9.
static void fill_point(const mics_plan_offer *offer, bool whole, picture *p, int32_t at)
{
    const double usd = whole ? offer->usd.typical : offer->entry.usd_per_gtoken;
    const double time = whole ? offer->days.typical : 1e9 / offer->entry.tokens_per_s / 3600;
    const bool known = offer->note[0] == '\0' && usd > 0;
    snprintf(p->names[at], NAME_BYTES, "%s:%d", offer->cluster, (int)offer->nodes);
    p->points[at] =
        (mics_scatter_point){p->names[at], known ? time : NAN, known ? usd : NAN, offer->front};
}

mics_status cli_plan_offers_svg(const mics_plan_offers *offers, const char *file, const char *path)
{
    const mics_plan_offer *best = &offers->items[0];
    bool priced = false;
    for (int32_t i = 0; i < offers->count; i++)
        priced = priced ||
                 (offers->items[i].note[0] == '\0' && offers->items[i].entry.usd_per_gtoken > 0);
    if (!priced)
        return mics_fail(MICS_ERR_INVALID,
                         "--svg %s: no price is known of any of these clusters; a "
                         "cluster file's usd_per_node_hour gives one",
                         path);
    // Days or money as the goal: each has as many tokens as they are enough for, and no price in common.
    const bool whole = best->tokens.typical > 0 && best->tokens.low == best->tokens.high;
    void *block = NULL;
    char *svg = NULL;
    MICS_TRY(mics_alloc(offers->memory, MICS_MEM_HOST, sizeof(picture), &block));
    picture *p = block;
    char model[96];
    cli_plan_model_name(file, model, sizeof model);
    snprintf(p->title, sizeof p->title, "%s: time and price", model);
    if (whole)
        snprintf(p->subtitle, sizeof p->subtitle, "%.4g tokens; typical times",
                 best->tokens.typical);
    else
        snprintf(p->subtitle, sizeof p->subtitle, "1e9 tokens; typical times");
    for (int32_t i = 0; i < offers->count; i++)
        fill_point(&offers->items[i], whole, p, i);
    const mics_scatter scatter = {
        .title = p->title,
        .subtitle = p->subtitle,
        .x_label = whole ? "days" : "hours for 1e9 tokens",
        .y_label = whole ? "USD" : "USD for 1e9 tokens",
        .points = p->points,
        .count = offers->count,
        .note = "Predicted by mics plan. The line joins clusters that none of the others beats in "
                "both time and price.",
    };
    mics_status status = mics_scatter_svg(offers->memory, &scatter, &svg);
    if (status == MICS_OK)
        status = mics_file_write_whole(path, svg, strlen(svg));
    mics_free(offers->memory, svg);
    mics_free(offers->memory, p);
    return status;
}
