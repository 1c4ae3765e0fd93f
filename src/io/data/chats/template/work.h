// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Values of a template, the memory they live in, and how errors leave.
//
// A value is returned by whatever computes it, so expressions of a template become expressions of C.
// Errors leave by longjmp to the one call that began the work and owns everything: values and trees
// are in one arena, text in one buffer, so there is nothing to clean up on the way. Functions below
// that cannot go on do not return.
#pragma once

#include "io/data/chats/template/template.h"
#include <setjmp.h>

typedef enum mics_value_type {
    MICS_VALUE_ABSENT, // an argument that was not given
    MICS_VALUE_UNDEFINED,
    MICS_VALUE_NONE,
    MICS_VALUE_BOOL,
    MICS_VALUE_INT,
    MICS_VALUE_REAL,
    MICS_VALUE_STRING,
    MICS_VALUE_LIST,
    MICS_VALUE_TUPLE,
    MICS_VALUE_RANGE,
    MICS_VALUE_VIEW, // of a dict: keys(), values(), items()
    MICS_VALUE_DICT,
    MICS_VALUE_ITERATOR, // gives each item once, is always true, has no length
    MICS_VALUE_NAMESPACE,
    MICS_VALUE_FUNCTION, // of the table, with what it is a method of
    MICS_VALUE_MACRO,
    MICS_VALUE_LOOP,
} mics_value_type;

typedef struct mics_value mics_value;

typedef struct mics_value_list {
    mics_value *items; // (count); of a dict in turn keys and values
    int64_t count, capacity;
    const char *label; // of a view: what Python prints before it
} mics_value_list;

struct mics_value {
    mics_value_type type;
    bool safe; // a string that came through `safe` or `escape`: `+` escapes what joins it
    union {
        bool truth;
        int64_t integer;
        double real;
        const char *text;      // UTF-8; of an undefined value: what was looked for
        mics_value_list *list; // LIST to NAMESPACE
        const struct mics_bound *bound;
        const struct mics_macro *macro;
        const struct mics_loop *loop;
    };
    size_t bytes; // of `text`
};

// A function of the table as a value.
typedef struct mics_bound {
    const struct mics_function *function;
    mics_value self;
} mics_bound;

// Where a loop is.
typedef struct mics_loop {
    const mics_value_list *items;
    int64_t at;
    int32_t depth0;
} mics_loop;

// Compiling or rendering, under way.
typedef struct mics_work {
    mics_memory *memory;
    const char *name;
    const char *chat; // that is rendered; NULL: none
    int32_t line;     // of what is being parsed or evaluated
    mics_template_limits limits;
    struct mics_block *blocks; // the arena
    size_t arena_bytes;
    int64_t steps;
    int32_t depth;
    int64_t now_s;
    mics_buffer *out; // what is written; captures are cut off its end again
    size_t out_begin;
    mics_status status;
    jmp_buf failed;
} mics_work;

/* Begins; `limits` may be NULL. The caller sets `failed` by setjmp before anything else. */
void mics_work_init(mics_work *work, mics_memory *memory, const char *name,
                    const mics_template_limits *limits);
/* Gives the arena back. */
void mics_work_fini(mics_work *work);

/* Logs "NAME:LINE: what" and goes to `failed`, where `status` then is. */
__attribute__((noreturn)) void mics_work_raise(mics_work *work, mics_status status,
                                               const char *format, ...) MICS_PRINTF(3, 4);
/* Goes to `failed` unless `status` is MICS_OK; it was logged. */
void mics_work_try(mics_work *work, mics_status status);
/* Counts steps. */
void mics_work_spend(mics_work *work, int64_t steps);
/* One level deeper, up to the limit; `depth` is lowered by the caller. */
void mics_work_enter(mics_work *work);

/* Zeroed memory of the arena; it is gone with the work. */
void *mics_work_alloc(mics_work *work, size_t bytes);
/* Appends to the output; `put` what ends with a NUL. */
void mics_work_write(mics_work *work, const char *text, size_t bytes);
void mics_work_put(mics_work *work, const char *text);
/* Takes what was written since `begin` bytes off again, as a string. */
mics_value mics_work_cut(mics_work *work, size_t begin);

#define MICS_UNDEFINED(name, size)                                                                 \
    ((mics_value){.type = MICS_VALUE_UNDEFINED, .text = (name), .bytes = (size)})
#define MICS_NONE ((mics_value){.type = MICS_VALUE_NONE})
#define MICS_BOOL(value) ((mics_value){.type = MICS_VALUE_BOOL, .truth = (value)})
#define MICS_INT(value) ((mics_value){.type = MICS_VALUE_INT, .integer = (value)})
#define MICS_REAL(value) ((mics_value){.type = MICS_VALUE_REAL, .real = (value)})
// A string that lies elsewhere, and stays there.
#define MICS_STRING(start, size)                                                                   \
    ((mics_value){.type = MICS_VALUE_STRING, .text = (start), .bytes = (size)})
#define MICS_LITERAL(text) MICS_STRING("" text, sizeof(text) - 1)
static inline bool mics_is_string(mics_value value)
{
    return value.type == MICS_VALUE_STRING;
}
/* Bool, integer or real. */
static inline bool mics_is_number(mics_value value)
{
    return value.type >= MICS_VALUE_BOOL && value.type <= MICS_VALUE_REAL;
}
/* What an integer or a bool counts. */
static inline int64_t mics_integer(mics_value value)
{
    return value.type == MICS_VALUE_BOOL ? value.truth : value.integer;
}
static inline double mics_number(mics_value value)
{
    return value.type == MICS_VALUE_REAL ? value.real : (double)mics_integer(value);
}
// For "%.*s".
#define MICS_SHOWN(value) (int)((value).bytes < 200 ? (value).bytes : 200), (value).text

/* A list (or tuple, dict, ...) without items. */
mics_value mics_list(mics_work *work, mics_value_type type);
void mics_list_add(mics_work *work, mics_value list, mics_value item);
