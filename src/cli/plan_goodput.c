// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// What mics plan says of failures, checkpoints and spot nodes.
#include "plan.h"
#include <stdio.h>
#include <string.h>

enum { TEXT_BYTES = 32 };

// "94.3 %", "99.97 %".
static const char *percent(double share, char text[TEXT_BYTES])
{
    snprintf(text, TEXT_BYTES, share > 0.99 ? "%.4g" : "%.3g", share * 100);
    return text;
}

static const char *duration(double s, char text[TEXT_BYTES])
{
    static const struct {
        double s;
        const char *unit;
    } units[] = {{86400, "days"}, {3600, "h"}, {60, "min"}, {1, "s"}};
    int i = 0;
    while (i < 3 && s < 1.5 * units[i].s)
        i++;
    snprintf(text, TEXT_BYTES, "%.3g %s", s / units[i].s, units[i].unit);
    return text;
}

static const char *key_of(mics_plan_saving saving)
{
    return saving == MICS_PLAN_SAVE_MEMORY ? "run.memory_checkpoint_every" : "run.checkpoint_every";
}

// ---- for people ----

static void print_failures(const mics_plan_offer *offer)
{
    const mics_plan_goodput *g = &offer->goodput;
    char text[TEXT_BYTES], high[TEXT_BYTES];
    printf("Goodput %s %%", percent(g->goodput.typical, text));
    percent(g->goodput.low, text);
    percent(g->goodput.high, high);
    if (strcmp(text, high) != 0)
        printf(" (%s to %s)", text, high);
    if (g->failure_hours == 0) {
        printf(": no failures are expected.\n");
        return;
    }
    printf(": a failure every %s on %d node%s (%s: %.3g a node and day).\n",
           duration(g->failure_hours * 3600, text), (int)offer->nodes, offer->nodes == 1 ? "" : "s",
           g->failures_source, g->failures_per_node_day);
}

// The best way to save, and what the others would leave.
static void print_saves(const mics_plan_goodput *g)
{
    const mics_plan_saves *saves = &g->saves[g->saving];
    const mics_plan_saves *waiting = &g->saves[MICS_PLAN_SAVE_WAITING];
    const bool in_memory = g->saving == MICS_PLAN_SAVE_MEMORY;
    const mics_plan_saves *other =
        &g->saves[in_memory ? MICS_PLAN_SAVE_BEHIND : MICS_PLAN_SAVE_MEMORY];
    char text[TEXT_BYTES];
    if (g->failure_hours == 0)
        return;
    printf("Saves every %s (%s %lld) take ", duration(saves->best.interval_s, text),
           key_of(g->saving), (long long)saves->best.steps);
    printf("%s %%, restarts ", percent(saves->best.saving, text));
    printf("%s %%, lost work ", percent(saves->best.restarting, text));
    printf("%s %%.\nGoodput with ", percent(saves->best.redone, text));
    if (other->possible)
        printf("%s: %s %%; with ", in_memory ? "checkpoints alone" : "copies in node memory",
               percent(other->best.goodput, text));
    printf("saves that training waits for: %s %%.\n", percent(waiting->best.goodput, text));
}

static void print_file(const mics_plan_goodput *g)
{
    char text[TEXT_BYTES];
    if (g->file.steps == 0)
        return;
    printf("The run file's %s %lld is every %s: goodput ", key_of(g->saving),
           (long long)g->file.steps, duration(g->file.interval_s, text));
    printf("%s %%.\n", percent(g->file.goodput, text));
}

static void print_spot(const mics_plan_goodput *g, bool accelerator)
{
    char text[TEXT_BYTES];
    if (g->spot_usd_per_node_hour == 0)
        return;
    char goodput[96] = "", saves[128] = "", price[64] = "", until[64] = "";
    if (g->preemptions_known)
        snprintf(goodput, sizeof goodput, ", %.3g preemptions a node and day: goodput %s %%",
                 g->preemptions_per_node_day, percent(g->spot.goodput, text));
    if (g->spot.steps > 0)
        snprintf(saves, sizeof saves, " with saves every %s (%s %lld)",
                 duration(g->spot.interval_s, text), key_of(g->saving), (long long)g->spot.steps);
    if (g->spot_price_ratio > 0)
        snprintf(price, sizeof price, ", %s %% of the price", percent(g->spot_price_ratio, text));
    if (g->break_even > 0)
        snprintf(until, sizeof until, "; cheaper up to %.3g preemptions a node and day",
                 g->break_even);
    else if (g->break_even < 0)
        snprintf(until, sizeof until, "; never cheaper");
    cli_plan_say("Spot nodes at $%.4g an hour%s%s%s%s.", g->spot_usd_per_node_hour, goodput, saves,
                 price, until);
    printf("%s %s of the ", accelerator ? "A step and a save take" : "A save takes",
           duration(g->spot_save_s, text));
    printf("%s that notice and run.grace_s leave: %s.\n", duration(g->spot_notice_s, text),
           g->spot_saves_in_time ? "no work is lost" : "each preemption is as a failure");
}

