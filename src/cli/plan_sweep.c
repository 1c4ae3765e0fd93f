// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// A sweep as a table, as JSON, and as a picture.
#include "base/file.h"
#include "base/text.h"
#include "mics/report.h"
#include "plan.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { NOTE_COLUMN = 14 };

// ---- table ----

// What a table of a sweep has beside the best plan.
typedef struct sweep_columns {
    const mics_plan_goal *goal;
    bool wide;
    bool whole; // a goal says how many tokens: days and price
} sweep_columns;

// Without --wide those that most readers compare with; with days and price fewer.
static bool is_shown(const mics_plan_sweep *sweep, const sweep_columns *columns, int32_t curve)
{
    static const char *const always[] = {"best", "zero3", "mics", "megatron"};
    static const char *const with_space[] = {"mics+", "hpz"};
    const char *name = sweep->names[curve];
    bool shown = columns->wide || sweep->over_params;
    for (size_t i = 0; i < sizeof always / sizeof always[0]; i++)
        shown = shown || strcmp(name, always[i]) == 0;
    for (size_t i = 0; !columns->whole && i < sizeof with_space / sizeof with_space[0]; i++)
        shown = shown || strcmp(name, with_space[i]) == 0;
    return shown;
}

static void print_cost(const mics_plan_offer *offer)
{
    char text[CLI_PLAN_FIGURE_BYTES];
    printf("%7s", cli_plan_figure(offer->days.typical, text));
    printf("%12s%c", offer->usd.typical > 0 ? cli_plan_figure(offer->usd.typical, text) : "-",
           offer->meets ? ' ' : '!');
}

static void print_point(const mics_plan *plan, const mics_plan_sweep *sweep,
                        const sweep_columns *columns, const mics_plan_point *point)
{
    const mics_plan_entry *best = &point->curves[0];
    char batch[32], degrees[CLI_PLAN_DEGREES_BYTES];
    if (!point->has[0]) {
        printf("%5d %6d  ", (int)point->size, (int)point->ranks);
        cli_plan_wrapped(point->note, NOTE_COLUMN);
        return;
    }
    snprintf(batch, sizeof batch, "%lld x %d%s", (long long)best->choice.micro_batch,
             (int)best->choice.micro_steps, best->choice.recompute ? " rec" : "");
    printf("%5d %6d  %-18s %-12s %8.1f ", (int)point->size, (int)point->ranks,
           cli_plan_short_name(best, degrees), batch, best->step_us * 1e-3);
    printf(best->tokens_per_s < 9999.5 ? "%9.4g" : "%9.0f", best->tokens_per_s);
    if (columns->whole) {
        const mics_plan_offer offer = mics_plan_offer_get(plan, point->nodes, best, columns->goal);
        print_cost(&offer);
    }
    for (int32_t c = 0; c < sweep->curve_count; c++) {
        if (!is_shown(sweep, columns, c))
            continue;
        if (point->has[c])
            printf(" %8.1f", point->curves[c].tflops_per_gpu);
        else
            printf(" %8s", "-");
    }
    printf("\n");
}

static bool has_goal(const mics_plan_goal *goal)
{
    return goal->tokens > 0 || goal->days > 0 || goal->usd > 0;
}

static void print_sweep_head(const mics_plan *plan, const mics_plan_sweep *sweep,
                             const sweep_columns *columns)
{
    printf("%s on %s, sequences of %lld tokens, %s\n", plan->run->model_config, plan->cluster.name,
           (long long)plan->length, cli_plan_precision_text(plan));
    printf("TFLOP/s a GPU (model FLOPs, without recomputation) of the best plan and of what it is "
           "compared with; -: does not fit\n");
    if (columns->whole)
        printf("days and USD: of %s, typical; !: misses the goal\n",
               columns->goal->tokens > 0 ? "all tokens" : "what the goal is enough for");
    printf("\n%5s %6s  %-18s %-12s %8s %9s", sweep->over_params ? "P" : "nodes", "ranks",
           "best plan", "micro-batch", "step ms", "tokens/s");
    if (columns->whole)
        printf("%7s%12s ", "days", "USD");
    for (int32_t c = 0; c < sweep->curve_count; c++) {
        if (is_shown(sweep, columns, c))
            printf(" %8s", sweep->names[c]);
    }
    printf("\n");
}

