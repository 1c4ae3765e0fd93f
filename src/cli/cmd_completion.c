// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// mics completion: scripts that complete verbs, flags and values, made from the verbs' own tables.
#include "cli.h"
#include <stdio.h>
#include <string.h>

static const char about[] =
    "Prints a script that completes verbs, flags and their values in SHELL: bash, zsh or fish.";
static const char notes[] =
    "bash  mics completion bash >~/.local/share/bash-completion/completions/mics\n"
    "zsh   mics completion zsh >DIR/_mics, DIR being one of $fpath\n"
    "fish  mics completion fish >~/.config/fish/completions/mics.fish";

// What is printed of each verb.
typedef void print_verb(const cli_spec *spec, void *ctx);

static mics_status parse(cli_call *call)
{
    const cli_spec spec = {
        .verb = "completion",
        .arguments = "SHELL",
        .about = about,
        .min_arguments = 1,
        .max_arguments = 1,
        .notes = notes,
    };
    return cli_parse(call, &spec);
}

static mics_status print_verbs(cli_call *call, print_verb *print)
{
    for (const cli_verb_entry *verb = call->verbs; verb->name != NULL; verb++) {
        cli_call asked = {.memory = call->memory, .describe = print};
        MICS_TRY(verb->run(&asked));
    }
    return MICS_OK;
}

// Prints a text between single quotes of a shell, with `quote` for each that is in it.
static void print_quoted(const char *text, const char *quote)
{
    putchar('\'');
    for (; *text != '\0'; text++) {
        if (*text == '\'')
            fputs(quote, stdout);
        else
            putchar(*text);
    }
    putchar('\'');
}

// Values that a flag's placeholder names ("fp32|bf16"), not what stands for something ("FILE").
// Returns whether there are any.
static bool print_values(const char *placeholder)
{
    bool any = false;
    if (placeholder == NULL || strchr(placeholder, '|') == NULL)
        return false;
    for (const char *at = placeholder; *at != '\0';) {
        const size_t bytes = strcspn(at, "|");
        const char first = at[0];
        if (first >= 'a' && first <= 'z') {
            printf("%s%.*s", any ? " " : "", (int)bytes, at);
            any = true;
        }
        at += bytes + (at[bytes] == '|' ? 1 : 0);
    }
    return any;
}

// ---- bash ----

static void print_bash_flags(const cli_spec *spec, void *ctx)
{
    (void)ctx;
    printf("        '%s') flags='", spec->verb);
    for (int32_t i = 0; i < spec->option_count; i++)
        printf("--%s ", spec->options[i].name);
    printf("--help' ;;\n");
}

static void print_bash_values(const cli_spec *spec, void *ctx)
{
    (void)ctx;
    for (int32_t i = 0; i < spec->option_count; i++) {
        const cli_option *option = &spec->options[i];
        if (option->value == NULL || strchr(option->value, '|') == NULL)
            continue;
        printf("        '%s --%s') values='", spec->verb, option->name);
        (void)print_values(option->value);
        printf("' ;;\n");
    }
}

static mics_status print_bash(cli_call *call)
{
    printf("# Completion of mics in bash.\n_mics() {\n"
           "    local word=${COMP_WORDS[COMP_CWORD]} verb=${COMP_WORDS[1]-} flags= values=\n"
           "    COMPREPLY=()\n    [ \"$verb\" != bench ] || verb=\"bench ${COMP_WORDS[2]-}\"\n    "
           "if [ \"$COMP_CWORD\" -le 1 ]; then\n        values='");
    for (const cli_verb_entry *verb = call->verbs; verb->name != NULL; verb++)
        printf("%s ", verb->name);
    printf("help --help --version'\n        mapfile -t COMPREPLY < <(compgen -W \"$values\" -- "
           "\"$word\")\n        return\n    fi\n    case $verb in\n");
    MICS_TRY(print_verbs(call, print_bash_flags));
    printf("    esac\n    case \"$verb ${COMP_WORDS[COMP_CWORD-1]}\" in\n"
           "        'completion completion') values='bash zsh fish' ;;\n"
           "        'bench '*' bench') values='comm compute' ;;\n");
    MICS_TRY(print_verbs(call, print_bash_values));
    printf("    esac\n    case $word in\n"
           "        -*) mapfile -t COMPREPLY < <(compgen -W \"$flags\" -- \"$word\") ;;\n"
           "        *) mapfile -t COMPREPLY < <(compgen -W \"$values\" -- \"$word\"; compgen -f -- "
           "\"$word\") ;;\n    esac\n}\ncomplete -o filenames -F _mics mics\n");
    return MICS_OK;
}

// ---- zsh ----

