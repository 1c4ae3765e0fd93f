// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Splitting, step by step.
//
// A step finds segments: matches, and what lies between two. They become pieces by the step's
// behavior, and pieces are the texts of the next step. held.data: the text that is in no piece yet,
// from a segment's beginning; what a step finds there does not depend on the text before it.
#include "io/data/tokenizer/split.h"
#include "base/utf8.h"
#include "io/data/buffer.h"
#include "io/data/tokenizer/pattern.h"
#include "io/data/tokenizer/split_known.h"
#include "mics/log.h"
#include <string.h>

typedef enum step_kind { PATTERN, KNOWN, TEXT, CHARS, WORDS, SPACE } step_kind;

typedef struct split_step {
    step_kind kind;
    mics_split_behavior behavior;
    bool invert;
    uint8_t classes;            // of CHARS
    mics_pattern *pattern;      // of PATTERN
    mics_split_known *known;    // of KNOWN
    char *text;                 // of TEXT and SPACE
    size_t bytes;               // of `text`
    mics_split_prepend prepend; // of SPACE
} split_step;

struct mics_split {
    mics_memory *memory;
    const mics_chars *chars;
    split_step steps[MICS_SPLIT_STEPS];
    int32_t count;
    bool has_patterns;
};

struct mics_split_work {
    const mics_split *split;
    mics_matcher *matcher; // NULL without patterns
    mics_buffer held;
    mics_buffer copies[MICS_SPLIT_STEPS]; // what a SPACE step made of a piece
    bool front_first;                     // the held text is the first of the whole
    bool behind_match;                    // a match ended before the held text
};

// ---- making ----

mics_status mics_split_open(mics_memory *memory, const mics_chars *chars, mics_split **split_out)
{
    mics_split *split = NULL;
    MICS_TRY(MICS_NEW(memory, 1, &split));
    split->memory = memory;
    split->chars = chars;
    *split_out = split;
    return MICS_OK;
}

void mics_split_close(mics_split *split)
{
    if (split == NULL)
        return;
    for (int32_t i = 0; i < split->count; i++) {
        mics_pattern_close(split->steps[i].pattern);
        mics_free(split->memory, split->steps[i].text);
    }
    mics_free(split->memory, split);
}

// The step is the splitter's even when making it fails afterwards.
static mics_status add(mics_split *split, const char *where, split_step step, split_step **step_out)
{
    if (split->count == MICS_SPLIT_STEPS)
        return mics_fail(MICS_ERR_UNSUPPORTED, "%s: more than %d steps of pre-tokenizers", where,
                         MICS_SPLIT_STEPS);
    *step_out = &split->steps[split->count++];
    **step_out = step;
    return MICS_OK;
}

mics_status mics_split_add_pattern(mics_split *split, const char *where, const char *pattern,
                                   mics_split_behavior behavior, bool invert)
{
    split_step *step = NULL;
    mics_split_known *known =
        behavior == MICS_SPLIT_ISOLATED ? mics_split_known_find(pattern) : NULL;
    const split_step filled = {.kind = known != NULL ? KNOWN : PATTERN,
                               .behavior = behavior,
                               .invert = invert,
                               .known = known};
    MICS_TRY(add(split, where, filled, &step));
    if (known != NULL)
        return MICS_OK;
    split->has_patterns = true;
    return mics_pattern_open(split->memory, where, pattern, &step->pattern);
}

mics_status mics_split_add_text(mics_split *split, const char *where, const char *text,
                                mics_split_behavior behavior, bool invert)
{
    split_step *step = NULL;
    const split_step filled = {
        .kind = TEXT, .behavior = behavior, .invert = invert, .bytes = strlen(text)};
    MICS_TRY(add(split, where, filled, &step));
    return mics_strdup(split->memory, text, &step->text);
}

mics_status mics_split_add_chars(mics_split *split, const char *where, uint8_t classes,
                                 mics_split_behavior behavior)
{
    split_step *step = NULL;
    return add(split, where, (split_step){.kind = CHARS, .behavior = behavior, .classes = classes},
               &step);
}

