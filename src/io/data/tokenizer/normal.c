// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Normalizers, step by step.
//
// Note "Cuts". A text in parts is cut before characters that Unicode's forms leave alone, and
// anywhere when there is no form. Patterns, and texts to replace of several characters, could reach
// over such a cut: with them the whole is kept until it ends, or until it is MICS_NORMAL_HELD bytes
// long and is cut behind a line. So it is where a form or a Strip looks at more than the character
// that a text was cut before, as a Replace may take that away, or make white space of it.
#include "io/data/tokenizer/normal.h"
#include "base/utf8.h"
#include "io/data/tokenizer/pattern.h"
#include "mics/log.h"
#include <string.h>
#include <utf8proc.h>

typedef struct normal_step {
    mics_normal_kind kind;
    char *text, *content;
    mics_pattern *pattern;
} normal_step;

struct mics_normal {
    mics_memory *memory;
    const mics_chars *chars;
    normal_step steps[MICS_NORMAL_STEPS];
    int32_t count;
    bool whole;         // see note "Cuts"
    bool joins;         // a form, or what looks at a text's ends: cut before stable characters
    bool clears;        // a Replace makes nothing, or white space, of a character
    bool drops_head;    // see mics_normal_drops_head
    bool finds_nothing; // see mics_normal_finds_nothing
    char *where;        // for errors; NULL without steps
    bool has_patterns;
};

struct mics_normal_work {
    const mics_normal *normal;
    mics_matcher *matcher; // NULL without patterns
    mics_buffer raw;       // what could still change
    mics_buffer turns[2];  // a step's input and output
    mics_buffer codes;
    bool begun[MICS_NORMAL_STEPS]; // nothing is the head of the step's text any more
    size_t taken, made;            // bytes of text that all steps have seen, and made
};

// ---- making ----

mics_status mics_normal_open(mics_memory *memory, const mics_chars *chars, mics_normal **normal_out)
{
    mics_normal *normal = NULL;
    MICS_TRY(MICS_NEW(memory, 1, &normal));
    normal->memory = memory;
    normal->chars = chars;
    *normal_out = normal;
    return MICS_OK;
}

void mics_normal_close(mics_normal *normal)
{
    if (normal == NULL)
        return;
    for (int32_t i = 0; i < normal->count; i++) {
        mics_pattern_close(normal->steps[i].pattern);
        mics_free(normal->memory, normal->steps[i].text);
        mics_free(normal->memory, normal->steps[i].content);
    }
    mics_free(normal->memory, normal->where);
    mics_free(normal->memory, normal);
}

// Whether all characters are ones that forms leave alone, or the replacement of spaces.
static bool is_stable_text(const char *text)
{
    enum { LOW_LINE = 0x2581 };
    const size_t bytes = strlen(text);
    for (size_t at = 0; at < bytes;) {
        const int32_t length = mics_utf8_char(text + at, bytes - at);
        const uint32_t code = mics_utf8_code(text + at, length);
        if (code != LOW_LINE && !mics_normal_is_stable(code))
            return false;
        at += (size_t)length;
    }
    return true;
}

static bool has_space(const mics_chars *chars, const char *text)
{
    size_t length = 0;
    for (size_t bytes = strlen(text); bytes > 0; bytes -= length, text += length) {
        if (mics_chars_at(chars, text, bytes, &length) & MICS_CHAR_SPACE)
            return true;
    }
    return false;
}

// How a step limits where a text may be cut.
static void note_cuts(mics_normal *normal, const normal_step *step)
{
    switch (step->kind) {
    case MICS_NORMAL_LOWERCASE:
    case MICS_NORMAL_SPACE_HAN:
        break;
    case MICS_NORMAL_STRIP_ACCENTS:
    case MICS_NORMAL_STRIP_NONSPACING:
    case MICS_NORMAL_CLEAN: // of what a text may be cut before it takes nothing away
        normal->drops_head = true;
        break;
    case MICS_NORMAL_REPLACE_TEXT:
        normal->drops_head = normal->drops_head || *step->content == '\0';
        normal->clears =
            normal->clears || *step->content == '\0' || has_space(normal->chars, step->content);
        normal->whole =
            normal->whole || !is_stable_text(step->content) ||
            (size_t)mics_utf8_char(step->text, strlen(step->text)) != strlen(step->text);
        break;
    case MICS_NORMAL_REPLACE_PATTERN:
        normal->drops_head = normal->drops_head || *step->content == '\0';
        normal->whole = true;
        break;
    case MICS_NORMAL_PREPEND:
        normal->whole = normal->whole || !is_stable_text(step->content);
        break;
    default:
        normal->drops_head = normal->drops_head || step->kind == MICS_NORMAL_STRIP_LEFT;
        normal->joins = true;
    }
}

