// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Matching by Oniguruma, within bounds.
//
// Note "Time". The patterns are a stranger's, and a backtracking matcher can take any time.
// Oniguruma counts its retries in one match and bounds its stack, but counts none of the characters
// that a repetition runs over, which can be all of them for every retry. So every place where a
// match may begin is one call, which sees a window of the text that is as short as the pattern's
// reach allows. It has FIRST_STEPS / window retries, which take no longer than a text may, whatever
// a retry runs over. Where they do not do, most retries run over little: 20000 capital letters need
// 20000 with the patterns of GPT-4o and Mistral Nemo. So the call is made again with twice as many,
// as long as the text has the time that this takes at the pace so far, up to MAX_RETRIES. Between
// calls the thread's CPU time is read. What is done with the matches takes of it too, and is
// nobody's fault: when a text's time is over, it gets as much again, of which only the time spent
// here is taken, and what is known to have been.
#include "io/data/tokenizer/pattern.h"
#include "base/free.h"
#include "mics/log.h"
#include <oniguruma.h>
#include <pthread.h>
#include <string.h>
#include <time.h>

enum {
    PATTERN_BYTES = 1 << 12, // the longest of a known tokenizer has some 1000
    FIRST_STEPS = 1 << 28,   // of a call, retries times characters: some 0.8 s
    MAX_RETRIES = 1 << 24,   // of a match: no fewer than Oniguruma's own limit, 10 million
    WINDOW = 16 << 10,       // bytes at first
    MAX_STACK = 1 << 21,     // entries of a match: some 80 MiB
    CALLS_A_CHECK = 32,      // between two looks at the clock
    FAR = 64 << 10, // what a pattern of unknown reach is taken to look ahead at most; bytes
};

// CPU time that a text may take: a second, and some 40 times the 0.1 us that a byte takes with
// Llama 3's pattern (AMD EPYC, 2026-11).
static const double MAX_TIME_S = 1, MAX_TIME_S_PER_BYTE = 4e-6;

struct mics_pattern {
    mics_memory *memory;
    regex_t *regex;
    char *where, *text; // for errors
    mics_pattern_reach reach;
};

struct mics_matcher {
    mics_memory *memory;
    OnigMatchParam *limits;
    unsigned long retries;   // that a call may take
    double begun_s, limit_s; // CPU time when the text's clock was first read, and what it may take
    double read_s;           // when it was last read
    int32_t calls, interval; // calls since, and after how many it is read again
    bool pauses;             // the clock stands still between finds; see note "Time"
    double paused_s;         // when it was stopped
    double spent_s;          // surely here, before it paused: in calls that were made again
};

// ---- compiling ----

static void initialize(void)
{
    OnigEncoding encodings[] = {ONIG_ENCODING_UTF8};
    onig_initialize(encodings, 1);
}

static mics_status compile(const char *where, const char *text, regex_t **regex_out)
{
    // Oniguruma begins with the first pattern, whoever compiles it, and has no lock.
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    (void)pthread_once(&once, initialize);
    const size_t bytes = strlen(text);
    if (bytes > PATTERN_BYTES)
        return mics_fail(MICS_ERR_UNSUPPORTED, "%s: a pattern of %zu bytes; at most %d are known",
                         where, bytes, PATTERN_BYTES);
    // Which characters these are changed with Oniguruma 6.9.5, and the package brings its own.
    if (strstr(text, "[:punct:]") != NULL || strstr(text, "[:^punct:]") != NULL)
        return mics_fail(MICS_ERR_UNSUPPORTED,
                         "%s: its pattern \"%.80s\" has [:punct:], which versions of Oniguruma "
                         "differ on; \\p{P} and \\p{S} would work",
                         where, text);
    const OnigUChar *begin = (const OnigUChar *)text;
    OnigErrorInfo info = {0};
    const int error = onig_new(regex_out, begin, begin + bytes, ONIG_OPTION_NONE,
                               ONIG_ENCODING_UTF8, ONIG_SYNTAX_ONIGURUMA, &info);
    if (error == ONIGERR_MEMORY)
        return mics_fail(MICS_ERR_MEMORY, "%s: no memory to compile a pattern", where);
    if (error != ONIG_NORMAL) {
        OnigUChar what[ONIG_MAX_ERROR_MESSAGE_LEN] = "";
        onig_error_code_to_str(what, error, &info);
        return mics_fail(MICS_ERR_FORMAT, "%s: bad pattern \"%.80s\": %s", where, text,
                         (const char *)what);
    }
    return MICS_OK;
}

