// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// What mics plan says of failures, checkpoints and spot nodes.
#include "plan/tables/offer.h"
#include "plan/tables/tables.h"
#include "plan/tables/words.h"
#include <math.h>
#include <string.h>

// "94.3", "99.97".
static short_text percent(double share)
{
    return text_of(share > 0.99 ? "%.4g" : "%.3g", share * 100);
}

// A number that is known where it is above 0.
static double known(double value)
{
    return value > 0 ? value : NAN;
}

static const char *key_of(mics_plan_saving saving)
{
    return saving == MICS_PLAN_SAVE_MEMORY ? "run.memory_checkpoint_every" : "run.checkpoint_every";
}

// The share of the time that is lost, what that assumes, and the best interval.
static void print_failures(printer *r, const mics_plan_offer *offer)
{
    const mics_plan_goodput *g = &offer->goodput;
    const mics_goodput *best = &g->saves[g->saving].best;
    const short_text low = percent(1 - g->goodput.high), high = percent(1 - g->goodput.low);
    short_text range = {""}, saves = {""};
    if (strcmp(low.text, high.text) != 0)
        range = text_of(" (%s to %s)", low.text, high.text);
    if (g->failure_hours > 0)
        saves = text_of(", one in %s, and a save every %s (%s %lld)",
                        plan_table_duration(g->failure_hours * 3600).text,
                        plan_table_duration(best->interval_s).text, key_of(g->saving),
                        (long long)best->steps);
    printer_wrapped(r, 0,
                    "Failures and checkpoints take %s %% of the time%s on %d node%s: %.3g failures "
                    "a node and day (%s)%s.",
                    percent(1 - g->goodput.typical).text, range.text, (int)offer->nodes,
                    text_plural(offer->nodes), g->failures_per_node_day, g->failures_source,
                    saves.text);
    PRINTER_OBJECT(r, "goodput", cell_number("typical", g->goodput.typical),
                   cell_number("low", g->goodput.low), cell_number("high", g->goodput.high),
                   cell_number("simulated", known(g->simulated)));
}

static void write_saves(printer *r, const char *key, const mics_plan_saves *saves)
{
    const mics_goodput *best = &saves->best;
    if (!saves->possible)
        PRINTER_ROW(r, cell_null(key));
    else
        PRINTER_OBJECT(
            r, key, cell_number("goodput", best->goodput), cell_int("steps", best->steps),
            cell_number("interval_s", best->interval_s), cell_number("blocked_s", saves->blocked_s),
            cell_number("write_s", saves->write_s), cell_number("restart_s", saves->restart_s),
            cell_number("saving", best->saving), cell_number("restarting", best->restarting),
            cell_number("redone", best->redone));
}

static void print_spot_nodes(const printer *r, const mics_plan_goodput *g)
{
    short_text goodput = {""}, saves = {""}, price = {""}, until = {""};
    if (g->preemptions_known)
        goodput = text_of(", %.3g preemptions a node and day: goodput %s %%",
                          g->preemptions_per_node_day, percent(g->spot.goodput).text);
    if (g->spot.steps > 0)
        saves =
            text_of(" with saves every %s (%s %lld)", plan_table_duration(g->spot.interval_s).text,
                    key_of(g->saving), (long long)g->spot.steps);
    if (g->spot_price_ratio > 0)
        price = text_of(", %s %% of the price", percent(g->spot_price_ratio).text);
    if (g->break_even > 0)
        until = text_of("; cheaper up to %.3g preemptions a node and day", g->break_even);
    else if (g->break_even < 0)
        until = text_of("; never cheaper");
    printer_wrapped(r, 0, "Spot nodes at $%.4g an hour%s%s%s%s.", g->spot_usd_per_node_hour,
                    goodput.text, saves.text, price.text, until.text);
    printer_text(r, "%s %s of the %s that notice and run.grace_s leave: %s.\n",
                 g->spot_waits_step ? "A step and a save take" : "A save takes",
                 plan_table_duration(g->spot_save_s).text,
                 plan_table_duration(g->spot_notice_s).text,
                 g->spot_saves_in_time ? "no work is lost" : "each preemption is as a failure");
}

static void print_spot(printer *r, const mics_plan_goodput *g)
{
    const bool saves = g->spot.steps > 0;
    if (g->spot_usd_per_node_hour == 0) {
        PRINTER_ROW(r, cell_null("spot"));
        return;
    }
    print_spot_nodes(r, g);
    PRINTER_OBJECT(r, "spot", cell_number("usd_per_node_hour", g->spot_usd_per_node_hour),
                   cell_number("preemptions_per_node_day",
                               g->preemptions_known ? g->preemptions_per_node_day : NAN),
                   cell_number("goodput", g->preemptions_known ? g->spot.goodput : NAN),
                   cell_number("steps", known((double)g->spot.steps)),
                   cell_number("interval_s", saves ? g->spot.interval_s : NAN),
                   cell_number("price_ratio", known(g->spot_price_ratio)),
                   cell_number("break_even_preemptions_per_node_day", known(g->break_even)),
                   cell_number("save_s", g->spot_save_s), cell_number("notice_s", g->spot_notice_s),
                   cell_flag("saves_in_time", g->spot_saves_in_time));
}

void plan_table_goodput(printer *r, const mics_plan_offer *offer)
{
    const mics_plan_goodput *g = &offer->goodput;
    print_failures(r, offer);
    if (g->file.steps > 0)
        printer_text(r, "The run file's %s %lld is every %s: goodput %s %%.\n", key_of(g->saving),
                     (long long)g->file.steps, plan_table_duration(g->file.interval_s).text,
                     percent(g->file.goodput).text);
    printer_open(r, "losses", '{', false);
    PRINTER_ROW(r, cell_number("failures_per_node_day", g->failures_per_node_day),
                cell_words("failures_source", g->failures_source),
                cell_number("failure_hours", known(g->failure_hours)),
                cell_rounded("checkpoint_bytes", g->state_bytes),
                cell_words("saving", g->saving == MICS_PLAN_SAVE_MEMORY ? "memory" : "behind"));
    write_saves(r, "waiting", &g->saves[MICS_PLAN_SAVE_WAITING]);
    write_saves(r, "behind", &g->saves[MICS_PLAN_SAVE_BEHIND]);
    write_saves(r, "memory", &g->saves[MICS_PLAN_SAVE_MEMORY]);
    PRINTER_ROW(r, cell_number("file_goodput", g->file.steps > 0 ? g->file.goodput : NAN));
    print_spot(r, g);
    printer_close(r);
}
