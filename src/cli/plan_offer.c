// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// What mics plan answers a buyer: one sentence, a table of several clusters, the catalogue.
#include "cli/plan_offer.h"
#include "cli/plan_found.h"
#include "cli/plan_words.h"
#include "plan.h"
#include <math.h>
#include <string.h>

enum { NOTE_COLUMN = 38 };

// ---- the answer ----

static short_text range_text(const mics_plan_range *range)
{
    const short_text low = cli_plan_figure(range->low), high = cli_plan_figure(range->high);
    const bool alike = strcmp(low.text, high.text) == 0;
    return alike ? text_of("%s", "") : text_of(" (%s to %s)", low.text, high.text);
}

// Time and money of all tokens.
static short_text whole_text(const mics_plan_offer *offer)
{
    const mics_plan_range *tokens = &offer->tokens;
    short_text usd = {""}, range = {""};
    if (offer->usd.typical > 0)
        usd = text_of(" and $%s%s", cli_plan_figure(offer->usd.typical).text,
                      range_text(&offer->usd).text);
    if (tokens->low < tokens->high)
        range = text_of(" (%.3g to %.3g)", tokens->low, tokens->high);
    // Less than a day in hours, less than an hour and a half in minutes.
    const mics_plan_range *days = &offer->days;
    const bool hours = days->typical < 1, minutes = days->typical * 24 < 1.5;
    const double unit = minutes ? 24 * 60 : (hours ? 24 : 1);
    const mics_plan_range shown = {days->typical * unit, days->low * unit, days->high * unit};
    return text_of(", %s %s%s%s for %.4g%s tokens", cli_plan_figure(shown.typical).text,
                   minutes ? "minutes" : (hours ? "hours" : "days"), range_text(&shown).text,
                   usd.text, tokens->typical, range.text);
}

static void print_take(const printer *r, const mics_plan_offer *offer, const char *where)
{
    const mics_plan_choice *c = &offer->entry.choice;
    short_text whole = {""};
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
        whole = text_of(", $%s for 1e9 tokens", cli_plan_figure(offer->entry.usd_per_gtoken).text);
    printer_phrases(
        r,
        "%sTake %s, micro-batch %lld x %d x %d ranks = %lld %s%s%s%s%s: %s s a step%s%s, "
        "%s a rank to spare%s.",
        where, offer->entry.name, (long long)c->micro_batch, (int)c->micro_steps,
        (int)(offer->ranks / (c->sequence > 1 ? c->sequence : 1)), (long long)offer->global_batch,
        offer->pairs ? "pairs" : "sequences", recompute.text,
        c->offload_units > 0 ? offload.text : "",
        c->early_gathers ? ", run.early_gathers true" : "",
        c->boundary_two_stage ? "" : ", run.collectives ring",
        cli_plan_figure(offer->step_s.typical).text, range_text(&offer->step_s).text, whole.text,
        text_size(offer->entry.spare_bytes).text, offer->entry.tight ? ", which is tight" : "");
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
        printer_text(r, " %s days", cli_plan_figure(goal->days).text);
    if (!offer->meets_usd)
        printer_text(r, "%s $%s%s", offer->meets_days ? "" : " or", cli_plan_figure(goal->usd).text,
                     offer->entry.usd_per_gtoken == 0 ? ": no price is known" : "");
    printer_text(r, ".\n");
}

void cli_plan_answer(printer *r, const mics_plan_offer *offer, const mics_plan_goal *goal,
                     const char *where, const char *faster, double faster_us)
{
    if (r->json)
        return;
    print_take(r, offer, where);
    if (!offer->meets)
        print_missed(r, offer, goal);
    cli_plan_goodput(r, offer);
    print_basis(r, offer);
    if (*faster != '\0')
        printer_wrapped(r, 0, "%s would take %s s; mics cannot run it.", faster,
                        cli_plan_figure(faster_us * 1e-6).text);
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

void cli_plan_cost(printer *r, const mics_plan_offer *offer)
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
        CELL_SHOWN(8, "s a step", "%s", cli_plan_figure(offer->step_s.typical).text),
        CELL_SHOWN(12, wide || !tokens ? "tokens/s" : NULL, "%s",
                   cli_plan_figure(offer->entry.tokens_per_s).text),
        CELL_SHOWN(7, wide ? "MFU %" : NULL, "%.1f", 100 * offer->entry.mfu),
        cell_column(cell_rounded("spare_bytes", offer->entry.spare_bytes), 11,
                    wide ? "to spare" : NULL, "%s", text_size(offer->entry.spare_bytes).text),
        cell_flag("tight", offer->entry.tight), cell_int("published_rows", offer->published_rows),
        CELL_SHOWN(12, tokens ? "tokens" : NULL, "%.3g", offer->tokens.typical),
        CELL_SHOWN(9, whole ? "days" : NULL, "%s", cli_plan_figure(offer->days.typical).text),
        CELL_SHOWN(12, whole ? "USD" : "USD/Gtok", "%s",
                   usd > 0 ? cli_plan_figure(usd).text : "-"));
}

static void print_offer(printer *r, const mics_plan_offer *offer, const table *t)
{
    const bool planned = offer->note[0] == '\0';
    PRINTER_ROW(
        r,
        CELL_SHOWN(-31, "  cluster", "%c%c%s:%d", offer->front ? '*' : ' ',
                   planned && !offer->meets ? '!' : ' ', offer->cluster, (int)offer->nodes),
        cell_words("cluster", offer->cluster), cell_int("nodes", offer->nodes),
        cell_column(cell_int("ranks", offer->ranks), 7, "ranks ", "%d ", (int)offer->ranks));
    if (!planned) {
        PRINTER_ROW(r, cell_words("note", offer->note));
        printer_wrapped(r, NOTE_COLUMN, "%s", offer->note);
        return;
    }
    PRINTER_ROW(r,
                cell_column(cell_words("plan", offer->entry.name), -19, "plan", "%s ",
                            cli_plan_short_name(&offer->entry).text),
                CELL_SHOWN(-14, "micro-batches", "%s", cli_plan_batch(&offer->entry.choice).text));
    print_figures(r, offer, t);
    printer_text(r, "\n");
}

