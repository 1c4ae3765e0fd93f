// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// mics completion: scripts that complete verbs, flags and values. All have one table, made from the
// verbs' own, and code in the shell's language that reads it. The parts of a row, between tabs: a verb
// (mics: before any), a word that may follow, its values (none, file, number, or those there are), its
// placeholder, its help.
#include "cli.h"
#include <ctype.h>
#include <stdio.h>
#include <string.h>

// clang-format off: lines are those of the scripts
static const char bash[] =
    "_mics() {\n"
    "    local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]} verb=mics at name "
    "values rest words= given=none\n"
    "    [ \"$COMP_CWORD\" -le 1 ] || verb=${COMP_WORDS[1]}\n"
    "    [ \"$COMP_CWORD\" -le 2 ] || [ \"$verb\" != bench ] || verb=\"bench ${COMP_WORDS[2]}\"\n"
    "    while IFS=$'\\t' read -r at name values rest; do\n"
    "        [ \"$at\" = \"$verb\" ] || continue\n"
    "        [ \"$name\" != \"$before\" ] || given=$values\n"
    "        [[ $name = -* && $word != -* ]] || words+=\" $name\"\n"
    "    done <<<\"$_mics_table\"\n"
    "    [[ $given = @(none|file|number) ]] || words=$given\n"
    "    mapfile -t COMPREPLY < <(compgen -W \"$words\" -- \"$word\"; [ \"$verb\" = mics ] || "
    "compgen -f -- \"$word\")\n"
    "}\n"
    "complete -o filenames -F _mics mics\n";

static const char zsh[] =
    "_mics() {\n"
    "    setopt localoptions extendedglob\n"
    "    local verb=mics at name values placeholder help\n"
    "    local -a others flags\n"
    "    (( CURRENT <= 2 )) || { shift words; (( CURRENT-- )); verb=$words[1] }\n"
    "    [[ $verb = bench ]] && (( CURRENT > 2 )) && { shift words; (( CURRENT-- )); verb=\"bench "
    "$words[1]\" }\n"
    "    while IFS=$'\\t' read -r at name values placeholder help; do\n"
    "        [[ $at = $verb ]] || continue\n"
    "        help=${help//(#m)[]:\\\\[]/\\\\$MATCH}\n"
    "        case $name:$values in\n"
    "            --*:none) flags+=(\"*${name}[$help]\") ;;\n"
    "            --*:number) flags+=(\"*${name}[$help]:$placeholder:\") ;;\n"
    "            --*:file) flags+=(\"*${name}[$help]:$placeholder:_files\") ;;\n"
    "            --*) flags+=(\"*${name}[$help]:$placeholder:($values)\") ;;\n"
    "            *) others+=(\"$name:$help\") ;;\n"
    "        esac\n"
    "    done <<<$_mics_table\n"
    "    (( $#others )) && _describe word others\n"
    "    [[ $verb = mics ]] || _arguments $flags '*: :_files'\n"
    "}\n"
    "if [ \"$funcstack[1]\" = _mics ]; then _mics \"$@\"; else compdef _mics mics; fi\n";

static const char fish[] =
    "for row in (string split \\n -- $_mics_table)\n"
    "    set -l part (string split \\t -- $row)\n"
    "    set -l at '__fish_seen_subcommand_from '(string replace ' ' '; and "
    "__fish_seen_subcommand_from ' -- $part[1])\n"
    "    test $part[1] = mics; and set at __fish_use_subcommand\n"
    "    test $part[1] = bench; and set at \"$at; and not __fish_seen_subcommand_from comm "
    "compute\"\n"
    "    set -l flag (string sub -s 3 -- $part[2])\n"
    "    switch \"$part[2] $part[3]\"\n"
    "        case '--* none'\n"
    "            complete -c mics -n $at -l $flag -d $part[5]\n"
    "        case '--* file' '--* number'\n"
    "            complete -c mics -n $at -l $flag -r -d $part[5]\n"
    "        case '--*'\n"
    "            complete -c mics -n $at -l $flag -x -a $part[3] -d $part[5]\n"
    "        case '*'\n"
    "            complete -c mics -n $at -f -a $part[2] -d $part[5]\n"
    "    end\n"
    "end\n";
// clang-format on