mics_status mics_split_add_words(mics_split *split, const char *where)
{
    split_step *step = NULL;
    return add(split, where,
               (split_step){.kind = WORDS, .behavior = MICS_SPLIT_REMOVED, .invert = true}, &step);
}

mics_status mics_split_add_space(mics_split *split, const char *where, const char *text,
                                 mics_split_prepend prepend)
{
    split_step *step = NULL;
    const split_step filled = {.kind = SPACE, .prepend = prepend, .bytes = strlen(text)};
    MICS_TRY(add(split, where, filled, &step));
    return mics_strdup(split->memory, text, &step->text);
}

mics_status mics_split_work_open(const mics_split *split, mics_split_work **work_out)
{
    mics_split_work *work = NULL;
    MICS_TRY(MICS_NEW(split->memory, 1, &work));
    work->split = split;
    work->held.memory = split->memory;
    for (int32_t i = 0; i < MICS_SPLIT_STEPS; i++)
        work->copies[i].memory = split->memory;
    mics_status status =
        split->has_patterns ? mics_matcher_open(split->memory, &work->matcher) : MICS_OK;
    if (status != MICS_OK) {
        mics_split_work_close(work);
        return status;
    }
    *work_out = work;
    return MICS_OK;
}

void mics_split_work_close(mics_split_work *work)
{
    if (work == NULL)
        return;
    mics_matcher_close(work->matcher);
    mics_buffer_fini(&work->held);
    for (int32_t i = 0; i < MICS_SPLIT_STEPS; i++)
        mics_buffer_fini(&work->copies[i]);
    mics_free(work->split->memory, work);
}

// ---- spaces ----

static bool begins_with(const char *text, size_t bytes, const char *head, size_t head_bytes)
{
    return bytes >= head_bytes && memcmp(text, head, head_bytes) == 0;
}

// Appends what a SPACE step makes of a text. `begins`: it is the head of the step's text.
static mics_status append_spaced(const split_step *step, const char *text, size_t bytes,
                                 bool begins, bool first, mics_buffer *buffer)
{
    const bool there =
        bytes > 0 && (text[0] == ' ' || begins_with(text, bytes, step->text, step->bytes));
    const bool wanted = step->prepend == MICS_SPLIT_PREPEND_ALWAYS ||
                        (step->prepend == MICS_SPLIT_PREPEND_FIRST && first);
    if (bytes > 0 && begins && wanted && !there)
        MICS_TRY(mics_buffer_append(buffer, step->text, step->bytes));
    if (strcmp(step->text, " ") == 0)
        return mics_buffer_append(buffer, text, bytes);
    while (bytes > 0) {
        const char *space = memchr(text, ' ', bytes);
        const size_t before = space != NULL ? (size_t)(space - text) : bytes;
        MICS_TRY(mics_buffer_append(buffer, text, before));
        if (space != NULL)
            MICS_TRY(mics_buffer_append(buffer, step->text, step->bytes));
        text += before + (space != NULL);
        bytes -= before + (space != NULL);
    }
    return MICS_OK;
}

// ---- segments ----

// A text at one step.
typedef struct splitting {
    mics_split_work *work;
    int32_t level;
    const char *text;
    size_t bytes;
    bool first, more;
    mics_split_sink sink;
    mics_pattern_window window; // of a PATTERN
    size_t match_end;           // of the last match, SIZE_MAX: none
    // What has been found and is in no piece yet: one segment, or two that are merged.
    bool holds, held_matches, held_behind_match;
    size_t held_begin, held_end;
    size_t done; // all before it is in pieces
    bool done_behind_match;
} splitting;

static mics_status split_at(splitting *s);

// Hands a piece to the next step, or out.
static mics_status give(const splitting *s, size_t begin, size_t end)
{
    mics_split_work *work = s->work;
    const mics_split *split = work->split;
    const char *text = s->text + begin;
    size_t bytes = end - begin;
    int32_t level = s->level + 1;
    const bool first = s->first && begin == 0;
    if (bytes == 0)
        return MICS_OK;
    while (level < split->count && split->steps[level].kind == SPACE) {
        mics_buffer *copy = &work->copies[level];
        copy->bytes = 0;
        MICS_TRY(append_spaced(&split->steps[level], text, bytes, true, first, copy));
        text = copy->data;
        bytes = copy->bytes;
        level++;
    }
    if (level == split->count)
        return s->sink.piece(s->sink.ctx, text, bytes);
    splitting inner = {.work = work,
                       .level = level,
                       .text = text,
                       .bytes = bytes,
                       .first = first,
                       .sink = s->sink,
                       .match_end = SIZE_MAX};
    return split_at(&inner);
}

