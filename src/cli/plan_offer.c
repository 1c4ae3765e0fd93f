// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// What mics plan answers a buyer: one sentence, a table of several clusters, the catalogue.
#include "base/size.h"
#include "base/text.h"
#include "plan.h"
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { MIN_PUBLISHED_ROWS = 3, NOTE_COLUMN = 38 };

// ---- the answer ----

// A sentence, which is printed when it is whole, so that lines can be cut between its phrases.
typedef struct sentence {
    char text[1024];
} sentence;

MICS_PRINTF(2, 3) static void add(sentence *to, const char *format, ...)
{
    const size_t used = strlen(to->text);
    va_list args;
    va_start(args, format);
    mics_text_vformat(to->text + used, sizeof to->text - used, format, args);
    va_end(args);
}

static void add_range(sentence *to, const mics_plan_range *range)
{
    char low[CLI_PLAN_FIGURE_BYTES], high[CLI_PLAN_FIGURE_BYTES];
    cli_plan_figure(range->low, low);
    cli_plan_figure(range->high, high);
    if (strcmp(low, high) != 0)
        add(to, " (%s to %s)", low, high);
}

static void add_choice(sentence *to, const mics_plan_offer *offer)
{
    const mics_plan_choice *c = &offer->entry.choice;
    add(to, "Take %s, micro-batch %lld x %d x %d ranks = %lld sequences%s", offer->entry.name,
        (long long)c->micro_batch, (int)c->micro_steps, (int)offer->ranks,
        (long long)offer->global_batch, c->recompute ? ", recomputed" : "");
}

static void add_whole(sentence *to, const mics_plan_offer *offer)
{
    char text[CLI_PLAN_FIGURE_BYTES];
    add(to, ", %s days", cli_plan_figure(offer->days.typical, text));
    add_range(to, &offer->days);
    if (offer->usd.typical > 0) {
        add(to, " and $%s", cli_plan_figure(offer->usd.typical, text));
        add_range(to, &offer->usd);
    }
    add(to, " for %.4g", offer->tokens.typical);
    if (offer->tokens.low < offer->tokens.high)
        add(to, " (%.3g to %.3g)", offer->tokens.low, offer->tokens.high);
    add(to, " tokens");
}

// What the figures rest on.
static void print_basis(const mics_plan_offer *offer)
{
    if (offer->step_s.low == offer->step_s.high) {
        printf("Times are from rates as the cluster file gives them.\n");
        return;
    }
    sentence basis = {
        "Times are typical of published trainings, in brackets of fast and slow ones. "};
    if (offer->unpublished != NULL)
        add(&basis, "Of trainings %s none is known: the range is wider.", offer->unpublished);
    else if (offer->published_rows >= MIN_PUBLISHED_ROWS)
        add(&basis, "%d are of %s.", (int)offer->published_rows, offer->chip);
    else
        add(&basis, "Of %s %s: its rates are estimated from those of other chips.", offer->chip,
            offer->published_rows == 0 ? "none is known" : "too few are known");
    cli_plan_wrapped(basis.text, 0);
    if (offer->straggling > 0)
        printf("On %d GPUs slow ones may make steps %.3g times as long (arXiv:2410.12588).\n",
               (int)offer->ranks, offer->straggling);
}

// Which limits, of those that are given.
static void print_missed(const mics_plan_offer *offer, const mics_plan_goal *goal)
{
    char text[CLI_PLAN_FIGURE_BYTES];
    printf("It does not meet");
    if (!offer->meets_days)
        printf(" %s days", cli_plan_figure(goal->days, text));
    if (!offer->meets_usd)
        printf("%s $%s%s", offer->meets_days ? "" : " or", cli_plan_figure(goal->usd, text),
               offer->entry.usd_per_gtoken == 0 ? ": no price is known" : "");
    printf(".\n");
}

