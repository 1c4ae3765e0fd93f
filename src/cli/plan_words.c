// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Names, figures and choices of plans.
#include "plan.h"
#include <string.h>

cli_word cli_plan_degrees(const mics_plan_entry *entry)
{
    const mics_sharding *s = &entry->choice.sharding;
    if (entry->choice.micro_batch == 0) // there is none
        return cli_word_of("--");
    if (entry->pipeline.stages > 0) // without "megatron "
        return cli_word_of("%s", strchr(entry->name, ' ') + 1);
    if (entry->choice.experts > 1)
        return cli_word_of("%d|%d|%d E%d", (int)s->params, (int)s->grads, (int)s->optimizer,
                           (int)entry->choice.experts);
    return cli_word_of("%d|%d|%d", (int)s->params, (int)s->grads, (int)s->optimizer);
}

cli_word cli_plan_short_name(const mics_plan_entry *entry)
{
    enum { NAME_COLUMNS = 18 };
    return strlen(entry->name) > NAME_COLUMNS ? cli_plan_degrees(entry)
                                              : cli_word_of("%s", entry->name);
}

cli_word cli_plan_figure(double value)
{
    if (value < 0.0995 || value >= 1e15)
        return cli_word_of("%.3g", value);
    if (value < 999.5)
        return cli_word_of("%.*f", value >= 99.95 ? 0 : (value >= 9.995 ? 1 : 2), value);
    const cli_word digits = cli_word_of("%.0f", value);
    const int count = (int)strlen(digits.text);
    cli_word word;
    int at = 0;
    for (int i = 0; i < count; i++) {
        if (i > 0 && (count - i) % 3 == 0)
            word.text[at++] = ',';
        word.text[at++] = digits.text[i];
    }
    word.text[at] = '\0';
    return word;
}

cli_word cli_plan_rate(double value)
{
    return cli_word_of(value < 9999.5 ? "%.4g" : "%.0f", value);
}

cli_word cli_plan_batch(const mics_plan_choice *choice)
{
    return cli_word_of("%lld x %d%s", (long long)choice->micro_batch, (int)choice->micro_steps,
                       choice->recompute ? " rec" : "");
}

// ---- a choice ----

// How gathers or reductions run: ring, two stages, none.
static char way(int32_t degree, bool two_stage)
{
    return degree == 1 ? '-' : (two_stage ? '2' : 'r');
}

static cli_word ways_text(const mics_plan_choice *c)
{
    return cli_word_of("%c%c", way(c->sharding.params, c->gather_two_stage),
                       way(c->sharding.grads, c->reduce_two_stage));
}

static void print_pipeline(cli_report *r, const mics_plan_pipeline *p)
{
    if (p->stages == 0)
        CLI_ROW(r, cli_null("pipeline"));
    else
        CLI_OBJECT(r, "pipeline", cli_int("tensor", p->tensor), cli_int("context", p->context),
                   cli_int("stages", p->stages), cli_int("data", p->data),
                   cli_int("chunks", p->chunks), cli_int("expert", p->expert),
                   cli_number("bubble_ms", p->bubble_us * 1e-3));
}

void cli_plan_choice(cli_report *r, const mics_plan_entry *entry)
{
    const mics_plan_choice *c = &entry->choice;
    const int32_t layered =
        c->micro_steps > 0
            ? mics_schedule_layered_micro_steps(c->micro_steps, c->layered_micro_steps)
            : 1;
    const bool family = entry->pipeline.stages == 0;
    CLI_ROW(r, cli_words("name", entry->name), cli_int("params", c->sharding.params),
            cli_int("grads", c->sharding.grads), cli_int("optimizer", c->sharding.optimizer));
    if (c->experts > 1)
        CLI_ROW(r, cli_int("experts", c->experts));
    CLI_ROW(r,
            cli_column(cli_int("micro_batch", c->micro_batch), 14, "micro-batches ",
                       "%5lld x %-5d ", (long long)c->micro_batch, (int)c->micro_steps),
            cli_int("accumulation", c->micro_steps),
            cli_column(cli_flag("recompute", c->recompute), 3, "rec", c->recompute ? "yes" : "no"),
            cli_column(cli_int("prefetch", c->prefetch), 4, "pre", family ? "%d" : "-",
                       (int)c->prefetch),
            cli_column(cli_int("layered_micro_steps", layered), 4, "lay", family ? "%d" : "-",
                       (int)layered),
            CLI_SHOWN(5, "g/r ", "%s ", family ? ways_text(c).text : "--"),
            cli_words("gather", c->gather_two_stage ? "two-stage" : "ring"),
            cli_words("reduce", c->reduce_two_stage ? "two-stage" : "ring"));
    if (r->json)
        print_pipeline(r, &entry->pipeline);
}
