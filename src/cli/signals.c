// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Signal handlers: only what is safe inside one. The state is global because handlers have no
// other.
#include "signals.h"
#include "mics/log.h"
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum {
    DEADLINE_S = 20, // for the step and its checkpoint, under MPI
    LAST_WORD = 1,   // byte of the lock file; byte 0 belongs to the run
    LINE_BYTES = 320
};

typedef struct signal_lines {
    char asked[LINE_BYTES], late[LINE_BYTES];
} signal_lines;

static atomic_int asked_signal;
static atomic_int current; // which of the two lines[] the handler reads
static signal_lines lines[2];
static int32_t named_rank = -1;
static int lock = -1;

static void write_text(const char *text)
{
    size_t length = strlen(text);
    ssize_t written = write(STDERR_FILENO, text, length);
    (void)written;
}

// fcntl is among the functions that a handler may call. Without a lock file everybody speaks.
static bool takes_the_word(void)
{
    struct flock byte = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = LAST_WORD, .l_len = 1};
    return lock < 0 || fcntl(lock, F_SETLK, &byte) == 0;
}

static void on_stop(int number)
{
    signal(SIGINT, SIG_DFL);
    signal(SIGTERM, SIG_DFL);
    atomic_store(&asked_signal, number);
    if (named_rank < 0)
        return;
    if (takes_the_word())
        write_text(lines[atomic_load(&current)].asked);
    alarm(DEADLINE_S);
}

static void on_deadline(int number)
{
    (void)number;
    if (takes_the_word())
        write_text(lines[atomic_load(&current)].late);
    _exit(1);
}

void cli_signals_install(int32_t rank, int lock_file)
{
    named_rank = rank;
    lock = lock_file;
    struct sigaction stop = {.sa_handler = on_stop, .sa_flags = SA_RESTART};
    struct sigaction late = {.sa_handler = on_deadline, .sa_flags = SA_RESTART};
    sigemptyset(&stop.sa_mask);
    sigaddset(&stop.sa_mask, SIGINT);
    sigaddset(&stop.sa_mask, SIGTERM);
    sigemptyset(&late.sa_mask);
    sigaction(SIGINT, &stop, NULL);
    sigaction(SIGTERM, &stop, NULL);
    if (rank >= 0)
        sigaction(SIGALRM, &late, NULL);
}

void cli_signals_progress(int64_t step, int64_t saved)
{
    int next = 1 - atomic_load(&current);
    char from[64] = "nothing is saved yet";
    if (saved > 0)
        snprintf(from, sizeof from, "--resume auto goes on from step %lld", (long long)saved);
    snprintf(lines[next].asked, LINE_BYTES,
             "mics: rank %d: asked to stop in step %lld; it is saved if all ranks finish it, "
             "otherwise %s\n",
             (int)named_rank, (long long)step, from);
    snprintf(lines[next].late, LINE_BYTES,
             "mics: error: rank %d: other ranks did not finish step %lld within %d s after the "
             "signal; %s\n",
             (int)named_rank, (long long)step, DEADLINE_S, from);
    atomic_store(&current, next);
}

const char *cli_signals_asked(void)
{
    int number = atomic_load(&asked_signal);
    if (number == 0)
        return NULL;
    return number == SIGINT ? "SIGINT" : "SIGTERM";
}

void cli_signals_done(void)
{
    alarm(0);
}
