// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Names and figures of plans.
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
