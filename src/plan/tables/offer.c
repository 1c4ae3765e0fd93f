// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// What mics plan answers a buyer: one sentence, a table of several clusters, the catalogue.
#include "plan/tables/offer.h"
#include "plan/tables/found.h"
#include "plan/tables/tables.h"
#include "plan/tables/words.h"
#include <math.h>
#include <string.h>

enum { NOTE_COLUMN = 37 };

static const double day_s = 86400;

// ---- the answer ----

static short_text range_text(const mics_plan_range *range)
{
    const short_text low = plan_table_figure(range->low), high = plan_table_figure(range->high);
    const bool alike = strcmp(low.text, high.text) == 0;
    return alike ? text_of("%s", "") : text_of(" (%s to %s)", low.text, high.text);
}

// Time and money of all tokens.
static short_text whole_text(const mics_plan_offer *offer)
{
    const mics_plan_range *tokens = &offer->tokens, *days = &offer->days;
    const mics_plan_range s = {days->typical * day_s, days->low * day_s, days->high * day_s};
    short_text usd = {""}, range = {""};
    if (offer->usd.typical > 0)
        usd = text_of(" and $%s%s", plan_table_figure(offer->usd.typical).text,
                      range_text(&offer->usd).text);
    if (tokens->low < tokens->high)
        range = text_of(" (%s to %s)", plan_table_count(tokens->low).text,
                        plan_table_count(tokens->high).text);
    return text_of(", %s%s for %s%s tokens", plan_table_span(&s).text, usd.text,
                   plan_table_count(tokens->typical).text, range.text);
}

static void print_take(const printer *r, const mics_plan_offer *offer, const char *where)
{
    const mics_plan_choice *c = &offer->entry.choice;
    short_text whole = {""}, take = {"Take"};
    char form[MICS_RECOMPUTE_BYTES];
    const short_text recompute =
        c->recompute.units == MICS_RECOMPUTE_ALL ? text_of(", recomputed")
        : mics_recomputes(c->recompute)
            ? text_of(", run.recompute %s", mics_recompute_text(c->recompute, false, form))
            : (short_text){""};
    const short_text offload = text_of(", run.offload_activations %d", (int)c->offload_units);
    if (offer->never)
        whole = text_of(", training never gets done");
    else if (offer->tokens.typical > 0)
        whole = whole_text(offer);
    else if (offer->entry.usd_per_gtoken > 0)
        whole =
            text_of(", $%s for 1e9 tokens", plan_table_figure(offer->entry.usd_per_gtoken).text);
    if (offer->cannot[0] != '\0')
        take = text_of("mics cannot run this (%s). As planned:", offer->cannot);
    printer_phrases(r,
                    "%s%s %s, micro-batch %lld x %d x %d ranks = %lld %s%s%s%s%s: %s a step%s, "
                    "%s a rank to spare%s.",
                    where, take.text, offer->entry.name, (long long)c->micro_batch,
                    (int)c->micro_steps, (int)(offer->ranks / (c->sequence > 1 ? c->sequence : 1)),
                    (long long)offer->global_batch, offer->pairs ? "pairs" : "sequences",
                    recompute.text, c->offload_units > 0 ? offload.text : "",
                    c->early_gathers ? ", run.early_gathers true" : "",
                    c->boundary_two_stage ? "" : ", run.collectives ring",
                    plan_table_span(&offer->step_s).text, whole.text,
                    text_size(offer->entry.spare_bytes).text,
                    offer->entry.tight ? ", which is tight" : "");
}

// Of which published trainings plans are known to be how far off.
static void print_kind(const printer *r, const mics_plan_offer *offer)
{
    const mics_plan_kind *kind = offer->kind;
    const bool own = offer->published_rows > 0;
    short_text wider = {.text = ""};
    if (offer->unpublished != NULL)
        wider = text_of(" None is known %s: the range is wider.", offer->unpublished);
    else if (offer->published_rows < MICS_PLAN_FEW_ROWS)
        wider = text_of(" %s of this kind: the range is wider.", own ? "Few are" : "None is");
    printer_wrapped(
        r, 0,
        "Times are typical of published trainings, in brackets of fast and slow ones. %s "
        "%s: plans of its %d %s were %.0f %% too %s (median), nine in ten within %.0f "
        "%%.%s",
        own ? "Its kind is" : "The nearest kind is", kind->name, (int)kind->rows,
        kind->rows == 1 ? "row" : "rows", fabs(100 * (kind->ratio - 1)),
        kind->ratio < 1 ? "fast" : "slow", 100 * kind->high_error, wider.text);
}

