// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Names, figures and choices of plans.
#include "plan/tables/words.h"
#include "plan/tables/found.h"
#include "plan/tables/tables.h"
#include "schedule/layered.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

short_text plan_table_degrees(const mics_plan_entry *entry)
{
    const mics_sharding *s = &entry->choice.sharding;
    if (entry->choice.micro_batch == 0) // there is none
        return text_of("--");
    if (entry->pipeline.stages > 0) // without "megatron "
        return text_of("%s", strchr(entry->name, ' ') + 1);
    if (entry->outer.every > 0)
        return text_of("%d|%d|%d R%d", (int)s->params, (int)s->grads, (int)s->optimizer,
                       (int)entry->outer_ranks);
    if (entry->choice.experts > 1 || entry->choice.sequence > 1)
        return text_of(
            "%d|%d|%d %c%d", (int)s->params, (int)s->grads, (int)s->optimizer,
            entry->choice.experts > 1 ? 'E' : 'S',
            (int)(entry->choice.experts > 1 ? entry->choice.experts : entry->choice.sequence));
    return text_of("%d|%d|%d", (int)s->params, (int)s->grads, (int)s->optimizer);
}

short_text plan_table_short_name(const mics_plan_entry *entry)
{
    enum { NAME_COLUMNS = 18 };
    return strlen(entry->name) > NAME_COLUMNS ? plan_table_degrees(entry)
                                              : text_of("%s", entry->name);
}

short_text plan_table_figure(double value)
{
    if (value < 0.0995 || value >= 1e15)
        return text_of("%.3g", value);
    if (value < 999.5)
        return text_of("%.*f", value >= 99.95 ? 0 : (value >= 9.995 ? 1 : 2), value);
    const short_text digits = text_of("%.0f", value);
    const int count = (int)strlen(digits.text);
    short_text word;
    int at = 0;
    for (int i = 0; i < count; i++) {
        if (i > 0 && (count - i) % 3 == 0)
            word.text[at++] = ',';
        word.text[at++] = digits.text[i];
    }
    word.text[at] = '\0';
    return word;
}

// ---- times ----

typedef struct time_unit {
    double s, from; // below so many seconds the next one
    const char *name;
} time_unit;

static const time_unit *unit_of(double s)
{
    static const time_unit units[] = {{365 * 86400.0, 2 * 365 * 86400.0, "years"},
                                      {86400, 1.5 * 86400, "days"},
                                      {3600, 1.5 * 3600, "h"},
                                      {60, 90, "min"},
                                      {1, 0.9995, "s"},
                                      {1e-3, 0, "ms"}};
    const time_unit *unit = units;
    while (s < unit->from)
        unit++;
    return unit;
}

short_text plan_table_duration(double s)
{
    const time_unit *unit = unit_of(s);
    return text_of("%s %s", plan_table_figure(s / unit->s).text, unit->name);
}

short_text plan_table_span(const mics_plan_range *s)
{
    const double unit_s = unit_of(s->typical)->s;
    const short_text low = plan_table_figure(s->low / unit_s),
                     high = plan_table_figure(s->high / unit_s);
    const short_text typical = plan_table_duration(s->typical);
    return strcmp(low.text, high.text) == 0
               ? typical
               : text_of("%s (%s to %s)", typical.text, low.text, high.text);
}

short_text plan_table_count(double count)
{
    char text[32];
    return text_of("%s", mics_plan_count_text(count, text, sizeof text));
}

short_text plan_table_tokens(double per_s)
{
    return per_s < 1e7 ? plan_table_figure(per_s) : plan_table_count(per_s);
}

bool plan_table_is_old(const char *date)
{
    enum { MAX_MONTHS = 6 };
    char *end = NULL;
    const long year = strtol(date, &end, 10), month = *end == '-' ? strtol(end + 1, NULL, 10) : 0;
    const char *epoch = getenv("SOURCE_DATE_EPOCH"); // another day than this one
    const time_t now = epoch != NULL ? (time_t)strtoll(epoch, NULL, 10) : time(NULL);
    struct tm day;
    if (month == 0 || gmtime_r(&now, &day) == NULL)
        return false;
    return 12 * (day.tm_year + 1900 - year) + day.tm_mon + 1 - month > MAX_MONTHS;
}

short_text plan_table_rate(double value)
{
    return text_of(value < 9999.5 ? "%.4g" : "%.0f", value);
}