static void print_take(const mics_plan_offer *offer, const char *where)
{
    char text[CLI_PLAN_FIGURE_BYTES];
    sentence answer = {""};
    add(&answer, "%s", where);
    add_choice(&answer, offer);
    add(&answer, ": %s s a step", cli_plan_figure(offer->step_s.typical, text));
    add_range(&answer, &offer->step_s);
    if (offer->never)
        add(&answer, ", training never gets done");
    else if (offer->tokens.typical > 0)
        add_whole(&answer, offer);
    else if (offer->entry.usd_per_gtoken > 0)
        add(&answer, ", $%s for 1e9 tokens", cli_plan_figure(offer->entry.usd_per_gtoken, text));
    add(&answer, ", %s a rank to spare.",
        mics_size_text(offer->entry.spare_bytes, text, sizeof text));
    cli_plan_phrases(answer.text);
}

void cli_plan_answer(const mics_plan_offer *offer, const mics_plan_goal *goal, const char *where,
                     const char *faster, double faster_us)
{
    char text[CLI_PLAN_FIGURE_BYTES];
    print_take(offer, where);
    if (!offer->meets)
        print_missed(offer, goal);
    cli_plan_goodput_text(offer);
    print_basis(offer);
    if (*faster != '\0')
        cli_plan_say("%s would take %s s; mics cannot run it.", faster,
                     cli_plan_figure(faster_us * 1e-6, text));
    printf("\n");
}

// ---- several clusters ----

// Which columns a table of offers has.
typedef struct offer_columns {
    bool wide;
    bool whole;  // tokens are known, so days and the price of all of them
    bool tokens; // and differ by row: as many as the goal's days or money are enough for
} offer_columns;

static void print_batch(const mics_plan_offer *offer)
{
    const mics_plan_choice *c = &offer->entry.choice;
    char text[CLI_PLAN_FIGURE_BYTES];
    snprintf(text, sizeof text, "%lld x %d%s", (long long)c->micro_batch, (int)c->micro_steps,
             c->recompute ? " rec" : "");
    printf("%-14s%7lld%c", text, (long long)offer->global_batch,
           offer->global_batch > offer->batch_asked ? '+' : ' ');
}

static void print_offer(const mics_plan_offer *offer, const offer_columns *columns)
{
    char name[MICS_CLUSTER_NAME_BYTES + 16], text[CLI_PLAN_FIGURE_BYTES];
    char degrees[CLI_PLAN_DEGREES_BYTES];
    snprintf(name, sizeof name, "%s:%d", offer->cluster, (int)offer->nodes);
    printf("%c%c%-29s%6d ", offer->front ? '*' : ' ',
           offer->note[0] == '\0' && !offer->meets ? '!' : ' ', name, (int)offer->ranks);
    if (offer->note[0] != '\0') {
        cli_plan_wrapped(offer->note, NOTE_COLUMN);
        return;
    }
    printf("%-18s ", cli_plan_short_name(&offer->entry, degrees));
    print_batch(offer);
    printf("%8s", cli_plan_figure(offer->step_s.typical, text));
    if (columns->wide || !columns->tokens)
        printf("%12s", cli_plan_figure(offer->entry.tokens_per_s, text));
    if (columns->wide)
        printf("%7.1f%11s", 100 * offer->entry.mfu,
               mics_size_text(offer->entry.spare_bytes, text, sizeof text));
    if (columns->tokens)
        printf("%12.3g", offer->tokens.typical);
    if (columns->whole)
        printf("%9s", cli_plan_figure(offer->days.typical, text));
    const double usd = columns->whole ? offer->usd.typical : offer->entry.usd_per_gtoken;
    printf("%12s\n", usd > 0 ? cli_plan_figure(usd, text) : "-");
}

static void print_offers_head(const offer_columns *columns)
{
    printf("  %-29s%6s %-18s %-14s%8s%8s", "cluster", "ranks", "plan", "micro-batches", "batch ",
           "s a step");
    if (columns->wide || !columns->tokens)
        printf("%12s", "tokens/s");
    if (columns->wide)
        printf("%7s%11s", "MFU %", "to spare");
    if (columns->tokens)
        printf("%12s", "tokens");
    if (columns->whole)
        printf("%9s", "days");
    printf("%12s\n", columns->whole ? "USD" : "USD/Gtok");
}