// Why the paper's sharding loses where ZeRO-3 beats it.
static void print_losses(const mics_plan_sweep *sweep)
{
    for (int32_t i = 0; !sweep->over_params && i < sweep->point_count; i++) {
        const mics_plan_point *point = &sweep->points[i];
        const mics_plan_entry *mics = &point->curves[1 + MICS_PLAN_MICS];
        const mics_plan_entry *zero3 = &point->curves[1 + MICS_PLAN_ZERO3];
        char text[sizeof mics->name + sizeof mics->why + 32];
        if (!point->has[1 + MICS_PLAN_MICS] || !point->has[1 + MICS_PLAN_ZERO3] ||
            mics->step_us <= 1.01 * zero3->step_us)
            continue;
        snprintf(text, sizeof text, "%s on %d node%s: %s", mics->name, (int)point->nodes,
                 point->nodes == 1 ? "" : "s", mics->why);
        printf("\n");
        cli_plan_wrapped(text, 0);
    }
}

// Why there is a dash where it is not for memory; a reason that stays the same is said once.
static void print_no_cuts(const mics_plan_sweep *sweep)
{
    const int megatron = 1 + MICS_PLAN_MEGATRON;
    const char *said = "";
    char text[MICS_PLAN_WHY_BYTES + 64];
    for (int32_t i = 0; !sweep->over_params && i < sweep->point_count; i++) {
        const mics_plan_point *point = &sweep->points[i];
        const char *why = point->curves[megatron].why;
        if (!point->has[0] || point->curves[megatron].choice.micro_batch > 0 ||
            strcmp(why, said) == 0)
            continue;
        said = why;
        mics_text_format(text, sizeof text, "megatron on %d node%s: %s", (int)point->nodes,
                         point->nodes == 1 ? "" : "s", why);
        printf("\n");
        cli_plan_wrapped(text, 0);
    }
}

void cli_sweep_text(const mics_plan *plan, const mics_plan_sweep *sweep, const mics_plan_goal *goal,
                    bool wide)
{
    const sweep_columns columns = {.goal = goal, .wide = wide, .whole = has_goal(goal)};
    print_sweep_head(plan, sweep, &columns);
    for (int32_t i = 0; i < sweep->point_count; i++)
        print_point(plan, sweep, &columns, &sweep->points[i]);
    print_losses(sweep);
    print_no_cuts(sweep);
}

// ---- JSON ----

static void print_curves(const mics_plan *plan, const mics_plan_sweep *sweep,
                         const mics_plan_goal *goal, const mics_plan_point *point)
{
    const bool any = point->curves[0].step_us > 0;
    printf("\"plan\": ");
    if (point->has[0])
        cli_plan_entry_json(plan, &point->curves[0]);
    else
        printf("null");
    printf(", \"baselines\": {");
    for (int32_t c = 1; any && c < sweep->curve_count; c++) {
        printf("%s\"%s\": ", c > 1 ? ", " : "", sweep->names[c]);
        cli_plan_entry_json(plan, &point->curves[c]);
    }
    printf("}");
    if (point->has[0]) {
        const mics_plan_offer offer =
            mics_plan_offer_get(plan, point->nodes, &point->curves[0], goal);
        cli_plan_cost_json(&offer);
    }
}

void cli_sweep_json(const mics_plan *plan, const mics_plan_sweep *sweep, const mics_plan_goal *goal)
{
    printf("{\n  \"sweep\": \"%s\", \"config\": ", sweep->over_params ? "P" : "nodes");
    mics_text_write_quoted(stdout, plan->run->model_config);
    printf(", \"cluster\": ");
    mics_text_write_quoted(stdout, plan->cluster.name);
    printf(", \"sequence_length\": %lld, \"math\": \"%s\",\n  \"points\": [",
           (long long)plan->length, mics_math_text(plan->math));
    for (int32_t i = 0; i < sweep->point_count; i++) {
        const mics_plan_point *point = &sweep->points[i];
        printf("%s\n    {\"%s\": %d, \"nodes\": %d, \"ranks\": %d, \"global_batch\": %lld, "
               "\"note\": ",
               i > 0 ? "," : "", sweep->over_params ? "params" : "size", (int)point->size,
               (int)point->nodes, (int)point->ranks, (long long)point->global_batch);
        if (point->note[0] != '\0')
            mics_text_write_quoted(stdout, point->note);
        else
            printf("null");
        printf(", ");
        print_curves(plan, sweep, goal, point);
        printf("}");
    }
    printf("\n  ]\n}\n");
}

