// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// What mics plan answers a buyer: one sentence, a table of several clusters, the catalogue.
#include "base/size.h"
#include "base/text.h"
#include "plan.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { FIGURE_BYTES = 32, MIN_PUBLISHED_ROWS = 3 };

// ---- figures ----

// Three digits, and large ones whole, with commas: "0.534", "53.4", "49,650".
static const char *figure(double value, char text[FIGURE_BYTES])
{
    char digits[FIGURE_BYTES];
    if (value < 0.0995 || value >= 1e15) {
        snprintf(text, FIGURE_BYTES, "%.3g", value);
        return text;
    }
    if (value < 999.5) {
        snprintf(text, FIGURE_BYTES, "%.*f", value >= 99.95 ? 0 : (value >= 9.995 ? 1 : 2), value);
        return text;
    }
    const int count = snprintf(digits, sizeof digits, "%.0f", value);
    int at = 0;
    for (int i = 0; i < count; i++) {
        if (i > 0 && (count - i) % 3 == 0)
            text[at++] = ',';
        text[at++] = digits[i];
    }
    text[at] = '\0';
    return text;
}

static void print_range(const mics_plan_range *range)
{
    char low[FIGURE_BYTES], high[FIGURE_BYTES];
    if (range->low < range->high)
        printf(" (%s to %s)", figure(range->low, low), figure(range->high, high));
}

// ---- the answer ----

static void print_choice(const mics_plan_offer *offer)
{
    const mics_plan_choice *c = &offer->entry.choice;
    printf("Take %s, micro-batch %lld x %d%s", offer->entry.name, (long long)c->micro_batch,
           (int)c->micro_steps, c->recompute ? ", recomputed" : "");
}

static void print_whole(const mics_plan_offer *offer)
{
    char text[FIGURE_BYTES];
    printf(", %s days", figure(offer->days.typical, text));
    print_range(&offer->days);
    if (offer->usd.typical > 0) {
        printf(" and $%s", figure(offer->usd.typical, text));
        print_range(&offer->usd);
    }
    printf(" for %.4g", offer->tokens.typical);
    if (offer->tokens.low < offer->tokens.high)
        printf(" (%.3g to %.3g)", offer->tokens.low, offer->tokens.high);
    printf(" tokens");
}

// What the figures rest on.
static void print_basis(const mics_plan_offer *offer)
{
    if (offer->step_s.low == offer->step_s.high) {
        printf("Times are from rates as the cluster file gives them.\n");
        return;
    }
    printf("Times are typical of published trainings, in brackets of fast and slow ones. ");
    if (offer->unpublished != NULL)
        printf("Of trainings %s none is known: the range is wider.\n", offer->unpublished);
    else if (offer->published_rows >= MIN_PUBLISHED_ROWS)
        printf("%d are of %s.\n", (int)offer->published_rows, offer->chip);
    else
        printf("Of %s %s: its rates are estimated from those of other chips.\n", offer->chip,
               offer->published_rows == 0 ? "none is known" : "too few are known");
}

// Which limits, of those that are given.
static void print_missed(const mics_plan_offer *offer, const mics_plan_goal *goal)
{
    char text[FIGURE_BYTES];
    printf("It does not meet");
    if (!offer->meets_days)
        printf(" %s days", figure(goal->days, text));
    if (!offer->meets_usd)
        printf("%s $%s%s", offer->meets_days ? "" : " or", figure(goal->usd, text),
               offer->entry.usd_per_gtoken == 0 ? ": no price is known" : "");
    printf(".\n");
}

void cli_plan_answer(const mics_plan_offer *offer, const mics_plan_goal *goal,
                     const mics_plan_entry *faster)
{
    char text[FIGURE_BYTES];
    print_choice(offer);
    printf(": %s s a step", figure(offer->step_s.typical, text));
    print_range(&offer->step_s);
    if (offer->tokens.typical > 0)
        print_whole(offer);
    else if (offer->entry.usd_per_gtoken > 0)
        printf(", $%s for 1e9 tokens", figure(offer->entry.usd_per_gtoken, text));
    printf(", %s a rank to spare.\n", mics_size_text(offer->entry.spare_bytes, text, sizeof text));
    if (!offer->meets)
        print_missed(offer, goal);
    cli_plan_goodput_text(offer);
    print_basis(offer);
    if (faster != NULL)
        printf("%s would take %s s; mics cannot run it.\n", faster->name,
               figure(faster->step_us * 1e-6, text));
    printf("\n");
}

// ---- several clusters ----

static void print_offer(const mics_plan_offer *offer)
{
    char name[MICS_CLUSTER_NAME_BYTES + 16], text[FIGURE_BYTES];
    snprintf(name, sizeof name, "%s:%d", offer->cluster, (int)offer->nodes);
    printf("%c %-32s%6d ", offer->front ? '*' : ' ', name, (int)offer->ranks);
    if (offer->note[0] != '\0') {
        printf("%s\n", offer->note);
        return;
    }
    printf("%-22s%11s", offer->entry.name, figure(offer->step_s.typical, text));
    printf("%13s", figure(offer->entry.tokens_per_s, text));
    const bool whole = offer->tokens.typical > 0;
    if (whole)
        printf("%10.3g%9s", offer->tokens.typical, figure(offer->days.typical, text));
    else
        printf("%10s%9s", "-", "-");
    const double usd = whole ? offer->usd.typical : offer->entry.usd_per_gtoken;
    printf("%13s%s\n", usd > 0 ? figure(usd, text) : "-", offer->meets ? "" : "  misses the goal");
}

void cli_plan_offers_text(const mics_plan_offers *offers, const mics_plan_goal *goal)
{
    const mics_plan_offer *best = &offers->items[0];
    printf("%s:%d. ", best->cluster, (int)best->nodes);
    cli_plan_answer(best, goal, NULL);
    printf("  %-32s%6s %-22s%11s%13s%10s%9s%13s\n", "cluster", "ranks", "plan", "s a step",
           "tokens/s", "tokens", "days", best->tokens.typical > 0 ? "USD" : "USD/Gtok");
    for (int32_t i = 0; i < offers->count; i++)
        print_offer(&offers->items[i]);
    printf("\n*: none of the others is both faster and cheaper. Times are typical.\n");
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
    printf(", \"plan\": \"%s\", \"published_rows\": %d", offer->entry.name,
           (int)offer->published_rows);
    print_range_json("tokens", &offer->tokens);
    print_range_json("step_s", &offer->step_s);
    print_range_json("days", &offer->days);
    print_range_json("usd", &offer->usd);
    printf(", \"meets_goal\": %s, \"pareto\": %s", offer->meets ? "true" : "false",
           offer->front ? "true" : "false");
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
