// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// The normalizers of a tokenizer.json: what is done to a text before it is split (Unicode's forms
// by utf8proc).
//
// A Replace may make a stranger's text longer, step by step: what comes out is bounded by
// MICS_NORMAL_GROWTH times the text, and MICS_NORMAL_SLACK.
//
// A text may come in parts. What later text could change is kept, up to MICS_NORMAL_HELD bytes, so
// that parts give the result of the whole.
#pragma once

#include "io/data/buffer.h"
#include "io/data/tokenizer/chars.h"
#include <stdbool.h>

enum {
    MICS_NORMAL_STEPS = 16,
    MICS_NORMAL_HELD = 4 << 20,
    MICS_NORMAL_GROWTH = 64, // forms make up to 11 bytes of one
    MICS_NORMAL_SLACK = 1 << 20,
};

typedef enum mics_normal_kind {
    MICS_NORMAL_NFC,
    MICS_NORMAL_NFD,
    MICS_NORMAL_NFKC,
    MICS_NORMAL_NFKD,
    MICS_NORMAL_LOWERCASE,        // every character on its own
    MICS_NORMAL_STRIP_ACCENTS,    // removes \p{M}
    MICS_NORMAL_STRIP_NONSPACING, // removes \p{Mn}
    MICS_NORMAL_CLEAN,            // removes control characters, makes all white space spaces
    MICS_NORMAL_SPACE_HAN,        // a space before and behind each Chinese character
    MICS_NORMAL_STRIP_LEFT,       // removes white space
    MICS_NORMAL_STRIP_RIGHT,
    MICS_NORMAL_PREPEND,         // `content` (at least a byte), unless the text is empty
    MICS_NORMAL_REPLACE_TEXT,    // each `text` (at least a byte) by `content`
    MICS_NORMAL_REPLACE_PATTERN, // each match of `text` by `content`
} mics_normal_kind;

typedef struct mics_normal mics_normal;
// What one thread needs to normalize.
typedef struct mics_normal_work mics_normal_work;

/* Opens what changes nothing. `chars` must outlive it.   Owns: mics_normal_close. */
mics_status mics_normal_open(mics_memory *memory, const mics_chars *chars,
                             mics_normal **normal_out);
void mics_normal_close(mics_normal *normal);

/* Adds a step behind those that are there. `where` names it in errors; `text` and `content` may be
 * NULL where the kind has none.
 *
 * Returns: MICS_OK; MICS_ERR_FORMAT (a pattern that does not compile); MICS_ERR_UNSUPPORTED (it
 *          looks behind, or a step too many); MICS_ERR_MEMORY.
 */
mics_status mics_normal_add(mics_normal *normal, const char *where, mics_normal_kind kind,
                            const char *text, const char *content);

/* Whether there is no step. */
bool mics_normal_is_empty(const mics_normal *normal);

/* Whether some step replaces a pattern that matches the empty text. */
bool mics_normal_finds_nothing(const mics_normal *normal);

/* Whether some step may take away what a text begins with. */
bool mics_normal_drops_head(const mics_normal *normal);

mics_status mics_normal_work_open(const mics_normal *normal, mics_normal_work **work_out);
void mics_normal_work_close(mics_normal_work *work);

/* Appends what becomes of a part of a text, valid UTF-8. `head`: the text begins; `more`: it goes
 * on.
 *
 * Returns: MICS_OK; MICS_ERR_FORMAT (a pattern that needs too much time; a text that becomes too
 *          long: by which step); MICS_ERR_MEMORY.
 */
mics_status mics_normal_feed(mics_normal_work *work, const char *text, size_t bytes, bool head,
                             bool more, mics_buffer *out);

/* One of Unicode's forms of a text; `codes` is work space. For valid UTF-8. */
mics_status mics_normal_form(mics_normal_kind form, const char *text, size_t bytes,
                             mics_buffer *codes, mics_buffer *out);

/* Characters of BERT's normalizer: MICS_NORMAL_CLEAN and MICS_NORMAL_SPACE_HAN. For valid UTF-8. */
mics_status mics_normal_clean(const mics_chars *chars, const char *text, size_t bytes,
                              mics_buffer *out);
mics_status mics_normal_space_han(const char *text, size_t bytes, mics_buffer *out);

/* Whether no form joins a character with, or moves it before, what precedes it. Many letters are
 * not said to be, but could be. */
bool mics_normal_is_stable(uint32_t code);
