// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Splitting by PCRE2, compiled to machine code where that works. All memory but the machine code
// comes from the splitter's mics_memory.
//
// Note "Time". The patterns are a stranger's, and a backtracking matcher can take any time. PCRE2
// counts its steps from each place where a match may start, and counts none of the characters that
// a repetition runs over. So one call looks at a window of places, with as many steps for each as
// MAX_STEPS allows all of them; where that is too few, the window shrinks, down to one place. What
// is left, the number of calls and what is not counted, is bounded by CPU time, read between calls.
#define PCRE2_CODE_UNIT_WIDTH 8
#include "io/data/split.h"
#include "base/utf8.h"
#include "mics/log.h"
#include <pcre2.h>
#include <string.h>
#include <time.h>

enum {
    PATTERN_BYTES = 1 << 16,
    JIT_STACK_START = 32 << 10,
    JIT_STACK_LIMIT = 1 << 20,
    MAX_HEAP_KIB = 64 << 10, // of the interpreter, for a match
    MAX_STEPS = 10000000,    // of a call: some 0.03 s of machine code, 0.3 s of the interpreter
    MAX_STARTS = 4096,       // places of a window: 2441 steps each; a word takes a few
    STARTS_SHRINK = 16,
    CALLS_A_CHECK = 256 // that match at once, between two looks at the clock
};

// CPU time that a text may take: some 80 times the 50 ns that a byte takes with Llama 3's pattern
// (AMD EPYC, 2026-11).
static const double MAX_TIME_S = 0.1, MAX_TIME_S_PER_BYTE = 4e-6;

typedef struct split_pattern {
    pcre2_code *code;
    char *where, *text; // for errors
} split_pattern;

struct mics_split {
    mics_memory *memory;
    pcre2_general_context *general;
    split_pattern patterns[MICS_SPLIT_PATTERNS];
    int32_t count;
};

struct mics_split_work {
    const mics_split *split;
    pcre2_match_context *match;
    pcre2_jit_stack *jit_stack; // NULL: the machine's stack
    pcre2_match_data *data[MICS_SPLIT_PATTERNS];
    double begun_s, limit_s; // CPU time when a text's clock was first read, and what it may take
    int32_t calls;           // since the clock was read
};

static void *pcre2_take(size_t bytes, void *memory)
{
    void *block = NULL;
    return mics_alloc(memory, MICS_MEM_HOST, bytes, &block) == MICS_OK ? block : NULL;
}

static void pcre2_give(void *block, void *memory)
{
    mics_free(memory, block);
}

mics_status mics_split_open(mics_memory *memory, mics_split **split_out)
{
    mics_split *split = NULL;
    MICS_TRY(MICS_NEW(memory, 1, &split));
    split->memory = memory;
    split->general = pcre2_general_context_create(pcre2_take, pcre2_give, memory);
    if (split->general == NULL) {
        mics_split_close(split);
        return MICS_ERR_MEMORY; // mics_alloc has said so
    }
    *split_out = split;
    return MICS_OK;
}

void mics_split_close(mics_split *split)
{
    if (split == NULL)
        return;
    for (int32_t i = 0; i < MICS_SPLIT_PATTERNS; i++) {
        pcre2_code_free(split->patterns[i].code);
        mics_free(split->memory, split->patterns[i].where);
        mics_free(split->memory, split->patterns[i].text);
    }
    pcre2_general_context_free(split->general);
    mics_free(split->memory, split);
}

static mics_status compile(const mics_split *split, const char *where, const char *pattern,
                           pcre2_code **code_out)
{
    pcre2_compile_context *context = pcre2_compile_context_create(split->general);
    if (context == NULL)
        return MICS_ERR_MEMORY;
    // The newline and multi-line rules are those of Oniguruma's Ruby syntax, which the files mean.
    pcre2_set_newline(context, PCRE2_NEWLINE_LF);
    pcre2_set_max_pattern_length(context, PATTERN_BYTES);
    int error = 0;
    PCRE2_SIZE offset = 0;
    // \C, a single byte, would end a match inside a character.
    const uint32_t options =
        PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C | PCRE2_USE_OFFSET_LIMIT;
    pcre2_code *code = pcre2_compile((PCRE2_SPTR)pattern, PCRE2_ZERO_TERMINATED, options, &error,
                                     &offset, context);
    pcre2_compile_context_free(context);
    if (code == NULL && error == PCRE2_ERROR_HEAP_FAILED)
        return MICS_ERR_MEMORY;
    if (code == NULL) {
        PCRE2_UCHAR text[256] = "";
        pcre2_get_error_message(error, text, sizeof text);
        return mics_fail(MICS_ERR_FORMAT, "%s: bad pattern at its byte %zu: %s", where, offset,
                         (const char *)text);
    }
    *code_out = code;
    return MICS_OK;
}

