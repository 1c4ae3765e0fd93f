// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// A line for deaths that nobody here decides: a library that calls abort or exit where memory or
// threads are short, or a crash.
#include "cli.h"
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

// Signals belong to the process, and so does its end.
static atomic_bool leaving;

static void say(const char *line)
{
    if (write(STDERR_FILENO, line, strlen(line)) < 0)
        return; // nobody listens
}

static void ended_by_library(void)
{
    if (!atomic_load(&leaving) && !cli_log_has_error())
        say("mics: error: a library ended the program, as they do where memory or threads are "
            "short; raise the limits (ulimit -v, ulimit -u, the container's), or use fewer ranks "
            "and threads\n");
}

static void ended_by_signal(int number)
{
    if (number == SIGABRT)
        ended_by_library();
    else if (number == SIGBUS)
        say("mics: error: SIGBUS: memory could not be read, as where a file that is mapped became "
            "shorter, or a disk or /dev/shm is full\n");
    else
        say("mics: error: the program crashed; where memory is not short (ulimit -v) this is a "
            "defect of mics, please report it\n");
    signal(number, SIG_DFL);
    raise(number);
}

// A handler of somebody else, such as a sanitizer's, stays.
static void handle(int number)
{
    struct sigaction before, ours = {.sa_handler = ended_by_signal, .sa_flags = (int)SA_RESETHAND};
    sigemptyset(&ours.sa_mask);
    if (sigaction(number, NULL, &before) == 0 && before.sa_handler == SIG_DFL)
        (void)sigaction(number, &ours, NULL);
}

void cli_last_words_install(void)
{
    static const int numbers[] = {SIGABRT, SIGBUS, SIGSEGV, SIGILL, SIGFPE};
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++)
        handle(numbers[i]);
    (void)atexit(ended_by_library);
}

void cli_last_words_leave(void)
{
    atomic_store(&leaving, true);
}
