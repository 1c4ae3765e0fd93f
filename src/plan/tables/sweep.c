// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// A sweep: the best plan and the baselines by the size of the cluster, or by P.
#include "plan/tables/sweep.h"
#include "base/text.h"
#include "plan/search/baseline.h"
#include "plan/tables/found.h"
#include "plan/tables/offer.h"
#include "plan/tables/tables.h"
#include "plan/tables/words.h"
#include <string.h>

enum { NOTE_COLUMN = 14 };

// What a table of a sweep has beside the best plan.
typedef struct table {
    const mics_plan *plan;
    const mics_plan_sweep *sweep;
    const mics_plan_goal *goal;
    bool wide;
    bool whole; // a goal says how many tokens: days and price
} table;

// Without --wide those that most readers compare with; with days and price fewer.
static bool is_shown(const table *t, int32_t curve)
{
    const char *name = t->sweep->names[curve];
    return t->wide || t->sweep->over_params ||
           mics_text_is_among(name, "best|zero3|mics|megatron") ||
           (!t->whole && mics_text_is_among(name, "mics+|hpz"));
}

// What JSON says of the best plan and of what it is compared with.
static void write_curves(printer *r, const table *t, const mics_plan_point *point)
{
    plan_table_entry(r, "plan", t->plan, point->has[0] ? &point->curves[0] : NULL);
    printer_open(r, "baselines", '{', false);
    for (int32_t c = 1; point->curves[0].step_us > 0 && c < t->sweep->curve_count; c++)
        plan_table_entry(r, t->sweep->names[c], t->plan, &point->curves[c]);
    printer_close(r);
}

static void print_best(printer *r, const mics_plan_entry *best)
{
    PRINTER_ROW(r, CELL_SHOWN(-19, "best plan", "%s ", plan_table_short_name(best).text),
                CELL_SHOWN(-13, "micro-batch", "%s ", plan_table_batch(&best->choice).text),
                CELL_SHOWN(9, "a step ", "%s ", plan_table_duration(best->step_us * 1e-6).text),
                CELL_SHOWN(8, "tokens/s", "%s", plan_table_rate(best->tokens_per_s).text));
}

static void print_cost(printer *r, const table *t, const mics_plan_point *point)
{
    mics_plan_offer offer = {.nodes = 0};
    if (!r->headings)
        offer = mics_plan_offer_get(t->plan, point->nodes, &point->curves[0], t->goal);
    const double usd = offer.usd.typical;
    plan_table_cost(r, &offer);
    if (t->whole)
        PRINTER_ROW(
            r, CELL_SHOWN(10, "time", "%s", plan_table_duration(offer.days.typical * 86400).text),
            CELL_SHOWN(12, "USD ", "%s%c", usd > 0 ? plan_table_figure(usd).text : "-",
                       offer.meets ? ' ' : '!'));
}

static void print_point(printer *r, const table *t, const mics_plan_point *point)
{
    const bool over_params = t->sweep->over_params;
    const bool planned = point->has[0] || r->headings;
    printer_open(r, NULL, '{', false);
    PRINTER_ROW(
        r,
        cell_column(cell_int(over_params ? "params" : "size", point->size), 6,
                    over_params ? "P " : "nodes ", "%d ", (int)point->size),
        cell_int("nodes", point->nodes),
        cell_column(cell_int("ranks", point->ranks), 7, "ranks  ", "%d  ", (int)point->ranks),
        cell_int("global_batch", point->global_batch), cell_name("note", point->note));
    if (r->json)
        write_curves(r, t, point);
    else if (!planned)
        printer_wrapped(r, NOTE_COLUMN, "%s", point->note);
    else
        print_best(r, &point->curves[0]);
    if (planned)
        print_cost(r, t, point);
    for (int32_t c = 0; planned && c < t->sweep->curve_count; c++) {
        if (is_shown(t, c))
            PRINTER_ROW(r, CELL_SHOWN(9, t->sweep->names[c], point->has[c] ? "%.1f" : "-",
                                      point->curves[c].tflops_per_gpu));
    }
    if (planned)
        printer_text(r, "\n");
    printer_close(r);
}

