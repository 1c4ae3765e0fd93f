// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// The thread that waits for signals. What it shares with others is global, as signals belong to the
// process.
#include "signals.h"
#include "base/clock.h"
#include "base/file.h"
#include "mics/log.h"
#include <fcntl.h>
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <unistd.h>

enum {
    STEP_S = 20,  // for a step, under MPI
    LAST_WORD = 1 // byte of the lock file; byte 0 belongs to the run
};

static atomic_bool training;
static atomic_int asked_signal;
static atomic_bool ended;
static _Atomic int64_t running_step, saved_step;
static _Atomic double phase_begin_us, phase_s; // what training does now: since when, for how long
static atomic_bool saving;
static int32_t named_rank = -1; // this and the next are set before `training`
static int lock = -1;

static void stop_set(sigset_t *set_out)
{
    sigemptyset(set_out);
    sigaddset(set_out, SIGINT);
    sigaddset(set_out, SIGTERM);
}

// Ends the process by the signal, as if nobody had waited for it, but for files that are not whole.
static void end_by(int number)
{
    sigset_t set;
    mics_file_abandon_all();
    sigemptyset(&set);
    sigaddset(&set, number);
    signal(number, SIG_DFL);
    pthread_sigmask(SIG_UNBLOCK, &set, NULL);
    raise(number);
    _exit(1);
}

// Without a lock file everybody speaks.
static bool takes_the_word(void)
{
    struct flock byte = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = LAST_WORD, .l_len = 1};
    return lock < 0 || fcntl(lock, F_SETLK, &byte) == 0;
}

static const char *where_from(char *text, size_t capacity)
{
    int64_t saved = atomic_load(&saved_step);
    if (saved == 0)
        return "nothing is saved yet";
    snprintf(text, capacity, "--resume auto goes on from step %lld", (long long)saved);
    return text;
}

static void say_asked(void)
{
    char from[64];
    if (takes_the_word())
        fprintf(stderr,
                "mics: rank %d: asked to stop in step %lld, as launchers do when a rank has died; "
                "it is saved if all ranks finish it, otherwise %s\n",
                (int)named_rank, (long long)atomic_load(&running_step),
                where_from(from, sizeof from));
}

static void say_late(void)
{
    char from[64];
    if (takes_the_word())
        fprintf(stderr,
                "mics: error: rank %d: asked to stop, but other ranks did not %s step %lld within "
                "%.0f s; %s\n",
                (int)named_rank, atomic_load(&saving) ? "save" : "finish",
                (long long)atomic_load(&running_step), atomic_load(&phase_s),
                where_from(from, sizeof from));
}

// Threads of one process always finish their step, however long it takes; processes may not. Each
// phase that begins after the signal has its time from then on.
static void await_end(const sigset_t *set)
{
    const double asked_us = mics_clock_us();
    say_asked();
    while (!atomic_load(&ended)) {
        double begin_us = fmax(asked_us, atomic_load(&phase_begin_us));
        double left_s = atomic_load(&phase_s) - (mics_clock_us() - begin_us) / 1e6;
        if (left_s <= 0) {
            say_late();
            _exit(1);
        }
        // Looks up each second at the latest: a phase may end sooner than its deadline.
        double wait_s = fmin(left_s, 1);
        struct timespec wait = {.tv_sec = (time_t)wait_s,
                                .tv_nsec = (long)((wait_s - floor(wait_s)) * 1e9)};
        int number = sigtimedwait(set, NULL, &wait);
        if (number > 0)
            end_by(number);
    }
}

static void *wait_for_signals(void *argument)
{
    (void)argument;
    sigset_t set;
    stop_set(&set);
    for (;;) {
        int number = 0;
        if (sigwait(&set, &number) != 0)
            continue;
        bool asks = atomic_load(&training) && !atomic_load(&ended);
        if (!asks || atomic_load(&asked_signal) != 0)
            end_by(number);
        atomic_store(&asked_signal, number);
        if (named_rank >= 0)
            await_end(&set);
    }
    return NULL;
}

mics_status cli_signals_start(void)
{
    sigset_t set;
    pthread_t thread;
    stop_set(&set);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    if (pthread_create(&thread, NULL, wait_for_signals, NULL) != 0)
        return mics_fail(MICS_ERR_MEMORY, "the system starts no more threads");
    pthread_detach(thread);
    return MICS_OK;
}

// Opened anew, and never closed: closing it would give up what the run has locked.
static int open_lock(const char *out)
{
    char path[4096];
    const int length = snprintf(path, sizeof path, "%s/lock", out);
    return length > 0 && (size_t)length < sizeof path ? open(path, O_RDWR | O_CLOEXEC) : -1;
}

void cli_signals_phase(const mics_job_phase *phase)
{
    atomic_store(&saved_step, phase->saved_step);
    atomic_store(&running_step, phase->step);
    atomic_store(&phase_begin_us, mics_clock_us());
    atomic_store(&phase_s, phase->saving ? phase->seconds : STEP_S);
    atomic_store(&saving, phase->saving);
    if (!atomic_load(&training)) {
        named_rank = phase->rank;
        lock = open_lock(phase->out);
        atomic_store(&training, true);
    }
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
    atomic_store(&ended, true);
}
