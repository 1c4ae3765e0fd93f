// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// The program: finds the verb and runs it.
#include "cli.h"
#include "mics/run.h"
#include "signals.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { MAX_VERBS = 32 };

// In the order of the help.
static const cli_verb *const verbs[] = {
    &cmd_train,  &cmd_watch,    &cmd_report,  &cmd_explain, &cmd_plan,   &cmd_generate,   &cmd_eval,
    &cmd_verify, &cmd_tokenize, &cmd_convert, &cmd_bench,   &cmd_doctor, &cmd_completion, NULL,
};

static void print_usage(void)
{
    printf("mics %s: trains transformers with MiCS sharding on clusters of unequal links\n\n"
           "usage: mics VERB [arguments] [flags]\n\n",
           MICS_VERSION);
    for (const cli_verb *const *verb = verbs; *verb != NULL; verb++)
        printf("  %-10s %s\n", (*verb)->name, (*verb)->summary);
    printf("\nmics VERB --help lists a verb's flags; mics --version prints the version.\n"
           "Exit status: 0 good, 1 failed, 2 wrong usage or configuration,\n"
           "75 stopped as asked, with the state saved: start it again to resume.\n");
}

static const cli_verb *find_verb(const char *name)
{
    const char *names[MAX_VERBS];
    int32_t count = 0;
    for (const cli_verb *const *verb = verbs; *verb != NULL; verb++) {
        if (strcmp((*verb)->name, name) == 0)
            return *verb;
        if (count < MAX_VERBS)
            names[count++] = (*verb)->name;
    }
    const char *near = cli_nearest(name, names, count);
    if (near != NULL)
        mics_fail(MICS_ERR_INVALID, "no verb \"%s\"; did you mean \"%s\"?", name, near);
    else
        mics_fail(MICS_ERR_INVALID, "no verb \"%s\"; see mics --help", name);
    return NULL;
}

// A verb of two words begins with the verb's own.
static void find_part(cli_call *call)
{
    const size_t first = strlen(call->verb->name) + 1;
    for (const cli_verb *const *part = call->verb->parts; part != NULL && *part != NULL; part++) {
        if (call->argc > 0 && strcmp(call->argv[0], (*part)->name + first) == 0) {
            call->verb = *part;
            call->argc--;
            call->argv++;
            return;
        }
    }
}

static mics_status run_call(cli_call *call)
{
    if (call->verb->stopped != NULL) {
        cli_signals_word(call->verb->stopped);
        MICS_TRY(cli_signals_start());
    }
    return call->verb->run(call);
}

static int run_verb(const char *name, int argc, char **argv)
{
    cli_call call = {.argc = argc, .argv = argv, .verb = find_verb(name), .verbs = verbs};
    if (call.verb == NULL)
        return EXIT_USAGE;
    find_part(&call);
    if (cli_asks_help(&call)) {
        cli_print_help(call.verb);
        return EXIT_GOOD;
    }
    if (mics_memory_open(&call.memory) != MICS_OK)
        return EXIT_FAILED;
    const mics_status status = run_call(&call);
    for (int32_t i = 0; i < call.owned_count; i++)
        mics_free(call.memory, call.owned[i]);
    mics_memory_close(call.memory);
    return cli_exit_status(status, call.running);
}

static int run_help(int argc, char **argv)
{
    static char help[] = "--help";
    char *arguments[] = {help};
    if (argc > 0)
        return run_verb(argv[0], 1, arguments);
    print_usage();
    return EXIT_GOOD;
}

// What was printed must have arrived: a full disk is an error.
static int finish(int code)
{
    const bool flushed = fflush(stdout) == 0;
    if (flushed && !ferror(stdout))
        return code;
    mics_fail(MICS_ERR_IO, "standard output: %s",
              flushed ? "not all could be written" : strerror(errno)); // errno is of something else
    return code != EXIT_GOOD ? code : EXIT_FAILED;
}

// Else the first files that are opened would be standard output and error, and get what is printed.
static void open_standard_files(void)
{
    for (int file = 0; file <= STDERR_FILENO; file++) {
        if (fcntl(file, F_GETFD) == -1 && errno == EBADF && open("/dev/null", O_RDWR) != file)
            _exit(EXIT_FAILED); // nobody could be told
    }
}

static int run(int argc, char **argv)
{
    if (argc < 2) {
        mics_fail(MICS_ERR_INVALID, "no verb given; see mics --help");
        return EXIT_USAGE;
    }
    const char *name = argv[1];
    if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0 || strcmp(name, "help") == 0)
        return finish(run_help(argc - 2, argv + 2));
    if (strcmp(name, "--version") == 0) {
        printf("mics %s\n", MICS_VERSION);
        return finish(EXIT_GOOD);
    }
    return finish(run_verb(name, argc - 2, argv + 2));
}

int main(int argc, char **argv)
{
    cli_prepare_environment(argv);
    (void)signal(SIGXFSZ,
                 SIG_IGN); // a write past ulimit -f fails, with its cause, and does not kill
    open_standard_files();
    cli_log_install();
    if (!mics_job_is_launched())
        cli_last_words_install();
    const int code = run(argc, argv);
    cli_last_words_leave();
    return code;
}