static mics_status give_held(splitting *s)
{
    if (!s->holds)
        return MICS_OK;
    s->holds = false;
    s->done = s->held_end;
    return give(s, s->held_begin, s->held_end);
}

static bool joins(const splitting *s, mics_split_behavior behavior, bool matches)
{
    if (!s->holds)
        return false;
    if (behavior == MICS_SPLIT_CONTIGUOUS)
        return matches == s->held_matches;
    return behavior == MICS_SPLIT_MERGED_WITH_PREVIOUS ? matches && !s->held_matches
                                                       : !matches && s->held_matches;
}

static mics_status take_segment(splitting *s, size_t begin, size_t end, bool matches)
{
    const split_step *step = &s->work->split->steps[s->level];
    const bool behind_match = s->match_end == begin;
    if (matches)
        s->match_end = end;
    const bool wanted = matches != step->invert;
    if (step->behavior <= MICS_SPLIT_REMOVED) {
        s->done = end;
        s->done_behind_match = matches;
        return step->behavior == MICS_SPLIT_REMOVED && wanted ? MICS_OK : give(s, begin, end);
    }
    if (joins(s, step->behavior, wanted)) {
        s->held_end = end;
    } else {
        MICS_TRY(give_held(s));
        s->holds = true;
        s->held_begin = begin;
        s->held_end = end;
        s->held_behind_match = behind_match;
        s->done_behind_match = behind_match;
    }
    s->held_matches = wanted;
    return MICS_OK;
}

// ---- finding ----

static size_t next_char(const char *text, size_t bytes, size_t at)
{
    const int32_t length = at < bytes ? mics_utf8_char(text + at, bytes - at) : 1;
    return at + (length > 0 ? (size_t)length : 1);
}

static bool find_text(const splitting *s, const split_step *step, size_t at, size_t *begin_out,
                      size_t *end_out)
{
    const char *there = memmem(s->text + at, s->bytes - at, step->text, step->bytes);
    if (there == NULL)
        return false;
    *begin_out = (size_t)(there - s->text);
    *end_out = *begin_out + step->bytes;
    return true;
}

static bool find_char(const splitting *s, const split_step *step, size_t at, size_t *begin_out,
                      size_t *end_out)
{
    size_t length = 0;
    for (; at < s->bytes; at += length) {
        if (mics_chars_at(s->work->split->chars, s->text + at, s->bytes - at, &length) &
            step->classes) {
            *begin_out = at;
            *end_out = at + length;
            return true;
        }
    }
    return false;
}

static bool find_word(const splitting *s, size_t at, size_t *begin_out, size_t *end_out)
{
    const mics_chars *chars = s->work->split->chars;
    const uint8_t both = MICS_CHAR_WORD | MICS_CHAR_SPACE;
    size_t length = 0;
    while (at < s->bytes &&
           (mics_chars_at(chars, s->text + at, s->bytes - at, &length) & both) == MICS_CHAR_SPACE)
        at += length;
    if (at == s->bytes)
        return false;
    *begin_out = at;
    const uint8_t kind = mics_chars_at(chars, s->text + at, s->bytes - at, &length) & both;
    while (at < s->bytes &&
           (mics_chars_at(chars, s->text + at, s->bytes - at, &length) & both) == kind)
        at += length;
    *end_out = at;
    return !s->more || at < s->bytes;
}

// A match at `at` or behind it. Of empty ones only those count that are not at a match's end.
static mics_status find_pattern(splitting *s, const split_step *step, size_t at, bool *found_out,
                                size_t *begin_out, size_t *end_out)
{
    for (;;) {
        MICS_TRY(mics_matcher_find(s->work->matcher, step->pattern, &s->window, s->text, s->bytes,
                                   at, found_out, begin_out, end_out));
        if (*found_out && *begin_out == *end_out && *end_out == s->match_end) {
            at = next_char(s->text, s->bytes, at);
            continue;
        }
        return MICS_OK;
    }
}

