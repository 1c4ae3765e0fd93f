// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// The program: finds the verb and runs it.
#include "args.h"
#include "cli.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>

static const cli_verb verbs[] = {
    {"train", "trains a model", cmd_train},
    {"explain", "shows what a run would do: keys, mesh, memory, bytes, schedule", cmd_explain},
    {"plan", "which sharding and batch for a cluster, how fast, at what price", cmd_plan},
    {"generate", "writes text that continues a prompt", cmd_generate},
    {"eval", "loss and perplexity of a checkpoint on a text", cmd_eval},
    {"tokenize", "makes a token shard from text", cmd_tokenize},
    {"convert", "makes Hugging Face safetensors from a checkpoint", cmd_convert},
    {"bench", "measures links and computation for a cluster file", cmd_bench},
    {"doctor", "what this build and this machine can do", cmd_doctor},
};
enum { VERBS = sizeof verbs / sizeof verbs[0] };

int cli_exit_status(mics_status status, bool running)
{
    if (status == MICS_OK)
        return CLI_EXIT_OK;
    if (running || (status == MICS_ERR_IO && mics_log_disk_failed()))
        return CLI_EXIT_FAILED;
    switch (status) {
    case MICS_ERR_INVALID:
    case MICS_ERR_UNSUPPORTED:
    case MICS_ERR_FORMAT:
    case MICS_ERR_IO:
    case MICS_ERR_MEMORY:
        return CLI_EXIT_USAGE;
    default:
        return CLI_EXIT_FAILED;
    }
}

static void print_usage(void)
{
    printf("mics %s: trains transformers with MiCS sharding on clusters of unequal links\n\n"
           "usage: mics VERB [arguments] [flags]\n\n",
           MICS_VERSION);
    for (int i = 0; i < VERBS; i++)
        printf("  %-10s %s\n", verbs[i].name, verbs[i].about);
    printf("\nmics VERB --help lists a verb's flags; mics --version prints the version.\n"
           "Exit status: 0 good, 1 failed, 2 wrong usage or configuration.\n");
}

static const cli_verb *find_verb(const char *name)
{
    for (int i = 0; i < VERBS; i++) {
        if (strcmp(verbs[i].name, name) == 0)
            return &verbs[i];
    }
    const char *names[VERBS];
    for (int i = 0; i < VERBS; i++)
        names[i] = verbs[i].name;
    const char *near = cli_nearest(name, names, VERBS);
    if (near != NULL)
        mics_fail(MICS_ERR_INVALID, "no verb \"%s\"; did you mean \"%s\"?", name, near);
    else
        mics_fail(MICS_ERR_INVALID, "no verb \"%s\"; see mics --help", name);
    return NULL;
}

static int run_help(int argc, char **argv)
{
    static char help[] = "--help";
    char *arguments[] = {help};
    if (argc == 0) {
        print_usage();
        return CLI_EXIT_OK;
    }
    const cli_verb *verb = find_verb(argv[0]);
    return verb != NULL ? verb->run(1, arguments) : CLI_EXIT_USAGE;
}

// What was printed must have arrived: a full disk is an error.
static int finish(int exit_status)
{
    if (fflush(stdout) == 0 && !ferror(stdout))
        return exit_status;
    mics_fail(MICS_ERR_IO, "standard output: %s", strerror(errno));
    return exit_status != CLI_EXIT_OK ? exit_status : CLI_EXIT_FAILED;
}

int main(int argc, char **argv)
{
    cli_log_install();
    if (argc < 2) {
        mics_fail(MICS_ERR_INVALID, "no verb given; see mics --help");
        return CLI_EXIT_USAGE;
    }
    const char *name = argv[1];
    if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0 || strcmp(name, "help") == 0)
        return finish(run_help(argc - 2, argv + 2));
    if (strcmp(name, "--version") == 0) {
        printf("mics %s\n", MICS_VERSION);
        return finish(CLI_EXIT_OK);
    }
    const cli_verb *verb = find_verb(name);
    return verb != NULL ? finish(verb->run(argc - 2, argv + 2)) : CLI_EXIT_USAGE;
}
