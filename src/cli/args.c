// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// The argument parser and the help it prints.
#include "args.h"
#include "base/assert.h"
#include "base/json.h"
#include "base/text.h"
#include "config/config.h"
#include "mics/log.h"
#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { HELP_COLUMN = 26 };

// Flags that stand for a key of the run file.
static const struct {
    const char *flag, *key;
    const char *on; // what a flag without a value sets
} keys[] = {{"steps", "run.steps", NULL},
            {"out", "run.out", NULL},
            {"model", "model.config", NULL},
            {"data", "data.train", NULL},
            {"text-field", "data.text_field", NULL},
            {"tokenizer", "data.tokenizer", NULL},
            {"special-tokens", "data.special_tokens", "parse"},
            {"lora", "adapter.r", NULL},
            {"adapter", "adapter.init", NULL}};

typedef struct parser {
    cli_call *call;
    char *options;
    int next;                        // of call->argv
    cli_list keyed[CLI_MAX_OPTIONS]; // values of options that are a key's
} parser;

// ---- help ----

static void print_option(const char *name, const char *value, const char *help)
{
    char left[64];
    snprintf(left, sizeof left, "--%s%s%s", name, value != NULL ? " " : "",
             value != NULL ? value : "");
    printf("  %-*s %s\n", HELP_COLUMN, left, help);
}

static void print_usage(const cli_verb *verb, const char *before)
{
    printf("%s mics %s%s%s%s\n", before, verb->name, verb->arguments[0] != '\0' ? " " : "",
           verb->arguments, verb->option_count > 0 ? " [flags]" : "");
}

static void print_parts(const cli_verb *verb)
{
    for (const cli_verb *const *part = verb->parts; *part != NULL; part++)
        print_usage(*part, "      ");
    printf("\n%s\n", verb->about);
    for (const cli_verb *const *part = verb->parts; *part != NULL; part++)
        printf("\n%s\n", (*part)->about);
    printf("\n");
    for (const cli_verb *const *part = verb->parts; *part != NULL; part++)
        printf("%smics %s --help", part == verb->parts ? "" : " and ", (*part)->name);
    printf(" list their flags.\n");
}

void cli_print_help(const cli_verb *verb)
{
    print_usage(verb, "usage:");
    if (verb->parts != NULL)
        print_parts(verb);
    else
        printf("\n%s\n", verb->about);
    printf("\nflags:\n");
    for (int32_t i = 0; i < verb->option_count; i++)
        print_option(verb->options[i].name, verb->options[i].value, verb->options[i].help);
    print_option("offline", NULL, "what is remote must be in the cache, as by HF_HUB_OFFLINE=1");
    print_option("help", NULL, "this text");
    if (verb->notes != NULL)
        printf("\n%s\n", verb->notes);
}

bool cli_asks_help(const cli_call *call)
{
    for (int i = 0; i < call->argc && strcmp(call->argv[i], "--") != 0; i++) {
        if (strcmp(call->argv[i], "--help") == 0 || strcmp(call->argv[i], "-h") == 0)
            return true;
    }
    return false;
}

// ---- values ----

static mics_status wrong(const cli_verb *verb, const char *what, const char *which)
{
    return mics_fail(MICS_ERR_INVALID, "mics %s: %s%s; see mics %s --help", verb->name, what, which,
                     verb->name);
}

const char *cli_nearest(const char *name, const char *const *names, int32_t count)
{
    const char *near = mics_json_nearest(name, names, count);
    const size_t length = strlen(name);
    // Short words differ in much of their length: a beginning, or the first two letters, will do.
    for (size_t same = length; near == NULL && length >= 2 && same >= 2; same = same > 2 ? 2 : 0) {
        for (int32_t i = 0; i < count && near == NULL; i++)
            near = strncmp(name, names[i], same) == 0 ? names[i] : NULL;
    }
    return near;
}

static const cli_option *find_option(const cli_verb *verb, const char *name, size_t length)
{
    for (int32_t i = 0; i < verb->option_count; i++) {
        if (strncmp(verb->options[i].name, name, length) == 0 &&
            verb->options[i].name[length] == '\0')
            return &verb->options[i];
    }
    return NULL;
}

