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

static const double day_s = 86400;

// "configs/llama-3.1-8b.json" is "llama-3.1-8b".
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
    const char *first; // date of a price; NULL: none
    double longest_s;
} points;

// Seconds and price of all tokens; where none are asked for of 1e9.
static void fill_points(const mics_plan_offers *offers, bool whole, points *to)
{
    for (int32_t i = 0; i < offers->compared; i++) {
        const mics_plan_offer *offer = &offers->items[i];
        const double usd = whole ? offer->usd.typical : offer->entry.usd_per_gtoken;
        const double s = whole ? offer->days.typical * day_s : 1e9 / offer->entry.tokens_per_s;
        const char *date = usd > 0 ? offer->price_date : "";
        snprintf(to->names[i], NAME_BYTES, "%s:%d", offer->cluster, (int)offer->nodes);
        to->items[i] = (mics_scatter_point){to->names[i], usd > 0 ? s : NAN, usd > 0 ? usd : NAN,
                                            offer->front};
        to->longest_s = fmax(to->longest_s, usd > 0 ? s : 0);
        if (date[0] != '\0' && (to->first == NULL || strcmp(date, to->first) < 0))
            to->first = date;
    }
}

// The axis in the unit of its longest time, which is returned.
static const char *scale_times(int32_t count, points *to)
{
    const double unit_s = to->longest_s > 1.5 * day_s ? day_s : (to->longest_s > 5400 ? 3600 : 60);
    for (int32_t i = 0; i < count; i++)
        to->items[i].x /= unit_s;
    return unit_s == day_s ? "days" : (unit_s == 3600 ? "hours" : "minutes");
}

mics_status mics_plan_offers_svg(const mics_plan_offers *offers, const char *file, const char *path)
{
    const mics_plan_range *tokens = &offers->items[0].tokens;
    // Days or money as the goal: each has as many tokens as they are enough for, and no price in common.
    const bool whole = tokens->typical > 0 && tokens->low == tokens->high;
    char model[96], title[TEXT_BYTES], subtitle[TEXT_BYTES], count[32];
    snprintf(title, sizeof title, "%s: time and price", model_name(file, model, sizeof model));
    void *block = NULL;
    char *svg = NULL;
    MICS_TRY(mics_alloc(offers->memory, MICS_MEM_HOST, sizeof(points), &block));
    points *drawn = block;
    fill_points(offers, whole, drawn);
    snprintf(subtitle, sizeof subtitle, "%s tokens; typical times%s%s%s",
             mics_plan_count_text(whole ? tokens->typical : 1e9, count, sizeof count),
             drawn->first != NULL ? "; prices of " : "", drawn->first != NULL ? drawn->first : "",
             drawn->first != NULL ? " or later" : "");
    const mics_scatter scatter = {
        .title = title,
        .subtitle = subtitle,
        .x_label = scale_times(offers->compared, drawn),
        .y_label = "USD",
        .points = drawn->items,
        .count = offers->compared,
        .note = "Predicted by mics plan. The line joins clusters that none of the others beats in "
                "both time and price.",
    };
    mics_status status = MICS_OK;
    if (drawn->longest_s == 0)
        status = mics_fail(MICS_ERR_INVALID,
                           "--svg %s: no price is known of any of these clusters; a cluster file's "
                           "usd_per_node_hour gives one",
                           path);
    if (status == MICS_OK)
        status = mics_scatter_svg(offers->memory, &scatter, &svg);
    mics_free(offers->memory, block);
    return write_drawn(offers->memory, status, svg, path);
}