mics_status mics_pattern_open(mics_memory *memory, const char *where, const char *text,
                              mics_pattern **pattern_out)
{
    mics_pattern *pattern = NULL;
    mics_status status = MICS_OK;
    MICS_TRY(MICS_NEW(memory, 1, &pattern));
    pattern->memory = memory;
    MICS_TRY_OUT(mics_strdup(memory, where, &pattern->where));
    MICS_TRY_OUT(mics_strdup(memory, text, &pattern->text));
    MICS_TRY_OUT(compile(where, text, &pattern->regex));
    MICS_TRY_OUT(mics_pattern_reach_init(memory, text, &pattern->reach));
    if (pattern->reach.behind) {
        status = mics_fail(MICS_ERR_UNSUPPORTED,
                           "%s: its pattern \"%.80s\" looks behind (\\b, ^ or (?<=...)), which is "
                           "not supported",
                           where, text);
        goto out;
    }
    *pattern_out = pattern;
    pattern = NULL;
out:
    mics_pattern_close(pattern);
    return status;
}

void mics_pattern_close(mics_pattern *pattern)
{
    if (pattern == NULL)
        return;
    if (pattern->regex != NULL)
        onig_free(pattern->regex);
    mics_pattern_reach_fini(pattern->memory, &pattern->reach);
    MICS_FREE_ALL(pattern->memory, pattern->where, pattern->text, pattern);
}

// ---- matching ----

mics_status mics_matcher_open(mics_memory *memory, mics_matcher **matcher_out)
{
    mics_matcher *matcher = NULL;
    MICS_TRY(MICS_NEW(memory, 1, &matcher));
    matcher->memory = memory;
    matcher->limits = onig_new_match_param();
    if (matcher->limits == NULL) {
        mics_matcher_close(matcher);
        return mics_fail(MICS_ERR_MEMORY, "no memory to match a pattern");
    }
    onig_initialize_match_param(matcher->limits);
    (void)onig_set_match_stack_limit_size_of_match_param(matcher->limits, MAX_STACK);
    *matcher_out = matcher;
    return MICS_OK;
}

void mics_matcher_close(mics_matcher *matcher)
{
    if (matcher == NULL)
        return;
    if (matcher->limits != NULL)
        onig_free_match_param(matcher->limits);
    mics_free(matcher->memory, matcher);
}

void mics_matcher_start(mics_matcher *matcher, size_t bytes)
{
    matcher->begun_s = -1;
    matcher->limit_s = MAX_TIME_S + MAX_TIME_S_PER_BYTE * (double)bytes;
    matcher->calls = 0;
    matcher->interval = 1;
    matcher->pauses = false;
    matcher->spent_s = 0;
}