// A key by its flag where it has one; a number is taken over. `flag` is as it was written, with its dashes.
static mics_status fail_with_key(const cli_verb *verb, const char *flag, const char *key,
                                 const char *value)
{
    const bool number =
        value != NULL && *value != '\0' && value[strspn(value, "0123456789.e-+")] == '\0';
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        const cli_option *option = find_option(verb, keys[i].flag, strlen(keys[i].flag));
        if (option != NULL && strcmp(keys[i].key, key) == 0)
            return mics_fail(MICS_ERR_INVALID, "mics %s: no flag %s; write --%s %s", verb->name,
                             flag, option->name, number ? value : option->value);
    }
    const bool whole = strchr(key, '=') != NULL;
    return mics_fail(MICS_ERR_INVALID, "mics %s: no flag %s; write --set %s%s%s", verb->name, flag,
                     key, whole ? "" : "=",
                     whole    ? ""
                     : number ? value
                              : "VALUE");
}

static mics_status unknown_flag(const cli_verb *verb, const char *flag, const char *value)
{
    const char *name = flag + 1 + (flag[1] == '-');
    const mics_run_flag known = mics_run_flag_of(name);
    const bool sets = find_option(verb, "set", strlen("set")) != NULL;
    if (sets && known.key != NULL)
        return fail_with_key(verb, flag, known.key, value);
    if (known.says != NULL && strcmp(verb->name, "train") == 0)
        return mics_fail(MICS_ERR_INVALID, "mics %s: no flag %s; %s", verb->name, flag, known.says);
    const char *names[CLI_MAX_OPTIONS + 2];
    int32_t count = 0;
    for (; count < verb->option_count && count < CLI_MAX_OPTIONS; count++)
        names[count] = verb->options[count].name;
    names[count++] = "help";
    names[count++] = "offline";
    const char *near = cli_nearest(name, names, count);
    if (near != NULL)
        return mics_fail(MICS_ERR_INVALID, "mics %s: no flag %s; did you mean --%s?", verb->name,
                         flag, near);
    return mics_fail(MICS_ERR_INVALID, "mics %s: no flag %s; see mics %s --help", verb->name, flag,
                     verb->name);
}

static bool is_whole(const cli_option *option)
{
    return option->kind != CLI_REAL && option->kind != CLI_LARGE && option->kind != CLI_POSITIVE;
}

// Of a letter, which *at is moved behind; 1: it is none of them.
static double scale_of(char **at)
{
    static const char letters[] = "KMBT";
    const char *found = strchr(letters, **at);
    *at += found != NULL;
    return found != NULL ? pow(1000, (double)(found - letters + 1)) : 1;
}

static mics_status bad_number(const cli_verb *verb, const cli_option *option, const char *text)
{
    char max[40] = "";
    if (option->max > 0 || (is_whole(option) && errno == ERANGE))
        snprintf(max, sizeof max, " and at most %lld",
                 option->max > 0 ? (long long)option->max : LLONG_MAX);
    if (option->kind == CLI_POSITIVE)
        return mics_fail(MICS_ERR_INVALID, "mics %s: --%s %s: needs a number above 0%s", verb->name,
                         option->name, text, max);
    return mics_fail(MICS_ERR_INVALID, "mics %s: --%s %s: needs %s of at least %lld%s%s",
                     verb->name, option->name, text,
                     is_whole(option) ? "a whole number" : "a number", (long long)option->min, max,
                     option->kind == CLI_LARGE ? "; K, M, B or T may stand behind it" : "");
}

static mics_status read_number(const cli_verb *verb, const cli_option *option, const char *text,
                               void *target)
{
    char *end = NULL;
    errno = 0;
    const bool whole = is_whole(option);
    bool ok;
    int64_t number = 0;
    double real = 0;
    if (whole) {
        number = strtoll(text, &end, 10);
        ok = number >= option->min && (option->max == 0 || number <= option->max);
    } else {
        real = strtod(text, &end);
        if (option->kind == CLI_LARGE && end != text && *end != '\0')
            real *= scale_of(&end);
        ok = isfinite(real) && real >= (double)option->min &&
             (option->kind != CLI_POSITIVE || real > 0) &&
             (option->max == 0 || real <= (double)option->max);
    }
    if (end == text || *end != '\0' || errno != 0 || !ok)
        return bad_number(verb, option, text);
    if (option->kind == CLI_COUNT)
        *(int32_t *)target = (int32_t)number;
    else if (whole)
        *(int64_t *)target = number;
    else
        *(double *)target = real;
    return MICS_OK;
}

