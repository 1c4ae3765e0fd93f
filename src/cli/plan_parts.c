// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// What several of plan's printers share: names, figures, lines, and a choice as JSON.
#include "base/text.h"
#include "plan.h"
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

const char *cli_plan_precision_text(const mics_plan *plan)
{
    switch (plan->math) {
    case MICS_MATH_BF16:
        return "bf16 with fp32 masters";
    case MICS_MATH_FP16:
        return "fp16 with fp32 masters";
    case MICS_MATH_FP8:
        return "GEMMs in fp8, bf16 with fp32 masters";
    case MICS_MATH_TF32:
        return "fp32, GEMMs in tf32";
    default:
        return "fp32";
    }
}

int32_t cli_plan_layered(const mics_plan_choice *choice)
{
    return choice->micro_steps > 0
               ? mics_schedule_layered_micro_steps(choice->micro_steps, choice->layered_micro_steps)
               : 1;
}

const char *cli_plan_degrees(const mics_plan_entry *entry, char text[CLI_PLAN_DEGREES_BYTES])
{
    const mics_plan_pipeline *p = &entry->pipeline;
    const mics_sharding *s = &entry->choice.sharding;
    if (entry->choice.micro_batch == 0) // there is none
        snprintf(text, CLI_PLAN_DEGREES_BYTES, "--");
    else if (p->stages > 0) // without "megatron "
        snprintf(text, CLI_PLAN_DEGREES_BYTES, "%s", strchr(entry->name, ' ') + 1);
    else if (entry->choice.experts > 1)
        snprintf(text, CLI_PLAN_DEGREES_BYTES, "%d|%d|%d E%d", (int)s->params, (int)s->grads,
                 (int)s->optimizer, (int)entry->choice.experts);
    else
        snprintf(text, CLI_PLAN_DEGREES_BYTES, "%d|%d|%d", (int)s->params, (int)s->grads,
                 (int)s->optimizer);
    return text;
}

const char *cli_plan_short_name(const mics_plan_entry *entry, char text[CLI_PLAN_DEGREES_BYTES])
{
    enum { NAME_COLUMNS = 18 };
    if (strlen(entry->name) > NAME_COLUMNS)
        return cli_plan_degrees(entry, text);
    return entry->name;
}

const char *cli_plan_figure(double value, char text[CLI_PLAN_FIGURE_BYTES])
{
    char digits[CLI_PLAN_FIGURE_BYTES];
    if (value < 0.0995 || value >= 1e15) {
        snprintf(text, CLI_PLAN_FIGURE_BYTES, "%.3g", value);
        return text;
    }
    if (value < 999.5) {
        snprintf(text, CLI_PLAN_FIGURE_BYTES, "%.*f", value >= 99.95 ? 0 : (value >= 9.995 ? 1 : 2),
                 value);
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

// Lines of at most CLI_PLAN_COLUMNS, cut at spaces; the first begins at `indent`, where the others do.
void cli_plan_wrapped(const char *text, int indent)
{
    const int columns = CLI_PLAN_COLUMNS - indent;
    while ((int)strlen(text) > columns) {
        int length = columns;
        while (length > 0 && text[length] != ' ')
            length--;
        if (length == 0) // a word longer than a line
            length = columns;
        printf("%.*s\n%*s", length, text, indent, "");
        text += length + (text[length] == ' ');
    }
    printf("%s\n", text);
}

void cli_plan_say(const char *format, ...)
{
    enum { LINE_BYTES = 4096 + 1024 }; // a path, and what is said of it
    char text[LINE_BYTES];
    va_list args;
    va_start(args, format);
    mics_text_vformat(text, sizeof text, format, args);
    va_end(args);
    cli_plan_wrapped(text, 0);
}

// Columns of the terminal, within reason.
static int phrase_columns(void)
{
    enum { LEAST = 60 };
    struct winsize size;
    if (!isatty(STDOUT_FILENO) || ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 ||
        size.ws_col < LEAST || size.ws_col > CLI_PLAN_COLUMNS)
        return CLI_PLAN_COLUMNS;
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

static void print_pipeline(const mics_plan_pipeline *p)
{
    if (p->stages == 0)
        printf("\"pipeline\": null");
    else
        printf("\"pipeline\": {\"tensor\": %d, \"context\": %d, \"stages\": %d, \"data\": %d, "
               "\"chunks\": %d, \"expert\": %d, \"bubble_ms\": %.9g}",
               (int)p->tensor, (int)p->context, (int)p->stages, (int)p->data, (int)p->chunks,
               (int)p->expert, p->bubble_us * 1e-3);
}

void cli_plan_choice_json(const mics_plan_entry *entry)
{
    const mics_plan_choice *c = &entry->choice;
    printf("\"name\": \"%s\", \"params\": %d, \"grads\": %d, \"optimizer\": %d, ", entry->name,
           (int)c->sharding.params, (int)c->sharding.grads, (int)c->sharding.optimizer);
    if (c->experts > 1)
        printf("\"experts\": %d, ", (int)c->experts);
    printf("\"micro_batch\": %lld, \"accumulation\": %d, \"layered_micro_steps\": %d, "
           "\"recompute\": %s, \"prefetch\": %d, \"gather\": \"%s\", \"reduce\": \"%s\", ",
           (long long)c->micro_batch, (int)c->micro_steps, (int)cli_plan_layered(c),
           c->recompute ? "true" : "false", (int)c->prefetch,
           c->gather_two_stage ? "two-stage" : "ring", c->reduce_two_stage ? "two-stage" : "ring");
    print_pipeline(&entry->pipeline);
}
