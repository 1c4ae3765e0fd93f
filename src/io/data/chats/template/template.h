// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Chat templates: the part of Jinja that Hugging Face's tokenizers use to write a chat as one text.
// A template behaves as in transformers' apply_chat_template: a sandbox in which nothing that a
// chat holds can be changed, with trim_blocks, lstrip_blocks, loop controls and generation blocks.
// Whatever is not known here is an error with the template's name and line.
//
// Reading order: work.h (values, memory, errors), tree.h (statements and expressions), scan.c, parse.c,
// eval.c, functions.h (one table of filters, tests, methods and globals).
#pragma once

#include "base/json.h"
#include "io/data/buffer.h"
#include "mics/memory.h"
#include "mics/status.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// What a render, or a compilation, may use; 0 means the default in brackets.
typedef struct mics_template_limits {
    int64_t steps;       // evaluation steps [50,000,000]
    size_t memory_bytes; // values made meanwhile, or a compiled template [512 MiB]
    size_t output_bytes; // text [64 MiB]
    int32_t depth;       // nesting of expressions, statements and macros' calls [1,000]
} mics_template_limits;

// A variable that is a string, such as "bos_token". NULL as text leaves it undefined.
typedef struct mics_template_string {
    const char *name;
    const char *text;
} mics_template_string;

// What a template sees. All of it is borrowed for the call.
typedef struct mics_template_input {
    const char *chat;                    // its name, before what is wrong with it; NULL: none
    const mics_json_value *messages;     // NULL: undefined
    int32_t left_out;                    // so many of the last messages are not seen
    const mics_json_value *tools;        // NULL: none
    const mics_json_value *documents;    // NULL: none
    const mics_json_value *variables;    // an object with more of them, which win; NULL: no more
    const mics_template_string *strings; // (string_count): bos_token, eos_token, pad_token, ...
    int32_t string_count;
    bool add_generation_prompt;
    int64_t now_s; // UTC, since 1970: for strftime_now
    mics_template_limits limits;
} mics_template_input;

// Bytes [begin, end) that a generation block wrote, with what blocks in it wrote.
typedef struct mics_template_span {
    size_t begin, end;
} mics_template_span;

// Zeroed but for `memory` it is empty; mics_template_spans_fini ends it. Ordered, not overlapping;
// a block that wrote nothing has none.
typedef struct mics_template_spans {
    mics_memory *memory;
    mics_template_span *list; // (count)
    size_t count;
} mics_template_spans;

typedef struct mics_template mics_template;

/* Compiles a template. `name` stands for its file in errors; `limits` may be NULL.
 *
 * Needs:   `text` has `bytes` bytes of UTF-8.
 * Returns: MICS_OK; MICS_ERR_FORMAT (its syntax: "NAME:LINE: what"); MICS_ERR_UNSUPPORTED (a
 *          statement, filter or test that is not known here); MICS_ERR_INVALID (a limit);
 *          MICS_ERR_MEMORY.
 * Owns:    mics_template_free; name and text are copied.
 */
mics_status mics_template_compile(mics_memory *memory, const char *name, const char *text,
                                  size_t bytes, const mics_template_limits *limits,
                                  mics_template **template_out);

/* Frees; NULL is allowed. */
void mics_template_free(mics_template *self);

/* Whether it has a generation block: only then do spans tell what an assistant wrote. */
bool mics_template_has_generation(const mics_template *self);

/* Appends a chat's text to `text`, and to `spans`, unless NULL, what generation blocks wrote of it,
 * as offsets in `text`.
 *
 * Returns: MICS_OK; MICS_ERR_INVALID (the chat and the template do not go together, the template
 *          raised an exception, or a limit: "NAME:LINE: what"); MICS_ERR_UNSUPPORTED;
 *          MICS_ERR_MEMORY. `text` and `spans` are as before then.
 * Threads: any number may render one template, each with its own text.
 */
mics_status mics_template_render(const mics_template *self, const mics_template_input *input,
                                 mics_buffer *text, mics_template_spans *spans);

void mics_template_spans_fini(mics_template_spans *spans);