// ---- picture ----

typedef struct picture {
    double y[MICS_PLAN_MAX_CURVES][MICS_PLAN_MAX_POINTS];
    char ticks[MICS_PLAN_MAX_POINTS][16];
    const char *tick_texts[MICS_PLAN_MAX_POINTS];
    char title[256], subtitle[256];
} picture;

static void fill_picture(const mics_plan *plan, const mics_plan_sweep *sweep, picture *p,
                         mics_chart *chart)
{
    char model[96];
    cli_plan_model_name(plan->run->model_config, model, sizeof model);
    for (int32_t i = 0; i < sweep->point_count; i++) {
        const mics_plan_point *point = &sweep->points[i];
        snprintf(p->ticks[i], sizeof p->ticks[i], "%d", (int)point->size);
        p->tick_texts[i] = p->ticks[i];
        for (int32_t c = 0; c < sweep->curve_count; c++)
            p->y[c][i] = point->has[c] ? point->curves[c].tflops_per_gpu : NAN;
    }
    const mics_plan_point *last = &sweep->points[sweep->point_count - 1];
    snprintf(p->title, sizeof p->title, "%s on %s", model, plan->cluster.name);
    if (sweep->over_params)
        snprintf(p->subtitle, sizeof p->subtitle,
                 "%d nodes, %lld sequences of %lld tokens a step, %s", (int)plan->nodes,
                 (long long)last->global_batch, (long long)plan->length,
                 cli_plan_precision_text(plan));
    else if (plan->train_batch > 0)
        snprintf(p->subtitle, sizeof p->subtitle, "%lld sequences of %lld tokens a step, %s",
                 (long long)plan->train_batch, (long long)plan->length,
                 cli_plan_precision_text(plan));
    else
        snprintf(p->subtitle, sizeof p->subtitle,
                 "%lld sequences of %lld tokens a GPU and step, %s", (long long)plan->rank_batch,
                 (long long)plan->length, cli_plan_precision_text(plan));
    chart->title = p->title;
    chart->subtitle = p->subtitle;
    chart->x_texts = p->tick_texts;
    chart->x_count = sweep->point_count;
}

// Of nine curves the picture holds eight: ddp, which fits small models alone, stands back.
static void take_series(const mics_plan_sweep *sweep, const picture *p, mics_chart *chart)
{
    for (int32_t c = 0; c < sweep->curve_count; c++) {
        if (sweep->curve_count > MICS_CHART_SERIES && strcmp(sweep->names[c], "ddp") == 0)
            continue;
        chart->series[chart->series_count++] =
            (mics_chart_series){c == 0 ? "best plan" : sweep->names[c], p->y[c]};
    }
}

mics_status cli_sweep_svg(const mics_plan *plan, const mics_plan_sweep *sweep, const char *path)
{
    mics_chart chart = {
        .x_label = sweep->over_params ? "P: GPUs that parameters are sharded over" : "nodes",
        .y_label = "TFLOP/s per GPU (model FLOPs)",
        .note = "Predicted by mics plan. Curves end where the model does not fit. Recomputation is "
                "not counted as work.",
    };
    char *svg = NULL;
    void *block = NULL;
    MICS_TRY(mics_alloc(plan->memory, MICS_MEM_HOST, sizeof(picture), &block));
    fill_picture(plan, sweep, block, &chart);
    take_series(sweep, block, &chart);
    mics_status status = mics_chart_svg(plan->memory, &chart, &svg);
    if (status == MICS_OK)
        status = mics_file_write_whole(path, svg, strlen(svg));
    mics_free(plan->memory, svg);
    mics_free(plan->memory, block);
    return status;
}