void plan_table_price(const printer *r, const mics_plan_offer *offer)
{
    const char *date = offer->price_date;
    if (offer->entry.usd_per_gtoken > 0)
        printer_text(r, "The price is %s%s%s%s.\n", mics_price_text(offer->price),
                     date[0] != '\0' ? ", as of " : "", date,
                     plan_table_is_old(date) ? ": older than six months" : "");
    else
        printer_text(r, "No %s price of %s is known.\n", mics_price_text(offer->price),
                     offer->cluster);
}

// What the figures rest on.
static void print_basis(const printer *r, const mics_plan_offer *offer)
{
    if (offer->step_s.low == offer->step_s.high) {
        printer_text(r, "Times are from rates as the cluster file gives them.\n");
        return;
    }
    print_kind(r, offer);
    if (offer->straggling > 0)
        printer_text(r,
                     "On %d GPUs slow ones may make steps %.3g times as long (arXiv:2410.12588).\n",
                     (int)offer->ranks, offer->straggling);
}

// Which limits, of those that are given.
static void print_missed(const printer *r, const mics_plan_offer *offer, const mics_plan_goal *goal)
{
    printer_text(r, "It does not meet");
    if (!offer->meets_days)
        printer_text(r, " %s", plan_table_duration(goal->days * day_s).text);
    if (!offer->meets_usd)
        printer_text(r, "%s $%s%s", offer->meets_days ? "" : " or",
                     plan_table_figure(goal->usd).text,
                     offer->entry.usd_per_gtoken == 0 ? ": no such price is known" : "");
    printer_text(r, ".\n");
}

void plan_table_answer(printer *r, const mics_plan_offer *offer, const mics_plan_goal *goal,
                       const char *where)
{
    if (r->json)
        return;
    print_take(r, offer, where);
    if (!offer->meets)
        print_missed(r, offer, goal);
    plan_table_price(r, offer);
    plan_table_goodput(r, offer);
    print_basis(r, offer);
    if (offer->faster[0] != '\0')
        printer_wrapped(r, 0, "%s would take %s; mics cannot run it.", offer->faster,
                        plan_table_duration(offer->faster_us * 1e-6).text);
    printer_text(r, "\n");
}

// ---- an offer ----

static void write_range(printer *r, const char *key, const mics_plan_range *range)
{
    if (range->typical == 0)
        PRINTER_ROW(r, cell_null(key));
    else
        PRINTER_OBJECT(r, key, cell_number("typical", range->typical),
                       cell_number("low", range->low), cell_number("high", range->high));
}

void plan_table_cost(printer *r, const mics_plan_offer *offer)
{
    if (!r->json)
        return;
    write_range(r, "tokens", &offer->tokens);
    write_range(r, "step_s", &offer->step_s);
    write_range(r, "days", &offer->days);
    write_range(r, "usd", &offer->usd);
    PRINTER_ROW(r, cell_flag("meets_goal", offer->meets));
}

// Columns of a table of offers.
typedef struct table {
    bool wide;
    bool whole;  // tokens are known, so days and the price of all of them
    bool tokens; // and differ by row: as many as the goal's days or money are enough for
} table;

static void print_figures(printer *r, const mics_plan_offer *offer, const table *t)
{
    const bool wide = t->wide, whole = t->whole, tokens = t->tokens;
    const double usd = whole ? offer->usd.typical : offer->entry.usd_per_gtoken;
    if (offer->kind != NULL) // headings have none
        PRINTER_ROW(r, cell_words("kind", offer->kind->name),
                    cell_int("kind_rows", offer->kind->rows),
                    cell_number("kind_ratio", offer->kind->ratio),
                    cell_number("kind_high_error", offer->kind->high_error));
    PRINTER_ROW(
        r,
        cell_column(cell_int("global_batch", offer->global_batch), 8, "batch ", "%lld%c",
                    (long long)offer->global_batch,
                    offer->global_batch > offer->batch_asked ? '+' : ' '),
        cell_int("batch_asked", offer->batch_asked),
        CELL_SHOWN(9, "a step", "%s", plan_table_duration(offer->step_s.typical).text),
        CELL_SHOWN(10, wide || !tokens ? "tokens/s" : NULL, "%s",
                   plan_table_tokens(offer->entry.tokens_per_s).text),
        CELL_SHOWN(7, wide ? "MFU %" : NULL, "%.1f", 100 * offer->entry.mfu),
        cell_column(cell_rounded("spare_bytes", offer->entry.spare_bytes), 11,
                    wide ? "to spare" : NULL, "%s", text_size(offer->entry.spare_bytes).text),
        cell_flag("tight", offer->entry.tight), cell_int("published_rows", offer->published_rows),
        CELL_SHOWN(10, tokens ? "tokens" : NULL, "%s",
                   plan_table_count(offer->tokens.typical).text),
        CELL_SHOWN(10, whole ? "time" : NULL, "%s",
                   plan_table_duration(offer->days.typical * day_s).text),
        CELL_SHOWN(13, whole ? "USD  " : "USD/Gtok  ", "%s%c%c",
                   usd > 0 ? plan_table_figure(usd).text : "-",
                   usd > 0 ? " rm"[offer->price % 3] : ' ',
                   usd > 0 && plan_table_is_old(offer->price_date) ? '~' : ' '),
        cell_words("price", usd > 0 ? mics_price_text(offer->price) : NULL),
        cell_name("price_date", usd > 0 ? offer->price_date : ""));
}