// Signs that stand in the table, with what they mean.
static void print_offer_signs(const mics_plan_offers *offers)
{
    bool missed = false, raised = false;
    for (int32_t i = 0; i < offers->count; i++) {
        const mics_plan_offer *offer = &offers->items[i];
        missed = missed || (offer->note[0] == '\0' && !offer->meets);
        raised = raised || (offer->note[0] == '\0' && offer->global_batch > offer->batch_asked);
    }
    printf("\n*: none of the others is both faster and cheaper. Times are typical.\n");
    if (missed)
        printf("!: misses the goal.\n");
    printf(
        "micro-batches: sequences of one x micro-steps, rec: recomputed; batch: sequences a step "
        "of all ranks.\n");
    if (raised)
        printf("+: raised from %lld sequences to what so many ranks can share evenly.\n",
               (long long)offers->items[0].batch_asked);
}

// Of the others; the answer says it of the first.
static void print_faster(const mics_plan_offers *offers)
{
    char text[CLI_PLAN_FIGURE_BYTES];
    for (int32_t i = 1; i < offers->count; i++) {
        const mics_plan_offer *offer = &offers->items[i];
        if (offer->faster[0] != '\0')
            cli_plan_say("%s:%d: %s would take %s s; mics cannot run it.", offer->cluster,
                         (int)offer->nodes, offer->faster,
                         cli_plan_figure(offer->faster_us * 1e-6, text));
    }
}

static void print_no_cuts(const mics_plan_offers *offers)
{
    for (int32_t i = 0; i < offers->count; i++) {
        const mics_plan_offer *offer = &offers->items[i];
        if (offer->no_cut[0] != '\0')
            cli_plan_say("%s:%d: megatron: %s", offer->cluster, (int)offer->nodes, offer->no_cut);
    }
}

void cli_plan_offers_text(const mics_plan_offers *offers, const mics_plan_goal *goal, bool wide)
{
    const mics_plan_offer *best = &offers->items[0];
    const offer_columns columns = {.wide = wide,
                                   .whole = best->tokens.typical > 0,
                                   .tokens = best->tokens.typical > 0 && goal->tokens == 0};
    char where[MICS_CLUSTER_NAME_BYTES + 16];
    snprintf(where, sizeof where, "%s:%d. ", best->cluster, (int)best->nodes);
    cli_plan_answer(best, goal, where, best->faster, best->faster_us);
    print_offers_head(&columns);
    for (int32_t i = 0; i < offers->count; i++)
        print_offer(&offers->items[i], &columns);
    print_offer_signs(offers);
    print_faster(offers);
    print_no_cuts(offers);
}

static void print_range_json(const char *name, const mics_plan_range *range)
{
    if (range->typical == 0) {
        printf(", \"%s\": null", name);
        return;
    }
    printf(", \"%s\": {\"typical\": %.9g, \"low\": %.9g, \"high\": %.9g}", name, range->typical,
           range->low, range->high);
}

void cli_plan_cost_json(const mics_plan_offer *offer)
{
    print_range_json("tokens", &offer->tokens);
    print_range_json("step_s", &offer->step_s);
    print_range_json("days", &offer->days);
    print_range_json("usd", &offer->usd);
    printf(", \"meets_goal\": %s", offer->meets ? "true" : "false");
}