// Room for all of argv at once, so that a list never moves.
static mics_status list_add(cli_call *call, cli_list *list, const char *text)
{
    void *items = NULL;
    if (list->items == NULL) {
        MICS_TRY(mics_alloc(call->memory, MICS_MEM_HOST,
                            (size_t)(call->argc + 1) * sizeof *list->items, &items));
        list->items = items;
        call->owned[call->owned_count++] = items;
    }
    list->items[list->count++] = text;
    return MICS_OK;
}

static bool is_flag(const char *text)
{
    return strncmp(text, "--", 2) == 0 || strcmp(text, "-o") == 0;
}

static mics_status read_value(parser *parsing, const cli_option *option, const char *text)
{
    cli_list *keyed = &parsing->keyed[option - parsing->call->verb->options];
    void *target = option->kind >= CLI_SET ? (void *)keyed : parsing->options + option->at;
    int64_t number = 0;
    switch (option->kind) {
    case CLI_INT:
    case CLI_COUNT:
    case CLI_REAL:
    case CLI_LARGE:
    case CLI_POSITIVE:
        return read_number(parsing->call->verb, option, text, target);
    case CLI_TEXT:
        *(const char **)target = text;
        return MICS_OK;
    case CLI_EACH:
        return list_add(parsing->call, target, text);
    case CLI_SET:
        return list_add(parsing->call, &parsing->call->sets, text);
    case CLI_KEY_INT:
        MICS_TRY(read_number(parsing->call->verb, option, text, &number));
        keyed->count = 0;
        return list_add(parsing->call, keyed, text);
    case CLI_KEY_TEXT:
        keyed->count = 0;
        return list_add(parsing->call, keyed, text);
    case CLI_MANY:
    case CLI_KEY_TEXTS:
        MICS_TRY(list_add(parsing->call, target, text));
        while (parsing->next < parsing->call->argc && !is_flag(parsing->call->argv[parsing->next]))
            MICS_TRY(list_add(parsing->call, target, parsing->call->argv[parsing->next++]));
        return MICS_OK;
    case CLI_FLAG:
    case CLI_KEY_FLAG:
        break;
    }
    return wrong(parsing->call->verb, "takes no value: --", option->name);
}

static size_t key_of(const cli_option *option)
{
    size_t key = 0;
    while (strcmp(keys[key].flag, option->name) != 0)
        key++;
    return key;
}

// Adds an option's values to the sets. Texts stand in quotes, lest a name such as 12 be a number.
static mics_status add_set(cli_call *call, const cli_option *option, const cli_list *values)
{
    mics_text text = {.memory = call->memory};
    const size_t key = key_of(option);
    mics_text_printf(&text, "%s=%s", keys[key].key, option->kind == CLI_KEY_TEXTS ? "[" : "");
    for (int32_t i = 0; i < values->count; i++) {
        mics_text_printf(&text, "%s", i > 0 ? ", " : "");
        if (option->kind == CLI_KEY_INT)
            mics_text_printf(&text, "%lld", strtoll(values->items[i], NULL, 10));
        else
            mics_text_quoted(&text, values->items[i]);
    }
    mics_text_printf(&text, "%s", option->kind == CLI_KEY_TEXTS ? "]" : "");
    call->owned[call->owned_count++] = text.bytes;
    MICS_TRY(mics_text_status(&text));
    return list_add(call, &call->sets, text.bytes);
}

// Switches may be given again: nothing changes.
static bool has_one_value(const cli_option *option)
{
    return option->kind != CLI_FLAG && option->kind != CLI_KEY_FLAG && option->kind != CLI_EACH &&
           option->kind != CLI_MANY && option->kind != CLI_SET && option->kind != CLI_KEY_TEXTS;
}

// A script's own --set may stand before its user's, so the last one counts, and this is said; but for a
// null, which is there to unset what the file says.
static void warn_set_twice(const cli_list *sets)
{
    for (int32_t last = 1; last < sets->count; last++) {
        const char *set = sets->items[last];
        const size_t bytes = strcspn(set, "=");
        for (int32_t i = last; i-- > 0;) {
            const char *before = sets->items[i];
            if (strncmp(before, set, bytes + 1) != 0 || strcmp(before, set) == 0 ||
                strcmp(before + bytes, "=null") == 0)
                continue;
            mics_log(MICS_LOG_WARNING, "%.*s is set twice: to %s, and then to %s, which counts",
                     (int)bytes, set, before + bytes + 1, set + bytes + 1);
            break;
        }
    }
}