mics_status mics_split_add(mics_split *split, const char *where, const char *pattern)
{
    if (split->count == MICS_SPLIT_PATTERNS)
        return mics_fail(MICS_ERR_UNSUPPORTED, "%s: more than %d patterns, one inside the other",
                         where, MICS_SPLIT_PATTERNS);
    pcre2_code *code = NULL;
    MICS_TRY(compile(split, where, pattern, &code));
    uint32_t behind = 0;
    pcre2_pattern_info(code, PCRE2_INFO_MAXLOOKBEHIND, &behind);
    if (behind != 0) {
        pcre2_code_free(code);
        return mics_fail(MICS_ERR_UNSUPPORTED, "%s: its pattern looks behind (\\b, ^ or (?<=...))",
                         where);
    }
    // Without machine code (no permission, other processor) pcre2_match interprets.
    (void)pcre2_jit_compile(code, PCRE2_JIT_COMPLETE | PCRE2_JIT_PARTIAL_HARD);
    split_pattern *added = &split->patterns[split->count];
    added->code = code;
    MICS_TRY(mics_strdup(split->memory, where, &added->where));
    MICS_TRY(mics_strdup(split->memory, pattern, &added->text));
    split->count++;
    return MICS_OK;
}

mics_status mics_split_work_open(const mics_split *split, mics_split_work **work_out)
{
    mics_split_work *work = NULL;
    MICS_TRY(MICS_NEW(split->memory, 1, &work));
    work->split = split;
    work->match = pcre2_match_context_create(split->general);
    bool complete = work->match != NULL;
    for (int32_t i = 0; complete && i < split->count; i++) {
        work->data[i] = pcre2_match_data_create(1, split->general);
        complete = work->data[i] != NULL;
    }
    if (complete)
        pcre2_set_heap_limit(work->match, MAX_HEAP_KIB);
    if (!complete) {
        mics_split_work_close(work);
        return MICS_ERR_MEMORY; // mics_alloc has said so
    }
    *work_out = work;
    return MICS_OK;
}

void mics_split_work_close(mics_split_work *work)
{
    if (work == NULL)
        return;
    for (int32_t i = 0; i < MICS_SPLIT_PATTERNS; i++)
        pcre2_match_data_free(work->data[i]);
    pcre2_jit_stack_free(work->jit_stack);
    pcre2_match_context_free(work->match);
    mics_free(work->split->memory, work);
}

// One match, with more stack or by the interpreter where the machine code finds too little.
static int match(mics_split_work *work, int32_t level, const char *text, size_t bytes, size_t at,
                 uint32_t options)
{
    pcre2_code *code = work->split->patterns[level].code;
    pcre2_match_data *data = work->data[level];
    options |= PCRE2_NO_UTF_CHECK;
    int found = pcre2_match(code, (PCRE2_SPTR)text, bytes, at, options, data, work->match);
    if (found == PCRE2_ERROR_JIT_STACKLIMIT && work->jit_stack == NULL) {
        bool before = mics_log_demote(true); // without a stack, the interpreter does it
        work->jit_stack =
            pcre2_jit_stack_create(JIT_STACK_START, JIT_STACK_LIMIT, work->split->general);
        mics_log_demote(before);
        pcre2_jit_stack_assign(work->match, NULL, work->jit_stack);
        found = pcre2_match(code, (PCRE2_SPTR)text, bytes, at, options, data, work->match);
    }
    if (found == PCRE2_ERROR_JIT_STACKLIMIT)
        found = pcre2_match(code, (PCRE2_SPTR)text, bytes, at, options | PCRE2_NO_JIT, data,
                            work->match);
    return found;
}

// Whether the text has taken its time. `seldom`: the call before was a short one.
static bool is_late(mics_split_work *work, bool seldom)
{
    struct timespec now;
    if (seldom && ++work->calls < CALLS_A_CHECK)
        return false;
    work->calls = 0;
    if (clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now) != 0)
        return false;
    const double now_s = (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
    if (work->begun_s < 0)
        work->begun_s = now_s;
    return now_s - work->begun_s > work->limit_s;
}

