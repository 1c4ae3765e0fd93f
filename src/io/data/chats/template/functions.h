// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// The one table of everything that has a name: filters, tests, methods and globals.
#pragma once

#include "io/data/chats/template/value.h"

// Where a function is found.
enum {
    MICS_IS_FILTER = 1,
    MICS_IS_TEST = 2,
    MICS_IS_GLOBAL = 4,
    MICS_IS_OF_STRING = 8, // methods
    MICS_IS_OF_DICT = 16,
    MICS_IS_OF_LIST = 32,
    MICS_IS_OF_LOOP = 64,
    MICS_MAX_PARAMETERS = 5,
};

// Arguments as a template gives them.
typedef struct mics_arguments {
    mics_value list, named; // a list, and a dict
} mics_arguments;

typedef struct mics_call {
    mics_work *work;
    const struct mics_function *function;
    mics_value self;
    mics_value arg[MICS_MAX_PARAMETERS]; // by the table's names; ABSENT: not given
    mics_arguments given;                // of a function that takes any: "*"
} mics_call;

typedef struct mics_function {
    const char *name;
    const char *parameters; // names with blanks between, "*": any; of a refused one: why
    mics_value (*run)(mics_call *call); // NULL: refused, since it changes what it is called on
    int kinds;
    int needed; // arguments that must be given
} mics_function;

// Parts of the table; a NULL name ends each.
extern const mics_function mics_methods[];
extern const mics_function mics_filters[];
extern const mics_function mics_tests[];

/* The function of a part and kind; NULL: there is none. */
const mics_function *mics_function_among(const mics_function *part, int kind, mics_value name);
/* value.name as Python and Jinja find it: methods first if `attribute`, else keys first. */
mics_value mics_value_member(mics_work *work, mics_value value, mics_value name, bool attribute);
/* A member by a path such as "a.0.b". */
mics_value mics_value_path(mics_work *work, mics_value value, mics_value path);

/* The filter, test or global; NULL: there is none. */
const mics_function *mics_function_find(int kind, mics_value name);
/* Raises that there is none, naming those that are. `what`: "filter". */
_Noreturn void mics_function_raise_unknown(mics_work *work, int kind, const char *what,
                                           mics_value name);
/* Calls it. */
mics_value mics_function_call(mics_work *work, const mics_function *function, mics_value self,
                              mics_arguments given);

// ---- arguments of a function under way ----

/* An argument that must be a string. */
mics_value mics_call_text(mics_call *call, int index);
/* An integer, or what stands for one that is absent or none. */
int64_t mics_call_int(mics_call *call, int index, int64_t otherwise);
/* What the call is on as a list of items; raises if it has none. */
const mics_value_list *mics_call_items(mics_call *call, mics_value of);