static double cpu_time_s(void)
{
    struct timespec now = {0};
    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

// Whether the text may take so much more time, from now on.
static bool has_time(mics_matcher *matcher, double more_s)
{
    const double now_s = cpu_time_s();
    if (matcher->begun_s < 0)
        matcher->begun_s = now_s;
    matcher->read_s = now_s;
    if (now_s - matcher->begun_s + more_s <= matcher->limit_s)
        return true;
    if (matcher->pauses)
        return false;
    matcher->pauses = true;
    matcher->begun_s = now_s - matcher->spent_s;
    return matcher->spent_s + more_s <= matcher->limit_s;
}

static bool is_late(mics_matcher *matcher)
{
    static const double SLOW_S = 1e-3;
    if (++matcher->calls < matcher->interval)
        return false;
    matcher->calls = 0;
    const double before_s = matcher->begun_s < 0 ? cpu_time_s() : matcher->read_s;
    const bool late = !has_time(matcher, 0);
    if (matcher->read_s - before_s > SLOW_S)
        matcher->interval = 1;
    else if (matcher->interval < CALLS_A_CHECK)
        matcher->interval *= 2;
    return late;
}

static mics_status match_error(const mics_pattern *pattern, int error, const char *text,
                               size_t bytes)
{
    const int shown = bytes < 32 ? (int)bytes : 32;
    if (error == ONIGERR_MEMORY)
        return mics_fail(MICS_ERR_MEMORY, "%s: no memory to match a pattern", pattern->where);
    OnigUChar what[ONIG_MAX_ERROR_MESSAGE_LEN] = "it takes too long";
    if (error != ONIG_MISMATCH)
        onig_error_code_to_str(what, error);
    return mics_fail(MICS_ERR_FORMAT,
                     "%s: its pattern \"%.80s\" fails on a text of %zu bytes, \"%.*s\"...: %s; use "
                     "another tokenizer",
                     pattern->where, pattern->text, bytes, shown, text, (const char *)what);
}

// ---- windows ----

// What is certain of a text of which more follows.
static void find_certain(const mics_pattern *pattern, const char *text, size_t bytes,
                         size_t *starts_out, size_t *ends_out)
{
    enum { FIRST_STEP = 512 };
    *ends_out = bytes;
    *starts_out = 0;
    if (pattern->reach.far) {
        *ends_out = *starts_out = bytes > FAR ? bytes - FAR : 0;
        return;
    }
    // The reach only grows with the place that it is taken from.
    for (size_t step = FIRST_STEP; *starts_out == 0 && step / 2 < bytes; step *= 2) {
        size_t at = step < bytes ? bytes - step : 0;
        while (at > 0 && ((unsigned char)text[at] & 0xC0) == 0x80)
            at--;
        if (mics_pattern_reach_end(&pattern->reach, text, bytes, at) < bytes)
            *starts_out = at + 1;
    }
}

void mics_pattern_window_init(const mics_pattern *pattern, const char *text, size_t bytes,
                              bool more, mics_pattern_window *window_out)
{
    *window_out = (mics_pattern_window){.last_starts = bytes + 1, .last_ends = bytes};
    if (more)
        find_certain(pattern, text, bytes, &window_out->last_starts, &window_out->last_ends);
}

// Makes a window of some `size` bytes from `at`, or of more, in which a match from there is
// certain.
static void set_window(const mics_pattern *pattern, mics_pattern_window *window, const char *text,
                       size_t bytes, size_t at, size_t size)
{
    for (; size < bytes - at; size *= 2) {
        size_t starts = 0, ends = 0;
        window->end = at + size;
        while (((unsigned char)text[window->end] & 0xC0) == 0x80)
            window->end--;
        find_certain(pattern, text + at, window->end - at, &starts, &ends);
        window->starts = at + starts;
        window->ends = at + ends;
        if (starts > 0)
            return;
    }
    window->end = bytes;
    window->starts = bytes + 1;
    window->ends = bytes;
}

// ---- finding ----

static int match_within(mics_matcher *matcher, const mics_pattern *pattern,
                        const mics_pattern_window *window, const char *text, size_t at,
                        unsigned long retries)
{
    const OnigUChar *begin = (const OnigUChar *)text;
    if (matcher->retries != retries)
        (void)onig_set_retry_limit_in_match_of_match_param(matcher->limits, retries);
    matcher->retries = retries;
    return onig_match_with_param(pattern->regex, begin, begin + window->end, begin + at, NULL,
                                 ONIG_OPTION_NONE, matcher->limits);
}

// Bytes of the match at one place, or an error code; see note "Time".
static int match_at(mics_matcher *matcher, const mics_pattern *pattern,
                    const mics_pattern_window *window, const char *text, size_t at)
{
    size_t seen = WINDOW;
    while (seen < window->end - at && seen < FIRST_STEPS)
        seen *= 2;
    unsigned long retries = (unsigned long)(FIRST_STEPS / seen);
    int length = match_within(matcher, pattern, window, text, at, retries);
    // The first call's time is not known, and is bounded.
    for (double last_s = 0; length == ONIGERR_RETRY_LIMIT_IN_MATCH_OVER;) {
        retries *= 2;
        if (retries > MAX_RETRIES || !has_time(matcher, 2 * last_s))
            break;
        length = match_within(matcher, pattern, window, text, at, retries);
        last_s = cpu_time_s() - matcher->read_s;
        matcher->spent_s += last_s;
        matcher->interval = 1;
    }
    return length;
}

static mics_status find(mics_matcher *matcher, const mics_pattern *pattern,
                        mics_pattern_window *window, const char *text, size_t bytes, size_t at,
                        bool *found_out, size_t *begin_out, size_t *end_out)
{
    size_t size = pattern->reach.far ? (size_t)2 * FAR : WINDOW;
    *found_out = false;
    while (at < window->last_starts) {
        if (at >= window->starts)
            set_window(pattern, window, text, bytes, at, size);
        if (is_late(matcher))
            return match_error(pattern, ONIG_MISMATCH, text + at, bytes - at);
        const int length = match_at(matcher, pattern, window, text, at);
        if (length >= 0 && at + (size_t)length > window->ends) {
            size = 2 * (window->end - at);
            window->starts = 0; // it takes a longer one
            continue;
        }
        if (length >= 0) {
            *found_out = at + (size_t)length <= window->last_ends;
            *begin_out = at;
            *end_out = at + (size_t)length;
            return MICS_OK;
        }
        if (length != ONIG_MISMATCH)
            return match_error(pattern, length, text + at, bytes - at);
        if (at == bytes)
            break;
        at++;
        while (at < bytes && ((unsigned char)text[at] & 0xC0) == 0x80)
            at++; // to the next character
    }
    return MICS_OK;
}

mics_status mics_matcher_find(mics_matcher *matcher, const mics_pattern *pattern,
                              mics_pattern_window *window, const char *text, size_t bytes,
                              size_t at, bool *found_out, size_t *begin_out, size_t *end_out)
{
    if (matcher->pauses)
        matcher->begun_s += cpu_time_s() - matcher->paused_s;
    const mics_status status =
        find(matcher, pattern, window, text, bytes, at, found_out, begin_out, end_out);
    if (matcher->pauses)
        matcher->paused_s = cpu_time_s();
    return status;
}