// Whether a pattern matches where there is nothing.
static mics_status find_nothing(const mics_normal *normal, const mics_pattern *pattern,
                                bool *found_out)
{
    mics_matcher *matcher = NULL;
    mics_pattern_window window;
    size_t begin = 0, end = 0;
    MICS_TRY(mics_matcher_open(normal->memory, &matcher));
    mics_matcher_start(matcher, 0);
    mics_pattern_window_init(pattern, "", 0, false, &window);
    const mics_status status =
        mics_matcher_find(matcher, pattern, &window, "", 0, 0, found_out, &begin, &end);
    mics_matcher_close(matcher);
    return status;
}

mics_status mics_normal_add(mics_normal *normal, const char *where, mics_normal_kind kind,
                            const char *text, const char *content)
{
    if (normal->count == MICS_NORMAL_STEPS)
        return mics_fail(MICS_ERR_UNSUPPORTED, "%s: more than %d normalizers", where,
                         MICS_NORMAL_STEPS);
    if (normal->where == NULL)
        MICS_TRY(mics_strdup(normal->memory, where, &normal->where));
    normal_step *step = &normal->steps[normal->count++];
    step->kind = kind;
    if (text != NULL)
        MICS_TRY(mics_strdup(normal->memory, text, &step->text));
    if (content != NULL)
        MICS_TRY(mics_strdup(normal->memory, content, &step->content));
    if (kind == MICS_NORMAL_REPLACE_PATTERN) {
        normal->has_patterns = true;
        MICS_TRY(mics_pattern_open(normal->memory, where, text, &step->pattern));
        MICS_TRY(find_nothing(normal, step->pattern, &normal->finds_nothing));
    }
    note_cuts(normal, step);
    return MICS_OK;
}

bool mics_normal_is_empty(const mics_normal *normal)
{
    return normal->count == 0;
}

bool mics_normal_finds_nothing(const mics_normal *normal)
{
    return normal->finds_nothing;
}

bool mics_normal_drops_head(const mics_normal *normal)
{
    return normal->drops_head;
}

mics_status mics_normal_work_open(const mics_normal *normal, mics_normal_work **work_out)
{
    mics_normal_work *work = NULL;
    MICS_TRY(MICS_NEW(normal->memory, 1, &work));
    work->normal = normal;
    memset(work->begun, 1, sizeof work->begun);
    work->raw.memory = work->turns[0].memory = work->turns[1].memory = work->codes.memory =
        normal->memory;
    mics_status status =
        normal->has_patterns ? mics_matcher_open(normal->memory, &work->matcher) : MICS_OK;
    if (status != MICS_OK) {
        mics_normal_work_close(work);
        return status;
    }
    *work_out = work;
    return MICS_OK;
}

void mics_normal_work_close(mics_normal_work *work)
{
    if (work == NULL)
        return;
    mics_matcher_close(work->matcher);
    mics_buffer_fini(&work->raw);
    mics_buffer_fini(&work->turns[0]);
    mics_buffer_fini(&work->turns[1]);
    mics_buffer_fini(&work->codes);
    mics_free(work->normal->memory, work);
}

// ---- steps ----

// Refuses a text that a step has made too long of what was taken so far.
static mics_status check_length(const mics_normal_work *work, const normal_step *step,
                                const mics_buffer *out)
{
    if (work->made + out->bytes <= MICS_NORMAL_GROWTH * work->taken + MICS_NORMAL_SLACK)
        return MICS_OK;
    return mics_fail(MICS_ERR_FORMAT,
                     "%s: %s makes more than %d bytes for each of a text of %zu; use another "
                     "tokenizer",
                     work->normal->where,
                     step->kind == MICS_NORMAL_PREPEND ? "its Prepend" : "its Replace",
                     MICS_NORMAL_GROWTH, work->taken);
}