void cli_plan_goodput_text(const mics_plan_offer *offer)
{
    print_failures(offer);
    print_saves(&offer->goodput);
    print_file(&offer->goodput);
    print_spot(&offer->goodput, offer->goodput.spot_waits_step);
}

// ---- JSON ----

static void print_saves_json(const char *name, const mics_plan_saves *saves, const char *end)
{
    if (!saves->possible) {
        printf("\"%s\": null%s", name, end);
        return;
    }
    const mics_goodput *best = &saves->best;
    printf(
        "\"%s\": {\"goodput\": %.9g, \"steps\": %lld, \"interval_s\": %.9g, \"blocked_s\": %.9g, "
        "\"write_s\": %.9g, \"restart_s\": %.9g, \"saving\": %.9g, \"restarting\": %.9g, "
        "\"redone\": %.9g}%s",
        name, best->goodput, (long long)best->steps, best->interval_s, saves->blocked_s,
        saves->write_s, saves->restart_s, best->saving, best->restarting, best->redone, end);
}

static void print_number(const char *name, bool known, double value, const char *end)
{
    if (known)
        printf("\"%s\": %.9g%s", name, value, end);
    else
        printf("\"%s\": null%s", name, end);
}

static void print_spot_json(const mics_plan_goodput *g)
{
    if (g->spot_usd_per_node_hour == 0) {
        printf("\"spot\": null");
        return;
    }
    printf("\"spot\": {\"usd_per_node_hour\": %.9g, ", g->spot_usd_per_node_hour);
    print_number("preemptions_per_node_day", g->preemptions_known, g->preemptions_per_node_day,
                 ", ");
    print_number("goodput", g->preemptions_known, g->spot.goodput, ", ");
    print_number("steps", g->spot.steps > 0, (double)g->spot.steps, ", ");
    print_number("interval_s", g->spot.steps > 0, g->spot.interval_s, ", ");
    print_number("price_ratio", g->spot_price_ratio > 0, g->spot_price_ratio, ", ");
    print_number("break_even_preemptions_per_node_day", g->break_even > 0, g->break_even, ", ");
    printf("\"save_s\": %.9g, \"notice_s\": %.9g, \"saves_in_time\": %s}", g->spot_save_s,
           g->spot_notice_s, g->spot_saves_in_time ? "true" : "false");
}

void cli_plan_goodput_json(const mics_plan_goodput *g)
{
    printf(", \"goodput\": {\"typical\": %.9g, \"low\": %.9g, \"high\": %.9g, ", g->goodput.typical,
           g->goodput.low, g->goodput.high);
    print_number("simulated", g->simulated > 0, g->simulated, "}, ");
    printf("\"losses\": {\"failures_per_node_day\": %.9g, \"failures_source\": \"%s\", ",
           g->failures_per_node_day, g->failures_source);
    print_number("failure_hours", g->failure_hours > 0, g->failure_hours, ", ");
    printf("\"checkpoint_bytes\": %.0f, \"saving\": \"%s\", ", g->state_bytes,
           g->saving == MICS_PLAN_SAVE_MEMORY ? "memory" : "behind");
    print_saves_json("waiting", &g->saves[MICS_PLAN_SAVE_WAITING], ", ");
    print_saves_json("behind", &g->saves[MICS_PLAN_SAVE_BEHIND], ", ");
    print_saves_json("memory", &g->saves[MICS_PLAN_SAVE_MEMORY], ", ");
    print_number("file_goodput", g->file.steps > 0, g->file.goodput, ", ");
    print_spot_json(g);
    printf("}");
}