// Of the first plan: the same of all.
static void print_basis(printer *r, const table *t)
{
    const mics_plan_point *point = t->sweep->points;
    while (!point->has[0]) // some point has a plan
        point++;
    const mics_plan_offer offer =
        mics_plan_offer_get(t->plan, point->nodes, &point->curves[0], t->goal);
    const bool priced = offer.entry.usd_per_gtoken > 0;
    PRINTER_ROW(r, cell_name("cannot_run", offer.cannot),
                cell_words("price", priced ? mics_price_text(offer.price) : NULL),
                cell_name("price_date", priced ? offer.price_date : ""));
    if (offer.cannot[0] != '\0')
        printer_wrapped(r, 0, "mics cannot run these plans: %s.", offer.cannot);
    else if (!t->sweep->over_params)
        printer_text(r, "megatron: a comparison, mics cannot run it\n");
    plan_table_price(r, &offer);
}

static void print_head(printer *r, const table *t)
{
    const mics_plan *plan = t->plan;
    printer_text(r, "%s on %s, sequences of %lld tokens, %s\n", plan->run->model_config,
                 plan->cluster.name, (long long)plan->length, mics_plan_precision_text(plan));
    PRINTER_ROW(
        r, cell_words("sweep", t->sweep->over_params ? "P" : "nodes"),
        cell_words("config", plan->run->model_config), cell_words("cluster", plan->cluster.name),
        cell_int("sequence_length", plan->length), cell_words("math", mics_math_text(plan->math)));
    printer_text(
        r, "TFLOP/s a GPU (model FLOPs, without recomputation) of the best plan and of what it "
           "is compared with; -: does not fit\n");
    if (t->whole)
        printer_text(r, "time and USD: of %s, typical; !: misses the goal\n",
                     t->goal->tokens > 0 ? "all tokens" : "what the goal is enough for");
    print_basis(r, t);
    printer_text(r, "\n");
}

// Why the paper's sharding loses where ZeRO-3 beats it.
static void print_losses(const printer *r, const mics_plan_sweep *sweep)
{
    for (int32_t i = 0; !sweep->over_params && i < sweep->point_count; i++) {
        const mics_plan_point *point = &sweep->points[i];
        const mics_plan_entry *mics = &point->curves[1 + MICS_PLAN_MICS];
        const mics_plan_entry *zero3 = &point->curves[1 + MICS_PLAN_ZERO3];
        if (!point->has[1 + MICS_PLAN_MICS] || !point->has[1 + MICS_PLAN_ZERO3] ||
            mics->step_us <= 1.01 * zero3->step_us)
            continue;
        printer_text(r, "\n");
        printer_wrapped(r, 0, "%s on %d node%s: %s", mics->name, (int)point->nodes,
                        text_plural(point->nodes), mics->why);
    }
}

// Why there is a dash where it is not for memory; a reason that stays the same is said once.
static void print_no_cuts(const printer *r, const mics_plan_sweep *sweep)
{
    const char *said = "";
    for (int32_t i = 0; !sweep->over_params && i < sweep->point_count; i++) {
        const mics_plan_point *point = &sweep->points[i];
        const mics_plan_entry *megatron = &point->curves[1 + MICS_PLAN_MEGATRON];
        if (!point->has[0] || megatron->choice.micro_batch > 0 || strcmp(megatron->why, said) == 0)
            continue;
        said = megatron->why;
        printer_text(r, "\n");
        printer_wrapped(r, 0, "megatron on %d node%s: %s", (int)point->nodes,
                        text_plural(point->nodes), megatron->why);
    }
}

void plan_table_sweep(printer *r, const mics_plan *plan, const mics_plan_sweep *sweep,
                      const mics_plan_goal *goal, bool wide)
{
    const table columns = {.plan = plan,
                           .sweep = sweep,
                           .goal = goal,
                           .wide = wide,
                           .whole = goal->tokens > 0 || goal->days > 0 || goal->usd > 0};
    printer_open(r, NULL, '{', true);
    print_head(r, &columns);
    r->headings = !r->json;
    if (r->headings)
        print_point(r, &columns, &sweep->points[0]);
    r->headings = false;
    printer_open(r, "points", '[', true);
    for (int32_t i = 0; i < sweep->point_count; i++)
        print_point(r, &columns, &sweep->points[i]);
    printer_close(r);
    printer_close(r);
    print_losses(r, sweep);
    print_no_cuts(r, sweep);
}