static void print_offer(printer *r, const mics_plan_offer *offer, const table *t)
{
    const bool planned = offer->note[0] == '\0';
    PRINTER_ROW(
        r,
        CELL_SHOWN(-31, "   cluster", "%c%c%c%s:%d", offer->front ? '*' : ' ',
                   offer->cannot[0] != '\0' ? 'x' : ' ', planned && !offer->meets ? '!' : ' ',
                   offer->cluster, (int)offer->nodes),
        cell_words("cluster", offer->cluster), cell_int("nodes", offer->nodes),
        cell_column(cell_int("ranks", offer->ranks), 6, "ranks ", "%d ", (int)offer->ranks));
    if (!planned) {
        PRINTER_ROW(r, cell_words("note", offer->note));
        printer_wrapped(r, NOTE_COLUMN, "%s", offer->note);
        return;
    }
    PRINTER_ROW(
        r,
        cell_column(cell_words("plan", offer->entry.name), -19, "plan", "%s ",
                    plan_table_short_name(&offer->entry).text),
        CELL_SHOWN(-14, "micro-batches", "%s", plan_table_batch(&offer->entry.choice).text));
    print_figures(r, offer, t);
    printer_text(r, "\n");
}

void plan_table_offer(printer *r, const char *key, const mics_plan_offer *offer)
{
    if (!r->json)
        return;
    printer_open(r, key, '{', false);
    print_offer(r, offer, &(table){false});
    if (offer->note[0] == '\0') {
        printer_open(r, "choice", '{', false);
        plan_table_choice(r, &offer->entry);
        printer_close(r);
        plan_table_cost(r, offer);
        PRINTER_ROW(r, cell_name("cannot_run", offer->cannot),
                    cell_name("faster_baseline", offer->faster), cell_name("no_cut", offer->no_cut),
                    cell_flag("pareto", offer->front));
        plan_table_goodput(r, offer);
    }
    printer_close(r);
}

// ---- several clusters ----

static const char signs[] =
    "\n*: none of the others that mics can run is both faster and cheaper; !: misses the goal; x: "
    "mics "
    "cannot run it;\n"
    "r: reserved, m: of a marketplace, else on demand; ~: a price older than six months. Times are "
    "typical.\n"
    "micro-batches: sequences of one x micro-steps; rec: recomputed, off: activations in host "
    "memory, "
    "both;\nbatch: sequences a step of all ranks.\n";

static void print_signs(const printer *r, const mics_plan_offers *offers)
{
    bool raised = false;
    for (int32_t i = 0; i < offers->count; i++)
        raised = raised || (offers->items[i].note[0] == '\0' &&
                            offers->items[i].global_batch > offers->items[i].batch_asked);
    printer_text(r, "%s", signs);
    if (raised)
        printer_text(r, "+: raised from %lld sequences to what so many ranks can share evenly.\n",
                     (long long)offers->items[0].batch_asked);
}

// What is faster than the others' plans (the answer says it of the first), and what is not cut.
static void print_remarks(const printer *r, const mics_plan_offers *offers)
{
    for (int32_t i = 1; i < offers->count; i++) {
        const mics_plan_offer *offer = &offers->items[i];
        if (offer->faster[0] != '\0')
            printer_wrapped(r, 0, "%s:%d: %s would take %s; mics cannot run it.", offer->cluster,
                            (int)offer->nodes, offer->faster,
                            plan_table_duration(offer->faster_us * 1e-6).text);
    }
    for (int32_t i = 0; i < offers->count; i++) {
        const mics_plan_offer *offer = &offers->items[i];
        if (offer->no_cut[0] != '\0')
            printer_wrapped(r, 0, "%s:%d: megatron: %s", offer->cluster, (int)offer->nodes,
                            offer->no_cut);
    }
}

