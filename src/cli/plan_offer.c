// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// What mics plan answers a buyer: one sentence, a table of several clusters, the catalogue.
#include "plan.h"
#include <math.h>
#include <string.h>

enum { MIN_PUBLISHED_ROWS = 3, NOTE_COLUMN = 38 };

// ---- the answer ----

static cli_word range_text(const mics_plan_range *range)
{
    const cli_word low = cli_plan_figure(range->low), high = cli_plan_figure(range->high);
    const bool alike = strcmp(low.text, high.text) == 0;
    return alike ? cli_word_of("%s", "") : cli_word_of(" (%s to %s)", low.text, high.text);
}

// Time and money of all tokens.
static cli_word whole_text(const mics_plan_offer *offer)
{
    const mics_plan_range *tokens = &offer->tokens;
    cli_word usd = {""}, range = {""};
    if (offer->usd.typical > 0)
        usd = cli_word_of(" and $%s%s", cli_plan_figure(offer->usd.typical).text,
                          range_text(&offer->usd).text);
    if (tokens->low < tokens->high)
        range = cli_word_of(" (%.3g to %.3g)", tokens->low, tokens->high);
    return cli_word_of(", %s days%s%s for %.4g%s tokens", cli_plan_figure(offer->days.typical).text,
                       range_text(&offer->days).text, usd.text, tokens->typical, range.text);
}

static void print_take(const cli_report *r, const mics_plan_offer *offer, const char *where)
{
    const mics_plan_choice *c = &offer->entry.choice;
    cli_word whole = {""};
    if (offer->never)
        whole = cli_word_of(", training never gets done");
    else if (offer->tokens.typical > 0)
        whole = whole_text(offer);
    else if (offer->entry.usd_per_gtoken > 0)
        whole =
            cli_word_of(", $%s for 1e9 tokens", cli_plan_figure(offer->entry.usd_per_gtoken).text);
    cli_phrases(r,
                "%sTake %s, micro-batch %lld x %d x %d ranks = %lld sequences%s: %s s a "
                "step%s%s, %s a rank to spare.",
                where, offer->entry.name, (long long)c->micro_batch, (int)c->micro_steps,
                (int)offer->ranks, (long long)offer->global_batch,
                c->recompute ? ", recomputed" : "", cli_plan_figure(offer->step_s.typical).text,
                range_text(&offer->step_s).text, whole.text,
                cli_size(offer->entry.spare_bytes).text);
}

// What the figures rest on.
static void print_basis(const cli_report *r, const mics_plan_offer *offer)
{
    cli_word of;
    if (offer->step_s.low == offer->step_s.high) {
        cli_print(r, "Times are from rates as the cluster file gives them.\n");
        return;
    }
    if (offer->unpublished != NULL)
        of = cli_word_of("Of trainings %s none is known: the range is wider.", offer->unpublished);
    else if (offer->published_rows >= MIN_PUBLISHED_ROWS)
        of = cli_word_of("%d are of %s.", (int)offer->published_rows, offer->chip);
    else
        of =
            cli_word_of("Of %s %s: its rates are estimated from those of other chips.", offer->chip,
                        offer->published_rows == 0 ? "none is known" : "too few are known");
    cli_say(r, 0, "Times are typical of published trainings, in brackets of fast and slow ones. %s",
            of.text);
    if (offer->straggling > 0)
        cli_print(r, "On %d GPUs slow ones may make steps %.3g times as long (arXiv:2410.12588).\n",
                  (int)offer->ranks, offer->straggling);
}

// Which limits, of those that are given.
static void print_missed(const cli_report *r, const mics_plan_offer *offer,
                         const mics_plan_goal *goal)
{
    cli_print(r, "It does not meet");
    if (!offer->meets_days)
        cli_print(r, " %s days", cli_plan_figure(goal->days).text);
    if (!offer->meets_usd)
        cli_print(r, "%s $%s%s", offer->meets_days ? "" : " or", cli_plan_figure(goal->usd).text,
                  offer->entry.usd_per_gtoken == 0 ? ": no price is known" : "");
    cli_print(r, ".\n");
}

void cli_plan_answer(cli_report *r, const mics_plan_offer *offer, const mics_plan_goal *goal,
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
        cli_say(r, 0, "%s would take %s s; mics cannot run it.", faster,
                cli_plan_figure(faster_us * 1e-6).text);
    cli_print(r, "\n");
}

// ---- an offer ----

static void write_range(cli_report *r, const char *key, const mics_plan_range *range)
{
    if (range->typical == 0)
        CLI_ROW(r, cli_null(key));
    else
        CLI_OBJECT(r, key, cli_number("typical", range->typical), cli_number("low", range->low),
                   cli_number("high", range->high));
}

