// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Everything that has a name, in one table: filters, tests, methods and globals.
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
    MICS_MAX_PARAMETERS = 4,
};

// Arguments as a template gives them: a list, and a dict.
typedef struct mics_arguments {
    mics_value list, named;
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
    mics_value (*run)(mics_call *call); // NULL: refused, since it changes what it is called on
    int kinds;
    int needed;             // arguments that must be given
    const char *parameters; // names with blanks between, "*": any; of a refused one: why
    int detail;             // what `run` does, where it does several things
} mics_function;

// Parts of the table; a NULL name ends each.
extern const mics_function mics_methods[];
extern const mics_function mics_filters[];

/* The function of a part and kind; NULL: there is none. */
const mics_function *mics_function_among(const mics_function *part, int kind, mics_value name);
/* value.name as Python and Jinja find it: methods first if `attribute`, else keys first. */
mics_value mics_value_member(mics_work *work, mics_value value, mics_value name, bool attribute);
/* A member by a path such as "a.0.b"; `otherwise`, unless NULL, stands for what is not there. */
mics_value mics_value_path(mics_work *work, mics_value value, mics_value path,
                           const mics_value *otherwise);

/* The filter, test or global; NULL: there is none. */
const mics_function *mics_function_find(int kind, mics_value name);
/* The same; raises that there is none, naming those that are. `what`: "filter". */
const mics_function *mics_function_need(mics_work *work, int kind, mics_value name);
/* Calls it. */
mics_value mics_function_call(mics_work *work, const mics_function *function, mics_value self,
                              mics_arguments given);

// ---- arguments of a call under way ----

/* An argument that must be a string. */
mics_value mics_call_text(mics_call *call, int index);
/* An integer, or what stands for one that is absent or none. */
int64_t mics_call_int(mics_call *call, int index, int64_t otherwise);