// The next match, as in note "Time"; MATCHLIMIT also when it is late.
static int find(mics_split_work *work, int32_t level, const char *text, size_t bytes, size_t at,
                uint32_t options)
{
    size_t starts = MAX_STARTS;
    for (bool first = true;; first = false) {
        const bool whole = bytes - at < starts;
        if (is_late(work, first))
            return PCRE2_ERROR_MATCHLIMIT;
        pcre2_set_match_limit(work->match, (uint32_t)(MAX_STEPS / starts));
        pcre2_set_offset_limit(work->match, whole ? PCRE2_UNSET : at + starts - 1);
        const int found = match(work, level, text, bytes, at, options);
        if (found == PCRE2_ERROR_MATCHLIMIT && starts > 1) {
            starts /= STARTS_SHRINK;
        } else if (found == PCRE2_ERROR_NOMATCH && !whole) {
            at += starts;
            while (at < bytes && ((unsigned char)text[at] & 0xc0) == 0x80)
                at++; // to the next character
            starts = MAX_STARTS;
        } else {
            return found;
        }
    }
}

static mics_status match_error(const mics_split_work *work, int32_t level, int found,
                               const char *text, size_t bytes)
{
    const split_pattern *pattern = &work->split->patterns[level];
    const int shown = bytes < 32 ? (int)bytes : 32;
    if (found == PCRE2_ERROR_NOMEMORY)
        return MICS_ERR_MEMORY; // mics_alloc has said so
    PCRE2_UCHAR what[256] = "needs too much time";
    if (found != PCRE2_ERROR_MATCHLIMIT)
        pcre2_get_error_message(found, what, sizeof what);
    return mics_fail(MICS_ERR_FORMAT,
                     "%s: its pattern \"%.80s\" fails on a text of %zu bytes, \"%.*s\"...: %s; use "
                     "another tokenizer",
                     pattern->where, pattern->text, bytes, shown, text, (const char *)what);
}

static mics_status split_at(mics_split_work *work, int32_t level, const char *text, size_t bytes,
                            bool more, mics_split_sink sink, size_t *consumed_out);

// Hands a piece to the next pattern, or out.
static mics_status give(mics_split_work *work, int32_t level, const char *text, size_t bytes,
                        mics_split_sink sink)
{
    size_t consumed = 0;
    if (bytes == 0)
        return MICS_OK;
    if (level + 1 < work->split->count)
        return split_at(work, level + 1, text, bytes, false, sink, &consumed);
    return sink.piece(sink.ctx, text, bytes);
}

static mics_status split_at(mics_split_work *work, int32_t level, const char *text, size_t bytes,
                            bool more, mics_split_sink sink, size_t *consumed_out)
{
    size_t given = 0; // all pieces before it are out
    size_t at = 0;    // where the next match is looked for
    while (at < bytes) {
        // PARTIAL_HARD reports every attempt that reaches the end of what is known.
        int found = find(work, level, text, bytes, at, more ? PCRE2_PARTIAL_HARD : 0);
        if (found == PCRE2_ERROR_NOMATCH || found == PCRE2_ERROR_PARTIAL)
            break;
        if (found < 0)
            return match_error(work, level, found, text + at, bytes - at);
        const PCRE2_SIZE *span = pcre2_get_ovector_pointer(work->data[level]);
        size_t begin = span[0], end = span[1];
        if (begin > end || begin < given) // \K inside a lookahead can do this
            return mics_fail(MICS_ERR_FORMAT, "the tokenizer's pattern matches backwards");
        MICS_TRY(give(work, level, text + given, begin - given, sink));
        MICS_TRY(give(work, level, text + begin, end - begin, sink));
        given = at = end;
        // An empty match cuts too, and the search goes on behind it.
        int32_t step = begin == end && at < bytes ? mics_utf8_char(text + at, bytes - at) : 1;
        if (step < 1)
            return mics_fail(MICS_ERR_FORMAT, "the tokenizer's pattern matches inside a character");
        at += begin == end && at < bytes ? (size_t)step : 0;
    }
    if (!more) {
        MICS_TRY(give(work, level, text + given, bytes - given, sink));
        given = bytes;
    }
    *consumed_out = given;
    return MICS_OK;
}

mics_status mics_split_run(mics_split_work *work, const char *text, size_t bytes, bool more,
                           mics_split_sink sink, size_t *consumed_out)
{
    work->begun_s = -1;
    work->limit_s = MAX_TIME_S + MAX_TIME_S_PER_BYTE * (double)bytes;
    if (work->split->count != 0)
        return split_at(work, 0, text, bytes, more, sink, consumed_out);
    *consumed_out = more ? 0 : bytes;
    return more || bytes == 0 ? MICS_OK : sink.piece(sink.ctx, text, bytes);
}