static mics_status lowercase(const char *text, size_t bytes, mics_buffer *out)
{
    enum { CAPITAL_I_DOT = 0x130 };
    static const char i_dot[] = "i\xCC\x87";       // the one character that becomes two
    MICS_TRY(mics_buffer_reserve(out, 2 * bytes)); // at most: two bytes become three
    for (size_t at = 0; at < bytes;) {
        const int32_t length = mics_utf8_char(text + at, bytes - at);
        const uint32_t code = mics_utf8_code(text + at, length);
        if (code == CAPITAL_I_DOT)
            MICS_TRY(mics_buffer_append(out, i_dot, sizeof i_dot - 1));
        else
            out->bytes += mics_chars_write((uint32_t)utf8proc_tolower((utf8proc_int32_t)code),
                                           out->data + out->bytes);
        at += (size_t)length;
    }
    return MICS_OK;
}

static mics_status strip_class(const mics_chars *chars, uint8_t removed, const char *text,
                               size_t bytes, mics_buffer *out)
{
    size_t length = 0;
    for (size_t at = 0; at < bytes; at += length) {
        if ((mics_chars_at(chars, text + at, bytes - at, &length) & removed) == 0)
            MICS_TRY(mics_buffer_append(out, text + at, length));
    }
    return MICS_OK;
}

static mics_status strip(const mics_chars *chars, const char *text, size_t bytes, bool left,
                         bool right, mics_buffer *out)
{
    size_t length = 0;
    while (left && bytes > 0 && (mics_chars_at(chars, text, bytes, &length) & MICS_CHAR_SPACE)) {
        text += length;
        bytes -= length;
    }
    while (right && bytes > 0 &&
           (mics_chars_before(chars, text, bytes, &length) & MICS_CHAR_SPACE) != 0)
        bytes -= length;
    return mics_buffer_append(out, text, bytes);
}

static mics_status replace_text(const mics_normal_work *work, const normal_step *step,
                                const char *text, size_t bytes, mics_buffer *out)
{
    const size_t wanted = strlen(step->text), content = strlen(step->content);
    while (bytes > 0) {
        const char *there = memmem(text, bytes, step->text, wanted);
        const size_t before = there != NULL ? (size_t)(there - text) : bytes;
        MICS_TRY(mics_buffer_append(out, text, before));
        if (there == NULL)
            break;
        MICS_TRY(mics_buffer_append(out, step->content, content));
        MICS_TRY(check_length(work, step, out));
        text += before + wanted;
        bytes -= before + wanted;
    }
    return MICS_OK;
}

static mics_status replace_pattern(const mics_normal_work *work, const normal_step *step,
                                   const char *text, size_t bytes, mics_buffer *out)
{
    mics_matcher *matcher = work->matcher;
    size_t given = 0, at = 0, last = SIZE_MAX;
    mics_pattern_window window;
    mics_matcher_start(matcher, bytes);
    mics_pattern_window_init(step->pattern, text, bytes, false, &window);
    while (at <= bytes && bytes > 0) {
        bool found = false;
        size_t begin = 0, end = 0;
        MICS_TRY(mics_matcher_find(matcher, step->pattern, &window, text, bytes, at, &found, &begin,
                                   &end));
        if (!found)
            break;
        if (begin == end && end == last) { // an empty match behind another does not count
            const int32_t length = at < bytes ? mics_utf8_char(text + at, bytes - at) : 1;
            at += (size_t)length;
            continue;
        }
        MICS_TRY(mics_buffer_append(out, text + given, begin - given));
        MICS_TRY(mics_buffer_append(out, step->content, strlen(step->content)));
        MICS_TRY(check_length(work, step, out));
        given = at = last = end;
    }
    return mics_buffer_append(out, text + given, bytes - given);
}