static void print_offers(printer *r, const mics_plan_offers *offers, const mics_plan_goal *goal,
                         bool wide)
{
    const mics_plan_offer *best = &offers->items[0], none = {.nodes = 0};
    const bool whole = best->tokens.typical > 0;
    const table columns = {.wide = wide, .whole = whole, .tokens = whole && goal->tokens == 0};
    plan_table_answer(r, best, goal, text_of("%s:%d. ", best->cluster, (int)best->nodes).text);
    r->headings = true;
    print_offer(r, &none, &columns);
    r->headings = false;
    for (int32_t i = 0; i < offers->count; i++)
        print_offer(r, &offers->items[i], &columns);
    print_signs(r, offers);
    print_remarks(r, offers);
}

void plan_table_offers(printer *r, const mics_plan_offers *offers, const mics_plan_goal *goal,
                       bool wide)
{
    if (!r->json) {
        print_offers(r, offers, goal, wide);
        return;
    }
    printer_open(r, NULL, '{', true);
    printer_open(r, "offers", '[', true);
    for (int32_t i = 0; i < offers->count; i++)
        plan_table_offer(r, NULL, &offers->items[i]);
    printer_close(r);
    printer_close(r);
}

// ---- the catalogue ----

// All prices of a machine: "55.04 on-demand 2026-11, 27.20 spot 2026-08 ~".
static void print_prices(printer *r, const mics_cluster *c)
{
    const char *comma = "";
    printer_open(r, "prices", '[', false);
    for (int i = 0; i < MICS_PRICES; i++) {
        const mics_price price = (mics_price)i;
        const double usd = c->prices[i];
        const char *date = c->price_dates[i];
        const bool old = plan_table_is_old(date);
        if (usd == 0)
            continue;
        printer_text(r, "%s%.2f %s %s%s", comma, usd, mics_price_text(price), date,
                     old ? " ~" : "");
        PRINTER_OBJECT(r, NULL, cell_words("kind", mics_price_text(price)),
                       cell_number("usd_per_node_hour", usd), cell_name("date", date),
                       cell_flag("old", old));
        comma = ", ";
    }
    printer_close(r);
    printer_text(r, "%s", *comma == '\0' && !r->headings ? "-" : "");
}

static void print_machine(printer *r, const mics_cluster *c)
{
    const double gbit_per_s =
        c->tier_count > 0 ? c->tiers[c->tier_count - 1].bytes_per_s * 8e-9 : 0;
    const int32_t gpus = c->tier_count > 0 ? mics_cluster_ranks_per_node(c) : 0;
    const char *cannot = c->accelerator.unsupported;
    printer_open(r, NULL, '{', false);
    PRINTER_ROW(r, cell_column(cell_words("name", c->name), -29, "name", "%s ", c->name),
                cell_column(cell_int("gpus_per_node", gpus), 5, "GPUs ", "%d ", (int)gpus),
                cell_column(cell_words("gpu", c->accelerator.name), -18, "GPU", "%s%s",
                            c->accelerator.name, cannot[0] != '\0' ? " x" : ""),
                cell_column(cell_number("gbit_per_s_per_node", gbit_per_s), 12, "Gb/s a node  ",
                            "%.5g  ", gbit_per_s),
                cell_name("cannot_run", cannot));
    if (r->headings)
        printer_text(r, "USD/h");
    print_prices(r, c);
    printer_close(r);
    printer_text(r, "\n");
}

mics_status plan_table_list(printer *r)
{
    const mics_cluster none = {.tier_count = 0};
    printer_open(r, NULL, '{', true);
    printer_open(r, "clusters", '[', true);
    r->headings = !r->json;
    if (r->headings)
        print_machine(r, &none);
    r->headings = false;
    for (int32_t i = 0; i < mics_catalogue_count(); i++) {
        mics_cluster c;
        MICS_TRY(mics_cluster_find(mics_catalogue_name(i), &c));
        print_machine(r, &c);
    }
    printer_close(r);
    printer_close(r);
    printer_text(r, "x: mics cannot run on it. ~: a price older than six months.\n");
    return MICS_OK;
}
