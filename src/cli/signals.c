// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// The thread that waits for signals. What it shares with others is global, as signals belong to the
// process.
#include "signals.h"
#include "base/clock.h"
#include "base/file.h"
#include "io/remote/remote.h"
#include "mics/log.h"
#include "run/settings.h"
#include <fcntl.h>
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <unistd.h>

enum { LEFT_NOTHING = -1 };
enum { LAST_WORD = 1 }; // byte of the lock file; byte 0 belongs to the run

static const struct {
    int number;
    const char *name;
} signals[] = {{SIGINT, "SIGINT"},
               {SIGTERM, "SIGTERM"},
               {SIGHUP, "SIGHUP"},
               {SIGUSR1, "SIGUSR1"},
               {SIGUSR2, "SIGUSR2"}};
enum { SIGNALS = sizeof signals / sizeof signals[0] };

// A state that is saved is left as it is after so long, or that part of the grace, if the step that
// runs has not ended: a longer wait gains nothing.
static const double ORDERLY_S = 1, ORDERLY_PART = 0.8;
// Launchers send a signal to a process group and to its leader; that is one request.
static const double SAME_REQUEST_S = 1;
// Beyond the grace, for a save that is about to begin.
static const double LEAST_EXTRA_S = 1;
// How much longer the others wait than rank 0, which knows whether the state is saved.
static const double OTHERS_WAIT_S = 3;
// Where the state is safe, processes end at about the same time: a launcher that sees one end kills
// the others, and their exit status counts too. All wait until all may know it; rank 0 has to speak.
static const double TOGETHER_S = 0.2, OTHERS_TOGETHER_S = 0.25;

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER; // guards `served`
static mics_job *served;                                  // NULL: nobody is asked
static atomic_int asked_signal;
static atomic_bool resumable;          // who is started again loses nothing
static atomic_int left = LEFT_NOTHING; // exit status of a process whose job has ended
static _Atomic double patience_s;      // for what such a process does still
static int lock = -1;                  // the run's lock file
static const char *_Atomic last_word;  // NULL: nothing is said

// Under nohup a terminal that hangs up is nobody's wish.
static void taken_signals(sigset_t *set_out)
{
    struct sigaction hangup;
    sigemptyset(set_out);
    for (int i = 0; i < SIGNALS; i++)
        sigaddset(set_out, signals[i].number);
    if (sigaction(SIGHUP, NULL, &hangup) == 0 && hangup.sa_handler == SIG_IGN)
        sigdelset(set_out, SIGHUP);
}

static const char *name_of(int number)
{
    for (int i = 0; i < SIGNALS; i++) {
        if (signals[i].number == number)
            return signals[i].name;
    }
    return NULL;
}

// A live line of progress is left as it is.
static void log_signal(int number)
{
    const char *word = atomic_load(&last_word);
    if (word == NULL || *word == '\0' || mics_job_is_launched())
        return; // the launcher says it
    fprintf(stderr, "%smics: stopped by %s; %s\n", isatty(STDERR_FILENO) ? "\n" : "",
            name_of(number), word);
}

void cli_signals_word(const char *word)
{
    atomic_store(&last_word, word);
}

// Ends the process by the signal, as if nobody had waited for it, but for files that are not whole.
static void end_by(int number)
{
    sigset_t set;
    mics_file_abandon_all();
    log_signal(number);
    sigemptyset(&set);
    sigaddset(&set, number);
    signal(number, SIG_DFL);
    pthread_sigmask(SIG_UNBLOCK, &set, NULL);
    raise(number);
    _exit(1);
}

// ---- what is said ----

// Without a lock file everybody speaks.
static bool takes_the_word(void)
{
    struct flock byte = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = LAST_WORD, .l_len = 1};
    return lock < 0 || fcntl(lock, F_SETLK, &byte) == 0;
}

static const char *where_from(const mics_job_standing *at, char *text, size_t capacity)
{
    const bool kept = at->kept && (!at->saved || at->kept_step > at->saved_step);
    if (!kept && !at->saved)
        return "nothing is saved yet";
    snprintf(text, capacity, "--resume auto goes on from step %lld%s",
             (long long)(kept ? at->kept_step : at->saved_step), kept ? ", in node memory" : "");
    return text;
}