// `written` has its dashes; the next argument, or what follows "=", is its value.
static mics_status read_flag(parser *parsing, const char *written)
{
    const cli_verb *verb = parsing->call->verb;
    const char *flag = written + 1 + (written[1] == '-');
    const char *equals = strchr(flag, '=');
    size_t length = equals != NULL ? (size_t)(equals - flag) : strlen(flag);
    const cli_option *option = find_option(verb, flag, length);
    if (option == NULL) {
        char name[64];
        mics_text_format(name, sizeof name, "%.*s", (int)strcspn(written, "="), written);
        const char *next =
            parsing->next < parsing->call->argc ? parsing->call->argv[parsing->next] : NULL;
        return unknown_flag(verb, name, equals != NULL ? equals + 1 : next);
    }
    const uint64_t bit = UINT64_C(1) << (option - verb->options);
    if ((parsing->call->given & bit) != 0 && has_one_value(option))
        mics_log(MICS_LOG_WARNING, "--%s is given twice; its last value counts", option->name);
    parsing->call->given |= bit;
    if (option->kind == CLI_FLAG && equals == NULL) {
        *(bool *)(void *)(parsing->options + option->at) = true;
        return MICS_OK;
    }
    if (option->kind == CLI_KEY_FLAG && equals == NULL) {
        cli_list *keyed = &parsing->keyed[option - verb->options];
        keyed->count = 0;
        return list_add(parsing->call, keyed, keys[key_of(option)].on);
    }
    if (equals != NULL)
        return read_value(parsing, option, equals + 1);
    if (parsing->next == parsing->call->argc)
        return wrong(verb, "a value is missing after --", option->name);
    return read_value(parsing, option, parsing->call->argv[parsing->next++]);
}

static mics_status read_all(parser *parsing)
{
    const cli_verb *verb = parsing->call->verb;
    cli_list *arguments = &parsing->call->arguments;
    bool only_arguments = false;
    while (parsing->next < parsing->call->argc) {
        const char *text = parsing->call->argv[parsing->next++];
        if (only_arguments || text[0] != '-' || text[1] == '\0')
            MICS_TRY(list_add(parsing->call, arguments, text));
        else if (strcmp(text, "--") == 0)
            only_arguments = true;
        else if (strcmp(text, "-o") == 0)
            MICS_TRY(read_flag(parsing, "--out"));
        else if (strcmp(text, "--offline") == 0 && setenv("HF_HUB_OFFLINE", "1", 1) == 0)
            continue; // of every verb, and heard where files are fetched
        else if (text[1] != '-' && mics_run_flag_of(text + 1).key == NULL &&
                 mics_run_flag_of(text + 1).says == NULL)
            return wrong(verb, "flags begin with two dashes: ", text);
        else
            MICS_TRY(read_flag(parsing, text));
    }
    for (int32_t i = 0; i < verb->option_count && verb->model_stands && arguments->count == 0;
         i++) {
        if (strcmp(verb->options[i].name, "model") == 0 && parsing->keyed[i].count > 0)
            MICS_TRY(list_add(parsing->call, arguments, parsing->keyed[i].items[0]));
    }
    if (arguments->count < verb->min_arguments)
        return wrong(verb, "missing: ", verb->arguments);
    if (arguments->count > verb->max_arguments)
        return wrong(verb, "one argument too many: ", arguments->items[verb->max_arguments]);
    for (int32_t i = 0; i < verb->option_count; i++) {
        if (parsing->keyed[i].count > 0)
            MICS_TRY(add_set(parsing->call, &verb->options[i], &parsing->keyed[i]));
    }
    warn_set_twice(&parsing->call->sets);
    return MICS_OK;
}

mics_status cli_parse(cli_call *call, void *options)
{
    MICS_ASSERT(call->verb->option_count <= CLI_MAX_OPTIONS);
    parser parsing = {.call = call, .options = options};
    return read_all(&parsing);
}
