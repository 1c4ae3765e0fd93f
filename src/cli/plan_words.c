// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Names, figures and sentences of plans.
#include "plan.h"
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

const char *cli_plan_precision_text(const mics_plan *plan)
{
    static const char *const texts[MICS_MATHS] = {
        [MICS_MATH_BF16] = "bf16 with fp32 masters",
        [MICS_MATH_FP16] = "fp16 with fp32 masters",
        [MICS_MATH_FP8] = "GEMMs in fp8, bf16 with fp32 masters",
        [MICS_MATH_TF32] = "fp32, GEMMs in tf32",
    };
    return texts[plan->math] != NULL ? texts[plan->math] : "fp32";
}

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

// Columns of the terminal, within reason.
static int phrase_columns(void)
{
    enum { LEAST = 60 };
    struct winsize size;
    if (!isatty(STDOUT_FILENO) || ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 ||
        size.ws_col < LEAST || size.ws_col > CLI_COLUMNS)
        return CLI_COLUMNS;
    return size.ws_col;
}

// Where the last phrase ends that begins and ends within so many columns: at its space; else the last
// space; 0: there is none.
static int phrase_end(const char *text, int columns)
{
    int space = 0;
    for (int at = columns; at > 1; at--) {
        if (text[at] != ' ')
            continue;
        if (text[at - 1] == ',' || text[at - 1] == ':')
            return at;
        space = space == 0 ? at : space;
    }
    return space;
}

void cli_plan_phrases(const char *text)
{
    enum { INDENT = 2 };
    const int columns = phrase_columns();
    int indent = 0;
    while ((int)strlen(text) > columns - indent) {
        const int end = phrase_end(text, columns - indent);
        if (end == 0)
            break;
        printf("%*s%.*s\n", indent, "", end, text);
        text += end + 1;
        indent = INDENT;
    }
    printf("%*s%s\n", indent, "", text);
}