// In a description of _arguments these end it.
static void print_zsh_help(const char *help)
{
    for (; *help != '\0'; help++) {
        if (strchr("[]:\\", *help) != NULL)
            putchar('\\');
        if (*help == '\'')
            fputs("'\\''", stdout);
        else
            putchar(*help);
    }
}

static void print_zsh_verb(const cli_spec *spec, void *ctx)
{
    (void)ctx;
    printf("        '%s') _arguments", spec->verb);
    for (int32_t i = 0; i < spec->option_count; i++) {
        const cli_option *option = &spec->options[i];
        printf(" \\\n            '*--%s[", option->name);
        print_zsh_help(option->help);
        putchar(']');
        if (option->value != NULL) {
            putchar(':');
            print_zsh_help(option->value);
            putchar(':');
            if (strchr(option->value, '|') != NULL) {
                putchar('(');
                (void)print_values(option->value);
                putchar(')');
            } else if (option->kind == CLI_TEXT || option->kind >= CLI_EACH) {
                fputs("_files", stdout);
            }
        }
        putchar('\'');
    }
    printf(" \\\n            '--help[this text]' '*: :%s' ;;\n",
           strcmp(spec->verb, "completion") == 0 ? "(bash zsh fish)" : "_files");
}

static mics_status print_zsh(cli_call *call)
{
    printf("#compdef mics\n# Completion of mics in zsh.\n_mics() {\n    local -a verbs=(\n");
    for (const cli_verb_entry *verb = call->verbs; verb->name != NULL; verb++) {
        printf("        '%s:", verb->name);
        print_zsh_help(verb->about);
        printf("'\n");
    }
    printf("    )\n    if (( CURRENT == 2 )); then\n        _describe verb verbs\n        return\n"
           "    fi\n    shift words\n    (( CURRENT-- ))\n    if [ \"$words[1]\" = bench ]; then\n"
           "        if (( CURRENT == 2 )); then\n            compadd comm compute\n"
           "            return\n        fi\n        words[2]=\"bench $words[2]\"\n"
           "        shift words\n        (( CURRENT-- ))\n    fi\n    case $words[1] in\n");
    MICS_TRY(print_verbs(call, print_zsh_verb));
    printf("    esac\n}\nif [ \"$funcstack[1]\" = _mics ]; then\n    _mics \"$@\"\nelse\n"
           "    compdef _mics mics\nfi\n");
    return MICS_OK;
}

// ---- fish ----

// "bench comm" is a verb of two words.
static void print_fish_seen(const char *verb)
{
    const size_t first = strcspn(verb, " ");
    printf("complete -c mics -n '__fish_seen_subcommand_from %.*s", (int)first, verb);
    if (verb[first] != '\0')
        printf("; and __fish_seen_subcommand_from %s", verb + first + 1);
    putchar('\'');
}

static void print_fish_verb(const cli_spec *spec, void *ctx)
{
    (void)ctx;
    for (int32_t i = 0; i < spec->option_count; i++) {
        const cli_option *option = &spec->options[i];
        print_fish_seen(spec->verb);
        printf(" -l %s", option->name);
        if (option->value != NULL && strchr(option->value, '|') != NULL) {
            fputs(" -x -a '", stdout);
            (void)print_values(option->value);
            putchar('\'');
        } else if (option->kind != CLI_FLAG) {
            fputs(" -r", stdout);
        }
        fputs(" -d ", stdout);
        print_quoted(option->help, "\\'");
        putchar('\n');
    }
}

static mics_status print_fish(cli_call *call)
{
    printf("# Completion of mics in fish.\n");
    for (const cli_verb_entry *verb = call->verbs; verb->name != NULL; verb++) {
        printf("complete -c mics -n __fish_use_subcommand -f -a %s -d ", verb->name);
        print_quoted(verb->about, "\\'");
        putchar('\n');
    }
    printf("complete -c mics -n '__fish_seen_subcommand_from bench; and not "
           "__fish_seen_subcommand_from comm compute' -f -a 'comm compute'\n");
    MICS_TRY(print_verbs(call, print_fish_verb));
    printf("complete -c mics -n '__fish_seen_subcommand_from completion' -f -a 'bash zsh fish'\n");
    return MICS_OK;
}

// ---- the verb ----

mics_status cmd_completion(cli_call *call)
{
    static const struct {
        const char *name;
        mics_status (*print)(cli_call *call);
    } shells[] = {{"bash", print_bash}, {"zsh", print_zsh}, {"fish", print_fish}};
    MICS_TRY(parse(call));
    for (size_t i = 0; !call->helped && i < sizeof shells / sizeof shells[0]; i++) {
        if (strcmp(call->arguments.items[0], shells[i].name) == 0)
            return shells[i].print(call);
    }
    return call->helped
               ? MICS_OK
               : mics_fail(MICS_ERR_INVALID, "mics completion: %s: bash, zsh and fish are known",
                           call->arguments.items[0]);
}
