// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// What Python does with values: truth, order, containers, arithmetic, text.
#pragma once

#include "io/data/chats/template/work.h"

/* What Python calls its type. */
const char *mics_value_type_text(mics_value value);
/* Raises "a TYPE what", or that the value is undefined. */
__attribute__((noreturn)) void mics_value_raise(mics_work *work, const char *what,
                                                mics_value value);

/* Sets a key of a dict or namespace. */
void mics_dict_set(mics_work *work, mics_value dict, mics_value key, mics_value value);
/* The value of a key; NULL: not there. */
const mics_value *mics_dict_get(mics_work *work, mics_value dict, mics_value key);
/* A JSON value; its strings stay where they are. NULL: none. */
mics_value mics_value_of_json(mics_work *work, const mics_json_value *json);

bool mics_value_truth(mics_value value);
/* a == b. */
bool mics_value_same(mics_work *work, mics_value a, mics_value b);
/* Below, equal to or above 0 as a is to b; raises where Python has no order. */
int mics_value_order(mics_work *work, mics_value a, mics_value b);
/* Sorts items by keys of the same number; equal ones stay in order. */
void mics_value_sort(mics_work *work, const mics_value_list *keys, mics_value_list *items,
                     bool reverse);
/* `item in container`. */
bool mics_value_contains(mics_work *work, mics_value container, mics_value item);
/* Items, characters or keys. */
int64_t mics_value_length(mics_work *work, mics_value value);
/* Items of what can be gone through, not to be changed. An iterator is empty then. */
const mics_value_list *mics_value_items(mics_work *work, mics_value value);
/* An item by its key or index; ABSENT: there is none. */
mics_value mics_value_item(mics_work *work, mics_value value, mics_value key);
/* value[begin:end:step], where none stands for what is left out. */
mics_value mics_value_slice(mics_work *work, mics_value value, const mics_value bounds[3]);
/* a OP b, where `sign` is one of + - * / f (//) % p (**). */
mics_value mics_value_compute(mics_work *work, char sign, mics_value a, mics_value b);

// ---- as text ----

typedef struct mics_json_style {
    bool ensure_ascii, sort_keys;
    mics_value indent; // a string; ABSENT: all on one line
    mics_value comma, colon;
} mics_json_style;

/* Writes str(value) to the output. */
void mics_print(mics_work *work, mics_value value);
/* str(value), as a string; a string is itself. */
mics_value mics_print_str(mics_work *work, mics_value value);
/* Writes json.dumps(value). `level`: how deep it is nested. */
void mics_print_json(mics_work *work, mics_value value, const mics_json_style *style, int level);