void cli_plan_offer(printer *r, const char *key, const mics_plan_offer *offer)
{
    if (!r->json)
        return;
    printer_open(r, key, '{', false);
    print_offer(r, offer, &(table){false});
    if (offer->note[0] == '\0') {
        printer_open(r, "choice", '{', false);
        cli_plan_choice(r, &offer->entry);
        printer_close(r);
        cli_plan_cost(r, offer);
        PRINTER_ROW(r, cell_name("faster_baseline", offer->faster),
                    cell_name("no_cut", offer->no_cut), cell_flag("pareto", offer->front));
        cli_plan_goodput(r, offer);
    }
    printer_close(r);
}

// ---- several clusters ----

// Signs that stand in the table, with what they mean.
static void print_signs(const printer *r, const mics_plan_offers *offers)
{
    bool missed = false, raised = false;
    for (int32_t i = 0; i < offers->count; i++) {
        const mics_plan_offer *offer = &offers->items[i];
        missed = missed || (offer->note[0] == '\0' && !offer->meets);
        raised = raised || (offer->note[0] == '\0' && offer->global_batch > offer->batch_asked);
    }
    printer_text(r, "\n*: none of the others is both faster and cheaper. Times are typical.\n%s",
                 missed ? "!: misses the goal.\n" : "");
    printer_text(
        r, "micro-batches: sequences of one x micro-steps; rec: recomputed, off: activations in "
           "host memory, both;\nbatch: sequences a step of all ranks.\n");
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
            printer_wrapped(r, 0, "%s:%d: %s would take %s s; mics cannot run it.", offer->cluster,
                            (int)offer->nodes, offer->faster,
                            cli_plan_figure(offer->faster_us * 1e-6).text);
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
    cli_plan_answer(r, best, goal, text_of("%s:%d. ", best->cluster, (int)best->nodes).text,
                    best->faster, best->faster_us);
    r->headings = true;
    print_offer(r, &none, &columns);
    r->headings = false;
    for (int32_t i = 0; i < offers->count; i++)
        print_offer(r, &offers->items[i], &columns);
    print_signs(r, offers);
    print_remarks(r, offers);
}

void cli_plan_offers(printer *r, const mics_plan_offers *offers, const mics_plan_goal *goal,
                     bool wide)
{
    if (!r->json) {
        print_offers(r, offers, goal, wide);
        return;
    }
    printer_open(r, NULL, '{', true);
    printer_open(r, "offers", '[', true);
    for (int32_t i = 0; i < offers->count; i++)
        cli_plan_offer(r, NULL, &offers->items[i]);
    printer_close(r);
    printer_close(r);
}

// ---- the catalogue ----

// `date` is of the price; NULL: it has none.
static void print_machine(printer *r, const mics_cluster *c, const char *date)
{
    const double gbit_per_s =
        c->tier_count > 0 ? c->tiers[c->tier_count - 1].bytes_per_s * 8e-9 : 0;
    const int32_t gpus = c->tier_count > 0 ? mics_cluster_ranks_per_node(c) : 0;
    const double usd = c->usd_per_node_hour;
    PRINTER_OBJECT(
        r, NULL, cell_column(cell_words("name", c->name), -29, "name", "%s ", c->name),
        cell_column(cell_int("gpus_per_node", gpus), 5, "GPUs ", "%d ", (int)gpus),
        cell_column(cell_words("gpu", c->accelerator.name), -18, "GPU", "%s", c->accelerator.name),
        cell_column(cell_number("gbit_per_s_per_node", gbit_per_s), 11, "Gb/s a node", "%.0f",
                    gbit_per_s),
        cell_column(cell_number("usd_per_node_hour", usd > 0 ? usd : NAN), 12, "USD/h", "%s",
                    usd > 0 ? text_of("%.2f", usd).text : "-"),
        cell_column(cell_words("price_date", usd > 0 ? date : NULL), 0, "  as of",
                    usd > 0 ? "  %s" : "", date != NULL ? date : ""));
    printer_text(r, "\n");
}

// One machine, with the day of its price.
static mics_status list_machine(printer *r, mics_memory *memory, int32_t entry)
{
    const char *text = mics_catalogue_text(entry);
    mics_cluster c;
    mics_json *json = NULL;
    MICS_TRY(mics_cluster_find(mics_catalogue_name(entry), &c));
    MICS_TRY(mics_json_parse(memory, c.name, text, strlen(text), &json));
    print_machine(r, &c, mics_json_string(mics_json_at(json, "usd_per_node_hour.date")));
    mics_json_close(json);
    return MICS_OK;
}

mics_status cli_plan_list(printer *r, mics_memory *memory)
{
    const mics_cluster none = {.tier_count = 0};
    printer_open(r, NULL, '{', true);
    printer_open(r, "clusters", '[', true);
    r->headings = !r->json;
    if (r->headings)
        print_machine(r, &none, NULL);
    r->headings = false;
    for (int32_t i = 0; i < mics_catalogue_count(); i++)
        MICS_TRY(list_machine(r, memory, i));
    printer_close(r);
    printer_close(r);
    return MICS_OK;
}