void cli_plan_cost(cli_report *r, const mics_plan_offer *offer)
{
    if (!r->json)
        return;
    write_range(r, "tokens", &offer->tokens);
    write_range(r, "step_s", &offer->step_s);
    write_range(r, "days", &offer->days);
    write_range(r, "usd", &offer->usd);
    CLI_ROW(r, cli_flag("meets_goal", offer->meets));
}

// Columns of a table of offers.
typedef struct table {
    bool wide;
    bool whole;  // tokens are known, so days and the price of all of them
    bool tokens; // and differ by row: as many as the goal's days or money are enough for
} table;

static void print_figures(cli_report *r, const mics_plan_offer *offer, const table *t)
{
    const bool wide = t->wide, whole = t->whole, tokens = t->tokens;
    const double usd = whole ? offer->usd.typical : offer->entry.usd_per_gtoken;
    CLI_ROW(
        r,
        cli_column(cli_int("global_batch", offer->global_batch), 8, "batch ", "%lld%c",
                   (long long)offer->global_batch,
                   offer->global_batch > offer->batch_asked ? '+' : ' '),
        cli_int("batch_asked", offer->batch_asked),
        CLI_SHOWN(8, "s a step", "%s", cli_plan_figure(offer->step_s.typical).text),
        CLI_SHOWN(12, wide || !tokens ? "tokens/s" : NULL, "%s",
                  cli_plan_figure(offer->entry.tokens_per_s).text),
        CLI_SHOWN(7, wide ? "MFU %" : NULL, "%.1f", 100 * offer->entry.mfu),
        cli_column(cli_rounded("spare_bytes", offer->entry.spare_bytes), 11,
                   wide ? "to spare" : NULL, "%s", cli_size(offer->entry.spare_bytes).text),
        cli_int("published_rows", offer->published_rows),
        CLI_SHOWN(12, tokens ? "tokens" : NULL, "%.3g", offer->tokens.typical),
        CLI_SHOWN(9, whole ? "days" : NULL, "%s", cli_plan_figure(offer->days.typical).text),
        CLI_SHOWN(12, whole ? "USD" : "USD/Gtok", "%s", usd > 0 ? cli_plan_figure(usd).text : "-"));
}

static void print_offer(cli_report *r, const mics_plan_offer *offer, const table *t)
{
    const bool planned = offer->note[0] == '\0';
    CLI_ROW(r,
            CLI_SHOWN(-31, "  cluster", "%c%c%s:%d", offer->front ? '*' : ' ',
                      planned && !offer->meets ? '!' : ' ', offer->cluster, (int)offer->nodes),
            cli_words("cluster", offer->cluster), cli_int("nodes", offer->nodes),
            cli_column(cli_int("ranks", offer->ranks), 7, "ranks ", "%d ", (int)offer->ranks));
    if (!planned) {
        CLI_ROW(r, cli_words("note", offer->note));
        cli_say(r, NOTE_COLUMN, "%s", offer->note);
        return;
    }
    CLI_ROW(r,
            cli_column(cli_words("plan", offer->entry.name), -19, "plan", "%s ",
                       cli_plan_short_name(&offer->entry).text),
            CLI_SHOWN(-14, "micro-batches", "%s", cli_plan_batch(&offer->entry.choice).text));
    print_figures(r, offer, t);
    cli_print(r, "\n");
}

void cli_plan_offer(cli_report *r, const char *key, const mics_plan_offer *offer)
{
    if (!r->json)
        return;
    cli_open(r, key, '{', false);
    print_offer(r, offer, &(table){false});
    if (offer->note[0] == '\0') {
        cli_open(r, "choice", '{', false);
        cli_plan_choice(r, &offer->entry);
        cli_close(r);
        cli_plan_cost(r, offer);
        CLI_ROW(r, cli_name("faster_baseline", offer->faster), cli_name("no_cut", offer->no_cut),
                cli_flag("pareto", offer->front));
        cli_plan_goodput(r, offer);
    }
    cli_close(r);
}

// ---- several clusters ----

// Signs that stand in the table, with what they mean.
static void print_signs(const cli_report *r, const mics_plan_offers *offers)
{
    bool missed = false, raised = false;
    for (int32_t i = 0; i < offers->count; i++) {
        const mics_plan_offer *offer = &offers->items[i];
        missed = missed || (offer->note[0] == '\0' && !offer->meets);
        raised = raised || (offer->note[0] == '\0' && offer->global_batch > offer->batch_asked);
    }
    cli_print(r, "\n*: none of the others is both faster and cheaper. Times are typical.\n%s",
              missed ? "!: misses the goal.\n" : "");
    cli_print(r,
              "micro-batches: sequences of one x micro-steps, rec: recomputed; batch: sequences a "
              "step of all ranks.\n");
    if (raised)
        cli_print(r, "+: raised from %lld sequences to what so many ranks can share evenly.\n",
                  (long long)offers->items[0].batch_asked);
}