// What stands before the table, and behind it.
static const struct {
    const char *name, *head, *script;
} shells[] = {
    {"bash", "# Completion of mics in bash.\n_mics_table=", bash},
    {"zsh", "#compdef mics\n# Completion of mics in zsh.\n_mics_table=", zsh},
    {"fish", "# Completion of mics in fish.\nset -g _mics_table ", fish},
};
enum { SHELLS = sizeof shells / sizeof shells[0] };

// Within single quotes of any of the shells.
static void print_quoted(const char *text)
{
    for (; *text != '\0'; text++)
        printf(*text == '\'' ? "'\\''" : "%c", *text);
}

// "fp32|bf16", not "FILE|FOLDER".
static bool names_values(const char *placeholder)
{
    return placeholder != NULL && strchr(placeholder, '|') != NULL && islower(placeholder[0]);
}

// Those that a placeholder names, not what stands for something: "auto none" of "auto|none|DIR".
static void print_values(const char *placeholder)
{
    const char *before = "";
    for (const char *at = placeholder; *at != '\0'; at += *at == '|') {
        const size_t bytes = strcspn(at, "|");
        if (islower(*at))
            printf("%s%.*s", before, (int)bytes, at);
        before = " ";
        at += bytes;
    }
}

static void print_row(const char *verb, const char *word, const cli_option *option,
                      const char *help)
{
    const bool number = option->kind == CLI_KEY_INT || option->kind <= CLI_POSITIVE;
    printf("%s\t%s%s\t", verb, option->name != NULL ? "--" : "", word);
    if (names_values(option->value))
        print_values(option->value);
    else
        printf(option->kind == CLI_FLAG || option->kind == CLI_KEY_FLAG ? "none"
               : number                                                 ? "number"
                                                                        : "file");
    printf("\t%s\t", option->value != NULL ? option->value : "-");
    print_quoted(help);
    putchar('\n');
}

// What is no flag, or one of all verbs.
static void print_word(const char *verb, const char *word, const char *help)
{
    print_row(verb, word, &(cli_option){.kind = CLI_FLAG}, help);
}

static void print_flags(const cli_verb *verb)
{
    for (const cli_option *at = verb->options; at < verb->options + verb->option_count; at++)
        print_row(verb->name, at->name, at, at->help);
    print_word(verb->name, "--offline", "what is remote must be in the cache");
    print_word(verb->name, "--help", "this text");
}

static void print_table(const cli_verb *const *verbs)
{
    static const char *const others[] = {"help", "--help", "--version"};
    for (const cli_verb *const *verb = verbs; *verb != NULL; verb++) {
        print_word("mics", (*verb)->name, (*verb)->summary);
        print_flags(*verb);
        for (const cli_verb *const *part = (*verb)->parts; part != NULL && *part != NULL; part++) {
            print_word((*verb)->name, strchr((*part)->name, ' ') + 1, (*part)->summary);
            print_flags(*part);
        }
    }
    for (int i = 0; i < SHELLS; i++)
        print_word("completion", shells[i].name, "a shell");
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        print_word("mics", others[i], "of the program");
}

static mics_status run_completion(cli_call *call)
{
    MICS_TRY(cli_parse(call, NULL));
    for (int i = 0; i < SHELLS; i++) {
        if (strcmp(call->arguments.items[0], shells[i].name) == 0) {
            printf("%s'", shells[i].head);
            print_table(call->verbs);
            printf("'\n%s", shells[i].script);
            return MICS_OK;
        }
    }
    return mics_fail(MICS_ERR_INVALID, "mics completion: %s: bash, zsh and fish are known",
                     call->arguments.items[0]);
}

const cli_verb cmd_completion = {
    .name = "completion",
    .summary = "prints a script that completes verbs and flags in a shell",
    .arguments = "SHELL",
    .about =
        "Prints a script that completes verbs, flags and their values in SHELL: bash, zsh or fish.",
    .min_arguments = 1,
    .max_arguments = 1,
    .notes = "bash  mics completion bash >~/.local/share/bash-completion/completions/mics\n"
             "zsh   mics completion zsh >DIR/_mics, DIR being one of $fpath\n"
             "fish  mics completion fish >~/.config/fish/completions/mics.fish",
    .run = run_completion,
};