static void log_asked(const mics_job_standing *at, int number)
{
    char from[96];
    if (at->rank <= 0 && number == SIGINT && isatty(STDERR_FILENO))
        fprintf(
            stderr,
            "\nmics: stops when step %lld is saved; a second Ctrl-C ends at once, and then %s\n",
            (long long)at->step, where_from(at, from, sizeof from));
    if (at->rank >= 0 && number == SIGTERM && takes_the_word())
        fprintf(stderr,
                "mics: rank %d: asked to stop in step %lld, as launchers do when a rank has died; "
                "step %lld is saved if all ranks can, otherwise %s\n",
                (int)at->rank, (long long)at->step + 1, (long long)at->step,
                where_from(at, from, sizeof from));
}

static void end_unsaved(const mics_job_standing *at, const char *why)
{
    char from[96], rank[24] = "";
    if (at->rank >= 0)
        snprintf(rank, sizeof rank, "rank %d: ", (int)at->rank);
    if (takes_the_word())
        fprintf(stderr, "mics: error: %sasked to stop, and %s; %s\n", rank, why,
                where_from(at, from, sizeof from));
    _exit(1);
}

// What the disk was too slow for within the grace is in node memory.
static void end_stopped(const mics_job_standing *at, bool saved)
{
    char where[4096 + 128] = "in node memory and not on disk; --resume auto goes on from it on the "
                             "same nodes";
    const mics_run *run = mics_job_run(served);
    const bool bucket = mics_remote_is_bucket(run->checkpoint_dir);
    if (saved)
        snprintf(where, sizeof where, "saved in %s%s; --resume auto goes on",
                 bucket ? run->checkpoint_dir : run->out, bucket ? "" : "/checkpoints");
    fflush(stdout);
    if (at->rank <= 0)
        fprintf(stderr, "%smics: stopped by %s after step %lld, which is %s\n",
                isatty(STDERR_FILENO) ? "\n" : "", cli_signals_asked(), (long long)at->step, where);
    _exit(CLI_EXIT_STOPPED);
}

// ---- the thread ----

static double since_s(double begin_us)
{
    return (mics_clock_us() - begin_us) / 1e6;
}

// Ends the process if the state is safe: `ready_s` says how long after the request that was seen, so
// that it can be left as it is; < 0: not yet.
static void end_if_safe(const mics_job_standing *at, double gone_s, double grace_s, bool again,
                        double *ready_s)
{
    const bool safe = at->saved && at->saved_step == at->step && !at->writing;
    const bool kept = at->kept && at->kept_step == at->step;
    const bool ready =
        (safe && gone_s >= fmin(ORDERLY_S, grace_s * ORDERLY_PART)) || (kept && gone_s >= grace_s);
    if (!ready)
        *ready_s = -1;
    else if (*ready_s < 0)
        *ready_s = gone_s;
    const double wait_s = at->rank > 0 ? OTHERS_TOGETHER_S : TOGETHER_S;
    if (!again && (!ready || gone_s - *ready_s < (at->rank < 0 ? 0 : wait_s)))
        return;
    if (safe || kept)
        end_stopped(at, safe);
}

// What follows from where the job stands, so long after it was asked. Called with the mutex.
static void look(const mics_job_standing *at, double gone_s, int number, double *ready_s)
{
    const double grace_s = mics_job_run(served)->grace_s;
    const double extra_s = fmax(at->save_s, LEAST_EXTRA_S) + (at->rank <= 0 ? 0 : OTHERS_WAIT_S);
    char why[96];
    const bool again = (number == SIGINT || number == SIGTERM) && gone_s > SAME_REQUEST_S;
    end_if_safe(at, gone_s, grace_s, again, ready_s);
    if (again)
        end_unsaved(at, "asked again before that was done");
    snprintf(why, sizeof why, "not all ranks have finished or saved their step within %.0f s",
             grace_s);
    if (gone_s >= grace_s + extra_s && !at->writing)
        end_unsaved(at, why);
}