// What is faster than the others' plans (the answer says it of the first), and what is not cut.
static void print_remarks(const cli_report *r, const mics_plan_offers *offers)
{
    for (int32_t i = 1; i < offers->count; i++) {
        const mics_plan_offer *offer = &offers->items[i];
        if (offer->faster[0] != '\0')
            cli_say(r, 0, "%s:%d: %s would take %s s; mics cannot run it.", offer->cluster,
                    (int)offer->nodes, offer->faster,
                    cli_plan_figure(offer->faster_us * 1e-6).text);
    }
    for (int32_t i = 0; i < offers->count; i++) {
        const mics_plan_offer *offer = &offers->items[i];
        if (offer->no_cut[0] != '\0')
            cli_say(r, 0, "%s:%d: megatron: %s", offer->cluster, (int)offer->nodes, offer->no_cut);
    }
}

static void print_offers(cli_report *r, const mics_plan_offers *offers, const mics_plan_goal *goal,
                         bool wide)
{
    const mics_plan_offer *best = &offers->items[0], none = {.nodes = 0};
    const bool whole = best->tokens.typical > 0;
    const table columns = {.wide = wide, .whole = whole, .tokens = whole && goal->tokens == 0};
    cli_plan_answer(r, best, goal, cli_word_of("%s:%d. ", best->cluster, (int)best->nodes).text,
                    best->faster, best->faster_us);
    r->headings = true;
    print_offer(r, &none, &columns);
    r->headings = false;
    for (int32_t i = 0; i < offers->count; i++)
        print_offer(r, &offers->items[i], &columns);
    print_signs(r, offers);
    print_remarks(r, offers);
}

void cli_plan_offers(cli_report *r, const mics_plan_offers *offers, const mics_plan_goal *goal,
                     bool wide)
{
    if (!r->json) {
        print_offers(r, offers, goal, wide);
        return;
    }
    cli_open(r, NULL, '{', true);
    cli_open(r, "offers", '[', true);
    for (int32_t i = 0; i < offers->count; i++)
        cli_plan_offer(r, NULL, &offers->items[i]);
    cli_close(r);
    cli_close(r);
}

// ---- the catalogue ----

// `date` is of the price; NULL: it has none.
static void print_machine(cli_report *r, const mics_cluster *c, const char *date)
{
    const double gbit_per_s =
        c->tier_count > 0 ? c->tiers[c->tier_count - 1].bytes_per_s * 8e-9 : 0;
    const int32_t gpus = c->tier_count > 0 ? mics_cluster_ranks_per_node(c) : 0;
    const double usd = c->usd_per_node_hour;
    CLI_OBJECT(
        r, NULL, cli_column(cli_words("name", c->name), -29, "name", "%s ", c->name),
        cli_column(cli_int("gpus_per_node", gpus), 5, "GPUs ", "%d ", (int)gpus),
        cli_column(cli_words("gpu", c->accelerator.name), -18, "GPU", "%s", c->accelerator.name),
        cli_column(cli_number("gbit_per_s_per_node", gbit_per_s), 11, "Gb/s a node", "%.0f",
                   gbit_per_s),
        cli_column(cli_number("usd_per_node_hour", usd > 0 ? usd : NAN), 12, "USD/h", "%s",
                   usd > 0 ? cli_word_of("%.2f", usd).text : "-"),
        cli_column(cli_words("price_date", usd > 0 ? date : NULL), 0, "  as of",
                   usd > 0 ? "  %s" : "", date != NULL ? date : ""));
    cli_print(r, "\n");
}

// One machine, with the day of its price.
static mics_status list_machine(cli_report *r, mics_memory *memory, int32_t entry)
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

mics_status cli_plan_list(cli_report *r, mics_memory *memory)
{
    const mics_cluster none = {.tier_count = 0};
    cli_open(r, NULL, '{', true);
    cli_open(r, "clusters", '[', true);
    r->headings = !r->json;
    if (r->headings)
        print_machine(r, &none, NULL);
    r->headings = false;
    for (int32_t i = 0; i < mics_catalogue_count(); i++)
        MICS_TRY(list_machine(r, memory, i));
    cli_close(r);
    cli_close(r);
    return MICS_OK;
}