static mics_status take_step(mics_normal_work *work, int32_t index, const char *text, size_t bytes,
                             bool ends, mics_buffer *out)
{
    const mics_normal *normal = work->normal;
    const normal_step *step = &normal->steps[index];
    const bool begins = !work->begun[index];
    switch (step->kind) {
    case MICS_NORMAL_LOWERCASE:
        return lowercase(text, bytes, out);
    case MICS_NORMAL_STRIP_ACCENTS:
        return strip_class(normal->chars, MICS_CHAR_MARK, text, bytes, out);
    case MICS_NORMAL_STRIP_NONSPACING:
        return strip_class(normal->chars, MICS_CHAR_NONSPACING, text, bytes, out);
    case MICS_NORMAL_CLEAN:
        return mics_normal_clean(normal->chars, text, bytes, out);
    case MICS_NORMAL_SPACE_HAN:
        return mics_normal_space_han(text, bytes, out);
    case MICS_NORMAL_STRIP_LEFT:
        MICS_TRY(strip(normal->chars, text, bytes, begins, false, out));
        work->begun[index] = work->begun[index] || out->bytes > 0;
        return MICS_OK;
    case MICS_NORMAL_STRIP_RIGHT:
        return strip(normal->chars, text, bytes, false, ends, out);
    case MICS_NORMAL_PREPEND:
        if (begins && bytes > 0)
            MICS_TRY(mics_buffer_append(out, step->content, strlen(step->content)));
        work->begun[index] = work->begun[index] || bytes > 0;
        MICS_TRY(mics_buffer_append(out, text, bytes));
        return check_length(work, step, out);
    case MICS_NORMAL_REPLACE_TEXT:
        return replace_text(work, step, text, bytes, out);
    case MICS_NORMAL_REPLACE_PATTERN:
        return replace_pattern(work, step, text, bytes, out);
    default:
        return mics_normal_form(step->kind, text, bytes, &work->codes, out);
    }
}

// ---- parts ----

// Where what is kept may be cut; see note "Cuts".
static size_t find_cut(const mics_normal *normal, const mics_buffer *raw)
{
    const bool full = raw->bytes >= MICS_NORMAL_HELD;
    const bool whole = normal->whole || (normal->clears && normal->joins);
    if (whole && !full)
        return 0;
    if (whole) {
        const char *line = memrchr(raw->data, '\n', raw->bytes);
        return line != NULL ? (size_t)(line - raw->data) + 1 : raw->bytes;
    }
    if (!normal->joins)
        return raw->bytes;
    for (size_t at = raw->bytes; at > 0;) {
        at--;
        if (((unsigned char)raw->data[at] & 0xC0) == 0x80)
            continue;
        const int32_t length = mics_utf8_char(raw->data + at, raw->bytes - at);
        const uint32_t code = mics_utf8_code(raw->data + at, length);
        if (code > ' ' && mics_normal_is_stable(code)) // a space may be stripped
            return at;
    }
    return full ? raw->bytes : 0;
}

mics_status mics_normal_feed(mics_normal_work *work, const char *text, size_t bytes, bool head,
                             bool more, mics_buffer *out)
{
    const mics_normal *normal = work->normal;
    if (normal->count == 0)
        return mics_buffer_append(out, text, bytes);
    if (head)
        memset(work->begun, 0, sizeof work->begun);
    MICS_TRY(mics_buffer_append(&work->raw, text, bytes));
    const size_t cut = more ? find_cut(normal, &work->raw) : work->raw.bytes;
    const char *input = work->raw.data;
    size_t input_bytes = cut;
    work->taken += cut;
    for (int32_t i = 0; i < normal->count && cut > 0; i++) {
        mics_buffer *output = &work->turns[i % 2];
        output->bytes = 0;
        MICS_TRY(take_step(work, i, input, input_bytes, !more, output));
        input = output->data;
        input_bytes = output->bytes;
    }
    MICS_TRY(mics_buffer_append(out, input, input_bytes));
    work->made += input_bytes;
    mics_buffer_drop(&work->raw, cut);
    if (!more)
        memset(work->begun, 1, sizeof work->begun); // until the next text begins
    return MICS_OK;
}