// Returns whether there is a job to wait for.
static bool look_after(double asked_us, int number, double *ready_s)
{
    pthread_mutex_lock(&mutex);
    const bool runs = served != NULL;
    if (runs) {
        const mics_job_standing at = mics_job_standing_get(served);
        look(&at, since_s(asked_us), number, ready_s);
    }
    pthread_mutex_unlock(&mutex);
    return runs;
}

// Nothing is to be saved yet. A launcher that sees one process end kills the others.
static void end_before_training(int number)
{
    mics_file_abandon_all();
    log_signal(number);
    if (mics_job_is_launched())
        nanosleep(&(struct timespec){.tv_nsec = (long)(TOGETHER_S * 1e9)}, NULL);
    _exit(CLI_EXIT_STOPPED);
}

// The job has ended, and what is left of the process takes no longer than a stop may.
static void end_after_training(const sigset_t *set, int status)
{
    const struct timespec awhile = {.tv_nsec = 50 * 1000 * 1000};
    const double begin_us = mics_clock_us();
    while (since_s(begin_us) < atomic_load(&patience_s)) {
        const int number = sigtimedwait(set, NULL, &awhile);
        if ((number == SIGINT || number == SIGTERM) && since_s(begin_us) > SAME_REQUEST_S)
            break;
    }
    fflush(stdout);
    _exit(status);
}

static void end_unasked(const sigset_t *set, int number)
{
    const int status = atomic_load(&left);
    if (status != LEFT_NOTHING)
        end_after_training(set, status);
    if (atomic_load(&resumable))
        end_before_training(number);
    end_by(number);
}

static bool ask(int number)
{
    pthread_mutex_lock(&mutex);
    const bool runs = served != NULL;
    if (runs) {
        const mics_job_standing at = mics_job_standing_get(served);
        atomic_store(&asked_signal, number);
        mics_job_stop(served);
        log_asked(&at, number);
    }
    pthread_mutex_unlock(&mutex);
    return runs;
}

static void *wait_for_signals(void *argument)
{
    const struct timespec awhile = {.tv_nsec = 50 * 1000 * 1000};
    const sigset_t *set = argument;
    for (;;) {
        int number = 0;
        if (sigwait(set, &number) != 0)
            continue;
        const double asked_us = mics_clock_us();
        double ready_s = -1;
        if (!ask(number))
            end_unasked(set, number);
        while (look_after(asked_us, number, &ready_s)) {
            number = sigtimedwait(set, NULL, &awhile);
        }
    }
    return NULL;
}

mics_status cli_signals_start(void)
{
    static sigset_t set;
    pthread_t thread;
    taken_signals(&set);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    if (pthread_create(&thread, NULL, wait_for_signals, &set) != 0)
        return mics_fail(MICS_ERR_MEMORY, "the system starts no more threads");
    pthread_detach(thread);
    return MICS_OK;
}

void cli_signals_serve(mics_job *job)
{
    char path[4096];
    const int length = snprintf(path, sizeof path, "%s/lock", mics_job_run(job)->out);
    pthread_mutex_lock(&mutex);
    // Opened anew, and never closed: closing it would give up what the run has locked.
    if (lock < 0 && length > 0 && (size_t)length < sizeof path)
        lock = open(path, O_RDWR | O_CLOEXEC);
    served = job;
    pthread_mutex_unlock(&mutex);
}

void cli_signals_resumable(void)
{
    atomic_store(&resumable, true);
}

// What failed has nothing left to do that anybody waits for.
void cli_signals_done(const mics_job *job, int status)
{
    const bool good = status == 0 || status == CLI_EXIT_STOPPED;
    atomic_store(&patience_s, good ? mics_job_run(job)->grace_s : 0);
    atomic_store(&left, status);
    pthread_mutex_lock(&mutex);
    served = NULL;
    pthread_mutex_unlock(&mutex);
}

const char *cli_signals_asked(void)
{
    return name_of(atomic_load(&asked_signal));
}