void cli_plan_offer_json(const mics_plan_offer *offer)
{
    printf("{\"cluster\": ");
    mics_text_write_quoted(stdout, offer->cluster);
    printf(", \"nodes\": %d, \"ranks\": %d", (int)offer->nodes, (int)offer->ranks);
    if (offer->note[0] != '\0') {
        printf(", \"note\": ");
        mics_text_write_quoted(stdout, offer->note);
        printf("}");
        return;
    }
    printf(", \"plan\": \"%s\", \"choice\": {", offer->entry.name);
    cli_plan_choice_json(&offer->entry);
    printf("}, \"global_batch\": %lld, \"batch_asked\": %lld, \"spare_bytes\": %.0f, "
           "\"published_rows\": %d",
           (long long)offer->global_batch, (long long)offer->batch_asked, offer->entry.spare_bytes,
           (int)offer->published_rows);
    cli_plan_cost_json(offer);
    if (offer->faster[0] != '\0')
        printf(", \"faster_baseline\": \"%s\"", offer->faster);
    else
        printf(", \"faster_baseline\": null");
    printf(", \"no_cut\": ");
    if (offer->no_cut[0] != '\0')
        mics_text_write_quoted(stdout, offer->no_cut);
    else
        printf("null");
    printf(", \"pareto\": %s", offer->front ? "true" : "false");
    cli_plan_goodput_json(&offer->goodput);
    printf("}");
}

void cli_plan_offers_json(const mics_plan_offers *offers)
{
    printf("{\n  \"offers\": [");
    for (int32_t i = 0; i < offers->count; i++) {
        printf("%s\n    ", i > 0 ? "," : "");
        cli_plan_offer_json(&offers->items[i]);
    }
    printf("\n  ]\n}\n");
}

// ---- the catalogue ----

static void print_machine(const mics_cluster *c, double gbit_per_s, const char *date)
{
    printf("%-28s %4d %-18s%11.0f", c->name, (int)mics_cluster_ranks_per_node(c),
           c->accelerator.name, gbit_per_s);
    if (c->usd_per_node_hour > 0)
        printf("%12.2f  %s\n", c->usd_per_node_hour, date != NULL ? date : "");
    else
        printf("%12s\n", "-");
}

static void print_machine_json(const mics_cluster *c, double gbit_per_s, const char *date)
{
    printf("{\"name\": ");
    mics_text_write_quoted(stdout, c->name);
    printf(", \"gpus_per_node\": %d, \"gpu\": ", (int)mics_cluster_ranks_per_node(c));
    mics_text_write_quoted(stdout, c->accelerator.name);
    printf(", \"gbit_per_s_per_node\": %.9g, \"usd_per_node_hour\": ", gbit_per_s);
    if (c->usd_per_node_hour > 0)
        printf("%.9g, \"price_date\": ", c->usd_per_node_hour);
    else
        printf("null, \"price_date\": ");
    if (c->usd_per_node_hour > 0 && date != NULL)
        mics_text_write_quoted(stdout, date);
    else
        printf("null");
    printf("}");
}

// One machine, with the day of its price.
static mics_status list_machine(mics_memory *memory, int32_t entry, bool as_json)
{
    const char *text = mics_catalogue_text(entry);
    mics_cluster c;
    mics_json *json = NULL;
    MICS_TRY(mics_cluster_find(mics_catalogue_name(entry), &c));
    MICS_TRY(mics_json_parse(memory, c.name, text, strlen(text), &json));
    (as_json ? print_machine_json
             : print_machine)(&c, c.tiers[c.tier_count - 1].bytes_per_s * 8e-9,
                              mics_json_string(mics_json_at(json, "usd_per_node_hour.date")));
    mics_json_close(json);
    return MICS_OK;
}

mics_status cli_plan_list(mics_memory *memory, bool as_json)
{
    if (as_json)
        printf("{\n  \"clusters\": [");
    else
        printf("%-28s %4s %-18s%11s%12s  %s\n", "name", "GPUs", "GPU", "Gb/s a node", "USD/h",
               "as of");
    for (int32_t i = 0; i < mics_catalogue_count(); i++) {
        if (as_json)
            printf("%s\n    ", i > 0 ? "," : "");
        MICS_TRY(list_machine(memory, i, as_json));
    }
    if (as_json)
        printf("\n  ]\n}\n");
    return MICS_OK;
}