static mics_status find(splitting *s, size_t at, bool *found_out, size_t *begin_out,
                        size_t *end_out)
{
    const split_step *step = &s->work->split->steps[s->level];
    bool open = false;
    *found_out = false;
    if (step->kind == PATTERN)
        return find_pattern(s, step, at, found_out, begin_out, end_out);
    if (at >= s->bytes)
        return MICS_OK;
    switch (step->kind) {
    case KNOWN:
        *begin_out = at;
        *end_out =
            at + step->known(s->work->split->chars->classes, s->text + at, s->bytes - at, &open);
        *found_out = !open || !s->more;
        break;
    case TEXT:
        *found_out = find_text(s, step, at, begin_out, end_out);
        break;
    case CHARS:
        *found_out = find_char(s, step, at, begin_out, end_out);
        break;
    default:
        *found_out = find_word(s, at, begin_out, end_out);
    }
    return MICS_OK;
}

static mics_status split_at(splitting *s)
{
    const split_step *step = &s->work->split->steps[s->level];
    size_t at = 0, given = 0; // segments are found up to `given`
    if (step->kind == PATTERN)
        mics_pattern_window_init(step->pattern, s->text, s->bytes, s->more, &s->window);
    for (;;) {
        bool found = false;
        size_t begin = 0, end = 0;
        MICS_TRY(find(s, at, &found, &begin, &end));
        if (!found)
            break;
        if (begin > given)
            MICS_TRY(take_segment(s, given, begin, false));
        MICS_TRY(take_segment(s, begin, end, true));
        given = at = end;
    }
    if (s->more)
        return MICS_OK;
    if (given < s->bytes)
        MICS_TRY(take_segment(s, given, s->bytes, false));
    MICS_TRY(give_held(s));
    s->done = s->bytes;
    return MICS_OK;
}

// ---- parts ----

// Splits what is held, as far as it is certain.
static mics_status split_held(mics_split_work *work, int32_t level, bool more, mics_split_sink sink)
{
    mics_buffer *held = &work->held;
    splitting s = {.work = work,
                   .level = level,
                   .text = held->data,
                   .bytes = held->bytes,
                   .first = work->front_first,
                   .more = more,
                   .sink = sink,
                   .match_end = work->behind_match ? 0 : SIZE_MAX,
                   .done_behind_match = work->behind_match};
    if (level < work->split->count && work->split->steps[level].kind != SPACE) {
        MICS_TRY(split_at(&s));
    } else {
        const bool cuts = level == work->split->count && sink.cut != NULL;
        if (more)
            s.done = cuts ? sink.cut(sink.ctx, s.text, s.bytes) : 0;
        else
            s.done = s.bytes;
        s.level = level - 1;
        MICS_TRY(give(&s, 0, s.done));
    }
    if (s.done > 0) {
        work->behind_match = more && s.done_behind_match;
        work->front_first = false;
        mics_buffer_drop(held, s.done);
    }
    return MICS_OK;
}

mics_status mics_split_feed(mics_split_work *work, const mics_split_part *part,
                            mics_split_sink sink)
{
    const mics_split *split = work->split;
    // A first step that only changes spaces does so here, once.
    const split_step *space =
        split->count > 0 && split->steps[0].kind == SPACE ? &split->steps[0] : NULL;
    mics_buffer *held = &work->held;
    if (part->head && part->bytes > 0) {
        work->front_first = part->first;
        work->behind_match = false;
    }
    if (space != NULL)
        MICS_TRY(append_spaced(space, part->text, part->bytes, part->head, part->first, held));
    else
        MICS_TRY(mics_buffer_append(held, part->text, part->bytes));
    if (held->bytes == 0)
        return MICS_OK;
    if (work->matcher != NULL)
        mics_matcher_start(work->matcher, held->bytes);
    MICS_TRY(split_held(work, space != NULL ? 1 : 0, part->more, sink));
    if (!part->more || held->bytes < MICS_SPLIT_HELD)
        return MICS_OK;
    return split_held(work, space != NULL ? 1 : 0, false, sink);
}
