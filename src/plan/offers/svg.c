// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Pictures of plans: curves of a sweep, and time and price of several clusters.
#include "base/file.h"
#include "mics/log.h"
#include "mics/report.h"
#include "plan/offers/planning.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { TEXT_BYTES = 256, NAME_BYTES = MICS_CLUSTER_NAME_BYTES + 16, TICK_BYTES = 16 };

// "configs/bert-10b.json" is "bert-10b".
static const char *model_name(const char *path, char *text, size_t capacity)
{
    const char *slash = strrchr(path, '/');
    snprintf(text, capacity, "%s", slash != NULL ? slash + 1 : path);
    char *dot = strrchr(text, '.');
    if (dot != NULL && dot != text)
        *dot = '\0';
    return text;
}

// Writes what was drawn, if it was, and frees it.
static mics_status write_drawn(mics_memory *memory, mics_status status, char *svg, const char *path)
{
    if (status == MICS_OK)
        status = mics_file_write_whole(path, svg, strlen(svg));
    mics_free(memory, svg);
    return status;
}

// ---- a sweep ----

typedef struct curves {
    double y[MICS_PLAN_MAX_CURVES][MICS_PLAN_MAX_POINTS];
    char ticks[MICS_PLAN_MAX_POINTS][TICK_BYTES];
    const char *tick_texts[MICS_PLAN_MAX_POINTS];
} curves;

// What is planned for.
static void write_subtitle(const mics_plan *plan, const mics_plan_sweep *sweep, char *text)
{
    const mics_plan_point *last = &sweep->points[sweep->point_count - 1];
    const char *precision = mics_plan_precision_text(plan);
    const long long length = plan->length;
    if (sweep->over_params)
        snprintf(text, TEXT_BYTES, "%d nodes, %lld sequences of %lld tokens a step, %s",
                 (int)plan->nodes, (long long)last->global_batch, length, precision);
    else
        snprintf(text, TEXT_BYTES, "%lld sequences of %lld tokens a %sstep, %s",
                 (long long)(plan->train_batch > 0 ? plan->train_batch : plan->rank_batch), length,
                 plan->train_batch > 0 ? "" : "GPU and ", precision);
}

// Of nine curves the picture holds eight: ddp, which fits small models alone, stands back.
static void fill_curves(const mics_plan_sweep *sweep, curves *to, mics_chart *chart)
{
    for (int32_t i = 0; i < sweep->point_count; i++) {
        const mics_plan_point *point = &sweep->points[i];
        snprintf(to->ticks[i], TICK_BYTES, "%d", (int)point->size);
        to->tick_texts[i] = to->ticks[i];
        for (int32_t c = 0; c < sweep->curve_count; c++)
            to->y[c][i] = point->has[c] ? point->curves[c].tflops_per_gpu : NAN;
    }
    chart->x_texts = to->tick_texts;
    chart->x_count = sweep->point_count;
    for (int32_t c = 0; c < sweep->curve_count; c++) {
        if (sweep->curve_count > MICS_CHART_SERIES && strcmp(sweep->names[c], "ddp") == 0)
            continue;
        chart->series[chart->series_count++] =
            (mics_chart_series){c == 0 ? "best plan" : sweep->names[c], to->y[c]};
    }
}

mics_status mics_plan_sweep_svg(const mics_plan *plan, const mics_plan_sweep *sweep,
                                const char *path)
{
    char model[96], title[TEXT_BYTES], subtitle[TEXT_BYTES];
    model_name(plan->run->model_config, model, sizeof model);
    snprintf(title, sizeof title, "%s on %s", model, plan->cluster.name);
    write_subtitle(plan, sweep, subtitle);
    mics_chart chart = {
        .title = title,
        .subtitle = subtitle,
        .x_label = sweep->over_params ? "P: GPUs that parameters are sharded over" : "nodes",
        .y_label = "TFLOP/s per GPU (model FLOPs)",
        .note = "Predicted by mics plan. Curves end where the model does not fit. Recomputation is "
                "not counted as work.",
    };
    char *svg = NULL;
    void *block = NULL;
    MICS_TRY(mics_alloc(plan->memory, MICS_MEM_HOST, sizeof(curves), &block));
    fill_curves(sweep, block, &chart);
    const mics_status status = mics_chart_svg(plan->memory, &chart, &svg);
    mics_free(plan->memory, block);
    return write_drawn(plan->memory, status, svg, path);
}

// ---- several clusters ----

typedef struct points {
    mics_scatter_point items[MICS_PLAN_MAX_OFFERS];
    char names[MICS_PLAN_MAX_OFFERS][NAME_BYTES];
} points;

// Days and price of all tokens; where none are asked for hours and price of 1e9. Returns: whether
// any price is known.
static bool fill_points(const mics_plan_offers *offers, bool whole, points *to)
{
    bool priced = false;
    for (int32_t i = 0; i < offers->count; i++) {
        const mics_plan_offer *offer = &offers->items[i];
        const double usd = whole ? offer->usd.typical : offer->entry.usd_per_gtoken;
        const double time = whole ? offer->days.typical : 1e9 / offer->entry.tokens_per_s / 3600;
        const bool planned = offer->note[0] == '\0', known = planned && usd > 0;
        priced = priced || (planned && offer->entry.usd_per_gtoken > 0);
        snprintf(to->names[i], NAME_BYTES, "%s:%d", offer->cluster, (int)offer->nodes);
        to->items[i] =
            (mics_scatter_point){to->names[i], known ? time : NAN, known ? usd : NAN, offer->front};
    }
    return priced;
}

mics_status mics_plan_offers_svg(const mics_plan_offers *offers, const char *file, const char *path)
{
    const mics_plan_range *tokens = &offers->items[0].tokens;
    // Days or money as the goal: each has as many tokens as they are enough for, and no price in common.
    const bool whole = tokens->typical > 0 && tokens->low == tokens->high;
    char model[96], title[TEXT_BYTES], subtitle[TEXT_BYTES];
    snprintf(title, sizeof title, "%s: time and price", model_name(file, model, sizeof model));
    snprintf(subtitle, sizeof subtitle,
             whole ? "%.4g tokens; typical times" : "1e9 tokens; typical times", tokens->typical);
    void *block = NULL;
    char *svg = NULL;
    MICS_TRY(mics_alloc(offers->memory, MICS_MEM_HOST, sizeof(points), &block));
    points *drawn = block;
    const mics_scatter scatter = {
        .title = title,
        .subtitle = subtitle,
        .x_label = whole ? "days" : "hours for 1e9 tokens",
        .y_label = whole ? "USD" : "USD for 1e9 tokens",
        .points = drawn->items,
        .count = offers->count,
        .note = "Predicted by mics plan. The line joins clusters that none of the others beats in "
                "both time and price.",
    };
    mics_status status = MICS_OK;
    if (!fill_points(offers, whole, drawn))
        status = mics_fail(MICS_ERR_INVALID,
                           "--svg %s: no price is known of any of these clusters; a cluster file's "
                           "usd_per_node_hour gives one",
                           path);
    if (status == MICS_OK)
        status = mics_scatter_svg(offers->memory, &scatter, &svg);
    mics_free(offers->memory, block);
    return write_drawn(offers->memory, status, svg, path);
}