// Layers that are recomputed, behind what the others make again: attention, mlp or both.
static short_text recompute_text(mics_recompute r)
{
    const char *parts = r.attention ? (r.mlp ? "b" : "a") : (r.mlp ? "m" : "");
    if (r.units == MICS_RECOMPUTE_ALL || !mics_recomputes(r))
        return text_of("%s", mics_recomputes(r) ? "yes" : "no");
    return r.units > 0 ? text_of("%s%d", parts, (int)r.units) : text_of("%s", parts);
}

short_text plan_table_batch(const mics_plan_choice *choice)
{
    static const char *const words[] = {"", " rec", " off", " both"};
    const int32_t which = mics_recomputes(choice->recompute) + 2 * (choice->offload_units > 0);
    return text_of("%lld x %d%s", (long long)choice->micro_batch, (int)choice->micro_steps,
                   words[which]);
}

// ---- a choice ----

// How gathers or reductions run: ring, two stages, none.
static char way(int32_t degree, bool two_stage)
{
    return degree == 1 ? '-' : (two_stage ? '2' : 'r');
}

static short_text ways_text(const mics_plan_choice *c)
{
    return text_of("%c%c", way(c->sharding.params, c->gather_two_stage),
                   way(c->sharding.grads, c->reduce_two_stage));
}

static void print_pipeline(printer *r, const mics_plan_pipeline *p)
{
    if (p->stages == 0)
        PRINTER_ROW(r, cell_null("pipeline"));
    else
        PRINTER_OBJECT(
            r, "pipeline", cell_int("tensor", p->tensor), cell_int("context", p->context),
            cell_int("stages", p->stages), cell_int("data", p->data), cell_int("chunks", p->chunks),
            cell_int("expert", p->expert), cell_number("bubble_ms", p->bubble_us * 1e-3));
}

void plan_table_choice(printer *r, const mics_plan_entry *entry)
{
    const mics_plan_choice *c = &entry->choice;
    const int32_t layered =
        c->micro_steps > 0
            ? mics_schedule_layered_micro_steps(c->micro_steps, c->layered_micro_steps)
            : 1;
    const bool family = entry->pipeline.stages == 0;
    const bool whole = c->recompute.units == MICS_RECOMPUTE_ALL;
    char form[MICS_RECOMPUTE_BYTES];
    PRINTER_ROW(r, cell_words("name", entry->name), cell_int("params", c->sharding.params),
                cell_int("grads", c->sharding.grads), cell_int("optimizer", c->sharding.optimizer));
    if (c->experts > 1)
        PRINTER_ROW(r, cell_int("experts", c->experts));
    if (c->sequence > 1)
        PRINTER_ROW(r, cell_int("sequence", c->sequence));
    PRINTER_ROW(
        r,
        cell_column(cell_int("micro_batch", c->micro_batch), 14, "micro-batches ", "%5lld x %-5d ",
                    (long long)c->micro_batch, (int)c->micro_steps),
        cell_int("accumulation", c->micro_steps),
        cell_column(whole || !mics_recomputes(c->recompute)
                        ? cell_flag("recompute", whole)
                        : cell_words("recompute", mics_recompute_text(c->recompute, false, form)),
                    3, "rec", "%s", recompute_text(c->recompute).text),
        cell_column(cell_int("prefetch", c->prefetch), 4, "pre", family ? "%d" : "-",
                    (int)c->prefetch),
        cell_column(cell_int("layered_micro_steps", layered), 4, "lay", family ? "%d" : "-",
                    (int)layered),
        CELL_SHOWN(5, "g/r ", "%s%c", family ? ways_text(c).text : "--",
                   c->early_gathers ? 'e' : ' '),
        cell_flag("early_gathers", c->early_gathers),
        cell_words("gather", c->gather_two_stage ? "two-stage" : "ring"),
        cell_words("reduce", c->reduce_two_stage ? "two-stage" : "ring"),
        cell_words("boundary", c->boundary_two_stage ? "two-stage" : "ring"));
    if (c->offload_units > 0)
        PRINTER_ROW(r, cell_int("offload_units", c->offload_units));
    if (r->json)
        print_pipeline(r, &entry->pipeline);
    if (r->json && entry->outer.every > 0) {
        const mics_outer *o = &entry->outer;
        PRINTER_OBJECT(r, "outer", cell_int("every", o->every),
                       cell_int("ranks", entry->outer_ranks), cell_int("fragments", o->fragments),
                       cell_int("overlap_steps", o->overlap_steps),
                       cell_words("dtype", mics_comm_dtype_text(o->dtype)),
                       cell_int("moments_every", o->moments_every));
        PRINTER_ROW(r, cell_number("meeting_ms", entry->meeting_us * 1e-3),
                    cell_int("period_intra_bytes", entry->met.intra),
                    cell_int("period_inter_bytes", entry->met.inter));
    }
}
